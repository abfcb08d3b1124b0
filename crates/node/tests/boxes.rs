//! Functions of one host in two boxes: what reaches what, in which order, and what a box that lies, a host that lies, and a Function's next owner
//! see of it.
#![allow(missing_docs)]

use std::collections::VecDeque;

use etherslot_devices::dc::DcBuffer;
use etherslot_fabric::{DeviceConfig, Key, LeaseConfig, Leases, Presence};
use etherslot_node::{
    BoxLimits, BoxNode, Device, FarCounters, Guest, HostNode, Interrupt, Interrupts, SlotConfig,
};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::{BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, ResetKind};
use etherslot_session::{Config, Deliver, Session, State, parse_frame};
use etherslot_wire::boxes::{Admit, Behind, Join, Reach};
use etherslot_wire::control::{AttachStatus, CONTROL_STREAM, Message, Name, feature};
use etherslot_wire::discovery::{Change, Order, Port};
use etherslot_wire::record::Kind;
use etherslot_wire::tlp::{CplStatus, Header, MAX_HEADER_BYTES, MemRequest, Op};
use etherslot_wire::{FunctionId, NodeId};

const MS: u64 = 1_000_000;
const SOURCE: u8 = 1;
const TARGET: u8 = 2;
const HOST: u8 = 10;
const OTHER: u8 = 11;
const LIAR: u8 = 20;
const DMA_AT: u64 = 0xFEB0_0000;
const RAM_AT: u64 = 0x50_0000_0000;
const PRIVATE_AT: u64 = 0x60_0000_0000;
const RAM_BYTES: u64 = 1 << 20;

/// Registers: 0 an address; 8 how many bytes are to be written there; then it writes a 1 to `DONE` in its host's memory and interrupts.
/// 16: eight bytes are read from this address; 24 what came, 32 whether nothing did.
#[derive(Default)]
struct Dma {
    address: u64,
    left: usize,
    at: usize,
    tells: bool,
    interrupts: bool,
    asks: Option<u64>,
    answer: u64,
    failed: u64,
}

const DONE: u64 = 0x100;

fn pattern(at: usize) -> u8 {
    (at as u8).wrapping_mul(13) | 1
}

impl Function for Dma {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: 0x1234,
            device: 0x5678,
            subsystem_vendor: 0x1234,
            subsystem: 1,
            revision: 1,
            class: [0xFF, 0, 0],
            bars: vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: 0x1000 }],
            msix: None,
            msi_vectors: 1,
            intx: false,
            serial: None,
        }
    }

    fn bar_read(&mut self, _bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let value = if offset == 24 { self.answer } else { self.failed };
        data.copy_from_slice(&value.to_le_bytes()[..data.len()]);
    }

    fn bar_write(&mut self, _bar: u8, offset: u64, data: &[u8]) {
        let value = data.try_into().map_or(0, u64::from_le_bytes);
        match offset {
            0 => self.address = value,
            8 => (self.left, self.at, self.tells, self.interrupts) = (value as usize, 0, true, true),
            16 => self.asks = Some(value),
            _ => {}
        }
    }

    fn read_completed(&mut self, _token: u64, _address: u64, _bytes: usize, result: Result<&[u8], Fault>) {
        match result.ok().and_then(|data| data.try_into().ok()) {
            Some(data) => self.answer = u64::from_le_bytes(data),
            None => self.failed = 1,
        }
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        if let Some(address) = self.asks {
            if bus.read(address, 8, 0) == 8 {
                self.asks = None;
            }
            return self.asks.is_none();
        }
        if self.left != 0 {
            let data: Vec<u8> = (self.at..self.at + self.left).map(pattern).collect();
            let sent = bus.write(self.address + self.at as u64, &data);
            (self.left, self.at) = (self.left - sent, self.at + sent);
            return sent != 0;
        }
        if self.tells {
            self.tells = bus.write(DONE, &[1]) == 0;
            return !self.tells;
        }
        if self.interrupts {
            self.interrupts = !bus.interrupt(0);
            return !self.interrupts;
        }
        false
    }

    fn reset(&mut self, _kind: ResetKind) {
        *self = Self::default();
    }
}

