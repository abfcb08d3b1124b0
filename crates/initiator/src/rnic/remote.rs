//! An RNIC in a box, used from here: host node, memory and driver in one, to be fed with frames and time.

use std::fmt;
use std::ops::{Deref, DerefMut};

use etherslot_node::seal::PublicKey;
use etherslot_node::{HostNode, Interrupts, Security, SessionEvent, SlotConfig};
use etherslot_rdma::{ControlError, CqId, Cqe, Pd, PostError, Qpn, ReceiveWork, SendWork, SrqId};
use etherslot_session::Config as SessionConfig;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::Group;

use super::device::Device;
use super::driver::Driver;
use super::memory::Place;
use super::pair::QpConfig;
use super::{Failure, orders};
use crate::arena::{Arena, BASE};
use crate::enumeration::Enumeration;
use crate::machine::{Access, Host, Machine, Place as Slot};

/// The host node has this slot alone.
const SLOT: usize = 0;

/// What the driver has of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Bytes of memory that driver, program and device share.
    pub memory_bytes: usize,
    /// Whether interrupts are taken ([`Rnic::take_interrupts`], events). Who polls needs none but for events.
    pub interrupts: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { memory_bytes: 64 << 20, interrupts: true }
    }
}

/// A remote RNIC.
///
/// A round of its owner's loop: [`Rnic::receive`] for each frame that came, [`Rnic::poll`], then the program's work (poll completions,
/// post), then [`Rnic::transmit`], which rings the doorbells once for all that was posted. Tables and orders are those of the
/// [`Driver`], to which this derefs.
#[derive(Debug)]
pub struct Rnic<A> {
    host: Host<A>,
    driver: Driver,
    lives: u64,
    enumeration: Option<Enumeration>,
    has_asked: bool,
    interrupts: bool,
    messages: u64,
    now_ns: u64,
}

/// The device, as the driver reaches it from here.
struct Reached<'a, A> {
    machine: Machine<'a, A>,
    now_ns: u64,
}

impl<A: Copy + Eq + fmt::Display> Device for Reached<'_, A> {
    fn write(&mut self, bar: u8, offset: u32, data: &[u8]) -> bool {
        self.machine.bar_write(bar, offset, data)
    }

    fn ask(&mut self, bar: u8, offset: u32, bytes: u16) -> bool {
        self.machine.ask(self.now_ns, Access::BarRead { bar, offset, bytes })
    }

    fn answer(&mut self) -> Option<u64> {
        let mut value = [0; 8];
        let answer = self.machine.answer()?;
        let bytes = answer.len().min(8);
        value[..bytes].copy_from_slice(&answer[..bytes]);
        Some(u64::from_le_bytes(value))
    }

    fn store(&mut self, address: u64, data: &[u8]) {
        let stored = self.machine.arena_mut().write(address, data);
        debug_assert!(stored, "the driver stays in its memory");
    }

    fn load(&self, address: u64, data: &mut [u8]) {
        let loaded = self.machine.arena().read(address, data);
        debug_assert!(loaded, "the driver stays in its memory");
    }
}

impl<A: Copy + Eq + fmt::Display> Rnic<A> {
    /// For the device of this name in the box at `address`; `seed` makes the epochs differ from those of earlier lives.
    pub fn new(session: SessionConfig, seed: u64, device: Name, address: A, config: Config) -> Self {
        let slot = SlotConfig { name: device, address, hide_msix: false };
        let arena = Arena::new(config.memory_bytes);
        Self {
            host: Host::new(session, seed, vec![(slot, Slot::new(arena))]),
            driver: Driver::new(Place { address: BASE, bytes: config.memory_bytes }),
            lives: 0,
            enumeration: None,
            has_asked: false,
            interrupts: config.interrupts,
            messages: 0,
            now_ns: 0,
        }
    }

    /// The driver, and its way to the device.
    fn reach(&mut self) -> (&mut Driver, Reached<'_, A>) {
        (&mut self.driver, Reached { machine: self.host.machine(SLOT), now_ns: self.now_ns })
    }

    /// The assignment group of the host that this is; to be said before the first poll.
    pub fn set_group(&mut self, group: Option<Group>) {
        self.host.node_mut().set_group(group);
    }

    /// Protects the sessions ([`HostNode::protect`]).
    pub fn protect(&mut self, security: Security) {
        self.host.node_mut().protect(security);
    }

    /// The box at `address` has to have this key.
    pub fn expect(&mut self, address: A, key: PublicKey) {
        self.host.node_mut().expect(address, key);
    }

    /// The box may give the device now ([`HostNode::ask_again`]).
    pub fn ask_again(&mut self) {
        self.host.node_mut().ask_again(0);
    }

