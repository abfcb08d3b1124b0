//! What is refused: the cause that the one tells, the status that the other's CQE has, and that both QPs are in ERROR. The same cases both ways.

use etherslot_rdma::{SendOpcode, SendWork, Sge, Status};
use etherslot_wire::rdmap::Cause;

use crate::world::{BLANK, MS, SINK_BYTES, SOURCE, SOURCE_BYTES, SOURCE_TO, Setting, Side, Stags, World};
use crate::{emit, emit_receive, is_flushed, work};

/// What one side asks of the other.
struct Case {
    name: &'static str,
    opcode: SendOpcode,
    /// STag and TO at the peer, of its STags.
    remote: fn(&Stags) -> (u32, u64),
    length: u32,
    rights: u8,
    cause: Cause,
    /// What the one that refuses counts.
    counter: &'static str,
}

const fn case(
    name: &'static str,
    opcode: SendOpcode,
    remote: fn(&Stags) -> (u32, u64),
    length: u32,
    cause: Cause,
) -> Case {
    Case { name, opcode, remote, length, rights: 3, cause, counter: "dropped_denied" }
}

const fn cause(layer: u8, kind: u8, code: u8) -> Cause {
    Cause { layer, kind, code }
}

const CASES: [Case; 14] = [
    case("a Write by an STag of none", SendOpcode::Write, |_| (5 << 8, 0), 100, cause(1, 1, 0)),
    case("a Write by another key", SendOpcode::Write, |stags| (stags.sink ^ 1, 0), 100, cause(1, 1, 0)),
    case(
        "a Write past the end",
        SendOpcode::Write,
        |stags| (stags.sink, SINK_BYTES as u64 - 99),
        100,
        cause(1, 1, 1),
    ),
    case("a Write into another domain", SendOpcode::Write, |stags| (stags.foreign, 0), 100, cause(1, 1, 2)),
    case(
        "a Write past the end of all",
        SendOpcode::Write,
        |stags| (stags.sink, u64::MAX - 9),
        100,
        cause(1, 1, 3),
    ),
    case(
        "a Write to what may be read",
        SendOpcode::Write,
        |stags| (stags.source, SOURCE_TO),
        100,
        cause(0, 1, 2),
    ),
    Case {
        rights: 2,
        ..case(
            "a Write by a peer that may not",
            SendOpcode::Write,
            |stags| (stags.sink, 0),
            100,
            cause(0, 1, 2),
        )
    },
    case("a Read by an STag of none", SendOpcode::Read, |_| (5 << 8, 0), 100, cause(0, 1, 0)),
    case(
        "a Read before the beginning",
        SendOpcode::Read,
        |stags| (stags.source, SOURCE_TO - 1),
        100,
        cause(0, 1, 1),
    ),
    case("a Read of another domain", SendOpcode::Read, |stags| (stags.foreign, 0), 100, cause(0, 1, 3)),
    case(
        "a Read past the end of all",
        SendOpcode::Read,
        |stags| (stags.source, u64::MAX),
        100,
        cause(0, 1, 4),
    ),
    case("a Read of what may be written", SendOpcode::Read, |stags| (stags.sink, 0), 100, cause(0, 1, 2)),
    Case {
        rights: 1,
        ..case(
            "a Read by a peer that may not",
            SendOpcode::Read,
            |stags| (stags.source, SOURCE_TO),
            100,
            cause(0, 1, 2),
        )
    },
    Case {
        counter: "dropped_too_long",
        ..case("a Send longer than its buffer", SendOpcode::Send, |_| (0, 0), 101, cause(1, 2, 5))
    },
];

fn status(cause: Cause) -> Status {
    if (cause.layer, cause.kind) == (1, 2) { Status::RemoteInvalid } else { Status::RemoteAccess }
}

#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn what_one_side_refuses_is_told_on_both() {
    for case in &CASES {
        for from in Side::BOTH {
            refused(case, from);
        }
    }
}

