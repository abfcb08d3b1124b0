//! Boxes with NVMe controllers and DC buffers, and a node that copies between them; a hub in between, in virtual time and one thread.

use etherslot_devices::dc::DcBuffer;
use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_fabric::{DeviceConfig, Key, LeaseConfig, Leases, Presence};
use etherslot_initiator::nvme::Config;
use etherslot_initiator::{Copy, CopyConfig, CopyRange, Direct, Pieces};
use etherslot_netio::impair::{Impaired, Impairment};
use etherslot_netio::memory::{Hub, HubConfig, MemoryPort};
use etherslot_netio::{Address, Port};
use etherslot_node::{BoxLimits, BoxNode, SlotConfig};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::Function;
use etherslot_session::Config as SessionConfig;
use etherslot_storage::memory::{Disk as Medium, Latency, Options as MediumOptions};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::discovery::{Change, Order, Port as Place};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const DISK_BYTES: u64 = 8 << 20;
const HOST: u32 = 7;
const ROUND_NS: u64 = 10_000;

/// What a box has.
#[derive(Clone)]
pub(crate) enum Kind {
    Disk(Medium),
    Dc(u64),
}

type Devices = Vec<(Name, Kind)>;

struct IoBox {
    node: BoxNode<Address>,
    port: Impaired<MemoryPort>,
}

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) direct: Direct<Address>,
    pub(crate) copy: Option<Copy>,
    /// What each box has, by name; absent nodes were killed.
    boxes: Vec<(Devices, Option<IoBox>)>,
    port: Impaired<MemoryPort>,
    hub: Hub,
    impairment: Impairment,
    lives: u64,
    orders: u64,
    /// No frame of the node's reaches anybody, and none reaches it.
    pub(crate) is_cut: bool,
    /// No frame of a box reaches another box.
    pub(crate) are_apart: bool,
}

pub(crate) fn medium(seed: u64) -> Medium {
    let latency = Latency { read_ns: 5_000, write_ns: 8_000, flush_ns: 20_000, jitter_ns: 10_000 };
    Medium::new(MediumOptions { bytes: DISK_BYTES, latency, depth: 1024, seed, ..MediumOptions::default() })
}

/// Fills a disk with what tells each of its blocks from all others.
pub(crate) fn fill(medium: &Medium, seed: u64) {
    let blocks = (0..DISK_BYTES / 512).flat_map(|block| {
        let word = (block ^ seed << 32).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        word.to_le_bytes().into_iter().cycle().take(512)
    });
    medium.poke(0, &blocks.collect::<Vec<u8>>());
}

