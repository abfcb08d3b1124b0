//! Who a peer is, and frames that nobody else can read, change or send again: keys, handshake and seal of docs/wire.md
//! (sections 3 and 4.1). docs/security.md says against whom, and why in this way.
//!
//! The crate does no I/O and has no clock: frames, time and entropy come in as arguments. A node stands between its
//! sessions and its Ports with it:
//!
//! 1. [`Active`] (a host node) and [`Passive`] (a box) agree on keys, by frames of their own kind, over a link that loses,
//!    doubles and reorders them. What comes of it is a [`Channel`]: the peer's [`PublicKey`], a [`Sealer`] and an [`Opener`].
//! 2. The session's frames go through [`Sealer::seal`] on their way out, once for each transmission, and through
//!    [`Opener::open`] on their way in. An [`Outbox`] keeps what was sealed and not taken by a Port.
//!
//! Sealing and opening allocate nothing. What strangers send costs a bounded number of HMACs a second, and nothing else.

mod channel;
mod entropy;
mod handshake;
mod keys;
mod outbox;
mod suite;
mod text;
mod traffic;

pub use channel::{Channel, Opened, Opener, Sealer, Unopened, Unsealed};
pub use entropy::Entropy;
pub use handshake::{Active, ActiveState, Heard, Passive, PassiveCounters, Rejected, Timing};
pub use keys::{Credentials, FabricKey, KeyError, NodeKey, Peers, PublicKey};
pub use outbox::Outbox;
pub use suite::{Suite, Suites};
pub use traffic::{PHASE_FRAMES, TrafficSecret};

use etherslot_wire::frame::flag;

/// Whether these bytes say that they are protected: a sealed frame, or one of a handshake.
pub fn is_protected(frame: &[u8]) -> bool {
    frame.get(1).is_some_and(|flags| flags & flag::SEALED != 0)
}
