//! Work requests, from the doorbell to the CQE.

use etherslot_rdma::{Flag, SendOpcode, SendWork, Sge, flag};

use crate::pair::{ALL, FREE, World, access};

const SIGNALED: u8 = flag::SIGNALED;

fn sge(to: u64, length: usize) -> [Sge; 1] {
    [Sge { to, stag: ALL, length: length as u32 }]
}

#[test]
fn a_write_of_many_segments_arrives_whole_and_completes_behind_an_interrupt() {
    let mut world = World::ready();
    let bytes = 100_003;
    world.hosts[0].fill(FREE, bytes, 1);
    world.hosts[0].consume(2, 0, 1 << 16);
    let work = SendWork {
        opcode: SendOpcode::Write,
        flags: SIGNALED,
        id: 77,
        remote_to: FREE + 5,
        remote_stag: ALL,
        sges: &sge(FREE, bytes),
        ..SendWork::default()
    };
    world.hosts[0].send(2, &work);
    world.settle();
    let sent = world.hosts[0].memory(FREE, bytes).to_vec();
    assert_eq!(world.hosts[1].memory(FREE + 5, bytes), sent);
    assert_eq!(world.hosts[1].memory(FREE, 5), [0; 5]);
    assert_eq!(world.hosts[0].completions(0), [(77, 0)]);
    // The CQE is in front of the interrupt that tells of it.
    use crate::bus::Traced;
    let cqe = Traced::Write { address: crate::pair::Host::cq_at(0), bytes: 16 };
    let trace = &world.hosts[0].bus.trace;
    let written = trace.iter().position(|&traced| traced == cqe).expect("the CQE");
    let told = trace.iter().position(|&traced| traced == Traced::Interrupt(1)).expect("the interrupt");
    assert!(written < told);
    assert_eq!(world.hosts[0].bus.sent, [1]);
}

#[test]
fn a_work_request_handed_over_in_part_fails_and_nothing_behind_it_is_read() {
    let mut world = World::ready();
    let host = &mut world.hosts[0];
    let sges = [Sge { to: FREE, stag: ALL, length: 8 }; 3];
    let work = SendWork {
        flags: SIGNALED,
        id: 5,
        remote_to: FREE,
        remote_stag: ALL,
        sges: &sges,
        ..SendWork::default()
    };
    let mut wqe = [0; SendWork::MAX_BYTES];
    let bytes = SendWork { opcode: SendOpcode::Write, ..work }.emit(&mut wqe).expect("two blocks");
    assert_eq!(bytes, 128);
    host.memory(crate::pair::Host::sq_at(2), bytes).copy_from_slice(&wqe[..bytes]);
    host.write32(2, 2 * 4096, 1);
    world.settle();
    assert_eq!(world.hosts[0].completions(0), [(5, 2)]);
    assert_eq!(world.hosts[0].state(2), 6);
    world.hosts[0].write32(2, 2 * 4096, 2);
    world.settle();
    assert_eq!(world.hosts[0].completions(0), []);
}

#[test]
fn sends_reads_and_atomics_do_what_they_say() {
    let mut world = World::ready();
    for (at, bytes) in [0, 1, 63, 64, 1396, 4096, 50_000].into_iter().enumerate() {
        let (from, to) = (FREE + at as u64 * 0x2_0000, FREE + 0x10_0000 + at as u64 * 0x2_0003);
        world.hosts[0].fill(from, bytes, at as u8);
        world.hosts[1].receive(2, 100 + at as u64, to, 60_000);
        let work = SendWork {
            opcode: SendOpcode::SendImmediate,
            flags: SIGNALED,
            id: at as u64,
            immediate: 0xABCD_0000 + at as u32,
            sges: &sge(from, bytes),
            ..SendWork::default()
        };
        world.hosts[0].send(2, &work);
        world.run(10);
        let sent = world.hosts[0].memory(from, bytes).to_vec();
        assert_eq!(world.hosts[1].memory(to, bytes), sent);
        let cqe = world.hosts[1].poll(1).expect("it was received");
        assert_eq!((cqe.id, cqe.status, cqe.opcode, cqe.bits), (100 + at as u64, 0, 0x80, 1));
        assert_eq!((cqe.bytes, cqe.word), (bytes as u32, 0xABCD_0000 + at as u32));
        // And back by a Read, into another place.
        let back = FREE + 0x40_0000 + at as u64 * 0x2_0000;
        let read = SendWork {
            opcode: SendOpcode::Read,
            flags: SIGNALED,
            id: 50 + at as u64,
            remote_to: to,
            remote_stag: ALL,
            sges: &sge(back, bytes),
            ..SendWork::default()
        };
        world.hosts[0].send(2, &read);
        world.run(10);
        assert_eq!(world.hosts[0].memory(back, bytes), sent);
        assert_eq!(world.hosts[0].completions(0), [(at as u64, 0), (50 + at as u64, 0)]);
        world.hosts[0].consume(2, 0, 0);
        world.hosts[1].consume(2, 1, 0);
    }
}

