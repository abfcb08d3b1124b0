//! A window that opens quickly and lets everything out at once, for tests of what is beside congestion control.

use etherslot_session::{Acked, Controller, Limits, Lost};

/// Frames that the window never falls below.
const FLOOR_FRAMES: u64 = 8;
/// Frames to begin with.
const INITIAL_FRAMES: u64 = 32;
/// Frames that the window grows by in a round trip, once slow start is over.
const INCREASE_FRAMES: u64 = 4;

/// Slow start, additive increase, multiplicative decrease once per round trip.
///
/// A loss while the round-trip time is near its least is taken as damage rather than congestion and costs a tenth;
/// otherwise it costs three tenths. The floor keeps a link with a few per cent loss in use.
#[derive(Debug)]
pub(crate) struct Window {
    frame_bytes: u64,
    most_frames: u64,
    bytes: u64,
    slow_start_until: u64,
    /// Acknowledged bytes times increase that have not made a whole byte of window yet.
    carry: u64,
    /// Losses of frames sent before this time belong to the decrease already made.
    decreased_ns: u64,
    /// Window and threshold before the last decrease.
    before: Option<(u64, u64)>,
}

impl Window {
    /// A window for a link of these limits.
    pub(crate) fn new(limits: &Limits) -> Self {
        let mut window = Self {
            frame_bytes: 0,
            most_frames: limits.window_frames,
            bytes: 0,
            slow_start_until: u64::MAX,
            carry: 0,
            decreased_ns: 0,
            before: None,
        };
        window.set_frame_bytes(limits.frame_bytes);
        window
    }

    fn floor_bytes(&self) -> u64 {
        FLOOR_FRAMES.min(self.most_frames) * self.frame_bytes
    }

    fn decrease(&mut self, now_ns: u64, bytes: u64, slow_start_until: u64) {
        self.before = Some((self.bytes, self.slow_start_until));
        self.bytes = bytes.max(self.floor_bytes());
        self.slow_start_until = slow_start_until.max(self.floor_bytes());
        self.carry = 0;
        self.decreased_ns = now_ns;
    }
}

impl Controller for Window {
    fn set_frame_bytes(&mut self, bytes: u64) {
        self.frame_bytes = bytes.max(1);
        self.bytes = INITIAL_FRAMES.min(self.most_frames) * self.frame_bytes;
    }

    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_ack(&mut self, acked: &Acked) {
        if !acked.window_limited {
            return;
        }
        if self.bytes < self.slow_start_until {
            self.bytes += acked.bytes;
        } else {
            self.carry += acked.bytes * INCREASE_FRAMES * self.frame_bytes;
            let window = self.bytes.max(1);
            self.bytes += self.carry / window;
            self.carry %= window;
        }
        self.bytes = self.bytes.min(self.most_frames * self.frame_bytes);
    }

    fn on_loss(&mut self, lost: &Lost) {
        if lost.newest_tx_ns < self.decreased_ns {
            return;
        }
        let queued = lost.rtt_ns > 2 * lost.min_rtt_ns;
        let bytes = self.bytes / 10 * if queued { 7 } else { 9 };
        self.decrease(lost.now_ns, bytes, bytes);
    }

    fn on_rto(&mut self, now_ns: u64) {
        let half = self.bytes / 2;
        self.decrease(now_ns, 0, half);
    }

    fn on_spurious(&mut self, _now_ns: u64) {
        if let Some((bytes, slow_start_until)) = self.before.take() {
            self.bytes = self.bytes.max(bytes);
            self.slow_start_until = self.slow_start_until.max(slow_start_until);
        }
    }

    fn window_bytes(&self) -> u64 {
        self.bytes
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }
}
