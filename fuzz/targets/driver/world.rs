//! A box with that controller and an initiator, in virtual time, and a user of the disk who keeps account.

use std::cell::RefCell;
use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_fuzz::heap;
use etherslot_initiator::nvme::{Config, Submission};
use etherslot_initiator::{Buffer, BufferClass, Disk, Initiator, Op, Request};
use etherslot_node::{BoxLimits, BoxNode};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_session::Config as SessionConfig;
use etherslot_storage::memory::{Disk as Medium, Latency, Options};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;

use crate::controller::{Controller, Plan};

pub const MS: u64 = 1_000_000;
pub const BUFFERS: [BufferClass; 2] =
    [BufferClass { bytes: 4096, count: 8 }, BufferClass { bytes: 64 << 10, count: 2 }];
const GIVE_UP_NS: u64 = 2_000 * MS;
const BOX: u8 = 1;
const HOST: u8 = 2;
/// How long a frame is under way, ns.
const WAY_NS: u64 = 20_000;
/// Rounds in a row in which a node finds something to do.
const MAX_ROUNDS: usize = 2_000;
/// Steps in a row with a deadline that has passed and nothing done: a program would not sleep meanwhile.
const MAX_AWAKE: usize = 500;
/// What a controller may add to the heap, bytes: two sessions and what waits in them.
const MAX_GROWTH_BYTES: usize = 8 << 20;
/// From the end of all lies to a disk that works again: attempts end by timeouts of the controller's choice, up to 128 s.
const RECOVERY_NS: u64 = 300_000 * MS;

pub struct World {
    pub now_ns: u64,
    pub plan: Rc<RefCell<Plan>>,
    pub initiator: Initiator<u8>,
    medium: Medium,
    io_box: Option<BoxNode<u8>>,
    to_box: VecDeque<Vec<u8>>,
    to_host: VecDeque<Vec<u8>>,
    lives: u64,
    cmb: bool,
    next_token: u64,
    under_way: BTreeSet<u64>,
    /// Buffers that came back.
    spare: Vec<Buffer>,
    heap_bytes: usize,
}

fn session(node: u8) -> SessionConfig {
    SessionConfig {
        node: NodeId([node; 16]),
        max_frame_bytes: 9000,
        window_frames: 32,
        backlog_frames: 16,
        streams: 4,
        half_open: 4,
        ..SessionConfig::default()
    }
}

impl World {
    pub fn new(config: Config) -> Self {
        let config = Config {
            queues: 2,
            queue_depth: 4,
            buffers: BUFFERS.to_vec(),
            command_timeout_ns: 50 * MS,
            give_up_ns: GIVE_UP_NS,
            ..config
        };
        let cmb = config.submission == Submission::ControllerMemory;
        let latency = Latency { read_ns: 5_000, write_ns: 8_000, flush_ns: 20_000, jitter_ns: 10_000 };
        let options = Options { bytes: 128 << 10, depth: 8, latency, ..Options::default() };
        let name = Name::new("disk").expect("a name of letters");
        let mut world = Self {
            now_ns: MS,
            plan: Rc::default(),
            initiator: Initiator::new(session(HOST), 2, name, BOX, config),
            medium: Medium::new(options),
            io_box: None,
            to_box: VecDeque::new(),
            to_host: VecDeque::new(),
            lives: 10,
            cmb,
            next_token: 0,
            under_way: BTreeSet::new(),
            spare: Vec::new(),
            heap_bytes: 0,
        };
        world.start_box();
        world.heap_bytes = heap::taken_bytes();
        world
    }

    /// A box in a life of its own, in place of the one that was.
    pub fn start_box(&mut self) {
        self.lives += 1;
        let nvme = Nvme::new(NvmeConfig {
            namespaces: vec![Namespace::new(Box::new(self.medium.medium()), 512)],
            max_queue_pairs: 4,
            cmb_bytes: self.cmb.then_some(64 << 10),
            commands: 16,
            max_transfer_bytes: 64 << 10,
            large_buffers: 2,
            small_buffer_bytes: 4096,
            small_buffers: 4,
            ..NvmeConfig::default()
        });
        let nvme = nvme.expect("a controller");
        let controller = Box::new(Controller { nvme, plan: Rc::clone(&self.plan) });
        let endpoint = Box::new(Endpoint::new(controller, EndpointConfig::default()));
        let name = Name::new("disk").expect("a name of letters");
        let limits = BoxLimits { sessions: 2 };
        self.io_box = Some(BoxNode::new(&session(BOX), limits, self.lives, vec![(name, endpoint)]));
    }

    pub fn kill_box(&mut self) {
        self.io_box = None;
    }

