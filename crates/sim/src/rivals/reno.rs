//! Reno: RFC 5681 with `NewReno`'s view of a recovery (RFC 6582), appropriate byte counting (RFC 3465) and ten frames to
//! begin with (RFC 6928). It does not pace.

use etherslot_session::{Acked, Controller, Limits, Lost};

use super::Tcp;

/// What remains of the window after a loss.
pub(super) const DECREASE: f64 = 0.5;

/// TCP Reno.
#[derive(Debug)]
pub struct Reno {
    tcp: Tcp,
}

impl Reno {
    /// Reno within these limits.
    pub fn new(limits: &Limits) -> Self {
        Self { tcp: Tcp::new(limits) }
    }
}

impl Controller for Reno {
    fn set_frame_bytes(&mut self, bytes: u64) {
        self.tcp.set_frame_bytes(bytes);
    }

    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_ack(&mut self, acked: &Acked) {
        let frames = self.tcp.on_ack(acked);
        grow(&mut self.tcp, frames);
    }

    fn on_loss(&mut self, lost: &Lost) {
        if self.tcp.is_new_event(lost.newest_tx_ns) {
            self.tcp.reduce(lost.now_ns, DECREASE);
        }
    }

    fn on_rto(&mut self, now_ns: u64) {
        self.tcp.time_out(now_ns, DECREASE);
    }

    fn on_spurious(&mut self, _now_ns: u64) {
        self.tcp.undo();
    }

    fn window_bytes(&self) -> u64 {
        self.tcp.window_bytes()
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }
}

/// Slow start, then a frame per round trip.
pub(super) fn grow(tcp: &mut Tcp, frames: f64) {
    let left = if tcp.cwnd < tcp.ssthresh { tcp.slow_start(frames, 1.0) } else { frames };
    if left > 0.0 {
        tcp.avoid_congestion(left);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LIMITS, acked, lost};
    use super::*;

    #[test]
    fn slow_start_doubles_in_a_round_trip() {
        let mut reno = Reno::new(&LIMITS);
        for expected in [20_000, 40_000, 80_000] {
            for _ in 0..reno.window_bytes() / 2000 {
                reno.on_ack(&acked(10, 0, 2));
            }
            assert_eq!(reno.window_bytes(), expected);
        }
    }

    #[test]
    fn a_round_trip_of_losses_halves_once_and_then_a_window_of_acks_adds_a_frame() {
        let mut reno = Reno::new(&LIMITS);
        reno.tcp.cwnd = 100.0;
        reno.on_loss(&lost(1000, 10));
        assert_eq!(reno.window_bytes(), 50_000);
        reno.on_loss(&lost(1010, 999));
        reno.on_ack(&acked(1020, 999, 2));
        assert_eq!(reno.window_bytes(), 50_000, "of the same event, in recovery");
        for _ in 0..50 {
            reno.on_ack(&acked(2000, 1001, 1));
        }
        assert!((50_980..=51_000).contains(&reno.window_bytes()), "{}", reno.window_bytes());
        reno.on_loss(&lost(3000, 1500));
        assert!((25_450..=25_500).contains(&reno.window_bytes()), "the next round trip");
    }

    #[test]
    fn a_timeout_leaves_one_frame_and_slow_start_to_half() {
        let mut reno = Reno::new(&LIMITS);
        reno.tcp.cwnd = 100.0;
        reno.on_rto(1000);
        assert_eq!(reno.window_bytes(), 1000);
        reno.on_rto(2000);
        assert_eq!(reno.window_bytes(), 1000);
        for _ in 0..49 {
            reno.on_ack(&acked(3000, 2000, 1));
        }
        assert_eq!(reno.window_bytes(), 50_000, "the second timeout keeps the threshold");
        reno.on_ack(&acked(3000, 2000, 1));
        assert_eq!(reno.window_bytes(), 50_020);
    }

    #[test]
    fn a_timeout_in_recovery_does_not_halve_the_threshold_again() {
        let mut reno = Reno::new(&LIMITS);
        reno.tcp.cwnd = 100.0;
        reno.on_loss(&lost(1000, 10));
        reno.on_rto(2000);
        assert_eq!((reno.window_bytes(), reno.tcp.ssthresh as u64), (1000, 50));
    }

    #[test]
    fn losses_and_timeouts_without_end_leave_a_threshold_of_two() {
        let mut reno = Reno::new(&LIMITS);
        for now in 1..100 {
            reno.on_loss(&lost(now, now));
        }
        assert_eq!(reno.window_bytes(), 2000);
    }

    #[test]
    fn what_was_spurious_is_undone_once() {
        let mut reno = Reno::new(&LIMITS);
        reno.tcp.cwnd = 100.0;
        reno.on_rto(1000);
        reno.on_spurious(1100);
        assert_eq!(reno.window_bytes(), 100_000);
        assert!(reno.tcp.ssthresh.is_infinite());
        reno.on_loss(&lost(2000, 1500));
        reno.on_spurious(2100);
        reno.on_loss(&lost(3000, 2500));
        assert_eq!(reno.window_bytes(), 50_000);
        reno.on_spurious(3001);
        reno.on_spurious(3002);
        assert_eq!(reno.window_bytes(), 100_000);
    }
}
