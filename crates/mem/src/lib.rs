//! The memory of a guest, as its VMM shares it: files mapped into this process, addressed by the guest's DMA
//! addresses, checked for range and permission, and copied to and from as a PCIe Completer must (PCIe Base 6.0,
//! 2.4): a write appears in increasing address order, naturally aligned accesses of 1, 2, 4 and 8 bytes are
//! single-copy atomic, and writes appear in the order in which they were made.
//!
//! Limits: guest memory is never handed out as a reference, because the guest changes it at any time; nothing here
//! blocks, except for the page faults of memory that its owner has let swap out: only files that are memory are taken. A client that takes its memory away
//! (truncates the file) makes accesses fail; it cannot make the process die (see [`sigbus`]).
#![allow(unsafe_code)]

mod copy;
mod guest;
mod mapping;
pub mod sigbus;

pub use copy::{load, store};
pub use guest::{Access, FaultReason, GuestMemory, Limits, MapError, MemFault, UnmapError};

/// The granularity of maps: addresses, lengths and file offsets are multiples of it.
pub const PAGE_BYTES: u64 = 4096;