struct Machine {
    memory: Vec<u8>,
    interrupts: usize,
    attached: [usize; 2],
    lost: [usize; 2],
    answer: Vec<u8>,
}

impl Guest for Machine {
    fn read(&mut self, _slot: usize, address: u64, data: &mut [u8]) -> bool {
        let at = address as usize;
        self.memory
            .get(at..at.saturating_add(data.len()))
            .map(|memory| data.copy_from_slice(memory))
            .is_some()
    }

    fn write(&mut self, _slot: usize, address: u64, data: &[u8]) -> bool {
        let at = address as usize;
        self.memory
            .get_mut(at..at.saturating_add(data.len()))
            .map(|memory| memory.copy_from_slice(data))
            .is_some()
    }

    fn interrupt(&mut self, _slot: usize, interrupt: Interrupt) {
        self.interrupts += usize::from(interrupt == Interrupt::Message(0));
    }

    fn completed(&mut self, _slot: usize, _access: u64, data: &[u8]) {
        self.answer = data.to_vec();
    }

    fn attached(&mut self, slot: usize, _device: &Device) {
        self.attached[slot] += 1;
    }

    fn lost(&mut self, slot: usize) {
        self.lost[slot] += 1;
    }
}

/// A peer that says what the test wants.
struct Raw {
    session: Session,
    address: u8,
    to: u8,
    heard: VecDeque<(Kind, u16, Vec<u8>)>,
}

struct Keep<'a>(&'a mut VecDeque<(Kind, u16, Vec<u8>)>);

impl Deliver for Keep<'_> {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        self.0.push_back((kind, stream, payload.to_vec()));
    }
}

struct World {
    now_ns: u64,
    boxes: Vec<BoxNode<u8>>,
    hosts: Vec<(u8, HostNode<u8>, Machine)>,
    raws: Vec<Raw>,
    frames: Vec<(u8, u8, Vec<u8>)>,
    /// Frames from the first to the second get lost.
    lost: Option<(u8, u8)>,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn node(address: u8) -> NodeId {
    NodeId([address; 16])
}

fn config(address: u8) -> Config {
    Config { node: node(address), dead_after_ns: 200 * MS, ..Config::default() }
}

fn new_box(address: u8, functions: Vec<(&str, Box<dyn Function>)>) -> BoxNode<u8> {
    let devices: Vec<_> =
        functions.iter().map(|(text, _)| DeviceConfig { name: name(text), group: None }).collect();
    let endpoint = |function| Box::new(Endpoint::new(function, EndpointConfig::default()));
    let functions = functions.into_iter().map(|(text, function)| (name(text), endpoint(function)));
    let times = LeaseConfig { hold_ns: 500 * MS, recall_ns: 100 * MS, offer_ns: 3000 * MS };
    BoxNode::new(&config(address), BoxLimits::default(), address.into(), functions.collect())
        .with_leases(Leases::new(times, devices))
        .with_boxes(|port| match port {
            Port::Ring(number) => vec![*number as u8],
            _ => Vec::new(),
        })
}

fn new_host(address: u8, slots: &[(&str, u8)]) -> (u8, HostNode<u8>, Machine) {
    let slots: Vec<_> = slots
        .iter()
        .map(|&(device, address)| SlotConfig { name: name(device), address, hide_msix: false })
        .collect();
    let mut host = HostNode::new(config(address), address.into(), &slots);
    host.join_boxes(|address| Some(Port::Ring((*address).into())));
    (0..slots.len()).for_each(|slot| host.set_domain(slot, 1));
    let machine = Machine {
        memory: vec![0; 0x1000],
        interrupts: 0,
        attached: [0; 2],
        lost: [0; 2],
        answer: Vec::new(),
    };
    (address, host, machine)
}

fn ram() -> Box<dyn Function> {
    Box::new(DcBuffer::new(RAM_BYTES, 1).unwrap())
}

impl World {
    /// A device that writes in one box, memory in the other, and a host that has both in one domain and has set them up.
    fn new() -> Self {
        let boxes = vec![
            new_box(SOURCE, vec![("dma", Box::<Dma>::default())]),
            new_box(TARGET, vec![("ram", ram()), ("private", ram())]),
        ];
        let hosts = vec![new_host(HOST, &[("dma", SOURCE), ("ram", TARGET)])];
        let mut world = Self { now_ns: MS, boxes, hosts, raws: Vec::new(), frames: Vec::new(), lost: None };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        let before = self.hosts[0].2.attached;
        let wait_for =
            |world: &Self, slot: usize| world.hosts[0].2.attached[slot] != before[slot] || before[slot] != 0;
        self.wait(|world| wait_for(world, 0) && wait_for(world, 1));
        self.enable(0, 0, DMA_AT);
        self.enable(0, 1, RAM_AT);
        self.hosts[0].1.set_interrupts(0, Interrupts::Msi(1));
        self.wait(|world| {
            world.hosts[0].1.is_reaching(0) && world.far(SOURCE).joins + world.far(TARGET).joins >= 2
        });
    }

