//! What a link test has found.

use serde::{Deserialize, Serialize};

use super::latency::Histogram;
use crate::Counted;
use crate::stat::SessionStat;

/// The result of a link test. All times in ns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Our address.
    pub address: String,
    /// Bytes of a bulk record.
    pub record_bytes: u64,
    /// Records from us to the peer.
    pub to_peer: Option<Flow>,
    /// Records from the peer to us.
    pub from_peer: Option<Flow>,
    /// Round trips of small records while nothing else was sent.
    pub idle: Latency,
    /// The same beside the bulk records.
    pub loaded: Latency,
    /// The longest time, after the beginning, in which no bulk record came from the peer.
    #[serde(default)]
    pub longest_pause_ns: Option<u64>,
    /// Our end of the session.
    pub session: SessionStat,
    /// Our Port.
    pub port: Counted,
}

/// Bulk records one way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    /// Bytes of whole records that were delivered.
    pub bytes: u64,
    /// In this time, by the receiver's clock.
    pub span_ns: u64,
    /// Their rate.
    pub bits_per_second: f64,
}

impl Flow {
    pub(super) fn new(bytes: u64, span_ns: u64) -> Self {
        let bits_per_second = if span_ns == 0 { 0.0 } else { bytes as f64 * 8e9 / span_ns as f64 };
        Self { bytes, span_ns, bits_per_second }
    }
}

/// Round-trip times of small records, from when they were due to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// How many came back.
    pub pings: u64,
    /// Those that did not before the end.
    pub unanswered: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The longest.
    pub most_ns: u64,
}

impl Latency {
    pub(super) fn new(histogram: &Histogram, unanswered: u64) -> Self {
        Self {
            pings: histogram.total(),
            unanswered,
            p50_ns: histogram.quantile_ns(500),
            p99_ns: histogram.quantile_ns(990),
            p999_ns: histogram.quantile_ns(999),
            most_ns: histogram.most_ns(),
        }
    }
}
