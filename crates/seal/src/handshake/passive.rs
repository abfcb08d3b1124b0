//! The side that is asked for sessions, by anybody.
//!
//! What a frame can cost: one without a valid tag an HMAC, of which there are so many a second and no more; a Knock a second
//! HMAC, and nothing is kept; an Open with a cookie that is valid for its address the asymmetric work of an Answer, and a Finish the
//! rest of it, both so many a second. Whoever has no key of the fabric gets no further than the first, and who sends again what others
//! sent not beyond the second, since an Open that came before is answered with the bytes of its first answer.

use std::hash::{Hash, Hasher};

use etherslot_wire::handshake::{COOKIE_BYTES, Handshake, Step};
use ring::hmac;

use super::bucket::Bucket;
use super::noise::{Exchange, FIRST_BYTES, PAYLOAD_BYTES, SECOND_BYTES, THIRD_BYTES};
use super::{Message, Rejected, channel, parse, prologue};
use crate::channel::Channel;
use crate::entropy::Entropy;
use crate::keys::{Credentials, PublicKey};
use crate::suite::Suite;

/// Tags that are verified, a second and at once.
const TAGS: (u64, u64) = (100_000, 10_000);
/// Messages of key exchanges that are worked on, a second and at once: at some 100 us each a few per cent of a processor.
const EXCHANGES: (u64, u64) = (400, 256);
/// Exchanges under way at once.
const PENDING: usize = 128;
/// A cookie is valid in the period it was made in, and in the next one.
const COOKIE_NS: u64 = 2_000_000_000;

/// What came of a frame of a handshake.
#[derive(Debug)]
pub enum Heard {
    /// The first so many bytes of `reply` are to be sent back.
    Reply(usize),
    /// The keys of a session that the peer may begin.
    Agreed(Box<Channel>),
}

/// What a passive side has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassiveCounters {
    /// Frames of handshakes that came.
    pub received: u64,
    /// Of those: no such frames.
    pub malformed: u64,
    /// Dropped unseen, since too many came.
    pub limited: u64,
    /// By somebody without the fabric's key, or damaged.
    pub strangers: u64,
    /// Nobody waited for them.
    pub unexpected: u64,
    /// With a cookie that is too old or another's.
    pub cookies_refused: u64,
    /// Knocks answered with a cookie.
    pub cookies_sent: u64,
    /// Messages of key exchanges that were worked on.
    pub exchanges: u64,
    /// Not worked on, since too many came.
    pub throttled: u64,
    /// Key exchanges that did not come out.
    pub failed: u64,
    /// By nodes that are not among the peers allowed.
    pub not_allowed: u64,
    /// Keys agreed on.
    pub agreed: u64,
}

#[derive(Debug)]
struct Pending<A> {
    from: A,
    epoch: u32,
    peer_epoch: u32,
    first: [u8; FIRST_BYTES],
    exchange: Exchange,
    answer: Message,
    since_ns: u64,
}

/// Takes the frames of handshakes; `A` is an address of the Port.
#[derive(Debug)]
pub struct Passive<A> {
    entropy: Entropy,
    cookie_key: hmac::Key,
    lifetime_ns: u64,
    pending: Vec<Pending<A>>,
    tags: Bucket,
    exchanges: Bucket,
    refused: Option<PublicKey>,
    counters: PassiveCounters,
}

/// An address on its way into an HMAC. What a type hashes of itself is the same within a process, which is all that a cookie needs.
struct Absorb(hmac::Context);

impl Hasher for Absorb {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

impl<A: Copy + Eq + Hash> Passive<A> {
    /// One that forgets exchanges that nobody ends after `lifetime_ns`.
    pub fn new(mut entropy: Entropy, lifetime_ns: u64) -> Self {
        Self {
            cookie_key: hmac::Key::new(hmac::HMAC_SHA256, &*entropy.bytes()),
            entropy,
            lifetime_ns,
            pending: Vec::with_capacity(PENDING),
            tags: Bucket::new(TAGS.0, TAGS.1),
            exchanges: Bucket::new(EXCHANGES.0, EXCHANGES.1),
            refused: None,
            counters: PassiveCounters::default(),
        }
    }

