//! The two nodes and the network between them, around the real `Session` and `Listener`.
//!
//! Node 0 connects and, when its session has died, connects again; node 1 listens, and lets a new session end the one
//! before it, as the daemons do. Everything is a function of the actions taken, so a run can be had again from its
//! actions. The clocks of the nodes have nothing to do with each other; clocks and sequences wrap during the run.

use std::hash::{DefaultHasher, Hash, Hasher};

use etherslot_session::{Config, Heard, Listener, Session, State, parse_frame};
use etherslot_wire::frame::{self, Header, Kind};
use etherslot_wire::record;

use crate::lives::{Lives, Sink, record_bytes};
use crate::scope::{Action, Epochs, Order, Prelude, Sabotage, Scope};
use crate::shim::Shim;

const US: u64 = 1_000;
pub(crate) const DEAD_AFTER_NS: u64 = 8_000 * US;
/// Of every life: an old frame may well fit a new session by its sequence.
pub(crate) const FIRST_SEQUENCE: u32 = u32::MAX;
/// The least window that a session has.
const LEAST_WINDOW: u32 = 16;
/// Where each node's clock stands when the world begins: 500 us before it wraps, and far away from that.
const CLOCK_NS: [u64; 2] = [(1 << 32) - 500 * US, 77_000_000_000];

/// One node.
pub(crate) struct End {
    pub(crate) session: Option<Session>,
    /// The life of the session.
    pub(crate) life: usize,
    /// Epochs drawn.
    drawn: u32,
    pub(crate) shim: Shim,
    /// Hash of all that this node has met, and when.
    trail: u64,
    restarts: u32,
    puts: u32,
}

/// Frames that one end handed over at one time.
pub(crate) struct Burst {
    pub(crate) from: usize,
    pub(crate) sent_ns: u64,
    frames: Vec<Vec<u8>>,
    /// It has meant something to its receiver.
    was_taken: bool,
}

/// What the explored runs had in them: an exploration that meets none of it shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) delivered: u64,
    pub(crate) lives: u64,
    /// Sessions that the listening node made for one life of the other.
    pub(crate) for_one_life: u64,
    /// Bursts that meant nothing to their receiver.
    pub(crate) refused: u64,
    pub(crate) dropped_epoch: u64,
    pub(crate) dropped_replay: u64,
    pub(crate) retransmissions: u64,
    pub(crate) asked: u64,
}

impl Seen {
    /// The most of each.
    pub(crate) fn most(self, other: Self) -> Self {
        Self {
            delivered: self.delivered.max(other.delivered),
            lives: self.lives.max(other.lives),
            for_one_life: self.for_one_life.max(other.for_one_life),
            refused: self.refused.max(other.refused),
            dropped_epoch: self.dropped_epoch.max(other.dropped_epoch),
            dropped_replay: self.dropped_replay.max(other.dropped_replay),
            retransmissions: self.retransmissions.max(other.retransmissions),
            asked: self.asked.max(other.asked),
        }
    }
}

