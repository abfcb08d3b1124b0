//! `etherslot copy`: between disks of a box, with a capture's eye on the Ethernet, and with whoever takes part killed on the way.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use etherslot_lab::{
    BOX_MAC, Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, Role, Run, Side, ensure_net,
    etherslot_command, node_keys,
};
use serde_json::Value;

use crate::Story;

const DISK_BYTES: u64 = 48 << 20;
const PATIENCE: Duration = Duration::from_mins(1);

/// Two disks in files and a buffer; with `rate`, the target is slow.
fn box_config(source: &Path, target: &Path, rate: &str) -> String {
    let disk = |name: &str, path: &Path, more: &str| {
        format!(
            "[[device]]\nkind = \"nvme\"\nname = \"{name}\"\nserial = \"{name}\"\n{more}\n\
             [[device.namespace]]\npath = \"{}\"\n",
            path.display()
        )
    };
    format!(
        "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n{}{}\
         [[device]]\nkind = \"dc\"\nname = \"dc\"\nserial = \"DC\"\nsize = \"32 MiB\"\n",
        disk("a", source, ""),
        disk("b", target, rate)
    )
}

fn copy(run: &Run, net: &Net, arguments: &[&str]) -> Command {
    let mut command = etherslot_command(net, Side::Host).unwrap();
    command.env(KEY_VARIABLE, node_keys(run, "copy").unwrap());
    command.args(["copy", "--link", &format!("packet:{INTERFACE}")]).args(arguments);
    command
}

/// Runs to its end, well.
fn done(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What entered the bridge from either side.
fn bytes_on(net: &Net) -> u64 {
    let traffic = net.traffic().unwrap();
    traffic.host_bytes + traffic.box_bytes
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
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

#[test]
#[ignore = "needs root: ./run test link"]
fn disks_of_a_box_are_copied_past_the_host_and_whoever_is_killed_costs_no_byte() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("copy").unwrap();
    let net = Net::new(&run, NetOptions { mtu: 9000 }).unwrap();
    let (source, target) = ["a.img", "b.img"].map(|name| run.disk_image(name, DISK_BYTES).unwrap()).into();
    let image = run.path("image");
    let data: Vec<u8> = (0..DISK_BYTES / 8)
        .flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).to_le_bytes())
        .collect();
    fs::write(&image, &data).unwrap();
    let config = box_config(&source, &target, "");
    let mut io_box = Daemon::start(&run, &net, Role::Box, "box", &config).unwrap();
    let [a, b, dc] = ["a", "b", "dc"].map(|name| format!("{name}@{BOX_MAC}"));
    let is_copied = || fs::read(&target).unwrap() == data;

    done(copy(&run, &net, &[image.to_str().unwrap(), &a]));
    assert!(fs::read(&source).unwrap() == data);
    let back = run.path("back");
    done(copy(&run, &net, &[&format!("{a}:4k+1m"), back.to_str().unwrap()]));
    assert!(fs::read(&back).unwrap() == data[4096..4096 + (1 << 20)]);
    story.tell("a file went to a disk, and a part of it back to a file");

    let before = bytes_on(&net);
    let text = done(copy(&run, &net, &[&a, &b, "--buffer", &dc, "--verify", "--output", "json"]));
    let on_link = bytes_on(&net) - before;
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["by"], &report["bytes"]), (&"buffer".into(), &DISK_BYTES.into()));
    assert_eq!(report["pairs"][0]["verified"], true);
    assert!(is_copied());
    assert!(on_link * 100 <= DISK_BYTES, "{on_link} bytes on the Ethernet for {DISK_BYTES} that were copied");
    let counted = report["link_tx_bytes"].as_u64().unwrap() + report["link_rx_bytes"].as_u64().unwrap();
    assert!(counted * 100 <= DISK_BYTES, "{counted}");
    story.tell("a disk was copied and compared, and less than a hundredth of it was on the Ethernet");

    fs::write(&target, vec![0; DISK_BYTES as usize]).unwrap();
    let before = bytes_on(&net);
    done(copy(&run, &net, &[&a, &b]));
    let on_link = bytes_on(&net) - before;
    assert!(is_copied() && on_link >= 2 * DISK_BYTES, "{on_link}");
    story.tell("without a buffer all of it was there twice");

    io_box.stop().unwrap();
    fs::write(&target, vec![0; DISK_BYTES as usize]).unwrap();
    let slow = box_config(&source, &target, "rate = \"24 MB/s\"");
    io_box.restart(&slow).unwrap();
    let state = run.path("state");
    let resuming = ["--resume", state.to_str().unwrap(), "--checkpoint", "4m", "--output", "json"];
    let slowly = || copy(&run, &net, &[&[&a, &b, "--buffer", &dc][..], &resuming.map(|one| one)].concat());
    let mut child = start(slowly());
    wait_for_news(&state, &mut child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!is_copied());
    let mut child = start(slowly());
    wait_for_news(&state, &mut child);
    io_box.process().kill();
    sleep(Duration::from_millis(300));
    io_box.restart(&slow).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["bytes"].as_u64().unwrap() < DISK_BYTES, "it went on where it was durable: {report}");
    assert_eq!(report["pairs"][0]["rewound"], 1, "{report}");
    assert!(is_copied() && !state.exists());
    story.tell("a killed copy went on where it was, and outlived the death of its box");

    io_box.stop().unwrap();
}
