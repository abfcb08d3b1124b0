//! What a run has delivered, and when.

use std::collections::VecDeque;

use etherslot_session::Deliver;
use etherslot_wire::record::Kind;

use super::cell::Cell;
use super::end::REQUEST_STREAM;
use super::histogram::Histogram;
use super::outcome::Series;
use super::record::{Checker, Pattern};
use crate::random::mix;

/// Intervals in a row that have to be as wanted.
const STEADY: usize = 4;
/// Of the fair share, in per cent, that makes a start and a newcomer count as arrived.
const STARTED_SHARE: f64 = 0.9;
const JOINED_SHARE: f64 = 0.8;

/// What has been delivered to the receiving node.
#[derive(Debug)]
pub(crate) struct Tally {
    /// The beginning, and what is measured of the time after it.
    pub(crate) begin_ns: u64,
    pub(crate) from_ns: u64,
    pub(crate) middle_ns: u64,
    pub(crate) until_ns: u64,
    interval_ns: u64,
    /// Payload bytes since the beginning, by intervals.
    series: Vec<u64>,
    /// Of these, by the last sender.
    last_series: Vec<u64>,
    /// The longest queue at the bottleneck, by intervals.
    queue_series: Vec<u64>,
    /// While it is measured.
    bytes: u64,
    /// Of these the second half, by sender.
    late_bytes: Vec<u64>,
    pub(crate) latency: Histogram,
    pub(crate) round_trip: Histogram,
    /// Times to the end of a burst, in per mille of the least possible.
    pub(crate) completion: Histogram,
    burst_left_bytes: u64,
    /// Whether the last byte of a burst has just come.
    pub(crate) is_burst_over: bool,
    pub(crate) hash: u64,
}

impl Tally {
    /// For a run whose beginning is not known yet.
    pub(crate) fn new(cell: &Cell) -> Self {
        let (from_ns, until_ns) = cell.span_ns();
        let interval_ns = cell.base_rtt_ns().max(16 * cell.frame_ns());
        let intervals = until_ns.div_ceil(interval_ns) as usize;
        Self {
            begin_ns: u64::MAX,
            from_ns,
            middle_ns: from_ns.midpoint(until_ns),
            until_ns,
            interval_ns,
            series: vec![0; intervals],
            last_series: vec![0; intervals],
            queue_series: vec![0; intervals],
            bytes: 0,
            late_bytes: vec![0; cell.fan_in as usize],
            latency: Histogram::default(),
            round_trip: Histogram::default(),
            completion: Histogram::default(),
            burst_left_bytes: 0,
            is_burst_over: false,
            hash: 0,
        }
    }

