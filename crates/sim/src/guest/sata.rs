//! A small driver for SATA controllers that does what Linux does: it finds the controller, resets it, brings its disks up, works with
//! them, reads the log of a failed queued command, and when commands take too long or registers read as all ones, begins anew.

mod ahci;
mod ata;
mod sil3132;
mod work;

use crate::checkers::verdict::Rule;
use crate::guest::bus::{Place, Trouble};
use crate::guest::cpu::Cpu;
use crate::guest::driver::buffer::{Buffer, Way, scattered};
use crate::guest::extent::{Busy, Namespace};
use crate::guest::machine::Command;
use crate::guest::memory::{Grant, PAGE_BYTES, Piece};
use crate::guest::nvme::status;
use crate::guest::sata::ata::{Ata, FAULT, UNCORRECTABLE, op};
use crate::plan::{DeviceKind, GuestPlan, InterruptPlan};
use crate::random::Random;

/// The BAR of AHCI's registers.
pub(crate) const AHCI_BAR: usize = 5;
/// That of the 3132's ports.
pub(crate) const SIL3132_BAR: usize = 2;

/// A command that takes longer has timed out.
const COMMAND_TIMEOUT_NS: u64 = 3_000_000_000;
/// What a reset may take: where the device has few Tags, those that a reset from outside left have to come back first.
const REGISTER_TIMEOUT_NS: u64 = 5_000_000_000;
/// An interrupt comes this soon after what it tells of was seen.
const INTERRUPT_BOUND_NS: u64 = 1_500_000_000;
const POLL_NS: u64 = 20_000;
const SLOTS: usize = 32;
/// The most pieces of a buffer, or a few more.
const PIECES: usize = 48;
/// How a command ended that could not be carried out: no status of a disk's.
const BROKEN_OFF: u16 = 0xFFFF;

/// A command under way.
#[derive(Clone, Copy, Debug)]
struct Active {
    busy: Busy,
    is_queued: bool,
}

/// A port with a disk.
struct Port {
    disk: Namespace,
    has_cache: bool,
    /// AHCI: the command list, and the memory for received FISes.
    list: u64,
    received: u64,
    /// A page for what each slot's command is.
    tables: Vec<u64>,
    slots: [Option<Active>; SLOTS],
    /// The command that waits until all others have ended.
    next: Option<work::Kind>,
}

impl Port {
    fn active(&self) -> u32 {
        (0..SLOTS).fold(0, |set, slot| set | u32::from(self.slots[slot].is_some()) << slot)
    }

    /// A command that is not queued is under way.
    fn is_alone(&self) -> bool {
        self.slots.iter().flatten().any(|active| !active.is_queued)
    }
}

/// What a port's registers tell.
#[derive(Clone, Copy, Debug)]
struct Look {
    /// Slots whose commands have not ended.
    active: u32,
    /// One of them has failed.
    failed: bool,
}

/// Why a command has failed.
#[derive(Clone, Copy, Debug)]
enum Failure {
    /// The disk says so, of the command that is alone: status and error.
    Of(u8, u8),
    /// The disk says so, of one of those that are queued: its log tells of which.
    Queued,
    /// It could not be carried out.
    Broken,
}

/// The driver.
pub(crate) struct Driver {
    cpu: Cpu,
    plan: GuestPlan,
    random: Random,
    place: Place,
    kind: DeviceKind,
    ports: Vec<Port>,
    pages: Vec<u64>,
    commands_left: u32,
    burst_left: u32,
    pause_until_ns: u64,
}

impl Driver {
    /// A driver for such a controller, that does what `plan` says.
    pub(crate) fn new(cpu: Cpu, plan: GuestPlan, kind: DeviceKind, random: Random) -> Self {
        let class = if kind == DeviceKind::Ahci { 0x01_0601 } else { 0x01_8000 };
        Self {
            place: Place::new(cpu.clone(), plan.clone(), class),
            commands_left: plan.commands,
            burst_left: plan.burst,
            cpu,
            plan,
            random,
            kind,
            ports: Vec::new(),
            pages: Vec::new(),
            pause_until_ns: 0,
        }
    }

