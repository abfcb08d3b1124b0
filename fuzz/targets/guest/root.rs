//! The Root Complex of the device under attack: its memory, its manners, and what it knows of a good driver.

use std::collections::{HashSet, VecDeque};

use etherslot_pci::TlpOut;
use etherslot_pci::completer;
use etherslot_pci::endpoint::Endpoint;
use etherslot_pci::function::ResetKind;
use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{CfgRequest, CfgType, CplStatus, Header, MAX_BYTES, MemRequest, Op};

pub const MS: u64 = 1_000_000;
pub const MEMORY_BYTES: u64 = 1 << 18;
pub const ADMIN_SQ: u64 = 0x1000;
pub const ADMIN_CQ: u64 = 0x2000;
pub const IO_SQ: u64 = 0x3000;
pub const IO_CQ: u64 = 0x4000;
pub const DATA: u64 = 0x8000;
/// Entries of every queue of the good driver.
pub const SLOTS: u32 = 16;

const DEVICE: FunctionId = FunctionId::new(3, 0, 0);
const BAR_ADDRESS: u64 = 0xFEB0_0000;
/// More rounds than any work within these bounds takes.
const MAX_ROUNDS: usize = 20_000;

/// The device, and all that it sees of the world.
pub struct Root {
    endpoint: Endpoint,
    pub now_ns: u64,
    /// Bytes that the way upstream has room for in one round.
    pub room: usize,
    /// How memory answers: 0..=127 well, and in various bad ways above.
    pub manner: u8,
    link: Link,
    memory: Vec<u8>,
    tails: [u32; 2],
}

/// What the device sent.
#[derive(Default)]
struct Link {
    room: usize,
    reads: VecDeque<(Header, MemRequest)>,
    /// Tags under way, so that none is used twice.
    tags: HashSet<u16>,
    writes: Vec<(MemRequest, Vec<u8>)>,
    completions: Vec<(CplStatus, Vec<u8>)>,
}

impl TlpOut for Link {
    fn room(&mut self, _stream: u16) -> usize {
        self.room
    }

    fn send(&mut self, _stream: u16, header: &Header, data: &[u8]) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room = self.room.saturating_sub(header.len() + header.data_bytes());
        let mut bytes = [0; MAX_BYTES];
        let head = header.emit(&mut bytes).expect("room for any header");
        let lead = etherslot_pci::data_lead(header);
        assert!(lead + data.len() <= header.data_bytes(), "more data than the header says");
        bytes[head + lead..head + lead + data.len()].copy_from_slice(data);
        let tlp = &bytes[..head + header.data_bytes()];
        let (parsed, _) = Header::parse(tlp).expect("a well-formed TLP");
        assert_eq!(parsed, *header, "a header that says something else on the wire");
        match header.op {
            Op::MemRead(request) => {
                assert!(self.tags.insert(request.tag), "a Tag used twice");
                self.reads.push_back((*header, request));
            }
            Op::MemWrite(request) => self.writes.push((request, data.to_vec())),
            Op::Completion(completion) => self.completions.push((completion.status, data.to_vec())),
            Op::Message { .. } => {}
            Op::Atomic { .. } | Op::CfgRead(_) | Op::CfgWrite(_) => panic!("a Request no Endpoint makes"),
        }
        true
    }
}

