//! Fetching commands, and reading memory for them: entries, lists, data.

use super::Nvme;
use super::bits::SQE_BYTES;
use super::cmb::{Cmb, Place};
use super::command::{self, Command};
use super::gather::land;
use super::queue::{Cq, InvalidDoorbellValue, Sq};
use super::registers::Shutdown;
use super::slot::{Phase, Slot};
use super::status::Status;
use etherslot_pci::function::{Bus, Entry, Fault};

/// Slots that only admin commands get: I/O can't keep the host from asking what is wrong.
const ADMIN_SLOTS: usize = 4;

/// Commands started in one poll: what they bring leaves while the next are worked on, so that the host works at the same time.
const POLL_COMMANDS: usize = 8;

/// What a read of memory is for, as the Bus hands it back.
///
/// Kind, number of the queue or slot, and the difference between a byte's place (in the Buf or window) and its address, modulo 2^32:
/// so any part of the read finds its place by its address, even if a list names a page twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Entry,
    List,
    Data,
}

impl Token {
    pub(super) fn new(purpose: Purpose, number: u16, place: u32, address: u64) -> Self {
        let difference = place.wrapping_sub(address as u32);
        Self((purpose as u64) << 48 | u64::from(number) << 32 | u64::from(difference))
    }

    fn purpose(self) -> Purpose {
        match self.0 >> 48 {
            0 => Purpose::Entry,
            1 => Purpose::List,
            _ => Purpose::Data,
        }
    }

    fn number(self) -> usize {
        usize::from((self.0 >> 32) as u16)
    }

    fn place(self, address: u64) -> u32 {
        (address as u32).wrapping_add(self.0 as u32)
    }
}

/// A set of queues, by their ID.
pub(crate) type Set = u128;

/// The queues; 0 is the admin pair.
pub(crate) struct Queues {
    pub(crate) sqs: Vec<Option<Sq>>,
    pub(crate) cqs: Vec<Option<Cq>>,
    /// Submission Queues with entries to be fetched, and with fetched ones to be started.
    pub(crate) news: Set,
    pub(crate) fetched: Set,
    /// Completion Queues with entries to be written, with an interrupt to be sent, and with one that is held back.
    pub(crate) staged: Set,
    pub(crate) signal: Set,
    pub(crate) held: Set,
    /// Whose turn it is to be fetched from.
    turn: usize,
}

/// The members of a set, ascending.
pub(crate) fn members(mut set: Set) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let first = (set != 0).then(|| set.trailing_zeros() as usize)?;
        set &= set - 1;
        Some(first)
    })
}

impl Queues {
    pub(crate) fn new(pairs: u16) -> Self {
        let count = usize::from(pairs) + 1;
        Self {
            sqs: (0..count).map(|_| None).collect(),
            cqs: (0..count).map(|_| None).collect(),
            news: 0,
            fetched: 0,
            staged: 0,
            signal: 0,
            held: 0,
            turn: 0,
        }
    }

    /// None is left.
    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.sqs.len() as u16 - 1);
    }

    pub(crate) fn sq(&mut self, qid: u16) -> Option<&mut Sq> {
        self.sqs.get_mut(usize::from(qid))?.as_mut()
    }

    pub(crate) fn cq(&mut self, qid: u16) -> Option<&mut Cq> {
        self.cqs.get_mut(usize::from(qid))?.as_mut()
    }

    /// The Completion Queue of Submission Queue `qid`.
    pub(crate) fn cq_of(&mut self, qid: u16) -> Option<(u16, &mut Cq)> {
        let cqid = self.sq(qid)?.cqid;
        Some((cqid, self.cq(cqid)?))
    }

    /// Whether no queue has anything to be fetched, started, written or signalled.
    pub(crate) fn is_quiet(&self) -> bool {
        self.news | self.fetched | self.staged | self.signal | self.held == 0
    }

    /// Whether any queue but the admin pair exists.
    pub(crate) fn has_io(&self) -> bool {
        self.sqs[1..].iter().any(Option::is_some) || self.cqs[1..].iter().any(Option::is_some)
    }

    pub(crate) fn ring_submission(
        &mut self,
        qid: usize,
        tail: u32,
    ) -> Option<Result<(), InvalidDoorbellValue>> {
        let sq = self.sqs.get_mut(qid)?.as_mut()?;
        let rung = sq.ring(tail);
        if sq.has_news() && sq.deleted_by.is_none() {
            self.news |= 1 << qid;
        }
        Some(rung)
    }

    pub(crate) fn ring_completion(
        &mut self,
        qid: usize,
        head: u32,
    ) -> Option<Result<(), InvalidDoorbellValue>> {
        Some(self.cqs.get_mut(qid)?.as_mut()?.ring(head))
    }

    /// Bytes of entries have come: they go to their slots.
    fn deliver(&mut self, qid: usize, slots: &mut [Slot], mut address: u64, mut data: &[u8]) {
        let Some(Some(sq)) = self.sqs.get_mut(qid) else { return };
        while !data.is_empty() {
            let Some((slot, at, room)) = sq.locate(address) else { return };
            let (now, later) = data.split_at(room.min(data.len()));
            if slots[usize::from(slot)].receive(at, now) {
                self.fetched |= 1 << qid;
            }
            address += now.len() as u64;
            data = later;
        }
    }
}

