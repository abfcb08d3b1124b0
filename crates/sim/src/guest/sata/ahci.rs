//! The driver's part for AHCI controllers (AHCI 1.3.1, section 10).

use super::ata::{Ata, BUSY, DATA_REQUEST, FIS_BYTES};
use super::{Driver, Failure, Look, REGISTER_TIMEOUT_NS};
use crate::checkers::verdict::Rule;
use crate::guest::bus::Trouble;
use crate::guest::memory::Piece;

const CAP: u64 = 0x00;
const GHC: u64 = 0x04;
/// Interrupts of the ports.
pub(super) const IS: u64 = 0x08;
const PI: u64 = 0x0C;
const GHC_RESET: u32 = 1;
const GHC_INTERRUPTS: u32 = 2;
const GHC_AHCI: u32 = 1 << 31;
/// 32 slots, native queuing, 64-bit addresses.
const CAP_NEEDED: u32 = 31 << 8 | 1 << 30 | 1 << 31;

const PX_CLB: u64 = 0x00;
const PX_FB: u64 = 0x08;
const PX_IS: u64 = 0x10;
const PX_IE: u64 = 0x14;
const PX_CMD: u64 = 0x18;
const PX_TFD: u64 = 0x20;
const PX_SIG: u64 = 0x24;
const PX_SSTS: u64 = 0x28;
const PX_SCTL: u64 = 0x2C;
const PX_SERR: u64 = 0x30;
const PX_SACT: u64 = 0x34;
const PX_CI: u64 = 0x38;

const CMD_START: u32 = 1;
const CMD_RECEIVE: u32 = 1 << 4;
const CMD_RUNNING: u32 = 1 << 15;
/// `TFES`; and of the host's bus, of the link, and overflow.
const IS_TASK_FILE: u32 = 1 << 30;
const IS_BROKEN: u32 = 0x3F << 24;
/// Everything but that a descriptor was done.
const IE_ALL: u32 = 0x7DC0_005F;
const DISK_SIGNATURE: u32 = 0x101;
const HEADER_BYTES: u64 = 32;
const REGIONS: u64 = 0x80;

const fn port_register(port: usize, register: u64) -> u64 {
    0x100 + 0x80 * port as u64 + register
}

impl Driver {
    async fn read_port(&self, port: usize, register: u64) -> u32 {
        self.cpu.read32(port_register(port, register)).await
    }

    async fn write_port(&self, port: usize, register: u64, value: u32) {
        self.cpu.write32(port_register(port, register), value).await;
    }

    /// Waits until the bits of `mask` in a register are `wanted`.
    pub(super) async fn wait_register(
        &mut self,
        register: u64,
        mask: u32,
        wanted: u32,
        what: &'static str,
    ) -> Result<(), Trouble> {
        let until_ns = self.cpu.now_ns() + REGISTER_TIMEOUT_NS;
        loop {
            match self.cpu.read32(register).await {
                u32::MAX => return Err(Trouble::Gone),
                value if value & mask == wanted => return Ok(()),
                _ if self.cpu.now_ns() > until_ns => return Err(Trouble::Timeout(what)),
                _ => {}
            }
            let wait_ns = self.random.range(1_000, 500_000);
            self.cpu.sleep(wait_ns).await;
        }
    }

    pub(super) async fn reset_ahci(&mut self) -> Result<(), Trouble> {
        self.cpu.write32(GHC, GHC_AHCI | GHC_RESET).await;
        self.wait_register(GHC, GHC_RESET, 0, "GHC.HR = 0").await?;
        self.cpu.write32(GHC, GHC_AHCI).await;
        let capabilities = self.cpu.read32(CAP).await;
        let ports = self.cpu.read32(PI).await;
        if capabilities == u32::MAX || ports == u32::MAX {
            return Err(Trouble::Gone);
        }
        let disks = self.cpu.machine(|machine| machine.history.borrow().namespaces().count());
        if capabilities & CAP_NEEDED != CAP_NEEDED || ports != (1 << disks) - 1 {
            self.broken(Rule::Sata, || format!("CAP {capabilities:#x}, PI {ports:#x}, {disks} disks"));
        }
        Ok(())
    }

