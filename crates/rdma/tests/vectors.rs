//! Work requests and completions are, bit for bit, what the contract draws; and its list of counters is ours.

use std::path::Path;

use etherslot_rdma::{
    Counters, Cqe, Done, Flag, PeerId, Qpn, ReceiveWork, SendOpcode, SendWork, Sge, Status,
};
use etherslot_wire::rdmap::Cause;
use serde_json::Value;

fn vectors(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("a vector file is an array")
}

fn hex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hexadecimal digits");
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("digits")).collect()
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    T::try_from(value.as_u64().expect("a number")).ok().expect("a number that fits")
}

fn wide(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().and_then(|text| text.strip_prefix("0x")).expect("0x"), 16)
        .expect("digits")
}

fn opcode(name: &str) -> SendOpcode {
    match name {
        "write" => SendOpcode::Write,
        "write_immediate" => SendOpcode::WriteImmediate,
        "send" => SendOpcode::Send,
        "send_immediate" => SendOpcode::SendImmediate,
        "send_invalidate" => SendOpcode::SendInvalidate,
        "read" => SendOpcode::Read,
        "fetch_add" => SendOpcode::FetchAdd,
        "compare_swap" => SendOpcode::CompareSwap,
        "bind" => SendOpcode::Bind,
        "invalidate" => SendOpcode::Invalidate,
        "nop" => SendOpcode::Nop,
        other => panic!("opcode {other}"),
    }
}

fn sges(value: &Value) -> Vec<Sge> {
    let list = value.as_array().expect("a list");
    let one = |sge: &Value| Sge {
        to: wide(&sge["to"]),
        stag: number(&sge["stag"]),
        length: number(&sge["length"]),
    };
    list.iter().map(one).collect()
}

fn flag(value: &Value) -> Option<Flag> {
    (!value.is_null()).then(|| Flag {
        stag: number(&value["stag"]),
        to: wide(&value["to"]),
        value: wide(&value["value"]),
    })
}

#[test]
fn work_requests_are_what_the_contract_draws() {
    let mut kinds = std::collections::BTreeSet::new();
    for vector in vectors("work_requests.json") {
        let (name, fields, expected) = (&vector["name"], &vector["fields"], hex(&vector["bytes"]));
        let list = sges(&fields["sges"]);
        let mut wqe = [0xEE; SendWork::MAX_BYTES];
        let bytes = if vector["queue"] == "receive" {
            ReceiveWork { id: wide(&fields["id"]), sges: &list }.emit(&mut wqe)
        } else {
            let kind = fields["opcode"].as_str().expect("a name");
            kinds.insert(kind.to_owned());
            let inline = (!fields["inline"].is_null()).then(|| hex(&fields["inline"]));
            let work = SendWork {
                opcode: opcode(kind),
                flags: number(&fields["flags"]),
                id: wide(&fields["id"]),
                remote_to: wide(&fields["remote_to"]),
                remote_stag: number(&fields["remote_stag"]),
                immediate: number(&fields["immediate"]),
                sges: &list,
                inline: inline.as_deref(),
                operands: [wide(&fields["operands"][0]), wide(&fields["operands"][1])],
                local_flag: flag(&fields["local"]),
                remote_flag: flag(&fields["remote"]),
            };
            work.emit(&mut wqe)
        };
        assert_eq!(&wqe[..bytes.expect("there is room")], expected, "{name}");
    }
    assert_eq!(kinds.len(), 11, "a kind is missing");
}

#[test]
fn completions_are_what_the_contract_draws() {
    let statuses = [
        Status::Success,
        Status::LocalLength,
        Status::LocalOperation,
        Status::LocalProtection,
        Status::Flushed,
        Status::WindowBind,
        Status::BadResponse,
        Status::RemoteInvalid,
        Status::RemoteAccess,
        Status::RemoteOperation,
        Status::RetriesExceeded,
        Status::RnrExceeded,
        Status::Fatal,
    ];
    let mut seen = std::collections::BTreeSet::new();
    for vector in vectors("completions.json") {
        let fields = &vector["fields"];
        let status = number::<u8>(&fields["status"]);
        seen.insert(status);
        let list = |name: &str| fields[name].as_array();
        let cqe = Cqe {
            id: wide(&fields["id"]),
            status: statuses.into_iter().find(|&known| known as u8 == status).expect("a status"),
            done: match fields["done"].as_str().expect("a name") {
                "received" => Done::Received,
                "received_write" => Done::ReceivedWrite,
                name => Done::Sent(opcode(name)),
            },
            qp: Qpn(number(&fields["qp"])),
            bytes: number(&fields["length"]),
            immediate: fields["immediate"].as_u64().map(|word| word as u32),
            invalidated: fields["invalidated"].as_u64().map(|word| word as u32),
            source: list("source").map(|pair| (PeerId(number(&pair[0])), Qpn(number(&pair[1])))),
            cause: list("cause").map(|cause| Cause {
                layer: number(&cause[0]),
                kind: number(&cause[1]),
                code: number(&cause[2]),
            }),
            is_solicited: false,
        };
        let phase = number::<u8>(&fields["phase"]) == 1;
        assert_eq!(cqe.emit(phase)[..], hex(&vector["bytes"]), "{}", vector["name"]);
    }
    assert_eq!(seen.len(), statuses.len(), "a status is missing");
}

#[test]
fn the_contract_lists_the_counters_at_their_places() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rnic.md");
    let text = std::fs::read_to_string(path).expect("the contract");
    let listed: Vec<_> =
        text.lines().filter(|line| line.starts_with("| 0x1") || line.starts_with("| 0x2")).collect();
    let listed: Vec<_> = listed.iter().skip_while(|line| !line.contains("segments_sent")).collect();
    let counters = Counters::default();
    for (at, named) in counters.named().enumerate() {
        let start = format!("| 0x{:03X} | {} |", 0x100 + 8 * at, named.name);
        assert!(listed.get(at).is_some_and(|line| line.starts_with(&start)), "docs/rnic.md lacks {start}");
    }
    assert_eq!(listed.len(), counters.named().len());
}
