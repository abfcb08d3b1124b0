//! What users of direct copies may rely on: every byte in its place, whatever is lost on the way, and none of them by the host.
#![allow(missing_docs)]

mod world;

use etherslot_initiator::{Between, Blame, CopyConfig, CopyError, CopyRange, DiskError, Phase, Status};
use etherslot_netio::impair::Impairment;
use etherslot_storage::MediumError;
use etherslot_storage::memory::FaultOn;
use etherslot_wire::NodeId;
use world::{DISK_BYTES, Kind, MS, World, content, fill, medium};

fn whole() -> CopyRange {
    CopyRange { source: 0, source_start: 0, target: 1, target_start: 0, bytes: DISK_BYTES, done: 0 }
}

fn some(bytes: u64) -> CopyRange {
    CopyRange { source_start: 512 * 3, target_start: 512 * 77, bytes, ..whole() }
}

#[test]
fn a_copy_in_a_box_is_exact_and_does_not_touch_the_host() {
    let (mut world, source, target) = World::one_box(&Impairment::default());
    fill(&target, 9);
    let bytes = 5 << 20;
    world.begin(&[some(bytes)], CopyConfig::default());
    assert_eq!(world.direct.between(), Between::Buffer);
    world.finish();
    assert_eq!((world.copy().phase(0), world.copy().error(0)), (Phase::Done, None));
    let expected = content(&source, 512 * 3, bytes);
    assert!(content(&target, 512 * 77, bytes) == expected);
    // Nothing around it has changed.
    let other = medium(3);
    fill(&other, 9);
    assert!(content(&target, 0, 512 * 77) == content(&other, 0, 512 * 77));
    let end = 512 * 77 + bytes;
    assert!(content(&target, end, DISK_BYTES - end) == content(&other, end, DISK_BYTES - end));
    assert_eq!(target.unflushed_blocks(), 0, "it is durable");
    let dma = world.dma_bytes();
    assert!(dma * 100 <= bytes, "{dma} bytes came by the host");
    let peers: u64 = world.node(0).hosts().map(|(_, _, hierarchy)| hierarchy.counters().peer).sum();
    assert!(peers >= 2 * bytes / 4096, "{peers} TLPs from peer to peer");
}

#[test]
fn without_a_buffer_the_same_copy_goes_through_the_host() {
    let (source, target) = (medium(1), medium(2));
    fill(&source, 1);
    let devices = vec![("source", Kind::Disk(source.clone())), ("target", Kind::Disk(target.clone()))];
    let mut world = World::new(vec![devices], &Impairment::default());
    world.begin(&[whole()], CopyConfig { verify: true, ..CopyConfig::default() });
    assert_eq!(world.direct.between(), Between::Here);
    world.finish();
    assert_eq!(world.copy().phase(0), Phase::Done);
    assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES));
    assert!(world.dma_bytes() >= 4 * DISK_BYTES, "read and written, read and compared");
}

#[test]
fn disks_of_two_boxes_are_copied_through_the_host_and_the_death_of_either_costs_no_byte() {
    for dying in 0..2 {
        let (source, target) = (medium(1), medium(2));
        fill(&source, 1);
        let boxes =
            vec![vec![("source", Kind::Disk(source.clone()))], vec![("target", Kind::Disk(target.clone()))]];
        let mut world =
            World::new(boxes, &Impairment { loss: 0.01, seed: dying as u64, ..Impairment::default() });
        world.begin(&[whole()], CopyConfig { verify: true, ..CopyConfig::default() });
        world.wait(|world| world.copy().done(0) > 2 << 20);
        world.kill(dying);
        world.run(100);
        world.start(dying);
        world.finish();
        assert_eq!(world.copy().error(0), None, "box {dying}");
        assert_eq!(world.copy().counters(0).rewound, dying as u64);
        assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES), "box {dying}");
    }
}

