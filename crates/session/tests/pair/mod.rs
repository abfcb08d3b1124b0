//! Two nodes and the link between them, in virtual time, from a seed.
//!
//! The checkers are here, outside of the session: every record carries its stream and its place in it and a length and
//! content that follow from these; a receiver takes exactly the next one.
#![allow(dead_code)]

pub(crate) mod hand;
mod window;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use etherslot_session::{Config, Deliver, Heard, Listener, Session, State, parse_frame};
use etherslot_wire::frame;
use etherslot_wire::record::{Kind, MAX_PAYLOAD_BYTES};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

pub(crate) use window::Window;

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;

/// The default set-up, with a window that is open and does not pace.
pub(crate) fn unpaced() -> Config {
    Config { controller: |limits| Box::new(Window::new(limits)), ..Config::default() }
}

/// What the link does to a frame. Probabilities are per million.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) loss: u32,
    pub(crate) duplication: u32,
    pub(crate) reordering: u32,
    pub(crate) garbage: u32,
    pub(crate) delay_ns: u64,
    /// How much later than others a reordered frame comes, at most.
    pub(crate) reorder_ns: u64,
    /// Bytes per second; 0 is without end.
    pub(crate) rate: u64,
    /// Longer frames do not pass.
    pub(crate) longest: usize,
    /// Nothing passes.
    pub(crate) is_cut: bool,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            loss: 0,
            duplication: 0,
            reordering: 0,
            garbage: 0,
            delay_ns: 20 * US,
            reorder_ns: 60 * US,
            rate: 0,
            longest: usize::MAX,
            is_cut: false,
        }
    }
}

/// The records of one direction as they should be: made from a seed by both ends.
#[derive(Debug)]
pub(crate) struct Script {
    rng: SmallRng,
    pub(crate) streams: u16,
    pub(crate) longest: usize,
}

/// A record's bytes: stream, place in the stream, length, then bytes that follow from both.
pub(crate) fn fill(stream: u16, place: u64, len: usize, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(&place.to_be_bytes());
    out.extend_from_slice(&(len as u16).to_be_bytes());
    while out.len() < len {
        out.push((out.len() as u64 ^ place.wrapping_mul(31) ^ u64::from(stream)) as u8);
    }
}

/// The least bytes of such a record.
pub(crate) const LEAST: usize = 12;

/// Takes records and checks them.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub(crate) next: Vec<u64>,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    expected: Vec<u8>,
    /// The records that lie in the frame in hand, and what they are.
    in_hand: Vec<(Range<usize>, Vec<u8>)>,
}

impl Deliver for Sink {
    fn record(&mut self, _kind: Kind, stream: u16, payload: &[u8]) {
        self.records += 1;
        self.bytes += payload.len() as u64;
        if self.next.len() <= stream as usize {
            self.next.resize(stream as usize + 1, 0);
        }
        let place = self.next[stream as usize];
        fill(stream, place, payload.len(), &mut self.expected);
        assert_eq!(payload, &self.expected[..], "stream {stream} place {place}");
        self.next[stream as usize] += 1;
    }

    fn record_in_hand(&mut self, kind: Kind, stream: u16, body: &[u8], payload: Range<usize>) {
        self.record(kind, stream, &body[payload.clone()]);
        self.in_hand.push((payload.clone(), body[payload].to_vec()));
    }

    fn let_go(&mut self, body: &[u8]) {
        for (payload, bytes) in self.in_hand.drain(..) {
            assert_eq!(body[payload], bytes, "what is in hand stays as it is");
        }
    }
}

/// One node.
pub(crate) struct Node {
    pub(crate) config: Config,
    pub(crate) session: Option<Session>,
    pub(crate) listener: Listener<u8>,
    pub(crate) sink: Sink,
    /// Records put into each stream.
    pub(crate) sent: Vec<u64>,
    /// Everything this node ever put on the link.
    pub(crate) history: Option<Vec<Vec<u8>>>,
    /// Sessions its listener has made.
    pub(crate) accepted: u32,
    pub(crate) frames: u64,
    highest_credit: Option<u32>,
    buffer: Vec<u8>,
}

impl Node {
    fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            session: None,
            listener: Listener::new(config),
            sink: Sink::default(),
            sent: vec![0; config.streams as usize],
            history: None,
            accepted: 0,
            frames: 0,
            highest_credit: None,
            buffer: Vec::new(),
        }
    }

    pub(crate) fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("a session")
    }

    /// Puts in one record if there is room.
    pub(crate) fn put(&mut self, stream: u16, len: usize) -> bool {
        let place = self.sent[stream as usize];
        fill(stream, place, len.clamp(LEAST, MAX_PAYLOAD_BYTES), &mut self.buffer);
        let (head, data) = self.buffer.split_at(self.buffer.len().min(12));
        let session = self.session.as_mut().expect("a session");
        let done = session.send(Kind::Tlp, stream, head, 0, data, self.buffer.len()).is_ok();
        self.sent[stream as usize] += u64::from(done);
        done
    }

    pub(crate) fn is_up(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.state() == State::Up)
    }
}

