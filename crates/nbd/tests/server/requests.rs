//! Requests and replies.

use etherslot_initiator::{DiskError, Status};
use etherslot_nbd::message::{Error, command, command_flag};
use proptest::prelude::*;

use crate::client::{Answer, DISK_BYTES, World};

fn pattern(bytes: usize, seed: u8) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at as u8).wrapping_mul(31).wrapping_add((at >> 9) as u8).wrapping_add(seed))
        .collect()
}

/// Data in one piece, whatever the order in which they came.
fn joined(mut answer: Answer) -> Vec<u8> {
    answer.data.sort_by_key(|part| part.0);
    for two in answer.data.windows(2) {
        assert!(two[0].0 == 0 || two[0].0 + two[0].1.len() as u64 == two[1].0);
    }
    answer.data.into_iter().flat_map(|part| part.1).collect()
}

#[test]
fn what_was_written_is_read_in_one_piece_and_in_many() {
    for structured in [false, true] {
        let mut world = World::new();
        let mut client = world.enter("disk", structured);
        for (bytes, offset) in
            [(512, 512), (4096, 0), (65536, 1 << 20), (3_000_320, 1024), (9 << 20, 4 << 20)]
        {
            let data = pattern(bytes, 7);
            let write = client.request(command::WRITE, 0, offset, bytes as u32);
            client.say(&data);
            world.run();
            assert_eq!(client.answers(0), [Answer { cookie: write, ..Answer::default() }]);
            assert!(world.disk.content()[offset as usize..][..bytes] == data);
            client.stop_reading_at(usize::MAX);
            client.request(command::READ, 0, offset, bytes as u32);
            world.run();
            let answer = client.answers(bytes).remove(0);
            assert_eq!(answer.error, 0);
            assert!(joined(answer) == data, "{bytes} {structured}");
        }
        assert_eq!((world.server.counters().reads, world.server.counters().errors), (5, 0));
        client.request(command::DISC, 0, 0, 0);
        world.run();
        assert!(client.is_closed());
        world.assert_clean();
    }
}

#[test]
fn what_an_export_does_not_allow_is_refused_and_its_payload_skipped() {
    let mut world = World::new();
    let end = DISK_BYTES as u64;
    for (name, structured) in [("disk", false), ("disk", true), ("kept", true)] {
        let mut client = world.enter(name, structured);
        let kept = name == "kept";
        let or_kept = |error: Error| if kept { Error::Permission } else { error };
        for (command, flags, offset, length, error) in [
            (command::READ, 0, 1, 512, Error::Invalid),
            (command::READ, 0, 0, 511, Error::Invalid),
            (command::READ, 0, 0, 0, Error::Invalid),
            (command::READ, 0, end, 512, Error::Invalid),
            (command::READ, 0, u64::MAX - 511, 512, Error::Invalid),
            (command::READ, 4, 0, 512, Error::Invalid),
            (command::READ, 0, 0, 33 << 20, Error::Invalid),
            (command::WRITE, 0, 256, 512, or_kept(Error::Invalid)),
            (command::WRITE, 0, end - 512, 1024, or_kept(Error::NoSpace)),
            (command::WRITE, 0, end, 100_000, or_kept(Error::Invalid)),
            (command::WRITE, command_flag::NO_HOLE, 0, 512, Error::Invalid),
            (command::WRITE_ZEROES, 0, end, 512, or_kept(Error::NoSpace)),
            (command::WRITE_ZEROES, 1 << 4, 0, 512, Error::Invalid),
            (command::TRIM, 0, end, 512, or_kept(Error::Invalid)),
            (command::CACHE, 0, 0, 512, Error::Invalid),
            (command::BLOCK_STATUS, 0, 0, 512, Error::Invalid),
            (999, 0, 0, 512, Error::Invalid),
        ] {
            let cookie = client.request(command, flags, offset, length);
            if command == command::WRITE {
                client.say(&vec![0xEE; length as usize]);
            }
            world.run();
            let expected = Answer { cookie, error: error as u32, data: Vec::new() };
            assert_eq!(client.answers(0), [expected], "{name} {command} {offset} {length}");
        }
        client.request(command::DISC, 0, 0, 0);
        world.run();
    }
    assert!(world.disk.content().iter().all(|&byte| byte == 0));
    world.assert_clean();
}

#[test]
fn zeros_are_written_in_pieces_and_what_is_durable_is_flushed() {
    let mut world = World::with(crate::client::config(), |disk| {
        disk.info_mut().max_zero_blocks = 100;
        disk.info_mut().max_discard_blocks = 8;
    });
    let mut client = world.enter("disk", true);
    client.request(command::WRITE, command_flag::FUA, 0, 1 << 20);
    client.say(&vec![0xAA; 1 << 20]);
    world.run();
    assert_eq!(world.disk.flushes(), 16, "each piece");
    client.request(command::WRITE_ZEROES, command_flag::FUA | command_flag::NO_HOLE, 512, 600_064);
    world.run();
    assert_eq!(world.disk.flushes(), 17);
    client.request(command::TRIM, 0, 700_416, 51_200);
    client.request(command::FLUSH, command_flag::FUA, 0, 0);
    world.run();
    assert_eq!(world.disk.flushes(), 18);
    assert!(client.answers(0).iter().all(|answer| answer.error == 0));
    let zeros = |from: usize, to: usize| world.disk.content()[from..to].iter().all(|&byte| byte == 0);
    assert!(zeros(512, 600_576) && zeros(700_416, 751_616));
    assert!(!zeros(0, 512) && world.disk.content()[600_576] == 0xAA && world.disk.content()[751_616] == 0xAA);
}

