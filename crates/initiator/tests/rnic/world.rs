//! Two boxes with an RNIC each, the initiator of each, a hub between all, in virtual time and one thread.

use etherslot_devices::rnic::{Config as RnicConfig, Frames, Rnic as Function, Sessions};
use etherslot_initiator::rnic::{Config, Outcome, Place, QpConfig, Rnic, Ticket};
use etherslot_netio::impair::{Impaired, Impairment};
use etherslot_netio::memory::{Hub, HubConfig, MemoryPort};
use etherslot_netio::{Address, Port};
use etherslot_node::{BoxLimits, BoxNode};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_rdma::{Access, Attributes, CqId, Cqe, Layout, Pd, PeerId, Qpn, Region, Service, Status};
use etherslot_session::Config as SessionConfig;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const ROUND_NS: u64 = 5_000;
pub(crate) const PD: Pd = Pd(3);
pub(crate) const PEER: PeerId = PeerId(0);

/// The Port of an RNIC.
struct Wire(Impaired<MemoryPort>);

impl Frames<Address> for Wire {
    fn receive(&mut self, take: &mut dyn FnMut(&Address, &[u8])) -> usize {
        self.0.receive(take)
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        self.0.send(to, frames)
    }
}

fn session(node: u8) -> SessionConfig {
    SessionConfig {
        node: NodeId([node; 16]),
        max_frame_bytes: if node < 8 { 9000 } else { 1500 },
        dead_after_ns: 300 * MS,
        ..SessionConfig::default()
    }
}

/// One side: the box and the program.
pub(crate) struct Side {
    pub(crate) rnic: Rnic<Address>,
    port: Impaired<MemoryPort>,
    io_box: Option<(BoxNode<Address>, Impaired<MemoryPort>)>,
    pub(crate) send_cq: CqId,
    pub(crate) receive_cq: CqId,
    pub(crate) qps: Vec<Qpn>,
    /// Memory of the program, and the region that is all of it.
    pub(crate) place: Place,
    pub(crate) stag: u32,
    pub(crate) outcomes: Vec<Outcome>,
}

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) sides: [Side; 2],
    hub: Hub,
    impairment: Impairment,
    lives: u64,
}

/// Bytes of the program's memory.
pub(crate) const BYTES: usize = 4 << 20;

impl World {
    fn start_box(&mut self, at: u32) {
        let hub = &self.hub;
        self.lives += 1;
        let seed = self.lives;
        let impairment = Impairment { seed, ..self.impairment };
        let port = |number| Impaired::new(hub.open(number).unwrap(), &impairment);
        let wire = Wire(port(4 + at));
        let peers = [Address::Memory(5 - at)];
        let sessions = Sessions::new(wire, &session(8 + at as u8), &peers, seed);
        let config = RnicConfig { qps: 16, cqs: 16, stags: 64, pages: 4096, ..RnicConfig::default() };
        let function = Function::new(config, Box::new(sessions)).unwrap();
        let endpoint = Box::new(Endpoint::new(Box::new(function), EndpointConfig::default()));
        let functions = vec![(Name::new("rnic").unwrap(), endpoint)];
        let node = BoxNode::new(&session(at as u8), BoxLimits::default(), seed, functions);
        self.sides[at as usize].io_box = Some((node, port(at)));
    }

    fn cold(impairment: &Impairment) -> Self {
        let hub = Hub::new(HubConfig { ports: 6, ..HubConfig::default() });
        let side = |at: u32| {
            let config = Config { memory_bytes: 16 << 20, interrupts: true };
            Side {
                rnic: Rnic::new(
                    session(2 + at as u8),
                    2 + u64::from(at),
                    Name::new("rnic").unwrap(),
                    Address::Memory(at),
                    config,
                ),
                port: Impaired::new(
                    hub.open(2 + at).unwrap(),
                    &Impairment { seed: 100 + u64::from(at), ..*impairment },
                ),
                io_box: None,
                send_cq: CqId(0),
                receive_cq: CqId(0),
                qps: Vec::new(),
                place: Place { address: 0, bytes: 0 },
                stag: 0,
                outcomes: Vec::new(),
            }
        };
        let sides = [side(0), side(1)];
        let mut world = Self { now_ns: MS, sides, hub, impairment: *impairment, lives: 10 };
        for at in 0..2 {
            world.start_box(at);
        }
        world.wait(|world| world.sides.iter().all(|side| side.rnic.is_ready()));
        for side in &mut world.sides {
            side.place = side.rnic.allocate(BYTES).unwrap();
        }
        world
    }

    /// With so many RC QPs of each side connected with each other.
    pub(crate) fn connected(qps: usize, impairment: &Impairment) -> Self {
        let mut world = Self::cold(impairment);
        world.make(qps);
        world
    }

    /// CQs, the region, the peer and the QPs.
    pub(crate) fn make(&mut self, qps: usize) {
        for side in &mut self.sides {
            side.set_up(qps);
        }
        self.connect();
    }

    pub(crate) fn connect(&mut self) {
        let numbers = [self.sides[1].qps.clone(), self.sides[0].qps.clone()];
        let mut tickets = Vec::new();
        for (at, (side, remote)) in self.sides.iter_mut().zip(numbers).enumerate() {
            for (qp, remote_qp) in side.qps.clone().into_iter().zip(remote) {
                let attributes = Attributes {
                    peer: PEER,
                    remote_qp,
                    stream: 1 + qp.0 % 8,
                    ord: 4,
                    ird: 4,
                    ..Attributes::default()
                };
                tickets.push((at, side.rnic.connect(qp, &attributes).unwrap()));
            }
        }
        for (at, ticket) in tickets {
            assert!(self.outcome(at, ticket), "connected");
        }
    }

