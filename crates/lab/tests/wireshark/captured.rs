//! A host and a box over a bad link, in virtual time, each with a capture at its Port; what the dissector makes of the captures is held
//! against what the nodes counted.

use std::fs::File;
use std::path::{Path, PathBuf};

use etherslot_devices::nvme::{Config as NvmeConfig, Namespace, Nvme};
use etherslot_initiator::nvme::Config;
use etherslot_initiator::{BufferClass, Initiator, Op, Request};
use etherslot_lab::{Run, captured_frames};
use etherslot_netio::impair::{Impaired, Impairment, Way};
use etherslot_netio::memory::{Hub, HubConfig, MemoryPort};
use etherslot_netio::tap::{Tap, TapClock};
use etherslot_netio::{Address, Port};
use etherslot_node::seal::{Credentials, Entropy, FabricKey, NodeKey, Peers, Suites};
use etherslot_node::{BoxLimits, BoxNode, Security};
use etherslot_pci::endpoint::{Endpoint, EndpointConfig};
use etherslot_session::{Config as SessionConfig, Counters};
use etherslot_storage::ram::RamMedium;
use etherslot_wire::NodeId;
use etherslot_wire::control::Name;

use crate::tshark::{Link, Row, read, write};

const MS: u64 = 1_000_000;
const ROUND_NS: u64 = 5_000;
const ETHERNET_BYTES: usize = 14;
const BOX: u32 = 0;
const HOST: u32 = 1;
/// How captures show memory ports 0 and 1.
const MACS: [&str; 2] = ["0a:4d:00:00:00:00", "0a:4d:00:00:00:01"];
const BLOCK_BYTES: u32 = 4096;

type Wire = Tap<Impaired<MemoryPort>>;

struct World {
    now_ns: u64,
    io_box: BoxNode<Address>,
    initiator: Initiator<Address>,
    /// Of the box and of the host.
    ports: [Wire; 2],
    /// Frames of each that the link lost.
    lost: [u64; 2],
}

fn key(node: u32) -> NodeKey {
    NodeKey::from_bytes([node as u8 + 1; 32])
}

fn security(node: u32) -> Security {
    let fabric = FabricKey::from_bytes([7; 32]);
    let credentials = Credentials { fabric, node: key(node), peers: Peers::Fabric, suites: Suites::ALL };
    Security { credentials, entropy: Entropy::new([node as u8 + 1; 32]) }
}

fn session(node: u32, has_keys: bool) -> SessionConfig {
    SessionConfig {
        node: if has_keys { key(node).public().node_id("") } else { NodeId([node as u8 + 1; 16]) },
        max_frame_bytes: 1500,
        ..SessionConfig::default()
    }
}

fn capture_of(run: &Run, node: u32) -> PathBuf {
    run.path(&format!("node{node}.pcapng"))
}

impl World {
    fn new(run: &Run, impairment: &Impairment, has_keys: bool) -> Self {
        let medium = RamMedium::new(16 << 20, false).unwrap();
        let nvme = Nvme::new(NvmeConfig {
            namespaces: vec![Namespace::new(Box::new(medium), BLOCK_BYTES)],
            ..NvmeConfig::default()
        });
        let endpoint = Endpoint::new(Box::new(nvme.unwrap()), EndpointConfig::default());
        let name = Name::new("disk").unwrap();
        let functions = vec![(name, Box::new(endpoint))];
        let mut io_box = BoxNode::new(&session(BOX, has_keys), BoxLimits::default(), 1, functions);
        let config = Config {
            queue_depth: 32,
            buffers: vec![BufferClass { bytes: 64 << 10, count: 32 }],
            ..Config::default()
        };
        let to = Address::Memory(BOX);
        let mut initiator = Initiator::new(session(HOST, has_keys), 2, name, to, config);
        if has_keys {
            io_box.protect(security(BOX));
            initiator.protect(security(HOST));
        }
        let hub = Hub::new(HubConfig { max_frame_bytes: 1500, ..HubConfig::default() });
        let ports = [BOX, HOST].map(|node| {
            let seed = impairment.seed + u64::from(node);
            let port = Impaired::new(hub.open(node).unwrap(), &Impairment { seed, ..*impairment });
            let out = Box::new(File::create(capture_of(run, node)).unwrap());
            Tap::new(port, out, TapClock::Ticks)
        });
        Self { now_ns: MS, io_box, initiator, ports, lost: [0; 2] }
    }

