//! A port of the `SiI3132`: slots with the Port Request Block that each executes, its status, and the Phy.

use super::super::channel::{Channel, End, Event, Trouble};
use super::super::disk::Disk;
use super::super::fis::{REGISTER_BYTES, Registers, Taskfile, status};
use super::super::list::WINDOW_BYTES;
use etherslot_pci::function::{Bus, Fault};
use std::collections::VecDeque;

/// Slots of a port.
const SLOTS: usize = 31;
/// Bytes of a Port Request Block with its two Scatter/Gather Entries, and from one slot's to the next in the registers.
const BLOCK_BYTES: u32 = 64;
const SLOT_BYTES: u32 = 128;
/// Where in a block its FIS and its entries are.
const BLOCK_FIS: usize = 8;
const BLOCK_ENTRIES: u32 = 32;
/// How much is read with a block: most lists are short.
const FETCH_BYTES: u32 = 256;

/// Registers of a port, from its first.
mod register {
    pub(super) const SLOTS_END: u32 = super::SLOTS as u32 * super::SLOT_BYTES;
    /// Read: status; written: control bits to be set, and cleared.
    pub(super) const CONTROL_SET: u32 = 0x1000;
    pub(super) const CONTROL_CLEAR: u32 = 0x1004;
    pub(super) const IRQ_STATUS: u32 = 0x1008;
    pub(super) const IRQ_ENABLE_SET: u32 = 0x1010;
    pub(super) const IRQ_ENABLE_CLEAR: u32 = 0x1014;
    pub(super) const ACTIVATE_UPPER: u32 = 0x101c;
    pub(super) const COMMAND_ERROR: u32 = 0x1024;
    pub(super) const SLOT_STATUS: u32 = 0x1800;
    pub(super) const ACTIVATE: u32 = 0x1c00;
    pub(super) const ACTIVATE_END: u32 = ACTIVATE + 8 * super::SLOTS as u32;
    pub(super) const SCONTROL: u32 = 0x1f00;
    pub(super) const SSTATUS: u32 = 0x1f04;
    pub(super) const SERROR: u32 = 0x1f08;
    pub(super) const SACTIVE: u32 = 0x1f0c;
}

/// Control and status.
mod control {
    pub(super) const PORT_RESET: u32 = 1 << 0;
    pub(super) const DEVICE_RESET: u32 = 1 << 1;
    pub(super) const INITIALIZE: u32 = 1 << 2;
    /// A completion is acknowledged by writing, not by reading the slots.
    pub(super) const WRITE_ACKNOWLEDGES: u32 = 1 << 3;
    /// Commands are activated by the lower half of their address alone.
    pub(super) const ACTIVATE_32: u32 = 1 << 10;
    /// What is kept as it is set: also the length of packets and what is for port multipliers.
    pub(super) const KEPT: u32 = WRITE_ACKNOWLEDGES | ACTIVATE_32 | 1 << 5 | 1 << 6 | 1 << 13;
    pub(super) const READY: u32 = 1 << 31;
}

mod irq {
    pub(super) const COMPLETE: u32 = 1 << 0;
    pub(super) const ERROR: u32 = 1 << 1;
    pub(super) const PHY_READY_CHANGED: u32 = 1 << 4;
    pub(super) const EXCHANGED: u32 = 1 << 7;
    pub(super) const ALL: u32 = 0xfff;
}

/// Control field of a Port Request Block.
mod block {
    /// No interrupt when it is complete.
    pub(super) const NO_INTERRUPT: u16 = 1 << 6;
    pub(super) const SOFT_RESET: u16 = 1 << 7;
}

/// Command errors.
mod code {
    pub(super) const DEVICE: u32 = 1;
    pub(super) const SET_DEVICE_BITS: u32 = 2;
    pub(super) const SEND: u32 = 4;
    pub(super) const UNDERRUN: u32 = 7;
    pub(super) const OVERRUN: u32 = 8;
    /// Tables, blocks and data: a boundary, then target abort, master abort and parity.
    pub(super) const TABLE: u32 = 16;
    pub(super) const BLOCK: u32 = 24;
    pub(super) const DATA: u32 = 32;
}

/// Of the slots' status: something else than completions interrupts.
const ATTENTION: u32 = 1 << 31;
/// `SError`: the Phy changed, a device is there anew.
const SERROR_N: u32 = 1 << 16;
const SERROR_X: u32 = 1 << 26;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phy {
    On,
    /// A reset of the link is asked for by `SControl`.
    Reset,
    Off,
}

