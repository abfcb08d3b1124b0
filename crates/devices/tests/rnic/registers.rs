//! Registers, tables and states: a row a rule of docs/rnic.md, sections 2, 3 and 14.

use etherslot_pci::function::{Function, ResetKind};
use etherslot_rdma::{SendOpcode, SendWork, Sge, flag};

use crate::pair::{ALL, FREE, OWNER, PD, VALID, World, access};

#[test]
fn registers_say_what_there_is() {
    let mut world = World::cold();
    let host = &mut world.hosts[0];
    for (offset, value) in [
        (0x000, 0x4349_4E52),
        (0x004, 1),
        (0x008, 0),
        (0x00C, 1),
        (0x010, 0x1FFF),
        (0x020, 8),
        (0x024, 8),
        (0x028, 4),
        (0x02C, 4),
        (0x030, 64),
        (0x034, 1024),
        (0x038, 0x0404_091E),
        (0x03C, 0x0FF0_01E0),
        (0x060, u32::MAX),
        (0x064, 0),
        (0x070, 0),
    ] {
        assert_eq!(host.read32(0, offset), value, "{offset:#x}");
    }
    assert_eq!(host.read64(0, 0), 1 << 32 | 0x4349_4E52);
    // Accesses of another length or place are none.
    let mut data = [0xAA; 2];
    host.rnic.bar_read(0, 0, &mut data);
    assert_eq!(data, [0; 2]);
    host.rnic.bar_write(0, 8, &[1]);
    assert_eq!(host.read32(0, 8), 0);
    let ends: Vec<u64> = (0..6).map(|table| host.entry_at(table, 0)).collect();
    assert!(ends.is_sorted());
    let spec = host.rnic.spec();
    assert_eq!(
        spec.bars.iter().map(|bar| (bar.index, bar.bytes)).collect::<Vec<_>>()[..2],
        [(0, 1 << 16), (2, 8 * 4096)]
    );
}

#[test]
fn an_entry_that_is_not_allowed_stays_not_valid() {
    let mut world = World::cold();
    let host = &mut world.hosts[0];
    host.write32(0, 8, 1);
    // Of the CMT: too small, too large, a vector that there is not, not aligned.
    for (log2, vector, address, is_valid) in
        [(0, 0, 0, false), (23, 0, 0, false), (4, 8, 0, false), (4, 0, 32, false), (4, 7, 64, true)]
    {
        host.write_entry(2, 1, &[(0, vector << 16 | log2 << 8 | VALID), (4, OWNER), (8, address), (12, 0)]);
        assert_eq!(host.word(2, 1, 0) & 1, u32::from(is_valid), "{log2} {vector} {address}");
    }
    // Of the SMT: index 0, a write for the peer that is none for the owner, beyond the end of the address space.
    assert!(!host.region(5, access::LOCAL_WRITE, 0, 64));
    assert!(!host.region(9 << 8, access::REMOTE_WRITE, 0, 64));
    assert!(!host.region(9 << 8, access::LOCAL_WRITE, u64::MAX - 10, 64));
    assert!(host.region(9 << 8, access::LOCAL_WRITE, u64::MAX - 64, 64));
    // Pages that the PBLMT does not have.
    assert!(!host.paged(10 << 8, 0, 1023, &[Some(0), Some(4096)]));
    assert!(host.paged(10 << 8, 0, 1022, &[Some(0), Some(4096)]));
    // A bound window is not the driver's to write; one that is not bound is.
    host.write_entry(0, 11, &[(0, 3), (4, PD)]);
    assert_eq!(host.word(0, 11, 0) & 3, 0);
    host.write_entry(0, 11, &[(0, 2), (4, PD)]);
    assert_eq!(host.word(0, 11, 0) & 3, 2);
    // A peer of a session that there is not, and a second one of the same.
    host.write_entry(5, 0, &[(0, 1 << 31 | 1)]);
    assert_eq!(host.word(5, 0, 0) >> 31, 0);
    host.write_entry(5, 0, &[(0, 1 << 31)]);
    host.write_entry(5, 1, &[(0, 1 << 31)]);
    assert_eq!((host.word(5, 0, 0) >> 31, host.word(5, 1, 0) >> 31), (1, 0));
}

