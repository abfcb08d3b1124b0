use super::*;
use crate::twin::MANY_HEARTBEATS;
use crate::{Announcer, Identity};
use crc32c::crc32c;
use etherslot_wire::discovery::{Assigned, DeviceState, Heartbeat, Port, Serial};

const MS: u64 = 1_000_000;
const BOX: NodeId = NodeId([2; 16]);

fn announcer(life: u64) -> Announcer {
    let identity = Identity {
        node: BOX,
        life,
        name: Name::new("box").unwrap(),
        role: Role::Box,
        group: None,
        ports: vec![Port::Ring(1)],
    };
    Announcer::new(identity, 100 * MS, 1500)
}

fn device(owner: Option<NodeId>, epoch: u64) -> Device {
    Device {
        name: Name::new("disk0").unwrap(),
        serial: Serial::new("S").unwrap(),
        id: (1, 2),
        class: [1, 8, 2],
        state: if owner.is_some() { DeviceState::Used } else { DeviceState::Free },
        bytes: 4096,
        epoch,
        owner,
        assigned: Assigned::Group,
        has_owners: false,
        group: None,
    }
}

fn directory() -> Directory<u8> {
    Directory::new(NodeId([1; 16]), DirectoryConfig { nodes: 2, ..DirectoryConfig::default() })
}

fn hear(directory: &mut Directory<u8>, now_ns: u64, frame: &[u8]) {
    let (header, body) = Header::parse_checked(frame, crc32c).unwrap();
    directory.hear(now_ns, 9, true, &header, &Heartbeat::parse(body).unwrap());
}

fn beat(announcer: &mut Announcer, devices: &[Device]) -> Vec<u8> {
    let mut made = Vec::new();
    let now_ns = announcer.deadline_ns();
    announcer.poll(now_ns, devices, &mut |_, frame| made = frame.to_vec());
    made
}

fn events(directory: &mut Directory<u8>) -> Vec<Event> {
    std::iter::from_fn(|| directory.event()).collect()
}

#[test]
fn a_node_is_up_with_its_first_heartbeat_and_down_after_three_that_are_missing() {
    let (mut directory, mut announcer) = (directory(), announcer(1));
    let free = device(None, 0);
    hear(&mut directory, 0, &beat(&mut announcer, &[free]));
    let up = Event::Node(BOX, NodeEvent::Up);
    assert_eq!(events(&mut directory), [up, Event::Device { node: BOX, before: None, now: free }]);
    assert_eq!(directory.get(&BOX).unwrap().address(), Some(9));
    assert!(!directory.poll(299 * MS));
    hear(&mut directory, 299 * MS, &beat(&mut announcer, &[free]));
    assert!(!directory.poll(598 * MS));
    assert_eq!(directory.deadline_ns(), Some(599 * MS));
    assert!(directory.poll(599 * MS));
    assert_eq!(events(&mut directory), [Event::Node(BOX, NodeEvent::Down)]);
    assert!(!directory.poll(1000 * MS));
    hear(&mut directory, 1000 * MS, &beat(&mut announcer, &[free]));
    assert_eq!(events(&mut directory), [Event::Node(BOX, NodeEvent::Back)]);
    assert!(directory.poll(1300 * MS));
    assert!(!directory.poll(1300 * MS + 400_000 * MS));
    assert!(directory.get(&BOX).is_none(), "it is forgotten");
}

#[test]
fn what_a_device_becomes_is_told_once() {
    let (mut directory, mut announcer) = (directory(), announcer(1));
    let (free, used) = (device(None, 0), device(Some(NodeId([5; 16])), 1));
    for now in [free, used, used, free] {
        hear(&mut directory, 0, &beat(&mut announcer, &[now]));
    }
    let of = |before, now| Event::Device { node: BOX, before, now };
    assert_eq!(events(&mut directory)[1..], [of(None, free), of(Some(free), used), of(Some(used), free)]);
}

