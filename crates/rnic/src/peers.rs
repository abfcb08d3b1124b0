//! Peers, and the sessions with them.
//!
//! Either side may open a session, and both may at once: then there are two, and each side sends on the one that it had
//! up first. What comes is taken from both. That holds for a node that speaks with itself, too. A peer ends as soon as one
//! of its sessions does.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use etherslot_rdma::{PeerId, Wire};
use etherslot_session::{Session, State};
use etherslot_wire::NodeId;
use etherslot_wire::control::CloseReason;

use crate::link;

/// Who opened a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Theirs,
}

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer<A> {
    pub(crate) address: A,
    /// Whom the sessions are with, once it is known.
    pub(crate) node: Option<NodeId>,
    ours: Option<Box<Session>>,
    theirs: Option<Box<Session>>,
    /// The session that is sent on: once there is one it is not changed.
    sends_on: Option<Side>,
    /// It is over; what is left of its sessions says so to the peer.
    pub(crate) is_over: bool,
    is_dirty: bool,
}

impl<A: Copy> Peer<A> {
    fn new(address: A) -> Self {
        Self {
            address,
            node: None,
            ours: None,
            theirs: None,
            sends_on: None,
            is_over: false,
            is_dirty: false,
        }
    }

    pub(crate) fn session(&mut self, side: Side) -> &mut Option<Box<Session>> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }

    /// All sessions.
    pub(crate) fn sessions(&mut self) -> impl Iterator<Item = &mut Session> {
        self.ours.as_deref_mut().into_iter().chain(self.theirs.as_deref_mut())
    }

    pub(crate) fn has(&self, side: Side) -> bool {
        match side {
            Side::Ours => self.ours.is_some(),
            Side::Theirs => self.theirs.is_some(),
        }
    }

    /// Which of them has this epoch.
    pub(crate) fn side_of(&self, epoch: u32) -> Option<Side> {
        let is_it =
            |session: &Option<Box<Session>>| session.as_ref().is_some_and(|session| session.epoch() == epoch);
        if is_it(&self.ours) {
            Some(Side::Ours)
        } else if is_it(&self.theirs) {
            Some(Side::Theirs)
        } else {
            None
        }
    }

    /// The session that is sent on, if it is up.
    #[inline]
    pub(crate) fn way(&mut self) -> Option<&mut Session> {
        let is_up = |session: &Option<Box<Session>>| {
            session.as_ref().is_some_and(|session| session.state() == State::Up)
        };
        if self.sends_on.is_none() {
            self.sends_on = if is_up(&self.ours) {
                Some(Side::Ours)
            } else if is_up(&self.theirs) {
                Some(Side::Theirs)
            } else {
                None
            };
        }
        let session = match self.sends_on? {
            Side::Ours => self.ours.as_deref_mut(),
            Side::Theirs => self.theirs.as_deref_mut(),
        };
        session.filter(|session| session.state() == State::Up)
    }

    /// Whether one of the sessions has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let ended = |session: &Option<Box<Session>>| {
            session.as_ref().is_some_and(|session| matches!(session.state(), State::Dead(_)))
        };
        ended(&self.ours) || ended(&self.theirs)
    }

    /// Nothing is left to be said.
    pub(crate) fn is_gone(&mut self) -> bool {
        self.is_over && self.sessions().all(|session| matches!(session.state(), State::Dead(_)))
    }

    /// Whether all that was sent has arrived, and the peer knows what we have.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.sessions().all(|session| session.state() != State::Up || session.is_idle())
    }

    pub(crate) fn deadline_ns(&mut self) -> Option<u64> {
        self.sessions().filter_map(|session| session.deadline_ns()).min()
    }
}

/// All peers, by number, address and epoch.
#[derive(Debug)]
pub(crate) struct Peers<A> {
    slots: Vec<Option<Peer<A>>>,
    /// Addresses of peers that are no more, until their number is given to another.
    addresses: Vec<Option<A>>,
    /// Numbers that are free; one that becomes free is used again after all others.
    free: VecDeque<PeerId>,
    by_address: HashMap<A, PeerId>,
    by_epoch: HashMap<u32, PeerId>,
    /// What has something to send, or to be looked at.
    dirty: Vec<PeerId>,
    /// Of the last frame: most come one after the other on one session.
    last: Option<(u32, PeerId)>,
    scratch: Vec<u8>,
}

