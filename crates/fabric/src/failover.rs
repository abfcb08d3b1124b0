//! What becomes of devices whose hosts are lost: a box moves them to others by a policy, by the same orders that an operator would give.

use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Assigned, DeviceState, Group};

use crate::leases::Lease;

/// A host that was given a device and did not take it is asked again, or another in its place, after so long.
const AGAIN_NS: u64 = 10_000_000_000;

/// To whom a device moves whose host is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The hosts that are to have it, the first that is there; if there are none, any host of the device's group, by the alphabet.
    pub standby: Vec<Name>,
}

/// A host that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its ID.
    pub node: NodeId,
    /// Its name.
    pub name: Name,
    /// Its group.
    pub group: Option<Group>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Watched {
    /// The last host that had the device.
    owner: Option<NodeId>,
    /// The last host that it was moved to since that one was lost.
    tried: Option<NodeId>,
    next_ns: u64,
}

/// The policies of a box's devices, and what they have seen.
#[derive(Clone, Debug)]
pub struct Failover {
    devices: Vec<(Option<Policy>, Watched)>,
}

impl Failover {
    /// Of these devices, in the order of the leases.
    pub fn new(policies: impl IntoIterator<Item = Option<Policy>>) -> Self {
        Self { devices: policies.into_iter().map(|policy| (policy, Watched::default())).collect() }
    }

    /// Whether there is anything to watch.
    pub fn is_idle(&self) -> bool {
        self.devices.iter().all(|(policy, _)| policy.is_none())
    }

    /// Looks at all leases; a device that is to be given to a host: to be called until there is none, then again when something may
    /// have changed. `hosts` are those that are there now.
    pub fn poll(
        &mut self,
        now_ns: u64,
        leases: impl Iterator<Item = Lease>,
        hosts: &[Candidate],
    ) -> Option<(Name, NodeId)> {
        let watched = self.devices.iter_mut().zip(leases);
        let mut watched =
            watched.filter_map(|((policy, watched), lease)| Some((policy.as_ref()?, watched, lease)));
        watched.find_map(|(policy, watched, lease)| {
            if lease.state == DeviceState::Used {
                *watched = Watched { owner: lease.owner, ..Watched::default() };
            }
            let owner = match lease.assigned {
                Assigned::Host(host) => host,
                Assigned::Group => watched.owner?,
                Assigned::Nobody => return None,
            };
            let is_there = hosts.iter().any(|host| host.node == owner);
            if lease.state != DeviceState::Free || is_there || now_ns < watched.next_ns {
                return None;
            }
            let next = policy.choose(hosts, lease.group, watched.tried)?;
            (watched.tried, watched.next_ns) = (Some(next), now_ns + AGAIN_NS);
            Some((lease.name, next))
        })
    }
}

impl Policy {
    /// The first that is there, after the one that was tried.
    fn choose(&self, hosts: &[Candidate], group: Option<Group>, tried: Option<NodeId>) -> Option<NodeId> {
        let mut choice: Vec<&Candidate> = if self.standby.is_empty() {
            hosts.iter().filter(|host| group.is_none() || host.group == group).collect()
        } else {
            self.standby.iter().filter_map(|name| hosts.iter().find(|host| host.name == *name)).collect()
        };
        if self.standby.is_empty() {
            choice.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        }
        let after = tried.and_then(|tried| choice.iter().position(|host| host.node == tried));
        let at = after.map_or(0, |at| (at + 1) % choice.len());
        choice.get(at).map(|host| host.node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn host(number: u8, group: u16) -> Candidate {
        Candidate {
            node: NodeId([number; 16]),
            name: name(&format!("host-{number}")),
            group: Group::new(group),
        }
    }

    fn lease(state: DeviceState, owner: Option<u8>, assigned: Assigned) -> Lease {
        let owner = owner.map(|number| NodeId([number; 16]));
        Lease { name: name("disk"), group: Group::new(7), assigned, state, epoch: 1, owner }
    }

    fn of(standby: &[&str]) -> Failover {
        Failover::new([Some(Policy { standby: standby.iter().map(|text| name(text)).collect() })])
    }

    #[test]
    fn a_device_moves_when_it_is_free_and_its_host_is_gone_and_not_before() {
        let mut failover = of(&[]);
        let assigned = Assigned::Host(NodeId([1; 16]));
        let (all, rest) =
            ([host(1, 7), host(3, 7), host(2, 7), host(4, 8)], [host(3, 7), host(2, 7), host(4, 8)]);
        let mut look = |now_ns, state, owner, hosts: &[Candidate]| {
            failover.poll(now_ns, [lease(state, owner, assigned)].into_iter(), hosts)
        };
        assert_eq!(look(0, DeviceState::Used, Some(1), &all), None);
        assert_eq!(look(1, DeviceState::Used, Some(1), &rest), None, "its session lives");
        assert_eq!(look(2, DeviceState::Kept, Some(1), &rest), None, "it may come back");
        assert_eq!(look(3, DeviceState::Free, None, &all), None, "it is there");
        assert_eq!(look(4, DeviceState::Moving, None, &rest), None);
        assert_eq!(look(5, DeviceState::Free, None, &[host(4, 8)]), None, "nobody of its group is there");
        let moved = look(6, DeviceState::Free, None, &rest);
        assert_eq!(moved, Some((name("disk"), NodeId([2; 16]))), "the first of its group by the alphabet");
        // It did not take it.
        assert_eq!(look(7, DeviceState::Free, None, &rest), None);
        let then_ns = 6 + AGAIN_NS;
        assert_eq!(look(then_ns, DeviceState::Free, None, &rest), Some((name("disk"), NodeId([3; 16]))));
        assert_eq!(
            look(then_ns + AGAIN_NS, DeviceState::Free, None, &rest),
            Some((name("disk"), NodeId([2; 16])))
        );
    }

    #[test]
    fn those_on_standby_come_in_their_order_whatever_their_group() {
        let mut failover = of(&["host-9", "host-4", "host-2"]);
        let used = lease(DeviceState::Used, Some(1), Assigned::Group);
        let free = lease(DeviceState::Free, None, Assigned::Group);
        let hosts = [host(2, 7), host(4, 8)];
        assert_eq!(failover.poll(0, [free].into_iter(), &hosts), None, "it was nobody's");
        assert_eq!(failover.poll(1, [used].into_iter(), &hosts), None);
        assert_eq!(failover.poll(2, [free].into_iter(), &hosts), Some((name("disk"), NodeId([4; 16]))));
    }

    #[test]
    fn what_was_released_or_has_no_policy_stays() {
        let mut failover = of(&[]);
        let hosts = [host(2, 7)];
        failover.poll(0, [lease(DeviceState::Used, Some(1), Assigned::Group)].into_iter(), &hosts);
        let released = lease(DeviceState::Free, None, Assigned::Nobody);
        assert_eq!(failover.poll(1, [released].into_iter(), &hosts), None);
        let mut none = Failover::new([None]);
        assert!(none.is_idle() && !failover.is_idle());
        let lost = lease(DeviceState::Free, None, Assigned::Host(NodeId([1; 16])));
        assert_eq!(none.poll(2, [lost].into_iter(), &hosts), None);
    }
}
