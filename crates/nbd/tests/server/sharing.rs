//! Several clients at once.

use etherslot_nbd::message::{command, option, reply};

use crate::client::{OTHER_BYTES, World, go};

#[test]
fn clients_that_stall_hold_up_nobody() {
    let mut world = World::new();
    // One sends no payload, one reads no replies, one says nothing.
    let mut mute = world.enter("disk", true);
    mute.request(command::WRITE, 0, 0, 1 << 20);
    mute.say(&[1; 1000]);
    let mut deaf = world.enter("disk", false);
    deaf.stop_reading_at(0);
    for _ in 0..16 {
        deaf.request(command::READ, 0, 0, 65536);
    }
    let _silent = world.connect();
    world.run();
    let mut good = world.enter("disk", true);
    for _ in 0..50 {
        good.request(command::READ, 0, 0, 1 << 20);
        good.request(command::WRITE, 0, 2 << 20, 512);
        good.say(&[1; 512]);
    }
    good.stop_reading_at(usize::MAX);
    world.run();
    let answers = good.answers(0);
    assert_eq!(answers.len(), 100);
    assert!(answers.iter().all(|answer| answer.error == 0));
    deaf.stop_reading_at(usize::MAX);
    world.run();
    assert_eq!(deaf.answers(65536).len(), 16);
}

#[test]
fn each_client_has_the_disk_of_its_export() {
    let mut world = World::with_two_disks();
    let mut clients = ["disk", "other", "disk"].map(|name| world.enter(name, true));
    for round in 0..20u32 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.request(command::WRITE, 0, u64::from(round) * 8192, 8192);
            client.say(&[number as u8 + 1; 8192]);
            client.request(command::READ, 0, u64::from(round) * 8192, 4096);
        }
        world.run();
    }
    for client in &mut clients {
        let answers = client.answers(0);
        assert_eq!((answers.len(), answers.iter().filter(|answer| answer.error != 0).count()), (40, 0));
    }
    let other = world.other.as_ref().unwrap().content();
    assert!(other[..20 * 8192].iter().all(|&byte| byte == 2));
    assert!(!world.disk.content().contains(&2));
    // Its size and its blocks are its own.
    let other = &mut clients[1];
    other.request(command::READ, 0, OTHER_BYTES as u64, 4096);
    other.request(command::READ, 0, 0, 512);
    world.run();
    assert!(clients[1].answers(0).iter().all(|answer| answer.error != 0));
    clients.iter().for_each(crate::client::Client::close);
    world.run();
    world.assert_clean();
}

#[test]
fn an_export_of_a_disk_that_there_is_not_is_none() {
    let mut world = World::with_two_disks();
    let mut client = world.connect();
    client.greet(&mut world);
    client.option(option::INFO, &go("nowhere", &[]));
    world.run();
    assert_eq!(client.replies(option::INFO)[0].0, reply::ERR_UNKNOWN);
}

#[test]
fn more_clients_than_there_are_places_are_refused() {
    let mut world = World::new();
    let clients: Vec<_> = (0..4).map(|_| world.connect()).collect();
    assert!(world.connect().is_closed());
    assert_eq!(world.server.counters().refused, 1);
    clients[0].close();
    world.run();
    let mut client = world.connect();
    client.greet(&mut world);
    world.run();
}

#[test]
fn an_operation_takes_nothing_from_the_heap() {
    let mut world = World::new();
    let mut client = world.enter("disk", true);
    let round = |world: &mut World, client: &mut crate::client::Client| {
        for at in 0..8 {
            client.request(command::READ, 0, at * 4096, 4096);
            client.request(command::WRITE, 0, at * 4096, 4096);
            client.say(&[7; 4096]);
        }
        let allocations = allocation_counter::measure(|| world.run());
        client.take(usize::MAX);
        allocations.count_total
    };
    round(&mut world, &mut client);
    client.wire.borrow_mut().to_client.reserve(1 << 20);
    assert_eq!(round(&mut world, &mut client), 0);
}
