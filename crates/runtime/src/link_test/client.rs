//! The end that asks for a link test and measures it.

use std::fmt;

use etherslot_session::{CloseReason, Config, DeadReason, Deliver, Routes, Session, State, parse_frame};
use etherslot_wire::control::CONTROL_STREAM;
use etherslot_wire::record::Kind;

use super::latency::Histogram;
use super::message::{BULK_STREAM, MAX_BYTES, Message, PING_STREAM};
use super::report::{Flow, Latency};
use super::{FILLER, Plan};

/// Between two pings.
const PING_NS: u64 = 1_000_000;
/// Pings that may be unanswered before no more are sent.
const PINGS_MAX: u64 = 4096;
/// Between two questions what the server has received.
const MARK_NS: u64 = 50_000_000;
/// How long the server has to say that it knows what a link test is, and at the end to tell what it has received.
const ANSWER_NS: u64 = 3_000_000_000;
/// The beginning of the load that is not measured: this part of it, and no more than this long.
const WARM_UP_PART: u64 = 10;
const WARM_UP_NS: u64 = 500_000_000;

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// No session came up.
    #[error(
        "nobody answers there: start `etherslot link serve` at the peer, on a link that reaches this one"
    )]
    Silent,
    /// The session is a node's.
    #[error("the peer is no link test server: is it a box? Start `etherslot link serve` there")]
    NoServer,
    /// The session was lost under way.
    #[error("the session was lost: {0}")]
    Lost(DeadReason),
    /// The server has stopped answering.
    #[error("the server does not tell what it has received")]
    NoMarks,
    /// It was stopped before anything was measured.
    #[error("stopped")]
    Stopped,
}

/// What a test is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// No session yet, or no answer to our greeting.
    Connecting,
    /// Pings alone.
    Idle,
    /// Pings beside bulk.
    Loaded,
    /// The last answers are waited for.
    Ending,
    /// Over.
    Done,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Connecting => "connecting",
            Self::Idle => "idle",
            Self::Loaded => "loaded",
            Self::Ending | Self::Done => "ending",
        })
    }
}

/// How far a test is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What it is at.
    pub phase: Phase,
    /// How much of the idle and the loaded time has passed.
    pub passed_ns: u64,
    /// Both together.
    pub total_ns: u64,
    /// The rate to the peer lately, bits per second.
    pub to_peer: f64,
    /// The rate from the peer lately, bits per second.
    pub from_peer: f64,
}

/// Bytes received by some clock.
#[derive(Clone, Copy, Debug)]
struct Mark {
    now_ns: u64,
    bytes: u64,
}

/// What has been received of one direction: the first mark that counts, the last two.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    first: Option<Mark>,
    before: Option<Mark>,
    last: Option<Mark>,
}

impl Marks {
    fn add(&mut self, mark: Mark) {
        // A server that turns its clock back has no rate.
        if self.last.is_none_or(|last| mark.now_ns > last.now_ns && mark.bytes >= last.bytes) {
            self.first = self.first.or(Some(mark));
            self.before = self.last;
            self.last = Some(mark);
        }
    }

    fn flow(from: Option<Mark>, to: Option<Mark>) -> Option<Flow> {
        let (from, to) = from.zip(to)?;
        Some(Flow::new(to.bytes - from.bytes, to.now_ns - from.now_ns))
    }

    fn total(&self) -> Option<Flow> {
        Self::flow(self.first, self.last)
    }

    fn lately(&self) -> f64 {
        Self::flow(self.before, self.last).map_or(0.0, |flow| flow.bits_per_second)
    }
}

/// What arrives.
#[derive(Debug)]
struct Inbox {
    now_ns: u64,
    is_ready: bool,
    bulk_bytes: u64,
    /// When the last bulk record came, and the longest wait for one.
    bulk_ns: Option<u64>,
    pause_ns: u64,
    answered: u64,
    /// Answers to pings sent before this are not counted.
    counts_from_ns: u64,
    latency: Histogram,
    marked: Option<(u32, Mark)>,
}

