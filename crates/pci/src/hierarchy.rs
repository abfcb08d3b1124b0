//! The virtual switch of one session in the I/O box, with the Endpoints in its slots.
//!
//! An upstream port, an internal bus with a downstream port for each slot, one Endpoint below each. The host
//! programs the ports like those of any switch; until then nothing passes. Each slot has a stream of the
//! session of its own, and a TLP from a stream reaches no other slot's Endpoint. Between Endpoints, TLPs pass
//! directly: in a plain switch if the ports' windows lead there, and else among those of one *domain*, which share an
//! address space. What is in other boxes ([`far`]) is upstream as well: whoever owns the way there tells it from the host.
//!
//! The switch holds nothing but its own Completions: what enters it is delivered, sent or refused at once, so
//! it keeps every order that its streams have (2.4.1). Different streams are not ordered among each other: TLPs
//! of different Functions are treated as if each had the ID-Based Ordering attribute (2.2.6.4), and so are
//! those to the host and to a peer.

mod down;
pub mod far;
mod up;

use std::collections::VecDeque;

use etherslot_wire::FunctionId;
use etherslot_wire::ahead::Piece;
use etherslot_wire::tlp::Header;

use crate::TlpOut;
use crate::endpoint::{AheadCounters, Endpoint};
use crate::function::ResetKind;
use crate::switch::Port;
use up::Upward;

/// The bus that the downstream ports are on, once the host has numbered the buses as it should.
pub const INTERNAL_BUS: u8 = 2;
/// Completions of the ports that one stream can have waiting: all that a Requester with 8-bit Tags may ask for.
const ANSWERS: usize = 256;
const NO_SLOT: u8 = u8::MAX;

/// What a hierarchy has counted, beside its Endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HierarchyCounters {
    /// TLPs received for a slot's stream.
    pub received: u64,
    /// TLPs on a stream that belongs to no slot.
    pub stray: u64,
    /// TLPs that are none, or of a kind that Etherslot does not carry.
    pub malformed: u64,
    /// TLPs whose Requester or Completer ID is not their sender's.
    pub spoofed: u64,
    /// TLPs from a stream for another slot than its own.
    pub trespassing: u64,
    /// Requests to nowhere: refused if Non-Posted, dropped if not.
    pub unrouted: u64,
    /// Completions to nowhere, dropped.
    pub unrouted_completions: u64,
    /// TLPs passed from Endpoint to Endpoint.
    pub peer: u64,
    /// Completions of ports dropped because too many waited.
    pub overflows: u64,
}

/// Where a TLP of an Endpoint goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    Host,
    Peer(usize),
    Nowhere,
}

/// A Completion of a port.
#[derive(Clone, Copy, Debug)]
struct PortAnswer {
    header: Header,
    data: [u8; 4],
}

#[derive(Default)]
struct Slot {
    /// Absent also while it is polled.
    endpoint: Option<Box<Endpoint>>,
    stream: u16,
    answers: VecDeque<PortAnswer>,
    /// What the switch answers to the Endpoint's own Requests.
    refusals: VecDeque<Header>,
    /// Whose address space it is in; 0: one of its own.
    domain: u16,
    /// A bit for each slot whose Endpoint it reaches without passing the host.
    peers: u32,
}

/// All that a TLP can meet.
struct Fabric {
    upstream: Port,
    upstream_id: FunctionId,
    ports: Vec<Port>,
    slots: Vec<Slot>,
    /// A bit for each slot that is filled.
    filled: u32,
    /// A bit for each slot whose Endpoint may have something to do; the others need no poll.
    active: u32,
    peer_to_peer: bool,
    counters: HierarchyCounters,
    scratch: Box<[u8; 4096]>,
}

/// The virtual switch of a session.
pub struct Hierarchy {
    fabric: Fabric,
    /// The slot of each stream.
    slot_of: Vec<u8>,
    /// The slot that is polled first.
    turn: usize,
    /// A bit for each slot whose Endpoint has left pieces in the frame in hand.
    in_hand: u32,
}

impl Default for Hierarchy {
    fn default() -> Self {
        Self::new()
    }
}

impl Hierarchy {
    /// Slots of a hierarchy: one downstream port each.
    pub const SLOTS: usize = 32;

    /// A switch with empty slots.
    pub fn new() -> Self {
        let fabric = Fabric {
            upstream: Port::upstream(),
            upstream_id: FunctionId::default(),
            ports: Port::downstream(Self::SLOTS as u8).collect(),
            slots: (0..Self::SLOTS).map(|_| Slot::default()).collect(),
            filled: 0,
            active: 0,
            peer_to_peer: true,
            counters: HierarchyCounters::default(),
            scratch: Box::new([0; 4096]),
        };
        Self { fabric, slot_of: Vec::new(), turn: 0, in_hand: 0 }
    }