#[test]
fn several_pairs_are_copied_at_once() {
    let disks: Vec<_> = (0..4).map(medium).collect();
    fill(&disks[0], 10);
    fill(&disks[2], 12);
    let names = ["a", "b", "c", "d"];
    let mut devices: Vec<_> =
        names.into_iter().zip(&disks).map(|(name, disk)| (name, Kind::Disk(disk.clone()))).collect();
    devices.push(("dc", Kind::Dc(4 << 20)));
    let mut world = World::new(vec![devices], &Impairment::default());
    let second = CopyRange { source: 2, target: 3, ..whole() };
    world.begin(&[whole(), second], CopyConfig { verify: true, ..CopyConfig::default() });
    let mut were_together = false;
    world.wait(|world| {
        let [a, b] = [0, 1].map(|pair| world.copy().done(pair));
        were_together |= a > 0 && b > 0 && a < DISK_BYTES && b < DISK_BYTES;
        world.copy().is_over()
    });
    assert!(were_together);
    for (source, target) in [(0, 1), (2, 3)] {
        assert!(content(&disks[target], 0, DISK_BYTES) == content(&disks[source], 0, DISK_BYTES));
    }
}

#[test]
fn what_is_said_of_chunks_is_kept_to() {
    let (mut world, source, target) = World::one_box(&Impairment::default());
    let config = CopyConfig { outstanding: Some(1), chunk_bytes: Some(16 << 10), ..CopyConfig::default() };
    world.begin(&[some(1 << 20)], config);
    world.finish();
    assert!(content(&target, 512 * 77, 1 << 20) == content(&source, 512 * 3, 1 << 20));
    let counters = world.copy().counters(0);
    assert_eq!((counters.most_outstanding, counters.chunks), (1, 64));
}

#[test]
fn a_copy_over_a_bad_link_is_exact() {
    for seed in 0..4 {
        let impairment = Impairment {
            loss: 0.02,
            duplicate: 0.01,
            reorder: 0.02,
            corrupt: 0.005,
            delay_ns: (5_000, 60_000),
            seed,
            ..Impairment::default()
        };
        let (mut world, source, target) = World::one_box(&impairment);
        world.begin(&[some(4 << 20)], CopyConfig { verify: true, ..CopyConfig::default() });
        world.finish();
        assert_eq!(world.copy().error(0), None, "seed {seed}");
        assert!(content(&target, 512 * 77, 4 << 20) == content(&source, 512 * 3, 4 << 20), "seed {seed}");
    }
}

#[test]
fn a_buffer_that_is_taken_away_and_given_back_costs_time_and_no_byte() {
    for seed in 0..12 {
        let (mut world, source, target) = World::one_box(&Impairment::default());
        world.begin(&[whole()], CopyConfig::default());
        world.wait(|world| world.copy().done(0) > (1 + seed % 5) << 20);
        for _ in 0..seed * 7 {
            world.step();
        }
        world.give(0, "dc", None);
        world.wait(|world| {
            !world.direct.has_device(2)
                && world
                    .node(0)
                    .leases()
                    .iter()
                    .all(|lease| lease.name.as_str() != "dc" || lease.owner.is_none())
        });
        world.run(seed * 3);
        world.give(0, "dc", Some(NodeId([200; 16])));
        world.finish();
        assert_eq!(world.copy().error(0), None, "seed {seed}");
        assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES), "seed {seed}");
    }
}

#[test]
fn a_box_that_dies_and_comes_back_costs_time_and_no_byte() {
    for seed in 0..8 {
        let (mut world, source, target) = World::one_box(&Impairment::default());
        let config = CopyConfig { checkpoint_bytes: (seed % 2) << 20, ..CopyConfig::default() };
        world.begin(&[whole()], config);
        world.wait(|world| world.copy().done(0) > (1 + seed % 5) << 20);
        for _ in 0..seed * 11 {
            world.step();
        }
        world.kill(0);
        world.run(100 + seed * 100);
        world.start(0);
        world.finish();
        assert_eq!(world.copy().error(0), None, "seed {seed}");
        assert_eq!(world.copy().counters(0).rewound, 1, "seed {seed}");
        assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES), "seed {seed}");
    }
}

