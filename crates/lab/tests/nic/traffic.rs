//! Traffic: frames of every size, a flood, bulk data both ways.

use crate::bench::{BOX_IP, Bench, GUEST_IP, LOAD, MAC, Options, SOON};

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn the_stock_driver_binds_and_frames_of_all_sizes_pass() {
    let bench = Bench::start("nic-bind", Options::default());
    let driver = bench.guest.check("ethtool -i eth0; cat /sys/class/net/eth0/address", SOON).unwrap();
    assert!(driver.contains("driver: igb") && driver.contains(MAC), "{driver}");
    let link = bench.guest.check("ethtool eth0", SOON).unwrap();
    assert!(link.contains("Speed: 1000Mb/s") && link.contains("Link detected: yes"), "{link}");
    assert!(bench.probe.contains("Using MSI-X interrupts"), "{}", bench.probe);
    bench.answers();

    // Payloads of 1 to 1472 bytes do not need fragments; ICMP's header is 8, IP's 20.
    for bytes in [1, 17, 18, 19, 46, 100, 500, 1000, 1471, 1472, 1473, 4000, 9000, 60000] {
        let ping = format!("ping -q -c 5 -i 0.02 -W 5 -p a5 -s {bytes} {BOX_IP}");
        let said = bench.guest.check(&ping, SOON).unwrap();
        assert!(said.contains(" 0% packet loss"), "{bytes} B: {said}");
    }
    bench.guest.check("ip link set eth0 mtu 9000", SOON).unwrap();
    bench.network(9000);
    bench.up();
    bench.answers();
    for bytes in [1, 1473, 2020, 4068, 8000, 8971, 8972] {
        let ping = format!("ping -q -c 5 -i 0.02 -W 5 -M do -s {bytes} {BOX_IP}");
        let said = bench.guest.check(&ping, SOON).unwrap();
        assert!(said.contains(" 0% packet loss"), "{bytes} B without fragments: {said}");
    }
    assert_eq!(bench.complaints(), [] as [String; 0]);
}

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn a_flood_of_pings_is_answered_from_either_end() {
    let bench = Bench::start("nic-flood", Options::default());
    bench.answers();
    let flood = bench.guest.check(&format!("ping -q -f -c 3000 -w 60 -s 200 {BOX_IP}"), LOAD).unwrap();
    assert!(flood.contains("3000 received"), "{flood}");
    let flood = bench.far_output("ping", &["-q", "-f", "-c", "3000", "-w", "60", "-s", "1200", GUEST_IP]);
    assert!(flood.contains("3000 received"), "{flood}");
    assert!(bench.statistic("rx_packets") >= 6000 && bench.statistic("tx_packets") >= 6000);
    for name in
        ["rx_errors", "tx_errors", "rx_missed_errors", "tx_dropped", "rx_crc_errors", "tx_timeout_count"]
    {
        assert_eq!(bench.statistic(name), 0, "{name}");
    }
    assert_eq!(bench.complaints(), [] as [String; 0]);
}

/// Bits a second that the receiver of a run of iperf3 saw, from its JSON.
fn received(json: &str) -> f64 {
    let report: serde_json::Value =
        serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let end = &report["end"];
    let sum = [&end["sum_received"], &end["sum"]].into_iter().find_map(|sum| sum["bits_per_second"].as_f64());
    sum.unwrap_or_else(|| panic!("{json}"))
}

#[test]
#[ignore = "needs root and QEMU: ./run test nic"]
fn bulk_data_flow_both_ways_by_tcp_and_udp() {
    let bench = Bench::start("nic-bulk", Options::default());
    bench.answers();
    let mut server = bench.far("iperf3", "iperf3", &["--server", "--bind", BOX_IP]);
    for arguments in [
        "-t 5",
        "-t 5 -R",
        "-t 5 --bidir",
        "-t 5 -P 4",
        "-u -b 100M -t 5",
        "-u -b 100M -l 64 -t 3",
        "-u -b 100M -t 5 -R",
    ] {
        let command = format!("iperf3 --json --connect-timeout 5000 -c {BOX_IP} {arguments}");
        let rate = received(&bench.guest.check(&command, LOAD).unwrap());
        eprintln!("iperf3 {arguments}: {:.1} Mbit/s", rate / 1e6);
        assert!(rate > 1e6, "{arguments}: hardly anything came");
    }
    assert!(server.is_running());
    server.kill();
    // What the kernel at the other end checks itself: no checksum of ours was wrong.
    let errors = bench.far_output("cat", &["/proc/net/snmp"]);
    let of = |protocol: &str, field: &str| {
        let mut lines = errors.lines().filter(|line| line.starts_with(protocol));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split_whitespace().position(|name| name == field).unwrap();
        values.split_whitespace().nth(at).unwrap().parse::<u64>().unwrap()
    };
    assert_eq!((of("Tcp:", "InCsumErrors"), of("Udp:", "InCsumErrors"), of("Ip:", "InHdrErrors")), (0, 0, 0));
    assert!(bench.statistic("tx_tcp_seg_good") > 0, "segmentation was used");
    for name in ["rx_csum_err", "tx_timeout_count", "rx_errors", "tx_errors"] {
        let text = bench.guest.check("ethtool -S eth0", SOON).unwrap();
        let all = text.lines().filter(|line| line.contains(name)).filter(|line| !line.ends_with(": 0"));
        assert_eq!(all.collect::<Vec<_>>(), [] as [&str; 0]);
    }
    assert_eq!(bench.complaints(), [] as [String; 0]);
}