#[test]
fn a_failure_of_the_disk_is_told_once_and_the_next_request_goes_well() {
    for structured in [false, true] {
        for (command, bytes) in [
            (command::READ, 4096),
            (command::READ, 1 << 20),
            (command::WRITE, 512),
            (command::WRITE, 1 << 20),
        ] {
            let mut world = World::new();
            let mut client = world.enter("disk", structured);
            world.disk.fail_next(DiskError::Status(Status::new(2, 0x81)));
            for error in [Error::Io as u32, 0] {
                client.request(command, 0, 0, bytes);
                if command == command::WRITE {
                    client.say(&vec![1; bytes as usize]);
                }
                world.run();
                let answers = client.answers(bytes as usize);
                assert_eq!(answers.len(), 1);
                assert_eq!(answers[0].error, error, "{structured} {command} {bytes}");
            }
            client.request(command::DISC, 0, 0, 0);
            world.run();
            world.assert_clean();
        }
    }
}

#[test]
fn replies_leave_when_they_are_done_and_no_more_are_under_way_than_agreed() {
    let mut world = World::new();
    let mut client = world.enter("disk", true);
    world.disk.hold(true);
    for _ in 0..40 {
        client.request(command::READ, 0, 0, 512);
    }
    world.run();
    assert_eq!(etherslot_initiator::Disk::in_flight(&world.disk), 16);
    assert_eq!(client.unread(), 0);
    world.disk.hold(false);
    world.run();
    assert_eq!(client.answers(512).len(), 40);
}

#[test]
fn a_write_that_is_complete_waits_for_the_piece_that_the_disk_had_no_room_for() {
    let mut world = World::with(crate::client::config(), |disk| disk.info_mut().max_discard_blocks = 8);
    let mut clients = [0, 1].map(|_| world.enter("disk", true));
    world.disk.hold(true);
    for client in &mut clients {
        client.request(command::TRIM, 0, 0, 1 << 20);
        client.request(command::WRITE, 0, 2 << 20, 4096);
        client.say(&[7; 100]);
        world.run();
    }
    // One of them finds the disk full of the other's pieces, while its write is cut.
    world.disk.hold(false);
    world.server.poll(world.now_ns, &mut world.disk);
    world.disk.hold(true);
    for client in &clients {
        client.say(&[7; 3996]);
    }
    world.run();
    world.disk.hold(false);
    world.run();
    for client in clients {
        let answers = client.answers(0);
        assert!(answers.len() == 2 && answers.iter().all(|answer| answer.error == 0), "{answers:?}");
    }
}

#[test]
fn a_client_that_goes_leaves_nothing_behind() {
    for at in ["a request", "a payload", "replies"] {
        let mut world = World::new();
        let mut client = world.enter("disk", true);
        world.disk.hold(at != "replies");
        client.stop_reading_at(1000);
        for _ in 0..10 {
            client.request(command::READ, 0, 0, 65536);
        }
        match at {
            "a request" => client.say(&[0x25]),
            "a payload" => {
                client.request(command::WRITE, 0, 0, 1 << 20);
                client.say(&vec![1; 100_000]);
            }
            _ => {}
        }
        world.run();
        client.close();
        world.run();
        assert!(client.is_closed() || at == "replies");
        if at == "replies" {
            client.stop_reading_at(usize::MAX);
        }
        world.disk.hold(false);
        world.run();
        world.run();
        world.assert_clean();
    }
}

#[test]
fn draining_ends_with_the_replies_to_what_was_under_way() {
    let mut world = World::new();
    let mut client = world.enter("disk", true);
    let idle = world.connect();
    world.disk.hold(true);
    client.request(command::WRITE, 0, 0, 4096);
    client.say(&[5; 4096]);
    world.run();
    world.server.drain();
    client.request(command::READ, 0, 0, 4096);
    world.run();
    assert!(!world.server.is_idle() && idle.is_closed());
    assert_eq!(world.connect().place, usize::MAX, "none is taken any more");
    world.disk.hold(false);
    world.run();
    assert!(client.is_closed());
    assert_eq!(client.answers(0).len(), 1);
    world.assert_clean();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Whatever the stream makes of it: the disk ends up as an array that is written in the same order does.
    #[test]
    fn reads_and_writes_are_those_of_an_array(
        structured: bool,
        at_once in prop_oneof![1usize..64, 1000usize..100_000, Just(usize::MAX)],
        steps in proptest::collection::vec((0u8..4, 0u64..64, 1u32..400, any::<u8>()), 1..12),
    ) {
        let mut world = World::new();
        let mut client = world.enter("disk", structured);
        client.wire.borrow_mut().at_once = at_once;
        let mut model = vec![0; DISK_BYTES];
        for (kind, place, blocks, fill) in steps {
            let (offset, bytes) = (place * 512, blocks as usize * 512);
            let range = &mut model[offset as usize..][..bytes];
            match kind {
                0 | 1 => {
                    let data = pattern(bytes, fill);
                    range.copy_from_slice(&data);
                    client.request(command::WRITE, u16::from(kind), offset, bytes as u32);
                    client.say(&data);
                }
                2 => {
                    range.fill(0);
                    client.request(command::WRITE_ZEROES, 0, offset, bytes as u32);
                }
                _ => drop(client.request(command::READ, 0, offset, bytes as u32)),
            }
            world.run();
            let answer = client.answers(bytes).remove(0);
            prop_assert_eq!(answer.error, 0);
            if kind == 3 {
                prop_assert!(joined(answer) == model[offset as usize..][..bytes]);
            }
        }
        prop_assert!(world.disk.content() == model);
        client.close();
        world.run();
        world.assert_clean();
    }
}
