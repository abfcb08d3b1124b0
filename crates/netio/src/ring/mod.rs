//! Rings of frames in shared memory, for nodes on one machine: no system call and no copy by a kernel.
//!
//! Ports of a *hub*, a folder, have numbers. The first frame to a port connects to its socket in the folder and hands over
//! memory with a ring in it; frames then go one way through that ring, each copied in once and out once, since memory that the
//! peer can change must not be looked at twice. The way back is a connection of its own. A ring that is full is
//! back-pressure. A peer that left is found by its flag or by the end of its socket; frames to it are lost and counted
//! until it is back.
//!
//! Who polls costs its peers no system call. An owner that sleeps has to say so by [`Port::before_sleep`]: peers wake only
//! those who did.
//!
//! Peers are not trusted with memory: whatever they write, they damage at most their own frames, and are cut off
//! ([`Counters::cut_off`]) when they write what cannot be. They are trusted as Ethernet trusts: whoever may open the folder (its
//! owner) can claim a number that nobody holds.

mod hub;
mod pace;
mod queue;
mod region;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{Timespec, epoll};

use crate::error::frame_bytes;
use crate::{Address, BURST_FRAMES, Counters, MAX_FRAME_BYTES, OpenError, Port};
use hub::{Offer, OfferError, Seat};
use queue::{Consumer, Producer, Violation};
use region::Region;

/// Peers that frames go to, and connections that frames come by, each.
const PEERS: usize = 64;
/// Between two tries to reach a peer that is not there.
const RETRY: Duration = Duration::from_millis(1);
/// The same for one that was cut off.
const CUT_OFF_RETRY: Duration = Duration::from_secs(1);
/// Between two looks at the sockets of a Port that is busy.
const LOOK_NS: u64 = 1_000_000;
/// Receives in vain between two looks at the sockets.
const LOOK_RECEIVES: u32 = 64;
/// Connections accepted at one look.
const ACCEPTS: usize = 4;
/// Between two log lines about peers.
const QUIET: Duration = Duration::from_secs(1);

/// How to open a [`RingPort`].
#[derive(Clone, Debug)]
pub struct RingConfig {
    /// The hub: a folder, made if need be.
    pub hub: PathBuf,
    /// The port's number in it.
    pub port: u32,
    /// The largest frame; none: 9216 bytes, the most that any Port takes.
    pub max_frame_bytes: Option<usize>,
    /// Bytes of each ring that this Port sends by: a power of two, 64 KiB to 64 MiB.
    pub ring_bytes: usize,
}

impl RingConfig {
    /// The largest frames, and rings of 1 MiB: what fits a core's second-level cache.
    pub fn new(hub: impl Into<PathBuf>, port: u32) -> Self {
        Self { hub: hub.into(), port, max_frame_bytes: None, ring_bytes: 1 << 20 }
    }
}

/// A Port of a hub in shared memory.
pub struct RingPort {
    config: RingConfig,
    max_frame_bytes: usize,
    seat: Seat,
    epoll: OwnedFd,
    outgoing: Vec<Outgoing>,
    incoming: Box<[Option<Incoming>]>,
    /// Places of `incoming` that were ever taken.
    places: usize,
    /// Where the next burst begins, so that no peer is served before the others.
    next: usize,
    /// What frames are handed over in.
    buffer: Box<[u8; MAX_FRAME_BYTES]>,
    /// Whether peers were asked to wake us.
    asleep: bool,
    receives_in_vain: u32,
    look_ns: u64,
    log: Log,
    counters: Counters,
}

/// A peer that frames go to.
struct Outgoing {
    to: u32,
    link: Outbound,
}

enum Outbound {
    Up {
        socket: OwnedFd,
        producer: Producer,
        /// There was no room for the last burst.
        is_full: bool,
    },
    Down {
        retry: Instant,
    },
}

/// A connection that frames come by.
struct Incoming {
    /// None: it has ended.
    socket: Option<OwnedFd>,
    ring: Option<(Address, Consumer)>,
}

/// Log lines about what peers do: at most one in a while, or they could fill a disk.
#[derive(Default)]
struct Log {
    last: Option<Instant>,
}

impl Log {
    fn may(&mut self) -> bool {
        let may = self.last.is_none_or(|last| last.elapsed() >= QUIET);
        if may {
            self.last = Some(Instant::now());
        }
        may
    }
}

