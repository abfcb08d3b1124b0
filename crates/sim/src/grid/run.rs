//! One run: a cell, a contender and a seed.
//!
//! Every node has one NIC and one link to the switch. Node 0 receives; nodes 1 to N send to it, one session each. Under
//! reverse load further nodes send to the senders. First all sessions are set up, without faults; then, at the time
//! called the beginning, loads and faults set in.

use std::collections::VecDeque;

use etherslot_session::{Config, Deliver, Heard, parse_frame, receiver_cap_bytes};
use etherslot_wire::frame::{Kind as FrameKind, MIN_FRAME_BYTES};
use etherslot_wire::record::Kind;

use super::cell::{Cell, Load};
use super::contender::Contender;
use super::end::{Arrivals, End, REQUEST_STREAM};
use super::events::{Event, Events};
use super::histogram::Histogram;
use super::link::{Link, Nic, Port, Switch, Watch};
use super::outcome::Outcome;
use super::record::{Checker, Pattern};
use crate::random::{Random, mix};

/// The switch's packet buffer.
const BUFFER_BYTES: u64 = 4 << 20;
/// Frames in a queue from which on a switch marks, at 10 Gbit/s (DCTCP, RFC 8257 and the paper's section 3); it grows
/// with the rate.
const MARK_FRAMES_10G: u64 = 65;
/// When the clock starts.
const EPOCH_NS: u64 = 1_000_000_000;
/// Time between two sessions' first Hellos.
const CONNECT_GAP_NS: u64 = 1_000;
/// The receiving node.
const RECEIVER: usize = 0;
/// Mean time between two requests of mixed traffic.
const REQUEST_NS: f64 = 20_000.0;
/// Nodes that load each sender's link under reverse load.
const REVERSE_NODES: u32 = 2;

/// A frame under way.
#[derive(Clone, Copy, Debug, Default)]
struct Frame {
    bytes: u16,
    is_marked: bool,
    /// The end it goes to.
    to: u32,
}

/// Slots for frames under way; none is given back to the allocator.
#[derive(Debug)]
struct Pool {
    stride: usize,
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    free: Vec<u32>,
}

impl Pool {
    fn put(&mut self, to: u32, frame: &[u8]) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Frame::default());
            self.bytes.resize(self.frames.len() * self.stride, 0);
            self.frames.len() as u32 - 1
        });
        self.frames[slot as usize] = Frame { bytes: frame.len() as u16, is_marked: false, to };
        let at = slot as usize * self.stride;
        self.bytes[at..at + frame.len()].copy_from_slice(frame);
        slot
    }

    fn get(&self, slot: u32) -> &[u8] {
        let at = slot as usize * self.stride;
        &self.bytes[at..at + self.frames[slot as usize].bytes as usize]
    }

    fn get_mut(&mut self, slot: u32) -> &mut [u8] {
        let at = slot as usize * self.stride;
        &mut self.bytes[at..at + self.frames[slot as usize].bytes as usize]
    }
}

/// A node's place at the switch.
#[derive(Debug)]
struct Attachment {
    nic: Nic,
    /// To the switch and from it.
    up: Link,
    down: Link,
    /// Ends that wait for room in the ring, in the order of their coming.
    waiting: VecDeque<u32>,
    is_room_due: bool,
    /// Senders that the node counts as active, and when it counts again.
    active: u32,
    count_ns: u64,
}

/// Everything between the ends.
struct Network {
    events: Events,
    pool: Pool,
    nodes: Vec<Attachment>,
    switch: Switch,
}

impl Network {
    /// Gives frames to a node's NIC as far as the ring has room.
    fn send(&mut self, now_ns: u64, node: u32, to: u32, frames: &[&[u8]]) -> usize {
        let attachment = &mut self.nodes[node as usize];
        let taken = attachment.nic.room(now_ns).min(frames.len());
        for frame in &frames[..taken] {
            let left_ns = attachment.nic.send(now_ns, frame.len() as u64);
            let slot = self.pool.put(to, frame);
            pass(&mut attachment.up, &mut self.pool, &mut self.events, left_ns, slot, Event::AtSwitch);
        }
        taken
    }

