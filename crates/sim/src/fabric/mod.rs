//! A large fabric in virtual time: what its heartbeats cost, how long a move takes, and what follows the restart of a switch.
//!
//! Every node makes its heartbeats with the code of the daemons, and every box keeps its leases with it. All of them are on one
//! Ethernet. A part of the nodes also listens: what one hears all hear. Sessions are modelled by what they mean to leases:
//! messages that come in order after a while, and a death when nothing comes.

mod figures;
mod world;

pub use figures::{Figures, Spread};

use world::World;

/// How large.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Hosts.
    pub hosts: usize,
    /// Boxes.
    pub boxes: usize,
    /// Devices, evenly in the boxes and to the hosts.
    pub devices: usize,
    /// Nodes of each role that listen.
    pub listeners: usize,
    /// Between two heartbeats, ns.
    pub interval_ns: u64,
    /// Heartbeats, orders and their answers that are lost, in a million, at each listener.
    pub loss_ppm: u32,
    /// Moves.
    pub moves: usize,
    /// What everything random comes from.
    pub seed: u64,
}

impl Default for Scale {
    fn default() -> Self {
        Self {
            hosts: 1000,
            boxes: 100,
            devices: 4000,
            listeners: 6,
            interval_ns: 100_000_000,
            loss_ppm: 0,
            moves: 200,
            seed: 1,
        }
    }
}

/// Runs it: start, rest, a late node, the death of a host, moves, the restart of the switch.
pub fn run(scale: &Scale) -> Figures {
    let mut world = World::new(scale);
    world.start();
    let (rest, cost) = world.rest();
    let joined_ns = world.late_node();
    let found_ns = world.death_of_a_host();
    let moves = world.moves();
    let storm = world.switch_restarts();
    Figures { rest, cost, joined_ns, found: Spread::of(found_ns), moves: Spread::of(moves), storm }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_fabric_comes_up_moves_devices_and_recovers() {
        for loss_ppm in [0, 50_000] {
            let small = Scale {
                hosts: 12,
                boxes: 4,
                devices: 40,
                listeners: 4,
                moves: 20,
                loss_ppm,
                ..Scale::default()
            };
            let figures = run(&small);
            assert_eq!(figures.moves.count, 20);
            assert!(figures.found.most_ns <= 450_000_000, "{figures:?}");
            assert!(figures.storm.leases_ns.is_some() && figures.storm.known_ns.is_some(), "{figures:?}");
            // A heartbeat of each node each interval, a little more for being early.
            let each = figures.rest.frames_a_second / 16;
            assert!((10..=12).contains(&each), "{figures:?}");
        }
    }
}