    /// Gives the first BAR an address, and switches the device on.
    fn enable(&mut self, host: usize, slot: usize, address: u64) {
        for (offset, value) in [(0x10, address as u32), (0x14, (address >> 32) as u32), (4, 6)] {
            let now_ns = self.now_ns;
            self.hosts[host].1.config_write(now_ns, slot, 1, offset, &value.to_le_bytes()).unwrap();
            self.run(2);
        }
    }

    fn far(&self, address: u8) -> FarCounters {
        *self.boxes[usize::from(address) - 1].far_counters()
    }

    fn step(&mut self) {
        self.now_ns += 50_000;
        let now_ns = self.now_ns;
        for (from, to, frame) in std::mem::take(&mut self.frames) {
            if self.lost == Some((from, to)) {
                continue;
            }
            for (number, io_box) in self.boxes.iter_mut().enumerate() {
                if usize::from(to) == number + 1 {
                    io_box.receive(now_ns, &from, &frame);
                }
            }
            for (address, host, machine) in &mut self.hosts {
                if *address == to {
                    host.receive(now_ns, &from, &frame, machine);
                }
            }
            for raw in self.raws.iter_mut().filter(|raw| raw.address == to && raw.to == from) {
                if let Ok((header, body)) = parse_frame(&frame)
                    && header.dst_epoch == raw.session.epoch()
                {
                    raw.session.handle_frame(now_ns, &header, body, &mut Keep(&mut raw.heard));
                }
            }
        }
        let mut frames = Vec::new();
        for (number, io_box) in self.boxes.iter_mut().enumerate() {
            while io_box.poll(now_ns) {}
            io_box.transmit(now_ns, &mut |to, burst| {
                frames.extend(burst.iter().map(|frame| (number as u8 + 1, *to, frame.to_vec())));
                burst.len()
            });
        }
        for (address, host, machine) in &mut self.hosts {
            while host.poll(now_ns, machine) {}
            host.transmit(now_ns, &mut |to, burst| {
                frames.extend(burst.iter().map(|frame| (*address, *to, frame.to_vec())));
                burst.len()
            });
        }
        for raw in &mut self.raws {
            if raw.session.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns) {
                raw.session.handle_timeout(now_ns);
            }
            let (address, to) = (raw.address, raw.to);
            raw.session.transmit(now_ns, &mut |burst| {
                frames.extend(burst.iter().map(|frame| (address, to, frame.to_vec())));
                burst.len()
            });
        }
        self.frames = frames;
    }

