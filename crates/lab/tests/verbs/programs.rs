//! The programs, one after the other.

use etherslot_lab::Side;

use crate::Story;
use crate::place::{PATIENCE, Place, Report, words};

/// The TCP port of both pingpongs and perftest.
pub(crate) const PORT: u16 = 18515;

/// Programs that talk in pairs, with the same arguments on both sides. `-c` of the pingpongs compares every buffer.
const PAIRS: &[&str] = &[
    "ibv_rc_pingpong -g 0 -c",
    "ibv_rc_pingpong -g 0 -c -e",
    "ibv_rc_pingpong -g 0 -c -s 1000000 -n 30",
    "ibv_uc_pingpong -g 0 -c",
    "ibv_uc_pingpong -g 0 -c -e",
    "ibv_ud_pingpong -g 0 -c",
    "ibv_ud_pingpong -g 0 -c -e",
    "ibv_srq_pingpong -g 0 -c",
    "ibv_srq_pingpong -g 0 -c -e",
    "ib_write_bw -n 20 -a",
    "ib_write_bw -n 200 -q 8",
    "ib_write_bw -n 100 -b",
    "ib_write_bw -n 100 -c UC",
    "ib_write_lat -n 100",
    "ib_write_lat -n 10 -a",
    "ib_write_lat -n 100 -s 65536",
    "ib_read_bw -n 20 -a",
    "ib_read_bw -n 200 -q 8",
    "ib_read_bw -n 100 -e",
    "ib_read_lat -n 100",
    "ib_read_lat -n 10 -a",
    "ib_read_lat -n 100 -e",
    "ib_send_bw -n 20 -a",
    "ib_send_bw -n 200 -q 8",
    "ib_send_bw -n 100 -e",
    "ib_send_bw -n 100 -c UD",
    "ib_send_bw -n 20 -a -c UD",
    "ib_send_bw -n 100 -q 8 -c UD",
    "ib_send_bw -n 100 -e -c UD",
    "ib_send_bw -n 100 -c UC",
    "ib_send_bw -n 100 -r 64 --use-srq",
    "ib_send_lat -n 10 -a",
    "ib_send_lat -n 100 -e",
    "ib_send_lat -n 100 -c UD",
    "ib_send_lat -n 10 -a -c UD",
    "ib_send_lat -n 100 -e -c UD",
    "ib_send_lat -n 100 -c UC",
    "ib_atomic_bw -n 100",
    "ib_atomic_bw -n 100 -A CMP_AND_SWAP",
    "ib_atomic_bw -n 100 -q 8",
    "ib_atomic_bw -n 100 -e",
    "ib_atomic_lat -n 100",
    "ib_atomic_lat -n 100 -e",
];

/// Programs that run alone, and what they have to say.
const ALONE: &[(&str, &str)] = &[("ibv_devices", "etherslot0"), ("ibv_devinfo -v", "::ffff:")];

/// Runs all.
pub(crate) fn run(place: &Place, report: &mut Report) {
    for (program, says) in ALONE {
        let mut process = place.start(Side::Host, &words(program));
        let status = process.wait(PATIENCE).unwrap();
        let is_said = status.success() && process.log().contains(says);
        report.tell(program, if is_said { Ok(()) } else { Err(process.log()) });
    }
    for program in PAIRS {
        report.tell(program, place.pair(&words(program), &words(program), PORT));
    }
}

fn run_at(place: &Place) {
    let mut report = Report::default();
    run(place, &mut report);
    report.end(place);
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn programs_run_unmodified_as_nobody_on_loopback() {
    let story = Story::begin();
    run_at(&Place::loopback());
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn programs_run_unmodified_as_nobody_between_two_namespaces() {
    let story = Story::begin();
    run_at(&Place::cable());
    story.tell("done");
}
