//! Leases with real nodes: a device is recalled, moved, taken away, and no frame of an old lease reaches it.

mod support;

use std::collections::VecDeque;

use etherslot_fabric::{DeviceConfig, Key, LeaseConfig, Leases, Presence};
use etherslot_node::{BoxLimits, BoxNode, Guest, HostNode, Interrupt, SlotConfig};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_session::Config;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Change, Group, Order, Progress};
use support::{BAR_ADDRESS, BAR0, COMMAND, Engine, MS};

const BOX: u8 = 0;

/// A guest that gives a recalled device back at once, or asks for time and never does.
#[derive(Default)]
struct Owner {
    is_stubborn: bool,
    attached: usize,
    lost: usize,
    recalled: usize,
    kept: usize,
    answers: VecDeque<(u64, Vec<u8>)>,
}

impl Guest for Owner {
    fn read(&mut self, _slot: usize, _address: u64, _data: &mut [u8]) -> bool {
        false
    }
    fn write(&mut self, _slot: usize, _address: u64, _data: &[u8]) -> bool {
        false
    }
    fn interrupt(&mut self, _slot: usize, _interrupt: Interrupt) {}
    fn completed(&mut self, _slot: usize, access: u64, data: &[u8]) {
        self.answers.push_back((access, data.to_vec()));
    }
    fn attached(&mut self, _slot: usize, _device: &etherslot_node::Device) {
        self.attached += 1;
    }
    fn recalled(&mut self, _slot: usize, _window_ns: u64) -> bool {
        self.recalled += 1;
        self.is_stubborn
    }
    fn kept(&mut self, _slot: usize) {
        self.kept += 1;
    }
    fn lost(&mut self, _slot: usize) {
        self.lost += 1;
    }
}

struct World {
    now_ns: u64,
    io_box: BoxNode<u8>,
    hosts: [(HostNode<u8>, Owner); 2],
    /// Frames of this host reach nobody.
    cut: Option<u8>,
    letters: Vec<(u8, u8, Vec<u8>)>,
    accesses: u64,
}

fn node(number: u8) -> NodeId {
    NodeId([number + 1; 16])
}

fn config(number: u8) -> Config {
    Config { node: node(number), ..Config::default() }
}

fn leases(group: Option<Group>) -> Leases {
    let times = LeaseConfig { hold_ns: 500 * MS, recall_ns: 100 * MS, offer_ns: 3000 * MS };
    let device = |name, group| DeviceConfig { name: Name::new(name).unwrap(), group };
    Leases::new(times, [device("engine", group), device("other", Group::new(99))])
}

fn host(number: u8, group: Option<Group>) -> (HostNode<u8>, Owner) {
    let slot = SlotConfig { name: Name::new("engine").unwrap(), address: BOX, hide_msix: false };
    let mut host = HostNode::new(config(number), u64::from(number) * 77, &[slot]);
    host.set_group(group);
    (host, Owner::default())
}

impl World {
    fn new(groups: [Option<Group>; 2], device: Option<Group>) -> Self {
        let function = |name| {
            let endpoint = Endpoint::new(Box::<Engine>::default(), EndpointConfig::default());
            (Name::new(name).unwrap(), Box::new(endpoint))
        };
        let functions = vec![function("engine"), function("other")];
        let io_box = BoxNode::new(&config(BOX), BoxLimits::default(), 5, functions);
        Self {
            now_ns: 1,
            io_box: io_box.with_leases(leases(device)),
            hosts: [host(1, groups[0]), host(2, groups[1])],
            cut: None,
            letters: Vec::new(),
            accesses: 0,
        }
    }

    fn step(&mut self) {
        self.now_ns += MS / 4;
        let now_ns = self.now_ns;
        for (from, to, frame) in std::mem::take(&mut self.letters) {
            if self.cut == Some(from) || self.cut == Some(to) {
                continue;
            }
            if to == BOX {
                self.io_box.receive(now_ns, &from, &frame);
            } else {
                let (host, guest) = &mut self.hosts[to as usize - 1];
                host.receive(now_ns, &from, &frame, guest);
            }
        }
        let letters = &mut self.letters;
        self.io_box.poll(now_ns);
        self.io_box.transmit(now_ns, &mut |to, frames| {
            letters.extend(frames.iter().map(|frame| (BOX, *to, frame.to_vec())));
            frames.len()
        });
        for (number, (host, guest)) in (1..).zip(&mut self.hosts) {
            host.poll(now_ns, guest);
            host.transmit(now_ns, &mut |to, frames| {
                letters.extend(frames.iter().map(|frame| (number, *to, frame.to_vec())));
                frames.len()
            });
        }
    }

