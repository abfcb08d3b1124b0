//! Disks that come and go while the host runs.

use crate::host::{Command, DATA, Host, disk, drive};
use etherslot_devices::sata::{Bay, Bays, Change, Config};
use etherslot_pci::function::Function;
use etherslot_storage::memory::{Disk, Latency, Options};

#[test]
fn a_disk_that_goes_is_a_change_of_the_phy() {
    let (mut host, _) = Host::ready();
    assert!(host.ahci.unplug(0).is_some());
    host.run();
    assert_eq!((host.port(0x28), host.port(0x20)), (0, 0x7f));
    assert_ne!(host.port(0x10) & 1 << 22, 0, "PxIS.PRCS");
    assert_eq!(host.bus.sent, [0]);
    assert!(host.ahci.unplug(0).is_none());
    host.set_port(0x30, u32::MAX);
    assert_eq!(host.port(0x10), 0);
}

#[test]
fn a_disk_that_comes_is_connected_and_works() {
    let mut host = Host::new(vec![None]);
    host.start();
    let disk = disk(1 << 20);
    host.ahci.plug(0, drive(&disk)).unwrap();
    host.run();
    assert_ne!(host.port(0x10) & 1 << 6, 0, "PxIS.PCS");
    assert_eq!(host.bus.sent, [0]);
    assert_eq!((host.port(0x28), host.port(0x24)), (0x133, 0x101));
    host.restart();
    host.identify();
}

#[test]
fn a_disk_can_be_changed_for_another_with_commands_under_way() {
    let latency = Latency { read_ns: 1_000_000, ..Latency::default() };
    for moment in 0..20 {
        let old = Disk::new(Options { bytes: 1 << 20, latency, ..Options::default() });
        let mut host = Host::new(vec![Some(drive(&old))]);
        host.start();
        for slot in 0..4 {
            host.issue(slot, &Command::queued(slot & 1 == 0, slot, 0, 8).data(DATA, 4096));
        }
        for _ in 0..moment {
            host.step();
        }
        assert!(host.ahci.unplug(0).is_some());
        host.run();
        let new = disk(2 << 20);
        host.ahci.plug(0, drive(&new)).unwrap();
        host.run();
        host.restart();
        assert_eq!(host.identify()[100], 4096);
        for slot in 0..32 {
            host.issue(slot, &Command::queued(slot & 1 == 0, slot, 0, 8).data(DATA, 4096));
        }
        host.run();
        assert_eq!(host.port(0x34), 0);
    }
}

/// A bay in which a disk is put in at one time and taken out at another.
struct Timetable(Vec<(u64, Option<Disk>)>);

impl Bay for Timetable {
    fn look(&mut self, now_ns: u64) -> Option<Change> {
        if self.0.first()?.0 > now_ns {
            return None;
        }
        let (_, disk) = self.0.remove(0);
        Some(disk.map_or(Change::Out, |disk| Change::In(drive(&disk))))
    }

    fn deadline_ns(&self) -> u64 {
        self.0.first().map_or(u64::MAX, |(at, _)| *at)
    }
}

#[test]
fn a_bay_puts_disks_in_and_takes_them_out_in_time() {
    let disk = disk(1 << 20);
    let bay = Timetable(vec![(5_000, Some(disk.clone())), (50_000_000, None), (60_000_000, Some(disk))]);
    let bays = Bays(vec![(0, Box::new(bay) as Box<dyn Bay>)]);
    let config = Config { ports: vec![None], bays, ..Config::default() };
    let mut host = Host::of(config);
    assert_eq!(host.ahci.deadline_ns(), Some(5_000));
    for (at, expected) in [(1_000_000, 0x133), (50_000_000, 0), (60_000_000, 0x133)] {
        host.bus.now_ns = at;
        host.step();
        assert_eq!(host.port(0x28), expected, "{at}");
    }
}
