//! The controller of *classic* mode: delay-based, with two stages of probing and a predicted round-trip time, in the
//! manner published for `ExpEther`'s EFE. The baseline that [`super::Efe`] is compared with, and for peers that know no other.
//!
//! Once a round trip the predicted round-trip time (the last one, carried on by its slope) is held against a target: below
//! it the window grows by a frame, above it shrinks in proportion. Since its receiver takes frames only in order, a loss
//! costs all that followed; it is answered like congestion.

use super::{Acked, Controller, Limits, Lost};

/// Frames of the first stage of probing.
const FIRST_FRAMES: u64 = 4;
/// The queue that is aimed at: so many frames, or so much time, ns.
const TARGET_FRAMES: u64 = 8;
const TARGET_NS: u64 = 3_000;

/// How far the session has come to know its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    First,
    Second,
    Run,
}

/// The controller.
#[derive(Debug)]
pub struct Classic {
    frame_bytes: u64,
    most_frames: u64,
    rate: Option<u64>,
    phase: Phase,
    window: u64,
    srtt_ns: u64,
    /// When the newest frame of the last round trip left, and its round-trip time.
    last: Option<(u64, u64)>,
    /// Frames sent from here on belong to the next round trip.
    round_ns: u64,
    decreased_ns: u64,
}

impl Classic {
    /// A controller for a path of these limits.
    pub fn new(limits: &Limits) -> Self {
        let mut classic = Self {
            frame_bytes: 1,
            most_frames: limits.window_frames,
            rate: limits.rate,
            phase: Phase::First,
            window: 0,
            srtt_ns: 0,
            last: None,
            round_ns: 0,
            decreased_ns: 0,
        };
        classic.set_frame_bytes(limits.frame_bytes);
        classic
    }

    fn set_window(&mut self, bytes: u64) {
        self.window = bytes.clamp(self.frame_bytes, self.most_frames * self.frame_bytes);
    }

    fn target_ns(&self, base_ns: u64) -> u64 {
        let frames_ns =
            self.rate.map_or(0, |rate| TARGET_FRAMES * self.frame_bytes * 1_000_000_000 / rate.max(1));
        base_ns + TARGET_NS.max(frames_ns)
    }

    /// The round-trip time that the slope of the last round trip leads to: at most twice, at least half of the last one.
    fn predicted_ns(&mut self, tx_ns: u64, rtt_ns: u64) -> u64 {
        let predicted_ns = match self.last {
            Some((last_tx_ns, last_rtt_ns)) if tx_ns > last_tx_ns => {
                let change = i128::from(rtt_ns) - i128::from(last_rtt_ns);
                let ahead = change * i128::from(rtt_ns) / i128::from(tx_ns - last_tx_ns);
                let ahead = ahead.clamp(-i128::from(rtt_ns / 2), i128::from(rtt_ns));
                rtt_ns.saturating_add_signed(i64::try_from(ahead).unwrap_or(i64::MAX))
            }
            _ => rtt_ns,
        };
        self.last = Some((tx_ns, rtt_ns));
        predicted_ns
    }
}

impl Controller for Classic {
    fn set_frame_bytes(&mut self, bytes: u64) {
        self.frame_bytes = bytes.max(1);
        self.set_window(FIRST_FRAMES * self.frame_bytes);
    }

    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_ack(&mut self, acked: &Acked) {
        self.srtt_ns = acked.srtt_ns;
        if self.phase == Phase::Second && acked.window_limited {
            self.set_window(self.window + acked.bytes);
        }
        let (Some(rtt_ns), Some(tx_ns)) = (acked.rtt_ns, acked.tx_ns) else { return };
        if tx_ns < self.round_ns {
            return;
        }
        self.round_ns = acked.now_ns;
        let base_ns = acked.min_rtt_ns;
        let predicted_ns = self.predicted_ns(tx_ns, rtt_ns).max(base_ns);
        let is_above = predicted_ns > self.target_ns(base_ns);
        match self.phase {
            Phase::First => self.phase = Phase::Second,
            Phase::Second if is_above => {
                self.phase = Phase::Run;
                self.set_window(self.window * base_ns / rtt_ns.max(base_ns).max(1));
            }
            Phase::Run if is_above => {
                self.set_window(self.window * self.target_ns(base_ns) / predicted_ns.max(1));
            }
            Phase::Run if acked.window_limited => self.set_window(self.window + self.frame_bytes),
            Phase::Second | Phase::Run => {}
        }
    }

