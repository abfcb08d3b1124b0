//! The controller as a Function: configuration space, registers, reset, and the order of work of one poll.

use super::E82576;
use super::bits::{cause, ctrl, rctl, register, status, tctl};
use super::interrupts::{QUEUES, VECTORS};
use super::ring::Effect;
use super::statistics::counter;
use super::{receive, transmit};
use crate::ids;
use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, MsixSpec, ReadAhead, ResetKind,
};

/// Registers.
const BAR0_BYTES: u64 = 128 << 10;
/// MSI-X table and PBA (9.4.11).
const MSIX_BAR: u8 = 3;
const MSIX_BAR_BYTES: u64 = 16 << 10;
const MSIX_PBA: u32 = 0x2000;

/// Rules of read-ahead: transmit rings from 0 on, then receive rings.
const RECEIVE_RULES: u8 = QUEUES as u8;

/// EEMNGCTL: the configuration of both ports is done.
const CONFIGURED: u32 = 3 << 18;
/// RAH.AV.
const RAH_VALID: u32 = 1 << 31;
/// SWSM: the semaphores that drivers, and driver and firmware, share.
const SMBI: u32 = 1 << 0;
const SWESMBI: u32 = 1 << 1;

/// What a read of memory is for; its token says it, with the ring and the ring's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    ReceiveDescriptors,
    TransmitDescriptors,
    /// The data of a piece, by its number.
    Data(u16),
}

fn token(generation: u32, queue: usize, purpose: Purpose) -> u64 {
    let (kind, number) = match purpose {
        Purpose::ReceiveDescriptors => (0, 0),
        Purpose::TransmitDescriptors => (1, 0),
        Purpose::Data(number) => (2, number),
    };
    u64::from(generation) << 32 | kind << 24 | (queue as u64) << 16 | u64::from(number)
}

/// The ring that a register belongs to: whether it receives, its number, where its registers begin for who asked, and which it is. The
/// first four are at two places (8.1.3).
fn ring_register(offset: u32) -> Option<(bool, usize, u32, u32)> {
    let (receives, first, step, count) = match offset {
        0x2800..0x2c00 => (true, 0x2800, 0x100, 4),
        0x3800..0x3c00 => (false, 0x3800, 0x100, 4),
        0xc000..0xc400 => (true, 0xc000, 0x40, QUEUES as u32),
        0xe000..0xe400 => (false, 0xe000, 0x40, QUEUES as u32),
        _ => return None,
    };
    let queue = (offset - first) / step;
    let at = (offset - first) % step;
    (queue < count && at < 0x40).then(|| (receives, queue as usize, first + queue * step, at))
}

impl Function for E82576 {
    fn spec(&self) -> FunctionSpec {
        let memory = |index, bytes| BarSpec { index, kind: BarKind::Memory32, bytes };
        let mut serial = [0xff; 8];
        serial[..3].copy_from_slice(&self.mac[..3]);
        serial[5..].copy_from_slice(&self.mac[3..]);
        FunctionSpec {
            vendor: ids::INTEL,
            device: ids::E82576,
            subsystem_vendor: ids::INTEL,
            subsystem: ids::E82576_SUBSYSTEM,
            revision: 1,
            // Network controller, Ethernet.
            class: [0x02, 0x00, 0x00],
            bars: vec![memory(0, BAR0_BYTES), memory(MSIX_BAR, MSIX_BAR_BYTES)],
            msix: Some(MsixSpec { vectors: VECTORS, bar: MSIX_BAR, table_offset: 0, pba_offset: MSIX_PBA }),
            msi_vectors: 1,
            intx: true,
            // An EUI-64 of the address (9.6.2).
            serial: Some(u64::from_be_bytes(serial)),
        }
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if bar != 0 {
            return;
        }
        let first = offset & !3;
        let end = offset + data.len() as u64;
        for at in (first..end).step_by(4) {
            let dword = self.read_register(at as u32).to_le_bytes();
            for (place, byte) in (at..).zip(dword) {
                if let Some(place) = place.checked_sub(offset)
                    && let Some(out) = data.get_mut(place as usize)
                {
                    *out = byte;
                }
            }
        }
    }

