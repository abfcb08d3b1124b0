//! What an impairment is, and its text form.

use std::fmt;
use std::str::FromStr;

/// The longest delay that can be asked for.
const MAX_DELAY_NS: u64 = 10_000_000_000;
/// Frames that can be held back: at least one and its duplicate.
const POOL_FRAMES: std::ops::RangeInclusive<usize> = 2..=65_536;

/// Which way frames are impaired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// Both ways.
    #[default]
    Both,
    /// Those that are received.
    Rx,
    /// Those that are sent.
    Tx,
}

/// What to do to frames. As text: `loss=1%,duplicate=0.5%,reorder=1%,corrupt=0.1%,delay=100us..2ms,seed=7`,
/// with `way=rx` or `way=tx` for one direction and `pool=N` for the frames that may be held back; every part may be left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairment {
    /// Probability that a frame is lost.
    pub loss: f64,
    /// Probability that it comes twice.
    pub duplicate: f64,
    /// Probability that later ones pass it.
    pub reorder: f64,
    /// Probability that a bit of it is flipped.
    pub corrupt: f64,
    /// Least and most delay, uniformly drawn.
    pub delay_ns: (u64, u64),
    /// What all is drawn from.
    pub seed: u64,
    /// Which direction.
    pub way: Way,
    /// Frames held back at most, in each direction.
    pub pool_frames: usize,
}

impl Default for Impairment {
    /// None at all.
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            corrupt: 0.0,
            delay_ns: (0, 0),
            seed: 1,
            way: Way::Both,
            pool_frames: 1024,
        }
    }
}

/// What is wrong with the text of an [`Impairment`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImpairmentError {
    /// A part is not `key=value`.
    #[error("impairment: `{0}` is not key=value, as in `loss=1%,delay=100us..2ms,seed=7`")]
    Part(String),
    /// The key is unknown.
    #[error(
        "impairment: `{0}` is unknown: there are loss, duplicate, reorder, corrupt, delay, seed, way and pool"
    )]
    Key(String),
    /// A key comes twice.
    #[error("impairment: `{0}` is given twice: keep one")]
    Twice(String),
    /// The value does not fit its key.
    #[error("impairment: `{value}` is no value for `{key}`: write {form}")]
    Value {
        /// The key.
        key: String,
        /// What was given.
        value: String,
        /// What would be right.
        form: &'static str,
    },
}

impl FromStr for Impairment {
    type Err = ImpairmentError;

    fn from_str(text: &str) -> Result<Self, ImpairmentError> {
        let mut impairment = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| ImpairmentError::Part(part.to_owned()))?;
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(ImpairmentError::Twice(key.to_owned()));
            }
            seen.push(key);
            impairment.set(key, value)?;
        }
        Ok(impairment)
    }
}

impl Impairment {
    fn set(&mut self, key: &str, value: &str) -> Result<(), ImpairmentError> {
        const PROBABILITY: &str = "a probability from 0% to 100%, as in 0.5% or 0.005";
        let form = match key {
            "loss" | "duplicate" | "reorder" | "corrupt" => PROBABILITY,
            "delay" => "a time or a range up to 10s, as in 50us or 100us..2ms",
            "seed" => "a whole number",
            "way" => "rx, tx or both",
            "pool" => "a number of frames from 2 to 65536",
            _ => return Err(ImpairmentError::Key(key.to_owned())),
        };
        let done = match key {
            "loss" => put(&mut self.loss, probability(value)),
            "duplicate" => put(&mut self.duplicate, probability(value)),
            "reorder" => put(&mut self.reorder, probability(value)),
            "corrupt" => put(&mut self.corrupt, probability(value)),
            "delay" => put(&mut self.delay_ns, delay_ns(value)),
            "seed" => put(&mut self.seed, value.parse().ok()),
            "way" => put(&mut self.way, way(value)),
            _ => {
                let frames = value.parse().ok().filter(|frames| POOL_FRAMES.contains(frames));
                put(&mut self.pool_frames, frames)
            }
        };
        done.ok_or_else(|| ImpairmentError::Value { key: key.to_owned(), value: value.to_owned(), form })
    }
}

