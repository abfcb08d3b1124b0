//! The transmit side (82576 datasheet, 7.2): descriptors, their data, and the frames that are made of them.
//!
//! Each ring has a stage: data are asked for in the order of the descriptors, as far ahead as there is room, come in any order, and are consumed in
//! order. So many reads are under way at once, a frame or a segmented transfer of any length needs bounded memory, and what a driver
//! describes in any number of pieces comes out the same.

mod descriptor;
mod framer;

use super::bits::register;
use super::interrupts::Interrupts;
use super::registers::Registers;
use super::ring::{Descriptor, Ring};
use super::statistics::Statistics;
use crate::cable::{End, Frame};
use descriptor::Kind;
use etherslot_pci::function::{Bus, Entry, Fault};
use etherslot_wire::ahead::{Condition, Follow};
use framer::{Fed, Framer};
use std::collections::VecDeque;

/// Bytes of a ring's stage: more than the longest descriptor's.
const STAGE_BYTES: usize = 128 << 10;
/// Descriptors whose data are in the stage, at most.
const PIECES: usize = 128;
/// Data of descriptors up to this length come with the doorbell.
const DATA_BYTES: u32 = 16 << 10;
/// Frames that one ring may send before the next has its turn.
const TURN_FRAMES: usize = 16;

/// The data of advanced data descriptors, and of legacy ones, are sent along with the doorbell (7.2.2.1, 7.2.2.3).
pub(crate) const FOLLOWS: [Follow; 2] = [follow(0x20f0_0000, 0x2030_0000), follow(0x2000_0000, 0)];

const fn follow(mask: u32, value: u32) -> Follow {
    Follow {
        flags: Follow::DATA,
        when: [Condition { offset: 8, mask, value }, Condition { offset: 0, mask: 0, value: 0 }],
        conditions: 1,
        first: 0,
        second: 0,
        length: 8,
        mask: 0xffff,
        bias: 0,
        shift: 0,
        max_bytes: DATA_BYTES,
    }
}

/// What transmission needs of the rest of the controller.
pub(crate) struct Outside<'a> {
    pub(crate) registers: &'a Registers,
    pub(crate) statistics: &'a mut Statistics,
    pub(crate) interrupts: &'a mut Interrupts,
    pub(crate) cable: &'a End,
    /// Frames go back to the receiver instead.
    pub(crate) looped: Option<&'a mut VecDeque<Frame>>,
    pub(crate) has_link: bool,
}

/// A descriptor whose data are on their way.
#[derive(Clone, Copy, Debug)]
struct Piece {
    descriptor: Descriptor,
    kind: Kind,
    address: u64,
    /// Where its data are in the stage, counted on without end.
    at: u64,
    bytes: usize,
    asked: usize,
    arrived: usize,
    consumed: usize,
}

/// A transmit ring, and all that is under way for it.
#[derive(Debug)]
pub(crate) struct TransmitQueue {
    pub(crate) ring: Ring,
    pieces: VecDeque<Piece>,
    /// The number of the first piece, which tells its reads apart.
    first_piece: u16,
    stage: Box<[u8]>,
    stage_end: u64,
    stage_used: usize,
    /// Pieces all of whose bytes have been asked for, from the first on.
    asked_pieces: usize,
    framer: Framer,
}

impl TransmitQueue {
    pub(crate) fn new() -> Self {
        Self {
            ring: Ring::new(false),
            pieces: VecDeque::with_capacity(PIECES),
            first_piece: 0,
            stage: vec![0; STAGE_BYTES].into_boxed_slice(),
            stage_end: 0,
            stage_used: 0,
            asked_pieces: 0,
            framer: Framer::new(),
        }
    }

    pub(crate) fn reset(&mut self, cable: &End) {
        self.ring.reset();
        self.stop(cable);
    }

    /// Forgets what is under way; the contexts stay.
    pub(crate) fn stop(&mut self, cable: &End) {
        self.first_piece = self.first_piece.wrapping_add(self.pieces.len() as u16);
        self.pieces.clear();
        (self.stage_used, self.asked_pieces) = (0, 0);
        self.framer.stop(cable);
    }

    /// Whether there is nothing to do until the next doorbell.
    pub(crate) fn is_idle(&self) -> bool {
        self.pieces.is_empty() && !self.ring.has_more() && self.ring.first().is_none()
            || !self.ring.is_usable()
    }

    /// Goes on as far as bus and cable have room. `token` makes the token of a read of this ring: of descriptors, or of a piece's data.
    pub(crate) fn run(
        &mut self,
        queue: usize,
        bus: &mut dyn Bus,
        token: impl Fn(Option<u16>) -> u64,
        outside: &mut Outside<'_>,
        outstanding: &mut usize,
    ) -> bool {
        let mut any = false;
        for _ in 0..TURN_FRAMES {
            if !self.ring.is_usable() {
                break;
            }
            let mut progress = self.ring.fetch(bus, queue as u8, token(None), outstanding);
            progress |= self.admit(queue, bus);
            progress |= self.ask(bus, &token, outstanding);
            progress |= self.consume(queue, bus, outside);
            any |= progress;
            if !progress {
                break;
            }
        }
        any
    }

