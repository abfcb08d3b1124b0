//! The I/O box: Functions, and the sessions of the hosts that use them.

mod far;
mod host;

use std::collections::VecDeque;
use std::fmt;
use std::hash::Hash;

use etherslot_fabric::{DeviceConfig, LeaseConfig, Leases};
use etherslot_pci::endpoint::Endpoint;
use etherslot_pci::hierarchy::Hierarchy;
use etherslot_seal::{PublicKey, is_protected};
use etherslot_session::{
    Config as SessionConfig, DeadReason, Heard, Listener, Routes, Session, State as SessionState, parse_frame,
};
use etherslot_wire::control::{CloseReason, Name, feature};
use etherslot_wire::discovery::Port;
use etherslot_wire::frame::{Header, Kind as FrameKind};
use etherslot_wire::handshake::is_handshake;

use crate::guard::{BoxGuard, Came, GuardCounters, Keys, Protection, Security, destination};
use crate::random::Epochs;
use crate::session_event::{SessionEvent, SessionEvents};
pub use far::FarCounters;
use far::{Far, Outlook};
use host::{Attachment, CONTROL_BACKLOG, Host, Inbound, Owned, Shared};

/// Handshake replies that wait to be sent.
const REPLIES: usize = 16;
const REPLY_BYTES: usize = etherslot_wire::frame::MIN_FRAME_BYTES;

/// What a box has counted, beside its sessions and hierarchies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxCounters {
    /// Frames that are no frames, or were damaged.
    pub malformed_frames: u64,
    /// Frames of no session of ours: other epochs, other senders.
    pub foreign_frames: u64,
    /// Hellos that were not answered.
    pub hellos_dropped: u64,
    /// Records that nothing here takes.
    pub stray_records: u64,
    /// Sessions that came up.
    pub sessions_up: u64,
    /// Sessions that died.
    pub sessions_dead: u64,
}

/// How many hosts and slots a box has room for.
#[derive(Clone, Copy, Debug)]
pub struct BoxLimits {
    /// Sessions at once.
    pub sessions: usize,
}

impl Default for BoxLimits {
    fn default() -> Self {
        Self { sessions: 64 }
    }
}

struct Reply<A> {
    to: A,
    bytes: [u8; REPLY_BYTES],
    length: usize,
}

/// An I/O box.
pub struct BoxNode<A: Copy + Eq> {
    limits: BoxLimits,
    /// Streams a session has.
    streams: u16,
    epochs: Epochs,
    /// Of a node with credentials.
    guard: Option<Box<BoxGuard<A>>>,
    dead_after_ns: u64,
    listener: Listener<A>,
    hosts: Vec<Host<A>>,
    config: SessionConfig,
    far: Far<A>,
    shared: Shared,
    replies: VecDeque<Reply<A>>,
    counters: BoxCounters,
    events: SessionEvents<A>,
    /// No further hosts are taken.
    is_closing: bool,
}

/// The way upstream of a Function that no host has: there is none.
struct Nowhere;

impl etherslot_pci::TlpOut for Nowhere {
    fn room(&mut self, _stream: u16) -> usize {
        0
    }

    fn send(&mut self, _stream: u16, _header: &etherslot_wire::tlp::Header, _data: &[u8]) -> bool {
        false
    }
}

impl<A: Copy + Eq + Hash + fmt::Display> BoxNode<A> {
    /// A box with these Functions, whose names are unique; `seed` makes its epochs differ from those of its earlier
    /// lives.
    pub fn new(
        config: &SessionConfig,
        limits: BoxLimits,
        seed: u64,
        functions: Vec<(Name, Box<Endpoint>)>,
    ) -> Self {
        let devices = functions.iter().map(|&(name, _)| DeviceConfig { name, group: None });
        let leases = Leases::new(LeaseConfig::default(), devices);
        let functions = functions.into_iter().map(|(name, endpoint)| Owned {
            name,
            owners: None,
            endpoint: Some(endpoint),
        });
        Self {
            limits,
            streams: config.streams,
            epochs: Epochs::new(seed),
            guard: None,
            dead_after_ns: config.dead_after_ns,
            listener: Listener::new(config),
            hosts: Vec::new(),
            config: config.clone(),
            far: Far::new(config, Box::new(|_| Vec::new())),
            shared: Shared { functions: functions.collect(), leases },
            replies: VecDeque::with_capacity(REPLIES),
            counters: BoxCounters::default(),
            events: SessionEvents::default(),
            is_closing: false,
        }
    }

