//! The demands of `suite` on every back end.

mod namespace;
mod suite;

use etherslot_netio::impair::{Impaired, Impairment};
use etherslot_netio::memory::{Hub, HubConfig};
use etherslot_netio::packet::{PacketConfig, PacketPort};
use etherslot_netio::ring::{RingConfig, RingPort};
use etherslot_netio::tap::{Tap, TapClock};
use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::xdp::{XdpConfig, XdpMode, XdpPort};
use etherslot_netio::{Address, Port};
use suite::{Link, suite};

type Demand = fn(Link);

/// Small enough to be overrun.
const BUFFER_BYTES: usize = 256 << 10;

fn on_memory(demand: Demand) {
    let hub = Hub::new(HubConfig::default());
    let open = |port| -> Box<dyn Port> { Box::new(hub.open(port).expect("a port of the hub")) };
    let (a, b) = (open(0), open(1));
    let shared = hub.clone();
    let reopen_b = move || -> Box<dyn Port> { Box::new(hub.open(1).expect("a port of the hub")) };
    let switch: Box<dyn Fn(bool)> = Box::new(move |up| shared.set_link(0, up));
    demand(Link { switch: Some(switch), back_pressure: true, ..Link::new(a, b, reopen_b) });
}

fn udp(bind: &str, offload: bool) -> Box<dyn Port> {
    let bind = bind.parse().expect("an address");
    let config = UdpConfig {
        max_frame_bytes: Some(1472),
        buffer_bytes: BUFFER_BYTES,
        offload,
        ..UdpConfig::new(bind)
    };
    Box::new(UdpPort::open(&config).expect("a UDP port"))
}

fn udp_link(bind: &str, offload: bool) -> Link {
    let (a, b) = (udp(bind, offload), udp(bind, offload));
    let address = b.address().to_string();
    Link::new(a, b, move || udp(&address, offload))
}

fn on_udp_v4(demand: Demand) {
    demand(udp_link("127.0.0.1:0", true));
}

fn on_udp_v6(demand: Demand) {
    if std::net::UdpSocket::bind("[::1]:0").is_err() {
        println!("skipped: this machine has no IPv6");
        return;
    }
    demand(udp_link("[::1]:0", true));
}

fn on_udp_without_offload(demand: Demand) {
    demand(udp_link("127.0.0.1:0", false));
}

fn packet(interface: &str) -> Box<dyn Port> {
    let config = PacketConfig { buffer_bytes: BUFFER_BYTES, ..PacketConfig::new(interface) };
    Box::new(PacketPort::open(&config).expect("a packet port"))
}

fn on_packet(demand: Demand) {
    namespace::with_veth(move || {
        let link = Link::new(packet("left"), packet("right"), || packet("right"));
        demand(Link { switch: Some(Box::new(set_left)), ..link });
    });
}

fn xdp(interface: &str, mode: XdpMode) -> Box<dyn Port> {
    let port = XdpPort::open(&XdpConfig { mode, ..XdpConfig::new(interface) }).expect("an XDP port");
    assert_eq!(port.got().map(|got| got.native), Some(mode == XdpMode::Native));
    Box::new(port)
}

fn on_xdp(demand: Demand, mode: XdpMode) {
    namespace::with_veth(move || {
        let link = Link::new(xdp("left", mode), xdp("right", mode), move || xdp("right", mode));
        demand(Link { switch: Some(Box::new(set_left)), ..link });
    });
}

fn on_generic_xdp(demand: Demand) {
    on_xdp(demand, XdpMode::Generic);
}

fn on_native_xdp(demand: Demand) {
    on_xdp(demand, XdpMode::Native);
}

fn set_left(up: bool) {
    namespace::ip(&format!("link set left {}", if up { "up" } else { "down" }));
}

fn on_ring(demand: Demand) {
    let folder = tempfile::tempdir().expect("a folder");
    let config = RingConfig::new(folder.path(), 1);
    let open = move |port| -> Box<dyn Port> {
        Box::new(RingPort::open(&RingConfig { port, ..config.clone() }).expect("a ring port"))
    };
    let (a, b) = (open(1), open(2));
    demand(Link { back_pressure: true, ..Link::new(a, b, move || open(2)) });
    drop(folder);
}

/// Wrappers that do nothing must change nothing.
fn on_wrapped_memory(demand: Demand) {
    fn wrap(port: impl Port + 'static) -> Box<dyn Port> {
        let tap = Tap::new(port, Box::new(std::io::sink()), TapClock::Ticks);
        Box::new(Impaired::new(tap, &Impairment::default()))
    }
    let hub = Hub::new(HubConfig::default());
    let (a, b) = (wrap(hub.open(0).expect("port 0")), wrap(hub.open(1).expect("port 1")));
    let reopen_b = move || wrap(hub.open(1).expect("port 1"));
    demand(Link { back_pressure: true, ..Link::new(a, b, reopen_b) });
}

// A back end plugs in here: its name, and the function above that opens two Ports of it.
suite!(memory, super::on_memory);
suite!(udp_over_ipv4, super::on_udp_v4);
suite!(udp_over_ipv6, super::on_udp_v6);
suite!(udp_without_offload, super::on_udp_without_offload);
suite!(raw_ethernet, super::on_packet);
suite!(generic_xdp, super::on_generic_xdp);
suite!(native_xdp, super::on_native_xdp);
suite!(shared_memory, super::on_ring);
suite!(wrapped_memory, super::on_wrapped_memory);

#[test]
fn the_bounds_are_those_of_the_wire() {
    use etherslot_wire::frame;
    assert_eq!(etherslot_netio::ETHERTYPE, frame::ETHERTYPE);
    assert_eq!(etherslot_netio::MIN_FRAME_BYTES, frame::MIN_FRAME_BYTES);
    assert_eq!(etherslot_netio::MAX_FRAME_BYTES, frame::MAX_FRAME_BYTES);
}

#[test]
fn frames_to_and_from_a_hub_port_that_is_down_are_lost() {
    let hub = Hub::new(HubConfig { ports: 3, ..HubConfig::default() });
    let (mut a, mut b) = (hub.open(0).expect("port 0"), hub.open(1).expect("port 1"));
    hub.set_link(1, false);
    assert_eq!(a.send(&Address::Memory(1), &[&[0; 64]]), 1);
    assert_eq!(b.send(&Address::Memory(0), &[&[0; 64]]), 1);
    hub.set_link(1, true);
    assert_eq!((a.receive(&mut |_, _| {}), b.receive(&mut |_, _| {})), (0, 0));
    assert_eq!((a.counters().tx_link_down, b.counters().tx_link_down), (1, 1));
    assert_eq!(a.send(&Address::Memory(1), &[&[0; 64]]), 1);
    assert_eq!(b.receive(&mut |_, _| {}), 1);
    // Nobody holds port 2, and there is no port 3.
    assert_eq!(a.send(&Address::Memory(2), &[&[0; 64]]), 1);
    assert_eq!(a.send(&Address::Memory(3), &[&[0; 64]]), 1);
    assert_eq!(a.counters().tx_link_down, 3);
}

#[test]
fn a_hub_port_is_opened_once_and_within_bounds() {
    let hub = Hub::new(HubConfig::default());
    let _open = hub.open(0).expect("port 0");
    assert!(hub.open(0).is_err() && hub.open(2).is_err());
    let small = Hub::new(HubConfig { max_frame_bytes: 100, ..HubConfig::default() });
    assert!(small.open(0).is_err());
}