/// How a step with the bus went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// As far as it goes for now.
    Done,
    /// It would go on if there were room.
    NoRoom,
    /// It is another's turn.
    Turn,
}

impl Nvme {
    /// Asks for the entries that hosts have put into their queues, in turn (4.13.1: round robin).
    pub(super) fn fetch(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while self.queues.news != 0 && self.registers.shutdown == Shutdown::None {
            let mut progress = false;
            let (count, first) = (self.queues.sqs.len(), self.queues.turn);
            for qid in (first..count).chain(0..first) {
                if self.queues.news & 1 << qid == 0 {
                    continue;
                }
                match self.fetch_from(qid, bus) {
                    Some(0) => {
                        self.queues.turn = qid;
                        return any;
                    }
                    Some(_) => {
                        self.queues.turn = (qid + 1) % count;
                        progress = true;
                    }
                    None => {}
                }
            }
            any |= progress;
            if !progress {
                break;
            }
        }
        any
    }

    /// One turn of a queue: how many bytes were asked for, if it can have any now.
    fn fetch_from(&mut self, qid: usize, bus: &mut dyn Bus) -> Option<usize> {
        let queues = &mut self.queues;
        let sq = queues.sqs[qid].as_mut()?;
        let cq = queues.cqs[usize::from(sq.cqid)].as_mut()?;
        let spare_slots =
            if qid == 0 { self.free.len() } else { self.free.len().saturating_sub(ADMIN_SLOTS) };
        let mut entries = self.features.burst().min(cq.spare()).min(spare_slots as u32);
        if sq.deleted_by.is_some() {
            // Only the rest of an entry that is half fetched.
            entries = 0;
        }
        let taken = take_entries(qid, sq, cq, (&mut self.free, &mut self.slots), entries, &self.cmb, bus);
        if taken > 0 {
            queues.fetched |= 1 << qid;
            if !sq.has_news() {
                queues.news &= !(1 << qid);
            }
            return Some(taken);
        }
        let span = sq.wanted(entries)?;
        let place = self.cmb.place(span.address, span.bytes as usize);
        let asked = match &place {
            Place::Inside(range) => range.len(),
            Place::Outside(bytes) => {
                let token = Token::new(Purpose::Entry, qid as u16, 0, 0);
                let asked = bus.read(span.address, *bytes, token.0).min(*bytes);
                self.reads_outstanding += asked as u64;
                asked
            }
        };
        let (free, slots) = (&mut self.free, &mut self.slots);
        sq.asked(asked as u32, |place| {
            let slot = free.pop().expect("no more entries are asked for than slots are free");
            slots[usize::from(slot)].begin(qid as u16, place);
            cq.reserve();
            slot
        });
        if !sq.has_news() {
            queues.news &= !(1 << qid);
        }
        if let Place::Inside(range) = place {
            queues.deliver(qid, slots, span.address, self.cmb.at(range));
        }
        Some(asked)
    }

