//! Heartbeats as broadcasts on an Ethernet: a host finds a device by its serial number and no address is written anywhere.

use std::process::Command;

use etherslot_lab::{BOX_MAC, Daemon, INTERFACE, Role, Side, etherslot_command};
use serde_json::Value;

use crate::Story;
use crate::stand::Stand;

#[test]
#[ignore = "needs root: ./run test fabric"]
fn on_an_ethernet_a_host_finds_a_device_by_its_serial_number() {
    let story = Story::begin();
    let stand = Stand::new("fabric-found");
    let link = format!("[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n[fabric]\n");
    let leases = stand.run.path("box.leases");
    let box_config = format!(
        "[node]\nname = \"box\"\n{link}state = \"{}\"\n[[device]]\nkind = \"nvme\"\nname = \"disk0\"\n\
         serial = \"ES0001\"\n[[device.namespace]]\nmemory = \"64 MiB\"\n",
        leases.display()
    );
    let host_config = format!(
        "[node]\nname = \"host\"\n{link}group = 12\n[[slot]]\nserial = \"ES0001\"\nsocket = \"{}\"\n",
        stand.run.path("disk0.sock").display()
    );
    let mut io_box = Daemon::start(&stand.run, &stand.net, Role::Box, "box", &box_config).unwrap();
    let host = Daemon::start(&stand.run, &stand.net, Role::Host, "host", &host_config).unwrap();
    let ls = || -> Value {
        let mut command: Command = etherslot_command(&stand.net, Side::Host).unwrap();
        let output = command.args(["ls", "--output", "json", "--node"]).arg(host.control()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let node = |name: &str| {
        ls()["nodes"].as_array().unwrap().iter().find(|node| node["name"] == name).cloned().unwrap()
    };
    let known = node("box");
    assert_eq!((&known["state"], &known["ways"][0]["address"]), (&"up".into(), &BOX_MAC.into()));
    stand.wait_for("told whose it is", |_| node("box")["devices"][0]["owner"]["name"] == "host");
    let device = &node("box")["devices"][0];
    assert_eq!(
        (&device["serial"], &device["bytes"], &device["epoch"]),
        (&"ES0001".into(), &(64 << 20).into(), &1.into())
    );
    assert_eq!(node("host")["group"], 12);
    story.tell("the host has found the device and has it");

    io_box.kill();
    stand.wait_for("found silent", |_| node("box")["state"] == "down");
    let silent_ms = node("box")["silent_ms"].as_u64().unwrap();
    story.tell(format!("a killed box is found silent; it was last heard {silent_ms} ms ago"));
    io_box.restart(&box_config).unwrap();
    stand.wait_for("up again", |_| node("box")["state"] == "up");
    assert!(io_box.stop().unwrap().success());
    stand.wait_for("gone, as its goodbye said", |_| node("box")["state"] == "left");
}
