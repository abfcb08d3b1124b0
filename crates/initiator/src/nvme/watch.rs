//! Watching a controller at work: what takes too long, and whether it is well.

use std::fmt;

use super::Controller;
use super::bits::{REGISTERS, register};
use super::bring_up::Step;
use super::queue::State;
use crate::disk::DiskError;
use crate::machine::{Access, Machine};

/// A controller that completed nothing for so long, though something is under way, is asked whether it is well.
const QUIET_NS: u64 = 1_000_000_000;

impl Controller {
    /// Looks for requests that took too long, and for a controller that is silent.
    pub(super) fn check<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<'_, A>,
    ) -> bool {
        let give_up_ns = self.config.give_up_ns;
        let before = self.ended.len();
        if matches!(self.step, Step::Unusable) {
            self.end_waiting(DiskError::Unusable, |_| true);
        } else {
            let error = if machine.device().is_some() { DiskError::TimedOut } else { DiskError::Lost };
            self.end_waiting(error, |slot| now_ns - slot.taken_ns > give_up_ns);
        }
        if !self.is_ready() {
            return self.ended.len() != before;
        }
        let late_ns = self.config.command_timeout_ns;
        let under_way = || {
            let slots = self.queues.iter().flat_map(|queue| &queue.slots);
            slots.filter(|slot| slot.state == State::UnderWay)
        };
        let is_late =
            under_way().any(|slot| now_ns - slot.sent_ns > late_ns || now_ns - slot.taken_ns > give_up_ns);
        let is_idle = under_way().next().is_none();
        if self.done() != self.quiet_at || is_idle {
            (self.quiet_since_ns, self.quiet_at) = (now_ns, self.done());
        }
        if is_late {
            tracing::warn!("commands are not done in time; resetting the controller");
            self.start_over(machine);
            return true;
        }
        if now_ns - self.quiet_since_ns > QUIET_NS {
            self.quiet_since_ns = now_ns;
            self.asked = self.asked
                || machine.ask(now_ns, Access::BarRead { bar: REGISTERS, offset: register::CSTS, bytes: 4 });
            return true;
        }
        self.ended.len() != before
    }
}
