//! The two nodes and the network between them: the real `Session` and `Listener`, and what must hold of them.
//!
//! Node 0 connects and, when its session has died, connects again; node 1 listens, and lets a new session end the one
//! before it, as the daemons do. Everything is a function of the actions taken, so a run can be had again from its
//! actions. The clocks of the nodes have nothing to do with each other; clocks and sequences wrap during the run.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use etherslot_session::{Config, Deliver, Heard, Hello, Listener, Session, State, parse_frame};
use etherslot_wire::frame::{self, Header, Kind};
use etherslot_wire::record;

use crate::shim::Shim;

const US: u64 = 1_000;

/// From one end to the other while the network is fair.
const FAIR_DELAY_NS: u64 = 20 * US;
/// Events after which a fair run that has not come to rest never will.
const FAIR_EVENTS: usize = 4_000;
/// Where each node's clock stands when the world begins: 500 us before it wraps, and far away from that.
const CLOCK_NS: [u64; 2] = [(1 << 32) - 500 * US, 77_000_000_000];

/// Which epochs the nodes draw, life by life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Epochs {
    /// No number twice.
    Apart,
    /// Both the same: an end's epoch is always its peer's too.
    Same,
    /// A new epoch is what the peer had in the life before, so that the pair of a new life is the old one turned round.
    Crossed,
    /// Against the specification: every life of a node has the same.
    Reused,
}

impl Epochs {
    fn draw(self, at: usize, life: u32) -> u32 {
        match self {
            Self::Apart => 0xA0 + 0x10 * at as u32 + life,
            Self::Same => 1 + life,
            Self::Crossed => 1 + (life ^ at as u32),
            Self::Reused => 1 + at as u32,
        }
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    /// The frames that an end sent at one time arrive; it may be for the second time, or long after.
    Deliver(u16, Order),
    /// Nothing happens until the next timer.
    Timer,
    /// Nothing happens for so long that all timers are late.
    Sleep,
    /// The node loses all that it knows.
    Restart(usize),
    /// The application puts in one record, or as many as go in.
    Put(usize, Amount),
    /// The application stops taking what arrives, or goes on: the end gives no credit meanwhile.
    Hold(usize),
}

/// Which frames of a burst arrive, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Order {
    Forward,
    Backward,
    WithoutFirst,
    WithoutLast,
}

/// How much is put in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Amount {
    One,
    Full,
}

/// What may happen, how often.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Budget {
    pub(crate) timers: u32,
    pub(crate) sleeps: u32,
    pub(crate) restarts: [u32; 2],
    pub(crate) puts: [u32; 2],
    pub(crate) holds: u32,
    /// Frames that are taken a second time, by an end that has lost its memory or by its listener.
    pub(crate) replays: u32,
    /// Bursts are delivered as a whole, in any [`Order`], and puts fill the session.
    pub(crate) is_coarse: bool,
}

/// What is explored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) epochs: Epochs,
    /// Frames that each end takes from the first that is missing on; `None` is what the code itself gives.
    pub(crate) window: Option<u32>,
    pub(crate) mode: etherslot_session::Mode,
    pub(crate) budget: Budget,
    /// What is fixed before the choices begin.
    pub(crate) prelude: Prelude,
    pub(crate) sabotage: Sabotage,
    /// Actions in a row.
    pub(crate) depth: usize,
}

/// How a world begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prelude {
    /// Nothing has been sent.
    Fresh,
    /// A session is up.
    Up,
    /// A session was up and has carried records both ways; all its frames can come again. Then the node restarts.
    EarlierLife(usize),
}

/// What is wrong on purpose, to see that it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// Every frame that arrives is taken as one of the session that is there.
    IgnoresEpochs,
    /// The listening node never gives more than the first credit.
    GrantsNoCredit,
    /// Nobody asks for an answer.
    NeverAsks,
    /// The listening node takes a confirmation of an epoch that it has forgotten.
    TrustsConfirmations,
    /// The first Data frame of a session never arrives, however often it is sent.
    LosesFirst,
}

