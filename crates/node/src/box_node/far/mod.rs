//! What Functions of one host do with each other in different boxes (docs/wire.md 8, Box to box).
//!
//! A host says to a box what of its Functions lie in other boxes, and which Functions of other boxes may reach what it has here. For the
//! first there are *ways*, sessions that we begin; for the second *neighbours*, boxes that have begun one with us.

mod neighbour;
mod outlook;
mod way;

use std::fmt;

use etherslot_pci::TlpOut;
use etherslot_pci::hierarchy::far::FAR_BUS;
use etherslot_session::{Config as SessionConfig, DeadReason, Session, State as SessionState};
use etherslot_wire::boxes::Behind;
use etherslot_wire::control::{CloseReason, Message, feature};
use etherslot_wire::discovery::Port;
use etherslot_wire::frame::Header as FrameHeader;
use etherslot_wire::tlp::{Class, Header, Op};
use etherslot_wire::{FunctionId, NodeId};

use super::host::Host;
use crate::guard::{BoxGuard, GuardCounters, HostGuard, Keys, Protection, Security, destination};
use crate::out::{send_control, send_tlp};
use crate::random::Epochs;
use neighbour::Neighbour;
pub(super) use outlook::Outlook;
use way::{Around, News, Way};

/// Other boxes that we have a session with, of either kind.
const BOXES: usize = 32;
/// Tickets that a host may give.
pub(super) const TICKETS: usize = 256;

/// What a box has counted of its way to and from other boxes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FarCounters {
    /// Requests of our Functions handed to other boxes.
    pub requests_out: u64,
    /// Bytes of Posted ones.
    pub out_bytes: u64,
    /// Completions that came for them.
    pub completions: u64,
    /// Requests of other boxes' Functions.
    pub requests_in: u64,
    /// Of those: for an address that nothing decodes which they may reach.
    pub refused: u64,
    /// Requests with another Requester ID than that of the ticket.
    pub spoofed: u64,
    /// TLPs to our hosts that waited for what is before them to arrive in another box.
    pub held: u64,
    /// Requests of our Functions that found no way.
    pub no_way: u64,
    /// Functions reset because what they had written to another box may be lost.
    pub severed: u64,
    /// Functions of other boxes that came in.
    pub joins: u64,
    /// Joins without a ticket.
    pub no_ticket: u64,
    /// Joins with a ticket of another host.
    pub other_host: u64,
    /// Joins with a ticket of another epoch.
    pub other_epoch: u64,
    /// Joins of ours that were not admitted.
    pub not_admitted: u64,
    /// Nodes that are not who the host said they are.
    pub strangers: u64,
    /// What there was no room for: tickets, boxes, streams, reads.
    pub overflows: u64,
    /// Records that nothing takes.
    pub stray: u64,
    /// Sessions with other boxes that died.
    pub sessions_dead: u64,
}

/// How ports that hosts tell of are reached.
pub(super) type Places<A> = Box<dyn Fn(&Port) -> Vec<A>>;

/// All of a box's dealings with other boxes.
pub(super) struct Far<A> {
    places: Places<A>,
    /// Of sessions that we begin.
    config: SessionConfig,
    guard: Option<Box<HostGuard>>,
    ways: Vec<Way<A>>,
    neighbours: Vec<Neighbour<A>>,
    lives: u64,
    /// Ways and tickets are to be looked at.
    pub(super) is_moved: bool,
    is_closing: bool,
    pub(super) counters: FarCounters,
}

impl<A: Copy + Eq + fmt::Display> Far<A> {
    pub(super) fn new(config: &SessionConfig, places: Places<A>) -> Self {
        let config =
            SessionConfig { features: feature::JOINS, read_ahead: false, rdma: false, ..config.clone() };
        Self {
            places,
            config,
            guard: None,
            ways: Vec::new(),
            neighbours: Vec::new(),
            lives: 0,
            is_moved: false,
            is_closing: false,
            counters: FarCounters::default(),
        }
    }

    pub(super) fn protect(&mut self, security: Security) {
        self.guard = Some(Box::new(HostGuard::new(security)));
    }

    pub(super) fn guard_counters(&self) -> Option<GuardCounters> {
        self.guard.as_ref().map(|guard| guard.counters)
    }

