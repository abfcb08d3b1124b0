//! A box with an NVMe controller and an initiator, a hub between them, in virtual time and one thread.

use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_initiator::nvme::Config;
use etherslot_initiator::{BufferClass, Disk, Done, Initiator, Op, Request};
use etherslot_netio::impair::{Impaired, Impairment};
use etherslot_netio::memory::{Hub, HubConfig, MemoryPort};
use etherslot_netio::{Address, Port};
use etherslot_node::{BoxLimits, BoxNode};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::Function;
use etherslot_session::Config as SessionConfig;
use etherslot_storage::memory::{Disk as Medium, Latency, Options as MediumOptions};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;

pub(crate) const MS: u64 = 1_000_000;
const BOX: Address = Address::Memory(0);
const HOST: u32 = 1;
const ROUND_NS: u64 = 10_000;

/// What makes the Function that is in the box.
pub(crate) type Make = fn(Nvme) -> Box<dyn Function>;

pub(crate) struct World {
    pub(crate) now_ns: u64,
    pub(crate) medium: Medium,
    pub(crate) initiator: Initiator<Address>,
    io_box: Option<(BoxNode<Address>, Impaired<MemoryPort>)>,
    port: Impaired<MemoryPort>,
    hub: Hub,
    impairment: Impairment,
    lives: u64,
    make: Make,
    cmb: bool,
    max_transfer_bytes: usize,
}

/// A few queues of small depth, and times that do not let a test wait for long.
pub(crate) fn config() -> Config {
    Config {
        queue_depth: 16,
        buffers: vec![BufferClass { bytes: 64 << 10, count: 32 }],
        command_timeout_ns: 100 * MS,
        give_up_ns: 20_000 * MS,
        ..Config::default()
    }
}

fn session(node: u8) -> SessionConfig {
    let ns = 300 * MS;
    SessionConfig {
        node: NodeId([node; 16]),
        max_frame_bytes: 9000,
        dead_after_ns: ns,
        ..SessionConfig::default()
    }
}

impl World {
    pub(crate) fn new(config: Config) -> Self {
        Self::with(config, &Impairment::default(), |nvme| Box::new(nvme))
    }

    pub(crate) fn with(config: Config, impairment: &Impairment, make: Make) -> Self {
        let latency = Latency { read_ns: 5_000, write_ns: 8_000, flush_ns: 20_000, jitter_ns: 10_000 };
        let options = MediumOptions { bytes: 16 << 20, latency, depth: 1024, ..MediumOptions::default() };
        let hub = Hub::new(HubConfig::default());
        let port = Impaired::new(hub.open(HOST).unwrap(), impairment);
        let cmb = config.submission == etherslot_initiator::nvme::Submission::ControllerMemory;
        let largest = config.buffers.iter().map(|class| class.bytes).max().unwrap_or(0);
        let mut world = Self {
            now_ns: MS,
            medium: Medium::new(options),
            initiator: Initiator::new(session(2), 2, Name::new("disk").unwrap(), BOX, config),
            io_box: None,
            port,
            hub,
            impairment: *impairment,
            lives: 10,
            make,
            cmb,
            max_transfer_bytes: largest.max(1 << 20),
        };
        world.start_box();
        world
    }

    /// A world whose disk is ready.
    pub(crate) fn ready(config: Config) -> Self {
        let mut world = Self::new(config);
        world.wait(|world| world.initiator.is_ready());
        world
    }

    /// A box on the medium, with a life of its own.
    pub(crate) fn start_box(&mut self) {
        self.lives += 1;
        let nvme = Nvme::new(NvmeConfig {
            namespaces: vec![Namespace::new(Box::new(self.medium.medium()), 512)],
            cmb_bytes: self.cmb.then_some(1 << 20),
            ..NvmeConfig::default().with_max_transfer(self.max_transfer_bytes)
        });
        let function = (self.make)(nvme.unwrap());
        let endpoint = Box::new(Endpoint::new(function, EndpointConfig::default()));
        let functions = vec![(Name::new("disk").unwrap(), endpoint)];
        let node = BoxNode::new(&session(1), BoxLimits::default(), self.lives, functions);
        let port =
            Impaired::new(self.hub.open(0).unwrap(), &Impairment { seed: self.lives, ..self.impairment });
        self.io_box = Some((node, port));
    }

    pub(crate) fn kill_box(&mut self) {
        self.io_box = None;
    }

    pub(crate) fn step(&mut self) {
        self.now_ns += ROUND_NS;
        let now_ns = self.now_ns;
        let Self { initiator, port, .. } = self;
        initiator.transmit(now_ns, &mut |to, frames| port.send(to, frames));
        if let Some((node, port)) = &mut self.io_box {
            port.tick(now_ns);
            while port.receive(&mut |from, frame| node.receive(now_ns, from, frame)) != 0 {}
            while node.poll(now_ns) {}
            node.transmit(now_ns, &mut |to, frames| port.send(to, frames));
        }
        port.tick(now_ns);
        while port.receive(&mut |from, frame| initiator.receive(now_ns, from, frame)) != 0 {}
        initiator.poll(now_ns);
    }

    /// Steps until it is so; not for ever.
    pub(crate) fn wait(&mut self, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until_ns = self.now_ns + 60_000 * MS;
        while !is_so(self) {
            assert!(self.now_ns < until_ns, "it does not come about: {:?}", self.initiator.failure());
            self.step();
        }
    }

    pub(crate) fn disk(&mut self) -> &mut dyn Disk {
        &mut self.initiator
    }

    /// One request from start to end.
    pub(crate) fn one(&mut self, op: Op, first_block: u64, blocks: u32, data: &[u8]) -> (Done, Vec<u8>) {
        let bytes = blocks as usize * 512;
        let buffer = self.disk().take_buffer(bytes.max(1)).expect("a buffer");
        self.disk().data_mut(&buffer)[..data.len()].copy_from_slice(data);
        let request = Request { token: 7, op, first_block, blocks, buffer: Some(buffer) };
        self.disk().submit(request).expect("taken");
        let mut ended = None;
        self.wait(|world| {
            world.disk().poll(&mut |done| ended = Some(done));
            ended.is_some()
        });
        let mut done = ended.unwrap();
        let buffer = done.buffer.take().expect("it comes back");
        let data = self.disk().data(&buffer)[..bytes].to_vec();
        self.disk().give_back(buffer);
        (done, data)
    }
}