/// A node from one restart, or one session, to the next.
#[derive(Debug)]
struct Life {
    at: usize,
    epoch: u32,
    /// Node 1: the life of node 0 that confirmed it.
    partner: Option<usize>,
    put: u32,
    taken: u32,
    /// Whose records were taken.
    source: Option<usize>,
    /// The first sequence that it must not send, by all the credit that has reached it.
    credit: Option<u32>,
    /// The epoch that its last frame was addressed to.
    peer_epoch: u32,
}

/// One node.
struct End {
    session: Option<Session>,
    life: usize,
    /// Epochs drawn.
    lives: u32,
    shim: Shim,
    /// Hash of all that this node has met: node and time of an event, and the event.
    trail: u64,
    restarts: u32,
    puts: u32,
}

/// A burst of frames that one end handed over at one time.
struct Burst {
    from: usize,
    frames: Vec<Vec<u8>>,
    /// Whether a frame of it was taken.
    is_taken: bool,
}

/// Of what the explored states had something; an exploration that meets none of it shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) delivered: u64,
    pub(crate) lives: u64,
    pub(crate) dropped_epoch: u64,
    pub(crate) dropped_replay: u64,
    pub(crate) retransmissions: u64,
    pub(crate) rtos: u64,
    pub(crate) asked: u64,
}

/// The nodes, the network's memory, and what has been found wrong.
pub(crate) struct World {
    scope: Scope,
    config: Config,
    now_ns: u64,
    /// When the choices began.
    start_ns: u64,
    ends: [End; 2],
    listener: Listener<u8>,
    lives: Vec<Life>,
    /// Every frame ever sent.
    bursts: Vec<Burst>,
    packet_numbers: HashSet<(usize, u32, u64)>,
    timestamps: HashSet<(usize, u32, u32)>,
    timers: u32,
    sleeps: u32,
    holds: u32,
    replays: u32,
    delivered: u64,
    fault: Option<String>,
}

/// Takes records and checks them.
struct Sink<'a> {
    lives: &'a mut [Life],
    life: usize,
    delivered: &'a mut u64,
    fault: &'a mut Option<String>,
}

/// A record's bytes: the life that sent it, its place, then bytes that follow from these. Every second is longer than
/// a frame.
fn record_bytes(life: usize, place: u32) -> Vec<u8> {
    let len = if place % 2 == 1 { 600 } else { 40 };
    let head = [life as u32, place].map(u32::to_be_bytes).concat();
    head.iter().copied().chain((8..len).map(|at| (at + life + place as usize) as u8)).collect()
}

impl Deliver for Sink<'_> {
    fn record(&mut self, _kind: record::Kind, _stream: u16, payload: &[u8]) {
        *self.delivered += 1;
        let word = |at: usize| {
            payload.get(at..at + 4).and_then(|word| word.try_into().ok()).map_or(u32::MAX, u32::from_be_bytes)
        };
        let (source, place) = (word(0) as usize, word(4));
        let (life, lives) = (self.life, &mut *self.lives);
        let fault = if payload != record_bytes(source, place) {
            "is damaged"
        } else if lives[source].at == lives[life].at || !are_partners(lives, source, life) {
            "is of another life"
        } else if lives[life].source.is_some_and(|first| first != source) {
            "is of a second source"
        } else if place != lives[life].taken {
            "is not the next"
        } else {
            lives[life].source = Some(source);
            lives[life].taken += 1;
            return;
        };
        let next = lives[life].taken;
        self.fault
            .get_or_insert(format!("record {place} of life {source}, at life {life} after {next}: {fault}"));
    }
}

