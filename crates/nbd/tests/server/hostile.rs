//! Clients that do what no client may: each ends its own connection, and is counted.

use etherslot_nbd::message::{command, info, option};

use crate::client::{World, go};

#[test]
fn what_breaks_the_protocol_ends_the_connection_and_no_other() {
    let mut world = World::new();
    let mut good = world.enter("disk", true);
    let mut broken = 0;
    let length = |bytes: u32| [&b"IHAVEOPT"[..], &option::LIST.to_be_bytes(), &bytes.to_be_bytes()].concat();
    for (what, bytes) in [
        ("flags", u32::MAX.to_be_bytes().to_vec()),
        ("magic", [&3u32.to_be_bytes()[..], &[0; 16]].concat()),
        ("a huge option", [&3u32.to_be_bytes()[..], &length(u32::MAX)].concat()),
        ("many options", [&3u32.to_be_bytes()[..], &length(0).repeat(100)].concat()),
    ] {
        let bad = world.connect();
        world.run();
        bad.say(&bytes);
        world.run();
        broken += 1;
        assert!(bad.is_closed(), "{what}");
        assert_eq!(world.server.counters().broken, broken, "{what}");
    }
    for (command, length, flags) in [(command::WRITE, u32::MAX, 0), (command::WRITE, (32 << 20) + 512, 0)] {
        let mut bad = world.enter("disk", false);
        bad.request(command, flags, 0, length);
        world.run();
        broken += 1;
        assert!(bad.is_closed());
    }
    let bad = world.enter("disk", true);
    bad.say(&[0; 28]);
    world.run();
    assert_eq!(world.server.counters().broken, broken + 1);
    good.request(command::READ, 0, 0, 512);
    world.run();
    assert_eq!(good.answers(512).len(), 1);
}

#[test]
fn one_that_chooses_no_export_is_sent_away_in_time() {
    let mut world = World::new();
    let mut client = world.connect();
    client.greet(&mut world);
    client.option(option::INFO, &go("", &[info::BLOCK_SIZE]));
    world.run();
    let used = world.enter("disk", true);
    let deadline_ns = world.server.deadline_ns().unwrap();
    world.now_ns = deadline_ns;
    world.run();
    assert!(!client.is_closed());
    world.now_ns += 1;
    world.run();
    assert!(client.is_closed() && !used.is_closed());
    assert_eq!((world.server.counters().slow, world.server.deadline_ns()), (1, None));
}

#[test]
fn one_that_reads_nothing_in_the_negotiation_is_not_answered_without_end() {
    let mut world = World::new();
    let mut client = world.connect();
    client.greet(&mut world);
    client.stop_reading_at(0);
    for _ in 0..60 {
        client.option(option::LIST, &[]);
    }
    world.run();
    assert_eq!(client.unread(), 0);
    client.stop_reading_at(1 << 20);
    world.run();
    assert_eq!(client.replies(option::LIST).len(), 180);
}
