//! For an owner that keeps the tables of docs/rnic.md itself, and so says which entry is used: a Function. What is put in a place
//! by these is not to be mixed with what the engine chooses a place for.

use crate::config::{CqId, Pd, Qpn, SrqId};
use crate::counters::Counters;
use crate::cq::Cq;
use crate::cqe::Status;
use crate::engine::{ControlError, Engine};
use crate::qp::{Init, Qp};
use crate::ring::Blocks;
use crate::shared::Srq;
use crate::smt::{Access, Entry};

/// A region as its entry in the SMT describes it.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// Whose QPs may use it.
    pub pd: Pd,
    /// What for.
    pub access: Access,
    /// The TO of the first byte.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// The key of its STag.
    pub key: u8,
    /// A page is of `2^shift` bytes, 12 to 30; 0: the region is one range, without a list.
    pub shift: u8,
    /// Where the first byte is: its address without a list, else its offset in the first page.
    pub at: u64,
    /// The first entry in the PBLMT.
    pub first: u32,
}

/// What an entry of the SMT is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StagState {
    /// It may be used: a region, or a window that is bound.
    pub is_valid: bool,
    /// It is a window.
    pub is_window: bool,
    /// Its key.
    pub key: u8,
    /// Windows that are bound to it.
    pub windows: u32,
}

impl Engine {
    /// Puts a region in this place of the SMT, which must be free.
    pub fn place_region(&mut self, index: u32, region: &Placed) -> Result<(), ControlError> {
        self.shared.smt.place_region(index, region)
    }

    /// Puts a window of type 2, not bound, in this place of the SMT.
    pub fn place_window(&mut self, index: u32, pd: Pd) -> Result<(), ControlError> {
        self.shared.smt.place_window(index, pd)
    }

    /// Takes what is in this place of the SMT out of it; not a region with windows.
    pub fn clear_stag(&mut self, index: u32) -> Result<(), ControlError> {
        self.shared.smt.clear(index)
    }

    /// What is in this place of the SMT.
    pub fn stag_state(&self, index: u32) -> StagState {
        self.shared.smt.entry_at(index).map(Entry::state).unwrap_or_default()
    }

    /// Writes an entry of the PBLMT as it lies there (docs/rnic.md, section 3).
    pub fn set_page_entry(&mut self, index: u32, entry: u64) -> Result<(), ControlError> {
        self.shared.smt.pbl.set_entry(index, entry).then_some(()).ok_or(ControlError::Unknown)
    }

    /// The STag of a region that this entry of the PBLMT is of, and which of its pages it is.
    pub fn page_of(&self, entry: u32) -> Option<(u32, u32)> {
        self.shared.smt.page_of(entry)
    }

    /// Pages that were absent may be here now: what waits looks again.
    pub fn wake_parked(&mut self) {
        while let Some(qp) = self.shared.schedule.parked.pop() {
            if let Some((qp, shared)) = self.qp(qp) {
                qp.place.is_parked = false;
                qp.wake(shared);
            }
        }
    }

    /// Makes this CQ, for an owner that empties it by [`Engine::take`].
    pub fn place_cq(&mut self, cq: CqId, cqes: usize) -> Result<(), ControlError> {
        if cqes == 0 || cqes > self.shared.config.cqes {
            return Err(ControlError::Invalid);
        }
        self.shared.cqs.insert_at(cq.0, Cq::growing(cqes)).then_some(()).ok_or(ControlError::InUse)
    }

    /// The next CQ that has got CQEs since it was named last. For owners that empty it by [`Engine::take`].
    pub fn next_written(&mut self) -> Option<CqId> {
        let cq = self.shared.events.written.pop()?;
        if let Some(queue) = self.shared.cqs.get_mut(cq.0) {
            queue.is_listed = false;
        }
        Some(cq)
    }

    /// Producer and consumer index of a CQ, whether it is armed, and whether it is in overrun.
    pub fn cq_state(&self, cq: CqId) -> Option<(u32, u32, bool, bool)> {
        self.shared.cqs.get(cq.0).map(Cq::state)
    }

    /// Makes this SRQ.
    pub fn place_srq(&mut self, srq: SrqId, pd: Pd, blocks: usize) -> Result<(), ControlError> {
        if blocks == 0 || blocks > self.shared.config.blocks {
            return Err(ControlError::Invalid);
        }
        let queue = Srq { blocks: Blocks::new(blocks), pd, wqes: 0, limit: 0, users: 0 };
        self.shared.srqs.insert_at(srq.0, queue).then_some(()).ok_or(ControlError::InUse)
    }

    /// Blocks that an SRQ has room for.
    pub fn srq_room(&self, srq: SrqId) -> usize {
        self.shared.srqs.get(srq.0).map_or(0, |queue| queue.blocks.room())
    }

    /// Makes the QP with this number, neither 0 nor 1, in RESET; its place must be free.
    pub fn place_qp(&mut self, number: Qpn, init: &Init) -> Result<(), ControlError> {
        let init = self.check_init(init)?;
        let slot = self.slot(number);
        if number.0 < 2 {
            return Err(ControlError::Invalid);
        }
        if !self.qps.insert_at(slot, Qp::new(number, &init)) {
            return Err(ControlError::InUse);
        }
        self.count_users(&init);
        Ok(())
    }

    /// The SRQ of a QP, if it has one.
    pub fn srq_of(&self, number: Qpn) -> Option<SrqId> {
        self.peek(number)?.init.srq
    }

    /// Whether no receive WQE is in the RQ of a QP.
    pub fn is_rq_empty(&self, number: Qpn) -> bool {
        self.peek(number).is_none_or(|qp| qp.rq.is_empty())
    }

    /// Whether no receive WQE is in an SRQ.
    pub fn is_srq_empty(&self, srq: SrqId) -> bool {
        self.shared.srqs.get(srq.0).is_none_or(|queue| queue.blocks.is_empty())
    }

    /// A queue of the QP was used as it may not be, in a way that no WQE tells: the oldest send WQE fails, the QP goes to ERROR.
    pub fn misuse(&mut self, number: Qpn) {
        if let Some((qp, shared)) = self.qp(number) {
            qp.fail(shared, Some((Status::LocalOperation, None)));
        }
    }

    /// The counters, for the part of the work that the owner does: doorbells and windows.
    pub fn counters_mut(&mut self) -> &mut Counters {
        &mut self.shared.counters
    }
}
