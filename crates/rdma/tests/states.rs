//! The states of a QP, what may be done in them, and how queues end.

mod pair;

use etherslot_rdma::{
    Access, Attributes, ControlError, CqId, Event, Flag, Layout, PostError, Region, SendOpcode, SendWork,
    Service, Sge, State, Status,
};
use pair::{Node, PD, Pair, work};

const STATES: [State; 7] =
    [State::Reset, State::Init, State::Rtr, State::Rts, State::Sqd, State::Sqe, State::Error];

/// A node whose QP is in this state.
fn node_in(state: State) -> Node {
    let service = if state == State::Sqe { Service::Ud } else { Service::Rc };
    let mut node = Node::new(service);
    let qp = node.qp;
    let attributes = Attributes { peer: pair::PEER, ..Attributes::default() };
    let path: &[State] = match state {
        State::Reset => &[],
        State::Init => &[State::Init],
        State::Rtr => &[State::Init, State::Rtr],
        State::Rts | State::Sqe => &[State::Init, State::Rtr, State::Rts],
        State::Sqd => &[State::Init, State::Rtr, State::Rts, State::Sqd],
        State::Error => &[State::Init, State::Error],
    };
    for &step in path {
        node.engine.modify_qp(qp, step, Some(&attributes)).unwrap();
    }
    if state == State::Sqe {
        // A datagram whose buffer may not be read.
        node.post(&SendWork { sges: &[Sge { to: 0, stag: 1, length: 1 }], ..work(SendOpcode::Send, 1) });
        node.engine.transmit(1, &mut node.ram, &mut node.cable);
        assert_eq!(node.sent()[0].status, Status::LocalProtection);
        node.engine.next_event();
    }
    assert_eq!(node.state(), state);
    node
}

#[test]
fn a_qp_goes_where_it_may_and_nowhere_else() {
    use State::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    for from in STATES {
        for to in STATES {
            let may = matches!(
                (from, to),
                (_, Reset | Error)
                    | (Reset | Init, Init)
                    | (Init, Rtr)
                    | (Rtr | Rts | Sqd | Sqe, Rts)
                    | (Rts | Sqd, Sqd)
            );
            let mut node = node_in(from);
            let qp = node.qp;
            let attributes = Attributes::default();
            let went = node.engine.modify_qp(qp, to, Some(&attributes)).is_ok();
            assert_eq!(went, may, "{from:?} to {to:?}");
            assert_eq!(node.state(), if may { to } else { from }, "{from:?} to {to:?}");
        }
    }
}

#[test]
fn what_is_posted_is_taken_refused_or_flushed_as_the_state_says() {
    for state in STATES {
        let mut node = node_in(state);
        let qp = node.qp;
        let mut wqe = [0; 64];
        work(SendOpcode::Nop, 7).emit(&mut wqe).unwrap();
        let expected = match state {
            State::Reset | State::Init | State::Rtr => Err(PostError::State),
            _ => Ok(()),
        };
        assert_eq!(node.engine.post_send(qp, &wqe), expected, "{state:?}");
        let flushed: Vec<_> = node.sent().iter().map(|cqe| (cqe.id, cqe.status)).collect();
        let is_flushed = matches!(state, State::Sqe | State::Error);
        assert_eq!(flushed, if is_flushed { vec![(7, Status::Flushed)] } else { vec![] }, "{state:?}");
        etherslot_rdma::ReceiveWork { id: 8, sges: &[] }.emit(&mut wqe).unwrap();
        let expected = if state == State::Reset { Err(PostError::State) } else { Ok(()) };
        assert_eq!(node.engine.post_receive(qp, &wqe), expected, "{state:?}");
        let flushed: Vec<_> = node.received().iter().map(|cqe| (cqe.id, cqe.status)).collect();
        assert_eq!(
            flushed,
            if state == State::Error { vec![(8, Status::Flushed)] } else { vec![] },
            "{state:?}"
        );
    }
}

