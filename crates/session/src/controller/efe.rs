//! EFE's own controller: a window from the predicted round-trip time over the target, paced.
//!
//! The window that was in force when a frame left decides the queue that the frame meets. So each acknowledgement
//! corrects *that* window by what came of it (as `PowerTCP` does, Addanki et al., NSDI 2022, in the variant that
//! needs nothing from switches): window = window then / (predicted RTT / target RTT) + a small increase for fairness. The
//! predicted RTT goes on with the slope of the last ones, so a queue is answered while it builds. As long as there is
//! hardly a queue the link has room, however long the round trip, and the window grows by a fixed share of itself.
//!
//! A loss says nothing about congestion unless the queue is long, too. A receiver that knows how many send to it bounds
//! each one's window (see [`receiver_cap_bytes`]), so that an incast of hundreds never builds a queue.

// Bytes and times of a path are far below 2^52, and a window is never negative.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]

use super::{Acked, Controller, Limits, Lost};

/// The queue that is aimed at: so many frames, or so much time, ns.
const TARGET_FRAMES: f64 = 8.0;
const TARGET_NS: f64 = 3_000.0;
/// The share of the target that is aimed at, for the queue to stay below it.
const AIM: f64 = 0.9;
/// Frames of the first stage of probing.
const FIRST_FRAMES: f64 = 4.0;
/// The window never falls below so many frames, unless the receiver caps it at less: delay alone may have reasons
/// beside this path, such as a peer whose process does not run.
const FLOOR_FRAMES: f64 = 2.0;
/// What a receiver's cap is taken for at least, frames: pacing keeps apart what is below one.
const LEAST_CAP_FRAMES: f64 = 0.02;
/// The most that one sample weighs in the slope.
const SLOPE_WEIGHT: f64 = 0.25;
/// The part of a receiver's cap that the window does not fall below: a queue that others left behind drains without a
/// sender of a fraction of a frame falling silent.
const LEAST_SHARE: f64 = 0.3;
/// Weight of what an acknowledgement says about the window.
const GAIN: f64 = 0.9;
const LEAST_GAIN: f64 = 0.3;
/// A receiver's cap of so few frames is taken to be the fair share.
const FEW_FRAMES: f64 = 4.0;
/// The part by which the window grows in a round trip without a queue.
const GROWTH: f64 = 0.25;
/// Increase a round trip for fairness, frames, for a window of one frame; it grows with the window's root.
const INCREASE_FRAMES: f64 = 0.2;
/// But no more than this part of what is missing to the receiver's cap.
const TOWARDS_CAP: f64 = 0.1;
/// Pacing over window per SRTT: enough above 1 to fill the window, little enough not to make bursts.
const PACE: f64 = 1.25;
const LEAST_PACE: f64 = 0.99;
const PACE_FRAMES: f64 = 16.0;
/// Windows that are remembered, with the time of their beginning.
const REMEMBERED: usize = 16;
/// A share of frames lost in one round trip that no damaged link has: the path is congested and does not show it.
const BREAKER: f64 = 0.2;
const BREAKER_FRAMES: f64 = 8.0;
/// What two clocks drift apart in some seconds: where the noise is more, the time of the way back can be relied on.
const DRIFT_NS: f64 = 100_000.0;
/// A span over which noise is filtered, over the noise.
const NOISE_SPANS: f64 = 2.0;

/// The bound on the window of each of `senders` that send to a Port of `rate` bytes per second at once: together they
/// fill the path and the queue that is aimed at. `base_rtt_ns` is the longest of their round-trip times without a queue, with
/// what delay there is besides.
pub fn receiver_cap_bytes(rate: u64, base_rtt_ns: u64, frame_bytes: u64, senders: u32) -> u32 {
    let frame_ns = frame_bytes as f64 / rate.max(1) as f64 * 1e9;
    let span_ns = base_rtt_ns as f64 + AIM * target_queue_ns(frame_ns);
    (rate as f64 * span_ns / 1e9 / f64::from(senders.max(1))).max(1.0) as u32
}

fn target_queue_ns(frame_ns: f64) -> f64 {
    (TARGET_FRAMES * frame_ns).max(TARGET_NS)
}

