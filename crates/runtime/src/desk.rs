//! A few connections, served between two rounds of the poll loop and never waited for: each asks once, is answered, and is closed.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::streams::{Listening, Stream};

/// While the loop does not sleep, and so is not woken, the socket is looked at this often.
pub(crate) const LOOK_NS: u64 = 1_000_000;
/// After an accept failed, as it does when descriptors are used up.
const RETRY_NS: u64 = 100_000_000;

/// What connections may cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Connections at once; more wait in the socket's backlog.
    pub(crate) connections: usize,
    /// A request is shorter.
    pub(crate) request_bytes: usize,
    /// A connection that has not asked and taken its answer by then is dropped.
    pub(crate) patience_ns: u64,
}

/// What becomes of a connection of which so much was heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// There has to be more.
    Part,
    /// This is its answer.
    Answer(Vec<u8>),
}

/// What a connection is at.
#[derive(Debug)]
enum Stage {
    /// So much of the request has come.
    Asking(Vec<u8>),
    /// Of the answer, so many bytes have gone.
    Answering(Vec<u8>, usize),
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    stage: Stage,
    until_ns: u64,
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// When it can be read from.
    Read,
    /// When it can be written to.
    Write,
    /// Not at all.
    Close,
}

/// What is to be said to a connection of which these bytes have come; whether there will be no more of them.
pub(crate) type Hear<'a> = dyn FnMut(&[u8], bool) -> Heard + 'a;

/// A socket and those who have come to it.
#[derive(Debug)]
pub(crate) struct Desk {
    listening: Listening,
    limits: Limits,
    /// Readable when a connection can go on.
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Whether the listener is in `epoll`; it is not while no further connection can be taken.
    is_open: bool,
    reopen_ns: u64,
    look_ns: u64,
}

impl Desk {
    pub(crate) fn new(listening: Listening, limits: Limits) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, listening.fd(), epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        let connections = Vec::new();
        Ok(Self { listening, limits, epoll, connections, is_open: true, reopen_ns: 0, look_ns: 0 })
    }

    /// Readable when there is something to do.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The socket that is listened at.
    pub(crate) fn listening(&self) -> &Listening {
        &self.listening
    }

    /// When [`Desk::poll`] has something to do even if nothing comes.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let has_room = self.connections.len() < self.limits.connections;
        let reopen_ns = (!self.is_open && has_room).then_some(self.reopen_ns);
        self.connections.iter().map(|connection| connection.until_ns).chain(reopen_ns).min()
    }

    /// Serves what can be served. `is_woken`: something is known to be there. True if something was done.
    pub(crate) fn poll(&mut self, now_ns: u64, is_woken: bool, hear: &mut Hear<'_>) -> bool {
        if !is_woken && now_ns < self.look_ns {
            return false;
        }
        self.look_ns = now_ns + LOOK_NS;
        if !self.has_event() && self.deadline_ns().is_none_or(|at| now_ns < at) {
            return false;
        }
        self.accept(now_ns);
        let (epoll, most) = (self.epoll.as_fd(), self.limits.request_bytes);
        self.connections.retain_mut(|connection| {
            let was_answering = matches!(connection.stage, Stage::Answering(..));
            let next = if now_ns < connection.until_ns { connection.go_on(most, hear) } else { Next::Close };
            match next {
                Next::Write if !was_answering => {
                    let flags = epoll::EventFlags::OUT;
                    epoll::modify(epoll, &connection.stream, epoll::EventData::new_u64(0), flags).is_ok()
                }
                Next::Read | Next::Write => true,
                Next::Close => false,
            }
        });
        true
    }

    pub(crate) fn has_event(&self) -> bool {
        let mut event =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, &mut event, Some(&at_once)).is_ok_and(|events| events != 0)
    }

    /// Takes connections while there is room, and stops listening while there is none: the loop would be woken for
    /// nothing.
    fn accept(&mut self, now_ns: u64) {
        let mut failed = false;
        while self.connections.len() < self.limits.connections && now_ns >= self.reopen_ns {
            match self.listening.accept() {
                Ok((stream, _)) => {
                    let flags = epoll::EventFlags::IN;
                    if epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(0), flags).is_ok() {
                        let until_ns = now_ns + self.limits.patience_ns;
                        let stage = Stage::Asking(Vec::new());
                        self.connections.push(Connection { stream, stage, until_ns });
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => {
                    failed = true;
                    self.reopen_ns = now_ns + RETRY_NS;
                }
            }
        }
        let has_room = self.connections.len() < self.limits.connections;
        let opens = !failed && now_ns >= self.reopen_ns && has_room;
        if opens != self.is_open {
            let flags = if opens { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(0);
            let changed: Result<(), Errno> = epoll::modify(&self.epoll, self.listening.fd(), data, flags);
            if changed.is_ok() {
                self.is_open = opens;
            }
        }
    }

    /// Connections that are being served.
    #[cfg(test)]
    pub(crate) fn connections(&self) -> usize {
        self.connections.len()
    }
}

impl Connection {
    fn go_on(&mut self, most: usize, hear: &mut Hear<'_>) -> Next {
        if let Stage::Asking(request) = &mut self.stage {
            let Ok(has_ended) = take(&mut self.stream, request, most) else { return Next::Close };
            match hear(request, has_ended || request.len() >= most) {
                Heard::Part if has_ended => return Next::Close,
                Heard::Part => return Next::Read,
                Heard::Answer(answer) => self.stage = Stage::Answering(answer, 0),
            }
        }
        let Stage::Answering(bytes, gone) = &mut self.stage else { return Next::Close };
        while *gone < bytes.len() {
            match self.stream.write(&bytes[*gone..]) {
                Ok(0) => return Next::Close,
                Ok(taken) => *gone += taken,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Write,
                Err(_) => return Next::Close,
            }
        }
        self.end();
        Next::Close
    }

    /// What was said and not listened to would make the kernel reset the connection, and the answer would be lost with it.
    fn end(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = take(&mut self.stream, &mut Vec::new(), 1 << 16);
    }
}

/// Takes what has come, up to `most` bytes; whether the stream has ended.
fn take(stream: &mut Stream, request: &mut Vec<u8>, most: usize) -> io::Result<bool> {
    let mut part = [0; 4096];
    while request.len() < most {
        match stream.read(&mut part) {
            Ok(0) => return Ok(true),
            Ok(bytes) => request.extend_from_slice(&part[..bytes]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
