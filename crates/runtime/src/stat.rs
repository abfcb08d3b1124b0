//! What a running node shows of itself: its sessions, its Port, and all that they count.
//!
//! The names of a session's counters are those of [`etherslot_session::Counters::named`], which the simulator shows too.

use std::fmt::{self, Write as _};

use etherslot_fabric::Lease;
use etherslot_initiator::Initiator;
use etherslot_initiator::nvme::Counters;
use etherslot_node::seal::PublicKey;
use etherslot_node::{
    BoxCounters, BoxNode, FarCounters, GuardCounters, HostCounters, HostNode,
    Protection as SessionProtection, SlotCounters,
};
use etherslot_pci::endpoint::{Endpoint, EndpointCounters};
use etherslot_pci::hierarchy::HierarchyCounters;
use etherslot_pci::requester::RequesterCounters;
use etherslot_session::{Mode, PathReport, Session, State};
use serde::{Deserialize, Serialize};

use crate::counted::{Counted, counted};
use crate::fabric::view;
use crate::links::Links;
use crate::options::Via;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// An I/O box.
    Box,
    /// A host node.
    Host,
    /// An export of disks: a host node of a program.
    Export,
}

/// A node at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStat {
    /// The node's name.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// The version of its program.
    pub version: String,
    /// How long it has been running, ns.
    pub uptime_ns: u64,
    /// Where peers reach it.
    pub address: String,
    /// How its sessions are protected.
    #[serde(default)]
    pub security: SecurityStat,
    /// What is wrong and lasts, in words: cause and remedy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// What it counts beside its sessions.
    pub counters: Counted,
    /// What its links count, together.
    pub port: Counted,
    /// The same, link by link.
    #[serde(default)]
    pub links: Vec<LinkStat>,
    /// Its sessions.
    pub sessions: Vec<SessionStat>,
    /// The slots of a host node; the disks of an export.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slots: Vec<SlotStat>,
    /// The devices of a box.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceStat>,
    /// The other nodes of the fabric, [`MOST_PEERS`] at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<PeerStat>,
    /// What a member of a fabric counts of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fabric: Option<Counted>,
    /// What a box in a fabric counts of its leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leases: Option<Counted>,
}

/// How a node protects its sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityStat {
    /// By keys, or not.
    pub protection: Protection,
    /// The node's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// What it has dropped, and the handshakes.
    #[serde(default)]
    pub counters: Counted,
}

/// Whether there is protection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    /// Frames are sealed.
    Keys,
    /// Whoever reaches the link can read, change and use everything.
    #[default]
    Plaintext,
    /// The same, but the links are memory of this user alone.
    Memory,
}

impl SecurityStat {
    fn new(key: Option<PublicKey>, counters: Option<GuardCounters>, links: &Links) -> Self {
        let protection = match (key, links.is_memory()) {
            (Some(_), _) => Protection::Keys,
            (None, true) => Protection::Memory,
            (None, false) => Protection::Plaintext,
        };
        let counters = counters.map(|counters| {
            counted!(&counters => GuardCounters {
                plain_frames, keyless_frames, forged_frames, stale_frames, false_identities, handshake_frames,
                handshake_limited, handshake_strangers, handshake_unexpected, handshake_cookies_refused,
                handshake_exchanges, handshake_throttled, handshake_failed, handshake_not_allowed, handshakes,
            })
        });
        Self {
            protection,
            public_key: key.map(|key| key.to_string()),
            counters: counters.unwrap_or_default(),
        }
    }
}

/// A session at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionStat {
    /// The peer's address.
    pub peer: String,
    /// The peer's ID, once it has told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_node: Option<String>,
    /// The peer's identity, if the session has keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_key: Option<String>,
    /// Its cipher.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// `connecting`, `up`, `closing`, or `dead: ` and why.
    pub state: String,
    /// `selective` or `classic`.
    pub mode: String,
    /// The largest frame in use.
    pub frame_bytes: u64,
    /// Data frames not acknowledged yet.
    pub unacked_frames: u64,
    /// What goes up and down: round-trip times, window, pacing.
    pub gauges: Counted,
    /// What only grows.
    pub counters: Counted,
    /// The paths of the session, if it has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathStat>,
    /// At a box: what the host's PCI Express hierarchy counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hierarchy: Option<Counted>,
}

