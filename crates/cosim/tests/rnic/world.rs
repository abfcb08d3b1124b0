//! The RNIC core with its EFE, the RNIC in software, and the link between them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::PathBuf;

use etherslot_cosim::{Driver, Efe, HostMemory, QpSetting, Rnic, Segment};
use etherslot_rdma::{
    Access, Attributes, CqId, Cqe, Engine, Init, Layout, Memory, Pd, PeerId, Qpn, Region, Service, State,
    Trouble,
};
use etherslot_rnic::Options;
use etherslot_session::Mode;
use etherslot_wire::NodeId;
use etherslot_wire::control::feature;
use etherslot_wire::rdmap::AtomicRequest;
use etherslot_wire::record::{self, FIRST, HEADER_BYTES, Kind, LAST, Record};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// The address of the hardware, to the software; and the peer that the software is, to the hardware.
const HARDWARE: u8 = 1;
const SOFTWARE: u16 = 7;
pub(crate) const PD: u16 = 9;
/// Of regions that belong to no QP here.
pub(crate) const FOREIGN_PD: u16 = 8;
const CLOCK_NS: u64 = 8;

/// Where things lie in either memory. Rings of the hardware's queues lie below.
pub(crate) const SOURCE: usize = 0x10_0000;
pub(crate) const SOURCE_BYTES: usize = 0x4_0000;
pub(crate) const SINK: usize = 0x40_0000;
pub(crate) const SINK_BYTES: usize = 0x40_0000;
const MEMORY_BYTES: usize = SINK + SINK_BYTES;
/// What lies in a sink before anything comes.
pub(crate) const BLANK: u8 = 0xA5;
/// The TO of a source's first byte; that of a sink is 0.
pub(crate) const SOURCE_TO: u64 = 0x10_0000_0000;

/// Where a page of a sink lies: not in their order.
fn page(page: usize) -> u64 {
    (SINK + (page ^ 5) * 4096) as u64
}

/// Where a TO of a sink lies.
pub(crate) fn sink(to: usize) -> usize {
    page(to / 4096) as usize + to % 4096
}

/// The model that `./run rtl cosim` made.
fn model(name: &str) -> PathBuf {
    let named = std::env::var_os(name);
    named.unwrap_or_else(|| panic!("{name} names the model: ./run rtl cosim makes it")).into()
}

/// The software's memory, addresses from 0.
pub(crate) struct Ram(pub(crate) Vec<u8>);

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

    fn atomic(&mut self, address: u64, operation: &AtomicRequest) -> Result<u64, Trouble> {
        let place = self.at(address, 8)?;
        let before = u64::from_le_bytes((&*place).try_into().map_err(|_| Trouble::Fault)?);
        place.copy_from_slice(&operation.apply(before).to_le_bytes());
        Ok(before)
    }
}

/// STags of a side, the same regions on both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stags {
    /// Of [`SOURCE`], one range: may be read by the peer.
    pub(crate) source: u32,
    /// Of [`SINK`], in pages: may be written by the peer, and here.
    pub(crate) sink: u32,
    /// Of the same pages, in another protection domain.
    pub(crate) foreign: u32,
}

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Hardware,
    Software,
}

impl Side {
    pub(crate) const BOTH: [Self; 2] = [Self::Hardware, Self::Software];

    pub(crate) fn other(self) -> Self {
        if self == Self::Hardware { Self::Software } else { Self::Hardware }
    }
}

/// How a world is made.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) mode: Mode,
    pub(crate) is_hardware_active: bool,
    pub(crate) loss_per_million: u32,
    /// What the QPs' peers may do: bit 0 write, 1 read.
    pub(crate) rights: u8,
    /// Reads under way.
    pub(crate) reads: u8,
    pub(crate) qps: u16,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            seed: 1,
            mode: Mode::Selective,
            is_hardware_active: false,
            loss_per_million: 0,
            rights: 3,
            reads: 4,
            qps: 1,
        }
    }
}

/// A frame on its way: when it comes, order, whether to the software, bytes.
type Flying = Reverse<(u64, u64, bool, Vec<u8>)>;

