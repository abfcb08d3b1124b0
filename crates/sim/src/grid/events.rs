//! What happens next: a heap by time, and by order of coming at one time.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The frame in this slot has come to the switch.
    AtSwitch(u32),
    /// The frame in this slot has come to its node.
    AtNode(u32),
    /// The ring of this node's NIC has room again.
    Room(u32),
    /// A deadline of this end has come.
    Wake(u32),
    /// The session of this end is replaced by a new one.
    Restart(u32),
    /// This end gets its load.
    Load(u32),
    /// All senders have a burst to send.
    Burst,
    /// A line of the trace is due.
    Sample,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at_ns: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The heap gives out its greatest entry, so the earliest is that.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.order).cmp(&(self.at_ns, self.order))
    }
}

/// The events to come.
#[derive(Debug, Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl Events {
    /// Lets something happen at a time.
    pub(crate) fn push(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.heap.push(Entry { at_ns, order: self.order, event });
    }

    /// The next event, if it is not after `until_ns`.
    pub(crate) fn pop(&mut self, until_ns: u64) -> Option<(u64, Event)> {
        if self.heap.peek()?.at_ns > until_ns {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at_ns, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happens_at_one_time_happens_in_the_order_it_was_put_in() {
        let mut events = Events::default();
        events.push(5, Event::Wake(1));
        events.push(3, Event::Wake(2));
        events.push(5, Event::Wake(3));
        let all: Vec<_> = std::iter::from_fn(|| events.pop(5)).collect();
        assert_eq!(all, [(3, Event::Wake(2)), (5, Event::Wake(1)), (5, Event::Wake(3))]);
        events.push(7, Event::Sample);
        assert_eq!(events.pop(6), None);
    }
}
