//! Programs that are connected by `librdmacm`.

use std::time::Duration;

use etherslot_lab::Side;

use crate::Story;
use crate::place::{PATIENCE, Place, Port, Report, words};

/// Ports of the programs of rdmacm-utils, and of perftest.
const PORT: u16 = 7471;
const RPING_PORT: u16 = 7174;
const PERFTEST_PORT: u16 = 18515;

/// Of our programs.
const LIBRARIES: &[&str] = &["-lrdmacm", "-libverbs"];

/// How long a program may take to hear that its peer is dead: silence of 3 to 4 s, and a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// Server, client (whose last argument is the server's address), and the server's port. `-V` of rping compares data.
const PAIRS: &[(&str, &str, u16)] = &[
    ("rping -s -V -C 100", "rping -c -V -C 100 -a", RPING_PORT),
    ("rping -s -V -C 100 -S 60000", "rping -c -V -C 100 -S 60000 -a", RPING_PORT),
    ("ucmatose", "ucmatose -s", PORT),
    ("ucmatose -c 100 -C 20 -S 4096 -t 4", "ucmatose -c 100 -C 20 -S 4096 -t 4 -s", PORT),
    ("ucmatose -c 5 -m", "ucmatose -c 5 -m -s", PORT),
    ("rdma_server", "rdma_client -s", PORT),
    ("udaddy", "udaddy -s", RPING_PORT),
    ("udaddy -c 20 -C 50", "udaddy -c 20 -C 50 -s", RPING_PORT),
    ("ib_write_bw -R -n 200", "ib_write_bw -R -n 200", PERFTEST_PORT),
    ("ib_write_bw -R -n 100 -q 4", "ib_write_bw -R -n 100 -q 4", PERFTEST_PORT),
    ("ib_write_bw -R -n 20 -a", "ib_write_bw -R -n 20 -a", PERFTEST_PORT),
    ("ib_write_lat -R -n 100", "ib_write_lat -R -n 100", PERFTEST_PORT),
    ("ib_read_bw -R -n 100", "ib_read_bw -R -n 100", PERFTEST_PORT),
    ("ib_read_lat -R -n 100", "ib_read_lat -R -n 100", PERFTEST_PORT),
    ("ib_send_bw -R -n 100", "ib_send_bw -R -n 100", PERFTEST_PORT),
    ("ib_send_bw -R -n 100 -e -q 8", "ib_send_bw -R -n 100 -e -q 8", PERFTEST_PORT),
    ("ib_send_lat -R -n 100", "ib_send_lat -R -n 100", PERFTEST_PORT),
    ("ib_send_bw -R -n 100 -c UD", "ib_send_bw -R -n 100 -c UD", PERFTEST_PORT),
    ("ib_atomic_bw -R -n 100", "ib_atomic_bw -R -n 100", PERFTEST_PORT),
    ("ib_atomic_lat -R -n 100", "ib_atomic_lat -R -n 100", PERFTEST_PORT),
];

/// Runs the first so many, or all that there are.
pub(crate) fn run(place: &Place, report: &mut Report, most: usize) {
    for (server, client, port) in &PAIRS[..most.min(PAIRS.len())] {
        report.tell(client, place.pair(&words(server), &words(client), Port::Connections(*port)));
    }
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn connected_programs_run_unmodified_as_nobody_on_loopback() {
    let story = Story::begin();
    let (place, mut report) = (Place::loopback(), Report::default());
    run(&place, &mut report, usize::MAX);
    report.end(&place);
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn connected_programs_run_unmodified_as_nobody_between_two_namespaces() {
    let story = Story::begin();
    let (place, mut report) = (Place::cable(), Report::default());
    run(&place, &mut report, usize::MAX);
    place.lose(10_000);
    run(&place, &mut report, 3);
    report.end(&place);
    story.tell("done, also with one packet of a hundred lost");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn a_port_is_of_one_process_and_who_asks_elsewhere_is_refused() {
    let story = Story::begin();
    let place = Place::loopback();
    let client = ["rping", "-c", "-C", "1", "-a", place.ip(Side::Box)];
    let mut refused = place.start(Side::Host, &client);
    let status = refused.wait(PATIENCE).unwrap();
    assert!(
        !status.success() && refused.log().contains("RDMA_CM_EVENT_REJECTED, error 8"),
        "{}",
        refused.log()
    );
    // Another port than the one that somebody listens at, of which a second server is told, and a first client not.
    let (mut serving, mut asking) = place
        .begin(
            &["rping", "-s", "-C", "1"],
            &["rping", "-p", "7175", "-c", "-C", "1", "-a"],
            Port::Connections(RPING_PORT),
        )
        .unwrap();
    let status = asking.wait(PATIENCE).unwrap();
    assert!(
        !status.success() && asking.log().contains("RDMA_CM_EVENT_REJECTED, error 8"),
        "{}",
        asking.log()
    );
    let mut second = place.start(Side::Box, &["rping", "-s", "-C", "1"]);
    let status = second.wait(PATIENCE).unwrap();
    assert!(!status.success() && second.log().contains("Address already in use"), "{}", second.log());
    let mut asking = place.start(Side::Host, &client);
    assert!(asking.wait(PATIENCE).unwrap().success() && serving.wait(PATIENCE).unwrap().success());
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn a_connection_ends_in_bounded_time_when_the_peer_is_killed() {
    let story = Story::begin();
    let place = Place::cable();
    let (mut serving, mut asking) = place
        .begin(&["rping", "-s"], &["rping", "-c", "-C", "100000000", "-a"], Port::Connections(RPING_PORT))
        .unwrap();
    // It says nothing before its end.
    std::thread::sleep(Duration::from_secs(2));
    assert!(asking.is_running(), "{}", asking.log());
    serving.kill();
    asking.wait(BOUND).unwrap();
    // One thread of it takes completions and another events, and it ends as soon as either has told it: of a Work Request that
    // nobody acknowledged, or of the connection's end.
    let log = asking.log();
    assert!(log.contains("DISCONNECT EVENT") || log.contains("cq completion failed status 12"), "{log}");
    // Its port is free again.
    place.pair(&words("rping -s -C 5"), &words("rping -c -C 5 -a"), Port::Connections(RPING_PORT)).unwrap();
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn ten_thousand_connections_leave_nothing_on_either_side() {
    let story = Story::begin();
    let place = Place::cable();
    let program = place.compile("many", LIBRARIES);
    let words = [program.as_str(), "10000"];
    let log = place.pair_within(4 * PATIENCE, &words, &words, Port::Connections(7999)).unwrap();
    println!("many 10000 ok: {}", log.trim());
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn a_target_that_sleeps_in_the_kernel_is_written_and_read_and_counted_in() {
    let story = Story::begin();
    let place = Place::cable();
    let program = place.compile("passive", LIBRARIES);
    let log = place.pair(&[&program], &[&program], Port::Connections(7996)).unwrap();
    println!("passive ok: {}", log.trim());
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn rules_of_connections_hold() {
    let story = Story::begin();
    let place = Place::loopback();
    let program = place.compile("connections", LIBRARIES);
    story.tell("compiled");
    let mut process = place.start(Side::Host, &[&program]);
    let status = process.wait(3 * PATIENCE).unwrap();
    println!("{}", process.log());
    assert!(status.success(), "{}", process.log());
    story.tell("done");
}
