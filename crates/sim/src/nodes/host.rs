//! A host: its node, and the guests in its slots. What stands between them is the host daemon's part: one guest's
//! accesses are handed over in order, and posted writes only while the node has room for them.

use std::cell::RefCell;
use std::rc::Rc;

use etherslot_node::{Accepted, Device, Guest, HostNode, Interrupt, Refused, SlotConfig};

use crate::checkers::Checks;
use crate::checkers::history::History;
use crate::checkers::order::Order;
use crate::checkers::verdict::{Rule, Verdict};
use crate::guest::cpu::{Cpu, Program};
use crate::guest::driver::Driver;
use crate::guest::machine::{Machine, Progress, Request};
use crate::guest::memory::Memory;
use crate::guest::network;
use crate::guest::prober;
use crate::guest::sata::{self, AHCI_BAR, SIL3132_BAR};
use crate::network::Address;
use crate::nodes::io_box::device_name;
use crate::nodes::{Inbox, Ran, Send, check_session, check_zero, rounds, security, session_config};
use crate::plan::{DeviceKind, GuestPlan, InterruptPlan, Plan};
use crate::random::Random;

/// A guest while it runs.
struct Running {
    machine: Rc<RefCell<Machine>>,
    programs: Vec<Program>,
}

/// A slot and its guest.
struct Slot {
    name: String,
    box_address: Address,
    plan: GuestPlan,
    kind: DeviceKind,
    /// Number of the device.
    device: usize,
    order: Rc<RefCell<Order>>,
    history: Rc<RefCell<History>>,
    running: Option<Running>,
    /// The device, while it is attached: known to the daemon though no guest may run.
    attached: Option<Device>,
    /// What earlier lives of the guest did.
    before: Progress,
    next_access: u64,
}

/// A host.
pub(crate) struct Host {
    node: Option<HostNode<Address>>,
    /// What the network brought.
    pub(crate) inbox: Inbox,
    index: usize,
    slots: Vec<Slot>,
    verdict: Rc<Verdict>,
    random: Random,
    /// What its clock shows at the beginning of time.
    clock_ns: u64,
    window_frames: usize,
}

/// The guests, as the node sees them.
struct Guests<'a>(&'a mut [Slot]);

impl Guest for Guests<'_> {
    fn read(&mut self, slot: usize, address: u64, data: &mut [u8]) -> bool {
        let slot = &mut self.0[slot];
        slot.order.borrow_mut().answered(address, data.len());
        slot.running.as_ref().is_some_and(|running| running.machine.borrow_mut().dma_read(address, data))
    }

    fn write(&mut self, slot: usize, address: u64, data: &[u8]) -> bool {
        let slot = &mut self.0[slot];
        slot.order.borrow_mut().applied(address, data);
        slot.running.as_ref().is_some_and(|running| running.machine.borrow_mut().dma_write(address, data))
    }

    fn interrupt(&mut self, slot: usize, interrupt: Interrupt) {
        let slot = &mut self.0[slot];
        if let Interrupt::Message(vector) = interrupt {
            slot.order.borrow_mut().interrupted(vector);
        }
        if let Some(running) = &slot.running {
            running.machine.borrow_mut().interrupt(interrupt);
        }
    }

    fn completed(&mut self, slot: usize, access: u64, data: &[u8]) {
        let slot = &mut self.0[slot];
        if let Some(running) = &slot.running {
            let mut machine = running.machine.borrow_mut();
            let was_reset = machine.completed(access, data);
            if was_reset {
                slot.order.borrow_mut().reset_done();
            }
        }
    }

    fn attached(&mut self, slot: usize, device: &Device) {
        let slot = &mut self.0[slot];
        slot.order.borrow_mut().attached();
        slot.attached = Some(*device);
        if let Some(running) = &slot.running {
            running.machine.borrow_mut().attached(device);
        }
    }

    fn lost(&mut self, slot: usize) {
        let slot = &mut self.0[slot];
        slot.attached = None;
        if let Some(running) = &slot.running {
            running.machine.borrow_mut().lost();
        }
    }
}

