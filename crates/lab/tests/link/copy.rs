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

/// Disks in files, each with a name and further lines of its table, and a buffer.
fn box_config(disks: &[(&str, &Path, &str)]) -> String {
    let disks = disks.iter().map(|(name, path, more)| {
        format!(
            "[[device]]\nkind = \"nvme\"\nname = \"{name}\"\nserial = \"{name}\"\n{more}\n\
             [[device.namespace]]\npath = \"{}\"\n",
            path.display()
        )
    });
    format!(
        "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n{}\
         [[device]]\nkind = \"dc\"\nname = \"dc\"\nserial = \"DC\"\nsize = \"32 MiB\"\n",
        disks.collect::<String>()
    )
}

/// No two blocks of it are the same, nor those of two disks.
fn content(seed: u32) -> Vec<u8> {
    (0..DISK_BYTES / 8)
        .flat_map(|word| word.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(seed).to_le_bytes())
        .collect()
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
    let data = content(31);
    fs::write(&image, &data).unwrap();
    let config = box_config(&[("a", &source, ""), ("b", &target, "")]);
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
    let slow = box_config(&[("a", &source, ""), ("b", &target, "rate = \"24 MB/s\"")]);
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

#[test]
#[ignore = "needs root: ./run test link"]
fn pairs_are_copied_together_and_an_error_names_its_block_and_ends_no_other_pair() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("pairs").unwrap();
    let net = Net::new(&run, NetOptions { mtu: 9000 }).unwrap();
    let [a, b, c, d] =
        ["a.img", "b.img", "c.img", "d.img"].map(|name| run.disk_image(name, DISK_BYTES).unwrap());
    let datas = [content(17), content(23)];
    for (path, data) in [&a, &c].into_iter().zip(&datas) {
        fs::write(path, data).unwrap();
    }
    let disks = [("a", &*a, ""), ("b", &*b, ""), ("c", &*c, ""), ("d", &*d, "")];
    let mut io_box = Daemon::start(&run, &net, Role::Box, "box", &box_config(&disks)).unwrap();
    let names = ["a", "b", "c", "d"].map(|name| format!("{name}@{BOX_MAC}"));
    let dc = format!("dc@{BOX_MAC}");
    let arguments: Vec<&str> =
        names.iter().map(String::as_str).chain(["--buffer", &dc, "--output", "json"]).collect();
    let is_copied = |target: &Path, number: usize| fs::read(target).unwrap() == datas[number];

    let before = bytes_on(&net);
    let report: Value =
        serde_json::from_str(&done(copy(&run, &net, &[&arguments[..], &["--verify"]].concat()))).unwrap();
    let on_link = bytes_on(&net) - before;
    assert_eq!((&report["by"], &report["bytes"]), (&"buffer".into(), &(2 * DISK_BYTES).into()));
    for (number, target) in [&b, &d].into_iter().enumerate() {
        let pair = &report["pairs"][number];
        assert_eq!((&pair["verified"], &pair["error"]), (&true.into(), &Value::Null), "{report}");
        assert!(is_copied(target, number));
    }
    assert!(on_link * 100 <= 2 * DISK_BYTES, "{on_link} bytes on the Ethernet");
    story.tell("two pairs were copied in one go, past the host");

    // The first source loses its end: less than any chunk.
    let kept = DISK_BYTES - 4096;
    fs::OpenOptions::new().write(true).open(&a).unwrap().set_len(kept).unwrap();
    for target in [&b, &d] {
        fs::write(target, vec![0; DISK_BYTES as usize]).unwrap();
    }
    let output = copy(&run, &net, &arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains(&format!("at block {}", kept / 512)), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = |number: usize| report["pairs"][number]["error"].as_str().unwrap_or_default().to_owned();
    assert!(error(0).contains(&format!("at block {}", kept / 512)), "{report}");
    assert_eq!(error(1), "", "{report}");
    assert!(is_copied(&d, 1), "the other pair is whole");
    let durable = report["pairs"][0]["durable_bytes"].as_u64().unwrap() as usize;
    assert!(durable as u64 <= kept && fs::read(&b).unwrap()[..durable] == datas[0][..durable]);
    story.tell("a block that can't be read is named, and the other pair is whole");

    io_box.stop().unwrap();
}
