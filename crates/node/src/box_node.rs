//! The I/O box: Functions, and the sessions of the hosts that use them.

use std::collections::VecDeque;
use std::fmt;

use etherslot_pci::endpoint::Endpoint;
use etherslot_pci::function::ResetKind;
use etherslot_pci::hierarchy::Hierarchy;
use etherslot_session::{
    Config as SessionConfig, Deliver, Heard, Listener, Routes, Session, State as SessionState, parse_frame,
};
use etherslot_wire::FunctionId;
use etherslot_wire::control::{AttachStatus, CONTROL_STREAM, CloseReason, Message, Name};
use etherslot_wire::frame::{Header, Kind as FrameKind};
use etherslot_wire::record::Kind;

use crate::out::{Upstream, send_control};
use crate::random::Epochs;

/// Control messages of one session that wait to be handled or sent.
const CONTROL_BACKLOG: usize = 256;
/// Handshake replies that wait to be sent.
const REPLIES: usize = 16;
const REPLY_BYTES: usize = etherslot_wire::frame::MIN_FRAME_BYTES;

/// What a box has counted, beside its sessions and hierarchies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BoxCounters {
    /// Frames that are no frames, or were damaged.
    pub malformed_frames: u64,
    /// Frames of no session of ours: other epochs, other senders.
    pub foreign_frames: u64,
    /// Hellos that were not answered.
    pub hellos_dropped: u64,
    /// Records that nothing here takes.
    pub stray_records: u64,
    /// Sessions that came up.
    pub sessions_up: u64,
    /// Sessions that died.
    pub sessions_dead: u64,
}

/// How many hosts and slots a box has room for.
#[derive(Clone, Copy, Debug)]
pub struct BoxLimits {
    /// Sessions at once.
    pub sessions: usize,
}

impl Default for BoxLimits {
    fn default() -> Self {
        Self { sessions: 64 }
    }
}

struct Owned {
    name: Name,
    /// Absent while it is plugged into a session's hierarchy.
    endpoint: Option<Box<Endpoint>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attachment {
    function: usize,
    slot: u8,
    stream: u16,
}

struct Host<A> {
    /// Where it greeted from.
    address: A,
    routes: Routes<A>,
    session: Box<Session>,
    hierarchy: Hierarchy,
    attachments: Vec<Attachment>,
    asked: VecDeque<(u16, Message)>,
    answers: VecDeque<(u16, Message)>,
}

struct Reply<A> {
    to: A,
    bytes: [u8; REPLY_BYTES],
    length: usize,
}

/// An I/O box.
pub struct BoxNode<A: Copy + Eq> {
    limits: BoxLimits,
    /// Streams a session has.
    streams: u16,
    epochs: Epochs,
    listener: Listener<A>,
    hosts: Vec<Host<A>>,
    functions: Vec<Owned>,
    replies: VecDeque<Reply<A>>,
    counters: BoxCounters,
}

struct Inbound<'a> {
    now_ns: u64,
    hierarchy: &'a mut Hierarchy,
    asked: &'a mut VecDeque<(u16, Message)>,
    stray: &'a mut u64,
}

impl Deliver for Inbound<'_> {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        match kind {
            Kind::Tlp => self.hierarchy.receive(self.now_ns, stream, payload),
            Kind::Control => match Message::parse(payload) {
                Some(message) if self.asked.len() < CONTROL_BACKLOG => {
                    self.asked.push_back((stream, message));
                }
                _ => *self.stray += 1,
            },
            Kind::Ahead => self.hierarchy.receive_ahead(stream, payload),
            Kind::Ddp => *self.stray += 1,
        }
    }
}

/// The way upstream of a Function that no host has: there is none.
struct Nowhere;

impl etherslot_pci::TlpOut for Nowhere {
    fn room(&mut self, _stream: u16) -> usize {
        0
    }

    fn send(&mut self, _stream: u16, _header: &etherslot_wire::tlp::Header, _data: &[u8]) -> bool {
        false
    }
}

impl<A: Copy + Eq + fmt::Display> BoxNode<A> {
    /// A box with these Functions, whose names are unique; `seed` makes its epochs differ from those of its earlier
    /// lives.
    pub fn new(
        config: &SessionConfig,
        limits: BoxLimits,
        seed: u64,
        functions: Vec<(Name, Box<Endpoint>)>,
    ) -> Self {
        let functions =
            functions.into_iter().map(|(name, endpoint)| Owned { name, endpoint: Some(endpoint) });
        Self {
            limits,
            streams: config.streams,
            epochs: Epochs::new(seed),
            listener: Listener::new(config),
            hosts: Vec::new(),
            functions: functions.collect(),
            replies: VecDeque::with_capacity(REPLIES),
            counters: BoxCounters::default(),
        }
    }

