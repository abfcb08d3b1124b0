//! Two RNICs with their hosts, and a cable between them.
#![allow(dead_code, reason = "not every file uses all of it")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::rc::Rc;

use etherslot_devices::rnic::{Config, Link, Network, Rnic, Whereabouts};
use etherslot_pci::function::{Fault, Function, ResetKind};
use etherslot_rdma::{BLOCK_BYTES, ReceiveWork, SendWork, Sge};

use crate::bus::{MEMORY_BYTES, Random, TestBus};

/// One direction of the cable.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    pub(crate) segments: VecDeque<Vec<u8>>,
    pub(crate) link: Option<Link>,
    /// Bytes of a segment, and segments that may be on their way.
    pub(crate) longest: usize,
    pub(crate) most: usize,
    pub(crate) carried: usize,
}

type Shared = Rc<RefCell<Lane>>;

/// One end of it, as session 0.
struct End {
    out: Shared,
    input: Shared,
    front: Option<Vec<u8>>,
}

impl Network for End {
    fn sessions(&self) -> u16 {
        1
    }

    fn link(&self, _session: u16) -> Link {
        self.out.borrow().link.unwrap_or(Link::Up(1))
    }

    fn whereabouts(&self, session: Option<u16>) -> Whereabouts {
        match session {
            None => Whereabouts::Ethernet([2, 0, 0, 0, 0, 1]),
            Some(session) => Whereabouts::Udp { ip: Ipv6Addr::LOCALHOST, port: 4790 + session },
        }
    }

    fn poll(&mut self, _now_ns: u64) -> bool {
        if self.front.is_none() {
            self.front = self.input.borrow_mut().segments.pop_front();
            return self.front.is_some();
        }
        false
    }

    fn front(&self) -> Option<(u16, &[u8])> {
        self.front.as_deref().map(|segment| (0, segment))
    }

    fn pop(&mut self) {
        self.front = self.input.borrow_mut().segments.pop_front();
    }

    fn room(&mut self, _session: u16, _stream: u16, _want: usize) -> usize {
        let lane = self.out.borrow();
        let is_up = lane.link.is_none_or(|link| matches!(link, Link::Up(_)));
        if is_up && lane.segments.len() < lane.most { lane.longest } else { 0 }
    }

    fn send(
        &mut self,
        _session: u16,
        _stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let mut lane = self.out.borrow_mut();
        assert!(head.len() + data_len <= lane.longest);
        let mut segment = head.to_vec();
        segment.resize(head.len() + data_len, 0xEE);
        let is_filled = fill(&mut segment[head.len()..]);
        if is_filled {
            lane.carried += 1;
            lane.segments.push_back(segment);
        }
        is_filled
    }

    fn flush(&mut self, _now_ns: u64) -> bool {
        false
    }
}

/// A CQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) status: u8,
    pub(crate) opcode: u8,
    pub(crate) bits: u8,
    pub(crate) qp: u16,
    pub(crate) bytes: u32,
    pub(crate) word: u32,
}

/// A host with an RNIC.
pub(crate) struct Host {
    pub(crate) rnic: Rnic,
    pub(crate) bus: TestBus,
    pub(crate) random: Random,
    pub(crate) shuffle: bool,
    pub(crate) config: Config,
    /// Per QP: producer of SQ and RQ.
    pub(crate) produced: [[u16; 2]; 8],
    /// Per CQ: what has been consumed.
    pub(crate) consumed: [u32; 8],
}

/// Log2 of what queues have.
pub(crate) const BLOCKS_LOG2: u32 = 6;
pub(crate) const CQES_LOG2: u32 = 6;
pub(crate) const PD: u32 = 7;
pub(crate) const OWNER: u32 = 0x55;

/// STag index and key of the region that is all of memory, and its STag.
pub(crate) const ALL_INDEX: u32 = 3;
pub(crate) const ALL: u32 = ALL_INDEX << 8 | 0x21;
/// Memory from here on is the tests'.
pub(crate) const FREE: u64 = 0x10_0000;

/// Bits of access of an SMT entry.
pub(crate) mod access {
    pub(crate) const LOCAL_WRITE: u32 = 1 << 8;
    pub(crate) const REMOTE_READ: u32 = 1 << 9;
    pub(crate) const REMOTE_WRITE: u32 = 1 << 10;
    pub(crate) const REMOTE_ATOMIC: u32 = 1 << 11;
    pub(crate) const BIND: u32 = 1 << 12;
    pub(crate) const EVERYTHING: u32 = 0x1F << 8;
}

/// Bits of an SMT entry.
pub(crate) const VALID: u32 = 1;
pub(crate) const DIRECT: u32 = 1 << 3;

