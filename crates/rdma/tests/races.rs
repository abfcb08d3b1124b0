//! What is taken away while it is in use: windows, regions, queue pairs, memory that is late.

mod pair;

use etherslot_rdma::{Attributes, SendOpcode, SendWork, Service, Sge, State, Status};
use etherslot_wire::rdmap::Cause;
use pair::{PD, Pair, work};

const HERE: u64 = 0x1000;
const THERE: u64 = 0x40000;
const MS: u64 = 1_000_000;

/// A pair whose second side has bound a window to [`THERE`].
fn with_window(length: u64) -> (Pair, u32) {
    let mut pair = Pair::connected(Service::Rc);
    let region = pair.nodes[1].all;
    let window = pair.nodes[1].engine.allocate_window(PD).unwrap() | 0x11;
    pair.nodes[1].post(&SendWork {
        remote_to: THERE,
        remote_stag: window,
        immediate: 3,
        operands: [u64::from(region), length],
        ..work(SendOpcode::Bind, 1)
    });
    pair.settle();
    assert_eq!(pair.nodes[1].sent()[0].status, Status::Success);
    (pair, window)
}

fn invalidate(pair: &mut Pair, window: u32) {
    pair.nodes[1].post(&SendWork { immediate: window, ..work(SendOpcode::Invalidate, 2) });
}

#[test]
fn a_window_that_goes_in_the_middle_of_a_write_ends_it_there() {
    for segments in 0..6 {
        let (mut pair, window) = with_window(0x8000);
        let sge = pair.nodes[0].sge(HERE, 7000);
        let before = pair.nodes[1].ram.bytes.clone();
        pair.nodes[0].post(&SendWork {
            remote_to: THERE,
            remote_stag: window,
            sges: &[sge],
            ..work(SendOpcode::Write, 1)
        });
        pair.transmit(0);
        // Synchronise, then the Write, segment by segment.
        for _ in 0..=segments {
            pair.carry(0);
        }
        invalidate(&mut pair, window);
        pair.transmit(1);
        pair.settle();
        let placed = segments * 1376;
        let (start, end) = (THERE as usize, THERE as usize + 7000);
        assert_eq!(
            pair.nodes[1].ram.bytes[start..][..placed.min(7000)],
            pair.nodes[0].ram.bytes[HERE as usize..][..placed.min(7000)]
        );
        assert_eq!(pair.nodes[1].ram.bytes[(start + placed).min(end)..], before[(start + placed).min(end)..]);
        let status = pair.nodes[0].sent()[0].status;
        assert_eq!(status, if placed < 7000 { Status::RemoteAccess } else { Status::Success }, "{segments}");
    }
}

#[test]
fn a_window_that_goes_in_the_middle_of_a_read_ends_it_there() {
    for answers in 0..5 {
        let (mut pair, window) = with_window(0x8000);
        let sge = pair.nodes[0].sge(HERE, 7000);
        pair.nodes[0].post(&SendWork {
            remote_to: THERE,
            remote_stag: window,
            sges: &[sge],
            ..work(SendOpcode::Read, 1)
        });
        pair.transmit(0);
        while pair.carry(0) {}
        // Acknowledge, then so many answers.
        pair.nodes[1].cable.most = 1 + answers;
        pair.transmit(1);
        pair.nodes[1].cable.most = usize::MAX;
        // Answers go before what is posted; the window is gone by the time of the next transmission.
        pair.nodes[1].engine.free_window(window).unwrap();
        pair.settle();
        let cqes = pair.nodes[0].sent();
        assert_eq!(cqes[0].status, Status::RemoteAccess, "{answers}");
        assert_eq!(cqes[0].cause, Some(Cause::INVALID_STAG));
        let read = answers * 1376;
        assert_eq!(
            pair.nodes[0].ram.bytes[HERE as usize..][..read],
            pair.nodes[1].ram.bytes[THERE as usize..][..read]
        );
    }
}

#[test]
fn a_region_that_is_removed_is_not_read_by_what_was_posted_before() {
    let mut pair = Pair::connected(Service::Rc);
    let (here, there) = (pair.nodes[0].all, pair.nodes[1].all);
    let sge = pair.nodes[0].sge(HERE, 64);
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: there,
        sges: &[sge],
        ..work(SendOpcode::Write, 1)
    });
    pair.nodes[0].engine.deregister(here).unwrap();
    pair.settle();
    assert_eq!(pair.nodes[0].sent()[0].status, Status::LocalProtection);
    assert_eq!(pair.nodes[1].state(), State::Error, "the peer is told");
}

