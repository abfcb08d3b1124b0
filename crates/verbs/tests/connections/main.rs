//! Connections between two processes: the state machines, over real RNICs and sessions, in virtual time.

mod world;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use etherslot_netio::Address;
use etherslot_rdma::{Init, Pd, State};
use etherslot_verbs::cm::{Binding, CmError, Id, Kind, Setup};
use etherslot_verbs::place;
use etherslot_verbs::queue::Queue;
use etherslot_wire::cm::{Service, Space, Terms};
use proptest::prelude::*;

use crate::world::{MS, PORT, SECOND, SLOTS, Side, World, ip, qp, setup};

#[test]
fn a_connection_is_asked_for_accepted_established_and_ended_from_either_side() {
    for ends in 0..2 {
        let mut world = World::new();
        let listener = world.listen(Space::Tcp, Service::Rc, 0);
        let (asking, event) = world.ask();
        assert_eq!((event.listener, event.private), (Some(listener), vec![1; 20]));
        assert_eq!((event.terms.qp, event.terms.responder_resources), (qp(0, 17), 4));
        let (binding, remote) = world.at(1).places(event.id).unwrap();
        let (own, _) = world.at(0).places(asking).unwrap();
        assert_eq!(binding, Binding { ip: Some(ip(1)), port: PORT });
        assert_eq!(remote, Some(SocketAddrV4::new(ip(0), own.port)));
        world.accept(event.id, setup(1)).unwrap();
        world.run(10 * MS);
        let reply = world.take(0);
        assert_eq!((reply.id, reply.kind, reply.private), (asking, Kind::ConnectResponse, vec![2; 20]));
        // The numbers of the first messages are the same on both sides.
        let (ours, theirs) = world.at(0).terms(asking).unwrap();
        assert_eq!(world.at(1).terms(event.id).unwrap(), (theirs, ours));
        assert_eq!(theirs.initiator_depth, 9);
        world.at(0).establish(asking).unwrap();
        world.run(10 * MS);
        assert_eq!((world.take(1).kind, world.is_quiet()), (Kind::Established, true));
        let (now_ns, ids) = (world.now_ns, [asking, event.id]);
        world.at(ends).disconnect(now_ns, ids[ends]).unwrap();
        world.run(10 * MS);
        for (side, id) in ids.into_iter().enumerate() {
            let event = world.take(side);
            assert_eq!((event.id, event.kind, event.status), (id, Kind::Disconnected, 0));
            // Once more is no mistake, and no event.
            world.at(side).disconnect(now_ns, id).unwrap();
            assert!(world.at(side).is_over(id));
        }
        world.run(10 * SECOND);
        assert!(world.is_quiet());
        let port = world.at(0).destroy(asking).unwrap();
        assert_eq!(port, Some((Space::Tcp, own.port)));
        assert_eq!(world.at(1).destroy(event.id).unwrap(), None);
        assert_eq!(world.at(1).destroy(listener).unwrap(), Some((Space::Tcp, PORT)));
        assert!(world.at(0).is_empty() && world.at(1).is_empty());
    }
}

#[test]
fn both_sides_may_end_at_once() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let ids = world.join();
    let now_ns = world.now_ns;
    world.at(0).disconnect(now_ns, ids.0).unwrap();
    world.at(1).disconnect(now_ns, ids.1).unwrap();
    world.run(SECOND);
    assert_eq!((world.take(0).kind, world.take(1).kind), (Kind::Disconnected, Kind::Disconnected));
    world.run(10 * SECOND);
    assert!(world.is_quiet());
}

