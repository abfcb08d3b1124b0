//! A stranger on the segment, who sees all frames and sends his own from any address: he learns nothing, moves nothing, ends nothing.

mod support;

use etherslot_node::{HostNode, SlotConfig};
use etherslot_session::{Config, State};
use etherslot_wire::control::Name;
use etherslot_wire::frame::{CHECK_BYTES, Header, Kind, put_check};
use support::{BOX, HOST, MS, World, guarded_box, guarded_host, public, security};

const MARK: &[u8] = b"what only guest and device may know";

fn world() -> World {
    let mut world = World::guarded();
    world.set_up();
    world
}

fn is_up(world: &World) -> bool {
    world.host.sessions().any(|(_, session)| session.state() == State::Up)
}

fn epoch(world: &World) -> u32 {
    world.host.sessions().next().map(|(_, session)| session.epoch()).unwrap()
}

/// A copy by the device works, as it does without strangers.
fn works(world: &mut World) {
    world.machine.interrupts.clear();
    world.copy(0x1000, 40_000);
    assert_eq!(world.machine.interrupts.len(), 1);
    let (from, to) = world.machine.memory[0x1000..0x1000 + 80_000].split_at(40_000);
    assert_eq!(from, to);
}

/// Frames that both nodes have refused before they looked at anything but what finds the keys.
fn refused(world: &mut World) -> u64 {
    let both = [world.host.guard_counters().unwrap(), world.io_box().guard_counters().unwrap()];
    both.iter().map(|one| one.plain_frames + one.keyless_frames + one.forged_frames + one.stale_frames).sum()
}

/// Frames that both ends of the session have dropped because their packet numbers had come before.
fn replayed(world: &mut World) -> u64 {
    let at_host = world.host.sessions().map(|(_, session)| session.counters().dropped_replay).sum::<u64>();
    at_host + world.io_box().hosts().map(|(_, session, _)| session.counters().dropped_replay).sum::<u64>()
}

/// The frames of a copy of [`MARK`], as they crossed the wire.
fn capture(world: &mut World) -> Vec<(bool, Vec<u8>)> {
    world.tap = Some(Vec::new());
    works(world);
    for at in (0x1000..0x2000).step_by(MARK.len()) {
        world.machine.memory[at..at + MARK.len()].copy_from_slice(MARK);
    }
    world.bar_write(8, &0x1000u64.to_le_bytes());
    world.bar_write(16, &4096u64.to_le_bytes());
    world.run(20 * MS);
    world.tap.take().unwrap()
}

fn shows(frames: &[(bool, Vec<u8>)]) -> bool {
    frames.iter().any(|(_, frame)| frame.windows(MARK.len()).any(|part| part == MARK))
}

#[test]
fn nothing_of_the_data_shows_on_the_wire() {
    let mut world = world();
    assert!(!shows(&capture(&mut world)));
    assert_eq!(&world.machine.memory[0x2000..0x2000 + MARK.len()], MARK);
    // The test sees what is in the clear.
    let mut open = World::new();
    open.set_up();
    assert!(shows(&capture(&mut open)));
}

#[test]
fn both_ends_know_who_the_other_is() {
    let mut world = world();
    assert_eq!(world.host.protections().next().unwrap().unwrap().peer, public(BOX));
    assert_eq!(world.io_box().protections().next().unwrap().unwrap().peer, public(HOST));
}

#[test]
fn frames_in_the_clear_with_all_the_right_numbers_have_no_effect() {
    let mut world = world();
    let seen = capture(&mut world);
    let memory = world.machine.memory.clone();
    let mut sent = 0;
    for (to_box, frame) in &seen {
        let (header, body, _) = Header::parse_sealed(frame).unwrap();
        for kind in [Kind::Close, Kind::Data, Kind::Ack, Kind::Hello] {
            for ahead in [1, 100, 100_000] {
                let header = Header { kind, packet_number: header.packet_number + ahead, ..header };
                let mut forged = vec![0; header.len() + body.len() + CHECK_BYTES];
                let start = header.emit(&mut forged).unwrap();
                forged[start..start + body.len()].copy_from_slice(body);
                put_check(&mut forged, crc32c::crc32c).unwrap();
                for from in [BOX, HOST, 9] {
                    world.inject(*to_box, from, &forged);
                    sent += 1;
                }
            }
        }
    }
    assert_eq!(world.machine.memory, memory);
    assert!(is_up(&world));
    let refused = world.host.guard_counters().unwrap().plain_frames
        + world.io_box().guard_counters().unwrap().plain_frames;
    assert_eq!(refused, sent);
    works(&mut world);
}

