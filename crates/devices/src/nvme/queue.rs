//! Submission and Completion Queues (NVMe Base 1.4, 4.1).
//!
//! A command is fetched only when its Completion Queue has an entry to spare for it, which is reserved at once: what is
//! being carried out can always be completed, and a full Completion Queue holds up the fetching, not the controller.

use super::bits::{CQE_BYTES, SQE_BYTES};
use super::status::Status;
use std::collections::VecDeque;

/// Entries of a queue at most (CAP.MQES + 1).
pub(crate) const MAX_ENTRIES: u32 = 4096;

/// What is wrong with a value written to a doorbell (Figure 147).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidDoorbellValue;

/// No slot belongs to this place of a Submission Queue.
const NO_SLOT: u16 = u16::MAX;

/// A Submission Queue, seen from the consumer.
///
/// Places go round from `head` (the next to be started) over `asked` (the next to be read from memory) to `tail` (the
/// next the host will fill).
#[derive(Debug)]
pub(crate) struct Sq {
    pub(crate) base: u64,
    size: u32,
    pub(crate) cqid: u16,
    head: u32,
    /// In bytes, since room on the bus may end within an entry.
    asked_bytes: u32,
    tail: u32,
    /// Which slot an entry asked for goes to, by place.
    slots: Box<[u16]>,
    /// Commands that have a slot.
    pub(crate) in_flight: u32,
    /// The slot of the Delete command that waits for them.
    pub(crate) deleted_by: Option<u16>,
}

/// Consecutive bytes of a queue that are to be read now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) address: u64,
    pub(crate) bytes: u32,
}

impl Sq {
    pub(crate) fn new(base: u64, size: u32, cqid: u16) -> Self {
        debug_assert!((2..=MAX_ENTRIES).contains(&size));
        let slots = vec![NO_SLOT; size as usize].into_boxed_slice();
        Self { base, size, cqid, head: 0, asked_bytes: 0, tail: 0, slots, in_flight: 0, deleted_by: None }
    }

    /// What goes into a completion as SQ Head Pointer.
    pub(crate) fn head(&self) -> u16 {
        self.head as u16
    }

    fn distance(&self, from: u32, to: u32) -> u32 {
        if to >= from { to - from } else { to + self.size - from }
    }

    /// The host has filled entries up to `tail`.
    pub(crate) fn ring(&mut self, tail: u32) -> Result<(), InvalidDoorbellValue> {
        // More than fit between here and the head would overwrite what we have not read.
        let free = self.size - 1 - self.distance(self.head, self.tail);
        if tail >= self.size || self.distance(self.tail, tail) > free {
            return Err(InvalidDoorbellValue);
        }
        self.tail = tail;
        Ok(())
    }

    /// Whether entries wait that have not been (fully) asked for.
    pub(crate) fn has_news(&self) -> bool {
        self.asked_bytes != self.tail * SQE_BYTES as u32
    }

    /// Whether part of an entry, which has its slot, has still to be asked for.
    fn has_part(&self) -> bool {
        !self.asked_bytes.is_multiple_of(SQE_BYTES as u32)
    }

    /// What to read next if `entries` more commands can be taken; consecutive in memory.
    pub(crate) fn wanted(&self, entries: u32) -> Option<Span> {
        let at = self.asked_bytes / SQE_BYTES as u32;
        let run = if self.tail >= at { self.tail - at } else { self.size - at };
        let run = run.min(entries + u32::from(self.has_part()));
        let bytes = (run * SQE_BYTES as u32).checked_sub(self.asked_bytes % SQE_BYTES as u32)?;
        (bytes > 0).then_some(Span { address: self.base + u64::from(self.asked_bytes), bytes })
    }

    /// Entries it has room for.
    pub(crate) fn entries(&self) -> u32 {
        self.size
    }

    /// The place of the entry to be read next, unless that is begun.
    pub(crate) fn next_entry(&self) -> Option<u32> {
        (self.has_news() && !self.has_part()).then_some(self.asked_bytes / SQE_BYTES as u32)
    }

