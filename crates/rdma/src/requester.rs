//! The sending half of a QP: send WQEs become request messages, and complete (docs/rnic.md, section 8).
//!
//! `started` are the WQEs that have begun and are not complete, in order; those before `cursor` have been sent whole, the
//! one at `cursor` is being sent. A new beginning after *not ready* or *no QP* moves the cursor back.

mod answers;
mod emit;

pub(crate) use emit::cut;

use etherslot_wire::ddp::Opcode;
use etherslot_wire::rdmap::Cause;

use crate::cqe::{Cqe, Done, Status};
use crate::memory::{Memory, Wire};
use crate::qp::{Attributes, Qp, Service, State};
use crate::ring::{Blocks, Bounded};
use crate::shared::{Cursor, Shared, Step, message};
use crate::smt::{Access, Bind};
use crate::wqe::{Head, Malformed, SendOpcode, flag};

/// The first wait for a QP that is not there, ns; it doubles up to 64 times that.
const NO_QP_WAIT_NS: u64 = 10_000_000;
/// Bytes of a datagram at most.
pub(crate) const MAX_DATAGRAM_BYTES: u32 = 4080;
/// Sink STags of Reads begin with this.
const SINK: u32 = 0xF000_0000;

/// A send WQE that has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Started {
    pub(crate) id: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) failure: Option<(Status, Option<Cause>)>,
    flags: u8,
    which: u8,
    blocks: u8,
    messages: u8,
    /// Read, Atomic: the answer is here.
    is_answered: bool,
    /// Its first block in the SQ.
    position: u32,
    /// Number of its first message.
    number: u32,
    /// MSNs of its first messages in the queues 0 and 1.
    msns: [u32; 2],
    bytes: u32,
}

/// A place in the ORRQ: a Read or Atomic without an answer.
#[derive(Clone, Copy, Debug)]
struct Awaited {
    /// Number of its message.
    number: u32,
    /// What its answer is known by: the sink STag, or the identifier.
    name: u32,
    is_atomic: bool,
    length: u32,
    taken: u32,
    cursor: Cursor,
    /// First block and SGEs of its WQE.
    position: u32,
}

/// The sending half.
#[derive(Debug)]
pub(crate) struct Requester {
    pub(crate) sq: Blocks,
    /// First block of the first WQE that has not begun.
    pub(crate) next: u32,
    pub(crate) started: Bounded<Started>,
    cursor: usize,
    /// The WQE at the cursor.
    head: Option<Head>,
    /// Which of its messages, and how far that is.
    phase: u8,
    offset: u32,
    place: Cursor,
    /// Number of the message that is sent, or comes next.
    number: u32,
    /// All messages before this number were taken.
    taken: u32,
    msns: [u32; 2],
    awaited: Bounded<Awaited>,
    serial: u32,
    /// Of the last Synchronise; only what answers that counts.
    synchronised: u32,
    answer_msn: u32,
    /// A WQE failed: none begins.
    is_halted: bool,
    must_restart: bool,
    must_ask: bool,
    wait_until_ns: u64,
    ask_at_ns: u64,
    /// Acknowledgements and answers that brought something.
    progress: u64,
    progress_asked: u64,
    rnr_left: u8,
    retries_left: u8,
    no_qp_wait_ns: u64,
    pub(crate) is_drained: bool,
}

impl Requester {
    pub(crate) fn new(blocks: usize) -> Self {
        let sq = Blocks::new(blocks);
        let most = sq.room();
        Self {
            sq,
            next: 0,
            started: Bounded::new(most),
            cursor: 0,
            head: None,
            phase: 0,
            offset: 0,
            place: Cursor::default(),
            number: 0,
            taken: 0,
            msns: [1; 2],
            awaited: Bounded::new(0),
            serial: 0,
            synchronised: 0,
            answer_msn: 1,
            is_halted: false,
            must_restart: true,
            must_ask: false,
            wait_until_ns: 0,
            ask_at_ns: 0,
            progress: 0,
            progress_asked: 0,
            rnr_left: 0,
            retries_left: 0,
            no_qp_wait_ns: NO_QP_WAIT_NS,
            is_drained: false,
        }
    }

