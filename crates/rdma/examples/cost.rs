//! What an operation costs: nanoseconds of both engines together, without any session.
//!
//! `cargo run --release -p etherslot-rdma --example cost [ROUNDS]`; under callgrind the instructions of one kind by
//! `cost ROUNDS KIND`. The memory is an array, the wire hands segments over in place.

use std::time::Instant;

use etherslot_rdma::{
    Access, Attributes, Config, CqId, Cqe, Done, Engine, Init, Layout, Memory, Pd, PeerId, Qpn, ReceiveWork,
    Region, SendOpcode, SendWork, Service, Sge, State, Status, Trouble, Wire, flag,
};
use etherslot_wire::rdmap::AtomicRequest;

const BYTES: usize = 1 << 20;
const PEER: PeerId = PeerId(0);

struct Ram(Vec<u8>);

impl Ram {
    fn at(&mut self, address: u64, length: usize) -> Result<&mut [u8], Trouble> {
        let start = address as usize;
        self.0.get_mut(start..).and_then(|rest| rest.get_mut(..length)).ok_or(Trouble::Fault)
    }
}

impl Memory for Ram {
    #[inline]
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble> {
        out.copy_from_slice(self.at(address, out.len())?);
        Ok(())
    }

    #[inline]
    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble> {
        self.at(address, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, address: u64, operation: &AtomicRequest) -> Result<u64, Trouble> {
        let place = self.at(address, 8)?;
        let before = u64::from_le_bytes(place.try_into().map_err(|_| Trouble::Fault)?);
        self.at(address, 8)?.copy_from_slice(&operation.apply(before).to_le_bytes());
        Ok(before)
    }
}

/// Frames' worth of segments, one behind the other.
struct Cable {
    bytes: Vec<u8>,
    segments: Vec<(usize, usize)>,
    longest: usize,
}

impl Wire for Cable {
    #[inline]
    fn room(&mut self, _peer: PeerId, _stream: u16, _want: usize) -> usize {
        if self.segments.len() < self.segments.capacity() { self.longest } else { 0 }
    }

    #[inline]
    fn send(
        &mut self,
        _peer: PeerId,
        _stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        let start = self.segments.last().map_or(0, |&(start, length)| start + length);
        let total = head.len() + data_len;
        let out = &mut self.bytes[start..start + total];
        out[..head.len()].copy_from_slice(head);
        let filled = fill(&mut out[head.len()..]);
        if filled {
            self.segments.push((start, total));
        }
        filled
    }
}

struct Node {
    engine: Engine,
    ram: Ram,
    cable: Cable,
    cq: CqId,
    qp: Qpn,
    stag: u32,
}

impl Node {
    fn new() -> Self {
        let mut engine = Engine::new(&Config { qps: 16, ..Config::default() });
        let cq = engine.create_cq(1024).expect("a CQ");
        let layout = Layout::Direct { address: 0 };
        let region = Region { pd: Pd(0), access: Access::ALL, base: 0, length: BYTES as u64, key: 1, layout };
        let stag = engine.register(&region).expect("a region");
        let init = Init {
            service: Service::Rc,
            pd: Pd(0),
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            sq_blocks: 1024,
            rq_blocks: 1024,
            signal_all: false,
        };
        let qp = engine.create_qp(&init).expect("a QP");
        let cable = Cable { bytes: vec![0; 64 * 9216], segments: Vec::with_capacity(64), longest: 1396 };
        Self { engine, ram: Ram(vec![7; BYTES]), cable, cq, qp, stag }
    }

    fn transmit(&mut self) {
        self.engine.transmit(1, &mut self.ram, &mut self.cable);
    }

