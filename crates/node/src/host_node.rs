//! The host node: sessions to boxes, and the slots that their Functions fill.

use std::collections::VecDeque;
use std::fmt;

use etherslot_pci::enumerate::Layout;
use etherslot_seal::{PublicKey, is_protected};
use etherslot_session::{
    Config as SessionConfig, Deliver, PathId, Routes, Session, State as SessionState, parse_frame,
};
use etherslot_wire::NodeId;
use etherslot_wire::boxes::{Admit, Behind, PORTS};
use etherslot_wire::control::{CONTROL_STREAM, CloseReason, Message, Name, feature};
use etherslot_wire::discovery::{Group, Port};
use etherslot_wire::frame::Header;
use etherslot_wire::handshake::is_handshake;
use etherslot_wire::record::Kind;

use crate::guard::{GuardCounters, HostGuard, PeerKeys, Protection, Security, destination};
use crate::host_api::{Accepted, Guest, Interrupts, Refused};
use crate::out::send_control;
use crate::random::Epochs;
use crate::session_event::{SessionEvent, SessionEvents};
use crate::slot::{MAX_PAYLOAD_BYTES, Slot, SlotCounters};

/// After the loss of a session, the next attempt comes this much later.
const RECONNECT_NS: u64 = 50_000_000;
/// Answers of a box that wait to be looked at.
const CONTROL_BACKLOG: usize = 256;

/// A slot of a host node.
#[derive(Clone, Debug)]
pub struct SlotConfig<A> {
    /// The Function's name in the box.
    pub name: Name,
    /// The box's address.
    pub address: A,
    /// Do not show the MSI-X capability to the guest.
    pub hide_msix: bool,
}

/// What a host node has counted, beside its slots and sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostCounters {
    /// Frames that are no frames, or were damaged.
    pub malformed_frames: u64,
    /// Frames of no session of ours: other epochs, other senders.
    pub foreign_frames: u64,
    /// Records that no slot or handler takes.
    pub stray_records: u64,
    /// Sessions that came up.
    pub sessions_up: u64,
    /// Sessions that died.
    pub sessions_dead: u64,
}

#[derive(Debug)]
struct Peer<A> {
    /// What it is called by: the first of `addresses` as configured.
    address: A,
    /// Where it is reached. The next attempt at a session begins with the first; the others become paths of it.
    addresses: Vec<A>,
    routes: Routes<A>,
    keys: PeerKeys,
    session: Option<Session>,
    up: bool,
    /// Has still to say which group we are in, before any slot asks for its device.
    introduces: bool,
    connect_at_ns: u64,
    /// Slots whose Functions are in this box; stream `n` belongs to the `n - 1`th. A slot that went leaves its place to the next.
    slots: Vec<Option<usize>>,
    control: VecDeque<(u16, Message)>,
    /// Who of other boxes may come in, and who the box knows of.
    admits: Vec<Admit>,
    admitted: Vec<Admit>,
}

/// A host node.
#[derive(Debug)]
pub struct HostNode<A> {
    config: SessionConfig,
    epochs: Epochs,
    /// Of a node with credentials.
    guard: Option<Box<HostGuard>>,
    peers: Vec<Peer<A>>,
    slots: Vec<Slot>,
    /// For each slot, its peer, once it is known.
    peer_of: Vec<Option<usize>>,
    group: Option<Group>,
    /// How other boxes know an address of ours, if Functions in different ones may reach each other.
    port_of: Option<fn(&A) -> Option<Port>>,
    max_payload_bytes: u16,
    counters: HostCounters,
    events: SessionEvents<A>,
    /// Sessions that end are not followed by others.
    is_closing: bool,
}

impl<A> Peer<A> {
    fn has_epoch(&self, epoch: u32) -> bool {
        self.session.as_ref().is_some_and(|session| session.epoch() == epoch)
    }

