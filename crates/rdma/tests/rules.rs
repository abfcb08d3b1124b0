//! What a responder does with segments that break a rule: a row a rule of the RFCs. Nothing is placed, the peer is told
//! why, the QP ends.

mod pair;

use etherslot_rdma::{
    Access, Attributes, Counters, Event, Layout, Pd, PeerId, Region, SendOpcode, SendWork, Service, State,
    Status,
};
use etherslot_wire::ddp::{Header, Opcode, Place, queue};
use etherslot_wire::rdmap::{AtomicCode, AtomicRequest, Cause, ReadRequest, Terminate, Verdict};
use pair::{BYTES, Node, PD, PEER, Pair, work};

/// What the wrong segments name.
struct Names {
    /// All rights, TO from 0x10000 on, 0x1000 bytes.
    region: u32,
    /// Another PD's.
    foreign: u32,
    /// May be read by the peer, no more.
    readable: u32,
    /// May be written by the peer, not read.
    writable: u32,
    /// A window bound on another QP.
    window: u32,
    qp: u16,
}

const TO: u64 = 0x10000;

fn names(node: &mut Node) -> Names {
    let mut region = |pd, access| {
        let layout = Layout::Direct { address: 0x2_0000 };
        let region = Region { pd, access, base: TO, length: 0x1000, key: 9, layout };
        node.engine.register(&region).unwrap()
    };
    let all = region(PD, Access::ALL);
    let foreign = region(Pd(4), Access::ALL);
    let readable = region(PD, Access::REMOTE_READ);
    let writable = region(PD, Access::REMOTE_WRITE | Access::LOCAL_WRITE);
    let init = Node::init(Service::Rc, node.send_cq, node.receive_cq);
    let (qp, other) = (node.qp, node.engine.create_qp(&init).unwrap());
    node.qp = other;
    node.connect(&Attributes { peer: PeerId(6), ..Attributes::default() });
    let window = node.engine.allocate_window(PD).unwrap() | 3;
    node.post(&SendWork {
        remote_to: TO,
        remote_stag: window,
        immediate: 7,
        operands: [u64::from(all), 64],
        ..work(SendOpcode::Bind, 1)
    });
    node.engine.transmit(1, &mut node.ram, &mut node.cable);
    assert_eq!(node.sent()[0].status, Status::Success);
    node.qp = qp;
    Names { region: all, foreign, readable, writable, window, qp: qp.0 }
}

fn segment(header: &Header, data: &[u8]) -> Vec<u8> {
    let mut segment = vec![0; header.len()];
    header.emit(&mut segment).unwrap();
    segment.extend_from_slice(data);
    segment
}

fn write(names: &Names, stag: u32, to: u64, bytes: usize) -> Vec<u8> {
    let place = Place::Tagged { stag, to };
    segment(&Header { qp: names.qp, is_last: true, opcode: Opcode::Write, place }, &vec![0xAA; bytes])
}

fn untagged(names: &Names, opcode: Opcode, msn: u32, mo: u32, ulp: u32, data: &[u8]) -> Vec<u8> {
    let place = Place::Untagged { ulp, qn: opcode.queue().unwrap(), msn, mo };
    segment(&Header { qp: names.qp, is_last: true, opcode, place }, data)
}

fn read(names: &Names, stag: u32, to: u64, length: u32) -> Vec<u8> {
    let request =
        ReadRequest { sink_stag: 0xF000_0000, sink_to: 0, length, source_stag: stag, source_to: to };
    let mut body = [0; ReadRequest::BYTES];
    request.emit(&mut body).unwrap();
    untagged(names, Opcode::ReadRequest, 1, 0, 0, &body)
}

fn atomic(names: &Names, stag: u32, to: u64) -> Vec<u8> {
    let request = AtomicRequest {
        code: AtomicCode::FetchAdd,
        identifier: 1,
        stag,
        to,
        operand: 1,
        mask: 0,
        compare: 0,
        compare_mask: 0,
    };
    let mut body = [0; AtomicRequest::BYTES];
    request.emit(&mut body).unwrap();
    untagged(names, Opcode::AtomicRequest, 1, 0, 0, &body)
}