pub(crate) struct World {
    pub(crate) efe: Efe,
    pub(crate) rnic: Rnic,
    pub(crate) driver: Driver,
    pub(crate) soft: etherslot_rnic::Rnic<u8>,
    pub(crate) ram: Ram,
    pub(crate) peer: PeerId,
    pub(crate) stags: [Stags; 2],
    /// Numbers of the QPs: at the hardware, at the software.
    pub(crate) qps: Vec<(u16, Qpn)>,
    pub(crate) cqs: Vec<CqId>,
    setting: Setting,
    rng: SmallRng,
    flying: BinaryHeap<Flying>,
    order: u64,
    /// Of each stream of the hardware: parts sent.
    parts: HashMap<u16, u16>,
    /// Parts of records that have come so far, by stream.
    whole: HashMap<u16, Vec<u8>>,
    pub(crate) lost: u64,
}

impl World {
    /// Both sides with a session, their regions, and QPs in RTS.
    pub(crate) fn new(setting: &Setting) -> Self {
        let mut world = Self::without_qps(setting);
        for at in 0..setting.qps {
            world.connect(at, 3);
        }
        world
    }

    /// Both sides with a session and their regions.
    pub(crate) fn without_qps(setting: &Setting) -> Self {
        let Setting { seed, mode, is_hardware_active, .. } = *setting;
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut efe = Efe::load(&model("ETHERSLOT_COSIM_EFE"), seed as u32, [9; 16]).expect("a model");
        efe.offer(feature::RDMA);
        efe.open(is_hardware_active, mode == Mode::Classic, 0x1234_0000 | seed as u32);
        let mut memory = HostMemory::new(MEMORY_BYTES, seed);
        (memory.latency, memory.pause) = (rng.random_range(1..40), rng.random_range(0..30));
        let segment_bytes = (efe_body_bytes() - HEADER_BYTES - 20) & !7;
        let mut rnic = Rnic::load(&model("ETHERSLOT_COSIM_RNIC"), seed as u32, memory, segment_bytes as u16)
            .expect("a model");
        let driver = Driver::new(&mut rnic, 0x1000);
        assert!(0x1000 + Driver::RINGS_BYTES <= SOURCE as u64);
        let mut ram = Ram(vec![0; MEMORY_BYTES]);
        for memory in [&mut rnic.memory.bytes, &mut ram.0] {
            rng.fill(&mut memory[SOURCE..SOURCE + SOURCE_BYTES]);
            memory[SINK..].fill(BLANK);
        }
        let engine = etherslot_rdma::Config {
            qps: 16,
            cqs: 16,
            srqs: 1,
            peers: 2,
            stags: 8,
            pages: 4096,
            cqes: 1024,
            ..etherslot_rdma::Config::default()
        };
        let session = etherslot_session::Config {
            node: NodeId([7; 16]),
            mode,
            port_rate: Some(1_000_000_000),
            noise_ns: 0,
            rto_min_ns: MS,
            ..etherslot_session::Config::default()
        };
        let mut soft = etherslot_rnic::Rnic::new(&Options { engine, session, seed }, |_| [0; 40]);
        let peer =
            if is_hardware_active { PeerId(0) } else { soft.peer(0, HARDWARE).expect("room for a peer") };
        let hard_stags = register_hard(&driver, &mut rnic);
        let soft_stags = register_soft(&mut soft.engine);
        let mut world = Self {
            efe,
            rnic,
            driver,
            soft,
            ram,
            peer,
            stags: [hard_stags, soft_stags],
            qps: Vec::new(),
            cqs: Vec::new(),
            setting: setting.clone(),
            rng,
            flying: BinaryHeap::new(),
            order: 0,
            parts: HashMap::new(),
            whole: HashMap::new(),
            lost: 0,
        };
        world.transmit();
        world.until(300 * MS, "no session", |world| world.efe.is_up() && world.soft.is_up(world.peer));
        assert_eq!(world.efe.agreed(), feature::RDMA, "both sides speak RDMA");
        world.until(MS, "tables are not written", |world| world.rnic.has_stored_all());
        if is_hardware_active {
            world.peer = world.soft.peer(world.now_ns(), HARDWARE).expect("it is there");
        }
        assert!(world.efe.body_bytes() >= efe_body_bytes());
        world
    }