    /// Starts what has been fetched, in the order of each queue; some of it, if it is much.
    pub(super) fn start_fetched(&mut self) -> bool {
        let mut left = POLL_COMMANDS;
        for qid in members(std::mem::take(&mut self.queues.fetched)) {
            while let Some(sq) = self.queues.sqs[qid].as_mut() {
                let Some(index) = sq.first() else { break };
                if self.slots[usize::from(index)].phase != Phase::Fetched {
                    break;
                }
                if left == 0 {
                    self.queues.fetched |= 1 << qid;
                    break;
                }
                left -= 1;
                sq.advance();
                self.start(index);
            }
        }
        left != POLL_COMMANDS
    }

    fn start(&mut self, index: u16) {
        if self.slots[usize::from(index)].sqid != 0 {
            self.io_began();
        }
        let slot = &mut self.slots[usize::from(index)];
        let parsed =
            if slot.sqid == 0 { command::parse_admin(&slot.sqe) } else { command::parse_io(&slot.sqe) };
        match parsed {
            Ok(command) => {
                slot.command = Some(command);
                match command {
                    Command::Io(nsid, io) => self.start_io(index, nsid, io),
                    Command::Admin(admin) => self.start_admin(index, admin),
                }
            }
            Err(status) => self.end(index, status),
        }
    }

    /// Bufs for command `index`, at once or when it is its turn; then it goes on with [`Nvme::equipped`].
    pub(super) fn equip(&mut self, index: u16, count: usize, bytes: usize) {
        let slot = &mut self.slots[usize::from(index)];
        slot.phase = Phase::Buffers;
        slot.need = (count, bytes);
        if self.pool.take(index, slot) {
            self.equipped(index);
        }
    }

    /// Commands that waited for Bufs get those that have come back.
    pub(super) fn serve_waiting(&mut self) -> bool {
        let mut any = false;
        while let Some(index) = self.pool.next_served(&mut self.slots) {
            self.equipped(index);
            any = true;
        }
        any
    }

    /// The command has its Bufs.
    fn equipped(&mut self, index: u16) {
        match self.slots[usize::from(index)].command {
            Some(Command::Io(_, io)) => self.go_io(index, io),
            Some(Command::Admin(admin)) => self.go_admin(index, admin),
            None => self.end(index, Status::INTERNAL_ERROR),
        }
    }

    /// The data from the host have come.
    pub(super) fn gathered(&mut self, index: u16) {
        match self.slots[usize::from(index)].command {
            Some(Command::Io(nsid, io)) => self.gathered_io(index, nsid, io),
            Some(Command::Admin(admin)) => self.gathered_admin(index, admin),
            None => self.end(index, Status::INTERNAL_ERROR),
        }
    }

    /// Puts `index` in line for reading memory.
    pub(super) fn want_reading(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        if !std::mem::replace(&mut slot.queued, true) {
            self.reading.push_back(index);
        }
    }

    /// Puts `index` in line for writing memory.
    pub(super) fn want_writing(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        if !std::mem::replace(&mut slot.queued, true) {
            self.writing.push_back(index);
        }
    }

    /// The data of command `index` go from memory to its Buf.
    pub(super) fn gather(&mut self, index: u16) {
        self.slots[usize::from(index)].phase = Phase::Gather;
        self.want_reading(index);
    }

    /// The data of command `index` go from its Buf to memory.
    pub(super) fn scatter(&mut self, index: u16) {
        self.slots[usize::from(index)].phase = Phase::Scatter;
        self.want_writing(index);
    }

    /// Reads memory for whom it is needed.
    pub(super) fn run_reading(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while let Some(index) = self.reading.pop_front() {
            self.slots[usize::from(index)].queued = false;
            let before = self.reads_outstanding;
            let step = match self.slots[usize::from(index)].phase {
                Phase::Gather => self.gather_step(index, bus),
                Phase::Media | Phase::Scatter => self.list_step(index, bus),
                _ => Step::Done,
            };
            any |= self.reads_outstanding > before;
            if step == Step::NoRoom {
                self.slots[usize::from(index)].queued = true;
                self.reading.push_front(index);
                break;
            }
            any = true;
        }
        any
    }

    /// Gets the list of a command to the host while the medium is busy with it.
    fn list_step(&mut self, index: u16, bus: &mut dyn Bus) -> Step {
        let slot = &mut self.slots[usize::from(index)];
        if !ask_for_list(index, slot, &self.cmb, bus, &mut self.reads_outstanding) {
            return Step::NoRoom;
        }
        if slot.phase == Phase::Scatter {
            self.want_writing(index);
        }
        Step::Done
    }

