//! The state machine of connections.

mod calls;
mod inbound;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use etherslot_netio::Address;
use etherslot_rdma::PeerId;
use etherslot_rnic::Rnic;
use etherslot_wire::cm::{MAX_BYTES, Message, Service, Space, Terms};

use super::CmError;
use crate::place;
use crate::queue::Queue;

/// Ids at most.
const MAX_IDS: usize = 1 << 15;
/// Requests that wait for a program, of a listener, at most and if it does not say.
const MAX_BACKLOG: usize = 1024;
/// Messages that wait for a session to open, or for room in it, at most.
const MAX_WAITING: usize = 4 * MAX_IDS;
/// Ports that are given out without being asked for: of each block of [`place::SLOTS`] one is a process's own.
const FIRST_PORT: u16 = 32_768;

/// When a question is asked again: after this, then twice as long each time, to the last.
const ASK_NS: (u64, u64) = (200_000_000, 1_600_000_000);
/// How long somebody is looked for.
const LOOK_NS: u64 = 10_000_000_000;
/// How long a Request or a Reply waits for its answer: a program makes it.
const ANSWER_NS: u64 = 60_000_000_000;
/// How long a Disconnect waits for its answer: the other library makes it.
const DISCONNECT_NS: u64 = 5_000_000_000;
/// How long a program is not told of the end of a connection whose last completions it has not taken.
const LAST_NS: u64 = 100_000_000;
/// When it is looked whether it has.
const TAKEN_NS: u64 = 500_000;
/// When what waits to be sent is tried again.
const RETRY_NS: u64 = 500_000;
/// Refusals that count. One may be of the moment in which a desk changes hands; and where an address has to be resolved on a
/// wire, which takes no time here, servers that begin to listen when their client sets out (perftest's) are in time.
const REFUSALS: u8 = 3;

/// Reasons of a Reject (IBA 12.6.7.2): nobody has the QP; no room; took too long; nobody listens.
const REASON_NO_QP: u16 = 1;
const REASON_NO_ROOM: u16 = 3;
const REASON_TIMEOUT: u16 = 4;
const REASON_NO_ID: u16 = 6;
const REASON_NOBODY: u16 = 8;
/// The program said so.
pub const REASON_CONSUMER: u16 = 28;

/// Status of events: numbers of errors, negative (asm-generic/errno.h).
const PROTOCOL: i32 = -71;
const RESET: i32 = -104;
const TIMED_OUT: i32 = -110;

/// An id: its place, and how many had the place before it. As a number it is what peers know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u32);

impl Id {
    fn new(place: usize, life: u16) -> Self {
        Self((place as u32) << 16 | u32::from(life))
    }

    fn place(self) -> usize {
        (self.0 >> 16) as usize
    }
}

/// What happened, by the numbers of `rdma_cm_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    /// The address is known.
    AddressResolved = 0,
    /// It cannot be reached.
    AddressError = 1,
    /// So is the way.
    RouteResolved = 2,
    /// Somebody wants to be connected.
    ConnectRequest = 4,
    /// The other side accepts; its terms are the event's.
    ConnectResponse = 5,
    /// Something went wrong.
    ConnectError = 6,
    /// The other side does not answer.
    Unreachable = 7,
    /// The other side refuses.
    Rejected = 8,
    /// Both sides are ready.
    Established = 9,
    /// The connection is over.
    Disconnected = 10,
}

/// An event of a program's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whose.
    pub id: Id,
    /// Of a request: whom it is for.
    pub listener: Option<Id>,
    /// What.
    pub kind: Kind,
    /// 0, a negative number of an error, or the reason of a Reject.
    pub status: i32,
    /// What the other side says of its QP.
    pub terms: Terms,
    /// What its program says.
    pub private: Vec<u8>,
}

/// Where an id is bound. Port 0: nowhere yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// None: any address.
    pub ip: Option<Ipv4Addr>,
    /// The port.
    pub port: u16,
}