    pub(super) async fn start_ahci(&mut self, port: usize) -> Result<(), Trouble> {
        let (list, received) = (self.ports[port].list, self.ports[port].received);
        for (register, address) in [(PX_CLB, list), (PX_FB, received)] {
            self.write_port(port, register, address as u32).await;
            self.write_port(port, register + 4, (address >> 32) as u32).await;
        }
        self.write_port(port, PX_CMD, CMD_RECEIVE).await;
        if self.random.percent(50) {
            // COMRESET, for 1 ms at least.
            self.write_port(port, PX_SCTL, 0x301).await;
            let wait_ns = self.random.range(1_000_000, 2_000_000);
            self.cpu.sleep(wait_ns).await;
            self.write_port(port, PX_SCTL, 0x300).await;
        }
        self.wait_register(port_register(port, PX_SSTS), 15, 3, "PxSSTS.DET = 3").await?;
        let busy = u32::from(BUSY | DATA_REQUEST);
        self.wait_register(port_register(port, PX_TFD), busy, 0, "PxTFD without BSY").await?;
        self.wait_register(port_register(port, PX_SIG), u32::MAX, DISK_SIGNATURE, "PxSIG of a disk").await?;
        self.write_port(port, PX_SERR, u32::MAX).await;
        self.write_port(port, PX_IS, u32::MAX).await;
        self.write_port(port, PX_CMD, CMD_RECEIVE | CMD_START).await;
        Ok(())
    }

    pub(super) async fn enable_ahci(&mut self) {
        for port in 0..self.ports.len() {
            self.write_port(port, PX_IE, IE_ALL).await;
        }
        self.cpu.write32(IS, u32::MAX).await;
        self.cpu.write32(GHC, GHC_AHCI | GHC_INTERRUPTS).await;
    }

    /// Command header and table (4.2.2, 4.2.3), then the doorbells.
    pub(super) async fn issue_ahci(&mut self, port: usize, slot: usize, ata: &Ata, pieces: &[Piece]) {
        let (list, table) = (self.ports[port].list, self.ports[port].tables[slot]);
        let mut header = [0; HEADER_BYTES as usize];
        header[0] = (FIS_BYTES / 4) as u8 | if ata.writes() { 1 << 6 } else { 0 };
        header[2..4].copy_from_slice(&(pieces.len() as u16).to_le_bytes());
        header[8..16].copy_from_slice(&table.to_le_bytes());
        self.cpu.machine(|machine| {
            let mut store = |address: u64, data: &[u8]| {
                if let Some(place) = machine.memory.get_mut(address, data.len()) {
                    place.copy_from_slice(data);
                }
            };
            store(list + HEADER_BYTES * slot as u64, &header);
            store(table, &ata.fis());
            for (at, piece) in (table + REGIONS..).step_by(16).zip(pieces) {
                store(at, &piece.address.to_le_bytes());
                store(at + 8, &((piece.bytes as u64 - 1) << 32).to_le_bytes());
            }
        });
        if ata.is_queued() {
            self.write_port(port, PX_SACT, 1 << slot).await;
        }
        self.write_port(port, PX_CI, 1 << slot).await;
    }

    /// What the port tells is acknowledged before it is looked at: what comes meanwhile tells anew.
    pub(super) async fn look_at_ahci(&mut self, port: usize) -> Result<Look, Trouble> {
        let told = self.read_port(port, PX_IS).await;
        self.write_port(port, PX_IS, told).await;
        let active = self.read_port(port, PX_SACT).await;
        let issued = self.read_port(port, PX_CI).await;
        if told == u32::MAX || issued == u32::MAX && self.cpu.read32(PI).await == u32::MAX {
            return Err(Trouble::Gone);
        }
        Ok(Look { active: active | issued, failed: told & (IS_TASK_FILE | IS_BROKEN) != 0 })
    }

    /// After a reset of any kind it is not.
    pub(super) async fn is_ahci_running(&mut self, port: usize) -> bool {
        let command = self.read_port(port, PX_CMD).await;
        command != u32::MAX && command & CMD_RUNNING != 0
    }

    /// Section 6.2.2: the task file, then the list is stopped and started.
    pub(super) async fn restart_ahci(&mut self, port: usize) -> Result<Failure, Trouble> {
        let task_file = self.read_port(port, PX_TFD).await;
        if task_file == u32::MAX {
            return Err(Trouble::Gone);
        }
        let queued = self.ports[port].slots.iter().flatten().any(|active| active.is_queued);
        self.write_port(port, PX_CMD, CMD_RECEIVE).await;
        self.wait_register(port_register(port, PX_CMD), CMD_RUNNING, 0, "PxCMD.CR = 0").await?;
        self.write_port(port, PX_SERR, u32::MAX).await;
        self.write_port(port, PX_IS, u32::MAX).await;
        self.write_port(port, PX_CMD, CMD_RECEIVE | CMD_START).await;
        let [status, error, ..] = task_file.to_le_bytes();
        Ok(match (queued, status & 1 != 0) {
            (_, false) => Failure::Broken,
            (true, true) => Failure::Queued,
            (false, true) => Failure::Of(status, error),
        })
    }
}
