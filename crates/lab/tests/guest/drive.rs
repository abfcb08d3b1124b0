//! The remote drive as the driver, the kernel's tools and nvme-cli see it: a drive like any other.

use std::thread;
use std::time::Duration;

use etherslot_lab::fio::{Load, Pattern, Until, Verify};
use etherslot_lab::{
    Cache, Capture, Guest, GuestOptions, Keep, Net, NvmeName, Rig, RigBase, RigOptions, Run,
};
use serde_json::Value;

use crate::story::{LOAD, MIB, SOON, Story, complaints, verified};

/// An nvme-cli session on one drive.
struct Drive<'a> {
    guest: &'a Guest,
    name: &'a NvmeName,
}

impl Drive<'_> {
    /// Runs `nvme WORDS`, with `CTRL` and `DISK` in it replaced; anything but success is an error.
    fn nvme(&self, words: &str) -> String {
        self.guest.check(&self.line(words), SOON).unwrap()
    }

    /// The same for what must be refused: what it says.
    fn refused(&self, words: &str) -> String {
        let output = self.guest.run(&self.line(words), SOON).unwrap();
        assert_ne!(output.status, 0, "nvme {words}: {}", output.stdout);
        output.stdout
    }

    /// The same with its JSON read.
    fn json(&self, words: &str) -> Value {
        let text = self.nvme(&format!("{words} --output-format=json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("nvme {words}: {error}: {text}"))
    }

    fn shell(&self, script: &str) -> String {
        let script = script.replace("CTRL", &self.name.controller).replace("DISK", &self.name.disk);
        self.guest.check(&format!("set -e; {script}"), SOON).unwrap()
    }

    fn line(&self, words: &str) -> String {
        format!("nvme {words}").replace("CTRL", &self.name.controller).replace("DISK", &self.name.disk)
    }

    /// A feature's current value.
    fn feature(&self, id: u8) -> u64 {
        let text = self.nvme(&format!("get-feature CTRL --feature-id={id:#x}"));
        let value = text.rsplit(':').next().unwrap_or_default().trim().trim_start_matches("0x");
        u64::from_str_radix(value, 16).unwrap_or_else(|_| panic!("feature {id:#x}: {text}"))
    }

    /// A counter of the SMART log.
    fn smart(&self, name: &str) -> u64 {
        number(&self.json("smart-log CTRL"), name)
    }

    /// Fills LBAs 0 to 63 with a pattern that is not zero.
    fn fill(&self) {
        self.shell(
            "tr '\\0' 'x' </dev/zero | head -c 262144 >/tmp/fill
             dd if=/tmp/fill of=DISK bs=32k oflag=direct status=none",
        );
    }

    /// Bytes other than zero among the first `bytes`.
    fn nonzero_bytes(&self, bytes: u64) -> u64 {
        let count = format!("head -c {bytes} DISK | tr -d '\\0' | wc -c");
        self.shell(&format!("blockdev --flushbufs DISK; {count}")).trim().parse().unwrap()
    }
}

fn number(value: &Value, name: &str) -> u64 {
    let field = &value[name];
    // nvme-cli writes 128-bit counters as numbers or as text, by its version.
    field
        .as_u64()
        .or_else(|| field.as_str()?.parse().ok())
        .unwrap_or_else(|| panic!("no number {name} in {value}"))
}

/// What every system does with a drive: looks at it, reads and writes, mounts it, rests, takes it off.
fn normal_run(guest: &Guest, name: &NvmeName) {
    let look = format!(
        "set -e; lspci -vvv -s {0}; nvme list; nvme list -v; lsblk -O {1}; blkid {1} || :
         for file in /sys/block/{2}/* /sys/block/{2}/queue/* /sys/class/nvme/*/*; do
             # The kernel warns of whoever reads this one, of whatever disk.
             [ ${{file##*/}} = capability ] || cat $file >/dev/null 2>&1 || :
         done",
        name.pci,
        name.disk,
        name.disk.trim_start_matches("/dev/"),
    );
    let seen = guest.check(&look, SOON).unwrap();
    assert!(
        seen.contains("Non-Volatile memory controller") && seen.contains("Kernel driver in use: nvme"),
        "{seen}"
    );
    assert!(seen.contains("MSI-X: Enable+"), "{seen}");
    let way = guest.check(&format!("readlink -f /sys/bus/pci/devices/{}; lspci", name.pci), SOON).unwrap();
    let ports = way.lines().next().unwrap_or_default().split('/').count() - 5;
    assert_eq!(ports, 3, "root port, upstream and downstream port of the switch: {way}");
    assert!(way.contains("XIO3130"), "{way}");

    for (mib, block_bytes, depth) in [((0, 2), 4096, 1), ((2, 16), 4096, 32), ((18, 32), 128 << 10, 8)] {
        guest.fio(&verified(&name.disk, mib, block_bytes, depth), LOAD).unwrap();
    }
    let tree = format!(
        "set -e; mkfs.ext4 -q -F {0}; mount -o discard {0} /mnt; cp -a /usr/lib/modules /mnt/tree; sync
         rm -r /mnt/tree; fstrim /mnt; umount /mnt; e2fsck -f -n {0}; blkdiscard -f {0}; blkdiscard -z -l 1M {0}",
        name.disk
    );
    guest.check(&tree, LOAD).unwrap();
}

fn identifies(drive: &Drive<'_>, serial: &str, bytes: u64) {
    let controller = drive.json("id-ctrl CTRL");
    assert_eq!(controller["sn"].as_str().unwrap().trim(), serial);
    assert_eq!(controller["mn"].as_str().unwrap().trim(), "Etherslot NVMe");
    assert!(number(&controller, "ver") >= 0x1_0400, "NVMe 1.4 or later: {controller}");
    for (field, value) in [("sqes", 0x66), ("cqes", 0x44), ("nn", 1), ("cntrltype", 1)] {
        assert_eq!(number(&controller, field), value, "{field}");
    }
    assert!(number(&controller, "mdts") > 0 && number(&controller, "vwc") & 1 == 1);
    let oncs = number(&controller, "oncs");
    for (bit, command) in [(0, "Compare"), (2, "Dataset Management"), (3, "Write Zeroes"), (7, "Verify")] {
        assert!(oncs & (1 << bit) != 0, "{command} is offered: {oncs:#x}");
    }
    let namespace = drive.json("id-ns DISK");
    assert_eq!(number(&namespace, "nsze") * 512, bytes);
    assert_eq!(namespace["lbafs"].as_array().unwrap().len(), 2);
    for words in ["list-ns CTRL", "list-ns CTRL --all"] {
        assert!(drive.nvme(words).trim().ends_with(":\n[   0]:0x1"), "{words}");
    }
    assert!(drive.nvme("ns-descs DISK").contains("uuid"));
    assert!(drive.nvme("list").contains(serial));
    let subsystems = drive.nvme("list-subsys");
    assert!(subsystems.contains("pcie") && subsystems.contains("live"), "{subsystems}");
    let firmware = drive.nvme("fw-log CTRL");
    assert!(firmware.contains(controller["fr"].as_str().unwrap().trim()), "{firmware}");
    assert!(drive.nvme("effects-log CTRL").contains("ACS128"));
    let registers = drive.json("show-regs CTRL");
    assert_eq!((number(&registers, "csts"), number(&registers, "cc") & 1), (1, 1), "{registers}");
}

fn counts_in_the_smart_log(drive: &Drive<'_>) {
    let names = ["host_write_commands", "host_read_commands", "data_units_written", "data_units_read"];
    let before = names.map(|name| drive.smart(name));
    let io = Load {
        device: drive.name.disk.clone(),
        depth: 8,
        pattern: Pattern::Write,
        area_bytes: 2 * MIB,
        until: Until::Bytes(2 * MIB),
        verify: Verify::ReadBack,
        ..Load::default()
    };
    drive.guest.fio(&io, LOAD).unwrap();
    let after = names.map(|name| drive.smart(name));
    // 512 requests of 4 KiB each way, in units of a thousand blocks of 512 bytes.
    for (index, least) in [512, 512, 4, 4].into_iter().enumerate() {
        let grown = after[index] - before[index];
        assert!(grown >= least && grown < least + 64, "{}: {grown} more", names[index]);
    }
    assert_eq!((drive.smart("media_errors"), drive.smart("critical_warning")), (0, 0));
    assert!((273..350).contains(&drive.smart("temperature")), "in kelvins");
}

fn logs_errors(drive: &Drive<'_>) {
    let blocks = number(&drive.json("id-ns DISK"), "nsze");
    let before = drive.smart("num_err_log_entries");
    let said = drive.refused(&format!("read DISK --start-block={blocks} --block-count=0 --data-size=512"));
    assert!(said.contains("LBA") && said.to_lowercase().contains("range"), "{said}");
    // nvme-cli tries commands of NVMe 2.0 before it reads: they are errors, too.
    let after = drive.smart("num_err_log_entries");
    assert!(after > before);
    let log = drive.json("error-log CTRL --log-entries=4");
    let newest = &log["errors"][0];
    assert_eq!(number(newest, "error_count"), after, "{log}");
    assert_eq!((number(newest, "lba"), number(newest, "nsid")), (blocks, 1), "{log}");
    assert_ne!(number(newest, "sqid"), 0, "an I/O queue: {log}");
    let said = drive.refused("get-feature CTRL --feature-id=0x7e");
    assert!(said.to_lowercase().contains("invalid field"), "{said}");
    let said = drive.refused("get-log CTRL --log-id=0x7e --log-len=16");
    assert!(said.to_lowercase().contains("invalid log page"), "{said}");
    drive.refused("admin-passthru CTRL --opcode=0x7f");
}

fn sets_features(drive: &Drive<'_>) {
    assert_eq!(drive.feature(0x06), 1, "the volatile write cache is on");
    drive.nvme("set-feature CTRL --feature-id=0x06 --value=0");
    assert_eq!(drive.feature(0x06), 0);
    drive.guest.fio(&verified(&drive.name.disk, (0, 1), 4096, 4), LOAD).unwrap();
    drive.nvme("set-feature CTRL --feature-id=0x06 --value=1");
    assert_eq!(drive.feature(0x06), 1);

    let queues = drive.feature(0x07);
    assert!(queues & 0xffff >= 1 && queues >> 16 >= 1, "a queue pair for each processor: {queues:#x}");
    let threshold = drive.feature(0x04) & 0xffff;
    drive.nvme("set-feature CTRL --feature-id=0x04 --value=340");
    assert_eq!(drive.feature(0x04) & 0xffff, 340);
    drive.nvme(&format!("set-feature CTRL --feature-id=0x04 --value={threshold}"));
    for feature in [0x01, 0x02, 0x08, 0x0a, 0x0b] {
        drive.feature(feature);
    }
    drive.refused("set-feature CTRL --feature-id=0x7e --value=1");
}

fn does_every_command(drive: &Drive<'_>) {
    drive.shell("head -c 4096 /dev/urandom >/tmp/a; head -c 4096 /dev/urandom >/tmp/b");
    drive.nvme("flush DISK");
    let range = "DISK --start-block=8 --block-count=7";
    drive.nvme(&format!("write {range} --data-size=4096 --data=/tmp/a"));
    drive.nvme(&format!("read {range} --data-size=4096 --data=/tmp/back"));
    drive.shell("cmp /tmp/a /tmp/back");
    drive.nvme(&format!("compare {range} --data-size=4096 --data=/tmp/a"));
    let said = drive.refused(&format!("compare {range} --data-size=4096 --data=/tmp/b"));
    assert!(said.to_lowercase().contains("compare"), "{said}");
    drive.nvme(&format!("verify {range}"));
    drive.nvme(&format!("write {range} --data-size=4096 --data=/tmp/b --force-unit-access"));
    drive.nvme("write-zeroes DISK --start-block=8 --block-count=3");
    drive.shell(
        "dd if=DISK bs=512 skip=8 count=8 iflag=direct status=none of=/tmp/back
         cmp -n 2048 /tmp/back /dev/zero; cmp -i 2048 -n 2048 /tmp/back /tmp/b",
    );

    drive.fill();
    assert_eq!(drive.nonzero_bytes(262_144), 262_144);
    drive.nvme("dsm DISK --namespace-id=1 --ad --slbs=0,128 --blocks=64,64");
    assert_eq!(drive.nonzero_bytes(262_144), 262_144 - 2 * 64 * 512, "what is deallocated reads as zeros");
}

/// A load that is verified, while something else happens to the controller.
fn survives(drive: &Drive<'_>, what: &str, event: impl FnOnce()) {
    let load = Load {
        area_at: 64 * MIB,
        more: "--rate_iops=800".to_owned(),
        ..verified(&drive.name.disk, (64, 8), 4096, 16)
    };
    let job = drive.guest.spawn(&load.command()).unwrap();
    thread::sleep(Duration::from_secs(1));
    assert!(!job.is_done(), "the load is too short for {what}");
    event();
    job.wait(LOAD).unwrap().success().unwrap_or_else(|error| panic!("{what}: {error}"));
}

fn formats(drive: &Drive<'_>, bytes: u64) {
    for (format, block_bytes) in [(1, 4096), (0, 512)] {
        drive.fill();
        drive.nvme(&format!("format DISK --lbaf={format} --ses=0 --force"));
        let geometry = drive.shell("blockdev --getss --getsize64 DISK");
        assert_eq!(geometry, format!("{block_bytes}\n{bytes}\n"));
        assert_eq!(drive.nonzero_bytes(262_144), 0, "the data is gone");
        drive.guest.fio(&verified(&drive.name.disk, (0, 4), 4096, 8), LOAD).unwrap();
    }
    drive.fill();
    drive.nvme("format CTRL --namespace-id=1 --ses=1 --force");
    assert_eq!(drive.nonzero_bytes(262_144), 0, "erased");
    let said = drive.refused("format DISK --lbaf=7 --force");
    assert!(said.to_lowercase().contains("format") || said.to_lowercase().contains("invalid"), "{said}");
}

fn resets(drive: &Drive<'_>) {
    survives(drive, "a reset of the controller", || {
        drive.nvme("reset CTRL");
        thread::sleep(Duration::from_millis(500));
        drive.nvme("reset CTRL");
    });
    // CAP.NSSRS is set, so this is offered; the driver resets the controller with it.
    survives(drive, "a reset of the subsystem", || {
        drive.nvme("subsystem-reset CTRL");
        drive.nvme("reset CTRL");
    });
    for method in ["flr", "bus"] {
        let device = format!("/sys/bus/pci/devices/{}", drive.name.pci);
        survives(drive, &format!("a reset by {method}"), || {
            drive.shell(&format!("echo {method} >{device}/reset_method; echo 1 >{device}/reset"));
        });
    }
    let rebind = format!("cd /sys/bus/pci/drivers/nvme; echo {0} >unbind; echo {0} >bind", drive.name.pci);
    drive.shell(&rebind);
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn the_remote_drive_is_like_any_other_to_driver_and_tools_and_only_our_frames_pass() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let run = Run::new("drive").unwrap();
    let guest = GuestOptions {
        // So that nvme-cli can map the controller's registers, as Debian's kernel forbids otherwise.
        kernel_arguments: vec!["iomem=relaxed".to_owned()],
        ..GuestOptions::default()
    };
    let base = RigBase::start(&run, RigOptions { guest, ..RigOptions::default() }).unwrap();
    let foreign = Capture::start(&run, &base.net, "foreign", Keep::Foreign).unwrap();
    let all = Capture::start(&run, &base.net, "all", Keep::All { frames_max: 5000 }).unwrap();
    let mut rig = base.boot(&run, &cache).unwrap();
    story.tell("the guest is up");
    let name = rig.guest.nvme("ES0001", SOON).unwrap();

    story.tell("a normal run: look, load, file system, discard");
    normal_run(&rig.guest, &name);
    assert_eq!(complaints(&rig.guest), Vec::<String>::new(), "the driver is content");
    only_our_frames(&rig.net, foreign, all);

    let drive = Drive { guest: &rig.guest, name: &name };
    let bytes = 1 << 30;
    story.tell("nvme-cli: id-ctrl, id-ns, list-ns, list-subsys, fw-log");
    identifies(&drive, "ES0001", bytes);
    story.tell("nvme-cli: smart-log");
    counts_in_the_smart_log(&drive);
    story.tell("nvme-cli: error-log");
    logs_errors(&drive);
    story.tell("nvme-cli: get-feature, set-feature");
    sets_features(&drive);
    story.tell("nvme-cli: flush, read, write, compare, verify, write-zeroes, dsm");
    does_every_command(&drive);
    story.tell("nvme-cli: format");
    formats(&drive, bytes);
    story.tell("resets of controller, subsystem, Function and driver under load");
    resets(&drive);
    let name = rig.guest.nvme("ES0001", SOON).unwrap();
    rig.guest.fio(&verified(&name.disk, (0, 4), 4096, 32), LOAD).unwrap();
    story.tell("everything stops in order");
    stops_in_order(&mut rig);
}

fn only_our_frames(net: &Net, foreign: Capture, all: Capture) {
    let traffic = net.traffic().unwrap();
    let foreign = foreign.finish().unwrap();
    assert_eq!((foreign.tally.frames(), foreign.missed), (0, 0), "{:?}", foreign.tally);
    let all = all.finish().unwrap();
    assert_eq!(all.tally.foreign(), 0);
    assert!(all.tally.frames() >= 1000 && traffic.host_frames > 1000, "{:?}, {traffic:?}", all.tally);
}

fn stops_in_order(rig: &mut Rig) {
    assert!(rig.guest.power_off(SOON).unwrap().success());
    for daemon in [&mut rig.host, &mut rig.io_box] {
        assert_eq!(daemon.stop().unwrap().code(), Some(0), "{}", daemon.log());
        assert!(!daemon.log().contains("ERROR"), "{}", daemon.log());
    }
}