impl Deliver for Inbox {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        match (kind, stream) {
            (Kind::Tlp, BULK_STREAM) => {
                self.bulk_bytes += payload.len() as u64;
                if let Some(before_ns) = self.bulk_ns.replace(self.now_ns) {
                    self.pause_ns = self.pause_ns.max(self.now_ns - before_ns);
                }
            }
            (Kind::Tlp, PING_STREAM) => {
                if let Ok(due) = payload.try_into() {
                    self.answered += 1;
                    let due_ns = u64::from_be_bytes(due);
                    if due_ns >= self.counts_from_ns && due_ns <= self.now_ns {
                        self.latency.add(self.now_ns - due_ns);
                    }
                }
            }
            (Kind::Control, CONTROL_STREAM) => match Message::parse(payload) {
                Some(Message::Ready) => self.is_ready = true,
                Some(Message::Marked { number, now_ns, bytes }) => {
                    self.marked = Some((number, Mark { now_ns, bytes }));
                }
                _ => {}
            },
            _ => {}
        }
    }
}

/// The measuring end of a link test.
#[derive(Debug)]
pub(crate) struct Client<A> {
    /// Addresses that are still to become paths.
    further: Vec<A>,
    routes: Routes<A>,
    plan: Plan,
    session: Session,
    inbox: Inbox,
    phase: Phase,
    /// When the phase began, and when it ends.
    since_ns: u64,
    until_ns: u64,
    /// A message that the session has had no room for yet.
    unsent: Option<Message>,
    begun: bool,
    /// When the next ping is due.
    ping_ns: u64,
    pings: u64,
    mark_ns: u64,
    mark: u32,
    /// The number of the first mark that counts.
    counting: Option<u32>,
    to_peer: Marks,
    from_peer: Marks,
    idle: Option<Latency>,
    loaded: Option<Latency>,
    failed: Option<Failed>,
}

impl<A: Copy + Eq> Client<A> {
    /// A test with the server at `peers`: at least one address. `epoch` is random, not 0.
    pub(crate) fn new(config: &Config, plan: Plan, peers: &[A], epoch: u32, now_ns: u64) -> Self {
        Self {
            further: peers[1..].to_vec(),
            routes: Routes::new(peers[0]),
            plan,
            session: Session::connect(config, epoch, now_ns),
            inbox: Inbox {
                now_ns,
                is_ready: false,
                bulk_bytes: 0,
                bulk_ns: None,
                pause_ns: 0,
                answered: 0,
                counts_from_ns: 0,
                latency: Histogram::new(),
                marked: None,
            },
            phase: Phase::Connecting,
            since_ns: now_ns,
            until_ns: u64::MAX,
            unsent: None,
            begun: false,
            ping_ns: 0,
            pings: 0,
            mark_ns: u64::MAX,
            mark: 0,
            counting: None,
            to_peer: Marks::default(),
            from_peer: Marks::default(),
            idle: None,
            loaded: None,
            failed: None,
        }
    }

