//! Two engines and a cable between them that loses nothing, in virtual time.
#![allow(dead_code)]

use std::collections::VecDeque;

use etherslot_rdma::{
    Access, Attributes, Config, CqId, Cqe, Engine, Init, Layout, Memory, Pd, PeerId, Qpn, ReceiveWork,
    Region, SendOpcode, SendWork, Service, Sge, State, Trouble, Wire, flag,
};
use etherslot_wire::rdmap::AtomicRequest;

/// Bytes of memory of a node.
pub(crate) const BYTES: usize = 1 << 20;
/// The PD of all QPs.
pub(crate) const PD: Pd = Pd(3);

/// A node's memory, addresses from 0.
pub(crate) struct Ram {
    pub(crate) bytes: Vec<u8>,
    /// Reads are not here yet.
    pub(crate) is_pending: bool,
    /// Atomics done.
    pub(crate) atomics: u32,
}

impl Ram {
    fn at(&mut self, address: u64, length: usize) -> Result<&mut [u8], Trouble> {
        let start = usize::try_from(address).map_err(|_| Trouble::Fault)?;
        self.bytes.get_mut(start..).and_then(|rest| rest.get_mut(..length)).ok_or(Trouble::Fault)
    }
}

impl Memory for Ram {
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble> {
        if self.is_pending {
            return Err(Trouble::Pending);
        }
        out.copy_from_slice(self.at(address, out.len())?);
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble> {
        self.at(address, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, address: u64, operation: &AtomicRequest) -> Result<u64, Trouble> {
        if self.is_pending {
            return Err(Trouble::Pending);
        }
        let place = self.at(address, 8)?;
        let before = u64::from_le_bytes((&*place).try_into().unwrap());
        place.copy_from_slice(&operation.apply(before).to_le_bytes());
        self.atomics += 1;
        Ok(before)
    }
}

/// What a node has sent.
pub(crate) struct Cable {
    pub(crate) sent: VecDeque<(PeerId, Vec<u8>)>,
    /// The longest segment.
    pub(crate) longest: usize,
    /// Segments that fit.
    pub(crate) most: usize,
}

impl Wire for Cable {
    fn room(&mut self, _peer: PeerId, _stream: u16, _want: usize) -> usize {
        if self.sent.len() < self.most { self.longest } else { 0 }
    }

    fn send(
        &mut self,
        peer: PeerId,
        _stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        assert!(head.len() + data_len <= self.longest, "{} bytes", head.len() + data_len);
        let mut segment = head.to_vec();
        segment.resize(head.len() + data_len, 0xEE);
        let filled = fill(&mut segment[head.len()..]);
        if filled {
            self.sent.push_back((peer, segment));
        }
        filled
    }
}

/// One side.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) ram: Ram,
    pub(crate) cable: Cable,
    pub(crate) send_cq: CqId,
    pub(crate) receive_cq: CqId,
    pub(crate) qp: Qpn,
    /// All of its memory, all rights.
    pub(crate) all: u32,
}

/// The peer of each node.
pub(crate) const PEER: PeerId = PeerId(5);

impl Node {
    pub(crate) fn new(service: Service) -> Self {
        let config =
            Config { qps: 16, cqs: 16, srqs: 4, stags: 64, pages: 1024, reads: 8, ..Config::default() };
        let mut engine = Engine::new(&config);
        let send_cq = engine.create_cq(256).unwrap();
        let receive_cq = engine.create_cq(256).unwrap();
        let bytes = (0..BYTES).map(|at| (at * 7 + at / 256) as u8).collect();
        let all = engine
            .register(&Region {
                pd: PD,
                access: Access::ALL,
                base: 0,
                length: BYTES as u64,
                key: 0x5A,
                layout: Layout::Direct { address: 0 },
            })
            .unwrap();
        let init = Self::init(service, send_cq, receive_cq);
        let qp = engine.create_qp(&init).unwrap();
        Self {
            engine,
            ram: Ram { bytes, is_pending: false, atomics: 0 },
            cable: Cable { sent: VecDeque::new(), longest: 1396, most: usize::MAX },
            send_cq,
            receive_cq,
            qp,
            all,
        }
    }

    pub(crate) fn init(service: Service, send_cq: CqId, receive_cq: CqId) -> Init {
        Init {
            service,
            pd: PD,
            send_cq,
            receive_cq,
            srq: None,
            sq_blocks: 64,
            rq_blocks: 64,
            signal_all: false,
        }
    }

    pub(crate) fn connect(&mut self, attributes: &Attributes) {
        let qp = self.qp;
        self.engine.modify_qp(qp, State::Init, None).unwrap();
        self.engine.modify_qp(qp, State::Rtr, Some(attributes)).unwrap();
        self.engine.modify_qp(qp, State::Rts, None).unwrap();
    }

