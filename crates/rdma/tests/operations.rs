//! Every operation does what it says, between two engines.

mod pair;

use etherslot_rdma::{
    Access, Cqe, Done, Event, Flag, Layout, Notice, PeerId, Region, SendOpcode, SendWork, Service, Sge,
    State, Status, flag,
};
use pair::{PD, PEER, Pair, work};

const HERE: u64 = 0x1000;
const THERE: u64 = 0x40000;

fn bytes(pair: &Pair, at: usize, from: u64, length: usize) -> Vec<u8> {
    pair.nodes[at].ram.bytes[from as usize..from as usize + length].to_vec()
}

fn only(cqes: &[Cqe]) -> Cqe {
    assert_eq!(cqes.len(), 1, "{cqes:?}");
    cqes[0]
}

#[test]
fn writes_of_all_lengths_arrive_byte_for_byte() {
    for length in [0, 1, 7, 8, 63, 64, 1376, 1377, 1380, 1381, 4096, 100_001] {
        let mut pair = Pair::connected(Service::Rc);
        let [sge, to] = [pair.nodes[0].sge(HERE, length), pair.nodes[1].sge(THERE, 0)];
        let before = bytes(&pair, 1, THERE - 8, length as usize + 16);
        pair.nodes[0].post(&SendWork {
            remote_to: THERE,
            remote_stag: to.stag,
            sges: &[sge],
            ..work(SendOpcode::Write, 7)
        });
        pair.settle();
        let mut expected = before;
        expected[8..8 + length as usize].copy_from_slice(&bytes(&pair, 0, HERE, length as usize));
        assert_eq!(bytes(&pair, 1, THERE - 8, length as usize + 16), expected, "{length}");
        let cqe = only(&pair.nodes[0].sent());
        assert_eq!((cqe.id, cqe.status, cqe.done), (7, Status::Success, Done::Sent(SendOpcode::Write)));
        assert!(pair.nodes[1].received().is_empty() && pair.nodes[1].sent().is_empty());
    }
}

#[test]
fn a_send_fills_the_pieces_of_its_buffer_in_order() {
    let mut pair = Pair::connected(Service::Rc);
    let from: Vec<Sge> =
        (0..30).map(|at| pair.nodes[0].sge(HERE + at * 700, (at * 37 % 411) as u32)).collect();
    let into: Vec<Sge> = (0..30).map(|at| pair.nodes[1].sge(THERE + at * 900, 601 - at as u32)).collect();
    pair.nodes[1].post_receive(9, &into);
    pair.nodes[0].post(&SendWork { sges: &from, ..work(SendOpcode::Send, 8) });
    pair.settle();
    let gathered: Vec<u8> =
        from.iter().flat_map(|sge| bytes(&pair, 0, sge.to, sge.length as usize)).collect();
    let scattered: Vec<u8> = into
        .iter()
        .flat_map(|sge| bytes(&pair, 1, sge.to, sge.length as usize))
        .take(gathered.len())
        .collect();
    assert!(gathered.len() > 4000);
    assert_eq!(scattered, gathered);
    let cqe = only(&pair.nodes[1].received());
    assert_eq!((cqe.id, cqe.bytes as usize, cqe.done), (9, gathered.len(), Done::Received));
    assert_eq!(only(&pair.nodes[0].sent()).id, 8);
}

#[test]
fn inline_data_may_be_changed_once_posted() {
    let data: Vec<u8> = (0..480_u32).map(|at| at as u8 ^ 0x35).collect();
    for length in [0, 1, 32, 33, 64, 96, 97, 480] {
        let mut pair = Pair::connected(Service::Rc);
        let sge = pair.nodes[1].sge(THERE, 480);
        pair.nodes[1].post_receive(1, &[sge]);
        pair.nodes[0].post(&SendWork { inline: Some(&data[..length]), ..work(SendOpcode::Send, 2) });
        pair.settle();
        assert_eq!(bytes(&pair, 1, THERE, length), data[..length]);
        assert_eq!(only(&pair.nodes[1].received()).bytes as usize, length);
        assert_eq!(only(&pair.nodes[0].sent()).status, Status::Success);
    }
    let too_long = SendWork { inline: Some(&[0; 481]), ..work(SendOpcode::Send, 2) };
    assert_eq!(too_long.emit(&mut [0; 1024]), None);
}

