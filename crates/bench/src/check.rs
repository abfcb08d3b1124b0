//! The bars: what has to hold, as ratios of medians in one run.

use std::fmt::{self, Write as _};

use etherslot_lab::RigLink;

use crate::benchmark::{Measure, Point, depth_of, device_point};
use crate::contender::{Contender, Link, Setup};
use crate::load::{Direction, Load};
use crate::record::Record;
use crate::statistic::Spread;

/// Which side of the bar is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl Limit {
    fn holds(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, ">={}", told(*least)),
            Self::AtMost(most) => write!(f, "<={}", told(*most)),
        }
    }
}

/// One bar.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    above: Point,
    /// The best of them counts.
    below: Vec<Point>,
    measure: Measure,
    pub(crate) limit: Limit,
}

/// How a bar was met.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) ratio: Spread,
    pub(crate) is_met: bool,
}

impl Verdict {
    pub(crate) fn new(ratio: Spread, limit: Limit) -> Self {
        Self { ratio, is_met: limit.holds(ratio.median) }
    }
}

/// Which bars were met, and how many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) met: u32,
    pub(crate) short: u32,
    pub(crate) left_out: u32,
    lines: Vec<String>,
}

impl Tally {
    /// Counts a bar, and tells of it.
    pub(crate) fn line(&mut self, name: &str, verdict: Option<&Verdict>, limit: Limit) -> &str {
        match verdict {
            Some(Verdict { is_met: true, .. }) => self.met += 1,
            Some(Verdict { is_met: false, .. }) => self.short += 1,
            None => self.left_out += 1,
        }
        self.lines.push(line(name, verdict, limit));
        self.lines.last().map_or("", String::as_str)
    }

    /// All lines, for the page.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        for line in &self.lines {
            // Writing to a string does not fail.
            let _ = writeln!(out, "    {line}");
        }
        out + &format!("    {}\n\n", self.summary())
    }

    fn summary(&self) -> String {
        format!("bars: {} ok, {} short, {} left out", self.met, self.short, self.left_out)
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        f.write_str(&self.summary())
    }
}

/// `name ratio bar ok|short (spread)`.
/// A ratio: two digits behind the point, and more of small ones.
fn told(ratio: f64) -> String {
    if ratio < 0.095 { format!("{ratio:.4}") } else { format!("{ratio:.2}") }
}

fn line(name: &str, verdict: Option<&Verdict>, limit: Limit) -> String {
    match verdict {
        Some(Verdict { ratio: Spread { median, least, most }, is_met }) => {
            let word = if *is_met { "ok" } else { "short" };
            format!(
                "{name:<48} {median:>6} {limit:>7} {word:<5} ({least}-{most})",
                median = told(*median),
                limit = limit.to_string(),
                least = told(*least),
                most = told(*most),
            )
        }
        None => format!("{name:<48} {:>6} {:>7} left out", "-", limit.to_string()),
    }
}

fn point(contender: Contender, load: Load) -> Point {
    Point { setup: Setup::new(contender), load, x: 0 }
}

/// All bars but those of the guest.
pub(crate) fn bars() -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut add = |link: Link, load: Load, against: &[Contender], words: &str, least: f64| {
        bars.push(Bar {
            name: format!("{}: {} / {words}", load.name(), link.name()),
            above: point(Contender::Etherslot(link), load),
            below: against.iter().map(|&peer| point(peer, load)).collect(),
            measure: Measure::Kiops,
            limit: Limit::AtLeast(least),
        });
    };
    let (spdk, local) = ([Contender::Spdk], [Contender::Local]);
    for direction in Direction::BOTH {
        let load = Load { direction, block_bytes: 4096, depth: 1 };
        for (link, least) in [(Link::Packet, 1.0), (Link::Udp, 1.0), (Link::Ring, 2.5), (Link::Memif, 2.5)] {
            add(link, load, &spdk, "SPDK", least);
        }
        let load = Load { depth: 32, ..load };
        for (link, least) in [(Link::Udp, 1.3), (Link::Ring, 2.0), (Link::Memif, 2.0)] {
            add(link, load, &spdk, "SPDK", least);
        }
        for block_bytes in [128 << 10, 1 << 20] {
            let load = Load { direction, block_bytes, depth: depth_of(block_bytes) };
            add(Link::Udp, load, &[Contender::Spdk, Contender::Nbdkit], "best peer", 1.2);
            for link in [Link::Ring, Link::Memif] {
                add(link, load, &local, "local file", 0.6);
            }
        }
        for block_bytes in [4 << 10, 16 << 10, 128 << 10, 1 << 20] {
            let load = Load { direction, block_bytes, depth: depth_of(block_bytes) };
            add(Link::Memif, load, &[Contender::Etherslot(Link::Published)], "published", 4.0);
        }
    }
    for direction in Direction::BOTH {
        bars.push(Bar {
            name: format!("{} 4 KiB: CPU time of the box, 64 devices / 1", direction.random()),
            above: device_point(direction, 64),
            below: vec![device_point(direction, 1)],
            measure: Measure::ServerTime,
            limit: Limit::AtMost(1.15),
        });
    }
    bars
}

