//! Faults: a lossy link, a box that is killed, a guest that reloads its driver in the middle of traffic.

use crate::bench::{BOX_IP, Bench, GUEST_IP, LOAD, Options, SOON};
use etherslot_lab::wait_until;

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn a_lossy_link_below_is_not_seen_above() {
    let faults = "loss=1%,reorder=1%,duplicate=1%,seed=3";
    let bench =
        Bench::start("nic-lossy", Options { impairment: Some(faults), disk: true, ..Options::default() });
    bench.answers();
    let said = bench.guest.check(&format!("ping -q -c 500 -i 0.005 -W 10 -s 1400 {BOX_IP}"), LOAD).unwrap();
    assert!(said.contains(" 0% packet loss"), "{said}");
    // The disk in the same box, at the same time.
    let disk = bench.guest.nvme("DISK1", SOON).unwrap().disk;
    let work = bench
        .guest
        .spawn(&format!("set -e; dd if=/dev/urandom of=/tmp/a bs=1M count=8; dd if=/tmp/a of={disk} bs=64k oflag=direct; dd if={disk} bs=64k count=128 iflag=direct | cmp - /tmp/a"))
        .unwrap();
    let said = bench.far_output("ping", &["-q", "-f", "-c", "1000", "-w", "60", "-s", "1000", GUEST_IP]);
    assert!(said.contains("1000 received"), "{said}");
    work.wait(LOAD).unwrap().success().unwrap();
    assert_eq!(bench.complaints(), [] as [String; 0]);
}

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn the_driver_can_be_taken_away_and_put_back_under_traffic() {
    let bench = Bench::start("nic-reload", Options::default());
    bench.answers();
    let mut flood = bench.far("flood", "ping", &["-q", "-f", "-i", "0.002", "-s", "1400", GUEST_IP]);
    for round in 0..5 {
        let how = if round % 2 == 0 {
            "ip link set eth0 down; sleep 0.3"
        } else {
            "modprobe -r igb; sleep 0.3; modprobe igb"
        };
        bench.guest.check(how, SOON).unwrap();
        wait_until("the interface", SOON, || {
            bench.guest.run("[ -e /sys/class/net/eth0 ]", SOON).unwrap().status == 0
        });
        bench.up();
        bench.answers();
    }
    // A reset of the Function, as a user asks for one.
    bench.guest.check("pci=$(readlink -f /sys/class/net/eth0/device); ip link set eth0 down; echo 1 >$pci/reset; ip link set eth0 up", SOON).unwrap();
    bench.up();
    bench.answers();
    assert!(flood.is_running());
    flood.kill();
    assert_eq!(bench.complaints(), [] as [String; 0]);
}

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn a_killed_box_is_recovered_from_when_it_is_back() {
    let mut bench = Bench::start("nic-killed", Options::default());
    bench.answers();
    let mut flood = bench.far("flood", "ping", &["-q", "-f", "-i", "0.002", "-s", "1400", GUEST_IP]);
    bench.io_box.kill();
    flood.kill();
    let config = bench.box_config.clone();
    bench.io_box.restart(&config).unwrap();
    bench.network(1500);
    // The driver finds a controller after a reset, and says so once; then it is made to begin anew.
    bench.guest.check("modprobe -r igb && modprobe igb", LOAD).unwrap();
    wait_until("the interface", SOON, || {
        bench.guest.run("[ -e /sys/class/net/eth0 ]", SOON).unwrap().status == 0
    });
    bench.up();
    bench.answers();
    let flood = bench.guest.check(&format!("ping -q -f -c 500 -w 60 {BOX_IP}"), LOAD).unwrap();
    assert!(flood.contains("500 received"), "{flood}");
}
