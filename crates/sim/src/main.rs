//! `sim`: runs seeds of the simulator, and replays one; runs the grid of the sessions.

mod direct_command;
mod fabric_command;
mod grid_command;
mod rdma_command;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use clap::{Parser, Subcommand};
use direct_command::DirectArguments;
use fabric_command::FabricArguments;
use grid_command::{CellArguments, GridArguments, check};
use rdma_command::RdmaArguments;

use etherslot_sim::{Devices, Report, Scenario, run_of};

#[derive(Parser)]
#[command(
    name = "sim",
    about = "Runs hosts, boxes and a faulty network in virtual time, from seeds",
    version,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
struct Arguments {
    /// Run what covers every bar of the grid of sessions; print a line each: name, value, bar, ok or short.
    #[arg(long)]
    check: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Run many seeds; print the first failures with the commands that replay them.
    Run {
        /// How many seeds.
        #[arg(long, default_value_t = 1000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Threads.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Which scenario; without it, each seed takes its turn of all of them.
        #[arg(long)]
        scenario: Option<Scenario>,
        /// What the devices are.
        #[arg(long, default_value_t = Devices::Nvme)]
        devices: Devices,
        /// Failures after which to stop.
        #[arg(long, default_value_t = 5)]
        failures: u64,
    },
    /// Run one seed, twice, and show what came of it.
    Replay {
        /// The seed.
        seed: u64,
        /// Which scenario.
        #[arg(long)]
        scenario: Scenario,
        /// What the devices are.
        #[arg(long, default_value_t = Devices::Nvme)]
        devices: Devices,
        /// Print every event on standard error.
        #[arg(long)]
        trace: bool,
    },
    /// Run one cell of the grid of sessions.
    Cell(Box<CellArguments>),
    /// Run the grid of sessions.
    Grid(GridArguments),
    /// Run a large fabric: heartbeats, moves, the restart of a switch.
    Fabric(FabricArguments),
    /// Run two RNICs over a session that loses frames, and dies.
    Rdma(RdmaArguments),
    /// Copy between disks in boxes, past the host, while nodes die and come back.
    Direct(DirectArguments),
}

/// Four in ten of the seeds go to the default mix.
fn scenario_of(seed: u64) -> Scenario {
    match seed % 10 {
        0 => Scenario::Clean,
        1 => Scenario::Lossy,
        2 => Scenario::Partitions,
        3 => Scenario::Restarts,
        4 => Scenario::Hostile,
        5 => Scenario::Stranger,
        _ => Scenario::Swarm,
    }
}

fn show_failure(report: &Report) {
    if let Some(violation) = &report.violation {
        println!("FAILED seed {} scenario {}: {violation}", report.seed, report.scenario);
        let Report { seed, scenario, devices, .. } = report;
        println!("  replay: ./run sim replay {seed} --scenario {scenario} --devices {devices} --trace");
    }
}

#[derive(Default)]
struct Summary {
    seeds: u64,
    failures: u64,
    events: u64,
    frames: u64,
    virtual_ms: u64,
    commands: u64,
    troubles: u64,
}

impl Summary {
    fn add(&mut self, report: &Report) {
        self.seeds += 1;
        self.failures += u64::from(report.violation.is_some());
        self.events += report.events;
        self.frames += report.network.delivered;
        self.virtual_ms += report.virtual_ns / 1_000_000;
        self.commands += report.progress.succeeded;
        self.troubles += report.progress.troubles;
    }
}

/// Which runs.
struct Many {
    seeds: u64,
    from: u64,
    jobs: usize,
    scenario: Option<Scenario>,
    devices: Devices,
    most_failures: u64,
}

fn run_many(many: &Many) -> bool {
    let &Many { seeds, from, jobs, scenario, devices, most_failures } = many;
    let began = Instant::now();
    let next = AtomicU64::new(from);
    let end = from.saturating_add(seeds);
    let (sender, reports) = mpsc::channel();
    let mut by_scenario: BTreeMap<&str, Summary> = BTreeMap::new();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            let sender = sender.clone();
            let next = &next;
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let scenario = scenario.unwrap_or_else(|| scenario_of(seed));
                    let report = run_of(seed, scenario, devices, false);
                    if sender.send(report).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        let mut failures = 0;
        for report in reports {
            by_scenario.entry(report.scenario.name()).or_default().add(&report);
            show_failure(&report);
            failures += u64::from(report.violation.is_some());
            if failures >= most_failures {
                next.store(end, Ordering::Relaxed);
            }
        }
    });
    let mut failed = 0;
    println!(
        "{:<11} {:>6} {:>6} {:>11} {:>11} {:>10} {:>9} {:>9}",
        "scenario", "seeds", "failed", "events", "frames", "virtual s", "commands", "troubles"
    );
    for (name, sum) in &by_scenario {
        failed += sum.failures;
        println!(
            "{name:<11} {:>6} {:>6} {:>11} {:>11} {:>10} {:>9} {:>9}",
            sum.seeds,
            sum.failures,
            sum.events,
            sum.frames,
            sum.virtual_ms / 1000,
            sum.commands,
            sum.troubles
        );
    }
    println!("{:.1} s", began.elapsed().as_secs_f64());
    failed == 0
}

fn replay(seed: u64, scenario: Scenario, devices: Devices, trace: bool) -> bool {
    let report = run_of(seed, scenario, devices, trace);
    show_failure(&report);
    println!("{:?}, {:?}", report.progress, report.network);
    println!("{} events in {} virtual ns, trace hash {:016x}", report.events, report.virtual_ns, report.hash);
    let again = run_of(seed, scenario, devices, false);
    let same = again.hash == report.hash;
    if !same {
        println!("FAILED seed {seed}: a second run differs, trace hash {:016x}", again.hash);
    }
    report.violation.is_none() && same
}

/// Whether it went well; if it could not be done, why.
fn told(result: Result<bool, String>) -> bool {
    result.unwrap_or_else(|error| {
        eprintln!("sim: {error}");
        false
    })
}

fn main() -> ExitCode {
    // A panic is a violation like others; it is reported with its seed.
    std::panic::set_hook(Box::new(|panic| {
        eprintln!("{panic}");
    }));
    let arguments = Arguments::parse();
    let good = match arguments.command {
        Some(Command::Run { seeds, from, jobs, scenario, devices, failures }) => {
            run_many(&Many { seeds, from, jobs, scenario, devices, most_failures: failures })
        }
        Some(Command::Replay { seed, scenario, devices, trace }) => replay(seed, scenario, devices, trace),
        Some(Command::Cell(cell)) => told(cell.execute()),
        Some(Command::Grid(grid)) => told(grid.execute()),
        Some(Command::Fabric(fabric)) => told(fabric.execute()),
        Some(Command::Rdma(rdma)) => rdma.execute(),
        Some(Command::Direct(direct)) => direct.execute(),
        None => !arguments.check || check(),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
