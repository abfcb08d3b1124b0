//! libfabric's verbs providers: messages over connections, datagrams, and the providers that make reliable datagrams of each.

use crate::Story;
use crate::place::{Place, Report, words};

/// Where the server listens for what both agree on.
const PORT: u16 = 47592;

/// `-c` compares every buffer.
const PROGRAMS: &[&str] = &[
    "fi_pingpong -p verbs -e msg -c -I 100",
    "fi_pingpong -p verbs -e msg -c -S 1048576 -I 30",
    "fi_pingpong -p verbs -e dgram -c -I 100",
    "fi_pingpong -p verbs;ofi_rxd -e rdm -c -I 100",
    "fi_pingpong -p verbs;ofi_rxm -e rdm -c -I 100",
    "fi_pingpong -p verbs;ofi_rxm -e rdm -c -S 1048576 -I 30",
];

/// Runs all.
pub(crate) fn run(place: &Place, report: &mut Report) {
    for program in PROGRAMS {
        report.tell(program, place.pair(&words(program), &words(program), PORT));
    }
}

fn run_at(place: &Place) {
    let mut report = Report::default();
    etherslot_lab::ensure_programs(&[("fi_pingpong", "libfabric-bin")]).unwrap();
    run(place, &mut report);
    report.end(place);
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn libfabric_runs_as_nobody_on_loopback() {
    let story = Story::begin();
    run_at(&Place::loopback());
    story.tell("done");
}

/// The port of a program of ours, and the provider whose endpoints it has.
const OWN_PORT: u16 = 7997;
const PROVIDER: &str = "verbs;ofi_rxm";

#[test]
#[ignore = "needs root: ./run test verbs"]
fn tags_remote_memory_and_atomics_of_libfabric_work() {
    let story = Story::begin();
    let (place, mut report) = (Place::cable(), Report::default());
    let program = place.compile("fabric", &["-lfabric"]);
    let program = [program.as_str(), PROVIDER];
    report.tell(&program.join(" "), place.pair(&program, &program, OWN_PORT));
    report.end(&place);
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn libfabric_runs_as_nobody_between_two_namespaces() {
    let story = Story::begin();
    run_at(&Place::cable());
    story.tell("done");
}
