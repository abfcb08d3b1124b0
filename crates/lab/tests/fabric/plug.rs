//! Devices enter and leave stock guests that run: by orders, and by accident.

use std::process::{Child, Stdio};
use std::time::Instant;

use etherslot_lab::{Cache, Job, Level, Side, Story, wait_until};
use serde_json::Value;

use crate::machine::{Machine, SOON};
use crate::stand::Stand;

const BLOCK_BYTES: u64 = 4096;
/// Where writers write, blocks.
const AREA_BLOCKS: u64 = 2048;

/// A writer in a guest that writes block after block until it gets an error.
struct Writer {
    job: Job,
    disk: String,
    pattern: u32,
}

/// The blocks that a disk has acknowledged, from the first.
struct Written {
    blocks: u64,
    pattern: u32,
}

impl Writer {
    fn start(machine: &Machine, disk: &str, pattern: u32) -> Self {
        // Beside the one that is checked, one with many writes in flight in another area.
        let command = format!(
            "fio --output-format=json --ioengine=io_uring --direct=1 --filename={disk} --bs=4k --time_based --runtime=600 \
             --name=noted --rw=write --iodepth=1 --size={area} --verify=pattern --verify_pattern=0x{pattern:08x} \
             --do_verify=0 --rate_iops=100 \
             --name=beside --rw=randwrite --iodepth=8 --offset={area} --size=16m --rate_iops=100",
            area = AREA_BLOCKS * BLOCK_BYTES,
        );
        Self { job: machine.guest.spawn(&command).unwrap(), disk: disk.to_owned(), pattern }
    }

    fn wait_at_work(&self, machine: &Machine) {
        let block = self.disk.trim_start_matches("/dev/");
        let at_work =
            format!("while [ $(awk '{{ print $5 }}' /sys/block/{block}/stat) -lt 50 ]; do sleep 0.1; done");
        machine.guest.check(&at_work, SOON).unwrap_or_else(|error| panic!("{error}\n{}", machine.host.log()));
    }

    /// Waits until it has written more than it has by now.
    fn wait_for_more(&self, machine: &Machine) {
        let block = self.disk.trim_start_matches("/dev/");
        let more = format!(
            "written() {{ awk '{{ print $5 }}' /sys/block/{block}/stat; }}; now=$(written); \
             while [ $(written) -lt $((now + 50)) ]; do sleep 0.1; done"
        );
        machine.guest.check(&more, SOON).unwrap_or_else(|error| panic!("{error}\n{}", machine.host.log()));
    }

    /// Waits for its error.
    fn ends(&self, machine: &Machine) -> Written {
        let output = self.job.wait(SOON).unwrap_or_else(|error| panic!("{error}\n{}", machine.host.log()));
        assert_ne!(output.status, 0, "a writer whose disk went has to have an error: {}", output.stdout);
        let json = &output.stdout[output.stdout.find('{').unwrap_or_default()..];
        let result: Value =
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {}", output.stdout));
        let jobs = result["jobs"].as_array().unwrap();
        let noted = jobs.iter().find(|job| job["jobname"] == "noted").unwrap();
        let blocks = noted["write"]["io_kbytes"].as_u64().unwrap() * 1024 / BLOCK_BYTES;
        Written { blocks: blocks.min(AREA_BLOCKS), pattern: self.pattern }
    }
}

impl Written {
    /// Begins to read them.
    fn check(&self, machine: &Machine, disk: &str) -> Check {
        let Self { blocks, pattern } = self;
        assert!(*blocks > 0, "a writer wrote nothing");
        let command = format!(
            "fio --ioengine=io_uring --direct=1 --filename={disk} --bs=4k --name=check --rw=read --iodepth=8 \
             --size={} --verify=pattern --verify_pattern=0x{pattern:08x} --verify_fatal=1",
            blocks * BLOCK_BYTES,
        );
        Check { job: machine.guest.spawn(&command).unwrap(), blocks: *blocks }
    }
}

/// A look at what was acknowledged.
struct Check {
    job: Job,
    blocks: u64,
}

impl Check {
    fn holds(&self) {
        let output = self.job.wait(SOON).unwrap();
        assert_eq!(output.status, 0, "{} blocks were acknowledged: {}", self.blocks, output.stdout);
    }
}