    /// Drives the controller to the end of its work.
    pub(crate) async fn drive(mut self) {
        self.cpu.device_or(u64::MAX).await;
        if self.plan.reset_first {
            self.cpu.reset().await;
        }
        let mut looks = self.plan.looks;
        while looks != 0 {
            match self.life().await {
                Ok(()) => {
                    self.cpu.machine(|machine| machine.progress.shut_down += 1);
                    looks -= 1;
                    let rest_ns = self.random.magnitude(1_000_000, 5_000_000_000);
                    self.cpu.sleep(rest_ns).await;
                }
                Err(trouble) => self.recover(trouble).await,
            }
        }
        self.cpu.machine(|machine| {
            machine.progress.finished = true;
            machine.event(0, || "finished".to_owned());
        });
    }

    fn broken(&self, rule: Rule, detail: impl FnOnce() -> String) {
        self.cpu.machine(|machine| machine.broken(rule, detail));
    }

    /// From a controller that may be in any state to the end of the work.
    async fn life(&mut self) -> Result<(), Trouble> {
        self.place.find(&mut self.random).await?;
        self.reset_controller().await?;
        self.start_ports().await?;
        self.cpu.machine(|machine| machine.progress.enabled += 1);
        self.work().await?;
        self.sweep().await?;
        self.shut_down().await
    }

    async fn recover(&mut self, trouble: Trouble) {
        self.cpu.machine(|machine| machine.event(1, || format!("gives the controller up: {trouble:?}")));
        // A disk whose medium fails can't switch its cache off, nor stand by.
        let of_medium = self.plan.media_faults && matches!(trouble, Trouble::Refused(..));
        if self.plan.transparent && trouble != Trouble::OnPurpose && !of_medium {
            self.broken(Rule::Transparent, || format!("{trouble:?}"));
        }
        let lost: u32 = self.ports.iter().map(|port| port.active().count_ones()).sum();
        self.cpu.machine(|machine| {
            machine.progress.troubles += 1;
            machine.progress.failed += u64::from(lost);
        });
        if trouble != Trouble::Gone && self.random.percent(self.plan.function_reset_percent) {
            self.place.function_level_reset().await;
        } else if trouble != Trouble::Gone && self.random.percent(self.plan.bus_reset_percent) {
            self.cpu.reset().await;
            self.place.unconfigured = true;
        }
        let wait_ns = self.random.magnitude(1_000_000, 100_000_000);
        self.cpu.sleep(wait_ns).await;
        while self.cpu.config_read(0, 4).await == u32::MAX {
            let wait_ns = self.random.range(5_000_000, 100_000_000);
            self.cpu.sleep(wait_ns).await;
        }
    }

    // ----- the controller -----

    /// Stops the controller, whatever it does. Once that was seen, nothing of what was under way goes on.
    async fn reset_controller(&mut self) -> Result<(), Trouble> {
        match self.kind {
            DeviceKind::Sil3132 => self.reset_sil3132().await?,
            _ => self.reset_ahci().await?,
        }
        self.ports.clear();
        let pages = std::mem::take(&mut self.pages);
        self.cpu.machine(|machine| {
            machine.stopped();
            for &page in &pages {
                machine.memory.release(page);
            }
            machine.fired.clear();
        });
        Ok(())
    }

    /// A zeroed page with which the device may do this.
    fn page(&mut self, grant: Grant) -> Option<u64> {
        let page = self.cpu.machine(|machine| {
            let page = machine.memory.allocate()?;
            machine.memory.get_mut(page, PAGE_BYTES)?.fill(0);
            machine.memory.grant(page, grant);
            Some(page)
        })?;
        self.pages.push(page);
        Some(page)
    }

    fn make_port(&mut self, disk: Namespace) -> Option<Port> {
        let list = self.page(Grant::Share)?;
        let received = self.page(Grant::Write(0, 256))?;
        let tables = (0..SLOTS).map(|_| self.page(Grant::Fetch)).collect::<Option<Vec<_>>>()?;
        Some(Port { disk, has_cache: true, list, received, tables, slots: [None; SLOTS], next: None })
    }