    /// `bytes` from [`Sq::wanted`] have been asked for; `new_slot` gives the slot of each entry begun, by its place.
    pub(crate) fn asked(&mut self, bytes: u32, mut new_slot: impl FnMut(u32) -> u16) {
        let entry = SQE_BYTES as u32;
        let end = self.asked_bytes + bytes;
        for place in self.asked_bytes.div_ceil(entry)..end.div_ceil(entry) {
            self.slots[place as usize] = new_slot(place);
            self.in_flight += 1;
        }
        self.asked_bytes = if end == self.size * entry { 0 } else { end };
    }

    /// The slot and the place in its entry of what is at `address`, and how many bytes of that entry follow.
    pub(crate) fn locate(&self, address: u64) -> Option<(u16, usize, usize)> {
        let offset = usize::try_from(address.checked_sub(self.base)?).ok()?;
        let slot = *self.slots.get(offset / SQE_BYTES)?;
        (slot != NO_SLOT).then_some((slot, offset % SQE_BYTES, SQE_BYTES - offset % SQE_BYTES))
    }

    /// The slot of the entry at the head, if it was asked for.
    pub(crate) fn first(&self) -> Option<u16> {
        let slot = self.slots[self.head as usize];
        (slot != NO_SLOT).then_some(slot)
    }

    /// The entry at the head is consumed.
    pub(crate) fn advance(&mut self) {
        self.slots[self.head as usize] = NO_SLOT;
        self.head = (self.head + 1) % self.size;
    }
}

/// A Completion Queue Entry (4.6), but for the Phase Tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cqe {
    pub(crate) dword0: u32,
    pub(crate) sq_head: u16,
    pub(crate) sqid: u16,
    pub(crate) cid: u16,
    pub(crate) status: Status,
}

impl Cqe {
    fn encode(&self, phase: bool) -> [u8; CQE_BYTES] {
        let dword2 = u32::from(self.sqid) << 16 | u32::from(self.sq_head);
        let dword3 = u32::from(self.status.field()) << 17 | u32::from(phase) << 16 | u32::from(self.cid);
        let mut bytes = [0; CQE_BYTES];
        bytes[0..4].copy_from_slice(&self.dword0.to_le_bytes());
        bytes[8..12].copy_from_slice(&dword2.to_le_bytes());
        bytes[12..16].copy_from_slice(&dword3.to_le_bytes());
        bytes
    }
}

/// Entries written to memory at once: one 64-byte block, which a Bus takes whole or not at all.
pub(crate) const BATCH: usize = 4;

/// A Completion Queue, seen from the producer.
#[derive(Debug)]
pub(crate) struct Cq {
    base: u64,
    size: u32,
    /// The next the host will consume.
    head: u32,
    /// The next to be written.
    tail: u32,
    phase: bool,
    /// The interrupt vector, if interrupts are enabled.
    pub(crate) vector: Option<u16>,
    /// Entries that commands under way will need.
    reserved: u32,
    /// Formed, but not yet written.
    staged: VecDeque<Cqe>,
    /// Submission Queues that complete here.
    pub(crate) users: u32,
    /// Entries written whose interrupt is held back, and since when (ns).
    pub(crate) unsignalled: u32,
    pub(crate) unsignalled_since_ns: u64,
}

impl Cq {
    /// `staged` bounds the commands under way, so the list of formed entries never grows.
    pub(crate) fn new(base: u64, size: u32, vector: Option<u16>, staged: usize) -> Self {
        debug_assert!((2..=MAX_ENTRIES).contains(&size));
        Self {
            base,
            size,
            head: 0,
            tail: 0,
            phase: true,
            vector,
            reserved: 0,
            staged: VecDeque::with_capacity(staged.min(size as usize)),
            users: 0,
            unsignalled: 0,
            unsignalled_since_ns: 0,
        }
    }

    /// Entries written and not consumed.
    pub(crate) fn outstanding(&self) -> u32 {
        if self.tail >= self.head { self.tail - self.head } else { self.tail + self.size - self.head }
    }

