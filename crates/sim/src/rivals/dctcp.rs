//! DCTCP: RFC 8257. The fraction of marked bytes of a round trip, smoothed, says how much of the window goes; growth
//! and losses are Reno's. It does not pace.
//!
//! An acknowledgement that tells of marks counts whole: the peer sends one at once for a marked frame, so at most the
//! frame before it is counted wrongly, as with a receiver that delays acknowledgements (section 3.2).

use etherslot_session::{Acked, Controller, Limits, Lost};

use super::Tcp;
use super::reno::{self, DECREASE};

/// `g`, the gain of the estimate (section 4.2).
const GAIN: f64 = 1.0 / 16.0;

/// Data Center TCP.
#[derive(Debug)]
pub struct Dctcp {
    tcp: Tcp,
    /// The estimate of how many bytes are marked, 0 to 1.
    alpha: f64,
    acked_bytes: u64,
    marked_bytes: u64,
    /// Frames that left since then end the observation window.
    observed_from_ns: u64,
}

impl Dctcp {
    /// DCTCP within these limits.
    pub fn new(limits: &Limits) -> Self {
        Self { tcp: Tcp::new(limits), alpha: 1.0, acked_bytes: 0, marked_bytes: 0, observed_from_ns: 0 }
    }

    /// Steps 1 to 7 of section 3.3.
    fn observe(&mut self, acked: &Acked) {
        self.acked_bytes += acked.bytes;
        if acked.congested {
            self.marked_bytes += acked.bytes;
        }
        if self.acked_bytes > 0 && acked.tx_ns.is_some_and(|tx_ns| tx_ns >= self.observed_from_ns) {
            let marked = self.marked_bytes as f64 / self.acked_bytes as f64;
            self.alpha = self.alpha * (1.0 - GAIN) + GAIN * marked;
            self.observed_from_ns = acked.now_ns;
            self.acked_bytes = 0;
            self.marked_bytes = 0;
        }
    }
}

impl Controller for Dctcp {
    fn set_frame_bytes(&mut self, bytes: u64) {
        self.tcp.set_frame_bytes(bytes);
    }

    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_ack(&mut self, acked: &Acked) {
        self.observe(acked);
        let frames = self.tcp.on_ack(acked);
        if !acked.congested {
            reno::grow(&mut self.tcp, frames);
        } else if !self.tcp.is_recovering {
            // Step 8, once for a window of data. There is nothing to undo: a mark is not mistaken.
            self.tcp.reduce(acked.now_ns, 1.0 - self.alpha / 2.0);
            self.tcp.before = None;
        }
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

#[cfg(test)]
mod tests {
    use super::super::tests::{LIMITS, acked, lost};
    use super::*;

    /// A round trip of ten acknowledgements, the first so many of them marked.
    fn round(dctcp: &mut Dctcp, start_ns: u64, marked: u64) {
        for frame in 0..10 {
            let congested = frame < marked;
            // Only the last one left after the round began.
            let tx_ns = if frame == 9 { start_ns } else { 0 };
            dctcp.on_ack(&Acked { congested, ..acked(start_ns + 1000, tx_ns, 1) });
        }
    }

    #[test]
    fn the_estimate_forgets_a_sixteenth_in_a_window() {
        let mut dctcp = Dctcp::new(&LIMITS);
        dctcp.observed_from_ns = 1;
        let mut expected = 1.0;
        for number in 1..20 {
            round(&mut dctcp, number * 10_000, 0);
            expected *= 15.0 / 16.0;
            assert!((dctcp.alpha - expected).abs() < 1e-12, "{} {expected}", dctcp.alpha);
        }
        round(&mut dctcp, 1_000_000, 5);
        assert!((dctcp.alpha - (expected * 15.0 / 16.0 + 0.5 / 16.0)).abs() < 1e-12);
    }

    #[test]
    fn marks_at_first_halve_and_few_marks_later_take_little() {
        let mut dctcp = Dctcp::new(&LIMITS);
        dctcp.tcp.cwnd = 100.0;
        dctcp.observed_from_ns = 1_000_000;
        dctcp.on_ack(&Acked { congested: true, ..acked(1000, 0, 1) });
        assert_eq!(dctcp.window_bytes(), 50_000);
        dctcp.alpha = 0.1;
        dctcp.tcp.cwnd = 100.0;
        dctcp.on_ack(&Acked { congested: true, ..acked(1500, 900, 1) });
        assert_eq!(dctcp.window_bytes(), 100_000, "the same window of data");
        dctcp.on_ack(&Acked { congested: true, ..acked(2500, 1100, 1) });
        assert_eq!(dctcp.window_bytes(), 95_000);
    }

    #[test]
    fn a_loss_after_marks_in_the_same_window_of_data_takes_no_more() {
        let mut dctcp = Dctcp::new(&LIMITS);
        dctcp.tcp.cwnd = 100.0;
        dctcp.on_ack(&Acked { congested: true, ..acked(1000, 0, 1) });
        let window = dctcp.window_bytes();
        dctcp.on_loss(&lost(1100, 900));
        assert_eq!(dctcp.window_bytes(), window);
        dctcp.on_loss(&lost(2100, 1900));
        assert_eq!(dctcp.window_bytes(), window / 2);
        let alpha = dctcp.alpha;
        dctcp.on_rto(9000);
        assert_eq!(dctcp.window_bytes(), 1000);
        assert!((dctcp.alpha - alpha).abs() < 1e-12, "losses are not in the estimate");
    }

    #[test]
    fn marks_are_not_undone() {
        let mut dctcp = Dctcp::new(&LIMITS);
        dctcp.tcp.cwnd = 100.0;
        dctcp.on_loss(&lost(1000, 0));
        dctcp.on_ack(&Acked { congested: true, ..acked(2000, 1500, 1) });
        let window = dctcp.window_bytes();
        dctcp.on_spurious(2100);
        assert_eq!(dctcp.window_bytes(), window);
    }
}
