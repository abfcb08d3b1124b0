//! `./run bench s5`: copies between two disks of a box, past the host and through it, on a slow and on a quick link of the host.
//!
//! One box has all disks, in its memory: pairs that are as quick as those of the published experiment, and one that is as quick as it can be.
//! Every case is measured once a round, in turn.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use etherslot_lab::{
    BOX_MAC, Daemon, INTERFACE, KEY_VARIABLE, Net, NetOptions, Role, Run, Side, ensure_nbd_clients,
    ensure_net, etherslot_command, node_keys,
};
use serde::Serialize;
use serde_json::Value;

use crate::check::Limit;
use crate::machine::Machine;
use crate::runner::Stop;
use crate::section::{self, Choices};
use crate::statistic::Spread;

/// Of the published devices, bytes a second.
const RATE: u64 = 250_000_000;
/// Pairs of such devices.
const PAIRS: usize = 8;
const X1: u64 = 2_000_000_000;
const X8: u64 = 16_000_000_000;
const PATIENCE: Duration = Duration::from_secs(20);

/// How data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Way {
    /// In the DC buffer.
    Direct,
    /// In the memory of `etherslot copy`.
    Host,
    /// By nbdcopy and `etherslot export`.
    Nbdcopy,
    /// By dd, on files that nbdfuse makes of the same exports.
    Dd,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Case {
    way: Way,
    /// Of the host's link, bits a second; 0: as it is.
    link: u64,
    /// Whether the devices are those of the published rate.
    is_limited: bool,
    pairs: usize,
    /// Commands under way for each pair; found out without it.
    outstanding: Option<u16>,
}

/// How it went.
#[derive(Clone, Copy, Debug, Serialize)]
struct Turn {
    bytes: u64,
    bytes_per_second: f64,
    /// On the host's link, by the counters of our Port.
    port_bytes: Option<u64>,
    /// The same by the counters of the kernel's bridge.
    bridge_bytes: u64,
}

const fn case(way: Way, link: u64, is_limited: bool, pairs: usize, outstanding: Option<u16>) -> Case {
    Case { way, link, is_limited, pairs, outstanding }
}

/// What the bars need, and, unless only those are asked for, the curves.
fn cases(is_check: bool) -> Vec<Case> {
    let mut cases = vec![
        case(Way::Direct, X1, true, 1, None),
        case(Way::Direct, X1, true, PAIRS, None),
        case(Way::Direct, X1, false, 1, None),
        case(Way::Host, X1, false, 1, None),
        case(Way::Direct, 0, false, 1, None),
        case(Way::Nbdcopy, 0, false, 1, None),
        case(Way::Dd, 0, false, 1, None),
    ];
    if !is_check {
        cases.extend([Way::Direct, Way::Host].map(|way| case(way, X8, true, 1, None)));
        cases.extend([Way::Direct, Way::Host].map(|way| case(way, X8, false, 1, None)));
        cases.push(case(Way::Host, X1, true, 1, None));
        cases.push(case(Way::Host, 0, false, 1, None));
        cases.extend([2, 4].map(|pairs| case(Way::Direct, X1, true, pairs, None)));
        for outstanding in [1, 2, 4, 8, 16, 32] {
            cases.extend(
                [true, false].map(|is_limited| case(Way::Direct, X1, is_limited, 1, Some(outstanding))),
            );
        }
    }
    cases
}