#[test]
fn a_program_takes_the_last_completions_before_it_hears_of_the_end() {
    // It takes them; it does not; its QP goes, and they with it; it ends the connection, too; the other process is gone.
    for case in 0..5 {
        let mut world = World::new();
        world.listen(Space::Tcp, Service::Rc, 0);
        let (asking, event) = world.ask();
        let engine = &mut world.sides[1].rnic.engine;
        let cq = engine.create_cq(4).unwrap();
        let init = Init {
            service: etherslot_rdma::Service::Rc,
            pd: Pd(1),
            send_cq: cq,
            receive_cq: cq,
            srq: None,
            sq_blocks: 16,
            rq_blocks: 16,
            signal_all: true,
        };
        let its_qp = engine.create_qp(&init).unwrap();
        let terms = Terms { qp: place::number(SLOTS[1], its_qp), ..setup(1).terms };
        world.accept(event.id, Setup { terms, private: vec![] }).unwrap();
        world.run(10 * MS);
        assert_eq!(world.take(0).kind, Kind::ConnectResponse);
        world.at(0).establish(asking).unwrap();
        world.run(10 * MS);
        assert_eq!(world.take(1).kind, Kind::Established);
        // Something completes, whatever it is.
        let engine = &mut world.sides[1].rnic.engine;
        engine.modify_qp(its_qp, State::Init, None).unwrap();
        let mut wqe = [0; 64];
        wqe[2] = 1;
        engine.post_receive(its_qp, &wqe).unwrap();
        engine.modify_qp(its_qp, State::Error, None).unwrap();
        let now_ns = world.now_ns;
        if case == 4 {
            world.is_joined = false;
            while world.sides[1].rnic.counters().peers_lost == 0 {
                world.run(MS);
            }
        } else {
            world.at(0).disconnect(now_ns, asking).unwrap();
        }
        world.run(10 * MS);
        assert!(!world.sides[1].events.any(|_| true), "it has not taken them yet");
        let now_ns = world.now_ns;
        match case {
            0 | 4 => {
                assert!(world.sides[1].rnic.engine.take(cq).is_some());
                world.run(2 * MS);
            }
            1 => world.run(100 * MS),
            2 => {
                world.sides[1].rnic.engine.destroy_qp(its_qp).unwrap();
                world.run(2 * MS);
            }
            _ => {
                world.at(1).disconnect(now_ns, event.id).unwrap();
                world.run(100 * MS);
            }
        }
        let told = world.take(1);
        assert_eq!((told.id, told.kind, told.status), (event.id, Kind::Disconnected, 0), "case {case}");
        assert!(!world.sides[1].events.any(|_| true), "it is told once");
        // The id ends as any other.
        world.at(1).destroy(event.id).unwrap();
        world.run(10 * MS);
        assert_eq!(world.at(1).len(), 1);
    }
}

#[test]
fn an_id_that_is_destroyed_ends_its_connection() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let (asking, asked) = world.join();
    world.at(0).destroy(asking).unwrap();
    world.run(SECOND);
    let event = world.take(1);
    assert_eq!((event.id, event.kind), (asked, Kind::Disconnected));
    assert!(world.is_quiet());
}

#[test]
fn a_datagram_service_tells_its_qp_and_makes_no_connection() {
    let mut world = World::new();
    let listener = world.listen(Space::Udp, Service::Ud, 0);
    let asking = world.route(Space::Udp, Service::Ud);
    world.connect(asking, Service::Ud, Setup { private: vec![9; 180], ..Setup::default() }).unwrap();
    world.run(50 * MS);
    let event = world.take(1);
    assert_eq!((event.listener, event.private), (Some(listener), vec![9; 180]));
    world.at(1).set_name(event.id, 2).unwrap();
    let terms = Terms { qp: qp(1, 5), number: 0x0123_4567, ..Terms::default() };
    world.accept(event.id, Setup { terms, private: vec![8; 136] }).unwrap();
    world.run(10 * MS);
    let reply = world.take(0);
    assert_eq!((reply.kind, reply.terms.qp, reply.terms.number), (Kind::Established, qp(1, 5), 0x0123_4567));
    assert_eq!(reply.private, vec![8; 136]);
    // Nothing is to be ended, and nobody is missed.
    let now_ns = world.now_ns;
    assert_eq!(world.at(0).disconnect(now_ns, asking), Err(CmError::State));
    world.is_joined = false;
    world.run(100 * SECOND);
    assert!(world.is_quiet());
}

