//! A host node with its NVMe driver, a link that loses frames, a box in hardware, and in its slot the NVMe controller of `crates/devices`.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::path::PathBuf;

use etherslot_cosim::Peb;
use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_initiator::nvme::{Config, Failure};
use etherslot_initiator::{BufferClass, Direct, Disk, Done, Initiator, Op, Request};
use etherslot_node::HostNode;
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_pci::function::ResetKind;
use etherslot_pci::{TlpOut, data_lead};
use etherslot_session::{Config as SessionConfig, Mode};
use etherslot_storage::memory::{Disk as Medium, Latency, Options as MediumOptions};
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;
use etherslot_wire::tlp::{Header, MAX_BYTES, MAX_HEADER_BYTES};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

pub(crate) const US: u64 = 1_000;
pub(crate) const MS: u64 = 1_000_000;
/// Where the box is.
pub(crate) const BOX: u8 = 1;
/// TLPs of the device that may wait in front of the hardware.
const DEVICE_QUEUE: usize = 4;
/// Clocks between two rounds of the host and of the device in which nothing has come for them.
const ROUND_CLOCKS: u64 = 512;
const DEVICE_CLOCKS: u64 = 16;

/// A frame on its way: when it comes, order, whether to the host, bytes.
type Flying = Reverse<(u64, u64, bool, Vec<u8>)>;

/// What a world is to be like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u32,
    pub(crate) mode: Mode,
    pub(crate) loss_per_million: u32,
    /// In how many of 100 clocks the device takes no beat, and for how many of 100 stretches of time it has no room for a class.
    pub(crate) pressure: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Self { seed: 1, mode: Mode::Selective, loss_per_million: 0, pressure: 0 }
    }
}

/// What is at the other end of the session: a node with drivers.
pub(crate) trait Drivers {
    fn receive(&mut self, now_ns: u64, frame: &[u8]);
    fn poll(&mut self, now_ns: u64) -> bool;
    fn transmit(&mut self, now_ns: u64, out: &mut VecDeque<Vec<u8>>);
    fn node(&self) -> &HostNode<u8>;
    fn failure(&self) -> Option<&Failure>;
}

macro_rules! drivers {
    ($($host:ty => ($($disk:expr)?);)*) => {$(
        impl Drivers for $host {
            fn receive(&mut self, now_ns: u64, frame: &[u8]) {
                self.receive(now_ns, &BOX, frame);
            }

            fn poll(&mut self, now_ns: u64) -> bool {
                self.poll(now_ns)
            }

            fn transmit(&mut self, now_ns: u64, out: &mut VecDeque<Vec<u8>>) {
                self.transmit(now_ns, &mut |_, frames| {
                    out.extend(frames.iter().map(|frame| frame.to_vec()));
                    frames.len()
                });
            }

            fn node(&self) -> &HostNode<u8> {
                self.node()
            }

            fn failure(&self) -> Option<&Failure> {
                self.failure($($disk)?)
            }
        }
    )*};
}

drivers! {
    Initiator<u8> => ();
    Direct<u8> => (0);
}

pub(crate) struct World<H = Initiator<u8>> {
    pub(crate) peb: Peb,
    pub(crate) initiator: H,
    pub(crate) endpoint: Endpoint,
    pub(crate) medium: Medium,
    plan: Plan,
    rng: SmallRng,
    flying: BinaryHeap<Flying>,
    order: u64,
    rounds: u64,
    is_granted: bool,
}

/// A few requests at once, of up to 64 KiB.
pub(crate) fn config() -> Config {
    Config { queue_depth: 16, buffers: vec![BufferClass { bytes: 64 << 10, count: 16 }], ..Config::default() }
}

pub(crate) fn session(mode: Mode) -> SessionConfig {
    SessionConfig {
        node: NodeId([7; 16]),
        mode,
        max_frame_bytes: 1500,
        port_rate: Some(1_000_000_000),
        noise_ns: 0,
        rto_min_ns: MS,
        ..SessionConfig::default()
    }
}

