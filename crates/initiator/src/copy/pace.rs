//! How much is under way at once: chunks, and bytes of each. Both grow as long as that makes the copy quicker.
//!
//! One step at a time: a measurement at the present setting, one at the next, and the better of the two is kept. What did not pay is
//! tried again after a while, for disks and links change.

/// A measurement takes so long at least,
const SPAN_NS: u64 = 40_000_000;
/// and so many chunks, for each that is under way.
const ROUNDS: u64 = 4;
/// What counts as quicker, in parts of 1000.
const WORTH: u64 = 1030;
/// Measurements after which what did not pay is tried again.
const AGAIN: u32 = 50;

/// What may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Chunks.
    pub(super) outstanding: usize,
    /// Bytes of each, a multiple of all blocks.
    pub(super) chunk_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knob {
    Outstanding,
    Chunk,
}

/// Finds the setting of a copy.
#[derive(Debug)]
pub(super) struct Pace {
    best: Setting,
    best_rate: u64,
    trial: Option<(Knob, Setting)>,
    /// Knobs whose next step did not pay, and how many measurements ago.
    vain: [Option<u32>; 2],
    most: Setting,
    /// What is said, and not found.
    fixed: [bool; 2],
    since_ns: u64,
    bytes: u64,
    chunks: u64,
}

impl Pace {
    /// Between what there is at least and at most; `fixed` settings stay as they are.
    pub(super) fn new(start: Setting, most: Setting, fixed: [bool; 2], now_ns: u64) -> Self {
        let start = Setting {
            outstanding: start.outstanding.clamp(1, most.outstanding.max(1)),
            chunk_bytes: start.chunk_bytes.min(most.chunk_bytes),
        };
        Self {
            best: start,
            best_rate: 0,
            trial: None,
            vain: [None; 2],
            most,
            fixed,
            since_ns: now_ns,
            bytes: 0,
            chunks: 0,
        }
    }

    /// The setting now.
    pub(super) fn setting(&self) -> Setting {
        self.trial.map_or(self.best, |(_, setting)| setting)
    }

    /// A chunk is done.
    pub(super) fn done(&mut self, now_ns: u64, bytes: u64) {
        self.bytes += bytes;
        self.chunks += 1;
        let span_ns = now_ns.saturating_sub(self.since_ns);
        if span_ns < SPAN_NS || self.chunks < ROUNDS * self.setting().outstanding as u64 {
            return;
        }
        let rate = (u128::from(self.bytes) * 1_000_000_000 / u128::from(span_ns.max(1))) as u64;
        (self.since_ns, self.bytes, self.chunks) = (now_ns, 0, 0);
        self.measured(rate);
    }

    /// What was under way was held up by something else: the measurement counts for nothing.
    pub(super) fn disturbed(&mut self, now_ns: u64) {
        (self.since_ns, self.bytes, self.chunks) = (now_ns, 0, 0);
    }

    fn measured(&mut self, rate: u64) {
        match self.trial.take() {
            Some((knob, setting))
                if u128::from(rate) * 1000 > u128::from(self.best_rate) * u128::from(WORTH) =>
            {
                (self.best, self.best_rate) = (setting, rate);
                self.vain[knob as usize] = None;
            }
            Some((knob, _)) => self.vain[knob as usize] = Some(0),
            None => self.best_rate = rate,
        }
        for vain in &mut self.vain {
            *vain = vain.map(|count| count + 1).filter(|&count| count < AGAIN);
        }
        self.trial =
            [Knob::Outstanding, Knob::Chunk].into_iter().find_map(|knob| Some((knob, self.next(knob)?)));
    }

    /// The next larger setting of a knob that may pay.
    fn next(&self, knob: Knob) -> Option<Setting> {
        if self.fixed[knob as usize] || self.vain[knob as usize].is_some() {
            return None;
        }
        let mut next = self.best;
        match knob {
            Knob::Outstanding => next.outstanding = (2 * next.outstanding).min(self.most.outstanding),
            Knob::Chunk => next.chunk_bytes = (2 * next.chunk_bytes).min(self.most.chunk_bytes),
        }
        (next != self.best).then_some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Setting = Setting { outstanding: 2, chunk_bytes: 64 << 10 };
    const MOST: Setting = Setting { outstanding: 32, chunk_bytes: 1 << 20 };

    /// A path on which `outstanding` chunks take `latency_ns` and no more than `bytes_per_s` pass.
    fn settle(mut pace: Pace, latency_ns: u64, bytes_per_s: u64) -> Setting {
        let mut now_ns = 0;
        for _ in 0..20_000 {
            let Setting { outstanding, chunk_bytes } = pace.setting();
            let passing_ns = chunk_bytes * 1_000_000_000 / bytes_per_s;
            now_ns += (latency_ns / outstanding as u64).max(passing_ns).max(1);
            pace.done(now_ns, chunk_bytes);
        }
        pace.best
    }

    #[test]
    fn a_long_way_is_filled_and_a_short_one_is_not_crowded() {
        let pace = || Pace::new(START, MOST, [false; 2], 0);
        assert_eq!(settle(pace(), 50_000_000, 10_000_000_000), MOST);
        let short = settle(pace(), 100_000, 250_000_000);
        assert!(short.outstanding <= 4, "{short:?}");
    }

    #[test]
    fn what_is_said_is_kept_to() {
        let fixed = settle(Pace::new(START, MOST, [true; 2], 0), 50_000_000, 10_000_000_000);
        assert_eq!(fixed, START);
    }
}
