//! Start, reset and shutdown, at any moment.

use crate::harness::*;
use etherslot_devices::nvme::Config;
use etherslot_pci::function::{Function, ResetKind};
use etherslot_storage::memory::{Disk, Latency, Options};
use etherslot_storage::{Done, Info, Medium, MediumError, Request};
use std::cell::RefCell;
use std::rc::Rc;

const RDY: u32 = 1;
const CFS: u32 = 2;

fn slow(seed: u64) -> (Host, Disk) {
    let disk = Disk::new(Options {
        latency: Latency { read_ns: 50_000, write_ns: 80_000, flush_ns: 200_000, jitter_ns: 20_000 },
        seed,
        ..Options::default()
    });
    let mut host = Host::new(Config { large_buffers: 2, small_buffers: 3, ..config(&disk, 512) });
    host.enable();
    host.create_pair(1, 32);
    (host, disk)
}

#[test]
fn wrong_settings_end_in_controller_fatal_status_and_a_reset_mends_them() {
    let disk = disk(1 << 20);
    for (row, cc, aqa) in [
        ("pages of 8 KiB", 0x0046_0081, 0x001f_001f),
        ("an unknown command set", 0x0046_0011, 0x001f_001f),
        ("weighted round robin", 0x0046_0801, 0x001f_001f),
        ("no Admin Submission Queue", 0x0046_0001, 0x001f_0000),
        ("no Admin Completion Queue", 0x0046_0001, 0x0000_001f),
    ] {
        let mut host = Host::new(config(&disk, 512));
        host.write32(0x24, aqa);
        host.write32(0x14, cc);
        host.run();
        assert_eq!(host.csts(), CFS, "{row}");
        host.disable();
        assert_eq!(host.csts(), 0, "{row}");
        host.enable();
        assert!(host.identify(1, 0).is_ok(), "{row}");
    }
}

#[test]
fn a_queue_that_can_not_be_read_is_fatal() {
    let (mut host, _disk) = Host::ready();
    host.write32(0x14, 0x0046_0000);
    host.nvme.bar_write(0, 0x28, &(1u64 << 40).to_le_bytes());
    host.write32(0x14, 0x0046_0001);
    host.run();
    assert_eq!(host.csts(), RDY);
    host.write32(0x1000, 1);
    host.run();
    assert_eq!(host.csts() & CFS, CFS);
    host.disable();
    host.enable();
    assert!(host.identify(1, 0).is_ok());
}

#[test]
fn doorbells_before_ready_and_odd_accesses_do_nothing() {
    let disk = disk(1 << 20);
    let mut host = Host::new(config(&disk, 512));
    host.write32(0x1000, 3);
    host.run();
    assert_eq!(host.csts(), 0);
    host.enable();
    assert_eq!(host.smart(176), 0);
    host.nvme.bar_write(0, 0x14, &[0]);
    host.nvme.bar_write(0, 0x15, &[0, 0]);
    host.nvme.bar_write(0, 0x1001, &[1, 2, 3, 4, 5]);
    host.run();
    assert_eq!(host.csts(), RDY);
    let mut data = [0xee; 7];
    host.nvme.bar_read(0, 0x09, &mut data);
    assert_eq!(data, [0x04, 0x01, 0x00, 0, 0, 0, 0], "VS from its second byte on, INTMS");
    let mut page = vec![0xee; 4096];
    host.nvme.bar_read(0, 0x1000, &mut page);
    assert!(page.iter().all(|byte| *byte == 0), "doorbells are write-only");
}

/// Keeps count of what a medium has in flight.
struct Watched {
    inner: Box<dyn Medium>,
    in_flight: Rc<RefCell<u32>>,
}

impl Medium for Watched {
    fn info(&self) -> Info {
        self.inner.info()
    }

    fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Request> {
        self.inner.submit(now_ns, request)?;
        *self.in_flight.borrow_mut() += 1;
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, done: &mut dyn FnMut(Done)) -> bool {
        let in_flight = self.in_flight.clone();
        self.inner.poll(now_ns, &mut |one| {
            *in_flight.borrow_mut() -= 1;
            done(one);
        })
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.inner.deadline_ns()
    }
}

