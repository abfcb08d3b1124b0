//! What verbs promise, by a C program of ours (`checks.c`) that is compiled with Debian's header.

use std::process::Command;

use etherslot_lab::{Side, ensure_programs};

use crate::Story;
use crate::place::{PATIENCE, Place};

#[test]
#[ignore = "needs root: ./run test verbs"]
fn rules_of_verbs_hold() {
    let story = Story::begin();
    ensure_programs(&[("gcc", "gcc")]).unwrap();
    let place = Place::loopback();
    let program = place.path("checks");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs/checks.c");
    let status = Command::new("gcc")
        .args(["-Wall", "-Werror", "-O1", "-o"])
        .arg(&program)
        .args([source, "-libverbs"])
        .status()
        .expect("gcc");
    assert!(status.success(), "checks.c needs libibverbs-dev");
    story.tell("compiled");
    let mut process = place.start(Side::Host, &[program.to_str().unwrap()]);
    let status = process.wait(3 * PATIENCE).unwrap();
    println!("{}", process.log());
    assert!(status.success(), "{}", process.log());
    story.tell("done");
}
