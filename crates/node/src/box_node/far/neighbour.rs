//! Another box whose Functions come to ours: a session whose passive side we are.

use std::collections::VecDeque;

use etherslot_pci::hierarchy::far::{FAR_BUS, Heard};
use etherslot_session::{Deliver, Routes, Session};
use etherslot_wire::boxes::{Admit, Join};
use etherslot_wire::control::{AttachStatus, CONTROL_STREAM, Message};
use etherslot_wire::record::Kind;
use etherslot_wire::tlp::{Class, Header, MemRequest, Op};
use etherslot_wire::{FunctionId, NodeId};

use crate::box_node::host::{CONTROL_BACKLOG, Host};
use crate::guard::Keys;
use crate::out::{send_control, send_tlp};

use super::FarCounters;

/// Reads of one Function that wait for an answer; it has at most 1024 Tags.
const WAITING_READS: usize = 1024;

/// What a ticket leads to.
#[derive(Debug)]
struct Place {
    /// Our epoch of the session of the host whose ticket it is.
    host: u32,
    ticket: Admit,
    /// The Function's ID in that host's hierarchy here.
    id: FunctionId,
    /// Reads that are to be handed on.
    waiting: VecDeque<Header>,
}

/// A stream of the session.
#[derive(Debug)]
struct Joined {
    stream: u16,
    /// None: the ticket has ended, and the other box has not given the stream back.
    place: Option<Place>,
}

/// Another box.
pub(super) struct Neighbour<A> {
    /// Of a session with keys.
    pub(super) keys: Option<Box<Keys>>,
    /// Where it greeted from.
    pub(super) address: A,
    pub(super) routes: Routes<A>,
    pub(super) session: Box<Session>,
    pub(super) node: NodeId,
    joined: Vec<Joined>,
    asked: VecDeque<(u16, Message)>,
    answers: VecDeque<(u16, Message)>,
}

pub(super) struct Inbound<'a, A> {
    now_ns: u64,
    joined: &'a mut [Joined],
    asked: &'a mut VecDeque<(u16, Message)>,
    hosts: &'a mut [Host<A>],
    counters: &'a mut FarCounters,
}

/// The host whose session has this epoch.
fn host<A>(hosts: &mut [Host<A>], epoch: u32) -> Option<&mut Host<A>> {
    hosts.iter_mut().find(|host| host.session.epoch() == epoch)
}

/// The Request with another Requester ID.
fn renamed(header: &Header, requester: FunctionId) -> Option<Header> {
    let op = match header.op {
        Op::MemRead(request) => Op::MemRead(MemRequest { requester, ..request }),
        Op::MemWrite(request) => Op::MemWrite(MemRequest { requester, ..request }),
        _ => return None,
    };
    Some(Header { op, ..*header })
}

impl<A> Deliver for Inbound<'_, A> {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        match kind {
            Kind::Tlp => self.request(stream, payload),
            Kind::Control => match Message::parse(payload) {
                Some(message) if self.asked.len() < CONTROL_BACKLOG => {
                    self.asked.push_back((stream, message));
                }
                _ => self.counters.stray += 1,
            },
            Kind::Ahead | Kind::Ddp => self.counters.stray += 1,
        }
    }
}

impl<A> Inbound<'_, A> {
    /// A write takes effect at once, so that it has when it is acknowledged.
    fn request(&mut self, stream: u16, tlp: &[u8]) {
        let Self { now_ns, joined, hosts, counters, .. } = self;
        let joined = joined.iter_mut().find(|joined| joined.stream == stream);
        let Some(Place { host: epoch, ticket, id, waiting }) =
            joined.and_then(|joined| joined.place.as_mut())
        else {
            counters.stray += 1;
            return;
        };
        let parsed = Header::parse(tlp)
            .ok()
            .and_then(|(header, data)| Some((renamed(&header, *id)?, header.requester(), data)));
        let Some((header, requester, data)) = parsed else {
            counters.stray += 1;
            return;
        };
        if requester != ticket.function {
            counters.spoofed += 1;
            return;
        }
        counters.requests_in += 1;
        if header.class() == Class::NonPosted {
            if waiting.len() < WAITING_READS {
                waiting.push_back(header);
            } else {
                counters.overflows += 1;
            }
            return;
        }
        let heard =
            host(hosts, *epoch).map(|host| host.hierarchy.receive_far(*now_ns, ticket.domain, &header, data));
        counters.refused += u64::from(heard != Some(Heard::Taken));
    }
}

