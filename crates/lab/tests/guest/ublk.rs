//! `etherslot export --ublk` in a stock guest, whose kernel has the driver: box and exporter are both in it.

use std::path::PathBuf;
use std::process::Command;

use etherslot_lab::{Cache, Guest, GuestOptions, Run, etherslot_binary};

use crate::story::{LOAD, MIB, SOON, Story, complaints, verified, wait_until};

/// In the guest: the binary and the libraries that it was linked with here.
const FOLDER: &str = "/opt/etherslot";
const DISK: &str = "/dev/ublkb0";
const BOX: &str = "[node]\nname = \"box\"\n[link]\nkind = \"udp\"\nlisten = \"127.0.0.1:4700\"\n\
    [[device]]\nkind = \"nvme\"\nname = \"disk0\"\nserial = \"UBLK0001\"\n\
    [[device.namespace]]\nmemory = \"128 MiB\"\n";

/// The binary and what `ldd` says that it needs, with its loader.
fn files() -> Vec<(PathBuf, String)> {
    let binary = etherslot_binary().unwrap();
    let output = Command::new("ldd").arg(&binary).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let needed = text.split_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from);
    let of = |path: PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (path, format!("{}/{name}", FOLDER.trim_start_matches('/')))
    };
    needed.chain([binary]).map(of).collect()
}

/// A command line that runs it with its own loader and libraries.
fn etherslot(arguments: &str) -> String {
    format!("{FOLDER}/ld-linux-x86-64.so.2 --library-path {FOLDER} {FOLDER}/etherslot {arguments}")
}

/// Starts `etherslot` in the background, and waits until its log has `text`. Its process is in `NAME.pid`.
fn start(guest: &Guest, name: &str, arguments: &str, text: &str) {
    let command = etherslot(arguments);
    let started = format!(
        "export ETHERSLOT_CONTROL=/tmp/{name}.control; {command} </dev/null >/tmp/{name}.log 2>&1 & echo $! >/tmp/{name}.pid"
    );
    guest.check(&started, SOON).unwrap();
    wait_until(&format!("{name}: {text}"), SOON, || {
        let log = guest.run(&format!("cat /tmp/{name}.log"), SOON).unwrap().stdout;
        assert!(guest.run(&format!("kill -0 $(cat /tmp/{name}.pid)"), SOON).unwrap().status == 0, "{log}");
        log.contains(text)
    });
}

const EXPORT: &str =
    "export disk0@127.0.0.1:4700 --link udp:127.0.0.1:0 --plaintext --ublk --patience 20s --wait 20s";

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_remote_disk_is_a_block_device_of_a_stock_kernel() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let run = Run::new("ublk").unwrap();
    let options = GuestOptions { files: files(), memory_mib: 1024, ..GuestOptions::default() };
    let mut guest = Guest::start(&run, &cache, &options).unwrap();
    guest.check("ip link set lo up", SOON).unwrap();
    guest.check(&format!("cat >/tmp/box.toml <<'END'\n{BOX}END"), SOON).unwrap();
    start(&guest, "box", "box --plaintext --config /tmp/box.toml", "ready");

    let output = guest.run(&etherslot(EXPORT), SOON).unwrap();
    assert!(output.status != 0 && output.stdout.contains("load the module ublk_drv"), "{output:?}");
    story.tell("without the driver the cause and the remedy are told");

    guest.check("modprobe ublk_drv", SOON).unwrap();
    start(&guest, "export", EXPORT, "device=/dev/ublkb0");
    let size = guest.check(&format!("blockdev --getsize64 {DISK}"), SOON).unwrap();
    assert_eq!(size.trim(), (128 * MIB).to_string());
    for (area_mib, block_bytes, depth) in [((0, 4), 4096, 1), ((4, 16), 4096, 32), ((20, 64), 128 << 10, 8)] {
        guest.fio(&verified(DISK, area_mib, block_bytes, depth), LOAD).unwrap();
    }
    story.tell("fio has read back what it wrote");

    let file_system = format!(
        "set -e; mkfs.ext4 -q {DISK}; mkdir -p /mnt; mount {DISK} /mnt
        dd if=/dev/urandom of=/mnt/data bs=1M count=24 2>/dev/null; sha256sum /mnt/data >/tmp/sum
        rm -rf /mnt/lost+found; fstrim /mnt; umount /mnt; blockdev --flushbufs {DISK}"
    );
    guest.check(&file_system, LOAD).unwrap();
    let told = guest.check("kill $(cat /tmp/export.pid); cat /tmp/export.log", SOON).unwrap();
    wait_until("the end of the block device", SOON, || {
        guest.run(&format!("test -e {DISK} -o -e /dev/ublkc0"), SOON).unwrap().status != 0
    });
    story.tell("SIGTERM takes the device away");
    start(&guest, "export", EXPORT, "device=/dev/ublkb0");
    let back = format!("set -e; fsck.ext4 -fn {DISK}; mount {DISK} /mnt; sha256sum -c /tmp/sum; umount /mnt");
    guest.check(&back, LOAD).unwrap();
    assert_eq!(complaints(&guest), Vec::<String>::new(), "{told}");
    story.tell("a file system outlives it, with what was in it");

    let control = etherslot("stat /tmp/export.control --output json");
    let stat: serde_json::Value = serde_json::from_str(&guest.check(&control, SOON).unwrap()).unwrap();
    assert!(stat["counters"]["bytes_read"].as_u64().unwrap() >= 24 * MIB, "{stat:#}");
    assert_eq!(stat["counters"]["errors"], 0, "{stat:#}");

    guest.check("kill -9 $(cat /tmp/export.pid)", SOON).unwrap();
    let output = guest.run(&format!("dd if={DISK} of=/dev/null bs=64k count=1 iflag=direct"), SOON).unwrap();
    assert_ne!(output.status, 0, "nobody is there who would answer");
    start(&guest, "export", EXPORT, "device=/dev/ublkb");
    story.tell("one that was killed fails its users, hangs nobody, and is replaced");
    assert!(guest.power_off(SOON).unwrap().success());
}
