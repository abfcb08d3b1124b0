//! What an Endpoint sends of its own accord: the [`Bus`] of its Function, interrupts and error Messages.

use etherslot_wire::tlp::{Header, MemRequest, Op, Routing};

use super::{Core, intx_message, message};
use crate::TlpOut;
use crate::function::{Bus, Entry, InterruptMode};
use crate::msi::{self, Message};
use crate::requester::Expect;

const BOUNDARY: u64 = 4096;
/// A write is cut to the room left in a frame if this much of it fits; less is not worth a header of its own.
const WORTH_CUTTING_BYTES: usize = 256;
/// Cuts are made at multiples of this, so that whole cache lines meet the host's memory.
const CUT_BYTES: u64 = 128;

/// The way upstream during one poll.
pub(super) struct Outbound<'a> {
    pub(super) core: &'a mut Core,
    pub(super) out: &'a mut dyn TlpOut,
    pub(super) stream: u16,
    pub(super) now_ns: u64,
}

impl Outbound<'_> {
    /// Sends the Messages and interrupts that had to wait. True if something was sent.
    pub(super) fn send_waiting(&mut self) -> bool {
        let mut progress = false;
        while let Some(code) = self.core.messages.first() {
            if !self.send(&message(self.core.id, Routing::ToRoot, code), &[]) {
                return progress;
            }
            self.core.messages.remove_first();
            progress = true;
        }
        let told = self.core.intx_told;
        self.tell_intx();
        progress |= told != self.core.intx_told;
        while self.core.vectors_unmasked && self.core.master {
            let first = match self.core.mode {
                InterruptMode::Msi(enabled) => msi::msi_first_to_fire(&self.core.config, enabled),
                InterruptMode::MsiX(_) if !self.core.vectors_masked => {
                    self.core.msix.as_ref().and_then(msi::MsixTable::first_to_fire)
                }
                _ => None,
            };
            let Some((vector, message)) = first else {
                self.core.vectors_unmasked = false;
                break;
            };
            if !self.send_message(message) {
                break;
            }
            self.set_pending(vector, false);
            progress = true;
        }
        progress
    }

    fn send(&mut self, header: &Header, data: &[u8]) -> bool {
        self.out.room(self.stream) != 0 && self.out.send(self.stream, header, data)
    }

    /// Brings what the host knows of INTA up to date; false if there is no room for that.
    fn tell_intx(&mut self) -> bool {
        let asserted = self.core.intx && self.core.mode == InterruptMode::IntX;
        if asserted != self.core.intx_told {
            if !self.send(&intx_message(self.core.id, asserted), &[]) {
                return false;
            }
            self.core.intx_told = asserted;
        }
        true
    }

    fn send_message(&mut self, message: Message) -> bool {
        let Some(request) = MemRequest::covering(self.core.id, 0, message.address & !3, 4) else {
            return true;
        };
        let sent = self.send(&Header::new(Op::MemWrite(request)), &message.data.to_le_bytes());
        self.core.counters.interrupts += u64::from(sent);
        sent
    }

    fn set_pending(&mut self, vector: u16, pending: bool) {
        match (self.core.mode, &mut self.core.msix) {
            (InterruptMode::Msi(_), _) => msi::msi_set_pending(&mut self.core.config, vector, pending),
            (InterruptMode::MsiX(_), Some(msix)) if pending => msix.raise(vector),
            (InterruptMode::MsiX(_), Some(msix)) => msix.clear(vector),
            _ => {}
        }
    }
}

/// How many of `wanted` bytes from `address` on go into the next Memory Write, if `room` bytes are left in the
/// frame: all if they fit, as many as do if that is worth it, or all, to be divided.
fn cut(address: u64, wanted: usize, room: usize) -> usize {
    let lead = (address & 3) as usize;
    let header = if address >> 32 == 0 { 12 } else { 16 };
    let fitting = (room.saturating_sub(header) & !3).saturating_sub(lead);
    if wanted <= fitting || fitting < WORTH_CUTTING_BYTES {
        return wanted;
    }
    let end = address.wrapping_add(fitting as u64) & !(CUT_BYTES - 1);
    end.wrapping_sub(address) as usize
}

