//! Draws a table from standard input as a chart on standard output, its x axis in powers of two: for generators of pages that
//! are not written in Rust.
//!
//! The first line is title, label of x, label of y and the end of y; the second names the lines; then come rows: x, and a value
//! of each line, or nothing. Fields are parted by tabs.

use std::io::{self, Read, Write};

use etherslot_chart::{Chart, Line, Scale};

const COLORS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];

fn main() -> io::Result<()> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let chart = read(&text).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "draw: no table of the form that it says")
    })?;
    io::stdout().write_all(chart.svg().as_bytes())
}

fn read(text: &str) -> Option<Chart> {
    let mut rows = text.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let head = rows.next()?;
    let names = rows.next()?;
    let [title, x_label, y_label, end] = head[..] else { return None };
    let rows: Vec<_> = rows.collect();
    let sizes = rows.iter().map(|row| row.first()?.parse::<f64>().ok()).collect::<Option<Vec<_>>>()?;
    let (first, last) = (sizes.first()?.log2(), sizes.last()?.log2());
    let part = |size: f64| (size.log2() - first) / (last - first).max(1.0);
    let lines = names.iter().zip(COLORS).enumerate().map(|(column, (name, color))| Line {
        name: (*name).to_owned(),
        color,
        is_dashed: column > 1,
        is_strong: column == 0,
        points: rows
            .iter()
            .zip(&sizes)
            .filter_map(|(row, &size)| Some((part(size), row.get(column + 1)?.parse().ok()?)))
            .collect(),
    });
    let marks =
        sizes.iter().filter(|size| size.log2().fract() == 0.0).map(|&size| (part(size), format!("{size}")));
    Some(Chart {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        x_marks: marks.collect(),
        y_label: y_label.to_owned(),
        scale: Scale::Linear(end.parse().ok()?),
        lines: lines.collect(),
        has_dots: true,
    })
}
