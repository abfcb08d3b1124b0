//! Device models: Functions for the slots of an I/O box.
//!
//! Each implements [`etherslot_pci::function::Function`], is driven by one thread, and does no I/O but through its
//! [`etherslot_pci::function::Bus`] and, where it has one, its [`etherslot_storage::Medium`] or [`rnic::Network`].

pub mod ids;
pub mod nvme;
pub mod rnic;
