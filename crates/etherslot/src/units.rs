//! Numbers as people read them: in the unit that the name of a counter ends with.

use std::fmt;
use std::time::Duration;

/// Groups of three digits: `1 234 567`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grouped(pub(crate) u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut text = String::new();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                text.push(' ');
            }
            text.push(digit);
        }
        f.pad(&text)
    }
}

/// Three digits and a unit of these, the next of which is 1000 times larger.
fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut index = 0;
    while value >= 999.5 && index + 1 < units.len() {
        value /= 1000.0;
        index += 1;
    }
    let places = match value {
        _ if index == 0 && value.fract() == 0.0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.places$} {}", units[index])
}

/// A time: `43.2 us`.
pub(crate) fn time(ns: u64) -> String {
    scaled(ns as f64, &["ns", "us", "ms", "s"])
}

/// Bytes: `2.30 MB`.
pub(crate) fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, &["B", "kB", "MB", "GB", "TB"])
}

/// Bits per second: `941 Mbit/s`.
pub(crate) fn bit_rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Events per second: `12.3 k/s`.
pub(crate) fn rate(per_second: f64) -> String {
    scaled(per_second, &["/s", "k/s", "M/s", "G/s"])
}

/// A counter: a time in its unit, all else digit by digit.
pub(crate) fn count(name: &str, value: u64) -> String {
    if name.ends_with("_ns") { time(value) } else { Grouped(value).to_string() }
}

/// What a counter grew by in a second: a time as a part of it.
pub(crate) fn growth(name: &str, per_second: f64) -> String {
    if name.ends_with("_ns") {
        format!("{:.1} %", per_second / 1e7)
    } else if name.ends_with("bytes") || name.contains("bytes_") {
        bit_rate(per_second * 8.0)
    } else {
        rate(per_second)
    }
}

/// A gauge by what its name ends with.
pub(crate) fn gauge(name: &str, value: u64) -> String {
    if name.ends_with("_ns") {
        time(value)
    } else if name.ends_with("bytes_per_second") {
        bit_rate(value as f64 * 8.0)
    } else if name.ends_with("_bytes") {
        bytes(value)
    } else {
        Grouped(value).to_string()
    }
}

/// Its name without the unit that [`gauge`] shows.
pub(crate) fn gauge_name(name: &str) -> String {
    let bare = ["_ns", "_bytes_per_second", "_bytes"].iter().find_map(|unit| name.strip_suffix(unit));
    bare.unwrap_or(name).replace('_', " ")
}

/// How long a node has been up, in the two largest units.
pub(crate) fn uptime(ns: u64) -> String {
    let text = humantime::format_duration(Duration::from_secs(ns / 1_000_000_000)).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_the_unit_that_fits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (43_219, "43.2 us"),
            (999_499, "999 us"),
            (999_600, "1.00 ms"),
            (12_345_678_000, "12.3 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(bit_rate(941_400_000.0), "941 Mbit/s");
        assert_eq!(rate(0.25), "0.25 /s");
        assert_eq!(bytes(u64::MAX), "18446744 TB");
    }

    #[test]
    fn a_counted_time_is_shown_as_one_and_grows_by_a_part_of_each_second() {
        assert_eq!((count("busy_ns", 43_219), growth("busy_ns", 2.5e8)), ("43.2 us".into(), "25.0 %".into()));
        assert_eq!(
            (count("tx_frames", 43_219), growth("tx_frames", 1e3)),
            ("43 219".into(), "1.00 k/s".into())
        );
        assert_eq!(
            (count("bytes_sent", 1_000), growth("bytes_sent", 1e3)),
            ("1 000".into(), "8.00 kbit/s".into())
        );
    }

    #[test]
    fn a_gauge_is_shown_in_the_unit_that_its_name_ends_with() {
        assert_eq!((gauge_name("srtt_ns"), gauge("srtt_ns", 43_219)), ("srtt".into(), "43.2 us".into()));
        assert_eq!(gauge("window_bytes", 2_304_000), "2.30 MB");
        let pacing = "pacing_bytes_per_second";
        assert_eq!((gauge_name(pacing), gauge(pacing, 125_000_000)), ("pacing".into(), "1.00 Gbit/s".into()));
        assert_eq!((gauge_name("paths_up"), gauge("paths_up", 1234)), ("paths up".into(), "1 234".into()));
    }

    #[test]
    fn digits_stand_in_groups() {
        assert_eq!(Grouped(0).to_string(), "0");
        assert_eq!(Grouped(999).to_string(), "999");
        assert_eq!(format!("{:>10}", Grouped(1_234_567)), " 1 234 567");
    }

    #[test]
    fn an_uptime_has_two_units_at_most() {
        assert_eq!(uptime(59_999_999_999), "59s");
        assert_eq!(uptime(93_784_000_000_000), "1day 2h");
    }
}
