//! Frames, records and TLPs that nobody should have sent.

use etherslot_fuzz::Input;
use etherslot_wire::ahead::{Condition, Follow, Piece, PieceKind, Rule};
use etherslot_wire::boxes::{Admit, Behind, Join, PORTS, Reach};
use etherslot_wire::control::{AttachStatus, CloseReason, Hello, Message, Name};
use etherslot_wire::discovery::Port;
use etherslot_wire::frame::{Ack, CHECK_BYTES, Echo, Header, Kind, Sack, put_check};
use etherslot_wire::record::{self, Record};
use etherslot_wire::tlp::{
    self, AtomicKind, CfgRequest, CfgType, Completion, CplStatus, MemRequest, Op, Routing,
};
use etherslot_wire::{FunctionId, NodeId};

use crate::engine::RING;
use crate::world::{BAR_ADDRESS, DEVICE, EVIL, STREAMS};

/// What somebody who listens knows of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    last: Option<Header>,
    stream_sequences: [u16; STREAMS as usize],
}

impl Heard {
    /// A frame passes.
    pub fn note(&mut self, frame: &[u8]) {
        let Ok((header, mut body)) = Header::parse(frame) else { return };
        if self.last.is_some_and(|last| last.src_epoch != header.src_epoch) {
            self.stream_sequences = [0; STREAMS as usize];
        }
        self.last = Some(header);
        while header.kind == Kind::Data
            && let Ok((record, rest)) = Record::parse(body)
        {
            if let Some(next) = self.stream_sequences.get_mut(record.stream as usize) {
                *next = record.stream_sequence.wrapping_add(1);
            }
            body = rest;
        }
    }
}

/// Puts the check where the header says that the body ends.
pub fn seal(frame: &mut Vec<u8>) {
    if let Ok((header, body)) = Header::parse(frame) {
        let covered = header.len() + body.len();
        frame.resize(covered + CHECK_BYTES, 0);
    }
    let _ = put_check(frame, crc32c::crc32c);
}

/// `value` or something near it, or any.
fn near(input: &mut Input<'_>, value: u64) -> u64 {
    let shape = input.u8();
    let delta = u64::from(shape & 31);
    match shape >> 5 {
        0..=3 => value,
        4 => value.wrapping_add(delta),
        5 => value.wrapping_sub(delta),
        6 => value.wrapping_add(delta << 8),
        _ => input.number(),
    }
}

fn function(input: &mut Input<'_>) -> FunctionId {
    match input.u8() % 8 {
        0..=2 => FunctionId::new(3, 0, 0),
        3 | 4 => FunctionId::default(),
        5 => FunctionId::new(2, 0, 0),
        6 => FunctionId::new(1, 0, 0),
        _ => FunctionId(input.u16()),
    }
}

fn address(input: &mut Input<'_>) -> u64 {
    let offset = u64::from(input.u16());
    match input.u8() % 8 {
        0..=2 => BAR_ADDRESS + offset % 0x4000,
        3..=5 => offset,
        6 => 0xFFFF_FFFF_FEE0_0000 + offset % 16,
        _ => input.number(),
    }
}

fn memory(input: &mut Input<'_>) -> MemRequest {
    let (requester, tag, address) = (function(input), input.number() as u16 & 1023, address(input));
    let bytes = input.number() as usize % 4096 + 1;
    let covering = MemRequest::covering(requester, tag, address, bytes);
    if let Some(request) = covering.filter(|_| !input.once_in(4)) {
        return request;
    }
    let length_dw = input.number() as u16 % 1024 + 1;
    let enables = input.u8();
    let (first_be, last_be) = (enables & 15, enables >> 4);
    MemRequest { requester, tag, address: address & !3, length_dw, first_be, last_be }
}