#[test]
fn immediate_data_come_with_the_bytes_of_their_message() {
    let mut pair = Pair::connected(Service::Rc);
    let (sge, to) = (pair.nodes[0].sge(HERE, 3000), pair.nodes[1].sge(THERE, 64));
    for id in 0..2 {
        pair.nodes[1].post_receive(id, &[to]);
    }
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: to.stag,
        immediate: 0xCAFE_F00D,
        sges: &[sge],
        ..work(SendOpcode::WriteImmediate, 1)
    });
    pair.nodes[0].post(&SendWork {
        immediate: 0x0102_0304,
        inline: Some(b"hello"),
        ..work(SendOpcode::SendImmediate, 2)
    });
    pair.settle();
    let received = pair.nodes[1].received();
    let seen: Vec<_> = received.iter().map(|cqe| (cqe.id, cqe.done, cqe.bytes, cqe.immediate)).collect();
    let expected =
        [(0, Done::ReceivedWrite, 3000, Some(0xCAFE_F00D)), (1, Done::Received, 5, Some(0x0102_0304))];
    assert_eq!(seen, expected);
    assert_eq!(bytes(&pair, 1, THERE + 5, 2995), bytes(&pair, 0, HERE + 5, 2995));
    assert_eq!(pair.nodes[0].sent().len(), 2);
}

#[test]
fn reads_fill_several_pieces_and_keep_to_the_depth_that_was_agreed() {
    let mut pair = Pair::connected(Service::Rc);
    let from = pair.nodes[1].sge(THERE, 0);
    for read in 0..12_u64 {
        let at = HERE + read * 0x2000;
        let sges =
            [pair.nodes[0].sge(at, 100), pair.nodes[0].sge(at + 128, 5000), pair.nodes[0].sge(at + 6000, 7)];
        pair.nodes[0].post(&SendWork {
            remote_to: THERE + read * 0x3000,
            remote_stag: from.stag,
            sges: &sges,
            ..work(SendOpcode::Read, read)
        });
    }
    pair.transmit(0);
    // Synchronise, and as many Reads as ORD allows.
    assert_eq!(pair.nodes[0].cable.sent.len(), 1 + 4);
    pair.settle();
    for read in 0..12_u64 {
        let at = HERE + read * 0x2000;
        let there = bytes(&pair, 1, THERE + read * 0x3000, 5107);
        let here = [bytes(&pair, 0, at, 100), bytes(&pair, 0, at + 128, 5000), bytes(&pair, 0, at + 6000, 7)];
        assert_eq!(here.concat(), there, "{read}");
    }
    let cqes = pair.nodes[0].sent();
    let seen: Vec<_> = cqes.iter().map(|cqe| (cqe.id, cqe.bytes, cqe.status)).collect();
    assert_eq!(seen, (0..12).map(|read| (read, 5107, Status::Success)).collect::<Vec<_>>());
}

#[test]
fn atomics_are_done_once_and_give_back_what_was_there() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].sge(THERE, 8);
    pair.nodes[1].ram.bytes[THERE as usize..][..8].copy_from_slice(&40_u64.to_le_bytes());
    let here: Vec<Sge> = (0..3).map(|at| pair.nodes[0].sge(HERE + at * 8, 8)).collect();
    let atomic = |opcode, id: u64, operands| SendWork {
        remote_to: THERE,
        remote_stag: there.stag,
        operands,
        ..work(opcode, id)
    };
    let rows = [
        (SendOpcode::FetchAdd, [2, 0], 40, 42),
        (SendOpcode::CompareSwap, [7, 42], 42, 7),
        (SendOpcode::CompareSwap, [9, 42], 7, 7),
    ];
    for (at, (opcode, operands, ..)) in rows.into_iter().enumerate() {
        pair.nodes[0].post(&SendWork { sges: &here[at..=at], ..atomic(opcode, at as u64, operands) });
    }
    pair.settle();
    for (at, (.., before, _)) in rows.into_iter().enumerate() {
        assert_eq!(bytes(&pair, 0, HERE + at as u64 * 8, 8), u64::to_le_bytes(before));
    }
    assert_eq!(bytes(&pair, 1, THERE, 8), 7_u64.to_le_bytes());
    assert_eq!(pair.nodes[1].ram.atomics, 3);
    assert_eq!(pair.nodes[0].sent().len(), 3);
}

