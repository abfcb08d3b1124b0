use etherslot_runtime::options::{LinkKind, XdpMode};

use super::*;

/// What a file without keys needs beside.
fn plain() -> Overrides {
    Overrides { security: SecurityFlags::PLAINTEXT, ..Overrides::default() }
}

const BOX: &str = r#"[node]
name = "box"
[link]
kind = "packet"
interface = "eth0"
[[device]]
kind = "nvme"
name = "disk0"
serial = "ES0001"
[[device.namespace]]
path = "/disk.img"
"#;

const HOST: &str = r#"[node]
name = "host"
[link]
kind = "packet"
interface = "eth0"
[[slot]]
device = "disk0"
box = "02:00:00:00:00:02"
socket = "/run/disk0.sock"
"#;

#[test]
fn minimal_files_are_taken_with_defaults() {
    let options = parse::<BoxFile>(BOX, &plain()).unwrap();
    assert_eq!(options.devices[0].stores()[0].block_bytes, 512);
    assert_eq!(options.session.dead_after, Duration::from_secs(1));
    let memory = BOX.replace("path = \"/disk.img\"", "memory = \"1.5 MiB\"");
    let options = parse::<BoxFile>(&memory, &plain()).unwrap();
    assert_eq!(options.devices[0].stores()[0].backing, Backing::Memory(3 << 19));
    let options = parse::<HostFile>(HOST, &plain()).unwrap();
    assert_eq!(options.slots[0].interrupts, Interrupts::MsiX);
}

#[test]
fn a_sata_controller_has_disks_and_may_have_empty_ports() {
    let sata = BOX.replace("nvme", "ahci").replace("[[device.namespace]]", "[[device.disk]]");
    let options = parse::<BoxFile>(&sata, &plain()).unwrap();
    assert_eq!(options.devices[0].stores().len(), 1);
    let DeviceKind::Sata(device) = &options.devices[0].kind else { panic!("no SATA controller") };
    assert_eq!((device.ports, device.model.as_str()), (1, "Etherslot SATA"));
    let empty = sata.replace("[[device.disk]]\npath = \"/disk.img\"\n", "ports = 3\n");
    let options = parse::<BoxFile>(&empty, &plain()).unwrap();
    assert!(options.devices[0].stores().is_empty());
    refuses::<BoxFile>(
        &sata,
        &[
            ("[[device.disk]]", "queue_pairs = 4\n[[device.disk]]", 6, "remove it"),
            ("[[device.disk]]", "max_transfer = \"4 MiB\"\n[[device.disk]]", 6, "not for kind"),
            ("[[device.disk]]", "[[device.namespace]]", 6, "not for kind"),
            ("[[device.disk]]", "ports = 9\n[[device.disk]]", 10, "1 to 8"),
            ("[[device.disk]]\npath = \"/disk.img\"\n", "", 6, "at least one"),
            (
                "[[device.disk]]",
                "ports = 1\n[[device.disk]]\nmemory = \"1 MiB\"\n[[device.disk]]",
                6,
                "has a port",
            ),
            ("path = \"/disk.img\"", "", 6, "[[device.disk]]"),
            ("path = \"/disk.img\"", "memory = \"1 MiB\"\nremovable = true", 6, "with a path"),
        ],
    );
    refuses::<BoxFile>(BOX, &[("[[device.namespace]]", "[[device.disk]]", 6, "not for kind")]);
    let sil = sata.replace("ahci", "sil3132");
    let options = parse::<BoxFile>(&sil, &plain()).unwrap();
    let DeviceKind::Sata(device) = &options.devices[0].kind else { panic!("no SATA controller") };
    assert_eq!((device.controller, device.ports), (SataController::Sil3132, 2));
    refuses::<BoxFile>(&sil, &[("[[device.disk]]", "ports = 2\n[[device.disk]]", 6, "remove it")]);
}

