//! A descriptor ring: its registers, and the way of its descriptors from memory into the controller (82576 datasheet, 7.1.4, 7.2.2).
//!
//! Descriptors are taken in up to a bound, in order: those that came along with the doorbell, the others by a read, one at a time.
//! What a read brings after its ring was disabled is known by its generation, and forgotten.

use super::bits::{DESCRIPTOR_BYTES, xdctl};
use etherslot_pci::function::{Bus, Entry, Fault};
use etherslot_wire::ahead::{Follow, Rule};
use std::collections::VecDeque;

/// Descriptors that are held at most.
const HELD: usize = 128;
/// Descriptors that are read at once.
const FETCH: usize = 64;

/// Offsets from the first register of a ring (8.10.5 to 8.10.8, 8.12.11 to 8.12.17).
mod offset {
    pub(super) const BASE_LOW: u32 = 0x00;
    pub(super) const BASE_HIGH: u32 = 0x04;
    pub(super) const LENGTH: u32 = 0x08;
    pub(super) const SRRCTL: u32 = 0x0c;
    pub(super) const HEAD: u32 = 0x10;
    pub(super) const DCA: u32 = 0x14;
    pub(super) const TAIL: u32 = 0x18;
    pub(super) const CONTROL: u32 = 0x28;
    pub(super) const RQDPC: u32 = 0x30;
    pub(super) const WRITE_BACK_LOW: u32 = 0x38;
    pub(super) const WRITE_BACK_HIGH: u32 = 0x3c;
}

/// A descriptor in the controller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) bytes: [u8; DESCRIPTOR_BYTES],
    /// Its place in the ring.
    pub(crate) index: u32,
    /// It came along with the doorbell, so its data may have, too.
    pub(crate) came_along: bool,
}

impl Descriptor {
    pub(crate) fn dword(&self, at: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.bytes[4 * at + byte]))
    }

    pub(crate) fn address(&self) -> u64 {
        u64::from(self.dword(0)) | u64::from(self.dword(1)) << 32
    }
}

/// The read of descriptors that is under way.
#[derive(Debug)]
struct Fetch {
    first: u32,
    wanted: usize,
    asked: usize,
    arrived: usize,
    bytes: [u8; FETCH * DESCRIPTOR_BYTES],
}

/// What a write to a ring's registers asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// The ring was enabled or disabled: what is under way for it is over.
    Switched,
}

/// A ring.
#[derive(Debug)]
pub(crate) struct Ring {
    base: u64,
    /// RDLEN, TDLEN.
    length: u32,
    pub(crate) srrctl: u32,
    dca: u32,
    head: u32,
    tail: u32,
    control: u32,
    pub(crate) write_back: u64,
    /// RQDPC: frames dropped for want of descriptors.
    pub(crate) dropped: u32,
    initial_control: u32,
    /// What the driver writes the tail to.
    doorbell: u32,
    /// The next descriptor to be taken in.
    next: u32,
    held: VecDeque<Descriptor>,
    fetch: Box<Fetch>,
    /// Lives of the ring, so that what was read for an earlier one is known.
    pub(crate) generation: u32,
    /// The rule of read-ahead has to be told anew, or withdrawn.
    pub(crate) rule_changed: bool,
    /// Something of the ring could not be read: it stands still until it is enabled anew.
    pub(crate) faulty: bool,
}

impl Ring {
    /// A ring, disabled unless it is enabled from the start (8.10.8, 8.12.15).
    pub(crate) fn new(is_enabled: bool) -> Self {
        let mut ring = Self {
            base: 0,
            length: 0,
            srrctl: 0,
            dca: 0,
            head: 0,
            tail: 0,
            control: 0,
            write_back: 0,
            dropped: 0,
            initial_control: 0x0001_0000 | if is_enabled { xdctl::ENABLE } else { 0 },
            doorbell: 0,
            next: 0,
            held: VecDeque::with_capacity(HELD),
            fetch: Box::new(Fetch {
                first: 0,
                wanted: 0,
                asked: 0,
                arrived: 0,
                bytes: [0; FETCH * DESCRIPTOR_BYTES],
            }),
            generation: 0,
            rule_changed: false,
            faulty: false,
        };
        ring.reset();
        ring
    }

