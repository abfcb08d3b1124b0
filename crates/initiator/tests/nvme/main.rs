//! What users of a remote NVMe disk may rely on.
#![allow(missing_docs)]

mod hostile;
mod load;
mod world;

use etherslot_initiator::nvme::{Config, DataPointers, Failure, Submission};
use etherslot_initiator::{BufferClass, Disk as _, DiskError, Op, Request, Status};
use etherslot_netio::impair::Impairment;
use etherslot_storage::MediumError;
use etherslot_storage::memory::FaultOn;
use load::Load;
use world::{MS, World, config};

#[test]
fn the_disk_is_described_as_the_controller_describes_it() {
    let mut world = World::ready(config());
    let info = world.disk().info().clone();
    assert_eq!((info.block_bytes, info.bytes()), (512, 16 << 20));
    assert_eq!((info.max_transfer_bytes, info.queue_depth), (64 << 10, 16));
    assert_eq!((info.serial.as_str(), info.model.as_str()), ("ETHERSLOT", "Etherslot NVMe Controller"));
    assert!(info.can_discard && info.can_write_zeroes && info.volatile_cache && !info.read_only);
}

#[test]
fn transfers_of_every_shape_are_exact() {
    for data_pointers in [DataPointers::Prp, DataPointers::Sgl] {
        for submission in [Submission::HostMemory, Submission::ControllerMemory] {
            let buffers = vec![BufferClass { bytes: 1 << 20, count: 2 }];
            let mut world = World::ready(Config { data_pointers, submission, buffers, ..config() });
            // One block, a page and its neighbours, two pages and one block, lists of PRPs, the most that MDTS allows.
            for blocks in [1, 7, 8, 9, 16, 17, 24, 127, 128, 2047, 2048] {
                let data: Vec<u8> =
                    (0..blocks * 512u32).map(|at| (at * 7 + at / 512 + blocks) as u8).collect();
                let (done, _) = world.one(Op::Write { durable: blocks == 8 }, 5, blocks, &data);
                assert_eq!(done.result, Ok(()));
                let mut written = vec![0; data.len()];
                world.medium.peek(5 * 512, &mut written);
                assert_eq!(written, data, "{blocks} blocks, {data_pointers:?}, {submission:?}");
                let (done, read) = world.one(Op::Read, 5, blocks, &[]);
                assert_eq!((done.token, done.result), (7, Ok(())));
                assert!(read == data, "{blocks} blocks, {data_pointers:?}, {submission:?}");
            }
        }
    }
}

#[test]
fn transfers_of_megabytes_are_exact_by_lists_of_any_length() {
    for data_pointers in [DataPointers::Prp, DataPointers::Sgl] {
        let buffers = vec![BufferClass { bytes: 4 << 20, count: 1 }];
        let mut world = World::ready(Config { data_pointers, buffers, ..config() });
        assert_eq!(world.disk().info().max_transfer_bytes, 4 << 20);
        // In one buffer, so that each finds the list of the one before: one, two and three pages of it, each just full and one entry more.
        for blocks in [8192, 4104, 4112, 8184, 4105, 4096, 8185, 4097, 2048, 8192u32] {
            let data: Vec<u8> = (0..blocks * 512).map(|at| (at * 7 + at / 512 + blocks) as u8).collect();
            let (done, _) = world.one(Op::Write { durable: false }, 5, blocks, &data);
            assert_eq!(done.result, Ok(()));
            let mut written = vec![0; data.len()];
            world.medium.peek(5 * 512, &mut written);
            assert!(written == data, "{blocks} blocks, {data_pointers:?}");
            let (done, read) = world.one(Op::Read, 5, blocks, &vec![0; data.len()]);
            assert_eq!(done.result, Ok(()));
            assert!(read == data, "{blocks} blocks, {data_pointers:?}");
        }
    }
}

#[test]
fn flush_zeros_and_discard_do_what_they_say() {
    let mut world = World::ready(config());
    world.one(Op::Write { durable: false }, 0, 64, &vec![0xA5; 64 * 512]);
    assert_ne!(world.medium.unflushed_blocks(), 0);
    assert_eq!(world.one(Op::Flush, 0, 0, &[]).0.result, Ok(()));
    assert_eq!(world.medium.unflushed_blocks(), 0);
    assert_eq!(world.one(Op::WriteZeroes { unmap: true }, 8, 8, &[]).0.result, Ok(()));
    assert_eq!(world.one(Op::Discard, 32, 8, &[]).0.result, Ok(()));
    let (_, data) = world.one(Op::Read, 0, 64, &[]);
    for (block, data) in data.chunks(512).enumerate() {
        let is_zero = (8..16).contains(&block) || (32..40).contains(&block);
        assert!(data.iter().all(|&byte| byte == if is_zero { 0 } else { 0xA5 }), "block {block}");
    }
}

