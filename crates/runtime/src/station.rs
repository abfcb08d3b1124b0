//! What box and host node have in common: a clock, links, signals, and rest between rounds of the loop.

use std::io;

use etherslot_session::Config as SessionConfig;

use crate::clock::Clock;
use crate::links::Links;
use crate::options::{LinkOptions, LoopOptions, SessionOptions, Via};
use crate::signals::Signals;
use crate::sleeper::Sleeper;
use crate::{StartError, link};

/// The surroundings of a node.
pub(crate) struct Station {
    pub(crate) clock: Clock,
    pub(crate) links: Links,
    pub(crate) signals: Signals,
    pub(crate) sleeper: Sleeper,
}

impl Station {
    /// Takes over the process's signals and opens the links.
    pub(crate) fn open(run: &LoopOptions, links: &[LinkOptions]) -> Result<Self, StartError> {
        let (signals, mut sleeper) = (Signals::install()?, Sleeper::new(run.busy_poll)?);
        sleeper.watch(signals.fd())?;
        let links = Links::open(links)?;
        if links.is_polled() {
            sleeper.nap();
        }
        for fd in links.fds() {
            sleeper.watch(fd)?;
        }
        Ok(Self { clock: Clock::start(), links, signals, sleeper })
    }

    /// What the sessions of a node of this name are set up with.
    pub(crate) fn session_config(&self, options: &SessionOptions, name: &str) -> SessionConfig {
        let config = link::session_config(options, name, self.links.max_frame_bytes());
        SessionConfig { is_link_intact: self.links.is_intact(), ..config }
    }

    /// The start of a round: hands over a burst of frames; the time then, and whether any frame came.
    ///
    /// Every frame has the time at which it is handed over. A time taken before, the same for a burst, would make
    /// round-trip times shorter than they are, here and, by the hold time told to it, at the peer; and the least of them
    /// is what controllers go by for seconds.
    pub(crate) fn receive(&mut self, handle: &mut dyn FnMut(u64, &Via, &[u8])) -> (u64, bool) {
        let clock = self.clock;
        self.links.tick(clock.now_ns());
        let frames = self.links.receive(&mut |from, frame| handle(clock.now_ns(), from, frame));
        (clock.now_ns(), frames != 0)
    }

    /// The end of a round: sleeps if nothing was done for a while.
    pub(crate) fn end_round(&mut self, progress: bool, node_deadline_ns: Option<u64>) -> io::Result<()> {
        let deadline_ns = [node_deadline_ns, self.links.poll_at()].into_iter().flatten().min();
        let Self { clock, links, sleeper, .. } = self;
        sleeper.rest(clock.now_ns(), progress, deadline_ns, &mut || links.before_sleep())
    }
}
