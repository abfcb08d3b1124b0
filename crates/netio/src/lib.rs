//! Ports: bursts of session frames in and out of a link.
//!
//! A [`Port`] carries whole session frames and adds and takes off the headers of its link. It may lose frames as
//! any Ethernet does; it never splits, joins or reorders them on purpose, never blocks, and never allocates once it
//! is open. Back ends: [`packet`] (raw Ethernet), [`xdp`] (the same past the kernel's network stack), [`udp`] (routable, with segmentation offload), [`ring`]
//! (nodes on one machine), [`memory`] (tests and the simulator). Wrappers around any Port: [`tap`] (capture) and [`impair`] (seeded faults).
//! [`tuntap`] is no Port: the network that a network controller is joined to.
#![allow(unsafe_code)] // The socket calls that carry bursts exist only in C.

mod address;
mod burst;
mod counters;
mod error;
pub mod impair;
mod interface;
mod mapping;
pub mod memory;
pub mod packet;
mod pcapng;
pub mod ring;
mod socket;
pub mod tap;
pub mod tuntap;
pub mod udp;
pub mod xdp;

use std::os::fd::BorrowedFd;

pub use address::{Address, AddressError};
pub use counters::Counters;
pub use error::OpenError;
pub use interface::{has_carrier, ipv4_addresses, ipv4_addresses_of};

/// EtherType of Etherslot frames on raw Ethernet (IEEE 802, local experimental 1).
pub const ETHERTYPE: u16 = 0x88B5;
/// The smallest frame size a Port may have: what a session needs at least.
pub const MIN_FRAME_BYTES: usize = 576;
/// The largest frame size a Port may have, whatever the MTU of its link.
pub const MAX_FRAME_BYTES: usize = 9216;
/// Frames that go to the kernel in one call.
pub const BURST_FRAMES: usize = 64;

/// One end of a link.
///
/// Single-threaded. The owner calls [`tick`](Port::tick) once a turn of its loop, before `receive` and `send`.
pub trait Port {
    /// The largest session frame this Port takes (no Ethernet, IP or UDP header counted).
    fn max_frame_bytes(&self) -> usize;

    /// The address that peers reach this Port at. A UDP Port bound to the unspecified address gives that.
    fn address(&self) -> Address;

    /// Offers frames to one peer and returns how many, from the front, were taken. Never blocks.
    ///
    /// Fewer than offered means the link has no room now: offer the others again later. A frame that no later attempt
    /// could send either (too long, an address of another kind of link) and every frame while the link is down is taken,
    /// dropped and counted, as Ethernet would lose it: what cannot be sent must not hold up what can.
    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize;

    /// Hands over one burst of arrived frames with their senders; returns how many had arrived (those dropped and counted
    /// included), 0 if none waited.
    ///
    /// A frame may be followed by the padding of a short Ethernet frame; the session header says where it ends.
    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize;

    /// What becomes readable when frames arrive, if the Port has such a thing.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Called by an owner that is about to sleep on [`fd`](Port::fd). False: do not sleep, frames have arrived, or this Port can
    /// only be polled. True: `fd` becomes readable when frames arrive. Who polls need not call it, and should not: some Ports
    /// spare their peers the cost of waking who is awake.
    fn before_sleep(&mut self) -> bool {
        true
    }

    /// When [`tick`](Port::tick) must be called, in the clock that is passed to it.
    fn poll_at(&self) -> Option<u64> {
        None
    }

    /// Tells the Port the time: frames that were held back move on, a lost interface is looked for.
    fn tick(&mut self, now_ns: u64) {
        let _ = now_ns;
    }

    /// What happened so far.
    fn counters(&self) -> &Counters;
}

impl<P: Port + ?Sized> Port for Box<P> {
    fn max_frame_bytes(&self) -> usize {
        (**self).max_frame_bytes()
    }
    fn address(&self) -> Address {
        (**self).address()
    }
    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        (**self).send(to, frames)
    }
    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        (**self).receive(handle)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        (**self).fd()
    }
    fn before_sleep(&mut self) -> bool {
        (**self).before_sleep()
    }
    fn poll_at(&self) -> Option<u64> {
        (**self).poll_at()
    }
    fn tick(&mut self, now_ns: u64) {
        (**self).tick(now_ns);
    }
    fn counters(&self) -> &Counters {
        (**self).counters()
    }
}
