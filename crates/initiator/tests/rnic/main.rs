//! Programs on two machines, each with an RNIC in a box of its own.

mod world;

use etherslot_netio::impair::Impairment;
use etherslot_rdma::{
    Access, Attributes, ControlError, Event, Layout, PostError, Qpn, ReceiveWork, Region, SendOpcode,
    SendWork, Service, Sge, State, Status, flag,
};
use world::{MS, PD, PEER, World};

fn sge(world: &World, at: usize, offset: usize, length: usize) -> [Sge; 1] {
    let side = &world.sides[at];
    [Sge { to: side.to(offset), stag: side.stag, length: length as u32 }]
}

/// A Write or Read between the same offsets of both sides' memory.
fn work<'a>(world: &World, opcode: SendOpcode, id: u64, remote: usize, sges: &'a [Sge]) -> SendWork<'a> {
    let other = &world.sides[1];
    SendWork { opcode, id, remote_to: other.to(remote), remote_stag: other.stag, sges, ..SendWork::default() }
}

fn receive(world: &mut World, at: usize, id: u64, offset: usize, length: usize) {
    let sges = sge(world, at, offset, length);
    let qp = world.sides[at].qps[0];
    world.sides[at].rnic.post_receive(qp, &ReceiveWork { id, sges: &sges }).unwrap();
}

fn post(world: &mut World, work: &SendWork<'_>) {
    let qp = world.sides[0].qps[0];
    world.sides[0].rnic.post_send(qp, work).unwrap();
}

/// Writes, Reads, Sends and atomics, their data looked at.
fn exercise(world: &mut World) {
    for (round, bytes) in [0, 1, 8, 479, 4096, 70_001, 300_000].into_iter().enumerate() {
        let id = round as u64;
        world.sides[0].fill(0, bytes, round as u8);
        let sges = sge(world, 0, 0, bytes);
        let write = work(world, SendOpcode::Write, id, 1 << 20, &sges);
        post(world, &write);
        assert_eq!(world.sent(0), (id, Status::Success));
        let sent = world.sides[0].bytes(0, bytes).to_vec();
        // What the other RNIC has taken may still be on its way to the memory of its host.
        world.wait(|world| world.sides[1].bytes(1 << 20, bytes) == sent);
        let sges = sge(world, 0, 2 << 20, bytes);
        let read = work(world, SendOpcode::Read, 100 + id, 1 << 20, &sges);
        post(world, &read);
        assert_eq!(world.sent(0), (100 + id, Status::Success));
        assert_eq!(world.sides[0].bytes(2 << 20, bytes), sent);
        receive(world, 1, 200 + id, 2 << 20, bytes);
        let sges = sge(world, 0, 0, bytes);
        let send = SendWork { immediate: 9, ..work(world, SendOpcode::SendImmediate, 300 + id, 0, &sges) };
        post(world, &send);
        assert_eq!(world.sent(0), (300 + id, Status::Success));
        let cq = world.sides[1].receive_cq;
        let cqe = world.completions(1, cq, 1)[0];
        assert_eq!((cqe.id, cqe.status, cqe.bytes), (200 + id, Status::Success, bytes as u32));
        assert_eq!(cqe.immediate, Some(9));
        assert_eq!(world.sides[1].bytes(2 << 20, bytes), sent);
    }
    let sges = sge(world, 0, 3 << 20, 8);
    for value in 0..5_u64 {
        let add = SendWork { operands: [3, 0], ..work(world, SendOpcode::FetchAdd, value, 3 << 20, &sges) };
        post(world, &add);
        assert_eq!(world.sent(0), (value, Status::Success));
        assert_eq!(world.sides[0].bytes(3 << 20, 8), (3 * value).to_le_bytes());
    }
    let swap = SendWork { operands: [77, 15], ..work(world, SendOpcode::CompareSwap, 6, 3 << 20, &sges) };
    post(world, &swap);
    assert_eq!(world.sent(0), (6, Status::Success));
    assert_eq!(world.sides[1].bytes(3 << 20, 8), 77_u64.to_le_bytes());
}

#[test]
fn everything_that_is_sent_arrives_and_completes() {
    exercise(&mut World::ready());
}

#[test]
fn everything_arrives_over_a_network_that_loses_and_reorders() {
    let impairment = Impairment { loss: 0.02, reorder: 0.02, duplicate: 0.01, ..Impairment::default() };
    exercise(&mut World::connected(1, &impairment));
}