    /// The box as others are told of it, if it lets Functions of other boxes come in.
    fn place(&self, port_of: Option<fn(&A) -> Option<Port>>) -> Option<(NodeId, [Option<Port>; PORTS])> {
        let session = self.session.as_ref().filter(|session| self.up && session.has(feature::BOXES))?;
        let mut ports = [None; PORTS];
        let known = self.addresses.iter().filter_map(port_of?);
        ports.iter_mut().zip(known).for_each(|(place, port)| *place = Some(port));
        ports[0]?;
        Some((session.peer()?.node, ports))
    }

    /// Tells the box who may come in. True if something was sent; what has no room waits.
    fn admit(&mut self) -> bool {
        let Self { session: Some(session), admits, admitted, .. } = self else { return false };
        if admits == admitted {
            return false;
        }
        let is_same = |one: &Admit, two: &Admit| (one.node, one.stream) == (two.node, two.stream);
        let before = admitted.len();
        let mut said = false;
        admitted.retain(|known| {
            let stays = admits.iter().any(|wanted| is_same(wanted, known));
            let gone = Message::Admit(Admit { domain: 0, ..*known });
            stays || !send_control(session, CONTROL_STREAM, gone)
        });
        for wanted in admits.iter().filter(|wanted| !admitted.contains(wanted)).copied().collect::<Vec<_>>() {
            if !send_control(session, CONTROL_STREAM, Message::Admit(wanted)) {
                break;
            }
            admitted.retain(|known| !is_same(known, &wanted));
            admitted.push(wanted);
            said = true;
        }
        said || admitted.len() != before
    }

    /// Whether there is anybody to connect for.
    fn is_needed(&self) -> bool {
        self.slots.iter().any(Option::is_some)
    }
}

struct Inbound<'a> {
    now_ns: u64,
    members: &'a [Option<usize>],
    slots: &'a mut [Slot],
    control: &'a mut VecDeque<(u16, Message)>,
    stray: &'a mut u64,
    guest: &'a mut dyn Guest,
}

impl Deliver for Inbound<'_> {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        let slot = (stream as usize).checked_sub(1).and_then(|member| *self.members.get(member)?);
        match (kind, slot) {
            (Kind::Tlp, Some(slot)) => self.slots[slot].receive(self.now_ns, payload, self.guest),
            (Kind::Control, _) if stream == CONTROL_STREAM || slot.is_some() => match Message::parse(payload)
            {
                Some(message) if self.control.len() < CONTROL_BACKLOG => {
                    self.control.push_back((stream, message));
                }
                _ => *self.stray += 1,
            },
            _ => *self.stray += 1,
        }
    }
}

impl<A: Copy + Eq + fmt::Display> HostNode<A> {
    /// A host node with these slots; `seed` makes its epochs differ from those of its earlier lives.
    ///
    /// # Panics
    /// If one box has more slots than `config.streams` allows.
    pub fn new(config: SessionConfig, seed: u64, slots: &[SlotConfig<A>]) -> Self {
        let mut node = Self {
            config,
            epochs: Epochs::new(seed),
            guard: None,
            peers: Vec::new(),
            slots: Vec::new(),
            peer_of: Vec::new(),
            group: None,
            port_of: None,
            max_payload_bytes: MAX_PAYLOAD_BYTES,
            counters: HostCounters::default(),
            events: SessionEvents::default(),
            is_closing: false,
        };
        for config in slots {
            let slot = node.add_slot(config.name, config.hide_msix);
            assert!(
                node.route(slot, config.name, config.address, &[]),
                "a session has no stream for so many slots"
            );
        }
        node
    }

    /// The assignment group that the node is in; to be said before the first poll.
    pub fn set_group(&mut self, group: Option<Group>) {
        self.group = group;
    }

    /// The largest payload of TLPs, a power of two from 128 to 4096 bytes (`Max_Payload_Size`, 7.5.3.4); to be said before the
    /// first poll. 4096, if it is not said.
    ///
    /// # Panics
    /// If it is something else.
    pub fn set_max_payload(&mut self, bytes: u16) {
        assert!(bytes.is_power_of_two() && (128..=MAX_PAYLOAD_BYTES).contains(&bytes), "{bytes} bytes");
        self.max_payload_bytes = bytes;
        self.slots.iter_mut().for_each(|slot| slot.set_max_payload(bytes));
    }