#[test]
fn an_atomic_behind_a_read_waits_for_its_turn() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let (sink, result) = (pair.nodes[0].sge(HERE, 4096), pair.nodes[0].sge(HERE + 8192, 8));
    let before = bytes(&pair, 1, THERE, 4096);
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: there,
        sges: &[sink],
        ..work(SendOpcode::Read, 1)
    });
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: there,
        operands: [1, 0],
        sges: &[result],
        ..work(SendOpcode::FetchAdd, 2)
    });
    pair.settle();
    assert_eq!(bytes(&pair, 0, HERE, 4096), before);
    assert_eq!(bytes(&pair, 0, HERE + 8192, 8), before[..8]);
    assert_ne!(bytes(&pair, 1, THERE, 8), before[..8]);
}

#[test]
fn push_and_pull_store_flags_on_either_side_behind_the_data() {
    let mut pair = Pair::connected(Service::Rc);
    let (here, there) = (pair.nodes[0].all, pair.nodes[1].all);
    let sge = pair.nodes[0].sge(HERE, 3000);
    let local = Flag { stag: here, to: 0x8000, value: 0x1111_2222_3333_4444 };
    let remote = Flag { stag: there, to: 0x9000, value: 0x5555_6666_7777_8888 };
    for opcode in [SendOpcode::Write, SendOpcode::Read] {
        for node in 0..2 {
            pair.nodes[node].ram.bytes[0x8000..0x9008].fill(0);
        }
        pair.nodes[0].post(&SendWork {
            remote_to: THERE,
            remote_stag: there,
            sges: &[sge],
            local_flag: Some(local),
            remote_flag: Some(remote),
            flags: 0,
            ..work(opcode, 1)
        });
        pair.transmit(0);
        assert_eq!(bytes(&pair, 0, 0x8000, 8), [0; 8], "the local flag is early");
        pair.settle();
        assert_eq!(bytes(&pair, 0, 0x8000, 8), local.value.to_le_bytes());
        assert_eq!(bytes(&pair, 1, 0x9000, 8), remote.value.to_le_bytes());
        assert_eq!(bytes(&pair, 0, HERE, 3000), bytes(&pair, 1, THERE, 3000));
    }
    assert!(pair.nodes[0].sent().is_empty(), "nothing was signaled");
}

#[test]
fn a_window_serves_until_the_peer_invalidates_it() {
    let mut pair = Pair::connected(Service::Rc);
    let region = pair.nodes[1].all;
    let window = pair.nodes[1].engine.allocate_window(PD).unwrap() | 0x77;
    for zero_based in [false, true] {
        pair.nodes[1].post(&SendWork {
            remote_to: THERE,
            remote_stag: window,
            immediate: 2 | u32::from(zero_based) << 31,
            operands: [u64::from(region), 256],
            ..work(SendOpcode::Bind, 1)
        });
        pair.settle();
        assert_eq!(only(&pair.nodes[1].sent()).status, Status::Success);
        assert!(pair.nodes[1].engine.deregister(region).is_err(), "a region with a window stays");
        let to = if zero_based { 8 } else { THERE + 8 };
        pair.nodes[1].post_receive(5, &[]);
        pair.nodes[0].post(&SendWork {
            remote_to: to,
            remote_stag: window,
            inline: Some(&[zero_based as u8 + 1; 8]),
            ..work(SendOpcode::Write, 2)
        });
        pair.nodes[0].post(&SendWork {
            immediate: window,
            inline: Some(&[]),
            ..work(SendOpcode::SendInvalidate, 3)
        });
        pair.settle();
        assert_eq!(bytes(&pair, 1, THERE + 8, 8), [zero_based as u8 + 1; 8]);
        let cqe = only(&pair.nodes[1].received());
        assert_eq!((cqe.id, cqe.invalidated), (5, Some(window)));
        assert_eq!(pair.nodes[0].sent().len(), 2);
    }
    // Invalid by now.
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: window,
        inline: Some(&[9; 8]),
        ..work(SendOpcode::Write, 4)
    });
    pair.settle();
    assert_eq!(only(&pair.nodes[0].sent()).status, Status::RemoteAccess);
    assert_ne!(bytes(&pair, 1, THERE, 8), [9; 8]);
}