/// A frame under way.
type Flying = Reverse<(u64, u64, usize, Vec<u8>)>;

/// The two nodes: 0 connects, 1 listens.
pub(crate) struct Pair {
    pub(crate) now_ns: u64,
    pub(crate) nodes: [Node; 2],
    /// From node 0 to node 1, and back.
    pub(crate) links: [Link; 2],
    flying: BinaryHeap<Flying>,
    order: u64,
    free_ns: [u64; 2],
    pub(crate) rng: SmallRng,
    next_epoch: u32,
    /// Frames that a Port takes in one call, at most.
    pub(crate) port_takes: usize,
}

impl Pair {
    pub(crate) fn new(seed: u64, config: &Config, link: Link) -> Self {
        Self::with([config, config], seed, link)
    }

    pub(crate) fn with(configs: [&Config; 2], seed: u64, link: Link) -> Self {
        Self {
            now_ns: 5_000_000_000,
            nodes: configs.map(Node::new),
            links: [link; 2],
            flying: BinaryHeap::new(),
            order: 0,
            free_ns: [0; 2],
            rng: SmallRng::seed_from_u64(seed),
            next_epoch: 1000,
            port_takes: usize::MAX,
        }
    }

    pub(crate) fn epoch(&mut self) -> u32 {
        self.next_epoch += 1;
        self.next_epoch
    }

    /// Node 0 begins a session.
    pub(crate) fn connect(&mut self) {
        let epoch = self.epoch();
        let node = &mut self.nodes[0];
        node.session = Some(Session::connect(&node.config, epoch, self.now_ns));
        node.highest_credit = None;
    }

    /// A pair with both ends up.
    pub(crate) fn connected(seed: u64, config: &Config, link: Link) -> Self {
        let mut pair = Self::new(seed, config, link);
        pair.connect();
        let up = |pair: &Pair| pair.nodes.iter().all(Node::is_up);
        assert!(pair.run_until(pair.now_ns + 900 * MS, up), "no session");
        pair
    }

    /// Puts a frame on the link from `from`.
    pub(crate) fn launch(&mut self, from: usize, frame: &[u8]) {
        let link = self.links[from];
        let copies = 1 + u32::from(self.rng.random_ratio(link.duplication, 1_000_000));
        self.free_ns[from] = self.free_ns[from].max(self.now_ns)
            + (frame.len() as u64 * 1_000_000_000).checked_div(link.rate).unwrap_or(0);
        for _ in 0..copies {
            if link.is_cut || frame.len() > link.longest || self.rng.random_ratio(link.loss, 1_000_000) {
                continue;
            }
            let mut bytes = frame.to_vec();
            if self.rng.random_ratio(link.garbage, 1_000_000) {
                for _ in 0..self.rng.random_range(1..4) {
                    let at = self.rng.random_range(0..bytes.len());
                    bytes[at] ^= 1 << self.rng.random_range(0..8);
                }
            }
            let mut at_ns = self.free_ns[from] + link.delay_ns;
            if self.rng.random_ratio(link.reordering, 1_000_000) {
                at_ns += self.rng.random_range(0..=link.reorder_ns);
            }
            self.order += 1;
            self.flying.push(Reverse((at_ns, self.order, 1 - from, bytes)));
        }
    }

    /// A frame arrives.
    pub(crate) fn land(&mut self, to: usize, bytes: &[u8]) {
        let Ok((header, body)) = parse_frame(bytes) else { return };
        let fresh = self.epoch();
        let node = &mut self.nodes[to];
        if let Some(session) = node.session.as_mut().filter(|session| session.epoch() == header.dst_epoch) {
            session.handle_frame(self.now_ns, &header, body, &mut node.sink);
            return;
        }
        if header.kind != frame::Kind::Hello || to != 1 {
            return;
        }
        let mut reply = [0; 576];
        match node.listener.handle_hello(self.now_ns, 0, &header, body, fresh, &mut reply) {
            Heard::Reply(bytes) => self.launch(to, &reply[..bytes]),
            Heard::Accept(session) => {
                node.session = Some(*session);
                node.accepted += 1;
                node.highest_credit = None;
            }
            Heard::Dropped(_) => {}
        }
    }

    fn transmit(&mut self, from: usize) {
        let Some(mut session) = self.nodes[from].session.take() else { return };
        let mut out: Vec<Vec<u8>> = Vec::new();
        let mut left = self.port_takes;
        session.transmit(self.now_ns, &mut |frames| {
            let taken = frames.len().min(left);
            left -= taken;
            out.extend(frames[..taken].iter().map(|frame| frame.to_vec()));
            taken
        });
        let bytes = session.frame_bytes();
        self.nodes[from].session = Some(session);
        for frame in out {
            assert!(frame.len() <= bytes);
            self.check_frame(from, &frame);
            self.launch(from, &frame);
            self.nodes[from].frames += 1;
            if let Some(history) = &mut self.nodes[from].history {
                history.push(frame);
            }
        }
    }