/// The bars: name, what is measured above, and below.
fn bars() -> [(&'static str, Case, Below, Limit); 5] {
    let direct = |link, is_limited, pairs| case(Way::Direct, link, is_limited, pairs, None);
    let one = direct(X1, true, 1);
    [
        ("S5: direct / device rate, x1", one, Below::Rate, Limit::AtLeast(0.95)),
        (
            "S5: direct / through the host, x1, unlimited devices",
            direct(X1, false, 1),
            Below::Case(case(Way::Host, X1, false, 1, None)),
            Limit::AtLeast(3.0),
        ),
        ("S5: bytes on the host's link / bytes copied", one, Below::Copied, Limit::AtMost(0.01)),
        ("S5: 8 pairs / 1 pair, x1", direct(X1, true, PAIRS), Below::Case(one), Limit::AtLeast(7.5)),
        (
            "S5: direct / the faster of nbdcopy and dd through the host, unlimited",
            direct(0, false, 1),
            Below::Faster([Way::Nbdcopy, Way::Dd].map(|way| case(way, 0, false, 1, None))),
            Limit::AtLeast(1.5),
        ),
    ]
}

/// What a bar compares with.
#[derive(Clone, Copy, Debug)]
enum Below {
    Case(Case),
    /// That which is quicker, by its median.
    Faster([Case; 2]),
    /// What the devices do at most.
    Rate,
    /// Bytes on the link of a case with what it copied.
    Copied,
}

type Record = section::Record<Case, Turn>;

/// A box with all disks, and the cable to it.
struct Bed {
    run: Run,
    net: Net,
    io_box: Daemon,
    bytes: u64,
}

impl Bed {
    fn new(bytes: u64) -> Result<Self> {
        ensure_net()?;
        ensure_nbd_clients()?;
        let run = Run::new("bench-s5")?;
        let net = Net::new(&run, NetOptions { mtu: 9000 })?;
        let io_box = Daemon::start(&run, &net, Role::Box, "box", &box_config(bytes))?;
        Ok(Self { run, net, io_box, bytes })
    }

    /// Bytes of each pair: those of several pairs are smaller, as memory is not without end.
    fn pair_bytes(&self, pairs: usize) -> u64 {
        if pairs == 1 { self.bytes } else { self.bytes / 4 }
    }

    fn bridge_bytes(&self) -> Result<u64> {
        let traffic = self.net.traffic()?;
        Ok(traffic.host_bytes + traffic.box_bytes)
    }

    fn measure(&self, case: Case) -> Result<Turn> {
        let limit = (case.link != 0).then_some(case.link);
        for side in [Side::Host, Side::Box] {
            self.net.limit_rate(side, limit)?;
        }
        let before = self.bridge_bytes()?;
        let (bytes, seconds, port_bytes) = match case.way {
            Way::Nbdcopy => self.nbdcopy(case)?,
            Way::Dd => self.dd(case)?,
            Way::Direct | Way::Host => self.copy(case)?,
        };
        Ok(Turn {
            bytes,
            bytes_per_second: bytes as f64 / seconds,
            port_bytes,
            bridge_bytes: self.bridge_bytes()? - before,
        })
    }

    fn copy(&self, case: Case) -> Result<(u64, f64, Option<u64>)> {
        let mut command = self.command("copy")?;
        for pair in 0..case.pairs {
            let bytes = self.pair_bytes(case.pairs);
            let [source, target] = disks(case.is_limited, pair);
            command.args([format!("{source}:0+{bytes}"), format!("{target}:0+{bytes}")]);
        }
        if case.way == Way::Direct {
            command.args(["--buffer", &format!("dc@{BOX_MAC}")]);
        }
        if let Some(outstanding) = case.outstanding {
            command.args(["--outstanding", &outstanding.to_string()]);
        }
        command.args(["--output", "json", "--checkpoint", "0"]);
        let output = command.output()?;
        ensure!(output.status.success(), "copy: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let number = |name: &str| report[name].as_u64().with_context(|| format!("no {name} in {report}"));
        let seconds = report["seconds"].as_f64().context("no seconds")?;
        Ok((number("bytes")?, seconds, Some(number("link_tx_bytes")? + number("link_rx_bytes")?)))
    }

    /// Source and target, as NBD disks.
    fn exports(&self, case: Case) -> Result<[Export; 2]> {
        let [source, target] = disks(case.is_limited, 0);
        Ok([Export::start(self, "source", &source)?, Export::start(self, "target", &target)?])
    }

    fn nbdcopy(&self, case: Case) -> Result<(u64, f64, Option<u64>)> {
        let exports = self.exports(case)?;
        let begun = Instant::now();
        let status = Command::new("nbdcopy").args(exports.iter().map(|export| &export.uri)).status()?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(status.success(), "nbdcopy: {status}");
        Ok((self.bytes, seconds, None))
    }

    fn dd(&self, case: Case) -> Result<(u64, f64, Option<u64>)> {
        let exports = self.exports(case)?;
        let [source, target] = &exports;
        let files = [Mounted::new(self, "source", source)?, Mounted::new(self, "target", target)?];
        let [from, to] = files.each_ref().map(|mounted| mounted.file.display());
        let begun = Instant::now();
        // As much as a request of FUSE carries.
        let output = Command::new("dd")
            .args([
                &format!("if={from}"),
                &format!("of={to}"),
                "bs=1M",
                "conv=notrunc",
                "iflag=direct",
                "oflag=direct",
            ])
            .output()?;
        let seconds = begun.elapsed().as_secs_f64();
        ensure!(output.status.success(), "dd: {}", String::from_utf8_lossy(&output.stderr));
        Ok((self.bytes, seconds, None))
    }

    fn command(&self, name: &str) -> Result<Command> {
        let mut command = etherslot_command(&self.net, Side::Host)?;
        command.env(KEY_VARIABLE, node_keys(&self.run, name)?);
        command.args([name, "--link", &format!("packet:{INTERFACE}")]).stdin(Stdio::null());
        Ok(command)
    }
}

/// A disk as an NBD disk.
struct Export {
    child: Child,
    uri: String,
}

impl Export {
    fn start(bed: &Bed, side: &str, disk: &str) -> Result<Self> {
        let socket = bed.run.path(&format!("{side}.nbd"));
        let mut command = bed.command("export")?;
        command.args([disk, "--name", side, "--nbd"]).arg(&socket);
        command.stderr(fs::File::create(bed.run.path(&format!("export-{side}.log")))?);
        let child = command.spawn()?;
        let export = Self { child, uri: format!("nbd+unix:///{side}?socket={}", socket.display()) };
        let until = Instant::now() + PATIENCE;
        while !Command::new("nbdinfo").arg(&export.uri).output()?.status.success() {
            ensure!(Instant::now() < until, "no export of {disk}");
            sleep(Duration::from_millis(50));
        }
        Ok(export)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // It gives its device back in order, for the next turn.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

/// An NBD disk as a file, for programs that know no other.
struct Mounted {
    child: Child,
    folder: PathBuf,
    file: PathBuf,
}

impl Mounted {
    fn new(bed: &Bed, side: &str, export: &Export) -> Result<Self> {
        let folder = bed.run.path(&format!("{side}.mounted"));
        fs::create_dir_all(&folder)?;
        let file = folder.join("disk");
        let child = Command::new("nbdfuse").arg(&file).arg(&export.uri).stdin(Stdio::null()).spawn()?;
        let mut mounted = Self { child, folder, file };
        let until = Instant::now() + PATIENCE;
        while !mounted.file.exists() {
            let ended = mounted.child.try_wait()?;
            ensure!(ended.is_none() && Instant::now() < until, "nbdfuse does not mount {side}");
            sleep(Duration::from_millis(20));
        }
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // nbdfuse ends with that.
        let _ = Command::new("umount").arg(&self.folder).status();
        let _ = self.child.wait();
    }
}

/// The two disks of a pair.
fn disks(is_limited: bool, pair: usize) -> [String; 2] {
    let kind = if is_limited { "r" } else { "u" };
    ["s", "t"].map(|side| format!("{kind}{side}{pair}@{BOX_MAC}"))
}

fn box_config(bytes: u64) -> String {
    let mut text =
        format!("[node]\nname = \"box\"\n[link]\nkind = \"packet\"\ninterface = \"{INTERFACE}\"\n");
    let mut device = |name: &str, rate: &str, bytes: u64| {
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "[[device]]\nkind = \"nvme\"\nname = \"{name}\"\nserial = \"{name}\"\n{rate}\
             [[device.namespace]]\nmemory = \"{bytes} B\"\n"
        );
    };
    for side in ["s", "t"] {
        for pair in 0..PAIRS {
            let rate = format!("rate = \"{RATE} B/s\"\n");
            device(&format!("r{side}{pair}"), &rate, if pair == 0 { bytes } else { bytes / 4 });
        }
        device(&format!("u{side}0"), "", bytes);
    }
    text + "[[device]]\nkind = \"dc\"\nname = \"dc\"\nserial = \"DC\"\nsize = \"256 MiB\"\n"
}

/// Whether all bars were met, if they are asked for.
pub(crate) fn run(choices: Choices, stop: &Stop) -> Result<bool> {
    let bytes: u64 = if choices.is_quick { 64 << 20 } else { 1 << 30 };
    let rounds = choices.rounds.unwrap_or(if choices.is_quick { 2 } else { 10 });
    let machine = Machine::look(None);
    let mut bed = Bed::new(bytes)?;
    let cases = cases(choices.is_bars_alone());
    let shown = |turn: &Turn| format!("{:.0} MB/s", turn.bytes_per_second / 1e6);
    let rows = section::measure(&cases, rounds, stop, name, shown, |case| bed.measure(case))?;
    bed.io_box.stop()?;
    let record =
        Record { benchmark: "s5", machine: machine.ended(), rounds, seconds: None, bytes: Some(bytes), rows };
    let bars =
        bars().map(|(name, above, below, limit)| (name.to_owned(), ratio(&record, above, below), limit));
    section::finish(choices, &record, bars, &markdown(&record), [])
}

fn ratio(record: &Record, above: Case, below: Below) -> Option<Spread> {
    let values = |case: Case, value: fn(&Turn) -> f64| -> Option<Vec<f64>> {
        Some(record.turns(case)?.iter().map(value).collect())
    };
    let speed = |turn: &Turn| turn.bytes_per_second;
    let (above, below) = match below {
        Below::Faster(cases) => {
            let of = |case| values(case, speed);
            let median =
                |values: &Vec<f64>| Spread::of(values.iter().copied()).map_or(0.0, |spread| spread.median);
            let [one, other] = [of(cases[0])?, of(cases[1])?];
            let faster = if median(&one) >= median(&other) { one } else { other };
            (values(above, speed)?, faster)
        }
        Below::Case(case) => (values(above, speed)?, values(case, speed)?),
        Below::Rate => {
            let above = values(above, speed)?;
            let rates = vec![RATE as f64; above.len()];
            (above, rates)
        }
        Below::Copied => {
            let on_link = |turn: &Turn| turn.bridge_bytes.max(turn.port_bytes.unwrap_or(0)) as f64;
            (values(above, on_link)?, values(above, |turn| turn.bytes as f64)?)
        }
    };
    Spread::of_ratios(&above, &below)
}

fn name(case: Case) -> String {
    let way = match case.way {
        Way::Direct => "direct",
        Way::Host => "through the host",
        Way::Nbdcopy => "nbdcopy",
        Way::Dd => "dd",
    };
    let link = match case.link {
        0 => "free link".to_owned(),
        bits => format!("{} Gbit/s", bits / 1_000_000_000),
    };
    let devices = if case.is_limited { "250 MB/s devices" } else { "unlimited devices" };
    let outstanding = case.outstanding.map(|count| format!(", {count} outstanding")).unwrap_or_default();
    let pairs = if case.pairs == 1 { String::new() } else { format!(", {} pairs", case.pairs) };
    format!("{way}, {link}, {devices}{pairs}{outstanding}")
}

fn markdown(record: &Record) -> String {
    let Record { machine, rounds, bytes, rows, .. } = record;
    let mut out = format!(
        "`./run bench s5`: {} MiB between two NVMe models of one box, a quarter of it for each of several pairs; medians of {rounds} interleaved \
         rounds and their ends; {machine}. Bytes on the host's link are what entered the kernel's bridge, for each byte that was \
         copied.\n\n| case | MB/s | bytes on the host's link |\n|---|---|---|\n",
        bytes.unwrap_or_default() >> 20,
    );
    for section::Row { case, turns } in rows {
        let speed = Spread::of(turns.iter().map(|turn| turn.bytes_per_second / 1e6));
        let share = Spread::of(turns.iter().map(|turn| turn.bridge_bytes as f64 / turn.bytes as f64));
        if let (Some(speed), Some(share)) = (speed, share) {
            let Spread { median, least, most } = speed;
            // Writing to a string does not fail.
            let _ = writeln!(
                out,
                "| {} | {median:.0} ({least:.0}-{most:.0}) | {:.4} |",
                name(*case),
                share.median
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_has_what_it_compares_among_what_is_measured() {
        for is_check in [true, false] {
            let cases = cases(is_check);
            for (name, above, below, _) in bars() {
                assert!(cases.contains(&above), "{name}");
                let compared = match below {
                    Below::Case(below) => vec![below],
                    Below::Faster(below) => below.to_vec(),
                    Below::Rate | Below::Copied => Vec::new(),
                };
                assert!(compared.iter().all(|below| cases.contains(below)), "{name}");
            }
            let mut apart = cases.clone();
            apart.sort_unstable();
            apart.dedup();
            assert_eq!(apart.len(), cases.len(), "none is measured twice a round");
        }
    }

    #[test]
    fn ratios_are_of_speeds_but_for_what_is_on_the_link() {
        let turn = |speed, bridge_bytes| Turn {
            bytes: 1000,
            bytes_per_second: speed,
            port_bytes: Some(3),
            bridge_bytes,
        };
        let [one, other] = [case(Way::Direct, X1, true, 1, None), case(Way::Host, X1, true, 1, None)];
        let rows = vec![
            section::Row { case: one, turns: vec![turn(2.5e8, 5), turn(2.5e8, 2)] },
            section::Row { case: other, turns: vec![turn(1e8, 2000); 2] },
        ];
        let machine = Machine::default();
        let record = Record { benchmark: "s5", machine, rounds: 2, seconds: None, bytes: None, rows };
        let median = |below| ratio(&record, one, below).unwrap().median;
        assert!((median(Below::Case(other)) - 2.5).abs() < 1e-9);
        for cases in [[one, other], [other, one]] {
            assert!(
                (median(Below::Faster(cases)) - 1.0).abs() < 1e-9,
                "the slower of the two does not count"
            );
        }
        assert!((median(Below::Rate) - 1.0).abs() < 1e-9);
        assert!((median(Below::Copied) - 0.004).abs() < 1e-9, "the larger of the two counts");
        assert!(ratio(&record, case(Way::Nbdcopy, 0, true, 1, None), Below::Rate).is_none());
    }
}
