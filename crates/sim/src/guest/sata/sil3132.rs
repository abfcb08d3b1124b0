//! The driver's part for the `SiI3132`, as Linux's `sata_sil24` drives it.

use super::ata::Ata;
use super::{Driver, Failure, Look, REGISTER_TIMEOUT_NS};
use crate::checkers::verdict::Rule;
use crate::guest::bus::Trouble;
use crate::guest::memory::Piece;

/// Global registers, in BAR 0.
const CONTROL: u64 = 0x40;
/// Ports that have something to tell.
pub(super) const IRQ_STATUS: u64 = 0x44;
const GLOBAL_RESET: u32 = 1 << 31;

/// Registers of a port, in BAR 2.
const STATUS_AND_SET: u64 = 0x1000;
const CLEAR: u64 = 0x1004;
const PORT_IRQ: u64 = 0x1008;
const IRQ_ENABLE: u64 = 0x1010;
const COMMAND_ERROR: u64 = 0x1024;
const SLOT_STATUS: u64 = 0x1800;
const ACTIVATE: u64 = 0x1C00;
const SSTATUS: u64 = 0x1F04;

const PORT_RESET: u32 = 1;
const DEVICE_RESET: u32 = 2;
const INITIALIZE: u32 = 4;
const ACTIVATE_32: u32 = 1 << 10;
const READY: u32 = 1 << 31;
const IRQ_ERROR: u32 = 2;
const IRQ_ALL: u32 = 0xFFF;
const ATTENTION: u32 = 1 << 31;
/// Errors that the disk told of, of a command that is alone and of queued ones.
const ERROR_DEVICE: u32 = 1;
const ERROR_SET_BITS: u32 = 2;

/// A Port Request Block: its control field, its FIS, and where its entries begin.
const BLOCK_FIS: u64 = 8;
const BLOCK_ENTRIES: u64 = 32;
const SOFT_RESET: u16 = 1 << 7;
const TERMINATE: u32 = 1 << 31;

const fn port_register(port: usize, register: u64) -> u64 {
    0x2000 * port as u64 + register
}

impl Driver {
    pub(super) async fn reset_sil3132(&mut self) -> Result<(), Trouble> {
        self.cpu.write_at(0, CONTROL, GLOBAL_RESET).await;
        let until_ns = self.cpu.now_ns() + REGISTER_TIMEOUT_NS;
        // The reset lasts as long as it is asked for, and is seen when this is read.
        while self.cpu.read_at(0, CONTROL).await & GLOBAL_RESET == 0 {
            if self.cpu.now_ns() > until_ns {
                return Err(Trouble::Timeout("the global reset"));
            }
        }
        self.cpu.write_at(0, CONTROL, 0).await;
        if self.cpu.read_at(0, CONTROL).await == u32::MAX {
            return Err(Trouble::Gone);
        }
        Ok(())
    }

    pub(super) async fn start_sil3132(&mut self, port: usize) -> Result<(), Trouble> {
        let set = port_register(port, STATUS_AND_SET);
        self.cpu.write32(port_register(port, CLEAR), PORT_RESET | ACTIVATE_32).await;
        self.wait_register(set, READY, READY, "a port that is ready").await?;
        if self.random.percent(50) {
            self.cpu.write32(set, DEVICE_RESET).await;
            self.wait_register(set, DEVICE_RESET, 0, "the reset of the disk").await?;
        }
        self.initialize_sil3132(port).await?;
        let link = self.cpu.read32(port_register(port, SSTATUS)).await;
        if link & 15 != 3 {
            if link == u32::MAX {
                return Err(Trouble::Gone);
            }
            self.broken(Rule::Sata, || format!("port {port}: SStatus {link:#x}, and there is a disk"));
        }
        if self.random.percent(50) {
            self.issue_sil3132(port, 0, &Ata::default(), &[], SOFT_RESET).await;
            self.wait_register(port_register(port, SLOT_STATUS), 1, 0, "the soft reset").await?;
        }
        self.cpu.write32(port_register(port, PORT_IRQ), u32::MAX).await;
        Ok(())
    }