    /// Gives out the Functions by this table, which has them in the order of [`BoxNode::new`]. Without it, each is for any
    /// host, the first that asks.
    ///
    /// # Panics
    /// If the table is of other Functions.
    pub fn with_leases(mut self, leases: Leases) -> Self {
        assert!(leases.iter().map(|lease| lease.name).eq(self.shared.functions.iter().map(|own| own.name)));
        self.shared.leases = leases;
        self
    }

    /// Lets hosts join their Functions here with those in other boxes. `places` says where a port that a host tells of is, seen from here: on
    /// each link that may lead there. To be said before anything else.
    pub fn with_boxes(mut self, places: impl Fn(&Port) -> Vec<A> + 'static) -> Self {
        let features = self.config.features | feature::BOXES | feature::JOINS;
        self.listener = Listener::new(&SessionConfig { features, ..self.config.clone() });
        self.far = Far::new(&self.config, Box::new(places));
        self
    }

    /// Whose the Functions are. Who keeps [`Leases::image`] for the next life does so between [`BoxNode::poll`] and
    /// [`BoxNode::transmit`]: then no host hears of a lease that could be forgotten.
    pub fn leases(&self) -> &Leases {
        &self.shared.leases
    }

    /// The same, for orders.
    pub fn leases_mut(&mut self) -> &mut Leases {
        &mut self.shared.leases
    }

    /// Protects all sessions. Their [`SessionConfig::is_link_intact`] should be set: a sealed frame needs no check.
    pub fn protect(&mut self, mut security: Security) {
        let (credentials, entropy) = (security.credentials.clone(), security.entropy.fork());
        self.far.protect(Security { credentials, entropy });
        self.guard = Some(Box::new(BoxGuard::new(security, self.dead_after_ns)));
    }

    /// The Function of this name is for these nodes alone: others are answered as if it were not there.
    pub fn set_owners(&mut self, name: Name, owners: Vec<PublicKey>) {
        if let Some(function) = self.shared.functions.iter_mut().find(|function| function.name == name) {
            function.owners = Some(owners);
        }
    }

