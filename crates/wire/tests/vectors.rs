//! The vectors in `vectors/`, which are derived from the specifications apart from this crate, hold in both directions.

use std::collections::BTreeMap;
use std::path::Path;

use crc32c::crc32c;
use etherslot_wire::ahead::{CONDITIONS, Condition, Follow, Piece, PieceKind, Rule};
use etherslot_wire::control::{AttachStatus, CloseReason, Hello, Message, Name};
use etherslot_wire::discovery::Group;
use etherslot_wire::frame::{self, Ack, Echo, Sack};
use etherslot_wire::record::{self, Record};
use etherslot_wire::tlp::{
    self, AtomicKind, CfgRequest, CfgType, Completion, CplStatus, Header, MemRequest, Op, Routing,
};
use etherslot_wire::{FunctionId, NodeId};
use serde_json::Value;

#[path = "vectors/ddp.rs"]
mod ddp;
#[path = "vectors/discovery.rs"]
mod discovery;

/// One entry of a file: its name for messages, its bytes, and the entry.
struct Vector {
    name: String,
    bytes: Vec<u8>,
    entry: Value,
}

impl Vector {
    fn error(&self) -> Option<&str> {
        self.entry.get("error").map(|error| error.as_str().expect("an error is a text"))
    }

    fn fields(&self) -> Fields<'_> {
        Fields(&self.entry["fields"])
    }

    fn is_canonical(&self) -> bool {
        self.entry["canonical"].as_bool().expect("a good vector says whether it is canonical")
    }

    /// Holds what was emitted against the vector's bytes.
    fn check_emitted(&self, emitted: &[u8]) {
        assert_eq!(emitted == self.bytes, self.is_canonical(), "{}: emitted {emitted:02x?}", self.name);
    }
}

fn vectors(file: &str) -> Vec<Vector> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let entries: Vec<Value> = serde_json::from_str(&text).expect("a vector file is an array");
    entries
        .into_iter()
        .map(|entry| Vector {
            name: entry["name"].as_str().expect("a name").to_owned(),
            bytes: hex(&entry["bytes"]),
            entry,
        })
        .collect()
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("bytes are a text of hexadecimal digits");
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal"))
        .collect()
}

/// The decoded fields of a vector.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a Value);

impl<'a> Fields<'a> {
    fn number<T: TryFrom<u64>>(self, name: &str) -> T {
        let value = self.0[name].as_u64().unwrap_or_else(|| panic!("{name} is not a number in {}", self.0));
        T::try_from(value).unwrap_or_else(|_| panic!("{name} is too large in {}", self.0))
    }

    fn wide(self, name: &str) -> u64 {
        let digits = self.text(name).strip_prefix("0x").expect("64-bit values are written 0x...");
        u64::from_str_radix(digits, 16).expect("hexadecimal")
    }

    fn text(self, name: &str) -> &'a str {
        self.0[name].as_str().unwrap_or_else(|| panic!("{name} is not a text in {}", self.0))
    }

    fn flag(self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or_else(|| panic!("{name} is not true or false in {}", self.0))
    }

    fn bytes(self, name: &str) -> Vec<u8> {
        hex(&self.0[name])
    }

    /// `bb:dd.f`, hexadecimal.
    fn id(self, name: &str) -> FunctionId {
        let part = |range| u8::from_str_radix(&self.text(name)[range], 16).expect("bb:dd.f");
        FunctionId::new(part(0..2), part(3..5), part(6..7))
    }

    fn part(self, name: &str) -> Option<Self> {
        Some(&self.0[name]).filter(|value| !value.is_null()).map(Fields)
    }
}

fn frame_kind(text: &str) -> frame::Kind {
    match text {
        "hello" => frame::Kind::Hello,
        "hello_ack" => frame::Kind::HelloAck,
        "data" => frame::Kind::Data,
        "ack" => frame::Kind::Ack,
        "close" => frame::Kind::Close,
        other => panic!("frame kind {other}"),
    }
}