    /// What must hold of every frame on the link: it is well formed and within the credit given by its receiver.
    fn check_frame(&mut self, from: usize, bytes: &[u8]) {
        let (header, body) = parse_frame(bytes).expect("own frame");
        assert_eq!(header.len() + body.len() + frame::CHECK_BYTES, bytes.len());
        if let Some(ack) = header.ack {
            let node = &mut self.nodes[from];
            let highest = node.highest_credit.get_or_insert(ack.credit);
            assert!(ack.credit.wrapping_sub(*highest).cast_signed() >= 0, "credit is never taken back");
            *highest = ack.credit;
        }
        if header.kind == frame::Kind::Data {
            let peer = &self.nodes[1 - from];
            if let Some(credit) = peer.highest_credit {
                let left = credit.wrapping_sub(header.sequence).cast_signed();
                assert!(left > 0, "sequence {} is beyond credit {credit}", header.sequence);
            }
        }
    }

    /// Lets both ends send, and their timers run.
    pub(crate) fn step_nodes(&mut self) {
        for at in 0..2 {
            let now_ns = self.now_ns;
            if let Some(session) = &mut self.nodes[at].session
                && session.deadline_ns().is_some_and(|deadline| deadline <= now_ns)
            {
                session.handle_timeout(now_ns);
            }
            self.transmit(at);
        }
    }

    /// When something happens next.
    fn next_event_ns(&self) -> Option<u64> {
        let landing = self.flying.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let timers = self.nodes.iter().filter_map(|node| node.session.as_ref()?.deadline_ns());
        timers.chain(landing).min()
    }

    /// Goes on to the next event, at the latest until `end_ns`. False at the end.
    pub(crate) fn step(&mut self, end_ns: u64) -> bool {
        self.step_nodes();
        let mut next = self.next_event_ns().unwrap_or(u64::MAX);
        if next <= self.now_ns {
            // What is overdue because the Port is full must not stop the clock.
            next = self.now_ns + US;
        }
        if next > end_ns {
            self.now_ns = self.now_ns.max(end_ns);
            return false;
        }
        self.now_ns = next;
        while let Some(Reverse((at_ns, ..))) = self.flying.peek()
            && *at_ns <= self.now_ns
        {
            let Some(Reverse((_, _, to, bytes))) = self.flying.pop() else { break };
            self.land(to, &bytes);
        }
        true
    }

    /// Runs until the condition holds; false if it does not by `end_ns`.
    pub(crate) fn run_until(&mut self, end_ns: u64, done: impl Fn(&Self) -> bool) -> bool {
        while !done(self) {
            if !self.step(end_ns) {
                return done(self);
            }
        }
        true
    }

    /// Runs for a time.
    pub(crate) fn run_for(&mut self, ns: u64) {
        let end_ns = self.now_ns + ns;
        while self.step(end_ns) {}
    }

    /// Whether all that was put in has come out, both ways.
    pub(crate) fn is_all_delivered(&self) -> bool {
        (0..2).all(|at| {
            let got = &self.nodes[1 - at].sink.next;
            self.nodes[at]
                .sent
                .iter()
                .enumerate()
                .all(|(stream, &sent)| got.get(stream).copied().unwrap_or(0) == sent)
        })
    }

    /// Puts random records in on both sides while time goes by, then waits for all of them.
    pub(crate) fn exchange(&mut self, records: u64, streams: u16, longest: usize, limit_ns: u64) {
        let end_ns = self.now_ns + limit_ns;
        let mut left = [records; 2];
        while left != [0; 2] {
            for (at, left) in left.iter_mut().enumerate() {
                let burst = self.rng.random_range(0..20);
                for _ in 0..burst.min(*left) {
                    let stream = self.rng.random_range(0..streams);
                    // Mostly short ones, as TLPs are.
                    let most = if self.rng.random_ratio(3, 4) { longest.min(100) } else { longest };
                    let len = self.rng.random_range(LEAST..=most.max(LEAST));
                    if !self.nodes[at].put(stream, len) {
                        break;
                    }
                    *left -= 1;
                }
            }
            assert!(self.step(end_ns), "not sent by then: {left:?}, {:?}", self.states());
        }
        let all = self.run_until(end_ns, Self::is_all_delivered);
        assert!(all, "not all delivered, {:?}", self.states());
    }

    pub(crate) fn states(&self) -> [Option<State>; 2] {
        [0, 1].map(|at| self.nodes[at].session.as_ref().map(Session::state))
    }

    /// Random bytes, for what is not a frame.
    pub(crate) fn noise(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill_bytes(&mut bytes);
        bytes
    }
}