#[test]
fn states_change_as_they_may_and_no_other_way() {
    let mut world = World::new(&[]);
    let host = &mut world.hosts[0];
    host.context(2, 0, 0);
    for (state, done, then) in [
        (2, false, 0),
        (3, false, 0),
        (1, true, 1),
        (3, false, 1),
        (2, true, 2),
        (1, false, 2),
        (3, true, 3),
        (4, true, 4),
        (3, true, 3),
        (5, false, 3),
        (7, false, 3),
        (6, true, 6),
        (3, false, 6),
        (0, true, 0),
        (0, true, 0),
    ] {
        assert_eq!((host.command(2, state), host.state(2)), (done, then), "to {state}");
    }
    // A number that is not of its place, or not allowed.
    host.context(0, 0, 0);
    assert!(!host.command(0, 1), "0 is the node");
    host.write_entry(3, 4, &[(0, 5 << 16)]);
    assert!(!host.command(4, 1));
    // What is in use is not removed.
    host.context(2, 0, 0);
    assert!(host.command(2, 1));
    host.write_entry(2, 0, &[(0, 0)]);
    assert_eq!(host.word(2, 0, 0) & 1, 1, "the CQ stays");
    // More blocks than there are.
    host.write32(0, 8, 0);
    assert_eq!(host.state(2), 0, "without ENABLE all are in RESET");
    assert!(!host.command(2, 1));
}

#[test]
fn the_session_table_says_where_nodes_are_and_is_nobodys_to_write() {
    let mut world = World::cold();
    let host = &mut world.hosts[0];
    let (sessions, table) = (host.read32(0, 0x058), u64::from(host.read32(0, 0x05C)));
    assert_eq!(sessions, 1);
    assert!(table > host.entry_at(5, 0), "it is behind the others");
    for _ in 0..2 {
        // The RNIC's own entry, on an Ethernet; that of the peer, UDP.
        assert_eq!([0, 8, 16, 24].map(|at| host.read64(4, table + at)), [2, 0, 0x0100_0000_0002, 0]);
        assert_eq!([32, 48, 56].map(|at| host.read64(4, table + at)), [4790 << 16 | 1, 0, 1 << 56]);
        assert_eq!(host.read32(4, table + 60), 1 << 24);
        assert_eq!(host.read64(4, table + 64), 0, "there is no more");
        host.rnic.bar_write(4, table, &[0xFF; 8]);
        host.rnic.bar_write(4, table + 32, &[0xFF; 8]);
    }
}

#[test]
fn queues_have_no_more_blocks_than_there_are() {
    let mut world = World::new(&[]);
    let host = &mut world.hosts[0];
    // 4096 blocks in all; these take 2048 + 64.
    for (qp, done) in [(2, true), (3, false)] {
        host.context(qp, 0, 0);
        let entry = host.entry_at(3, qp);
        host.write32(4, entry + 12, 6 << 24 | 11 << 16);
        assert_eq!(host.command(qp, 1), done, "QP {qp}");
    }
    assert!(host.command(2, 0));
    assert!(host.command(3, 1), "they are given back");
}

#[test]
fn a_doorbell_that_cannot_be_ends_its_queue_or_is_counted() {
    let mut world = World::new(&[(2, 0, 0), (3, 0, 0)]);
    let host = &mut world.hosts[0];
    // More than the ring ahead.
    host.write32(2, 2 * 4096, 65);
    assert_eq!(host.state(2), 6);
    assert_eq!(host.counter("doorbells_refused"), 1);
    // Of a CQ of another owner, of none, and with an index that is ahead.
    host.write_entry(2, 4, &[(0, 4 << 8 | VALID), (4, OWNER + 1), (8, 0x9000), (12, 0)]);
    for value in [4, 7, 1 << 32] {
        host.write64(2, 3 * 4096 + 8, value);
    }
    // Of a QP in RESET, of an SRQ that there is not.
    host.write32(2, 5 * 4096, 1);
    host.write64(2, 3 * 4096 + 0x10, 0);
    assert_eq!(host.counter("doorbells_refused"), 6);
    assert_eq!(host.state(3), 3);
}

#[test]
fn a_wqe_that_is_none_fails_with_its_id_and_the_queue_with_it() {
    for (at, byte) in [(2, 0), (2, 10), (0, 99), (3, 31)] {
        let mut world = World::ready();
        let host = &mut world.hosts[0];
        let mut wqe = [0; SendWork::MAX_BYTES];
        let work = SendWork { opcode: SendOpcode::Nop, flags: flag::SIGNALED, id: 1, ..SendWork::default() };
        host.send(2, &work);
        SendWork { id: 42, ..work }.emit(&mut wqe).unwrap();
        wqe[at] = byte;
        host.put_raw(2, &wqe[..64]);
        host.ring_send(2);
        world.run(1);
        assert_eq!(world.hosts[0].completions(0), [(1, 0), (42, 2)], "byte {at} is {byte}");
        assert_eq!(world.hosts[0].state(2), 6);
    }
}

