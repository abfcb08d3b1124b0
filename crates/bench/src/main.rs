//! Etherslot beside its peers: the same loads on the same kind of cable, one core a side, in turn, in one run.
//!
//! A round measures every contender at every point once; a server sleeps (SIGSTOP) while others are measured. Ratios are
//! taken within a round, and their median counts: on shared cores an absolute figure means little.

// Figures have a few digits.
#![allow(clippy::cast_precision_loss)]

mod bed;
mod benchmark;
mod check;
mod contender;
mod direct;
mod evaluation;
mod guest;
mod hugepages;
mod load;
mod machine;
mod page;
mod peer;
mod rdma;
mod record;
mod runner;
mod section;
mod statistic;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;

use crate::bed::{Bed, Choices};
use crate::benchmark::{BENCHMARKS, Benchmark, Point};
use crate::page::PAGE;
use crate::record::Record;
use crate::runner::{Pace, Stop};
use crate::section::RESULTS;

/// What the contenders are made of.
const PROGRAMS: &[(&str, &str)] = &[
    ("chrt", "util-linux"),
    ("fio", "fio"),
    ("iscsi-perf", "libiscsi-bin"),
    ("nbdkit", "nbdkit"),
    ("taskset", "util-linux"),
    ("tgtadm", "tgt"),
    ("tgtd", "tgt"),
];

/// Measure Etherslot beside SPDK's NVMe/TCP, nbdkit, tgt, and a file in memory. Needs root.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Arguments {
    /// Benchmarks: qd, bs, latency, links, devices, hosts, commands, mtu, payload, security, peers, guest, s4, s5, rdma; by default peers
    names: Vec<String>,
    /// Run the bars, all but those of s4, s5 and rdma, or those of one of them: a line each, exit status 1 if one is short
    #[arg(long)]
    check: bool,
    /// Fewer rounds and shorter turns
    #[arg(long)]
    quick: bool,
    /// Write the results to bench/results and docs/performance.md
    #[arg(long)]
    write: bool,
    /// Only contenders whose name contains one of these
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds; by default 5, quick 3
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// Length of a turn; by default 2, quick 1
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: Option<u64>,
    /// Memory that is read and written
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=65536))]
    memory_mib: u32,
    /// SPDK's tree, built; without it, SPDK is left out
    #[arg(long, value_name = "PATH", env = "SPDK_TREE")]
    spdk: Option<PathBuf>,
    /// Run clients and servers before all else on their cores (by chrt): for machines that are not idle
    #[arg(long)]
    real_time: bool,
    /// Core of the clients
    #[arg(long, default_value_t = 0)]
    client_cpu: u16,
    /// Core of the servers
    #[arg(long, default_value_t = 1)]
    server_cpu: u16,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether all bars were met.
fn run(arguments: &Arguments) -> Result<bool> {
    let names = if arguments.names.is_empty() { vec!["peers".to_owned()] } else { arguments.names.clone() };
    let Arguments {
        check: is_check, quick: is_quick, rounds, seconds, write, client_cpu, server_cpu, ..
    } = *arguments;
    let choices = section::Choices { is_check, is_quick, rounds, seconds, write };
    match names.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["s4"] => return evaluation::run(choices, &stop_on_signals()?),
        ["s5"] => return direct::run(choices, &stop_on_signals()?),
        ["rdma"] => {
            ensure_cpus([client_cpu, server_cpu])?;
            return rdma::run(choices, [client_cpu, server_cpu], &stop_on_signals()?);
        }
        _ => {}
    }
    ensure!(!arguments.check || arguments.names.is_empty(), "--check takes no name, or s4, s5 or rdma");
    let unknown = names.iter().find(|name| Benchmark::named(name).is_none() && *name != "guest");
    if let Some(name) = unknown {
        let known: Vec<&str> = BENCHMARKS.iter().map(|benchmark| benchmark.name).collect();
        bail!("no benchmark {name:?}; there are: {}, guest, and s4, s5 or rdma alone", known.join(", "));
    }
    ensure_cpus([client_cpu, server_cpu])?;
    etherslot_lab::ensure_programs(PROGRAMS)?;
    let stop = stop_on_signals()?;
    let (rounds, seconds) = if arguments.quick { (3, 1) } else { (5, 2) };
    let pace = Pace {
        rounds: arguments.rounds.unwrap_or(rounds),
        time: Duration::from_secs(arguments.seconds.unwrap_or(seconds)),
    };
    if arguments.check {
        return check(arguments, pace, &stop);
    }
    for name in &names {
        if let Some(benchmark) = Benchmark::named(name) {
            measure(arguments, &benchmark, pace, &stop)?;
        } else {
            show_guest(&guest::run(&bed(arguments)?, pace, &stop));
        }
    }
    Ok(true)
}

