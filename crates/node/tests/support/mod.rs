//! A box and a host node side by side, with a small DMA engine as the device. Once it is warm, nothing here allocates.
#![allow(dead_code, unreachable_pub, missing_docs)] // Each test file uses a part.

use std::collections::VecDeque;

use etherslot_node::seal::{Credentials, Entropy, FabricKey, NodeKey, Peers, PublicKey, Suites};
use etherslot_node::{
    Accepted, BoxLimits, BoxNode, Device, Guest, HostNode, Interrupt, Interrupts, MAX_PAYLOAD_BYTES, Refused,
    Security, SlotConfig,
};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::{BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, MsixSpec, ResetKind};
use etherslot_session::Config;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;

pub const MS: u64 = 1_000_000;
pub const BAR_ADDRESS: u64 = 0xFEB0_0000;
pub const COMMAND: u64 = 0x04;
pub const BAR0: u64 = 0x10;

/// Registers: 0 scratch; 8 address; 16 length: a write starts "copy `length` bytes from `address` to `address + length`,
/// then interrupt vector 1".
#[derive(Default)]
pub struct Engine {
    scratch: [u8; 8],
    address: u64,
    total: usize,
    data: Vec<u8>,
    asked: usize,
    arrived: usize,
    sent: usize,
    interrupt: bool,
}

impl Function for Engine {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: 0x1234,
            device: 0x5678,
            subsystem_vendor: 0x1234,
            subsystem: 1,
            revision: 1,
            class: [0xFF, 0, 0],
            bars: vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: 0x4000 }],
            msix: Some(MsixSpec { vectors: 4, bar: 0, table_offset: 0x2000, pba_offset: 0x3000 }),
            msi_vectors: 4,
            intx: true,
            serial: None,
        }
    }

    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if offset == 0 {
            data.copy_from_slice(&self.scratch[..data.len()]);
        }
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        let value = || u64::from_le_bytes(data.try_into().unwrap());
        match offset {
            0 => self.scratch[..data.len()].copy_from_slice(data),
            8 => self.address = value(),
            16 => {
                self.total = value() as usize;
                self.data.resize(self.total.max(self.data.len()), 0);
                (self.asked, self.arrived, self.sent, self.interrupt) = (0, 0, 0, true);
            }
            _ => {}
        }
    }

    fn read_completed(&mut self, _token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        let at = (address - self.address) as usize;
        if let Ok(data) = result {
            self.data[at..at + bytes].copy_from_slice(data);
        }
        self.arrived += bytes;
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let total = self.total;
        if !bus.is_master() || total == 0 {
            return false;
        }
        if self.asked < total {
            let asked = bus.read(self.address + self.asked as u64, total - self.asked, 7);
            self.asked += asked;
            return asked != 0;
        }
        if self.arrived == total && self.sent < total {
            let sent = bus.write(self.address + (total + self.sent) as u64, &self.data[self.sent..total]);
            self.sent += sent;
            return sent != 0;
        }
        if self.sent == total && self.interrupt && bus.interrupt(1) {
            self.interrupt = false;
            return true;
        }
        false
    }

    fn reset(&mut self, _kind: ResetKind) {
        *self = Self::default();
    }
}

/// A guest that keeps what happens to it.
#[derive(Default)]
pub struct Machine {
    pub memory: Vec<u8>,
    pub interrupts: Vec<Interrupt>,
    pub answers: VecDeque<(u64, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    pub attached: Vec<Device>,
    pub lost: usize,
    /// What the target of the DMA held when the interrupt came.
    pub seen_at_interrupt: Vec<u8>,
    pub watch: std::ops::Range<usize>,
}

impl Machine {
    /// Throws away the answers that have come; how many there were.
    pub fn forget_answers(&mut self) -> usize {
        let count = self.answers.len();
        self.spare.extend(self.answers.drain(..).map(|(_, data)| data));
        count
    }
}

impl Guest for Machine {
    fn read(&mut self, _slot: usize, address: u64, data: &mut [u8]) -> bool {
        let at = address as usize;
        self.memory.get(at..at + data.len()).map(|memory| data.copy_from_slice(memory)).is_some()
    }

