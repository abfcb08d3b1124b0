//! Both nodes in virtual time, with all that lies between them in the hands of the fuzzer.

use std::collections::VecDeque;

use etherslot_fuzz::heap;
use etherslot_node::{BoxLimits, BoxNode, HostNode, Interrupts, SlotConfig};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_session::{Config, Mode, State};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::Port;

use crate::engine::Engine;
use crate::evil::Evil;
use crate::forge::Heard;
use crate::guest::Machine;

pub const MS: u64 = 1_000_000;
/// The guest's address of BAR 0.
pub const BAR_ADDRESS: u64 = 0xFEB0_0000;
/// The Function's name.
pub const DEVICE: &str = "engine";
/// Streams of a session.
pub const STREAMS: u16 = 4;
/// Addresses and nodes.
const BOX: u8 = 1;
const HOST: u8 = 2;
pub const EVIL: u8 = 3;
/// How long a frame is under way, ns.
const WAY_NS: u64 = 20_000;
/// Frames of each direction that can be replayed.
const PAST: usize = 64;
/// Rounds in a row in which a node finds something to do.
const MAX_ROUNDS: usize = 1_000;
/// Steps between two looks at the deadlines of nodes that have nothing else to do.
const TIMER_STEPS: u32 = 16;
/// Idle steps in a row, each with a deadline that has passed: a daemon would not sleep meanwhile.
const MAX_AWAKE: usize = 500;
/// What all that peers and guest do may add to the heap, bytes: four sessions, with a switch each, take half of it.
const MAX_GROWTH_BYTES: usize = 6 << 20;
/// Nothing of a session is left when nothing was heard for so long.
const SILENCE_NS: u64 = 2_500 * MS;
/// So long may it take to be attached again: a new session, a refusal while another has the device, a bring-up.
const RECOVERY_NS: u64 = 4_000 * MS;

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ToBox,
    ToHost,
}

/// The frames of one direction.
#[derive(Debug, Default)]
pub struct Lane {
    pub frames: VecDeque<(u8, Vec<u8>)>,
    pub past: VecDeque<Vec<u8>>,
    pub heard: Heard,
}

impl Lane {
    fn push(&mut self, from: u8, frame: &[u8]) {
        self.heard.note(frame);
        if self.past.len() == PAST {
            self.past.pop_front();
        }
        self.past.push_back(frame.to_vec());
        self.frames.push_back((from, frame.to_vec()));
    }
}

pub struct World {
    pub now_ns: u64,
    pub box_node: BoxNode<u8>,
    pub host: HostNode<u8>,
    pub machine: Machine,
    /// Another host than the host.
    pub evil_host: Option<Evil>,
    /// It has taken the box's place.
    pub evil_box: Option<Evil>,
    pub to_box: Lane,
    pub to_host: Lane,
    /// Nothing passes.
    pub cut: bool,
    /// Since they were last polled the nodes have heard something.
    host_awake: bool,
    box_awake: bool,
    steps: u32,
    lives: u64,
    pub mode: Mode,
    /// Devices reach those of other boxes.
    joins: bool,
    heap_bytes: usize,
}

/// Small, so that its limits are met, and quick to take and give back.
pub fn session_config(node: u8, mode: Mode) -> Config {
    Config {
        node: NodeId([node; 16]),
        mode,
        window_frames: 16,
        backlog_frames: 8,
        streams: STREAMS,
        half_open: 4,
        ..Config::default()
    }
}

fn new_box(life: u64, mode: Mode, joins: bool) -> BoxNode<u8> {
    let endpoint = Box::new(Endpoint::new(Box::<Engine>::default(), EndpointConfig::default()));
    let name = Name::new(DEVICE).expect("a name of letters");
    let node =
        BoxNode::new(&session_config(BOX, mode), BoxLimits { sessions: 4 }, life, vec![(name, endpoint)]);
    let places = |port: &Port| match port {
        Port::Ring(number) => vec![*number as u8],
        _ => Vec::new(),
    };
    if joins { node.with_boxes(places) } else { node }
}

fn new_host(life: u64, mode: Mode, joins: bool) -> HostNode<u8> {
    let name = Name::new(DEVICE).expect("a name of letters");
    let slot = SlotConfig { name, address: BOX, hide_msix: false };
    let mut host = HostNode::new(session_config(HOST, mode), life, &[slot]);
    if joins {
        host.join_boxes(|address| Some(Port::Ring((*address).into())));
        host.set_domain(0, 1);
    }
    host
}

