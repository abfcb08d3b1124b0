//! Boxes, the host's program, the network between them, and time.

use etherslot_devices::dc::DcBuffer;
use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_initiator::nvme::Config as DriverConfig;
use etherslot_initiator::{Between, Copy, CopyConfig, CopyRange, Direct, Pieces};
use etherslot_node::{BoxLimits, BoxNode, SlotConfig};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::Function;
use etherslot_session::Config as SessionConfig;
use etherslot_storage::memory::{Disk, Latency, Options};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::Port;

use super::{BLOCK_BYTES, DISK_BYTES, Disaster, MS, Plan, Report};
use crate::events::Events;
use crate::network::{Address, Hop, Network};
use crate::random::Random;

/// All of a run, with every disaster and what follows from it.
const PATIENCE_NS: u64 = 60_000 * MS;
/// A node that is asked to run at once does so this much later.
const STEP_NS: u64 = 1_000;
const BUFFER_BYTES: u64 = 1 << 20;
const PIECES: Pieces = Pieces { bytes: 64 << 10, count: 12 };
/// Of what is copied, the host may have a part so small: what it asks of its devices and is told of them.
const HOST_SHARE: u64 = 10;

enum Event {
    AtSwitch(Hop),
    Arrive(Hop),
    StartBox(usize),
    StartHost,
}

/// The host's program, while it runs.
struct Host {
    direct: Direct<Address>,
    copy: Option<Copy>,
}

pub(super) struct World {
    plan: Plan,
    random: Random,
    now_ns: u64,
    events: Events<Event>,
    network: Network,
    boxes: Vec<Option<BoxNode<Address>>>,
    host: Option<Host>,
    /// Source and target of each pair in turn.
    disks: Vec<Disk>,
    /// What each target held, and what each source holds.
    before: Vec<Vec<u8>>,
    /// Bytes of each pair that were durable when somebody looked last.
    durable: Vec<u64>,
    report: Report,
    is_spoilt: bool,
}

fn name(index: usize) -> Name {
    Name::new(&format!("disk{index}")).expect("a short name")
}

fn session(plan: &Plan, node: usize) -> SessionConfig {
    SessionConfig {
        node: NodeId([node as u8 + 1; 16]),
        max_frame_bytes: plan.network.mtu,
        dead_after_ns: 300 * MS,
        ..SessionConfig::default()
    }
}

/// Every block of a disk tells whose it is.
fn content(random: &mut Random) -> Vec<u8> {
    (0..DISK_BYTES / 8).flat_map(|_| random.bits().to_le_bytes()).collect()
}

fn peek(disk: &Disk, start: u64, bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    disk.peek(start, &mut data);
    data
}

impl World {
    pub(super) fn new(plan: &Plan) -> Self {
        let random = Random::new(plan.seed).fork("world", 0);
        let latency = Latency { read_ns: 5_000, write_ns: 8_000, flush_ns: 20_000, jitter_ns: 10_000 };
        let disk = |index: usize| {
            let seed = random.fork("disk", index as u64).bits();
            Disk::new(Options { bytes: DISK_BYTES, latency, depth: 1024, seed, ..Options::default() })
        };
        let disks: Vec<_> = (0..plan.places.len()).map(disk).collect();
        let mut before = Vec::new();
        for (index, disk) in disks.iter().enumerate() {
            let data = content(&mut random.fork("content", index as u64));
            disk.poke(0, &data);
            before.push(data);
        }
        let mut world = Self {
            network: Network::new(plan.network.clone(), plan.boxes + 1, &random),
            boxes: (0..plan.boxes).map(|_| None).collect(),
            durable: vec![0; plan.pairs.len()],
            plan: plan.clone(),
            random,
            now_ns: MS,
            events: Events::default(),
            host: None,
            disks,
            before,
            report: Report::default(),
            is_spoilt: false,
        };
        (0..plan.boxes).for_each(|number| world.start_box(number));
        world.start_host();
        world
    }

