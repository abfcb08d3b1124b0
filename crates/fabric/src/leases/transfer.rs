//! How a device changes hands: one transaction a device, which ends as it was asked or as it began.
//!
//! ```text
//!            held by another                given back, or owner lost         taken
//!  order ───────────────────▶ Recalling ──────────────────────────▶ Offering ───────▶ done
//!    │                           │ time's up: fenced if forced,        │ time's up:
//!    │ free                      ▼ else rolled back                    ▼ rolled back
//!    └────────────────────────────────────────────────────────────▶ (Offering, or done without a certain host)
//! ```

use etherslot_wire::NodeId;
use etherslot_wire::discovery::{Assigned, Change, Group, Order, Outcome, Progress, Reason, Step};

use super::{Action, Holder, Key, Leases, OUTCOMES, RecallKind, apply};
use crate::directory::Presence;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// The owner is to give it back.
    Recalling { until_ns: u64 },
    /// It is being taken away.
    Fencing,
    /// The new owner is to take it.
    Offering { until_ns: u64 },
}

#[derive(Clone, Debug)]
pub(super) struct Transfer {
    pub(super) key: Key,
    pub(super) stage: Stage,
    change: Change,
    force: bool,
    before: (Assigned, Option<Group>, bool),
    from: Option<NodeId>,
    began_ns: u64,
}

impl Transfer {
    pub(super) fn until_ns(&self) -> Option<u64> {
        match self.stage {
            Stage::Recalling { until_ns } | Stage::Offering { until_ns } => Some(until_ns),
            Stage::Fencing => None,
        }
    }
}

impl Leases {
    /// Takes an order, or says how far it is if it was taken before. `presence` tells what is known of a host.
    pub fn order(
        &mut self,
        now_ns: u64,
        key: Key,
        order: &Order,
        presence: &dyn Fn(NodeId) -> Option<Presence>,
    ) -> Outcome {
        if let Some(outcome) = self.outcome(now_ns, key) {
            return outcome;
        }
        let to = match order.change {
            Change::Host(host) => Some(host),
            Change::Group(_) | Change::Nobody | Change::Anybody => None,
        };
        let mut outcome = Outcome {
            asker: key.asker,
            asker_life: key.life,
            number: key.number,
            progress: Progress::Refused,
            step: Step::None,
            reason: Reason::None,
            elapsed_ms: 0,
            epoch: 0,
            from: None,
            to,
        };
        let Some(index) = self.index(&order.device) else {
            self.counters.refused += 1;
            return Outcome { reason: Reason::UnknownDevice, ..outcome };
        };
        let entry = &self.entries[index];
        (outcome.from, outcome.epoch) = (entry.owner(), entry.epoch);
        let holds = |host| matches!(entry.holder, Holder::Held { host: owner, .. } if owner == host);
        let refusal = match to.map(|host| (holds(host), presence(host))) {
            _ if to.is_some_and(|host| !entry.may_be_of(host)) => Some(Reason::NotAnOwner),
            _ if entry.transfer.is_some() => Some(Reason::Busy),
            Some((false, None)) => Some(Reason::UnknownHost),
            Some((false, Some(Presence::Down | Presence::Left))) => Some(Reason::SilentHost),
            _ => None,
        };
        if let Some(reason) = refusal {
            self.counters.refused += 1;
            return Outcome { reason, ..outcome };
        }
        if order.dry_run {
            return Outcome { progress: Progress::Done, step: entry.first_step(order.change), ..outcome };
        }
        self.begin(now_ns, index, key, order);
        self.outcome(now_ns, key).unwrap_or(outcome)
    }

    fn begin(&mut self, now_ns: u64, index: usize, key: Key, order: &Order) {
        let entry = &mut self.entries[index];
        let before = (entry.assigned, entry.group, entry.is_ordered);
        let (assigned, group) = apply(order.change, entry.group);
        let transfer = |stage| Transfer {
            key,
            stage,
            change: order.change,
            force: order.force,
            before,
            from: entry.owner(),
            began_ns: now_ns,
        };
        if entry.first_step(order.change) == Step::None {
            entry.transfer = Some(transfer(Stage::Fencing));
            (entry.assigned, entry.group, entry.is_ordered) = (assigned, group, true);
            self.touch(index);
            self.done(now_ns, index);
            return;
        }
        if let Holder::Held { host, .. } = entry.holder {
            let window_ns = self.config.recall_ns;
            entry.transfer = Some(transfer(Stage::Recalling { until_ns: now_ns + window_ns }));
            self.actions.push_back(Action { device: index, host, kind: RecallKind::Recall { window_ns } });
            self.touch(index);
            return;
        }
        // Of an owner that is out of reach nothing can come any more: its session is dead.
        entry.transfer = Some(transfer(Stage::Fencing));
        entry.holder = Holder::Free;
        self.touch(index);
        self.recalled(now_ns, index);
    }