    /// QPs that are each other's, brought to a state; the software's to RTS.
    pub(crate) fn connect(&mut self, at: u16, state: u32) {
        let hard = 2 + at;
        let cq = self.soft.engine.create_cq(1024).expect("a CQ");
        let init = Init {
            service: Service::Rc,
            pd: Pd(PD),
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            sq_blocks: 256,
            rq_blocks: 256,
            signal_all: false,
        };
        let soft = self.soft.engine.create_qp(&init).expect("a QP");
        let Setting { rights, reads, .. } = self.setting;
        let setting = QpSetting {
            number: hard,
            pd: PD,
            peer: (SOFTWARE, soft.0),
            stream: 1 + at,
            rights,
            reads: (reads, reads),
            first: (0xFFFF_FFF0, 5),
            rnr_wait_us: 200,
        };
        self.driver.create(&mut self.rnic, &setting);
        for state in 1..=state.min(2) {
            self.go(hard, state);
        }
        let attributes = Attributes {
            peer: self.peer,
            remote_qp: Qpn(hard),
            stream: 1 + at,
            access: Access((rights & 1) << 2 | rights & 2),
            ord: reads,
            ird: reads,
            first_sent: 5,
            first_expected: 0xFFFF_FFF0,
            rnr_wait_us: 200,
            question_us: 300,
            ..Attributes::default()
        };
        for state in [State::Init, State::Rtr, State::Rts] {
            self.soft.engine.modify_qp(soft, state, Some(&attributes)).expect("it may");
        }
        // The hardware does not begin anew by itself: the software's QP is there first.
        for state in 3..=state {
            self.go(hard, state);
        }
        self.qps.push((hard, soft));
        self.cqs.push(cq);
        self.transmit();
    }

    /// Brings a QP of the hardware to a state.
    pub(crate) fn go(&mut self, hard: u16, state: u32) {
        self.driver.command(&mut self.rnic, hard, state);
        let command = loop {
            self.driver.ask_command(&mut self.rnic);
            let command = self.loaded();
            if command >> 63 == 0 {
                break command;
            }
        };
        assert_eq!(command >> 62, 0, "a change of state was refused");
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.efe.now_ns()
    }

    fn launch(&mut self, to_software: bool, frame: Vec<u8>) {
        if self.rng.random_ratio(self.setting.loss_per_million, 1_000_000) {
            self.lost += 1;
            return;
        }
        self.order += 1;
        let at_ns = self.now_ns() + 5 * US + self.rng.random_range(0..2 * US);
        self.flying.push(Reverse((at_ns, self.order, to_software, frame)));
    }

