//! What a run measured, as it is kept in `bench/results`.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::benchmark::Measure;
use crate::contender::{Contender, Setup};
use crate::load::{Direction, Figures, Load};
use crate::machine::Machine;
use crate::statistic::Spread;

/// A run of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) benchmark: String,
    /// Where, with what, and of which commit.
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    /// Of one turn.
    pub(crate) seconds: f64,
    pub(crate) memory_mib: u32,
    pub(crate) rows: Vec<Row>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// A point, and what each of its turns measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    #[serde(flatten)]
    pub(crate) setup: Setup,
    #[serde(flatten)]
    pub(crate) load: Load,
    pub(crate) x: u32,
    /// One a round; none if that turn failed.
    pub(crate) turns: Vec<Option<Figures>>,
}

/// What was not measured, or not to the end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    pub(crate) contender: Contender,
    /// Which of its points, in words; all if it could not be set up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) point: Option<String>,
    /// Why.
    pub(crate) reason: String,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { contender, point, reason } = self;
        let point = point.as_ref().map(|point| format!(", {point}")).unwrap_or_default();
        write!(f, "{}{point} ({reason})", contender.name())
    }
}

impl Row {
    /// Round by round; NaN for a turn that failed, or that does not tell.
    pub(crate) fn values(&self, measure: Measure) -> Vec<f64> {
        let gigabytes = f64::from(self.load.block_bytes) / 1e9;
        let value = |figures: &Figures| match measure {
            Measure::Kiops => Some(figures.iops / 1e3),
            Measure::GigabytesPerSecond => Some(figures.iops * gigabytes),
            Measure::P50 => figures.p50_us,
            Measure::ServerTime => figures.server_us,
        };
        self.turns.iter().map(|turn| turn.as_ref().and_then(value).unwrap_or(f64::NAN)).collect()
    }

    pub(crate) fn spread(&self, measure: Measure) -> Option<Spread> {
        Spread::of(self.values(measure).into_iter().filter(|value| value.is_finite()))
    }
}

impl Record {
    /// The row of a setup and load.
    pub(crate) fn row(&self, setup: Setup, load: Load) -> Option<&Row> {
        self.rows.iter().find(|row| row.setup == setup && row.load == load)
    }

    /// Contenders with a row that measured something, in order.
    pub(crate) fn contenders(&self, direction: Direction) -> Vec<Contender> {
        let mut all: Vec<Contender> = self
            .rows
            .iter()
            .filter(|row| row.load.direction == direction && row.turns.iter().any(Option::is_some))
            .map(|row| row.setup.contender)
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contender::Link;

    #[test]
    fn what_is_left_out_is_told_by_its_point() {
        let all = LeftOut { contender: Contender::Spdk, point: None, reason: "not built".to_owned() };
        assert_eq!(all.to_string(), "SPDK NVMe/TCP (not built)");
        let one = LeftOut { point: Some("randread 4 KiB QD1".to_owned()), ..all.clone() };
        assert_eq!(one.to_string(), "SPDK NVMe/TCP, randread 4 KiB QD1 (not built)");
        // As records of before have it.
        let known: LeftOut = serde_json::from_str(&serde_json::to_string(&all).unwrap()).unwrap();
        assert!(known.point.is_none());
    }

    #[test]
    fn a_row_survives_its_file_and_tells_in_every_unit() {
        let figures = Figures { iops: 1e5, p50_us: Some(9.5), ..Figures::default() };
        let row = Row {
            setup: Setup::new(Contender::Etherslot(Link::Udp)),
            load: Load { direction: Direction::Read, block_bytes: 4096, depth: 1 },
            x: 1,
            turns: vec![Some(figures), None],
        };
        let text = serde_json::to_string(&row).unwrap();
        let row: Row = serde_json::from_str(&text).unwrap();
        assert!((row.values(Measure::Kiops)[0] - 100.0).abs() < 1e-9);
        assert!((row.values(Measure::GigabytesPerSecond)[0] - 0.4096).abs() < 1e-9);
        assert!(row.values(Measure::P50)[1].is_nan() && row.spread(Measure::ServerTime).is_none());
        assert_eq!(row.spread(Measure::P50).map(|spread| spread.median), Some(9.5));
    }
}
