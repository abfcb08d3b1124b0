//! The RNIC core in hardware beside the engine in software: both get the same work requests and the same segments, good and bad, those of `vectors/` among
//! them, and say the same to the byte: segments, completions, what lies in memory, counters.

use std::path::{Path, PathBuf};

use etherslot_cosim::{Driver, HostMemory, QpSetting, Rnic, Segment};
use etherslot_rdma::{
    Access, Attributes, Config, CqId, Cqe, Done, Engine, Flag, Init, Layout, Memory, Pd, PeerId, Qpn,
    ReceiveWork, Region, SendOpcode, SendWork, Service, Sge, State, Status, Trouble, Wire, flag,
};
use etherslot_wire::rdmap::AtomicRequest;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;

const PD: u16 = 9;
const PEER: u16 = 7;
const STREAM: u16 = 3;
/// Most data of a segment.
const SEGMENT_BYTES: usize = 1376;
/// Two regions of one range each: of what is read and written, and of what may be read here alone.
const OPEN: (u64, u64) = (0x10_0000, 0x1_0000);
const SHUT: (u64, u64) = (0x12_0000, 0x1000);
const MEMORY_BYTES: usize = 0x14_0000;
/// Where only the hardware writes: its rings.
const RINGS: usize = 0x10_0000;
/// Clocks without anything new after which the hardware has done all there is.
const QUIET_CLOCKS: u32 = 400;
/// Counters that both keep; of the others the hardware has no use, or counts what never leaves it.
const COUNTED: [&str; 20] = [
    "segments_received",
    "data_bytes_placed",
    "messages_taken",
    "cqes",
    "wqes_failed",
    "wqes_flushed",
    "not_ready_sent",
    "not_ready_received",
    "terminates_sent",
    "terminates_received",
    "dropped_truncated",
    "dropped_no_qp",
    "dropped_not_ready",
    "dropped_malformed",
    "dropped_foreign",
    "dropped_denied",
    "dropped_sequence",
    "dropped_answers",
    "dropped_too_long",
    "dropped_irrq",
];

struct Ram(Vec<u8>);

impl Ram {
    fn at(&mut self, address: u64, length: usize) -> Result<&mut [u8], Trouble> {
        let start = usize::try_from(address).map_err(|_| Trouble::Fault)?;
        self.0.get_mut(start..).and_then(|rest| rest.get_mut(..length)).ok_or(Trouble::Fault)
    }
}

