//! `./run bench rdma`: RDMA without RDMA hardware, beside what else moves messages without it, on the same cable.
//!
//! Stock programs, all of them: perftest and UCX over our verbs, UCX and libfabric over TCP. Beside them stands what the same Port moves without a
//! session (`raw`), and what registration costs beside mlock. rxe, the kernel's RDMA over Ethernet, is in no host's kernel that is not made for it: it
//! comes in as a `Way` between two guests, beside the RNIC as a Function there.

mod programs;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use etherslot_lab::{BOX_IP, Cable, NetOptions, Process, Run, Side, ensure_net, ensure_programs, mortal};
use serde::Serialize;

use crate::check::Limit;
use crate::load::size;
use crate::machine::Machine;
use crate::runner::Stop;
use crate::section::{self, Choices};
use crate::statistic::{Spread, digits};

/// For the start of a server, and for the end of a client beyond the time that it measures.
const PATIENCE: Duration = Duration::from_secs(30);
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
/// Sizes of messages whose rate is measured.
const SIZES: [u32; 3] = [4 * KIB, 64 * KIB, MIB];
/// Sizes of regions.
const REGIONS: [u32; 4] = [4 * KIB, MIB, 32 * MIB, 1024 * MIB];

/// Who moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// perftest over our verbs.
    Verbs,
    /// UCX over our verbs.
    UcxVerbs,
    /// UCX over TCP.
    UcxTcp,
    /// libfabric over TCP.
    FabricTcp,
    /// Nobody: a Port as ours alone, out of a buffer of a message's size and to nowhere.
    Raw,
    /// `ibv_reg_mr` of ours.
    Region,
    /// A region with a list of its pages in the engine.
    PageList,
    /// mlock.
    Lock,
}

/// Which operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    /// Write, or put.
    Write,
    /// Read, or get.
    Read,
    /// Send, or a message with a tag.
    Send,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
enum What {
    /// Of 8 bytes, one way, microseconds.
    Latency(Operation),
    /// Of messages of so many bytes, 10^9 bytes a second.
    Rate(Operation, u32),
    /// Registration of a region of so many bytes, microseconds.
    Registration(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Case {
    way: Way,
    what: What,
}

type Record = section::Record<Case, f64>;

impl Way {
    const MOVERS: [Self; 5] = [Self::Verbs, Self::UcxVerbs, Self::UcxTcp, Self::FabricTcp, Self::Raw];
    const REGISTRARS: [Self; 3] = [Self::Region, Self::PageList, Self::Lock];

    fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs (perftest)",
            Self::UcxVerbs => "verbs (UCX)",
            Self::UcxTcp => "UCX tcp",
            Self::FabricTcp => "libfabric tcp",
            Self::Raw => "raw Port",
            Self::Region => "ibv_reg_mr",
            Self::PageList => "page list",
            Self::Lock => "mlock",
        }
    }

    /// Whether there is a stock program for it, or one is needed.
    fn does(self, what: What) -> bool {
        match (self, what) {
            (Self::Region | Self::PageList | Self::Lock, _) => matches!(what, What::Registration(_)),
            (_, What::Registration(_)) => false,
            (Self::Verbs, _) => true,
            // Of its Gets, perftest alone tells the latency.
            (Self::UcxVerbs | Self::UcxTcp, _) => what != What::Latency(Operation::Read),
            (Self::FabricTcp, What::Latency(operation) | What::Rate(operation, _)) => {
                operation == Operation::Send
            }
            (Self::Raw, What::Latency(operation) | What::Rate(operation, _)) => operation == Operation::Write,
        }
    }
}

impl What {
    fn name(self) -> String {
        let name = |operation| match operation {
            Operation::Write => "write",
            Operation::Read => "read",
            Operation::Send => "send",
        };
        match self {
            Self::Latency(operation) => format!("{} 8 B, us", name(operation)),
            Self::Rate(operation, bytes) => format!("{} {}, GB/s", name(operation), size(bytes)),
            Self::Registration(bytes) if bytes == 1024 * MIB => "1 GiB, us".to_owned(),
            Self::Registration(bytes) => format!("{}, us", size(bytes)),
        }
    }
}

fn name(case: Case) -> String {
    format!("{}, {}", case.way.name(), case.what.name())
}

/// All that is measured, contenders beside each other.
fn cases() -> Vec<Case> {
    use Operation::{Read, Send, Write};
    let latencies = [Write, Send, Read].map(What::Latency);
    let rates = SIZES.into_iter().flat_map(|bytes| [Write, Send, Read].map(|one| What::Rate(one, bytes)));
    let whats = latencies.into_iter().chain(rates).chain(REGIONS.map(What::Registration));
    let of = |what| {
        let ways = Way::MOVERS.into_iter().chain(Way::REGISTRARS);
        ways.filter(move |way| way.does(what)).map(move |way| Case { way, what })
    };
    whats.flat_map(of).collect()
}