impl World {
    /// The nodes with sessions in `mode`, if they agree on it; devices may reach other boxes.
    pub fn new(mode: Mode, joins: bool) -> Self {
        let heap_bytes = heap::taken_bytes();
        Self {
            now_ns: MS,
            box_node: new_box(1, mode, joins),
            host: new_host(2, mode, joins),
            machine: Machine::new(),
            evil_host: None,
            evil_box: None,
            to_box: Lane::default(),
            to_host: Lane::default(),
            cut: false,
            host_awake: true,
            box_awake: true,
            steps: 0,
            lives: 2,
            mode,
            joins,
            heap_bytes,
        }
    }

    pub fn lane(&mut self, way: Way) -> &mut Lane {
        match way {
            Way::ToBox => &mut self.to_box,
            Way::ToHost => &mut self.to_host,
        }
    }

    pub fn restart_box(&mut self) {
        self.lives += 1;
        self.box_node = new_box(self.lives, self.mode, self.joins);
        self.box_awake = true;
    }

    pub fn restart_host(&mut self) {
        self.lives += 1;
        self.host = new_host(self.lives, self.mode, self.joins);
        self.host_awake = true;
        self.machine.forget();
    }

    /// An epoch for somebody else.
    pub fn other_epoch(&mut self) -> u32 {
        self.lives += 1;
        (self.lives as u32) << 16
    }

    /// The guest has asked something of the host node.
    pub fn wake_host(&mut self) {
        self.host_awake = true;
    }

    /// All nodes do what they can, and what they send waits in the lanes. As a daemon does, they sleep until they hear
    /// something or their time has come.
    pub fn collect(&mut self) {
        let now_ns = self.now_ns;
        self.steps += 1;
        if self.steps.is_multiple_of(TIMER_STEPS) || !self.host_awake && !self.box_awake {
            self.host_awake |= self.host.deadline_ns().is_some_and(|at| at <= now_ns);
            self.box_awake |= self.box_node.deadline_ns().is_some_and(|at| at <= now_ns);
        }
        if std::mem::take(&mut self.host_awake) {
            assert!((0..MAX_ROUNDS).any(|_| !self.poll_host()), "the host node works without end");
        }
        if std::mem::take(&mut self.box_awake) {
            assert!((0..MAX_ROUNDS).any(|_| !self.poll_box()), "the box works without end");
        }
        if let Some(evil) = &mut self.evil_host {
            evil.poll(now_ns);
            evil.transmit(now_ns)
                .iter()
                .for_each(|frame| self.to_box.frames.push_back((EVIL, frame.clone())));
        }
        if let Some(evil) = &mut self.evil_box {
            evil.poll(now_ns);
            evil.transmit(now_ns).iter().for_each(|frame| self.to_host.push(BOX, frame));
        }
        self.machine.check(now_ns);
        assert!(heap::taken_bytes() <= self.heap_bytes + MAX_GROWTH_BYTES, "the heap grows");
    }

    /// A round of the host node; true if there was something to do.
    fn poll_host(&mut self) -> bool {
        let progress = self.host.poll(self.now_ns, &mut self.machine);
        let to_box = &mut self.to_box;
        let sent = self.host.transmit(self.now_ns, &mut |to, burst| {
            assert_eq!(*to, BOX);
            for frame in burst {
                to_box.push(HOST, frame);
            }
            burst.len()
        });
        progress | sent
    }

    /// A round of the box; true if there was something to do.
    fn poll_box(&mut self) -> bool {
        let now_ns = self.now_ns;
        let progress = self.box_node.poll(now_ns);
        let (to_host, evil_host) = (&mut self.to_host, &mut self.evil_host);
        let replaced = self.evil_box.is_some();
        let sent = self.box_node.transmit(now_ns, &mut |to, burst| {
            for frame in burst {
                match (*to, &mut *evil_host) {
                    (EVIL, Some(evil)) => evil.receive(now_ns, BOX, frame),
                    (HOST, _) if !replaced => to_host.push(BOX, frame),
                    _ => {}
                }
            }
            burst.len()
        });
        progress | sent
    }

    pub fn deliver(&mut self, way: Way, from: u8, frame: &[u8]) {
        self.host_awake |= way == Way::ToHost;
        self.box_awake |= way == Way::ToBox;
        match (way, &mut self.evil_box) {
            (Way::ToHost, _) => self.host.receive(self.now_ns, &from, frame, &mut self.machine),
            (Way::ToBox, Some(evil)) if from == HOST => evil.receive(self.now_ns, from, frame),
            (Way::ToBox, _) => self.box_node.receive(self.now_ns, &from, frame),
        }
    }

