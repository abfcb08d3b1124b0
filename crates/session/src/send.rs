//! The sending half: which frame leaves next, and what acknowledgements mean for those that have left.
//!
//! Sequences run `una <= next <= tail`: before `una` all is acknowledged, before `next` all has been transmitted, at
//! `tail` is the frame under construction. Lost frames go out before new ones; both are bounded by the window of their
//! path (its controller's) and by the receiver's cap, new ones by the peer's credit as well.

use std::ops::Range;

use etherslot_wire::frame::{self, CHECK_BYTES};
use etherslot_wire::record::{HEADER_BYTES, Kind};

use crate::before;
use crate::config::{Config, Detection, Mode};
use crate::controller::{Controller, Limits, Lost};
use crate::counted::Counted;
use crate::counters::Counters;
use crate::flight::{Flight, GivenUp, Place};
use crate::pack::{Pack, Pieces};
use crate::path::{Echo, MAX_PATHS, Path};
use crate::recovery::Expired;

/// The most frames handed to the Port at a time.
pub(crate) const BURST_FRAMES: usize = 64;

/// Why a frame is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// For the first time.
    New,
    /// It was lost.
    Lost,
    /// To get an answer.
    Probe,
}

/// A frame that is to leave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) sequence: u32,
    pub(crate) cause: Cause,
    /// The window is full with it: the peer should not hold back its acknowledgement.
    pub(crate) asks_ack: bool,
    /// Bytes that its header takes, SACK block included.
    pub(crate) header_bytes: usize,
}

/// Frames that are to leave together.
#[derive(Debug)]
pub(crate) struct Burst {
    planned: [Planned; BURST_FRAMES],
    len: usize,
}

impl Burst {
    pub(crate) const fn new() -> Self {
        let none =
            Planned { sequence: 0, cause: Cause::New, asks_ack: false, header_bytes: frame::HEADER_BYTES };
        Self { planned: [none; BURST_FRAMES], len: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn frames(&self) -> &[Planned] {
        &self.planned[..self.len]
    }

    pub(crate) fn frames_mut(&mut self) -> &mut [Planned] {
        &mut self.planned[..self.len]
    }

    fn push(&mut self, sequence: u32, cause: Cause) {
        self.planned[self.len] =
            Planned { sequence, cause, asks_ack: false, header_bytes: frame::HEADER_BYTES };
        self.len += 1;
    }
}

/// What an acknowledgement was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was taken, or is older than what is known.
    Fine,
    /// It acknowledges what was never sent, or gives credit it may not.
    Invalid,
}

/// The sending half of a session.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) pack: Pack,
    pub(crate) flight: Flight,
    /// All that there may be; the first [`Sender::used_paths`] have joined.
    pub(crate) paths: Box<[Path]>,
    pub(crate) used_paths: usize,
    /// Finds losses in place of the paths' RACK, if the configuration says so.
    counted: Option<Counted>,
    limits: Limits,
    make_controller: fn(&Limits) -> Box<dyn Controller>,
    mode: Mode,
    pub(crate) frame_bytes: u64,
    slots: u32,
    window_frames: u32,
    backlog_frames: u32,
    una: u32,
    pub(crate) next: u32,
    pub(crate) credit: u32,
    peer_window_frames: u32,
    pub(crate) receiver_cap_bytes: u64,
    /// When something was acknowledged last, or began to wait for it; and timeouts since, on whatever path.
    progress_ns: u64,
    pub(crate) timeouts: u32,
}

impl Sender {
    pub(crate) fn new(config: &Config, now_ns: u64) -> Self {
        let slots = u32::from(config.window_frames).next_power_of_two().max(64);
        let frame_bytes = config.max_frame_bytes as usize;
        let limits = Limits {
            frame_bytes: frame_bytes as u64,
            window_frames: u64::from(config.window_frames),
            rate: config.port_rate,
            noise_ns: config.noise_ns,
            mode: Mode::Selective,
        };
        let first = config.first_sequence;
        Self {
            pack: Pack::new(slots, frame_bytes, config.streams, first).alone(config.one_record_a_frame),
            flight: Flight::new(slots),
            paths: (0..config.paths as usize)
                .map(|index| Path::new(config, &limits, index, now_ns))
                .collect(),
            used_paths: 1,
            frame_bytes: limits.frame_bytes,
            counted: (config.detection != Detection::Rack).then(|| Counted::new(config.detection, first)),
            limits,
            make_controller: config.controller,
            mode: config.mode,
            slots,
            window_frames: u32::from(config.window_frames),
            backlog_frames: u32::from(config.backlog_frames),
            una: first,
            next: first,
            credit: first,
            peer_window_frames: 0,
            receiver_cap_bytes: u64::MAX,
            progress_ns: now_ns,
            timeouts: 0,
        }
    }