impl Memory for Ram {
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble> {
        out.copy_from_slice(self.at(address, out.len())?);
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble> {
        self.at(address, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, _address: u64, _operation: &AtomicRequest) -> Result<u64, Trouble> {
        Err(Trouble::Fault)
    }
}

/// Takes every segment.
#[derive(Default)]
struct Cable(Vec<Vec<u8>>);

impl Wire for Cable {
    fn room(&mut self, _peer: PeerId, _stream: u16, _want: usize) -> usize {
        SEGMENT_BYTES + 20
    }

    fn send(
        &mut self,
        _peer: PeerId,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let mut segment = head.to_vec();
        segment.resize(head.len() + data_len, 0);
        let is_filled = fill(&mut segment[head.len()..]);
        if is_filled {
            assert!(stream == STREAM || head.starts_with(&[0, 0]), "a QP keeps to its stream");
            self.0.push(segment);
        }
        is_filled
    }
}

/// An engine with one QP.
struct Soft {
    engine: Engine,
    ram: Ram,
    cable: Cable,
    qp: Qpn,
    cq: CqId,
    stags: [u32; 2],
    now_ns: u64,
}

fn attributes(remote_qp: Qpn, first: (u32, u32)) -> Attributes {
    Attributes {
        peer: PeerId(PEER),
        remote_qp,
        stream: STREAM,
        access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        ord: 4,
        ird: 4,
        rnr_wait_us: 100,
        first_sent: first.0,
        first_expected: first.1,
        question_us: 1_000_000,
        ..Attributes::default()
    }
}

impl Soft {
    /// With a QP of this number, in RTR.
    fn new(number: u16, remote_qp: Qpn, content: &[u8], first: (u32, u32)) -> Self {
        let config = Config {
            qps: 16,
            cqs: 4,
            srqs: 1,
            peers: 8,
            stags: 8,
            pages: 16,
            cqes: 512,
            reads: 4,
            ..Config::default()
        };
        let mut engine = Engine::new(&config);
        let cq = engine.create_cq(512).expect("a CQ");
        let init = Init {
            service: Service::Rc,
            pd: Pd(PD),
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            sq_blocks: 64,
            rq_blocks: 64,
            signal_all: false,
        };
        // Numbers are given in turn.
        let qp = loop {
            let qp = engine.create_qp(&init).expect("a QP");
            if qp.0 % 16 == number % 16 {
                break qp;
            }
        };
        let mut region = |(at, length): (u64, u64), access, key| {
            let layout = Layout::Direct { address: at };
            engine.register(&Region { pd: Pd(PD), access, base: at, length, key, layout }).expect("a region")
        };
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let stags = [region(OPEN, all, 0x31), region(SHUT, Access::LOCAL_READ, 0x32)];
        for state in [State::Init, State::Rtr] {
            engine.modify_qp(qp, state, Some(&attributes(remote_qp, first))).expect("it may");
        }
        let mut ram = Ram(content.to_vec());
        ram.0.resize(MEMORY_BYTES, 0);
        Self { engine, ram, cable: Cable::default(), qp, cq, stags, now_ns: 1 }
    }

    fn rts(&mut self, remote_qp: Qpn, first: (u32, u32)) {
        self.engine.modify_qp(self.qp, State::Rts, Some(&attributes(remote_qp, first))).expect("it may");
    }

    /// What there is to be sent.
    fn segments(&mut self) -> Vec<Vec<u8>> {
        self.engine.transmit(self.now_ns, &mut self.ram, &mut self.cable);
        std::mem::take(&mut self.cable.0)
    }

    fn hear(&mut self, segment: &[u8]) {
        self.engine.receive(self.now_ns, PeerId(PEER), segment, &mut self.ram);
    }

    fn cqes(&mut self) -> Vec<Cqe> {
        let mut cqes = [Cqe::parse(&[0; Cqe::BYTES]).expect("a form"); 64];
        let count = self.engine.poll(self.cq, &mut cqes);
        cqes[..count].to_vec()
    }
}

/// Hardware and software in the same place, and their peer.
struct Pair {
    rnic: Rnic,
    driver: Driver,
    soft: Soft,
    peer: Soft,
    seen: Vec<String>,
}

const OURS: (u32, u32) = (3, 0xFFFF_FFFE);
const THEIRS: (u32, u32) = (0xFFFF_FFFE, 3);

impl Pair {
    /// Connected with their peer; both sides have begun, each with a Write of no byte.
    fn new(seed: u32) -> Self {
        let mut pair = Self::connected(seed);
        let mut wqe = [0; SendWork::MAX_BYTES];
        let work = SendWork { opcode: SendOpcode::Write, flags: flag::SIGNALED, ..SendWork::default() };
        let bytes = work.emit(&mut wqe).expect("a WQE");
        pair.peer.engine.post_send(pair.peer.qp, &wqe[..bytes]).expect("room");
        pair.settle();
        pair.send(&wqe[..bytes]);
        pair.settle();
        pair
    }

    /// Connected with their peer, which has not begun.
    fn connected(seed: u32) -> Self {
        let mut pair = Self::unconnected(seed);
        pair.peer.rts(pair.soft.qp, THEIRS);
        pair.soft.rts(pair.peer.qp, OURS);
        pair.go(3);
        pair.settle();
        pair
    }

    /// In RTR.
    fn unconnected(seed: u32) -> Self {
        let mut rng = SmallRng::seed_from_u64(u64::from(seed));
        let mut content = vec![0; MEMORY_BYTES];
        rng.fill(&mut content[RINGS..]);
        // The vectors speak to QP 2.
        let (number, peer_number) = (2, 5);
        let peer = Soft::new(peer_number, Qpn(number), &content, THEIRS);
        let soft = Soft::new(number, peer.qp, &content, OURS);
        assert_eq!(soft.qp, Qpn(number));
        let path: PathBuf = std::env::var_os("ETHERSLOT_COSIM_RNIC").expect("set by ./run rtl cosim").into();
        let mut memory = HostMemory::new(MEMORY_BYTES, u64::from(seed));
        memory.bytes[RINGS..].copy_from_slice(&content[RINGS..]);
        let mut rnic = Rnic::load(&path, seed, memory, SEGMENT_BYTES as u16).expect("a model");
        let mut driver = Driver::new(&mut rnic, 0x1000);
        assert!(0x1000 + Driver::RINGS_BYTES <= RINGS as u64);
        let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        for (stag, (at, length), access) in
            [(soft.stags[0], OPEN, all), (soft.stags[1], SHUT, Access::LOCAL_READ)]
        {
            let region = etherslot_cosim::Region {
                index: stag >> 8,
                key: stag as u8,
                pd: PD,
                access,
                base: at,
                length,
                layout: Ok(at),
                first: 0,
            };
            assert_eq!(driver.register(&mut rnic, &region), stag);
        }
        let setting = QpSetting {
            number,
            pd: PD,
            peer: (PEER, peer.qp.0),
            stream: STREAM,
            rights: 3,
            reads: (4, 4),
            first: OURS,
            rnr_wait_us: 100,
        };
        driver.create(&mut rnic, &setting);
        let mut pair = Self { rnic, driver, soft, peer, seen: Vec::new() };
        pair.go(1);
        pair.go(2);
        pair
    }

    fn loaded(&mut self) -> u64 {
        for _ in 0..10_000 {
            if let Some(value) = self.rnic.loaded() {
                return value;
            }
            self.rnic.clock();
        }
        panic!("a register is not read");
    }

    fn go(&mut self, state: u32) {
        self.driver.command(&mut self.rnic, self.soft.qp.0, state);
        loop {
            self.driver.ask_command(&mut self.rnic);
            let command = self.loaded();
            if command >> 63 == 0 {
                assert_eq!(command >> 62, 0, "a change of state was refused");
                return;
            }
        }
    }

    /// Lets both do what there is to do, holds what they say against each other, and gives it.
    fn hold(&mut self) -> Vec<Vec<u8>> {
        let mut hard = Vec::new();
        let mut quiet = 0;
        while quiet < QUIET_CLOCKS || !self.rnic.has_stored_all() || self.rnic.landing() > 0 {
            self.rnic.clock();
            quiet += 1;
            while let Some(Segment { peer, stream, bytes }) = self.rnic.next_segment() {
                assert_eq!(peer, PEER);
                assert!(stream == STREAM || bytes.starts_with(&[0, 0]), "a QP keeps to its stream");
                hard.push(bytes);
                quiet = 0;
            }
        }
        let soft = self.soft.segments();
        self.same("segments", &normal(&hard), &normal(&soft));
        let number = self.soft.qp.0;
        let hard: Vec<_> = std::iter::from_fn(|| self.driver.poll(&mut self.rnic, number)).collect();
        let hard: Vec<_> = hard.iter().map(|entry| Cqe::parse(entry).expect("a completion")).collect();
        let cqes = self.soft.cqes();
        for is_send in [true, false] {
            let of = |cqes: &[Cqe]| {
                cqes.iter()
                    .map(bare)
                    .filter(|cqe| matches!(cqe.done, Done::Sent(_)) == is_send)
                    .collect::<Vec<_>>()
            };
            self.same("completions", &of(&hard), &of(&cqes));
        }
        assert!(
            self.rnic.memory.bytes[RINGS..] == self.soft.ram.0[RINGS..],
            "memory differs after {:#?}",
            self.seen
        );
        soft
    }

    fn same<T: PartialEq + std::fmt::Debug>(&self, what: &str, hard: &T, soft: &T) {
        assert!(hard == soft, "{what} of hardware {hard:x?}, of software {soft:x?}, after {:#?}", self.seen);
    }

    /// Goes on until nobody has anything to say; the peer gets what both said, both get what the peer says.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let ours = self.hold();
            for segment in &ours {
                self.peer.hear(segment);
            }
            let theirs = self.peer.segments();
            self.peer.cqes();
            if ours.is_empty() && theirs.is_empty() {
                return;
            }
            // One after the other: how many messages one Acknowledge is for is not told.
            for segment in &theirs {
                self.hear(segment);
                let ours = self.hold();
                for segment in &ours {
                    self.peer.hear(segment);
                }
            }
        }
        panic!("they talk without end: {:#?}", self.seen);
    }