impl Slot {
    fn start(&mut self, verdict: &Rc<Verdict>, random: &mut Random) {
        let life = random.bits();
        let mut random = Random::new(life);
        let memory = Memory::new(self.plan.memory_base, self.plan.memory_pages, &mut random);
        let mut machine = Machine::new(
            self.name.clone(),
            Rc::clone(verdict),
            Rc::clone(&self.history),
            memory,
            &self.plan,
            self.next_access,
        );
        machine.device = self.attached;
        let machine = Rc::new(RefCell::new(machine));
        let registers = match self.kind {
            DeviceKind::Nvme | DeviceKind::E82576 => 0,
            DeviceKind::Ahci => AHCI_BAR,
            DeviceKind::Sil3132 => SIL3132_BAR,
        };
        let cpu = Cpu::new(Rc::clone(&machine), registers);
        let mut plan = self.plan.clone();
        plan.commands = plan.commands.saturating_sub(self.before.submitted as u32).max(4);
        // A hypervisor that takes over from one that died finds the device in any state.
        plan.reset_first |= self.before != Progress::default();
        let own = random.fork("driver", 0);
        let mut programs = vec![match self.kind {
            DeviceKind::Nvme => Program::new(Driver::new(cpu.clone(), plan, own).drive()),
            DeviceKind::E82576 => {
                Program::new(network::Driver::new(cpu.clone(), plan, self.before.submitted, own).drive())
            }
            kind => Program::new(sata::Driver::new(cpu.clone(), plan, kind, own).drive()),
        }];
        if self.plan.prober {
            programs.push(Program::new(prober::probe(cpu.clone(), random.fork("prober", 0))));
        }
        if self.plan.vandal {
            programs.push(Program::new(prober::vandalise(cpu, random.fork("vandal", 0))));
        }
        self.running = Some(Running { machine, programs });
    }

    fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            let machine = running.machine.borrow();
            self.next_access = machine.next_access();
            self.before = self.progress_of(&machine);
        }
    }

    fn progress_of(&self, machine: &Machine) -> Progress {
        let (before, now) = (self.before, machine.progress);
        Progress {
            submitted: before.submitted + now.submitted,
            succeeded: before.succeeded + now.succeeded,
            failed: before.failed + now.failed,
            enabled: before.enabled + now.enabled,
            troubles: before.troubles + now.troubles,
            shut_down: before.shut_down + now.shut_down,
            finished: now.finished,
        }
    }

    fn progress(&self) -> Progress {
        self.running.as_ref().map_or(self.before, |running| self.progress_of(&running.machine.borrow()))
    }

    /// Runs the guest's programs if there is anything for them.
    fn run_programs(&mut self, now_ns: u64) -> bool {
        let Some(running) = &mut self.running else { return false };
        let changed = std::mem::take(&mut running.machine.borrow_mut().changed);
        let mut ran = false;
        for program in &mut running.programs {
            if changed || program.alarm_ns() <= now_ns {
                program.run(&running.machine);
                ran = true;
            }
        }
        ran && changed
    }

    /// Hands over the guest's accesses as far as the node takes them.
    fn hand_over(
        &mut self,
        now_ns: u64,
        node: &mut HostNode<Address>,
        index: usize,
        verdict: &Verdict,
    ) -> bool {
        let Some(running) = &self.running else { return false };
        let mut progress = false;
        loop {
            let Some(access) = running.machine.borrow().next_request() else { return progress };
            let id = access.id;
            let (outcome, bytes) = match access.request {
                Request::ConfigRead { offset, bytes } => {
                    (node.config_read(now_ns, index, id, offset, bytes), bytes)
                }
                Request::ConfigWrite { offset, bytes, value } => {
                    (node.config_write(now_ns, index, id, offset, &value.to_le_bytes()[..bytes]), 0)
                }
                Request::BarRead { bar, offset, bytes } => {
                    (node.bar_read(now_ns, index, id, bar, offset, bytes), bytes)
                }
                Request::BarWrite { bar, offset, bytes, value } => {
                    if !node.has_room(index) {
                        return progress;
                    }
                    let data = &value.to_le_bytes()[..bytes];
                    let dropped = |node: &HostNode<Address>| {
                        node.slot_counters().nth(index).map(|counters| counters.lost_writes)
                    };
                    let before = dropped(node);
                    let outcome = node.bar_write(index, bar, offset, data, &mut |address, data| {
                        running.machine.borrow_mut().dma_read(address, data)
                    });
                    if outcome.is_ok() && dropped(node) == before {
                        self.order.borrow_mut().guest_wrote(bar as u8, offset, data);
                    }
                    (outcome.map(|()| Accepted::Later), 0)
                }
                Request::Interrupts(interrupts) => {
                    node.set_interrupts(index, interrupts);
                    (Ok(Accepted::Later), 0)
                }
                Request::Reset => {
                    self.order.borrow_mut().resetting();
                    (node.reset(now_ns, index, Some(id)), 0)
                }
            };
            let mut machine = running.machine.borrow_mut();
            match outcome {
                Ok(Accepted::Later) => machine.handed(),
                Ok(Accepted::AllOnes) => {
                    machine.handed();
                    let was_reset = machine.completed(id, &[0xFF; 8][..bytes]);
                    if was_reset {
                        self.order.borrow_mut().reset_done();
                    }
                }
                Err(Refused::Busy) => return progress,
                Err(Refused::Range) => {
                    verdict.broken(Rule::AccessTime, || format!("{}: {access:?} was refused", self.name));
                    machine.handed();
                    let _ = machine.completed(id, &[0xFF; 8][..bytes]);
                }
            }
            progress = true;
        }
    }
}