#[test]
fn atomics_of_many_qps_on_one_word_are_each_done_once() {
    let qps: Vec<(u32, u32, u32)> = (2..8).map(|qp| (qp, 0, 0)).collect();
    let mut world = World::new(&qps);
    let counter = FREE + 8;
    world.hosts[1].shuffle = true;
    for round in 0..8 {
        for &(qp, ..) in &qps {
            let result = FREE + 0x1000 + u64::from(qp) * 8;
            let work = SendWork {
                opcode: SendOpcode::FetchAdd,
                flags: SIGNALED,
                id: round,
                remote_to: counter,
                remote_stag: ALL,
                operands: [1 << (8 * (qp - 2)), 0],
                sges: &sge(result, 8),
                ..SendWork::default()
            };
            world.hosts[0].send(qp, &work);
        }
    }
    world.run(100);
    assert_eq!(world.hosts[1].memory(counter, 8), [8, 8, 8, 8, 8, 8, 0, 0]);
    let done = world.hosts[0].completions(0);
    assert_eq!(done.len(), 48);
    assert!(done.iter().all(|&(_, status)| status == 0));
}

#[test]
fn a_read_behind_a_write_to_the_same_place_sees_it() {
    let mut world = World::ready();
    // The device's writes wait at the bus while its reads would not.
    world.hosts[0].fill(FREE, 64, 9);
    for round in 0..20_u64 {
        let inline = [round as u8 + 1; 16];
        let write = SendWork {
            opcode: SendOpcode::Write,
            id: round,
            remote_to: FREE,
            remote_stag: ALL,
            inline: Some(&inline),
            ..SendWork::default()
        };
        let read = SendWork {
            opcode: SendOpcode::Read,
            flags: SIGNALED,
            id: round,
            remote_to: FREE,
            remote_stag: ALL,
            sges: &sge(FREE + 0x1000, 16),
            ..SendWork::default()
        };
        world.hosts[1].bus.write_room = 0;
        world.hosts[0].put_send(2, &write);
        world.hosts[0].send(2, &read);
        world.settle();
        world.hosts[1].bus.write_room = usize::MAX;
        world.run(1);
        assert_eq!(world.hosts[0].completions(0), [(round, 0)]);
        assert_eq!(world.hosts[0].memory(FREE + 0x1000, 16), [round as u8 + 1; 16]);
        world.hosts[0].consume(2, 0, 0);
    }
}

#[test]
fn a_receive_that_was_posted_before_the_message_is_found_although_it_is_fetched_yet() {
    let mut world = World::ready();
    // The first message makes the connection, so that no Synchronise is in the way.
    world.hosts[1].receive(2, 1, FREE, 64);
    let work = |id| SendWork {
        opcode: SendOpcode::Send,
        flags: SIGNALED,
        id,
        inline: Some(b"hello"),
        ..SendWork::default()
    };
    world.hosts[0].send(2, &work(1));
    world.run(10);
    world.hosts[1].bus.hold_reads = true;
    world.hosts[1].receive(2, 2, FREE + 64, 64);
    world.hosts[0].send(2, &work(2));
    world.settle();
    world.hosts[1].bus.hold_reads = false;
    world.settle();
    assert_eq!(world.hosts[1].counter("not_ready_sent"), 0);
    assert_eq!(world.hosts[1].completions(1), [(1, 0), (2, 0)]);
    assert_eq!(world.hosts[1].memory(FREE + 64, 5), b"hello");
}

