//! Many cells and contenders, on several threads.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use super::cell::Cell;
use super::contender::Contender;
use super::outcome::Outcome;
use super::run::run;

/// What came of every cell with every contender, and how it was come by.
#[derive(Debug)]
pub struct Sweep {
    /// The cells.
    pub cells: Vec<Cell>,
    /// The contenders.
    pub contenders: Vec<Contender>,
    /// Runs of each pair; their seeds are 1 and on.
    pub seeds: u64,
    /// By cell, then by contender.
    outcomes: Vec<Vec<Outcome>>,
}

impl Sweep {
    /// Runs them. What comes out does not depend on `jobs`, the number of threads. `done` hears of every pair as it is
    /// done.
    pub fn run(
        cells: Vec<Cell>,
        contenders: Vec<Contender>,
        seeds: u64,
        jobs: usize,
        mut done: impl FnMut(&Cell, &Contender, &Outcome),
    ) -> Self {
        let pairs = cells.len() * contenders.len();
        let outcomes: Vec<Mutex<Outcome>> = (0..pairs).map(|_| Mutex::default()).collect();
        let next = AtomicUsize::new(0);
        let (sender, finished) = mpsc::channel();
        let pair = |index: usize| (&cells[index / contenders.len()], &contenders[index % contenders.len()]);
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                let (sender, next, outcomes) = (sender.clone(), &next, &outcomes);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(slot) = outcomes.get(index) else { return };
                        let (cell, contender) = pair(index);
                        let sum = sum(cell, contender, seeds);
                        if let Ok(mut slot) = slot.lock() {
                            *slot = sum;
                        }
                        if sender.send(index).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for index in finished {
                let (cell, contender) = pair(index);
                if let Ok(outcome) = outcomes[index].lock() {
                    done(cell, contender, &outcome);
                }
            }
        });
        let mut outcomes = outcomes.into_iter().map(|outcome| outcome.into_inner().unwrap_or_default());
        let outcomes = cells.iter().map(|_| outcomes.by_ref().take(contenders.len()).collect()).collect();
        Self { cells, contenders, seeds, outcomes }
    }

    /// Every cell with what came of it, by contender.
    pub fn rows(&self) -> impl Iterator<Item = (&Cell, &[Outcome])> {
        self.cells.iter().zip(self.outcomes.iter().map(Vec::as_slice))
    }

    /// What came of a cell and a contender, if both are there.
    pub fn outcome(&self, cell: &str, contender: &str) -> Option<&Outcome> {
        let cell = self.cells.iter().position(|known| known.name == cell)?;
        let contender = self.contenders.iter().position(|known| known.name == contender)?;
        self.outcomes.get(cell)?.get(contender)
    }
}

/// The runs of a pair. A panic is a fault of the session or of the grid; it goes on with what replays it told.
fn sum(cell: &Cell, contender: &Contender, seeds: u64) -> Outcome {
    let mut sum = Outcome::default();
    for seed in 1..=seeds {
        match catch_unwind(AssertUnwindSafe(|| run(cell, contender, seed, None))) {
            Ok(outcome) => sum.merge(&outcome),
            Err(panic) => {
                let (cell, contender) = (&cell.name, contender.name);
                eprintln!("./run sim cell {cell} --controller {contender} --from {seed} --seeds 1");
                resume_unwind(panic);
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{Faults, Loss, contender};

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let faults = Faults { loss: Loss::Ppm(10_000), ..Faults::default() };
        let cells = [1, 3].map(|fan_in| Cell { fan_in, faults, rate: 10_000_000_000, ..Cell::default() });
        let contenders: Vec<Contender> = ["efe", "swift-rack"].into_iter().filter_map(contender).collect();
        let hashes = |jobs| {
            let sweep = Sweep::run(cells.to_vec(), contenders.clone(), 2, jobs, |_, _, _| {});
            sweep.rows().flat_map(|(_, outcomes)| outcomes.iter().map(|one| one.hash)).collect::<Vec<_>>()
        };
        let alone = hashes(1);
        assert_eq!(alone.len(), 4);
        assert_eq!(alone, hashes(3));
    }
}