#[test]
fn wqes_that_are_not_whole_blocks_are_not_taken() {
    let mut node = node_in(State::Rts);
    let qp = node.qp;
    for length in [0, 1, 63, 65, 128, 640] {
        let mut wqe = vec![0; length];
        if length > 2 {
            wqe[2] = 1;
        }
        assert_eq!(node.engine.post_send(qp, &wqe), Err(PostError::Malformed), "{length}");
        assert_eq!(node.engine.post_receive(qp, &wqe), Err(PostError::Malformed), "{length}");
    }
    for _ in 0..64 {
        let mut wqe = [0; 64];
        work(SendOpcode::Nop, 0).emit(&mut wqe).unwrap();
        node.engine.post_send(qp, &wqe).unwrap();
    }
    let mut wqe = [0; 64];
    work(SendOpcode::Nop, 0).emit(&mut wqe).unwrap();
    assert_eq!(node.engine.post_send(qp, &wqe), Err(PostError::Full));
}

/// A wrong WQE: what is wrong, its bytes changed, and the status that it gets.
type Wrong = (&'static str, fn(&mut [u8]), Status);

#[test]
fn a_wrong_wqe_fails_in_its_turn_and_those_behind_it_are_flushed() {
    let rows: [Wrong; 13] = [
        ("an opcode that there is not", |wqe| wqe[0] = 11, Status::LocalOperation),
        ("a reserved flag", |wqe| wqe[1] |= 0x20, Status::LocalOperation),
        ("31 SGEs", |wqe| wqe[3] = 31, Status::LocalOperation),
        ("SGEs beyond its blocks", |wqe| wqe[3] = 3, Status::LocalOperation),
        ("inline, and SGEs", |wqe| wqe[1] |= 8, Status::LocalOperation),
        ("an inline Read", |wqe| (wqe[0], wqe[1], wqe[3], wqe[4]) = (5, 9, 0, 8), Status::LocalOperation),
        (
            "inline data beyond its blocks",
            |wqe| (wqe[1], wqe[3], wqe[4]) = (9, 0, 33),
            Status::LocalOperation,
        ),
        ("a flag block that is not there", |wqe| wqe[1] |= 16, Status::LocalOperation),
        ("an atomic of two SGEs", |wqe| (wqe[0], wqe[3]) = (6, 2), Status::LocalOperation),
        ("an atomic of 4 bytes", |wqe| (wqe[0], wqe[60]) = (6, 4), Status::LocalOperation),
        ("more than 2^31 bytes", |wqe| wqe[47] = 0x81, Status::LocalLength),
        ("an STag that there is not", |wqe| wqe[40] ^= 0xFF, Status::LocalProtection),
        ("beyond the end of its region", |wqe| wqe[38] = 1, Status::LocalProtection),
    ];
    for (name, change, status) in rows {
        let mut pair = Pair::connected(Service::Rc);
        let (qp, there) = (pair.nodes[0].qp, pair.nodes[1].all);
        let sge = pair.nodes[0].sge(0x1000, 64);
        let write =
            SendWork { remote_to: 0x8000, remote_stag: there, sges: &[sge], ..work(SendOpcode::Write, 1) };
        pair.nodes[0].post(&write);
        let mut wqe = [0; 64];
        SendWork { id: 2, ..write }.emit(&mut wqe).unwrap();
        change(&mut wqe);
        pair.nodes[0].engine.post_send(qp, &wqe).unwrap();
        pair.nodes[0].post(&SendWork { id: 3, ..write });
        pair.settle();
        let seen: Vec<_> = pair.nodes[0].sent().iter().map(|cqe| (cqe.id, cqe.status)).collect();
        let expected = [(1, Status::Success), (2, status), (3, Status::Flushed)];
        assert_eq!(seen, expected, "{name}");
        assert_eq!([pair.nodes[0].state(), pair.nodes[1].state()], [State::Error; 2], "{name}");
    }
}

#[test]
fn windows_are_bound_as_the_verbs_allow() {
    let bind = |region: u32, window, to, length, immediate| SendWork {
        remote_to: to,
        remote_stag: window,
        immediate,
        operands: [u64::from(region), length],
        ..work(SendOpcode::Bind, 1)
    };
    // What is bound (region, TO, length, access), and whether it may be.
    for (name, access, to, length, wish, may) in [
        ("all of it", Access::ALL, 0, 64, 7, true),
        ("beyond its end", Access::ALL, 1, 64, 1, false),
        ("no byte", Access::ALL, 0, 0, 1, false),
        ("a length that wraps", Access::ALL, 8, u64::MAX, 1, false),
        ("a region that does not allow it", Access::LOCAL_WRITE, 0, 64, 1, false),
        ("writes where there are none", Access::BIND, 0, 64, 2, false),
        ("reads where writes are not", Access::BIND, 0, 64, 1, true),
    ] {
        let mut node = node_in(State::Rts);
        let layout = etherslot_rdma::Layout::Direct { address: 0 };
        let region = etherslot_rdma::Region { pd: PD, access, base: 0, length: 64, key: 1, layout };
        let region = node.engine.register(&region).unwrap();
        let window = node.engine.allocate_window(PD).unwrap() | 5;
        node.post(&bind(region, window, to, length, wish));
        node.engine.transmit(1, &mut node.ram, &mut node.cable);
        let status = node.sent()[0].status;
        assert_eq!(status, if may { Status::Success } else { Status::WindowBind }, "{name}");
        if may {
            // Bound is bound (type 2): it has to be invalidated first.
            node.post(&bind(region, window, to, length, wish));
            node.engine.transmit(1, &mut node.ram, &mut node.cable);
            assert_eq!(node.sent()[0].status, Status::WindowBind, "{name}, twice");
        }
        assert!(node.engine.free_window(window).is_ok());
        assert!(node.engine.deregister(region).is_ok(), "{name}: the region is free again");
        assert!(node.engine.deregister(region).is_err() && node.engine.free_window(window).is_err());
    }
}

#[test]
fn a_drained_queue_tells_so_and_goes_on_later() {
    let mut pair = Pair::connected(Service::Rc);
    let (qp, there) = (pair.nodes[0].qp, pair.nodes[1].all);
    let sge = pair.nodes[0].sge(0x1000, 5000);
    let list = [sge];
    for id in 0..6 {
        let read =
            SendWork { remote_to: 0x8000, remote_stag: there, sges: &list, ..work(SendOpcode::Read, id) };
        pair.nodes[0].post(&read);
    }
    // ORD is 4: that many have begun.
    pair.transmit(0);
    pair.nodes[0].engine.modify_qp(qp, State::Sqd, None).unwrap();
    assert_eq!(pair.nodes[0].engine.next_event(), None);
    pair.settle();
    assert_eq!(pair.nodes[0].sent().len(), 4);
    assert_eq!(pair.nodes[0].engine.next_event(), Some(Event::SqDrained(qp)));
    assert_eq!(pair.nodes[0].engine.next_event(), None, "it is told once");
    pair.nodes[0].engine.modify_qp(qp, State::Rts, None).unwrap();
    pair.settle();
    assert_eq!(pair.nodes[0].sent().len(), 2);
}

#[test]
fn a_completion_queue_that_overruns_ends_its_qps() {
    let mut pair = Pair::connected(Service::Rc);
    let cq = pair.nodes[0].engine.create_cq(2).unwrap();
    let node = &mut pair.nodes[0];
    let init = Node::init(Service::Rc, cq, node.receive_cq);
    node.qp = node.engine.create_qp(&init).unwrap();
    let attributes = pair.attributes(0);
    pair.nodes[0].connect(&attributes);
    for id in 0..4 {
        pair.nodes[0].post(&work(SendOpcode::Nop, id));
    }
    pair.transmit(0);
    assert_eq!(pair.nodes[0].state(), State::Error);
    assert_eq!(pair.nodes[0].engine.next_event(), Some(Event::CqOverrun(cq)));
    assert!(pair.nodes[0].engine.counters().cqes_lost >= 2);
    assert!(pair.nodes[0].engine.destroy_cq(cq).is_err());
    let qp = pair.nodes[0].qp;
    pair.nodes[0].engine.destroy_qp(qp).unwrap();
    assert!(pair.nodes[0].engine.destroy_cq(cq).is_ok());
}

#[test]
fn a_completion_queue_that_is_given_room_keeps_what_it_has_and_does_not_overrun() {
    let mut pair = Pair::connected(Service::Rc);
    let cq = pair.nodes[0].engine.create_cq(2).unwrap();
    let node = &mut pair.nodes[0];
    let init = Node::init(Service::Rc, cq, node.receive_cq);
    node.qp = node.engine.create_qp(&init).unwrap();
    let attributes = pair.attributes(0);
    pair.nodes[0].connect(&attributes);
    for id in 0..8 {
        if id == 2 {
            pair.nodes[0].engine.resize_cq(cq, 5).unwrap();
            // It does not get less.
            pair.nodes[0].engine.resize_cq(cq, 1).unwrap();
        }
        pair.nodes[0].post(&work(SendOpcode::Nop, id));
        pair.transmit(0);
    }
    let node = &mut pair.nodes[0];
    assert_eq!((node.state(), node.engine.next_event()), (State::Rts, None));
    node.send_cq = cq;
    assert_eq!(node.sent().iter().map(|cqe| cqe.id).collect::<Vec<_>>(), (0..8).collect::<Vec<_>>());
    assert_eq!(node.engine.resize_cq(cq, 0), Err(ControlError::Invalid));
    assert_eq!(node.engine.resize_cq(cq, usize::MAX), Err(ControlError::Invalid));
    assert_eq!(node.engine.resize_cq(CqId(999), 8), Err(ControlError::Unknown));
}

#[test]
fn a_flag_that_may_not_be_stored_fails_its_wqe() {
    let mut pair = Pair::connected(Service::Rc);
    let there = pair.nodes[1].all;
    let flag = Flag { stag: 1, to: 0, value: 1 };
    pair.nodes[0].post(&SendWork {
        remote_to: 0x8000,
        remote_stag: there,
        inline: Some(b"data"),
        local_flag: Some(flag),
        ..work(SendOpcode::Write, 1)
    });
    pair.settle();
    assert_eq!(pair.nodes[0].sent()[0].status, Status::LocalProtection);
    assert_eq!(pair.nodes[1].ram.bytes[0x8000..0x8004], *b"data");
}

#[test]
fn a_flag_that_lies_askew_in_memory_fails_its_wqe() {
    let layout = Layout::Direct { address: 0x9004 };
    let region = Region { pd: PD, access: Access::LOCAL_WRITE, base: 0, length: 64, key: 1, layout };
    for (to, status) in [(4, Status::LocalOperation), (8, Status::LocalProtection)] {
        let mut pair = Pair::connected(Service::Rc);
        let there = pair.nodes[1].all;
        let stag = pair.nodes[0].engine.register(&region).unwrap();
        let before = pair.nodes[0].ram.bytes.clone();
        pair.nodes[0].post(&SendWork {
            remote_to: 0x8000,
            remote_stag: there,
            inline: Some(b"data"),
            local_flag: Some(Flag { stag, to, value: 1 }),
            ..work(SendOpcode::Write, 1)
        });
        pair.settle();
        assert_eq!(pair.nodes[0].sent()[0].status, status, "TO {to}");
        assert!(pair.nodes[0].ram.bytes == before, "nothing is stored");
    }
}

#[test]
fn completions_of_a_qp_that_is_no_more_are_gone_and_others_stay_in_order() {
    for resets in [false, true] {
        let mut node = node_in(State::Rts);
        let first = node.qp;
        let init = Node::init(Service::Rc, node.send_cq, node.receive_cq);
        let second = node.engine.create_qp(&init).unwrap();
        node.qp = second;
        node.connect(&Attributes { peer: pair::PEER, ..Attributes::default() });
        for id in 0..6 {
            node.qp = if id % 2 == 0 { first } else { second };
            node.post(&work(SendOpcode::Nop, id));
            node.engine.transmit(1, &mut node.ram, &mut node.cable);
            if id == 1 {
                assert_eq!(node.sent().len(), 2);
            }
        }
        if resets {
            node.engine.modify_qp(first, State::Reset, None).unwrap();
        } else {
            node.engine.destroy_qp(first).unwrap();
        }
        assert_eq!(node.sent().iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [3, 5]);
        node.qp = second;
        node.post(&work(SendOpcode::Nop, 7));
        node.engine.transmit(1, &mut node.ram, &mut node.cable);
        assert_eq!(node.sent().iter().map(|cqe| cqe.id).collect::<Vec<_>>(), [7]);
    }
}

#[test]
fn a_number_of_a_qp_is_used_again_after_all_others_of_its_place() {
    let mut node = Node::new(Service::Rc);
    let init = Node::init(Service::Rc, node.send_cq, node.receive_cq);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60_000 {
        let qp = node.engine.create_qp(&init).unwrap();
        assert!(qp.0 >= 2 && seen.insert(qp), "{qp:?} again");
        node.engine.destroy_qp(qp).unwrap();
        assert_eq!(node.engine.state(qp), None);
    }
}