pub(crate) struct Port {
    pub(crate) channel: Channel,
    /// What the slots' registers show: the block that was read, with the FIS that came.
    slots: Vec<[u8; BLOCK_BYTES as usize]>,
    addresses: [u64; SLOTS],
    activate_upper: u32,
    control: u32,
    raw: u32,
    enabled: u32,
    error_code: u32,
    error_slot: u8,
    /// Slots with a command, those that have not been looked at, those with a queued one.
    active: u32,
    news: u32,
    queued: u32,
    ended: VecDeque<(u8, End)>,
    scontrol: u32,
    serror: u32,
    phy: Phy,
    /// The slot that asked for a soft reset, which waits for all to end.
    soft_reset: Option<u8>,
    /// An error has stopped the port until it is initialized.
    is_stopped: bool,
    rise: bool,
}

impl Port {
    pub(crate) fn new(number: u8, disk: Option<Disk>) -> Self {
        let mut port = Self {
            channel: Channel::new(number, disk),
            slots: vec![[0; BLOCK_BYTES as usize]; SLOTS],
            addresses: [0; SLOTS],
            activate_upper: 0,
            control: 0,
            raw: 0,
            enabled: 0,
            error_code: 0,
            error_slot: 0,
            active: 0,
            news: 0,
            queued: 0,
            ended: VecDeque::with_capacity(SLOTS),
            scontrol: 0,
            serror: 0,
            phy: Phy::On,
            soft_reset: None,
            is_stopped: false,
            rise: false,
        };
        port.reset();
        port
    }

    /// All of the port; as long as the host does not clear it, it is held.
    pub(crate) fn reset(&mut self) {
        self.initialize();
        self.slots.fill([0; BLOCK_BYTES as usize]);
        self.control = control::PORT_RESET;
        (self.raw, self.enabled, self.error_code) = (0, 0, 0);
        (self.scontrol, self.serror, self.activate_upper) = (0, 0, 0);
        self.rise = false;
        self.connect();
        self.raw = 0;
    }

    /// Forgets all commands.
    fn initialize(&mut self) {
        self.channel.abandon();
        self.ended.clear();
        (self.active, self.news, self.queued) = (0, 0, 0);
        self.soft_reset = None;
        self.is_stopped = false;
    }

    fn halt(&mut self) {
        self.channel.abandon();
        self.ended.clear();
        self.news = 0;
        self.soft_reset = None;
        self.is_stopped = true;
    }

