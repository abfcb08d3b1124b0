//! Etherslot: pci.

pub mod function;
