//! Queue pairs: what they are made with, their states, and how they end (docs/rnic.md, section 14).

use alloc::boxed::Box;

use etherslot_wire::rdmap::Cause;

use crate::config::{CqId, Pd, PeerId, Qpn, SrqId};
use crate::cqe::{Cqe, Done, Status};
use crate::event::Event;
use crate::otf::Headers;
use crate::requester::Requester;
use crate::responder::Responder;
use crate::ring::Blocks;
use crate::schedule::Place;
use crate::shared::{Shared, Who};
use crate::smt::Access;
use crate::wqe::{Head, SendOpcode};

/// The service of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable, connected.
    Rc,
    /// Connected; what cannot be taken is dropped.
    Uc,
    /// Datagrams.
    Ud,
}

/// The state of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Empty.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send, too.
    Rts,
    /// The send queue is drained: what has begun goes on.
    Sqd,
    /// A send failed (UC, UD).
    Sqe,
    /// All is flushed.
    Error,
}

impl State {
    /// The state of this number (docs/rnic.md, section 14).
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::Rtr,
            3 => Self::Rts,
            4 => Self::Sqd,
            5 => Self::Sqe,
            6 => Self::Error,
            _ => return None,
        })
    }
}

/// What a QP is made with.
#[derive(Clone, Copy, Debug)]
pub struct Init {
    /// The service.
    pub service: Service,
    /// Whose regions it may use.
    pub pd: Pd,
    /// Where send WQEs complete.
    pub send_cq: CqId,
    /// Where receive WQEs complete.
    pub receive_cq: CqId,
    /// Where receive WQEs come from, if not from its own queue.
    pub srq: Option<SrqId>,
    /// Blocks of the SQ; rounded up to a power of two.
    pub sq_blocks: usize,
    /// Blocks of the RQ; rounded up to a power of two.
    pub rq_blocks: usize,
    /// Every send WQE makes a CQE.
    pub signal_all: bool,
}

/// What a QP is connected with.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// The peer.
    pub peer: PeerId,
    /// Its QP.
    pub remote_qp: Qpn,
    /// The stream that everything is sent on.
    pub stream: u16,
    /// What the peer may do: [`Access::REMOTE_READ`], `REMOTE_WRITE`, `REMOTE_ATOMIC`.
    pub access: Access,
    /// Reads and Atomics of ours under way (ORD).
    pub ord: u8,
    /// Reads and Atomics of the peer's under way (IRD).
    pub ird: u8,
    /// How often a receiver that is not ready is tried again; 7 is without end.
    pub rnr_retries: u8,
    /// How often a QP that is not there is tried again.
    pub retries: u8,
    /// The wait that we ask for when we are not ready, us.
    pub rnr_wait_us: u32,
    /// Number of the first request message sent.
    pub first_sent: u32,
    /// Number of the first request message expected.
    pub first_expected: u32,
    /// Of datagrams.
    pub q_key: u32,
    /// How long nothing may be acknowledged before the peer is asked, us.
    pub question_us: u32,
    /// The peer is not told that the QP ended by itself, as InfiniBand does not tell; only what was wrong in a segment of
    /// the peer's is told.
    pub is_quiet: bool,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            peer: PeerId(0),
            remote_qp: Qpn(0),
            stream: 1,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC,
            ord: 16,
            ird: 16,
            rnr_retries: 7,
            retries: 7,
            rnr_wait_us: 100,
            first_sent: 0,
            first_expected: 0,
            q_key: 0,
            question_us: 100_000,
            is_quiet: false,
        }
    }
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) number: Qpn,
    pub(crate) init: Init,
    pub(crate) state: State,
    pub(crate) attributes: Attributes,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    pub(crate) rq: Blocks,
    pub(crate) place: Place,
    pub(crate) on_the_fly: Option<Box<Headers>>,
    /// The peer is lost: what is posted fails.
    pub(crate) is_peer_lost: bool,
}

impl Qp {
    pub(crate) fn new(number: Qpn, init: &Init) -> Self {
        Self {
            number,
            init: *init,
            state: State::Reset,
            attributes: Attributes::default(),
            requester: Requester::new(init.sq_blocks),
            responder: Responder::new(),
            rq: Blocks::new(init.rq_blocks),
            place: Place::default(),
            on_the_fly: None,
            is_peer_lost: false,
        }
    }

    #[inline]
    pub(crate) fn who(&self) -> Who {
        (self.init.pd, self.number)
    }

    #[inline]
    pub(crate) fn is_rc(&self) -> bool {
        self.init.service == Service::Rc
    }

    #[inline]
    pub(crate) fn wake(&mut self, shared: &mut Shared) {
        shared.schedule.wake(self.number, &mut self.place);
    }

