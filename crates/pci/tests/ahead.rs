//! What comes along with a doorbell is never older than the doorbell, whatever happens meanwhile: a ring of commands with their data, a
//! guest that overwrites both as soon as a command is over, a host that sends along what it likes, and a device that reads as it likes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use etherslot_pci::TlpOut;
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::{
    BarKind, BarSpec, Bus, Entry, Fault, Function, FunctionSpec, ReadAhead, ResetKind,
};
use etherslot_wire::FunctionId;
use etherslot_wire::ahead::{Piece, PieceKind, Rule};
use etherslot_wire::control::Message;
use etherslot_wire::tlp::{CfgRequest, CfgType, Completion, CplStatus, Header, MemRequest, Op};
use proptest::prelude::*;

const ENTRIES: u32 = 16;
const ENTRY_BYTES: usize = 64;
const BUFFERS: usize = 20;
const BUFFER_BYTES: usize = 4096;
const RULE: u8 = 5;
const DATA: usize = 0x4000;
const MEMORY_BYTES: usize = DATA + BUFFERS * BUFFER_BYTES;
const ID: FunctionId = FunctionId::new(3, 0, 0);
const ROOT: FunctionId = FunctionId::new(0, 0, 0);

/// How the device goes about a command.
#[derive(Clone, Copy, Debug)]
struct Way {
    /// The entry: from its piece if it is there, or always from memory.
    take_entry: bool,
    /// Its data: likewise; or it fails the command, and leaves them.
    take_data: bool,
    fails: bool,
    /// Bytes that it asks for at once.
    step: usize,
    /// Whether it does in one poll all that can be done.
    eager: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Entry,
    Data,
    Done,
}

/// The one command that the device is at.
struct Current {
    index: u32,
    way: Way,
    stage: Stage,
    bytes: Vec<u8>,
    asked: usize,
    arrived: usize,
    entry: Vec<u8>,
}

#[derive(Default)]
struct State {
    rule: Option<ReadAhead>,
    tail: u32,
    head: u32,
    current: Option<Current>,
    ways: VecDeque<Way>,
    finished: Vec<(u32, Vec<u8>, Option<Vec<u8>>)>,
}

struct Device(Rc<RefCell<State>>);

impl Current {
    fn address(&self) -> u64 {
        match self.stage {
            Stage::Entry => u64::from(self.index) * ENTRY_BYTES as u64,
            _ => u64::from_le_bytes(*self.entry.first_chunk().unwrap()),
        }
    }

    fn go_on(&mut self, bus: &mut dyn Bus) -> bool {
        let entry = Entry { rule: RULE, index: self.index };
        let from = self.address();
        let at = self.asked;
        let end = (at + self.way.step).min(self.bytes.len());
        if at == self.bytes.len() {
            if self.arrived < at {
                return false;
            }
            if self.stage == Stage::Entry {
                self.entry = std::mem::take(&mut self.bytes);
                (self.asked, self.arrived) = (0, 0);
                self.stage = if self.way.fails { Stage::Done } else { Stage::Data };
                self.bytes = vec![0; BUFFER_BYTES];
            } else {
                self.stage = Stage::Done;
            }
            return true;
        }
        let taken = match self.stage {
            Stage::Entry if self.way.take_entry => bus.take_entries(entry, &mut self.bytes[at..]),
            Stage::Data if self.way.take_data => {
                let bytes = &mut self.bytes[at..end];
                bus.take_for(entry, from + at as u64, end - at, &mut |data| {
                    bytes[..data.len()].copy_from_slice(data);
                })
            }
            _ => 0,
        };
        self.arrived += taken;
        let asked = if taken == 0 { bus.read(from + at as u64, end - at, 0) } else { taken };
        self.asked += asked;
        asked != 0
    }
}

impl Function for Device {
    fn spec(&self) -> FunctionSpec {
        FunctionSpec {
            vendor: 1,
            device: 2,
            subsystem_vendor: 1,
            subsystem: 2,
            revision: 0,
            class: [0xFF, 0, 0],
            bars: vec![BarSpec { index: 0, kind: BarKind::Memory64, bytes: 0x1000 }],
            msix: None,
            msi_vectors: 0,
            intx: false,
            serial: None,
        }
    }

    fn bar_read(&mut self, _bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(0);
    }

    fn bar_write(&mut self, _bar: u8, _offset: u64, data: &[u8]) {
        self.0.borrow_mut().tail = u32::from_le_bytes(data.try_into().unwrap());
    }

