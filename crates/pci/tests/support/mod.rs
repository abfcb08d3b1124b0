//! A Function with memory in its BARs and a DMA engine, a host that records what reaches it, and the two joined
//! by a hierarchy that has been enumerated.
#![allow(dead_code, unused_imports, unreachable_pub, missing_docs)]

mod host;
mod scratch;

pub use host::{Host, Sent};
pub use scratch::{Act, Event, Scratch, ScratchFunction, spec};

use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::hierarchy::Hierarchy;
use etherslot_wire::FunctionId;
use etherslot_wire::tlp::{CfgRequest, CfgType, Completion, CplStatus, Header, MemRequest, Op};

pub const ROOT: FunctionId = FunctionId::new(0, 0, 0);
pub const UPSTREAM: FunctionId = FunctionId::new(1, 0, 0);

/// Where the windows of the ports are.
pub const BAR0: u64 = 0x8000_0000;
pub const BAR2: u64 = 0x40_0000_0000;
const SLOT_BYTES: u64 = 0x10_0000;

/// Offsets of capabilities, known from the layout of the space.
pub const COMMAND: u16 = 0x04;
pub const PM: u16 = 0x40;
pub const MSI: u16 = 0x50;
pub const MSIX: u16 = 0x70;
pub const EXPRESS: u16 = 0x80;
pub const AER: u16 = 0x100;

pub const TIMEOUT_NS: u64 = 1_000_000;
pub const QUARANTINE_NS: u64 = 10_000_000;

/// Slot `n` has stream `n + 1`, its port is on bus 2, its Function is on bus `3 + n`.
pub const fn stream(slot: u8) -> u16 {
    slot as u16 + 1
}
pub const fn port(slot: u8) -> FunctionId {
    FunctionId::new(2, slot, 0)
}
pub const fn function(slot: u8) -> FunctionId {
    FunctionId::new(3 + slot, 0, 0)
}
pub const fn bar0(slot: u8) -> u64 {
    BAR0 + slot as u64 * SLOT_BYTES
}
pub const fn bar2(slot: u8) -> u64 {
    BAR2 + slot as u64 * SLOT_BYTES
}