    fn write(&mut self, _slot: usize, address: u64, data: &[u8]) -> bool {
        let at = address as usize;
        self.memory.get_mut(at..at + data.len()).map(|memory| memory.copy_from_slice(data)).is_some()
    }

    fn interrupt(&mut self, _slot: usize, interrupt: Interrupt) {
        self.interrupts.push(interrupt);
        self.seen_at_interrupt.clear();
        self.seen_at_interrupt.extend_from_slice(&self.memory[self.watch.clone()]);
    }

    fn completed(&mut self, _slot: usize, access: u64, data: &[u8]) {
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(data);
        self.answers.push_back((access, kept));
    }

    fn attached(&mut self, _slot: usize, device: &Device) {
        self.attached.push(*device);
    }

    fn lost(&mut self, _slot: usize) {
        self.lost += 1;
    }
}

/// Frames on their way.
#[derive(Default)]
pub struct Wire {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
    /// One frame of so many is lost; 0: none.
    pub loses_one_of: usize,
    frames: usize,
}

impl Wire {
    fn take(&mut self, burst: &[&[u8]]) -> usize {
        for frame in burst {
            self.frames += 1;
            if self.loses_one_of != 0 && self.frames.is_multiple_of(self.loses_one_of) {
                continue;
            }
            self.bytes.extend_from_slice(frame);
            self.lengths.push(frame.len());
        }
        burst.len()
    }

    fn give(&mut self, mut to: impl FnMut(&[u8])) {
        let mut rest = &self.bytes[..];
        for &length in &self.lengths {
            let (frame, behind) = rest.split_at(length);
            to(frame);
            rest = behind;
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.lengths.clear();
    }
}

pub struct World {
    pub now_ns: u64,
    pub box_node: Option<BoxNode<u8>>,
    pub host: HostNode<u8>,
    pub machine: Machine,
    pub wire: Wire,
    /// What crossed the wire, and whether it went to the box, if it is kept.
    pub tap: Option<Vec<(bool, Vec<u8>)>>,
    /// What crossed it before the test began.
    pub greeting: Vec<(bool, Vec<u8>)>,
    lives: u64,
    pub next_access: u64,
    /// The slot that is used.
    pub slot: usize,
}

pub const BOX: u8 = 1;
pub const HOST: u8 = 2;

pub fn new_box(life: u64) -> BoxNode<u8> {
    let config = Config { node: NodeId([BOX; 16]), ..Config::default() };
    let engine = |name| {
        let endpoint = Endpoint::new(Box::<Engine>::default(), EndpointConfig::default());
        (Name::new(name).unwrap(), Box::new(endpoint))
    };
    BoxNode::new(&config, BoxLimits::default(), life, vec![engine("engine"), engine("other")])
}

pub fn new_host(life: u64, hide_msix: bool) -> HostNode<u8> {
    let config = Config { node: NodeId([HOST; 16]), ..Config::default() };
    HostNode::new(config, life, &[slot("engine", hide_msix)])
}

fn slot(name: &str, hide_msix: bool) -> SlotConfig<u8> {
    SlotConfig { name: Name::new(name).unwrap(), address: BOX, hide_msix }
}

/// Credentials of a node; no two lives have the same.
pub fn security(fabric: u8, node: u8, life: u64) -> Security {
    let mut seed = [node; 32];
    seed[..8].copy_from_slice(&life.to_be_bytes());
    Security {
        credentials: Credentials {
            fabric: FabricKey::from_bytes([fabric; 32]),
            node: NodeKey::from_bytes([node; 32]),
            peers: Peers::Fabric,
            suites: Suites::ALL,
        },
        entropy: Entropy::new(seed),
    }
}

pub fn public(node: u8) -> PublicKey {
    NodeKey::from_bytes([node; 32]).public()
}

/// A box with the key of [`BOX`], of fabric 1.
pub fn guarded_box(life: u64) -> BoxNode<u8> {
    let mut node = new_box(life);
    node.protect(security(1, BOX, life));
    node
}

/// A host with this key and the ID that belongs to `named`.
pub fn guarded_host(fabric: u8, key: u8, named: u8) -> HostNode<u8> {
    let config = Config { node: public(named).node_id("host"), is_link_intact: true, ..Config::default() };
    let mut node = HostNode::new(config, 2, &[slot("engine", false)]);
    node.protect(security(fabric, key, 2));
    node
}

impl World {
    /// Both nodes with keys.
    pub fn guarded() -> Self {
        Self::between(guarded_host(1, HOST, HOST), guarded_box(1))
    }