#[test]
fn a_request_is_refused_by_the_program_with_what_it_says() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let (asking, event) = world.ask();
    world.at(1).reject(event.id, &[7; 148]).unwrap();
    world.run(10 * MS);
    let reply = world.take(0);
    assert_eq!((reply.id, reply.kind, reply.status), (asking, Kind::Rejected, 28));
    assert_eq!(reply.private, vec![7; 148]);
    assert_eq!(world.accept(event.id, setup(1)), Err(CmError::Gone));
    assert_eq!(world.at(0).establish(asking), Err(CmError::Gone));
}

#[test]
fn who_asks_where_nobody_listens_is_told_so() {
    let mut world = World::new();
    // The desk knows.
    let asking = world.route(Space::Tcp, Service::Rc);
    world.connect(asking, Service::Rc, setup(0)).unwrap();
    world.run(SECOND);
    let event = world.take(0);
    assert_eq!((event.kind, event.status), (Kind::Rejected, 8));
    // The process knows better than the desk, and so it does of another service.
    world.desk.insert((ip(1), PORT), SLOTS[1]);
    for space in [Space::Tcp, Space::Ib] {
        let asking = world.route(space, Service::Rc);
        world.connect(asking, Service::Rc, setup(0)).unwrap();
        world.run(50 * MS);
        let event = world.take(0);
        assert_eq!((event.id, event.kind, event.status), (asking, Kind::Rejected, 8));
        if space == Space::Tcp {
            world.listen(Space::Tcp, Service::Rc, 0);
        }
    }
}

#[test]
fn an_empty_desk_counts_at_the_second_time_and_a_silent_one_for_ten_seconds() {
    let mut world = World::new();
    world.is_joined = false;
    let asking = world.route(Space::Tcp, Service::Rc);
    world.connect(asking, Service::Rc, setup(0)).unwrap();
    let mut questions = Vec::new();
    while world.is_quiet() {
        world.now_ns += MS;
        let now_ns = world.now_ns;
        let Side { connections, rnic, .. } = &mut world.sides[0];
        connections.run(now_ns, rnic);
        questions.extend(connections.next_question());
    }
    let event = world.take(0);
    assert_eq!((event.kind, event.status), (Kind::Unreachable, -110));
    assert_eq!(world.now_ns, 11 * SECOND);
    assert!((6..12).contains(&questions.len()));
    assert!(
        questions[0].serial == questions[1].serial && questions[0].repeats == 0 && questions[1].repeats == 1
    );

    let asking = world.route(Space::Tcp, Service::Rc);
    world.connect(asking, Service::Rc, setup(0)).unwrap();
    let serial = world.at(0).next_question().unwrap().serial;
    for _ in 0..2 {
        world.at(0).refuse(serial);
        assert!(world.is_quiet());
    }
    // What is no answer to it changes nothing.
    world.at(0).refuse(serial ^ 1);
    assert!(world.is_quiet());
    world.at(0).refuse(serial);
    let event = world.take(0);
    assert_eq!((event.id, event.kind, event.status), (asking, Kind::Rejected, 8));
}

#[test]
fn who_listens_a_moment_after_the_question_is_found() {
    let mut world = World::new();
    let early: Vec<_> = (0..4).map(|_| world.route(Space::Tcp, Service::Rc)).collect();
    for &asking in &early {
        world.connect(asking, Service::Rc, setup(0)).unwrap();
    }
    world.run(500 * MS);
    assert!(world.is_quiet());
    world.listen(Space::Tcp, Service::Rc, 4);
    world.run(200 * MS);
    for _ in &early {
        let event = world.take(1);
        assert_eq!(event.kind, Kind::ConnectRequest);
        world.accept(event.id, setup(1)).unwrap();
    }
    world.run(50 * MS);
    for asking in early {
        let event = world.take(0);
        assert_eq!((event.id, event.kind), (asking, Kind::ConnectResponse));
    }
    // Nobody comes.
    world.desk.clear();
    let late = world.route(Space::Tcp, Service::Rc);
    world.connect(late, Service::Rc, setup(0)).unwrap();
    world.run(SECOND);
    let event = world.take(0);
    assert_eq!((event.id, event.kind, event.status), (late, Kind::Rejected, 8));
}

