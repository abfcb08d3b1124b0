//! The controllers that EFE is compared with, each as its standard or paper has it: [`Reno`], [`Cubic`], [`Dctcp`] and
//! [`Swift`].
//!
//! Where a document leaves a choice, the one that serves the rival better is taken, which is mostly what Linux does; the
//! modules say so. None knows more than the trait tells: a round trip ends when a frame that left after its beginning
//! is acknowledged, which stands for TCP's comparison with `SND.NXT`.
//!
//! Limits: windows are fractions of frames in `f64`, with no operation but those that IEEE 754 rounds exactly, so that a
//! seed gives the same run everywhere. What the receiver's processor would add to Swift's delay does not exist here.

#![allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]

#[cfg(test)]
mod alone;
mod cubic;
mod dctcp;
mod hystart;
mod reno;
mod swift;

use etherslot_session::{Acked, Limits};

pub use cubic::Cubic;
pub use dctcp::Dctcp;
pub use reno::Reno;
pub use swift::Swift;

/// Frames to begin with: RFC 6928's ten. As in Linux they are ten of any size; the RFC's 14,600 bytes would leave a
/// sender of 9000-byte frames two.
const INITIAL_FRAMES: f64 = 10.0;
/// The least threshold, frames (RFC 5681, equation 4).
const LEAST_THRESHOLD_FRAMES: f64 = 2.0;
/// The most that one acknowledgement may add in slow start, frames: L of RFC 3465 as RFC 9406 sets it for senders that do
/// not pace. RFC 3465's own 2 would punish acknowledgements that were lost or held back on the way. It is not lowered
/// after a timeout: that guards against cumulative acknowledgements of what had arrived before, and here every byte
/// counts once, when it arrives.
const SLOW_START_LIMIT_FRAMES: f64 = 8.0;

/// What the controllers descended from TCP have in common: window, threshold, and which losses are one congestion event.
#[derive(Clone, Debug)]
struct Tcp {
    frame_bytes: f64,
    most_frames: f64,
    /// Window, frames.
    cwnd: f64,
    /// Slow start below this, frames.
    ssthresh: f64,
    /// When the window was last reduced. Frames that left before are of that event, marked or lost.
    reduced_ns: Option<u64>,
    /// No frame that left after the last reduction has been acknowledged; the window does not grow meanwhile.
    is_recovering: bool,
    /// Nothing has been acknowledged since a timeout.
    is_timed_out: bool,
    /// Window and threshold before the last loss or timeout.
    before: Option<(f64, f64)>,
}

impl Tcp {
    fn new(limits: &Limits) -> Self {
        let mut tcp = Self {
            frame_bytes: 1.0,
            most_frames: (limits.window_frames.max(1)) as f64,
            cwnd: 0.0,
            ssthresh: f64::INFINITY,
            reduced_ns: None,
            is_recovering: false,
            is_timed_out: false,
            before: None,
        };
        tcp.set_frame_bytes(limits.frame_bytes);
        tcp
    }

    fn set_frame_bytes(&mut self, bytes: u64) {
        self.frame_bytes = bytes.max(1) as f64;
        self.cwnd = INITIAL_FRAMES.min(self.most_frames);
    }

    fn window_bytes(&self) -> u64 {
        (self.cwnd * self.frame_bytes) as u64
    }

    /// Takes note of an acknowledgement. Frames that the window may grow by the acknowledgement of: none in recovery (RFC
    /// 6675, section 5), none if the window was not what held the sender back (RFC 7661, section 4.1).
    fn on_ack(&mut self, acked: &Acked) -> f64 {
        self.is_timed_out = false;
        if self.is_recovering && acked.tx_ns >= self.reduced_ns {
            self.is_recovering = false;
        }
        if self.is_recovering || !acked.window_limited { 0.0 } else { acked.bytes as f64 / self.frame_bytes }
    }

    /// Grows as in slow start, by `frames` over `divisor` and up to the threshold; the acknowledged frames that are
    /// left over for congestion avoidance.
    fn slow_start(&mut self, frames: f64, divisor: f64) -> f64 {
        let wanted = frames.min(SLOW_START_LIMIT_FRAMES) / divisor;
        let grown = wanted.min((self.ssthresh - self.cwnd).max(0.0));
        self.grow(grown);
        (wanted - grown) * divisor
    }

    /// Grows by one frame for a window of acknowledged ones.
    fn avoid_congestion(&mut self, frames: f64) {
        self.grow(frames / self.cwnd);
    }

