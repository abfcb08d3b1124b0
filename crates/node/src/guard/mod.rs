//! Sessions with keys: what stands between a node's sessions and its Ports, if the node has credentials.

mod active;
mod passive;

pub(crate) use active::{HostGuard, PeerKeys};
pub(crate) use passive::{BoxGuard, Came};

use std::fmt;

use etherslot_seal::{Channel, Credentials, Entropy, Outbox, PublicKey, Suite, Unopened};
use etherslot_session::{MAX_PATHS, PathId, Routes, Session};
use etherslot_wire::bytes::u32_at;

/// What a node protects its sessions with.
#[derive(Debug)]
pub struct Security {
    /// Its keys, and whom it speaks with.
    pub credentials: Credentials,
    /// The secrets of this life come from here: no two lives of a node may have a seed in common.
    pub entropy: Entropy,
}

/// What a node with keys has counted, beside [`crate::BoxCounters`] or [`crate::HostCounters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardCounters {
    /// Frames in the clear, which a node with keys does not take.
    pub plain_frames: u64,
    /// Sealed frames of no keys that are known: of other epochs, of an earlier life.
    pub keyless_frames: u64,
    /// Frames that somebody else made, or changed, or that were damaged.
    pub forged_frames: u64,
    /// Frames of a key phase that is over, or not due.
    pub stale_frames: u64,
    /// Hellos that name a node whose key the peer does not have.
    pub false_identities: u64,
    /// Frames of handshakes that came.
    pub handshake_frames: u64,
    /// Of those: dropped unseen, since too many came.
    pub handshake_limited: u64,
    /// Made by somebody without the fabric's key, or damaged.
    pub handshake_strangers: u64,
    /// Malformed, or nobody waited for them.
    pub handshake_unexpected: u64,
    /// With a cookie that is too old or another's.
    pub handshake_cookies_refused: u64,
    /// Messages of key exchanges that were worked on.
    pub handshake_exchanges: u64,
    /// Not worked on, since too many came.
    pub handshake_throttled: u64,
    /// Key exchanges that did not come out.
    pub handshake_failed: u64,
    /// Nodes that are not among the peers allowed.
    pub handshake_not_allowed: u64,
    /// Keys agreed on.
    pub handshakes: u64,
}

impl GuardCounters {
    /// Those of another part of the same node added.
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            plain_frames: self.plain_frames + other.plain_frames,
            keyless_frames: self.keyless_frames + other.keyless_frames,
            forged_frames: self.forged_frames + other.forged_frames,
            stale_frames: self.stale_frames + other.stale_frames,
            false_identities: self.false_identities + other.false_identities,
            handshake_frames: self.handshake_frames + other.handshake_frames,
            handshake_limited: self.handshake_limited + other.handshake_limited,
            handshake_strangers: self.handshake_strangers + other.handshake_strangers,
            handshake_unexpected: self.handshake_unexpected + other.handshake_unexpected,
            handshake_cookies_refused: self.handshake_cookies_refused + other.handshake_cookies_refused,
            handshake_exchanges: self.handshake_exchanges + other.handshake_exchanges,
            handshake_throttled: self.handshake_throttled + other.handshake_throttled,
            handshake_failed: self.handshake_failed + other.handshake_failed,
            handshake_not_allowed: self.handshake_not_allowed + other.handshake_not_allowed,
            handshakes: self.handshakes + other.handshakes,
        }
    }

    fn note(&mut self, unopened: Unopened) {
        *match unopened {
            // It says that it is sealed, and is no frame.
            Unopened::Malformed(_) | Unopened::Forged => &mut self.forged_frames,
            Unopened::Phase => &mut self.stale_frames,
        } += 1;
    }
}

/// How one session is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Who the peer is.
    pub peer: PublicKey,
    /// The cipher.
    pub suite: Suite,
    /// Keys used so far by what leaves.
    pub phase: u64,
}

/// The keys of one session, and what is sealed and has not left.
pub(crate) struct Keys {
    pub(crate) channel: Channel,
    outboxes: Vec<(PathId, Outbox)>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Keys").field(&self.channel).finish()
    }
}

impl Keys {
    pub(crate) fn new(channel: Channel) -> Self {
        let mut outboxes = Vec::with_capacity(MAX_PATHS);
        outboxes.push((PathId::FIRST, Outbox::new()));
        Self { channel, outboxes }
    }

    pub(crate) fn protection(&self) -> Protection {
        let Channel { peer, suite, sealer, .. } = &self.channel;
        Protection { peer: *peer, suite: *suite, phase: sealer.phase() }
    }

    /// Whether something that is sealed waits for a Port.
    pub(crate) fn is_waiting(&self) -> bool {
        self.outboxes.iter().any(|(_, outbox)| !outbox.is_empty())
    }

    /// [`Session::transmit_paths`], sealed on the way.
    pub(crate) fn transmit<A: Copy + Eq>(
        &mut self,
        now_ns: u64,
        session: &mut Session,
        routes: &Routes<A>,
        send: &mut dyn FnMut(&A, &[&[u8]]) -> usize,
    ) -> bool {
        let mut progress = false;
        // What leads nowhere any more is lost.
        let mut send =
            |path, burst: &[&[u8]]| routes.address(path).map_or(burst.len(), |address| send(&address, burst));
        for (path, outbox) in &mut self.outboxes {
            progress |= outbox.flush(&mut |burst| send(*path, burst));
        }
        let (sealer, outboxes) = (&mut self.channel.sealer, &mut self.outboxes);
        progress |= session.transmit_paths(now_ns, &mut |path, frames| {
            let at = outboxes.iter().position(|(known, _)| *known == path).unwrap_or_else(|| {
                outboxes.push((path, Outbox::new()));
                outboxes.len() - 1
            });
            outboxes[at].1.send(sealer, frames, &mut |burst| send(path, burst))
        });
        progress
    }
}

/// Destination and source epoch of a frame of any kind; 0 where there are none.
fn epochs(frame: &[u8]) -> (u32, u32) {
    (u32_at(frame, 4).unwrap_or(0), u32_at(frame, 8).unwrap_or(0))
}

/// The destination epoch.
pub(crate) fn destination(frame: &[u8]) -> u32 {
    epochs(frame).0
}
