//! Receivers that are not ready, QPs that are not there, answers that were lost, memory that is not here.

mod pair;

use etherslot_rdma::{
    Access, Attributes, Event, Layout, Region, SendOpcode, SendWork, Service, State, Status, flag,
};
use etherslot_wire::ddp::{Header, Opcode};
use pair::{PD, PEER, Pair, work};

const HERE: u64 = 0x1000;
const THERE: u64 = 0x40000;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

fn send(data: &[u8], id: u64) -> SendWork<'_> {
    SendWork { inline: Some(data), ..work(SendOpcode::Send, id) }
}

#[test]
fn a_send_without_a_buffer_is_sent_again_and_so_is_all_behind_it() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let sge = pair.nodes[0].sge(HERE, 4000);
    let result = pair.nodes[0].sge(HERE + 0x8000, 8);
    pair.nodes[1].ram.bytes[THERE as usize + 0x8000..][..8].copy_from_slice(&5_u64.to_le_bytes());
    fn to(to: u64, there: u32, work: SendWork<'_>) -> SendWork<'_> {
        SendWork { remote_to: to, remote_stag: there, ..work }
    }
    // Taken; not taken; and all kinds behind it.
    pair.nodes[0].post(&to(THERE, there, SendWork { sges: &[sge], ..work(SendOpcode::Write, 0) }));
    pair.nodes[0].post(&send(b"first", 1));
    let add = SendWork { operands: [1, 0], sges: &[result], ..work(SendOpcode::FetchAdd, 2) };
    pair.nodes[0].post(&to(THERE + 0x8000, there, add));
    pair.nodes[0].post(&to(THERE, there, SendWork { sges: &[sge], ..work(SendOpcode::Read, 3) }));
    let write = SendWork { immediate: 7, sges: &[sge], ..work(SendOpcode::WriteImmediate, 4) };
    pair.nodes[0].post(&to(THERE + 0x4000, there, write));
    pair.nodes[0].post(&send(b"second", 5));
    pair.settle();
    assert_eq!(pair.nodes[0].sent().iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [0]);
    assert_eq!(pair.nodes[1].ram.atomics, 0, "behind what was not taken nothing is done");
    // Two buffers; Write with Immediate needs the second, the last Send a third.
    for id in 10..12 {
        let sge = pair.nodes[1].sge(0x90000 + id * 64, 64);
        pair.nodes[1].post_receive(id, &[sge]);
    }
    pair.run(MS);
    assert_eq!(pair.nodes[0].sent().iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let sge = pair.nodes[1].sge(0x90000, 64);
    pair.nodes[1].post_receive(12, &[sge]);
    pair.run(MS);
    assert_eq!(pair.nodes[0].sent().iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [5]);
    let received = pair.nodes[1].received();
    let seen: Vec<_> = received.iter().map(|cqe| (cqe.id, cqe.bytes, cqe.immediate)).collect();
    assert_eq!(seen, [(10, 5, None), (11, 4000, Some(7)), (12, 6, None)]);
    assert_eq!(pair.nodes[1].ram.atomics, 1, "an atomic that is sent again is done once");
    assert_eq!(pair.nodes[1].ram.bytes[THERE as usize + 0x8000], 6);
    let counters = pair.nodes[0].engine.counters();
    assert!(counters.not_ready_received >= 2 && counters.restarts_sent > counters.not_ready_received);
}

#[test]
fn retries_of_a_receiver_that_is_never_ready_are_counted_out() {
    for retries in [0, 1, 3] {
        let mut pair = Pair::with(Service::Rc, |_, attributes| Attributes {
            rnr_retries: retries,
            rnr_wait_us: 50,
            ..attributes
        });
        pair.nodes[0].post(&send(b"x", 1));
        pair.nodes[0].post(&send(b"y", 2));
        pair.run(u64::from(retries) * 50 * US + 10);
        let sent = pair.nodes[0].sent();
        let seen: Vec<_> = sent.iter().map(|cqe| (cqe.id, cqe.status)).collect();
        assert_eq!(seen, [(1, Status::RnrExceeded), (2, Status::Flushed)]);
        assert_eq!(pair.nodes[0].engine.counters().not_ready_received, u64::from(retries) + 1);
        assert_eq!([pair.nodes[0].state(), pair.nodes[1].state()], [State::Error, State::Error]);
    }
}

#[test]
fn seven_retries_are_without_end() {
    let mut pair = Pair::with(Service::Rc, |_, attributes| Attributes { rnr_wait_us: 10, ..attributes });
    pair.nodes[0].post(&send(b"x", 1));
    pair.run(5 * MS);
    assert!(pair.nodes[0].sent().is_empty() && pair.nodes[0].engine.counters().not_ready_received > 100);
    pair.nodes[1].post_receive(1, &[]);
    let sge = pair.nodes[1].sge(THERE, 64);
    pair.nodes[1].engine.modify_qp(pair.nodes[1].qp, State::Error, None).unwrap();
    let _ = sge;
    pair.run(MS);
    assert_eq!(pair.nodes[0].state(), State::Error);
}

#[test]
fn a_peer_that_connects_later_finds_everything_that_was_sent_to_it() {
    let mut pair = Pair::new(Service::Rc);
    let attributes = [pair.attributes(0), pair.attributes(1)];
    pair.nodes[0].connect(&attributes[0]);
    let sge = pair.nodes[0].sge(HERE, 5000);
    let there = pair.nodes[1].all;
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: there,
        sges: &[sge],
        ..work(SendOpcode::Write, 1)
    });
    pair.nodes[0].post(&send(b"hello", 2));
    pair.settle();
    assert!(pair.nodes[0].engine.counters().no_qp_received > 0);
    pair.run(30 * MS);
    assert!(pair.nodes[0].sent().is_empty());
    // In the middle of a burst.
    pair.nodes[1].connect(&attributes[1]);
    let buffer = pair.nodes[1].sge(0x90000, 64);
    pair.nodes[1].post_receive(1, &[buffer]);
    pair.run(1000 * MS);
    assert_eq!(pair.nodes[0].sent().iter().map(|cqe| cqe.status).collect::<Vec<_>>(), [Status::Success; 2]);
    assert_eq!(pair.nodes[1].received().len(), 1);
    assert_eq!(
        pair.nodes[1].ram.bytes[THERE as usize..][..5000],
        pair.nodes[0].ram.bytes[HERE as usize..][..5000]
    );
}