    /// Takes a frame that came from `from`.
    #[inline]
    pub fn receive(&mut self, now_ns: u64, from: &A, frame: &[u8]) {
        self.host.receive(now_ns, from, frame);
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll(&mut self, now_ns: u64) -> bool {
        self.now_ns = now_ns;
        let mut any = self.host.poll(now_ns);
        let lives = self.host.place(SLOT).lives();
        if lives != self.lives {
            self.lives = lives;
            self.came_or_went();
            any = true;
        }
        let messages = self.host.place_mut(SLOT).take_messages();
        self.messages |= messages;
        if messages & 1 != 0 {
            self.driver.fetch_events();
        }
        if self.enumeration.is_some() {
            return any | self.enumerate();
        }
        // Register by register, as long as answers are there at once.
        for _ in 0..64 {
            let (driver, mut device) = self.reach();
            if !driver.drive(&mut device) {
                break;
            }
            any = true;
        }
        any
    }

    fn came_or_went(&mut self) {
        self.driver.detach();
        self.has_asked = false;
        self.enumeration = None;
        if let Some(layout) = self.host.machine(SLOT).layout() {
            let has = |bar: u8| layout.bars[usize::from(bar)].is_some();
            if has(orders::REGISTERS) && has(orders::PAGES) && has(orders::TABLES) {
                self.enumeration = Some(Enumeration::new(layout, SLOT));
            } else {
                self.driver.fail(Failure::Bars);
            }
        }
    }

    fn enumerate(&mut self) -> bool {
        let mut any = false;
        while let Some(enumeration) = &mut self.enumeration {
            let Some(access) = enumeration.access() else {
                self.enumeration = None;
                if self.interrupts {
                    self.host.machine(SLOT).set_interrupts(Interrupts::MsiX);
                }
                self.driver.attach();
                return true;
            };
            if !self.has_asked {
                self.has_asked = self.host.machine(SLOT).ask(self.now_ns, access);
            }
            if !self.has_asked || self.host.machine(SLOT).answer().is_none() {
                break;
            }
            self.has_asked = false;
            enumeration.answered();
            any = true;
        }
        any
    }

    /// Hands all frames that may leave now to `send`, which says how many, from the front, it took.
    pub fn transmit(&mut self, now_ns: u64, send: &mut dyn FnMut(&A, &[&[u8]]) -> usize) -> bool {
        self.now_ns = now_ns;
        let (driver, mut device) = self.reach();
        driver.ring(&mut device);
        self.host.transmit(now_ns, send)
    }

    /// When [`Rnic::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.host.node().deadline_ns()
    }

    /// How often the device came and went: what was made before is gone with it.
    pub fn lives(&self) -> u64 {
        self.lives
    }

    /// The vectors whose interrupts have come since the last call, as bits; those above 63 share bits with others.
    pub fn take_interrupts(&mut self) -> u64 {
        std::mem::take(&mut self.messages)
    }

    /// What is in memory of the program's.
    pub fn memory(&self, place: Place) -> &[u8] {
        self.host.place(SLOT).arena().at((place.address - BASE) as usize, place.bytes)
    }

    /// The same, to be written.
    pub fn memory_mut(&mut self, place: Place) -> &mut [u8] {
        self.host.place_mut(SLOT).arena_mut().at_mut((place.address - BASE) as usize, place.bytes)
    }

    /// [`Driver::create_cq`].
    pub fn create_cq(&mut self, cqes: usize, vector: u16) -> Result<CqId, ControlError> {
        let (driver, mut device) = self.reach();
        driver.create_cq(&mut device, cqes, vector)
    }

    /// [`Driver::create_srq`].
    pub fn create_srq(&mut self, pd: Pd, blocks: usize, limit: u16) -> Result<SrqId, ControlError> {
        let (driver, mut device) = self.reach();
        driver.create_srq(&mut device, pd, blocks, limit)
    }

    /// [`Driver::create_qp`].
    pub fn create_qp(&mut self, config: &QpConfig) -> Result<Qpn, ControlError> {
        let (driver, mut device) = self.reach();
        driver.create_qp(&mut device, config)
    }

    /// [`Driver::post_send`].
    pub fn post_send(&mut self, qp: Qpn, work: &SendWork<'_>) -> Result<(), PostError> {
        let (driver, mut device) = self.reach();
        driver.post_send(&mut device, qp, work)
    }

    /// [`Driver::post_receive`].
    pub fn post_receive(&mut self, qp: Qpn, work: &ReceiveWork<'_>) -> Result<(), PostError> {
        let (driver, mut device) = self.reach();
        driver.post_receive(&mut device, qp, work)
    }

    /// [`Driver::post_srq`].
    pub fn post_srq(&mut self, srq: SrqId, work: &ReceiveWork<'_>) -> Result<(), PostError> {
        let (driver, mut device) = self.reach();
        driver.post_srq(&mut device, srq, work)
    }

    /// [`Driver::poll_cq`].
    pub fn poll_cq(&mut self, cq: CqId, out: &mut [Cqe]) -> usize {
        let (driver, device) = self.reach();
        driver.poll_cq(&device, cq, out)
    }

    /// [`Driver::kick`].
    pub fn kick(&mut self, qp: Qpn, work: &SendWork<'_>) -> Result<(), PostError> {
        let (driver, mut device) = self.reach();
        driver.kick(&mut device, qp, work)
    }

    /// [`Driver::prepare`].
    pub fn prepare(&mut self, qp: Qpn, place: usize, work: &SendWork<'_>) -> Result<(), ControlError> {
        let (driver, mut device) = self.reach();
        driver.prepare(&mut device, qp, place, work)
    }

    /// [`Driver::store`].
    pub fn store(&mut self, qp: Qpn, place: usize, value: u64) -> Result<(), PostError> {
        let (driver, mut device) = self.reach();
        driver.store(&mut device, qp, place, value)
    }

    /// Says goodbye to the box; the rounds go on until [`Rnic::is_closed`].
    pub fn close(&mut self) {
        self.host.node_mut().close();
    }

    /// Whether [`Rnic::close`] is done.
    pub fn is_closed(&self) -> bool {
        self.host.node().is_closed()
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

impl<A> Deref for Rnic<A> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        &self.driver
    }
}

impl<A> DerefMut for Rnic<A> {
    fn deref_mut(&mut self) -> &mut Driver {
        &mut self.driver
    }
}
