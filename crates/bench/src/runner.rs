//! Turns, in turn: every round measures every point once, contender beside contender.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::bed::Bed;
use crate::benchmark::Point;
use crate::contender::Setup;
use crate::load::{Figures, Load};
use crate::machine::Machine;
use crate::peer::{Peer, cpu_seconds};
use crate::record::{LeftOut, Record, Row};

/// A point that fails so often in a row is left out.
const FAILURES: u32 = 2;

/// How long, and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) rounds: u32,
    /// Of one turn.
    pub(crate) time: Duration,
}

/// Set when a person wants the end.
pub(crate) type Stop = Arc<AtomicBool>;

struct Runner<'a> {
    bed: &'a Bed,
    time: Duration,
    peers: BTreeMap<Setup, Box<dyn Peer>>,
    failures: BTreeMap<(Setup, Load), u32>,
    /// Those that could not be set up.
    broken: BTreeSet<Setup>,
    left_out: Vec<LeftOut>,
}

/// Measures all points; `name` is for the record.
pub(crate) fn run(bed: &Bed, name: &str, points: &[Point], pace: Pace, stop: &Stop) -> Result<Record> {
    let machine = Machine::look(bed.choices.spdk.as_deref());
    let mut runner = Runner {
        bed,
        time: pace.time,
        peers: BTreeMap::new(),
        failures: BTreeMap::new(),
        broken: BTreeSet::new(),
        left_out: Vec::new(),
    };
    let setups: BTreeSet<Setup> = points.iter().map(|point| point.setup).collect();
    bed.reserve_huge_pages(setups.iter().map(|setup| setup.huge_mib(bed.choices.memory_mib)).sum());
    runner.start(points, stop)?;
    let mut rows: Vec<Row> = Vec::new();
    for point in points {
        if runner.peers.get(&point.setup).is_some_and(|peer| peer.takes(&point.load)) {
            rows.push(Row { setup: point.setup, load: point.load, x: point.x, turns: Vec::new() });
        }
    }
    for round in 1..=pace.rounds {
        for row in &mut rows {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            let figures = runner.turn(row.setup, &row.load);
            let result =
                figures.map_or_else(|| "-".to_owned(), |figures| format!("{:.1} k IOPS", figures.iops / 1e3));
            eprintln!(
                "bench: {name}, round {round}: {}, {}: {result}",
                row.setup.contender.name(),
                row.load.name()
            );
            row.turns.push(figures);
        }
    }
    Ok(Record {
        benchmark: name.to_owned(),
        machine: machine.ended(),
        rounds: pace.rounds,
        seconds: pace.time.as_secs_f64(),
        memory_mib: bed.choices.memory_mib,
        rows,
        left_out: runner.left_out,
    })
}

impl Runner<'_> {
    /// Starts all servers, and has them rest.
    fn start(&mut self, points: &[Point], stop: &Stop) -> Result<()> {
        for Point { setup, .. } in points {
            if stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if self.peers.contains_key(setup) || self.broken.contains(setup) {
                continue;
            }
            match setup.start(self.bed) {
                Ok(mut peer) => {
                    let rests = peer.rests();
                    if let Some(server) = peer.server().filter(|_| rests) {
                        server.pause();
                    }
                    self.peers.insert(*setup, peer);
                }
                Err(error) => {
                    self.broken.insert(*setup);
                    self.leave_out(*setup, None, &format!("{error:#}"));
                }
            }
        }
        Ok(())
    }

    /// Without a load, the whole setup is.
    fn leave_out(&mut self, setup: Setup, load: Option<&Load>, reason: &str) {
        let usual = Setup::new(setup.contender);
        let differs = (setup != usual).then(|| setup.differences());
        let point: Vec<String> = differs.into_iter().chain(load.map(|load| load.name())).collect();
        let point = (!point.is_empty()).then(|| point.join(", "));
        // The first line is the cause; what follows may name files of this run.
        let first = reason.lines().next().unwrap_or_default().to_owned();
        let one = LeftOut { contender: setup.contender, point, reason: first };
        eprintln!("bench: left out: {one}");
        if !self.left_out.iter().any(|other| other.to_string() == one.to_string()) {
            self.left_out.push(one);
        }
    }

    /// One turn of one contender. While it lasts, its server is the only one that runs.
    fn turn(&mut self, setup: Setup, load: &Load) -> Option<Figures> {
        if self.failures.get(&(setup, *load)) == Some(&FAILURES) {
            return None;
        }
        let peer = self.peers.get_mut(&setup)?;
        let rests = peer.rests();
        let pid = peer.server().map(|server| server.pid());
        if let Some(server) = peer.server() {
            server.resume();
        }
        let before = pid.and_then(cpu_seconds);
        let measured = peer.measure(self.bed, load, self.time);
        let after = pid.and_then(cpu_seconds);
        if let Some(server) = peer.server().filter(|_| rests) {
            server.pause();
        }
        match measured {
            Ok(figures) => {
                self.failures.remove(&(setup, *load));
                let accesses = figures.iops * self.time.as_secs_f64();
                let cost = after.zip(before).map(|(after, before)| (after - before) * 1e6 / accesses);
                Some(Figures { server_us: cost, ..figures })
            }
            Err(error) => {
                eprintln!("bench: {}, {}: {error:#}", setup.contender.name(), load.name());
                let failures = self.failures.entry((setup, *load)).or_default();
                *failures += 1;
                if *failures == FAILURES {
                    self.leave_out(setup, Some(load), &format!("{error:#}"));
                }
                None
            }
        }
    }
}
