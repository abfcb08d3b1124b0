//! The box's part: handshakes, and keys whose sessions have not begun.

use std::hash::Hash;

use etherslot_seal::{Heard, Passive, PublicKey, Rejected, is_protected};
use etherslot_wire::control::Hello;
use etherslot_wire::frame::{Header, Kind, MAX_FRAME_BYTES};
use etherslot_wire::handshake::{self, MAX_BYTES};

use super::{GuardCounters, Keys, Security, epochs};

/// Keys without a session; the oldest make room.
const WAITING: usize = 64;

/// What came of a frame that belongs to no session.
pub(crate) enum Came {
    /// It is dropped.
    Nothing,
    /// So many bytes of the reply are to be sent back.
    Reply(usize),
    /// A Hello of the node with these waiting keys; its body is in the room.
    Hello {
        /// Of the keys.
        at: usize,
        /// The header.
        header: Header,
        /// Bytes of the body.
        bytes: usize,
    },
}

struct Waiting<A> {
    from: A,
    since_ns: u64,
    keys: Keys,
}

/// What a box with credentials has beside its sessions.
pub(crate) struct BoxGuard<A> {
    security: Security,
    passive: Passive<A>,
    waiting: Vec<Waiting<A>>,
    lifetime_ns: u64,
    /// Where frames are opened.
    pub(crate) room: Box<[u8; MAX_FRAME_BYTES]>,
    counters: GuardCounters,
}

impl<A: Copy + Eq + Hash> BoxGuard<A> {
    pub(crate) fn new(mut security: Security, lifetime_ns: u64) -> Self {
        let passive = Passive::new(security.entropy.fork(), lifetime_ns);
        let room = Box::new([0; MAX_FRAME_BYTES]);
        let waiting = Vec::with_capacity(WAITING);
        Self { security, passive, waiting, lifetime_ns, room, counters: GuardCounters::default() }
    }

    pub(crate) fn counters(&self) -> GuardCounters {
        let counters = self.passive.counters();
        GuardCounters {
            handshake_frames: counters.received,
            handshake_limited: counters.limited,
            handshake_strangers: counters.strangers,
            handshake_unexpected: counters.unexpected + counters.malformed,
            handshake_cookies_refused: counters.cookies_refused,
            handshake_exchanges: counters.exchanges,
            handshake_throttled: counters.throttled,
            handshake_failed: counters.failed,
            handshake_not_allowed: counters.not_allowed,
            handshakes: counters.agreed,
            ..self.counters
        }
    }

    /// Opens a frame of a session into the room; its header and the bytes of its body there.
    pub(crate) fn open(&mut self, keys: &mut Keys, frame: &[u8]) -> Option<(Header, usize)> {
        match keys.channel.opener.open(frame, &mut self.room) {
            Ok((header, body)) => Some((header, body.len())),
            Err(unopened) => {
                self.counters.note(unopened);
                None
            }
        }
    }

    /// Takes a frame that belongs to no session. `is_taken` says which epochs sessions have.
    pub(crate) fn receive(
        &mut self,
        now_ns: u64,
        from: &A,
        frame: &[u8],
        is_taken: &dyn Fn(u32) -> bool,
        reply: &mut [u8],
    ) -> Came {
        if handshake::is_handshake(frame) && is_protected(frame) {
            return self.handshake(now_ns, from, frame, is_taken, &mut reply[..MAX_BYTES]);
        }
        if !is_protected(frame) {
            self.counters.plain_frames += 1;
            return Came::Nothing;
        }
        let (dst, src) = epochs(frame);
        let is_it = |one: &Waiting<A>| {
            let channel = &one.keys.channel;
            one.from == *from && channel.peer_epoch == src && (dst == 0 || dst == channel.epoch)
        };
        let Some(at) = self.waiting.iter().position(is_it) else {
            self.counters.keyless_frames += 1;
            return Came::Nothing;
        };
        let channel = &mut self.waiting[at].keys.channel;
        match channel.opener.open(frame, &mut self.room) {
            Err(unopened) => self.counters.note(unopened),
            // Data that overtook the Hello which makes the session.
            Ok((header, _)) if header.kind != Kind::Hello => self.counters.keyless_frames += 1,
            Ok((header, body)) => {
                if Hello::parse(body).is_some_and(|hello| channel.peer.owns(&hello.node)) {
                    return Came::Hello { at, header, bytes: body.len() };
                }
                self.counters.false_identities += 1;
            }
        }
        Came::Nothing
    }

    fn handshake(
        &mut self,
        now_ns: u64,
        from: &A,
        frame: &[u8],
        is_taken: &dyn Fn(u32) -> bool,
        reply: &mut [u8],
    ) -> Came {
        let Self { security, passive, waiting, lifetime_ns, .. } = self;
        waiting.retain(|one| now_ns.saturating_sub(one.since_ns) < *lifetime_ns);
        let is_taken = |epoch| is_taken(epoch) || waiting.iter().any(|one| one.keys.channel.epoch == epoch);
        match passive.handle(now_ns, &security.credentials, from, frame, &is_taken, reply) {
            Ok(Heard::Reply(bytes)) => Came::Reply(bytes),
            Ok(Heard::Agreed(channel)) => {
                if waiting.len() >= WAITING {
                    waiting.remove(0);
                }
                waiting.push(Waiting { from: *from, since_ns: now_ns, keys: Keys::new(*channel) });
                Came::Nothing
            }
            Err(Rejected::NotAllowed) => {
                if let Some(node) = passive.take_refused() {
                    tracing::warn!(%node, "a node of the fabric that is not among our peers");
                }
                Came::Nothing
            }
            Err(_) => Came::Nothing,
        }
    }

    /// The epoch that the session of these keys is to have.
    pub(crate) fn epoch(&self, at: usize) -> u32 {
        self.waiting[at].keys.channel.epoch
    }

    /// Seals a frame with keys that wait; the bytes of it in `sealed`.
    pub(crate) fn seal(&mut self, at: usize, frame: &[u8], sealed: &mut [u8]) -> Option<usize> {
        self.waiting[at].keys.channel.sealer.seal(frame, sealed).ok()
    }

    /// The keys of a session that begins.
    pub(crate) fn take(&mut self, at: usize) -> Keys {
        self.waiting.remove(at).keys
    }

    pub(crate) fn public(&self) -> PublicKey {
        self.security.credentials.node.public()
    }
}
