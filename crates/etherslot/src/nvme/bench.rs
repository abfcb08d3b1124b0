//! `etherslot nvme bench`: operations per second and latencies of a remote disk, from one polling thread.
#![expect(clippy::cast_sign_loss, reason = "of rates and times, which are positive, three digits are shown")]

use std::io::{IsTerminal as _, stderr};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::{Args, ValueEnum};
use etherslot_runtime::initiator::Client;
use etherslot_runtime::initiator::driver::{BufferClass, Done, nvme};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::shape;
use super::target::Target;
use super::workload::{Measured, Pattern, Plan, Workload};
use crate::stat::Output;
use crate::units;

/// Never sleeps.
const BUSY_POLL: Duration = Duration::from_hours(1);
/// The most memory for buffers.
const MOST_BYTES: u64 = 1 << 30;
/// Between two pictures of the progress.
const REDRAW_NS: u64 = 100_000_000;

#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    target: Target,
    /// What to do.
    #[arg(long, value_enum, default_value = "randread", value_name = "PATTERN")]
    rw: Pattern,
    /// Bytes of an operation, as in 512, 4k or 1m; several with commas between.
    #[arg(long, default_value = "4k", value_delimiter = ',', value_name = "SIZE", value_parser = shape::block_bytes)]
    block_size: Vec<u32>,
    /// Operations under way at once, over all queues; several with commas between.
    #[arg(long, default_value = "32", value_delimiter = ',', value_name = "N",
        value_parser = clap::value_parser!(u16).range(1..=4095))]
    queue_depth: Vec<u16>,
    /// I/O queue pairs.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    queues: u16,
    /// How long each point is measured.
    #[arg(long, default_value = "5", value_name = "SECONDS", value_parser = seconds)]
    seconds: Duration,
    /// How long each point runs before it is measured.
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    warm_up: Duration,
    /// Of 100 operations of randrw, so many are reads.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=100))]
    read_percent: u32,
    /// Write what tells its block and generation, and compare what is read with it; at the end all that was written is read.
    #[arg(long)]
    verify: bool,
    /// Where Submission Queues are: in our memory, or in the Controller Memory Buffer, if there is one.
    #[arg(long, value_enum, default_value_t, value_name = "WHERE")]
    submission: Submission,
    /// Point to data by PRP lists even if the controller takes SGLs.
    #[arg(long)]
    prp: bool,
    /// Have completions told by MSI-X instead of looking at queues in every round.
    #[arg(long)]
    interrupts: bool,
    /// How to print: json is one object, with a point for each size and depth.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Submission {
    #[default]
    Host,
    Cmb,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "write a number of seconds, 0 to 86400".to_owned())
}

/// Times of an operation, from before its submission until its completion was taken.
#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit is part of the name")]
struct Latency {
    min_ns: u64,
    mean_ns: f64,
    p50_ns: u64,
    p99_ns: u64,
    p999_ns: u64,
    max_ns: u64,
}

/// One size and depth.
#[derive(Debug, Serialize)]
struct Point {
    rw: &'static str,
    block_bytes: u32,
    queue_depth: u16,
    queues: u16,
    seconds: f64,
    operations: u64,
    reads: u64,
    writes: u64,
    errors: u64,
    verified: u64,
    operations_per_second: f64,
    bytes_per_second: f64,
    latency: Latency,
    /// Time of the rounds of the loop in which there was something to do, for each operation: what it cost this thread.
    busy_ns_per_operation: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    device: String,
    submission: &'static str,
    resubmitted: u64,
    resets: u64,
    losses: u64,
    stray_completions: u64,
    points: Vec<Point>,
}

