//! One session: its state, and what passes between its sending and its receiving half.

use core::fmt;
use std::ops::Range;

use etherslot_wire::control::{CloseReason, Hello};
use etherslot_wire::frame::{self, CHECK_BYTES, Header, SACK_BYTES, flag};
use etherslot_wire::record::{Kind, MAX_PAYLOAD_BYTES};

use crate::ack::Acknowledger;
use crate::config::{Config, Mode};
use crate::counters::Counters;
use crate::handshake::Handshake;
use crate::liveness::Liveness;
use crate::pack::Pieces;
use crate::path::{PathId, PathReport};
use crate::receive::{Arrival, Receiver};
use crate::replay::Replay;
use crate::send::{Burst, Sender, Verdict};

/// Close frames sent, since none is acknowledged.
const CLOSE_FRAMES: u32 = 3;
/// Frames dropped as against the rules before the session is closed; a damaged frame or two are not the peer's fault.
const MAX_VIOLATIONS: u32 = 64;
/// A frame without records: header, SACK block, the longest other body, check.
const CONTROL_FRAME_BYTES: usize = frame::HEADER_BYTES + SACK_BYTES + Hello::BYTES + CHECK_BYTES;

/// Where a session is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The peer has not confirmed yet.
    Connecting,
    /// Records pass.
    Up,
    /// We close it; the peer is being told.
    Closing,
    /// Over. A dead session stays so.
    Dead(DeadReason),
}

/// Why a session is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeadReason {
    /// Nothing was heard from the peer.
    #[error("the peer is silent")]
    Silent,
    /// The peer is heard, but acknowledges nothing of what is sent, however often.
    #[error("the peer acknowledges nothing")]
    Stalled,
    /// The peer closed it.
    #[error("closed by the peer: {0:?}")]
    PeerClosed(CloseReason),
    /// We closed it; [`CloseReason::Protocol`] is what the peer did.
    #[error("closed: {0:?}")]
    Closed(CloseReason),
}

/// A record does not go in: there is no room, the session is not up, or, counted in
/// [`Counters::records_refused`], it never can (no such stream, too long).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the session takes no record now")]
pub struct Full;

/// Takes the records that arrive.
pub trait Deliver {
    /// A whole record, the next of its stream.
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]);

    /// The same, of a record that lies in one piece in the frame in hand: `body[payload]`, which stays as it is until
    /// [`Deliver::let_go`]. Who takes it only then copies it from there to where it belongs, once.
    fn record_in_hand(&mut self, kind: Kind, stream: u16, body: &[u8], payload: Range<usize>) {
        self.record(kind, stream, &body[payload]);
    }

    /// All records of the frame in hand have been delivered; what is left in its body is gone after this.
    fn let_go(&mut self, body: &[u8]) {
        let _ = body;
    }
}

/// What a confirmed half-open session becomes.
pub(crate) struct Accepted {
    pub(crate) epoch: u32,
    pub(crate) peer_epoch: u32,
    pub(crate) peer: Hello,
    pub(crate) peer_first_sequence: u32,
    pub(crate) packet_number: u64,
    pub(crate) last_tx_ns: u64,
}

/// A close under way.
#[derive(Debug)]
pub(crate) struct Closing {
    pub(crate) reason: CloseReason,
    pub(crate) frames_left: u32,
    pub(crate) interval_ns: u64,
    pub(crate) next_ns: u64,
    until_ns: u64,
}

