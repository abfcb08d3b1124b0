//! A node as one of many: its heartbeats, its directory, its orders and those it takes.

use std::collections::VecDeque;

use crc32c::crc32c;
use etherslot_wire::discovery::{
    Device, HEADER_BYTES, Header, Heartbeat, Message, Order, Outcome, Port, Progress, Reason, Step,
};
use etherslot_wire::frame::{CHECK_BYTES, MAX_FRAME_BYTES};

use crate::announcer::{Announcer, Identity};
use crate::asker::{Asked, Asker};
use crate::directory::{Directory, DirectoryConfig, Known, Presence};
use crate::leases::{Key, Leases};
use crate::twin::Twin;

/// Frames that wait to be sent; more are dropped and counted.
const OUTBOX: usize = 1024;

/// An address in the terms of the node's links.
pub trait Place: Copy + Eq {
    /// Which of our links it is on.
    fn link(&self) -> usize;
    /// As others know it.
    fn port(&self) -> Option<Port>;
    /// What others know as `port`, on one of our links; `None` if that link does not lead to such an address.
    fn at(link: usize, port: Port) -> Option<Self>;
}

/// To whom heartbeats go on one link.
#[derive(Clone, Debug)]
pub enum To<A> {
    /// An address that everybody hears.
    Broadcast(A),
    /// These, and all that were heard on the link.
    List(Vec<A>),
}

/// What a member is.
#[derive(Clone, Debug)]
pub struct MemberConfig<A> {
    /// Who it is.
    pub identity: Identity,
    /// Between two heartbeats.
    pub interval_ns: u64,
    /// The largest frame that every link carries.
    pub frame_bytes: usize,
    /// How others are found silent.
    pub directory: DirectoryConfig,
    /// Where heartbeats go, link by link.
    pub to: Vec<To<A>>,
    /// Passes on what it hears to all that it has heard.
    pub is_rendezvous: bool,
    /// Takes orders from other nodes.
    pub takes_orders: bool,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that are none, or were damaged.
    pub malformed: u64,
    /// Heartbeats and other frames sent.
    pub sent: u64,
    /// Frames that found no room to wait.
    pub dropped: u64,
    /// Heartbeats passed on.
    pub relayed: u64,
    /// Orders that came, again and again counted each time.
    pub orders: u64,
    /// Of those: for another life of this box, dropped. Somebody repeats what was said before its start, or has not heard of it.
    pub orders_stale: u64,
    /// Heartbeats under our own ID and of another life: another node has it, too.
    pub doubles: u64,
}

/// A node of the fabric.
#[derive(Clone, Debug)]
pub struct Member<A> {
    announcer: Announcer,
    directory: Directory<A>,
    asker: Asker,
    to: Vec<To<A>>,
    /// Heard under our own ID.
    twin: Twin<A>,
    is_rendezvous: bool,
    takes_orders: bool,
    outbox: VecDeque<(A, Vec<u8>)>,
    counters: Counters,
}