    /// A frame has come to the switch; `port` is its output.
    fn forward(&mut self, now_ns: u64, slot: u32, port: u32) {
        let bytes = u64::from(self.pool.frames[slot as usize].bytes);
        match self.switch.take(port as usize, now_ns, bytes) {
            Some((left_ns, is_marked)) => {
                self.pool.frames[slot as usize].is_marked |= is_marked;
                let down = &mut self.nodes[port as usize].down;
                pass(down, &mut self.pool, &mut self.events, left_ns, slot, Event::AtNode);
            }
            None => self.pool.free.push(slot),
        }
    }
}

/// Lets a frame pass a link.
fn pass(
    link: &mut Link,
    pool: &mut Pool,
    events: &mut Events,
    left_ns: u64,
    slot: u32,
    arrive: fn(u32) -> Event,
) {
    let frame = pool.frames[slot as usize];
    let passage = link.pass(left_ns, u64::from(frame.bytes));
    let Some(at_ns) = passage.at_ns else {
        pool.free.push(slot);
        return;
    };
    if let Some(bit) = passage.flipped {
        pool.get_mut(slot)[bit as usize / 8] ^= 1 << (bit % 8);
    }
    events.push(at_ns, arrive(slot));
    if let Some(again_ns) = passage.again_ns {
        let mut copy = [0; super::MAX_FRAME_BYTES];
        let copy = &mut copy[..frame.bytes as usize];
        copy.copy_from_slice(pool.get(slot));
        let slot = pool.put(frame.to, copy);
        pool.frames[slot as usize].is_marked = frame.is_marked;
        events.push(again_ns, arrive(slot));
    }
}

/// What has been delivered, and when.
struct Tally {
    begin_ns: u64,
    from_ns: u64,
    middle_ns: u64,
    until_ns: u64,
    /// Payload bytes delivered to the receiving node since the beginning, by intervals.
    interval_ns: u64,
    series: Vec<u64>,
    /// Of these, by the last sender.
    last_series: Vec<u64>,
    /// The longest queue at the bottleneck, by intervals.
    queue_series: Vec<u64>,
    bytes: u64,
    /// Of the second half of the measurement, by sender.
    late_bytes: Vec<u64>,
    latency: Histogram,
    round_trip: Histogram,
    completion: Histogram,
    /// Of the burst under way: payload bytes that are to come, when it began.
    burst_bytes: u64,
    burst_ns: u64,
    burst_done: bool,
    hash: u64,
}

impl Tally {
    fn interval(&self, now_ns: u64) -> usize {
        (now_ns.saturating_sub(self.begin_ns) / self.interval_ns) as usize
    }

    fn is_measured(&self, now_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }

    /// A record of bulk has come to the receiving node.
    fn take(&mut self, now_ns: u64, sender: usize, sent_ns: u64, bytes: u64) {
        if now_ns < self.begin_ns {
            return;
        }
        let interval = self.interval(now_ns);
        if let Some(sum) = self.series.get_mut(interval) {
            *sum += bytes;
        }
        if sender + 1 == self.late_bytes.len()
            && let Some(sum) = self.last_series.get_mut(interval)
        {
            *sum += bytes;
        }
        if self.burst_bytes > 0 {
            self.burst_bytes = self.burst_bytes.saturating_sub(bytes);
            self.burst_done |= self.burst_bytes == 0;
        }
        if self.is_measured(now_ns) {
            self.bytes += bytes;
            self.latency.add(now_ns - sent_ns, 1);
            if now_ns >= self.middle_ns {
                self.late_bytes[sender] += bytes;
            }
        }
    }
}

/// Takes what a session delivers.
struct Delivery<'a> {
    now_ns: u64,
    end: usize,
    /// Number of the sender if this is an end at the receiving node.
    sender: Option<usize>,
    pattern: &'a Pattern,
    checker: &'a mut Checker,
    answers: &'a mut VecDeque<u64>,
    is_requester: bool,
    tally: &'a mut Tally,
}

impl Deliver for Delivery<'_> {
    fn record(&mut self, _kind: Kind, stream: u16, payload: &[u8]) {
        let Some(label) = self.checker.take(self.pattern, stream, payload) else { return };
        self.tally.hash = mix(self.tally.hash ^ self.now_ns ^ (self.end as u64) << 48 ^ label.place << 16);
        if stream == REQUEST_STREAM {
            if !self.is_requester {
                self.answers.push_back(label.sent_ns);
            } else if self.tally.is_measured(self.now_ns) {
                self.tally.round_trip.add(self.now_ns - label.sent_ns, 1);
            }
        } else if let Some(sender) = self.sender {
            self.tally.take(self.now_ns, sender, label.sent_ns, payload.len() as u64);
        }
    }
}