    /// A segment of the peer's, to both; then both have time.
    fn hear(&mut self, segment: &[u8]) {
        self.seen.push(format!("heard {}", hex(&segment[..segment.len().min(60)])));
        self.soft.hear(segment);
        self.rnic.land(Segment { peer: PEER, stream: STREAM, bytes: segment.to_vec() });
    }

    fn state(&mut self) -> u32 {
        self.driver.ask_state(&mut self.rnic, self.soft.qp.0);
        self.loaded() as u32 & 15
    }

    /// States and counters are the same.
    fn check(&mut self) {
        let is_error = self.soft.engine.state(self.soft.qp) == Some(State::Error);
        let state = self.state();
        self.same("is in ERROR: ", &(state == 6), &is_error);
        let named: Vec<_> = self.soft.engine.counters().named().collect();
        let mut counted = [Vec::new(), Vec::new()];
        for name in COUNTED {
            let place = named.iter().position(|counter| counter.name == name).expect("a counter");
            self.driver.ask_counter(&mut self.rnic, 0x100 + 8 * place as u32);
            counted[0].push((name, self.loaded()));
            counted[1].push((name, named[place].value));
        }
        let [hard, soft] = counted;
        let odd: Vec<_> = hard.iter().zip(&soft).filter(|(hard, soft)| hard != soft).collect();
        assert!(odd.is_empty(), "counters, hardware and software: {odd:?}, after {:#?}", self.seen);
    }
}

