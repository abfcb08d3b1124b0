//! The nodes, the Ethernet, and the hands that do what leases say.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::rc::Rc;
use std::time::Instant;

use etherslot_fabric::{
    DeviceConfig, DirectoryConfig, Event, Identity, LeaseConfig, Leases, Member, MemberConfig, NodeEvent,
    Place, Presence, RecallKind, To,
};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Assigned, Change, Device, DeviceState, Order, Port, Progress, Role, Serial};

use super::Scale;
use super::figures::{Load, Storm};
use crate::random::Random;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// One way through the switch, of frames and of what a session carries.
const WAY_NS: u64 = 20_000;
/// A host lets go of a device.
const QUIESCE_NS: u64 = MS;
/// A device comes up before the host asks for the next.
const BRING_UP_NS: u64 = 5 * MS;
/// A host that was denied a device asks again.
const RETRY_NS: u64 = SECOND;
/// A session dies when nothing comes.
const DEAD_AFTER_NS: u64 = SECOND;
/// Between two attempts at a session, at most.
const RECONNECT_NS: u64 = 150 * MS;
/// Preamble, header, check and gap around an Ethernet frame.
const ETHERNET_BYTES: u64 = 8 + 14 + 4 + 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At(u32);

const EVERYBODY: At = At(u32::MAX);

impl Place for At {
    fn link(&self) -> usize {
        0
    }
    fn port(&self) -> Option<Port> {
        Some(Port::Ring(self.0))
    }
    fn at(_link: usize, port: Port) -> Option<Self> {
        match port {
            Port::Ring(number) => Some(Self(number)),
            _ => None,
        }
    }
}

fn id(node: usize) -> NodeId {
    NodeId((node as u128 + 1).to_be_bytes())
}

struct Node {
    member: Member<At>,
    listens: bool,
    lives: bool,
    /// Of a box.
    leases: Option<Leases>,
    devices: Vec<Device>,
}

/// Something that is to happen; ties go by the order in which they were planned.
#[derive(Clone, Debug)]
enum Due {
    /// A node goes on.
    Poll(usize),
    /// A frame is there: to one, or to all that listen.
    Frame { from: usize, to: At, bytes: Rc<[u8]> },
    /// A host asks a box for a device.
    Attach { host: usize, device: usize },
    /// A host gives a device back.
    Detach { device: usize },
    /// The session that a device is used by is found dead by its box.
    SessionDead { device: usize },
}

struct Planned(u64, u64, Due);

impl PartialEq for Planned {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Planned {}
impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}

pub(super) struct World {
    scale: Scale,
    random: Random,
    now_ns: u64,
    planned: BinaryHeap<Reverse<Planned>>,
    plans: u64,
    nodes: Vec<Node>,
    index_of: HashMap<NodeId, usize>,
    /// For each node, when its next poll is planned.
    polls_ns: Vec<u64>,
    switch_is_up: bool,
    /// For each 10 ms, frames that left.
    frames: Vec<u64>,
    bytes: u64,
    /// Time of this machine for what listeners heard.
    heard: (u64, u64),
    found_ns: Vec<(NodeId, u64)>,
}

impl World {
    /// Boxes come first; then hosts.
    pub(super) fn new(scale: &Scale) -> Self {
        let mut world = Self {
            scale: *scale,
            random: Random::new(scale.seed),
            now_ns: 1,
            planned: BinaryHeap::new(),
            plans: 0,
            nodes: Vec::new(),
            index_of: HashMap::new(),
            polls_ns: Vec::new(),
            switch_is_up: true,
            frames: Vec::new(),
            bytes: 0,
            heard: (0, 0),
            found_ns: Vec::new(),
        };
        for number in 0..scale.boxes + scale.hosts {
            let is_box = number < scale.boxes;
            let place = if is_box { number } else { number - scale.boxes };
            world.add(is_box, place < scale.listeners);
        }
        world
    }

