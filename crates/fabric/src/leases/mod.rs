//! The leases of a box's devices: who may have one, who has it, and how it changes hands.
//!
//! The box decides alone, since every access of a host passes it: an *attachment*, one stream of one session, is what a lease binds. Each
//! time a device is given to a host its *epoch* grows by one. Whoever owns this table does what it says
//! ([`Leases::action`]), tells it what came of it, and makes [`Leases::image`] durable before a host hears that it has a device.

mod image;
mod transfer;

use std::collections::VecDeque;

use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Assigned, Change, DeviceState, Group, Outcome, Step};

pub use image::Image;
use transfer::{Stage, Transfer};

/// Outcomes that are remembered for those who ask again; the oldest make room.
const OUTCOMES: usize = 64;

/// Times.
#[derive(Clone, Debug)]
pub struct LeaseConfig {
    /// A device whose owner is out of reach is kept for it so long; 0: not at all.
    pub hold_ns: u64,
    /// An owner has so long to give a device back.
    pub recall_ns: u64,
    /// A new owner has so long to take it.
    pub offer_ns: u64,
}

impl Default for LeaseConfig {
    fn default() -> Self {
        Self { hold_ns: 0, recall_ns: 20_000_000_000, offer_ns: 5_000_000_000 }
    }
}

/// A device, as its configuration has it.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// Its name, unique in the box.
    pub name: Name,
    /// Its assignment group, unless an order has put it into another.
    pub group: Option<Group>,
}

/// A node that may own a device: what the IDs of all nodes with its key begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(pub [u8; 12]);

/// Who asked for a change, in which life, and under which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The node.
    pub asker: NodeId,
    /// Its life.
    pub life: u64,
    /// Its number.
    pub number: u64,
}

/// Why a host does not get a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// There is none of this name.
    Unknown,
    /// Another host has it, or it is kept for one, or changes hands.
    Busy,
    /// It is another's to have.
    NotAssigned,
}

/// What is to be done with a device at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its place in the table.
    pub device: usize,
    /// Who has it.
    pub host: NodeId,
    /// What.
    pub kind: RecallKind,
}

/// What is to be said to the owner of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecallKind {
    /// It is to give it back; [`Leases::released`] follows.
    Recall {
        /// How long it has, ns.
        window_ns: u64,
    },
    /// It may keep it.
    Keep,
    /// It is taken away: from now on nothing of that host reaches it. [`Leases::released`] follows at once.
    Fence,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounters {
    /// Leases given.
    pub granted: u64,
    /// Hosts that were denied a device.
    pub denied: u64,
    /// Devices given back.
    pub released: u64,
    /// Devices whose owner fell silent.
    pub owners_lost: u64,
    /// Devices taken away by force.
    pub fenced: u64,
    /// Orders done.
    pub moved: u64,
    /// Orders begun and undone.
    pub rolled_back: u64,
    /// Orders refused.
    pub refused: u64,
}

/// A lease, to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The device.
    pub name: Name,
    /// Its group.
    pub group: Option<Group>,
    /// Whose it may be.
    pub assigned: Assigned,
    /// What has become of it.
    pub state: DeviceState,
    /// How often it was given to a host.
    pub epoch: u64,
    /// Who has it, or for whom it is kept.
    pub owner: Option<NodeId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    Free,
    Held { host: NodeId, group: Option<Group> },
    Kept { host: NodeId, until_ns: u64 },
}

#[derive(Clone, Debug)]
struct Entry {
    name: Name,
    group: Option<Group>,
    assigned: Assigned,
    /// An order has changed group or assignment.
    is_ordered: bool,
    /// Who may own it at all, if that is not anybody.
    owners: Option<Vec<Owner>>,
    epoch: u64,
    holder: Holder,
    transfer: Option<Transfer>,
}

impl Entry {
    fn permits(&self, host: NodeId, group: Option<Group>) -> bool {
        let is_assigned = match self.assigned {
            Assigned::Group => self.group.is_none() || self.group == group,
            Assigned::Host(assigned) => assigned == host,
            Assigned::Nobody => false,
        };
        is_assigned && self.may_be_of(host)
    }