    /// Brings the disks up and asks them what they are.
    async fn start_ports(&mut self) -> Result<(), Trouble> {
        let disks: Vec<_> = self.cpu.machine(|machine| machine.history.borrow().namespaces().collect());
        for (block_bytes, blocks) in disks {
            let port = self.make_port(Namespace { block_bytes, blocks }).ok_or(Trouble::Timeout("memory"))?;
            self.ports.push(port);
            let number = self.ports.len() - 1;
            match self.kind {
                DeviceKind::Sil3132 => self.start_sil3132(number).await?,
                _ => self.start_ahci(number).await?,
            }
            self.identify(number).await?;
            if self.plan.cache_off {
                self.alone(number, Ata { features: 0x82, ..Ata::new(op::SET_FEATURES) }, 0).await?;
                self.ports[number].has_cache = false;
            }
        }
        if self.plan.interrupts != InterruptPlan::Polling {
            match self.kind {
                DeviceKind::Sil3132 => self.enable_sil3132().await,
                _ => self.enable_ahci().await,
            }
        }
        Ok(())
    }

    async fn identify(&mut self, port: usize) -> Result<(), Trouble> {
        let page = self.alone(port, Ata::new(op::IDENTIFY), 512).await?;
        let word = |at: usize| u64::from(u16::from_le_bytes([page[2 * at], page[2 * at + 1]]));
        let blocks = word(100) | word(101) << 16 | word(102) << 32 | word(103) << 48;
        let block_bytes = if word(106) & 0xD000 == 0x5000 { 2 * (word(117) | word(118) << 16) } else { 512 };
        let has_queue = word(76) & 1 << 8 != 0 && word(75) == 31;
        let disk = self.ports[port].disk;
        if (block_bytes as usize, blocks) != (disk.block_bytes, disk.blocks) || !has_queue {
            self.broken(Rule::Sata, || {
                format!("port {port}: {blocks} sectors of {block_bytes}, queue {has_queue}, not {disk:?}")
            });
        }
        Ok(())
    }

    // ----- commands -----

    /// Lays a command into a slot and tells the controller of it.
    async fn issue(&mut self, port: usize, slot: usize, ata: &Ata, pieces: &[Piece]) {
        match self.kind {
            DeviceKind::Sil3132 => self.issue_sil3132(port, slot, ata, pieces, 0).await,
            _ => self.issue_ahci(port, slot, ata, pieces).await,
        }
    }

    async fn look(&mut self, port: usize) -> Result<Look, Trouble> {
        match self.kind {
            DeviceKind::Sil3132 => self.look_at_sil3132(port).await,
            _ => self.look_at_ahci(port).await,
        }
    }

    /// Whether the port is as this driver has started it.
    async fn is_running(&mut self, port: usize) -> bool {
        match self.kind {
            DeviceKind::Sil3132 => self.is_sil3132_running(port).await,
            _ => self.is_ahci_running(port).await,
        }
    }

    /// After a failure: why, of the command in `slot` if it was alone, and a port that works again.
    async fn restart_port(&mut self, port: usize, slot: usize) -> Result<Failure, Trouble> {
        match self.kind {
            DeviceKind::Sil3132 => self.restart_sil3132(port, slot).await,
            _ => self.restart_ahci(port).await,
        }
    }

    /// Carries out a command on a port that has no other, without interrupts; its answer of so many bytes.
    async fn alone(&mut self, port: usize, ata: Ata, bytes: usize) -> Result<Vec<u8>, Trouble> {
        let sizes = scattered(&mut self.random, bytes, PIECES);
        let buffer = self
            .cpu
            .machine(|machine| {
                let buffer = Buffer::allocate(&mut machine.memory, &sizes, Way::FromDevice)?;
                for &(page, grant) in &buffer.grants {
                    machine.memory.grant(page, grant);
                }
                Some(buffer)
            })
            .ok_or(Trouble::Timeout("memory"))?;
        // Given back with all others if the controller has to be reset.
        self.pages.extend(buffer.grants.iter().map(|&(page, _)| page));
        self.issue(port, 0, &ata, &buffer.pieces).await;
        let until_ns = self.cpu.now_ns() + COMMAND_TIMEOUT_NS;
        loop {
            let look = self.look(port).await?;
            if look.failed {
                let failure = self.restart_port(port, 0).await?;
                let how = if let Failure::Of(_, error) = failure { u16::from(error) } else { BROKEN_OFF };
                return Err(Trouble::Refused(ata.command, how));
            }
            if look.active & 1 == 0 {
                break;
            }
            if self.cpu.now_ns() > until_ns {
                return Err(Trouble::Timeout("a command that is alone"));
            }
            let wait_ns = self.random.range(5_000, 200_000);
            self.cpu.sleep(wait_ns).await;
        }
        self.pages.retain(|page| !buffer.grants.iter().any(|(used, _)| used == page));
        let mut data = Vec::new();
        self.cpu.machine(|machine| {
            machine.memory.gather(&buffer.pieces, &mut data);
            for &(page, _) in &buffer.grants {
                machine.memory.release(page);
            }
        });
        Ok(data)
    }

