//! SATA disks as stock drivers and tools see them.

use std::fs::OpenOptions;
use std::time::Duration;

use etherslot_lab::{Cache, Disk, Guest, GuestOptions, Kind, Level, Namespace, Rig, RigOptions};

use crate::recovery::wait_for_attachment;
use crate::story::{LOAD, MIB, SOON, Story, verified, wait_until};
use crate::writers::Writers;

const DISK_BYTES: u64 = 256 * MIB;
/// When a guest has to have its errors: the command's time, and the driver's attempts to reset the link.
const ERRORS_WITHIN: Duration = Duration::from_mins(3);

fn disk(block_bytes: u32) -> Namespace {
    Namespace { bytes: DISK_BYTES, block_bytes, removable: block_bytes == 4096, ..Namespace::default() }
}

/// A controller with disks of 512 and of 4096 byte sectors, over a link with losses.
fn options(kind: Kind) -> RigOptions {
    let modules = match kind {
        Kind::Ahci => "lab.modules=ahci,sd_mod",
        Kind::Sil3132 => "lab.modules=sata_sil24,sd_mod",
        Kind::Nvme => "lab.modules=nvme",
    };
    RigOptions {
        disks: vec![Disk { kind, namespaces: vec![disk(512), disk(4096)], ..Disk::default() }],
        host_impairment: Some("loss=1%,reorder=1%,seed=5".to_owned()),
        guest: GuestOptions { kernel_arguments: vec![modules.to_owned()], ..GuestOptions::default() },
        ..RigOptions::default()
    }
}

/// What the kernel says of the disks or the way to them that is no good news.
fn complaints(guest: &Guest) -> Vec<String> {
    const SUBJECTS: [&str; 10] =
        ["ata", "ahci", "sil24", "scsi", "sd ", "pcieport", "pci 0000", "blk", "I/O error", "EXT4"];
    let messages = guest.dmesg(Level::Warning).unwrap();
    let of_disks = messages.lines().filter(|line| SUBJECTS.iter().any(|subject| line.contains(subject)));
    of_disks.map(str::to_owned).collect()
}

/// The driver binds, the disks are what they are, and hold what is written: by fio, by a file system; TRIM gives space back.
fn normal_run(story: &Story, rig: &Rig, driver: &str) {
    let guest = &rig.guest;
    let small = guest.sata("ES0001", SOON).unwrap();
    let large = guest.sata("ES0001-1", SOON).unwrap();
    story.tell(format!("{driver} has {small} and {large}"));
    let seen = guest.check("lspci -vv; dmesg | grep -i ' ata[0-9]'", SOON).unwrap();
    assert!(seen.contains(&format!("Kernel driver in use: {driver}")), "{seen}");
    assert!(seen.contains("NCQ (depth 3") && !seen.contains("failed"), "{seen}");
    for (disk, block_bytes) in [(&small, 512), (&large, 4096)] {
        let geometry = guest.check(&format!("blockdev --getss --getsize64 {disk}"), SOON).unwrap();
        assert_eq!(geometry, format!("{block_bytes}\n{DISK_BYTES}\n"), "{disk}");
        let rotates = format!("cat /sys/block/{}/queue/rotational", disk.trim_start_matches("/dev/"));
        assert_eq!(guest.check(&rotates, SOON).unwrap(), "0\n");
    }
    for (mib, block_bytes, depth) in [((0, 2), 4096, 1), ((2, 16), 4096, 32), ((18, 32), 1 << 20, 4)] {
        for disk in [&small, &large] {
            let measured = guest.fio(&verified(disk, mib, block_bytes, depth), LOAD).unwrap();
            assert_eq!(measured.read_back_bytes, mib.1 * MIB);
        }
    }
    story.tell("fio has verified; a file system, and TRIM");
    let tree = format!(
        "set -e; mkfs.ext4 -q -F {small}; mount -o discard {small} /mnt; cp -a /usr/lib/modules /mnt/tree; umount /mnt
         mount {small} /mnt; diff -r /usr/lib/modules /mnt/tree; rm -r /mnt/tree; sync; fstrim /mnt; umount /mnt
         e2fsck -f -n {small}; blkdiscard -f {small}; cmp -n 67108864 {small} /dev/zero"
    );
    guest.check(&tree, LOAD).unwrap();
    assert_eq!(complaints(guest), Vec::<String>::new(), "the driver is content");
}

