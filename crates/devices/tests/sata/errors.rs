//! Errors of the medium, as the host is told of them (ACS-3, 6; SATA 3.x, 13.6.3).

use crate::ahci::slow;
use crate::host::{Command, DATA, Host};
use etherslot_pci::function::Function;
use etherslot_storage::MediumError;
use etherslot_storage::memory::FaultOn;

#[test]
fn an_error_of_the_medium_is_uncorrectable_data_or_a_device_fault() {
    let (mut host, disk) = Host::ready();
    disk.fail(FaultOn::Read, 10 * 512..11 * 512, MediumError::Failed, u32::MAX);
    disk.fail(FaultOn::Write, 10 * 512..11 * 512, MediumError::Failed, u32::MAX);
    let read = host.command(&Command::dma(false, 8, 4).data(DATA, 2048));
    assert_eq!((read.status, read.error, read.lba), (0x51, 0x40, 8));
    assert_eq!(host.port(0x38), 1 << 3, "the command stays in PxCI");
    host.restart();
    assert_eq!(host.failed(&Command::new(0x42).lba(8).count(4)), 0x40);
    let write = host.command(&Command::dma(true, 8, 4).data(DATA, 2048));
    assert_eq!((write.status, write.error), (0x71, 0x04));
    host.restart();
    host.good(&Command::dma(true, 11, 4).data(DATA, 2048));
    disk.fail(FaultOn::Flush, 0..1, MediumError::Failed, 1);
    assert_eq!(host.failed(&Command::new(0xea)), 0x04);
    host.good(&Command::new(0xea));
}

#[test]
fn of_a_large_read_the_part_that_failed_is_told() {
    let (mut host, disk) = Host::ready();
    disk.fail(FaultOn::Read, 3000 * 512..3001 * 512, MediumError::Failed, u32::MAX);
    let read = host.command(&Command::dma(false, 0, 4096).data(DATA, 2 << 20));
    assert_eq!((read.error, read.lba), (0x40, 2048));
}

#[test]
fn a_failed_queued_command_ends_all_and_its_log_tells_which_it_was() {
    let (mut host, disk) = Host::ready();
    disk.fail(FaultOn::Read, 0x30 * 512..0x31 * 512, MediumError::Failed, 1);
    host.bus.hold_reads = true;
    for slot in [4, 9, 17] {
        let lba = if slot == 9 { 0x30 } else { 0x100 };
        host.issue(slot, &Command::queued(false, slot, lba, 8).data(DATA, 4096));
    }
    host.bus.hold_reads = false;
    host.run();
    assert_ne!(host.port(0x34) & 1 << 9, 0, "PxSACT");
    assert_ne!(host.port(0x10) & 1 << 30, 0, "PxIS.TFES");
    assert_eq!(host.port(0x20), 0x4051, "PxTFD");
    host.restart();
    assert_eq!(host.failed(&Command::new(0xec).data(DATA, 512)), 0x04, "nothing else before the log");
    let log = host.read_log(0x10);
    assert_eq!((log[0], log[2], log[3]), (9, 0x51, 0x40));
    assert_eq!((log[4], log[12]), (0x30, 9 << 3));
    assert_eq!(log.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)), 0);
    assert_eq!(host.read_log(0x10)[0], 0, "it is told once");
    host.identify();
    host.issue(9, &Command::queued(false, 9, 0x30, 8).data(DATA, 4096));
    host.run();
    assert_eq!(host.port(0x34), 0);
}

/// The disk refuses what comes after the error; that is no other error to tell of.
#[test]
fn the_log_tells_of_the_first_failure_whenever_another_command_comes() {
    for moment in 0..12 {
        let (mut host, disk) = slow();
        disk.fail(FaultOn::Read, 0x30 * 512..0x31 * 512, MediumError::Failed, 1);
        host.issue(9, &Command::queued(false, 9, 0x30, 8).data(DATA, 4096));
        for _ in 0..20 {
            host.step();
        }
        host.issue(17, &Command::queued(false, 17, 0x100, 8).data(DATA + 4096, 4096));
        for _ in 0..moment {
            host.step();
        }
        host.bus.now_ns = host.ahci.deadline_ns().expect("the medium is at it");
        host.run();
        assert_ne!(host.port(0x10) & 1 << 30, 0, "PxIS.TFES");
        host.restart();
        let log = host.read_log(0x10);
        assert_eq!((log[0], log[3]), (9, 0x40), "moment {moment}");
    }
}

#[test]
fn another_command_among_queued_ones_ends_all() {
    let (mut host, _) = Host::ready();
    host.issue(0, &Command::queued(true, 0, 0, 8).data(DATA, 4096));
    host.issue(1, &Command::new(0xec).data(DATA + 4096, 512));
    host.bus.hold_reads = true;
    host.run();
    host.bus.hold_reads = false;
    host.run();
    assert_ne!(host.port(0x10) & 1 << 30, 0, "the write could not have ended before the other came");
    host.restart();
    assert_eq!(host.read_log(0x10)[0], 0x80, "not a queued command");
}

#[test]
fn the_directory_names_the_log_of_queued_errors() {
    let (mut host, _) = Host::ready();
    let page = host.read_log(0);
    assert_eq!((page[0], page[0x20]), (1, 1));
    assert_eq!(page.iter().filter(|byte| **byte != 0).count(), 2);
}

#[test]
fn a_queued_command_beyond_the_end_is_told_by_the_log() {
    let (mut host, _) = Host::ready();
    host.issue(6, &Command::queued(false, 6, 8190, 8).data(DATA, 4096));
    host.run();
    assert_ne!(host.port(0x10) & 1 << 30, 0);
    host.restart();
    let log = host.read_log(0x10);
    assert_eq!((log[0], log[3]), (6, 0x10));
}