/// A segment with a byte of its header changed.
fn with(mut segment: Vec<u8>, at: usize, change: impl Fn(u8) -> u8) -> Vec<u8> {
    segment[at] = change(segment[at]);
    segment
}

/// What the QP's attributes allow.
const NOTHING: Access = Access(0);
const ALL: Access = Access::ALL;

/// How a segment is made.
type Make = fn(&Names) -> Vec<u8>;
/// A rule: its section, what breaks it, what the peer may do, how the segment is made, what the peer is told.
type Row = (&'static str, &'static str, Access, Make, Cause);

#[rustfmt::skip]
const RULES: &[Row] = &[
    ("RFC 5041, 7.1", "Write: an STag that there is not", ALL, |n| write(n, 0x7F00, TO, 8), Cause::TAGGED_STAG),
    ("RFC 5041, 7.1", "Write: a stale key", ALL, |n| write(n, n.region ^ 1, TO, 8), Cause::TAGGED_STAG),
    ("RFC 5041, 7.1", "Write: the index 0", ALL, |n| write(n, 0, TO, 8), Cause::TAGGED_STAG),
    ("RFC 5041, 7.1", "Write: another PD", ALL, |n| write(n, n.foreign, TO, 8), Cause::TAGGED_NOT_ASSOCIATED),
    ("Verbs 7.10.4", "Write: a window of another QP", ALL, |n| write(n, n.window, TO, 8), Cause::TAGGED_NOT_ASSOCIATED),
    ("RFC 5040, 7.2", "Write: no right", ALL, |n| write(n, n.readable, TO, 8), Cause::ACCESS),
    ("IBA 9.7.4.1", "Write: the QP does not allow it", NOTHING, |n| write(n, n.region, TO, 8), Cause::ACCESS),
    ("RFC 5041, 7.1", "Write: before the base", ALL, |n| write(n, n.region, TO - 1, 8), Cause::TAGGED_BOUNDS),
    ("RFC 5041, 7.1", "Write: beyond the end by a byte", ALL, |n| write(n, n.region, TO + 0xFF9, 8), Cause::TAGGED_BOUNDS),
    ("RFC 5041, 7.1", "Write: TO wraps", ALL, |n| write(n, n.region, u64::MAX - 6, 8), Cause::TAGGED_WRAP),
    ("RFC 5041, 7.1", "tagged: DDP version 2", ALL, |n| with(write(n, n.region, TO, 8), 2, |b| b ^ 3), Cause::TAGGED_VERSION),
    ("RFC 5041, 7.1", "untagged: DDP version 0", ALL, |n| with(read(n, n.region, TO, 8), 2, |b| b & !3), Cause::UNTAGGED_VERSION),
    ("RFC 5040, 7.2", "RDMAP version 0", ALL, |n| with(write(n, n.region, TO, 8), 3, |b| b & 0x3F), Cause::RDMAP_VERSION),
    ("RFC 5040, 7.2", "a Send that is tagged", ALL, |n| with(write(n, n.region, TO, 8), 3, |b| b | 3), Cause::OPCODE),
    ("RFC 5040, 7.2", "a Write that is untagged", ALL, |n| with(read(n, n.region, TO, 8), 3, |b| b & 0xF0), Cause::OPCODE),
    ("RFC 5040, 4.2", "a Read Request in queue 0", ALL, |n| with(read(n, n.region, TO, 8), 11, |_| 0), Cause::OPCODE),
    ("RFC 5041, 7.1", "queue 5", ALL, |n| with(read(n, n.region, TO, 8), 11, |_| 5), Cause::UNTAGGED_QUEUE),
    ("RFC 5041, 7.1", "Send: an MSN that was", ALL, |n| untagged(n, Opcode::Send, 0, 0, 0, b"x"), Cause::UNTAGGED_MSN),
    ("RFC 5041, 7.1", "Send: an MSN too far", ALL, |n| untagged(n, Opcode::Send, 2, 0, 0, b"x"), Cause::UNTAGGED_MSN),
    ("RFC 5041, 7.1", "Send: an MO that is not next", ALL, |n| untagged(n, Opcode::Send, 1, 8, 0, b"x"), Cause::UNTAGGED_MO),
    ("RFC 5041, 7.1", "Send: longer than the buffer", ALL, |n| untagged(n, Opcode::Send, 1, 0, 0, &[0xAA; 65]), Cause::UNTAGGED_TOO_LONG),
    ("RFC 5040, 7.2", "Invalidate: no window", ALL, |n| untagged(n, Opcode::SendInvalidate, 1, 0, 0x7F00, b"x"), Cause::CANNOT_INVALIDATE),
    ("RFC 5040, 7.2", "Invalidate: a region", ALL, |n| untagged(n, Opcode::SendInvalidate, 1, 0, n.region, b"x"), Cause::CANNOT_INVALIDATE),
    ("Verbs 7.10.4", "Invalidate: a window of another QP", ALL, |n| untagged(n, Opcode::SendInvalidate, 1, 0, n.window, b"x"), Cause::CANNOT_INVALIDATE),
    ("RFC 7306, 6", "Immediate Data of 4 bytes", ALL, |n| untagged(n, Opcode::Immediate, 1, 0, 0, &[0; 4]), Cause::UNTAGGED_MO),
    ("RFC 5040, 7.2", "Read: an STag that there is not", ALL, |n| read(n, 0x7F00, TO, 8), Cause::INVALID_STAG),
    ("RFC 5040, 7.2", "Read: another PD", ALL, |n| read(n, n.foreign, TO, 8), Cause::NOT_ASSOCIATED),
    ("RFC 5040, 7.2", "Read: no right", ALL, |n| read(n, n.writable, TO, 8), Cause::ACCESS),
    ("IBA 9.7.4.1", "Read: the QP does not allow it", Access::REMOTE_WRITE, |n| read(n, n.region, TO, 8), Cause::ACCESS),
    ("RFC 5040, 7.2", "Read: beyond the end", ALL, |n| read(n, n.region, TO, 0x1001), Cause::BOUNDS),
    ("RFC 5040, 7.2", "Read: TO wraps", ALL, |n| read(n, n.region, u64::MAX, 2), Cause::TO_WRAP),
    ("RFC 5041, 7.1", "Read: an MSN that is not next", ALL, |n| with(read(n, n.region, TO, 8), 15, |_| 2), Cause::UNTAGGED_MSN),
    ("RFC 5041, 7.1", "Read: an MO", ALL, |n| with(read(n, n.region, TO, 8), 19, |_| 8), Cause::UNTAGGED_MO),
    ("RFC 5040, 4.4", "Read: a byte is missing", ALL, |n| { let mut s = read(n, n.region, TO, 8); s.pop(); s }, Cause::UNTAGGED_MO),
    ("RFC 7306, 5", "Atomic: an STag that there is not", ALL, |n| atomic(n, 0x7F00, TO), Cause::INVALID_STAG),
    ("RFC 7306, 5", "Atomic: no right", ALL, |n| atomic(n, n.writable, TO), Cause::ACCESS),
    ("IBA 9.7.4.1", "Atomic: the QP does not allow it", Access::REMOTE_WRITE, |n| atomic(n, n.region, TO), Cause::ACCESS),
    ("RFC 7306, 5", "Atomic: beyond the end", ALL, |n| atomic(n, n.region, TO + 0x1000), Cause::BOUNDS),
    ("RFC 7306, 5", "Atomic: not aligned", ALL, |n| atomic(n, n.region, TO + 4), Cause::UNSPECIFIED),
    ("RFC 7306, 5", "Atomic: a code that there is not", ALL, |n| with(atomic(n, n.region, TO), 23, |_| 1), Cause::UNSPECIFIED),
    ("rnic.md 9", "Synchronise: another number", ALL, |n| untagged(n, Opcode::Synchronise, 77, 0, 1, b""), Cause::CATASTROPHIC),
];

