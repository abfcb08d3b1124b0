//! A ring of bits, one for each frame of a window.

/// Bits whose number is a power of two, at least 64. Indices are taken modulo that number.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Box<[u64]>,
    mask: u32,
}

impl Bits {
    /// `count` bits, all clear.
    pub(crate) fn new(count: u32) -> Self {
        debug_assert!(count.is_power_of_two() && count >= 64);
        Self { words: vec![0; count as usize / 64].into_boxed_slice(), mask: count - 1 }
    }

    /// Whether the bit is set.
    pub(crate) fn get(&self, index: u32) -> bool {
        let index = index & self.mask;
        self.words[index as usize / 64] >> (index % 64) & 1 != 0
    }

    /// Sets the bit.
    pub(crate) fn set(&mut self, index: u32) {
        let index = index & self.mask;
        self.words[index as usize / 64] |= 1 << (index % 64);
    }

    /// Clears the bit.
    pub(crate) fn clear(&mut self, index: u32) {
        let index = index & self.mask;
        self.words[index as usize / 64] &= !(1 << (index % 64));
    }

    /// The 64 bits from `index` on; bit 0 of the result is the one at `index`.
    pub(crate) fn word(&self, index: u32) -> u64 {
        let index = index & self.mask;
        let (at, shift) = (index as usize / 64, index % 64);
        let low = self.words[at] >> shift;
        if shift == 0 {
            return low;
        }
        let next = if at + 1 == self.words.len() { 0 } else { at + 1 };
        low | self.words[next] << (64 - shift)
    }

    /// How far behind `start` the first set bit is, all around the ring.
    pub(crate) fn first_from(&self, start: u32) -> Option<u32> {
        (0..=self.mask).step_by(64).find_map(|offset| {
            let word = self.word(start.wrapping_add(offset));
            (word != 0).then(|| offset + word.trailing_zeros())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_around_the_ring() {
        let mut bits = Bits::new(128);
        bits.set(127);
        bits.set(128);
        bits.set(u32::MAX);
        assert!(bits.get(127) && bits.get(0) && !bits.get(1));
        assert_eq!(bits.word(126), 0b110);
        assert_eq!(bits.word(127), 0b11);
        bits.clear(127);
        assert_eq!(bits.word(u32::MAX), 0b10);
    }

    #[test]
    fn first_set_bit_is_found_from_any_start() {
        let mut bits = Bits::new(64);
        assert_eq!(bits.first_from(17), None);
        bits.set(5);
        for start in 0..64 {
            assert_eq!(bits.first_from(start), Some((5 + 64 - start) % 64));
        }
    }
}
