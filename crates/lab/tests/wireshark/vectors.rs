//! The dissector shows every vector of `vectors/` as the crate `wire` reads it, refuses those that it refuses, and has its constants.

use std::collections::BTreeMap;

use etherslot_lab::Run;
use etherslot_wire::control::{Hello, NAME_BYTES};
use etherslot_wire::{ahead, ddp, discovery, frame, handshake, record};
use serde_json::Value;

use crate::tshark::{Link, Row, folder, read, write};

#[test]
fn constants_are_those_of_the_crate() {
    let text = std::fs::read_to_string(folder().join("etherslot/fields.lua")).unwrap();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    for line in text.lines().skip_while(|line| !line.contains("local C = {")).skip(1) {
        let Some((name, value)) = line.trim().trim_end_matches(',').split_once(" = ") else { break };
        let number = match value.strip_prefix("0x") {
            Some(hex) => usize::from_str_radix(hex, 16),
            None => value.parse(),
        };
        known.insert(name, number.unwrap());
    }
    let expected = BTreeMap::from([
        ("ETHERTYPE", frame::ETHERTYPE as usize),
        ("VERSION", frame::VERSION as usize),
        ("HEADER_BYTES", frame::HEADER_BYTES),
        ("SACK_BYTES", frame::SACK_BYTES),
        ("SACK_BITS", frame::SACK_BITS as usize),
        ("CHECK_BYTES", frame::CHECK_BYTES),
        ("TAG_BYTES", frame::TAG_BYTES),
        ("MIN_FRAME_BYTES", frame::MIN_FRAME_BYTES),
        ("MAX_FRAME_BYTES", frame::MAX_FRAME_BYTES),
        ("HANDSHAKE_KIND", handshake::KIND as usize),
        ("HANDSHAKE_HEADER_BYTES", handshake::HEADER_BYTES),
        ("HANDSHAKE_TAG_BYTES", handshake::TAG_BYTES),
        ("COOKIE_BYTES", handshake::COOKIE_BYTES),
        ("DISCOVERY_KIND", discovery::KIND as usize),
        ("DISCOVERY_HEADER_BYTES", discovery::HEADER_BYTES),
        ("MAX_LINKS", discovery::MAX_LINKS),
        ("MAX_DEVICES", discovery::MAX_DEVICES),
        ("MAX_GROUP", discovery::Group::MAX as usize),
        ("PORT_BYTES", discovery::Port::BYTES),
        ("DEVICE_BYTES", discovery::Device::BYTES),
        ("ORDER_BYTES", discovery::Order::BYTES),
        ("OUTCOME_BYTES", discovery::Outcome::BYTES),
        ("RECORD_HEADER_BYTES", record::HEADER_BYTES),
        ("MAX_RECORD_BYTES", record::MAX_PAYLOAD_BYTES),
        ("HELLO_BYTES", Hello::BYTES),
        ("NAME_BYTES", NAME_BYTES),
        ("SERIAL_BYTES", discovery::Serial::BYTES),
        ("RULES", ahead::RULES),
        ("FOLLOWS", ahead::FOLLOWS),
        ("CONDITIONS", ahead::CONDITIONS),
        ("MAX_ENTRIES", ahead::MAX_ENTRIES as usize),
        ("MAX_FOLLOW_BYTES", ahead::MAX_FOLLOW_BYTES as usize),
        ("DDP_TAGGED_BYTES", ddp::TAGGED_BYTES),
        ("DDP_UNTAGGED_BYTES", ddp::UNTAGGED_BYTES),
        ("PIECE_BYTES", ahead::Piece::BYTES),
        ("MAX_PIECE_BYTES", ahead::MAX_BYTES),
    ]);
    assert_eq!(known, expected);
}

/// What a vector's field is called in the dissector.
type Names = &'static [(&'static str, &'static str)];