fn frame_header(fields: Fields<'_>) -> frame::Header {
    let flag = |name, bit| if fields.flag(name) { bit } else { 0 };
    frame::Header {
        kind: frame_kind(fields.text("kind")),
        flags: flag("ack_now", frame::flag::ACK_NOW)
            | flag("retransmission", frame::flag::RETRANSMISSION)
            | flag("congested", frame::flag::CONGESTED)
            | flag("header_check", frame::flag::HEADER_CHECK),
        body_len: fields.bytes("body").len() as u16,
        dst_epoch: fields.number("dst_epoch"),
        src_epoch: fields.number("src_epoch"),
        sequence: fields.number("sequence"),
        packet_number: fields.wide("packet_number"),
        tx_ts_ns: fields.number("tx_ts_ns"),
        ack: fields.part("ack").map(|ack| Ack {
            next: ack.number("next"),
            credit: ack.number("credit"),
            receiver_cap_bytes: ack.number("receiver_cap_bytes"),
        }),
        echo: fields
            .part("echo")
            .map(|echo| Echo { ts_ns: echo.number("ts_ns"), hold_ns: echo.number("hold_ns") }),
        sack: fields.part("sack").map(|fields| {
            let mut sack = Sack::new(fields.number("base"));
            for index in fields.0["marked"].as_array().expect("marked is an array") {
                sack.mark(index.as_u64().and_then(|index| u32::try_from(index).ok()).expect("an index"));
            }
            sack
        }),
    }
}

#[test]
fn frames_hold_in_both_directions() {
    for vector in vectors("frames.json") {
        let name = &vector.name;
        let parsed = frame::Header::parse_checked(&vector.bytes, crc32c);
        if let Some(expected) = vector.error() {
            let error = match parsed.expect_err(name) {
                frame::Error::Truncated => "truncated",
                frame::Error::Version(_) => "version",
                frame::Error::Kind(_) => "kind",
                frame::Error::Flags(_) => "flags",
                frame::Error::Check => "check",
            };
            assert_eq!(error, expected, "{name}");
            continue;
        }
        let header = frame_header(vector.fields());
        let body = vector.fields().bytes("body");
        assert_eq!(parsed, Ok((header, &body[..])), "{name}");
        let mut emitted = vec![0xEE; header.len()];
        assert_eq!(header.emit(&mut emitted), Some(header.len()), "{name}");
        emitted.extend(&body);
        emitted.extend([0; frame::CHECK_BYTES]);
        assert_eq!(frame::put_check(&mut emitted, crc32c), Some(()), "{name}");
        vector.check_emitted(&emitted);
    }
}

fn record_kind(text: &str) -> record::Kind {
    match text {
        "tlp" => record::Kind::Tlp,
        "control" => record::Kind::Control,
        "ddp" => record::Kind::Ddp,
        "ahead" => record::Kind::Ahead,
        other => panic!("record kind {other}"),
    }
}

/// All records of a body.
fn records(mut body: &[u8]) -> Result<Vec<Record<'_>>, record::Error> {
    let mut found = Vec::new();
    while !body.is_empty() {
        let (record, rest) = Record::parse(body)?;
        found.push(record);
        body = rest;
    }
    Ok(found)
}

#[test]
fn records_hold_in_both_directions() {
    for vector in vectors("records.json") {
        let name = &vector.name;
        let found = records(&vector.bytes);
        if let Some(expected) = vector.error() {
            let error = match found.expect_err(name) {
                record::Error::Truncated => "truncated",
                record::Error::Kind(_) => "kind",
                record::Error::Flags(_) => "flags",
            };
            assert_eq!(error, expected, "{name}");
            continue;
        }
        let mut emitted = Vec::new();
        let mut expected = Vec::new();
        let entries = vector.entry["records"].as_array().expect("records is an array");
        let payloads: Vec<_> = entries.iter().map(|entry| Fields(entry).bytes("payload")).collect();
        for (fields, payload) in entries.iter().map(Fields).zip(&payloads) {
            let record = Record {
                kind: record_kind(fields.text("kind")),
                flags: if fields.flag("first") { record::FIRST } else { 0 }
                    | if fields.flag("last") { record::LAST } else { 0 },
                stream: fields.number("stream"),
                stream_sequence: fields.number("stream_sequence"),
                payload,
            };
            let mut header = [0xEE; record::HEADER_BYTES];
            let Record { kind, flags, stream, stream_sequence, .. } = record;
            Record::emit_header(kind, flags, stream, stream_sequence, payload.len() as u16, &mut header)
                .expect(name);
            let start = emitted.len();
            emitted.extend(header);
            emitted.extend(payload);
            emitted.resize(start + record::size(payload.len()), 0);
            expected.push(record);
        }
        assert_eq!(found, Ok(expected), "{name}");
        vector.check_emitted(&emitted);
    }
}

