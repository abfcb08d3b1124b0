//! The NVM command set, one row a rule.

use crate::harness::*;
use etherslot_devices::nvme::{Config, Namespace};
use etherslot_storage::MediumError;
use etherslot_storage::memory::{Disk, FaultOn, Latency, Options};

#[test]
fn what_is_written_is_read_back_in_every_size_and_block_size() {
    for block_bytes in [512usize, 4096] {
        let disk = disk(8 << 20);
        let mut host = Host::new(config(&disk, block_bytes as u32));
        host.enable();
        host.create_pair(1, 16);
        let mark = host.free_all();
        for (round, bytes) in [block_bytes, 4096, 8192, 12288, 65536, 131072, 1 << 20].into_iter().enumerate()
        {
            host.free_to(mark);
            let data = pattern(bytes, round as u64);
            assert_eq!(host.write_blocks(3, &data, block_bytes), status::SUCCESS);
            assert_eq!(host.read_blocks(3, bytes, block_bytes).unwrap(), data, "{bytes}");
            let mut on_disk = vec![0; bytes];
            disk.peek(3 * block_bytes as u64, &mut on_disk);
            assert_eq!(on_disk, data);
        }
    }
}

#[test]
fn data_come_right_through_any_shortage_of_room_and_order_of_completions() {
    for seed in 0..30 {
        let (mut host, _disk) = Host::ready();
        host.shuffle = true;
        host.random = Random(seed);
        host.bus.piece = 1 + host.random.below(300) as usize;
        let data = pattern(100 * 512, seed);
        let at = host.alloc(data.len() + 4096) + 4 * host.random.below(1024);
        host.store(at, &data);
        let back = host.alloc(data.len() + 4096) + 4 * host.random.below(1024);
        for (opcode, address) in [(WRITE, at), (READ, back)] {
            let (first, second) = host.prps(address, data.len());
            host.submit(1, Entry::blocks(opcode, 7, 100).prps(first, second));
            let mut completions = Vec::new();
            for _ in 0..100_000 {
                host.bus.write_room = host.random.below(3000) as usize;
                host.bus.read_room = host.random.below(700) as usize;
                host.bus.interrupt_room = host.random.below(2) as usize;
                host.step();
                completions.extend(host.reap(1));
                if !completions.is_empty() {
                    break;
                }
            }
            assert_eq!(completions[0].status, status::SUCCESS);
        }
        assert_eq!(host.memory(back, data.len()), data);
    }
}

#[test]
fn a_completion_and_its_interrupt_are_behind_all_data_of_the_command() {
    let (mut host, _disk) = Host::ready();
    let at = host.alloc(64 << 10);
    let (first, second) = host.prps(at, 64 << 10);
    host.bus.trace.clear();
    host.submit(1, Entry::blocks(READ, 0, 128).prps(first, second));
    for _ in 0..1000 {
        host.bus.write_room = 1000;
        host.step();
    }
    let data = |traced: &Traced| matches!(traced, Traced::Write { address, .. } if (at..at + (64 << 10)).contains(address));
    let last_data = host.bus.trace.iter().rposition(data).unwrap();
    let entry = |traced: &Traced| matches!(traced, Traced::Write { bytes: 16, .. });
    let entry = host.bus.trace.iter().position(entry).unwrap();
    let interrupt = host.bus.trace.iter().position(|traced| *traced == Traced::Interrupt(1)).unwrap();
    assert!(last_data < entry && entry < interrupt);
}

/// Commands that are refused, and with what.
#[test]
fn each_error_has_its_status() {
    let (mut host, _disk) = Host::ready();
    let at = host.alloc(4096);
    let last = (1u64 << 20) / 512;
    let block = |opcode, slba, blocks| Entry::blocks(opcode, slba, blocks).prps(at, 0);
    let rows = [
        ("no such opcode", block(0x7f, 0, 1), status::INVALID_OPCODE),
        ("Write Uncorrectable is not offered", block(0x04, 0, 1), status::INVALID_OPCODE),
        ("namespace 0", block(READ, 0, 1).nsid(0), status::INVALID_NAMESPACE),
        ("no such namespace", block(READ, 0, 1).nsid(2), status::INVALID_NAMESPACE),
        ("Read of all namespaces", block(READ, 0, 1).nsid(NSID_ALL), status::INVALID_NAMESPACE),
        ("Flush of no namespace", Entry::new(FLUSH), status::INVALID_NAMESPACE),
        ("one block beyond the end", block(READ, last, 1), status::LBA_RANGE),
        ("across the end", block(WRITE, last - 1, 2), status::LBA_RANGE),
        ("around 2^64", block(READ, u64::MAX, 2), status::LBA_RANGE),
        ("Compare beyond the end", block(COMPARE, last, 1), status::LBA_RANGE),
        ("Write Zeroes beyond the end", block(WRITE_ZEROES, last, 1), status::LBA_RANGE),
        ("Verify beyond the end", block(VERIFY, last - 1, 2), status::LBA_RANGE),
        ("fused", block(READ, 0, 1).dword(0, 0x102), status::INVALID_FIELD),
        ("SGL of metadata", block(READ, 0, 1).dword(0, 0x8002), status::INVALID_FIELD),
        ("the last block", block(READ, last - 1, 1), status::SUCCESS),
    ];
    for (row, entry, expected) in rows {
        let completion = host.command(1, entry);
        assert_eq!(completion.status, expected, "{row}");
        assert_eq!(completion.dnr, expected != status::SUCCESS, "{row}: it would not get better");
    }
}

