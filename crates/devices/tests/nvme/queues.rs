//! Making, using and deleting queues.

use crate::harness::*;
use etherslot_pci::function::{Function, InterruptMode};

fn create_cq(qid: u32, size: u32, flags: u32) -> Entry {
    Entry::new(5).prps(0x8000, 0).dword(10, size << 16 | qid).dword(11, flags)
}

fn create_sq(qid: u32, size: u32, flags: u32) -> Entry {
    Entry::new(1).prps(0x9000, 0).dword(10, size << 16 | qid).dword(11, flags)
}

#[test]
fn each_way_to_make_or_delete_a_queue_wrongly_has_its_status() {
    let (mut host, _disk) = Host::ready();
    let delete_sq = |qid| Entry::new(0).dword(10, qid);
    let delete_cq = |qid| Entry::new(4).dword(10, qid);
    for (row, entry, expected) in [
        ("CQ 0", create_cq(0, 15, 3), status::QUEUE_ID),
        ("a CQ that exists", create_cq(1, 15, 3), status::QUEUE_ID),
        ("a CQ beyond the number allocated", create_cq(9, 15, 3), status::QUEUE_ID),
        ("a CQ of one entry", create_cq(2, 0, 3), status::QUEUE_SIZE),
        ("a CQ beyond CAP.MQES", create_cq(2, 4096, 3), status::QUEUE_SIZE),
        ("a CQ not contiguous", create_cq(2, 15, 2), status::INVALID_FIELD),
        ("a CQ with an offset", create_cq(2, 15, 3).prps(0x8010, 0), status::PRP_OFFSET),
        ("a vector that is not there", create_cq(2, 15, 65 << 16 | 3), status::VECTOR),
        ("a vector without interrupts", create_cq(2, 15, 65 << 16 | 1), status::SUCCESS),
        ("SQ 0", create_sq(0, 15, 1 << 16 | 1), status::QUEUE_ID),
        ("an SQ that exists", create_sq(1, 15, 1 << 16 | 1), status::QUEUE_ID),
        ("an SQ beyond the number allocated", create_sq(9, 15, 1 << 16 | 1), status::QUEUE_ID),
        ("an SQ for the admin CQ", create_sq(2, 15, 1), status::CQ_INVALID),
        ("an SQ for no CQ", create_sq(2, 15, 3 << 16 | 1), status::CQ_INVALID),
        ("an SQ of one entry", create_sq(2, 0, 1 << 16 | 1), status::QUEUE_SIZE),
        ("an SQ not contiguous", create_sq(2, 15, 1 << 16), status::INVALID_FIELD),
        ("an SQ with an offset", create_sq(2, 15, 1 << 16 | 1).prps(0x8040, 0), status::PRP_OFFSET),
        ("the largest SQ", create_sq(2, 4095, 1 << 16 | 1), status::SUCCESS),
        ("deletion of SQ 0", delete_sq(0), status::QUEUE_ID),
        ("deletion of no SQ", delete_sq(5), status::QUEUE_ID),
        ("deletion of CQ 0", delete_cq(0), status::QUEUE_ID),
        ("deletion of no CQ", delete_cq(5), status::QUEUE_ID),
        ("deletion of a CQ in use", delete_cq(1), status::QUEUE_DELETION),
        ("deletion of one of its SQs", delete_sq(2), status::SUCCESS),
        ("deletion of a CQ still in use", delete_cq(1), status::QUEUE_DELETION),
        ("deletion of its last SQ", delete_sq(1), status::SUCCESS),
        ("deletion of the CQ", delete_cq(1), status::SUCCESS),
    ] {
        assert_eq!(host.admin(entry).status, expected, "{row}");
    }
}

#[test]
fn vectors_are_those_of_the_interrupt_mode() {
    for (mode, last) in [(InterruptMode::IntX, 0), (InterruptMode::Msi(4), 3), (InterruptMode::MsiX(9), 8)] {
        let (mut host, _disk) = Host::ready();
        host.bus.mode = mode;
        assert_eq!(host.admin(create_cq(2, 15, (last + 1) << 16 | 3)).status, status::VECTOR);
        assert_eq!(host.admin(create_cq(2, 15, last << 16 | 3)).status, status::SUCCESS);
    }
}

