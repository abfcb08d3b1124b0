//! Two processes with their RNICs, the network between them, and a desk at each.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use etherslot_netio::Address;
use etherslot_rdma::{Memory, Trouble};
use etherslot_rnic::{Options, Rnic};
use etherslot_verbs::cm::{Binding, CmError, Connections, Event, Id, Kind, Setup};
use etherslot_verbs::place;
use etherslot_verbs::queue::Queue;
use etherslot_wire::NodeId;
use etherslot_wire::cm::{Says, Service, Space, Terms};
use etherslot_wire::rdmap::AtomicRequest;

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1000 * MS;
pub(crate) const PORT: u16 = 7471;
pub(crate) const SLOTS: [u8; 2] = [3, 200];

#[derive(Debug)]
struct NoMemory;

impl Memory for NoMemory {
    fn read(&mut self, _address: u64, _out: &mut [u8]) -> Result<(), Trouble> {
        Err(Trouble::Fault)
    }
    fn write(&mut self, _address: u64, _data: &[u8]) -> Result<(), Trouble> {
        Err(Trouble::Fault)
    }
    fn atomic(&mut self, _address: u64, _operation: &AtomicRequest) -> Result<u64, Trouble> {
        Err(Trouble::Fault)
    }
}

pub(crate) fn ip(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, 1 + side as u8)
}

fn address(side: usize) -> Address {
    Address::Udp(SocketAddr::V4(SocketAddrV4::new(ip(side), place::port(SLOTS[side]))))
}

/// The number of a QP of a side.
pub(crate) fn qp(side: usize, number: u16) -> u32 {
    place::number(SLOTS[side], etherslot_rdma::Qpn(number))
}

pub(crate) struct Side {
    pub(crate) rnic: Rnic<Address>,
    pub(crate) connections: Connections,
    pub(crate) events: Arc<Queue<Event>>,
    pub(crate) lost: u64,
}

impl Side {
    pub(crate) fn new(side: usize, seed: u64) -> Self {
        let engine = etherslot_rdma::Config {
            qps: 16,
            cqs: 16,
            srqs: 4,
            peers: 8,
            stags: 16,
            pages: 0,
            cqes: 64,
            blocks: 64,
            reads: 4,
            events: 16,
        };
        let session = etherslot_session::Config {
            node: NodeId([side as u8 + seed as u8; 16]),
            max_frame_bytes: 1400,
            dead_after_ns: 3 * SECOND,
            heartbeat_ns: SECOND / 2,
            ..etherslot_session::Config::default()
        };
        let seed = seed + side as u64;
        let connections = Connections::new(ip(side), SLOTS[side], seed);
        let rnic = Rnic::new(&Options { engine, session, seed }, |_| [0; 40]);
        Self { rnic, connections, events: Arc::new(Queue::new().unwrap()), lost: 0 }
    }
}

/// Two processes, of which 0 asks and 1 is asked, their network, and a desk at each.
pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) sides: [Side; 2],
    /// Who listens where.
    pub(crate) desk: HashMap<(Ipv4Addr, u16), u8>,
    /// Frames arrive, and desks answer.
    pub(crate) is_joined: bool,
}

impl World {
    pub(crate) fn new() -> Self {
        let sides = [Side::new(0, 1), Side::new(1, 1)];
        Self { now_ns: SECOND, sides, desk: HashMap::new(), is_joined: true }
    }

    /// Lets so much time pass.
    pub(crate) fn run(&mut self, ns: u64) {
        let until_ns = self.now_ns + ns;
        while self.now_ns < until_ns {
            self.now_ns += MS;
            for side in 0..2 {
                self.step(side);
            }
        }
    }

