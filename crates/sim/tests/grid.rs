//! The grid's own model: what an ideal network and an ideal sender come to, and that runs repeat.

use etherslot_sim::grid::{CONTENDERS, Cell, Contender, Faults, Load, Loss, contender, run};

/// One that takes all it can get.
fn greedy() -> Contender {
    contender("reno-rack").expect("a contender")
}

#[test]
fn an_ideal_sender_gets_all_that_the_link_carries() {
    for record_bytes in [64, 272, 1024, 4112] {
        for frame_bytes in [1500, 9000] {
            let cell = Cell { fan_in: 1, record_bytes, frame_bytes, ..Cell::default() };
            let outcome = run(&cell, &greedy(), 1, None);
            let goodput = outcome.mean_goodput();
            assert!(goodput > 0.995, "{record_bytes} bytes in frames of {frame_bytes}: {goodput}");
            assert_eq!((outcome.dropped, outcome.violations.total(), outcome.dead), (0, 0, 0));
        }
    }
}

#[test]
fn half_a_load_has_the_latency_of_an_idle_link() {
    let cell = Cell { load: Load::Open { percent: 30 }, fan_in: 1, ..Cell::default() };
    let outcome = run(&cell, &greedy(), 1, None);
    let one_way_ns = cell.base_rtt_ns() / 2;
    let median_ns = outcome.latency_ns(0.5);
    assert!((one_way_ns - 250..one_way_ns + 250).contains(&median_ns), "{median_ns} of {one_way_ns}");
    assert!((0.27..0.33).contains(&outcome.mean_goodput()), "{}", outcome.mean_goodput());
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_another() {
    let faults = Faults {
        loss: Loss::Ppm(10_000),
        reorder_ppm: 10_000,
        reorder_ns: 4_000,
        duplicate_ppm: 10_000,
        corrupt_ppm: 1_000,
        jitter_ns: 500,
    };
    let cell = Cell { faults, ..Cell::default() };
    for contender in CONTENDERS {
        let runs: Vec<_> = [1, 1, 2].map(|seed| run(&cell, contender, seed, None)).into();
        assert_eq!((runs[0].hash, runs[0].frames), (runs[1].hash, runs[1].frames), "{}", contender.name);
        assert_ne!(runs[0].hash, runs[2].hash, "{}", contender.name);
        for run in runs {
            assert_eq!((run.violations.total(), run.dead), (0, 0), "{}", contender.name);
        }
    }
}

#[test]
fn a_new_life_of_a_sender_begins_anew_and_in_order() {
    let cell = Cell { restarts: true, ..Cell::default() };
    let outcome = run(&cell, &greedy(), 3, None);
    assert_eq!((outcome.violations.total(), outcome.dead), (0, 0));
    assert!(outcome.mean_goodput() > 0.9, "{}", outcome.mean_goodput());
}

#[test]
fn an_incast_that_fits_the_buffer_takes_little_more_than_its_bytes() {
    let cell = Cell { fan_in: 16, load: Load::Incast { bytes: 16 << 10 }, ..Cell::default() };
    let outcome = run(&cell, &greedy(), 1, None);
    let permille = outcome.completion_permille(0.5);
    assert!((990..1300).contains(&permille), "{permille}");
}

#[test]
fn requests_beside_no_bulk_take_a_round_trip() {
    let cell = Cell { fan_in: 1, load: Load::Mixed { is_loaded: false }, ..Cell::default() };
    let outcome = run(&cell, &greedy(), 1, None);
    assert!(outcome.round_trip_ns(0.99) <= cell.base_rtt_ns() + 100, "{}", outcome.round_trip_ns(0.99));
}