    /// Whether the box's configuration lets this host own it, whatever is ordered.
    fn may_be_of(&self, host: NodeId) -> bool {
        let is_it = |owner: &Owner| host.0.starts_with(&owner.0);
        self.owners.as_ref().is_none_or(|owners| owners.iter().any(is_it))
    }

    fn owner(&self) -> Option<NodeId> {
        match self.holder {
            Holder::Free => None,
            Holder::Held { host, .. } | Holder::Kept { host, .. } => Some(host),
        }
    }

    /// What a change of whose the device is begins with: nothing if its owner keeps it, and no recall if nobody uses it.
    fn first_step(&self, change: Change) -> Step {
        let (host, of) = match self.holder {
            Holder::Held { host, group } => (host, group),
            // Who comes back may have it still.
            Holder::Kept { .. } if change == Change::Anybody => return Step::None,
            Holder::Kept { .. } | Holder::Free => return Step::Offer,
        };
        let (assigned, group) = apply(change, self.group);
        let stays = match assigned {
            Assigned::Group => group.is_none() || group == of,
            Assigned::Host(to) => to == host,
            Assigned::Nobody => false,
        };
        if stays { Step::None } else { Step::Recall }
    }
}

/// All leases of a box.
#[derive(Clone, Debug)]
pub struct Leases {
    config: LeaseConfig,
    entries: Vec<Entry>,
    actions: VecDeque<Action>,
    outcomes: VecDeque<(Key, Outcome)>,
    /// Devices that have changed since they were last asked for.
    changed: Vec<bool>,
    /// Whether any device waits for a time.
    has_timers: bool,
    revision: u64,
    counters: LeaseCounters,
}

impl Leases {
    /// A table of these devices, all free.
    pub fn new(config: LeaseConfig, devices: impl IntoIterator<Item = DeviceConfig>) -> Self {
        let entries: Vec<Entry> = devices
            .into_iter()
            .map(|DeviceConfig { name, group }| Entry {
                name,
                group,
                assigned: Assigned::Group,
                is_ordered: false,
                owners: None,
                epoch: 0,
                holder: Holder::Free,
                transfer: None,
            })
            .collect();
        Self {
            config,
            changed: vec![true; entries.len()],
            entries,
            actions: VecDeque::new(),
            outcomes: VecDeque::new(),
            has_timers: false,
            revision: 0,
            counters: LeaseCounters::default(),
        }
    }

    /// Lets nobody but these own a device, whatever is ordered. What a host has already is not taken from it.
    pub fn restrict(&mut self, name: &Name, owners: Vec<Owner>) {
        if let Some(index) = self.index(name) {
            self.entries[index].owners = Some(owners);
        }
    }

    /// A host of this group asks for a device. Its new epoch, if it is the host's from now on.
    pub fn admit(
        &mut self,
        now_ns: u64,
        host: NodeId,
        group: Option<Group>,
        name: &Name,
    ) -> Result<u64, Denied> {
        let outcome = self.try_admit(now_ns, host, group, name);
        match outcome {
            Ok(_) => self.counters.granted += 1,
            Err(_) => self.counters.denied += 1,
        }
        outcome
    }

    fn try_admit(
        &mut self,
        now_ns: u64,
        host: NodeId,
        group: Option<Group>,
        name: &Name,
    ) -> Result<u64, Denied> {
        let index = self.index(name).ok_or(Denied::Unknown)?;
        let entry = &mut self.entries[index];
        let is_offered = match &entry.transfer {
            None => false,
            Some(Transfer { stage: Stage::Offering { .. }, .. }) => true,
            Some(_) => return Err(Denied::Busy),
        };
        if !entry.permits(host, group) {
            return Err(Denied::NotAssigned);
        }
        match entry.holder {
            Holder::Held { .. } => return Err(Denied::Busy),
            Holder::Kept { host: owner, .. } if owner != host => return Err(Denied::Busy),
            Holder::Kept { .. } | Holder::Free => {}
        }
        entry.epoch += 1;
        entry.holder = Holder::Held { host, group };
        let epoch = entry.epoch;
        self.touch(index);
        if is_offered {
            self.done(now_ns, index);
        }
        Ok(epoch)
    }

