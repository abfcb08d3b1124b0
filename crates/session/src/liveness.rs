//! Whether the peer is alive: it is asked for a sign when nothing has been heard of it for a while.

use crate::config::Config;

/// Signs asked for in vain before silence is death: a node that was itself suspended asks first.
const MIN_UNANSWERED: u32 = 3;

/// What is known of the peer's life.
#[derive(Debug)]
pub(crate) struct Liveness {
    heartbeat_ns: u64,
    dead_after_ns: u64,
    heard_ns: u64,
    asked_ns: u64,
    unanswered: u32,
    is_due: bool,
}

impl Liveness {
    pub(crate) fn new(config: &Config, now_ns: u64) -> Self {
        Self {
            heartbeat_ns: config.heartbeat_ns,
            dead_after_ns: config.dead_after_ns,
            heard_ns: now_ns,
            asked_ns: now_ns,
            unanswered: 0,
            is_due: false,
        }
    }

    /// The peer has been heard.
    pub(crate) fn on_heard(&mut self, now_ns: u64) {
        self.heard_ns = now_ns;
        self.unanswered = 0;
    }

    /// Whether a frame that asks for a sign of life has to leave.
    pub(crate) fn is_due(&self) -> bool {
        self.is_due
    }

    /// It has left.
    pub(crate) fn on_asked(&mut self) {
        self.is_due = false;
    }

    /// When silence from the beginning is the end of an attempt to connect.
    pub(crate) fn answer_deadline_ns(&self) -> u64 {
        self.heard_ns + self.dead_after_ns
    }

    /// When [`Liveness::expire`] has something to say; `sooner_ns` is the interval if there is a reason to ask sooner.
    pub(crate) fn deadline_ns(&self, sooner_ns: Option<u64>) -> u64 {
        let ask = self.ask_ns(sooner_ns);
        if self.unanswered >= MIN_UNANSWERED { ask.min(self.answer_deadline_ns()) } else { ask }
    }

    fn ask_ns(&self, sooner_ns: Option<u64>) -> u64 {
        let interval_ns = sooner_ns.unwrap_or(u64::MAX).min(self.heartbeat_ns);
        self.heard_ns.max(self.asked_ns) + interval_ns
    }

    /// Lets the timers run up to now; whether the peer is dead.
    pub(crate) fn expire(&mut self, now_ns: u64, sooner_ns: Option<u64>) -> bool {
        if now_ns >= self.ask_ns(sooner_ns) {
            self.is_due = true;
            self.asked_ns = now_ns;
            self.unanswered = self.unanswered.saturating_add(1);
        }
        self.unanswered >= MIN_UNANSWERED && now_ns >= self.answer_deadline_ns()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_was_suspended_itself_asks_before_it_calls_the_peer_dead() {
        let config = Config::default();
        let mut liveness = Liveness::new(&config, 0);
        let mut now_ns = 10 * config.dead_after_ns;
        assert!(!liveness.expire(now_ns, None) && liveness.is_due());
        while !liveness.expire(now_ns, None) {
            now_ns = liveness.deadline_ns(None);
            assert!(now_ns <= 11 * config.dead_after_ns, "dead in bounded time all the same");
        }
        assert!(now_ns >= 10 * config.dead_after_ns + 2 * config.heartbeat_ns);
    }

    #[test]
    fn what_is_heard_puts_off_the_next_question() {
        let mut liveness = Liveness::new(&Config::default(), 0);
        let first = liveness.deadline_ns(None);
        liveness.on_heard(5_000);
        assert_eq!(liveness.deadline_ns(None), first + 5_000);
        assert_eq!(liveness.deadline_ns(Some(10)), 5_010);
    }
}