    fn read_completed(&mut self, _token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        let mut state = self.0.borrow_mut();
        let current = state.current.as_mut().expect("a read is under way");
        let at = (address - current.address()) as usize;
        current.bytes[at..at + bytes].copy_from_slice(result.expect("no read fails"));
        current.arrived += bytes;
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let state = &mut *self.0.borrow_mut();
        if !bus.is_master() {
            return false;
        }
        if state.current.is_none() && state.head != state.tail {
            let Some(way) = state.ways.pop_front() else { return false };
            state.current = Some(Current {
                index: state.head,
                way,
                stage: Stage::Entry,
                bytes: vec![0; ENTRY_BYTES],
                asked: 0,
                arrived: 0,
                entry: Vec::new(),
            });
            state.head = (state.head + 1) % ENTRIES;
        }
        let Some(current) = &mut state.current else { return false };
        let progress = current.go_on(bus);
        while current.way.eager && current.stage != Stage::Done && current.go_on(bus) {}
        if current.stage == Stage::Done {
            let current = state.current.take().unwrap();
            state.finished.push((
                current.index,
                current.entry,
                (!current.way.fails).then_some(current.bytes),
            ));
        }
        progress
    }

    fn read_ahead(&mut self) -> Option<ReadAhead> {
        self.0.borrow_mut().rule.take()
    }

    fn reset(&mut self, _kind: ResetKind) {
        *self.0.borrow_mut() = State::default();
    }
}

/// The way upstream: reads to be answered, and rules.
#[derive(Default)]
struct Up {
    reads: VecDeque<MemRequest>,
    rules: VecDeque<Message>,
    closed: bool,
}

impl TlpOut for Up {
    fn room(&mut self, _stream: u16) -> usize {
        if self.closed { 0 } else { 1400 }
    }

    fn send(&mut self, _stream: u16, header: &Header, _data: &[u8]) -> bool {
        if let Op::MemRead(request) = header.op {
            self.reads.push_back(request);
        }
        true
    }

    fn declare(&mut self, _stream: u16, message: Message) -> bool {
        self.rules.push_back(message);
        true
    }
}

/// What is on its way to the box, in order.
enum Down {
    Piece(Piece, Vec<u8>),
    Doorbell(u32),
    Completion(MemRequest, Vec<u8>),
    Master(bool),
}

struct World {
    endpoint: Endpoint,
    device: Rc<RefCell<State>>,
    up: Up,
    down: VecDeque<Down>,
    memory: Vec<u8>,
    /// The rule as the host knows it.
    rule: Option<Rule>,
    /// Commands that are not over, oldest first: index, buffer, version.
    commands: VecDeque<(u32, usize, u64)>,
    tail: u32,
    rung: u32,
    version: u64,
    now_ns: u64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The guest submits, with a buffer of its choice or that which the place in the ring had before.
    Submit(Option<usize>),
    /// It rings; so many entries, and the data of those whose bit is set, go along.
    Ring(u32, u32),
    Deliver(usize),
    /// So many arrive in one frame.
    Frame(usize),
    Poll(u8),
    /// The host answers the oldest reads and hears of rules.
    Answer(usize),
    Declare,
    Withdraw,
    Master,
    /// The device and its guest begin anew; at once with a rule, or without.
    Reset(bool),
    Closed(bool),
    Work(Way),
}

fn cfg_write(endpoint: &mut Endpoint, register: u16, value: u32) {
    let request =
        CfgRequest { kind: CfgType::Type0, requester: ROOT, tag: 0, target: ID, register, first_be: 0xF };
    endpoint.receive(0, &Header::new(Op::CfgWrite(request)), &value.to_le_bytes());
}

impl World {
    fn new() -> Self {
        let device = Rc::new(RefCell::new(State::default()));
        let mut endpoint = Endpoint::new(Box::new(Device(Rc::clone(&device))), EndpointConfig::default());
        endpoint.attach(4096, 512);
        cfg_write(&mut endpoint, 4, 6);
        Self {
            endpoint,
            device,
            up: Up::default(),
            down: VecDeque::new(),
            memory: vec![0; MEMORY_BYTES],
            rule: None,
            commands: VecDeque::new(),
            tail: 0,
            rung: 0,
            version: 0,
            now_ns: 0,
        }
    }