#[test]
fn a_transfer_beyond_mdts_is_refused_but_a_verify_and_write_zeroes_are_not() {
    let disk = disk(4 << 20);
    let mut host = Host::new(Config { max_transfer_bytes: 64 << 10, ..config(&disk, 512) });
    host.enable();
    host.create_pair(1, 16);
    assert_eq!(host.identify(1, 0).unwrap()[77], 4);
    let at = host.alloc(1 << 20);
    for (opcode, expected) in [
        (READ, status::INVALID_FIELD),
        (WRITE, status::INVALID_FIELD),
        (COMPARE, status::INVALID_FIELD),
        (VERIFY, status::SUCCESS),
        (WRITE_ZEROES, status::SUCCESS),
    ] {
        let entry = Entry::blocks(opcode, 0, 129).prps(at, at);
        assert_eq!(host.io(entry), expected, "{opcode}");
    }
    assert!(host.read_blocks(0, 64 << 10, 512).is_ok());
    disk.fail(FaultOn::Read, 200 << 10..201 << 10, MediumError::Failed, 1);
    assert_eq!(host.io(Entry::blocks(VERIFY, 0, 8192)), status::READ_ERROR, "all of it is read");
    assert_eq!(host.io(Entry::blocks(VERIFY, 0, 8192)), status::SUCCESS);
}

#[test]
fn compare_tells_equal_from_different() {
    let (mut host, _disk) = Host::ready();
    let mut data = pattern(8192, 1);
    host.write_blocks(16, &data, 512);
    let at = host.alloc(8192);
    let entry = Entry::blocks(COMPARE, 16, 16).prps(at, at + 4096);
    host.store(at, &data);
    assert_eq!(host.io(entry), status::SUCCESS);
    data[8191] ^= 1;
    host.store(at, &data);
    assert_eq!(host.io(entry), status::COMPARE);
}

#[test]
fn write_zeroes_and_deallocate_clear_exactly_what_they_name() {
    let (mut host, _disk) = Host::ready();
    let data = pattern(64 * 512, 5);
    for deallocate in [0, 1 << 25] {
        host.write_blocks(0, &data, 512);
        assert_eq!(host.io(Entry::blocks(WRITE_ZEROES, 8, 16).dword(12, deallocate | 15)), status::SUCCESS);
        let mut expected = data.clone();
        expected[8 * 512..24 * 512].fill(0);
        assert_eq!(host.read_blocks(0, 64 * 512, 512).unwrap(), expected);
    }
    host.write_blocks(0, &data, 512);
    let ranges = host.alloc(4096);
    for (at, (slba, blocks)) in [(3u64, 2u32), (0, 0), (40, 10)].into_iter().enumerate() {
        let range = ranges + at as u64 * 16;
        host.store(range + 4, &blocks.to_le_bytes());
        host.store64(range + 8, &[slba]);
    }
    let dsm = Entry::new(DSM).nsid(1).prps(ranges, 0).dword(10, 2);
    assert_eq!(host.io(dsm), status::SUCCESS, "a hint");
    assert_eq!(host.read_blocks(0, 64 * 512, 512).unwrap(), data);
    assert_eq!(host.io(dsm.dword(11, 4)), status::SUCCESS);
    let mut expected = data.clone();
    expected[3 * 512..5 * 512].fill(0);
    expected[40 * 512..50 * 512].fill(0);
    assert_eq!(host.read_blocks(0, 64 * 512, 512).unwrap(), expected);
}

#[test]
fn one_bad_range_keeps_all_of_a_deallocate_from_happening() {
    let (mut host, _disk) = Host::ready();
    let data = pattern(512, 5);
    host.write_blocks(0, &data, 512);
    let ranges = host.alloc(4096);
    host.store(ranges + 4, &1u32.to_le_bytes());
    host.store(ranges + 20, &2u32.to_le_bytes());
    host.store64(ranges + 24, &[2047]);
    let dsm = Entry::new(DSM).nsid(1).prps(ranges, 0).dword(10, 1).dword(11, 4);
    assert_eq!(host.io(dsm), status::LBA_RANGE);
    assert_eq!(host.read_blocks(0, 512, 512).unwrap(), data);
}

