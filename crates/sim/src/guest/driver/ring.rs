//! Queues in guest memory, and what goes through them.

use crate::checkers::verdict::Rule;
use crate::guest::bus::Trouble;
use crate::guest::cpu::Cpu;
use crate::guest::driver::buffer::Buffer;
use crate::guest::driver::{COMMAND_TIMEOUT_NS, Driver};
use crate::guest::machine::{Command, Purpose};
use crate::guest::memory::{Grant, PAGE_BYTES};
use crate::guest::nvme::{CSTS_FATAL, Completion, Submission, admin, register, status};
use crate::plan::InterruptPlan;

/// An interrupt comes this soon after its completion while the session lives.
const INTERRUPT_BOUND_NS: u64 = 1_500_000_000;
const POLL_NS: u64 = 20_000;

/// A piece of the controller's memory buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct InDevice {
    /// Its BAR.
    pub(super) bar: usize,
    /// Offset in the BAR.
    pub(super) offset: u64,
    /// The address by which the device knows it.
    pub(super) address: u64,
}

/// A submission queue.
#[derive(Clone, Debug)]
pub(super) struct SubmissionRing {
    pub(super) id: u16,
    pub(super) address: u64,
    /// It is in the device, and entries get there by register writes.
    in_device: Option<InDevice>,
    /// Entries that are to be written there before the doorbell is rung.
    unwritten: Vec<(u16, [u8; Submission::BYTES])>,
    entries: u16,
    tail: u16,
    rung: u16,
    outstanding: u16,
    next_cid: u16,
}

/// A completion queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompletionRing {
    pub(super) id: u16,
    pub(super) address: u64,
    pub(super) vector: u16,
    entries: u16,
    head: u16,
    phase: bool,
}

/// Zeroed pages for a queue, which the device may use as `grant` says.
fn allocate(cpu: &Cpu, bytes: usize, grant: Grant, pages: &mut Vec<u64>) -> Option<u64> {
    let count = bytes.div_ceil(PAGE_BYTES);
    let address = cpu.machine(|machine| {
        let address = machine.memory.allocate_run(count)?;
        machine.memory.get_mut(address, count * PAGE_BYTES)?.fill(0);
        (0..count as u64).for_each(|page| machine.memory.grant(address + page * PAGE_BYTES as u64, grant));
        Some(address)
    })?;
    pages.extend((0..count as u64).map(|page| address + page * PAGE_BYTES as u64));
    Some(address)
}

impl SubmissionRing {
    pub(super) fn new(
        cpu: &Cpu,
        (id, completion_id): (u16, u16),
        entries: u16,
        next_cid: u16,
        in_device: Option<InDevice>,
        pages: &mut Vec<u64>,
    ) -> Option<Self> {
        let address = match in_device {
            Some(place) => place.address,
            None => allocate(cpu, entries as usize * Submission::BYTES, Grant::Fetch, pages)?,
        };
        cpu.machine(|machine| machine.add_submission_queue(id, completion_id, entries));
        let unwritten = Vec::new();
        Some(Self { id, address, in_device, unwritten, entries, tail: 0, rung: 0, outstanding: 0, next_cid })
    }

    fn has_room(&self) -> bool {
        self.outstanding + 1 < self.entries
    }
}

impl CompletionRing {
    pub(super) fn new(cpu: &Cpu, id: u16, entries: u16, vector: u16, pages: &mut Vec<u64>) -> Option<Self> {
        let address = allocate(cpu, entries as usize * Completion::BYTES, Grant::Post(id), pages)?;
        cpu.machine(|machine| machine.add_completion_queue(id, address, entries));
        Some(Self { id, address, vector, entries, head: 0, phase: true })
    }

    /// The next completion, if it is there.
    fn peek(&self, cpu: &Cpu) -> Option<Completion> {
        let at = self.address + u64::from(self.head) * Completion::BYTES as u64;
        let completion =
            cpu.machine(|machine| machine.memory.get(at, Completion::BYTES).and_then(Completion::parse))?;
        (completion.phase == self.phase).then_some(completion)
    }
}

impl Driver {
    /// The I/O submission rings that have room, as indices.
    pub(super) fn rings_with_room(&self) -> Vec<usize> {
        (1..self.submissions.len()).filter(|&index| self.submissions[index].has_room()).collect()
    }