/// A run under way.
struct Run<'a> {
    cell: &'a Cell,
    contender: &'a Contender,
    config: Config,
    random: Random,
    pattern: Pattern,
    network: Network,
    ends: Vec<End>,
    tally: Tally,
    frames: u64,
    /// Ends that are not up for the first time yet.
    connecting: u32,
    trace: Option<Trace>,
}

/// What the last line of the trace said.
struct Trace {
    every_ns: u64,
    bytes: u64,
    dropped: u64,
}

/// Runs a cell; `trace_ns` prints a line each such time.
pub fn run(cell: &Cell, contender: &Contender, seed: u64, trace_ns: Option<u64>) -> Outcome {
    let mut run = Run::new(cell, contender, seed);
    run.connect();
    run.begin(trace_ns);
    let until_ns = run.tally.until_ns;
    run.advance(until_ns, |_| false);
    run.outcome()
}

impl<'a> Run<'a> {
    fn new(cell: &'a Cell, contender: &'a Contender, seed: u64) -> Self {
        let random = Random::new(seed).fork("grid", 0);
        let config = contender.config(cell);
        let mark_bytes = contender.heeds_marks.then(|| {
            let frames = (MARK_FRAMES_10G * cell.rate / 10_000_000_000).max(8);
            frames * u64::from(cell.frame_bytes)
        });
        let reverse = if cell.is_reverse_loaded { cell.fan_in * REVERSE_NODES } else { 0 };
        // From whom to whom: even ends connect, odd ones listen.
        let forward = (0..cell.fan_in).map(|sender| (sender + 1, RECEIVER as u32));
        let backward = (0..reverse).map(|node| (cell.fan_in + 1 + node, node / REVERSE_NODES + 1));
        let ends = forward
            .chain(backward)
            .enumerate()
            .flat_map(|(flow, (from, to))| {
                let active = 2 * flow as u32;
                [
                    End::new(from, active + 1, &config, false, cell.record_bytes),
                    End::new(to, active, &config, true, cell.record_bytes),
                ]
            })
            .collect();
        let nodes = 1 + cell.fan_in + reverse;
        let nic_bytes = u64::from(cell.frame_bytes);
        let attach = |node: u32| Attachment {
            nic: Nic::new(cell.rate, nic_bytes),
            up: Link::new(cell.link_delay_ns(), random.fork("up", u64::from(node))),
            down: Link::new(cell.link_delay_ns(), random.fork("down", u64::from(node))),
            waiting: VecDeque::new(),
            is_room_due: false,
            active: 0,
            count_ns: 0,
        };
        let ports = (0..nodes).map(|_| Port::new(cell.rate, mark_bytes)).collect();
        let network = Network {
            events: Events::default(),
            pool: Pool {
                stride: cell.frame_bytes as usize,
                bytes: Vec::new(),
                frames: Vec::new(),
                free: Vec::new(),
            },
            nodes: (0..nodes).map(attach).collect(),
            switch: Switch::new(ports, BUFFER_BYTES),
        };
        let (from_ns, until_ns) = cell.span_ns();
        let interval_ns = cell.base_rtt_ns().max(16 * cell.frame_ns());
        let intervals = until_ns.div_ceil(interval_ns) as usize;
        let tally = Tally {
            begin_ns: u64::MAX,
            from_ns,
            middle_ns: from_ns.midpoint(until_ns),
            until_ns,
            interval_ns,
            series: vec![0; intervals],
            last_series: vec![0; intervals],
            queue_series: vec![0; intervals],
            bytes: 0,
            late_bytes: vec![0; cell.fan_in as usize],
            latency: Histogram::default(),
            round_trip: Histogram::default(),
            completion: Histogram::default(),
            burst_bytes: 0,
            burst_ns: 0,
            burst_done: false,
            hash: 0,
        };
        Self {
            cell,
            contender,
            config,
            random,
            pattern: Pattern::new(),
            network,
            ends,
            tally,
            frames: 0,
            connecting: 0,
            trace: None,
        }
    }

    fn epoch(&mut self) -> u32 {
        self.random.range(1, u64::from(u32::MAX)) as u32
    }