    /// Whether all Endpoints reach each other without passing the host; they do unless this is switched off. Then their
    /// Memory Requests go upstream, as ACS P2P Request Redirect demands (6.12.3), whatever the windows of the
    /// other ports are, but for those to a peer of the same domain: so it must be off where slots belong to different guests,
    /// whose addresses overlap.
    pub fn set_peer_to_peer(&mut self, allowed: bool) {
        self.fabric.peer_to_peer = allowed;
        self.fabric.find_peers();
    }

    /// Says whose address space the Endpoint in a slot is in. Those of one that is not 0 reach each other's BARs; one that
    /// was just plugged in is alone.
    pub fn set_domain(&mut self, slot: u8, domain: u16) {
        if let Some(place) = self.fabric.slots.get_mut(slot as usize) {
            place.domain = domain;
            self.fabric.find_peers();
        }
    }

    /// Puts an Endpoint into an empty slot, with a stream that no other slot has. Returns the ID of the port
    /// above it.
    ///
    /// # Panics
    /// If the slot is filled or does not exist, or the stream has a slot.
    pub fn plug(&mut self, slot: u8, stream: u16, endpoint: Box<Endpoint>) -> FunctionId {
        assert!(self.slot(stream).is_none(), "stream {stream} has a slot");
        let index = slot as usize;
        let place = &mut self.fabric.slots[index];
        assert!(place.endpoint.is_none(), "slot {slot} is filled");
        place.stream = stream;
        place.answers = VecDeque::with_capacity(ANSWERS);
        place.refusals = VecDeque::with_capacity(endpoint.tags() as usize);
        place.endpoint = Some(endpoint);
        if self.slot_of.len() <= stream as usize {
            self.slot_of.resize(stream as usize + 1, NO_SLOT);
        }
        self.slot_of[stream as usize] = slot;
        self.fabric.filled |= 1 << slot;
        self.fabric.active |= 1 << slot;
        self.fabric.ports[index].set_present(true);
        self.fabric.find_peers();
        FunctionId::new(INTERNAL_BUS, slot, 0)
    }

    /// Takes the Endpoint out of a slot, as it is. Nothing of a peer's follows it, and what it asked of peers is answered to nobody:
    /// the next one in this slot may have its ID.
    pub fn unplug(&mut self, slot: u8) -> Option<Box<Endpoint>> {
        let place = self.fabric.slots.get_mut(slot as usize)?;
        let endpoint = place.endpoint.take()?;
        self.slot_of[place.stream as usize] = NO_SLOT;
        *place = Slot::default();
        self.fabric.filled &= !(1 << slot);
        self.fabric.ports[slot as usize].set_present(false);
        self.fabric.find_peers();
        // Bus 0 is the Root Complex's, and the ID of what was never enumerated.
        if endpoint.id().bus() != 0 {
            for peer in self.fabric.slots.iter_mut().filter_map(|slot| slot.endpoint.as_mut()) {
                peer.forget_requester(endpoint.id());
            }
        }
        Some(endpoint)
    }

    /// Hot Reset of a slot's Link: nothing from before it follows on its stream (6.6.1).
    pub fn hot_reset(&mut self, slot: u8) {
        self.fabric.reset_slot(slot as usize);
        if let Some(place) = self.fabric.slots.get_mut(slot as usize) {
            place.answers.clear();
        }
    }

    /// Takes a TLP from a stream of the session.
    pub fn receive(&mut self, now_ns: u64, stream: u16, tlp: &[u8]) {
        match self.slot(stream) {
            Some(slot) => {
                self.fabric.active |= 1 << slot;
                self.fabric.receive(now_ns, slot, tlp);
            }
            None => self.fabric.counters.stray += 1,
        }
    }

    /// Takes a piece that the host sent along with a doorbell (docs/wire.md, Read-ahead): the payload of its record. If that lies in a
    /// frame that is in hand until [`Hierarchy::let_go`], `in_hand` says where in it.
    pub fn receive_ahead(&mut self, stream: u16, payload: &[u8], in_hand: Option<usize>) {
        let Some(slot) = self.slot(stream) else {
            self.fabric.counters.stray += 1;
            return;
        };
        match (Piece::parse(payload), &mut self.fabric.slots[slot].endpoint) {
            (Some((piece, bytes)), Some(endpoint)) => {
                if endpoint.receive_ahead(&piece, bytes, in_hand.map(|at| at + Piece::BYTES)) {
                    self.in_hand |= 1 << slot;
                }
            }
            _ => self.fabric.counters.malformed += 1,
        }
    }