/// A pair whose second side has heard the first begin, and what the rows name there.
fn begun(access: Access) -> (Pair, Names) {
    let mut pair =
        Pair::with(
            Service::Rc,
            |at, attributes| if at == 1 { Attributes { access, ..attributes } } else { attributes },
        );
    let names = names(&mut pair.nodes[1]);
    let sge = pair.nodes[1].sge(0x3000, 64);
    pair.nodes[1].post_receive(1, &[sge]);
    let number = pair.attributes(0).first_sent;
    let begins = untagged(&names, Opcode::Synchronise, number, 0, 1, &[]);
    hand(&mut pair, &begins);
    (pair, names)
}

fn hand(pair: &mut Pair, segment: &[u8]) {
    let now_ns = pair.now_ns;
    let node = &mut pair.nodes[1];
    node.engine.receive(now_ns, PEER, segment, &mut node.ram);
}

/// The Terminate that a node has sent, if any.
fn told(pair: &mut Pair) -> Option<(Cause, Vec<u8>)> {
    pair.transmit(1);
    let sent = &pair.nodes[1].cable.sent;
    sent.iter().find_map(|(peer, segment)| {
        let (header, data) = Header::parse(segment).expect("a segment");
        assert_eq!(*peer, PEER);
        (header.opcode == Opcode::Terminate).then(|| {
            let terminate = Terminate::parse(data).expect("a Terminate");
            (terminate.cause, terminate.ddp_header.to_vec())
        })
    })
}

