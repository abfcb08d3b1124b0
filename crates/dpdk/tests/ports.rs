//! The demands of netio's suite on devices of DPDK that need no hardware.
//!
//! All in one process, as EAL is started once in it. What needs libdpdk is skipped where there was none at build time.

#[path = "../../netio/tests/namespace/mod.rs"]
mod namespace;
#[path = "../../netio/tests/suite/mod.rs"]
mod suite;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etherslot_dpdk::{DpdkConfig, DpdkPort, OpenError};
use etherslot_netio::Port;
use suite::{Link, frame, suite};

type Demand = fn(Link);

const A: [u8; 6] = [2, 0, 0, 0, 0, 1];
const B: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// One test at a time: EAL's one thread serves them all, and bursts wait for it while it does.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether there is DPDK to test with; `ETHERSLOT_TEST_DPDK` says that there has to be.
fn there_is_dpdk() -> bool {
    match etherslot_dpdk::available() {
        Ok(()) => true,
        Err(error) if std::env::var_os("ETHERSLOT_TEST_DPDK").is_some() => panic!("{error}"),
        Err(error) => {
            println!("skipped: {error}");
            false
        }
    }
}

fn open(device: &str, mac: [u8; 6], max_frame_bytes: usize) -> DpdkPort {
    let config =
        DpdkConfig { mac: Some(mac), max_frame_bytes: Some(max_frame_bytes), ..DpdkConfig::new(device) };
    DpdkPort::open(&config).unwrap_or_else(|error| panic!("{device}: {error}"))
}

/// Ticks until the link is up, and looks for frames, as the calling end of a memif has to before it can get any.
fn until_up(port: &mut DpdkPort) {
    let start = Instant::now();
    while !port.is_up() {
        assert!(start.elapsed() < Duration::from_secs(5), "the link does not come up");
        port.tick(start.elapsed().as_nanos() as u64);
        std::thread::sleep(Duration::from_millis(1));
    }
    // EAL's thread may put one of these off.
    for _ in 0..3 {
        port.receive(&mut |_, frame| panic!("{} bytes arrived unasked", frame.len()));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Both ends of a memif; names and sockets are for this test alone.
fn memif(max_frame_bytes: usize, demand: Demand) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !there_is_dpdk() {
        return;
    }
    let _alone = alone();
    let number = 2 * NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = format!("socket={}", folder.path().join("memif").display());
    let a = open(&format!("net_memif{number},role=server,{socket}"), A, max_frame_bytes);
    let open_b = move || -> Box<dyn Port> {
        let mut b = open(&format!("net_memif{},{socket}", number + 1), B, max_frame_bytes);
        until_up(&mut b);
        Box::new(b)
    };
    let b = open_b();
    demand(Link { back_pressure: true, ..Link::new(Box::new(a), b, open_b) });
}

fn on_memif(demand: Demand) {
    memif(9000, demand);
}

fn on_memif_with_small_frames(demand: Demand) {
    memif(1500, demand);
}

/// Both ends of a veth by a driver for interfaces of the kernel, in a namespace of this test.
fn on_veth(driver: &'static str, mtu: usize, demand: Demand) {
    if !there_is_dpdk() {
        return;
    }
    namespace::with_veth(move || {
        let _alone = alone();
        // The kernel's own frames pass these drivers, too.
        std::fs::write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").expect("a setting of this namespace");
        for interface in ["left", "right"] {
            namespace::ip(&format!("link set {interface} mtu {mtu}"));
        }
        // Addresses of the interfaces: these drivers do not change them.
        let open_port = move |number: usize| {
            let interface = ["left", "right"][number];
            let device = format!("{driver}{number},iface={interface}");
            let mut port =
                DpdkPort::open(&DpdkConfig::new(&device)).unwrap_or_else(|error| panic!("{device}: {error}"));
            while port.receive(&mut |_, _| {}) > 0 {}
            port
        };
        let (a, b) = (open_port(0), open_port(1));
        assert_eq!((a.max_frame_bytes(), b.max_frame_bytes()), (mtu, mtu));
        let reopen_b = move || -> Box<dyn Port> { Box::new(open_port(1)) };
        demand(Link::new(Box::new(a), Box::new(b), reopen_b));
    });
}

fn on_af_packet(demand: Demand) {
    on_veth("net_af_packet", 1500, demand);
}

fn on_af_packet_jumbo(demand: Demand) {
    on_veth("net_af_packet", 9000, demand);
}

/// A vhost-user device and the virtio-user device that uses it.
fn on_vhost(demand: Demand) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    if !there_is_dpdk() {
        return;
    }
    let _alone = alone();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("vhost").display().to_string();
    let mut a = open(&format!("net_vhost{number},iface={socket}"), A, 1500);
    let open_b = move || -> Box<dyn Port> {
        Box::new(open(&format!("net_virtio_user{number},path={socket}"), B, 1500))
    };
    let b = open_b();
    // Vhost takes no frames before its peer has told it of its rings.
    until_up(&mut a);
    let link = Link::new(Box::new(a), b, open_b);
    demand(link);
}