impl Bench {
    pub(crate) fn run(self) -> Result<()> {
        let depth = self.queue_depth.iter().copied().max().unwrap_or(1);
        let mut classes = Vec::new();
        let sizes = self.block_size.iter().copied().max().unwrap_or(512);
        ensure!(
            u64::from(sizes) * u64::from(depth) <= MOST_BYTES,
            "{depth} operations of {} at once are more than {} of buffers: use less",
            units::bytes(sizes.into()),
            units::bytes(MOST_BYTES)
        );
        classes.push(BufferClass { bytes: sizes as usize, count: depth.into() });
        let driver = nvme::Config {
            queues: self.queues,
            queue_depth: depth.div_ceil(self.queues),
            buffers: classes,
            submission: match self.submission {
                Submission::Host => nvme::Submission::HostMemory,
                Submission::Cmb => nvme::Submission::ControllerMemory,
            },
            data_pointers: if self.prp { nvme::DataPointers::Prp } else { nvme::DataPointers::Sgl },
            interrupts: self.interrupts,
            ..nvme::Config::default()
        };
        let mut client = self.target.connect(driver, BUSY_POLL)?;
        let mut points = Vec::new();
        if self.output == Output::Text {
            println!("{}", heading());
        }
        for &block_bytes in &self.block_size {
            for &queue_depth in &self.queue_depth {
                let point = self.point(&mut client, block_bytes, queue_depth)?;
                if self.output == Output::Text {
                    println!("{}", show(&point));
                }
                points.push(point);
            }
        }
        let counters = *client.initiator().counters();
        let report = Report {
            device: self.target.device().to_owned(),
            submission: match self.submission {
                Submission::Host => "host",
                Submission::Cmb => "cmb",
            },
            resubmitted: counters.resubmitted,
            resets: counters.resets,
            losses: counters.losses,
            stray_completions: counters.stray_completions,
            points,
        };
        drop(client);
        if self.output == Output::Json {
            println!("{}", serde_json::to_string(&report)?);
        }
        let errors: u64 = report.points.iter().map(|point| point.errors).sum();
        ensure!(errors == 0, "{errors} operations ended with an error");
        Ok(())
    }

    fn point(&self, client: &mut Client, block_bytes: u32, queue_depth: u16) -> Result<Point> {
        let plan = Plan {
            pattern: self.rw,
            block_bytes,
            depth: queue_depth.into(),
            read_percent: self.read_percent,
            verify: self.verify,
            seed: 0x9E37_79B9 ^ u64::from(block_bytes) << 16 ^ u64::from(queue_depth),
        };
        let mut workload = Workload::new(plan, client.disk())?;
        let bar = Bar::new(format!("{} {block_bytes} B, depth {queue_depth}", self.rw.name()));
        let mut runner = Runner {
            client,
            workload: &mut workload,
            done: Vec::with_capacity(queue_depth.into()),
            ended_ns: 0,
            busy_ns: 0,
        };
        runner.run_for(self.warm_up, &mut |_| {})?;
        runner.workload.start_measuring()?;
        runner.busy_ns = 0;
        let seconds = self.seconds.max(Duration::from_millis(1));
        let took_ns = runner.run_for(seconds, &mut |passed_ns| bar.show(passed_ns, seconds))?;
        let busy_ns = runner.busy_ns;
        let measured = std::mem::replace(&mut runner.workload.measured, Measured::new()?);
        runner.drain()?;
        if self.verify {
            runner.verify()?;
        }
        let verified = workload.measured.verified + measured.verified;
        let outcome = workload.check();
        workload.finish(client.disk());
        outcome?;
        if let Some(error) = measured.first_error {
            tracing::warn!(%error, count = measured.errors, "operations failed");
        }
        Ok(self.describe(plan, queue_depth, &measured, verified, took_ns, busy_ns))
    }

    fn describe(
        &self,
        plan: Plan,
        queue_depth: u16,
        measured: &Measured,
        verified: u64,
        took_ns: u64,
        busy_ns: u64,
    ) -> Point {
        let operations = measured.reads + measured.writes;
        let seconds = took_ns as f64 / 1e9;
        let operations_per_second = operations as f64 / seconds;
        let latency = &measured.latency;
        Point {
            rw: plan.pattern.name(),
            block_bytes: plan.block_bytes,
            queue_depth,
            queues: self.queues,
            seconds,
            operations,
            reads: measured.reads,
            writes: measured.writes,
            errors: measured.errors,
            verified,
            operations_per_second,
            bytes_per_second: operations_per_second * f64::from(plan.block_bytes),
            latency: Latency {
                min_ns: latency.min(),
                mean_ns: latency.mean(),
                p50_ns: latency.value_at_quantile(0.5),
                p99_ns: latency.value_at_quantile(0.99),
                p999_ns: latency.value_at_quantile(0.999),
                max_ns: latency.max(),
            },
            busy_ns_per_operation: busy_ns as f64 / (operations.max(1)) as f64,
        }
    }
}

