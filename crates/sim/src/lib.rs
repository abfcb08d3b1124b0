//! A deterministic simulator of hosts, boxes and the network between them.
//!
//! One seed decides everything: who is there, what the network does, what goes wrong and when, and what the guests do.
//! Time is virtual. The nodes are the ones that the daemons run ([`etherslot_node`]) with real device models in the boxes;
//! the guests have small drivers of their own for them, and the network, the media and the checkers are the simulator's.
//! The same seed gives the same run, event for event, so a failure is replayed by its seed.
//!
//! Limits: one thread, no real clock, no file, no socket. A box's media are in memory.

mod attacker;
mod checkers;
pub mod direct;
mod events;
pub mod fabric;
pub mod grid;
mod guest;
mod network;
mod nodes;
mod plan;
mod random;
pub mod rdma;
pub mod rivals;
#[cfg(test)]
mod sabotage;
mod tap;
mod world;

pub use checkers::verdict::{Rule, Violation};
pub use guest::machine::Progress;
pub use network::NetworkCounters;
pub use plan::{Devices, Scenario};
pub use world::{Report, run, run_of};