    /// Sets all sessions up, one after the other.
    fn connect(&mut self) {
        self.connecting = self.ends.len() as u32;
        for flow in 0..self.ends.len() / 2 {
            let at_ns = EPOCH_NS + flow as u64 * CONNECT_GAP_NS;
            self.network.events.push(at_ns, Event::Restart(2 * flow as u32));
        }
        self.advance(u64::MAX, |run| run.connecting == 0);
    }

    /// Loads and faults set in.
    fn begin(&mut self, trace_ns: Option<u64>) {
        let cell = self.cell;
        // The beginning is a whole while after the last handshake, with nothing under way any more.
        let begin_ns = self.ends.iter().map(|end| end.data_ns).max().unwrap_or(0).max(EPOCH_NS);
        let begin_ns = begin_ns + 4 * cell.base_rtt_ns() + self.random.below(1000);
        self.advance(begin_ns, |_| false);
        let tally = &mut self.tally;
        tally.begin_ns = begin_ns;
        for time_ns in [&mut tally.from_ns, &mut tally.middle_ns, &mut tally.until_ns] {
            *time_ns += begin_ns;
        }
        let (from_ns, middle_ns, until_ns) = (tally.from_ns, tally.middle_ns, tally.until_ns);
        let port = &mut self.network.switch.ports[RECEIVER];
        port.watch = Some(Watch::new(from_ns, until_ns));
        let [rate, later_rate] = cell.rates();
        if cell.change.is_some() {
            port.change(begin_ns, rate);
            port.change(middle_ns, later_rate);
        }
        let attachment = &mut self.network.nodes[RECEIVER];
        attachment.up.set_faults(cell.faults);
        attachment.down.set_faults(cell.faults);
        if cell.restarts {
            self.network.events.push(middle_ns, Event::Restart(0));
        }
        if let Some(every_ns) = trace_ns {
            self.trace = Some(Trace { every_ns, bytes: 0, dropped: 0 });
            self.network.events.push(begin_ns, Event::Sample);
        }
        for end in (0..self.ends.len() as u32).step_by(2) {
            // Within one round trip of each other.
            let mut at_ns = begin_ns + self.random.below(cell.base_rtt_ns());
            if cell.joins && end / 2 + 1 == cell.fan_in {
                at_ns = middle_ns;
            }
            self.network.events.push(at_ns, Event::Load(end));
        }
    }

    /// An end gets its load.
    fn load(&mut self, now_ns: u64, index: u32) {
        let cell = self.cell;
        let random = self.random.fork("load", u64::from(index));
        let source = &mut self.ends[index as usize].source;
        match cell.load {
            _ if index / 2 >= cell.fan_in => source.is_bulk = true,
            Load::Bulk => source.is_bulk = true,
            Load::Open { percent } => {
                let rate = cell.payload_rate(cell.rate) * f64::from(percent) / 100.0 / f64::from(cell.fan_in);
                #[allow(clippy::cast_precision_loss)]
                let mean_ns = cell.record_bytes as f64 / rate * 1e9;
                source.open = Some(Arrivals::new(mean_ns, now_ns, random));
            }
            Load::Incast { .. } => {
                // The first sender's beginning is that of all.
                if index == 0 {
                    self.network.events.push(now_ns, Event::Burst);
                }
            }
            Load::Mixed { is_loaded } => {
                source.requests = Some(Arrivals::new(REQUEST_NS, now_ns, random));
                source.is_bulk = is_loaded;
                self.ends[index as usize + 1].source.is_bulk = is_loaded;
                self.touch(now_ns, index + 1);
            }
        }
        self.touch(now_ns, index);
    }

    /// All senders have a burst to send.
    fn burst(&mut self, now_ns: u64) {
        let Load::Incast { bytes } = self.cell.load else { return };
        let records = bytes.div_ceil(self.cell.record_bytes as u64);
        let senders = self.cell.fan_in;
        self.tally.burst_bytes = records * self.cell.record_bytes as u64 * u64::from(senders);
        self.tally.burst_ns = now_ns;
        for sender in 0..senders {
            self.ends[2 * sender as usize].source.burst_records = records;
            self.touch(now_ns, 2 * sender);
        }
    }