    fn run(&mut self, ms: u64) {
        let until_ns = self.now_ns + ms * MS;
        while self.now_ns < until_ns {
            self.step();
        }
    }

    fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until_ns = self.now_ns + 10_000 * MS;
        while !is_so(self) {
            assert!(self.now_ns < until_ns, "it does not come about");
            self.step();
        }
    }

    fn register(&mut self, offset: u64, value: u64) {
        self.wait(|world| world.hosts[0].1.has_room(0));
        self.hosts[0].1.bar_write(0, 0, offset, &value.to_le_bytes(), &mut |_, _| false).unwrap();
    }

    /// The device writes so many bytes to the memory in the other box, from an offset on.
    fn write_far(&mut self, offset: u64, bytes: u64) {
        self.register(0, RAM_AT + offset);
        self.register(8, bytes);
    }

    fn bar_read(&mut self, host: usize, slot: usize, offset: u64, bytes: usize) -> Vec<u8> {
        self.hosts[host].2.answer.clear();
        let now_ns = self.now_ns;
        self.hosts[host].1.bar_read(now_ns, slot, 9, 0, offset, bytes).unwrap();
        self.wait(|world| !world.hosts[host].2.answer.is_empty());
        self.hosts[host].2.answer.clone()
    }

    fn is_told(&self) -> bool {
        self.hosts[0].2.memory[DONE as usize] != 0 || self.hosts[0].2.interrupts != 0
    }

    /// A peer of a box that says it is this node.
    fn raw(&mut self, as_node: u8, to: u8, features: u32) -> usize {
        let address = LIAR + self.raws.len() as u8;
        let config = Config { features, ..config(as_node) };
        let session = Session::connect(&config, 0xABC0 + u32::from(address), self.now_ns);
        self.raws.push(Raw { session, address, to, heard: VecDeque::new() });
        let at = self.raws.len() - 1;
        self.wait(|world| world.raws[at].session.state() == State::Up);
        at
    }

    fn say(&mut self, raw: usize, stream: u16, message: Message) {
        let mut bytes = [0; Message::MAX_BYTES];
        let length = message.emit(&mut bytes).unwrap();
        self.wait(|world| {
            world.raws[raw].session.send(Kind::Control, stream, &bytes[..length], 0, &[], length).is_ok()
        });
    }

    fn send_tlp(&mut self, raw: usize, stream: u16, op: Op, data: &[u8]) {
        let mut head = [0; MAX_HEADER_BYTES];
        let length = Header::new(op).emit(&mut head).unwrap();
        let session = &mut self.raws[raw].session;
        session.send(Kind::Tlp, stream, &head[..length], 0, data, length + data.len()).unwrap();
    }

    /// What a peer hears next on a stream.
    fn hear(&mut self, raw: usize, kind: Kind, stream: u16) -> Vec<u8> {
        let is_it = move |record: &(Kind, u16, Vec<u8>)| record.0 == kind && record.1 == stream;
        self.wait(|world| world.raws[raw].heard.iter().any(is_it));
        let at = self.raws[raw].heard.iter().position(is_it).unwrap();
        self.raws[raw].heard.remove(at).unwrap().2
    }

    fn join(&mut self, raw: usize, join: Join) -> AttachStatus {
        self.say(raw, CONTROL_STREAM, Message::Join(join));
        match Message::parse(&self.hear(raw, Kind::Control, CONTROL_STREAM)) {
            Some(Message::Attached { stream, status, .. }) if stream == join.stream => status,
            other => panic!("{other:?}"),
        }
    }

    /// The ticket of the device that writes: our host's epoch in its session with the source box, its stream there.
    fn ticket(&self) -> Join {
        let (_, session, _) = self.boxes[0].hosts().find(|(address, ..)| **address == HOST).unwrap();
        Join { stream: 1, host: node(HOST), epoch: session.peer_epoch(), of_stream: 1 }
    }

    /// An operator gives a device of the target box to a host, by force if need be.
    fn give(&mut self, device: &str, to: u8) {
        let order = Order {
            number: 1,
            to: node(TARGET),
            life: 0,
            device: name(device),
            change: Change::Host(node(to)),
            dry_run: false,
            force: true,
        };
        let key = Key { asker: node(TARGET), life: 1, number: 1 };
        let now_ns = self.now_ns;
        self.boxes[1].leases_mut().order(now_ns, key, &order, &|_| Some(Presence::Up));
    }
}

