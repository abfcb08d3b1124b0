//! Checksums, segmentation, tags, and the distribution to rings, each against a computation of its own.

/// The one's complement sum of `data` (RFC 1071), word by word.
pub(crate) fn ones_complement(data: &[u8]) -> u16 {
    let mut sum = 0u32;
    for (at, &byte) in data.iter().enumerate() {
        sum += if at % 2 == 0 { u32::from(byte) << 8 } else { u32::from(byte) };
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

use crate::driver::*;
use proptest::prelude::*;

/// What is at the top of a frame that tests make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    V4 { options: usize },
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum L4 {
    Tcp { options: usize },
    Udp,
    Sctp,
}

impl Ip {
    fn bytes(self) -> usize {
        match self {
            Self::V4 { options } => 20 + options,
            Self::V6 => 40,
        }
    }
}

impl L4 {
    fn bytes(self) -> usize {
        match self {
            Self::Tcp { options } => 20 + options,
            Self::Udp => 8,
            Self::Sctp => 12,
        }
    }

    fn protocol(self) -> u8 {
        match self {
            Self::Tcp { .. } => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    fn sum_at(self) -> usize {
        match self {
            Self::Tcp { .. } => 16,
            Self::Udp => 6,
            Self::Sctp => 8,
        }
    }
}

const SOURCE: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1];
const TARGET: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2];
const SEQUENCE: u32 = 0xffff_fc00;
/// Ports of all.
const PORTS: [u8; 4] = [0x0a, 0xea, 0x06, 0xe6];

fn addresses(ip: Ip) -> Vec<u8> {
    match ip {
        Ip::V4 { .. } => [&SOURCE[12..], &TARGET[12..]].concat(),
        Ip::V6 => [SOURCE, TARGET].concat(),
    }
}

/// The pseudo header (RFC 9293, RFC 8200) for a transport packet of this length.
fn pseudo(ip: Ip, l4: L4, bytes: usize) -> Vec<u8> {
    [&addresses(ip)[..], &[0, l4.protocol()], &(bytes as u32).to_be_bytes()].concat()
}

/// A whole frame with checksums that are right.
fn packet(ip: Ip, l4: L4, identification: u16, sequence: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut transport = vec![0; l4.bytes()];
    transport[..4].copy_from_slice(&PORTS);
    match l4 {
        L4::Tcp { .. } => {
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            transport[8..12].copy_from_slice(&[1, 2, 3, 4]);
            transport[12] = (l4.bytes() / 4) as u8 * 16;
            transport[13] = flags;
            transport[14..16].copy_from_slice(&[0xff, 0xf0]);
            transport[20..].fill(1);
        }
        L4::Udp => transport[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes()),
        L4::Sctp => transport[4..8].copy_from_slice(&[9, 8, 7, 6]),
    }
    transport.extend_from_slice(payload);
    let at = l4.sum_at();
    if l4 == L4::Sctp {
        let crc = !transport.iter().fold(u32::MAX, |crc, &byte| {
            (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 != 0 { 0x82f6_3b78 } else { 0 })
        });
        transport[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    } else {
        let all = [pseudo(ip, l4, transport.len()), transport.clone()].concat();
        let sum = match !ones_complement(&all) {
            0 if l4 == L4::Udp => 0xffff,
            sum => sum,
        };
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    let mut header = vec![0; ip.bytes()];
    let ether_type = match ip {
        Ip::V4 { options } => {
            header[0] = 0x40 | (ip.bytes() / 4) as u8;
            header[2..4].copy_from_slice(&((ip.bytes() + transport.len()) as u16).to_be_bytes());
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            header[6] = 0x40;
            header[8..10].copy_from_slice(&[64, l4.protocol()]);
            header[12..20].copy_from_slice(&addresses(ip));
            header[20..20 + options].fill(1);
            let sum = !ones_complement(&header);
            header[10..12].copy_from_slice(&sum.to_be_bytes());
            0x0800
        }
        Ip::V6 => {
            header[0] = 0x60;
            header[4..6].copy_from_slice(&(transport.len() as u16).to_be_bytes());
            header[6..8].copy_from_slice(&[l4.protocol(), 64]);
            header[8..].copy_from_slice(&addresses(ip));
            0x86dd
        }
    };
    frame(MAC, ether_type, &[header, transport].concat())
}

/// The packet as a driver gives it: no IP checksum, and in the place of the transport's the pseudo header's sum over so many bytes.
fn unfinished(packet: &[u8], ip: Ip, l4: L4, bytes: usize) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let l4_at = 14 + ip.bytes();
    if matches!(ip, Ip::V4 { .. }) {
        packet[24..26].fill(0);
    }
    if l4 == L4::Sctp {
        packet[l4_at + 8..l4_at + 12].fill(0);
    } else {
        let sum = ones_complement(&pseudo(ip, l4, bytes));
        packet[l4_at + l4.sum_at()..l4_at + l4.sum_at() + 2].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

/// A context descriptor for such packets.
fn put_context(driver: &mut Driver, ip: Ip, l4: L4, vlan: u16, mss: usize) {
    let kind = match l4 {
        L4::Udp => 0,
        L4::Tcp { .. } => 1,
        L4::Sctp => 2,
    };
    let is_v4 = u32::from(matches!(ip, Ip::V4 { .. }));
    driver.put(
        0,
        [
            u32::from(vlan) << 16 | cmd::lengths(14, ip.bytes() as u32),
            0,
            cmd::CONTEXT | is_v4 << 10 | kind << 11,
            (mss as u32) << 16 | (l4.bytes() as u32) << 8,
        ],
    );
}

const IXSM: u32 = 1 << 8;
const TXSM: u32 = 1 << 9;

const HEADERS: [(Ip, L4); 10] = [
    (Ip::V4 { options: 0 }, L4::Tcp { options: 0 }),
    (Ip::V4 { options: 0 }, L4::Tcp { options: 12 }),
    (Ip::V4 { options: 8 }, L4::Tcp { options: 40 }),
    (Ip::V4 { options: 0 }, L4::Udp),
    (Ip::V4 { options: 40 }, L4::Udp),
    (Ip::V4 { options: 0 }, L4::Sctp),
    (Ip::V6, L4::Tcp { options: 0 }),
    (Ip::V6, L4::Tcp { options: 12 }),
    (Ip::V6, L4::Udp),
    (Ip::V6, L4::Sctp),
];

#[test]
fn checksums_are_inserted_where_context_and_options_say() {
    for (ip, l4) in HEADERS {
        for bytes in [6, 7, 100, 1001, 1400] {
            let whole = packet(ip, l4, 7, SEQUENCE, 0x18, &pattern(bytes, 1));
            let given = unfinished(&whole, ip, l4, l4.bytes() + bytes);
            let mut driver = Driver::ready();
            put_context(&mut driver, ip, l4, 0, 0);
            driver.send(0, &given, 0, IXSM | TXSM);
            let sent = driver.sent().remove(0);
            assert!(sent[..whole.len()] == whole, "{ip:?} {l4:?} {bytes}");
            driver.send(0, &given, 0, 0);
            let sent = driver.sent().remove(0);
            assert!(sent[..given.len()] == given, "not asked for: {ip:?} {l4:?} {bytes}");
        }
    }
}

/// A sum of 0 would say that there is none (RFC 768).
#[test]
fn a_udp_checksum_is_never_0() {
    let (ip, l4) = (Ip::V4 { options: 0 }, L4::Udp);
    let mut data = pattern(64, 1);
    data[..2].fill(0);
    let first = packet(ip, l4, 0, 0, 0, &data);
    // What makes the sum 0: its own value, moved into the data.
    data[..2].copy_from_slice(&first[14 + 20 + 6..14 + 20 + 8]);
    let whole = packet(ip, l4, 0, 0, 0, &data);
    assert_eq!(whole[40..42], [0xff, 0xff], "the case is the one that is meant");
    let mut driver = Driver::ready();
    put_context(&mut driver, ip, l4, 0, 0);
    driver.send(0, &unfinished(&whole, ip, l4, 72), 0, IXSM | TXSM);
    assert!(driver.sent() == [whole]);
}

#[test]
fn tags_are_inserted_from_the_context_and_of_the_ether_type_of_vet() {
    let (ip, l4) = (Ip::V4 { options: 0 }, L4::Udp);
    let whole = packet(ip, l4, 7, 0, 0, &pattern(100, 1));
    for (vet, kind) in [(0x8100_8100, [0x81, 0x00]), (0x9100, [0x91, 0x00])] {
        let mut driver = Driver::ready();
        driver.set(0x38, vet);
        put_context(&mut driver, ip, l4, 0x7123, 0);
        driver.send(0, &unfinished(&whole, ip, l4, 108), cmd::VLE, IXSM | TXSM);
        let tagged = [&whole[..12], &kind, &[0x71, 0x23], &whole[12..]].concat();
        assert!(driver.sent() == [tagged]);
    }
}

#[test]
fn each_ring_has_two_contexts_which_last() {
    let (v4, v6, l4) = (Ip::V4 { options: 0 }, Ip::V6, L4::Udp);
    let mut driver = Driver::ready();
    put_context(&mut driver, v4, l4, 0, 0);
    let dwords = [cmd::lengths(14, 40), 0, cmd::CONTEXT, 1 << 4 | 8 << 8];
    driver.put(0, dwords);
    for _ in 0..3 {
        for (ip, index) in [(v6, 1 << 4), (v4, 0)] {
            let whole = packet(ip, l4, 7, 0, 0, &pattern(100, 1));
            driver.send(0, &unfinished(&whole, ip, l4, 108), 0, IXSM | TXSM | index);
            assert!(driver.sent() == [whole], "{ip:?}");
        }
    }
}

/// What a large packet has to become, made packet by packet.
fn segments(ip: Ip, l4: L4, mss: usize, flags: u8, payload: &[u8]) -> Vec<Vec<u8>> {
    let count = payload.len().div_ceil(mss);
    payload
        .chunks(mss)
        .enumerate()
        .map(|(at, part)| {
            // FIN and PSH stand in the last one only (8.12.8).
            let flags = if at + 1 == count { flags } else { flags & !0x09 };
            let mut segment = packet(
                ip,
                l4,
                7u16.wrapping_add(at as u16),
                SEQUENCE.wrapping_add((at * mss) as u32),
                flags,
                part,
            );
            segment.resize(segment.len().max(60), 0);
            segment
        })
        .collect()
}

/// Sends a large packet in pieces of such lengths; returns what came of it.
fn send_large(ip: Ip, l4: L4, mss: usize, payload: &[u8], pieces: &[usize], room: usize) -> Vec<Vec<u8>> {
    let whole = packet(ip, l4, 7, SEQUENCE, 0x19, &payload[..payload.len().min(1000)]);
    let headers = 14 + ip.bytes() + l4.bytes();
    let given = [&unfinished(&whole, ip, l4, 0)[..headers], payload].concat();
    let mut driver = Driver::ready();
    driver.shuffle = true;
    driver.store_packet(0, &given);
    put_context(&mut driver, ip, l4, 0, mss);
    let mut from = 0;
    for bytes in pieces.iter().copied().chain([60_000; 8]) {
        let bytes = bytes.min(given.len() - from);
        let is_last = from + bytes == given.len();
        let end = if is_last { cmd::EOP | cmd::RS } else { 0 };
        let command = cmd::DATA | cmd::IFCS | cmd::TSE | end;
        driver.data(0, from as u64, bytes, command, IXSM | TXSM | (payload.len() as u32) << 14);
        from += bytes;
        if is_last {
            break;
        }
    }
    driver.ring(0);
    let mut sent = Vec::new();
    for _ in 0..400_000 {
        (driver.bus.read_room, driver.bus.write_room) = (room, room);
        let progress = driver.step();
        sent.extend(driver.sent());
        if !progress && driver.bus.pending.is_empty() {
            break;
        }
    }
    sent
}

#[test]
fn large_packets_become_segments_with_headers_of_their_own() {
    for (ip, l4) in HEADERS.into_iter().filter(|(_, l4)| *l4 != L4::Sctp) {
        for (mss, bytes) in
            [(1448, 1448), (1448, 1449), (1448, 65_000), (536, 5360), (9000, 60_000), (1, 5), (1460, 1)]
        {
            let payload = pattern(bytes, mss as u64);
            let sent = send_large(ip, l4, mss, &payload, &[14 + ip.bytes() + l4.bytes()], usize::MAX);
            assert!(sent == segments(ip, l4, mss, 0x19, &payload), "{ip:?} {l4:?} {mss} {bytes}");
        }
    }
}

proptest! {
    #[test]
    fn segments_do_not_depend_on_pieces_or_room(
        which in 0usize..5,
        mss in 100usize..3000,
        bytes in 1usize..30_000,
        pieces in proptest::collection::vec(1usize..5000, 0..20),
        room in 64usize..2000,
    ) {
        let (ip, l4) = HEADERS[which];
        let payload = pattern(bytes, 3);
        let sent = send_large(ip, l4, mss, &payload, &pieces, room);
        prop_assert!(sent == segments(ip, l4, mss, 0x19, &payload));
    }
}

/// A context that segments can't be made with: the packet is lost and counted, the ring goes on.
#[test]
fn a_packet_that_can_not_be_segmented_is_counted() {
    for (dword0, command, dword3) in [
        (cmd::lengths(14, 20), 1 << 10 | 1 << 11, 20 << 8),
        (cmd::lengths(14, 20), 1 << 10 | 1 << 11, 1448 << 16 | 8 << 8),
        (cmd::lengths(13, 20), 1 << 10 | 1 << 11, 1448 << 16 | 20 << 8),
        (cmd::lengths(14, 20), 1 << 11, 1448 << 16 | 20 << 8),
        (cmd::lengths(14, 20), 1 << 10 | 2 << 11, 1448 << 16 | 20 << 8),
        (cmd::lengths(14, 20), 1 << 10 | 1 << 11, 9728 << 16 | 20 << 8),
    ] {
        let mut driver = Driver::ready();
        driver.put(0, [dword0, 0, cmd::CONTEXT | command, dword3]);
        let index = driver.send(0, &pattern(9000, 1), cmd::TSE, 8000 << 14);
        assert!(driver.is_done(0, index) && driver.sent().is_empty());
        assert_eq!(driver.get(0x40fc), 1, "TSCTFC");
        driver.send(0, &pattern(100, 1), 0, 0);
        assert_eq!(driver.sent().len(), 1);
    }
}

/// PAYLEN that is not what the descriptors have: what is there and wanted leaves.
#[test]
fn a_payload_length_that_is_wrong_ends_with_the_packet() {
    let (ip, l4) = (Ip::V4 { options: 0 }, L4::Tcp { options: 0 });
    let whole = packet(ip, l4, 7, SEQUENCE, 0x10, &pattern(1000, 1));
    for (length, expected) in [(500, vec![500]), (5000, vec![600, 400])] {
        let mut driver = Driver::ready();
        put_context(&mut driver, ip, l4, 0, 600);
        driver.send(0, &whole, cmd::TSE, IXSM | TXSM | length << 14);
        let lengths: Vec<usize> = driver.sent().iter().map(|frame| frame.len() - 54).collect();
        assert_eq!(lengths, expected);
        driver.send(0, &pattern(100, 1), 0, 0);
        assert_eq!(driver.sent(), [pattern(100, 1)]);
    }
}

// What comes in

/// Bits of the status: UDPCS, L4I, IPCS; L4E, IPE.
const CHECKED: [u32; 3] = [1 << 4, 1 << 5, 1 << 6];
const WRONG: [u32; 2] = [1 << 29, 1 << 30];
const ALL_CHECKS: u32 = CHECKED[0] | CHECKED[1] | CHECKED[2] | WRONG[0] | WRONG[1];

#[test]
fn checksums_are_checked_and_the_kind_of_packet_told() {
    let [udp, l4i, ip_bit] = CHECKED;
    let [l4_wrong, ip_wrong] = WRONG;
    for (ip, l4) in HEADERS {
        let whole = packet(ip, l4, 7, SEQUENCE, 0x18, &pattern(201, 1));
        let is_v4 = matches!(ip, Ip::V4 { .. });
        let of_ip = if is_v4 { ip_bit } else { 0 };
        let of_l4 = l4i | if l4 == L4::Udp { udp } else { 0 };
        let last = whole.len() - 1;
        for (broken, status) in [
            (None, of_ip | of_l4),
            (Some(last), of_ip | of_l4 | l4_wrong),
            (is_v4.then_some(22), of_ip | of_l4 | if is_v4 { ip_wrong } else { 0 }),
        ] {
            let mut sent = whole.clone();
            if let Some(at) = broken {
                sent[at] ^= 0x10;
            }
            let mut driver = Driver::ready();
            driver.deliver(&sent);
            let got = driver.received(0).expect("a frame");
            assert_eq!(got.dwords[2] & ALL_CHECKS, status, "{ip:?} {l4:?} {broken:?}");
            let kind = match ip {
                Ip::V4 { options: 0 } => 1,
                Ip::V4 { .. } => 3,
                Ip::V6 => 4,
            } | match l4 {
                L4::Tcp { .. } => 1 << 4,
                L4::Udp => 1 << 5,
                L4::Sctp => 1 << 6,
            };
            assert_eq!(got.dwords[0] >> 4 & 0xfff, kind);
            driver.set(reg::RXCSUM, 1 << 13);
            driver.deliver(&sent);
            assert_eq!(driver.received(0).expect("a frame").dwords[2] & ALL_CHECKS, 0, "not asked for");
        }
    }
}

#[test]
fn what_has_no_whole_transport_is_not_checked() {
    let whole = packet(Ip::V4 { options: 0 }, L4::Udp, 7, 0, 0, &pattern(100, 1));
    let mut driver = Driver::ready();
    // A fragment; no sum; a length beyond the frame; a version that is none.
    for (at, bytes, status) in [
        (20, [0x20, 0], CHECKED[2]),
        (20, [0, 9], CHECKED[2]),
        (40, [0, 0], CHECKED[2]),
        (16, [0xff, 0xff], 0),
        (14, [0x55, 0], 0),
    ] {
        let mut sent = whole.clone();
        sent[at..at + 2].copy_from_slice(&bytes);
        sent[24..26].fill(0);
        let sum = !ones_complement(&sent[14..34]);
        sent[24..26].copy_from_slice(&sum.to_be_bytes());
        driver.deliver(&sent);
        assert_eq!(driver.received(0).expect("a frame").dwords[2] & ALL_CHECKS, status, "{at}");
    }
}

#[test]
fn rss_chooses_the_ring_by_the_hash_of_what_mrqc_names() {
    /// The Toeplitz hash, bit by bit (82576 datasheet, 7.1.2.7.1).
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
        let window = |at: usize| (0..32).fold(0, |value, more| value << 1 | u32::from(bit(key, at + more)));
        (0..input.len() * 8).filter(|&at| bit(input, at) != 0).fold(0, |hash, at| hash ^ window(at))
    }
    let key = pattern(40, 9);
    let mut driver = Driver::ready();
    for queue in 1..16 {
        driver.receive_ring(queue, BUFFER_BYTES);
    }
    for (at, octets) in key.chunks(4).enumerate() {
        driver.set(reg::RSSRK + 4 * at as u32, u32::from_le_bytes(octets.try_into().unwrap()));
    }
    for entry in 0..32 {
        let queues = [0, 1, 2, 3].map(|at| ((entry * 4 + at) * 5 % 16) as u8);
        driver.set(reg::RETA + 4 * entry, u32::from_le_bytes(queues));
    }
    let (tcp4, ip4, ip6, tcp6, udp4, udp6) = (1 << 16, 1 << 17, 1 << 20, 1 << 21, 1 << 22, 1 << 23);
    let (v4, tcp) = (Ip::V4 { options: 0 }, L4::Tcp { options: 0 });
    for (ip, l4, fields, expected) in [
        (v4, tcp, tcp4 | ip4, Some((1, true))),
        (v4, tcp, ip4, Some((2, false))),
        (v4, L4::Udp, tcp4 | ip4, Some((2, false))),
        (v4, L4::Udp, udp4 | ip4, Some((7, true))),
        (v4, L4::Udp, tcp4 | tcp6 | udp6, None),
        (Ip::V6, tcp, tcp6 | ip6, Some((3, true))),
        (Ip::V6, L4::Udp, tcp6 | ip6, Some((5, false))),
        (Ip::V6, L4::Udp, udp6, Some((8, true))),
        (Ip::V6, L4::Sctp, ip6, Some((5, false))),
        (Ip::V6, L4::Sctp, ip4, None),
    ] {
        driver.set(reg::MRQC, 2 | fields | 6 << 3);
        driver.deliver(&packet(ip, l4, 7, 0, 0x10, &pattern(50, 1)));
        let hash = expected.map(|(kind, with_ports)| {
            let input = [&addresses(ip)[..], if with_ports { &PORTS } else { &[] }].concat();
            (kind, toeplitz(&key, &input))
        });
        let queue = hash.map_or(6, |(_, hash)| (hash & 0x7f) * 5 % 16);
        let got =
            driver.received(queue).unwrap_or_else(|| panic!("{ip:?} {l4:?} {fields:#x} on ring {queue}"));
        assert_eq!((got.dwords[0] & 15, got.dwords[1]), hash.unwrap_or((0, 0)), "{ip:?} {l4:?} {fields:#x}");
    }
}
