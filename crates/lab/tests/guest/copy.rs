//! `etherslot copy` inside a guest: the guest's own kernel copies disks and files, in the memory of one of the devices where it can, and then
//! next to nothing of it is on the Ethernet.

use std::fmt::Write as _;
use std::path::Path;

use etherslot_lab::{
    BOX_MAC, Cache, Daemon, Disk, Guest, GuestDevice, GuestOptions, INTERFACE, KERNELS, Namespace, Net,
    NetOptions, NvmeName, OTHER_BOX_MAC, Rig, RigOptions, Role, Run, Side, Traffic, etherslot_binary,
};
use serde_json::Value;

use crate::recovery::add_again;
use crate::story::{LOAD, MIB, SOON, Story, complaints, wait_until};

const PROGRAM: &str = "/usr/bin/etherslot";
/// As much as mkfs.xfs wants at least, and some.
const DISK_BYTES: u64 = 384 * MIB;
const COPIED: u64 = 64 * MIB;
/// Of a file: no whole number of blocks.
const FILE_BYTES: u64 = 48 * MIB + 1234;

/// Two disks of a box that reach each other. SOURCE has a Controller Memory Buffer.
fn options() -> RigOptions {
    let disk = |serial: &str, settings: &str| Disk {
        serial: serial.to_owned(),
        namespaces: vec![Namespace { bytes: DISK_BYTES, ..Namespace::default() }],
        settings: settings.to_owned(),
        ..Disk::default()
    };
    let guest = GuestOptions {
        files: vec![(etherslot_binary().unwrap(), PROGRAM.to_owned())],
        memory_mib: 1024,
        ..GuestOptions::default()
    };
    RigOptions {
        disks: vec![disk("SOURCE", "cmb_bytes = 16777216"), disk("TARGET", "")],
        domain: Some(1),
        guest,
        ..RigOptions::default()
    }
}

/// Runs `etherslot copy` in the guest: what it reports, and what else it says.
fn copy(guest: &Guest, arguments: &str) -> (Value, String) {
    let said = guest.check(&format!("{PROGRAM} copy {arguments} --output json 2>&1"), LOAD).unwrap();
    let report = said.lines().find(|line| line.starts_with('{')).unwrap_or_else(|| panic!("{said}"));
    (serde_json::from_str(report).unwrap(), said)
}

/// Bytes on the Ethernet, both ways.
fn between(before: &Traffic, after: &Traffic) -> u64 {
    after.host_bytes + after.box_bytes - before.host_bytes - before.box_bytes
}

/// Copies; whatever is copied past the guest's memory is not on the Ethernet.
fn copies(rig: &Rig, arguments: &str, bytes: u64, by: &str) -> String {
    let before = rig.net.traffic().unwrap();
    let (report, said) = copy(&rig.guest, arguments);
    let on_link = between(&before, &rig.net.traffic().unwrap());
    assert_eq!((&report["by"], &report["bytes"]), (&by.into(), &bytes.into()), "{said}");
    match by {
        "buffer" => assert!(on_link * 100 <= bytes, "{on_link} bytes on the Ethernet for {bytes}: {said}"),
        _ => assert!(on_link >= 2 * bytes, "{on_link} bytes on the Ethernet for {bytes}: {said}"),
    }
    said
}

/// A file system on each disk, and a file on the first of them.
fn file_systems(guest: &Guest, source: &str, target: &str) {
    let made = format!(
        "set -e; mkfs.ext4 -q -F {source}; mkfs.xfs -q -f {target}; mkdir -p /a /b; mount {source} /a; mount {target} /b
         head -c {FILE_BYTES} /dev/urandom >/a/file; sync"
    );
    guest.check(&made, LOAD).unwrap();
}