pub(crate) fn config() -> Config {
    Config {
        qps: 8,
        cqs: 8,
        srqs: 4,
        peers: 4,
        stags: 64,
        pages: 1024,
        blocks: 4096,
        reads: 4,
        vectors: 8,
        ..Config::default()
    }
}

impl Host {
    pub(crate) fn sq_at(qp: u32) -> u64 {
        0x1_0000 + u64::from(qp) * 0x4000
    }

    pub(crate) fn rq_at(qp: u32) -> u64 {
        Self::sq_at(qp) + 0x2000
    }

    pub(crate) fn cq_at(cq: u32) -> u64 {
        0x5_0000 + u64::from(cq) * 0x1000
    }

    pub(crate) fn srq_at(srq: u32) -> u64 {
        0x6_0000 + u64::from(srq) * 0x2000
    }

    fn new(network: End) -> Self {
        let config = config();
        Self {
            rnic: Rnic::new(config.clone(), Box::new(network)).unwrap(),
            bus: TestBus::new(),
            random: Random(11),
            shuffle: false,
            config,
            produced: [[0; 2]; 8],
            consumed: [0; 8],
        }
    }

    // Registers

    pub(crate) fn read32(&mut self, bar: u8, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.rnic.bar_read(bar, offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub(crate) fn read64(&mut self, bar: u8, offset: u64) -> u64 {
        let mut data = [0; 8];
        self.rnic.bar_read(bar, offset, &mut data);
        u64::from_le_bytes(data)
    }

    pub(crate) fn write32(&mut self, bar: u8, offset: u64, value: u32) {
        self.rnic.bar_write(bar, offset, &value.to_le_bytes());
    }

    pub(crate) fn write64(&mut self, bar: u8, offset: u64, value: u64) {
        self.rnic.bar_write(bar, offset, &value.to_le_bytes());
    }

    pub(crate) fn counter(&mut self, name: &str) -> u64 {
        let mut value = None;
        self.rnic.count(&mut |its, count| {
            if its == name {
                value = Some(count);
            }
        });
        value.unwrap_or_else(|| panic!("a counter {name}"))
    }

    // Tables

    /// Where an entry is in BAR 4: `table` as in the order of their registers.
    pub(crate) fn entry_at(&mut self, table: u32, index: u32) -> u64 {
        let bytes = [64, 8, 64, 256, 64, 64][table as usize];
        u64::from(self.read32(0, 0x40 + 4 * u64::from(table))) + u64::from(index) * bytes
    }

    /// Writes an entry from its end to its start, as the contract asks.
    pub(crate) fn write_entry(&mut self, table: u32, index: u32, words: &[(u64, u32)]) {
        let at = self.entry_at(table, index);
        for &(offset, word) in words.iter().rev() {
            self.write32(4, at + offset, word);
        }
    }

    pub(crate) fn word(&mut self, table: u32, index: u32, at: u64) -> u32 {
        let entry = self.entry_at(table, index);
        self.read32(4, entry + at)
    }

    /// A region in one piece.
    pub(crate) fn region(&mut self, stag: u32, access: u32, address: u64, length: u64) -> bool {
        let index = stag >> 8;
        self.write_entry(
            0,
            index,
            &[
                (0, stag << 24 | access | DIRECT | VALID),
                (4, PD),
                (8, address as u32),
                (12, (address >> 32) as u32),
                (16, length as u32),
                (20, (length >> 32) as u32),
                (32, address as u32),
                (36, (address >> 32) as u32),
            ],
        );
        self.word(0, index, 0) & VALID != 0
    }

    /// A region in pages of 4 KiB, its TO from 0.
    pub(crate) fn paged(&mut self, stag: u32, access: u32, first: u32, pages: &[Option<u64>]) -> bool {
        for (at, page) in (first..).zip(pages) {
            let entry = self.entry_at(1, at);
            self.write64(4, entry, page.map_or(0, |page| page | 1));
        }
        let index = stag >> 8;
        self.write_entry(
            0,
            index,
            &[
                (0, stag << 24 | access | 1 << 2 | VALID),
                (4, 12 << 16 | PD),
                (16, pages.len() as u32 * 4096),
                (20, 0),
                (24, first),
                (32, 0),
                (36, 0),
            ],
        );
        self.word(0, index, 0) & VALID != 0
    }

    pub(crate) fn cq(&mut self, cq: u32, log2: u32, vector: u32) -> bool {
        let at = Self::cq_at(cq);
        self.write_entry(
            2,
            cq,
            &[(0, vector << 16 | log2 << 8 | VALID), (4, OWNER), (8, at as u32), (12, 0)],
        );
        self.word(2, cq, 0) & VALID != 0
    }

    /// The context of QP `qp`, connected with the same of the other side.
    pub(crate) fn context(&mut self, qp: u32, service: u32, flags: u32) {
        let (sq, rq) = (Self::sq_at(qp) as u32, Self::rq_at(qp) as u32);
        self.write_entry(
            3,
            qp,
            &[
                (0, qp << 16 | flags | service << 4),
                (4, OWNER << 16 | PD),
                (8, 1 << 16),
                (12, BLOCKS_LOG2 << 24 | BLOCKS_LOG2 << 16),
                (16, sq),
                (20, 0),
                (24, rq),
                (28, 0),
                (32, qp << 16),
                (36, 4 << 24 | 4 << 16 | (1 + qp)),
                (40, 0xF << 8 | 7 << 3 | 7),
                (44, 50),
                (48, 0),
                (52, 0),
                (56, 0x1234),
                (60, 10_000),
            ],
        );
    }

    /// `QP_COMMAND`; whether it was done.
    pub(crate) fn command(&mut self, qp: u32, state: u32) -> bool {
        self.write32(0, 0x64, state << 16 | qp);
        for _ in 0..100 {
            let value = self.read32(0, 0x64);
            if value >> 31 == 0 {
                return value >> 30 & 1 == 0;
            }
            self.step();
        }
        panic!("QP_COMMAND does not end");
    }

    pub(crate) fn state(&mut self, qp: u32) -> u32 {
        self.word(3, qp, 0) & 15
    }

    /// Enabled, with CQs 0 (sends) and 1 (receives), a region over all of memory, the peer, and QPs 2 and up in RTS.
    pub(crate) fn bring_up(&mut self, qps: &[(u32, u32, u32)]) {
        self.write32(0, 0x8, 1);
        assert!(self.cq(0, CQES_LOG2, 1) && self.cq(1, CQES_LOG2, 2));
        assert!(self.region(ALL, access::EVERYTHING, 0, MEMORY_BYTES as u64));
        self.write_entry(5, 0, &[(0, 1 << 31)]);
        for &(qp, service, flags) in qps {
            self.context(qp, service, flags);
            for state in 1..=3 {
                assert!(self.command(qp, state), "QP {qp} to {state}");
            }
        }
    }

    // Memory

    pub(crate) fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        &mut self.bus.memory[address as usize..address as usize + bytes]
    }

    pub(crate) fn fill(&mut self, address: u64, bytes: usize, seed: u8) {
        for (at, byte) in self.memory(address, bytes).iter_mut().enumerate() {
            *byte = (at as u8).wrapping_mul(31).wrapping_add(seed) ^ (at >> 8) as u8;
        }
    }

    // Queues

    fn put(&mut self, ring: u64, from: u16, wqe: &[u8]) -> u16 {
        let mut at = from;
        for block in wqe.chunks(BLOCK_BYTES) {
            let place = ring + u64::from(at & ((1 << BLOCKS_LOG2) - 1)) * 64;
            self.memory(place, 64).copy_from_slice(block);
            at = at.wrapping_add(1);
        }
        at
    }

    /// Puts a send WQE into the ring without ringing.
    pub(crate) fn put_send(&mut self, qp: u32, work: &SendWork<'_>) {
        let mut wqe = [0; SendWork::MAX_BYTES];
        let bytes = work.emit(&mut wqe).unwrap();
        self.put_raw(qp, &wqe[..bytes]);
    }

    pub(crate) fn put_raw(&mut self, qp: u32, wqe: &[u8]) {
        let at = self.produced[qp as usize][0];
        self.produced[qp as usize][0] = self.put(Self::sq_at(qp), at, wqe);
    }

    pub(crate) fn ring_send(&mut self, qp: u32) {
        let producer = self.produced[qp as usize][0];
        self.write32(2, u64::from(qp) * 4096, u32::from(producer));
    }

    pub(crate) fn send(&mut self, qp: u32, work: &SendWork<'_>) {
        self.put_send(qp, work);
        self.ring_send(qp);
    }

    pub(crate) fn receive(&mut self, qp: u32, id: u64, address: u64, length: u32) {
        let mut wqe = [0; ReceiveWork::MAX_BYTES];
        let sges = [Sge { to: address, stag: ALL, length }];
        let bytes = ReceiveWork { id, sges: &sges }.emit(&mut wqe).unwrap();
        let at = self.produced[qp as usize][1];
        let producer = self.put(Self::rq_at(qp), at, &wqe[..bytes]);
        self.produced[qp as usize][1] = producer;
        self.write32(2, u64::from(qp) * 4096 + 4, u32::from(producer));
    }

    /// Takes a CQE, if there is one.
    pub(crate) fn poll(&mut self, cq: u32) -> Option<Completion> {
        let index = self.consumed[cq as usize];
        let at = Self::cq_at(cq) + u64::from(index & ((1 << CQES_LOG2) - 1)) * 32;
        let entry = self.memory(at, 32).to_vec();
        let phase = (index >> CQES_LOG2) & 1 == 0;
        if (entry[10] >> 7 == 1) != phase {
            return None;
        }
        self.consumed[cq as usize] += 1;
        let word = |at: usize| u32::from_le_bytes(entry[at..at + 4].try_into().unwrap());
        Some(Completion {
            id: u64::from_le_bytes(entry[..8].try_into().unwrap()),
            status: entry[8],
            opcode: entry[9],
            bits: entry[10] & 0x7F,
            qp: word(12) as u16,
            bytes: word(16),
            word: word(20),
        })
    }

    /// `CQ_DOORBELL` on the page of a QP.
    pub(crate) fn consume(&mut self, qp: u32, cq: u32, bits: u64) {
        let index = self.consumed[cq as usize];
        self.write64(2, u64::from(qp) * 4096 + 8, u64::from(index) << 32 | bits | u64::from(cq));
    }

    /// Completions of a CQ: their IDs and statuses.
    pub(crate) fn completions(&mut self, cq: u32) -> Vec<(u64, u8)> {
        std::iter::from_fn(|| self.poll(cq)).map(|cqe| (cqe.id, cqe.status)).collect()
    }

    // Time

    pub(crate) fn step(&mut self) -> bool {
        let mut any = false;
        if !self.bus.hold_reads {
            for _ in 0..self.bus.pending.len() {
                let at =
                    if self.shuffle { self.random.below(self.bus.pending.len() as u64) as usize } else { 0 };
                let Some(read) = self.bus.pending.remove(at) else { break };
                let start = usize::try_from(read.address).unwrap_or(usize::MAX);
                let data = self.bus.memory.get(start..start.saturating_add(read.bytes));
                let result = data.ok_or(Fault::UnsupportedRequest);
                self.rnic.read_completed(read.token, read.address, read.bytes, result);
                any = true;
            }
        }
        any | self.rnic.poll(&mut self.bus)
    }

    pub(crate) fn reset(&mut self, kind: ResetKind) {
        self.bus.pending.clear();
        self.rnic.reset(kind);
        self.produced = [[0; 2]; 8];
        self.consumed = [0; 8];
        self.bus.memory.fill(0);
    }
}

/// Both.
pub(crate) struct World {
    pub(crate) hosts: [Host; 2],
    /// What the first one sends, and the second.
    pub(crate) lanes: [Shared; 2],
}

impl World {
    /// Two RNICs after power-on.
    pub(crate) fn cold() -> Self {
        let lane = || Rc::new(RefCell::new(Lane { longest: 1396, most: 64, ..Lane::default() }));
        let lanes = [lane(), lane()];
        let end = |own: usize| End { out: lanes[own].clone(), input: lanes[1 - own].clone(), front: None };
        Self { hosts: [Host::new(end(0)), Host::new(end(1))], lanes }
    }