    /// Puts a command into a submission ring and rings its doorbell; its Command Identifier. `None` if there is no room.
    pub(super) async fn submit(
        &mut self,
        index: usize,
        command: Submission,
        buffer: Buffer,
        purpose: Purpose,
    ) -> Option<u16> {
        let cid = self.put(index, command, buffer, purpose)?;
        self.ring_doorbell(index).await;
        Some(cid)
    }

    /// Puts a command into a submission ring.
    pub(super) fn put(
        &mut self,
        index: usize,
        mut command: Submission,
        buffer: Buffer,
        purpose: Purpose,
    ) -> Option<u16> {
        let ring = self.submissions.get_mut(index).filter(|ring| ring.has_room())?;
        self.cpu.machine(|machine| {
            while machine.commands.contains_key(&(ring.id, ring.next_cid)) || ring.next_cid == u16::MAX {
                ring.next_cid = ring.next_cid.wrapping_add(1);
            }
            command.cid = ring.next_cid;
            ring.next_cid = ring.next_cid.wrapping_add(1);
            let at = ring.address + u64::from(ring.tail) * Submission::BYTES as u64;
            if ring.in_device.is_some() {
                ring.unwritten.push((ring.tail, command.bytes()));
            } else if let Some(entry) = machine.memory.get_mut(at, Submission::BYTES) {
                entry.copy_from_slice(&command.bytes());
            }
            for (page, grant) in &buffer.grants {
                machine.memory.grant(*page, *grant);
            }
            let under_way = Command {
                purpose,
                pieces: buffer.pieces,
                pages: buffer.grants.iter().map(|&(page, _)| page).collect(),
                submitted_ns: machine.now_ns(),
                losses: machine.losses,
                aborting: false,
                done: None,
            };
            machine.event(u64::from(command.cid), || {
                format!("SQ {} command {:#x}: {purpose:?}", ring.id, command.cid)
            });
            machine.commands.insert((ring.id, command.cid), under_way);
        });
        ring.tail = (ring.tail + 1) % ring.entries;
        ring.outstanding += 1;
        Some(command.cid)
    }

    /// Tells the device of all that was put into a submission ring.
    pub(super) async fn ring_doorbell(&mut self, index: usize) {
        let Some(ring) = self.submissions.get_mut(index).filter(|ring| ring.rung != ring.tail) else {
            return;
        };
        ring.rung = ring.tail;
        let (id, tail) = (ring.id, ring.tail);
        let unwritten = std::mem::take(&mut ring.unwritten);
        if let Some(place) = ring.in_device {
            for (index, entry) in unwritten {
                let at = place.offset + u64::from(index) * Submission::BYTES as u64;
                for (offset, word) in (at..).step_by(8).zip(entry.as_chunks::<8>().0) {
                    self.cpu.write_memory(place.bar, offset, u64::from_le_bytes(*word)).await;
                }
            }
        }
        self.cpu.machine(|machine| machine.submitted(id, tail));
        let offset = register::DOORBELLS + 2 * u64::from(id) * self.doorbell_stride;
        self.cpu.write32(offset, u32::from(tail)).await;
    }

    /// Waits until something may be there, takes all completions, and deals with commands that take too long.
    pub(super) async fn wait_for_completions(&mut self, until_ns: u64) -> Result<(), Trouble> {
        let now_ns = self.cpu.now_ns();
        let polling = self.plan.interrupts == InterruptPlan::Polling;
        let next_timeout_ns = self.cpu.machine(|machine| {
            let open = machine.commands.values().filter(|command| !matches!(command.purpose, Purpose::Event));
            open.map(|command| command.submitted_ns + COMMAND_TIMEOUT_NS + 1).min().unwrap_or(u64::MAX)
        });
        let mut until_ns = until_ns.min(next_timeout_ns);
        if polling {
            until_ns = until_ns.min(now_ns + POLL_NS);
        }
        self.cpu.interrupt_or(until_ns).await;
        let (fired, level) = self.cpu.machine(|machine| (std::mem::take(&mut machine.fired), machine.intx));
        let mut taken = 0;
        for index in 0..self.completions.len() {
            if polling || level || fired.contains(&self.completions[index].vector) {
                taken += self.drain(index).await;
            }
        }
        if level && taken == 0 {
            // INTA stays asserted until the device has seen the doorbell.
            self.cpu.sleep(5_000).await;
        }
        self.check_timeouts().await
    }