#[test]
fn datagrams_say_whom_they_are_from_and_find_their_buffers_behind_a_grh() {
    let mut pair = Pair::connected(Service::Ud);
    let sge = pair.nodes[1].sge(THERE, 40 + 1024);
    for id in 0..3 {
        pair.nodes[1].post_receive(id, &[sge]);
    }
    let target = u64::from(PEER.0) | u64::from(pair.nodes[1].qp.0) << 32;
    pair.nodes[1].engine.set_grh(PEER, &[0x60; 40]).unwrap();
    assert!(pair.nodes[1].engine.set_grh(PeerId(0xFFFF), &[0; 40]).is_err());
    let from = pair.nodes[0].sge(HERE, 1024);
    let datagram =
        |q_key, id| SendWork { remote_to: target, remote_stag: q_key, ..work(SendOpcode::Send, id) };
    pair.nodes[0].post(&SendWork { sges: &[from], ..datagram(0x1111, 1) });
    pair.nodes[0].post(&SendWork { sges: &[from], ..datagram(0x2222, 2) });
    pair.nodes[0].post(&SendWork {
        inline: Some(b"x"),
        immediate: 77,
        opcode: SendOpcode::SendImmediate,
        ..datagram(0x1111, 3)
    });
    pair.settle();
    assert_eq!(pair.nodes[0].sent().len(), 3, "datagrams complete when they have left");
    let received = pair.nodes[1].received();
    let seen: Vec<_> = received.iter().map(|cqe| (cqe.id, cqe.bytes, cqe.source, cqe.immediate)).collect();
    let source = Some((PEER, pair.nodes[0].qp));
    assert_eq!(seen, [(0, 40 + 1024, source, None), (1, 41, source, Some(77))]);
    assert_eq!(bytes(&pair, 1, THERE + 41, 1023), bytes(&pair, 0, HERE + 1, 1023));
    assert_eq!(pair.nodes[1].engine.counters().dropped_q_key, 1);
    assert_eq!(bytes(&pair, 1, THERE, 40), [0x60; 40]);
}

#[test]
fn what_uc_cannot_place_is_dropped_and_the_next_message_is_taken() {
    let mut pair = Pair::connected(Service::Uc);
    let (sge, small) = (pair.nodes[0].sge(HERE, 5000), pair.nodes[1].sge(THERE, 10));
    // No buffer, one that is too small, then one that fits; and a Write that is not allowed between.
    pair.nodes[0].post(&SendWork { sges: &[sge], ..work(SendOpcode::Send, 1) });
    pair.settle();
    pair.nodes[1].post_receive(5, &[small]);
    pair.nodes[0].post(&SendWork { sges: &[sge], ..work(SendOpcode::Send, 2) });
    pair.nodes[0].post(&SendWork { remote_stag: 1, sges: &[sge], ..work(SendOpcode::Write, 3) });
    pair.nodes[0].post(&SendWork { inline: Some(b"fits"), ..work(SendOpcode::Send, 4) });
    pair.settle();
    assert_eq!(pair.nodes[0].sent().len(), 4);
    let cqe = only(&pair.nodes[1].received());
    assert_eq!((cqe.id, cqe.bytes, cqe.status), (5, 4, Status::Success));
    assert_eq!(bytes(&pair, 1, THERE, 4), b"fits");
    assert_eq!(pair.nodes[1].state(), State::Rts);
}