/// What a program says when it connects or accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// Of its own QP. The number of the first message is made here, of a datagram service it is the `Q_Key`.
    pub terms: Terms,
    /// For the other program.
    pub private: Vec<u8>,
}

/// A question for the desk of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    pub serial: u32,
    /// Which node.
    pub ip: Ipv4Addr,
    /// Which port.
    pub space: Space,
    /// Which port.
    pub port: u16,
    /// How often it was asked before, and the answer did not come.
    pub repeats: u8,
}

/// What has been counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that are none.
    pub malformed: u64,
    /// Messages for no id, or not from its other side, or not at this time.
    pub stray: u64,
    /// Requests for which there was no room.
    pub refused: u64,
    /// Messages that could not be sent.
    pub unsent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Bound perhaps.
    Idle,
    Resolved,
    Routed,
    Listening {
        backlog: usize,
    },
    /// Asks which process it is.
    Looking {
        serial: u32,
        refusals: u8,
        again_ns: u64,
        wait_ns: u64,
        repeats: u8,
    },
    /// The Request is sent.
    Requested,
    /// It was accepted; our QP is made ready.
    Answered,
    /// Somebody's Request; the program has it, or will.
    Asked {
        listener: Id,
    },
    /// It was accepted; the other side makes its QP ready.
    Accepted,
    Connected,
    Disconnecting,
    /// The other side has ended it; the program has completions to take before it is told.
    Ending {
        again_ns: u64,
    },
    /// Was connected once, or nearly so.
    Over,
}

/// An id. Its kind of service is that of its space, until it is known better.
#[derive(Debug)]
struct Entry {
    life: u16,
    /// The program's name of it: 0 before it has one.
    name: u64,
    events: Arc<Queue<Event>>,
    space: Space,
    service: Service,
    phase: Phase,
    binding: Binding,
    /// Its port is none that it shares with a listener.
    owns_port: bool,
    /// Where the other side is: its node's address, and the port that it has there.
    remote: Option<SocketAddrV4>,
    peer: Option<PeerId>,
    /// The other side's id.
    remote_id: u32,
    ours: Setup,
    theirs: Terms,
    /// When the phase has lasted too long.
    until_ns: u64,
    /// Of a listener: requests that wait for the program.
    asked: usize,
}

/// All connections of a process.
#[derive(Debug)]
pub struct Connections {
    ip: Ipv4Addr,
    slot: u8,
    places: Vec<Option<Entry>>,
    lives: Vec<u16>,
    free: VecDeque<usize>,
    listeners: HashMap<(Space, u16), Id>,
    /// Ports of our ids.
    ports: HashSet<(Space, u16)>,
    /// Who waits for an answer of a desk, by the number of the question.
    looking: HashMap<u32, Id>,
    /// Ids with a Request that came, by who sent it.
    children: HashMap<(PeerId, u32), Id>,
    questions: VecDeque<Question>,
    /// What waits to be sent, in order.
    waiting: VecDeque<(PeerId, Vec<u8>)>,
    random: u64,
    counters: Counters,
}

type Result<T> = std::result::Result<T, CmError>;

/// The RNIC, whose sessions messages go on.
type Ways = Rnic<Address>;