#[test]
fn an_answer_to_a_sink_that_is_gone_is_not_placed() {
    let mut pair = Pair::connected(Service::Rc);
    let (here, there) = (pair.nodes[0].all, pair.nodes[1].all);
    for opcode in [SendOpcode::Read, SendOpcode::FetchAdd] {
        let mut pair_now = Pair::connected(Service::Rc);
        std::mem::swap(&mut pair, &mut pair_now);
        let sge = pair.nodes[0].sge(HERE, 8);
        let before = pair.nodes[0].ram.bytes.clone();
        pair.nodes[0].post(&SendWork {
            remote_to: THERE,
            remote_stag: there,
            sges: &[sge],
            ..work(opcode, 1)
        });
        pair.transmit(0);
        pair.nodes[0].engine.deregister(here).unwrap();
        pair.settle();
        assert_eq!(pair.nodes[0].sent()[0].status, Status::LocalProtection, "{opcode:?}");
        assert!(pair.nodes[0].ram.bytes == before);
    }
}

#[test]
fn a_qp_that_waits_for_memory_can_be_reset_and_used_again() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let sge = pair.nodes[0].sge(HERE, 64);
    let write = |sges| SendWork { remote_to: THERE, remote_stag: there, sges, ..work(SendOpcode::Write, 1) };
    pair.nodes[0].ram.is_pending = true;
    let list: [Sge; 1] = [sge];
    pair.nodes[0].post(&write(&list));
    pair.settle();
    pair.nodes[0].ram.is_pending = false;
    for at in 0..2 {
        let qp = pair.nodes[at].qp;
        let attributes = pair.attributes(at);
        pair.nodes[at].engine.modify_qp(qp, State::Reset, None).unwrap();
        pair.nodes[at].connect(&attributes);
    }
    pair.nodes[0].post(&write(&list));
    pair.settle();
    assert_eq!(pair.nodes[0].sent().iter().map(|cqe| cqe.status).collect::<Vec<_>>(), [Status::Success]);
}

#[test]
fn a_qp_that_its_user_ends_answers_nothing_more_and_tells_its_peer() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let sge = pair.nodes[0].sge(HERE, 64);
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: there,
        sges: &[sge],
        ..work(SendOpcode::Read, 1)
    });
    pair.transmit(0);
    while pair.carry(0) {}
    let before = pair.nodes[0].ram.bytes.clone();
    let qp = pair.nodes[1].qp;
    pair.nodes[1].post_receive(3, &[]);
    pair.nodes[1].engine.modify_qp(qp, State::Error, None).unwrap();
    pair.settle();
    assert!(pair.nodes[0].ram.bytes == before, "it was answered");
    assert_eq!(pair.nodes[0].sent()[0].status, Status::RemoteOperation);
    assert_eq!(pair.nodes[1].received()[0].status, Status::Flushed);
    assert_eq!(pair.nodes[1].engine.next_event(), None, "its user knows");
}

#[test]
fn a_quiet_qp_that_its_user_ends_has_acknowledged_what_it_took_and_leaves_its_peer_alone() {
    let quiet = |_, attributes| Attributes { is_quiet: true, question_us: 50, ..attributes };
    let mut pair = Pair::with(Service::Rc, quiet);
    pair.nodes[0].post_receive(7, &[]);
    pair.nodes[1].post_receive(8, &[]);
    pair.nodes[0].post(&work(SendOpcode::Send, 1));
    pair.transmit(0);
    while pair.carry(0) {}
    // It has the message and has not said so yet.
    assert_eq!(pair.nodes[1].received()[0].status, Status::Success);
    let qp = pair.nodes[1].qp;
    pair.nodes[1].engine.modify_qp(qp, State::Error, None).unwrap();
    pair.run(10 * MS);
    assert_eq!(pair.nodes[0].sent()[0].status, Status::Success);
    assert!(pair.nodes[0].received().is_empty(), "its receive stays posted");
    assert_eq!(pair.nodes[0].state(), State::Rts);
    assert_eq!(pair.nodes[1].engine.counters().terminates_sent, 0);
    // Who goes on sending to it hears of nobody.
    pair.nodes[0].post(&work(SendOpcode::Send, 2));
    pair.run(3000 * MS);
    assert_eq!(pair.nodes[0].sent()[0].status, Status::RetriesExceeded);
    assert_eq!(pair.nodes[0].received()[0].status, Status::Flushed);
}