#[test]
fn flushed_and_forced_writes_outlive_a_crash_and_so_do_all_without_a_cache() {
    for seed in 0..10 {
        let disk = Disk::new(Options { seed, ..Options::default() });
        let mut host = Host::new(config(&disk, 512));
        host.enable();
        host.create_pair(1, 16);
        host.write_blocks(0, &[1; 512], 512);
        assert_eq!(host.io(Entry::new(FLUSH).nsid(1)), status::SUCCESS);
        host.write_blocks(1, &[2; 512], 512);
        assert_eq!(host.io(Entry::new(FLUSH).nsid(NSID_ALL)), status::SUCCESS);
        let at = host.alloc(512);
        host.store(at, &[3; 512]);
        let fua = Entry::blocks(WRITE, 2, 1).prps(at, 0).dword(12, 1 << 30);
        assert_eq!(host.io(fua), status::SUCCESS);
        host.write_blocks(3, &[9; 512], 512);
        assert_eq!(host.io(Entry::blocks(WRITE_ZEROES, 3, 1).dword(12, 1 << 30)), status::SUCCESS);
        host.write_blocks(5, &[6; 512], 512);
        assert_eq!(host.admin(Entry::new(9).dword(10, 6).dword(11, 0)).status, status::SUCCESS);
        assert_eq!(disk.unflushed_blocks(), 0, "switching the cache off flushes it");
        host.write_blocks(4, &[5; 512], 512);
        disk.crash();
        let mut data = [0; 6 * 512];
        disk.peek(0, &mut data);
        assert!(data.chunks(512).map(|block| block[0]).eq([1, 2, 3, 0, 5, 6]));
    }
}

#[test]
fn errors_of_the_medium_become_statuses_log_entries_and_counters() {
    let (mut host, disk) = Host::ready();
    let rows = [
        (FaultOn::Read, MediumError::Failed, READ, status::READ_ERROR),
        (FaultOn::Write, MediumError::Failed, WRITE, status::WRITE_FAULT),
        (FaultOn::Write, MediumError::NoSpace, WRITE, status::CAPACITY),
        (FaultOn::Write, MediumError::ReadOnly, WRITE, status::WRITE_PROTECTED),
        (FaultOn::Flush, MediumError::Failed, FLUSH, status::WRITE_FAULT),
        (FaultOn::Read, MediumError::Gone, READ, status::READ_ERROR),
        (FaultOn::Read, MediumError::Failed, COMPARE, status::READ_ERROR),
        (FaultOn::Write, MediumError::Failed, WRITE_ZEROES, status::WRITE_FAULT),
    ];
    for (on, error, opcode, expected) in rows {
        disk.fail(on, 10 * 512..11 * 512, error, 1);
        let at = host.alloc(4096);
        let entry = Entry::blocks(opcode, 8, 8).prps(at, 0);
        let completion = host.command(1, entry);
        assert_eq!(completion.status, expected, "{error:?} at {opcode}");
        let log = host.log_page(1, 64).unwrap();
        assert_eq!(u16::from_le_bytes([log[8], log[9]]), 1, "SQID");
        assert_eq!(u16::from_le_bytes([log[10], log[11]]), completion.cid);
        assert_eq!(u16::from_le_bytes([log[12], log[13]]) >> 1 & 0x7ff, expected);
        if opcode != FLUSH {
            assert_eq!(log[16], 8, "LBA");
        }
    }
    assert_eq!(host.smart(160), 6, "media errors");
    assert_eq!(host.smart(176), 8, "entries of the error log");
    let warnings = host.log_page(2, 512).unwrap()[0];
    assert_eq!(warnings, 1 << 2 | 1 << 3, "reliability and read-only");
    assert_eq!(host.io(Entry::blocks(VERIFY, 0, 64)), status::SUCCESS, "it goes on");
}

#[test]
fn a_read_only_medium_is_write_protected_and_says_so() {
    let disk = Disk::new(Options { read_only: true, ..Options::default() });
    let mut host = Host::new(config(&disk, 512));
    host.enable();
    host.create_pair(1, 16);
    assert_eq!(host.identify(0, 1).unwrap()[99], 1);
    let at = host.alloc(4096);
    for opcode in [WRITE, WRITE_ZEROES] {
        assert_eq!(host.io(Entry::blocks(opcode, 0, 1).prps(at, 0)), status::WRITE_PROTECTED);
    }
    let dsm = Entry::new(DSM).nsid(1).prps(at, 0).dword(11, 4);
    assert_eq!(host.io(dsm), status::WRITE_PROTECTED);
    assert_eq!(host.io(Entry::new(FLUSH).nsid(1)), status::SUCCESS);
    assert!(host.read_blocks(0, 512, 512).is_ok());
}

