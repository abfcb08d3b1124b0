//! What programs ask for, on either side, and what desks answer.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use etherslot_netio::Address;
use etherslot_wire::cm::{
    Message, REJECT_PRIVATE_BYTES, REPLY_PRIVATE_BYTES, REQUEST_PRIVATE_BYTES, Says, Service, Space, Terms,
};

use super::{
    ANSWER_NS, ASK_NS, Binding, CmError, Connections, DISCONNECT_NS, Id, Kind, LOOK_NS, Phase, Question,
    REASON_CONSUMER, REASON_NOBODY, REASON_TIMEOUT, REFUSALS, Result, Setup, Ways,
};
use crate::place;

impl Connections {
    // --- Who asks ---

    /// Where the other side is to be.
    pub fn resolve_address(&mut self, id: Id, source: Option<Ipv4Addr>, remote: SocketAddrV4) -> Result<()> {
        let ip = self.ip;
        let space = self.peek(id).filter(|entry| entry.phase == Phase::Idle).ok_or(CmError::State)?.space;
        if source.is_some_and(|source| source != ip) {
            return Err(CmError::Address);
        }
        if self.entry(id)?.binding.port == 0 {
            let port = self.free_port(space).ok_or(CmError::NoRoom)?;
            self.bind(id, Binding { ip: Some(ip), port })?;
        }
        let entry = self.entry(id)?;
        entry.binding.ip = Some(ip);
        // This machine, which others know by another address.
        let node = if remote.ip().is_loopback() { ip } else { *remote.ip() };
        entry.remote = Some(SocketAddrV4::new(node, remote.port()));
        entry.phase = Phase::Resolved;
        self.tell(id, Kind::AddressResolved, 0);
        Ok(())
    }

    /// It cannot be reached: a negative number of an error.
    pub fn address_error(&mut self, id: Id, status: i32) -> Result<()> {
        self.peek(id).filter(|entry| entry.phase == Phase::Idle).ok_or(CmError::State)?;
        self.tell(id, Kind::AddressError, status);
        Ok(())
    }

    /// The way there: it is known with the address.
    pub fn resolve_route(&mut self, id: Id) -> Result<()> {
        let entry = self.entry(id)?;
        if entry.phase != Phase::Resolved {
            return Err(CmError::State);
        }
        entry.phase = Phase::Routed;
        self.tell(id, Kind::RouteResolved, 0);
        Ok(())
    }

    /// Asks for a connection, or for a QP that takes datagrams.
    pub fn connect(&mut self, now_ns: u64, id: Id, service: Service, mut setup: Setup) -> Result<()> {
        let most = REQUEST_PRIVATE_BYTES;
        let most = if service == Service::Ud { most.0 } else { most.1 };
        let number = self.next_random() & 0xFF_FFFF;
        let entry = self.entry(id)?;
        if entry.phase != Phase::Routed {
            return Err(CmError::State);
        }
        let fits = match entry.space {
            Space::Tcp => service != Service::Ud,
            Space::Udp => service == Service::Ud,
            Space::Ib => true,
        };
        if !fits || setup.private.len() > most {
            return Err(CmError::Value);
        }
        setup.terms.number = number;
        entry.service = service;
        entry.ours = setup;
        entry.until_ns = now_ns + LOOK_NS;
        self.look(now_ns, id);
        Ok(())
    }

    /// Asks which process the other side is.
    pub(super) fn look(&mut self, now_ns: u64, id: Id) {
        let serial = self.next_random();
        let Ok(entry) = self.entry(id) else { return };
        let Some(remote) = entry.remote else { return };
        let (space, (ip, port)) = (entry.space, (*remote.ip(), remote.port()));
        let wait_ns = ASK_NS.0;
        entry.peer = None;
        entry.phase = Phase::Looking { serial, refusals: 0, again_ns: now_ns + wait_ns, wait_ns, repeats: 0 };
        self.looking.insert(serial, id);
        self.questions.push_back(Question { serial, ip, space, port, repeats: 0 });
    }

    /// The next question to be asked.
    pub fn next_question(&mut self) -> Option<Question> {
        self.questions.pop_front()
    }