    async fn drain(&mut self, index: usize) -> usize {
        let mut taken = 0;
        // A hostile network may make any number of entries look new.
        while taken < 2 * self.completions[index].entries as usize
            && let Some(completion) = self.completions[index].peek(&self.cpu)
        {
            let ring = &mut self.completions[index];
            ring.head += 1;
            if ring.head == ring.entries {
                ring.head = 0;
                ring.phase = !ring.phase;
            }
            let id = ring.id;
            self.cpu.machine(|machine| machine.consumed(id));
            self.finish(completion).await;
            taken += 1;
        }
        if taken != 0 {
            let ring = self.completions[index];
            let offset = register::DOORBELLS + (2 * u64::from(ring.id) + 1) * self.doorbell_stride;
            self.cpu.write32(offset, u32::from(ring.head)).await;
        }
        taken
    }

    /// Takes the end of a command.
    async fn finish(&mut self, completion: Completion) {
        let key = (completion.sq_id, completion.cid);
        let done = self.cpu.machine(|machine| {
            if machine.commands.get(&key).is_none_or(|command| command.done.is_none()) {
                return None;
            }
            let command = machine.commands.remove(&key)?;
            let mut data = Vec::new();
            if matches!(command.purpose, Purpose::Admin) {
                machine.memory.gather(&command.pieces, &mut data);
            }
            for &page in &command.pages {
                machine.memory.release(page);
            }
            Some((command.purpose, data))
        });
        let Some((purpose, data)) = done else { return };
        if let Some(ring) = self.submissions.iter_mut().find(|ring| ring.id == key.0) {
            ring.outstanding = ring.outstanding.saturating_sub(1);
        }
        self.active.retain(|active| active.key != key);
        match purpose {
            Purpose::Admin => self.admin_done.push((key.1, completion, data)),
            Purpose::Event if completion.status == status::SUCCESS => self.request_event().await,
            Purpose::Event => {}
            Purpose::Compare { status } => self.count(completion.status == status),
            _ => self.count(completion.status == status::SUCCESS),
        }
    }

    fn count(&self, good: bool) {
        self.cpu.machine(|machine| {
            let progress = &mut machine.progress;
            *(if good { &mut progress.succeeded } else { &mut progress.failed }) += 1;
        });
    }

    /// What Linux does with commands that take too long: look at the controller, abort, then reset.
    async fn check_timeouts(&mut self) -> Result<(), Trouble> {
        let now_ns = self.cpu.now_ns();
        let late = self.cpu.machine(|machine| {
            let late = machine.commands.iter().filter(|(_, command)| {
                !matches!(command.purpose, Purpose::Event)
                    && now_ns > command.submitted_ns + COMMAND_TIMEOUT_NS
            });
            let late: Vec<_> =
                late.map(|(&key, command)| (key, command.aborting, command.done, command.losses)).collect();
            let silent = late.iter().find(|(_, _, done, losses)| {
                let waits = done.is_some_and(|(_, at_ns)| now_ns > at_ns + INTERRUPT_BOUND_NS);
                waits && machine.device.is_some() && machine.losses == *losses
            });
            if let Some((key, _, done, _)) = silent {
                machine.broken(Rule::Interrupt, || {
                    format!("command {key:x?} is done, {done:?}, and no interrupt came")
                });
            }
            late
        });
        if late.is_empty() {
            return Ok(());
        }
        let value = self.status().await?;
        if value & CSTS_FATAL != 0 {
            return Err(Trouble::Fatal);
        }
        for index in 0..self.completions.len() {
            self.drain(index).await;
        }
        for (key, aborting, _, _) in late {
            let still = self.cpu.machine(|machine| machine.commands.contains_key(&key));
            if !still {
                continue;
            }
            if aborting || key.0 == 0 || !self.random.percent(self.plan.abort_percent) {
                return Err(Trouble::Timeout("a command"));
            }
            self.abort(key).await;
        }
        Ok(())
    }

    /// Asks the controller to abort a command, and gives it time to.
    pub(super) async fn abort(&mut self, key: (u16, u16)) {
        self.note(|| format!("aborts {key:x?}"));
        self.cpu.machine(|machine| {
            let now_ns = machine.now_ns();
            if let Some(command) = machine.commands.get_mut(&key) {
                command.aborting = true;
                command.submitted_ns = now_ns;
            }
        });
        let words = [u32::from(key.1) << 16 | u32::from(key.0), 0, 0, 0, 0, 0];
        let command = Submission { opcode: admin::ABORT, words, ..Submission::default() };
        self.submit(0, command, Buffer::default(), Purpose::Other).await;
    }
}
