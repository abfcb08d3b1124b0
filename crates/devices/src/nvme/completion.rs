//! The end of a command: its Completion Queue Entry, and the interrupt behind it.

use super::Nvme;
use super::bits::{CQE_BYTES, NSID_ALL};
use super::command::{Command, Io};
use super::engine::members;
use super::lifecycle::Life;
use super::queue::Cqe;
use super::slot::Phase;
use super::status::Status;
use etherslot_pci::function::{Bus, InterruptMode};

impl Nvme {
    /// Command `index` ends with `status`, as soon as nothing is under way for it any more.
    pub(super) fn end(&mut self, index: u16, status: Status) {
        let slot = &mut self.slots[usize::from(index)];
        slot.fail(status);
        slot.phase = Phase::Ending;
        if slot.reads == 0 && slot.media == 0 {
            self.complete(index);
        }
    }

    fn complete(&mut self, index: u16) {
        let slot = &self.slots[usize::from(index)];
        let (sqid, cid, status) = (slot.sqid, slot.sqe.cid(), slot.status);
        let (command, result) = (slot.command, slot.result);
        let sq_head = self.queues.sq(sqid).map_or(0, |sq| sq.head());
        let cqe = Cqe { dword0: result, sq_head, sqid, cid, status };
        if status.is_logged() {
            let (nsid, lba) = match command {
                Some(Command::Io(nsid, io)) => (nsid, io.extent().map_or(0, |extent| extent.slba)),
                Some(Command::Admin(_)) | None => (NSID_ALL, 0),
            };
            self.logs.command_failed(&cqe, nsid, lba);
        }
        if let (Some(Command::Io(nsid, io)), true) = (command, status.is_success()) {
            self.count(nsid, &io);
        }
        let stage = match self.queues.cq_of(sqid) {
            Some((cqid, cq)) => {
                cq.stage(cqe);
                1 << cqid
            }
            None => 0,
        };
        self.queues.staged |= stage;
        self.vacate(index);
    }

    /// Command `index` has no completion (yet): its entry is free for another.
    pub(super) fn leave(&mut self, index: u16) {
        let sqid = self.slots[usize::from(index)].sqid;
        if let Some((_, cq)) = self.queues.cq_of(sqid) {
            cq.release();
        }
        self.vacate(index);
    }

    /// The slot is free; whoever waited for the command goes on.
    fn vacate(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        if std::mem::take(&mut slot.queued) {
            self.reading.retain(|other| *other != index);
            self.writing.retain(|other| *other != index);
        }
        for buf in [slot.buf.take(), slot.other.take()].into_iter().flatten() {
            self.pool.give(buf);
        }
        let (sqid, nsid) = (slot.sqid, std::mem::take(&mut slot.nsid));
        slot.phase = Phase::Free;
        slot.command = None;
        self.free.push(index);
        if self.formatter == Some(index) {
            self.give_up_format();
        }
        if nsid != 0 {
            self.released(nsid);
        }
        if sqid != 0 {
            self.io_ended();
        }
        if let Some(sq) = self.queues.sq(sqid) {
            sq.in_flight -= 1;
            if let (0, Some(deleter)) = (sq.in_flight, sq.deleted_by) {
                self.submission_queue_is_idle(sqid, deleter);
            }
        }
    }

    /// SMART counters of a command that went well.
    fn count(&mut self, nsid: u32, io: &Io) {
        let block_bytes = self.namespace(nsid).map_or(0, |namespace| namespace.block_bytes());
        let counters = &mut self.logs.counters;
        let bytes = |extent: &super::command::Extent| u128::from(extent.blocks) * u128::from(block_bytes);
        match io {
            Io::Read(extent) | Io::Compare(extent) => {
                counters.reads += 1;
                counters.bytes_read += bytes(extent);
            }
            Io::Write(extent) => {
                counters.writes += 1;
                counters.bytes_written += bytes(extent);
            }
            Io::Flush | Io::WriteZeroes { .. } | Io::DatasetManagement { .. } | Io::Verify(_) => {}
        }
    }

    /// Completes Asynchronous Event Requests with what has happened.
    pub(super) fn tell_events(&mut self) -> bool {
        let mut any = false;
        while self.events.has_next() && self.queues.cq(0).is_some_and(|cq| cq.spare() > 0) {
            let Some((cid, dword0)) = self.events.next() else { break };
            self.complete_event_request(cid, dword0, Status::SUCCESS);
            any = true;
        }
        any
    }

    /// Aborts a Request that was taken back. False if there is no room to say so, and it is left again.
    pub(super) fn abort_event_request(&mut self, cid: u16) -> bool {
        let room = self.queues.cq(0).is_some_and(|cq| cq.spare() > 0);
        if room {
            self.complete_event_request(cid, 0, Status::ABORT_REQUESTED);
        } else {
            self.events.leave(cid);
        }
        room
    }