#[test]
fn a_segment_that_breaks_a_rule_places_nothing_and_ends_its_qp() {
    for (section, name, access, make, cause) in RULES {
        let (mut pair, names) = begun(*access);
        let before = pair.nodes[1].ram.bytes.clone();
        let wrong = make(&names);
        hand(&mut pair, &wrong);
        assert!(pair.nodes[1].ram.bytes == before, "{section}, {name}: memory has changed");
        assert_eq!(pair.nodes[1].state(), State::Error, "{section}, {name}");
        let (told_cause, header) =
            told(&mut pair).unwrap_or_else(|| panic!("{section}, {name}: nothing is told"));
        assert_eq!(told_cause, *cause, "{section}, {name}");
        assert_eq!(header, wrong[2..2 + header.len()], "{section}, {name}");
        assert!(header.len() == 14 || header.len() == 18);
        // The receive WQE is flushed, or failed if the message was too long for it.
        let received = pair.nodes[1].received();
        assert_eq!(received.len(), 1, "{section}, {name}");
        let expected = if *cause == Cause::UNTAGGED_TOO_LONG { Status::LocalLength } else { Status::Flushed };
        assert_eq!(received[0].status, expected, "{section}, {name}");
        let counters = pair.nodes[1].engine.counters();
        assert_eq!(dropped(counters), 1, "{section}, {name}: {counters:?}");
        assert_eq!(counters.messages_taken, 0);
        // It is over: nothing is told twice, nothing taken any more.
        hand(&mut pair, &write(&names, names.region, TO, 8));
        assert!(pair.nodes[1].ram.bytes == before, "{section}, {name}: taken in ERROR");
        pair.nodes[1].cable.sent.clear();
        assert_eq!(told(&mut pair), None, "{section}, {name}: told twice");
    }
}

/// Segments that were dropped for a reason of their own.
fn dropped(counters: &Counters) -> u64 {
    let named = counters.named().filter(|named| named.name.starts_with("dropped_"));
    // What is not allowed has an event, and is counted by it; the other reasons count segments.
    named.map(|named| named.value).sum::<u64>()
}

