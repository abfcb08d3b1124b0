//! Frames in: filters, buffers, descriptors, rings (82576 datasheet, 7.1).

use crate::driver::*;
use crate::transmit::counted;
use proptest::prelude::*;

/// RCTL: enabled, broadcasts accepted, the FCS stripped.
const RCTL: u32 = 1 << 1 | 1 << 15 | 1 << 26;
const UPE: u32 = 1 << 3;
const MPE: u32 = 1 << 4;
const LPE: u32 = 1 << 5;
const VFE: u32 = 1 << 18;

#[test]
fn a_frame_is_written_behind_its_buffer_comes_its_descriptor() {
    let mut driver = Driver::ready();
    let sent = frame(MAC, 0x88b5, &pattern(500, 1));
    driver.deliver(&sent);
    let got = driver.received(0).expect("a frame");
    assert_eq!(got.bytes, sent);
    assert_eq!(got.dwords[2], 3, "DD, EOP");
    assert_eq!(got.dwords[3], sent.len() as u32);
    assert_eq!((driver.get(reg::GPRC), driver.get(reg::receive(0, at::HEAD))), (1, 1));
}

#[test]
fn addresses_are_filtered_as_the_registers_say() {
    const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 9];
    const ALL: [u8; 6] = [0xff; 6];
    const GROUP: [u8; 6] = [0x33, 0x33, 0, 0, 0x0a, 0x5b];
    // Bits 47:36 of the address, last octet highest.
    let hash = (0x5b0a >> 4) & 0xfff;
    for (rctl, to, hashed, passes) in [
        (RCTL, MAC, false, true),
        (RCTL, OTHER, false, false),
        (RCTL | UPE, OTHER, false, true),
        (RCTL, ALL, false, true),
        (RCTL & !(1 << 15), ALL, false, false),
        (RCTL, GROUP, false, false),
        (RCTL, GROUP, true, true),
        (RCTL | MPE, GROUP, false, true),
        (RCTL | UPE, GROUP, false, false),
        (RCTL & !2, MAC, false, false),
    ] {
        let mut driver = Driver::ready();
        driver.set(reg::RCTL, rctl);
        if hashed {
            driver.set(reg::MTA + 4 * (hash >> 5), 1 << (hash & 31));
        }
        driver.deliver(&frame(to, 0x88b5, &[7; 64]));
        assert_eq!(driver.received(0).is_some(), passes, "RCTL {rctl:#x} {to:?} {hashed}");
    }
}

#[test]
fn the_multicast_hash_is_taken_from_where_rctl_says() {
    let to = [1, 0, 0x5e, 0x12, 0x34, 0x56];
    for (offset, hash) in [(0, 0x563), (1, 0xac6), (2, 0x58d), (3, 0x634)] {
        for table in [hash, hash ^ 1] {
            let mut driver = Driver::ready();
            driver.set(reg::RCTL, RCTL | offset << 12);
            driver.set(reg::MTA + 4 * (table >> 5), 1 << (table & 31));
            driver.deliver(&frame(to, 0x88b5, &[7; 64]));
            assert_eq!(driver.received(0).is_some(), table == hash, "MO {offset}");
        }
    }
}

#[test]
fn any_of_24_addresses_is_ours() {
    let mut driver = Driver::ready();
    for (at, register) in
        (0..16).map(|at| 0x5400 + 8 * at).chain((0..8).map(|at| 0x54e0 + 8 * at)).enumerate()
    {
        driver.set(register, 0x0300_0002);
        driver.set(register + 4, 1 << 31 | (at as u32) << 8);
        driver.deliver(&frame([2, 0, 0, 3, 0, at as u8], 0x88b5, &[7; 64]));
        assert!(driver.received(0).is_some(), "{at}");
        driver.set(register + 4, (at as u32) << 8);
        driver.deliver(&frame([2, 0, 0, 3, 0, at as u8], 0x88b5, &[7; 64]));
        assert!(driver.received(0).is_none(), "{at} is not valid");
    }
}