#[test]
fn any_depth_of_any_number_of_queues_serves() {
    for (queues, queue_depth, operations) in
        [(1, 1, 50), (1, 2, 50), (1, 1024, 3000), (4, 3, 200), (16, 64, 3000)]
    {
        for submission in [Submission::HostMemory, Submission::ControllerMemory] {
            let depth = usize::from(queues) * usize::from(queue_depth);
            let buffers = vec![BufferClass { bytes: 4096, count: depth }];
            let mut world = World::ready(Config { queues, queue_depth, submission, buffers, ..config() });
            assert_eq!(world.disk().info().queue_depth, depth);
            let mut load = Load::new(depth as u64, 8);
            load.run(&mut world, depth.min(200), operations);
            load.finish(&mut world);
            let counters = world.initiator.counters();
            assert_eq!((load.errors.len(), counters.resets, counters.stray_completions), (0, 0, 0));
        }
    }
}

#[test]
fn completions_can_be_told_by_messages() {
    let mut world = World::ready(Config { interrupts: true, queues: 3, ..config() });
    let mut load = Load::new(3, 8);
    load.run(&mut world, 24, 500);
    load.finish(&mut world);
    assert_eq!((load.errors.len(), world.initiator.counters().resets), (0, 0));
}

#[test]
fn one_doorbell_serves_all_that_was_submitted_in_a_round() {
    let mut world = World::ready(config());
    let before = world.initiator.counters().doorbells;
    for token in 0..16 {
        let buffer = world.disk().take_buffer(512);
        let request = Request { token, op: Op::Read, first_block: token, blocks: 1, buffer };
        world.disk().submit(request).unwrap();
    }
    let mut ended = 0;
    world.wait(|world| {
        world.disk().poll(&mut |_| ended += 1);
        ended == 16
    });
    assert_eq!(world.initiator.counters().doorbells - before, 1);
}

#[test]
fn a_controller_that_is_well_is_asked_for_nothing_but_the_work() {
    let mut world = World::ready(config());
    let accesses =
        |world: &World| world.initiator.node().slot_counters().next().map(|counters| counters.accesses);
    world.step();
    let before = accesses(&world).unwrap();
    let mut load = Load::new(4, 8);
    load.run(&mut world, 1, 500);
    // The doorbell of each, and that of the Completion Queue once in a while.
    let made = accesses(&world).unwrap() - before;
    assert!((500..600).contains(&made), "{made}");
}

#[test]
fn a_link_that_loses_and_reorders_changes_nothing_but_the_time() {
    for seed in 1..=6 {
        let impairment =
            Impairment { loss: 0.02, reorder: 0.02, duplicate: 0.01, seed, ..Impairment::default() };
        let mut world = World::with(Config { queues: 2, ..config() }, &impairment, |nvme| Box::new(nvme));
        world.wait(|world| world.initiator.is_ready());
        let mut load = Load::new(seed, 16);
        load.run(&mut world, 24, 1000);
        load.finish(&mut world);
        assert_eq!(load.errors, [], "seed {seed}");
    }
}

#[test]
fn a_box_that_was_killed_and_came_back_costs_no_error_and_nothing_that_was_acknowledged() {
    for seed in 1..=8 {
        let submission = if seed % 2 == 0 { Submission::ControllerMemory } else { Submission::HostMemory };
        let mut world = World::ready(Config { queues: 2, submission, ..config() });
        let mut load = Load::new(seed, 8);
        for _ in 0..3 {
            load.run(&mut world, 24, 100 + seed * 13);
            load.submit(&mut world, 24);
            (0..seed % 4).for_each(|_| world.step());
            world.kill_box();
            (0..100 + seed * 5000).for_each(|_| world.step());
            world.start_box();
        }
        load.run(&mut world, 24, 200);
        load.finish(&mut world);
        assert_eq!(load.errors, [], "seed {seed}");
        let counters = world.initiator.counters();
        assert!(counters.losses == 3 && counters.started == 4 && counters.resubmitted > 0, "{counters:?}");
    }
}