    /// What was counted.
    pub fn counters(&self) -> &PassiveCounters {
        &self.counters
    }

    /// The node that was last refused because it is not among the peers, if one was since the last call.
    pub fn take_refused(&mut self) -> Option<PublicKey> {
        self.refused.take()
    }

    /// Takes a frame of a handshake. `is_taken` says which epochs are in use; `reply` has room for
    /// [`etherslot_wire::handshake::MAX_BYTES`].
    pub fn handle(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        from: &A,
        frame: &[u8],
        is_taken: &dyn Fn(u32) -> bool,
        reply: &mut [u8],
    ) -> Result<Heard, Rejected> {
        self.counters.received += 1;
        let heard = self.hear(now_ns, credentials, from, frame, is_taken, reply);
        let counters = &mut self.counters;
        match &heard {
            Ok(Heard::Agreed(_)) => counters.agreed += 1,
            Ok(Heard::Reply(_)) => {}
            Err(rejected) => {
                let counter = match rejected {
                    Rejected::Malformed(_) => &mut counters.malformed,
                    Rejected::Limited => &mut counters.limited,
                    Rejected::Stranger => &mut counters.strangers,
                    Rejected::Unexpected => &mut counters.unexpected,
                    Rejected::Cookie => &mut counters.cookies_refused,
                    Rejected::Throttled => &mut counters.throttled,
                    Rejected::Failed => &mut counters.failed,
                    Rejected::NotAllowed => &mut counters.not_allowed,
                };
                *counter += 1;
            }
        }
        heard
    }

    fn hear(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        from: &A,
        frame: &[u8],
        is_taken: &dyn Fn(u32) -> bool,
        reply: &mut [u8],
    ) -> Result<Heard, Rejected> {
        if !self.tags.take(now_ns) {
            return Err(Rejected::Limited);
        }
        let frame = parse(credentials, frame)?;
        if frame.src_epoch == 0 {
            return Err(Rejected::Unexpected);
        }
        let (lifetime_ns, pending) = (self.lifetime_ns, &mut self.pending);
        pending.retain(|one| now_ns.saturating_sub(one.since_ns) < lifetime_ns);
        let message = match frame.step {
            Step::Knock => {
                let mut epoch = self.entropy.epoch();
                while is_taken(epoch) || self.pending.iter().any(|one| one.epoch == epoch) {
                    epoch = self.entropy.epoch();
                }
                let cookie = self.cookie(now_ns / COOKIE_NS, from, frame.src_epoch, epoch);
                let mut body = [0; COOKIE_BYTES];
                body.copy_from_slice(cookie.as_ref());
                self.counters.cookies_sent += 1;
                let cookie = Handshake {
                    step: Step::Cookie,
                    dst_epoch: frame.src_epoch,
                    src_epoch: epoch,
                    body: &body,
                };
                Message::new(&credentials.fabric, &cookie).ok_or(Rejected::Failed)?
            }
            Step::Open => self.open(now_ns, credentials, from, &frame, is_taken)?,
            Step::Finish => return self.finish(now_ns, credentials, from, &frame).map(Heard::Agreed),
            Step::Cookie | Step::Answer => return Err(Rejected::Unexpected),
        };
        let bytes = message.bytes();
        reply.get_mut(..bytes.len()).ok_or(Rejected::Failed)?.copy_from_slice(bytes);
        Ok(Heard::Reply(bytes.len()))
    }

    fn context(&self, period: u64, from: &A, epochs: (u32, u32)) -> hmac::Context {
        let mut absorb = Absorb(hmac::Context::with_key(&self.cookie_key));
        (period, epochs, from).hash(&mut absorb);
        absorb.0
    }

    fn cookie(&self, period: u64, from: &A, active: u32, passive: u32) -> hmac::Tag {
        self.context(period, from, (active, passive)).sign()
    }

