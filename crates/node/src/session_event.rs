//! Sessions that came up or died, for those who watch a node.

use std::collections::VecDeque;

use etherslot_session::DeadReason;

/// Events that wait to be taken; the oldest are dropped.
const EVENTS: usize = 64;

/// What became of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEvent<A> {
    /// It came up.
    Up {
        /// The peer's address.
        peer: A,
    },
    /// It died.
    Dead {
        /// The peer's address.
        peer: A,
        /// Why; nothing if the peer began another one in its place.
        reason: Option<DeadReason>,
    },
}

/// Those that were not taken yet.
#[derive(Debug)]
pub(crate) struct SessionEvents<A>(VecDeque<SessionEvent<A>>);

impl<A> Default for SessionEvents<A> {
    fn default() -> Self {
        Self(VecDeque::with_capacity(EVENTS))
    }
}

impl<A> SessionEvents<A> {
    pub(crate) fn push(&mut self, event: SessionEvent<A>) {
        if self.0.len() == EVENTS {
            self.0.pop_front();
        }
        self.0.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<SessionEvent<A>> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_events_that_nobody_takes_the_newest_stay() {
        let mut events = SessionEvents::default();
        for peer in 0..EVENTS + 3 {
            events.push(SessionEvent::Up { peer });
        }
        assert_eq!(events.pop(), Some(SessionEvent::Up { peer: 3 }));
        assert_eq!(std::iter::from_fn(|| events.pop()).count(), EVENTS - 1);
    }
}