const FRAME: Names = &[
    ("dst_epoch", "dst_epoch"),
    ("src_epoch", "src_epoch"),
    ("sequence", "sequence"),
    ("packet_number", "packet_number"),
    ("tx_ts_ns", "tx_ts"),
    ("ack_now", "flags.ack_now"),
    ("retransmission", "flags.retransmission"),
    ("congested", "flags.congested"),
    ("header_check", "flags.header_check"),
    ("ack.next", "ack"),
    ("ack.credit", "credit"),
    ("ack.receiver_cap_bytes", "cap"),
    ("echo.ts_ns", "echo_ts"),
    ("echo.hold_ns", "hold"),
    ("sack.base", "sack.base"),
];
const TLP: Names = &[
    ("type", "tlp.type"),
    ("tc", "tlp.tc"),
    ("attr", "tlp.attr"),
    ("requester", "tlp.requester"),
    ("completer", "tlp.completer"),
    ("tag", "tlp.tag"),
    ("address", "tlp.address"),
    ("length_dw", "tlp.length"),
    ("first_be", "tlp.first_be"),
    ("last_be", "tlp.last_be"),
    ("byte_count", "tlp.byte_count"),
    ("lower_address", "tlp.lower_address"),
    ("target", "tlp.target"),
    ("register", "tlp.register"),
    ("code", "tlp.code"),
    ("fields", "tlp.fields"),
    ("data", "tlp.data"),
];
const PIECE: Names = &[
    ("rule", "ahead.rule"),
    ("generation", "ahead.generation"),
    ("index", "ahead.index"),
    ("address", "ahead.address"),
    ("data", "ahead.data"),
];
const SEGMENT: Names = &[
    ("qp", "ddp.qp"),
    ("last", "ddp.last"),
    ("stag", "ddp.stag"),
    ("to", "ddp.to"),
    ("ulp", "ddp.ulp"),
    ("qn", "ddp.qn"),
    ("msn", "ddp.msn"),
    ("mo", "ddp.mo"),
    ("data", "ddp.data"),
    ("body.sink_stag", "rdmap.sink_stag"),
    ("body.sink_to", "rdmap.sink_to"),
    ("body.length", "rdmap.length"),
    ("body.source_stag", "rdmap.source_stag"),
    ("body.source_to", "rdmap.source_to"),
    ("body.identifier", "rdmap.identifier"),
    ("body.operand", "rdmap.operand"),
    ("body.mask", "rdmap.mask"),
    ("body.compare", "rdmap.compare"),
    ("body.compare_mask", "rdmap.compare_mask"),
    ("body.value", "rdmap.value"),
    ("body.layer", "rdmap.layer"),
    ("body.kind", "rdmap.type"),
    ("body.segment_bytes", "rdmap.wrong_bytes"),
    ("body.wait_us", "rdmap.wait"),
];
const CONTROL: Names = &[
    ("node", "node"),
    ("max_frame_bytes", "hello.max_frame"),
    ("receive_window_frames", "hello.window"),
    ("features", "hello.features"),
    ("name", "name"),
    ("stream", "control.stream"),
    ("max_payload_bytes", "control.max_payload"),
    ("max_read_request_bytes", "control.max_read"),
    ("port", "control.port"),
    ("rule", "ahead.rule"),
    ("generation", "ahead.generation"),
    ("bar", "ahead.bar"),
    ("doorbell", "ahead.doorbell"),
    ("mask", "ahead.mask"),
    ("ring", "ahead.address"),
    ("entry_bytes", "ahead.entry_bytes"),
    ("entries", "ahead.entries"),
    ("group", "group"),
    ("window_ms", "control.window"),
    ("domain", "control.domain"),
    ("epoch", "control.epoch"),
    ("of_stream", "control.of_stream"),
    ("function", "control.function"),
    ("host", "node"),
    ("window", "reach.window"),
    ("behind.address", "reach.address"),
    ("behind.bytes", "reach.bytes"),
    ("behind.node", "node"),
    ("all", "reach.all"),
];
const DISCOVERY: Names = &[
    ("life", "discovery.life"),
    ("sequence", "discovery.sequence"),
    ("node", "node"),
    ("fields.link", "heartbeat.link"),
    ("fields.group", "group"),
    ("fields.interval_ms", "heartbeat.interval"),
    ("fields.sent", "heartbeat.sent"),
    ("fields.generation", "heartbeat.generation"),
    ("fields.all", "heartbeat.all"),
    ("fields.first", "heartbeat.first"),
    ("fields.name", "name"),
    ("fields.number", "order.number"),
    ("fields.dry_run", "order.dry_run"),
    ("fields.force", "order.force"),
    ("fields.device", "name"),
    ("fields.life", "order.life"),
    ("fields.host", "order.host"),
    ("fields.elapsed_ms", "outcome.elapsed"),
    ("fields.epoch", "outcome.epoch"),
    ("fields.asker", "outcome.asker"),
    ("fields.asker_life", "outcome.asker_life"),
];

