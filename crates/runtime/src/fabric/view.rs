//! What a node knows of the fabric, as control sockets tell it and `etherslot ls` shows it.

use std::fmt;

use etherslot_fabric::{Asked, Known, Member, Presence};
use etherslot_wire::NodeId;
use etherslot_wire::discovery::{Assigned, Change, Device, DeviceState, Group, Progress, Reason, Step};
use serde::{Deserialize, Serialize};

use super::wrong::Strangers;
use crate::options::Via;
use crate::stat::{self, Role, SessionStat};

/// All that one node knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FabricView {
    /// The node that tells it.
    pub node: String,
    /// All nodes, itself among them, by their names.
    pub nodes: Vec<NodeView>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// What people call it.
    pub name: String,
    /// Its ID.
    pub id: String,
    /// What it is.
    pub role: Role,
    /// Its assignment group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
    /// Whether it is there.
    pub state: NodeState,
    /// Whether another node of its role has its name, or even its ID.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_double: bool,
    /// How long nothing was heard of it, ms.
    pub silent_ms: u64,
    /// How it is reached.
    pub ways: Vec<WayView>,
    /// How good the sessions are that the node that tells this has with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionView>,
    /// The devices of a box.
    pub devices: Vec<DeviceView>,
}

/// Whether a node is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeState {
    /// It is the one that tells.
    Itself,
    /// Its heartbeats come.
    Up,
    /// They come with the tags of a node that has keys, and the one that tells has none: they don't work together.
    Keyed,
    /// They come no more.
    Down,
    /// It has said that it stops.
    Left,
}

/// A way to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayView {
    /// Its address.
    pub address: String,
    /// Of its last heartbeats there, up to 64, so many did not come.
    pub lost: u32,
    /// So many should have come.
    pub expected: u32,
}

/// The sessions with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionView {
    /// The smoothed round-trip time; of several sessions the least.
    pub srtt_ns: u64,
    /// The least one of the last seconds.
    pub rtt_min_ns: u64,
    /// Data frames sent, retransmissions included.
    pub data_frames_sent: u64,
    /// Frames that were taken as lost, less those that were not.
    pub lost: u64,
}

impl SessionView {
    fn of(session: &SessionStat) -> Self {
        let counted = |name| session.counters.get(name).unwrap_or(0);
        let gauge = |name| session.gauges.get(name).unwrap_or(0);
        Self {
            srtt_ns: gauge("srtt_ns"),
            rtt_min_ns: gauge("rtt_min_ns"),
            data_frames_sent: counted("data_frames_sent") + counted("retransmissions"),
            lost: counted("lost").saturating_sub(counted("spurious")),
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            srtt_ns: self.srtt_ns.min(other.srtt_ns),
            rtt_min_ns: self.rtt_min_ns.min(other.rtt_min_ns),
            data_frames_sent: self.data_frames_sent + other.data_frames_sent,
            lost: self.lost + other.lost,
        }
    }
}

impl FabricView {
    /// Puts to the nodes how good the sessions with them are, and calls owners of whom only the ID is known by their addresses.
    pub(super) fn add_sessions(&mut self, sessions: &[SessionStat]) {
        for session in sessions.iter().filter(|session| session.state == "up") {
            let is_peer = |node: &&mut NodeView| session.peer_node.as_deref() == Some(&*node.id);
            if let Some(node) = self.nodes.iter_mut().find(is_peer) {
                let seen = SessionView::of(session);
                node.session = Some(node.session.map_or(seen, |known| known.and(seen)));
            }
        }
        let devices = self.nodes.iter_mut().flat_map(|node| &mut node.devices);
        for owner in devices.filter_map(|device| device.owner.as_mut()).filter(|owner| owner.name == owner.id)
        {
            if let Some(address) = stat::address_of(sessions, &owner.id) {
                address.clone_into(&mut owner.name);
            }
        }
    }
}

/// A device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceView {
    /// Its name in its box.
    pub name: String,
    /// Its serial number.
    pub serial: String,
    /// Vendor and device ID in hexadecimal, as `1d0f:8061`.
    pub id: String,
    /// Class code in hexadecimal.
    pub class: String,
    /// Its size, of what stores.
    pub bytes: u64,
    /// Its assignment group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<u16>,
    /// `free`, `used`, `kept` for an owner that is out of reach, `moving`.
    pub state: String,
    /// How often it was given to a host.
    pub epoch: u64,
    /// Its owner's ID, and name if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<NodeRef>,
    /// Whose it may be.
    pub assigned: AssignedView,
    /// Whether its box gives it only to nodes with certain keys.
    #[serde(default)]
    pub has_owners: bool,
}