/// How far the session has come to know its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A few frames, for a first round-trip time.
    First,
    /// Twice as many each round trip, until there is a queue.
    Second,
    /// The window follows the queue.
    Run,
}

/// The last round-trip time taken.
#[derive(Clone, Copy, Debug)]
struct Sample {
    tx_ns: u64,
    rtt_ns: f64,
}

/// The controller.
#[derive(Debug)]
pub struct Efe {
    frame_bytes: f64,
    most_bytes: f64,
    /// Bytes per second of the Port, if known.
    rate: Option<f64>,
    cap_bytes: f64,
    phase: Phase,
    window: f64,
    /// Windows and when they began, in a ring.
    remembered: [(u64, f64); REMEMBERED],
    newest: usize,
    sample: Option<Sample>,
    /// Slope of the round-trip time, ns per ns, smoothed.
    slope: f64,
    /// What delay varies by without a queue.
    noise_ns: f64,
    /// The least round-trip time of this span of time and of the last, and when this one ends.
    late_ns: [f64; 2],
    late_end_ns: f64,
    /// How much of half the target the queue lacks, as of the last sample; not above 0 if nothing.
    room: f64,
    /// Predicted over target, smoothed.
    ratio: f64,
    srtt_ns: f64,
    /// The round-trip time that is aimed at.
    target_ns: f64,
    /// Frames sent from here on belong to the next round trip.
    round_ns: u64,
    round_acked: f64,
    round_lost: f64,
    /// Bytes per second that arrived, the most of a round trip.
    delivered_rate: f64,
    round_began_ns: u64,
    /// Losses of frames that left before this belong to the decrease already made.
    decreased_ns: u64,
    before_decrease: Option<f64>,
}

impl Efe {
    /// A controller for a path of these limits.
    pub fn new(limits: &Limits) -> Self {
        let mut efe = Self {
            frame_bytes: 0.0,
            most_bytes: 0.0,
            rate: limits.rate.map(|rate| rate as f64),
            cap_bytes: f64::INFINITY,
            phase: Phase::First,
            window: 0.0,
            remembered: [(0, 0.0); REMEMBERED],
            newest: 0,
            sample: None,
            slope: 0.0,
            noise_ns: limits.noise_ns as f64,
            late_ns: [f64::INFINITY; 2],
            late_end_ns: 0.0,
            room: 0.0,
            ratio: 1.0,
            srtt_ns: 0.0,
            target_ns: 0.0,
            round_ns: 0,
            round_acked: 0.0,
            round_lost: 0.0,
            delivered_rate: 0.0,
            round_began_ns: 0,
            decreased_ns: 0,
            before_decrease: None,
        };
        efe.most_bytes = limits.window_frames as f64;
        efe.set_frame_bytes(limits.frame_bytes);
        efe
    }

    fn target_queue_ns(&self) -> f64 {
        // What has arrived is no measure of the rate: there may have been little to send.
        target_queue_ns(self.rate.map_or(0.0, |rate| self.frame_bytes / rate * 1e9))
    }

    fn set_window(&mut self, bytes: f64) {
        let floor = (FLOOR_FRAMES * self.frame_bytes).min(LEAST_SHARE * self.cap_bytes);
        let cap = self.cap_bytes.max(LEAST_CAP_FRAMES * self.frame_bytes).min(self.most_bytes);
        self.window = bytes.max(floor).min(cap);
    }

    /// The window in force when a frame left that is acknowledged now.
    fn window_at(&self, tx_ns: u64) -> f64 {
        let oldest = self.remembered[(self.newest + 1) % REMEMBERED];
        (0..REMEMBERED)
            .map(|back| self.remembered[(self.newest + REMEMBERED - back) % REMEMBERED])
            .find(|&(began_ns, _)| began_ns <= tx_ns)
            .unwrap_or(oldest)
            .1
    }

    fn remember(&mut self, now_ns: u64) {
        let spacing_ns = self.srtt_ns / (REMEMBERED - 2) as f64 * 1.5;
        if now_ns as f64 >= self.remembered[self.newest].0 as f64 + spacing_ns {
            self.newest = (self.newest + 1) % REMEMBERED;
            self.remembered[self.newest] = (now_ns, self.window);
        }
    }

