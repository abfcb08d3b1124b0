//! Frames out: descriptors of all kinds, in any number of pieces (82576 datasheet, 7.2).

use crate::driver::*;
use proptest::prelude::*;

#[test]
fn frames_of_any_length_leave_as_they_are_padded_to_the_shortest() {
    let mut driver = Driver::ready();
    for bytes in [14, 15, 59, 60, 61, 64, 1514, 4097, 9014, 9728] {
        let mut packet = pattern(bytes, bytes as u64);
        let index = driver.send(0, &packet, 0, 0);
        packet.resize(bytes.max(60), 0);
        assert!(driver.sent() == [packet], "{bytes}");
        assert!(driver.is_done(0, index));
    }
    assert_eq!(driver.get(reg::GPTC), 10);
}

#[test]
fn what_is_no_frame_is_dropped_and_its_descriptor_done() {
    let mut driver = Driver::ready();
    let dropped = [(0, "nothing"), (13, "no header"), (9733, "too long")];
    for (bytes, why) in dropped {
        let index = driver.send(0, &pattern(bytes, 1), 0, 0);
        assert!(driver.is_done(0, index) && driver.sent().is_empty(), "{why}");
    }
    assert_eq!(counted(&driver, "frames_refused"), dropped.len() as u64);
    driver.send(0, &pattern(100, 1), 0, 0);
    assert_eq!(driver.sent().len(), 1, "the ring goes on");
}

pub(crate) fn counted(driver: &Driver, name: &str) -> u64 {
    use etherslot_pci::function::Function;
    let mut found = None;
    driver.nic.count(&mut |counter, value| {
        if counter == name {
            found = Some(value);
        }
    });
    found.expect("a counter of this name")
}

#[test]
fn only_descriptors_that_ask_for_it_are_written_back() {
    let mut driver = Driver::ready();
    driver.store_packet(0, &pattern(200, 1));
    let first = driver.data(0, 0, 100, cmd::DATA | cmd::IFCS, 0);
    let last = driver.data(0, 100, 100, cmd::WHOLE, 0);
    driver.ring(0);
    driver.run();
    assert!(!driver.is_done(0, first) && driver.is_done(0, last));
    assert_eq!(driver.get(reg::transmit(0, at::HEAD)), 2);
    assert_eq!(driver.sent(), [pattern(200, 1)]);
}

#[test]
fn the_head_is_written_instead_if_a_place_is_given_for_it() {
    let mut driver = Driver::ready();
    let place = 0xf000;
    driver.store(place, &[0xff; 8]);
    driver.set(reg::transmit(0, at::WRITE_BACK), place as u32 | 1);
    let index = driver.send(0, &pattern(100, 1), 0, 0);
    assert!(!driver.is_done(0, index));
    assert_eq!(driver.dword(place), 1);
}

#[test]
fn a_frame_without_ifcs_brings_its_own_fcs() {
    let mut driver = Driver::ready();
    driver.store_packet(0, &pattern(104, 1));
    driver.data(0, 0, 104, cmd::EOP | cmd::RS | cmd::DATA, 0);
    driver.ring(0);
    driver.run();
    assert_eq!(driver.sent(), [pattern(104, 1)[..100].to_vec()]);
}

#[test]
fn legacy_descriptors_are_understood() {
    let mut driver = Driver::ready();
    let mut packet = pattern(100, 4);
    packet[50..52].fill(0);
    driver.store_packet(0, &packet);
    let address = Driver::transmit_base(0) + 0x4000;
    // IC from CSS 20, at CSO 50; a tag.
    let command = cmd::EOP | cmd::IFCS | 1 << 26 | cmd::RS | cmd::VLE | 50 << 16 | 0x64;
    driver.put(0, [address as u32, 0, command, 20 << 8 | 0x7123 << 16]);
    driver.ring(0);
    driver.run();
    let sent = driver.sent().remove(0);
    assert_eq!(sent[12..16], [0x81, 0x00, 0x71, 0x23]);
    let untagged = [&sent[..12], &sent[16..]].concat();
    let sum = crate::offloads::ones_complement(&untagged[20..]);
    assert_eq!(sum, 0xffff, "with its checksum all adds up to nothing");
    assert_eq!(untagged[..50], packet[..50]);
}

#[test]
fn while_the_cable_is_full_frames_wait() {
    let mut driver = Driver::ready();
    driver.store_packet(0, &pattern(100, 1));
    let last = (0..CABLE_FRAMES as u32 - 1).map(|_| driver.data(0, 0, 100, cmd::WHOLE, 0)).last();
    driver.ring(0);
    driver.run();
    let further = (0..5).map(|_| driver.data(0, 0, 100, cmd::WHOLE, 0)).last();
    driver.ring(0);
    driver.run();
    assert!(driver.is_done(0, last.unwrap()) && !driver.is_done(0, further.unwrap()));
    assert_eq!(driver.sent().len(), CABLE_FRAMES);
    driver.run();
    assert!(driver.is_done(0, further.unwrap()));
    assert_eq!(driver.sent().len(), 4);
}

#[test]
fn a_fault_of_memory_stops_the_ring_until_it_is_enabled_anew() {
    let mut driver = Driver::ready();
    driver.get(reg::ICR);
    let index = driver.put(0, [0xffff_f000, 0xff, 0x64 | cmd::WHOLE, 0]);
    driver.ring(0);
    driver.run();
    assert!(!driver.is_done(0, index));
    assert_eq!(driver.get(reg::ICR) & 1 << 22, 1 << 22, "FER");
    assert_eq!(counted(&driver, "memory_faults"), 1);
    driver.set(reg::transmit(0, at::CONTROL), 0);
    driver.transmit_ring(0);
    driver.send(0, &pattern(100, 1), 0, 0);
    assert_eq!(driver.sent().len(), 1);
}

#[test]
fn without_a_link_frames_are_lost_and_descriptors_done() {
    let mut driver = Driver::ready();
    driver.peer.set_carrier(false);
    driver.run();
    let index = driver.send(0, &pattern(100, 1), 0, 0);
    assert!(driver.is_done(0, index) && driver.sent().is_empty());
}

proptest! {
    /// Whatever pieces packets are described in, however reads come back, and whatever room there is: they leave whole and in order.
    #[test]
    fn pieces_make_no_difference(
        packets in proptest::collection::vec((60usize..3000, proptest::collection::vec(0usize..1000, 0..5)), 1..12),
        seed: u64,
        piece in 1usize..600,
        room in 4usize..400,
    ) {
        let mut driver = Driver::ready();
        driver.shuffle = true;
        driver.random = Random(seed);
        driver.bus.piece = piece;
        let mut expected = Vec::new();
        let mut offset = 0;
        for (at, (bytes, cuts)) in packets.iter().enumerate() {
            let packet = pattern(*bytes, at as u64);
            driver.store(Driver::transmit_base(0) + 0x4000 + offset, &packet);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut * *bytes / 1000).collect();
            cuts.sort_unstable();
            cuts.push(*bytes);
            cuts.dedup();
            let mut from = 0;
            for cut in cuts {
                let command = if cut == *bytes { cmd::WHOLE } else { cmd::DATA | cmd::IFCS };
                driver.data(0, offset + from as u64, cut - from, command, 0);
                from = cut;
            }
            offset += *bytes as u64;
            expected.push(packet);
        }
        driver.ring(0);
        for _ in 0..20_000 {
            (driver.bus.read_room, driver.bus.write_room) = (room, room);
            driver.step();
        }
        prop_assert!(driver.sent() == expected);
    }
}
