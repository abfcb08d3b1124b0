//! Completion queues (docs/rnic.md, section 5).

use alloc::boxed::Box;
use alloc::vec;

use crate::config::Qpn;
use crate::cqe::{Cqe, Done, Status};
use crate::wqe::SendOpcode;

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
    ring: Box<[Cqe]>,
    mask: u32,
    produced: u32,
    taken: u32,
    consumed: u32,
    armed: Armed,
    is_overrun: bool,
    /// QPs that have it.
    pub(crate) users: u32,
}

impl Cq {
    pub(crate) fn new(cqes: usize) -> Self {
        let cqes = cqes.next_power_of_two();
        let empty = Cqe::new(0, Status::Success, Done::Sent(SendOpcode::Nop), Qpn(0));
        Self {
            ring: vec![empty; cqes].into_boxed_slice(),
            mask: cqes as u32 - 1,
            produced: 0,
            taken: 0,
            consumed: 0,
            armed: Armed::No,
            is_overrun: false,
            users: 0,
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, cqe: Cqe) -> Pushed {
        if self.is_overrun {
            return Pushed::Lost;
        }
        if self.produced.wrapping_sub(self.consumed) as usize == self.ring.len() {
            self.is_overrun = true;
            return Pushed::Overrun;
        }
        self.ring[(self.produced & self.mask) as usize] = cqe;
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
        if self.taken == self.produced {
            return None;
        }
        let phase = (self.taken / self.ring.len() as u32).is_multiple_of(2);
        let cqe = self.ring[(self.taken & self.mask) as usize];
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

    /// Forgets the CQEs of a QP that nobody has taken yet; the others move up.
    pub(crate) fn forget(&mut self, qp: Qpn) {
        let mut kept = self.taken;
        let mut at = self.taken;
        while at != self.produced {
            let cqe = self.ring[(at & self.mask) as usize];
            if cqe.qp != qp {
                self.ring[(kept & self.mask) as usize] = cqe;
                kept = kept.wrapping_add(1);
            }
            at = at.wrapping_add(1);
        }
        self.produced = kept;
    }

    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Asks for a notice; whether one is due at once, as something is there that was not consumed.
    pub(crate) fn arm(&mut self, solicited_only: bool) -> bool {
        let is_due = !solicited_only && self.consumed != self.produced;
        // The wider wish holds (IBA 11.4.2.2).
        if !(is_due || solicited_only && self.armed == Armed::Next) {
            self.armed = if solicited_only { Armed::Solicited } else { Armed::Next };
        }
        is_due
    }
}
