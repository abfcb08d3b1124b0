//! The controller as a Function: configuration space, BARs, doorbells, and the order of work of one poll.

use super::bits::register;
use super::cmb;
use super::engine::Token;
use super::events::Event;
use super::lifecycle::{Life, ShuttingDown};
use super::registers::Effect;
use super::{Active, Nvme};
use crate::ids;
use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, MsixSpec, ReadAhead, ResetKind,
};

/// Registers and doorbells, MSI-X table and PBA, each in a page of its own.
const BAR0_BYTES: u64 = 0x4000;
const MSIX_TABLE: u32 = 0x2000;
const MSIX_PBA: u32 = 0x3000;

impl Function for Nvme {
    fn spec(&self) -> FunctionSpec {
        let mut bars = vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: BAR0_BYTES }];
        if self.cmb.exists() {
            let bytes = self.cmb.bytes() as u64;
            bars.push(BarSpec { index: cmb::BAR, kind: BarKind::Prefetchable64, bytes });
        }
        let msix = MsixSpec { vectors: self.vectors, bar: 0, table_offset: MSIX_TABLE, pba_offset: MSIX_PBA };
        FunctionSpec {
            vendor: ids::VENDOR,
            device: ids::NVME,
            subsystem_vendor: ids::VENDOR,
            subsystem: ids::NVME,
            revision: 1,
            // Mass storage, non-volatile memory, NVM Express I/O controller.
            class: [0x01, 0x08, 0x02],
            bars,
            msix: (self.vectors > 0).then_some(msix),
            msi_vectors: 32,
            intx: true,
            serial: Some(self.identity.device_serial_number()),
        }
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        if bar == cmb::BAR {
            return self.cmb.bar_read(offset, data);
        }
        for (at, byte) in (offset..).zip(data) {
            let dword = self.read_register(at as u32 & !3);
            *byte = dword.to_le_bytes()[at as usize & 3];
        }
    }

    /// Registers take whole dwords (3.1: accesses are aligned, and of 4 or 8 bytes); others are lost.
    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if bar == cmb::BAR {
            return self.cmb.bar_write(offset, data);
        }
        let skip = (offset.next_multiple_of(4) - offset) as usize;
        let Some(whole) = data.get(skip..) else { return };
        for (at, dword) in (offset + skip as u64..).step_by(4).zip(whole.chunks_exact(4)) {
            self.write_register(at as u32, u32::from_le_bytes(dword.try_into().expect("4 bytes")));
        }
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        self.reads_outstanding = self.reads_outstanding.saturating_sub(bytes as u64);
        if self.is_running() {
            self.memory_arrived(Token(token), address, bytes, result);
        }
        self.advance_life();
    }

    fn count(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let counters = &self.logs.counters;
        let clamped = |value: u128| u64::try_from(value).unwrap_or(u64::MAX);
        each("reads", clamped(counters.reads));
        each("bytes_read", clamped(counters.bytes_read));
        each("writes", clamped(counters.writes));
        each("bytes_written", clamped(counters.bytes_written));
        each("busy_ns", counters.busy_ns);
        each("media_errors", counters.media_errors);
        each("unsafe_shutdowns", counters.unsafe_shutdowns);
    }

    fn read_ahead(&mut self) -> Option<ReadAhead> {
        self.next_rule()
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        self.now_ns = bus.now_ns();
        self.interrupt_mode = bus.interrupt_mode();
        self.logs.tick(self.now_ns);
        let is_master = bus.is_master();
        let mut any = self.advance_life();
        if self.is_running() && is_master {
            any |= self.start_fetched();
            any |= self.fetch(bus);
            // Entries in the Controller Memory Buffer are there at once.
            any |= self.start_fetched();
            any |= self.serve_waiting();
            any |= self.run_reading(bus);
        }
        any |= self.poll_media();
        if self.is_running() && is_master {
            any |= self.serve_waiting();
            any |= self.run_writing(bus);
            any |= self.tell_events();
            any |= self.post(bus);
        }
        any |= self.interrupt(bus);
        any | self.advance_life()
    }

    fn deadline_ns(&self) -> Option<u64> {
        let media = self.namespaces.iter().filter_map(|namespace| namespace.medium.deadline_ns());
        media.chain(self.interrupt_deadline_ns()).chain(self.shutdown_deadline_ns()).min()
    }

    fn is_idle(&self) -> bool {
        let is_settled = match self.life {
            Life::Disabled | Life::Halted => true,
            Life::Running => self.shutting_down == ShuttingDown::No,
            Life::Starting | Life::Stopping => false,
        };
        is_settled
            && self.free.len() == self.slots.len()
            && self.media_outstanding == 0
            && self.rules_changed == 0
            && self.queues.is_quiet()
            && !self.events.has_next()
    }

    fn reset(&mut self, kind: ResetKind) {
        // The reads under way end with the reset; the media's Requests do not.
        self.reset_all(kind == ResetKind::Conventional, false);
        self.reads_outstanding = 0;
        self.advance_life();
    }
}

impl Nvme {
    fn read_register(&self, offset: u32) -> u32 {
        match offset {
            register::CMBLOC => self.cmb.location(),
            register::CMBSZ => self.cmb.size(),
            register::CMBMSC => self.cmb.space_control() as u32,
            register::CMBMSC_HIGH => (self.cmb.space_control() >> 32) as u32,
            register::CMBSTS => self.cmb.status(),
            _ => self.registers.read(offset),
        }
    }

    fn write_register(&mut self, offset: u32, value: u32) {
        if offset >= register::DOORBELLS {
            return self.ring((offset - register::DOORBELLS) / 4, value);
        }
        let old = self.cmb.space_control();
        match offset {
            register::CMBMSC => self.cmb.set_space_control(old & !0xffff_ffff | u64::from(value)),
            register::CMBMSC_HIGH => {
                self.cmb.set_space_control(old & 0xffff_ffff | u64::from(value) << 32);
            }
            _ => match self.registers.write(offset, value) {
                Effect::None | Effect::Unmasked => {}
                Effect::Enable => self.enable(),
                Effect::Disable => self.disable(),
                Effect::Shutdown => self.shut_down(),
                Effect::SubsystemReset => self.reset_all(true, true),
            },
        }
    }

    /// Doorbell `index`: 2y is the tail of Submission Queue y, 2y + 1 the head of Completion Queue y (3.1.25, 3.1.26).
    fn ring(&mut self, index: u32, value: u32) {
        if !self.is_running() {
            return;
        }
        let qid = (index / 2) as usize;
        let rung = if index.is_multiple_of(2) {
            self.queues.ring_submission(qid, value)
        } else {
            self.queues.ring_completion(qid, value)
        };
        let event = match rung {
            Some(Ok(())) => return,
            Some(Err(_)) => {
                if index.is_multiple_of(2) {
                    // The host may have sent entries along that are none.
                    self.rule_changed(qid as u16);
                }
                Event::InvalidDoorbellValue
            }
            None => Event::InvalidDoorbell,
        };
        self.logs.doorbell_failed(qid as u16);
        self.events.raise(event);
    }

    /// The namespace `nsid`.
    pub(super) fn namespace(&mut self, nsid: u32) -> Option<&mut Active> {
        self.namespaces.get_mut(nsid.wrapping_sub(1) as usize)
    }
}
