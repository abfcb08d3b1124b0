//! The RNIC core in hardware, with EFE in front of it, against the RNIC in software: all operations both ways, every byte compared, frames lost, errors told
//! on both sides.

mod errors;
mod flags;
mod misses;
mod traffic;
mod world;

use etherslot_rdma::{Cqe, ReceiveWork, SendOpcode, SendWork, Sge, Status, flag};
use etherslot_session::Mode;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use traffic::Traffic;
use world::{MS, SOURCE, SOURCE_TO, Setting, Side, World};

/// All kinds of operations on several QPs, both ways.
fn works(setting: &Setting, ops: usize, is_late: bool) {
    let mut world = World::new(setting);
    let mut rng = SmallRng::seed_from_u64(setting.seed ^ 0xE5);
    let mut traffic = Traffic::new(&world, &mut rng, ops);
    traffic.is_late = is_late;
    let begin_ns = world.now_ns();
    traffic.run(&mut world, &mut rng);
    let stats = world.efe.stats();
    println!(
        "{setting:?}: {} bytes in {} us, {} frames lost, {stats:?}",
        traffic.bytes,
        (world.now_ns() - begin_ns) / 1000,
        world.lost
    );
    assert_eq!((stats.violations, stats.check, stats.refused, stats.full, stats.sessions), (0, 0, 0, 0, 1));
    assert_eq!(world.lost == 0, setting.loss_per_million == 0);
    let counters = *world.soft.engine.counters();
    assert_eq!((counters.terminates_sent, counters.terminates_received, counters.wqes_failed), (0, 0, 0));
    assert_eq!(counters.not_ready_received > 0, is_late, "the hardware was late, and only if it should be");
    assert!(!world.rnic.interrupts.is_empty(), "completions are told by interrupts");
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn writes_reads_and_sends_of_both_bring_every_byte() {
    works(&Setting { qps: 3, ..Setting::default() }, 40, false);
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn one_frame_in_a_hundred_lost_changes_nothing_selective() {
    works(
        &Setting {
            seed: 2,
            qps: 3,
            loss_per_million: 10_000,
            is_hardware_active: true,
            ..Setting::default()
        },
        40,
        false,
    );
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn one_frame_in_a_hundred_lost_changes_nothing_classic() {
    works(
        &Setting { seed: 3, qps: 2, loss_per_million: 10_000, mode: Mode::Classic, ..Setting::default() },
        40,
        false,
    );
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn fewer_reads_under_way_than_the_hardware_could_have_are_kept_to() {
    works(&Setting { seed: 4, reads: 1, qps: 2, ..Setting::default() }, 40, false);
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn the_software_waits_for_a_receiver_that_is_not_ready() {
    works(&Setting { seed: 5, qps: 2, ..Setting::default() }, 30, true);
}

/// The bytes of a WQE.
fn emit(work: &SendWork<'_>) -> Vec<u8> {
    let mut wqe = [0; SendWork::MAX_BYTES];
    let bytes = work.emit(&mut wqe).expect("a WQE");
    wqe[..bytes].to_vec()
}

fn emit_receive(id: u64, sges: &[Sge]) -> Vec<u8> {
    let mut wqe = [0; ReceiveWork::MAX_BYTES];
    let bytes = ReceiveWork { id, sges }.emit(&mut wqe).expect("a WQE");
    wqe[..bytes].to_vec()
}

/// One operation of a side, with a CQE.
fn work<'a>(opcode: SendOpcode, id: u64) -> SendWork<'a> {
    SendWork { opcode, id, flags: flag::SIGNALED, ..SendWork::default() }
}

fn is_flushed(cqe: &Cqe) -> bool {
    cqe.status == Status::Flushed
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn on_the_fly_sends_arrive_between_those_of_the_ring() {
    let mut world = World::new(&Setting::default());
    let (hard, _) = world.qps[0];
    let theirs = *world.stags(Side::Software);
    let ours = *world.stags(Side::Hardware);
    let header = emit(&SendWork {
        remote_stag: theirs.sink,
        remote_to: 4096,
        inline: Some(&[0; 8]),
        ..work(SendOpcode::Write, 500)
    });
    world.driver.prepare(&mut world.rnic, hard, 3, &header);
    let long: Vec<u8> = (0..450_u16).map(|at| at as u8 ^ 0x3C).collect();
    for round in 0..8_u64 {
        let kicked = emit(&SendWork {
            remote_stag: theirs.sink,
            remote_to: 8192 + 512 * round,
            inline: Some(&long),
            ..work(SendOpcode::Write, 3 * round)
        });
        let sges = [Sge { to: SOURCE_TO + 17 * round, stag: ours.source, length: 3000 }];
        let posted = emit(&SendWork {
            remote_stag: theirs.sink,
            remote_to: 0x1_0000 + 4096 * round,
            sges: &sges,
            ..work(SendOpcode::Write, 3 * round + 1)
        });
        world.driver.kick(&mut world.rnic, hard, &kicked);
        world.post_send(Side::Hardware, 0, &posted);
        world.driver.store_aotf(&mut world.rnic, hard, 3, 0x1122_3344_5566_7700 + round);
        for id in [3 * round, 3 * round + 1, 500] {
            let cqe = world.completion(Side::Hardware, 0);
            assert_eq!((cqe.id, cqe.status), (id, Status::Success));
        }
        let at = 17 * round as usize;
        assert!(
            world.sink(Side::Software, 0x1_0000 + 4096 * round as usize, 3000)
                == world.memory(Side::Hardware)[SOURCE + at..SOURCE + at + 3000]
        );
        assert_eq!(world.sink(Side::Software, 8192 + 512 * round as usize, 450), long);
        assert_eq!(world.sink(Side::Software, 4096, 8), (0x1122_3344_5566_7700 + round).to_le_bytes());
    }
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn a_qp_of_the_hardware_that_comes_late_is_found() {
    let mut world = World::without_qps(&Setting::default());
    world.connect(0, 1);
    let to = *world.stags(Side::Hardware);
    let write = emit(&SendWork {
        remote_stag: to.sink,
        remote_to: 64,
        inline: Some(b"late but here"),
        ..work(SendOpcode::Write, 1)
    });
    world.post_send(Side::Software, 0, &write);
    world.pass(2 * MS);
    assert_eq!(world.counter(Side::Software, "no_qp_received"), 1);
    let (hard, _) = world.qps[0];
    for state in [2, 3] {
        world.go(hard, state);
    }
    assert_eq!(world.completion(Side::Software, 0).status, Status::Success);
    assert_eq!(world.sink(Side::Hardware, 64, 13), b"late but here");
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn a_qp_of_the_software_that_is_not_there_fails_what_is_sent_to_it() {
    let mut world = World::new(&Setting::default());
    let (_, soft) = world.qps[0];
    world.soft.engine.destroy_qp(soft).expect("it was there");
    world.qps.clear();
    world.cqs.clear();
    // Another of the hardware's, which speaks to a QP that is no more.
    world.connect(1, 2);
    let (hard, soft) = world.qps[0];
    world.soft.engine.destroy_qp(soft).expect("it was there");
    world.go(hard, 3);
    let to = world.stags(Side::Software).sink;
    let write = SendWork { remote_stag: to, inline: Some(b"to nobody"), ..work(SendOpcode::Write, 1) };
    world.post_send(Side::Hardware, 0, &emit(&write));
    assert_eq!(world.completion(Side::Hardware, 0).status, Status::RetriesExceeded);
    assert_eq!(world.counter(Side::Hardware, "no_qp_received"), 1);
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn a_send_of_the_hardware_without_a_buffer_fails_and_the_peer_is_told() {
    let mut world = World::new(&Setting::default());
    world.post_send(
        Side::Hardware,
        0,
        &emit(&SendWork { inline: Some(b"nobody waits"), ..work(SendOpcode::Send, 1) }),
    );
    world.post_send(Side::Hardware, 0, &emit(&work(SendOpcode::Nop, 2)));
    assert_eq!(world.completion(Side::Hardware, 0).status, Status::RnrExceeded);
    assert!(is_flushed(&world.completion(Side::Hardware, 0)));
    world.until(50 * MS, "the peer is not told", |world| world.state(Side::Software, 0) == 6);
}
