//! What all QPs share, and what one of them needs to know of it.

use alloc::boxed::Box;
use alloc::vec;

use etherslot_wire::bytes::put;
use etherslot_wire::ddp::{Header, Opcode, Place, UNTAGGED_BYTES};

use crate::config::{Config, CqId, Pd, PeerId, Qpn, SrqId};
use crate::counters::Counters;
use crate::cq::{Cq, Pushed};
use crate::cqe::Cqe;
use crate::event::{Event, Events, Notice};
use crate::memory::{Memory, Trouble, Wire};
use crate::pbl::{Miss, Span};
use crate::qp::Init;
use crate::ring::Blocks;
use crate::schedule::Schedule;
use crate::smt::{Access, Denied, Smt};
use crate::table::Table;
use crate::wqe::Sge;

/// Bytes of a message that far memory is asked for ahead.
const EXPECTED_BYTES: usize = 32 << 10;
/// Bytes in front of a datagram's data in its buffer.
pub(crate) const GRH_BYTES: usize = 40;

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) blocks: Blocks,
    pub(crate) pd: Pd,
    /// WQEs in it.
    pub(crate) wqes: u32,
    /// Below so many an event is due; 0 is never.
    pub(crate) limit: u32,
    /// QPs that have it.
    pub(crate) users: u32,
}

/// What all QPs share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) smt: Smt,
    pub(crate) cqs: Table<Cq>,
    pub(crate) srqs: Table<Srq>,
    pub(crate) events: Events,
    pub(crate) schedule: Schedule,
    /// Of each peer: what is put in front of datagrams that came from it.
    pub(crate) grhs: Box<[[u8; GRH_BYTES]]>,
    pub(crate) counters: Counters,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It did something; there may be more.
    Done,
    /// There is nothing to do now.
    Nothing,
    /// The session with this peer is full.
    Full(PeerId),
    /// Memory is not here yet.
    Pending,
}

/// Why bytes could not be copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    Denied(Denied),
    Miss(Miss),
    Pending,
    Fault,
}

impl From<Miss> for Failure {
    fn from(miss: Miss) -> Self {
        Self::Miss(miss)
    }
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Pending => Self::Pending,
            Trouble::Fault => Self::Fault,
        }
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}

/// Memory that is not here yet does not keep from asking for what comes behind it: so all of it is under way at once.
fn pass_pending(read: Result<(), Trouble>, waits: &mut bool) -> Result<(), Failure> {
    match read {
        Err(Trouble::Pending) => *waits = true,
        other => other?,
    }
    Ok(())
}

/// Who uses an STag.
pub(crate) type Who = (Pd, Qpn);

/// A place in a list of SGEs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    sge: u16,
    within: u32,
}

impl Smt {
    /// Reads looked-up bytes.
    #[inline]
    pub(crate) fn read<M: Memory>(&self, memory: &mut M, span: &Span, out: &mut [u8]) -> Result<(), Failure> {
        let mut waits = false;
        self.pbl
            .walk(span, |address, range| pass_pending(memory.read(address, &mut out[range]), &mut waits))?;
        if waits { Err(Failure::Pending) } else { Ok(()) }
    }

    /// Writes looked-up bytes; all pages are known to be there.
    #[inline]
    pub(crate) fn write<M: Memory>(&self, memory: &mut M, span: &Span, data: &[u8]) -> Result<(), Failure> {
        self.pbl.walk(span, |address, range| Ok(memory.write(address, &data[range])?))
    }

    /// Calls `piece` for each part of the next `length` bytes of a list of SGEs; returns where they end.
    #[inline]
    fn pieces(
        sges: impl Fn(usize) -> Sge,
        mut cursor: Cursor,
        length: usize,
        mut piece: impl FnMut(&Sge, u64, core::ops::Range<usize>) -> Result<(), Failure>,
    ) -> Result<Cursor, Failure> {
        let mut done = 0;
        while done < length {
            let sge = sges(cursor.sge as usize);
            let left = sge.length.saturating_sub(cursor.within) as usize;
            let bytes = left.min(length - done);
            if bytes > 0 {
                let to = sge.to.checked_add(u64::from(cursor.within)).ok_or(Denied::Wrap)?;
                piece(&sge, to, done..done + bytes)?;
                done += bytes;
                cursor.within += bytes as u32;
            } else if cursor.sge as usize >= crate::wqe::MAX_SGES {
                return Err(Failure::Denied(Denied::Bounds));
            } else {
                cursor = Cursor { sge: cursor.sge + 1, within: 0 };
            }
        }
        Ok(cursor)
    }

    /// Reads the next bytes of a list of SGEs.
    #[inline]
    pub(crate) fn gather<M: Memory>(
        &self,
        memory: &mut M,
        who: Who,
        sges: impl Fn(usize) -> Sge,
        cursor: Cursor,
        out: &mut [u8],
    ) -> Result<Cursor, Failure> {
        let mut waits = false;
        let end = Self::pieces(sges, cursor, out.len(), |sge, to, range| {
            let span = self.look_up(sge.stag, to, range.len() as u64, Access::LOCAL_READ, who)?;
            self.pbl.walk(&span, |address, within| {
                let out = &mut out[range.start + within.start..range.start + within.end];
                pass_pending(memory.read(address, out), &mut waits)
            })
        })?;
        if waits { Err(Failure::Pending) } else { Ok(end) }
    }