/// Whether one of the two has confirmed the other.
fn are_partners(lives: &[Life], one: usize, other: usize) -> bool {
    lives[one].partner == Some(other) || lives[other].partner == Some(one)
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let config = Config {
            max_frame_bytes: frame::MIN_FRAME_BYTES as u16,
            window_frames: 16,
            backlog_frames: 16,
            streams: 1,
            mode: scope.mode,
            probe_min_ns: 100 * US,
            rto_min_ns: 500 * US,
            heartbeat_ns: 2_000 * US,
            dead_after_ns: 8_000 * US,
            half_open: 2,
            first_sequence: u32::MAX,
            ..Config::default()
        };
        let end = |at| End {
            session: None,
            life: usize::MAX,
            lives: 0,
            shim: Shim::new(scope, at),
            trail: 0,
            restarts: 0,
            puts: 0,
        };
        let mut world = Self {
            scope: *scope,
            now_ns: 0,
            start_ns: 0,
            ends: [0, 1].map(end),
            listener: Listener::new(&config),
            config,
            lives: Vec::new(),
            bursts: Vec::new(),
            packet_numbers: HashSet::new(),
            timestamps: HashSet::new(),
            timers: 0,
            sleeps: 0,
            holds: 0,
            replays: 0,
            delivered: 0,
            fault: None,
        };
        world.settle(0);
        match scope.prelude {
            Prelude::Fresh => {}
            Prelude::Up => world.rest(0),
            Prelude::EarlierLife(restarted) => {
                world.rest(2);
                world.restart(restarted);
                world.settle(0);
            }
        }
        world.start_ns = world.now_ns;
        world
    }

    /// Runs fairly until a session is up and has carried so many records each way.
    fn rest(&mut self, records: u32) {
        if let Err(fault) = self.run_fair(records, 0) {
            self.fault.get_or_insert(format!("before the first choice: {fault}"));
        }
    }

    fn clock_ns(&self, at: usize) -> u64 {
        CLOCK_NS[at] + self.now_ns
    }

    /// What has been found wrong so far.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    fn blame(&mut self, fault: impl FnOnce() -> String) {
        self.fault.get_or_insert_with(fault);
    }

    /// Names this state. A node is a function of what it has met and when, so two runs in which both nodes have met the
    /// same are in the same state, however the events of one node stood between those of the other.
    pub(crate) fn key(&self) -> (u64, u64, u64) {
        (self.ends[0].trail, self.ends[1].trail, self.now_ns)
    }

    fn met(&mut self, at: usize, event: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.ends[at].trail, self.now_ns, event).hash(&mut hasher);
        self.ends[at].trail = hasher.finish();
    }

    pub(crate) fn seen(&self) -> Seen {
        let mut seen = Seen { delivered: self.delivered, lives: self.lives.len() as u64, ..Seen::default() };
        for session in self.ends.iter().filter_map(|end| end.session.as_ref()) {
            let counters = session.counters();
            seen.dropped_epoch += counters.dropped_epoch;
            seen.dropped_replay += counters.dropped_replay;
            seen.retransmissions += counters.retransmissions;
            seen.rtos += counters.rtos;
            seen.asked += counters.heartbeats_sent;
        }
        seen
    }

    /// What may happen in this state.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let budget = &self.scope.budget;
        let mut actions = Vec::new();
        for (index, burst) in self.bursts.iter().enumerate() {
            if burst.is_taken && self.replays >= budget.replays {
                continue;
            }
            let orders: &[Order] = match burst.frames.len() {
                1 => &[Order::Forward],
                _ => &[Order::Forward, Order::Backward, Order::WithoutFirst, Order::WithoutLast],
            };
            actions.extend(orders.iter().map(|&order| Action::Deliver(index as u16, order)));
        }
        if self.timers < budget.timers {
            actions.push(Action::Timer);
        }
        if self.sleeps < budget.sleeps {
            actions.push(Action::Sleep);
        }
        if self.holds < budget.holds {
            actions.push(Action::Hold(1));
        }
        for (at, end) in self.ends.iter().enumerate() {
            if end.restarts < budget.restarts[at] {
                actions.push(Action::Restart(at));
            }
            if end.puts < budget.puts[at] && end.session.as_ref().is_some_and(|session| session.room() > 0) {
                actions.push(Action::Put(at, if budget.is_coarse { Amount::Full } else { Amount::One }));
            }
        }
        actions
    }

    /// Lets it happen.
    pub(crate) fn act(&mut self, action: Action) {
        match action {
            Action::Deliver(index, order) => self.deliver_burst(index as usize, order),
            Action::Timer => {
                self.timers += 1;
                if let Some(at_ns) = self.next_timer_ns() {
                    self.now_ns = self.now_ns.max(at_ns);
                }
            }
            Action::Sleep => {
                self.sleeps += 1;
                self.now_ns += self.config.dead_after_ns;
            }
            Action::Restart(at) => {
                self.ends[at].restarts += 1;
                self.restart(at);
            }
            Action::Put(at, amount) => {
                self.ends[at].puts += 1;
                while self.put(at) && amount == Amount::Full {}
            }
            Action::Hold(at) => {
                self.holds += 1;
                self.ends[at].shim.is_holding ^= true;
                self.met(at, "hold");
            }
        }
        self.settle(0);
    }

    fn restart(&mut self, at: usize) {
        self.met(at, "restart");
        self.ends[at].session = None;
        if at == 1 {
            self.listener = Listener::new(&self.config);
        }
    }

    fn put(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let Some(session) = end.session.as_mut() else { return false };
        let bytes = record_bytes(end.life, self.lives[end.life].put);
        let done = session.send(record::Kind::Tlp, 0, &[], 0, &bytes, bytes.len()).is_ok();
        if done {
            self.lives[end.life].put += 1;
            self.met(at, "put");
            self.transmit(at);
        }
        done
    }

    fn deliver_burst(&mut self, index: usize, order: Order) {
        let burst = &self.bursts[index];
        let (from, was_taken, mut frames) = (burst.from, burst.is_taken, burst.frames.clone());
        match order {
            Order::Forward => {}
            Order::Backward => frames.reverse(),
            Order::WithoutFirst => drop(frames.remove(0)),
            Order::WithoutLast => drop(frames.pop()),
        }
        let mut is_taken = false;
        for frame in &frames {
            is_taken |= self.deliver(1 - from, frame);
        }
        self.bursts[index].is_taken |= is_taken;
        self.replays += u32::from(was_taken && is_taken);
        self.transmit(1 - from);
    }

    /// A frame arrives; whether it meant anything to the node.
    fn deliver(&mut self, to: usize, bytes: &[u8]) -> bool {
        let Ok((mut header, body)) = parse_frame(bytes) else { return false };
        self.ends[to].shim.incoming(&mut header);
        let now_ns = self.clock_ns(to);
        let (life, peer_epoch) = match self.lives.get(self.ends[to].life) {
            Some(life) => (self.ends[to].life, life.peer_epoch),
            None => (usize::MAX, 0),
        };
        let is_ours = |session: &&mut Session| {
            if self.scope.sabotage == Sabotage::IgnoresEpochs && header.kind == Kind::Data && peer_epoch != 0 {
                (header.dst_epoch, header.src_epoch) = (session.epoch(), peer_epoch);
            }
            session.epoch() == header.dst_epoch
        };
        if let Some(session) = self.ends[to].session.as_mut().filter(is_ours) {
            let dropped = dropped(session);
            if let Some(ack) = header.ack.filter(|_| header.src_epoch == peer_epoch) {
                let credit = self.lives[life].credit.get_or_insert(ack.credit);
                if before(*credit, ack.credit) {
                    *credit = ack.credit;
                }
            }
            let mut sink = Sink {
                lives: &mut self.lives,
                life,
                delivered: &mut self.delivered,
                fault: &mut self.fault,
            };
            session.handle_frame(now_ns, &header, body, &mut sink);
            let is_taken = dropped == self::dropped(session);
            if is_taken {
                self.met(to, bytes);
            }
            return is_taken;
        }
        to == 1 && header.kind == Kind::Hello && self.greet(&header, body, bytes)
    }

    /// A Hello for the listening node.
    fn greet(&mut self, header: &Header, body: &[u8], bytes: &[u8]) -> bool {
        let now_ns = self.clock_ns(1);
        let fresh = self.scope.epochs.draw(1, self.ends[1].lives);
        let mut reply = [0; frame::MIN_FRAME_BYTES];
        if self.scope.sabotage == Sabotage::TrustsConfirmations
            && header.dst_epoch != 0
            && !self.listener.is_half_open(header.dst_epoch)
        {
            let first = Header { dst_epoch: 0, ack: None, ..*header };
            let _ = self.listener.handle_hello(now_ns, 0, &first, body, header.dst_epoch, &mut reply);
        }
        match self.listener.handle_hello(now_ns, 0, header, body, fresh, &mut reply) {
            Heard::Reply(len) => {
                self.met(1, bytes);
                self.ends[1].lives += u32::from(parse_frame(&reply[..len]).is_ok_and(|(answer, _)| {
                    answer.src_epoch == fresh && answer.packet_number == 0
                }));
                self.launch(1, vec![reply[..len].to_vec()]);
                true
            }
            Heard::Accept(session) => {
                self.met(1, bytes);
                self.accept(*session, header);
                true
            }
            Heard::Dropped(_) => false,
        }
    }

    fn accept(&mut self, session: Session, confirm: &Header) {
        let is_partner = |life: &Life| life.at == 0 && life.epoch == confirm.src_epoch;
        let partner = self.lives.iter().rposition(is_partner);
        let epoch = session.epoch();
        if self.scope.epochs != Epochs::Reused
            && self.lives.iter().any(|life| life.at == 1 && life.epoch == epoch)
        {
            self.blame(|| format!("epoch {epoch:#x} begins a second session"));
        }
        if partner.is_none() || epoch == 0 {
            self.blame(|| format!("a session ({epoch:#x}, {:#x}) that nobody asked for", confirm.src_epoch));
        }
        self.begin(1, session, partner);
        // What a Hello said before it confirmed does not change with it.
        let peer: Option<Hello> = self.ends[1].session.as_ref().and_then(Session::peer);
        self.lives[self.ends[1].life].credit =
            peer.map(|peer| confirm.sequence_of_answer().wrapping_add(u32::from(peer.receive_window_frames)));
    }

    fn begin(&mut self, at: usize, session: Session, partner: Option<usize>) {
        self.ends[at].life = self.lives.len();
        self.lives.push(Life {
            at,
            epoch: session.epoch(),
            partner,
            put: 0,
            taken: 0,
            source: None,
            credit: None,
            peer_epoch: 0,
        });
        self.ends[at].session = Some(session);
    }

    /// When the next timer runs.
    fn next_timer_ns(&self) -> Option<u64> {
        let timer = |(at, end): (usize, &End)| {
            Some(end.session.as_ref()?.deadline_ns()?.saturating_sub(CLOCK_NS[at]))
        };
        self.ends.iter().enumerate().filter_map(timer).min()
    }

    /// Both nodes do what is due: timers, a new attempt after a death.
    fn settle(&mut self, _: u8) {
        for at in 0..2 {
            let now_ns = self.clock_ns(at);
            if let Some(session) = &mut self.ends[at].session
                && session.deadline_ns().is_some_and(|deadline| deadline <= now_ns)
            {
                session.handle_timeout(now_ns);
                self.met(at, "timer");
                self.transmit(at);
            }
            let is_over = |session: &Session| matches!(session.state(), State::Dead(_));
            if self.ends[at].session.as_ref().is_some_and(is_over) {
                self.ends[at].session = None;
            }
            if at == 0 && self.ends[0].session.is_none() {
                let epoch = self.scope.epochs.draw(0, self.ends[0].lives);
                self.ends[0].lives += 1;
                self.begin(0, Session::connect(&self.config, epoch, now_ns), None);
                self.met(0, "connect");
                self.transmit(0);
            }
        }
        self.check_agreement();
    }
}