fn vectors(file: &str) -> Vec<Value> {
    let path = folder().join("../vectors").join(file);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn bytes(vector: &Value) -> Vec<u8> {
    let text = vector["bytes"].as_str().unwrap();
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// A frame of a session around this body; each with an epoch of its own, so that none is another's retransmission.
fn around(kind: u8, place: usize, body: &[u8]) -> Vec<u8> {
    let mut out = vec![0; frame::HEADER_BYTES];
    out[0] = frame::VERSION << 4 | kind;
    out[2..4].copy_from_slice(&(body.len() as u16).to_be_bytes());
    out[8..12].copy_from_slice(&(place as u32 + 1).to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&[0; frame::CHECK_BYTES]);
    frame::put_check(&mut out, crc32c::crc32c).unwrap();
    out
}

/// A Data frame with this one record.
fn record_of(kind: record::Kind, place: usize, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![0; record::HEADER_BYTES];
    let flags = record::FIRST | record::LAST;
    record::Record::emit_header(kind, flags, 1, 0, payload.len() as u16, &mut body).unwrap();
    body.extend_from_slice(payload);
    body.resize(record::size(payload.len()), 0);
    around(frame::Kind::Data as u8, place, &body)
}

/// A vector as a whole frame, and what its fields are called.
pub(crate) struct Case {
    name: String,
    pub(crate) bytes: Vec<u8>,
    vector: Value,
    names: Names,
}

/// Makes a whole frame: from the vector's place among all, the vector, and its bytes.
type Whole<'a> = &'a dyn Fn(usize, &Value, &[u8]) -> Vec<u8>;

/// The vectors of all files.
pub(crate) fn cases() -> Vec<Case> {
    let mut out = Vec::new();
    let mut take = |file: &str, names: Names, whole: Whole| {
        for vector in vectors(file) {
            let (place, name) = (out.len(), vector["name"].as_str().unwrap().to_owned());
            let bytes = whole(place, &vector, &bytes(&vector));
            out.push(Case { name: format!("{file}: {name}"), bytes, vector, names });
        }
    };
    take("frames.json", FRAME, &|_, _, bytes| bytes.to_vec());
    take("records.json", &[], &|place, _, bytes| around(frame::Kind::Data as u8, place, bytes));
    take("tlps.json", TLP, &|place, _, bytes| record_of(record::Kind::Tlp, place, bytes));
    take("pieces.json", PIECE, &|place, _, bytes| record_of(record::Kind::Ahead, place, bytes));
    take("segments.json", SEGMENT, &|place, _, bytes| record_of(record::Kind::Ddp, place, bytes));
    take("discovery.json", DISCOVERY, &|_, _, bytes| bytes.to_vec());
    take("control.json", CONTROL, &|place, vector, bytes| match vector["decoder"].as_str().unwrap() {
        "hello" => around(frame::Kind::Hello as u8, place, bytes),
        "close" => around(frame::Kind::Close as u8, place, bytes),
        _ => record_of(record::Kind::Control, place, bytes),
    });
    out
}

/// `a.b` of an object; none if it is absent, null, or empty. A group of 0 is none; not everything that may have one shows that.
fn value_of<'a>(fields: &'a Value, path: &str) -> Option<&'a Value> {
    let value = path.split('.').try_fold(fields, |value, key| value.get(key))?;
    let is_none = value.is_null() || value.as_str() == Some("") || path.ends_with("group") && value == 0;
    (!is_none).then_some(value)
}

