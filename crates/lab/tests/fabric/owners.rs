//! Who may own a device is the box's configuration, whatever operators order.

use etherslot_lab::{Side, etherslot_command, node_keys};
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
