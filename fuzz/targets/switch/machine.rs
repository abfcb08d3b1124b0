//! The box's switch with an NVMe controller in a slot, and a driver above.

use etherslot_devices::nvme::{Config, Namespace, Nvme};
use etherslot_fuzz::heap;
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::enumerate::{Layout, Windows, bus_numbers};
use etherslot_pci::hierarchy::Hierarchy;
use etherslot_storage::memory::{Disk, Latency, Options};
use etherslot_wire::ahead::{Piece, PieceKind};
use etherslot_wire::tlp::{CfgRequest, CfgType, Header, MAX_BYTES, MemRequest, Op};
use etherslot_wire::{FunctionId, Tag};

use crate::root::{Manner, Root, Rules};

pub const STREAM: u16 = 1;
pub const SLOT: u8 = 0;
pub const UPSTREAM: FunctionId = FunctionId::new(1, 0, 0);
pub const PORT: FunctionId = FunctionId::new(2, 0, 0);
pub const FUNCTION: FunctionId = FunctionId::new(3, 0, 0);
pub const ROOT: FunctionId = FunctionId::new(0, 0, 0);

// The guest's map.
pub const MEMORY_BYTES: usize = 512 << 10;
pub const ADMIN_SQ: u64 = 0x1000;
pub const ADMIN_CQ: u64 = 0x2000;
/// I/O queues.
pub const QUEUES: u64 = 0x3000;
pub const LISTS: u64 = 0x1_0000;
pub const DATA: u64 = 0x1_8000;
pub const BAR0: u64 = 0xFEB0_0000;
pub const CMB: u64 = 0xF_0000_0000;
pub const CMB_BYTES: usize = 64 << 10;
/// Where interrupt messages go.
pub const MESSAGES: u64 = 0xFEE0_0000;

/// Entries of the admin queues, and of I/O queues, that this driver makes.
pub const ENTRIES: u16 = 16;
/// What the way upstream takes, beyond what Device Control says, bytes.
const GRANT: (u16, u16) = (256, 512);
/// What all that a guest does may add to the heap, bytes: queues, and a disk's cache many times over.
const MAX_GROWTH_BYTES: usize = 8 << 20;
/// Calls of `poll` in a row that find something to do.
const MAX_POLLS: usize = 20_000;
const MAX_STEPS: usize = 100_000;

pub struct Machine {
    pub now_ns: u64,
    pub hierarchy: Hierarchy,
    pub root: Root,
    pub disk: Disk,
    pub layout: Layout,
    next_tag: Tag,
    heap_bytes: usize,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].iter().rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
}

impl Machine {
    pub fn new(msix: bool) -> Self {
        let latency = Latency { read_ns: 20_000, write_ns: 30_000, flush_ns: 100_000, jitter_ns: 50_000 };
        let disk = Disk::new(Options { bytes: 128 << 10, depth: 8, latency, ..Options::default() });
        let config = Config {
            namespaces: vec![Namespace::new(Box::new(disk.medium()), 512)],
            max_queue_pairs: 4,
            cmb_bytes: Some(CMB_BYTES),
            msix,
            commands: 16,
            max_transfer_bytes: 64 << 10,
            large_buffers: 2,
            small_buffer_bytes: 4096,
            small_buffers: 4,
            ..Config::default()
        };
        let nvme = Nvme::new(config).expect("a controller");
        let endpoint_config = EndpointConfig { tags: 32, ..EndpointConfig::default() };
        let mut endpoint = Box::new(Endpoint::new(Box::new(nvme), endpoint_config));
        endpoint.attach(GRANT.0, GRANT.1);
        let mut config = endpoint.config().clone();
        let image = *config.image();
        let bar_sizes = [0, 1, 2, 3, 4, 5].map(|bar| {
            config.write(0x10 + 4 * bar, 0xF, [0xFF; 4]);
            config.u32(0x10 + 4 * bar)
        });
        let layout = Layout::parse(&image, &bar_sizes);
        let mut hierarchy = Hierarchy::new();
        hierarchy.plug(SLOT, STREAM, endpoint);
        let rules = Rules {
            now_ns: 0,
            function: FunctionId::default(),
            max_payload: 0,
            max_read_request: 0,
            quarantine_ns: endpoint_config.quarantine_ns,
        };
        let (now_ns, root) = (1_000_000, Root::new(rules));
        Self { now_ns, hierarchy, root, disk, layout, next_tag: 0, heap_bytes: heap::taken_bytes() }
    }

