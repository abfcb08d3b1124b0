//! A driver for the RNIC of docs/rnic.md, in user space.
//!
//! [`Driver`] keeps the tables, and the queues in memory that the device reaches; it acts through a [`Device`], so that it serves a remote
//! Function ([`Rnic`]) as well as one that is mapped into the process. Work is posted and polled without waiting for
//! anything. What the device has to answer (states of QPs, removals) is an *order*: it has a [`Ticket`], and ends by an [`Outcome`].

mod bring_up;
mod device;
mod driver;
mod memory;
mod orders;
mod otf;
mod pair;
mod remote;
mod ring;

pub use bring_up::{Failure, Limits};
pub use device::Device;
pub use driver::Driver;
pub use memory::Place;
pub use orders::{Outcome, Ticket};
pub use pair::QpConfig;
pub use remote::{Config, Rnic};

/// The BARs of an RNIC: registers, pages of QPs, tables.
pub mod bar {
    pub use super::orders::{PAGES, REGISTERS, TABLES};
}