/// The bars: name, what is measured above and below, and the limit. Those of registration are the published driver's.
fn bars() -> Vec<(String, Case, Case, Limit)> {
    let bar = |what: What, above: Way, below: Way, limit| {
        let what_name = what.name();
        let plain = what_name.split(',').next().unwrap_or_default();
        let name = format!("RDMA: {plain}, {} / {}", above.name(), below.name());
        (name, Case { way: above, what }, Case { way: below, what }, limit)
    };
    let mut bars = vec![bar(What::Latency(Operation::Write), Way::Verbs, Way::UcxTcp, Limit::AtMost(1.0))];
    for bytes in [64 * KIB, MIB] {
        let what = What::Rate(Operation::Write, bytes);
        bars.push(bar(what, Way::Verbs, Way::UcxTcp, Limit::AtLeast(3.0)));
        bars.push(bar(what, Way::Verbs, Way::Raw, Limit::AtLeast(0.8)));
    }
    for (bytes, published) in [(MIB, 0.55), (1024 * MIB, 0.014)] {
        for way in [Way::Region, Way::PageList] {
            bars.push(bar(What::Registration(bytes), way, Way::Lock, Limit::AtMost(published)));
        }
    }
    bars
}

/// What all stand on.
struct Bed {
    cable: Cable,
    run: Run,
    cpus: [u16; 2],
    seconds: u64,
    /// `target/release`, with our binary, libraries and examples.
    folder: PathBuf,
    /// What a registration told of others than the one that was asked for.
    told: BTreeMap<Case, f64>,
}

impl Bed {
    fn new(cpus: [u16; 2], seconds: u64) -> Result<Self> {
        ensure_net()?;
        ensure_programs(programs::PACKAGES)?;
        let binary = etherslot_lab::etherslot_binary()?;
        let folder = binary.parent().context("the binary is in no folder")?.to_owned();
        for file in ["verbs/libibverbs.so.1", "examples/raw", "examples/registration"] {
            ensure!(
                folder.join(file).exists(),
                "no {}: ./run bench rdma makes it",
                folder.join(file).display()
            );
        }
        let run = Run::new("bench-rdma")?;
        let cable = Cable::new(&run, "rdma", NetOptions { mtu: 9000 })?;
        Ok(Self { cable, run, cpus, seconds, folder, told: BTreeMap::new() })
    }

    /// Starts a program on its side, on that side's core.
    fn start(&self, side: Side, words: &[String]) -> Result<Process> {
        let (name, cpu) = match side {
            Side::Host => ("client", self.cpus[0]),
            Side::Box | Side::OtherBox => ("server", self.cpus[1]),
        };
        let mut command = mortal(Some(self.cable.namespace(side)), "taskset".as_ref());
        command.arg("--cpu-list").arg(cpu.to_string()).args(words).current_dir(self.run.folder());
        Ok(Process::start(name, command, &self.run.path(&format!("{name}.log")))?)
    }

    fn measure(&mut self, case: Case) -> Result<f64> {
        if let What::Registration(bytes) = case.what {
            return self.register(case, bytes);
        }
        let programs = programs::of(case, self.seconds, &self.folder);
        let mut server = self.start(Side::Box, &programs.server)?;
        server.wait_until("that it listens", PATIENCE, |server| match programs.port {
            Some(port) => server.listens_at(port),
            None => server.log().contains("ready"),
        })?;
        let mut client = self.start(Side::Host, &programs.client)?;
        let status = client.wait(PATIENCE + Duration::from_secs(10 * self.seconds))?;
        let log = client.log();
        ensure!(status.success(), "{status}: {}", log.trim());
        (programs.parse)(&log).with_context(|| format!("it said {log}"))
    }

    /// One run of the program measures all ways, in turn.
    fn register(&mut self, case: Case, bytes: u32) -> Result<f64> {
        if let Some(value) = self.told.remove(&case) {
            return Ok(value);
        }
        let program = self.folder.join("examples/registration").display().to_string();
        let mut process = self.start(Side::Host, &[program, bytes.to_string()])?;
        let status = process.wait(2 * PATIENCE)?;
        let log = process.log();
        ensure!(status.success(), "{status}: {}", log.trim());
        let values = programs::registration(&log, bytes).with_context(|| format!("it said {log}"))?;
        self.told.extend(Way::REGISTRARS.map(|way| Case { way, ..case }).into_iter().zip(values));
        self.told.remove(&case).context("it is no way to register")
    }
}