#[test]
fn a_qp_that_becomes_ready_in_the_middle_of_a_burst_takes_none_of_it() {
    for ready_after in 0..8 {
        let mut pair = Pair::new(Service::Rc);
        let attributes = [pair.attributes(0), pair.attributes(1)];
        pair.nodes[0].connect(&attributes[0]);
        for id in 0..3_u8 {
            pair.nodes[0].post(&send(&[id; 100], id.into()));
        }
        pair.transmit(0);
        for _ in 0..ready_after {
            pair.carry(0);
        }
        pair.nodes[1].connect(&attributes[1]);
        for id in 0..3 {
            let buffer = pair.nodes[1].sge(0x90000 + id * 128, 128);
            pair.nodes[1].post_receive(id, &[buffer]);
        }
        pair.run(1000 * MS);
        let statuses: Vec<_> = pair.nodes[0].sent().iter().map(|cqe| cqe.status).collect();
        assert_eq!(statuses, [Status::Success; 3], "ready after {ready_after}");
        for id in 0..3 {
            assert_eq!(pair.nodes[1].ram.bytes[0x90000 + id * 128..][..100], [id as u8; 100]);
        }
    }
}

#[test]
fn a_qp_that_is_no_more_ends_those_that_send_to_it_in_bounded_time() {
    let mut pair = Pair::connected(Service::Rc);
    pair.nodes[1].post_receive(1, &[]);
    pair.nodes[0].post(&send(b"", 1));
    pair.settle();
    assert_eq!(pair.nodes[0].sent()[0].status, Status::Success);
    let qp = pair.nodes[1].qp;
    pair.nodes[1].engine.destroy_qp(qp).unwrap();
    pair.nodes[0].post(&send(b"", 2));
    pair.nodes[0].post(&send(b"", 3));
    pair.run(3000 * MS);
    let seen: Vec<_> = pair.nodes[0].sent().iter().map(|cqe| (cqe.id, cqe.status)).collect();
    assert_eq!(seen, [(2, Status::RetriesExceeded), (3, Status::Flushed)]);
}

