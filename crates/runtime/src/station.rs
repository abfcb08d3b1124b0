//! What box and host node have in common: a clock, links, signals, and rest between rounds of the loop.

use std::io;

use etherslot_session::Config as SessionConfig;

use crate::clock::Clock;
use crate::keys::Keyring;
use crate::links::Links;
use crate::options::{LinkOptions, LoopOptions, SecurityOptions, SessionOptions, Via};
use crate::signals::Signals;
use crate::sleeper::Sleeper;
use crate::{StartError, link};

/// The surroundings of a node.
pub(crate) struct Station {
    pub(crate) clock: Clock,
    pub(crate) links: Links,
    pub(crate) signals: Signals,
    pub(crate) sleeper: Sleeper,
    pub(crate) keys: Option<Keyring>,
    /// The time of this round.
    round_ns: u64,
}

impl Station {
    /// Takes over the process's signals and opens the links.
    pub(crate) fn open(
        run: &LoopOptions,
        links: &[LinkOptions],
        security: &SecurityOptions,
    ) -> Result<Self, StartError> {
        let keys = match security {
            SecurityOptions::Keys { files, peers } => Some(Keyring::open(files, peers.clone())?),
            SecurityOptions::Plaintext | SecurityOptions::Memory => None,
        };
        let (signals, mut sleeper) = (Signals::install()?, Sleeper::new(run.busy_poll)?);
        sleeper.watch(signals.fd())?;
        let links = Links::open(links)?;
        if links.is_polled() {
            sleeper.nap();
        }
        for fd in links.fds() {
            sleeper.watch(fd)?;
        }
        Ok(Self { clock: Clock::start(), links, signals, sleeper, keys, round_ns: 0 })
    }

    /// What the sessions of a node of this name are set up with.
    pub(crate) fn session_config(&self, options: &SessionOptions, name: &str) -> SessionConfig {
        let config = link::session_config(options, name, self.links.max_frame_bytes());
        match &self.keys {
            // A sealed frame needs no check, and an ID that others can't have.
            Some(keys) => SessionConfig { node: keys.public().node_id(name), is_link_intact: true, ..config },
            None => SessionConfig { is_link_intact: self.links.is_intact(), ..config },
        }
    }

    /// The start of a round: hands over a burst of frames; the time then, and whether any frame came.
    ///
    /// Every frame has the time at which it is handed over. A time taken before, the same for a burst, would make
    /// round-trip times shorter than they are, here and, by the hold time told to it, at the peer; and the least of them
    /// is what controllers go by for seconds.
    pub(crate) fn receive(&mut self, handle: &mut dyn FnMut(u64, &Via, &[u8])) -> (u64, bool) {
        let clock = self.clock;
        let begun_ns = clock.now_ns();
        self.links.tick(begun_ns);
        let frames = self.links.receive(&mut |from, frame| handle(clock.now_ns(), from, frame));
        self.round_ns = if frames == 0 { begun_ns } else { clock.now_ns() };
        (self.round_ns, frames != 0)
    }

    /// The end of a round: sleeps if nothing was done for a while, until the node's deadline at most.
    pub(crate) fn end_round(
        &mut self,
        progress: bool,
        node_deadline_ns: impl FnOnce() -> Option<u64>,
    ) -> io::Result<()> {
        let Self { links, sleeper, round_ns, .. } = self;
        let poll_at_ns = links.poll_at();
        let deadline_ns = || [node_deadline_ns(), poll_at_ns].into_iter().flatten().min();
        sleeper.rest(*round_ns, progress, deadline_ns, || links.before_sleep())
    }
}