/// Whether all bars were met, if they are asked for. `cpus` are those of clients and servers.
pub(crate) fn run(choices: Choices, cpus: [u16; 2], stop: &Stop) -> Result<bool> {
    let rounds = choices.rounds.unwrap_or(if choices.is_quick { 3 } else { 5 });
    let seconds = choices.seconds.unwrap_or(1);
    let mut bed = Bed::new(cpus, seconds)?;
    let mut machine = Machine::look(None);
    machine.versions = programs::versions();
    let bars = bars();
    let needed = |case: &Case| bars.iter().any(|(_, above, below, _)| [above, below].contains(&case));
    let all = cases();
    let cases: Vec<Case> = all.into_iter().filter(|case| !choices.is_bars_alone() || needed(case)).collect();
    let turn = |case| {
        // One that fails is no reason to do without the others.
        Ok(bed.measure(case).unwrap_or_else(|error| {
            eprintln!("bench: {}: {error:#}", name(case));
            f64::NAN
        }))
    };
    let rows = section::measure(&cases, rounds, stop, name, |value| digits(*value), turn)?;
    let seconds = Some(seconds as f64);
    let record = Record { benchmark: "rdma", machine: machine.ended(), rounds, seconds, bytes: None, rows };
    let bars = bars.into_iter().map(|(name, above, below, limit)| (name, record.ratio(above, below), limit));
    section::finish(choices, &record, bars, &markdown(&record), [])
}

impl Record {
    fn ratio(&self, above: Case, below: Case) -> Option<Spread> {
        Spread::of_ratios(self.turns(above)?, self.turns(below)?)
    }

    fn spread(&self, case: Case) -> Option<Spread> {
        Spread::of(self.turns(case)?.iter().copied().filter(|value| value.is_finite()))
    }

    /// A table of what these ways measured, and ratios of two of them; none if they measured nothing.
    fn table(&self, ways: &[Way], ratios: &[(Way, Way)]) -> String {
        let mut whats: Vec<What> = Vec::new();
        for row in self.rows.iter().filter(|row| ways.contains(&row.case.way)) {
            if !whats.contains(&row.case.what) {
                whats.push(row.case.what);
            }
        }
        let heads = ways.iter().map(|way| way.name().to_owned());
        let ratio_heads = ratios.iter().map(|(above, below)| format!("{} / {}", above.name(), below.name()));
        let heads: Vec<String> = heads.chain(ratio_heads).collect();
        let mut out = format!("| | {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len() + 1));
        let shown =
            |spread: Option<Spread>| spread.map_or_else(|| "-".to_owned(), |spread| spread.to_string());
        for what in whats {
            let values = ways.iter().map(|&way| shown(self.spread(Case { way, what })));
            let ratios = ratios.iter().map(|&(above, below)| {
                shown(self.ratio(Case { way: above, what }, Case { way: below, what }))
            });
            let cells: Vec<String> = values.chain(ratios).collect();
            // Writing to a string does not fail.
            let _ = writeln!(out, "| {} | {} |", what.name(), cells.join(" | "));
        }
        out
    }
}

fn markdown(record: &Record) -> String {
    let Record { machine, rounds, .. } = record;
    let versions: Vec<String> =
        machine.versions.iter().map(|(name, version)| format!("{name} ({version})")).collect();
    format!(
        "`./run bench rdma`: medians of {rounds} interleaved rounds and their ends; a veth pair with an MTU of 9000, a core a side; {machine}; {}. Latencies \
         are one way. libfabric's rates are of a ping-pong.\n\n{}\nRegistration, of memory that is there:\n\n{}\n",
        versions.join(", "),
        record.table(&Way::MOVERS, &[(Way::Verbs, Way::UcxTcp), (Way::Verbs, Way::Raw)]),
        record.table(&Way::REGISTRARS, &[(Way::Region, Way::Lock), (Way::PageList, Way::Lock)]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_compares_what_is_measured() {
        let cases = cases();
        for (name, above, below, _) in bars() {
            assert!(cases.contains(&above) && cases.contains(&below), "{name}");
        }
        let apart: std::collections::BTreeSet<Case> = cases.iter().copied().collect();
        assert_eq!(apart.len(), cases.len(), "none is measured twice a round");
    }

    #[test]
    fn the_page_has_all_ways_and_a_turn_that_failed_is_in_no_median() {
        let turns = |case: &Case| match case.way {
            Way::Verbs => vec![6.0, f64::NAN, 6.0],
            Way::UcxTcp => vec![2.0, 2.0, 2.0],
            _ => vec![1.0; 3],
        };
        let rows = cases().into_iter().map(|case| section::Row { case, turns: turns(&case) }).collect();
        let machine = Machine::default();
        let record = Record { benchmark: "rdma", machine, rounds: 3, seconds: None, bytes: None, rows };
        let text = markdown(&record);
        assert!(text.contains("| write 64 KiB, GB/s | 6.00 (6.00-6.00) | 1.00"), "{text}");
        assert!(text.contains("| 3.00 (3.00-3.00) | 6.00 (6.00-6.00) |"), "{text}");
        assert!(text.contains("| 1 GiB, us | 1.00"), "{text}");
        let short = bars().into_iter().filter(|(_, above, below, limit)| {
            let verdict = crate::check::Verdict::new(record.ratio(*above, *below).unwrap(), *limit);
            !verdict.is_met
        });
        assert_eq!(short.count(), 5, "the latency, and all of registration");
    }
}
