//! The node's end: a few connections, served between two rounds of the poll loop, never waited for.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::listener::{BindError, Listener};
use super::{Answer, Request, Response, file_name, folder};
use crate::sleeper::Sleeper;

/// Connections at once; more wait in the socket's backlog.
const CONNECTIONS: usize = 8;
/// The longest request.
const REQUEST_BYTES: usize = 16 << 10;
/// A connection that has not asked and taken its answer by then is dropped.
const PATIENCE_NS: u64 = 2_000_000_000;
/// While the loop does not sleep, and so is not woken, the socket is looked at this often.
const LOOK_NS: u64 = 1_000_000;
/// After an accept failed, as it does when descriptors are used up.
const RETRY_NS: u64 = 100_000_000;

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
    stream: UnixStream,
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

/// A node's control socket.
#[derive(Debug)]
pub(super) struct Server {
    listener: Listener,
    /// Readable when a connection can go on.
    epoll: OwnedFd,
    connections: Vec<Connection>,
    /// Whether the listener is in `epoll`; it is not while no further connection can be taken.
    is_open: bool,
    reopen_ns: u64,
    look_ns: u64,
}

impl Server {
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        let os = |error: Errno| BindError::Os(path.to_owned(), error.into());
        let listener = Listener::bind(path)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os)?;
        epoll::add(&epoll, &listener, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(os)?;
        Ok(Self { listener, epoll, connections: Vec::new(), is_open: true, reopen_ns: 0, look_ns: 0 })
    }

    fn deadline_ns(&self) -> Option<u64> {
        let reopen_ns = (!self.is_open && self.connections.len() < CONNECTIONS).then_some(self.reopen_ns);
        self.connections.iter().map(|connection| connection.until_ns).chain(reopen_ns).min()
    }

    /// Serves what can be served. `is_woken`: something is known to be there. True if something was done.
    fn poll(
        &mut self,
        now_ns: u64,
        is_woken: bool,
        answer: &mut dyn FnMut(Request) -> Result<Answer, String>,
    ) -> bool {
        if !is_woken && now_ns < self.look_ns {
            return false;
        }
        self.look_ns = now_ns + LOOK_NS;
        if !self.has_event() && self.deadline_ns().is_none_or(|at| now_ns < at) {
            return false;
        }
        self.accept(now_ns);
        let epoll = self.epoll.as_fd();
        self.connections.retain_mut(|connection| {
            let was_answering = matches!(connection.stage, Stage::Answering(..));
            let next = if now_ns < connection.until_ns { connection.go_on(answer) } else { Next::Close };
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

    fn has_event(&self) -> bool {
        let mut event =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, &mut event, Some(&at_once)).is_ok_and(|events| events != 0)
    }

    /// Takes connections while there is room, and stops listening while there is none: the loop would be woken for
    /// nothing.
    fn accept(&mut self, now_ns: u64) {
        let mut failed = false;
        while self.connections.len() < CONNECTIONS && now_ns >= self.reopen_ns {
            match self.listener.accept() {
                Ok(socket) => {
                    let flags = epoll::EventFlags::IN;
                    if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(0), flags).is_ok() {
                        let until_ns = now_ns + PATIENCE_NS;
                        let stage = Stage::Asking(Vec::new());
                        self.connections.push(Connection { stream: socket.into(), stage, until_ns });
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => {
                    failed = true;
                    self.reopen_ns = now_ns + RETRY_NS;
                }
            }
        }
        let opens = !failed && now_ns >= self.reopen_ns && self.connections.len() < CONNECTIONS;
        if opens != self.is_open {
            let flags = if opens { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
            let changed = epoll::modify(&self.epoll, &self.listener, epoll::EventData::new_u64(0), flags);
            if changed.is_ok() {
                self.is_open = opens;
            }
        }
    }
}

impl Connection {
    fn go_on(&mut self, answer: &mut dyn FnMut(Request) -> Result<Answer, String>) -> Next {
        if let Stage::Asking(request) = &mut self.stage {
            let Ok(ended) = take(&mut self.stream, request) else { return Next::Close };
            let line = match request.iter().position(|&byte| byte == b'\n') {
                Some(end) => &request[..end],
                None if ended => &request[..],
                None if request.len() < REQUEST_BYTES => return Next::Read,
                None => &[],
            };
            let response = if request.len() >= REQUEST_BYTES {
                Response::Error(format!("a request is shorter than {REQUEST_BYTES} bytes"))
            } else {
                match serde_json::from_slice(line) {
                    Ok(request) => match answer(request) {
                        Ok(answer) => Response::Ok(answer),
                        Err(reason) => Response::Error(reason),
                    },
                    Err(error) => Response::Error(format!("not a request: {error}")),
                }
            };
            let mut bytes = serde_json::to_vec(&response).unwrap_or_default();
            bytes.push(b'\n');
            self.stage = Stage::Answering(bytes, 0);
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
        Next::Close
    }
}

/// Takes what has come, up to the longest request; whether the stream has ended.
fn take(stream: &mut UnixStream, request: &mut Vec<u8>) -> io::Result<bool> {
    let mut part = [0; 4096];
    while request.len() < REQUEST_BYTES && !request.contains(&b'\n') {
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

/// A node's control socket, or none where it could not be made and nobody had asked for it.
#[derive(Debug)]
pub(crate) struct Control(Option<Server>);

impl Control {
    /// Makes the socket at `path`, or in the usual folder, and lets it wake `sleeper`. Without the socket a node works all
    /// the same, so only a path that was asked for is an error.
    pub(crate) fn open(
        path: Option<&PathBuf>,
        group: Option<u32>,
        node: &str,
        sleeper: &Sleeper,
    ) -> Result<Self, BindError> {
        let usual = || folder().map(|folder| folder.join(file_name(node))).ok_or(BindError::NoFolder);
        let server = match path {
            Some(path) => Some(Server::bind(path)?),
            None => usual()
                .and_then(|path| Server::bind(&path))
                .inspect_err(|error| tracing::warn!(%error, "no control socket"))
                .ok(),
        };
        if let Some(server) = &server {
            if let Some(group) = group {
                server.listener.open_to(group)?;
            }
            let path = server.listener.path();
            sleeper
                .watch_control(server.epoll.as_fd())
                .map_err(|error| BindError::Os(path.to_owned(), error))?;
            tracing::info!(path = %path.display(), "control socket open");
        }
        Ok(Self(server))
    }

    /// Serves what can be served; true if something was done.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        sleeper: &mut Sleeper,
        answer: &mut dyn FnMut(Request) -> Result<Answer, String>,
    ) -> bool {
        let is_woken = sleeper.take_control_wake();
        self.poll_woken(now_ns, is_woken, answer)
    }

    /// The same for an owner whose answer needs all that the sleeper is part of; `is_woken` is what [`Sleeper::take_control_wake`]
    /// said.
    pub(crate) fn poll_woken(
        &mut self,
        now_ns: u64,
        is_woken: bool,
        answer: &mut dyn FnMut(Request) -> Result<Answer, String>,
    ) -> bool {
        self.0.as_mut().is_some_and(|server| server.poll(now_ns, is_woken, answer))
    }

    /// When [`Control::poll`] has something to do even if nothing comes.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.0.as_ref().and_then(Server::deadline_ns)
    }
}

#[cfg(test)]
mod tests;