    /// Takes a round-trip time; how far the predicted one is from the target, as their ratio.
    fn measure(&mut self, tx_ns: u64, rtt_ns: f64, base_ns: f64) -> f64 {
        let mut step_ns = 0.0;
        match self.sample {
            Some(last) if tx_ns > last.tx_ns => {
                step_ns = (tx_ns - last.tx_ns) as f64;
                let change_ns = rtt_ns - last.rtt_ns;
                let weight = (step_ns / base_ns * 4.0).min(SLOPE_WEIGHT);
                self.slope += weight * (change_ns / step_ns - self.slope);
            }
            Some(_) => return self.ratio,
            None => {}
        }
        self.sample = Some(Sample { tx_ns, rtt_ns });
        let rtt_ns = self.least_of_late(tx_ns, rtt_ns);
        let queue_ns = self.target_queue_ns() * AIM;
        let predicted_ns = (rtt_ns * (1.0 + self.slope.clamp(-0.5, 1.0))).max(base_ns);
        self.target_ns = base_ns + queue_ns;
        let mut ratio = predicted_ns / self.target_ns;
        // Hardly a queue: there is room.
        self.room = 1.0 - (predicted_ns - base_ns) / (queue_ns / 2.0);
        if self.room > 0.0 {
            ratio = ratio.min(1.0 / (1.0 + GROWTH * self.room));
        }
        let weight = if step_ns > 0.0 { (step_ns / base_ns).min(1.0) } else { 1.0 };
        self.ratio += weight * (ratio.clamp(0.5, 4.0) - self.ratio);
        self.ratio
    }

    /// Where delay varies without a queue, the least of the last round-trip times, over a few times the noise: a queue shows
    /// in all of them.
    fn least_of_late(&mut self, tx_ns: u64, rtt_ns: f64) -> f64 {
        if self.noise_ns == 0.0 {
            return rtt_ns;
        }
        if tx_ns as f64 >= self.late_end_ns {
            self.late_ns = [f64::INFINITY, self.late_ns[0]];
            self.late_end_ns = tx_ns as f64 + NOISE_SPANS * self.noise_ns;
        }
        self.late_ns[0] = self.late_ns[0].min(rtt_ns);
        self.late_ns[0].min(self.late_ns[1])
    }

    /// A round trip is over once a frame that left in it is acknowledged.
    fn end_round(&mut self, now_ns: u64, tx_ns: u64) -> bool {
        if tx_ns < self.round_ns {
            return false;
        }
        let span_ns = now_ns.saturating_sub(self.round_began_ns).max(1) as f64;
        if self.round_began_ns > 0 {
            self.delivered_rate = (self.delivered_rate * 0.9).max(self.round_acked / span_ns * 1e9);
        }
        if self.round_lost > BREAKER * (self.round_acked + self.round_lost)
            && self.round_lost > BREAKER_FRAMES * self.frame_bytes
        {
            self.decrease(now_ns, 0.5);
        }
        self.round_ns = now_ns;
        self.round_began_ns = now_ns;
        self.round_acked = 0.0;
        self.round_lost = 0.0;
        true
    }

    fn decrease(&mut self, now_ns: u64, factor: f64) {
        self.before_decrease = Some(self.window);
        self.decreased_ns = now_ns;
        self.set_window(self.window * factor);
        self.remembered = [(0, self.window); REMEMBERED];
    }
}

impl Controller for Efe {
    fn set_frame_bytes(&mut self, bytes: u64) {
        let frames = self.most_bytes / self.frame_bytes.max(1.0);
        self.frame_bytes = bytes.max(1) as f64;
        self.most_bytes = frames * self.frame_bytes;
        self.set_window(FIRST_FRAMES * self.frame_bytes);
        self.remembered = [(0, self.window); REMEMBERED];
    }