    /// Back to the start. All rules of read-ahead have ended, or end by being told.
    pub(crate) fn reset(&mut self) {
        (self.base, self.length, self.head, self.tail, self.write_back) = (0, 0, 0, 0, 0);
        (self.srrctl, self.dca, self.dropped) = (0x400, 0, 0);
        self.control = self.initial_control;
        self.restart();
    }

    /// What was taken in is forgotten; the next descriptor is the one at the head.
    fn restart(&mut self) {
        self.held.clear();
        (self.fetch.wanted, self.fetch.asked, self.fetch.arrived) = (0, 0, 0);
        self.next = self.head;
        self.generation = self.generation.wrapping_add(1);
        self.rule_changed = true;
        self.faulty = false;
    }

    pub(crate) fn entries(&self) -> u32 {
        self.length / DESCRIPTOR_BYTES as u32
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.control & xdctl::ENABLE != 0
    }

    /// Whether it can be worked on: enabled, of a length, with its head inside.
    pub(crate) fn is_usable(&self) -> bool {
        self.is_enabled() && !self.faulty && self.head < self.entries()
    }

    pub(crate) fn read(&mut self, offset: u32) -> u32 {
        match offset {
            offset::BASE_LOW => self.base as u32,
            offset::BASE_HIGH => (self.base >> 32) as u32,
            offset::LENGTH => self.length,
            offset::SRRCTL => self.srrctl,
            offset::HEAD => self.head,
            offset::DCA => self.dca,
            offset::TAIL => self.tail,
            offset::CONTROL => self.control,
            offset::RQDPC => std::mem::take(&mut self.dropped),
            offset::WRITE_BACK_LOW => self.write_back as u32,
            offset::WRITE_BACK_HIGH => (self.write_back >> 32) as u32,
            _ => 0,
        }
    }