#[test]
fn when_the_host_is_lost_its_devices_reach_each_other_no_more() {
    let (mut world, _, target) = World::one_box(&Impairment::default());
    world.begin(&[whole()], CopyConfig { outstanding: Some(8), ..CopyConfig::default() });
    world.wait(|world| world.copy().done(0) > 1 << 20);
    world.is_cut = true;
    // Longer than a silent peer is taken for alive.
    world.run(400);
    assert_eq!(world.node(0).hosts().count(), 0);
    let before = (world.count(0, "dc", "write_bytes"), world.count(0, "dc", "read_bytes"));
    let content_before = content(&target, 0, DISK_BYTES);
    assert!(before.0 > 1 << 20 && before.1 > 1 << 20);
    world.run(300);
    assert_eq!((world.count(0, "dc", "write_bytes"), world.count(0, "dc", "read_bytes")), before);
    assert!(content(&target, 0, DISK_BYTES) == content_before);
    world.is_cut = false;
    world.finish();
    assert_eq!(world.copy().error(0), None);
}

#[test]
fn an_error_names_the_block() {
    for (on, blame, error, status) in [
        (FaultOn::Read, Blame::Source, MediumError::Failed, Status::new(2, 0x81)),
        (FaultOn::Write, Blame::Target, MediumError::Failed, Status::new(2, 0x80)),
    ] {
        let (mut world, source, target) = World::one_box(&Impairment::default());
        let bad = 512 * 4001;
        if on == FaultOn::Read { &source } else { &target }.fail(on, bad..bad + 512, error, u32::MAX);
        world.begin(&[CopyRange { bytes: 4 << 20, ..whole() }], CopyConfig::default());
        world.finish();
        assert_eq!(world.copy().phase(0), Phase::Failed);
        let expected = CopyError::Disk { blame, block: 4001, error: DiskError::Status(status) };
        assert_eq!(world.copy().error(0), Some(expected));
    }
}

#[test]
fn of_several_bad_blocks_the_first_is_named_whichever_is_found_first() {
    let chunk = 128 << 10;
    for (on, blame, status) in [
        (FaultOn::Read, Blame::Source, Status::new(2, 0x81)),
        (FaultOn::Write, Blame::Target, Status::new(2, 0x80)),
    ] {
        let (mut world, source, target) = World::one_box(&Impairment::default());
        let medium = if on == FaultOn::Read { &source } else { &target };
        // The last block of a chunk takes the longest to be narrowed down to, the first of the next ones the shortest.
        for bad in [4 * chunk - 512, 4 * chunk, 5 * chunk, 7 * chunk + 512] {
            medium.fail(on, bad..bad + 512, MediumError::Failed, u32::MAX);
        }
        let config = CopyConfig { outstanding: Some(8), chunk_bytes: Some(chunk), ..CopyConfig::default() };
        world.begin(&[whole()], config);
        world.finish();
        assert_eq!(world.copy().phase(0), Phase::Failed);
        let expected =
            CopyError::Disk { blame, block: 4 * chunk / 512 - 1, error: DiskError::Status(status) };
        assert_eq!(world.copy().error(0), Some(expected));
    }
}

#[test]
fn what_fails_for_a_while_is_done_again() {
    let (mut world, source, target) = World::one_box(&Impairment::default());
    source.fail(FaultOn::Read, 512 * 4000..512 * 4001, MediumError::Failed, 1);
    target.fail(FaultOn::Write, 512 * 5000..512 * 5001, MediumError::Failed, 1);
    world.begin(&[whole()], CopyConfig::default());
    world.finish();
    assert_eq!(world.copy().error(0), None);
    assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES));
}

#[test]
fn verifying_finds_what_is_different() {
    let (mut world, _, target) = World::one_box(&Impairment::default());
    world.begin(&[whole()], CopyConfig { verify: true, ..CopyConfig::default() });
    world.wait(|world| world.copy().phase(0) == Phase::Verify);
    target.poke(512 * 9000, &[0x5A; 512]);
    world.finish();
    let error = DiskError::Status(Status::COMPARE_FAILURE);
    let expected = CopyError::Disk { blame: Blame::Difference, block: 9000, error };
    assert_eq!(world.copy().error(0), Some(expected));
}

