//! Medians, spreads, and ratios taken round by round.

use std::fmt;

/// A value in as many digits as are worth reading.
pub(crate) fn digits(value: f64) -> String {
    match value {
        ..0.095 => format!("{value:.4}"),
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The middle of some values, and their ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// None of no values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len().is_multiple_of(2) {
            f64::midpoint(values[middle - 1], values[middle])
        } else {
            values[middle]
        };
        Some(Self { median, least, most })
    }

    /// Of the ratios of what was measured in the same round: the machine's mood of a round is in both and falls out.
    /// NaN stands for a turn without a result.
    pub(crate) fn of_ratios(above: &[f64], below: &[f64]) -> Option<Self> {
        let ratios = above.iter().zip(below).map(|(above, below)| above / below);
        Self::of(ratios.filter(|ratio| ratio.is_finite()))
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, least, most } = *self;
        write!(f, "{} ({}-{})", digits(median), digits(least), digits(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle_of_odd_and_of_even_numbers() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, least: 1.0, most: 4.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn a_ratio_is_taken_within_a_round() {
        // Everything was three times slower in the second round; the ratio does not care.
        let ratios = Spread::of_ratios(&[300.0, 100.0, 280.0], &[150.0, 50.0, 140.0]);
        assert_eq!(ratios, Some(Spread { median: 2.0, least: 2.0, most: 2.0 }));
        assert_eq!(Spread::of_ratios(&[f64::NAN, 4.0], &[1.0, 2.0]).map(|ratio| ratio.median), Some(2.0));
        assert_eq!(Spread::of_ratios(&[1.0], &[0.0]), None);
    }
}