#[test]
fn a_receiver_that_is_not_ready_is_tried_again() {
    let mut world = World::ready();
    let work = SendWork {
        opcode: SendOpcode::Send,
        flags: SIGNALED,
        id: 5,
        sges: &sge(FREE, 3000),
        ..SendWork::default()
    };
    world.hosts[0].fill(FREE, 3000, 3);
    world.hosts[0].send(2, &work);
    world.settle();
    assert!(world.hosts[1].counter("not_ready_sent") > 0);
    world.hosts[1].receive(2, 6, FREE + 0x1000, 4000);
    world.run(100);
    let sent = world.hosts[0].memory(FREE, 3000).to_vec();
    assert_eq!(world.hosts[1].memory(FREE + 0x1000, 3000), sent);
    assert_eq!(world.hosts[0].completions(0), [(5, 0)]);
}

#[test]
fn what_was_fetched_ahead_is_not_sent_for_a_later_request() {
    // Not ready breaks a message off in its midst; the next one has other data in the same buffer.
    let mut world = World::ready();
    for round in 0..10_u64 {
        let bytes = 9000;
        world.hosts[0].fill(FREE, bytes, round as u8);
        world.lanes[0].borrow_mut().longest = 700 + 100 * round as usize;
        let work = SendWork {
            opcode: SendOpcode::Send,
            flags: SIGNALED,
            id: round,
            sges: &sge(FREE, bytes),
            ..SendWork::default()
        };
        world.hosts[0].send(2, &work);
        world.settle();
        world.lanes[0].borrow_mut().longest = 500;
        world.hosts[1].receive(2, round, FREE, bytes as u32);
        world.run(100);
        let sent = world.hosts[0].memory(FREE, bytes).to_vec();
        assert_eq!(world.hosts[1].memory(FREE, bytes), sent, "round {round}");
        assert_eq!(world.hosts[0].completions(0), [(round, 0)]);
        world.hosts[0].consume(2, 0, 0);
        world.hosts[1].completions(1);
        world.hosts[1].consume(2, 1, 0);
    }
}

#[test]
fn the_same_buffer_may_stand_in_a_message_twice() {
    let mut world = World::ready();
    world.hosts[0].fill(FREE, 6000, 4);
    let piece = |to, length| Sge { to, stag: ALL, length };
    let sges = [piece(FREE, 5000), piece(FREE + 1000, 3000), piece(FREE, 0), piece(FREE, 6000)];
    let work = SendWork {
        opcode: SendOpcode::Write,
        flags: SIGNALED,
        id: 1,
        remote_to: FREE,
        remote_stag: ALL,
        sges: &sges,
        ..SendWork::default()
    };
    world.hosts[0].send(2, &work);
    world.run(10);
    let mut expected = world.hosts[0].memory(FREE, 5000).to_vec();
    expected.extend_from_slice(world.hosts[0].memory(FREE + 1000, 3000));
    expected.extend_from_slice(world.hosts[0].memory(FREE, 6000));
    assert_eq!(world.hosts[1].memory(FREE, 14_000), expected);
    assert_eq!(world.hosts[0].completions(0), [(1, 0)]);
}

#[test]
fn push_and_pull_set_their_flags_behind_the_data() {
    let mut world = World::ready();
    let flag_at = |to, value| Some(Flag { stag: ALL, to, value });
    world.hosts[0].fill(FREE, 2000, 1);
    let push = SendWork {
        opcode: SendOpcode::Write,
        id: 1,
        remote_to: FREE + 0x1000,
        remote_stag: ALL,
        sges: &sge(FREE, 2000),
        local_flag: flag_at(FREE + 0x8000, 0x11),
        remote_flag: flag_at(FREE + 0x8008, 0x22),
        ..SendWork::default()
    };
    let pull = SendWork {
        opcode: SendOpcode::Read,
        id: 2,
        remote_to: FREE + 0x1000,
        remote_stag: ALL,
        sges: &sge(FREE + 0x2000, 2000),
        local_flag: flag_at(FREE + 0x8010, 0x33),
        remote_flag: flag_at(FREE + 0x8018, 0x44),
        ..SendWork::default()
    };
    world.hosts[0].put_send(2, &push);
    world.hosts[0].send(2, &pull);
    world.run(10);
    assert_eq!(world.hosts[0].memory(FREE + 0x8000, 32)[..8], 0x11_u64.to_le_bytes());
    assert_eq!(world.hosts[1].memory(FREE + 0x8000, 32)[8..16], 0x22_u64.to_le_bytes());
    assert_eq!(world.hosts[0].memory(FREE + 0x8000, 32)[16..24], 0x33_u64.to_le_bytes());
    assert_eq!(world.hosts[1].memory(FREE + 0x8000, 32)[24..], 0x44_u64.to_le_bytes());
    let sent = world.hosts[0].memory(FREE, 2000).to_vec();
    assert_eq!(world.hosts[0].memory(FREE + 0x2000, 2000), sent);
    assert_eq!(world.hosts[0].completions(0), [], "neither was signaled");
}