    fn on_sent(&mut self, now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {
        self.remember(now_ns);
    }

    fn on_ack(&mut self, acked: &Acked) {
        self.srtt_ns = acked.srtt_ns as f64;
        self.round_acked += acked.bytes as f64;
        let (Some(rtt_ns), Some(tx_ns)) = (acked.rtt_ns, acked.tx_ns) else { return };
        // Acknowledgements that wait in queues of the other direction are no queue of ours.
        let back_ns = if self.noise_ns >= DRIFT_NS { acked.back_ns } else { 0 };
        let rtt_ns = rtt_ns.saturating_sub(back_ns).max(acked.min_rtt_ns) as f64;
        let base_ns = acked.min_rtt_ns.max(1) as f64 + self.noise_ns;
        let ratio = self.measure(tx_ns, rtt_ns, base_ns);
        let is_round = self.end_round(acked.now_ns, tx_ns);
        match self.phase {
            Phase::First => {
                if is_round {
                    self.phase = Phase::Second;
                }
            }
            Phase::Second => {
                if acked.window_limited {
                    self.set_window(self.window + acked.bytes as f64);
                }
                let queue_ns = self.target_queue_ns();
                let bdp = self.rate.unwrap_or(self.delivered_rate) * base_ns / 1e9;
                if ratio > 1.0 && rtt_ns > base_ns + queue_ns / 2.0 {
                    self.set_window(self.window * (base_ns + queue_ns / 2.0) / rtt_ns);
                    self.phase = Phase::Run;
                } else if self.window > 2.0 * bdp.max(FIRST_FRAMES * self.frame_bytes)
                    || self.window >= self.cap_bytes
                {
                    self.phase = Phase::Run;
                }
                if self.phase == Phase::Run {
                    self.ratio = 1.0;
                    self.remembered = [(0, self.window); REMEMBERED];
                }
            }
            Phase::Run => {
                let then = self.window_at(tx_ns);
                // Below a cap that is the fair share, towards it; at the cap there is nothing to share out.
                let share = (self.cap_bytes - then).max(0.0) * TOWARDS_CAP;
                let increase = (INCREASE_FRAMES * (then * self.frame_bytes).sqrt()).min(share);
                // The fewer frames, the older is what an acknowledgement tells.
                let gain = GAIN * (then / self.frame_bytes / PACE_FRAMES).clamp(LEAST_GAIN, 1.0);
                let mut window = (1.0 - gain) * self.window + gain * (then / ratio + increase);
                // A few frames that hear seldom of the path take half of what is missing at once.
                if self.room > 0.0 && self.cap_bytes < FEW_FRAMES * self.frame_bytes {
                    window = window.max(self.window + (self.cap_bytes - self.window) * self.room / 2.0);
                }
                if !acked.window_limited {
                    window = window.min(self.window);
                }
                self.set_window(window);
            }
        }
    }

    fn on_loss(&mut self, lost: &Lost) {
        self.round_lost += lost.bytes as f64;
        if lost.newest_tx_ns < self.decreased_ns {
            return;
        }
        let queue_ns = lost.rtt_ns.saturating_sub(lost.min_rtt_ns) as f64;
        if queue_ns > 2.0 * self.target_queue_ns() {
            // By what the queue is too long, as its delay may come too late.
            self.decrease(lost.now_ns, (self.target_ns / lost.rtt_ns as f64).clamp(0.7, 1.0));
        }
    }

    fn on_rto(&mut self, now_ns: u64) {
        self.decrease(now_ns, 0.5);
    }

    fn on_spurious(&mut self, _now_ns: u64) {
        if let Some(window) = self.before_decrease.take() {
            self.set_window(self.window.max(window));
        }
    }

    fn window_bytes(&self) -> u64 {
        self.window as u64
    }

    fn pacing_rate(&self) -> Option<u64> {
        let (pace, rtt_ns) = match self.phase {
            Phase::First | Phase::Second => (2.0, self.srtt_ns),
            // The fewer frames, the more it is pacing that bounds what is on its way, so the more exact it has to be. A
            // queue beyond the target is for the window to answer: its delay would keep a few frames apart for long.
            Phase::Run => {
                let many = (self.window / self.frame_bytes / PACE_FRAMES).min(1.0);
                let target_ns = self.target_ns - self.noise_ns;
                let short_ns = (target_ns - self.srtt_ns).max(0.0);
                (LEAST_PACE + (PACE - LEAST_PACE) * many, target_ns - short_ns * many)
            }
        };
        (rtt_ns > 0.0).then(|| (pace * self.window / rtt_ns * 1e9) as u64)
    }

    fn set_receiver_cap_bytes(&mut self, bytes: u64) {
        self.cap_bytes = if bytes == u64::MAX { f64::INFINITY } else { bytes as f64 };
        self.set_window(self.window);
    }

    fn is_probing(&self) -> bool {
        self.phase != Phase::Run
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp, reason = "they are whole")]
mod tests {
    use super::*;
    use crate::config::Mode;