    fn endpoint(&self) -> &Endpoint {
        self.hierarchy.endpoint(SLOT).expect("it is plugged")
    }

    pub fn receive(&mut self, header: &Header, data: &[u8]) {
        let mut bytes = vec![0; header.len()];
        if header.emit(&mut bytes).is_some() {
            bytes.extend(data);
            self.deliver(&bytes);
        }
    }

    /// Sends a TLP down, if it is one. What the Function has made of a Completion, the Root keeps account of.
    pub fn deliver(&mut self, tlp: &[u8]) {
        self.root.rules.now_ns = self.now_ns;
        let counted = |machine: &Self| {
            let malformed = machine.endpoint().requester_counters().malformed_completions;
            (machine.hierarchy.counters().unrouted_completions, malformed)
        };
        let (id, (unrouted, malformed)) = (self.endpoint().id(), counted(self));
        self.hierarchy.receive(self.now_ns, STREAM, tlp);
        let Ok((Header { op: Op::Completion(completion), .. }, _)) = Header::parse(tlp) else { return };
        let (now_unrouted, now_malformed) = counted(self);
        if now_unrouted == unrouted && completion.requester == id {
            self.root.completed(&completion, now_malformed != malformed);
        }
    }

    /// Sends an entry along with its doorbell, and what its first pointer leads to, as the controller's rule has it.
    pub fn send_along(&mut self, number: u8, index: u16, with_data: bool) {
        let Some(rule) = self.root.ahead.get(&number) else { return };
        let entry = rule.entry(index.into());
        let mut piece = Piece {
            rule: number,
            generation: rule.generation,
            kind: PieceKind::Entries,
            index,
            address: entry,
        };
        let mut send = |piece: &Piece, bytes: usize| {
            let start = usize::try_from(piece.address).ok()?;
            let data = self.root.memory.get(start..start.checked_add(bytes)?)?;
            self.hierarchy.receive_ahead(STREAM, &[&piece.emit()[..], data].concat(), None);
            data[24..].first_chunk().copied().map(u64::from_le_bytes)
        };
        if let (Some(address), true) = (send(&piece, rule.entry_bytes.into()), with_data) {
            (piece.kind, piece.address) = (PieceKind::Data, address);
            send(&piece, 4096 - (address as usize & 0xFFF).min(4064));
        }
    }

    /// Goes on until there is nothing to do, or no room.
    pub fn poll(&mut self) -> bool {
        let control = self.layout.pcie.map_or(0, |pcie| self.endpoint().config().u16(pcie + 8));
        let size = |bits: u16, grant: u16| (128 << (bits & 7).min(5)).max(usize::from(grant));
        self.root.rules.now_ns = self.now_ns;
        self.root.rules.function = self.endpoint().id();
        self.root.rules.max_payload = size(control >> 5, GRANT.0);
        self.root.rules.max_read_request = size(control >> 12, GRANT.1);
        let mut polls = 0;
        while self.hierarchy.poll(self.now_ns, &mut self.root) {
            polls += 1;
            assert!(polls < MAX_POLLS, "the box works without end");
        }
        assert!(heap::taken_bytes() <= self.heap_bytes + MAX_GROWTH_BYTES, "the heap grows");
        polls != 0
    }