impl<A: Copy + Eq> Neighbour<A> {
    pub(super) fn new(address: A, session: Box<Session>, node: NodeId, keys: Option<Keys>) -> Self {
        Self {
            keys: keys.map(Box::new),
            address,
            routes: Routes::new(address),
            session,
            node,
            joined: Vec::new(),
            asked: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// The stream of the Function that has this ID in the hierarchy of a host, and its own ID.
    pub(super) fn stream_of(&self, host: u32, id: FunctionId) -> Option<(u16, FunctionId)> {
        self.joined.iter().find_map(|joined| {
            let place = joined.place.as_ref().filter(|place| place.host == host && place.id == id)?;
            Some((joined.stream, place.ticket.function))
        })
    }

    pub(super) fn ids(&self, host: u32) -> impl Iterator<Item = FunctionId> {
        self.joined
            .iter()
            .filter_map(move |joined| joined.place.as_ref().filter(|place| place.host == host))
            .map(|place| place.id)
    }

    /// Takes a frame of the session; false if it is none.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        from: &A,
        header: &etherslot_wire::frame::Header,
        body: &[u8],
        hosts: &mut [Host<A>],
        counters: &mut FarCounters,
    ) -> bool {
        let Some(path) = self.routes.path_or_join(&mut self.session, now_ns, from, header) else {
            return false;
        };
        let Self { joined, asked, session, .. } = self;
        let mut inbound = Inbound { now_ns, joined, asked, hosts, counters };
        session.handle_frame_on(now_ns, path, header, body, &mut inbound);
        true
    }

    /// Ends what the tickets that hosts have given do not say any more.
    pub(super) fn review(&mut self, hosts: &mut [Host<A>]) {
        for joined in &mut self.joined {
            let Some(place) = &joined.place else { continue };
            let host = host(hosts, place.host);
            if host.as_ref().is_some_and(|host| host.admitted.contains(&place.ticket)) {
                continue;
            }
            if let Some(host) = host {
                host.hierarchy.forget_far(place.id);
            }
            joined.place = None;
            self.answers.push_back((joined.stream, Message::Recall { window_ms: 0 }));
        }
    }

    /// The other box is gone.
    pub(super) fn end(&mut self, hosts: &mut [Host<A>]) {
        for place in self.joined.drain(..).filter_map(|joined| joined.place) {
            if let Some(host) = host(hosts, place.host) {
                host.hierarchy.forget_far(place.id);
            }
        }
    }

    /// What it asks for next, if there is room for the answer.
    pub(super) fn next(&mut self) -> Option<(u16, Message)> {
        if self.answers.len() < CONTROL_BACKLOG { self.asked.pop_front() } else { None }
    }

    /// A Function comes in, if its host has said so; `taken` are the IDs of those that have.
    pub(super) fn join(
        &mut self,
        join: &Join,
        streams: u16,
        hosts: &[Host<A>],
        taken: &dyn Fn(u32) -> Vec<FunctionId>,
        counters: &mut FarCounters,
    ) {
        let status =
            self.admit(join, streams, hosts, taken, counters).err().unwrap_or(AttachStatus::Attached);
        if status == AttachStatus::Attached {
            counters.joins += 1;
        }
        let port = FunctionId::default();
        self.answers.push_back((CONTROL_STREAM, Message::Attached { stream: join.stream, status, port }));
    }

    fn admit(
        &mut self,
        join: &Join,
        streams: u16,
        hosts: &[Host<A>],
        taken: &dyn Fn(u32) -> Vec<FunctionId>,
        counters: &mut FarCounters,
    ) -> Result<(), AttachStatus> {
        if join.stream >= streams || self.joined.iter().any(|joined| joined.stream == join.stream) {
            counters.overflows += 1;
            return Err(AttachStatus::NoRoom);
        }
        let fits = |ticket: &&Admit| ticket.node == self.node && ticket.stream == join.of_stream;
        let mut tickets = hosts
            .iter()
            .flat_map(|host| host.admitted.iter().filter(fits).map(move |ticket| (host, ticket)))
            .peekable();
        if tickets.peek().is_none() {
            counters.no_ticket += 1;
            return Err(AttachStatus::Unknown);
        }
        let mut tickets = tickets.filter(|(host, _)| host.node == join.host).peekable();
        if tickets.peek().is_none() {
            counters.other_host += 1;
            return Err(AttachStatus::Unknown);
        }
        let Some((host, ticket)) = tickets.find(|(_, ticket)| ticket.epoch == join.epoch) else {
            counters.other_epoch += 1;
            return Err(AttachStatus::Unknown);
        };
        let (host, ticket) = (host.session.epoch(), *ticket);
        // Twice would be two orders of one Function.
        if self
            .joined
            .iter()
            .filter_map(|joined| joined.place.as_ref())
            .any(|place| place.host == host && place.ticket == ticket)
        {
            counters.overflows += 1;
            return Err(AttachStatus::Busy);
        }
        let taken = taken(host);
        let mut free =
            (FAR_BUS..=u8::MAX).map(|bus| FunctionId::new(bus, 0, 0)).filter(|id| !taken.contains(id));
        let Some(id) = free.next() else {
            counters.overflows += 1;
            return Err(AttachStatus::NoRoom);
        };
        tracing::info!(from = ?self.node, function = %ticket.function, host = ?join.host, "a Function of another box reaches ours");
        self.joined.push(Joined {
            stream: join.stream,
            place: Some(Place { host, ticket, id, waiting: VecDeque::new() }),
        });
        Ok(())
    }

    /// Takes a message other than Join.
    pub(super) fn heard(
        &mut self,
        stream: u16,
        message: Message,
        hosts: &mut [Host<A>],
        counters: &mut FarCounters,
    ) {
        let at = self.joined.iter().position(|joined| joined.stream == stream);
        let (Message::Detach, Some(at)) = (message, at) else {
            counters.stray += 1;
            return;
        };
        if let Some(place) = self.joined.swap_remove(at).place
            && let Some(host) = host(hosts, place.host)
        {
            host.hierarchy.forget_far(place.id);
        }
        self.answers.push_back((stream, Message::Detached));
    }

    /// Hands on reads, and sends what waits. True if something was done.
    pub(super) fn go_on(&mut self, now_ns: u64, hosts: &mut [Host<A>], counters: &mut FarCounters) -> bool {
        let mut progress = false;
        for joined in &mut self.joined {
            let Some(Place { host: epoch, ticket, waiting, .. }) = &mut joined.place else { continue };
            while let Some(header) = waiting.front() {
                let heard = host(hosts, *epoch)
                    .map(|host| host.hierarchy.receive_far(now_ns, ticket.domain, header, &[]));
                match heard {
                    Some(Heard::Busy) => break,
                    Some(Heard::Taken) => {}
                    Some(Heard::Refused(Some(Header { op: Op::Completion(mut completion), .. }))) => {
                        completion.requester = ticket.function;
                        let header = Header { op: Op::Completion(completion), ..*header };
                        if self.session.room_for(joined.stream) == 0
                            || !send_tlp(&mut self.session, joined.stream, &header, &[])
                        {
                            break;
                        }
                        counters.refused += 1;
                    }
                    _ => counters.refused += 1,
                }
                waiting.pop_front();
                progress = true;
            }
        }
        while let Some(&(stream, message)) = self.answers.front() {
            if !send_control(&mut self.session, stream, message) {
                break;
            }
            self.answers.pop_front();
            progress = true;
        }
        progress
    }
}
