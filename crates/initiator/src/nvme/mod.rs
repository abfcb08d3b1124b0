//! An NVMe driver (NVM Express Base Specification 1.4, over PCIe), as a state machine that is polled.
//!
//! The way of a request: it takes a place in a queue, its entry goes to the Submission Queue (`sqe`, `ring`), the doorbell is
//! rung once for all that was submitted in a round, completions are taken in the round in which they came. Buffers, PRP lists
//! and queues lie in the arena from the start; nothing is allocated for a request.
//!
//! `bring_up` starts a controller and starts it again after every loss and reset, `watch` sees when that is due, `shutdown` ends it; the requests that were under way are
//! submitted again then. That is safe because a controller that was reset has none of them, and because each of
//! them does the same when it is done twice. A buffer goes back to its user only when no controller can reach it.

mod admin;
mod bits;
mod bring_up;
mod config;
mod identify;
mod queue;
mod ring;
mod shutdown;
mod sqe;
mod watch;

use std::fmt;

pub use config::{Config, Counters, DataPointers, Failure, Submission};
pub use identify::{ControllerData, NamespaceData};

use crate::arena::Arena;
use crate::disk::{DiskError, DiskInfo, Done, Op, Reason, Refused, Request};
use crate::machine::Machine;
use crate::pool::{Buffer, PAGE_BYTES, Pool, Space};
use bits::{Capabilities, SQE_BYTES};
use bring_up::Step;
use queue::{IoQueue, State};
use ring::{Completion, Entries, Ring};
use sqe::{DataPointer, Sqe};

/// Entries of the admin queues.
const ADMIN_ENTRIES: u16 = 64;
/// Where the admin queues and what Identify brings are in the arena.
const ADMIN_SQ: usize = 0;
const ADMIN_CQ: usize = PAGE_BYTES;
const IDENTIFY: usize = 2 * PAGE_BYTES;
const QUEUES: usize = 3 * PAGE_BYTES;
/// Entries of a page of a PRP list.
const PRP_ENTRIES: usize = PAGE_BYTES / 8;
/// Up to here a PRP list is the same for transfers of any length: its first page names pages of data, and no other page of it.
const SHARED_LIST_BYTES: usize = PRP_ENTRIES * PAGE_BYTES;

/// Data of small writes that one doorbell takes along: two of 4 KiB fill a frame of 9000 bytes with their entries and doorbell.
const ALONG_BYTES: usize = 8192;

const _: () = assert!(ADMIN_ENTRIES as usize * SQE_BYTES <= PAGE_BYTES);

/// A driver and what it knows of its controller.
#[derive(Debug)]
pub(crate) struct Controller {
    config: Config,
    step: Step,
    /// How often the device had come and gone when it was last looked at.
    lives: u64,
    capabilities: Capabilities,
    failure: Option<Failure>,
    identity: Option<ControllerData>,
    namespaces: Vec<NamespaceData>,
    info: DiskInfo,
    /// The controller was ready once, so `info` is as it is.
    known: bool,
    sgls: bool,
    admin: Ring,
    /// Of the Admin command under way.
    admin_id: u16,
    /// A register access or an Admin command is under way.
    asked: bool,
    asked_ns: u64,
    queues: Vec<IoQueue>,
    /// How many of them the controller has granted.
    active: usize,
    next: usize,
    /// Bytes of small writes since the doorbells were rung last.
    along_bytes: usize,
    pool: Pool,
    /// Memory beyond ours that requests may name.
    space: Option<Space>,
    /// Where in the arena the buffers' PRP lists are, 0 where one needs none: those of the pool, then those of the space.
    prp_lists: Vec<usize>,
    /// What ended without a completion.
    ended: Vec<Done>,
    check_ns: u64,
    quiet_since_ns: u64,
    quiet_at: u64,
    pub(crate) counters: Counters,
}

