//! The leases of a box under everything that can happen to it and to its hosts: all short histories, and many long ones.
//!
//! What must hold at every moment: a device has one owner at most; an access reaches it only under the lease under which it
//! was made; epochs only grow, over restarts too. And when the trouble ends, every order ends, and the host that is to have the
//! device gets it.

mod world;

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use proptest::prelude::*;
use world::{Budget, Step, World};

fn digest(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.digest().hash(&mut hasher);
    hasher.finish()
}

/// Goes all ways of `depth` steps from a host that has the device and another one that is connected; then the trouble ends,
/// for a few of them.
fn explore(budget: Budget, depth: usize) {
    let mut world = World::new(budget);
    let begin =
        [Step::Connect(0), Step::Connect(1), Step::Attach(0), Step::ControlUp(0), Step::ControlDown(0)];
    for step in begin {
        world.take(step);
    }
    let mut seen = HashSet::new();
    let mut level = vec![world];
    for _ in 0..depth {
        let mut next = Vec::new();
        for world in &level {
            for step in world.steps() {
                let mut after = world.clone();
                after.take(step);
                if seen.insert(digest(&after)) {
                    next.push(after);
                }
            }
        }
        level = next;
    }
    assert!(seen.len() > 5_000, "{} states", seen.len());
    let every = level.len().div_ceil(500).max(1);
    for mut world in level.into_iter().step_by(every) {
        world.settle();
    }
}

const NONE: Budget =
    Budget { orders: 0, box_crashes: 0, host_crashes: 0, lost_sessions: 0, accesses: 0, waits: 0 };

#[test]
fn every_short_history_with_crashes_keeps_the_device_with_one_owner() {
    explore(
        Budget { orders: 1, box_crashes: 1, host_crashes: 1, lost_sessions: 1, accesses: 1, waits: 1 },
        7,
    );
}

#[test]
fn every_history_of_one_move_keeps_the_device_with_one_owner() {
    explore(Budget { orders: 1, accesses: 1, waits: 2, ..NONE }, 12);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn long_histories_keep_the_device_with_one_owner_and_settle(choices in prop::collection::vec(any::<u16>(), 0..200)) {
        let plenty = Budget { orders: 20, box_crashes: 9, host_crashes: 9, lost_sessions: 9, accesses: 40, waits: 40 };
        let mut world = World::new(plenty);
        for choice in choices {
            let steps: Vec<Step> = world.steps();
            world.take(steps[choice as usize % steps.len()]);
        }
        world.settle();
    }
}
