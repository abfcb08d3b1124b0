//! `sim cell` and `sim grid`: the grid of sessions.

use std::fs;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use etherslot_sim::grid::{
    CONTENDERS, Cell, Change, Contender, Finding, Load, Loss, Outcome, Sweep, cells, contender, findings,
    median_ns, replace, run, summary,
};

const US: f64 = 1_000.0;

/// One cell: a named one, or one with other parameters.
#[derive(Args, Debug)]
pub(crate) struct CellArguments {
    /// A cell of the grid to start from.
    #[arg(default_value = "base")]
    name: String,
    /// The contenders, with commas between; `all` is all of them.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    controller: Vec<String>,
    /// Runs.
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Print a line each so many us of the first run (one base round trip if no value is given).
    #[arg(long, num_args = 0..=1, default_missing_value = "0")]
    trace: Option<f64>,
    /// Rate of all links, Gbit/s.
    #[arg(long)]
    rate: Option<u64>,
    /// Round-trip time without a queue, us.
    #[arg(long)]
    rtt: Option<f64>,
    /// Senders.
    #[arg(long)]
    fan_in: Option<u32>,
    /// Frames lost, per cent.
    #[arg(long)]
    loss: Option<f64>,
    /// Frames held back, per cent.
    #[arg(long)]
    reorder: Option<f64>,
    /// How long they are held back at most, us.
    #[arg(long)]
    reorder_by: Option<f64>,
    /// Frames that come twice, per cent.
    #[arg(long)]
    duplicates: Option<f64>,
    /// Frames with a bit flipped, per cent.
    #[arg(long)]
    corruption: Option<f64>,
    /// Delay that comes and goes, us.
    #[arg(long)]
    jitter: Option<f64>,
    /// Bytes of the largest frame.
    #[arg(long)]
    frame: Option<u16>,
    /// Payload bytes of a record.
    #[arg(long)]
    record: Option<usize>,
    /// The capacity falls to a quarter in the middle.
    #[arg(long)]
    quarter: bool,
    /// The capacity rises fourfold in the middle.
    #[arg(long)]
    fourfold: bool,
    /// The last sender comes in the middle.
    #[arg(long)]
    joins: bool,
    /// Load the links of the acknowledgements.
    #[arg(long)]
    reverse: bool,
    /// Replace the first sender's session in the middle.
    #[arg(long)]
    restart: bool,
    /// Records at random times for so many per cent of the capacity.
    #[arg(long)]
    open: Option<u32>,
    /// All senders send so many KiB at the same time, again and again.
    #[arg(long)]
    incast: Option<u64>,
    /// Requests beside bulk.
    #[arg(long)]
    mixed: bool,
}

#[allow(clippy::cast_sign_loss)]
fn ppm(percent: f64) -> u32 {
    (percent * 10_000.0) as u32
}

#[allow(clippy::cast_sign_loss)]
fn ns(us: f64) -> u64 {
    (us * US) as u64
}

impl CellArguments {
    fn cell(&self) -> Option<Cell> {
        let mut cell = cells().into_iter().find(|cell| cell.name == self.name)?;
        cell.rate = self.rate.map_or(cell.rate, |gbit| gbit * 1_000_000_000);
        cell.rtt_ns = self.rtt.map_or(cell.rtt_ns, ns);
        cell.fan_in = self.fan_in.unwrap_or(cell.fan_in);
        let faults = &mut cell.faults;
        faults.loss = self.loss.map_or(faults.loss, |percent| Loss::Ppm(ppm(percent)));
        faults.reorder_ppm = self.reorder.map_or(faults.reorder_ppm, ppm);
        faults.reorder_ns = self.reorder_by.map_or(faults.reorder_ns, ns);
        faults.duplicate_ppm = self.duplicates.map_or(faults.duplicate_ppm, ppm);
        faults.corrupt_ppm = self.corruption.map_or(faults.corrupt_ppm, ppm);
        faults.jitter_ns = self.jitter.map_or(faults.jitter_ns, ns);
        cell.record_bytes = self.record.unwrap_or(cell.record_bytes);
        cell.is_reverse_loaded |= self.reverse;
        cell.restarts |= self.restart;
        cell.joins |= self.joins;
        if self.quarter {
            cell.change = Some(Change::Quarter);
        }
        if self.fourfold {
            cell.change = Some(Change::Fourfold);
        }
        if let Some(percent) = self.open {
            cell.load = Load::Open { percent };
        }
        if let Some(kib) = self.incast {
            cell.load = Load::Incast { bytes: kib << 10 };
        }
        if self.mixed {
            cell.load = Load::Mixed { is_loaded: true };
        }
        cell = cell.with_fitting_frames();
        cell.frame_bytes = self.frame.unwrap_or(cell.frame_bytes);
        Some(cell)
    }