#[test]
fn control_messages_hold_in_both_directions() {
    for vector in vectors("control.json") {
        let name = &vector.name;
        let bytes = &vector.bytes[..];
        let refused = vector.error().is_some();
        let fields = vector.fields();
        let mut emitted = [0xEE; Message::MAX_BYTES];
        let emitted_bytes = match vector.entry["decoder"].as_str().expect("a decoder") {
            "hello" if refused => {
                assert_eq!(Hello::parse(bytes), None, "{name}");
                continue;
            }
            "hello" => {
                let hello = Hello {
                    node: NodeId(fields.bytes("node").try_into().expect("16 bytes")),
                    max_frame_bytes: fields.number("max_frame_bytes"),
                    receive_window_frames: fields.number("receive_window_frames"),
                    features: fields.number("features"),
                };
                assert_eq!(Hello::parse(bytes), Some(hello), "{name}");
                hello.emit(&mut emitted)
            }
            "close" if refused => {
                assert_eq!(CloseReason::parse(bytes), None, "{name}");
                continue;
            }
            "close" => {
                let reason = match fields.text("reason") {
                    "shutdown" => CloseReason::Shutdown,
                    "protocol" => CloseReason::Protocol,
                    "refused" => CloseReason::Refused,
                    other => panic!("reason {other}"),
                };
                assert_eq!(CloseReason::parse(bytes), Some(reason), "{name}");
                emitted[0] = reason as u8;
                Some(1)
            }
            _ if refused => {
                assert_eq!(Message::parse(bytes), None, "{name}");
                continue;
            }
            _ => {
                let message = control_message(fields);
                assert_eq!(Message::parse(bytes), Some(message), "{name}");
                message.emit(&mut emitted)
            }
        };
        vector.check_emitted(&emitted[..emitted_bytes.expect(name)]);
    }
}

fn control_message(fields: Fields<'_>) -> Message {
    match fields.text("message") {
        "attach" => Message::Attach {
            name: Name::new(fields.text("name")).expect("a name"),
            stream: fields.number("stream"),
            max_payload_bytes: fields.number("max_payload_bytes"),
            max_read_request_bytes: fields.number("max_read_request_bytes"),
        },
        "attached" => Message::Attached {
            stream: fields.number("stream"),
            status: match fields.text("status") {
                "attached" => AttachStatus::Attached,
                "unknown" => AttachStatus::Unknown,
                "busy" => AttachStatus::Busy,
                "no_room" => AttachStatus::NoRoom,
                "not_assigned" => AttachStatus::NotAssigned,
                other => panic!("status {other}"),
            },
            port: fields.id("port"),
        },
        "detach" => Message::Detach,
        "detached" => Message::Detached,
        "hot_reset" => Message::HotReset,
        "hot_reset_done" => Message::HotResetDone,
        "read_ahead" => Message::ReadAhead(ahead_rule(fields)),
        "withdraw" => Message::Withdraw { rule: fields.number("rule") },
        "member" => Message::Member { group: Group::new(fields.number("group")) },
        "recall" => Message::Recall { window_ms: fields.number("window_ms") },
        "keep" => Message::Keep,
        "domain" => Message::Domain { domain: fields.number("domain") },
        "reach" => Message::Reach(discovery::reach(fields)),
        "reached" => Message::Reached { all: fields.flag("all") },
        "admit" => Message::Admit(discovery::admit(fields)),
        "join" => Message::Join(discovery::join(fields)),
        other => panic!("message {other}"),
    }
}

