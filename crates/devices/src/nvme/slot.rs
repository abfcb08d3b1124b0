//! Commands under way, and the Bufs they move data through. All is made at the start.

use super::bits::{MAX_BLOCK_BYTES, SQE_BYTES};
use super::command::{Command, Sqe};
use super::status::Status;
use super::transfer::Transfer;
use etherslot_pci::function::Entry;
use etherslot_storage::{Buf, MediumError};
use std::collections::VecDeque;

/// What a command is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Free,
    /// The rest of its Submission Queue Entry.
    Fetching,
    /// Its turn: commands of a queue start in order.
    Fetched,
    /// Bufs.
    Buffers,
    /// Its data from the host, and the lists that say where that is.
    Gather,
    /// The medium.
    Media,
    /// Room for its data to the host.
    Scatter,
    /// Other commands: the rest of a deleted queue, the users of a namespace that is to be formatted.
    Parked,
    /// What is still under way for it; then it is completed.
    Ending,
}

/// Some of the blocks of a command.
#[derive(Debug)]
pub(crate) struct BlockSet {
    words: Box<[u64]>,
    /// Words behind the last that is not 0.
    used: usize,
}

impl BlockSet {
    fn new(blocks: usize) -> Self {
        Self { words: vec![0; blocks.div_ceil(64)].into_boxed_slice(), used: 0 }
    }

    /// None of them.
    pub(crate) fn clear(&mut self) {
        self.words[..self.used].fill(0);
        self.used = 0;
    }

    /// One more. False if commands have fewer.
    pub(crate) fn insert(&mut self, block: usize) -> bool {
        let Some(word) = self.words.get_mut(block / 64) else { return false };
        *word |= 1 << (block % 64);
        self.used = self.used.max(block / 64 + 1);
        true
    }

    /// All of them, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.words[..self.used]
            .iter()
            .enumerate()
            .flat_map(|(at, &word)| super::engine::members(u128::from(word)).map(move |bit| at * 64 + bit))
    }
}

/// One command.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) phase: Phase,
    pub(crate) sqid: u16,
    /// Its entry's place in that queue.
    place: u32,
    pub(crate) sqe: Sqe,
    sqe_received: usize,
    pub(crate) command: Option<Command>,
    /// The first thing that went wrong.
    pub(crate) status: Status,
    /// Dword 0 of the completion.
    pub(crate) result: u32,
    /// Bufs it needs: how many, of how many bytes.
    pub(crate) need: (usize, usize),
    pub(crate) buf: Option<Buf>,
    pub(crate) other: Option<Buf>,
    /// Where its data start on a medium that is memory: a Read has no Buf, a Write only for the blocks that come in parts.
    pub(crate) on_medium: Option<u64>,
    /// Those blocks, a bit for each block of the Write.
    pub(crate) in_buf: BlockSet,
    /// The block of it that has gone out in part, by its number from there on, as it was: blocks are read as a whole or not at all,
    /// whatever is written meanwhile.
    pub(crate) begun_block: Option<u32>,
    pub(crate) begun: Box<[u8; MAX_BLOCK_BYTES]>,
    pub(crate) transfer: Transfer,
    /// Bytes of data and lists that have been asked for and not come.
    pub(crate) reads: u32,
    /// Requests that are with the medium.
    pub(crate) media: u32,
    pub(crate) medium_error: Option<MediumError>,
    /// The namespace it is counted as a user of, or 0.
    pub(crate) nsid: u32,
    /// How far a command of several Requests has come: in bytes, or in ranges.
    pub(crate) cursor: u64,
    /// Whether it stands in one of the run queues.
    pub(crate) queued: bool,
}

impl Slot {
    /// For commands of up to `max_blocks` blocks.
    pub(crate) fn new(max_blocks: usize) -> Self {
        Self {
            phase: Phase::Free,
            sqid: 0,
            place: 0,
            sqe: Sqe([0; SQE_BYTES]),
            sqe_received: 0,
            command: None,
            status: Status::SUCCESS,
            result: 0,
            need: (0, 0),
            buf: None,
            other: None,
            on_medium: None,
            in_buf: BlockSet::new(max_blocks),
            begun_block: None,
            begun: Box::new([0; MAX_BLOCK_BYTES]),
            transfer: Transfer::new(),
            reads: 0,
            media: 0,
            medium_error: None,
            nsid: 0,
            cursor: 0,
            queued: false,
        }
    }

    /// Its entry, as rules of read-ahead know it.
    pub(crate) fn entry(&self) -> Entry {
        Entry { rule: self.sqid as u8, index: self.place }
    }