#[test]
fn a_whole_capture_that_is_sent_again_has_no_effect() {
    let mut world = world();
    let life = epoch(&world);
    let mut seen = std::mem::take(&mut world.greeting);
    seen.extend(capture(&mut world));
    world.machine.memory.fill(0x5A);
    world.machine.interrupts.clear();
    let agreed = world.io_box().guard_counters().unwrap().handshakes;
    let before = replayed(&mut world);
    let in_session = |(_, frame): &&(bool, Vec<u8>)| {
        Header::parse_sealed(frame).is_ok_and(|(header, ..)| header.dst_epoch != 0)
    };
    let of_session = seen.iter().filter(in_session).count() as u64;
    for order in 0..3 {
        for from in [BOX, HOST, 9] {
            for (to_box, frame) in &seen {
                world.inject(*to_box, from, frame);
            }
        }
        if order == 0 {
            seen.reverse();
        } else {
            let half = seen.len() / 2;
            seen.rotate_left(half);
        }
    }
    world.run(100 * MS);
    assert!(world.machine.memory.iter().all(|&byte| byte == 0x5A) && world.machine.interrupts.is_empty());
    assert_eq!((epoch(&world), is_up(&world)), (life, true));
    assert_eq!(world.io_box().guard_counters().unwrap().handshakes, agreed);
    assert_eq!(
        replayed(&mut world) - before,
        3 * of_session,
        "each from the one address that it may come from"
    );
    works(&mut world);
}

#[test]
fn no_part_of_a_frame_fits_another() {
    let mut world = world();
    let seen = capture(&mut world);
    world.machine.memory.fill(0x5A);
    let (before, mut injected) = (refused(&mut world), 0);
    for pair in seen.windows(2) {
        let [(to_box, one), (_, other)] = pair else { continue };
        for at in [4, 12, 16, 24, 48, 64, one.len() - 16, one.len() - 1] {
            if let (Some(head), Some(tail)) = (one.get(..at), other.get(at..)) {
                let mixed = [head, tail].concat();
                // What stands behind a whole frame is padding, and means nothing.
                if !mixed.starts_with(one) && !mixed.starts_with(other) {
                    world.inject(*to_box, if *to_box { HOST } else { BOX }, &mixed);
                    injected += 1;
                }
            }
        }
        // The box's own words, sent back to it.
        world.inject(!to_box, if *to_box { BOX } else { HOST }, one);
        injected += 1;
    }
    assert!(world.machine.memory.iter().all(|&byte| byte == 0x5A));
    assert_eq!(refused(&mut world) - before, injected, "not one was taken for whole");
    assert!(is_up(&world));
    works(&mut world);
}

#[test]
fn frames_of_an_earlier_life_have_no_effect_on_the_next() {
    let mut world = world();
    let mut seen = std::mem::take(&mut world.greeting);
    seen.extend(capture(&mut world));
    world.kill_box();
    world.run(1500 * MS);
    world.box_node = Some(guarded_box(2));
    world.run(500 * MS);
    assert!(is_up(&world));
    world.set_up();
    let life = epoch(&world);
    let exchanges = world.io_box().guard_counters().unwrap().handshake_exchanges;
    for (to_box, frame) in &seen {
        world.inject(*to_box, if *to_box { HOST } else { BOX }, frame);
    }
    world.run(100 * MS);
    let counters = world.io_box().guard_counters().unwrap();
    assert!(counters.keyless_frames > 10 && counters.handshake_exchanges == exchanges, "{counters:?}");
    assert_eq!((epoch(&world), is_up(&world)), (life, true));
    works(&mut world);
}

