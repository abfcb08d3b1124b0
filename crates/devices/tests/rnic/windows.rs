//! The on-the-fly windows (docs/rnic.md, section 13).

use etherslot_pci::function::Function;
use etherslot_rdma::{SendOpcode, SendWork, flag};

use crate::pair::{ALL, FREE, Host, World};

const PAGE: u64 = 2 * 4096;

fn write(id: u64, to: u64, data: &[u8]) -> SendWork<'_> {
    SendWork {
        opcode: SendOpcode::Write,
        flags: flag::SIGNALED,
        id,
        remote_to: to,
        remote_stag: ALL,
        inline: Some(data),
        ..SendWork::default()
    }
}

fn kick(host: &mut Host, work: &SendWork<'_>) {
    let mut wqe = [0; SendWork::MAX_BYTES];
    let bytes = work.emit(&mut wqe).unwrap();
    // Stores of any length, and in any order.
    for at in (0..bytes).step_by(16).rev() {
        host.rnic.bar_write(2, PAGE + 0x400 + at as u64, &wqe[at..at + 16]);
    }
    host.write32(2, PAGE + 0x20, (bytes / 64) as u32);
}

fn prepare(host: &mut Host, place: u64, work: &SendWork<'_>) {
    let mut wqe = [0; 64];
    work.emit(&mut wqe).unwrap();
    for at in (0..64).step_by(8) {
        host.rnic.bar_write(2, PAGE + 0xC00 + place * 64 + at as u64, &wqe[at..at + 8]);
    }
}

#[test]
fn a_whole_message_goes_by_stores_alone() {
    let mut world = World::ready();
    let reads = world.hosts[0].bus.reads;
    for bytes in [0, 1, 32, 33, 480_usize] {
        let data: Vec<u8> = (0..bytes).map(|at| at as u8 ^ 0x5A).collect();
        kick(&mut world.hosts[0], &write(bytes as u64, FREE, &data));
        world.settle();
        assert_eq!(world.hosts[1].memory(FREE, bytes), data);
        assert_eq!(world.hosts[0].completions(0), [(bytes as u64, 0)]);
    }
    assert_eq!(world.hosts[0].bus.reads, reads, "no memory was read");
}

#[test]
fn a_store_sends_a_prepared_header_as_often_as_it_is_made() {
    let mut world = World::ready();
    prepare(&mut world.hosts[0], 3, &write(30, FREE + 8, &[0; 8]));
    let mut block = [0; 8];
    world.hosts[0].rnic.bar_read(2, PAGE + 0xC00 + 3 * 64 + 8, &mut block);
    assert_eq!(u64::from_le_bytes(block), 30, "headers can be read");
    for value in [1_u64, u64::MAX, 0x0123_4567_89AB_CDEF] {
        world.hosts[0].write64(2, PAGE + 0x800 + 3 * 8, value);
        world.settle();
        assert_eq!(world.hosts[1].memory(FREE + 8, 8), value.to_le_bytes());
        assert_eq!(world.hosts[0].completions(0), [(30, 0)]);
    }
}

#[test]
fn they_come_behind_what_the_doorbell_has_handed_over_and_in_front_of_what_comes_later() {
    let mut world = World::ready();
    world.hosts[0].bus.hold_reads = true;
    prepare(&mut world.hosts[0], 0, &write(3, FREE, &[0; 8]));
    world.hosts[0].send(2, &write(1, FREE, &[1; 8]));
    world.settle();
    kick(&mut world.hosts[0], &write(2, FREE, &[2; 8]));
    world.hosts[0].write64(2, PAGE + 0x800, 0x0303_0303_0303_0303);
    world.hosts[0].send(2, &write(4, FREE + 8, &[4; 8]));
    world.settle();
    assert_eq!(world.hosts[0].completions(0), []);
    world.hosts[0].bus.hold_reads = false;
    world.settle();
    assert_eq!(world.hosts[0].completions(0), [(1, 0), (2, 0), (3, 0), (4, 0)]);
    assert_eq!(world.hosts[1].memory(FREE, 8), [3; 8]);
}

#[test]
fn what_finds_no_room_is_dropped_and_counted_and_room_comes_back() {
    let mut world = World::ready();
    // Nothing leaves: 64 blocks are all.
    world.lanes[0].borrow_mut().most = 0;
    for id in 0..64 {
        kick(&mut world.hosts[0], &write(id, FREE, &[id as u8; 8]));
    }
    world.settle();
    kick(&mut world.hosts[0], &write(64, FREE, &[0xFF; 8]));
    let status = world.hosts[0].read64(2, PAGE + 0x18);
    assert_eq!((status >> 48, status & 15), (1, 3));
    assert_eq!(world.hosts[0].counter("on_the_fly_dropped"), 1);
    world.lanes[0].borrow_mut().most = 64;
    world.run(5);
    assert_eq!(world.hosts[0].completions(0).len(), 64);
    assert_eq!(world.hosts[1].memory(FREE, 8), [63; 8]);
    world.hosts[0].consume(2, 0, 0);
    kick(&mut world.hosts[0], &write(65, FREE, &[65; 8]));
    world.run(5);
    assert_eq!(world.hosts[0].completions(0), [(65, 0)]);
}

#[test]
fn a_header_that_is_none_and_a_kick_without_blocks_send_nothing() {
    let mut world = World::ready();
    let host = &mut world.hosts[0];
    prepare(host, 1, &SendWork { opcode: SendOpcode::Nop, ..SendWork::default() });
    prepare(host, 2, &write(1, FREE, &[0; 16]));
    for place in [0, 1, 2] {
        host.write64(2, PAGE + 0x800 + place * 8, 7);
    }
    for blocks in [0, 10, 255] {
        host.write32(2, PAGE + 0x20, blocks);
    }
    assert_eq!(host.counter("on_the_fly_dropped"), 6);
    world.settle();
    assert_eq!(world.lanes[0].borrow().carried, 0);
}