    /// Tells far memory what of a list of SGEs will be read next: up to `length` bytes.
    #[inline]
    pub(crate) fn expect<M: Memory>(
        &self,
        memory: &mut M,
        who: Who,
        sges: impl Fn(usize) -> Sge,
        cursor: Cursor,
        length: usize,
    ) {
        if !M::IS_FAR {
            return;
        }
        // What is wrong shows itself when its turn comes.
        let _ = Self::pieces(sges, cursor, length.min(EXPECTED_BYTES), |sge, to, range| {
            let span = self.look_up(sge.stag, to, range.len() as u64, Access::LOCAL_READ, who)?;
            self.expect_span(memory, &span)
        });
    }

    fn expect_span<M: Memory>(&self, memory: &mut M, span: &Span) -> Result<(), Failure> {
        self.pbl.walk(span, |address, range| {
            memory.expect(address, range.len());
            Ok(())
        })
    }

    /// The same of a region that the peer reads.
    #[inline]
    pub(crate) fn expect_read<M: Memory>(
        &self,
        memory: &mut M,
        who: Who,
        (stag, to): (u32, u64),
        length: usize,
    ) {
        if M::IS_FAR
            && let Ok(span) =
                self.look_up(stag, to, length.min(EXPECTED_BYTES) as u64, Access::REMOTE_READ, who)
        {
            let _ = self.expect_span(memory, &span);
        }
    }

    /// Writes the next bytes of a list of SGEs: all of them, or none if one may not be written.
    #[inline]
    pub(crate) fn scatter<M: Memory>(
        &self,
        memory: &mut M,
        who: Who,
        sges: impl Fn(usize) -> Sge,
        cursor: Cursor,
        data: &[u8],
    ) -> Result<Cursor, Failure> {
        let look_up = |sge: &Sge, to, length: usize| {
            self.look_up(sge.stag, to, length as u64, Access::LOCAL_WRITE, who)
        };
        Self::pieces(&sges, cursor, data.len(), |sge, to, range| {
            Ok(self.check_present(&look_up(sge, to, range.len())?)?)
        })?;
        Self::pieces(&sges, cursor, data.len(), |sge, to, range| {
            self.write(memory, &look_up(sge, to, range.len())?, &data[range])
        })
    }
}

impl Shared {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            smt: Smt::new(config.stags, config.pages),
            cqs: Table::new(config.cqs),
            srqs: Table::new(config.srqs),
            events: Events::new(config.events, config.cqs),
            schedule: Schedule::new(config.peers, config.qps),
            grhs: vec![[0; GRH_BYTES]; config.peers].into_boxed_slice(),
            counters: Counters::default(),
            config: config.clone(),
        }
    }

    pub(crate) fn event(&mut self, event: Event) {
        if !self.events.waiting.push(event) {
            self.counters.events_lost += 1;
        }
    }

    /// A QP begins anew, or is no more: its windows are invalid, its completions that were not taken are gone.
    pub(crate) fn forget(&mut self, qp: Qpn, init: &Init) {
        self.smt.forget(qp);
        for cq in [init.send_cq, init.receive_cq] {
            if let Some(queue) = self.cqs.get_mut(cq.0) {
                queue.forget(qp);
            }
        }
    }

    /// A page was absent when it was needed.
    pub(crate) fn miss(&mut self, Miss(entry): Miss) {
        self.counters.misses += 1;
        self.event(Event::Miss(entry));
    }

    /// Puts a CQE into its queue; false if the queue is in overrun.
    #[inline]
    pub(crate) fn complete(&mut self, cq: CqId, cqe: Cqe) -> bool {
        let Some(queue) = self.cqs.get_mut(cq.0) else { return false };
        match queue.push(cqe) {
            Pushed::Yes(fires) => {
                self.counters.cqes += 1;
                if !queue.is_listed {
                    queue.is_listed = self.events.written.push(cq);
                }
                if fires {
                    self.events.notices.push(Notice(cq));
                }
                return true;
            }
            Pushed::Overrun => self.event(Event::CqOverrun(cq)),
            Pushed::Lost => {}
        }
        self.counters.cqes_lost += 1;
        false
    }

    /// Takes the next WQE of an SRQ; returns how many blocks it has.
    pub(crate) fn take_srq(&mut self, srq: SrqId, copy: &mut [crate::wqe::Block]) -> Option<usize> {
        let queue = self.srqs.get_mut(srq.0)?;
        let count = queue.blocks.take(copy)?;
        queue.wqes -= 1;
        if queue.wqes < queue.limit {
            queue.limit = 0;
            self.event(Event::SrqLimit(srq));
        }
        Some(count)
    }

    /// Sends a segment whose data are at hand.
    pub(crate) fn send_small<W: Wire>(
        &mut self,
        wire: &mut W,
        peer: PeerId,
        stream: u16,
        header: &Header,
        data: &[u8],
    ) -> bool {
        let mut head = [0; UNTAGGED_BYTES];
        let Some(head_len) = header.emit(&mut head) else { return false };
        let total = head_len + data.len();
        if wire.room(peer, stream, total) < total {
            return false;
        }
        let sent =
            wire.send(peer, stream, &head[..head_len], data.len(), &mut |out| put(out, 0, data).is_some());
        if sent {
            self.counters.segments_sent += 1;
            self.counters.data_bytes_sent += data.len() as u64;
        }
        sent
    }
}

/// The header of an untagged message of one segment.
pub(crate) const fn message(qp: Qpn, opcode: Opcode, ulp: u32, msn: u32, mo: u32) -> Header {
    let qn = match opcode.queue() {
        Some(qn) => qn,
        None => 0,
    };
    Header { qp: qp.0, is_last: true, opcode, place: Place::Untagged { ulp, qn, msn, mo } }
}