    fn run(&mut self, ms: u64) {
        let until_ns = self.now_ns + ms * MS;
        while self.now_ns < until_ns {
            self.step();
        }
    }

    fn order(&mut self, number: u64, change: Change, force: bool) {
        self.order_of("engine", number, change, force);
    }

    fn order_of(&mut self, device: &str, number: u64, change: Change, force: bool) {
        let device = Name::new(device).unwrap();
        let order = Order { number, to: node(BOX), life: 0, device, change, dry_run: false, force };
        let key = Key { asker: node(BOX), life: 1, number };
        let now_ns = self.now_ns;
        self.io_box.leases_mut().order(now_ns, key, &order, &|_| Some(Presence::Up));
    }

    fn progress(&self, number: u64) -> Progress {
        let key = Key { asker: node(BOX), life: 1, number };
        self.io_box.leases().outcome(self.now_ns, key).unwrap().progress
    }

    fn owner(&self) -> Option<NodeId> {
        self.io_box.leases().iter().next().unwrap().owner
    }

    /// Sets the scratch register of a host's device, whatever the host thinks it has.
    fn write(&mut self, host: usize, value: u64) {
        let (node, _) = &mut self.hosts[host];
        let _ = node.bar_write(0, 0, 0, &value.to_le_bytes(), &mut |_, _| false);
    }

    fn enable(&mut self, host: usize) {
        let now_ns = self.now_ns;
        let (node, _) = &mut self.hosts[host];
        let address = BAR_ADDRESS.to_le_bytes();
        for (offset, data) in [(BAR0, &address[..4]), (BAR0 + 4, &address[4..]), (COMMAND, &[6, 0][..])] {
            self.accesses += 1;
            node.config_write(now_ns, 0, self.accesses, offset, data).unwrap();
        }
        self.run(20);
    }

    fn read(&mut self, host: usize) -> u64 {
        self.accesses += 1;
        let (now_ns, id) = (self.now_ns, self.accesses);
        let (node, owner) = &mut self.hosts[host];
        owner.answers.clear();
        if node.bar_read(now_ns, 0, id, 0, 0, 8) != Ok(etherslot_node::Accepted::Later) {
            return u64::MAX;
        }
        self.run(50);
        let answer = self.hosts[host].1.answers.iter().find(|(number, _)| *number == id).unwrap();
        u64::from_le_bytes(answer.1.as_slice().try_into().unwrap())
    }
}

/// The host that has the device, and the other.
fn started(groups: [Option<Group>; 2], device: Option<Group>) -> (World, usize, usize) {
    let mut world = World::new(groups, device);
    world.run(100);
    let first = (0..2).find(|&host| world.hosts[host].1.attached == 1).unwrap();
    assert_eq!(world.owner(), Some(node(first as u8 + 1)));
    assert_eq!(world.hosts[1 - first].1.attached, 0);
    world.enable(first);
    world.write(first, 42);
    assert_eq!(world.read(first), 42);
    (world, first, 1 - first)
}

#[test]
fn a_device_moves_when_it_is_told_to_and_the_old_host_finds_nothing_there() {
    let (mut world, old, new) = started([None, None], None);
    world.order(1, Change::Host(node(new as u8 + 1)), false);
    world.run(1200);
    assert_eq!(world.progress(1), Progress::Done);
    assert_eq!((world.hosts[old].1.lost, world.hosts[new].1.attached), (1, 1));
    world.enable(new);
    assert_eq!(world.read(new), 0, "it was reset");
    world.write(old, 66);
    world.write(new, 43);
    assert_eq!((world.read(old), world.read(new)), (u64::MAX, 43));
    world.order(2, Change::Host(node(old as u8 + 1)), false);
    world.run(1200);
    assert_eq!((world.progress(2), world.read(new)), (Progress::Done, u64::MAX));
    assert_eq!(world.read(old), 0, "its registers were set up again, its scratch was not");
}

