//! What both controllers have at each port: commands under way, their data between memory and disk.
//!
//! A controller has a slot fetch what it needs to know of a command into the slot's window ([`Channel::fetch`]), is told when it is there
//! ([`Event::Fetched`]), and hands the command to the disk ([`Channel::issue`]); it is told when that has ended ([`Event::Ended`]).
//! Slots and Bufs are made at the start. When commands are given up nothing new begins until the last read of memory and the
//! last Request to the medium have ended: nothing of the old ones can touch a Buf or a sector of the next.

use super::command::Protocol;
use super::disk::{CHUNK_BYTES, Disk, Job, SLOTS, Step};
use super::fis::{Registers, Taskfile, error};
use super::list::{List, Next};
use etherslot_pci::function::{Bus, Fault};
use etherslot_storage::{Buf, Done};
use std::collections::VecDeque;

/// What a read of memory is for, as the Bus hands it back: port, purpose, slot, and the difference between a byte's place and its
/// address, modulo 2^32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

impl Token {
    fn new(port: u8, is_data: bool, slot: u8, place: u32, address: u64) -> Self {
        let head = u64::from(port) << 16 | u64::from(is_data) << 8 | u64::from(slot);
        Self(head << 32 | u64::from(place.wrapping_sub(address as u32)))
    }

    /// Whose it is.
    pub(crate) fn port(self) -> usize {
        usize::from((self.0 >> 48) as u8)
    }

    fn is_data(self) -> bool {
        self.0 >> 40 & 1 != 0
    }

    fn slot(self) -> u8 {
        (self.0 >> 32) as u8
    }

    fn place(self, address: u64) -> u32 {
        (address as u32).wrapping_add(self.0 as u32)
    }
}

/// Where something went wrong that is not the disk's matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The command could not be read.
    Fetch(Fault),
    /// The list could not.
    List(Fault),
    /// The list leads nowhere.
    BadList,
    /// The data could not be read.
    Data(Fault),
    /// The list is shorter than the data to the host, or
    Overrun,
    /// than those from the host.
    Underrun,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Good(Registers),
    /// The disk has an error to tell.
    Failed(Registers),
    Trouble(Trouble),
}

/// What a controller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Fetched(u8),
    Ended(u8, End),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Free,
    /// What the controller wants to know of it is on its way.
    Fetch,
    /// With the controller.
    Held,
    /// Its turn.
    Waiting,
    /// Its data are to come from memory: so many bytes.
    Gather(u32),
    /// The medium.
    Media,
    /// Its data are to go to memory: so many bytes.
    Scatter(u32),
    /// Reads that are under way for it; then it has ended so.
    Ending(End),
}

/// One command.
pub(crate) struct Slot {
    phase: Phase,
    pub(crate) list: List,
    pub(crate) job: Option<Job>,
    buf: Option<Buf>,
    /// Bytes of the part under way that are moved, or asked for; and all bytes that were.
    at: u32,
    pub(crate) moved: u32,
    /// Bytes that have been asked for and not come.
    reads: u32,
    trouble: Option<Trouble>,
    is_queued: bool,
}

pub(crate) struct Channel {
    port: u8,
    pub(crate) disk: Option<Disk>,
    slots: Vec<Slot>,
    /// Slots that want something of the bus. What lacks room in one direction does not hold up the other.
    reading: VecDeque<u8>,
    writing: VecDeque<u8>,
    /// Slots with commands that the disk does not have yet.
    waiting: VecDeque<u8>,
    events: VecDeque<Event>,
    /// Commands that the disk has: queued ones, and one that is not.
    queued: u32,
    single: Option<u8>,
    /// Bytes asked for from memory that have not come.
    reads_outstanding: u64,
    /// Commands were given up that something is still under way for.
    is_draining: bool,
    /// Filled while the medium is polled, then emptied.
    done: Vec<Done>,
}

impl Channel {
    pub(crate) fn new(port: u8, disk: Option<Disk>) -> Self {
        let slot = |_| Slot {
            phase: Phase::Free,
            list: List::new(),
            job: None,
            buf: Some(Buf::new(CHUNK_BYTES as usize)),
            at: 0,
            moved: 0,
            reads: 0,
            trouble: None,
            is_queued: false,
        };
        Self {
            port,
            disk,
            slots: (0..SLOTS).map(slot).collect(),
            reading: VecDeque::with_capacity(SLOTS),
            writing: VecDeque::with_capacity(SLOTS),
            waiting: VecDeque::with_capacity(SLOTS),
            events: VecDeque::with_capacity(SLOTS),
            queued: 0,
            single: None,
            reads_outstanding: 0,
            is_draining: false,
            done: Vec::with_capacity(SLOTS),
        }
    }

