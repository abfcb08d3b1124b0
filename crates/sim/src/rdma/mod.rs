//! Two RNICs over a session, on a cable that loses, repeats and reorders frames, and now and then is cut for good.
//!
//! The engines and the sessions are the real ones. Each side has work under way on several QPs all the time: Writes,
//! Reads, Sends, atomics and datagrams. The checkers are here, outside of the engine: every operation that completes was
//! done byte for byte, nothing else was touched, the last byte of a Write is never there before the others, messages
//! come once and in order, and every work request completes once, in bounded time even when the peer dies.

mod node;
mod traffic;
mod world;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What everything random comes from.
    pub seed: u64,
    /// Frames lost, in a million.
    pub loss_ppm: u32,
    /// Times that the session dies and another takes its place.
    pub deaths: u32,
    /// Operations of each side in each life.
    pub operations: u64,
}

impl Plan {
    /// The plan of a seed: 1 % loss most often, none or 5 % now and then.
    pub fn of(seed: u64) -> Self {
        let loss_ppm = match seed % 8 {
            0 => 0,
            1 => 50_000,
            _ => 10_000,
        };
        Self { seed, loss_ppm, deaths: (seed % 3) as u32, operations: 300 }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What was against the rules, if anything.
    pub violation: Option<String>,
    /// Operations that completed well, and those that were flushed by a death.
    pub completed: u64,
    /// Those that a death ended.
    pub flushed: u64,
    /// Bytes that were checked.
    pub checked_bytes: u64,
    /// Frames that were lost.
    pub lost: u64,
    /// Times that a receiver was not ready.
    pub not_ready: u64,
    /// Virtual time, ns.
    pub virtual_ns: u64,
}

/// Runs a plan.
pub fn run(plan: &Plan) -> Report {
    world::World::new(plan).run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_completes_was_done_under_loss_reordering_and_deaths() {
        let mut sum = Report::default();
        for seed in 1..=12 {
            let report = run(&Plan { operations: 120, ..Plan::of(seed) });
            assert_eq!(report.violation, None, "seed {seed}");
            sum.completed += report.completed;
            sum.flushed += report.flushed;
            sum.lost += report.lost;
            sum.not_ready += report.not_ready;
        }
        assert!(sum.completed > 3000 && sum.flushed > 20 && sum.lost > 100 && sum.not_ready > 10, "{sum:?}");
    }

    #[test]
    fn a_seed_says_all() {
        let plan = Plan { operations: 60, ..Plan::of(5) };
        let (one, other) = (run(&plan), run(&plan));
        assert_eq!(one.virtual_ns, other.virtual_ns);
        assert_eq!((one.completed, one.lost), (other.completed, other.lost));
    }
}