    /// Runs the cell and prints what came of it.
    pub(crate) fn execute(&self) -> Result<bool, String> {
        let cell = self.cell().ok_or_else(|| format!("no cell {:?}", self.name))?;
        let contenders = contenders(&self.controller)?;
        println!(
            "base {} ns, BDP {} bytes, full frame {} ns, target {} ns, window {} frames",
            cell.base_rtt_ns(),
            cell.bdp_bytes(),
            cell.frame_ns(),
            cell.target_ns(),
            cell.window_frames()
        );
        let mut clean = true;
        for (index, contender) in contenders.iter().enumerate() {
            let began = Instant::now();
            let mut sum = Outcome::default();
            for seed in self.from..self.from + self.seeds {
                let trace = self.trace.filter(|_| seed == self.from).map(ns);
                let trace = trace.map(|every_ns| if every_ns == 0 { cell.base_rtt_ns() } else { every_ns });
                sum.merge(&run(&cell, contender, seed, trace));
            }
            if index == 0 {
                println!("{HEADINGS}");
            }
            println!("{} {:>6.2}", line(contender.name, &cell, &sum), began.elapsed().as_secs_f64());
            clean &= sum.violations.total() == 0;
        }
        Ok(clean)
    }
}

/// All cells, or some of them.
#[derive(Args, Debug)]
pub(crate) struct GridArguments {
    /// Only cells whose name or dimension has one of these in it, with commas between.
    #[arg(long, value_delimiter = ',')]
    filter: Vec<String>,
    /// Runs of each cell with each contender.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// The contenders, with commas between; `all` is all of them.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    controllers: Vec<String>,
    /// Write tables and charts into the document of the session, in this folder. Of the whole grid only.
    #[arg(long, num_args = 0..=1, default_missing_value = "docs", conflicts_with_all = ["filter", "controllers"])]
    write: Option<PathBuf>,
}

/// Seeds of each pair of cell and contender in the check.
const CHECK_SEEDS: u64 = 5;

/// Runs the grid with a part of its seeds and prints what is short of a bar, and of each bar that nothing is short of
/// what is nearest to it.
pub(crate) fn check() -> bool {
    let jobs = std::thread::available_parallelism().map_or(2, usize::from);
    let sweep = sweep(cells(), CONTENDERS.to_vec(), CHECK_SEEDS, jobs);
    let findings = findings(&sweep);
    for finding in summary(&findings) {
        println!("{finding}");
    }
    findings.iter().all(Finding::is_ok)
}

/// Writes `session.md` and its charts.
fn write(folder: &Path, sweep: &Sweep) -> Result<(), String> {
    const CHARTS: &str = "session";
    let told = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let path = folder.join("session.md");
    let document = fs::read_to_string(&path).map_err(|error| told(&path, error))?;
    let document = replace(&document, &sweep.markdown(CHARTS))
        .ok_or_else(|| format!("{}: no place for what is generated", path.display()))?;
    let charts = folder.join(CHARTS);
    fs::create_dir_all(&charts).map_err(|error| told(&charts, error))?;
    for (name, svg) in sweep.svgs() {
        let path = charts.join(name).with_extension("svg");
        fs::write(&path, svg).map_err(|error| told(&path, error))?;
    }
    fs::write(&path, document).map_err(|error| told(&path, error))
}

/// Runs cells with contenders, and tells of the progress.
fn sweep(cells: Vec<Cell>, contenders: Vec<Contender>, seeds: u64, jobs: usize) -> Sweep {
    let pairs = cells.len() * contenders.len();
    let is_seen = std::io::stderr().is_terminal();
    let mut count = 0;
    let sweep = Sweep::run(cells, contenders, seeds, jobs, |cell, contender, _| {
        count += 1;
        if is_seen {
            eprint!("\r{count} of {pairs}: {} {}\x1b[K", cell.name, contender.name);
        }
    });
    if is_seen {
        eprint!("\r\x1b[K");
    }
    sweep
}