impl Bus for Outbound<'_> {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn is_master(&self) -> bool {
        self.core.master
    }

    fn write(&mut self, address: u64, data: &[u8]) -> usize {
        // What it reads behind this must be what it writes.
        self.core.ahead.touch(address, data.len());
        let mut done = 0;
        while self.core.master && done < data.len() {
            let room = self.out.room(self.stream);
            if room == 0 {
                break;
            }
            let at = address.wrapping_add(done as u64);
            let to_boundary = (BOUNDARY - at % BOUNDARY) as usize;
            let payload = self.core.max_payload as usize - (at & 3) as usize;
            let bytes = cut(at, (data.len() - done).min(to_boundary).min(payload), room);
            let Some(request) = MemRequest::covering(self.core.id, 0, at, bytes) else { break };
            if !self.out.send(self.stream, &Header::new(Op::MemWrite(request)), &data[done..done + bytes]) {
                break;
            }
            self.core.counters.writes += 1;
            done += bytes;
        }
        self.core.counters.write_bytes += done as u64;
        done
    }

    fn read(&mut self, address: u64, bytes: usize, token: u64) -> usize {
        self.core.ahead.touch(address, bytes);
        let mut done = 0;
        while self.core.master && done < bytes && self.out.room(self.stream) != 0 {
            let at = address.wrapping_add(done as u64);
            let to_boundary = (BOUNDARY - at % BOUNDARY) as usize;
            // Max_Read_Request_Size bounds the Length field, that is whole DWs (2.2.7).
            let most = self.core.max_read_request as usize - (at & 3) as usize;
            let part = (bytes - done).min(to_boundary).min(most);
            let Some(tag) = self.core.requester.begin(self.now_ns, at, part, Expect::Memory, token) else {
                break;
            };
            let sent = MemRequest::covering(self.core.id, tag, at, part)
                .is_some_and(|request| self.out.send(self.stream, &Header::new(Op::MemRead(request)), &[]));
            if !sent {
                self.core.requester.cancel(tag);
                break;
            }
            done += part;
        }
        self.core.counters.read_bytes += done as u64;
        done
    }

    fn take_entries(&mut self, first: Entry, data: &mut [u8]) -> usize {
        self.core.ahead.take_entries(first, data)
    }

    fn take_for(&mut self, entry: Entry, address: u64, most: usize, take: &mut dyn FnMut(&[u8])) -> usize {
        self.core.ahead.take_for(entry, address, most, &[], take)
    }

    fn interrupt_mode(&self) -> InterruptMode {
        self.core.mode
    }

    fn interrupt(&mut self, vector: u16) -> bool {
        let (vector, message) = match self.core.mode {
            InterruptMode::Disabled | InterruptMode::IntX => return true,
            InterruptMode::Msi(enabled) => {
                let vector = vector % enabled;
                (vector, msi::msi_message(&self.core.config, vector, enabled))
            }
            InterruptMode::MsiX(vectors) if vector >= vectors => return true,
            InterruptMode::MsiX(_) if self.core.vectors_masked => (vector, None),
            InterruptMode::MsiX(_) => (vector, self.core.msix.as_ref().and_then(|msix| msix.message(vector))),
        };
        let Some(message) = message.filter(|_| self.core.master) else {
            // Goes out once it is unmasked, or the Function may master the bus again: a message is a Memory
            // Write.
            self.set_pending(vector, true);
            return true;
        };
        let sent = self.send_message(message);
        if sent {
            self.set_pending(vector, false);
        }
        sent
    }

    fn set_intx(&mut self, asserted: bool) -> bool {
        if matches!(self.core.mode, InterruptMode::IntX | InterruptMode::Disabled)
            && self.core.intx != asserted
        {
            self.core.intx = asserted;
            self.core.show_intx();
        }
        self.tell_intx()
    }
}
