//! Requests of the peer: Sends, Writes, Immediate Data, and those that are answered.

use etherslot_wire::ddp::{Opcode, Place, queue};
use etherslot_wire::rdmap::{AtomicRequest, Cause, Datagram, IMMEDIATE_BYTES, ReadRequest, Verdict};

use super::{Hold, Inbound, Receiving, Request};
use crate::config::{PeerId, Qpn};
use crate::cqe::{Done, Status};
use crate::memory::Memory;
use crate::qp::{Qp, Service};
use crate::shared::{Cursor, Failure, GRH_BYTES, Shared};
use crate::smt::Access;

impl Qp {
    /// The peer begins (anew) with this message, or asks.
    pub(crate) fn hear_synchronise(
        &mut self,
        shared: &mut Shared,
        restarts: bool,
        (number, serial): (u32, u32),
        segment: &[u8],
    ) {
        if !self.is_rc() {
            return;
        }
        let responder = &mut self.responder;
        responder.serial = serial;
        if restarts {
            if number != responder.number && responder.hold == Hold::Fresh {
                // It may be of an earlier life of this number.
                shared.counters.dropped_sequence += 1;
                responder.due = Some(Verdict::NoQp { qp: self.number.0 });
                self.wake(shared);
                return;
            }
            if number != responder.number || responder.is_writing {
                shared.counters.dropped_sequence += 1;
                self.refuse_segment(shared, segment, Cause::CATASTROPHIC, None);
                return;
            }
            responder.hold = Hold::No;
            if let Some(receiving) = &mut responder.receiving {
                (receiving.bytes, receiving.cursor) = (0, Cursor::default());
            }
            return;
        }
        responder.due = match responder.hold {
            Hold::No => Some(Verdict::Taken),
            Hold::Fresh => Some(Verdict::NoQp { qp: self.number.0 }),
            // It has been said; said twice it could be heard after the new beginning.
            Hold::NotReady => return,
        };
        self.wake(shared);
    }

