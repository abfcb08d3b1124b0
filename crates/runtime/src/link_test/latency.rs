//! Times in a histogram of fixed size: exact to 1/32, from 1 ns on.

/// Buckets between a power of two and the next.
const STEPS: usize = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts of times.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
    most_ns: u64,
}

/// Below `2 * STEPS` a bucket is 1 ns wide; above, `STEPS` of them share each power of two.
fn bucket(ns: u64) -> usize {
    let power = ns.max(1).ilog2().saturating_sub(STEP_BITS);
    (power as usize) * STEPS + (ns >> power) as usize
}

/// The largest time of a bucket.
fn upper_ns(bucket: usize) -> u64 {
    let power = (bucket / STEPS).saturating_sub(1);
    let step = (bucket - power * STEPS) as u64;
    step << power | ((1 << power) - 1)
}

impl Histogram {
    pub(super) fn new() -> Self {
        Self { counts: vec![0; bucket(u64::MAX) + 1].into(), total: 0, most_ns: 0 }
    }

    pub(super) fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.total += 1;
        self.most_ns = self.most_ns.max(ns);
    }

    pub(super) fn total(&self) -> u64 {
        self.total
    }

    pub(super) fn most_ns(&self) -> u64 {
        self.most_ns
    }

    /// The time that `per_mille` thousandths of all are not above; 0 if there is none.
    pub(super) fn quantile_ns(&self, per_mille: u64) -> u64 {
        let rank = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_ns(bucket).min(self.most_ns);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_is_in_a_bucket_whose_end_is_at_most_a_32nd_above(ns: u64) {
            let upper = upper_ns(bucket(ns));
            prop_assert!(upper >= ns && upper - ns <= ns / STEPS as u64);
        }

        #[test]
        fn quantiles_are_those_of_the_sorted_times(mut times in prop::collection::vec(1_u64..1 << 40, 1..500)) {
            let mut histogram = Histogram::new();
            for &time in &times {
                histogram.add(time);
            }
            times.sort_unstable();
            for per_mille in [1, 500, 990, 999, 1000] {
                let exact = times[(times.len() * per_mille).div_ceil(1000) - 1];
                let told = histogram.quantile_ns(per_mille as u64);
                prop_assert!(told >= exact && told - exact <= exact / STEPS as u64);
            }
        }
    }

    #[test]
    fn an_empty_histogram_has_no_time() {
        assert_eq!((Histogram::new().quantile_ns(500), Histogram::new().total()), (0, 0));
    }

    #[test]
    fn the_ends_of_the_range_have_buckets() {
        let mut histogram = Histogram::new();
        histogram.add(0);
        histogram.add(u64::MAX);
        assert_eq!((histogram.quantile_ns(500), histogram.quantile_ns(1000)), (0, u64::MAX));
    }
}
