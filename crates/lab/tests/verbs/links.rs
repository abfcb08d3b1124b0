//! The same programs over other links than UDP: raw Ethernet by two ways of the kernel, and shared memory.

use std::fs;
use std::os::unix::fs::chown;

use etherslot_lab::{INTERFACE, Side};

use crate::Story;
use crate::connections;
use crate::place::{NOBODY, PATIENCE, Place, Report, words};
use crate::programs::PORT;

/// `-c` of the pingpongs compares every buffer, `-V` of rping, among the connected ones, as well.
const PROGRAMS: &[&str] = &[
    "ibv_rc_pingpong -g 0 -c",
    "ibv_rc_pingpong -g 0 -c -e -s 1000000 -n 30",
    "ibv_ud_pingpong -g 0 -c",
    "ibv_srq_pingpong -g 0 -c -e",
    "ib_write_bw -n 20 -a",
    "ib_read_bw -n 100 -q 8",
    "ib_send_lat -n 100 -e",
    "ib_atomic_lat -n 100",
];
/// How many of the connected programs.
const CONNECTED: usize = 6;

/// What nobody needs for a socket of each kind; XDP's programs and memory have rules of their own.
const PACKET: &str = "+net_raw";
const XDP: &str = "+net_raw,+net_admin,+bpf,+ipc_lock";

fn run(place: &Place, link: &str, report: &mut Report) {
    println!("{link}:");
    for program in PROGRAMS {
        report.tell(&format!("{program}, {link}"), place.pair(&words(program), &words(program), PORT));
    }
    connections::run(place, report, CONNECTED);
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn programs_run_on_raw_ethernet() {
    let story = Story::begin();
    let (mut place, mut report) = (Place::cable(), Report::default());
    for (link, capabilities) in
        [(format!("packet:{INTERFACE}"), PACKET), (format!("xdp:{INTERFACE},mode=generic"), XDP)]
    {
        place.set_link(&link, capabilities);
        run(&place, &link, &mut report);
    }
    report.end(&place);
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn programs_of_debian_13_run_on_raw_ethernet() {
    let story = Story::begin();
    let (mut place, mut report) = (Place::cable_of_13(), Report::default());
    let link = format!("packet:{INTERFACE}");
    place.set_link(&link, PACKET);
    run(&place, &link, &mut report);
    report.end(&place);
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn programs_of_one_machine_run_in_shared_memory() {
    let story = Story::begin();
    let (mut place, mut report) = (Place::loopback(), Report::default());
    let hub = place.path("hub");
    fs::create_dir(&hub).unwrap();
    let nobody = NOBODY.parse().ok();
    chown(&hub, nobody, nobody).unwrap();
    let link = format!("ring:{}", hub.display());
    place.set_link(&link, "");
    run(&place, &link, &mut report);
    // A process with itself, too.
    let program = place.compile("checks", &["-libverbs"]);
    let mut process = place.start(Side::Host, &[&program]);
    let status = process.wait(3 * PATIENCE).unwrap();
    report.tell("checks, ring", if status.success() { Ok(()) } else { Err(process.log()) });
    report.end(&place);
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn a_link_that_cannot_be_had_says_why() {
    let story = Story::begin();
    let mut place = Place::cable();
    let link = format!("packet:{INTERFACE}");
    for (link, capabilities, reason) in [
        ("floppy:0", "", "packet:INTERFACE"),
        (link.as_str(), "", "CAP_NET_RAW"),
        ("packet:es77", PACKET, "has no IPv4 address"),
        ("ring:/proc/hub", "", "/proc/hub"),
    ] {
        place.set_link(link, capabilities);
        let mut process = place.start(Side::Host, &["ibv_devinfo"]);
        let status = process.wait(PATIENCE).unwrap();
        let log = process.log();
        assert!(!status.success() && log.contains(reason), "{link}: {status}\n{log}");
    }
    // On Ethernet one process has an interface.
    place.set_link(&link, PACKET);
    let first = ["ibv_rc_pingpong", "-g", "0"];
    let mut waiting = place.start(Side::Host, &first);
    waiting.wait_until("that it listens", PATIENCE, |process| process.listens_at(PORT)).unwrap();
    let mut second = place.start(Side::Host, &["ibv_devinfo"]);
    let status = second.wait(PATIENCE).unwrap();
    assert!(
        !status.success() && second.log().contains("another process has the interface"),
        "{}",
        second.log()
    );
    waiting.kill();
    let mut third = place.start(Side::Host, &["ibv_devinfo"]);
    assert!(third.wait(PATIENCE).unwrap().success(), "{}", third.log());
    story.tell("done");
}