/// The files are the same on the media, and the file systems in order.
fn is_whole(guest: &Guest, source: &str, target: &str) {
    let looked = format!(
        "set -e; umount /a /b; e2fsck -f -n {source}; xfs_repair -n {target}; mount {source} /a; mount {target} /b
         cmp /a/file /b/file; [ $(stat -c %s /b/file) = {FILE_BYTES} ]; umount /a /b"
    );
    guest.check(&looked, LOAD).unwrap();
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_guest_copies_disks_and_files_past_its_memory_and_the_ethernet() {
    let story = Story::begin();
    let cache = Cache::ensure_with(&KERNELS[1], &mut |text| eprintln!("lab: {text}")).unwrap();
    let rig = Rig::start("guest-copy", &cache, options()).unwrap();
    let guest = &rig.guest;
    let [source, target] = ["SOURCE", "TARGET"].map(|serial| guest.nvme(serial, SOON).unwrap());
    let fill = format!("dd if=/dev/urandom of={} bs=1M count=64 oflag=direct status=none", source.disk);
    guest.check(&fill, LOAD).unwrap();
    let offered = guest.check(&format!("cat /sys/bus/pci/devices/{}/p2pmem/available", source.pci), SOON);
    story.tell(format!("kernel {} offers {} bytes", cache.kernel_release(), offered.unwrap().trim()));

    let range = format!("{}:0+64m {}:1m+", source.disk, target.disk);
    copies(&rig, &range, COPIED, "buffer");
    let same = format!("cmp -n {COPIED} {} {} 0 1048576", source.disk, target.disk);
    guest.check(&same, LOAD).unwrap();
    story.tell("a disk was copied to another, and less than a hundredth of it was on the Ethernet");

    file_systems(guest, &source.disk, &target.disk);
    copies(&rig, "/a/file /b/file", FILE_BYTES.next_multiple_of(4096), "buffer");
    is_whole(guest, &source.disk, &target.disk);
    story.tell("and so was a file, from ext4 to XFS");

    guest.check(&format!("mount {} /a; mount {} /b", source.disk, target.disk), SOON).unwrap();
    let (report, said) = copy(guest, "/b/file /a/again --verify");
    assert_eq!((&report["by"], &report["pairs"][0]["verified"]), (&"buffer".into(), &true.into()), "{said}");
    let pairs = format!("/a/file /b/one /b/file /a/two --buffer {}", source.pci);
    let (report, said) = copy(guest, &pairs);
    assert_eq!(report["pairs"].as_array().map(Vec::len), Some(2), "{said}");
    guest
        .check("cmp /a/again /b/file && cmp /a/file /b/one && cmp /b/file /a/two && umount /a /b", LOAD)
        .unwrap();
    story.tell("back, compared; and both ways at once");
    assert_eq!(complaints(guest), Vec::<String>::new());
}

/// A box with one disk, `settings` in its table.
fn box_config(name: &str, image: &Path, settings: &str) -> String {
    format!(
        "[node]\nname = \"{name}\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"disk\"\nserial = \"{name}\"\n{settings}\n\
         [[device.namespace]]\npath = \"{}\"\n",
        image.display()
    )
}

/// A guest with a disk in each of two boxes, SOURCE and TARGET.
struct TwoBoxes {
    guest: Guest,
    host: Daemon,
    /// SOURCE's, TARGET's.
    boxes: [Daemon; 2],
    configs: [String; 2],
    net: Net,
    _run: Run,
}

impl TwoBoxes {
    /// `settings` are those of the disks, `kernel_arguments` the guest's.
    fn start(name: &str, settings: [&str; 2], kernel_arguments: &[&str]) -> Self {
        let cache = Cache::ensure_with(&KERNELS[1], &mut |text| eprintln!("lab: {text}")).unwrap();
        let run = Run::new(name).unwrap();
        let net = Net::new(&run, NetOptions { mtu: 9000 }).unwrap();
        net.add_box(NetOptions { mtu: 9000 }).unwrap();
        let mut host_config =
            format!("[node]\nname = \"host\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n");
        let mut devices = Vec::new();
        let places = [("SOURCE", Side::Box, BOX_MAC), ("TARGET", Side::OtherBox, OTHER_BOX_MAC)];
        let configs = [0, 1].map(|at| {
            let serial = places[at].0;
            let image = run.disk_image(&format!("{serial}.img"), DISK_BYTES).unwrap();
            box_config(serial, &image, settings[at])
        });
        let boxes = [0, 1].map(|at| {
            let (serial, side, address) = places[at];
            let socket = run.path(&format!("{serial}.sock"));
            let _ = write!(
                host_config,
                "[[slot]]\ndevice = \"disk\"\nbox = \"{address}\"\nsocket = \"{}\"\ndomain = 1\n",
                socket.display()
            );
            devices.push(GuestDevice::VfioUser { socket, id: serial.to_owned() });
            Daemon::start_at(&run, &net, side, Role::Box, serial, &configs[at]).unwrap()
        });
        let host = Daemon::start(&run, &net, Role::Host, "host", &host_config).unwrap();
        let kernel_arguments = kernel_arguments.iter().map(|&word| word.to_owned()).collect();
        let guest = GuestOptions { devices, kernel_arguments, ..options().guest };
        let guest = Guest::start(&run, &cache, &guest).unwrap();
        Self { guest, host, boxes, configs, net, _run: run }
    }
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_guests_devices_in_two_boxes_hand_each_other_data_past_it() {
    let story = Story::begin();
    let mut rig = TwoBoxes::start("guest-boxes", ["", "cmb_bytes = 16777216"], &[]);
    let guest = &rig.guest;
    let [source, target] = ["SOURCE", "TARGET"].map(|serial| guest.nvme(serial, SOON).unwrap());
    let fill = format!("dd if=/dev/urandom of={} bs=1M count=64 oflag=direct status=none", source.disk);
    guest.check(&fill, LOAD).unwrap();
    story.tell("a guest has a disk in each of two boxes");

    let before = rig.net.traffic().unwrap();
    let (report, said) = copy(guest, &format!("{}:0+64m {}", source.disk, target.disk));
    let after = rig.net.traffic().unwrap();
    let on_host_link = |traffic: &Traffic| traffic.host_bytes + traffic.to_host_bytes;
    let (on_link, between) =
        (on_host_link(&after) - on_host_link(&before), after.box_bytes - before.box_bytes);
    assert_eq!((&report["by"], &report["bytes"]), (&"buffer".into(), &COPIED.into()), "{said}");
    assert!(on_link * 100 <= COPIED, "{on_link} bytes on the host's cable for {COPIED}");
    assert!(between >= COPIED, "{between} bytes left the source's box for {COPIED}");
    guest.check(&format!("cmp -n {COPIED} {} {}", source.disk, target.disk), LOAD).unwrap();
    assert_eq!(complaints(guest), Vec::<String>::new());
    assert!(!rig.host.log().contains("ERROR"), "{}", rig.host.log());
    story.tell("one wrote to the memory of the other, straight from box to box");
    drop(rig.guest);
    for io_box in &mut rig.boxes {
        io_box.stop().unwrap();
    }
}

impl TwoBoxes {
    /// A copy of all of SOURCE, under way; what is done to it ends it with an error, which this returns.
    fn fails(&mut self, does: impl FnOnce(&mut Self, &NvmeName)) -> (String, [NvmeName; 2]) {
        let names = ["SOURCE", "TARGET"].map(|serial| self.guest.nvme(serial, SOON).unwrap());
        let [source, target] = &names;
        let counters = format!("cat /sys/class/block/{}/stat", target.disk.trim_start_matches("/dev/"));
        let written = |guest: &Guest| -> u64 {
            guest.check(&counters, SOON).unwrap().split_whitespace().nth(6).unwrap().parse().unwrap()
        };
        let before = written(&self.guest);
        let command = format!("{PROGRAM} copy {} {} --patience 2s 2>&1", source.disk, target.disk);
        let job = self.guest.spawn(&command).unwrap();
        wait_until("a copy under way", LOAD, || written(&self.guest) > before + MIB / 512);
        assert!(!job.is_done(), "nothing has happened to it yet");
        does(self, target);
        let output = job.wait(LOAD).unwrap();
        assert_eq!(output.status, 1, "{}", output.stdout);
        (output.stdout, names)
    }

    /// The box is back, and the guest finds its controller anew.
    fn is_back(&mut self, number: usize, pci: &str) {
        self.boxes[number].restart(&self.configs[number]).unwrap();
        // Until the host has it again, the guest finds nothing.
        wait_until("the device's return", LOAD, || {
            add_again(&self.guest, pci);
            self.guest.run(&format!("[ -e /sys/bus/pci/devices/{pci} ]"), SOON).unwrap().status == 0
        });
    }
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_copy_in_a_guest_ends_with_an_error_that_names_the_side_that_died() {
    let story = Story::begin();
    // A minute for the whole disk: whatever happens does so in the middle.
    let slow = "rate = \"6 MB/s\"";
    let with_memory = format!("cmb_bytes = 16777216\n{slow}");
    // What the guest's driver waits for a command; it is 30 s and 60 s else.
    let arguments = ["nvme_core.io_timeout=5", "nvme_core.admin_timeout=5"];
    let mut rig = TwoBoxes::start("guest-copy-kill", [slow, &with_memory], &arguments);

    let (said, [source, target]) = rig.fails(|rig, _| rig.boxes[0].kill());
    assert!(said.contains("reading the source") && said.contains(&source.disk), "{said}");
    story.tell("kill -9 of the source's box: the copy says that it was the source");

    rig.is_back(0, &source.pci);
    let (said, _) = rig.fails(|rig, _| rig.boxes[1].kill());
    let told = |name: &NvmeName| format!("memory of {} with target {}", name.pci, name.disk);
    assert!(said.contains("out of reach") && said.contains("with target /dev/"), "{said}");
    story.tell("kill -9 of the target's box, which the memory between the two is in, too: the copy says so");

    rig.is_back(1, &target.pci);
    let remove = |rig: &mut TwoBoxes, name: &NvmeName| {
        rig.guest.check(&format!("echo 1 >/sys/bus/pci/devices/{}/remove", name.pci), LOAD).unwrap();
    };
    let (said, [_, target]) = rig.fails(remove);
    // Whichever is noticed first: that a write found no disk, or that the memory is gone.
    let is_told =
        said.contains("writing the target") && said.contains(&target.disk) || said.contains(&told(&target));
    assert!(is_told, "{said}");
    story.tell("the target is removed with its memory, which the program had mapped: the same");
    assert!(rig.host.is_running() && rig.guest.process().is_running());
}

#[test]
#[ignore = "needs root and QEMU: ./run test guest"]
fn a_guest_whose_kernel_knows_no_peer_to_peer_memory_says_so_and_copies_all_the_same() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let rig = Rig::start("guest-copy-old", &cache, options()).unwrap();
    let guest = &rig.guest;
    let [source, target] = ["SOURCE", "TARGET"].map(|serial| guest.nvme(serial, SOON).unwrap());
    file_systems(guest, &source.disk, &target.disk);
    let said = copies(&rig, "/a/file /b/file --verify", FILE_BYTES.next_multiple_of(4096), "host");
    assert!(
        said.contains("no device offers peer-to-peer memory") && said.contains("CONFIG_PCI_P2PDMA"),
        "{said}"
    );
    assert!(said.contains("all data passes this machine's memory"), "{said}");
    is_whole(guest, &source.disk, &target.disk);
    story.tell("a file was copied through the guest's memory, and the guest said why");

    let mounted = format!("mount {} /b && {PROGRAM} copy {} {}", target.disk, source.disk, target.disk);
    let refused = guest.run(&mounted, SOON).unwrap();
    assert!(refused.status != 0 && refused.stdout.contains("unmount it"), "{}", refused.stdout);
    let asked = format!("umount /b; {PROGRAM} copy {} {} --buffer {}", source.disk, target.disk, source.pci);
    let refused = guest.run(&asked, SOON).unwrap();
    assert!(refused.status != 0 && refused.stdout.contains("no device offers"), "{}", refused.stdout);
    story.tell("a mounted target was refused, and memory that is not there");
}