/// The loop.
struct Runner<'a> {
    client: &'a mut Client,
    workload: &'a mut Workload,
    done: Vec<Done>,
    /// When the last round ended.
    ended_ns: u64,
    busy_ns: u64,
}

impl Runner<'_> {
    /// One round; with `submit`, operations that ended are followed by others. The time at its end.
    #[inline]
    fn round(&mut self, submit: bool) -> Result<u64> {
        let mut progress = self.client.receive();
        let Self { client, workload, done, .. } = self;
        let clock = client.clock();
        progress |= workload.poll(client.disk(), || clock.now_ns(), done) != 0;
        if submit {
            progress |= workload.submit(clock.now_ns(), client.disk())? != 0;
        }
        progress |= client.transmit();
        let now_ns = clock.now_ns();
        if progress {
            self.busy_ns += now_ns - self.ended_ns;
        }
        self.ended_ns = now_ns;
        self.client.rest(progress, None)?;
        if self.client.should_stop() {
            bail!("stopped");
        }
        Ok(now_ns)
    }

    /// Goes round for this long; the time that it took, ns.
    fn run_for(&mut self, time: Duration, show: &mut dyn FnMut(u64)) -> Result<u64> {
        let start_ns = self.client.clock().now_ns();
        self.ended_ns = start_ns;
        let until_ns = start_ns + time.as_nanos() as u64;
        let (mut now_ns, mut show_ns) = (start_ns, start_ns);
        while now_ns < until_ns {
            now_ns = self.round(true)?;
            if now_ns >= show_ns {
                show_ns = now_ns + REDRAW_NS;
                show(now_ns.saturating_sub(start_ns));
            }
        }
        Ok(self.client.clock().now_ns() - start_ns)
    }

    /// Waits for what is under way.
    fn drain(&mut self) -> Result<()> {
        while self.workload.under_way() > 0 {
            self.round(false)?;
        }
        Ok(())
    }

    /// Reads all that was written.
    fn verify(&mut self) -> Result<()> {
        while self.workload.read_back() {
            self.round(true)?;
        }
        Ok(())
    }
}

/// How far a point is; on a terminal only.
struct Bar(ProgressBar);

impl Bar {
    fn new(name: String) -> Self {
        let target =
            if stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(1000), target);
        if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {percent}%") {
            bar.set_style(style);
        }
        bar.set_message(name);
        Self(bar)
    }

    fn show(&self, passed_ns: u64, all: Duration) {
        self.0.set_position((u128::from(passed_ns) * 1000 / all.as_nanos().max(1)) as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

fn heading() -> String {
    format!(
        "{:9} {:>8} {:>5} {:>10} {:>10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "RW", "BLOCK", "DEPTH", "OPS", "BYTES", "MIN", "MEAN", "P50", "P99", "P99.9", "MAX", "BUSY/OP"
    )
}

fn show(point: &Point) -> String {
    let Latency { min_ns, mean_ns, p50_ns, p99_ns, p999_ns, max_ns } = point.latency;
    let times = [min_ns, mean_ns as u64, p50_ns, p99_ns, p999_ns, max_ns, point.busy_ns_per_operation as u64];
    let times: Vec<String> = times.map(|ns| format!("{:>9}", units::time(ns))).into();
    let errors = if point.errors == 0 { String::new() } else { format!("  {} errors", point.errors) };
    let verified = if point.verified == 0 { String::new() } else { format!("  {} verified", point.verified) };
    format!(
        "{:9} {:>8} {:>5} {:>10} {:>10} {}{errors}{verified}",
        point.rw,
        point.block_bytes,
        point.queue_depth,
        units::rate(point.operations_per_second),
        format!("{}/s", units::bytes(point.bytes_per_second as u64)),
        times.join(" ")
    )
}
