//! The session: a reliable, ordered link between two nodes over frames that may be lost, repeated, reordered or late.
//!
//! A [`Session`] carries *records* (whole TLPs, control messages) on *streams*. Each stream is strictly FIFO from end
//! to end; a frame that is missing holds back only the streams that have records in it. `docs/wire.md` specifies the
//! frames.
//!
//! The crate does no I/O and has no clock: frames and the time come in as arguments, frames go out through a closure.
//! The owner's loop is
//!
//! 1. decode what the Port received with [`parse_frame`], hand every frame that names [`Session::epoch`] to
//!    [`Session::handle_frame`], Hellos to a [`Listener`],
//! 2. call [`Session::handle_timeout`] once [`Session::deadline_ns`] has come,
//! 3. put records in with [`Session::send`] while [`Session::room`] is not 0,
//! 4. call [`Session::transmit`] after any of these.
//!
//! An owner with several Ports names the path of every frame: [`Session::handle_frame_on`],
//! [`Session::transmit_paths`], [`Session::add_path`], and [`Routes`] for their addresses.
//!
//! All memory is taken when a session begins and none later; the work per frame does not depend on the window.
//! Nothing a peer sends makes a session panic: what breaks a rule is counted and dropped, or ends the session.

mod ack;
mod bits;
mod config;
mod controller;
mod counted;
mod counters;
mod flight;
mod handshake;
mod health;
mod listener;
mod liveness;
mod pack;
mod path;
mod paths;
mod receive;
mod recovery;
mod replay;
mod routes;
mod rtt;
mod send;
mod session;
mod transmit;

pub use config::{Config, Detection, Mode};
pub use controller::{Acked, Classic, Controller, Efe, Limits, Lost, receiver_cap_bytes};
pub use counters::{Counters, Named};
pub use etherslot_wire::control::{CloseReason, Hello};
use etherslot_wire::frame::{Error, Header};
pub use listener::{Heard, Listener, Refusal};
pub use path::{MAX_PATHS, PathId, PathReport};
pub use routes::Routes;

pub use session::{DeadReason, Deliver, Full, Session, State};

/// The check of frames, by the carry-less multiplication of the processor where it has one.
pub(crate) use crc_fast::crc32_iscsi as crc32c;

/// Decodes a frame that a Port received, and holds it against its check: what this returns is for
/// [`Session::handle_frame`] or [`Listener::handle_hello`].
pub fn parse_frame(frame: &[u8]) -> Result<(Header, &[u8]), Error> {
    Header::parse_checked(frame, crc32c)
}

/// Whether `a` comes before `b` in a row of sequences that wraps: by less than half of their range.
pub(crate) const fn before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}
