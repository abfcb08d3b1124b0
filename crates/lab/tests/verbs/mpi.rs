//! An MPI program of ours (`mpi.c`), by Debian's Open MPI through UCX. It compares what it gets.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::process::Command;

use etherslot_lab::{BOX_IP, HOST_IP, Process, Side, ensure_programs};

use crate::Story;
use crate::place::{NOBODY, PATIENCE, Place};

/// By which the program is made and run.
const PROGRAMS: &[(&str, &str)] = &[(MPIRUN, "openmpi-bin"), ("mpicc", "libopenmpi-dev"), ("gcc", "gcc")];
const TRANSPORTS: &[&str] = &["rc_verbs,ud_verbs,self", "ud_verbs,self"];
/// What Debian calls it when no other MPI is installed.
const MPIRUN: &str = "mpirun.openmpi";
/// What the program says when all of its checks hold.
const LAST: &str = "one_sided ok";

/// The way of mpirun to another node, which is the box's namespace: `agent ADDRESS COMMAND…`. Another host has another name.
const AGENT: &str = r#"#!/bin/sh
touch "$(dirname "$0")/home/reached"
shift
exec nsenter --net=/run/netns/NAMESPACE unshare --uts sh -c "hostname other; exec setpriv --ambient-caps -all --inh-caps -all sh -c '$*'"
"#;

/// Compiles the program, and makes a folder that nobody may write in.
fn prepare(place: &Place) {
    ensure_programs(PROGRAMS).unwrap();
    let status = Command::new("mpicc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(place.path("mpi"))
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs/mpi.c"))
        .status()
        .expect("mpicc");
    assert!(status.success(), "mpi.c needs libopenmpi-dev");
    fs::create_dir(place.path("home")).unwrap();
    let nobody = NOBODY.parse().expect("a number");
    chown(place.path("home"), Some(nobody), Some(nobody)).unwrap();
}

/// mpirun over a transport of UCX, with these options.
fn words(place: &Place, transport: &str, options: &[String]) -> Vec<String> {
    let home = place.inside("home").display().to_string();
    let set = [format!("HOME={home}"), format!("TMPDIR={home}"), format!("UCX_TLS={transport}")];
    let pml = [MPIRUN, "--mca", "pml", "ucx", "--mca", "osc", "ucx", "--oversubscribe", "-np", "4"];
    let mut words = vec!["env".to_owned()];
    words.extend(set);
    words.push("UCX_NET_DEVICES=etherslot0:1".to_owned());
    words.extend(pml.map(str::to_owned));
    words.extend_from_slice(options);
    words.push(place.inside("mpi").display().to_string());
    words
}

fn wait(mut process: Process, what: &str) {
    let status = process.wait(PATIENCE).unwrap();
    let log = process.log();
    assert!(status.success() && log.contains(LAST), "{what}: {status}\n{log}");
    println!("mpirun, {what} ok");
}

/// Runs it on one node.
pub(crate) fn run(place: &Place) {
    prepare(place);
    for transport in TRANSPORTS {
        let words = words(place, transport, &[]);
        wait(place.start(Side::Host, &words.iter().map(String::as_str).collect::<Vec<_>>()), transport);
    }
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn mpi_runs_as_nobody_on_loopback() {
    let story = Story::begin();
    run(&Place::loopback());
    story.tell("done");
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn mpi_runs_as_nobody_between_two_namespaces() {
    let story = Story::begin();
    let place = Place::cable();
    prepare(&place);
    let agent = place.path("agent");
    fs::write(&agent, AGENT.replace("NAMESPACE", place.namespace(Side::Box).expect("a cable"))).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    let hosts = format!("{HOST_IP}:2,{BOX_IP}:2");
    let agent = agent.display().to_string();
    let mut options = ["--host", &hosts, "--mca", "plm_rsh_agent", &agent].map(str::to_owned).to_vec();
    for variable in ["LD_LIBRARY_PATH", "LD_PRELOAD", "UCX_TLS", "UCX_NET_DEVICES"] {
        options.extend(["-x", variable].map(str::to_owned));
    }
    for transport in TRANSPORTS {
        let words = words(&place, transport, &options);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        // To enter the other namespace takes more than nobody may.
        let process = place.start_with(
            Side::Host,
            &["--inh-caps", "+sys_admin", "--ambient-caps", "+sys_admin"],
            &words,
        );
        wait(process, &format!("{transport}, two nodes"));
        fs::remove_file(place.path("home").join("reached")).expect("mpirun was at the other node");
    }
    story.tell("done");
}