#[test]
fn a_lost_peer_fails_what_is_under_way_and_what_comes_later() {
    let mut pair = Pair::connected(Service::Rc);
    let sge = pair.nodes[0].sge(HERE, 64);
    pair.nodes[0].post(&SendWork { sges: &[sge], flags: 0, ..work(SendOpcode::Read, 1) });
    pair.transmit(0);
    for node in &mut pair.nodes {
        node.engine.lose_peer(PEER);
    }
    assert_eq!(pair.nodes[0].sent()[0].status, Status::RetriesExceeded);
    assert_eq!(pair.nodes[0].state(), State::Error);
    // The passive side had nothing under way.
    let qp = pair.nodes[1].qp;
    assert_eq!(pair.nodes[1].engine.next_event(), Some(Event::PeerLost(qp)));
    assert_eq!(pair.nodes[1].state(), State::Rts);
    pair.nodes[1].post(&send(b"x", 9));
    assert_eq!(pair.nodes[1].sent()[0].status, Status::RetriesExceeded);
}

#[test]
fn datagrams_to_a_lost_peer_are_dropped_and_complete() {
    let mut pair = Pair::connected(Service::Ud);
    pair.nodes[0].cable.most = 0;
    let datagram = |peer: u16, id| SendWork { remote_to: u64::from(peer) | 9 << 32, ..send(b"x", id) };
    pair.nodes[0].post(&datagram(PEER.0, 1));
    pair.nodes[0].post(&datagram(0xFFFF, 2));
    pair.transmit(0);
    assert!(pair.nodes[0].sent().is_empty(), "the session is full");
    pair.nodes[0].engine.lose_peer(PEER);
    pair.transmit(0);
    assert_eq!(pair.nodes[0].sent().iter().map(|cqe| cqe.status).collect::<Vec<_>>(), [Status::Success; 2]);
    assert_eq!(pair.nodes[0].engine.counters().unsent_datagrams, 2);
    pair.nodes[0].engine.find_peer(PEER);
    pair.nodes[0].cable.most = 9;
    pair.nodes[0].post(&datagram(PEER.0, 3));
    pair.transmit(0);
    assert_eq!(pair.nodes[0].cable.sent.len(), 1);
}

#[test]
fn an_answer_that_was_lost_is_asked_for() {
    let mut pair = Pair::connected(Service::Rc);
    pair.nodes[1].post_receive(1, &[]);
    pair.nodes[0].post(&send(b"", 1));
    pair.transmit(0);
    while pair.carry(0) {}
    pair.transmit(1);
    // As if the responder had dropped it: what a session carries is never lost.
    assert_eq!(pair.nodes[1].cable.sent.len(), 1);
    pair.nodes[1].cable.sent.clear();
    pair.run(250 * MS);
    assert_eq!(pair.nodes[0].sent().len(), 1);
    assert_eq!(pair.nodes[0].engine.counters().questions_sent, 1);
}

#[test]
fn not_ready_is_said_once_and_an_ended_qp_waits_for_nothing() {
    let mut pair = Pair::with(Service::Rc, |_, attributes| Attributes { question_us: 50, ..attributes });
    pair.nodes[0].post(&send(b"x", 1));
    pair.transmit(0);
    while pair.carry(0) {}
    // The question comes while the answer is on its way.
    pair.now_ns += 60 * US;
    let now_ns = pair.now_ns;
    pair.nodes[0].engine.handle_timeout(now_ns);
    pair.transmit(0);
    assert_eq!(pair.nodes[0].engine.counters().questions_sent, 1);
    pair.transmit(1);
    while pair.carry(0) {}
    pair.transmit(1);
    assert_eq!(pair.nodes[1].engine.counters().not_ready_sent, 1);
    assert_eq!(pair.nodes[1].cable.sent.len(), 1);
    let qp = pair.nodes[0].qp;
    pair.nodes[0].engine.modify_qp(qp, State::Error, None).unwrap();
    pair.run(MS);
    assert_eq!(pair.nodes[0].engine.deadline_ns(), None);
    assert_eq!(pair.nodes[0].engine.counters().questions_sent, 1);
}