#[test]
fn entry_sizes_have_to_be_set_before_io_queues_are_made() {
    let disk = disk(1 << 20);
    let mut host = Host::new(config(&disk, 512));
    host.enable();
    host.write32(0x14, 0x0000_0001);
    assert_eq!(host.admin(create_cq(1, 15, 3)).status, status::INVALID_FIELD);
}

#[test]
fn many_entries_come_with_one_read() {
    let (mut host, _disk) = Host::ready();
    host.create_pair(2, 64);
    for _ in 0..30 {
        host.put(2, Entry::new(FLUSH).nsid(1));
    }
    let before = host.bus.reads;
    host.ring(2);
    host.run();
    assert_eq!(host.bus.reads - before, 1);
    assert_eq!(host.reap(2).len(), 30);
    // Across the end of the queue: two.
    for _ in 0..60 {
        host.put(2, Entry::new(FLUSH).nsid(1));
    }
    host.ring(2);
    host.run();
    assert!(host.bus.reads - before <= 4);
    assert_eq!(host.reap(2).len(), 60);
}

#[test]
fn queues_go_round_many_times_with_the_head_following() {
    let (mut host, _disk) = Host::ready();
    host.create_pair(2, 5);
    for round in 0..50u32 {
        let done = host.command(2, Entry::new(FLUSH).nsid(1));
        assert_eq!(done.status, status::SUCCESS);
        assert_eq!(u32::from(done.sq_head), (round + 1) % 5);
    }
}

#[test]
fn a_full_completion_queue_holds_up_its_commands_and_nobody_else() {
    let (mut host, _disk) = Host::ready();
    host.create_pair(2, 16);
    let (created, cq) = host.create_cq(3, 4, 3);
    assert_eq!(created.status, status::SUCCESS);
    let (created, sq) = host.create_sq(3, 16, 3);
    assert_eq!(created.status, status::SUCCESS);
    host.adopt(3, sq, cq, 16);
    for _ in 0..10 {
        host.put(3, Entry::new(FLUSH).nsid(1));
    }
    host.ring(3);
    host.run();
    let phases = |host: &mut Host| -> usize {
        (0..4).filter(|at| host.memory(cq + at * 16 + 14, 1)[0] & 1 == 1).count()
    };
    assert_eq!(phases(&mut host), 3, "one entry always stays empty");
    assert_eq!(host.command(2, Entry::new(FLUSH).nsid(1)).status, status::SUCCESS);
    host.write32(0x1004 + 3 * 8, 2);
    host.run();
    assert_eq!(host.memory(cq + 3 * 16 + 14, 1)[0] & 1, 1, "the fourth, of the first round");
    assert_eq!(host.memory(cq + 14, 1)[0] & 1, 0, "the fifth, of the second round");
    assert_eq!(host.memory(cq + 16 + 14, 1)[0] & 1, 1, "still the first round");
}

#[test]
fn several_submission_queues_share_a_completion_queue_and_are_served_in_turn() {
    let (mut host, _disk) = Host::ready();
    let (_, cq) = host.create_cq(2, 256, 2);
    for qid in [2, 3, 4] {
        let (created, sq) = host.create_sq(qid, 64, 2);
        assert_eq!(created.status, status::SUCCESS);
        host.adopt(qid, sq, cq, 64);
        for _ in 0..50 {
            host.put(qid, Entry::new(FLUSH).nsid(1));
        }
    }
    for qid in [2, 3, 4] {
        host.ring(qid);
    }
    host.run();
    let entry = |at: u64| cq + at * 16;
    let sqids: Vec<u16> = (0..150).map(|at| u16::from(host.memory(entry(at), 16)[10])).collect();
    for qid in [2, 3, 4] {
        assert_eq!(sqids.iter().filter(|sqid| **sqid == qid).count(), 50);
        assert!(sqids[..100].contains(&qid), "nobody waits for all of another's");
    }
}

#[test]
fn a_queue_is_deleted_when_its_last_command_has_ended() {
    let (mut host, _disk) = Host::ready();
    let at = host.alloc(8192);
    let (first, second) = host.prps(at, 8192);
    for _ in 0..5 {
        host.put(1, Entry::blocks(READ, 0, 16).prps(first, second));
    }
    host.ring(1);
    host.step();
    host.step();
    host.bus.write_room = 0;
    host.submit(0, Entry::new(0).dword(10, 1));
    host.steps(10);
    assert!(host.reap(0).is_empty(), "it waits");
    host.bus.write_room = usize::MAX;
    host.run();
    assert_eq!(host.reap(1).len(), 5);
    assert_eq!(host.reap(0)[0].status, status::SUCCESS);
    host.write32(0x1000 + 8, 3);
    host.run();
    assert_eq!(host.admin(Entry::new(0).dword(10, 1)).status, status::QUEUE_ID, "gone");
}

