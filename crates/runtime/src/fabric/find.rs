//! From the words of people to devices, boxes and hosts: by name or serial number, never by an address.

use etherslot_fabric::{Identity, Known, Member, Presence};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Assigned, Change, Device, Group, Order, Role};

use super::Asked;
use super::view::To;
use super::wrong::Strangers;
use crate::options::Via;

/// What a slot for any device is called that has none.
pub const ANY: &str = "*";

/// Which device a slot is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// By its name, or by the name of its box, a slash, and its name.
    Name(String),
    /// By its serial number.
    Serial(String),
    /// Whichever is given to this host, or to its group, and has no slot of its own.
    Any,
}

/// A device by its box.
pub(crate) type Which = (NodeId, Name);

/// Where a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its box, if that was found, too.
    pub(crate) node: Option<NodeId>,
    pub(crate) name: Name,
    /// The ways to its box: not empty.
    pub(crate) ways: Vec<Via>,
    /// Whether it is for this host or its group, and not for whoever asks.
    pub(crate) is_given: bool,
    /// Whether its box would give it to this host now, as far as is known.
    pub(crate) is_to_be_had: bool,
}

impl Found {
    pub(crate) fn which(&self) -> Option<Which> {
        self.node.map(|node| (node, self.name))
    }
}

/// Whether `device` of the box `owner` is meant by `text`.
fn is_meant(text: &str, owner: &str, device: &Device) -> bool {
    let name = device.name.as_str();
    name == text || text.strip_prefix(owner).and_then(|rest| rest.strip_prefix('/')) == Some(name)
}

/// The device that is wanted, if exactly one is known and its box is there.
pub(crate) fn device(member: &Member<Via>, wanted: &Wanted) -> Option<Found> {
    let (directory, own) = (member.directory(), member.identity());
    let mut found = None;
    for (node, known) in directory.nodes().filter(|(_, known)| known.presence == Presence::Up) {
        for device in known.devices.iter().flatten() {
            let is_it = match wanted {
                Wanted::Name(text) => is_meant(text, known.name.as_str(), device),
                Wanted::Serial(serial) => device.serial.as_str() == serial,
                Wanted::Any => false,
            };
            if is_it && found.replace((*node, known, device)).is_some() {
                return None;
            }
        }
    }
    let (node, known, device) = found?;
    look(own, node, known, device)
}

/// The device that a slot for any device has, if its box is there.
pub(crate) fn held(member: &Member<Via>, (node, name): Which) -> Option<Found> {
    let known = member.directory().get(&node).filter(|known| known.presence == Presence::Up)?;
    let device = known.devices.iter().flatten().find(|device| device.name == name)?;
    look(member.identity(), node, known, device)
}

/// A device for a slot for any: the first, by box and name, that is given to this host, that it may have now, and that is not `taken`.
pub(crate) fn any(member: &Member<Via>, taken: &[Which]) -> Option<Found> {
    let up = member.directory().nodes().filter(|(_, known)| known.presence == Presence::Up);
    let devices =
        up.flat_map(|(node, known)| known.devices.iter().flatten().map(move |device| (*node, known, device)));
    devices
        .filter(|(node, _, device)| !taken.contains(&(*node, device.name)))
        .filter_map(|(node, known, device)| {
            let found = look(member.identity(), node, known, device)?;
            (found.is_given && found.is_to_be_had).then_some((known.name, found))
        })
        .min_by(|(one, a), (other, b)| {
            (one.as_str(), a.name.as_str()).cmp(&(other.as_str(), b.name.as_str()))
        })
        .map(|(_, found)| found)
}

fn look(own: &Identity, node: NodeId, known: &Known<Via>, device: &Device) -> Option<Found> {
    let (is_ours, is_given) = match device.assigned {
        Assigned::Group => (
            device.group.is_none() || device.group == own.group,
            device.group.is_some() && device.group == own.group,
        ),
        Assigned::Host(host) => (host == own.node, host == own.node),
        Assigned::Nobody => (false, false),
    };
    let is_to_be_had = is_ours && device.owner.is_none_or(|owner| owner == own.node);
    let mut ways: Vec<Via> = Vec::new();
    for (_, via, _) in known.ways() {
        if !ways.contains(&via) {
            ways.push(via);
        }
    }
    (!ways.is_empty()).then_some(Found { node: Some(node), name: device.name, ways, is_given, is_to_be_had })
}