    /// The QP is connected.
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        self.number = attributes.first_sent;
        self.taken = attributes.first_sent;
        self.synchronised = attributes.first_sent;
        self.awaited = Bounded::new(attributes.ord as usize);
        self.rnr_left = attributes.rnr_retries;
        self.retries_left = attributes.retries;
    }

    /// Nothing is in the SQ any more.
    pub(crate) fn empty(&mut self) {
        self.started.clear();
        self.awaited.clear();
        self.taken = self.number;
        self.sq.clear();
        self.next = self.sq.tail();
        self.cursor = 0;
        self.head = None;
        self.phase = 0;
        self.offset = 0;
        self.place = Cursor::default();
        self.is_halted = false;
        self.wait_until_ns = 0;
        self.must_ask = false;
    }

    /// Whether no WQE is in the SQ.
    pub(crate) fn is_idle(&self) -> bool {
        self.started.is_empty() && self.next == self.sq.tail()
    }

    /// Whether something of ours has not been acknowledged or answered.
    fn is_waiting(&self) -> bool {
        self.taken != self.number || !self.awaited.is_empty()
    }

    /// The earliest time at which there is something to be done; 0 if none.
    pub(crate) fn deadline_ns(&self) -> u64 {
        match (self.wait_until_ns, self.ask_at_ns) {
            (0, at) | (at, 0) => at,
            (one, other) => one.min(other),
        }
    }

    fn head_at(&self, position: u32, blocks: u8) -> Result<Head, Malformed> {
        Head::parse(|index| *self.sq.block(position.wrapping_add(index as u32)), blocks as usize)
    }

    /// MSN of the next message of a queue, if the WQE is at this phase.
    fn msns_at(started: &Started, phase: u8) -> [u32; 2] {
        let [mut sends, mut requests] = started.msns;
        let has_send = started.opcode.is_send() && phase > 0;
        let has_immediate = started.opcode == SendOpcode::WriteImmediate && phase > 1;
        sends = sends.wrapping_add(u32::from(has_send) + u32::from(has_immediate));
        requests = requests.wrapping_add(u32::from(started.opcode.is_answered() && phase > 0));
        [sends, requests]
    }

    /// Sends again from the message with this number on.
    fn rewind(&mut self, number: u32) {
        let is_later = |started: &Started| {
            let end = started.number.wrapping_add(u32::from(started.messages));
            started.messages > 0 && (end.wrapping_sub(number)).cast_signed() > 0
        };
        let at = self.started.iter().position(is_later);
        self.cursor = at.unwrap_or(self.started.len());
        self.head = None;
        self.offset = 0;
        self.place = Cursor::default();
        self.phase = 0;
        if let Some(&started) = at.and_then(|at| self.started.get(at)) {
            self.phase = number.wrapping_sub(started.number) as u8;
            self.msns = Self::msns_at(&started, self.phase);
        }
        self.number = number;
        let keep =
            self.awaited.iter().take_while(|awaited| awaited.number.wrapping_sub(number).cast_signed() < 0);
        let keep = keep.count();
        self.awaited.truncate(keep);
        self.must_restart = true;
    }
}

impl Qp {
    /// Sends one segment of the sending half, or begins a WQE.
    pub(crate) fn request<M: Memory, W: Wire>(
        &mut self,
        shared: &mut Shared,
        now_ns: u64,
        memory: &mut M,
        wire: &mut W,
    ) -> Step {
        if !matches!(self.state, State::Rts | State::Sqd) || self.requester.wait_until_ns > now_ns {
            return Step::Nothing;
        }
        if self.requester.must_ask {
            return self.synchronise(shared, wire, false);
        }
        if self.requester.head.is_none() {
            match self.load(shared, memory) {
                Step::Done => {}
                other => return other,
            }
        }
        if self.is_rc() && self.requester.must_restart && self.requester.head.is_some() {
            return self.synchronise(shared, wire, true);
        }
        let step = self.emit(shared, memory, wire);
        if step == Step::Done && self.is_rc() && self.requester.ask_at_ns == 0 {
            self.requester.ask_at_ns = now_ns + u64::from(self.attributes.question_us.max(1)) * 1000;
            self.requester.progress_asked = self.requester.progress;
            shared.schedule.time(self.number, &mut self.place, self.requester.ask_at_ns);
        }
        step
    }

    fn synchronise<W: Wire>(&mut self, shared: &mut Shared, wire: &mut W, restart: bool) -> Step {
        let Attributes { peer, remote_qp, stream, .. } = self.attributes;
        let serial = self.requester.synchronised.wrapping_add(1);
        let header =
            message(remote_qp, Opcode::Synchronise, u32::from(restart), self.requester.number, serial);
        if !shared.send_small(wire, peer, stream, &header, &[]) {
            return Step::Full(peer);
        }
        self.requester.synchronised = serial;
        if restart {
            self.requester.must_restart = false;
            shared.counters.restarts_sent += 1;
        } else {
            self.requester.must_ask = false;
            shared.counters.questions_sent += 1;
        }
        Step::Done
    }