/// What frames over a driver of kernel interfaces have to do. What such a driver has no room for it loses, and does not always
/// tell; and what was sent to an interface that nobody listens at waits there.
macro_rules! veth_suite {
    ($name:ident, $on:path) => {
        mod $name {
            crate::suite::suite!(@ $on, every_frame_arrives_once_and_in_order, a_burst_of_any_length_is_taken_whole,
                the_longest_frame_passes_and_a_longer_one_holds_up_nothing, an_address_of_another_link_is_counted);
        }
    };
}

veth_suite!(af_packet, super::on_af_packet);
veth_suite!(af_packet_jumbo, super::on_af_packet_jumbo);
veth_suite!(vhost, super::on_vhost);
suite!(memif_jumbo, super::on_memif);
suite!(memif_small, super::on_memif_with_small_frames);

/// For [`life_of_a_memif_peer`]: the device to open, and how many frames to send; it stays until it is killed.
const PEER: &str = "ETHERSLOT_TEST_MEMIF_PEER";

/// The other process of the test below.
#[test]
#[ignore = "a part of another test"]
fn life_of_a_memif_peer() {
    let device = std::env::var(PEER).expect("the device");
    let mut port = open(&device, B, 1500);
    let (start, to) = (Instant::now(), format!("{:02x}:00:00:00:00:01", A[0]).parse().expect("an address"));
    let mut number = 0;
    loop {
        port.tick(start.elapsed().as_nanos() as u64);
        port.receive(&mut |_, _| {});
        if port.is_up() {
            number += port.send(&to, &[&frame(number, 64)]) as u32;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// A peer in a process of its own, killed at the end if it was not before.
struct Peer(std::process::Child);

impl Peer {
    fn start(device: &str) -> Self {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
        command.args(["--ignored", "--exact", "life_of_a_memif_peer"]).env(PEER, device);
        let null = std::process::Stdio::null;
        Self(command.stdout(null()).spawn().expect("it starts"))
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_memif_peer_that_is_killed_and_comes_back_is_heard_again() {
    if !there_is_dpdk() {
        return;
    }
    let _alone = alone();
    for (number, role_of_ours, role_of_peer) in [(400, ",role=server", ""), (402, "", ",role=server")] {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = format!("socket={}", folder.path().join("memif").display());
        let theirs = format!("net_memif{}{role_of_peer},{socket}", number + 1);
        // A server that is there later is called again.
        let mut port = open(&format!("net_memif{number}{role_of_ours},{socket}"), A, 1500);
        let start = Instant::now();
        for life in 0..4 {
            let peer = Peer::start(&theirs);
            let until = Instant::now() + Duration::from_secs(20);
            let mut heard = 0;
            while heard < 100 {
                assert!(Instant::now() < until, "life {life}: {heard} frames heard, up: {}", port.is_up());
                port.tick(start.elapsed().as_nanos() as u64);
                port.receive(&mut |_, _| heard += 1);
                // Ours go somewhere, or are lost; they hold up nothing.
                port.send(&"02:00:00:00:00:02".parse().expect("an address"), &[&frame(0, 64)]);
                std::thread::sleep(Duration::from_micros(100));
            }
            // In the middle of its sending.
            drop(peer);
        }
    }
}

#[test]
fn a_device_that_cannot_be_is_refused_with_the_remedy() {
    if !there_is_dpdk() {
        return;
    }
    let _alone = alone();
    let refused = |config: &DpdkConfig| match DpdkPort::open(config) {
        Ok(_) => panic!("{config:?} opened"),
        Err(error) => error,
    };
    assert!(refused(&DpdkConfig::new("")).to_string().contains("PCI address"));
    assert!(refused(&DpdkConfig::new("net_memif0,role=server, id=1")).to_string().contains("PCI address"));
    let error = refused(&DpdkConfig::new("net_floppy0"));
    assert!(matches!(&error, OpenError::Device { device, .. } if device == "net_floppy0"), "{error}");
    let error = refused(&DpdkConfig { max_frame_bytes: Some(9217), ..DpdkConfig::new("net_memif900") });
    assert!(error.to_string().contains("576 to 9216"), "{error}");
    let other = DpdkConfig { eal: vec!["--no-pci".to_owned()], ..DpdkConfig::new("net_null900") };
    assert!(refused(&other).to_string().contains("all links of kind `dpdk`"));
}
