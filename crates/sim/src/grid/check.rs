//! The bars that EFE is held to, and whether it reaches them.

use core::fmt;

use super::cell::{Cell, Load};
use super::link::{Faults, Loss};
use super::outcome::Outcome;
use super::sweep::Sweep;

/// The contender that is held to the bars, and the one it replaces.
pub(crate) const OURS: &str = "efe";
const CLASSIC: &str = "classic";

/// A value, and the bar it is held to.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Which bar.
    pub name: &'static str,
    /// Where.
    pub cell: String,
    /// What was measured.
    pub value: f64,
    /// What is asked.
    pub bar: f64,
    /// Whether the value has to be at most the bar; otherwise at least.
    pub is_most: bool,
}

impl Finding {
    /// Whether the bar is reached.
    pub fn is_ok(&self) -> bool {
        if self.is_most { self.value <= self.bar } else { self.value >= self.bar }
    }

    /// How far the value is from the bar, as a share of it; negative if it is short of it.
    fn margin(&self) -> f64 {
        let margin = (self.value - self.bar) / self.bar.max(1e-9);
        if self.is_most { -margin } else { margin }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cell, value, bar, .. } = self;
        write!(f, "{name}/{cell} {value:.4} {bar} {}", if self.is_ok() { "ok" } else { "short" })
    }
}

fn loss_percent(cell: &Cell) -> f64 {
    match cell.faults.loss {
        Loss::None => 0.0,
        Loss::Ppm(ppm) => f64::from(ppm) / 1e4,
        Loss::Bursts { begin_ppm, end_ppm, loss_ppm } => {
            f64::from(loss_ppm) / 1e4 * f64::from(begin_ppm) / f64::from(begin_ppm + end_ppm)
        }
    }
}

fn is_clean(cell: &Cell) -> bool {
    let quiet = Faults { jitter_ns: 0, ..cell.faults } == Faults::default();
    quiet && !cell.is_reverse_loaded && !cell.restarts && !cell.joins
}

/// Goodput that is asked of a saturated cell.
fn least_goodput(cell: &Cell) -> Option<(&'static str, f64)> {
    let loss = loss_percent(cell);
    if is_clean(cell) {
        Some(("goodput-clean", 0.97))
    } else if (0.9..1.1).contains(&loss) {
        Some(("goodput-loss-1", 0.93))
    } else if (4.5..5.5).contains(&loss) {
        Some(("goodput-loss-5", 0.85))
    } else {
        None
    }
}

#[allow(clippy::cast_precision_loss)]
fn ratio(above: u64, below: u64) -> f64 {
    above as f64 / below.max(1) as f64
}

/// The bars of one cell.
#[allow(clippy::cast_precision_loss)]
fn judge(sweep: &Sweep, cell: &Cell, ours: &Outcome, findings: &mut Vec<Finding>) {
    let mut add = |name, value, bar, is_most| {
        findings.push(Finding { name, cell: cell.name.clone(), value, bar, is_most });
    };
    let is_steady = cell.change.is_none() && !cell.restarts && !cell.joins;
    match cell.load {
        Load::Bulk => {
            if let Some((name, bar)) = least_goodput(cell) {
                add(name, ours.mean_goodput(), bar, false);
            }
            if is_steady {
                add("queue-p99", ratio(ours.queue_ns(0.99), cell.target_ns()), 1.2, true);
            }
            if is_steady && cell.fan_in > 1 {
                add("jain", ours.mean_jain(), 0.95, false);
            }
        }
        Load::Open { .. } if loss_percent(cell) > 0.0 => {
            if let Some(classic) = sweep.outcome(&cell.name, CLASSIC) {
                add(
                    "latency-p99-classic",
                    ratio(classic.latency_ns(0.99), ours.latency_ns(0.99)),
                    3.0,
                    false,
                );
            }
        }
        Load::Incast { .. } => {
            add("incast-p99", ours.completion_permille(0.99) as f64 / 1e3, 1.1, true);
        }
        Load::Mixed { is_loaded: true } => {
            let idle = sweep.rows().find(|(cell, _)| cell.load == Load::Mixed { is_loaded: false });
            if let Some(idle) = idle.and_then(|(idle, _)| sweep.outcome(&idle.name, OURS)) {
                add("mixed-p99", ratio(ours.round_trip_ns(0.99), idle.round_trip_ns(0.99)), 2.0, true);
            }
        }
        Load::Open { .. } | Load::Mixed { .. } => {}
    }
    if matches!(cell.load, Load::Bulk | Load::Open { .. }) {
        let others = sweep.contenders.iter().filter(|contender| contender.name != OURS);
        let best = others
            .filter_map(|contender| sweep.outcome(&cell.name, contender.name))
            .map(Outcome::mean_goodput)
            .fold(0.0, f64::max);
        if best > 0.0 {
            add("best-other", ours.mean_goodput() / best, 0.97, false);
        }
    }
}