    fn poll(&mut self) -> usize {
        let empty = Cqe {
            id: 0,
            status: Status::Success,
            done: Done::Received,
            qp: Qpn(0),
            bytes: 0,
            immediate: None,
            invalidated: None,
            source: None,
            cause: None,
            is_solicited: false,
        };
        let mut cqes = [empty; 4];
        let mut all = 0;
        loop {
            let count = self.engine.poll(self.cq, &mut cqes);
            assert!(cqes[..count].iter().all(|cqe| cqe.status == Status::Success));
            all += count;
            if count < cqes.len() {
                return all;
            }
        }
    }
}

fn carry(from: &mut Node, to: &mut Node) {
    for &(start, length) in &from.cable.segments {
        to.engine.receive(1, PEER, &from.cable.bytes[start..start + length], &mut to.ram);
    }
    from.cable.segments.clear();
}

/// Runs `rounds` bursts of `burst` operations; nanoseconds of one.
fn measure(rounds: u64, burst: u64, post: impl Fn(&mut Node, u32), receives: bool) -> f64 {
    let (mut one, mut other) = (Node::new(), Node::new());
    let qps = [one.qp, other.qp];
    for (node, remote_qp) in [(&mut one, qps[1]), (&mut other, qps[0])] {
        let attributes = Attributes { peer: PEER, remote_qp, ..Attributes::default() };
        for state in [State::Init, State::Rtr, State::Rts] {
            node.engine.modify_qp(node.qp, state, Some(&attributes)).expect("it may");
        }
    }
    let mut receive = [0; ReceiveWork::MAX_BYTES];
    let sge = Sge { to: 0x8000, stag: other.stag, length: 4096 };
    let bytes = ReceiveWork { id: 1, sges: &[sge] }.emit(&mut receive).expect("a WQE");
    let began = Instant::now();
    for _ in 0..rounds {
        let mut done = 0;
        for _ in 0..burst {
            if receives {
                other.engine.post_receive(other.qp, &receive[..bytes]).expect("room");
            }
            post(&mut one, other.stag);
        }
        while done < burst as usize {
            one.transmit();
            carry(&mut one, &mut other);
            other.transmit();
            carry(&mut other, &mut one);
            done += one.poll();
        }
        if receives {
            other.poll();
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
    let each = began.elapsed().as_nanos() as f64 / (rounds * burst) as f64;
    each
}

/// Registers a region of so many bytes, page list and all, and removes it; nanoseconds of the registration.
fn register(bytes: u64, rounds: u32) -> f64 {
    let mut engine = Engine::new(&Config::default());
    let mut spent_ns = 0;
    for _ in 0..rounds {
        let began = Instant::now();
        let pages: Vec<u64> = (0..bytes / 4096).map(|page| 0x7F00_0000_0000 + page * 4096).collect();
        let layout = Layout::Pages { shift: 12, offset: 0, pages: &pages };
        let region = Region { pd: Pd(0), access: Access::ALL, base: 0, length: bytes, key: 1, layout };
        let stag = engine.register(&region).expect("a region");
        spent_ns += began.elapsed().as_nanos();
        engine.deregister(stag).expect("it is there");
    }
    #[expect(clippy::cast_precision_loss, reason = "a few digits are shown")]
    let each = spent_ns as f64 / f64::from(rounds);
    each
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let rounds = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(200_000);
    let only = arguments.next();
    let send = |node: &mut Node, work: &SendWork<'_>| {
        let mut wqe = [0; SendWork::MAX_BYTES];
        let bytes = work.emit(&mut wqe).expect("a WQE");
        node.engine.post_send(node.qp, &wqe[..bytes]).expect("room");
    };
    let inline = [3_u8; 64];
    let base = |opcode| SendWork { opcode, flags: flag::SIGNALED, remote_to: 0x4000, ..SendWork::default() };
    let sge = |node: &Node, length| Sge { to: 0x1000, stag: node.stag, length };
    type Post<'a> = Box<dyn Fn(&mut Node, u32) + 'a>;
    let prepared = std::cell::Cell::new(false);
    let kinds: [(&str, u64, bool, Post<'_>); 8] = [
        (
            "send-64-inline",
            1,
            true,
            Box::new(|node, _| {
                send(node, &SendWork { inline: Some(&inline), ..base(SendOpcode::Send) });
            }),
        ),
        (
            "send-64-inline-burst-16",
            16,
            true,
            Box::new(|node, _| {
                send(node, &SendWork { inline: Some(&inline), ..base(SendOpcode::Send) });
            }),
        ),
        (
            "write-64-inline",
            1,
            false,
            Box::new(|node, remote_stag| {
                send(node, &SendWork { inline: Some(&inline), remote_stag, ..base(SendOpcode::Write) });
            }),
        ),
        (
            "write-8-inline",
            1,
            false,
            Box::new(|node, remote_stag| {
                send(node, &SendWork { inline: Some(&inline[..8]), remote_stag, ..base(SendOpcode::Write) });
            }),
        ),
        (
            "write-8-aotf",
            1,
            false,
            Box::new(|node, remote_stag| {
                if !prepared.replace(true) {
                    let work =
                        SendWork { inline: Some(&inline[..8]), remote_stag, ..base(SendOpcode::Write) };
                    let mut wqe = [0; 64];
                    work.emit(&mut wqe).expect("a WQE");
                    node.engine.prepare(node.qp, 0, &wqe).expect("a header");
                }
                node.engine.store(node.qp, 0, 7).expect("room");
            }),
        ),
        (
            "write-4096",
            1,
            false,
            Box::new(|node, remote_stag| {
                let sges = [sge(node, 4096)];
                send(node, &SendWork { sges: &sges, remote_stag, ..base(SendOpcode::Write) });
            }),
        ),
        (
            "read-4096",
            1,
            false,
            Box::new(|node, remote_stag| {
                let sges = [sge(node, 4096)];
                send(node, &SendWork { sges: &sges, remote_stag, ..base(SendOpcode::Read) });
            }),
        ),
        (
            "fetch-add",
            1,
            false,
            Box::new(|node, remote_stag| {
                let sges = [sge(node, 8)];
                send(node, &SendWork { sges: &sges, remote_stag, ..base(SendOpcode::FetchAdd) });
            }),
        ),
    ];
    if only.is_none() {
        for (name, bytes, rounds) in [
            ("register-4-KiB", 4096, 10_000),
            ("register-1-MiB", 1 << 20, 1000),
            ("register-1-GiB", 1 << 30, 5),
        ] {
            println!("{name} {:.0} ns", register(bytes, rounds));
        }
    }
    for (name, burst, receives, post) in &kinds {
        if only.as_ref().is_none_or(|only| only == name) {
            println!("{name} {:.0} ns", measure(rounds / burst, *burst, post, *receives));
        }
    }
}
