//! Nodes on links, and the switch between them, in virtual time.
//!
//! Each node has one link to the switch. A frame waits in the node's transmit queue, is serialised at the link's rate,
//! crosses the cable, waits in the switch's output queue (all of which share one buffer; what finds it full is
//! dropped), is serialised again and crosses the second cable. Queues are kept as the times at which their frames leave.

mod faults;

use std::collections::VecDeque;
use std::fmt;

pub(crate) use faults::{Burst, Faults, Lane};

use crate::random::Random;

/// A node's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address(pub u8);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node{}", self.0)
    }
}

/// Bytes that a frame takes on an Ethernet beside itself: header, FCS, preamble, gap.
const ETHERNET_OVERHEAD_BYTES: u64 = 14 + 4 + 8 + 12;

/// The links and the switch.
#[derive(Clone, Debug)]
pub(crate) struct NetworkPlan {
    /// Rate of every link, bit/s.
    pub(crate) rate_bps: u64,
    /// Delay of every cable, ns.
    pub(crate) delay_ns: u64,
    /// The most that a cable adds to its delay, ns. Frames of one cable keep their order.
    pub(crate) jitter_ns: u64,
    /// Frames that a node's transmit queue holds.
    pub(crate) transmit_frames: usize,
    /// Bytes that the switch can hold.
    pub(crate) switch_bytes: u64,
    /// The largest frame, without link headers.
    pub(crate) mtu: u16,
    /// What goes wrong on each cable.
    pub(crate) faults: Faults,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkCounters {
    /// Frames taken from nodes.
    pub sent: u64,
    /// Frames that arrived at nodes, copies included.
    pub delivered: u64,
    /// Frames dropped by the switch because its buffer was full.
    pub dropped: u64,
    /// Frames lost by the faults of the cables.
    pub lost: u64,
}

/// A frame on its way to a place where it will be at a known time.
#[derive(Debug)]
pub(crate) struct Hop {
    /// When it is there.
    pub(crate) at_ns: u64,
    /// Who sent it.
    pub(crate) from: Address,
    /// For whom it is.
    pub(crate) to: Address,
    /// Its bytes.
    pub(crate) frame: Vec<u8>,
}

/// A queue in front of a serialiser.
#[derive(Debug, Default)]
struct Queue {
    /// When each frame has left, and its bytes.
    leaving: VecDeque<(u64, u64)>,
    free_at_ns: u64,
}

impl Queue {
    fn settle(&mut self, now_ns: u64) {
        while self.leaving.front().is_some_and(|&(at_ns, _)| at_ns <= now_ns) {
            self.leaving.pop_front();
        }
    }

    fn bytes(&self) -> u64 {
        self.leaving.iter().map(|&(_, bytes)| bytes).sum()
    }

    fn push(&mut self, now_ns: u64, bytes: u64, rate_bps: u64) -> u64 {
        let takes_ns = (bytes + ETHERNET_OVERHEAD_BYTES) * 8 * 1_000_000_000 / rate_bps;
        self.free_at_ns = self.free_at_ns.max(now_ns) + takes_ns.max(1);
        self.leaving.push_back((self.free_at_ns, bytes));
        self.free_at_ns
    }
}

struct Link {
    transmit: Queue,
    output: Queue,
    up: Lane,
    down: Lane,
}

/// The network.
pub(crate) struct Network {
    plan: NetworkPlan,
    links: Vec<Link>,
    /// Pairs of nodes (from, to) that do not reach each other, and until when.
    cuts: Vec<(Address, Address, u64)>,
    counters: NetworkCounters,
}

impl Network {
    /// A network of `nodes` nodes, with the addresses 0 and up.
    pub(crate) fn new(plan: NetworkPlan, nodes: usize, random: &Random) -> Self {
        let lane = |name, node| Lane::new(plan.faults.clone(), random.fork(name, node));
        let link = |node| Link {
            transmit: Queue::default(),
            output: Queue::default(),
            up: lane("up", node),
            down: lane("down", node),
        };
        let links = (0..nodes as u64).map(link).collect();
        Self { plan, links, cuts: Vec::new(), counters: NetworkCounters::default() }
    }

    /// What was counted.
    pub(crate) fn counters(&self) -> &NetworkCounters {
        &self.counters
    }

    /// From now on nothing goes wrong any more; what is on its way stays so.
    pub(crate) fn heal(&mut self) {
        self.cuts.clear();
        for link in &mut self.links {
            link.up.heal();
            link.down.heal();
        }
    }

    /// No frame of `from` reaches `to` until that time.
    pub(crate) fn cut(&mut self, from: Address, to: Address, until_ns: u64) {
        self.cuts.push((from, to, until_ns));
    }

    /// All frames to and from `node` take longer until that time.
    pub(crate) fn slow_down(&mut self, node: Address, by_ns: u64, until_ns: u64) {
        let link = &mut self.links[node.0 as usize];
        link.up.slow_down(by_ns, until_ns);
        link.down.slow_down(by_ns, until_ns);
    }

    /// A node that is started again has an empty transmit queue.
    pub(crate) fn restart(&mut self, node: Address) {
        self.links[node.0 as usize].transmit.leaving.clear();
    }

