//! The active side of the handshake (docs/wire.md): Hello, answered by `HelloAck`, then a Hello that confirms the
//! peer's epoch, repeated until the peer's session speaks.

use crate::config::Config;

/// The first repetition comes after this, each later one after twice as long.
const FIRST_INTERVAL_NS: u64 = 5_000_000;
/// Confirmations without an answer after which the peer is taken to have forgotten us, and is greeted anew.
const MAX_CONFIRMATIONS: u32 = 8;

/// How far the active side has got.
#[derive(Debug)]
pub(crate) struct Handshake {
    peer_epoch: u32,
    interval_ns: u64,
    max_interval_ns: u64,
    next_ns: u64,
    sent: u32,
}

impl Handshake {
    pub(crate) fn new(config: &Config, now_ns: u64) -> Self {
        let max_interval_ns = config.heartbeat_ns;
        let interval_ns = FIRST_INTERVAL_NS.min(max_interval_ns);
        Self { peer_epoch: 0, interval_ns, max_interval_ns, next_ns: now_ns, sent: 0 }
    }

    /// The epoch to confirm, 0 while the peer has not answered.
    pub(crate) fn peer_epoch(&self) -> u32 {
        self.peer_epoch
    }

    /// The peer has answered.
    pub(crate) fn on_answer(&mut self, now_ns: u64, peer_epoch: u32) {
        self.restart(now_ns, peer_epoch);
    }

    fn restart(&mut self, now_ns: u64, peer_epoch: u32) {
        self.peer_epoch = peer_epoch;
        self.interval_ns = FIRST_INTERVAL_NS.min(self.max_interval_ns);
        self.next_ns = now_ns;
        self.sent = 0;
    }

    /// Whether a Hello has to leave.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    /// When the next Hello has to leave.
    pub(crate) fn deadline_ns(&self) -> u64 {
        self.next_ns
    }

    /// A Hello has left.
    pub(crate) fn on_sent(&mut self, now_ns: u64) {
        self.sent += 1;
        self.next_ns = now_ns + self.interval_ns;
        self.interval_ns = (2 * self.interval_ns).min(self.max_interval_ns);
        if self.peer_epoch != 0 && self.sent >= MAX_CONFIRMATIONS {
            let next_ns = self.next_ns;
            self.restart(next_ns, 0);
        }
    }
}
