//! Answers: Acknowledges, Read Responses, Atomic Responses, Terminate.

use etherslot_wire::ddp::{Header, Opcode, Place, TAGGED_BYTES};
use etherslot_wire::rdmap::{AtomicRequest, AtomicResponse, Cause, ReadRequest, Terminate, Verdict};

use super::{Inbound, Telling};
use crate::event::Event;
use crate::memory::{Memory, Wire};
use crate::qp::{Attributes, Qp};
use crate::requester::cut;
use crate::shared::{Failure, Shared, Step, message};
use crate::smt::Access;

impl Qp {
    /// Sends one segment of the receiving half: an Acknowledge first, since it is short and may free the peer; then the
    /// oldest answer; a Terminate when there are no more of them.
    pub(crate) fn answer<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        wire: &mut W,
    ) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        if let Some(verdict) = self.responder.due {
            let (ulp, mo) = verdict.fields();
            let number = match verdict {
                Verdict::NoQp { .. } => self.responder.serial,
                _ => self.responder.number,
            };
            let header = message(remote_qp, Opcode::Acknowledge, ulp, number, mo);
            if !shared.send_small(wire, peer, stream, &header, &[]) {
                return Step::Full(peer);
            }
            self.responder.due = None;
            match verdict {
                Verdict::Taken => shared.counters.acknowledges_sent += 1,
                Verdict::NotReady { .. } => shared.counters.not_ready_sent += 1,
                Verdict::NoQp { .. } => shared.counters.no_qp_sent += 1,
            }
            return Step::Done;
        }
        match self.responder.irrq.front() {
            Some(&Inbound::Read { request, done, msn }) => {
                self.answer_read(shared, memory, wire, &request, (done, msn))
            }
            Some(&Inbound::Atomic { request, result }) => {
                self.answer_atomic(shared, memory, wire, &request, result)
            }
            None => self.terminate(shared, wire),
        }
    }

    fn answer_read<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        wire: &mut W,
        request: &ReadRequest,
        (done, msn): (u32, u32),
    ) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let left = (request.length - done) as usize;
        let Some(bytes) = cut(wire.room(peer, stream, TAGGED_BYTES + left), TAGGED_BYTES, left) else {
            return Step::Full(peer);
        };
        let is_last = bytes == left;
        let place =
            Place::Tagged { stag: request.sink_stag, to: request.sink_to.wrapping_add(u64::from(done)) };
        let header = Header { qp: remote_qp.0, is_last, opcode: Opcode::ReadResponse, place };
        let mut head = [0; TAGGED_BYTES];
        header.emit(&mut head);
        let mut read = Ok(());
        if bytes > 0 {
            let at = request.source_to.wrapping_add(u64::from(done));
            let (who, length) = (self.who(), bytes as u64);
            // The STag may have been invalidated since the request came.
            match shared.smt.look_up(request.source_stag, at, length, Access::REMOTE_READ, who) {
                Ok(span) => {
                    let smt = &shared.smt;
                    let sent = wire.send(peer, stream, &head, bytes, &mut |out| {
                        read = smt.read(memory, &span, out);
                        read.is_ok()
                    });
                    if !sent && read.is_ok() {
                        return Step::Full(peer);
                    }
                    let ahead = if read.is_ok() { bytes } else { 0 };
                    let from = (request.source_stag, at.wrapping_add(ahead as u64));
                    shared.smt.expect_read(memory, who, from, left - ahead);
                }
                Err(denied) => read = Err(Failure::Denied(denied)),
            }
        } else if !wire.send(peer, stream, &head, 0, &mut |_| true) {
            return Step::Full(peer);
        }
        match read {
            Ok(()) => {
                shared.counters.segments_sent += 1;
                shared.counters.data_bytes_sent += bytes as u64;
            }
            Err(Failure::Pending) => return Step::Pending,
            Err(Failure::Miss(miss)) => {
                shared.miss(miss);
                return Step::Pending;
            }
            Err(failure) => {
                let cause = match failure {
                    Failure::Denied(denied) => denied.named(),
                    _ => Cause::CATASTROPHIC,
                };
                self.refuse_answer(shared, cause, request, msn);
                return Step::Done;
            }
        }
        if is_last {
            self.responder.irrq.pop();
        } else if let Some(Inbound::Read { done, .. }) = self.responder.irrq.front_mut() {
            *done += bytes as u32;
        }
        Step::Done
    }

    /// A Read that was accepted cannot be answered any more.
    fn refuse_answer(&mut self, shared: &mut Shared, cause: Cause, request: &ReadRequest, msn: u32) {
        shared.counters.dropped_denied += 1;
        shared.event(Event::AccessViolation(self.number));
        let header = message(self.number, Opcode::ReadRequest, 0, msn, 0);
        let mut bytes = [0; 20];
        header.emit(&mut bytes);
        let mut telling = Telling {
            cause,
            segment_bytes: Some(18 + ReadRequest::BYTES as u16),
            header: [0; 18],
            header_bytes: 18,
            request: Some(*request),
        };
        telling.header.copy_from_slice(&bytes[2..]);
        self.responder.irrq.clear();
        self.responder.tell_of(telling);
        self.fail(shared, Some((crate::cqe::Status::Flushed, None)));
        self.wake(shared);
    }

    /// Does an Atomic.
    pub(super) fn do_atomic<M: Memory>(
        &self,
        shared: &Shared,
        memory: &mut M,
        request: &AtomicRequest,
    ) -> Result<u64, Failure> {
        let span = shared.smt.look_up(request.stag, request.to, 8, Access::REMOTE_ATOMIC, self.who())?;
        let mut value = Err(Failure::Fault);
        shared.smt.pbl.walk::<Failure>(&span, |address, range| {
            // A region may begin anywhere: then 8 bytes of it can lie across pages, or not at a multiple of 8.
            if range.len() == 8 && address.is_multiple_of(8) {
                value = memory.atomic(address, request).map_err(Failure::from);
            }
            Ok(())
        })?;
        value
    }

    fn answer_atomic<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        wire: &mut W,
        request: &AtomicRequest,
        result: Option<u64>,
    ) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let value = match result.map_or_else(|| self.do_atomic(shared, memory, request), Ok) {
            Ok(value) => value,
            Err(Failure::Pending) => return Step::Pending,
            Err(Failure::Miss(miss)) => {
                shared.miss(miss);
                return Step::Pending;
            }
            Err(failure) => {
                let cause = match failure {
                    Failure::Denied(denied) => denied.named(),
                    _ => Cause::UNSPECIFIED,
                };
                shared.counters.dropped_denied += 1;
                self.responder.irrq.clear();
                self.responder.tell(cause);
                self.fail(shared, Some((crate::cqe::Status::Flushed, None)));
                self.wake(shared);
                return Step::Done;
            }
        };
        // It was done, and must not be again.
        if let Some(Inbound::Atomic { result, .. }) = self.responder.irrq.front_mut() {
            *result = Some(value);
        }
        let mut body = [0; AtomicResponse::BYTES];
        AtomicResponse { identifier: request.identifier, value }.emit(&mut body);
        let header = message(remote_qp, Opcode::AtomicResponse, 0, self.responder.answer_msn, 0);
        if !shared.send_small(wire, peer, stream, &header, &body) {
            return Step::Full(peer);
        }
        self.responder.answer_msn = self.responder.answer_msn.wrapping_add(1);
        self.responder.irrq.pop();
        Step::Done
    }

    fn terminate<W: Wire>(&mut self, shared: &mut Shared, wire: &mut W) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let Some(telling) = &self.responder.telling else { return Step::Nothing };
        let mut read = [0; ReadRequest::BYTES];
        let rdmap_header = match &telling.request {
            Some(request) => {
                request.emit(&mut read);
                &read[..]
            }
            None => &[],
        };
        let message_body = Terminate {
            cause: telling.cause,
            segment_bytes: telling.segment_bytes,
            ddp_header: telling.header.get(..telling.header_bytes as usize).unwrap_or(&[]),
            rdmap_header,
        };
        let mut body = [0; Terminate::MAX_BYTES];
        let bytes = message_body.emit(&mut body).unwrap_or(0);
        let header = message(remote_qp, Opcode::Terminate, 0, 1, 0);
        if !shared.send_small(wire, peer, stream, &header, &body[..bytes]) {
            return Step::Full(peer);
        }
        shared.counters.terminates_sent += 1;
        self.responder.telling = None;
        self.responder.has_told = true;
        Step::Done
    }
}
