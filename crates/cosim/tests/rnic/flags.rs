//! PUSH and PULL of either side: flags in both memories, behind the data that they tell of.

use etherslot_rdma::{SendOpcode, SendWork, Sge, Status};

use crate::world::{MS, SOURCE, SOURCE_TO, Setting, Side, World};
use crate::{emit, work};

const LENGTH: usize = 5000;
const FLAG: usize = 0x3_0000;

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn push_and_pull_tell_both_sides_behind_the_data() {
    for from in Side::BOTH {
        for loss_per_million in [0, 10_000] {
            let mut world = World::new(&Setting { loss_per_million, ..Setting::default() });
            for round in 1..=6 {
                push(&mut world, from, round);
                pull(&mut world, from, round);
            }
        }
    }
}

/// The flag of a side.
fn flag_of(world: &World, side: Side, at: usize) -> u64 {
    u64::from_le_bytes(world.sink(side, at, 8).try_into().expect("8 bytes"))
}

/// Goes on until both flags have their values; looks at the data as soon as a flag is there.
fn watch(world: &mut World, flags: [(Side, usize, u64); 2], (side, at): (Side, usize), wanted: &[u8]) {
    world.until(400 * MS, "no flag", |world| {
        let told = flags.map(|(side, at, value)| flag_of(world, side, at) == value);
        if told.contains(&true) {
            assert!(world.sink(side, at, wanted.len()) == wanted, "a flag was there before its data");
        }
        told == [true, true]
    });
}

fn push(world: &mut World, from: Side, round: u64) {
    let to = from.other();
    let (ours, theirs) = (*world.stags(from), *world.stags(to));
    let at = round as usize * 0x2000 + 3;
    let near = [Sge { to: SOURCE_TO + 100 * round, stag: ours.source, length: LENGTH as u32 }];
    let work = SendWork {
        sges: &near,
        remote_stag: theirs.sink,
        remote_to: at as u64,
        ..work(SendOpcode::Write, round)
    }
    .local(ours.sink, FLAG as u64, round)
    .remote(theirs.sink, FLAG as u64 + 8, 1000 + round);
    let data = world.memory(from)[SOURCE + 100 * round as usize..][..LENGTH].to_vec();
    world.post_send(from, 0, &emit(&work));
    watch(world, [(from, FLAG, round), (to, FLAG + 8, 1000 + round)], (to, at), &data);
    assert_eq!(world.completion(from, 0).status, Status::Success);
}

fn pull(world: &mut World, from: Side, round: u64) {
    let to = from.other();
    let (ours, theirs) = (*world.stags(from), *world.stags(to));
    let at = 0x1_8000 + round as usize * 0x2000 + 5;
    let near = [Sge { to: at as u64, stag: ours.sink, length: LENGTH as u32 }];
    let remote_to = SOURCE_TO + 77 * round;
    let work =
        SendWork { sges: &near, remote_stag: theirs.source, remote_to, ..work(SendOpcode::Read, round) }
            .local(ours.sink, FLAG as u64 + 16, round)
            .remote(theirs.sink, FLAG as u64 + 24, 2000 + round);
    let data = world.memory(to)[SOURCE + 77 * round as usize..][..LENGTH].to_vec();
    world.post_send(from, 0, &emit(&work));
    watch(world, [(from, FLAG + 16, round), (to, FLAG + 24, 2000 + round)], (from, at), &data);
    assert_eq!(world.completion(from, 0).status, Status::Success);
}

/// A local flag whose place in memory 8 bytes cannot be stored to at once, though its TO is a multiple of 8 (docs/rnic.md, 12).
#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn a_local_flag_that_lies_askew_fails_its_wqe() {
    for from in Side::BOTH {
        let mut world = World::new(&Setting::default());
        let stag = world.register_askew(from);
        let theirs = world.stags(from.other()).sink;
        let work = SendWork {
            inline: Some(b"data"),
            remote_stag: theirs,
            remote_to: 64,
            ..work(SendOpcode::Write, 1)
        };
        world.post_send(from, 0, &emit(&work.local(stag, 0, 5)));
        assert_eq!(world.completion(from, 0).status, Status::LocalProtection, "of the {from:?}");
        world.until(50 * MS, "both are in ERROR", |world| {
            Side::BOTH.iter().all(|&side| world.state(side, 0) == 6)
        });
    }
}
