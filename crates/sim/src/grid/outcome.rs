//! What is measured in a run, and the sum over the runs of a cell.

use super::cell::Cell;
use super::histogram::Histogram;
use super::record::Violations;

/// What happened over time, as sums over the runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    runs: u64,
    pub(crate) interval_ns: u64,
    /// The interval in which a change comes.
    pub(crate) middle: usize,
    /// Payload bytes that the last sender delivered, by intervals.
    last_bytes: Vec<u64>,
    /// The longest queue at the bottleneck, by intervals.
    queue_ns: Vec<u64>,
}

impl Series {
    /// That of one run.
    pub(crate) fn new(interval_ns: u64, middle: usize, last_bytes: Vec<u64>, queue_ns: Vec<u64>) -> Self {
        Self { runs: 1, interval_ns, middle, last_bytes, queue_ns }
    }

    fn merge(&mut self, other: &Self) {
        if self.runs == 0 {
            self.clone_from(other);
            return;
        }
        self.runs += other.runs;
        let pairs = [(&mut self.last_bytes, &other.last_bytes), (&mut self.queue_ns, &other.queue_ns)];
        for (mine, other) in pairs {
            mine.iter_mut().zip(other).for_each(|(mine, other)| *mine += other);
        }
    }

    /// The longest queue of an interval, mean of the runs.
    pub(crate) fn mean_queue_ns(&self, interval: usize) -> u64 {
        self.queue_ns.get(interval).map_or(0, |sum| sum / self.runs.max(1))
    }

    /// The last sender's share of the capacity in an interval, mean of the runs.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn last_share(&self, cell: &Cell, interval: usize) -> f64 {
        let most = cell.payload_rate(cell.rate) * self.interval_ns as f64 / 1e9 * self.runs as f64;
        self.last_bytes.get(interval).map_or(0.0, |sum| *sum as f64 / most)
    }
}

/// What came of one run, or of several.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Runs in here.
    pub runs: u32,
    /// Payload delivered over what the bottleneck carries at most; of each run.
    pub goodput: Vec<f64>,
    /// Jain's index of fairness over the senders, second half; of each run.
    pub jain: Vec<f64>,
    /// Time to .9 of the capacity from the beginning; of each run, `None` if never.
    pub start_ns: Vec<Option<u64>>,
    /// Time to a new balance after a change or a newcomer; of each run, `None` if never.
    pub settle_ns: Vec<Option<u64>>,
    pub(crate) latency: Histogram,
    pub(crate) queue: Histogram,
    pub(crate) round_trip: Histogram,
    pub(crate) completion: Histogram,
    /// Frames dropped by the switch.
    pub dropped: u64,
    /// Frames lost on links.
    pub lost: u64,
    /// Data frames sent, without retransmissions.
    pub data_frames: u64,
    /// Retransmissions.
    pub retransmissions: u64,
    /// Frames taken as lost that were not.
    pub spurious: u64,
    /// Retransmission timeouts.
    pub rtos: u64,
    /// What was delivered and should not have been.
    pub violations: Violations,
    /// Sessions that died.
    pub dead: u32,
    /// Frames that arrived anywhere.
    pub frames: u64,
    pub(crate) series: Series,
    /// What happened, in short: the same for the same run.
    pub hash: u64,
}

#[allow(clippy::cast_precision_loss)]
fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl Outcome {
    /// Adds the runs of another one.
    pub fn merge(&mut self, other: &Self) {
        self.runs += other.runs;
        self.goodput.extend(&other.goodput);
        self.jain.extend(&other.jain);
        self.start_ns.extend(&other.start_ns);
        self.settle_ns.extend(&other.settle_ns);
        self.latency.merge(&other.latency);
        self.queue.merge(&other.queue);
        self.round_trip.merge(&other.round_trip);
        self.completion.merge(&other.completion);
        self.dropped += other.dropped;
        self.lost += other.lost;
        self.data_frames += other.data_frames;
        self.retransmissions += other.retransmissions;
        self.spurious += other.spurious;
        self.rtos += other.rtos;
        self.violations.order += other.violations.order;
        self.violations.content += other.violations.content;
        self.dead += other.dead;
        self.frames += other.frames;
        self.series.merge(&other.series);
        self.hash = crate::random::mix(self.hash ^ other.hash);
    }

    /// Mean goodput.
    pub fn mean_goodput(&self) -> f64 {
        mean(&self.goodput)
    }

    /// Mean of Jain's index.
    pub fn mean_jain(&self) -> f64 {
        mean(&self.jain)
    }

    /// Times from a record's handing over to its delivery, ns: what `share` of them do not exceed.
    pub fn latency_ns(&self, share: f64) -> u64 {
        self.latency.percentile(share)
    }

    /// Queue at the bottleneck, as time to send it: what it does not exceed for `share` of the time.
    pub fn queue_ns(&self, share: f64) -> u64 {
        self.queue.percentile(share)
    }

    /// Times from a request to its answer.
    pub fn round_trip_ns(&self, share: f64) -> u64 {
        self.round_trip.percentile(share)
    }

    /// Times in which all senders of a burst were done, in per mille of the least possible.
    pub fn completion_permille(&self, share: f64) -> u64 {
        self.completion.percentile(share)
    }

    /// Retransmissions over first transmissions.
    #[allow(clippy::cast_precision_loss)]
    pub fn retransmitted_share(&self) -> f64 {
        self.retransmissions as f64 / self.data_frames.max(1) as f64
    }

    /// Frames wrongly taken as lost over first transmissions.
    #[allow(clippy::cast_precision_loss)]
    pub fn spurious_share(&self) -> f64 {
        self.spurious as f64 / self.data_frames.max(1) as f64
    }
}

/// The median of times of which some may never have come, and count as the longest.
pub fn median_ns(times: &[Option<u64>]) -> Option<u64> {
    let mut sorted: Vec<u64> = times.iter().map(|time| time.unwrap_or(u64::MAX)).collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().filter(|time| *time != u64::MAX)
}