    /// One clock of the hardware, and what the software has to do by then.
    pub(crate) fn step(&mut self) {
        if let Some(frame) = self.efe.clock() {
            self.launch(true, frame);
        }
        self.rnic.clock();
        // A record of its own for each segment, and a frame for each record.
        if self.efe.is_up()
            && self.efe.waiting() < 2
            && let Some(segment) = self.rnic.next_segment()
        {
            assert_eq!(segment.peer, SOFTWARE);
            let part = self.parts.entry(segment.stream).or_default();
            let body = emit(&segment, *part);
            *part = part.wrapping_add(1);
            self.efe.send(body);
        }
        while let Some(body) = self.efe.bodies.pop_front() {
            self.take(&body);
        }
        let now_ns = self.now_ns();
        let mut stirred = false;
        while self.flying.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= now_ns) {
            let Some(Reverse((_, _, to_software, bytes))) = self.flying.pop() else { break };
            if to_software {
                self.soft.receive(now_ns, &HARDWARE, &bytes, &mut self.ram);
                stirred = true;
            } else {
                self.efe.land(bytes);
            }
        }
        if stirred || self.soft.deadline_ns().is_some_and(|deadline| deadline <= now_ns) {
            self.transmit();
        }
    }

    /// The records of a body of the software's.
    fn take(&mut self, body: &[u8]) {
        let mut rest = body;
        while !rest.is_empty() {
            let (record, behind) = Record::parse(rest).expect("a row of records");
            rest = behind;
            let whole = self.whole.entry(record.stream).or_default();
            if record.flags & FIRST != 0 {
                whole.clear();
            }
            whole.extend_from_slice(record.payload);
            if record.flags & LAST != 0 && record.kind == Kind::Ddp {
                let bytes = std::mem::take(whole);
                self.rnic.land(Segment { peer: SOFTWARE, stream: record.stream, bytes });
            }
        }
    }

    /// What the software has to send.
    pub(crate) fn transmit(&mut self) {
        let now_ns = self.now_ns();
        let mut out = Vec::new();
        self.soft.transmit(now_ns, &mut self.ram, &mut |_, frames| {
            out.extend(frames.iter().map(|frame| frame.to_vec()));
            frames.len()
        });
        for frame in out {
            self.launch(false, frame);
        }
    }

    /// Goes on until it is so; `within_ns` is virtual time.
    pub(crate) fn until(&mut self, within_ns: u64, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let end_ns = self.now_ns() + within_ns;
        while !done(self) {
            self.step();
            assert!(
                self.now_ns() < end_ns,
                "{what}: {:?}\n{:?}\n{:?}",
                self.efe.stats(),
                self.soft.counters(),
                self.soft.engine.counters()
            );
        }
    }

    /// So long.
    pub(crate) fn pass(&mut self, ns: u64) {
        for _ in 0..ns / CLOCK_NS {
            self.step();
        }
    }

    pub(crate) fn stags(&self, side: Side) -> &Stags {
        &self.stags[side as usize]
    }

    /// The memory of a side.
    pub(crate) fn memory(&self, side: Side) -> &[u8] {
        match side {
            Side::Hardware => &self.rnic.memory.bytes,
            Side::Software => &self.ram.0,
        }
    }

    /// Bytes of a sink.
    pub(crate) fn sink(&self, side: Side, to: usize, length: usize) -> Vec<u8> {
        (to..to + length).map(|to| self.memory(side)[sink(to)]).collect()
    }

    /// A region whose first byte, TO 0, lies at an odd place.
    pub(crate) fn register_askew(&mut self, side: Side) -> u32 {
        let (access, at, length) = (Access::LOCAL_WRITE, SINK as u64 + 4, 4096);
        match side {
            Side::Hardware => {
                let region = etherslot_cosim::Region {
                    index: 4,
                    key: 0x14,
                    pd: PD,
                    access,
                    base: 0,
                    length,
                    layout: Ok(at),
                    first: 0,
                };
                self.driver.register(&mut self.rnic, &region)
            }
            Side::Software => {
                let layout = Layout::Direct { address: at };
                let region = Region { pd: Pd(PD), access, base: 0, length, key: 0x24, layout };
                self.soft.engine.register(&region).expect("a region")
            }
        }
    }

    /// Posts a send WQE.
    pub(crate) fn post_send(&mut self, side: Side, at: usize, wqe: &[u8]) {
        let (hard, soft) = self.qps[at];
        match side {
            Side::Hardware => self.driver.post_send(&mut self.rnic, hard, wqe, true),
            Side::Software => {
                self.soft.engine.post_send(soft, wqe).expect("room for a send");
                self.transmit();
            }
        }
    }

    /// Posts a receive WQE.
    pub(crate) fn post_receive(&mut self, side: Side, at: usize, wqe: &[u8]) {
        let (hard, soft) = self.qps[at];
        match side {
            Side::Hardware => self.driver.post_receive(&mut self.rnic, hard, wqe),
            Side::Software => self.soft.engine.post_receive(soft, wqe).expect("room for a receive"),
        }
    }

    /// The next completion of a QP.
    pub(crate) fn poll(&mut self, side: Side, at: usize) -> Option<Cqe> {
        match side {
            Side::Hardware => {
                let (hard, _) = self.qps[at];
                let entry = self.driver.poll(&mut self.rnic, hard)?;
                Some(Cqe::parse(&entry).expect("a completion"))
            }
            Side::Software => {
                let mut cqes = [Cqe::parse(&[0; Cqe::BYTES]).expect("a form"); 1];
                (self.soft.engine.poll(self.cqs[at], &mut cqes) == 1).then_some(cqes[0])
            }
        }
    }

    /// The next completion, which has to come.
    pub(crate) fn completion(&mut self, side: Side, at: usize) -> Cqe {
        let mut found = None;
        self.until(400 * MS, &format!("no completion of the {side:?}'s QP {at}"), |world| {
            found = world.poll(side, at);
            found.is_some()
        });
        found.expect("it was found")
    }

    /// The state of a QP, as section 14 numbers them.
    pub(crate) fn state(&mut self, side: Side, at: usize) -> u32 {
        let (hard, soft) = self.qps[at];
        match side {
            Side::Hardware => {
                self.driver.ask_state(&mut self.rnic, hard);
                self.loaded() as u32 & 15
            }
            Side::Software => match self.soft.engine.state(soft).expect("it is there") {
                State::Reset => 0,
                State::Init => 1,
                State::Rtr => 2,
                State::Rts => 3,
                State::Sqd => 4,
                State::Sqe => 5,
                State::Error => 6,
            },
        }
    }

    /// A counter of section 15, by name.
    pub(crate) fn counter(&mut self, side: Side, name: &str) -> u64 {
        let all: Vec<_> = self.soft.engine.counters().named().collect();
        let place = all.iter().position(|counter| counter.name == name).expect("a counter");
        match side {
            Side::Hardware => {
                self.driver.ask_counter(&mut self.rnic, 0x100 + 8 * place as u32);
                self.loaded()
            }
            Side::Software => all[place].value,
        }
    }

    /// What was asked for of the registers.
    pub(crate) fn loaded(&mut self) -> u64 {
        let mut value = None;
        self.until(MS, "a register is not read", |world| {
            value = world.rnic.loaded();
            value.is_some()
        });
        value.expect("it was read")
    }
}

