//! `etherslot stat` and its nodes.

use std::process::{Command, Output};

use etherslot_lab::{Daemon, Net, NetOptions, Role, Run, ensure_net, etherslot_binary};
use etherslot_session::Counters;
use serde_json::Value;

use crate::Story;

fn box_config(disk: &str) -> String {
    format!(
        "[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"eth0\"\n\
         [[device]]\nkind = \"nvme\"\nname = \"disk0\"\nserial = \"ES0001\"\n\
         [[device.namespace]]\npath = \"{disk}\"\n"
    )
}

fn host_config(socket: &str) -> String {
    format!(
        "[node]\nname = \"host\"\n[link]\nkind = \"packet\"\ninterface = \"eth0\"\n\
         [[slot]]\ndevice = \"disk0\"\nbox = \"02:00:00:00:00:02\"\nsocket = \"{socket}\"\n"
    )
}

fn stat(arguments: &[&str]) -> Output {
    Command::new(etherslot_binary().unwrap()).arg("stat").args(arguments).output().unwrap()
}

fn names(object: &Value) -> Vec<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

#[test]
#[ignore = "needs root: ./run test link"]
fn stat_shows_the_sessions_of_running_nodes_with_every_counter_of_the_simulator() {
    let story = Story::begin();
    ensure_net().unwrap();
    let run = Run::new("stat").unwrap();
    let net = Net::new(&run, NetOptions::default()).unwrap();
    let disk = run.disk_image("disk.img", 1 << 20).unwrap();
    let io_box = Daemon::start(&run, &net, Role::Box, "box", &box_config(&disk.to_string_lossy())).unwrap();
    let socket = run.path("disk0.sock");
    let mut host =
        Daemon::start(&run, &net, Role::Host, "host", &host_config(&socket.to_string_lossy())).unwrap();

    for (daemon, role, peer) in [(&io_box, "box", "02:00:00:00:00:01"), (&host, "host", "02:00:00:00:00:02")]
    {
        let control = daemon.control();
        let output = stat(&[&control.to_string_lossy(), "--output", "json"]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let node: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((node["role"].as_str(), node["name"].as_str()), (Some(role), Some(role)));
        let session = &node["sessions"][0];
        assert_eq!((session["peer"].as_str(), session["state"].as_str()), (Some(peer), Some("up")));
        let mut known: Vec<String> = Counters::default().named().map(|named| named.name.to_owned()).collect();
        let mut told = [names(&session["counters"]), names(&session["gauges"])].concat();
        known.sort();
        told.sort();
        assert_eq!(told, known);
        assert!(session["counters"]["frames_sent"].as_u64() > Some(2), "{session}");
        assert!(node["port"]["tx_frames"].as_u64() >= session["counters"]["frames_sent"].as_u64());

        let text = stat(&[&control.to_string_lossy()]);
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(known.iter().all(|name| text.contains(name.split('_').next().unwrap_or(name))), "{text}");
        story.tell(format!("{role}: {}", text.lines().next().unwrap_or_default()));
    }

    story.tell("a node that is gone");
    let control = host.control();
    host.stop().unwrap();
    assert!(!control.exists(), "the socket is taken away");
    let output = stat(&[&control.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no node runs there"));

    story.tell("one that was killed: its socket stays, tells nothing, and is replaced");
    let mut io_box = io_box;
    io_box.kill();
    let control = io_box.control();
    assert!(control.exists());
    assert_eq!(stat(&[&control.to_string_lossy()]).status.code(), Some(1));
    io_box.restart(&box_config(&disk.to_string_lossy())).unwrap();
    assert!(stat(&[&control.to_string_lossy()]).status.success());
}