/// A path of a session at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathStat {
    /// Whether it answers.
    pub is_up: bool,
    /// What goes up and down.
    pub gauges: Counted,
    /// What only grows.
    pub counters: Counted,
}

impl From<PathReport> for PathStat {
    fn from(path: PathReport) -> Self {
        Self {
            is_up: path.is_up,
            gauges: Counted::from([
                ("srtt_ns", path.srtt_ns),
                ("rtt_min_ns", path.rtt_min_ns),
                ("window_bytes", path.window_bytes),
                ("in_flight_bytes", path.in_flight_bytes),
            ]),
            counters: Counted::from([("data_frames_sent", path.data_frames_sent)]),
        }
    }
}

/// Peers that are shown with what is counted: `ls` shows all.
pub const MOST_PEERS: usize = 256;

/// A link of a node at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStat {
    /// Where peers reach the node by it.
    pub address: String,
    /// Whether its interface can carry frames; nothing of what is no interface of the kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_up: Option<bool>,
    /// What it counts.
    pub counters: Counted,
}

/// A device of a box at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStat {
    /// Its name.
    pub name: String,
    /// `free`, `used`, `kept` for an owner that is out of reach, `moving`.
    pub state: String,
    /// Whose it is: the host's name; else the address of its session; else its ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// How often it was given to a host.
    pub epoch: u64,
    /// What the device and its Endpoint count.
    pub counters: Counted,
}

/// Another node of the fabric at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStat {
    /// Its name.
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Whether its heartbeats come.
    pub is_up: bool,
    /// Of its last heartbeats, up to 64 on each link, so many did not come.
    pub heartbeats_lost: u32,
    /// So many should have come.
    pub heartbeats_expected: u32,
}

/// A slot of a host node at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotStat {
    /// Its device.
    pub device: String,
    /// Whether the device is there, ready to be used.
    #[serde(default)]
    pub is_attached: bool,
    /// Where the device is, if it enters and leaves a running guest: `no guest`, `out`, `entering`, `in`, `leaving`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// Why the box does not give the device, if it has said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// What it counts.
    pub counters: Counted,
}

impl NodeStat {
    /// Calls owners of whom only the ID is known by the addresses of their sessions.
    pub(crate) fn call_owners_by_address(&mut self) {
        for owner in self.devices.iter_mut().filter_map(|device| device.owner.as_mut()) {
            if let Some(address) = address_of(&self.sessions, owner) {
                address.clone_into(owner);
            }
        }
    }

    pub(crate) fn new(name: &str, role: Role, now_ns: u64, counters: Counted, links: &Links) -> Self {
        Self {
            name: name.to_owned(),
            role,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ns: now_ns,
            address: links.address(),
            security: SecurityStat::default(),
            notices: Vec::new(),
            counters,
            port: links.counters(),
            links: links
                .each()
                .map(|(address, counters)| LinkStat { address: address.to_string(), is_up: None, counters })
                .collect(),
            sessions: Vec::new(),
            slots: Vec::new(),
            devices: Vec::new(),
            peers: Vec::new(),
            fabric: None,
            leases: None,
        }
    }

    /// Writes everything to the log.
    pub(crate) fn log(&self) {
        let groups = [("link", &self.port), ("node", &self.counters), ("security", &self.security.counters)];
        for (what, counters) in groups {
            if counters.iter().any(|(_, value)| value != 0) {
                tracing::info!(%counters, "{what}");
            }
        }
        for session in &self.sessions {
            let SessionStat { peer, state, mode, gauges, counters, .. } = session;
            tracing::info!(%peer, state, mode, %gauges, %counters, "session");
            for (path, PathStat { is_up, gauges, counters }) in session.paths.iter().enumerate() {
                tracing::info!(%peer, path, is_up, %gauges, %counters, "path");
            }
            if let Some(hierarchy) = &session.hierarchy {
                tracing::info!(%peer, counters = %hierarchy, "hierarchy");
            }
        }
        for DeviceStat { name, state, epoch, counters, .. } in &self.devices {
            tracing::info!(device = name, state, epoch, %counters, "device");
        }
        for SlotStat { device, guest, counters, .. } in &self.slots {
            tracing::info!(device, guest, %counters, "slot");
        }
    }
}

