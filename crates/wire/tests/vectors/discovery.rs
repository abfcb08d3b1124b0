//! Those of discovery and assignment.

use crc32c::crc32c;
use etherslot_wire::NodeId;
use etherslot_wire::boxes::{Admit, Behind, Join, PORTS, Reach};
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{
    Assigned, Change, Device, DeviceState, Group, HEADER_BYTES, Header, Heartbeat, Message, Order, Outcome,
    Port, Progress, Reason, Role, Serial, Step, is_discovery,
};
use etherslot_wire::frame::Error;
use serde_json::Value;

use super::{Fields, vectors};

fn list<'a>(fields: Fields<'a>, name: &str) -> impl Iterator<Item = Fields<'a>> {
    fields.0[name].as_array().expect("a list").iter().map(Fields)
}

fn node(value: &Value) -> Option<NodeId> {
    (!value.is_null()).then(|| NodeId(super::hex(value).try_into().expect("16 bytes")))
}

fn port(fields: Fields<'_>) -> Port {
    let address = fields.bytes("address");
    match fields.text("kind") {
        "mac" => Port::Mac(address.try_into().expect("6 bytes")),
        "udp4" => Port::Udp4(address.try_into().expect("4 bytes"), fields.number("port")),
        "udp6" => Port::Udp6(address.try_into().expect("16 bytes"), fields.number("port")),
        "ring" => Port::Ring(u32::from_be_bytes(address.try_into().expect("4 bytes"))),
        other => panic!("port {other}"),
    }
}

pub(super) fn reach(fields: Fields<'_>) -> Reach {
    let behind = fields.part("behind").map(|behind| {
        let mut ports = [None; PORTS];
        list(behind, "ports").map(port).zip(&mut ports).for_each(|(port, place)| *place = Some(port));
        let node = node(&behind.0["node"]).expect("a node");
        Behind { address: behind.wide("address"), bytes: behind.wide("bytes"), node, ports }
    });
    Reach { window: fields.number("window"), behind }
}

pub(super) fn admit(fields: Fields<'_>) -> Admit {
    Admit {
        domain: fields.number("domain"),
        node: node(&fields.0["node"]).expect("a node"),
        epoch: fields.number("epoch"),
        stream: fields.number("stream"),
        function: fields.id("function"),
    }
}

pub(super) fn join(fields: Fields<'_>) -> Join {
    let host = node(&fields.0["host"]).expect("a node");
    Join {
        stream: fields.number("stream"),
        host,
        epoch: fields.number("epoch"),
        of_stream: fields.number("of_stream"),
    }
}

fn device(fields: Fields<'_>) -> Device {
    Device {
        name: Name::new(fields.text("name")).expect("a name"),
        serial: Serial::new(fields.text("serial")).expect("a serial number"),
        id: (fields.number("vendor"), fields.number("device")),
        class: fields.bytes("class").try_into().expect("3 bytes"),
        state: match fields.text("state") {
            "free" => DeviceState::Free,
            "used" => DeviceState::Used,
            "kept" => DeviceState::Kept,
            "moving" => DeviceState::Moving,
            other => panic!("state {other}"),
        },
        bytes: fields.wide("bytes"),
        epoch: fields.wide("epoch"),
        owner: node(&fields.0["owner"]),
        assigned: match fields.text("assigned") {
            "group" => Assigned::Group,
            "nobody" => Assigned::Nobody,
            _ => Assigned::Host(node(&fields.0["assigned"]).expect("a host")),
        },
        has_owners: fields.flag("has_owners"),
        group: Group::new(fields.number("group")),
    }
}

fn heartbeat(fields: Fields<'_>) -> (Heartbeat, Vec<Port>, Vec<Device>) {
    let heartbeat = Heartbeat {
        role: match fields.text("role") {
            "host" => Role::Host,
            "box" => Role::Box,
            other => panic!("role {other}"),
        },
        link: fields.number("link"),
        group: Group::new(fields.number("group")),
        interval_ms: fields.number("interval_ms"),
        sent: fields.number("sent"),
        generation: fields.number("generation"),
        devices: fields.number("all"),
        first: fields.number("first"),
        name: Name::new(fields.text("name")).expect("a name"),
    };
    (heartbeat, list(fields, "ports").map(port).collect(), list(fields, "devices").map(device).collect())
}

fn order(fields: Fields<'_>) -> Order {
    Order {
        number: fields.wide("number"),
        to: node(&fields.0["to"]).expect("a box"),
        life: fields.wide("life"),
        device: Name::new(fields.text("device")).expect("a name"),
        change: match fields.text("change") {
            "host" => Change::Host(node(&fields.0["host"]).expect("a host")),
            "group" => Change::Group(Group::new(fields.number("group")).expect("a group")),
            "nobody" => Change::Nobody,
            "anybody" => Change::Anybody,
            other => panic!("change {other}"),
        },
        dry_run: fields.flag("dry_run"),
        force: fields.flag("force"),
    }
}

