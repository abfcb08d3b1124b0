//! What raw Ethernet and UDP must survive: links that go down, interfaces that vanish, frames of others.

mod namespace;

use std::time::{Duration, Instant};

use etherslot_netio::packet::{PacketConfig, PacketPort};
use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::{Address, OpenError, Port};
use namespace::{ip, with_veth};

fn open(interface: &str) -> PacketPort {
    PacketPort::open(&PacketConfig::new(interface)).expect("a packet port")
}

/// Sends until one arrives, ticking all the while; panics after five seconds.
fn until_one_arrives(from: &mut impl Port, to: &mut impl Port) {
    let start = Instant::now();
    let mut arrived = 0;
    while arrived == 0 {
        assert!(start.elapsed() < Duration::from_secs(5), "nothing arrives");
        let now_ns = start.elapsed().as_nanos() as u64;
        from.tick(now_ns);
        to.tick(now_ns);
        // Asked each time: an interface that is made again has another address.
        from.send(&to.address(), &[&[7; 100]]);
        std::thread::sleep(Duration::from_millis(1));
        while to.receive(&mut |_, _| arrived += 1) > 0 {}
    }
}

/// Takes what has arrived, once it surely has.
fn until_quiet(port: &mut impl Port, frames: &mut Vec<Vec<u8>>) {
    std::thread::sleep(Duration::from_millis(20));
    while port.receive(&mut |_, frame| frames.push(frame.to_vec())) > 0 {}
}

#[test]
fn a_link_that_goes_down_loses_frames_and_recovers() {
    with_veth(|| {
        let (mut a, mut b) = (open("left"), open("right"));
        until_one_arrives(&mut a, &mut b);
        for down in ["left", "right"] {
            let lost = a.counters().tx_link_down;
            ip(&format!("link set {down} down"));
            let to = b.address();
            let taken = a.send(&to, &[&[0; 64], &[0; 64], &[0; 64]]);
            // The kernel tells an interface only later that its peer is down; until then frames vanish or find no room.
            if down == "left" {
                assert_eq!((taken, a.counters().tx_link_down - lost), (3, 3));
            }
            // At most one frame's worth of error, then silence.
            b.receive(&mut |_, _| panic!("a frame came over a link that is down"));
            assert_eq!(b.receive(&mut |_, _| panic!("a frame came over a link that is down")), 0);
            ip(&format!("link set {down} up"));
            until_one_arrives(&mut a, &mut b);
            until_one_arrives(&mut b, &mut a);
        }
    });
}

#[test]
fn an_interface_that_is_made_again_is_found_again() {
    with_veth(|| {
        let (mut a, mut b) = (open("left"), open("right"));
        until_one_arrives(&mut a, &mut b);
        ip("link del left");
        let to = b.address();
        assert_eq!(a.send(&to, &[&[0; 64]]), 1);
        assert_eq!(a.counters().tx_link_down, 1);
        // The receiver alone notices, too.
        assert_eq!(b.receive(&mut |_, _| {}), 0);
        assert_eq!(b.poll_at(), Some(0));
        a.tick(0);
        b.tick(0);
        assert!(a.poll_at() > Some(0) && b.poll_at() > Some(0));
        ip("link add name left type veth peer name right");
        ip("link set left up");
        ip("link set right up");
        until_one_arrives(&mut a, &mut b);
        until_one_arrives(&mut b, &mut a);
        assert_eq!((a.poll_at(), b.poll_at()), (None, None));
        assert_ne!(b.address(), to, "a new interface has a new address");
    });
}

#[test]
fn frames_of_others_are_not_handed_over() {
    with_veth(|| {
        let (mut a, mut b) = (open("left"), open("right"));
        let Address::Mac(to) = b.address() else { panic!("a MAC") };
        let mut frames = Vec::new();
        // In VLAN 5, until one comes: the kernel drops what passes a queue before it has seen that the link is up, which a busy
        // machine takes its time for.
        let tagged = [&to[..], &[2, 0, 0, 0, 0, 1], &[0x81, 0, 0, 5, 0x88, 0xB5], &[1; 64]].concat();
        let start = Instant::now();
        while b.counters().rx_foreign == 0 {
            assert!(start.elapsed() < Duration::from_secs(5), "nothing arrives");
            namespace::send_raw("left", &tagged);
            until_quiet(&mut b, &mut frames);
        }
        // To another station.
        let others = b.counters().rx_foreign;
        assert_eq!(a.send(&Address::Mac([2, 9, 9, 9, 9, 9]), &[&[2; 64]]), 1);
        while b.counters().rx_foreign == others {
            assert!(start.elapsed() < Duration::from_secs(10), "nothing arrives");
            until_quiet(&mut b, &mut frames);
        }
        assert_eq!(frames, [] as [Vec<u8>; 0]);
        // The same bytes without the tag are ours.
        namespace::send_raw("left", &[&to[..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xB5], &[1; 64]].concat());
        until_quiet(&mut b, &mut frames);
        assert_eq!(frames, [vec![1; 64]]);
        assert_eq!(a.receive(&mut |_, _| {}), 0, "own frames are not looped back");
    });
}

