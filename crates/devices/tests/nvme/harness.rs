//! A host: the part of a driver that all tests need.

use etherslot_devices::nvme::{Config, Namespace, Nvme};
use etherslot_pci::function::{Fault, Function, ResetKind};
use etherslot_storage::memory::{Disk, Options};
use std::collections::BTreeMap;

pub(crate) use crate::bus::{MEMORY_BYTES, Random, TestBus, Traced};

pub(crate) const NSID_ALL: u32 = u32::MAX;

/// Statuses as SCT << 8 | SC.
pub(crate) mod status {
    pub(crate) const SUCCESS: u16 = 0x000;
    pub(crate) const INVALID_OPCODE: u16 = 0x001;
    pub(crate) const INVALID_FIELD: u16 = 0x002;
    pub(crate) const DATA_TRANSFER_ERROR: u16 = 0x004;
    pub(crate) const ABORT_REQUESTED: u16 = 0x007;
    pub(crate) const INVALID_NAMESPACE: u16 = 0x00b;
    pub(crate) const COMMAND_SEQUENCE: u16 = 0x00c;
    pub(crate) const SGL_SEGMENT: u16 = 0x00d;
    pub(crate) const SGL_COUNT: u16 = 0x00e;
    pub(crate) const SGL_LENGTH: u16 = 0x00f;
    pub(crate) const SGL_TYPE: u16 = 0x011;
    pub(crate) const PRP_OFFSET: u16 = 0x013;
    pub(crate) const WRITE_PROTECTED: u16 = 0x020;
    pub(crate) const LBA_RANGE: u16 = 0x080;
    pub(crate) const CAPACITY: u16 = 0x081;
    pub(crate) const FORMAT_IN_PROGRESS: u16 = 0x084;
    pub(crate) const CQ_INVALID: u16 = 0x100;
    pub(crate) const QUEUE_ID: u16 = 0x101;
    pub(crate) const QUEUE_SIZE: u16 = 0x102;
    pub(crate) const AER_LIMIT: u16 = 0x105;
    pub(crate) const VECTOR: u16 = 0x108;
    pub(crate) const LOG_PAGE: u16 = 0x109;
    pub(crate) const FORMAT: u16 = 0x10a;
    pub(crate) const QUEUE_DELETION: u16 = 0x10c;
    pub(crate) const NOT_SAVEABLE: u16 = 0x10d;
    pub(crate) const WRITE_FAULT: u16 = 0x280;
    pub(crate) const READ_ERROR: u16 = 0x281;
    pub(crate) const COMPARE: u16 = 0x285;
}

/// A Submission Queue Entry in the making.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry(pub(crate) [u32; 16]);

impl Entry {
    pub(crate) fn new(opcode: u8) -> Self {
        let mut dwords = [0; 16];
        dwords[0] = u32::from(opcode);
        Self(dwords)
    }

    pub(crate) fn dword(mut self, at: usize, value: u32) -> Self {
        self.0[at] = value;
        self
    }

    pub(crate) fn qword(self, at: usize, value: u64) -> Self {
        self.dword(at, value as u32).dword(at + 1, (value >> 32) as u32)
    }

    pub(crate) fn nsid(self, nsid: u32) -> Self {
        self.dword(1, nsid)
    }

    pub(crate) fn prps(self, first: u64, second: u64) -> Self {
        self.qword(6, first).qword(8, second)
    }

    pub(crate) fn cid(mut self, cid: u16) -> Self {
        self.0[0] = self.0[0] & 0xffff | u32::from(cid) << 16;
        self
    }

    /// A Read, Write, Compare, ... of `blocks` from `slba` on, in namespace 1.
    pub(crate) fn blocks(opcode: u8, slba: u64, blocks: u32) -> Self {
        Self::new(opcode).nsid(1).qword(10, slba).dword(12, blocks - 1)
    }

    fn bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        for (place, dword) in bytes.chunks_exact_mut(4).zip(self.0) {
            place.copy_from_slice(&dword.to_le_bytes());
        }
        bytes
    }
}

pub(crate) const FLUSH: u8 = 0;
pub(crate) const WRITE: u8 = 1;
pub(crate) const READ: u8 = 2;
pub(crate) const COMPARE: u8 = 5;
pub(crate) const WRITE_ZEROES: u8 = 8;
pub(crate) const DSM: u8 = 9;
pub(crate) const VERIFY: u8 = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) cid: u16,
    pub(crate) sqid: u16,
    pub(crate) sq_head: u16,
    pub(crate) status: u16,
    pub(crate) dnr: bool,
    pub(crate) result: u32,
}

struct Pair {
    sq: u64,
    cq: u64,
    size: u32,
    tail: u32,
    head: u32,
    phase: bool,
}