impl<A: Copy + Eq + Hash> Peers<A> {
    pub(crate) fn new(peers: usize) -> Self {
        Self {
            slots: (0..peers).map(|_| None).collect(),
            addresses: vec![None; peers],
            free: (0..peers).map(|number| PeerId(number as u16)).collect(),
            by_address: HashMap::new(),
            by_epoch: HashMap::new(),
            dirty: Vec::with_capacity(peers),
            last: None,
            scratch: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, id: PeerId) -> Option<&mut Peer<A>> {
        self.slots.get_mut(id.0 as usize)?.as_mut()
    }

    /// The peer with this address that is not over.
    #[inline]
    pub(crate) fn at(&self, address: &A) -> Option<PeerId> {
        self.by_address.get(address).copied()
    }

    /// Where a peer is, or was.
    #[inline]
    pub(crate) fn address(&self, id: PeerId) -> Option<A> {
        *self.addresses.get(id.0 as usize)?
    }

    /// Whom a frame with this destination is for.
    #[inline]
    pub(crate) fn with_epoch(&mut self, epoch: u32) -> Option<PeerId> {
        if let Some((last, id)) = self.last
            && last == epoch
        {
            return Some(id);
        }
        let id = *self.by_epoch.get(&epoch)?;
        self.last = Some((epoch, id));
        Some(id)
    }

    pub(crate) fn is_epoch(&self, epoch: u32) -> bool {
        self.by_epoch.contains_key(&epoch)
    }

    /// A new peer, without a session.
    pub(crate) fn add(&mut self, address: A) -> Option<PeerId> {
        let id = self.free.pop_front()?;
        self.slots[id.0 as usize] = Some(Peer::new(address));
        self.addresses[id.0 as usize] = Some(address);
        self.by_address.insert(address, id);
        Some(id)
    }

    /// Gives a peer a session.
    pub(crate) fn begin(&mut self, id: PeerId, side: Side, session: Box<Session>) {
        let epoch = session.epoch();
        if let Some(peer) = self.get(id) {
            *peer.session(side) = Some(session);
            self.by_epoch.insert(epoch, id);
            self.touch(id);
        }
    }

    /// A peer is over: its sessions say so to it, and another may have its address.
    pub(crate) fn end(&mut self, id: PeerId) {
        let Some(peer) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        peer.is_over = true;
        if self.by_address.get(&peer.address) == Some(&id) {
            self.by_address.remove(&peer.address);
        }
        for session in peer.sessions() {
            session.close(CloseReason::Shutdown);
        }
        self.touch(id);
    }

    /// Takes a peer out that is gone.
    pub(crate) fn remove(&mut self, id: PeerId) {
        let Some(mut peer) = self.slots.get_mut(id.0 as usize).and_then(Option::take) else { return };
        for session in peer.sessions() {
            self.by_epoch.remove(&session.epoch());
        }
        self.last = None;
        self.free.push_back(id);
    }

    /// It is to be looked at.
    #[inline]
    pub(crate) fn touch(&mut self, id: PeerId) {
        if let Some(peer) = self.slots.get_mut(id.0 as usize).and_then(Option::as_mut)
            && !peer.is_dirty
        {
            peer.is_dirty = true;
            self.dirty.push(id);
        }
    }

    /// The next that is to be looked at; it is not any more.
    #[inline]
    pub(crate) fn take_dirty(&mut self) -> Option<PeerId> {
        let id = self.dirty.pop()?;
        if let Some(peer) = self.get(id) {
            peer.is_dirty = false;
        }
        Some(id)
    }

    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// All of them.
    pub(crate) fn ids(&self) -> impl Iterator<Item = PeerId> {
        (0..self.slots.len()).filter(|&at| self.slots[at].is_some()).map(|at| PeerId(at as u16))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Peer<A>> {
        self.slots.iter_mut().filter_map(Option::as_mut)
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

impl<A: Copy + Eq + Hash> Wire for Peers<A> {
    #[inline]
    fn room(&mut self, peer: PeerId, stream: u16, want: usize) -> usize {
        let way = self.get(peer).and_then(Peer::way);
        way.map_or(0, |session| link::room(session, stream, want))
    }

    #[inline]
    fn datagram_room(&mut self, peer: PeerId, stream: u16, want: usize) -> usize {
        let way = self.get(peer).and_then(Peer::way);
        way.map_or(0, |session| link::datagram_room(session, stream, want))
    }

    #[inline]
    fn send(
        &mut self,
        peer: PeerId,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let slot = self.slots.get_mut(peer.0 as usize).and_then(Option::as_mut);
        let Some(session) = slot.and_then(Peer::way) else { return false };
        let sent = link::send(session, &mut self.scratch, stream, head, data_len, fill);
        if sent {
            self.touch(peer);
        }
        sent
    }
}