#[test]
fn an_on_the_fly_store_sends_its_header_with_the_value() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let mut wqe = [0; SendWork::MAX_BYTES];
    let header = SendWork {
        remote_to: THERE,
        remote_stag: there,
        inline: Some(&[0; 8]),
        ..work(SendOpcode::Write, 3)
    };
    let length = header.emit(&mut wqe).unwrap();
    let qp = pair.nodes[0].qp;
    let engine = &mut pair.nodes[0].engine;
    assert!(engine.store(qp, 2, 1).is_err(), "there is no header yet");
    engine.prepare(qp, 2, &wqe[..length]).unwrap();
    assert!(engine.prepare(qp, 16, &wqe[..length]).is_err());
    engine.store(qp, 2, 0x0102_0304_0506_0708).unwrap();
    pair.settle();
    assert_eq!(bytes(&pair, 1, THERE, 8), 0x0102_0304_0506_0708_u64.to_le_bytes());
    assert_eq!(pair.nodes[0].sent().len(), 1);
    assert_eq!(pair.nodes[0].engine.counters().on_the_fly_dropped, 1);
}

#[test]
fn a_shared_receive_queue_serves_its_qps_and_tells_when_it_runs_low() {
    let mut pair = Pair::new(Service::Rc);
    let node = &mut pair.nodes[1];
    let srq = node.engine.create_srq(PD, 16).unwrap();
    let init = etherslot_rdma::Init {
        srq: Some(srq),
        ..pair::Node::init(Service::Rc, node.send_cq, node.receive_cq)
    };
    node.qp = node.engine.create_qp(&init).unwrap();
    node.engine.set_srq_limit(srq, 2).unwrap();
    let sge = node.sge(THERE, 64);
    let mut wqe = [0; 64];
    for id in 0..3 {
        let length = etherslot_rdma::ReceiveWork { id, sges: &[sge] }.emit(&mut wqe).unwrap();
        node.engine.post_srq(srq, &wqe[..length]).unwrap();
    }
    assert!(node.engine.post_receive(node.qp, &wqe).is_err());
    for at in 0..2 {
        let attributes = pair.attributes(at);
        pair.nodes[at].connect(&attributes);
    }
    for id in 0..3 {
        pair.nodes[0].post(&SendWork { inline: Some(b"x"), ..work(SendOpcode::Send, id) });
    }
    pair.settle();
    let received = pair.nodes[1].received();
    assert_eq!(received.iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(pair.nodes[1].engine.next_event(), Some(Event::SrqLimit(srq)));
    assert!(pair.nodes[1].engine.destroy_srq(srq).is_err(), "a QP has it");
}

#[test]
fn a_notice_comes_once_for_each_arming_and_solicited_ones_for_what_solicits() {
    let mut pair = Pair::connected(Service::Rc);
    let cq = pair.nodes[1].receive_cq;
    let send = |pair: &mut Pair, flags| {
        pair.nodes[1].post_receive(1, &[]);
        pair.nodes[0].post(&SendWork { flags, inline: Some(&[]), ..work(SendOpcode::Send, 1) });
        pair.settle();
    };
    send(&mut pair, 0);
    assert_eq!(pair.nodes[1].engine.next_notice(), None, "nobody asked");
    pair.nodes[1].engine.arm(cq, false);
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)), "something was there already");
    pair.nodes[1].received();
    pair.nodes[1].engine.arm(cq, true);
    send(&mut pair, 0);
    assert_eq!(pair.nodes[1].engine.next_notice(), None, "it was not solicited");
    send(&mut pair, flag::SOLICITED);
    send(&mut pair, flag::SOLICITED);
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)));
    assert_eq!(pair.nodes[1].engine.next_notice(), None);
}

