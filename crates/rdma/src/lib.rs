//! The engine of Etherslot's RNIC: queue pairs, memory regions and completions, and RDMAP over DDP between them.
//!
//! `docs/rnic.md` is the contract; this crate is the engine that keeps it in software. It has no clock, thread or
//! socket: work requests and segments come in as bytes, the time as a number, memory is behind [`Memory`] and the
//! session behind [`Wire`]. The owner's loop is
//!
//! 1. hand every DDP record of a peer to [`Engine::receive`],
//! 2. hand work requests to [`Engine::post_send`] and [`Engine::post_receive`],
//! 3. call [`Engine::handle_timeout`] once [`Engine::deadline_ns`] has come,
//! 4. call [`Engine::transmit`] after any of these,
//! 5. take completions with [`Engine::poll`].
//!
//! A segment's data are copied once, from the frame that they came in to where they belong, or from there into the
//! frame that they leave in. The state of a QP is bounded by what it was made with. What a peer sends, or a user posts,
//! can end a QP; it cannot make the engine panic, allocate, or touch memory that was not registered for it.
#![no_std]

extern crate alloc;

mod config;
mod counters;
mod cq;
mod cqe;
mod engine;
mod event;
mod memory;
mod otf;
mod pbl;
mod placed;
mod qp;
mod requester;
mod responder;
mod ring;
mod run;
mod schedule;
mod shared;
mod smt;
mod table;
mod whereabouts;
mod wqe;

pub use config::{Config, CqId, Pd, PeerId, Qpn, SrqId};
pub use counters::{Counters, Named};
pub use cqe::{Cqe, Done, Status};
pub use engine::{ControlError, Engine, PostError};
pub use event::{Event, Notice};
pub use memory::{Memory, Trouble, Wire};
pub use otf::ON_THE_FLY_PLACES;
pub use placed::{Placed, StagState};
pub use qp::{Attributes, Init, Service, State};
pub use smt::{Access, Layout, Region};
pub use whereabouts::Whereabouts;
pub use wqe::{BLOCK_BYTES, Flag, MAX_INLINE_BYTES, MAX_SGES, ReceiveWork, SendOpcode, SendWork, Sge, flag};