fn operation(input: &mut Input<'_>) -> Op {
    match input.u8() % 16 {
        0..=2 => Op::MemRead(memory(input)),
        3..=5 => Op::MemWrite(memory(input)),
        kind @ 6..=8 => {
            let request = CfgRequest {
                kind: if input.flag() { CfgType::Type1 } else { CfgType::Type0 },
                requester: function(input),
                tag: input.number() as u16 & 1023,
                target: function(input),
                register: input.u16() & 0xFFC,
                first_be: input.u8() & 15,
            };
            if kind == 6 { Op::CfgRead(request) } else { Op::CfgWrite(request) }
        }
        9..=12 => {
            let (length_dw, lower_address) = (input.number() as u16 % 1025, input.u8() & 0x7F);
            let statuses = [
                CplStatus::Success,
                CplStatus::Success,
                CplStatus::UnsupportedRequest,
                CplStatus::RetryStatus,
                CplStatus::CompleterAbort,
            ];
            let data_bytes = 4 * length_dw - u16::from(lower_address & 3).min(4 * length_dw);
            Op::Completion(Completion {
                completer: function(input),
                status: input.one_of(&statuses),
                byte_count: (near(input, u64::from(data_bytes.max(1))) as u16).clamp(1, 4096),
                requester: function(input),
                tag: input.number() as u16 & 1023,
                lower_address,
                length_dw,
            })
        }
        13 => Op::Atomic {
            kind: input.one_of(&[AtomicKind::FetchAdd, AtomicKind::Swap, AtomicKind::CompareSwap]),
            requester: function(input),
            tag: input.u16() & 1023,
            address: address(input) & !15,
            length_dw: 1 << (input.u8() % 4),
        },
        _ => Op::Message {
            routing: input.one_of(&[Routing::ToRoot, Routing::Local, Routing::FromRoot, Routing::ById]),
            requester: function(input),
            tag: input.u8(),
            code: input.one_of(&[0x20, 0x24, 0x30, 0x31, 0x33, 0x7F, 0x14, 0x50]),
            fields: input.u64().to_be_bytes(),
            length_dw: input.number() as u16 % 1025,
        },
    }
}

/// A TLP, most often one that can be parsed.
pub fn tlp(input: &mut Input<'_>) -> Vec<u8> {
    let form = input.u8();
    let mut header = tlp::Header::new(operation(input));
    header.poisoned = form & 7 == 7;
    let mut bytes = vec![0; header.len() + header.data_bytes()];
    let _ = header.emit(&mut bytes);
    let data = input.bytes((form >> 6) as usize * 4);
    let room = bytes.len() - header.len();
    let start = bytes.len() - room;
    bytes[start..][..data.len().min(room)].copy_from_slice(&data[..data.len().min(room)]);
    if form & 0x38 == 0x38 {
        let at = input.below(bytes.len());
        bytes[at] = input.u8();
    }
    bytes
}

/// A control message, most often one that can be parsed.
pub fn message(input: &mut Input<'_>) -> Vec<u8> {
    let name = if input.once_in(8) { Name::new("another") } else { Name::new(DEVICE) };
    let name = name.expect("a name of letters");
    let message = match input.u8() % 17 {
        0..=2 => Message::Attach {
            name,
            stream: near(input, 1) as u16,
            max_payload_bytes: near(input, 4096) as u16,
            max_read_request_bytes: near(input, 4096) as u16,
        },
        3 => Message::Attached {
            stream: near(input, 1) as u16,
            status: input.one_of(&[AttachStatus::Attached, AttachStatus::Busy, AttachStatus::Unknown]),
            port: function(input),
        },
        4 => Message::Detach,
        5 => Message::Detached,
        6 => Message::HotReset,
        7 => Message::HotResetDone,
        8 => Message::Withdraw { rule: input.u8() % 4 },
        9 => Message::Domain { domain: u16::from(input.u8() % 3) },
        10 => Message::ReadAhead(rule(input)),
        12 => Message::Reach(reach(input)),
        13 => Message::Reached { all: input.flag() },
        14 => Message::Admit(Admit {
            domain: u16::from(input.u8() % 3),
            node: node(input),
            epoch: epoch(input),
            stream: input.one_of(&[1, 1, 2, STREAMS]),
            function: function(input),
        }),
        15 => Message::Join(Join {
            stream: input.one_of(&[1, 1, 2, STREAMS]),
            host: node(input),
            epoch: epoch(input),
            of_stream: input.one_of(&[1, 1, 2, STREAMS]),
        }),
        16 => Message::Recall { window_ms: input.one_of(&[0, 0, 1, u16::MAX]) },
        _ => Message::ReadAhead(rule(input)),
    };
    let mut bytes = vec![0; Message::MAX_BYTES];
    let length = message.emit(&mut bytes).unwrap_or(0);
    bytes.truncate(length);
    if input.once_in(8) {
        let at = input.below(bytes.len());
        bytes[at] = input.u8();
    }
    bytes
}

/// Whoever a message may be about.
fn node(input: &mut Input<'_>) -> NodeId {
    NodeId([input.one_of(&[2, 2, EVIL, EVIL, 1, 9]); 16])
}

/// Of a session that a host says it has with a box: whoever says it is not asked for more.
fn epoch(input: &mut Input<'_>) -> u32 {
    if input.once_in(8) { input.u32() } else { input.one_of(&[7, 7, 7, 1 << 16, 2 << 16]) }
}