pub(crate) fn content(medium: &Medium, start: u64, bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    medium.peek(start, &mut data);
    data
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn session(node: u8) -> SessionConfig {
    SessionConfig {
        node: NodeId([node; 16]),
        max_frame_bytes: 9000,
        dead_after_ns: 300 * MS,
        ..SessionConfig::default()
    }
}

fn driver() -> Config {
    Config {
        queue_depth: 64,
        buffers: Vec::new(),
        command_timeout_ns: 3_000 * MS,
        give_up_ns: 30_000 * MS,
        ..Config::default()
    }
}

impl World {
    /// Boxes that have these; the node has all of it, disks in this order.
    pub(crate) fn new(boxes: Vec<Vec<(&str, Kind)>>, impairment: &Impairment) -> Self {
        let hub = Hub::new(HubConfig { ports: HOST + 1, queue_frames: 1024, ..HubConfig::default() });
        let port = Impaired::new(hub.open(HOST).unwrap(), impairment);
        let (mut disks, mut buffer) = (Vec::new(), None);
        for (number, devices) in boxes.iter().enumerate() {
            let address = Address::Memory(number as u32);
            for (device, kind) in devices {
                let slot = SlotConfig { name: name(device), address, hide_msix: false };
                match kind {
                    Kind::Disk(_) => disks.push((slot, driver())),
                    Kind::Dc(_) => buffer = Some(slot),
                }
            }
        }
        let pieces = Pieces { bytes: 128 << 10, count: 16 };
        let named =
            |devices: Vec<(&str, Kind)>| devices.into_iter().map(|(text, kind)| (name(text), kind)).collect();
        let mut world = Self {
            now_ns: MS,
            direct: Direct::new(session(200), 2, disks, buffer, pieces),
            copy: None,
            boxes: boxes.into_iter().map(|devices| (named(devices), None)).collect(),
            port,
            hub,
            impairment: *impairment,
            lives: 10,
            orders: 0,
            is_cut: false,
            are_apart: false,
        };
        world.direct.join_boxes(|address| match address {
            Address::Memory(number) => Some(Place::Ring(*number)),
            _ => None,
        });
        for number in 0..world.boxes.len() {
            world.start(number);
        }
        world
    }

    /// One box with two disks, of which the first is full, and a buffer between.
    pub(crate) fn one_box(impairment: &Impairment) -> (Self, Medium, Medium) {
        let (source, target) = (medium(1), medium(2));
        fill(&source, 1);
        let devices = vec![
            ("source", Kind::Disk(source.clone())),
            ("target", Kind::Disk(target.clone())),
            ("dc", Kind::Dc(2 << 20)),
        ];
        (Self::new(vec![devices], impairment), source, target)
    }

    /// A box with a full disk, another one with an empty disk, and a buffer in one of them.
    pub(crate) fn two_boxes(buffer_in: usize, impairment: &Impairment) -> (Self, Medium, Medium) {
        let (source, target) = (medium(1), medium(2));
        fill(&source, 1);
        let mut boxes =
            vec![vec![("source", Kind::Disk(source.clone()))], vec![("target", Kind::Disk(target.clone()))]];
        boxes[buffer_in].push(("dc", Kind::Dc(2 << 20)));
        (Self::new(boxes, impairment), source, target)
    }

    /// A box's next life.
    pub(crate) fn start(&mut self, number: usize) {
        self.lives += 1;
        let (devices, io_box) = &mut self.boxes[number];
        let functions = devices.iter().map(|(name, kind)| {
            let function: Box<dyn Function> = match kind {
                Kind::Disk(medium) => Box::new(
                    Nvme::new(NvmeConfig {
                        namespaces: vec![Namespace::new(Box::new(medium.medium()), 512)],
                        ..NvmeConfig::default()
                    })
                    .unwrap(),
                ),
                Kind::Dc(bytes) => Box::new(DcBuffer::new(*bytes, 1).unwrap()),
            };
            (*name, Box::new(Endpoint::new(function, EndpointConfig::default())))
        });
        let times = LeaseConfig { hold_ns: 500 * MS, recall_ns: 100 * MS, offer_ns: 3000 * MS };
        let configs: Vec<_> = devices.iter().map(|&(name, _)| DeviceConfig { name, group: None }).collect();
        let node =
            BoxNode::new(&session(number as u8 + 1), BoxLimits::default(), self.lives, functions.collect())
                .with_leases(Leases::new(times, configs))
                .with_boxes(|place| match place {
                    Place::Ring(number) => vec![Address::Memory(*number)],
                    _ => Vec::new(),
                });
        let port = Impaired::new(
            self.hub.open(number as u32).unwrap(),
            &Impairment { seed: self.lives, ..self.impairment },
        );
        *io_box = Some(IoBox { node, port });
    }

    /// The box dies, and what its disks had not made durable may be lost.
    pub(crate) fn kill(&mut self, number: usize) {
        let (devices, io_box) = &mut self.boxes[number];
        *io_box = None;
        for (_, kind) in devices {
            if let Kind::Disk(medium) = kind {
                medium.crash();
            }
        }
    }

    pub(crate) fn node(&self, number: usize) -> &BoxNode<Address> {
        &self.boxes[number].1.as_ref().expect("the box lives").node
    }

    /// An operator gives a device of a box to this node, or to nobody.
    pub(crate) fn give(&mut self, number: usize, device: &str, to: Option<NodeId>) {
        self.orders += 1;
        let change = match to {
            Some(node) => Change::Host(node),
            None => Change::Nobody,
        };
        let (to, device) = (NodeId([number as u8 + 1; 16]), name(device));
        let order = Order { number: self.orders, to, life: 0, device, change, dry_run: false, force: true };
        let key = Key { asker: to, life: 1, number: self.orders };
        let now_ns = self.now_ns;
        let io_box = self.boxes[number].1.as_mut().expect("the box lives");
        io_box.node.leases_mut().order(now_ns, key, &order, &|_| Some(Presence::Up));
    }

    pub(crate) fn step(&mut self) {
        self.now_ns += ROUND_NS;
        let now_ns = self.now_ns;
        let Self { direct, port, copy, is_cut, are_apart, .. } = self;
        if let Some(copy) = copy {
            copy.poll(now_ns, direct);
        }
        direct.transmit(now_ns, &mut |to, frames| if *is_cut { frames.len() } else { port.send(to, frames) });
        for (_, io_box) in &mut self.boxes {
            let Some(IoBox { node, port }) = io_box else { continue };
            port.tick(now_ns);
            while port.receive(&mut |from, frame| node.receive(now_ns, from, frame)) != 0 {}
            for _ in 0..64 {
                if !node.poll(now_ns) {
                    break;
                }
            }
            node.transmit(now_ns, &mut |to, frames| {
                if *are_apart && *to != Address::Memory(HOST) { frames.len() } else { port.send(to, frames) }
            });
        }
        port.tick(now_ns);
        let mut take = |from: &Address, frame: &[u8]| {
            if !*is_cut {
                direct.receive(now_ns, from, frame);
            }
        };
        while port.receive(&mut take) != 0 {}
        direct.poll(now_ns);
    }

    /// Steps until it is so; not for ever.
    pub(crate) fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until_ns = self.now_ns + 120_000 * MS;
        while !is_so(self) {
            assert!(self.now_ns < until_ns, "it does not come about");
            self.step();
        }
    }

    pub(crate) fn run(&mut self, ms: u64) {
        let until_ns = self.now_ns + ms * MS;
        while self.now_ns < until_ns {
            self.step();
        }
    }

    pub(crate) fn begin(&mut self, ranges: &[CopyRange], config: CopyConfig) {
        self.wait(|world| world.direct.is_ready());
        self.copy = Some(Copy::new(&self.direct, ranges, config, self.now_ns).unwrap());
    }

    pub(crate) fn copy(&self) -> &Copy {
        self.copy.as_ref().expect("it has begun")
    }

    pub(crate) fn finish(&mut self) {
        self.wait(|world| world.copy().is_over());
    }

    /// What a Function of a box has counted under this name.
    pub(crate) fn count(&self, number: usize, device: &str, what: &str) -> u64 {
        let mut count = 0;
        let found = self.node(number).functions().find(|(known, _)| *known == name(device));
        if let Some((_, Some(endpoint))) = found {
            endpoint.function().count(&mut |known, value| count += if known == what { value } else { 0 });
        }
        count
    }

    /// Bytes of all DMA that reached the node's own memory.
    pub(crate) fn dma_bytes(&self) -> u64 {
        self.direct.node().slot_counters().map(|slot| slot.dma_write_bytes + slot.dma_read_bytes).sum()
    }
}
