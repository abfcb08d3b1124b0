//! Which packet numbers have been seen.
//!
//! A packet number is used once (docs/wire.md). Sequences alone do not keep a replayed frame out for ever, since they
//! wrap; the packet number does: what has been seen is dropped, and so is what is too old to tell.

/// Numbers behind the newest that are still told apart. At 10 million frames a second it is most of a millisecond,
/// more than a path reorders.
const REMEMBERED: u64 = 8192;

/// The furthest a number may be ahead of the newest: more than any link carries while a session lives in silence. It
/// bounds what a damaged number can shut out.
const AHEAD: u64 = 1 << 30;

/// A sliding window over packet numbers.
#[derive(Debug)]
pub(crate) struct Replay {
    newest: Option<u64>,
    seen: Box<[u64]>,
}

impl Replay {
    /// A window that takes any number as its first.
    pub(crate) fn new() -> Self {
        Self { newest: None, seen: vec![0; (REMEMBERED / 64) as usize].into_boxed_slice() }
    }

    /// Whether the number is certain to be new.
    pub(crate) fn would_take(&self, number: u64) -> bool {
        let newest = self.newest.unwrap_or(number);
        if number > newest {
            return number - newest <= AHEAD;
        }
        let (at, bit) = ((number / 64 % (REMEMBERED / 64)) as usize, 1 << (number % 64));
        newest - number < REMEMBERED - 64 && self.seen[at] & bit == 0
    }

    /// Notes the number; `false` if it is not certain to be new.
    pub(crate) fn is_new(&mut self, number: u64) -> bool {
        let newest = self.newest.unwrap_or(number);
        if number > newest {
            let ahead = number - newest;
            if ahead > AHEAD {
                return false;
            }
            if ahead >= REMEMBERED {
                self.seen.fill(0);
            } else {
                // Only whole words are forgotten at a time: the window is up to 63 numbers shorter than the ring.
                let (from, to) = (newest / 64 + 1, number / 64);
                for word in from..=to {
                    let at = (word % (REMEMBERED / 64)) as usize;
                    self.seen[at] = 0;
                }
            }
        } else if newest - number >= REMEMBERED - 64 {
            return false;
        }
        let (at, bit) = ((number / 64 % (REMEMBERED / 64)) as usize, 1 << (number % 64));
        if self.seen[at] & bit != 0 {
            return false;
        }
        self.seen[at] |= bit;
        self.newest = Some(newest.max(number));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_taken_once_in_any_order() {
        for first in [0, (1 << 32) - 100, u64::MAX - 20_000] {
            let mut replay = Replay::new();
            for number in (first..first + 10_000).step_by(7) {
                assert!(replay.would_take(number));
                assert!(replay.is_new(number));
                assert!(!replay.would_take(number));
                assert!(!replay.is_new(number));
            }
            let newest = (first..first + 10_000).step_by(7).last().unwrap_or(0);
            for number in newest - 5000..newest {
                assert_eq!(replay.is_new(number), (number - first) % 7 != 0);
            }
        }
    }

    #[test]
    fn what_is_too_old_or_too_far_ahead_is_not_taken() {
        let mut replay = Replay::new();
        assert!(replay.is_new(100_000));
        assert!(!replay.would_take(100_000 - REMEMBERED) && !replay.would_take(100_001 + AHEAD));
        assert!(!replay.is_new(100_000 - REMEMBERED));
        assert!(!replay.is_new(100_001 + AHEAD));
        assert!(replay.is_new(100_000 + 3 * REMEMBERED));
        assert!(!replay.is_new(100_000));
        assert!(replay.is_new(100_000 + 2 * REMEMBERED + 65));
    }
}