    pub fn new() -> Self {
        Self::with(false)
    }

    pub fn with(hide_msix: bool) -> Self {
        Self::of(new_host(2, hide_msix))
    }

    /// With both of the box's Functions in slots of the host.
    pub fn with_two_slots() -> Self {
        let config = Config { node: NodeId([HOST; 16]), ..Config::default() };
        Self::of(HostNode::new(config, 2, &[slot("engine", false), slot("other", false)]))
    }

    /// With this Function in place of the engine; the nodes' sessions differ as `host` and `io_box` say.
    pub fn with_device(function: Box<dyn Function>, host: &Config, io_box: &Config) -> Self {
        Self::with_payload(function, host, io_box, MAX_PAYLOAD_BYTES)
    }

    /// The same with a host whose TLPs carry at most so much.
    pub fn with_payload(
        function: Box<dyn Function>,
        host: &Config,
        io_box: &Config,
        max_payload_bytes: u16,
    ) -> Self {
        let endpoint = Box::new(Endpoint::new(function, EndpointConfig::default()));
        let functions = vec![(Name::new("engine").unwrap(), endpoint)];
        let io_box = Config { node: NodeId([BOX; 16]), ..io_box.clone() };
        let host = Config { node: NodeId([HOST; 16]), ..host.clone() };
        let box_node = BoxNode::new(&io_box, BoxLimits::default(), 1, functions);
        let mut host = HostNode::new(host, 2, &[slot("engine", false)]);
        host.set_max_payload(max_payload_bytes);
        Self::between(host, box_node)
    }

    fn of(host: HostNode<u8>) -> Self {
        Self::between(host, new_box(1))
    }

    pub fn between(host: HostNode<u8>, box_node: BoxNode<u8>) -> Self {
        let machine = Machine { memory: vec![0; 1 << 20], ..Machine::default() };
        let box_node = Some(box_node);
        let mut world = Self {
            now_ns: MS,
            box_node,
            host,
            machine,
            wire: Wire::default(),
            tap: Some(Vec::new()),
            greeting: Vec::new(),
            lives: 2,
            next_access: 0,
            slot: 0,
        };
        world.run(200 * MS);
        world.greeting = world.tap.take().unwrap_or_default();
        world
    }

    pub fn run(&mut self, for_ns: u64) {
        let until = self.now_ns + for_ns;
        while self.now_ns < until {
            self.step();
        }
    }

    /// 20 us: frames cross in one step.
    pub fn step(&mut self) {
        self.step_and(|_, _| {});
    }