fn ahead_rule(fields: Fields<'_>) -> Rule {
    let (rule, bar, doorbell) = (fields.number("rule"), fields.number("bar"), fields.number("doorbell"));
    let (entry_bytes, entries) = (fields.number("entry_bytes"), fields.number("entries"));
    let mut rule = Rule::new(rule, bar, doorbell, fields.wide("ring"), entry_bytes, entries);
    (rule.generation, rule.mask) = (fields.number("generation"), fields.number("mask"));
    for follow in fields.0["follows"].as_array().expect("follows are an array").iter().map(Fields) {
        let conditions = follow.0["when"].as_array().expect("conditions are an array");
        let mut when = [Condition::default(); CONDITIONS];
        for (place, condition) in when.iter_mut().zip(conditions.iter().map(Fields)) {
            let (offset, mask) = (condition.number("offset"), condition.number("mask"));
            *place = Condition { offset, mask, value: condition.number("value") };
        }
        let added = rule.follow(Follow {
            flags: follow.number("flags"),
            when,
            conditions: conditions.len() as u8,
            first: follow.number("first"),
            second: follow.number("second"),
            length: follow.number("length"),
            mask: follow.number("mask"),
            bias: follow.number("bias"),
            shift: follow.number("shift"),
            max_bytes: follow.number("max_bytes"),
        });
        assert!(added);
    }
    rule
}

#[test]
fn pieces_hold_in_both_directions() {
    for vector in vectors("pieces.json") {
        let name = &vector.name;
        if vector.error().is_some() {
            assert_eq!(Piece::parse(&vector.bytes), None, "{name}");
            continue;
        }
        let fields = vector.fields();
        let piece = Piece {
            rule: fields.number("rule"),
            generation: fields.number("generation"),
            kind: match fields.text("kind") {
                "entries" => PieceKind::Entries,
                "data" => PieceKind::Data,
                "list" => PieceKind::List,
                other => panic!("piece {other}"),
            },
            index: fields.number("index"),
            address: fields.wide("address"),
        };
        let data = fields.bytes("data");
        assert_eq!(Piece::parse(&vector.bytes), Some((piece, &data[..])), "{name}");
        let mut emitted = piece.emit().to_vec();
        emitted.extend(&data);
        vector.check_emitted(&emitted);
    }
}

fn mem_request(fields: Fields<'_>) -> MemRequest {
    MemRequest {
        requester: fields.id("requester"),
        tag: fields.number("tag"),
        address: fields.wide("address"),
        length_dw: fields.number("length_dw"),
        first_be: fields.number("first_be"),
        last_be: fields.number("last_be"),
    }
}

fn cfg_request(kind: CfgType, fields: Fields<'_>) -> CfgRequest {
    CfgRequest {
        kind,
        requester: fields.id("requester"),
        tag: fields.number("tag"),
        target: fields.id("target"),
        register: fields.number("register"),
        first_be: fields.number("first_be"),
    }
}

