//! Completion queues (docs/rnic.md, section 5).

use alloc::collections::VecDeque;

use crate::config::Qpn;
use crate::cqe::{Cqe, Status};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Next,
}

/// What became of a CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// It is in the queue; whether a notice is due.
    Yes(bool),
    /// There is no room, for the first time.
    Overrun,
    /// There was none before.
    Lost,
}

/// A completion queue. Indices are free-running: `consumed <= taken <= produced`.
#[derive(Debug)]
pub(crate) struct Cq {
    /// Those that were produced and not taken.
    ring: VecDeque<Cqe>,
    cqes: u32,
    produced: u32,
    taken: u32,
    consumed: u32,
    /// All before this index were there when a notice was given, or have been taken.
    told: u32,
    /// Behind the last one that solicits a notice.
    solicited: u32,
    armed: Armed,
    is_overrun: bool,
    /// It is in the list of those that have got CQEs.
    pub(crate) is_listed: bool,
    /// QPs that have it.
    pub(crate) users: u32,
}

impl Cq {
    /// With room for so many from the beginning.
    pub(crate) fn new(cqes: usize) -> Self {
        Self { ring: VecDeque::with_capacity(cqes.next_power_of_two()), ..Self::growing(cqes) }
    }

    /// It has room for what was not taken: for an owner that takes everything at once.
    pub(crate) fn growing(cqes: usize) -> Self {
        Self {
            ring: VecDeque::new(),
            cqes: cqes.next_power_of_two() as u32,
            produced: 0,
            taken: 0,
            consumed: 0,
            told: 0,
            solicited: 0,
            armed: Armed::No,
            is_overrun: false,
            is_listed: false,
            users: 0,
        }
    }

    /// Has room for at least so many from now on: for an owner that counts no laps.
    pub(crate) fn grow(&mut self, cqes: usize) {
        self.cqes = self.cqes.max(cqes.next_power_of_two() as u32);
        self.ring.reserve((self.cqes as usize).saturating_sub(self.ring.len()));
    }

    #[inline]
    pub(crate) fn push(&mut self, cqe: Cqe) -> Pushed {
        if self.is_overrun {
            return Pushed::Lost;
        }
        if self.produced.wrapping_sub(self.consumed) == self.cqes {
            self.is_overrun = true;
            return Pushed::Overrun;
        }
        self.ring.push_back(cqe);
        self.produced = self.produced.wrapping_add(1);
        if solicits(&cqe) {
            self.solicited = self.produced;
        }
        let fires = match self.armed {
            Armed::No => false,
            Armed::Next => true,
            Armed::Solicited => self.solicited == self.produced,
        };
        if fires {
            self.notice();
        }
        Pushed::Yes(fires)
    }

    /// A notice is given.
    fn notice(&mut self) {
        self.armed = Armed::No;
        self.told = self.produced;
    }

    /// The next CQE, and the phase of its lap. Its place is not free before [`Cq::consume`].
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(Cqe, bool)> {
        let cqe = self.ring.pop_front()?;
        let phase = (self.taken / self.cqes).is_multiple_of(2);
        self.taken = self.taken.wrapping_add(1);
        // They are compared with what comes, so they may not fall behind by half of all numbers.
        for index in [&mut self.told, &mut self.solicited] {
            if is_behind(*index, self.taken) {
                *index = self.taken;
            }
        }
        Some((cqe, phase))
    }

    /// All before this index have been consumed.
    #[inline]
    pub(crate) fn consume(&mut self, index: u32) -> bool {
        let is_valid = index.wrapping_sub(self.consumed) <= self.taken.wrapping_sub(self.consumed);
        if is_valid {
            self.consumed = index;
        }
        is_valid
    }

    /// Producer and consumer index, whether it is armed, whether it is in overrun.
    pub(crate) fn state(&self) -> (u32, u32, bool, bool) {
        (self.taken, self.consumed, self.armed != Armed::No, self.is_overrun)
    }

    /// Whether CQEs of a QP are there that nobody has taken yet.
    pub(crate) fn has(&self, qp: Qpn) -> bool {
        self.ring.iter().any(|cqe| cqe.qp == qp)
    }

    /// Forgets the CQEs of a QP that nobody has taken yet; the others move up.
    pub(crate) fn forget(&mut self, qp: Qpn) {
        let told = self.told.wrapping_sub(self.taken) as usize;
        let told = self.ring.iter().take(told).filter(|cqe| cqe.qp != qp).count();
        self.ring.retain(|cqe| cqe.qp != qp);
        let solicited = self.ring.iter().rposition(solicits).map_or(0, |at| at + 1);
        self.produced = self.taken.wrapping_add(self.ring.len() as u32);
        self.told = self.taken.wrapping_add(told as u32);
        self.solicited = self.taken.wrapping_add(solicited as u32);
    }

    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Asks for a notice; whether one is due at once, as something is there that was not consumed.
    pub(crate) fn arm(&mut self, solicited_only: bool) -> bool {
        let is_due = !solicited_only && self.consumed != self.produced;
        if is_due {
            self.notice();
        } else {
            self.ask(solicited_only);
        }
        is_due
    }

    /// Asks for a notice of something that none was given of; whether one is due at once, as such is there and was not taken.
    pub(crate) fn arm_for_untold(&mut self, solicited_only: bool) -> bool {
        let newest = if solicited_only { self.solicited } else { self.produced };
        let is_due = is_behind(self.told, newest);
        if is_due {
            self.notice();
        } else {
            self.ask(solicited_only);
        }
        is_due
    }

    fn ask(&mut self, solicited_only: bool) {
        // The wider wish holds (IBA 11.4.2.2).
        if !(solicited_only && self.armed == Armed::Next) {
            self.armed = if solicited_only { Armed::Solicited } else { Armed::Next };
        }
    }
}

/// Whether a CQE is one for which who asked for solicited ones is told.
fn solicits(cqe: &Cqe) -> bool {
    cqe.is_solicited || cqe.status != Status::Success
}

/// Whether a free-running index is before another.
fn is_behind(index: u32, other: u32) -> bool {
    index.wrapping_sub(other).cast_signed() < 0
}