    fn grow(&mut self, frames: f64) {
        self.cwnd = (self.cwnd + frames).min(self.most_frames);
    }

    /// Whether a loss whose newest frame left then is not of the last congestion event.
    fn is_new_event(&self, newest_tx_ns: u64) -> bool {
        self.reduced_ns.is_none_or(|reduced_ns| newest_tx_ns >= reduced_ns)
    }

    /// Reduces the window to this factor of itself, once per round trip. RFC 5681 means the frames in flight; like Linux
    /// we take the window, since frames that arrived out of order are not in flight any more.
    fn reduce(&mut self, now_ns: u64, factor: f64) {
        self.before = Some((self.cwnd, self.ssthresh));
        self.ssthresh = (self.cwnd * factor).max(LEAST_THRESHOLD_FRAMES);
        self.cwnd = self.ssthresh.min(self.most_frames);
        self.reduced_ns = Some(now_ns);
        self.is_recovering = true;
    }

    /// Begins again with one frame. Whether this is an event of its own: a timeout after a timeout (RFC 5681, section
    /// 3.1) or amid the recovery from a loss (Linux) keeps the threshold that was set before.
    fn time_out(&mut self, now_ns: u64, factor: f64) -> bool {
        let is_event = !self.is_timed_out && !self.is_recovering;
        if is_event {
            self.reduce(now_ns, factor);
        }
        self.cwnd = 1.0;
        self.reduced_ns = Some(now_ns);
        self.is_recovering = false;
        self.is_timed_out = true;
        is_event
    }

    /// Takes the last loss or timeout back: once, as with Eifel (RFC 4015) and DSACK in Linux. Whether there was any.
    fn undo(&mut self) -> bool {
        let Some((cwnd, ssthresh)) = self.before.take() else { return false };
        self.cwnd = self.cwnd.max(cwnd);
        self.ssthresh = self.ssthresh.max(ssthresh);
        self.reduced_ns = None;
        self.is_recovering = false;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_session::{Lost, Mode};

    pub(super) const LIMITS: Limits =
        Limits { frame_bytes: 1000, window_frames: 4096, rate: None, noise_ns: 0, mode: Mode::Selective };

    /// An acknowledgement of so many frames, the newest of which left then.
    pub(super) fn acked(now_ns: u64, tx_ns: u64, frames: u64) -> Acked {
        Acked {
            now_ns,
            bytes: frames * LIMITS.frame_bytes,
            rtt_ns: Some(now_ns.saturating_sub(tx_ns)),
            tx_ns: Some(tx_ns),
            srtt_ns: 10_000,
            min_rtt_ns: 10_000,
            in_flight_bytes: 0,
            window_limited: true,
            congested: false,
            back_ns: 0,
        }
    }

    /// The loss of a frame that left then.
    pub(super) fn lost(now_ns: u64, newest_tx_ns: u64) -> Lost {
        Lost {
            now_ns,
            bytes: LIMITS.frame_bytes,
            newest_tx_ns,
            rtt_ns: 10_000,
            min_rtt_ns: 10_000,
            in_flight_bytes: 0,
        }
    }

    #[test]
    fn ten_frames_of_any_size_begin() {
        for frame_bytes in [1500, 9000] {
            let tcp = Tcp::new(&Limits { frame_bytes, ..LIMITS });
            assert_eq!(tcp.window_bytes(), 10 * frame_bytes);
        }
    }

    #[test]
    fn slow_start_stops_at_the_threshold_and_leaves_the_rest() {
        let mut tcp = Tcp { cwnd: 10.0, ssthresh: 12.0, ..Tcp::new(&LIMITS) };
        let left = tcp.slow_start(3.0, 1.0);
        assert_eq!((tcp.window_bytes(), left as u64), (12_000, 1));
    }

    #[test]
    fn one_acknowledgement_adds_eight_frames_at_most() {
        let mut tcp = Tcp::new(&LIMITS);
        tcp.slow_start(100.0, 1.0);
        assert_eq!(tcp.window_bytes(), 18_000);
    }

    #[test]
    fn what_is_not_used_does_not_grow() {
        let mut tcp = Tcp::new(&LIMITS);
        assert!(tcp.on_ack(&Acked { window_limited: false, ..acked(10, 0, 2) }) < 1e-9);
        assert!(tcp.on_ack(&acked(10, 0, 2)) > 1.9);
    }
}