    /// Takes a frame from a node, if its transmit queue has room; calls `hop` for each copy that reaches the switch.
    pub(crate) fn send(
        &mut self,
        now_ns: u64,
        from: Address,
        to: Address,
        frame: &[u8],
        hop: &mut dyn FnMut(Hop),
    ) -> bool {
        let link = &mut self.links[from.0 as usize];
        link.transmit.settle(now_ns);
        if link.transmit.leaving.len() >= self.plan.transmit_frames {
            return false;
        }
        self.counters.sent += 1;
        let left_ns = link.transmit.push(now_ns, frame.len() as u64, self.plan.rate_bps);
        self.counters.lost +=
            link.up.carry(left_ns + self.plan.delay_ns, self.plan.jitter_ns, frame, &mut |at_ns, frame| {
                hop(Hop { at_ns, from, to, frame });
            });
        true
    }

    /// When the transmit queue of `node` has room again, if it is full now.
    pub(crate) fn room_at_ns(&mut self, now_ns: u64, node: Address) -> Option<u64> {
        let queue = &mut self.links[node.0 as usize].transmit;
        queue.settle(now_ns);
        let full = queue.leaving.len() >= self.plan.transmit_frames;
        queue.leaving.front().filter(|_| full).map(|&(at_ns, _)| at_ns)
    }

    /// A frame has reached the switch; calls `hop` for each copy that will reach its node.
    pub(crate) fn switch(&mut self, now_ns: u64, arrived: &Hop, hop: &mut dyn FnMut(Hop)) {
        let Hop { from, to, ref frame, .. } = *arrived;
        self.cuts.retain(|&(_, _, until_ns)| until_ns > now_ns);
        if self.cuts.iter().any(|&(cut_from, cut_to, _)| (cut_from, cut_to) == (from, to)) {
            self.counters.lost += 1;
            return;
        }
        let mut held_bytes = 0;
        for link in &mut self.links {
            link.output.settle(now_ns);
            held_bytes += link.output.bytes();
        }
        let bytes = frame.len() as u64;
        let Some(link) =
            self.links.get_mut(to.0 as usize).filter(|_| held_bytes + bytes <= self.plan.switch_bytes)
        else {
            self.counters.dropped += 1;
            return;
        };
        let left_ns = link.output.push(now_ns, bytes, self.plan.rate_bps);
        let delivered = &mut self.counters.delivered;
        self.counters.lost +=
            link.down.carry(left_ns + self.plan.delay_ns, self.plan.jitter_ns, frame, &mut |at_ns, frame| {
                *delivered += 1;
                hop(Hop { at_ns, from, to, frame });
            });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> NetworkPlan {
        NetworkPlan {
            rate_bps: 1_000_000_000,
            delay_ns: 1_000,
            jitter_ns: 0,
            transmit_frames: 2,
            switch_bytes: 4_000,
            mtu: 1500,
            faults: Faults::default(),
        }
    }

    fn send(network: &mut Network, now_ns: u64, from: u8, to: u8) -> (bool, Vec<Hop>) {
        let mut hops = Vec::new();
        let taken =
            network.send(now_ns, Address(from), Address(to), &[from; 1462], &mut |hop| hops.push(hop));
        (taken, hops)
    }

    #[test]
    fn a_frame_takes_its_serialisation_and_the_delay_of_both_cables() {
        let mut network = Network::new(plan(), 2, &Random::new(0));
        let (taken, hops) = send(&mut network, 500, 0, 1);
        assert!(taken);
        assert_eq!(hops[0].at_ns, 500 + 12_000 + 1_000);
        let mut arrived = Vec::new();
        network.switch(hops[0].at_ns, &hops[0], &mut |hop| arrived.push(hop));
        assert_eq!(arrived[0].at_ns, hops[0].at_ns + 12_000 + 1_000);
    }

    #[test]
    fn a_full_transmit_queue_takes_nothing_until_a_frame_has_left() {
        let mut network = Network::new(plan(), 2, &Random::new(0));
        assert!(send(&mut network, 0, 0, 1).0 && send(&mut network, 0, 0, 1).0);
        assert!(!send(&mut network, 0, 0, 1).0);
        assert_eq!(network.room_at_ns(0, Address(0)), Some(12_000));
        assert!(send(&mut network, 12_000, 0, 1).0);
    }

    #[test]
    fn the_switch_drops_what_its_buffer_does_not_hold() {
        let mut network = Network::new(plan(), 4, &Random::new(0));
        let mut through = 0;
        for from in 0..3 {
            let (_, hops) = send(&mut network, 0, from, 3);
            network.switch(hops[0].at_ns, &hops[0], &mut |_| through += 1);
        }
        assert_eq!((through, network.counters().dropped), (2, 1));
    }

    #[test]
    fn a_cut_is_of_one_direction_and_ends() {
        let mut network = Network::new(plan(), 2, &Random::new(0));
        network.cut(Address(0), Address(1), 50_000);
        let mut reaches = |from: u8, to: u8, now_ns| {
            let (_, hops) = send(&mut network, now_ns, from, to);
            let mut reached = false;
            network.switch(hops[0].at_ns, &hops[0], &mut |_| reached = true);
            reached
        };
        assert!(!reaches(0, 1, 0));
        assert!(reaches(1, 0, 0));
        assert!(reaches(0, 1, 50_000));
    }
}
