//! Line charts as SVG, drawn without a library: axes, lines, a legend.
//!
//! For the pages that the simulator and the benchmarks write; text is taken as it is, so it must not hold markup.

use core::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 600.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 330.0;

/// How values become heights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From 0 to this.
    Linear(f64),
    /// From 10 to the one to 10 to the other.
    Log(i32, i32),
}

impl Scale {
    /// Where a value is, 0 at the bottom to 1 at the top.
    fn height(self, value: f64) -> f64 {
        let height = match self {
            Self::Linear(most) => value / most,
            Self::Log(least, most) => (value.max(1e-12).log10() - f64::from(least)) / f64::from(most - least),
        };
        height.clamp(0.0, 1.0)
    }

    fn marks(self) -> Vec<(f64, String)> {
        match self {
            Self::Linear(most) => {
                let step = most / 5.0;
                (0..=5).map(|mark| f64::from(mark) * step).map(|value| (value, short(value))).collect()
            }
            Self::Log(least, most) => {
                (least..=most).map(|power| 10_f64.powi(power)).map(|value| (value, short(value))).collect()
            }
        }
    }

    /// Powers of ten around all of these.
    pub fn log_around(values: impl Iterator<Item = f64>) -> Self {
        let (mut least, mut most) = (f64::INFINITY, 0.0_f64);
        for value in values.filter(|value| *value > 0.0) {
            least = least.min(value);
            most = most.max(value);
        }
        if most == 0.0 {
            return Self::Log(0, 1);
        }
        let (least, most) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        Self::Log(least, most.max(least + 1))
    }
}

/// A number without needless digits.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub name: String,
    /// As in SVG.
    pub color: &'static str,
    /// Drawn with gaps.
    pub is_dashed: bool,
    /// Drawn thick.
    pub is_strong: bool,
    /// From left to right; x is a part of the width, 0 to 1.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Below the x axis.
    pub x_label: String,
    /// Marks of the x axis: where, and what they say.
    pub x_marks: Vec<(f64, String)>,
    /// Beside the y axis.
    pub y_label: String,
    /// Of the y axis.
    pub scale: Scale,
    /// The first one is on top.
    pub lines: Vec<Line>,
    /// Whether points are shown beside the lines between them.
    pub has_dots: bool,
}

fn x_of(part: f64) -> f64 {
    LEFT + 12.0 + part * (RIGHT - LEFT - 24.0)
}

impl Chart {
    fn y_of(&self, value: f64) -> f64 {
        BOTTOM - self.scale.height(value) * (BOTTOM - TOP)
    }

    /// The chart as a file.
    pub fn svg(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> core::fmt::Result {
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" \
             height=\"{HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">"
        )?;
        writeln!(out, "<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>")?;
        writeln!(out, "<text x=\"{LEFT}\" y=\"22\" font-size=\"15\">{}</text>", self.title)?;
        for (value, text) in self.scale.marks() {
            let y = self.y_of(value);
            writeln!(out, "<path d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#ddd\"/>")?;
            let (x, y) = (LEFT - 6.0, y + 4.0);
            writeln!(out, "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>")?;
        }
        for (part, text) in &self.x_marks {
            let (x, y) = (x_of(*part), BOTTOM + 18.0);
            writeln!(out, "<path d=\"M{x:.1} {BOTTOM}v4\" stroke=\"#222\"/>")?;
            writeln!(out, "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{text}</text>")?;
        }
        writeln!(out, "<path d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" stroke=\"#222\" fill=\"none\"/>")?;
        let middle = f64::midpoint(LEFT, RIGHT);
        let y = BOTTOM + 38.0;
        writeln!(out, "<text x=\"{middle}\" y=\"{y}\" text-anchor=\"middle\">{}</text>", self.x_label)?;
        let middle = f64::midpoint(TOP, BOTTOM);
        writeln!(
            out,
            "<text transform=\"translate(16 {middle}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            self.y_label
        )?;
        // The first line is on top of the others.
        for line in self.lines.iter().rev() {
            self.write_line(out, line)?;
        }
        for (row, line) in self.lines.iter().enumerate() {
            #[allow(clippy::cast_precision_loss)]
            let y = TOP + 10.0 + 20.0 * row as f64;
            let (x, end) = (RIGHT + 16.0, RIGHT + 46.0);
            writeln!(out, "<path d=\"M{x} {y}H{end}\" {}/>", style(line))?;
            let (x, y) = (end + 6.0, y + 4.0);
            writeln!(out, "<text x=\"{x}\" y=\"{y}\">{}</text>", line.name)?;
        }
        writeln!(out, "</svg>")
    }

    fn write_line(&self, out: &mut String, line: &Line) -> core::fmt::Result {
        write!(out, "<path {} d=\"", style(line))?;
        for (index, (part, value)) in line.points.iter().enumerate() {
            let command = if index == 0 { 'M' } else { 'L' };
            write!(out, "{command}{:.1} {:.1}", x_of(*part), self.y_of(*value))?;
        }
        writeln!(out, "\"/>")?;
        for (part, value) in line.points.iter().filter(|_| self.has_dots) {
            let (x, y) = (x_of(*part), self.y_of(*value));
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{}\"/>", line.color)?;
        }
        Ok(())
    }
}

fn style(line: &Line) -> String {
    let width = if line.is_strong { "3" } else { "1.5" };
    let dashes = if line.is_dashed { " stroke-dasharray=\"5 4\"" } else { "" };
    format!("fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"{dashes}", line.color)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_put_values_where_their_marks_are() {
        assert!((Scale::Linear(2.0).height(1.0) - 0.5).abs() < 1e-9);
        assert!((Scale::Log(0, 2).height(10.0) - 0.5).abs() < 1e-9);
        assert_eq!(Scale::log_around([0.0, 3.0, 450.0].into_iter()), Scale::Log(0, 3));
        assert_eq!(Scale::log_around([0.0].into_iter()), Scale::Log(0, 1));
        let marks: Vec<String> = Scale::Log(-1, 2).marks().into_iter().map(|mark| mark.1).collect();
        assert_eq!(marks, ["0.1", "1", "10", "100"]);
    }

    #[test]
    fn every_line_is_drawn_and_named() {
        let line = |name: &str| Line {
            name: name.to_owned(),
            color: "#000",
            is_dashed: false,
            is_strong: false,
            points: vec![(0.0, 0.1), (1.0, 0.9)],
        };
        let chart = Chart {
            title: "T".to_owned(),
            x_label: "x".to_owned(),
            x_marks: vec![(0.0, "a".to_owned()), (1.0, "b".to_owned())],
            y_label: "y".to_owned(),
            scale: Scale::Linear(1.0),
            lines: vec![line("one"), line("two")],
            has_dots: true,
        };
        let svg = chart.svg();
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains(">one<") && svg.contains(">two<") && svg.ends_with("</svg>\n"));
    }
}
