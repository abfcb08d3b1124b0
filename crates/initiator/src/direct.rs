//! Several disks of one host node that hand each other data: in memory that all of them reach, with one address space.
//!
//! The memory is that of a DC buffer in a box, or, without one, the *stage*: memory of ours. Which it is makes no difference to a disk. It
//! consists of pieces of one size; a request names one ([`Direct::piece`]), and each piece is in one request at a time.

use std::fmt;

use etherslot_node::seal::PublicKey;
use etherslot_node::{HostNode, Security, SessionEvent, SlotConfig};
use etherslot_session::Config as SessionConfig;
use etherslot_wire::discovery::{Group, Port};

use crate::arena::Arena;
use crate::dc::Driver;
use crate::disk::{DiskInfo, Done, Refused, Request};
use crate::enumeration::{SLOTS, high};
use crate::machine::{Host, Place, STAGE};
use crate::nvme::{Config, Controller, Counters, Failure};
use crate::pool::{Buffer, PAGE_BYTES, Space};

/// The number of the address space that all devices share.
const DOMAIN: u16 = 1;

/// The memory between the disks: pieces of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of each; rounded up to whole pages of 4096, at most 2 MiB.
    pub bytes: usize,
    /// How many, one at least.
    pub count: usize,
}

/// A host node with several disks, their drivers, and the memory between them.
///
/// A round of its owner's loop is that of [`crate::Initiator`].
#[derive(Debug)]
pub struct Direct<A> {
    host: Host<A>,
    /// Slot for slot.
    disks: Vec<Controller>,
    /// In the slot behind them.
    buffer: Option<Driver>,
    pieces: Pieces,
    now_ns: u64,
}

/// Where the pieces are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// In a DC buffer: data does not pass this node.
    Buffer,
    /// In our memory.
    Here,
}

impl<A: Copy + Eq + fmt::Display> Direct<A> {
    /// For these disks, 1 to 30, each with a driver as `config` says, and `buffer`, a DC buffer; `seed` makes the epochs differ from those of
    /// earlier lives.
    ///
    /// # Panics
    /// If there are too many disks.
    pub fn new(
        session: SessionConfig,
        seed: u64,
        disks: Vec<(SlotConfig<A>, Config)>,
        buffer: Option<SlotConfig<A>>,
        pieces: Pieces,
    ) -> Self {
        assert!((disks.len() as u64) < SLOTS, "too many disks");
        let bytes = pieces.bytes.clamp(1, 2 << 20).next_multiple_of(PAGE_BYTES);
        let pieces = Pieces { bytes, count: pieces.count.max(1) };
        let address = if buffer.is_some() { high(disks.len()) } else { STAGE };
        let space = Space { address, piece_bytes: pieces.bytes, pieces: pieces.count };
        let (mut slots, mut drivers) = (Vec::new(), Vec::new());
        for (slot, config) in disks {
            let (controller, arena) = Controller::new(config, Some(space));
            slots.push((slot, Place::new(arena)));
            drivers.push(controller);
        }
        let is_staged = buffer.is_none();
        slots.extend(buffer.map(|slot| (slot, Place::new(Arena::new(0)))));
        let count = slots.len();
        let mut host = Host::new(session, seed, slots);
        if is_staged {
            host.set_stage(Arena::new(pieces.bytes * pieces.count));
        } else {
            (0..count).for_each(|slot| host.node_mut().set_domain(slot, DOMAIN));
        }
        let buffer = (!is_staged).then(Driver::default);
        Self { host, disks: drivers, buffer, pieces, now_ns: 0 }
    }