    /// A number for an attachment that no other one has.
    pub(super) fn next_life(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    /// What a host says lies in another box. The box is there from now on.
    pub(super) fn reached(&mut self, now_ns: u64, behind: &Behind) {
        let addresses: Vec<A> = behind.ports.iter().flatten().flat_map(|port| (self.places)(port)).collect();
        if behind.node == self.config.node || addresses.is_empty() {
            self.counters.overflows += 1;
            return;
        }
        if let Some(way) = self.ways.iter_mut().find(|way| way.node == behind.node) {
            way.set_addresses(addresses);
        } else if self.ways.len() < BOXES {
            self.ways.push(Way::new(behind.node, addresses, now_ns));
        } else {
            self.counters.overflows += 1;
        }
    }

    /// Another box has begun a session. The one that it had is over.
    pub(super) fn accept(
        &mut self,
        from: A,
        session: Box<Session>,
        keys: Option<Keys>,
        hosts: &mut [Host<A>],
    ) {
        let node = session.peer().map(|hello| hello.node).unwrap_or_default();
        if let Some(earlier) = self.neighbours.iter().position(|neighbour| neighbour.node == node) {
            self.neighbours.swap_remove(earlier).end(hosts);
        }
        if self.neighbours.len() >= BOXES {
            tracing::warn!(from = %from, "no room for a session with a further box");
            self.counters.overflows += 1;
            return;
        }
        tracing::info!(from = %from, "session of another box up");
        self.neighbours.push(Neighbour::new(from, session, node, keys));
    }

    /// Whether a session that other boxes begun or that we have begun has this epoch.
    pub(super) fn is_taken(&self, epoch: u32) -> bool {
        self.neighbours.iter().any(|neighbour| neighbour.session.epoch() == epoch)
            || self.ways.iter().any(|way| way.is_for(epoch))
    }

    /// Takes a frame of a node with keys, if it is for a session with another box. True if it was.
    pub(super) fn receive_guarded(
        &mut self,
        box_guard: &mut BoxGuard<A>,
        now_ns: u64,
        from: &A,
        frame: &[u8],
        hosts: &mut [Host<A>],
    ) -> bool
    where
        A: std::hash::Hash,
    {
        if !etherslot_seal::is_protected(frame) {
            return false;
        }
        let epoch = destination(frame);
        let Self { guard, ways, neighbours, config, counters, .. } = self;
        if let Some(guard) = guard
            && let Some(way) = ways.iter_mut().find(|way| way.is_for(epoch))
        {
            way.receive_guarded(guard, config, now_ns, from, frame, (hosts, counters));
            return true;
        }
        let is_it = |one: &&mut Neighbour<A>| epoch != 0 && one.session.epoch() == epoch;
        if etherslot_wire::handshake::is_handshake(frame) {
            return false;
        }
        let Some(neighbour) = neighbours.iter_mut().find(is_it) else { return false };
        let Some(keys) = &mut neighbour.keys else { return false };
        if let Some((header, bytes)) = box_guard.open(keys, frame) {
            if !neighbour.take(now_ns, from, &header, &box_guard.room[..bytes], hosts, counters) {
                counters.stray += 1;
            }
        } else if keys.channel.opener.is_worn() {
            neighbour.session.close(CloseReason::Protocol);
        }
        true
    }

    /// Takes a frame that is whole, if it is for a session with another box. True if it was.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        from: &A,
        header: &FrameHeader,
        body: &[u8],
        hosts: &mut [Host<A>],
    ) -> bool {
        let Self { ways, neighbours, counters, .. } = self;
        if let Some(way) = ways.iter_mut().find(|way| way.is_for(header.dst_epoch)) {
            way.take(now_ns, from, header, body, hosts, counters);
            return true;
        }
        let neighbour = neighbours.iter_mut().find(|neighbour| neighbour.session.epoch() == header.dst_epoch);
        neighbour.is_some_and(|neighbour| neighbour.take(now_ns, from, header, body, hosts, counters))
    }

