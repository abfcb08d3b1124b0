//! `HyStart++` (RFC 9406): leaves the first slow start when delay grows, by way of a slower one that can be taken back.
//!
//! The thresholds are the RFC's, in milliseconds. They are of the Internet: on a path of microseconds no queue reaches
//! them, and slow start ends with a loss. Scaling them down would end it at the first jitter instead.

use etherslot_session::Acked;

const MIN_RTT_THRESH_NS: u64 = 4_000_000;
const MAX_RTT_THRESH_NS: u64 = 16_000_000;
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: f64 = 4.0;
const CSS_ROUNDS: u32 = 5;

/// How slow start goes on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Growth {
    /// By what is acknowledged, divided by this.
    Divided(f64),
    /// Slow start is over.
    Over,
}

/// The state of a first slow start.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    /// Frames that left since then end the round.
    round_ns: u64,
    last_round_min_ns: Option<u64>,
    round_min_ns: Option<u64>,
    samples: u32,
    /// Conservative slow start: the delay it began with and the rounds it has had.
    conservative: Option<(u64, u32)>,
}

impl HyStart {
    pub(super) const fn new() -> Self {
        Self { round_ns: 0, last_round_min_ns: None, round_min_ns: None, samples: 0, conservative: None }
    }

    /// Takes an acknowledgement (section 4.2).
    pub(super) fn on_ack(&mut self, acked: &Acked) -> Growth {
        if acked.tx_ns.is_some_and(|tx_ns| tx_ns >= self.round_ns) {
            self.round_ns = acked.now_ns;
            self.last_round_min_ns = self.round_min_ns.take();
            self.samples = 0;
            if let Some((_, rounds)) = &mut self.conservative {
                *rounds += 1;
                if *rounds >= CSS_ROUNDS {
                    return Growth::Over;
                }
            }
        }
        if let Some(rtt_ns) = acked.rtt_ns {
            self.round_min_ns = Some(self.round_min_ns.map_or(rtt_ns, |min_ns| min_ns.min(rtt_ns)));
            self.samples += 1;
        }
        if let (Some(min_ns), N_RTT_SAMPLE..) = (self.round_min_ns, self.samples) {
            self.judge(min_ns);
        }
        Growth::Divided(if self.conservative.is_some() { CSS_GROWTH_DIVISOR } else { 1.0 })
    }

    fn judge(&mut self, min_ns: u64) {
        match (self.conservative, self.last_round_min_ns) {
            (Some((baseline_ns, _)), _) if min_ns < baseline_ns => self.conservative = None,
            (None, Some(last_ns)) => {
                let threshold_ns = (last_ns / MIN_RTT_DIVISOR).clamp(MIN_RTT_THRESH_NS, MAX_RTT_THRESH_NS);
                if min_ns >= last_ns + threshold_ns {
                    self.conservative = Some((min_ns, 0));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::acked;
    use super::*;

    const MS: u64 = 1_000_000;

    /// A round of ten acknowledgements with this delay, begun then.
    fn round(hystart: &mut HyStart, start_ns: u64, rtt_ns: u64) -> Growth {
        let mut growth = Growth::Over;
        for frame in 0..10 {
            let tx_ns = start_ns + frame;
            growth = hystart.on_ack(&acked(tx_ns + rtt_ns, tx_ns, 1));
            if growth == Growth::Over {
                break;
            }
        }
        growth
    }

    #[test]
    fn a_round_trip_longer_by_an_eighth_slows_it_down_and_five_rounds_end_it() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 0, 80 * MS), Growth::Divided(1.0));
        assert_eq!(round(&mut hystart, 100 * MS, 89 * MS), Growth::Divided(1.0), "below 10 ms");
        assert_eq!(round(&mut hystart, 200 * MS, 101 * MS), Growth::Divided(4.0));
        for number in 3..7 {
            assert_eq!(round(&mut hystart, number * 200 * MS, 101 * MS), Growth::Divided(4.0));
        }
        assert_eq!(round(&mut hystart, 1500 * MS, 101 * MS), Growth::Over);
    }

    #[test]
    fn a_delay_that_falls_again_resumes_slow_start() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 80 * MS);
        assert_eq!(round(&mut hystart, 100 * MS, 95 * MS), Growth::Divided(4.0));
        assert_eq!(round(&mut hystart, 200 * MS, 82 * MS), Growth::Divided(1.0));
    }

    #[test]
    fn less_than_four_milliseconds_are_no_sign() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 10_000);
        assert_eq!(round(&mut hystart, MS, 3 * MS), Growth::Divided(1.0));
    }
}