/// The longest body of a session of 1500-byte frames.
const fn efe_body_bytes() -> usize {
    1404
}

/// The body with this segment.
fn emit(segment: &Segment, part: u16) -> Vec<u8> {
    let payload = &segment.bytes;
    let mut body = vec![0; record::size(payload.len())];
    body[0..2].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    body[2] = Kind::Ddp as u8;
    body[3] = FIRST | LAST;
    body[4..6].copy_from_slice(&segment.stream.to_be_bytes());
    body[6..8].copy_from_slice(&part.to_be_bytes());
    body[HEADER_BYTES..HEADER_BYTES + payload.len()].copy_from_slice(payload);
    body
}

fn register_hard(driver: &Driver, rnic: &mut Rnic) -> Stags {
    let region = |index, pd, access, base, length, layout, first| etherslot_cosim::Region {
        index,
        key: 0x10 + index as u8,
        pd,
        access,
        base,
        length,
        layout,
        first,
    };
    let pages = || (0..SINK_BYTES / 4096).map(|at| Some(page(at))).collect::<Vec<_>>();
    let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let source = region(1, PD, Access::REMOTE_READ, SOURCE_TO, SOURCE_BYTES as u64, Ok(SOURCE as u64), 0);
    let sink = region(2, PD, writable, 0, SINK_BYTES as u64, Err(pages()), 100);
    let all = writable | Access::REMOTE_READ;
    let foreign = region(3, FOREIGN_PD, all, 0, SINK_BYTES as u64, Err(pages()), 2000);
    Stags {
        source: driver.register(rnic, &source),
        sink: driver.register(rnic, &sink),
        foreign: driver.register(rnic, &foreign),
    }
}

fn register_soft(engine: &mut Engine) -> Stags {
    let pages: Vec<u64> = (0..SINK_BYTES / 4096).map(page).collect();
    let paged = Layout::Pages { shift: 12, offset: 0, pages: &pages };
    let mut region = |pd, access, base, length: usize, layout| {
        engine
            .register(&Region { pd: Pd(pd), access, base, length: length as u64, key: 0x21, layout })
            .expect("a region")
    };
    let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    Stags {
        source: region(
            PD,
            Access::REMOTE_READ,
            SOURCE_TO,
            SOURCE_BYTES,
            Layout::Direct { address: SOURCE as u64 },
        ),
        sink: region(PD, writable, 0, SINK_BYTES, paged),
        foreign: region(FOREIGN_PD, writable | Access::REMOTE_READ, 0, SINK_BYTES, paged),
    }
}
