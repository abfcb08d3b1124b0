//! The node's end: what is asked at its control socket and, over HTTP, for its metrics.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::listener::{BindError, Listener};
use super::{Answer, Request, Response, file_name, folder};
use crate::carrier::Carriers;
use crate::desk::{Clerk, Desk, Heard, Limits};
use crate::events::{Event, SCHEMA, Teller, now_ms};
use crate::follower::Follower;
use crate::metrics::Metrics;
use crate::options::LoopOptions;
use crate::sleeper::Sleeper;
use crate::stat::NodeStat;
use crate::streams::{ListenAddress, ListenError, Listening};

/// Those who listen at once.
const FOLLOWERS: usize = 4;
/// How often counters can be asked for.
const EVERY_MS: RangeInclusive<u64> = 100..=3_600_000;
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

    fn poll(&mut self, now_ns: u64, is_woken: bool, teller: &Teller, answer: &mut Ask<'_>) -> bool {
        let mut has_news = false;
        if self.desk.followers() != 0 {
            while let Some((time_ms, event)) = teller.take() {
                has_news = true;
                self.desk.tell(&mut |follower| follower.tell(time_ms, &event));
            }
            let dropped = teller.take_dropped();
            if dropped != 0 {
                self.desk.tell(&mut |follower| follower.lose(dropped));
            }
        }
        let progress = self.desk.poll(now_ns, is_woken, has_news, &mut Front { now_ns, answer });
        if progress {
            teller.set_listeners(self.desk.followers() != 0);
        }
        progress
    }
}

/// How a node answers.
type Ask<'a> = dyn FnMut(Request) -> Result<Answer, String> + 'a;

struct Front<'a, 'b> {
    now_ns: u64,
    answer: &'a mut Ask<'b>,
}

impl Front<'_, '_> {
    fn stat(&mut self) -> Box<NodeStat> {
        match (self.answer)(Request::Stat {}) {
            Ok(Answer::Stat(stat)) => stat,
            _ => unreachable!("every node answers to stat by its stat"),
        }
    }

    /// What a line asks for, if it is a request.
    fn heard(&mut self, line: &[u8], followers: usize) -> Result<Heard, String> {
        let request = serde_json::from_slice(line).map_err(|error| format!("not a request: {error}"))?;
        if let Request::Events { every_ms } = request {
            if followers >= FOLLOWERS {
                return Err(format!("there are {FOLLOWERS} who listen already"));
            }
            if every_ms.is_some_and(|every_ms| !EVERY_MS.contains(&every_ms)) {
                return Err(format!("every_ms has to be {} to {}", EVERY_MS.start(), EVERY_MS.end()));
            }
            let every_ns = every_ms.map(|every_ms| every_ms * 1_000_000);
            return Ok(Heard::Follow(Follower::new(self.now_ns, every_ns, now_ms(), self.snapshot())));
        }
        let answer = Response::Ok((self.answer)(request)?);
        Ok(Heard::Answer(line_of(&answer)))
    }
}

impl Clerk for Front<'_, '_> {
    /// A request is a line, or all there is up to the end of the stream.
    fn hear(&mut self, bytes: &[u8], has_ended: bool, followers: usize) -> Heard {
        let line = match bytes.iter().position(|&byte| byte == b'\n') {
            Some(end) => &bytes[..end],
            None if has_ended => bytes,
            None => return Heard::Part,
        };
        let heard = if bytes.len() >= LIMITS.request_bytes {
            Err(format!("a request is shorter than {} bytes", LIMITS.request_bytes))
        } else {
            self.heard(line, followers)
        };
        heard.unwrap_or_else(|reason| Heard::Answer(line_of(&Response::<Answer>::Error(reason))))
    }

    fn snapshot(&mut self) -> Event {
        let ls = match (self.answer)(Request::Ls {}) {
            Ok(Answer::Ls(view)) => Some(view),
            _ => None,
        };
        Event::Snapshot { schema: SCHEMA, stat: self.stat(), ls }
    }

    fn counters(&mut self) -> Event {
        Event::Counters { stat: self.stat() }
    }
}

fn line_of(response: &Response<Answer>) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(response).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

/// Where a node is asked: its control socket, or none where it could not be made and nobody had asked for it; and where its metrics
/// are.
#[derive(Debug)]
pub(crate) struct Control {
    server: Option<Server>,
    metrics: Option<Metrics>,
    teller: Teller,
    carriers: Carriers,
}

impl Control {
    /// Makes the socket where `run` says, or in the usual folder, and lets it wake `sleeper`. Without the socket a node works all
    /// the same, so only a path that was asked for is an error; but not beside another node of this name, which is the same to others.
    pub(crate) fn open(run: &LoopOptions, sleeper: &Sleeper) -> Result<Self, BindError> {
        let usual = || folder().map(|folder| folder.join(file_name(&run.name))).ok_or(BindError::NoFolder);
        let server = match &run.control {
            Some(path) => Some(Server::bind(path)?),
            None => match usual().and_then(|path| Server::bind(&path)) {
                Ok(server) => Some(server),
                Err(BindError::InUse(path)) => return Err(BindError::SameName(run.name.clone(), path)),
                Err(error) => {
                    tracing::warn!(%error, "no control socket");
                    None
                }
            },
        };
        if let Some(Server { desk, path }) = &server {
            if let (Some(group), Listening::Unix(listener)) = (run.control_group, desk.listening()) {
                listener.open_to(group)?;
            }
            sleeper.watch_control(desk.fd()).map_err(|error| BindError::Os(path.clone(), error))?;
            tracing::info!(path = %path.display(), "control socket open");
        }
        Ok(Self { server, metrics: None, teller: Teller::default(), carriers: Carriers::default() })
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

    /// Watching these carriers.
    pub(crate) fn with_carriers(mut self, carriers: Carriers) -> Self {
        self.carriers = carriers;
        self
    }

    /// To whom is told what happens.
    pub(crate) fn teller(&self) -> Teller {
        self.teller.clone()
    }

    /// The node stops: those who listen are told so.
    pub(crate) fn stop(&mut self, now_ns: u64, answer: &mut Ask<'_>) {
        self.teller.tell(|| Event::Stopping);
        self.poll_woken(now_ns, true, answer);
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
        let Self { server, metrics, teller, carriers } = self;
        let mut answer = |request| {
            let mut answer = answer(request)?;
            if let Answer::Stat(stat) = &mut answer {
                carriers.show(stat);
            }
            Ok(answer)
        };
        let mut progress = false;
        if let Some(server) = server {
            progress |= server.poll(now_ns, is_woken, teller, &mut answer);
        }
        if let Some(metrics) = metrics {
            progress |= metrics.poll(now_ns, is_woken, &mut || answer(Request::Stat {}));
        }
        let has_listeners = server.as_ref().is_some_and(|server| server.desk.followers() != 0);
        carriers.poll(now_ns, has_listeners, teller);
        progress
    }

    /// When [`Control::poll`] has something to do even if nothing comes.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let server = self.server.as_ref().and_then(|server| server.desk.deadline_ns());
        let metrics = self.metrics.as_ref().and_then(Metrics::deadline_ns);
        let has_listeners = self.server.as_ref().is_some_and(|server| server.desk.followers() != 0);
        let carriers = if has_listeners { self.carriers.deadline_ns() } else { None };
        [server, metrics, carriers].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests;
