//! The explorer: breadth first over all that may happen, so that what it finds wrong is found on a shortest way.
//!
//! Sessions cannot be copied, so every state is reached by going its way from the beginning. States that have been met
//! are not gone on from again ([`World::key`]); what cuts the search is the scope alone.

use std::collections::HashSet;

use crate::scope::{Action, Scope};
use crate::world::{Seen, World};

/// Records each way that a run to rest has to carry on top of what was put in.
const MORE_RECORDS: u32 = 2;

/// What was explored.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    pub(crate) states: u64,
    pub(crate) transitions: u64,
    /// Steps of the longest way.
    pub(crate) steps: usize,
    pub(crate) seen: Seen,
}

/// A way to something that must not be.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) way: Vec<Action>,
    pub(crate) fault: String,
}

fn reach(scope: &Scope, way: &[Action]) -> World {
    let mut world = World::new(scope);
    for &action in way {
        world.act(action);
    }
    world
}

/// What is wrong in the state at the end of this way, or after it when the network turns fair: nothing that was under
/// way arrives, or everything ever sent arrives once more.
fn judge(scope: &Scope, way: &[Action], mut world: World) -> Option<String> {
    let first = world.bursts.len();
    if let Some(fault) = world.fault() {
        return Some(fault);
    }
    world
        .run_fairly(first, false, MORE_RECORDS)
        .and_then(|()| reach(scope, way).run_fairly(first, true, MORE_RECORDS))
        .err()
}

/// Explores all of a scope.
pub(crate) fn explore(scope: &Scope) -> Result<Report, Found> {
    let mut report = Report::default();
    let mut met = HashSet::new();
    let world = World::new(scope);
    met.insert(world.key());
    let mut row = vec![(Vec::new(), world.actions())];
    if let Some(fault) = judge(scope, &[], world) {
        return Err(Found { way: Vec::new(), fault });
    }
    report.states = 1;
    for steps in 1..=scope.depth {
        let mut next = Vec::new();
        for (way, actions) in row {
            for action in actions {
                let mut way: Vec<Action> = way.clone();
                way.push(action);
                let world = reach(scope, &way);
                report.transitions += 1;
                report.seen = report.seen.most(world.seen());
                let fault = world.fault();
                if fault.is_none() && !met.insert(world.key()) {
                    continue;
                }
                report.states += 1;
                report.steps = steps;
                let actions = world.actions();
                if let Some(fault) = fault.or_else(|| judge(scope, &way, world)) {
                    return Err(Found { way, fault });
                }
                next.push((way, actions));
            }
        }
        row = next;
        if row.is_empty() {
            break;
        }
    }
    Ok(report)
}