    /// Takes a frame that came from `from`.
    pub fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        let Ok((header, body)) = parse_frame(frame) else {
            self.counters.malformed_frames += 1;
            return;
        };
        let mut at = None;
        for (index, host) in self.hosts.iter_mut().enumerate() {
            if host.session.epoch() == header.dst_epoch
                && let Some(path) = host.routes.path_or_join(&mut host.session, now_ns, from, &header)
            {
                at = Some((index, path));
                break;
            }
        }
        if let Some((index, path)) = at {
            let host = &mut self.hosts[index];
            let mut inbound = Inbound {
                now_ns,
                hierarchy: &mut host.hierarchy,
                asked: &mut host.asked,
                stray: &mut self.counters.stray_records,
            };
            host.session.handle_frame_on(now_ns, path, &header, body, &mut inbound);
        } else if header.kind == FrameKind::Hello {
            self.hello(now_ns, *from, &header, body);
        } else {
            self.counters.foreign_frames += 1;
        }
    }

    fn hello(&mut self, now_ns: u64, from: A, header: &Header, body: &[u8]) {
        let mut bytes = [0; REPLY_BYTES];
        match self.listener.handle_hello(now_ns, from, header, body, self.epochs.next(), &mut bytes) {
            Heard::Reply(length) if self.replies.len() < REPLIES => {
                self.replies.push_back(Reply { to: from, bytes, length });
            }
            Heard::Accept(session) => self.accept(from, session),
            _ => self.counters.hellos_dropped += 1,
        }
    }

    /// A host has proved that it lives now: an earlier session of the same node is over.
    fn accept(&mut self, from: A, session: Box<Session>) {
        let node = session.peer().map(|hello| hello.node);
        if let Some(earlier) =
            self.hosts.iter().position(|host| host.session.peer().map(|hello| hello.node) == node)
        {
            tracing::info!(host = %from, "host came back with a new epoch");
            self.drop_host(earlier);
        }
        if self.hosts.len() >= self.limits.sessions {
            tracing::warn!(host = %from, "no room for a further session");
            self.counters.hellos_dropped += 1;
            return;
        }
        tracing::info!(host = %from, "session up");
        self.counters.sessions_up += 1;
        let mut hierarchy = Hierarchy::new();
        // The slots of a host belong to guests with address spaces of their own: what is a BAR of one is memory of another.
        hierarchy.set_peer_to_peer(false);
        self.hosts.push(Host {
            address: from,
            routes: Routes::new(from),
            session,
            hierarchy,
            attachments: Vec::new(),
            asked: VecDeque::with_capacity(CONTROL_BACKLOG),
            answers: VecDeque::with_capacity(CONTROL_BACKLOG),
        });
    }

    fn drop_host(&mut self, index: usize) {
        let mut host = self.hosts.swap_remove(index);
        self.counters.sessions_dead += 1;
        for attachment in std::mem::take(&mut host.attachments) {
            give_back(&mut self.functions, &mut host.hierarchy, attachment);
        }
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        let mut progress = false;
        let mut index = 0;
        while let Some(host) = self.hosts.get_mut(index) {
            if host.session.deadline_ns().is_some_and(|at| at <= now_ns) {
                host.session.handle_timeout(now_ns);
            }
            if let SessionState::Dead(reason) = host.session.state() {
                tracing::warn!(host = %host.address, ?reason, "session dead");
                self.drop_host(index);
                progress = true;
                continue;
            }
            progress |= host.go_on(now_ns, self.streams, &mut self.functions);
            index += 1;
        }
        // What a Function without a host still has to finish, such as the writes of its medium under way.
        for function in &mut self.functions {
            if let Some(endpoint) = &mut function.endpoint {
                progress |= endpoint.poll(now_ns, &mut Nowhere, 0);
            }
        }
        progress
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        let mut progress = false;
        while let Some(reply) = self.replies.front() {
            if send(&reply.to, &[&reply.bytes[..reply.length]]) == 0 {
                break;
            }
            self.replies.pop_front();
            progress = true;
        }
        for host in &mut self.hosts {
            let routes = &host.routes;
            progress |= host.session.transmit_paths(now_ns, &mut |path, frames| {
                routes.address(path).map_or(0, |address| send(&address, frames))
            });
        }
        progress
    }

    /// When [`BoxNode::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let hosts =
            self.hosts.iter().flat_map(|host| [host.session.deadline_ns(), host.hierarchy.deadline_ns()]);
        let free = self
            .functions
            .iter()
            .filter_map(|function| function.endpoint.as_ref())
            .map(|free| free.deadline_ns());
        hosts.chain(free).flatten().min()
    }

    /// Says goodbye to all hosts; the frames leave by [`BoxNode::transmit`].
    pub fn close(&mut self) {
        for host in &mut self.hosts {
            host.session.close(CloseReason::Shutdown);
        }
    }

    /// What was counted.
    pub fn counters(&self) -> &BoxCounters {
        &self.counters
    }

    /// The sessions, their hosts' addresses and their hierarchies.
    pub fn hosts(&self) -> impl Iterator<Item = (&A, &Session, &Hierarchy)> {
        self.hosts.iter().map(|host| (&host.address, &*host.session, &host.hierarchy))
    }
}