    fn add(&mut self, is_box: bool, listens: bool) -> usize {
        let number = self.nodes.len();
        let scale = self.scale;
        let name = Name::new(&format!("{}-{number}", if is_box { "box" } else { "host" }));
        let member = Member::new(MemberConfig {
            identity: Identity {
                node: id(number),
                life: 1,
                name: name.expect("a short name"),
                role: if is_box { Role::Box } else { Role::Host },
                group: None,
                ports: vec![Port::Ring(number as u32)],
            },
            interval_ns: scale.interval_ns,
            frame_bytes: 1500,
            directory: DirectoryConfig::default(),
            to: vec![To::Broadcast(EVERYBODY)],
            is_rendezvous: false,
            takes_orders: true,
        });
        let mut node = Node { member, listens, lives: true, leases: None, devices: Vec::new() };
        if is_box {
            let names = (number..scale.devices).step_by(scale.boxes).map(device_name);
            let config = LeaseConfig { hold_ns: 5 * SECOND, ..LeaseConfig::default() };
            node.devices = names.clone().map(device).collect();
            let configs = names.map(|name| DeviceConfig { name, group: None });
            node.leases = Some(Leases::new(config, configs));
        }
        self.index_of.insert(id(number), number);
        self.nodes.push(node);
        self.polls_ns.push(u64::MAX);
        number
    }

    fn plan(&mut self, at_ns: u64, due: Due) {
        self.plans += 1;
        self.planned.push(Reverse(Planned(at_ns, self.plans, due)));
    }

    fn below(&mut self, most: u64) -> u64 {
        self.random.bits() % most.max(1)
    }

    /// The box of a device, and the device's place in its list.
    fn place_of(&self, device: usize) -> (usize, usize) {
        (device % self.scale.boxes, device / self.scale.boxes)
    }

    fn host_of(&self, device: usize) -> usize {
        self.scale.boxes + device % self.scale.hosts
    }

    fn run_to(&mut self, until_ns: u64) {
        while let Some(Reverse(next)) = self.planned.peek() {
            if next.0 > until_ns {
                break;
            }
            let Some(Reverse(Planned(at_ns, _, due))) = self.planned.pop() else { break };
            self.now_ns = at_ns.max(self.now_ns);
            self.take(due);
        }
        self.now_ns = until_ns;
    }

    fn take(&mut self, due: Due) {
        match due {
            Due::Poll(number) => {
                self.polls_ns[number] = u64::MAX;
                self.poll(number);
            }
            Due::Frame { from, to, bytes } => self.deliver(from, to, &bytes),
            Due::Attach { host, device } => self.attach(host, device),
            Due::Detach { device } => {
                let (io_box, place) = self.place_of(device);
                let now_ns = self.now_ns;
                if let Some(leases) = &mut self.nodes[io_box].leases {
                    leases.released(now_ns, place);
                }
                self.poll(io_box);
            }
            Due::SessionDead { device } => {
                let (io_box, place) = self.place_of(device);
                let now_ns = self.now_ns;
                if let Some(leases) = &mut self.nodes[io_box].leases {
                    leases.owner_lost(now_ns, place);
                }
                self.poll(io_box);
            }
        }
    }

    fn deliver(&mut self, from: usize, to: At, bytes: &[u8]) {
        if !self.switch_is_up {
            return;
        }
        let one = (to != EVERYBODY).then_some(to.0 as usize);
        for number in 0..self.nodes.len() {
            let node = &self.nodes[number];
            let is_for = one.map_or(node.listens, |one| one == number);
            if number == from || !is_for || !node.lives {
                continue;
            }
            let is_lost = self.below(1_000_000) < u64::from(self.scale.loss_ppm);
            if is_lost {
                continue;
            }
            let now_ns = self.now_ns;
            let node = &mut self.nodes[number];
            let began = Instant::now();
            node.member.receive(now_ns, &At(from as u32), bytes, node.leases.as_mut());
            self.heard.0 += began.elapsed().as_nanos() as u64;
            self.heard.1 += 1;
            self.poll(number);
        }
    }