/// What lies in another box, most often where devices read and write.
fn reach(input: &mut Input<'_>) -> Reach {
    let window = input.u8() % 65;
    let address = input.one_of(&[0, 0x1000, BAR_ADDRESS, u64::MAX - 0xFFF]);
    let usual = input.one_of(&[0x1000, 0x10_0000]);
    let bytes = near(input, usual);
    let mut ports = [None; PORTS];
    for port in ports.iter_mut().take(1 + input.below(PORTS)) {
        *port = Some(Port::Ring(input.one_of(&[EVIL, EVIL, 1, 9]).into()));
    }
    let behind = Behind { address, bytes, node: node(input), ports };
    Reach { window, behind: (!input.once_in(4)).then_some(behind) }
}

/// A rule of read-ahead, most often one that a host takes.
fn rule(input: &mut Input<'_>) -> Rule {
    let doorbell = if input.once_in(4) { input.u16().into() } else { input.one_of(&[24, 28, 64]) };
    let ring = if input.once_in(8) { input.number() } else { u64::from(input.u8()) << 4 };
    let mut rule =
        Rule::new(input.u8() % 4, input.once_in(8).into(), doorbell, ring, 16, near(input, 8) as u32);
    rule.generation = near(input, 1) as u16;
    for _ in 0..input.below(3) {
        let mask = input.one_of(&[0xFF, 0xFFFF, u32::MAX, 0]);
        let when = Condition { offset: input.u8().into(), mask: input.u8().into(), value: 0 };
        rule.follow(Follow {
            flags: input.u8() & 7,
            when: [when; 2],
            conditions: input.u8() % 3,
            first: input.one_of(&[0, 1, 8]),
            second: input.one_of(&[0, 8]),
            length: input.one_of(&[8, 12]),
            mask,
            bias: near(input, 1) as u16,
            shift: input.u8() % 18,
            max_bytes: near(input, 8192) as u32,
        });
    }
    rule
}

/// A piece read ahead, most often one that fits the device's own rule.
fn piece(input: &mut Input<'_>) -> Vec<u8> {
    let index = input.u8() % 9;
    let kind = input.one_of(&[PieceKind::Entries, PieceKind::Entries, PieceKind::Data, PieceKind::List]);
    let address =
        if kind == PieceKind::Entries { RING + 16 * u64::from(index) } else { u64::from(input.u8()) << 8 };
    let generation = near(input, 1) as u16;
    let piece = Piece { rule: input.u8() & 1, generation, kind, index: index.into(), address };
    let bytes = input.one_of(&[16, 32, 48, 17, 0, 4096]);
    let mut payload = piece.emit().to_vec();
    payload.resize(Piece::BYTES + bytes, input.u8());
    payload
}

/// The payload of a record, and of which kind and stream it pretends to be.
pub fn payload(input: &mut Input<'_>) -> (record::Kind, u16, Vec<u8>) {
    let stream = input.one_of(&[1, 1, 1, 0, 0, 2, STREAMS - 1, STREAMS]);
    match input.u8() % 9 {
        8 => (record::Kind::Ahead, stream, piece(input)),
        0..=4 => (record::Kind::Tlp, stream, tlp(input)),
        5 | 6 => (record::Kind::Control, stream, message(input)),
        _ => {
            let kind = input.one_of(&[record::Kind::Tlp, record::Kind::Control, record::Kind::Ddp]);
            let count = input.u8() as usize;
            (kind, stream, input.bytes(count).to_vec())
        }
    }
}

fn records(input: &mut Input<'_>, heard: &Heard) -> Vec<u8> {
    let mut body = Vec::new();
    let mut sequences = heard.stream_sequences;
    for _ in 0..=input.below(4) {
        let (kind, stream, payload) = payload(input);
        let expected = sequences.get(stream as usize).copied().unwrap_or(0);
        let sequence = near(input, u64::from(expected)) as u16;
        if let Some(next) = sequences.get_mut(stream as usize) {
            *next = sequence.wrapping_add(1);
        }
        let flags = if input.once_in(4) { input.u8() & 3 } else { 3 };
        let at = body.len();
        body.resize(at + record::size(payload.len()), 0);
        let length = payload.len() as u16;
        let _ = Record::emit_header(kind, flags, stream, sequence, length, &mut body[at..]);
        body[at + record::HEADER_BYTES..][..payload.len()].copy_from_slice(&payload);
    }
    body
}