    /// Answers one of the reads that wait.
    pub fn answer(&mut self, index: usize, manner: Manner, max_payload: u16) {
        for (header, data) in self.root.answer(index, manner, max_payload) {
            self.receive(&header, &data);
        }
    }

    /// Until nothing happens any more.
    pub fn settle(&mut self) {
        for _ in 0..MAX_STEPS {
            let mut any = self.poll();
            while self.root.reads() != 0 {
                self.answer(0, Manner::Right, 256);
                any = true;
            }
            if !any {
                match self.hierarchy.deadline_ns() {
                    Some(at) if at > self.now_ns => self.now_ns = at,
                    Some(_) => self.now_ns += 1_000,
                    None => return,
                }
            }
        }
        panic!("the controller does not come to rest");
    }

    fn tag(&mut self) -> Tag {
        self.next_tag = (self.next_tag + 1) % 256;
        self.next_tag
    }

    pub fn config_write(&mut self, target: FunctionId, register: u16, first_be: u8, data: [u8; 4]) {
        let kind = if target == UPSTREAM { CfgType::Type0 } else { CfgType::Type1 };
        let request = CfgRequest { kind, requester: ROOT, tag: self.tag(), target, register, first_be };
        self.receive(&Header::new(Op::CfgWrite(request)), &data);
    }

    pub fn config_read(&mut self, target: FunctionId, register: u16, first_be: u8) {
        let kind = if target == UPSTREAM { CfgType::Type0 } else { CfgType::Type1 };
        let request = CfgRequest { kind, requester: ROOT, tag: self.tag(), target, register, first_be };
        self.receive(&Header::new(Op::CfgRead(request)), &[]);
    }

    pub fn write(&mut self, address: u64, data: &[u8]) {
        if let Some(request) = MemRequest::covering(ROOT, 0, address, data.len()) {
            let mut bytes = vec![0; request.data_bytes()];
            let lead = request.span().0;
            bytes[lead..lead + data.len()].copy_from_slice(data);
            self.receive(&Header::new(Op::MemWrite(request)), &bytes);
        }
    }

    pub fn write32(&mut self, offset: u64, value: u32) {
        self.write(BAR0 + offset, &value.to_le_bytes());
    }

    pub fn read(&mut self, address: u64, bytes: usize) -> Option<Tag> {
        let tag = self.tag();
        let request = MemRequest::covering(ROOT, tag, address, bytes)?;
        self.receive(&Header::new(Op::MemRead(request)), &[]);
        Some(tag)
    }

    /// A register; `None` if it can't be read.
    fn read32(&mut self, offset: u64) -> Option<u32> {
        let tag = self.read(BAR0 + offset, 4)?;
        self.settle();
        self.root.take_answer(tag).map(|data| u32_at(&data, 0))
    }

    /// What firmware and a kernel do before there is a driver.
    pub fn bring_up(&mut self) {
        let mut windows = Windows::default();
        windows.cover(0xF000_0000, 0x0FFF_FFFF);
        windows.cover(1 << 32, 1 << 40);
        for (bridge, buses) in [(UPSTREAM, bus_numbers(1, 2, 0xFF)), (PORT, bus_numbers(2, 3, 3))] {
            self.config_write(bridge, 0x18, 0xF, buses.to_le_bytes());
            self.config_write(bridge, 0x04, 0xF, [6, 0, 0, 0]);
            // Secondary Bus Reset, D3hot, Link Disable: whatever holds back what is below.
            for register in (0x3C..0x100).step_by(4) {
                self.config_write(bridge, register, 0xF, [0; 4]);
            }
            for (register, value) in windows.registers() {
                self.config_write(bridge, register, 0xF, value.to_le_bytes());
            }
        }
        for (bar, address) in [(0, BAR0), (2, CMB)] {
            self.config_write(FUNCTION, 0x10 + 4 * bar, 0xF, (address as u32).to_le_bytes());
            self.config_write(FUNCTION, 0x14 + 4 * bar, 0xF, ((address >> 32) as u32).to_le_bytes());
        }
        self.config_write(FUNCTION, 0x04, 0xF, [6, 0, 0, 0]);
        self.poll();
    }