    /// What was agreed with the peer. Nothing has been sent yet.
    pub(crate) fn agree(&mut self, mode: Mode, frame_bytes: usize, peer_window_frames: u16) {
        self.mode = mode;
        self.pack.limit_frame_bytes(frame_bytes);
        self.frame_bytes = frame_bytes as u64;
        for path in &mut self.paths {
            path.recovery.set_mode(mode);
            if mode == Mode::Classic {
                path.controller = (self.make_controller)(&Limits { mode, ..self.limits });
            }
            path.controller.set_frame_bytes(frame_bytes as u64);
        }
        self.peer_window_frames = u32::from(peer_window_frames);
        self.credit = self.una.wrapping_add(self.peer_window_frames);
    }

    /// The sequence of the next new Data frame.
    pub(crate) fn next(&self) -> u32 {
        self.next
    }

    /// Frames not yet acknowledged, those not yet transmitted among them.
    pub(crate) fn unacked_frames(&self) -> u32 {
        self.pack.tail().wrapping_sub(self.una) + u32::from(self.pack.is_open())
    }

    /// Payload of the largest record that goes in unsplit; 0 if a record of any length might not go in.
    pub(crate) fn room(&self) -> usize {
        let tail = self.pack.tail();
        let unsent = if before(self.next, tail) { tail.wrapping_sub(self.next) } else { 0 };
        if unsent < self.backlog_frames { self.free_room() } else { 0 }
    }

    /// The same for a stream: one that has nothing waiting finds room behind a full backlog.
    pub(crate) fn room_for(&self, stream: u16) -> usize {
        match (self.pack.has_parts(stream), self.pack.is_clear(stream)) {
            (false, _) => 0,
            (true, true) => self.free_room(),
            (true, false) => self.room(),
        }
    }

    fn free_room(&self) -> usize {
        let free = self.window_frames.saturating_sub(self.pack.tail().wrapping_sub(self.una));
        if free > self.pack.slots_needed() { self.pack.room() } else { 0 }
    }

    /// Puts a record in; there has to be room.
    pub(crate) fn push(&mut self, kind: Kind, stream: u16, pieces: &Pieces<'_>) {
        debug_assert!(self.room_for(stream) >= HEADER_BYTES);
        self.pack.push(kind, stream, pieces, self.next);
        // The slot at `tail` is never that of `una`.
        debug_assert!(self.pack.tail().wrapping_sub(self.una) < self.slots);
    }

    /// Puts a record in whose data are written in place; there has to be room, and it fits unsplit.
    pub(crate) fn push_filled(
        &mut self,
        kind: Kind,
        stream: u16,
        head: &[u8],
        data: Range<usize>,
        total_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        debug_assert!(self.room_for(stream) != 0 && self.pack.fits(total_len));
        self.pack.push_filled(kind, stream, head, data, total_len, fill)
    }

    /// Whether the next frame is there but the peer's credit does not reach it.
    pub(crate) fn is_credit_blocked(&self) -> bool {
        self.has_new() && !before(self.next, self.credit)
    }

    /// Whether nothing is on its way whose acknowledgement could bring news.
    pub(crate) fn is_flight_empty(&self) -> bool {
        self.flight.total_bytes() == 0 && self.flight.first_lost().is_none()
    }

    fn has_new(&self) -> bool {
        self.next != self.pack.tail() || self.pack.is_open()
    }

    /// The windows in force, together, bytes.
    pub(crate) fn window_bytes(&self) -> u64 {
        let ups = self.joined().iter().filter(|path| path.health.is_up());
        let windows = ups.map(|path| path.controller.window_bytes());
        windows.fold(0, u64::saturating_add).min(self.receiver_cap_bytes)
    }

