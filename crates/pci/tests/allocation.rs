//! On the steady path, no TLP costs an allocation.

#[path = "support/mod.rs"]
mod support;

use etherslot_pci::TlpOut;
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::{Bus, Fault, Function, FunctionSpec, ResetKind};
use etherslot_pci::hierarchy::Hierarchy;
use etherslot_wire::tlp::{Completion, CplStatus, Header, MemRequest, Op};

use support::{ROOT, bar0};

/// A Function that reads and writes as fast as it can, and interrupts after each write.
struct Engine {
    register: [u8; 64],
    completed: usize,
    failed: usize,
}

impl Function for Engine {
    fn spec(&self) -> FunctionSpec {
        support::spec()
    }

    fn bar_read(&mut self, _bar: u8, _offset: u64, data: &mut [u8]) {
        data.fill(self.register[0]);
    }

    fn bar_write(&mut self, _bar: u8, _offset: u64, data: &[u8]) {
        let bytes = data.len().min(64);
        self.register[..bytes].copy_from_slice(&data[..bytes]);
    }

    fn read_completed(&mut self, _token: u64, _address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        match result {
            Ok(_) => self.completed += bytes,
            Err(_) => self.failed += bytes,
        }
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        let written = bus.write(0x1_0000_0000, &[1; 4096]);
        bus.interrupt(3);
        bus.set_intx(written != 0);
        written + bus.read(0x2_0000_0000, 4096, 0) != 0
    }

    fn reset(&mut self, _kind: ResetKind) {}
}

/// Keeps a fixed number of reads to answer.
struct Pipe {
    budget: usize,
    reads: [Option<MemRequest>; 64],
    tlps: usize,
}

impl TlpOut for Pipe {
    fn room(&mut self, _stream: u16) -> usize {
        if self.budget == 0 { 0 } else { 1400 }
    }

    fn send(&mut self, _stream: u16, header: &Header, _data: &[u8]) -> bool {
        self.budget -= 1;
        self.tlps += 1;
        if let Op::MemRead(request) = header.op
            && let Some(place) = self.reads.iter_mut().find(|place| place.is_none())
        {
            *place = Some(request);
        }
        true
    }
}

fn send(hierarchy: &mut Hierarchy, op: Op, data: &[u8]) {
    let mut bytes = [0; 16 + 4096];
    let length = Header::new(op).emit(&mut bytes).unwrap();
    bytes[length..length + data.len()].copy_from_slice(data);
    hierarchy.receive(1, 1, &bytes[..length + data.len()]);
}

/// One round: host writes and reads, the Function's own traffic, a timeout now and then.
fn round(hierarchy: &mut Hierarchy, pipe: &mut Pipe, now_ns: &mut u64) {
    pipe.budget = 30;
    send(hierarchy, Op::MemWrite(MemRequest::covering(ROOT, 0, bar0(0), 64).unwrap()), &[7; 64]);
    for (tag, bytes) in [(1, 4), (2, 4096)] {
        send(hierarchy, Op::MemRead(MemRequest::covering(ROOT, tag, bar0(0), bytes).unwrap()), &[]);
    }
    hierarchy.poll(*now_ns, pipe);
    for index in 0..pipe.reads.len() {
        let Some(request) = pipe.reads[index].take() else { continue };
        if request.tag == 5 {
            continue;
        }
        let (_, bytes) = request.span();
        let completion = Completion {
            completer: ROOT,
            status: CplStatus::Success,
            byte_count: bytes as u16,
            requester: request.requester,
            tag: request.tag,
            lower_address: (request.address & 0x7F) as u8,
            length_dw: request.length_dw,
        };
        send(hierarchy, Op::Completion(completion), &[3; 4096][..request.data_bytes()]);
    }
    *now_ns += 100_000;
}

#[test]
fn a_busy_endpoint_does_not_allocate() {
    let mut bench = support::Bench::new();
    let _ = bench.hierarchy.unplug(0);
    let engine = Engine { register: [0; 64], completed: 0, failed: 0 };
    let config = EndpointConfig { tags: 16, completion_timeout_ns: 1_000_000, quarantine_ns: 1_000_000 };
    let mut endpoint = Box::new(Endpoint::new(Box::new(engine), config));
    endpoint.attach(512, 512);
    bench.hierarchy.plug(0, 1, endpoint);
    bench.program_function(0);
    let (mut hierarchy, mut now_ns) = (bench.hierarchy, 1);
    let mut pipe = Pipe { budget: 0, reads: [None; 64], tlps: 0 };
    let measured = allocation_counter::measure(|| {
        for _ in 0..1000 {
            round(&mut hierarchy, &mut pipe, &mut now_ns);
        }
    });
    assert!(pipe.tlps > 20_000, "{} TLPs", pipe.tlps);
    let requester = *hierarchy.endpoint(0).unwrap().requester_counters();
    assert!(requester.timeouts > 10 && requester.requests > 5000, "{requester:?}");
    assert_eq!(measured.count_total, 0);
}
