//! Any bytes against every decoder of the wire format, as they are nested on the wire.
//!
//! The first byte of an input says where to begin: 0 a frame, 1 a body of records, 2 a TLP, 3 a control message (or one of connections), 4 the
//! body of a Hello, 5 the body of a Close, 6 the body of a frame of discovery. What decodes must decode to the same again once it is written.

#![no_main]

use etherslot_wire::ahead::Piece;
use etherslot_wire::cm::{self, Enquiry};
use etherslot_wire::control::{CloseReason, Hello, Message};
use etherslot_wire::discovery::{Heartbeat, Order, Outcome, Port};
use etherslot_wire::rdmap::{AtomicRequest, AtomicResponse, Datagram, ReadRequest, Terminate, Verdict};
use etherslot_wire::record::Record;
use etherslot_wire::{ddp, frame, record, tlp};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((start, bytes)) = input.split_first() else { return };
    match start % 7 {
        0 => frame(bytes),
        1 => records(bytes),
        2 => tlp(bytes),
        3 => message(bytes),
        4 => hello(bytes),
        5 => close(bytes),
        _ => discovery(bytes),
    }
});

fn frame(bytes: &[u8]) {
    let Ok((header, body)) = frame::Header::parse(bytes) else { return };
    let mut again = vec![0xEE; header.len()];
    assert_eq!(header.emit(&mut again), Some(header.len()));
    again.extend_from_slice(body);
    assert_eq!(frame::Header::parse(&again), Ok((header, body)));
    if let Some(sack) = header.sack {
        let mut copy = frame::Sack::new(sack.base);
        for index in (0..frame::SACK_BITS + 8).filter(|&index| sack.is_marked(index)) {
            copy.mark(index);
        }
        assert_eq!(copy, sack);
    }
    match header.kind {
        frame::Kind::Hello | frame::Kind::HelloAck => hello(body),
        frame::Kind::Data => records(body),
        frame::Kind::Ack => {}
        frame::Kind::Close => close(body),
    }
}

fn records(mut body: &[u8]) {
    while let Ok((record, rest)) = Record::parse(body) {
        assert_eq!(body.len(), rest.len() + record::size(record.payload.len()));
        let Record { kind, flags, stream, stream_sequence, payload } = record;
        let mut again = vec![0; record::size(payload.len())];
        Record::emit_header(kind, flags, stream, stream_sequence, payload.len() as u16, &mut again)
            .expect("there is room for a header");
        again[record::HEADER_BYTES..][..payload.len()].copy_from_slice(payload);
        assert_eq!(Record::parse(&again), Ok((record, &[][..])));
        match kind {
            record::Kind::Tlp => tlp(payload),
            record::Kind::Control => message(payload),
            record::Kind::Ahead => piece(payload),
            record::Kind::Ddp => segment(payload),
        }
        body = rest;
    }
}

fn piece(bytes: &[u8]) {
    if let Some((piece, data)) = Piece::parse(bytes) {
        let mut again = piece.emit().to_vec();
        again.extend(data);
        assert_eq!(Piece::parse(&again), Some((piece, data)));
    }
}

fn segment(bytes: &[u8]) {
    let Ok((header, data)) = ddp::Header::parse(bytes) else { return };
    let mut again = vec![0; header.len()];
    assert_eq!(header.emit(&mut again), Some(header.len()));
    again.extend(data);
    assert_eq!(ddp::Header::parse(&again), Ok((header, data)));
    let mut out = [0; Terminate::MAX_BYTES];
    if let Some(read) = ReadRequest::parse(data) {
        read.emit(&mut out).expect("there is room");
        assert_eq!(ReadRequest::parse(&out[..ReadRequest::BYTES]), Some(read));
    }
    if let Some(atomic) = AtomicRequest::parse(data) {
        atomic.emit(&mut out).expect("there is room");
        assert_eq!(AtomicRequest::parse(&out[..AtomicRequest::BYTES]), Some(atomic));
        atomic.apply(atomic.compare);
    }
    if let Some(response) = AtomicResponse::parse(data) {
        response.emit(&mut out).expect("there is room");
        assert_eq!(AtomicResponse::parse(&out[..AtomicResponse::BYTES]), Some(response));
    }
    if let Some(terminate) = Terminate::parse(data) {
        let length = terminate.emit(&mut out).expect("there is room");
        assert_eq!(Terminate::parse(&out[..length]), Some(terminate));
    }
    if let Some((datagram, _)) = Datagram::parse(data) {
        datagram.emit(&mut out).expect("there is room");
        assert_eq!(Datagram::parse(&out[..Datagram::BYTES]), Some((datagram, &[][..])));
    }
    if let ddp::Place::Untagged { ulp, mo, .. } = header.place
        && let Some(verdict) = Verdict::parse(ulp, mo)
    {
        assert_eq!(Verdict::parse(verdict.fields().0, verdict.fields().1), Some(verdict));
    }
}