    /// Begins anew, for the entry at `place` of `sqid` that has still to come.
    pub(crate) fn begin(&mut self, sqid: u16, place: u32) {
        debug_assert!(self.phase == Phase::Free && self.buf.is_none() && !self.queued);
        self.phase = Phase::Fetching;
        self.sqid = sqid;
        self.place = place;
        self.sqe_received = 0;
        self.command = None;
        self.status = Status::SUCCESS;
        self.result = 0;
        self.need = (0, 0);
        (self.reads, self.media, self.nsid, self.cursor) = (0, 0, 0, 0);
        self.medium_error = None;
        (self.on_medium, self.begun_block) = (None, None);
        self.in_buf.clear();
        self.transfer.stop();
    }

    /// All of the entry is there, in [`Slot::sqe`].
    pub(crate) fn fetched(&mut self) {
        self.sqe_received = SQE_BYTES;
        self.phase = Phase::Fetched;
    }

    /// Bytes of the entry have come. True if it is complete.
    pub(crate) fn receive(&mut self, at: usize, data: &[u8]) -> bool {
        self.sqe.0[at..at + data.len()].copy_from_slice(data);
        self.sqe_received += data.len();
        let complete = self.phase == Phase::Fetching && self.sqe_received >= SQE_BYTES;
        if complete {
            self.phase = Phase::Fetched;
        }
        complete
    }

    /// Takes note of what went wrong, if nothing did before.
    pub(crate) fn fail(&mut self, status: Status) {
        if self.status.is_success() {
            self.status = status;
        }
    }

    /// A Buf comes back from the medium.
    pub(crate) fn put_back(&mut self, buf: Buf) {
        let place = if self.buf.is_none() { &mut self.buf } else { &mut self.other };
        debug_assert!(place.is_none());
        *place = Some(buf);
    }
}

/// The Bufs: many small ones, so that small commands are not held up by the number of large ones, and the fewer the larger they are.
///
/// Who has his Bufs never waits for another, so those who wait are served in the end. Classes do not wait for each other.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Ascending; the last has room for every command.
    classes: Vec<Class>,
}

#[derive(Debug)]
struct Class {
    bytes: usize,
    free: Vec<Buf>,
    /// Slots that wait for one, the longest-waiting first.
    waiting: VecDeque<u16>,
}

impl Pool {
    /// Of each class: how many, of how many bytes; the last is as large as a command's data can be. `slots` bounds who can wait.
    pub(crate) fn new(classes: impl IntoIterator<Item = (usize, usize)>, slots: usize) -> Self {
        let class = |(count, bytes): (usize, usize)| Class {
            bytes: Buf::new(bytes).len(),
            free: (0..count).map(|_| Buf::new(bytes)).collect(),
            waiting: VecDeque::with_capacity(slots),
        };
        let classes: Vec<Class> = classes.into_iter().filter(|&(count, _)| count > 0).map(class).collect();
        debug_assert!(classes.is_sorted_by_key(|class| class.bytes));
        Self { classes }
    }

    fn class(&mut self, bytes: usize) -> &mut Class {
        let last = self.classes.len() - 1;
        let at = self.classes.iter().position(|class| bytes <= class.bytes).unwrap_or(last);
        &mut self.classes[at]
    }

    /// Bufs for `slot`, which is told to wait if there are not enough or others wait already.
    pub(crate) fn take(&mut self, index: u16, slot: &mut Slot) -> bool {
        let (count, bytes) = slot.need;
        let class = self.class(bytes);
        let turn = class.waiting.is_empty() && class.serve(count, slot);
        if !turn {
            class.waiting.push_back(index);
        }
        turn
    }

    /// The next slot that waited and now has its Bufs.
    pub(crate) fn next_served(&mut self, slots: &mut [Slot]) -> Option<u16> {
        self.classes.iter_mut().find_map(|class| {
            let index = *class.waiting.front()?;
            let slot = &mut slots[usize::from(index)];
            class.serve(slot.need.0, slot).then(|| class.waiting.pop_front())?
        })
    }

    /// `index` waits no longer.
    pub(crate) fn forget(&mut self, index: u16) {
        for class in &mut self.classes {
            class.waiting.retain(|waiting| *waiting != index);
        }
    }

    /// Nobody waits.
    pub(crate) fn forget_all(&mut self) {
        for class in &mut self.classes {
            class.waiting.clear();
        }
    }

    /// A Buf comes back.
    pub(crate) fn give(&mut self, buf: Buf) {
        self.class(buf.len()).free.push(buf);
    }
}

impl Class {
    /// All of them or none: who has one and waits for another could block another one like him.
    fn serve(&mut self, count: usize, slot: &mut Slot) -> bool {
        if self.free.len() < count {
            return false;
        }
        if count > 0 {
            slot.buf = self.free.pop();
        }
        if count > 1 {
            slot.other = self.free.pop();
        }
        true
    }
}
