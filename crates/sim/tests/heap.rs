//! Nothing grows: the peak of the heap of whole runs, with all of their nodes, guests and media.

use etherslot_sim::{Scenario, run};

/// A guest has 6 MiB of memory, a device up to 5 MiB of buffers, a session under 5 MiB; there are five of each at most.
const MOST_BYTES: u64 = 160 << 20;

#[test]
fn runs_stay_within_what_their_nodes_have_at_start() {
    for scenario in [Scenario::Hostile, Scenario::Swarm] {
        for seed in 1..=8 {
            let heap = allocation_counter::measure(|| {
                run(seed, scenario, false);
            });
            println!("{scenario} {seed}: {} bytes at most", heap.bytes_max);
            assert!(heap.bytes_max < MOST_BYTES, "seed {seed} scenario {scenario}: {} bytes", heap.bytes_max);
            assert_eq!(heap.bytes_current, 0, "seed {seed} scenario {scenario} leaks");
        }
    }
}