#[test]
fn a_full_session_holds_messages_back_and_loses_none() {
    let mut pair = Pair::connected(Service::Rc);
    for node in &mut pair.nodes {
        node.cable.most = 3;
    }
    let sge = pair.nodes[0].sge(HERE, 60_000);
    let there = pair.nodes[1].all;
    for (id, opcode) in [(1, SendOpcode::Write), (2, SendOpcode::Read)] {
        let remote_to = THERE + id * 0x10000;
        pair.nodes[0].post(&SendWork { remote_to, remote_stag: there, sges: &[sge], ..work(opcode, id) });
        pair.settle();
        let (here, there) = (HERE as usize, remote_to as usize);
        assert_eq!(pair.nodes[0].ram.bytes[here..][..60_000], pair.nodes[1].ram.bytes[there..][..60_000]);
    }
    assert_eq!(pair.nodes[0].sent().len(), 2);
}

#[test]
fn memory_that_is_not_here_yet_is_waited_for_and_atomics_are_done_once() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let sges = [pair.nodes[0].sge(HERE, 2000), pair.nodes[0].sge(HERE + 0x1000, 8)];
    let to = |work| SendWork { remote_to: THERE, remote_stag: there, ..work };
    for node in &mut pair.nodes {
        node.ram.is_pending = true;
    }
    pair.nodes[0].post(&to(SendWork { sges: &sges[..1], ..work(SendOpcode::Write, 1) }));
    pair.nodes[0].post(&to(SendWork { sges: &sges[1..], operands: [1, 0], ..work(SendOpcode::FetchAdd, 2) }));
    pair.nodes[0].post(&to(SendWork { sges: &sges[..1], ..work(SendOpcode::Read, 3) }));
    for at in [0, 1, 1, 1] {
        pair.settle();
        assert!(pair.nodes[0].sent().is_empty() || at == 1);
        pair.nodes[at].ram.is_pending = false;
        let qp = pair.nodes[at].qp;
        pair.nodes[at].engine.resume(qp);
    }
    pair.settle();
    assert_eq!(pair.nodes[1].ram.atomics, 1);
    assert_eq!(
        pair.nodes[0].ram.bytes[HERE as usize + 8..][..1992],
        pair.nodes[1].ram.bytes[THERE as usize + 8..][..1992]
    );
}

#[test]
fn a_page_that_is_absent_is_asked_for_and_the_message_is_sent_again() {
    let mut pair = Pair::connected(Service::Rc);
    let region = Region {
        pd: PD,
        access: Access::ALL,
        base: 0x5000_0000,
        length: 3 * 4096,
        key: 2,
        layout: Layout::Pages { shift: 12, offset: 0, pages: &[0x60000] },
    };
    let stags = [0, 1].map(|at: usize| pair.nodes[at].engine.register(&region).unwrap());
    let sge = etherslot_rdma::Sge { to: 0x5000_0000, stag: stags[0], length: 3 * 4096 };
    pair.nodes[0].post(&SendWork {
        remote_to: 0x5000_0000,
        remote_stag: stags[1],
        sges: &[sge],
        ..work(SendOpcode::Write, 1)
    });
    pair.run(MS);
    assert!(matches!(pair.nodes[0].engine.next_event(), Some(Event::Miss(_))), "the sender's own page");
    for page in 1..3 {
        pair.nodes[0].engine.set_page(stags[0], page, Some(0x70000 + u64::from(page) * 4096)).unwrap();
    }
    pair.run(MS);
    assert!(pair.nodes[0].sent().is_empty());
    assert!(matches!(pair.nodes[1].engine.next_event(), Some(Event::Miss(_))), "the receiver's");
    for page in 1..3 {
        pair.nodes[1].engine.set_page(stags[1], page, Some(0x90000 - u64::from(page) * 4096)).unwrap();
    }
    pair.run(MS);
    assert_eq!(pair.nodes[0].sent()[0].status, Status::Success);
    for (here, there) in [(0x60000, 0x60000), (0x71000, 0x8F000), (0x72000, 0x8E000)] {
        assert_eq!(pair.nodes[0].ram.bytes[here..][..4096], pair.nodes[1].ram.bytes[there..][..4096]);
    }
}