#[test]
fn requests_beyond_the_backlog_are_refused() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 2);
    let (first, _) = (world.ask(), world.ask());
    let third = world.route(Space::Tcp, Service::Rc);
    world.connect(third, Service::Rc, setup(0)).unwrap();
    world.run(50 * MS);
    let event = world.take(0);
    assert_eq!((event.id, event.kind, event.status), (third, Kind::Rejected, 3));
    assert_eq!(world.at(1).counters().refused, 1);
    // One that is answered makes room.
    world.accept(first.1.id, setup(1)).unwrap();
    world.run(50 * MS);
    assert_eq!(world.take(0).kind, Kind::ConnectResponse);
    world.ask();
}

#[test]
fn a_request_that_is_taken_back_is_gone() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    // The program has not heard of it.
    let asking = world.route(Space::Tcp, Service::Rc);
    world.connect(asking, Service::Rc, setup(0)).unwrap();
    world.run(50 * MS);
    assert_eq!(world.at(1).len(), 2);
    world.at(0).destroy(asking).unwrap();
    world.run(50 * MS);
    assert!(world.is_quiet());
    assert_eq!(world.at(1).len(), 1);
    // It has.
    let (asking, event) = world.ask();
    world.at(0).destroy(asking).unwrap();
    world.run(50 * MS);
    let told = world.take(1);
    assert_eq!((told.id, told.kind), (event.id, Kind::ConnectError));
    assert_eq!(world.accept(event.id, setup(1)), Err(CmError::Gone));
    assert_eq!(world.at(1).reject(event.id, &[]), Ok(()));
    // The listener goes on.
    world.join();
}

#[test]
fn who_waits_for_a_listener_that_goes_is_refused() {
    let mut world = World::new();
    let listener = world.listen(Space::Tcp, Service::Rc, 0);
    let asking = world.route(Space::Tcp, Service::Rc);
    world.connect(asking, Service::Rc, setup(0)).unwrap();
    world.run(50 * MS);
    world.at(1).destroy(listener).unwrap();
    assert!(world.at(1).is_empty());
    world.run(50 * MS);
    let event = world.take(0);
    assert_eq!((event.id, event.kind), (asking, Kind::Rejected));
    // One that the program has is its own to answer.
    world.listen(Space::Tcp, Service::Rc, 0);
    let (_, event) = world.ask();
    let listener = event.listener.unwrap();
    world.at(1).destroy(listener).unwrap();
    world.accept(event.id, setup(1)).unwrap();
    world.run(50 * MS);
    assert_eq!(world.take(0).kind, Kind::ConnectResponse);
}

#[test]
fn the_loss_of_a_peer_ends_what_is_connected_and_what_is_not_yet() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let connected = world.join();
    let (asking, event) = world.ask();
    let unheard = world.route(Space::Tcp, Service::Rc);
    world.connect(unheard, Service::Rc, setup(0)).unwrap();
    world.run(50 * MS);
    world.is_joined = false;
    world.run(5 * SECOND);
    let told = world.take(0);
    assert_eq!((told.id, told.kind), (connected.0, Kind::Disconnected));
    let told = [world.take(1), world.take(1)].map(|event| (event.id, event.kind));
    assert!(
        told.contains(&(connected.1, Kind::Disconnected)) && told.contains(&(event.id, Kind::ConnectError))
    );
    // Who asked looks again, and is told in the end. Of what the program never heard nothing is left.
    world.run(20 * SECOND);
    for id in [asking, unheard] {
        let told = world.take(0);
        assert!([asking, unheard].contains(&told.id), "{id:?}");
        assert_eq!((told.kind, told.status), (Kind::Unreachable, -110));
    }
    assert!(world.is_quiet());
    assert_eq!(world.at(1).len(), 3);
}