#[test]
fn a_reset_at_any_moment_leaves_nothing_of_the_former_life() {
    for seed in 0..150 {
        let disk = Disk::new(Options {
            latency: Latency { read_ns: 50_000, write_ns: 80_000, flush_ns: 200_000, jitter_ns: 20_000 },
            seed,
            depth: 3,
            ..Options::default()
        });
        let in_flight = Rc::new(RefCell::new(0));
        let mut config = config(&disk, 512);
        let watched = Watched { inner: Box::new(disk.medium()), in_flight: in_flight.clone() };
        config.namespaces[0].medium = Box::new(watched);
        let mut host = Host::new(Config { large_buffers: 2, small_buffers: 3, ..config });
        host.random = Random(seed);
        host.enable();
        host.create_pair(1, 32);
        for round in 0..20u64 {
            let bytes = [512, 4096, 40960][round as usize % 3];
            let at = host.alloc(bytes);
            let (first, second) = host.prps(at, bytes);
            let opcode = [READ, WRITE, COMPARE, FLUSH, VERIFY][host.random.below(5) as usize];
            host.put(1, Entry::blocks(opcode, round, bytes as u32 / 512).prps(first, second));
        }
        host.put(0, Entry::new(0x80).nsid(1));
        host.ring(1);
        if seed % 5 == 0 {
            host.ring(0);
        }
        for _ in 0..host.random.below(40) {
            host.bus.write_room = host.random.below(5000) as usize;
            host.bus.read_room = host.random.below(5000) as usize;
            host.step();
            host.bus.now_ns += host.random.below(20_000);
        }
        (host.bus.write_room, host.bus.read_room) = (usize::MAX, usize::MAX);
        let kind = seed % 3;
        match kind {
            0 => host.write32(0x14, 0x0046_0000),
            1 => host.function_reset(ResetKind::FunctionLevel),
            _ => host.write32(0x20, 0x4e56_4d65),
        }
        // The host may be hasty.
        if seed % 2 == 0 {
            host.write32(0x24, 31 << 16 | 31);
            host.nvme.bar_write(0, 0x28, &0x1000u64.to_le_bytes());
            host.nvme.bar_write(0, 0x30, &0x2000u64.to_le_bytes());
            host.write32(0x14, 0x0046_0001);
            for _ in 0..1000 {
                if host.pending_reads() == 0 && *in_flight.borrow() == 0 {
                    break;
                }
                let quiet = host.csts() & RDY == 0 || kind == 0 || host.pending_reads() > 0;
                assert!(quiet || kind == 2, "ready with {} in flight", in_flight.borrow());
                host.step();
                host.bus.now_ns += 5_000;
            }
        }
        host.run();
        assert_eq!(*in_flight.borrow(), 0);
        host.bus.trace.clear();
        host.disable();
        host.enable();
        host.create_pair(1, 32);
        host.run();
        assert!(host.reap(1).is_empty(), "a completion of the former life");
        // Every Buf and slot is there again.
        let data = pattern(32 << 10, seed);
        assert_eq!(host.write_blocks(0, &data, 512), status::SUCCESS);
        assert_eq!(host.read_blocks(0, 32 << 10, 512).unwrap(), data);
        for _ in 0..31 {
            host.put(1, Entry::blocks(READ, 0, 8).prps(0x8000, 0));
        }
        host.ring(1);
        host.run();
        assert_eq!(host.reap(1).len(), 31);
    }
}

#[test]
fn ready_goes_only_when_the_last_write_has_ended() {
    let (mut host, _disk) = slow(3);
    let at = host.alloc(4096);
    host.submit(1, Entry::blocks(WRITE, 0, 8).prps(at, 0));
    host.steps(10);
    let due = host.nvme.deadline_ns().unwrap();
    host.write32(0x14, 0x0046_0000);
    assert_eq!(host.csts() & RDY, RDY, "a write is still under way");
    host.bus.now_ns = due;
    host.step();
    assert_eq!(host.csts() & RDY, 0);
    assert!(host.peek(1).is_none(), "and nobody is told of it");
}

#[test]
fn a_reset_with_nothing_under_way_is_done_at_once() {
    let (mut host, _disk) = Host::ready();
    host.write32(0x14, 0x0046_0000);
    assert_eq!(host.csts(), 0);
    host.write32(0x14, 0x0046_0001);
    assert_eq!(host.csts(), RDY);
}

#[test]
fn a_shutdown_flushes_the_medium_and_then_says_complete() {
    for shn in [1 << 14, 2 << 14] {
        let (mut host, disk) = slow(9);
        host.write_blocks(0, &[7; 4096], 512);
        assert!(disk.unflushed_blocks() > 0);
        host.write32(0x14, 0x0046_0001 | shn);
        host.step();
        assert_eq!(host.csts() >> 2 & 3, 1, "occurring");
        host.run();
        assert_eq!(host.csts() >> 2 & 3, 2, "complete");
        assert_eq!(disk.unflushed_blocks(), 0);
        host.submit(1, Entry::new(FLUSH).nsid(1));
        host.run();
        assert!(host.reap(1).is_empty(), "deaf");
        host.disable();
        assert_eq!(host.csts(), 0);
        host.enable();
        assert_eq!(host.smart(144), 0, "no unsafe shutdown");
    }
}