    /// Whether a question waits for its answer.
    pub fn is_looking(&self, serial: u32) -> bool {
        self.looking.contains_key(&serial)
    }

    /// A desk has answered. Nobody answers [`Says::Who`].
    pub fn answer(&mut self, now_ns: u64, ways: &mut Ways, serial: u32, says: Says) {
        let Some(&id) = self.looking.get(&serial) else { return };
        match says {
            Says::Slot(slot) if slot < place::SLOTS => {
                let Ok(entry) = self.entry(id) else { return };
                let Some(remote) = entry.remote else { return };
                let process = SocketAddrV4::new(*remote.ip(), place::port(slot));
                let Some(peer) = ways.peer(now_ns, Address::Udp(SocketAddr::V4(process))) else {
                    return self.fail(id, Kind::Unreachable, CmError::NoRoom.status());
                };
                let (service, space, terms) = (entry.service, entry.space, entry.ours.terms);
                let (port, source_port) = (remote.port(), entry.binding.port);
                let private = entry.ours.private.clone();
                entry.peer = Some(peer);
                entry.phase = Phase::Requested;
                entry.until_ns = now_ns + ANSWER_NS;
                let from = id.0;
                let private = &private;
                self.looking.remove(&serial);
                self.send(
                    peer,
                    &Message::Request { from, service, space, port, source_port, terms, private },
                );
            }
            Says::Nobody => self.refuse(serial),
            Says::Slot(_) | Says::Who => {}
        }
    }

    /// Nobody listens there, or nobody is at the desk.
    pub fn refuse(&mut self, serial: u32) {
        let Some(&id) = self.looking.get(&serial) else { return };
        let Ok(entry) = self.entry(id) else { return };
        let Phase::Looking { refusals, .. } = &mut entry.phase else { return };
        *refusals += 1;
        if *refusals >= REFUSALS {
            self.fail(id, Kind::Rejected, i32::from(REASON_NOBODY));
        }
    }

    /// The question cannot be asked: a negative number of an error.
    pub fn unreachable(&mut self, serial: u32, status: i32) {
        if let Some(&id) = self.looking.get(&serial) {
            self.fail(id, Kind::Unreachable, status);
        }
    }

    /// Our QP is ready.
    pub fn establish(&mut self, id: Id) -> Result<()> {
        let entry = self.entry(id)?;
        let (from, to) = (id.0, entry.remote_id);
        let (Phase::Answered, Some(peer)) = (entry.phase, entry.peer) else {
            return Err(if entry.phase == Phase::Over { CmError::Gone } else { CmError::State });
        };
        entry.phase = Phase::Connected;
        entry.until_ns = u64::MAX;
        self.send(peer, &Message::Established { from, to });
        Ok(())
    }

    // --- Who is asked ---

    /// What will be accepted, so that the QP can be made ready before it is said.
    pub fn agree(&mut self, id: Id, terms: &Terms) -> Result<()> {
        let entry = self.entry(id)?;
        if !matches!(entry.phase, Phase::Asked { .. }) {
            return Err(if entry.phase == Phase::Over { CmError::Gone } else { CmError::State });
        }
        entry.ours.terms = Terms { number: entry.ours.terms.number, ..*terms };
        Ok(())
    }

    /// Accepts a request.
    pub fn accept(&mut self, now_ns: u64, id: Id, mut setup: Setup) -> Result<()> {
        let entry = self.entry(id)?;
        let (Phase::Asked { listener }, Some(peer)) = (entry.phase, entry.peer) else {
            return Err(if entry.phase == Phase::Over { CmError::Gone } else { CmError::State });
        };
        let is_datagram = entry.service == Service::Ud;
        let most = if is_datagram { REPLY_PRIVATE_BYTES.0 } else { REPLY_PRIVATE_BYTES.1 };
        if setup.private.len() > most {
            return Err(CmError::Value);
        }
        if is_datagram {
            entry.phase = Phase::Over;
        } else {
            // Known since the request: a QP may be made ready before it is accepted.
            setup.terms.number = entry.ours.terms.number;
            entry.phase = Phase::Accepted;
            entry.until_ns = now_ns + ANSWER_NS;
        }
        entry.ours.terms = setup.terms;
        let (from, to) = (id.0, entry.remote_id);
        self.answered(listener);
        self.send(peer, &Message::Reply { from, to, terms: setup.terms, private: &setup.private });
        Ok(())
    }

