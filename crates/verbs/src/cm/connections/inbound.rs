//! What comes: messages, the loss of peers, and the time.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use etherslot_netio::Address;
use etherslot_rdma::PeerId;
use etherslot_wire::cm::{Message, Service, Space, Terms};

use super::{
    ANSWER_NS, ASK_NS, Binding, Connections, Entry, Event, Id, Kind, LAST_NS, LOOK_NS, PROTOCOL, Phase,
    Question, REASON_NO_ID, REASON_NO_QP, REASON_NO_ROOM, REASON_NOBODY, REASON_TIMEOUT, RESET, RETRY_NS,
    TAKEN_NS, TIMED_OUT, Ways,
};
use crate::place;

impl Connections {
    /// Takes a message of a peer's.
    pub fn message(&mut self, now_ns: u64, ways: &Ways, peer: PeerId, bytes: &[u8]) {
        let Some(message) = Message::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        match message {
            Message::Request { from, service, space, port, source_port, terms, private } => {
                let asks = (space, port, source_port);
                let refused = self.request(ways, peer, from, service, asks, terms, private);
                if let Err(reason) = refused {
                    self.counters.refused += 1;
                    self.send(peer, &Message::Reject { from: 0, to: from, reason, private: &[] });
                }
            }
            Message::Reply { from, to, terms, private } => {
                self.reply(now_ns, ways, peer, (from, to), terms, private);
            }
            Message::Established { from, to } => {
                let Some(id) = self.its(peer, from, to) else { return };
                match self.entry(id) {
                    Ok(entry) if entry.phase == Phase::Accepted => {
                        entry.phase = Phase::Connected;
                        entry.until_ns = u64::MAX;
                        self.tell(id, Kind::Established, 0);
                    }
                    _ => self.counters.stray += 1,
                }
            }
            Message::Reject { from, to, reason, private } => self.rejected(peer, (from, to), reason, private),
            Message::Disconnect { from, to } => {
                self.send(peer, &Message::Disconnected { from: to, to: from });
                let Some(id) = self.its(peer, from, to) else { return };
                self.ended(now_ns, ways, id);
            }
            Message::Disconnected { from, to } => {
                // Of an id that was destroyed meanwhile it tells nothing new.
                if let Some(id) = self.its(peer, from, to) {
                    self.disconnected(id, 0);
                }
            }
        }
    }

    /// The id that a message is for, if its other side has sent it.
    fn its(&mut self, peer: PeerId, from: u32, to: u32) -> Option<Id> {
        let id = Id(to);
        let is_its = self.peek(id).is_some_and(|entry| entry.peer == Some(peer) && entry.remote_id == from);
        if !is_its {
            self.counters.stray += 1;
        }
        is_its.then_some(id)
    }

    /// Whether a QP is one of a peer's.
    fn has_qp(ways: &Ways, peer: PeerId, qp: u32) -> Option<Ipv4Addr> {
        let address = ways.address(peer)?;
        let Address::Udp(SocketAddr::V4(at)) = address else { return None };
        (place::process(&place::gid(*at.ip()), qp) == Some(address)).then_some(*at.ip())
    }

    #[allow(clippy::too_many_arguments, reason = "it is what a Request says")]
    fn request(
        &mut self,
        ways: &Ways,
        peer: PeerId,
        from: u32,
        service: Service,
        (space, port, source_port): (Space, u16, u16),
        terms: Terms,
        private: &[u8],
    ) -> std::result::Result<(), u16> {
        let Some(&listener) = self.listeners.get(&(space, port)) else { return Err(REASON_NOBODY) };
        if self.children.contains_key(&(peer, from)) {
            self.counters.stray += 1;
            return Ok(());
        }
        let fits = match space {
            Space::Tcp => service != Service::Ud,
            Space::Udp => service == Service::Ud,
            Space::Ib => true,
        };
        if !fits {
            return Err(REASON_NOBODY);
        }
        // Datagrams say who they are from themselves.
        let ip =
            if service == Service::Ud { Self::node(ways, peer) } else { Self::has_qp(ways, peer, terms.qp) };
        let ip = ip.ok_or(REASON_NO_QP)?;
        let entry = self.entry(listener).map_err(|_| REASON_NOBODY)?;
        let Phase::Listening { backlog } = entry.phase else { return Err(REASON_NOBODY) };
        if entry.asked >= backlog {
            return Err(REASON_NO_ROOM);
        }
        let events = Arc::clone(&entry.events);
        let id = self.create(Arc::clone(&events), space, service).map_err(|_| REASON_NO_ROOM)?;
        self.children.insert((peer, from), id);
        let binding = Binding { ip: Some(self.ip), port };
        if let Ok(listener) = self.entry(listener) {
            listener.asked += 1;
        }
        let number = self.next_random() & 0xFF_FFFF;
        if let Ok(entry) = self.entry(id) {
            entry.binding = binding;
            entry.remote = Some(SocketAddrV4::new(ip, source_port));
            entry.peer = Some(peer);
            entry.remote_id = from;
            entry.theirs = terms;
            // What a program that says nothing else gets.
            entry.ours.terms = Terms {
                number,
                responder_resources: terms.initiator_depth,
                initiator_depth: terms.responder_resources,
                retries: terms.retries,
                ..Terms::default()
            };
            entry.phase = Phase::Asked { listener };
        }
        let private = private.to_vec();
        let listener = Some(listener);
        events.push(Event { id, listener, kind: Kind::ConnectRequest, status: 0, terms, private });
        Ok(())
    }