/// The host.
pub(crate) struct Host {
    pub(crate) nvme: Nvme,
    pub(crate) bus: TestBus,
    pub(crate) random: Random,
    /// Deliver reads in any order.
    pub(crate) shuffle: bool,
    pairs: BTreeMap<u16, Pair>,
    next_cid: u16,
    next_free: u64,
}

/// A disk in memory and a controller on it.
pub(crate) fn disk(bytes: u64) -> Disk {
    Disk::new(Options { bytes, ..Options::default() })
}

pub(crate) fn config(disk: &Disk, block_bytes: u32) -> Config {
    Config {
        namespaces: vec![Namespace::new(Box::new(disk.medium()), block_bytes)],
        max_queue_pairs: 8,
        commands: 64,
        large_buffers: 4,
        small_buffers: 16,
        ..Config::default()
    }
}

impl Host {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            nvme: Nvme::new(config).unwrap(),
            bus: TestBus::new(),
            random: Random(7),
            shuffle: false,
            pairs: BTreeMap::new(),
            next_cid: 0,
            next_free: 0x10_0000,
        }
    }

    /// One namespace of 1 MiB in 512-byte blocks, enabled, with I/O queue pair 1.
    pub(crate) fn ready() -> (Self, Disk) {
        let disk = disk(1 << 20);
        let mut host = Self::new(config(&disk, 512));
        host.enable();
        host.create_pair(1, 16);
        (host, disk)
    }

    // Registers

    pub(crate) fn read32(&mut self, offset: u64) -> u32 {
        let mut data = [0; 4];
        self.nvme.bar_read(0, offset, &mut data);
        u32::from_le_bytes(data)
    }

    pub(crate) fn write32(&mut self, offset: u64, value: u32) {
        self.nvme.bar_write(0, offset, &value.to_le_bytes());
    }

    pub(crate) fn csts(&mut self) -> u32 {
        self.read32(0x1c)
    }

    /// Sets the admin queues up (32 entries) and CC.EN, and waits for CSTS.RDY.
    pub(crate) fn enable(&mut self) {
        self.pairs.clear();
        self.bus.memory[0x1000..0x3000].fill(0);
        self.write32(0x24, 31 << 16 | 31);
        self.nvme.bar_write(0, 0x28, &0x1000u64.to_le_bytes());
        self.nvme.bar_write(0, 0x30, &0x2000u64.to_le_bytes());
        self.write32(0x14, 0x0046_0001);
        self.run();
        assert_eq!(self.csts() & !(1 << 4), 1, "ready, and nothing else but NSSRO");
        let pair = Pair { sq: 0x1000, cq: 0x2000, size: 32, tail: 0, head: 0, phase: true };
        self.pairs.insert(0, pair);
    }

    /// Clears CC.EN, and waits for CSTS.RDY to go.
    pub(crate) fn disable(&mut self) {
        self.write32(0x14, 0x0046_0000);
        self.run();
        assert_eq!(self.csts() & 1, 0);
    }

    // Memory

    pub(crate) fn alloc(&mut self, bytes: usize) -> u64 {
        let at = self.next_free;
        self.next_free += bytes.next_multiple_of(4096) as u64;
        assert!(self.next_free <= MEMORY_BYTES as u64);
        at
    }

    pub(crate) fn memory(&mut self, address: u64, bytes: usize) -> &mut [u8] {
        &mut self.bus.memory[address as usize..address as usize + bytes]
    }

    pub(crate) fn store(&mut self, address: u64, data: &[u8]) {
        self.memory(address, data.len()).copy_from_slice(data);
    }

    pub(crate) fn store64(&mut self, address: u64, values: &[u64]) {
        for (at, value) in values.iter().enumerate() {
            self.store(address + at as u64 * 8, &value.to_le_bytes());
        }
    }

    /// PRPs for `bytes` from `address` on, with lists where they are needed.
    pub(crate) fn prps(&mut self, address: u64, bytes: usize) -> (u64, u64) {
        let first_page = 4096 - (address as usize & 4095);
        if bytes <= first_page {
            return (address, 0);
        }
        let pages: Vec<u64> = (0..(bytes - first_page).div_ceil(4096))
            .map(|page| (address & !4095) + 4096 * (page as u64 + 1))
            .collect();
        if pages.len() == 1 {
            return (address, pages[0]);
        }
        let list = self.alloc(4096);
        let mut at = list;
        let mut pages = &pages[..];
        while pages.len() > 512 {
            self.store64(at, &pages[..511]);
            pages = &pages[511..];
            let next = self.alloc(4096);
            self.store64(at + 511 * 8, &[next]);
            at = next;
        }
        self.store64(at, pages);
        (address, list)
    }

    // Time

    /// One round of the world: reads come back, the controller works.
    pub(crate) fn step(&mut self) -> bool {
        let mut any = false;
        if !self.bus.hold_reads {
            let now = self.bus.pending.len();
            for _ in 0..now {
                let at =
                    if self.shuffle { self.random.below(self.bus.pending.len() as u64) as usize } else { 0 };
                let Some(read) = self.bus.pending.remove(at) else { break };
                let start = usize::try_from(read.address).unwrap_or(usize::MAX);
                let data = self.bus.memory.get(start..start.saturating_add(read.bytes));
                let result = data.ok_or(Fault::UnsupportedRequest);
                self.nvme.read_completed(read.token, read.address, read.bytes, result);
                any = true;
            }
        }
        let was_idle = self.nvme.is_idle() && self.nvme.deadline_ns().is_none();
        let worked = self.nvme.poll(&mut self.bus);
        assert!(!(was_idle && worked), "a controller that said it was idle did something");
        any | worked
    }

    /// So many rounds.
    pub(crate) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Until nothing happens any more, with time passing for the media.
    pub(crate) fn run(&mut self) {
        for _ in 0..1_000_000 {
            if self.step() {
                continue;
            }
            match self.nvme.deadline_ns() {
                Some(at) if at > self.bus.now_ns => self.bus.now_ns = at,
                Some(_) => {}
                None => return,
            }
        }
        panic!("the controller does not come to rest: {:?}", self.nvme);
    }

    /// What a Function Level Reset or a lost host does: reads under way never come back.
    pub(crate) fn function_reset(&mut self, kind: ResetKind) {
        self.bus.pending.clear();
        self.nvme.reset(kind);
        self.pairs.clear();
    }

    /// Reads of memory that are under way.
    pub(crate) fn pending_reads(&self) -> usize {
        self.bus.pending.len()
    }

    // Queues

    /// Puts an entry into queue `qid` without ringing.
    pub(crate) fn put(&mut self, qid: u16, entry: Entry) -> u16 {
        let cid = self.next_cid;
        self.next_cid = self.next_cid.wrapping_add(1) % 0x7fff;
        let pair = self.pairs.get_mut(&qid).expect("the queue exists");
        let at = pair.sq + u64::from(pair.tail) * 64;
        pair.tail = (pair.tail + 1) % pair.size;
        self.store(at, &entry.cid(cid).bytes());
        cid
    }

    pub(crate) fn ring(&mut self, qid: u16) {
        let tail = self.pairs[&qid].tail;
        self.write32(0x1000 + u64::from(qid) * 8, tail);
    }

    pub(crate) fn submit(&mut self, qid: u16, entry: Entry) -> u16 {
        let cid = self.put(qid, entry);
        self.ring(qid);
        cid
    }

    /// The next completion of queue `qid`, without telling the controller that it was consumed.
    pub(crate) fn peek(&mut self, qid: u16) -> Option<Completion> {
        let pair = self.pairs.get_mut(&qid)?;
        let at = (pair.cq + u64::from(pair.head) * 16) as usize;
        let raw = &self.bus.memory[at..at + 16];
        let dword = |at: usize| u32::from_le_bytes(raw[at * 4..at * 4 + 4].try_into().unwrap());
        let field = dword(3) >> 16;
        if (field & 1 != 0) != pair.phase {
            return None;
        }
        pair.head += 1;
        if pair.head == pair.size {
            pair.head = 0;
            pair.phase = !pair.phase;
        }
        Some(Completion {
            cid: dword(3) as u16,
            sqid: (dword(2) >> 16) as u16,
            sq_head: dword(2) as u16,
            status: (field >> 1) as u16 & 0x7ff,
            dnr: field >> 15 != 0,
            result: dword(0),
        })
    }

    /// Tells the controller what was consumed.
    pub(crate) fn acknowledge(&mut self, qid: u16) {
        let head = self.pairs[&qid].head;
        self.write32(0x1004 + u64::from(qid) * 8, head);
    }

    /// All completions of queue `qid` there are.
    pub(crate) fn reap(&mut self, qid: u16) -> Vec<Completion> {
        let completions: Vec<Completion> = std::iter::from_fn(|| self.peek(qid)).collect();
        if !completions.is_empty() {
            self.acknowledge(qid);
        }
        completions
    }

    /// Carries one command out.
    pub(crate) fn command(&mut self, qid: u16, entry: Entry) -> Completion {
        let cid = self.submit(qid, entry);
        self.run();
        let completions = self.reap(qid);
        assert_eq!(completions.len(), 1, "{completions:?}");
        assert_eq!((completions[0].cid, completions[0].sqid), (cid, qid));
        completions[0]
    }

    pub(crate) fn admin(&mut self, entry: Entry) -> Completion {
        self.command(0, entry)
    }

    /// An I/O command on queue 1; its status.
    pub(crate) fn io(&mut self, entry: Entry) -> u16 {
        self.command(1, entry).status
    }

    pub(crate) fn create_cq(&mut self, qid: u16, size: u32, vector: u16) -> (Completion, u64) {
        let base = self.alloc(size as usize * 16);
        self.memory(base, size as usize * 16).fill(0);
        let entry = Entry::new(5)
            .prps(base, 0)
            .dword(10, (size - 1) << 16 | u32::from(qid))
            .dword(11, u32::from(vector) << 16 | 3);
        (self.admin(entry), base)
    }

    pub(crate) fn create_sq(&mut self, qid: u16, size: u32, cqid: u16) -> (Completion, u64) {
        let base = self.alloc(size as usize * 64);
        let entry = Entry::new(1)
            .prps(base, 0)
            .dword(10, (size - 1) << 16 | u32::from(qid))
            .dword(11, u32::from(cqid) << 16 | 1);
        (self.admin(entry), base)
    }

    /// An I/O queue pair whose interrupts have the vector of its number.
    pub(crate) fn create_pair(&mut self, qid: u16, size: u32) {
        let (created, cq) = self.create_cq(qid, size, qid);
        assert_eq!(created.status, status::SUCCESS);
        let (created, sq) = self.create_sq(qid, size, qid);
        assert_eq!(created.status, status::SUCCESS);
        self.pairs.insert(qid, Pair { sq, cq, size, tail: 0, head: 0, phase: true });
    }

    /// Makes queue `qid` known that was created by other means.
    pub(crate) fn adopt(&mut self, qid: u16, sq: u64, cq: u64, size: u32) {
        self.pairs.insert(qid, Pair { sq, cq, size, tail: 0, head: 0, phase: true });
    }

    /// Deletes the pair.
    pub(crate) fn delete_pair(&mut self, qid: u16) {
        assert_eq!(self.admin(Entry::new(0).dword(10, u32::from(qid))).status, status::SUCCESS);
        assert_eq!(self.admin(Entry::new(4).dword(10, u32::from(qid))).status, status::SUCCESS);
        self.pairs.remove(&qid);
    }

    // Data

    pub(crate) fn write_blocks(&mut self, slba: u64, data: &[u8], block_bytes: usize) -> u16 {
        let at = self.alloc(data.len());
        self.store(at, data);
        let (first, second) = self.prps(at, data.len());
        self.io(Entry::blocks(WRITE, slba, (data.len() / block_bytes) as u32).prps(first, second))
    }

    pub(crate) fn read_blocks(
        &mut self,
        slba: u64,
        bytes: usize,
        block_bytes: usize,
    ) -> Result<Vec<u8>, u16> {
        let at = self.alloc(bytes);
        self.memory(at, bytes).fill(0xee);
        let (first, second) = self.prps(at, bytes);
        match self.io(Entry::blocks(READ, slba, (bytes / block_bytes) as u32).prps(first, second)) {
            status::SUCCESS => Ok(self.memory(at, bytes).to_vec()),
            status => Err(status),
        }
    }

    /// The 4096 bytes of Identify.
    pub(crate) fn identify(&mut self, cns: u32, nsid: u32) -> Result<Vec<u8>, u16> {
        let at = self.alloc(4096);
        self.memory(at, 4096).fill(0xee);
        let status = self.admin(Entry::new(6).nsid(nsid).prps(at, 0).dword(10, cns)).status;
        if status == status::SUCCESS { Ok(self.memory(at, 4096).to_vec()) } else { Err(status) }
    }

    pub(crate) fn log_page(&mut self, lid: u8, bytes: usize) -> Result<Vec<u8>, u16> {
        let at = self.alloc(bytes);
        let (first, second) = self.prps(at, bytes);
        let dwords = (bytes / 4 - 1) as u32;
        let entry = Entry::new(2).nsid(NSID_ALL).prps(first, second).dword(10, dwords << 16 | u32::from(lid));
        match self.admin(entry).status {
            status::SUCCESS => Ok(self.memory(at, bytes).to_vec()),
            status => Err(status),
        }
    }

    /// A counter of the SMART log, by its offset.
    pub(crate) fn smart(&mut self, offset: usize) -> u64 {
        let page = self.log_page(2, 512).unwrap();
        u64::from_le_bytes(page[offset..offset + 8].try_into().unwrap())
    }

    /// Memory can be used anew from the start; what is in flight is lost.
    pub(crate) fn free_all(&mut self) -> u64 {
        self.next_free
    }

    pub(crate) fn free_to(&mut self, mark: u64) {
        self.next_free = mark;
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed.wrapping_mul(77).wrapping_add(3));
    (0..bytes.div_ceil(4)).flat_map(|_| (random.next() as u32).to_le_bytes()).take(bytes).collect()
}