impl SessionStat {
    pub(crate) fn of(peer: &impl fmt::Display, session: &Session) -> Self {
        let named = |gauges: bool| {
            let chosen = session.counters().named().filter(move |named| named.is_gauge == gauges);
            Counted::from(chosen.map(|named| (named.name, named.value)))
        };
        Self {
            peer: peer.to_string(),
            peer_key: None,
            cipher: None,
            peer_node: session.peer().map(|hello| hex(&hello.node.0)),
            state: match session.state() {
                State::Connecting => "connecting".to_owned(),
                State::Up => "up".to_owned(),
                State::Closing => "closing".to_owned(),
                State::Dead(reason) => format!("dead: {reason}"),
            },
            mode: match session.mode() {
                Mode::Selective => "selective",
                Mode::Classic => "classic",
            }
            .to_owned(),
            frame_bytes: session.frame_bytes() as u64,
            unacked_frames: session.unacked_frames() as u64,
            gauges: named(true),
            counters: named(false),
            paths: if session.paths().len() > 1 {
                session.paths().map(PathStat::from).collect()
            } else {
                Vec::new()
            },
            hierarchy: None,
        }
    }
}

impl SessionStat {
    fn protected_by(self, protection: Option<SessionProtection>) -> Self {
        Self {
            peer_key: protection.map(|protection| protection.peer.to_string()),
            cipher: protection.map(|protection| protection.suite.to_string()),
            ..self
        }
    }
}

/// Where the node of this ID is, if there is a session with it.
pub(crate) fn address_of<'a>(sessions: &'a [SessionStat], id: &str) -> Option<&'a str> {
    sessions.iter().find(|session| session.peer_node.as_deref() == Some(id)).map(|session| &*session.peer)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Of a box.
pub(crate) fn of_box(name: &str, now_ns: u64, node: &BoxNode<Via>, links: &Links) -> NodeStat {
    let counters = counted!(node.counters() => BoxCounters {
        malformed_frames, foreign_frames, hellos_dropped, stray_records, sessions_up, sessions_dead,
    });
    let far = counted!(node.far_counters() => FarCounters {
        requests_out, out_bytes, completions, requests_in, refused, spoofed, held, no_way, severed, joins, no_ticket, other_host,
        other_epoch, not_admitted, strangers, overflows, stray, sessions_dead,
    });
    let counters = counters.and_under("far", &far);
    let mut stat = NodeStat::new(name, Role::Box, now_ns, counters, links);
    stat.security = SecurityStat::new(node.public_key(), node.guard_counters(), links);
    for ((peer, session, hierarchy), keys) in node.hosts().zip(node.protections()) {
        let ahead = hierarchy.ahead_counters();
        let hierarchy = counted!(hierarchy.counters() => HierarchyCounters {
            received, stray, malformed, spoofed, trespassing, unrouted, unrouted_completions, peer, overflows,
        });
        let hierarchy = hierarchy.and([
            ("ahead_pieces", ahead.pieces),
            ("ahead_bytes", ahead.bytes),
            ("ahead_hits", ahead.hits),
            ("ahead_misses", ahead.misses),
            ("ahead_dropped", ahead.dropped),
            ("ahead_refused", ahead.refused),
        ]);
        let session = SessionStat::of(peer, session).protected_by(keys);
        stat.sessions.push(SessionStat { hierarchy: Some(hierarchy), ..session });
    }
    for (is_ours, peer, session, keys) in node.boxes() {
        // There may be one each way.
        let peer = format!("{} {peer}", if is_ours { "to box" } else { "from box" });
        stat.sessions.push(SessionStat::of(&peer, session).protected_by(keys));
    }
    let devices = node.functions().zip(node.leases().iter());
    stat.devices = devices.map(|((_, endpoint), lease)| of_device(&lease, endpoint)).collect();
    stat
}