#[test]
fn a_queue_whose_next_entry_is_half_fetched_can_be_deleted() {
    let (mut host, _disk) = Host::ready();
    host.put(1, Entry::new(FLUSH).nsid(1));
    host.put(1, Entry::new(FLUSH).nsid(1));
    host.bus.read_room = 100;
    host.ring(1);
    host.step();
    host.put(0, Entry::new(0).dword(10, 1));
    host.ring(0);
    host.bus.read_room = 64;
    host.steps(10);
    host.bus.read_room = usize::MAX;
    host.run();
    assert_eq!(host.reap(0)[0].status, status::SUCCESS);
    assert_eq!(host.reap(1).len(), 2);
}

#[test]
fn queues_lists_and_data_can_be_in_the_controller_memory_buffer() {
    let disk = disk(1 << 20);
    let config = etherslot_devices::nvme::Config { cmb_bytes: Some(1 << 20), ..config(&disk, 512) };
    let mut host = Host::new(config);
    assert_eq!(host.read32(4) >> 25 & 1, 1, "CAP.CMBS");
    assert_eq!(host.read32(0x3c), 0, "CMBSZ before it is enabled");
    let cmb = 0x40_0000_0000u64;
    host.nvme.bar_write(0, 0x50, &(cmb | 3).to_le_bytes());
    assert_eq!(host.read32(0x38) & 7, 2);
    assert_eq!(host.read32(0x3c) >> 12, 256);
    assert_eq!(host.read32(0x3c) & 31, 31);
    host.enable();
    // Submission Queue at 0, Completion Queue at 0x1000, a PRP list at 0x2000, data at 0x4000.
    let (sq, cq, list, data) = (0u64, 0x1000u64, 0x2000u64, 0x4000u64);
    let create = Entry::new(5).prps(cmb + cq, 0).dword(10, 15 << 16 | 1).dword(11, 3);
    assert_eq!(host.admin(create).status, status::SUCCESS);
    let create = Entry::new(1).prps(cmb + sq, 0).dword(10, 15 << 16 | 1).dword(11, 1 << 16 | 1);
    assert_eq!(host.admin(create).status, status::SUCCESS);
    let content = pattern(3 * 4096, 4);
    host.nvme.bar_write(2, data, &content[..4096]);
    host.nvme.bar_write(2, data + 4096, &content[4096..8192]);
    // The last page is in the host's memory.
    let outside = host.alloc(4096);
    host.store(outside, &content[8192..]);
    for (at, page) in [cmb + data + 4096, outside].into_iter().enumerate() {
        host.nvme.bar_write(2, list + at as u64 * 8, &page.to_le_bytes());
    }
    let entry = |opcode| Entry::blocks(opcode, 0, 24).prps(cmb + data, cmb + list);
    for (at, opcode) in [WRITE, READ].into_iter().enumerate() {
        let mut bytes = [0u8; 64];
        for (place, dword) in bytes.chunks_exact_mut(4).zip(entry(opcode).cid(at as u16).0) {
            place.copy_from_slice(&dword.to_le_bytes());
        }
        host.nvme.bar_write(2, sq + at as u64 * 64, &bytes);
        host.write32(0x1008, at as u32 + 1);
        host.run();
        let mut completion = [0; 16];
        host.nvme.bar_read(2, cq + at as u64 * 16, &mut completion);
        assert_eq!(u16::from_le_bytes([completion[14], completion[15]]), 1, "phase, success");
        if opcode == WRITE {
            let mut on_disk = vec![0; 3 * 4096];
            disk.peek(0, &mut on_disk);
            assert_eq!(on_disk, content);
            host.nvme.bar_write(2, data, &[0; 4096]);
            host.store(outside, &[0; 4096]);
        }
    }
    let mut back = [0; 4096];
    host.nvme.bar_read(2, data, &mut back);
    assert_eq!(back, content[..4096]);
    assert_eq!(host.memory(outside, 4096), &content[8192..]);
    assert_eq!(host.bus.sent.last(), Some(&0));
}