impl Root {
    pub fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            now_ns: MS,
            room: 9000,
            manner: 0,
            link: Link::default(),
            memory: vec![0; MEMORY_BYTES as usize],
            tails: [0; 2],
        }
    }

    fn receive(&mut self, header: &Header, data: &[u8]) {
        self.endpoint.receive(self.now_ns, header, data);
    }

    pub fn config_write(&mut self, register: u16, first_be: u8, value: u32) {
        let request = CfgRequest {
            kind: CfgType::Type0,
            requester: FunctionId::default(),
            tag: 0,
            target: DEVICE,
            register,
            first_be,
        };
        self.receive(&Header::new(Op::CfgWrite(request)), &value.to_le_bytes());
        self.run(2);
    }

    fn bar(&self, offset: u64, bytes: usize) -> Option<MemRequest> {
        MemRequest::covering(FunctionId::default(), 1, BAR_ADDRESS + offset, bytes)
    }

    pub fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let Some(request) = self.bar(offset, data.len()) else { return };
        let mut padded = vec![0; request.data_bytes()];
        let lead = request.span().0;
        padded[lead..lead + data.len()].copy_from_slice(data);
        self.receive(&Header::new(Op::MemWrite(request)), &padded);
    }

    pub fn bar_read(&mut self, offset: u64, bytes: usize) {
        let Some(request) = self.bar(offset, bytes) else { return };
        self.receive(&Header::new(Op::MemRead(request)), &[]);
        self.run(2);
    }

    fn register(&mut self, offset: u64) -> Option<u32> {
        self.link.completions.clear();
        self.bar_read(offset, 4);
        self.run(4);
        let (status, data) = self.link.completions.pop()?;
        (status == CplStatus::Success).then(|| data.first_chunk().copied().map(u32::from_le_bytes)).flatten()
    }

    pub fn inject(&mut self, tlp: &[u8]) {
        if let Ok((header, data)) = Header::parse(tlp) {
            self.receive(&header, data);
        }
    }

    pub fn poke(&mut self, at: u64, data: &[u8]) {
        for (place, byte) in self.memory[at as usize..].iter_mut().zip(data) {
            *place = *byte;
        }
    }

    pub fn pass(&mut self, for_ns: u64) {
        self.now_ns += for_ns;
        self.run(8);
    }

    /// So many rounds of the box's loop, or fewer if there is nothing more to do.
    pub fn run(&mut self, rounds: usize) {
        for _ in 0..rounds {
            self.link.room = self.room;
            self.now_ns += 1000;
            let progress = self.endpoint.poll(self.now_ns, &mut self.link, 1);
            if !(progress | self.serve()) {
                break;
            }
        }
    }

    /// Applies writes and answers reads, as the manner says.
    fn serve(&mut self) -> bool {
        let progress = !self.link.writes.is_empty() || !self.link.reads.is_empty();
        for (request, data) in std::mem::take(&mut self.link.writes) {
            let at = request.address + request.span().0 as u64;
            if at + data.len() as u64 <= MEMORY_BYTES {
                self.poke(at, &data);
            }
        }
        while let Some((header, request)) = self.link.reads.pop_front() {
            self.link.tags.remove(&request.tag);
            let (lead, bytes) = request.span();
            let at = (request.address + lead as u64) as usize;
            let refused =
                completer::status(&request, FunctionId::default(), CplStatus::UnsupportedRequest, 0);
            match (self.manner, self.memory.get(at..at + bytes)) {
                (128..=159, _) | (_, None) => {
                    self.endpoint.receive(
                        self.now_ns,
                        &Header { op: Op::Completion(refused), ..header },
                        &[],
                    );
                }
                // Silence: the Completion Timeout ends it.
                (160..=191, _) => {}
                (manner, Some(memory)) => {
                    let memory = memory.to_vec();
                    let mut parts = completer::completions(&request, FunctionId::default(), 64, 256);
                    while let Some(part) = parts.next_within(usize::MAX) {
                        let mut completion = part.completion;
                        let mut poisoned = false;
                        match manner {
                            192..=207 => poisoned = true,
                            208..=223 => completion.byte_count = completion.byte_count.wrapping_sub(1).max(1),
                            224..=239 => completion.tag ^= 1,
                            240..=247 => completion.lower_address ^= 4,
                            _ => {}
                        }
                        let lead = completion.lower_address as usize & 3;
                        let mut data = vec![0; completion.length_dw as usize * 4];
                        let end = (lead + part.bytes).min(data.len());
                        data[lead..end].copy_from_slice(&memory[part.offset..part.offset + end - lead]);
                        let header = Header { op: Op::Completion(completion), poisoned, ..header };
                        self.endpoint.receive(self.now_ns, &header, &data);
                        if manner >= 248 {
                            break;
                        }
                    }
                }
            }
        }
        progress
    }

    /// From now on the world is as it should be.
    pub fn behave(&mut self) {
        self.manner = 0;
        self.room = 9000;
        // What was kept from the device ends by its Completion Timeout.
        for _ in 0..8 {
            self.pass(1000 * MS);
        }
    }

    pub fn reset(&mut self) {
        self.endpoint.reset(ResetKind::Conventional);
        self.link = Link::default();
    }

    pub fn function_level_reset(&mut self) {
        let pcie = self.capability(0x10);
        self.config_write(pcie + 8, 0b10, 1 << 15);
    }

    fn capability(&self, id: u8) -> u16 {
        let image: Vec<u8> = (0..256).map(|at| self.endpoint.config().u8(at)).collect();
        let mut at = image[0x34] as usize;
        while at != 0 && image[at] != id {
            at = image[at + 1] as usize;
        }
        at as u16
    }

    /// What a driver does until the controller is ready, with one I/O queue pair. True if it all went well.
    pub fn bring_up(&mut self) -> bool {
        self.tails = [0; 2];
        self.config_write(0x10, 0xF, BAR_ADDRESS as u32);
        self.config_write(0x14, 0xF, 0);
        self.config_write(0x04, 0x3, 0x6);
        self.bar_write(0x14, &0u32.to_le_bytes());
        if !self.wait(|csts| csts & 1 == 0) {
            return false;
        }
        self.memory[..DATA as usize].fill(0);
        self.bar_write(0x24, &((SLOTS - 1) << 16 | (SLOTS - 1)).to_le_bytes());
        self.bar_write(0x28, &ADMIN_SQ.to_le_bytes());
        self.bar_write(0x30, &ADMIN_CQ.to_le_bytes());
        // IOCQES 16 bytes, IOSQES 64 bytes, enable.
        self.bar_write(0x14, &0x46_0001u32.to_le_bytes());
        if !self.wait(|csts| csts & 3 == 1) {
            return false;
        }
        let queue = |opcode: u32, base: u64, flags: u32| {
            let mut dwords = [0; 16];
            dwords[0] = opcode;
            dwords[6] = base as u32;
            dwords[10] = (SLOTS - 1) << 16 | 1;
            dwords[11] = flags;
            dwords
        };
        self.command(true, queue(5, IO_CQ, 1)) == Some(0)
            && self.command(true, queue(1, IO_SQ, 1 << 16 | 1)) == Some(0)
    }

    fn wait(&mut self, is_it: impl Fn(u32) -> bool) -> bool {
        for _ in 0..100 {
            if self.register(0x1C).is_some_and(&is_it) {
                return true;
            }
            self.now_ns += 100 * MS;
            self.run(MAX_ROUNDS);
        }
        false
    }

    /// Puts an entry into the admin or the I/O queue, and rings.
    pub fn submit(&mut self, admin: bool, dwords: [u32; 16]) {
        let (base, tail, doorbell) = if admin { (ADMIN_SQ, 0, 0x1000) } else { (IO_SQ, 1, 0x1008) };
        let at = base + u64::from(self.tails[tail]) * 64;
        let bytes: Vec<u8> = dwords.iter().flat_map(|dword| dword.to_le_bytes()).collect();
        self.poke(at, &bytes);
        self.tails[tail] = (self.tails[tail] + 1) % SLOTS;
        self.bar_write(doorbell, &self.tails[tail].to_le_bytes());
    }

    /// One command of the good driver, the status of its completion.
    fn command(&mut self, admin: bool, dwords: [u32; 16]) -> Option<u16> {
        let (base, tail) = if admin { (ADMIN_CQ, 0) } else { (IO_CQ, 1) };
        // The good driver uses each entry of its completion queues once, so their first phase is all it meets.
        let at = (base + u64::from(self.tails[tail]) * 16) as usize;
        self.submit(admin, dwords);
        for _ in 0..100 {
            self.run(MAX_ROUNDS);
            let status = u16::from_le_bytes([self.memory[at + 14], self.memory[at + 15]]);
            if status & 1 == 1 {
                return Some(status >> 1);
            }
            self.now_ns += 100 * MS;
        }
        None
    }

    pub fn identifies_and_reads(&mut self) -> bool {
        let mut identify = [0; 16];
        identify[0] = 6;
        identify[6] = DATA as u32;
        identify[10] = 1;
        let mut read = [0; 16];
        read[0] = 2;
        read[1] = 1;
        read[6] = DATA as u32 + 0x1000;
        self.command(true, identify) == Some(0)
            && self.memory[DATA as usize..DATA as usize + 2] == 0xE510u16.to_le_bytes()
            && self.command(false, read) == Some(0)
    }
}
