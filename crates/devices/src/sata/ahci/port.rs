//! A port: its registers (3.3), its command list (5), the FISes that it received (4.2.1), and the Phy.

use super::super::channel::{Channel, End, Event, Trouble};
use super::super::command::Protocol;
use super::super::disk::{Disk, SLOTS};
use super::super::fis::{REGISTER_BYTES, Registers, Taskfile, status};
use super::super::list::WINDOW_BYTES;
use etherslot_pci::function::{Bus, Fault};
use std::collections::VecDeque;

/// Port registers, from the port's first.
mod register {
    pub(super) const CLB: u32 = 0x00;
    pub(super) const CLBU: u32 = 0x04;
    pub(super) const FB: u32 = 0x08;
    pub(super) const FBU: u32 = 0x0c;
    pub(super) const IS: u32 = 0x10;
    pub(super) const IE: u32 = 0x14;
    pub(super) const CMD: u32 = 0x18;
    pub(super) const TFD: u32 = 0x20;
    pub(super) const SIG: u32 = 0x24;
    pub(super) const SSTS: u32 = 0x28;
    pub(super) const SCTL: u32 = 0x2c;
    pub(super) const SERR: u32 = 0x30;
    pub(super) const SACT: u32 = 0x34;
    pub(super) const CI: u32 = 0x38;
}

/// `PxIS`, `PxIE`.
mod irq {
    /// Register FIS, PIO Setup FIS, Set Device Bits FIS.
    pub(super) const DHRS: u32 = 1 << 0;
    pub(super) const PSS: u32 = 1 << 1;
    pub(super) const SDBS: u32 = 1 << 3;
    /// A region that asked for it is done.
    pub(super) const DPS: u32 = 1 << 5;
    /// Port connect, `PhyRdy` change: both follow `PxSERR`.
    pub(super) const PCS: u32 = 1 << 6;
    pub(super) const PRCS: u32 = 1 << 22;
    /// Overflow, fatal errors of interface, data on the host's bus, the host's bus, and the task file.
    pub(super) const OFS: u32 = 1 << 24;
    pub(super) const IFS: u32 = 1 << 27;
    pub(super) const HBDS: u32 = 1 << 28;
    pub(super) const HBFS: u32 = 1 << 29;
    pub(super) const TFES: u32 = 1 << 30;
    pub(super) const ALL: u32 = 0xfdc0_00ff;
}

/// `PxCMD`.
mod cmd {
    pub(super) const ST: u32 = 1 << 0;
    /// Spun up and powered: not to be changed.
    pub(super) const ALWAYS: u32 = 0b110 | 1 << 18;
    pub(super) const CLO: u32 = 1 << 3;
    pub(super) const FRE: u32 = 1 << 4;
    pub(super) const FR: u32 = 1 << 14;
    pub(super) const CR: u32 = 1 << 15;
    pub(super) const WRITABLE: u32 = ST | FRE;
}

/// `PxSERR`: `PhyRdy` changed, device exchanged.
mod serr {
    pub(super) const N: u32 = 1 << 16;
    pub(super) const X: u32 = 1 << 26;
}

/// Bytes of a command header, and where the regions are in a command table (4.2.2, 4.2.3).
const HEADER_BYTES: u32 = 32;
const TABLE_REGIONS: u32 = 0x80;
const REGION_BYTES: u32 = 16;
/// Where FISes go in the memory of received ones.
const RECEIVED_PIO_SETUP: u64 = 0x20;
const RECEIVED_REGISTER: u64 = 0x40;
const RECEIVED_SET_DEVICE_BITS: u64 = 0x58;
/// The status when there is no device.
const NO_DEVICE: u8 = 0x7f;

/// What the port knows of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phy {
    /// As it should be: up if there is a disk.
    On,
    /// COMRESET is being sent.
    Reset,
    /// Switched off.
    Off,
}

/// Of a command header.
#[derive(Clone, Copy, Debug)]
struct Header {
    regions: u32,
    clears_busy: bool,
}