/// All devices that are known, with their boxes' IDs and names.
fn devices<'a>(
    member: &'a Member<Via>,
    own: &'a [Device],
) -> impl Iterator<Item = (NodeId, &'a str, &'a Device)> {
    let identity = member.identity();
    let others = member.directory().nodes().flat_map(|(node, known)| {
        known.devices.iter().flatten().map(move |device| (*node, known.name.as_str(), device))
    });
    own.iter().map(|device| (identity.node, identity.name.as_str(), device)).chain(others)
}

/// The device of an order.
pub(crate) fn known<'a>(member: &'a Member<Via>, own: &'a [Device], order: &Order) -> Option<&'a Device> {
    let is_it =
        |(node, _, device): &(NodeId, &str, &Device)| (*node, device.name) == (order.to, order.device);
    devices(member, own).find(is_it).map(|(_, _, device)| device)
}

/// Why no device is found for a slot, if that is a mistake: one that is known and can't be had now is none.
pub(crate) fn unmet(member: &Member<Via>, wanted: &Wanted) -> Option<String> {
    let meant: Vec<(NodeId, &str, &Device)> = devices(member, &[])
        .filter(|(_, owner, device)| match wanted {
            Wanted::Name(text) => is_meant(text, owner, device),
            Wanted::Serial(serial) => device.serial.as_str() == serial,
            Wanted::Any => false,
        })
        .collect();
    let meant = there(member, meant, |(node, _, _)| node);
    let (text, known): (_, Vec<&str>) = match wanted {
        Wanted::Name(text) => {
            (text, devices(member, &[]).map(|(_, _, device)| device.name.as_str()).collect())
        }
        Wanted::Serial(text) => {
            (text, devices(member, &[]).map(|(_, _, device)| device.serial.as_str()).collect())
        }
        Wanted::Any => return None,
    };
    match meant.as_slice() {
        [] => Some(format!("no box has {text}, for which there is a slot: there {}", listed(known))),
        [_] => None,
        several => Some(ambiguous(text, several)),
    }
}

/// What is asked for, as an order to a box.
pub(crate) fn order(
    member: &Member<Via>,
    own: &[Device],
    strangers: &Strangers,
    asked: &Asked<'_>,
    now_ns: u64,
) -> Result<Order, String> {
    let text = asked.device;
    let meant: Vec<(NodeId, &str, &Device)> = devices(member, own)
        .filter(|(_, owner, device)| is_meant(text, owner, device) || device.serial.as_str() == text)
        .collect();
    let meant = there(member, meant, |(node, _, _)| node);
    let (to, device) = match meant.as_slice() {
        [] => {
            let known: Vec<&str> = devices(member, own).map(|(_, _, device)| device.name.as_str()).collect();
            return Err(format!("no device {text:?} is known: there {}", listed(known)));
        }
        [(node, owner, device)] => {
            is_there(member, strangers, node, owner, now_ns)?;
            (*node, device.name)
        }
        several => return Err(ambiguous(text, several)),
    };
    let change = match asked.to {
        To::Host(text) => Change::Host(host(member, strangers, text, now_ns)?),
        To::Group(number) => {
            let group = Group::new(*number);
            Change::Group(
                group.ok_or_else(|| format!("{number} is no group: groups are 1 to {}", Group::MAX))?,
            )
        }
        To::Nobody => Change::Nobody,
        To::Anybody => Change::Anybody,
    };
    // Which life of the box it is for is told when it is sent.
    Ok(Order { number: 0, to, life: 0, device, change, dry_run: asked.dry_run, force: asked.force })
}

