//! The machine that a driver runs on: a slot of a host node, and the memory that its device reaches.

use std::fmt;

use etherslot_node::{Accepted, Device, Guest, HostNode, Interrupt, Interrupts, Refused, SlotConfig};
use etherslot_pci::enumerate::Layout;
use etherslot_session::Config as SessionConfig;

use crate::arena::Arena;

/// The longest answer that is kept.
const ANSWER_BYTES: usize = 256;

/// An access to the device that has an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    ConfigWrite {
        offset: u16,
        value: u32,
    },
    BarRead {
        bar: u8,
        offset: u32,
        bytes: u16,
    },
    /// Hot Reset.
    Reset,
}

/// A host node and what its devices reach: for each slot memory of its own, and for all of them the stage.
#[derive(Debug)]
pub(crate) struct Host<A> {
    node: HostNode<A>,
    inside: Inside,
}

/// What the node calls back.
#[derive(Debug)]
struct Inside {
    places: Vec<Place>,
    /// Memory of ours that all devices reach, at [`STAGE`].
    stage: Option<Arena>,
}

/// What belongs to a slot.
#[derive(Debug)]
pub(crate) struct Place {
    arena: Arena,
    device: Option<Device>,
    lives: u64,
    asked: u64,
    /// Number and bytes of the answer that has come.
    answer: Option<(u64, usize)>,
    data: [u8; ANSWER_BYTES],
    messages: u64,
}

/// The address by which devices know the stage.
pub(crate) const STAGE: u64 = 1 << 45;

impl Inside {
    /// What a device means by `address`, if that is on the stage.
    #[inline]
    fn stage(&mut self, address: u64) -> Option<(&mut Arena, u64)> {
        let offset = address.checked_sub(STAGE)?;
        Some((self.stage.as_mut()?, Arena::address(usize::try_from(offset).ok()?)))
    }
}

impl Guest for Inside {
    #[inline]
    fn read(&mut self, slot: usize, address: u64, data: &mut [u8]) -> bool {
        match self.stage(address) {
            Some((stage, address)) => stage.read(address, data),
            None => self.places[slot].arena.read(address, data),
        }
    }

    #[inline]
    fn write(&mut self, slot: usize, address: u64, data: &[u8]) -> bool {
        match self.stage(address) {
            Some((stage, address)) => stage.write(address, data),
            None => self.places[slot].arena.write(address, data),
        }
    }

    fn interrupt(&mut self, slot: usize, interrupt: Interrupt) {
        self.places[slot].messages |= match interrupt {
            Interrupt::Message(vector) => 1 << (vector % 64),
            // No driver here uses INTx.
            Interrupt::IntX(_) => 0,
        };
    }

    fn completed(&mut self, slot: usize, access: u64, data: &[u8]) {
        let place = &mut self.places[slot];
        let bytes = data.len().min(ANSWER_BYTES);
        place.data[..bytes].copy_from_slice(&data[..bytes]);
        place.answer = Some((access, bytes));
    }

    fn attached(&mut self, slot: usize, device: &Device) {
        self.places[slot].device = Some(*device);
        self.places[slot].lives += 1;
    }

    fn lost(&mut self, slot: usize) {
        self.places[slot].device = None;
        self.places[slot].lives += 1;
    }
}

impl Place {
    pub(crate) fn new(arena: Arena) -> Self {
        let data = [0; ANSWER_BYTES];
        Self { arena, device: None, lives: 0, asked: 0, answer: None, data, messages: 0 }
    }

    #[inline]
    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    #[inline]
    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        &mut self.arena
    }

    /// The device, while it is there.
    pub(crate) fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// How often it came and went.
    pub(crate) fn lives(&self) -> u64 {
        self.lives
    }

    /// The vectors whose messages have come since the last call, as bits; those above 63 share bits with others.
    pub(crate) fn take_messages(&mut self) -> u64 {
        std::mem::take(&mut self.messages)
    }
}

impl<A: Copy + Eq + fmt::Display> Host<A> {
    /// With a place for each slot.
    pub(crate) fn new(config: SessionConfig, seed: u64, slots: Vec<(SlotConfig<A>, Place)>) -> Self {
        let (slots, places): (Vec<_>, Vec<_>) = slots.into_iter().unzip();
        Self { node: HostNode::new(config, seed, &slots), inside: Inside { places, stage: None } }
    }

    /// Gives all devices memory of ours at [`STAGE`].
    pub(crate) fn set_stage(&mut self, stage: Arena) {
        self.inside.stage = Some(stage);
    }

    /// That memory.
    pub(crate) fn stage_mut(&mut self) -> Option<&mut Arena> {
        self.inside.stage.as_mut()
    }