    /// Gives descriptors their room in the stage.
    fn admit(&mut self, queue: usize, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while self.pieces.len() < PIECES
            && let Some(descriptor) = self.ring.first()
        {
            let (kind, bytes) = descriptor::parse(&descriptor);
            if bytes > STAGE_BYTES - self.stage_used {
                break;
            }
            self.ring.take();
            let address = descriptor.address();
            let mut piece = Piece {
                descriptor,
                kind,
                address,
                at: self.stage_end,
                bytes,
                asked: 0,
                arrived: 0,
                consumed: 0,
            };
            self.stage_end += bytes as u64;
            self.stage_used += bytes;
            if descriptor.came_along {
                self.take_along(queue, &mut piece, bus);
            }
            self.pieces.push_back(piece);
            any = true;
        }
        any
    }

    /// Data that came along with the doorbell.
    fn take_along(&mut self, queue: usize, piece: &mut Piece, bus: &mut dyn Bus) {
        let entry = Entry { rule: queue as u8, index: piece.descriptor.index };
        while piece.arrived < piece.bytes {
            let address = piece.address.wrapping_add(piece.arrived as u64);
            let start = ((piece.at + piece.arrived as u64) % STAGE_BYTES as u64) as usize;
            let end = (start + piece.bytes - piece.arrived).min(STAGE_BYTES);
            let stage = &mut self.stage;
            let came = bus.take_for(entry, address, end - start, &mut |data| {
                stage[start..start + data.len()].copy_from_slice(data);
            });
            if came == 0 {
                break;
            }
            piece.arrived += came;
            piece.asked += came;
        }
    }

    /// Asks for data, in order.
    fn ask(
        &mut self,
        bus: &mut dyn Bus,
        token: &impl Fn(Option<u16>) -> u64,
        outstanding: &mut usize,
    ) -> bool {
        let mut any = false;
        while let Some(piece) = self.pieces.get_mut(self.asked_pieces) {
            if piece.asked < piece.bytes {
                let number = self.first_piece.wrapping_add(self.asked_pieces as u16);
                let address = piece.address.wrapping_add(piece.asked as u64);
                let granted = bus.read(address, piece.bytes - piece.asked, token(Some(number)));
                piece.asked += granted;
                *outstanding += granted;
                any |= granted > 0;
                if piece.asked < piece.bytes {
                    break;
                }
            }
            self.asked_pieces += 1;
        }
        any
    }

    /// Part of a read of a piece's data has ended. False if they can't be had.
    pub(crate) fn arrived(
        &mut self,
        number: u16,
        address: u64,
        bytes: usize,
        result: Result<&[u8], Fault>,
    ) -> bool {
        let piece = self.pieces.get_mut(usize::from(number.wrapping_sub(self.first_piece)));
        let (Some(piece), Ok(data)) = (piece, result) else {
            self.ring.faulty = true;
            return false;
        };
        let offset = address.wrapping_sub(piece.address);
        if offset.saturating_add(bytes as u64) > piece.bytes as u64 || data.len() != bytes {
            self.ring.faulty = true;
            return false;
        }
        let start = ((piece.at + offset) % STAGE_BYTES as u64) as usize;
        let (now, rest) = data.split_at(bytes.min(STAGE_BYTES - start));
        self.stage[start..start + now.len()].copy_from_slice(now);
        self.stage[..rest.len()].copy_from_slice(rest);
        piece.arrived += bytes;
        true
    }

    /// Makes frames of what is there.
    fn consume(&mut self, queue: usize, bus: &mut dyn Bus, outside: &mut Outside<'_>) -> bool {
        let mut any = false;
        while let Some(piece) = self.pieces.front_mut() {
            if piece.arrived < piece.bytes {
                break;
            }
            let is_done = loop {
                let start = ((piece.at + piece.consumed as u64) % STAGE_BYTES as u64) as usize;
                let end = (start + piece.bytes - piece.consumed).min(STAGE_BYTES);
                let is_last = piece.consumed + (end - start) == piece.bytes;
                match self.framer.feed(&piece.kind, &self.stage[start..end], is_last, outside) {
                    Fed::All if is_last => break true,
                    Fed::All => piece.consumed = piece.consumed + end - start,
                    Fed::Part(bytes) => {
                        any |= bytes > 0;
                        piece.consumed += bytes;
                        break false;
                    }
                }
            };
            if !is_done {
                break;
            }
            piece.consumed = piece.bytes;
            if !write_back(&mut self.ring, piece, bus) {
                // It is fed no byte a second time; its end is.
                self.framer.held = true;
                break;
            }
            self.framer.held = false;
            if piece.kind.reports() {
                outside.interrupts.transmitted(queue);
            }
            self.stage_used -= piece.bytes;
            self.pieces.pop_front();
            self.first_piece = self.first_piece.wrapping_add(1);
            self.asked_pieces = self.asked_pieces.saturating_sub(1);
            any = true;
        }
        any
    }
}

/// Tells the driver that a descriptor is done, if it wants to know: in the descriptor, or by the head (7.2.3). False if there is no room.
fn write_back(ring: &mut Ring, piece: &Piece, bus: &mut dyn Bus) -> bool {
    let index = piece.descriptor.index;
    let next = if index + 1 >= ring.entries() { 0 } else { index + 1 };
    if piece.kind.reports() {
        let sent = if ring.write_back & 1 != 0 {
            bus.write(ring.write_back & !3, &next.to_le_bytes())
        } else {
            let done = piece.descriptor.dword(3) | 1;
            bus.write(ring.address(index).wrapping_add(12), &done.to_le_bytes())
        };
        if sent == 0 {
            return false;
        }
    }
    ring.complete(index);
    true
}

/// VET (8.2.7): the EtherType of the tags that are put in and taken out.
pub(crate) fn vlan_ether_type(registers: &Registers) -> u16 {
    registers.get(register::VET) as u16
}