    pub(crate) fn ready() -> Self {
        Self::connected(1, &Impairment::default())
    }

    pub(crate) fn kill_box(&mut self, at: usize) {
        self.sides[at].io_box = None;
    }

    pub(crate) fn revive_box(&mut self, at: usize) {
        self.start_box(at as u32);
    }

    /// Waits for an order; whether it was done.
    pub(crate) fn outcome(&mut self, at: usize, ticket: Ticket) -> bool {
        let mut done = None;
        self.wait(|world| {
            let outcomes = &mut world.sides[at].outcomes;
            let found = outcomes.iter().position(|outcome| outcome.ticket == ticket);
            done = found.map(|found| outcomes.swap_remove(found).done);
            done.is_some()
        });
        done.unwrap()
    }

    pub(crate) fn step(&mut self) {
        self.now_ns += ROUND_NS;
        let now_ns = self.now_ns;
        for side in &mut self.sides {
            let Side { rnic, port, io_box, outcomes, .. } = side;
            rnic.transmit(now_ns, &mut |to, frames| port.send(to, frames));
            if let Some((node, port)) = io_box {
                port.tick(now_ns);
                while port.receive(&mut |from, frame| node.receive(now_ns, from, frame)) != 0 {}
                for _ in 0..64 {
                    if !node.poll(now_ns) {
                        break;
                    }
                }
                node.transmit(now_ns, &mut |to, frames| port.send(to, frames));
            }
            port.tick(now_ns);
            while port.receive(&mut |from, frame| rnic.receive(now_ns, from, frame)) != 0 {}
            rnic.poll(now_ns);
            outcomes.extend(std::iter::from_fn(|| rnic.next_outcome()));
        }
    }

    /// Steps until it is so; not for ever.
    pub(crate) fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until_ns = self.now_ns + 10_000 * MS;
        while !is_so(self) {
            let failures = [self.sides[0].rnic.failure(), self.sides[1].rnic.failure()];
            assert!(self.now_ns < until_ns, "it does not come about: {failures:?}");
            self.step();
        }
    }

    /// Waits for so many completions of a CQ.
    pub(crate) fn completions(&mut self, at: usize, cq: CqId, count: usize) -> Vec<Cqe> {
        let mut all = Vec::new();
        self.wait(|world| {
            all.extend(world.sides[at].poll(cq));
            all.len() >= count
        });
        assert_eq!(all.len(), count);
        all
    }

    /// Waits for one completion of a send.
    pub(crate) fn sent(&mut self, at: usize) -> (u64, Status) {
        let cq = self.sides[at].send_cq;
        let cqe = self.completions(at, cq, 1)[0];
        (cqe.id, cqe.status)
    }
}

impl Side {
    pub(crate) fn set_up(&mut self, qps: usize) {
        let rnic = &mut self.rnic;
        self.send_cq = rnic.create_cq(256, 1).unwrap();
        self.receive_cq = rnic.create_cq(256, 2).unwrap();
        let region = self.region(Access::ALL, 0x5A);
        self.stag = self.rnic.register(&region).unwrap();
        self.rnic.set_peer(PEER, 0, &[0; 40]).unwrap();
        let config = self.qp_config(Service::Rc);
        self.qps = (0..qps).map(|_| self.rnic.create_qp(&config).unwrap()).collect();
    }

    pub(crate) fn qp_config(&self, service: Service) -> QpConfig {
        QpConfig {
            service,
            pd: PD,
            send_cq: self.send_cq,
            receive_cq: self.receive_cq,
            srq: None,
            sq_blocks: 64,
            rq_blocks: 64,
            signal_all: true,
        }
    }

    /// All of the program's memory; its TOs are the device's addresses.
    pub(crate) fn region(&self, access: Access, key: u8) -> Region<'static> {
        Region {
            pd: PD,
            access,
            base: self.place.address,
            length: self.place.bytes as u64,
            key,
            layout: Layout::Direct { address: self.place.address },
        }
    }

    /// TO of a byte of the program's memory.
    pub(crate) fn to(&self, offset: usize) -> u64 {
        self.place.address + offset as u64
    }

    pub(crate) fn bytes(&self, offset: usize, length: usize) -> &[u8] {
        &self.rnic.memory(self.place)[offset..offset + length]
    }

    pub(crate) fn fill(&mut self, offset: usize, length: usize, seed: u8) {
        let place = self.place;
        for (at, byte) in self.rnic.memory_mut(place)[offset..offset + length].iter_mut().enumerate() {
            *byte = (at as u8).wrapping_mul(7).wrapping_add(seed) ^ (at >> 8) as u8;
        }
    }

    pub(crate) fn poll(&mut self, cq: CqId) -> Vec<Cqe> {
        let mut all = Vec::new();
        let mut one = [Cqe::parse(&[0; 32]).unwrap(); 4];
        loop {
            let count = self.rnic.poll_cq(cq, &mut one);
            all.extend_from_slice(&one[..count]);
            if count < one.len() {
                return all;
            }
        }
    }
}