/// Whether an order can come to a box: one that is cut off would hear it later, when nobody waits for it any more.
fn is_there(
    member: &Member<Via>,
    strangers: &Strangers,
    node: &NodeId,
    name: &str,
    now_ns: u64,
) -> Result<(), String> {
    if is_double(member, node, now_ns) {
        return Err(format!("{}; nothing was changed", two_called("boxes", name)));
    }
    let Some(known) = member.directory().get(node) else { return Ok(()) };
    let silent_s = now_ns.saturating_sub(known.heard_ns) / 1_000_000_000;
    match known.presence {
        Presence::Up if strangers.is_keyed(node) => Err(keyed(name)),
        Presence::Up => Ok(()),
        Presence::Down => Err(format!(
            "{name}, the device's box, is silent for {silent_s} s: start it, or look at its link; nothing was changed"
        )),
        Presence::Left => Err(format!(
            "{name}, the device's box, was stopped {silent_s} s ago: start it; nothing was changed"
        )),
    }
}

/// Whether two nodes speak under this ID: nobody can tell whom an order to or for it would meet.
fn is_double(member: &Member<Via>, node: &NodeId, now_ns: u64) -> bool {
    let known = member.directory().get(node);
    known.map_or(member.is_double(now_ns), |known| known.is_double(now_ns))
}

fn two_called(nodes: &str, name: &str) -> String {
    format!("two {nodes} are called {name}: give one of them another name ([node] name)")
}

fn keyed(name: &str) -> String {
    format!(
        "{name} has keys and this node has none: they don't work together; give this one the other's fabric.key, and no plaintext; \
         nothing was changed"
    )
}

/// Of several that are meant those whose nodes are there, if one is: the others are only remembered.
fn there<T>(member: &Member<Via>, mut meant: Vec<T>, node: impl Fn(&T) -> &NodeId) -> Vec<T> {
    let is_there = |it: &T| {
        let known = member.directory().get(node(it));
        known.is_none_or(|known| known.presence == Presence::Up)
    };
    if meant.iter().any(is_there) {
        meant.retain(is_there);
    }
    meant
}

fn ambiguous(text: &str, several: &[(NodeId, &str, &Device)]) -> String {
    let names: Vec<String> =
        several.iter().map(|(_, owner, device)| format!("{owner}/{}", device.name.as_str())).collect();
    let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
    match twice {
        Some((at, _)) => {
            let serials: Vec<&str> = several.iter().map(|(_, _, device)| device.serial.as_str()).collect();
            format!(
                "{}, or write a serial number: {}",
                two_called("boxes", several[at].1),
                serials.join(", ")
            )
        }
        None => format!("{text:?} is several devices: write one of {}", names.join(", ")),
    }
}

fn host(member: &Member<Via>, strangers: &Strangers, text: &str, now_ns: u64) -> Result<NodeId, String> {
    let identity = member.identity();
    let own = (identity.node, identity.name.as_str(), identity.role);
    let others = member.directory().nodes().map(|(node, known)| (*node, known.name.as_str(), known.role));
    let hosts: Vec<(NodeId, &str, Role)> =
        std::iter::once(own).chain(others).filter(|(_, _, role)| *role == Role::Host).collect();
    let is_meant = |(node, name, _): &&(NodeId, &str, Role)| *name == text || format!("{node:?}") == text;
    let meant = there(member, hosts.iter().filter(is_meant).collect(), |(node, _, _)| node);
    match meant.as_slice() {
        [] => {
            let names: Vec<&str> = hosts.iter().map(|(_, name, _)| *name).collect();
            Err(format!("no host {text:?} is known: there {}", listed(names)))
        }
        [(node, name, _)] if is_double(member, node, now_ns) => {
            Err(format!("{}; nothing was changed", two_called("hosts", name)))
        }
        [(node, name, _)] if strangers.is_keyed(node) => Err(keyed(name)),
        [(node, _, _)] => Ok(*node),
        several => {
            let ids: Vec<String> = several.iter().map(|(node, _, _)| format!("{node:?}")).collect();
            Err(format!("{text:?} is several hosts: write one of {}", ids.join(", ")))
        }
    }
}

