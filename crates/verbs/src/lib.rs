//! Verbs programs on the RNIC engine, in their own process, without a kernel driver.
//!
//! The engine room ([`device`], [`place`], [`queue`]) is safe code: an RNIC, its Port, and who makes it go on. The ABI
//! room ([`abi`]) is what `libibverbs.so.1` exports: C structures, C functions, and the process's memory. `crates/verbs/link`
//! makes the shared object of the static library.
//!
//! The RNIC is the engine, in the process, or a PCI Function that the process has ([`embodiment`], [`function`]).
//!
//! Connections ([`cm`]) are safe code, too; the same room exports what `librdmacm.so.1` is looked into for.
//!
//! How a process is found: [`place`]. A peer's address comes of a GID and a QP number, without asking anybody;
//! [`etherslot_rnic::Rnic::peer`] opens a session to it, and [`etherslot_rnic::Rnic::send_message`] sends it small messages.

pub mod abi;
pub mod cm;
pub mod device;
pub mod embodiment;
pub mod function;
pub mod link;
mod located;
pub mod place;
pub mod queue;