    /// Nobody has the device now, nor can touch it. If it was recalled, it goes on to the next.
    pub(super) fn recalled(&mut self, now_ns: u64, index: usize) {
        let offer_ns = self.config.offer_ns;
        let entry = &mut self.entries[index];
        let Some(transfer) = &mut entry.transfer else { return };
        if let Stage::Offering { .. } = transfer.stage {
            return;
        }
        (entry.assigned, entry.group) = apply(transfer.change, entry.group);
        entry.is_ordered = true;
        if let Change::Host(_) = transfer.change {
            transfer.stage = Stage::Offering { until_ns: now_ns + offer_ns };
            self.touch(index);
        } else {
            self.touch(index);
            self.done(now_ns, index);
        }
    }

    pub(super) fn poll_transfer(&mut self, now_ns: u64, index: usize) -> bool {
        let entry = &mut self.entries[index];
        let Some(transfer) = &mut entry.transfer else { return false };
        if transfer.until_ns().is_none_or(|until_ns| now_ns < until_ns) {
            return false;
        }
        match (transfer.stage, entry.holder) {
            (Stage::Recalling { .. }, Holder::Held { host, .. }) if transfer.force => {
                transfer.stage = Stage::Fencing;
                self.counters.fenced += 1;
                self.actions.push_back(Action { device: index, host, kind: RecallKind::Fence });
            }
            (Stage::Recalling { .. }, holder) => {
                if let Holder::Held { host, .. } = holder {
                    self.actions.push_back(Action { device: index, host, kind: RecallKind::Keep });
                }
                self.roll_back(now_ns, index, Reason::NotReleased);
            }
            (Stage::Offering { .. }, _) => {
                (entry.assigned, entry.group, entry.is_ordered) = transfer.before;
                // Its former owner gets it back, and nobody before it.
                if let Some(host) = transfer.from {
                    let hold_ns = self.config.hold_ns.max(self.config.offer_ns);
                    entry.holder = Holder::Kept { host, until_ns: now_ns + hold_ns };
                }
                self.roll_back(now_ns, index, Reason::NotTaken);
            }
            (Stage::Fencing, _) => return false,
        }
        true
    }

    fn roll_back(&mut self, now_ns: u64, index: usize, reason: Reason) {
        self.counters.rolled_back += 1;
        self.end(now_ns, index, Progress::RolledBack, reason);
    }

    pub(super) fn done(&mut self, now_ns: u64, index: usize) {
        self.counters.moved += 1;
        self.end(now_ns, index, Progress::Done, Reason::None);
    }

    fn end(&mut self, now_ns: u64, index: usize, progress: Progress, reason: Reason) {
        let entry = &mut self.entries[index];
        let Some(transfer) = entry.transfer.take() else { return };
        let mut outcome = transfer.outcome(now_ns, entry.epoch);
        (outcome.progress, outcome.reason, outcome.step) = (progress, reason, Step::None);
        if self.outcomes.len() >= OUTCOMES {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back((transfer.key, outcome));
        self.touch(index);
    }

    /// How far an order is that was taken.
    pub fn outcome(&self, now_ns: u64, key: Key) -> Option<Outcome> {
        let over = self.outcomes.iter().find(|(known, _)| *known == key).map(|(_, outcome)| *outcome);
        over.or_else(|| {
            let entry =
                self.entries.iter().find(|entry| entry.transfer.as_ref().is_some_and(|it| it.key == key))?;
            Some(entry.transfer.as_ref()?.outcome(now_ns, entry.epoch))
        })
    }
}

impl Transfer {
    fn outcome(&self, now_ns: u64, epoch: u64) -> Outcome {
        Outcome {
            asker: self.key.asker,
            asker_life: self.key.life,
            number: self.key.number,
            progress: Progress::Working,
            step: match self.stage {
                Stage::Recalling { .. } | Stage::Fencing => Step::Recall,
                Stage::Offering { .. } => Step::Offer,
            },
            reason: Reason::None,
            elapsed_ms: u32::try_from(now_ns.saturating_sub(self.began_ns) / 1_000_000).unwrap_or(u32::MAX),
            epoch,
            from: self.from,
            to: match self.change {
                Change::Host(host) => Some(host),
                Change::Group(_) | Change::Nobody | Change::Anybody => None,
            },
        }
    }
}
