//! The sessions of an RNIC with others, over a Port of its own.
//!
//! Each side opens a session to the other and sends its segments on that one; what comes is taken from both. So nobody has to be told who
//! begins, and a side that comes back after its death is noticed by its new session: then ours begins anew, too. Peers are those that were
//! configured, known by their addresses.

use std::collections::VecDeque;

use etherslot_rdma::{PeerId, Whereabouts, Wire};
use etherslot_rnic::{Epochs, Link as Way};
use etherslot_session::{Config, Deliver, Heard, Listener, Session, State, parse_frame};
use etherslot_wire::control::CloseReason;
use etherslot_wire::frame::{Kind as FrameKind, MIN_FRAME_BYTES};
use etherslot_wire::record::Kind;

use super::network::{Link, Network};

/// After a session has ended, the next attempt comes this much later.
const RETRY_NS: u64 = 50_000_000;

/// Where frames go and come from.
pub trait Frames<A> {
    /// Tells the time.
    fn tick(&mut self, _now_ns: u64) {}

    /// Hands over frames that have come, some at a time; how many. 0 if there is none.
    fn receive(&mut self, take: &mut dyn FnMut(&A, &[u8])) -> usize;

    /// Sends frames; how many, from the first on, were taken.
    fn send(&mut self, to: &A, frames: &[&[u8]]) -> usize;

    /// What drivers are told of where an address is; `None`: of our own.
    fn whereabouts(&self, _address: Option<&A>) -> Whereabouts {
        Whereabouts::Untold
    }
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Frames that are none, or damaged.
    pub malformed_frames: u64,
    /// Frames of no session of ours, and of no peer of ours.
    pub foreign_frames: u64,
    /// Records that are no segments.
    pub stray_records: u64,
    /// Sessions that came up.
    pub sessions_up: u64,
    /// Sessions that died.
    pub sessions_dead: u64,
}

/// A peer.
struct Peer<A> {
    address: A,
    /// The session that we have opened, and the one that it has.
    ours: Option<Box<Session>>,
    theirs: Option<Box<Session>>,
    link: Link,
    /// When to open a session again, if there is none.
    retry_ns: u64,
}

/// Segments that have come, one after the other.
#[derive(Default)]
struct Inbox {
    segments: VecDeque<(u16, u16)>,
    bytes: VecDeque<u8>,
    /// The first of them, in one piece.
    front: Vec<u8>,
    strays: u64,
}

impl Inbox {
    fn load_front(&mut self) {
        self.front.clear();
        if let Some(&(_, bytes)) = self.segments.front() {
            self.front.extend(self.bytes.drain(..usize::from(bytes)));
        }
    }

    fn pop(&mut self) {
        self.segments.pop_front();
        self.load_front();
    }
}

/// Takes the records of a session.
struct Inbound<'a> {
    inbox: &'a mut Inbox,
    session: u16,
}

impl Deliver for Inbound<'_> {
    fn record(&mut self, kind: Kind, _stream: u16, payload: &[u8]) {
        if kind != Kind::Ddp {
            self.inbox.strays += 1;
            return;
        }
        self.inbox.segments.push_back((self.session, payload.len() as u16));
        self.inbox.bytes.extend(payload);
        if self.inbox.segments.len() == 1 {
            self.inbox.load_front();
        }
    }
}

/// The sessions; session `n` is that with the peer of number `n`.
pub struct Sessions<A, F> {
    frames: F,
    core: Core<A>,
}

struct Core<A> {
    config: Config,
    listener: Listener<A>,
    peers: Vec<Peer<A>>,
    inbox: Inbox,
    /// The answer to a Hello, until it has been taken.
    reply: Option<(A, usize)>,
    reply_bytes: [u8; MIN_FRAME_BYTES],
    epochs: Epochs,
    lives: u64,
    scratch: Vec<u8>,
    counters: NetworkCounters,
}

impl<A: Copy + Eq, F: Frames<A>> Sessions<A, F> {
    /// Sessions with the peers at these addresses. `seed` makes epochs differ from those of earlier lives.
    pub fn new(frames: F, config: &Config, peers: &[A], seed: u64) -> Self {
        let config = Config { rdma: true, ..config.clone() };
        let peer = |&address| Peer { address, ours: None, theirs: None, link: Link::Coming, retry_ns: 0 };
        let core = Core {
            listener: Listener::new(&config),
            config,
            peers: peers.iter().map(peer).collect(),
            inbox: Inbox::default(),
            reply: None,
            reply_bytes: [0; MIN_FRAME_BYTES],
            epochs: Epochs::new(seed),
            lives: 0,
            scratch: Vec::new(),
            counters: NetworkCounters::default(),
        };
        Self { frames, core }
    }