fn refused(case: &Case, from: Side) {
    let to = from.other();
    let mut world = World::new(&Setting { rights: case.rights, ..Setting::default() });
    let told = format!("{} of the {from:?}", case.name);
    let (ours, theirs) = (*world.stags(from), *world.stags(to));
    let buffer = [Sge { to: 5000, stag: theirs.sink, length: 100 }];
    world.post_receive(to, 0, &emit_receive(77, &buffer));
    let (remote_stag, remote_to) = (case.remote)(&theirs);
    let is_read = case.opcode == SendOpcode::Read;
    let near = if is_read { (ours.sink, 64) } else { (ours.source, SOURCE_TO) };
    let sges = [Sge { stag: near.0, to: near.1, length: case.length }];
    // One that is good, the one in question, and one that finds the QP in ERROR.
    let good = [Sge { to: SOURCE_TO, stag: ours.source, length: 16 }];
    let good = emit(&SendWork {
        remote_stag: theirs.sink,
        remote_to: 8192,
        sges: &good,
        ..work(SendOpcode::Write, 1)
    });
    let may_write = case.rights & 1 != 0;
    if may_write {
        world.post_send(from, 0, &good);
        assert_eq!(world.completion(from, 0).status, Status::Success, "{told}");
    }
    world.post_send(
        from,
        0,
        &emit(&SendWork { remote_stag, remote_to, sges: &sges, ..work(case.opcode, 2) }),
    );
    world.post_send(from, 0, &emit(&work(SendOpcode::Nop, 3)));
    let cqe = world.completion(from, 0);
    assert_eq!((cqe.id, cqe.status, cqe.cause), (2, status(case.cause), Some(case.cause)), "{told}");
    let cqe = world.completion(from, 0);
    assert!(cqe.id == 3 && is_flushed(&cqe), "{told}: {cqe:?}");
    let cqe = world.completion(to, 0);
    let is_long = case.opcode == SendOpcode::Send;
    let wanted = if is_long { Status::LocalLength } else { Status::Flushed };
    assert_eq!((cqe.id, cqe.status), (77, wanted), "{told}");
    for side in Side::BOTH {
        assert_eq!(world.state(side, 0), 6, "{told}: the state of the {side:?}'s QP");
    }
    assert_eq!(world.counter(to, case.counter), 1, "{told}");
    assert_eq!(world.counter(from, "terminates_received"), 1, "{told}");
    assert_eq!(world.counter(to, "terminates_sent"), 1, "{told}");
    // Nothing was placed but what was good.
    let mut wanted = vec![BLANK; SINK_BYTES];
    if may_write {
        let data = world.memory(from)[SOURCE..SOURCE + 16].to_vec();
        wanted[8192..8208].copy_from_slice(&data);
    }
    assert!(world.sink(to, 0, SINK_BYTES) == wanted, "{told}: something was placed");
    assert!(world.sink(from, 0, SINK_BYTES).iter().all(|&byte| byte == BLANK), "{told}: something came back");
    assert_eq!(SOURCE_BYTES % 4096, 0);
}

/// Errors of one's own: the WQE fails here, and the peer is told that the QP is no more.
#[test]
#[ignore = "needs Verilator models: ./run rtl cosim"]
fn what_fails_at_home_is_told_to_the_peer() {
    type Make = fn(&Stags, &Stags) -> (SendOpcode, Sge, u32, u64);
    let cases: [(&str, Make, Status); 4] = [
        (
            "a Write from an STag of none",
            |_, to| (SendOpcode::Write, Sge { to: 0, stag: 5 << 8, length: 9 }, to.sink, 0),
            Status::LocalProtection,
        ),
        (
            "a Write from past the end",
            |of, to| (SendOpcode::Write, Sge { to: SOURCE_TO - 1, stag: of.source, length: 9 }, to.sink, 0),
            Status::LocalProtection,
        ),
        (
            "a Send of another domain",
            |of, _| (SendOpcode::Send, Sge { to: 0, stag: of.foreign, length: 9 }, 0, 0),
            Status::LocalProtection,
        ),
        (
            "a Read into what is not to be written",
            |of, to| {
                (SendOpcode::Read, Sge { to: SOURCE_TO, stag: of.source, length: 9 }, to.source, SOURCE_TO)
            },
            Status::LocalProtection,
        ),
    ];
    for (name, make, status) in cases {
        for from in Side::BOTH {
            let to = from.other();
            let mut world = World::new(&Setting::default());
            let theirs = *world.stags(to);
            world.post_receive(to, 0, &emit_receive(77, &[Sge { to: 5000, stag: theirs.sink, length: 100 }]));
            let (opcode, sge, remote_stag, remote_to) = make(world.stags(from), &theirs);
            world.post_send(
                from,
                0,
                &emit(&SendWork { remote_stag, remote_to, sges: &[sge], ..work(opcode, 2) }),
            );
            let cqe = world.completion(from, 0);
            assert_eq!((cqe.id, cqe.status, cqe.cause), (2, status, None), "{name} of the {from:?}");
            assert!(is_flushed(&world.completion(to, 0)), "{name} of the {from:?}");
            world.until(50 * MS, "both are in ERROR", |world| {
                Side::BOTH.iter().all(|&side| world.state(side, 0) == 6)
            });
            for side in Side::BOTH {
                assert!(
                    world.sink(side, 0, SINK_BYTES).iter().all(|&byte| byte == BLANK),
                    "{name} of the {from:?}"
                );
            }
        }
    }
}