    fn step(&mut self) {
        self.now_ns += ROUND_NS;
        let now_ns = self.now_ns;
        let Self { io_box, initiator, ports: [of_box, of_host], .. } = self;
        for port in [&mut *of_box, &mut *of_host] {
            port.tick(now_ns);
        }
        while of_box.receive(&mut |from, frame| io_box.receive(now_ns, from, frame)) != 0 {}
        while io_box.poll(now_ns) {}
        io_box.transmit(now_ns, &mut |to, frames| of_box.send(to, frames));
        while of_host.receive(&mut |from, frame| initiator.receive(now_ns, from, frame)) != 0 {}
        initiator.poll(now_ns);
        initiator.transmit(now_ns, &mut |to, frames| of_host.send(to, frames));
    }

    /// `count` requests of many sizes, reads and writes in turn, eight at a time; then the link is left to settle.
    fn work(&mut self, count: u64) {
        let (mut submitted, mut done, mut rounds) = (0, 0, 0);
        while done < count {
            rounds += 1;
            assert!(rounds < 10_000_000, "no progress: {:?}", self.initiator.failure());
            self.step();
            let Some(disk) = self.initiator.disk() else { continue };
            let mut back = Vec::new();
            disk.poll(&mut |one| {
                assert!(one.result.is_ok());
                done += 1;
                back.extend(one.buffer);
            });
            for buffer in back {
                disk.give_back(buffer);
            }
            while submitted < count && submitted - done < 8 {
                let blocks = [1, 2, 7, 16][submitted as usize / 2 % 4];
                let buffer = disk.take_buffer((blocks * BLOCK_BYTES) as usize).unwrap();
                let op = if submitted % 2 == 0 { Op::Write { durable: false } } else { Op::Read };
                let first_block = submitted * 16 % 4096;
                disk.submit(Request { token: submitted, op, first_block, blocks, buffer: Some(buffer) })
                    .unwrap();
                submitted += 1;
            }
        }
        for _ in 0..20_000 {
            self.step();
        }
        for (port, lost) in self.ports.iter_mut().zip(&mut self.lost) {
            port.flush();
            *lost = port.port_mut().tx_faults().lost;
        }
    }

    fn session(&self, node: u32) -> Counters {
        let sessions = if node == BOX {
            self.io_box.hosts().map(|(_, session, _)| *session.counters()).collect::<Vec<_>>()
        } else {
            self.initiator.node().sessions().map(|(_, session)| *session.counters()).collect()
        };
        assert_eq!(sessions.len(), 1);
        sessions[0]
    }
}

const LOSSY: Impairment = Impairment {
    loss: 0.02,
    duplicate: 0.01,
    reorder: 0.01,
    corrupt: 0.0,
    delay_ns: (20_000, 60_000),
    seed: 5,
    way: Way::Tx,
    pool_frames: 1024,
};

const FIELDS: &[&str] = &[
    "frame.number",
    "eth.src",
    "_ws.malformed",
    "_ws.expert.message",
    "etherslot.refused",
    "etherslot.kind",
    "etherslot.check.status",
    "etherslot.flags.retransmission",
    "etherslot.flags.sealed",
    "etherslot.retransmission_of",
    "etherslot.duplicate_of",
    "etherslot.missing",
    "etherslot.late",
    "etherslot.handshake.step",
    "etherslot.sealed_body",
    "etherslot.record.parts",
    "etherslot.record.kind",
    "etherslot.tlp.type",
    "etherslot.tlp.request_in",
    "etherslot.tlp.completion_in",
    "etherslot.tlp.time",
    "etherslot.unasked",
    "etherslot.unanswered",
    "_ws.col.Info",
];

fn dissect(run: &Run, capture: &Path) -> Vec<Row> {
    let rows = read(run, capture, &["etherslot.check:TRUE"], FIELDS);
    assert!(rows.len() > 1000, "{} frames", rows.len());
    for row in &rows {
        assert!(!row.has("_ws.malformed") && !row.has("etherslot.refused"), "{row:?}");
        assert!(!row.all("_ws.expert.message").iter().any(|message| message.contains("Lua")), "{row:?}");
    }
    rows
}