/// A node that is spoken of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRef {
    /// Its ID.
    pub id: String,
    /// What people call it; else the address of its session, if the node that tells this has one with it; else its ID.
    pub name: String,
}

/// Whose a device may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AssignedView {
    /// That of its group; without one, anybody's.
    Group,
    /// This host's.
    Host(NodeRef),
    /// Nobody's.
    Nobody,
}

/// To whom a device is to go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// A host, by its name or ID.
    Host(String),
    /// A group.
    Group(u16),
    /// Nobody.
    Nobody,
    /// Anybody: no group, and no certain host.
    Anybody,
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Group(group) => write!(f, "group {group}"),
            Self::Nobody => f.write_str("nobody"),
            Self::Anybody => f.write_str("anybody"),
        }
    }
}

/// How far an order is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderView {
    /// Its number, to ask for it again.
    pub order: u64,
    /// The box.
    pub r#box: String,
    /// The device.
    pub device: String,
    /// To whom it is to go.
    pub to: To,
    /// Whether that was only a question.
    pub dry_run: bool,
    /// How far it is.
    pub state: OrderState,
    /// What it waits for, or why it was not done; empty if there is nothing to say.
    pub reason: String,
    /// What is odd about what was done, or would be; empty if there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// What it would begin with, if that was only a question and the order can be done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begins_with: Option<Beginning>,
    /// Who had the device when the order came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The device's lease epoch.
    pub epoch: u64,
    /// How long it has taken, ms.
    pub elapsed_ms: u32,
}

/// What an order would begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beginning {
    /// Nothing: the device stays with its owner.
    Nothing,
    /// The owner is to give it back.
    Recall,
    /// Nobody uses it: it can be given at once.
    Offer,
}

/// How far an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderState {
    /// The box has not answered yet.
    Asked,
    /// The old host is to give the device back.
    Recalling,
    /// The new host is to take it.
    Offered,
    /// Done.
    Done,
    /// Not begun.
    Refused,
    /// Begun, and all is as it was.
    RolledBack,
    /// The box has not answered, and is not asked again.
    Unanswered,
    /// The box has begun and goes on; nobody waits for it any more.
    Stands,
}

impl OrderState {
    /// Whether it will not change any more.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Asked | Self::Recalling | Self::Offered)
    }
}

/// `strangers`: who of them can't be spoken with.
pub(super) fn of(member: &Member<Via>, own: &[Device], now_ns: u64, strangers: &Strangers) -> FabricView {
    let (identity, directory) = (member.identity(), member.directory());
    let name_of = |node: &NodeId| {
        let name = directory.get(node).map(|known| known.name);
        let name = name.or_else(|| (identity.node == *node).then_some(identity.name));
        NodeRef {
            id: format!("{node:?}"),
            name: name.map_or_else(|| format!("{node:?}"), |name| name.as_str().to_owned()),
        }
    };
    let mut nodes = vec![NodeView {
        name: identity.name.as_str().to_owned(),
        id: format!("{:?}", identity.node),
        role: identity.role.into(),
        group: identity.group.map(Group::get),
        state: NodeState::Itself,
        is_double: member.is_double(now_ns),
        silent_ms: 0,
        ways: Vec::new(),
        session: None,
        devices: own.iter().map(|device| device_view(device, &name_of)).collect(),
    }];
    nodes.extend(directory.nodes().map(|(node, known)| {
        let mut view = node_view(node, known, now_ns, &name_of);
        if view.state == NodeState::Up && strangers.is_keyed(node) {
            view.state = NodeState::Keyed;
        }
        view
    }));
    nodes.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    mark_doubles(&mut nodes);
    FabricView { node: identity.name.as_str().to_owned(), nodes }
}

/// Marks nodes that are there and are called the same. They are in the order of their names.
fn mark_doubles(nodes: &mut [NodeView]) {
    let is_there =
        |node: &NodeView| matches!(node.state, NodeState::Itself | NodeState::Up | NodeState::Keyed);
    for called in nodes.chunk_by_mut(|a, b| a.name == b.name) {
        let there: Vec<Role> = called.iter().filter(|node| is_there(node)).map(|node| node.role).collect();
        for node in called.iter_mut().filter(|node| is_there(node)) {
            node.is_double |= there.iter().filter(|&&role| role == node.role).count() > 1;
        }
    }
}