    /// Goes on with everything that can go on. Functions whose writes may be lost go to `severed`: the host's session, the slot, the
    /// attachment. True if something was done.
    pub(super) fn poll(
        &mut self,
        now_ns: u64,
        streams: u16,
        epochs: &mut Epochs,
        hosts: &mut [Host<A>],
        severed: &mut Vec<(u32, u8, u64)>,
    ) -> bool {
        let mut news = News { progress: std::mem::take(&mut self.is_moved), ..News::default() };
        if news.progress {
            self.look_around(now_ns, streams, hosts);
        }
        let mut around = Around {
            config: &self.config,
            epochs,
            guard: self.guard.as_deref_mut(),
            counters: &mut self.counters,
            is_closing: self.is_closing,
        };
        for way in &mut self.ways {
            way.poll(now_ns, &mut around, &mut news);
        }
        self.ways.retain(|way| !way.is_over() || hosts.iter().any(|host| host.leads_to(way.node)));
        self.is_moved |= news.moved;
        severed.append(&mut news.severed);
        for host in hosts.iter_mut().filter(|host| host.is_far) {
            let epoch = host.session.epoch();
            for (slot, outlook) in host.outlooks.iter_mut().enumerate() {
                if outlook
                    .stuck_until_ns(self.config.dead_after_ns)
                    .is_some_and(|until_ns| until_ns <= now_ns)
                {
                    // The Function has had its turn since, and asks no more.
                    outlook.unstick();
                }
                if std::mem::take(&mut outlook.has_lost) {
                    severed.push((epoch, slot as u8, outlook.life));
                }
            }
        }
        news.progress | self.poll_neighbours(now_ns, streams, hosts)
    }

    fn poll_neighbours(&mut self, now_ns: u64, streams: u16, hosts: &mut [Host<A>]) -> bool {
        let mut progress = false;
        let mut index = 0;
        while let Some(neighbour) = self.neighbours.get_mut(index) {
            if neighbour.session.deadline_ns().is_some_and(|at| at <= now_ns) {
                neighbour.session.handle_timeout(now_ns);
            }
            if let SessionState::Dead(reason) = neighbour.session.state() {
                if reason != DeadReason::PeerClosed(CloseReason::Shutdown) && !self.is_closing {
                    tracing::warn!(from = %neighbour.address, ?reason, "session of another box dead");
                    self.counters.sessions_dead += 1;
                }
                self.neighbours.swap_remove(index).end(hosts);
                progress = true;
                continue;
            }
            while let Some((stream, message)) = self.neighbours[index].next() {
                progress = true;
                if let Message::Join(join) = message {
                    let mut neighbour = self.neighbours.swap_remove(index);
                    let others = &self.neighbours;
                    let own: Vec<_> = hosts
                        .iter()
                        .map(|host| {
                            (host.session.epoch(), neighbour.ids(host.session.epoch()).collect::<Vec<_>>())
                        })
                        .collect();
                    let taken = |host: u32| -> Vec<FunctionId> {
                        let mine = own
                            .iter()
                            .filter(|(epoch, _)| *epoch == host)
                            .flat_map(|(_, ids)| ids.iter().copied());
                        others.iter().flat_map(|other| other.ids(host)).chain(mine).collect()
                    };
                    neighbour.join(&join, streams, hosts, &taken, &mut self.counters);
                    self.neighbours.push(neighbour);
                    let last = self.neighbours.len() - 1;
                    self.neighbours.swap(index, last);
                } else {
                    self.neighbours[index].heard(stream, message, hosts, &mut self.counters);
                }
            }
            progress |= self.neighbours[index].go_on(now_ns, hosts, &mut self.counters);
            index += 1;
        }
        progress
    }

    /// Brings ways and streams to what the hosts have said, and tells the hosts how that is.
    fn look_around(&mut self, now_ns: u64, streams: u16, hosts: &mut [Host<A>]) {
        for neighbour in &mut self.neighbours {
            neighbour.review(hosts);
        }
        for way in &mut self.ways {
            let node = way.node;
            way.retain(|life| {
                let mut outlooks = hosts.iter().flat_map(|host| &host.outlooks);
                outlooks.any(|outlook| {
                    outlook.life == life && life != 0 && outlook.nodes().any(|known| known == node)
                })
            });
        }
        for host in hosts {
            let (epoch, ticket) = (host.session.epoch(), (host.node, host.session.peer_epoch()));
            for (slot, outlook) in host.outlooks.iter_mut().enumerate() {
                if outlook.life == 0 {
                    continue;
                }
                let ticket = (ticket.0, ticket.1, outlook.stream);
                let (mut all, mut some) = (true, false);
                for node in outlook.nodes() {
                    let way = self.ways.iter_mut().find(|way| way.node == node);
                    all &= way.is_some_and(|way| {
                        let has_room = way.need(now_ns, (epoch, slot as u8, outlook.life), ticket, streams);
                        self.counters.overflows += u64::from(!has_room);
                        way.leads(outlook.life)
                    });
                    some = true;
                }
                if all {
                    outlook.unstick();
                }
                if (some || outlook.told.is_some()) && outlook.told != Some(all) {
                    outlook.told = Some(all);
                    host.answers.push_back((outlook.stream, Message::Reached { all }));
                }
            }
        }
    }