    /// Takes a frame that came from `from`.
    pub(crate) fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        if let Ok((header, body)) = parse_frame(frame)
            && header.dst_epoch == self.session.epoch()
            && let Some(path) = self.routes.path(from)
        {
            self.inbox.now_ns = now_ns;
            self.session.handle_frame_on(now_ns, path, &header, body, &mut self.inbox);
        }
    }

    /// Goes on with everything that can go on. True if something was done.
    pub(crate) fn poll(&mut self, now_ns: u64) -> bool {
        if self.session.deadline_ns().is_some_and(|at| at <= now_ns) {
            self.session.handle_timeout(now_ns);
        }
        if self.phase == Phase::Done {
            return false;
        }
        if let State::Dead(reason) = self.session.state() {
            let failed = if self.session.peer().is_none() { Failed::Silent } else { Failed::Lost(reason) };
            self.fail(failed);
            return true;
        }
        if self.session.state() != State::Up {
            return false;
        }
        for further in std::mem::take(&mut self.further) {
            self.routes.add(&mut self.session, now_ns, further);
        }
        self.take_mark(now_ns);
        self.send_message();
        let turned = self.turn(now_ns);
        let pinged = self.ping(now_ns);
        turned | pinged | self.fill()
    }

    /// From phase to phase.
    fn turn(&mut self, now_ns: u64) -> bool {
        if now_ns >= self.mark_ns {
            self.mark += 1;
            self.mark_ns = now_ns + MARK_NS;
            self.say(Message::Mark { number: self.mark });
        }
        match self.phase {
            Phase::Connecting if self.inbox.is_ready => {
                self.enter(now_ns, Phase::Idle, self.plan.idle_ns);
                self.ping_ns = now_ns;
            }
            Phase::Connecting if !self.begun => {
                self.begun = true;
                self.until_ns = now_ns + ANSWER_NS;
                self.say(Message::Begin);
            }
            Phase::Connecting if now_ns >= self.until_ns => self.fail(Failed::NoServer),
            Phase::Idle if now_ns >= self.until_ns => {
                self.idle = Some(self.take_latency(now_ns));
                self.enter(now_ns, Phase::Loaded, self.plan.load_ns);
                self.mark_ns = now_ns + self.warm_up_ns();
                if self.plan.from_peer {
                    self.say(Message::Load { record_bytes: self.plan.record_bytes as u32 });
                }
            }
            Phase::Loaded if self.counting.is_none() && now_ns >= self.since_ns + self.warm_up_ns() => {
                self.counting = Some(self.mark);
                self.inbox.counts_from_ns = now_ns;
                self.inbox.pause_ns = 0;
            }
            Phase::Loaded if now_ns >= self.until_ns => {
                self.loaded = Some(self.take_latency(now_ns));
                self.mark_ns = u64::MAX;
                self.enter(now_ns, Phase::Ending, ANSWER_NS);
                self.say(Message::Load { record_bytes: 0 });
            }
            // All that was sent is there, the last mark among it.
            Phase::Ending if self.session.unacked_frames() == 0 && self.unsent.is_none() => self.end(),
            Phase::Ending if now_ns >= self.until_ns => self.end(),
            _ => return false,
        }
        true
    }

    fn enter(&mut self, now_ns: u64, phase: Phase, for_ns: u64) {
        self.phase = phase;
        self.since_ns = now_ns;
        self.until_ns = now_ns + for_ns;
    }

    fn warm_up_ns(&self) -> u64 {
        (self.plan.load_ns / WARM_UP_PART).min(WARM_UP_NS)
    }

    fn end(&mut self) {
        if self.to_peer.total().is_none() {
            return self.fail(Failed::NoMarks);
        }
        self.phase = Phase::Done;
    }

    fn fail(&mut self, failed: Failed) {
        self.failed = Some(failed);
        self.phase = Phase::Done;
    }

    /// Ends the test now, with what has been measured.
    pub(crate) fn stop(&mut self, now_ns: u64) {
        match self.phase {
            Phase::Done => {}
            Phase::Loaded | Phase::Ending if self.to_peer.total().is_some() => {
                self.loaded = self.loaded.or_else(|| Some(self.take_latency(now_ns)));
                self.end();
            }
            _ => self.fail(Failed::Stopped),
        }
    }

    /// Says goodbye, once nothing will be measured any more; the frames leave by [`Client::transmit`].
    pub(crate) fn close(&mut self) {
        self.session.close(CloseReason::Shutdown);
    }

    /// The latency since the last call.
    fn take_latency(&mut self, now_ns: u64) -> Latency {
        let histogram = std::mem::replace(&mut self.inbox.latency, Histogram::new());
        self.inbox.counts_from_ns = now_ns;
        Latency::new(&histogram, self.pings.saturating_sub(self.inbox.answered))
    }

    /// The server's mark is the end of one span of both directions, each by its receiver's clock.
    fn take_mark(&mut self, now_ns: u64) {
        if let Some((number, mark)) = self.inbox.marked.take()
            && self.counting.is_some_and(|first| number >= first)
        {
            self.to_peer.add(mark);
            self.from_peer.add(Mark { now_ns, bytes: self.inbox.bulk_bytes });
        }
    }

    /// One message at a time: a mark that is pushed out by a later message is not missed.
    fn say(&mut self, message: Message) {
        self.unsent = match (self.unsent, message) {
            (Some(load @ Message::Load { .. }), Message::Mark { .. }) => Some(load),
            _ => Some(message),
        };
        self.send_message();
    }

    fn send_message(&mut self) {
        if let Some(message) = self.unsent
            && self.session.room_for(CONTROL_STREAM) != 0
        {
            let mut bytes = [0; MAX_BYTES];
            let length = message.emit(&mut bytes);
            if self.session.send(Kind::Control, CONTROL_STREAM, &bytes[..length], 0, &[], length).is_ok() {
                self.unsent = None;
            }
        }
    }

    fn can_ping(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Loaded)
            && self.pings.saturating_sub(self.inbox.answered) < PINGS_MAX
            && self.session.room_for(PING_STREAM) != 0
    }

    /// Sends the pings that are due. Each tells when it was due, so that waiting to be sent counts.
    fn ping(&mut self, now_ns: u64) -> bool {
        let mut any = false;
        while self.ping_ns <= now_ns
            && self.can_ping()
            && self.session.send(Kind::Tlp, PING_STREAM, &self.ping_ns.to_be_bytes(), 0, &[], 8).is_ok()
        {
            self.pings += 1;
            self.ping_ns += PING_NS;
            any = true;
        }
        any
    }

    /// Bulk, as much as goes in.
    fn fill(&mut self) -> bool {
        let bytes = self.plan.record_bytes;
        let mut any = false;
        while self.phase == Phase::Loaded
            && self.plan.to_peer
            && self.session.room() != 0
            && self.session.send(Kind::Tlp, BULK_STREAM, &FILLER[..bytes], 0, &[], bytes).is_ok()
        {
            any = true;
        }
        any
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    pub(crate) fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        let routes = &self.routes;
        self.session.transmit_paths(now_ns, &mut |path, frames| {
            routes.address(path).map_or(0, |peer| send(&peer, frames))
        })
    }

    /// When [`Client::poll`] should be called even if nothing happens.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let ping_ns = self.can_ping().then_some(self.ping_ns);
        let phase_ns = (self.phase != Phase::Done).then_some(self.until_ns.min(self.mark_ns));
        [self.session.deadline_ns(), ping_ns, phase_ns].into_iter().flatten().min()
    }

    /// How far it is.
    pub(crate) fn progress(&self, now_ns: u64) -> Progress {
        let total_ns = (self.plan.idle_ns + self.plan.load_ns).max(1);
        let passed_ns = match self.phase {
            Phase::Connecting => 0,
            Phase::Idle => (now_ns - self.since_ns).min(self.plan.idle_ns),
            Phase::Loaded => self.plan.idle_ns + (now_ns - self.since_ns).min(self.plan.load_ns),
            Phase::Ending | Phase::Done => total_ns,
        };
        Progress {
            phase: self.phase,
            passed_ns,
            total_ns,
            to_peer: self.to_peer.lately(),
            from_peer: self.from_peer.lately(),
        }
    }

    /// Whether nothing will be measured any more: time for [`Client::close`].
    pub(crate) fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Whether nothing will be sent any more.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.session.state(), State::Dead(_))
    }

    /// The session.
    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// What was measured, of a test that is done: to the peer, from it, latency idle and loaded.
    pub(crate) fn measured(&self) -> Result<Measured, Failed> {
        if let Some(failed) = self.failed {
            return Err(failed);
        }
        let (idle, loaded) = self.idle.zip(self.loaded).ok_or(Failed::Stopped)?;
        Ok(Measured {
            to_peer: self.to_peer.total().filter(|_| self.plan.to_peer),
            from_peer: self.from_peer.total().filter(|_| self.plan.from_peer),
            idle,
            loaded,
            longest_pause_ns: self.plan.from_peer.then_some(self.inbox.pause_ns),
        })
    }
}

/// What a test measured, apart from its surroundings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) to_peer: Option<Flow>,
    pub(crate) from_peer: Option<Flow>,
    pub(crate) idle: Latency,
    pub(crate) loaded: Latency,
    pub(crate) longest_pause_ns: Option<u64>,
}