/// In the order of the alphabet: that of the directory is nobody's.
fn listed(mut names: Vec<&str>) -> String {
    names.sort_unstable();
    match names.as_slice() {
        [] => "is none yet".to_owned(),
        names if names.len() <= 8 => format!("are {}", names.join(", ")),
        names => format!("are {} and {} more", names[..8].join(", "), names.len() - 8),
    }
}

#[cfg(test)]
mod tests {
    use etherslot_fabric::{DirectoryConfig, Identity, MemberConfig, To as Hear};
    use etherslot_netio::Address;
    use etherslot_wire::discovery::{DeviceState, Port, Serial};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn via(number: u16) -> Via {
        Via { link: 0, address: Address::Ring(number.into()) }
    }

    fn member(number: u8, name: &str, role: Role) -> Member<Via> {
        Member::new(MemberConfig {
            identity: Identity {
                node: NodeId([number; 16]),
                life: 1,
                name: Name::new(name).unwrap(),
                role,
                group: None,
                ports: vec![Port::Ring(number.into())],
            },
            interval_ns: 100_000_000,
            frame_bytes: 1500,
            directory: DirectoryConfig::default(),
            to: vec![Hear::Broadcast(via(0))],
            is_rendezvous: false,
            takes_orders: true,
        })
    }

    fn disk(serial: &str) -> Device {
        Device {
            name: Name::new("disk0").unwrap(),
            serial: Serial::new(serial).unwrap(),
            id: (1, 2),
            class: [1, 8, 2],
            state: DeviceState::Free,
            bytes: 4096,
            epoch: 0,
            owner: None,
            assigned: Assigned::Group,
            has_owners: false,
            group: None,
        }
    }

    /// A box called `box` with a disk tells `host` of itself.
    fn tell(host: &mut Member<Via>, now_ns: u64, number: u8) {
        let mut io_box = member(number, "box", Role::Box);
        io_box.poll(now_ns, &[disk(&format!("ES{number}"))], None);
        io_box.transmit(&mut |_, frame| {
            host.receive(now_ns, &via(number.into()), frame, None);
            true
        });
    }

    fn ordered(host: &Member<Via>, device: &str, now_ns: u64) -> Result<NodeId, String> {
        let to = To::Host("host".to_owned());
        let asked = Asked { device, to: &to, dry_run: false, force: false, wait_ms: None };
        order(host, &[], &Strangers::default(), &asked, now_ns).map(|order| order.to)
    }

    #[test]
    fn a_box_with_keys_is_asked_nothing_by_a_node_without() {
        let mut host = member(1, "host", Role::Host);
        tell(&mut host, SECOND, 2);
        let mut frame = Vec::new();
        let mut io_box = member(2, "box", Role::Box);
        io_box.poll(SECOND, &[], None);
        io_box.transmit(&mut |_, said| {
            frame = said.to_vec();
            true
        });
        let mut strangers = Strangers::default();
        strangers.came(&frame, true);
        let asked = |to: &To| {
            let asked = Asked { device: "disk0", to, dry_run: false, force: false, wait_ms: None };
            order(&host, &[], &strangers, &asked, SECOND).unwrap_err()
        };
        for to in [To::Host("host".to_owned()), To::Nobody, To::Anybody] {
            let refusal = asked(&to);
            assert!(refusal.starts_with("box has keys and this node has none"), "{refusal}");
        }
        let view = crate::fabric::view::of(&host, &[], SECOND, &strangers);
        assert_eq!(view.nodes[0].state, crate::fabric::view::NodeState::Keyed);
    }

    /// Another host, under this ID and name.
    fn twin(number: u8, name: &str, life: u64) -> Member<Via> {
        let identity = Identity { life, ..member(number, name, Role::Host).identity().clone() };
        Member::new(MemberConfig {
            identity,
            interval_ns: SECOND / 10,
            frame_bytes: 1500,
            directory: DirectoryConfig::default(),
            to: vec![Hear::Broadcast(via(0))],
            is_rendezvous: false,
            takes_orders: false,
        })
    }