    fn fresh(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn write(&mut self, at: usize, bytes: usize, version: u64) {
        for word in self.memory[at..at + bytes].chunks_exact_mut(8) {
            word.copy_from_slice(&version.to_le_bytes());
        }
    }

    fn submit(&mut self, buffer: Option<usize>) {
        let buffer = buffer.unwrap_or(self.tail as usize);
        if self.commands.len() as u32 == ENTRIES - 1 || self.commands.iter().any(|&(_, at, _)| at == buffer) {
            return;
        }
        let version = self.fresh();
        let (entry, data) = (self.tail as usize * ENTRY_BYTES, DATA + buffer * BUFFER_BYTES);
        self.write(entry, ENTRY_BYTES, version);
        self.memory[entry..entry + 8].copy_from_slice(&(data as u64).to_le_bytes());
        self.write(data, BUFFER_BYTES, version);
        self.commands.push_back((self.tail, buffer, version));
        self.tail = (self.tail + 1) % ENTRIES;
    }

    fn ring(&mut self, entries: u32, data: u32) {
        let new = (self.tail + ENTRIES - self.rung) % ENTRIES;
        if let Some(rule) = self.rule {
            for place in 0..new.min(entries) {
                let index = (self.rung + place) % ENTRIES;
                let mut send = |kind, address: usize, bytes: usize| {
                    let piece = Piece {
                        rule: RULE,
                        generation: rule.generation,
                        kind,
                        index: index as u16,
                        address: address as u64,
                    };
                    self.down.push_back(Down::Piece(piece, self.memory[address..address + bytes].to_vec()));
                };
                let entry = index as usize * ENTRY_BYTES;
                send(PieceKind::Entries, entry, ENTRY_BYTES);
                if data >> index & 1 != 0 {
                    let address = u64::from_le_bytes(*self.memory[entry..].first_chunk().unwrap());
                    send(PieceKind::Data, address as usize, BUFFER_BYTES);
                }
            }
        }
        self.rung = self.tail;
        self.down.push_back(Down::Doorbell(self.tail));
    }

    /// What came first, in a frame with this body so far if in one.
    fn deliver(&mut self, body: Option<&mut Vec<u8>>) {
        match self.down.pop_front() {
            Some(Down::Piece(piece, bytes)) => {
                let at = body.map(|body| {
                    let at = body.len();
                    body.extend_from_slice(&bytes);
                    at
                });
                let left = self.endpoint.receive_ahead(&piece, &bytes, at);
                assert!(!left || at.is_some(), "it can only be left where there is a frame");
            }
            Some(Down::Doorbell(tail)) => {
                self.endpoint.function_mut().bar_write(0, 0, &tail.to_le_bytes());
            }
            Some(Down::Master(on)) => cfg_write(&mut self.endpoint, 4, if on { 6 } else { 2 }),
            Some(Down::Completion(request, data)) => {
                let completion = Completion {
                    completer: ROOT,
                    status: CplStatus::Success,
                    byte_count: data.len() as u16,
                    requester: request.requester,
                    tag: request.tag,
                    lower_address: (request.address & 0x7F) as u8,
                    length_dw: (data.len() / 4) as u16,
                };
                self.endpoint.receive(self.now_ns, &Header::new(Op::Completion(completion)), &data);
            }
            None => {}
        }
    }

    fn answer(&mut self) {
        if let Some(request) = self.up.reads.pop_front() {
            let at = request.address as usize;
            let data = self.memory[at..at + request.data_bytes()].to_vec();
            self.down.push_back(Down::Completion(request, data));
        }
        match self.up.rules.pop_front() {
            Some(Message::ReadAhead(rule)) => self.rule = Some(rule),
            Some(Message::Withdraw { .. }) => self.rule = None,
            _ => {}
        }
    }

    /// A command that is over was carried out as it stood, and its memory belongs to the guest again.
    fn check(&mut self) {
        let finished = std::mem::take(&mut self.device.borrow_mut().finished);
        for (index, entry, data) in finished {
            let (expected, buffer, version) = self.commands.pop_front().expect("a command was given");
            assert_eq!(index, expected);
            let word = version.to_le_bytes();
            assert_eq!(entry[8..16], word, "entry {index} is not what the doorbell told of");
            assert!(
                data.is_none_or(|data| data.chunks_exact(8).all(|found| found == word)),
                "data of entry {index} is not what the doorbell told of"
            );
            let garbage = self.fresh();
            self.write(index as usize * ENTRY_BYTES, ENTRY_BYTES, garbage);
            self.write(DATA + buffer * BUFFER_BYTES, BUFFER_BYTES, garbage);
        }
    }

    fn rule() -> Rule {
        Rule::new(RULE, 0, 0, 0, ENTRY_BYTES as u16, ENTRIES)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit(buffer) => self.submit(buffer),
            Step::Ring(entries, data) => self.ring(entries, data),
            Step::Deliver(count) => (0..count).for_each(|_| self.deliver(None)),
            Step::Frame(count) => {
                let mut body = Vec::new();
                (0..count).for_each(|_| self.deliver(Some(&mut body)));
                self.endpoint.let_go(self.now_ns, &body);
            }
            Step::Poll(count) => {
                for _ in 0..count {
                    self.endpoint.poll(self.now_ns, &mut self.up, 1);
                }
            }
            Step::Answer(count) => (0..count).for_each(|_| self.answer()),
            Step::Declare => self.device.borrow_mut().rule = Some(ReadAhead::Declare(Self::rule())),
            Step::Withdraw => self.device.borrow_mut().rule = Some(ReadAhead::Withdraw(RULE)),
            Step::Master => {
                self.down.push_back(Down::Master(false));
                self.down.push_back(Down::Master(true));
            }
            Step::Reset(declares) => {
                // The guest waits until all is quiet, and begins anew with an empty ring; the host forgets rules with the reset. Tags of
                // reads that were under way have rested by then.
                self.endpoint.reset(ResetKind::FunctionLevel);
                self.now_ns += EndpointConfig::default().quarantine_ns;
                cfg_write(&mut self.endpoint, 4, 6);
                self.up.reads.clear();
                self.down.retain(|down| matches!(down, Down::Piece(..)));
                self.commands.clear();
                (self.tail, self.rung) = (0, 0);
                for at in (0..MEMORY_BYTES).step_by(BUFFER_BYTES) {
                    let garbage = self.fresh();
                    self.write(at, BUFFER_BYTES, garbage);
                }
                if declares {
                    self.device.borrow_mut().rule = Some(ReadAhead::Declare(Self::rule()));
                    self.endpoint.poll(self.now_ns, &mut self.up, 1);
                    while !self.up.rules.is_empty() {
                        self.answer();
                    }
                }
            }
            Step::Closed(closed) => self.up.closed = closed,
            Step::Work(way) => self.device.borrow_mut().ways.push_back(way),
        }
        self.check();
    }
}

