//! The bounds of an engine, and the names of what it holds.

/// A protection domain; any number that its owner chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pd(pub u16);

/// A queue pair's number: what the peer puts into segments for it. 0 is the node itself, 1 is not given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u16);

/// A completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CqId(pub u16);

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SrqId(pub u16);

/// The node at the other end of a session. The owner numbers its sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PeerId(pub u16);

/// How much there may be of everything.
#[derive(Clone, Debug)]
pub struct Config {
    /// Queue pairs; rounded up to a power of two, 2 to 32,768.
    pub qps: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// Peers: their numbers are below this.
    pub peers: usize,
    /// Regions and windows, together.
    pub stags: usize,
    /// Pages of all regions together.
    pub pages: usize,
    /// CQEs of a CQ at most.
    pub cqes: usize,
    /// Blocks of an SQ, RQ or SRQ at most.
    pub blocks: usize,
    /// Reads and Atomics of a QP under way at most, in either direction, 1 to 128.
    pub reads: u8,
    /// Events that wait to be fetched.
    pub events: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            qps: 1024,
            cqs: 1024,
            srqs: 64,
            peers: 64,
            stags: 4096,
            pages: 1 << 20,
            cqes: 1 << 20,
            blocks: 1 << 15,
            reads: 16,
            events: 1024,
        }
    }
}

impl Config {
    /// The nearest that can be.
    pub(crate) fn clamped(&self) -> Self {
        Self {
            qps: self.qps.clamp(2, 1 << 15).next_power_of_two(),
            cqs: self.cqs.clamp(1, 1 << 16),
            srqs: self.srqs.min(1 << 16),
            peers: self.peers.clamp(1, 1 << 16),
            stags: self.stags.clamp(2, 1 << 24),
            pages: self.pages.min(1 << 30),
            cqes: self.cqes.clamp(1, 1 << 22),
            blocks: self.blocks.clamp(16, 1 << 15),
            reads: self.reads.clamp(1, 128),
            events: self.events.max(16),
        }
    }
}