#[test]
fn a_host_of_another_fabric_gets_no_answer() {
    let mut world = World::between(guarded_host(7, HOST, HOST), guarded_box(1));
    world.run(3000 * MS);
    assert!(!is_up(&world) && world.machine.attached.is_empty());
    assert!(world.greeting.iter().all(|(to_box, _)| *to_box), "the box has answered");
    let counters = world.io_box().guard_counters().unwrap();
    assert!(counters.handshake_strangers > 10 && counters.handshake_exchanges == 0, "{counters:?}");
}

#[test]
fn a_node_without_keys_and_one_with_keys_do_not_speak() {
    let config = Config::default();
    let slot = SlotConfig { name: Name::new("engine").unwrap(), address: BOX, hide_msix: false };
    let mut world = World::between(HostNode::new(config, 2, &[slot]), guarded_box(1));
    assert!(!is_up(&world) && world.io_box().guard_counters().unwrap().plain_frames > 0);
    let mut world = World::between(guarded_host(1, HOST, HOST), support::new_box(1));
    assert!(!is_up(&world) && world.io_box().counters().malformed_frames > 0);
}

#[test]
fn a_node_of_the_fabric_does_not_see_a_device_that_it_may_not_own() {
    for (owner, sees) in [(HOST, true), (9, false)] {
        let mut io_box = guarded_box(1);
        io_box.set_owners(Name::new("engine").unwrap(), vec![public(owner)]);
        let world = World::between(guarded_host(1, HOST, HOST), io_box);
        assert!(is_up(&world));
        assert_eq!(world.machine.attached.len(), usize::from(sees));
    }
}

#[test]
fn a_node_of_the_fabric_can_not_be_another() {
    // It says the ID of node 5, and has the key of node 9.
    let mut world = World::between(guarded_host(1, 9, 5), guarded_box(1));
    assert!(!is_up(&world));
    assert!(world.io_box().guard_counters().unwrap().false_identities > 0);
}

#[test]
fn a_host_speaks_with_the_box_that_it_expects_alone() {
    for (expected, comes_up) in [(BOX, true), (9, false)] {
        let mut host = guarded_host(1, HOST, HOST);
        host.expect(BOX, public(expected));
        assert_eq!(is_up(&World::between(host, guarded_box(1))), comes_up);
    }
}

#[test]
fn a_flood_of_handshakes_leaves_sessions_alone() {
    let mut world = world();
    let greeting = std::mem::take(&mut world.greeting);
    let knock = &greeting.iter().find(|(to_box, _)| *to_box).unwrap().1;
    let mut junk = knock.clone();
    *junk.last_mut().unwrap() ^= 1;
    let before = world.io_box().guard_counters().unwrap();
    world.tap = None;
    for _ in 0..20 {
        for _ in 0..20_000 {
            world.inject(true, 9, &junk);
        }
        works(&mut world);
    }
    let counters = world.io_box().guard_counters().unwrap();
    assert!(counters.handshake_limited > 300_000, "{counters:?}");
    assert_eq!(counters.handshake_exchanges, before.handshake_exchanges);
    assert!(is_up(&world));
}

#[test]
fn a_session_begins_over_a_link_that_loses() {
    for seed in 1..20u64 {
        let mut random = seed;
        let mut lost = move || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % 20 == 0
        };
        let (mut host, mut io_box) = (guarded_host(1, HOST, HOST), guarded_box(1));
        host.protect(security(1, HOST, seed));
        let mut machine = support::Machine::default();
        let mut now_ns = MS;
        let (mut to_box, mut to_host) = (Vec::new(), Vec::new());
        let mut push = |queue: &mut Vec<Vec<u8>>, burst: &[&[u8]]| {
            queue.extend(burst.iter().filter(|_| !lost()).map(|frame| frame.to_vec()));
            burst.len()
        };
        while !host.sessions().any(|(_, session)| session.state() == State::Up) {
            now_ns += 100_000;
            assert!(now_ns < 500 * MS, "seed {seed}");
            host.poll(now_ns, &mut machine);
            host.transmit(now_ns, &mut |_, burst| push(&mut to_box, burst));
            to_box.drain(..).for_each(|frame| io_box.receive(now_ns, &HOST, &frame));
            io_box.poll(now_ns);
            io_box.transmit(now_ns, &mut |_, burst| push(&mut to_host, burst));
            to_host.drain(..).for_each(|frame| host.receive(now_ns, &BOX, &frame, &mut machine));
        }
    }
}
