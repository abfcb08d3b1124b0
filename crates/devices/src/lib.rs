//! Device models: Functions for the slots of an I/O box.
//!
//! Each implements [`etherslot_pci::function::Function`], is driven by one thread, and does no I/O but through its
//! [`etherslot_pci::function::Bus`] and, where it has one, its [`etherslot_storage::Medium`], [`rnic::Network`] or [`cable::End`].

pub mod cable;
pub mod dc;
pub mod e82576;
pub mod ids;
pub mod nvme;
pub mod rnic;
pub mod sata;
