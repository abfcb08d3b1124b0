//! The same hardware with a bare session in the host's place, which says what no host node says.

use std::path::PathBuf;

use etherslot_cosim::Peb;
use etherslot_session::{DeadReason, Deliver, Mode, Session, State, parse_frame};
use etherslot_wire::FunctionId;
use etherslot_wire::control::{AttachStatus, CONTROL_STREAM, CloseReason, Message, Name};
use etherslot_wire::record::Kind;
use etherslot_wire::tlp::{
    CfgRequest, CfgType, Completion, CplStatus, Header, MAX_HEADER_BYTES, MemRequest, Op,
};

use crate::world::{MS, session};

const STREAM: u16 = 3;
const ROOT: FunctionId = FunctionId::new(0, 0, 0);

#[derive(Default)]
struct Heard(Vec<(Kind, u16, Vec<u8>)>);

impl Deliver for Heard {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        self.0.push((kind, stream, payload.to_vec()));
    }
}

struct Bare {
    peb: Peb,
    session: Session,
    heard: Heard,
    lives: u32,
}

impl Bare {
    fn new(seed: u32) -> Self {
        let path: PathBuf =
            std::env::var_os("ETHERSLOT_COSIM_PEB_NODE").expect("./run rtl cosim names the model").into();
        let peb = Peb::load(&path, seed, [9; 16], "disk", false).expect("a model");
        let mut bare = Self {
            session: Session::connect(&session(Mode::Selective), 0x4567_0000 | seed, peb.now_ns()),
            peb,
            heard: Heard::default(),
            lives: 0,
        };
        bare.until("up", |bare| bare.session.state() == State::Up && bare.peb.is_up());
        bare
    }

    /// Another session after one that is over.
    fn again(&mut self) {
        self.until("over at the other side", |bare| !bare.peb.is_up());
        self.lives += 1;
        self.peb.set_epoch(0x1111_0000 + self.lives);
        self.heard.0.clear();
        self.session =
            Session::connect(&session(Mode::Selective), 0x2222_0000 + self.lives, self.peb.now_ns());
        self.until("up again", |bare| bare.session.state() == State::Up && bare.peb.is_up());
    }

    fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end_ns = self.peb.now_ns() + 300 * MS;
        while !is_so(self) {
            assert!(
                self.peb.now_ns() < end_ns,
                "never {what}: {:?}, {:?}",
                self.session.state(),
                self.peb.stats()
            );
            let frame = self.peb.clock();
            self.peb.set_reset_done(self.peb.wants_reset());
            let now_ns = self.peb.now_ns();
            let Self { session, heard, peb, .. } = self;
            let is_due = session.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns);
            if let Some(frame) = &frame {
                let (header, body) = parse_frame(frame).expect("a good frame");
                if header.dst_epoch == session.epoch() {
                    session.handle_frame(now_ns, &header, body, heard);
                }
            }
            if is_due || frame.is_some() || (now_ns / 8).is_multiple_of(256) {
                session.handle_timeout(now_ns);
                session.transmit(now_ns, &mut |frames| {
                    for frame in frames {
                        peb.land(frame.to_vec());
                    }
                    frames.len()
                });
            }
        }
    }

    fn tell(&mut self, stream: u16, message: Message) {
        let mut bytes = [0; Message::MAX_BYTES];
        let length = message.emit(&mut bytes).expect("a message");
        self.session.send(Kind::Control, stream, &bytes[..length], 0, &[], length).expect("room");
    }

    fn send(&mut self, tlp: &[u8]) {
        let (head, data) = tlp.split_at(12);
        self.session.send(Kind::Tlp, STREAM, head, 0, data, tlp.len()).expect("room");
    }

    /// The record that comes next.
    fn next(&mut self) -> (Kind, u16, Vec<u8>) {
        self.until("a record", |bare| !bare.heard.0.is_empty());
        self.heard.0.remove(0)
    }

    fn message(&mut self) -> (u16, Message) {
        let (kind, stream, payload) = self.next();
        assert_eq!(kind, Kind::Control);
        (stream, Message::parse(&payload).expect("a message that is known"))
    }

    fn attach(&mut self) {
        let name = Name::new("disk").expect("a name");
        let attach =
            Message::Attach { name, stream: STREAM, max_payload_bytes: 256, max_read_request_bytes: 512 };
        self.tell(CONTROL_STREAM, attach);
        let port = FunctionId::new(2, 0, 0);
        let attached = Message::Attached { stream: STREAM, status: AttachStatus::Attached, port };
        assert_eq!(self.message(), (CONTROL_STREAM, attached));
        assert_eq!(self.peb.grants(), Some((256, 512)));
    }

    fn completion(&mut self) -> Completion {
        let (kind, stream, payload) = self.next();
        assert_eq!((kind, stream), (Kind::Tlp, STREAM));
        let (header, _) = Header::parse(&payload).expect("a TLP");
        let Op::Completion(completion) = header.op else { panic!("{header:?}") };
        completion
    }
}