    /// The owner of a device has given it back, or it was taken away: nothing of that host reaches it any more, and it
    /// was reset.
    pub fn released(&mut self, now_ns: u64, device: usize) {
        if let Some(entry) = self.entries.get_mut(device)
            && let Holder::Held { .. } = entry.holder
        {
            self.counters.released += 1;
            entry.holder = Holder::Free;
            self.gone(now_ns, device);
        }
    }

    /// The owner of a device is out of reach; its device was taken back and reset.
    pub fn owner_lost(&mut self, now_ns: u64, device: usize) {
        let hold_ns = self.config.hold_ns;
        if let Some(entry) = self.entries.get_mut(device)
            && let Holder::Held { host, group } = entry.holder
        {
            self.counters.owners_lost += 1;
            let is_kept = hold_ns != 0 && entry.transfer.is_none() && entry.permits(host, group);
            entry.holder =
                if is_kept { Holder::Kept { host, until_ns: now_ns + hold_ns } } else { Holder::Free };
            self.gone(now_ns, device);
        }
    }

    /// Whatever was to be said to the owner of a device need not be said any more.
    fn gone(&mut self, now_ns: u64, device: usize) {
        self.actions.retain(|action| action.device != device);
        self.touch(device);
        self.recalled(now_ns, device);
    }

    /// Goes on with what time brings. True if something changed.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> bool {
        self.has_timers && self.poll_timers(now_ns)
    }

    fn poll_timers(&mut self, now_ns: u64) -> bool {
        let mut progress = false;
        for index in 0..self.entries.len() {
            if let Holder::Kept { until_ns, .. } = self.entries[index].holder
                && until_ns <= now_ns
            {
                self.entries[index].holder = Holder::Free;
                self.touch(index);
                progress = true;
            }
            progress |= self.poll_transfer(now_ns, index);
        }
        progress
    }

    /// When [`Leases::poll`] has something to do.
    pub fn deadline_ns(&self) -> Option<u64> {
        let kept = self.entries.iter().filter_map(|entry| match entry.holder {
            Holder::Kept { until_ns, .. } => Some(until_ns),
            _ => None,
        });
        let moving = self.entries.iter().filter_map(|entry| entry.transfer.as_ref()?.until_ns());
        kept.chain(moving).min()
    }

    /// The next thing to be done.
    pub fn action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// A number that is another one whenever the image is.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The next device, by its place, that has changed since it was last returned here.
    pub fn changed(&mut self) -> Option<usize> {
        let index = self.changed.iter().position(|&changed| changed)?;
        self.changed[index] = false;
        Some(index)
    }

    /// The place of a device.
    pub fn index(&self, name: &Name) -> Option<usize> {
        self.entries.iter().position(|entry| entry.name == *name)
    }

    /// All leases, in the order of the devices.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Lease> {
        self.entries.iter().map(|entry| Lease {
            name: entry.name,
            group: entry.group,
            assigned: entry.assigned,
            state: match (entry.holder, &entry.transfer) {
                (_, Some(_)) => DeviceState::Moving,
                (Holder::Free, None) => DeviceState::Free,
                (Holder::Held { .. }, None) => DeviceState::Used,
                (Holder::Kept { .. }, None) => DeviceState::Kept,
            },
            epoch: entry.epoch,
            owner: entry.owner(),
        })
    }

    /// What was counted.
    pub fn counters(&self) -> &LeaseCounters {
        &self.counters
    }

    fn touch(&mut self, index: usize) {
        self.changed[index] = true;
        self.revision += 1;
        let waits = |entry: &Entry| entry.transfer.is_some() || matches!(entry.holder, Holder::Kept { .. });
        self.has_timers = self.entries.iter().any(waits);
    }
}

/// What an order does to whose a device may be.
fn apply(change: Change, group: Option<Group>) -> (Assigned, Option<Group>) {
    match change {
        Change::Host(host) => (Assigned::Host(host), group),
        Change::Group(group) => (Assigned::Group, Some(group)),
        Change::Nobody => (Assigned::Nobody, group),
        Change::Anybody => (Assigned::Group, None),
    }
}

#[cfg(test)]
mod tests;