#[test]
fn a_copy_goes_on_where_it_was_durable() {
    let (mut world, source, target) = World::one_box(&Impairment::default());
    let config = CopyConfig { checkpoint_bytes: 1 << 20, ..CopyConfig::default() };
    world.begin(&[whole()], config);
    world.wait(|world| world.copy().durable(0) > 3 << 20);
    let durable = world.copy().durable(0);
    world.copy = None;
    world.kill(0);
    world.start(0);
    assert!(content(&target, 0, durable) == content(&source, 0, durable), "{durable} bytes are durable");
    world.run(500);
    world.begin(&[CopyRange { done: durable, ..whole() }], config);
    world.finish();
    assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES));
    let chunks = world.copy().counters(0).chunks;
    assert!(chunks * (128 << 10) < 2 * (DISK_BYTES - durable), "{chunks} chunks");
}

#[test]
fn what_can_not_be_copied_is_refused() {
    let (mut world, ..) = World::one_box(&Impairment::default());
    world.wait(|world| world.direct.is_ready());
    let (direct, now_ns) = (&world.direct, world.now_ns);
    let begin = |range: CopyRange| {
        let copy = etherslot_initiator::Copy::new(direct, &[range], CopyConfig::default(), now_ns);
        copy.err().map(|(_, error)| error)
    };
    assert_eq!(begin(whole()), None);
    assert_eq!(
        begin(CopyRange { source_start: 100, bytes: 512, ..whole() }),
        Some(CopyError::Blocks { block_bytes: 512 })
    );
    let behind = CopyRange { target_start: 512, ..whole() };
    assert_eq!(begin(behind), Some(CopyError::Range { blame: Blame::Target, bytes: DISK_BYTES }));
    let round = CopyRange { source_start: u64::MAX - 511, ..whole() };
    assert_eq!(begin(round), Some(CopyError::Range { blame: Blame::Source, bytes: DISK_BYTES }));
    let overlapping = CopyRange { target: 0, target_start: 4096, bytes: 8192, ..whole() };
    assert_eq!(begin(overlapping), Some(CopyError::Overlap));
    assert_eq!(begin(CopyRange { target_start: 8192, ..overlapping }), None);
}

#[test]
fn a_device_that_is_lost_for_good_ends_the_copy_with_an_error() {
    let (mut world, ..) = World::one_box(&Impairment::default());
    world.begin(&[whole()], CopyConfig::default());
    world.wait(|world| world.copy().done(0) > 1 << 20);
    world.kill(0);
    world.run(40_000 * MS / MS);
    assert!(world.copy().is_over());
    assert_eq!(world.copy().error(0), Some(CopyError::Away));
}

#[test]
fn a_copy_from_box_to_box_is_exact_and_does_not_touch_the_host() {
    for buffer_in in 0..2 {
        let (mut world, source, target) = World::two_boxes(buffer_in, &Impairment::default());
        world.begin(&[whole()], CopyConfig { verify: true, ..CopyConfig::default() });
        assert_eq!(world.direct.between(), Between::Buffer);
        world.finish();
        assert_eq!((world.copy().phase(0), world.copy().error(0)), (Phase::Done, None));
        assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES));
        let dma = world.dma_bytes();
        assert!(dma * 100 <= DISK_BYTES, "{dma} bytes came by the host");
        let far = world.node(1 - buffer_in).far_counters();
        assert!(far.requests_out > 0 && far.severed == 0, "{far:?}");
    }
}

#[test]
fn a_copy_from_box_to_box_over_a_bad_link_is_exact() {
    for seed in 0..4 {
        let impairment = Impairment {
            loss: 0.02,
            duplicate: 0.01,
            reorder: 0.02,
            corrupt: 0.005,
            delay_ns: (5_000, 60_000),
            seed,
            ..Impairment::default()
        };
        let (mut world, source, target) = World::two_boxes(seed as usize % 2, &impairment);
        world.begin(&[some(4 << 20)], CopyConfig { verify: true, ..CopyConfig::default() });
        world.finish();
        assert_eq!(world.copy().error(0), None, "seed {seed}");
        assert!(content(&target, 512 * 77, 4 << 20) == content(&source, 512 * 3, 4 << 20), "seed {seed}");
    }
}

