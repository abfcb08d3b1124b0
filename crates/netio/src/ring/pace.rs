//! Which way of writing into shared memory is the quicker one at present.
//!
//! Where both sides share a cache, plain stores win: the reader finds the bytes in it. Where they do not (another core complex,
//! another socket), each line of a ring that goes round is in the reader's cache when it is written anew, and has to be fetched back first: plain stores
//! then are several times slower than streaming ones, which go to memory and only tell the other cache to forget. A scheduler
//! may move either side at any time, so both ways are tried again and again, and timed.

/// A way of writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through the cache.
    Plain,
    /// Past the cache.
    Streaming,
}

/// Ticks of the processor's clock; without one, 0, and all ways are alike.
#[inline]
pub(super) fn ticks() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: it only reads a counter that every x86-64 has.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    0
}

/// One of so many frames goes the way that was slower last, to see whether it still is.
const TRIAL: u32 = 64;
/// The weight of a new sample is one to this.
const SMOOTH: u64 = 8;
/// A sample counts for at most this many times what was known: who was interrupted learns nothing.
const OUTLIER: u64 = 4;

/// Which way was the quicker one of late.
#[derive(Debug)]
pub(super) struct Pace {
    /// Ticks that 64 KiB take, smoothed, by way; 0: not known.
    cost: [u64; 2],
    until_trial: u32,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self { cost: [0; 2], until_trial: TRIAL }
    }

    /// The way for the next frame.
    #[inline]
    pub(super) fn way(&mut self) -> Way {
        let [plain, streaming] = self.cost;
        let (best, other) =
            if streaming < plain { (Way::Streaming, Way::Plain) } else { (Way::Plain, Way::Streaming) };
        if self.until_trial == 0 {
            self.until_trial = TRIAL;
            return other;
        }
        self.until_trial -= 1;
        best
    }

    /// `bytes` (not 0) went this way in so many ticks.
    #[inline]
    pub(super) fn learn(&mut self, way: Way, bytes: usize, ticks: u64) {
        let sample = (ticks.min(u64::from(u32::MAX)) << 16) / bytes as u64;
        let cost = &mut self.cost[way as usize];
        *cost = match *cost {
            0 => sample,
            known => known - known / SMOOTH + sample.min(known.saturating_mul(OUTLIER)) / SMOOTH,
        }
        .max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways that `frames` frames go if these are their ticks.
    fn streaming_of(pace: &mut Pace, frames: u32, plain_ticks: u64, streaming_ticks: u64) -> u32 {
        let mut streaming = 0;
        for _ in 0..frames {
            let way = pace.way();
            streaming += u32::from(way == Way::Streaming);
            pace.learn(way, 8192, if way == Way::Plain { plain_ticks } else { streaming_ticks });
        }
        streaming
    }

    #[test]
    fn the_quicker_way_is_found_and_found_again_when_it_changes() {
        let mut pace = Pace::new();
        assert!(streaming_of(&mut pace, 10_000, 3000, 9000) < 10_000 / 50, "near: plain");
        streaming_of(&mut pace, 4000, 40_000, 9000);
        assert!(streaming_of(&mut pace, 10_000, 40_000, 9000) > 10_000 - 10_000 / 50, "far: streaming");
        streaming_of(&mut pace, 4000, 3000, 9000);
        assert!(streaming_of(&mut pace, 10_000, 3000, 9000) < 10_000 / 50, "near again");
    }

    #[test]
    fn an_interruption_changes_little() {
        let mut pace = Pace::new();
        streaming_of(&mut pace, 1000, 3000, 9000);
        pace.learn(Way::Plain, 8192, 50_000_000);
        assert!(streaming_of(&mut pace, 100, 3000, 9000) < 5);
        pace.learn(Way::Plain, 1, u64::MAX);
        pace.learn(Way::Plain, 65_536, 0);
        streaming_of(&mut pace, 1000, 3000, 9000);
    }
}