    /// Whether requests of the peer are taken.
    #[inline]
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, State::Rtr | State::Rts | State::Sqd | State::Sqe)
    }

    /// Whether it has a peer.
    pub(crate) fn is_connected(&self) -> bool {
        self.init.service != Service::Ud && (self.receives() || self.state == State::Error)
    }

    /// Goes to a state, if it may from here (IBA 10.3.1).
    pub(crate) fn modify(&mut self, shared: &mut Shared, to: State, attributes: Option<&Attributes>) -> bool {
        use State::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
        let may = match to {
            Reset | Error => true,
            Init => matches!(self.state, Reset | Init),
            Rtr => self.state == Init && attributes.is_some(),
            Rts => matches!(self.state, Rtr | Rts | Sqd | Sqe),
            Sqd => matches!(self.state, Rts | Sqd),
            Sqe => false,
        };
        if !may {
            return false;
        }
        if let Some(attributes) = attributes {
            let most = shared.config.reads;
            let (ord, ird) = (attributes.ord.min(most), attributes.ird.clamp(1, most));
            self.attributes = Attributes { ord, ird, ..*attributes };
        }
        let from = self.state;
        match to {
            Reset => self.reset(shared),
            Error => {
                // Nobody may use its memory any more.
                self.responder.forget_requests();
                self.fail(shared, None);
            }
            Rtr => self.responder.begin(&self.attributes),
            Rts if from == Rtr => self.requester.begin(&self.attributes),
            _ => {}
        }
        self.state = to;
        match to {
            Rts => self.wake(shared),
            Sqd => self.check_drained(shared),
            _ => {}
        }
        true
    }

    fn reset(&mut self, shared: &mut Shared) {
        shared.forget(self.number, &self.init);
        shared.schedule.unpark(self.number, &mut self.place);
        self.requester = Requester::new(self.init.sq_blocks);
        self.responder = Responder::new();
        self.rq.clear();
        self.is_peer_lost = false;
        self.state = State::Reset;
    }

    /// Writes a CQE of the send queue.
    pub(crate) fn complete_send(&self, shared: &mut Shared, cqe: Cqe) -> bool {
        shared.complete(self.init.send_cq, cqe)
    }

    /// Ends the QP: the oldest send WQE that is not complete gets this status, everything else is flushed. The peer of
    /// an RC is told by a Terminate if there is none to be sent already, and the QP is not a quiet one.
    pub(crate) fn fail(&mut self, shared: &mut Shared, why: Option<(Status, Option<Cause>)>) {
        if matches!(self.state, State::Reset | State::Error) {
            return;
        }
        let was_connected = self.receives();
        self.state = State::Error;
        // What it waited for is of no use any more; what is left to be told is.
        shared.schedule.unpark(self.number, &mut self.place);
        self.flush(shared, why);
        let is_told = matches!(why, Some((_, Some(_)))) || self.is_peer_lost;
        if self.is_rc() && was_connected && !is_told && !self.attributes.is_quiet {
            self.responder.tell(Cause::LOCAL_CATASTROPHIC);
            self.wake(shared);
        }
    }

    /// Flushes both queues.
    pub(crate) fn flush(&mut self, shared: &mut Shared, why: Option<(Status, Option<Cause>)>) {
        let mut blame = why;
        let blamed = blame.is_some();
        let mut ends =
            |this: &Self, shared: &mut Shared, id, opcode, own: Option<(Status, Option<Cause>)>| {
                let (status, cause) = own.or_else(|| blame.take()).unwrap_or((Status::Flushed, None));
                if status == Status::Flushed {
                    shared.counters.wqes_flushed += 1;
                } else {
                    shared.counters.wqes_failed += 1;
                    blame = None;
                }
                let cqe = Cqe { cause, ..Cqe::new(id, status, Done::Sent(opcode), this.number) };
                this.complete_send(shared, cqe);
            };
        while let Some(started) = self.requester.started.pop() {
            ends(self, shared, started.id, started.opcode, started.failure);
        }
        let sq = &self.requester.sq;
        let mut position = self.requester.next;
        while position != sq.tail() {
            let first = sq.block(position);
            let (id, opcode) = Head::id_of(first);
            position = position.wrapping_add(u32::from(first[2]).max(1));
            ends(self, shared, id, SendOpcode::new(opcode).unwrap_or(SendOpcode::Nop), None);
        }
        let is_unsaid = blamed && blame.is_some();
        self.requester.empty();
        if self.state == State::Error {
            self.flush_receives(shared);
            if is_unsaid {
                shared.event(Event::QpError(self.number));
            }
        }
    }

    /// Flushes the receive queue alone.
    fn flush_receives(&mut self, shared: &mut Shared) {
        let flushed = |id| Cqe::new(id, Status::Flushed, Done::Received, self.number);
        if let Some(id) = self.responder.stop_receiving() {
            shared.counters.wqes_flushed += 1;
            shared.complete(self.init.receive_cq, flushed(id));
        }
        while !self.rq.is_empty() {
            let first = self.rq.block(self.rq.head());
            let (id, blocks) = (Head::id_of(first).0, u32::from(first[2]).max(1));
            self.rq.free(self.rq.head().wrapping_add(blocks));
            shared.counters.wqes_flushed += 1;
            shared.complete(self.init.receive_cq, flushed(id));
        }
        if self.init.srq.is_some() {
            shared.event(Event::LastWqe(self.number));
        }
    }

    /// In SQD: tells when all has been completed that had begun.
    pub(crate) fn check_drained(&mut self, shared: &mut Shared) {
        if self.state == State::Sqd && self.requester.started.is_empty() && !self.requester.is_drained {
            self.requester.is_drained = true;
            shared.event(Event::SqDrained(self.number));
        } else if self.state != State::Sqd {
            self.requester.is_drained = false;
        }
    }

    /// The session with the peer is no more.
    pub(crate) fn lose_peer(&mut self, shared: &mut Shared) {
        if self.is_peer_lost || !self.receives() && self.state != State::Error {
            return;
        }
        self.is_peer_lost = true;
        self.responder.forget_answers();
        if self.state == State::Error {
            return;
        }
        if self.requester.is_idle() {
            shared.event(Event::PeerLost(self.number));
        } else {
            self.fail(shared, Some((Status::RetriesExceeded, None)));
        }
    }
}
