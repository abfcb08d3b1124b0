//! The side that asks for a session.

use etherslot_wire::handshake::{COOKIE_BYTES, Handshake, Step};

use super::noise::{Exchange, FIRST_BYTES, PAYLOAD_BYTES, SECOND_BYTES, THIRD_BYTES};
use super::{Message, Rejected, channel, parse, prologue};
use crate::channel::Channel;
use crate::entropy::Entropy;
use crate::keys::{Credentials, PublicKey};
use crate::suite::{Suite, Suites};

/// The first repetition comes after this, each later one after twice as long.
const FIRST_INTERVAL_NS: u64 = 5_000_000;

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// The longest between two repetitions.
    pub interval_ns: u64,
    /// How long the attempt may take; half of it without an answer to an Open, and it starts again with a Knock.
    pub patience_ns: u64,
}

/// How far it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActiveState {
    /// Nothing came that the fabric's key fits.
    Knocking,
    /// A cookie came.
    Opening,
    /// The keys are agreed on, as far as this side knows; the last message goes on being sent until [`Active::confirm`].
    Finishing,
    /// The peer uses the keys.
    Done,
    /// Time is over.
    Failed,
}

/// One attempt to agree on keys with a passive node.
#[derive(Debug)]
pub struct Active {
    timing: Timing,
    state: ActiveState,
    epoch: u32,
    entropy: Entropy,
    exchange: Option<Exchange>,
    message: Option<Message>,
    interval_ns: u64,
    next_ns: u64,
    until_ns: u64,
    restart_ns: u64,
}

impl Active {
    /// An attempt; `epoch` is a random number, not 0, and that of the session to come.
    pub fn new(credentials: &Credentials, entropy: Entropy, timing: Timing, epoch: u32, now_ns: u64) -> Self {
        let mut this = Self {
            timing,
            state: ActiveState::Knocking,
            epoch,
            entropy,
            exchange: None,
            message: None,
            interval_ns: 0,
            next_ns: 0,
            until_ns: now_ns.saturating_add(timing.patience_ns),
            restart_ns: u64::MAX,
        };
        this.knock(credentials, now_ns);
        this
    }

    fn knock(&mut self, credentials: &Credentials, now_ns: u64) {
        let knock =
            Handshake { step: Step::Knock, dst_epoch: 0, src_epoch: self.epoch, body: &[0; COOKIE_BYTES] };
        self.exchange = None;
        self.restart_ns = u64::MAX;
        self.say(ActiveState::Knocking, Message::new(&credentials.fabric, &knock), now_ns);
    }

    fn say(&mut self, state: ActiveState, message: Option<Message>, now_ns: u64) {
        self.state = state;
        self.message = message;
        self.interval_ns = FIRST_INTERVAL_NS.min(self.timing.interval_ns);
        self.next_ns = now_ns;
    }

    /// How far it has got.
    pub fn state(&self) -> ActiveState {
        self.state
    }

    /// The epoch that frames for it name.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Takes a frame of a handshake whose destination is [`Active::epoch`]. `Some` once: the keys, and the session may begin.
    /// `expected` is who the peer has to be, if that is known.
    pub fn handle(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        expected: Option<&PublicKey>,
        frame: &[u8],
    ) -> Result<Option<Channel>, Rejected> {
        let frame = parse(credentials, frame)?;
        if frame.dst_epoch != self.epoch || frame.src_epoch == 0 {
            return Err(Rejected::Unexpected);
        }
        match (self.state, frame.step) {
            (ActiveState::Knocking, Step::Cookie) => self.open(now_ns, credentials, &frame).map(|()| None),
            (ActiveState::Opening, Step::Answer) => {
                self.finish(now_ns, credentials, expected, &frame).map(Some)
            }
            _ => Err(Rejected::Unexpected),
        }
    }

    fn open(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        frame: &Handshake<'_>,
    ) -> Result<(), Rejected> {
        let mut body = [0; COOKIE_BYTES + FIRST_BYTES];
        let (cookie, first) = body.split_at_mut(COOKIE_BYTES);
        cookie.copy_from_slice(frame.body.get(..COOKIE_BYTES).ok_or(Rejected::Failed)?);
        let prologue = prologue(self.epoch, frame.src_epoch);
        let mut exchange =
            Exchange::new(true, credentials, &mut self.entropy, &prologue).ok_or(Rejected::Failed)?;
        exchange.write(&[], first).filter(|&bytes| bytes == FIRST_BYTES).ok_or(Rejected::Failed)?;
        let open =
            Handshake { step: Step::Open, dst_epoch: frame.src_epoch, src_epoch: self.epoch, body: &body };
        self.exchange = Some(exchange);
        self.restart_ns = now_ns.saturating_add(self.timing.patience_ns / 2);
        self.say(ActiveState::Opening, Message::new(&credentials.fabric, &open), now_ns);
        Ok(())
    }