fn count(rows: &[&Row], is_so: impl Fn(&Row) -> bool) -> u64 {
    rows.iter().filter(|row| is_so(row)).count() as u64
}

/// Values of a field in all rows.
fn values(rows: &[&Row], field: &str) -> u64 {
    rows.iter().map(|row| row.all(field).len() as u64).sum()
}

/// What one capture shows that both sides' counters say, too. `rows` are those of `node`'s capture.
fn agree_with_counters(world: &World, node: u32, rows: &[Row]) {
    let (sent, received): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.text("eth.src") == MACS[node as usize]);
    let counters = world.session(node);
    assert!(counters.retransmissions > 20, "{counters:?}");
    let said = count(&sent, |row| row.number("etherslot.flags.retransmission") == Some(1));
    assert_eq!(said, counters.retransmissions, "the sender's own marks");
    assert_eq!(values(&sent, "etherslot.retransmission_of"), counters.retransmissions, "found by sequence");
    assert_eq!(values(&sent, "etherslot.duplicate_of") + values(&sent, "etherslot.missing"), 0);

    // What came twice was sent again, or doubled on the way.
    assert_eq!(values(&received, "etherslot.retransmission_of"), counters.duplicates);
    assert_eq!(values(&received, "etherslot.duplicate_of"), counters.dropped_replay);
    assert!(counters.dropped_replay > 5);

    // What was not seen and did not come later was lost on the way.
    let missing: u64 = received.iter().filter_map(|row| row.number("etherslot.missing")).sum();
    let late = values(&received, "etherslot.late");
    let lost = world.lost[1 - node as usize];
    assert!(lost > 20 && late > 5, "{lost} lost, {late} late");
    // Handshakes have no packet numbers, and nothing comes behind the last frame.
    let found = missing - late;
    assert!(found <= lost && lost <= found + 2, "{found} of {lost} found missing");
}

#[test]
#[ignore = "needs tshark: ./run test wireshark"]
fn pairs_and_retransmissions_are_those_that_the_nodes_counted() {
    crate::ready();
    let run = Run::new("dissect").unwrap();
    let mut world = World::new(&run, &LOSSY, false);
    world.work(300);
    let mut pairs = Vec::new();
    for node in [BOX, HOST] {
        let rows = dissect(&run, &capture_of(&run, node));
        let all: Vec<&Row> = rows.iter().collect();
        assert_eq!(count(&all, |row| row.number("etherslot.check.status") != Some(1)), 0);
        agree_with_counters(&world, node, &rows);

        let new: Vec<&Row> = all
            .iter()
            .copied()
            .filter(|row| !row.has("etherslot.retransmission_of") && !row.has("etherslot.duplicate_of"))
            .collect();
        let of_type = |wanted: &[&str]| -> u64 {
            let types = new.iter().flat_map(|row| row.all("etherslot.tlp.type"));
            types.filter(|name| wanted.contains(&name.as_str())).count() as u64
        };
        let requests = of_type(&["MRd", "CfgRd0", "CfgRd1", "CfgWr0", "CfgWr1"]);
        let completions = of_type(&["Cpl", "CplD"]);
        assert_eq!(values(&all, "etherslot.tlp.completion_in"), requests, "every Request has its Completion");
        assert_eq!(values(&all, "etherslot.tlp.request_in"), completions, "every Completion has its Request");
        assert!(
            values(&all, "etherslot.retransmission_of") > world.session(node).retransmissions,
            "some came twice"
        );
        assert_eq!(values(&all, "etherslot.unasked") + values(&all, "etherslot.unanswered"), 0);
        assert!(
            all.iter().flat_map(|row| row.all("etherslot.tlp.time")).all(|time| time.as_str() > "0.0000")
        );
        assert!(values(&all, "etherslot.record.parts") > 20, "records in parts");

        // The Function's reads, as the host counts them.
        let host = world.initiator.node();
        let reads: u64 = host.slot_counters().map(|slot| slot.dma_reads).sum();
        let writes: u64 = host.slot_counters().map(|slot| slot.dma_writes + slot.interrupts).sum();
        let of_box: Vec<&Row> =
            new.iter().copied().filter(|row| row.text("eth.src") == MACS[BOX as usize]).collect();
        let typed = |name: &str| {
            of_box.iter().flat_map(|row| row.all("etherslot.tlp.type")).filter(|kind| *kind == name).count()
                as u64
        };
        assert_eq!((typed("MRd"), typed("MWr")), (reads, writes));
        assert!(reads > 100 && writes > 100);
        pairs.push((requests, completions));
    }
    assert_eq!(pairs[0], pairs[1], "both ends saw the same");
}

