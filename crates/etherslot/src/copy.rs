//! `etherslot copy`: from remote disks to remote disks, past this machine if there is a DC buffer; between one and a file; and, as in a guest,
//! between disks or files that this machine's kernel has, past the processor if there is peer-to-peer memory.
#![expect(clippy::cast_sign_loss, reason = "of a rate, which is positive, three digits are shown")]

mod local;
mod places;
mod resume;

use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::Args;
use etherslot_runtime::direct::{DirectClient, Site};
use etherslot_runtime::initiator::driver::{
    Copy as Job, CopyConfig, CopyError, CopyRange, Disks as _, Phase, Pieces, nvme,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::nvme::{Reach, shape, transfer};
use crate::stat::Output;
use crate::units;
use places::Place;
use resume::Resume;

/// Polls for so long, then sleeps.
const BUSY_POLL: Duration = Duration::from_micros(200);
/// Between two pictures of the progress.
const REDRAW_NS: u64 = 100_000_000;
/// Pairs at once: two disks of each, and the buffer.
const MAX_PAIRS: usize = 15;

#[derive(Args)]
pub(crate) struct Copy {
    /// SOURCE TARGET, and so on for further pairs, all copied at once. Each is a device as `NAME@ADDRESS`, or, with --config, the NAME of a slot's
    /// device; behind it `:OFFSET+BYTES` or `:OFFSET+` for a part of it, as in `disk@10.0.0.1:4700:1g+512m`. One of a pair may be a file: what
    /// has a `/` in it. So may both: files or block devices of this machine, whose kernel copies them, past the processor where it can.
    #[arg(value_name = "SOURCE TARGET", required = true, num_args = 2..)]
    places: Vec<String>,
    /// The DC buffer between the disks, as `NAME@ADDRESS`, or, with --config, the NAME of a slot's device. Without it, data passes this machine.
    /// Between files of this machine: the PCI address of the device whose peer-to-peer memory is to be used, or `none`; without it, the best there is.
    #[arg(long, value_name = "DEVICE")]
    buffer: Option<String>,
    /// Compares everything afterwards, in the target.
    #[arg(long)]
    verify: bool,
    /// Notes in this file how far the copy is durable, and begins there if the file exists.
    #[arg(long, value_name = "FILE")]
    resume: Option<PathBuf>,
    /// After so many bytes of a pair the target makes durable what it has.
    #[arg(long, default_value = "256m", value_name = "SIZE", value_parser = shape::bytes)]
    checkpoint: u64,
    /// Chunks of a pair under way at once; what is best is found out if it is not said.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    outstanding: Option<u16>,
    /// Bytes of a chunk, up to 1m; what is best is found out if it is not said.
    #[arg(long, value_name = "SIZE", value_parser = shape::block_bytes)]
    chunk: Option<u32>,
    /// While the memory between the disks is out of reach, the copy waits for so long, then it fails.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// The namespace of all disks.
    #[arg(long, default_value_t = 1, value_name = "NSID", value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,
    /// How to print: json is one object.
    #[arg(long, value_enum, default_value_t)]
    output: Output,
    #[command(flatten)]
    reach: Reach,
}

/// What is printed at the end.
#[derive(Serialize)]
struct Report {
    /// `buffer`, or `host` if data passed this machine.
    by: &'static str,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// Of this machine, everything; not if its kernel has the disks.
    #[serde(skip_serializing_if = "Option::is_none")]
    link_tx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link_rx_bytes: Option<u64>,
    pairs: Vec<PairReport>,
}

#[derive(Serialize)]
struct PairReport {
    source: String,
    target: String,
    bytes: u64,
    /// From the start of the range, before which everything is copied and durable.
    durable_bytes: u64,
    verified: bool,
    chunks: u64,
    repeated: u64,
    outlived: u64,
    rewound: u64,
    outstanding: usize,
    chunk_bytes: u64,
    error: Option<String>,
}

/// A pair of disks, by their numbers.
struct Pair {
    names: [String; 2],
    range: CopyRange,
}

impl Copy {
    pub(crate) fn run(self) -> Result<()> {
        ensure!(self.places.len().is_multiple_of(2), "a source without a target: name them in pairs");
        ensure!(
            self.places.len() / 2 <= MAX_PAIRS,
            "more than {MAX_PAIRS} pairs: copy them one after another"
        );
        let places = self.places.iter().map(|text| text.parse()).collect::<Result<Vec<Place>, String>>();
        let places = places.map_err(anyhow::Error::msg)?;
        let is_file = |place: &Place| matches!(place, Place::File { .. });
        if places.iter().all(is_file) {
            return local::run(&self, &places);
        }
        if places.iter().any(is_file) {
            return self.with_a_file(&places);
        }
        if self.buffer.is_none() {
            eprintln!("no --buffer: all data passes this machine");
        }
        let (names, numbers) = disks(&places);
        let mut client = self.connect(&names, places.len() / 2)?;
        let mut pairs = Vec::new();
        for (pair, number) in places.chunks_exact(2).zip(numbers.chunks_exact(2)) {
            pairs.push(pair_of(&mut client, pair, number)?);
        }
        let mut resume = self.open_resume(&mut client, &mut pairs)?;
        let begun = Instant::now();
        let (tx_before, rx_before) = client.link_bytes();
        let job = carry_out(&mut client, &pairs, self.config(), resume.as_mut())?;
        let by = if self.buffer.is_some() { "buffer" } else { "host" };
        let mut report = self.report(by, &pairs, &job, begun.elapsed());
        let (tx, rx) = client.link_bytes();
        (report.link_tx_bytes, report.link_rx_bytes) = (Some(tx - tx_before), Some(rx - rx_before));
        drop(client);
        self.end(&report, resume)
    }

    /// Takes from the file of `--resume` how far the pairs are.
    fn open_resume(&self, site: &mut impl Site, pairs: &mut [Pair]) -> Result<Option<Resume>> {
        let Some(path) = &self.resume else { return Ok(None) };
        let disks = site.disks();
        let serial = |disk: usize| disks.info(disk).serial.clone();
        let wanted = pairs
            .iter()
            .map(|Pair { range, .. }| resume::Entry::of(range, [range.source, range.target].map(serial)));
        let resume = Resume::open(path, wanted.collect())?;
        for (pair, durable) in pairs.iter_mut().zip(resume.durable()) {
            pair.range.done = durable;
        }
        Ok(Some(resume))
    }

    /// Prints the outcome; an error if a pair failed.
    fn end(&self, report: &Report, resume: Option<Resume>) -> Result<()> {
        match self.output {
            Output::Json => println!("{}", serde_json::to_string(report)?),
            Output::Text => print(report),
        }
        let failed: Vec<String> = report.pairs.iter().filter_map(PairReport::failure).collect();
        if failed.is_empty() {
            return resume.map_or(Ok(()), Resume::remove);
        }
        bail!("{}", failed.join("\n"))
    }

    /// What is between the disks of so many pairs.
    fn pieces(&self, pairs: usize) -> Pieces {
        let outstanding = self.outstanding.map_or(32, usize::from);
        Pieces { bytes: self.chunk.map_or(1 << 20, |bytes| bytes as usize), count: outstanding * pairs }
    }

    fn config(&self) -> CopyConfig {
        CopyConfig {
            outstanding: self.outstanding.map(usize::from),
            chunk_bytes: self.chunk.map(u64::from),
            verify: self.verify,
            checkpoint_bytes: self.checkpoint,
            patience_ns: u64::try_from(self.patience.as_nanos()).unwrap_or(u64::MAX).max(1),
        }
    }

    fn connect(&self, names: &[String], pairs: usize) -> Result<DirectClient> {
        let driver = nvme::Config {
            nsid: self.nsid,
            queue_depth: 512,
            buffers: Vec::new(),
            ..nvme::Config::default()
        };
        self.reach.connect_direct(names, self.buffer.as_deref(), self.pieces(pairs), driver, BUSY_POLL)
    }

    fn report(&self, by: &'static str, pairs: &[Pair], job: &Job, elapsed: Duration) -> Report {
        let of_pair = |(number, pair): (usize, &Pair)| {
            let counters = job.counters(number);
            let (outstanding, chunk_bytes) = job.setting(number);
            PairReport {
                source: pair.names[0].clone(),
                target: pair.names[1].clone(),
                bytes: pair.range.bytes,
                durable_bytes: job.durable(number),
                verified: self.verify && job.phase(number) == Phase::Done,
                chunks: counters.chunks,
                repeated: counters.repeated,
                outlived: counters.outlived,
                rewound: counters.rewound,
                outstanding,
                chunk_bytes,
                error: job.error(number).map(|error| error.to_string()),
            }
        };
        let copied = pairs.iter().enumerate().map(|(number, pair)| job.durable(number) - pair.range.done);
        let bytes: u64 = copied.sum();
        let seconds = elapsed.as_secs_f64();
        Report {
            by,
            bytes,
            seconds,
            bytes_per_second: bytes as f64 / seconds.max(1e-9),
            link_tx_bytes: None,
            link_rx_bytes: None,
            pairs: pairs.iter().enumerate().map(of_pair).collect(),
        }
    }

    /// One of the two is a file: it goes through this machine, as `nvme read` and `nvme write` do.
    fn with_a_file(&self, places: &[Place]) -> Result<()> {
        let [source, target] = places else { bail!("with a file, one pair at a time") };
        ensure!(
            self.buffer.is_none() && self.resume.is_none() && !self.verify,
            "with a file there is no --buffer, --resume or --verify"
        );
        ensure!(self.output == Output::Text, "with a file there is no --output json");
        match (source, target) {
            (Place::Disk { name, offset, bytes }, Place::File { path, offset: None, .. }) => {
                transfer::to_file(&self.reach, name, self.nsid, *offset, *bytes, path)
            }
            (Place::File { path, offset: None, .. }, Place::Disk { name, offset, bytes }) => {
                transfer::from_file(&self.reach, name, self.nsid, *offset, *bytes, path)
            }
            _ => bail!("with a remote disk, all of a file is meant: name the range of the disk"),
        }
    }
}

/// Copies all pairs; a stop leaves what is not durable.
fn carry_out(
    site: &mut impl Site,
    pairs: &[Pair],
    config: CopyConfig,
    mut resume: Option<&mut Resume>,
) -> Result<Job> {
    let ranges: Vec<CopyRange> = pairs.iter().map(|pair| pair.range).collect();
    let now_ns = site.now_ns();
    let mut job = Job::new(site.disks(), &ranges, config, now_ns)
        .map_err(|(pair, error): (usize, CopyError)| anyhow::anyhow!("{}: {error}", pairs[pair].title()))?;
    let total = ranges.iter().map(|range| range.bytes).sum();
    let bar = bar(total);
    let (mut draw_ns, mut was_verifying) = (0, false);
    while !job.is_over() {
        ensure!(!site.should_stop(), "stopped");
        let mut progress = site.receive();
        let now_ns = site.now_ns();
        progress |= job.poll(now_ns, site.disks());
        progress |= site.transmit();
        if now_ns >= draw_ns {
            draw_ns = now_ns + REDRAW_NS;
            let is_verifying =
                (0..pairs.len()).all(|pair| matches!(job.phase(pair), Phase::Verify | Phase::Done));
            if is_verifying != was_verifying && config.verify {
                bar.reset();
                bar.set_message("comparing");
                was_verifying = true;
            }
            bar.set_position((0..pairs.len()).map(|pair| job.done(pair)).sum());
        }
        if let Some(resume) = &mut resume {
            resume.note((0..pairs.len()).map(|pair| job.durable(pair)))?;
        }
        site.rest(progress, job.deadline_ns())?;
    }
    bar.finish_and_clear();
    Ok(job)
}

impl Pair {
    fn title(&self) -> String {
        format!("{} to {}", self.names[0], self.names[1])
    }
}

impl PairReport {
    fn failure(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!(
            "{} to {}: {error}; the first {} are there and durable",
            self.source,
            self.target,
            units::bytes(self.durable_bytes)
        ))
    }
}

