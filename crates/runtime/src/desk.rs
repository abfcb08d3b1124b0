//! A few connections, served between two rounds of the poll loop and never waited for: each asks once, and is answered and closed, or
//! listens from then on to what happens.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use crate::events::{Event, now_ms};
use crate::follower::Follower;
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
#[derive(Debug)]
pub(crate) enum Heard {
    /// There has to be more.
    Part,
    /// This is its answer.
    Answer(Vec<u8>),
    /// It listens.
    Follow(Follower),
}

/// Who knows what to say.
pub(crate) trait Clerk {
    /// To a connection of which these bytes have come, while so many others listen; whether there will be no more of them.
    fn hear(&mut self, bytes: &[u8], has_ended: bool, followers: usize) -> Heard;

    /// To a listener that has lost records.
    fn snapshot(&mut self) -> Event {
        Event::Stopping
    }

    /// To a listener that wants counters now and then.
    fn counters(&mut self) -> Event {
        Event::Stopping
    }
}

/// What a connection is at.
#[derive(Debug)]
enum Stage {
    /// So much of the request has come.
    Asking(Vec<u8>),
    /// Of the answer, so many bytes have gone.
    Answering(Vec<u8>, usize),
    /// It is told what happens.
    Following(Follower),
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    stage: Stage,
    /// It is dropped then.
    until_ns: u64,
    /// Whether it is watched for room to write.
    is_full: bool,
}

/// How a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// When it can be read from.
    Read,
    /// When it can be written to.
    Write,
    /// When it can be read from or written to.
    Both,
    /// Not at all.
    Close,
}

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
        let connections = self.connections.iter().filter_map(|connection| match &connection.stage {
            Stage::Following(follower) => follower.deadline_ns(),
            _ => Some(connection.until_ns),
        });
        connections.chain(reopen_ns).min()
    }

    /// Those who listen.
    pub(crate) fn followers(&self) -> usize {
        self.connections.iter().filter(|it| matches!(it.stage, Stage::Following(_))).count()
    }

    /// Tells all who listen; what they don't take is sent by the next [`Desk::poll`] with `is_woken`.
    pub(crate) fn tell(&mut self, tell: &mut dyn FnMut(&mut Follower)) {
        for connection in &mut self.connections {
            if let Stage::Following(follower) = &mut connection.stage {
                tell(follower);
            }
        }
    }

    /// Serves what can be served. `is_woken`: something is known to be there; `has_news`: those who listen have been told something.
    /// True if something was done.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        is_woken: bool,
        has_news: bool,
        clerk: &mut dyn Clerk,
    ) -> bool {
        if !is_woken && !has_news && now_ns < self.look_ns {
            return false;
        }
        self.look_ns = now_ns + LOOK_NS;
        if !has_news && !self.has_event() && self.deadline_ns().is_none_or(|at| now_ns < at) {
            return false;
        }
        self.accept(now_ns);
        let mut followers = self.followers();
        let (epoll, most) = (self.epoll.as_fd(), self.limits.request_bytes);
        self.connections.retain_mut(|connection| {
            let next = connection.go_on(now_ns, most, &mut followers, clerk);
            let (flags, is_full) = match next {
                Next::Close => return false,
                Next::Read => (epoll::EventFlags::IN, false),
                Next::Write => (epoll::EventFlags::OUT, true),
                Next::Both => (epoll::EventFlags::IN | epoll::EventFlags::OUT, true),
            };
            let is_new = std::mem::replace(&mut connection.is_full, is_full) != is_full;
            !is_new || epoll::modify(epoll, &connection.stream, epoll::EventData::new_u64(0), flags).is_ok()
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
                        self.connections.push(Connection { stream, stage, until_ns, is_full: false });
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
    fn go_on(&mut self, now_ns: u64, most: usize, followers: &mut usize, clerk: &mut dyn Clerk) -> Next {
        if let Stage::Following(follower) = &mut self.stage {
            // It has nothing more to say, and is gone when it ends its side.
            let has_ended = take(&mut self.stream, &mut Vec::new(), 1 << 16).unwrap_or(true);
            return if has_ended { Next::Close } else { follow(&mut self.stream, follower, now_ns, clerk) };
        }
        if now_ns >= self.until_ns {
            return Next::Close;
        }
        if let Stage::Asking(request) = &mut self.stage {
            let Ok(has_ended) = take(&mut self.stream, request, most) else { return Next::Close };
            match clerk.hear(request, has_ended || request.len() >= most, *followers) {
                Heard::Part if has_ended => return Next::Close,
                Heard::Part => return Next::Read,
                Heard::Answer(answer) => self.stage = Stage::Answering(answer, 0),
                Heard::Follow(mut follower) => {
                    *followers += 1;
                    let next = follow(&mut self.stream, &mut follower, now_ns, clerk);
                    self.stage = Stage::Following(follower);
                    return next;
                }
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

/// Sends what a listener takes, and makes what is due.
fn follow(stream: &mut Stream, follower: &mut Follower, now_ns: u64, clerk: &mut dyn Clerk) -> Next {
    if follower.is_due(now_ns) {
        follower.count(now_ns, now_ms(), &clerk.counters());
    }
    loop {
        if follower.is_behind() {
            follower.recover(now_ms(), clerk.snapshot());
        }
        if follower.waiting().is_empty() {
            return Next::Read;
        }
        match stream.write(follower.waiting()) {
            Ok(0) => return Next::Close,
            Ok(taken) => follower.sent(taken),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Both,
            Err(_) => return Next::Close,
        }
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