    /// With these QPs (place, service, flags of the context) in RTS on both sides.
    pub(crate) fn new(qps: &[(u32, u32, u32)]) -> Self {
        let mut world = Self::cold();
        for host in &mut world.hosts {
            host.bring_up(qps);
        }
        world
    }

    /// QP 2, of RC.
    pub(crate) fn ready() -> Self {
        Self::new(&[(2, 0, 0)])
    }

    pub(crate) fn step(&mut self) -> bool {
        let [one, other] = &mut self.hosts;
        one.step() | other.step()
    }

    /// Until nothing happens that does not wait for a time.
    pub(crate) fn settle(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the RNICs do not come to rest");
    }

    /// The next deadline of either comes; false if there is none within a second.
    pub(crate) fn pass(&mut self) -> bool {
        let next = self.hosts.iter().filter_map(|host| host.rnic.deadline_ns()).min();
        let now_ns = self.hosts[0].bus.now_ns;
        let Some(at_ns) = next.filter(|&at_ns| at_ns < now_ns + 1_000_000_000) else { return false };
        for host in &mut self.hosts {
            host.bus.now_ns = host.bus.now_ns.max(at_ns);
        }
        true
    }

    /// Until nothing happens any more, for up to `milliseconds`.
    pub(crate) fn run(&mut self, milliseconds: u64) {
        let end_ns = self.hosts[0].bus.now_ns + milliseconds * 1_000_000;
        loop {
            self.settle();
            if !self.pass() || self.hosts[0].bus.now_ns > end_ns {
                return;
            }
        }
    }
}