    /// The last byte of a burst has come; the next one follows after a pause.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
    fn end_burst(&mut self, now_ns: u64) {
        let Load::Incast { bytes } = self.cell.load else { return };
        let records = bytes.div_ceil(self.cell.record_bytes as u64);
        let payload = (records * self.cell.record_bytes as u64 * u64::from(self.cell.fan_in)) as f64;
        let least_ns =
            payload / self.cell.payload_rate(self.cell.rate) * 1e9 + self.cell.base_rtt_ns() as f64;
        let took_ns = (now_ns - self.tally.burst_ns) as f64;
        self.tally.burst_done = false;
        self.tally.completion.add((took_ns / least_ns * 1000.0) as u64, 1);
        let pause_ns = 10 * self.cell.base_rtt_ns() + self.random.below(self.cell.base_rtt_ns());
        self.network.events.push(now_ns + pause_ns, Event::Burst);
    }

    /// Lets happen what does up to a time, or until something holds.
    fn advance(&mut self, until_ns: u64, done: impl Fn(&Self) -> bool) {
        while !done(self) {
            let Some((now_ns, event)) = self.network.events.pop(until_ns) else { return };
            match event {
                Event::AtSwitch(slot) => {
                    let to = self.network.pool.frames[slot as usize].to;
                    let port = self.ends[to as usize].node;
                    self.network.forward(now_ns, slot, port);
                    if port as usize == RECEIVER {
                        self.note_queue(now_ns);
                    }
                }
                Event::AtNode(slot) => self.receive(now_ns, slot),
                Event::Room(node) => self.ring_has_room(now_ns, node),
                Event::Wake(index) => self.wake(now_ns, index),
                Event::Restart(index) => {
                    let epoch = self.epoch();
                    let end = &mut self.ends[index as usize];
                    end.begin_life(&self.config, epoch, now_ns);
                    end.wake_ns = u64::MAX;
                    self.touch(now_ns, index);
                }
                Event::Load(index) => self.load(now_ns, index),
                Event::Burst => self.burst(now_ns),
                Event::Sample => self.sample(now_ns),
            }
        }
    }

    fn note_queue(&mut self, now_ns: u64) {
        if now_ns >= self.tally.begin_ns {
            let interval = self.tally.interval(now_ns);
            let work_ns = self.network.switch.work_ns(RECEIVER, now_ns);
            if let Some(most) = self.tally.queue_series.get_mut(interval) {
                *most = work_ns.max(*most);
            }
        }
    }

    fn wake(&mut self, now_ns: u64, index: u32) {
        let end = &mut self.ends[index as usize];
        if end.wake_ns != now_ns {
            return;
        }
        end.wake_ns = u64::MAX;
        if let Some(session) = &mut end.session {
            session.handle_timeout(now_ns);
        }
        self.touch(now_ns, index);
    }

    fn ring_has_room(&mut self, now_ns: u64, node: u32) {
        self.network.nodes[node as usize].is_room_due = false;
        let waiting = self.network.nodes[node as usize].waiting.len();
        for _ in 0..waiting {
            let attachment = &mut self.network.nodes[node as usize];
            if attachment.nic.room(now_ns) == 0 {
                break;
            }
            let Some(index) = attachment.waiting.pop_front() else { break };
            self.ends[index as usize].waits = false;
            self.touch(now_ns, index);
        }
        self.await_room(node);
    }

    /// Has the node told when its ring has room, if somebody waits for it.
    fn await_room(&mut self, node: u32) {
        let attachment = &mut self.network.nodes[node as usize];
        if attachment.waiting.is_empty() || attachment.is_room_due {
            return;
        }
        if let Some(at_ns) = attachment.nic.room_at_ns() {
            attachment.is_room_due = true;
            self.network.events.push(at_ns, Event::Room(node));
        }
    }

    /// Lets an end send what it can and sees to its next deadline.
    fn touch(&mut self, now_ns: u64, index: u32) {
        let end = &mut self.ends[index as usize];
        let (node, peer) = (end.node, end.peer);
        let network = &mut self.network;
        let mut is_refused = false;
        loop {
            end.fill(index, now_ns, &self.pattern);
            let Some(session) = &mut end.session else { return };
            let any = session.transmit(now_ns, &mut |frames| {
                let taken = network.send(now_ns, node, peer, frames);
                is_refused |= taken < frames.len();
                taken
            });
            if !any || is_refused {
                break;
            }
        }
        if is_refused && !end.waits {
            end.waits = true;
            network.nodes[node as usize].waiting.push_back(index);
        }
        // What could have left already waits for the ring, not for a time.
        let deadline_ns = end.deadline_ns().filter(|deadline| !is_refused || *deadline > now_ns);
        if let Some(deadline_ns) = deadline_ns {
            let at_ns = deadline_ns.max(now_ns + 1);
            if at_ns < end.wake_ns {
                end.wake_ns = at_ns;
                network.events.push(at_ns, Event::Wake(index));
            }
        }
        if !end.was_up && end.is_up() {
            end.was_up = true;
            end.data_ns = now_ns;
            self.connecting = self.connecting.saturating_sub(1);
        }
        if is_refused {
            self.await_room(node);
        }
    }

