//! Swift (Kumar et al., "Swift: Delay is Simple and Effective for Congestion Control in the Datacenter", SIGCOMM 2020):
//! its algorithm 1 for the fabric's window, and its target delay with flow scaling (section 3.5).
//!
//! Of the parameters the paper gives the range of pacing and what its testbeds had; the rest is as public simulators
//! have it. Delay is the round-trip time less the peer's hold, which is the paper's fabric delay. Its second window, for
//! delay in the hosts, has nothing to measure here. Per-hop delay is in the least round-trip time, which stands for the
//! known topology.
//!
//! One thing is added in Swift's favour, as the paper's flows are long-lived and it says nothing of a beginning: a
//! paced slow start up to the target, which gives back its last doubling.
//!
//! The target is the least round-trip time plus room for a queue. The paper's second testbed, 100 Gbit/s, had
//! 25 us for an unloaded round-trip time of about 17, so the room is half of the least round-trip time up to
//! those 8 us, for the queue that a target needs does not grow with distance; at least 2 us, or 4 frames where the link
//! is so slow that these take longer. By the paper's definition the base target also holds what the fabric varies by
//! without any queue. No sender can tell that from other senders' queues; it is the operator who knows, and
//! [`Swift::with_noise_ns`] who is told.

use etherslot_session::{Acked, Controller, Limits, Lost};

use super::INITIAL_FRAMES;

/// `ai`, frames a round trip.
const INCREASE_FRAMES: f64 = 1.0;
/// `beta`: how much of the excess over the target the window gives up.
const DECREASE: f64 = 0.8;
/// `max_mdf`: the most that it gives up at a time.
const MAX_DECREASE: f64 = 0.5;
/// `min_cwnd`, frames (section 3.4).
const MIN_FRAMES: f64 = 0.001;
/// `RETX_RESET_THRESHOLD`: timeouts in a row that leave the least window.
const RESET_TIMEOUTS: u32 = 5;
/// `fs_min_cwnd` and `fs_max_cwnd`, frames: where flow scaling is whole and where it is nothing.
const SCALED_FRAMES: (f64, f64) = (0.1, 100.0);
/// `fs_range` in base targets, of which no more than the published one counts. The paper's incast of 5000 flows stood at
/// 110 us with a base of 25.
const SCALING_TARGETS: f64 = 4.0;
/// The base target of the paper's testbeds.
const PUBLISHED_TARGET_NS: u64 = 25_000;
/// Least and most room for a queue in the base target.
const QUEUE_NS: (u64, u64) = (2_000, 8_000);
/// The same in frames, at the speed of the Port.
const QUEUE_FRAMES: u64 = 4;
/// Frames leave at so many windows a round trip in slow start, so that its bursts are no queue.
const STARTING_PACE: f64 = 2.0;

/// Swift.
#[derive(Debug)]
pub struct Swift {
    frame_bytes: u64,
    most_frames: f64,
    port_rate: Option<u64>,
    noise_ns: u64,
    /// Window, frames.
    cwnd: f64,
    /// Until the target is reached or a frame lost for the first time.
    is_starting: bool,
    delay_ns: u64,
    srtt_ns: u64,
    decreased_ns: Option<u64>,
    /// Timeouts without an acknowledgement in between.
    timeouts: u32,
}

impl Swift {
    /// Swift within these limits, on a fabric as noisy as these say.
    pub fn new(limits: &Limits) -> Self {
        Self::with_noise_ns(limits, limits.noise_ns)
    }

    /// Swift on a fabric whose round trip varies by as much as this without any queue.
    pub fn with_noise_ns(limits: &Limits, noise_ns: u64) -> Self {
        let mut swift = Self {
            frame_bytes: 1,
            most_frames: limits.window_frames.max(1) as f64,
            port_rate: limits.rate,
            noise_ns,
            cwnd: 0.0,
            is_starting: true,
            delay_ns: 0,
            srtt_ns: 0,
            decreased_ns: None,
            timeouts: 0,
        };
        swift.set_frame_bytes(limits.frame_bytes);
        swift
    }

    /// The target of few flows, for this least round-trip time.
    fn base_target_ns(&self, min_rtt_ns: u64) -> u64 {
        let frames_ns = self
            .port_rate
            .map_or(0, |rate| (QUEUE_FRAMES * self.frame_bytes).saturating_mul(1_000_000_000) / rate.max(1));
        let least_ns = frames_ns.max(QUEUE_NS.0);
        min_rtt_ns + self.noise_ns + (min_rtt_ns / 2).clamp(least_ns, least_ns.max(QUEUE_NS.1))
    }

