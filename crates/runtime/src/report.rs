//! The counters of a daemon, in its log: at its stop, and whenever SIGUSR1 asks.

use etherslot_netio::{Address, Port};
use etherslot_node::{BoxNode, HostNode};

fn of_port(port: &dyn Port) {
    let counted: Vec<String> = port
        .counters()
        .named()
        .iter()
        .filter(|(_, value)| *value != 0)
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    tracing::info!(counters = counted.join(" "), "link");
}

/// Of a box.
pub(crate) fn of_box(node: &BoxNode<Address>, port: &dyn Port) {
    of_port(port);
    tracing::info!(counters = ?node.counters(), "box");
    for (address, session, hierarchy) in node.hosts() {
        tracing::info!(host = %address, session = ?session.counters(), hierarchy = ?hierarchy.counters(), "host");
    }
}

/// Of a host node.
pub(crate) fn of_host(node: &HostNode<Address>, port: &dyn Port) {
    of_port(port);
    tracing::info!(counters = ?node.counters(), "host node");
    for (address, session) in node.sessions() {
        tracing::info!(peer = %address, session = ?session.counters(), "session");
    }
    for (slot, counters) in node.slot_counters().enumerate() {
        tracing::info!(slot, ?counters, "slot");
    }
}
