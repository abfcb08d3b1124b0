//! A hostile peer and a hostile user of an RNIC.
//!
//! The steps are segments of any form, most of them near to good ones; WQEs of any bytes; states, regions, windows and
//! queues made and removed in the middle; sessions with little room, memory that is late, time that jumps. Whatever comes, nothing
//! panics or works without end; only memory that is registered for the right is touched; what is sent is well formed and
//! within its room; no work request completes twice. In the end a new pair of QPs serves.

#![no_main]

#[path = "rdma/surroundings.rs"]
mod surroundings;

use etherslot_fuzz::Input;
use etherslot_rdma::{
    Access, Attributes, Config, CqId, Engine, Init, Layout, Pd, PeerId, Qpn, ReceiveWork, Region, SendOpcode,
    SendWork, Service, Sge, SrqId, State, Status, flag,
};
use etherslot_wire::ddp::{Header, Opcode, Place};
use etherslot_wire::rdmap::{AtomicCode, AtomicRequest, ReadRequest};
use libfuzzer_sys::fuzz_target;
use surroundings::{BASE, BYTES, PAGES, Ram, Session};

const PD: Pd = Pd(1);
const PEER: PeerId = PeerId(1);
const STATES: [State; 7] =
    [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Error];

struct Rnic {
    engine: Engine,
    ram: Ram,
    session: Session,
    now_ns: u64,
    cqs: [CqId; 2],
    srq: SrqId,
    qps: Vec<Qpn>,
    stags: Vec<u32>,
    /// WQEs posted, and completions taken, of sends and of receives.
    posted: [u64; 2],
    done: [u64; 2],
}

fuzz_target!(|input: &[u8]| {
    let mut input = Input::new(input);
    let mut rnic = Rnic::new();
    while !input.is_empty() {
        rnic.act(&mut input);
        rnic.collect();
    }
    rnic.serves();
});

impl Rnic {
    fn new() -> Self {
        let config = Config {
            qps: 8,
            cqs: 4,
            srqs: 2,
            peers: 3,
            stags: 16,
            pages: 64,
            cqes: 512,
            blocks: 64,
            reads: 4,
            events: 16,
        };
        let mut engine = Engine::new(&config);
        let cqs = [engine.create_cq(512).expect("a CQ"), engine.create_cq(512).expect("a CQ")];
        let srq = engine.create_srq(PD, 16).expect("an SRQ");
        let mut rnic = Self {
            engine,
            ram: Ram::default(),
            session: Session::default(),
            now_ns: 1,
            cqs,
            srq,
            qps: Vec::new(),
            stags: Vec::new(),
            posted: [0; 2],
            done: [0; 2],
        };
        for (service, srq) in
            [(Service::Rc, None), (Service::Rc, Some(srq)), (Service::Uc, None), (Service::Ud, None)]
        {
            rnic.create(service, srq);
        }
        rnic.register(Access::ALL, false);
        rnic.register(Access::REMOTE_READ, true);
        let window = rnic.engine.allocate_window(PD).expect("a window");
        rnic.stags.push(window | 7);
        for at in 0..rnic.qps.len() {
            for state in [State::Init, State::Rtr, State::Rts] {
                rnic.go(at, state, 0);
            }
        }
        // The peer has begun.
        for at in 0..2 {
            let place = Place::Untagged { ulp: 1, qn: 4, msn: 0, mo: 0 };
            rnic.hand(&Header { qp: rnic.qps[at].0, is_last: true, opcode: Opcode::Synchronise, place }, &[]);
        }
        rnic
    }

    fn create(&mut self, service: Service, srq: Option<SrqId>) {
        let [send_cq, receive_cq] = self.cqs;
        let init = Init {
            service,
            pd: PD,
            send_cq,
            receive_cq,
            srq,
            sq_blocks: 16,
            rq_blocks: 16,
            signal_all: true,
        };
        if let Ok(qp) = self.engine.create_qp(&init) {
            self.qps.push(qp);
        }
    }

