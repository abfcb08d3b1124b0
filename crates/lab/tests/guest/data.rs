//! Data: what a guest writes over a faulty Ethernet is what it reads.

use std::thread;

use etherslot_lab::{Cache, Disk, Guest, Namespace, NvmeName, Rig, RigOptions};

use crate::story::{KIB, LOAD, MIB, SOON, Story, complaints, verified, wait_until};

const FAULTS: &str = "loss=1%,reorder=1%,duplicate=1%,seed=21";
const NAMESPACE_BYTES: u64 = 128 * MIB;

fn namespace(block_bytes: u32) -> Namespace {
    Namespace { bytes: NAMESPACE_BYTES, block_bytes, ..Namespace::default() }
}

/// The disk of namespace `id`. The kernel looks at several namespaces at once and numbers their disks as they come.
fn namespace_disk(guest: &Guest, name: &NvmeName, id: u32) -> String {
    let controller = name.controller.trim_start_matches("/dev/");
    let look = format!("cd /sys/class/nvme/{controller} && grep -lx {id} nvme*n*/nsid");
    let mut disk = String::new();
    wait_until(&format!("namespace {id}"), SOON, || {
        let found = guest.run(&look, SOON).unwrap().stdout;
        disk = found.split('/').next().map(|name| format!("/dev/{name}")).unwrap_or_default();
        !found.is_empty()
    });
    disk
}

/// Random writes of small and large blocks, alone and 32 at a time, in an area of their own each.
fn grid(guest: &Guest, device: &str) -> u64 {
    let small = 4 * KIB as u32;
    let large = 128 * KIB as u32;
    let loads = [(small, 1, 2), (small, 32, 8), (large, 1, 8), (large, 32, 32)];
    let mut area_at = 0;
    for (block_bytes, depth, mib) in loads {
        let load = verified(device, (area_at, mib), block_bytes, depth);
        let measured = guest.fio(&load, LOAD).unwrap();
        assert_eq!(measured.read_back_bytes, mib * MIB, "{device}, {block_bytes} B, {depth} at a time");
        area_at += mib;
    }
    area_at
}

/// Requests of lengths and at places that are no multiple of 4 KiB, from buffers that are not page-aligned: several
/// PRP entries, first and last of them partial.
fn odd_requests(guest: &Guest, device: &str, block_bytes: u64) {
    let sizes: Vec<String> =
        [1, 3, 7, 19, 129].iter().map(|blocks| format!("{}/20", blocks * block_bytes)).collect();
    // In order, since requests of different lengths in random order would write over each other.
    let write = format!(
        "fio --name=odd --filename={device} --ioengine=io_uring --direct=1 --rw=write --bssplit={} --iodepth=16 \
         --offset={} --size=8m --iomem_align={block_bytes} --verify=crc32c --verify_interval={block_bytes} \
         --verify_fatal=1 --do_verify=1 --randrepeat=0",
        sizes.join(":"),
        64 * MIB + block_bytes
    );
    guest.check(&write, LOAD).unwrap();
    // Neither fio's buffers nor its order: 7 blocks at a time through dd, back 5 at a time.
    let copy = format!(
        "set -e; dd if=/dev/urandom of=/tmp/odd bs={block_bytes} count=700 status=none
         dd if=/tmp/odd of={device} bs={seven} seek={at} oflag=direct,seek_bytes conv=notrunc status=none
         dd if={device} bs={five} skip={at} count={length} iflag=direct,skip_bytes,count_bytes status=none | cmp - /tmp/odd",
        seven = 7 * block_bytes,
        five = 5 * block_bytes,
        at = 80 * MIB + 3 * block_bytes,
        length = 700 * block_bytes,
    );
    guest.check(&copy, SOON).unwrap();
}

/// A file system with a tree in it survives the way there and back, and is consistent.
fn file_system(guest: &Guest, device: &str, mount: &str) {
    let script = format!(
        "set -e; mkdir -p {mount}; mkfs.ext4 -q -F {device}; mount {device} {mount}
         cp -a /usr/lib/modules /usr/share {mount}/; mkdir {mount}/small
         for n in $(seq 200); do echo $n >{mount}/small/$n; done; rm {mount}/small/*5
         sums() {{ (cd {mount} && find modules share small -type f | sort | xargs sha256sum); }}
         sums >/tmp/sums; [ $(wc -l </tmp/sums) -gt 200 ]
         umount {mount}; e2fsck -f -n {device}; mount {device} {mount}
         sums | cmp - /tmp/sums; diff -r /usr/lib/modules {mount}/modules; umount {mount}",
    );
    guest.check(&script, LOAD).unwrap();
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn what_is_written_over_a_faulty_ethernet_is_read_back_on_two_devices_and_three_namespaces() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let disks = vec![
        Disk {
            serial: "TWO".to_owned(),
            namespaces: vec![namespace(512), namespace(4096)],
            ..Disk::default()
        },
        Disk { serial: "ONE".to_owned(), namespaces: vec![namespace(512)], ..Disk::default() },
    ];
    let options = RigOptions { disks, host_impairment: Some(FAULTS.to_owned()), ..RigOptions::default() };
    let mut rig = Rig::start("data", &cache, options).unwrap();
    let guest = &rig.guest;
    story.tell(format!("the guest is up; its link has {FAULTS}"));

    let two = guest.nvme("TWO", SOON).unwrap();
    let one = guest.nvme("ONE", SOON).unwrap();
    assert_ne!(two.controller, one.controller);
    let first = namespace_disk(guest, &two, 1);
    let second = namespace_disk(guest, &two, 2);
    for (disk, block_bytes) in [(&first, 512), (&second, 4096), (&one.disk, 512)] {
        let geometry = guest.check(&format!("blockdev --getss --getsize64 {disk}"), SOON).unwrap();
        assert_eq!(geometry, format!("{block_bytes}\n{NAMESPACE_BYTES}\n"), "{disk}");
    }

    story.tell("two namespaces of one controller and another controller, all at the same time");
    thread::scope(|scope| {
        scope.spawn(|| grid(guest, &first));
        scope.spawn(|| grid(guest, &second));
        scope.spawn(|| file_system(guest, &one.disk, "/mnt"));
    });
    story.tell("requests that are not aligned to pages");
    odd_requests(guest, &first, 512);
    odd_requests(guest, &second, 4096);

    story.tell("nothing is written where nobody wrote");
    for disk in [&first, &second] {
        let rest = format!("dd if={disk} bs=1M skip=96 status=none | cmp -n {} - /dev/zero", 32 * MIB);
        guest.check(&rest, SOON).unwrap();
    }

    // Losses are the link's own business: the driver sees none of them.
    assert_eq!(complaints(guest), Vec::<String>::new());
    assert!(rig.guest.power_off(SOON).unwrap().success());
    assert_eq!(rig.host.stop().unwrap().code(), Some(0));
    let retransmitted = counter(&rig.host.log(), "retransmissions");
    story.tell(format!("the host sent {retransmitted} frames again"));
    assert!(retransmitted > 0, "the link had no faults:\n{}", rig.host.log());
}

/// A counter of the session, as the daemon tells it at its end.
fn counter(log: &str, name: &str) -> u64 {
    let value = log.rsplit_once(&format!(" {name}=")).map_or("", |(_, rest)| rest);
    value.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}