    fn wire_bytes(&self, sequence: u32) -> u32 {
        (frame::HEADER_BYTES + CHECK_BYTES) as u32 + u32::from(self.pack.body_bytes(sequence))
    }

    /// Chooses what may leave now on a path, at most so many frames. Nothing changes until [`Sender::commit`].
    pub(crate) fn plan(&mut self, now_ns: u64, (at, most): (usize, usize), burst: &mut Burst) {
        let path = &self.paths[at];
        let window = path.controller.window_bytes();
        let tail = self.pack.tail();
        let end = if self.pack.is_open() { tail.wrapping_add(1) } else { tail };
        let mut in_flight = self.flight.bytes(at);
        let mut in_all = self.flight.total_bytes();
        let mut pace = path.pace;
        let mut lost = self.flight.first_lost();
        let mut next = self.next;
        let (mut is_window_limited, mut is_pace_limited) = (false, false);
        while burst.len < most {
            let (sequence, cause) = match lost {
                Some(transmission) => (transmission.sequence, Cause::Lost),
                None if next != end && before(next, self.credit) => (next, Cause::New),
                None => break,
            };
            let bytes = self.wire_bytes(sequence);
            // By less than a frame beyond the window: a window of few frames would lose much by rounding down.
            if in_flight > 0 && in_flight >= window || in_all > 0 && in_all >= self.receiver_cap_bytes {
                is_window_limited = true;
                break;
            }
            if pace.at_ns > now_ns {
                is_pace_limited = true;
                break;
            }
            burst.push(sequence, cause);
            in_flight += u64::from(bytes);
            in_all += u64::from(bytes);
            pace = path.paced(pace, now_ns, bytes);
            match lost {
                Some(transmission) => lost = self.flight.lost_after(transmission),
                None => next = next.wrapping_add(1),
            }
        }
        if path.is_probe_due && burst.len == 0 {
            self.plan_probe(at, end, burst);
        }
        let path = &mut self.paths[at];
        path.is_window_limited = is_window_limited;
        path.is_pace_limited = is_pace_limited;
        // Probing waits for acknowledgements only if there is more to send than it lets out.
        let is_probing = path.controller.is_probing() && (is_window_limited || is_pace_limited);
        let planned = &mut burst.planned[..burst.len];
        for planned in planned.iter_mut() {
            planned.asks_ack = is_probing;
        }
        if let Some(last) = planned.last_mut() {
            // An acknowledgement is what opens the window, and what a pace of single frames goes by.
            let is_sparse = is_pace_limited && window < 4 * self.limits.frame_bytes;
            last.asks_ack |= is_window_limited || is_sparse || path.is_probe_due;
        }
    }

    /// A probe is new data if there is any, otherwise the newest frame again; in classic mode, whose receiver drops what
    /// is not next, the oldest.
    fn plan_probe(&self, at: usize, end: u32, burst: &mut Burst) {
        let again = match self.mode {
            Mode::Selective => self.flight.newest(at),
            Mode::Classic => self.flight.oldest(at),
        };
        if self.flight.first_lost().is_none() && self.next != end && before(self.next, self.credit) {
            burst.push(self.next, Cause::New);
        } else if let Some(again) = again {
            burst.push(again.sequence, Cause::Probe);
        }
    }

    /// When pacing lets out what it holds back, if anything.
    pub(crate) fn pace_deadline_ns(&self, now_ns: u64) -> Option<u64> {
        let waits = self.flight.first_lost().is_some() || (self.has_new() && before(self.next, self.credit));
        let is_held =
            |path: &&Path| path.pace.at_ns > now_ns && !path.is_window_limited && path.health.is_up();
        let held = self.joined().iter().filter(is_held);
        if waits { held.map(|path| path.pace.at_ns).min() } else { None }
    }