impl Controller {
    /// A driver, and the memory that it and its device share.
    pub(crate) fn new(config: Config, space: Option<Space>) -> (Self, Arena) {
        let config = config.clamped();
        let depth = config.queue_depth;
        let start = |queue: u16| QUEUES + usize::from(queue) * IoQueue::bytes(depth);
        let queues: Vec<IoQueue> =
            (0..config.queues).map(|queue| IoQueue::new(queue + 1, start(queue), depth)).collect();
        let lists_start = start(config.queues);
        let in_pool: usize =
            Pool::new(0, &config.buffers).iter().map(|buffer| list_pages(buffer.bytes())).sum();
        let in_space = space.map_or(0, |space| space.pieces * list_pages(space.piece_bytes));
        let pool = Pool::new(lists_start + (in_pool + in_space) * PAGE_BYTES, &config.buffers);
        let mut arena = Arena::new(pool.end());
        let mut prp_lists = vec![0; pool.count()];
        let mut list = lists_start;
        let mut describe = |buffer: &Buffer| {
            let pages = list_pages(buffer.bytes());
            if pages == 0 {
                return 0;
            }
            write_list(&mut arena, list, buffer.address, buffer.bytes());
            list += pages * PAGE_BYTES;
            list - pages * PAGE_BYTES
        };
        for buffer in pool.iter() {
            prp_lists[buffer.index as usize] = describe(buffer);
        }
        if let Some(space) = space {
            prp_lists.extend((0..space.pieces).map(|piece| describe(&space.buffer(piece, 0))));
        }
        let requests = queues.iter().map(|queue| usize::from(queue.depth())).sum();
        let controller = Self {
            step: Step::Away,
            lives: 0,
            capabilities: Capabilities::default(),
            failure: None,
            identity: None,
            namespaces: Vec::new(),
            info: unknown(),
            known: false,
            sgls: false,
            admin: Ring::new(0, (ADMIN_SQ, ADMIN_ENTRIES), (ADMIN_CQ, ADMIN_ENTRIES)),
            admin_id: 0,
            asked: false,
            asked_ns: 0,
            queues,
            active: 0,
            next: 0,
            along_bytes: 0,
            pool,
            space,
            prp_lists,
            ended: Vec::with_capacity(requests),
            check_ns: 0,
            quiet_since_ns: 0,
            quiet_at: 0,
            counters: Counters::default(),
            config,
        };
        (controller, arena)
    }

    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.step, Step::Ready)
    }

    /// Whether completions may come.
    fn is_at_work(&self) -> bool {
        matches!(self.step, Step::Ready | Step::ShutDown { .. })
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    pub(crate) fn info(&self) -> &DiskInfo {
        &self.info
    }

    pub(crate) fn controller_data(&self) -> Option<&ControllerData> {
        self.identity.as_ref()
    }

    pub(crate) fn namespaces(&self) -> &[NamespaceData] {
        &self.namespaces
    }

    pub(crate) fn pool_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// A piece of the space, to be named in a request. Its one user sees to it that it is in one request at a time.
    pub(crate) fn piece(&self, piece: usize) -> Option<Buffer> {
        let space = self.space.filter(|space| piece < space.pieces)?;
        Some(space.buffer(piece, self.pool.count() + piece))
    }

    /// The most that one request's data can have.
    fn largest_buffer(&self) -> usize {
        self.pool.largest().max(self.space.map_or(0, |space| space.piece_bytes))
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.queues.iter().map(IoQueue::taken).sum::<usize>() + self.ended.len()
    }

    /// Takes a request; if the controller is ready, its entry goes to a queue, else it waits.
    #[inline]
    pub(crate) fn submit(&mut self, now_ns: u64, arena: &mut Arena, request: Request) -> Result<(), Refused> {
        if let Err(reason) = request.check(&self.info) {
            return Err(Refused { request, reason });
        }
        let mut request = request;
        for _ in 0..self.active {
            let at = self.next;
            self.next = if at + 1 < self.active { at + 1 } else { 0 };
            match self.queues[at].take(now_ns, request) {
                Ok(index) => {
                    self.counters.submitted += 1;
                    if self.is_ready() {
                        self.send(now_ns, arena, at, index);
                    }
                    return Ok(());
                }
                Err(back) => request = back,
            }
        }
        Err(Refused { request, reason: Reason::Full })
    }

    /// Writes the entry of a place that was taken.
    #[inline]
    fn send(&mut self, now_ns: u64, arena: &mut Arena, at: usize, index: u16) {
        let (nsid, block_bytes) = (self.config.nsid, self.info.block_bytes as usize);
        let slot = &self.queues[at].slots[usize::from(index)];
        let data = slot.buffer.as_ref().map_or(DataPointer::None, |buffer| {
            self.data_pointer(arena, buffer, slot.blocks as usize * block_bytes)
        });
        let sqe = match slot.op {
            Op::Read => Sqe::read(nsid, slot.first_block, slot.blocks, data),
            Op::Write { durable } => Sqe::write(nsid, slot.first_block, slot.blocks, durable, data),
            Op::Compare => Sqe::compare(nsid, slot.first_block, slot.blocks, data),
            Op::Flush => Sqe::flush(nsid),
            Op::WriteZeroes { unmap } => Sqe::write_zeroes(nsid, slot.first_block, slot.blocks, unmap),
            Op::Discard => {
                let range = self.queues[at].ranges + usize::from(index) * bits::RANGE_BYTES;
                let described = sqe::range(slot.first_block, slot.blocks);
                arena.at_mut(range, bits::RANGE_BYTES).copy_from_slice(&described);
                Sqe::deallocate(nsid, Arena::address(range))
            }
        };
        let (bytes, is_write) = (slot.blocks as usize * block_bytes, matches!(slot.op, Op::Write { .. }));
        if is_write && bytes <= ALONG_BYTES {
            self.along_bytes += bytes;
        }
        let queue = &mut self.queues[at];
        let command_id = queue.sent(now_ns, index);
        queue.ring.push(arena, &sqe.identified(command_id));
    }

    /// Whether the doorbells should be rung before more is submitted: data of small writes go along with their doorbell, and the box takes
    /// them from the frame in which that comes.
    #[inline]
    pub(crate) fn fills_frame(&self) -> bool {
        self.along_bytes >= ALONG_BYTES
    }

    #[inline]
    fn data_pointer(&self, arena: &mut Arena, buffer: &Buffer, bytes: usize) -> DataPointer {
        let address = buffer.address;
        if bytes <= PAGE_BYTES {
            DataPointer::Prp(address, 0)
        } else if bytes <= 2 * PAGE_BYTES {
            DataPointer::Prp(address, address + PAGE_BYTES as u64)
        } else if self.sgls {
            DataPointer::Sgl(address, bytes as u32)
        } else {
            let list = self.prp_lists[buffer.index as usize];
            if bytes > SHARED_LIST_BYTES {
                write_list(arena, list, address, bytes);
            }
            DataPointer::Prp(address, Arena::address(list))
        }
    }

    /// Rings the doorbells that are due, as far as there is room.
    #[inline]
    pub(crate) fn ring<A: Copy + Eq + fmt::Display>(&mut self, machine: &mut Machine<'_, A>) {
        self.along_bytes = 0;
        for queue in &mut self.queues[..self.active] {
            if queue.ring.is_due() && matches!(self.step, Step::Ready) {
                self.counters.doorbells += u64::from(queue.ring.ring(machine));
            }
        }
    }

    /// Hands over what is done; how many that were.
    #[inline]
    pub(crate) fn poll(&mut self, arena: &Arena, messages: u64, done: &mut dyn FnMut(Done)) -> usize {
        let mut count = self.ended.len();
        self.ended.drain(..).for_each(&mut *done);
        if self.is_at_work() {
            count += self.reap(arena, messages, done);
        }
        count
    }

    /// Takes completions from the queues whose messages have come, or from all.
    #[inline]
    fn reap(&mut self, arena: &Arena, messages: u64, done: &mut dyn FnMut(Done)) -> usize {
        let mut count = 0;
        for queue in &mut self.queues[..self.active] {
            if self.config.interrupts && messages >> (queue.ring.id % 64) & 1 == 0 {
                continue;
            }
            // No more than its entries: a controller that writes on and on does not hold us here.
            for _ in 0..queue.ring.cq_entries {
                let Some(completion) = queue.ring.pop(arena) else { break };
                let Completion { queue: id, command_id, status, .. } = completion;
                let Some(index) = queue.find(command_id).filter(|_| id == queue.ring.id) else {
                    self.counters.stray_completions += 1;
                    continue;
                };
                let result = if status == crate::Status::SUCCESS {
                    self.counters.completed += 1;
                    Ok(())
                } else {
                    self.counters.failed += 1;
                    Err(DiskError::Status(status))
                };
                count += 1;
                done(queue.finish(index, result));
            }
        }
        count
    }

    /// No controller can reach our memory now: what was under way waits for the next start.
    fn call_back(&mut self) {
        for queue in &mut self.queues {
            queue.call_back();
        }
    }

    /// Ends the requests that wait, and `is_due` says of which.
    fn end_waiting(&mut self, error: DiskError, is_due: impl Fn(&queue::Slot) -> bool) {
        for queue in &mut self.queues {
            for index in 0..queue.depth() {
                let slot = &queue.slots[usize::from(index)];
                if slot.state == State::Waiting && is_due(slot) {
                    self.counters.failed += 1;
                    self.ended.push(queue.finish(index, Err(error)));
                }
            }
        }
    }
}

