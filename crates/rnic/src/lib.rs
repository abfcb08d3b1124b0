//! An RNIC with its sessions: the engine of `rdma`, and a session to each peer that it speaks with.
//!
//! [`Rnic`] opens a session to a peer when the peer's address is first asked for ([`Rnic::peer`]), and takes those that
//! peers open. The owner gives it frames, the time and memory, and takes frames from it; addresses are any type. It has
//! no socket, thread or clock.
//!
//! [`Link`] is one session as the engine's way to its peer, for owners that keep sessions themselves.

mod epochs;
mod link;
mod peers;
mod rnic;

pub use epochs::Epochs;
pub use link::Link;
pub use rnic::{Counters, MAX_MESSAGE_BYTES, Options, Rnic};
