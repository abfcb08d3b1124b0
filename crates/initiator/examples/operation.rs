//! A box and an initiator in one thread, over a link in memory: what an operation costs both of them, for profilers.
//!
//!     valgrind --tool=callgrind target/release/examples/operation --op randread --count 20000
//!
//! What runs in functions named `box_*` is the box's, in `host_*` the host's; the rest is link and load (`bench/src/bin/cost.rs`).

use std::process::ExitCode;
use std::time::Instant;

use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_initiator::nvme::{Config, DataPointers, Submission};
use etherslot_initiator::{BufferClass, Disk, Done, Initiator, Op, Request};
use etherslot_node::seal::{Credentials, Entropy, FabricKey, NodeKey, Peers, Suites};
use etherslot_node::{BoxLimits, BoxNode, Security};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_session::Config as SessionConfig;
use etherslot_storage::ram::RamMedium;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;

const BOX: u8 = 1;
const HOST: u8 = 2;
const USAGE: &str =
    "operation [--op read|write|randread|randwrite] [--block-size BYTES] [--queue-depth N] [--queues N]
          [--count N] [--frame BYTES] [--medium BYTES] [--lba BYTES] [--cmb] [--prp] [--intact]
          [--sealed aes|chacha]
          [--round-ns NS]";

struct Args {
    op: String,
    block_size: usize,
    queue_depth: u16,
    queues: u16,
    count: u64,
    frame: u16,
    medium: u64,
    /// Bytes of a logical block.
    lba: u32,
    cmb: bool,
    prp: bool,
    /// Frames cross memory, as those of a ring do.
    intact: bool,
    /// Sessions have keys, and this cipher.
    sealed: Option<Suites>,
    /// Virtual time that a round of the loop takes.
    round_ns: u64,
}

fn parse() -> Option<Args> {
    let mut args = Args {
        op: "randread".to_owned(),
        block_size: 4096,
        queue_depth: 32,
        queues: 1,
        count: 100_000,
        frame: 9000,
        medium: 64 << 20,
        lba: 4096,
        cmb: false,
        prp: false,
        intact: false,
        sealed: None,
        round_ns: 2_000,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--cmb" => args.cmb = true,
            "--prp" => args.prp = true,
            "--intact" => args.intact = true,
            "--sealed" => {
                args.sealed = Some(match words.next()?.as_str() {
                    "aes" => Suites::ALL,
                    "chacha" => Suites::WITHOUT_AES,
                    _ => return None,
                });
            }
            "--op" => args.op = words.next()?,
            "--block-size" => args.block_size = words.next()?.parse().ok()?,
            "--queue-depth" => args.queue_depth = words.next()?.parse().ok()?,
            "--queues" => args.queues = words.next()?.parse().ok()?,
            "--count" => args.count = words.next()?.parse().ok()?,
            "--frame" => args.frame = words.next()?.parse().ok()?,
            "--medium" => args.medium = words.next()?.parse().ok()?,
            "--lba" => args.lba = words.next()?.parse().ok()?,
            "--round-ns" => args.round_ns = words.next()?.parse().ok()?,
            _ => return None,
        }
    }
    let is_known = matches!(args.op.as_str(), "read" | "write" | "randread" | "randwrite");
    (is_known && args.block_size.is_multiple_of(4096)).then_some(args)
}

/// Frames on their way, in one piece of memory: the link's copies.
#[derive(Default)]
struct Wire {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

impl Wire {
    #[inline(never)]
    fn take(&mut self, burst: &[&[u8]]) -> usize {
        for frame in burst {
            self.bytes.extend_from_slice(frame);
            self.lengths.push(frame.len());
        }
        burst.len()
    }

    fn give(&mut self, mut to: impl FnMut(&[u8])) -> usize {
        let mut rest = &self.bytes[..];
        for &length in &self.lengths {
            let (frame, behind) = rest.split_at(length);
            to(frame);
            rest = behind;
        }
        let frames = self.lengths.len();
        self.bytes.clear();
        self.lengths.clear();
        frames
    }
}

fn key(node: u8) -> NodeKey {
    NodeKey::from_bytes([node; 32])
}

fn security(node: u8, suites: Suites) -> Security {
    let fabric = FabricKey::from_bytes([7; 32]);
    let credentials = Credentials { fabric, node: key(node), peers: Peers::Fabric, suites };
    Security { credentials, entropy: Entropy::new([node; 32]) }
}

struct World {
    now_ns: u64,
    round_ns: u64,
    io_box: BoxNode<u8>,
    initiator: Initiator<u8>,
    wire: Wire,
    frames: u64,
}

impl World {
    fn new(args: &Args) -> Self {
        let medium = RamMedium::new(args.medium, false).expect("memory for the medium");
        let nvme = Nvme::new(NvmeConfig {
            namespaces: vec![Namespace::new(Box::new(medium), args.lba)],
            cmb_bytes: args.cmb.then_some(8 << 20),
            ..NvmeConfig::default()
        });
        let endpoint = Endpoint::new(Box::new(nvme.expect("a valid controller")), EndpointConfig::default());
        let session = |node| SessionConfig {
            node: if args.sealed.is_some() { key(node).public().node_id("") } else { NodeId([node; 16]) },
            max_frame_bytes: args.frame,
            is_link_intact: args.intact || args.sealed.is_some(),
            ..SessionConfig::default()
        };
        let name = Name::new("disk").expect("a valid name");
        let mut io_box =
            BoxNode::new(&session(BOX), BoxLimits::default(), 1, vec![(name, Box::new(endpoint))]);
        let count = usize::from(args.queue_depth) * usize::from(args.queues);
        let config = Config {
            queues: args.queues,
            queue_depth: args.queue_depth,
            buffers: vec![BufferClass { bytes: args.block_size, count }],
            submission: if args.cmb { Submission::ControllerMemory } else { Submission::HostMemory },
            data_pointers: if args.prp { DataPointers::Prp } else { DataPointers::Sgl },
            ..Config::default()
        };
        let mut initiator = Initiator::new(session(HOST), 2, name, BOX, config);
        if let Some(suites) = args.sealed {
            io_box.protect(security(BOX, suites));
            initiator.protect(security(HOST, suites));
        }
        Self { now_ns: 1, round_ns: args.round_ns, io_box, initiator, wire: Wire::default(), frames: 0 }
    }