    /// What has been counted so far.
    pub fn counters(&self) -> NetworkCounters {
        NetworkCounters { stray_records: self.core.inbox.strays, ..self.core.counters }
    }
}

impl<A: Copy + Eq> Core<A> {
    /// An epoch that no session of ours has.
    fn epoch(&mut self) -> u32 {
        loop {
            let epoch = self.epochs.next();
            let is_known = self.peers.iter().flat_map(Peer::sessions).any(|session| session.epoch() == epoch);
            if !is_known && !self.listener.is_half_open(epoch) {
                return epoch;
            }
        }
    }

    fn take(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        let Ok((header, body)) = parse_frame(frame) else {
            self.counters.malformed_frames += 1;
            return;
        };
        let Some(at) = self.peers.iter().position(|peer| peer.address == *from) else {
            self.counters.foreign_frames += 1;
            return;
        };
        let mut inbound = Inbound { inbox: &mut self.inbox, session: at as u16 };
        let peer = &mut self.peers[at];
        let its = peer.sessions_mut().find(|session| session.epoch() == header.dst_epoch);
        if let Some(session) = its {
            session.handle_frame(now_ns, &header, body, &mut inbound);
            return;
        }
        if header.kind != FrameKind::Hello || self.reply.is_some() {
            self.counters.foreign_frames += u64::from(header.kind != FrameKind::Hello);
            return;
        }
        let epoch = self.epoch();
        match self.listener.handle_hello(now_ns, *from, &header, body, epoch, &mut self.reply_bytes) {
            Heard::Reply(bytes) => self.reply = Some((*from, bytes)),
            Heard::Accept(session) => {
                self.counters.sessions_up += 1;
                let peer = &mut self.peers[at];
                if peer.theirs.replace(session).is_some()
                    && let Some(ours) = &mut peer.ours
                {
                    // It has begun a new life: what we had with it is over.
                    ours.close(CloseReason::Shutdown);
                } else if peer.is_unheard() {
                    // It is there, so it can be greeted again at once.
                    peer.ours = None;
                    peer.retry_ns = now_ns;
                }
            }
            Heard::Dropped(_) => self.counters.foreign_frames += 1,
        }
    }

    /// Opens, lets go, and tells how each peer's session is.
    fn look_at(&mut self, now_ns: u64, at: usize) -> bool {
        let mut any = false;
        let peer = &mut self.peers[at];
        for session in peer.sessions_mut() {
            if session.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                session.handle_timeout(now_ns);
                any = true;
            }
        }
        if peer.theirs.as_ref().is_some_and(|session| is_dead(session)) {
            peer.theirs = None;
            self.counters.sessions_dead += 1;
        }
        let link = match peer.ours.as_ref().map(|session| session.state()) {
            None | Some(State::Connecting) => {
                // Nobody has answered for long: it is not known whether there is such a peer.
                if peer.link == Link::Down { Link::Down } else { Link::Coming }
            }
            Some(State::Up) => {
                if let Link::Up(life) = peer.link {
                    Link::Up(life)
                } else {
                    self.lives += 1;
                    self.counters.sessions_up += 1;
                    any = true;
                    Link::Up(self.lives)
                }
            }
            Some(State::Closing) => Link::Down,
            Some(State::Dead(_)) => {
                peer.ours = None;
                peer.retry_ns = now_ns + RETRY_NS;
                self.counters.sessions_dead += 1;
                any = true;
                Link::Down
            }
        };
        peer.link = link;
        if peer.ours.is_none() && peer.retry_ns <= now_ns {
            let epoch = self.epoch();
            self.peers[at].ours = Some(Box::new(Session::connect(&self.config, epoch, now_ns)));
            any = true;
        }
        any
    }

    /// The session that we send on, if it is up; and a stream of it.
    fn way(&mut self, session: u16, stream: u16) -> (Way<'_>, u16) {
        let streams = self.config.streams.max(2);
        let peer = self.peers.get_mut(usize::from(session));
        let session = peer.and_then(|peer| peer.ours.as_deref_mut());
        // The driver chooses any number; the first stream is the sessions' own.
        (Way { session, scratch: &mut self.scratch }, 1 + stream.wrapping_sub(1) % (streams - 1))
    }

    /// Begins anew to look for a peer that has not answered.
    fn seek(&mut self, session: u16) {
        let Some(peer) = self.peers.get_mut(usize::from(session)) else { return };
        if peer.is_unheard() {
            peer.ours = None;
            peer.retry_ns = 0;
            peer.link = Link::Coming;
        }
    }
}

