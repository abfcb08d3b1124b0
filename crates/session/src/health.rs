//! Whether a path works, judged by what others do.
//!
//! A path works as long as what leaves on it is answered: the peer echoes it on the same path, or acknowledges the
//! frames. One that leaves frames or a question unanswered for a while is *suspected*: it is asked again and gets
//! nothing new. It is *down* if the peer has meanwhile answered, on another path, something that left well after that
//! question: so a peer that is only not running takes no path down. A path that is down is asked now and then, and is
//! up again with the first answer.
//!
//! A session's only path is never judged; silence on all paths is the session's matter (`liveness`).

use crate::config::Config;

/// A path that is down is asked after this, then after twice as long each time, up to a heartbeat.
const FIRST_INTERVAL_NS: u64 = 5_000_000;
/// The least time that a suspected path has to answer.
const MIN_PATIENCE_NS: u64 = 2_000_000;
/// Frames of a path that are lost in a row, not one arriving, before it is taken for one that answers small frames and
/// loses long ones.
const MAX_IN_VAIN: u32 = 16;

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    /// It has not joined.
    Unused,
    /// It has not answered yet, or does not any more.
    Down,
    /// It answers.
    Up,
}

/// What is to be done about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Nothing.
    Fine,
    /// The other paths are to be asked, to compare with.
    Compare,
    /// It is down.
    Down,
}

/// What is seen of a path and of the others.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the unit ends a name")]
pub(crate) struct Seen {
    /// Since when frames on this path wait to be acknowledged, if any do.
    pub(crate) busy_since_ns: Option<u64>,
    /// After how long without an answer it is suspected.
    pub(crate) silence_ns: u64,
    /// After how long without an answer a tail-loss probe leaves: what it has to answer then.
    pub(crate) probe_ns: u64,
    /// When the newest transmission left that was answered on another path that is up, if there is one.
    pub(crate) other_answered_ns: Option<u64>,
}

/// The health of one path.
#[derive(Debug)]
pub(crate) struct Health {
    condition: Condition,
    heartbeat_ns: u64,
    max_interval_ns: u64,
    /// When the newest of our transmissions left that was answered on this path, and when the answer came.
    answered_tx_ns: u64,
    answered_ns: u64,
    asked_ns: u64,
    is_ask_due: bool,
    suspected_ns: Option<u64>,
    /// Since when it is down.
    down_ns: u64,
    interval_ns: u64,
    in_vain: u32,
}

