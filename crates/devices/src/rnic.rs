//! An RNIC as a PCI Function: the engine (`etherslot_rdma`) behind the registers, pages and tables of docs/rnic.md.
//!
//! The driver writes tables (`tables`) and rings doorbells (`page`); WQEs are fetched from its memory (`queue`) into the engine, whose
//! look at memory goes by DMA (`dma`): what it reads is fetched first, what it writes, CQEs and interrupts leave in one order
//! (`outbox`). Segments go to and come from the sessions of a [`Network`].
//!
//! Everything is bounded by [`Config`]. What a driver, a user of a QP page or a peer does wrong ends in what the contract says of it:
//! an entry that stays not valid, a doorbell that is counted, a failed WQE, a QP in ERROR.

mod bits;
mod control;
mod dma;
mod function;
mod network;
mod outbox;
mod page;
mod queue;
mod registers;
mod sessions;
mod tables;

pub use network::{Link, Network};
pub use sessions::{Frames, NetworkCounters, Sessions};

use std::collections::VecDeque;

pub use etherslot_rdma::Whereabouts;

use dma::{Dma, Mark, RingId};
use etherslot_rdma::{Engine, Event, PeerId};
use queue::{Pair, Ring};
use tables::Tables;

/// Events, and misses, that wait to be read.
const EVENTS: usize = 256;

/// What an RNIC has room for. Numbers of entries are powers of two.
#[derive(Clone, Debug)]
pub struct Config {
    /// QPs, 2 to 1024.
    pub qps: u32,
    /// CQs, 1 to 1024.
    pub cqs: u32,
    /// SRQs, 1 to 1024.
    pub srqs: u32,
    /// Peers, 1 to 1024.
    pub peers: u32,
    /// STags, 2 to 65,536.
    pub stags: u32,
    /// Entries of the PBLMT, 1 to 2^22.
    pub pages: u32,
    /// Blocks of all SQs, RQs and SRQs together, 1024 to 2^22.
    pub blocks: u32,
    /// Reads and Atomics of a QP under way, 1 to 128.
    pub reads: u8,
    /// MSI-X vectors, 2 to 1024.
    pub vectors: u16,
    /// Told by the configuration space.
    pub serial: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            qps: 256,
            cqs: 256,
            srqs: 64,
            peers: 64,
            stags: 4096,
            pages: 1 << 18,
            blocks: 1 << 19,
            reads: 16,
            vectors: 64,
            serial: 0,
        }
    }
}

/// A number of [`Config`] is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {allowed}")]
pub struct ConfigError {
    /// Which one.
    pub field: &'static str,
    /// What it may be.
    pub allowed: &'static str,
}

impl Config {
    fn check(&self) -> Result<(), ConfigError> {
        let power =
            |count: u32, least: u32, most: u32| count.is_power_of_two() && (least..=most).contains(&count);
        for (fits, field, allowed) in [
            (power(self.qps, 2, 1024), "qps", "a power of two from 2 to 1024"),
            (power(self.cqs, 1, 1024), "cqs", "a power of two from 1 to 1024"),
            (power(self.srqs, 1, 1024), "srqs", "a power of two from 1 to 1024"),
            (power(self.peers, 1, 1024), "peers", "a power of two from 1 to 1024"),
            (power(self.stags, 2, 1 << 16), "stags", "a power of two from 2 to 65536"),
            (power(self.pages, 1, 1 << 22), "pages", "a power of two from 1 to 4194304"),
            ((1024..=1 << 22).contains(&self.blocks), "blocks", "from 1024 to 4194304"),
            ((1..=128).contains(&self.reads), "reads", "1 to 128"),
            ((2..=1024).contains(&self.vectors), "vectors", "2 to 1024"),
        ] {
            if !fits {
                return Err(ConfigError { field, allowed });
            }
        }
        Ok(())
    }

    fn engine(&self) -> Engine {
        let mut engine = Engine::new(&etherslot_rdma::Config {
            qps: self.qps as usize,
            cqs: self.cqs as usize,
            srqs: self.srqs as usize,
            peers: self.peers as usize,
            stags: self.stags as usize,
            pages: self.pages as usize,
            cqes: 1 << 22,
            blocks: 1 << 15,
            reads: self.reads,
            events: EVENTS,
        });
        // No entry of the peer table is valid.
        for peer in 0..self.peers {
            engine.lose_peer(PeerId(peer as u16));
        }
        engine
    }
}

/// A CQ: where its CQEs go.
#[derive(Clone, Copy, Debug, Default)]
struct Cq {
    entry: tables::Cq,
    /// CQEs that were written.
    produced: u32,
}

/// A peer: its session, and how that was when it was looked at last.
#[derive(Clone, Copy, Debug)]
struct Peer {
    session: u16,
    link: Link,
}

/// `QP_COMMAND`.
#[derive(Clone, Copy, Debug, Default)]
struct Command {
    value: u32,
    is_refused: bool,
    until: Option<Mark>,
}

/// The RNIC.
pub struct Rnic {
    config: Config,
    engine: Engine,
    network: Box<dyn Network>,
    dma: Dma,
    tables: Tables,
    pairs: Vec<Pair>,
    cqs: Vec<Option<Cq>>,
    /// SRQs that are there: their owners, and their rings.
    srqs: Vec<(Option<u16>, Ring)>,
    peers: Vec<Option<Peer>>,
    /// The peer of each session.
    by_session: Vec<Option<u16>>,
    /// Rings that are to be fetched from.
    hungry: VecDeque<RingId>,
    /// Blocks that no queue has.
    blocks_left: u32,
    is_enabled: bool,
    fence: Option<Mark>,
    command: Command,
    events: VecDeque<Event>,
    /// EVENTS, bit 0; and the upper half of an event that was read by halves.
    has_events: bool,
    event_high: u32,
    /// STag and page of pages that were absent when they were needed.
    misses: VecDeque<u64>,
    miss_low: u32,
    /// An interrupt of vector 0 is due.
    is_calling: bool,
    now_ns: u64,
}

impl Rnic {
    /// An RNIC as it is after power-on, with these sessions.
    pub fn new(config: Config, network: Box<dyn Network>) -> Result<Self, ConfigError> {
        config.check()?;
        let sessions = network.sessions();
        Ok(Self {
            engine: config.engine(),
            dma: Dma::new(config.qps as usize),
            tables: Tables::new(&config, sessions),
            pairs: (0..config.qps).map(|_| Pair::new()).collect(),
            cqs: vec![None; config.cqs as usize],
            srqs: (0..config.srqs).map(|_| (None, Ring::default())).collect(),
            peers: vec![None; config.peers as usize],
            by_session: vec![None; usize::from(sessions)],
            hungry: VecDeque::new(),
            blocks_left: config.blocks,
            is_enabled: false,
            fence: None,
            command: Command::default(),
            events: VecDeque::with_capacity(EVENTS),
            has_events: false,
            event_high: 0,
            misses: VecDeque::with_capacity(EVENTS),
            miss_low: 0,
            is_calling: false,
            now_ns: 0,
            network,
            config,
        })
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &etherslot_rdma::Counters {
        self.engine.counters()
    }
}

impl std::fmt::Debug for Rnic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rnic")
            .field("is_enabled", &self.is_enabled)
            .field("qps", &self.pairs.iter().filter(|pair| pair.number.is_some()).count())
            .finish_non_exhaustive()
    }
}
