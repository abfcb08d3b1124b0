//! The host node's part: agreeing on keys before a session begins.

use etherslot_seal::{Active, ActiveState, Channel, PublicKey, Rejected, Timing};
use etherslot_session::Config as SessionConfig;
use etherslot_wire::frame::{Header, MAX_FRAME_BYTES};

use super::{GuardCounters, Keys, Protection, Security};

/// What a host node with credentials has, for all its boxes.
#[derive(Debug)]
pub(crate) struct HostGuard {
    security: Security,
    /// Where frames are opened.
    pub(crate) room: Box<[u8; MAX_FRAME_BYTES]>,
    pub(crate) counters: GuardCounters,
}

impl HostGuard {
    pub(crate) fn new(security: Security) -> Self {
        Self { security, room: Box::new([0; MAX_FRAME_BYTES]), counters: GuardCounters::default() }
    }

    pub(crate) fn public(&self) -> PublicKey {
        self.security.credentials.node.public()
    }
}

/// The keys of one box's session, and the way to them.
#[derive(Debug, Default)]
pub(crate) struct PeerKeys {
    /// Who the box has to be, if that is known.
    pub(crate) expected: Option<PublicKey>,
    greeting: Option<Box<Active>>,
    keys: Option<Box<Keys>>,
}

impl PeerKeys {
    /// Whether neither keys are there nor asked for.
    pub(crate) fn is_idle(&self) -> bool {
        self.greeting.is_none() && self.keys.is_none()
    }

    /// Begins to ask for keys.
    pub(crate) fn greet(&mut self, guard: &mut HostGuard, config: &SessionConfig, now_ns: u64) {
        let timing = Timing { interval_ns: config.heartbeat_ns, patience_ns: config.dead_after_ns };
        let Security { credentials, entropy } = &mut guard.security;
        let epoch = entropy.epoch();
        self.greeting = Some(Box::new(Active::new(credentials, entropy.fork(), timing, epoch, now_ns)));
    }

    /// Forgets them.
    pub(crate) fn clear(&mut self) {
        (self.greeting, self.keys) = (None, None);
    }

    /// Whether a frame of a handshake with this destination is for us.
    pub(crate) fn awaits(&self, epoch: u32) -> bool {
        self.greeting.as_ref().is_some_and(|greeting| greeting.epoch() == epoch)
    }

    /// Takes a frame of the handshake. The epoch of the session that is to begin, once.
    pub(crate) fn handle(&mut self, guard: &mut HostGuard, now_ns: u64, frame: &[u8]) -> Option<u32> {
        let greeting = self.greeting.as_mut()?;
        let credentials = &guard.security.credentials;
        let counters = &mut guard.counters;
        counters.handshake_frames += 1;
        let counter = match greeting.handle(now_ns, credentials, self.expected.as_ref(), frame) {
            Ok(None) => return None,
            Ok(Some(channel)) => {
                counters.handshakes += 1;
                let Channel { epoch, peer, suite, .. } = &channel;
                let epoch = *epoch;
                tracing::debug!(%peer, %suite, "keys agreed on");
                self.keys = Some(Box::new(Keys::new(channel)));
                return Some(epoch);
            }
            Err(Rejected::NotAllowed) => {
                tracing::warn!("the box has a key that is not the one expected, or not among our peers");
                &mut counters.handshake_not_allowed
            }
            Err(Rejected::Failed) => &mut counters.handshake_failed,
            Err(Rejected::Stranger) => &mut counters.handshake_strangers,
            Err(_) => &mut counters.handshake_unexpected,
        };
        *counter += 1;
        None
    }

    /// Opens a frame of the session into the guard's room; its header and the bytes of its body there.
    pub(crate) fn open(&mut self, guard: &mut HostGuard, frame: &[u8]) -> Option<(Header, usize)> {
        let Some(keys) = &mut self.keys else {
            guard.counters.keyless_frames += 1;
            return None;
        };
        match keys.channel.opener.open(frame, &mut guard.room) {
            Ok((header, body)) => {
                if let Some(mut greeting) = self.greeting.take() {
                    greeting.confirm();
                }
                Some((header, body.len()))
            }
            Err(unopened) => {
                guard.counters.note(unopened);
                None
            }
        }
    }

    /// Lets the timers run. Whether the attempt has failed; it is forgotten then.
    pub(crate) fn handle_timeout(&mut self, guard: &HostGuard, now_ns: u64) -> bool {
        let Some(greeting) = &mut self.greeting else { return false };
        greeting.handle_timeout(&guard.security.credentials, now_ns);
        let has_failed = greeting.state() == ActiveState::Failed;
        if has_failed {
            self.clear();
        }
        has_failed
    }

    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        if self.keys.as_ref().is_some_and(|keys| keys.is_waiting()) {
            return Some(0);
        }
        self.greeting.as_ref().and_then(|greeting| greeting.deadline_ns())
    }

    /// Hands over the frame of the handshake that is due.
    pub(crate) fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.greeting.as_mut().is_some_and(|greeting| greeting.transmit(now_ns, send))
    }

    pub(crate) fn keys_mut(&mut self) -> Option<&mut Keys> {
        self.keys.as_deref_mut()
    }

    pub(crate) fn protection(&self) -> Option<Protection> {
        self.keys.as_ref().map(|keys| keys.protection())
    }

    /// Whether the keys have seen too many forgeries.
    pub(crate) fn is_worn(&self) -> bool {
        self.keys.as_ref().is_some_and(|keys| keys.channel.opener.is_worn())
    }
}