#[test]
fn a_medium_that_fails_is_told_in_the_words_of_the_specification() {
    let mut world = World::ready(config());
    world.medium.fail(FaultOn::Read, 0..512, MediumError::Failed, 1);
    let (done, _) = world.one(Op::Read, 0, 8, &[]);
    assert_eq!(done.result, Err(DiskError::Status(Status::new(2, 0x81))));
    assert_eq!(
        done.result.unwrap_err().to_string(),
        "the device answered Unrecovered Read Error (SCT 2h, SC 81h)"
    );
    assert_eq!(world.one(Op::Read, 0, 8, &[]).0.result, Ok(()));
}

#[test]
fn requests_to_a_device_that_is_lost_for_good_end_with_a_clear_error() {
    let mut world = World::ready(Config { give_up_ns: 2_000 * MS, ..config() });
    let mut load = Load::new(9, 8);
    load.submit(&mut world, 16);
    world.kill_box();
    load.finish(&mut world);
    assert_eq!(load.errors, [DiskError::Lost; 16]);
    // And those that are submitted later, too; then it is back.
    assert_eq!(world.one(Op::Read, 0, 8, &[]).0.result, Err(DiskError::Lost));
    world.start_box();
    world.wait(|world| world.initiator.is_ready());
    assert_eq!(world.one(Op::Read, 0, 8, &[]).0.result, Ok(()));
}

#[test]
fn a_namespace_that_does_not_exist_is_told_with_those_that_do() {
    let mut world = World::new(Config { nsid: 3, ..config() });
    world.wait(|world| world.initiator.failure().is_some());
    assert_eq!(world.initiator.failure(), Some(&Failure::NoNamespace { nsid: 3, active: vec![1] }));
    assert!(world.initiator.disk().is_none());
}

#[test]
fn a_shutdown_makes_durable_what_was_written() {
    let mut world = World::ready(config());
    world.one(Op::Write { durable: false }, 0, 64, &vec![0xA5; 64 * 512]);
    assert_ne!(world.medium.unflushed_blocks(), 0);
    world.initiator.shut_down();
    world.wait(|world| world.initiator.is_shut_down());
    assert_eq!(world.medium.unflushed_blocks(), 0);
    // It stays as it is, whatever becomes of the box.
    world.kill_box();
    (0..100_000).for_each(|_| world.step());
    world.start_box();
    (0..100_000).for_each(|_| world.step());
    assert!(world.initiator.is_shut_down() && world.initiator.counters().started == 1);
}

#[test]
fn a_shutdown_ends_in_bounded_time_with_every_request_whatever_the_box_does() {
    for (is_killed, comes_back) in [(false, false), (true, false), (true, true)] {
        let mut world = World::ready(config());
        let mut load = Load::new(3, 8);
        load.submit(&mut world, 16);
        if is_killed {
            world.kill_box();
        }
        world.step();
        world.initiator.shut_down();
        let before_ns = world.now_ns;
        if comes_back {
            world.start_box();
        }
        world.wait(|world| world.initiator.is_shut_down());
        assert!(world.now_ns - before_ns < 5_100 * MS, "{is_killed} {comes_back}");
        load.finish(&mut world);
        assert!(load.errors.iter().all(|error| *error == DiskError::Unusable), "{:?}", load.errors);
        load.submit(&mut world, 4);
        load.finish(&mut world);
        assert!(load.errors.len() >= 4);
    }
}

#[test]
fn a_start_takes_few_round_trips() {
    let mut world = World::new(config());
    world.wait(|world| world.initiator.has_device());
    let before_ns = world.now_ns;
    world.wait(|world| world.initiator.is_ready());
    let start_ns = world.now_ns - before_ns;
    assert!(start_ns < MS, "{start_ns}");
}

#[test]
fn once_it_is_warm_a_request_allocates_nothing() {
    let mut world = World::ready(config());
    let mut buffers: Vec<_> = (0..16).filter_map(|_| world.disk().take_buffer(4096)).collect();
    let mut allocated = 0;
    for round in 0..2000u64 {
        let (before, disk) = (round < 1000, &mut world.initiator);
        let info = allocation_counter::measure(|| {
            etherslot_initiator::Disk::poll(disk, &mut |done| buffers.extend(done.buffer));
            while let Some(buffer) = buffers.pop() {
                let request =
                    Request { token: 0, op: Op::Read, first_block: round, blocks: 8, buffer: Some(buffer) };
                disk.submit(request).unwrap();
            }
        });
        allocated += if before { 0 } else { info.count_total };
        world.step();
    }
    assert!(world.initiator.counters().completed > 1000);
    assert_eq!(allocated, 0);
}
