//! The links of a node, side by side: frames come from any of them, and go where their address says.

use std::os::fd::BorrowedFd;

use etherslot_netio::{Address, Port};

use crate::options::{LinkKind, LinkOptions, Via};
use crate::{Counted, StartError, link};

/// The Ports of a node, in the order of its configuration.
pub(crate) struct Links {
    ports: Vec<Box<dyn Port>>,
    is_intact: bool,
    is_memory: bool,
}

impl Links {
    /// Opens all of them.
    pub(crate) fn open(options: &[LinkOptions]) -> Result<Self, StartError> {
        let ports = options.iter().map(link::open).collect::<Result<_, _>>()?;
        let is_memory = options.iter().all(|link| matches!(link.kind, LinkKind::Ring { .. }));
        Ok(Self { ports, is_intact: options.iter().all(LinkOptions::is_intact), is_memory })
    }

    /// Whether every link keeps what it carries intact, so that sessions need not check bodies.
    pub(crate) fn is_intact(&self) -> bool {
        self.is_intact
    }

    /// Whether every link is memory of this user alone.
    pub(crate) fn is_memory(&self) -> bool {
        self.is_memory
    }

    /// The largest frame that every link carries.
    pub(crate) fn max_frame_bytes(&self) -> usize {
        self.ports.iter().map(Port::max_frame_bytes).min().unwrap_or_default()
    }

    /// Where peers reach the node.
    pub(crate) fn address(&self) -> String {
        let addresses: Vec<String> = self.ports.iter().map(|port| port.address().to_string()).collect();
        addresses.join(", ")
    }

    /// The same, link by link.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = Address> {
        self.ports.iter().map(Port::address)
    }

    /// What becomes readable when frames arrive.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.ports.iter().filter_map(Port::fd)
    }

    /// Whether any of them has nothing that becomes readable, and has to be looked at again and again.
    pub(crate) fn is_polled(&self) -> bool {
        self.ports.iter().any(|port| port.fd().is_none())
    }

    /// Whether the owner may sleep on [`Links::fds`]: no frames have arrived at any of those that have one.
    pub(crate) fn before_sleep(&mut self) -> bool {
        self.ports.iter_mut().all(|port| port.fd().is_none() || port.before_sleep())
    }

    /// Tells all of them the time.
    pub(crate) fn tick(&mut self, now_ns: u64) {
        self.ports.iter_mut().for_each(|port| port.tick(now_ns));
    }

    /// When [`Links::tick`] must be called.
    pub(crate) fn poll_at(&self) -> Option<u64> {
        self.ports.iter().filter_map(Port::poll_at).min()
    }

    /// Hands over a burst of each; how many frames had arrived.
    pub(crate) fn receive(&mut self, handle: &mut dyn FnMut(&Via, &[u8])) -> usize {
        let mut frames = 0;
        for (link, port) in self.ports.iter_mut().enumerate() {
            let mut take = |from: &Address, frame: &[u8]| handle(&Via { link, address: *from }, frame);
            frames += port.receive(&mut take);
        }
        frames
    }

    /// Offers frames to one peer; how many, from the front, were taken.
    pub(crate) fn send(&mut self, to: &Via, frames: &[&[u8]]) -> usize {
        // What no link leads to is taken and lost, as a Port does with what it can never send.
        self.ports.get_mut(to.link).map_or(frames.len(), |port| port.send(&to.address, frames))
    }

    /// Where peers reach each of them, and what it has counted.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Address, Counted)> {
        self.ports.iter().map(|port| (port.address(), port.counters().named().into()))
    }

    /// What they have counted, together.
    pub(crate) fn counters(&self) -> Counted {
        let mut sums = self.ports.first().map(|port| port.counters().named()).unwrap_or_default();
        for port in self.ports.iter().skip(1) {
            for (sum, (_, value)) in sums.iter_mut().zip(port.counters().named()) {
                sum.1 += value;
            }
        }
        sums.into()
    }
}
