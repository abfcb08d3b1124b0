//! Whether polling pays: how long to look for work before sleeping.
//!
//! A wake-up costs several microseconds at both ends, so where work comes in quick succession it is better to look for it. But
//! polling takes the processor from whoever it waits for if there is none to spare, and that is worse than any wake-up. So
//! one polls as long as work has mostly come soon, and as long as nobody else ran between two rounds in which nothing was done.

/// Work that comes within this long is worth looking for.
const WINDOW_NS: u64 = 50_000;
/// A round in which nothing is done takes far less than this, unless somebody else ran in between.
const ROUND_NS: u64 = 25_000;
/// The score, of at most twice as much, from which on polling is believed to pay.
const BELIEF: u32 = 8;
/// How long to keep from polling after somebody else ran: at first, and at most.
const CROWDED_NS: (u64, u64) = (2_000_000, 1_000_000_000);

/// What has been seen of the work and the processor.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// The end of the last round in which something was done, and of the last round at all.
    progress_ns: u64,
    round_ns: u64,
    /// Rounds without progress since then.
    is_waiting: bool,
    /// Whether the last round was looked forward to without sleeping.
    polled: bool,
    score: u32,
    crowded_until_ns: u64,
    crowded_ns: u64,
}

impl Polling {
    /// Takes the outcome of a round that has ended; whether to go on without sleeping.
    pub(crate) fn goes_on(&mut self, now_ns: u64, progress: bool) -> bool {
        let round_ns = now_ns.saturating_sub(self.round_ns);
        self.round_ns = now_ns;
        let polled = std::mem::take(&mut self.polled);
        if progress {
            if std::mem::take(&mut self.is_waiting) {
                self.came_after(now_ns.saturating_sub(self.progress_ns));
            }
            self.progress_ns = now_ns;
            return true;
        }
        self.is_waiting = true;
        if polled && round_ns > ROUND_NS {
            let (least, most) = CROWDED_NS;
            self.crowded_ns = (self.crowded_ns * 2).clamp(least, most);
            self.crowded_until_ns = now_ns + self.crowded_ns;
        }
        self.polled = self.score >= BELIEF
            && now_ns >= self.crowded_until_ns
            && now_ns.saturating_sub(self.progress_ns) < WINDOW_NS;
        self.polled
    }

    /// Work came after so long a wait.
    fn came_after(&mut self, wait_ns: u64) {
        if wait_ns < WINDOW_NS {
            self.score = (self.score + 1).min(2 * BELIEF);
            // A long row of good luck makes up for a crowd.
            self.crowded_ns -= self.crowded_ns / 1024;
        } else {
            self.score = self.score.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work comes `gap_ns` after the last, `count` times; rounds in between take `round_ns`. Rounds that were polled.
    fn work(polling: &mut Polling, now_ns: &mut u64, count: usize, gap_ns: u64, round_ns: u64) -> u64 {
        let mut polled = 0;
        for _ in 0..count {
            let due_ns = *now_ns + gap_ns;
            while *now_ns < due_ns {
                if polling.goes_on(*now_ns, false) {
                    polled += 1;
                    *now_ns = due_ns.min(*now_ns + round_ns);
                } else {
                    *now_ns = due_ns;
                }
            }
            assert!(polling.goes_on(*now_ns, true));
        }
        polled
    }

    #[test]
    fn work_in_quick_succession_is_looked_for_and_work_that_is_rare_is_not() {
        let (mut polling, mut now_ns) = (Polling::default(), 1);
        work(&mut polling, &mut now_ns, 20, 10_000, 1_000);
        assert!(work(&mut polling, &mut now_ns, 100, 10_000, 1_000) >= 900);
        work(&mut polling, &mut now_ns, 20, 500_000, 1_000);
        assert_eq!(work(&mut polling, &mut now_ns, 100, 500_000, 1_000), 0);
        // It is noticed when it comes quickly again, though nobody polls.
        work(&mut polling, &mut now_ns, 20, 10_000, 1_000);
        assert!(work(&mut polling, &mut now_ns, 100, 10_000, 1_000) >= 900);
    }

    #[test]
    fn nobody_polls_on_a_processor_that_others_want() {
        let (mut polling, mut now_ns) = (Polling::default(), 1);
        work(&mut polling, &mut now_ns, 20, 10_000, 1_000);
        let polled = work(&mut polling, &mut now_ns, 10_000, 45_000, 30_000);
        assert!(polled < 40, "{polled} rounds");
        // One is told again once in a while at most.
        assert!(polling.crowded_ns <= CROWDED_NS.1);
    }
}
