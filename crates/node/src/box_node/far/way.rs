//! The way to another box, for Functions of ours: a session whose active side we are.

use std::collections::VecDeque;
use std::fmt;

use etherslot_session::{Config as SessionConfig, Deliver, PathId, Routes, Session, State as SessionState};
use etherslot_wire::NodeId;
use etherslot_wire::boxes::Join;
use etherslot_wire::control::{AttachStatus, CONTROL_STREAM, CloseReason, Message, feature};
use etherslot_wire::record::Kind;
use etherslot_wire::tlp::Header;

use crate::box_node::host::{CONTROL_BACKLOG, Host};
use crate::guard::{HostGuard, PeerKeys};
use crate::out::send_control;
use crate::random::Epochs;

use super::FarCounters;

/// After the loss of a session, the next attempt comes this much later.
const RECONNECT_NS: u64 = 50_000_000;
/// A ticket that was not there may be a moment later: it comes another way.
const REJOIN_NS: u64 = 10_000_000;

/// Where a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To be asked for, at this time.
    Due {
        at_ns: u64,
    },
    Asked,
    Up,
    /// To be given back; whether the other box has been told.
    Leaving {
        told: bool,
    },
}

/// One Function's stream of the session.
#[derive(Debug)]
struct Lane {
    /// The attachment it is for, and the slot.
    life: u64,
    slot: u8,
    /// Our epoch of the host's session.
    host: u32,
    /// Who the host is, its own epoch, and the Function's stream there.
    ticket: (NodeId, u32, u16),
    state: State,
    /// What was handed over and may not have arrived, by generation: how far the stream was.
    pending: VecDeque<(u32, u16)>,
}

/// Another box.
#[derive(Debug)]
pub(super) struct Way<A> {
    pub(super) node: NodeId,
    /// Where it may be reached; the first is tried next.
    addresses: Vec<A>,
    routes: Routes<A>,
    keys: PeerKeys,
    session: Option<Session>,
    is_up: bool,
    connect_at_ns: u64,
    /// Stream `n` belongs to the `n - 1`th.
    lanes: Vec<Option<Lane>>,
    control: VecDeque<(u16, Message)>,
}

/// What a way needs of its box.
pub(super) struct Around<'a> {
    pub(super) config: &'a SessionConfig,
    pub(super) epochs: &'a mut Epochs,
    pub(super) guard: Option<&'a mut HostGuard>,
    pub(super) counters: &'a mut FarCounters,
    pub(super) is_closing: bool,
}

/// What a poll of a way has found out.
#[derive(Debug, Default)]
pub(super) struct News {
    pub(super) progress: bool,
    /// Ways of Functions began or ended.
    pub(super) moved: bool,
    /// Functions whose Posted Requests are lost: the host's session, the slot, the attachment.
    pub(super) severed: Vec<(u32, u8, u64)>,
}

struct Inbound<'a, A> {
    now_ns: u64,
    lanes: &'a [Option<Lane>],
    hosts: &'a mut [Host<A>],
    control: &'a mut VecDeque<(u16, Message)>,
    counters: &'a mut FarCounters,
}

impl<A> Deliver for Inbound<'_, A> {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        match kind {
            Kind::Control => match Message::parse(payload) {
                Some(message) if self.control.len() < CONTROL_BACKLOG => {
                    self.control.push_back((stream, message));
                }
                _ => self.counters.stray += 1,
            },
            Kind::Tlp => {
                let lane = usize::from(stream).checked_sub(1).and_then(|at| self.lanes.get(at)?.as_ref());
                let lane = lane.filter(|lane| lane.state == State::Up);
                let host = lane.and_then(|lane| {
                    let host = self.hosts.iter_mut().find(|host| host.session.epoch() == lane.host)?;
                    (host.outlooks[usize::from(lane.slot)].life == lane.life).then_some((host, lane.slot))
                });
                let taken = match (host, Header::parse(payload)) {
                    (Some((host, slot)), Ok((header, data))) => {
                        host.hierarchy.receive_far_completion(self.now_ns, slot, &header, data)
                    }
                    _ => false,
                };
                *(if taken { &mut self.counters.completions } else { &mut self.counters.stray }) += 1;
            }
            Kind::Ahead | Kind::Ddp => self.counters.stray += 1,
        }
    }
}