#[test]
fn a_shutdown_waits_for_commands_but_not_for_ever() {
    let (mut host, disk) = slow(9);
    let at = host.alloc(4096);
    host.store(at, &[7; 4096]);
    host.submit(1, Entry::blocks(WRITE, 0, 8).prps(at, 0));
    host.step();
    host.write32(0x14, 0x0046_4001);
    host.run();
    assert_eq!(host.reap(1)[0].status, status::SUCCESS);
    assert_eq!(host.csts() >> 2 & 3, 2);
    let mut data = [0; 512];
    disk.peek(0, &mut data);
    assert_eq!(data, [7; 512]);

    let (mut host, _disk) = slow(9);
    host.submit(1, Entry::blocks(READ, 0, 8).prps(at, 0));
    host.step();
    host.bus.write_room = 0;
    host.write32(0x14, 0x0046_4001);
    for _ in 0..100 {
        host.step();
        host.bus.now_ns += 10_000_000;
    }
    assert_eq!(host.csts() >> 2 & 3, 2);
}

#[test]
fn a_shutdown_that_waits_for_a_read_without_end_has_no_time_of_its_own() {
    let (mut host, _disk) = Host::ready();
    host.bus.hold_reads = true;
    host.submit(1, Entry::blocks(READ, 0, 8));
    host.step();
    host.write32(0x14, 0x0046_0000);
    host.write32(0x14, 0x0046_4000);
    host.bus.now_ns += 1_000_000_000;
    host.step();
    assert_eq!((host.csts() & RDY, host.nvme.deadline_ns()), (RDY, None));
}

#[test]
fn a_controller_that_is_not_enabled_can_be_shut_down() {
    let disk = disk(1 << 20);
    let mut host = Host::new(config(&disk, 512));
    host.write32(0x14, 0x0046_4000);
    host.run();
    assert_eq!(host.csts(), 2 << 2);
    host.write32(0x14, 0);
    assert_eq!(host.csts(), 0);
    host.enable();
}

#[test]
fn a_subsystem_reset_shows_in_nssro_until_it_is_cleared() {
    let (mut host, _disk) = Host::ready();
    host.write32(0x20, 0x4e56_4d65);
    host.run();
    assert_eq!(host.csts(), 1 << 4);
    assert_eq!((host.read32(0x14), host.read32(0x24)), (0, 0));
    host.write32(0x1c, 1 << 4);
    host.enable();
    assert_eq!(host.smart(144), 1, "an unsafe shutdown");
}

#[test]
fn function_level_reset_clears_registers_and_features_but_not_the_medium() {
    let (mut host, _disk) = Host::ready();
    host.write_blocks(0, &[5; 512], 512);
    host.admin(Entry::new(9).dword(10, 0x0b).dword(11, 0x100));
    host.function_reset(ResetKind::FunctionLevel);
    host.run();
    assert_eq!((host.csts(), host.read32(0x14), host.read32(0x28)), (0, 0, 0));
    host.enable();
    assert_eq!(host.admin(Entry::new(0x0a).dword(10, 0x0b)).result, 0);
    host.create_pair(1, 16);
    assert_eq!(host.read_blocks(0, 512, 512).unwrap(), [5; 512]);
    assert_eq!(host.smart(144), 0);
}

#[test]
fn without_bus_mastering_nothing_leaves_and_with_it_all_goes_on() {
    let (mut host, _disk) = Host::ready();
    host.bus.master = false;
    host.submit(1, Entry::new(FLUSH).nsid(1));
    host.run();
    assert!(host.reap(1).is_empty());
    host.bus.master = true;
    host.run();
    assert_eq!(host.reap(1).len(), 1);
}

#[test]
fn a_medium_that_is_gone_does_not_keep_the_controller_from_being_shut_down() {
    let (mut host, disk) = Host::ready();
    disk.fail(etherslot_storage::memory::FaultOn::Flush, 0..0, MediumError::Gone, u32::MAX);
    host.write32(0x14, 0x0046_4001);
    host.run();
    assert_eq!(host.csts() >> 2 & 3, 2);
}