#[test]
fn a_frame_longer_than_the_buffers_is_counted_not_cut() {
    with_veth(|| {
        let mut b = open("right");
        ip("link set right mtu 4000");
        ip("link set left mtu 4000");
        let mut a = open("left");
        assert_eq!(a.max_frame_bytes(), 4000);
        let to = b.address();
        assert_eq!(a.send(&to, &[&[1; 4000], &[2; 1500]]), 2);
        let mut frames = Vec::new();
        until_quiet(&mut b, &mut frames);
        assert_eq!(frames, [vec![2; 1500]]);
        assert_eq!(b.counters().rx_truncated, 1);
        // The other way: the MTU shrinks under an open port.
        ip("link set left mtu 1500");
        assert_eq!(a.send(&to, &[&[1; 4000], &[2; 1500]]), 2);
        assert_eq!(a.counters().tx_too_long, 1);
        assert_eq!(b.receive(&mut |_, _| {}), 1);
    });
}

#[test]
fn an_interface_that_does_not_fit_is_refused_with_the_remedy() {
    with_veth(|| {
        let refused = |config: &PacketConfig| match PacketPort::open(config) {
            Ok(_) => panic!("{config:?} opened"),
            Err(error) => error,
        };
        let refused_name = |name: &str| refused(&PacketConfig::new(name)).to_string();
        assert!(refused_name("nosuch").contains("`nosuch` does not exist"));
        assert!(refused_name("").contains("does not exist"));
        assert!(refused_name("a-name-that-is-too-long-for-one").contains("does not exist"));
        assert!(refused_name("lo").contains("not an Ethernet interface"));
        ip("link set left down");
        assert!(refused_name("left").contains("`ip link set left up`"));
        ip("link set left up mtu 500");
        assert!(refused_name("left").contains("raise its MTU"));
        let wanted = PacketConfig { max_frame_bytes: Some(9000), ..PacketConfig::new("right") };
        assert!(matches!(refused(&wanted), OpenError::FrameSize { bytes: 9000, limit: 1500, .. }));
    });
}

fn udp(bind: &str, config: impl FnOnce(UdpConfig) -> UdpConfig) -> UdpPort {
    UdpPort::open(&config(UdpConfig::new(bind.parse().expect("an address")))).expect("a UDP port")
}

#[test]
fn udp_learns_its_frame_size_from_the_interface_or_the_way_to_the_peer() {
    with_veth(|| {
        ip("address add 10.1.0.1/24 dev left");
        ip("address add fd01::1/64 dev left nodad");
        let peer = Some("10.1.0.2:4700".parse().expect("an address"));
        assert_eq!(udp("10.1.0.1:0", |config| config).max_frame_bytes(), 1472);
        assert_eq!(udp("[fd01::1]:0", |config| config).max_frame_bytes(), 1452);
        assert_eq!(udp("0.0.0.0:0", |config| config).max_frame_bytes(), 1472, "assumed");
        ip("link set left mtu 9000");
        assert_eq!(udp("10.1.0.1:0", |config| config).max_frame_bytes(), 8972);
        assert_eq!(udp("0.0.0.0:0", |config| UdpConfig { peer, ..config }).max_frame_bytes(), 8972);
        assert_eq!(udp("127.0.0.1:0", |config| config).max_frame_bytes(), 9216, "no Port takes more");
        let error = UdpPort::open(&UdpConfig::new("10.9.9.9:0".parse().expect("an address")));
        assert!(error.is_err_and(|error| error.to_string().contains("an address of this machine")));
    });
}

#[test]
fn udp_with_no_route_loses_frames_and_recovers() {
    with_veth(|| {
        ip("address add 10.1.0.1/24 dev left");
        let mut port = udp("10.1.0.1:0", |config| config);
        let to = Address::Udp("10.7.0.1:4700".parse().expect("an address"));
        assert_eq!(port.send(&to, &[&[0; 64], &[0; 64]]), 2);
        assert_eq!(port.counters().tx_link_down, 2);
        ip("route add 10.7.0.0/24 dev left");
        assert_eq!(port.send(&to, &[&[0; 64], &[0; 64]]), 2);
        assert_eq!(port.counters().tx_frames, 2);
        assert!(port.offloads());
    });
}

#[test]
fn udp_goes_on_with_single_datagrams_where_offload_is_refused() {
    with_veth(|| {
        // An MTU below the frame size refuses the super-frame and the frame: not the offload's fault.
        ip("address add 10.1.0.1/24 dev left");
        ip("route add 10.7.0.0/24 dev left");
        let mut port = udp("10.1.0.1:0", |config| config);
        let to = Address::Udp("10.7.0.1:4700".parse().expect("an address"));
        ip("link set left mtu 1000");
        assert_eq!(port.send(&to, &[&[0; 1472], &[0; 1472], &[0; 64]]), 3);
        assert_eq!(port.counters().tx_too_long, 2, "{:?}", port.counters());
        assert!(port.offloads());
        assert_eq!(port.send(&to, &[&[0; 900], &[0; 900], &[0; 900]]), 3);
        assert_eq!(port.counters().tx_frames, 4);
    });
}
