//! `sim rdma`: two RNICs, many seeds or one.

use std::panic::catch_unwind;

use clap::Args;
use etherslot_sim::rdma::{Plan, Report, run};

#[derive(Args)]
pub(crate) struct RdmaArguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Operations of each side in each life of the session.
    #[arg(long, default_value_t = 300)]
    operations: u64,
}

impl RdmaArguments {
    pub(crate) fn execute(self) -> bool {
        let Self { seeds, from, operations } = self;
        let mut failed = 0;
        let mut sum = Report::default();
        for seed in from..from.saturating_add(seeds) {
            let plan = Plan { operations, ..Plan::of(seed) };
            let report = catch_unwind(|| run(&plan)).unwrap_or_else(|_| Report {
                violation: Some("it panicked".to_owned()),
                ..Report::default()
            });
            if let Some(violation) = &report.violation {
                println!("FAILED seed {seed}: {violation}");
                println!("  replay: ./run sim rdma --from {seed} --seeds 1 --operations {operations}");
                failed += 1;
            }
            sum.completed += report.completed;
            sum.flushed += report.flushed;
            sum.checked_bytes += report.checked_bytes;
            sum.lost += report.lost;
            sum.not_ready += report.not_ready;
            sum.virtual_ns += report.virtual_ns;
        }
        println!(
            "rdma: {seeds} seeds, {failed} failed; {} operations done, {} ended by deaths, {} MiB checked, {} frames \
             lost, {} times not ready, {} virtual ms",
            sum.completed,
            sum.flushed,
            sum.checked_bytes >> 20,
            sum.lost,
            sum.not_ready,
            sum.virtual_ns / 1_000_000
        );
        failed == 0
    }
}