#[test]
fn many_requests_of_many_qps_complete_once_each_and_in_order() {
    let mut world = World::connected(8, &Impairment::default());
    let bytes = 3000;
    let mut posted = [0_u64; 8];
    let mut done = [0_u64; 8];
    let rounds = 200;
    let qps = world.sides[0].qps.clone();
    world.sides[0].fill(0, 8 * bytes, 5);
    let cq = world.sides[0].send_cq;
    world.wait(|world| {
        for (at, &qp) in qps.iter().enumerate() {
            let sges = sge(world, 0, at * bytes, bytes);
            while posted[at] < rounds {
                let write = work(world, SendOpcode::Write, posted[at], at * bytes, &sges);
                match world.sides[0].rnic.post_send(qp, &write) {
                    Ok(()) => posted[at] += 1,
                    Err(error) => {
                        assert_eq!(error, PostError::Full);
                        break;
                    }
                }
            }
        }
        for cqe in world.sides[0].poll(cq) {
            let at = qps.iter().position(|&qp| qp == cqe.qp).unwrap();
            assert_eq!((cqe.id, cqe.status), (done[at], Status::Success));
            done[at] += 1;
        }
        done.iter().all(|&done| done == rounds)
    });
    let sent = world.sides[0].bytes(0, 8 * bytes).to_vec();
    assert_eq!(world.sides[1].bytes(0, 8 * bytes), sent);
}

#[test]
fn on_the_fly_sends_keep_their_place_among_the_others() {
    let mut world = World::ready();
    let qp = world.sides[0].qps[0];
    let at = world.sides[1].to(0);
    let stag = world.sides[1].stag;
    let write = |id, offset: u64, data: &'static [u8]| SendWork {
        opcode: SendOpcode::Write,
        id,
        remote_to: at + offset,
        remote_stag: stag,
        inline: Some(data),
        ..SendWork::default()
    };
    let rnic = &mut world.sides[0].rnic;
    rnic.prepare(qp, 5, &write(50, 0, &[0; 8])).unwrap();
    rnic.prepare(qp, 6, &write(60, 8, &[0; 8])).unwrap();
    // Each overwrites what the one before it has written.
    rnic.post_send(qp, &write(1, 0, &[1; 32])).unwrap();
    rnic.kick(qp, &write(2, 0, &[2; 400])).unwrap();
    rnic.store(qp, 5, 0x0303_0303_0303_0303).unwrap();
    rnic.post_send(qp, &write(4, 16, &[4; 8])).unwrap();
    rnic.store(qp, 6, 0x0505_0505_0505_0505).unwrap();
    rnic.store(qp, 6, 0x0606_0606_0606_0606).unwrap();
    let cq = world.sides[0].send_cq;
    let ids: Vec<u64> = world.completions(0, cq, 6).iter().map(|cqe| cqe.id).collect();
    assert_eq!(ids, [1, 2, 50, 4, 60, 60]);
    let mut expected = vec![2; 400];
    expected[..8].fill(3);
    expected[8..16].fill(6);
    expected[16..24].fill(4);
    assert_eq!(world.sides[1].bytes(0, 400), expected);
    assert_eq!(world.sides[0].rnic.store(qp, 7, 1), Err(PostError::Malformed), "it was not prepared");
    let long = write(1, 0, &[0; 16]);
    assert_eq!(world.sides[0].rnic.prepare(qp, 1, &long), Err(ControlError::Invalid));
}

#[test]
fn push_and_pull_tell_by_flags_in_either_memory() {
    let mut world = World::ready();
    world.sides[0].fill(0, 5000, 1);
    let local = world.sides[0].stag;
    let remote = world.sides[1].stag;
    let (here, there) = (world.sides[0].place.address, world.sides[1].place.address);
    let sges = sge(&world, 0, 0, 5000);
    let push = SendWork::push(1, &sges, remote, there).local(local, here + 8192, 11).remote(
        remote,
        there + 8192,
        22,
    );
    post(&mut world, &push);
    let into = sge(&world, 0, 16_384, 5000);
    let pull = SendWork::pull(2, &into, remote, there).local(local, here + 8200, 33).remote(
        remote,
        there + 8200,
        44,
    );
    post(&mut world, &pull);
    // Nobody polls a CQ.
    let flag = |world: &World, at: usize, offset| {
        u64::from_le_bytes(world.sides[at].bytes(offset, 8).try_into().unwrap())
    };
    let mut sent = Vec::new();
    world.wait(|world| {
        if flag(world, 1, 8192) == 22 && sent.is_empty() {
            sent = world.sides[0].bytes(0, 5000).to_vec();
            assert_eq!(world.sides[1].bytes(0, 5000), sent, "the flag is behind the data");
        }
        if flag(world, 0, 8200) == 33 {
            assert_eq!(world.sides[0].bytes(16_384, 5000), sent);
        }
        flag(world, 0, 8192) == 11 && flag(world, 0, 8200) == 33 && flag(world, 1, 8200) == 44
    });
}