    /// Takes a frame that came from `from`.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        self.host.receive(now_ns, from, frame);
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        let mut progress = self.host.poll(now_ns);
        for (slot, disk) in self.disks.iter_mut().enumerate() {
            progress |= disk.drive(now_ns, &mut self.host.machine(slot));
        }
        if let Some(buffer) = &mut self.buffer {
            progress |= buffer.drive(now_ns, &mut self.host.machine(self.disks.len()));
        }
        progress
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        for (slot, disk) in self.disks.iter_mut().enumerate() {
            disk.ring(&mut self.host.machine(slot));
        }
        self.host.transmit(now_ns, send)
    }

    /// When [`Direct::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let disks = self.disks.iter().filter_map(Controller::deadline_ns);
        self.host.node().deadline_ns().into_iter().chain(disks).min()
    }

    /// How many disks there are.
    pub fn disks(&self) -> usize {
        self.disks.len()
    }

    /// What a disk is, once it is known ([`Direct::is_known`]).
    pub fn info(&self, disk: usize) -> &DiskInfo {
        self.disks[disk].info()
    }

    /// Whether a disk was ready once.
    pub fn is_known(&self, disk: usize) -> bool {
        self.disks[disk].is_known()
    }

    /// Whether requests go to all disks now, and what is between them can be reached.
    pub fn is_ready(&self) -> bool {
        self.disks.iter().all(Controller::is_ready) && self.reaches_pieces()
    }

    /// Whether the memory between the disks can be reached now, from all boxes that they are in.
    pub fn reaches_pieces(&self) -> bool {
        self.buffer.is_none() || self.has_pieces() && (0..self.disks.len()).all(|disk| self.is_reaching(disk))
    }

    /// Whether the memory between the disks is there.
    pub fn has_pieces(&self) -> bool {
        self.buffer.as_ref().is_none_or(|buffer| buffer.bytes() >= self.piece_bytes() as u64)
    }

    /// Whether a disk reaches the memory, as far as that depends on the way between their boxes.
    pub fn is_reaching(&self, disk: usize) -> bool {
        self.can_join(disk) && self.host.node().is_reaching(disk)
    }

    /// Whether the boxes of a disk and of the buffer can let them reach each other.
    pub fn can_join(&self, disk: usize) -> bool {
        self.buffer.is_none() || self.host.node().can_join(disk, self.disks.len())
    }

    /// Lets disks and buffer be in different boxes ([`HostNode::join_boxes`]); to be said before the first poll.
    pub fn join_boxes(&mut self, port_of: fn(&A) -> Option<Port>) {
        self.host.node_mut().join_boxes(port_of);
    }

    /// Where the memory between the disks is.
    pub fn between(&self) -> Between {
        if self.buffer.is_some() { Between::Buffer } else { Between::Here }
    }

    /// Pieces that there are now: none while the buffer is away, fewer than asked for in a small one.
    pub fn pieces(&self) -> usize {
        let there = match &self.buffer {
            Some(buffer) => (buffer.bytes() / self.piece_bytes() as u64) as usize,
            None => self.pieces.count,
        };
        there.min(self.pieces.count)
    }

    /// Bytes of a piece.
    pub fn piece_bytes(&self) -> usize {
        self.pieces.bytes
    }

    /// A piece as the buffer of a request to `disk`. What it holds counts as long as [`Direct::life`] stays the same.
    pub fn piece(&self, disk: usize, piece: usize) -> Option<Buffer> {
        self.disks[disk].piece(piece)
    }

    /// Which life of the memory between the disks this is. What was put there in an earlier one is lost, and a request that was under way when it
    /// changed has read or written nobody knows what.
    pub fn life(&self) -> u64 {
        if self.buffer.is_some() { self.host.place(self.disks.len()).lives() } else { 0 }
    }

    /// What is in a piece of our memory; nothing if it is not ours.
    pub fn staged(&mut self, piece: usize) -> &mut [u8] {
        let Pieces { bytes, count } = self.pieces;
        match self.host.stage_mut() {
            Some(stage) if piece < count => stage.at_mut(piece * bytes, bytes),
            _ => &mut [],
        }
    }

    /// Takes a request to a disk ([`crate::Disk::submit`]).
    ///
    /// # Errors
    /// It is given back with the reason.
    pub fn submit(&mut self, disk: usize, request: Request) -> Result<(), Refused> {
        self.disks[disk].submit(self.now_ns, self.host.place_mut(disk).arena_mut(), request)
    }

    /// Hands over what a disk has done ([`crate::Disk::poll`]).
    pub fn done(&mut self, disk: usize, done: &mut dyn FnMut(Done)) -> usize {
        let messages = self.host.place_mut(disk).take_messages();
        self.disks[disk].poll(self.host.place(disk).arena(), messages, done)
    }

    /// Requests that a disk took and has not handed over.
    pub fn in_flight(&self, disk: usize) -> usize {
        self.disks[disk].in_flight()
    }

    /// Why a disk can't be used, if it can't; a failure that is not final may pass.
    pub fn failure(&self, disk: usize) -> Option<&Failure> {
        self.disks[disk].failure()
    }

    /// What the driver of a disk has counted.
    pub fn counters(&self, disk: usize) -> &Counters {
        &self.disks[disk].counters
    }

    /// Whether the box has given us the device of a slot: the disks', then the buffer's.
    pub fn has_device(&self, slot: usize) -> bool {
        self.host.place(slot).device().is_some()
    }

    /// Begins to shut all disks down in order ([`crate::Initiator::shut_down`]).
    pub fn shut_down(&mut self) {
        self.disks.iter_mut().for_each(|disk| disk.shut_down(self.now_ns));
    }

    /// Whether that has ended.
    pub fn is_shut_down(&self) -> bool {
        self.disks.iter().all(Controller::is_over)
    }

    /// Says goodbye to the boxes; the rounds go on until [`Direct::is_closed`], within half a second.
    pub fn close(&mut self) {
        self.host.node_mut().close();
    }

    /// Whether [`Direct::close`] is done.
    pub fn is_closed(&self) -> bool {
        self.host.node().is_closed()
    }

    /// The box at `address` is reached at `further` as well ([`HostNode::add_address`]).
    pub fn add_address(&mut self, address: A, further: A) {
        self.host.node_mut().add_address(address, further);
    }

    /// The assignment group of the host that this is; to be said before the first poll.
    pub fn set_group(&mut self, group: Option<Group>) {
        self.host.node_mut().set_group(group);
    }

    /// The largest payload of TLPs; to be said before the first poll ([`HostNode::set_max_payload`]).
    pub fn set_max_payload(&mut self, bytes: u16) {
        self.host.node_mut().set_max_payload(bytes);
    }

    /// Protects the sessions ([`HostNode::protect`]).
    pub fn protect(&mut self, security: Security) {
        self.host.node_mut().protect(security);
    }

    /// The box at `address` has to have this key.
    pub fn expect(&mut self, address: A, key: PublicKey) {
        self.host.node_mut().expect(address, key);
    }

    /// The next session that came up or died ([`HostNode::session_event`]).
    pub fn session_event(&mut self) -> Option<SessionEvent<A>> {
        self.host.node_mut().session_event()
    }

    /// The node, for its counters and sessions.
    pub fn node(&self) -> &HostNode<A> {
        self.host.node()
    }
}
