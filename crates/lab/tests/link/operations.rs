//! What an operator watches a node by: metrics, events, a look at its configuration and its machine.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{ChildStdout, Command, Output, Stdio};

use etherslot_lab::{Daemon, Net, NetOptions, Role, Run, Side, ensure_net, etherslot_command};
use serde_json::Value;

use crate::Story;

fn box_config(disk: &str, metrics: &Path) -> String {
    format!(
        "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"eth0\"\n[metrics]\nlisten = \"unix:{}\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"disk0\"\nserial = \"ES0001\"\n\
         [[device.namespace]]\npath = \"{disk}\"\n",
        metrics.display()
    )
}

fn host_config(socket: &str) -> String {
    format!(
        "[node]\nname = \"host\"\n[link]\nkind = \"packet\"\ninterface = \"eth0\"\n\
         [[slot]]\ndevice = \"disk0\"\nbox = \"02:00:00:00:00:02\"\nsocket = \"{socket}\"\n"
    )
}

/// What a scrape gets.
fn scraped(path: &Path) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: box\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

/// A listener's records.
struct Listener(BufReader<ChildStdout>);

impl Listener {
    /// The next record of this kind that says `what`. Counters come every 200 ms, so it never waits for ever.
    fn next(&mut self, event: &str, what: Option<&str>) -> Value {
        let mut passed = Vec::new();
        for _ in 0..200 {
            let mut line = String::new();
            assert_ne!(self.0.read_line(&mut line).unwrap(), 0, "the stream ended before {event} {what:?}");
            let record: Value = serde_json::from_str(&line).unwrap();
            if record["event"] == event && what.is_none_or(|what| record["what"] == what) {
                return record;
            }
            passed.push(format!("{} {}", record["event"], record["what"]));
        }
        panic!("no {event} {what:?} among {passed:?}");
    }
}

/// What a vfio-user client says first: `VFIO_USER_VERSION`, 0.1.
fn greeting() -> Vec<u8> {
    let capabilities = b"{\"capabilities\":{}}\0";
    let mut message = Vec::new();
    message.extend(1_u16.to_le_bytes());
    message.extend(1_u16.to_le_bytes());
    message.extend((16 + 4 + capabilities.len() as u32).to_le_bytes());
    message.extend([0; 8]);
    message.extend([0, 0, 1, 0]);
    message.extend(capabilities);
    message
}

fn told(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
#[ignore = "needs root: ./run test link"]
fn an_operator_sees_what_nodes_count_and_what_happens_to_them() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("operations").unwrap();
    let net = Net::new(&run, NetOptions::default()).unwrap();
    let disk = run.disk_image("disk.img", 1 << 20).unwrap();
    let (metrics, socket) = (run.path("box.metrics"), run.path("disk0.sock"));
    let io_box = box_config(&disk.to_string_lossy(), &metrics);
    let host_file = host_config(&socket.to_string_lossy());
    let mut io_box_daemon = Daemon::start(&run, &net, Role::Box, "box", &io_box).unwrap();
    let mut host = Daemon::start(&run, &net, Role::Host, "host", &host_file).unwrap();
    let command = |arguments: &[&str]| -> Command {
        let mut command = etherslot_command(&net, Side::Host).unwrap();
        command.args(arguments);
        command
    };

    let page = scraped(&metrics);
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    for sample in [
        "etherslot_session_up{peer=\"02:00:00:00:00:01\"} 1",
        "etherslot_link_up{link=\"0\",address=\"02:00:00:00:00:02\"} 1",
        "etherslot_device_state_info{device=\"disk0\",state=\"used\"} 1",
        "etherslot_device_lease_epoch{device=\"disk0\"} 1",
    ] {
        assert!(page.contains(sample), "no {sample} in\n{page}");
    }
    story.tell(format!("metrics: {} samples", page.lines().filter(|line| !line.starts_with('#')).count()));

    let silent: Vec<UnixStream> = (0..16).map(|_| UnixStream::connect(&metrics).unwrap()).collect();
    let control = host.control();
    let mut listening =
        command(&["events", &control.to_string_lossy(), "--output", "json", "--every", "200ms"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
    let mut records = Listener(BufReader::new(listening.stdout.take().unwrap()));
    let snapshot = records.next("snapshot", None);
    assert_eq!((&snapshot["stat"]["sessions"][0]["state"], &snapshot["ls"]), (&"up".into(), &Value::Null));
    assert_eq!(snapshot["stat"]["slots"][0]["is_attached"], true);
    let counted = records.next("counters", None);
    assert_eq!(counted["stat"]["name"], "host");

    story.tell("the box is killed");
    io_box_daemon.kill();
    // What the session's end does to the slots is told before the end itself.
    records.next("slot", Some("detached"));
    let dead = records.next("session", Some("dead"));
    assert_eq!((&dead["peer"], &dead["why"]), (&"02:00:00:00:00:02".into(), &"the peer is silent".into()));
    drop(silent);
    io_box_daemon.restart(&io_box).unwrap();
    records.next("session", Some("up"));
    records.next("slot", Some("attached"));

    story.tell("a guest comes and goes");
    let mut guest = UnixStream::connect(&socket).unwrap();
    guest.write_all(&greeting()).unwrap();
    assert_eq!(records.next("guest", None)["is_connected"], true);
    guest.shutdown(Shutdown::Both).unwrap();
    assert_eq!(records.next("guest", None)["is_connected"], false);

    story.tell("the link loses its carrier");
    let carrier = |state: &str| {
        let status = Command::new("ip")
            .args(["netns", "exec", &net.namespace(Side::Host), "ip", "link", "set", "eth0", state])
            .status();
        assert!(status.unwrap().success());
    };
    carrier("down");
    assert_eq!(records.next("link", None)["is_up"], false);
    carrier("up");
    assert_eq!(records.next("link", None)["is_up"], true);

    let checked = command(&["config", "check", &run.path("host.toml").to_string_lossy()])
        .env("ETHERSLOT_KEY", run.path("none.key"))
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(1), "a daemon would not start: {}", told(&checked));
    assert!(told(&checked).contains("none.key"), "{}", told(&checked));
    let doctor = command(&["doctor", "--config", &run.path("host.toml").to_string_lossy(), "--all"])
        .env("ETHERSLOT_KEY", run.path("none.key"))
        .output()
        .unwrap();
    assert_eq!(doctor.status.code(), Some(1), "there is no such key: {}", told(&doctor));
    assert!(told(&doctor).contains("IMPOSSIBLE  keys"), "{}", told(&doctor));
    assert!(told(&doctor).contains("eth0"), "{}", told(&doctor));

    host.stop().unwrap();
    records.next("stopping", None);
    assert!(listening.wait().unwrap().success());
    story.tell("the stream ended with the node");
}
