//! How fast the back ends are: frames a second, one way, over a veth pair between two network namespaces, one core a side.
//!
//! `cargo run --release -p etherslot-netio --example link_rate [SECONDS]` (root). Back ends and sizes are interleaved and
//! repeated; the median is printed. The memory hub has one thread for both sides. Behind the rates stands the round-trip time of
//! a frame of 64 bytes when both sides poll.
#![allow(unsafe_code)] // Leaving the network namespace of the process.
#![allow(clippy::cast_precision_loss)] // Rates.

use std::io::IsTerminal;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use etherslot_netio::memory::{Hub, HubConfig};
use etherslot_netio::packet::{PacketConfig, PacketPort};
use etherslot_netio::ring::{RingConfig, RingPort};
use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::xdp::{XdpConfig, XdpPort};
use etherslot_netio::{Address, Port};
use rustix::thread::{CpuSet, UnshareFlags};

const SIZES: [usize; 4] = [64, 256, 1452, 8952];
const ROUNDS: usize = 5;
const HUB: &str = "/run/etherslot-link-rate";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    Packet,
    Udp,
    UdpOffload,
    Xdp,
    Ring,
    Memory,
}

const LINKS: [(Link, &str); 6] = [
    (Link::Packet, "AF_PACKET"),
    (Link::Udp, "UDP, single datagrams"),
    (Link::UdpOffload, "UDP, GSO and GRO"),
    (Link::Xdp, "AF_XDP, generic"),
    (Link::Ring, "shared memory"),
    (Link::Memory, "memory, one thread"),
];

impl Link {
    fn open(self, side: usize) -> Box<dyn Port> {
        let udp = |offload| {
            let bind = format!("10.99.0.{}:4700", side + 1).parse().expect("an address");
            let port = UdpPort::open(&UdpConfig { offload, ..UdpConfig::new(bind) });
            Box::new(port.expect("a UDP port"))
        };
        match self {
            Self::Packet => Box::new(
                PacketPort::open(&PacketConfig::new(["left", "right"][side])).expect("a packet port"),
            ),
            Self::Udp => udp(false),
            Self::UdpOffload => udp(true),
            Self::Xdp => {
                Box::new(XdpPort::open(&XdpConfig::new(["left", "right"][side])).expect("an XDP port"))
            }
            Self::Ring => {
                Box::new(RingPort::open(&RingConfig::new(HUB, side as u32)).expect("a port of the hub"))
            }
            Self::Memory => unreachable!("it has no sides"),
        }
    }
}

/// One measurement: what the sender is to do, and where the receiver counts.
struct Shared {
    stop: AtomicBool,
    received: AtomicU64,
}

static SHARED: Shared = Shared { stop: AtomicBool::new(false), received: AtomicU64::new(0) };

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// A namespace and a core for this thread.
fn settle(core: usize) {
    // SAFETY: only the network namespace of this thread changes.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }
        .expect("root, to make a network namespace");
    let mut cores = CpuSet::new();
    cores.set(core % std::thread::available_parallelism().map_or(1, usize::from));
    rustix::thread::sched_setaffinity(None, &cores).expect("a core");
}

fn send_until_stopped(port: &mut dyn Port, to: &Address, bytes: usize) {
    let frame = vec![7; bytes];
    let burst = [&frame[..]; 64];
    while !SHARED.stop.load(Ordering::Relaxed) {
        port.send(to, &burst);
    }
}

/// The receiver's side of a round trip.
fn send_back_until_stopped(port: &mut dyn Port) {
    let mut last = None;
    while !SHARED.stop.load(Ordering::Relaxed) {
        port.receive(&mut |from, _| last = Some(*from));
        if let Some(from) = last.take() {
            port.send(&from, &[&[7; 64]]);
        }
    }
}