/// The device's side of the hardware.
struct ToBridge<'a>(&'a mut Peb);

impl TlpOut for ToBridge<'_> {
    fn room(&mut self, _stream: u16) -> usize {
        if self.0.waiting() < DEVICE_QUEUE { MAX_BYTES } else { 0 }
    }

    fn send(&mut self, _stream: u16, header: &Header, data: &[u8]) -> bool {
        let mut bytes = [0; MAX_HEADER_BYTES];
        let length = header.emit(&mut bytes).expect("a header");
        let mut tlp = bytes[..length].to_vec();
        tlp.resize(length + header.data_bytes(), 0);
        let start = length + data_lead(header);
        tlp[start..start + data.len()].copy_from_slice(data);
        self.0.send(tlp);
        true
    }
}

impl World {
    pub(crate) fn new(plan: Plan, config: Config) -> Self {
        Self::with_name(plan, config, "disk")
    }

    /// The host asks for a device of this name; the hardware has one that is called `disk`.
    pub(crate) fn with_name(plan: Plan, config: Config, name: &str) -> Self {
        Self::with(plan, Self::host(&plan, 2, config, name))
    }
}

impl<H: Drivers> World<H> {
    pub(crate) fn with(plan: Plan, initiator: H) -> Self {
        let path: PathBuf =
            std::env::var_os("ETHERSLOT_COSIM_PEB_NODE").expect("./run rtl cosim names the model").into();
        let latency = Latency { read_ns: 5_000, write_ns: 8_000, flush_ns: 20_000, jitter_ns: 10_000 };
        let medium =
            Medium::new(MediumOptions { bytes: 16 << 20, latency, depth: 1024, ..MediumOptions::default() });
        let nvme = Nvme::new(NvmeConfig {
            namespaces: vec![Namespace::new(Box::new(medium.medium()), 512)],
            ..NvmeConfig::default()
        });
        let peb = Peb::load(&path, plan.seed, [9; 16], "disk", plan.mode == Mode::Classic).expect("a model");
        Self {
            peb,
            initiator,
            endpoint: Endpoint::new(Box::new(nvme.expect("a controller")), EndpointConfig::default()),
            medium,
            plan,
            rng: SmallRng::seed_from_u64(u64::from(plan.seed)),
            flying: BinaryHeap::new(),
            order: 0,
            rounds: 0,
            is_granted: false,
        }
    }
}

impl World {
    fn host(plan: &Plan, life: u64, config: Config, name: &str) -> Initiator<u8> {
        let seed = u64::from(plan.seed) << 32 | life;
        Initiator::new(session(plan.mode), seed, Name::new(name).expect("a name"), BOX, config)
    }

    /// A world whose disk is ready.
    pub(crate) fn ready(plan: Plan, config: Config) -> Self {
        let mut world = Self::new(plan, config);
        world.wait("ready", |world| world.initiator.is_ready());
        world
    }

    /// Another host in the place of this one, as if it had started anew.
    pub(crate) fn start_host(&mut self, life: u64, config: Config) {
        self.initiator = Self::host(&self.plan, life, config, "disk");
        self.peb.set_epoch(0x3210_0000 | life as u32);
        self.flying.clear();
    }
}

impl<H: Drivers> World<H> {
    pub(crate) fn now_ns(&self) -> u64 {
        self.peb.now_ns()
    }

    fn launch(&mut self, to_host: bool, frame: Vec<u8>) {
        if !self.rng.random_ratio(self.plan.loss_per_million, 1_000_000) {
            self.order += 1;
            self.flying.push(Reverse((self.now_ns() + 5 * US, self.order, to_host, frame)));
        }
    }

