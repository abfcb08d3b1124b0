//! Both sides, the cable between them, and time.

use etherslot_rdma::Cqe;
use etherslot_session::{Config, Heard, Listener, Session, State, parse_frame};
use etherslot_wire::frame;

use super::node::{Node, PEER};
use super::traffic::{STATIC, STATIC_BYTES, Traffic, still};
use super::{Plan, Report};
use crate::events::Events;
use crate::network::{Faults, Lane};
use crate::random::Random;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Delay of the cable.
const DELAY_NS: u64 = 10 * US;
/// Between two looks of the programs.
const ACT_NS: u64 = 30 * US;
/// How long an operation may take, the peer alive: as long as many losses in a row, and a receiver that is late.
const PATIENCE_NS: u64 = 3_000 * MS;

/// A frame arrives at a side.
struct Arrival {
    to: usize,
    frame: Vec<u8>,
}

pub(crate) struct World {
    plan: Plan,
    random: Random,
    config: Config,
    nodes: [Node; 2],
    traffic: [Traffic; 2],
    listener: Listener<u8>,
    lanes: [Lane; 2],
    events: Events<Arrival>,
    is_cut: bool,
    now_ns: u64,
    act_ns: u64,
    /// When the second side connects its QPs.
    connect_ns: Option<u64>,
    lost: u64,
}

impl World {
    pub(crate) fn new(plan: &Plan) -> Self {
        let random = Random::new(plan.seed).fork("rdma", 0);
        let faults = Faults {
            loss_ppm: plan.loss_ppm,
            duplicate_ppm: 5_000,
            reorder_ppm: 20_000,
            reorder_ns: 100 * US,
            corrupt_ppm: 1_000,
            deliver_corrupt: true,
            replay_ppm: 500,
            replay_ns: 50 * MS,
            ..Faults::default()
        };
        let lane = |at| Lane::new(faults.clone(), random.fork("lane", at));
        let frame_bytes = if plan.seed.is_multiple_of(3) { 9000 } else { 1500 };
        let config = Config {
            max_frame_bytes: frame_bytes,
            window_frames: 256,
            streams: 8,
            rdma: true,
            ..Config::default()
        };
        let mut nodes = [Node::new(), Node::new()];
        for node in &mut nodes {
            let content: Vec<u8> = (0..STATIC_BYTES).map(still).collect();
            node.fill(STATIC, &content);
        }
        Self {
            plan: *plan,
            config: config.clone(),
            nodes,
            traffic: [0, 1].map(|side| Traffic::new(random.fork("traffic", side), side)),
            listener: Listener::new(&config),
            lanes: [lane(0), lane(1)],
            random,
            events: Events::default(),
            is_cut: false,
            now_ns: 0,
            act_ns: 0,
            connect_ns: None,
            lost: 0,
        }
    }

    pub(crate) fn run(mut self) -> Report {
        let mut violation = None;
        for life in 0..=self.plan.deaths {
            if let Err(text) = self.live(life < self.plan.deaths) {
                violation = Some(format!("{text}, at {} ns in life {life}", self.now_ns));
                break;
            }
        }
        let [one, other] = &self.traffic;
        if violation.is_none() {
            let checked = [one.check_counter(&self.nodes[1]), other.check_counter(&self.nodes[0])];
            violation = checked.into_iter().find_map(Result::err);
        }
        Report {
            violation,
            completed: one.completed + other.completed,
            flushed: one.flushed + other.flushed,
            checked_bytes: one.checked_bytes + other.checked_bytes,
            lost: self.lost,
            not_ready: self.nodes.iter().map(|node| node.engine.counters().not_ready_sent).sum(),
            virtual_ns: self.now_ns,
        }
    }

    fn connect(&mut self, at: usize) {
        let remote = self.nodes[1 - at].qps.clone();
        self.nodes[at].connect(&remote);
    }

    fn epoch(&mut self) -> u32 {
        self.random.bits() as u32 | 1
    }

    /// One session, with new QPs, to the end of its work or to its death.
    fn live(&mut self, dies: bool) -> Result<(), String> {
        let epoch = self.epoch();
        self.is_cut = false;
        self.nodes[0].session = Some(Session::connect(&self.config, epoch, self.now_ns));
        self.nodes[1].session = None;
        for (node, traffic) in self.nodes.iter_mut().zip(&mut self.traffic) {
            node.engine.find_peer(PEER);
            node.create_qps();
            traffic.begin(self.plan.operations);
        }
        // The one side may send before the other is ready.
        self.connect(0);
        self.connect_ns = Some(self.now_ns + self.random.magnitude(1, 8 * MS));
        let death_ns =
            self.now_ns + if dies { self.random.magnitude(100 * US, 12 * MS) } else { u64::MAX / 2 };
        loop {
            if !self.is_cut && self.now_ns >= death_ns {
                self.is_cut = true;
                for traffic in &mut self.traffic {
                    traffic.die();
                }
            }
            self.step()?;
            let is_over = |node: &Node| match &node.session {
                Some(session) => matches!(session.state(), State::Dead(_)),
                None => true,
            };
            if self.is_cut && self.nodes.iter().all(is_over) {
                return self.bury();
            }
            if !self.is_cut && self.nodes[0].session.as_ref().is_some_and(is_dead) {
                return Err("the session died by itself".to_owned());
            }
            if self.traffic.iter().all(Traffic::is_done) {
                if dies {
                    // It was quicker than its death.
                    self.is_cut = true;
                    self.traffic.iter_mut().for_each(Traffic::die);
                } else {
                    return Ok(());
                }
            }
            let oldest_ns = self.traffic.iter().filter_map(Traffic::oldest_ns).min();
            if oldest_ns.is_some_and(|at_ns| self.now_ns - at_ns > PATIENCE_NS) {
                return Err(format!("something is not done after {PATIENCE_NS} ns"));
            }
        }
    }

