//! What a Function of ours reaches in other boxes, and what it has to say to its host after that has arrived there.

use std::collections::VecDeque;

use etherslot_wire::NodeId;
use etherslot_wire::boxes::Reach;
use etherslot_wire::tlp::Header;

/// TLPs to the host that wait until what is before them has arrived in other boxes.
const HELD: usize = 64;
/// The most data of one: completion entries, interrupts, answers to reads of registers.
const HELD_BYTES: usize = 64;

/// Addresses in another box.
#[derive(Clone, Copy, Debug)]
struct Window {
    number: u8,
    address: u64,
    bytes: u64,
    node: NodeId,
}

/// A TLP to the host.
pub(in crate::box_node) struct Held {
    header: Header,
    data: [u8; HELD_BYTES],
    bytes: u8,
    /// It is behind all that was handed over in this generation and before.
    pub(super) generation: u32,
}

impl Held {
    pub(super) fn tlp(&self) -> (&Header, &[u8]) {
        (&self.header, &self.data[..usize::from(self.bytes)])
    }
}

/// Of the Function in a slot.
#[derive(Default)]
pub(in crate::box_node) struct Outlook {
    /// The attachment, unlike any other of this box; 0 if the slot is empty.
    pub(super) life: u64,
    /// Its stream.
    pub(in crate::box_node) stream: u16,
    windows: Vec<Window>,
    pub(super) held: VecDeque<Held>,
    /// Of what is handed over now. The next one begins when something is held behind it.
    pub(super) generation: u32,
    /// Something was handed over that had not arrived when it was looked at last.
    pub(super) is_waiting: bool,
    /// Whether the host knows that all windows lead somewhere, as it was told.
    pub(super) told: Option<bool>,
    /// Since when a Request has found no way.
    pub(super) stuck_since_ns: Option<u64>,
    /// That was too long: there is no way.
    pub(super) has_no_way: bool,
    /// Posted Requests are lost.
    pub(super) has_lost: bool,
}

impl Outlook {
    pub(in crate::box_node) fn new(life: u64, stream: u16) -> Self {
        Self { life, stream, ..Self::default() }
    }

    /// Whether it is that of this attachment.
    pub(in crate::box_node) fn is(&self, life: u64) -> bool {
        self.life == life
    }

    /// What the host says of a window.
    pub(in crate::box_node) fn set(&mut self, reach: &Reach) {
        self.windows.retain(|window| window.number != reach.window);
        self.told = None;
        if let Some(behind) = &reach.behind {
            let (address, bytes, node) = (behind.address, behind.bytes, behind.node);
            self.windows.push(Window { number: reach.window, address, bytes, node });
        }
    }

    /// The box behind an address.
    pub(super) fn behind(&self, address: u64) -> Option<NodeId> {
        let is_in = |window: &&Window| {
            address.checked_sub(window.address).is_some_and(|offset| offset < window.bytes)
        };
        self.windows.iter().find(is_in).map(|window| window.node)
    }

    /// The boxes behind all windows, some more than once.
    pub(in crate::box_node) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.windows.iter().map(|window| window.node)
    }

    /// Whether anything of it leads to other boxes, or has to wait for them.
    pub(in crate::box_node) fn is_far(&self) -> bool {
        !self.windows.is_empty() || !self.held.is_empty() || self.is_waiting
    }

    /// Keeps a TLP to the host back. False if there is no room for it.
    pub(super) fn hold(&mut self, header: &Header, data: &[u8]) -> bool {
        let mut kept = [0; HELD_BYTES];
        let Some(place) = kept.get_mut(..data.len()).filter(|_| self.held.len() < HELD) else { return false };
        place.copy_from_slice(data);
        let (generation, bytes) = (self.generation, data.len() as u8);
        self.held.push_back(Held { header: *header, data: kept, bytes, generation });
        self.generation = generation.wrapping_add(1);
        true
    }

    /// The Function was reset: nothing of before follows.
    pub(in crate::box_node) fn reset(&mut self) {
        self.held.clear();
        self.unstick();
    }

    /// There is a way, or none is needed.
    pub(super) fn unstick(&mut self) {
        (self.stuck_since_ns, self.has_no_way) = (None, false);
    }

    /// When it is too long, if something waits for a way.
    pub(super) fn stuck_until_ns(&self, patience_ns: u64) -> Option<u64> {
        self.stuck_since_ns.filter(|_| !self.has_no_way).map(|since_ns| since_ns.saturating_add(patience_ns))
    }
}
