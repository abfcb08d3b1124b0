//! A machine without a disk of its own starts from one in a box: firmware, GRUB, kernel.

use etherslot_lab::{
    Boot, Cache, Disk, Firmware, Guest, GuestOptions, Kind, Level, Namespace, RigBase, RigOptions, Run,
};

use crate::story::{SOON, Story};

/// Of the disk's own configuration: no other kernel of the lab has it.
const MARK: &str = "lab.from=disk";

/// What the kernel says of the disk or the way to it that is no good news.
fn complaints(guest: &Guest) -> Vec<String> {
    let messages = guest.dmesg(Level::Warning).unwrap();
    let subjects = ["ata", "ahci", "scsi", "sd ", "pcieport", "I/O error"];
    let of_disk = messages.lines().filter(|line| subjects.iter().any(|subject| line.contains(subject)));
    of_disk.map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_guest_boots_from_a_remote_ahci_disk_by_bios_and_by_uefi() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let boot = Boot::ensure().unwrap();
    let run = Run::new("boot").unwrap();
    let kernel_arguments = vec!["lab.modules=ahci,sd_mod".to_owned(), MARK.to_owned()];
    let guest = GuestOptions { kernel_arguments, firmware: Some(Firmware::Bios), ..GuestOptions::default() };
    let image = run.path("boot.img");
    boot.write_disk(&image, &cache, &guest).unwrap();
    let disk = Disk {
        kind: Kind::Ahci,
        namespaces: vec![Namespace { path: Some(image), ..Namespace::default() }],
        ..Disk::default()
    };
    let options = RigOptions { disks: vec![disk], guest: guest.clone(), ..RigOptions::default() };
    let mut rig = RigBase::start(&run, options).unwrap().boot(&run, &cache).unwrap();
    for (name, firmware) in [("a BIOS", Firmware::Bios), ("UEFI", boot.uefi())] {
        let by_uefi = firmware != Firmware::Bios;
        if by_uefi {
            rig.guest.kill();
            let devices = rig.devices.clone();
            let options = GuestOptions { firmware: Some(firmware), devices, ..guest.clone() };
            rig.guest = Guest::start(&run, &cache, &options).unwrap();
        }
        let guest = &rig.guest;
        let disk = guest.sata("ES0001", SOON).unwrap();
        let seen = guest.check("cat /proc/cmdline; [ ! -d /sys/firmware/efi ] || echo uefi", SOON).unwrap();
        assert!(seen.contains(MARK) && seen.contains("uefi") == by_uefi, "{seen}");
        guest
            .check(&format!("[ -b {disk}1 ] && dd if={disk}1 of=/dev/null bs=1M iflag=direct"), SOON)
            .unwrap();
        assert_eq!(complaints(guest), Vec::<String>::new());
        story.tell(format!("{name} has started the guest from {disk}"));
    }
    assert!(rig.guest.power_off(SOON).unwrap().success());
}