pub(crate) struct Port {
    pub(crate) channel: Channel,
    command_list: u64,
    received: u64,
    is: u32,
    ie: u32,
    cmd: u32,
    status: u8,
    error: u8,
    signature: u32,
    control: u32,
    serr: u32,
    active: u32,
    issued: u32,
    phy: Phy,
    /// Slots of `issued` that have not been looked at.
    news: u32,
    /// What was found out of a slot's command before its table.
    headers: [Option<Header>; SLOTS],
    /// Commands that have ended and have to be told of.
    ended: VecDeque<(u8, End)>,
    /// The disk is reset, and tells its signature as soon as nothing is under way any more.
    is_resetting: bool,
    /// Soft reset is asserted.
    is_held: bool,
    /// An error, or the loss of the disk, has stopped the list until ST is cleared.
    is_stopped: bool,
    current: u8,
    /// An interrupt is new.
    rise: bool,
}

impl Port {
    pub(crate) fn new(number: u8, disk: Option<Disk>) -> Self {
        let mut port = Self {
            channel: Channel::new(number, disk),
            command_list: 0,
            received: 0,
            is: 0,
            ie: 0,
            cmd: 0,
            status: NO_DEVICE,
            error: 0,
            signature: u32::MAX,
            control: 0,
            serr: 0,
            active: 0,
            issued: 0,
            phy: Phy::On,
            news: 0,
            headers: [None; SLOTS],
            ended: VecDeque::with_capacity(SLOTS),
            is_resetting: false,
            is_held: false,
            is_stopped: false,
            current: 0,
            rise: false,
        };
        port.reset();
        port
    }

    /// A reset of the controller: registers, and the link to the disk.
    pub(crate) fn reset(&mut self) {
        self.stop();
        (self.command_list, self.received) = (0, 0);
        (self.is, self.ie, self.cmd, self.control, self.serr) = (0, 0, 0, 0, 0);
        self.signature = u32::MAX;
        self.rise = false;
        self.connect();
    }

    /// The list stops: what is in it is forgotten.
    fn stop(&mut self) {
        self.channel.abandon();
        (self.active, self.issued, self.news) = (0, 0, 0);
        self.ended.clear();
        self.is_stopped = false;
        self.current = 0;
    }

    /// An error, after which only ST helps. `PxCI` and `PxSACT` tell what was under way.
    fn halt(&mut self) {
        self.channel.abandon();
        self.ended.clear();
        self.news = 0;
        self.is_stopped = true;
    }

    /// The Phy comes up, and with it the disk if there is one.
    fn connect(&mut self) {
        self.phy = Phy::On;
        self.error = 0;
        self.is_held = false;
        (self.status, self.is_resetting) = (NO_DEVICE, false);
        if let Some(disk) = &mut self.channel.disk {
            disk.reset();
            (self.status, self.is_resetting) = (status::BSY, true);
            self.set_serr(serr::N | serr::X);
        }
    }

    /// The Phy goes down.
    fn disconnect(&mut self, phy: Phy) {
        self.phy = phy;
        self.halt();
        (self.status, self.error) = (NO_DEVICE, 0);
        self.is_resetting = false;
        if self.channel.disk.is_some() {
            self.set_serr(serr::N);
        }
    }

    /// A disk comes.
    pub(crate) fn plug(&mut self, disk: Disk) {
        self.unplug();
        self.channel.disk = Some(disk);
        if self.phy == Phy::On {
            self.connect();
        }
    }

    /// The disk goes.
    pub(crate) fn unplug(&mut self) -> Option<Disk> {
        let disk = self.channel.unplug()?;
        self.halt();
        (self.status, self.error) = (NO_DEVICE, 0);
        self.is_resetting = false;
        if self.phy == Phy::On {
            self.set_serr(serr::N);
        }
        Some(disk)
    }

    pub(crate) fn is_idle(&self) -> bool {
        let is_waiting = self.is_resetting || (self.news != 0 && self.cmd & cmd::ST != 0);
        !is_waiting && !self.rise && self.ended.is_empty() && self.channel.is_idle()
    }

    // Interrupts

    fn set_serr(&mut self, bits: u32) {
        let before = self.interrupts();
        self.serr |= bits;
        self.rise |= self.interrupts() & !before & self.ie != 0;
    }

