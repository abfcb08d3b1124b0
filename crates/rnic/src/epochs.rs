//! Epochs: numbers that differ from one life of a session to the next.

/// A small generator (`SplitMix64`); it makes epochs distinct, not secret.
#[derive(Debug)]
pub struct Epochs(u64);

impl Epochs {
    /// A generator that the caller's entropy starts.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next epoch, never 0.
    #[allow(clippy::should_implement_trait)] // It has no end.
    pub fn next(&mut self) -> u32 {
        loop {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            let epoch = (mixed >> 32) as u32;
            if epoch != 0 {
                return epoch;
            }
        }
    }
}