    /// The frame in hand with this body goes: the Endpoints that left pieces in it take them, or keep them.
    pub fn let_go(&mut self, now_ns: u64, body: &[u8]) {
        let mut slots = std::mem::take(&mut self.in_hand);
        self.fabric.active |= slots;
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            if let Some(endpoint) = &mut self.fabric.slots[slot].endpoint {
                endpoint.let_go(now_ns, body);
            }
            slots &= slots - 1;
        }
    }

    /// What the Endpoints in the slots have counted of such pieces, together.
    pub fn ahead_counters(&self) -> AheadCounters {
        let endpoints = self.fabric.slots.iter().filter_map(|slot| slot.endpoint.as_ref());
        endpoints.fold(AheadCounters::default(), |sum, endpoint| sum.plus(endpoint.ahead_counters()))
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll(&mut self, now_ns: u64, out: &mut dyn TlpOut) -> bool {
        let mut progress = false;
        // What becomes active meanwhile has its turn the next time.
        let turn = self.turn as u32;
        let mut waiting = (self.fabric.active & self.fabric.filled).rotate_right(turn);
        while waiting != 0 {
            let slot = (waiting.trailing_zeros() + turn) as usize % Self::SLOTS;
            progress |= self.fabric.poll_slot(now_ns, slot, out);
            waiting &= waiting - 1;
        }
        // The slots that share the room of a session begin in turn.
        self.turn = (self.turn + 1) % Self::SLOTS;
        progress
    }

    /// When [`Hierarchy::poll`] should be called even if nothing else happens, ns.
    pub fn deadline_ns(&self) -> Option<u64> {
        let active = self.fabric.slots.iter().enumerate().filter(|(at, _)| self.fabric.active >> at & 1 != 0);
        active.filter_map(|(_, slot)| slot.endpoint.as_ref()?.deadline_ns()).min()
    }

    /// The Endpoint in a slot.
    pub fn endpoint(&self, slot: u8) -> Option<&Endpoint> {
        self.fabric.slots.get(slot as usize)?.endpoint.as_deref()
    }

    /// The Endpoint in a slot.
    pub fn endpoint_mut(&mut self, slot: u8) -> Option<&mut Endpoint> {
        self.fabric.active |= 1_u32.checked_shl(u32::from(slot)).unwrap_or(0);
        self.fabric.slots.get_mut(slot as usize)?.endpoint.as_deref_mut()
    }

    /// What was counted.
    pub fn counters(&self) -> &HierarchyCounters {
        &self.fabric.counters
    }

    fn slot(&self, stream: u16) -> Option<usize> {
        self.slot_of.get(stream as usize).filter(|&&slot| slot != NO_SLOT).map(|&slot| slot as usize)
    }
}

impl Fabric {
    /// Brings the slots' peers up to date.
    fn find_peers(&mut self) {
        for slot in 0..self.slots.len() {
            let Slot { domain, .. } = self.slots[slot];
            let is_peer = |peer: &Slot| self.peer_to_peer || domain != 0 && peer.domain == domain;
            let bits = self.slots.iter().enumerate().filter(|(_, peer)| is_peer(peer));
            let peers = bits.fold(0, |peers, (at, _)| peers | 1_u32 << at);
            self.slots[slot].peers = peers & self.filled & !(1 << slot);
        }
    }

    fn poll_slot(&mut self, now_ns: u64, slot: usize, out: &mut dyn TlpOut) -> bool {
        let stream = self.slots[slot].stream;
        let mut progress = false;
        while let Some(answer) = self.slots[slot].answers.front() {
            if out.room(stream) == 0
                || !out.send(stream, &answer.header, &answer.data[..answer.header.data_bytes()])
            {
                break;
            }
            self.slots[slot].answers.pop_front();
            progress = true;
        }
        let Some(mut endpoint) = self.slots[slot].endpoint.take() else { return progress };
        let id = endpoint.id();
        let polled = endpoint.poll(now_ns, &mut Upward { fabric: self, slot, id, out, now_ns }, stream);
        progress |= polled;
        if !polled && self.slots[slot].answers.is_empty() && endpoint.is_idle() {
            self.active &= !(1 << slot);
        }
        while let Some(refusal) = self.slots[slot].refusals.pop_front() {
            endpoint.receive(now_ns, &refusal, &[]);
            self.active |= 1 << slot;
            progress = true;
        }
        self.slots[slot].endpoint = Some(endpoint);
        progress
    }

    fn reset_slot(&mut self, slot: usize) {
        self.active |= 1 << slot;
        if let Some(endpoint) = self.slots.get_mut(slot).and_then(|slot| slot.endpoint.as_mut()) {
            endpoint.reset(ResetKind::Conventional);
        }
    }
}
