//! One run: a cell, a contender and a seed.
//!
//! Every node has one NIC and one link to the switch. Node 0 receives; nodes 1 to N send to it, one session each. Under
//! reverse load further nodes send to the senders. First all sessions are set up, without faults; then, at the time
//! called the beginning, loads and faults set in.

use etherslot_session::{Config, Heard, parse_frame, receiver_cap_bytes};
use etherslot_wire::frame::{Kind, MIN_FRAME_BYTES, flag};

use super::cell::{Cell, Load};
use super::contender::Contender;
use super::end::{Arrivals, End};
use super::events::{Event, Events};
use super::link::{Link, Nic, Port, Switch, Watch};
use super::net::{Attachment, Network, Pool};
use super::outcome::Outcome;
use super::record::Pattern;
use super::tally::{Delivery, Tally};
use crate::random::Random;

/// The switch's packet buffer.
const BUFFER_BYTES: u64 = 4 << 20;
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
    /// When the last burst began.
    burst_ns: u64,
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
        let mark_bytes = contender.heeds_marks.then(|| cell.mark_above_bytes());
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
        let attach = |node: u32| {
            let link = |label| Link::new(cell.link_delay_ns(), random.fork(label, u64::from(node)));
            Attachment::new(Nic::new(cell.rate, nic_bytes), link("up"), link("down"))
        };
        let ports = (0..nodes).map(|_| Port::new(cell.rate, mark_bytes)).collect();
        let network = Network {
            events: Events::default(),
            pool: Pool::new(cell.frame_bytes),
            nodes: (0..nodes).map(attach).collect(),
            switch: Switch::new(ports, BUFFER_BYTES),
        };
        Self {
            cell,
            contender,
            config,
            random,
            pattern: Pattern::new(),
            network,
            ends,
            tally: Tally::new(cell),
            frames: 0,
            burst_ns: 0,
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
        self.tally.begin(begin_ns);
        let Tally { from_ns, middle_ns, until_ns, .. } = self.tally;
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

    /// Payload of a burst of all senders with `bytes` each, in whole records.
    fn burst_bytes(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.cell.record_bytes as u64) * u64::from(self.cell.fan_in)
    }

    /// All senders have a burst to send.
    fn burst(&mut self, now_ns: u64) {
        let Load::Incast { bytes } = self.cell.load else { return };
        let records = bytes.div_ceil(self.cell.record_bytes as u64);
        self.tally.expect_burst(self.burst_bytes(bytes));
        self.burst_ns = now_ns;
        for sender in 0..self.cell.fan_in {
            self.ends[2 * sender as usize].source.burst_records = records;
            self.touch(now_ns, 2 * sender);
        }
    }

    /// The last byte of a burst has come; the next one follows after a pause.
    #[allow(clippy::cast_precision_loss, clippy::cast_sign_loss)]
    fn end_burst(&mut self, now_ns: u64) {
        let Load::Incast { bytes } = self.cell.load else { return };
        let payload = self.burst_bytes(bytes) as f64;
        let one_way_ns = self.cell.base_rtt_ns() as f64 / 2.0;
        let least_ns = payload / self.cell.payload_rate(self.cell.rate) * 1e9 + one_way_ns;
        let took_ns = (now_ns - self.burst_ns) as f64;
        self.tally.is_burst_over = false;
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
                    let to = self.network.pool.frame(slot).to;
                    let port = self.ends[to as usize].node;
                    self.network.forward(now_ns, slot, port);
                    if port as usize == RECEIVER {
                        let work_ns = self.network.switch.work_ns(RECEIVER, now_ns);
                        self.tally.note_queue(now_ns, work_ns);
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
        let frame = self.network.pool.frame(slot);
        let index = frame.to as usize;
        let Ok((header, body)) = parse_frame(self.network.pool.take(slot)) else { return };
        let end = &mut self.ends[index];
        let is_greeting = header.kind == Kind::Hello
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
            if self.contender.has_receiver_cap && header.kind == Kind::Data {
                self.bound(now_ns, index, header.flags & flag::ACK_NOW != 0);
            }
        }
        self.touch(now_ns, index as u32);
        if self.tally.is_burst_over {
            self.end_burst(now_ns);
        }
    }

    /// The receiving node bounds the window of a sender whose data has come.
    fn bound(&mut self, now_ns: u64, index: usize, waits: bool) {
        let node = self.ends[index].node;
        let (base_ns, frame_ns) = (self.cell.base_rtt_ns(), self.cell.frame_ns());
        let attachment = &mut self.network.nodes[node as usize];
        if now_ns >= attachment.count_ns {
            // One that waits for its turn counts as long as that may take to come round.
            let turn_ns = (4 * base_ns).max(3 * u64::from(attachment.active) * frame_ns);
            attachment.count_ns = now_ns + base_ns;
            attachment.active = 0;
            for end in self.ends.iter_mut().filter(|end| end.node == node) {
                end.is_active &= now_ns - end.data_ns < if end.waits_turn { turn_ns } else { 2 * base_ns };
                attachment.active += u32::from(end.is_active);
            }
        }
        let end = &mut self.ends[index];
        attachment.active += u32::from(!end.is_active);
        end.is_active = true;
        end.data_ns = now_ns;
        end.waits_turn = waits;
        let (rate, frame_bytes) = (self.cell.frame_rate(), u64::from(self.cell.frame_bytes));
        let path_ns = base_ns + self.cell.noise_ns();
        let bytes = receiver_cap_bytes(rate, path_ns, frame_bytes, attachment.active);
        if let Some(session) = &mut end.session {
            session.set_receiver_cap_bytes(bytes);
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn sample(&mut self, now_ns: u64) {
        let Some(trace) = &mut self.trace else { return };
        let bytes = self.tally.all_bytes();
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

    fn outcome(mut self) -> Outcome {
        let (cell, tally) = (self.cell, self.tally);
        let port = &mut self.network.switch.ports[RECEIVER];
        let mut outcome = Outcome {
            runs: 1,
            goodput: vec![tally.goodput(cell)],
            jain: vec![tally.jain()],
            start_ns: vec![tally.start_ns(cell)],
            settle_ns: vec![tally.settle_ns(cell)],
            series: tally.series(),
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
