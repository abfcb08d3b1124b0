//! The fabric, end to end: boxes, hosts, and the commands of an operator, in the namespaces of the lab and without a guest. It needs
//! root and a minute: `./run test fabric`.

mod discovery;
mod moves;
mod stand;

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