    /// A node goes on; what it sends is on its way; its next round is planned.
    fn poll(&mut self, number: usize) {
        let now_ns = self.now_ns;
        let node = &mut self.nodes[number];
        if !node.lives {
            return;
        }
        let mut actions = Vec::new();
        if let Some(leases) = &mut node.leases {
            leases.poll(now_ns);
            actions.extend(std::iter::from_fn(|| leases.action()));
            while let Some(place) = leases.changed() {
                let (Some(lease), Some(device)) = (leases.iter().nth(place), node.devices.get_mut(place))
                else {
                    continue;
                };
                (device.state, device.epoch, device.owner) = (lease.state, lease.epoch, lease.owner);
                device.assigned = lease.assigned;
                node.member.changed(now_ns, place);
            }
        }
        node.member.poll(now_ns, &node.devices, node.leases.as_mut());
        let mut sent: Vec<(At, Rc<[u8]>)> = Vec::new();
        node.member.transmit(&mut |to, frame| {
            sent.push((*to, frame.into()));
            true
        });
        let next_ns = node.member.deadline_ns(now_ns);
        let next_ns =
            node.leases.as_ref().and_then(Leases::deadline_ns).map_or(next_ns, |at| at.min(next_ns));
        for (to, bytes) in sent {
            let slot = (now_ns / (10 * MS)) as usize;
            if self.frames.len() <= slot {
                self.frames.resize(slot + 1, 0);
            }
            self.frames[slot] += 1;
            self.bytes += (bytes.len() as u64).max(46) + ETHERNET_BYTES;
            self.plan(now_ns + WAY_NS, Due::Frame { from: number, to, bytes });
        }
        for action in actions {
            let device = number + action.device * self.scale.boxes;
            if let RecallKind::Recall { .. } = action.kind {
                self.plan(now_ns + 2 * WAY_NS + QUIESCE_NS, Due::Detach { device });
            }
        }
        self.events(number);
        if next_ns < self.polls_ns[number] {
            let at_ns = next_ns.max(now_ns + 1);
            self.polls_ns[number] = at_ns;
            self.plan(at_ns, Due::Poll(number));
        }
    }

    /// A host that hears that a device is to be its own asks for it.
    fn events(&mut self, number: usize) {
        let own = id(number);
        let mut wanted = Vec::new();
        while let Some(event) = self.nodes[number].member.directory_mut().event() {
            match event {
                Event::Node(node, NodeEvent::Down) => self.found_ns.push((node, self.now_ns)),
                Event::Device { now, .. } if now.assigned == Assigned::Host(own) && now.owner.is_none() => {
                    let text = now.name.as_str().trim_start_matches("disk-");
                    wanted.extend(text.parse::<usize>().ok());
                }
                _ => {}
            }
        }
        for device in wanted {
            self.plan(self.now_ns + WAY_NS, Due::Attach { host: number, device });
        }
    }

    fn attach(&mut self, host: usize, device: usize) {
        if !self.switch_is_up {
            return;
        }
        let (io_box, place) = self.place_of(device);
        let now_ns = self.now_ns;
        let Some(leases) = &mut self.nodes[io_box].leases else { return };
        let Some(lease) = leases.iter().nth(place) else { return };
        let granted = leases.admit(now_ns, id(host), None, &lease.name);
        if granted.is_err() && lease.owner != Some(id(host)) && lease.assigned != Assigned::Nobody {
            let is_hopeless = matches!(lease.assigned, Assigned::Host(other) if other != id(host));
            if !is_hopeless {
                self.plan(now_ns + RETRY_NS, Due::Attach { host, device });
            }
        }
        self.poll(io_box);
    }

    /// All are switched on within a second, and every host takes its devices.
    pub(super) fn start(&mut self) {
        for number in 0..self.nodes.len() {
            let at_ns = self.now_ns + self.below(SECOND);
            self.polls_ns[number] = at_ns;
            self.plan(at_ns, Due::Poll(number));
        }
        for device in 0..self.scale.devices {
            let at_ns = self.now_ns + SECOND + self.below(SECOND);
            self.plan(at_ns, Due::Attach { host: self.host_of(device), device });
        }
        self.run_to(self.now_ns + 3 * SECOND);
    }

