//! The rules of AHCI 1.3.1.

use crate::bus::Traced;
use crate::host::{Command, DATA, Host, disk, drive, pattern};
use etherslot_pci::function::{Function, InterruptMode, ResetKind};
use etherslot_storage::memory::{Disk, Latency, Options};

#[test]
fn capabilities_say_what_is_there() {
    let disk = disk(1 << 20);
    let mut host = Host::new(vec![Some(drive(&disk)), None, None]);
    let cap = host.read32(0);
    assert_eq!((cap & 31, cap >> 8 & 31), (2, 31), "three ports, 32 slots");
    assert_eq!(cap & (1 << 31 | 1 << 30 | 1 << 18), 1 << 31 | 1 << 30 | 1 << 18, "64 bits, NCQ, AHCI only");
    assert_eq!(host.read32(0x0c), 0b111);
    assert_eq!(host.read32(0x10), 0x0001_0301);
    assert_eq!(host.read32(0x04), 1 << 31);
    assert_eq!(host.read32(0x28), 0, "no BIOS");
    host.write32(0x0c, 0);
    assert_eq!(host.read32(0x0c), 0b111);
}

#[test]
fn a_disk_tells_its_signature_and_an_empty_port_nothing() {
    let disk = disk(1 << 20);
    let mut host = Host::new(vec![Some(drive(&disk)), None]);
    assert_eq!((host.port(0x20), host.port(0x28)), (0x80, 0x133), "busy, 6 Gbit/s");
    host.start();
    assert_eq!((host.port(0x20), host.port(0x24)), (0x0150, 0x101));
    assert_eq!(host.received(0x40)[..4], [0x34, 0, 0x50, 1]);
    assert_eq!((host.read32(0x1a8), host.read32(0x1a4), host.read32(0x1a0)), (0, u32::MAX, 0x7f));
}

#[test]
fn a_comreset_takes_the_port_down_and_up_again() {
    let (mut host, _) = Host::ready();
    host.set_port(0x18, 0x16);
    host.set_port(0x2c, 0x301);
    assert_eq!((host.port(0x28), host.port(0x20)), (0, 0x7f));
    host.run();
    host.set_port(0x2c, 0x300);
    assert_eq!(host.port(0x28), 0x133);
    host.run();
    assert_eq!((host.port(0x20) & 0xff, host.port(0x24)), (0x50, 0x101));
    assert_ne!(host.port(0x30) & 1 << 26, 0, "PxSERR.DIAG.X");
    assert_ne!(host.port(0x10) & 1 << 6, 0, "PxIS.PCS follows it");
    host.set_port(0x10, u32::MAX);
    assert_ne!(host.port(0x10) & 1 << 6, 0);
    host.set_port(0x30, u32::MAX);
    assert_eq!(host.port(0x10), 0);
    host.set_port(0x18, 0x17);
    host.identify();
    host.set_port(0x2c, 0x304);
    assert_eq!(host.port(0x28), 4, "the Phy is off");
}

#[test]
fn a_soft_reset_is_two_control_fises() {
    let (mut host, _) = Host::ready();
    let mut on = Command::new(0);
    (on.fis[1], on.fis[15]) = (0, 4);
    host.issue(0, &on);
    host.run();
    assert_eq!((host.port(0x38), host.port(0x20) & 0x80), (0, 0x80), "busy until it ends");
    let mut off = on.clone();
    off.fis[15] = 0;
    host.issue(1, &off);
    host.run();
    assert_eq!((host.port(0x38), host.port(0x20), host.port(0x24)), (0, 0x150, 0x101));
    host.identify();
}

#[test]
fn a_reset_of_the_controller_forgets_its_registers() {
    let (mut host, _) = Host::ready();
    host.write32(0x04, 1 << 31 | 3);
    assert_eq!(host.read32(0x04), 1 << 31, "done, interrupts off");
    assert_eq!((host.port(0x00), host.port(0x14), host.port(0x18) & 0x11), (0, 0, 0));
    host.run();
    host.start();
    host.identify();
}