    fn connect(&mut self) {
        self.phy = Phy::On;
        if let Some(disk) = &mut self.channel.disk {
            disk.reset();
            self.control &= !control::DEVICE_RESET;
            self.serror |= SERROR_N | SERROR_X;
            self.raise(irq::PHY_READY_CHANGED | irq::EXCHANGED);
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
        if self.phy == Phy::On {
            self.serror |= SERROR_N;
            self.raise(irq::PHY_READY_CHANGED);
        }
        Some(disk)
    }

    pub(crate) fn is_idle(&self) -> bool {
        let is_waiting = self.news != 0 && self.is_running();
        !is_waiting
            && !self.rise
            && self.soft_reset.is_none()
            && self.ended.is_empty()
            && self.channel.is_idle()
    }

    fn is_running(&self) -> bool {
        !self.is_stopped && self.control & control::PORT_RESET == 0
    }

    // Interrupts

    fn raise(&mut self, bits: u32) {
        self.rise |= bits & !self.raw & self.enabled != 0;
        self.raw |= bits;
    }

    pub(crate) fn is_interrupting(&self) -> bool {
        self.raw & self.enabled != 0
    }

    /// Whether something new interrupts.
    pub(crate) fn take_rise(&mut self) -> bool {
        std::mem::take(&mut self.rise)
    }

    // Registers

    /// The slots' status; this acknowledges completions, if they are not acknowledged by writing.
    pub(crate) fn read_slots(&mut self) -> u32 {
        let attention = self.raw & self.enabled & !irq::COMPLETE != 0;
        if self.control & control::WRITE_ACKNOWLEDGES == 0 {
            self.raw &= !irq::COMPLETE;
        }
        self.active | if attention { ATTENTION } else { 0 }
    }

    pub(crate) fn read(&mut self, offset: u32) -> u32 {
        match offset {
            0..register::SLOTS_END => {
                let slot = &self.slots[(offset / SLOT_BYTES) as usize];
                let at = (offset % SLOT_BYTES) as usize;
                let dword = slot.get(at..at + 4);
                dword.map_or(0, |dword| u32::from_le_bytes(dword.try_into().expect("4 bytes")))
            }
            register::CONTROL_SET => {
                let ready = if self.control & control::PORT_RESET == 0 { control::READY } else { 0 };
                self.control | ready | u32::from(self.error_slot) << 16
            }
            register::IRQ_STATUS => self.raw << 16 | self.raw & self.enabled,
            register::IRQ_ENABLE_SET | register::IRQ_ENABLE_CLEAR => self.enabled,
            register::ACTIVATE_UPPER => self.activate_upper,
            register::COMMAND_ERROR => self.error_code,
            register::SLOT_STATUS => self.read_slots(),
            register::ACTIVATE..register::ACTIVATE_END => {
                let address = self.addresses[((offset - register::ACTIVATE) / 8) as usize];
                (address >> (8 * (offset & 4))) as u32
            }
            register::SCONTROL => self.scontrol,
            register::SSTATUS => match self.phy {
                // 3 Gbit/s, active.
                Phy::On if self.channel.disk.is_some() => 0x123,
                Phy::On | Phy::Reset => 0,
                Phy::Off => 4,
            },
            register::SERROR => self.serror,
            register::SACTIVE => self.queued,
            _ => 0,
        }
    }

    pub(crate) fn write(&mut self, offset: u32, value: u32) {
        match offset {
            register::CONTROL_SET => self.set_control(value),
            register::CONTROL_CLEAR => self.control &= !(value & (control::KEPT | control::PORT_RESET)),
            register::IRQ_STATUS => self.raw &= !(value | value >> 16),
            register::IRQ_ENABLE_SET => {
                self.rise |= self.raw & value & !self.enabled & irq::ALL != 0;
                self.enabled |= value & irq::ALL;
            }
            register::IRQ_ENABLE_CLEAR => self.enabled &= !value,
            register::ACTIVATE_UPPER => self.activate_upper = value,
            register::ACTIVATE..register::ACTIVATE_END => self.activate(offset - register::ACTIVATE, value),
            register::SCONTROL => self.write_scontrol(value),
            register::SERROR => self.serror &= !value,
            _ => {}
        }
    }

    fn set_control(&mut self, value: u32) {
        if value & control::PORT_RESET != 0 {
            return self.reset();
        }
        self.control |= value & control::KEPT;
        if value & control::INITIALIZE != 0 {
            self.initialize();
        }
        if value & control::DEVICE_RESET != 0 {
            // Until there is a device.
            self.control |= control::DEVICE_RESET;
            self.initialize();
            if self.phy == Phy::On {
                self.connect();
            }
        }
    }

    fn write_scontrol(&mut self, value: u32) {
        self.scontrol = value & 0xfff;
        let wanted = match value & 15 {
            1 => Phy::Reset,
            4 => Phy::Off,
            _ => Phy::On,
        };
        if wanted == self.phy {
            return;
        }
        if wanted == Phy::On {
            return self.connect();
        }
        self.phy = wanted;
        self.halt();
        if self.channel.disk.is_some() {
            self.serror |= SERROR_N;
            self.raise(irq::PHY_READY_CHANGED);
        }
    }

    /// The upper half of a block's address activates its slot, or the lower one alone.
    fn activate(&mut self, offset: u32, value: u32) {
        let slot = (offset / 8) as usize;
        let address = &mut self.addresses[slot];
        let is_upper = offset & 4 != 0;
        if is_upper {
            *address = *address & 0xffff_ffff | u64::from(value) << 32;
        } else {
            *address = *address & !0xffff_ffff | u64::from(value);
        }
        let is_short = self.control & control::ACTIVATE_32 != 0;
        if is_short && !is_upper {
            *address = u64::from(value) | u64::from(self.activate_upper) << 32;
        }
        if is_upper != is_short && self.control & control::PORT_RESET == 0 {
            self.news |= 1 << slot & !self.active;
            self.active |= 1 << slot;
        }
    }

    // Work

    pub(crate) fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = self.channel.poll_medium(bus.now_ns());
        if !bus.is_master() {
            return any;
        }
        any |= self.finish_soft_reset();
        any |= self.begin_news();
        any |= self.channel.run_reading(bus);
        any |= self.take_events();
        any |= self.channel.run_writing(bus);
        any |= self.take_events();
        any | self.tell()
    }

    fn begin_news(&mut self) -> bool {
        if self.news == 0 || !self.is_running() || !self.channel.is_settled() || self.soft_reset.is_some() {
            return false;
        }
        for slot in 0..SLOTS as u8 {
            if self.news & 1 << slot == 0 {
                continue;
            }
            let address = self.addresses[usize::from(slot)];
            if !address.is_multiple_of(8) {
                self.fail(slot, code::BLOCK);
                break;
            }
            self.news &= !(1 << slot);
            let in_page = 4096 - (address & 4095) as u32;
            self.channel.begin(slot, address, in_page.clamp(BLOCK_BYTES, FETCH_BYTES) & !15);
        }
        true
    }