fn tlp_header(fields: Fields<'_>) -> Header {
    let length_dw = (fields.bytes("data").len() / 4) as u16;
    let atomic = |kind| Op::Atomic {
        kind,
        requester: fields.id("requester"),
        tag: fields.number("tag"),
        address: fields.wide("address"),
        length_dw,
    };
    let op = match fields.text("type") {
        "MRd" => Op::MemRead(mem_request(fields)),
        "MWr" => Op::MemWrite(mem_request(fields)),
        "CfgRd0" => Op::CfgRead(cfg_request(CfgType::Type0, fields)),
        "CfgRd1" => Op::CfgRead(cfg_request(CfgType::Type1, fields)),
        "CfgWr0" => Op::CfgWrite(cfg_request(CfgType::Type0, fields)),
        "CfgWr1" => Op::CfgWrite(cfg_request(CfgType::Type1, fields)),
        "FetchAdd" => atomic(AtomicKind::FetchAdd),
        "Swap" => atomic(AtomicKind::Swap),
        "CAS" => atomic(AtomicKind::CompareSwap),
        "Cpl" | "CplD" => Op::Completion(Completion {
            completer: fields.id("completer"),
            status: match fields.text("status") {
                "SC" => CplStatus::Success,
                "UR" => CplStatus::UnsupportedRequest,
                "RRS" => CplStatus::RetryStatus,
                "CA" => CplStatus::CompleterAbort,
                other => panic!("status {other}"),
            },
            byte_count: fields.number("byte_count"),
            requester: fields.id("requester"),
            tag: fields.number("tag"),
            lower_address: fields.number("lower_address"),
            length_dw,
        }),
        "Msg" | "MsgD" => Op::Message {
            routing: match fields.text("routing") {
                "to_root" => Routing::ToRoot,
                "by_address" => Routing::ByAddress,
                "by_id" => Routing::ById,
                "from_root" => Routing::FromRoot,
                "local" => Routing::Local,
                "gathered" => Routing::Gathered,
                other => panic!("routing {other}"),
            },
            requester: fields.id("requester"),
            tag: fields.number("tag"),
            code: fields.number("code"),
            fields: fields.bytes("fields").try_into().expect("8 bytes"),
            length_dw,
        },
        other => panic!("type {other}"),
    };
    Header {
        traffic_class: fields.number("tc"),
        attributes: fields.number("attr"),
        poisoned: fields.flag("ep"),
        op,
    }
}

#[test]
fn tlps_hold_in_both_directions() {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for vector in vectors("tlps.json") {
        let name = &vector.name;
        let parsed = Header::parse(&vector.bytes);
        if let Some(expected) = vector.error() {
            let error = match parsed.expect_err(name) {
                tlp::Error::Length => "length",
                tlp::Error::Prefix => "prefix",
                tlp::Error::Digest => "digest",
                tlp::Error::Unsupported(_) => "unsupported",
                tlp::Error::ByteEnables => "byte_enables",
                tlp::Error::Address => "address",
                tlp::Error::Reserved => "reserved",
            };
            assert_eq!(error, expected, "{name}");
            *seen.entry(error.to_owned()).or_default() += 1;
            continue;
        }
        let fields = vector.fields();
        let (header, data) = (tlp_header(fields), fields.bytes("data"));
        assert_eq!(parsed, Ok((header, &data[..])), "{name}");
        assert_eq!(header.data_bytes(), data.len(), "{name}");
        let mut emitted = vec![0xEE; header.len()];
        assert_eq!(header.emit(&mut emitted), Some(header.len()), "{name}");
        emitted.extend(&data);
        vector.check_emitted(&emitted);
        *seen.entry(format!("{} {}DW", fields.text("type"), header.len() / 4)).or_default() += 1;
    }
    // A vector file that loses a kind would pass unseen otherwise.
    let kinds = [
        "MRd 3DW",
        "MRd 4DW",
        "MWr 3DW",
        "MWr 4DW",
        "FetchAdd 3DW",
        "FetchAdd 4DW",
        "Swap 3DW",
        "Swap 4DW",
        "CAS 3DW",
        "CAS 4DW",
        "CfgRd0 3DW",
        "CfgRd1 3DW",
        "CfgWr0 3DW",
        "CfgWr1 3DW",
        "Cpl 3DW",
        "CplD 3DW",
        "Msg 4DW",
        "MsgD 4DW",
    ];
    let errors = ["length", "prefix", "digest", "unsupported", "byte_enables", "address", "reserved"];
    for kind in kinds.iter().chain(&errors) {
        assert!(seen.contains_key(*kind), "no vector of {kind}");
    }
}

#[test]
fn the_span_of_a_memory_request_is_what_its_byte_enables_say() {
    for vector in vectors("tlps.json").iter().filter(|vector| vector.error().is_none()) {
        let fields = vector.fields();
        if !matches!(fields.text("type"), "MRd" | "MWr") {
            continue;
        }
        let request = mem_request(fields);
        let name = &vector.name;
        assert_eq!(request.span(), (fields.number("span_offset"), fields.number("span_bytes")), "{name}");
        assert_eq!(request.is_contiguous(), fields.flag("contiguous"), "{name}");
    }
}
