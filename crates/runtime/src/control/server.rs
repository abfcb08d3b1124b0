//! The node's end: what is asked at its control socket and, over HTTP, for its metrics.

use std::path::{Path, PathBuf};

use super::listener::{BindError, Listener};
use super::{Answer, Request, Response, file_name, folder};
use crate::desk::{Desk, Heard, Limits};
use crate::metrics::Metrics;
use crate::options::LoopOptions;
use crate::sleeper::Sleeper;
use crate::streams::{ListenAddress, ListenError, Listening};

const LIMITS: Limits = Limits { connections: 8, request_bytes: 16 << 10, patience_ns: 2_000_000_000 };

/// A node's control socket.
#[derive(Debug)]
pub(super) struct Server {
    desk: Desk,
    path: PathBuf,
}

impl Server {
    pub(super) fn bind(path: &Path) -> Result<Self, BindError> {
        let desk = Desk::new(Listening::Unix(Listener::bind(path)?), LIMITS);
        let desk = desk.map_err(|error| BindError::Os(path.to_owned(), error))?;
        Ok(Self { desk, path: path.to_owned() })
    }

    fn poll(
        &mut self,
        now_ns: u64,
        is_woken: bool,
        answer: &mut dyn FnMut(Request) -> Result<Answer, String>,
    ) -> bool {
        self.desk.poll(now_ns, is_woken, &mut |bytes, has_ended| hear(bytes, has_ended, answer))
    }
}

/// A request is a line, or all there is up to the end of the stream.
fn hear(bytes: &[u8], has_ended: bool, answer: &mut dyn FnMut(Request) -> Result<Answer, String>) -> Heard {
    let line = match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => &bytes[..end],
        None if has_ended => bytes,
        None => return Heard::Part,
    };
    let response = if bytes.len() >= LIMITS.request_bytes {
        Response::Error(format!("a request is shorter than {} bytes", LIMITS.request_bytes))
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
    Heard::Answer(bytes)
}

/// Where a node is asked: its control socket, or none where it could not be made and nobody had asked for it; and where its metrics
/// are.
#[derive(Debug)]
pub(crate) struct Control {
    server: Option<Server>,
    metrics: Option<Metrics>,
}

impl Control {
    /// Makes the socket where `run` says, or in the usual folder, and lets it wake `sleeper`. Without the socket a node works all
    /// the same, so only a path that was asked for is an error.
    pub(crate) fn open(run: &LoopOptions, sleeper: &Sleeper) -> Result<Self, BindError> {
        let usual = || folder().map(|folder| folder.join(file_name(&run.name))).ok_or(BindError::NoFolder);
        let server = match &run.control {
            Some(path) => Some(Server::bind(path)?),
            None => usual()
                .and_then(|path| Server::bind(&path))
                .inspect_err(|error| tracing::warn!(%error, "no control socket"))
                .ok(),
        };
        if let Some(Server { desk, path }) = &server {
            if let (Some(group), Listening::Unix(listener)) = (run.control_group, desk.listening()) {
                listener.open_to(group)?;
            }
            sleeper.watch_control(desk.fd()).map_err(|error| BindError::Os(path.clone(), error))?;
            tracing::info!(path = %path.display(), "control socket open");
        }
        Ok(Self { server, metrics: None })
    }

    /// With metrics at `address`, if there is one.
    pub(crate) fn with_metrics(
        mut self,
        address: Option<&ListenAddress>,
        sleeper: &Sleeper,
    ) -> Result<Self, ListenError> {
        self.metrics = address.map(|address| Metrics::open(address, sleeper)).transpose()?;
        Ok(self)
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
        let mut progress = false;
        if let Some(server) = &mut self.server {
            progress |= server.poll(now_ns, is_woken, answer);
        }
        if let Some(metrics) = &mut self.metrics {
            progress |= metrics.poll(now_ns, is_woken, &mut || answer(Request::Stat {}));
        }
        progress
    }

    /// When [`Control::poll`] has something to do even if nothing comes.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let server = self.server.as_ref().and_then(|server| server.desk.deadline_ns());
        let metrics = self.metrics.as_ref().and_then(Metrics::deadline_ns);
        [server, metrics].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
