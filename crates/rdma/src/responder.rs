//! The receiving half of a QP: requests of the peer are checked, placed, delivered and answered (docs/rnic.md, section 9).

mod answer;
mod requests;

use etherslot_wire::ddp::{Opcode, Place};
use etherslot_wire::rdmap::{AtomicRequest, Cause, ReadRequest, Verdict};

use crate::cqe::{Cqe, Done, Status};
use crate::event::Event;
use crate::qp::{Attributes, Qp, Service, State};
use crate::ring::Bounded;
use crate::shared::{Cursor, Failure, Shared};
use crate::wqe::{BLOCK_BYTES, Block, Head, MAX_RECEIVE_BLOCKS, RECEIVE_FIRST, ReceiveWork, Sge};

/// Whether request messages are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// They are.
    No,
    /// Not before the peer has begun.
    Fresh,
    /// One was not taken: not before the peer begins anew with it.
    NotReady,
}

/// A receive WQE in use.
#[derive(Clone, Copy, Debug)]
struct Receiving {
    id: u64,
    sges: u8,
    /// What its SGEs hold.
    room: u64,
    /// Bytes received.
    bytes: u32,
    cursor: Cursor,
}

/// A place in the IRRQ.
#[derive(Clone, Copy, Debug)]
enum Inbound {
    Read { request: ReadRequest, done: u32, msn: u32 },
    Atomic { request: AtomicRequest, result: Option<u64> },
}

/// A Terminate that is to be sent: its cause, and what it repeats of the wrong segment.
#[derive(Clone, Copy, Debug)]
struct Telling {
    cause: Cause,
    segment_bytes: Option<u16>,
    header: [u8; 18],
    header_bytes: u8,
    request: Option<ReadRequest>,
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Responder {
    hold: Hold,
    /// Number of the next request message.
    number: u32,
    msns: [u32; 2],
    /// Blocks of the receive WQE in use.
    wqe: [Block; MAX_RECEIVE_BLOCKS],
    receiving: Option<Receiving>,
    /// The rest of a message of UC is dropped.
    is_skipping: bool,
    /// Bytes of the Write under way, or of the last one.
    write_bytes: u32,
    is_writing: bool,
    irrq: Bounded<Inbound>,
    answer_msn: u32,
    due: Option<Verdict>,
    /// Of the last Synchronise.
    serial: u32,
    telling: Option<Telling>,
    has_told: bool,
    is_established: bool,
}

impl Responder {
    pub(crate) fn new() -> Self {
        Self {
            hold: Hold::Fresh,
            number: 0,
            msns: [1; 2],
            wqe: [[0; BLOCK_BYTES]; MAX_RECEIVE_BLOCKS],
            receiving: None,
            is_skipping: false,
            write_bytes: 0,
            is_writing: false,
            irrq: Bounded::new(0),
            answer_msn: 1,
            due: None,
            serial: 0,
            telling: None,
            has_told: false,
            is_established: false,
        }
    }

    /// The QP is connected.
    pub(crate) fn begin(&mut self, attributes: &Attributes) {
        self.number = attributes.first_expected;
        self.irrq = Bounded::new(attributes.ird as usize);
    }

    /// The peer is to be told of this, if it was not told of anything.
    pub(crate) fn tell(&mut self, cause: Cause) {
        self.tell_of(Telling { cause, segment_bytes: None, header: [0; 18], header_bytes: 0, request: None });
    }

    fn tell_of(&mut self, telling: Telling) {
        if self.telling.is_none() && !self.has_told {
            self.telling = Some(telling);
        }
    }

    /// Nobody is there any more to be answered.
    pub(crate) fn forget_answers(&mut self) {
        self.irrq.clear();
        self.due = None;
        self.telling = None;
        self.has_told = true;
    }

    /// What was asked for is not answered.
    pub(crate) fn forget_requests(&mut self) {
        self.irrq.clear();
    }

    /// The receive WQE in use ends.
    pub(crate) fn stop_receiving(&mut self) -> Option<u64> {
        self.receiving.take().map(|receiving| receiving.id)
    }

    fn sge(&self, index: usize) -> Sge {
        match self.receiving {
            Some(receiving) if index < receiving.sges as usize => {
                let block = |at: usize| self.wqe.get(at).copied().unwrap_or([0; BLOCK_BYTES]);
                crate::wqe::sge(block, RECEIVE_FIRST, index)
            }
            _ => Sge::default(),
        }
    }
}

/// A request segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) opcode: Opcode,
    pub(crate) place: Place,
    pub(crate) is_last: bool,
    pub(crate) data: &'a [u8],
    /// All of it, for a Terminate.
    pub(crate) segment: &'a [u8],
}