#[test]
fn heartbeats_that_were_overtaken_or_come_twice_or_are_of_an_earlier_life_tell_nothing() {
    let mut directory = directory();
    let (mut old, mut new) = (announcer(1), announcer(2));
    let (free, used) = (device(None, 0), device(Some(NodeId([5; 16])), 1));
    let (first, second) = (beat(&mut old, &[free]), beat(&mut old, &[used]));
    hear(&mut directory, 0, &second);
    hear(&mut directory, 0, &first);
    hear(&mut directory, 0, &second);
    assert_eq!(directory.counters().stale, 2);
    hear(&mut directory, 0, &beat(&mut new, &[free]));
    hear(&mut directory, 0, &beat(&mut old, &[used]));
    assert_eq!(directory.counters().stale, 3);
    let told = events(&mut directory);
    assert!(told.contains(&Event::Node(BOX, NodeEvent::Restarted)));
    assert_eq!(directory.get(&BOX).unwrap().devices, [Some(free)]);
    // A clock that was set back is no reason to be ignored for ever.
    directory.poll(1000 * MS);
    hear(&mut directory, 1000 * MS, &beat(&mut old, &[free]));
    assert_eq!(directory.get(&BOX).unwrap().life, 1);
}

#[test]
fn a_node_that_says_goodbye_is_gone_at_once() {
    let (mut directory, mut announcer) = (directory(), announcer(1));
    hear(&mut directory, 0, &beat(&mut announcer, &[]));
    let mut frame = Vec::new();
    announcer.leave(MS, &mut |_, made| frame = made.to_vec());
    hear(&mut directory, MS, &frame);
    assert_eq!(directory.get(&BOX).unwrap().presence, Presence::Left);
    assert_eq!(events(&mut directory).last(), Some(&Event::Node(BOX, NodeEvent::Left)));
}

#[test]
fn a_flood_of_strangers_takes_no_room_from_those_who_are_there() {
    let mut directory = directory();
    for stranger in 10..200 {
        let mut announcer = announcer(1);
        let frame = beat(&mut announcer, &[]);
        let (header, body) = Header::parse_checked(&frame, crc32c).unwrap();
        let header = Header { node: NodeId([stranger; 16]), ..header };
        directory.hear(0, 9, true, &header, &Heartbeat::parse(body).unwrap());
    }
    assert_eq!((directory.nodes().count(), directory.counters().refused), (2, 188));
    directory.poll(1000 * MS);
    hear(&mut directory, 1000 * MS, &beat(&mut announcer(1), &[]));
    assert!(directory.get(&BOX).is_some(), "in place of one that is gone");
}

#[test]
fn two_nodes_that_share_an_id_are_seen_and_one_that_was_started_again_is_not() {
    let mut directory = directory();
    let (mut old, mut new) = (announcer(1), announcer(2));
    for _ in 0..MANY_HEARTBEATS {
        hear(&mut directory, 0, &beat(&mut old, &[]));
    }
    for _ in 0..MANY_HEARTBEATS {
        hear(&mut directory, 0, &beat(&mut new, &[]));
    }
    assert!(!directory.get(&BOX).unwrap().is_double(0));
    for _ in 0..MANY_HEARTBEATS {
        hear(&mut directory, 0, &beat(&mut old, &[]));
    }
    assert!(directory.get(&BOX).unwrap().is_double(0));
}

/// Both beat every 100 ms from `from_ms` to `to_ms`; whether they are seen as two then.
fn both(directory: &mut Directory<u8>, twins: &mut [Announcer], from_ms: u64, to_ms: u64) -> bool {
    for now_ns in (from_ms * MS..to_ms * MS).step_by(100 * MS as usize) {
        for twin in &mut *twins {
            hear(directory, now_ns, &beat(twin, &[]));
        }
        directory.poll(now_ns);
    }
    directory.get(&BOX).unwrap().is_double(to_ms * MS)
}

#[test]
fn whichever_of_two_that_share_an_id_goes_they_are_two_no_more_soon() {
    for stays in [0, 1] {
        let mut directory = directory();
        let mut twins = [announcer(1), announcer(2)];
        assert!(both(&mut directory, &mut twins, 0, 4_000));
        let stays = &mut twins[stays..=stays];
        assert!(!both(&mut directory, stays, 4_000, 8_000), "the other went without a word");
        assert_eq!(directory.get(&BOX).unwrap().presence, Presence::Up);
        assert!(!both(&mut directory, &mut twins, 8_000, 10_000), "it is counted anew");
        assert!(both(&mut directory, &mut twins, 10_000, 12_000));
        twins[0].leave(12_000 * MS, &mut |_, frame| hear(&mut directory, 12_000 * MS, frame));
        assert!(!directory.get(&BOX).unwrap().is_double(12_000 * MS), "it has said that it stops");
    }
}
