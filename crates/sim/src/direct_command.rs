//! `sim direct`: copies between boxes, many seeds or one.

use std::panic::catch_unwind;

use clap::Args;
use etherslot_sim::direct::{Plan, Report, run};

#[derive(Args)]
pub(crate) struct DirectArguments {
    /// How many seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
}

impl DirectArguments {
    pub(crate) fn execute(&self) -> bool {
        let Self { seeds, from } = *self;
        let mut failed = 0;
        let mut sum = Report::default();
        for seed in from..from.saturating_add(seeds) {
            let report = catch_unwind(|| run(&Plan::of(seed))).unwrap_or_else(|_| Report {
                violation: Some("it panicked".to_owned()),
                ..Report::default()
            });
            if let Some(violation) = &report.violation {
                println!("FAILED seed {seed}: {violation}");
                println!("  replay: ./run sim direct --from {seed} --seeds 1");
                failed += 1;
            }
            sum.bytes += report.bytes;
            sum.far_requests += report.far_requests;
            sum.severed += report.severed;
            sum.repeated += report.repeated;
            sum.disasters += report.disasters;
            sum.lost += report.lost;
            sum.virtual_ns += report.virtual_ns;
        }
        println!(
            "direct: {seeds} seeds, {failed} failed; {} MiB copied, {} requests from box to box, {} chunks done again, {} \
             Functions severed, {} disasters, {} frames lost, {} virtual ms",
            sum.bytes >> 20,
            sum.far_requests,
            sum.repeated,
            sum.severed,
            sum.disasters,
            sum.lost,
            sum.virtual_ns / 1_000_000
        );
        failed == 0
    }
}