fn packet(op: Op, data: &[u8]) -> Vec<u8> {
    let mut head = [0; MAX_HEADER_BYTES];
    let length = Header::new(op).emit(&mut head).expect("a header");
    [&head[..length], data].concat()
}

fn config(tag: u16, target: FunctionId) -> CfgRequest {
    CfgRequest { kind: CfgType::Type0, requester: ROOT, tag, target, register: 0, first_be: 15 }
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn control_messages_are_answered_as_the_wire_says() {
    let mut bare = Bare::new(21);
    bare.attach();
    bare.tell(STREAM, Message::HotReset);
    assert_eq!(bare.message(), (STREAM, Message::HotResetDone));
    bare.tell(STREAM, Message::Detach);
    assert_eq!(bare.message(), (STREAM, Message::Detached));
    bare.attach();
    let stats = bare.peb.stats();
    assert_eq!((stats.attached, stats.resets, stats.unknown), (2, 3, 0));
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_record_that_cannot_be_closes_the_session_for_cause() {
    let mut bare = Bare::new(22);
    for _ in 0..3 {
        bare.attach();
        // The hardware has 16 streams.
        bare.session.send(Kind::Control, 16, &[3, 0, 0, 0], 0, &[], 4).expect("room");
        bare.until("closed", |bare| matches!(bare.session.state(), State::Dead(_)));
        assert_eq!(bare.session.state(), State::Dead(DeadReason::PeerClosed(CloseReason::Protocol)));
        bare.again();
    }
    assert_eq!(bare.peb.stats().sessions, 4);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn tlps_that_are_none_or_lead_nowhere_end_as_the_wire_says() {
    let mut bare = Bare::new(23);
    bare.attach();
    let target = FunctionId::new(1, 0, 0);
    // A digest; a reserved type; a Length that is not its own.
    bare.send(&[0, 0, 0x80, 1, 0, 0, 0, 15, 0, 0, 0x60, 0, 0, 0, 0, 0]);
    bare.send(&[0x1F, 0, 0, 1, 0, 0, 0, 15, 0, 0, 0x60, 0]);
    bare.send(&[0x40, 0, 0, 2, 0, 0, 0, 0xFF, 0, 0, 0x60, 0, 1, 2, 3, 4]);
    bare.send(&packet(Op::CfgRead(config(5, target)), &[]));
    let completion = bare.completion();
    assert_eq!((completion.tag, completion.status, completion.length_dw), (5, CplStatus::Success, 1));
    let read = MemRequest::covering(ROOT, 6, 0x1_0000_0003, 9).expect("a read");
    bare.send(&packet(Op::MemRead(read), &[]));
    let completion = bare.completion();
    assert_eq!(
        (completion.tag, completion.status, completion.length_dw),
        (6, CplStatus::UnsupportedRequest, 0)
    );
    assert_eq!((completion.byte_count, completion.lower_address), (9, 3));
    let foreign = CfgRequest { requester: FunctionId::new(7, 0, 0), ..config(7, target) };
    bare.send(&packet(Op::CfgRead(foreign), &[]));
    assert_eq!(bare.completion().status, CplStatus::UnsupportedRequest);
    let stats = bare.peb.stats();
    assert_eq!((stats.down_malformed, stats.down_unrouted, stats.down_spoofed, stats.down), (3, 1, 1, 0));
}
