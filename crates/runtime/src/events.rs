//! What happens to a node, for those who listen: a stream of records, a JSON object on a line each.
//!
//! It begins with a snapshot, and whatever changes afterwards is told, so who listens needs nothing else. A listener that
//! does not keep up loses records, is told how many, and gets a new snapshot. `docs/operations.md` describes every record.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use etherslot_fabric::{Leases, NodeEvent};
use etherslot_node::SessionEvent;
use etherslot_wire::discovery::{Device, DeviceState};
use serde::{Deserialize, Serialize};

use crate::fabric::view::{self, FabricView};
use crate::stat::{NodeStat, Role};

/// The form of all records.
pub const SCHEMA: u32 = 1;
/// Records that wait to be given to listeners, which happens once a round.
const WAITING: usize = 1024;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// One more than that of the record before, for each listener; records that a listener lost have numbers, too.
    pub sequence: u64,
    /// When it happened, ms since 1970 by the clock of the machine.
    pub time_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// All there is, at the beginning and after a loss.
    Snapshot {
        /// [`SCHEMA`].
        schema: u32,
        /// What `etherslot stat` shows.
        stat: Box<NodeStat>,
        /// What `etherslot ls` shows; nothing of a node that is in no fabric.
        ls: Option<FabricView>,
    },
    /// What is counted, as often as was asked for.
    Counters {
        /// What `etherslot stat` shows.
        stat: Box<NodeStat>,
    },
    /// The listener was too slow for so many records. A snapshot follows.
    Lost {
        /// How many.
        records: u64,
    },
    /// Another node of the fabric came or went.
    Node {
        /// Its name.
        node: String,
        /// What it is, if that is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        role: Option<Role>,
        /// What has become of it.
        what: NodeChange,
    },
    /// A device of the fabric is known, or something about it changed.
    Device {
        /// Its box.
        r#box: String,
        /// Its name.
        device: String,
        /// What has become of it.
        what: DeviceChange,
        /// `free`, `used`, `kept`, `moving`.
        state: String,
        /// Who has it now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<String>,
        /// The epoch of its lease.
        epoch: u64,
    },
    /// A session of this node came up or died.
    Session {
        /// The peer's address.
        peer: String,
        /// What has become of it.
        what: SessionChange,
        /// Why it died.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
    /// The device of a slot of this host came or went, as its guest sees it.
    Slot {
        /// The slot's place in the configuration, from 0.
        slot: usize,
        /// Its device.
        device: String,
        /// What has become of it.
        what: SlotChange,
    },
    /// A guest came to a slot of this host or left it.
    Guest {
        /// The slot's place in the configuration, from 0.
        slot: usize,
        /// Its device.
        device: String,
        /// Whether it is there.
        is_connected: bool,
    },
    /// The interface of a link lost its carrier, or has it again.
    Link {
        /// The link's place in the configuration, from 0.
        link: usize,
        /// Its interface.
        interface: String,
        /// Whether frames can pass.
        is_up: bool,
    },
    /// The node stops: the last record.
    Stopping,
}

/// What becomes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeChange {
    /// It is heard, for the first time or again.
    Up,
    /// It was started again before anybody found it silent.
    Restarted,
    /// It is silent.
    Down,
    /// It has said that it stops.
    Left,
}

/// What becomes of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceChange {
    /// It is known for the first time.
    Found,
    /// A host has it that did not have it, or under a new lease.
    Assigned,
    /// Nobody has it any more.
    Released,
    /// Its owner is out of reach, and it is kept for it.
    Kept,
    /// Something else: it is on its way, or for somebody else than before.
    Changed,
}

impl From<NodeEvent> for NodeChange {
    fn from(event: NodeEvent) -> Self {
        match event {
            NodeEvent::Up | NodeEvent::Back => Self::Up,
            NodeEvent::Restarted => Self::Restarted,
            NodeEvent::Down => Self::Down,
            NodeEvent::Left => Self::Left,
        }
    }
}

impl DeviceChange {
    /// The one from what was known before, if anything was.
    pub(crate) fn of(before: Option<&Device>, now: &Device) -> Self {
        let Some(before) = before else { return Self::Found };
        let lease = |device: &Device| (device.state, device.owner, device.epoch);
        if lease(before) == lease(now) { Self::Changed } else { Self::to(now.state) }
    }

    /// The one that leads to `state`.
    fn to(state: DeviceState) -> Self {
        match state {
            DeviceState::Used => Self::Assigned,
            DeviceState::Free => Self::Released,
            DeviceState::Kept => Self::Kept,
            DeviceState::Moving => Self::Changed,
        }
    }
}

impl<A: fmt::Display> From<SessionEvent<A>> for Event {
    fn from(event: SessionEvent<A>) -> Self {
        match event {
            SessionEvent::Up { peer } => {
                Self::Session { peer: peer.to_string(), what: SessionChange::Up, why: None }
            }
            SessionEvent::Dead { peer, reason } => Self::Session {
                peer: peer.to_string(),
                what: SessionChange::Dead,
                why: Some(reason.map_or_else(|| "the peer began another".to_owned(), |it| it.to_string())),
            },
        }
    }
}

/// What becomes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionChange {
    /// It is there.
    Up,
    /// It is over.
    Dead,
}

/// What becomes of a slot's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SlotChange {
    /// It can be used.
    Attached,
    /// It is away: accesses read all ones.
    Detached,
    /// It was plugged into the guest.
    Plugged,
    /// It is not in the guest any more.
    Unplugged,
}

/// Events that were told and not given to listeners yet. Handed around in the one thread of a daemon: whoever sees
/// something happen tells it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Teller(Rc<RefCell<Told>>);

#[derive(Debug, Default)]
struct Told {
    has_listeners: bool,
    events: VecDeque<(u64, Event)>,
    /// Dropped since the last time that they were taken.
    dropped: u64,
}

impl Teller {
    /// Something happened; `event` is made if anybody listens.
    pub(crate) fn tell(&self, event: impl FnOnce() -> Event) {
        let mut told = self.0.borrow_mut();
        if !told.has_listeners {
            return;
        }
        if told.events.len() < WAITING {
            told.events.push_back((now_ms(), event()));
        } else {
            told.dropped += 1;
        }
    }

    /// Whether anything has to be told from now on.
    pub(crate) fn set_listeners(&self, has_listeners: bool) {
        let mut told = self.0.borrow_mut();
        told.has_listeners = has_listeners;
        if !has_listeners {
            told.events.clear();
            told.dropped = 0;
        }
    }

    /// The next event and when it happened.
    pub(crate) fn take(&self) -> Option<(u64, Event)> {
        self.0.borrow_mut().events.pop_front()
    }

    /// How many events were dropped since the last call.
    pub(crate) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.0.borrow_mut().dropped)
    }
}

/// What has become of the devices of a box that is in no fabric, which has nobody else to tell it.
pub(crate) fn tell_leases(teller: &Teller, name: &str, leases: &mut Leases) {
    while let Some(place) = leases.changed() {
        let Some(lease) = leases.iter().nth(place) else { continue };
        teller.tell(|| Event::Device {
            r#box: name.to_owned(),
            device: lease.name.as_str().to_owned(),
            what: DeviceChange::to(lease.state),
            state: view::device_state(lease.state).to_owned(),
            owner: lease.owner.map(|owner| format!("{owner:?}")),
            epoch: lease.epoch,
        });
    }
}

/// The time by the machine's clock, ms since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Record {
    /// It on a line of its own.
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}