/// What an event of the epoll instance is of: these kinds, with the place in the list.
const LISTENER: u64 = 0;
const OUTGOING: u64 = 1 << 32;
const INCOMING: u64 = 2 << 32;

impl RingPort {
    /// Opens a port of a hub that nobody else holds.
    pub fn open(config: &RingConfig) -> Result<Self, OpenError> {
        let refuse =
            |reason| OpenError::Ring { hub: config.hub.display().to_string(), port: config.port, reason };
        if !config.ring_bytes.is_power_of_two() || !hub::RING_BYTES.contains(&config.ring_bytes) {
            return Err(refuse("a ring has a power of two of bytes, 65536 to 67108864"));
        }
        let name = format!("the hub {}", config.hub.display());
        let max_frame_bytes = frame_bytes(&name, MAX_FRAME_BYTES, config.max_frame_bytes)?;
        let seat = Seat::take(&config.hub, config.port)?;
        let failed = |error| OpenError::system("cannot make an epoll instance", error);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        watch(&epoll, seat.fd(), LISTENER).map_err(failed)?;
        // Written to now, lest the first frames wait for page faults.
        let mut buffer = Box::new([0xFF; MAX_FRAME_BYTES]);
        buffer.fill(0);
        Ok(Self {
            config: config.clone(),
            max_frame_bytes,
            seat,
            epoll,
            outgoing: Vec::with_capacity(PEERS),
            incoming: (0..PEERS).map(|_| None).collect(),
            places: 0,
            next: 0,
            buffer,
            asleep: false,
            receives_in_vain: 0,
            look_ns: 0,
            log: Log::default(),
            counters: Counters::default(),
        })
    }

    /// The place of a peer in `outgoing`; none if there are too many.
    fn place(&mut self, to: u32) -> Option<usize> {
        if let Some(place) = self.outgoing.iter().position(|peer| peer.to == to) {
            return Some(place);
        }
        let peer = Outgoing { to, link: Outbound::Down { retry: Instant::now() } };
        if self.outgoing.len() < PEERS {
            self.outgoing.push(peer);
            return Some(self.outgoing.len() - 1);
        }
        let place = self.outgoing.iter().position(|peer| matches!(peer.link, Outbound::Down { .. }))?;
        self.outgoing[place] = peer;
        Some(place)
    }

    /// Connects to a peer, unless it is too soon after the last try.
    fn connect(&mut self, place: usize) {
        let Outgoing { to, link: Outbound::Down { retry } } = &self.outgoing[place] else { return };
        if Instant::now() < *retry {
            return;
        }
        let (to, data_bytes) = (*to, self.config.ring_bytes);
        let connected = hub::connect_to(&self.config.hub, to).and_then(|socket| {
            let memory = hub::memory(data_bytes)?;
            let producer = Producer::new(Region::map(memory.as_fd(), data_bytes)?);
            Offer { port: self.config.port, data_bytes }.send(&socket, &memory)?;
            watch(&self.epoll, socket.as_fd(), OUTGOING | place as u64)?;
            Ok(Outbound::Up { socket, producer, is_full: false })
        });
        self.outgoing[place].link = match connected {
            Ok(link) => {
                tracing::debug!(port = to, "ring connected");
                link
            }
            Err(error) => {
                tracing::debug!(port = to, %error, "no ring");
                Outbound::Down { retry: Instant::now() + RETRY }
            }
        };
    }

    /// A peer that frames go to has gone.
    fn lose(&mut self, place: usize) {
        let Outgoing { to, link } = &mut self.outgoing[place];
        if self.log.may() {
            tracing::info!(port = to, "ring ended");
        }
        *link = Outbound::Down { retry: Instant::now() };
    }

    /// A peer that frames go to has written what cannot be.
    fn cut_outgoing(&mut self, place: usize, violation: Violation) {
        let Outgoing { to, link } = &mut self.outgoing[place];
        *link = Outbound::Down { retry: Instant::now() + CUT_OFF_RETRY };
        self.counters.cut_off += 1;
        if self.log.may() {
            tracing::warn!(port = to, %violation, "peer cut off");
        }
    }

    /// A peer that frames come from has written what cannot be.
    fn cut_incoming(&mut self, place: usize, violation: Violation) {
        let from = self.incoming[place].take().and_then(|incoming| incoming.ring).map(|(from, _)| from);
        self.counters.cut_off += 1;
        if let Some(from) = from
            && self.log.may()
        {
            tracing::warn!(%from, %violation, "peer cut off");
        }
    }