    /// The traffic of the last second.
    fn load(&self, began_ns: u64, began_bytes: u64) -> Load {
        let from = (began_ns / (10 * MS)) as usize;
        let frames = self.frames.get(from..).unwrap_or_default();
        let a_second = |count: u64| count * 1_000 / ((self.now_ns - began_ns) / MS).max(1);
        Load {
            frames_a_second: a_second(frames.iter().sum()),
            bits_a_second: a_second(8 * (self.bytes - began_bytes)),
            peak_frames: frames.iter().copied().max().unwrap_or(0),
        }
    }

    /// Nothing happens for a second. The load, and what this machine takes for a heartbeat, ns.
    pub(super) fn rest(&mut self) -> (Load, u64) {
        // To the end of a slot, so that none is counted in part.
        self.run_to((self.now_ns / (10 * MS) + 1) * 10 * MS);
        let (began_ns, began_bytes) = (self.now_ns, self.bytes);
        self.heard = (0, 0);
        self.run_to(began_ns + SECOND);
        (self.load(began_ns, began_bytes), self.heard.0 / self.heard.1.max(1))
    }

    fn devices_known(&self, number: usize) -> usize {
        let nodes = self.nodes[number].member.directory().nodes();
        nodes.map(|(_, known)| known.devices.iter().flatten().count()).sum()
    }

    /// A node comes: the time until it knows all devices.
    pub(super) fn late_node(&mut self) -> u64 {
        let number = self.add(false, true);
        self.poll(number);
        let began_ns = self.now_ns;
        while self.devices_known(number) < self.scale.devices && self.now_ns < began_ns + 60 * SECOND {
            self.run_to(self.now_ns + MS);
        }
        // It was only to be seen; as a listener more it would cost.
        self.nodes[number].lives = false;
        let took_ns = self.now_ns - began_ns;
        self.run_to(self.now_ns + SECOND);
        took_ns
    }

    /// A host dies: the times until the listeners find it silent.
    pub(super) fn death_of_a_host(&mut self) -> Vec<u64> {
        let dead = self.scale.boxes + self.scale.hosts - 1;
        self.nodes[dead].lives = false;
        let began_ns = self.now_ns;
        self.found_ns.clear();
        self.run_to(began_ns + SECOND);
        let node = id(dead);
        let found = self.found_ns.iter().filter(|(found, _)| *found == node);
        let times = found.map(|(_, at_ns)| at_ns - began_ns).collect();
        self.nodes[dead].lives = true;
        self.poll(dead);
        self.run_to(self.now_ns + SECOND);
        times
    }

    /// Devices go from host to host, one after the other, as a third host asks for it. The times until it knows that they have.
    pub(super) fn moves(&mut self) -> Vec<u64> {
        let mut times = Vec::new();
        let listeners = self.scale.listeners.min(self.scale.hosts).min(self.scale.boxes);
        for number in 0..self.scale.moves {
            let io_box = number % listeners;
            let device = io_box + self.scale.boxes * (number / listeners % 4);
            let host = |at: usize| self.scale.boxes + at % listeners;
            let (asker, to) = (host(number), host(number / 3 + 1));
            let order = Order {
                number: 0,
                to: id(io_box),
                life: 0,
                device: device_name(device),
                change: Change::Host(id(to)),
                dry_run: false,
                force: false,
            };
            let began_ns = self.now_ns;
            let asked = self.nodes[asker].member.order(began_ns, 30 * SECOND, order, None);
            self.poll(asker);
            let is_over = |world: &Self| {
                let outcome = world.nodes[asker].member.asked(asked).and_then(|asked| asked.outcome);
                outcome.is_some_and(|outcome| outcome.progress != Progress::Working)
            };
            while !is_over(self) && self.now_ns < began_ns + 30 * SECOND {
                self.run_to(self.now_ns + MS / 10);
            }
            let outcome = self.nodes[asker].member.asked(asked).and_then(|asked| asked.outcome);
            if outcome.is_some_and(|outcome| outcome.progress == Progress::Done) {
                times.push(self.now_ns - began_ns);
            }
            let rest_ns = self.below(200 * MS);
            self.run_to(self.now_ns + rest_ns);
        }
        times
    }

