//! CUBIC: RFC 9438 with Reno-friendly region, fast convergence and `HyStart++` (RFC 9406). It does not pace.
//!
//! Its time is in seconds, as in the RFC: on a path of microseconds it is the Reno-friendly region that counts.

use etherslot_session::{Acked, Controller, Limits, Lost};

use super::Tcp;
use super::hystart::{Growth, HyStart};

/// `C`, frames per cubic second.
const C: f64 = 0.4;
/// What remains of the window after a loss: `beta_cubic`.
const BETA: f64 = 0.7;
/// `alpha_cubic`: the increase with which a window that falls to `BETA` is as fast as Reno's (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// One stage of congestion avoidance.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start_ns: u64,
    /// Seconds until the window is back at `W_max`.
    k: f64,
    /// The window that Reno would have.
    w_est: f64,
}

/// What a congestion event changes and a spurious one gives back (section 4.9).
#[derive(Clone, Copy, Debug)]
struct Curve {
    /// The window that the curve flattens at; none before a loss and after a timeout (sections 4.8 and 4.10).
    w_max: Option<f64>,
    /// Window before the last congestion event.
    cwnd_prior: f64,
    epoch: Option<Epoch>,
}

/// TCP CUBIC.
#[derive(Debug)]
pub struct Cubic {
    tcp: Tcp,
    /// In the first slow start.
    hystart: Option<HyStart>,
    curve: Curve,
    before: Option<Curve>,
    /// The sender has not used its window since.
    unused_since_ns: Option<u64>,
}

impl Cubic {
    /// CUBIC within these limits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            tcp: Tcp::new(limits),
            hystart: Some(HyStart::new()),
            curve: Curve { w_max: None, cwnd_prior: 0.0, epoch: None },
            before: None,
            unused_since_ns: None,
        }
    }

    /// The time of a stage does not run while the sender has no use for its window (section 5.8).
    fn note_use(&mut self, acked: &Acked) {
        if !acked.window_limited {
            self.unused_since_ns.get_or_insert(acked.now_ns);
        } else if let Some(since_ns) = self.unused_since_ns.take()
            && let Some(epoch) = &mut self.curve.epoch
        {
            epoch.start_ns += acked.now_ns.saturating_sub(since_ns.max(epoch.start_ns));
        }
    }

    fn slow_start(&mut self, acked: &Acked, frames: f64) -> f64 {
        match self.hystart.as_mut().map(|hystart| hystart.on_ack(acked)) {
            None => self.tcp.slow_start(frames, 1.0),
            Some(Growth::Divided(divisor)) => self.tcp.slow_start(frames, divisor),
            Some(Growth::Over) => {
                self.hystart = None;
                self.tcp.ssthresh = self.tcp.cwnd;
                self.curve.cwnd_prior = self.tcp.cwnd;
                frames
            }
        }
    }

    fn begin_epoch(&mut self, now_ns: u64) -> Epoch {
        let cwnd = self.tcp.cwnd;
        let w_max = self.curve.w_max.filter(|&w_max| w_max > cwnd).unwrap_or(cwnd);
        self.curve.w_max = Some(w_max);
        Epoch { start_ns: now_ns, k: cube_root((w_max - cwnd) / C), w_est: cwnd }
    }

    fn avoid_congestion(&mut self, acked: &Acked, frames: f64) {
        let mut epoch = self.curve.epoch.unwrap_or_else(|| self.begin_epoch(acked.now_ns));
        let cwnd = self.tcp.cwnd;
        let w_max = self.curve.w_max.unwrap_or(cwnd);
        let alpha = if epoch.w_est < self.curve.cwnd_prior { ALPHA } else { 1.0 };
        epoch.w_est += alpha * frames / cwnd;
        let t = seconds(acked.now_ns.saturating_sub(epoch.start_ns));
        if w_cubic(t, epoch.k, w_max) < epoch.w_est {
            self.tcp.grow((epoch.w_est - cwnd).max(0.0));
        } else {
            let target = w_cubic(t + seconds(acked.srtt_ns), epoch.k, w_max).clamp(cwnd, 1.5 * cwnd);
            self.tcp.grow((target - cwnd) / cwnd * frames);
        }
        self.curve.epoch = Some(epoch);
    }

    /// The window is about to be reduced (sections 4.6 and 4.7).
    fn note_congestion(&mut self) {
        self.before = Some(self.curve);
        let cwnd = self.tcp.cwnd;
        let converges = self.curve.w_max.is_some_and(|w_max| cwnd < w_max);
        self.curve = Curve {
            w_max: Some(if converges { cwnd * f64::midpoint(1.0, BETA) } else { cwnd }),
            cwnd_prior: cwnd,
            epoch: None,
        };
        self.hystart = None;
    }
}