    /// Takes an entry of its own for a Request, whose slot is long free.
    fn complete_event_request(&mut self, cid: u16, dword0: u32, status: Status) {
        let sq_head = self.queues.sq(0).map_or(0, |sq| sq.head());
        if let Some(cq) = self.queues.cq(0) {
            cq.reserve();
            cq.stage(Cqe { dword0, sq_head, sqid: 0, cid, status });
            self.queues.staged |= 1;
        }
    }

    /// Writes formed entries to memory, behind all data that was written before.
    pub(super) fn post(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        for cqid in members(self.queues.staged) {
            let Some(Some(cq)) = self.queues.cqs.get_mut(cqid) else { continue };
            let mut posted = 0;
            while let Some((address, bytes, count)) = cq.batch() {
                if !self.cmb.write(bus, address, &bytes[..count]) {
                    break;
                }
                cq.written(count);
                posted += (count / CQE_BYTES) as u32;
            }
            if !cq.has_staged() {
                self.queues.staged &= !(1 << cqid);
            }
            if posted > 0 {
                any = true;
                if cq.unsignalled == 0 {
                    cq.unsignalled_since_ns = self.now_ns;
                }
                cq.unsignalled += posted;
                if cq.vector.is_some() {
                    self.queues.signal |= 1 << cqid;
                }
            }
            if cq.has_staged() {
                break;
            }
        }
        any
    }

    /// Sends the interrupts of queues that have new entries: one a queue and poll.
    pub(super) fn interrupt(&mut self, bus: &mut dyn Bus) -> bool {
        let signal = std::mem::take(&mut self.queues.signal) | std::mem::take(&mut self.queues.held);
        match self.interrupt_mode {
            InterruptMode::Disabled => false,
            InterruptMode::IntX => {
                // A level: there as long as any entry waits to be consumed (7.5.1.1).
                let waits = |cq: &super::queue::Cq| cq.vector.is_some() && cq.outstanding() > 0;
                let asserted = self.queues.cqs.iter().flatten().any(waits) && !self.registers.is_masked(0);
                bus.set_intx(asserted);
                false
            }
            mode @ (InterruptMode::Msi(_) | InterruptMode::MsiX(_)) => {
                let maskable = matches!(mode, InterruptMode::Msi(_));
                self.send_messages(bus, signal, maskable)
            }
        }
    }

    fn send_messages(&mut self, bus: &mut dyn Bus, signal: u128, maskable: bool) -> bool {
        let mut sent: u128 = 0;
        let mut full = false;
        for cqid in members(signal) {
            let Some(Some(cq)) = self.queues.cqs.get_mut(cqid) else { continue };
            let Some(vector) = cq.vector else { continue };
            if cq.outstanding() == 0 {
                // The host has found them by itself.
                cq.unsignalled = 0;
                continue;
            }
            let masked = maskable && self.registers.is_masked(vector);
            let early = cqid != 0
                && self.features.coalescing(vector).is_some_and(|(entries, time_ns)| {
                    cq.unsignalled <= entries && self.now_ns < cq.unsignalled_since_ns + time_ns
                });
            let bit = 1u128 << vector.min(127);
            full = full || (!masked && !early && sent & bit == 0 && !bus.interrupt(vector));
            if masked || early || full {
                self.queues.held |= 1 << cqid;
            } else {
                sent |= bit;
                cq.unsignalled = 0;
            }
        }
        sent != 0
    }

    /// When an interrupt that is held back for others to join it is due. One that is masked, or finds no room, has no
    /// time of its own.
    pub(super) fn interrupt_deadline_ns(&self) -> Option<u64> {
        members(self.queues.held)
            .filter_map(|cqid| {
                let cq = self.queues.cqs[cqid].as_ref()?;
                let (_, time_ns) = self.features.coalescing(cq.vector?)?;
                Some(cq.unsignalled_since_ns + time_ns)
            })
            .filter(|&at_ns| at_ns > self.now_ns)
            .min()
    }

    /// An I/O command begins.
    pub(super) fn io_began(&mut self) {
        if self.io_active == 0 {
            self.busy_since_ns = self.now_ns;
        }
        self.io_active += 1;
    }

    fn io_ended(&mut self) {
        self.io_active = self.io_active.saturating_sub(1);
        if self.io_active == 0 {
            self.logs.counters.busy_ns += self.now_ns.saturating_sub(self.busy_since_ns);
        }
    }

    /// Whether commands are carried out.
    pub(super) fn is_running(&self) -> bool {
        self.life == Life::Running && !self.registers.fatal
    }
}