    /// The switch is away for two seconds: all sessions die. Then all come back at once.
    pub(super) fn switch_restarts(&mut self) -> Storm {
        let owners: Vec<Option<NodeId>> = (0..self.scale.devices).map(|device| self.owner(device)).collect();
        self.switch_is_up = false;
        let down_ns = self.now_ns;
        for device in 0..self.scale.devices {
            let after_ns = DEAD_AFTER_NS + self.below(100 * MS);
            self.plan(down_ns + after_ns, Due::SessionDead { device });
        }
        self.run_to((down_ns / (10 * MS) + 201) * 10 * MS);
        self.switch_is_up = true;
        let (up_ns, bytes) = (self.now_ns, self.bytes);
        let mut next_ns: HashMap<NodeId, u64> = HashMap::new();
        for (device, owner) in owners.iter().enumerate() {
            let Some(owner) = owner else { continue };
            let first_ns = up_ns + self.below(RECONNECT_NS) + 6 * WAY_NS;
            let at_ns = next_ns.entry(*owner).or_insert(first_ns);
            let (host, at) = (self.index_of[owner], *at_ns);
            *at_ns += BRING_UP_NS;
            self.plan(at, Due::Attach { host, device });
        }
        let mut storm = Storm::default();
        while self.now_ns < up_ns + 10 * SECOND {
            self.run_to(self.now_ns + 5 * MS);
            if storm.leases_ns.is_none() {
                let is_back = |device: usize| self.state(device) == DeviceState::Used;
                let all = owners.iter().enumerate().all(|(device, owner)| owner.is_none() || is_back(device));
                storm.leases_ns = all.then_some(self.now_ns - up_ns);
            } else if storm.known_ns.is_none() && self.all_is_known(&owners) {
                storm.known_ns = Some(self.now_ns - up_ns);
            }
            if self.now_ns == up_ns + SECOND {
                storm.load = self.load(up_ns, bytes);
            }
            if storm.known_ns.is_some() && self.now_ns > up_ns + SECOND {
                break;
            }
        }
        let strayed = |(device, owner): &(usize, &Option<NodeId>)| self.owner(*device) != **owner;
        storm.strayed = owners.iter().enumerate().filter(strayed).count();
        storm
    }

    fn lease(&self, device: usize) -> Option<etherslot_fabric::Lease> {
        let (io_box, place) = self.place_of(device);
        self.nodes[io_box].leases.as_ref()?.iter().nth(place)
    }

    fn owner(&self, device: usize) -> Option<NodeId> {
        self.lease(device)?.owner
    }

    fn state(&self, device: usize) -> DeviceState {
        self.lease(device).map_or(DeviceState::Free, |lease| lease.state)
    }

    fn all_is_known(&self, owners: &[Option<NodeId>]) -> bool {
        let hears = |node: &&Node| node.listens && node.lives && node.leases.is_none();
        self.nodes.iter().filter(hears).all(|node| {
            owners.iter().enumerate().all(|(device, owner)| {
                let (io_box, place) = self.place_of(device);
                let known = node.member.directory().get(&id(io_box));
                known.is_some_and(|known| {
                    let told = known.devices.get(place).copied().flatten();
                    known.presence == Presence::Up
                        && told.is_some_and(|told| told.owner == *owner && told.state != DeviceState::Kept)
                })
            })
        })
    }
}

fn device_name(device: usize) -> Name {
    Name::new(&format!("disk-{device}")).expect("a short name")
}

fn device(name: Name) -> Device {
    Device {
        name,
        serial: Serial::new(name.as_str()).expect("a short text"),
        id: (0x1B36, 0x0010),
        class: [1, 8, 2],
        state: DeviceState::Free,
        bytes: 1 << 40,
        epoch: 0,
        owner: None,
        assigned: Assigned::Group,
        has_owners: false,
        group: None,
    }
}