impl Controller for Cubic {
    fn set_frame_bytes(&mut self, bytes: u64) {
        self.tcp.set_frame_bytes(bytes);
    }

    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_ack(&mut self, acked: &Acked) {
        self.note_use(acked);
        let mut frames = self.tcp.on_ack(acked);
        if frames > 0.0 && self.tcp.cwnd < self.tcp.ssthresh {
            frames = self.slow_start(acked, frames);
        }
        if frames > 0.0 && self.tcp.cwnd >= self.tcp.ssthresh {
            self.avoid_congestion(acked, frames);
        }
    }

    fn on_loss(&mut self, lost: &Lost) {
        if self.tcp.is_new_event(lost.newest_tx_ns) {
            self.note_congestion();
            self.tcp.reduce(lost.now_ns, BETA);
        }
    }

    fn on_rto(&mut self, now_ns: u64) {
        let (curve, cwnd) = (self.curve, self.tcp.cwnd);
        self.hystart = None;
        if self.tcp.time_out(now_ns, BETA) {
            self.before = Some(curve);
            self.curve.cwnd_prior = cwnd;
        }
        self.curve.w_max = None;
        self.curve.epoch = None;
    }

    fn on_spurious(&mut self, _now_ns: u64) {
        if self.tcp.undo()
            && let Some(curve) = self.before.take()
        {
            self.curve = curve;
        }
    }

    fn window_bytes(&self) -> u64 {
        self.tcp.window_bytes()
    }

