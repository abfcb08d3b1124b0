//! Starting a controller (NVMe Base 1.4, 7.6.1), watching it, and starting it again.
//!
//! One register access or Admin command at a time. What fails is tried again from a Hot Reset on after a second, unless it
//! would be in vain.

use std::fmt;

use etherslot_node::Interrupts;

use super::bits::{
    CC_ENABLE, CLASS, CMB_CMSE, CMB_CRE, Capabilities, NUMBER_OF_QUEUES, PAGE_BYTES, REGISTERS, SQE_BYTES,
    csts, register,
};
use super::{
    ADMIN_CQ, ADMIN_ENTRIES, ADMIN_SQ, Controller, ControllerData, DataPointers, Entries, Failure, IDENTIFY,
    NamespaceData, PRP_BYTES, Sqe, State, Submission,
};
use crate::arena::Arena;
use crate::disk::{DiskError, DiskInfo};
use crate::enumeration::Enumeration;
use crate::machine::{Access, Machine};

/// After a failure, the next attempt comes this much later.
const RETRY_NS: u64 = 1_000_000_000;
/// Between two looks at CSTS.
const PACE_NS: u64 = 100_000;
/// Between two looks at requests that may have taken too long.
const CHECK_NS: u64 = 50_000_000;
/// Steps at one call, so that a device that answers everything at once does not hold us.
const STEPS: usize = 64;
/// Where the controller is told to see its buffer: no address of ours, and of no BAR.
const CMB_ADDRESS: u64 = 1 << 44;
/// Namespaces that are asked for at most.
const MAX_NAMESPACES: usize = 256;

/// Structures of Identify (CNS).
const CNS_NAMESPACE: u8 = 0;
const CNS_CONTROLLER: u8 = 1;
const CNS_ACTIVE: u8 = 2;

/// Where the driver is.
#[derive(Debug)]
pub(crate) enum Step {
    /// There is no device.
    Away,
    Enumerate(Enumeration),
    Capabilities,
    /// CC.EN is to be cleared.
    Stop,
    /// CSTS.RDY is to be 0.
    Stopping {
        until_ns: u64,
        next_ns: u64,
    },
    /// The Controller Memory Buffer shows its registers.
    CmbShow,
    CmbLook,
    CmbMap {
        bar: u8,
        offset: u32,
    },
    /// Registers of the admin queues, and CC, one after the other.
    Start(usize),
    /// CSTS.RDY is to be 1.
    Starting {
        until_ns: u64,
        next_ns: u64,
    },
    Identify,
    Active,
    /// The namespaces of this list, from here on.
    Namespaces(Vec<u32>, usize),
    Count,
    CreateCq(usize),
    CreateSq(usize),
    /// Requests go to the controller; it is asked how it is now and then.
    Ready,
    /// A Hot Reset, at this time.
    Reset {
        at_ns: u64,
    },
    /// For good.
    Unusable,
}

impl Step {
    /// When it goes on if nothing happens.
    fn due_ns(&self) -> Option<u64> {
        match self {
            Self::Stopping { next_ns, .. } | Self::Starting { next_ns, .. } => Some(*next_ns),
            Self::Reset { at_ns } => Some(*at_ns),
            _ => None,
        }
    }
}

/// Makes an access, if it was not made, and takes its answer, if it is there.
fn access<'a, A: Copy + Eq + fmt::Display>(
    asked: &mut bool,
    now_ns: u64,
    machine: &'a mut Machine<A>,
    access: Access,
) -> Option<&'a [u8]> {
    if !*asked {
        *asked = machine.ask(now_ns, access);
        if !*asked {
            return None;
        }
    }
    let answer = machine.answer();
    *asked = answer.is_none();
    answer
}

fn u32_of(data: &[u8]) -> u32 {
    data.first_chunk().copied().map_or(u32::MAX, u32::from_le_bytes)
}