    /// Part of a read has ended.
    pub(super) fn memory_arrived(
        &mut self,
        token: Token,
        address: u64,
        bytes: usize,
        result: Result<&[u8], Fault>,
    ) {
        let result = result.ok().filter(|data| data.len() == bytes);
        if token.purpose() == Purpose::Entry {
            match result {
                Some(data) => self.queues.deliver(token.number(), &mut self.slots, address, data),
                // A queue that can't be read leaves no way to say so but this (9.5).
                None => self.fatal("a Submission Queue can't be read"),
            }
            return;
        }
        let Some(slot) = self.slots.get_mut(token.number()) else { return };
        let index = token.number() as u16;
        let at = token.place(address);
        match (token.purpose(), result) {
            (_, None) => slot.fail(Status::DATA_TRANSFER_ERROR),
            (Purpose::List, Some(data)) => slot.transfer.received(at, data),
            // Nothing lands for a command that has failed.
            (_, Some(data)) => {
                let lands = slot.phase == Phase::Gather && slot.status.is_success();
                if lands && !land(slot, &mut self.namespaces, at as usize, data) {
                    slot.fail(Status::INTERNAL_ERROR);
                }
            }
        }
        slot.reads = slot.reads.saturating_sub(bytes as u32);
        let failed = !slot.status.is_success();
        let is_list = token.purpose() == Purpose::List;
        match slot.phase {
            Phase::Gather if slot.reads == 0 || is_list || failed => self.want_reading(index),
            Phase::Scatter if failed => {
                let status = slot.status;
                self.end(index, status);
            }
            Phase::Scatter => self.want_writing(index),
            Phase::Ending if slot.reads == 0 => {
                let status = slot.status;
                self.end(index, status);
            }
            _ => {}
        }
    }

    /// Whether the host has a volatile write cache to flush: if not, every write is durable.
    pub(super) fn is_write_through(&self) -> bool {
        !self.features.write_cache()
    }
}

/// Takes up to `entries` entries that have come along with their doorbell; how many bytes.
fn take_entries(
    qid: usize,
    sq: &mut Sq,
    cq: &mut Cq,
    (free, slots): (&mut Vec<u16>, &mut [Slot]),
    entries: u32,
    cmb: &Cmb,
    bus: &mut dyn Bus,
) -> usize {
    let mut taken = 0;
    while taken < entries as usize * SQE_BYTES
        && let (Some(index), Some(&slot)) = (sq.next_entry(), free.last())
        && matches!(
            cmb.place(sq.base + u64::from(index) * SQE_BYTES as u64, SQE_BYTES),
            Place::Outside(SQE_BYTES)
        )
    {
        let fetched = &mut slots[usize::from(slot)];
        if bus.take_entries(Entry { rule: qid as u8, index }, &mut fetched.sqe.0) < SQE_BYTES {
            break;
        }
        free.pop();
        fetched.begin(qid as u16, index);
        fetched.fetched();
        cq.reserve();
        sq.asked(SQE_BYTES as u32, |_| slot);
        taken += SQE_BYTES;
    }
    taken
}

/// Asks for what is missing of the list of `slot`. False if there is no room.
pub(super) fn ask_for_list(
    index: u16,
    slot: &mut Slot,
    cmb: &Cmb,
    bus: &mut dyn Bus,
    outstanding: &mut u64,
) -> bool {
    while let Some((address, bytes)) = slot.transfer.wants_list() {
        let at = slot.transfer.window_at();
        match cmb.place(address, bytes as usize) {
            Place::Inside(range) => {
                slot.transfer.asked(range.len() as u32);
                slot.transfer.received(at, cmb.at(range));
            }
            Place::Outside(bytes) => {
                let (entry, transfer) = (slot.entry(), &mut slot.transfer);
                let taken = bus.take_for(entry, address, bytes, &mut |list| {
                    transfer.asked(list.len() as u32);
                    transfer.received(at, list);
                });
                if taken > 0 {
                    continue;
                }
                let token = Token::new(Purpose::List, index, at, address);
                let asked = bus.read(address, bytes, token.0).min(bytes);
                slot.transfer.asked(asked as u32);
                slot.reads += asked as u32;
                *outstanding += asked as u64;
                if asked < bytes {
                    return false;
                }
            }
        }
    }
    true
}
