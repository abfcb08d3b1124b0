//! One line on the terminal that shows how far a run is. Without a terminal nothing is shown.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const STEP: Duration = Duration::from_millis(100);
const WIDTH: usize = 24;

/// A line that moves until it is dropped.
pub(crate) struct Progress {
    done: Arc<AtomicBool>,
    drawing: Option<JoinHandle<()>>,
}

impl Progress {
    /// Shows `text` with a bar that is full after `expected`.
    pub(crate) fn new(text: &str, expected: Duration) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let drawing = stderr().is_terminal().then(|| {
            let (done, text) = (done.clone(), text.to_owned());
            thread::spawn(move || {
                let start = Instant::now();
                while !done.load(Ordering::Relaxed) {
                    draw(&text, start.elapsed(), expected);
                    thread::park_timeout(STEP);
                }
                let _ = write!(stderr(), "\r\x1b[K");
            })
        });
        Self { done, drawing }
    }
}

fn draw(text: &str, elapsed: Duration, expected: Duration) {
    let share = elapsed.as_millis() * WIDTH as u128 / expected.as_millis().max(1);
    let full = WIDTH.min(share as usize);
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDTH - full));
    let _ = write!(stderr(), "\r\x1b[K  [{bar}] {:4.1} s  {text}", elapsed.as_secs_f64());
    let _ = stderr().flush();
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(drawing) = self.drawing.take() {
            drawing.thread().unpark();
            let _ = drawing.join();
        }
    }
}