/// The ID of the device that writes, in its box.
const FUNCTION: FunctionId = FunctionId::new(3, 0, 0);

fn write_op(requester: FunctionId, address: u64, bytes: usize) -> Op {
    Op::MemWrite(MemRequest::covering(requester, 0, address, bytes).unwrap())
}

fn read_op(tag: u16, address: u64) -> Op {
    Op::MemRead(MemRequest::covering(FUNCTION, tag, address, 8).unwrap())
}

#[test]
fn what_a_device_writes_to_another_box_is_there_when_the_host_hears_of_it() {
    let mut world = World::new();
    let bytes = 40_000;
    world.lost = Some((SOURCE, TARGET));
    world.write_far(0, bytes);
    world.run(100);
    assert!(!world.is_told(), "of what has not arrived");
    assert!(world.far(SOURCE).held > 0);
    world.lost = None;
    world.wait(|world| world.hosts[0].2.interrupts == 1);
    assert_eq!(world.hosts[0].2.memory[DONE as usize], 1);
    for offset in (0..bytes).step_by(4000) {
        let expected: Vec<u8> = (offset..offset + 4000).map(|at| pattern(at as usize)).collect();
        assert_eq!(world.bar_read(0, 1, offset, 4000), expected);
    }
    assert_eq!((world.hosts[0].2.lost, world.far(SOURCE).severed), ([0, 0], 0));
}

#[test]
fn what_was_written_and_not_acknowledged_waits_as_well() {
    let mut world = World::new();
    // It arrives, and the source box does not know.
    world.lost = Some((TARGET, SOURCE));
    world.write_far(0, 8);
    world.run(100);
    assert!(!world.is_told());
    world.lost = None;
    world.wait(|world| world.hosts[0].2.interrupts == 1);
}

#[test]
fn a_device_whose_writes_may_be_lost_is_reset_and_comes_back() {
    let mut world = World::new();
    world.lost = Some((SOURCE, TARGET));
    world.write_far(0, 8);
    // Longer than a silent peer is taken for alive.
    world.wait(|world| world.hosts[0].2.lost[0] == 1);
    assert!(!world.is_told() && world.far(SOURCE).severed == 1);
    world.lost = None;
    world.wait(|world| world.hosts[0].2.attached[0] == 2);
    world.wait(|world| world.hosts[0].1.is_reaching(0));
    assert_eq!(world.hosts[0].2.lost[1], 0);
    world.write_far(0, 8);
    world.wait(|world| world.hosts[0].2.interrupts == 1);
    assert_eq!(world.bar_read(0, 1, 0, 4), [pattern(0), pattern(1), pattern(2), pattern(3)]);
}

#[test]
fn a_device_reads_what_another_box_decodes_and_nothing_else() {
    let mut world = World::new();
    world.write_far(0, 8);
    world.wait(|world| world.hosts[0].2.interrupts == 1);
    world.register(16, RAM_AT);
    world.run(5);
    assert_eq!(world.bar_read(0, 0, 24, 8), (0..8).map(pattern).collect::<Vec<_>>());
    assert_eq!(world.bar_read(0, 0, 32, 8), [0; 8]);
    // Behind its end there is nobody, and the host has no memory there.
    world.register(16, RAM_AT + RAM_BYTES);
    world.wait(|world| world.bar_read(0, 0, 32, 8) != [0; 8]);
}