    pub(super) fn run(mut self) -> Report {
        let until_ns = self.now_ns + PATIENCE_NS;
        while self.report.violation.is_none() {
            self.step();
            if self.host.as_ref().is_some_and(|host| host.copy.as_ref().is_some_and(Copy::is_over)) {
                self.check_end();
                break;
            }
            if self.now_ns > until_ns {
                let done = self.done();
                self.broken(|| format!("no end: {done:?} bytes are done"));
            }
        }
        self.note_copy();
        self.note_boxes();
        self.report.bytes = self.plan.bytes();
        self.report.lost = self.network.counters().lost;
        self.report.virtual_ns = self.now_ns;
        self.report
    }

    fn broken(&mut self, detail: impl FnOnce() -> String) {
        let now_ns = self.now_ns;
        self.report.violation.get_or_insert_with(|| format!("{}, at {now_ns} ns", detail()));
    }

    // ----- who is there -----

    fn start_box(&mut self, number: usize) {
        let functions = self.plan.places.iter().enumerate().filter(|(_, place)| **place == number);
        let mut functions: Vec<(Name, Box<Endpoint>)> = functions
            .map(|(index, _)| {
                let namespaces =
                    vec![Namespace::new(Box::new(self.disks[index].medium()), BLOCK_BYTES as u32)];
                let nvme = Nvme::new(NvmeConfig { namespaces, ..NvmeConfig::default() });
                (name(index), endpoint(Box::new(nvme.expect("such a device can be"))))
            })
            .collect();
        if self.plan.buffer_in == number {
            let buffer = DcBuffer::new(BUFFER_BYTES, 1).expect("such a device can be");
            functions.push((name(self.plan.places.len()), endpoint(Box::new(buffer))));
        }
        let seed = self.random.bits();
        let node = BoxNode::new(&session(&self.plan, number), BoxLimits::default(), seed, functions);
        self.boxes[number] = Some(node.with_boxes(|place| match place {
            Port::Ring(number) => vec![Address(*number as u8)],
            _ => Vec::new(),
        }));
        self.network.restart(Address(number as u8));
    }

    fn start_host(&mut self) {
        let slot = |index: usize, place: usize| SlotConfig {
            name: name(index),
            address: Address(place as u8),
            hide_msix: false,
        };
        let config = || DriverConfig {
            queue_depth: 64,
            buffers: Vec::new(),
            command_timeout_ns: 3_000 * MS,
            give_up_ns: 30_000 * MS,
            ..DriverConfig::default()
        };
        let places = &self.plan.places;
        let disks = places.iter().enumerate().map(|(index, &place)| (slot(index, place), config()));
        let buffer = slot(places.len(), self.plan.buffer_in);
        let node = self.plan.boxes;
        let seed = self.random.bits();
        let mut direct = Direct::new(session(&self.plan, node), seed, disks.collect(), Some(buffer), PIECES);
        direct.join_boxes(|address| Some(Port::Ring(u32::from(address.0))));
        self.host = Some(Host { direct, copy: None });
        self.network.restart(Address(node as u8));
    }

    /// Begins the copy, or goes on with it, as soon as all devices are there.
    fn begin(&mut self) {
        let Some(host) = self.host.as_mut().filter(|host| host.copy.is_none() && host.direct.is_ready())
        else {
            return;
        };
        let ranges =
            self.plan.pairs.iter().zip(&self.durable).enumerate().map(|(pair, (plan, &done))| CopyRange {
                source: 2 * pair,
                source_start: plan.source_start,
                target: 2 * pair + 1,
                target_start: plan.target_start,
                bytes: plan.bytes,
                done,
            });
        let config = CopyConfig {
            outstanding: self.plan.outstanding,
            chunk_bytes: self.plan.chunk_bytes,
            checkpoint_bytes: self.plan.checkpoint_bytes,
            verify: self.plan.verify,
            ..CopyConfig::default()
        };
        match Copy::new(&host.direct, &ranges.collect::<Vec<_>>(), config, self.now_ns) {
            Ok(copy) => host.copy = Some(copy),
            Err((pair, error)) => self.broken(|| format!("pair {pair} is refused: {error}")),
        }
    }

    // ----- time -----

