//! One end of a session: the session, what it has to send, and the check of what it gets.

use std::collections::VecDeque;

use etherslot_session::{Config, Listener, Session, State};
use etherslot_wire::record::Kind;

use super::record::{Checker, LABEL_BYTES, Label, Pattern, STREAMS};
use crate::random::Random;

/// Streams that bulk goes over.
const BULK_STREAMS: u16 = 2;
/// The stream of requests and their answers.
pub(crate) const REQUEST_STREAM: u16 = 2;
/// Payload of a request and of its answer: a TLP of up to 4 DW of data.
const REQUEST_BYTES: usize = 32;

/// Records that come at random times, whether the session has room or not.
#[derive(Debug)]
pub(crate) struct Arrivals {
    mean_ns: f64,
    next_ns: f64,
    random: Random,
}

impl Arrivals {
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn new(mean_ns: f64, from_ns: u64, random: Random) -> Self {
        let mut arrivals = Self { mean_ns, next_ns: from_ns as f64, random };
        arrivals.advance();
        arrivals
    }

    /// Times between arrivals are exponentially distributed.
    #[allow(clippy::cast_precision_loss)]
    fn advance(&mut self) {
        let share = (self.random.below(1 << 53) + 1) as f64 / (1_u64 << 53) as f64;
        self.next_ns -= self.mean_ns * share.ln();
    }

    #[allow(clippy::cast_sign_loss)]
    fn next_ns(&self) -> u64 {
        self.next_ns as u64
    }

    fn due(&mut self, now_ns: u64) -> Option<u64> {
        let next_ns = self.next_ns();
        if next_ns > now_ns {
            return None;
        }
        self.advance();
        Some(next_ns)
    }
}

/// What an end has to send.
#[derive(Debug, Default)]
pub(crate) struct Source {
    /// Whether there is always more.
    pub(crate) is_bulk: bool,
    /// Records of a burst that are left.
    pub(crate) burst_records: u64,
    pub(crate) open: Option<Arrivals>,
    pub(crate) requests: Option<Arrivals>,
    /// When the requests were made that wait for their answer.
    pub(crate) answers: VecDeque<u64>,
    record_bytes: usize,
    life: u16,
    next_stream: u16,
    places: [u64; STREAMS as usize],
}

impl Source {
    pub(crate) fn new(record_bytes: usize) -> Self {
        Self { record_bytes, ..Self::default() }
    }

    /// The next record: its stream, length, and the time it counts from.
    fn next(&mut self, now_ns: u64, may_ask: bool, may_fill: bool) -> Option<(u16, usize, u64)> {
        if may_ask {
            if let Some(asked_ns) = self.answers.pop_front() {
                return Some((REQUEST_STREAM, REQUEST_BYTES, asked_ns));
            }
            if let Some(due_ns) = self.requests.as_mut().and_then(|requests| requests.due(now_ns)) {
                return Some((REQUEST_STREAM, REQUEST_BYTES, due_ns));
            }
        }
        if !may_fill {
            return None;
        }
        let sent_ns = match self.open.as_mut().and_then(|open| open.due(now_ns)) {
            Some(due_ns) => due_ns,
            None if self.is_bulk => now_ns,
            None if self.burst_records > 0 => {
                self.burst_records -= 1;
                now_ns
            }
            None => return None,
        };
        self.next_stream = (self.next_stream + 1) % BULK_STREAMS;
        Some((self.next_stream, self.record_bytes, sent_ns))
    }

    /// When something comes that is not here yet. What comes while there is no room waits for an acknowledgement.
    fn deadline_ns(&self, session: &Session) -> Option<u64> {
        let requests = self.requests.as_ref().filter(|_| session.room_for(REQUEST_STREAM) > 0);
        let open = self.open.as_ref().filter(|_| session.room() > 0);
        [requests, open].into_iter().flatten().map(Arrivals::next_ns).min()
    }
}

/// One end of a session.
pub(crate) struct End {
    /// The node it is at.
    pub(crate) node: u32,
    /// The end at the other node.
    pub(crate) peer: u32,
    pub(crate) session: Option<Session>,
    /// The passive end's way to a session.
    pub(crate) listener: Option<Listener<u32>>,
    pub(crate) source: Source,
    pub(crate) checker: Checker,
    /// The wake-up under way; another one is out of date.
    pub(crate) wake_ns: u64,
    /// Whether it waits for room in the NIC's ring.
    pub(crate) waits: bool,
    /// Whether the session has been up.
    pub(crate) was_up: bool,
    /// When data came last, and whether the receiver counts it as active.
    pub(crate) data_ns: u64,
    pub(crate) is_active: bool,
    /// Whether its last frame said that more waits for window or pacing.
    pub(crate) waits_turn: bool,
}

impl End {
    /// The end that connects, or the one that listens.
    pub(crate) fn new(node: u32, peer: u32, config: &Config, listens: bool, record_bytes: usize) -> Self {
        Self {
            node,
            peer,
            session: None,
            listener: listens.then(|| Listener::new(config)),
            source: Source::new(record_bytes),
            checker: Checker::new(peer),
            wake_ns: u64::MAX,
            waits: false,
            was_up: false,
            data_ns: 0,
            is_active: false,
            waits_turn: false,
        }
    }

    /// Sessions that it has had before this one.
    pub(crate) fn life(&self) -> u16 {
        self.source.life
    }

    pub(crate) fn is_up(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.state() == State::Up)
    }

    /// A session of a new life takes the place of the one before.
    pub(crate) fn begin_life(&mut self, config: &Config, epoch: u32, now_ns: u64) {
        if self.session.is_some() {
            self.source.life += 1;
            self.source.places = [0; STREAMS as usize];
        }
        self.session = Some(Session::connect(config, epoch, now_ns));
    }

    /// Puts in what there is as far as there is room. `me` is the number of this end.
    pub(crate) fn fill(&mut self, me: u32, now_ns: u64, pattern: &Pattern) {
        let Some(session) = &mut self.session else { return };
        loop {
            let may_ask = session.room_for(REQUEST_STREAM) > 0;
            let may_fill = session.room() > 0 && (0..BULK_STREAMS).all(|stream| session.room_for(stream) > 0);
            let next = self.source.next(now_ns, may_ask, may_fill);
            let Some((stream, bytes, sent_ns)) = next else { return };
            let place = &mut self.source.places[stream as usize];
            let label = Label { sender: me, life: self.source.life, stream, place: *place, sent_ns };
            let content = pattern.content(label, bytes - LABEL_BYTES);
            let sent = session.send(Kind::Tlp, stream, &label.emit(), 0, content, bytes);
            assert!(sent.is_ok(), "a stream with room takes a record");
            *place += 1;
        }
    }

    /// When it is to be looked at again.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let session = self.session.as_ref()?;
        session.deadline_ns().into_iter().chain(self.source.deadline_ns(session)).min()
    }
}