    fn node(ways: &Ways, peer: PeerId) -> Option<Ipv4Addr> {
        match ways.address(peer)? {
            Address::Udp(SocketAddr::V4(at)) => Some(*at.ip()),
            _ => None,
        }
    }

    fn reply(
        &mut self,
        now_ns: u64,
        ways: &Ways,
        peer: PeerId,
        (from, to): (u32, u32),
        terms: Terms,
        private: &[u8],
    ) {
        let id = Id(to);
        let is_its = |entry: &Entry| {
            entry.peer == Some(peer) && entry.phase == Phase::Requested && entry.remote_id == 0
        };
        let Some(entry) = self.entry(id).ok().filter(|entry| is_its(entry)) else {
            self.counters.stray += 1;
            // Who accepts is not to wait for somebody who is no more.
            return self
                .send(peer, &Message::Reject { from: to, to: from, reason: REASON_NO_ID, private: &[] });
        };
        entry.remote_id = from;
        entry.theirs = terms;
        let is_datagram = entry.service == Service::Ud;
        if Self::has_qp(ways, peer, terms.qp).is_none() {
            self.fail(id, Kind::ConnectError, PROTOCOL);
            let reason = REASON_NO_QP;
            return self.send(peer, &Message::Reject { from: to, to: from, reason, private: &[] });
        }
        entry.phase = if is_datagram { Phase::Connected } else { Phase::Answered };
        entry.until_ns = if is_datagram { u64::MAX } else { now_ns + ANSWER_NS };
        let kind = if is_datagram { Kind::Established } else { Kind::ConnectResponse };
        let event = Event { id, listener: None, kind, status: 0, terms, private: private.to_vec() };
        entry.events.push(event);
    }

    fn rejected(&mut self, peer: PeerId, (from, to): (u32, u32), reason: u16, private: &[u8]) {
        // A Request is taken back.
        let id = if to == 0 { self.children.get(&(peer, from)).copied() } else { Some(Id(to)) };
        let is_its = |entry: &&mut Entry| {
            entry.peer == Some(peer) && (entry.remote_id == from || entry.phase == Phase::Requested)
        };
        let Some((id, entry)) = id.and_then(|id| Some((id, self.entry(id).ok().filter(is_its)?))) else {
            self.counters.stray += 1;
            return;
        };
        match entry.phase {
            Phase::Requested | Phase::Accepted => {
                let (terms, private) = (Terms::default(), private.to_vec());
                let (kind, status) = (Kind::Rejected, i32::from(reason));
                let (events, event) =
                    (Arc::clone(&entry.events), Event { id, listener: None, kind, status, terms, private });
                self.end(id);
                events.push(event);
            }
            Phase::Asked { .. } => self.withdraw(id, RESET),
            _ => self.counters.stray += 1,
        }
    }

    /// Who asked is gone: a program that knows of it is told, another never hears of it.
    fn withdraw(&mut self, id: Id, status: i32) {
        let Some(entry) = self.peek(id) else { return };
        if entry.name == 0 {
            let events = Arc::clone(&entry.events);
            events.retain(|event| event.id != id);
            self.end(id);
            self.places[id.place()] = None;
            self.free.push_back(id.place());
        } else {
            self.fail(id, Kind::ConnectError, status);
        }
    }

    /// The other side has ended the connection. What it sent before came before; with InfiniBand a program has seen that long
    /// before it hears of the end, and some (libfabric's `ofi_rxm`) throw away with the QP what they have not taken yet.
    fn ended(&mut self, now_ns: u64, ways: &Ways, id: Id) {
        match self.entry(id) {
            Ok(entry) if entry.phase == Phase::Connected && Self::has_untaken(ways, entry) => {
                entry.phase = Phase::Ending { again_ns: now_ns + TAKEN_NS };
                entry.until_ns = now_ns + LAST_NS;
            }
            _ => self.disconnected(id, 0),
        }
    }

    /// Whether completions of our QP wait for the program.
    fn has_untaken(ways: &Ways, entry: &Entry) -> bool {
        ways.engine.has_completions(place::engine_number(entry.ours.terms.qp))
    }