#[test]
fn whoever_has_no_ticket_of_its_own_does_not_come_in() {
    let mut world = World::new();
    let ticket = world.ticket();
    let stranger = world.raw(LIAR, TARGET, feature::JOINS);
    assert_eq!(world.join(stranger, ticket), AttachStatus::Unknown);
    assert_eq!(world.far(TARGET).no_ticket, 1);
    // A box that lies about whom it does this for. It takes the place of the one that it says it is.
    let liar = world.raw(SOURCE, TARGET, feature::JOINS);
    let refused = [
        Join { host: node(OTHER), ..ticket },
        Join { epoch: ticket.epoch ^ 1, ..ticket },
        Join { of_stream: 2, ..ticket },
        Join { stream: 64, ..ticket },
    ];
    let expected =
        [AttachStatus::Unknown, AttachStatus::Unknown, AttachStatus::Unknown, AttachStatus::NoRoom];
    assert_eq!(refused.map(|join| world.join(liar, join)), expected);
    let far = world.far(TARGET);
    assert_eq!((far.other_host, far.other_epoch, far.no_ticket, far.overflows), (1, 1, 2, 1));
    // What comes on a stream that leads nowhere leads nowhere.
    world.send_tlp(liar, 1, write_op(FUNCTION, RAM_AT, 4), &[7; 4]);
    world.run(5);
    assert_eq!(world.bar_read(0, 1, 0, 4), [0; 4]);
    assert!(world.far(TARGET).stray > 0);
}

#[test]
fn a_ticket_leads_to_one_domain_of_one_host_and_for_one_function() {
    let mut world = World::new();
    // Another host's memory, in the same box.
    world.hosts.push(new_host(OTHER, &[("private", TARGET)]));
    world.wait(|world| world.hosts[1].2.attached[0] == 1);
    world.enable(1, 0, PRIVATE_AT);
    let ticket = world.ticket();
    let source = world.raw(SOURCE, TARGET, feature::JOINS);
    assert_eq!(world.join(source, ticket), AttachStatus::Attached);
    assert_eq!(world.join(source, Join { stream: 2, ..ticket }), AttachStatus::Busy);
    assert_eq!(world.join(source, ticket), AttachStatus::NoRoom);
    world.send_tlp(source, 1, write_op(FUNCTION, RAM_AT, 4), &[1; 4]);
    world.send_tlp(source, 1, write_op(FUNCTION, PRIVATE_AT, 4), &[2; 4]);
    world.send_tlp(source, 1, write_op(FunctionId::new(4, 0, 0), RAM_AT + 4, 4), &[3; 4]);
    world.send_tlp(source, 1, write_op(FunctionId::new(0, 0, 0), RAM_AT + 4, 4), &[3; 4]);
    world.run(5);
    assert_eq!(world.bar_read(0, 1, 0, 8), [1, 1, 1, 1, 0, 0, 0, 0]);
    assert_eq!(world.bar_read(1, 0, 0, 4), [0; 4]);
    assert_eq!((world.far(TARGET).spoofed, world.far(TARGET).refused), (2, 1));
    for (tag, address, status) in
        [(1, RAM_AT, CplStatus::Success), (2, PRIVATE_AT, CplStatus::UnsupportedRequest)]
    {
        world.send_tlp(source, 1, read_op(tag, address), &[]);
        let tlp = world.hear(source, Kind::Tlp, 1);
        let (header, _) = Header::parse(&tlp).unwrap();
        let Op::Completion(completion) = header.op else { panic!("{header:?}") };
        assert_eq!((completion.requester, completion.tag, completion.status), (FUNCTION, tag, status));
    }
}