    pub(crate) fn step(&mut self, side: usize) {
        let (now_ns, is_joined) = (self.now_ns, self.is_joined);
        let (first, second) = self.sides.split_at_mut(1);
        let (this, other) =
            if side == 0 { (&mut first[0], &mut second[0]) } else { (&mut second[0], &mut first[0]) };
        while let Some((peer, bytes)) = this.rnic.next_message() {
            this.connections.message(now_ns, &this.rnic, peer, &bytes);
        }
        let lost = this.rnic.counters().peers_lost;
        if lost != std::mem::replace(&mut this.lost, lost) {
            this.connections.lose_peers(now_ns, &mut this.rnic);
        }
        this.connections.run(now_ns, &mut this.rnic);
        while let Some(question) = this.connections.next_question() {
            if is_joined {
                let slot = self.desk.get(&(question.ip, question.port));
                let says = slot.map_or(Says::Nobody, |&slot| Says::Slot(slot));
                this.connections.answer(now_ns, &mut this.rnic, question.serial, says);
            }
        }
        this.connections.run(now_ns, &mut this.rnic);
        let mut frames = Vec::new();
        this.rnic.transmit(now_ns, &mut NoMemory, &mut |to, some| {
            frames.extend(some.iter().map(|frame| (*to, frame.to_vec())));
            some.len()
        });
        for (to, frame) in frames {
            if is_joined && to == address(1 - side) {
                other.rnic.receive(now_ns, &address(side), &frame, &mut NoMemory);
            }
        }
    }

    pub(crate) fn create(&mut self, side: usize, space: Space, service: Service) -> Id {
        let Side { connections, events, .. } = &mut self.sides[side];
        let id = connections.create(Arc::clone(events), space, service).unwrap();
        connections.set_name(id, 1).unwrap();
        id
    }

    pub(crate) fn at(&mut self, side: usize) -> &mut Connections {
        &mut self.sides[side].connections
    }

    /// Somebody listens on side 1.
    pub(crate) fn listen(&mut self, space: Space, service: Service, backlog: i32) -> Id {
        let id = self.create(1, space, service);
        self.at(1).bind(id, Binding { ip: None, port: PORT }).unwrap();
        self.at(1).listen(id, backlog).unwrap();
        self.desk.insert((ip(1), PORT), SLOTS[1]);
        id
    }

    /// An id of side 0 that may connect.
    pub(crate) fn route(&mut self, space: Space, service: Service) -> Id {
        let id = self.create(0, space, service);
        self.at(0).resolve_address(id, None, SocketAddrV4::new(ip(1), PORT)).unwrap();
        self.at(0).resolve_route(id).unwrap();
        assert_eq!(self.take(0).kind, Kind::AddressResolved);
        assert_eq!(self.take(0).kind, Kind::RouteResolved);
        id
    }

    pub(crate) fn connect(&mut self, id: Id, service: Service, setup: Setup) -> Result<(), CmError> {
        let now_ns = self.now_ns;
        self.at(0).connect(now_ns, id, service, setup)
    }

    /// Side 0 asks, side 1 has heard it.
    pub(crate) fn ask(&mut self) -> (Id, Event) {
        let asking = self.route(Space::Tcp, Service::Rc);
        self.connect(asking, Service::Rc, setup(0)).unwrap();
        self.run(50 * MS);
        let event = self.take(1);
        assert_eq!(event.kind, Kind::ConnectRequest);
        self.at(1).set_name(event.id, 2).unwrap();
        (asking, event)
    }

    pub(crate) fn accept(&mut self, id: Id, setup: Setup) -> Result<(), CmError> {
        let now_ns = self.now_ns;
        self.at(1).accept(now_ns, id, setup)
    }

    /// Both are connected.
    pub(crate) fn join(&mut self) -> (Id, Id) {
        let (asking, event) = self.ask();
        self.accept(event.id, setup(1)).unwrap();
        self.run(10 * MS);
        assert_eq!(self.take(0).kind, Kind::ConnectResponse);
        self.at(0).establish(asking).unwrap();
        self.run(10 * MS);
        assert_eq!(self.take(1).kind, Kind::Established);
        (asking, event.id)
    }

    pub(crate) fn take(&mut self, side: usize) -> Event {
        self.sides[side].events.pop().expect("an event")
    }

    pub(crate) fn is_quiet(&self) -> bool {
        !self.sides.iter().any(|side| side.events.any(|_| true))
    }
}

pub(crate) fn setup(side: usize) -> Setup {
    let (responder_resources, initiator_depth) = (4 + side as u8, 8 + side as u8);
    let terms = Terms {
        qp: qp(side, 17),
        responder_resources,
        initiator_depth,
        retries: 7,
        rnr_retries: 6,
        ..Terms::default()
    };
    Setup { terms, private: vec![side as u8 + 1; 20] }
}
