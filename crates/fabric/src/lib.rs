//! The fabric: who is there, whose a device is, and how it changes hands. Sans-IO: time and frames come in as arguments.
//!
//! A node is a [`Member`]: it tells of itself by heartbeats ([`Announcer`]), keeps what it hears of others
//! ([`Directory`]), and asks boxes to move devices ([`Asker`]). A box owns the [`Leases`] of its devices and decides
//! alone: there is no server, and nothing to elect. `docs/fabric.md` is the design, `docs/wire.md` section 12 the bytes.

mod announcer;
mod asker;
mod directory;
mod failover;
mod leases;
mod member;
mod quality;
mod twin;

pub use announcer::{Announcer, Identity};
pub use asker::{Asked, Asker};
pub use directory::{Directory, DirectoryConfig, DirectoryCounters, Event, Known, NodeEvent, Presence};
pub use failover::{Candidate, Failover, Policy};
pub use leases::{
    Action, Denied, DeviceConfig, Image, Key, Lease, LeaseConfig, LeaseCounters, Leases, Owner, RecallKind,
};
pub use member::{Counters, Member, MemberConfig, Place, To};
pub use quality::Quality;