    fn go(&mut self, at: usize, state: State, number: u32) {
        let Some(&qp) = self.qps.get(at) else { return };
        let attributes = Attributes {
            peer: PEER,
            remote_qp: Qpn(40 + at as u16),
            ord: 2,
            ird: 3,
            rnr_retries: 2,
            first_sent: number,
            first_expected: number,
            q_key: 0x11,
            question_us: 1000,
            ..Attributes::default()
        };
        let _ = self.engine.modify_qp(qp, state, Some(&attributes));
    }

    fn register(&mut self, access: Access, paged: bool) {
        let layout = if paged {
            Layout::Pages { shift: 12, offset: 0x100, pages: &PAGES }
        } else {
            Layout::Direct { address: BASE }
        };
        let length = if paged { PAGES.len() as u64 * 4096 + 2048 } else { BYTES as u64 };
        let region = Region { pd: PD, access, base: BASE, length, key: 3, layout };
        if let Ok(stag) = self.engine.register(&region) {
            self.stags.push(stag);
        }
    }

    fn qp(&self, input: &mut Input<'_>) -> Qpn {
        if input.once_in(16) || self.qps.is_empty() { Qpn(input.u16()) } else { input.one_of(&self.qps) }
    }

    fn stag(&self, input: &mut Input<'_>) -> u32 {
        if input.once_in(8) || self.stags.is_empty() { input.u32() } else { input.one_of(&self.stags) }
    }

    fn to(input: &mut Input<'_>) -> u64 {
        match input.u8() % 4 {
            0 | 1 => BASE + u64::from(input.u16() % BYTES as u16),
            2 => BASE + u64::from(input.u8()) * 8,
            _ => input.number(),
        }
    }

    fn act(&mut self, input: &mut Input<'_>) {
        match input.u8() % 16 {
            0..=5 => self.hear(input),
            6 | 7 => self.send(input),
            8 => self.receive(input),
            9 => {
                self.now_ns += input.number() % 10_000_000_000;
                self.engine.handle_timeout(self.now_ns);
            }
            10 => {
                let at = input.below(self.qps.len().max(1));
                let state = input.one_of(&STATES);
                let number = if input.flag() { 0 } else { input.u32() };
                self.go(at, state, number);
            }
            11 => self.control(input),
            12 => {
                // Bytes without any form.
                let count = input.u8() as usize;
                let segment = input.bytes(count).to_vec();
                self.engine.receive(self.now_ns, PEER, &segment, &mut self.ram);
            }
            13 => {
                let form = input.u8();
                self.ram.is_pending = form & 1 != 0;
                self.session.longest = if form & 2 != 0 { 16 + (form >> 2) as usize } else { 1396 };
            }
            _ => self.transmit(input.u8()),
        }
    }

    fn transmit(&mut self, room: u8) {
        self.session.room = room as usize;
        self.engine.transmit(self.now_ns, &mut self.ram, &mut self.session);
    }