#[test]
fn vlans_are_filtered_and_their_tags_stripped_as_asked_for() {
    let tagged = [&MAC[..], &PEER, &[0x81, 0, 0x61, 0x23, 0x88, 0xb5], &pattern(100, 1)].concat();
    let untagged = frame(MAC, 0x88b5, &pattern(100, 1));
    for (rctl, table, vme, expected) in [
        (RCTL, 0, false, Some((&tagged, 0, 0))),
        (RCTL, 0, true, Some((&untagged, 0x6123, 8))),
        (RCTL | VFE, 0, true, None),
        (RCTL | VFE, 1 << (0x123 & 31), true, Some((&untagged, 0x6123, 8))),
        (RCTL | VFE | 1 << 19, 1 << (0x123 & 31), true, Some((&untagged, 0x6123, 8))),
        (RCTL | VFE | 3 << 19, 1 << (0x123 & 31), true, None),
    ] {
        let mut driver = Driver::ready();
        driver.set(reg::RCTL, rctl);
        driver.set(reg::CTRL, 0x241 | u32::from(vme) << 30);
        driver.set(reg::VFTA + 4 * (0x123 >> 5), table);
        driver.deliver(&tagged);
        let got = driver.received(0).map(|got| (got.bytes, got.dwords[3] >> 16, got.dwords[2] & 8));
        assert_eq!(got, expected.map(|(bytes, tag, status)| (bytes.clone(), tag, status)), "{rctl:#x} {vme}");
        driver.deliver(&untagged);
        assert!(driver.received(0).is_some(), "frames without a tag pass");
    }
}

#[test]
fn frames_longer_than_allowed_are_dropped_and_counted() {
    for (rctl, rlpml, most) in [(RCTL, 0x2600, 1518), (RCTL | LPE, 9022, 9018), (RCTL | LPE, 3000, 2996)] {
        let mut driver = Driver::ready();
        driver.set(reg::RCTL, rctl);
        driver.set(reg::RLPML, rlpml);
        for (bytes, passes) in [(most, true), (most + 1, false)] {
            driver.deliver(&frame(MAC, 0x88b5, &pattern(bytes - 14, 1)));
            assert_eq!(driver.received(0).is_some(), passes, "{bytes}");
        }
        assert_eq!(driver.get(reg::ROC), 1);
    }
}

#[test]
fn short_frames_are_padded_as_a_wire_would() {
    let mut driver = Driver::ready();
    let mut short = frame(MAC, 0x0806, &pattern(28, 1));
    driver.deliver(&short);
    short.resize(60, 0);
    assert_eq!(driver.received(0).expect("a frame").bytes, short);
    driver.deliver(&[1, 2, 3]);
    assert!(driver.received(0).is_none(), "no frame at all");
}

#[test]
fn the_fcs_is_kept_if_it_is_not_stripped() {
    let mut driver = Driver::ready();
    driver.set(reg::RCTL, RCTL & !(1 << 26));
    let sent = frame(MAC, 0x88b5, b"123456789".repeat(9).as_slice());
    driver.deliver(&sent);
    let got = driver.received(0).expect("a frame").bytes;
    assert_eq!(got.len(), sent.len() + 4);
    // The residue of a frame with its FCS (IEEE 802.3, 3.2.9).
    let crc = got.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 })
    });
    assert_eq!(crc, 0xdebb_20e3);
}

#[test]
fn a_frame_takes_as_many_buffers_as_it_needs() {
    for (rctl, srrctl, buffer) in [
        (LPE, 1 << 25 | 1, 1024),
        (LPE, 1 << 25 | 2, 2048),
        (LPE, 1 << 25, 2048),
        (LPE | 2 << 16, 1 << 25, 512),
    ] {
        let mut driver = Driver::ready();
        driver.set(reg::RCTL, RCTL | rctl);
        driver.set(reg::receive(0, at::SRRCTL), srrctl);
        for bytes in [60, buffer - 1, buffer, buffer + 1, 3 * buffer] {
            let sent = frame(MAC, 0x88b5, &pattern(bytes - 14, bytes as u64));
            driver.deliver(&sent);
            let got = driver.received(0).expect("a frame");
            assert!(got.bytes == sent, "{bytes} in {buffer}");
            assert_eq!(got.descriptors, bytes.div_ceil(buffer));
        }
    }
}

#[test]
fn legacy_descriptors_keep_their_address_and_say_what_was_found() {
    let mut driver = Driver::ready();
    driver.receive_ring_of(0, 2, ENTRIES - 1);
    driver.set(reg::CTRL, 0x241 | 1 << 30);
    driver.deliver(&[&MAC[..], &PEER, &[0x81, 0, 0x01, 0x23, 0x88, 0xb5], &pattern(100, 1)].concat());
    let descriptor = Driver::receive_base(0);
    assert_eq!(driver.dword(descriptor), Driver::receive_buffer(0, 0) as u32);
    assert_eq!(driver.dword(descriptor + 8) & 0xffff, 114);
    assert_eq!(driver.dword(descriptor + 12), 0x0123_0000 | 0b1011, "tag; VP, EOP, DD");
}