impl Connections {
    /// Those of a process with this address and slot. `seed`: the caller's entropy.
    pub fn new(ip: Ipv4Addr, slot: u8, seed: u64) -> Self {
        Self {
            ip,
            slot,
            places: Vec::new(),
            lives: Vec::new(),
            free: VecDeque::new(),
            listeners: HashMap::new(),
            ports: HashSet::new(),
            looking: HashMap::new(),
            children: HashMap::new(),
            questions: VecDeque::new(),
            waiting: VecDeque::new(),
            random: seed,
            counters: Counters::default(),
        }
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Ids that there are.
    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Distinct from call to call, not secret (`SplitMix64`).
    fn next_random(&mut self) -> u32 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) >> 32) as u32
    }

    fn entry(&mut self, id: Id) -> Result<&mut Entry> {
        let entry = self.places.get_mut(id.place()).and_then(Option::as_mut);
        entry.filter(|entry| Id::new(id.place(), entry.life) == id).ok_or(CmError::State)
    }

    fn peek(&self, id: Id) -> Option<&Entry> {
        let entry = self.places.get(id.place()).and_then(Option::as_ref)?;
        (Id::new(id.place(), entry.life) == id).then_some(entry)
    }

    fn ids(&self) -> impl Iterator<Item = Id> {
        let of = |(place, entry): (usize, &Option<Entry>)| Some(Id::new(place, entry.as_ref()?.life));
        self.places.iter().enumerate().filter_map(of)
    }

    /// Makes an id whose events go there.
    pub fn create(&mut self, events: Arc<Queue<Event>>, space: Space, service: Service) -> Result<Id> {
        let place = match self.free.pop_front() {
            Some(place) => place,
            None if self.places.len() < MAX_IDS => {
                self.places.push(None);
                self.lives.push(0);
                self.places.len() - 1
            }
            None => return Err(CmError::NoRoom),
        };
        // Never 0, so no id is 0.
        let life = self.lives[place].wrapping_add(1).max(1);
        self.lives[place] = life;
        self.places[place] = Some(Entry {
            life,
            name: 0,
            events,
            space,
            service,
            phase: Phase::Idle,
            binding: Binding::default(),
            owns_port: false,
            remote: None,
            peer: None,
            remote_id: 0,
            ours: Setup::default(),
            theirs: Terms::default(),
            until_ns: u64::MAX,
            asked: 0,
        });
        Ok(Id::new(place, life))
    }

    /// The program's name of an id; 0: it has none yet. None: the id was destroyed.
    pub fn name(&self, id: Id) -> Option<u64> {
        self.peek(id).map(|entry| entry.name)
    }

    /// Gives an id the name that the program knows it by.
    pub fn set_name(&mut self, id: Id, name: u64) -> Result<()> {
        self.entry(id)?.name = name;
        Ok(())
    }

    /// Where an id is bound, and where its other side is.
    pub fn places(&self, id: Id) -> Result<(Binding, Option<SocketAddrV4>)> {
        self.peek(id).map(|entry| (entry.binding, entry.remote)).ok_or(CmError::State)
    }

    /// What kind of QP an id is for.
    pub fn service(&self, id: Id) -> Result<(Space, Service)> {
        self.peek(id).map(|entry| (entry.space, entry.service)).ok_or(CmError::State)
    }

    /// What both sides say of their QPs.
    pub fn terms(&self, id: Id) -> Result<(Terms, Terms)> {
        self.peek(id).map(|entry| (entry.ours.terms, entry.theirs)).ok_or(CmError::State)
    }

    /// Sends events of an id elsewhere, those that wait for the program, too.
    pub fn migrate(&mut self, id: Id, events: &Arc<Queue<Event>>) -> Result<()> {
        let entry = self.entry(id)?;
        let before = std::mem::replace(&mut entry.events, Arc::clone(events));
        let mut moved = Vec::new();
        before.retain(|event| {
            let is_its = event.listener.unwrap_or(event.id) == id;
            if is_its {
                moved.push(event.clone());
            }
            !is_its
        });
        for event in moved {
            // Those who ask go with whom they ask.
            if event.listener.is_some()
                && let Ok(child) = self.entry(event.id)
            {
                child.events = Arc::clone(events);
            }
            events.push(event);
        }
        Ok(())
    }

    // --- Ports ---

    /// Whether an id can be bound.
    pub fn may_bind(&self, id: Id) -> Result<Space> {
        let entry = self.peek(id).ok_or(CmError::State)?;
        let is_free = entry.phase == Phase::Idle && entry.binding.port == 0;
        is_free.then_some(entry.space).ok_or(CmError::State)
    }

    /// Binds an id to a port that it has for itself.
    pub fn bind(&mut self, id: Id, binding: Binding) -> Result<()> {
        let space = self.may_bind(id)?;
        if !self.ports.insert((space, binding.port)) {
            return Err(CmError::InUse);
        }
        let entry = self.entry(id)?;
        entry.binding = binding;
        entry.owns_port = true;
        Ok(())
    }

    /// A port that is none of ours: of those that no other process takes by itself, while there are such.
    pub fn free_port(&mut self, space: Space) -> Option<u16> {
        let blocks = (u16::MAX - FIRST_PORT) / u16::from(place::SLOTS);
        let first = self.next_random() as u16;
        let own = (0..blocks).map(|block| {
            FIRST_PORT + u16::from(self.slot) + u16::from(place::SLOTS) * (first.wrapping_add(block) % blocks)
        });
        let other = (0..=u16::MAX - FIRST_PORT).map(|number| FIRST_PORT | first.wrapping_add(number));
        own.chain(other).find(|&port| !self.ports.contains(&(space, port)))
    }

    /// Takes requests from now on. A `backlog` of 0 or less: as many as there may be.
    pub fn listen(&mut self, id: Id, backlog: i32) -> Result<(Space, u16)> {
        let entry = self.peek(id).ok_or(CmError::State)?;
        let key = (entry.space, entry.binding.port);
        if entry.phase != Phase::Idle || key.1 == 0 {
            return Err(CmError::State);
        }
        if self.listeners.contains_key(&key) {
            return Err(CmError::InUse);
        }
        self.listeners.insert(key, id);
        let backlog = usize::try_from(backlog).unwrap_or(0).min(MAX_BACKLOG);
        let backlog = if backlog == 0 { MAX_BACKLOG } else { backlog };
        self.entry(id)?.phase = Phase::Listening { backlog };
        Ok(key)
    }

    /// It could not be made known that an id listens.
    pub fn unlisten(&mut self, id: Id) {
        let Ok(entry) = self.entry(id) else { return };
        let key = (entry.space, entry.binding.port);
        if matches!(entry.phase, Phase::Listening { .. }) {
            entry.phase = Phase::Idle;
            self.listeners.remove(&key);
        }
    }

    /// Sends a message, now or as soon as that can be.
    fn send(&mut self, peer: PeerId, message: &Message<'_>) {
        let mut bytes = [0; MAX_BYTES];
        let length = message.emit(&mut bytes).filter(|_| self.waiting.len() < MAX_WAITING);
        match length {
            Some(length) => self.waiting.push_back((peer, bytes[..length].to_vec())),
            None => self.counters.unsent += 1,
        }
    }

    fn tell(&mut self, id: Id, kind: Kind, status: i32) {
        if let Some(entry) = self.peek(id) {
            let (terms, private) = (entry.theirs, Vec::new());
            entry.events.push(Event { id, listener: None, kind, status, terms, private });
        }
    }

    /// It comes to nothing: what waits for the program of it is overtaken by that.
    fn fail(&mut self, id: Id, kind: Kind, status: i32) {
        if let Some(entry) = self.peek(id) {
            entry.events.retain(|event| event.id != id || event.kind != Kind::ConnectResponse);
        }
        self.end(id);
        self.tell(id, kind, status);
    }

    /// Nothing more is said on it.
    fn end(&mut self, id: Id) {
        let Ok(entry) = self.entry(id) else { return };
        let phase = std::mem::replace(&mut entry.phase, Phase::Over);
        entry.until_ns = u64::MAX;
        let child = entry.peer.map(|peer| (peer, entry.remote_id));
        match phase {
            Phase::Asked { listener } => self.answered(listener),
            Phase::Looking { serial, .. } => drop(self.looking.remove(&serial)),
            _ => {}
        }
        if let Some(child) = child
            && self.children.get(&child) == Some(&id)
        {
            self.children.remove(&child);
        }
    }
}

impl CmError {
    /// As the status of an event: a negative number (asm-generic/errno.h).
    pub fn status(self) -> i32 {
        match self {
            Self::State | Self::Value => -22,
            Self::InUse => -98,
            Self::Address => -99,
            Self::NoRoom => -12,
            Self::Gone => RESET,
            Self::System(code) => -code,
        }
    }
}