/// All segments of a call go on one session, whichever peer is said.
const ANY: PeerId = PeerId(0);

fn is_dead(session: &Session) -> bool {
    matches!(session.state(), State::Dead(_))
}

impl<A> Peer<A> {
    /// Whether our session, if there is one, is to be opened and nothing has come in answer.
    fn is_unheard(&self) -> bool {
        let is_unheard = |ours: &Session| {
            ours.peer().is_none() && matches!(ours.state(), State::Connecting | State::Dead(_))
        };
        self.ours.as_deref().is_none_or(is_unheard)
    }

    fn sessions(&self) -> impl Iterator<Item = &Session> {
        self.ours.as_deref().into_iter().chain(self.theirs.as_deref())
    }

    fn sessions_mut(&mut self) -> impl Iterator<Item = &mut Session> {
        self.ours.as_deref_mut().into_iter().chain(self.theirs.as_deref_mut())
    }
}

impl<A: Copy + Eq, F: Frames<A>> Network for Sessions<A, F> {
    fn sessions(&self) -> u16 {
        self.core.peers.len() as u16
    }

    fn link(&self, session: u16) -> Link {
        self.core.peers.get(usize::from(session)).map_or(Link::Down, |peer| peer.link)
    }

    fn poll(&mut self, now_ns: u64) -> bool {
        let Self { frames, core } = self;
        let mut any = false;
        frames.tick(now_ns);
        // What came before has to have been taken: so no more is kept here than one burst of frames brings.
        while core.inbox.segments.is_empty()
            && frames.receive(&mut |from, frame| core.take(now_ns, from, frame)) != 0
        {
            any = true;
        }
        for at in 0..core.peers.len() {
            any |= core.look_at(now_ns, at);
        }
        any
    }

    fn front(&self) -> Option<(u16, &[u8])> {
        let &(session, _) = self.core.inbox.segments.front()?;
        Some((session, &self.core.inbox.front))
    }

    fn pop(&mut self) {
        self.core.inbox.pop();
    }

    fn whereabouts(&self, session: Option<u16>) -> Whereabouts {
        match session {
            None => self.frames.whereabouts(None),
            Some(session) => match self.core.peers.get(usize::from(session)) {
                Some(peer) => self.frames.whereabouts(Some(&peer.address)),
                None => Whereabouts::Untold,
            },
        }
    }

    fn seek(&mut self, session: u16) {
        self.core.seek(session);
    }

    fn room(&mut self, session: u16, stream: u16, want: usize) -> usize {
        let (mut way, stream) = self.core.way(session, stream);
        way.room(ANY, stream, want)
    }

    fn datagram_room(&mut self, session: u16, stream: u16, want: usize) -> usize {
        let (mut way, stream) = self.core.way(session, stream);
        way.datagram_room(ANY, stream, want)
    }

    fn send(
        &mut self,
        session: u16,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let (mut way, stream) = self.core.way(session, stream);
        way.send(ANY, stream, head, data_len, fill)
    }

    fn flush(&mut self, now_ns: u64) -> bool {
        let Self { frames, core: Core { peers, reply, reply_bytes, .. } } = self;
        let mut any = false;
        if let Some((to, bytes)) = *reply
            && frames.send(&to, &[&reply_bytes[..bytes]]) == 1
        {
            *reply = None;
            any = true;
        }
        for peer in peers {
            let Peer { address, ours, theirs, .. } = peer;
            for session in ours.iter_mut().chain(theirs) {
                any |= session.transmit(now_ns, &mut |burst| frames.send(address, burst));
            }
        }
        any
    }

    fn deadline_ns(&self) -> Option<u64> {
        let sessions = self.core.peers.iter().flat_map(Peer::sessions).filter_map(Session::deadline_ns);
        let retries = self.core.peers.iter().filter(|peer| peer.ours.is_none()).map(|peer| peer.retry_ns);
        sessions.chain(retries).min()
    }
}