    /// 12.5 GB/s: 8 frames take less than 3 us.
    const LIMITS: Limits = Limits {
        frame_bytes: 1000,
        window_frames: 1000,
        rate: Some(12_500_000_000),
        noise_ns: 0,
        mode: Mode::Selective,
    };
    const BASE_NS: u64 = 10_000;
    const AIMED_NS: u64 = BASE_NS + 2_700;

    struct Path {
        efe: Efe,
        now_ns: u64,
    }

    impl Path {
        fn new(limits: &Limits) -> Self {
            Self { efe: Efe::new(limits), now_ns: 1_000_000 }
        }

        /// Past probing, with this window.
        fn running(limits: &Limits, window: f64) -> Self {
            let mut path = Self::new(limits);
            path.efe.phase = Phase::Run;
            path.round_trips(1, |_| AIMED_NS);
            path.efe.set_window(window);
            path.efe.remembered = [(0, window); REMEMBERED];
            path
        }

        /// A frame that left a round-trip time ago is acknowledged.
        fn ack(&mut self, rtt_ns: u64, window_limited: bool) {
            self.efe.on_ack(&Acked {
                now_ns: self.now_ns,
                bytes: 1000,
                rtt_ns: Some(rtt_ns),
                tx_ns: Some(self.now_ns - rtt_ns),
                srtt_ns: rtt_ns,
                min_rtt_ns: BASE_NS,
                in_flight_bytes: 0,
                window_limited,
                congested: false,
                back_ns: 0,
            });
        }

        /// Ten acknowledgements a round trip, of frames that took so long.
        fn round_trips(&mut self, count: u32, rtt_ns: impl Fn(u32) -> u64) {
            for at in 0..10 * count {
                self.now_ns += BASE_NS / 10;
                self.efe.on_sent(self.now_ns, 1000, 1000);
                self.ack(rtt_ns(at), true);
            }
        }

        fn lose(&mut self, bytes: u64, rtt_ns: u64) {
            let (now_ns, newest_tx_ns) = (self.now_ns, self.now_ns - BASE_NS);
            let min_rtt_ns = BASE_NS;
            self.efe.on_loss(&Lost { now_ns, bytes, newest_tx_ns, rtt_ns, min_rtt_ns, in_flight_bytes: 0 });
        }

        fn frames(&self) -> f64 {
            self.efe.window / 1000.0
        }
    }

    #[test]
    fn probing_adds_what_arrives_until_there_is_a_queue() {
        let mut path = Path::new(&LIMITS);
        assert_eq!((path.frames(), path.efe.is_probing()), (4.0, true));
        path.round_trips(3, |_| BASE_NS);
        let frames = path.frames();
        assert!((20.0..=40.0).contains(&frames) && path.efe.is_probing(), "{frames}");
        path.now_ns += 1_000;
        path.round_trips(1, |_| 2 * BASE_NS);
        assert!(path.frames() < frames && !path.efe.is_probing(), "{}", path.frames());
    }

    #[test]
    fn a_window_whose_queue_is_as_long_as_aimed_stays_but_for_the_increase() {
        let mut path = Path::running(&LIMITS, 100_000.0);
        path.round_trips(10, |_| AIMED_NS);
        assert!((100.0..=130.0).contains(&path.frames()), "{}", path.frames());
    }

    #[test]
    fn a_queue_twice_as_long_takes_the_window_back_in_proportion_and_no_further() {
        let mut path = Path::running(&LIMITS, 100_000.0);
        // The window that these frames met was 100; the answer is one, however many tell of it.
        path.round_trips(1, |_| AIMED_NS + 2_700);
        let wanted = 100.0 * AIMED_NS as f64 / (AIMED_NS + 2_700) as f64;
        assert!((path.frames() - wanted).abs() < 8.0, "{} and {wanted}", path.frames());
    }