#[test]
fn what_may_not_be_done_fails_with_its_status_and_nothing_is_touched() {
    for (what, status) in [
        ("another key", Status::RemoteAccess),
        ("out of bounds", Status::RemoteAccess),
        ("a region that may be read only", Status::RemoteAccess),
        ("a region that was removed", Status::RemoteAccess),
        ("a local region of another key", Status::LocalProtection),
    ] {
        let mut world = World::ready();
        let before = world.sides[1].bytes(0, 1 << 16).to_vec();
        world.sides[0].fill(0, 4096, 1);
        let mut sges = sge(&world, 0, 0, 4096);
        let mut write = work(&world, SendOpcode::Write, 5, 0, &[]);
        match what {
            "another key" => write.remote_stag ^= 1,
            "out of bounds" => write.remote_to = world.sides[1].to(world::BYTES - 4095),
            "a region that may be read only" => {
                let region = world.sides[1].region(Access::REMOTE_READ, 1);
                write.remote_stag = world.sides[1].rnic.register(&region).unwrap();
            }
            "a region that was removed" => {
                let stag = world.sides[1].stag;
                let ticket = world.sides[1].rnic.deregister(stag).unwrap();
                assert!(world.outcome(1, ticket));
            }
            _ => sges[0].stag ^= 1,
        }
        write.sges = &sges;
        post(&mut world, &write);
        assert_eq!(world.sent(0), (5, status), "{what}");
        // What is posted later is flushed.
        let later = SendWork { id: 6, ..write };
        post(&mut world, &later);
        assert_eq!(world.sent(0), (6, Status::Flushed));
        assert_eq!(world.sides[1].bytes(0, 1 << 16), before, "{what}");
        if status == Status::RemoteAccess {
            let qp = world.sides[1].qps[0];
            let mut event = None;
            world.wait(|world| {
                event = world.sides[1].rnic.next_event();
                event.is_some()
            });
            assert_eq!(event, Some(Event::AccessViolation(qp)));
        }
    }
}

#[test]
fn an_armed_cq_interrupts_once() {
    let mut world = World::ready();
    let cq = world.sides[1].receive_cq;
    world.sides[1].rnic.arm(cq, false);
    receive(&mut world, 1, 1, 0, 64);
    receive(&mut world, 1, 2, 64, 64);
    for id in 0..2 {
        let send = SendWork {
            opcode: SendOpcode::Send,
            flags: flag::SOLICITED,
            id,
            inline: Some(b"a message"),
            ..SendWork::default()
        };
        post(&mut world, &send);
        assert_eq!(world.sent(0), (id, Status::Success));
    }
    let end_ns = world.now_ns + MS;
    world.wait(|world| world.now_ns > end_ns);
    assert_eq!(world.sides[1].rnic.take_interrupts() & 4, 4);
    let found = world.sides[1].poll(cq);
    assert_eq!(found.iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [1, 2]);
    receive(&mut world, 1, 3, 0, 64);
    let send = SendWork { opcode: SendOpcode::Send, id: 9, inline: Some(b"x"), ..SendWork::default() };
    post(&mut world, &send);
    let _ = world.sent(0);
    assert_eq!(world.sides[1].rnic.take_interrupts() & 4, 0);
}