/// A hierarchy with Functions in its first slots, enumerated, with memory and bus mastering enabled.
pub struct Bench {
    pub hierarchy: Hierarchy,
    pub host: Host,
    pub scratch: Vec<Scratch>,
    pub now_ns: u64,
    next_tag: u16,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(&[spec()])
    }

    pub fn with(specs: &[etherslot_pci::function::FunctionSpec]) -> Self {
        Self::with_tags(specs, 8)
    }

    pub fn with_tags(specs: &[etherslot_pci::function::FunctionSpec], tags: u16) -> Self {
        let mut bench = Self {
            hierarchy: Hierarchy::new(),
            host: Host::new(),
            scratch: Vec::new(),
            now_ns: 1,
            next_tag: 0,
        };
        for (slot, spec) in specs.iter().enumerate() {
            let (function, scratch) = ScratchFunction::new(spec.clone());
            let config =
                EndpointConfig { tags, completion_timeout_ns: TIMEOUT_NS, quarantine_ns: QUARANTINE_NS };
            let mut endpoint = Box::new(Endpoint::new(Box::new(function), config));
            endpoint.attach(512, 512);
            assert_eq!(bench.hierarchy.plug(slot as u8, stream(slot as u8), endpoint), port(slot as u8));
            bench.scratch.push(scratch);
        }
        bench.enumerate();
        bench
    }

    /// What firmware does: bus numbers, windows, BARs, enables.
    pub fn enumerate(&mut self) {
        let slots = self.scratch.len() as u8;
        let last = u64::from(slots) * SLOT_BYTES - 1;
        self.cfg_write(0, UPSTREAM, 0x18, 0x00FF_0201);
        self.program_port(UPSTREAM, (BAR0, BAR0 + last), (BAR2, BAR2 + last));
        for slot in 0..slots {
            let bus = u32::from(function(slot).bus());
            self.cfg_write(slot, port(slot), 0x18, bus << 16 | bus << 8 | 2);
            let end = SLOT_BYTES - 1;
            self.program_port(port(slot), (bar0(slot), bar0(slot) + end), (bar2(slot), bar2(slot) + end));
            self.program_function(slot);
        }
        for scratch in &self.scratch {
            scratch.take_events();
        }
    }

    pub fn program_function(&mut self, slot: u8) {
        let id = function(slot);
        self.cfg_write(slot, id, 0x10, bar0(slot) as u32);
        self.cfg_write(slot, id, 0x18, bar2(slot) as u32);
        self.cfg_write(slot, id, 0x1C, (bar2(slot) >> 32) as u32);
        self.cfg_write(slot, id, COMMAND, 0x6);
    }

    fn program_port(&mut self, id: FunctionId, low: (u64, u64), high: (u64, u64)) {
        let slot = if id == UPSTREAM { 0 } else { id.device() };
        let pair =
            |(base, limit): (u64, u64)| (limit as u32 >> 16 & 0xFFF0) << 16 | (base as u32 >> 16 & 0xFFF0);
        self.cfg_write(slot, id, 0x20, pair(low));
        self.cfg_write(slot, id, 0x24, pair(high));
        self.cfg_write(slot, id, 0x28, (high.0 >> 32) as u32);
        self.cfg_write(slot, id, 0x2C, (high.1 >> 32) as u32);
        self.cfg_write(slot, id, COMMAND, 0x6);
    }

    fn tag(&mut self) -> u16 {
        self.next_tag = (self.next_tag + 1) % 256;
        self.next_tag
    }

    /// Sends a TLP down the stream of `slot`, as bytes.
    pub fn send(&mut self, slot: u8, header: &Header, data: &[u8]) {
        let mut bytes = vec![0; 16];
        let length = header.emit(&mut bytes).unwrap();
        bytes.truncate(length);
        bytes.extend_from_slice(data);
        self.hierarchy.receive(self.now_ns, stream(slot), &bytes);
    }

    /// Polls until nothing happens any more, or 1000 times.
    pub fn settle(&mut self) {
        for _ in 0..1000 {
            if !self.hierarchy.poll(self.now_ns, &mut self.host) {
                return;
            }
        }
    }

    /// Lets `slot`'s Function do something.
    pub fn act(&mut self, slot: u8, act: Act) {
        self.scratch[slot as usize].act(act);
        self.settle();
    }

    /// A Configuration Request; the answer is what came back for it.
    pub fn cfg(
        &mut self,
        slot: u8,
        target: FunctionId,
        register: u16,
        write: Option<(u32, u8)>,
    ) -> (CplStatus, u32) {
        let kind = if target.bus() == 1 { CfgType::Type0 } else { CfgType::Type1 };
        let tag = self.tag();
        let first_be = write.map_or(0xF, |(_, enables)| enables);
        let request = CfgRequest { kind, requester: ROOT, tag, target, register, first_be };
        match write {
            Some((value, _)) => self.send(slot, &Header::new(Op::CfgWrite(request)), &value.to_le_bytes()),
            None => self.send(slot, &Header::new(Op::CfgRead(request)), &[]),
        }
        self.settle();
        let (completion, data) = self.host.take_completion(stream(slot), tag).expect("a Completion");
        (completion.status, data.first_chunk().map_or(u32::MAX, |data| u32::from_le_bytes(*data)))
    }

    pub fn cfg_read(&mut self, slot: u8, target: FunctionId, register: u16) -> u32 {
        let (status, value) = self.cfg(slot, target, register, None);
        assert_eq!(status, CplStatus::Success);
        value
    }

    pub fn cfg_write(&mut self, slot: u8, target: FunctionId, register: u16, value: u32) {
        assert_eq!(self.cfg(slot, target, register, Some((value, 0xF))).0, CplStatus::Success);
    }

    /// Register of the Function in slot 0.
    pub fn reg(&mut self, register: u16) -> u32 {
        self.cfg_read(0, function(0), register)
    }

    pub fn set_reg(&mut self, register: u16, value: u32) {
        self.cfg_write(0, function(0), register, value);
    }

    /// A Memory Write by the host.
    pub fn mem_write(&mut self, slot: u8, address: u64, data: &[u8]) {
        let request = MemRequest::covering(ROOT, 0, address, data.len()).unwrap();
        let mut whole = vec![0; request.data_bytes()];
        let lead = request.span().0;
        whole[lead..lead + data.len()].copy_from_slice(data);
        self.send(slot, &Header::new(Op::MemWrite(request)), &whole);
    }

    /// A Memory Read by the host: sends it, and returns its Tag.
    pub fn mem_read_begin(&mut self, slot: u8, address: u64, bytes: usize) -> u16 {
        let tag = self.tag();
        let request = MemRequest::covering(ROOT, tag, address, bytes).unwrap();
        self.send(slot, &Header::new(Op::MemRead(request)), &[]);
        tag
    }

    /// A Memory Read by the host, with all of its Completions put together.
    pub fn mem_read(&mut self, slot: u8, address: u64, bytes: usize) -> Result<Vec<u8>, CplStatus> {
        let tag = self.mem_read_begin(slot, address, bytes);
        self.settle();
        let mut data = Vec::new();
        while data.len() < bytes {
            let (completion, part) = self.host.take_completion(stream(slot), tag).expect("a Completion");
            if completion.status != CplStatus::Success {
                return Err(completion.status);
            }
            assert_eq!(completion.byte_count as usize, bytes - data.len());
            assert_eq!(u64::from(completion.lower_address), (address + data.len() as u64) & 0x7F);
            let lead = completion.lower_address as usize & 3;
            let count = (part.len() - lead).min(bytes - data.len());
            data.extend_from_slice(&part[lead..lead + count]);
        }
        Ok(data)
    }

    /// Answers a read of slot 0's Function with one Completion of `data`.
    pub fn complete(&mut self, request: &MemRequest, data: &[u8]) {
        let completion = completion(request, 0, data.len());
        let mut whole = vec![0; completion.length_dw as usize * 4];
        let lead = completion.lower_address as usize & 3;
        whole[lead..lead + data.len()].copy_from_slice(data);
        self.send(0, &Header::new(Op::Completion(completion)), &whole);
    }
}

/// The Completion that brings `bytes` bytes of `request` from `offset` on.
pub fn completion(request: &MemRequest, offset: usize, bytes: usize) -> Completion {
    let (lead, total) = request.span();
    let address = request.address + (lead + offset) as u64;
    Completion {
        completer: ROOT,
        status: CplStatus::Success,
        byte_count: (total - offset) as u16,
        requester: request.requester,
        tag: request.tag,
        lower_address: (address & 0x7F) as u8,
        length_dw: ((address as usize & 3) + bytes).div_ceil(4) as u16,
    }
}
