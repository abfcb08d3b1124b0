//! What the driver offers: its self-test, offloads on and off, rings, VLANs, several queues.

use crate::bench::{BOX_IP, Bench, LOAD, Options, SOON, TAP};
use etherslot_lab::Side;
use std::process::Command;

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn the_drivers_self_test_passes_and_all_it_offers_can_be_turned_on_and_off() {
    let bench = Bench::start("nic-features", Options::default());
    bench.answers();
    let test = bench.guest.check("ethtool -t eth0 offline", LOAD).unwrap();
    assert!(test.contains("The test result is PASS"), "{test}");
    for part in ["Register test", "Eeprom test", "Interrupt test", "Loopback test", "Link test"] {
        let line = test.lines().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{test}"));
        assert!(line.trim_end().ends_with(" 0"), "{line}");
    }
    bench.up();
    bench.answers();

    let features = bench.guest.check("ethtool -k eth0", SOON).unwrap();
    for name in [
        "rx-checksumming",
        "tx-checksumming",
        "scatter-gather",
        "tcp-segmentation-offload",
        "receive-hashing",
        "rx-vlan-offload",
        "tx-vlan-offload",
    ] {
        assert!(features.contains(&format!("{name}: on")), "{name} in {features}");
    }
    for feature in ["tso", "tx", "rx", "gro", "rxvlan", "txvlan", "rxhash"] {
        for state in ["off", "on"] {
            bench.guest.check(&format!("ethtool -K eth0 {feature} {state}"), SOON).unwrap();
            bench.answers();
        }
    }
    for (set, show, expected) in [
        ("-G eth0 rx 64 tx 80", "-g eth0", "80"),
        ("-G eth0 rx 4096 tx 4096", "-g eth0", "4096"),
        ("-L eth0 combined 1", "-l eth0", "1"),
        ("-L eth0 combined 2", "-l eth0", "2"),
        ("-C eth0 rx-usecs 100", "-c eth0", "100"),
        ("-A eth0 rx off tx off autoneg off", "-a eth0", "off"),
    ] {
        bench.guest.check(&format!("ethtool {set}"), SOON).unwrap();
        let now = bench.guest.check(&format!("ethtool {show}"), SOON).unwrap();
        assert!(now.contains(expected), "{set}: {now}");
        bench.up();
        bench.answers();
    }
    bench.guest.check("ethtool -d eth0 >/dev/null; ethtool -e eth0 >/dev/null; ethtool -x eth0 >/dev/null; ethtool -T eth0 >/dev/null", SOON).unwrap();
    assert_eq!(bench.complaints(), [] as [String; 0]);
}

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn vlans_are_kept_apart() {
    let bench = Bench::start("nic-vlan", Options::default());
    bench.answers();
    let namespace = bench.net.namespace(Side::Box);
    let ip = |arguments: &[&str]| {
        let status = Command::new("ip").args(["-n", &namespace]).args(arguments).status().unwrap();
        assert!(status.success(), "{arguments:?}");
    };
    for (id, net) in [("5", "10.5.0"), ("4094", "10.94.0")] {
        let name = format!("{TAP}.{id}");
        ip(&["link", "add", "link", TAP, "name", &name, "type", "vlan", "id", id]);
        ip(&["address", "add", &format!("{net}.1/24"), "dev", &name]);
        ip(&["link", "set", &name, "up"]);
        bench
            .guest
            .check(
                &format!(
                    "modprobe 8021q; ip link add link eth0 name eth0.{id} type vlan id {id}
                     ip addr add {net}.2/24 dev eth0.{id}; ip link set eth0.{id} up"
                ),
                SOON,
            )
            .unwrap();
    }
    for target in [BOX_IP, "10.5.0.1", "10.94.0.1"] {
        for state in ["on", "off", "on"] {
            bench
                .guest
                .check(
                    &format!("ethtool -K eth0 rxvlan {state}; ethtool -K eth0 txvlan {state}; sleep 3"),
                    SOON,
                )
                .unwrap();
            let said =
                bench.guest.check(&format!("ping -q -c 20 -i 0.02 -W 10 -s 1472 {target}"), SOON).unwrap();
            assert!(said.contains(" 0% packet loss"), "{target} {state}: {said}");
        }
    }
    // A VLAN that the guest has not.
    ip(&["link", "add", "link", TAP, "name", "other", "type", "vlan", "id", "6"]);
    ip(&["address", "add", "10.6.0.1/24", "dev", "other"]);
    ip(&["link", "set", "other", "up"]);
    let lost = Command::new("ip")
        .args(["netns", "exec", &namespace, "ping", "-c", "2", "-W", "1", "10.6.0.2"])
        .output()
        .unwrap();
    assert!(!lost.status.success());
    assert_eq!(bench.complaints(), [] as [String; 0]);
}
