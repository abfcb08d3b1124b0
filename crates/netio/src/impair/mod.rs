//! A bad link on purpose: loss, duplication, reordering, corruption and delay, drawn from a seed.
//!
//! [`Impairment`] says what to do, [`Impaired`] does it to any Port, alike in each direction chosen. What it draws depends on
//! the seed and on the frames only, so a run with the same frames meets the same faults. Delay keeps the order of frames; only
//! reordering breaks it: a frame is set aside until one to eight later ones have passed it, or for a millisecond at most.
//! Corruption flips one bit and hands the frame on, as if the damage had got past Ethernet's check sequence: it tests how bytes are
//! decoded. A link that finds its damage is `loss`.
//!
//! Time is that of the last [`Port::tick`]. Frames held back lie in a pool made at the start; a frame that finds no place there
//! is refused on its way out and lost on its way in.

mod config;
mod lane;

use std::os::fd::BorrowedFd;

pub use config::{Impairment, ImpairmentError, Way};
pub use lane::Faults;
use lane::Lane;

use crate::{Address, Counters, Port};

/// A Port with an [`Impairment`].
pub struct Impaired<P> {
    port: P,
    rx: Lane,
    tx: Lane,
    now_ns: u64,
}

impl<P: Port> Impaired<P> {
    /// Impairs a Port from now on.
    pub fn new(port: P, impairment: &Impairment) -> Self {
        let max_frame_bytes = port.max_frame_bytes();
        let lane = |way, number| {
            let active = impairment.way == Way::Both || impairment.way == way;
            Lane::new(active.then_some(*impairment), number, max_frame_bytes)
        };
        Self { rx: lane(Way::Rx, 0), tx: lane(Way::Tx, 1), port, now_ns: 0 }
    }

    /// What was done to received frames.
    pub fn rx_faults(&self) -> &Faults {
        &self.rx.faults
    }

    /// What was done to sent frames.
    pub fn tx_faults(&self) -> &Faults {
        &self.tx.faults
    }

    /// The Port inside.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P: Port> Port for Impaired<P> {
    fn max_frame_bytes(&self) -> usize {
        self.port.max_frame_bytes()
    }

    fn address(&self) -> Address {
        self.port.address()
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        let Self { port, tx, now_ns, .. } = self;
        if !tx.is_active() {
            return port.send(to, frames);
        }
        // frames[taken..taken + plain] will go as they are, in one burst.
        let (mut taken, mut plain) = (0, 0);
        while taken + plain < frames.len() && tx.has_room() {
            let frame = frames[taken + plain];
            let fate = tx.draw(frame.len());
            // One that is too long is the Port's to count.
            if (fate.is_plain() && tx.is_clear()) || frame.len() > port.max_frame_bytes() {
                plain += 1;
                continue;
            }
            let went = send_plain(tx, port, to, &frames[taken..taken + plain]);
            taken += went;
            if went < plain {
                return taken;
            }
            plain = 0;
            tx.hold(*now_ns, to, frame, &fate);
            taken += 1;
            tx.drain(*now_ns, port);
        }
        taken + send_plain(tx, port, to, &frames[taken..taken + plain])
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let Self { port, rx, now_ns, .. } = self;
        if !rx.is_active() {
            return port.receive(handle);
        }
        let released = rx.release(*now_ns, handle);
        let arrived = port.receive(&mut |from, frame| {
            let fate = rx.draw(frame.len());
            if fate.is_plain() && rx.is_clear() {
                rx.faults.frames += 1;
                handle(from, frame);
            } else {
                rx.hold(*now_ns, from, frame, &fate);
                rx.release(*now_ns, handle);
            }
        });
        released + arrived
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.port.fd()
    }

    fn before_sleep(&mut self) -> bool {
        self.port.before_sleep()
    }

    fn poll_at(&self) -> Option<u64> {
        [self.port.poll_at(), self.rx.next_ns(), self.tx.next_ns()].into_iter().flatten().min()
    }

    fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.port.tick(now_ns);
        self.rx.expire(now_ns);
        self.tx.expire(now_ns);
        self.tx.drain(now_ns, &mut self.port);
    }

    fn counters(&self) -> &Counters {
        self.port.counters()
    }
}

fn send_plain(lane: &mut Lane, port: &mut dyn Port, to: &Address, frames: &[&[u8]]) -> usize {
    if frames.is_empty() {
        return 0;
    }
    let went = port.send(to, frames);
    lane.faults.frames += went as u64;
    went
}