#[test]
fn good_segments_at_the_very_ends_of_a_region_are_taken() {
    for (to, bytes) in [(TO, 8), (TO + 0xFF8, 8), (TO, 0x1000), (TO + 0x1000, 0), (7, 0)] {
        let (mut pair, names) = begun(ALL);
        hand(&mut pair, &write(&names, names.region, to, bytes));
        assert_eq!(told(&mut pair), None);
        assert_eq!(pair.nodes[1].engine.counters().messages_taken, 1);
        if bytes > 0 {
            let at = 0x2_0000 + (to - TO) as usize;
            assert!(pair.nodes[1].ram.bytes[at..at + bytes].iter().all(|&byte| byte == 0xAA));
        }
    }
}

#[test]
fn a_message_may_not_be_broken_off_by_another() {
    let rows: [(&str, Make, Make); 4] = [
        (
            "Send in a Write",
            |n| with(write(n, n.region, TO, 8), 2, |b| b & !0x40),
            |n| untagged(n, Opcode::Send, 1, 0, 0, b"x"),
        ),
        (
            "Read Request in a Write",
            |n| with(write(n, n.region, TO, 8), 2, |b| b & !0x40),
            |n| read(n, n.region, TO, 8),
        ),
        (
            "Write in a Send",
            |n| with(untagged(n, Opcode::Send, 1, 0, 0, b"x"), 2, |b| b & !0x40),
            |n| write(n, n.region, TO, 8),
        ),
        (
            "Immediate Data in a Send",
            |n| with(untagged(n, Opcode::Send, 1, 0, 0, b"x"), 2, |b| b & !0x40),
            |n| untagged(n, Opcode::Immediate, 1, 0, 0, &[0; 8]),
        ),
    ];
    for (name, first, second) in rows {
        let (mut pair, names) = begun(ALL);
        hand(&mut pair, &first(&names));
        assert_eq!(told(&mut pair), None, "{name}");
        hand(&mut pair, &second(&names));
        assert_eq!(told(&mut pair).map(|told| told.0), Some(Cause::CATASTROPHIC), "{name}");
        assert_eq!(pair.nodes[1].received().iter().filter(|cqe| cqe.status == Status::Success).count(), 0);
    }
}

#[test]
fn more_reads_than_agreed_are_refused_and_those_before_are_answered() {
    let (mut pair, names) = begun(ALL);
    for msn in 1..=5_u8 {
        let request = with(read(&names, names.region, TO, 8), 15, |_| msn);
        hand(&mut pair, &request);
    }
    assert_eq!(told(&mut pair).map(|told| told.0), Some(Cause::UNTAGGED_NO_BUFFER));
    let opcodes: Vec<_> = pair.nodes[1]
        .cable
        .sent
        .iter()
        .map(|(_, segment)| Header::parse(segment).unwrap().0.opcode)
        .collect();
    let expected = [&[Opcode::Acknowledge][..], &[Opcode::ReadResponse; 4], &[Opcode::Terminate]].concat();
    assert_eq!(opcodes, expected);
}

#[test]
fn segments_that_are_for_nobody_are_dropped_and_their_sender_is_told_once() {
    let (mut pair, names) = begun(ALL);
    let stranger = Names { qp: names.qp ^ 0x40, ..names };
    for _ in 0..3 {
        hand(&mut pair, &untagged(&stranger, Opcode::Synchronise, 7, 55, 1, &[]));
        hand(&mut pair, &write(&stranger, stranger.region, TO, 8));
    }
    hand(&mut pair, &[]);
    hand(&mut pair, &[0; 17]);
    // Answers for nobody are not answered.
    hand(&mut pair, &untagged(&stranger, Opcode::Terminate, 1, 0, 0, &[0; 4]));
    hand(&mut pair, &untagged(&stranger, Opcode::Acknowledge, 1, 0, 0, &[]));
    pair.transmit(1);
    let sent: Vec<_> = pair.nodes[1].cable.sent.drain(..).collect();
    assert_eq!(sent.len(), 1);
    let (header, _) = Header::parse(&sent[0].1).unwrap();
    let (ulp, mo) = Verdict::NoQp { qp: stranger.qp }.fields();
    let place = Place::Untagged { ulp, qn: queue::CONTROL, msn: 55, mo };
    assert_eq!(header, Header { qp: 0, is_last: true, opcode: Opcode::Acknowledge, place });
    let counters = pair.nodes[1].engine.counters();
    assert_eq!((counters.dropped_no_qp, counters.dropped_truncated), (8, 2));
}

