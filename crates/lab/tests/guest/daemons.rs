//! The daemons as an operator meets them: how they start, refuse to, and stop. No guest is needed.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use etherslot_lab::{Daemon, ETHERTYPE, Net, NetOptions, RigBase, RigOptions, Role, Run, etherslot_binary};

use crate::story::{MIB, Story};

fn box_config(disk: &Path) -> String {
    format!(
        r#"[node]
name = "box"

[link]
kind = "packet"
interface = "eth0"

[[device]]
kind = "nvme"
name = "disk0"
serial = "ES0001"

[[device.namespace]]
path = "{}"
"#,
        disk.display()
    )
}

fn host_config(socket: &Path) -> String {
    format!(
        r#"[node]
name = "host"

[link]
kind = "packet"
interface = "eth0"

[[slot]]
device = "disk0"
box = "02:00:00:00:00:02"
socket = "{}"
"#,
        socket.display()
    )
}

/// `etherslot ROLE --config FILE --check`.
fn check(role: &str, file: &Path) -> Output {
    Command::new(etherslot_binary().unwrap())
        .arg(role)
        .arg("--config")
        .arg(file)
        .arg("--check")
        .arg("--plaintext")
        .output()
        .unwrap()
}

fn stop(daemon: &mut Daemon) {
    let status = daemon.stop().unwrap();
    assert_eq!(status.code(), Some(0), "{}", daemon.log());
    assert!(daemon.log().contains("stopped") && !daemon.log().contains("ERROR"), "{}", daemon.log());
}

#[test]
#[ignore = "needs root: ./run test guest"]
fn sigterm_stops_both_daemons_with_status_0_whatever_the_other_does() {
    let story = Story::begin();
    let run = Run::new("stop").unwrap();
    let socket = run.path("ES0001.sock");

    story.tell("the host before the box");
    let mut base = RigBase::start(&run, RigOptions::default()).unwrap();
    assert!(socket.exists());
    stop(&mut base.host);
    assert!(!socket.exists(), "the socket is taken away");
    stop(&mut base.io_box);
    drop(base);

    story.tell("the box before the host, and the host when it has long been alone");
    let mut base = RigBase::start(&run, RigOptions::default()).unwrap();
    stop(&mut base.io_box);
    base.host.wait_for_log("device lost", Duration::from_secs(5)).unwrap();
    std::thread::sleep(Duration::from_secs(2));
    stop(&mut base.host);
}

#[test]
#[ignore = "needs root: ./run test guest"]
fn a_bad_configuration_is_refused_with_its_line_and_the_remedy_and_status_1() {
    let story = Story::begin();
    let run = Run::new("config").unwrap();
    let disk = run.disk_image("disk.img", MIB).unwrap();
    let good_box = box_config(&disk);
    let good_host = host_config(&run.path("s.sock"));
    let file = run.path("tried.toml");
    for (role, good) in [("box", &good_box), ("host", &good_host)] {
        fs::write(&file, good).unwrap();
        let output = check(role, &file);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
    // What is wrong, where the message has to point, and what to do about it.
    let cases = [
        ("box", "serial =", "serail =", 11, "serial"),
        ("box", "kind = \"packet\"", "kind = \"pakcet\"", 5, "packet"),
        ("box", "name = \"box\"", "name = \"box\"\nbusy_poll = \"50\"", 3, "unit"),
        ("box", "path =", "block_bytes = 520\npath =", 14, "512 or 4096"),
        ("box", "[[device]]", "[session]\ndead_after = \"9s\"\n[[device]]", 8, "4s or less"),
        ("host", "02:00:00:00:00:02", "02:00:00:00:00", 10, "MAC"),
        ("host", "socket =", "scoket =", 11, "socket"),
    ];
    for (role, from, to, line, remedy) in cases {
        let good = if role == "box" { &good_box } else { &good_host };
        let bad = good.replacen(from, to, 1);
        assert_ne!(&bad, good);
        fs::write(&file, bad).unwrap();
        let output = check(role, &file);
        let said = String::from_utf8_lossy(&output.stderr);
        story.tell(format!("{to:?}: {}", said.lines().next().unwrap_or_default()));
        assert_eq!(output.status.code(), Some(1), "{to:?}: {said}");
        assert!(said.contains(remedy), "{to:?} lacks {remedy:?}: {said}");
        assert!(said.contains(&format!("line {line}")), "{to:?} is in line {line}: {said}");
        assert!(output.stdout.is_empty());
    }
    story.tell("what is not in the file: no such file, no such disk, no such flag");
    let output = check("box", &run.path("nothing.toml"));
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nothing.toml"));
    let output = Command::new(etherslot_binary().unwrap()).args(["box", "--confg", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let net = Net::new(&run, NetOptions::default()).unwrap();
    let lost = good_box.replace("disk.img", "lost.img");
    let error = Daemon::start(&run, &net, Role::Box, "lost", &lost).unwrap_err().to_string();
    assert!(error.contains("lost.img") && error.contains("exit status: 1"), "{error}");
}

#[test]
#[ignore = "needs root: ./run test guest"]
fn a_capture_opens_in_tcpdump_and_shows_our_frames_both_ways() {
    let story = Story::begin();
    let run = Run::new("capture").unwrap();
    let disk = run.disk_image("disk.img", MIB).unwrap();
    let net = Net::new(&run, NetOptions::default()).unwrap();
    let captured = |name: &str, config: &str| {
        let file = run.path(&format!("{name}.pcapng"));
        let capture = format!("interface = \"eth0\"\ncapture = \"{}\"", file.display());
        (config.replace("interface = \"eth0\"", &capture), file)
    };
    let (box_config, box_file) = captured("box", &box_config(&disk));
    let (host_config, host_file) = captured("host", &host_config(&run.path("disk0.sock")));
    let mut io_box = Daemon::start(&run, &net, Role::Box, "box", &box_config).unwrap();
    let mut host = Daemon::start(&run, &net, Role::Host, "host", &host_config).unwrap();
    stop(&mut host);
    stop(&mut io_box);
    for file in [box_file, host_file] {
        let count = |filter: &str| -> u64 {
            let output =
                Command::new("tcpdump").args(["--count", "-r"]).arg(&file).arg(filter).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            said.split_whitespace()
                .next()
                .and_then(|number| number.parse().ok())
                .unwrap_or_else(|| panic!("{said}"))
        };
        let ours = count(&format!("ether proto {ETHERTYPE:#x}"));
        let (to_host, to_box) = (count("ether dst 02:00:00:00:00:01"), count("ether dst 02:00:00:00:00:02"));
        story.tell(format!("{}: {ours} frames", file.display()));
        assert_eq!(count(&format!("not ether proto {ETHERTYPE:#x}")), 0);
        assert!(ours > 10, "the enumeration alone is more: {ours}");
        assert_eq!(ours, to_host + to_box, "{to_host} to the host, {to_box} to the box");
        assert!(to_host > 4 && to_box > 4);
    }
}
