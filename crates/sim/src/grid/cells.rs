//! The cells of the grid: one dimension at a time around 100 Gbit/s, 8 us, two senders, and a few crossings.

use super::cell::{Cell, Change, Load};
use super::link::{Faults, Loss};

const GBIT: u64 = 1_000_000_000;
const US: u64 = 1_000;

fn loss(ppm: u32) -> Faults {
    Faults { loss: Loss::Ppm(ppm), ..Faults::default() }
}

/// Bursts of ten frames on average, half of which are lost.
fn bursts(begin_ppm: u32) -> Faults {
    let loss = Loss::Bursts { begin_ppm, end_ppm: 100_000, loss_ppm: 500_000 };
    Faults { loss, ..Faults::default() }
}

/// All cells.
pub fn cells() -> Vec<Cell> {
    let mut cells = vec![Cell::default()];
    let mut add = |dimension: &'static str, name: String, cell: Cell| {
        cells.push(Cell { name, dimension, ..cell }.with_fitting_frames());
    };
    let base = Cell::default;
    for fan_in in [1, 8, 32, 128, 256] {
        add("fan-in", format!("fan-in-{fan_in}"), Cell { fan_in, ..base() });
    }
    for (percent, ppm) in [("0.1", 1_000), ("1", 10_000), ("5", 50_000)] {
        add("loss", format!("loss-{percent}"), Cell { faults: loss(ppm), ..base() });
    }
    for (percent, begin_ppm) in [("0.1", 200), ("1", 2_040)] {
        add("loss", format!("bursts-{percent}"), Cell { faults: bursts(begin_ppm), ..base() });
    }
    for (share, reorder_ppm) in [(1, 10_000), (10, 100_000)] {
        for (rtts, reorder_ns) in [("0.5", 4 * US), ("1", 8 * US), ("2", 16 * US)] {
            let faults = Faults { reorder_ppm, reorder_ns, ..Faults::default() };
            add("reordering", format!("reorder-{share}-by-{rtts}"), Cell { faults, ..base() });
        }
    }
    for (name, change) in [("quarter", Change::Quarter), ("fourfold", Change::Fourfold)] {
        add("capacity", format!("capacity-{name}"), Cell { change: Some(change), ..base() });
    }
    add("capacity", "join".to_owned(), Cell { joins: true, ..base() });
    for gbit in [1, 10, 25, 400] {
        add("rate", format!("rate-{gbit}"), Cell { rate: gbit * GBIT, ..base() });
    }
    for us in [2, 30, 100, 1000] {
        add("round trip", format!("rtt-{us}"), Cell { rtt_ns: us * US, ..base() });
    }
    for us in [1, 5, 20] {
        let faults = Faults { jitter_ns: us * US, ..Faults::default() };
        add("jitter", format!("jitter-{us}"), Cell { faults, ..base() });
    }
    add("faults", "reverse".to_owned(), Cell { is_reverse_loaded: true, ..base() });
    let duplicates = Faults { duplicate_ppm: 10_000, ..Faults::default() };
    add("faults", "duplicates-1".to_owned(), Cell { faults: duplicates, ..base() });
    let corruption = Faults { corrupt_ppm: 1_000, ..Faults::default() };
    add("faults", "corruption-0.1".to_owned(), Cell { faults: corruption, ..base() });
    add("faults", "restart".to_owned(), Cell { restarts: true, ..base() });
    for (percent, ppm) in [("0", 0), ("0.1", 1_000), ("1", 10_000), ("5", 50_000)] {
        let load = Load::Open { percent: 50 };
        add("half load", format!("open-50-loss-{percent}"), Cell { load, faults: loss(ppm), ..base() });
    }
    add("half load", "open-90".to_owned(), Cell { load: Load::Open { percent: 90 }, ..base() });
    for (fan_in, kib) in [(8, 64), (32, 64), (128, 16), (256, 16)] {
        let load = Load::Incast { bytes: kib << 10 };
        add("incast", format!("incast-{fan_in}x{kib}K"), Cell { fan_in, load, ..base() });
    }
    for (name, is_loaded) in [("mixed-idle", false), ("mixed-loaded", true)] {
        let load = Load::Mixed { is_loaded };
        add("mixed", name.to_owned(), Cell { load, fan_in: 1, ..base() });
    }
    add(
        "crossings",
        "rtt-1000-loss-1".to_owned(),
        Cell { rtt_ns: 1000 * US, faults: loss(10_000), ..base() },
    );
    add("crossings", "fan-in-32-loss-1".to_owned(), Cell { fan_in: 32, faults: loss(10_000), ..base() });
    add("crossings", "rate-1-rtt-2".to_owned(), Cell { rate: GBIT, rtt_ns: 2 * US, ..base() });
    add("crossings", "rate-400-rtt-2".to_owned(), Cell { rate: 400 * GBIT, rtt_ns: 2 * US, ..base() });
    cells
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own_and_a_window_for_its_path() {
        let cells = cells();
        let names: BTreeSet<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names.len(), cells.len());
        for cell in &cells {
            let window = u64::from(cell.window_frames()) * u64::from(cell.frame_bytes);
            assert!(window > 2 * cell.bdp_bytes(), "{}", cell.name);
        }
    }
}
