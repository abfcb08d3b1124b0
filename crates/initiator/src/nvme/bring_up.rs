//! Starting a controller (NVMe Base 1.4, 7.6.1), watching it, and starting it again.
//!
//! One register access or Admin command at a time. What fails is tried again from a Hot Reset on after a second, unless it
//! would be in vain.

use std::fmt;

use etherslot_node::Interrupts;

use super::bits::{
    CC_ENABLE, CLASS, CMB_CMSE, CMB_CRE, Capabilities, PAGE_BYTES, REGISTERS, SQE_BYTES, csts, register,
};
use super::{ADMIN_CQ, ADMIN_ENTRIES, ADMIN_SQ, Controller, Entries, Failure, State, Submission};
use crate::arena::Arena;
use crate::disk::DiskError;
use crate::enumeration::Enumeration;
use crate::machine::{Access, Machine};

/// After a failure, the next attempt comes this much later.
const RETRY_NS: u64 = 1_000_000_000;
/// Between two looks at CSTS.
pub(super) const PACE_NS: u64 = 100_000;
/// Between two looks at requests that may have taken too long.
const CHECK_NS: u64 = 50_000_000;
/// Steps at one call, so that a device that answers everything at once does not hold us.
const STEPS: usize = 64;
/// Where the controller is told to see its buffer: no address of ours, and of no BAR.
pub(super) const CMB_ADDRESS: u64 = 1 << 44;

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
    /// Requests go to it no more: it is told to make all durable, and says when it has.
    ShutDown {
        told: bool,
        until_ns: u64,
        next_ns: u64,
    },
    /// For good: it can't be used, or was shut down.
    Unusable,
}

impl Step {
    /// When it goes on if nothing happens.
    fn due_ns(&self) -> Option<u64> {
        match self {
            Self::Stopping { next_ns, .. }
            | Self::Starting { next_ns, .. }
            | Self::ShutDown { next_ns, told: true, .. } => Some(*next_ns),
            Self::Reset { at_ns } => Some(*at_ns),
            _ => None,
        }
    }
}

/// Makes an access, if it was not made, and takes its answer, if it is there.
pub(super) fn access<'a, A: Copy + Eq + fmt::Display>(
    asked: &mut bool,
    now_ns: u64,
    machine: &'a mut Machine<'_, A>,
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

pub(super) fn u32_of(data: &[u8]) -> u32 {
    data.first_chunk().copied().map_or(u32::MAX, u32::from_le_bytes)
}

/// The first step with a device, if there is one.
fn enumerate<A: Copy + Eq + fmt::Display>(machine: &Machine<'_, A>) -> Step {
    machine.layout().map_or(Step::Away, |layout| Step::Enumerate(Enumeration::new(layout, machine.slot())))
}

impl Controller {
    /// Goes on with everything that can go on. True if something was done.
    pub(crate) fn drive<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<'_, A>,
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
        // An answer that is waited for comes with a frame, or its end is the node's.
        let due = self.step.due_ns().filter(|_| !self.asked);
        [check, due].into_iter().flatten().min()
    }

    fn came_or_went<A: Copy + Eq + fmt::Display>(&mut self, machine: &mut Machine<'_, A>) {
        // What it had completed before it went counts.
        self.harvest(machine.arena());
        self.call_back();
        self.asked = false;
        let is_there = machine.device().is_some();
        self.counters.losses += u64::from(!is_there);
        self.step = match self.step {
            Step::Unusable | Step::ShutDown { .. } => Step::Unusable,
            _ => enumerate(machine),
        };
    }

    /// Keeps for the next poll what has come.
    pub(super) fn harvest(&mut self, arena: &Arena) {
        if self.is_at_work() {
            let mut ended = std::mem::take(&mut self.ended);
            self.reap(arena, u64::MAX, &mut |done| ended.push(done));
            self.ended = ended;
        }
    }

    pub(super) fn fail(&mut self, now_ns: u64, failure: Failure) -> bool {
        tracing::warn!(%failure, "the controller can't be used");
        self.step =
            if failure.is_final() { Step::Unusable } else { Step::Reset { at_ns: now_ns + RETRY_NS } };
        self.asked = false;
        self.failure = Some(failure);
        true
    }

    /// One step. True if there may be a further one now.
    fn advance<A: Copy + Eq + fmt::Display>(&mut self, now_ns: u64, machine: &mut Machine<'_, A>) -> bool {
        let bar_read = |offset, bytes| Access::BarRead { bar: REGISTERS, offset, bytes };
        match &mut self.step {
            Step::Away | Step::Unusable => return false,
            Step::Enumerate(enumeration) => {
                let Some(next) = enumeration.access() else {
                    let class = machine.layout().map_or([0xFF; 3], |layout| layout.class);
                    if class != CLASS {
                        return self.fail(now_ns, Failure::NotNvme(class));
                    }
                    if self.config.interrupts {
                        machine.set_interrupts(Interrupts::MsiX);
                    }
                    self.step = Step::Capabilities;
                    return true;
                };
                if access(&mut self.asked, now_ns, machine, next).is_none() {
                    return false;
                }
                enumeration.answered();
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
                self.step = enumerate(machine);
            }
            Step::ShutDown { .. } => return self.go_on_shutting_down(now_ns, machine),
        }
        true
    }

    /// A Controller Reset.
    pub(super) fn start_over<A: Copy + Eq + fmt::Display>(&mut self, machine: &mut Machine<'_, A>) {
        self.harvest(machine.arena());
        self.counters.resets += 1;
        self.asked = false;
        self.step = Step::Stop;
    }

    /// Where Submission Queues go in a buffer that these registers tell of.
    fn look_at_cmb(&self, location: u32, size: u32) -> Step {
        const SUBMISSION_QUEUES: u32 = 1;
        let unit = 4096u64 << (4 * (size >> 8 & 0xF)).min(40);
        // Reserved units make of them more than there can be.
        let in_units = |count: u32| u64::from(count).saturating_mul(unit);
        let (bytes, offset) = (in_units(size >> 12), in_units(location >> 12));
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

    /// The controller is ready: what waited goes to it.
    pub(super) fn go<A: Copy + Eq + fmt::Display>(&mut self, now_ns: u64, machine: &mut Machine<'_, A>) {
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
pub(super) fn sq_bytes(entries: u16) -> usize {
    (usize::from(entries) * SQE_BYTES).next_multiple_of(PAGE_BYTES)
}
