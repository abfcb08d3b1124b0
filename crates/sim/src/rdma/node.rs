//! One side: an engine, its memory, its session, and the QPs.

use etherslot_rdma::{
    Access, Attributes, Config, CqId, Engine, Init, Layout, Memory, Pd, PeerId, Qpn, Region, Service, SrqId,
    State, Trouble,
};
use etherslot_rnic::Link;
use etherslot_session::{Deliver, Session};
use etherslot_wire::rdmap::AtomicRequest;
use etherslot_wire::record::Kind;

/// Bytes of memory of a side.
pub(crate) const BYTES: usize = 8 << 20;
/// RC QPs of a side; one of datagrams comes behind them.
pub(crate) const CONNECTED: usize = 4;
/// The last of these share a receive queue, from this one on.
pub(crate) const SHARING: usize = 2;
pub(crate) const PEER: PeerId = PeerId(0);
const PD: Pd = Pd(1);
/// Of datagrams.
pub(crate) const Q_KEY: u32 = 0x1234_5678;

/// Memory, addresses from 0.
pub(crate) struct Ram(pub(crate) Vec<u8>);

impl Ram {
    fn at(&mut self, address: u64, length: usize) -> Result<&mut [u8], Trouble> {
        let start = usize::try_from(address).map_err(|_| Trouble::Fault)?;
        self.0.get_mut(start..).and_then(|rest| rest.get_mut(..length)).ok_or(Trouble::Fault)
    }
}

impl Memory for Ram {
    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble> {
        out.copy_from_slice(self.at(address, out.len())?);
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble> {
        self.at(address, data.len())?.copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, address: u64, operation: &AtomicRequest) -> Result<u64, Trouble> {
        let place = self.at(address, 8)?;
        let before = u64::from_le_bytes((&*place).try_into().map_err(|_| Trouble::Fault)?);
        place.copy_from_slice(&operation.apply(before).to_le_bytes());
        Ok(before)
    }
}

/// One side.
pub(crate) struct Node {
    pub(crate) engine: Engine,
    pub(crate) ram: Ram,
    pub(crate) session: Option<Session>,
    pub(crate) qps: Vec<Qpn>,
    pub(crate) send_cq: CqId,
    pub(crate) receive_cq: CqId,
    pub(crate) srq: Option<SrqId>,
    pub(crate) stag: u32,
    /// CQEs that were consumed, of sends and of receives.
    pub(crate) consumed: [u32; 2],
    scratch: Vec<u8>,
}

/// Hands DDP records to the engine.
struct Ddp<'a> {
    engine: &'a mut Engine,
    ram: &'a mut Ram,
    now_ns: u64,
    strays: u64,
}

impl Deliver for Ddp<'_> {
    fn record(&mut self, kind: Kind, _stream: u16, payload: &[u8]) {
        if kind == Kind::Ddp {
            self.engine.receive(self.now_ns, PEER, payload, self.ram);
        } else {
            self.strays += 1;
        }
    }
}

impl Node {
    /// A side whose memory is split into pages, which lie in it in another order.
    pub(crate) fn new() -> Self {
        let config = Config {
            qps: 16,
            cqs: 4,
            srqs: 1,
            peers: 1,
            stags: 8,
            pages: 4096,
            cqes: 4096,
            ..Config::default()
        };
        let mut engine = Engine::new(&config);
        let create = |engine: &mut Engine| engine.create_cq(4096).expect("a CQ");
        let (send_cq, receive_cq) = (create(&mut engine), create(&mut engine));
        let pages: Vec<u64> = (0..BYTES as u64 / 4096).map(|page| (page ^ 1) * 4096).collect();
        let region = Region {
            pd: PD,
            access: Access::ALL,
            base: 0,
            length: BYTES as u64,
            key: 0x21,
            layout: Layout::Pages { shift: 12, offset: 0, pages: &pages },
        };
        let stag = engine.register(&region).expect("a region");
        Self {
            engine,
            ram: Ram(vec![0; BYTES]),
            session: None,
            qps: Vec::new(),
            send_cq,
            receive_cq,
            srq: None,
            stag,
            consumed: [0; 2],
            scratch: Vec::new(),
        }
    }