#[test]
fn the_bytes_moved_are_counted_in_the_command_header() {
    let (mut host, _) = Host::ready();
    host.good(&Command::dma(false, 0, 9).data(DATA, 9 * 512));
    assert_eq!(host.memory(0x1000 + 3 * 32 + 4, 4), (9u32 * 512).to_le_bytes());
}

#[test]
fn a_region_can_ask_for_an_interrupt() {
    let (mut host, _) = Host::ready();
    host.good(&Command::dma(false, 0, 1).data(DATA, 512));
    assert_eq!(host.port(0x10) & 1 << 5, 0);
    host.good(&Command::dma(false, 0, 1).data(DATA, 512 | 1 << 31));
    assert_ne!(host.port(0x10) & 1 << 5, 0, "PxIS.DPS");
}

#[test]
fn an_interrupt_follows_its_data_and_fis() {
    let (mut host, _) = Host::ready();
    host.bus.trace.clear();
    host.good(&Command::dma(false, 0, 8).data(DATA, 4096));
    let written: usize = host
        .bus
        .trace
        .iter()
        .take_while(|traced| !matches!(traced, Traced::Interrupt(_)))
        .map(|traced| if let Traced::Write { bytes, .. } = traced { *bytes } else { 0 })
        .sum();
    assert_eq!(written, 4096 + 4 + 20, "data, PRDBC, Register FIS");
    assert_eq!(host.bus.sent, [0]);
}

#[test]
fn with_messages_enough_each_port_has_its_own() {
    let disks = [disk(1 << 20), disk(1 << 20)];
    for (mode, expected) in [(InterruptMode::Msi(2), 1), (InterruptMode::Msi(1), 0)] {
        let mut host = Host::new(disks.iter().map(|disk| Some(drive(disk))).collect());
        host.bus.mode = mode;
        host.write32(0x04, 1 << 31 | 2);
        host.run();
        assert_eq!(host.read32(0x04) & 4 != 0, expected == 0, "GHC.MRSM");
        host.write32(0x1b0, u32::MAX);
        host.write32(0x194, 1 << 22 | 1 << 6);
        assert!(host.ahci.unplug(1).is_some());
        host.run();
        assert_eq!(host.bus.sent, [expected]);
    }
}

#[test]
fn inta_is_a_level_that_falls_when_all_is_acknowledged() {
    let (mut host, _) = Host::ready();
    host.bus.mode = InterruptMode::IntX;
    host.good(&Command::dma(false, 0, 1).data(DATA, 512));
    assert!(host.bus.intx);
    host.write32(0x08, 1);
    host.run();
    assert!(host.bus.intx, "the port still tells it");
    host.set_port(0x10, u32::MAX);
    host.run();
    assert!(host.bus.intx, "IS keeps it");
    host.write32(0x08, 1);
    host.run();
    assert!(!host.bus.intx);
    host.good(&Command::dma(false, 0, 1).data(DATA, 512));
    host.write32(0x04, 1 << 31);
    host.run();
    assert!(!host.bus.intx, "GHC.IE");
}

#[test]
fn memory_that_is_not_there_is_a_bus_error() {
    let (mut host, _) = Host::ready();
    for (command, expected) in [
        (Command::dma(true, 0, 1).data(1 << 40, 512), 1 << 29),
        (Command::dma(true, 0, 2).data(DATA, 512), 1 << 27),
        (Command::dma(false, 0, 2).data(DATA, 512), 1 << 24 | 1 << 27),
    ] {
        host.issue(3, &command);
        host.run();
        assert_eq!(host.port(0x10) & 0x3f00_0000, expected, "{command:x?}");
        assert_eq!(host.port(0x38), 1 << 3);
        host.restart();
        host.identify();
    }
    // The list, then the table.
    for at in [4u64, 0x1000 + 3 * 32 + 12] {
        host.put(3, &Command::new(0xec).data(DATA, 512));
        if at == 4 {
            host.set_port(4, 0x100);
        } else {
            host.store(at, &1u32.to_le_bytes());
        }
        host.set_port(0x38, 1 << 3);
        host.run();
        assert_ne!(host.port(0x10) & 1 << 29, 0, "PxIS.HBFS");
        host.set_port(4, 0);
        host.restart();
    }
    host.identify();
}

