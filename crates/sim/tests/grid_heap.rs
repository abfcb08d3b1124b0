//! A run of the grid takes its memory at the beginning.

use etherslot_sim::grid::{Cell, Faults, Loss, contender, run};

#[test]
fn frames_and_events_are_not_allocated() {
    let faults =
        Faults { loss: Loss::Ppm(10_000), reorder_ppm: 10_000, reorder_ns: 8_000, ..Faults::default() };
    let cell = Cell { faults, ..Cell::default() };
    let efe = contender("efe").expect("a contender");
    let mut frames = 0;
    let heap = allocation_counter::measure(|| frames = run(&cell, &efe, 1, None).frames);
    assert!(frames > 30_000, "{frames}");
    assert!(heap.count_total < frames / 20, "{} allocations, {frames} frames", heap.count_total);
}
