//! What the XDP back end must leave alone, refuse and survive, beside the demands of `suite`.
#![allow(unsafe_code)] // Packet sockets exist only in C.

mod namespace;

use std::time::{Duration, Instant};

use etherslot_netio::packet::{PacketConfig, PacketPort};
use etherslot_netio::xdp::{XdpConfig, XdpGot, XdpMode, XdpPort};
use etherslot_netio::{Address, Port};
use namespace::{ip, send_raw, with_veth};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, recv, socket_with};

fn open(interface: &str, mode: XdpMode) -> XdpPort {
    XdpPort::open(&XdpConfig { mode, ..XdpConfig::new(interface) }).expect("an XDP port")
}

fn refused(config: &XdpConfig) -> String {
    match XdpPort::open(config) {
        Ok(_) => panic!("{config:?} opened"),
        Err(error) => error.to_string(),
    }
}

/// Sends and ticks until one frame arrives.
fn until_one_arrives(from: &mut impl Port, to: &mut impl Port) {
    let start = Instant::now();
    let mut arrived = 0;
    while arrived == 0 {
        assert!(start.elapsed() < Duration::from_secs(5), "nothing arrives");
        let now_ns = start.elapsed().as_nanos() as u64;
        from.tick(now_ns);
        to.tick(now_ns);
        from.send(&to.address(), &[&[7; 100]]);
        std::thread::sleep(Duration::from_millis(1));
        while to.receive(&mut |_, _| arrived += 1) > 0 {}
    }
}

#[test]
fn automatic_mode_takes_the_driver_where_it_can() {
    with_veth(|| {
        let got = open("left", XdpMode::Auto).got();
        assert_eq!(got, Some(XdpGot { native: true, zero_copy: false }));
        // The driver of veth has no XDP for frames of several pages.
        ip("link set left mtu 9000");
        ip("link set right mtu 9000");
        let port = open("left", XdpMode::Auto);
        assert_eq!(port.got(), Some(XdpGot { native: false, zero_copy: false }));
        assert_eq!(port.max_frame_bytes(), 3826, "a chunk is the limit");
        drop(port);
        assert!(refused(&XdpConfig { mode: XdpMode::Native, ..XdpConfig::new("left") }).contains("\"auto\""));
    });
}

#[test]
fn a_frame_that_fills_a_chunk_passes() {
    with_veth(|| {
        ip("link set left mtu 9000");
        ip("link set right mtu 9000");
        let (mut a, mut b) = (open("left", XdpMode::Auto), open("right", XdpMode::Auto));
        until_one_arrives(&mut a, &mut b);
        let frame: Vec<u8> = (0..3826_u32).map(|at| at as u8).collect();
        assert_eq!(a.send(&b.address(), &[&frame]), 1);
        let (mut frames, start) = (Vec::new(), Instant::now());
        while frames.last() != Some(&frame) {
            assert!(start.elapsed() < Duration::from_secs(5), "it does not arrive");
            b.receive(&mut |_, frame| frames.push(frame.to_vec()));
        }
    });
}

#[test]
fn what_is_not_ours_goes_on_to_the_kernel() {
    for mode in [XdpMode::Native, XdpMode::Generic] {
        with_veth(move || {
            let (mut a, mut b) = (open("left", mode), open("right", mode));
            until_one_arrives(&mut a, &mut b);
            let Address::Mac(to) = b.address() else { panic!("a MAC") };
            let other_type = 0x88B6_u16;
            let protocol =
                rustix::net::Protocol::from_raw(u32::from(other_type.to_be()).try_into().expect("not 0"));
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let kernel = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, Some(protocol))
                .expect("a packet socket");
            let frame = [&to[..], &[2, 0, 0, 0, 0, 1], &other_type.to_be_bytes(), &[1; 64]].concat();
            let (mut buffer, start) = ([0; 100], Instant::now());
            loop {
                send_raw("left", &frame);
                std::thread::sleep(Duration::from_millis(5));
                match recv(&kernel, &mut buffer, RecvFlags::empty()) {
                    Ok((bytes, _)) => break assert_eq!(bytes, 64),
                    Err(error) => assert!(start.elapsed() < Duration::from_secs(5), "{error}"),
                }
            }
            // To another station, as a switch that floods would bring it.
            assert_eq!(a.send(&Address::Mac([2, 9, 9, 9, 9, 9]), &[&[2; 64]]), 1);
            let before = b.counters().rx_frames;
            while b.counters().rx_foreign == 0 {
                assert!(start.elapsed() < Duration::from_secs(5), "nothing arrives");
                b.receive(&mut |_, _| {});
            }
            assert_eq!(b.counters().rx_frames, before);
        });
    }
}

#[test]
fn a_closed_port_leaves_the_interface_as_it_was() {
    with_veth(|| {
        let mut a = open("left", XdpMode::Native);
        drop(open("right", XdpMode::Native));
        let mut b = PacketPort::open(&PacketConfig::new("right")).expect("a packet port");
        until_one_arrives(&mut a, &mut b);
        until_one_arrives(&mut b, &mut a);
    });
}

#[test]
fn an_interface_that_is_made_again_is_found_again() {
    with_veth(|| {
        let (mut a, mut b) = (open("left", XdpMode::Native), open("right", XdpMode::Native));
        until_one_arrives(&mut a, &mut b);
        ip("link del left");
        let to = b.address();
        let lost = a.counters().tx_link_down;
        assert_eq!(a.send(&to, &[&[0; 64]]), 1);
        assert_eq!(a.counters().tx_link_down - lost, 1);
        assert_eq!(b.receive(&mut |_, _| {}), 0);
        a.tick(u64::MAX / 4);
        b.tick(u64::MAX / 4);
        assert_eq!((a.got(), b.got()), (None, None));
        assert_eq!(a.send(&to, &[&[0; 64]]), 1);
        assert_eq!(a.counters().tx_link_down - lost, 2);
        ip("link add name left type veth peer name right");
        ip("link set left up");
        ip("link set right up");
        a.tick(u64::MAX / 2);
        b.tick(u64::MAX / 2);
        until_one_arrives(&mut a, &mut b);
        until_one_arrives(&mut b, &mut a);
        assert_ne!(b.address(), to, "a new interface has a new address");
    });
}

#[test]
fn what_cannot_be_is_refused_with_the_remedy() {
    with_veth(|| {
        let _held = open("left", XdpMode::Auto);
        assert!(refused(&XdpConfig::new("left")).contains("in use: choose another"));
        assert!(refused(&XdpConfig { queue: 99, ..XdpConfig::new("right") }).contains("choose another"));
        assert!(refused(&XdpConfig::new("nosuch")).contains("does not exist"));
        assert!(refused(&XdpConfig::new("lo")).contains("not an Ethernet interface"));
        assert!(
            refused(&XdpConfig { max_frame_bytes: Some(1501), ..XdpConfig::new("right") }).contains("1500")
        );
        ip("link set right down");
        assert!(refused(&XdpConfig::new("right")).contains("`ip link set right up`"));
    });
}