    /// Entries that can still be reserved.
    pub(crate) fn spare(&self) -> u32 {
        (self.size - 1).saturating_sub(self.outstanding() + self.staged.len() as u32 + self.reserved)
    }

    /// Puts an entry by. Only if [`Cq::spare`] is not 0.
    pub(crate) fn reserve(&mut self) {
        debug_assert!(self.spare() > 0);
        self.reserved += 1;
    }

    /// Gives a reserved entry back.
    pub(crate) fn release(&mut self) {
        debug_assert!(self.reserved > 0);
        self.reserved -= 1;
    }

    /// Uses a reserved entry.
    pub(crate) fn stage(&mut self, cqe: Cqe) {
        self.release();
        self.staged.push_back(cqe);
    }

    pub(crate) fn has_staged(&self) -> bool {
        !self.staged.is_empty()
    }

    /// The host has consumed entries up to `head`.
    pub(crate) fn ring(&mut self, head: u32) -> Result<(), InvalidDoorbellValue> {
        let consumed = if head >= self.head { head - self.head } else { head + self.size - self.head };
        if head >= self.size || consumed > self.outstanding() {
            return Err(InvalidDoorbellValue);
        }
        self.head = head;
        Ok(())
    }

    /// The next entries to write: where, what, and how many bytes of it. They cross no 64-byte boundary.
    pub(crate) fn batch(&self) -> Option<(u64, [u8; BATCH * CQE_BYTES], usize)> {
        let in_block = BATCH as u32 - self.tail % BATCH as u32;
        let count = self.staged.len().min(in_block as usize).min((self.size - self.tail) as usize);
        let mut bytes = [0; BATCH * CQE_BYTES];
        for (place, cqe) in bytes.chunks_exact_mut(CQE_BYTES).zip(self.staged.iter().take(count)) {
            place.copy_from_slice(&cqe.encode(self.phase));
        }
        let address = self.base + u64::from(self.tail) * CQE_BYTES as u64;
        (count > 0).then_some((address, bytes, count * CQE_BYTES))
    }

