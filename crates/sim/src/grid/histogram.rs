//! Counts of values in buckets whose width grows with the value: 64 to each doubling, so a percentile is right to
//! 1.6 %.

/// Buckets to each doubling, as a power of two.
const FINE_BITS: u32 = 6;
const FINE: u64 = 1 << FINE_BITS;
/// Values from 2^48 on (three days, in ns) share the last bucket.
const BUCKETS: usize = (48 - FINE_BITS as usize + 1) * FINE as usize;

/// A histogram of times in ns; each value counts once, or as long as it lasted.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    total: u64,
    most: u64,
}

fn bucket(value: u64) -> usize {
    if value < FINE {
        return value as usize;
    }
    let shift = value.ilog2() - FINE_BITS;
    let at = u64::from(shift) * FINE + (value >> shift);
    (at as usize).min(BUCKETS - 1)
}

/// The first value that is not in the bucket.
fn end(bucket: usize) -> u64 {
    let bucket = bucket as u64 + 1;
    if bucket <= FINE {
        return bucket;
    }
    let shift = bucket / FINE - 1;
    (FINE + bucket % FINE) << shift
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], total: 0, most: 0 }
    }
}

impl Histogram {
    /// Counts a value `weight` times.
    pub(crate) fn add(&mut self, value: u64, weight: u64) {
        self.buckets[bucket(value)] += weight;
        self.total += weight;
        if weight > 0 {
            self.most = self.most.max(value);
        }
    }

    /// Counts every value from `low` up to `high` once: something that went down, or up, one a ns.
    pub(crate) fn add_span(&mut self, low: u64, high: u64) {
        let mut at = low;
        while at < high {
            let bucket = bucket(at);
            let next = if bucket == BUCKETS - 1 { high } else { end(bucket).min(high) };
            self.buckets[bucket] += next - at;
            at = next;
        }
        if high > low {
            self.total += high - low;
            self.most = self.most.max(high);
        }
    }

    /// Adds all that another one has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += other;
        }
        self.total += other.total;
        self.most = self.most.max(other.most);
    }

    /// What `share` of the values do not exceed; 0 without any.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
    pub(crate) fn percentile(&self, share: f64) -> u64 {
        let wanted = ((self.total as f64 * share).ceil() as u64).max(1);
        let mut sum = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            sum += count;
            if sum >= wanted {
                return (end(index) - 1).min(self.most);
            }
        }
        self.most
    }

    /// The largest value.
    #[cfg(test)]
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    /// How much has been counted.
    #[cfg(test)]
    pub(crate) fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_in_the_bucket_that_ends_behind_it() {
        for value in (0..5000).chain([1 << 20, (1 << 30) - 1, (1 << 40) + 12345]) {
            let at = bucket(value);
            assert!(value < end(at), "{value}");
            assert!(at == 0 || value >= end(at - 1), "{value}");
            assert!(end(at) - value <= value / 64 + 1, "{value}");
        }
    }

    #[test]
    fn percentiles_are_of_counts_or_of_time() {
        let mut counts = Histogram::default();
        (1..=1000).for_each(|value| counts.add(value, 1));
        assert!((500..=508).contains(&counts.percentile(0.5)), "{}", counts.percentile(0.5));
        assert!((990..=1000).contains(&counts.percentile(0.99)));
        assert_eq!((counts.percentile(1.0), counts.total()), (1000, 1000));
        let mut time = Histogram::default();
        time.add(0, 900);
        time.add_span(0, 100);
        assert_eq!((time.percentile(0.9), time.most(), time.total()), (0, 100, 1000));
        assert!((88..=91).contains(&time.percentile(0.99)), "{}", time.percentile(0.99));
    }
}
