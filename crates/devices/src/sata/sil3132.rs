//! Silicon Image's `SiI3132`, a controller with two ports, as its drivers know it.
//!
//! Its ports are in `port`. There is no memory for received FISes: a port keeps that of each slot with the command, in registers.
//! Interrupts are INTA or one MSI.
//! Not there: port multipliers, commands that the host writes into the registers (it activates them in memory), the Flash, BIST, I2C.

mod port;

use super::channel::Token;
use super::disk::Disk;
use super::identify::Identity;
use super::{Bays, Change, Config, ConfigError, Drive};
use crate::ids;
use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, InterruptMode, ResetKind,
};
use etherslot_storage::Medium;
use port::Port;
use std::os::fd::BorrowedFd;

/// Ports of the controller.
pub const PORTS: usize = 2;

/// Global registers, and those of the ports.
const GLOBAL_BAR: u8 = 0;
const PORT_BAR: u8 = 2;
const PORT_BYTES: u64 = 0x2000;

/// Global registers.
mod register {
    /// The slots of each port.
    pub(super) const SLOT_STATUS_END: u32 = 0x10;
    pub(super) const CONTROL: u32 = 0x40;
    pub(super) const IRQ_STATUS: u32 = 0x44;
}

/// Global control: a reset as long as it is set; interrupts of the ports.
const GLOBAL_RESET: u32 = 1 << 31;
const PORT_INTERRUPTS: u32 = (1 << PORTS) - 1;

/// The controller.
pub struct Sil3132 {
    serial: String,
    model: String,
    firmware: String,
    ports: Vec<Port>,
    bays: Bays,
    control: u32,
    /// A message has to be sent.
    message: bool,
    /// INTA has to be told.
    level_changed: bool,
}

impl Sil3132 {
    /// A controller, as it is after power-on.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check(PORTS)?;
        let Config { serial, model, firmware, mut ports, bays } = config;
        ports.resize_with(PORTS, || None);
        let disk = |drive: Drive| {
            let identity = Identity::new(&drive.serial, &model, &firmware);
            Disk::new(drive, identity)
        };
        let ports: Vec<Port> =
            (0..).zip(ports).map(|(number, drive)| Port::new(number, drive.map(disk))).collect();
        Ok(Self { serial, model, firmware, ports, bays, control: 0, message: false, level_changed: false })
    }

    /// What to sleep on besides the bus: readable when a medium has something done.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.iter().filter_map(|port| port.channel.disk.as_ref()?.medium().fd())
    }

    /// Puts a disk in at an empty port.
    pub fn plug(&mut self, port: usize, drive: Drive) -> Result<(), ConfigError> {
        drive.check(port)?;
        let identity = Identity::new(&drive.serial, &self.model, &self.firmware);
        let port = self.ports.get_mut(port).ok_or(ConfigError::Ports { max: PORTS })?;
        port.plug(Disk::new(drive, identity));
        self.level_changed = true;
        Ok(())
    }

    /// Takes a disk out. What it has not done is lost to the host.
    pub fn unplug(&mut self, port: usize) -> Option<Box<dyn Medium>> {
        let disk = self.ports.get_mut(port)?.unplug()?;
        self.level_changed = true;
        Some(disk.into_medium())
    }

    fn look_at_bays(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while let Some((port, change)) = self.bays.look(now_ns) {
            any = true;
            match change {
                Change::Out => drop(self.unplug(port)),
                Change::In(drive) => {
                    if let Err(error) = self.plug(port, drive) {
                        tracing::warn!(serial = self.serial, port, %error, "disk not put in");
                    }
                }
            }
        }
        any
    }

    fn read_global(&mut self, offset: u32) -> u32 {
        match offset {
            0..register::SLOT_STATUS_END => {
                let port = self.ports.get_mut((offset / 4) as usize);
                port.map_or(0, Port::read_slots)
            }
            register::CONTROL => self.control,
            register::IRQ_STATUS => (0..)
                .zip(&self.ports)
                .fold(0, |status, (number, port)| status | u32::from(port.is_interrupting()) << number),
            _ => 0,
        }
    }

    fn write_global(&mut self, offset: u32, value: u32) {
        if offset == register::CONTROL {
            self.control = value & (GLOBAL_RESET | PORT_INTERRUPTS);
            if value & GLOBAL_RESET != 0 {
                for port in &mut self.ports {
                    port.reset();
                }
            }
        }
    }

    fn is_interrupting(&self) -> bool {
        let is_on = |number: usize| self.control & 1 << number != 0;
        self.ports.iter().enumerate().any(|(number, port)| is_on(number) && port.is_interrupting())
    }

    fn interrupt(&mut self, bus: &mut dyn Bus) -> bool {
        for (number, port) in self.ports.iter_mut().enumerate() {
            self.message |= port.take_rise() && self.control & 1 << number != 0;
        }
        if let InterruptMode::Msi(_) = bus.interrupt_mode() {
            self.level_changed = false;
            let is_sent = self.message && bus.interrupt(0);
            self.message &= !is_sent;
            return is_sent;
        }
        self.message = false;
        let asserted = self.is_interrupting();
        self.level_changed = !bus.set_intx(asserted);
        false
    }
}

