//! A host dies, and its disk goes on elsewhere; a box dies, and the mirror goes on without it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use etherslot_lab::{Cache, Level, Story, wait_until};

use crate::machine::{Machine, SOON};
use crate::stand::Stand;

#[test]
#[ignore = "needs root and QEMU: ./run test fabric"]
fn a_disk_whose_host_dies_moves_to_the_standby_with_all_that_was_durable() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let stand = Stand::new("fabric-failover");
    let _io_box = stand.start_box_with(
        1,
        "rendezvous = true",
        1..=1,
        "on_host_loss = \"move\"\nstandby = [\"host-b\"]\n",
    );
    let mut a = Machine::start(&stand, &cache, 'a', 1, "10s");
    stand.done(&["assign", "disk1", "host-a"]);
    let b = Machine::start(&stand, &cache, 'b', 1, "10s");
    stand.wait_for_node("host-b", "up");
    let disk = a.disk(1);
    let begin = format!(
        "echo 0 >/tmp/durable; mkfs.ext4 -q {disk} && modprobe ext4 && mount {disk} /mnt && mkdir /mnt/files && \
         (n=0; while echo $n >/mnt/files/$n && sync -f /mnt/files/$n; do n=$((n + 1)); echo $n >>/tmp/durable; done) &"
    );
    a.guest.check(&begin, SOON).unwrap();
    let durable = || -> u64 {
        let text = a.guest.check("tail -n 1 /tmp/durable", SOON).unwrap();
        text.trim().parse().unwrap()
    };
    wait_until("some files on the disk", SOON, || durable() >= 50);
    let durable = durable();
    assert_eq!(b.controllers(), 0);

    let begun = Instant::now();
    a.guest.kill();
    a.host.process().kill();
    let disk = b.disk(1);
    story.tell(format!(
        "host-a and its guest die; host-b's guest has the disk {:.1} s later",
        begun.elapsed().as_secs_f64()
    ));
    let look = format!(
        "modprobe ext4; mount {disk} /mnt && cd /mnt/files && for n in $(seq 0 {}); do [ \"$(cat $n)\" = $n ] || exit 1; done",
        durable - 1
    );
    b.guest.check(&look, SOON).unwrap();
    let messages = b.guest.dmesg(Level::Debug).unwrap();
    assert!(messages.contains("recovery complete"), "the journal was replayed: {messages}");
    b.guest.check(&format!("cd /; umount /mnt && e2fsck -fn {disk}"), SOON).unwrap();
    story.tell(format!(
        "the journal is replayed, {durable} durable files are there, and e2fsck finds nothing"
    ));
    assert_eq!(stand.device(1)["assigned"]["host"]["name"], "host-b");

    a.host.restart(&a.config).unwrap();
    stand.wait_for_node("host-a", "up");
    sleep(Duration::from_secs(1));
    assert_eq!(stand.device(1)["owner"]["name"], "host-b", "who comes back does not take it away");
    b.guest.check(&format!("dd if={disk} of=/dev/null bs=1M count=4 iflag=direct"), SOON).unwrap();
}

#[test]
#[ignore = "needs root and QEMU: ./run test fabric"]
fn a_mirror_over_two_boxes_outlives_one_of_them_and_is_whole_again_when_it_returns() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let stand = Stand::new("fabric-mirror");
    let _one = stand.start_box(1, "rendezvous = true", 1..=1);
    let (mut two, config) = stand.start_box(2, "peers = [\"10.7.0.2:4701\"]", 2..=2);
    let machine = Machine::start(&stand, &cache, 'a', 2, "1s");
    let (first, second) = (machine.disk(1), machine.disk(2));
    let guest = &machine.guest;
    let mirror = format!(
        "modprobe raid1 && yes | mdadm --create /dev/md0 --level=1 --raid-devices=2 --bitmap=internal --assume-clean \
         --metadata=1.2 {first} {second} && cat /proc/mdstat"
    );
    story.tell(guest.check(&mirror, SOON).unwrap().replace('\n', "\n               "));
    let load = "fio --name=load --filename=/dev/md0 --ioengine=io_uring --direct=1 --rw=randwrite --bs=4k --iodepth=8 \
                --size=24m --rate_iops=200 --time_based --runtime=40 --verify=crc32c --do_verify=0 --randrepeat=0";
    let load = guest.spawn(load).unwrap();
    let written = "while [ $(awk '{ print $5 }' /sys/block/md0/stat) -lt 100 ]; do sleep 0.1; done";
    guest.check(written, SOON).unwrap();

    two.kill();
    let begun = Instant::now();
    wait_until("the mirror's going on with one half", SOON, || {
        guest.check("cat /proc/mdstat", SOON).unwrap().contains("[2/1]")
    });
    story.tell(format!(
        "kill -9 of a box: the mirror has one half {:.1} s later",
        begun.elapsed().as_secs_f64()
    ));
    wait_until("the removal of the dead half", SOON, || machine.controllers() == 1);
    // What a distribution's rule for udev does when a disk goes.
    guest.check("mdadm /dev/md0 --fail detached --remove detached", SOON).unwrap();
    let output = load.wait(Duration::from_mins(2)).unwrap();
    assert_eq!(output.status, 0, "no write of the guest failed: {}", output.stdout);

    two.restart(&config).unwrap();
    let second = machine.disk(2);
    let back = format!("mdadm /dev/md0 --re-add {second}; mdadm --wait /dev/md0; cat /proc/mdstat");
    let state = guest.check(&back, SOON).unwrap();
    assert!(state.contains("[2/2] [UU]"), "{state}");
    let check = "echo check >/sys/block/md0/md/sync_action; mdadm --wait /dev/md0; cat /sys/block/md0/md/mismatch_cnt";
    assert_eq!(guest.check(check, SOON).unwrap().trim(), "0", "both halves are the same");
    story.tell("the box is back, the half is synchronised, and both are the same");
}
