//! DDP segments and what RDMAP carries in them.

use std::collections::BTreeMap;

use etherslot_wire::ddp::{Error, Header, Opcode, Place};
use etherslot_wire::rdmap::{
    AtomicCode, AtomicRequest, AtomicResponse, Cause, Datagram, ReadRequest, Terminate, Verdict,
};

use super::{Fields, Vector, vectors};

fn opcode(text: &str) -> Opcode {
    match text {
        "write" => Opcode::Write,
        "read_request" => Opcode::ReadRequest,
        "read_response" => Opcode::ReadResponse,
        "send" => Opcode::Send,
        "send_invalidate" => Opcode::SendInvalidate,
        "send_solicited" => Opcode::SendSolicited,
        "send_solicited_invalidate" => Opcode::SendSolicitedInvalidate,
        "terminate" => Opcode::Terminate,
        "immediate" => Opcode::Immediate,
        "immediate_solicited" => Opcode::ImmediateSolicited,
        "atomic_request" => Opcode::AtomicRequest,
        "atomic_response" => Opcode::AtomicResponse,
        "synchronise" => Opcode::Synchronise,
        "acknowledge" => Opcode::Acknowledge,
        "send_immediate" => Opcode::SendImmediate,
        "send_solicited_immediate" => Opcode::SendSolicitedImmediate,
        other => panic!("opcode {other}"),
    }
}

fn header(fields: Fields<'_>) -> Header {
    let place = if fields.part("stag").is_some() {
        Place::Tagged { stag: fields.number("stag"), to: fields.wide("to") }
    } else {
        Place::Untagged {
            ulp: fields.number("ulp"),
            qn: fields.number("qn"),
            msn: fields.number("msn"),
            mo: fields.number("mo"),
        }
    };
    Header {
        qp: fields.number("qp"),
        is_last: fields.flag("last"),
        opcode: opcode(fields.text("opcode")),
        place,
    }
}

fn error(error: Error) -> &'static str {
    match error {
        Error::Truncated => "truncated",
        Error::DdpVersion(true) => "ddp_version_tagged",
        Error::DdpVersion(false) => "ddp_version_untagged",
        Error::RdmapVersion => "rdmap_version",
        Error::Queue => "queue",
        Error::Opcode => "opcode",
    }
}

#[test]
fn segments_are_what_the_rfcs_draw() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for vector in vectors("segments.json") {
        let name = &vector.name;
        let parsed = Header::parse(&vector.bytes);
        if let Some(expected) = vector.error() {
            assert_eq!(parsed.map_err(error), Err(expected), "{name}");
            *seen.entry(expected.to_owned()).or_default() += 1;
            continue;
        }
        let fields = vector.fields();
        let (expected, data) = (header(fields), fields.bytes("data"));
        assert_eq!(parsed, Ok((expected, &data[..])), "{name}");
        let mut emitted = vec![0xEE; expected.len()];
        assert_eq!(expected.emit(&mut emitted), Some(expected.len()), "{name}");
        assert_eq!(expected.emit(&mut vec![0; expected.len() - 1]), None, "{name}");
        emitted.extend(&data);
        vector.check_emitted(&emitted);
        if let Some(body) = fields.part("body") {
            check_body(&vector, &expected, body, &data);
        }
        *seen.entry(fields.text("opcode").to_owned()).or_default() += 1;
    }
    assert_eq!(seen.len(), 16 + 6, "a kind or an error is missing: {seen:?}");
}

fn check_body(vector: &Vector, header: &Header, body: Fields<'_>, data: &[u8]) {
    let name = &vector.name;
    let mut emitted = [0xEE; 64];
    let length = match header.opcode {
        Opcode::ReadRequest => {
            let request = ReadRequest {
                sink_stag: body.number("sink_stag"),
                sink_to: body.wide("sink_to"),
                length: body.number("length"),
                source_stag: body.number("source_stag"),
                source_to: body.wide("source_to"),
            };
            assert_eq!(ReadRequest::parse(data), Some(request), "{name}");
            assert_eq!(ReadRequest::parse(&data[1..]), None, "{name}");
            request.emit(&mut emitted)
        }
        Opcode::AtomicRequest => {
            let request = AtomicRequest {
                code: if body.number::<u8>("code") == 0 {
                    AtomicCode::FetchAdd
                } else {
                    AtomicCode::CompareSwap
                },
                identifier: body.number("identifier"),
                stag: body.number("stag"),
                to: body.wide("to"),
                operand: body.wide("operand"),
                mask: body.wide("mask"),
                compare: body.wide("compare"),
                compare_mask: body.wide("compare_mask"),
            };
            assert_eq!(AtomicRequest::parse(data), Some(request), "{name}");
            assert_eq!(AtomicRequest::parse(&data[1..]), None, "{name}");
            assert_eq!(request.apply(body.wide("before")), body.wide("after"), "{name}");
            request.emit(&mut emitted)
        }
        Opcode::AtomicResponse => {
            let response =
                AtomicResponse { identifier: body.number("identifier"), value: body.wide("value") };
            assert_eq!(AtomicResponse::parse(data), Some(response), "{name}");
            response.emit(&mut emitted)
        }
        Opcode::Terminate => {
            let (ddp, rdmap) = (body.bytes("ddp"), body.bytes("rdmap"));
            let message = Terminate {
                cause: Cause {
                    layer: body.number("layer"),
                    kind: body.number("kind"),
                    code: body.number("code"),
                },
                segment_bytes: body.part("segment_bytes").map(|_| body.number("segment_bytes")),
                ddp_header: &ddp,
                rdmap_header: &rdmap,
            };
            assert_eq!(Terminate::parse(data), Some(message), "{name}");
            for short in 0..data.len() {
                assert_eq!(Terminate::parse(&data[..short]), None, "{name}, {short} bytes");
            }
            message.emit(&mut emitted)
        }
        Opcode::Acknowledge => {
            let verdict = match body.text("verdict") {
                "taken" => Verdict::Taken,
                "not_ready" => Verdict::NotReady { wait_us: body.number("wait_us") },
                _ => Verdict::NoQp { qp: body.number("qp") },
            };
            let Place::Untagged { ulp, mo, .. } = header.place else { panic!("{name} is tagged") };
            assert_eq!(Verdict::parse(ulp, mo), Some(verdict), "{name}");
            assert_eq!(verdict.fields(), (ulp, mo), "{name}");
            return;
        }
        Opcode::Send => {
            let datagram = Datagram { q_key: body.number("q_key"), source_qp: body.number("source_qp") };
            assert_eq!(Datagram::parse(data), Some((datagram, &body.bytes("datagram")[..])), "{name}");
            assert_eq!(Datagram::parse(&data[..7]), None, "{name}");
            let length = datagram.emit(&mut emitted).expect("there is room");
            assert_eq!(emitted[..length], data[..length], "{name}");
            return;
        }
        other => panic!("{name}: {other:?} has no body"),
    };
    assert_eq!(&emitted[..length.expect("there is room")], data, "{name}");
}
