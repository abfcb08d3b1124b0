//! Data of commands on their way from memory: to a Buf, or to a medium that is memory itself.
//!
//! A Write to such a medium lands as its data come, from where they lie: they are copied once. Whole blocks land at once, so that no Read
//! sees half of one (NVMe Base 1.4, 6.4: AWUN and AWUPF are one block); a block that comes in parts waits in the Buf until the end. A
//! Write that ends in an error may have written blocks before, and writes none behind it.

use super::cmb::Place;
use super::engine::{Purpose, Step, Token, ask_for_list};
use super::slot::Slot;
use super::status::Status;
use super::transfer::Next;
use super::{Active, Nvme};
use etherslot_pci::function::Bus;

impl Nvme {
    pub(super) fn gather_step(&mut self, index: u16, bus: &mut dyn Bus) -> Step {
        let Self { slots, namespaces, cmb, reads_outstanding, .. } = self;
        let slot = &mut slots[usize::from(index)];
        if !slot.status.is_success() {
            slot.transfer.stop();
        }
        loop {
            if !ask_for_list(index, slot, cmb, bus, reads_outstanding) {
                return Step::NoRoom;
            }
            match slot.transfer.next() {
                Next::Data { address, bytes } => {
                    let done = slot.transfer.done();
                    let mut has_landed = true;
                    let asked = match cmb.place(address, bytes as usize) {
                        Place::Inside(range) => {
                            let bytes = range.len();
                            has_landed = land(slot, namespaces, done as usize, cmb.at(range));
                            bytes
                        }
                        Place::Outside(bytes) => {
                            let taken = bus.take_for(slot.entry(), address, bytes, &mut |data| {
                                has_landed = land(slot, namespaces, done as usize, data);
                            });
                            if taken > 0 {
                                taken.min(bytes)
                            } else {
                                let token = Token::new(Purpose::Data, index, done, address);
                                let asked = bus.read(address, bytes, token.0).min(bytes);
                                slot.reads += asked as u32;
                                *reads_outstanding += asked as u64;
                                if asked < bytes {
                                    slot.transfer.consume(asked as u32);
                                    return Step::NoRoom;
                                }
                                asked
                            }
                        }
                    };
                    slot.transfer.consume(asked as u32);
                    if !has_landed {
                        slot.fail(Status::INTERNAL_ERROR);
                        slot.transfer.stop();
                    }
                }
                Next::List { .. } => {}
                Next::Waiting => return Step::Done,
                Next::End => break,
                Next::Bad(status) => {
                    slot.fail(status);
                    slot.transfer.stop();
                }
            }
        }
        if slot.reads > 0 {
            return Step::Done;
        }
        match slot.status {
            Status::SUCCESS => self.gathered(index),
            status => self.end(index, status),
        }
        Step::Done
    }

    /// All data of a Write to a medium that is memory have come: its blocks that came in parts are whole now, and land.
    pub(super) fn land_rest(&mut self, index: u16) -> bool {
        let slot = &self.slots[usize::from(index)];
        let (Some(offset), Some(buf)) = (slot.on_medium, &slot.buf) else { return false };
        let Some(namespace) = of(&mut self.namespaces, slot.nsid) else { return false };
        let block_bytes = namespace.block_bytes() as usize;
        slot.in_buf.iter().all(|block| {
            let at = block * block_bytes;
            let data = buf.get(at..at + block_bytes);
            data.is_some_and(|data| namespace.medium.poke(offset + at as u64, data))
        })
    }
}

fn of(namespaces: &mut [Active], nsid: u32) -> Option<&mut Active> {
    namespaces.get_mut((nsid as usize).checked_sub(1)?)
}

/// Data of a command from the host have come, `at` bytes behind the start of all that it has. False if there is no place for them.
pub(super) fn land(slot: &mut Slot, namespaces: &mut [Active], at: usize, data: &[u8]) -> bool {
    let end = at + data.len();
    // What goes to the medium; the rest goes to the Buf.
    let mut whole = end..end;
    if let Some(offset) = slot.on_medium {
        let Some(namespace) = of(namespaces, slot.nsid) else { return false };
        let block_bytes = namespace.block_bytes() as usize;
        let blocks = at.next_multiple_of(block_bytes)..end / block_bytes * block_bytes;
        if !blocks.is_empty()
            && namespace.medium.poke(offset + blocks.start as u64, &data[blocks.start - at..blocks.end - at])
        {
            whole = blocks;
        }
        for part in [at..whole.start, whole.end..end] {
            for block in part.start / block_bytes..part.end.div_ceil(block_bytes) {
                if !part.is_empty() && !slot.in_buf.insert(block) {
                    return false;
                }
            }
        }
    }
    let Some(buf) = &mut slot.buf else { return false };
    [at..whole.start, whole.end..end].into_iter().all(|part| {
        let place = buf.get_mut(part.clone());
        place.map(|place| place.copy_from_slice(&data[part.start - at..part.end - at])).is_some()
    })
}