    /// Where a TO of the region is in memory.
    pub(crate) fn address(to: u64) -> usize {
        (to ^ 4096) as usize
    }

    /// Bytes of the region.
    pub(crate) fn bytes(&self, to: u64, length: usize) -> Vec<u8> {
        (to..to + length as u64).map(|to| self.ram.0[Self::address(to)]).collect()
    }

    /// Writes bytes of the region, as the program does.
    pub(crate) fn fill(&mut self, to: u64, data: &[u8]) {
        for (at, &byte) in data.iter().enumerate() {
            self.ram.0[Self::address(to + at as u64)] = byte;
        }
    }

    /// New QPs take the place of the old ones.
    pub(crate) fn create_qps(&mut self) {
        for qp in self.qps.drain(..) {
            self.engine.destroy_qp(qp).expect("it is there");
        }
        // What is left in a shared queue is not flushed: it goes with it.
        if let Some(srq) = self.srq.take() {
            self.engine.destroy_srq(srq).expect("no QP has it");
        }
        self.srq = Some(self.engine.create_srq(PD, 64).expect("an SRQ"));
        for at in 0..=CONNECTED {
            let init = Init {
                service: if at == CONNECTED { Service::Ud } else { Service::Rc },
                pd: PD,
                send_cq: self.send_cq,
                receive_cq: self.receive_cq,
                srq: self.srq.filter(|_| (SHARING..CONNECTED).contains(&at)),
                sq_blocks: 256,
                rq_blocks: 64,
                signal_all: true,
            };
            self.qps.push(self.engine.create_qp(&init).expect("a QP"));
        }
    }

    pub(crate) fn connect(&mut self, remote: &[Qpn]) {
        for (at, (&qp, &remote_qp)) in self.qps.iter().zip(remote).enumerate() {
            let attributes = Attributes {
                peer: PEER,
                remote_qp,
                stream: 1 + at as u16,
                ord: 3,
                ird: 3,
                rnr_wait_us: 200,
                // Often, so that questions meet everything else.
                question_us: 300,
                q_key: Q_KEY,
                ..Attributes::default()
            };
            for state in [State::Init, State::Rtr, State::Rts] {
                self.engine.modify_qp(qp, state, Some(&attributes)).expect("it may");
            }
        }
    }

    /// Takes a frame that is the session's; how many records were for nobody.
    pub(crate) fn take(&mut self, now_ns: u64, header: &etherslot_wire::frame::Header, body: &[u8]) -> u64 {
        let Some(session) = &mut self.session else { return 0 };
        let mut deliver = Ddp { engine: &mut self.engine, ram: &mut self.ram, now_ns, strays: 0 };
        session.handle_frame(now_ns, header, body, &mut deliver);
        deliver.strays
    }

    /// Timers, then everything that can be sent; the frames.
    pub(crate) fn step(&mut self, now_ns: u64, send: &mut dyn FnMut(&[u8])) {
        if let Some(session) = &mut self.session
            && session.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns)
        {
            session.handle_timeout(now_ns);
        }
        self.engine.handle_timeout(now_ns);
        let mut wire = Link { session: self.session.as_mut(), scratch: &mut self.scratch };
        self.engine.transmit(now_ns, &mut self.ram, &mut wire);
        if let Some(session) = &mut self.session {
            session.transmit(now_ns, &mut |frames| {
                for frame in frames {
                    send(frame);
                }
                frames.len()
            });
        }
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let session = self.session.as_ref().and_then(Session::deadline_ns);
        session.into_iter().chain(self.engine.deadline_ns()).min()
    }
}