    /// Looks at the sockets: who comes, who has gone.
    fn look(&mut self) {
        self.receives_in_vain = 0;
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 16];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let count = epoll::wait(&self.epoll, &mut events, Some(&now)).unwrap_or(0);
        for event in &events[..count] {
            let data = event.data.u64();
            let place = data as u32 as usize;
            match data - place as u64 {
                LISTENER => self.accept(),
                OUTGOING => {
                    if let Some(Outgoing { link: Outbound::Up { socket, .. }, .. }) = self.outgoing.get(place)
                        && !hub::take_wakes(socket)
                    {
                        self.lose(place);
                    }
                }
                _ => self.look_at_incoming(place),
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS {
            let Some(socket) = self.seat.accept() else { return };
            // One that was accepted and has not said anything gives way to the next.
            let free = self.incoming.iter().position(Option::is_none);
            let silent = || {
                let is_silent = |incoming: &Option<Incoming>| {
                    incoming.as_ref().is_some_and(|incoming| incoming.ring.is_none())
                };
                self.incoming.iter().position(is_silent)
            };
            let Some(place) = free.or_else(silent) else {
                if self.log.may() {
                    tracing::warn!("a peer was refused: {PEERS} are connected");
                }
                continue;
            };
            if watch(&self.epoll, socket.as_fd(), INCOMING | place as u64).is_ok() {
                self.incoming[place] = Some(Incoming { socket: Some(socket), ring: None });
                self.places = self.places.max(place + 1);
                self.look_at_incoming(place);
            }
        }
    }

    /// Takes the offer of a connection, or its wakes, or its end.
    fn look_at_incoming(&mut self, place: usize) {
        let Some(Some(incoming)) = self.incoming.get_mut(place) else { return };
        let Some(socket) = &incoming.socket else { return };
        if let Some((_, consumer)) = &mut incoming.ring {
            if !hub::take_wakes(socket) {
                // What it had written before counts. The ring goes when that is read.
                incoming.socket = None;
                if let Err(violation) = consumer.producer_is_gone() {
                    self.cut_incoming(place, violation);
                }
            }
            return;
        }
        let refused = match Offer::receive(socket) {
            Ok(None) => return,
            Ok(Some((offer, memory))) => match Region::map(memory.as_fd(), offer.data_bytes) {
                Ok(region) => {
                    let from = Address::Ring(offer.port);
                    let consumer = Consumer::new(region);
                    if !self.is_claimed(from) {
                        tracing::debug!(%from, "ring accepted");
                        if let Some(incoming) = &mut self.incoming[place] {
                            incoming.ring = Some((from, consumer));
                        }
                        return;
                    }
                    "its number is another's".to_owned()
                }
                Err(error) => error.to_string(),
            },
            Err(OfferError::Gone) => String::new(),
            Err(error) => {
                self.counters.cut_off += 1;
                error.to_string()
            }
        };
        self.incoming[place] = None;
        if !refused.is_empty() && self.log.may() {
            tracing::warn!(reason = refused, "a peer was refused");
        }
    }

    /// Whether a connection that has not ended brings frames of this port.
    fn is_claimed(&mut self, from: Address) -> bool {
        for incoming in self.incoming.iter_mut().flatten() {
            if let (Some((other, consumer)), Some(socket)) = (&mut incoming.ring, &incoming.socket)
                && *other == from
            {
                if hub::take_wakes(socket) {
                    return true;
                }
                incoming.socket = None;
                // One that is at fault is cut off when it is read.
                let _ = consumer.producer_is_gone();
            }
        }
        false
    }

    /// Hands over up to `most` frames of one connection.
    fn take(&mut self, place: usize, most: usize, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let Some(Some(Incoming { socket, ring: Some((from, consumer)) })) = self.incoming.get_mut(place)
        else {
            return 0;
        };
        let mut frames = 0;
        let mut wakes = false;
        let result = loop {
            if frames == most {
                break Ok(());
            }
            match consumer.pop(&mut self.buffer) {
                Ok(Some(bytes)) => {
                    let frame = &self.buffer[..bytes];
                    self.counters.received(frame);
                    frames += 1;
                    handle(from, frame);
                    if consumer.is_due() {
                        wakes |= consumer.show();
                    }
                }
                Ok(None) => break Ok(()),
                Err(violation) => break Err(violation),
            }
        };
        wakes |= consumer.show();
        if wakes && let Some(socket) = socket {
            // That it is gone is found at the next look.
            hub::wake(socket);
        }
        let is_over = consumer.is_over();
        match result {
            Err(violation) => self.cut_incoming(place, violation),
            Ok(()) if is_over => self.incoming[place] = None,
            Ok(()) => {}
        }
        frames
    }

    fn take_burst(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let mut frames = 0;
        for turn in 0..self.places {
            let place = (self.next + turn) % self.places;
            frames += self.take(place, BURST_FRAMES - frames, handle);
            if frames == BURST_FRAMES {
                self.next = (place + 1) % self.places;
                break;
            }
        }
        frames
    }

    fn wake_up(&mut self) {
        self.asleep = false;
        for (_, consumer) in self.incoming.iter_mut().flatten().filter_map(|incoming| incoming.ring.as_mut())
        {
            consumer.wake();
        }
    }

    /// Asks every peer to wake us. False: there is something to do.
    fn ask_for_wakes(&mut self) -> bool {
        for place in 0..self.places {
            let Some(Incoming { ring: Some((_, consumer)), .. }) = &mut self.incoming[place] else {
                continue;
            };
            match consumer.sleep() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(violation) => self.cut_incoming(place, violation),
            }
        }
        for place in 0..self.outgoing.len() {
            let Outbound::Up { producer, is_full: true, .. } = &mut self.outgoing[place].link else {
                continue;
            };
            match producer.wait_for_room() {
                Ok(true) => {}
                Ok(false) => return false,
                Err(violation) => self.cut_outgoing(place, violation),
            }
        }
        true
    }
}

