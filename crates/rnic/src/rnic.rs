//! The engine and its peers.

use std::collections::VecDeque;
use std::hash::Hash;

use etherslot_rdma::{Engine, Memory, PeerId};
use etherslot_session::{Deliver, Heard, Listener, Session, parse_frame};
use etherslot_wire::control::CONTROL_STREAM;
use etherslot_wire::frame::{self, Header, MIN_FRAME_BYTES};
use etherslot_wire::record::Kind;

use crate::epochs::Epochs;
use crate::peers::{Peers, Side};

/// Bytes of a message ([`Rnic::send_message`]) at most.
pub const MAX_MESSAGE_BYTES: usize = 1024;
/// Messages that wait to be fetched at most; a peer's next are dropped.
const MAX_MESSAGES: usize = 1024;
/// Codes of control messages from here on are the RNIC's owner's (docs/wire.md, section 8).
const FIRST_MESSAGE_CODE: u8 = 32;

/// What an RNIC is made with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The bounds of the engine; [`etherslot_rdma::Config::peers`] is that of the peers, too.
    pub engine: etherslot_rdma::Config,
    /// The sessions; [`etherslot_session::Config::rdma`] is set for them.
    pub session: etherslot_session::Config,
    /// What epochs come of: the caller's entropy.
    pub seed: u64,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that are none, or damaged.
    pub malformed_frames: u64,
    /// Frames of no session of ours.
    pub foreign_frames: u64,
    /// Records that nobody takes.
    pub stray_records: u64,
    /// Messages dropped because nobody fetched them.
    pub lost_messages: u64,
    /// Peers found, and lost.
    pub peers_found: u64,
    /// Peers lost.
    pub peers_lost: u64,
    /// Peers for whom there was no room.
    pub peers_refused: u64,
}

/// Makes what stands in front of datagrams that come from an address.
type MakeGrh<A> = Box<dyn Fn(&A) -> [u8; 40] + Send>;

/// An RNIC with its sessions. `A` is an address.
pub struct Rnic<A> {
    /// The engine. [`Rnic::transmit`] is to be called after work was posted to it.
    pub engine: Engine,
    peers: Peers<A>,
    listener: Listener<A>,
    config: etherslot_session::Config,
    epochs: Epochs,
    /// What datagrams of a peer find in front of them.
    grh: MakeGrh<A>,
    messages: VecDeque<(PeerId, Vec<u8>)>,
    /// The answer to a Hello, until a Port has taken it.
    reply: Option<(A, usize)>,
    reply_bytes: [u8; MIN_FRAME_BYTES],
    /// No session has to be looked at before.
    timer_ns: u64,
    counters: Counters,
}

/// Takes the records of one session.
struct Inbound<'a, M> {
    engine: &'a mut Engine,
    memory: &'a mut M,
    messages: &'a mut VecDeque<(PeerId, Vec<u8>)>,
    counters: &'a mut Counters,
    peer: PeerId,
    now_ns: u64,
}

impl<M: Memory> Deliver for Inbound<'_, M> {
    #[inline]
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        match kind {
            Kind::Ddp => self.engine.receive(self.now_ns, self.peer, payload, self.memory),
            Kind::Control if stream == CONTROL_STREAM && is_message(payload) => {
                if self.messages.len() < MAX_MESSAGES {
                    self.messages.push_back((self.peer, payload.to_vec()));
                } else {
                    self.counters.lost_messages += 1;
                }
            }
            _ => self.counters.stray_records += 1,
        }
    }
}

fn is_message(bytes: &[u8]) -> bool {
    bytes.len() <= MAX_MESSAGE_BYTES && bytes.first().is_some_and(|&code| code >= FIRST_MESSAGE_CODE)
}