#[test]
fn queues_that_cannot_be_read_end_their_qp() {
    let mut world = World::new(&[]);
    let host = &mut world.hosts[0];
    host.context(2, 0, 0);
    let entry = host.entry_at(3, 2);
    host.write32(4, entry + 20, 1);
    for state in 1..=3 {
        assert!(host.command(2, state));
    }
    host.write32(2, 2 * 4096, 1);
    world.settle();
    assert_eq!(world.hosts[0].state(2), 6);
    assert_eq!(world.hosts[0].read64(0, 0x78), 2 << 16 | 1, "QP error");
}

#[test]
fn a_fence_is_done_when_nothing_that_began_before_is_under_way() {
    let mut world = World::ready();
    let host = &mut world.hosts[0];
    host.bus.hold_reads = true;
    let sges = [Sge { to: FREE, stag: ALL, length: 4096 }];
    let work = SendWork {
        opcode: SendOpcode::Write,
        remote_to: FREE,
        remote_stag: ALL,
        sges: &sges,
        ..SendWork::default()
    };
    host.send(2, &work);
    world.settle();
    let host = &mut world.hosts[0];
    host.write32(0, 0x60, ALL >> 8);
    assert_eq!(host.read32(0, 0x60), 0, "a WQE is on its way");
    host.bus.hold_reads = false;
    world.settle();
    assert_eq!(world.hosts[0].read32(0, 0x60), u32::MAX);
}

#[test]
fn a_page_that_is_absent_is_asked_for_and_what_waits_goes_on() {
    let mut world = World::ready();
    let stag = 12 << 8 | 1;
    let host = &mut world.hosts[0];
    assert!(host.paged(stag, access::EVERYTHING, 40, &[Some(FREE), None]));
    host.fill(FREE, 8192, 1);
    let sges = [Sge { to: 0, stag, length: 8192 }];
    let work = SendWork {
        opcode: SendOpcode::Write,
        flags: flag::SIGNALED,
        id: 3,
        remote_to: FREE,
        remote_stag: ALL,
        sges: &sges,
        ..SendWork::default()
    };
    host.send(2, &work);
    world.run(5);
    let host = &mut world.hosts[0];
    assert_eq!(host.completions(0), []);
    let miss = host.read64(0, 0x80);
    assert_eq!(miss, u64::from(stag) << 32 | 1);
    assert_eq!(host.bus.sent, [0], "an interrupt tells of it");
    let entry = host.entry_at(1, 41);
    host.write64(4, entry, (FREE + 4096) | 1);
    host.write64(0, 0x80, miss);
    world.run(5);
    assert_eq!(world.hosts[0].completions(0), [(3, 0)]);
    let sent = world.hosts[0].memory(FREE, 8192).to_vec();
    assert_eq!(world.hosts[1].memory(FREE, 8192), sent);
}

#[test]
fn a_reset_at_any_moment_leaves_nothing_behind() {
    for steps in (0..24).step_by(3) {
        for kind in [Some(ResetKind::FunctionLevel), Some(ResetKind::Conventional), None] {
            let mut world = World::ready();
            world.hosts[0].fill(FREE, 50_000, 1);
            let sges = [Sge { to: FREE, stag: ALL, length: 50_000 }];
            let work = SendWork {
                opcode: SendOpcode::Write,
                flags: flag::SIGNALED,
                remote_to: FREE,
                remote_stag: ALL,
                sges: &sges,
                ..SendWork::default()
            };
            world.hosts[0].send(2, &work);
            for _ in 0..steps {
                world.step();
            }
            let host = &mut world.hosts[0];
            if let Some(kind) = kind {
                host.reset(kind);
            } else {
                host.write32(0, 8, 2);
                host.bus.memory.fill(0);
            }
            assert_eq!(host.read32(0, 8), 0);
            assert_eq!((host.word(3, 2, 0), host.word(0, ALL >> 8, 0)), (0, 0));
            world.settle();
            assert!(world.hosts[0].bus.memory.iter().all(|&byte| byte == 0), "nothing is written any more");
        }
    }
}

#[test]
fn the_second_half_of_a_doorbell_makes_it_count() {
    let mut world = World::ready();
    let host = &mut world.hosts[0];
    host.write32(2, 2 * 4096 + 8, 1 << 16);
    assert_eq!(host.word(2, 0, 0) & 2, 0);
    host.write32(2, 2 * 4096 + 12, 0);
    assert_eq!(host.word(2, 0, 0) & 2, 2, "armed");
}