    /// A round of each node, for as long as there is something to do, and the frames that come of it. True if there were such.
    fn step(&mut self) -> bool {
        let now_ns = self.now_ns;
        let Self { initiator, io_box, to_box, to_host, .. } = self;
        let round = |initiator: &mut Initiator<u8>, to_box: &mut VecDeque<Vec<u8>>| {
            let progress = initiator.poll(now_ns);
            progress
                | initiator.transmit(now_ns, &mut |_, burst| {
                    to_box.extend(burst.iter().map(|frame| frame.to_vec()));
                    burst.len()
                })
        };
        assert!((0..MAX_ROUNDS).any(|_| !round(initiator, to_box)), "the initiator works without end");
        if let Some(node) = io_box {
            let mut round = || {
                let progress = node.poll(now_ns);
                progress
                    | node.transmit(now_ns, &mut |_, burst| {
                        to_host.extend(burst.iter().map(|frame| frame.to_vec()));
                        burst.len()
                    })
            };
            assert!((0..MAX_ROUNDS).any(|_| !round()), "the box works without end");
        }
        self.collect();
        assert!(heap::taken_bytes() <= self.heap_bytes + MAX_GROWTH_BYTES, "the heap grows");
        let any = !self.to_box.is_empty() || !self.to_host.is_empty();
        self.now_ns += if any { WAY_NS } else { 0 };
        for frame in std::mem::take(&mut self.to_box) {
            if let Some(node) = &mut self.io_box {
                node.receive(self.now_ns, &HOST, &frame);
            }
        }
        for frame in std::mem::take(&mut self.to_host) {
            self.initiator.receive(self.now_ns, &BOX, &frame);
        }
        any
    }

    /// Takes what is done: each once, each of those that were submitted.
    fn collect(&mut self) {
        let Self { initiator, under_way, spare, .. } = self;
        Disk::poll(initiator, &mut |done| {
            assert!(under_way.remove(&done.token), "a request ends twice, or was never made");
            spare.extend(done.buffer);
        });
        for buffer in self.spare.drain(..) {
            self.initiator.give_back(buffer);
        }
        assert_eq!(self.initiator.in_flight(), self.under_way.len());
    }

    /// Lets time pass.
    pub fn run(&mut self, for_ns: u64) {
        let until_ns = self.now_ns + for_ns;
        let mut awake = 0;
        while self.now_ns < until_ns {
            if self.step() {
                awake = 0;
                continue;
            }
            let deadlines =
                [self.initiator.deadline_ns(), self.io_box.as_ref().and_then(BoxNode::deadline_ns)];
            let next_ns = deadlines.into_iter().flatten().min().unwrap_or(u64::MAX);
            if next_ns > self.now_ns {
                awake = 0;
                self.now_ns = next_ns.min(until_ns);
            } else {
                awake += 1;
                assert!(awake < MAX_AWAKE, "a deadline passes and nothing happens");
                self.now_ns += WAY_NS;
            }
        }
    }

    /// Runs until it is so; not for ever.
    pub fn run_until(&mut self, for_ns: u64, is_so: impl Fn(&Self) -> bool) -> bool {
        let until_ns = self.now_ns + for_ns;
        while self.now_ns < until_ns && !is_so(self) {
            self.run(MS);
        }
        is_so(self)
    }

    /// A request of any kind. Whether it was taken.
    pub fn submit(&mut self, op: Op, first_block: u64, blocks: u32, bytes: usize) -> bool {
        if self.initiator.disk().is_none() {
            return false;
        }
        let buffer = if matches!(op, Op::Flush) { None } else { self.initiator.take_buffer(bytes) };
        let token = self.next_token;
        match self.initiator.submit(Request { token, op, first_block, blocks, buffer }) {
            Ok(()) => {
                self.next_token += 1;
                assert!(self.under_way.insert(token));
                true
            }
            Err(refused) => {
                if let Some(buffer) = refused.request.buffer {
                    self.initiator.give_back(buffer);
                }
                false
            }
        }
    }

    /// The controller tells the truth: the disk works, or was given up for good. Either way every request ends, and no
    /// buffer is lost.
    pub fn recover(&mut self) {
        self.plan.borrow_mut().repent();
        self.start_box();
        let is_over = |world: &Self| world.initiator.is_ready() || world.initiator.is_shut_down();
        let recovers = self.run_until(RECOVERY_NS, is_over);
        let Self { initiator, .. } = self;
        let (node, sessions) = (initiator.node().counters(), initiator.node().sessions().count());
        let (failure, counters) = (initiator.failure(), initiator.counters());
        assert!(
            recovers,
            "it does not recover: {failure:?}, {counters:?}, device {}, {node:?}, {sessions} sessions",
            initiator.has_device()
        );
        let is_idle = |world: &Self| world.under_way.is_empty();
        assert!(self.run_until(2 * GIVE_UP_NS, is_idle), "{} requests have no end", self.under_way.len());
        if self.initiator.is_ready() {
            let info = self.initiator.info().clone();
            let taken = self.submit(Op::Read, 0, 1, info.block_bytes as usize);
            assert!(taken || info.blocks == 0 || info.block_bytes > 64 << 10, "a disk that takes no request");
            assert!(self.run_until(2 * GIVE_UP_NS, is_idle), "a read has no end");
        }
        for class in BUFFERS {
            let all: Vec<Buffer> =
                std::iter::from_fn(|| self.initiator.take_buffer(class.bytes)).take(class.count).collect();
            assert_eq!(all.len(), class.count, "a buffer of {} bytes is lost", class.bytes);
            all.into_iter().for_each(|buffer| self.initiator.give_back(buffer));
        }
    }
}
