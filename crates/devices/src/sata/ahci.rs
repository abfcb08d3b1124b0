//! A host controller of AHCI 1.3.1.
//!
//! Its ports are in `port`. Interrupts are MSI, one message for all ports or one for each, or INTA.
//! Not there: FIS-based switching, command completion coalescing, enclosure management, partial and slumber states, staggered spin-up.

mod port;

use super::channel::Token;
use super::disk::Disk;
use super::identify::Identity;
use super::{Bays, Change, Config, ConfigError, Drive, MAX_PORTS};
use crate::ids;
use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, InterruptMode, ResetKind,
};
use etherslot_storage::Medium;
use port::Port;
use std::os::fd::BorrowedFd;

/// ABAR (2.1.11).
const BAR: u8 = 5;
const BAR_BYTES: u64 = 0x2000;
/// Of the ports' registers, and from one port's to the next.
const PORTS: u32 = 0x100;
const PORT_BYTES: u32 = 0x80;

/// Generic host control (3.1).
mod register {
    pub(super) const CAP: u32 = 0x00;
    pub(super) const GHC: u32 = 0x04;
    pub(super) const IS: u32 = 0x08;
    pub(super) const PI: u32 = 0x0c;
    pub(super) const VS: u32 = 0x10;
}

mod cap {
    /// Command slots, less one.
    pub(super) const NCS: u32 = 31 << 8;
    pub(super) const AHCI_ONLY: u32 = 1 << 18;
    /// 6 Gbit/s.
    pub(super) const ISS: u32 = 3 << 20;
    pub(super) const COMMAND_LIST_OVERRIDE: u32 = 1 << 24;
    pub(super) const NCQ: u32 = 1 << 30;
    pub(super) const S64A: u32 = 1 << 31;
}

mod ghc {
    pub(super) const HR: u32 = 1 << 0;
    pub(super) const IE: u32 = 1 << 1;
    /// MSI: fewer messages than ports, so all share one.
    pub(super) const MRSM: u32 = 1 << 2;
    pub(super) const AE: u32 = 1 << 31;
}

/// The controller.
pub struct Ahci {
    serial: String,
    model: String,
    firmware: String,
    ports: Vec<Port>,
    bays: Bays,
    interrupts_enabled: bool,
    /// IS: ports that have or had something to tell.
    status: u32,
    /// Ports whose message has to be sent.
    messages: u32,
    mode: InterruptMode,
    /// INTA has to be told.
    level_changed: bool,
}

