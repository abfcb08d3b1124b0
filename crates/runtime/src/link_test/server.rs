//! The end that a link test is made with: counts what comes, sends pings back, sends bulk when it is asked to.

use std::collections::VecDeque;
use std::fmt;

use etherslot_session::{CloseReason, Config, Deliver, Heard, Listener, Routes, Session, State, parse_frame};
use etherslot_wire::control::CONTROL_STREAM;
use etherslot_wire::frame::{Kind as FrameKind, MIN_FRAME_BYTES};
use etherslot_wire::record::{Kind, MAX_PAYLOAD_BYTES};

use super::FILLER;
use super::message::{BULK_STREAM, MAX_BYTES, Message, PING_STREAM};

/// Tests at once.
const CLIENTS: usize = 8;
/// Pings of one client that wait to be sent back; further ones are lost.
const PINGS: usize = 4096;
/// Answers to one client that wait to be sent; further ones are lost.
const ANSWERS: usize = 16;
/// Replies to Hellos that wait to be sent.
const REPLIES: usize = 16;

#[derive(Debug)]
struct Client<A> {
    address: A,
    routes: Routes<A>,
    session: Box<Session>,
    inbox: Inbox,
}

/// What a client has sent, and what is owed to it.
#[derive(Debug)]
struct Inbox {
    now_ns: u64,
    has_begun: bool,
    received_bytes: u64,
    /// Bytes of the records that it wants.
    record_bytes: usize,
    pings: VecDeque<[u8; 8]>,
    answers: VecDeque<Message>,
}

impl Inbox {
    fn answer(&mut self, message: Message) {
        if self.answers.len() < ANSWERS {
            self.answers.push_back(message);
        }
    }
}

impl Deliver for Inbox {
    fn record(&mut self, kind: Kind, stream: u16, payload: &[u8]) {
        match (kind, stream) {
            (Kind::Tlp, BULK_STREAM) => self.received_bytes += payload.len() as u64,
            (Kind::Tlp, PING_STREAM) => {
                if let Ok(ping) = payload.try_into()
                    && self.pings.len() < PINGS
                {
                    self.pings.push_back(ping);
                }
            }
            (Kind::Control, CONTROL_STREAM) => match Message::parse(payload) {
                Some(Message::Begin) => {
                    self.has_begun = true;
                    self.answer(Message::Ready);
                }
                Some(Message::Load { record_bytes }) => {
                    self.record_bytes = (record_bytes as usize).min(MAX_PAYLOAD_BYTES);
                }
                Some(Message::Mark { number }) => {
                    let (now_ns, bytes) = (self.now_ns, self.received_bytes);
                    self.answer(Message::Marked { number, now_ns, bytes });
                }
                _ => {}
            },
            _ => {}
        }
    }
}

#[derive(Debug)]
struct Reply<A> {
    to: A,
    bytes: [u8; MIN_FRAME_BYTES],
    length: usize,
}

/// The serving end of link tests.
pub(crate) struct Server<A> {
    listener: Listener<A>,
    fresh_epoch: fn() -> u32,
    clients: Vec<Client<A>>,
    replies: VecDeque<Reply<A>>,
}

impl<A: Copy + Eq + fmt::Display> Server<A> {
    /// A server whose sessions are set up so. `fresh_epoch` makes random numbers, not 0.
    pub(crate) fn new(config: &Config, fresh_epoch: fn() -> u32) -> Self {
        Self { listener: Listener::new(config), fresh_epoch, clients: Vec::new(), replies: VecDeque::new() }
    }