impl Lane {
    /// Forgets what has arrived.
    fn settle(&mut self, session: Option<&Session>, stream: u16) {
        let has_arrived = |mark| session.is_none_or(|session| session.has_arrived(stream, mark));
        while self.pending.front().is_some_and(|&(_, mark)| has_arrived(mark)) {
            self.pending.pop_front();
        }
    }
}

impl<A: Copy + Eq + fmt::Display> Way<A> {
    pub(super) fn new(node: NodeId, addresses: Vec<A>, now_ns: u64) -> Self {
        Self {
            node,
            routes: Routes::new(addresses[0]),
            addresses,
            keys: PeerKeys::default(),
            session: None,
            is_up: false,
            connect_at_ns: now_ns,
            lanes: Vec::new(),
            control: VecDeque::new(),
        }
    }

    /// The host says where the box is. Counts from the next session on.
    pub(super) fn set_addresses(&mut self, addresses: Vec<A>) {
        if !self.is_up && addresses.iter().any(|address| !self.addresses.contains(address)) {
            self.addresses = addresses;
        }
    }

    /// Whether it can be forgotten: nobody uses it, and there is no session.
    pub(super) fn is_over(&self) -> bool {
        self.session.is_none() && self.keys.is_idle() && self.lanes.iter().all(Option::is_none)
    }

    pub(super) fn session(&self) -> Option<(&A, &Session)> {
        self.session.as_ref().map(|session| (&self.addresses[0], session))
    }

    pub(super) fn protection(&self) -> Option<crate::guard::Protection> {
        self.keys.protection()
    }

    fn lanes(&mut self) -> impl Iterator<Item = (u16, &mut Lane)> {
        let numbered = self.lanes.iter_mut().enumerate();
        numbered.filter_map(|(at, lane)| Some((at as u16 + 1, lane.as_mut()?)))
    }

    /// The Function of this attachment needs a stream, if it has none.
    pub(super) fn need(
        &mut self,
        now_ns: u64,
        (host, slot, life): (u32, u8, u64),
        ticket: (NodeId, u32, u16),
        streams: u16,
    ) -> bool {
        let is_it = |lane: &Lane| lane.life == life && !matches!(lane.state, State::Leaving { .. });
        if self.lanes.iter().flatten().any(is_it) {
            return true;
        }
        let at = self.lanes.iter().position(Option::is_none).unwrap_or(self.lanes.len());
        if at + 1 >= usize::from(streams) {
            return false;
        }
        if at == self.lanes.len() {
            self.lanes.push(None);
        }
        let state = State::Due { at_ns: now_ns };
        self.lanes[at] = Some(Lane { life, slot, host, ticket, state, pending: VecDeque::new() });
        true
    }

    /// Gives back the streams of those that need none any more.
    pub(super) fn retain(&mut self, is_needed: impl Fn(u64) -> bool) {
        for place in &mut self.lanes {
            let Some(lane) = place.as_mut().filter(|lane| !is_needed(lane.life)) else { continue };
            match lane.state {
                State::Due { .. } => *place = None,
                // Its answer tells that there is something to give back, if there is.
                State::Asked | State::Leaving { .. } => {}
                State::Up => lane.state = State::Leaving { told: false },
            }
        }
    }

    /// Whether requests of this attachment can go.
    pub(super) fn leads(&self, life: u64) -> bool {
        self.is_up && self.lanes.iter().flatten().any(|lane| lane.life == life && lane.state == State::Up)
    }

