//! A bound on how often something is done.

/// A bucket of tokens that fills at a steady rate; all in ns.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Time that one token takes to come.
    token: u64,
    /// Time that a full bucket took.
    full: u64,
    /// When it was, or would have been, empty.
    empty: u64,
}

impl Bucket {
    /// `per_second` tokens, and at most `burst` at once; full at the start.
    pub(crate) fn new(per_second: u64, burst: u64) -> Self {
        let token = 1_000_000_000 / per_second;
        Self { token, full: token * burst, empty: 0 }
    }

    /// Takes a token, if there is one.
    pub(crate) fn take(&mut self, now_ns: u64) -> bool {
        // Time starts anywhere, 0 included: the bucket is kept shifted by what it holds when it is full.
        let now_ns = now_ns.saturating_add(self.full);
        let empty = self.empty.max(now_ns.saturating_sub(self.full));
        if now_ns.saturating_sub(empty) < self.token {
            return false;
        }
        self.empty = empty + self.token;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        for start in [0, 1 << 60] {
            let mut bucket = Bucket::new(100, 8);
            assert_eq!((0..20).filter(|_| bucket.take(start)).count(), 8);
            let taken = (1..=1_000_000).filter(|step| bucket.take(start + step * 1000)).count();
            assert_eq!(taken, 100);
            assert_eq!((0..20).filter(|_| bucket.take(start + 3_000_000_000)).count(), 8);
        }
    }
}
