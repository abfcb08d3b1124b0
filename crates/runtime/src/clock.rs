//! The daemon's clock: ns since its start, never backwards.

use std::time::Instant;

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Starts at 1 ns, so that 0 can stand for "never".
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    /// ns since the start.
    pub fn now_ns(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64 + 1
    }
}
