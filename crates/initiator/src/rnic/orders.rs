//! Orders: what the device has to answer. They are carried out one after the other, behind the writes that were made before them.

use std::collections::VecDeque;

use etherslot_rdma::Event;

use super::device::Device;
use super::driver::Driver;

/// Writes that wait for the device at most, before nothing more is taken that writes.
pub(super) const MAX_WRITES: usize = 4096;

pub(super) mod register {
    pub(crate) const CONTROL: u32 = 0x008;
    pub(crate) const FENCE: u32 = 0x060;
    pub(crate) const QP_COMMAND: u32 = 0x064;
    pub(crate) const EVENTS: u32 = 0x070;
    pub(crate) const EVENT: u32 = 0x078;
}

/// The BAR of the registers.
pub const REGISTERS: u8 = 0;
/// That of the QPs' pages.
pub const PAGES: u8 = 2;
/// That of the tables.
pub const TABLES: u8 = 4;

const BUSY: u64 = 1 << 31;
const REFUSED: u64 = 1 << 30;
const FENCE_DONE: u64 = 0xFFFF_FFFF;

/// Names an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(super) u64);

/// The end of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Which one.
    pub ticket: Ticket,
    /// Whether it was done; otherwise the device refused it.
    pub done: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// `QP_COMMAND`; whether it is the last of its ticket, and whether the QP is no more behind it.
    Go { place: u16, state: u8, is_last: bool, removes: bool },
    /// FENCE for an STag that was removed; whether its index is free behind it.
    Fence { index: u32 },
    /// Takes events until there is none.
    Events,
}

/// A write that waits for the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    bar: u8,
    offset: u32,
    bytes: u8,
    data: [u8; 64],
}

/// The orders, and the writes before them.
#[derive(Debug, Default)]
pub(super) struct Orders {
    /// Each with its ticket, and how many writes are to be made before it.
    waiting: VecDeque<(Order, Ticket, u64)>,
    writes: VecDeque<Write>,
    /// Writes so far: put in, and made.
    put: u64,
    made: u64,
    /// The first order has begun; a register was asked for.
    has_begun: bool,
    has_asked: bool,
    /// An earlier part of the order under way was refused: the rest is not done.
    refused: Option<Ticket>,
    next: u64,
    pub(super) outcomes: VecDeque<Outcome>,
}

impl Orders {
    pub(super) fn clear(&mut self) {
        *self = Self { next: self.next, outcomes: std::mem::take(&mut self.outcomes), ..Self::default() };
    }

    pub(super) fn has_room(&self) -> bool {
        self.writes.len() < MAX_WRITES
    }

    pub(super) fn write(&mut self, bar: u8, offset: u32, bytes: &[u8]) {
        let mut data = [0; 64];
        data[..bytes.len()].copy_from_slice(bytes);
        self.writes.push_back(Write { bar, offset, bytes: bytes.len() as u8, data });
        self.put += 1;
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.next += 1;
        Ticket(self.next)
    }

    pub(super) fn push(&mut self, order: Order, ticket: Ticket) {
        self.waiting.push_back((order, ticket, self.put));
    }

    /// Makes the writes that the device has room for. True if it made any.
    pub(super) fn make_writes<D: Device>(&mut self, device: &mut D) -> bool {
        let before = self.made;
        while let Some(write) = self.writes.front() {
            if !device.write(write.bar, write.offset, &write.data[..usize::from(write.bytes)]) {
                break;
            }
            self.writes.pop_front();
            self.made += 1;
        }
        self.made != before
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.writes.is_empty()
    }
}

impl Driver {
    /// Goes on with the first order. True if something was done.
    pub(super) fn carry_out<D: Device>(&mut self, device: &mut D) -> bool {
        let Some(&(order, ticket, behind)) = self.orders.waiting.front() else { return false };
        if !self.orders.has_begun {
            if self.orders.made < behind {
                return false;
            }
            if self.orders.refused == Some(ticket) {
                self.end(order, ticket, false);
                return true;
            }
            let (offset, value) = match order {
                Order::Go { place, state, .. } => {
                    (register::QP_COMMAND, u32::from(state) << 16 | u32::from(place))
                }
                Order::Fence { index } => (register::FENCE, index),
                Order::Events => (register::EVENTS, 1),
            };
            if !device.write(REGISTERS, offset, &value.to_le_bytes()) {
                return false;
            }
            self.orders.has_begun = true;
        }
        if !self.orders.has_asked {
            let (offset, bytes) = match order {
                Order::Go { .. } => (register::QP_COMMAND, 4),
                Order::Fence { .. } => (register::FENCE, 4),
                Order::Events => (register::EVENT, 8),
            };
            self.orders.has_asked = device.ask(REGISTERS, offset, bytes);
            return self.orders.has_asked;
        }
        let Some(answer) = device.answer() else { return false };
        self.orders.has_asked = false;
        match order {
            // All ones is a device that is gone: that will be told.
            Order::Go { .. } if answer & BUSY != 0 => {}
            Order::Go { .. } => self.end(order, ticket, answer & REFUSED == 0),
            Order::Fence { .. } if answer != FENCE_DONE => {}
            Order::Fence { .. } => self.end(order, ticket, true),
            Order::Events => match Event::parse(answer) {
                Some(event) if self.events.len() < MAX_WRITES => self.events.push_back(event),
                _ => self.end(order, ticket, true),
            },
        }
        true
    }

    fn end(&mut self, order: Order, ticket: Ticket, done: bool) {
        self.orders.waiting.pop_front();
        self.orders.has_begun = false;
        let is_last = match order {
            Order::Go { place, removes, is_last, .. } => {
                if removes && done {
                    self.free_pair(place);
                }
                is_last
            }
            Order::Fence { index } => {
                self.free_stag(index);
                true
            }
            Order::Events => return,
        };
        if is_last {
            self.orders.refused = None;
            self.orders.outcomes.push_back(Outcome { ticket, done });
        } else if !done {
            self.orders.refused = Some(ticket);
        }
    }
}