impl Controller {
    /// Goes on with everything that can go on. True if something was done.
    pub(crate) fn drive<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<A>,
    ) -> bool {
        if machine.lives() != self.lives {
            self.lives = machine.lives();
            self.came_or_went(machine);
        }
        let mut progress = false;
        if !matches!(self.step, Step::Ready) || self.asked {
            for _ in 0..STEPS {
                if !self.advance(now_ns, machine) {
                    break;
                }
                progress = true;
            }
        }
        if now_ns >= self.check_ns {
            self.check_ns = now_ns + CHECK_NS;
            progress |= self.check(now_ns, machine);
        }
        progress
    }

    /// When [`Controller::drive`] should be called even if nothing happens.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let check = (self.in_flight() != 0 || !self.is_ready()).then_some(self.check_ns);
        [check, self.step.due_ns()].into_iter().flatten().min()
    }

    fn came_or_went<A: Copy + Eq + fmt::Display>(&mut self, machine: &mut Machine<A>) {
        // What it had completed before it went counts.
        self.harvest(machine.arena());
        self.call_back();
        self.asked = false;
        let is_there = machine.device().is_some();
        self.counters.losses += u64::from(!is_there);
        if !matches!(self.step, Step::Unusable) {
            self.step = if is_there { Step::Enumerate(Enumeration::new()) } else { Step::Away };
        }
    }

    /// Keeps for the next poll what has come.
    fn harvest(&mut self, arena: &Arena) {
        if self.is_ready() {
            let mut ended = std::mem::take(&mut self.ended);
            self.reap(arena, u64::MAX, &mut |done| ended.push(done));
            self.ended = ended;
        }
    }

    fn fail(&mut self, now_ns: u64, failure: Failure) -> bool {
        tracing::warn!(%failure, "the controller can't be used");
        self.step =
            if failure.is_final() { Step::Unusable } else { Step::Reset { at_ns: now_ns + RETRY_NS } };
        self.asked = false;
        self.failure = Some(failure);
        true
    }

    /// One step. True if there may be a further one now.
    fn advance<A: Copy + Eq + fmt::Display>(&mut self, now_ns: u64, machine: &mut Machine<A>) -> bool {
        let bar_read = |offset, bytes| Access::BarRead { bar: REGISTERS, offset, bytes };
        match &mut self.step {
            Step::Away | Step::Unusable => return false,
            Step::Enumerate(enumeration) => {
                let Some(next) = enumeration.access() else {
                    let class = enumeration.layout().class;
                    if class != CLASS {
                        return self.fail(now_ns, Failure::NotNvme(class));
                    }
                    if self.config.interrupts {
                        machine.set_interrupts(Interrupts::MsiX);
                    }
                    self.step = Step::Capabilities;
                    return true;
                };
                let Some(answer) = access(&mut self.asked, now_ns, machine, next) else { return false };
                enumeration.answered(answer);
            }
            Step::Capabilities => {
                let cap = access(&mut self.asked, now_ns, machine, bar_read(register::CAP, 8));
                let Some(cap) =
                    cap.map(|cap| cap.first_chunk().copied().map_or(u64::MAX, u64::from_le_bytes))
                else {
                    return false;
                };
                self.capabilities = Capabilities(cap);
                if cap == u64::MAX {
                    return self.fail(now_ns, Failure::Silent("answer"));
                }
                if !self.capabilities.is_usable() {
                    return self.fail(now_ns, Failure::Unsuited);
                }
                self.step = Step::Stop;
            }
            Step::Stop => {
                if !machine.bar_write(REGISTERS, register::CC, &0u32.to_le_bytes()) {
                    return false;
                }
                let until_ns = now_ns + self.capabilities.timeout_ns();
                self.step = Step::Stopping { until_ns, next_ns: now_ns };
            }
            Step::Stopping { until_ns, next_ns } => {
                if now_ns < *next_ns {
                    return false;
                }
                let read = access(&mut self.asked, now_ns, machine, bar_read(register::CSTS, 4));
                let Some(status) = read.map(u32_of) else { return false };
                if status & csts::RDY != 0 {
                    *next_ns = now_ns + PACE_NS;
                    return now_ns > *until_ns && self.fail(now_ns, Failure::Silent("stop"));
                }
                // All that it wrote before is here.
                self.call_back();
                let wants_cmb = self.config.submission == Submission::ControllerMemory;
                for queue in &mut self.queues {
                    queue.ring.entries = Entries::Here;
                }
                self.step =
                    if wants_cmb && self.capabilities.has_cmb() { Step::CmbShow } else { Step::Start(0) };
            }
            Step::CmbShow => {
                if !machine.bar_write(REGISTERS, register::CMBMSC, &CMB_CRE.to_le_bytes()) {
                    return false;
                }
                self.step = Step::CmbLook;
            }
            Step::CmbLook => {
                let read = access(&mut self.asked, now_ns, machine, bar_read(register::CMBLOC, 8));
                let Some(read) = read else { return false };
                let (location, size) = (u32_of(read), u32_of(read.get(4..).unwrap_or_default()));
                self.step = self.look_at_cmb(location, size);
            }
            Step::CmbMap { bar, offset } => {
                let (bar, mut at) = (*bar, *offset);
                let map = (CMB_ADDRESS | CMB_CRE | CMB_CMSE).to_le_bytes();
                if !machine.bar_write(REGISTERS, register::CMBMSC, &map) {
                    return false;
                }
                for queue in &mut self.queues {
                    queue.ring.entries = Entries::Pushed { bar, offset: at };
                    at += sq_bytes(queue.ring.sq_entries) as u32;
                }
                self.step = Step::Start(0);
            }
            Step::Start(at) => {
                let entries = u32::from(ADMIN_ENTRIES - 1);
                let address = |offset| Arena::address(offset).to_le_bytes();
                let written = match *at {
                    0 => {
                        let sizes = entries << 16 | entries;
                        machine.bar_write(REGISTERS, register::AQA, &sizes.to_le_bytes())
                    }
                    1 => machine.bar_write(REGISTERS, register::ASQ, &address(ADMIN_SQ)),
                    2 => machine.bar_write(REGISTERS, register::ACQ, &address(ADMIN_CQ)),
                    _ => {
                        let doorbell_bytes = self.capabilities.doorbell_bytes();
                        self.admin.restart(machine.arena_mut(), doorbell_bytes, 1);
                        machine.bar_write(REGISTERS, register::CC, &CC_ENABLE.to_le_bytes())
                    }
                };
                if !written {
                    return false;
                }
                *at += 1;
                if *at > 3 {
                    let until_ns = now_ns + self.capabilities.timeout_ns();
                    self.step = Step::Starting { until_ns, next_ns: now_ns };
                }
            }
            Step::Starting { until_ns, next_ns } => {
                if now_ns < *next_ns {
                    return false;
                }
                let read = access(&mut self.asked, now_ns, machine, bar_read(register::CSTS, 4));
                let Some(status) = read.map(u32_of) else { return false };
                *next_ns = now_ns + PACE_NS;
                if status & csts::CFS != 0 {
                    return self.fail(now_ns, Failure::Fatal);
                }
                if status & csts::RDY == 0 {
                    return now_ns > *until_ns && self.fail(now_ns, Failure::Silent("start"));
                }
                self.step = Step::Identify;
            }
            Step::Identify
            | Step::Active
            | Step::Namespaces(..)
            | Step::Count
            | Step::CreateCq(_)
            | Step::CreateSq(_) => return self.administer(now_ns, machine),
            // Only `check` has it asked.
            Step::Ready if !self.asked => return false,
            Step::Ready => {
                let read = access(&mut self.asked, now_ns, machine, bar_read(register::CSTS, 4));
                let Some(status) = read.map(u32_of) else { return false };
                if status & csts::CFS != 0 || status & csts::RDY == 0 {
                    tracing::warn!(csts = format_args!("{status:#x}"), "the controller is not well");
                    self.start_over(machine);
                }
            }
            Step::Reset { at_ns } => {
                if now_ns < *at_ns {
                    return false;
                }
                if access(&mut self.asked, now_ns, machine, Access::Reset).is_none() {
                    return false;
                }
                // The node lets nothing through that the device sent before it was reset.
                self.call_back();
                self.step = Step::Enumerate(Enumeration::new());
            }
        }
        true
    }

    /// A Controller Reset.
    pub(super) fn start_over<A: Copy + Eq + fmt::Display>(&mut self, machine: &mut Machine<A>) {
        self.harvest(machine.arena());
        self.counters.resets += 1;
        self.asked = false;
        self.step = Step::Stop;
    }

    /// Where Submission Queues go in a buffer that these registers tell of.
    fn look_at_cmb(&self, location: u32, size: u32) -> Step {
        const SUBMISSION_QUEUES: u32 = 1;
        let unit = 4096u64 << (4 * (size >> 8 & 0xF)).min(40);
        let (bytes, offset) = (u64::from(size >> 12) * unit, u64::from(location >> 12) * unit);
        let wanted: usize = self.queues.iter().map(|queue| sq_bytes(queue.ring.sq_entries)).sum();
        let bar = (location & 7) as u8;
        let fits = size & SUBMISSION_QUEUES != 0 && bytes >= wanted as u64 && size != u32::MAX;
        match u32::try_from(offset) {
            Ok(offset) if fits && bar <= 5 && offset.checked_add(wanted as u32).is_some() => {
                Step::CmbMap { bar, offset }
            }
            _ => {
                tracing::warn!(bytes, wanted, "the controller's memory does not take the queues; using ours");
                Step::Start(0)
            }
        }
    }

    /// Issues an Admin command, if it was not, and takes its completion, if it is there.
    fn command<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<A>,
        name: &'static str,
        sqe: Sqe,
    ) -> Option<Result<u32, Failure>> {
        if !self.asked {
            self.admin_id = self.admin_id.wrapping_add(1) & 0x7FFF;
            self.admin.push(machine.arena_mut(), &sqe.identified(self.admin_id));
            (self.asked, self.asked_ns) = (true, now_ns);
        }
        if self.admin.is_due() {
            self.admin.ring(machine);
        }
        while let Some(completion) = self.admin.pop(machine.arena()) {
            if completion.command_id != self.admin_id {
                self.counters.stray_completions += 1;
                continue;
            }
            self.asked = false;
            let status = completion.status;
            let is_well = status == crate::Status::SUCCESS;
            return Some(if is_well {
                Ok(completion.result)
            } else {
                Err(Failure::Command { command: name, status })
            });
        }
        let is_late = now_ns - self.asked_ns > self.config.command_timeout_ns;
        is_late.then_some(Err(Failure::Silent("answer Admin commands")))
    }

    fn administer<A: Copy + Eq + fmt::Display>(&mut self, now_ns: u64, machine: &mut Machine<A>) -> bool {
        let data = Arena::address(IDENTIFY);
        let (name, sqe) = match &self.step {
            Step::Identify => ("Identify Controller", Sqe::identify(CNS_CONTROLLER, 0, data)),
            Step::Active => ("Identify Active Namespaces", Sqe::identify(CNS_ACTIVE, 0, data)),
            Step::Namespaces(list, at) => (
                "Identify Namespace",
                Sqe::identify(CNS_NAMESPACE, list.get(*at).copied().unwrap_or(0), data),
            ),
            Step::Count => {
                let count = u32::from(self.config.queues - 1);
                ("Set Features Number of Queues", Sqe::set_feature(NUMBER_OF_QUEUES, count << 16 | count))
            }
            Step::CreateCq(at) => {
                let ring = &self.queues[*at].ring;
                let vector = self.config.interrupts.then_some(ring.id);
                let create = Sqe::create_cq(ring.id, ring.cq_entries, Arena::address(ring.cq), vector);
                ("Create I/O Completion Queue", create)
            }
            Step::CreateSq(at) => {
                let ring = &self.queues[*at].ring;
                let address = match ring.entries {
                    Entries::Here => Arena::address(ring.sq),
                    Entries::Pushed { .. } => {
                        let before = &self.queues[..*at];
                        let offset: usize = before.iter().map(|queue| sq_bytes(queue.ring.sq_entries)).sum();
                        CMB_ADDRESS + offset as u64
                    }
                };
                ("Create I/O Submission Queue", Sqe::create_sq(ring.id, ring.sq_entries, address))
            }
            _ => return false,
        };
        match self.command(now_ns, machine, name, sqe) {
            None => false,
            Some(Err(failure)) => self.fail(now_ns, failure),
            Some(Ok(result)) => match self.administered(now_ns, machine, result) {
                Ok(()) => true,
                Err(failure) => self.fail(now_ns, failure),
            },
        }
    }

    /// The Admin command of this step went well.
    fn administered<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<A>,
        result: u32,
    ) -> Result<(), Failure> {
        let mut data = [0; PAGE_BYTES];
        data.copy_from_slice(machine.arena().at(IDENTIFY, PAGE_BYTES));
        match &mut self.step {
            Step::Identify => {
                self.identity = Some(ControllerData::parse(&data));
                self.namespaces.clear();
                self.step = Step::Active;
            }
            Step::Active => {
                let nsids = data.chunks_exact(4).map(u32_of).take_while(|&nsid| nsid != 0);
                let mut list: Vec<u32> = nsids.take(MAX_NAMESPACES).collect();
                if !list.contains(&self.config.nsid) {
                    return Err(Failure::NoNamespace { nsid: self.config.nsid, active: list });
                }
                if !self.config.identify_all {
                    list = vec![self.config.nsid];
                }
                self.step = Step::Namespaces(list, 0);
            }
            Step::Namespaces(list, at) => {
                let nsid = list.get(*at).copied().unwrap_or(0);
                self.namespaces.push(NamespaceData::parse(nsid, &data));
                *at += 1;
                if *at >= list.len() {
                    self.learn()?;
                    self.step = Step::Count;
                }
            }
            Step::Count => {
                let granted = (result & 0xFFFF).min(result >> 16) as usize + 1;
                if self.known && granted < self.active {
                    return Err(Failure::Changed);
                }
                if !self.known {
                    self.active = granted.min(self.queues.len());
                    let entries = self.capabilities.max_entries();
                    self.queues.iter_mut().for_each(|queue| queue.limit(entries));
                }
                self.step = Step::CreateCq(0);
            }
            Step::CreateCq(at) => self.step = Step::CreateSq(*at),
            Step::CreateSq(at) if *at + 1 < self.active => self.step = Step::CreateCq(*at + 1),
            Step::CreateSq(_) => self.go(now_ns, machine),
            _ => {}
        }
        if let Step::CreateCq(at) = self.step {
            let queue = &mut self.queues[at];
            let depth = queue.depth();
            queue.ring.restart(machine.arena_mut(), self.capabilities.doorbell_bytes(), depth);
        }
        Ok(())
    }

    /// Takes what controller and namespace have told for the disk's, or compares it with that.
    fn learn(&mut self) -> Result<(), Failure> {
        let (Some(controller), Some(namespace)) =
            (&self.identity, self.namespaces.iter().find(|namespace| namespace.nsid == self.config.nsid))
        else {
            return Err(Failure::Changed);
        };
        let NamespaceData { nsid, blocks, block_shift, metadata_bytes, .. } = *namespace;
        let is_sound = (9..=16).contains(&block_shift) && metadata_bytes == 0;
        if !is_sound
            || blocks.checked_shl(block_shift.into()).is_none_or(|bytes| bytes >> block_shift != blocks)
        {
            return Err(Failure::Format { nsid, block_shift, metadata_bytes });
        }
        self.sgls = self.config.data_pointers == DataPointers::Sgl && controller.can_use_sgls();
        let block_bytes = 1u32 << block_shift;
        let described = if self.sgls { usize::MAX } else { PRP_BYTES };
        let most = controller.max_transfer_bytes.unwrap_or(u64::MAX).min(u64::from(block_bytes) << 16);
        let most = most.min(self.pool.largest().min(described) as u64) as u32;
        let depth = u32::from(self.config.queue_depth).min(self.capabilities.max_entries() - 1);
        let info = DiskInfo {
            block_bytes,
            blocks,
            max_transfer_bytes: most / block_bytes * block_bytes,
            max_zero_blocks: 1 << 16,
            max_discard_blocks: u32::MAX,
            queue_depth: depth as usize,
            read_only: namespace.read_only,
            volatile_cache: controller.volatile_cache,
            can_discard: controller.can_deallocate(),
            can_write_zeroes: controller.can_write_zeroes(),
            discard_zeroes: namespace.deallocated_zeroes,
            serial: controller.serial.clone(),
            model: controller.model.clone(),
            firmware: controller.firmware.clone(),
        };
        let is_same = |old: &DiskInfo| {
            (old.block_bytes, old.blocks, &old.serial) == (info.block_bytes, info.blocks, &info.serial)
                && old.max_transfer_bytes <= info.max_transfer_bytes
        };
        if self.known {
            return if is_same(&self.info) { Ok(()) } else { Err(Failure::Changed) };
        }
        self.info = info;
        Ok(())
    }

    /// The controller is ready: what waited goes to it.
    fn go<A: Copy + Eq + fmt::Display>(&mut self, now_ns: u64, machine: &mut Machine<A>) {
        if !self.known {
            self.known = true;
            self.info.queue_depth =
                self.queues[..self.active].iter().map(|queue| queue.depth() as usize).sum();
        }
        self.counters.started += 1;
        self.failure = None;
        self.step = Step::Ready;
        (self.quiet_since_ns, self.quiet_at) = (now_ns, self.done());
        // Here, too: a start may be over before the next check.
        let give_up_ns = self.config.give_up_ns;
        self.end_waiting(DiskError::TimedOut, |slot| now_ns - slot.taken_ns > give_up_ns);
        for at in 0..self.active {
            for index in 0..self.queues[at].depth() {
                if self.queues[at].slots[usize::from(index)].state == State::Waiting {
                    self.counters.resubmitted += 1;
                    self.send(now_ns, machine.arena_mut(), at, index);
                }
            }
        }
        tracing::info!(
            model = self.info.model,
            serial = self.info.serial,
            queues = self.active,
            depth = self.info.queue_depth,
            "controller ready"
        );
    }

    /// Requests that ended, one way or the other.
    pub(super) fn done(&self) -> u64 {
        self.counters.completed + self.counters.failed
    }
}

/// Bytes of a Submission Queue in the Controller Memory Buffer: whole pages.
fn sq_bytes(entries: u16) -> usize {
    (usize::from(entries) * SQE_BYTES).next_multiple_of(PAGE_BYTES)
}
