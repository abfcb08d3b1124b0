//! No Port allocates once it is open.

mod namespace;

use etherslot_netio::Port;
use etherslot_netio::impair::Impaired;
use etherslot_netio::memory::{Hub, HubConfig};
use etherslot_netio::packet::{PacketConfig, PacketPort};
use etherslot_netio::ring::{RingConfig, RingPort};
use etherslot_netio::tap::{Tap, TapClock};
use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::xdp::{XdpConfig, XdpPort};

/// Runs bursts from `a` to `b` and says how many allocations they took.
fn allocations(a: &mut dyn Port, b: &mut dyn Port) -> u64 {
    let to = b.address();
    let frame = [7; 1400];
    let frames: [&[u8]; 64] = std::array::from_fn(|at| if at % 7 == 0 { &frame[..100] } else { &frame[..] });
    let mut arrived = 0_u64;
    let counted = allocation_counter::measure(|| {
        for turn in 0..200 {
            a.tick(turn * 100_000_000);
            b.tick(turn * 100_000_000);
            a.send(&to, &frames[..(turn % 65) as usize]);
            while b.receive(&mut |_, _| arrived += 1) > 0 {}
        }
    });
    assert!(arrived > 1000, "{arrived} frames arrived");
    counted.count_total
}

#[test]
fn in_memory() {
    let hub = Hub::new(HubConfig::default());
    let (mut a, mut b) = (hub.open(0).expect("port 0"), hub.open(1).expect("port 1"));
    assert_eq!(allocations(&mut a, &mut b), 0);
}

#[test]
fn on_udp() {
    let open = || UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().expect("an address"))).expect("a port");
    let (mut a, mut b) = (open(), open());
    assert_eq!(allocations(&mut a, &mut b), 0);
}

#[test]
fn on_raw_ethernet() {
    namespace::with_veth(|| {
        let open = |name| PacketPort::open(&PacketConfig::new(name)).expect("a port");
        let (mut a, mut b) = (open("left"), open("right"));
        assert_eq!(allocations(&mut a, &mut b), 0);
    });
}

#[test]
fn on_raw_ethernet_by_xdp() {
    namespace::with_veth(|| {
        let open = |name| XdpPort::open(&XdpConfig::new(name)).expect("a port");
        let (mut a, mut b) = (open("left"), open("right"));
        assert_eq!(allocations(&mut a, &mut b), 0);
    });
}

#[test]
fn in_shared_memory_once_connected() {
    let folder = tempfile::tempdir().expect("a folder");
    let open = |port| RingPort::open(&RingConfig::new(folder.path(), port)).expect("a port");
    let (mut a, mut b) = (open(1), open(2));
    a.send(&b.address(), &[&[7; 64]]);
    assert_eq!(b.receive(&mut |_, _| {}), 1);
    assert_eq!(allocations(&mut a, &mut b), 0);
}

#[test]
fn impaired_and_captured() {
    let hub = Hub::new(HubConfig::default());
    let impairment = "loss=1%,duplicate=1%,reorder=5%,corrupt=1%,delay=1us..2ms,seed=7";
    let wrap = |port| {
        let tap = Tap::new(hub.open(port).expect("a port"), Box::new(std::io::sink()), TapClock::System);
        Impaired::new(tap, &impairment.parse().expect("an impairment"))
    };
    let (mut a, mut b) = (wrap(0), wrap(1));
    assert_eq!(allocations(&mut a, &mut b), 0);
}