#[test]
fn segments_of_another_peer_do_not_reach_a_connected_qp() {
    let (mut pair, names) = begun(ALL);
    let before = pair.nodes[1].ram.bytes.clone();
    let wrong = [
        write(&names, names.region, TO, 8),
        untagged(&names, Opcode::Terminate, 1, 0, 0, &[0; 4]),
        with(write(&names, names.region, TO, 8), 2, |b| b ^ 3),
    ];
    for segment in &wrong {
        let node = &mut pair.nodes[1];
        node.engine.receive(1, PeerId(6), segment, &mut node.ram);
    }
    assert!(pair.nodes[1].ram.bytes == before);
    assert_eq!(pair.nodes[1].state(), State::Rts);
}

#[test]
fn answers_that_nobody_asked_for_end_the_qp_and_place_nothing() {
    let response = |names: &Names, stag, to, bytes: usize, last| {
        let place = Place::Tagged { stag, to };
        segment(
            &Header { qp: names.qp, is_last: last, opcode: Opcode::ReadResponse, place },
            &vec![0xAA; bytes],
        )
    };
    // The QP waits for a Read of 64 bytes, whose sink is known from its request.
    for (name, change) in [
        ("another STag", (1_u32, 0_u64, 64, true)),
        ("another TO", (0, 8, 64, true)),
        ("too long", (0, 0, 65, true)),
        ("an early end", (0, 0, 63, true)),
        ("no end", (0, 0, 64, false)),
    ] {
        let (mut pair, names) = begun(ALL);
        let sge = pair.nodes[1].sge(0x5000, 64);
        pair.nodes[1].post(&SendWork { sges: &[sge], ..work(SendOpcode::Read, 1) });
        pair.transmit(1);
        let (_, request) = pair.nodes[1].cable.sent.pop_back().expect("a Read Request");
        let sink = ReadRequest::parse(Header::parse(&request).unwrap().1).unwrap().sink_stag;
        let before = pair.nodes[1].ram.bytes.clone();
        let (stag, to, bytes, last) = change;
        hand(&mut pair, &response(&names, sink ^ stag, to, bytes, last));
        assert_eq!(pair.nodes[1].state(), State::Error, "{name}");
        assert!(pair.nodes[1].ram.bytes == before, "{name}");
        assert_eq!(pair.nodes[1].sent()[0].status, Status::BadResponse, "{name}");
    }
    // None is awaited: as bad.
    let (mut pair, names) = begun(ALL);
    hand(&mut pair, &response(&names, 0xF000_0000, 0, 8, true));
    assert_eq!(pair.nodes[1].state(), State::Error);
    assert!(matches!(pair.nodes[1].engine.next_event(), Some(Event::QpError(_))));
    assert!(pair.nodes[1].ram.bytes.len() == BYTES);
}

#[test]
fn acknowledges_of_what_was_not_sent_are_dropped() {
    let (mut pair, names) = begun(ALL);
    let first = pair.attributes(1).first_sent;
    for number in [first.wrapping_add(1), first.wrapping_sub(1), first.wrapping_add(1 << 31)] {
        for ulp in 0..2 {
            hand(&mut pair, &untagged(&names, Opcode::Acknowledge, number, 1, ulp, &[]));
        }
    }
    hand(&mut pair, &untagged(&names, Opcode::Acknowledge, first, 1, 9, &[]));
    assert_eq!(pair.nodes[1].engine.counters().dropped_acknowledges, 7);
    assert_eq!(pair.nodes[1].state(), State::Rts);
}