/// Whether the dissector shows this value.
fn shows(row: &Row, field: &str, value: &Value) -> bool {
    let expected = match value {
        Value::Bool(flag) => Some(u64::from(*flag)),
        Value::String(text) => text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).unwrap()),
        other => other.as_u64(),
    };
    match expected {
        Some(number) => row.number(field) == Some(number),
        None => Some(row.text(field)) == value.as_str(),
    }
}

#[test]
#[ignore = "needs tshark: ./run test wireshark"]
fn every_vector_is_shown_or_refused_as_the_crate_does() {
    crate::ready();
    let run = Run::new("vectors").unwrap();
    let cases = cases();
    let capture = run.path("vectors.pcap");
    write(&capture, cases.iter().map(|case| (Link::Ethernet, &case.bytes[..])));

    let mut fields: Vec<String> = [FRAME, TLP, PIECE, SEGMENT, CONTROL, DISCOVERY]
        .concat()
        .iter()
        .map(|(_, name)| format!("etherslot.{name}"))
        .collect();
    fields.extend(["_ws.malformed", "_ws.expert.message", "_ws.col.Info"].map(str::to_owned));
    let more =
        ["refused", "damaged", "sack.marked", "tlp.ep", "tlp.status", "record.sequence", "record.stream"];
    fields.extend(more.map(|name| format!("etherslot.{name}")));
    fields.sort();
    fields.dedup();
    let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
    let rows = read(&run, &capture, &["etherslot.check:TRUE"], &fields);
    assert_eq!(rows.len(), cases.len());

    let mut compared = 0;
    for (Case { name, bytes, vector, names }, row) in cases.iter().zip(&rows) {
        let lua = row.all("_ws.expert.message").iter().any(|message| message.contains("Lua"));
        assert!(!lua && !row.has("_ws.malformed"), "{name}: {row:?}");
        // Nobody asks a dissector about a frame without a byte, or one of another kind that it knows as well.
        if bytes.is_empty() || name.contains("frames.json: kind 6") {
            continue;
        }
        let is_refused = row.has("etherslot.refused") || row.has("etherslot.damaged");
        let is_wrong = vector.get("error").is_some();
        // What good records carry may be anything; a Close without a known reason closes as well.
        let may_differ = is_refused && vector.get("records").is_some() || vector["decoder"] == "close";
        assert!(is_refused == is_wrong || may_differ, "{name}: {row:?}");
        if is_wrong {
            continue;
        }
        let fields = if *names == DISCOVERY { vector } else { &vector["fields"] };
        for (path, field) in *names {
            if let Some(value) = value_of(fields, path) {
                compared += 1;
                let field = format!("etherslot.{field}");
                assert!(shows(row, &field, value), "{name}: {path} is {value}: {row:?}");
            }
        }
        if let Some(sack) = value_of(fields, "sack") {
            let marked = sack["marked"].as_array().unwrap().len() as u64;
            assert_eq!(row.number("etherslot.sack.marked"), Some(marked), "{name}");
        }
        if let Some(records) = vector["records"].as_array() {
            let parts = |key: &str| records.iter().map(|one| one[key].as_u64().unwrap()).collect::<Vec<_>>();
            assert_eq!(row.numbers("etherslot.record.stream"), parts("stream"), "{name}");
            assert_eq!(row.numbers("etherslot.record.sequence"), parts("stream_sequence"), "{name}");
        }
        if let Some(kind) = vector["fields"]["kind"].as_str().filter(|_| *names == FRAME) {
            let told = row.text("_ws.col.Info").to_lowercase();
            assert!(told.starts_with(&format!("{} ", kind.replace('_', ""))), "{name}: {told}");
        }
        if let Some(opcode) = vector["fields"]["opcode"].as_str() {
            let told = row.text("_ws.col.Info").to_lowercase();
            assert!(told.contains(&opcode.replace('_', " ")), "{name}: {told}");
        }
        if let Some(message) = vector["fields"]["message"].as_str() {
            let told = row.text("_ws.col.Info").to_lowercase();
            assert!(told.contains(&message.replace('_', "")), "{name}: {told}");
        }
    }
    assert!(compared > 2000, "{compared} values compared");
}
