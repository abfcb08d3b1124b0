//! The engine as its owner sees it: what there is in it, and what is posted to it.

use alloc::vec;
use alloc::vec::Vec;

use crate::config::{Config, CqId, Pd, PeerId, Qpn, SrqId};
use crate::counters::Counters;
use crate::cq::Cq;
use crate::cqe::{Cqe, Done, Status};
use crate::event::{Event, Notice};
use crate::qp::{Attributes, Init, Qp, State};
use crate::ring::Blocks;
use crate::shared::{GRH_BYTES, Shared, Srq};
use crate::smt::Region;
use crate::table::Table;
use crate::wqe::{BLOCK_BYTES, Head, MAX_BLOCKS, MAX_RECEIVE_BLOCKS, SendOpcode};

/// Numbers of QPs.
const QP_NUMBERS: usize = 1 << 16;

/// Something could not be made, changed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// There is no such thing.
    Unknown,
    /// It is in use.
    InUse,
    /// There is no room for one more.
    NoRoom,
    /// A value is out of range, or does not go with another.
    Invalid,
}

impl core::fmt::Display for ControlError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such object",
            Self::InUse => "the object is in use",
            Self::NoRoom => "there is no room for one more",
            Self::Invalid => "a value is not allowed",
        })
    }
}

impl core::error::Error for ControlError {}

/// A work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// There is no such queue.
    Unknown,
    /// The QP's state does not allow it.
    State,
    /// The queue is full.
    Full,
    /// It is not made of the blocks that it says.
    Malformed,
}

impl core::fmt::Display for PostError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Unknown => "there is no such queue",
            Self::State => "the state of the queue pair does not allow it",
            Self::Full => "the queue is full",
            Self::Malformed => "the work request is not made of the blocks that it says",
        })
    }
}

impl core::error::Error for PostError {}

/// An RNIC.
#[derive(Debug)]
pub struct Engine {
    pub(crate) qps: Table<Qp>,
    /// Of each place: how often its number has changed.
    generations: Vec<u16>,
    pub(crate) shared: Shared,
    /// Calls of transmit, and the last one in which the session of a peer was full.
    pub(crate) calls: u64,
    pub(crate) full_at: Vec<u64>,
}

impl Engine {
    /// An engine with these bounds.
    pub fn new(config: &Config) -> Self {
        let config = config.clamped();
        Self {
            qps: Table::new(config.qps),
            generations: vec![0; config.qps],
            shared: Shared::new(&config),
            calls: 0,
            full_at: vec![0; config.peers],
        }
    }

    /// What has been counted so far.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    // --- Regions and windows ---

    /// Registers a region; returns its STag.
    pub fn register(&mut self, region: &Region<'_>) -> Result<u32, ControlError> {
        self.shared.smt.register(region).ok_or(ControlError::Invalid)
    }

    /// Removes a region. From then on no segment and no WQE reaches it.
    pub fn deregister(&mut self, stag: u32) -> Result<(), ControlError> {
        self.shared.smt.deregister(stag).then_some(()).ok_or(ControlError::InUse)
    }

    /// Says where a page of a region is, or that it is absent; what waited for pages goes on.
    pub fn set_page(&mut self, stag: u32, page: u32, address: Option<u64>) -> Result<(), ControlError> {
        if !self.shared.smt.set_page(stag, page, address) {
            return Err(ControlError::Invalid);
        }
        self.wake_parked();
        Ok(())
    }

    /// Makes a window of type 2; returns its STag, with key 0.
    pub fn allocate_window(&mut self, pd: Pd) -> Result<u32, ControlError> {
        self.shared.smt.allocate_window(pd).ok_or(ControlError::NoRoom)
    }

    /// Removes a window, bound or not.
    pub fn free_window(&mut self, stag: u32) -> Result<(), ControlError> {
        self.shared.smt.free_window(stag).then_some(()).ok_or(ControlError::Unknown)
    }

    // --- Completion queues ---

    /// Makes a CQ of at least so many CQEs.
    pub fn create_cq(&mut self, cqes: usize) -> Result<CqId, ControlError> {
        if cqes == 0 || cqes > self.shared.config.cqes {
            return Err(ControlError::Invalid);
        }
        self.shared.cqs.insert(Cq::new(cqes)).map(CqId).ok_or(ControlError::NoRoom)
    }

    /// Gives a CQ room for at least so many CQEs; it does not get less. What is in it stays. Not for a CQ of a ring
    /// ([`Engine::take`]), whose laps its owner counts.
    pub fn resize_cq(&mut self, cq: CqId, cqes: usize) -> Result<(), ControlError> {
        if cqes == 0 || cqes > self.shared.config.cqes {
            return Err(ControlError::Invalid);
        }
        self.shared.cqs.get_mut(cq.0).ok_or(ControlError::Unknown)?.grow(cqes);
        Ok(())
    }

