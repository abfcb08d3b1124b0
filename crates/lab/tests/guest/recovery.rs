//! `kill -9` of a box, a host and a QEMU under load: errors in bounded time, nothing hangs, nothing acknowledged is lost.

use std::fs;
use std::time::Duration;

use etherslot_lab::fio::{Load, Until};
use etherslot_lab::{
    Cache, Daemon, Disk, Guest, GuestOptions, Interrupts, Namespace, NetOptions, Rig, RigBase, RigOptions,
    Run,
};
use serde_json::json;

use crate::story::{LOAD, MIB, SOON, Story, complaints, verified, wait_until};
use crate::writers::{PROMPT, Writers};

/// What the guest's driver waits for a command (`nvme_core.io_timeout`).
const IO_TIMEOUT: u64 = 5;
/// When a guest has to have its errors: the command's time, the kernel's coarse timers, the driver's one attempt to
/// reset the controller, and a busy machine.
const ERRORS_WITHIN: Duration = Duration::from_secs(4 * IO_TIMEOUT);
/// When the driver has to have recovered by itself: a command's time, then that of the Abort it tries first.
const RECOVERY_WITHIN: Duration = Duration::from_secs(8 * IO_TIMEOUT);

fn options() -> RigOptions {
    let namespace = Namespace { bytes: 256 * MIB, ..Namespace::default() };
    let timeouts = ["io_timeout", "admin_timeout"];
    RigOptions {
        disks: vec![Disk { namespaces: vec![namespace], ..Disk::default() }],
        // The smaller frames, for once.
        net: NetOptions { mtu: 1500 },
        guest: GuestOptions {
            kernel_arguments: timeouts.map(|name| format!("nvme_core.{name}={IO_TIMEOUT}")).to_vec(),
            ..GuestOptions::default()
        },
        ..RigOptions::default()
    }
}

/// Waits until the host has attached the device for the `count`th time.
pub(crate) fn wait_for_attachment(rig: &Rig, count: usize) {
    wait_until(&format!("attachment {count} of the device"), SOON, || {
        rig.host.log().matches("device attached").count() >= count
    });
}

