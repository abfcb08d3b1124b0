//! Data of commands on their way to memory: from a Buf, or from a medium that is memory itself.

use super::cmb::Place;
use super::engine::Step;
use super::slot::{Phase, Slot};
use super::transfer::Next;
use super::{Active, Nvme};
use etherslot_pci::function::Bus;

/// Bytes that are written in one poll, of one command or of several: they leave while the next are copied.
const POLL_BYTES: u32 = 128 << 10;

impl Nvme {
    /// Writes memory for whom it is needed; some of it, if it is much.
    pub(super) fn run_writing(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        let mut written = 0;
        while written < POLL_BYTES
            && let Some(index) = self.writing.pop_front()
        {
            self.slots[usize::from(index)].queued = false;
            let before = self.slots[usize::from(index)].transfer.done();
            let step = match self.slots[usize::from(index)].phase {
                Phase::Scatter => self.scatter_step(index, bus),
                _ => Step::Done,
            };
            let slot = &mut self.slots[usize::from(index)];
            let done = slot.transfer.done().saturating_sub(before);
            written += done.max(1);
            any |= step != Step::NoRoom || done != 0;
            if step != Step::Done {
                slot.queued = true;
            }
            match step {
                Step::Done => {}
                Step::Turn => self.writing.push_back(index),
                Step::NoRoom => {
                    self.writing.push_front(index);
                    break;
                }
            }
        }
        any
    }

    fn scatter_step(&mut self, index: u16, bus: &mut dyn Bus) -> Step {
        let Some(step) = self.scatter_more(index, bus) else {
            let status = self.slots[usize::from(index)].status;
            self.end(index, status);
            return Step::Done;
        };
        self.keep_begun_block(index);
        step
    }

    /// Writes what there is room for; None if that was the last of it, or the last that can be.
    fn scatter_more(&mut self, index: u16, bus: &mut dyn Bus) -> Option<Step> {
        let slot = &mut self.slots[usize::from(index)];
        let start = slot.transfer.done();
        loop {
            match slot.transfer.next() {
                Next::Data { address, bytes } => {
                    let done = slot.transfer.done();
                    if done - start >= POLL_BYTES {
                        return Some(Step::Turn);
                    }
                    let data = match (slot.on_medium, &slot.buf) {
                        (Some(offset), _) => in_place(&self.namespaces, slot, offset, bytes.min(POLL_BYTES))?,
                        (None, Some(buf)) => &buf[done as usize..(done + bytes.min(POLL_BYTES)) as usize],
                        (None, None) => return None,
                    };
                    match self.cmb.place(address, data.len()) {
                        Place::Inside(range) => {
                            let bytes = range.len();
                            self.cmb.at_mut(range).copy_from_slice(&data[..bytes]);
                            slot.transfer.consume(bytes as u32);
                        }
                        Place::Outside(bytes) => {
                            let written = bus.write(address, &data[..bytes]).min(bytes);
                            slot.transfer.consume(written as u32);
                            if written < bytes {
                                return Some(Step::NoRoom);
                            }
                        }
                    }
                }
                Next::List { .. } => {
                    self.want_reading(index);
                    return Some(Step::Done);
                }
                Next::Waiting => return Some(Step::Done),
                Next::End => return None,
                Next::Bad(status) => {
                    slot.fail(status);
                    return None;
                }
            }
        }
    }

    /// Keeps the rest of a block that has gone out in part, since its place may be written before the rest can follow.
    fn keep_begun_block(&mut self, index: u16) {
        let slot = &mut self.slots[usize::from(index)];
        let Some((offset, namespace)) = slot.on_medium.zip(of(&self.namespaces, slot.nsid)) else { return };
        let (done, block_bytes) = (slot.transfer.done(), namespace.block_bytes());
        let block = done / block_bytes;
        if done.is_multiple_of(block_bytes) || slot.begun_block == Some(block) {
            return;
        }
        let from = offset + u64::from(block * block_bytes);
        if let Some(data) = namespace.medium.peek(from, block_bytes as usize) {
            slot.begun[..data.len()].copy_from_slice(data);
            slot.begun_block = Some(block);
        }
    }
}

fn of(namespaces: &[Active], nsid: u32) -> Option<&Active> {
    namespaces.get((nsid as usize).checked_sub(1)?)
}

/// The next data of a Read whose medium is memory, at most `bytes`: the rest of a block that was begun is what was kept of it.
fn in_place<'a>(namespaces: &'a [Active], slot: &'a Slot, offset: u64, bytes: u32) -> Option<&'a [u8]> {
    let namespace = of(namespaces, slot.nsid)?;
    let (done, block_bytes) = (slot.transfer.done(), namespace.block_bytes());
    if slot.begun_block == Some(done / block_bytes) {
        let at = done % block_bytes;
        return slot.begun.get(at as usize..(at + bytes).min(block_bytes) as usize);
    }
    namespace.medium.peek(offset + u64::from(done), bytes as usize)
}
