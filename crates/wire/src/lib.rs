//! Byte formats of Etherslot: frame, session header, record, TLP, control message, discovery, DDP and RDMAP.
//!
//! `docs/wire.md` specifies every field; this crate is its embodiment. It neither allocates nor panics, whatever
//! the bytes: every decoder returns a value that is valid or an error that says which rule was broken.
#![no_std]

pub mod ahead;
pub mod boxes;
pub mod bytes;
pub mod cm;
pub mod control;
pub mod ddp;
pub mod discovery;
pub mod frame;
pub mod handshake;
pub mod id;
pub mod rdmap;
pub mod record;
pub mod tlp;

pub use id::{FunctionId, NodeId, Tag};