#[test]
fn a_slot_takes_another_device_once_the_guest_and_the_box_are_done_with_the_first() {
    let (mut world, old, new) = started([None, None], None);
    assert!(!world.hosts[old].0.unroute(0), "its guest uses the device");
    world.order(1, Change::Host(node(new as u8 + 1)), false);
    world.run(1200);
    assert_eq!(world.progress(1), Progress::Done);
    assert!(!world.hosts[old].0.unroute(0), "its guest still knows the device");
    let now_ns = world.now_ns;
    world.hosts[old].0.vacate(0, now_ns);
    world.run(1200);
    assert!(world.hosts[old].0.unroute(0) && world.hosts[old].0.unroute(0));
    world.run(1200);
    world.write(old, 66);
    assert_eq!(world.hosts[old].1.attached, 1, "it asks for nothing any more");

    world.order_of("other", 2, Change::Host(node(old as u8 + 1)), false);
    assert!(world.hosts[old].0.route(0, Name::new("other").unwrap(), BOX, &[]));
    world.run(1200);
    assert_eq!((world.progress(2), world.hosts[old].1.attached), (Progress::Done, 2));
    world.enable(old);
    world.enable(new);
    world.write(old, 44);
    assert_eq!((world.read(old), world.read(new)), (44, 0), "each has its own");
}

#[test]
fn a_host_that_is_not_in_the_group_of_a_device_does_not_get_it() {
    let [seven, eight] = [7, 8].map(Group::new);
    let (mut world, owner, _) = started([eight, seven], seven);
    assert_eq!(owner, 1);
    world.order(1, Change::Group(Group::new(8).unwrap()), false);
    world.run(1200);
    assert_eq!((world.progress(1), world.owner()), (Progress::Done, Some(node(1))));
}

#[test]
fn a_guest_that_needs_too_long_keeps_its_device_and_one_that_is_forced_loses_it() {
    let (mut world, old, new) = started([None, None], None);
    world.hosts[old].1.is_stubborn = true;
    world.order(1, Change::Host(node(new as u8 + 1)), false);
    world.run(300);
    assert_eq!((world.progress(1), world.owner()), (Progress::RolledBack, Some(node(old as u8 + 1))));
    assert_eq!((world.hosts[old].1.recalled, world.hosts[old].1.kept, world.read(old)), (1, 1, 42));
    world.order(2, Change::Host(node(new as u8 + 1)), true);
    world.run(2500);
    assert_eq!((world.progress(2), world.owner()), (Progress::Done, Some(node(new as u8 + 1))));
    assert_eq!((world.hosts[old].1.lost, world.read(old)), (1, u64::MAX));
}

#[test]
fn what_a_host_sent_before_it_knew_that_it_lost_the_device_reaches_nobody() {
    let (mut world, old, new) = started([None, None], None);
    let number = old as u8 + 1;
    world.hosts[old].1.is_stubborn = true;
    world.order(1, Change::Host(node(new as u8 + 1)), true);
    world.run(50);
    // It is cut off while the device is taken away and given to the other, and goes on writing.
    world.cut = Some(number);
    world.run(200);
    assert_eq!(world.owner(), None);
    for value in 0..20 {
        world.write(old, 0xBAD0 + value);
        world.step();
    }
    world.run(500);
    world.cut = None;
    world.run(900);
    assert_eq!(world.owner(), Some(node(new as u8 + 1)));
    world.enable(new);
    assert_eq!(world.read(new), 0);
    // Now it goes back: what was written under the old lease must not come then either.
    world.order(2, Change::Host(node(number)), false);
    world.run(2500);
    assert_eq!((world.progress(2), world.owner()), (Progress::Done, Some(node(number))));
    assert_eq!(world.read(old), 0);
}

#[test]
fn a_host_that_comes_back_in_time_finds_its_device_and_nobody_else_gets_it_meanwhile() {
    let (mut world, old, new) = started([None, None], None);
    world.cut = Some(old as u8 + 1);
    world.run(1200);
    assert_eq!(world.owner(), Some(node(old as u8 + 1)), "kept");
    world.cut = None;
    world.run(300);
    assert_eq!((world.hosts[old].1.attached, world.hosts[new].1.attached), (2, 0));
    world.cut = Some(old as u8 + 1);
    world.run(3000);
    assert_eq!(world.hosts[new].1.attached, 1, "too late");
}