    /// Refuses a request, or a Reply.
    pub fn reject(&mut self, id: Id, private: &[u8]) -> Result<()> {
        if private.len() > REJECT_PRIVATE_BYTES {
            return Err(CmError::Value);
        }
        let entry = self.entry(id)?;
        let is_its = matches!(entry.phase, Phase::Asked { .. } | Phase::Answered);
        let (true, Some(peer)) = (is_its, entry.peer) else {
            // Who is gone need not be told.
            return if entry.phase == Phase::Over { Ok(()) } else { Err(CmError::State) };
        };
        let (from, to) = (id.0, entry.remote_id);
        self.end(id);
        self.send(peer, &Message::Reject { from, to, reason: REASON_CONSUMER, private });
        Ok(())
    }

    /// A listener's request has been answered.
    pub(super) fn answered(&mut self, listener: Id) {
        if let Ok(listener) = self.entry(listener) {
            listener.asked -= 1;
        }
    }

    /// Whether a disconnect has been asked for, or told, already, or there is nothing to be ended.
    pub fn disconnect(&mut self, now_ns: u64, id: Id) -> Result<()> {
        let entry = self.entry(id)?;
        let (from, to) = (id.0, entry.remote_id);
        match (entry.phase, entry.peer) {
            (Phase::Connected | Phase::Answered | Phase::Accepted, Some(peer))
                if entry.service != Service::Ud =>
            {
                entry.phase = Phase::Disconnecting;
                entry.until_ns = now_ns + DISCONNECT_NS;
                self.send(peer, &Message::Disconnect { from, to });
                Ok(())
            }
            // It knows already, or will in a moment.
            (Phase::Disconnecting | Phase::Ending { .. } | Phase::Over, _) => Ok(()),
            _ => Err(CmError::State),
        }
    }

    /// Whether there will be another event of a connection that is to end.
    pub fn is_over(&self, id: Id) -> bool {
        self.peek(id)
            .is_none_or(|entry| entry.phase == Phase::Over && !entry.events.any(|event| event.id == id))
    }

    /// Forgets an id, tells its other side, and gives back the port that it had for itself.
    pub fn destroy(&mut self, id: Id) -> Result<Option<(Space, u16)>> {
        let entry = self.entry(id)?;
        let (phase, from, to) = (entry.phase, id.0, entry.remote_id);
        let (events, service) = (Arc::clone(&entry.events), entry.service);
        let mut orphans = Vec::new();
        events.retain(|event| {
            if event.listener == Some(id) {
                orphans.push(event.id);
            }
            event.id != id && event.listener != Some(id)
        });
        for orphan in orphans {
            let _ = self.destroy(orphan);
        }
        let peer = self.entry(id)?.peer;
        if let Some(peer) = peer {
            match phase {
                Phase::Requested => {
                    let reason = REASON_TIMEOUT;
                    self.send(peer, &Message::Reject { from, to: 0, reason, private: &[] });
                }
                Phase::Asked { .. } | Phase::Answered => {
                    self.send(peer, &Message::Reject { from, to, reason: REASON_CONSUMER, private: &[] });
                }
                Phase::Accepted | Phase::Connected if service != Service::Ud => {
                    self.send(peer, &Message::Disconnect { from, to });
                }
                _ => {}
            }
        }
        self.end(id);
        let Some(entry) = self.places[id.place()].take() else { return Err(CmError::State) };
        self.free.push_back(id.place());
        let key = (entry.space, entry.binding.port);
        if self.listeners.get(&key) == Some(&id) {
            self.listeners.remove(&key);
        }
        if !entry.owns_port {
            return Ok(None);
        }
        self.ports.remove(&key);
        Ok(Some(key))
    }
}