impl Health {
    pub(crate) fn new(config: &Config, now_ns: u64) -> Self {
        Self {
            condition: Condition::Unused,
            heartbeat_ns: config.heartbeat_ns,
            max_interval_ns: config.dead_after_ns,
            answered_tx_ns: 0,
            answered_ns: now_ns,
            asked_ns: now_ns,
            is_ask_due: false,
            suspected_ns: None,
            down_ns: now_ns,
            interval_ns: FIRST_INTERVAL_NS,
            in_vain: 0,
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.condition == Condition::Up
    }

    /// Whether it is better not used while another is up.
    pub(crate) fn is_suspected(&self) -> bool {
        self.suspected_ns.is_some()
    }

    /// When the newest transmission left that was answered on this path.
    pub(crate) fn answered_tx_ns(&self) -> u64 {
        self.answered_tx_ns
    }

    /// How long it has been down.
    pub(crate) fn down_for_ns(&self, now_ns: u64) -> u64 {
        if self.condition == Condition::Down { now_ns.saturating_sub(self.down_ns) } else { 0 }
    }

    /// The path joins the session; it has to answer first.
    pub(crate) fn join(&mut self, now_ns: u64) {
        self.interval_ns = FIRST_INTERVAL_NS;
        self.take_down(now_ns);
        self.ask(now_ns);
    }

    /// The path of the handshake has answered.
    pub(crate) fn begin(&mut self, now_ns: u64) {
        self.condition = Condition::Up;
        self.answered_ns = now_ns;
        self.asked_ns = now_ns;
    }

    /// It is down: the next question comes after a while, the longer the more often it went down with nothing arriving
    /// in between.
    pub(crate) fn take_down(&mut self, now_ns: u64) {
        if self.condition == Condition::Up {
            self.interval_ns = (2 * self.interval_ns).min(self.max_interval_ns);
        }
        self.condition = Condition::Down;
        self.down_ns = now_ns;
        self.asked_ns = now_ns;
        self.is_ask_due = false;
        self.suspected_ns = None;
        self.in_vain = 0;
    }

    /// Whether a question has to leave.
    pub(crate) fn is_ask_due(&self) -> bool {
        self.is_ask_due
    }

    /// A question is to leave.
    pub(crate) fn ask(&mut self, now_ns: u64) {
        self.asked_ns = now_ns;
        self.is_ask_due = true;
    }

    /// It has left.
    pub(crate) fn on_asked(&mut self) {
        self.is_ask_due = false;
    }

    /// What left at `tx_ns` was answered on this path; whether that brings it up.
    pub(crate) fn on_answer(&mut self, now_ns: u64, tx_ns: u64) -> bool {
        self.answered_ns = now_ns;
        self.answered_tx_ns = self.answered_tx_ns.max(tx_ns);
        if self.suspected_ns.is_some_and(|suspected_ns| tx_ns >= suspected_ns) {
            self.suspected_ns = None;
        }
        let is_back = self.condition == Condition::Down && tx_ns >= self.down_ns;
        if is_back {
            self.condition = Condition::Up;
        }
        is_back
    }

    /// Frames that left on this path have arrived.
    pub(crate) fn on_arrival(&mut self) {
        self.suspected_ns = None;
        self.in_vain = 0;
        if self.condition == Condition::Up {
            self.interval_ns = FIRST_INTERVAL_NS;
        }
    }

    /// A frame that left on this path is lost.
    pub(crate) fn on_loss(&mut self) {
        self.in_vain = self.in_vain.saturating_add(1);
    }

    fn patience_ns(seen: &Seen) -> u64 {
        seen.probe_ns.max(MIN_PATIENCE_NS)
    }

    /// Since when something is unanswered. What waits behind an answer has been passed by it, and is found lost.
    fn waits_since_ns(&self, seen: &Seen) -> Option<u64> {
        let asked = (self.answered_tx_ns < self.asked_ns && self.answered_ns < self.asked_ns)
            .then_some(self.asked_ns);
        let busy = seen.busy_since_ns.map(|since_ns| since_ns.max(self.answered_tx_ns));
        [asked, busy].into_iter().flatten().min()
    }

    fn heartbeat_at_ns(&self) -> u64 {
        self.answered_ns.max(self.asked_ns) + self.heartbeat_ns
    }

    /// When the other paths have to have answered something of, to compare with.
    fn compares_ns(suspected_ns: u64, seen: &Seen) -> u64 {
        suspected_ns + Self::patience_ns(seen) / 2
    }

    /// Lets the path's timers run up to now.
    pub(crate) fn judge(&mut self, now_ns: u64, seen: &Seen) -> Judgement {
        match self.condition {
            Condition::Unused => return Judgement::Fine,
            Condition::Down => {
                if now_ns >= self.asked_ns + self.interval_ns {
                    self.ask(now_ns);
                    self.interval_ns = (2 * self.interval_ns).min(self.heartbeat_ns).max(self.interval_ns);
                }
                return Judgement::Fine;
            }
            Condition::Up => {}
        }
        if now_ns >= self.heartbeat_at_ns() {
            self.ask(now_ns);
        }
        let Some(other_ns) = seen.other_answered_ns else {
            self.suspected_ns = None;
            return Judgement::Fine;
        };
        if self.in_vain >= MAX_IN_VAIN {
            return Judgement::Down;
        }
        let Some(suspected_ns) = self.suspected_ns else {
            if self.waits_since_ns(seen).is_some_and(|since_ns| now_ns >= since_ns + seen.silence_ns) {
                self.suspected_ns = Some(now_ns);
                self.ask(now_ns);
            }
            return Judgement::Fine;
        };
        if now_ns >= suspected_ns + Self::patience_ns(seen)
            && other_ns >= Self::compares_ns(suspected_ns, seen)
        {
            return Judgement::Down;
        }
        if now_ns >= self.asked_ns + Self::patience_ns(seen) / 2 {
            self.ask(now_ns);
            return Judgement::Compare;
        }
        Judgement::Fine
    }

    /// When [`Health::judge`] has something to say.
    pub(crate) fn deadline_ns(&self, seen: &Seen) -> u64 {
        match self.condition {
            Condition::Unused => u64::MAX,
            Condition::Down => self.asked_ns + self.interval_ns,
            Condition::Up => {
                let Some(other_ns) = seen.other_answered_ns else { return self.heartbeat_at_ns() };
                let next_ns = match self.suspected_ns {
                    _ if self.in_vain >= MAX_IN_VAIN => 0,
                    None => self.waits_since_ns(seen).map_or(u64::MAX, |since_ns| since_ns + seen.silence_ns),
                    Some(suspected_ns) if other_ns >= Self::compares_ns(suspected_ns, seen) => {
                        suspected_ns + Self::patience_ns(seen)
                    }
                    Some(_) => self.asked_ns + Self::patience_ns(seen) / 2,
                };
                next_ns.min(self.heartbeat_at_ns())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const PROBE_NS: u64 = 300 * US;

    fn look(busy_since_ns: Option<u64>, other_answered_ns: Option<u64>) -> Seen {
        Seen { busy_since_ns, silence_ns: PROBE_NS, probe_ns: PROBE_NS, other_answered_ns }
    }

    /// Lets the timers run until something is to be done; the others answer at once what left so long before.
    fn run(
        health: &mut Health,
        mut now_ns: u64,
        busy_since_ns: u64,
        end_ns: u64,
        other_lag_ns: u64,
    ) -> Option<u64> {
        while now_ns < end_ns {
            let seen = look(Some(busy_since_ns), Some(now_ns - other_lag_ns));
            now_ns = now_ns.max(health.deadline_ns(&seen)).max(now_ns + 10 * US);
            let seen = Seen { other_answered_ns: Some(now_ns - other_lag_ns), ..seen };
            if health.judge(now_ns, &seen) == Judgement::Down {
                return Some(now_ns);
            }
            health.on_asked();
        }
        None
    }

    fn up(now_ns: u64) -> Health {
        let mut health = Health::new(&Config::default(), now_ns);
        health.begin(now_ns);
        health
    }

    #[test]
    fn a_path_that_answers_nothing_while_another_does_is_down_within_three_milliseconds() {
        let start_ns = 1_000_000 * US;
        let mut health = up(start_ns);
        let down_ns = run(&mut health, start_ns, start_ns, start_ns + 10_000 * US, 20 * US).expect("down");
        assert!((2_000 * US..3_000 * US).contains(&(down_ns - start_ns)), "{}", down_ns - start_ns);
    }

    #[test]
    fn a_peer_that_does_not_run_takes_no_path_down() {
        let start_ns = 1_000_000 * US;
        let mut health = up(start_ns);
        let seen = look(Some(start_ns), Some(start_ns));
        let mut now_ns = start_ns;
        let mut compared = 0;
        while now_ns < start_ns + 50_000 * US {
            now_ns = health.deadline_ns(&seen);
            match health.judge(now_ns, &seen) {
                Judgement::Down => panic!("down at {now_ns}"),
                Judgement::Compare => compared += 1,
                Judgement::Fine => {}
            }
        }
        assert!((10..100).contains(&compared), "{compared}");
    }

    #[test]
    fn an_only_path_is_never_suspected() {
        let mut health = up(0);
        let seen = look(Some(0), None);
        for ms in 0..1000 {
            assert_eq!(health.judge(ms * 1_000 * US, &seen), Judgement::Fine);
            assert!(!health.is_suspected());
        }
    }

    #[test]
    fn an_answer_to_what_left_after_it_went_down_brings_it_up_and_no_other() {
        let mut health = up(0);
        health.take_down(5_000 * US);
        assert!(!health.on_answer(6_000 * US, 4_900 * US));
        assert!(health.on_answer(7_000 * US, 5_000 * US));
        assert!(health.is_up());
    }

    #[test]
    fn the_more_often_it_goes_down_with_nothing_arriving_the_longer_it_is_left_alone() {
        let mut health = up(0);
        let mut waits = Vec::new();
        for round in 1..12 {
            let now_ns = round * 10_000_000 * US;
            health.take_down(now_ns);
            waits.push(health.deadline_ns(&look(None, None)) - now_ns);
            health.on_answer(now_ns, now_ns);
        }
        assert!(waits.is_sorted() && waits[0] == 2 * FIRST_INTERVAL_NS, "{waits:?}");
        assert_eq!(waits.last(), Some(&Config::default().dead_after_ns));
        health.on_arrival();
        health.take_down(0);
        assert_eq!(health.deadline_ns(&look(None, None)), 2 * FIRST_INTERVAL_NS);
    }
}
