//! The daemons: nodes, links, media and sockets joined by one poll loop a process.
//!
//! One thread owns everything. A round of the loop takes what came, lets the node go on, and sends what may leave; after a
//! time without progress it sleeps until something is readable or a deadline comes.

mod bay;
pub mod box_daemon;
mod carrier;
mod clock;
pub mod control;
mod counted;
mod desk;
pub mod direct;
pub mod events;
pub mod export;
pub mod fabric;
mod follower;
mod format_file;
pub mod host_daemon;
mod identity;
pub mod initiator;
pub mod keeper;
pub mod keys;
mod link;
pub mod link_spec;
pub mod link_test;
mod links;
pub mod local;
mod metrics;
mod network;
mod notices;
pub mod options;
mod plug;
mod polling;
mod signals;
mod sleeper;
pub mod stat;
mod station;
mod streams;

use std::io;

pub use counted::Counted;

/// Why a daemon could not start or go on: cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The link could not be opened.
    #[error("[link] {0}")]
    Link(#[from] etherslot_netio::OpenError),
    /// A link over DPDK could not be opened.
    #[error("[link] {0}")]
    Dpdk(#[from] etherslot_dpdk::OpenError),
    /// The faults to make on purpose are not understood.
    #[error("[link] impair: {0}")]
    Impairment(#[from] etherslot_netio::impair::ImpairmentError),
    /// A namespace's medium could not be opened.
    #[error("device {device:?}: {source}")]
    Medium {
        /// The device.
        device: String,
        /// Why.
        source: etherslot_storage::file::OpenError,
    },
    /// A namespace's memory could not be had.
    #[error("device {device:?}: {source}")]
    Memory {
        /// The device.
        device: String,
        /// Why.
        source: etherslot_storage::ram::RamError,
    },
    /// A network controller's network could not be opened.
    #[error("device {device:?}: {source}")]
    Network {
        /// The device.
        device: String,
        /// Why.
        source: etherslot_netio::OpenError,
    },
    /// A device cannot be as configured.
    #[error("device {device:?}: {reason}")]
    Device {
        /// The device.
        device: String,
        /// Why.
        reason: String,
    },
    /// A slot's socket could not be made.
    #[error("slot of device {device:?}: {source}")]
    Socket {
        /// The device.
        device: String,
        /// Why.
        source: etherslot_vfio_user::BindError,
    },
    /// The control socket could not be made where it was asked for.
    #[error("[node] control: {0}")]
    Control(#[from] control::BindError),
    /// Metrics can't be served where they were asked for.
    #[error("[metrics] listen: {0}")]
    Metrics(#[from] streams::ListenError),
    /// The node can't be a member of the fabric as it was told to.
    #[error("[fabric] {0}")]
    Fabric(String),
    /// There is no key that could be used.
    #[error("[security] {0}")]
    Key(#[from] keys::KeyFileError),
    /// A system call of the poll loop failed.
    #[error("the poll loop failed: {0}")]
    Loop(#[from] io::Error),
}