/// Removes the controller from the guest's PCI tree and looks for it again.
pub(crate) fn add_again(guest: &Guest, pci: &str) {
    let remove = format!("cd /sys/bus/pci/devices; [ ! -e {pci} ] || echo 1 >{pci}/remove");
    guest.check(&remove, SOON).unwrap();
    guest.check("echo 1 >/sys/bus/pci/rescan", SOON).unwrap();
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_killed_box_costs_the_guest_errors_in_bounded_time_and_nothing_that_was_acknowledged() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let mut rig = Rig::start("box-kill", &cache, options()).unwrap();
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    let writers = Writers::start(&rig.guest, &name.disk);

    story.tell("kill -9 of the box, which is back at once: the driver recovers by itself");
    rig.io_box.kill();
    rig.io_box.restart(&rig.box_config).unwrap();
    let took = writers.go_on(&rig.guest, RECOVERY_WITHIN);
    story.tell(format!("the writers go on after {:.1} s, without an error", took.as_secs_f64()));

    story.tell("the same, and the controller is reset by hand");
    rig.io_box.kill();
    rig.io_box.restart(&rig.box_config).unwrap();
    wait_for_attachment(&rig, 3);
    rig.guest.check(&format!("nvme reset {}", name.controller), SOON).unwrap();
    let took = writers.go_on(&rig.guest, RECOVERY_WITHIN);
    story.tell(format!("the writers go on after {:.1} s, without an error", took.as_secs_f64()));

    story.tell("kill -9 of the box, which stays away");
    rig.io_box.kill();
    let acknowledged = writers.fail(&rig.guest, ERRORS_WITHIN, &story);
    assert!(rig.host.is_running(), "the host stays up");
    rig.guest.check(&format!("lspci -xxxx -s {} >/dev/null", name.pci), PROMPT).unwrap();

    story.tell("the box is back, and the controller is added again");
    rig.io_box.restart(&rig.box_config).unwrap();
    wait_for_attachment(&rig, 4);
    add_again(&rig.guest, &name.pci);
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    for acknowledged in &acknowledged {
        acknowledged.check(&rig.guest, &name.disk, &story);
    }
    rig.guest.fio(&verified(&name.disk, (192, 8), 4096, 32), LOAD).unwrap();

    story.tell("the box dies without load, and the guest looks for its devices meanwhile");
    rig.io_box.kill();
    add_again(&rig.guest, &name.pci);
    rig.io_box.restart(&rig.box_config).unwrap();
    wait_for_attachment(&rig, 5);
    add_again(&rig.guest, &name.pci);
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    rig.guest.fio(&verified(&name.disk, (192, 8), 4096, 32), LOAD).unwrap();
    assert!(rig.host.is_running());
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_killed_host_costs_the_guest_errors_and_a_new_one_takes_its_place_by_hot_plug() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let options = RigOptions { interrupts: Interrupts::Msi, ..options() };
    let mut rig = Rig::start("host-kill", &cache, options).unwrap();
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    let writers = Writers::start(&rig.guest, &name.disk);

    story.tell("kill -9 of the host");
    rig.host.kill();
    let acknowledged = writers.fail(&rig.guest, ERRORS_WITHIN, &story);
    assert!(rig.guest.process().is_running() && rig.io_box.is_running(), "QEMU and the box stay up");
    let status = rig.guest.qmp().execute("query-status", &json!({})).unwrap();
    assert_eq!(status["running"], true);

    story.tell("device_del, a new host, device_add");
    let device = rig.devices[0].clone();
    rig.guest.unplug(&device, SOON).unwrap();
    rig.host.restart(&rig.host_config).unwrap();
    rig.guest.plug(&device, 0).unwrap();
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    for acknowledged in &acknowledged {
        acknowledged.check(&rig.guest, &name.disk, &story);
    }
    rig.guest.fio(&verified(&name.disk, (192, 16), 128 << 10, 8), LOAD).unwrap();

    story.tell("device_del and device_add with a host that lives on");
    rig.guest.unplug(&device, SOON).unwrap();
    rig.guest.plug(&device, 0).unwrap();
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    rig.guest.fio(&verified(&name.disk, (192, 16), 4096, 32), LOAD).unwrap();
    let interrupts = rig.guest.check("grep nvme /proc/interrupts", SOON).unwrap();
    assert!(
        interrupts.contains("MSI") && !interrupts.contains("MSIX") && !interrupts.contains("MSI-X"),
        "{interrupts}"
    );

    story.tell("the host is stopped under load");
    let load = Load { device: name.disk, until: Until::Time(LOAD), depth: 16, ..Load::default() };
    let load = rig.guest.spawn(&load.command()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(rig.host.stop().unwrap().code(), Some(0), "{}", rig.host.log());
    assert_ne!(load.wait(ERRORS_WITHIN).unwrap().status, 0);
    assert!(rig.guest.process().is_running(), "QEMU stays up");
    rig.guest.check("sync", PROMPT).unwrap();
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_killed_qemu_leaves_nothing_behind_and_the_next_one_boots_with_the_device() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let run = Run::new("qemu-kill").unwrap();
    let mut base = RigBase::start(&run, options()).unwrap();
    let before = [open_files(&mut base.host), open_files(&mut base.io_box)];
    let mut rig = base.boot(&run, &cache).unwrap();
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    assert!(guest_memory_maps(&mut rig.host) > 0);
    let writers = Writers::start(&rig.guest, &name.disk);

    story.tell("kill -9 of QEMU under load");
    let acknowledged = writers.acknowledged(&rig.guest);
    rig.guest.kill();
    drop(writers);
    wait_until("the host's release of the guest's memory", PROMPT, || guest_memory_maps(&mut rig.host) == 0);
    let mut after = before;
    wait_until("the daemons' return to where they were", PROMPT, || {
        after = [open_files(&mut rig.host), open_files(&mut rig.io_box)];
        after == before
    });

    story.tell("the next QEMU on the same socket");
    let guest = GuestOptions { devices: rig.devices.clone(), ..GuestOptions::default() };
    rig.guest = Guest::start(&run, &cache, &guest).unwrap();
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    for acknowledged in &acknowledged {
        acknowledged.check(&rig.guest, &name.disk, &story);
    }
    rig.guest.fio(&verified(&name.disk, (192, 16), 4096, 32), LOAD).unwrap();
    assert_eq!(complaints(&rig.guest), Vec::<String>::new());
    assert!(rig.guest.power_off(SOON).unwrap().success());
    for daemon in [&mut rig.host, &mut rig.io_box] {
        assert_eq!(daemon.stop().unwrap().code(), Some(0), "{}", daemon.log());
    }
}

fn open_files(daemon: &mut Daemon) -> usize {
    daemon.process().open_files()
}

/// How many mappings of a guest's memory a daemon has.
fn guest_memory_maps(daemon: &mut Daemon) -> usize {
    let maps = fs::read_to_string(format!("/proc/{}/maps", daemon.process().pid())).unwrap();
    maps.lines().filter(|line| line.contains("memfd:")).count()
}