/// What has to be measured for these bars, each once, loads together.
pub(crate) fn points(bars: &[Bar]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for point in bars.iter().flat_map(|bar| bar.below.iter().chain([&bar.above])) {
        if points.iter().all(|other| (other.setup, other.load) != (point.setup, point.load)) {
            points.push(*point);
        }
    }
    points.sort_by_key(|point| (point.load, point.setup));
    points
}

impl Bar {
    /// None if one of the two was not measured.
    pub(crate) fn verdict(&self, record: &Record) -> Option<Verdict> {
        let values = |point: &Point| Some(record.row(point.setup, point.load)?.values(self.measure));
        let above = values(&self.above)?;
        let below: Vec<Vec<f64>> = self.below.iter().filter_map(values).collect();
        let rounds = below.first()?.len();
        let best: Vec<f64> = (0..rounds)
            .map(|round| below.iter().map(|values| values[round]).fold(f64::NAN, f64::max))
            .collect();
        Some(Verdict::new(Spread::of_ratios(&above, &best)?, self.limit))
    }
}

/// A bar of the guest's: the remote drive over this link beside QEMU's own.
pub(crate) struct GuestBar {
    pub(crate) link: RigLink,
    pub(crate) load: Load,
    pub(crate) limit: Limit,
}

impl GuestBar {
    pub(crate) fn name(&self) -> String {
        let link = match self.link {
            RigLink::Packet => "packet",
            RigLink::Udp => "udp",
            RigLink::Ring => "ring",
        };
        format!("guest, {}: {link} / local", self.load.name())
    }
}

/// All bars of the guest's.
pub(crate) fn guest_bars() -> Vec<GuestBar> {
    let mut bars = Vec::new();
    for link in [RigLink::Udp, RigLink::Ring] {
        for block_bytes in [4 << 10, 128 << 10] {
            for direction in Direction::BOTH {
                let load = Load { direction, block_bytes, depth: 32 };
                bars.push(GuestBar { link, load, limit: Limit::AtLeast(0.8) });
            }
        }
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Figures;
    use crate::machine::Machine;
    use crate::record::Row;

    fn record(iops: impl Fn(Contender) -> Vec<f64>, points: &[Point]) -> Record {
        let row = |point: &Point| {
            let turn = |iops| Some(Figures { iops, server_us: Some(1.0), ..Figures::default() });
            let turns = iops(point.setup.contender).into_iter().map(turn).collect();
            Row { setup: point.setup, load: point.load, x: point.x, turns }
        };
        Record {
            benchmark: "check".to_owned(),
            machine: Machine::default(),
            rounds: 2,
            seconds: 1.0,
            memory_mib: 1,
            rows: points.iter().filter(|point| !iops(point.setup.contender).is_empty()).map(row).collect(),
            left_out: Vec::new(),
        }
    }

    #[test]
    fn the_best_of_the_peers_counts_round_by_round() {
        let bars = bars();
        let bar = bars.iter().find(|bar| bar.below.len() == 2).unwrap();
        let record = record(
            |contender| match contender {
                Contender::Etherslot(_) => vec![200.0, 300.0],
                Contender::Spdk => vec![100.0, 50.0],
                _ => vec![50.0, 150.0],
            },
            &points(&bars),
        );
        let verdict = bar.verdict(&record).unwrap();
        assert!(verdict.is_met);
        assert_eq!(verdict.ratio, Spread { median: 2.0, least: 2.0, most: 2.0 });
        assert!(line(&bar.name, Some(&verdict), bar.limit).contains(" ok "));
    }

    #[test]
    fn a_bar_without_its_peer_is_left_out_and_one_that_is_not_met_is_short() {
        let bars = bars();
        let slow = |contender| if contender == Contender::Spdk { vec![] } else { vec![100.0, 100.0] };
        let record = record(slow, &points(&bars));
        let mut tally = Tally::default();
        for bar in &bars {
            let verdict = bar.verdict(&record);
            let text = tally.line(&bar.name, verdict.as_ref(), bar.limit);
            let expected = match (bar.below[0].setup.contender, bar.limit) {
                (Contender::Spdk, _) if bar.below.len() == 1 => "left out",
                (_, Limit::AtLeast(least)) if least > 1.0 => "short",
                _ => "ok",
            };
            assert!(text.contains(expected), "{text}");
        }
        assert_eq!((tally.met + tally.short + tally.left_out) as usize, bars.len());
        assert!(tally.met > 0 && tally.short > 0 && tally.left_out > 0, "{tally}");
    }
}
