//! Virtual time: what happens next.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct Entry<E> {
    at_ns: u64,
    number: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap gives the greatest first: that is the earliest, and of the same time the one that was put in first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.number).cmp(&(self.at_ns, self.number))
    }
}

/// Events in the order of their times; those of the same time in the order in which they were put in.
pub(crate) struct Events<E> {
    heap: BinaryHeap<Entry<E>>,
    number: u64,
}

impl<E> Default for Events<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), number: 0 }
    }
}

impl<E> Events<E> {
    /// Puts in an event.
    pub(crate) fn push(&mut self, at_ns: u64, event: E) {
        self.heap.push(Entry { at_ns, number: self.number, event });
        self.number += 1;
    }

    /// When the next event is.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ns)
    }

    /// Takes out the next event and its time.
    pub(crate) fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at_ns, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_in_the_order_of_their_making() {
        let mut events = Events::default();
        for (at_ns, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (2, 'b')] {
            events.push(at_ns, name);
        }
        let order: Vec<_> = std::iter::from_fn(|| events.pop()).collect();
        assert_eq!(order, [(1, 'a'), (2, 'b'), (5, 'c'), (5, 'd')]);
    }
}