    pub(crate) fn step(&mut self) {
        if self.plan.pressure != 0 {
            self.press();
        }
        if let Some(frame) = self.peb.clock() {
            self.launch(true, frame);
        }
        let now_ns = self.now_ns();
        self.rounds += 1;
        let mut is_due = self.rounds.is_multiple_of(ROUND_CLOCKS);
        while self.flying.peek().is_some_and(|Reverse((at_ns, ..))| *at_ns <= now_ns) {
            let Some(Reverse((_, _, to_host, frame))) = self.flying.pop() else { break };
            if to_host {
                self.initiator.receive(now_ns, &frame);
                is_due = true;
            } else {
                self.peb.land(frame);
            }
        }
        if is_due {
            self.go_on();
        }
        if self.rounds.is_multiple_of(DEVICE_CLOCKS) || !self.peb.tlps.is_empty() {
            self.device(now_ns);
        }
    }

    /// The host does what there is to do.
    pub(crate) fn go_on(&mut self) {
        let now_ns = self.now_ns();
        while self.initiator.poll(now_ns) {}
        let mut out = VecDeque::new();
        self.initiator.transmit(now_ns, &mut out);
        for frame in out {
            self.launch(false, frame);
        }
    }

    /// The device at its Link.
    fn device(&mut self, now_ns: u64) {
        if self.peb.wants_reset() {
            // What is on the Link is lost with it.
            self.endpoint.reset(ResetKind::Conventional);
            self.is_granted = false;
            self.peb.tlps.clear();
            self.peb.set_reset_done(self.peb.waiting() == 0);
            return;
        }
        self.peb.set_reset_done(false);
        if let (Some((payload, read)), false) = (self.peb.grants(), self.is_granted) {
            self.endpoint.attach(payload, read);
            self.is_granted = true;
        }
        while let Some(tlp) = self.peb.tlps.pop_front() {
            let (header, data) = Header::parse(&tlp).expect("the hardware hands on good TLPs");
            self.endpoint.receive(now_ns, &header, data);
        }
        while self.endpoint.poll(now_ns, &mut ToBridge(&mut self.peb), 1) {}
    }

    /// Takes and gives the device room for classes of TLPs.
    fn press(&mut self) {
        let pressure = self.plan.pressure;
        if self.rounds.is_multiple_of(64) {
            let room = (0..3)
                .filter(|_| !self.rng.random_ratio(pressure, 100))
                .fold(0, |room, class| room | 1 << class);
            let ready = !self.rng.random_ratio(pressure, 100);
            self.peb.set_room(room, ready);
        }
    }

    /// Steps until it is so; not for ever.
    pub(crate) fn wait(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until_ns = self.now_ns() + 4_000 * MS;
        while !is_so(self) {
            assert!(
                self.now_ns() < until_ns,
                "never {what}: {:?}, {:?}, {:?}",
                self.initiator.failure(),
                self.peb.stats(),
                self.initiator.node().slot_counters().collect::<Vec<_>>()
            );
            self.step();
        }
    }
}

impl World {
    pub(crate) fn disk(&mut self) -> &mut dyn Disk {
        &mut self.initiator
    }

    /// One request from start to end.
    pub(crate) fn one(&mut self, op: Op, first_block: u64, blocks: u32, data: &[u8]) -> (Done, Vec<u8>) {
        let bytes = blocks as usize * 512;
        let buffer = self.disk().take_buffer(bytes.max(1)).expect("a buffer");
        self.disk().data_mut(&buffer)[..data.len()].copy_from_slice(data);
        self.disk()
            .submit(Request { token: 7, op, first_block, blocks, buffer: Some(buffer) })
            .expect("taken");
        self.go_on();
        let mut ended = None;
        self.wait("done", |world| {
            world.disk().poll(&mut |done| ended = Some(done));
            ended.is_some()
        });
        let mut done = ended.expect("looked at");
        let buffer = done.buffer.take().expect("it comes back");
        let data = self.disk().data(&buffer)[..bytes].to_vec();
        self.disk().give_back(buffer);
        (done, data)
    }
}