    /// One more slot, whose box is not known yet ([`HostNode::route`]); its number. The name may change with the box.
    pub fn add_slot(&mut self, name: Name, hide_msix: bool) -> usize {
        let mut slot = Slot::new(self.slots.len(), name, 0, hide_msix);
        slot.set_max_payload(self.max_payload_bytes);
        self.slots.push(slot);
        self.peer_of.push(None);
        self.slots.len() - 1
    }

    /// The device of a slot is `name` of the box at `address` and `further`. A slot stays with its box, wherever that moves: other
    /// addresses count from the next session on. False if a session has no stream for one more slot.
    pub fn route(&mut self, slot: usize, name: Name, address: A, further: &[A]) -> bool {
        let mut addresses = vec![address];
        addresses.extend(further.iter().filter(|&&further| further != address));
        let known = self.peer_of[slot]
            .or_else(|| self.peers.iter().position(|peer| peer.addresses.contains(&address)));
        let index = known.unwrap_or(self.peers.len());
        if known.is_none() {
            self.peers.push(Peer {
                address,
                addresses: addresses.clone(),
                routes: Routes::new(address),
                keys: PeerKeys::default(),
                session: None,
                up: false,
                introduces: false,
                connect_at_ns: 0,
                slots: Vec::new(),
                control: VecDeque::with_capacity(CONTROL_BACKLOG),
                admits: Vec::new(),
                admitted: Vec::new(),
            });
        }
        let peer = &mut self.peers[index];
        let is_new_way = addresses.iter().any(|address| !peer.addresses.contains(address));
        if is_new_way && !peer.up {
            peer.address = address;
            peer.addresses = addresses;
        }
        if self.peer_of[slot].is_none() {
            let place = peer.slots.iter().position(Option::is_none).unwrap_or(peer.slots.len());
            if place + 1 >= usize::from(self.config.streams) {
                return false;
            }
            if place == peer.slots.len() {
                peer.slots.push(None);
            }
            peer.slots[place] = Some(slot);
            self.peer_of[slot] = Some(index);
            self.slots[slot].name = name;
            self.slots[slot].stream = place as u16 + 1;
            if peer.up {
                self.slots[slot].session_up();
            }
        }
        true
    }

    /// Takes a slot from its box, so that [`HostNode::route`] may give it another device. False if it may not go yet: its guest knows the
    /// device ([`HostNode::vacate`]), or the box was asked for it and has not refused it.
    pub fn unroute(&mut self, slot: usize) -> bool {
        let Some(peer) = self.peer_of[slot] else { return true };
        if !self.slots[slot].leave() {
            return false;
        }
        for place in self.peers[peer].slots.iter_mut().filter(|place| **place == Some(slot)) {
            *place = None;
        }
        self.peer_of[slot] = None;
        true
    }

    /// Whether there is a session with the box of a slot.
    pub fn is_in_session(&self, slot: usize) -> bool {
        self.peer_of[slot].is_some_and(|peer| self.peers[peer].up)
    }

