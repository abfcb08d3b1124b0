//! RNIC registers (docs/rnic.md, section 2).

use super::Rnic;
use super::bits::{FEATURES, FENCE_DONE, MAGIC, STATUS_READY, VERSION, control, register};

/// Most of what a WQE can have, for LIMITS and LIMITS2.
const MAX_DATAGRAM_BYTES: u32 = 4080;

impl Rnic {
    /// A read of 4 or 8 bytes, aligned.
    pub(super) fn read_register(&mut self, offset: u64, data: &mut [u8]) {
        match (offset, data.len()) {
            (register::EVENT, 8) => {
                let event = self.take_event();
                data.copy_from_slice(&event.to_le_bytes());
            }
            (register::EVENT, _) => {
                let event = self.take_event();
                self.event_high = (event >> 32) as u32;
                data.copy_from_slice(&(event as u32).to_le_bytes());
            }
            _ => {
                for (at, word) in data.chunks_exact_mut(4).enumerate() {
                    let value = self.read_word(offset + 4 * at as u64);
                    word.copy_from_slice(&value.to_le_bytes());
                }
            }
        }
    }

    fn read_word(&self, offset: u64) -> u32 {
        let config = &self.config;
        match offset {
            register::MAGIC => MAGIC,
            register::VERSION => VERSION,
            register::CONTROL => u32::from(self.is_enabled) * control::ENABLE,
            register::STATUS => STATUS_READY,
            register::FEATURES => FEATURES,
            register::QPS => config.qps,
            register::CQS => config.cqs,
            register::SRQS => config.srqs,
            register::PEERS => config.peers,
            register::STAGS => config.stags,
            register::PBLS => config.pages,
            register::LIMITS => {
                let reads = u32::from(config.reads);
                etherslot_rdma::MAX_SGES as u32 | 9 << 8 | reads << 16 | reads << 24
            }
            register::LIMITS2 => etherslot_rdma::MAX_INLINE_BYTES as u32 | MAX_DATAGRAM_BYTES << 16,
            register::FENCE => {
                let is_done = self.fence.is_none_or(|mark| self.dma.is_past(mark));
                if is_done { FENCE_DONE } else { 0 }
            }
            register::QP_COMMAND => self.read_command(),
            register::EVENTS => u32::from(self.has_events),
            0x07C => self.event_high,
            register::MISS | 0x084 => {
                let miss = self.misses.front().copied().unwrap_or(0);
                if offset == register::MISS { miss as u32 } else { (miss >> 32) as u32 }
            }
            register::TABLES_AT..0x058 => self.tables.place((offset - register::TABLES_AT) as usize / 4),
            register::SESSIONS => u32::from(self.network.sessions()),
            register::SESSION_AT => self.tables.sessions_at(),
            register::COUNTERS.. => {
                let mut counters = self.engine.counters().named();
                let value =
                    counters.nth((offset - register::COUNTERS) as usize / 8).map_or(0, |named| named.value);
                if offset.is_multiple_of(8) { value as u32 } else { (value >> 32) as u32 }
            }
            _ => 0,
        }
    }

    /// A write of 4 or 8 bytes, aligned.
    pub(super) fn write_register(&mut self, offset: u64, data: &[u8]) {
        if let (register::MISS, Ok(value)) = (offset, data.try_into()) {
            return self.resolve(u64::from_le_bytes(value));
        }
        for (at, word) in data.as_chunks().0.iter().enumerate() {
            self.write_word(offset + 4 * at as u64, u32::from_le_bytes(*word));
        }
    }

    fn write_word(&mut self, offset: u64, value: u32) {
        match offset {
            register::CONTROL => {
                if value & control::RESET != 0 {
                    self.reset_all(false);
                }
                self.set_enabled(value & control::ENABLE != 0);
            }
            register::FENCE => self.fence = Some(self.dma.mark()),
            register::QP_COMMAND => self.command(value),
            register::EVENTS if value & 1 != 0 => {
                self.has_events = false;
                self.tell_events();
            }
            register::MISS => self.miss_low = value,
            0x084 => self.resolve(u64::from(value) << 32 | u64::from(self.miss_low)),
            _ => {}
        }
    }

    fn take_event(&mut self) -> u64 {
        self.events.pop_front().map_or(0, etherslot_rdma::Event::emit)
    }

    /// EVENTS is set and an interrupt due if there is something that was not told.
    pub(super) fn tell_events(&mut self) {
        if !self.events.is_empty() && !self.has_events {
            self.has_events = true;
            self.is_calling = true;
        }
    }

    /// The driver has brought a page, or can't.
    fn resolve(&mut self, miss: u64) {
        if self.misses.front() == Some(&miss) {
            self.misses.pop_front();
            self.engine.wake_parked();
            self.is_calling |= !self.misses.is_empty();
        }
    }
}