#[test]
fn what_came_unannounced_is_told_when_it_is_asked_for_and_what_was_told_is_not() {
    let mut pair = Pair::connected(Service::Rc);
    let (qp, cq) = (pair.nodes[1].qp, pair.nodes[1].receive_cq);
    let send = |pair: &mut Pair, flags| {
        pair.nodes[1].post_receive(1, &[]);
        pair.nodes[0].post(&SendWork { flags, inline: Some(&[]), ..work(SendOpcode::Send, 1) });
        pair.settle();
    };
    let is_told = |pair: &mut Pair, solicited_only| {
        pair.nodes[1].engine.arm_for_untold(cq, solicited_only);
        pair.nodes[1].engine.next_notice() == Some(Notice(cq))
    };
    assert!(!is_told(&mut pair, false), "there is nothing");
    send(&mut pair, 0);
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)));
    // As programs do that look after they have asked: no second notice of the same.
    assert!(!is_told(&mut pair, false));
    assert_eq!(pair.nodes[1].received().len(), 1);
    // One that comes while nobody asks, and the same one once more.
    send(&mut pair, 0);
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)));
    send(&mut pair, 0);
    assert!(is_told(&mut pair, false));
    assert!(!is_told(&mut pair, true));
    // What was taken is not told of.
    send(&mut pair, flag::SOLICITED);
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)));
    send(&mut pair, flag::SOLICITED);
    pair.nodes[1].received();
    assert!(!is_told(&mut pair, false));
    send(&mut pair, 0);
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)));
    // Of what is not solicited nobody is told who asks for that alone.
    send(&mut pair, 0);
    assert!(!is_told(&mut pair, true));
    send(&mut pair, flag::SOLICITED);
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)));
    send(&mut pair, flag::SOLICITED);
    send(&mut pair, 0);
    assert!(is_told(&mut pair, true));
    // Completions that go with their QP take nothing of this with them.
    send(&mut pair, flag::SOLICITED);
    pair.nodes[1].engine.modify_qp(qp, State::Reset, None).unwrap();
    assert!(!is_told(&mut pair, false));
    let attributes = pair.attributes(1);
    pair.nodes[1].connect(&attributes);
    pair.nodes[1].post_receive(2, &[]);
    pair.nodes[1].engine.modify_qp(qp, State::Error, None).unwrap();
    assert_eq!(pair.nodes[1].engine.next_notice(), Some(Notice(cq)));
}

#[test]
fn regions_in_pages_are_as_good_as_those_in_one_piece() {
    let mut pair = Pair::connected(Service::Rc);
    let pages: Vec<u64> = [5, 9, 10, 7, 30].iter().map(|page| page << 12).collect();
    let region = Region {
        pd: PD,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        base: 0x7F00_0000_0123,
        length: 4 * 4096 + 100,
        key: 1,
        layout: Layout::Pages { shift: 12, offset: 0x123, pages: &pages },
    };
    let stag = pair.nodes[1].engine.register(&region).unwrap();
    let there: Vec<u64> =
        (0..region.length).map(|at| pages[((at + 0x123) >> 12) as usize] + (at + 0x123) % 4096).collect();
    let sge = pair.nodes[0].sge(HERE, region.length as u32);
    for opcode in [SendOpcode::Write, SendOpcode::Read] {
        pair.nodes[0].post(&SendWork {
            remote_to: region.base,
            remote_stag: stag,
            sges: &[sge],
            ..work(opcode, 1)
        });
        pair.settle();
        let expected: Vec<u8> = there.iter().map(|&at| pair.nodes[1].ram.bytes[at as usize]).collect();
        assert_eq!(bytes(&pair, 0, HERE, region.length as usize), expected);
        assert_eq!(only(&pair.nodes[0].sent()).status, Status::Success);
        for byte in &mut pair.nodes[1].ram.bytes {
            *byte ^= 0x5A;
        }
    }
    // And so are windows on them.
    let window = pair.nodes[1].engine.allocate_window(PD).unwrap() | 9;
    let region = Region { access: Access::ALL, key: 2, ..region };
    let stag = pair.nodes[1].engine.register(&region).unwrap();
    let (from, length) = (5000, 6000);
    pair.nodes[1].post(&SendWork {
        remote_to: region.base + from,
        remote_stag: window,
        immediate: 1 | 1 << 31,
        operands: [u64::from(stag), length],
        ..work(SendOpcode::Bind, 2)
    });
    pair.settle();
    assert_eq!(only(&pair.nodes[1].sent()).status, Status::Success);
    let sge = pair.nodes[0].sge(HERE, length as u32);
    pair.nodes[0].post(&SendWork { remote_stag: window, sges: &[sge], ..work(SendOpcode::Read, 3) });
    pair.settle();
    let list = &there[from as usize..(from + length) as usize];
    let expected: Vec<u8> = list.iter().map(|&at| pair.nodes[1].ram.bytes[at as usize]).collect();
    assert_eq!(bytes(&pair, 0, HERE, length as usize), expected);
}
