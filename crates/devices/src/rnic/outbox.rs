//! What the RNIC writes to memory, and the interrupts behind it, in order, until the bus has room.

use std::collections::VecDeque;

use etherslot_pci::function::Bus;

/// Bytes that may wait before no more work is begun that writes.
const ENOUGH_BYTES: usize = 128 << 10;
const ENOUGH_ITEMS: usize = 4096;

#[derive(Clone, Copy, Debug)]
enum Item {
    Write { address: u64, bytes: usize },
    Interrupt(u16),
}

/// The queue. Places in it are numbered: what has to come after a write waits until its place has passed.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    items: VecDeque<Item>,
    /// Their data, from `head` on.
    data: Vec<u8>,
    head: usize,
    passed: u64,
}

impl Outbox {
    /// Whether work may be begun that writes. A step of work goes beyond this by no more than its own bounds.
    pub(super) fn has_room(&self) -> bool {
        self.data.len() - self.head < ENOUGH_BYTES && self.items.len() < ENOUGH_ITEMS
    }

    /// The place behind all that is in it.
    pub(super) fn end(&self) -> u64 {
        self.passed + self.items.len() as u64
    }

    /// Whether everything before this place is on its way.
    pub(super) fn has_passed(&self, place: u64) -> bool {
        self.passed >= place
    }

    pub(super) fn write(&mut self, address: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.data.extend_from_slice(data);
        if let Some(Item::Write { address: before, bytes }) = self.items.back_mut()
            && before.wrapping_add(*bytes as u64) == address
        {
            *bytes += data.len();
        } else {
            self.items.push_back(Item::Write { address, bytes: data.len() });
        }
    }

    pub(super) fn interrupt(&mut self, vector: u16) {
        self.items.push_back(Item::Interrupt(vector));
    }

    /// Hands over what the bus takes. True if it took something.
    pub(super) fn drain(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while let Some(item) = self.items.front_mut() {
            match item {
                Item::Interrupt(vector) => {
                    if !bus.interrupt(*vector) {
                        break;
                    }
                }
                Item::Write { address, bytes } => {
                    let taken = bus.write(*address, &self.data[self.head..self.head + *bytes]);
                    any |= taken > 0;
                    self.head += taken;
                    if taken < *bytes {
                        *address = address.wrapping_add(taken as u64);
                        *bytes -= taken;
                        break;
                    }
                }
            }
            any = true;
            self.items.pop_front();
            self.passed += 1;
        }
        if self.head == self.data.len() {
            self.data.clear();
            self.head = 0;
        } else if self.head >= ENOUGH_BYTES {
            self.data.drain(..self.head);
            self.head = 0;
        }
        any
    }

    /// Nothing of it goes out any more.
    pub(super) fn clear(&mut self) {
        self.passed += self.items.len() as u64;
        self.items.clear();
        self.data.clear();
        self.head = 0;
    }
}
