//! What the driver offers: its self-test, offloads on and off, rings, VLANs, several queues.

use crate::bench::{BOX_IP, Bench, LOAD, Options, SOON};

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
    for feature in ["tso", "tx", "rx", "gro", "rxvlan", "rxhash"] {
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

/// Two controllers of a box, each the other's network, by links; both in one guest, which keeps their networks apart.
#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn vlans_are_kept_apart_between_two_controllers_that_are_linked() {
    let bench = Bench::start("nic-vlan", Options { linked: true, ..Options::default() });
    bench
        .guest
        .check("modprobe 8021q; unshare -n sleep 100000 >/dev/null 2>&1 & echo $! >/tmp/far; sleep 1", SOON)
        .unwrap();
    let far = "nsenter -t $(cat /tmp/far) -n";
    let up = format!(
        "set -e; ip link set eth1 netns $(cat /tmp/far); {far} ip addr add {BOX_IP}/24 dev eth1; {far} ip link set eth1 up
         for id in 5 4094; do
             ip link add link eth0 name eth0.$id type vlan id $id; ip addr add 10.$((id % 100)).0.2/24 dev eth0.$id
             ip link set eth0.$id up
             {far} ip link add link eth1 name eth1.$id type vlan id $id
             {far} ip addr add 10.$((id % 100)).0.1/24 dev eth1.$id; {far} ip link set eth1.$id up
         done"
    );
    bench.guest.check(&up, SOON).unwrap();
    bench.answers();
    for state in ["on", "off", "on"] {
        bench.guest.check(&format!("ethtool -K eth0 rxvlan {state}"), SOON).unwrap();
        bench.up();
        bench.answers();
        for target in [BOX_IP, "10.5.0.1", "10.94.0.1"] {
            let ping = format!("ping -q -c 20 -i 0.02 -W 10 -s 1472 {target}");
            let said = bench.guest.check(&ping, SOON).unwrap();
            // An Ethernet may lose a frame; what is not let through loses all.
            let received =
                said.split(" received").next().and_then(|text| text.rsplit(' ').next()?.parse().ok());
            assert!(received.is_some_and(|received: u32| received >= 18), "{target} {state}: {said}");
        }
    }
    // A VLAN that only one end has.
    let other = format!(
        "{far} ip link add link eth1 name eth1.6 type vlan id 6; {far} ip addr add 10.6.0.1/24 dev eth1.6
         {far} ip link set eth1.6 up; {far} ping -c 2 -W 1 10.6.0.2"
    );
    assert_ne!(bench.guest.run(&other, SOON).unwrap().status, 0);
    assert_eq!(bench.complaints(), [] as [String; 0]);
}