    /// Why the box of a slot does not give its device, if it has said so.
    pub fn refusal(&self, slot: usize) -> Option<&'static str> {
        self.slots[slot].refusal()
    }

    /// The box of a slot may give its device now: it is asked at once rather than when it is its time.
    pub fn ask_again(&mut self, slot: usize) {
        self.slots[slot].ask_again();
    }

    /// Devices of slots with the same domain, which is not 0, are in one address space: they reach each other's BARs in their box, without
    /// passing this node. To be said before the first poll. A device with another domain, or with none, is reached by nobody but us.
    pub fn set_domain(&mut self, slot: usize, domain: u16) {
        self.slots[slot].domain = domain;
    }

    /// Lets devices of one domain reach each other in different boxes, too. `port_of` says how a box's address is called on the wire; boxes that it has
    /// no name for take no part. To be said before the first poll.
    pub fn join_boxes(&mut self, port_of: fn(&A) -> Option<Port>) {
        self.port_of = Some(port_of);
        self.config.features |= feature::BOXES;
    }

    /// Whether the device of a slot reaches all of its domain that is in other boxes, as its box says.
    pub fn is_reaching(&self, slot: usize) -> bool {
        self.slots[slot].is_reaching()
    }

    /// Whether the boxes of two slots, which there are sessions with, can let their devices reach each other.
    pub fn can_join(&self, slot: usize, other: usize) -> bool {
        let [one, two] = [slot, other].map(|slot| self.peer_of[slot]);
        let joins =
            |peer: Option<usize>| peer.is_some_and(|peer| self.peers[peer].place(self.port_of).is_some());
        one == two || joins(one) && joins(two)
    }

    /// Gives the device of a slot back to its box: what [`Guest::recalled`] has put off.
    pub fn release(&mut self, slot: usize, guest: &mut dyn Guest) {
        self.slots[slot].release(guest);
    }

    /// Whether a device of another kind than the guest of a slot knows has come there. It waits for [`HostNode::vacate`].
    pub fn is_strange(&self, slot: usize) -> bool {
        self.slots[slot].is_strange()
    }

    /// The guest of a slot has no device any more: that of the slot may be another one from now on.
    pub fn vacate(&mut self, slot: usize, now_ns: u64) {
        self.slots[slot].vacate(now_ns);
    }

    /// The box at `address`, that of a slot, is reached at `further` as well: by another link of ours, another Port of
    /// it, or both. Sessions get a path for each address, as far as their configuration allows.
    pub fn add_address(&mut self, address: A, further: A) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == address)
            && !peer.addresses.contains(&further)
        {
            peer.addresses.push(further);
        }
    }

    /// Protects all sessions. Their [`SessionConfig::is_link_intact`] should be set: a sealed frame needs no check.
    pub fn protect(&mut self, security: Security) {
        self.guard = Some(Box::new(HostGuard::new(security)));
    }

    /// The box at `address`, that of a slot, has to have this key.
    pub fn expect(&mut self, address: A, key: PublicKey) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.address == address) {
            peer.keys.expected = Some(key);
        }
    }

    /// Whether a frame is for a session of this node; for owners of several nodes on the same links.
    pub fn knows(&self, frame: &[u8]) -> bool {
        if self.guard.is_some() {
            let epoch = destination(frame);
            let is_for = |peer: &Peer<A>| peer.keys.awaits(epoch) || peer.has_epoch(epoch);
            return self.peers.iter().any(is_for);
        }
        let Ok((header, _)) = parse_frame(frame) else { return false };
        let sessions = self.peers.iter().filter_map(|peer| peer.session.as_ref());
        sessions.map(Session::epoch).any(|epoch| epoch == header.dst_epoch)
    }

    /// Takes a frame that came from `from`.
    pub fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8], guest: &mut dyn Guest) {
        if let Some(mut guard) = self.guard.take() {
            self.receive_guarded(&mut guard, now_ns, from, frame, guest);
            self.guard = Some(guard);
            return;
        }
        match parse_frame(frame) {
            Ok((header, body)) => self.take(now_ns, from, &header, body, guest),
            Err(_) => self.counters.malformed_frames += 1,
        }
    }

    fn receive_guarded(
        &mut self,
        guard: &mut HostGuard,
        now_ns: u64,
        from: &A,
        frame: &[u8],
        guest: &mut dyn Guest,
    ) {
        if !is_protected(frame) {
            guard.counters.plain_frames += 1;
            return;
        }
        let epoch = destination(frame);
        let mut peers = self.peers.iter_mut().filter(|peer| peer.routes.path(from).is_some());
        if is_handshake(frame) {
            if let Some(peer) = peers.find(|peer| peer.keys.awaits(epoch))
                && let Some(epoch) = peer.keys.handle(guard, now_ns, frame)
            {
                peer.session = Some(Session::connect(&self.config, epoch, now_ns));
            }
        } else if let Some(peer) = peers.find(|peer| peer.has_epoch(epoch)) {
            if let Some((header, bytes)) = peer.keys.open(guard, frame) {
                self.take(now_ns, from, &header, &guard.room[..bytes], guest);
            } else if peer.keys.is_worn()
                && let Some(session) = &mut peer.session
            {
                session.close(CloseReason::Protocol);
            }
        } else {
            guard.counters.keyless_frames += 1;
        }
    }

    /// Takes a frame that is whole and, in a node with keys, authentic.
    fn take(&mut self, now_ns: u64, from: &A, header: &Header, body: &[u8], guest: &mut dyn Guest) {
        let is_it = |peer: &&mut Peer<A>| {
            peer.session.as_ref().is_some_and(|session| session.epoch() == header.dst_epoch)
                && peer.routes.path(from).is_some()
        };
        let known = self.peers.iter_mut().find(is_it);
        let Some((peer, path)) = known.and_then(|peer| peer.routes.path(from).map(|path| (peer, path)))
        else {
            self.counters.foreign_frames += 1;
            return;
        };
        let Some(session) = &mut peer.session else { return };
        let mut inbound = Inbound {
            now_ns,
            members: &peer.slots,
            slots: &mut self.slots,
            control: &mut peer.control,
            stray: &mut self.counters.stray_records,
            guest,
        };
        session.handle_frame_on(now_ns, path, header, body, &mut inbound);
        while let Some((stream, message)) = peer.control.pop_front() {
            let member =
                |stream: u16| (stream as usize).checked_sub(1).and_then(|member| *peer.slots.get(member)?);
            match message {
                Message::Attached { stream: of, status, port } if stream == CONTROL_STREAM => {
                    if let Some(slot) = member(of) {
                        self.slots[slot].attached(now_ns, status, port, guest);
                    }
                }
                other => match member(stream) {
                    Some(slot) => self.slots[slot].control(other, guest),
                    None => self.counters.stray_records += 1,
                },
            }
        }
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll(&mut self, now_ns: u64, guest: &mut dyn Guest) -> bool {
        let mut progress = false;
        for peer in &mut self.peers {
            if let Some(guard) = self.guard.as_mut().filter(|_| peer.session.is_none()) {
                if peer.keys.is_idle() && peer.connect_at_ns <= now_ns && !self.is_closing && peer.is_needed()
                {
                    peer.keys.greet(guard, &self.config, now_ns);
                    peer.routes = Routes::new(peer.addresses[0]);
                    progress = true;
                } else if peer.keys.handle_timeout(guard, now_ns) {
                    peer.addresses.rotate_left(1);
                    peer.connect_at_ns = now_ns + RECONNECT_NS;
                }
            } else if peer.session.is_none()
                && peer.connect_at_ns <= now_ns
                && !self.is_closing
                && peer.is_needed()
            {
                peer.session = Some(Session::connect(&self.config, self.epochs.next(), now_ns));
                peer.routes = Routes::new(peer.addresses[0]);
                progress = true;
            }
            let Some(session) = &mut peer.session else { continue };
            if session.deadline_ns().is_some_and(|at| at <= now_ns) {
                session.handle_timeout(now_ns);
            }
            match session.state() {
                SessionState::Up if !peer.up => {
                    tracing::info!(peer = %peer.address, "session up");
                    peer.up = true;
                    peer.admitted.clear();
                    peer.introduces = self.group.is_some() && session.has(feature::LEASES);
                    for &further in &peer.addresses[1..] {
                        peer.routes.add(session, now_ns, further);
                    }
                    self.counters.sessions_up += 1;
                    self.events.push(SessionEvent::Up { peer: peer.address });
                    for &slot in peer.slots.iter().flatten() {
                        self.slots[slot].session_up();
                    }
                    progress = true;
                }
                SessionState::Dead(reason) => {
                    if std::mem::take(&mut peer.up) && !self.is_closing {
                        tracing::warn!(peer = %peer.address, ?reason, "session dead");
                        self.counters.sessions_dead += 1;
                        self.events.push(SessionEvent::Dead { peer: peer.address, reason: Some(reason) });
                        for &slot in peer.slots.iter().flatten() {
                            self.slots[slot].session_lost(guest);
                        }
                    }
                    // The link of this one may be the trouble.
                    peer.addresses.rotate_left(1);
                    peer.session = None;
                    peer.keys.clear();
                    peer.control.clear();
                    peer.connect_at_ns = now_ns + RECONNECT_NS;
                    progress = true;
                    continue;
                }
                _ => {}
            }
            if peer.introduces {
                let member = Message::Member { group: self.group };
                peer.introduces = !send_control(session, CONTROL_STREAM, member);
            }
            if peer.up && !peer.introduces {
                for &slot in peer.slots.iter().flatten() {
                    progress |= self.slots[slot].poll(now_ns, session, guest);
                }
                progress |= peer.admit();
            }
        }
        progress | self.join()
    }

    /// Finds out what lies where, and who has to be told, if something has changed. True if it has.
    fn join(&mut self) -> bool {
        let is_moved = self.slots.iter_mut().fold(false, |is_moved, slot| is_moved | slot.take_moved());
        if self.port_of.is_none() || !is_moved {
            return false;
        }
        let places: Vec<_> = self.peers.iter().map(|peer| peer.place(self.port_of)).collect();
        let place = |slot: usize| {
            let peer = self.peer_of[slot]?;
            Some((peer, places[peer]?))
        };
        let mut admits = vec![Vec::new(); self.peers.len()];
        let mut reaches = vec![Vec::new(); self.slots.len()];
        for (at, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.domain != 0) {
            let (Some((peer, (node, _))), Some(function)) = (place(at), slot.function()) else { continue };
            let Some(session) = &self.peers[peer].session else { continue };
            let (epoch, stream) = (session.epoch(), slot.stream);
            for (other_at, other) in
                self.slots.iter().enumerate().filter(|(_, other)| other.domain == slot.domain)
            {
                let Some((behind, (node_behind, ports))) =
                    place(other_at).filter(|(behind, _)| *behind != peer)
                else {
                    continue;
                };
                let decoded = other.decoded();
                let windows =
                    decoded.map(|(address, bytes)| Behind { address, bytes, node: node_behind, ports });
                let before = reaches[at].len();
                reaches[at].extend(windows);
                let admit = Admit { domain: slot.domain, node, epoch, stream, function };
                if reaches[at].len() != before && !admits[behind].contains(&admit) {
                    admits[behind].push(admit);
                }
            }
        }
        for (slot, reaches) in self.slots.iter_mut().zip(reaches) {
            slot.set_reaches(reaches);
        }
        for (peer, admits) in self.peers.iter_mut().zip(admits) {
            peer.admits = admits;
        }
        true
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        let mut progress = false;
        for peer in &mut self.peers {
            if self.guard.is_some()
                && let Some(address) = peer.routes.address(PathId::FIRST)
            {
                progress |= peer.keys.transmit(now_ns, &mut |frame| send(&address, &[frame]) != 0);
            }
            if let Some(session) = &mut peer.session {
                let routes = &peer.routes;
                if let Some(keys) = peer.keys.keys_mut() {
                    progress |= keys.transmit(now_ns, session, routes, send);
                    continue;
                }
                progress |= session.transmit_paths(now_ns, &mut |path, frames| {
                    routes.address(path).map_or(0, |address| send(&address, frames))
                });
            }
        }
        progress
    }

    /// When [`HostNode::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let sessions = self.peers.iter().map(|peer| match &peer.session {
            Some(session) => [session.deadline_ns(), peer.keys.deadline_ns()].into_iter().flatten().min(),
            None if !peer.keys.is_idle() => peer.keys.deadline_ns(),
            None => (!self.is_closing && peer.is_needed()).then_some(peer.connect_at_ns),
        });
        let slots = self.slots.iter().map(Slot::deadline_ns);
        sessions.chain(slots).flatten().min()
    }

    /// The guest reads its configuration space.
    pub fn config_read(
        &mut self,
        now_ns: u64,
        slot: usize,
        id: u64,
        offset: u64,
        bytes: usize,
    ) -> Result<Accepted, Refused> {
        self.slots[slot].config_read(now_ns, id, offset, bytes)
    }

    /// The guest writes its configuration space.
    pub fn config_write(
        &mut self,
        now_ns: u64,
        slot: usize,
        id: u64,
        offset: u64,
        data: &[u8],
    ) -> Result<Accepted, Refused> {
        self.slots[slot].config_write(now_ns, id, offset, data)
    }

    /// The guest reads a BAR.
    pub fn bar_read(
        &mut self,
        now_ns: u64,
        slot: usize,
        id: u64,
        bar: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Accepted, Refused> {
        self.slots[slot].bar_read(now_ns, id, bar, offset, bytes)
    }

    /// The guest writes a BAR: posted, so there is no answer. To be called when [`HostNode::has_room`].
    ///
    /// `read` reads the guest's memory as [`Guest::read`] does: what a doorbell tells of may be sent along with it.
    pub fn bar_write(
        &mut self,
        slot: usize,
        bar: usize,
        offset: u64,
        data: &[u8],
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<(), Refused> {
        let session = self.peer_of[slot].and_then(|peer| self.peers[peer].session.as_mut());
        self.slots[slot].bar_write(session, bar, offset, data, read)
    }

    /// Whether a posted write can be taken now.
    pub fn has_room(&self, slot: usize) -> bool {
        self.slots[slot].has_room(self.peer_of[slot].and_then(|peer| self.peers[peer].session.as_ref()))
    }

    /// The guest, or the loss of it, resets the device. Without `id` nobody is told of the end.
    pub fn reset(&mut self, now_ns: u64, slot: usize, id: Option<u64>) -> Result<Accepted, Refused> {
        self.slots[slot].reset(now_ns, id)
    }

    /// The guest set up its interrupts in another way.
    pub fn set_interrupts(&mut self, slot: usize, interrupts: Interrupts) {
        self.slots[slot].set_interrupts(interrupts);
    }

    /// What the configuration space of the slot's device tells, once one was attached.
    pub fn layout(&self, slot: usize) -> Option<&Layout> {
        self.slots[slot].layout()
    }

    /// Says goodbye to all boxes, a few times, as no box answers: the rounds have to go on until [`HostNode::is_closed`], some
    /// round-trip times later and within half a second.
    pub fn close(&mut self) {
        self.is_closing = true;
        for session in self.peers.iter_mut().filter_map(|peer| peer.session.as_mut()) {
            session.close(CloseReason::Shutdown);
        }
    }

    /// Whether all that [`HostNode::close`] began is done.
    pub fn is_closed(&self) -> bool {
        self.is_closing && self.peers.iter().all(|peer| peer.session.is_none())
    }

    /// The next session that came up or died, of the last 64 that nobody took.
    pub fn session_event(&mut self) -> Option<SessionEvent<A>> {
        self.events.pop()
    }

    /// What was counted.
    pub fn counters(&self) -> &HostCounters {
        &self.counters
    }

    /// What the slots have counted, in their order.
    pub fn slot_counters(&self) -> impl Iterator<Item = &SlotCounters> {
        self.slots.iter().map(|slot| &slot.counters)
    }

    /// For each slot whether its device is ready to be used, and what it has counted.
    pub fn slots(&self) -> impl Iterator<Item = (bool, &SlotCounters)> {
        self.slots.iter().map(|slot| (slot.is_ready(), &slot.counters))
    }

    /// What a node with keys has counted beside.
    pub fn guard_counters(&self) -> Option<GuardCounters> {
        self.guard.as_ref().map(|guard| guard.counters)
    }

    /// The node's identity, if it has keys.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.guard.as_ref().map(|guard| guard.public())
    }

    /// How the sessions are protected, in the order of [`HostNode::sessions`].
    pub fn protections(&self) -> impl Iterator<Item = Option<Protection>> {
        self.peers.iter().filter(|peer| peer.session.is_some()).map(|peer| peer.keys.protection())
    }

    /// The live sessions and their peers' addresses.
    pub fn sessions(&self) -> impl Iterator<Item = (&A, &Session)> {
        self.peers.iter().filter_map(|peer| peer.session.as_ref().map(|session| (&peer.address, session)))
    }
}