    /// All of `nodes` tell `io_box` of themselves for so long.
    fn beat(io_box: &mut Member<Via>, nodes: &mut [Member<Via>], span: std::ops::Range<u64>) {
        for now_ns in span.step_by(SECOND as usize / 10) {
            for node in &mut *nodes {
                node.poll(now_ns, &[], None);
                node.transmit(&mut |_, frame| {
                    io_box.receive(now_ns, &via(7), frame, None);
                    true
                });
            }
            io_box.poll(now_ns, &[], None);
        }
    }

    #[test]
    fn a_name_that_two_hosts_have_is_no_aim_of_an_order_while_both_are_there() {
        for (ids, said) in [([4, 4], "two hosts are called host-a"), ([4, 5], "is several hosts")] {
            let mut io_box = member(1, "box", Role::Box);
            let mut hosts = [twin(ids[0], "host-a", 1), twin(ids[1], "host-a", 2)];
            let ordered = |io_box: &Member<Via>, now_ns| {
                let to = To::Host("host-a".to_owned());
                let asked = Asked { device: "disk0", to: &to, dry_run: false, force: false, wait_ms: None };
                order(io_box, &[disk("S")], &Strangers::default(), &asked, now_ns).map(|order| order.change)
            };
            beat(&mut io_box, &mut hosts, SECOND..6 * SECOND);
            let refusal = ordered(&io_box, 6 * SECOND).unwrap_err();
            assert!(refusal.contains(said), "{refusal}");
            let strangers = Strangers::default();
            let shown = |io_box: &Member<Via>, now_ns| {
                let view = crate::fabric::view::of(io_box, &[], now_ns, &strangers);
                view.nodes.iter().any(|node| node.is_double)
            };
            assert!(shown(&io_box, 6 * SECOND));
            beat(&mut io_box, &mut hosts[..1], 6 * SECOND..11 * SECOND);
            assert_eq!(ordered(&io_box, 11 * SECOND), Ok(Change::Host(NodeId([4; 16]))), "the other is gone");
            assert!(!shown(&io_box, 11 * SECOND));
        }
    }

    #[test]
    fn a_box_that_is_known_to_be_silent_is_asked_nothing() {
        let mut host = member(1, "host", Role::Host);
        tell(&mut host, SECOND, 2);
        assert_eq!(ordered(&host, "disk0", SECOND), Ok(NodeId([2; 16])));
        host.poll(4 * SECOND, &[], None);
        let refusal = ordered(&host, "disk0", 4 * SECOND).unwrap_err();
        assert!(refusal.contains("box, the device's box, is silent for 3 s"), "{refusal}");
    }

    #[test]
    fn a_slot_for_a_device_that_there_is_not_is_told_which_there_are() {
        let mut host = member(1, "host", Role::Host);
        let wanted = |text: &str| Wanted::Name(text.to_owned());
        let none = unmet(&host, &wanted("disk9")).unwrap();
        assert!(none.contains("is none yet"), "{none}");
        tell(&mut host, SECOND, 2);
        let other = unmet(&host, &wanted("disk9")).unwrap();
        assert!(other.starts_with("no box has disk9") && other.ends_with("there are disk0"), "{other}");
        assert_eq!(unmet(&host, &wanted("disk0")), None);
        assert_eq!(unmet(&host, &wanted("box/disk0")), None);
        assert_eq!(unmet(&host, &Wanted::Serial("ES2".to_owned())), None);
        tell(&mut host, SECOND, 3);
        assert!(unmet(&host, &wanted("disk0")).unwrap().contains("two boxes are called box"));
    }

    #[test]
    fn of_two_boxes_with_one_name_it_is_said_that_they_are_two() {
        let mut host = member(1, "host", Role::Host);
        tell(&mut host, SECOND, 2);
        tell(&mut host, SECOND, 3);
        let refusal = ordered(&host, "box/disk0", SECOND).unwrap_err();
        assert!(refusal.contains("two boxes are called box") && refusal.contains("ES2, ES3"), "{refusal}");
        assert_eq!(ordered(&host, "ES3", SECOND), Ok(NodeId([3; 16])));
    }
}