/// Pages of the PRP list of a transfer of so many bytes, from the start of a page on.
fn list_pages(bytes: usize) -> usize {
    match bytes.div_ceil(PAGE_BYTES) {
        0..=2 => 0,
        // The last page of a list is filled with pages of data, each of the others goes on in the next.
        pages => (pages - 2).div_ceil(PRP_ENTRIES - 1),
    }
}

/// Writes the PRP list of a transfer of `bytes` from `address` on, the start of a page, to the pages of the arena from `list` on.
fn write_list(arena: &mut Arena, list: usize, address: u64, bytes: usize) {
    let mut pages = (1..bytes.div_ceil(PAGE_BYTES)).map(|page| address + (page * PAGE_BYTES) as u64);
    let mut at = list;
    while pages.len() != 0 {
        let goes_on = pages.len() > PRP_ENTRIES;
        let here = if goes_on { PRP_ENTRIES - 1 } else { pages.len() };
        let next = goes_on.then(|| Arena::address(at + PAGE_BYTES));
        let entries = pages.by_ref().take(here).chain(next);
        for (place, entry) in arena.at_mut(at, PAGE_BYTES).chunks_exact_mut(8).zip(entries) {
            place.copy_from_slice(&entry.to_le_bytes());
        }
        at += PAGE_BYTES;
    }
}

/// Before a controller has told.
fn unknown() -> DiskInfo {
    DiskInfo {
        block_bytes: 512,
        blocks: 0,
        max_transfer_bytes: 0,
        max_zero_blocks: 0,
        max_discard_blocks: 0,
        queue_depth: 0,
        read_only: true,
        volatile_cache: false,
        can_discard: false,
        can_write_zeroes: false,
        can_compare: false,
        discard_zeroes: false,
        serial: String::new(),
        model: String::new(),
        firmware: String::new(),
    }
}