    /// The target delay: the base, and more the smaller the window, which tells how many share the link.
    fn target_ns(&self, min_rtt_ns: u64) -> u64 {
        let base_ns = self.base_target_ns(min_rtt_ns);
        let range_ns = SCALING_TARGETS * base_ns.min(PUBLISHED_TARGET_NS) as f64;
        let (min, max) = SCALED_FRAMES;
        let slope = range_ns / (1.0 / min.sqrt() - 1.0 / max.sqrt());
        let scaled_ns = slope / self.cwnd.sqrt() - slope / max.sqrt();
        base_ns + scaled_ns.clamp(0.0, range_ns) as u64
    }

    fn increase(&mut self, frames: f64) {
        let added = if self.is_starting {
            frames
        } else if self.cwnd >= 1.0 {
            INCREASE_FRAMES * frames / self.cwnd
        } else {
            INCREASE_FRAMES * frames
        };
        self.cwnd = (self.cwnd + added).min(self.most_frames);
    }

    /// Ends slow start. What reached the target left a round trip ago, from half the window; what is on its way still
    /// left from the whole, so the next decrease has to wait for what leaves now.
    fn stop_starting(&mut self, now_ns: u64) {
        self.is_starting = false;
        self.cwnd /= 2.0;
        self.decreased_ns = Some(now_ns + self.delay_ns);
    }

    /// Multiplies the window by this, once per round trip.
    fn decrease(&mut self, now_ns: u64, factor: f64) {
        if self.decreased_ns.is_none_or(|then_ns| now_ns.saturating_sub(then_ns) >= self.delay_ns) {
            self.cwnd = (self.cwnd * factor).max(MIN_FRAMES);
            self.decreased_ns = Some(now_ns);
        }
    }
}

impl Controller for Swift {
    fn set_frame_bytes(&mut self, bytes: u64) {
        self.frame_bytes = bytes.max(1);
        self.cwnd = INITIAL_FRAMES.min(self.most_frames);
    }

    fn on_sent(&mut self, _now_ns: u64, _bytes: u64, _in_flight_bytes: u64) {}

    fn on_ack(&mut self, acked: &Acked) {
        self.timeouts = 0;
        self.srtt_ns = acked.srtt_ns;
        self.delay_ns = acked.rtt_ns.unwrap_or(self.delay_ns);
        if self.delay_ns == 0 {
            return;
        }
        let target_ns = self.target_ns(acked.min_rtt_ns);
        if self.delay_ns >= target_ns && self.is_starting {
            self.stop_starting(acked.now_ns);
        } else if self.delay_ns >= target_ns {
            let excess = (self.delay_ns - target_ns) as f64 / self.delay_ns as f64;
            self.decrease(acked.now_ns, (1.0 - DECREASE * excess).max(1.0 - MAX_DECREASE));
        } else if acked.window_limited || self.pacing_rate().is_some() {
            self.increase(acked.bytes as f64 / self.frame_bytes as f64);
        }
    }

    fn on_loss(&mut self, lost: &Lost) {
        self.timeouts = 0;
        self.delay_ns = lost.rtt_ns;
        self.is_starting = false;
        self.decrease(lost.now_ns, 1.0 - MAX_DECREASE);
    }

    fn on_rto(&mut self, now_ns: u64) {
        self.timeouts += 1;
        self.is_starting = false;
        if self.timeouts >= RESET_TIMEOUTS {
            self.cwnd = MIN_FRAMES;
            self.decreased_ns = Some(now_ns);
        } else {
            self.decrease(now_ns, 1.0 - MAX_DECREASE);
        }
    }

    /// The paper takes nothing back.
    fn on_spurious(&mut self, _now_ns: u64) {}

    fn window_bytes(&self) -> u64 {
        (self.cwnd * self.frame_bytes as f64) as u64
    }

