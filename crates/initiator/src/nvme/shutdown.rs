//! Ending the use of a controller in order (NVMe Base 1.4, 7.6.2): it is told, and makes durable what it has only taken.

use std::fmt;

use super::Controller;
use super::bits::{CC_SHUT_DOWN, REGISTERS, csts, register};
use super::bring_up::{PACE_NS, Step, access, u32_of};
use crate::machine::{Access, Machine};

/// A controller that is not done by then is left as it is.
const PATIENCE_NS: u64 = 5_000_000_000;

impl Controller {
    /// Begins to shut the controller down. From now on it takes no requests: those that are not done end, too.
    pub(crate) fn shut_down(&mut self, now_ns: u64) {
        self.step = match self.step {
            // An access may be under way: its answer is waited for, and is no answer of ours.
            Step::Ready => Step::ShutDown { told: false, until_ns: now_ns + PATIENCE_NS, next_ns: now_ns },
            Step::ShutDown { .. } => return,
            _ => Step::Unusable,
        };
    }

    /// Whether it has nothing more to do, for good.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.step, Step::Unusable)
    }

    /// One step. True if there may be a further one now.
    pub(super) fn go_on_shutting_down<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<'_, A>,
    ) -> bool {
        let Step::ShutDown { told, until_ns, next_ns } = &mut self.step else { return false };
        if now_ns >= *until_ns {
            tracing::warn!("the controller is not shut down in time");
            self.step = Step::Unusable;
            return true;
        }
        if !*told {
            *told = machine.bar_write(REGISTERS, register::CC, &CC_SHUT_DOWN.to_le_bytes());
            // What was asked before tells nothing of this.
            self.asked = false;
            return *told;
        }
        if now_ns < *next_ns {
            return false;
        }
        let status = Access::BarRead { bar: REGISTERS, offset: register::CSTS, bytes: 4 };
        let Some(status) = access(&mut self.asked, now_ns, machine, status).map(u32_of) else { return false };
        *next_ns = now_ns + PACE_NS;
        let is_gone = status == u32::MAX;
        if status & csts::SHST != csts::SHST_COMPLETE && !is_gone {
            return true;
        }
        self.harvest(machine.arena());
        if !is_gone {
            // It processes no commands now (3.1.5), and what it wrote before is here.
            self.call_back();
        }
        self.step = Step::Unusable;
        true
    }
}
