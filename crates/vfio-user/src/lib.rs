//! vfio-user: the device's end of the protocol by which QEMU (10.1 and later, `vfio-user-pci`) uses a PCI Function that
//! lives in another process, and a small client for tests, fuzzing and drivers in user space.
//!
//! Layers: [`message`] is byte formats, `connection` sockets and buffers, [`Server`] the state of a client. A [`Server`]
//! is driven from a poll loop and never waits: a request that can't be answered at once is answered later by its
//! [`MessageId`]. Memory is mapped, never asked for by messages, and interrupts are eventfds, so that both keep their order.
//!
//! Limits: PCI devices; one client at a time; no region can be mapped by the client (with one, QEMU stops posting
//! writes to any); no migration; the protocol's server-to-client commands are not used. `/proc` must be mounted
//! (descriptors that claim to be eventfds are checked there).
// The protocol's own names, which are many, are written as the protocol writes them.
#![allow(clippy::doc_markdown)]

pub mod client;
mod connection;
mod eventfd;
mod info;
mod irqs;
mod leave;
mod listener;
pub mod message;
mod pending;
mod poller;
mod server;
mod session;

pub use client::Client;
pub use info::{DeviceInfo, InfoError, RegionInfo};
pub use leave::{Keeper, keep};
pub use listener::BindError;
pub use message::Errno;
pub use pending::MessageId;
pub use server::{Counters, Server, SetInfoError};
pub use session::{Answer, Handler};