#[test]
fn namespaces_do_not_see_each_other() {
    let disks = [disk(1 << 20), disk(2 << 20)];
    let namespaces = vec![
        Namespace::new(Box::new(disks[0].medium()), 512),
        Namespace::new(Box::new(disks[1].medium()), 4096),
    ];
    let mut host = Host::new(Config { namespaces, ..config(&disk(512), 512) });
    host.enable();
    host.create_pair(1, 16);
    let at = host.alloc(4096);
    host.store(at, &[7; 4096]);
    assert_eq!(host.io(Entry::blocks(WRITE, 1, 1).nsid(2).prps(at, 0)), status::SUCCESS);
    let mut data = [0; 4096];
    disks[1].peek(4096, &mut data);
    assert_eq!(data, [7; 4096]);
    disks[0].peek(4096, &mut data);
    assert_eq!(data, [0; 4096]);
    assert_eq!(host.io(Entry::blocks(READ, 511, 1).nsid(2).prps(at, 0)), status::SUCCESS);
    assert_eq!(host.io(Entry::blocks(READ, 512, 1).nsid(2).prps(at, 0)), status::LBA_RANGE);
}

#[test]
fn more_commands_than_bufs_all_come_through() {
    let disk = Disk::new(Options {
        bytes: 4 << 20,
        latency: Latency { read_ns: 1000, write_ns: 5000, flush_ns: 0, jitter_ns: 3000 },
        ..Options::default()
    });
    let mut host = Host::new(Config {
        large_buffers: 2,
        small_buffers: 2,
        small_buffer_bytes: 4096,
        ..config(&disk, 512)
    });
    host.enable();
    host.create_pair(1, 64);
    let data = pattern(60 * 8192, 9);
    let at = host.alloc(data.len());
    host.store(at, &data);
    for round in 0..60u64 {
        let address = at + round * 8192;
        // Compare needs two Bufs at once, among others that need one.
        let opcode = if round % 7 == 3 { COMPARE } else { WRITE };
        host.put(1, Entry::blocks(opcode, round * 16, 16).prps(address, address + 4096));
    }
    host.ring(1);
    host.run();
    let completions = host.reap(1);
    assert_eq!(completions.len(), 60);
    assert_eq!(completions.iter().filter(|completion| completion.status == status::COMPARE).count(), 9);
}

#[test]
fn commands_that_wait_for_the_largest_bufs_hold_up_no_smaller_ones() {
    let disk = Disk::new(Options {
        bytes: 4 << 20,
        latency: Latency { read_ns: 1_000, write_ns: 1_000_000, flush_ns: 0, jitter_ns: 0 },
        ..Options::default()
    });
    let config = config(&disk, 512).with_max_transfer(16 << 20);
    assert_eq!(config.large_buffers, 2);
    let mut host = Host::new(config);
    host.enable();
    host.create_pair(1, 32);
    let data = pattern(2 << 20, 5);
    let at = host.alloc(data.len());
    host.store(at, &data);
    let prps = |host: &mut Host, opcode, bytes: usize| {
        let (first, second) = host.prps(at, bytes);
        Entry::blocks(opcode, 0, bytes as u32 / 512).prps(first, second)
    };
    // Compare needs both of the largest at once.
    let large = [WRITE, WRITE, WRITE, COMPARE, WRITE].map(|opcode| {
        let entry = prps(&mut host, opcode, data.len());
        host.put(1, entry)
    });
    let smaller = [1 << 20, 4096].map(|bytes| {
        let entry = prps(&mut host, COMPARE, bytes);
        host.put(1, entry)
    });
    host.ring(1);
    host.run();
    let completions = host.reap(1);
    assert_eq!(completions.len(), large.len() + smaller.len());
    let order = |cid: u16| completions.iter().position(|completion| completion.cid == cid).unwrap();
    for cid in smaller {
        assert!(large.iter().all(|&large| order(cid) < order(large)), "{completions:?}");
    }
    for cid in large {
        assert_eq!(completions[order(cid)].status, status::SUCCESS);
    }
}

#[test]
fn counters_of_reads_and_writes_are_kept() {
    let (mut host, _disk) = Host::ready();
    let before = host.smart(80);
    host.write_blocks(0, &pattern(512 * 1024, 1), 512);
    host.write_blocks(0, &pattern(512 * 1024, 1), 512);
    host.read_blocks(0, 512, 512).unwrap();
    assert_eq!((host.smart(80) - before, host.smart(64)), (2, 1), "commands");
    assert_eq!((host.smart(48), host.smart(32)), (3, 1), "thousands of 512-byte units");
}