    pub(crate) fn node(&self) -> &HostNode<A> {
        &self.node
    }

    pub(crate) fn node_mut(&mut self) -> &mut HostNode<A> {
        &mut self.node
    }

    #[inline]
    pub(crate) fn place(&self, slot: usize) -> &Place {
        &self.inside.places[slot]
    }

    #[inline]
    pub(crate) fn place_mut(&mut self, slot: usize) -> &mut Place {
        &mut self.inside.places[slot]
    }

    /// The machine that the driver of a slot runs on.
    #[inline]
    pub(crate) fn machine(&mut self, slot: usize) -> Machine<'_, A> {
        Machine { node: &mut self.node, place: &mut self.inside.places[slot], slot }
    }

    #[inline]
    pub(crate) fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        self.node.receive(now_ns, from, frame, &mut self.inside);
    }

    #[inline]
    pub(crate) fn poll(&mut self, now_ns: u64) -> bool {
        self.node.poll(now_ns, &mut self.inside)
    }

    #[inline]
    pub(crate) fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        self.node.transmit(now_ns, send)
    }
}

/// One slot, its device, and the memory.
#[derive(Debug)]
pub(crate) struct Machine<'a, A> {
    node: &'a mut HostNode<A>,
    place: &'a mut Place,
    slot: usize,
}

impl<A: Copy + Eq + fmt::Display> Machine<'_, A> {
    pub(crate) fn arena(&self) -> &Arena {
        self.place.arena()
    }

    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        self.place.arena_mut()
    }

    /// The number of the slot.
    pub(crate) fn slot(&self) -> usize {
        self.slot
    }

    /// The device, while it is there.
    pub(crate) fn device(&self) -> Option<&Device> {
        self.place.device()
    }

    /// What its configuration space tells.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.node.layout(self.slot).filter(|_| self.place.device.is_some())
    }

    /// How often it came and went.
    pub(crate) fn lives(&self) -> u64 {
        self.place.lives()
    }

    pub(crate) fn set_interrupts(&mut self, interrupts: Interrupts) {
        self.node.set_interrupts(self.slot, interrupts);
    }

    /// Begins an access; [`Machine::answer`] has its outcome. The one before is forgotten. False if it can't be begun now.
    pub(crate) fn ask(&mut self, now_ns: u64, access: Access) -> bool {
        self.place.asked += 1;
        self.place.answer = None;
        let (id, slot, node) = (self.place.asked, self.slot, &mut *self.node);
        let (outcome, bytes) = match access {
            Access::ConfigWrite { offset, value } => {
                (node.config_write(now_ns, slot, id, u64::from(offset), &value.to_le_bytes()), 0)
            }
            Access::BarRead { bar, offset, bytes } => (
                node.bar_read(now_ns, slot, id, usize::from(bar), u64::from(offset), usize::from(bytes)),
                bytes,
            ),
            Access::Reset => (node.reset(now_ns, slot, Some(id)), 0),
        };
        match outcome {
            Ok(Accepted::Later) => true,
            // Out of range is what a device has that lied about its size: there is nothing.
            Ok(Accepted::AllOnes) | Err(Refused::Range) => {
                self.place.data.fill(0xFF);
                self.place.answer = Some((id, usize::from(bytes).min(ANSWER_BYTES)));
                true
            }
            Err(Refused::Busy) => false,
        }
    }

    /// The answer to what was asked last: a read's data, all ones if there was none.
    pub(crate) fn answer(&self) -> Option<&[u8]> {
        let (id, bytes) = self.place.answer?;
        (id == self.place.asked).then(|| &self.place.data[..bytes])
    }

    /// A posted write of up to 4096 bytes that crosses no boundary of as much. False if there is no room now.
    #[inline]
    pub(crate) fn bar_write(&mut self, bar: u8, offset: u32, data: &[u8]) -> bool {
        self.node.has_room(self.slot)
            && self.node.bar_write(
                self.slot,
                usize::from(bar),
                u64::from(offset),
                data,
                &mut |address, data| self.place.arena.read(address, data),
            ) != Err(Refused::Busy)
    }

    /// The same from memory of ours.
    pub(crate) fn bar_write_from(&mut self, bar: u8, offset: u32, from: usize, bytes: usize) -> bool {
        self.node.has_room(self.slot)
            && self.node.bar_write(
                self.slot,
                usize::from(bar),
                u64::from(offset),
                self.place.arena.at(from, bytes),
                &mut |address, data| self.place.arena.read(address, data),
            ) != Err(Refused::Busy)
    }
}
