//! Whose orders count: not those that the box's configuration forbids, nor those that were heard and are said again.

use std::fs;
use std::process::Command;
use std::time::Duration;

use etherslot_lab::{Daemon, Role, Side, captured_frames, etherslot_command, node_keys};
use etherslot_wire::discovery::{Message, is_discovery};
use serde_json::Value;

use crate::Story;
use crate::stand::{Host, Stand};

/// The public key of the node of this name.
fn public_key(stand: &Stand, name: &str) -> String {
    let key = node_keys(&stand.run, name).unwrap();
    let mut command = etherslot_command(&stand.net, Side::Host).unwrap();
    command.arg("keygen").arg("--folder").arg(key.parent().unwrap()).args(["--output", "json"]);
    let told: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    told["public_key"].as_str().unwrap().to_owned()
}

#[test]
#[ignore = "needs root: ./run test fabric"]
fn a_device_with_owners_is_not_ordered_to_another_host() {
    let story = Story::begin();
    let stand = Stand::new("fabric-owners");
    let owners = format!("owners = [{:?}]\n", public_key(&stand, "host-a"));
    let _box_1 = stand.start_box_with(1, "rendezvous = true", 1..=1, &owners);
    let a = Host::start(&stand, 'a', "disk1", 7, 0);
    a.wait_ready();
    let b = Host::start(&stand, 'b', "disk1", 8, 0);
    stand.wait_for_node("host-b", "up");
    assert!(stand.done(&["ls"]).contains("anybody, if an owner"));
    for how in ["--dry-run", "--explain", "--force"] {
        let (is_well, said) = stand.operator(&["assign", "disk1", "host-b", how]);
        assert!(!is_well && said.contains("host-b may not own it"), "{how}: {said}");
        story.tell(said.lines().last().unwrap_or_default());
    }
    assert_eq!(stand.device(1)["owner"]["name"], "host-a");
    assert!(a.io("write -P 0x5a 1M 64k") && !b.is_ready());

    story.tell("nor does it come to another by a group");
    stand.done(&["release", "disk1"]);
    stand.done(&["assign", "disk1", "8"]);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert!(!b.is_ready() && stand.device(1)["owner"].is_null());
    stand.done(&["assign", "disk1", "host-a"]);
    stand.wait_for("with host-a again", |stand| stand.device(1)["owner"]["name"] == "host-a");
}

/// What a box counts of the fabric.
fn counted(stand: &Stand, io_box: &Daemon, name: &str) -> u64 {
    let mut command = etherslot_command(&stand.net, Side::Host).unwrap();
    let output = command.arg("stat").arg(io_box.control()).args(["--output", "json"]).output().unwrap();
    let stat: Value = serde_json::from_slice(&output.stdout).unwrap();
    stat["fabric"][name].as_u64().unwrap_or_else(|| panic!("{name} is not counted: {stat}"))
}

#[test]
#[ignore = "needs root: ./run test fabric"]
fn orders_that_were_heard_do_nothing_to_a_box_that_has_started_again() {
    const ETHERNET_BYTES: usize = 14;
    let story = Story::begin();
    let stand = Stand::new("fabric-heard");
    let _box_1 = stand.io_box(1, "rendezvous = true");
    let heard = stand.run.path("heard.pcapng");
    let config = stand.box_config(2, "peers = [\"10.7.0.2:4701\"]\nrecall = \"2s\"\n", 2..=2, "");
    let recorded = config.replace("listen =", &format!("capture = {heard:?}\nlisten ="));
    let mut box_2 = Daemon::start(&stand.run, &stand.net, Role::Box, "box-2", &recorded).unwrap();
    let a = Host::start(&stand, 'a', "disk2", 7, 0);
    a.wait_ready();
    let b = Host::start(&stand, 'b', "disk2", 8, 0);
    stand.wait_for_node("host-b", "up");
    for host in ["host-b", "host-a"] {
        stand.done(&["assign", "disk2", host]);
    }
    // A capture is written a second late at most.
    std::thread::sleep(Duration::from_millis(1500));
    box_2.kill();
    let frames = captured_frames(&heard).unwrap();
    box_2.restart(&config).unwrap();
    stand.wait_for("back with host-a", |stand| stand.device(2)["owner"]["name"] == "host-a");

    // All that the box had heard and said, in the order that it came, from another address.
    for (place, frame) in frames.iter().enumerate() {
        let message = stand.run.path("message");
        fs::write(&message, &frame[ETHERNET_BYTES..]).unwrap();
        let say = format!("cat {} >/dev/udp/10.7.0.2/4702", message.display());
        let namespace = stand.net.namespace(Side::Host);
        let said =
            Command::new("ip").args(["netns", "exec", &namespace, "bash", "-c", &say]).status().unwrap();
        assert!(said.success(), "frame {place}");
    }
    let is_order = |frame: &&Vec<u8>| {
        let frame = &frame[ETHERNET_BYTES..];
        is_discovery(frame) && frame[1] == Message::Order as u8
    };
    let orders = frames.iter().filter(is_order).count() as u64;
    // Older than what was heard of the one who asked; or, if that came before he was heard, for another life of the box.
    let dropped = ["frames_refused", "orders_stale"].map(|name| counted(&stand, &box_2, name));
    story.tell(format!("{} frames were said again, {orders} of them orders: {dropped:?}", frames.len()));
    assert!(orders >= 2, "both orders were heard");
    assert!(dropped.iter().sum::<u64>() >= orders);
    assert_eq!(stand.device(2)["owner"]["name"], "host-a");
    assert!(a.io("write -P 0x77 1M 64k") && !b.io("read 1M 4k"));
}