fn way() -> impl Strategy<Value = Way> {
    let often = || prop_oneof![3 => Just(true), 1 => Just(false)];
    let step = prop_oneof![Just(64_usize), Just(4096), 8..4096_usize].prop_map(|step| step & !7);
    let fails = prop_oneof![3 => Just(false), 1 => Just(true)];
    (often(), often(), fails, step, any::<bool>()).prop_map(|(take_entry, take_data, fails, step, eager)| {
        Way { take_entry, take_data, fails, step, eager }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        300 => prop::option::of(0..BUFFERS).prop_map(Step::Submit),
        200 => (prop_oneof![2 => Just(ENTRIES), 1 => Just(0), 1 => 0..ENTRIES], any::<u32>())
            .prop_map(|(entries, data)| Step::Ring(entries, data)),
        200 => (1..40_usize).prop_map(Step::Deliver),
        200 => (1..12_usize).prop_map(Step::Frame),
        500 => (1..40_u8).prop_map(Step::Poll),
        400 => (1..40_usize).prop_map(Step::Answer),
        400 => way().prop_map(Step::Work),
        6 => Just(Step::Declare),
        1 => Just(Step::Withdraw),
        2 => Just(Step::Master),
        4 => prop_oneof![9 => Just(true), 1 => Just(false)].prop_map(Step::Reset),
        8 => prop_oneof![1 => Just(true), 3 => Just(false)].prop_map(Step::Closed),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn nothing_that_a_function_takes_is_older_than_its_doorbell(steps in prop::collection::vec(step(), 1..500)) {
        let mut world = World::new();
        world.step(Step::Declare);
        world.step(Step::Poll(1));
        world.step(Step::Answer(1));
        for step in steps {
            world.step(step);
        }
        // All that was begun ends, with or without pieces.
        world.step(Step::Closed(false));
        let easy = Way { take_entry: true, take_data: true, fails: false, step: 4096, eager: false };
        world.step(Step::Ring(ENTRIES, u32::MAX));
        for _ in 0..2_000 {
            if world.commands.is_empty() {
                break;
            }
            world.step(Step::Work(easy));
            world.step(Step::Deliver(4));
            world.step(Step::Poll(4));
            world.step(Step::Answer(4));
        }
        prop_assert!(world.commands.is_empty(), "a command is never over");
    }
}

#[test]
fn after_a_reset_with_all_tags_under_way_there_are_reads_again() {
    let mut world = World::new();
    for reset in [true, false] {
        let way = Way { take_entry: false, take_data: false, fails: false, step: 8, eager: false };
        world.step(Step::Work(way));
        world.step(Step::Submit(None));
        world.step(Step::Ring(0, 0));
        world.step(Step::Deliver(1));
        // Some reads for the entry, whose answers come; more than there are Tags for the data, without.
        for _ in 0..10 {
            world.step(Step::Poll(2));
            world.step(Step::Answer(2));
            world.step(Step::Deliver(2));
        }
        world.step(Step::Poll(255));
        world.step(Step::Poll(255));
        assert!(world.up.reads.len() >= usize::from(EndpointConfig::default().tags));
        if reset {
            world.step(Step::Reset(false));
            assert_eq!(world.commands.len(), 0);
        }
    }
    for _ in 0..20 {
        world.step(Step::Answer(64));
        world.step(Step::Deliver(64));
        world.step(Step::Poll(64));
    }
    assert_eq!(world.commands.len(), 0, "what came after the reset is over");
}

#[test]
fn commands_and_their_data_need_no_read() {
    let mut world = World::new();
    world.step(Step::Declare);
    world.step(Step::Poll(1));
    world.step(Step::Answer(1));
    for round in 0..50 {
        for command in 0..3 {
            world.step(Step::Submit(Some((round + command) % BUFFERS)));
            let way = Way { take_entry: true, take_data: true, fails: false, step: 4096, eager: false };
            world.step(Step::Work(way));
        }
        world.step(Step::Ring(ENTRIES, u32::MAX));
        world.step(Step::Deliver(10));
        world.step(Step::Poll(20));
        assert!(world.commands.is_empty() && world.up.reads.is_empty());
    }
    let counters = world.endpoint.ahead_counters();
    assert_eq!((counters.pieces, counters.hits), (300, 300));
    assert_eq!((counters.misses, counters.dropped, counters.refused), (0, 0, 0));
}

#[test]
fn what_comes_in_one_frame_with_its_doorbell_is_taken_from_there() {
    let mut world = World::new();
    world.step(Step::Declare);
    world.step(Step::Poll(1));
    world.step(Step::Answer(1));
    for round in 0..50 {
        world.step(Step::Submit(Some(round % BUFFERS)));
        world.step(Step::Work(Way {
            take_entry: true,
            take_data: true,
            fails: false,
            step: BUFFER_BYTES,
            eager: true,
        }));
        world.step(Step::Ring(ENTRIES, u32::MAX));
        // Entry, data and doorbell: no poll follows.
        world.step(Step::Frame(3));
        assert!(world.commands.is_empty() && world.up.reads.is_empty(), "round {round}");
    }
}

#[test]
fn what_does_not_fit_costs_reads_and_nothing_else() {
    // More data than the Endpoint keeps: 15 commands with a page each, four times, before the device looks at one.
    let mut world = World::new();
    world.step(Step::Declare);
    world.step(Step::Poll(1));
    world.step(Step::Answer(1));
    let rule = world.rule.unwrap();
    for _ in 0..40 {
        let piece = |kind, index| Piece { rule: RULE, generation: rule.generation, kind, index, address: 0 };
        world.endpoint.receive_ahead(&piece(PieceKind::Entries, 0), &[0; ENTRY_BYTES], None);
        for _ in 0..40 {
            world.endpoint.receive_ahead(&piece(PieceKind::Data, 0), &[0; BUFFER_BYTES], None);
        }
    }
    let counters = *world.endpoint.ahead_counters();
    assert!(counters.dropped > 0 && counters.pieces + counters.refused == 40 * 41, "{counters:?}");
}

#[test]
fn pieces_that_contradict_their_rule_are_refused() {
    let mut world = World::new();
    world.step(Step::Declare);
    world.step(Step::Poll(1));
    world.step(Step::Answer(1));
    let generation = world.rule.unwrap().generation;
    let good = Piece { rule: RULE, generation, kind: PieceKind::Entries, index: 15, address: 15 * 64 };
    let wrong = [
        (Piece { rule: 4, ..good }, 64),
        (Piece { rule: 128, ..good }, 64),
        (Piece { generation: generation.wrapping_add(1), ..good }, 64),
        (Piece { index: 16, address: 16 * 64, ..good }, 64),
        (Piece { address: 15 * 64 + 4, ..good }, 64),
        (good, 63),
        (good, 128),
        (Piece { kind: PieceKind::Data, ..good }, 64),
        (Piece { kind: PieceKind::List, index: 16, ..good }, 64),
    ];
    for (piece, bytes) in wrong {
        let before = world.endpoint.ahead_counters().refused;
        world.endpoint.receive_ahead(&piece, &vec![0; bytes], None);
        assert_eq!(world.endpoint.ahead_counters().refused, before + 1, "{piece:?} of {bytes} bytes");
    }
    world.endpoint.receive_ahead(&good, &[0; 64], None);
    assert_eq!(world.endpoint.ahead_counters().pieces, 1);
}
