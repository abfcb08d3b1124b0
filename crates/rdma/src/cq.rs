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
            armed: Armed::No,
            is_overrun: false,
            is_listed: false,
            users: 0,
        }
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
        let fires = match self.armed {
            Armed::No => false,
            Armed::Next => true,
            Armed::Solicited => cqe.is_solicited || cqe.status != Status::Success,
        };
        if fires {
            self.armed = Armed::No;
        }
        Pushed::Yes(fires)
    }

    /// The next CQE, and the phase of its lap. Its place is not free before [`Cq::consume`].
    #[inline]
    pub(crate) fn take(&mut self) -> Option<(Cqe, bool)> {
        let cqe = self.ring.pop_front()?;
        let phase = (self.taken / self.cqes).is_multiple_of(2);
        self.taken = self.taken.wrapping_add(1);
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

    /// Forgets the CQEs of a QP that nobody has taken yet; the others move up.
    pub(crate) fn forget(&mut self, qp: Qpn) {
        self.ring.retain(|cqe| cqe.qp != qp);
        self.produced = self.taken.wrapping_add(self.ring.len() as u32);
    }

    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Asks for a notice; whether one is due at once, as something is there that was not consumed.
    pub(crate) fn arm(&mut self, solicited_only: bool) -> bool {
        let is_due = !solicited_only && self.consumed != self.produced;
        if !is_due {
            self.arm_for_next(solicited_only);
        }
        is_due
    }

    /// Asks for a notice of what comes from now on.
    pub(crate) fn arm_for_next(&mut self, solicited_only: bool) {
        // The wider wish holds (IBA 11.4.2.2).
        if !(solicited_only && self.armed == Armed::Next) {
            self.armed = if solicited_only { Armed::Solicited } else { Armed::Next };
        }
    }
}