fn node_view(
    node: &NodeId,
    known: &Known<Via>,
    now_ns: u64,
    name_of: &dyn Fn(&NodeId) -> NodeRef,
) -> NodeView {
    let way = |(_, address, quality): (usize, Via, etherslot_fabric::Quality)| {
        let (lost, expected) = quality.lost();
        WayView { address: address.to_string(), lost, expected }
    };
    NodeView {
        name: known.name.as_str().to_owned(),
        id: format!("{node:?}"),
        role: known.role.into(),
        group: known.group.map(Group::get),
        state: match known.presence {
            Presence::Up => NodeState::Up,
            Presence::Down => NodeState::Down,
            Presence::Left => NodeState::Left,
        },
        is_double: known.is_double(now_ns),
        silent_ms: now_ns.saturating_sub(known.heard_ns) / 1_000_000,
        ways: known.ways().map(way).collect(),
        session: None,
        devices: known.devices.iter().flatten().map(|device| device_view(device, name_of)).collect(),
    }
}

pub(crate) fn device_state(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Free => "free",
        DeviceState::Used => "used",
        DeviceState::Kept => "kept",
        DeviceState::Moving => "moving",
    }
}

fn device_view(device: &Device, name_of: &dyn Fn(&NodeId) -> NodeRef) -> DeviceView {
    let [base, sub, interface] = device.class;
    DeviceView {
        name: device.name.as_str().to_owned(),
        serial: device.serial.as_str().to_owned(),
        id: format!("{:04x}:{:04x}", device.id.0, device.id.1),
        class: format!("{base:02x}{sub:02x}{interface:02x}"),
        bytes: device.bytes,
        group: device.group.map(Group::get),
        state: device_state(device.state).to_owned(),
        epoch: device.epoch,
        owner: device.owner.as_ref().map(name_of),
        assigned: match &device.assigned {
            Assigned::Group => AssignedView::Group,
            Assigned::Host(host) => AssignedView::Host(name_of(host)),
            Assigned::Nobody => AssignedView::Nobody,
        },
        has_owners: device.has_owners,
    }
}

