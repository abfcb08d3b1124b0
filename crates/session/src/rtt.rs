//! Round-trip time: smoothed (RFC 6298), and the least of the last seconds.

/// The least RTT is of the current and the last of such spans.
const SPAN_NS: u64 = 5_000_000_000;
/// Assumed before the first sample.
const INITIAL_NS: u64 = 1_000_000;

/// The estimator.
#[derive(Debug)]
pub(crate) struct Rtt {
    smoothed_ns: u64,
    variation_ns: u64,
    latest_ns: u64,
    has_sample: bool,
    least_ns: [u64; 2],
    span_end_ns: u64,
}

impl Rtt {
    pub(crate) fn new() -> Self {
        Self {
            smoothed_ns: INITIAL_NS,
            variation_ns: INITIAL_NS / 2,
            latest_ns: INITIAL_NS,
            has_sample: false,
            least_ns: [u64::MAX; 2],
            span_end_ns: 0,
        }
    }

    /// The next sample is the first: the path may be another one.
    pub(crate) fn forget(&mut self) {
        self.has_sample = false;
        self.least_ns = [u64::MAX; 2];
    }

    /// Takes a sample.
    pub(crate) fn sample(&mut self, now_ns: u64, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        self.latest_ns = rtt_ns;
        if self.has_sample {
            let deviation = self.smoothed_ns.abs_diff(rtt_ns);
            self.variation_ns = (3 * self.variation_ns + deviation) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + rtt_ns) / 8;
        } else {
            self.has_sample = true;
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
        }
        if now_ns >= self.span_end_ns {
            let stale = now_ns >= self.span_end_ns.saturating_add(SPAN_NS);
            self.least_ns = [u64::MAX, if stale { u64::MAX } else { self.least_ns[0] }];
            self.span_end_ns = now_ns + SPAN_NS;
        }
        self.least_ns[0] = self.least_ns[0].min(rtt_ns);
    }

    /// SRTT.
    pub(crate) fn smoothed_ns(&self) -> u64 {
        self.smoothed_ns
    }

    /// RTTVAR.
    pub(crate) fn variation_ns(&self) -> u64 {
        self.variation_ns
    }

    /// The last sample.
    pub(crate) fn latest_ns(&self) -> u64 {
        self.latest_ns
    }

    /// The least of the last 5 to 10 s, SRTT before the first sample.
    pub(crate) fn min_ns(&self) -> u64 {
        let least = self.least_ns[0].min(self.least_ns[1]);
        if least == u64::MAX { self.smoothed_ns } else { least }
    }
}

/// How much longer than its least of the last seconds the way back takes. It is measured between two clocks, so only
/// differences count; by what these drift in some seconds it is wrong.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "the unit ends a name")]
pub(crate) struct WayBack {
    first_ns: Option<u32>,
    least_ns: [i64; 2],
    span_end_ns: u64,
}

impl WayBack {
    pub(crate) fn new() -> Self {
        Self { first_ns: None, least_ns: [i64::MAX; 2], span_end_ns: 0 }
    }

    /// Takes the time from a frame's departure by the peer's clock to its arrival by ours; its excess over the least.
    pub(crate) fn sample(&mut self, now_ns: u64, one_way_ns: u32) -> u64 {
        let first_ns = *self.first_ns.get_or_insert(one_way_ns);
        let one_way_ns = i64::from(one_way_ns.wrapping_sub(first_ns).cast_signed());
        if now_ns >= self.span_end_ns {
            self.least_ns = [i64::MAX, self.least_ns[0]];
            self.span_end_ns = now_ns + SPAN_NS;
        }
        self.least_ns[0] = self.least_ns[0].min(one_way_ns);
        one_way_ns.abs_diff(self.least_ns[0].min(self.least_ns[1]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smoothing_follows_rfc_6298() {
        let mut rtt = Rtt::new();
        rtt.sample(0, 8000);
        assert_eq!((rtt.smoothed_ns(), rtt.variation_ns()), (8000, 4000));
        rtt.sample(1, 16000);
        assert_eq!((rtt.smoothed_ns(), rtt.variation_ns()), (9000, 5000));
        assert_eq!(rtt.latest_ns(), 16000);
    }

    #[test]
    fn the_way_back_is_told_from_its_least_whatever_the_clocks_show() {
        for offset in [0_u32, 7, u32::MAX - 1500] {
            let mut back = WayBack::new();
            assert_eq!(back.sample(0, offset.wrapping_add(1000)), 0);
            assert_eq!(back.sample(1, offset.wrapping_add(3000)), 2000);
            assert_eq!(back.sample(2, offset.wrapping_add(900)), 0);
            assert_eq!(back.sample(3, offset.wrapping_add(1000)), 100);
            assert_eq!(back.sample(SPAN_NS, offset.wrapping_add(2000)), 1100);
            assert_eq!(back.sample(2 * SPAN_NS, offset.wrapping_add(2000)), 0);
        }
    }

    #[test]
    fn the_least_is_forgotten_after_two_spans() {
        let mut rtt = Rtt::new();
        rtt.sample(0, 10);
        rtt.sample(SPAN_NS, 30);
        assert_eq!(rtt.min_ns(), 10);
        rtt.sample(2 * SPAN_NS, 20);
        assert_eq!(rtt.min_ns(), 20);
        rtt.sample(9 * SPAN_NS, 50);
        assert_eq!(rtt.min_ns(), 50);
    }
}