fn put<T>(to: &mut T, value: Option<T>) -> Option<()> {
    *to = value?;
    Some(())
}

fn probability(text: &str) -> Option<f64> {
    let value = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    (0.0..=1.0).contains(&value).then_some(value)
}

fn way(text: &str) -> Option<Way> {
    match text {
        "both" => Some(Way::Both),
        "rx" => Some(Way::Rx),
        "tx" => Some(Way::Tx),
        _ => None,
    }
}

fn delay_ns(text: &str) -> Option<(u64, u64)> {
    let (least, most) = match text.split_once("..") {
        Some((least, most)) => (time_ns(least)?, time_ns(most)?),
        None => (time_ns(text)?, time_ns(text)?),
    };
    (least <= most && most <= MAX_DELAY_NS).then_some((least, most))
}

fn time_ns(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit_ns: u64 = match &text[digits.len()..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        // A bare zero needs no unit.
        "" if digits == "0" => 1,
        _ => return None,
    };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(unit_ns)
}

impl fmt::Display for Impairment {
    /// The text form, with every key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loss, duplicate, reorder, corrupt, delay_ns: (least, most), seed, way, pool_frames } =
            self;
        let way = match way {
            Way::Both => "both",
            Way::Rx => "rx",
            Way::Tx => "tx",
        };
        write!(
            f,
            "loss={loss},duplicate={duplicate},reorder={reorder},corrupt={corrupt},delay={least}ns..{most}ns,seed={seed},way={way},pool={pool_frames}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_text_says_all_there_is_to_say() {
        let text = "loss=1%, reorder=1%,duplicate=0.5%,corrupt=0.001,delay=100us..2ms,seed=7,way=rx,pool=64";
        let expected = Impairment {
            loss: 0.01,
            duplicate: 0.005,
            reorder: 0.01,
            corrupt: 0.001,
            delay_ns: (100_000, 2_000_000),
            seed: 7,
            way: Way::Rx,
            pool_frames: 64,
        };
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!("".parse(), Ok(Impairment::default()));
        assert_eq!("delay=50us".parse::<Impairment>().map(|parsed| parsed.delay_ns), Ok((50_000, 50_000)));
    }

    #[test]
    fn a_wrong_text_is_refused_with_what_would_be_right() {
        for (text, hint) in [
            ("loss", "key=value"),
            ("los=1%", "there are loss"),
            ("loss=1%,loss=2%", "twice"),
            ("loss=101%", "0% to 100%"),
            ("loss=-1", "0% to 100%"),
            ("loss=NaN", "0% to 100%"),
            ("delay=2ms..1ms", "100us..2ms"),
            ("delay=5", "100us..2ms"),
            ("delay=11s", "up to 10s"),
            ("delay=99999999999999999999s", "up to 10s"),
            ("seed=x", "whole number"),
            ("way=up", "rx, tx or both"),
            ("pool=1", "from 2"),
        ] {
            let error = text.parse::<Impairment>().expect_err(text).to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_displayed_parses_back(
            probabilities in prop::array::uniform4(0.0_f64..=1.0),
            least in 0_u64..1_000_000,
            more in 0_u64..1_000_000_000,
            seed: u64,
            pool_frames in POOL_FRAMES,
        ) {
            let [loss, duplicate, reorder, corrupt] = probabilities;
            let delay_ns = (least, least + more);
            let way = Way::Tx;
            let impairment = Impairment { loss, duplicate, reorder, corrupt, delay_ns, seed, way, pool_frames };
            prop_assert_eq!(impairment.to_string().parse(), Ok(impairment));
        }

        #[test]
        fn any_text_is_parsed_or_refused(text: String) {
            let _ = text.parse::<Impairment>();
        }
    }
}