#[test]
fn pages_and_a_shared_queue_and_datagrams_serve() {
    let mut world = World::ready();
    // A region whose pages lie in another order than its bytes.
    let pages: Vec<u64> = (0..8).map(|page| world.sides[1].place.address + (7 - page) * 4096).collect();
    assert!(world.sides[1].place.address.is_multiple_of(64));
    let first = world.sides[1].place.address.next_multiple_of(4096);
    let pages: Vec<u64> = pages.iter().map(|page| page - world.sides[1].place.address + first).collect();
    let region = Region {
        pd: PD,
        access: Access::ALL,
        base: 0,
        length: 8 * 4096 - 100,
        key: 7,
        layout: Layout::Pages { shift: 12, offset: 100, pages: &pages },
    };
    let stag = world.sides[1].rnic.register(&region).unwrap();
    world.sides[0].fill(0, 30_000, 8);
    let sges = sge(&world, 0, 0, 30_000);
    let write = SendWork { remote_to: 0, remote_stag: stag, ..work(&world, SendOpcode::Write, 1, 0, &sges) };
    post(&mut world, &write);
    assert_eq!(world.sent(0), (1, Status::Success));
    let skew = (first - world.sides[1].place.address) as usize;
    for at in [0, 3995, 3996, 8000, 29_999] {
        let (page, within) = ((at + 100) / 4096, (at + 100) % 4096);
        let there = world.sides[1].bytes(skew + (7 - page) * 4096 + within, 1)[0];
        assert_eq!(there, world.sides[0].bytes(at, 1)[0], "byte {at}");
    }
    // Datagrams into a shared queue.
    let side = &mut world.sides[1];
    let srq = side.rnic.create_srq(PD, 16, 0).unwrap();
    let config = etherslot_initiator::rnic::QpConfig { srq: Some(srq), ..side.qp_config(Service::Ud) };
    let there = side.rnic.create_qp(&config).unwrap();
    let config = world.sides[0].qp_config(Service::Ud);
    let here = world.sides[0].rnic.create_qp(&config).unwrap();
    let attributes = Attributes { q_key: 0x77, ..Attributes::default() };
    for (at, qp) in [(0, here), (1, there)] {
        let ticket = world.sides[at].rnic.connect(qp, &attributes).unwrap();
        assert!(world.outcome(at, ticket));
    }
    for id in 0..3 {
        let sges = sge(&world, 1, 4096 * id, 1024);
        world.sides[1].rnic.post_srq(srq, &ReceiveWork { id: id as u64, sges: &sges }).unwrap();
    }
    let end_ns = world.now_ns + MS;
    world.wait(|world| world.now_ns > end_ns);
    for id in 0..3 {
        let datagram = SendWork {
            opcode: SendOpcode::Send,
            id,
            remote_to: u64::from(PEER.0) | u64::from(there.0) << 32,
            remote_stag: 0x77,
            inline: Some(b"datagram"),
            ..SendWork::default()
        };
        world.sides[0].rnic.post_send(here, &datagram).unwrap();
    }
    let cq = world.sides[1].receive_cq;
    for (at, cqe) in world.completions(1, cq, 3).iter().enumerate() {
        assert_eq!((cqe.id, cqe.status, cqe.bytes), (at as u64, Status::Success, 48));
        assert_eq!(cqe.source, Some((PEER, here)));
        assert_eq!(world.sides[1].bytes(4096 * at + 40, 8), b"datagram");
    }
}

#[test]
fn a_qp_that_is_removed_gives_its_number_back_and_another_takes_its_place() {
    let mut world = World::connected(2, &Impairment::default());
    let mut seen: Vec<Qpn> = Vec::new();
    for _ in 0..20 {
        exercise_once(&mut world);
        for at in 0..2 {
            let qp = world.sides[at].qps[0];
            let ticket = world.sides[at].rnic.destroy_qp(qp).unwrap();
            assert!(world.outcome(at, ticket));
            let config = world.sides[at].qp_config(Service::Rc);
            let number = world.sides[at].rnic.create_qp(&config).unwrap();
            assert!(!seen.contains(&number) || at == 1);
            seen.push(number);
            world.sides[at].qps[0] = number;
        }
        let connected: Vec<Qpn> = world.sides.iter().map(|side| side.qps[0]).collect();
        for at in 0..2 {
            let attributes = Attributes { peer: PEER, remote_qp: connected[1 - at], ..Attributes::default() };
            let ticket = world.sides[at].rnic.connect(connected[at], &attributes).unwrap();
            assert!(world.outcome(at, ticket));
        }
    }
    let qp = world.sides[0].qps[0];
    let refused = world.sides[0].rnic.modify_qp(qp, State::Init, &Attributes::default()).unwrap();
    assert!(!world.outcome(0, refused), "a QP in RTS does not go to INIT");
}