    /// A frame has come to its node.
    fn receive(&mut self, now_ns: u64, slot: u32) {
        self.frames += 1;
        let frame = self.network.pool.frames[slot as usize];
        self.network.pool.free.push(slot);
        let index = frame.to as usize;
        let Ok((header, body)) = parse_frame(self.network.pool.get(slot)) else { return };
        let end = &mut self.ends[index];
        let is_greeting = header.kind == FrameKind::Hello
            && end
                .listener
                .as_ref()
                .is_some_and(|listener| header.dst_epoch == 0 || listener.is_half_open(header.dst_epoch));
        if is_greeting {
            let fresh_epoch = self.random.range(1, u64::from(u32::MAX)) as u32;
            let mut reply = [0; MIN_FRAME_BYTES];
            let Some(listener) = &mut end.listener else { return };
            match listener.handle_hello(now_ns, frame.to, &header, body, fresh_epoch, &mut reply) {
                Heard::Reply(bytes) => {
                    let (node, peer) = (end.node, end.peer);
                    self.network.send(now_ns, node, peer, &[&reply[..bytes]]);
                }
                Heard::Accept(session) => {
                    end.session = Some(*session);
                    end.wake_ns = u64::MAX;
                    let peer = end.peer as usize;
                    let life = self.ends[peer].life();
                    self.ends[index].checker.begin_life(life);
                }
                Heard::Dropped(_) => {}
            }
        } else if let Some(session) = &mut end.session {
            if frame.is_marked {
                session.note_congestion();
            }
            let is_receiver = end.node as usize == RECEIVER;
            let mut delivery = Delivery {
                now_ns,
                end: index,
                sender: is_receiver.then_some(index / 2),
                pattern: &self.pattern,
                checker: &mut end.checker,
                answers: &mut end.source.answers,
                is_requester: index.is_multiple_of(2),
                tally: &mut self.tally,
            };
            session.handle_frame(now_ns, &header, body, &mut delivery);
            if self.contender.has_receiver_cap && header.kind == FrameKind::Data {
                self.bound(now_ns, index);
            }
        }
        self.touch(now_ns, index as u32);
        if self.tally.burst_done {
            self.end_burst(now_ns);
        }
    }

