//! A remote NVMe namespace as a [`Disk`]: host node, memory and driver in one, to be fed with frames and time.

use std::fmt;

use etherslot_node::seal::PublicKey;
use etherslot_node::{HostNode, Security, SessionEvent, SlotConfig};
use etherslot_session::Config as SessionConfig;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::Group;

use crate::disk::{Disk, DiskInfo, Done, Refused, Request};
use crate::machine::{Host, Place};
use crate::nvme::{Config, Controller, ControllerData, Counters, Failure, NamespaceData};
use crate::pool::Buffer;

/// The host node has this slot alone.
const SLOT: usize = 0;

/// A host node with one device, its driver, and the memory that they share.
///
/// A round of its owner's loop: [`Initiator::receive`] for each frame that came, [`Initiator::poll`], then the user's work with the
/// [`Disk`] (poll, submit), then [`Initiator::transmit`], which rings the doorbells once for all that was submitted.
#[derive(Debug)]
pub struct Initiator<A> {
    host: Host<A>,
    controller: Controller,
    now_ns: u64,
}

impl<A: Copy + Eq + fmt::Display> Initiator<A> {
    /// For the device of this name in the box at `address`; `seed` makes the epochs differ from those of earlier lives.
    pub fn new(session: SessionConfig, seed: u64, device: Name, address: A, config: Config) -> Self {
        let slot = SlotConfig { name: device, address, hide_msix: false };
        let (controller, arena) = Controller::new(config, None);
        let host = Host::new(session, seed, vec![(slot, Place::new(arena))]);
        Self { host, controller, now_ns: 0 }
    }

    /// The box is reached at `further` as well ([`HostNode::add_address`]).
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

    /// The box may give the device now ([`HostNode::ask_again`]).
    pub fn ask_again(&mut self) {
        self.host.node_mut().ask_again(0);
    }

    /// Protects the sessions ([`HostNode::protect`]).
    pub fn protect(&mut self, security: Security) {
        self.host.node_mut().protect(security);
    }

    /// The box at `address` has to have this key.
    pub fn expect(&mut self, address: A, key: PublicKey) {
        self.host.node_mut().expect(address, key);
    }

    /// Takes a frame that came from `from`.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        self.host.receive(now_ns, from, frame);
    }

    /// Goes on with everything that can go on. True if something was done.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        let progress = self.host.poll(now_ns);
        progress | self.controller.drive(now_ns, &mut self.host.machine(SLOT))
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    #[inline]
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        self.controller.ring(&mut self.host.machine(SLOT));
        self.host.transmit(now_ns, send)
    }

    /// When [`Initiator::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        [self.host.node().deadline_ns(), self.controller.deadline_ns()].into_iter().flatten().min()
    }

    /// Begins to shut the controller down in order: it makes durable what it has taken. What was submitted should be done
    /// before; what is not ends with an error. Then the rounds go on until [`Initiator::is_shut_down`].
    pub fn shut_down(&mut self) {
        self.controller.shut_down(self.now_ns);
    }

    /// Whether [`Initiator::shut_down`] has ended: the controller says that it is done, is gone, or takes longer than 5 s.
    pub fn is_shut_down(&self) -> bool {
        self.controller.is_over()
    }

    /// Says goodbye to the box; the rounds go on until [`Initiator::is_closed`], within half a second.
    pub fn close(&mut self) {
        self.host.node_mut().close();
    }

    /// Whether [`Initiator::close`] is done.
    pub fn is_closed(&self) -> bool {
        self.host.node().is_closed()
    }

    /// The disk, once it is known. From then on it is there, even while the device is not: requests wait for it.
    pub fn disk(&mut self) -> Option<&mut dyn Disk> {
        if self.controller.is_known() { Some(self) } else { None }
    }

    /// Whether requests go to the device now.
    pub fn is_ready(&self) -> bool {
        self.controller.is_ready()
    }

    /// Whether the box has given us the device.
    pub fn has_device(&self) -> bool {
        self.host.place(SLOT).device().is_some()
    }

    /// Why the controller can't be used, if it can't; a failure that is not final may pass.
    pub fn failure(&self) -> Option<&Failure> {
        self.controller.failure()
    }

    /// What the controller says of itself, once it did.
    pub fn controller_data(&self) -> Option<&ControllerData> {
        self.controller.controller_data()
    }

    /// The namespaces that were asked for.
    pub fn namespaces(&self) -> &[NamespaceData] {
        self.controller.namespaces()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.controller.counters
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

impl<A: Copy + Eq + fmt::Display> Disk for Initiator<A> {
    fn info(&self) -> &DiskInfo {
        self.controller.info()
    }

    fn take_buffer(&mut self, bytes: usize) -> Option<Buffer> {
        self.controller.pool_mut().take(bytes)
    }

    fn give_back(&mut self, buffer: Buffer) {
        self.controller.pool_mut().give_back(buffer);
    }

    #[inline]
    fn data(&self, buffer: &Buffer) -> &[u8] {
        self.host.place(SLOT).arena().at(buffer.offset, buffer.bytes())
    }

    #[inline]
    fn data_mut(&mut self, buffer: &Buffer) -> &mut [u8] {
        self.host.place_mut(SLOT).arena_mut().at_mut(buffer.offset, buffer.bytes())
    }

    #[inline]
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        self.controller.submit(self.now_ns, self.host.place_mut(SLOT).arena_mut(), request)?;
        if self.controller.fills_frame() {
            self.controller.ring(&mut self.host.machine(SLOT));
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self, done: &mut dyn FnMut(Done)) -> usize {
        let messages = self.host.place_mut(SLOT).take_messages();
        self.controller.poll(self.host.place(SLOT).arena(), messages, done)
    }

    fn in_flight(&self) -> usize {
        self.controller.in_flight()
    }
}