#[test]
fn a_fis_that_is_none_stops_the_list() {
    let (mut host, _) = Host::ready();
    let mut command = Command::new(0xec).data(DATA, 512);
    command.fis[0] = 0x46;
    host.issue(0, &command);
    host.run();
    assert_ne!(host.port(0x10) & 1 << 27, 0, "PxIS.IFS");
    host.restart();
    host.identify();
}

#[test]
fn commands_wait_for_start_and_go_with_it() {
    let (mut host, _) = Host::ready();
    host.set_port(0x18, 0x16);
    host.issue(0, &Command::new(0xec).data(DATA, 512));
    assert_eq!(host.port(0x38), 0, "PxCI can be set only while ST is");
    host.set_port(0x18, 0x17);
    assert_eq!(host.port(0x18) & 1 << 15, 1 << 15, "PxCMD.CR");
    host.identify();
}

/// A disk that takes its time.
pub(crate) fn slow() -> (Host, Disk) {
    let latency = Latency { read_ns: 1_000_000, write_ns: 1_000_000, ..Latency::default() };
    let disk = Disk::new(Options { bytes: 1 << 20, latency, ..Options::default() });
    let mut host = Host::new(vec![Some(drive(&disk))]);
    host.start();
    (host, disk)
}

#[test]
fn after_a_reset_nothing_begins_before_all_of_the_former_life_has_ended() {
    let (mut host, disk) = slow();
    host.store(DATA, &pattern(1, 4096));
    host.issue(0, &Command::dma(true, 0, 8).data(DATA, 4096));
    for _ in 0..20 {
        host.step();
    }
    host.set_port(0x18, 0x16);
    host.set_port(0x2c, 0x301);
    host.set_port(0x2c, 0x300);
    host.step();
    assert_eq!(host.port(0x20) & 0x80, 0x80, "busy as long as the old write is under way");
    host.run();
    assert_eq!(host.port(0x20) & 0xff, 0x50);
    host.set_port(0x18, 0x17);
    host.store(DATA, &pattern(2, 4096));
    host.good(&Command::dma(true, 0, 8).data(DATA, 4096));
    let mut kept = vec![0; 4096];
    disk.peek(0, &mut kept);
    assert_eq!(kept, pattern(2, 4096), "the old write came first");
}

#[test]
fn a_function_reset_at_any_moment_leaves_a_controller_that_works() {
    for moment in 0..60 {
        let (mut host, _) = slow();
        for slot in 0..8 {
            host.issue(slot, &Command::queued(slot & 1 == 0, slot, 64, 8).data(DATA, 4096));
        }
        for _ in 0..moment {
            if !host.step() {
                host.bus.now_ns += 250_000;
            }
        }
        host.bus.pending.clear();
        host.ahci.reset(ResetKind::FunctionLevel);
        host.start();
        host.run();
        host.identify();
        host.good(&Command::dma(false, 64, 8).data(DATA, 4096));
    }
}

#[test]
fn little_room_on_the_bus_only_takes_longer() {
    let (mut host, _) = Host::ready();
    let data = pattern(9, 64 * 512);
    host.store(DATA, &data);
    let trickle = |host: &mut Host| {
        for _ in 0..200_000 {
            (host.bus.write_room, host.bus.read_room, host.bus.interrupt_room) = (100, 100, 1);
            host.step();
            if host.port(0x38) | host.port(0x34) == 0 {
                return;
            }
        }
        panic!("not done");
    };
    host.issue(0, &Command::queued(true, 0, 0, 64).data(DATA, 64 * 512));
    trickle(&mut host);
    host.memory(DATA, 64 * 512).fill(0);
    host.issue(1, &Command::dma(false, 0, 64).data(DATA, 64 * 512));
    trickle(&mut host);
    assert!(host.memory(DATA, 64 * 512) == data);
}