    /// `bytes` from [`Cq::batch`] are written.
    pub(crate) fn written(&mut self, bytes: usize) {
        let count = bytes / CQE_BYTES;
        self.staged.drain(..count);
        self.tail += count as u32;
        if self.tail == self.size {
            self.tail = 0;
            self.phase = !self.phase;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cqe(cid: u16) -> Cqe {
        Cqe { dword0: 0x1234_5678, sq_head: 0x0a0b, sqid: 0x0102, cid, status: Status::LBA_OUT_OF_RANGE }
    }

    #[test]
    fn a_completion_has_its_fields_where_the_specification_puts_them() {
        let bytes = cqe(0xbeef).encode(true);
        assert_eq!(bytes[0..4], 0x1234_5678u32.to_le_bytes());
        assert_eq!(bytes[4..8], [0; 4]);
        assert_eq!(bytes[8..10], 0x0a0bu16.to_le_bytes(), "SQHD");
        assert_eq!(bytes[10..12], 0x0102u16.to_le_bytes(), "SQID");
        assert_eq!(bytes[12..14], 0xbeefu16.to_le_bytes(), "CID");
        // DNR, M, SCT 0, SC 80h, P.
        assert_eq!(u16::from_le_bytes([bytes[14], bytes[15]]), 0x8000 | 0x4000 | 0x80 << 1 | 1);
        assert_eq!(u16::from_le_bytes([cqe(0).encode(false)[14], cqe(0).encode(false)[15]]) & 1, 0);
        let media = Cqe { status: Status::UNRECOVERED_READ_ERROR, ..cqe(0) }.encode(false);
        assert_eq!(u16::from_le_bytes([media[14], media[15]]) >> 1 & 0x7ff, 0x281);
    }

    #[test]
    fn entries_asked_for_in_odd_pieces_find_their_slots() {
        let mut sq = Sq::new(0x1000, 4, 1);
        sq.ring(3).unwrap();
        assert_eq!(sq.wanted(8), Some(Span { address: 0x1000, bytes: 192 }));
        assert_eq!(sq.wanted(0), None);
        let mut next = 10..;
        sq.asked(100, |_| next.next().unwrap());
        assert_eq!(sq.in_flight, 2);
        assert_eq!(sq.wanted(0), Some(Span { address: 0x1000 + 100, bytes: 28 }));
        assert_eq!(sq.wanted(1), Some(Span { address: 0x1000 + 100, bytes: 92 }));
        sq.asked(92, |_| next.next().unwrap());
        assert!(!sq.has_news());
        assert_eq!(sq.locate(0x1000 + 70), Some((11, 6, 58)));
        assert_eq!(sq.locate(0x1000 + 192), None);
        assert_eq!(sq.locate(0xfff), None);
        assert_eq!(sq.first(), Some(10));
        sq.advance();
        sq.ring(0).unwrap();
        assert_eq!(sq.wanted(8), Some(Span { address: 0x1000 + 192, bytes: 64 }));
        sq.asked(64, |_| next.next().unwrap());
        assert!(!sq.has_news() && sq.wanted(8).is_none());
        assert_eq!(sq.head(), 1);
    }

    #[test]
    fn a_submission_doorbell_beyond_the_queue_or_past_the_head_is_invalid() {
        let mut sq = Sq::new(0, 4, 1);
        assert_eq!(sq.ring(4), Err(InvalidDoorbellValue));
        assert_eq!(sq.ring(u32::MAX), Err(InvalidDoorbellValue));
        sq.ring(3).unwrap();
        assert_eq!(sq.ring(0), Err(InvalidDoorbellValue), "full: one entry is always empty");
        assert_eq!(sq.ring(2), Err(InvalidDoorbellValue), "backwards");
        sq.ring(3).unwrap();
    }

    #[test]
    fn reserved_staged_and_unconsumed_entries_never_exceed_the_queue() {
        let mut cq = Cq::new(0x2000, 4, Some(0), 64);
        assert_eq!(cq.spare(), 3);
        for cid in 0..3 {
            cq.reserve();
            cq.stage(cqe(cid));
        }
        assert_eq!(cq.spare(), 0);
        let (address, _, bytes) = cq.batch().unwrap();
        assert_eq!((address, bytes), (0x2000, 48));
        cq.written(bytes);
        assert_eq!((cq.spare(), cq.outstanding()), (0, 3));
        assert_eq!(cq.ring(4), Err(InvalidDoorbellValue));
        cq.ring(2).unwrap();
        assert_eq!(cq.ring(0), Err(InvalidDoorbellValue), "only one is left");
        assert_eq!(cq.spare(), 2);
    }

    #[test]
    fn the_phase_tag_flips_with_every_round() {
        let mut cq = Cq::new(0, 2, None, 64);
        let mut phases = Vec::new();
        for round in 0..5 {
            cq.reserve();
            cq.stage(cqe(0));
            let (address, bytes, count) = cq.batch().unwrap();
            assert_eq!(address, (round % 2) * 16);
            phases.push(bytes[14] & 1);
            cq.written(count);
            cq.ring((round as u32 + 1) % 2).unwrap();
        }
        assert_eq!(phases, [1, 1, 0, 0, 1]);
    }

    #[test]
    fn batches_stay_within_64_bytes_and_the_queue() {
        let mut cq = Cq::new(0x3000, 6, None, 64);
        for cid in 0..5 {
            cq.reserve();
            cq.stage(cqe(cid));
        }
        let (_, _, bytes) = cq.batch().unwrap();
        assert_eq!(bytes, 64);
        cq.written(bytes);
        let (address, _, bytes) = cq.batch().unwrap();
        assert_eq!((address, bytes), (0x3040, 16));
        cq.written(bytes);
        cq.ring(5).unwrap();
        for cid in 0..3 {
            cq.reserve();
            cq.stage(cqe(cid));
        }
        assert_eq!(cq.batch().unwrap().2, 16, "up to the end of the queue");
    }
}