pub(super) fn order(asked: &Asked, now_ns: u64, name_of: &dyn Fn(NodeId) -> String) -> OrderView {
    let order = &asked.order;
    let mut view = OrderView {
        order: order.number,
        r#box: name_of(order.to),
        device: order.device.as_str().to_owned(),
        to: match order.change {
            Change::Host(host) => To::Host(name_of(host)),
            Change::Group(group) => To::Group(group.get()),
            Change::Nobody => To::Nobody,
            Change::Anybody => To::Anybody,
        },
        dry_run: order.dry_run,
        state: OrderState::Asked,
        reason: String::new(),
        note: String::new(),
        begins_with: None,
        from: None,
        epoch: 0,
        elapsed_ms: 0,
    };
    let Some(outcome) = &asked.outcome else {
        if asked.is_over(now_ns) {
            view.state = OrderState::Unanswered;
            view.reason = format!(
                "{} does not answer, and is not asked again: is it running, and reachable? What was on its way to it may still be done",
                view.r#box
            );
        }
        return view;
    };
    view.from = outcome.from.map(name_of);
    (view.epoch, view.elapsed_ms) = (outcome.epoch, outcome.elapsed_ms);
    let can_be_done = order.dry_run && outcome.progress == Progress::Done;
    view.begins_with = can_be_done.then_some(match outcome.step {
        Step::None => Beginning::Nothing,
        Step::Recall => Beginning::Recall,
        Step::Offer => Beginning::Offer,
    });
    view.state = match (outcome.progress, outcome.step) {
        (Progress::Done, _) => OrderState::Done,
        (Progress::Refused, _) => OrderState::Refused,
        (Progress::RolledBack, _) => OrderState::RolledBack,
        (Progress::Working, _) if asked.is_over(now_ns) => OrderState::Stands,
        (Progress::Working, Step::Offer) => OrderState::Offered,
        (Progress::Working, Step::None | Step::Recall) => OrderState::Recalling,
    };
    let old = view.from.as_deref().unwrap_or("its owner");
    view.reason = match outcome.reason {
        Reason::None if view.state == OrderState::Stands => {
            format!(
                "{0} has begun and goes on: it is done, or undone, at the latest when the times are over that {0} gives hosts to give a \
                 device back (recall) and to take it (offer); etherslot events {0} tells",
                view.r#box
            )
        }
        Reason::None => String::new(),
        Reason::UnknownDevice => format!("{} has no such device", view.r#box),
        Reason::UnknownHost => format!("{} has not heard of {}", view.r#box, view.to),
        Reason::SilentHost => format!("{} is silent: start it, or look at its link", view.to),
        Reason::Busy => "another order is under way for the device: wait for its end".to_owned(),
        Reason::NotReleased => {
            format!(
                "{old} did not give the device back in time and keeps it: stop what uses it there, or use --force"
            )
        }
        Reason::NotTaken => {
            let again = match &view.from {
                Some(from) => format!("{from} gets it back, after its guest was without it meanwhile"),
                None => "it is free again".to_owned(),
            };
            format!("{} did not take the device in time: has it a slot for it? {again}", view.to)
        }
        Reason::TooMany => "the box has too many orders: try again".to_owned(),
        Reason::NotPermitted => {
            format!("{} takes orders at its own control socket only ([fabric] orders)", view.r#box)
        }
        Reason::NotAnOwner => {
            format!("{} may not own it: its key is not among the device's owners in {}", view.to, view.r#box)
        }
    };
    view
}

impl From<etherslot_wire::discovery::Role> for Role {
    fn from(role: etherslot_wire::discovery::Role) -> Self {
        match role {
            etherslot_wire::discovery::Role::Host => Self::Host,
            etherslot_wire::discovery::Role::Box => Self::Box,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counted::Counted;

    fn node(id: &str) -> NodeView {
        NodeView {
            name: id.to_owned(),
            id: id.to_owned(),
            role: Role::Box,
            group: None,
            state: NodeState::Up,
            is_double: false,
            silent_ms: 0,
            ways: Vec::new(),
            session: None,
            devices: Vec::new(),
        }
    }

    #[test]
    fn nodes_of_one_role_and_name_are_marked_if_both_are_there() {
        let mut nodes = ["a", "a", "b", "b", "c", "c"].map(node);
        nodes[3].role = Role::Host;
        nodes[5].state = NodeState::Left;
        mark_doubles(&mut nodes);
        assert_eq!(nodes.map(|node| node.is_double), [true, true, false, false, false, false]);
    }

    fn session(peer: &str, state: &str, srtt_ns: u64) -> SessionStat {
        SessionStat {
            peer: "10.0.0.1:1".to_owned(),
            peer_node: Some(peer.to_owned()),
            peer_key: None,
            cipher: None,
            state: state.to_owned(),
            mode: "selective".to_owned(),
            frame_bytes: 1500,
            unacked_frames: 0,
            gauges: Counted::from([("srtt_ns", srtt_ns), ("rtt_min_ns", 2)]),
            counters: Counted::from([
                ("data_frames_sent", 90),
                ("retransmissions", 10),
                ("lost", 7),
                ("spurious", 3),
            ]),
            paths: Vec::new(),
            hierarchy: None,
        }
    }

    #[test]
    fn an_owner_of_whom_only_the_id_is_known_is_called_by_the_address_of_its_session() {
        let owned = |id: &str, name: &str| {
            let owner = Some(NodeRef { id: id.to_owned(), name: name.to_owned() });
            let mut view = node("box");
            view.devices = vec![DeviceView {
                name: "disk0".to_owned(),
                serial: String::new(),
                id: String::new(),
                class: String::new(),
                bytes: 0,
                group: None,
                state: "used".to_owned(),
                epoch: 1,
                owner,
                assigned: AssignedView::Group,
                has_owners: false,
            }];
            let mut view = FabricView { node: "box".to_owned(), nodes: vec![view] };
            view.add_sessions(&[session("b", "up", 1)]);
            view.nodes.remove(0).devices.remove(0).owner.unwrap()
        };
        assert_eq!(owned("b", "b"), NodeRef { id: "b".to_owned(), name: "10.0.0.1:1".to_owned() });
        assert_eq!(owned("b", "host-b").name, "host-b");
        assert_eq!(owned("c", "c").name, "c", "no session is known");
    }

    #[test]
    fn how_good_a_session_is_stands_with_its_node() {
        let mut view = FabricView { node: "a".to_owned(), nodes: vec![node("a"), node("b"), node("c")] };
        let sessions = [session("b", "up", 9), session("b", "up", 5), session("c", "closing", 1)];
        view.add_sessions(&sessions);
        let seen = SessionView { srtt_ns: 5, rtt_min_ns: 2, data_frames_sent: 200, lost: 8 };
        assert_eq!(view.nodes.iter().map(|node| node.session).collect::<Vec<_>>(), [None, Some(seen), None]);
    }
}
