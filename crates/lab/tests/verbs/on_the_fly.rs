//! Etherslot's own calls beside the verbs, by a C program of ours (`on_the_fly.c`) that is compiled with our header and linked with our library.

use std::process::Command;

use etherslot_lab::{Side, ensure_programs, etherslot_binary};

use crate::Story;
use crate::place::{PATIENCE, Place};

#[test]
#[ignore = "needs root: ./run test verbs"]
fn sends_on_the_fly_and_flags_are_a_c_programs_too() {
    let story = Story::begin();
    ensure_programs(&[("gcc", "gcc")]).unwrap();
    let place = Place::loopback();
    let program = place.path("on_the_fly");
    let status = Command::new("gcc")
        .args(["-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .args([
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/verbs/on_the_fly.c"),
            "-I",
            concat!(env!("CARGO_MANIFEST_DIR"), "/../verbs/include"),
            "-L",
        ])
        .arg(etherslot_binary().unwrap().with_file_name("verbs"))
        .arg("-l:libibverbs.so.1")
        .status()
        .expect("gcc");
    assert!(status.success(), "on_the_fly.c needs libibverbs-dev");
    story.tell("compiled");
    let mut process = place.start(Side::Host, &[program.to_str().unwrap()]);
    let status = process.wait(PATIENCE).unwrap();
    println!("{}", process.log());
    assert!(status.success(), "{}", process.log());
    story.tell("done");
}
