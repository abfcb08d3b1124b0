//! Randomness, from a seed that the owner brings: the operating system's in a daemon, a run's own in the simulator.

use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};
use zeroize::Zeroizing;

/// A cryptographic generator. It is as secret as its seed.
#[derive(Debug)]
pub struct Entropy(StdRng);

impl Entropy {
    /// The generator of a seed, which no two lives of a node may have in common.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(StdRng::from_seed(seed))
    }

    /// 32 fresh bytes.
    pub fn bytes(&mut self) -> Zeroizing<[u8; 32]> {
        let mut bytes = Zeroizing::new([0; 32]);
        self.0.fill_bytes(&mut *bytes);
        bytes
    }

    /// A generator of its own for something that this one's owner begins.
    pub fn fork(&mut self) -> Self {
        Self::new(*self.bytes())
    }

    /// A fresh number for an epoch: never 0.
    pub fn epoch(&mut self) -> u32 {
        loop {
            match self.0.next_u32() {
                0 => {}
                epoch => return epoch,
            }
        }
    }
}