impl<A: Copy + Eq + Hash> Rnic<A> {
    /// An RNIC without peers. `grh` makes what datagrams of a peer find in front of them.
    pub fn new(options: &Options, grh: impl Fn(&A) -> [u8; 40] + Send + 'static) -> Self {
        let config = etherslot_session::Config { rdma: true, ..options.session.clone() };
        Self {
            engine: Engine::new(&options.engine),
            peers: Peers::new(options.engine.peers),
            listener: Listener::new(&config),
            config,
            epochs: Epochs::new(options.seed),
            grh: Box::new(grh),
            messages: VecDeque::new(),
            reply: None,
            reply_bytes: [0; MIN_FRAME_BYTES],
            timer_ns: u64::MAX,
            counters: Counters::default(),
        }
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The peer at this address. The session is opened if there is none; what is posted meanwhile waits for it. `None`: there
    /// are too many peers.
    pub fn peer(&mut self, now_ns: u64, address: A) -> Option<PeerId> {
        if let Some(id) = self.peers.at(&address) {
            return Some(id);
        }
        let id = self.add(address)?;
        let epoch = self.fresh_epoch();
        let session = Session::connect(&self.config, epoch, now_ns);
        self.peers.begin(id, Side::Ours, Box::new(session));
        Some(id)
    }

    /// Where a peer is, or was.
    #[inline]
    pub fn address(&self, peer: PeerId) -> Option<A> {
        self.peers.address(peer)
    }

    /// How many peers there are.
    pub fn peers(&self) -> usize {
        self.peers.count()
    }

    fn fresh_epoch(&mut self) -> u32 {
        loop {
            let epoch = self.epochs.next();
            if !self.peers.is_epoch(epoch) && !self.listener.is_half_open(epoch) {
                return epoch;
            }
        }
    }

    fn add(&mut self, address: A) -> Option<PeerId> {
        let Some(id) = self.peers.add(address) else {
            self.counters.peers_refused += 1;
            return None;
        };
        self.counters.peers_found += 1;
        self.engine.find_peer(id);
        let grh = (self.grh)(&address);
        let known = self.engine.set_grh(id, &grh);
        debug_assert!(known.is_ok(), "the engine knows as many peers");
        Some(id)
    }

    /// A peer is over: its QPs fail.
    fn lose(&mut self, id: PeerId) {
        self.counters.peers_lost += 1;
        self.engine.lose_peer(id);
        self.peers.end(id);
    }

    /// Sends a message, of at most [`MAX_MESSAGE_BYTES`] and with a first byte of 32 or more, to a peer; false if that cannot
    /// be now. Messages are not lost while the session lasts, and come in order.
    pub fn send_message(&mut self, peer: PeerId, bytes: &[u8]) -> bool {
        let Some(session) = self.peers.get(peer).and_then(super::peers::Peer::way) else { return false };
        let sent = is_message(bytes)
            && session.send(Kind::Control, CONTROL_STREAM, bytes, 0, &[], bytes.len()).is_ok();
        if sent {
            self.peers.touch(peer);
        }
        sent
    }

    /// Whether a message has come.
    #[inline]
    pub fn has_messages(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The next message of a peer.
    pub fn next_message(&mut self) -> Option<(PeerId, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Whether the way to a peer is open: what is sent now leaves now.
    pub fn is_up(&mut self, peer: PeerId) -> bool {
        self.peers.get(peer).is_some_and(|peer| peer.way().is_some())
    }

    /// Whether a peer is known, be it that its session is not open yet.
    pub fn is_known(&mut self, peer: PeerId) -> bool {
        self.peers.get(peer).is_some_and(|peer| !peer.is_over)
    }

    /// Takes a frame.
    pub fn receive<M: Memory>(&mut self, now_ns: u64, from: &A, frame: &[u8], memory: &mut M) {
        let Ok((header, body)) = parse_frame(frame) else {
            self.counters.malformed_frames += 1;
            return;
        };
        if header.dst_epoch != 0
            && let Some(id) = self.peers.with_epoch(header.dst_epoch)
        {
            return self.take(now_ns, id, from, &header, body, memory);
        }
        if header.kind == frame::Kind::Hello {
            self.greet(now_ns, from, &header, body);
        } else {
            self.counters.foreign_frames += 1;
        }
    }

    fn take<M: Memory>(
        &mut self,
        now_ns: u64,
        id: PeerId,
        from: &A,
        header: &Header,
        body: &[u8],
        memory: &mut M,
    ) {
        let Self { engine, peers, messages, counters, .. } = self;
        let Some(peer) = peers.get(id).filter(|peer| peer.address == *from) else {
            counters.foreign_frames += 1;
            return;
        };
        let Some(side) = peer.side_of(header.dst_epoch) else { return };
        let Some(session) = peer.session(side) else { return };
        let mut inbound = Inbound { engine, memory, messages, counters, peer: id, now_ns };
        session.handle_frame(now_ns, header, body, &mut inbound);
        if peer.node.is_none() {
            peer.node =
                peer.session(side).as_ref().and_then(|session| session.peer()).map(|hello| hello.node);
        }
        self.peers.touch(id);
    }

    /// A peer wants to speak with us.
    fn greet(&mut self, now_ns: u64, from: &A, header: &Header, body: &[u8]) {
        // An answer that has not left yet goes first; the Hello is repeated.
        if self.reply.is_some() {
            return;
        }
        let epoch = self.fresh_epoch();
        let heard = self.listener.handle_hello(now_ns, *from, header, body, epoch, &mut self.reply_bytes);
        match heard {
            Heard::Reply(bytes) => self.reply = Some((*from, bytes)),
            Heard::Accept(session) => self.accept(from, session),
            Heard::Dropped(_) => self.counters.foreign_frames += 1,
        }
    }

    fn accept(&mut self, from: &A, session: Box<Session>) {
        let node = session.peer().map(|hello| hello.node);
        if let Some(id) = self.peers.at(from)
            && let Some(peer) = self.peers.get(id)
        {
            // Another node, or the same that has forgotten us.
            let is_new = peer.has(Side::Theirs) || peer.node.is_some() && peer.node != node;
            if is_new {
                self.lose(id);
            } else {
                peer.node = node;
                self.peers.begin(id, Side::Theirs, session);
                return;
            }
        }
        if let Some(id) = self.add(*from) {
            if let Some(peer) = self.peers.get(id) {
                peer.node = node;
            }
            self.peers.begin(id, Side::Theirs, session);
        }
    }

    /// Sends what there is to be sent, and lets the timers run up to now. `send` says how many frames, from the front, it took.
    /// Whether any was.
    pub fn transmit<M: Memory>(
        &mut self,
        now_ns: u64,
        memory: &mut M,
        send: &mut dyn FnMut(&A, &[&[u8]]) -> usize,
    ) -> bool {
        let mut any = false;
        if let Some((to, bytes)) = self.reply
            && send(&to, &[&self.reply_bytes[..bytes]]) == 1
        {
            self.reply = None;
            any = true;
        }
        self.engine.handle_timeout(now_ns);
        if now_ns >= self.timer_ns {
            self.timer_ns = u64::MAX;
            for id in self.peers.ids().collect::<Vec<_>>() {
                self.peers.touch(id);
            }
        }
        loop {
            self.engine.transmit(now_ns, memory, &mut self.peers);
            if !self.peers.has_dirty() {
                return any;
            }
            let sent = self.flush(now_ns, send);
            any |= sent;
            // What has left has made room for more.
            if !sent || self.peers.has_dirty() {
                return any;
            }
        }
    }

    /// Lets sessions send. Those that the Port has no room for stay to be looked at.
    fn flush(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        let mut any = false;
        while let Some(id) = self.peers.take_dirty() {
            let Some(peer) = self.peers.get(id) else { continue };
            let (address, mut is_blocked) = (peer.address, false);
            for session in peer.sessions() {
                if session.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                    session.handle_timeout(now_ns);
                }
                any |= session.transmit(now_ns, &mut |frames| {
                    let taken = send(&address, frames);
                    is_blocked |= taken < frames.len();
                    taken
                });
            }
            if peer.is_gone() {
                self.peers.remove(id);
            } else if !peer.is_over && peer.has_ended() {
                self.lose(id);
            } else {
                let deadline_ns = peer.deadline_ns().unwrap_or(u64::MAX);
                self.timer_ns = self.timer_ns.min(deadline_ns);
                if is_blocked {
                    self.peers.touch(id);
                    break;
                }
            }
        }
        any
    }

    /// Whether something could not leave because the Port had no room.
    pub fn is_blocked(&self) -> bool {
        self.peers.has_dirty() || self.reply.is_some()
    }

    /// Whether nothing is under way between us and any peer.
    pub fn is_idle(&mut self) -> bool {
        self.peers.iter_mut().all(crate::peers::Peer::is_idle)
    }

    /// When [`Rnic::transmit`] is to be called, if nothing comes before; it may have passed.
    pub fn deadline_ns(&self) -> Option<u64> {
        let own = Some(self.timer_ns).filter(|&at| at != u64::MAX);
        own.into_iter().chain(self.engine.deadline_ns()).min()
    }

    /// Says goodbye to all peers. [`Rnic::transmit`] is to be called until [`Rnic::peers`] is 0, or for as long as one
    /// cares.
    pub fn close(&mut self) {
        for id in self.peers.ids().collect::<Vec<_>>() {
            if self.is_known(id) {
                self.lose(id);
            }
        }
    }
}

impl<A> std::fmt::Debug for Rnic<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rnic")
            .field("engine", &self.engine)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