    /// Registers take whole dwords (8.1.1); others are lost.
    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        let skip = (offset.next_multiple_of(4) - offset) as usize;
        let Some(whole) = data.get(skip..).filter(|_| bar == 0) else { return };
        for (at, dword) in (offset + skip as u64..).step_by(4).zip(whole.chunks_exact(4)) {
            self.write_register(at as u32, u32::from_le_bytes(dword.try_into().expect("4 bytes")));
        }
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        self.outstanding = self.outstanding.saturating_sub(bytes);
        let (generation, queue) = ((token >> 32) as u32, (token >> 16 & 0xff) as usize);
        let (Some(transmit), Some(receive)) = (self.transmit.get_mut(queue), self.rings.get_mut(queue))
        else {
            return;
        };
        let kind = token >> 24 & 0xff;
        let ring = if kind == 0 { &mut *receive } else { &mut transmit.ring };
        if ring.generation != generation || ring.faulty {
            return;
        }
        let is_good = match kind {
            0 | 1 => ring.fetched(address, bytes, result),
            _ => transmit.arrived(token as u16, address, bytes, result),
        };
        if !is_good {
            self.statistics.total.faults += 1;
            self.interrupts.raise(cause::FER);
        }
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        self.now_ns = bus.now_ns();
        self.update_link();
        let mut any = false;
        if bus.is_master() && !self.is_master_disabled() {
            any |= self.run_transmit(bus);
            any |= self.run_receive(bus);
        }
        if self.registers.get(register::RCTL) & rctl::RXEN == 0 || !self.has_link {
            self.receiver.stop(&self.cable);
            self.cable.take_lost();
        } else {
            self.count_lost();
        }
        let asserted = self.interrupts.asserted;
        any |= self.interrupts.fire(bus);
        self.statistics.add(counter::IAC, self.interrupts.asserted - asserted);
        any
    }

    fn read_ahead(&mut self) -> Option<ReadAhead> {
        for queue in 0..QUEUES {
            for receives in [false, true] {
                let (number, follows) = if receives {
                    (RECEIVE_RULES + queue as u8, &[][..])
                } else {
                    (queue as u8, &transmit::FOLLOWS[..])
                };
                let ring = if receives { &mut self.rings[queue] } else { &mut self.transmit[queue].ring };
                if std::mem::take(&mut ring.rule_changed) {
                    let rule = ring.rule(number, follows);
                    return Some(rule.map_or(ReadAhead::Withdraw(number), ReadAhead::Declare));
                }
            }
        }
        None
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.interrupts.deadline_ns()
    }

    fn is_idle(&self) -> bool {
        let transmits = self.registers.get(register::TCTL) & tctl::EN != 0;
        self.registers.get(register::RCTL) & rctl::RXEN == 0
            && self.phy.has_carrier == self.cable.has_carrier()
            && self.has_link == self.links()
            && (!transmits || self.transmit.iter().all(transmit::TransmitQueue::is_idle))
            && self.interrupts.is_quiet()
            && !self
                .rings
                .iter()
                .chain(self.transmit.iter().map(|queue| &queue.ring))
                .any(|ring| ring.rule_changed)
    }

    fn reset(&mut self, kind: ResetKind) {
        self.restart();
        self.outstanding = 0;
        if kind == ResetKind::Conventional {
            self.phy.reset();
        }
    }

    fn count(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let total = &self.statistics.total;
        each("frames_received", total.received);
        each("bytes_received", total.received_bytes);
        each("frames_transmitted", total.transmitted);
        each("bytes_transmitted", total.transmitted_bytes);
        each("segments_transmitted", total.segmented);
        each("frames_filtered", total.filtered);
        each("frames_missed", total.missed);
        each("frames_refused", total.refused);
        each("memory_faults", total.faults);
    }
}

impl E82576 {
    /// A reset of the controller (CTRL.RST, 4.3): all but the PHY, and what was counted for ever, goes back to the start; the address is read from the
    /// EEPROM. Reads under way belong to no ring any more.
    pub(super) fn restart(&mut self) {
        self.registers.reset();
        self.interrupts.reset();
        self.statistics.reset();
        self.nvm.reset();
        for queue in &mut self.transmit {
            queue.reset(&self.cable);
        }
        for ring in &mut self.rings {
            ring.reset();
        }
        self.receiver.stop(&self.cable);
        self.cable.set_flow_control(false);
        self.semaphore = 0;
        self.has_link = false;
        let mut address = [0; 8];
        address[..6].copy_from_slice(&self.mac);
        let address = u64::from_le_bytes(address);
        self.registers.set(register::RAL, address as u32);
        self.registers.set(register::RAL + 4, (address >> 32) as u32 | RAH_VALID);
    }

    fn is_master_disabled(&self) -> bool {
        self.registers.get(register::CTRL) & ctrl::GIO_MASTER_DISABLE != 0
    }

    /// Whether there is a link now: the driver wants one, and the PHY has one.
    fn links(&self) -> bool {
        self.registers.get(register::CTRL) & ctrl::SLU != 0 && self.phy.has_link()
    }

    fn update_link(&mut self) {
        self.phy.has_carrier = self.cable.has_carrier();
        let has_link = self.links();
        if has_link != self.has_link {
            self.has_link = has_link;
            self.interrupts.raise(cause::LSC);
        }
        self.cable.set_carrier(has_link && !self.phy.is_looped());
        // Pause frames, which the other side respects.
        let pauses = has_link && self.registers.get(register::CTRL) & ctrl::TFCE != 0;
        self.cable.set_flow_control(pauses);
    }

    fn is_looped(&self) -> bool {
        self.phy.is_looped() || self.registers.get(register::RCTL) & rctl::LBM != 0
    }

    fn count_lost(&mut self) {
        let lost = self.cable.take_lost();
        if lost > 0 {
            self.statistics.add(counter::MPC, lost);
            self.statistics.total.missed += lost;
            self.interrupts.raise(cause::RX_MISS);
        }
    }