#[test]
fn a_send_into_a_page_that_is_absent_is_received_whole_once_it_is_there() {
    let mut pair = Pair::connected(Service::Rc);
    let region = Region {
        pd: PD,
        access: Access::ALL,
        base: 0,
        length: 3 * 4096,
        key: 2,
        layout: Layout::Pages { shift: 12, offset: 0, pages: &[0x60000, 0x61000] },
    };
    let stag = pair.nodes[1].engine.register(&region).unwrap();
    // The second segment ends in the second piece, whose page is absent: nothing of it may be placed.
    let sges = [(0, 2000), (8192, 3000)].map(|(to, length)| etherslot_rdma::Sge { to, stag, length });
    pair.nodes[1].post_receive(4, &sges);
    let sge = pair.nodes[0].sge(HERE, 4000);
    pair.nodes[0].post(&SendWork { sges: &[sge], ..work(SendOpcode::Send, 1) });
    let before = pair.nodes[1].ram.bytes.clone();
    pair.settle();
    let first = 1396 - 20;
    let first = first & !7;
    assert_eq!(pair.nodes[1].ram.bytes[0x60000 + first..], before[0x60000 + first..]);
    pair.run(MS);
    assert!(pair.nodes[1].received().is_empty());
    pair.nodes[1].engine.set_page(stag, 2, Some(0x70000)).unwrap();
    pair.run(MS);
    let cqe = pair.nodes[1].received()[0];
    assert_eq!((cqe.id, cqe.bytes, cqe.status), (4, 4000, Status::Success));
    let sent = &pair.nodes[0].ram.bytes[HERE as usize..][..4000];
    assert_eq!(pair.nodes[1].ram.bytes[0x60000..][..2000], sent[..2000]);
    assert_eq!(pair.nodes[1].ram.bytes[0x70000..][..2000], sent[2000..]);
}

#[test]
fn a_fence_waits_for_reads_and_atomics_and_for_nothing_else() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let (sink, result) = (pair.nodes[0].sge(HERE, 64), pair.nodes[0].sge(HERE + 64, 8));
    let before: Vec<_> = [SendOpcode::Read, SendOpcode::FetchAdd, SendOpcode::Write].into();
    let kinds =
        [SendOpcode::Write, SendOpcode::Send, SendOpcode::Read, SendOpcode::FetchAdd, SendOpcode::Nop];
    for first in before {
        for second in kinds {
            for fence in [0, flag::FENCE] {
                let sges = |opcode| match opcode {
                    SendOpcode::FetchAdd => [result],
                    _ => [sink],
                };
                let make = |opcode, id| SendWork { remote_to: THERE, remote_stag: there, ..work(opcode, id) };
                let none = second == SendOpcode::Nop;
                pair.nodes[1].post_receive(1, &[pair.nodes[1].sge(0x90000, 64)]);
                pair.nodes[0].post(&SendWork { sges: &sges(first), ..make(first, 1) });
                let list = sges(second);
                let fenced = SendWork { sges: if none { &[] } else { &list }, ..make(second, 2) };
                pair.nodes[0].post(&SendWork { flags: flag::SIGNALED | fence, ..fenced });
                pair.transmit(0);
                let opcodes =
                    pair.nodes[0].cable.sent.iter().filter(|(_, segment)| {
                        Header::parse(segment).unwrap().0.opcode != Opcode::Synchronise
                    });
                let waits = fence != 0 && first != SendOpcode::Write;
                let expected = if waits || none { 1 } else { 2 };
                assert_eq!(opcodes.count(), expected, "{first:?}, {second:?}, {fence}");
                pair.settle();
                let cqes = pair.nodes[0].sent();
                assert_eq!(cqes.iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [1, 2]);
                assert!(cqes.iter().all(|cqe| cqe.status == Status::Success));
            }
        }
    }
}