    /// After slow start only a window below one frame is paced: a frame every `rtt / cwnd`.
    fn pacing_rate(&self) -> Option<u64> {
        let windows = match (self.is_starting, self.cwnd < 1.0) {
            (true, _) => STARTING_PACE,
            (false, true) => 1.0,
            (false, false) => return None,
        };
        let rate = windows * self.cwnd * self.frame_bytes as f64 * 1e9 / self.srtt_ns.max(1) as f64;
        (self.srtt_ns > 0).then_some((rate as u64).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LIMITS, acked, lost};
    use super::*;

    /// Swift with this window, past its beginning, on a path of 10 us.
    fn swift(cwnd: f64) -> Swift {
        let mut swift = Swift::new(&LIMITS);
        swift.cwnd = cwnd;
        swift.is_starting = false;
        swift
    }

    fn near(left: f64, right: f64) -> bool {
        (left - right).abs() < 1e-6
    }

    /// An acknowledgement with this delay.
    fn delayed(now_ns: u64, rtt_ns: u64) -> Acked {
        Acked { rtt_ns: Some(rtt_ns), ..acked(now_ns, now_ns - rtt_ns, 1) }
    }

    #[test]
    fn the_target_has_the_published_room_and_no_more() {
        let swift = swift(100.0);
        for (min_rtt_ns, target_ns) in
            [(2_000, 4_000), (8_000, 12_000), (17_000, 25_000), (1_000_000, 1_008_000)]
        {
            assert_eq!(swift.target_ns(min_rtt_ns), target_ns);
        }
        // 1 Gbit/s: four frames of 1000 bytes take 32 us.
        let slow = Swift { port_rate: Some(125_000_000), ..swift };
        assert_eq!(slow.target_ns(10_000), 42_000);
        let noisy = Swift { cwnd: 100.0, ..Swift::with_noise_ns(&LIMITS, 3_000) };
        assert_eq!(noisy.target_ns(8_000), 15_000);
    }

    #[test]
    fn flow_scaling_is_whole_at_a_tenth_of_a_frame_and_nothing_at_a_hundred() {
        let scaled = |cwnd| swift(cwnd).target_ns(17_000) - 25_000;
        assert_eq!((scaled(0.001), scaled(0.1)), (100_000, 100_000));
        assert_eq!((scaled(100.0), scaled(4000.0)), (0, 0));
        // alpha = 100 us / (1/sqrt(.1) - 1/sqrt(100)) = 32.655 us, beta = -3.265 us.
        assert_eq!(scaled(1.0), 29_389);
        assert_eq!(scaled(4.0), 13_062);
    }

    #[test]
    fn below_the_target_a_window_of_acks_adds_a_frame() {
        let mut swift = swift(200.0);
        for _ in 0..200 {
            swift.on_ack(&delayed(100_000, 12_000));
        }
        assert!((200.99..=201.0).contains(&swift.cwnd), "{}", swift.cwnd);
        swift.on_ack(&Acked { window_limited: false, ..delayed(100_000, 12_000) });
        assert!(swift.cwnd <= 201.0, "and only if it is used");
    }

    #[test]
    fn the_decrease_follows_the_excess_once_a_round_trip() {
        // Target 15 us. Delay 20 us: 1 - .8 * 5 / 20 = .8.
        let mut swift = swift(200.0);
        swift.on_ack(&delayed(100_000, 20_000));
        assert!(near(swift.cwnd, 160.0), "{}", swift.cwnd);
        swift.on_ack(&delayed(110_000, 20_000));
        assert!(near(swift.cwnd, 160.0), "the same round trip");
        // Delay 150 us: .28, but half at most.
        swift.on_ack(&delayed(260_000, 150_000));
        assert!(near(swift.cwnd, 80.0), "{}", swift.cwnd);
    }

    #[test]
    fn a_loss_halves_once_a_round_trip_and_nothing_is_taken_back() {
        let mut swift = swift(200.0);
        swift.on_loss(&lost(100_000, 1));
        swift.on_loss(&lost(105_000, 1));
        assert!(near(swift.cwnd, 100.0));
        swift.on_spurious(106_000);
        assert!(near(swift.cwnd, 100.0));
        swift.on_loss(&lost(110_000, 1));
        assert!(near(swift.cwnd, 50.0));
    }

    #[test]
    fn below_one_frame_it_paces_and_grows_by_a_frame_for_a_frame() {
        let mut swift = swift(0.5);
        assert_eq!(swift.pacing_rate(), None, "before there is a round-trip time");
        swift.srtt_ns = 10_000;
        // A frame of 1000 bytes every 20 us.
        assert_eq!((swift.window_bytes(), swift.pacing_rate()), (500, Some(50_000_000)));
        swift.on_ack(&Acked { window_limited: false, ..delayed(100_000, 12_000) });
        assert!(near(swift.cwnd, 1.5));
        assert_eq!(swift.pacing_rate(), None);
    }

    #[test]
    fn five_timeouts_in_a_row_leave_the_least_window() {
        let mut swift = swift(200.0);
        swift.delay_ns = 10_000;
        for number in 1..=4 {
            swift.on_rto(number * 100_000);
        }
        assert!(near(swift.cwnd, 12.5));
        swift.on_rto(500_000);
        assert!(near(swift.cwnd, MIN_FRAMES));
        swift.on_loss(&lost(1_000_000, 1));
        assert!(near(swift.cwnd, MIN_FRAMES), "never below");
    }

    #[test]
    fn it_begins_by_doubling_up_to_the_target() {
        let mut swift = Swift::new(&LIMITS);
        for _ in 0..10 {
            swift.on_ack(&delayed(100_000, 12_000));
        }
        assert!(near(swift.cwnd, 20.0));
        assert!(swift.pacing_rate().is_some());
        swift.on_ack(&delayed(110_000, 40_000));
        assert!(near(swift.cwnd, 10.0), "the last doubling is given back");
        swift.on_ack(&delayed(150_000, 40_000));
        assert!(near(swift.cwnd, 10.0), "this left before");
        swift.on_ack(&delayed(160_000, 12_000));
        assert!(near(swift.cwnd, 10.1), "one frame a round trip from then on");
        assert_eq!(swift.pacing_rate(), None);
    }
}