/// Which place of its table an answer goes to is everybody's own matter, and when it says that it begins, as long as it does before its first message
/// (docs/rnic.md, 8).
fn normal(segments: &[Vec<u8>]) -> Vec<String> {
    let one = |segment: &Vec<u8>| {
        let mut segment = segment.clone();
        if segment[3] & 15 == 1 && segment.len() == 48 {
            segment[23] = 0;
        }
        hex(&segment)
    };
    segments.iter().filter(|segment| segment[3] & 15 != 12).map(one).collect()
}

/// What of a completion is valid (docs/rnic.md, 5).
fn bare(cqe: &Cqe) -> Cqe {
    let mut bare = Cqe { is_solicited: false, ..*cqe };
    if cqe.status != Status::Success {
        (bare.bytes, bare.immediate, bare.invalidated, bare.source) = (0, None, None, None);
        if let Done::Sent(_) = bare.done {
            bare.done = Done::Sent(SendOpcode::Nop);
        }
    }
    bare
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file);
    let text = std::fs::read_to_string(&path).expect("vectors are there");
    serde_json::from_str(&text).expect("a vector file is an array")
}

fn bytes(vector: &Value) -> Vec<u8> {
    let text = vector["bytes"].as_str().expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("digits")).collect()
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn segments_of_the_vectors_are_answered_alike() {
    let mut held = 0;
    for vector in vectors("segments.json") {
        let segment = bytes(&vector);
        // What the hardware does not have it refuses: Immediate Data, Atomics, Sends with Immediate.
        let is_left_out = segment.get(3).is_some_and(|control| matches!(control & 15, 8..=11 | 14 | 15));
        // No record is without bytes.
        if is_left_out || segment.is_empty() {
            continue;
        }
        for (has_begun, handed_over) in [(false, 0), (true, 0), (true, 1)] {
            let mut pair = if has_begun { Pair::new(1) } else { Pair::connected(1) };
            pair.seen.push(format!("{}, begun: {has_begun}, {handed_over} receive WQEs", vector["name"]));
            if handed_over == 1 {
                let sges = [Sge { to: OPEN.0 + 0x800, stag: pair.soft.stags[0], length: 100 }];
                pair.receive(&ReceiveWork { id: 70, sges: &sges });
            }
            pair.hear(&segment);
            pair.hold();
            pair.check();
            held += 1;
        }
    }
    println!("{held} cases");
    assert!(held > 100);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn work_requests_of_the_vectors_become_the_same_segments() {
    let mut held = 0;
    for vector in vectors("work_requests.json") {
        let wqe = bytes(&vector);
        let ours = [
            SendOpcode::Write,
            SendOpcode::Send,
            SendOpcode::SendInvalidate,
            SendOpcode::Read,
            SendOpcode::Nop,
        ];
        let is_ours = ours.iter().any(|&opcode| opcode as u8 == wqe[0]);
        if vector["queue"] != "send" || !is_ours || wqe[3] > 2 || vector["name"] == "datagram" {
            continue;
        }
        let mut pair = Pair::new(2);
        pair.seen.push(vector["name"].to_string());
        pair.send(&wqe);
        pair.hold();
        pair.check();
        held += 1;
    }
    println!("{held} cases");
    assert!(held > 12);
}

impl Pair {
    fn send(&mut self, wqe: &[u8]) {
        self.seen.push(format!("posted {}", hex(wqe)));
        if self.soft.engine.post_send(self.soft.qp, wqe).is_ok() {
            self.driver.post_send(&mut self.rnic, self.soft.qp.0, wqe, true);
        }
    }

    fn receive(&mut self, work: &ReceiveWork<'_>) {
        let mut wqe = [0; ReceiveWork::MAX_BYTES];
        let length = work.emit(&mut wqe).expect("a WQE");
        self.seen.push(format!("handed over {}", hex(&wqe[..length])));
        if self.soft.engine.post_receive(self.soft.qp, &wqe[..length]).is_ok() {
            self.driver.post_receive(&mut self.rnic, self.soft.qp.0, &wqe[..length]);
        }
    }
}

/// A length whose last segment neither cuts another way.
fn length(rng: &mut SmallRng) -> u32 {
    loop {
        let length = if rng.random() { rng.random_range(0..200) } else { rng.random_range(0..6000) };
        if length <= SEGMENT_BYTES as u32 || !(1..=4).contains(&(length % SEGMENT_BYTES as u32)) {
            return length;
        }
    }
}

/// An SGE that is good most often.
fn sge(rng: &mut SmallRng, stags: [u32; 2], is_good: bool) -> Sge {
    let length = length(rng);
    let to = OPEN.0 + rng.random_range(0..0x8000);
    let good = Sge { to, stag: stags[0], length };
    if is_good || rng.random_ratio(9, 10) {
        return good;
    }
    match rng.random_range(0..4) {
        0 => Sge { stag: good.stag ^ 1, ..good },
        1 => Sge { stag: 6 << 8, ..good },
        2 => Sge { to: OPEN.0 + OPEN.1 - 50, ..good },
        _ => Sge { to: SHUT.0, stag: stags[1], length: 64 },
    }
}

/// A list of SGEs of which the first may be a bad one: how much of what is before a bad one is used is not told.
fn list(rng: &mut SmallRng, stags: [u32; 2], most: usize, is_good: bool) -> Vec<Sge> {
    (0..rng.random_range(0..=most)).map(|at| sge(rng, stags, is_good || at > 0)).collect()
}

/// A send WQE, by and large a good one.
fn send_wqe(rng: &mut SmallRng, id: u64, near: [u32; 2], far: [u32; 2], is_good: bool) -> Vec<u8> {
    let opcodes = [SendOpcode::Write, SendOpcode::Send, SendOpcode::Read, SendOpcode::Nop];
    let known = if rng.random_ratio(1, 8) { 4 } else { 3 };
    let opcode = opcodes[rng.random_range(0..known)];
    let list = list(rng, near, 2, is_good);
    let inline: Vec<u8> = (0..rng.random_range(0..=480)).map(|_| rng.random()).collect();
    let is_inline = matches!(opcode, SendOpcode::Write | SendOpcode::Send) && rng.random_ratio(1, 3);
    let remote = sge(rng, far, is_good);
    let flag_at = |rng: &mut SmallRng, stag| Flag {
        stag,
        to: OPEN.0 + 0xF000 + 8 * rng.random_range(0..64),
        value: rng.random(),
    };
    let has_flags = matches!(opcode, SendOpcode::Write | SendOpcode::Read);
    let mut flags = flag::SIGNALED;
    flags |= if opcode == SendOpcode::Send && rng.random() { flag::SOLICITED } else { 0 };
    flags |= if rng.random_ratio(1, 5) { flag::FENCE } else { 0 };
    let work = SendWork {
        opcode,
        flags,
        id,
        remote_to: remote.to,
        remote_stag: remote.stag,
        sges: if is_inline || opcode == SendOpcode::Nop { &[] } else { &list },
        inline: is_inline.then_some(&inline),
        local_flag: (has_flags && rng.random_ratio(1, 6)).then(|| flag_at(rng, near[0])),
        remote_flag: (has_flags && rng.random_ratio(1, 6)).then(|| flag_at(rng, far[0])),
        ..SendWork::default()
    };
    let mut wqe = [0; SendWork::MAX_BYTES];
    let length = work.emit(&mut wqe).expect("a WQE");
    let mut wqe = wqe[..length].to_vec();
    if !is_good && rng.random_ratio(1, 25) {
        // Of a form that it should not have; its blocks stay as they are.
        let at = [0, 1, 3, 5][rng.random_range(0..4)];
        let was = wqe[at];
        wqe[at] ^= 1 << rng.random_range(0..8);
        // Opcodes that the hardware does not have.
        if matches!(wqe[0], 1 | 3 | 6..=9) {
            wqe[at] = was;
        }
    }
    wqe
}

/// Something wrong with a segment.
fn spoil(rng: &mut SmallRng, segment: &mut Vec<u8>) {
    match rng.random_range(0..5) {
        0 => segment.truncate(rng.random_range(0..segment.len())),
        1 => segment.push(0x55),
        2 => segment.extend_from_slice(&[0; 16]),
        _ => {
            let at = rng.random_range(0..segment.len().min(48));
            segment[at] ^= 1 << rng.random_range(0..8);
        }
    }
}

/// Whether the hardware has what this segment asks for; when a window that is to be invalidated is looked at is not told.
fn is_known(segment: &[u8]) -> bool {
    let is_last = segment.get(2).is_some_and(|control| control & 0x40 != 0);
    segment.get(3).is_none_or(|control| {
        !matches!(control & 15, 8..=11 | 14 | 15) && (is_last || !matches!(control & 15, 4 | 6))
    })
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn whatever_is_asked_of_them_they_do_alike() {
    let (mut spoiled, mut failed) = (0, 0);
    for seed in 0..SEEDS {
        let mut rng = SmallRng::seed_from_u64(0xE7 + u64::from(seed));
        // Every other one is all good, so that it goes on for long.
        let all_good = seed % 2 == 0;
        let mut pair = Pair::new(seed);
        let (near, far) = (pair.soft.stags, pair.peer.stags);
        // The hardware does not begin anew: its peer always has a buffer.
        let buffer = [Sge { to: OPEN.0 + 0x9000, stag: far[0], length: 0x4000 }];
        let mut wqe = [0; ReceiveWork::MAX_BYTES];
        let bytes = ReceiveWork { id: 2000, sges: &buffer }.emit(&mut wqe).expect("a WQE");
        for _ in 0..48 {
            pair.peer.engine.post_receive(pair.peer.qp, &wqe[..bytes]).expect("room");
        }
        for turn in 0..24 {
            match rng.random_range(0..10) {
                0..=3 => {
                    let wqe = send_wqe(&mut rng, turn, near, far, all_good);
                    pair.send(&wqe);
                }
                4..=6 => {
                    let is_good = all_good || rng.random_ratio(3, 4);
                    let wqe = send_wqe(&mut rng, turn, far, near, is_good);
                    let _ = pair.peer.engine.post_send(pair.peer.qp, &wqe);
                }
                7 | 8 => {
                    let long = Sge { to: OPEN.0 + rng.random_range(0..0x8000), stag: near[0], length: 5000 };
                    let list = if all_good { vec![long; 3] } else { list(&mut rng, near, 3, false) };
                    pair.receive(&ReceiveWork { id: 1000 + turn, sges: &list });
                }
                _ => {
                    // What the peer says next, with something wrong in it, or twice.
                    let wqe = send_wqe(&mut rng, turn, far, near, true);
                    let _ = pair.peer.engine.post_send(pair.peer.qp, &wqe);
                    let mut segments = pair.peer.segments();
                    if !segments.is_empty() && !all_good {
                        let at = rng.random_range(0..segments.len());
                        spoil(&mut rng, &mut segments[at]);
                        spoiled += 1;
                    }
                    for segment in segments.iter().filter(|segment| is_known(segment)) {
                        pair.hear(segment);
                        let ours = pair.hold();
                        for segment in &ours {
                            pair.peer.hear(segment);
                        }
                    }
                }
            }
            pair.settle();
            // A sender that waits for a buffer begins anew.
            pair.peer.now_ns += 1_000_000_000;
            pair.peer.engine.handle_timeout(pair.peer.now_ns);
        }
        pair.settle();
        pair.check();
        let has_failed = pair.soft.engine.state(pair.soft.qp) == Some(State::Error);
        assert!(!(all_good && has_failed), "nothing was wrong: {:#?}", pair.seen);
        failed += u32::from(has_failed);
    }
    println!("{SEEDS} seeds, {spoiled} segments spoiled, {failed} QPs ended in ERROR");
    assert!(spoiled > SEEDS / 8 && failed > SEEDS / 4);
}

const SEEDS: u32 = 60;
