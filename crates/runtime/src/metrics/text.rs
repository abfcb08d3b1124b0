//! The text exposition format of Prometheus, version 0.0.4: families of samples, each family in one piece.

use std::collections::HashMap;
use std::fmt::Write as _;

/// What a family's values do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// They only grow.
    Counter,
    /// They go up and down.
    Gauge,
}

/// A value in the base unit of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// As it is.
    Number(u64),
    /// Of nanoseconds, to be shown in seconds.
    Ns(u64),
}

impl Value {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => Self::Number(a.saturating_add(b)),
            (Self::Ns(a), Self::Ns(b)) => Self::Ns(a.saturating_add(b)),
            (_, other) => other,
        }
    }
}

#[derive(Debug)]
struct Family {
    name: String,
    kind: Kind,
    help: String,
    /// Labels as they are written, and values.
    samples: Vec<(String, Value)>,
    places: HashMap<String, usize>,
}

/// All families, in the order in which they are first told of.
#[derive(Debug, Default)]
pub(super) struct Families {
    families: Vec<Family>,
    places: HashMap<String, usize>,
}

impl Families {
    /// One more sample. No two of a family may have the same labels: counters of such are added up, of gauges the last counts.
    pub(super) fn add(&mut self, name: &str, kind: Kind, help: &str, labels: &[(&str, &str)], value: Value) {
        let at = *self.places.entry(name.to_owned()).or_insert_with(|| {
            self.families.push(Family {
                name: name.to_owned(),
                kind,
                help: help.to_owned(),
                samples: Vec::new(),
                places: HashMap::new(),
            });
            self.families.len() - 1
        });
        let family = &mut self.families[at];
        let labels = written(labels);
        if let Some(&place) = family.places.get(&labels) {
            let known = &mut family.samples[place].1;
            *known = if kind == Kind::Counter { known.and(value) } else { value };
        } else {
            family.places.insert(labels.clone(), family.samples.len());
            family.samples.push((labels, value));
        }
    }

    /// The page.
    pub(super) fn page(&self) -> String {
        let mut text = String::new();
        for Family { name, kind, help, samples, .. } in &self.families {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
            };
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
            for (labels, value) in samples {
                let _ = match value {
                    Value::Number(number) => writeln!(text, "{name}{labels} {number}"),
                    Value::Ns(ns) => {
                        writeln!(text, "{name}{labels} {}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
                    }
                };
            }
        }
        text
    }
}

fn written(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (at, (name, value)) in labels.iter().enumerate() {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let _ = write!(text, "{}{name}=\"{value}\"", if at == 0 { "{" } else { "," });
    }
    if !labels.is_empty() {
        text.push('}');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_stands_in_one_piece_whatever_the_order() {
        let mut families = Families::default();
        families.add("a_total", Kind::Counter, "A.", &[("x", "1")], Value::Number(3));
        families.add("b_seconds", Kind::Gauge, "B.", &[], Value::Ns(1_500_000_001));
        families.add("a_total", Kind::Counter, "A.", &[("x", "q\"\\\n")], Value::Number(4));
        families.add("a_total", Kind::Counter, "A.", &[("x", "1")], Value::Number(7));
        families.add("b_seconds", Kind::Gauge, "B.", &[], Value::Ns(2));
        assert_eq!(
            families.page(),
            "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\"} 10\na_total{x=\"q\\\"\\\\\\n\"} 4\n\
             # HELP b_seconds B.\n# TYPE b_seconds gauge\nb_seconds 0.000000002\n"
        );
    }
}