    /// The connection is over.
    fn disconnected(&mut self, id: Id, status: i32) {
        let Some(phase) = self.peek(id).map(|entry| entry.phase) else { return };
        match phase {
            Phase::Connected | Phase::Disconnecting | Phase::Ending { .. } => {
                self.end(id);
                self.tell(id, Kind::Disconnected, status);
            }
            Phase::Answered | Phase::Accepted => self.fail(id, Kind::ConnectError, RESET),
            _ => self.counters.stray += 1,
        }
    }

    /// Looks which peers are gone.
    pub fn lose_peers(&mut self, now_ns: u64, ways: &mut Ways) {
        self.waiting.retain(|(peer, _)| ways.is_known(*peer));
        for id in self.ids().collect::<Vec<_>>() {
            let Some(entry) = self.peek(id) else { continue };
            let Some(peer) = entry.peer.filter(|&peer| !ways.is_known(peer)) else { continue };
            match entry.phase {
                // Perhaps another is there now, or none: that is to be said then.
                Phase::Requested if entry.until_ns > now_ns => {
                    let Ok(entry) = self.entry(id) else { continue };
                    entry.until_ns = entry.until_ns.min(now_ns + LOOK_NS);
                    self.look(now_ns, id);
                }
                Phase::Connected if entry.service != Service::Ud => self.ended(now_ns, ways, id),
                Phase::Disconnecting => self.disconnected(id, 0),
                Phase::Answered | Phase::Accepted => self.disconnected(id, RESET),
                Phase::Asked { .. } => self.withdraw(id, RESET),
                _ => {}
            }
            self.children.retain(|&(its, _), _| its != peer);
            if let Ok(entry) = self.entry(id)
                && entry.peer == Some(peer)
            {
                entry.peer = None;
            }
        }
    }

    /// Lets the timers run up to now, and sends what waits.
    pub fn run(&mut self, now_ns: u64, ways: &mut Ways) {
        for id in self.ids().collect::<Vec<_>>() {
            let Ok(entry) = self.entry(id) else { continue };
            if entry.until_ns <= now_ns {
                self.time_out(id);
                continue;
            }
            if let Phase::Ending { again_ns } = &mut entry.phase
                && *again_ns <= now_ns
            {
                *again_ns = now_ns + TAKEN_NS;
                if !Self::has_untaken(ways, entry) {
                    self.disconnected(id, 0);
                }
                continue;
            }
            let (space, remote) = (entry.space, entry.remote);
            if let (Phase::Looking { serial, again_ns, wait_ns, repeats, .. }, Some(remote)) =
                (&mut entry.phase, remote)
                && *again_ns <= now_ns
            {
                *wait_ns = (*wait_ns * 2).min(ASK_NS.1);
                *again_ns = now_ns + *wait_ns;
                *repeats = repeats.saturating_add(1);
                let (serial, repeats) = (*serial, *repeats);
                let (ip, port) = (*remote.ip(), remote.port());
                self.questions.push_back(Question { serial, ip, space, port, repeats });
            }
        }
        // In the order of each peer.
        let mut blocked: Vec<PeerId> = Vec::new();
        let Self { waiting, counters, .. } = self;
        waiting.retain(|(peer, bytes)| {
            if !ways.is_known(*peer) {
                counters.unsent += 1;
                return false;
            }
            let sent = !blocked.contains(peer) && ways.send_message(*peer, bytes);
            if !sent && !blocked.contains(peer) {
                blocked.push(*peer);
            }
            !sent
        });
    }

    fn time_out(&mut self, id: Id) {
        let Some(entry) = self.peek(id) else { return };
        let (peer, from, to) = (entry.peer, id.0, entry.remote_id);
        let reason = REASON_TIMEOUT;
        match (entry.phase, peer) {
            (Phase::Requested, Some(peer)) => {
                self.send(peer, &Message::Reject { from, to: 0, reason, private: &[] });
            }
            (Phase::Answered, Some(peer)) => {
                self.send(peer, &Message::Reject { from, to, reason, private: &[] });
            }
            (Phase::Accepted, Some(peer)) => self.send(peer, &Message::Disconnect { from, to }),
            (Phase::Disconnecting | Phase::Ending { .. }, _) => return self.disconnected(id, 0),
            _ => {}
        }
        self.fail(id, Kind::Unreachable, TIMED_OUT);
    }

    /// When [`Connections::run`] is to be called.
    pub fn deadline_ns(&self, now_ns: u64) -> u64 {
        let of = |id: Id| {
            let entry = self.peek(id)?;
            let again_ns = match entry.phase {
                Phase::Looking { again_ns, .. } | Phase::Ending { again_ns } => again_ns,
                _ => u64::MAX,
            };
            Some(entry.until_ns.min(again_ns))
        };
        let retry_ns = if self.waiting.is_empty() { u64::MAX } else { now_ns + RETRY_NS };
        self.ids().filter_map(of).min().unwrap_or(u64::MAX).min(retry_ns)
    }
}