impl<A: Place> Member<A> {
    /// A node that knows nobody yet.
    pub fn new(config: MemberConfig<A>) -> Self {
        let MemberConfig { identity, interval_ns, frame_bytes, directory, to, is_rendezvous, takes_orders } =
            config;
        Self {
            directory: Directory::new(identity.node, directory),
            announcer: Announcer::new(identity, interval_ns, frame_bytes),
            asker: Asker::default(),
            to,
            twin: Twin::NONE,
            is_rendezvous,
            takes_orders,
            outbox: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Who it is.
    pub fn identity(&self) -> &Identity {
        self.announcer.identity()
    }

    /// What it knows.
    pub fn directory(&self) -> &Directory<A> {
        &self.directory
    }

    /// What it knows, to take events from.
    pub fn directory_mut(&mut self) -> &mut Directory<A> {
        &mut self.directory
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Takes a frame of discovery that came from `from`. A box has `leases`.
    pub fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8], leases: Option<&mut Leases>) {
        let understood = self.take(now_ns, from, frame, leases);
        self.counters.malformed += u64::from(understood.is_none());
    }

    fn take(&mut self, now_ns: u64, from: &A, frame: &[u8], leases: Option<&mut Leases>) -> Option<()> {
        let (header, body) = Header::parse_checked(frame, crc32c).ok()?;
        match header.message {
            Message::Heartbeat => {
                let Identity { node, life, .. } = *self.identity();
                let heard = Heartbeat::parse(body)?;
                if header.node == node && header.life != life {
                    self.counters.doubles += 1;
                    self.twin.hear(now_ns, *from, heard.heartbeat.interval_ms);
                }
                self.directory.hear(now_ns, *from, true, &header, &heard);
                if self.is_rendezvous {
                    self.relay(from, &header, frame.get(..HEADER_BYTES + body.len() + CHECK_BYTES)?);
                }
            }
            Message::Relayed => {
                let (port, inner) = (Port::parse(body)?, body.get(Port::BYTES..)?);
                let (header, body) = Header::parse_checked(inner, crc32c).ok()?;
                let heard = Heartbeat::parse(body).filter(|_| header.message == Message::Heartbeat)?;
                let place = A::at(from.link(), port)?;
                self.directory.hear(now_ns, place, false, &header, &heard);
            }
            Message::Order => {
                let order = Order::parse(body)?;
                self.counters.orders += 1;
                let Some(leases) = leases.filter(|_| order.to == self.identity().node) else {
                    return Some(());
                };
                if order.life != self.identity().life {
                    self.counters.orders_stale += 1;
                    return Some(());
                }
                let key = Key { asker: header.node, life: header.life, number: order.number };
                let outcome = if self.takes_orders {
                    ordered(&self.directory, now_ns, key, &order, leases)
                } else {
                    refused(key)
                };
                self.post(*from, Message::Outcome, &mut |body| outcome.emit(body));
            }
            Message::Outcome => {
                let outcome = Outcome::parse(body)?;
                let Identity { node, life, .. } = self.identity();
                if (outcome.asker, outcome.asker_life) == (*node, *life) {
                    self.asker.hear(header.node, &outcome);
                }
            }
        }
        Some(())
    }

    /// Passes a heartbeat on to all that are there, but for its sender.
    fn relay(&mut self, from: &A, header: &Header, frame: &[u8]) {
        let Some(port) = from.port() else { return };
        let others = self
            .directory
            .nodes()
            .filter(|(node, known)| **node != header.node && known.presence == Presence::Up);
        let others: Vec<A> = others.filter_map(|(_, known)| Known::address(known)).collect();
        for to in others {
            self.counters.relayed += 1;
            self.post(to, Message::Relayed, &mut |body| {
                port.emit(body)?;
                body.get_mut(Port::BYTES..Port::BYTES + frame.len())?.copy_from_slice(frame);
                Some(Port::BYTES + frame.len())
            });
        }
    }

    fn post(&mut self, to: A, message: Message, body: &mut dyn FnMut(&mut [u8]) -> Option<usize>) {
        if self.outbox.len() >= OUTBOX {
            self.counters.dropped += 1;
            return;
        }
        let header = self.announcer.header(message);
        let mut frame = [0; MAX_FRAME_BYTES];
        let made = body(&mut frame[HEADER_BYTES..]).and_then(|bytes| header.emit(&mut frame, bytes, crc32c));
        if let Some(bytes) = made {
            self.outbox.push_back((to, frame[..bytes].to_vec()));
        }
    }

    /// The device at this place of the list has changed.
    pub fn changed(&mut self, now_ns: u64, device: usize) {
        self.announcer.changed(now_ns, device);
    }

    /// Has a box do something with a device; the order's number. The box may be this very node, with its `leases`. It is sent until it
    /// is answered, and for `patience_ns` at most.
    pub fn order(&mut self, now_ns: u64, patience_ns: u64, order: Order, leases: Option<&mut Leases>) -> u64 {
        let number = self.asker.ask(now_ns, patience_ns, order);
        self.ask(now_ns, leases);
        number
    }

    /// Whoever gave an order waits for it no longer: it is not sent again. A box that has begun ends what it has begun.
    pub fn withdraw(&mut self, now_ns: u64, number: u64) {
        self.asker.withdraw(now_ns, number);
    }

    /// What is known of an order.
    pub fn asked(&self, number: u64) -> Option<&Asked> {
        self.asker.get(number)
    }

    fn ask(&mut self, now_ns: u64, mut leases: Option<&mut Leases>) -> bool {
        let mut orders = Vec::new();
        self.asker.poll(now_ns, &mut |order| orders.push(*order));
        for order in &orders {
            let Identity { node, life, .. } = *self.identity();
            if order.to == node {
                if let Some(leases) = leases.as_deref_mut() {
                    let key = Key { asker: node, life, number: order.number };
                    let outcome = ordered(&self.directory, now_ns, key, order, leases);
                    self.asker.hear(node, &outcome);
                }
            } else if let Some(known) = self.directory.get(&order.to)
                && let Some(to) = known.address()
            {
                let order = Order { life: known.life, ..*order };
                self.post(to, Message::Order, &mut |body| order.emit(body));
            }
        }
        !orders.is_empty()
    }

    /// Goes on with everything that can go on. `devices` is the list that is told. True if something was done.
    pub fn poll(&mut self, now_ns: u64, devices: &[Device], leases: Option<&mut Leases>) -> bool {
        let is_due = self.announcer.deadline_ns() <= now_ns;
        let ears = if is_due { self.ears(now_ns) } else { Vec::new() };
        let Self { announcer, to, outbox, counters, .. } = self;
        let mut progress = announcer
            .poll(now_ns, devices, &mut |link, frame| spread(to, &ears, outbox, counters, link, frame));
        progress |= self.ask(now_ns, leases);
        progress | self.directory.poll(now_ns)
    }

    /// Addresses that were heard, where not everybody hears a broadcast.
    fn ears(&self, now_ns: u64) -> Vec<A> {
        if self.to.iter().all(|to| matches!(to, To::Broadcast(_))) {
            return Vec::new();
        }
        let known = self.directory.nodes().filter(|(_, known)| known.presence == Presence::Up);
        let heard = known.flat_map(|(_, known)| known.ears(now_ns));
        heard.chain(self.twin.address(now_ns)).collect()
    }

    /// Says goodbye; the frames leave by [`Member::transmit`].
    pub fn leave(&mut self, now_ns: u64) {
        let ears = self.ears(now_ns);
        let Self { announcer, to, outbox, counters, .. } = self;
        announcer.leave(now_ns, &mut |link, frame| spread(to, &ears, outbox, counters, link, frame));
    }

    /// Hands all frames that wait to `send`, which says whether it took one.
    pub fn transmit(&mut self, send: &mut dyn FnMut(&A, &[u8]) -> bool) -> bool {
        let mut progress = false;
        while let Some((to, frame)) = self.outbox.front() {
            if !send(to, frame) {
                break;
            }
            self.outbox.pop_front();
            self.counters.sent += 1;
            progress = true;
        }
        progress
    }

    /// Whether another node has this node's ID now.
    pub fn is_double(&self, now_ns: u64) -> bool {
        self.twin.is_there(now_ns)
    }

    /// When [`Member::poll`] has something to do.
    pub fn deadline_ns(&self, now_ns: u64) -> u64 {
        let others = [self.directory.deadline_ns(), self.asker.deadline_ns(now_ns)];
        others.into_iter().flatten().fold(self.announcer.deadline_ns(), u64::min)
    }
}

fn ordered<A: Copy + Eq>(
    directory: &Directory<A>,
    now_ns: u64,
    key: Key,
    order: &Order,
    leases: &mut Leases,
) -> Outcome {
    leases.order(now_ns, key, order, &|host| directory.get(&host).map(|known| known.presence))
}

fn refused(key: Key) -> Outcome {
    Outcome {
        asker: key.asker,
        asker_life: key.life,
        number: key.number,
        progress: Progress::Refused,
        step: Step::None,
        reason: Reason::NotPermitted,
        elapsed_ms: 0,
        epoch: 0,
        from: None,
        to: None,
    }
}

/// Puts a heartbeat into the outbox for all that are to hear it on a link; `ears`: those that were heard, on any.
fn spread<A: Place>(
    to: &[To<A>],
    ears: &[A],
    outbox: &mut VecDeque<(A, Vec<u8>)>,
    counters: &mut Counters,
    link: usize,
    frame: &[u8],
) {
    let mut put = |to: A| {
        if outbox.len() < OUTBOX {
            outbox.push_back((to, frame.to_vec()));
        } else {
            counters.dropped += 1;
        }
    };
    match to.get(link) {
        None => {}
        Some(To::Broadcast(all)) => put(*all),
        Some(To::List(list)) => {
            for &to in list {
                put(to);
            }
            let heard = ears.iter().copied();
            heard.filter(|to| to.link() == link && !list.contains(to)).for_each(put);
        }
    }
}