fn outcome(fields: Fields<'_>) -> Outcome {
    Outcome {
        progress: match fields.text("progress") {
            "working" => Progress::Working,
            "done" => Progress::Done,
            "refused" => Progress::Refused,
            "rolled_back" => Progress::RolledBack,
            other => panic!("progress {other}"),
        },
        reason: match fields.text("reason") {
            "none" => Reason::None,
            "unknown_device" => Reason::UnknownDevice,
            "unknown_host" => Reason::UnknownHost,
            "silent_host" => Reason::SilentHost,
            "busy" => Reason::Busy,
            "not_released" => Reason::NotReleased,
            "not_taken" => Reason::NotTaken,
            "too_many" => Reason::TooMany,
            "not_permitted" => Reason::NotPermitted,
            "not_an_owner" => Reason::NotAnOwner,
            other => panic!("reason {other}"),
        },
        step: match fields.text("step") {
            "none" => Step::None,
            "recall" => Step::Recall,
            "offer" => Step::Offer,
            other => panic!("step {other}"),
        },
        elapsed_ms: fields.number("elapsed_ms"),
        number: fields.wide("number"),
        asker_life: fields.wide("asker_life"),
        epoch: fields.wide("epoch"),
        asker: node(&fields.0["asker"]).expect("an asker"),
        from: node(&fields.0["from"]),
        to: node(&fields.0["to"]),
    }
}

/// Which word the vectors have for what became of a frame.
fn error_of(bytes: &[u8]) -> Option<&'static str> {
    let (header, body) = match Header::parse_checked(bytes, crc32c) {
        Ok(frame) => frame,
        Err(Error::Truncated) => return Some("truncated"),
        Err(Error::Version(_)) => return Some("version"),
        Err(Error::Kind(_)) => return Some("kind"),
        Err(Error::Flags(_)) => return Some("flags"),
        Err(Error::Check) => return Some("check"),
    };
    let is_good = match header.message {
        Message::Heartbeat => Heartbeat::parse(body).is_some(),
        Message::Order => Order::parse(body).is_some(),
        Message::Outcome => Outcome::parse(body).is_some(),
        Message::Relayed => Port::parse(body).is_some(),
    };
    (!is_good).then_some("refused")
}

#[test]
fn frames_of_discovery_hold_in_both_directions() {
    for vector in vectors("discovery.json") {
        let name = &vector.name;
        assert_eq!(error_of(&vector.bytes), vector.error(), "{name}");
        if vector.error().is_some() {
            continue;
        }
        assert!(is_discovery(&vector.bytes), "{name}");
        let (header, body) = Header::parse_checked(&vector.bytes, crc32c).expect(name);
        let (entry, fields) = (Fields(&vector.entry), vector.fields());
        let told = (header.life, header.sequence, Some(header.node));
        assert_eq!(told, (entry.wide("life"), entry.wide("sequence"), node(&vector.entry["node"])), "{name}");
        let mut frame = [0xEE; 2048];
        let place = &mut frame[HEADER_BYTES..];
        let bytes = match entry.text("message") {
            "heartbeat" => {
                let (expected, ports, devices) = heartbeat(fields);
                let heard = Heartbeat::parse(body).expect(name);
                assert_eq!(heard.heartbeat, expected, "{name}");
                assert_eq!(heard.ports().collect::<Vec<_>>(), ports, "{name}");
                let places = (expected.first..).zip(devices.iter().copied());
                assert_eq!(heard.devices().collect::<Vec<_>>(), places.collect::<Vec<_>>(), "{name}");
                expected.emit(&ports, devices.iter(), place)
            }
            "order" => {
                assert_eq!(Order::parse(body), Some(order(fields)), "{name}");
                order(fields).emit(place)
            }
            "outcome" => {
                assert_eq!(Outcome::parse(body), Some(outcome(fields)), "{name}");
                outcome(fields).emit(place)
            }
            "relayed" => {
                let (at, inner) = (port(Fields(&fields.0["port"])), fields.bytes("frame"));
                assert_eq!((Port::parse(body), &body[Port::BYTES..]), (Some(at), &inner[..]), "{name}");
                at.emit(place).expect(name);
                place[Port::BYTES..][..inner.len()].copy_from_slice(&inner);
                Some(Port::BYTES + inner.len())
            }
            other => panic!("message {other}"),
        };
        let length = header.emit(&mut frame, bytes.expect(name), crc32c).expect(name);
        vector.check_emitted(&frame[..length]);
    }
}