    fn raise(&mut self, bits: u32) {
        self.rise |= bits & !self.is & self.ie != 0;
        self.is |= bits;
    }

    fn interrupts(&self) -> u32 {
        let bit = |is: bool, bit: u32| if is { bit } else { 0 };
        self.is | bit(self.serr & serr::X != 0, irq::PCS) | bit(self.serr & serr::N != 0, irq::PRCS)
    }

    pub(crate) fn is_interrupting(&self) -> bool {
        self.interrupts() & self.ie != 0
    }

    /// Whether something new interrupts.
    pub(crate) fn take_rise(&mut self) -> bool {
        std::mem::take(&mut self.rise)
    }

    // Registers

    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            register::CLB => self.command_list as u32,
            register::CLBU => (self.command_list >> 32) as u32,
            register::FB => self.received as u32,
            register::FBU => (self.received >> 32) as u32,
            register::IS => self.interrupts(),
            register::IE => self.ie,
            register::CMD => {
                let running = if self.cmd & cmd::ST != 0 { cmd::CR } else { 0 };
                let receiving = if self.cmd & cmd::FRE != 0 { cmd::FR } else { 0 };
                self.cmd | cmd::ALWAYS | running | receiving | u32::from(self.current) << 8
            }
            register::TFD => u32::from(self.error) << 8 | u32::from(self.status),
            register::SIG => self.signature,
            register::SSTS => match self.phy {
                // 6 Gbit/s, active.
                Phy::On if self.channel.disk.is_some() => 0x133,
                Phy::On | Phy::Reset => 0,
                Phy::Off => 4,
            },
            register::SCTL => self.control,
            register::SERR => self.serr,
            register::SACT => self.active,
            register::CI => self.issued,
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        let low = |old: u64| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            register::CLB => self.command_list = low(self.command_list) & !0x3ff,
            register::CLBU => self.command_list = high(self.command_list),
            register::FB => self.received = low(self.received) & !0xff,
            register::FBU => self.received = high(self.received),
            register::IS => self.is &= !value,
            register::IE => {
                self.rise |= self.interrupts() & value & !self.ie & irq::ALL != 0;
                self.ie = value & irq::ALL;
            }
            register::CMD => self.write_cmd(value),
            register::SCTL => self.write_control(value),
            register::SERR => self.serr &= !value,
            register::SACT if self.cmd & cmd::ST != 0 => self.active |= value,
            register::CI if self.cmd & cmd::ST != 0 => {
                self.news |= value & !self.issued;
                self.issued |= value;
            }
            _ => {}
        }
    }

    fn write_cmd(&mut self, value: u32) {
        let old = std::mem::replace(&mut self.cmd, value & cmd::WRITABLE);
        if value & cmd::CLO != 0 {
            self.status &= !(status::BSY | status::DRQ);
        }
        if (old ^ value) & cmd::ST != 0 {
            self.stop();
        }
    }

    /// DET asks for a COMRESET as long as it is 1, and switches the Phy off with 4.
    fn write_control(&mut self, value: u32) {
        self.control = value & 0xfff;
        let wanted = match value & 15 {
            1 => Phy::Reset,
            4 => Phy::Off,
            _ => Phy::On,
        };
        if wanted == self.phy {
            return;
        }
        match wanted {
            Phy::On => self.connect(),
            other => self.disconnect(other),
        }
    }

    // Work

    pub(crate) fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = self.channel.poll_medium(bus.now_ns());
        if !bus.is_master() {
            return any;
        }
        any |= self.sign(bus);
        any |= self.begin_news();
        any |= self.channel.run_reading(bus);
        any |= self.take_events();
        any |= self.channel.run_writing(bus);
        any |= self.take_events();
        any | self.tell(bus)
    }

    /// Looks at commands that were issued.
    fn begin_news(&mut self) -> bool {
        let is_running = self.cmd & cmd::ST != 0 && !self.is_stopped;
        if self.news == 0 || !is_running || !self.channel.is_settled() || self.is_resetting {
            return false;
        }
        let mut any = false;
        for slot in 0..SLOTS as u8 {
            if self.news & 1 << slot != 0 && self.channel.is_free(slot) {
                self.news &= !(1 << slot);
                self.headers[usize::from(slot)] = None;
                let address = self.command_list + u64::from(slot) * u64::from(HEADER_BYTES);
                self.channel.begin(slot, address, HEADER_BYTES);
                any = true;
            }
        }
        any
    }

    fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.channel.next_event() {
            any = true;
            match event {
                Event::Ended(slot, end) => self.ended.push_back((slot, end)),
                Event::Fetched(slot) => match self.headers[usize::from(slot)] {
                    None => self.take_header(slot),
                    Some(header) => self.take_table(slot, header),
                },
            }
        }
        any
    }

    fn take_header(&mut self, slot: u8) {
        let window = self.channel.slot(slot).list.window();
        let dword = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&window[at..at + 4]);
            u32::from_le_bytes(bytes)
        };
        let first = dword(0);
        let regions = first >> 16;
        let table = u64::from(dword(8) & !0x7f) | u64::from(dword(12)) << 32;
        self.headers[usize::from(slot)] = Some(Header { regions, clears_busy: first & 1 << 10 != 0 });
        let here = regions.min((WINDOW_BYTES as u32 - TABLE_REGIONS) / REGION_BYTES);
        self.channel.fetch(slot, table, TABLE_REGIONS + here * REGION_BYTES);
    }

    fn take_table(&mut self, slot: u8, header: Header) {
        let list = &mut self.channel.slot(slot).list;
        let mut fis = [0; REGISTER_BYTES];
        fis.copy_from_slice(&list.window()[..REGISTER_BYTES]);
        list.begin_regions(TABLE_REGIONS, header.regions);
        self.current = slot;
        match Taskfile::parse(&fis) {
            Some(taskfile) if taskfile.is_command => {
                self.channel.issue(slot, &taskfile);
                if self.channel.is_queued(slot) {
                    // The disk has taken it, and is free for the next.
                    self.issued &= !(1 << slot);
                } else {
                    self.status |= status::BSY;
                }
            }
            Some(taskfile) => self.take_control(slot, &taskfile, header),
            // Nothing that a disk understands.
            None => {
                self.halt();
                self.raise(irq::IFS);
            }
        }
    }

    /// Device Control: a soft reset, or its end (ACS-3, 9.3).
    fn take_control(&mut self, slot: u8, taskfile: &Taskfile, header: Header) {
        self.issued &= !(1 << slot);
        self.channel.vacate(slot);
        if taskfile.control & Taskfile::SRST != 0 {
            self.channel.abandon();
            self.ended.clear();
            if let Some(disk) = &mut self.channel.disk {
                disk.reset();
            }
            self.is_held = true;
            self.status = if header.clears_busy { status::READY } else { status::BSY };
        } else if std::mem::take(&mut self.is_held) {
            self.status = status::BSY;
            self.is_resetting = true;
        }
    }

    /// After a reset the disk tells what it is.
    fn sign(&mut self, bus: &mut dyn Bus) -> bool {
        if !self.is_resetting || !self.channel.is_settled() {
            return false;
        }
        let registers = Registers::SIGNATURE;
        let mut fis = registers.to_fis();
        // Without an interrupt.
        fis[1] = 0;
        if !self.receive(RECEIVED_REGISTER, &fis, bus) {
            return false;
        }
        (self.status, self.error) = (registers.status, registers.error);
        self.signature = registers.signature();
        self.is_resetting = false;
        true
    }

    /// A FIS goes to memory; false if there is no room.
    fn receive(&self, offset: u64, fis: &[u8], bus: &mut dyn Bus) -> bool {
        self.cmd & cmd::FRE == 0 || bus.write(self.received + offset, fis) == fis.len()
    }

    /// Tells the host of commands that have ended.
    fn tell(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while let Some(&(slot, end)) = self.ended.front() {
            let is_queued = self.channel.is_queued(slot);
            let told = match end {
                End::Good(registers) if is_queued => self.tell_queued(registers, bus),
                End::Good(registers) => self.tell_single(slot, registers, bus),
                End::Failed(registers) => self.tell_failed(slot, registers, bus),
                End::Trouble(trouble) => {
                    self.halt();
                    self.raise(interrupt_of(trouble));
                    true
                }
            };
            if !told {
                break;
            }
            any = true;
        }
        any
    }

    /// One Set Device Bits FIS for as many as there are.
    fn tell_queued(&mut self, registers: Registers, bus: &mut dyn Bus) -> bool {
        let is_good = |(slot, end): &(u8, End)| matches!(end, End::Good(_)) && self.channel.is_queued(*slot);
        let count = self.ended.iter().take_while(|ended| is_good(ended)).count();
        let mask = self.ended.iter().take(count).fold(0, |mask, (slot, _)| mask | 1 << slot);
        if !self.receive(RECEIVED_SET_DEVICE_BITS, &registers.to_set_device_bits(mask), bus) {
            return false;
        }
        let mut bits = irq::SDBS;
        for (slot, _) in self.ended.drain(..count) {
            bits |= if self.channel.slot(slot).list.interrupt { irq::DPS } else { 0 };
            self.channel.vacate(slot);
        }
        self.active &= !mask;
        self.set_device_bits(registers);
        self.raise(bits);
        true
    }

    fn set_device_bits(&mut self, registers: Registers) {
        let kept = self.status & !status::SET_DEVICE_BITS;
        self.status = kept | registers.status & status::SET_DEVICE_BITS;
        self.error = registers.error;
    }

    fn tell_single(&mut self, slot: u8, registers: Registers, bus: &mut dyn Bus) -> bool {
        let this = self.channel.slot(slot);
        let (moved, interrupt) = (this.moved, this.list.interrupt);
        let protocol = this.job.as_ref().map_or(Protocol::NonData, |job| job.protocol);
        if moved > 0 {
            // PRDBC.
            let count = self.command_list + u64::from(slot) * u64::from(HEADER_BYTES) + 4;
            if bus.write(count, &moved.to_le_bytes()) < 4 {
                return false;
            }
        }
        let bits = if protocol == Protocol::PioIn {
            let fis = registers.to_pio_setup(moved.min(512) as u16);
            if !self.receive(RECEIVED_PIO_SETUP, &fis, bus) {
                return false;
            }
            irq::PSS
        } else {
            if !self.receive(RECEIVED_REGISTER, &registers.to_fis(), bus) {
                return false;
            }
            irq::DHRS
        };
        self.ended.pop_front();
        (self.status, self.error) = (registers.status, registers.error);
        self.issued &= !(1 << slot);
        self.channel.vacate(slot);
        self.raise(bits | if interrupt { irq::DPS } else { 0 });
        true
    }

    /// The command stays in `PxCI` or `PxSACT`, and the list stops.
    fn tell_failed(&mut self, slot: u8, registers: Registers, bus: &mut dyn Bus) -> bool {
        let bits = if self.channel.is_queued(slot) {
            if !self.receive(RECEIVED_SET_DEVICE_BITS, &registers.to_set_device_bits(0), bus) {
                return false;
            }
            self.set_device_bits(registers);
            irq::SDBS
        } else {
            if !self.receive(RECEIVED_REGISTER, &registers.to_fis(), bus) {
                return false;
            }
            (self.status, self.error) = (registers.status, registers.error);
            irq::DHRS
        };
        self.current = slot;
        self.halt();
        self.raise(bits | irq::TFES);
        true
    }
}

/// What trouble with the host's memory or lists is told as (6.1.2).
fn interrupt_of(trouble: Trouble) -> u32 {
    match trouble {
        Trouble::Fetch(Fault::Poisoned) | Trouble::List(Fault::Poisoned) | Trouble::Data(Fault::Poisoned) => {
            irq::HBDS
        }
        Trouble::Fetch(_) | Trouble::List(_) | Trouble::Data(_) | Trouble::BadList => irq::HBFS,
        Trouble::Overrun => irq::OFS | irq::IFS,
        Trouble::Underrun => irq::IFS,
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("phy", &self.phy)
            .field("issued", &self.issued)
            .field("active", &self.active)
            .field("stopped", &self.is_stopped)
            .finish_non_exhaustive()
    }
}
