//! From what a node shows of itself to families of samples.
//!
//! No counter is listed here: a family's name is made of what is counted (a session, a link, …) and of the counter's own name,
//! which ends with its unit. Units are base units, what only grows ends in `_total`, and frames that are dropped for different reasons
//! are one family with the reason as a label. `docs/operations.md` tells the rules to users.

use super::text::{Families, Kind, Value};
use crate::counted::Counted;
use crate::stat::{NodeStat, PathStat, Protection, Role, SessionStat};

/// Counters that say why something was dropped: of what, under which name, the family that they belong to, the reason.
const REASONS: [(&str, &str, &str, &str); 19] = [
    ("link", "tx_link_down", "tx_dropped_frames", "link down"),
    ("link", "tx_too_long", "tx_dropped_frames", "too long"),
    ("link", "tx_foreign", "tx_dropped_frames", "foreign"),
    ("link", "tx_refused", "tx_dropped_frames", "refused"),
    ("link", "rx_overflow", "rx_dropped_frames", "overflow"),
    ("link", "rx_truncated", "rx_dropped_frames", "truncated"),
    ("link", "rx_foreign", "rx_dropped_frames", "foreign"),
    ("session", "dropped_not_in_order", "dropped", "not in order"),
    ("session", "dropped_epoch", "dropped", "epoch"),
    ("session", "dropped_replay", "dropped", "replay"),
    ("session", "dropped_state", "dropped", "state"),
    ("session", "dropped_malformed", "dropped", "malformed"),
    ("session", "dropped_sequence", "dropped", "sequence"),
    ("session", "dropped_ack", "dropped", "acknowledgement"),
    ("security", "plain_frames", "dropped_frames", "plain"),
    ("security", "keyless_frames", "dropped_frames", "keyless"),
    ("security", "forged_frames", "dropped_frames", "forged"),
    ("security", "stale_frames", "dropped_frames", "stale"),
    ("security", "false_identities", "dropped_frames", "false identity"),
];

/// All that a node shows.
pub(super) fn page(stat: &NodeStat) -> String {
    let mut families = Families::default();
    node(&mut families, stat);
    for (number, link) in stat.links.iter().enumerate() {
        let number = number.to_string();
        let labels = [("link", &*number), ("address", &*link.address)];
        counters(&mut families, "link", &link.counters, &labels);
        if let Some(is_up) = link.is_up {
            gauge(&mut families, "link", "up", &labels, Value::Number(u64::from(is_up)));
        }
    }
    stat.sessions.iter().for_each(|it| session(&mut families, it));
    for (number, slot) in stat.slots.iter().enumerate() {
        let number = number.to_string();
        let labels = [("slot", &*number), ("device", &*slot.device)];
        counters(&mut families, "slot", &slot.counters, &labels);
        gauge(&mut families, "slot", "attached", &labels, Value::Number(u64::from(slot.is_attached)));
    }
    for device in &stat.devices {
        let name = ("device", &*device.name);
        counters(&mut families, "device", &device.counters, &[name]);
        gauge(&mut families, "device", "lease_epoch", &[name], Value::Number(device.epoch));
        let state = ("state", &*device.state);
        gauge(&mut families, "device", "state_info", &[name, state], Value::Number(1));
        if let Some(owner) = &device.owner {
            gauge(&mut families, "device", "owner_info", &[name, ("owner", owner)], Value::Number(1));
        }
    }
    for peer in &stat.peers {
        let labels = [("peer", &*peer.name), ("role", role(peer.role))];
        let mut add = |name: &str, value: u64| {
            gauge(&mut families, "peer", name, &labels, Value::Number(value));
        };
        add("up", u64::from(peer.is_up));
        add("recent_heartbeats_lost", u64::from(peer.heartbeats_lost));
        add("recent_heartbeats_expected", u64::from(peer.heartbeats_expected));
    }
    if let Some(fabric) = &stat.fabric {
        counters(&mut families, "fabric", fabric, &[]);
    }
    if let Some(leases) = &stat.leases {
        counters(&mut families, "lease", leases, &[]);
    }
    families.page()
}

