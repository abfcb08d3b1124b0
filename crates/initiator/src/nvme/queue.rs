//! An I/O queue pair: commands under way, by their Command Identifiers.

use super::bits::{CQE_BYTES, RANGE_BYTES, SQE_BYTES};
use super::ring::Ring;
use crate::disk::{Done, Op, Request};
use crate::pool::{Buffer, PAGE_BYTES};

/// Where a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Taken, and waiting for the controller to be ready.
    Waiting,
    /// With the controller, which may reach its buffer.
    UnderWay,
}

/// A place for a command.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) state: State,
    /// Distinguishes the uses of the place, in what is left of the Command Identifier: a completion that comes twice is not
    /// taken for the next one's.
    generation: u16,
    pub(crate) op: Op,
    pub(crate) token: u64,
    pub(crate) first_block: u64,
    pub(crate) blocks: u32,
    pub(crate) buffer: Option<Buffer>,
    pub(crate) taken_ns: u64,
    pub(crate) sent_ns: u64,
}

/// An I/O queue pair.
#[derive(Debug)]
pub(crate) struct IoQueue {
    pub(crate) ring: Ring,
    pub(crate) slots: Vec<Slot>,
    free: Vec<u16>,
    /// In the arena: a range of Dataset Management for each slot.
    pub(crate) ranges: usize,
    index_bits: u32,
}

/// Entries of the Submission Queue for `depth` commands; one always stays empty.
fn sq_entries(depth: u16) -> u16 {
    depth + 1
}

/// Of the Completion Queue: twice as many, so that its doorbell is due but once in a while.
fn cq_entries(depth: u16) -> u16 {
    (2 * sq_entries(depth)).clamp(64, 4096).max(sq_entries(depth))
}

impl IoQueue {
    /// Bytes that a queue takes in the arena, from the start of a page.
    pub(crate) fn bytes(depth: u16) -> usize {
        let [sq, cq, ranges] = Self::parts(depth);
        sq + cq + ranges
    }

    fn parts(depth: u16) -> [usize; 3] {
        [
            usize::from(sq_entries(depth)) * SQE_BYTES,
            usize::from(cq_entries(depth)) * CQE_BYTES,
            usize::from(depth) * RANGE_BYTES,
        ]
        .map(|bytes| bytes.next_multiple_of(PAGE_BYTES))
    }

    /// Queue `id` at `start` in the arena.
    pub(crate) fn new(id: u16, start: usize, depth: u16) -> Self {
        let [sq, cq, _] = Self::parts(depth);
        let slot = |_| Slot {
            state: State::Free,
            generation: 0,
            op: Op::Flush,
            token: 0,
            first_block: 0,
            blocks: 0,
            buffer: None,
            taken_ns: 0,
            sent_ns: 0,
        };
        let ring = Ring::new(id, (start, sq_entries(depth)), (start + sq, cq_entries(depth)));
        Self {
            ring,
            slots: (0..depth).map(slot).collect(),
            free: (0..depth).rev().collect(),
            ranges: start + sq + cq,
            index_bits: u32::from(depth).next_power_of_two().trailing_zeros(),
        }
    }

    /// Fits the queue to a controller whose queues have at most `entries`; to be called while nothing is taken.
    pub(crate) fn limit(&mut self, entries: u32) {
        let entries = u16::try_from(entries).unwrap_or(u16::MAX).max(2);
        self.ring.sq_entries = self.ring.sq_entries.min(entries);
        self.ring.cq_entries = self.ring.cq_entries.min(entries);
        let depth = self.ring.sq_entries - 1;
        self.slots.truncate(depth.into());
        self.free.retain(|&index| index < depth);
    }

    pub(crate) fn depth(&self) -> u16 {
        self.slots.len() as u16
    }

    pub(crate) fn taken(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Takes a request, if there is a place.
    #[inline]
    pub(crate) fn take(&mut self, now_ns: u64, request: Request) -> Result<u16, Request> {
        let Some(index) = self.free.pop() else { return Err(request) };
        let Request { token, op, first_block, blocks, buffer } = request;
        let slot = &mut self.slots[usize::from(index)];
        slot.state = State::Waiting;
        slot.op = op;
        slot.token = token;
        slot.first_block = first_block;
        slot.blocks = blocks;
        slot.buffer = buffer;
        slot.taken_ns = now_ns;
        Ok(index)
    }

    /// A place is with the controller from now on; the Command Identifier it has there.
    #[inline]
    pub(crate) fn sent(&mut self, now_ns: u64, index: u16) -> u16 {
        let generations = (1u32 << (16 - self.index_bits)) - 1;
        let slot = &mut self.slots[usize::from(index)];
        slot.state = State::UnderWay;
        slot.sent_ns = now_ns;
        // Never all ones, which some controllers take for "no command".
        let next = u32::from(slot.generation) + 1;
        slot.generation = if next >= generations { 0 } else { next as u16 };
        slot.generation << self.index_bits | index
    }

    /// The place of a command that is under way.
    #[inline]
    pub(crate) fn find(&self, command_id: u16) -> Option<u16> {
        let index = command_id & ((1u32 << self.index_bits) - 1) as u16;
        let slot = self.slots.get(usize::from(index))?;
        let is_it = slot.state == State::UnderWay
            && u32::from(slot.generation) == u32::from(command_id) >> self.index_bits;
        is_it.then_some(index)
    }

    /// Ends the use of a place.
    #[inline]
    pub(crate) fn finish(&mut self, index: u16, result: Result<(), crate::DiskError>) -> Done {
        let slot = &mut self.slots[usize::from(index)];
        slot.state = State::Free;
        self.free.push(index);
        Done { token: slot.token, buffer: slot.buffer.take(), result }
    }

    /// The controller has none of the commands any more.
    pub(crate) fn call_back(&mut self) {
        for slot in &mut self.slots {
            if slot.state == State::UnderWay {
                slot.state = State::Waiting;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(token: u64) -> Request {
        Request { token, op: Op::Flush, first_block: 0, blocks: 0, buffer: None }
    }

    #[test]
    fn an_identifier_means_one_command_and_only_while_it_is_under_way() {
        for depth in [1, 2, 3, 64, 1024, 4095] {
            let mut queue = IoQueue::new(1, 0, depth);
            let index = queue.take(0, request(1)).unwrap();
            let first = queue.sent(0, index);
            assert_eq!(queue.find(first), Some(index));
            queue.finish(index, Ok(()));
            assert_eq!(queue.find(first), None);
            let index = queue.take(0, request(2)).unwrap();
            let second = queue.sent(0, index);
            assert_eq!((queue.find(first), queue.find(second)), (None, Some(index)), "{depth}");
            assert_eq!(queue.find(0xFFFF), None);
        }
    }

    #[test]
    fn there_is_a_place_for_each_of_the_depth_and_no_more() {
        let mut queue = IoQueue::new(1, 0, 100);
        queue.limit(64);
        assert_eq!((queue.depth(), queue.ring.sq_entries, queue.ring.cq_entries), (63, 64, 64));
        let taken: Vec<u16> = (0..63).map(|token| queue.take(0, request(token)).unwrap()).collect();
        assert!(queue.take(0, request(63)).is_err());
        assert_eq!(queue.taken(), 63);
        let ids: std::collections::HashSet<u16> = taken.iter().map(|&index| queue.sent(0, index)).collect();
        assert_eq!(ids.len(), 63);
        queue.call_back();
        assert!(ids.iter().all(|&id| queue.find(id).is_none()));
        assert_eq!(queue.finish(5, Ok(())).token, 5);
    }
}