/// The disks that are named, each once, and the number of each place's.
fn disks(places: &[Place]) -> (Vec<String>, Vec<usize>) {
    let mut names: Vec<String> = Vec::new();
    let number = |place: &Place| {
        let Place::Disk { name, .. } = place else { return 0 };
        names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.clone());
            names.len() - 1
        })
    };
    let numbers = places.iter().map(number).collect();
    (names, numbers)
}

/// What of the two disks is meant: what of the source is said, or all of it.
fn pair_of(client: &mut DirectClient, places: &[Place], numbers: &[usize]) -> Result<Pair> {
    let (
        [
            Place::Disk { name: source_name, offset: source_start, bytes: source_bytes },
            Place::Disk { name: target_name, offset: target_start, bytes: target_bytes },
        ],
        &[source, target],
    ) = (places, numbers)
    else {
        bail!("two disks are a pair")
    };
    let left = client.direct().info(source).bytes().saturating_sub(*source_start);
    let bytes = match (source_bytes, target_bytes) {
        (Some(bytes), Some(other)) => {
            ensure!(
                bytes == other,
                "{source_name} and {target_name}: {bytes} and {other} bytes are not the same"
            );
            *bytes
        }
        (bytes, other) => bytes.or(*other).unwrap_or(left),
    };
    let (source_start, target_start) = (*source_start, *target_start);
    let range = CopyRange { source, source_start, target, target_start, bytes, done: 0 };
    Ok(Pair { names: [source_name.clone(), target_name.clone()], range })
}

fn bar(bytes: u64) -> ProgressBar {
    let target =
        if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(bytes), target);
    let template = "{msg} {wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message("copying");
    bar
}

fn print(report: &Report) {
    for pair in report.pairs.iter().filter(|pair| pair.error.is_none()) {
        let verified = if pair.verified { ", compared" } else { "" };
        println!("{} to {}: {}{verified}", pair.source, pair.target, units::bytes(pair.bytes));
    }
    let rate = (report.bytes as f64 / report.seconds.max(1e-9)) as u64;
    let passed = match (report.link_tx_bytes, report.link_rx_bytes, report.by) {
        (Some(tx), Some(rx), _) => format!("{} of frames passed this machine", units::bytes(tx + rx)),
        (_, _, "buffer") => "past this machine's memory".to_owned(),
        _ => "through this machine's memory".to_owned(),
    };
    println!("{} in {:.3} s, {}/s; {passed}", units::bytes(report.bytes), report.seconds, units::bytes(rate));
}