    /// Writes the register `offset` bytes behind the ring's first one, which is at `first` for who writes: the first four rings have two
    /// places (8.1.3).
    pub(crate) fn write(&mut self, first: u32, offset: u32, value: u32) -> Effect {
        let low = |old: u64, value: u32| old & !0xffff_ffff | u64::from(value);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            offset::BASE_LOW => self.base = low(self.base, value & !0x7f),
            offset::BASE_HIGH => self.base = high(self.base),
            offset::LENGTH => self.length = value & 0x000f_fff0,
            offset::SRRCTL => self.srrctl = value & 0x8f00_0f7f | value & 0x41f0_0000,
            offset::HEAD if !self.is_enabled() => {
                self.head = value & 0xffff;
                self.next = self.head;
            }
            offset::DCA => self.dca = value,
            offset::TAIL => self.set_tail(value & 0xffff),
            offset::CONTROL => {
                let was_enabled = self.is_enabled();
                self.control = value & !xdctl::SWFLUSH;
                self.doorbell = first + offset::TAIL;
                if was_enabled != self.is_enabled() {
                    self.restart();
                    return Effect::Switched;
                }
            }
            offset::WRITE_BACK_LOW => self.write_back = low(self.write_back, value),
            offset::WRITE_BACK_HIGH => self.write_back = high(self.write_back),
            _ => {}
        }
        Effect::None
    }

    /// A tail that is not in the ring hands nothing over, and what the host may have sent along with it is none.
    fn set_tail(&mut self, tail: u32) {
        self.tail = tail;
        if self.is_enabled() && tail >= self.entries() {
            self.rule_changed = true;
        }
    }

    /// The rule of read-ahead for the ring as it is; none if it is not in use.
    pub(crate) fn rule(&self, number: u8, follows: &[Follow]) -> Option<Rule> {
        if !self.is_usable() || self.entries() < 2 || self.doorbell == 0 {
            return None;
        }
        let mut rule =
            Rule::new(number, 0, self.doorbell, self.base, DESCRIPTOR_BYTES as u16, self.entries());
        for follow in follows {
            rule.follow(*follow);
        }
        rule.is_valid().then_some(rule)
    }

    /// Descriptors that were handed over and not taken in, up to the ring's end.
    fn run(&self) -> usize {
        let entries = self.entries();
        if self.tail >= entries || self.next >= entries {
            return 0;
        }
        (if self.tail >= self.next { self.tail - self.next } else { entries - self.next }) as usize
    }

    /// Takes in what was handed over, as far as there is room. True if something was done.
    pub(crate) fn fetch(&mut self, bus: &mut dyn Bus, rule: u8, token: u64, outstanding: &mut usize) -> bool {
        let mut any = false;
        while self.is_usable() {
            if self.fetch.wanted == 0 {
                let count = self.run().min(FETCH).min(HELD - self.held.len());
                if count == 0 {
                    break;
                }
                let bytes = &mut self.fetch.bytes[..count * DESCRIPTOR_BYTES];
                let came = bus.take_entries(Entry { rule, index: self.next }, bytes);
                if came > 0 {
                    self.hold(self.next, came / DESCRIPTOR_BYTES, true);
                    any = true;
                    continue;
                }
                let wanted = count * DESCRIPTOR_BYTES;
                (self.fetch.first, self.fetch.wanted) = (self.next, wanted);
                (self.fetch.asked, self.fetch.arrived) = (0, 0);
            }
            let Fetch { first, wanted, asked, .. } = *self.fetch;
            if asked == wanted {
                break;
            }
            let address = self.address(first).wrapping_add(asked as u64);
            let granted = bus.read(address, wanted - asked, token);
            self.fetch.asked += granted;
            *outstanding += granted;
            any |= granted > 0;
            if granted < wanted - asked {
                break;
            }
        }
        any
    }

    /// Part of a read of descriptors has ended. False if they can't be had.
    pub(crate) fn fetched(&mut self, address: u64, bytes: usize, result: Result<&[u8], Fault>) -> bool {
        let offset = address.wrapping_sub(self.address(self.fetch.first));
        let place = usize::try_from(offset).ok().filter(|&at| at.saturating_add(bytes) <= self.fetch.asked);
        match (result, place) {
            (Ok(data), Some(at)) if data.len() == bytes => {
                self.fetch.bytes[at..at + bytes].copy_from_slice(data);
            }
            _ => {
                self.faulty = true;
                return false;
            }
        }
        self.fetch.arrived += bytes;
        if self.fetch.arrived >= self.fetch.wanted {
            self.hold(self.fetch.first, self.fetch.wanted / DESCRIPTOR_BYTES, false);
            (self.fetch.wanted, self.fetch.asked, self.fetch.arrived) = (0, 0, 0);
        }
        true
    }

    /// The first `count` descriptors of the window are there.
    fn hold(&mut self, first: u32, count: usize, came_along: bool) {
        for (index, bytes) in (first..).zip(self.fetch.bytes.chunks_exact(DESCRIPTOR_BYTES)).take(count) {
            let bytes = bytes.try_into().expect("16 bytes");
            self.held.push_back(Descriptor { bytes, index, came_along });
        }
        self.next = self.behind(first, count as u32);
    }

    fn behind(&self, index: u32, count: u32) -> u32 {
        let next = index + count;
        if next >= self.entries() { 0 } else { next }
    }

    /// Where descriptor `index` is in memory.
    pub(crate) fn address(&self, index: u32) -> u64 {
        self.base.wrapping_add(u64::from(index) * DESCRIPTOR_BYTES as u64)
    }

    /// The first descriptor that is here.
    pub(crate) fn first(&self) -> Option<Descriptor> {
        self.held.front().copied()
    }

    /// Takes the first descriptor that is here; the head stays where it is.
    pub(crate) fn take(&mut self) -> Option<Descriptor> {
        self.held.pop_front()
    }

    /// The descriptor `index` is done with.
    pub(crate) fn complete(&mut self, index: u32) {
        self.head = self.behind(index, 1);
    }

    /// Whether more descriptors were handed over than are here, so that some will come.
    pub(crate) fn has_more(&self) -> bool {
        self.is_usable() && (self.run() > 0 || self.fetch.wanted > 0)
    }
}