    pub(crate) fn slot(&mut self, slot: u8) -> &mut Slot {
        &mut self.slots[usize::from(slot)]
    }

    /// Whether the slot can take a command.
    pub(crate) fn is_free(&self, slot: u8) -> bool {
        self.slots[usize::from(slot)].phase == Phase::Free
    }

    /// Whether nothing is left of commands that were given up, so that others can begin.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_draining
    }

    /// Whether nothing is under way at all.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_draining
            && self.reads_outstanding == 0
            && self.events.is_empty()
            && self.slots.iter().all(|slot| slot.phase == Phase::Free)
            && self.disk.as_ref().is_none_or(Disk::is_quiet)
    }

    /// Begins with a free slot: `bytes` bytes from `address` on into its window.
    pub(crate) fn begin(&mut self, slot: u8, address: u64, bytes: u32) {
        let this = self.slot(slot);
        debug_assert!(this.phase == Phase::Free && this.reads == 0);
        (this.job, this.trouble, this.is_queued) = (None, None, false);
        (this.at, this.moved) = (0, 0);
        self.fetch(slot, address, bytes);
    }

    /// Goes on with another part.
    pub(crate) fn fetch(&mut self, slot: u8, address: u64, bytes: u32) {
        let this = self.slot(slot);
        this.phase = Phase::Fetch;
        this.list.fetch(address, bytes);
        self.reading.push_back(slot);
    }

    /// The command of a slot is `taskfile`; its list has begun.
    pub(crate) fn issue(&mut self, slot: u8, taskfile: &Taskfile) {
        let Some(disk) = &mut self.disk else {
            return self.end(slot, End::Failed(Registers::failed(taskfile, error::ABRT)));
        };
        let job = disk.accept(taskfile);
        let this = self.slot(slot);
        match job {
            Ok(job) => {
                this.is_queued = matches!(job.protocol, Protocol::Queued(_));
                this.job = Some(job);
                this.phase = Phase::Waiting;
                self.waiting.push_back(slot);
                self.start_waiting();
            }
            Err(registers) => {
                // 60h and 61h: whatever is wrong with them is told as an error of a queued command.
                this.is_queued = matches!(taskfile.command, 0x60 | 0x61);
                self.end(slot, End::Failed(registers));
            }
        }
    }

    /// Whether the command of a slot is a queued one.
    pub(crate) fn is_queued(&self, slot: u8) -> bool {
        self.slots[usize::from(slot)].is_queued
    }

    /// The slot is of no more use to the controller.
    pub(crate) fn vacate(&mut self, slot: u8) {
        self.slot(slot).phase = Phase::Free;
    }

    /// Hands commands to the disk: queued ones all at once, others one by one. One that comes while queued ones are under way ends them
    /// all (SATA 3.x, 13.6.3).
    fn start_waiting(&mut self) {
        while let Some(&slot) = self.waiting.front() {
            let is_queued = self.is_queued(slot);
            if self.single.is_some() {
                return;
            }
            self.waiting.pop_front();
            if is_queued {
                self.queued |= 1 << slot;
            } else {
                self.single = Some(slot);
            }
            let this = &mut self.slots[usize::from(slot)];
            let (Some(disk), Some(job)) = (&mut self.disk, &mut this.job) else { continue };
            let step = if !is_queued && self.queued != 0 {
                Step::End(Registers::failed(&job.taskfile, error::ABRT))
            } else {
                disk.begin(slot, job, &mut this.buf)
            };
            self.go(slot, step);
        }
    }

    fn go(&mut self, slot: u8, step: Step) {
        let this = self.slot(slot);
        this.at = 0;
        match step {
            Step::Gather(bytes) => {
                this.phase = Phase::Gather(bytes);
                self.reading.push_back(slot);
            }
            Step::Medium => this.phase = Phase::Media,
            Step::Scatter(bytes) => {
                this.phase = Phase::Scatter(bytes);
                self.writing.push_back(slot);
            }
            Step::End(registers) if registers.status & 1 != 0 => self.end(slot, End::Failed(registers)),
            Step::End(registers) => self.end(slot, End::Good(registers)),
        }
    }

    /// The command of a slot ends, as soon as nothing is under way for it any more.
    fn end(&mut self, slot: u8, end: End) {
        let had_queue = self.queued != 0;
        let this = self.slot(slot);
        this.phase = Phase::Ending(end);
        if this.reads > 0 {
            return;
        }
        this.phase = Phase::Held;
        let is_queued = this.is_queued;
        let tag = this.job.as_ref().map(|job| job.protocol);
        self.queued &= !(1 << slot);
        if self.single == Some(slot) {
            self.single = None;
        }
        if let (End::Failed(registers), Some(disk)) = (end, &mut self.disk)
            && (is_queued || had_queue)
        {
            let tag = match tag {
                Some(Protocol::Queued(tag)) => Some(tag),
                _ if is_queued => Some(slot),
                _ => None,
            };
            disk.queue_failed(tag, registers);
        }
        self.events.push_back(Event::Ended(slot, end));
    }

    /// The next thing that the controller has to know.
    pub(crate) fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front();
        if event.is_none() && self.single.is_none() {
            // Only now: what ended may have been an error that ends all.
            self.start_waiting();
            return self.events.pop_front();
        }
        event
    }

    /// Gives all commands up, without a word.
    pub(crate) fn abandon(&mut self) {
        for queue in [&mut self.reading, &mut self.writing, &mut self.waiting] {
            queue.clear();
        }
        self.events.clear();
        (self.queued, self.single) = (0, None);
        for slot in &mut self.slots {
            slot.phase = Phase::Free;
        }
        if let Some(disk) = &mut self.disk {
            let slots = &mut self.slots;
            disk.drop_backlog(|slot, buf| slots[usize::from(slot)].buf = Some(buf));
        }
        self.is_draining = true;
        self.drain();
    }

    /// Reads that were asked for never come back: the Function is reset.
    pub(crate) fn forget_reads(&mut self) {
        self.reads_outstanding = 0;
        self.drain();
    }

    fn drain(&mut self) {
        if self.is_draining && self.reads_outstanding == 0 && self.disk.as_ref().is_none_or(Disk::is_quiet) {
            self.is_draining = false;
            for slot in &mut self.slots {
                slot.reads = 0;
            }
        }
    }

    /// Takes the disk out, whatever it is doing; the Bufs that it had are lost with it.
    pub(crate) fn unplug(&mut self) -> Option<Disk> {
        let disk = self.disk.take();
        self.abandon();
        for slot in &mut self.slots {
            if slot.buf.is_none() {
                slot.buf = Some(Buf::new(CHUNK_BYTES as usize));
            }
        }
        disk
    }

    /// Asks memory for what is wanted.
    pub(crate) fn run_reading(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while let Some(&slot) = self.reading.front() {
            let before = self.reads_outstanding;
            let is_done = self.read_for(slot, bus);
            any |= is_done || self.reads_outstanding > before;
            if !is_done {
                break;
            }
            self.reading.pop_front();
        }
        any
    }

    /// False if there is no room.
    fn read_for(&mut self, slot: u8, bus: &mut dyn Bus) -> bool {
        loop {
            let this = &mut self.slots[usize::from(slot)];
            while let Some((address, bytes)) = this.list.wants() {
                let token = Token::new(self.port, false, slot, this.list.window_at(), address);
                let asked = bus.read(address, bytes as usize, token.0).min(bytes as usize);
                this.list.asked(asked as u32);
                this.reads += asked as u32;
                self.reads_outstanding += asked as u64;
                if asked < bytes as usize {
                    return false;
                }
            }
            let Phase::Gather(total) = this.phase else { return true };
            if this.at == total {
                return true;
            }
            match this.list.next() {
                Next::Data { address, bytes } => {
                    let bytes = bytes.min(total - this.at);
                    let token = Token::new(self.port, true, slot, this.at, address);
                    let asked = (bus.read(address, bytes as usize, token.0) as u32).min(bytes);
                    this.list.consume(asked);
                    (this.at, this.moved) = (this.at + asked, this.moved.wrapping_add(asked));
                    this.reads += asked;
                    self.reads_outstanding += u64::from(asked);
                    if asked < bytes {
                        return false;
                    }
                }
                Next::Waiting if this.list.wants().is_some() => {}
                Next::Waiting => return true,
                // Only data to the host can go nowhere.
                Next::Nowhere { .. } | Next::Bad => {
                    self.end(slot, End::Trouble(Trouble::BadList));
                    return true;
                }
                Next::End => {
                    self.end(slot, End::Trouble(Trouble::Underrun));
                    return true;
                }
            }
        }
    }

    /// A part of a read has ended.
    pub(crate) fn read_completed(
        &mut self,
        token: Token,
        address: u64,
        bytes: usize,
        result: Result<&[u8], Fault>,
    ) {
        self.reads_outstanding = self.reads_outstanding.saturating_sub(bytes as u64);
        if self.is_draining {
            return self.drain();
        }
        let Some(this) = self.slots.get_mut(usize::from(token.slot())) else { return };
        this.reads = this.reads.saturating_sub(bytes as u32);
        let at = token.place(address);
        match (result, token.is_data()) {
            (Ok(data), true) => {
                let place = this.buf.as_mut().and_then(|buf| buf.get_mut(at as usize..at as usize + bytes));
                if let Some(place) = place.filter(|place| place.len() == data.len()) {
                    place.copy_from_slice(data);
                }
            }
            (Ok(data), false) => this.list.received(at, data),
            (Err(fault), true) => {
                this.trouble.get_or_insert(Trouble::Data(fault));
            }
            (Err(fault), false) => {
                let is_list = this.phase != Phase::Fetch;
                let trouble = if is_list { Trouble::List(fault) } else { Trouble::Fetch(fault) };
                this.trouble.get_or_insert(trouble);
            }
        }
        self.arrived(token.slot());
    }

    /// Goes on with a slot for which something has come from memory.
    fn arrived(&mut self, slot: u8) {
        let this = &mut self.slots[usize::from(slot)];
        let is_reading = self.reading.contains(&slot);
        if let (Some(trouble), false) = (this.trouble, matches!(this.phase, Phase::Ending(_))) {
            self.reading.retain(|other| *other != slot);
            self.writing.retain(|other| *other != slot);
            return self.end(slot, End::Trouble(trouble));
        }
        match this.phase {
            Phase::Fetch if this.reads == 0 && this.list.is_complete() => {
                this.phase = Phase::Held;
                self.events.push_back(Event::Fetched(slot));
            }
            Phase::Gather(total) if this.at == total && this.reads == 0 && !is_reading => {
                let (Some(disk), Some(job)) = (&mut self.disk, &mut this.job) else { return };
                let step = disk.gathered(slot, job, &mut this.buf);
                self.go(slot, step);
            }
            Phase::Gather(total) if this.at < total && !is_reading && this.list.is_complete() => {
                self.reading.push_back(slot);
            }
            Phase::Scatter(_) if this.list.is_complete() && !self.writing.contains(&slot) => {
                self.writing.push_back(slot);
            }
            Phase::Ending(end) if this.reads == 0 => self.end(slot, end),
            _ => {}
        }
    }

    /// Lets the medium work, and goes on with commands that it is done with.
    pub(crate) fn poll_medium(&mut self, now_ns: u64) -> bool {
        let Some(disk) = &mut self.disk else { return false };
        disk.now_ns = now_ns;
        let mut done = std::mem::take(&mut self.done);
        let any = disk.poll(&mut done);
        for one in done.drain(..) {
            let slot = one.token as u8;
            let this = &mut self.slots[usize::from(slot)];
            if let Some(buf) = one.buf {
                this.buf = Some(buf);
            }
            if self.is_draining {
                continue;
            }
            let (Some(disk), Some(job)) = (&mut self.disk, &mut this.job) else { continue };
            let step = disk.medium_done(slot, job, &mut this.buf, one.result);
            self.go(slot, step);
        }
        self.done = done;
        self.drain();
        any
    }

    /// Writes data to memory.
    pub(crate) fn run_writing(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while let Some(&slot) = self.writing.front() {
            let before = self.slots[usize::from(slot)].at;
            let is_done = self.write_for(slot, bus);
            any |= is_done || self.slots[usize::from(slot)].at != before;
            if !is_done {
                break;
            }
            self.writing.pop_front();
        }
        any
    }

    /// False if there is no room.
    fn write_for(&mut self, slot: u8, bus: &mut dyn Bus) -> bool {
        loop {
            let this = &mut self.slots[usize::from(slot)];
            let Phase::Scatter(total) = this.phase else { return true };
            if this.at == total {
                let (Some(disk), Some(job)) = (&mut self.disk, &mut this.job) else { return true };
                let step = disk.scattered(slot, job, &mut this.buf);
                self.go(slot, step);
                return true;
            }
            let written = match this.list.next() {
                Next::Data { address, bytes } => {
                    let bytes = bytes.min(total - this.at);
                    let Some(buf) = &this.buf else { return true };
                    let written = bus.write(address, &buf[this.at as usize..][..bytes as usize]);
                    let written = (written as u32).min(bytes);
                    this.list.consume(written);
                    (this.at, this.moved) = (this.at + written, this.moved.wrapping_add(written));
                    written == bytes
                }
                Next::Nowhere { bytes } => {
                    let bytes = bytes.min(total - this.at);
                    this.list.consume(bytes);
                    this.at += bytes;
                    true
                }
                Next::Waiting => {
                    if this.list.wants().is_some() {
                        self.reading.push_back(slot);
                    }
                    return true;
                }
                Next::End => {
                    self.end(slot, End::Trouble(Trouble::Overrun));
                    return true;
                }
                Next::Bad => {
                    self.end(slot, End::Trouble(Trouble::BadList));
                    return true;
                }
            };
            if !written {
                return false;
            }
        }
    }
}
