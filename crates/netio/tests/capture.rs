//! A capture, read back by a reader of its own.

use std::cell::RefCell;
use std::io::{self, Write};
use std::process::Command;
use std::rc::Rc;

use etherslot_netio::memory::{Hub, HubConfig};
use etherslot_netio::tap::{Tap, TapClock};
use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::{Address, Port};

/// A file that the test can look into.
#[derive(Clone, Default)]
struct Shared {
    bytes: Rc<RefCell<Vec<u8>>>,
    fails: bool,
}

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.fails {
            return Err(io::Error::other("no space"));
        }
        self.bytes.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An Enhanced Packet Block.
#[derive(Debug, PartialEq, Eq)]
struct Packet {
    time_ns: u64,
    outbound: bool,
    bytes: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// The value of an option in a list of them.
fn option(mut list: &[u8], code: u16) -> Option<&[u8]> {
    loop {
        let head = word(list, 0);
        let (found, len) = (head as u16, (head >> 16) as usize);
        match found {
            0 => return None,
            _ if found == code => return Some(&list[4..4 + len]),
            _ => list = &list[4 + len.next_multiple_of(4)..],
        }
    }
}

/// Reads a whole capture; panics where it is not well formed.
fn read(mut rest: &[u8]) -> Vec<Packet> {
    let (mut packets, mut kinds) = (Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (kind, total) = (word(rest, 0), word(rest, 4) as usize);
        assert!(total % 4 == 0 && word(rest, total - 4) as usize == total, "a block says its length twice");
        let body = &rest[8..total - 4];
        match kind {
            0x0A0D_0D0A => {
                assert_eq!((word(body, 0), word(body, 4)), (0x1A2B_3C4D, 1));
                assert!(option(&body[16..], 4).is_some_and(|name| name.starts_with(b"etherslot")));
            }
            1 => {
                assert_eq!(word(body, 0), 1, "Ethernet");
                assert_eq!(option(&body[8..], 9), Some(&[9][..]), "nanoseconds");
            }
            6 => {
                let len = word(body, 12) as usize;
                assert_eq!((word(body, 0), word(body, 16) as usize), (0, len));
                let flags = option(&body[20 + len.next_multiple_of(4)..], 2).expect("a direction");
                packets.push(Packet {
                    time_ns: u64::from(word(body, 4)) << 32 | u64::from(word(body, 8)),
                    outbound: word(flags, 0) == 2,
                    bytes: body[20..20 + len].to_vec(),
                });
            }
            other => panic!("block {other:#x}"),
        }
        kinds.push(kind);
        rest = &rest[total..];
    }
    assert!(kinds.starts_with(&[0x0A0D_0D0A, 1]));
    packets
}

const MAC_0: [u8; 6] = [0x0A, 0x4D, 0, 0, 0, 0];
const MAC_1: [u8; 6] = [0x0A, 0x4D, 0, 0, 0, 1];

#[test]
fn a_capture_reads_back_frame_by_frame() {
    let (hub, file) = (Hub::new(HubConfig::default()), Shared::default());
    let mut a = Tap::new(hub.open(0).expect("port 0"), Box::new(file.clone()), TapClock::Ticks);
    let mut b = hub.open(1).expect("port 1");
    a.tick(1_700_000_000_123_456_789);
    assert_eq!(a.send(&Address::Memory(1), &[&[1; 61], &[2; 1500]]), 2);
    a.tick(1_700_000_000_123_456_790);
    assert_eq!(b.send(&Address::Memory(0), &[&[3; 64]]), 1);
    assert_eq!(a.receive(&mut |_, frame| assert_eq!(frame, [3; 64])), 1);
    a.flush();
    let ethernet = |to: [u8; 6], from: [u8; 6], frame: &[u8]| [&to[..], &from, &[0x88, 0xB5], frame].concat();
    let packet = |time_ns, outbound, bytes| Packet { time_ns, outbound, bytes };
    assert_eq!(
        read(&file.bytes.borrow()),
        [
            packet(1_700_000_000_123_456_789, true, ethernet(MAC_1, MAC_0, &[1; 61])),
            packet(1_700_000_000_123_456_789, true, ethernet(MAC_1, MAC_0, &[2; 1500])),
            packet(1_700_000_000_123_456_790, false, ethernet(MAC_0, MAC_1, &[3; 64])),
        ]
    );
}

#[test]
fn only_what_the_port_took_is_captured() {
    let (hub, file) = (Hub::new(HubConfig { queue_frames: 1, ..HubConfig::default() }), Shared::default());
    let mut a = Tap::new(hub.open(0).expect("port 0"), Box::new(file.clone()), TapClock::Ticks);
    let _b = hub.open(1).expect("port 1");
    assert_eq!(a.send(&Address::Memory(1), &[&[1; 64], &[2; 64]]), 1);
    drop(a);
    assert_eq!(read(&file.bytes.borrow()).len(), 1, "and dropping the port writes it out");
}

#[test]
fn what_is_captured_is_in_the_file_a_second_later() {
    let (hub, file) = (Hub::new(HubConfig::default()), Shared::default());
    let mut a = Tap::new(hub.open(0).expect("port 0"), Box::new(file.clone()), TapClock::Ticks);
    let at = a.poll_at().expect("the head of the file waits");
    a.tick(at);
    assert_eq!((read(&file.bytes.borrow()).len(), a.poll_at()), (0, None));
    a.send(&Address::Memory(1), &[&[1; 64]]);
    a.tick(a.poll_at().expect("a frame waits"));
    assert_eq!(read(&file.bytes.borrow()).len(), 1);
}

#[test]
fn a_capture_that_cannot_be_written_ends_and_traffic_goes_on() {
    let hub = Hub::new(HubConfig::default());
    let file = Shared { fails: true, ..Shared::default() };
    let mut a = Tap::new(hub.open(0).expect("port 0"), Box::new(file), TapClock::System);
    let mut b = hub.open(1).expect("port 1");
    for _ in 0..1000 {
        assert_eq!(a.send(&Address::Memory(1), &[&[1; 9000]]), 1);
        assert_eq!(b.receive(&mut |_, _| {}), 1);
    }
    assert!(!a.is_capturing());
    assert_eq!(a.poll_at(), None);
}

#[test]
fn a_file_of_many_frames_opens_in_wireshark() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture.pcapng");
    let open = || UdpPort::open(&UdpConfig::new("127.0.0.1:0".parse().expect("an address"))).expect("a port");
    let (mut a, mut b) = (Tap::create(open(), &path).expect("a capture"), open());
    let (to, mut arrived) = (b.address(), 0);
    for _ in 0..100 {
        assert_eq!(a.send(&to, &[&[1; 1400], &[2; 1400], &[3; 7]]), 3);
        while b.receive(&mut |_, _| arrived += 1) > 0 {}
    }
    assert_eq!((arrived, a.captured()), (300, 300));
    drop(a);
    let packets = read(&std::fs::read(&path).expect("the capture"));
    assert_eq!(packets.len(), 300);
    assert!(packets.is_sorted_by_key(|packet| packet.time_ns));
    assert_eq!(packets[0].bytes[..5], [0x02, 0, 0, 1, packets[0].bytes[4]], "127.0.0.1 as a MAC");
    match Command::new("tshark").args(["-r"]).arg(&path).args(["-T", "fields", "-e", "eth.type"]).output() {
        Ok(output) => {
            let lines = String::from_utf8_lossy(&output.stdout);
            assert_eq!(lines.lines().filter(|line| *line == "0x88b5").count(), 300, "{lines}");
        }
        Err(_) => println!("skipped: tshark is not installed"),
    }
}