fn of_device(lease: &Lease, endpoint: Option<&Endpoint>) -> DeviceStat {
    let counters = endpoint.map(|endpoint| {
        let mut counters = Vec::new();
        endpoint.function().count(&mut |name, value| counters.push((name, value)));
        let dma = counted!(endpoint.counters() => EndpointCounters {
            writes, write_bytes, read_bytes, interrupts, requests, unsupported, dropped_posted, poisoned, overflows,
            function_resets,
        });
        let requester = counted!(endpoint.requester_counters() => RequesterCounters {
            requests, timeouts, late_completions, unexpected_completions, malformed_completions, poisoned_completions,
            refused,
        });
        Counted::from(counters).and_under("pcie", &dma).and_under("requester", &requester)
    });
    DeviceStat {
        name: lease.name.as_str().to_owned(),
        state: view::device_state(lease.state).to_owned(),
        owner: lease.owner.map(|owner| format!("{owner:?}")),
        epoch: lease.epoch,
        counters: counters.unwrap_or_default(),
    }
}

/// Of a host node whose slots have these devices.
pub(crate) fn of_host<'a>(
    name: &str,
    now_ns: u64,
    node: &HostNode<Via>,
    links: &Links,
    devices: impl Iterator<Item = (&'a str, Option<&'static str>)>,
) -> NodeStat {
    let counters = counted!(node.counters() => HostCounters {
        malformed_frames, foreign_frames, stray_records, sessions_up, sessions_dead,
    });
    let mut stat = NodeStat::new(name, Role::Host, now_ns, counters, links);
    stat.security = SecurityStat::new(node.public_key(), node.guard_counters(), links);
    stat.sessions = sessions_of(node).collect();
    let slots = devices.zip(node.slots()).enumerate();
    let slots = slots.map(|(slot, ((device, guest), (ready, counters)))| SlotStat {
        guest: guest.map(str::to_owned),
        refusal: node.refusal(slot).map(str::to_owned),
        ..of_slot(device, ready, counters)
    });
    stat.slots = slots.collect();
    stat
}

/// Of an export that counts `counters`: its devices are slots, each with what its driver counts behind.
pub(crate) fn of_export<'a>(
    name: &str,
    now_ns: u64,
    counters: Counted,
    links: &Links,
    devices: impl Iterator<Item = (&'a str, &'a Initiator<Via>)>,
) -> NodeStat {
    let mut stat = NodeStat::new(name, Role::Export, now_ns, counters, links);
    for (device, initiator) in devices {
        let node = initiator.node();
        stat.sessions.extend(sessions_of(node));
        stat.security = SecurityStat::new(node.public_key(), node.guard_counters(), links);
        let slots = node.slots().map(|(ready, counters)| of_slot(device, ready, counters));
        stat.slots.extend(slots.map(|slot| {
            let Counters {
                submitted,
                completed,
                failed,
                resubmitted,
                started,
                resets,
                losses,
                stray_completions,
                doorbells,
            } = *initiator.counters();
            let driver = [
                ("submitted", submitted),
                ("completed", completed),
                ("failed", failed),
                ("resubmitted", resubmitted),
                ("started", started),
                ("resets", resets),
                ("losses", losses),
                ("stray_completions", stray_completions),
                ("doorbells", doorbells),
            ];
            SlotStat { counters: slot.counters.and(driver), ..slot }
        }));
    }
    stat
}

fn sessions_of(node: &HostNode<Via>) -> impl Iterator<Item = SessionStat> {
    let sessions = node.sessions().zip(node.protections());
    sessions.map(|((peer, session), keys)| SessionStat::of(peer, session).protected_by(keys))
}

fn of_slot(device: &str, is_attached: bool, counters: &SlotCounters) -> SlotStat {
    let counters = counted!(counters => SlotCounters {
        dma_writes, dma_write_bytes, dma_reads, dma_read_bytes, interrupts, dma_faults, silenced, malformed, foreign,
        poisoned, unsupported, unexpected_completions, access_timeouts, error_messages, accesses, lost_writes,
        ahead_pieces, ahead_bytes, ahead_refused,
    });
    SlotStat { device: device.to_owned(), is_attached, guest: None, refusal: None, counters }
}