    async fn initialize_sil3132(&mut self, port: usize) -> Result<(), Trouble> {
        let set = port_register(port, STATUS_AND_SET);
        self.cpu.write32(set, INITIALIZE).await;
        self.wait_register(set, READY | INITIALIZE, READY, "the port's initialization").await
    }

    pub(super) async fn enable_sil3132(&mut self) {
        for port in 0..self.ports.len() {
            self.cpu.write32(port_register(port, IRQ_ENABLE), IRQ_ALL).await;
        }
        self.cpu.write_at(0, CONTROL, (1 << self.ports.len()) - 1).await;
    }

    /// The block with its entries behind it, then its address, whose upper half activates the slot.
    pub(super) async fn issue_sil3132(
        &mut self,
        port: usize,
        slot: usize,
        ata: &Ata,
        pieces: &[Piece],
        control: u16,
    ) {
        let block = self.ports[port].tables[slot];
        let mut fis = ata.fis();
        if control & SOFT_RESET != 0 {
            // No command.
            fis[1] = 0;
        }
        self.cpu.machine(|machine| {
            let mut store = |address: u64, data: &[u8]| {
                if let Some(place) = machine.memory.get_mut(address, data.len()) {
                    place.copy_from_slice(data);
                }
            };
            store(block, &[0; BLOCK_ENTRIES as usize + 32]);
            store(block, &control.to_le_bytes());
            store(block + BLOCK_FIS, &fis);
            for (index, (at, piece)) in (block + BLOCK_ENTRIES..).step_by(16).zip(pieces).enumerate() {
                let flags = if index + 1 == pieces.len() { TERMINATE } else { 0 };
                store(at, &piece.address.to_le_bytes());
                store(at + 8, &(piece.bytes as u32).to_le_bytes());
                store(at + 12, &flags.to_le_bytes());
            }
        });
        let register = port_register(port, ACTIVATE + 8 * slot as u64);
        if self.random.percent(50) {
            self.cpu.write64(register, block).await;
        } else {
            self.cpu.write32(register, block as u32).await;
            self.cpu.write32(register + 4, (block >> 32) as u32).await;
        }
    }

    /// Reading the slots acknowledges what has ended.
    pub(super) async fn look_at_sil3132(&mut self, port: usize) -> Result<Look, Trouble> {
        let slots = self.cpu.read32(port_register(port, SLOT_STATUS)).await;
        if slots == u32::MAX && self.cpu.read_at(0, IRQ_STATUS).await == u32::MAX {
            return Err(Trouble::Gone);
        }
        // Without interrupts the slots tell of no attention.
        let told = self.cpu.read32(port_register(port, PORT_IRQ)).await;
        if told == u32::MAX {
            return Err(Trouble::Gone);
        }
        let raw = told >> 16;
        if raw & !1 != 0 {
            self.cpu.write32(port_register(port, PORT_IRQ), raw & !1).await;
        }
        Ok(Look { active: slots & !ATTENTION, failed: raw & IRQ_ERROR != 0 })
    }

    /// After a reset of any kind the port is held in reset.
    pub(super) async fn is_sil3132_running(&mut self, port: usize) -> bool {
        let status = self.cpu.read32(port_register(port, STATUS_AND_SET)).await;
        status != u32::MAX && status & (READY | PORT_RESET) == READY
    }

    /// The error's number, and for a command that is alone the FIS that its slot shows; then the port is initialized.
    pub(super) async fn restart_sil3132(&mut self, port: usize, slot: usize) -> Result<Failure, Trouble> {
        let code = self.cpu.read32(port_register(port, COMMAND_ERROR)).await;
        let fis = self.cpu.read32(port_register(port, 0x80 * slot as u64 + BLOCK_FIS)).await;
        if code == u32::MAX {
            return Err(Trouble::Gone);
        }
        self.initialize_sil3132(port).await?;
        let [_, _, status, error] = fis.to_le_bytes();
        Ok(match code {
            ERROR_DEVICE => Failure::Of(status, error),
            ERROR_SET_BITS => Failure::Queued,
            _ => Failure::Broken,
        })
    }
}