    /// A frame of the plan has left on the path, with `tx_ns` in its header: no two frames have the same, so that an echo names one
    /// transmission. Frames leave in the order of the plan.
    pub(crate) fn commit(
        &mut self,
        now_ns: u64,
        tx_ns: u64,
        at: usize,
        planned: &Planned,
        counters: &mut Counters,
    ) {
        let is_first = self.una == self.next;
        // What is lost on one of several paths is waited for on whichever it leaves again.
        let none_on_way = self.flight.is_empty(at);
        let is_fresh = self.is_multiple() && none_on_way && !self.paths[at].recovery.has_timed_out();
        let bytes = self.wire_bytes(planned.sequence);
        match planned.cause {
            Cause::New => {
                debug_assert_eq!(planned.sequence, self.next);
                self.pack.sent(planned.sequence);
                self.next = self.next.wrapping_add(1);
                counters.data_frames_sent += 1;
            }
            Cause::Lost => counters.retransmissions += 1,
            Cause::Probe => {
                counters.retransmissions += 1;
                counters.tail_probes += 1;
            }
        }
        if is_first {
            self.on_progress(now_ns);
        }
        self.flight.sent(at, planned.sequence, bytes, tx_ns);
        let path = &mut self.paths[at];
        path.recovery.on_sent(now_ns, is_first || is_fresh, none_on_way);
        path.on_sent(now_ns, bytes, self.flight.bytes(at));
    }

    fn on_progress(&mut self, now_ns: u64) {
        self.progress_ns = now_ns;
        self.timeouts = 0;
    }

    /// Whether nothing has been acknowledged for `limit_ns` in spite of several timeouts.
    pub(crate) fn is_exhausted(&self, now_ns: u64, limit_ns: u64) -> bool {
        self.timeouts >= 3 && now_ns.saturating_sub(self.progress_ns) >= limit_ns
    }

    /// Takes the acknowledging part of a frame that came on a path.
    pub(crate) fn on_ack(
        &mut self,
        now_ns: u64,
        at: usize,
        header: &frame::Header,
        counters: &mut Counters,
    ) -> Verdict {
        let Some(ack) = header.ack else { return Verdict::Fine };
        let is_old = before(ack.next, self.una);
        if is_old && !self.is_multiple() {
            return Verdict::Fine;
        }
        if before(self.next, ack.next) || ack.credit.wrapping_sub(ack.next) > self.peer_window_frames {
            return Verdict::Invalid;
        }
        if before(self.credit, ack.credit) {
            self.credit = ack.credit;
        }
        let cap_bytes = match ack.receiver_cap_bytes {
            u32::MAX => u64::MAX,
            bytes => u64::from(bytes),
        };
        if cap_bytes != self.receiver_cap_bytes && !is_old {
            self.receiver_cap_bytes = cap_bytes;
            self.share_cap();
        }
        let echo = header.echo.and_then(|echo| self.paths[at].on_echo(now_ns, echo, header.tx_ts_ns));
        let mut news = News { path: at, echo, ..News::default() };
        let first_unacked = self.una;
        // One that another path has overtaken still tells of its own path.
        let end = if is_old { self.una } else { ack.next };
        while self.una != end {
            self.arrive(now_ns, self.una, &mut news, counters);
            self.flight.release(self.una);
            self.pack.release(self.una);
            self.una = self.una.wrapping_add(1);
        }
        let mut verdict = Verdict::Fine;
        if let Some(sack) = header.sack.filter(|_| self.mode == Mode::Selective) {
            verdict = self.on_sack(now_ns, &sack, &mut news, counters);
        }
        if let Some(echo) = echo {
            self.paths[at].recovery.on_arrival(now_ns, echo.tx_ns);
            self.on_answer(now_ns, at, echo, counters);
            if self.mode == Mode::Classic && self.una == first_unacked {
                self.go_back(now_ns, echo.tx_ns, counters);
            }
        }
        if news.is_any {
            self.on_progress(now_ns);
            self.spread(now_ns, &news);
        }
        let congested = header.flags & frame::flag::CONGESTED != 0;
        self.paths[at].tell_controller(now_ns, echo, congested, self.flight.bytes(at));
        self.detect_lost(now_ns, counters);
        verdict
    }

