//! The two nodes of Etherslot, sans-IO: the I/O box and the host node.
//!
//! They join sessions and PCI Express: [`BoxNode`] plugs its Functions into one virtual switch a session, [`HostNode`] is
//! the Root Complex of those Functions and speaks for their guests. Time and frames come in as arguments, so the daemons,
//! the simulator and the fuzzers drive the same code.

mod box_node;
mod bring_up;
mod guard;
mod guest_config;
mod host_api;
mod host_node;
mod out;
mod random;
mod session_event;
mod slot;

pub use box_node::{BoxCounters, BoxLimits, BoxNode, FarCounters};
pub use etherslot_seal as seal;
pub use guard::{GuardCounters, Protection, Security};
pub use host_api::{Accepted, Device, Guest, Interrupt, Interrupts, Refused};
pub use host_node::{HostCounters, HostNode, SlotConfig};
pub use session_event::SessionEvent;
pub use slot::{MAX_PAYLOAD_BYTES, SlotCounters};