#[test]
fn the_peer_of_a_qp_that_is_set_to_error_ends_with_it_unless_that_is_quiet() {
    for (is_quiet, status) in [(false, Status::Flushed), (true, Status::RetriesExceeded)] {
        let mut world = World::ready();
        for at in 0..2 {
            let qp = world.sides[at].qps[0];
            let ticket = world.sides[at].rnic.destroy_qp(qp).unwrap();
            assert!(world.outcome(at, ticket));
            let config = world.sides[at].qp_config(Service::Rc);
            world.sides[at].qps[0] = world.sides[at].rnic.create_qp(&config).unwrap();
        }
        let numbers: Vec<Qpn> = world.sides.iter().map(|side| side.qps[0]).collect();
        let attributes = |at: usize| Attributes {
            peer: PEER,
            remote_qp: numbers[1 - at],
            is_quiet,
            ..Attributes::default()
        };
        for (at, &qp) in numbers.iter().enumerate() {
            let ticket = world.sides[at].rnic.connect(qp, &attributes(at)).unwrap();
            assert!(world.outcome(at, ticket));
        }
        exercise_once(&mut world);
        let ticket = world.sides[1].rnic.modify_qp(numbers[1], State::Error, &attributes(1)).unwrap();
        assert!(world.outcome(1, ticket));
        let until_ns = world.now_ns + 50 * MS;
        world.wait(|world| world.now_ns >= until_ns);
        let sges = sge(&world, 0, 0, 100);
        let write = work(&world, SendOpcode::Write, 2, 0, &sges);
        post(&mut world, &write);
        assert_eq!(world.sent(0), (2, status), "quiet: {is_quiet}");
    }
}

fn exercise_once(world: &mut World) {
    world.sides[0].fill(0, 100, 3);
    let sges = sge(world, 0, 0, 100);
    let write = work(world, SendOpcode::Write, 1, 0, &sges);
    post(world, &write);
    assert_eq!(world.sent(0), (1, Status::Success));
}

#[test]
fn when_the_peers_box_dies_requests_fail_and_a_new_life_serves() {
    let mut world = World::ready();
    exercise_once(&mut world);
    world.kill_box(1);
    let sges = sge(&world, 0, 0, 5000);
    let write = work(&world, SendOpcode::Write, 2, 0, &sges);
    post(&mut world, &write);
    assert_eq!(world.sent(0), (2, Status::RetriesExceeded));
    let lives = world.sides[1].rnic.lives();
    world.revive_box(1);
    world.wait(|world| world.sides[1].rnic.lives() > lives && world.sides[1].rnic.is_ready());
    // All of it is made anew on that side, and the QP of this one.
    let qp = world.sides[0].qps[0];
    let ticket = world.sides[0].rnic.destroy_qp(qp).unwrap();
    assert!(world.outcome(0, ticket));
    let config = world.sides[0].qp_config(Service::Rc);
    world.sides[0].qps[0] = world.sides[0].rnic.create_qp(&config).unwrap();
    world.sides[1].set_up(1);
    world.connect();
    exercise_once(&mut world);
}

#[test]
fn a_peer_that_was_lost_is_looked_for_anew_when_a_qp_names_it() {
    let mut world = World::ready();
    let remote_qp = world.sides[1].qps[0];
    world.kill_box(1);
    let sges = sge(&world, 0, 0, 5000);
    let write = work(&world, SendOpcode::Write, 2, 0, &sges);
    post(&mut world, &write);
    assert_eq!(world.sent(0), (2, Status::RetriesExceeded));
    // Long enough for attempts in vain.
    let until_ns = world.now_ns + 2000 * MS;
    world.wait(|world| world.now_ns >= until_ns);
    let qp = world.sides[0].qps[0];
    let ticket = world.sides[0].rnic.destroy_qp(qp).unwrap();
    assert!(world.outcome(0, ticket));
    let config = world.sides[0].qp_config(Service::Rc);
    let qp = world.sides[0].rnic.create_qp(&config).unwrap();
    world.sides[0].qps[0] = qp;
    let attributes =
        |remote_qp| Attributes { peer: PEER, remote_qp, ord: 4, ird: 4, ..Attributes::default() };
    let ticket = world.sides[0].rnic.connect(qp, &attributes(remote_qp)).unwrap();
    assert!(world.outcome(0, ticket));
    world.revive_box(1);
    world.wait(|world| world.sides[1].rnic.is_ready());
    world.sides[1].set_up(1);
    assert_eq!(world.sides[1].qps[0], remote_qp, "numbers begin anew with the life");
    let ticket = world.sides[1].rnic.connect(remote_qp, &attributes(qp)).unwrap();
    assert!(world.outcome(1, ticket));
    exercise_once(&mut world);
}