    /// Tells each path what an acknowledgement brought for it.
    fn spread(&mut self, now_ns: u64, news: &News) {
        let joined = self.used_paths;
        for (at, (path, of)) in self.paths[..joined].iter_mut().zip(&news.paths).enumerate() {
            // What a path had on its way when its timer ran out may have been acknowledged on another.
            if of.bytes > 0 || self.flight.is_empty(at) {
                path.on_progress(now_ns, of.bytes);
            }
            if of.is_reordered {
                path.recovery.on_spurious();
            }
            if of.is_spurious && path.health.is_up() {
                path.controller.on_spurious(now_ns);
            }
        }
    }

    /// The timeout of the best path.
    pub(crate) fn timeout_ns(&self) -> u64 {
        let ups = self.joined().iter().filter(|path| path.health.is_up());
        ups.map(|path| path.recovery.timeout_ns()).min().unwrap_or(u64::MAX)
    }

    /// The smoothed round-trip time and the least one of the best path.
    pub(crate) fn best_rtt_ns(&self) -> (u64, u64) {
        let ups = self.joined().iter().filter(|path| path.health.is_up());
        let rtts = ups.map(|path| (path.recovery.rtt.smoothed_ns(), path.recovery.rtt.min_ns()));
        rtts.min().unwrap_or_default()
    }

    /// Takes the round-trip time of the handshake.
    pub(crate) fn hear_echo(&mut self, now_ns: u64, echo: frame::Echo, tx_ts_ns: u32) {
        self.paths[0].on_echo(now_ns, echo, tx_ts_ns);
    }