    fn on_loss(&mut self, lost: &Lost) {
        if lost.newest_tx_ns >= self.decreased_ns {
            self.decreased_ns = lost.now_ns;
            self.phase = Phase::Run;
            self.set_window(self.window / 2);
        }
    }

    fn on_rto(&mut self, now_ns: u64) {
        self.decreased_ns = now_ns;
        self.phase = Phase::Run;
        self.set_window(self.window / 2);
    }

    fn on_spurious(&mut self, _now_ns: u64) {}

    fn window_bytes(&self) -> u64 {
        self.window
    }

    fn pacing_rate(&self) -> Option<u64> {
        let twice = u128::from(self.window) * 2_000_000_000;
        (self.srtt_ns > 0).then(|| (twice / u128::from(self.srtt_ns)) as u64)
    }

    fn is_probing(&self) -> bool {
        self.phase != Phase::Run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Mode;

    const LIMITS: Limits = Limits {
        frame_bytes: 1000,
        window_frames: 256,
        rate: Some(1_000_000_000),
        noise_ns: 0,
        mode: Mode::Classic,
    };

    fn acked(now_ns: u64, rtt_ns: u64) -> Acked {
        Acked {
            now_ns,
            bytes: 4000,
            rtt_ns: Some(rtt_ns),
            tx_ns: Some(now_ns - rtt_ns),
            srtt_ns: rtt_ns,
            min_rtt_ns: 10_000,
            in_flight_bytes: 0,
            window_limited: true,
            congested: false,
            back_ns: 0,
        }
    }

    #[test]
    fn probing_doubles_until_the_queue_is_longer_than_its_target() {
        let mut classic = Classic::new(&LIMITS);
        classic.on_ack(&acked(10_000, 10_000));
        assert_eq!((classic.window_bytes(), classic.is_probing()), (4000, true));
        classic.on_ack(&acked(30_000, 10_000));
        classic.on_ack(&acked(50_000, 10_000));
        assert_eq!(classic.window_bytes(), 12_000);
        // 8 frames are 8 us; the round-trip time rises to 20 us.
        classic.on_ack(&acked(80_000, 20_000));
        assert_eq!((classic.window_bytes(), classic.is_probing()), (8000, false));
    }

    #[test]
    fn a_rising_round_trip_time_is_answered_before_it_is_beyond_the_target() {
        let mut classic = Classic::new(&LIMITS);
        classic.on_rto(0);
        classic.on_ack(&acked(20_000, 10_000));
        let window = classic.window_bytes();
        assert_eq!(window, 3000);
        // 13 us, and 3 us more in the next round trip of 13: 16.
        classic.on_ack(&acked(36_000, 13_000));
        assert_eq!(classic.window_bytes(), 4000);
        // 16 us is below 18, but 16 + 16 * 3 / 13 is not.
        classic.on_ack(&acked(52_000, 16_000));
        assert!(classic.window_bytes() < 4000);
    }

    #[test]
    fn a_loss_halves_the_window_once_a_round_trip() {
        let mut classic = Classic::new(&LIMITS);
        classic.set_window(64_000);
        let lost = |now_ns, newest_tx_ns| Lost {
            now_ns,
            bytes: 1000,
            newest_tx_ns,
            rtt_ns: 10_000,
            min_rtt_ns: 10_000,
            in_flight_bytes: 0,
        };
        classic.on_loss(&lost(100, 50));
        classic.on_loss(&lost(101, 60));
        assert_eq!(classic.window_bytes(), 32_000);
        classic.on_loss(&lost(300, 200));
        assert_eq!(classic.window_bytes(), 16_000);
    }
}