    fn is_cookie_valid(&self, now_ns: u64, from: &A, frame: &Handshake<'_>, cookie: &[u8]) -> bool {
        let period = now_ns / COOKIE_NS;
        [period, period.saturating_sub(1)].into_iter().any(|period| {
            let expected = self.cookie(period, from, frame.src_epoch, frame.dst_epoch);
            // In constant time, by an HMAC of both.
            let key = &self.cookie_key;
            hmac::verify(key, cookie, hmac::sign(key, expected.as_ref()).as_ref()).is_ok()
        })
    }

    fn open(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        from: &A,
        frame: &Handshake<'_>,
        is_taken: &dyn Fn(u32) -> bool,
    ) -> Result<Message, Rejected> {
        let (cookie, message) = frame.cookie().ok_or(Rejected::Failed)?;
        let &first = message
            .first_chunk::<FIRST_BYTES>()
            .filter(|first| first.len() == message.len())
            .ok_or(Rejected::Failed)?;
        if !self.is_cookie_valid(now_ns, from, frame, &cookie) {
            return Err(Rejected::Cookie);
        }
        if let Some(known) = self.pending.iter().find(|one| one.epoch == frame.dst_epoch) {
            let is_same = known.from == *from && known.peer_epoch == frame.src_epoch && known.first == first;
            return if is_same { Ok(known.answer) } else { Err(Rejected::Unexpected) };
        }
        if is_taken(frame.dst_epoch) {
            return Err(Rejected::Unexpected);
        }
        if self.pending.len() >= PENDING || !self.exchanges.take(now_ns) {
            return Err(Rejected::Throttled);
        }
        self.counters.exchanges += 1;
        let prologue = prologue(frame.src_epoch, frame.dst_epoch);
        let mut exchange =
            Exchange::new(false, credentials, &mut self.entropy, &prologue).ok_or(Rejected::Failed)?;
        exchange.read(&first, &mut []).ok_or(Rejected::Failed)?;
        let mut body = [0; SECOND_BYTES];
        let offer = [credentials.suites.0, 0, 0, 0];
        exchange.write(&offer, &mut body).filter(|&bytes| bytes == SECOND_BYTES).ok_or(Rejected::Failed)?;
        let answer = Handshake {
            step: Step::Answer,
            dst_epoch: frame.src_epoch,
            src_epoch: frame.dst_epoch,
            body: &body,
        };
        let answer = Message::new(&credentials.fabric, &answer).ok_or(Rejected::Failed)?;
        self.pending.push(Pending {
            from: *from,
            epoch: frame.dst_epoch,
            peer_epoch: frame.src_epoch,
            first,
            exchange,
            answer,
            since_ns: now_ns,
        });
        Ok(answer)
    }

    fn finish(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        from: &A,
        frame: &Handshake<'_>,
    ) -> Result<Box<Channel>, Rejected> {
        let is_it = |one: &Pending<A>| {
            one.epoch == frame.dst_epoch && one.peer_epoch == frame.src_epoch && one.from == *from
        };
        let at = self.pending.iter().position(is_it).ok_or(Rejected::Unexpected)?;
        if !self.exchanges.take(now_ns) {
            return Err(Rejected::Throttled);
        }
        self.counters.exchanges += 1;
        let mut payload = [0; THIRD_BYTES];
        let said =
            self.pending[at].exchange.read(frame.body, &mut payload).filter(|&bytes| bytes >= PAYLOAD_BYTES);
        let said = said.and_then(|bytes| payload[..bytes].first_chunk::<PAYLOAD_BYTES>());
        let &[chosen, ..] = said.ok_or(Rejected::Failed)?;
        let keys = self.pending.swap_remove(at).exchange.keys().ok_or(Rejected::Failed)?;
        if !credentials.peers.allow(&keys.peer) {
            self.refused = Some(keys.peer);
            return Err(Rejected::NotAllowed);
        }
        let suite = Suite::from_number(chosen)
            .filter(|&suite| credentials.suites.has(suite))
            .ok_or(Rejected::Failed)?;
        Ok(Box::new(channel(false, (frame.dst_epoch, frame.src_epoch), suite, keys)))
    }
}