#[test]
#[ignore = "needs tshark: ./run test wireshark"]
fn a_sealed_session_shows_its_handshake_and_its_headers_alone() {
    crate::ready();
    let run = Run::new("dissect-sealed").unwrap();
    let mut world = World::new(&run, &LOSSY, true);
    world.work(150);
    for node in [BOX, HOST] {
        let rows = dissect(&run, &capture_of(&run, node));
        agree_with_counters(&world, node, &rows);
        let (handshake, session): (Vec<&Row>, Vec<&Row>) =
            rows.iter().partition(|row| row.number("etherslot.kind") == Some(6));
        for (step, name) in (1..).zip(["Knock", "Cookie", "Open", "Answer", "Finish"]) {
            let told = count(&handshake, |row| {
                row.number("etherslot.handshake.step") == Some(step)
                    && row.text("_ws.col.Info").contains(name)
            });
            assert!(told > 0, "{name}");
        }
        assert_eq!(count(&session, |row| row.number("etherslot.flags.sealed") != Some(1)), 0);
        assert_eq!(values(&session, "etherslot.record.kind") + values(&session, "etherslot.tlp.type"), 0);
        assert!(values(&session, "etherslot.sealed_body") > 500);
    }
}

/// Some traffic of all kinds: frames of a session without keys, and of one with.
pub(crate) fn traffic(run: &Run) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    for has_keys in [false, true] {
        let mut world = World::new(run, &LOSSY, has_keys);
        world.work(30);
        let captured = captured_frames(&capture_of(run, HOST)).unwrap();
        frames.extend(captured.into_iter().map(|frame| frame[ETHERNET_BYTES..].to_vec()));
    }
    frames
}

#[test]
#[ignore = "needs tshark: ./run test wireshark"]
fn datagrams_show_what_ethernet_shows() {
    crate::ready();
    let run = Run::new("dissect-udp").unwrap();
    let frames = traffic(&run);
    let fields = [
        "etherslot.refused",
        "etherslot.sequence",
        "etherslot.retransmission_of",
        "etherslot.tlp.request_in",
    ];
    let told = |link: Link, preferences: &[&str]| {
        let capture = run.path("udp.pcap");
        write(&capture, frames.iter().map(|frame| (link, &frame[..])));
        read(&run, &capture, preferences, &fields)
            .iter()
            .map(|row| fields.map(|field| row.all(field).to_vec()))
            .collect::<Vec<_>>()
    };
    let on_ethernet = told(Link::Ethernet, &[]);
    assert!(on_ethernet.iter().all(|[refused, sequence, ..]| refused.is_empty() && sequence.len() < 2));
    assert!(on_ethernet.iter().filter(|[.., request]| !request.is_empty()).count() > 50);
    assert_eq!(told(Link::Udp(4700), &[]), on_ethernet, "found by its form");
    let by_port = ["etherslot.heuristic:FALSE", "etherslot.udp_port:4700"];
    assert_eq!(told(Link::Udp(4700), &by_port), on_ethernet, "found by its port");
    let blind = told(Link::Udp(4700), &["etherslot.heuristic:FALSE"]);
    assert!(blind.iter().all(|[_, sequence, ..]| sequence.is_empty()), "not looked for");

    // What segmentation offload leaves in one datagram.
    let capture = run.path("together.pcap");
    let together: Vec<Vec<u8>> = frames.chunks(8).map(<[Vec<u8>]>::concat).collect();
    write(&capture, together.iter().map(|frame| (Link::Udp(4700), &frame[..])));
    let rows = read(&run, &capture, &[], &fields);
    let shown: usize = rows.iter().map(|row| row.all("etherslot.sequence").len()).sum();
    assert_eq!(shown, on_ethernet.iter().filter(|[_, sequence, ..]| !sequence.is_empty()).count());
}