impl Qp {
    /// Takes the next receive WQE into use.
    fn take_receive(&mut self, shared: &mut Shared) -> bool {
        let responder = &mut self.responder;
        if responder.receiving.is_some() {
            return true;
        }
        let taken = match self.init.srq {
            Some(srq) => shared.take_srq(srq, &mut responder.wqe),
            None => self.rq.take(&mut responder.wqe),
        };
        let Some(count) = taken else { return false };
        let wqe = &responder.wqe;
        let (id, _) = Head::id_of(&wqe[0]);
        // One that is not formed well holds no byte; it fails as soon as something is to go into it.
        let (sges, room) =
            ReceiveWork::check(|at| wqe[at.min(MAX_RECEIVE_BLOCKS - 1)], count).unwrap_or((0, 0));
        responder.receiving = Some(Receiving { id, sges, room, bytes: 0, cursor: Cursor::default() });
        true
    }

    /// The receive WQE in use is complete.
    fn deliver(&mut self, shared: &mut Shared, fields: impl FnOnce(&mut Cqe)) {
        let Some(receiving) = self.responder.receiving.take() else { return };
        let mut cqe = Cqe::new(receiving.id, Status::Success, Done::Received, self.number);
        cqe.bytes = receiving.bytes;
        fields(&mut cqe);
        if !shared.complete(self.init.receive_cq, cqe) {
            self.fail(shared, Some((Status::Fatal, None)));
        }
    }

    /// The receive WQE in use fails, and the QP with it.
    fn fail_receive(&mut self, shared: &mut Shared, status: Status, cause: Cause) {
        if let Some(receiving) = self.responder.receiving.take() {
            shared.counters.wqes_failed += 1;
            let cqe = Cqe::new(receiving.id, status, Done::Received, self.number);
            shared.complete(self.init.receive_cq, cqe);
        }
        if self.is_rc() {
            self.responder.tell(cause);
            self.fail(shared, None);
            self.wake(shared);
        } else if self.init.service == Service::Uc {
            self.fail(shared, None);
        }
    }

    /// A segment of the peer breaks a rule: nothing of it was placed. It is told, and the QP ends.
    fn refuse(
        &mut self,
        shared: &mut Shared,
        request: &Request<'_>,
        cause: Cause,
        read: Option<ReadRequest>,
    ) {
        if Status::of(cause) == Status::RemoteAccess {
            shared.counters.dropped_denied += 1;
            shared.event(Event::AccessViolation(self.number));
        }
        if !self.is_rc() {
            // What cannot be taken is dropped (UC).
            self.responder.is_skipping = !request.is_last;
            self.responder.is_writing = false;
            return;
        }
        self.refuse_segment(shared, request.segment, cause, read);
    }

    /// The same, of a segment that is none.
    pub(crate) fn refuse_segment(
        &mut self,
        shared: &mut Shared,
        segment: &[u8],
        cause: Cause,
        request: Option<ReadRequest>,
    ) {
        if !self.is_rc() || !self.receives() {
            return;
        }
        let ddp = segment.get(2..).unwrap_or(&[]);
        let header_bytes = if ddp.first().is_some_and(|first| first & 0x80 != 0) { 14 } else { 18 };
        let mut telling = Telling {
            cause,
            segment_bytes: Some(ddp.len() as u16),
            header: [0; 18],
            header_bytes: 0,
            request,
        };
        if let (Some(from), Some(to)) = (ddp.get(..header_bytes), telling.header.get_mut(..header_bytes)) {
            to.copy_from_slice(from);
            telling.header_bytes = header_bytes as u8;
        }
        self.responder.tell_of(telling);
        self.fail(shared, Some((Status::Flushed, None)));
        self.wake(shared);
    }

    /// The message that comes now cannot be taken yet: it and all behind it are to be sent again.
    fn hold_off(&mut self, shared: &mut Shared) {
        let wait_us = self.attributes.rnr_wait_us;
        if self.is_rc() {
            self.responder.hold = Hold::NotReady;
            self.responder.due = Some(Verdict::NotReady { wait_us });
            self.responder.is_writing = false;
            self.wake(shared);
        } else {
            shared.counters.dropped_no_buffer += 1;
        }
    }

    /// A request message has been taken whole.
    fn taken(&mut self, shared: &mut Shared) {
        shared.counters.messages_taken += 1;
        if self.is_rc() {
            self.responder.number = self.responder.number.wrapping_add(1);
            self.responder.due = Some(Verdict::Taken);
            self.wake(shared);
        }
        if self.state == State::Rtr && !self.responder.is_established {
            self.responder.is_established = true;
            shared.event(Event::Established(self.number));
        }
    }

    /// What to do about data that could not be placed.
    fn not_placed(&mut self, shared: &mut Shared, request: &Request<'_>, failure: Failure) {
        match failure {
            Failure::Miss(miss) => {
                shared.miss(miss);
                self.hold_off(shared);
            }
            Failure::Denied(denied) => self.refuse(shared, request, denied.tagged(), None),
            Failure::Pending | Failure::Fault => self.refuse(shared, request, Cause::CATASTROPHIC, None),
        }
    }
}
