use super::machine::Entry;
use super::machine::made_up::Made;
use super::*;
use crate::config::Overrides;

const BOX: &str = r#"[node]
name = "box"
control = "/run/es/box.control"
[[link]]
kind = "packet"
interface = "eth0"
[fabric]
state = "/var/lib/es/leases"
[security]
key = "/k/fabric.key"
[[device]]
kind = "nvme"
name = "disk0"
serial = "ES0001"
[[device.namespace]]
path = "/srv/disk.img"
"#;

const HOST: &str = r#"[node]
name = "host"
control = "/run/es/host.control"
busy_poll = "1s"
[[link]]
kind = "udp"
listen = "10.0.0.1:4700"
[security]
key = "/k/fabric.key"
[[slot]]
device = "disk0"
box = "10.0.0.2:4700"
socket = "/run/es/disk0.sock"
"#;

const FOLDER: Entry =
    Entry { is_folder: true, is_block_device: false, bytes: 0, is_readable: true, is_writable: true };

fn made<const N: usize>(of: [(&str, &str); N]) -> std::collections::BTreeMap<String, String> {
    of.into_iter().map(|(path, text)| (path.to_owned(), text.to_owned())).collect()
}

/// A machine on which nothing is to be found fault with.
fn good() -> Made {
    let file = Entry { is_folder: false, bytes: 1 << 20, ..FOLDER };
    let entries = [
        ("/run/es", FOLDER),
        ("/var/lib", FOLDER),
        ("/srv/disk.img", file),
        ("/hub", FOLDER),
        ("/sys/bus/pci/devices/0000:03:00.0", FOLDER),
    ];
    Made {
        files: made([
            ("/proc/self/status", "Name: x\nCapEff:\t000001ffffffffff\n"),
            ("/proc/net/dev", "Inter-| x\n  lo: 0\neth0: 0"),
            ("/proc/sys/kernel/osrelease", "6.1.0"),
            ("/boot/config-6.1.0", "CONFIG_X=y\nCONFIG_XDP_SOCKETS=y\n"),
            ("/proc/self/limits", "Limit Soft Hard\nMax locked memory  unlimited  unlimited  bytes"),
            ("/proc/sys/net/core/rmem_max", "8388608"),
            ("/proc/sys/net/core/wmem_max", "8388608"),
            ("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "64"),
            ("/proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    1048576 kB"),
            ("/proc/sys/kernel/io_uring_disabled", "0"),
            ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
            ("/sys/devices/system/cpu/isolated", "3"),
            ("/sys/devices/system/cpu/online", "0-3"),
            ("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc"),
        ]),
        entries: entries.into_iter().map(|(path, entry)| (path.to_owned(), entry)).collect(),
        links: made([("/sys/bus/pci/devices/0000:03:00.0/driver", "../../bus/pci/drivers/vfio-pci")]),
        programs: made([
            (
                "ip -o link show dev eth0",
                "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc noqueue state UP",
            ),
            (
                "ethtool -k eth0",
                "large-receive-offload: off [fixed]\ntx-udp-segmentation: on\ngeneric-receive-offload: on",
            ),
            (
                "ip -o addr show",
                "1: lo    inet 127.0.0.1/8 scope host lo\n2: eth0    inet 10.0.0.1/24 scope global eth0",
            ),
            ("qemu-system-x86_64 --version", "QEMU emulator version 10.1.2 (Debian 1:10.1)\nCopyright"),
            ("qemu-system-x86_64 -device help", "name \"nvme\"\nname \"vfio-user-pci\", bus PCI"),
            ("timedatectl show --property=NTPSynchronized --value", "yes\n"),
        ]),
        now_s: 1_800_000_000,
        ..Made::default()
    }
}

fn found(machine: &Made, text: &str) -> Vec<Finding> {
    let checked = check(text, None, &Overrides::default());
    assert!(checked.errors.is_empty(), "{:?}", checked.errors);
    let mut findings = Findings::default();
    let options = checked.options.unwrap();
    examine(machine, &options, Some(options.security()), devices::QEMU, &mut findings);
    findings.found
}

/// What is found when one thing is otherwise than on the good machine.
fn with(text: &str, change: impl FnOnce(&mut Made)) -> Vec<Finding> {
    let mut machine = good();
    change(&mut machine);
    found(&machine, text).into_iter().filter(|finding| finding.verdict != Verdict::Fine).collect()
}

/// One finding, of this verdict, with these words and these in its remedy.
#[track_caller]
fn only(found: &[Finding], verdict: Verdict, words: &str, remedy: &str) {
    let [finding] = found else { panic!("not one finding: {found:#?}") };
    assert_eq!(finding.verdict, verdict, "{finding:?}");
    assert!(finding.what.contains(words), "no {words} in {finding:?}");
    assert!(finding.remedy.as_ref().is_some_and(|it| it.contains(remedy)), "no {remedy} in {finding:?}");
}

fn set(machine: &mut Made, path: &str, text: &str) {
    machine.files.insert(path.to_owned(), text.to_owned());
}

#[test]
fn a_good_machine_gets_no_advice() {
    assert_eq!(with(BOX, |_| ()), []);
    assert_eq!(with(HOST, |_| ()), []);
    assert!(shown(&found(&good(), BOX), false).contains("all is as it should be"));
    assert!(shown(&found(&good(), BOX), true).contains("/srv/disk.img can be used"));
}

#[test]
fn an_interface_that_is_not_there_not_up_or_too_narrow_is_told() {
    use Verdict::{Hint, Impossible, Warning};
    let shows = |text: &str| {
        let (line, text) = ("ip -o link show dev eth0".to_owned(), format!("2: eth0: {text} qdisc x"));
        with(BOX, move |it| it.prints(&line, &text))
    };
    let mtu = |mtu: &str| shows(&format!("<UP,LOWER_UP> mtu {mtu}"));
    only(&mtu("500"), Impossible, "MTU of eth0 is 500", "ip link set eth0 mtu 9000");
    only(&mtu("1500"), Hint, "1500", "mtu 9000");
    assert_eq!(mtu("9216"), []);
    let gone = with(&BOX.replace("eth0", "eth7"), |it| it.prints("ethtool -k eth7", ""));
    only(&gone, Impossible, "there are lo, eth0", "name one");
    only(&shows("<BROADCAST> mtu 9000"), Impossible, "not up", "ip link set eth0 up");
    only(&shows("<NO-CARRIER,UP> mtu 9000"), Warning, "no carrier", "cable");
    only(&shows(""), Hint, "can't be looked at", "iproute2");
    let two = BOX.replace("[fabric]", "[[link]]\nkind = \"packet\"\ninterface = \"eth1\"\n[fabric]");
    let different = with(&two, |it| {
        set(it, "/proc/net/dev", "lo: 0\neth0: 0\neth1: 0");
        it.programs
            .insert("ip -o link show dev eth1".to_owned(), "3: eth1: <UP,LOWER_UP> mtu 9216".to_owned());
        it.programs.insert("ethtool -k eth1".to_owned(), String::new());
    });
    only(&different, Hint, "frames of 9000 bytes", "same MTU");
}

#[test]
fn offloads_and_buffers_that_cost_or_lose_frames_are_told() {
    use Verdict::{Hint, Warning};
    let features = |text: &'static str| move |it: &mut Made| it.prints("ethtool -k eth0", text);
    only(&with(BOX, features("large-receive-offload: on")), Hint, "large-receive", "ethtool -K eth0 lro off");
    only(
        &with(HOST, features("tx-udp-segmentation: off [fixed]")),
        Hint,
        "in software",
        "tx-udp-segmentation on",
    );
    only(&with(HOST, features("\tgeneric-receive-offload: off")), Hint, "by itself", "gro on");
    only(&with(BOX, |it| it.lacks("ethtool -k eth0")), Hint, "can't be seen", "install ethtool");
    let small = with(HOST, |it| {
        set(it, "/proc/self/status", "CapEff:\t0000000000000000");
        set(it, "/proc/sys/net/core/rmem_max", "212992");
    });
    only(&small, Warning, "rmem_max is 212992", "sysctl -w net.core.rmem_max");
}

#[test]
fn what_a_user_may_not_do_is_told() {
    use Verdict::{Impossible, Warning};
    let nobody = |it: &mut Made| set(it, "/proc/self/status", "CapEff:\t0000000000000000");
    only(&with(BOX, nobody), Impossible, "CAP_NET_RAW", "AmbientCapabilities");
    let xdp = BOX.replace("\"packet\"", "\"xdp\"");
    let raw = |it: &mut Made| {
        set(it, "/proc/self/status", "CapEff:\t0000000000002000");
        set(it, "/proc/self/limits", "Max locked memory  65536  65536  bytes");
    };
    let told = with(&xdp, raw);
    assert_eq!(told.len(), 2, "{told:?}");
    only(&told[..1], Impossible, "XDP programs", "CAP_BPF");
    only(&told[1..], Warning, "65536 bytes", "LimitMEMLOCK");
    let old = with(&xdp, |it| set(it, "/boot/config-6.1.0", "CONFIG_XDP_SOCKETS=m"));
    only(&old, Impossible, "without AF_XDP", "packet");
    let keys = with(BOX, |it| it.keys = Some("/k/fabric.key: others may use this file".to_owned()));
    only(&keys, Impossible, "others may use", "keygen");
    let plain = HOST.replace("key = \"/k/fabric.key\"", "plaintext = true");
    only(&with(&plain, |_| ()), Warning, "plaintext", "keygen");
}

#[test]
fn an_address_that_is_nobody_s_and_an_mtu_that_does_not_fit_are_told() {
    use Verdict::Impossible;
    let elsewhere = HOST.replace("10.0.0.1:4700", "10.9.9.9:4700");
    only(&with(&elsewhere, |_| ()), Impossible, "no interface", "0.0.0.0");
    let large = HOST.replace("[security]", "mtu = 9200\n[security]");
    only(&with(&large, |_| ()), Impossible, "mtu = 9200", "9000 or less");
}

#[test]
fn dpdk_wants_pages_a_library_and_a_device() {
    use Verdict::{Impossible, Warning};
    let of = |device: &str| {
        BOX.replace(
            "kind = \"packet\"\ninterface = \"eth0\"",
            &format!("kind = \"dpdk\"\ndevice = \"{device}\""),
        )
    };
    assert_eq!(with(&of("0000:03:00.0"), |_| ()), []);
    let pages = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
    only(&with(&of("net_memif0"), |it| set(it, pages, "3")), Warning, "6 MiB", "vm.nr_hugepages");
    let kernel = with(&of("0000:03:00.0"), |it| {
        it.links.insert("/sys/bus/pci/devices/0000:03:00.0/driver".to_owned(), "../drivers/ixgbe".to_owned());
    });
    only(&kernel, Impossible, "bound to ixgbe", "dpdk-devbind.py");
    only(&with(&of("0000:99:00.0"), |_| ()), Impossible, "no PCI device", "lspci");
    let none = with(&of("net_memif0"), |it| it.dpdk = Some("no libdpdk".to_owned()));
    only(&none, Impossible, "no libdpdk", "libdpdk");
}

#[test]
fn files_and_folders_that_can_t_be_used_are_told() {
    use Verdict::{Hint, Impossible};
    let path = "/srv/disk.img";
    let file = |change: fn(&mut Entry)| with(BOX, |it| change(it.entries.get_mut(path).unwrap()));
    only(&with(BOX, |it| it.has_no(path)), Impossible, "not there", "truncate -s");
    only(&file(|it| it.is_writable = false), Impossible, "may not write", "read_only");
    only(&file(|it| it.is_folder = true), Impossible, "is a folder", "file or a block device");
    only(&file(|it| it.bytes = 100), Impossible, "not one block", "truncate");
    only(&file(|it| it.bytes = 1000), Hint, "no whole block", "multiple");
    let read_only = BOX.replace("path = \"/srv/disk.img\"", "path = \"/srv/disk.img\"\nread_only = true");
    assert_eq!(with(&read_only, |it| it.entries.get_mut(path).unwrap().is_writable = false), []);
    let memory = BOX.replace("path = \"/srv/disk.img\"", "memory = \"2 GiB\"");
    only(&with(&memory, |_| ()), Impossible, "2048 MiB", "smaller");
    let ring = |it: &mut Made| set(it, "/proc/sys/kernel/io_uring_disabled", "2");
    only(&with(BOX, ring), Impossible, "io_uring", "sysctl");
    let closed =
        |folder: &'static str| with(BOX, move |it| it.entries.get_mut(folder).unwrap().is_writable = false);
    only(&closed("/run/es"), Impossible, "control socket", "make the folder");
    only(&closed("/var/lib"), Impossible, "leases", "make the folder");
    let sockets = with(HOST, |it| it.has("/run/es", Entry { is_folder: false, ..FOLDER }));
    assert!(sockets.iter().all(|it| it.what.contains("/run/es is no folder")), "{sockets:?}");
    assert_eq!(sockets.len(), 2, "of QEMU's socket and of the control socket");
    let long = HOST.replace("/run/es/disk0.sock", &format!("/run/es/{}", "x".repeat(120)));
    only(&with(&long, |_| ()), Impossible, "128 bytes", "shorter");
}

#[test]
fn a_qemu_that_is_old_without_vfio_user_or_missing_is_told() {
    use Verdict::{Impossible, Warning};
    let prints = |line: &'static str, text: &'static str| with(HOST, move |it| it.prints(line, text));
    let version = "qemu-system-x86_64 --version";
    only(&prints(version, "QEMU emulator version 9.2.4"), Impossible, "9.2.4", "backports");
    only(&prints(version, "QEMU emulator version 10.0.0"), Impossible, "10.0.0", "10.1");
    only(&prints(version, "something"), Warning, "no version", "10.1");
    assert_eq!(prints(version, "QEMU emulator version 11.0"), []);
    only(
        &prints("qemu-system-x86_64 -device help", "name \"nvme\""),
        Impossible,
        "without vfio-user-pci",
        "build",
    );
    only(&with(HOST, |it| it.lacks(version)), Warning, "not there", "--qemu");
}

#[test]
fn processors_and_clocks_that_slow_a_node_are_told() {
    use Verdict::{Hint, Warning};
    let governor = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    only(&with(BOX, |it| set(it, governor, "powersave")), Hint, "powersave", "cpupower");
    only(&with(HOST, |it| set(it, "/sys/devices/system/cpu/isolated", "")), Hint, "set apart", "isolcpus");
    only(
        &with(HOST, |it| set(it, "/sys/devices/system/cpu/online", "0")),
        Warning,
        "only processor",
        "busy_poll",
    );
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    only(&with(BOX, |it| set(it, source, "hpet")), Warning, "hpet", "tsc");
    only(&with(BOX, |it| it.now_s = 5), Warning, "never set", "time service");
    let service = "timedatectl show --property=NTPSynchronized --value";
    only(&with(BOX, |it| it.prints(service, "no\n")), Hint, "no time service", "chrony");
}

#[test]
fn without_a_configuration_nothing_is_impossible() {
    let mut findings = Findings::default();
    let machine = Made { keys: Some("there is no fabric.key".to_owned()), ..Made::default() };
    without(&machine, devices::QEMU, &mut findings);
    let verdicts: Vec<Verdict> = findings.found.iter().map(|it| it.verdict).collect();
    assert_eq!(verdicts, [Verdict::Hint; 4], "{:#?}", findings.found);
    let text = shown(&findings.found, false);
    assert_eq!(text.lines().filter(|line| line.contains("remedy: ")).count(), 4, "{text}");
}

#[test]
fn a_guests_monitor_that_is_not_there_or_not_for_this_user_is_told() {
    let host = HOST.replace("[[slot]]", "[fabric]\n[[slot]]").replace("box = \"10.0.0.2:4700\"\n", "")
        + "hot_plug = { monitor = \"/run/vm/qmp\", bus = \"rp0\" }\n";
    only(&with(&host, |_| {}), Verdict::Hint, "no guest runs", "-qmp unix:/run/vm/qmp,server=on");
    let there = Entry { is_folder: false, bytes: 0, ..FOLDER };
    assert_eq!(with(&host, |machine| machine.has("/run/vm/qmp", there)), []);
    let anothers = Entry { is_writable: false, ..there };
    let refused = with(&host, |machine| machine.has("/run/vm/qmp", anothers));
    only(&refused, Verdict::Impossible, "may not use QEMU's monitor", "QEMU's group");
}
