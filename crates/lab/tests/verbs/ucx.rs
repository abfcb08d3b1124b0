//! UCX, which MPI and others use verbs through.

use etherslot_lab::ensure_programs;

use crate::Story;
use crate::place::{Place, Port, Report, words};

/// UCX's own port.
const PORT: u16 = 13337;

/// What an application sees of UCX (UCP), over each of these transports. No other device may serve in its place.
const TRANSPORTS: &[&str] = &["rc_verbs,ud_verbs", "ud_verbs"];
const TESTS: &[&str] = &[
    "tag_lat -s 65536",
    "tag_bw -s 1048576",
    "tag_sync_lat -s 8",
    "tag_sync_bw -s 65536",
    "ucp_put_lat -s 8",
    "ucp_put_bw -s 65536",
    "ucp_get -s 4096",
    "ucp_add -s 8",
    "ucp_fadd -s 8",
    "ucp_swap -s 8",
    "ucp_cswap -s 8",
    "stream_lat -s 4096",
    "stream_bw -s 65536",
    "ucp_am_lat -s 8",
    "ucp_am_bw -s 65536",
    "tag_lat -s 4096 -U -e",
    "tag_lat -s 4096 -E sleep",
    "tag_bw -s 65536 -E sleep",
];

/// The transports themselves (UCT).
const TRANSPORT_TESTS: &[&str] = &[
    "-x rc_verbs -t am_lat -s 8",
    "-x rc_verbs -t am_bw -s 4096 -D zcopy",
    "-x rc_verbs -t put_lat -s 8",
    "-x rc_verbs -t put_bw -s 65536 -D zcopy",
    "-x rc_verbs -t get -s 65536 -D zcopy",
    "-x ud_verbs -t am_lat -s 8",
    "-x ud_verbs -t am_bw -s 1024 -D bcopy",
];

/// Runs all.
fn run(place: &Place, report: &mut Report, pair: impl Fn(&Place, &str, &str) -> Result<String, String>) {
    for transport in TRANSPORTS {
        let server = format!("env UCX_TLS={transport} UCX_NET_DEVICES=etherslot0:1 ucx_perftest -w 20");
        for test in TESTS {
            let client = format!("{server} -n 100 -t {test}");
            report.tell(&format!("ucx_perftest -t {test}, {transport}"), pair(place, &server, &client));
        }
    }
    for test in TRANSPORT_TESTS {
        let program = format!("ucx_perftest -d etherslot0:1 -w 20 -n 100 {test}");
        report.tell(&program, pair(place, &program, &program));
    }
}

/// A program on a terminal, for whom one more argument may follow: a client's address.
fn on_terminal(line: &str) -> [&str; 4] {
    ["sh", "-c", "exec env SHELL=/bin/sh script --quiet --return --command \"$0 $1\" /dev/null", line]
}

/// The same on a terminal each: without one, `ucx_perftest` of Debian 13 is an MPI program.
pub(crate) fn run_on_terminals(place: &Place, report: &mut Report) {
    run(place, report, |place, server, client| place.pair(&on_terminal(server), &on_terminal(client), PORT));
}

/// The port of a server of ours.
const SERVER_PORT: u16 = 7998;

#[test]
#[ignore = "needs root: ./run test verbs"]
fn ucx_connects_by_rdma_cm() {
    let story = Story::begin();
    ensure_programs(&[("ucx_info", "ucx-utils")]).unwrap();
    let (place, mut report) = (Place::cable(), Report::default());
    let program = place.compile("ucp", &["-lucp", "-lucs"]);
    for transport in TRANSPORTS {
        let set =
            format!("UCX_TLS={transport} UCX_NET_DEVICES=etherslot0:1 UCX_SOCKADDR_TLS_PRIORITY=rdmacm");
        let line = format!("env {set} {program} {SERVER_PORT}");
        let result = place.pair(&words(&line), &words(&line), Port::Connections(SERVER_PORT));
        report.tell(&format!("ucp, {transport}"), result);
    }
    report.end(&place);
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn ucx_runs_over_reliable_connections_and_over_datagrams() {
    let story = Story::begin();
    ensure_programs(&[("ucx_perftest", "ucx-utils")]).unwrap();
    let (place, mut report) = (Place::cable(), Report::default());
    run(&place, &mut report, |place, server, client| place.pair(&words(server), &words(client), PORT));
    report.end(&place);
    story.tell("done");
}