    /// A segment that is near to a good one.
    fn hear(&mut self, input: &mut Input<'_>) {
        let qp = self.qp(input);
        let form = input.u8();
        let codes = [
            Opcode::Write,
            Opcode::ReadRequest,
            Opcode::ReadResponse,
            Opcode::Send,
            Opcode::SendInvalidate,
            Opcode::SendSolicited,
            Opcode::Terminate,
            Opcode::Immediate,
            Opcode::AtomicRequest,
            Opcode::AtomicResponse,
            Opcode::Synchronise,
            Opcode::Acknowledge,
            Opcode::SendImmediate,
        ];
        let opcode = input.one_of(&codes);
        let small = |input: &mut Input<'_>| {
            if input.once_in(8) { input.u32() } else { u32::from(input.u8() % 8) }
        };
        let place = match opcode.queue() {
            None if opcode == Opcode::ReadResponse => {
                let sink = 0xF000_0000 | u32::from(input.u8()) << 8 | u32::from(input.u8() & 3);
                Place::Tagged { stag: sink, to: u64::from(small(input)) * 8 }
            }
            None => Place::Tagged { stag: self.stag(input), to: Self::to(input) },
            Some(qn) => {
                let ulp = if opcode == Opcode::SendInvalidate { self.stag(input) } else { small(input) };
                Place::Untagged {
                    ulp,
                    qn,
                    msn: small(input),
                    mo: if form & 2 != 0 { 0 } else { small(input) },
                }
            }
        };
        let mut body = [0; 64];
        let body: &[u8] = match opcode {
            Opcode::ReadRequest => {
                let request = ReadRequest {
                    sink_stag: input.u32(),
                    sink_to: 0,
                    length: input.number() as u32,
                    source_stag: self.stag(input),
                    source_to: Self::to(input),
                };
                let length = request.emit(&mut body).unwrap_or(0);
                &body[..length]
            }
            Opcode::AtomicRequest => {
                let code = if form & 4 != 0 { AtomicCode::FetchAdd } else { AtomicCode::CompareSwap };
                let (stag, to) = (self.stag(input), Self::to(input));
                let request = AtomicRequest {
                    code,
                    identifier: 1,
                    stag,
                    to,
                    operand: 2,
                    mask: 0,
                    compare: 0,
                    compare_mask: 0,
                };
                let length = request.emit(&mut body).unwrap_or(0);
                &body[..length]
            }
            Opcode::AtomicResponse => {
                body[3] = input.u8() % 4;
                &body[..12]
            }
            _ => {
                let count = if form & 8 != 0 { 8 } else { input.u8() as usize };
                input.bytes(count)
            }
        };
        let body = body.to_vec();
        self.hand(&Header { qp: qp.0, is_last: form & 1 == 0, opcode, place }, &body);
    }

    fn hand(&mut self, header: &Header, body: &[u8]) {
        let mut segment = vec![0; header.len()];
        header.emit(&mut segment).expect("there is room");
        segment.extend_from_slice(body);
        self.engine.receive(self.now_ns, PEER, &segment, &mut self.ram);
    }

    fn sges(&self, input: &mut Input<'_>) -> Vec<Sge> {
        let count = input.u8() % 8;
        let one = |_| Sge {
            stag: self.stag(input),
            to: Self::to(input),
            length: if input.once_in(8) { input.number() as u32 } else { u32::from(input.u8()) * 8 },
        };
        (0..count).map(one).collect()
    }

    fn send(&mut self, input: &mut Input<'_>) {
        let qp = self.qp(input);
        let mut wqe = [0; SendWork::MAX_BYTES];
        let codes = [
            SendOpcode::Write,
            SendOpcode::WriteImmediate,
            SendOpcode::Send,
            SendOpcode::SendImmediate,
            SendOpcode::SendInvalidate,
            SendOpcode::Read,
            SendOpcode::FetchAdd,
            SendOpcode::CompareSwap,
            SendOpcode::Bind,
            SendOpcode::Invalidate,
            SendOpcode::Nop,
        ];
        let sges = self.sges(input);
        let opcode = input.one_of(&codes);
        let work = SendWork {
            opcode,
            flags: input.u8() & (flag::SIGNALED | flag::FENCE | flag::SOLICITED),
            id: 1,
            remote_to: if opcode == SendOpcode::Send { u64::from(PEER.0) | 7 << 32 } else { Self::to(input) },
            remote_stag: self.stag(input),
            immediate: self.stag(input),
            sges: if opcode == SendOpcode::Bind || opcode == SendOpcode::Nop { &[] } else { &sges },
            operands: [u64::from(self.stag(input)), input.number()],
            ..SendWork::default()
        };
        let Some(bytes) = work.emit(&mut wqe) else { return };
        // Some bytes of it are anything.
        for _ in 0..input.u8() % 4 {
            let at = input.below(bytes);
            if at != 2 {
                wqe[at] = input.u8();
            }
        }
        let before = self.engine.state(qp);
        if self.engine.post_send(qp, &wqe[..bytes]).is_ok() {
            assert!(before.is_some());
            self.posted[0] += 1;
        }
    }

    fn receive(&mut self, input: &mut Input<'_>) {
        let qp = self.qp(input);
        let sges = self.sges(input);
        let mut wqe = [0; ReceiveWork::MAX_BYTES];
        let Some(bytes) = (ReceiveWork { id: 2, sges: &sges }).emit(&mut wqe) else { return };
        if input.once_in(8) {
            wqe[3] = input.u8();
        }
        let posted = if input.once_in(4) {
            self.engine.post_srq(self.srq, &wqe[..bytes])
        } else {
            self.engine.post_receive(qp, &wqe[..bytes])
        };
        self.posted[1] += u64::from(posted.is_ok());
    }

    fn control(&mut self, input: &mut Input<'_>) {
        let stag = self.stag(input);
        match input.u8() % 10 {
            0 => self.register(Access(input.u8() & 0x1F), input.flag()),
            1 => {
                if self.engine.deregister(stag).is_ok() {
                    self.stags.retain(|&other| other != stag);
                }
            }
            2 => {
                if let Ok(window) = self.engine.allocate_window(PD) {
                    self.stags.push(window | u32::from(input.u8()));
                }
            }
            3 => {
                let _ = self.engine.free_window(stag);
            }
            4 => {
                let page = u32::from(input.u8() % 8);
                let address = input.flag().then(|| PAGES[input.below(PAGES.len())]);
                let _ = self.engine.set_page(stag, page, address);
            }
            5 => {
                let qp = self.qp(input);
                if self.engine.destroy_qp(qp).is_ok() {
                    self.qps.retain(|&other| other != qp);
                }
            }
            6 => {
                let services = [Service::Rc, Service::Rc, Service::Uc, Service::Ud];
                let service = input.one_of(&services);
                let srq = input.flag().then_some(self.srq);
                self.create(service, srq);
            }
            7 => self.engine.lose_peer(PEER),
            8 => {
                let qp = self.qp(input);
                self.engine.resume(qp);
            }
            _ => {
                let qp = self.qp(input);
                let _ = self.engine.store(qp, input.u8() as usize % 20, input.u64());
            }
        }
    }

    /// Takes what there is, and holds it against what was posted.
    fn collect(&mut self) {
        for (at, cq) in self.cqs.into_iter().enumerate() {
            while let Some((cqe, _)) = self.engine.take(cq) {
                self.done[at] += 1;
                assert!(cqe.status != Status::Fatal);
            }
            let index = self.done[at] as u32;
            assert!(self.engine.consume(cq, index));
            assert!(self.done[at] <= self.posted[at], "something completed twice");
        }
        while self.engine.next_event().is_some() {}
        while self.engine.next_notice().is_some() {}
    }

    /// After all that, two new QPs of one node reach each other.
    fn serves(&mut self) {
        for qp in std::mem::take(&mut self.qps) {
            self.engine.destroy_qp(qp).expect("it is there");
        }
        self.ram.is_pending = false;
        self.session = Session { longest: 1396, ..Session::default() };
        self.create(Service::Rc, None);
        self.create(Service::Rc, None);
        let (one, other) = (self.qps[0], self.qps[1]);
        let peer = PeerId(2);
        for (qp, remote_qp) in [(one, other), (other, one)] {
            let attributes = Attributes { peer, remote_qp, ..Attributes::default() };
            for state in [State::Init, State::Rtr, State::Rts] {
                self.engine.modify_qp(qp, state, Some(&attributes)).expect("it may");
            }
        }
        let mut wqe = [0; 64];
        ReceiveWork { id: 5, sges: &[] }.emit(&mut wqe).expect("a WQE");
        self.engine.post_receive(other, &wqe).expect("room");
        let work = SendWork { opcode: SendOpcode::Send, id: 6, inline: Some(&[]), ..SendWork::default() };
        work.emit(&mut wqe).expect("a WQE");
        self.engine.post_send(one, &wqe).expect("room");
        for _ in 0..4 {
            self.session.sent.clear();
            self.transmit(u8::MAX);
            for (to, segment) in std::mem::take(&mut self.session.sent) {
                if to == peer {
                    self.engine.receive(self.now_ns, peer, &segment, &mut self.ram);
                }
            }
        }
        let ids = self.cqs.map(|cq| self.engine.take(cq).map(|(cqe, _)| (cqe.id, cqe.status)));
        assert_eq!(ids, [Some((6, Status::Success)), Some((5, Status::Success))]);
    }
}