    /// What a driver does to start the controller. True if it is ready.
    pub fn enable(&mut self) -> bool {
        self.write32(0x14, 0);
        self.settle();
        self.root.memory[ADMIN_SQ as usize..QUEUES as usize].fill(0);
        let entries = u32::from(ENTRIES - 1);
        self.write32(0x24, entries << 16 | entries);
        self.write(BAR0 + 0x28, &ADMIN_SQ.to_le_bytes());
        self.write(BAR0 + 0x30, &ADMIN_CQ.to_le_bytes());
        self.write32(0x14, 0x0046_0001);
        self.settle();
        self.read32(0x1C).is_some_and(|status| status & 3 == 1)
    }

    /// A command in the `index`th place of a queue that was not used before; its status.
    fn command(&mut self, qid: u64, index: u64, dwords: &[(usize, u32)]) -> Option<u16> {
        let (sq, cq) = if qid == 0 { (ADMIN_SQ, ADMIN_CQ) } else { (QUEUES, QUEUES + 0x1000) };
        let at = (sq + index * 64) as usize;
        self.root.memory[at..at + 64].fill(0);
        for &(dword, value) in dwords {
            self.root.memory[at + 4 * dword..][..4].copy_from_slice(&value.to_le_bytes());
        }
        self.write32(0x1000 + 8 * qid, index as u32 + 1);
        self.settle();
        let at = (cq + index * 16) as usize;
        let last = u32_at(&self.root.memory, at + 12);
        self.write32(0x1004 + 8 * qid, index as u32 + 1);
        (last >> 16 & 1 == 1).then_some((last >> 17) as u16 & 0x7FF)
    }

    /// A driver in its right mind, after a conventional reset.
    pub fn serves(&mut self) {
        self.root.room = MAX_BYTES;
        self.root.budget = usize::MAX;
        self.disk.heal();
        self.root.forget();
        self.hierarchy.hot_reset(SLOT);
        self.settle();
        self.root.forget();
        self.bring_up();
        assert!(self.enable(), "the controller does not start: CSTS {:x?}", self.read32(0x1C));
        let ok = Some(0);
        self.root.memory[QUEUES as usize..LISTS as usize].fill(0);
        let page = DATA as u32;
        let identify = [(0, 6), (1, 1), (6, page)];
        assert_eq!(self.command(0, 0, &identify), ok, "Identify");
        let answer = &self.root.memory[DATA as usize..];
        let block_bytes = 1_usize << answer[128 + 4 * (answer[26] as usize & 15) + 2];
        let entries = u32::from(ENTRIES - 1) << 16 | 1;
        let cq = [(0, 5), (6, QUEUES as u32 + 0x1000), (10, entries), (11, 3)];
        assert_eq!(self.command(0, 1, &cq), ok, "Create I/O Completion Queue");
        let sq = [(0, 1), (6, QUEUES as u32), (10, entries), (11, 1 << 16 | 1)];
        assert_eq!(self.command(0, 2, &sq), ok, "Create I/O Submission Queue");
        let pattern: Vec<u8> = (0..block_bytes).map(|at| (at * 7) as u8).collect();
        self.root.memory[DATA as usize..][..block_bytes].copy_from_slice(&pattern);
        assert_eq!(self.command(1, 0, &[(0, 1), (1, 1), (6, page), (10, 3)]), ok, "Write");
        assert_eq!(self.command(1, 1, &[(0, 2), (1, 1), (6, page + 0x2000), (10, 3)]), ok, "Read");
        assert!(self.root.memory[DATA as usize + 0x2000..][..block_bytes] == pattern, "other data");
    }
}