    /// The next slot of a port that is free.
    fn free_slot(&self, port: usize) -> Option<usize> {
        // The 3132 has one less.
        let slots = if self.kind == DeviceKind::Sil3132 { SLOTS - 1 } else { SLOTS };
        self.ports[port].slots[..slots].iter().position(Option::is_none)
    }

    /// Puts a command into a free slot, of which there is one.
    async fn put(&mut self, port: usize, prepared: work::Prepared) {
        let work::Prepared { mut ata, buffer, purpose, busy } = prepared;
        let slot = self.free_slot(port).expect("looked for before");
        if ata.is_queued() {
            ata.count = (slot as u16) << 3;
        }
        let key = (port as u16, slot as u16);
        self.cpu.machine(|machine| {
            for &(page, grant) in &buffer.grants {
                machine.memory.grant(page, grant);
            }
            let command = Command {
                purpose,
                pages: buffer.grants.iter().map(|&(page, _)| page).collect(),
                pieces: buffer.pieces.clone(),
                submitted_ns: machine.now_ns(),
                losses: machine.losses,
                aborting: false,
                done: None,
            };
            machine.event(u64::from(ata.command), || {
                format!("port {port} command {slot}: {ata:x?}, {purpose:?}")
            });
            machine.commands.insert(key, command);
        });
        self.ports[port].slots[slot] = Some(Active { busy, is_queued: ata.is_queued() });
        self.issue(port, slot, &ata, &buffer.pieces).await;
    }

    fn finish(&mut self, port: usize, slot: usize, how: u16) {
        self.ports[port].slots[slot] = None;
        self.cpu.machine(|machine| {
            machine.ended((port as u16, slot as u16), how);
            let progress = &mut machine.progress;
            *(if how == status::SUCCESS { &mut progress.succeeded } else { &mut progress.failed }) += 1;
        });
    }

    /// Takes what has ended at a port; how many commands it was.
    async fn serve(&mut self, port: usize) -> Result<usize, Trouble> {
        let look = self.look(port).await?;
        let before = self.ports[port].active();
        let done = before & !look.active;
        // A controller that came back after a loss knows of no command, either.
        if done != 0 && !self.is_running(port).await {
            return Err(Trouble::Gone);
        }
        for slot in (0..SLOTS).filter(|slot| done & 1 << slot != 0) {
            self.finish(port, slot, status::SUCCESS);
        }
        if look.failed {
            self.fail(port).await?;
        }
        Ok((before & !self.ports[port].active()).count_ones() as usize)
    }

    /// One of the commands under way has failed, and with it all.
    async fn fail(&mut self, port: usize) -> Result<(), Trouble> {
        let left = self.ports[port].active();
        let first = left.trailing_zeros() as usize;
        let failure = self.restart_port(port, first.min(SLOTS - 1)).await?;
        if left == 0 {
            self.broken(Rule::Completion, || format!("port {port}: {failure:?}, and nothing was under way"));
            return Ok(());
        }
        let (failed, how) = match failure {
            Failure::Of(status, error) => (first, status_of(status, error)),
            Failure::Broken => (first, BROKEN_OFF),
            Failure::Queued => {
                let log = Ata { lba: 0x10, count: 1, ..Ata::new(op::READ_LOG) };
                let log = self.alone(port, log, 512).await?;
                if log[0] & 0x80 != 0 {
                    self.broken(Rule::Completion, || {
                        format!("port {port}: the log tells of no queued command")
                    });
                }
                (usize::from(log[0] & 31), status_of(log[2], log[3]))
            }
        };
        if left & 1 << failed == 0 {
            self.broken(Rule::Completion, || format!("port {port}: {failed} has failed, of {left:#x}"));
        }
        for slot in (0..SLOTS).filter(|slot| left & 1 << slot != 0) {
            if slot != failed {
                self.cpu.machine(|machine| {
                    if let Some(command) = machine.commands.get_mut(&(port as u16, slot as u16)) {
                        command.aborting = true;
                    }
                });
            }
            self.finish(port, slot, if slot == failed { how } else { status::ABORT_REQUESTED });
        }
        Ok(())
    }

