//! PCI Functions of this machine that its kernel hands to a program (VFIO, driver `vfio-pci`): their BARs, their interrupts, and memory
//! that they reach.
//!
//! A [`Function`] has an address space of its own behind the machine's IOMMU, a [`Dma`]: it reaches what was mapped there and nothing else. A
//! program that ends, however it ends, leaves nothing behind: the kernel resets the Function and takes the maps back.
//!
//! Limits: an IOMMU is needed (of type 1); one Function a container; MSI-X alone. Nothing here knows what a Function is.
#![allow(unsafe_code)]

mod addresses;
mod arena;
mod bar;
mod dma;
mod function;
mod ioctl;
mod sysfs;

pub use arena::Arena;
pub use bar::Bar;
pub use dma::{Dma, MapError, Mapping};
pub use function::{Function, OpenError};
pub use sysfs::{Driven, find};

/// The granularity of maps.
pub const PAGE_BYTES: u64 = 4096;
