//! What of the leases has to outlive the box's daemon.

use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Assigned, Group};

use super::{Holder, Leases};

/// What is kept of one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// The device.
    pub name: Name,
    /// Its epoch, so that no two leases ever have the same.
    pub epoch: u64,
    /// Who had it, or for whom it was kept.
    pub owner: Option<NodeId>,
    /// Group and assignment, if an order has changed them.
    pub ordered: Option<(Assigned, Option<Group>)>,
}

impl Leases {
    /// What is to be kept, a row for each device.
    pub fn image(&self) -> impl Iterator<Item = Image> {
        self.entries.iter().map(|entry| Image {
            name: entry.name,
            epoch: entry.epoch,
            owner: entry.owner(),
            ordered: entry.is_ordered.then_some((entry.assigned, entry.group)),
        })
    }

    /// Takes what an earlier life has kept. Devices that had an owner are kept for it for a while: what was on its way is
    /// lost with the life, also an order: a device that it had recalled goes back, one that it had offered is offered on.
    pub fn restore(&mut self, now_ns: u64, images: impl IntoIterator<Item = Image>) {
        for image in images {
            let Some(index) = self.index(&image.name) else { continue };
            let hold_ns = self.config.hold_ns;
            let entry = &mut self.entries[index];
            entry.epoch = entry.epoch.max(image.epoch);
            if let Some((assigned, group)) = image.ordered {
                (entry.assigned, entry.group, entry.is_ordered) = (assigned, group, true);
            }
            if let Some(host) = image.owner.filter(|_| hold_ns != 0) {
                entry.holder = Holder::Kept { host, until_ns: now_ns + hold_ns };
            }
            self.touch(index);
        }
    }
}