/// The medium loses its second half: the guest gets errors for what was there, and for nothing else.
fn medium_errors(story: &Story, rig: &Rig) {
    let guest = &rig.guest;
    let disk = guest.sata("ES0001", SOON).unwrap();
    let image = rig.run.path("ES0001-1.img");
    let file = OpenOptions::new().write(true).open(image).unwrap();
    file.set_len(DISK_BYTES / 2).unwrap();
    story.tell("half of the medium is gone");
    let read = |mib: u64| format!("dd if={disk} of=/dev/null bs=4k count=1 skip={} iflag=direct", mib * 256);
    guest.check(&read(100), SOON).unwrap();
    let output = guest.run(&read(200), LOAD).unwrap();
    assert!(output.status != 0 && output.stdout.contains("Input/output error"), "{}", output.stdout);
    let said = guest.dmesg(Level::Debug).unwrap();
    assert!(said.contains("UNC") && said.contains("Unrecovered read error"), "{said}");
    file.set_len(DISK_BYTES).unwrap();
    guest.check(&read(200), SOON).unwrap();
    guest.check(&read(100), SOON).unwrap();
}

/// A disk is taken out, and put in again with what it had: the guest sees it go and come.
fn hot_plug(story: &Story, rig: &Rig) {
    let guest = &rig.guest;
    let disk = guest.sata("ES0001-1", SOON).unwrap();
    let other = guest.sata("ES0001", SOON).unwrap();
    let mark = format!("echo here | dd of={disk} bs=4k conv=sync,notrunc oflag=direct status=none");
    guest.check(&mark, SOON).unwrap();
    let image = rig.run.path("ES0001-2.img");
    let away = rig.run.path("ES0001-2.away");
    std::fs::rename(&image, &away).unwrap();
    wait_until("the disk's end in the guest", LOAD, || {
        guest.run(&format!("[ ! -e {disk} ]"), SOON).unwrap().status == 0
    });
    story.tell(format!("{disk} is out"));
    guest.check(&format!("dd if={other} of=/dev/null bs=4k count=1 iflag=direct status=none"), SOON).unwrap();
    std::fs::rename(&away, &image).unwrap();
    let disk = guest.sata("ES0001-1", LOAD).unwrap();
    assert_eq!(guest.check(&format!("head -c 5 {disk}"), SOON).unwrap(), "here\n");
    guest.fio(&verified(&disk, (8, 4), 4096, 8), LOAD).unwrap();
    story.tell(format!("{disk} is in"));
}

/// `kill -9` of the box: what was acknowledged is there when the disk is back.
fn killed_box(story: &Story, mut rig: Rig) {
    let disk = rig.guest.sata("ES0001", SOON).unwrap();
    let pci = format!("readlink -f /sys/block/{}/device", disk.trim_start_matches("/dev/"));
    let path = rig.guest.check(&pci, SOON).unwrap();
    let place = path.split('/').take_while(|part| !part.starts_with("ata")).last().unwrap().to_owned();
    rig.guest.check("for file in /sys/block/sd*/device/timeout; do echo 5 >$file; done", SOON).unwrap();
    let writers = Writers::start(&rig.guest, &disk);
    story.tell(format!("kill -9 of the box, which stays away; the controller is {place}"));
    rig.io_box.kill();
    let acknowledged = writers.fail(&rig.guest, ERRORS_WITHIN, story);
    assert!(rig.host.is_running(), "the host stays up");
    rig.io_box.restart(&rig.box_config).unwrap();
    wait_for_attachment(&rig, 2);
    // The driver ends its attempts to bring the ports back first.
    let again = format!("cd /sys/bus/pci/devices; echo 1 >{place}/remove; echo 1 >/sys/bus/pci/rescan");
    rig.guest.check(&again, 2 * ERRORS_WITHIN).unwrap();
    let disk = rig.guest.sata("ES0001", SOON).unwrap();
    for acknowledged in &acknowledged {
        acknowledged.check(&rig.guest, &disk, story);
    }
    rig.guest.fio(&verified(&disk, (192, 8), 4096, 32), LOAD).unwrap();
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn sata_disks_behind_ahci_serve_a_stock_guest_tell_their_errors_and_survive_a_killed_box() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let rig = Rig::start("ahci", &cache, options(Kind::Ahci)).unwrap();
    normal_run(&story, &rig, "ahci");
    hot_plug(&story, &rig);
    medium_errors(&story, &rig);
    killed_box(&story, rig);
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn sata_disks_behind_a_sil3132_serve_a_stock_guest_tell_their_errors_and_survive_a_killed_box() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let rig = Rig::start("sil3132", &cache, options(Kind::Sil3132)).unwrap();
    normal_run(&story, &rig, "sata_sil24");
    hot_plug(&story, &rig);
    medium_errors(&story, &rig);
    killed_box(&story, rig);
}