fn order(stand: &Stand, disk: u16, host: char) -> Child {
    let (disk, host) = (format!("disk{disk}"), format!("host-{host}"));
    let mut command = stand.command(&["assign", &disk, &host]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
#[ignore = "needs root and QEMU: ./run test fabric"]
fn fifty_orders_move_disks_between_two_guests_under_load_and_lose_nothing_acknowledged() {
    const DISKS: u16 = 5;
    const ROUNDS: u32 = 10;
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let stand = Stand::new("fabric-plug");
    let (mut io_box, _) = stand.start_box(1, "rendezvous = true", 1..=DISKS);
    let machines = ['a', 'b'].map(|letter| Machine::start(&stand, &cache, letter, DISKS, "10s"));
    stand.wait_for_node("host-a", "up");
    stand.wait_for_node("host-b", "up");
    story.tell("two guests without a disk");

    let mut written: Vec<Option<Written>> = (0..DISKS).map(|_| None).collect();
    let mut writers: Vec<(u16, Writer)> = Vec::new();
    let mut blocks = 0;
    for round in 0..ROUNDS {
        let at = round as usize % 2;
        let (from, to) = (&machines[1 - at], &machines[at]);
        let begun = Instant::now();
        let orders: Vec<Child> = (1..=DISKS).map(|disk| order(&stand, disk, ['a', 'b'][at])).collect();
        for order in orders {
            let output = order.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{said}\n{}", from.host.log());
        }
        let moved = begun.elapsed();
        for (disk, writer) in writers.drain(..) {
            let noted = writer.ends(from);
            blocks += noted.blocks;
            written[usize::from(disk - 1)] = Some(noted);
        }
        assert_eq!(from.controllers(), 0, "the old guest has none of them any more");
        let names: Vec<String> = (1..=DISKS).map(|disk| to.disk(disk)).collect();
        let there = begun.elapsed();
        let found =
            names.iter().zip(&written).filter_map(|(name, written)| Some(written.as_ref()?.check(to, name)));
        found.collect::<Vec<Check>>().iter().for_each(Check::holds);
        for (disk, name) in (1..).zip(&names) {
            writers.push((disk, Writer::start(to, name, round << 8 | u32::from(disk) | 0xE510_0000)));
        }
        for (_, writer) in &writers {
            writer.wait_at_work(to);
        }
        story.tell(format!(
            "round {round}: {DISKS} orders done after {:.1} s, the disks there after {:.1} s, at work after {:.1} s",
            moved.as_secs_f64(),
            there.as_secs_f64(),
            begun.elapsed().as_secs_f64()
        ));
    }
    story.tell(format!("{blocks} blocks were acknowledged under way, and all were found"));
    for machine in &machines {
        let errors = machine.guest.dmesg(Level::Error).unwrap();
        let of_hot_plug = errors.lines().filter(|line| line.contains("pciehp") || line.contains("AER"));
        assert_eq!(of_hot_plug.collect::<Vec<_>>(), Vec::<&str>::new());
    }
    // The guests that have the disks are asked for them, and give them.
    for disk in 1..=DISKS {
        stand.done(&["release", &format!("disk{disk}")]);
    }
    assert_eq!(machines.each_ref().map(Machine::controllers), [0, 0]);
    assert!(io_box.is_running());
}

#[test]
#[ignore = "needs root and QEMU: ./run test fabric"]
fn a_disk_whose_box_dies_or_whose_cable_is_cut_is_removed_and_is_there_again_when_it_is_back() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let stand = Stand::new("fabric-surprise");
    let (mut io_box, config) = stand.start_box(1, "rendezvous = true\nhold = \"60s\"", 1..=1);
    let mut machine = Machine::start(&stand, &cache, 'a', 1, "1s");
    stand.done(&["assign", "disk1", "host-a"]);
    let writer = Writer::start(&machine, &machine.disk(1), 0xE511_0001);
    writer.wait_at_work(&machine);

    let begun = Instant::now();
    io_box.kill();
    let written = writer.ends(&machine);
    story.tell(format!(
        "kill -9 of the box; the writer has its errors after {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    wait_until("the removal of the disk", SOON, || machine.controllers() == 0);
    story.tell(format!("the guest has no disk any more after {:.1} s", begun.elapsed().as_secs_f64()));
    let messages = machine.guest.dmesg(Level::Debug).unwrap();
    let of_interest = |line: &&str| ["AER", "pciehp", "Surprise"].iter().any(|word| line.contains(word));
    story.tell(messages.lines().filter(of_interest).collect::<Vec<_>>().join("\n               "));
    assert!(messages.contains("AER"), "the guest is told as PCI Express defines it: {messages}");

    let begun = Instant::now();
    io_box.restart(&config).unwrap();
    let disk = machine.disk(1);
    story.tell(format!("the box is back, and the disk {:.1} s later", begun.elapsed().as_secs_f64()));
    written.check(&machine, &disk).holds();
    let writer = Writer::start(&machine, &disk, 0xE511_0002);
    writer.wait_at_work(&machine);

    let begun = Instant::now();
    stand.net.connect(Side::Box, false).unwrap();
    let written = writer.ends(&machine);
    wait_until("the removal of the disk", SOON, || machine.controllers() == 0);
    story.tell(format!("the cable is cut, and the disk gone {:.1} s later", begun.elapsed().as_secs_f64()));
    stand.net.connect(Side::Box, true).unwrap();
    let begun = Instant::now();
    let disk = machine.disk(1);
    story.tell(format!("the cable is whole, and the disk back after {:.1} s", begun.elapsed().as_secs_f64()));
    written.check(&machine, &disk).holds();
    let writer = Writer::start(&machine, &disk, 0xE511_0003);
    writer.wait_at_work(&machine);

    let begun = Instant::now();
    machine.host.process().kill();
    machine.host.restart(&machine.config).unwrap();
    let written = writer.ends(&machine);
    wait_until("the disk's way out and in again", SOON, || machine.host.log().contains("is in the guest"));
    let disk = machine.disk(1);
    story.tell(format!(
        "kill -9 of the host daemon: a new one takes the dead device out and the disk in, {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    written.check(&machine, &disk).holds();

    // Short of the grace no device goes: the driver is told, sets it up again, and the writer goes on.
    let writer = Writer::start(&machine, &disk, 0xE511_0004);
    writer.wait_at_work(&machine);
    let before = machine.host.log().matches("is not in the guest").count();
    let begun = Instant::now();
    io_box.kill();
    io_box.restart(&config).unwrap();
    writer.wait_for_more(&machine);
    story.tell(format!(
        "kill -9 of the box, which is back at once: written again after {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    assert_eq!(machine.host.log().matches("is not in the guest").count(), before);
    assert_eq!(machine.controllers(), 1);
    let messages = machine.guest.dmesg(Level::Debug).unwrap();
    assert!(
        !messages.contains("timeout, aborting"),
        "the driver did not have to find out by itself: {messages}"
    );
}

#[test]
#[ignore = "needs root and QEMU: ./run test fabric"]
fn slots_for_any_device_take_what_is_given_to_their_host() {
    let story = Story::begin();
    let cache = Cache::ensure().unwrap();
    let stand = Stand::new("fabric-any");
    let _box = stand.start_box(1, "rendezvous = true\noffer = \"2s\"", 1..=4);
    let slots = ["*", "disk4", "*"].map(str::to_owned);
    let mut machine = Machine::with_slots(&stand, &cache, 'a', &slots, "10s");
    stand.wait_for_node("host-a", "up");
    wait_until("the disk that has a slot", SOON, || machine.controllers() == 1);
    story.tell("what anybody may have stays in the box, but for the disk that has a slot of its own");
    stand.done(&["assign", "disk2", "host-a"]);
    stand.done(&["assign", "disk1", "7"]);
    let first = machine.disk(1);
    machine.disk(2);
    machine.guest.check(&format!("echo mine | dd of={first} oflag=direct conv=sync bs=4k"), SOON).unwrap();
    let (is_well, said) = stand.operator(&["assign", "disk3", "host-a"]);
    assert!(!is_well && said.contains("has it a slot for it"), "{said}");
    story.tell("one given to the host, one to its group; for a third there is no slot");

    stand.done(&["release", "disk2"]);
    assert_eq!(machine.controllers(), 2);
    stand.done(&["assign", "disk3", "host-a"]);
    machine.disk(3);
    assert_eq!(machine.controllers(), 3);
    story.tell("once one is released, its slot takes the third");

    machine.host.process().kill();
    machine.host.restart(&machine.config).unwrap();
    // It finds the three dead ones there, takes them out, and plugs in three that work.
    wait_until("the way out and in again", SOON, || {
        machine.host.log().matches("is in the guest").count() >= 6
    });
    machine.disk(3);
    machine.disk(4);
    let first = machine.disk(1);
    let found = machine.guest.check(&format!("head -c 4 {first}"), SOON).unwrap();
    assert_eq!(found.trim(), "mine");
    story.tell("a host daemon that is killed finds all three again");
}