impl Function for Sil3132 {
    fn spec(&self) -> FunctionSpec {
        let (vendor, device) = ids::SIL3132;
        FunctionSpec {
            vendor,
            device,
            subsystem_vendor: vendor,
            subsystem: device,
            revision: 1,
            // Mass storage, of another kind.
            class: [0x01, 0x80, 0x00],
            bars: vec![
                BarSpec { index: GLOBAL_BAR, kind: BarKind::Memory64, bytes: 128 },
                BarSpec { index: PORT_BAR, kind: BarKind::Memory64, bytes: PORTS as u64 * PORT_BYTES },
            ],
            msix: None,
            msi_vectors: 1,
            intx: true,
            serial: Some(Identity::new(&self.serial, "", "").wwn),
        }
    }

    /// Each register is read but once, since that of the slots acknowledges.
    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        let mut known = None;
        for (at, byte) in (offset..).zip(data) {
            let place = at & !3;
            let dword = match known {
                Some((known_at, dword)) if known_at == place => dword,
                _ if bar == GLOBAL_BAR => self.read_global(place as u32),
                _ => {
                    let port = self.ports.get_mut((place / PORT_BYTES) as usize);
                    port.map_or(0, |port| port.read((place % PORT_BYTES) as u32))
                }
            };
            known = Some((place, dword));
            *byte = dword.to_le_bytes()[at as usize & 3];
        }
        self.level_changed = true;
    }

    /// Registers take whole dwords; others, which the error counters are written with, are lost.
    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        let skip = (offset.next_multiple_of(4) - offset) as usize;
        let Some(whole) = data.get(skip..) else { return };
        for (at, dword) in (offset + skip as u64..).step_by(4).zip(whole.chunks_exact(4)) {
            let value = u32::from_le_bytes(dword.try_into().expect("4 bytes"));
            if bar == GLOBAL_BAR {
                self.write_global(at as u32, value);
            } else if let Some(port) = self.ports.get_mut((at / PORT_BYTES) as usize) {
                port.write((at % PORT_BYTES) as u32, value);
            }
        }
        self.level_changed = true;
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        let token = Token(token);
        if let Some(port) = self.ports.get_mut(token.port()) {
            port.channel.read_completed(token, address, bytes, result);
        }
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = self.look_at_bays(bus.now_ns());
        for port in &mut self.ports {
            any |= port.poll(bus);
        }
        any | self.interrupt(bus)
    }

    fn deadline_ns(&self) -> Option<u64> {
        let media = self.ports.iter().filter_map(|port| port.channel.disk.as_ref()?.medium().deadline_ns());
        media.chain(self.bays.deadline_ns()).min()
    }

    fn is_idle(&self) -> bool {
        !self.message && !self.level_changed && self.ports.iter().all(Port::is_idle)
    }

    fn reset(&mut self, _kind: ResetKind) {
        for port in &mut self.ports {
            port.channel.forget_reads();
            port.reset();
        }
        (self.control, self.message, self.level_changed) = (0, false, true);
    }

    fn count(&self, each: &mut dyn FnMut(&'static str, u64)) {
        super::count(self.ports.iter().filter_map(|port| port.channel.disk.as_ref()), each);
    }
}

impl std::fmt::Debug for Sil3132 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Sil3132");
        all.field("serial", &self.serial).field("ports", &self.ports).finish_non_exhaustive()
    }
}
