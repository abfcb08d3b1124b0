//! Start, reset and shutdown (NVMe Base 1.4, 7.3, 7.6, 9.5).
//!
//! A reset ends all commands at once, wherever they are. The controller is ready again (or not ready, CSTS.RDY = 0) only when
//! the last read of memory and the last Request to a medium of its former life have ended: nothing of that life can
//! touch a Buf, a block or a queue of the next.

use super::Nvme;
use super::queue::{Cq, Sq};
use super::registers::Shutdown;
use super::slot::Phase;
use etherslot_storage::MediumError;

/// How long a shutdown waits for commands under way, which the host should have waited for itself.
const PATIENCE_NS: u64 = 500_000_000;

/// Where the controller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// CC.EN is 0.
    Disabled,
    /// CC.EN is 1, CSTS.RDY not yet.
    Starting,
    /// Commands are carried out, unless CSTS.CFS is set.
    Running,
    /// Shut down: ready, but deaf.
    Halted,
    /// CC.EN is 0, CSTS.RDY still 1 until all is quiet.
    Stopping,
}

/// How far a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum ShuttingDown {
    #[default]
    No,
    /// Waits for commands under way, since (ns).
    Ending(u64),
    /// Waits for so many Flushes.
    Flushing(u32),
}

impl Nvme {
    /// CC.EN is set.
    pub(super) fn enable(&mut self) {
        if self.life == Life::Disabled {
            self.life = Life::Starting;
            self.advance_life();
        }
    }

    /// CC.EN is cleared: a Controller Reset.
    pub(super) fn disable(&mut self) {
        self.abandon();
        self.features.reset(true);
        self.shutting_down = ShuttingDown::No;
        self.life = Life::Stopping;
        self.advance_life();
    }

    /// All of it: registers, CMB and features. `power`: more than this Function is reset.
    pub(super) fn reset_all(&mut self, power: bool, by_subsystem: bool) {
        if power && self.life == Life::Running && self.registers.shutdown != Shutdown::Complete {
            self.logs.counters.unsafe_shutdowns += 1;
        }
        self.abandon();
        self.registers.reset(by_subsystem);
        self.cmb.reset();
        self.features.reset(false);
        self.logs.reset();
        self.shutting_down = ShuttingDown::No;
        self.life = Life::Stopping;
        self.advance_life();
    }

    /// CC.SHN asks for a shutdown.
    pub(super) fn shut_down(&mut self) {
        self.registers.shutdown = Shutdown::Occurring;
        self.shutting_down = ShuttingDown::Ending(self.now_ns);
        self.advance_life();
    }

    /// Something that can't be told by a status (9.5: Controller Fatal Status).
    pub(super) fn fatal(&mut self, reason: &'static str) {
        tracing::warn!(reason, nqn = self.identity.nqn, "controller fatal status");
        self.abandon();
        self.registers.fatal = true;
    }

    /// Ends all commands without a word, and forgets the queues.
    fn abandon(&mut self) {
        self.drop_backlogs();
        self.reading.clear();
        self.writing.clear();
        self.pool.forget_all();
        for (index, slot) in (0..).zip(&mut self.slots) {
            if slot.phase == Phase::Free {
                continue;
            }
            slot.phase = Phase::Free;
            slot.queued = false;
            slot.command = None;
            for buf in [slot.buf.take(), slot.other.take()].into_iter().flatten() {
                self.pool.give(buf);
            }
            self.free.push(index);
        }
        for namespace in &mut self.namespaces {
            namespace.users = 0;
        }
        self.give_up_format();
        self.rules_changed();
        self.queues.clear();
        self.events.reset();
        self.io_active = 0;
    }

    /// Nothing of the former life is left.
    fn is_quiet(&self) -> bool {
        self.reads_outstanding == 0 && self.media_outstanding == 0
    }

    /// Goes on to the next state, if it is time.
    pub(super) fn advance_life(&mut self) -> bool {
        let before = (self.life, self.shutting_down);
        self.advance_shutdown();
        if self.life == Life::Stopping && self.is_quiet() {
            self.registers.ready = false;
            self.registers.fatal = false;
            self.registers.shutdown = match self.shutting_down {
                ShuttingDown::No => Shutdown::None,
                _ => Shutdown::Occurring,
            };
            self.life = if self.registers.enabled() { Life::Starting } else { Life::Disabled };
        }
        if self.life == Life::Starting && !self.registers.fatal && self.is_quiet() {
            self.begin();
        }
        before != (self.life, self.shutting_down)
    }

    /// Ready, if the registers are right.
    fn begin(&mut self) {
        if !self.registers.is_valid() {
            return self.fatal("CC or AQA asks for what CAP does not offer");
        }
        let (base, size) = self.registers.admin_sq();
        self.queues.sqs[0] = Some(Sq::new(base, size, 0));
        self.rule_changed(0);
        let (base, size) = self.registers.admin_cq();
        self.queues.cqs[0] = Some(Cq::new(base, size, Some(0), self.slots.len()));
        self.registers.shutdown = Shutdown::None;
        self.registers.ready = true;
        self.life = Life::Running;
    }

    fn advance_shutdown(&mut self) {
        let ShuttingDown::Ending(since_ns) = self.shutting_down else { return };
        let idle = self.free.len() == self.slots.len();
        let patient = self.is_running() && self.now_ns < since_ns + PATIENCE_NS;
        if self.life == Life::Stopping || (!idle && patient) {
            return;
        }
        if self.life == Life::Running {
            self.abandon();
            self.life = Life::Halted;
        }
        if self.media_outstanding == 0 {
            self.shutting_down = ShuttingDown::Flushing(self.flush_all());
        }
    }

    /// A medium is flushed.
    pub(super) fn shutdown_flushed(&mut self, result: Result<(), MediumError>) {
        if let Err(error) = result {
            tracing::warn!(%error, nqn = self.identity.nqn, "medium not flushed at shutdown");
        }
        if let ShuttingDown::Flushing(left) = self.shutting_down {
            self.shutting_down = ShuttingDown::Flushing(left - 1);
            if left == 1 {
                self.shutting_down = ShuttingDown::No;
                self.registers.shutdown = Shutdown::Complete;
            }
        }
    }

    /// When a shutdown loses its patience with commands under way; for reads and media it waits as long as they take.
    pub(super) fn shutdown_deadline_ns(&self) -> Option<u64> {
        match self.shutting_down {
            ShuttingDown::Ending(since_ns) if self.is_running() => Some(since_ns + PATIENCE_NS),
            _ => None,
        }
    }
}