    /// Everything that was under way has ended.
    fn bury(&mut self) -> Result<(), String> {
        for at in 0..2 {
            self.nodes[at].engine.lose_peer(PEER);
            self.send(at);
        }
        self.collect()?;
        for traffic in &mut self.traffic {
            traffic.left = 0;
            if traffic.oldest_ns().is_some() {
                return Err("a work request did not end with its peer".to_owned());
            }
        }
        Ok(())
    }

    /// Everything that happens at the next time at which something does.
    fn step(&mut self) -> Result<(), String> {
        while self.events.next_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            if let Some((_, arrival)) = self.events.pop() {
                self.arrive(&arrival)?;
            }
        }
        if self.now_ns >= self.act_ns {
            self.act_ns = self.now_ns + self.random.range(1, ACT_NS);
            if self.connect_ns.is_some_and(|at_ns| at_ns <= self.now_ns) {
                self.connect_ns = None;
                self.connect(1);
            }
            let [one, other] = &mut self.nodes;
            if !self.is_cut {
                self.traffic[0].act(self.now_ns, one, other);
                if self.connect_ns.is_none() {
                    self.traffic[1].act(self.now_ns, other, one);
                }
            }
        }
        self.collect()?;
        for at in 0..2 {
            self.send(at);
            let session = self.nodes[at].session.as_ref();
            if session.is_some_and(is_dead) && self.is_cut {
                self.nodes[at].engine.lose_peer(PEER);
            }
        }
        self.collect()?;
        let next = self.nodes.iter().filter_map(Node::deadline_ns).chain(self.events.next_ns());
        let next_ns = next.chain([self.act_ns]).min().unwrap_or(self.act_ns);
        self.now_ns = next_ns.max(self.now_ns + 1);
        Ok(())
    }

    fn send(&mut self, at: usize) {
        let Self { nodes, lanes, events, now_ns, is_cut, lost, .. } = self;
        nodes[at].step(*now_ns, &mut |frame| {
            if *is_cut {
                return;
            }
            *lost += lanes[at].carry(*now_ns + DELAY_NS, US, frame, &mut |at_ns, frame| {
                events.push(at_ns, Arrival { to: 1 - at, frame });
            });
        });
    }

    fn arrive(&mut self, arrival: &Arrival) -> Result<(), String> {
        let Ok((header, body)) = parse_frame(&arrival.frame) else { return Ok(()) };
        let epoch = self.epoch();
        let node = &mut self.nodes[arrival.to];
        if node.session.as_ref().is_some_and(|session| session.epoch() == header.dst_epoch) {
            if node.take(self.now_ns, &header, body) > 0 {
                return Err("a record of another kind was delivered".to_owned());
            }
            let [one, other] = &self.nodes;
            self.traffic[0].watch(other)?;
            return self.traffic[1].watch(one);
        }
        if header.kind != frame::Kind::Hello || arrival.to != 1 || self.is_cut {
            return Ok(());
        }
        let mut reply = [0; 576];
        match self.listener.handle_hello(self.now_ns, 0, &header, body, epoch, &mut reply) {
            Heard::Reply(bytes) => {
                let events = &mut self.events;
                self.lost +=
                    self.lanes[1].carry(self.now_ns + DELAY_NS, US, &reply[..bytes], &mut |at_ns, frame| {
                        events.push(at_ns, Arrival { to: 0, frame });
                    });
            }
            Heard::Accept(session) if node.session.is_none() => node.session = Some(*session),
            _ => {}
        }
        Ok(())
    }

    /// Takes completions, and holds them against what was posted.
    fn collect(&mut self) -> Result<(), String> {
        for at in 0..2 {
            let take = |node: &mut Node, cq| {
                let mut all: Vec<Cqe> = Vec::new();
                while let Some((cqe, _)) = node.engine.take(cq) {
                    all.push(cqe);
                }
                all
            };
            let node = &mut self.nodes[at];
            let (sent, received) = (take(node, node.send_cq), take(node, node.receive_cq));
            node.consumed[0] = node.consumed[0].wrapping_add(sent.len() as u32);
            node.consumed[1] = node.consumed[1].wrapping_add(received.len() as u32);
            let consumed = node.consumed;
            let is_in_order = node.engine.consume(node.send_cq, consumed[0])
                && node.engine.consume(node.receive_cq, consumed[1]);
            if !is_in_order {
                return Err("a CQ does not count right".to_owned());
            }
            while node.engine.next_event().is_some() {}
            let [one, other] = &self.nodes;
            let (me, peer) = if at == 0 { (one, other) } else { (other, one) };
            for cqe in &sent {
                self.traffic[at].completed(cqe, me, peer)?;
            }
            let [first, second] = &mut self.traffic;
            let (mine, theirs) = if at == 0 { (first, second) } else { (second, first) };
            for cqe in &received {
                mine.received(cqe, me, theirs)?;
            }
        }
        Ok(())
    }
}

fn is_dead(session: &Session) -> bool {
    matches!(session.state(), State::Dead(_))
}