fn ensure_cpus(cpus: [u16; 2]) -> Result<()> {
    let count = std::thread::available_parallelism().map_or(0, usize::from);
    let highest = cpus[0].max(cpus[1]);
    ensure!(
        usize::from(highest) < count,
        "there is no CPU {highest}: choose others by --client-cpu and --server-cpu"
    );
    Ok(())
}

/// Children see the same signals and end; what the run has made is undone by the way out.
fn stop_on_signals() -> Result<Stop> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("listen for signals")?;
    }
    Ok(stop)
}

fn bed(arguments: &Arguments) -> Result<Bed> {
    Bed::new(Choices {
        memory_mib: arguments.memory_mib,
        client_cpu: arguments.client_cpu,
        server_cpu: arguments.server_cpu,
        spdk: arguments.spdk.clone(),
        real_time: arguments.real_time,
    })
}

/// Those that a person wants.
fn chosen(arguments: &Arguments, points: Vec<Point>) -> Vec<Point> {
    let is_wanted = |point: &Point| {
        let name = point.setup.contender.name().to_lowercase();
        arguments.only.is_empty() || arguments.only.iter().any(|only| name.contains(&only.to_lowercase()))
    };
    points.into_iter().filter(is_wanted).collect()
}

fn measure(arguments: &Arguments, benchmark: &Benchmark, pace: Pace, stop: &Stop) -> Result<()> {
    let points = chosen(arguments, benchmark.points());
    ensure!(!points.is_empty(), "no contender of {} is chosen by --only", benchmark.name);
    let record = runner::run(&bed(arguments)?, benchmark.name, &points, pace, stop)?;
    println!("{}", page::markdown(std::slice::from_ref(&record)));
    if arguments.write {
        keep(&record)?;
    }
    Ok(())
}

/// Writes the record, and the page from all records that are kept.
fn keep(record: &Record) -> Result<()> {
    let file = Path::new(RESULTS).join(format!("{}.json", record.benchmark));
    fs::create_dir_all(RESULTS)?;
    let text = serde_json::to_string_pretty(record)? + "\n";
    fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    let mut records = Vec::new();
    for benchmark in BENCHMARKS {
        let file = Path::new(RESULTS).join(format!("{}.json", benchmark.name));
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let kept: Record = serde_json::from_str(&text).with_context(|| format!("read {}", file.display()))?;
        records.push(kept);
    }
    let charts = Path::new(PAGE).with_file_name(page::CHARTS);
    fs::create_dir_all(&charts)?;
    for (file, svg) in records.iter().flat_map(page::charts) {
        fs::write(charts.join(file), svg)?;
    }
    eprintln!("bench: wrote {}", file.display());
    page::rewrite(page::CURVES, &page::markdown(&records))
}

fn check(arguments: &Arguments, pace: Pace, stop: &Stop) -> Result<bool> {
    let bars = check::bars();
    let points = chosen(arguments, check::points(&bars));
    // Servers and their memory are gone before the guest comes.
    let record = runner::run(&bed(arguments)?, "check", &points, pace, stop)?;
    let compared =
        if arguments.only.is_empty() { guest::run(&bed(arguments)?, pace, stop) } else { guest::none() };
    ensure!(!stop.load(Ordering::Relaxed), "interrupted");
    let mut tally = check::Tally::default();
    for bar in &bars {
        tally.line(&bar.name, bar.verdict(&record).as_ref(), bar.limit);
    }
    for one in &compared {
        tally.line(&one.bar.name(), one.verdict().as_ref(), one.bar.limit);
    }
    for one in &record.left_out {
        println!("left out: {one}");
    }
    println!("{tally}");
    if arguments.write {
        let text = format!("{}\n\n{}", page::origin("--check", &record), tally.markdown());
        page::rewrite(page::BARS, &text)?;
    }
    Ok(tally.short == 0)
}

fn show_guest(compared: &[guest::Compared]) {
    println!("| bar | remote / local, IOPS |\n|---|---|");
    for one in compared {
        if let Some(ratio) = one.ratio() {
            println!("| {} | {:.2} ({:.2}-{:.2}) |", one.bar.name(), ratio.median, ratio.least, ratio.most);
        }
    }
}
