//! The simulator's own random numbers (xoshiro256++, started by `SplitMix64`): the same seed gives the same run on any
//! machine and with any version of any library.

/// A source of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    seed: u64,
    state: [u64; 4],
}

/// Mixes all bits of `value` into all bits of the result; a bijection.
pub(crate) const fn mix(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

impl Random {
    /// The source of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut word = seed;
        for part in &mut state {
            *part = mix(word);
            word = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
        }
        Self { seed, state }
    }

    /// A source of its own for one use, so that what one part of the simulator draws changes nothing for the others.
    pub(crate) fn fork(&self, label: &str, index: u64) -> Self {
        let named = label.bytes().fold(mix(self.seed), |mixed, byte| mix(mixed ^ u64::from(byte)));
        Self::new(mix(named ^ mix(index)))
    }

    /// 64 random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        let [a, b, c, d] = &mut self.state;
        let result = a.wrapping_add(*d).rotate_left(23).wrapping_add(*a);
        let shifted = *b << 17;
        *c ^= *a;
        *d ^= *b;
        *b ^= *c;
        *a ^= *d;
        *c ^= shifted;
        *d = d.rotate_left(45);
        result
    }

    /// A number below `end`; 0 if `end` is 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        debug_assert!(low <= high);
        low + self.below((high - low).saturating_add(1))
    }

    /// A number from `low` to `high`, each order of magnitude as likely as any other.
    pub(crate) fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        let octaves = u64::from((high / low.max(1)).max(1).ilog2());
        let octave = self.range(0, octaves);
        let start = low << octave;
        self.range(start.min(high), (start << 1).min(high))
    }

    /// True in `ppm` of a million cases.
    pub(crate) fn chance(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.below(1_000_000) < u64::from(ppm)
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn percent(&mut self, percent: u32) -> bool {
        self.chance(percent * 10_000)
    }

    /// One of `choices`, of which there is at least one.
    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Puts `items` into a random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            items.swap(index, self.below(index as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_depend_on_seed_label_and_index_alone() {
        let mut first = Random::new(7).fork("network", 3);
        let mut again = Random::new(7).fork("network", 3);
        let mut other = Random::new(7).fork("network", 4);
        let numbers: Vec<u64> = (0..8).map(|_| first.bits()).collect();
        assert_eq!(numbers, (0..8).map(|_| again.bits()).collect::<Vec<_>>());
        assert_ne!(numbers, (0..8).map(|_| other.bits()).collect::<Vec<_>>());
    }

    #[test]
    fn ranges_include_their_ends_and_nothing_beyond() {
        let mut random = Random::new(1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.range(10, 14) as usize - 10] = true;
            assert!((100..=100_000).contains(&random.magnitude(100, 100_000)));
        }
        assert_eq!(seen, [true; 5]);
        assert_eq!(random.magnitude(5, 5), 5);
    }

    #[test]
    fn the_sequence_is_pinned_so_that_old_seeds_replay() {
        let mut random = Random::new(0);
        assert_eq!([random.bits(), random.bits()], [0x5317_5d61_490b_23df, 0x61da_6f3d_c380_d507]);
    }
}
