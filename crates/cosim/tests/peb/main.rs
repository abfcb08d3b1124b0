//! The bridge in hardware with a host node in software: its initiator's driver enumerates, identifies, reads and writes the NVMe controller of
//! `crates/devices` behind the hardware, and every byte is compared.

mod direct;
mod raw;
mod world;

use std::collections::HashMap;

use etherslot_initiator::nvme::Config;
use etherslot_initiator::{Op, Request};
use etherslot_session::Mode;
use world::{Plan, World, config};

const PLACES: u64 = 64;

/// Bytes of a place of the disk after the `turn`-th write.
pub(crate) fn content(place: u64, turn: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at * 7 + at / 251 + place * 31 + turn * 101) as u8).collect()
}

/// Keeps `depth` requests under way until `operations` are done, and compares what is read with what was written, at last on the medium itself.
fn load(world: &mut World, depth: usize, operations: u64, blocks: u32) {
    let bytes = blocks as usize * 512;
    let mut holds: HashMap<u64, u64> = HashMap::new();
    let mut under_way: HashMap<u64, (u64, Op)> = HashMap::new();
    let (mut next, mut done) = (0, 0);
    while done < operations {
        let mut submitted = false;
        while under_way.len() < depth && next < operations {
            let place = next * 29 % PLACES;
            if under_way.values().any(|&(other, _)| other == place) {
                break;
            }
            let Some(buffer) = world.disk().take_buffer(bytes) else { break };
            // Once around the places: writes. Then reads and writes in turn.
            let op = if next >= PLACES && next % 2 == 0 { Op::Read } else { Op::Write { durable: false } };
            if op != Op::Read {
                world.disk().data_mut(&buffer)[..bytes].copy_from_slice(&content(place, next, bytes));
            }
            let first_block = place * u64::from(blocks);
            let request = Request { token: next, op, first_block, blocks, buffer: Some(buffer) };
            world.disk().submit(request).expect("taken");
            under_way.insert(next, (place, op));
            next += 1;
            submitted = true;
        }
        if submitted {
            world.go_on();
        }
        let mut ended = Vec::new();
        world.wait("done", |world| {
            world.disk().poll(&mut |done| ended.push(done));
            !ended.is_empty()
        });
        for one in ended {
            let (place, op) = under_way.remove(&one.token).expect("ends once");
            assert_eq!(one.result, Ok(()), "{op:?} of place {place}");
            let buffer = one.buffer.expect("comes back");
            if op != Op::Read {
                holds.insert(place, one.token);
            } else if let Some(&turn) = holds.get(&place) {
                assert!(world.disk().data(&buffer)[..bytes] == content(place, turn, bytes), "place {place}");
            }
            world.disk().give_back(buffer);
            done += 1;
        }
    }
    let mut data = vec![0; bytes];
    for (&place, &turn) in &holds {
        world.medium.peek(place * bytes as u64, &mut data);
        assert!(data == content(place, turn, bytes), "the medium's place {place}");
    }
}

/// Nothing went wrong but what the link did.
fn is_clean(world: &World) {
    let stats = world.peb.stats();
    let wrong = [
        stats.down_malformed,
        stats.down_spoofed,
        stats.down_unrouted_completions,
        stats.up_malformed,
        stats.up_spoofed,
        stats.up_refused,
        stats.fence_timeouts,
        stats.stray,
        stats.denied,
        stats.violations,
    ];
    assert_eq!(wrong, [0; 10], "{stats:?}");
    for counters in world.initiator.node().slot_counters() {
        assert_eq!(
            (counters.malformed, counters.foreign, counters.unexpected_completions),
            (0, 0, 0),
            "{counters:?}"
        );
        assert_eq!((counters.access_timeouts, counters.dma_faults), (0, 0), "{counters:?}");
    }
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_disk_behind_the_hardware_is_enumerated_identified_written_and_read() {
    let mut world = World::ready(Plan::default(), config());
    let data = world.initiator.controller_data().expect("identified");
    println!("{data:?}, ready after {} us", world.now_ns() / 1000);
    let written = content(3, 9, 16 * 512);
    assert_eq!(world.one(Op::Write { durable: true }, 40, 16, &written).0.result, Ok(()));
    let (done, read) = world.one(Op::Read, 40, 16, &[]);
    assert_eq!(done.result, Ok(()));
    assert!(read == written);
    load(&mut world, 8, 160, 16);
    is_clean(&world);
    println!("{:?} at {} us", world.peb.stats(), world.now_ns() / 1000);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn large_and_small_requests_come_whole() {
    let mut world = World::ready(Plan { seed: 2, ..Plan::default() }, config());
    load(&mut world, 4, 80, 128);
    is_clean(&world);
    let mut world = World::ready(Plan { seed: 3, ..Plan::default() }, config());
    load(&mut world, 8, 160, 1);
    is_clean(&world);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn interrupts_come_behind_what_they_tell_of() {
    let mut world =
        World::ready(Plan { seed: 4, ..Plan::default() }, Config { interrupts: true, ..config() });
    load(&mut world, 8, 160, 8);
    is_clean(&world);
    let interrupts: u64 = world.initiator.node().slot_counters().map(|slot| slot.interrupts).sum();
    assert!(interrupts > 0);
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn one_frame_in_a_hundred_lost_costs_no_byte() {
    for (seed, mode) in [(5, Mode::Selective), (6, Mode::Classic)] {
        let plan = Plan { seed, mode, loss_per_million: 10_000, ..Plan::default() };
        let mut world = World::ready(plan, config());
        load(&mut world, 8, 160, 16);
        is_clean(&world);
        assert!(world.peb.stats().again > 0);
    }
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_device_that_takes_little_holds_up_and_loses_nothing() {
    for pressure in [30, 80] {
        let plan = Plan { seed: 7 + pressure, pressure, ..Plan::default() };
        let mut world = World::ready(plan, Config { interrupts: true, ..config() });
        load(&mut world, 8, 160, 8);
        is_clean(&world);
        assert!(world.peb.stats().passed > 0, "something was passed: {:?}", world.peb.stats());
    }
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_host_that_goes_leaves_a_device_that_was_reset_to_the_next() {
    let mut world = World::ready(Plan { seed: 8, ..Plan::default() }, config());
    let written = content(5, 1, 8 * 512);
    assert_eq!(world.one(Op::Write { durable: true }, 8, 8, &written).0.result, Ok(()));
    world.initiator.close();
    world.wait("closed", |world| world.initiator.is_closed() && !world.peb.is_up());
    for life in 3..5 {
        world.start_host(life, config());
        world.wait("ready again", |world| world.initiator.is_ready());
        let (done, read) = world.one(Op::Read, 8, 8, &[]);
        assert_eq!(done.result, Ok(()));
        assert!(read == written);
        let stats = world.peb.stats();
        assert_eq!(u64::from(stats.sessions), life - 1);
        assert_eq!((u64::from(stats.attached), u64::from(stats.resets)), (life - 1, life - 1), "{stats:?}");
        is_clean(&world);
        world.initiator.close();
        world.wait("closed", |world| world.initiator.is_closed() && !world.peb.is_up());
    }
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn a_device_of_another_name_is_not_given() {
    let mut world = World::with_name(Plan { seed: 9, ..Plan::default() }, config(), "other");
    world.wait("refused", |world| world.initiator.node().refusal(0).is_some());
    let stats = world.peb.stats();
    assert_eq!((stats.denied, stats.attached, stats.down), (1, 0, 0));
    assert!(!world.initiator.has_device());
}