fn hello(input: &mut Input<'_>) -> Vec<u8> {
    let hello = Hello {
        node: NodeId([input.one_of(&[1, 2, 3, 9]); 16]),
        max_frame_bytes: near(input, 1500) as u16,
        receive_window_frames: near(input, 32) as u16,
        features: input.u8().into(),
    };
    let mut body = vec![0; Hello::BYTES];
    let _ = hello.emit(&mut body);
    body
}

/// A frame that follows those that were heard, in the name of their sender.
pub fn frame(input: &mut Input<'_>, heard: &Heard) -> Vec<u8> {
    let kind = input.one_of(&[
        Kind::Data,
        Kind::Data,
        Kind::Data,
        Kind::Data,
        Kind::Ack,
        Kind::Hello,
        Kind::HelloAck,
        Kind::Close,
    ]);
    let body = match kind {
        Kind::Data => records(input, heard),
        Kind::Hello | Kind::HelloAck => hello(input),
        Kind::Close => vec![CloseReason::Shutdown as u8],
        Kind::Ack => Vec::new(),
    };
    let last = heard.last;
    let sequence = last.map_or(0, |last| last.sequence);
    let number = last.map_or(0, |last| last.packet_number);
    let ack = last.and_then(|last| last.ack);
    let ack = ack.unwrap_or(Ack { next: 0, credit: 16, receiver_cap_bytes: u32::MAX });
    let fields = input.u8();
    let mut frame_header = Header {
        kind,
        flags: input.u8() & 0x18,
        body_len: body.len() as u16,
        dst_epoch: near(input, last.map_or(0, |last| last.dst_epoch).into()) as u32,
        src_epoch: near(input, last.map_or(1, |last| last.src_epoch).into()) as u32,
        sequence: near(input, u64::from(sequence.wrapping_add(u32::from(fields >> 4)))) as u32,
        packet_number: near(input, number.wrapping_add(1)),
        tx_ts_ns: last.map_or(0, |last| last.tx_ts_ns),
        ack: None,
        echo: None,
        sack: None,
    };
    if fields & 1 != 0 {
        let next = near(input, u64::from(ack.next)) as u32;
        let credit = near(input, u64::from(ack.credit)) as u32;
        frame_header.ack =
            Some(Ack { next, credit, receiver_cap_bytes: near(input, u64::from(u32::MAX)) as u32 });
    }
    if fields & 2 != 0 {
        frame_header.echo = Some(Echo { ts_ns: input.u32(), hold_ns: input.number() as u32 });
    }
    if fields & 4 != 0 {
        let mut sack = Sack::new(near(input, u64::from(ack.next)) as u32);
        let bits = input.bytes(28);
        sack.bitmap[..bits.len()].copy_from_slice(bits);
        frame_header.sack = Some(sack);
    }
    let mut frame = vec![0; frame_header.len()];
    let _ = frame_header.emit(&mut frame);
    frame.extend(body);
    seal(&mut frame);
    frame
}

/// Changes a frame in a few places.
pub fn mutate(input: &mut Input<'_>, frame: &mut Vec<u8>) {
    for _ in 0..=input.below(4) {
        if frame.is_empty() {
            return;
        }
        match input.u8() % 8 {
            0 => {
                let at = input.below(frame.len().min(80));
                frame[at] ^= 1 << (input.u8() % 8);
            }
            1 | 2 => {
                let (at, bytes) = input.one_of(&[
                    (2, 2),
                    (4, 4),
                    (8, 4),
                    (12, 4),
                    (20, 4),
                    (24, 4),
                    (40, 4),
                    (44, 4),
                    (48, 4),
                ]);
                if let Some(field) = frame.get_mut(at..at + bytes) {
                    let value = field.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
                    let value = near(input, value).to_be_bytes();
                    field.copy_from_slice(&value[8 - bytes..]);
                }
            }
            3 => frame.truncate(input.number() as usize % frame.len()),
            _ => mutate_record(input, frame),
        }
    }
}

/// Changes a byte of one record, of its header or of what it carries.
fn mutate_record(input: &mut Input<'_>, frame: &mut [u8]) {
    let Ok((header, body)) = Header::parse(frame) else { return };
    let mut rest = body;
    let mut places = Vec::new();
    while let Ok((record, behind)) = Record::parse(rest) {
        let at = header.len() + body.len() - rest.len();
        places.push((at, record::HEADER_BYTES + record.payload.len()));
        rest = behind;
    }
    if places.is_empty() {
        return;
    }
    let (at, bytes) = input.one_of(&places);
    let offset = if input.flag() { input.below(bytes.min(28)) } else { input.below(bytes) };
    let byte = input.u8();
    frame[at + offset] = if input.flag() { byte } else { frame[at + offset] ^ 1 << (byte % 8) };
}
