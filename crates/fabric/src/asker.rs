//! Orders to boxes, asked again until they are answered.

use std::collections::VecDeque;

use etherslot_wire::NodeId;
use etherslot_wire::discovery::{Order, Outcome, Progress};

/// Between two askings of the same order: at first, and at most. Each time it is twice as long.
const AGAIN_NS: (u64, u64) = (2_000_000, 50_000_000);
/// Orders that are remembered; the oldest make room.
const ORDERS: usize = 64;

/// An order, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The order.
    pub order: Order,
    /// The latest that its box has said.
    pub outcome: Option<Outcome>,
    again_ns: u64,
    interval_ns: u64,
    until_ns: u64,
}

impl Asked {
    /// Whether nothing will change any more: it was done or not, or whoever gave it waits no longer, and it is not sent again.
    pub fn is_over(&self, now_ns: u64) -> bool {
        now_ns >= self.until_ns || self.outcome.is_some_and(|outcome| outcome.progress != Progress::Working)
    }
}

/// The orders of a node.
#[derive(Clone, Debug, Default)]
pub struct Asker {
    next: u64,
    asked: VecDeque<Asked>,
}

impl Asker {
    /// Takes an order, whose number is given here; returns it. It is withdrawn after `patience_ns`: a box that hears nothing of it until
    /// then never will.
    pub fn ask(&mut self, now_ns: u64, patience_ns: u64, order: Order) -> u64 {
        self.next += 1;
        if self.asked.len() >= ORDERS {
            self.asked.pop_front();
        }
        let order = Order { number: self.next, ..order };
        let (interval_ns, until_ns) = (AGAIN_NS.0, now_ns.saturating_add(patience_ns));
        self.asked.push_back(Asked { order, outcome: None, again_ns: now_ns, interval_ns, until_ns });
        self.next
    }

    /// Whoever gave this order waits for it no longer.
    pub fn withdraw(&mut self, now_ns: u64, number: u64) {
        if let Some(asked) = self.asked.iter_mut().find(|asked| asked.order.number == number) {
            asked.until_ns = asked.until_ns.min(now_ns);
        }
    }

    /// What is known of an order.
    pub fn get(&self, number: u64) -> Option<&Asked> {
        self.asked.iter().find(|asked| asked.order.number == number)
    }

    /// A box has said how far an order of ours is.
    pub fn hear(&mut self, from: NodeId, outcome: &Outcome) {
        let known = self.asked.iter_mut().find(|asked| asked.order.number == outcome.number);
        if let Some(asked) = known.filter(|asked| asked.order.to == from) {
            let is_final = asked.outcome.is_some_and(|known| known.progress != Progress::Working);
            if !is_final {
                asked.outcome = Some(*outcome);
            }
        }
    }

    /// The orders that are to be sent now.
    pub fn poll(&mut self, now_ns: u64, send: &mut dyn FnMut(&Order)) -> bool {
        let mut progress = false;
        for asked in &mut self.asked {
            if asked.again_ns <= now_ns && !asked.is_over(now_ns) {
                asked.again_ns = now_ns + asked.interval_ns;
                asked.interval_ns = (2 * asked.interval_ns).min(AGAIN_NS.1);
                send(&asked.order);
                progress = true;
            }
        }
        progress
    }

    /// When [`Asker::poll`] has something to send.
    pub fn deadline_ns(&self, now_ns: u64) -> Option<u64> {
        self.asked.iter().filter(|asked| !asked.is_over(now_ns)).map(|asked| asked.again_ns).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_wire::control::Name;
    use etherslot_wire::discovery::Change;

    #[test]
    fn an_order_is_never_sent_again_once_its_giver_has_stopped_waiting() {
        let (to, device) = (NodeId([2; 16]), Name::new("disk0").unwrap());
        let change = Change::Nobody;
        let order = Order { number: 0, to, life: 0, device, change, dry_run: false, force: false };
        let mut asker = Asker::default();
        let number = asker.ask(0, 1_000_000_000, order);
        let mut sent_ns = Vec::new();
        while let Some(now_ns) = asker.deadline_ns(sent_ns.last().copied().unwrap_or(0)) {
            if !asker.poll(now_ns, &mut |_| sent_ns.push(now_ns)) {
                break;
            }
        }
        assert!(sent_ns.len() > 10 && sent_ns.iter().all(|&at| at < 1_000_000_000), "{sent_ns:?}");
        assert!(!asker.poll(60_000_000_000, &mut |_| panic!("it was withdrawn")));
        assert!(asker.get(number).unwrap().is_over(1_000_000_000));
        let number = asker.ask(0, 1_000_000_000, order);
        assert!(asker.poll(0, &mut |_| {}));
        asker.withdraw(1, number);
        assert!(!asker.poll(900_000_000, &mut |_| panic!("it was withdrawn early")));
        asker.withdraw(2, number + 1);
    }
}
