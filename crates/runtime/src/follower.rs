//! One who listens to what happens: what waits to be sent to it, which is bounded, and what it has lost.

use crate::events::{Event, Record};

/// Bytes that wait for a listener before it loses records. A snapshot may be longer: it is made when nothing waits.
const MOST_BYTES: usize = 256 << 10;

/// A listener.
#[derive(Debug, Default)]
pub(crate) struct Follower {
    /// Between two records of counters, if it asked for them, and when the next is due.
    every_ns: Option<u64>,
    next_ns: u64,
    /// The next record's number.
    sequence: u64,
    /// Records it has lost since it was told so.
    lost: u64,
    bytes: Vec<u8>,
    /// So many of them have gone.
    gone: usize,
}

impl Follower {
    /// One who begins with `snapshot`, and wants counters as often as that.
    pub(crate) fn new(now_ns: u64, every_ns: Option<u64>, time_ms: u64, snapshot: Event) -> Self {
        let next_ns = every_ns.map_or(u64::MAX, |every_ns| now_ns + every_ns);
        let mut follower = Self { every_ns, next_ns, ..Self::default() };
        follower.put(time_ms, snapshot);
        follower
    }

    /// Something happened.
    pub(crate) fn tell(&mut self, time_ms: u64, event: &Event) {
        if self.lost == 0 && self.bytes.len() - self.gone < MOST_BYTES {
            self.put(time_ms, event.clone());
        } else {
            self.lose(1);
        }
    }

    /// So many records never come.
    pub(crate) fn lose(&mut self, records: u64) {
        self.lost += records;
        self.sequence += records;
    }

    /// Whether counters are due; they are put off while others wait.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        self.next_ns <= now_ns
    }

    /// When they are due.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.every_ns.map(|_| self.next_ns)
    }

    /// The counters that were due.
    pub(crate) fn count(&mut self, now_ns: u64, time_ms: u64, counters: &Event) {
        if let Some(every_ns) = self.every_ns {
            self.next_ns = now_ns + every_ns;
            self.tell(time_ms, counters);
        }
    }

    /// Whether it has lost records and has taken all the others: it is to be told where things are.
    pub(crate) fn is_behind(&self) -> bool {
        self.lost != 0 && self.waiting().is_empty()
    }

    /// Goes on after a loss.
    pub(crate) fn recover(&mut self, time_ms: u64, snapshot: Event) {
        let records = std::mem::take(&mut self.lost);
        self.put(time_ms, Event::Lost { records });
        self.put(time_ms, snapshot);
    }

    /// What is to be sent.
    pub(crate) fn waiting(&self) -> &[u8] {
        &self.bytes[self.gone..]
    }

    /// So many bytes of that have gone.
    pub(crate) fn sent(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.gone == self.bytes.len() {
            // A snapshot's room is not kept.
            self.bytes = Vec::new();
            self.gone = 0;
        }
    }

    fn put(&mut self, time_ms: u64, event: Event) {
        self.bytes.extend(Record { sequence: self.sequence, time_ms, event }.line());
        self.sequence += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(bytes: &[u8]) -> Vec<Record> {
        bytes
            .split(|&byte| byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect()
    }

    #[test]
    fn a_slow_listener_keeps_little_loses_the_rest_and_is_told_how_much() {
        let mut follower = Follower::new(0, None, 1, Event::Stopping);
        let long =
            Event::Session { peer: "x".repeat(1000), what: crate::events::SessionChange::Up, why: None };
        for _ in 0..1000 {
            follower.tell(2, &long);
        }
        assert!(follower.waiting().len() < MOST_BYTES + 2000);
        let kept = records(follower.waiting());
        assert_eq!(kept.last().unwrap().sequence as usize, kept.len() - 1);
        assert!(!follower.is_behind(), "it has something to read first");
        follower.sent(1);
        follower.tell(2, &long);
        follower.sent(follower.waiting().len());
        assert!(follower.is_behind());
        follower.recover(3, Event::Stopping);
        let after = records(follower.waiting());
        assert_eq!(after[0].event, Event::Lost { records: 1002 - kept.len() as u64 });
        assert_eq!(after[0].sequence, 1002, "lost records have numbers");
        assert_eq!(after.len(), 2);
        follower.sent(follower.waiting().len());
        follower.tell(4, &long);
        assert_eq!(records(follower.waiting()).len(), 1);
    }

    #[test]
    fn counters_come_as_often_as_was_asked_for() {
        let mut follower = Follower::new(100, Some(50), 1, Event::Stopping);
        assert!(!follower.is_due(149) && follower.is_due(150));
        follower.count(170, 1, &Event::Stopping);
        assert_eq!(follower.deadline_ns(), Some(220));
        assert_eq!(Follower::new(0, None, 1, Event::Stopping).deadline_ns(), None);
    }
}
