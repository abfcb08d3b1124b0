//! Links beside raw Ethernet: the same frames in UDP, and in memory that host and box share.

use etherslot_lab::{Cache, Disk, NetOptions, Rig, RigLink, RigOptions};

use crate::story::{LOAD, SOON, Story, complaints, verified};

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_guest_uses_a_disk_over_udp() {
    use_a_disk_over("udp", RigLink::Udp);
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_guest_uses_a_disk_over_shared_memory() {
    use_a_disk_over("ring", RigLink::Ring);
}

fn use_a_disk_over(run: &str, link: RigLink) {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let disks = vec![Disk { serial: "LINK0001".to_owned(), ..Disk::default() }];
    let options = RigOptions { disks, net: NetOptions { mtu: 1500 }, link, ..RigOptions::default() };
    let mut rig = Rig::start(run, &cache, options).unwrap();
    story.tell("the guest is up");
    let name = rig.guest.nvme("LINK0001", SOON).unwrap();
    for (area_mib, block_bytes, depth) in [((0, 4), 4096, 1), ((4, 16), 4096, 32), ((20, 64), 128 << 10, 8)] {
        rig.guest.fio(&verified(&name.disk, area_mib, block_bytes, depth), LOAD).unwrap();
    }
    assert_eq!(complaints(&rig.guest), Vec::<String>::new());
    story.tell("all is read back as it was written");
    assert!(rig.guest.power_off(SOON).unwrap().success());
    for daemon in [&mut rig.host, &mut rig.io_box] {
        assert_eq!(daemon.stop().unwrap().code(), Some(0), "{}", daemon.log());
    }
}