#[test]
fn a_read_of_a_quiet_qp_that_its_user_ended_fails_in_bounded_time() {
    let quiet = |_, attributes| Attributes { is_quiet: true, question_us: 50, ..attributes };
    let mut pair = Pair::with(Service::Rc, quiet);
    let there = pair.nodes[1].all;
    let sge = pair.nodes[0].sge(HERE, 64);
    let read = SendWork { remote_to: THERE, remote_stag: there, sges: &[sge], ..work(SendOpcode::Read, 1) };
    pair.nodes[0].post(&read);
    pair.transmit(0);
    while pair.carry(0) {}
    let before = pair.nodes[0].ram.bytes.clone();
    let qp = pair.nodes[1].qp;
    pair.nodes[1].engine.modify_qp(qp, State::Error, None).unwrap();
    pair.run(3000 * MS);
    assert!(pair.nodes[0].ram.bytes == before, "it was answered");
    assert_eq!(pair.nodes[0].sent()[0].status, Status::RetriesExceeded);
    assert_eq!(pair.nodes[0].engine.deadline_ns(), None);
}

#[test]
fn a_quiet_qp_tells_what_is_wrong_in_a_segment_and_not_what_went_wrong_here() {
    let quiet = |_, attributes| Attributes { is_quiet: true, ..attributes };
    // The peer's fault.
    let mut pair = Pair::with(Service::Rc, quiet);
    let (here, there) = (pair.nodes[0].all, pair.nodes[1].all);
    let sge = pair.nodes[0].sge(HERE, 64);
    let write = SendWork { remote_to: THERE, remote_stag: there, sges: &[sge], ..work(SendOpcode::Write, 1) };
    pair.nodes[0].post(&SendWork { remote_stag: there ^ 1, ..write });
    pair.settle();
    assert_eq!(pair.nodes[0].sent()[0].status, Status::RemoteAccess);
    assert_eq!(pair.nodes[1].engine.counters().terminates_sent, 1);
    // Our own.
    let mut pair = Pair::with(Service::Rc, quiet);
    pair.nodes[0].engine.deregister(here).unwrap();
    pair.nodes[0].post(&write);
    pair.settle();
    assert_eq!(pair.nodes[0].sent()[0].status, Status::LocalProtection);
    assert_eq!([pair.nodes[0].state(), pair.nodes[1].state()], [State::Error, State::Rts]);
}

#[test]
fn segments_of_an_earlier_life_do_not_reach_the_next() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let sge = pair.nodes[0].sge(HERE, 64);
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: there,
        sges: &[sge],
        ..work(SendOpcode::Write, 1)
    });
    pair.transmit(0);
    let before = pair.nodes[1].ram.bytes.clone();
    // The same numbers, another life with other first messages.
    for at in 0..2 {
        let qp = pair.nodes[at].qp;
        let attributes = Attributes { first_sent: 1000, first_expected: 1000, ..pair.attributes(at) };
        pair.nodes[at].engine.modify_qp(qp, State::Reset, None).unwrap();
        pair.nodes[at].connect(&attributes);
    }
    while pair.carry(0) {}
    assert!(pair.nodes[1].ram.bytes == before);
    assert_eq!(pair.nodes[1].state(), State::Rts);
    assert_eq!(pair.nodes[1].engine.next_event(), None);
    // The new life goes on.
    let list = [sge];
    pair.nodes[0].post(&SendWork {
        remote_to: THERE,
        remote_stag: there,
        sges: &list,
        ..work(SendOpcode::Write, 2)
    });
    pair.run(1_000_000_000);
    assert_eq!(
        pair.nodes[0].sent().iter().map(|cqe| (cqe.id, cqe.status)).collect::<Vec<_>>(),
        [(2, Status::Success)]
    );
}

#[test]
fn a_thousand_connections_leave_nothing_behind() {
    let mut pair = Pair::new(Service::Rc);
    for round in 0..1000_u64 {
        for at in 0..2 {
            let (send_cq, receive_cq) = (pair.nodes[at].send_cq, pair.nodes[at].receive_cq);
            let qp = pair.nodes[at].qp;
            pair.nodes[at].engine.destroy_qp(qp).unwrap();
            let init = pair::Node::init(Service::Rc, send_cq, receive_cq);
            pair.nodes[at].qp = pair.nodes[at].engine.create_qp(&init).unwrap();
        }
        for at in 0..2 {
            let attributes = pair.attributes(at);
            pair.nodes[at].connect(&attributes);
        }
        let buffer = pair.nodes[1].sge(THERE, 64);
        pair.nodes[1].post_receive(round, &[buffer]);
        pair.nodes[0].post(&SendWork { inline: Some(&round.to_le_bytes()), ..work(SendOpcode::Send, round) });
        pair.settle();
        assert_eq!(pair.nodes[0].sent()[0].status, Status::Success);
        assert_eq!(pair.nodes[1].received()[0].id, round);
        // Every third is left with work under way.
        if round % 3 == 1 {
            pair.nodes[0].post(&work(SendOpcode::Send, 1));
            pair.transmit(0);
        }
        pair.now_ns += 1000;
    }
    pair.run(10_000_000_000);
    assert_eq!(pair.nodes[0].engine.deadline_ns(), None);
}