#[test]
fn what_the_peer_may_not_is_refused_and_memory_is_as_it_was() {
    let read_only = 9 << 8 | 1;
    for (to, stag, status) in [
        (FREE, 8 << 8, 10),
        (FREE, ALL ^ 1, 10),
        (crate::bus::MEMORY_BYTES as u64 - 4, ALL, 10),
        (u64::MAX - 3, ALL, 10),
        (FREE, read_only, 10),
    ] {
        let mut world = World::ready();
        assert!(world.hosts[1].region(read_only, access::REMOTE_READ, FREE, 64));
        let before = world.hosts[1].memory(FREE, 4096).to_vec();
        let work = SendWork {
            opcode: SendOpcode::Write,
            id: 1,
            remote_to: to,
            remote_stag: stag,
            inline: Some(&[0xFF; 16]),
            ..SendWork::default()
        };
        world.hosts[0].send(2, &work);
        world.run(10);
        assert_eq!(world.hosts[0].completions(0), [(1, status)], "{to:#x} {stag:#x}");
        assert_eq!(world.hosts[1].memory(FREE, 4096), before);
        assert_eq!((world.hosts[0].state(2), world.hosts[1].state(2)), (6, 6));
        let event = world.hosts[1].read64(0, 0x78);
        assert_eq!(event, 2 << 16 | 6, "an access violation of QP 2");
    }
}

#[test]
fn memory_that_cannot_be_read_fails_the_request_and_not_the_rnic() {
    let mut world = World::new(&[(2, 0, 0), (3, 0, 0)]);
    let nowhere = 9 << 8 | 1;
    assert!(world.hosts[0].region(nowhere, access::LOCAL_WRITE, 1 << 40, 4096));
    let work = |id, stag, to| SendWork {
        opcode: SendOpcode::Write,
        flags: SIGNALED,
        id,
        remote_to: FREE,
        remote_stag: ALL,
        sges: Box::leak(Box::new([Sge { to, stag, length: 64 }])),
        ..SendWork::default()
    };
    world.hosts[0].send(2, &work(1, nowhere, 1 << 40));
    world.hosts[0].send(3, &work(2, ALL, FREE));
    world.run(10);
    let mut done = world.hosts[0].completions(0);
    done.sort_unstable();
    assert_eq!(done, [(1, 4), (2, 0)]);
}

#[test]
fn the_loss_of_the_session_ends_what_was_under_way() {
    use etherslot_devices::rnic::Link;
    let mut world = World::ready();
    world.hosts[0].fill(FREE, 5000, 3);
    let work = SendWork { opcode: SendOpcode::Send, id: 1, sges: &sge(FREE, 5000), ..SendWork::default() };
    world.hosts[0].send(2, &work);
    world.settle();
    world.lanes[0].borrow_mut().link = Some(Link::Down);
    world.lanes[1].borrow_mut().link = Some(Link::Down);
    world.run(10);
    assert_eq!(world.hosts[0].completions(0), [(1, 12)]);
    assert_eq!(world.hosts[1].read64(0, 0x78), 2 << 16 | 7, "the peer of QP 2 is lost");
    // And of a datagram nothing is known.
    for lane in &world.lanes {
        lane.borrow_mut().link = Some(Link::Up(2));
    }
    world.run(1);
    for host in &mut world.hosts {
        assert!(host.command(2, 0));
        host.produced = [[0; 2]; 8];
        for state in 1..=3 {
            assert!(host.command(2, state));
        }
    }
    world.hosts[1].receive(2, 8, FREE, 5000);
    world.hosts[0].send(2, &SendWork { flags: SIGNALED, id: 2, ..work });
    world.run(10);
    assert_eq!(world.hosts[0].completions(0), [(2, 0)]);
}