#[test]
fn without_descriptors_frames_wait_or_are_dropped_as_the_ring_wants() {
    let mut driver = Driver::ready();
    driver.receive_ring_of(0, 1 << 25 | 2, 2);
    for at in 0..4 {
        driver.deliver(&frame(MAC, 0x88b5, &[at; 64]));
    }
    assert_eq!((driver.get(reg::GPRC), driver.get(reg::RNBC)), (3, 1));
    driver.refill(0, 2);
    driver.run();
    let got: Vec<u8> = std::iter::from_fn(|| driver.received(0)).map(|got| got.bytes[14]).collect();
    assert_eq!(got, [0, 1, 2, 3]);

    driver.receive_ring_of(0, 1 << 31 | 1 << 25 | 2, 2);
    for at in 0..4 {
        driver.deliver(&frame(MAC, 0x88b5, &[at; 64]));
    }
    assert_eq!([0, 1].map(|_| driver.get(reg::receive(0, at::RQDPC))), [2, 0]);
    driver.refill(0, 2);
    driver.deliver(&frame(MAC, 0x88b5, &[9; 64]));
    let got: Vec<u8> = std::iter::from_fn(|| driver.received(0)).map(|got| got.bytes[14]).collect();
    assert_eq!(got, [0, 1, 9]);
}

#[test]
fn what_finds_the_packet_buffer_full_is_counted_as_missed() {
    let mut driver = Driver::ready();
    driver.receive_ring_of(0, 1 << 25 | 2, 0);
    let sent = frame(MAC, 0x88b5, &[1; 64]);
    while driver.peer.send_copy(&sent) {}
    driver.run();
    assert!(!driver.peer.send_copy(&sent));
    driver.run();
    assert_eq!([0, 1].map(|_| driver.get(reg::MPC)), [2, 0]);
    assert_eq!(counted(&driver, "frames_missed"), 2);
}

#[test]
fn what_comes_while_reception_is_off_is_lost_without_a_trace() {
    let mut driver = Driver::ready();
    driver.set(reg::RCTL, RCTL & !2);
    for _ in 0..3 * CABLE_FRAMES {
        driver.deliver(&frame(MAC, 0x88b5, &[1; 64]));
    }
    driver.set(reg::RCTL, RCTL);
    driver.run();
    assert_eq!((driver.get(reg::MPC), driver.get(reg::GPRC)), (0, 0));
    driver.deliver(&frame(MAC, 0x88b5, &[1; 64]));
    assert!(driver.received(0).is_some());
}

#[test]
fn frames_come_back_when_phy_or_mac_are_looped() {
    for (mdic, lbm) in [(true, 0), (false, 3 << 6), (false, 1 << 6)] {
        let mut driver = Driver::ready();
        driver.peer.set_carrier(!mdic);
        if mdic {
            driver.set(reg::MDIC, 1 << 26 | 1 << 21 | 0x4140);
        }
        driver.set(reg::RCTL, RCTL | lbm);
        driver.run();
        for at in 0..200 {
            let sent = frame([0xff; 6], 0x88b5, &pattern(100, at));
            driver.send(0, &sent, 0, 0);
            assert_eq!(driver.received(0).expect("it comes back").bytes, sent);
        }
        assert!(driver.sent().is_empty(), "nobody else hears it");
        driver.deliver(&frame(MAC, 0x88b5, &[1; 64]));
        assert!(driver.received(0).is_none(), "and nobody is heard");
    }
}

#[test]
fn an_ether_type_filter_chooses_the_ring() {
    let mut driver = Driver::ready();
    driver.receive_ring(5, BUFFER_BYTES);
    driver.set(reg::ETQF + 8, 1 << 31 | 1 << 26 | 5 << 16 | 0x88f7);
    driver.deliver(&frame(MAC, 0x88f7, &[1; 64]));
    driver.deliver(&frame(MAC, 0x88f8, &[1; 64]));
    assert!(driver.received(5).is_some() && driver.received(0).is_some());
    assert!(driver.received(5).is_none());
}

proptest! {
    #[test]
    fn frames_arrive_whole_and_in_order_with_any_room(
        lengths in proptest::collection::vec(60usize..4000, 1..30),
        room in 64usize..300,
        filled in 4u32..60,
    ) {
        let mut driver = Driver::ready();
        driver.set(reg::RCTL, RCTL | LPE);
        driver.receive_ring_of(0, 1 << 25 | 1, filled);
        let frames: Vec<Vec<u8>> =
            lengths.iter().zip(0..).map(|(&bytes, seed)| frame(MAC, 0x88b5, &pattern(bytes - 14, seed))).collect();
        for frame in &frames {
            prop_assert!(driver.peer.send_copy(frame));
        }
        let mut got = Vec::new();
        for _ in 0..40_000 {
            (driver.bus.write_room, driver.bus.read_room) = (room, room);
            driver.step();
            got.extend(driver.received(0).map(|got| got.bytes));
            if got.len() == frames.len() {
                break;
            }
        }
        prop_assert!(got == frames);
    }
}