    pub(crate) fn sge(&self, to: u64, length: u32) -> Sge {
        Sge { to, stag: self.all, length }
    }

    pub(crate) fn post(&mut self, work: &SendWork<'_>) {
        let mut wqe = [0; SendWork::MAX_BYTES];
        let bytes = work.emit(&mut wqe).expect("a work request");
        self.engine.post_send(self.qp, &wqe[..bytes]).unwrap();
    }

    pub(crate) fn post_receive(&mut self, id: u64, sges: &[Sge]) {
        let mut wqe = [0; ReceiveWork::MAX_BYTES];
        let bytes = ReceiveWork { id, sges }.emit(&mut wqe).expect("a work request");
        self.engine.post_receive(self.qp, &wqe[..bytes]).unwrap();
    }

    fn poll(&mut self, cq: CqId) -> Vec<Cqe> {
        let mut all = Vec::new();
        loop {
            let nothing = etherslot_rdma::Status::Success;
            let empty = Cqe {
                id: 0,
                status: nothing,
                done: etherslot_rdma::Done::Received,
                qp: Qpn(0),
                bytes: 0,
                immediate: None,
                invalidated: None,
                source: None,
                cause: None,
                is_solicited: false,
            };
            let mut some = [empty; 4];
            let count = self.engine.poll(cq, &mut some);
            all.extend_from_slice(&some[..count]);
            if count == 0 {
                return all;
            }
        }
    }

    pub(crate) fn sent(&mut self) -> Vec<Cqe> {
        self.poll(self.send_cq)
    }

    pub(crate) fn received(&mut self) -> Vec<Cqe> {
        self.poll(self.receive_cq)
    }

    pub(crate) fn state(&self) -> State {
        self.engine.state(self.qp).unwrap()
    }
}

/// Both sides.
pub(crate) struct Pair {
    pub(crate) nodes: [Node; 2],
    pub(crate) now_ns: u64,
}

impl Pair {
    pub(crate) fn new(service: Service) -> Self {
        Self { nodes: [Node::new(service), Node::new(service)], now_ns: 1 }
    }

    pub(crate) fn connected(service: Service) -> Self {
        Self::with(service, |_, attributes| attributes)
    }

    pub(crate) fn with(service: Service, change: impl Fn(usize, Attributes) -> Attributes) -> Self {
        let mut pair = Self::new(service);
        for at in 0..2 {
            let attributes = pair.attributes(at);
            pair.nodes[at].connect(&change(at, attributes));
        }
        pair
    }

    pub(crate) fn attributes(&self, at: usize) -> Attributes {
        Attributes {
            peer: PEER,
            remote_qp: self.nodes[1 - at].qp,
            ord: 4,
            ird: 4,
            q_key: 0x1111,
            // Numbers wrap on the way.
            first_sent: u32::MAX - 2 + at as u32,
            first_expected: u32::MAX - 1 - at as u32,
            ..Attributes::default()
        }
    }

    pub(crate) fn transmit(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        node.engine.transmit(self.now_ns, &mut node.ram, &mut node.cable);
    }

    /// Hands the oldest segment that a node has sent to the other.
    pub(crate) fn carry(&mut self, from: usize) -> bool {
        let Some((_, segment)) = self.nodes[from].cable.sent.pop_front() else { return false };
        let node = &mut self.nodes[1 - from];
        node.engine.receive(self.now_ns, PEER, &segment, &mut node.ram);
        true
    }

    /// Until nobody has anything to say; returns how many segments passed.
    pub(crate) fn settle(&mut self) -> usize {
        let mut passed = 0;
        loop {
            for at in 0..2 {
                self.transmit(at);
            }
            let mut any = false;
            for at in 0..2 {
                while self.carry(at) {
                    any = true;
                    passed += 1;
                    assert!(passed < 100_000, "they never stop");
                }
            }
            if !any {
                return passed;
            }
        }
    }

    /// Lets time pass until both have nothing to wait for, or that long.
    pub(crate) fn run(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        self.settle();
        while let Some(at_ns) = self.nodes.iter().filter_map(|node| node.engine.deadline_ns()).min() {
            if at_ns > end_ns {
                break;
            }
            self.now_ns = self.now_ns.max(at_ns);
            for node in &mut self.nodes {
                node.engine.handle_timeout(self.now_ns);
            }
            self.settle();
        }
        self.now_ns = end_ns;
    }
}

/// A work request that makes a CQE.
pub(crate) fn work(opcode: SendOpcode, id: u64) -> SendWork<'static> {
    SendWork { opcode, id, flags: flag::SIGNALED, ..SendWork::default() }
}