    fn on_sack(
        &mut self,
        now_ns: u64,
        sack: &frame::Sack,
        news: &mut News,
        counters: &mut Counters,
    ) -> Verdict {
        let mut verdict = Verdict::Fine;
        for (index, chunk) in sack.bitmap.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            let marked = u64::from_be_bytes(bytes).reverse_bits();
            if marked == 0 {
                continue;
            }
            let sequence = sack.base.wrapping_add(index as u32 * 64);
            let sent = mask_up_to(self.next.wrapping_sub(sequence).cast_signed());
            let known = mask_up_to(self.una.wrapping_sub(sequence).cast_signed());
            if marked & !sent != 0 {
                verdict = Verdict::Invalid;
            }
            let mut fresh = marked & sent & !known & !self.flight.arrived_word(sequence);
            while fresh != 0 {
                let arrived = sequence.wrapping_add(fresh.trailing_zeros());
                self.arrive(now_ns, arrived, news, counters);
                fresh &= fresh - 1;
            }
        }
        verdict
    }

    /// A frame has arrived at the peer, if that is news.
    fn arrive(&mut self, now_ns: u64, sequence: u32, news: &mut News, counters: &mut Counters) {
        let Some(transmission) = self.flight.arrive(sequence) else { return };
        let at = transmission.path as usize;
        let (path, of) = (&mut self.paths[at], &mut news.paths[at]);
        news.is_any = true;
        of.bytes += u64::from(transmission.bytes);
        if let Some(counted) = &mut self.counted {
            counted.on_arrival(sequence);
        }
        // Eifel (RFC 3522): the peer answers something that left before the retransmission, so it was an earlier
        // transmission of this frame that arrived. Without an echo, an answer that is too quick says the same. What
        // comes on another path than the retransmission's says nothing of the kind.
        let is_earlier = transmission.place == Place::Lost
            || transmission.given_up.is_some()
                && at == news.path
                && news.echo.map_or(now_ns < transmission.tx_ns + path.recovery.rtt.min_ns(), |echo| {
                    echo.tx_ns < transmission.tx_ns
                });
        if !is_earlier {
            path.recovery.on_arrival(now_ns, transmission.tx_ns);
        } else if transmission.given_up != Some(GivenUp::Probed) {
            of.is_spurious = true;
            of.is_reordered |= transmission.given_up == Some(GivenUp::Passed);
            counters.spurious += 1;
        }
    }

    fn detect_lost(&mut self, now_ns: u64, counters: &mut Counters) {
        for at in 0..self.used_paths {
            let mut losses = Losses::default();
            while let Some(sequence) = match &mut self.counted {
                None => self.paths[at].recovery.lost(now_ns, &self.flight),
                Some(counted) => counted.lost(self.una, self.next, &self.flight),
            } {
                self.lose(sequence, GivenUp::Passed, &mut losses, counters);
            }
            self.report_lost(now_ns, at, &losses);
        }
    }

    /// Classic mode: the peer has received something that left after the frame it waits for, so that one is lost and
    /// all that follow have been dropped.
    fn go_back(&mut self, now_ns: u64, echo_tx_ns: u64, counters: &mut Counters) {
        if self.una == self.next {
            return;
        }
        let first = *self.flight.of(self.una);
        if first.place != Place::Flight || first.tx_ns >= echo_tx_ns {
            return;
        }
        let losses = self.lose_all(0, GivenUp::Passed, counters);
        self.report_lost(now_ns, 0, &losses);
    }

    /// All that is on its way on a path is lost.
    pub(crate) fn lose_all(&mut self, at: usize, reason: GivenUp, counters: &mut Counters) -> Losses {
        let mut losses = Losses::default();
        // In the order of the sequences: an in-order receiver takes them in no other.
        let mut sequence = self.una;
        while sequence != self.next {
            let transmission = self.flight.of(sequence);
            if transmission.place == Place::Flight && transmission.path as usize == at {
                self.lose(sequence, reason, &mut losses, counters);
            }
            sequence = sequence.wrapping_add(1);
        }
        losses
    }

    fn lose(&mut self, sequence: u32, reason: GivenUp, losses: &mut Losses, counters: &mut Counters) {
        let transmission = self.flight.of(sequence);
        losses.newest_tx_ns = losses.newest_tx_ns.max(transmission.tx_ns);
        losses.bytes += u64::from(transmission.bytes);
        counters.lost += 1;
        self.paths[transmission.path as usize].health.on_loss();
        self.flight.lose(sequence, reason);
    }

    fn report_lost(&mut self, now_ns: u64, at: usize, losses: &Losses) {
        if losses.bytes > 0 {
            let path = &mut self.paths[at];
            path.controller.on_loss(&Lost {
                now_ns,
                bytes: losses.bytes,
                newest_tx_ns: losses.newest_tx_ns,
                rtt_ns: path.recovery.rtt.latest_ns(),
                min_rtt_ns: path.recovery.rtt.min_ns(),
                in_flight_bytes: self.flight.bytes(at),
            });
        }
    }

    /// Lets the timers run up to now.
    pub(crate) fn handle_timeout(&mut self, now_ns: u64, counters: &mut Counters) {
        self.detect_lost(now_ns, counters);
        for at in 0..self.used_paths {
            match self.paths[at].recovery.expire(now_ns, &self.flight) {
                Expired::Nothing => {}
                Expired::Probe => self.paths[at].is_probe_due = true,
                Expired::Timeout => {
                    counters.rtos += 1;
                    self.timeouts += 1;
                    self.lose_all(at, GivenUp::TimedOut, counters);
                    if let Some(counted) = &mut self.counted {
                        counted.on_timeout(self.next);
                    }
                    self.paths[at].controller.on_rto(now_ns);
                }
            }
        }
        if self.is_multiple() {
            self.judge_paths(now_ns, counters);
        }
    }

    /// When [`Sender::handle_timeout`] is to be called.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let paths = self.joined().iter().filter_map(|path| path.recovery.deadline_ns(&self.flight)).min();
        if !self.is_multiple() {
            return paths;
        }
        [paths, self.judgement_ns()].into_iter().flatten().min()
    }
}

/// Frames that are lost, found at one time.
#[derive(Debug, Default)]
pub(crate) struct Losses {
    bytes: u64,
    newest_tx_ns: u64,
}

/// What one acknowledgement brought.
#[derive(Debug, Default)]
struct News {
    /// The path it came on, and what it echoes of that.
    path: usize,
    echo: Option<Echo>,
    is_any: bool,
    paths: [PathNews; MAX_PATHS],
}

/// What it brought for a path.
#[derive(Debug, Default)]
struct PathNews {
    bytes: u64,
    is_spurious: bool,
    is_reordered: bool,
}

/// A word whose bits below `count` are set.
const fn mask_up_to(count: i32) -> u64 {
    match count {
        i32::MIN..=0 => 0,
        1..=63 => (1 << count) - 1,
        _ => u64::MAX,
    }
}