    fn run_transmit(&mut self, bus: &mut dyn Bus) -> bool {
        if self.registers.get(register::TCTL) & tctl::EN == 0 {
            return false;
        }
        let mut any = false;
        let is_looped = self.is_looped();
        for at in 0..QUEUES {
            let queue = (self.turn + at) % QUEUES;
            let transmit = &mut self.transmit[queue];
            if transmit.is_idle() {
                continue;
            }
            let mut outside = transmit::Outside {
                registers: &self.registers,
                statistics: &mut self.statistics,
                interrupts: &mut self.interrupts,
                cable: &self.cable,
                looped: is_looped.then_some(&mut self.receiver.looped),
                has_link: self.has_link,
            };
            let generation = transmit.ring.generation;
            let token = |piece: Option<u16>| {
                let purpose = piece.map_or(Purpose::TransmitDescriptors, Purpose::Data);
                token(generation, queue, purpose)
            };
            any |= transmit.run(queue, bus, token, &mut outside, &mut self.outstanding);
        }
        self.turn = (self.turn + 1) % QUEUES;
        any
    }

    fn run_receive(&mut self, bus: &mut dyn Bus) -> bool {
        if self.registers.get(register::RCTL) & rctl::RXEN == 0 {
            return false;
        }
        let mut any = false;
        for (queue, ring) in self.rings.iter_mut().enumerate() {
            let token = token(ring.generation, queue, Purpose::ReceiveDescriptors);
            any |= ring.fetch(bus, RECEIVE_RULES + queue as u8, token, &mut self.outstanding);
        }
        let is_looped = self.is_looped();
        let mut outside = receive::Outside {
            registers: &self.registers,
            statistics: &mut self.statistics,
            interrupts: &mut self.interrupts,
            cable: &self.cable,
            is_looped,
        };
        any | self.receiver.run(&mut self.rings, bus, &mut outside)
    }

    fn read_register(&mut self, offset: u32) -> u32 {
        if let Some((receives, queue, _, at)) = ring_register(offset) {
            let ring = if receives { &mut self.rings[queue] } else { &mut self.transmit[queue].ring };
            return ring.read(at);
        }
        if let Some(value) = self.interrupts.read(offset).or_else(|| self.statistics.read(offset)) {
            return value;
        }
        match offset {
            register::CTRL_ALIAS => self.registers.get(register::CTRL),
            register::STATUS => self.status(),
            register::EECD => self.nvm.eecd(),
            register::EERD => self.nvm.eerd(),
            register::MDIC => self.phy.mdic(),
            register::EEMNGCTL => CONFIGURED,
            // Microseconds, milliseconds and seconds.
            register::FRTIMER => {
                let us = self.now_ns / 1000;
                (us % 1000) as u32 | ((us / 1000 % 1000) as u32) << 10 | ((us / 1_000_000) as u32) << 20
            }
            // Who reads it has it, if nobody else did.
            register::SWSM => {
                let held = self.semaphore;
                self.semaphore |= SMBI;
                held
            }
            register::SYSTIML => self.clock.low(self.now_ns),
            register::SYSTIMH => self.clock.high(),
            // Both ports' Functions are on; no manageability.
            register::FACTPS | register::FWSM | register::MANC => 0,
            _ => self.registers.get(offset),
        }
    }

    fn write_register(&mut self, offset: u32, value: u32) {
        if let Some((receives, queue, first, at)) = ring_register(offset) {
            if receives {
                // A frame on its way to a ring that is switched off is dropped as it goes on.
                self.rings[queue].write(first, at, value);
            } else if self.transmit[queue].ring.write(first, at, value) == Effect::Switched {
                self.transmit[queue].stop(&self.cable);
            }
            return;
        }
        if self.interrupts.write(offset, value) {
            return;
        }
        match offset {
            register::CTRL | register::CTRL_ALIAS => self.control(value),
            register::EECD => self.nvm.set_eecd(value),
            register::EERD => self.nvm.set_eerd(value),
            register::MDIC => self.phy.set_mdic(value),
            register::SWSM => self.semaphore = value & (SMBI | SWESMBI),
            register::SYSTIML => self.clock.set_low(self.now_ns, value),
            register::SYSTIMH => self.clock.set_high(self.now_ns, value),
            register::TIMINCA => {
                self.clock.set_increment(self.now_ns, value);
                self.registers.set(offset, value);
            }
            _ => self.registers.set(offset, value),
        }
    }

    fn control(&mut self, value: u32) {
        if value & ctrl::PHY_RST != 0 {
            self.phy.reset();
        }
        if value & ctrl::RST != 0 {
            self.restart();
        } else {
            self.registers.set(register::CTRL, value);
        }
    }

    /// It is a master as long as reads are under way, whatever the driver wants (8.2.2).
    fn status(&self) -> u32 {
        let is_master = !self.is_master_disabled() || self.outstanding > 0;
        let linked = status::LU | status::SPEED_1000 | status::ASDV_1000;
        status::FD
            | if self.has_link { linked } else { 0 }
            | if is_master { status::GIO_MASTER_ENABLE } else { 0 }
    }
}
