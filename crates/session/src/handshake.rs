//! The active side of the handshake (docs/wire.md): Hello, answered by `HelloAck`, then a Hello that confirms the
//! peer's epoch, repeated until the peer's session speaks.

use crate::config::Config;

/// The first repetition comes after this, each later one after twice as long.
const FIRST_INTERVAL_NS: u64 = 5_000_000;

/// How far the active side has got.
#[derive(Debug)]
pub(crate) struct Handshake {
    peer_epoch: u32,
    interval_ns: u64,
    max_interval_ns: u64,
    next_ns: u64,
    /// Confirmations that are not answered for so long have not been understood: the peer has forgotten us, and is
    /// greeted anew.
    patience_ns: u64,
    forgotten_ns: u64,
}

impl Handshake {
    pub(crate) fn new(config: &Config, now_ns: u64) -> Self {
        let max_interval_ns = config.heartbeat_ns;
        let interval_ns = FIRST_INTERVAL_NS.min(max_interval_ns);
        let patience_ns = config.dead_after_ns / 2;
        Self {
            peer_epoch: 0,
            interval_ns,
            max_interval_ns,
            next_ns: now_ns,
            patience_ns,
            forgotten_ns: u64::MAX,
        }
    }

    /// The peer has answered.
    pub(crate) fn on_answer(&mut self, now_ns: u64, peer_epoch: u32) {
        self.restart(now_ns, peer_epoch);
        self.forgotten_ns = now_ns + self.patience_ns;
    }

    fn restart(&mut self, now_ns: u64, peer_epoch: u32) {
        self.peer_epoch = peer_epoch;
        self.interval_ns = FIRST_INTERVAL_NS.min(self.max_interval_ns);
        self.next_ns = now_ns;
    }

    /// Whether a Hello has to leave.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// The epoch that a Hello which leaves now confirms, 0 if the peer has none for us.
    pub(crate) fn confirms(&mut self, now_ns: u64) -> u32 {
        if now_ns >= self.forgotten_ns {
            self.forgotten_ns = u64::MAX;
            self.restart(now_ns, 0);
        }
        self.peer_epoch
    }

    /// When the next Hello has to leave.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.next_ns
    }

    /// A Hello has left.
    pub(crate) fn on_sent(&mut self, now_ns: u64) {
        self.next_ns = now_ns + self.interval_ns;
        self.interval_ns = (2 * self.interval_ns).min(self.max_interval_ns);
    }
}