impl Host {
    /// Host number `index`, stopped.
    pub(crate) fn new(plan: &Plan, index: usize, checks: &[Checks], verdict: Rc<Verdict>) -> Self {
        let guests = plan.guests.iter().enumerate().filter(|(_, (host, _))| *host == index);
        let slots = guests.map(|(device, (_, guest))| Slot {
            name: format!("host{index}/nvme{device}"),
            box_address: Address(plan.devices[device].node as u8),
            plan: guest.clone(),
            kind: plan.devices[device].kind,
            device,
            order: Rc::clone(&checks[device].order),
            history: Rc::clone(&checks[device].history),
            running: None,
            attached: None,
            before: Progress::default(),
            next_access: 1,
        });
        let node = plan.boxes + index;
        let window_frames =
            plan.sessions.iter().map(|session| session.window_frames).max().unwrap_or(0) as usize;
        Self {
            node: None,
            inbox: Inbox::new(plan.sessions[node].receive_frames),
            index: node,
            slots: slots.collect(),
            verdict,
            random: Random::new(plan.seed).fork("host", index as u64),
            clock_ns: plan.sessions[node].clock_ns,
            window_frames,
        }
    }

    /// Starts the node and all guests.
    pub(crate) fn start(&mut self, plan: &Plan) {
        let slots = self.slots.iter().map(|slot| SlotConfig {
            name: device_name(slot.device),
            address: slot.box_address,
            hide_msix: slot.plan.interrupts == InterruptPlan::IntX,
        });
        let slots: Vec<_> = slots.collect();
        let seed = self.random.bits();
        let mut node = HostNode::new(session_config(plan, self.index), seed, &slots);
        if let Some(security) = security(plan, self.index, &mut self.random) {
            node.protect(security);
        }
        self.node = Some(node);
        self.inbox.clear();
        (0..self.slots.len()).for_each(|slot| self.start_guest(slot));
    }

    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.node.is_some()
    }

    /// `kill -9`, with its guests.
    pub(crate) fn kill(&mut self) {
        self.node = None;
        self.inbox.clear();
        for slot in &mut self.slots {
            slot.kill();
            slot.attached = None;
        }
    }

    /// Says goodbye and stops, with its guests.
    pub(crate) fn stop(&mut self, now_ns: u64, send: &mut Send<'_>) {
        if let Some(node) = &mut self.node {
            node.close();
            node.transmit(now_ns + self.clock_ns, send);
        }
        self.kill();
    }

    /// `kill -9` of the guest in a slot; the node resets its device. True if one was running.
    pub(crate) fn kill_guest(&mut self, now_ns: u64, slot: usize) -> bool {
        let (Some(node), Some(guest)) = (&mut self.node, self.slots.get_mut(slot)) else { return false };
        if guest.running.is_none() {
            return false;
        }
        guest.kill();
        guest.order.borrow_mut().resetting();
        let _ = node.reset(now_ns + self.clock_ns, slot, None);
        true
    }

    /// Starts the guest in a slot, if the host runs and the guest does not.
    pub(crate) fn start_guest(&mut self, slot: usize) {
        if self.node.is_some()
            && let Some(guest) = self.slots.get_mut(slot)
            && guest.running.is_none()
        {
            guest.start(&self.verdict, &mut self.random);
        }
    }

    /// Lets it run until it has nothing left to do now.
    pub(crate) fn run(&mut self, now_ns: u64, send: &mut Send<'_>) -> Ran {
        let clock_ns = self.clock_ns;
        let Some(node) = &mut self.node else { return Ran::default() };
        let (inbox, slots, verdict) = (&mut self.inbox, &mut self.slots, &self.verdict);
        let ran = rounds(|| {
            let frames =
                inbox.receive(|from, frame| node.receive(now_ns + clock_ns, from, frame, &mut Guests(slots)));
            let mut progress = false;
            for (index, slot) in slots.iter_mut().enumerate() {
                progress |= slot.run_programs(now_ns);
                progress |= slot.hand_over(now_ns + clock_ns, node, index, verdict);
            }
            progress |= node.poll(now_ns + clock_ns, &mut Guests(slots));
            progress |= node.transmit(now_ns + clock_ns, send);
            (frames, progress)
        });
        for running in self.slots.iter().filter_map(|slot| slot.running.as_ref()) {
            running.machine.borrow().check_access_times();
        }
        for (peer, session) in node.sessions() {
            check_session(&self.verdict, self.index, *peer, session, self.window_frames);
        }
        for (slot, counters) in self.slots.iter().zip(node.slot_counters()) {
            check_zero(
                &self.verdict,
                &slot.name,
                &[
                    ("malformed TLPs", counters.malformed),
                    ("TLPs of others", counters.foreign),
                    ("poisoned writes", counters.poisoned),
                    ("Requests of other kinds", counters.unsupported),
                ],
            );
            if slot.plan.transparent {
                // A Hot Reset makes Completions that are on their way unexpected.
                let unexpected =
                    if slot.plan.bus_reset_percent == 0 { counters.unexpected_completions } else { 0 };
                check_zero(
                    &self.verdict,
                    &slot.name,
                    &[
                        ("DMA faults", counters.dma_faults),
                        ("unexpected Completions", unexpected),
                        ("timeouts of accesses", counters.access_timeouts),
                        ("error Messages", counters.error_messages),
                    ],
                );
            }
        }
        ran
    }

    /// It stands still for so long.
    pub(crate) fn pause(&mut self, for_ns: u64) {
        for running in self.slots.iter().filter_map(|slot| slot.running.as_ref()) {
            running.machine.borrow_mut().paused_ns += for_ns;
        }
    }

    /// When it has to run though nothing happened.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let node = self.node.as_ref()?.deadline_ns().map(|at_ns| at_ns.saturating_sub(self.clock_ns));
        let programs =
            self.slots.iter().filter_map(|slot| slot.running.as_ref()).flat_map(|running| &running.programs);
        programs.map(Program::alarm_ns).chain(node).min()
    }

    /// How far the guest of each slot has got.
    pub(crate) fn progress(&self) -> impl Iterator<Item = Progress> {
        self.slots.iter().map(Slot::progress)
    }
}
