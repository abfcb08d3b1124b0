//! How two nodes agree on keys: docs/wire.md, section 4.1.
//!
//! ```text
//!  active                                  passive
//!    | ---- Knock ---------------------------> |  costs two HMACs, keeps nothing
//!    | <--- Cookie, epoch b ------------------ |
//!    | ---- Open: cookie, e -----------------> |  the cookie proves the address; the first asymmetric work
//!    | <--- Answer: e, ee, s, es, ciphers ---- |
//!    | ---- Finish: s, se, psk, cipher ------> |  keys
//! ```
//!
//! Every frame carries a tag by the fabric's key, and is dropped if it does not fit. All of them may be lost or come twice: the active
//! side repeats itself, the passive side answers what it has answered already with the same bytes.

mod active;
mod bucket;
pub(crate) mod noise;
mod passive;

pub use active::{Active, ActiveState, Timing};
pub use passive::{Heard, Passive, PassiveCounters};

use etherslot_wire::frame::Error;
use etherslot_wire::handshake::{Handshake, MAX_BYTES, TAG_BYTES};

use crate::channel::{Channel, Opener, Sealer};
use crate::handshake::noise::Keys;
use crate::keys::{Credentials, FabricKey};
use crate::suite::Suite;

/// Why a frame of a handshake had no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// No frame of a handshake.
    #[error(transparent)]
    Malformed(#[from] Error),
    /// More come than are looked at.
    #[error("too many frames of handshakes")]
    Limited,
    /// It was made by somebody without the fabric's key, or damaged.
    #[error("not by the fabric's key")]
    Stranger,
    /// None of a handshake under way, or not what comes next in it.
    #[error("nobody waits for it")]
    Unexpected,
    /// The cookie is too old, or another's.
    #[error("the cookie is not valid")]
    Cookie,
    /// More handshakes than are worked on.
    #[error("too many handshakes")]
    Throttled,
    /// The key exchange does not come out.
    #[error("the key exchange failed")]
    Failed,
    /// The other node is who it says, and not one of those allowed.
    #[error("the node is not among the peers allowed")]
    NotAllowed,
}

/// A frame of this length, or none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message {
    bytes: [u8; MAX_BYTES],
    length: usize,
}

impl Message {
    /// The frame with its tag; `None` if it is too long.
    pub(crate) fn new(fabric: &FabricKey, frame: &Handshake<'_>) -> Option<Self> {
        let mut bytes = [0; MAX_BYTES];
        let covered = frame.emit(&mut bytes)?;
        let tag = fabric.handshake_tag(&bytes[..covered]);
        bytes.get_mut(covered..covered + TAG_BYTES)?.copy_from_slice(&tag);
        Some(Self { bytes, length: covered + TAG_BYTES })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// What the keys belong to: the first input of the key exchange.
pub(crate) fn prologue(active: u32, passive: u32) -> [u8; 24] {
    let mut prologue = *b"etherslot 1     ........";
    prologue[16..20].copy_from_slice(&active.to_be_bytes());
    prologue[20..].copy_from_slice(&passive.to_be_bytes());
    prologue
}

/// What the keys are for, at one end.
fn channel(is_active: bool, (epoch, peer_epoch): (u32, u32), suite: Suite, keys: Keys) -> Channel {
    let Keys { peer, from_active, from_passive } = keys;
    let (ours, theirs) = if is_active { (from_active, from_passive) } else { (from_passive, from_active) };
    let (sealer, opener) = (Sealer::new(suite, ours), Opener::new(suite, &theirs));
    Channel { epoch, peer_epoch, peer, suite, sealer, opener }
}

/// Checks the tag.
fn parse<'a>(credentials: &Credentials, frame: &'a [u8]) -> Result<Handshake<'a>, Rejected> {
    let (handshake, covered, tag) = Handshake::parse(frame)?;
    if credentials.fabric.verify_handshake(covered, tag) { Ok(handshake) } else { Err(Rejected::Stranger) }
}