impl GridArguments {
    /// Runs the cells and prints what came of them.
    pub(crate) fn execute(&self) -> Result<bool, String> {
        let began = Instant::now();
        let is_wanted = |cell: &Cell| {
            let has = |part: &String| cell.name.contains(part) || cell.dimension.contains(part.as_str());
            self.filter.is_empty() || self.filter.iter().any(has)
        };
        let cells: Vec<Cell> = cells().into_iter().filter(is_wanted).collect();
        let sweep = sweep(cells, contenders(&self.controllers)?, self.seeds, self.jobs);
        let mut clean = true;
        for (cell, outcomes) in sweep.rows() {
            println!("{}: base {} ns, target {} ns", cell.name, cell.base_rtt_ns(), cell.target_ns());
            println!("{HEADINGS}");
            for (contender, outcome) in sweep.contenders.iter().zip(outcomes) {
                println!("{}", line(contender.name, cell, outcome));
                clean &= outcome.violations.total() == 0;
            }
        }
        if let Some(folder) = &self.write {
            write(folder, &sweep)?;
        }
        println!("{:.1} s", began.elapsed().as_secs_f64());
        Ok(clean)
    }
}

/// The contenders of these names.
fn contenders(names: &[String]) -> Result<Vec<Contender>, String> {
    if names.iter().any(|name| name == "all") {
        return Ok(CONTENDERS.to_vec());
    }
    let known = || CONTENDERS.iter().map(|contender| contender.name).collect::<Vec<_>>().join(", ");
    names
        .iter()
        .map(|name| contender(name).ok_or_else(|| format!("no contender {name:?}; there are {}", known())))
        .collect()
}

const HEADINGS: &str = "contender       goodput    min | p50 us    p99  p99.9 | queue p99/target   max | \
     jain | start us settle us | drops  rexmit% spur%  rto | viol dead | other                           | Mframes     s";

#[allow(clippy::cast_precision_loss)]
fn line(name: &str, cell: &Cell, sum: &Outcome) -> String {
    let us = |ns: u64| ns as f64 / US;
    let time = |times: &[Option<u64>]| match median_ns(times) {
        Some(ns) => format!("{:.1}", us(ns)),
        None => "-".to_owned(),
    };
    let least = sum.goodput.iter().copied().fold(f64::INFINITY, f64::min);
    let target = cell.target_ns() as f64;
    let other = match cell.load {
        Load::Incast { .. } => format!(
            "done p50 {:.3} p90 {:.3} p99 {:.3}",
            sum.completion_permille(0.5) as f64 / 1e3,
            sum.completion_permille(0.9) as f64 / 1e3,
            sum.completion_permille(0.99) as f64 / 1e3
        ),
        Load::Mixed { .. } => {
            format!("ask p50 {:.2} p99 {:.2} us", us(sum.round_trip_ns(0.5)), us(sum.round_trip_ns(0.99)))
        }
        _ => String::new(),
    };
    format!(
        "{name:<15} {:>7.4} {least:>6.3} | {:>6.1} {:>6.1} {:>6.1} | {:>16.2} {:>5.1} | {:>4.2} | {:>8} {:>9} | \
         {:>5} {:>8.3} {:>5.3} {:>4} | {:>4} {:>4} | {other:<31} | {:>7.3}",
        sum.mean_goodput(),
        us(sum.latency_ns(0.5)),
        us(sum.latency_ns(0.99)),
        us(sum.latency_ns(0.999)),
        sum.queue_ns(0.99) as f64 / target,
        sum.queue_ns(1.0) as f64 / target,
        sum.mean_jain(),
        time(&sum.start_ns),
        time(&sum.settle_ns),
        sum.dropped,
        sum.retransmitted_share() * 100.0,
        sum.spurious_share() * 100.0,
        sum.rtos,
        sum.violations.total(),
        sum.dead,
        sum.frames as f64 / 1e6,
    )
}