fn give_back(functions: &mut [Owned], hierarchy: &mut Hierarchy, attachment: Attachment) {
    if let Some(mut endpoint) = hierarchy.unplug(attachment.slot) {
        endpoint.reset(ResetKind::Conventional);
        let function = &mut functions[attachment.function];
        tracing::info!(device = function.name.as_str(), "device given back");
        function.endpoint = Some(endpoint);
    }
}

impl<A> Host<A> {
    fn go_on(&mut self, now_ns: u64, streams: u16, functions: &mut [Owned]) -> bool {
        let mut progress = false;
        while self.answers.len() < CONTROL_BACKLOG
            && let Some((stream, message)) = self.asked.pop_front()
        {
            self.asked_for(stream, message, streams, functions);
            progress = true;
        }
        progress |= self.hierarchy.poll(now_ns, &mut Upstream(&mut self.session));
        while let Some(&(stream, message)) = self.answers.front() {
            if !send_control(&mut self.session, stream, message) {
                break;
            }
            self.answers.pop_front();
            progress = true;
        }
        progress
    }

    fn asked_for(&mut self, stream: u16, message: Message, streams: u16, functions: &mut [Owned]) {
        let attached = self.attachments.iter().position(|attachment| attachment.stream == stream);
        match (message, attached) {
            (Message::Attach { name, stream: wanted, max_payload_bytes, max_read_request_bytes }, _)
                if stream == CONTROL_STREAM =>
            {
                let limits = (max_payload_bytes, max_read_request_bytes);
                let outcome = if wanted == CONTROL_STREAM || wanted >= streams {
                    Err(AttachStatus::NoRoom)
                } else {
                    self.attach(name, wanted, limits, functions)
                };
                let (status, port) = match outcome {
                    Ok(port) => (AttachStatus::Attached, port),
                    Err(status) => (status, FunctionId::default()),
                };
                self.answers.push_back((CONTROL_STREAM, Message::Attached { stream: wanted, status, port }));
            }
            (Message::Detach, Some(index)) => {
                let attachment = self.attachments.swap_remove(index);
                give_back(functions, &mut self.hierarchy, attachment);
                self.answers.push_back((stream, Message::Detached));
            }
            (Message::HotReset, Some(index)) => {
                self.hierarchy.hot_reset(self.attachments[index].slot);
                self.answers.push_back((stream, Message::HotResetDone));
            }
            _ => tracing::warn!(stream, ?message, "control message out of place"),
        }
    }

    fn attach(
        &mut self,
        name: Name,
        stream: u16,
        (max_payload_bytes, max_read_request_bytes): (u16, u16),
        functions: &mut [Owned],
    ) -> Result<FunctionId, AttachStatus> {
        if self.attachments.iter().any(|attachment| attachment.stream == stream) {
            return Err(AttachStatus::NoRoom);
        }
        let function =
            functions.iter().position(|function| function.name == name).ok_or(AttachStatus::Unknown)?;
        let free = |slot: &u8| self.attachments.iter().all(|attachment| attachment.slot != *slot);
        let slot = (0..Hierarchy::SLOTS as u8).find(free).ok_or(AttachStatus::NoRoom)?;
        let mut endpoint = functions[function].endpoint.take().ok_or(AttachStatus::Busy)?;
        endpoint.attach(max_payload_bytes, max_read_request_bytes);
        let port = self.hierarchy.plug(slot, stream, endpoint);
        self.attachments.push(Attachment { function, slot, stream });
        tracing::info!(device = name.as_str(), %port, "device attached");
        Ok(port)
    }
}