#[test]
fn nothing_of_a_former_owner_reaches_the_next_one() {
    let mut world = World::new();
    let ticket = world.ticket();
    let source = world.raw(SOURCE, TARGET, feature::JOINS);
    assert_eq!(world.join(source, ticket), AttachStatus::Attached);
    world.hosts.push(new_host(OTHER, &[("ram", TARGET)]));
    world.run(50);
    world.give("ram", OTHER);
    // All the while, one that hears nothing of it goes on writing.
    let mut written = 0_u64;
    let mut keep_writing = |world: &mut World| {
        if world.raws[source].session.room() != 0 {
            world.send_tlp(source, 1, write_op(FUNCTION, RAM_AT + written % 4096, 4), &[0xEE; 4]);
            written += 4;
        }
    };
    world.wait(|world| {
        keep_writing(world);
        world.hosts[1].2.attached[0] == 1
    });
    world.enable(1, 0, RAM_AT);
    for _ in 0..200 {
        keep_writing(&mut world);
        world.step();
    }
    assert_eq!(world.hosts[0].2.lost[1], 1);
    assert_eq!(world.bar_read(1, 0, 0, 4096), vec![0; 4096], "it comes empty and stays so");
    let told = world.hear(source, Kind::Control, 1);
    assert_eq!(Message::parse(&told), Some(Message::Recall { window_ms: 0 }));
    assert_eq!(world.join(source, Join { stream: 2, ..ticket }), AttachStatus::Unknown);
    // The stream comes free when it is given back, and not before.
    assert_eq!(world.join(source, ticket), AttachStatus::NoRoom);
    world.say(source, 1, Message::Detach);
    assert_eq!(Message::parse(&world.hear(source, Kind::Control, 1)), Some(Message::Detached));
    assert_eq!(world.join(source, ticket), AttachStatus::Unknown);
}

#[test]
fn a_ticket_ends_with_the_session_of_the_host_that_gave_it() {
    let mut world = World::new();
    let ticket = world.ticket();
    let source = world.raw(SOURCE, TARGET, feature::JOINS);
    assert_eq!(world.join(source, ticket), AttachStatus::Attached);
    world.lost = Some((HOST, TARGET));
    let told = world.hear(source, Kind::Control, 1);
    assert_eq!(Message::parse(&told), Some(Message::Recall { window_ms: 0 }));
    assert_eq!(world.join(source, Join { stream: 2, ..ticket }), AttachStatus::Unknown);
}

#[test]
fn a_host_that_says_too_much_takes_no_memory_of_the_box() {
    let mut world = World::new();
    let host = world.raw(OTHER, TARGET, feature::BOXES);
    let attach = Message::Attach {
        name: name("private"),
        stream: 1,
        max_payload_bytes: 4096,
        max_read_request_bytes: 4096,
    };
    world.say(host, CONTROL_STREAM, attach);
    world.hear(host, Kind::Control, CONTROL_STREAM);
    for number in 0..300_u16 {
        let admit = Admit {
            domain: 1,
            node: node(SOURCE),
            epoch: 1,
            stream: number + 1,
            function: FunctionId(number),
        };
        world.say(host, CONTROL_STREAM, Message::Admit(admit));
    }
    world.run(20);
    assert_eq!(world.far(TARGET).overflows, 300 - 256);
    for number in 0..64_u8 {
        let behind = Behind {
            address: u64::from(number) << 20,
            bytes: 1 << 20,
            node: node(100 + number),
            ports: [Some(Port::Ring(200)), None, None, None],
        };
        world.say(host, 1, Message::Reach(Reach { window: number, behind: Some(behind) }));
    }
    world.run(20);
    assert!(world.boxes[1].boxes().count() <= 64);
    // One way is that to the source box.
    assert_eq!(world.far(TARGET).overflows, 300 - 256 + 64 - 31);
    // It is told that it reaches not all of that, and those that it has nothing to do with do not notice.
    let told = world.hear(host, Kind::Control, 1);
    assert_eq!(Message::parse(&told), Some(Message::Reached { all: false }));
    world.write_far(0, 8);
    world.wait(|world| world.hosts[0].2.interrupts == 1);
}