#[test]
fn several_links_have_an_address_of_the_box_each() {
    let two = HOST
        .replace("[link]\nkind = \"packet\"\ninterface = \"eth0\"", TWO_LINKS)
        .replace("box = \"02:00:00:00:00:02\"", "box = [\"02:00:00:00:00:02\", \"10.0.0.2:4700\"]");
    let flags = Overrides { capture: Some("all.pcapng".into()), ..plain() };
    let options = parse::<HostFile>(&two, &flags).unwrap();
    assert_eq!((options.links.len(), options.session.paths), (2, 2));
    let captures: Vec<_> = options.links.iter().map(|link| link.capture.clone().unwrap()).collect();
    assert_eq!(captures, [PathBuf::from("all.pcapng"), PathBuf::from("all.pcapng.1")]);
    let routes: Vec<String> =
        options.slots[0].routes.as_ref().unwrap().iter().map(|via| via.to_string()).collect();
    assert_eq!(routes, ["02:00:00:00:00:02", "10.0.0.2:4700 by link 1"]);
    let second = two[two.find("[[slot]]").unwrap()..].replace("disk0", "disk1");
    assert!(parse::<HostFile>(&format!("{two}{second}"), &plain()).is_ok());
    for (from, to, line, remedy) in [
        ("listen = \"0.0.0.0:0\"", "interface = \"eth1\"", 6, "change the kind"),
        ("\"10.0.0.2:4700\"", "\"02:00:00:00:00:03\"", 10, "ADDRESS:PORT"),
        ("\"10.0.0.2:4700\"", "\"nowhere\"", 12, "MAC"),
        ("\"10.0.0.2:4700\"]", "\"10.0.0.2:4700\", \"10.0.0.2:4701\"]", 10, "2 links"),
        ("[\"02:00:00:00:00:02\", \"10.0.0.2:4700\"]", "[]", 10, "empty"),
        ("[[slot]]", "[session]\npaths = 5\n[[slot]]", 11, "1 to 4"),
    ] {
        let bad = two.replacen(from, to, 1);
        let error = format!("{:#}", parse::<HostFile>(&bad, &plain()).expect_err(to));
        assert!(error.contains(remedy) && error.contains(&format!("line {line}")), "{to}: {error}");
    }
    let other = second.replace("\"10.0.0.2:4700\"", "\"10.0.0.2:4701\"");
    let error = parse::<HostFile>(&format!("{two}{other}"), &plain()).unwrap_err();
    assert!(format!("{error:#}").contains("same addresses"), "{error:#}");
    let many = TWO_LINKS.repeat(3);
    let error = parse::<HostFile>(&two.replace(TWO_LINKS, &many), &plain()).unwrap_err();
    assert!(format!("{error:#}").contains("more than 4"), "{error:#}");
}

const TWO_LINKS: &str = r#"[[link]]
kind = "packet"
interface = "eth0"
[[link]]
kind = "udp"
listen = "0.0.0.0:0"
"#;

