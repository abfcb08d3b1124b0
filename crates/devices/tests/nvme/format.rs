//! Format NVM.

use crate::harness::*;
use etherslot_devices::nvme::{Config, Namespace};
use etherslot_storage::MediumError;
use etherslot_storage::memory::{Disk, FaultOn, Latency, Options};
use std::cell::RefCell;
use std::rc::Rc;

fn format(nsid: u32, dword10: u32) -> Entry {
    Entry::new(0x80).nsid(nsid).dword(10, dword10)
}

#[test]
fn it_erases_durably_and_changes_the_block_size() {
    let disk = disk(1 << 20);
    let told = Rc::new(RefCell::new(Vec::new()));
    let mut config = config(&disk, 512);
    let teller = told.clone();
    config.namespaces[0].formatted = Some(Box::new(move |bytes| teller.borrow_mut().push(bytes)));
    let mut host = Host::new(config);
    host.enable();
    host.create_pair(1, 16);
    host.admin(Entry::new(9).dword(10, 0x0b).dword(11, 0x100));
    let event = host.submit(0, Entry::new(0x0c));
    host.write_blocks(5, &[9; 4096], 512);
    assert_eq!(host.admin(format(1, 1 << 9)).status, status::SUCCESS, "the same format");
    assert_eq!(host.read_blocks(5, 512, 512).unwrap(), [0; 512]);
    assert_eq!(disk.unflushed_blocks(), 0);
    host.submit(0, format(1, 1));
    host.run();
    let completions = host.reap(0);
    assert_eq!(completions[0].status, status::SUCCESS);
    assert_eq!((completions[1].cid, completions[1].result), (event, 0x0004_0002), "namespace changed");
    assert_eq!(host.log_page(4, 4096).unwrap()[..4], [1, 0, 0, 0]);
    let namespace = host.identify(0, 1).unwrap();
    assert_eq!((namespace[0], namespace[1], namespace[26]), (0, 1, 1), "256 blocks, LBAF 1");
    assert_eq!(host.io(Entry::blocks(READ, 256, 1).prps(0x8000, 0)), status::LBA_RANGE);
    assert_eq!(host.write_blocks(255, &[3; 4096], 4096), status::SUCCESS);
    assert_eq!(*told.borrow(), [4096]);
}

#[test]
fn what_it_can_not_do_it_refuses() {
    let disks = [disk(1 << 20), Disk::new(Options { read_only: true, ..Options::default() })];
    let namespaces = disks.iter().map(|disk| Namespace::new(Box::new(disk.medium()), 512)).collect();
    let mut host = Host::new(Config { namespaces, ..config(&disk(512), 512) });
    host.enable();
    for (row, entry, expected) in [
        ("no such LBA format", format(1, 2), status::FORMAT),
        ("metadata", format(1, 1 << 4), status::FORMAT),
        ("protection information", format(1, 1 << 5), status::FORMAT),
        ("cryptographic erase", format(1, 2 << 9), status::INVALID_FIELD),
        ("no such namespace", format(3, 0), status::INVALID_NAMESPACE),
        ("namespace 0", format(0, 0), status::INVALID_NAMESPACE),
        ("a read-only one", format(2, 0), status::WRITE_PROTECTED),
        ("all, one of them read-only", format(NSID_ALL, 0), status::WRITE_PROTECTED),
    ] {
        assert_eq!(host.admin(entry).status, expected, "{row}");
    }
}

#[test]
fn all_namespaces_can_be_formatted_at_once() {
    let disks = [disk(1 << 20), disk(2 << 20)];
    for disk in &disks {
        disk.poke(0, &[1; 512]);
    }
    let namespaces = disks.iter().map(|disk| Namespace::new(Box::new(disk.medium()), 512)).collect();
    let mut host = Host::new(Config { namespaces, ..config(&disk(512), 512) });
    host.enable();
    assert_eq!(host.admin(format(NSID_ALL, 1)).status, status::SUCCESS);
    for (disk, nsid) in disks.iter().zip(1..) {
        let mut data = [1; 512];
        disk.peek(0, &mut data);
        assert_eq!(data, [0; 512]);
        assert_eq!(host.identify(0, nsid).unwrap()[26], 1);
    }
}

#[test]
fn it_waits_for_commands_under_way_and_holds_off_new_ones() {
    let latency = Latency { read_ns: 50_000, write_ns: 90_000, flush_ns: 10_000, jitter_ns: 0 };
    let disk = Disk::new(Options { latency, ..Options::default() });
    let mut host = Host::new(config(&disk, 512));
    host.enable();
    host.create_pair(1, 16);
    let at = host.alloc(4096);
    host.submit(1, Entry::blocks(WRITE, 0, 8).prps(at, 0));
    host.steps(5);
    host.submit(0, format(1, 0));
    host.steps(5);
    host.submit(1, Entry::blocks(READ, 0, 8).prps(at, 0));
    host.steps(5);
    let refused = host.reap(1);
    assert_eq!((refused[0].status, refused[0].dnr), (status::FORMAT_IN_PROGRESS, false));
    host.submit(0, Entry::new(0x0a).dword(10, 6));
    host.steps(5);
    assert_eq!(host.reap(0)[0].result, 1, "other commands go on");
    host.run();
    assert_eq!(host.reap(1)[0].status, status::SUCCESS);
    assert_eq!(host.reap(0)[0].status, status::SUCCESS);
    assert!(host.read_blocks(0, 4096, 512).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn one_that_fails_leaves_the_namespace_usable() {
    let (mut host, disk) = Host::ready();
    disk.fail(FaultOn::Write, 0..1, MediumError::Failed, 1);
    assert_eq!(host.admin(format(1, 1)).status, status::WRITE_FAULT);
    assert_eq!(host.write_blocks(0, &[1; 512], 512), status::SUCCESS, "still of 512 bytes");
    assert_eq!(host.admin(format(1, 1)).status, status::SUCCESS);
}