    /// Makes the next WQE the one that is sent, if it may be: [`Step::Done`] with `head` set, or with a WQE that was done
    /// here or failed.
    fn load<M: Memory>(&mut self, shared: &mut Shared, memory: &mut M) -> Step {
        let requester = &mut self.requester;
        while requester.started.get(requester.cursor).is_some_and(|started| started.messages == 0) {
            requester.cursor += 1;
        }
        if let Some(&started) = requester.started.get(requester.cursor) {
            if started.failure.is_some() {
                return Step::Nothing;
            }
            let Ok(head) = requester.head_at(started.position, started.blocks) else { return Step::Nothing };
            if !self.may_begin(&head) {
                return Step::Nothing;
            }
            self.requester.head = Some(head);
            return Step::Done;
        }
        if self.state != State::Rts || requester.is_halted || requester.next == requester.sq.tail() {
            return Step::Nothing;
        }
        let position = requester.next;
        let first = requester.sq.block(position);
        let blocks = first[2].max(1);
        let (id, code) = Head::id_of(first);
        let head = match requester.head_at(position, blocks) {
            Ok(head) if self.is_allowed(&head) => head,
            result => {
                let status = match result {
                    Err(Malformed::Length) => Status::LocalLength,
                    Ok(head) if self.init.service == Service::Ud && head.opcode.is_send() => {
                        Status::LocalLength
                    }
                    _ => Status::LocalOperation,
                };
                let opcode = SendOpcode::new(code).unwrap_or(SendOpcode::Nop);
                self.start(id, opcode, 0, position, (blocks, 0), (0, 0));
                self.fail_at_end(shared, memory, status);
                return Step::Done;
            }
        };
        if !self.may_begin(&head) {
            return Step::Nothing;
        }
        self.start(
            id,
            head.opcode,
            head.flags,
            position,
            (blocks, head.messages()),
            (head.which, head.length),
        );
        if head.opcode.is_local() {
            self.requester.cursor += 1;
            if self.do_locally(shared, &head) {
                self.complete(shared, memory);
            } else {
                self.fail_at_end(shared, memory, Status::WindowBind);
            }
            return Step::Done;
        }
        self.requester.head = Some(head);
        Step::Done
    }

    fn start(
        &mut self,
        id: u64,
        opcode: SendOpcode,
        flags: u8,
        position: u32,
        (blocks, messages): (u8, u8),
        (which, bytes): (u8, u32),
    ) {
        let requester = &mut self.requester;
        let pushed = requester.started.push(Started {
            id,
            opcode,
            failure: None,
            flags,
            which,
            blocks,
            messages,
            is_answered: false,
            position,
            number: requester.number,
            msns: requester.msns,
            bytes,
        });
        debug_assert!(pushed, "there are no more WQEs than blocks");
        requester.next = position.wrapping_add(u32::from(blocks));
        requester.phase = 0;
        requester.offset = 0;
        requester.place = Cursor::default();
    }

    /// Whether the service knows this WQE.
    fn is_allowed(&self, head: &Head) -> bool {
        match self.init.service {
            Service::Rc => !head.opcode.is_answered() || self.attributes.ord > 0,
            Service::Uc => !head.opcode.is_answered(),
            Service::Ud => {
                matches!(head.opcode, SendOpcode::Send | SendOpcode::SendImmediate | SendOpcode::Nop)
                    && head.which == 0
                    && head.length <= MAX_DATAGRAM_BYTES
            }
        }
    }

    /// Whether fence and ORRQ let it begin.
    fn may_begin(&self, head: &Head) -> bool {
        let awaited = &self.requester.awaited;
        let fences = head.has(flag::FENCE) && !awaited.is_empty();
        let is_at_start = self.requester.phase == 0;
        !(is_at_start && (fences || head.opcode.is_answered() && awaited.is_full()))
    }

    /// Bind and Invalidate.
    fn do_locally(&self, shared: &mut Shared, head: &Head) -> bool {
        match head.opcode {
            SendOpcode::Bind => {
                let bind = Bind {
                    window: head.remote_stag,
                    region: head.operands[0] as u32,
                    to: head.remote_to,
                    length: head.operands[1],
                    access: Access(((head.immediate & 7) << 1) as u8),
                    is_zero_based: head.immediate >> 31 != 0,
                };
                shared.smt.bind(&bind, self.init.pd, self.number)
            }
            SendOpcode::Invalidate => shared.smt.invalidate(head.immediate, self.number),
            _ => true,
        }
    }

    /// The newest WQE that has begun fails; those before it may still complete.
    fn fail_at_end<M: Memory>(&mut self, shared: &mut Shared, memory: &mut M, status: Status) {
        if let Some(started) = self.requester.started.back_mut() {
            started.failure = Some((status, None));
        }
        self.requester.is_halted = true;
        self.requester.head = None;
        self.complete(shared, memory);
    }