#[test]
fn a_request_lives_through_the_loss_of_a_session() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let (asking, event) = world.ask();
    world.is_joined = false;
    world.run(5 * SECOND);
    world.is_joined = true;
    world.run(5 * SECOND);
    assert_eq!(world.take(1).id, event.id);
    let again = world.take(1);
    assert_eq!(again.kind, Kind::ConnectRequest);
    world.accept(again.id, setup(1)).unwrap();
    world.run(50 * MS);
    assert_eq!((world.take(0).id, world.is_quiet()), (asking, true));
}

#[test]
fn what_nobody_answers_ends_after_a_minute() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    // No answer to a request.
    let (asking, event) = world.ask();
    world.run(61 * SECOND);
    let told = world.take(0);
    assert_eq!((told.id, told.kind, told.status), (asking, Kind::Unreachable, -110));
    assert_eq!((world.take(1).id, world.at(1).len()), (event.id, 2));
    // No QP for the answer.
    let (asking, event) = world.ask();
    world.accept(event.id, setup(1)).unwrap();
    world.run(30 * SECOND);
    assert_eq!(world.take(0).kind, Kind::ConnectResponse);
    world.run(61 * SECOND);
    assert_eq!((world.take(0).id, world.take(1).id), (asking, event.id));
    assert!(world.is_quiet());
    assert_eq!(world.at(0).establish(asking), Err(CmError::Gone));
}

#[test]
fn an_answer_that_the_program_has_not_seen_is_overtaken_by_its_end() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let (asking, event) = world.ask();
    world.accept(event.id, setup(1)).unwrap();
    world.run(10 * MS);
    world.at(1).destroy(event.id).unwrap();
    world.run(10 * MS);
    let told = world.take(0);
    assert_eq!((told.id, told.kind, world.is_quiet()), (asking, Kind::ConnectError, true));
}

#[test]
fn private_data_are_as_long_as_the_protocol_has_room_for_and_no_longer() {
    let of = |bytes| Setup { private: vec![0; bytes], ..setup(0) };
    for (space, service, most) in
        [(Space::Tcp, Service::Rc, 56), (Space::Tcp, Service::Uc, 56), (Space::Udp, Service::Ud, 180)]
    {
        let mut world = World::new();
        world.listen(space, service, 0);
        let id = world.route(space, service);
        assert_eq!(world.connect(id, service, of(most + 1)), Err(CmError::Value));
        assert_eq!(world.connect(id, service, of(most)), Ok(()));
        world.run(50 * MS);
        let event = world.take(1);
        assert_eq!(event.private.len(), most);
        world.at(1).set_name(event.id, 2).unwrap();
        let most = if service == Service::Ud { 136 } else { 196 };
        assert_eq!(world.at(1).reject(event.id, &[0; 149]), Err(CmError::Value));
        assert_eq!(
            world.accept(event.id, Setup { private: vec![0; most + 1], ..setup(1) }),
            Err(CmError::Value)
        );
        assert_eq!(world.accept(event.id, Setup { private: vec![0; most], ..setup(1) }), Ok(()));
        world.run(10 * MS);
        assert_eq!(world.take(0).private.len(), most);
    }
}

#[test]
fn a_service_is_of_the_port_space_that_has_it() {
    for (space, service, goes) in [
        (Space::Tcp, Service::Rc, true),
        (Space::Tcp, Service::Uc, true),
        (Space::Tcp, Service::Ud, false),
        (Space::Udp, Service::Rc, false),
        (Space::Udp, Service::Uc, false),
        (Space::Udp, Service::Ud, true),
        (Space::Ib, Service::Rc, true),
        (Space::Ib, Service::Ud, true),
    ] {
        let mut world = World::new();
        let id = world.route(space, service);
        let expected = if goes { Ok(()) } else { Err(CmError::Value) };
        assert_eq!(world.connect(id, service, setup(0)), expected, "{space:?} {service:?}");
    }
}