    /// Takes a frame that came from `from`.
    pub(crate) fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        let Ok((header, body)) = parse_frame(frame) else { return };
        let taken = self.clients.iter_mut().filter(|client| client.session.epoch() == header.dst_epoch).any(
            |Client { routes, session, inbox, .. }| {
                let path = routes.path_or_join(session, now_ns, from, &header);
                if let Some(path) = path {
                    inbox.now_ns = now_ns;
                    session.handle_frame_on(now_ns, path, &header, body, inbox);
                }
                path.is_some()
            },
        );
        if !taken && header.kind == FrameKind::Hello {
            let mut bytes = [0; MIN_FRAME_BYTES];
            let epoch = (self.fresh_epoch)();
            match self.listener.handle_hello(now_ns, *from, &header, body, epoch, &mut bytes) {
                Heard::Reply(length) if self.replies.len() < REPLIES => {
                    self.replies.push_back(Reply { to: *from, bytes, length });
                }
                Heard::Accept(session) => self.accept(now_ns, *from, session),
                _ => {}
            }
        }
    }

    /// One test an address: what an earlier one of it was, is over.
    fn accept(&mut self, now_ns: u64, from: A, session: Box<Session>) {
        self.clients.retain(|client| client.address != from);
        if self.clients.len() >= CLIENTS {
            tracing::warn!(peer = %from, "no room for a further test");
            return;
        }
        tracing::info!(peer = %from, "test begins");
        let inbox = Inbox {
            now_ns,
            has_begun: false,
            received_bytes: 0,
            record_bytes: 0,
            pings: VecDeque::new(),
            answers: VecDeque::new(),
        };
        self.clients.push(Client { address: from, routes: Routes::new(from), session, inbox });
    }

    /// Goes on with everything that can go on; `over` hears of every session that has ended. True if something was done.
    pub(crate) fn poll(&mut self, now_ns: u64, over: &mut dyn FnMut(&A, &Session)) -> bool {
        let mut progress = false;
        self.clients.retain_mut(|client| {
            if client.session.deadline_ns().is_some_and(|at| at <= now_ns) {
                client.session.handle_timeout(now_ns);
            }
            if let State::Dead(_) = client.session.state() {
                over(&client.address, &client.session);
                progress = true;
                return false;
            }
            progress |= client.go_on();
            true
        });
        progress
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    pub(crate) fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        let mut progress = false;
        while let Some(reply) = self.replies.front() {
            if send(&reply.to, &[&reply.bytes[..reply.length]]) == 0 {
                break;
            }
            self.replies.pop_front();
            progress = true;
        }
        for client in &mut self.clients {
            let routes = &client.routes;
            progress |= client.session.transmit_paths(now_ns, &mut |path, frames| {
                routes.address(path).map_or(0, |address| send(&address, frames))
            });
        }
        progress
    }

    /// When [`Server::poll`] should be called even if nothing happens.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.clients.iter().filter_map(|client| client.session.deadline_ns()).min()
    }

    /// Says goodbye to all clients; the frames leave by [`Server::transmit`].
    pub(crate) fn close(&mut self) {
        for client in &mut self.clients {
            client.session.close(CloseReason::Shutdown);
        }
    }
}

impl<A> Client<A> {
    fn go_on(&mut self) -> bool {
        let (session, inbox) = (&mut self.session, &mut self.inbox);
        let mut any = false;
        while let Some(message) = inbox.answers.front()
            && session.room_for(CONTROL_STREAM) != 0
        {
            let mut bytes = [0; MAX_BYTES];
            let length = message.emit(&mut bytes);
            if session.send(Kind::Control, CONTROL_STREAM, &bytes[..length], 0, &[], length).is_err() {
                break;
            }
            inbox.answers.pop_front();
            any = true;
        }
        while let Some(ping) = inbox.pings.front()
            && session.room_for(PING_STREAM) != 0
            && session.send(Kind::Tlp, PING_STREAM, ping, 0, &[], ping.len()).is_ok()
        {
            inbox.pings.pop_front();
            any = true;
        }
        let bytes = inbox.record_bytes;
        while inbox.has_begun
            && bytes != 0
            && session.room() != 0
            && session.send(Kind::Tlp, BULK_STREAM, &FILLER[..bytes], 0, &[], bytes).is_ok()
        {
            any = true;
        }
        any
    }
}