fn tlp(bytes: &[u8]) {
    let (header, data) = match tlp::Header::parse(bytes) {
        Ok(parsed) => parsed,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    assert_eq!(header.len() + header.data_bytes(), bytes.len());
    let _ = (header.class(), header.requester());
    assert!(header.tag() < 1024);
    let mut again = vec![0xEE; header.len()];
    assert_eq!(header.emit(&mut again), Some(header.len()));
    again.extend_from_slice(data);
    assert_eq!(tlp::Header::parse(&again), Ok((header, data)));
    match header.op {
        tlp::Op::MemRead(request) => memory(&request),
        tlp::Op::MemWrite(request) => {
            assert_eq!(data.len(), request.data_bytes());
            memory(&request);
        }
        tlp::Op::Completion(completion) => assert!((1..=4096).contains(&completion.byte_count)),
        _ => {}
    }
}

fn memory(request: &tlp::MemRequest) {
    let (lead, bytes) = request.span();
    assert!(lead < 4 && bytes >= 1 && lead + bytes <= request.data_bytes());
    let enabled = (lead..lead + bytes).filter(|&index| request.enabled(index)).count();
    assert_eq!(request.is_contiguous(), enabled == bytes);
    assert_eq!(request.is_zero_length(), enabled == 0);
    let outside = (0..lead).chain(lead + bytes..request.data_bytes() + 4);
    assert_eq!(outside.filter(|&index| request.enabled(index)).count(), 0);
    if request.is_contiguous() {
        let address = request.address + lead as u64;
        assert_eq!(tlp::MemRequest::covering(request.requester, request.tag, address, bytes), Some(*request));
    }
}

fn connection(bytes: &[u8]) {
    let mut again = [0xEE; cm::MAX_BYTES];
    if let Some(message) = cm::Message::parse(bytes) {
        let length = message.emit(&mut again).expect("there is room for a message");
        assert_eq!(cm::Message::parse(&again[..length]), Some(message));
    }
    if let Some(enquiry) = Enquiry::parse(bytes) {
        assert_eq!(Enquiry::parse(&enquiry.bytes()), Some(enquiry));
    }
}

fn message(bytes: &[u8]) {
    connection(bytes);
    let Some(message) = Message::parse(bytes) else { return };
    let mut again = [0xEE; Message::MAX_BYTES];
    let length = message.emit(&mut again).expect("there is room for a message");
    assert_eq!(length, message.len());
    assert_eq!(Message::parse(&again[..length]), Some(message));
    if let Message::Attach { name, .. } = message {
        assert!(!name.as_str().is_empty());
    }
}

fn discovery(bytes: &[u8]) {
    let mut again = [0xEE; 64 << 10];
    if let Some(heard) = Heartbeat::parse(bytes) {
        let ports: Vec<_> = heard.ports().collect();
        let devices: Vec<_> = heard.devices().map(|(_, device)| device).collect();
        let length = heard.heartbeat.emit(&ports, devices.iter(), &mut again).expect("there is room");
        let same = Heartbeat::parse(&again[..length]).expect("what was emitted");
        assert_eq!(same.heartbeat, heard.heartbeat);
        assert!(same.devices().eq(heard.devices()) && same.ports().eq(ports));
    }
    if let Some(order) = Order::parse(bytes) {
        let length = order.emit(&mut again).expect("there is room");
        assert_eq!(Order::parse(&again[..length]), Some(order));
    }
    if let Some(outcome) = Outcome::parse(bytes) {
        let length = outcome.emit(&mut again).expect("there is room");
        assert_eq!(Outcome::parse(&again[..length]), Some(outcome));
    }
    if let Some(port) = Port::parse(bytes) {
        port.emit(&mut again).expect("there is room");
        assert_eq!(Port::parse(&again), Some(port));
    }
}

fn hello(bytes: &[u8]) {
    let Some(hello) = Hello::parse(bytes) else { return };
    let mut again = [0xEE; Hello::BYTES];
    assert_eq!(hello.emit(&mut again), Some(Hello::BYTES));
    assert_eq!(again[..], bytes[..Hello::BYTES]);
}

fn close(bytes: &[u8]) {
    if let Some(reason) = CloseReason::parse(bytes) {
        assert_eq!(reason as u8, bytes[0]);
    }
}