#[test]
fn calls_that_are_not_their_turn_are_refused_and_change_nothing() {
    type Call = (&'static str, fn(&mut World, usize, Id) -> Result<(), CmError>);
    let calls: [Call; 9] = [
        ("bind", |world, side, id| world.at(side).bind(id, Binding { ip: None, port: 99 })),
        ("listen", |world, side, id| world.at(side).listen(id, 1).map(drop)),
        ("resolve_address", |world, side, id| {
            world.at(side).resolve_address(id, None, SocketAddrV4::new(ip(1), PORT))
        }),
        ("resolve_route", |world, side, id| world.at(side).resolve_route(id)),
        ("connect", |world, side, id| world.at(side).connect(0, id, Service::Rc, setup(0))),
        ("accept", |world, side, id| world.at(side).accept(0, id, setup(1))),
        ("reject", |world, side, id| world.at(side).reject(id, &[])),
        ("establish", |world, side, id| world.at(side).establish(id)),
        ("disconnect", |world, side, id| world.at(side).disconnect(0, id)),
    ];
    type Make = (&'static str, usize, &'static [&'static str], fn(&mut World) -> Id);
    let states: [Make; 8] = [
        ("idle", 0, &["bind", "resolve_address"], |world| world.create(0, Space::Tcp, Service::Rc)),
        ("bound", 0, &["listen", "resolve_address"], |world| {
            let id = world.create(0, Space::Tcp, Service::Rc);
            world.at(0).bind(id, Binding { ip: None, port: 98 }).unwrap();
            id
        }),
        ("routed", 0, &["connect"], |world| world.route(Space::Tcp, Service::Rc)),
        ("listening", 1, &[], |world| world.listen(Space::Tcp, Service::Rc, 0)),
        ("requested", 0, &[], |world| {
            world.listen(Space::Tcp, Service::Rc, 0);
            world.ask().0
        }),
        ("asked", 1, &["accept", "reject"], |world| {
            world.listen(Space::Tcp, Service::Rc, 0);
            world.ask().1.id
        }),
        ("connected", 0, &["disconnect"], |world| {
            world.listen(Space::Tcp, Service::Rc, 0);
            world.join().0
        }),
        ("destroyed", 0, &[], |world| {
            let id = world.create(0, Space::Tcp, Service::Rc);
            world.at(0).destroy(id).unwrap();
            id
        }),
    ];
    for (state, side, allowed, make) in states {
        for (call, make_call) in calls {
            let mut world = World::new();
            let id = make(&mut world);
            let result = make_call(&mut world, side, id);
            if allowed.contains(&call) {
                assert_eq!(result, Ok(()), "{call} of an id that is {state}");
            } else {
                assert_eq!(result, Err(CmError::State), "{call} of an id that is {state}");
            }
        }
    }
}

#[test]
fn addresses_that_are_not_ours_are_refused() {
    let mut world = World::new();
    let id = world.create(0, Space::Tcp, Service::Rc);
    let remote = SocketAddrV4::new(ip(1), PORT);
    let stranger = Some(Ipv4Addr::new(10, 0, 0, 99));
    assert_eq!(world.at(0).resolve_address(id, stranger, remote), Err(CmError::Address));
    // Loopback is this node, by the address that others know.
    let itself = SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT);
    world.at(0).resolve_address(id, Some(ip(0)), itself).unwrap();
    assert_eq!(world.at(0).places(id).unwrap().1, Some(SocketAddrV4::new(ip(0), PORT)));
}

#[test]
fn a_qp_of_another_process_is_refused() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let wrong = |side: usize| Setup {
        terms: Terms { qp: qp(1 - side, 17), ..Terms::default() },
        private: Vec::new(),
    };
    let id = world.route(Space::Tcp, Service::Rc);
    world.connect(id, Service::Rc, wrong(0)).unwrap();
    world.run(50 * MS);
    let event = world.take(0);
    assert_eq!((event.kind, event.status, world.is_quiet()), (Kind::Rejected, 1, true));
    let (asking, event) = world.ask();
    world.accept(event.id, wrong(1)).unwrap();
    world.run(50 * MS);
    let told = world.take(0);
    assert_eq!((told.id, told.kind, told.status), (asking, Kind::ConnectError, -71));
    let told = world.take(1);
    assert_eq!((told.id, told.kind, told.status), (event.id, Kind::Rejected, 1));
}

#[test]
fn events_that_wait_go_along_to_another_channel() {
    let mut world = World::new();
    let listener = world.listen(Space::Tcp, Service::Rc, 0);
    let asking = world.route(Space::Tcp, Service::Rc);
    world.connect(asking, Service::Rc, setup(0)).unwrap();
    world.run(50 * MS);
    let other = Arc::new(Queue::new().unwrap());
    world.at(1).migrate(listener, &other).unwrap();
    assert!(world.is_quiet());
    let event = other.pop().expect("the request");
    // What becomes of it is told there, too.
    world.at(1).set_name(event.id, 2).unwrap();
    world.at(0).destroy(asking).unwrap();
    world.run(50 * MS);
    assert_eq!(other.pop().map(|event| event.kind), Some(Kind::ConnectError));
}

#[test]
fn thousands_of_connections_one_after_the_other_leave_nothing_behind() {
    let mut world = World::new();
    world.listen(Space::Tcp, Service::Rc, 0);
    let mut ports = std::collections::HashSet::new();
    for _ in 0..3000 {
        let (asking, asked) = world.join();
        ports.insert(world.at(0).places(asking).unwrap().0.port);
        world.at(0).destroy(asking).unwrap();
        world.run(2 * MS);
        assert_eq!(world.take(1).kind, Kind::Disconnected);
        world.at(1).destroy(asked).unwrap();
    }
    assert_eq!((world.at(0).len(), world.at(1).len()), (0, 1));
    assert!(world.is_quiet());
    // None of another process, as long as that goes.
    assert!(ports.iter().all(|port| (port - 32_768) % 255 == u16::from(SLOTS[0])));
    assert_eq!(world.at(1).deadline_ns(0), u64::MAX);
}

#[test]
fn ports_that_nobody_asked_for_are_distinct_and_end() {
    let mut world = World::new();
    let mut ports = std::collections::HashSet::new();
    for _ in 0..1000 {
        let id = world.route(Space::Tcp, Service::Rc);
        let port = world.at(0).places(id).unwrap().0.port;
        assert!(port >= 32_768 && ports.insert(port));
    }
}

/// Any bytes, and messages that are ones but for ids and times of others.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let ids = prop_oneof![
        0..3_u32,
        (0..3_u32, 0..4_u32).prop_map(|(place, life)| place << 16 | life),
        any::<u32>()
    ];
    let made = (32..40_u8, ids.clone(), ids, prop::collection::vec(any::<u8>(), 0..200)).prop_map(
        |(code, from, to, rest)| {
            let mut bytes = vec![code, 0, 1, 6];
            bytes.extend(from.to_be_bytes());
            bytes.extend(to.to_be_bytes());
            bytes.extend(rest);
            bytes
        },
    );
    prop_oneof![prop::collection::vec(any::<u8>(), 0..300), made]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_peer_says_others_go_on(messages in prop::collection::vec(message(), 1..60)) {
        let mut world = World::new();
        world.listen(Space::Tcp, Service::Rc, 3);
        let ids = world.join();
        // A stranger, in a process of its own.
        let stranger = Address::Udp(SocketAddr::V4(SocketAddrV4::new(ip(7), place::port(9))));
        let now_ns = world.now_ns;
        let Side { rnic, connections, .. } = &mut world.sides[1];
        let peer = rnic.peer(now_ns, stranger).expect("there is room");
        for bytes in &messages {
            connections.message(now_ns, rnic, peer, bytes);
        }
        // No more than its share of the backlog, and it took nobody's connection.
        prop_assert!(connections.len() <= 2 + 3);
        world.run(100 * SECOND);
        prop_assert!(world.at(1).len() <= 2 + 3);
        let now_ns = world.now_ns;
        world.at(0).disconnect(now_ns, ids.0).unwrap();
        world.run(SECOND);
        prop_assert_eq!(world.take(0).kind, Kind::Disconnected);
    }
}
