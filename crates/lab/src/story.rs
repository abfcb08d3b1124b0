//! What a test is doing, told as it goes.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

/// A test's account of itself, on standard error.
pub struct Story(Instant);

impl Story {
    /// The clock starts.
    pub fn begin() -> Self {
        eprintln!();
        Self(Instant::now())
    }

    /// Says what is going on, and when.
    pub fn tell(&self, text: impl Display) {
        eprintln!("    {:6.1} s  {text}", self.0.elapsed().as_secs_f64());
    }
}

/// Waits until `done` holds, looking ten times a second.
pub fn wait_until(what: &str, timeout: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < timeout, "{what} did not happen within {timeout:?}");
        thread::sleep(Duration::from_millis(100));
    }
    start.elapsed()
}