    /// The stream of an attachment, if it is up.
    pub(super) fn stream(&mut self, life: u64) -> Option<(&mut Session, u16)> {
        let at = self.lanes.iter().position(|lane| {
            lane.as_ref().is_some_and(|lane| lane.life == life && lane.state == State::Up)
        })?;
        Some((self.session.as_mut().filter(|_| self.is_up)?, at as u16 + 1))
    }

    /// Something Posted was handed over on a stream, of this generation.
    pub(super) fn handed(&mut self, stream: u16, generation: u32) {
        let Some(session) = &self.session else { return };
        let Some(lane) = self.lanes[usize::from(stream) - 1].as_mut() else { return };
        let mark = session.mark(stream);
        match lane.pending.back_mut() {
            Some(last) if last.0 == generation => last.1 = mark,
            _ => lane.pending.push_back((generation, mark)),
        }
    }

    /// Whether something that an attachment handed over, of this generation or before, may not have arrived.
    pub(super) fn is_awaited(&mut self, life: u64, generation: u32) -> bool {
        let session = self.session.as_ref();
        let lanes = self.lanes.iter_mut().enumerate();
        let mut lanes = lanes.filter_map(|(at, lane)| Some((at as u16 + 1, lane.as_mut()?)));
        lanes.any(|(stream, lane)| {
            lane.life == life && {
                lane.settle(session, stream);
                lane.pending
                    .front()
                    .is_some_and(|&(first, _)| generation.wrapping_sub(first).cast_signed() >= 0)
            }
        })
    }

    /// Whether something that came by this stream of a host's session may not have arrived.
    pub(super) fn is_awaited_by(&mut self, host: u32, of_stream: u16) -> bool {
        let session = self.session.as_ref();
        let lanes = self.lanes.iter_mut().enumerate();
        let mut lanes = lanes.filter_map(|(at, lane)| Some((at as u16 + 1, lane.as_mut()?)));
        lanes.any(|(stream, lane)| {
            lane.host == host && lane.ticket.2 == of_stream && {
                lane.settle(session, stream);
                !lane.pending.is_empty()
            }
        })
    }

    /// Whether a frame with this destination is for us.
    pub(super) fn is_for(&self, epoch: u32) -> bool {
        epoch != 0
            && (self.keys.awaits(epoch)
                || self.session.as_ref().is_some_and(|session| session.epoch() == epoch))
    }

    /// Takes a sealed frame, or one of a handshake, that is for us.
    pub(super) fn receive_guarded(
        &mut self,
        guard: &mut HostGuard,
        config: &SessionConfig,
        now_ns: u64,
        from: &A,
        frame: &[u8],
        (hosts, counters): (&mut [Host<A>], &mut FarCounters),
    ) {
        if etherslot_wire::handshake::is_handshake(frame) {
            if self.routes.path(from).is_some()
                && let Some(epoch) = self.keys.handle(guard, now_ns, frame)
            {
                self.session = Some(Session::connect(config, epoch, now_ns));
            }
            return;
        }
        if let Some((header, bytes)) = self.keys.open(guard, frame) {
            self.take(now_ns, from, &header, &guard.room[..bytes], hosts, counters);
        } else if self.keys.is_worn()
            && let Some(session) = &mut self.session
        {
            session.close(CloseReason::Protocol);
        }
    }