    /// Takes a frame that came from `from`.
    pub fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        if let Some(mut guard) = self.guard.take() {
            self.receive_guarded(&mut guard, now_ns, from, frame);
            self.guard = Some(guard);
            return;
        }
        match parse_frame(frame) {
            Ok((header, body)) => self.take(now_ns, from, &header, body),
            Err(_) => self.counters.malformed_frames += 1,
        }
    }

    fn receive_guarded(&mut self, guard: &mut BoxGuard<A>, now_ns: u64, from: &A, frame: &[u8]) {
        if self.far.receive_guarded(guard, now_ns, from, frame, &mut self.hosts) {
            return;
        }
        let epoch = destination(frame);
        let is_for = |host: &&mut Host<A>| epoch != 0 && host.session.epoch() == epoch;
        if let Some(host) = self.hosts.iter_mut().find(is_for)
            && let Some(keys) = &mut host.keys
            && is_protected(frame)
            && !is_handshake(frame)
        {
            if let Some((header, bytes)) = guard.open(keys, frame) {
                self.take(now_ns, from, &header, &guard.room[..bytes]);
            } else if keys.channel.opener.is_worn() {
                host.session.close(CloseReason::Protocol);
            }
            return;
        }
        let mut reply = Reply { to: *from, bytes: [0; REPLY_BYTES], length: 0 };
        let hosts = &self.hosts;
        let far = &self.far;
        let is_taken = |epoch| hosts.iter().any(|host| host.session.epoch() == epoch) || far.is_taken(epoch);
        match guard.receive(now_ns, from, frame, &is_taken, &mut reply.bytes) {
            Came::Nothing => {}
            Came::Reply(length) if self.replies.len() < REPLIES => {
                self.replies.push_back(Reply { length, ..reply });
            }
            Came::Reply(_) => self.counters.hellos_dropped += 1,
            Came::Hello { at, header, bytes } => {
                let (epoch, mut plain) = (guard.epoch(at), [0; REPLY_BYTES]);
                let body = &guard.room[..bytes];
                match self.listener.handle_hello(now_ns, *from, &header, body, epoch, &mut plain) {
                    Heard::Reply(length) if self.replies.len() < REPLIES => {
                        if let Some(length) = guard.seal(at, &plain[..length], &mut reply.bytes) {
                            self.replies.push_back(Reply { length, ..reply });
                        }
                    }
                    Heard::Accept(session) => self.accept(now_ns, *from, session, Some(guard.take(at))),
                    _ => self.counters.hellos_dropped += 1,
                }
            }
        }
    }

    /// Takes a frame that is whole and, in a node with keys, authentic.
    fn take(&mut self, now_ns: u64, from: &A, header: &Header, body: &[u8]) {
        let mut at = None;
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if host.session.epoch() == header.dst_epoch
                && let Some(path) = host.routes.path_or_join(&mut host.session, now_ns, from, header)
            {
                at = Some((index, path));
                break;
            }
        }
        if let Some((index, path)) = at {
            let host = &mut self.hosts[index];
            let mut inbound = Inbound {
                now_ns,
                hierarchy: &mut host.hierarchy,
                asked: &mut host.asked,
                stray: &mut self.counters.stray_records,
            };
            host.session.handle_frame_on(now_ns, path, header, body, &mut inbound);
            return;
        }
        if self.far.take(now_ns, from, header, body, &mut self.hosts) {
            return;
        }
        if header.kind == FrameKind::Hello && !self.is_closing {
            self.hello(now_ns, *from, header, body);
        } else {
            self.counters.foreign_frames += 1;
        }
    }

    fn hello(&mut self, now_ns: u64, from: A, header: &Header, body: &[u8]) {
        let mut bytes = [0; REPLY_BYTES];
        match self.listener.handle_hello(now_ns, from, header, body, self.epochs.next(), &mut bytes) {
            Heard::Reply(length) if self.replies.len() < REPLIES => {
                self.replies.push_back(Reply { to: from, bytes, length });
            }
            Heard::Accept(session) => self.accept(now_ns, from, session, None),
            _ => self.counters.hellos_dropped += 1,
        }
    }

    /// A host has proved that it lives now: an earlier session of the same node is over.
    fn accept(&mut self, now_ns: u64, from: A, session: Box<Session>, keys: Option<Keys>) {
        if session.has(feature::JOINS) {
            self.far.accept(from, session, keys, &mut self.hosts);
            return;
        }
        let node = session.peer().map(|hello| hello.node).unwrap_or_default();
        if let Some(earlier) = self.hosts.iter().position(|host| host.node == node) {
            tracing::info!(host = %from, "host came back with a new epoch");
            self.drop_host(now_ns, earlier, false, None);
        }
        if self.hosts.len() >= self.limits.sessions {
            tracing::warn!(host = %from, "no room for a further session");
            self.counters.hellos_dropped += 1;
            return;
        }
        tracing::info!(host = %from, "session up");
        self.counters.sessions_up += 1;
        self.events.push(SessionEvent::Up { peer: from });
        let mut hierarchy = Hierarchy::new();
        // The slots of a host belong to guests with address spaces of their own: what is a BAR of one is memory of another. The host
        // says which of them share one.
        hierarchy.set_peer_to_peer(false);
        self.hosts.push(Host {
            keys: keys.map(Box::new),
            address: from,
            routes: Routes::new(from),
            session,
            node,
            group: None,
            hierarchy,
            attachments: Vec::new(),
            asked: VecDeque::with_capacity(CONTROL_BACKLOG),
            answers: VecDeque::with_capacity(CONTROL_BACKLOG),
            outlooks: (0..Hierarchy::SLOTS).map(|_| Outlook::default()).collect(),
            is_far: false,
            admitted: Vec::new(),
        });
    }

    fn drop_host(&mut self, now_ns: u64, index: usize, on_purpose: bool, reason: Option<DeadReason>) {
        let mut host = self.hosts.swap_remove(index);
        self.far.is_moved = true;
        self.events.push(SessionEvent::Dead { peer: host.address, reason });
        self.counters.sessions_dead += 1;
        for attachment in std::mem::take(&mut host.attachments) {
            if self.shared.give_back(&mut host.hierarchy, attachment) {
                let leases = &mut self.shared.leases;
                if on_purpose {
                    leases.released(now_ns, attachment.function);
                } else {
                    leases.owner_lost(now_ns, attachment.function);
                }
            }
        }
    }

    /// Does what the leases say.
    fn recall(&mut self, now_ns: u64) -> bool {
        let mut progress = self.shared.leases.poll(now_ns);
        while let Some(action) = self.shared.leases.action() {
            progress = true;
            let host = self.hosts.iter_mut().find(|host| host.node == action.host);
            let attached = host.and_then(|host| {
                let is_it = |it: &Attachment| it.function == action.device && it.slot.is_some();
                let at = host.attachments.iter().position(is_it)?;
                Some((host, at))
            });
            if let Some((host, at)) = attached {
                host.recall(now_ns, at, action.kind, &mut self.shared, &mut self.far);
            } else {
                // Its session has just died.
                self.shared.leases.released(now_ns, action.device);
            }
        }
        progress
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        let mut progress = self.recall(now_ns);
        let mut index = 0;
        while let Some(host) = self.hosts.get_mut(index) {
            if host.session.deadline_ns().is_some_and(|at| at <= now_ns) {
                host.session.handle_timeout(now_ns);
            }
            if let SessionState::Dead(reason) = host.session.state() {
                let goodbye = DeadReason::PeerClosed(CloseReason::Shutdown);
                if reason == goodbye {
                    tracing::info!(host = %host.address, "session over: the host has stopped");
                } else if !self.is_closing {
                    tracing::warn!(host = %host.address, ?reason, "session dead");
                }
                self.drop_host(now_ns, index, reason == goodbye, Some(reason));
                progress = true;
                continue;
            }
            progress |= host.go_on(now_ns, self.streams, &mut self.shared, &mut self.far);
            index += 1;
        }
        progress |= self.reach(now_ns);
        // What a Function without a host still has to finish, such as the writes of its medium under way.
        for function in &mut self.shared.functions {
            if let Some(endpoint) = &mut function.endpoint {
                progress |= endpoint.poll(now_ns, &mut Nowhere, 0);
            }
        }
        progress
    }

    /// Goes on with what is between this box and others.
    fn reach(&mut self, now_ns: u64) -> bool {
        let mut severed = Vec::new();
        let progress = self.far.poll(now_ns, self.streams, &mut self.epochs, &mut self.hosts, &mut severed);
        for &(epoch, slot, life) in &severed {
            let host = self.hosts.iter_mut().find(|host| host.session.epoch() == epoch);
            if let Some(host) = host.filter(|host| host.outlooks[usize::from(slot)].is(life)) {
                host.sever(now_ns, slot, &mut self.shared, &mut self.far);
            }
        }
        progress | !severed.is_empty()
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        let mut progress = self.far.transmit(now_ns, send);
        while let Some(reply) = self.replies.front() {
            if send(&reply.to, &[&reply.bytes[..reply.length]]) == 0 {
                break;
            }
            self.replies.pop_front();
            progress = true;
        }
        for host in &mut self.hosts {
            let routes = &host.routes;
            if let Some(keys) = &mut host.keys {
                progress |= keys.transmit(now_ns, &mut host.session, routes, send);
                continue;
            }
            progress |= host.session.transmit_paths(now_ns, &mut |path, frames| {
                routes.address(path).map_or(0, |address| send(&address, frames))
            });
        }
        progress
    }

    /// When [`BoxNode::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let hosts =
            self.hosts.iter().flat_map(|host| [host.session.deadline_ns(), host.hierarchy.deadline_ns()]);
        // What is sealed is to leave as soon as a Port takes it.
        let is_waiting =
            self.hosts.iter().any(|host| host.keys.as_ref().is_some_and(|keys| keys.is_waiting()));
        let free = self
            .shared
            .functions
            .iter()
            .filter_map(|function| function.endpoint.as_ref())
            .map(|free| free.deadline_ns());
        let leases = self.shared.leases.deadline_ns();
        let far = self.far.deadline_ns(&self.hosts);
        hosts.chain(free).chain([leases, far, is_waiting.then_some(0)]).flatten().min()
    }

    /// Says goodbye to all hosts, a few times, as no host answers, and takes no others: the rounds have to go on until
    /// [`BoxNode::is_closed`], some round-trip times later and within half a second.
    pub fn close(&mut self) {
        self.is_closing = true;
        self.far.close();
        for host in &mut self.hosts {
            host.session.close(CloseReason::Shutdown);
        }
    }

    /// Whether all that [`BoxNode::close`] began is done.
    pub fn is_closed(&self) -> bool {
        self.is_closing && self.hosts.is_empty() && self.far.is_closed()
    }

    /// The next session that came up or died, of the last 64 that nobody took.
    pub fn session_event(&mut self) -> Option<SessionEvent<A>> {
        self.events.pop()
    }

    /// What was counted.
    pub fn counters(&self) -> &BoxCounters {
        &self.counters
    }

    /// What a node with keys has counted beside.
    pub fn guard_counters(&self) -> Option<GuardCounters> {
        let far = self.far.guard_counters().unwrap_or_default();
        self.guard.as_ref().map(|guard| guard.counters().plus(&far))
    }

    /// What was counted of the way to and from other boxes.
    pub fn far_counters(&self) -> &FarCounters {
        &self.far.counters
    }

    /// The sessions with other boxes: whether this one has begun it, where the other is, how it is protected.
    pub fn boxes(&self) -> impl Iterator<Item = (bool, &A, &Session, Option<Protection>)> {
        self.far.sessions()
    }

    /// The node's identity, if it has keys.
    pub fn public_key(&self) -> Option<PublicKey> {
        self.guard.as_ref().map(|guard| guard.public())
    }

    /// How the sessions are protected, in the order of [`BoxNode::hosts`].
    pub fn protections(&self) -> impl Iterator<Item = Option<Protection>> {
        self.hosts.iter().map(|host| host.keys.as_ref().map(|keys| keys.protection()))
    }

    /// The Functions and their names, in the order of [`BoxNode::new`].
    pub fn functions(&self) -> impl Iterator<Item = (Name, Option<&Endpoint>)> {
        self.shared.functions.iter().enumerate().map(|(at, function)| {
            let plugged = || {
                self.hosts.iter().find_map(|host| {
                    let slot = host.attachments.iter().find(|it| it.function == at)?.slot?;
                    host.hierarchy.endpoint(slot)
                })
            };
            (function.name, function.endpoint.as_deref().or_else(plugged))
        })
    }

    /// The sessions, their hosts' addresses and their hierarchies.
    pub fn hosts(&self) -> impl Iterator<Item = (&A, &Session, &Hierarchy)> {
        self.hosts.iter().map(|host| (&host.address, &*host.session, &host.hierarchy))
    }
}
