//! What follows when the adversary stops: a network that loses nothing, and nodes that have to come to rest.

use etherslot_session::{Session, State};

use crate::scope::Order;
use crate::world::{DEAD_AFTER_NS, World};

/// From one end to the other.
const DELAY_NS: u64 = 20_000;
/// Two deaths one after the other, the attempts after them, and something to spare.
const LIMIT_NS: u64 = 6 * DEAD_AFTER_NS;
/// Events after which a run that has not come to rest never will.
const MAX_EVENTS: usize = 5_000;

impl World {
    /// Runs until both ends are up with each other, have carried so many more records each way, and everything that
    /// was put into this session has been taken and acknowledged. Bursts before `first` do not arrive; if `replays` is
    /// set they all do, once more if need be, the last sent first.
    ///
    /// A session that is up at both ends and has not been cut off for long has to survive.
    pub(crate) fn run_fairly(&mut self, first: usize, replays: bool, records: u32) -> Result<(), String> {
        for end in &mut self.ends {
            end.shim.is_holding = false;
        }
        let survivors = self.pair_up().filter(|_| self.now_ns - self.start_ns < DEAD_AFTER_NS / 2);
        let until_ns = self.now_ns + LIMIT_NS;
        let mut next = first;
        let mut stale = if replays { first } else { 0 };
        let mut goal: Option<([usize; 2], [u32; 2])> = None;
        for _ in 0..MAX_EVENTS {
            self.lives.fault.clone().map_or(Ok(()), Err)?;
            if let Some(pair) = survivors
                && pair != [0, 1].map(|at| self.ends[at].life)
            {
                return Err(format!("lives {pair:?} were up and did not survive"));
            }
            if let Some(pair) = self.pair_up() {
                let earlier = goal.filter(|(goal, _)| *goal == pair);
                let (_, puts) = *goal
                    .insert(earlier.unwrap_or((pair, pair.map(|life| self.lives.of(life).put + records))));
                // One direction after the other, so that none lives on the acknowledgements of the other's data.
                let at = usize::from(
                    self.lives.of(pair[0]).put == puts[0] && self.lives.has_all(pair[1], pair[0]),
                );
                if self.lives.of(pair[at]).put < puts[at] && self.put(at) {
                    self.transmit(at);
                }
                let is_all_in = (0..2).all(|at| self.lives.of(pair[at]).put == puts[at]);
                let unacked = |at: usize| self.ends[at].session.as_ref().map_or(0, Session::unacked_frames);
                if is_all_in
                    && self.lives.has_all(pair[0], pair[1])
                    && self.lives.has_all(pair[1], pair[0])
                    && unacked(0) + unacked(1) == 0
                    && stale == 0
                {
                    return Ok(());
                }
            }
            if stale > 0 {
                stale -= 1;
                self.deliver_burst(stale, Order::Forward);
                self.settle();
                continue;
            }
            let arrival_ns = self.bursts.get(next).map(|burst| burst.sent_ns + DELAY_NS);
            let Some(event_ns) = arrival_ns.into_iter().chain(self.next_timer_ns()).min() else {
                return Err(format!("nothing will ever happen again: {}", self.tell()));
            };
            self.now_ns = self.now_ns.max(event_ns);
            if self.now_ns > until_ns {
                return Err(format!("no rest: {}", self.tell()));
            }
            while self.bursts.get(next).is_some_and(|burst| burst.sent_ns + DELAY_NS <= self.now_ns) {
                self.deliver_burst(next, Order::Forward);
                next += 1;
            }
            self.settle();
        }
        Err(format!("busy without end: {}", self.tell()))
    }

    /// The lives of both ends, if they are up with each other.
    fn pair_up(&self) -> Option<[usize; 2]> {
        let is_up = |at: usize| self.ends[at].session.as_ref().map(Session::state) == Some(State::Up);
        let [one, other] = [0, 1].map(|at| self.ends[at].life);
        (is_up(0) && is_up(1) && self.lives.are_partners(one, other)).then_some([one, other])
    }

    fn tell(&self) -> String {
        let tell = |at: usize| {
            let end = &self.ends[at];
            let state = end.session.as_ref().map(Session::state);
            let unacked = end.session.as_ref().map_or(0, Session::unacked_frames);
            format!("node {at} {state:?}, {unacked} frames unacknowledged")
        };
        format!("{}; {}", tell(0), tell(1))
    }
}