/// Every bar in every cell it applies to.
#[allow(clippy::cast_precision_loss)]
pub fn findings(sweep: &Sweep) -> Vec<Finding> {
    let outcomes = || sweep.rows().flat_map(|(_, outcomes)| outcomes);
    let none = |name, value: u64| Finding {
        name,
        cell: "all".to_owned(),
        value: value as f64,
        bar: 0.0,
        is_most: true,
    };
    let mut findings = vec![
        none("violations", outcomes().map(|outcome| outcome.violations.total()).sum()),
        none("sessions-dead", outcomes().map(|outcome| u64::from(outcome.dead)).sum()),
    ];
    for (cell, _) in sweep.rows() {
        if let Some(ours) = sweep.outcome(&cell.name, OURS) {
            judge(sweep, cell, ours, &mut findings);
        }
    }
    findings
}

/// Of every bar the cells that are short of it, or, if none is, the one that is nearest.
pub fn summary(findings: &[Finding]) -> Vec<&Finding> {
    let mut names: Vec<&str> = Vec::new();
    for finding in findings {
        if !names.contains(&finding.name) {
            names.push(finding.name);
        }
    }
    let mut summary = Vec::new();
    for name in names {
        let of_bar = || findings.iter().filter(|finding| finding.name == name);
        let nearest = of_bar().min_by(|one, other| one.margin().total_cmp(&other.margin()));
        summary.extend(of_bar().filter(|finding| !finding.is_ok()));
        summary.extend(nearest.filter(|finding| finding.is_ok()));
    }
    summary
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::{cells, contender};

    fn finding(name: &'static str, value: f64, bar: f64, is_most: bool) -> Finding {
        Finding { name, cell: "here".to_owned(), value, bar, is_most }
    }

    #[test]
    fn the_summary_has_all_that_is_short_or_the_nearest() {
        let findings = [
            finding("a", 0.99, 0.97, false),
            finding("a", 0.971, 0.97, false),
            finding("b", 1.3, 1.2, true),
            finding("b", 1.0, 1.2, true),
            finding("b", 1.4, 1.2, true),
            finding("c", 0.0, 0.0, true),
        ];
        let lines: Vec<String> = summary(&findings).iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "a/here 0.9710 0.97 ok",
                "b/here 1.3000 1.2 short",
                "b/here 1.4000 1.2 short",
                "c/here 0.0000 0 ok"
            ]
        );
    }

    #[test]
    fn every_bar_applies_to_some_cell() {
        let wanted =
            ["base", "loss-1", "loss-5", "open-50-loss-1", "incast-8x64K", "mixed-idle", "mixed-loaded"];
        let cells = cells().into_iter().filter(|cell| wanted.contains(&cell.name.as_str())).collect();
        let contenders = [OURS, CLASSIC].into_iter().filter_map(contender).collect();
        let sweep = Sweep::run(cells, contenders, 1, 2, |_, _, _| {});
        let findings = findings(&sweep);
        for name in [
            "violations",
            "sessions-dead",
            "goodput-clean",
            "goodput-loss-1",
            "goodput-loss-5",
            "queue-p99",
            "incast-p99",
            "jain",
            "latency-p99-classic",
            "best-other",
            "mixed-p99",
        ] {
            assert!(findings.iter().any(|finding| finding.name == name), "{name}");
        }
    }
}