#[test]
fn the_death_of_either_box_costs_a_copy_between_them_no_byte() {
    for seed in 0..12 {
        let (dying, buffer_in) = (seed % 2, seed / 2 % 2);
        let impairment = Impairment { loss: 0.01, seed: seed as u64, ..Impairment::default() };
        let (mut world, source, target) = World::two_boxes(buffer_in, &impairment);
        let config =
            CopyConfig { verify: true, checkpoint_bytes: (seed as u64 % 3) << 20, ..CopyConfig::default() };
        world.begin(&[whole()], config);
        world.wait(|world| world.copy().done(0) > (1 + seed as u64 % 5) << 20);
        for _ in 0..seed * 13 {
            world.step();
        }
        world.kill(dying);
        world.run(50 + seed as u64 * 70);
        world.start(dying);
        world.finish();
        assert_eq!(world.copy().error(0), None, "seed {seed}");
        assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES), "seed {seed}");
    }
}

#[test]
fn what_two_boxes_lose_on_their_way_to_each_other_is_told_by_nobody() {
    let mut severed = 0;
    for seed in 0..12_u64 {
        let (mut world, source, target) =
            World::two_boxes(usize::from(seed % 4 != 0), &Impairment::default());
        let config =
            CopyConfig { outstanding: Some(8), chunk_bytes: Some(64 << 10), ..CopyConfig::default() };
        world.begin(&[whole()], config);
        world.wait(|world| world.copy().done(0) > (1 + seed % 5) << 20);
        for _ in 0..seed * 17 {
            world.step();
        }
        let host_sessions = |world: &World| [0, 1].map(|number| world.node(number).hosts().count());
        world.are_apart = true;
        // Longer than a silent peer is taken for alive, sometimes.
        world.run(if seed % 3 == 0 { 100 } else { 700 });
        assert_eq!(host_sessions(&world), [1, 1], "hosts do not notice");
        world.are_apart = false;
        world.finish();
        assert_eq!(world.copy().error(0), None, "seed {seed}");
        assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES), "seed {seed}");
        severed += [0, 1].map(|number| world.node(number).far_counters().severed).iter().sum::<u64>();
    }
    assert!(severed > 0, "nothing was under way");
}

#[test]
fn a_buffer_in_another_box_that_is_taken_away_and_given_back_costs_time_and_no_byte() {
    for seed in 0..8 {
        let buffer_in = seed as usize % 2;
        let (mut world, source, target) = World::two_boxes(buffer_in, &Impairment::default());
        world.begin(&[whole()], CopyConfig::default());
        world.wait(|world| world.copy().done(0) > (1 + seed % 5) << 20);
        for _ in 0..seed * 7 {
            world.step();
        }
        world.give(buffer_in, "dc", None);
        world.wait(|world| {
            let mut leases = world.node(buffer_in).leases().iter();
            !world.direct.has_device(2)
                && leases.all(|lease| lease.name.as_str() != "dc" || lease.owner.is_none())
        });
        world.run(seed * 3);
        world.give(buffer_in, "dc", Some(NodeId([200; 16])));
        world.finish();
        assert_eq!(world.copy().error(0), None, "seed {seed}");
        assert!(content(&target, 0, DISK_BYTES) == content(&source, 0, DISK_BYTES), "seed {seed}");
    }
}

#[test]
fn when_the_host_is_lost_its_devices_reach_each_other_in_no_box() {
    let (mut world, _, target) = World::two_boxes(1, &Impairment::default());
    world.begin(&[whole()], CopyConfig { outstanding: Some(8), ..CopyConfig::default() });
    world.wait(|world| world.copy().done(0) > 1 << 20);
    world.is_cut = true;
    // Longer than a silent peer is taken for alive.
    world.run(400);
    assert_eq!([0, 1].map(|number| world.node(number).hosts().count()), [0, 0]);
    let counts = |world: &World| (world.count(1, "dc", "write_bytes"), world.count(1, "dc", "read_bytes"));
    let (before, content_before) = (counts(&world), content(&target, 0, DISK_BYTES));
    assert!(before.0 > 1 << 20 && before.1 > 1 << 20);
    world.run(300);
    assert_eq!(counts(&world), before);
    assert!(content(&target, 0, DISK_BYTES) == content_before);
    assert_eq!(
        [0, 1].map(|number| world.node(number).boxes().count()),
        [0, 0],
        "they have nothing to say to each other"
    );
    world.is_cut = false;
    world.finish();
    assert_eq!(world.copy().error(0), None);
}
