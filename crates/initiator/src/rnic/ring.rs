//! Queues in memory: of WQEs, which the driver fills, and of CQEs, which it empties.

use std::collections::VecDeque;

use etherslot_rdma::{BLOCK_BYTES, Cqe, PostError};

use super::device::Device;
use super::memory::Place;

/// The ID of a WQE that was prepared as a header of AOTF, with its place.
const HEADER: u64 = 1 << 63;

/// A WQE that was handed over and has not completed.
#[derive(Clone, Copy, Debug)]
struct Posted {
    /// In the WQE, and the user's.
    tag: u64,
    id: u64,
    /// Blocks of all WQEs so far, with this one.
    end: u32,
    is_signaled: bool,
}

/// An SQ, RQ or SRQ.
#[derive(Debug)]
pub(super) struct WorkQueue {
    pub(super) place: Place,
    blocks: u32,
    /// Where the next block goes.
    producer: u16,
    /// What the device was told.
    rung: u16,
    /// Blocks posted and freed so far, with those of on-the-fly sends.
    posted: u32,
    freed: u32,
    next_tag: u64,
    under_way: VecDeque<Posted>,
}

impl WorkQueue {
    pub(super) fn new(place: Place, blocks: u32) -> Self {
        Self {
            place,
            blocks,
            producer: 0,
            rung: 0,
            posted: 0,
            freed: 0,
            next_tag: 0,
            under_way: VecDeque::with_capacity(blocks as usize),
        }
    }

    /// Empty, as after a reset of its QP.
    pub(super) fn clear(&mut self) {
        self.under_way.clear();
        (self.producer, self.rung, self.posted, self.freed) = (0, 0, 0, 0);
    }

    /// Blocks that there is room for.
    pub(super) fn room(&self) -> usize {
        (self.blocks - self.posted.wrapping_sub(self.freed)) as usize
    }

    /// Whether the doorbell is due; the index to ring with.
    pub(super) fn doorbell(&mut self) -> Option<u16> {
        (self.rung != self.producer).then(|| {
            self.rung = self.producer;
            self.producer
        })
    }

    /// Counts a WQE of so many blocks; the tag to put in it.
    pub(super) fn begin(&mut self, id: u64, blocks: usize, is_signaled: bool) -> Result<u64, PostError> {
        let tag = self.next_tag;
        self.count(tag, id, blocks, is_signaled)?;
        self.next_tag = (tag + 1) & (HEADER - 1);
        Ok(tag)
    }

    /// The tag of an AOTF header.
    pub(super) const fn header_tag(place: usize) -> u64 {
        HEADER | place as u64
    }

    /// Counts a WQE whose tag is known.
    pub(super) fn count(
        &mut self,
        tag: u64,
        id: u64,
        blocks: usize,
        is_signaled: bool,
    ) -> Result<(), PostError> {
        if self.room() < blocks {
            return Err(PostError::Full);
        }
        self.posted = self.posted.wrapping_add(blocks as u32);
        self.under_way.push_back(Posted { tag, id, end: self.posted, is_signaled });
        Ok(())
    }

    /// Writes a WQE into the ring.
    pub(super) fn put<D: Device>(&mut self, device: &mut D, wqe: &[u8]) {
        for block in wqe.as_chunks::<BLOCK_BYTES>().0 {
            let at = u64::from(self.producer) & u64::from(self.blocks - 1);
            device.store(self.place.address + at * BLOCK_BYTES as u64, block);
            self.producer = self.producer.wrapping_add(1);
        }
    }

    /// A WQE has completed, and those before it with it; its user's ID. `None`: there is no such one.
    pub(super) fn completed(&mut self, tag: u64, is_success: bool) -> Option<u64> {
        let is_it = |posted: &Posted| {
            // Sends of one AOTF header look the same: what succeeded with a CQE was signaled.
            posted.tag == tag && (tag & HEADER == 0 || !is_success || posted.is_signaled)
        };
        let at = self.under_way.iter().position(is_it)?;
        let posted = self.under_way.drain(..=at).next_back()?;
        self.freed = posted.end;
        Some(posted.id)
    }

    /// The same of an SRQ, whose WQEs complete in any order: places are free up to the oldest that is under way.
    pub(super) fn completed_out_of_order(&mut self, tag: u64) -> Option<u64> {
        let at = self.under_way.iter().position(|posted| posted.tag == tag)?;
        let posted = self.under_way.get_mut(at)?;
        let id = posted.id;
        // It is marked as done.
        posted.tag = HEADER;
        while let Some(first) = self.under_way.front().filter(|posted| posted.tag == HEADER) {
            self.freed = first.end;
            self.under_way.pop_front();
        }
        Some(id)
    }
}

/// An entry that no RNIC writes.
pub(super) struct Strange;

/// A CQ.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    pub(super) place: Place,
    log2: u32,
    pub(super) consumed: u32,
    /// What the device was told.
    told: u32,
    /// Bits of the doorbell that are to be written: ARM, SOLICITED.
    pub(super) wanted: u64,
    pub(super) users: u32,
}

impl CompletionQueue {
    pub(super) fn new(place: Place, log2: u32) -> Self {
        Self { place, log2, consumed: 0, told: 0, wanted: 0, users: 0 }
    }

    /// Takes the next entry.
    #[inline]
    pub(super) fn next<D: Device>(&mut self, device: &D) -> Option<Result<Cqe, Strange>> {
        let at = self.place.address + u64::from(self.consumed & ((1 << self.log2) - 1)) * Cqe::BYTES as u64;
        let mut entry = [0; Cqe::BYTES];
        // The device may write meanwhile. PHASE is written last, so it is looked at first, and the rest behind it.
        device.load(at + 8, &mut entry[8..16]);
        let is_here = Cqe::phase(&entry) == (self.consumed >> self.log2).is_multiple_of(2);
        if !is_here {
            return None;
        }
        device.load(at, &mut entry[..8]);
        device.load(at + 16, &mut entry[16..]);
        self.consumed = self.consumed.wrapping_add(1);
        Some(Cqe::parse(&entry).ok_or(Strange))
    }

    /// Whether the doorbell is due; what it is, without the number of the CQ.
    pub(super) fn doorbell(&mut self) -> Option<u64> {
        (self.told != self.consumed || self.wanted != 0).then(|| {
            self.told = self.consumed;
            u64::from(self.consumed) << 32 | std::mem::take(&mut self.wanted)
        })
    }
}
