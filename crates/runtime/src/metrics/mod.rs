//! What a node counts, for Prometheus: one page over HTTP, made when it is asked for.
//!
//! The page shows what `etherslot stat` shows, under names that are derived from the same ones ([`families`]). The loop never
//! waits for who asks: connections are few, and dropped when they are slow.

mod families;
mod http;
mod text;

use crate::control::Answer;
use crate::desk::{Clerk, Desk, Heard, Limits};
use crate::sleeper::Sleeper;
use crate::streams::{ListenAddress, ListenError, Listening};

/// A page of a box with 64 sessions has under 1 MB: over a bad line that may take a while.
const LIMITS: Limits = Limits { connections: 4, request_bytes: 8 << 10, patience_ns: 10_000_000_000 };

/// A place where metrics are served.
#[derive(Debug)]
pub(crate) struct Metrics {
    desk: Desk,
}

impl Metrics {
    /// Listens at `address`, and lets it wake `sleeper`.
    pub(crate) fn open(address: &ListenAddress, sleeper: &Sleeper) -> Result<Self, ListenError> {
        let os = |source| ListenError::Os { address: address.clone(), source };
        let desk = Desk::new(Listening::open(address)?, LIMITS).map_err(os)?;
        sleeper.watch_control(desk.fd()).map_err(os)?;
        tracing::info!(%address, "metrics served");
        Ok(Self { desk })
    }

    /// Serves what can be served; true if something was done. `stat` makes the node's answer to `Request::Stat`.
    pub(crate) fn poll(
        &mut self,
        now_ns: u64,
        is_woken: bool,
        stat: &mut dyn FnMut() -> Result<Answer, String>,
    ) -> bool {
        self.desk.poll(now_ns, is_woken, false, &mut Front(stat))
    }

    /// When [`Metrics::poll`] has something to do even if nothing comes.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.desk.deadline_ns()
    }
}

struct Front<'a>(&'a mut dyn FnMut() -> Result<Answer, String>);

impl Clerk for Front<'_> {
    fn hear(&mut self, bytes: &[u8], has_ended: bool, _followers: usize) -> Heard {
        match http::parse(bytes) {
            http::Parsed::Part if has_ended => Heard::Answer(http::Status::BadRequest.page()),
            http::Parsed::Part => Heard::Part,
            http::Parsed::Refused(status) => Heard::Answer(status.page()),
            http::Parsed::Get { is_head } => match (self.0)() {
                Ok(Answer::Stat(stat)) => Heard::Answer(http::metrics(&families::page(&stat), is_head)),
                _ => Heard::Answer(http::Status::Unavailable.page()),
            },
        }
    }
}

#[cfg(test)]
mod tests;