/// A reliable ordered session with one peer.
pub struct Session {
    pub(crate) config: Config,
    pub(crate) state: State,
    pub(crate) epoch: u32,
    pub(crate) peer_epoch: u32,
    peer: Option<Hello>,
    mode: Mode,
    /// Data frames are checked by their headers only.
    pub(crate) is_header_checked: bool,
    frame_bytes: u16,
    pub(crate) handshake: Handshake,
    pub(crate) closing: Option<Closing>,
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// What is owed on each path.
    pub(crate) acknowledgers: Box<[Acknowledger]>,
    replay: Replay,
    pub(crate) next_packet_number: u64,
    /// Timestamps of transmissions are unique: the next is later than this.
    pub(crate) last_tx_ns: u64,
    /// The latest time we were told.
    pub(crate) now_ns: u64,
    pub(crate) liveness: Liveness,
    /// The next frame carries a mark of a switch.
    is_marked: bool,
    violations: u32,
    pub(crate) burst: Burst,
    pub(crate) control: [u8; CONTROL_FRAME_BYTES],
    pub(crate) counters: Counters,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("epoch", &self.epoch)
            .field("peer_epoch", &self.peer_epoch)
            .field("state", &self.state)
            .field("unacked_frames", &self.unacked_frames())
            .field("deadline_ns", &self.deadline_ns())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Session {
    /// Begins a session from the active side. `epoch` is a random number, not 0.
    pub fn connect(config: &Config, epoch: u32, now_ns: u64) -> Self {
        let config = config.clamped();
        Self {
            state: State::Connecting,
            epoch,
            peer_epoch: 0,
            peer: None,
            mode: config.mode,
            is_header_checked: false,
            frame_bytes: config.max_frame_bytes,
            handshake: Handshake::new(&config, now_ns),
            closing: None,
            sender: Sender::new(&config, now_ns),
            receiver: Receiver::new(&config),
            acknowledgers: (0..config.paths).map(|_| Acknowledger::new(&config)).collect(),
            replay: Replay::new(),
            next_packet_number: 0,
            last_tx_ns: 0,
            now_ns,
            liveness: Liveness::new(&config, now_ns),
            is_marked: false,
            violations: 0,
            burst: Burst::new(),
            control: [0; CONTROL_FRAME_BYTES],
            counters: Counters::default(),
            config,
        }
    }

    /// Begins a session from the passive side, with the Hello that confirms it.
    pub(crate) fn accept(config: &Config, now_ns: u64, confirm: &Header, accepted: &Accepted) -> Self {
        let mut session = Self::connect(config, accepted.epoch, now_ns);
        session.next_packet_number = accepted.packet_number;
        session.last_tx_ns = accepted.last_tx_ns;
        session.agree(accepted.peer_epoch, &accepted.peer, accepted.peer_first_sequence);
        session.state = State::Up;
        session.replay.is_new(confirm.packet_number);
        session.hear_handshake(now_ns, confirm);
        // The peer repeats its confirmation until it hears from this session.
        session.acknowledgers[0].at_once();
        session
    }

    fn agree(&mut self, peer_epoch: u32, peer: &Hello, peer_first_sequence: u32) {
        self.peer_epoch = peer_epoch;
        self.peer = Some(*peer);
        self.mode = self.config.agreed_mode(peer);
        self.is_header_checked = self.config.agreed_header_check(peer);
        self.frame_bytes = self.config.max_frame_bytes.min(peer.max_frame_bytes);
        self.sender.agree(self.mode, self.frame_bytes as usize, peer.receive_window_frames);
        self.sender.begin(self.now_ns);
        self.receiver.agree(self.mode, peer_first_sequence);
    }

    fn hear_handshake(&mut self, now_ns: u64, header: &Header) {
        self.acknowledgers[0].note_echo(now_ns, header.tx_ts_ns);
        if let Some(echo) = header.echo {
            self.sender.hear_echo(now_ns, echo, header.tx_ts_ns);
        }
    }

    /// Our epoch: the `dst_epoch` of frames for this session.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The peer's epoch; 0 as long as it is not known.
    pub fn peer_epoch(&self) -> u32 {
        self.peer_epoch
    }

    /// Where the session is in its life.
    pub fn state(&self) -> State {
        self.state
    }

    /// What the peer said about itself, once it has.
    pub fn peer(&self) -> Option<Hello> {
        self.peer
    }

    /// Whether both sides offer this feature ([`etherslot_wire::control::feature`]).
    pub fn has(&self, feature: u32) -> bool {
        self.peer.is_some_and(|peer| peer.features & self.config.hello().features & feature != 0)
    }

    /// The mode in force.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The largest frame in use, once the session is up.
    pub fn frame_bytes(&self) -> usize {
        self.frame_bytes as usize
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Data frames not acknowledged yet, the one under construction among them.
    pub fn unacked_frames(&self) -> usize {
        self.sender.unacked_frames() as usize
    }

    /// How far a stream is: [`Session::has_arrived`] tells when all that was sent on it so far has arrived.
    pub fn mark(&self, stream: u16) -> u16 {
        self.sender.pack.mark(stream)
    }

    /// Whether all that had been sent on a stream when it was at this [`Session::mark`] has been delivered to the peer's
    /// [`Deliver`]: it is acknowledged, as is everything before it. To be asked before 32,768 further parts have been sent.
    pub fn has_arrived(&self, stream: u16, mark: u16) -> bool {
        self.sender.pack.has_arrived(stream, mark)
    }

    /// Whether all that was sent has been acknowledged, and all that was received too.
    pub fn is_idle(&self) -> bool {
        self.sender.unacked_frames() == 0 && !self.acknowledgers.iter().any(Acknowledger::is_owed)
    }

    /// Asks the peer to have no more than this on its way to us, or less than a frame more; `u32::MAX` is no bound.
    pub fn set_receiver_cap_bytes(&mut self, bytes: u32) {
        self.receiver.set_cap_bytes(bytes);
    }

    /// Payload bytes of the largest record that can be sent now without being split, 0 if none can be sent. If it is not
    /// 0 a record of any length can be sent, in parts if need be, on a stream with fewer than 32,000 parts under way.
    pub fn room(&self) -> usize {
        if self.state == State::Up { self.sender.room() } else { 0 }
    }

    /// The same for one stream. A stream of which nothing waits for its first transmission has room behind a full
    /// backlog of others, and its record goes before theirs if it is small (up to 256 bytes).
    pub fn room_for(&self, stream: u16) -> usize {
        if self.state == State::Up { self.sender.room_for(stream) } else { 0 }
    }

    /// Sends a record: `head`, `lead_zeros` zeros, `data`, and zeros up to `total_len`. It is copied once, into the
    /// frame it leaves in.
    pub fn send(
        &mut self,
        kind: Kind,
        stream: u16,
        head: &[u8],
        lead_zeros: usize,
        data: &[u8],
        total_len: usize,
    ) -> Result<(), Full> {
        if self.room_for(stream) == 0 {
            return Err(Full);
        }
        let pieces = Pieces { head, lead_zeros, data, total_len };
        if !pieces.fits() || !self.sender.pack.has_stream(stream) {
            self.counters.records_refused += 1;
            return Err(Full);
        }
        self.sender.push(kind, stream, &pieces);
        self.counters.records_sent += 1;
        self.counters.record_bytes_sent += total_len as u64;
        Ok(())
    }

    /// Whether a record of this length can be sent now without being split, in the frame under construction or the next.
    pub fn fits(&self, stream: u16, total_len: usize) -> bool {
        self.room_for(stream) != 0 && self.sender.pack.fits(total_len)
    }

    /// Sends a record that fits unsplit ([`Session::fits`]), whose bytes in `data` are written by `fill`, in the frame that
    /// it leaves in. Before them go `head` and zeros, behind them zeros up to `total_len`. If `fill` can't, it says false, and
    /// nothing is sent.
    pub fn send_filled(
        &mut self,
        kind: Kind,
        stream: u16,
        head: &[u8],
        data: Range<usize>,
        total_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> Result<bool, Full> {
        if !self.fits(stream, total_len) {
            return Err(Full);
        }
        let fits = head.len() <= data.start && data.start <= data.end && data.end <= total_len;
        if !fits || total_len > MAX_PAYLOAD_BYTES || !self.sender.pack.has_stream(stream) {
            self.counters.records_refused += 1;
            return Err(Full);
        }
        let sent = self.sender.push_filled(kind, stream, head, data, total_len, fill);
        if sent {
            self.counters.records_sent += 1;
            self.counters.record_bytes_sent += total_len as u64;
        }
        Ok(sent)
    }

    /// The frame that is handed over next carries a mark of a switch (ECN's Congestion Experienced); the peer's
    /// controller will be told.
    pub fn note_congestion(&mut self) {
        self.is_marked = true;
    }

    /// Adds a path to a session that is up: another Port of ours, or another address of the peer. It is used once it has
    /// answered. `None` if [`Config::paths`] or the mode allows no more.
    pub fn add_path(&mut self, now_ns: u64) -> Option<PathId> {
        self.join_path(now_ns, None)
    }

    /// For the passive side: the path that this frame comes on, which is none known, joins the session, if the frame is
    /// the session's, has not been seen before, and [`Config::paths`] leaves room; a path that has been down for long
    /// makes room. The frame is still to be handed over with that path, whose former addresses, if it had one, are void.
    pub fn join(&mut self, now_ns: u64, header: &Header) -> Option<PathId> {
        let is_ours = header.dst_epoch == self.epoch
            && header.src_epoch == self.peer_epoch
            && matches!(header.kind, frame::Kind::Data | frame::Kind::Ack)
            && self.replay.would_take(header.packet_number);
        if is_ours { self.join_path(now_ns, Some(self.config.dead_after_ns)) } else { None }
    }

    fn join_path(&mut self, now_ns: u64, stale_ns: Option<u64>) -> Option<PathId> {
        if self.state != State::Up || self.mode != Mode::Selective {
            return None;
        }
        let at = self.sender.join(now_ns, stale_ns)?;
        self.acknowledgers[at] = Acknowledger::new(&self.config);
        Some(PathId::new(at))
    }

    /// The Port of a path says that it can carry nothing: what is on its way there leaves again on the others, if one of
    /// them is up. The path is up again once it answers.
    pub fn lose_path(&mut self, now_ns: u64, path: PathId) {
        if self.state == State::Up {
            self.sender.lose_path(now_ns, path.index(), &mut self.counters);
        }
    }

    /// The paths that have joined.
    pub fn paths(&self) -> impl ExactSizeIterator<Item = PathReport> {
        let paths = self.sender.joined().iter().enumerate();
        paths.map(|(at, path)| path.report(at, self.sender.flight.bytes(at)))
    }

    /// Takes a frame that came on the first path. [`Session::transmit`] is to be called after a burst of them.
    pub fn handle_frame(&mut self, now_ns: u64, header: &Header, body: &[u8], deliver: &mut dyn Deliver) {
        self.handle_frame_on(now_ns, PathId::FIRST, header, body, deliver);
    }

    /// Takes a frame that came on one of the session's paths.
    pub fn handle_frame_on(
        &mut self,
        now_ns: u64,
        path: PathId,
        header: &Header,
        body: &[u8],
        deliver: &mut dyn Deliver,
    ) {
        let at = path.index();
        if at >= self.sender.used_paths() {
            self.counters.dropped_state += 1;
            return;
        }
        if std::mem::take(&mut self.is_marked) {
            self.acknowledgers[at].on_marked();
        }
        self.now_ns = self.now_ns.max(now_ns);
        self.counters.frames_received += 1;
        self.counters.bytes_received += (header.len() + body.len() + CHECK_BYTES) as u64;
        let is_answer = self.state == State::Connecting && self.peer_epoch == 0;
        if matches!(self.state, State::Dead(_) | State::Closing) {
            self.counters.dropped_state += 1;
        } else if header.dst_epoch != self.epoch || !is_answer && header.src_epoch != self.peer_epoch {
            self.counters.dropped_epoch += 1;
        } else if is_answer {
            self.handle_answer(now_ns, header, body);
        } else if !self.replay.is_new(header.packet_number) {
            self.counters.dropped_replay += 1;
        } else {
            self.handle_peer(now_ns, at, header, body, deliver);
        }
    }

    /// A frame while we have greeted and know no peer.
    fn handle_answer(&mut self, now_ns: u64, header: &Header, body: &[u8]) {
        let hello = Hello::parse(body);
        match hello.filter(|_| header.kind == frame::Kind::HelloAck && header.src_epoch != 0) {
            Some(hello) => {
                self.agree(header.src_epoch, &hello, header.sequence);
                self.replay = Replay::new();
                self.replay.is_new(header.packet_number);
                self.handshake.on_answer(now_ns, header.src_epoch);
                self.liveness.on_heard(now_ns);
                self.hear_handshake(now_ns, header);
            }
            None => self.counters.dropped_state += 1,
        }
    }

    /// A new frame of the peer's session.
    fn handle_peer(
        &mut self,
        now_ns: u64,
        at: usize,
        header: &Header,
        body: &[u8],
        deliver: &mut dyn Deliver,
    ) {
        self.liveness.on_heard(now_ns);
        if self.state == State::Connecting {
            if header.kind != frame::Kind::Close && header.ack.is_none() {
                self.counters.dropped_state += 1;
                return;
            }
            self.state = State::Up;
        }
        if self.sender.on_ack(now_ns, at, header, &mut self.counters) == Verdict::Invalid {
            self.counters.dropped_ack += 1;
            self.note_violation();
        }
        match header.kind {
            frame::Kind::Data => self.handle_data(now_ns, at, header, body, deliver),
            frame::Kind::Ack => {
                self.counters.acks_received += 1;
                if header.flags & flag::ACK_NOW != 0 {
                    self.acknowledgers[at].note_echo(now_ns, header.tx_ts_ns);
                    self.acknowledgers[at].at_once();
                }
            }
            // The peer has not heard from us yet.
            frame::Kind::Hello => self.acknowledgers[at].at_once(),
            frame::Kind::HelloAck => self.counters.dropped_state += 1,
            frame::Kind::Close => {
                let reason = CloseReason::parse(body).unwrap_or(CloseReason::Protocol);
                self.state = State::Dead(DeadReason::PeerClosed(reason));
            }
        }
        self.update_gauges();
    }

    fn handle_data(
        &mut self,
        now_ns: u64,
        at: usize,
        header: &Header,
        body: &[u8],
        deliver: &mut dyn Deliver,
    ) {
        if header.flags & flag::HEADER_CHECK != 0 && !self.is_header_checked {
            self.counters.dropped_malformed += 1;
            self.note_violation();
            return;
        }
        let is_multiple = self.sender.is_multiple();
        let acknowledger = &mut self.acknowledgers[at];
        match self.receiver.take(header.sequence, body, deliver, &mut self.counters) {
            Arrival::InOrder if header.flags & flag::ACK_NOW == 0 => acknowledger.on_data(now_ns),
            // Paths overtake each other all the time.
            Arrival::Disordered if is_multiple && header.flags & flag::ACK_NOW == 0 => {
                acknowledger.on_data(now_ns);
            }
            Arrival::InOrder | Arrival::Disordered => acknowledger.at_once(),
            Arrival::Duplicate => {
                self.counters.duplicates += 1;
                acknowledger.at_once();
            }
            Arrival::BeyondCredit => {
                self.counters.dropped_sequence += 1;
                self.note_violation();
                return;
            }
            Arrival::Malformed => {
                self.counters.dropped_malformed += 1;
                self.note_violation();
                return;
            }
            Arrival::Violation => {
                self.counters.dropped_malformed += 1;
                self.close(CloseReason::Protocol);
                return;
            }
        }
        acknowledger.note_echo(now_ns, header.tx_ts_ns);
    }

    fn note_violation(&mut self) {
        self.violations += 1;
        if self.violations >= MAX_VIOLATIONS {
            self.close(CloseReason::Protocol);
        }
    }

    fn update_gauges(&mut self) {
        (self.counters.srtt_ns, self.counters.rtt_min_ns) = self.sender.best_rtt_ns();
        self.counters.paths = self.sender.joined().iter().filter(|path| path.health.is_up()).count() as u64;
        self.counters.window_bytes = self.sender.window_bytes();
    }

    /// Ends the session. The peer is told by a few Close frames; nothing else is sent or taken any more.
    pub fn close(&mut self, reason: CloseReason) {
        match self.state {
            State::Connecting if self.peer_epoch == 0 => self.state = State::Dead(DeadReason::Closed(reason)),
            State::Connecting | State::Up => {
                self.state = State::Closing;
                let interval_ns = (2 * self.sender.best_rtt_ns().0).clamp(1_000_000, 20_000_000);
                self.closing = Some(Closing {
                    reason,
                    frames_left: CLOSE_FRAMES,
                    interval_ns,
                    next_ns: self.now_ns,
                    until_ns: self.now_ns + 2 * u64::from(CLOSE_FRAMES) * interval_ns,
                });
            }
            State::Closing | State::Dead(_) => {}
        }
    }

    /// When [`Session::handle_timeout`] is to be called; it may have passed. Anything the session is asked to do can
    /// change it. A dead session has none.
    pub fn deadline_ns(&self) -> Option<u64> {
        match self.state {
            State::Dead(_) => None,
            State::Closing => self.closing.as_ref().map(|closing| closing.next_ns.min(closing.until_ns)),
            State::Connecting => Some(self.handshake.deadline_ns().min(self.liveness.answer_deadline_ns())),
            State::Up => {
                let sender = self.sender.deadline_ns();
                let pace = self.sender.pace_deadline_ns(self.now_ns);
                let ack = self.acknowledgers.iter().filter_map(Acknowledger::deadline_ns).min();
                let liveness = self.liveness.deadline_ns(self.sooner_ns());
                Some([sender, pace, ack].into_iter().flatten().fold(liveness, u64::min))
            }
        }
    }

    /// The peer is asked sooner if we wait for credit: the acknowledgement that gave it may have been lost.
    fn sooner_ns(&self) -> Option<u64> {
        let waits = self.sender.is_credit_blocked() && self.sender.is_flight_empty();
        waits.then(|| self.sender.timeout_ns())
    }

    /// Lets the timers run up to now. [`Session::transmit`] is to be called after it.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        match self.state {
            State::Dead(_) => {}
            State::Closing => {
                if let Some(closing) = self.closing.as_ref().filter(|closing| now_ns >= closing.until_ns) {
                    self.state = State::Dead(DeadReason::Closed(closing.reason));
                }
            }
            State::Connecting => {
                if now_ns >= self.liveness.answer_deadline_ns() {
                    self.state = State::Dead(DeadReason::Silent);
                }
            }
            State::Up => {
                self.sender.handle_timeout(now_ns, &mut self.counters);
                if self.liveness.expire(now_ns, self.sooner_ns()) {
                    self.state = State::Dead(DeadReason::Silent);
                } else if self.sender.is_exhausted(now_ns, self.config.dead_after_ns) {
                    self.state = State::Dead(DeadReason::Stalled);
                }
                if self.liveness.is_due() {
                    self.liveness.on_asked();
                    self.sender.ask_all(now_ns);
                }
                self.update_gauges();
            }
        }
    }
}
