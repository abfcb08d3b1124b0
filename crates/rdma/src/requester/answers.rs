//! What comes back: Acknowledges, Read Responses, Atomic Responses, Terminates.

use etherslot_wire::rdmap::{AtomicResponse, Terminate, Verdict};

use super::{Awaited, NO_QP_WAIT_NS};
use crate::cqe::Status;
use crate::memory::Memory;
use crate::qp::{Qp, State};
use crate::shared::{Failure, Shared};
use crate::wqe::SendOpcode;

impl Qp {
    /// Whether answers are awaited at all.
    fn hears(&self) -> bool {
        matches!(self.state, State::Rts | State::Sqd) && self.is_rc()
    }

    /// All request messages before `number` were taken, and more.
    pub(crate) fn hear_acknowledge<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        now_ns: u64,
        number: u32,
        verdict: Verdict,
    ) {
        if !self.hears() {
            return;
        }
        if let Verdict::NoQp { .. } = verdict {
            self.hear_no_qp(shared, memory, now_ns, number);
            return;
        }
        let requester = &mut self.requester;
        let advance = number.wrapping_sub(requester.taken);
        if advance > requester.number.wrapping_sub(requester.taken) {
            shared.counters.dropped_acknowledges += 1;
            return;
        }
        if advance > 0 {
            requester.taken = number;
            requester.progress += 1;
            requester.rnr_left = self.attributes.rnr_retries;
            requester.retries_left = self.attributes.retries;
            requester.no_qp_wait_ns = NO_QP_WAIT_NS;
        }
        if let Verdict::NotReady { wait_us } = verdict {
            shared.counters.not_ready_received += 1;
            self.hear_not_ready(shared, now_ns, number, wait_us);
        }
        self.complete(shared, memory);
        self.wake(shared);
    }

    fn hear_not_ready(&mut self, shared: &mut Shared, now_ns: u64, number: u32, wait_us: u32) {
        let attributes = self.attributes;
        let requester = &mut self.requester;
        if requester.started.is_empty() {
            return;
        }
        requester.progress += 1;
        requester.rewind(number);
        if requester.rnr_left == 0 {
            self.fail_later(Status::RnrExceeded);
            return;
        }
        if attributes.rnr_retries < 7 {
            requester.rnr_left -= 1;
        }
        // A peer cannot make us wait for ever.
        let wait_ns = u64::from(wait_us.clamp(1, 1_000_000)) * 1000;
        requester.wait_until_ns = now_ns + wait_ns;
        let until_ns = requester.wait_until_ns;
        shared.schedule.time(self.number, &mut self.place, until_ns);
    }

    /// The Synchronise with this serial found no QP: all before it that was not taken was dropped, and all behind it is until
    /// there is another.
    fn hear_no_qp<M: Memory>(&mut self, shared: &mut Shared, memory: &mut M, now_ns: u64, serial: u32) {
        let requester = &mut self.requester;
        if serial != requester.synchronised {
            shared.counters.dropped_acknowledges += 1;
            return;
        }
        // Once.
        requester.synchronised = serial.wrapping_add(1);
        shared.counters.no_qp_received += 1;
        if requester.started.is_empty() {
            // All had been taken; whoever is there next is to be begun with.
            requester.must_restart = true;
            return;
        }
        let taken = requester.taken;
        requester.rewind(taken);
        if requester.retries_left == 0 {
            self.fail_later(Status::RetriesExceeded);
            self.complete(shared, memory);
            return;
        }
        requester.retries_left -= 1;
        requester.wait_until_ns = now_ns + requester.no_qp_wait_ns;
        requester.no_qp_wait_ns = (requester.no_qp_wait_ns * 2).min(64 * NO_QP_WAIT_NS);
        let until_ns = requester.wait_until_ns;
        shared.schedule.time(self.number, &mut self.place, until_ns);
    }

    /// The WQE at the cursor has failed; it ends when those before it are complete. Those that are not answered now never
    /// will be.
    fn fail_later(&mut self, status: Status) {
        let requester = &mut self.requester;
        let at = if status == Status::RetriesExceeded { 0 } else { requester.cursor };
        let at = at.min(requester.started.len().saturating_sub(1));
        if let Some(started) = requester.started.get_mut(at) {
            started.failure = Some((status, None));
        }
        requester.is_halted = true;
        requester.head = None;
    }

    /// The answer of the oldest awaited is here.
    fn answered<M: Memory>(&mut self, shared: &mut Shared, memory: &mut M, awaited: &Awaited) {
        let requester = &mut self.requester;
        requester.awaited.pop();
        requester.progress += 1;
        for index in 0..requester.started.len() {
            let Some(started) = requester.started.get_mut(index) else { break };
            if started.number == awaited.number && started.messages > 0 {
                started.is_answered = true;
                break;
            }
        }
        self.complete(shared, memory);
        self.wake(shared);
    }

    fn bad_response(&mut self, shared: &mut Shared) {
        shared.counters.dropped_answers += 1;
        self.fail(shared, Some((Status::BadResponse, None)));
    }

    fn placed<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        awaited: &Awaited,
        data: &[u8],
    ) -> bool {
        let opcode = if awaited.is_atomic { SendOpcode::FetchAdd } else { SendOpcode::Read };
        let sge = |index| Self::sge(&self.requester.sq, awaited.position, opcode, index);
        match shared.smt.scatter(memory, self.who(), sge, awaited.cursor, data) {
            Ok(cursor) => {
                shared.counters.data_bytes_placed += data.len() as u64;
                if let Some(front) = self.requester.awaited.front_mut() {
                    front.cursor = cursor;
                    front.taken += data.len() as u32;
                }
                true
            }
            Err(failure) => {
                if let Failure::Miss(miss) = failure {
                    shared.miss(miss);
                }
                shared.counters.dropped_denied += 1;
                self.fail(shared, Some((Status::LocalProtection, None)));
                false
            }
        }
    }

    /// A Read Response.
    pub(crate) fn hear_read<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        (stag, to): (u32, u64),
        is_last: bool,
        data: &[u8],
    ) {
        let awaited = match self.requester.awaited.front() {
            Some(&awaited) if self.hears() && !awaited.is_atomic => awaited,
            _ if self.hears() => return self.bad_response(shared),
            _ => {
                shared.counters.dropped_answers += 1;
                return;
            }
        };
        let end = u64::from(awaited.taken) + data.len() as u64;
        let fits = stag == awaited.name
            && to == u64::from(awaited.taken)
            && end <= u64::from(awaited.length)
            && is_last == (end == u64::from(awaited.length));
        if !fits {
            return self.bad_response(shared);
        }
        self.requester.progress += 1;
        if self.placed(shared, memory, &awaited, data) && is_last {
            self.answered(shared, memory, &awaited);
        }
    }

    /// An Atomic Response.
    pub(crate) fn hear_atomic<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        (msn, mo): (u32, u32),
        is_last: bool,
        data: &[u8],
    ) {
        if !self.hears() {
            shared.counters.dropped_answers += 1;
            return;
        }
        let awaited = self.requester.awaited.front().copied().filter(|awaited| awaited.is_atomic);
        let response = AtomicResponse::parse(data);
        let (Some(awaited), Some(response)) = (awaited, response) else { return self.bad_response(shared) };
        let fits =
            response.identifier == awaited.name && msn == self.requester.answer_msn && mo == 0 && is_last;
        if !fits {
            return self.bad_response(shared);
        }
        self.requester.answer_msn = msn.wrapping_add(1);
        if self.placed(shared, memory, &awaited, &response.value.to_le_bytes()) {
            self.answered(shared, memory, &awaited);
        }
    }

    /// A Terminate: the oldest WQE that is not complete is why.
    pub(crate) fn hear_terminate(&mut self, shared: &mut Shared, data: &[u8]) {
        if !self.receives() || !self.is_rc() {
            return;
        }
        shared.counters.terminates_received += 1;
        let cause =
            Terminate::parse(data).map_or(etherslot_wire::rdmap::Cause::UNSPECIFIED, |found| found.cause);
        self.responder.forget_answers();
        self.fail(shared, Some((Status::of(cause), Some(cause))));
    }
}
