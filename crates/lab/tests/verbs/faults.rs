//! Programs on a bad link, and beside a peer that dies.

use std::time::Duration;

use etherslot_lab::Side;

use crate::Story;
use crate::place::Place;
use crate::programs::PORT;

/// How long a program may take to hear that its peer is dead: silence of 3 to 4 s, and a busy machine.
const BOUND: Duration = Duration::from_secs(30);

/// `-c` compares every buffer.
const PROGRAMS: &[&str] = &[
    "ibv_rc_pingpong -g 0 -c -n 300",
    "ibv_rc_pingpong -g 0 -c -s 1000000 -n 10",
    "ibv_srq_pingpong -g 0 -c -n 300 -e",
    "ib_read_bw -n 50",
    "ib_atomic_lat -n 100",
];

#[test]
#[ignore = "needs root: ./run test verbs"]
fn data_arrive_whole_where_one_and_five_packets_of_a_hundred_are_lost() {
    let story = Story::begin();
    let place = Place::cable();
    for per_million in [10_000, 50_000] {
        place.lose(per_million);
        for program in PROGRAMS {
            let words: Vec<&str> = program.split(' ').collect();
            let result = place.pair(&words, &words, PORT);
            let percent = per_million / 10_000;
            println!("{program}, {percent} % lost {}", if result.is_ok() { "ok" } else { "FAILED" });
            result.unwrap();
        }
        story.tell(format_args!("with {per_million} of a million lost"));
    }
}

#[test]
#[ignore = "needs root: ./run test verbs"]
fn work_ends_with_an_error_in_bounded_time_when_the_peer_is_killed() {
    let story = Story::begin();
    let place = Place::cable();
    for program in ["ib_write_bw -n 100000000", "ib_read_bw -n 100000000", "ib_send_bw -n 100000000"] {
        let words: Vec<&str> = program.split(' ').collect();
        let (mut serving, mut asking) = place.begin(&words, &words, PORT).unwrap();
        // It says nothing before its end.
        std::thread::sleep(Duration::from_secs(2));
        assert!(asking.is_running(), "{}", asking.log());
        serving.kill();
        let status = asking.wait(BOUND).unwrap();
        let log = asking.log();
        // 12 is `transport retry counter exceeded`.
        assert!(!status.success() && log.contains("Failed status 12"), "{program}: {status}\n{log}");
        println!("{program}, killed peer ok");
    }
    // Its slots are free again.
    let mut process = place.start(Side::Box, &["ibv_devinfo"]);
    assert!(process.wait(BOUND).unwrap().success());
    story.tell("done");
}
