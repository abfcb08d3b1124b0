//! The lab itself, without Etherslot: what it claims to see, it sees; what it starts, it ends.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use etherslot_lab::fio::{Load, Pattern, Until, Verify};
use etherslot_lab::{
    Cache, Capture, ETHERTYPE, Error, Guest, GuestDevice, GuestOptions, HOST_MAC, Keep, Level, Net,
    NetOptions, Run, Side,
};

const MIB: u64 = 1 << 20;
const SOON: Duration = Duration::from_mins(1);

fn local_disk(run: &Run, serial: &str) -> GuestDevice {
    let file = run.disk_image(&format!("{serial}.img"), 256 * MIB).unwrap();
    GuestDevice::LocalNvme { file, serial: serial.to_owned() }
}

/// Sends `count` frames of an EtherType from a side to the other. Perl is part of every Debian.
fn send_frames(net: &Net, side: Side, ethertype: u16, count: u32) {
    let script = r#"
        my ($type, $count) = @ARGV;
        open(my $file, "<", "/sys/class/net/eth0/ifindex") or die; chomp(my $index = <$file>);
        socket(my $socket, 17, 3, 0) or die "socket: $!";
        my $frame = pack("H12 H12 n a46", "ffffffffffff", "020000000001", $type, "toy");
        my $to = pack("S n l S C C a8", 17, $type, $index, 0, 0, 6, pack("H12", "ffffffffffff"));
        send($socket, $frame, 0, $to) or die "send: $!" for 1 .. $count;
    "#;
    // Interface numbers under /sys belong to the namespace that mounted it: `ip netns exec` mounts its own.
    let sent = Command::new("ip")
        .args(["netns", "exec", &net.namespace(side), "perl", "-e", script])
        .args([ethertype.to_string(), count.to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

#[test]
#[ignore = "needs root: ./run test guest"]
fn the_bridge_is_silent_and_a_capture_tells_our_frames_from_others() {
    let run = Run::new("bridge").unwrap();
    let net = Net::new(&run, NetOptions { mtu: 9000 }).unwrap();
    let all = Capture::start(&run, &net, "all", Keep::All { frames_max: 1000 }).unwrap();
    let foreign = Capture::start(&run, &net, "foreign", Keep::Foreign).unwrap();
    thread::sleep(Duration::from_secs(2));
    send_frames(&net, Side::Host, ETHERTYPE, 30);
    send_frames(&net, Side::Box, ETHERTYPE, 20);
    send_frames(&net, Side::Host, 0x88B6, 3);
    thread::sleep(Duration::from_millis(300));

    let traffic = net.traffic().unwrap();
    assert_eq!(
        (traffic.host_frames, traffic.box_frames),
        (33, 20),
        "nothing but what was sent: {HOST_MAC} …"
    );
    let all = all.finish().unwrap();
    assert_eq!((all.tally.frames(), all.tally.foreign(), all.missed), (53, 3, 0));
    let foreign = foreign.finish().unwrap();
    assert_eq!((foreign.tally.frames(), foreign.missed), (3, 0));

    net.connect(Side::Box, false).unwrap();
    send_frames(&net, Side::Host, ETHERTYPE, 5);
    let parted = net.traffic().unwrap();
    assert_eq!(parted.host_frames, 38);
    net.connect(Side::Box, true).unwrap();
    net.limit_rate(Side::Host, Some(1_000_000_000)).unwrap();
    net.limit_rate(Side::Host, None).unwrap();
    net.set_link(Side::Box, false).unwrap();
    net.set_link(Side::Box, true).unwrap();

    let namespaces = [Side::Host, Side::Box].map(|side| format!("/run/netns/{}", net.namespace(side)));
    assert!(namespaces.iter().all(|path| Path::new(path).exists()));
    drop(net);
    assert!(namespaces.iter().all(|path| !Path::new(path).exists()));
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_stock_guest_uses_a_local_disk_behind_the_switch() {
    let cache = Cache::ensure().unwrap();
    let run = Run::new("local").unwrap();
    let options = GuestOptions { devices: vec![local_disk(&run, "LOCAL1")], ..GuestOptions::default() };
    let guest = Guest::start(&run, &cache, &options).unwrap();
    let disk = guest.nvme("LOCAL1", SOON).unwrap();

    let path = guest.check(&format!("readlink -f /sys/bus/pci/devices/{}", disk.pci), SOON).unwrap();
    assert_eq!(
        path.trim().split('/').count(),
        8,
        "root port, upstream port, downstream port, device: {path}"
    );
    assert!(guest.check("lspci", SOON).unwrap().contains("XIO3130"));
    assert!(guest.check("nvme list", SOON).unwrap().contains("LOCAL1"));

    let area_bytes = 16 * MIB;
    let fill = Load {
        device: disk.disk.clone(),
        pattern: Pattern::RandomWrite,
        depth: 32,
        area_bytes,
        until: Until::Bytes(area_bytes),
        verify: Verify::ReadBack,
        ..Load::default()
    };
    assert_eq!(guest.fio(&fill, SOON).unwrap().read_back_bytes, area_bytes);
    let read = Load { pattern: Pattern::Read, block_bytes: 128 << 10, verify: Verify::Seal, ..fill };
    assert_eq!(guest.fio(&read, SOON).unwrap().bytes, area_bytes);
    // A block that belongs elsewhere is intact, but not the right one.
    let misplace =
        format!("dd if={0} of={0} bs=4k count=1 skip=8 seek=9 oflag=direct conv=notrunc", disk.disk);
    guest.check(&misplace, SOON).unwrap();
    assert!(guest.fio(&read, SOON).is_err(), "a misplaced block is found");

    let tree = format!(
        "set -e; mkfs.ext4 -q -F {0}; mount {0} /mnt; cp -a /usr/lib/modules /mnt/tree; umount /mnt; mount {0} /mnt
         diff -r /usr/lib/modules /mnt/tree; umount /mnt; e2fsck -fn {0}",
        disk.disk
    );
    guest.check(&tree, SOON).unwrap();
    let errors = guest.dmesg(Level::Error).unwrap();
    assert!(!errors.contains("nvme"), "{errors}");
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn commands_in_a_guest_run_side_by_side_and_come_back_whole() {
    let cache = Cache::ensure().unwrap();
    let run = Run::new("commands").unwrap();
    let own = run.path("own.txt");
    fs::write(&own, "brought along\n").unwrap();
    let options = GuestOptions {
        spare_ports: 2,
        reboots: true,
        files: vec![(own, "/root/own.txt".to_owned())],
        kernel_arguments: vec!["nvme_core.io_timeout=7".to_owned()],
        ..GuestOptions::default()
    };
    let mut guest = Guest::start(&run, &cache, &options).unwrap();
    assert_eq!(guest.check("cat own.txt", SOON).unwrap(), "brought along\n");
    assert_eq!(guest.check("cat /sys/module/nvme_core/parameters/io_timeout", SOON).unwrap(), "7\n");

    let output = guest.run("printf '@done 1 0 5\\nno end'; echo oops >&2; exit 7", SOON).unwrap();
    assert_eq!((output.status, output.stdout.as_str()), (7, "@done 1 0 5\nno endoops\n"));
    let long = guest.check("seq 100000", SOON).unwrap();
    assert!(long.ends_with("\n99999\n100000\n") && long.len() == 588_895, "{} bytes", long.len());
    let noisy = guest.check("for n in 1 2 3; do echo '<1>noise' >/dev/kmsg; echo $n; done", SOON).unwrap();
    assert_eq!(noisy, "1\n2\n3\n", "kernel messages go elsewhere");

    // A slow command holds up nobody.
    let slow = guest.spawn("while [ ! -e /tmp/go ]; do sleep 0.1; done; echo slept").unwrap();
    assert!(matches!(slow.wait(Duration::from_millis(50)), Err(Error::Timeout { .. })));
    assert_eq!(guest.check("echo quick; touch /tmp/go", SOON).unwrap(), "quick\n");
    assert_eq!(slow.wait(SOON).unwrap().success().unwrap(), "slept\n");

    let disk = local_disk(&run, "PLUGGED");
    guest.plug(&disk, 1).unwrap();
    let name = guest.nvme("PLUGGED", SOON).unwrap();
    guest.unplug(&disk, SOON).unwrap();
    guest.check(&format!("[ ! -e {} ]", name.disk), SOON).unwrap();

    guest.check("touch /tmp/mark", SOON).unwrap();
    guest.reset(SOON).unwrap();
    guest.check("[ ! -e /tmp/mark ]", SOON).unwrap();
    assert!(guest.power_off(SOON).unwrap().success());
}

/// Children of `pid`, and theirs.
fn descendants(pid: u32) -> Vec<u32> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut found: Vec<u32> = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .chain([list])
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect();
    found.sort_unstable();
    found.dedup();
    let below: Vec<u32> = found.iter().flat_map(|child| descendants(*child)).collect();
    found.extend(below);
    found
}

fn wait_for_descendants(child: &Child) -> Vec<u32> {
    let start = Instant::now();
    loop {
        let found = descendants(child.id());
        // Once QEMU has been up for a moment.
        if start.elapsed() > Duration::from_secs(3) && !found.is_empty() {
            return found;
        }
        assert!(start.elapsed() < SOON, "the lab starts nothing");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_killed_lab_takes_its_guest_along_and_the_next_run_removes_the_rest() {
    Cache::ensure().unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_lab"))
        .args(["exec", "--only-local", "sleep 1000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let children = wait_for_descendants(&lab);
    let left = Cache::folder().join("runs").join(format!("{}-0", lab.id()));
    assert!(left.exists());
    lab.kill().unwrap();
    lab.wait().unwrap();
    let start = Instant::now();
    while children.iter().any(|pid| Path::new(&format!("/proc/{pid}/exe")).exists()) {
        assert!(start.elapsed() < SOON, "QEMU lives on");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(left.exists(), "nobody has cleaned up yet");
    let run = Run::new("next").unwrap();
    assert!(!left.exists());
    drop(run);
}
