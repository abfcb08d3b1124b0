//! The machine that a driver runs on: one slot of a host node, and the memory that its device reaches.

use std::fmt;

use etherslot_node::{Accepted, Device, Guest, HostNode, Interrupt, Interrupts, Refused, SlotConfig};
use etherslot_pci::enumerate::Layout;
use etherslot_session::Config as SessionConfig;

use crate::arena::Arena;

/// The host node has this slot alone.
const SLOT: usize = 0;
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

/// One slot, its device, and the memory.
#[derive(Debug)]
pub(crate) struct Machine<A> {
    node: HostNode<A>,
    inside: Inside,
    asked: u64,
}

/// What the node calls back.
#[derive(Debug)]
struct Inside {
    arena: Arena,
    device: Option<Device>,
    lives: u64,
    /// Number and bytes of the answer that has come.
    answer: Option<(u64, usize)>,
    data: [u8; ANSWER_BYTES],
    messages: u64,
}

impl Guest for Inside {
    #[inline]
    fn read(&mut self, _slot: usize, address: u64, data: &mut [u8]) -> bool {
        self.arena.read(address, data)
    }

    #[inline]
    fn write(&mut self, _slot: usize, address: u64, data: &[u8]) -> bool {
        self.arena.write(address, data)
    }

    fn interrupt(&mut self, _slot: usize, interrupt: Interrupt) {
        self.messages |= match interrupt {
            Interrupt::Message(vector) => 1 << (vector % 64),
            // No driver here uses INTx.
            Interrupt::IntX(_) => 0,
        };
    }

    fn completed(&mut self, _slot: usize, access: u64, data: &[u8]) {
        let bytes = data.len().min(ANSWER_BYTES);
        self.data[..bytes].copy_from_slice(&data[..bytes]);
        self.answer = Some((access, bytes));
    }

    fn attached(&mut self, _slot: usize, device: &Device) {
        self.device = Some(*device);
        self.lives += 1;
    }

    fn lost(&mut self, _slot: usize) {
        self.device = None;
        self.lives += 1;
    }
}

impl<A: Copy + Eq + fmt::Display> Machine<A> {
    pub(crate) fn new(config: SessionConfig, seed: u64, slot: SlotConfig<A>, arena: Arena) -> Self {
        let inside =
            Inside { arena, device: None, lives: 0, answer: None, data: [0; ANSWER_BYTES], messages: 0 };
        Self { node: HostNode::new(config, seed, &[slot]), inside, asked: 0 }
    }

    pub(crate) fn node(&self) -> &HostNode<A> {
        &self.node
    }

    pub(crate) fn node_mut(&mut self) -> &mut HostNode<A> {
        &mut self.node
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

    pub(crate) fn arena(&self) -> &Arena {
        &self.inside.arena
    }

    pub(crate) fn arena_mut(&mut self) -> &mut Arena {
        &mut self.inside.arena
    }

    /// The device, while it is there.
    pub(crate) fn device(&self) -> Option<&Device> {
        self.inside.device.as_ref()
    }

    /// What its configuration space tells.
    pub(crate) fn layout(&self) -> Option<&Layout> {
        self.node.layout(SLOT).filter(|_| self.inside.device.is_some())
    }

    /// How often it came and went.
    pub(crate) fn lives(&self) -> u64 {
        self.inside.lives
    }

    /// The vectors whose messages have come since the last call, as bits; those above 63 share bits with others.
    pub(crate) fn take_messages(&mut self) -> u64 {
        std::mem::take(&mut self.inside.messages)
    }

    pub(crate) fn set_interrupts(&mut self, interrupts: Interrupts) {
        self.node.set_interrupts(SLOT, interrupts);
    }

    /// Begins an access; [`Machine::answer`] has its outcome. The one before is forgotten. False if it can't be begun now.
    pub(crate) fn ask(&mut self, now_ns: u64, access: Access) -> bool {
        self.asked += 1;
        self.inside.answer = None;
        let (id, node) = (self.asked, &mut self.node);
        let (outcome, bytes) = match access {
            Access::ConfigWrite { offset, value } => {
                (node.config_write(now_ns, SLOT, id, u64::from(offset), &value.to_le_bytes()), 0)
            }
            Access::BarRead { bar, offset, bytes } => (
                node.bar_read(now_ns, SLOT, id, usize::from(bar), u64::from(offset), usize::from(bytes)),
                bytes,
            ),
            Access::Reset => (node.reset(now_ns, SLOT, Some(id)), 0),
        };
        match outcome {
            Ok(Accepted::Later) => true,
            // Out of range is what a device has that lied about its size: there is nothing.
            Ok(Accepted::AllOnes) | Err(Refused::Range) => {
                self.inside.data.fill(0xFF);
                self.inside.answer = Some((id, usize::from(bytes).min(ANSWER_BYTES)));
                true
            }
            Err(Refused::Busy) => false,
        }
    }

    /// The answer to what was asked last: a read's data, all ones if there was none.
    pub(crate) fn answer(&self) -> Option<&[u8]> {
        let (id, bytes) = self.inside.answer?;
        (id == self.asked).then(|| &self.inside.data[..bytes])
    }

    /// A posted write of up to 4096 bytes that crosses no boundary of as much. False if there is no room now.
    #[inline]
    pub(crate) fn bar_write(&mut self, bar: u8, offset: u32, data: &[u8]) -> bool {
        self.node.has_room(SLOT)
            && self.node.bar_write(SLOT, usize::from(bar), u64::from(offset), data, &mut |address, data| {
                self.inside.arena.read(address, data)
            }) != Err(Refused::Busy)
    }

    /// The same from memory of ours.
    pub(crate) fn bar_write_from(&mut self, bar: u8, offset: u32, from: usize, bytes: usize) -> bool {
        self.node.has_room(SLOT)
            && self.node.bar_write(
                SLOT,
                usize::from(bar),
                u64::from(offset),
                self.inside.arena.at(from, bytes),
                &mut |address, data| self.inside.arena.read(address, data),
            ) != Err(Refused::Busy)
    }
}
