//! A session on a real link: what a node tells of it, and whether the simulator tells the truth; and a remote
//! disk under the programs of others. They need root, no guest, and a minute: `./run test link`.
//!
//! One at a time, please (`--test-threads=1`): each measures.

mod export;
mod goodput;
mod operations;
mod paths;
mod security;
mod stat;
mod verify;

use std::fmt::Display;
use std::time::Instant;

/// A test's account of itself, on standard error.
struct Story(Instant);

impl Story {
    fn begin() -> Self {
        eprintln!();
        Self(Instant::now())
    }

    fn tell(&self, text: impl Display) {
        eprintln!("    {:6.1} s  {text}", self.0.elapsed().as_secs_f64());
    }
}