/// Median time of a frame of 64 bytes to the receiver and back, in microseconds.
fn round_trip(link: Link, to: &Address, time: Duration) -> f64 {
    let mut port = link.open(0);
    let mut times = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let start = Instant::now();
        port.send(to, &[&[7; 64]]);
        let mut arrived = 0;
        while arrived == 0 && start.elapsed() < Duration::from_millis(10) {
            port.receive(&mut |_, _| arrived += 1);
        }
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    SHARED.stop.store(true, Ordering::SeqCst);
    median(&mut times)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

fn receive_until_stopped(port: &mut dyn Port) {
    while !SHARED.stop.load(Ordering::Relaxed) {
        port.receive(&mut |_, _| {});
        SHARED.received.store(port.counters().rx_frames, Ordering::Relaxed);
    }
}

/// Frames a second through the hub.
fn memory_rate(bytes: usize, time: Duration) -> f64 {
    let hub = Hub::new(HubConfig::default());
    let (mut a, mut b) = (hub.open(0).expect("port 0"), hub.open(1).expect("port 1"));
    let frame = vec![7; bytes];
    let burst = [&frame[..]; 64];
    let start = Instant::now();
    while start.elapsed() < time {
        a.send(&Address::Memory(1), &burst);
        b.receive(&mut |_, _| {});
    }
    b.counters().rx_frames as f64 / start.elapsed().as_secs_f64()
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(0.5, |text| text.parse().expect("seconds"));
    let time = Duration::from_secs_f64(seconds);
    let (addresses, address) = mpsc::channel::<Address>();
    // The receiver's port must be gone before another binds its address.
    let (ends, end) = mpsc::channel();
    let (thread_ids, thread_id) = mpsc::channel();
    let (jobs, receiver_jobs) = mpsc::channel::<(Link, bool)>();
    std::thread::spawn(move || {
        settle(1);
        thread_ids.send(rustix::thread::gettid()).expect("a listener");
        let mut configured = false;
        while let Ok((link, sends_back)) = receiver_jobs.recv() {
            if !configured {
                ip("address add 10.99.0.2/24 dev right");
                ip("link set right mtu 9000 up");
                configured = true;
            }
            let mut port = link.open(1);
            addresses.send(port.address()).expect("a listener");
            if sends_back {
                send_back_until_stopped(&mut *port);
            } else {
                receive_until_stopped(&mut *port);
            }
            drop(port);
            ends.send(()).expect("a listener");
        }
    });
    settle(0);
    let peer = thread_id.recv().expect("the receiver's thread");
    ip(&format!("link add name left mtu 9000 type veth peer name right netns {}", peer.as_raw_nonzero()));
    ip("address add 10.99.0.1/24 dev left");
    ip("link set left up");
    let mut rates = vec![vec![Vec::new(); SIZES.len()]; LINKS.len()];
    let mut trips = vec![Vec::new(); LINKS.len()];
    let total = ROUNDS * SIZES.len() * LINKS.len();
    let mut done = 0;
    let ready = |link, sends_back| {
        SHARED.stop.store(false, Ordering::SeqCst);
        SHARED.received.store(0, Ordering::SeqCst);
        jobs.send((link, sends_back)).expect("the receiver's thread");
        address.recv().expect("the receiver's thread")
    };
    for _ in 0..ROUNDS {
        for (row, &(link, _)) in LINKS.iter().enumerate().filter(|(_, (link, _))| *link != Link::Memory) {
            let to = ready(link, true);
            trips[row].push(round_trip(link, &to, time));
            end.recv().expect("the receiver's thread");
        }
        for (size, &bytes) in SIZES.iter().enumerate() {
            for (row, &(link, _)) in LINKS.iter().enumerate() {
                if std::io::stderr().is_terminal() {
                    eprint!("\r{done}/{total} ");
                }
                done += 1;
                rates[row][size].push(if link == Link::Memory {
                    memory_rate(bytes, time)
                } else {
                    let to = ready(link, false);
                    let rate = link_rate(link, &to, bytes, time);
                    end.recv().expect("the receiver's thread");
                    rate
                });
            }
        }
    }
    eprint!("\r");
    println!(
        "Mframes/s (Gbit/s), and us of a round trip; median of {ROUNDS} rounds of {seconds} s, MTU 9000"
    );
    print!("{:24}", "back end");
    for bytes in SIZES {
        print!("{:>16}", format!("{bytes} B"));
    }
    println!("{:>16}", "round trip");
    for (((_, name), row), trips) in LINKS.iter().zip(&mut rates).zip(&mut trips) {
        print!("{name:24}");
        for (rates, bytes) in row.iter_mut().zip(SIZES) {
            let median = median(rates);
            if median == 0.0 {
                // Longer than it carries.
                print!("{:>16}", "-");
                continue;
            }
            print!("{:>16}", format!("{:.2} ({:.1})", median / 1e6, median * bytes as f64 * 8.0 / 1e9));
        }
        if trips.is_empty() {
            println!("{:>16}", "-");
        } else {
            println!("{:>16.2}", median(trips));
        }
    }
}

/// Frames a second that the receiver counts while this thread sends.
fn link_rate(link: Link, to: &Address, bytes: usize, time: Duration) -> f64 {
    let mut port = link.open(0);
    let timer = std::thread::spawn(move || {
        // The first tenth fills queues and caches.
        std::thread::sleep(time / 10);
        let (start, before) = (Instant::now(), SHARED.received.load(Ordering::Relaxed));
        std::thread::sleep(time);
        let received = SHARED.received.load(Ordering::Relaxed) - before;
        let rate = received as f64 / start.elapsed().as_secs_f64();
        SHARED.stop.store(true, Ordering::SeqCst);
        rate
    });
    send_until_stopped(&mut *port, to, bytes);
    timer.join().expect("the timer")
}