    /// The WQE at the cursor fails.
    fn fail_at_cursor<M: Memory>(&mut self, shared: &mut Shared, memory: &mut M, status: Status) {
        let cursor = self.requester.cursor;
        if let Some(started) = self.requester.started.get_mut(cursor) {
            started.failure = Some((status, None));
        }
        self.requester.is_halted = true;
        self.requester.head = None;
        self.complete(shared, memory);
    }

    /// Completes what is complete, in order.
    pub(crate) fn complete<M: Memory>(&mut self, shared: &mut Shared, memory: &mut M) {
        while let Some(&started) = self.requester.started.front() {
            if let Some((status, _)) = started.failure {
                self.fail_queue(shared, status);
                return;
            }
            let requester = &self.requester;
            let end = started.number.wrapping_add(u32::from(started.messages));
            let is_taken = !self.is_rc() || requester.taken.wrapping_sub(end).cast_signed() >= 0;
            let is_answered = !started.opcode.is_answered() || started.is_answered;
            if requester.cursor == 0 || !is_taken || !is_answered {
                break;
            }
            if started.which & 1 != 0 && !self.store_flag(shared, memory, &started) {
                self.fail_queue(shared, Status::LocalProtection);
                return;
            }
            let requester = &mut self.requester;
            requester.started.pop();
            requester.cursor -= 1;
            requester.sq.free(started.position.wrapping_add(u32::from(started.blocks)));
            if self.init.signal_all || started.flags & flag::SIGNALED != 0 {
                let done = Done::Sent(started.opcode);
                let mut cqe = Cqe::new(started.id, Status::Success, done, self.number);
                cqe.bytes = started.bytes;
                if !self.complete_send(shared, cqe) {
                    self.fail(shared, Some((Status::Fatal, None)));
                    return;
                }
            }
        }
        self.check_drained(shared);
    }

    /// The oldest WQE failed by a fault of ours.
    fn fail_queue(&mut self, shared: &mut Shared, status: Status) {
        if let Some(started) = self.requester.started.front_mut() {
            started.failure = Some((status, None));
        }
        if self.is_rc() {
            self.fail(shared, None);
        } else {
            self.state = State::Sqe;
            self.flush(shared, None);
        }
    }

    /// Stores the flag in our memory, if it has a place there that 8 bytes can be stored to at once (docs/rnic.md, 12).
    fn store_flag<M: Memory>(&self, shared: &Shared, memory: &mut M, started: &Started) -> bool {
        let last = started.position.wrapping_add(u32::from(started.blocks) - 1);
        let local = Head::local_flag(self.requester.sq.block(last));
        shared.smt.look_up(local.stag, local.to, 8, Access::LOCAL_WRITE, self.who()).is_ok_and(|span| {
            span.at.is_multiple_of(8) && shared.smt.write(memory, &span, &local.value.to_le_bytes()).is_ok()
        })
    }

    /// The SGEs of a send WQE.
    fn sge(sq: &Blocks, position: u32, opcode: SendOpcode, index: usize) -> crate::wqe::Sge {
        let count = sq.block(position)[3] as usize;
        if index >= count {
            return crate::wqe::Sge::default();
        }
        let block = |at: usize| *sq.block(position.wrapping_add(at as u32));
        crate::wqe::sge(block, opcode.first_sge(), index)
    }

    /// Copies inline data.
    fn copy_inline(sq: &Blocks, position: u32, offset: u32, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let at = SendOpcode::Send.first_sge() + offset as usize + done;
            let block = sq.block(position.wrapping_add((at / crate::wqe::BLOCK_BYTES) as u32));
            let at = at % crate::wqe::BLOCK_BYTES;
            let bytes = (crate::wqe::BLOCK_BYTES - at).min(out.len() - done);
            out[done..done + bytes].copy_from_slice(&block[at..at + bytes]);
            done += bytes;
        }
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, shared: &mut Shared, now_ns: u64) {
        let question_ns = u64::from(self.attributes.question_us.max(1)) * 1000;
        let requester = &mut self.requester;
        if requester.wait_until_ns != 0 && requester.wait_until_ns <= now_ns {
            requester.wait_until_ns = 0;
            shared.schedule.wake(self.number, &mut self.place);
        }
        if requester.ask_at_ns != 0 && requester.ask_at_ns <= now_ns {
            if !requester.is_waiting() {
                requester.ask_at_ns = 0;
                return;
            }
            if requester.progress == requester.progress_asked && requester.wait_until_ns == 0 {
                requester.must_ask = true;
                shared.schedule.wake(self.number, &mut self.place);
            }
            requester.progress_asked = requester.progress;
            requester.ask_at_ns = now_ns + question_ns;
        }
    }
}
