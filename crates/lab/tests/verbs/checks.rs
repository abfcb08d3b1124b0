//! What verbs promise, by a C program of ours (`checks.c`) that is compiled with Debian's header.

use etherslot_lab::Side;

use crate::Story;
use crate::place::{PATIENCE, Place};

#[test]
#[ignore = "needs root: ./run test verbs"]
fn rules_of_verbs_hold() {
    let story = Story::begin();
    let place = Place::loopback();
    let program = place.compile("checks", &["-libverbs"]);
    story.tell("compiled");
    let mut process = place.start(Side::Host, &[&program]);
    let status = process.wait(3 * PATIENCE).unwrap();
    println!("{}", process.log());
    assert!(status.success(), "{}", process.log());
    story.tell("done");
}