    fn pacing_rate(&self) -> Option<u64> {
        None
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// `W_cubic(t)` (section 4.2).
fn w_cubic(t: f64, k: f64, w_max: f64) -> f64 {
    let from_k = t - k;
    C * from_k * from_k * from_k + w_max
}

/// By Newton's method from above. The standard library's is that of the system, which need not round as others do.
fn cube_root(value: f64) -> f64 {
    if value <= 0.0 {
        return 0.0;
    }
    let mut root = value.max(1.0);
    // Every step from above is a step down, until rounding is all that is left.
    for _ in 0..200 {
        let next = (2.0 * root + value / (root * root)) / 3.0;
        if next >= root {
            break;
        }
        root = next;
    }
    root
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LIMITS, acked, lost};
    use super::*;

    const S: u64 = 1_000_000_000;

    fn near(left: f64, right: f64, tolerance: f64) -> bool {
        (left - right).abs() <= tolerance
    }

    fn cubic(cwnd: f64) -> Cubic {
        let mut cubic = Cubic::new(&LIMITS);
        cubic.tcp.cwnd = cwnd;
        cubic
    }

    #[test]
    fn the_cube_root_is_one() {
        for value in [1e-9, 0.001, 0.5, 1.0, 8.0, 27.0, 750.0, 1e9] {
            let root = cube_root(value);
            assert!(near(root * root * root, value, value * 1e-12), "{value}: {root}");
        }
        assert!(near(cube_root(0.0), 0.0, 0.0));
    }

    #[test]
    fn k_and_the_curve_are_those_of_the_rfc() {
        // W_max 1000, beta .7: K = cbrt(300 / .4) = 9.0856 s.
        let mut cubic = cubic(1000.0);
        cubic.on_loss(&lost(S, 0));
        assert_eq!(cubic.window_bytes(), 700_000);
        cubic.on_ack(&acked(S + 1000, S + 1, 1));
        let (k, w_max) = (cubic.curve.epoch.unwrap().k, cubic.curve.w_max.unwrap());
        assert!(near(k, 9.0856, 1e-4), "{k}");
        assert!(near(w_cubic(0.0, k, w_max), 700.0, 1e-6));
        assert!(near(w_cubic(k, k, w_max), 1000.0, 1e-6));
        assert!(near(w_cubic(k + 5.0, k, w_max), 1050.0, 1e-6));
    }

    #[test]
    fn a_long_path_follows_the_curve() {
        let mut cubic = cubic(1000.0);
        cubic.on_loss(&lost(S, 0));
        // 200 ms: Reno would need 567 round trips of 1 frame / .529, so the curve leads.
        let rtt_ns = S / 5;
        let mut now_ns = S;
        for _ in 0..45 {
            now_ns += rtt_ns;
            let frames = cubic.tcp.cwnd as u64;
            for _ in 0..frames {
                cubic.on_ack(&Acked { srtt_ns: rtt_ns, ..acked(now_ns, now_ns - rtt_ns + 1, 1) });
            }
        }
        assert!(near(cubic.tcp.cwnd, 1000.0, 3.0), "{} at about K", cubic.tcp.cwnd);
    }

    #[test]
    fn a_short_path_is_as_fast_as_reno() {
        let mut cubic = cubic(100.0);
        cubic.on_loss(&lost(S, 0));
        let mut round_trips = 0;
        while cubic.tcp.cwnd < 100.0 {
            round_trips += 1;
            let now_ns = S + round_trips * 10_000;
            for _ in 0..cubic.tcp.cwnd as u64 {
                cubic.on_ack(&acked(now_ns, now_ns - 1, 1));
            }
        }
        // 30 frames at .529 a round trip.
        assert!((55..=60).contains(&round_trips), "{round_trips}");
        let before = cubic.tcp.cwnd;
        for _ in 0..cubic.tcp.cwnd as u64 {
            cubic.on_ack(&acked(2 * S, 2 * S - 1, 1));
        }
        assert!(near(cubic.tcp.cwnd, before + 1.0, 0.02), "a whole frame once it is back where it was");
    }

    #[test]
    fn a_second_loss_below_the_last_maximum_makes_room_for_others() {
        let mut cubic = cubic(1000.0);
        cubic.on_loss(&lost(S, 0));
        cubic.on_loss(&lost(2 * S, S + 1));
        assert!(near(cubic.curve.w_max.unwrap(), 700.0 * 0.85, 1e-9));
        assert!(near(cubic.tcp.cwnd, 490.0, 1e-9));
    }

    #[test]
    fn after_a_timeout_the_curve_begins_at_its_flat_point() {
        let mut cubic = cubic(100.0);
        cubic.on_rto(S);
        assert_eq!(cubic.window_bytes(), 1000);
        for _ in 0..80 {
            cubic.on_ack(&acked(S + 1000, S + 1, 1));
        }
        let epoch = cubic.curve.epoch.unwrap();
        assert!(near(epoch.k, 0.0, 0.0) && near(cubic.curve.w_max.unwrap(), 70.0, 1e-9));
        assert!(near(cubic.tcp.cwnd, 70.08, 0.02), "{}", cubic.tcp.cwnd);
    }

    #[test]
    fn a_spurious_loss_gives_window_threshold_and_curve_back() {
        let mut cubic = cubic(1000.0);
        cubic.on_loss(&lost(S, 0));
        cubic.on_ack(&acked(S + 1000, S + 1, 1));
        let (curve, ssthresh) = (cubic.curve, cubic.tcp.ssthresh);
        cubic.on_loss(&lost(2 * S, S + 2));
        cubic.on_spurious(2 * S + 1);
        assert!(near(cubic.curve.w_max.unwrap(), curve.w_max.unwrap(), 0.0));
        assert!(near(cubic.curve.epoch.unwrap().k, curve.epoch.unwrap().k, 0.0));
        assert!(near(cubic.tcp.ssthresh, ssthresh, 0.0) && cubic.tcp.cwnd >= 700.0);
    }

    #[test]
    fn time_without_use_is_not_on_the_curve() {
        let mut cubic = cubic(1000.0);
        cubic.on_loss(&lost(S, 0));
        cubic.on_ack(&acked(S + 1000, S + 1, 1));
        cubic.on_ack(&Acked { window_limited: false, ..acked(2 * S, S + 2, 1) });
        cubic.on_ack(&acked(5 * S, 5 * S - 1, 1));
        assert_eq!(cubic.curve.epoch.unwrap().start_ns, 4 * S + 1000);
    }
}
