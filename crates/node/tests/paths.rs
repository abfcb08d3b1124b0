//! A host node and a box with two links between them.

mod support;

use std::collections::VecDeque;

use etherslot_node::{Accepted, BoxLimits, BoxNode, HostNode, SlotConfig};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_session::Config;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use support::{Engine, MS, Machine};

/// A link and the node at its far end.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Via {
    link: usize,
    node: u8,
}

impl std::fmt::Display for Via {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} by link {}", self.node, self.link)
    }
}

const BOX: u8 = 1;
const HOST: u8 = 2;

struct World {
    now_ns: u64,
    host: HostNode<Via>,
    io_box: BoxNode<Via>,
    machine: Machine,
    is_cut: [bool; 2],
    carried: [u64; 2],
    flying: VecDeque<(Via, Vec<u8>)>,
}

impl World {
    fn new(paths: [u8; 2]) -> Self {
        let config = |node, paths| Config { node: NodeId([node; 16]), paths, ..Config::default() };
        let endpoint = Endpoint::new(Box::<Engine>::default(), EndpointConfig::default());
        let name = Name::new("engine").unwrap();
        let functions = vec![(name, Box::new(endpoint))];
        let address = Via { link: 0, node: BOX };
        let slots = [SlotConfig { name, address, hide_msix: false }];
        let mut host = HostNode::new(config(HOST, paths[0]), 2, &slots);
        host.add_address(address, Via { link: 1, node: BOX });
        Self {
            now_ns: MS,
            host,
            io_box: BoxNode::new(&config(BOX, paths[1]), BoxLimits::default(), 1, functions),
            machine: Machine::default(),
            is_cut: [false; 2],
            carried: [0; 2],
            flying: VecDeque::new(),
        }
    }

    fn step(&mut self) {
        self.now_ns += 20_000;
        let now_ns = self.now_ns;
        let (flying, is_cut, carried) = (&mut self.flying, self.is_cut, &mut self.carried);
        let mut take = |to: &Via, from: u8, burst: &[&[u8]]| {
            for frame in burst.iter().filter(|_| !is_cut[to.link]) {
                carried[to.link] += 1;
                flying.push_back((Via { link: to.link, node: from }, frame.to_vec()));
            }
            burst.len()
        };
        self.host.poll(now_ns, &mut self.machine);
        self.host.transmit(now_ns, &mut |to, burst| take(to, HOST, burst));
        self.io_box.poll(now_ns);
        self.io_box.transmit(now_ns, &mut |to, burst| take(to, BOX, burst));
        while let Some((from, frame)) = self.flying.pop_front() {
            if from.node == HOST {
                self.io_box.receive(now_ns, &from, &frame);
            } else {
                self.host.receive(now_ns, &from, &frame, &mut self.machine);
            }
        }
    }

    fn run(&mut self, for_ns: u64) {
        let until_ns = self.now_ns + for_ns;
        while self.now_ns < until_ns {
            self.step();
        }
    }

    fn paths_up(&self) -> usize {
        self.host.sessions().map(|(_, session)| session.paths().filter(|path| path.is_up).count()).sum()
    }

    /// Reads a register through the session.
    fn read(&mut self, access: u64) {
        let accepted = self.host.config_read(self.now_ns, 0, access, 0, 4);
        assert_eq!(accepted, Ok(Accepted::Later), "it goes to the device");
        let until_ns = self.now_ns + 20 * MS;
        while self.machine.answers.pop_front().is_none() {
            assert!(self.now_ns < until_ns, "an access was not answered within 20 ms");
            self.step();
        }
    }
}

#[test]
fn a_device_stays_when_either_of_two_links_is_lost() {
    let mut world = World::new([2, 2]);
    world.run(300 * MS);
    assert_eq!(world.paths_up(), 2);
    for (round, cut) in [0, 1, 0].into_iter().enumerate() {
        world.read(2 * round as u64);
        world.is_cut[cut] = true;
        world.read(2 * round as u64 + 1);
        world.run(2_000 * MS);
        assert_eq!(world.paths_up(), 1);
        world.is_cut[cut] = false;
        world.run(500 * MS);
        assert_eq!(world.paths_up(), 2);
    }
    assert_eq!((world.host.counters().sessions_up, world.host.counters().sessions_dead), (1, 0));
    assert!(world.carried.iter().all(|&frames| frames > 20));
}

#[test]
fn a_session_begins_over_the_second_link_if_the_first_is_dead() {
    let mut world = World::new([2, 2]);
    world.is_cut[0] = true;
    world.run(2_500 * MS);
    assert_eq!(world.paths_up(), 1);
    world.read(1);
    world.is_cut[0] = false;
    world.run(500 * MS);
    assert_eq!(world.paths_up(), 2);
}

#[test]
fn a_box_that_allows_one_path_is_used_over_one() {
    let mut world = World::new([2, 1]);
    world.run(2_000 * MS);
    assert_eq!(world.paths_up(), 1);
    world.read(1);
    assert_eq!(world.io_box.hosts().map(|(_, session, _)| session.paths().len()).sum::<usize>(), 1);
}
