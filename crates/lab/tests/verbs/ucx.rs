//! UCX, which MPI and others use verbs through.

use std::path::Path;
use std::process::Command;

use etherslot_lab::ensure_programs;

use crate::Story;
use crate::place::Place;

/// UCX's own port.
const PORT: u16 = 13337;
/// It looks for this, and looks no closer.
const FOLDER: &str = "/dev/infiniband";
const NODE: &str = "/dev/infiniband/uverbs0";

/// Transports, and what is measured over each.
const TRANSPORTS: &[&str] = &["rc_verbs,ud_verbs", "ud_verbs"];
const TESTS: &[&str] =
    &["-t ucp_put_lat -s 8", "-t ucp_get -s 4096", "-t tag_lat -s 65536", "-t tag_bw -s 1048576"];

/// A character device where there is none; what was made goes again.
struct Uverbs {
    has_made_folder: bool,
    has_made_node: bool,
}

fn run(program: &str, arguments: &[&str]) {
    assert!(Command::new(program).args(arguments).status().unwrap().success(), "{program} {arguments:?}");
}

impl Uverbs {
    fn ensure() -> Self {
        let made =
            Self { has_made_folder: !Path::new(FOLDER).exists(), has_made_node: !Path::new(NODE).exists() };
        if made.has_made_folder {
            run("mkdir", &[FOLDER]);
        }
        if made.has_made_node {
            run("mknod", &["-m", "666", NODE, "c", "1", "3"]);
        }
        made
    }
}

impl Drop for Uverbs {
    fn drop(&mut self) {
        if self.has_made_node {
            let _ = std::fs::remove_file(NODE);
        }
        if self.has_made_folder {
            let _ = std::fs::remove_dir(FOLDER);
        }
    }
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn ucx_runs_over_reliable_connections_and_over_datagrams() {
    let story = Story::begin();
    ensure_programs(&[("ucx_perftest", "ucx-utils")]).unwrap();
    let _uverbs = Uverbs::ensure();
    let place = Place::cable();
    let mut failed = Vec::new();
    for transport in TRANSPORTS {
        let transports = format!("UCX_TLS={transport}");
        // No other device may serve in its place.
        let program = ["env", &transports, "UCX_NET_DEVICES=etherslot0:1", "ucx_perftest", "-w", "20"];
        for test in TESTS {
            let mut client = program.to_vec();
            client.extend(["-n", "100"].iter().copied().chain(test.split(' ')));
            let result = place.pair(&program, &client, PORT);
            println!("{transport} {test} {}", if result.is_ok() { "ok" } else { "FAILED" });
            failed.extend(result.err());
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    story.tell("done");
}