fn node(families: &mut Families, stat: &NodeStat) {
    let protection = match stat.security.protection {
        Protection::Keys => "keys",
        Protection::Plaintext => "plaintext",
        Protection::Memory => "memory",
    };
    let one = Value::Number(1);
    let version = [("version", &*stat.version)];
    families.add("etherslot_build_info", Kind::Gauge, "The version of the program.", &version, one);
    let labels = [("node", &*stat.name), ("role", role(stat.role)), ("protection", protection)];
    gauge(families, "node", "info", &labels, one);
    gauge(families, "node", "uptime_seconds", &[], Value::Ns(stat.uptime_ns));
    gauge(families, "node", "wrong", &[], Value::Number(stat.notices.len() as u64));
    counters(families, "node", &stat.counters, &[]);
    counters(families, "security", &stat.security.counters, &[]);
}

fn session(families: &mut Families, session: &SessionStat) {
    let SessionStat { peer, peer_node, cipher, state, mode, frame_bytes, unacked_frames, .. } = session;
    let labels = [("peer", &**peer)];
    let up = Value::Number(u64::from(state == "up"));
    gauge(families, "session", "up", &labels, up);
    let info = [
        labels[0],
        ("peer_node", peer_node.as_deref().unwrap_or_default()),
        ("mode", mode),
        ("cipher", cipher.as_deref().unwrap_or("none")),
    ];
    gauge(families, "session", "info", &info, Value::Number(1));
    gauge(families, "session", "frame_bytes", &labels, Value::Number(*frame_bytes));
    gauge(families, "session", "unacked_frames", &labels, Value::Number(*unacked_frames));
    gauges(families, "session", &session.gauges, &labels);
    counters(families, "session", &session.counters, &labels);
    for (number, PathStat { is_up, gauges: of_path, counters: counted }) in session.paths.iter().enumerate() {
        let number = number.to_string();
        let labels = [labels[0], ("path", &*number)];
        gauge(families, "path", "up", &labels, Value::Number(u64::from(*is_up)));
        gauges(families, "path", of_path, &labels);
        counters(families, "path", counted, &labels);
    }
    if let Some(hierarchy) = &session.hierarchy {
        counters(families, "hierarchy", hierarchy, &labels);
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Box => "box",
        Role::Host => "host",
        Role::Export => "export",
    }
}

fn counters(families: &mut Families, of: &str, counted: &Counted, labels: &[(&str, &str)]) {
    for (name, value) in counted.iter() {
        let reason = REASONS.iter().find(|(known, counter, ..)| (*known, *counter) == (of, name));
        let (name, reason) = reason.map_or((name, None), |&(_, _, family, reason)| (family, Some(reason)));
        let (base, value) = in_base_units(name, value);
        let labels: Vec<(&str, &str)> =
            labels.iter().copied().chain(reason.map(|reason| ("reason", reason))).collect();
        let family = format!("etherslot_{of}_{base}_total");
        families.add(&family, Kind::Counter, &help(of, &base), &labels, value);
    }
}

fn gauges(families: &mut Families, of: &str, counted: &Counted, labels: &[(&str, &str)]) {
    for (name, value) in counted.iter() {
        let (base, value) = in_base_units(name, value);
        gauge(families, of, &base, labels, value);
    }
}

fn gauge(families: &mut Families, of: &str, name: &str, labels: &[(&str, &str)], value: Value) {
    families.add(&format!("etherslot_{of}_{name}"), Kind::Gauge, &help(of, name), labels, value);
}

/// Seconds for `_ns`; `bytes` at the end of the name.
fn in_base_units(name: &str, value: u64) -> (String, Value) {
    if let Some(name) = name.strip_suffix("_ns") {
        return (format!("{name}_seconds"), Value::Ns(value));
    }
    let name = match name.find("bytes_").filter(|_| !name.ends_with("_per_second")) {
        Some(at) => format!("{}{}_bytes", &name[..at], &name[at + "bytes_".len()..]),
        None => name.to_owned(),
    };
    (name, Value::Number(value))
}

/// The words of a name, and what it is of.
fn help(of: &str, name: &str) -> String {
    let what = match of {
        "node" => "the node",
        "security" => "the protection of sessions",
        "link" => "a link of the node",
        "session" => "the session with a peer",
        "path" => "a path of the session with a peer",
        "hierarchy" => "the PCI Express hierarchy of a host",
        "slot" => "a slot of the host and its device's DMA",
        "device" => "a device of the box",
        "peer" => "another node of the fabric",
        "fabric" => "the node's part in the fabric",
        "lease" => "the leases of the box's devices",
        other => other,
    };
    format!("{}, of {what}.", name.replace('_', " "))
}
