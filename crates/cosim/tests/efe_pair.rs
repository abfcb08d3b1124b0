//! EFE in hardware against itself: what a full frame costs, in clocks.

use std::collections::VecDeque;
use std::path::PathBuf;

use etherslot_cosim::Efe;

const FRAMES: usize = 400;
/// A full body of a session of 1500-byte frames; with header and check 182 beats of 8 bytes.
const BODY: usize = 1404;
const BEATS: u64 = (48 + BODY as u64 + 4) / 8;
/// The clocks that it takes on a wire of 8 bytes a clock, with preamble, Ethernet header, FCS and gap.
const SLOT: u64 = (48 + BODY as u64 + 4 + 38).div_ceil(8);
/// Clocks between a frame's end at one side and its beginning at the other.
const DELAY: u64 = 250;

fn body(place: usize) -> Vec<u8> {
    let mut body: Vec<u8> = (0..BODY).map(|at| (at * 7 + place * 13) as u8).collect();
    body[0..8].copy_from_slice(&[0x05, 0x74, 1, 3, 0, 1, (place >> 8) as u8, place as u8]);
    body
}

#[test]
#[ignore = "needs a Verilator model: ./run rtl cosim"]
fn full_frames_fill_the_wire_and_none_is_dropped() {
    let path: PathBuf = std::env::var_os("ETHERSLOT_COSIM_EFE").expect("set by ./run rtl cosim").into();
    let mut sides = [1, 2].map(|seed| Efe::load(&path, seed, [seed as u8; 16]).expect("a model"));
    sides[0].open(false, false, 0x0a0b_0c0d);
    sides[1].open(true, false, 0x0102_0304);
    let mut flying: [VecDeque<(u64, Vec<u8>)>; 2] = Default::default();
    let mut free = [0_u64; 2];
    let (mut clock, mut sent, mut came, mut begin) = (0_u64, 0, 0, 0);
    while came < FRAMES {
        for at in 0..2 {
            if let Some(frame) = sides[at].clock() {
                free[at] = free[at].max(clock) + (frame.len() as u64 + 38).div_ceil(8);
                flying[1 - at].push_back((free[at] + DELAY, frame));
            }
            while flying[at].front().is_some_and(|(when, _)| *when <= clock) {
                let frame = flying[at].pop_front().expect("looked at").1;
                sides[at].land(frame);
            }
        }
        if sides[0].is_up() && sides[1].is_up() && sent < FRAMES && sides[1].waiting() < 2 {
            sides[1].send(body(sent));
            sent += 1;
        }
        while let Some(got) = sides[0].bodies.pop_front() {
            assert!(got == body(came), "body {came}");
            came += 1;
            // The window has opened by then.
            if came == FRAMES / 2 {
                begin = clock;
            }
        }
        clock += 1;
        assert!(clock < 2_000_000, "{came} came: {:?} {:?}", sides[0].stats(), sides[1].stats());
    }
    let clocks = (clock - begin) / (FRAMES / 2) as u64;
    println!("{clocks} clocks a full frame of {BEATS} beats, {SLOT} on the wire");
    assert_eq!((sides[0].stats().full, sides[1].stats().again), (0, 0), "the receiver keeps up");
    assert!(clocks <= SLOT, "{clocks} clocks a frame");
}
