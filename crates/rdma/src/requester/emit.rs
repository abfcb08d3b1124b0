//! Request messages become segments.

use etherslot_wire::ddp::{Header, Opcode, Place, TAGGED_BYTES, UNTAGGED_BYTES, queue};
use etherslot_wire::rdmap::{AtomicCode, AtomicRequest, Datagram, IMMEDIATE_BYTES, ReadRequest};
use etherslot_wire::record::MAX_PAYLOAD_BYTES;

use super::{Awaited, SINK};
use crate::config::{PeerId, Qpn};
use crate::cqe::Status;
use crate::memory::{Memory, Wire};
use crate::qp::{Attributes, Qp, Service};
use crate::shared::{Cursor, Failure, Shared, Step, message};
use crate::wqe::{Flag, Head, SendOpcode, flag};

/// Bytes of data in a segment: as many as fit the room, in eights unless it is the last.
pub(crate) fn cut(room: usize, head: usize, left: usize) -> Option<usize> {
    let fits = room.min(MAX_PAYLOAD_BYTES).checked_sub(head)?;
    let bytes = if left <= fits { left } else { fits & !7 };
    (bytes > 0 || left == 0).then_some(bytes)
}

/// The opcode of a Send.
fn send_opcode(head: &Head) -> Opcode {
    match (head.opcode, head.has(flag::SOLICITED)) {
        (SendOpcode::SendInvalidate, false) => Opcode::SendInvalidate,
        (SendOpcode::SendInvalidate, true) => Opcode::SendSolicitedInvalidate,
        (SendOpcode::SendImmediate, false) => Opcode::SendImmediate,
        (SendOpcode::SendImmediate, true) => Opcode::SendSolicitedImmediate,
        (_, false) => Opcode::Send,
        (_, true) => Opcode::SendSolicited,
    }
}