    /// Whose frames go this way.
    pub fn sender(way: Way) -> u8 {
        match way {
            Way::ToBox => HOST,
            Way::ToHost => BOX,
        }
    }

    fn deliver_all(&mut self) -> bool {
        let mut any = false;
        for way in [Way::ToBox, Way::ToHost] {
            for (from, frame) in std::mem::take(&mut self.lane(way).frames) {
                any = true;
                if !self.cut {
                    self.deliver(way, from, &frame);
                }
            }
        }
        any
    }

    fn deadline_ns(&self) -> Option<u64> {
        let evil = [&self.evil_host, &self.evil_box].map(|evil| evil.as_ref()?.deadline_ns());
        [self.host.deadline_ns(), self.box_node.deadline_ns(), evil[0], evil[1]].into_iter().flatten().min()
    }

    /// Lets time pass, and all frames.
    pub fn run(&mut self, for_ns: u64) {
        let until_ns = self.now_ns + for_ns;
        let mut awake = 0;
        while self.now_ns < until_ns {
            self.collect();
            if self.deliver_all() {
                awake = 0;
                self.now_ns += WAY_NS;
                continue;
            }
            let next_ns = self.deadline_ns().unwrap_or(u64::MAX);
            if next_ns > self.now_ns {
                awake = 0;
                self.now_ns = next_ns.min(until_ns);
            } else {
                awake += 1;
                assert!(awake < MAX_AWAKE, "a deadline passes and nothing happens");
                self.now_ns += WAY_NS;
            }
        }
        self.collect();
    }

    fn run_until(&mut self, for_ns: u64, condition: impl Fn(&Self) -> bool) -> bool {
        let until_ns = self.now_ns + for_ns;
        while self.now_ns < until_ns && !condition(self) {
            self.run(5 * MS);
        }
        condition(self)
    }

    /// The device is attached.
    pub fn attach(&mut self) -> bool {
        self.run_until(RECOVERY_NS, |world| world.machine.attached)
    }

    fn answer(&mut self) -> Option<Vec<u8>> {
        (0..1_200).find_map(|_| {
            self.run(MS);
            self.machine.answer()
        })
    }

    fn config_write(&mut self, offset: u64, data: &[u8]) -> bool {
        let id = self.machine.id();
        self.wake_host();
        let outcome = self.host.config_write(self.now_ns, 0, id, offset, data);
        self.machine.note(self.now_ns, outcome, 0) && self.answer().is_some()
    }

    /// What a guest's kernel does with a device, and whether the device then does what it should.
    pub fn works(&mut self) -> bool {
        if !self.attach() {
            return false;
        }
        let id = self.machine.id();
        self.wake_host();
        let outcome = self.host.reset(self.now_ns, 0, Some(id));
        if !self.machine.note(self.now_ns, outcome, 0) || self.answer().is_none() {
            return false;
        }
        let written = self.config_write(0x10, &(BAR_ADDRESS as u32).to_le_bytes())
            && self.config_write(0x14, &[0; 4])
            && self.config_write(0x04, &[6, 0]);
        self.host.set_interrupts(0, Interrupts::MsiX);
        let room = self.run_until(1_200 * MS, |world| world.host.has_room(0));
        let read = &mut |_, _: &mut [u8]| false;
        if !written || !room || self.host.bar_write(0, 0, 0, &[7; 8], read).is_err() {
            return false;
        }
        let id = self.machine.id();
        self.wake_host();
        let outcome = self.host.bar_read(self.now_ns, 0, id, 0, 0, 8);
        self.machine.note(self.now_ns, outcome, 8) && self.answer() == Some(vec![7; 8])
    }

    /// All who are hostile are gone, and nothing is heard for a while: nothing is left of them.
    pub fn fall_silent(&mut self) {
        (self.evil_host, self.evil_box) = (None, None);
        self.cut = true;
        self.run(SILENCE_NS);
        self.cut = false;
        assert_eq!(self.box_node.hosts().count(), 0, "a session outlives its host");
        assert_eq!(self.box_node.boxes().count(), 0, "a session between boxes outlives the host");
        let connecting =
            |(_, session): (&u8, &etherslot_session::Session)| session.state() == State::Connecting;
        assert!(self.host.sessions().all(connecting), "a session outlives its box");
        assert!(!self.machine.attached, "a device outlives its session");
    }
}