    /// Takes a frame of the session that is whole and, with keys, authentic.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        from: &A,
        header: &etherslot_wire::frame::Header,
        body: &[u8],
        hosts: &mut [Host<A>],
        counters: &mut FarCounters,
    ) {
        let (Some(path), Some(session)) = (self.routes.path(from), &mut self.session) else {
            counters.stray += 1;
            return;
        };
        let mut inbound = Inbound { now_ns, lanes: &self.lanes, hosts, control: &mut self.control, counters };
        session.handle_frame_on(now_ns, path, header, body, &mut inbound);
    }

    /// Goes on with everything that can go on.
    pub(super) fn poll(&mut self, now_ns: u64, around: &mut Around<'_>, news: &mut News) {
        self.connect(now_ns, around, news);
        let Some(session) = &mut self.session else { return };
        if session.deadline_ns().is_some_and(|at| at <= now_ns) {
            session.handle_timeout(now_ns);
        }
        match session.state() {
            SessionState::Up if !self.is_up => {
                let is_own = self.keys.protection().is_none_or(|known| known.peer.owns(&self.node));
                let is_it = is_own
                    && session.peer().is_some_and(|peer| peer.node == self.node)
                    && session.has(feature::JOINS);
                if !is_it {
                    tracing::warn!(address = %self.addresses[0], node = ?self.node, "another node than the host said, or one that does not join boxes");
                    around.counters.strangers += 1;
                    session.close(CloseReason::Refused);
                    return;
                }
                tracing::info!(address = %self.addresses[0], "session to another box up");
                self.is_up = true;
                for &further in &self.addresses[1..] {
                    self.routes.add(session, now_ns, further);
                }
                news.progress = true;
            }
            SessionState::Dead(reason) => {
                self.died(now_ns, reason, around, news);
                return;
            }
            _ => {}
        }
        if !self.is_up {
            return;
        }
        while let Some((stream, message)) = self.control.pop_front() {
            self.heard(now_ns, stream, message, around.counters, news);
            news.progress = true;
        }
        self.say(now_ns, news);
        if self.lanes.iter().all(Option::is_none)
            && let Some(session) = &mut self.session
        {
            session.close(CloseReason::Shutdown);
            self.is_up = false;
        }
    }

    fn connect(&mut self, now_ns: u64, around: &mut Around<'_>, news: &mut News) {
        let is_wanted = !around.is_closing && self.lanes.iter().any(Option::is_some);
        if self.session.is_some() {
            return;
        }
        let is_due = is_wanted && self.connect_at_ns <= now_ns;
        if let Some(guard) = &mut around.guard
            && !self.keys.is_idle()
        {
            if self.keys.handle_timeout(guard, now_ns) {
                self.addresses.rotate_left(1);
                self.connect_at_ns = now_ns + RECONNECT_NS;
            } else if !is_wanted {
                self.keys.clear();
            }
            return;
        }
        if !is_due {
            return;
        }
        match &mut around.guard {
            Some(guard) => self.keys.greet(guard, around.config, now_ns),
            None => self.session = Some(Session::connect(around.config, around.epochs.next(), now_ns)),
        }
        self.routes = Routes::new(self.addresses[0]);
        news.progress = true;
    }

    /// All Functions that had something on the way have lost it.
    fn died(
        &mut self,
        now_ns: u64,
        reason: etherslot_session::DeadReason,
        around: &mut Around<'_>,
        news: &mut News,
    ) {
        if self.is_up {
            tracing::warn!(address = %self.addresses[0], ?reason, "session to another box dead");
            around.counters.sessions_dead += 1;
        }
        let session = self.session.take();
        for (stream, lane) in self.lanes() {
            lane.settle(session.as_ref(), stream);
            if !lane.pending.is_empty() && !matches!(lane.state, State::Leaving { .. }) {
                news.severed.push((lane.host, lane.slot, lane.life));
            }
            lane.pending.clear();
        }
        for place in &mut self.lanes {
            match place {
                Some(Lane { state: State::Leaving { .. }, .. }) => *place = None,
                Some(lane) => lane.state = State::Due { at_ns: now_ns },
                None => {}
            }
        }
        self.addresses.rotate_left(1);
        self.keys.clear();
        self.control.clear();
        self.is_up = false;
        self.connect_at_ns = now_ns + RECONNECT_NS;
        (news.progress, news.moved) = (true, true);
    }

    fn heard(
        &mut self,
        now_ns: u64,
        stream: u16,
        message: Message,
        counters: &mut FarCounters,
        news: &mut News,
    ) {
        let on = match message {
            Message::Attached { stream: of, .. } if stream == CONTROL_STREAM => of,
            _ => stream,
        };
        let place = usize::from(on).checked_sub(1).and_then(|at| self.lanes.get_mut(at));
        let Some((place, state)) = place.and_then(|place| {
            let state = place.as_ref()?.state;
            Some((place, state))
        }) else {
            counters.stray += 1;
            return;
        };
        let next = match (message, state) {
            (Message::Attached { status: AttachStatus::Attached, .. }, State::Asked) => Some(State::Up),
            (Message::Attached { .. }, State::Asked) => {
                counters.not_admitted += 1;
                Some(State::Due { at_ns: now_ns + REJOIN_NS })
            }
            // The other box takes the ticket back. It may come again.
            (Message::Recall { window_ms: 0 }, State::Up) => Some(State::Leaving { told: false }),
            (Message::Recall { window_ms: 0 }, State::Asked | State::Leaving { .. }) => Some(state),
            (Message::Detached, State::Leaving { told: true }) => None,
            _ => {
                counters.stray += 1;
                return;
            }
        };
        match (next, place.as_mut()) {
            (Some(next), Some(lane)) => lane.state = next,
            _ => *place = None,
        }
        news.moved = true;
    }

    /// Asks for streams and gives them back.
    fn say(&mut self, now_ns: u64, news: &mut News) {
        let Some(session) = &mut self.session else { return };
        for (at, lane) in self.lanes.iter_mut().enumerate() {
            let Some(lane) = lane else { continue };
            let stream = at as u16 + 1;
            let (on, message, next) = match lane.state {
                State::Due { at_ns } if at_ns <= now_ns => {
                    let (host, epoch, of_stream) = lane.ticket;
                    (CONTROL_STREAM, Message::Join(Join { stream, host, epoch, of_stream }), State::Asked)
                }
                State::Leaving { told: false } => (stream, Message::Detach, State::Leaving { told: true }),
                _ => continue,
            };
            if !send_control(session, on, message) {
                break;
            }
            lane.state = next;
            news.progress = true;
        }
    }

    /// Hands over all frames that may leave now.
    pub(super) fn transmit(
        &mut self,
        now_ns: u64,
        has_keys: bool,
        send: &mut dyn FnMut(&A, &[&[u8]]) -> usize,
    ) -> bool {
        let mut progress = false;
        if has_keys && let Some(address) = self.routes.address(PathId::FIRST) {
            progress |= self.keys.transmit(now_ns, &mut |frame| send(&address, &[frame]) != 0);
        }
        let Some(session) = &mut self.session else { return progress };
        let routes = &self.routes;
        if let Some(keys) = self.keys.keys_mut() {
            return progress | keys.transmit(now_ns, session, routes, send);
        }
        progress
            | session.transmit_paths(now_ns, &mut |path, frames| {
                routes.address(path).map_or(0, |address| send(&address, frames))
            })
    }

    pub(super) fn deadline_ns(&self) -> Option<u64> {
        let lanes = self.lanes.iter().flatten();
        let due = lanes.filter_map(|lane| match lane.state {
            State::Due { at_ns } if self.is_up => Some(at_ns),
            _ => None,
        });
        let way = match &self.session {
            Some(session) => [session.deadline_ns(), self.keys.deadline_ns()].into_iter().flatten().min(),
            None if !self.keys.is_idle() => self.keys.deadline_ns(),
            None => self.lanes.iter().any(Option::is_some).then_some(self.connect_at_ns),
        };
        due.chain(way).min()
    }

    pub(super) fn close(&mut self) {
        match &mut self.session {
            Some(session) => session.close(CloseReason::Shutdown),
            None => self.keys.clear(),
        }
    }
}
