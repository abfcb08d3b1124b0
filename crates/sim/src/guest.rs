//! A guest: its memory, its processor's accesses, and a driver of its own for the device in its slot.

pub(crate) mod bus;
pub(crate) mod cpu;
pub(crate) mod driver;
pub(crate) mod extent;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod network;
pub(crate) mod nvme;
pub(crate) mod prober;
pub(crate) mod sata;