impl Qp {
    /// Sends one segment of the WQE at the cursor.
    pub(super) fn emit<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        wire: &mut W,
    ) -> Step {
        let Some(head) = self.requester.head else { return Step::Done };
        let position = match self.requester.started.get(self.requester.cursor) {
            Some(started) => started.position,
            None => return Step::Nothing,
        };
        let is_main = self.requester.phase == 0;
        let step = match head.opcode {
            _ if self.init.service == Service::Ud => {
                self.emit_datagram(shared, memory, wire, &head, position)
            }
            opcode if is_main && (opcode.is_write() || opcode.is_send()) => {
                self.emit_data(shared, memory, wire, &head, position)
            }
            SendOpcode::Read if is_main => self.emit_read(shared, wire, &head, position),
            opcode if is_main && opcode.is_atomic() => self.emit_atomic(shared, wire, &head, position),
            SendOpcode::WriteImmediate if self.requester.phase == 1 => {
                self.emit_immediate(shared, wire, &head)
            }
            _ => self.emit_flag(shared, wire, &head, position),
        };
        if step == Step::Done && !self.is_rc() && self.requester.head.is_none() {
            self.complete(shared, memory);
        }
        step
    }

    /// The message at the cursor has been sent whole.
    fn end_message(&mut self, messages: u8) {
        let requester = &mut self.requester;
        requester.number = requester.number.wrapping_add(1);
        requester.phase += 1;
        requester.offset = 0;
        if requester.phase >= messages {
            requester.phase = 0;
            requester.cursor += 1;
            requester.head = None;
            requester.place = Cursor::default();
        }
    }

    fn emit_data<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        wire: &mut W,
        head: &Head,
        position: u32,
    ) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let offset = self.requester.offset;
        let left = (head.length - offset) as usize;
        let opcode = if head.opcode.is_write() { Opcode::Write } else { send_opcode(head) };
        let head_bytes = if head.opcode.is_write() { TAGGED_BYTES } else { UNTAGGED_BYTES };
        let room = wire.room(peer, stream, head_bytes + left);
        let Some(bytes) = cut(room, head_bytes, left) else { return Step::Full(peer) };
        let is_last = bytes == left;
        let place = if head.opcode.is_write() {
            // A TO that wraps is the responder's to find (RFC 5040, 7.2).
            Place::Tagged { stag: head.remote_stag, to: head.remote_to.wrapping_add(u64::from(offset)) }
        } else {
            let ulp = if head.opcode == SendOpcode::Send { 0 } else { head.immediate };
            Place::Untagged { ulp, qn: queue::SEND, msn: self.requester.msns[0], mo: offset }
        };
        let header = Header { qp: remote_qp.0, is_last, opcode, place };
        match self.send_data(shared, memory, wire, (peer, stream), (&header, &[]), head, position, bytes) {
            Step::Done => {}
            other => return other,
        }
        self.requester.offset += bytes as u32;
        if is_last {
            if head.opcode.is_send() {
                self.requester.msns[0] = self.requester.msns[0].wrapping_add(1);
            }
            self.end_message(head.messages());
        }
        Step::Done
    }

    /// Sends a segment with the next bytes of the WQE's data.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one call; they have no other thing in common"
    )]
    fn send_data<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        wire: &mut W,
        (peer, stream): (PeerId, u16),
        (header, prefix): (&Header, &[u8]),
        head: &Head,
        position: u32,
        bytes: usize,
    ) -> Step {
        let mut buffer = [0; UNTAGGED_BYTES + Datagram::BYTES];
        let Some(header_bytes) = header.emit(&mut buffer) else { return Step::Nothing };
        let head_bytes = header_bytes + prefix.len();
        if let Some(out) = buffer.get_mut(header_bytes..head_bytes) {
            out.copy_from_slice(prefix);
        }
        let who = self.who();
        let requester = &self.requester;
        let (place, offset) = (requester.place, requester.offset);
        let is_inline = head.has(flag::INLINE);
        let mut moved = Ok(place);
        let smt = &shared.smt;
        let mut fill = |out: &mut [u8]| {
            if is_inline {
                Self::copy_inline(&requester.sq, position, offset, out);
            } else {
                let sge = |index| Self::sge(&requester.sq, position, head.opcode, index);
                moved = smt.gather(memory, who, sge, place, out);
            }
            moved.is_ok()
        };
        let sent = wire.send(peer, stream, &buffer[..head_bytes], bytes, &mut fill);
        if M::IS_FAR && !is_inline && matches!(moved, Ok(_) | Err(Failure::Pending)) {
            let sge = |index| Self::sge(&requester.sq, position, head.opcode, index);
            let left = (head.length - offset) as usize;
            // From where this step was: what it has fetched is known there.
            let from = moved.unwrap_or(place);
            let left = if moved.is_ok() { left.saturating_sub(bytes) } else { left };
            smt.expect(memory, who, sge, from, left);
        }
        match moved {
            Ok(place) if sent => {
                shared.counters.segments_sent += 1;
                shared.counters.data_bytes_sent += bytes as u64;
                self.requester.place = place;
                Step::Done
            }
            Ok(_) => Step::Full(peer),
            Err(Failure::Pending) => Step::Pending,
            Err(Failure::Miss(miss)) => {
                shared.miss(miss);
                Step::Pending
            }
            Err(_) => {
                self.fail_at_cursor(shared, memory, Status::LocalProtection);
                Step::Done
            }
        }
    }

    fn emit_datagram<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        memory: &mut M,
        wire: &mut W,
        head: &Head,
        position: u32,
    ) -> Step {
        let (peer, qp) = (PeerId(head.remote_to as u16), Qpn((head.remote_to >> 32) as u16));
        let stream = self.attributes.stream;
        let bytes = head.length as usize;
        let total = UNTAGGED_BYTES + Datagram::BYTES + bytes;
        let is_lost = shared.schedule.is_lost(peer);
        let room = if is_lost { 0 } else { wire.datagram_room(peer, stream, total) };
        if room == 0 && !is_lost {
            return Step::Full(peer);
        }
        // A datagram that this session does not carry is dropped, as networks do.
        if room >= total {
            let ulp = if head.opcode == SendOpcode::Send { 0 } else { head.immediate };
            let header = message(qp, send_opcode(head), ulp, 0, 0);
            let datagram = Datagram { q_key: head.remote_stag, source_qp: self.number.0 };
            let mut prefix = [0; Datagram::BYTES];
            datagram.emit(&mut prefix);
            let to = (peer, stream);
            match self.send_data(shared, memory, wire, to, (&header, &prefix), head, position, bytes) {
                Step::Done if self.requester.head.is_some() => {}
                other => return other,
            }
        } else {
            shared.counters.unsent_datagrams += 1;
        }
        self.end_message(1);
        Step::Done
    }

    fn emit_read<W: Wire>(&mut self, shared: &mut Shared, wire: &mut W, head: &Head, position: u32) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let requester = &self.requester;
        let name = SINK | (requester.serial & 0xF_FFFF) << 8 | requester.awaited.len() as u32 & 0xFF;
        let request = ReadRequest {
            sink_stag: name,
            sink_to: 0,
            length: head.length,
            source_stag: head.remote_stag,
            source_to: head.remote_to,
        };
        let mut body = [0; ReadRequest::BYTES];
        request.emit(&mut body);
        let header = message(remote_qp, Opcode::ReadRequest, 0, requester.msns[1], 0);
        if !shared.send_small(wire, peer, stream, &header, &body) {
            return Step::Full(peer);
        }
        self.await_answer(name, head, position);
        Step::Done
    }

    fn emit_atomic<W: Wire>(
        &mut self,
        shared: &mut Shared,
        wire: &mut W,
        head: &Head,
        position: u32,
    ) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let is_add = head.opcode == SendOpcode::FetchAdd;
        let name = self.requester.serial;
        let request = AtomicRequest {
            code: if is_add { AtomicCode::FetchAdd } else { AtomicCode::CompareSwap },
            identifier: name,
            stag: head.remote_stag,
            to: head.remote_to,
            operand: head.operands[0],
            mask: if is_add { 0 } else { u64::MAX },
            compare: if is_add { 0 } else { head.operands[1] },
            compare_mask: if is_add { 0 } else { u64::MAX },
        };
        let mut body = [0; AtomicRequest::BYTES];
        request.emit(&mut body);
        let header = message(remote_qp, Opcode::AtomicRequest, 0, self.requester.msns[1], 0);
        if !shared.send_small(wire, peer, stream, &header, &body) {
            return Step::Full(peer);
        }
        self.await_answer(name, head, position);
        Step::Done
    }

    fn await_answer(&mut self, name: u32, head: &Head, position: u32) {
        let requester = &mut self.requester;
        requester.serial = requester.serial.wrapping_add(1);
        requester.awaited.push(Awaited {
            number: requester.number,
            name,
            is_atomic: head.opcode.is_atomic(),
            length: head.length,
            taken: 0,
            cursor: Cursor::default(),
            position,
        });
        requester.msns[1] = requester.msns[1].wrapping_add(1);
        self.end_message(head.messages());
    }

    fn emit_immediate<W: Wire>(&mut self, shared: &mut Shared, wire: &mut W, head: &Head) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let opcode = if head.has(flag::SOLICITED) { Opcode::ImmediateSolicited } else { Opcode::Immediate };
        let header = message(remote_qp, opcode, 0, self.requester.msns[0], 0);
        let mut data = [0; IMMEDIATE_BYTES];
        data[4..].copy_from_slice(&head.immediate.to_be_bytes());
        if !shared.send_small(wire, peer, stream, &header, &data) {
            return Step::Full(peer);
        }
        self.requester.msns[0] = self.requester.msns[0].wrapping_add(1);
        self.end_message(head.messages());
        Step::Done
    }

    /// The flag in the peer's memory: a Write of 8 bytes. Of a PULL it waits until the data are here.
    fn emit_flag<W: Wire>(&mut self, shared: &mut Shared, wire: &mut W, head: &Head, position: u32) -> Step {
        let cursor = self.requester.cursor;
        let is_here = self.requester.started.get(cursor).is_some_and(|started| started.is_answered);
        if head.opcode.is_answered() && !is_here {
            return Step::Nothing;
        }
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let last = position.wrapping_add(u32::from(head.blocks) - 1);
        let Flag { stag, to, value } = Head::remote_flag(self.requester.sq.block(last));
        let place = Place::Tagged { stag, to };
        let header = Header { qp: remote_qp.0, is_last: true, opcode: Opcode::Write, place };
        if !shared.send_small(wire, peer, stream, &header, &value.to_le_bytes()) {
            return Step::Full(peer);
        }
        self.end_message(head.messages());
        Step::Done
    }
}
