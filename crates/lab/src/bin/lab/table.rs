//! The demo's figures, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use etherslot_lab::fio::Measured;
use serde_json::{Value, json};

use crate::demo::{Line, Shape};

const MIB: f64 = 1_048_576.0;

/// What people call a load.
pub(crate) fn name(shape: Shape) -> String {
    format!("{:<9} {:>3} KiB  QD {:>2}", shape.pattern.name(), shape.block_bytes >> 10, shape.depth)
}

/// One line when a load is done.
pub(crate) fn summary(line: &Line) -> String {
    format!(
        "{}   remote {:>8} IOPS {:>6.1} MiB/s, {:>4} MiB checked and right",
        name(line.shape),
        rounded(line.remote.iops()),
        line.remote.bytes_per_second() / MIB,
        line.checked_bytes >> 20
    )
}

/// The table.
pub(crate) fn text(lines: &[Line]) -> String {
    let mut text = String::from(
        "                          |            remote             |             local             | remote/local\n\
         load                      |    IOPS   MiB/s    p50    p99 |    IOPS   MiB/s    p50    p99 |  IOPS    p50\n\
         --------------------------+-------------------------------+-------------------------------+-------------\n",
    );
    for line in lines {
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "{:<25} |{} |{} | {:5.2}  {:5.2}",
            name(line.shape),
            columns(&line.remote),
            columns(&line.local),
            line.remote.iops() / line.local.iops(),
            line.remote.p50.as_secs_f64() / line.local.p50.as_secs_f64()
        );
    }
    text.push_str("p50, p99: completion latency as fio sees it, median and 99th percentile");
    text
}

fn columns(measured: &Measured) -> String {
    format!(
        "{:>8} {:>7.1} {:>6} {:>6}",
        rounded(measured.iops()),
        measured.bytes_per_second() / MIB,
        short(measured.p50),
        short(measured.p99)
    )
}

/// A duration in at most six characters.
fn short(duration: Duration) -> String {
    let microseconds = duration.as_micros();
    match microseconds {
        0..10_000 => format!("{microseconds}us"),
        10_000..10_000_000 => format!("{}ms", microseconds / 1000),
        _ => format!("{}s", duration.as_secs()),
    }
}

fn rounded(number: f64) -> String {
    group(&format!("{number:.0}"))
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    group(&number.to_string())
}

fn group(digits: &str) -> String {
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The figures for a program.
pub(crate) fn json(lines: &[Line]) -> Value {
    let figures = |measured: &Measured| {
        json!({
            "iops": measured.iops(), "bytes_per_second": measured.bytes_per_second(),
            "p50_seconds": measured.p50.as_secs_f64(), "p99_seconds": measured.p99.as_secs_f64(),
            "p999_seconds": measured.p999.as_secs_f64(),
        })
    };
    lines
        .iter()
        .map(|line| {
            json!({
                "pattern": line.shape.pattern.name(), "block_bytes": line.shape.block_bytes, "depth": line.shape.depth,
                "remote": figures(&line.remote), "local": figures(&line.local),
                "ratio": line.remote.iops() / line.local.iops(), "checked_bytes": line.checked_bytes,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_durations_stay_within_their_columns() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(123), "123");
        for (duration, text) in [
            (Duration::from_micros(85), "85us"),
            (Duration::from_micros(9_999), "9999us"),
            (Duration::from_millis(10), "10ms"),
            (Duration::from_millis(9_999), "9999ms"),
            (Duration::from_secs(10), "10s"),
        ] {
            assert_eq!(short(duration), text);
        }
    }
}