    /// It begins.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.begin_ns = now_ns;
        for time_ns in [&mut self.from_ns, &mut self.middle_ns, &mut self.until_ns] {
            *time_ns += now_ns;
        }
    }

    fn interval(&self, now_ns: u64) -> usize {
        (now_ns.saturating_sub(self.begin_ns) / self.interval_ns) as usize
    }

    fn is_measured(&self, now_ns: u64) -> bool {
        (self.from_ns..self.until_ns).contains(&now_ns)
    }

    /// Payload bytes since the beginning.
    pub(crate) fn all_bytes(&self) -> u64 {
        self.series.iter().sum()
    }

    /// So many bytes of a burst are to come.
    pub(crate) fn expect_burst(&mut self, bytes: u64) {
        self.burst_left_bytes = bytes;
    }

    /// So much work waits at the bottleneck now.
    pub(crate) fn note_queue(&mut self, now_ns: u64, work_ns: u64) {
        let interval = self.interval(now_ns);
        if now_ns >= self.begin_ns
            && let Some(most_ns) = self.queue_series.get_mut(interval)
        {
            *most_ns = work_ns.max(*most_ns);
        }
    }

    /// A record of bulk has come to the receiving node.
    fn take(&mut self, now_ns: u64, sender: usize, sent_ns: u64, bytes: u64) {
        if now_ns < self.begin_ns {
            return;
        }
        let interval = self.interval(now_ns);
        if let Some(sum) = self.series.get_mut(interval) {
            *sum += bytes;
        }
        if sender + 1 == self.late_bytes.len()
            && let Some(sum) = self.last_series.get_mut(interval)
        {
            *sum += bytes;
        }
        if self.burst_left_bytes > 0 {
            self.burst_left_bytes = self.burst_left_bytes.saturating_sub(bytes);
            self.is_burst_over |= self.burst_left_bytes == 0;
        }
        if self.is_measured(now_ns) {
            self.bytes += bytes;
            self.latency.add(now_ns - sent_ns, 1);
            if now_ns >= self.middle_ns {
                self.late_bytes[sender] += bytes;
            }
        }
    }

    /// What happened over time.
    pub(crate) fn series(&self) -> Series {
        let middle = self.interval(self.middle_ns);
        Series::new(self.interval_ns, middle, self.last_series.clone(), self.queue_series.clone())
    }

    /// Payload delivered over the most that the bottleneck carries. What was received before the measurement and
    /// delivered in it, as it waited for something lost, can make it more than 1; that is cut off.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn goodput(&self, cell: &Cell) -> f64 {
        let half_s = (self.until_ns - self.from_ns) as f64 / 2e9;
        let most: f64 = cell.rates().iter().map(|rate| cell.payload_rate(*rate) * half_s).sum();
        (self.bytes as f64 / most).min(1.0)
    }

    /// Jain's index of fairness over the senders.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn jain(&self) -> f64 {
        let sum: f64 = self.late_bytes.iter().map(|bytes| *bytes as f64).sum();
        let squares: f64 = self.late_bytes.iter().map(|bytes| (*bytes as f64).powi(2)).sum();
        if squares > 0.0 { sum * sum / squares / self.late_bytes.len() as f64 } else { 0.0 }
    }

    /// Time from the interval `from` to the first of several in a row that bring `least_bytes` each on average, with a
    /// queue of no more than `longest_ns`.
    #[allow(clippy::cast_precision_loss)]
    fn time_to(&self, from: usize, series: &[u64], least_bytes: f64, longest_ns: u64) -> Option<u64> {
        let queues = self.queue_series[from..].windows(STEADY);
        let steady = |(bytes, queues): (&[u64], &[u64])| {
            bytes.iter().sum::<u64>() as f64 >= STEADY as f64 * least_bytes
                && queues.iter().all(|queue_ns| *queue_ns <= longest_ns)
        };
        let intervals = series[from..].windows(STEADY).zip(queues).position(steady)?;
        Some(intervals as u64 * self.interval_ns)
    }

    #[allow(clippy::cast_precision_loss)]
    fn interval_bytes(&self, cell: &Cell, rate: u64) -> f64 {
        cell.payload_rate(rate) * self.interval_ns as f64 / 1e9
    }

    /// Time from the beginning to .9 of the capacity; `None` if never.
    pub(crate) fn start_ns(&self, cell: &Cell) -> Option<u64> {
        let least_bytes = STARTED_SHARE * self.interval_bytes(cell, cell.rates()[0]);
        self.time_to(0, &self.series, least_bytes, u64::MAX)
    }

    /// Time from a change of capacity to .9 of the new one with a queue of 1.2 of the target, or from a newcomer's
    /// beginning to .8 of its share; `None` if never, or if there is neither.
    pub(crate) fn settle_ns(&self, cell: &Cell) -> Option<u64> {
        let middle = self.interval(self.middle_ns) + 1;
        if cell.change.is_some() {
            let rate = cell.rates()[1];
            let target_ns = cell.target_ns().max(8 * cell.frame_ns() * cell.rate / rate);
            let least_bytes = STARTED_SHARE * self.interval_bytes(cell, rate);
            self.time_to(middle, &self.series, least_bytes, target_ns * 6 / 5)
        } else if cell.joins {
            let least_bytes = JOINED_SHARE * self.interval_bytes(cell, cell.rate) / f64::from(cell.fan_in);
            self.time_to(middle, &self.last_series, least_bytes, u64::MAX)
        } else {
            None
        }
    }
}

/// Takes what a session delivers.
pub(crate) struct Delivery<'a> {
    pub(crate) now_ns: u64,
    /// Number of the end.
    pub(crate) end: usize,
    /// Number of the sender if this is an end at the receiving node.
    pub(crate) sender: Option<usize>,
    pub(crate) pattern: &'a Pattern,
    pub(crate) checker: &'a mut Checker,
    /// Requests go in here, unless this is the end that asks.
    pub(crate) answers: &'a mut VecDeque<u64>,
    pub(crate) is_requester: bool,
    pub(crate) tally: &'a mut Tally,
}

impl Deliver for Delivery<'_> {
    fn record(&mut self, _kind: Kind, stream: u16, payload: &[u8]) {
        let Some(label) = self.checker.take(self.pattern, stream, payload) else { return };
        self.tally.hash = mix(self.tally.hash ^ self.now_ns ^ (self.end as u64) << 48 ^ label.place << 16);
        if stream == REQUEST_STREAM {
            if !self.is_requester {
                self.answers.push_back(label.sent_ns);
            } else if self.tally.is_measured(self.now_ns) {
                self.tally.round_trip.add(self.now_ns - label.sent_ns, 1);
            }
        } else if let Some(sender) = self.sender {
            self.tally.take(self.now_ns, sender, label.sent_ns, payload.len() as u64);
        }
    }
}