    /// Frames cross both ways; the initiator has polled afterwards.
    fn step(&mut self) {
        self.now_ns += self.round_ns;
        let now_ns = self.now_ns;
        host_transmit(&mut self.initiator, now_ns, &mut self.wire);
        self.frames += self.wire.give(|frame| box_receive(&mut self.io_box, now_ns, frame)) as u64;
        box_work(&mut self.io_box, now_ns, &mut self.wire);
        self.frames += self.wire.give(|frame| host_receive(&mut self.initiator, now_ns, frame)) as u64;
        host_poll(&mut self.initiator, now_ns);
    }
}

#[inline(never)]
fn host_transmit(initiator: &mut Initiator<u8>, now_ns: u64, wire: &mut Wire) {
    initiator.transmit(now_ns, &mut |_, burst| wire.take(burst));
}

#[inline(never)]
fn host_receive(initiator: &mut Initiator<u8>, now_ns: u64, frame: &[u8]) {
    initiator.receive(now_ns, &BOX, frame);
}

#[inline(never)]
fn host_submit(disk: &mut dyn Disk, request: Request) -> Result<(), String> {
    disk.submit(request).map_err(|refused| refused.reason.to_string())
}

#[inline(never)]
fn host_done(disk: &mut dyn Disk, done: &mut dyn FnMut(Done)) {
    disk.poll(done);
}

#[inline(never)]
fn host_poll(initiator: &mut Initiator<u8>, now_ns: u64) {
    initiator.poll(now_ns);
}

#[inline(never)]
fn box_receive(io_box: &mut BoxNode<u8>, now_ns: u64, frame: &[u8]) {
    io_box.receive(now_ns, &HOST, frame);
}

#[inline(never)]
fn box_work(io_box: &mut BoxNode<u8>, now_ns: u64, wire: &mut Wire) {
    while io_box.poll(now_ns) {}
    io_box.transmit(now_ns, &mut |_, burst| wire.take(burst));
}

fn run(args: &Args) -> Result<(), String> {
    let mut world = World::new(args);
    for _ in 0..1_000_000 {
        if world.initiator.is_ready() {
            break;
        }
        world.step();
    }
    let disk = world.initiator.disk().ok_or("the controller does not get ready")?;
    let blocks = (args.block_size / disk.info().block_bytes as usize) as u32;
    let places = disk.info().blocks / u64::from(blocks);
    let mut buffers = Vec::new();
    while let Some(buffer) = disk.take_buffer(args.block_size) {
        buffers.push(buffer);
    }
    let op = if args.op.ends_with("read") { Op::Read } else { Op::Write { durable: false } };
    let is_random = args.op.starts_with("rand");
    let (mut submitted, mut done, mut failed, mut random, mut rounds) = (0u64, 0u64, 0u64, 1u64, 0u64);
    let frames = world.frames;
    let started = Instant::now();
    while done < args.count {
        rounds += 1;
        let before = done;
        host_done(&mut world.initiator, &mut |one| {
            done += 1;
            failed += u64::from(one.result.is_err());
            buffers.extend(one.buffer);
        });
        while submitted < args.count
            && let Some(buffer) = buffers.pop()
        {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let place = if is_random { random } else { submitted } % places;
            let first_block = place * u64::from(blocks);
            let request = Request { token: submitted, op, first_block, blocks, buffer: Some(buffer) };
            host_submit(&mut world.initiator, request)?;
            submitted += 1;
        }
        if before == done && rounds > 1_000 * args.count + 1_000_000 {
            return Err("no progress".to_owned());
        }
        world.step();
    }
    let elapsed = started.elapsed();
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let per = |value: u64| value as f64 / done as f64;
    println!(
        "{done} operations, {failed} failed, {:.3} s: {:.3} us each, {:.2} frames, {:.2} rounds; {:?}",
        elapsed.as_secs_f64(),
        per(elapsed.as_nanos() as u64) / 1e3,
        per(world.frames - frames),
        per(rounds),
        world.initiator.counters(),
    );
    Ok(())
}

fn main() -> ExitCode {
    let outcome = parse().map_or_else(|| Err(USAGE.to_owned()), |args| run(&args));
    if let Err(error) = outcome {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