    fn take_events(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.channel.next_event() {
            any = true;
            match event {
                Event::Ended(slot, end) => self.ended.push_back((slot, end)),
                Event::Fetched(slot) => self.take_block(slot),
            }
        }
        any
    }

    fn take_block(&mut self, slot: u8) {
        const { assert!(FETCH_BYTES as usize <= WINDOW_BYTES) }
        let list = &mut self.channel.slot(slot).list;
        let kept = &mut self.slots[usize::from(slot)];
        kept.copy_from_slice(&list.window()[..BLOCK_BYTES as usize]);
        let options = u16::from_le_bytes([kept[0], kept[1]]);
        let mut fis = [0; REGISTER_BYTES];
        fis.copy_from_slice(&kept[BLOCK_FIS..BLOCK_FIS + REGISTER_BYTES]);
        list.begin_tables(BLOCK_ENTRIES);
        if options & block::SOFT_RESET != 0 {
            // Whatever else is under way is given up, too.
            self.channel.abandon();
            self.ended.clear();
            (self.news, self.active, self.queued) = (0, 1 << slot, 0);
            if let Some(disk) = &mut self.channel.disk {
                disk.reset();
                self.soft_reset = Some(slot);
            }
            return;
        }
        match Taskfile::parse(&fis) {
            Some(taskfile) if self.channel.disk.is_some() => {
                if taskfile.is_command {
                    self.channel.issue(slot, &taskfile);
                    self.queued |= u32::from(self.channel.is_queued(slot)) << slot;
                } else {
                    self.ended.push_back((slot, End::Good(Registers::good(&taskfile))));
                }
            }
            _ => self.fail(slot, code::SEND),
        }
    }

    /// The disk tells its signature when nothing of what was before is under way.
    fn finish_soft_reset(&mut self) -> bool {
        let Some(slot) = self.soft_reset.filter(|_| self.channel.is_settled()) else { return false };
        self.soft_reset = None;
        self.keep(slot, Registers::SIGNATURE, 0);
        self.active &= !(1 << slot);
        self.raise(irq::COMPLETE);
        true
    }

    /// The slot's registers show the FIS that came, and how much was moved.
    fn keep(&mut self, slot: u8, registers: Registers, moved: u32) {
        let kept = &mut self.slots[usize::from(slot)];
        kept[4..8].copy_from_slice(&moved.to_le_bytes());
        kept[BLOCK_FIS..BLOCK_FIS + REGISTER_BYTES].copy_from_slice(&registers.to_fis());
    }

    /// Tells the host of commands that have ended.
    fn tell(&mut self) -> bool {
        let any = !self.ended.is_empty();
        while let Some((slot, end)) = self.ended.pop_front() {
            let is_queued = self.queued & 1 << slot != 0;
            let moved = self.channel.slot(slot).moved;
            match end {
                End::Good(registers) => {
                    self.keep(slot, registers, moved);
                    self.channel.vacate(slot);
                    self.active &= !(1 << slot);
                    self.queued &= !(1 << slot);
                    let options = self.slots[usize::from(slot)][0];
                    if u16::from(options) & block::NO_INTERRUPT == 0 {
                        self.raise(irq::COMPLETE);
                    }
                }
                End::Failed(registers) => {
                    debug_assert!(registers.status & status::ERR != 0);
                    self.keep(slot, registers, moved);
                    self.fail(slot, if is_queued { code::SET_DEVICE_BITS } else { code::DEVICE });
                }
                End::Trouble(trouble) => self.fail(slot, code_of(trouble)),
            }
        }
        any
    }

    /// A command could not be carried out; nothing goes on until the port is initialized.
    fn fail(&mut self, slot: u8, code: u32) {
        self.halt();
        (self.error_code, self.error_slot) = (code, slot);
        self.raise(irq::ERROR);
    }
}

fn code_of(trouble: Trouble) -> u32 {
    let of = |base: u32, fault: Fault| {
        base + match fault {
            Fault::CompleterAbort => 1,
            Fault::Poisoned => 3,
            Fault::UnsupportedRequest | Fault::Timeout | Fault::Malformed => 2,
        }
    };
    match trouble {
        Trouble::Fetch(fault) => of(code::BLOCK, fault),
        Trouble::List(fault) => of(code::TABLE, fault),
        Trouble::BadList => code::TABLE,
        Trouble::Data(fault) => of(code::DATA, fault),
        Trouble::Overrun => code::OVERRUN,
        Trouble::Underrun => code::UNDERRUN,
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port")
            .field("phy", &self.phy)
            .field("active", &self.active)
            .field("stopped", &self.is_stopped)
            .finish_non_exhaustive()
    }
}