    /// Whether something that came by a stream of a host's session may not have arrived in another box.
    pub(super) fn is_awaited_by(&mut self, host: u32, stream: u16) -> bool {
        self.ways.iter_mut().any(|way| way.is_awaited_by(host, stream))
    }

    fn is_awaited(&mut self, life: u64, generation: u32) -> bool {
        self.ways.iter_mut().any(|way| way.is_awaited(life, generation))
    }

    /// Sends to a host what its Functions have held back, as far as it may go. True if something was sent.
    pub(super) fn release(&mut self, outlooks: &mut [Outlook], session: &mut Session) -> bool {
        let mut progress = false;
        for outlook in outlooks.iter_mut().filter(|outlook| !outlook.held.is_empty()) {
            while let Some(held) = outlook.held.front() {
                if self.is_awaited(outlook.life, held.generation) || session.room_for(outlook.stream) == 0 {
                    break;
                }
                let (header, data) = held.tlp();
                if !send_tlp(session, outlook.stream, header, data) {
                    break;
                }
                outlook.held.pop_front();
                progress = true;
            }
        }
        progress
    }

    /// Hands over all frames that may leave now.
    pub(super) fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        let mut progress = false;
        let has_keys = self.guard.is_some();
        for way in &mut self.ways {
            progress |= way.transmit(now_ns, has_keys, send);
        }
        for neighbour in &mut self.neighbours {
            let routes = &neighbour.routes;
            if let Some(keys) = &mut neighbour.keys {
                progress |= keys.transmit(now_ns, &mut neighbour.session, routes, send);
                continue;
            }
            progress |= neighbour.session.transmit_paths(now_ns, &mut |path, frames| {
                routes.address(path).map_or(0, |address| send(&address, frames))
            });
        }
        progress
    }

    pub(super) fn deadline_ns(&self, hosts: &[Host<A>]) -> Option<u64> {
        let neighbours = self.neighbours.iter().flat_map(|neighbour| {
            let is_waiting = neighbour.keys.as_ref().is_some_and(|keys| keys.is_waiting());
            [neighbour.session.deadline_ns(), is_waiting.then_some(0)]
        });
        let ways = self.ways.iter().map(Way::deadline_ns);
        let outlooks = hosts.iter().filter(|host| host.is_far).flat_map(|host| &host.outlooks);
        let stuck = outlooks.map(|outlook| outlook.stuck_until_ns(self.config.dead_after_ns));
        let moved = self.is_moved.then_some(0);
        neighbours.chain(ways).chain(stuck).chain([moved]).flatten().min()
    }

    pub(super) fn close(&mut self) {
        self.is_closing = true;
        self.ways.iter_mut().for_each(Way::close);
        self.neighbours.iter_mut().for_each(|neighbour| neighbour.session.close(CloseReason::Shutdown));
    }

    pub(super) fn is_closed(&self) -> bool {
        self.neighbours.is_empty() && self.ways.iter().all(|way| way.session().is_none())
    }

    /// The sessions with other boxes: whether we have begun it, where the other is, how it is protected.
    pub(super) fn sessions(&self) -> impl Iterator<Item = (bool, &A, &Session, Option<Protection>)> {
        let begun = |way| Way::session(way).map(|(at, session)| (true, at, session, way.protection()));
        let keys = |one: &Neighbour<A>| one.keys.as_ref().map(|keys| keys.protection());
        let neighbours = self.neighbours.iter();
        let taken = neighbours.map(move |one| (false, &one.address, &*one.session, keys(one)));
        self.ways.iter().filter_map(begun).chain(taken)
    }
}

/// The way upstream of a hierarchy: to its host, and to other boxes.
pub(super) struct Outward<'a, A> {
    pub(super) now_ns: u64,
    pub(super) session: &'a mut Session,
    pub(super) outlooks: &'a mut [Outlook],
    pub(super) far: &'a mut Far<A>,
}