/// The nodes, the network's memory, and what has been found wrong.
pub(crate) struct World {
    pub(crate) scope: Scope,
    config: Config,
    pub(crate) now_ns: u64,
    /// When the choices began.
    pub(crate) start_ns: u64,
    pub(crate) ends: [End; 2],
    listener: Listener<u8>,
    pub(crate) lives: Lives,
    /// Every frame ever sent.
    pub(crate) bursts: Vec<Burst>,
    timers: u32,
    sleeps: u32,
    holds: u32,
    replays: u32,
    refused: u64,
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let config = Config {
            max_frame_bytes: frame::MIN_FRAME_BYTES as u16,
            window_frames: LEAST_WINDOW as u16,
            backlog_frames: LEAST_WINDOW as u16,
            streams: 1,
            mode: scope.mode,
            probe_min_ns: 100 * US,
            rto_min_ns: 500 * US,
            heartbeat_ns: DEAD_AFTER_NS / 4,
            dead_after_ns: DEAD_AFTER_NS,
            half_open: 2,
            first_sequence: FIRST_SEQUENCE,
            ..Config::default()
        };
        let end = |at| End {
            session: None,
            life: 0,
            drawn: 0,
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
            lives: Lives::new(matches!(scope.epochs, Epochs::Reused(_))),
            bursts: Vec::new(),
            timers: 0,
            sleeps: 0,
            holds: 0,
            replays: 0,
            refused: 0,
        };
        world.settle();
        match scope.prelude {
            Prelude::Fresh => {}
            Prelude::Up => world.begin_fairly(0, 0),
            Prelude::Restarted(at) | Prelude::UpAgain(at) => {
                world.begin_fairly(0, 2);
                world.restart(at);
                world.settle();
                if scope.prelude == Prelude::UpAgain(at) {
                    let first = world.bursts.len() - usize::from(at == 0);
                    world.begin_fairly(first, 0);
                }
            }
        }
        world.start_ns = world.now_ns;
        world
    }

    fn begin_fairly(&mut self, first: usize, records: u32) {
        if let Err(fault) = self.run_fairly(first, false, records) {
            self.lives.blame(|| format!("before the first choice: {fault}"));
        }
    }

    fn clock_ns(&self, at: usize) -> u64 {
        CLOCK_NS[at] + self.now_ns
    }

    /// What has been found wrong so far.
    pub(crate) fn fault(&self) -> Option<String> {
        self.lives.fault.clone()
    }

    /// Names this state. A node is a function of what it has met and when, so two runs in which each node has met the
    /// same are in the same state, whatever the order between the events of one node and those of the other.
    pub(crate) fn key(&self) -> [u64; 4] {
        let spent = u64::from(self.timers) << 32 | u64::from(self.sleeps) << 16 | u64::from(self.replays);
        [self.ends[0].trail, self.ends[1].trail, self.now_ns, spent]
    }

    fn met(&mut self, at: usize, event: impl Hash) {
        let mut hasher = DefaultHasher::new();
        (self.ends[at].trail, self.now_ns, event).hash(&mut hasher);
        self.ends[at].trail = hasher.finish();
    }

    pub(crate) fn seen(&self) -> Seen {
        let mut seen = Seen {
            delivered: self.lives.delivered,
            lives: self.lives.len() as u64,
            for_one_life: self.lives.most_partners() as u64,
            refused: self.refused,
            ..Seen::default()
        };
        for session in self.ends.iter().filter_map(|end| end.session.as_ref()) {
            let counters = session.counters();
            seen.dropped_epoch += counters.dropped_epoch;
            seen.dropped_replay += counters.dropped_replay;
            seen.retransmissions += counters.retransmissions;
            seen.asked += counters.heartbeats_sent;
        }
        seen
    }

    /// What may happen in this state.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let budget = &self.scope.budget;
        let mut actions = Vec::new();
        for (index, burst) in self.bursts.iter().enumerate() {
            if burst.was_taken && self.replays >= budget.replays {
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
                actions.push(Action::Put(at));
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
                self.now_ns += DEAD_AFTER_NS;
            }
            Action::Restart(at) => {
                self.ends[at].restarts += 1;
                self.restart(at);
            }
            Action::Put(at) => {
                self.ends[at].puts += 1;
                while self.put(at) && self.scope.is_coarse {}
                self.transmit(at);
            }
            Action::Hold(at) => {
                self.holds += 1;
                self.ends[at].shim.is_holding ^= true;
                self.met(at, "hold");
            }
        }
        self.settle();
    }

    fn restart(&mut self, at: usize) {
        self.met(at, "restart");
        self.ends[at].session = None;
        if at == 1 {
            self.listener = Listener::new(&self.config);
        }
    }

    /// Puts in a record, if there is room.
    pub(crate) fn put(&mut self, at: usize) -> bool {
        let end = &mut self.ends[at];
        let Some(session) = end.session.as_mut() else { return false };
        let life = self.lives.of_mut(end.life);
        let bytes = record_bytes(end.life, life.put);
        let done = session.send(record::Kind::Tlp, 0, &[], 0, &bytes, bytes.len()).is_ok();
        if done {
            life.put += 1;
            self.met(at, "put");
        }
        done
    }

    pub(crate) fn deliver_burst(&mut self, index: usize, order: Order) {
        let burst = &self.bursts[index];
        let (to, was_taken, mut frames) = (1 - burst.from, burst.was_taken, burst.frames.clone());
        match order {
            Order::Forward => {}
            Order::Backward => frames.reverse(),
            Order::WithoutFirst => drop(frames.remove(0)),
            Order::WithoutLast => drop(frames.pop()),
        }
        let mut is_taken = false;
        for frame in &frames {
            is_taken |= self.deliver(to, frame);
        }
        self.bursts[index].was_taken |= is_taken;
        self.replays += u32::from(was_taken && is_taken);
        self.refused += u64::from(!is_taken);
        if is_taken {
            self.transmit(to);
        }
    }

    /// A frame arrives; whether it meant anything to the node. What a session drops for its epochs or its packet number
    /// leaves no trace in it; runs to rest that replay everything are there to see otherwise.
    fn deliver(&mut self, to: usize, bytes: &[u8]) -> bool {
        let now_ns = self.clock_ns(to);
        let Ok((mut header, body)) = parse_frame(bytes) else { return false };
        let end = &mut self.ends[to];
        let up = end.session.as_ref().filter(|session| session.state() == State::Up);
        let epochs = up.map(|session| (session.epoch(), self.lives.of(end.life).peer_epoch));
        if !end.shim.incoming(&mut header, epochs) {
            return false;
        }
        if let Some(session) = end.session.as_mut().filter(|session| session.epoch() == header.dst_epoch) {
            let dropped = |session: &Session| {
                let counters = session.counters();
                counters.dropped_epoch + counters.dropped_replay
            };
            let before = dropped(session);
            self.lives.heard(end.life, &header);
            session.handle_frame(now_ns, &header, body, &mut Sink(&mut self.lives, end.life));
            let is_taken = dropped(session) == before;
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
        let fresh = self.scope.epochs.draw(1, self.ends[1].drawn);
        let mut reply = [0; frame::MIN_FRAME_BYTES];
        if self.scope.sabotage == Sabotage::TrustsConfirmations && header.dst_epoch != 0 {
            let first = Header { dst_epoch: 0, ack: None, ..*header };
            let _ = self.listener.handle_hello(now_ns, 0, &first, body, header.dst_epoch, &mut reply);
        }
        let was_known = self.listener.is_half_open(fresh);
        let heard = self.listener.handle_hello(now_ns, 0, header, body, fresh, &mut reply);
        self.ends[1].drawn += u32::from(!was_known && self.listener.is_half_open(fresh));
        match heard {
            Heard::Reply(len) => {
                self.met(1, bytes);
                self.launch(1, None, &[&reply[..len]]);
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
        let epoch = session.epoch();
        let partner = self.lives.named(0, confirm.src_epoch);
        if partner.is_none() {
            self.lives.blame(|| format!("{epoch:#x} is of {:#x}, which never was", confirm.src_epoch));
        }
        if self.lives.is_used(1, epoch) {
            self.lives.blame(|| format!("epoch {epoch:#x} begins a second session"));
        }
        self.begin(1, session, partner);
    }

    fn begin(&mut self, at: usize, session: Session, partner: Option<usize>) {
        let credit = FIRST_SEQUENCE.wrapping_add(self.scope.window.unwrap_or(LEAST_WINDOW));
        self.ends[at].life = self.lives.begin(at, session.epoch(), partner, credit);
        self.ends[at].session = Some(session);
    }

    /// When the next timer runs.
    pub(crate) fn next_timer_ns(&self) -> Option<u64> {
        let timer = |(at, end): (usize, &End)| {
            Some(end.session.as_ref()?.deadline_ns()?.saturating_sub(CLOCK_NS[at]))
        };
        self.ends.iter().enumerate().filter_map(timer).min()
    }

    /// Both nodes do what is due: timers, and a new attempt after a death.
    pub(crate) fn settle(&mut self) {
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
                let epoch = self.scope.epochs.draw(0, self.ends[0].drawn);
                self.ends[0].drawn += 1;
                self.begin(0, Session::connect(&self.config, epoch, now_ns), None);
                self.met(0, "connect");
                self.transmit(0);
            }
            if let Some(deadline_ns) = self.ends[at].session.as_ref().and_then(Session::deadline_ns)
                && deadline_ns <= now_ns
            {
                self.lives.blame(|| format!("node {at} has done all it can and its timer is still due"));
            }
        }
        self.check_agreement();
    }

    /// Who connected is up only with a session that the other end has made for it.
    fn check_agreement(&mut self) {
        let end = &self.ends[0];
        if end.session.as_ref().is_none_or(|session| session.state() != State::Up) {
            return;
        }
        let peer_epoch = self.lives.of(end.life).peer_epoch;
        let peer = self.lives.named(1, peer_epoch);
        if peer.is_none_or(|peer| !self.lives.are_partners(end.life, peer)) {
            let life = end.life;
            self.lives.blame(|| format!("life {life} is up with {peer_epoch:#x}, which is not up with it"));
        }
    }

    /// Hands over what a node sends now.
    pub(crate) fn transmit(&mut self, at: usize) {
        let now_ns = self.clock_ns(at);
        let end = &mut self.ends[at];
        let Some(session) = &mut end.session else { return };
        let mut out: Vec<Vec<u8>> = Vec::new();
        session.transmit(now_ns, &mut |frames| {
            out.extend(frames.iter().map(|frame| frame.to_vec()));
            frames.len()
        });
        let life = end.life;
        let frames: Vec<&[u8]> = out.iter().map(Vec::as_slice).collect();
        self.launch(at, Some(life), &frames);
    }

    /// Frames leave for the network, from a session or, without a life, from the listener.
    fn launch(&mut self, from: usize, life: Option<usize>, frames: &[&[u8]]) {
        let frames: Vec<Vec<u8>> = frames.iter().map(|frame| self.ends[from].shim.outgoing(frame)).collect();
        for frame in &frames {
            let (header, _) = parse_frame(frame).expect("own frame");
            self.lives.said(from, life, &header);
        }
        let together = if self.scope.is_coarse { frames.len().max(1) } else { 1 };
        let bursts = frames.chunks(together).map(|frames| Burst {
            from,
            sent_ns: self.now_ns,
            frames: frames.to_vec(),
            was_taken: false,
        });
        self.bursts.extend(bursts);
    }
}