    /// Removes a CQ that no QP has.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), ControlError> {
        match self.shared.cqs.get(cq.0) {
            None => Err(ControlError::Unknown),
            Some(queue) if queue.users > 0 => Err(ControlError::InUse),
            Some(_) => {
                self.shared.cqs.remove(cq.0);
                self.shared.events.written.retain(|&other| other != cq);
                Ok(())
            }
        }
    }

    /// Takes and consumes completions; returns how many.
    pub fn poll(&mut self, cq: CqId, out: &mut [Cqe]) -> usize {
        let Some(queue) = self.shared.cqs.get_mut(cq.0) else { return 0 };
        let mut count = 0;
        for place in out {
            let Some((cqe, _)) = queue.take() else { break };
            *place = cqe;
            count += 1;
        }
        queue.consume(queue.taken());
        count
    }

    /// Whether completions of a QP wait to be taken.
    pub fn has_completions(&self, qp: Qpn) -> bool {
        let Some(its) = self.peek(qp) else { return false };
        let has = |cq: CqId| self.shared.cqs.get(cq.0).is_some_and(|queue| queue.has(qp));
        has(its.init.send_cq) || has(its.init.receive_cq)
    }

    /// Takes the next completion for a ring of somebody else's, with the phase of its lap; its place is in use until
    /// [`Engine::consume`].
    pub fn take(&mut self, cq: CqId) -> Option<(Cqe, bool)> {
        self.shared.cqs.get_mut(cq.0)?.take()
    }

    /// All completions before this index (free-running) were consumed; false if that cannot be.
    pub fn consume(&mut self, cq: CqId, index: u32) -> bool {
        self.shared.cqs.get_mut(cq.0).is_some_and(|queue| queue.consume(index))
    }

    /// Asks for a [`Notice`] with the next completion, or the next solicited one. What is there already and not consumed
    /// brings one at once, unless only solicited ones are asked for.
    pub fn arm(&mut self, cq: CqId, solicited_only: bool) {
        if self.shared.cqs.get_mut(cq.0).is_some_and(|queue| queue.arm(solicited_only)) {
            self.shared.events.notices.push(Notice(cq));
        }
    }

    /// The same, of completions that no [`Notice`] was given of: what `ibv_req_notify_cq` asks for. The next one brings it
    /// (IBA 11.4.2.2), or at once one that came unannounced and was not taken: adapters tell of these, and programs that do
    /// not look again after they have asked rely on it. What was told is not told again.
    pub fn arm_for_untold(&mut self, cq: CqId, solicited_only: bool) {
        if self.shared.cqs.get_mut(cq.0).is_some_and(|queue| queue.arm_for_untold(solicited_only)) {
            self.shared.events.notices.push(Notice(cq));
        }
    }

    /// The next CQ that was armed and has something.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.shared.events.notices.pop()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.shared.events.waiting.pop()
    }

    // --- Shared receive queues ---

    /// Makes an SRQ of at least so many blocks.
    pub fn create_srq(&mut self, pd: Pd, blocks: usize) -> Result<SrqId, ControlError> {
        if blocks == 0 || blocks > self.shared.config.blocks {
            return Err(ControlError::Invalid);
        }
        let srq = Srq { blocks: Blocks::new(blocks), pd, wqes: 0, limit: 0, users: 0 };
        self.shared.srqs.insert(srq).map(SrqId).ok_or(ControlError::NoRoom)
    }

    /// An event is due when fewer WQEs than this are left; 0 is never.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u32) -> Result<(), ControlError> {
        self.shared.srqs.get_mut(srq.0).ok_or(ControlError::Unknown)?.limit = limit;
        Ok(())
    }

    /// Removes an SRQ that no QP has.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), ControlError> {
        match self.shared.srqs.get(srq.0) {
            None => Err(ControlError::Unknown),
            Some(queue) if queue.users > 0 => Err(ControlError::InUse),
            Some(_) => {
                self.shared.srqs.remove(srq.0);
                Ok(())
            }
        }
    }

    /// Posts a receive WQE ([`crate::ReceiveWork::emit`]) to an SRQ.
    pub fn post_srq(&mut self, srq: SrqId, wqe: &[u8]) -> Result<(), PostError> {
        let queue = self.shared.srqs.get_mut(srq.0).ok_or(PostError::Unknown)?;
        check_blocks(wqe, MAX_RECEIVE_BLOCKS)?;
        if queue.blocks.room() < wqe.len() / BLOCK_BYTES {
            return Err(PostError::Full);
        }
        queue.blocks.push(wqe);
        queue.wqes += 1;
        Ok(())
    }

    // --- Queue pairs ---

    /// Makes a QP, in RESET.
    pub fn create_qp(&mut self, init: &Init) -> Result<Qpn, ControlError> {
        let init = self.check_init(init)?;
        let slot = self.qps.next().ok_or(ControlError::NoRoom)?;
        let number = self.number(slot);
        self.qps.insert(Qp::new(number, &init)).ok_or(ControlError::NoRoom)?;
        self.count_users(&init);
        Ok(number)
    }

    /// What a QP can be made with: its queues are powers of two.
    pub(crate) fn check_init(&self, init: &Init) -> Result<Init, ControlError> {
        let most = self.shared.config.blocks;
        let has_queues = (1..=most).contains(&init.sq_blocks) && (1..=most).contains(&init.rq_blocks);
        let has_srq = match init.srq {
            Some(srq) => self.shared.srqs.get(srq.0).is_some_and(|queue| queue.pd == init.pd),
            None => true,
        };
        let has_cqs =
            self.shared.cqs.get(init.send_cq.0).is_some() && self.shared.cqs.get(init.receive_cq.0).is_some();
        if !has_queues || !has_srq || !has_cqs {
            return Err(ControlError::Invalid);
        }
        Ok(Init {
            sq_blocks: init.sq_blocks.next_power_of_two(),
            rq_blocks: init.rq_blocks.next_power_of_two(),
            ..*init
        })
    }

    /// One more QP has these queues.
    pub(crate) fn count_users(&mut self, init: &Init) {
        for cq in [init.send_cq, init.receive_cq] {
            if let Some(queue) = self.shared.cqs.get_mut(cq.0) {
                queue.users += 1;
            }
        }
        if let Some(queue) = init.srq.and_then(|srq| self.shared.srqs.get_mut(srq.0)) {
            queue.users += 1;
        }
    }

    /// The number that a QP in this place gets: another one each time, neither 0 nor 1.
    fn number(&mut self, slot: u16) -> Qpn {
        let places = self.generations.len();
        let generation = &mut self.generations[slot as usize];
        loop {
            let number = slot as usize + *generation as usize * places;
            *generation = (*generation + 1) % (QP_NUMBERS / places) as u16;
            if number >= 2 {
                return Qpn(number as u16);
            }
        }
    }

    #[inline]
    pub(crate) fn slot(&self, qp: Qpn) -> u16 {
        qp.0 & (self.generations.len() - 1) as u16
    }

    #[inline]
    pub(crate) fn qp(&mut self, number: Qpn) -> Option<(&mut Qp, &mut Shared)> {
        let slot = self.slot(number);
        let qp = self.qps.get_mut(slot).filter(|qp| qp.number == number)?;
        Some((qp, &mut self.shared))
    }

    /// Changes the state of a QP, and what it is connected with; to RTR attributes are needed.
    pub fn modify_qp(
        &mut self,
        qp: Qpn,
        state: State,
        attributes: Option<&Attributes>,
    ) -> Result<(), ControlError> {
        let peers = self.shared.config.peers;
        if attributes.is_some_and(|attributes| attributes.peer.0 as usize >= peers) {
            return Err(ControlError::Invalid);
        }
        let (qp, shared) = self.qp(qp).ok_or(ControlError::Unknown)?;
        qp.modify(shared, state, attributes).then_some(()).ok_or(ControlError::Invalid)
    }

    /// The state of a QP.
    pub fn state(&self, qp: Qpn) -> Option<State> {
        self.peek(qp).map(|qp| qp.state)
    }

    /// What a QP was connected with.
    pub fn attributes(&self, qp: Qpn) -> Option<Attributes> {
        self.peek(qp).map(|qp| qp.attributes)
    }

    pub(crate) fn peek(&self, number: Qpn) -> Option<&Qp> {
        self.qps.get(self.slot(number)).filter(|qp| qp.number == number)
    }

    /// Blocks that the SQ of a QP has room for.
    pub fn sq_room(&self, qp: Qpn) -> usize {
        self.peek(qp).map_or(0, |qp| qp.requester.sq.room())
    }

    /// Blocks that the RQ of a QP has room for.
    pub fn rq_room(&self, qp: Qpn) -> usize {
        self.peek(qp).map_or(0, |qp| qp.rq.room())
    }

    /// Removes a QP with all that is in it, and its completions that were not taken; no CQEs are made.
    pub fn destroy_qp(&mut self, number: Qpn) -> Result<(), ControlError> {
        let slot = self.slot(number);
        if self.peek(number).is_none() {
            return Err(ControlError::Unknown);
        }
        let Some(qp) = self.qps.remove(slot) else { return Err(ControlError::Unknown) };
        self.shared.forget(number, &qp.init);
        for cq in [qp.init.send_cq, qp.init.receive_cq] {
            if let Some(queue) = self.shared.cqs.get_mut(cq.0) {
                queue.users -= 1;
            }
        }
        if let Some(queue) = qp.init.srq.and_then(|srq| self.shared.srqs.get_mut(srq.0)) {
            queue.users -= 1;
        }
        self.shared.schedule.forget(number);
        Ok(())
    }

    /// Posts a send WQE ([`crate::SendWork::emit`]): whole blocks. What is wrong in it is told by its CQE.
    pub fn post_send(&mut self, number: Qpn, wqe: &[u8]) -> Result<(), PostError> {
        let (qp, shared) = self.qp(number).ok_or(PostError::Unknown)?;
        check_blocks(wqe, MAX_BLOCKS)?;
        match qp.state {
            State::Rts | State::Sqd => {}
            State::Sqe | State::Error => {
                let first = wqe.first_chunk::<BLOCK_BYTES>().ok_or(PostError::Malformed)?;
                let (id, opcode) = Head::id_of(first);
                let done = Done::Sent(SendOpcode::new(opcode).unwrap_or(SendOpcode::Nop));
                shared.counters.wqes_flushed += 1;
                qp.complete_send(shared, Cqe::new(id, Status::Flushed, done, number));
                return Ok(());
            }
            _ => return Err(PostError::State),
        }
        if qp.requester.sq.room() < wqe.len() / BLOCK_BYTES {
            return Err(PostError::Full);
        }
        qp.requester.sq.push(wqe);
        if qp.is_peer_lost {
            qp.fail(shared, Some((Status::RetriesExceeded, None)));
        } else {
            qp.wake(shared);
        }
        Ok(())
    }

    /// Posts a receive WQE ([`crate::ReceiveWork::emit`]).
    pub fn post_receive(&mut self, number: Qpn, wqe: &[u8]) -> Result<(), PostError> {
        let (qp, shared) = self.qp(number).ok_or(PostError::Unknown)?;
        check_blocks(wqe, MAX_RECEIVE_BLOCKS)?;
        match qp.state {
            _ if qp.init.srq.is_some() => return Err(PostError::State),
            State::Reset => return Err(PostError::State),
            State::Error => {
                let first = wqe.first_chunk::<BLOCK_BYTES>().ok_or(PostError::Malformed)?;
                shared.counters.wqes_flushed += 1;
                let cqe = Cqe::new(Head::id_of(first).0, Status::Flushed, Done::Received, number);
                shared.complete(qp.init.receive_cq, cqe);
                return Ok(());
            }
            _ => {}
        }
        if qp.rq.room() < wqe.len() / BLOCK_BYTES {
            return Err(PostError::Full);
        }
        qp.rq.push(wqe);
        Ok(())
    }

    /// Memory that a QP waited for may be here now.
    pub fn resume(&mut self, number: Qpn) {
        let Some((qp, shared)) = self.qp(number) else { return };
        if qp.place.is_parked {
            shared.schedule.unpark(number, &mut qp.place);
            qp.wake(shared);
        }
    }

    /// The session with a peer is over: its QPs fail what they were doing, datagrams to it are dropped until
    /// [`Engine::find_peer`].
    pub fn lose_peer(&mut self, peer: PeerId) {
        self.shared.schedule.set_lost(peer, true);
        for qp in self.qps.iter_mut() {
            if qp.attributes.peer == peer && qp.is_connected() {
                qp.lose_peer(&mut self.shared);
            }
        }
    }

    /// What datagrams of a peer find in front of them in their buffers, in place of a GRH; zeros until it is said.
    pub fn set_grh(&mut self, peer: PeerId, grh: &[u8; GRH_BYTES]) -> Result<(), ControlError> {
        *self.shared.grhs.get_mut(peer.0 as usize).ok_or(ControlError::Unknown)? = *grh;
        Ok(())
    }

    /// There is a session with the peer again. QPs that had failed stay so.
    pub fn find_peer(&mut self, peer: PeerId) {
        self.shared.schedule.set_lost(peer, false);
    }
}

/// A WQE is whole blocks, as many as it says.
fn check_blocks(wqe: &[u8], most: usize) -> Result<(), PostError> {
    let blocks = wqe.len() / BLOCK_BYTES;
    let is_whole = wqe.len().is_multiple_of(BLOCK_BYTES) && (1..=most).contains(&blocks);
    let says = wqe.get(2).copied().unwrap_or(0) as usize;
    if is_whole && says == blocks { Ok(()) } else { Err(PostError::Malformed) }
}