impl<A: Copy + Eq + fmt::Display> TlpOut for Outward<'_, A> {
    fn room(&mut self, stream: u16) -> usize {
        self.session.room_for(stream)
    }

    fn room_to(&mut self, _stream: u16, requester: FunctionId) -> usize {
        let host = self.session.epoch();
        let mut neighbours = self.far.neighbours.iter();
        let found = neighbours.find_map(|one| Some(one.session.room_for(one.stream_of(host, requester)?.0)));
        // What nobody waits for any more goes away at once.
        found.unwrap_or(usize::MAX)
    }

    fn declare(&mut self, stream: u16, message: Message) -> bool {
        !self.session.has(feature::READ_AHEAD) || send_control(self.session, stream, message)
    }

    fn send(&mut self, stream: u16, header: &Header, data: &[u8]) -> bool {
        let address = match header.op {
            Op::Completion(completion) if completion.requester.bus() >= FAR_BUS => {
                return self.answer(header, completion.requester, data);
            }
            Op::MemRead(request) | Op::MemWrite(request) => Some(request.address),
            Op::Atomic { address, .. } => Some(address),
            _ => None,
        };
        let at = self.outlooks.iter().position(|outlook| outlook.stream == stream && outlook.is_far());
        let Some(at) = at else { return send_tlp(self.session, stream, header, data) };
        if self.outlooks[at].has_lost {
            // It is about to be reset, and must not tell of what is lost.
            return false;
        }
        match address.and_then(|address| self.outlooks[at].behind(address)) {
            Some(node) => self.hand_over(at, node, header, data),
            None => self.tell_host(at, stream, header, data),
        }
    }
}

impl<A: Copy + Eq + fmt::Display> Outward<'_, A> {
    /// A Completion for a Function of another box.
    fn answer(&mut self, header: &Header, requester: FunctionId, data: &[u8]) -> bool {
        let host = self.session.epoch();
        for one in &mut self.far.neighbours {
            let Some((stream, function)) = one.stream_of(host, requester) else { continue };
            let Op::Completion(mut completion) = header.op else { return true };
            completion.requester = function;
            let header = Header { op: Op::Completion(completion), ..*header };
            return one.session.room_for(stream) != 0 && send_tlp(&mut one.session, stream, &header, data);
        }
        true
    }

    /// A Request for what is in another box. While there is no way it waits, for as long as a silent peer is taken to live.
    fn hand_over(&mut self, at: usize, node: NodeId, header: &Header, data: &[u8]) -> bool {
        let outlook = &mut self.outlooks[at];
        let Far { ways, counters, config, .. } = &mut *self.far;
        let is_posted = header.class() == Class::Posted;
        let way = ways.iter_mut().find(|way| way.node == node && way.leads(outlook.life));
        let Some(way) = way else {
            let since_ns = *outlook.stuck_since_ns.get_or_insert(self.now_ns);
            if self.now_ns.saturating_sub(since_ns) < config.dead_after_ns {
                return false;
            }
            outlook.has_no_way = true;
            counters.no_way += 1;
            outlook.has_lost |= is_posted;
            return true;
        };
        let Some((session, stream)) = way.stream(outlook.life) else { return false };
        outlook.unstick();
        if session.room_for(stream) == 0 || !send_tlp(session, stream, header, data) {
            return false;
        }
        counters.requests_out += 1;
        if is_posted {
            counters.out_bytes += header.data_bytes() as u64;
            way.handed(stream, outlook.generation);
            outlook.is_waiting = true;
        }
        true
    }

    /// What goes to the host goes behind all that was handed to other boxes, when that has arrived; but for Requests that ask it for something,
    /// which tell it nothing.
    fn tell_host(&mut self, at: usize, stream: u16, header: &Header, data: &[u8]) -> bool {
        let outlook = &mut self.outlooks[at];
        if outlook.held.is_empty() {
            if outlook.is_waiting {
                outlook.is_waiting = self.far.is_awaited(outlook.life, outlook.generation);
            }
            if !outlook.is_waiting || header.class() == Class::NonPosted {
                return send_tlp(self.session, stream, header, data);
            }
        }
        let held = outlook.hold(header, data);
        self.far.counters.held += u64::from(held);
        held
    }
}