    fn step(&mut self) {
        while self.events.next_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
            if let Some((_, event)) = self.events.pop() {
                self.handle(event);
            }
        }
        self.begin();
        let mut next_ns = u64::MAX;
        for node in 0..=self.plan.boxes {
            next_ns = next_ns.min(self.run_node(node).unwrap_or(u64::MAX));
        }
        self.look_at_copy();
        next_ns = next_ns.min(self.events.next_ns().unwrap_or(u64::MAX));
        // Nothing is ever quiet for long: sessions have heartbeats.
        self.now_ns = next_ns.clamp(self.now_ns + STEP_NS, self.now_ns + 100 * MS);
    }

    fn handle(&mut self, event: Event) {
        let now_ns = self.now_ns;
        match event {
            Event::AtSwitch(hop) => {
                let Self { network, events, .. } = self;
                network.switch(now_ns, &hop, &mut |hop| events.push(hop.at_ns, Event::Arrive(hop)));
            }
            Event::Arrive(Hop { from, to, frame, .. }) => {
                if let Some(place) = self.boxes.get_mut(usize::from(to.0)) {
                    if let Some(node) = place {
                        node.receive(now_ns, &from, &frame);
                    }
                } else if let Some(host) = &mut self.host {
                    host.direct.receive(now_ns, &from, &frame);
                }
            }
            Event::StartBox(number) if self.boxes[number].is_none() => self.start_box(number),
            Event::StartHost if self.host.is_none() => self.start_host(),
            Event::StartBox(_) | Event::StartHost => {}
        }
    }

    /// Lets a node do what there is to do; when it has to run again.
    fn run_node(&mut self, index: usize) -> Option<u64> {
        let now_ns = self.now_ns;
        let from = Address(index as u8);
        let Self { network, events, boxes, host, .. } = self;
        let mut refused = false;
        let mut send = |to: &Address, frames: &[&[u8]]| {
            for (taken, frame) in frames.iter().enumerate() {
                let mut hop = |hop: Hop| events.push(hop.at_ns, Event::AtSwitch(hop));
                if !network.send(now_ns, from, *to, frame, &mut hop) {
                    refused = true;
                    return taken;
                }
            }
            frames.len()
        };
        let deadline_ns = if index < boxes.len() {
            let node = boxes[index].as_mut()?;
            while node.poll(now_ns) {}
            node.transmit(now_ns, &mut send);
            node.deadline_ns()
        } else {
            let Host { direct, copy } = host.as_mut()?;
            let mut progress = true;
            while progress {
                progress = copy.as_mut().is_some_and(|copy| copy.poll(now_ns, direct));
                progress |= direct.poll(now_ns);
            }
            direct.transmit(now_ns, &mut send);
            [direct.deadline_ns(), copy.as_ref().and_then(Copy::deadline_ns)].into_iter().flatten().min()
        };
        let room_ns = if refused { network.room_at_ns(now_ns, from) } else { None };
        [deadline_ns, room_ns].into_iter().flatten().min()
    }

    // ----- what goes wrong -----

    fn done_of(&self, pair: usize) -> u64 {
        let copy = self.host.as_ref().and_then(|host| host.copy.as_ref());
        copy.map_or(0, |copy| copy.done(pair))
    }

    fn done(&self) -> u64 {
        (0..self.plan.pairs.len()).map(|pair| self.done_of(pair)).sum()
    }

    /// How far the copy is, and what comes because of that.
    fn look_at_copy(&mut self) {
        let done = self.done();
        if done == 0 && self.host.as_ref().is_none_or(|host| host.copy.is_none()) {
            return;
        }
        if let Some(copy) = self.host.as_ref().and_then(|host| host.copy.as_ref()) {
            for (pair, durable) in self.durable.iter_mut().enumerate() {
                *durable = (*durable).max(copy.durable(pair));
            }
        }
        let bytes = self.plan.bytes();
        if self.plan.sabotage && !self.is_spoilt && self.done_of(0) == self.plan.pairs[0].bytes {
            self.is_spoilt = true;
            self.spoil();
        }
        let due = self.plan.disasters.iter().position(|(share, _)| done * 1000 >= bytes * share);
        if let Some(index) = due {
            let (_, disaster) = self.plan.disasters.swap_remove(index);
            self.report.disasters += 1;
            self.disaster(disaster);
        }
    }

    /// Changes the first byte of the first target's range, which nobody writes any more.
    fn spoil(&mut self) {
        let at = self.plan.pairs[0].target_start;
        let byte = peek(&self.disks[1], at, 1)[0];
        let mut block = peek(&self.disks[1], at, BLOCK_BYTES);
        block[0] = !byte;
        self.disks[1].poke(at, &block);
    }

    fn disaster(&mut self, disaster: Disaster) {
        let address = |index: usize| Address(index as u8);
        match disaster {
            Disaster::KillBox(number, away_ns) => {
                self.note_boxes();
                self.boxes[number] = None;
                for (disk, _) in
                    self.disks.iter().zip(&self.plan.places).filter(|(_, place)| **place == number)
                {
                    disk.crash();
                }
                self.check_durable();
                self.events.push(self.now_ns + away_ns, Event::StartBox(number));
            }
            Disaster::KillHost(away_ns) => {
                self.note_copy();
                self.host = None;
                self.events.push(self.now_ns + away_ns, Event::StartHost);
            }
            Disaster::Cut(one, other, for_ns) => {
                self.network.cut(address(one), address(other), self.now_ns + for_ns);
                self.network.cut(address(other), address(one), self.now_ns + for_ns);
            }
        }
    }

    /// What nodes and copies counted goes with them.
    fn note_copy(&mut self) {
        let Some(copy) = self.host.as_ref().and_then(|host| host.copy.as_ref()) else { return };
        for pair in 0..self.plan.pairs.len() {
            let counters = copy.counters(pair);
            self.report.repeated += counters.repeated + counters.outlived + counters.rewound;
        }
    }

    fn note_boxes(&mut self) {
        for node in self.boxes.iter().flatten() {
            let far = node.far_counters();
            self.report.far_requests = self.report.far_requests.max(far.requests_out);
            self.report.severed = self.report.severed.max(far.severed);
        }
    }

    // ----- what has to be -----

    fn copied(&self, pair: usize, bytes: u64) -> Result<(), String> {
        let plan = self.plan.pairs[pair];
        let start = plan.source_start as usize;
        let expected = &self.before[2 * pair][start..start + bytes as usize];
        let there = peek(&self.disks[2 * pair + 1], plan.target_start, bytes);
        match there.iter().zip(expected).position(|(there, expected)| there != expected) {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} of pair {pair} is not what was copied")),
        }
    }

    /// A crash takes nothing of what was said to be durable.
    fn check_durable(&mut self) {
        for pair in 0..self.plan.pairs.len() {
            if let Err(detail) = self.copied(pair, self.durable[pair]) {
                self.broken(|| format!("{detail}, though it was durable"));
            }
        }
    }

    fn check_end(&mut self) {
        let Some(Host { direct, copy: Some(copy) }) = &self.host else { return };
        let errors: Vec<_> = (0..self.plan.pairs.len())
            .filter_map(|pair| copy.error(pair).map(|error| (pair, error)))
            .collect();
        let dma =
            direct.node().slot_counters().map(|slot| slot.dma_write_bytes + slot.dma_read_bytes).sum::<u64>();
        let between = direct.between();
        if let Some((pair, error)) = errors.first() {
            return self.broken(|| format!("pair {pair}: {error}"));
        }
        if between != Between::Buffer {
            self.broken(|| "the buffer is not between the disks".to_owned());
        }
        if self.report.disasters == 0 && dma * HOST_SHARE > self.plan.bytes() {
            self.broken(|| format!("{dma} bytes were the host's"));
        }
        for pair in 0..self.plan.pairs.len() {
            let plan = self.plan.pairs[pair];
            if let Err(detail) = self.copied(pair, plan.bytes) {
                return self.broken(|| detail);
            }
            let target = &self.disks[2 * pair + 1];
            let (start, end) = (plan.target_start, plan.target_start + plan.bytes);
            let old = &self.before[2 * pair + 1];
            let around = peek(target, 0, start) == old[..start as usize]
                && peek(target, end, DISK_BYTES - end) == old[end as usize..];
            let unflushed = target.unflushed_blocks();
            let source = peek(&self.disks[2 * pair], 0, DISK_BYTES) == self.before[2 * pair];
            if !around || !source {
                return self.broken(|| format!("what is around pair {pair} has changed"));
            }
            if unflushed != 0 {
                return self.broken(|| format!("{unflushed} blocks of pair {pair} are not durable"));
            }
        }
    }
}

fn endpoint(function: Box<dyn Function>) -> Box<Endpoint> {
    Box::new(Endpoint::new(function, EndpointConfig::default()))
}
