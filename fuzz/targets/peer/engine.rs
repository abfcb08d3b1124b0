//! The device in the box: it copies guest memory, then interrupts.

use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Entry, Fault, Function, FunctionSpec, MsixSpec, ReadAhead, ResetKind,
};
use etherslot_wire::ahead::{Condition, Follow, Rule};

/// Bytes of BAR 0.
pub const BAR_BYTES: u64 = 0x4000;
const MAX_COPY_BYTES: usize = 8 << 10;
/// A ring of entries, address and length, of which it takes what comes along with their doorbell.
pub const RING: u64 = 0x400;
const ENTRIES: u32 = 8;
const DOORBELL: u32 = 24;

/// Registers: 0 scratch; 8 address; 16 length, and a write starts a copy of so many bytes to behind them; 24 doorbell.
#[derive(Debug, Default)]
pub struct Engine {
    scratch: [u8; 8],
    address: u64,
    data: Vec<u8>,
    asked: usize,
    arrived: usize,
    sent: usize,
    interrupt: bool,
    head: u32,
    tail: u32,
    is_used: bool,
    is_declared: bool,
}

impl Function for Engine {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: 0x1234,
            device: 0x5678,
            subsystem_vendor: 0x1234,
            subsystem: 1,
            revision: 1,
            class: [0xFF, 0, 0],
            bars: vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: BAR_BYTES }],
            msix: Some(MsixSpec { vectors: 4, bar: 0, table_offset: 0x2000, pba_offset: 0x3000 }),
            msi_vectors: 4,
            intx: true,
            serial: None,
        }
    }

    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        for (at, byte) in data.iter_mut().enumerate() {
            *byte = self.scratch.get(offset as usize + at).copied().unwrap_or(0);
        }
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        let mut value = [0; 8];
        let bytes = data.len().min(8);
        value[..bytes].copy_from_slice(&data[..bytes]);
        match offset {
            24 => self.tail = value[0].into(),
            0 => self.scratch = value,
            8 => self.address = u64::from_le_bytes(value),
            16 => {
                let total = u64::from_le_bytes(value) as usize % (MAX_COPY_BYTES + 1);
                let (scratch, address) = (self.scratch, self.address);
                let Self { head, tail, is_used, is_declared, .. } = *self;
                *self = Self { scratch, address, data: vec![0; total], interrupt: true, ..Self::default() };
                (self.head, self.tail, self.is_used, self.is_declared) = (head, tail, is_used, is_declared);
            }
            _ => {}
        }
    }

    fn read_completed(&mut self, _token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        assert!(bytes != 0);
        let at = address.wrapping_sub(self.address) as usize;
        // The driver may have started another copy meanwhile.
        if let (Ok(data), Some(place)) = (result, self.data.get_mut(at..at.saturating_add(bytes))) {
            place.copy_from_slice(data);
        }
        self.arrived += bytes;
    }

    fn read_ahead(&mut self) -> Option<ReadAhead> {
        if !self.is_used || std::mem::replace(&mut self.is_declared, true) {
            return None;
        }
        let mut rule = Rule::new(0, 0, DOORBELL, RING, 16, ENTRIES);
        rule.follow(Follow {
            flags: Follow::DATA,
            when: [Condition::default(); 2],
            conditions: 0,
            first: 0,
            second: 0,
            length: 8,
            mask: 0x3FFF,
            bias: 0,
            shift: 0,
            max_bytes: 10_000,
        });
        Some(ReadAhead::Declare(rule))
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        self.is_used |= bus.is_master();
        if self.head != self.tail % ENTRIES {
            let (entry, mut bytes) = (Entry { rule: 0, index: self.head }, [0; 16]);
            let taken = bus.take_entries(entry, &mut bytes);
            assert!(taken == 0 || taken == 16);
            let address = u64::from_le_bytes(*bytes.first_chunk().expect("8 bytes"));
            let mut data = [0; 5000];
            let mut at = 0;
            let taken = bus.take_for(entry, address, data.len(), &mut |piece| {
                data[at..at + piece.len()].copy_from_slice(piece);
                at += piece.len();
            });
            assert!(taken == at);
            self.head = (self.head + 1) % ENTRIES;
            return true;
        }
        let total = self.data.len();
        if !bus.is_master() || total == 0 {
            return false;
        }
        let end = |bytes: usize| self.address.wrapping_add(bytes as u64);
        if self.asked < total {
            let asked = bus.read(end(self.asked), total - self.asked, 7);
            assert!(asked <= total - self.asked);
            self.asked += asked;
            return asked != 0;
        }
        if self.arrived >= total && self.sent < total {
            let sent = bus.write(end(total + self.sent), &self.data[self.sent..]);
            assert!(sent <= total - self.sent);
            self.sent += sent;
            return sent != 0;
        }
        if self.sent == total && self.interrupt && bus.interrupt(1) {
            self.interrupt = false;
            return bus.set_intx(self.scratch[0] & 1 != 0);
        }
        false
    }

    fn reset(&mut self, _kind: ResetKind) {
        *self = Self::default();
    }
}