    /// The receiving node bounds the window of a sender whose data has come.
    fn bound(&mut self, now_ns: u64, index: usize) {
        let node = self.ends[index].node;
        let (base_ns, frame_ns) = (self.cell.base_rtt_ns(), self.cell.frame_ns());
        let attachment = &mut self.network.nodes[node as usize];
        if now_ns >= attachment.count_ns {
            // A sender counts as long as its turn may take to come round.
            let horizon_ns = (4 * base_ns).max(3 * u64::from(attachment.active) * frame_ns);
            attachment.count_ns = now_ns + base_ns;
            attachment.active = 0;
            for end in self.ends.iter_mut().filter(|end| end.node == node) {
                end.is_active &= now_ns - end.data_ns < horizon_ns;
                attachment.active += u32::from(end.is_active);
            }
        }
        let end = &mut self.ends[index];
        attachment.active += u32::from(!end.is_active);
        end.is_active = true;
        end.data_ns = now_ns;
        let (rate, jitter_ns) = (self.cell.rate / 8, self.cell.faults.jitter_ns);
        let frame_bytes = u64::from(self.cell.frame_bytes);
        let bytes = receiver_cap_bytes(rate, base_ns, frame_bytes, jitter_ns, attachment.active);
        if let Some(session) = &mut end.session {
            session.set_receiver_cap_bytes(bytes);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn sample(&mut self, now_ns: u64) {
        let Some(trace) = &mut self.trace else { return };
        let bytes: u64 = self.tally.series.iter().sum();
        let share = (bytes - trace.bytes) as f64
            / (trace.every_ns as f64 / 1e9)
            / self.cell.payload_rate(self.cell.rate);
        let switch = &self.network.switch;
        let dropped = switch.ports[RECEIVER].dropped;
        let mut line = format!(
            "{:>9.2} us  share {share:.3}  queue {:>7.2} us  drops {:>4} ",
            (now_ns - self.tally.begin_ns) as f64 / 1e3,
            switch.work_ns(RECEIVER, now_ns) as f64 / 1e3,
            dropped - trace.dropped,
        );
        for end in self.ends.iter().step_by(2).take(4.min(self.cell.fan_in as usize)) {
            let Some(session) = &end.session else { continue };
            let counters = session.counters();
            let text = format!(
                " | w {:>8} srtt {:>8.2} lost {:>5} spurious {:>3} rto {:>2}",
                counters.window_bytes,
                counters.srtt_ns as f64 / 1e3,
                counters.lost,
                counters.spurious,
                counters.rtos
            );
            line.push_str(&text);
        }
        println!("{line}");
        trace.bytes = bytes;
        trace.dropped = dropped;
        let every_ns = trace.every_ns;
        self.network.events.push(now_ns + every_ns, Event::Sample);
    }

    #[allow(clippy::cast_precision_loss)]
    fn outcome(mut self) -> Outcome {
        let cell = self.cell;
        let tally = self.tally;
        let [rate, later_rate] = cell.rates();
        let half_s = (tally.until_ns - tally.from_ns) as f64 / 2e9;
        let most = (cell.payload_rate(rate) + cell.payload_rate(later_rate)) * half_s;
        let per_interval = |rate| cell.payload_rate(rate) * tally.interval_ns as f64 / 1e9;
        let middle = ((tally.middle_ns - tally.begin_ns) / tally.interval_ns) as usize + 1;
        // Four intervals in a row bring .9 of the capacity, with the queue as wanted where that is asked.
        let reaches = |from: usize, series: &[u64], least: f64, longest_ns: u64| {
            let queues = tally.queue_series[from..].windows(4);
            series[from..].windows(4).zip(queues).position(|(bytes, queues)| {
                bytes.iter().sum::<u64>() as f64 >= 4.0 * least
                    && queues.iter().all(|queue_ns| *queue_ns <= longest_ns)
            })
        };
        let time = |intervals: usize| intervals as u64 * tally.interval_ns;
        let start_ns = reaches(0, &tally.series, 0.9 * per_interval(rate), u64::MAX).map(time);
        let target_ns = cell.target_ns().max(8 * cell.frame_ns() * cell.rate / later_rate);
        let settle_ns = if cell.change.is_some() {
            let least = 0.9 * per_interval(later_rate);
            Some(reaches(middle, &tally.series, least, target_ns * 6 / 5).map(time))
        } else if cell.joins {
            let least = 0.8 * per_interval(rate) / f64::from(cell.fan_in);
            Some(reaches(middle, &tally.last_series, least, u64::MAX).map(time))
        } else {
            None
        };
        let sum: f64 = tally.late_bytes.iter().map(|bytes| *bytes as f64).sum();
        let squares: f64 = tally.late_bytes.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
        let jain = if squares > 0.0 { sum * sum / squares / f64::from(cell.fan_in) } else { 0.0 };
        let port = &mut self.network.switch.ports[RECEIVER];
        let mut outcome = Outcome {
            runs: 1,
            goodput: vec![(tally.bytes as f64 / most).min(1.0)],
            jain: vec![jain],
            start_ns: vec![start_ns],
            settle_ns: settle_ns.into_iter().collect(),
            latency: tally.latency,
            round_trip: tally.round_trip,
            completion: tally.completion,
            dropped: port.dropped,
            lost: self.network.nodes.iter().map(|node| node.up.lost + node.down.lost).sum(),
            frames: self.frames,
            hash: tally.hash,
            ..Outcome::default()
        };
        if let Some(mut watch) = port.watch.take() {
            watch.note(tally.until_ns, 0);
            outcome.queue = watch.histogram;
        }
        for end in &self.ends {
            outcome.violations.order += end.checker.violations.order;
            outcome.violations.content += end.checker.violations.content;
            outcome.dead += u32::from(!end.is_up());
        }
        for end in self.ends.iter().take(2 * cell.fan_in as usize).step_by(2) {
            let Some(session) = &end.session else { continue };
            let counters = session.counters();
            outcome.data_frames += counters.data_frames_sent;
            outcome.retransmissions += counters.retransmissions;
            outcome.spurious += counters.spurious;
            outcome.rtos += counters.rtos;
        }
        outcome
    }
}