    /// A request segment of an RC or UC.
    pub(crate) fn hear_request<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        request: &Request<'_>,
    ) {
        if self.is_rc() && self.responder.hold != Hold::No {
            shared.counters.dropped_not_ready += 1;
            return;
        }
        if self.responder.is_skipping {
            self.skip(request);
            return;
        }
        // Segments of a message follow each other (docs/rnic.md, section 7).
        let is_write = request.opcode == Opcode::Write;
        let is_immediate = matches!(request.opcode, Opcode::Immediate | Opcode::ImmediateSolicited);
        let is_send = request.opcode.queue() == Some(queue::SEND) && !is_immediate;
        let is_receiving = self.responder.receiving.is_some_and(|receiving| receiving.bytes > 0);
        let is_broken_off = self.responder.is_writing && !is_write || is_receiving && !is_send;
        if is_broken_off {
            shared.counters.dropped_sequence += 1;
            self.refuse(shared, request, Cause::CATASTROPHIC, None);
            return;
        }
        match (request.opcode, request.place) {
            (Opcode::Write, Place::Tagged { stag, to }) => {
                self.hear_write(shared, memory, request, (stag, to));
            }
            (opcode, Place::Untagged { ulp, msn, mo, .. }) => {
                let queue = usize::from(matches!(opcode, Opcode::ReadRequest | Opcode::AtomicRequest));
                if msn != self.responder.msns[queue] {
                    shared.counters.dropped_sequence += 1;
                    self.refuse(shared, request, Cause::UNTAGGED_MSN, None);
                    return;
                }
                match opcode {
                    Opcode::ReadRequest => self.hear_read_request(shared, request, mo),
                    Opcode::AtomicRequest => self.hear_atomic_request(shared, memory, request, mo),
                    Opcode::Immediate | Opcode::ImmediateSolicited => {
                        self.hear_immediate(shared, request, mo);
                    }
                    _ => self.hear_send(shared, memory, request, (ulp, mo)),
                }
            }
            _ => {}
        }
    }

    /// Drops the rest of a message of UC.
    fn skip(&mut self, request: &Request<'_>) {
        if request.is_last {
            self.responder.is_skipping = false;
            if matches!(request.place, Place::Untagged { .. }) {
                self.responder.msns[0] = self.responder.msns[0].wrapping_add(1);
            }
        }
    }

    fn hear_write<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        request: &Request<'_>,
        (stag, to): (u32, u64),
    ) {
        if !self.attributes.access.has(Access::REMOTE_WRITE) {
            self.refuse(shared, request, Cause::ACCESS, None);
            return;
        }
        let data = request.data;
        // A Write of no byte touches nothing: its STag is not looked at (RFC 5041, 7.1; IBA 9.7.4).
        if !data.is_empty() {
            let length = data.len() as u64;
            let placed = shared
                .smt
                .look_up(stag, to, length, Access::REMOTE_WRITE, self.who())
                .map_err(Failure::Denied)
                .and_then(|span| {
                    shared.smt.check_present(&span)?;
                    shared.smt.write(memory, &span, data)
                });
            if let Err(failure) = placed {
                self.not_placed(shared, request, failure);
                return;
            }
            shared.counters.data_bytes_placed += length;
        }
        let responder = &mut self.responder;
        if !responder.is_writing {
            responder.write_bytes = 0;
        }
        responder.write_bytes = responder.write_bytes.wrapping_add(data.len() as u32);
        responder.is_writing = !request.is_last;
        if request.is_last {
            self.taken(shared);
        }
    }

    fn hear_send<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        request: &Request<'_>,
        (ulp, mo): (u32, u32),
    ) {
        let stands = self.responder.receiving.map_or(0, |receiving| receiving.bytes);
        if mo != stands {
            shared.counters.dropped_sequence += 1;
            self.refuse(shared, request, Cause::UNTAGGED_MO, None);
            return;
        }
        if !self.take_receive(shared) {
            self.hold_off(shared);
            if !self.is_rc() {
                self.responder.is_skipping = true;
                self.skip(request);
            }
            return;
        }
        let Some(receiving) = self.responder.receiving else { return };
        let data = request.data;
        if u64::from(mo) + data.len() as u64 > receiving.room {
            shared.counters.dropped_too_long += 1;
            self.too_long(shared, request);
            return;
        }
        let invalidates = matches!(request.opcode, Opcode::SendInvalidate | Opcode::SendSolicitedInvalidate);
        let has_immediate = matches!(request.opcode, Opcode::SendImmediate | Opcode::SendSolicitedImmediate);
        if invalidates && request.is_last && !shared.smt.is_bound(ulp, self.number) {
            self.refuse(shared, request, Cause::CANNOT_INVALIDATE, None);
            return;
        }
        let responder = &self.responder;
        let sge = |index| responder.sge(index);
        match shared.smt.scatter(memory, self.who(), sge, receiving.cursor, data) {
            Ok(cursor) => {
                shared.counters.data_bytes_placed += data.len() as u64;
                let bytes = mo + data.len() as u32;
                self.responder.receiving = Some(Receiving { bytes, cursor, ..receiving });
            }
            Err(Failure::Miss(miss)) => {
                shared.miss(miss);
                self.hold_off(shared);
                return;
            }
            Err(_) => {
                shared.counters.dropped_denied += 1;
                self.fail_receive(shared, Status::LocalProtection, Cause::LOCAL_CATASTROPHIC);
                return;
            }
        }
        if !request.is_last {
            return;
        }
        if invalidates {
            shared.smt.invalidate(ulp, self.number);
        }
        self.responder.msns[0] = self.responder.msns[0].wrapping_add(1);
        self.taken(shared);
        let is_solicited = request.opcode.is_solicited();
        self.deliver(shared, |cqe| {
            cqe.immediate = has_immediate.then_some(ulp);
            cqe.invalidated = invalidates.then_some(ulp);
            cqe.is_solicited = is_solicited;
        });
    }

    /// A message that is longer than its receive buffer.
    fn too_long(&mut self, shared: &mut Shared, request: &Request<'_>) {
        if self.is_rc() {
            if let Some(receiving) = self.responder.receiving.take() {
                shared.counters.wqes_failed += 1;
                let cqe =
                    crate::cqe::Cqe::new(receiving.id, Status::LocalLength, Done::Received, self.number);
                shared.complete(self.init.receive_cq, cqe);
            }
            self.refuse(shared, request, Cause::UNTAGGED_TOO_LONG, None);
        } else {
            // The WQE serves the next message.
            if let Some(receiving) = &mut self.responder.receiving {
                (receiving.bytes, receiving.cursor) = (0, Cursor::default());
            }
            self.responder.is_skipping = true;
            self.skip(request);
        }
    }

    fn hear_immediate(&mut self, shared: &mut Shared, request: &Request<'_>, mo: u32) {
        let data: Option<&[u8; IMMEDIATE_BYTES]> = request.data.try_into().ok();
        let (Some(data), true, 0) = (data, request.is_last, mo) else {
            shared.counters.dropped_sequence += 1;
            self.refuse(shared, request, Cause::UNTAGGED_MO, None);
            return;
        };
        if !self.take_receive(shared) {
            self.hold_off(shared);
            if !self.is_rc() {
                self.skip(request);
            }
            return;
        }
        let [.., a, b, c, d] = *data;
        let immediate = u32::from_be_bytes([a, b, c, d]);
        self.responder.msns[0] = self.responder.msns[0].wrapping_add(1);
        self.taken(shared);
        let bytes = self.responder.write_bytes;
        let is_solicited = request.opcode.is_solicited();
        self.deliver(shared, |cqe| {
            cqe.done = Done::ReceivedWrite;
            cqe.bytes = bytes;
            cqe.immediate = Some(immediate);
            cqe.is_solicited = is_solicited;
        });
    }

    /// Form and room of a request that is answered.
    fn check_answered(&mut self, shared: &mut Shared, request: &Request<'_>, mo: u32, bytes: usize) -> bool {
        let cause = if !self.is_rc() {
            Cause::OPCODE
        } else if mo != 0 || !request.is_last || request.data.len() != bytes {
            shared.counters.dropped_sequence += 1;
            Cause::UNTAGGED_MO
        } else if self.responder.irrq.is_full() {
            shared.counters.dropped_irrq += 1;
            Cause::UNTAGGED_NO_BUFFER
        } else {
            return true;
        };
        self.refuse(shared, request, cause, None);
        false
    }

    fn hear_read_request(&mut self, shared: &mut Shared, request: &Request<'_>, mo: u32) {
        if !self.check_answered(shared, request, mo, ReadRequest::BYTES) {
            return;
        }
        let Some(read) = ReadRequest::parse(request.data) else { return };
        if !self.attributes.access.has(Access::REMOTE_READ) {
            self.refuse(shared, request, Cause::ACCESS, Some(read));
            return;
        }
        let span = shared.smt.look_up(
            read.source_stag,
            read.source_to,
            u64::from(read.length),
            Access::REMOTE_READ,
            self.who(),
        );
        if let Err(denied) = span
            && read.length > 0
        {
            self.refuse(shared, request, denied.named(), Some(read));
            return;
        }
        let msn = self.responder.msns[1];
        self.responder.irrq.push(Inbound::Read { request: read, done: 0, msn });
        self.responder.msns[1] = msn.wrapping_add(1);
        self.taken(shared);
    }

    fn hear_atomic_request<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        request: &Request<'_>,
        mo: u32,
    ) {
        if !self.check_answered(shared, request, mo, AtomicRequest::BYTES) {
            return;
        }
        let Some(atomic) = AtomicRequest::parse(request.data).filter(|atomic| atomic.to.is_multiple_of(8))
        else {
            shared.counters.dropped_malformed += 1;
            self.refuse(shared, request, Cause::UNSPECIFIED, None);
            return;
        };
        if !self.attributes.access.has(Access::REMOTE_ATOMIC) {
            self.refuse(shared, request, Cause::ACCESS, None);
            return;
        }
        let looked_up = shared.smt.look_up(atomic.stag, atomic.to, 8, Access::REMOTE_ATOMIC, self.who());
        if let Err(denied) = looked_up {
            self.refuse(shared, request, denied.named(), None);
            return;
        }
        // In its turn: behind what has not been answered it waits.
        let result =
            if self.responder.irrq.is_empty() { self.do_atomic(shared, memory, &atomic).ok() } else { None };
        self.responder.irrq.push(Inbound::Atomic { request: atomic, result });
        self.responder.msns[1] = self.responder.msns[1].wrapping_add(1);
        self.taken(shared);
    }

    /// A datagram.
    pub(crate) fn hear_datagram<M: Memory>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        from: PeerId,
        request: &Request<'_>,
    ) {
        let Place::Untagged { ulp, mo: 0, .. } = request.place else { return };
        let is_send = matches!(
            request.opcode,
            Opcode::Send | Opcode::SendSolicited | Opcode::SendImmediate | Opcode::SendSolicitedImmediate
        );
        let parsed = Datagram::parse(request.data).filter(|_| is_send && request.is_last);
        let Some((datagram, data)) = parsed else {
            shared.counters.dropped_malformed += 1;
            return;
        };
        if datagram.q_key != self.attributes.q_key {
            shared.counters.dropped_q_key += 1;
            return;
        }
        if !self.take_receive(shared) {
            shared.counters.dropped_no_buffer += 1;
            return;
        }
        let Some(receiving) = self.responder.receiving else { return };
        if (GRH_BYTES + data.len()) as u64 > receiving.room {
            shared.counters.dropped_too_long += 1;
            return;
        }
        let responder = &self.responder;
        let sge = |index| responder.sge(index);
        let who = self.who();
        // There is no GRH on this wire; programs may look for one all the same.
        let grh = shared.grhs.get(from.0 as usize).copied().unwrap_or([0; GRH_BYTES]);
        let placed = shared
            .smt
            .scatter(memory, who, sge, Cursor::default(), &grh)
            .and_then(|cursor| shared.smt.scatter(memory, who, sge, cursor, data));
        match placed {
            Ok(_) => {}
            Err(Failure::Miss(miss)) => {
                shared.miss(miss);
                shared.counters.dropped_no_buffer += 1;
                return;
            }
            Err(_) => {
                self.fail_receive(shared, Status::LocalProtection, Cause::LOCAL_CATASTROPHIC);
                return;
            }
        }
        shared.counters.data_bytes_placed += data.len() as u64;
        self.taken(shared);
        let has_immediate = matches!(request.opcode, Opcode::SendImmediate | Opcode::SendSolicitedImmediate);
        let is_solicited = request.opcode.is_solicited();
        let bytes = (GRH_BYTES + data.len()) as u32;
        debug_assert!(self.init.service == Service::Ud);
        self.deliver(shared, |cqe| {
            cqe.bytes = bytes;
            cqe.source = Some((from, Qpn(datagram.source_qp)));
            cqe.immediate = has_immediate.then_some(ulp);
            cqe.is_solicited = is_solicited;
        });
    }
}