    /// Waits until something may have ended, takes it, and deals with commands that take too long.
    async fn wait(&mut self, until_ns: u64) -> Result<(), Trouble> {
        let polling = self.plan.interrupts == InterruptPlan::Polling;
        let next_timeout_ns = self.cpu.machine(|machine| {
            let ends = machine.commands.values().map(|command| command.submitted_ns + COMMAND_TIMEOUT_NS + 1);
            ends.min().unwrap_or(u64::MAX)
        });
        let mut until_ns = until_ns.min(next_timeout_ns);
        if polling {
            until_ns = until_ns.min(self.cpu.now_ns() + POLL_NS);
        }
        self.cpu.interrupt_or(until_ns).await;
        let (fired, level) = self.cpu.machine(|machine| (std::mem::take(&mut machine.fired), machine.intx));
        if polling || level || !fired.is_empty() {
            let taken = self.serve_all().await?;
            if level && taken == 0 {
                // INTA stays asserted until the device has seen that it was acknowledged.
                self.cpu.sleep(5_000).await;
            }
        }
        self.check_timeouts(polling).await
    }

    /// Takes what has ended at all ports that tell of something.
    async fn serve_all(&mut self) -> Result<usize, Trouble> {
        let telling = match self.kind {
            DeviceKind::Sil3132 => self.cpu.read_at(0, sil3132::IRQ_STATUS).await,
            _ => self.cpu.read32(ahci::IS).await,
        };
        if telling == u32::MAX {
            return Err(Trouble::Gone);
        }
        let polling = self.plan.interrupts == InterruptPlan::Polling;
        let mut taken = 0;
        for port in 0..self.ports.len() {
            if polling || telling & 1 << port != 0 {
                taken += self.serve(port).await?;
            }
        }
        if self.kind == DeviceKind::Ahci {
            self.cpu.write32(ahci::IS, telling).await;
        }
        Ok(taken)
    }

    async fn check_timeouts(&mut self, polling: bool) -> Result<(), Trouble> {
        let now_ns = self.cpu.now_ns();
        let (is_late, losses) = self.cpu.machine(|machine| {
            let late = |command: &Command| now_ns > command.submitted_ns + COMMAND_TIMEOUT_NS;
            (machine.commands.values().any(late), machine.losses)
        });
        if !is_late {
            return Ok(());
        }
        let mut done = 0;
        for port in 0..self.ports.len() {
            done += self.serve(port).await?;
        }
        if done == 0 {
            return Err(Trouble::Timeout("a command"));
        }
        // They had ended, so their interrupt is on its way.
        let until_ns = self.cpu.now_ns() + INTERRUPT_BOUND_NS;
        self.cpu.interrupt_or(until_ns).await;
        let was_silent = self.cpu.machine(|machine| {
            machine.fired.is_empty() && !machine.intx && machine.device.is_some() && machine.losses == losses
        });
        if was_silent && !polling {
            self.broken(Rule::Interrupt, || format!("{done} commands have ended, and no interrupt came"));
        }
        Ok(())
    }

    /// A normal end: what is in the caches is written.
    async fn shut_down(&mut self) -> Result<(), Trouble> {
        for port in 0..self.ports.len() {
            let flush = self.flush(port);
            self.put(port, flush).await;
        }
        while self.ports.iter().any(|port| port.active() != 0) {
            self.wait(u64::MAX).await?;
        }
        for port in 0..self.ports.len() {
            self.alone(port, Ata::new(op::STANDBY), 0).await?;
        }
        self.reset_controller().await
    }
}

/// How the disk's status and error are called here.
fn status_of(status: u8, error: u8) -> u16 {
    if status & FAULT != 0 {
        status::WRITE_FAULT
    } else if error & UNCORRECTABLE != 0 {
        status::UNRECOVERED_READ
    } else {
        u16::from(status) << 8 | u16::from(error)
    }
}
