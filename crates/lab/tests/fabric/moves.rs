//! A disk changes hands while it is at work, and whoever is killed, there is one owner at most.

use std::thread::sleep;
use std::time::Duration;

use crate::Story;
use crate::stand::{Host, Stand};

const RENDEZVOUS: &str = "rendezvous = true";

#[test]
#[ignore = "needs root: ./run test fabric"]
fn a_disk_moves_between_two_hosts_under_load_and_the_old_one_can_touch_it_no_more() {
    let story = Story::begin();
    let stand = Stand::new("fabric-move");
    let _box_1 = stand.io_box(1, RENDEZVOUS);
    let _box_2 = stand.io_box(2, "peers = [\"10.7.0.2:4701\"]");
    let a = Host::start(&stand, 'a', "disk1", 7, 0);
    a.wait_ready();
    assert!(a.io("write -P 0xab 1M 3M") && a.io("flush"));
    let b = Host::start(&stand, 'b', "disk1", 8, 0);
    stand.wait_for_node("host-b", "up");
    stand.wait_for_node("box-2", "up");
    let device = stand.device(1);
    assert_eq!((&device["state"], &device["owner"]["name"]), (&"used".into(), &"host-a".into()));
    story.tell("two boxes and two hosts know each other by one address; host-a has the disk");

    let plan = stand.done(&["assign", "disk1", "host-b", "--dry-run"]);
    assert!(plan.contains("1. host-a gives it back") && plan.contains("host-a gets it back"), "{plan}");
    let plan = stand.done(&["assign", "disk1", "host-a", "--dry-run"]);
    assert!(plan.contains("stays with it"), "{plan}");
    assert_eq!(stand.device(1)["owner"]["name"], "host-a", "a question changes nothing");
    for (arguments, remedy) in [
        (&["assign", "disk9", "host-b"][..], "no device \"disk9\" is known"),
        (&["assign", "disk1", "host-x"], "no host \"host-x\" is known: there are host-a, host-b"),
        (&["assign", "disk1", "4001"], "groups are 1 to 4000"),
    ] {
        let (is_well, said) = stand.operator(arguments);
        assert!(!is_well && said.contains(remedy), "{arguments:?}: {said}");
    }

    let mut load = a.load(30);
    sleep(Duration::from_secs(1));
    assert!(load.try_wait().unwrap().is_none(), "fio is at work");
    let said = stand.done(&["assign", "disk1", "host-b", "--explain"]);
    story.tell(said.lines().last().unwrap());
    b.wait_ready();
    assert!(b.io("read -P 0xab 1M 3M") && b.io("write -P 0xcd 1M 1M") && b.io("flush"));
    let output = load.wait_with_output().unwrap();
    assert!(!output.status.success(), "fio's writes by host-a end with errors");
    assert!(!a.io("read 1M 4k"), "host-a has no disk");
    assert!(b.io("read -P 0xcd 1M 1M") && b.io("read -P 0xab 2M 2M"), "and nothing of it came later");
    story.tell("host-b has what host-a had written; host-a gets errors");

    stand.done(&["assign", "disk1", "host-a"]);
    assert!(a.io("read -P 0xcd 1M 1M"), "it is back");
    stand.done(&["release", "ES0001"]);
    assert_eq!((&stand.device(1)["state"], &stand.device(1)["assigned"]), (&"free".into(), &"nobody".into()));
    assert!(!a.io("read 1M 4k"));
    stand.done(&["assign", "box-1/disk1", "8"]);
    stand.wait_for("given to the host of group 8", |stand| stand.device(1)["owner"]["name"] == "host-b");
    assert!(b.io("read -P 0xcd 1M 1M"));
    stand.done(&["assign", "disk1", "anybody"]);
    stand.wait_for("anybody's", |stand| stand.device(1)["group"].is_null());
    let device = stand.device(1);
    assert_eq!((&device["assigned"], &device["owner"]["name"]), (&"group".into(), &"host-b".into()));
    assert!(b.io("read -P 0xcd 1M 1M"), "who has it keeps it");
    story.tell(stand.done(&["ls", "--tree"]).replace('\n', "\n               "));
}

#[test]
#[ignore = "needs root: ./run test fabric"]
fn a_killed_box_comes_back_with_its_leases_and_a_killed_host_gives_up_its_disk() {
    let story = Story::begin();
    let stand = Stand::new("fabric-kill");
    let (mut io_box, config) = stand.io_box(1, RENDEZVOUS);
    let mut a = Host::start(&stand, 'a', "disk1", 7, 0);
    a.wait_ready();
    let b = Host::start(&stand, 'b', "disk1", 8, 0);
    stand.wait_for_node("host-b", "up");
    stand.done(&["assign", "disk1", "host-a"]);
    assert!(a.io("write -P 0x11 0 1M") && a.io("flush"));
    let epoch = stand.device(1)["epoch"].as_u64().unwrap();

    io_box.process().kill();
    sleep(Duration::from_millis(300));
    io_box.restart(&config).unwrap();
    stand.wait_for("back with host-a", |stand| stand.device(1)["owner"]["name"] == "host-a");
    assert!(a.io("read -P 0x11 0 1M"), "I/O goes on");
    assert!(stand.device(1)["epoch"].as_u64().unwrap() > epoch, "under a new lease");
    assert_eq!(stand.device(1)["assigned"]["host"]["name"], "host-a", "the order stands");
    story.tell("the box was killed and is back: the same owner, a newer epoch");

    a.kill();
    stand.wait_for_node("host-a", "down");
    let (is_well, said) = stand.operator(&["assign", "disk1", "host-a", "--wait", "5s"]);
    story.tell(format!("to a dead host: {}", said.trim()));
    assert!(is_well || said.contains("silent"), "{said}");
    let said = stand.done(&["assign", "disk1", "host-b"]);
    b.wait_ready();
    assert!(b.io("read -P 0x11 0 1M"));
    story.tell(said.trim());

    let back = Host::start(&stand, 'a', "disk1", 7, 1);
    stand.wait_for_node("host-a", "up");
    sleep(Duration::from_millis(1500));
    assert!(!back.is_ready(), "host-a lost its lease: it gets the disk only by an order");
    assert!(b.io("write -P 0x22 0 1M") && b.io("read -P 0x22 0 1M"));
    story.tell("the host that was killed is back, and has no disk");
}