impl Ahci {
    /// A controller, as it is after power-on.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        config.check(MAX_PORTS)?;
        let Config { serial, model, firmware, ports, bays } = config;
        let disk = |drive: Drive| {
            let identity = Identity::new(&drive.serial, &model, &firmware);
            Disk::new(drive, identity)
        };
        let ports: Vec<Port> =
            (0..).zip(ports).map(|(number, drive)| Port::new(number, drive.map(disk))).collect();
        Ok(Self {
            serial,
            model,
            firmware,
            ports,
            bays,
            interrupts_enabled: false,
            status: 0,
            messages: 0,
            mode: InterruptMode::Disabled,
            level_changed: false,
        })
    }

    /// What to sleep on besides the bus: readable when a medium has something done.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.iter().filter_map(|port| port.channel.disk.as_ref()?.medium().fd())
    }

    /// Puts a disk in at an empty port.
    pub fn plug(&mut self, port: usize, drive: Drive) -> Result<(), ConfigError> {
        drive.check(port)?;
        let identity = Identity::new(&drive.serial, &self.model, &self.firmware);
        let max = self.ports.len();
        let port = self.ports.get_mut(port).ok_or(ConfigError::Ports { max })?;
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

    fn read_register(&self, offset: u32) -> u32 {
        if offset >= PORTS {
            let port = self.ports.get(((offset - PORTS) / PORT_BYTES) as usize);
            return port.map_or(0, |port| port.read((offset - PORTS) % PORT_BYTES));
        }
        match offset {
            register::CAP => {
                (self.ports.len() as u32 - 1)
                    | cap::NCS
                    | cap::AHCI_ONLY
                    | cap::ISS
                    | cap::COMMAND_LIST_OVERRIDE
                    | cap::NCQ
                    | cap::S64A
            }
            register::GHC => {
                let enabled = if self.interrupts_enabled { ghc::IE } else { 0 };
                let shared = match self.mode {
                    InterruptMode::Msi(vectors) if usize::from(vectors) < self.ports.len() => ghc::MRSM,
                    _ => 0,
                };
                ghc::AE | enabled | shared
            }
            register::IS => self.status,
            register::PI => (1 << self.ports.len()) - 1,
            register::VS => 0x0001_0301,
            _ => 0,
        }
    }

    fn write_register(&mut self, offset: u32, value: u32) {
        match offset {
            register::GHC if value & ghc::HR != 0 => self.reset_all(),
            register::GHC => {
                let enabled = value & ghc::IE != 0;
                if enabled && !self.interrupts_enabled {
                    self.messages |= self.status;
                }
                self.interrupts_enabled = enabled;
            }
            register::IS => {
                self.status &= !value;
                self.gather_status();
                // Of what is left a message tells anew (10.6.2).
                self.messages |= self.status;
            }
            PORTS.. => {
                let port = self.ports.get_mut(((offset - PORTS) / PORT_BYTES) as usize);
                if let Some(port) = port {
                    port.write((offset - PORTS) % PORT_BYTES, value);
                }
            }
            _ => {}
        }
        self.gather_status();
        self.level_changed = true;
    }

    /// IS follows the ports, and keeps what it has.
    fn gather_status(&mut self) {
        for (number, port) in self.ports.iter_mut().enumerate() {
            self.status |= u32::from(port.is_interrupting()) << number;
            self.messages |= u32::from(port.take_rise()) << number;
        }
    }

    fn reset_all(&mut self) {
        for port in &mut self.ports {
            port.reset();
        }
        self.interrupts_enabled = false;
        (self.status, self.messages) = (0, 0);
        self.level_changed = true;
    }

    fn interrupt(&mut self, bus: &mut dyn Bus) -> bool {
        self.gather_status();
        if !self.interrupts_enabled {
            self.messages = 0;
        }
        let InterruptMode::Msi(vectors) = self.mode else {
            self.messages = 0;
            let asserted = self.interrupts_enabled && self.status != 0;
            self.level_changed = !bus.set_intx(asserted);
            return false;
        };
        self.level_changed = false;
        let before = self.messages;
        if usize::from(vectors) < self.ports.len() {
            if self.messages != 0 && bus.interrupt(0) {
                self.messages = 0;
            }
        } else {
            for number in 0..self.ports.len() {
                if self.messages & 1 << number != 0 && bus.interrupt(number as u16) {
                    self.messages &= !(1 << number);
                }
            }
        }
        self.messages != before
    }
}

impl Function for Ahci {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: ids::VENDOR,
            device: ids::AHCI,
            subsystem_vendor: ids::VENDOR,
            subsystem: ids::AHCI,
            revision: 1,
            // Mass storage, SATA, AHCI 1.0.
            class: [0x01, 0x06, 0x01],
            bars: vec![BarSpec { index: BAR, kind: BarKind::Memory32, bytes: BAR_BYTES }],
            msix: None,
            msi_vectors: self.ports.len().next_power_of_two() as u8,
            intx: true,
            serial: Some(Identity::new(&self.serial, "", "").wwn),
        }
    }

    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        for (at, byte) in (offset..).zip(data) {
            let dword = self.read_register(at as u32 & !3);
            *byte = dword.to_le_bytes()[at as usize & 3];
        }
    }

    /// Registers take whole dwords; others are lost.
    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        let skip = (offset.next_multiple_of(4) - offset) as usize;
        let Some(whole) = data.get(skip..) else { return };
        for (at, dword) in (offset + skip as u64..).step_by(4).zip(whole.chunks_exact(4)) {
            self.write_register(at as u32, u32::from_le_bytes(dword.try_into().expect("4 bytes")));
        }
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        let token = Token(token);
        if let Some(port) = self.ports.get_mut(token.port()) {
            port.channel.read_completed(token, address, bytes, result);
        }
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        self.mode = bus.interrupt_mode();
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
        self.messages == 0 && !self.level_changed && self.ports.iter().all(Port::is_idle)
    }

    fn reset(&mut self, _kind: ResetKind) {
        for port in &mut self.ports {
            port.channel.forget_reads();
        }
        self.reset_all();
    }

    fn count(&self, each: &mut dyn FnMut(&'static str, u64)) {
        super::count(self.ports.iter().filter_map(|port| port.channel.disk.as_ref()), each);
    }
}

impl std::fmt::Debug for Ahci {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ahci")
            .field("serial", &self.serial)
            .field("ports", &self.ports)
            .finish_non_exhaustive()
    }
}
