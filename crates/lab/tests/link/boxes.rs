//! `etherslot copy` between disks of two boxes: straight over Ethernet, with counters on the host's cable, and with either box killed on the way.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use etherslot_lab::{
    BOX_MAC, Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, OTHER_BOX_MAC, Role, Run, Side, ensure_net,
    etherslot_command, node_keys,
};
use serde_json::Value;

use crate::Story;

const DISK_BYTES: u64 = 48 << 20;
const PATIENCE: Duration = Duration::from_mins(1);

/// A disk in a file, and perhaps a buffer.
fn box_config(name: &str, disk: &Path, more: &str, buffer: bool) -> String {
    let mut config = format!(
        "[node]\nname = \"{name}\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"disk\"\nserial = \"{name}\"\n{more}\n\
         [[device.namespace]]\npath = \"{}\"\n",
        disk.display()
    );
    if buffer {
        let _ =
            write!(config, "[[device]]\nkind = \"dc\"\nname = \"dc\"\nserial = \"DC\"\nsize = \"32 MiB\"\n");
    }
    config
}

fn copy(run: &Run, net: &Net, arguments: &[&str]) -> Command {
    let mut command = etherslot_command(net, Side::Host).unwrap();
    command.env(KEY_VARIABLE, node_keys(run, "copy").unwrap());
    command.args(["copy", "--link", &format!("packet:{INTERFACE}"), "--output", "json"]).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits for its end, which is a good one; what it reports.
fn report(child: Child) -> Value {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Waits until the file that tells how far a copy is tells something else than before.
fn wait_for_news(state: &Path, child: &mut Child) {
    let until = Instant::now() + PATIENCE;
    let before = fs::read(state).ok();
    while fs::read(state).ok() == before {
        assert!(child.try_wait().unwrap().is_none(), "the copy has ended before a checkpoint");
        assert!(Instant::now() < until, "no checkpoint");
        sleep(Duration::from_millis(5));
    }
}

/// Bytes on the host's cable, both ways.
fn on_host_link(net: &Net) -> u64 {
    let traffic = net.traffic().unwrap();
    traffic.host_bytes + traffic.to_host_bytes
}

#[test]
#[ignore = "needs root: ./run test link"]
fn disks_of_two_boxes_are_copied_past_the_host_and_whichever_box_is_killed_costs_no_byte() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("boxes").unwrap();
    let options = NetOptions { mtu: 9000 };
    let net = Net::new(&run, options).unwrap();
    net.add_box(options).unwrap();
    let (source, target) = ["a.img", "b.img"].map(|name| run.disk_image(name, DISK_BYTES).unwrap()).into();
    let data: Vec<u8> = (0..DISK_BYTES / 8)
        .flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29).to_le_bytes())
        .collect();
    fs::write(&source, &data).unwrap();
    let wipe = || fs::write(&target, vec![0; DISK_BYTES as usize]).unwrap();
    let is_copied = || fs::read(&target).unwrap() == data;

    let config = box_config("box-1", &source, "", false);
    let mut first = Daemon::start(&run, &net, Role::Box, "box-1", &config).unwrap();
    let other_config = box_config("box-2", &target, "", true);
    let mut second = Daemon::start_at(&run, &net, Side::OtherBox, Role::Box, "box-2", &other_config).unwrap();
    let (a, b) = (format!("disk@{BOX_MAC}"), format!("disk@{OTHER_BOX_MAC}"));
    let dc = format!("dc@{OTHER_BOX_MAC}");

    let before = (on_host_link(&net), net.traffic().unwrap());
    let told = report(copy(&run, &net, &[&a, &b, "--buffer", &dc, "--verify"]).spawn().unwrap());
    let on_link = on_host_link(&net) - before.0;
    let from_first = net.traffic().unwrap().box_bytes - before.1.box_bytes;
    assert_eq!((&told["by"], &told["bytes"]), (&"buffer".into(), &DISK_BYTES.into()));
    assert_eq!(told["pairs"][0]["verified"], true);
    assert!(is_copied());
    assert!(
        on_link * 100 <= DISK_BYTES,
        "{on_link} bytes on the host's cable for {DISK_BYTES} that were copied"
    );
    // Once to be copied, once to be compared.
    assert!(from_first >= 2 * DISK_BYTES, "{from_first}");
    story.tell("a disk was copied to another box and compared there, and less than a hundredth of it was on the host's cable");

    let slow = box_config("box-2", &target, "rate = \"24 MB/s\"", true);
    second.stop().unwrap();
    wipe();
    second.restart(&slow).unwrap();
    let state = run.path("state");
    let resuming = ["--resume", state.to_str().unwrap(), "--checkpoint", "4m", "--verify"];
    let mut child =
        copy(&run, &net, &[&[&*a, &*b, "--buffer", &*dc][..], &resuming].concat()).spawn().unwrap();
    wait_for_news(&state, &mut child);
    second.process().kill();
    sleep(Duration::from_millis(300));
    second.restart(&slow).unwrap();
    let told = report(child);
    assert_eq!(told["pairs"][0]["rewound"], 1, "{told}");
    assert!(is_copied() && !state.exists());
    story.tell("the target's box was killed, and the copy went on where it was durable");

    wipe();
    let mut child =
        copy(&run, &net, &[&[&*a, &*b, "--buffer", &*dc][..], &resuming].concat()).spawn().unwrap();
    wait_for_news(&state, &mut child);
    first.process().kill();
    sleep(Duration::from_millis(300));
    first.restart(&config).unwrap();
    report(child);
    assert!(is_copied());
    story.tell("so did it when the source's box was killed");

    wipe();
    let mut child =
        copy(&run, &net, &[&[&*a, &*b, "--buffer", &*dc][..], &resuming].concat()).spawn().unwrap();
    wait_for_news(&state, &mut child);
    // No host sees anything of it.
    net.set_way(Side::Box, Side::OtherBox, false).unwrap();
    sleep(Duration::from_millis(2500));
    assert!(child.try_wait().unwrap().is_none());
    net.set_way(Side::Box, Side::OtherBox, true).unwrap();
    report(child);
    assert!(is_copied());
    story.tell("and when the boxes did not hear each other for a while");

    for io_box in [&mut first, &mut second] {
        io_box.stop().unwrap();
    }
}
