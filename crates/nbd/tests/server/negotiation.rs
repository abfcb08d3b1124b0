//! Options.

use etherslot_nbd::message::{flag, info, option, reply};

use crate::client::{DISK_BYTES, World, go};

const FLAGS: u16 = flag::HAS_FLAGS
    | flag::SEND_FLUSH
    | flag::SEND_FUA
    | flag::SEND_TRIM
    | flag::SEND_WRITE_ZEROES
    | flag::CAN_MULTI_CONN;

#[test]
fn exports_are_listed_with_their_descriptions() {
    let mut world = World::new();
    let mut client = world.connect();
    client.greet(&mut world);
    client.option(option::LIST, &[]);
    world.run();
    let replies = client.replies(option::LIST);
    let entry = |text: &str| (reply::SERVER, [&4u32.to_be_bytes()[..], text.as_bytes()].concat());
    assert_eq!(replies, [entry("diska disk"), entry("kept"), (reply::ACK, Vec::new())]);
}

#[test]
fn information_is_what_was_asked_for_and_the_export() {
    let mut world = World::new();
    let mut client = world.connect();
    client.greet(&mut world);
    let asked = [info::BLOCK_SIZE, info::NAME, info::DESCRIPTION, 99, info::NAME];
    client.option(option::INFO, &go("", &asked));
    world.run();
    let replies = client.replies(option::INFO);
    let mut export = [&info::EXPORT.to_be_bytes()[..], &(DISK_BYTES as u64).to_be_bytes()].concat();
    export.extend(FLAGS.to_be_bytes());
    let sizes = [512, 4096, 32u32 << 20].map(u32::to_be_bytes).concat();
    assert_eq!(
        replies,
        [
            (reply::INFO, export),
            (reply::INFO, [&[0, 1], &b"disk"[..]].concat()),
            (reply::INFO, [&[0, 2], &b"a disk"[..]].concat()),
            (reply::INFO, [&[0, 3][..], &sizes].concat()),
            (reply::ACK, Vec::new()),
        ]
    );
}

#[test]
fn a_read_only_export_says_so_and_offers_nothing_that_writes() {
    let mut world = World::new();
    let mut client = world.connect();
    client.greet(&mut world);
    client.option(option::GO, &go("kept", &[]));
    world.run();
    let export = client.replies(option::GO).remove(0).1;
    let flags = u16::from_be_bytes(export[10..].try_into().unwrap());
    assert_eq!(flags, flag::READ_ONLY | FLAGS & !(flag::SEND_TRIM | flag::SEND_WRITE_ZEROES));
}

#[test]
fn what_is_unknown_or_wrong_is_refused_and_the_negotiation_goes_on() {
    let mut world = World::new();
    let mut client = world.connect();
    client.greet(&mut world);
    let long = vec![0; 60_000];
    for (option, data, kind) in [
        (option::STARTTLS, &[][..], reply::ERR_UNSUP),
        (9, &[1, 2, 3], reply::ERR_UNSUP),
        (u32::MAX, &long, reply::ERR_TOO_BIG),
        (option::LIST, &[0], reply::ERR_INVALID),
        (option::STRUCTURED_REPLY, &[0], reply::ERR_INVALID),
        (option::GO, &[], reply::ERR_INVALID),
        (option::GO, &[0, 0, 0, 9, 0, 0], reply::ERR_INVALID),
        (option::INFO, &[0, 0, 0, 0, 0, 1], reply::ERR_INVALID),
        (option::GO, &go("none", &[]), reply::ERR_UNKNOWN),
    ] {
        client.option(option, data);
        world.run();
        assert_eq!(client.replies(option), [(kind, Vec::new())], "{option}");
    }
    client.option(option::ABORT, &[]);
    world.run();
    assert_eq!(client.replies(option::ABORT), [(reply::ACK, Vec::new())]);
    assert!(client.is_closed());
    world.assert_clean();
}

#[test]
fn the_old_option_enters_at_once_and_ends_the_connection_if_there_is_no_such_export() {
    let mut world = World::new();
    let mut client = world.connect();
    client.greet(&mut world);
    client.option(option::EXPORT_NAME, b"disk");
    world.run();
    let mut expected = (DISK_BYTES as u64).to_be_bytes().to_vec();
    expected.extend(FLAGS.to_be_bytes());
    assert_eq!(client.take(1000), expected);
    let mut other = world.connect();
    other.greet(&mut world);
    other.option(option::EXPORT_NAME, b"nowhere");
    world.run();
    assert!(other.is_closed() && !client.is_closed());
    let zeroes = world.connect();
    world.run();
    zeroes.take(18);
    zeroes.say(&1u32.to_be_bytes());
    zeroes.option(option::EXPORT_NAME, b"");
    world.run();
    assert_eq!(zeroes.take(1000), [expected, vec![0; 124]].concat());
}

#[test]
fn a_negotiation_can_come_byte_by_byte() {
    let mut world = World::new();
    let mut client = world.connect();
    client.wire.borrow_mut().at_once = 1;
    client.greet(&mut world);
    client.option(option::GO, &go("disk", &[info::BLOCK_SIZE]));
    world.run();
    assert_eq!(client.replies(option::GO).len(), 3);
}