impl Port for RingPort {
    fn max_frame_bytes(&self) -> usize {
        self.max_frame_bytes
    }

    fn address(&self) -> Address {
        Address::Ring(self.config.port)
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        let Address::Ring(to) = to else {
            self.counters.tx_foreign += frames.len() as u64;
            return frames.len();
        };
        let down = |port: &mut Self, taken: usize| {
            port.counters.tx_link_down += (frames.len() - taken) as u64;
            frames.len()
        };
        let Some(place) = self.place(*to) else { return down(self, 0) };
        if let Outbound::Up { producer, .. } = &self.outgoing[place].link
            && producer.consumer_is_gone()
        {
            self.lose(place);
        }
        if let Outbound::Down { .. } = self.outgoing[place].link {
            self.connect(place);
        }
        let Outbound::Up { socket, producer, is_full } = &mut self.outgoing[place].link else {
            return down(self, 0);
        };
        *is_full = false;
        let mut taken = 0;
        let mut is_there = true;
        for frame in frames {
            if frame.len() > self.max_frame_bytes {
                self.counters.tx_too_long += 1;
                taken += 1;
                continue;
            }
            match producer.push(frame) {
                Ok(true) => {}
                Ok(false) => {
                    self.counters.tx_no_room += 1;
                    *is_full = true;
                    break;
                }
                Err(violation) => {
                    self.cut_outgoing(place, violation);
                    return down(self, taken);
                }
            }
            self.counters.sent(&[frame]);
            taken += 1;
            if producer.is_due() && producer.show() {
                is_there &= hub::wake(socket);
            }
        }
        if producer.show() {
            is_there &= hub::wake(socket);
        }
        if !is_there {
            self.lose(place);
        }
        taken
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        if self.asleep {
            self.wake_up();
        }
        let frames = self.take_burst(handle);
        if frames != 0 {
            return frames;
        }
        self.receives_in_vain += 1;
        if self.receives_in_vain < LOOK_RECEIVES && self.incoming[..self.places].iter().any(Option::is_some) {
            return 0;
        }
        self.look();
        self.take_burst(handle)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn before_sleep(&mut self) -> bool {
        self.look();
        self.asleep = self.ask_for_wakes();
        if !self.asleep {
            self.wake_up();
        }
        self.asleep
    }

    fn tick(&mut self, now_ns: u64) {
        if now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_NS);
            self.look();
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for RingPort {
    fn drop(&mut self) {
        for (_, consumer) in self.incoming.iter_mut().flatten().filter_map(|incoming| incoming.ring.as_mut())
        {
            consumer.leave();
        }
    }
}

fn watch(epoll: &OwnedFd, fd: BorrowedFd<'_>, what: u64) -> rustix::io::Result<()> {
    epoll::add(epoll, fd, epoll::EventData::new_u64(what), epoll::EventFlags::IN)
}

#[cfg(test)]
mod tests;