    #[test]
    fn a_queue_that_grows_is_answered_before_it_is_too_long() {
        let mut path = Path::running(&LIMITS, 100_000.0);
        path.round_trips(1, |at| BASE_NS + 2_000 + 60 * u64::from(at));
        let steady = {
            let mut path = Path::running(&LIMITS, 100_000.0);
            path.round_trips(1, |_| BASE_NS + 2_270);
            path.frames()
        };
        assert!(path.frames() < steady, "{} and {steady}", path.frames());
    }

    #[test]
    fn without_a_queue_the_window_grows_by_a_part_of_itself_unless_there_is_nothing_to_send() {
        let mut path = Path::running(&LIMITS, 100_000.0);
        path.round_trips(3, |_| BASE_NS);
        assert!((140.0..=220.0).contains(&path.frames()), "{}", path.frames());
        let frames = path.frames();
        for _ in 0..100 {
            path.now_ns += BASE_NS / 10;
            path.ack(BASE_NS, false);
        }
        assert!(path.frames() <= frames);
    }

    #[test]
    fn a_loss_counts_only_with_a_long_queue_and_once_a_round_trip() {
        let mut path = Path::running(&LIMITS, 100_000.0);
        path.lose(1000, AIMED_NS);
        assert_eq!(path.frames(), 100.0);
        path.lose(1000, 2 * BASE_NS);
        assert_eq!(path.frames(), 70.0);
        path.lose(1000, 2 * BASE_NS);
        assert_eq!(path.frames(), 70.0);
        path.efe.on_spurious(path.now_ns);
        assert_eq!(path.frames(), 100.0);
    }

    #[test]
    fn losses_that_no_damaged_link_has_halve_the_window() {
        let mut path = Path::running(&LIMITS, 100_000.0);
        path.round_trips(1, |_| AIMED_NS);
        path.lose(10_000, BASE_NS);
        path.round_trips(2, |_| AIMED_NS);
        assert!((45.0..=65.0).contains(&path.frames()), "{}", path.frames());
    }

    #[test]
    fn a_timeout_halves_the_window_down_to_two_frames() {
        let mut path = Path::running(&LIMITS, 100_000.0);
        path.efe.on_rto(path.now_ns);
        assert_eq!(path.frames(), 50.0);
        (0..20).for_each(|_| path.efe.on_rto(path.now_ns));
        path.round_trips(50, |_| 100 * BASE_NS);
        assert!((2.0..3.0).contains(&path.frames()), "{}", path.frames());
    }

    #[test]
    fn what_comes_and_goes_within_the_noise_is_no_queue_and_what_stays_is() {
        let noisy = Limits { noise_ns: 50_000, ..LIMITS };
        let mut path = Path::running(&noisy, 100_000.0);
        path.round_trips(100, |at| BASE_NS + if at % 7 == 0 { 1_000 } else { 300_000 });
        assert!(path.frames() >= 100.0, "{}", path.frames());
        path.round_trips(100, |_| 300_000);
        assert!(path.frames() < 100.0, "{}", path.frames());
    }

    #[test]
    fn senders_at_their_caps_share_the_port_at_its_rate_however_many() {
        for senders in [1, 2, 32, 256, 1000] {
            let cap = receiver_cap_bytes(12_500_000_000, BASE_NS, 1000, senders);
            let mut path = Path::running(&LIMITS, 1e6);
            path.efe.set_receiver_cap_bytes(u64::from(cap));
            path.round_trips(5, |_| AIMED_NS);
            assert_eq!(path.efe.window_bytes(), u64::from(cap));
            let rate = path.efe.pacing_rate().expect("it paces") * u64::from(senders);
            // Hundreds are held apart by pacing alone, a few by their windows.
            let (least, most) = if senders >= 256 { (0.97, 1.0) } else { (0.97, 1.26) };
            let share = rate as f64 / 12.5e9;
            assert!((least..=most).contains(&share), "{senders} senders: {share}");
        }
    }
}