    /// The same, with something done to the host node while the box's frames are on their way to it.
    pub fn step_and(&mut self, meanwhile: impl FnOnce(&mut HostNode<u8>, u64)) {
        self.now_ns += 20_000;
        let now_ns = self.now_ns;
        self.host.poll(now_ns, &mut self.machine);
        self.host.transmit(now_ns, &mut |_, burst| self.wire.take(burst));
        let Some(box_node) = &mut self.box_node else {
            self.wire.clear();
            return;
        };
        let tap = &mut self.tap;
        self.wire.give(|frame| {
            if let Some(tap) = tap {
                tap.push((true, frame.to_vec()));
            }
            box_node.receive(now_ns, &HOST, frame);
        });
        box_node.poll(now_ns);
        box_node.transmit(now_ns, &mut |_, burst| self.wire.take(burst));
        meanwhile(&mut self.host, now_ns);
        self.wire.give(|frame| {
            if let Some(tap) = &mut self.tap {
                tap.push((false, frame.to_vec()));
            }
            self.host.receive(now_ns, &BOX, frame, &mut self.machine);
        });
    }

    pub fn answer(&mut self, outcome: Result<Accepted, Refused>, bytes: usize) -> Vec<u8> {
        match outcome.unwrap() {
            Accepted::AllOnes => vec![0xFF; bytes],
            Accepted::Later => {
                let until = self.now_ns + 1_100 * MS;
                while self.machine.answers.is_empty() {
                    assert!(self.now_ns < until, "an access was not answered in time");
                    self.step();
                }
                let (access, data) = self.machine.answers.pop_front().unwrap();
                assert_eq!(access, self.next_access);
                data
            }
        }
    }

    pub fn config_read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.next_access += 1;
        let outcome = self.host.config_read(self.now_ns, self.slot, self.next_access, offset, bytes);
        self.answer(outcome, bytes)
    }

    pub fn config_write(&mut self, offset: u64, data: &[u8]) {
        self.next_access += 1;
        let outcome = self.host.config_write(self.now_ns, self.slot, self.next_access, offset, data);
        self.answer(outcome, 0);
    }

    pub fn bar_read(&mut self, offset: u64, bytes: usize) -> Vec<u8> {
        self.next_access += 1;
        let outcome = self.host.bar_read(self.now_ns, self.slot, self.next_access, 0, offset, bytes);
        self.answer(outcome, bytes)
    }

    pub fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let until = self.now_ns + 1_100 * MS;
        while !self.host.has_room(self.slot) {
            assert!(self.now_ns < until, "posted writes are not drained");
            self.step();
        }
        let Self { host, machine, slot, .. } = self;
        let read = &mut |address, data: &mut [u8]| machine.read(*slot, address, data);
        host.bar_write(*slot, 0, offset, data, read).unwrap();
    }

    /// What a guest's kernel does.
    pub fn set_up(&mut self) {
        self.config_write(BAR0, &(BAR_ADDRESS as u32).to_le_bytes());
        self.config_write(BAR0 + 4, &0u32.to_le_bytes());
        self.config_write(COMMAND, &6u16.to_le_bytes());
        self.host.set_interrupts(self.slot, Interrupts::MsiX);
        self.run(MS);
    }

    pub fn copy(&mut self, address: usize, bytes: usize) {
        for (at, byte) in self.machine.memory[address..address + bytes].iter_mut().enumerate() {
            *byte = (at * 7 + 3) as u8;
        }
        self.machine.watch = address + bytes..address + 2 * bytes;
        self.bar_write(8, &(address as u64).to_le_bytes());
        self.bar_write(16, &(bytes as u64).to_le_bytes());
        self.run(20 * MS);
    }

    pub fn io_box(&mut self) -> &mut BoxNode<u8> {
        self.box_node.as_mut().unwrap()
    }

    /// Somebody sends this to one of the nodes.
    pub fn inject(&mut self, to_box: bool, from: u8, frame: &[u8]) {
        let now_ns = self.now_ns;
        if to_box {
            self.io_box().receive(now_ns, &from, frame);
        } else {
            self.host.receive(now_ns, &from, frame, &mut self.machine);
        }
    }

    pub fn kill_box(&mut self) {
        self.box_node = None;
    }

    pub fn restart_box(&mut self) {
        self.lives += 1;
        self.box_node = Some(new_box(self.lives));
    }
}