    fn finish(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        expected: Option<&PublicKey>,
        frame: &Handshake<'_>,
    ) -> Result<Channel, Rejected> {
        let mut payload = [0; SECOND_BYTES];
        let exchange = self.exchange.as_mut().ok_or(Rejected::Unexpected)?;
        let said = exchange.read(frame.body, &mut payload).filter(|&bytes| bytes >= PAYLOAD_BYTES);
        let said = said.and_then(|bytes| payload[..bytes].first_chunk::<PAYLOAD_BYTES>());
        let &[offered, ..] = said.ok_or(Rejected::Failed)?;
        let mut exchange = self.exchange.take().ok_or(Rejected::Unexpected)?;
        let peer = exchange.peer().ok_or(Rejected::Failed)?;
        let is_expected = expected.is_none_or(|expected| *expected == peer);
        let suite = credentials.suites.choose(Suites(offered));
        let (true, Some(suite)) = (is_expected && credentials.peers.allow(&peer), suite) else {
            self.state = ActiveState::Failed;
            return Err(if suite.is_none() { Rejected::Failed } else { Rejected::NotAllowed });
        };
        self.finished(now_ns, credentials, exchange_end(&mut exchange, suite), frame.src_epoch)?;
        let keys = exchange.keys().ok_or(Rejected::Failed)?;
        Ok(channel(true, (self.epoch, frame.src_epoch), suite, keys))
    }

    fn finished(
        &mut self,
        now_ns: u64,
        credentials: &Credentials,
        third: Option<[u8; THIRD_BYTES]>,
        peer_epoch: u32,
    ) -> Result<(), Rejected> {
        let body = third.ok_or(Rejected::Failed)?;
        let finish =
            Handshake { step: Step::Finish, dst_epoch: peer_epoch, src_epoch: self.epoch, body: &body };
        self.restart_ns = u64::MAX;
        self.say(ActiveState::Finishing, Message::new(&credentials.fabric, &finish), now_ns);
        Ok(())
    }

    /// A frame of the peer's has opened: it has the keys.
    pub fn confirm(&mut self) {
        if self.state == ActiveState::Finishing {
            self.state = ActiveState::Done;
            self.message = None;
        }
    }

    /// When [`Active::handle_timeout`] is to be called.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            ActiveState::Done | ActiveState::Failed => None,
            ActiveState::Finishing => Some(self.next_ns),
            ActiveState::Knocking | ActiveState::Opening => {
                Some(self.next_ns.min(self.until_ns).min(self.restart_ns))
            }
        }
    }

    /// Lets the timers run.
    pub fn handle_timeout(&mut self, credentials: &Credentials, now_ns: u64) {
        let is_waiting = matches!(self.state, ActiveState::Knocking | ActiveState::Opening);
        if is_waiting && now_ns >= self.until_ns {
            self.state = ActiveState::Failed;
            self.message = None;
        } else if is_waiting && now_ns >= self.restart_ns {
            // The passive side may have forgotten its epoch and its cookies.
            self.knock(credentials, now_ns);
        }
    }

    /// Hands the frame that is due to `send`, which says whether it was taken. Whether it was.
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let Some(message) = self.message.as_ref().filter(|_| now_ns >= self.next_ns) else { return false };
        if !send(message.bytes()) {
            return false;
        }
        self.next_ns = now_ns.saturating_add(self.interval_ns);
        self.interval_ns = (2 * self.interval_ns).min(self.timing.interval_ns);
        true
    }
}

/// The third message.
fn exchange_end(exchange: &mut Exchange, suite: Suite) -> Option<[u8; THIRD_BYTES]> {
    let mut third = [0; THIRD_BYTES];
    let bytes = exchange.write(&[suite as u8, 0, 0, 0], &mut third)?;
    (bytes == THIRD_BYTES).then_some(third)
}