/// What is changed in the good file, the line where the mistake is, and words of the remedy.
type Case = (&'static str, &'static str, usize, &'static str);

fn refuses<F: File<Options: std::fmt::Debug>>(good: &str, cases: &[Case]) {
    for &(from, to, line, remedy) in cases {
        let bad = good.replacen(from, to, 1);
        assert_ne!(bad, good, "{from}");
        let error = parse::<F>(&bad, &plain()).expect_err(to);
        let error = format!("{error:#}");
        assert!(error.contains(remedy), "{to}: no {remedy:?} in: {error}");
        assert!(error.contains(&format!("line {line}")), "{to}: not line {line}: {error}");
    }
}

#[test]
fn an_rnic_has_a_link_and_peers_and_says_that_it_is_not_protected() {
    let rnic = "\n[[device]]\nkind = \"rnic\"\nname = \"rnic\"\nserial = \"R\"\nlink = \"udp:127.0.0.1:4790\"\npeers = [\"127.0.0.1:4791\"]\nplaintext = true\n";
    let text = BOX.to_owned() + rnic;
    let file = parse::<BoxFile>(&text, &plain()).unwrap();
    let DeviceKind::Rnic(options) = &file.devices[1].kind else { panic!("{:?}", file.devices) };
    assert_eq!((options.link.to_string().as_str(), options.peers.len()), ("udp:127.0.0.1:4790", 1));
    for (from, to, remedy) in [
        ("plaintext = true", "", "plaintext = true"),
        ("peers = [\"127.0.0.1:4791\"]", "", "add peers"),
        ("link = \"udp:127.0.0.1:4790\"", "", "a link of its own"),
        ("udp:127.0.0.1:4790", "ring:/tmp/hub#1", "packet, xdp or udp"),
        ("plaintext = true", "plaintext = true\nrate = \"1 MB/s\"", "rate is not for"),
    ] {
        let error = parse::<BoxFile>(&text.replacen(from, to, 1), &plain()).expect_err(to);
        assert!(format!("{error:#}").contains(remedy), "{to}: {error:#}");
    }
}

#[test]
fn the_largest_transfer_of_an_nvme_device_is_a_size() {
    let most = |text: &str| {
        let file = parse::<BoxFile>(text, &plain()).unwrap();
        let DeviceKind::Nvme(nvme) = &file.devices[0].kind else { panic!("{:?}", file.devices) };
        let most = nvme.max_transfer_bytes;
        let shown = super::show::file(&super::show::Shown::Box(file));
        assert!(shown.contains(&format!("max_transfer = \"{most} B\"")), "{shown}");
        assert!(parse::<BoxFile>(&shown, &plain()).is_ok(), "what is shown is a file again: {shown}");
        most
    };
    assert_eq!(most(BOX), 1 << 20);
    for (size, bytes) in [("4 KiB", 4096), ("4 MiB", 4 << 20), ("16 MiB", 16 << 20)] {
        let with = format!("serial = \"ES0001\"\nmax_transfer = \"{size}\"");
        assert_eq!(most(&BOX.replace("serial = \"ES0001\"", &with)), bytes);
    }
}

#[test]
fn a_dc_buffer_has_a_size_and_a_disk_may_have_a_rate() {
    let text = BOX.replace("serial = \"ES0001\"", "serial = \"ES0001\"\nrate = \"250 MB/s\"")
        + "\n[[device]]\nkind = \"dc\"\nname = \"dc\"\nserial = \"D\"\nsize = \"256 MiB\"\n";
    let file = parse::<BoxFile>(&text, &plain()).unwrap();
    let [disk, buffer] = &file.devices[..] else { panic!("{:?}", file.devices) };
    assert!(
        matches!(&disk.kind, DeviceKind::Nvme(nvme) if nvme.rate.map(NonZeroU64::get) == Some(250_000_000))
    );
    assert!(matches!(buffer.kind, DeviceKind::Dc { bytes: 0x1000_0000 }));
    assert!(buffer.stores().is_empty());
}

const NIC: &str = r#"
[node]
name = "box"
[link]
kind = "packet"
interface = "eth0"
[[device]]
kind = "82576"
name = "nic"
serial = "N1"
mac = "02:00:00:00:00:10"
network = { tap = "tap0" }
"#;

#[test]
fn a_network_controller_has_a_tap_interface_or_a_link() {
    let linked = NIC.replace("tap = \"tap0\"", "link = \"udp:10.0.0.1:4800\", peer = \"10.0.0.2:4800\"");
    for text in [NIC, &linked, &NIC.replace("mac = \"02:00:00:00:00:10\"\n", "")] {
        let file = parse::<BoxFile>(text, &plain()).unwrap();
        assert!(matches!(&file.devices[0].kind, DeviceKind::E82576(_)));
        let shown = super::show::file(&super::show::Shown::Box(file));
        assert!(parse::<BoxFile>(&shown, &plain()).is_ok(), "what is shown is a file again: {shown}");
    }
    refuses::<BoxFile>(
        NIC,
        &[
            ("network = { tap = \"tap0\" }", "", 7, "add network"),
            ("tap = \"tap0\"", "tap = \"an/interface\"", 7, "1 to 15"),
            ("tap = \"tap0\"", "tap = \"t\", peer = \"ring:1\"", 7, "link = "),
            ("tap = \"tap0\"", "link = \"udp:10.0.0.1:4800\"", 7, "peer = "),
            ("tap = \"tap0\"", "link = \"udp:10.0.0.1:4800\", peer = \"ring:1\"", 7, "ADDRESS:PORT"),
            ("tap = \"tap0\"", "link = \"ether:0\", peer = \"ring:1\"", 7, "link"),
            ("mac = \"02:00:00:00:00:10\"", "mac = \"02:00\"", 11, "02:00:00:00:00:01"),
            ("mac = \"02:00:00:00:00:10\"", "queue_pairs = 8", 7, "not for kind"),
        ],
    );
    refuses::<BoxFile>(
        BOX,
        &[("serial = \"ES0001\"", "serial = \"A\"\nnetwork = { tap = \"t\" }", 6, "not for kind")],
    );
}

#[test]
fn a_mistake_in_a_box_file_is_told_with_its_line_and_the_remedy() {
    let long = "serial = \"123456789012345678901\"";
    refuses::<BoxFile>(
        BOX,
        &[
            ("name = \"disk0\"", "nmae = \"disk0\"", 8, "`name`"),
            ("serial = \"ES0001\"", "serail = \"ES0001\"", 9, "`serial`"),
            ("kind = \"nvme\"", "kind = \"floppy\"", 7, "nvme"),
            ("kind = \"packet\"", "kind = \"pakcet\"", 4, "`packet`"),
            ("interface = \"eth0\"", "listen = \"eth0\"", 5, "ADDRESS:PORT"),
            ("interface = \"eth0\"", "listen = \"0.0.0.0:1\"", 3, "change the kind"),
            ("interface = \"eth0\"", "interface = \"eth0\"\nimpair = \"lost=1%\"", 6, "loss"),
            ("name = \"box\"", "name = \"\"", 2, "1 to 255"),
            ("name = \"box\"", "name = \"box\"\nbusy_poll = \"50\"", 3, "unit"),
            ("name = \"disk0\"", "name = \"\"", 8, "1 to 32"),
            ("serial = \"ES0001\"", "serial = \"\"", 9, "1 to 20"),
            ("serial = \"ES0001\"", long, 9, "1 to 20"),
            ("serial = \"ES0001\"", "serial = \"A\"\nmodel = \"\"", 10, "1 to 40"),
            ("serial = \"ES0001\"", "serial = \"A\"\nqueue_pairs = 65", 10, "1 to 64"),
            ("serial = \"ES0001\"", "serial = \"A\"\ncmb_bytes = 5000", 10, "power of two"),
            ("serial = \"ES0001\"", "serial = \"A\"\nmax_transfer = \"big\"", 10, "\"4 MiB\""),
            ("serial = \"ES0001\"", "serial = \"A\"\nmax_transfer = \"3 MiB\"", 10, "power of two"),
            ("serial = \"ES0001\"", "serial = \"A\"\nmax_transfer = \"2 KiB\"", 10, "4 KiB to 16 MiB"),
            ("serial = \"ES0001\"", "serial = \"A\"\nmax_transfer = \"32 MiB\"", 10, "4 KiB to 16 MiB"),
            ("serial = \"ES0001\"", "serial = \"A\"\nrate = \"250\"", 10, "250 MB/s"),
            ("serial = \"ES0001\"", "serial = \"A\"\nrate = \"0 B/s\"", 10, "250 MB/s"),
            ("serial = \"ES0001\"", "serial = \"A\"\nsize = \"3 MiB\"", 10, "power of two"),
            ("serial = \"ES0001\"", "serial = \"A\"\nsize = \"1 MiB\"", 6, "not for kind"),
            ("kind = \"nvme\"", "kind = \"dc\"", 6, "not for kind"),
            ("path = \"/disk.img\"", "path = \"/d\"\nblock_bytes = 520", 12, "512 or 4096"),
            ("path = \"/disk.img\"", "path = \"/d\"\nmemory = \"1 GiB\"", 6, "not both"),
            ("path = \"/disk.img\"", "read_only = true", 6, "or memory"),
            ("path = \"/disk.img\"", "memory = \"a lot\"", 11, "\"1 GiB\""),
            ("path = \"/disk.img\"", "memory = \"5000 B\"", 11, "multiple of 4096"),
            ("[[device]]", "[session]\nwindow_frames = 3\n[[device]]", 7, "16 to 4096"),
            ("[[device]]", "[session]\ndead_after = \"9s\"\n[[device]]", 6, "4s or less"),
            ("[[device]]", "[session]\nmax_payload = 100\n[[device]]", 7, "power of two"),
            ("[[device]]", "[session]\nmax_payload = 256\n[[device]]", 6, "for hosts"),
            ("[[device.namespace]]\npath = \"/disk.img\"\n", "", 6, "add at least one"),
        ],
    );
    let twice = BOX[BOX.find("[[device]]").unwrap()..].to_owned();
    let error = parse::<BoxFile>(&format!("{BOX}{twice}"), &plain()).unwrap_err();
    assert!(format!("{error:#}").contains("line 12"), "{error:#}");
}

#[test]
fn in_a_fabric_a_slot_needs_no_address() {
    let host = HOST.replace("[[slot]]", "[fabric]\n[[slot]]").replace("box = \"02:00:00:00:00:02\"\n", "");
    let options = parse::<HostFile>(&host, &plain()).unwrap();
    let slot = &options.slots[0];
    assert_eq!((&slot.wanted, &slot.routes), (&Wanted::Name("disk0".to_owned()), &None));
    assert_eq!(options.fabric.unwrap().interval, Duration::from_millis(100));
    let serial = host.replace("device = \"disk0\"", "serial = \"ES0001\"");
    let options = parse::<HostFile>(&serial, &plain()).unwrap();
    assert_eq!(options.slots[0].wanted, Wanted::Serial("ES0001".to_owned()));
    refuses::<HostFile>(
        &host,
        &[
            ("[fabric]\n", "", 6, "[fabric]"),
            ("[fabric]", "[fabric]\ngroup = 4001", 7, "1 to 4000"),
            ("[fabric]", "[fabric]\ninterval = \"1ms\"", 6, "10ms to 60s"),
            ("[fabric]", "[fabric]\nhold = \"1s\"", 6, "belongs to a box"),
            ("[fabric]", "[fabric]\npeers = [\"10.0.0.1:1\"]", 6, "no link leads"),
            ("[fabric]", "[fabric]\npeer = []", 7, "`peers`"),
            ("device = \"disk0\"", "device = \"disk0\"\nserial = \"A\"", 7, "not both"),
        ],
    );
    let io_box = BOX.replace("[[device]]", "[fabric]\ngroup = 7\n[[device]]");
    let options = parse::<BoxFile>(&io_box, &plain()).unwrap();
    assert_eq!(options.devices[0].group, Group::new(7));
    refuses::<BoxFile>(BOX, &[("serial = ", "group = 7\nserial = ", 6, "add [fabric]")]);

    let moves = "on_host_loss = \"move\"\nstandby = [\"host-b\", \"host-c\"]\nserial = ";
    let moving = io_box.replace("serial = ", moves);
    let options = parse::<BoxFile>(&moving, &plain()).unwrap();
    assert_eq!(options.devices[0].failover.as_ref().unwrap().standby.len(), 2);
    refuses::<BoxFile>(
        &moving,
        &[
            ("on_host_loss = \"move\"\n", "", 8, "add on_host_loss"),
            ("[fabric]\ngroup = 7\n", "", 6, "add [fabric]"),
            ("\"move\"", "\"run\"", 11, "`keep`"),
            ("host-b", "", 12, "1 to 32"),
        ],
    );
}

#[test]
fn a_mistake_in_a_host_file_is_told_with_its_line_and_the_remedy() {
    refuses::<HostFile>(
        HOST,
        &[
            ("socket =", "scoket =", 9, "`socket`"),
            ("02:00:00:00:00:02", "nowhere", 8, "MAC"),
            ("02:00:00:00:00:02", "10.0.0.1:4700", 6, "MAC"),
            ("interface = \"eth0\"", "listen = \"0.0.0.0:0\"", 3, "change the kind"),
            ("device = \"disk0\"", "device = \"disk0\"\ninterrupts = \"intx\"", 8, "`msi-x`"),
            ("device = \"disk0\"", "device = \"disk0\"\ndomain = 0", 8, "1 to 65535"),
        ],
    );
    let together = HOST.replace("device = \"disk0\"", "device = \"disk0\"\ndomain = 7");
    assert_eq!(parse::<HostFile>(&together, &plain()).unwrap().slots[0].domain, 7);
    assert_eq!(parse::<HostFile>(HOST, &plain()).unwrap().slots[0].domain, 0);
    let plug = "socket = \"/run/disk0.sock\"\nhot_plug = { monitor = \"/run/qmp\", bus = \"rp1\" }\n";
    let plugged = HOST.replace("socket = \"/run/disk0.sock\"\n", plug);
    let slot = &parse::<HostFile>(&plugged, &plain()).unwrap().slots[0];
    let hot_plug = slot.hot_plug.as_ref().unwrap();
    assert_eq!((slot.interrupts, &*hot_plug.id), (Interrupts::Msi, "disk0"));
    assert_eq!(hot_plug.grace, Duration::from_secs(10));
    let second = plugged[plugged.find("[[slot]]").unwrap()..].replace("disk0", "disk1").replace("rp1", "rp2");
    refuses::<HostFile>(&format!("{plugged}{second}"), &[("rp2", "rp1", 11, "same id or bus")]);
    refuses::<HostFile>(
        &plugged,
        &[
            ("bus = \"rp1\"", "bus = \"rp 1\"", 10, "letters"),
            ("bus = \"rp1\"", "port = \"rp1\"", 10, "`bus`"),
            ("device = \"disk0\"", "device = \"disk0\"\ninterrupts = \"msi-x\"", 6, "leave interrupts out"),
            ("device = \"disk0\"", "device = \"0 disk\"", 6, "write id"),
        ],
    );
    let any = format!("[fabric]\n{}", &plugged[plugged.find("[[slot]]").unwrap()..])
        .replace("device = \"disk0\"\nbox = \"02:00:00:00:00:02\"", "device = \"*\"");
    let any = format!("{}{any}", &HOST[..HOST.find("[[slot]]").unwrap()]);
    let slot = &parse::<HostFile>(&any, &plain()).unwrap().slots[0];
    assert_eq!((&slot.wanted, &*slot.hot_plug.as_ref().unwrap().id), (&Wanted::Any, "rp1-device"));
    let another = any[any.find("[[slot]]").unwrap()..].replace("disk0.sock", "b.sock").replace("rp1", "rp2");
    assert_eq!(parse::<HostFile>(&format!("{any}{another}"), &plain()).unwrap().slots.len(), 2);
    refuses::<HostFile>(&any, &[(plug, "socket = \"/run/disk0.sock\"\n", 7, "needs hot_plug")]);
    let udp =
        HOST.replace("kind = \"packet\"\ninterface = \"eth0\"", "kind = \"udp\"\nlisten = \"0.0.0.0:0\"");
    refuses::<HostFile>(&udp, &[("disk0", "disk1", 6, "ADDRESS:PORT")]);
    let xdp = HOST.replace("kind = \"packet\"", "kind = \"xdp\"\nqueue = 1\nmode = \"native\"");
    let options = parse::<HostFile>(&xdp, &plain()).unwrap();
    let (interface, mode) = ("eth0".to_owned(), XdpMode::Native);
    assert_eq!(options.links[0].kind, LinkKind::Xdp { interface, queue: 1, mode });
    refuses::<HostFile>(
        &xdp,
        &[
            ("native", "fast", 6, "`generic`"),
            ("= 1", "= 1024", 5, "1023"),
            ("\"xdp\"", "\"packet\"", 3, "\"xdp\""),
        ],
    );
    let ring = HOST
        .replace("kind = \"packet\"\ninterface = \"eth0\"", "kind = \"ring\"\nhub = \"/run/hub\"\nport = 1")
        .replace("02:00:00:00:00:02", "ring:2");
    parse::<HostFile>(&ring, &plain()).unwrap();
    let dpdk = HOST.replace(
        "kind = \"packet\"\ninterface = \"eth0\"",
        "kind = \"dpdk\"\ndevice = \"net_memif0\"\nmtu = 9000\nmac = \"02:00:00:00:00:01\"\neal = [\"--no-huge\"]",
    );
    parse::<HostFile>(&dpdk, &plain()).unwrap();
    refuses::<HostFile>(
        &dpdk,
        &[
            ("device = \"net_memif0\"\n", "", 3, "net_memif0,role"),
            ("mtu = 9000", "mtu = 9300", 3, "576 to 9216"),
            ("02:00:00:00:00:01", "any", 7, "no MAC"),
            ("\"02:00:00:00:00:02\"", "\"ring:2\"", 9, "MAC"),
            ("kind = \"dpdk\"", "kind = \"packet\"", 3, "change the kind"),
        ],
    );
    refuses::<HostFile>(
        &ring,
        &[
            ("port = 1", "", 3, "needs port"),
            ("port = 1", "mtu = 1500", 3, "belongs to kind = \"udp\""),
            ("ring:2", "memory:2", 7, "ring:N"),
        ],
    );
    let twice = HOST[HOST.find("[[slot]]").unwrap()..].to_owned();
    let error = parse::<HostFile>(&format!("{HOST}{twice}"), &plain()).unwrap_err();
    assert!(format!("{error:#}").contains("line 10"), "{error:#}");
}
