//! The driver: what there is in the device's tables, and its queues.

use std::collections::VecDeque;

use etherslot_rdma::{
    Access, ControlError, CqId, Cqe, Done, Event, Layout, Pd, PeerId, PostError, Qpn, ReceiveWork, Region,
    SendWork, SrqId, Whereabouts,
};

use super::Failure;
use super::bring_up::{Limits, Step};
use super::device::Device;
use super::memory::{Free, Place};
use super::orders::{Order, Orders, Outcome, PAGES, TABLES, Ticket};
use super::pair::Pair;
use super::ring::{CompletionQueue, WorkQueue};

/// The owner of everything that this driver makes.
pub(super) const OWNER: u32 = 1;
const VALID: u32 = 1;
const PAGE: u32 = 4096;
/// Offsets of a QP page.
const CQ_DOORBELL: u32 = 0x008;
const SRQ_DOORBELL: u32 = 0x010;
const QP_STATUS: u32 = 0x018;

/// A run of entries of the PBLMT.
#[derive(Clone, Copy, Debug)]
struct Run {
    first: u32,
    pages: u32,
}

/// An STag that is in use, or waits for its FENCE.
#[derive(Clone, Copy, Debug)]
struct Stag {
    is_used: bool,
    run: Run,
}

/// A shared receive queue.
#[derive(Debug)]
pub(super) struct Shared {
    queue: WorkQueue,
    pd: Pd,
    log2: u32,
    users: u32,
}

/// The driver of one RNIC.
#[derive(Debug)]
pub struct Driver {
    pub(super) step: Step,
    pub(super) failure: Option<Failure>,
    pub(super) limits: Limits,
    pub(super) orders: Orders,
    pub(super) events: VecDeque<Event>,
    free: Free,
    stags: Vec<Stag>,
    free_stags: VecDeque<u32>,
    free_pages: Vec<Run>,
    pub(super) cqs: Vec<Option<CompletionQueue>>,
    srqs: Vec<Option<Shared>>,
    pub(super) pairs: Vec<Option<Pair>>,
    /// Of each place of a QP, how often its number has changed.
    pub(super) generations: Vec<u16>,
    first_generation: u16,
    /// QPs and CQs that have a doorbell to be rung.
    pub(super) dirty_pairs: Vec<u16>,
    dirty_cqs: Vec<u16>,
    dirty_srqs: Vec<u16>,
}

impl Driver {
    /// A driver without a device; this memory is its own.
    pub fn new(memory: Place) -> Self {
        Self {
            step: Step::Away,
            failure: None,
            limits: Limits::default(),
            orders: Orders::default(),
            events: VecDeque::new(),
            free: Free::new(memory),
            stags: Vec::new(),
            free_stags: VecDeque::new(),
            free_pages: Vec::new(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            pairs: Vec::new(),
            generations: Vec::new(),
            first_generation: 0,
            dirty_pairs: Vec::new(),
            dirty_cqs: Vec::new(),
            dirty_srqs: Vec::new(),
        }
    }

    /// All that was made is gone with the device; the places of the program in memory stay.
    pub(super) fn forget(&mut self) {
        self.orders.clear();
        self.events.clear();
        let pairs = self.pairs.drain(..).flatten().flat_map(|pair| [pair.sq.place, pair.rq.place]);
        let cqs = self.cqs.drain(..).flatten().map(|cq| cq.place);
        let srqs = self.srqs.drain(..).flatten().map(|srq| srq.queue.place);
        for place in pairs.chain(cqs).chain(srqs) {
            self.free.give_back(place);
        }
        self.dirty_pairs.clear();
        self.dirty_cqs.clear();
        self.dirty_srqs.clear();
    }

    /// The device is as after a reset, and has so much of everything.
    pub(super) fn begin(&mut self, limits: Limits) {
        self.forget();
        let nothing = Stag { is_used: false, run: Run { first: 0, pages: 0 } };
        self.stags = vec![nothing; limits.stags as usize];
        self.free_stags = (1..limits.stags).collect();
        self.free_pages = vec![Run { first: 0, pages: limits.pages }];
        self.cqs = (0..limits.cqs).map(|_| None).collect();
        self.srqs = (0..limits.srqs).map(|_| None).collect();
        self.pairs = (0..limits.qps).map(|_| None).collect();
        // Of all that a number has room for.
        let generations = (1 << 16) / limits.qps;
        self.generations = vec![(u32::from(self.first_generation) % generations) as u16; limits.qps as usize];
        self.limits = limits;
    }

    /// Numbers of QPs begin elsewhere from now on when a device comes: where drivers follow each other soon, segments for a QP of the one
    /// are not to find one of the next. Any number.
    pub fn begin_numbers_at(&mut self, generation: u16) {
        self.first_generation = generation;
    }

    /// What the device has; zeros before it is ready.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes a part of the memory, a multiple of 64 bytes.
    pub fn allocate(&mut self, bytes: usize) -> Option<Place> {
        self.free.take(bytes)
    }

    /// Gives a part back; nothing of the device's may refer to it any more.
    pub fn free(&mut self, place: Place) {
        self.free.give_back(place);
    }

    /// Zeroed memory for a queue.
    pub(super) fn queue_memory<D: Device>(
        &mut self,
        device: &mut D,
        bytes: usize,
    ) -> Result<Place, ControlError> {
        let place = self.free.take(bytes).ok_or(ControlError::NoRoom)?;
        for at in (0..place.bytes as u64).step_by(64) {
            device.store(place.address + at, &[0; 64]);
        }
        Ok(place)
    }

    // --- Tables ---

    /// Writes an entry: words from its end to its start.
    pub(super) fn write_entry<const N: usize>(&mut self, table: usize, offset: u32, words: [(u32, u64); N]) {
        let at = self.limits.tables[table] + offset;
        for (within, word) in words.into_iter().rev() {
            self.orders.write(TABLES, at + within, &word.to_le_bytes());
        }
    }

    /// Registers a region ([`etherslot_rdma::Engine::register`]); addresses are those that the device takes. Returns its STag.
    pub fn register(&mut self, region: &Region<'_>) -> Result<u32, ControlError> {
        let (at, shift, offset, pages) = match region.layout {
            Layout::Direct { address } => (address, 0, 0, &[][..]),
            Layout::Pages { shift, offset, pages } => (offset, shift, offset, pages),
        };
        let is_direct = shift == 0;
        let remote_writes = (Access::REMOTE_WRITE | Access::REMOTE_ATOMIC).0;
        let is_sound = region.access.0 & remote_writes == 0 || region.access.has(Access::LOCAL_WRITE);
        let end = offset.checked_add(region.length).ok_or(ControlError::Invalid)?;
        let needed = if is_direct { 0 } else { end.div_ceil(1 << shift) };
        if !self.is_ready()
            || !is_sound
            || region.access.0 & !Access::ALL.0 != 0
            || pages.len() as u64 > needed
        {
            return Err(ControlError::Invalid);
        }
        if region.base.checked_add(region.length).is_none() || at.checked_add(region.length).is_none() {
            return Err(ControlError::Invalid);
        }
        let run = self.take_pages(u32::try_from(needed).map_err(|_| ControlError::Invalid)?)?;
        let Some(index) = self.free_stags.pop_front() else {
            self.give_pages(run);
            return Err(ControlError::NoRoom);
        };
        for (entry, page) in (run.first..run.first + run.pages).zip((0..).map(|at| pages.get(at).copied())) {
            self.write_entry(1, entry * 8, [(0, page.map_or(0, |page| page | 1))]);
        }
        self.stags[index as usize] = Stag { is_used: true, run };
        let word =
            u32::from(region.key) << 24 | u32::from(region.access.0) << 8 | u32::from(is_direct) << 3 | VALID;
        let first_page = pages.first().map_or(0, |page| page | 1);
        let second = u32::from(shift) << 16 | u32::from(region.pd.0);
        self.write_entry(
            0,
            index * 64,
            [
                (0, u64::from(second) << 32 | u64::from(word)),
                (8, region.base),
                (16, region.length),
                (24, u64::from(run.first)),
                (32, at),
                (40, first_page),
            ],
        );
        Ok(index << 8 | u32::from(region.key))
    }

    /// Makes a window that is not bound; its STag has key 0 ([`etherslot_rdma::SendOpcode::Bind`]).
    pub fn allocate_window(&mut self, pd: Pd) -> Result<u32, ControlError> {
        let index = self.free_stags.pop_front().filter(|_| self.is_ready()).ok_or(ControlError::NoRoom)?;
        self.stags[index as usize] = Stag { is_used: true, run: Run { first: 0, pages: 0 } };
        self.write_entry(0, index * 64, [(0, u64::from(pd.0) << 32 | 2)]);
        Ok(index << 8)
    }

    /// Removes a region or window. From the end of the order on the device uses it no more; a region on which windows are
    /// bound stays.
    pub fn deregister(&mut self, stag: u32) -> Result<Ticket, ControlError> {
        let index = stag >> 8;
        let known = self.stags.get(index as usize).filter(|known| known.is_used);
        known.ok_or(ControlError::Unknown)?;
        self.stags[index as usize].is_used = false;
        self.write_entry(0, index * 64, [(0, 0)]);
        let ticket = self.orders.ticket();
        self.orders.push(Order::Fence { index }, ticket);
        Ok(ticket)
    }

    pub(super) fn free_stag(&mut self, index: u32) {
        let Some(stag) = self.stags.get_mut(index as usize) else { return };
        let run = std::mem::replace(&mut stag.run, Run { first: 0, pages: 0 });
        self.give_pages(run);
        self.free_stags.push_back(index);
    }

    fn take_pages(&mut self, pages: u32) -> Result<Run, ControlError> {
        if pages == 0 {
            return Ok(Run { first: 0, pages: 0 });
        }
        let at = self.free_pages.iter().position(|run| run.pages >= pages).ok_or(ControlError::NoRoom)?;
        let free = &mut self.free_pages[at];
        let taken = Run { first: free.first, pages };
        free.first += pages;
        free.pages -= pages;
        if free.pages == 0 {
            self.free_pages.remove(at);
        }
        Ok(taken)
    }

    fn give_pages(&mut self, run: Run) {
        if run.pages == 0 {
            return;
        }
        let at = self.free_pages.partition_point(|free| free.first < run.first);
        self.free_pages.insert(at, run);
        let mut merged: Vec<Run> = Vec::with_capacity(self.free_pages.len());
        for run in self.free_pages.drain(..) {
            match merged.last_mut() {
                Some(last) if last.first + last.pages == run.first => last.pages += run.pages,
                _ => merged.push(run),
            }
        }
        self.free_pages = merged;
    }

    /// Peer `peer` is that of this session of the RNIC's. `grh`: what datagrams that come from it find in front of them.
    pub fn set_peer(&mut self, peer: PeerId, session: u16, grh: &[u8; 40]) -> Result<(), ControlError> {
        if !self.is_ready() || u32::from(peer.0) >= self.limits.peers {
            return Err(ControlError::Unknown);
        }
        let offset = u32::from(peer.0) * 64;
        for (at, part) in (24..).step_by(8).zip(grh.as_chunks::<8>().0) {
            self.orders.write(TABLES, self.limits.tables[5] + offset + at, part);
        }
        let word = 1_u32 << 31 | u32::from(session);
        self.orders.write(TABLES, self.limits.tables[5] + offset, &word.to_le_bytes());
        Ok(())
    }

    /// The peer is known no more: what is connected with it fails.
    pub fn clear_peer(&mut self, peer: PeerId) -> Result<(), ControlError> {
        if !self.is_ready() || u32::from(peer.0) >= self.limits.peers {
            return Err(ControlError::Unknown);
        }
        self.orders.write(TABLES, self.limits.tables[5] + u32::from(peer.0) * 64, &[0; 4]);
        Ok(())
    }

    // --- What a caller that reads registers at once may ask for itself ---

    /// Where the table BAR has the entry of a session ([`etherslot_rdma::Whereabouts`]); `None`: of the RNIC itself.
    pub fn session_entry(&self, session: Option<u16>) -> Option<u32> {
        let entry = session.map_or(0, |session| u32::from(session) + 1);
        let is_there = self.limits.sessions > 0 && entry <= self.limits.sessions;
        is_there.then(|| self.limits.sessions_at + entry * Whereabouts::BYTES as u32)
    }

    /// Where the table BAR has the entry of a CQ, whose bit 1 is ARMED.
    pub fn cq_entry(&self, cq: CqId) -> u32 {
        self.limits.tables[2] + u32::from(cq.0) * 64
    }

    /// Where the table BAR has the entry of an STag, whose bytes 52 to 55 are how many windows it has.
    pub fn stag_entry(&self, stag: u32) -> u32 {
        self.limits.tables[0] + (stag >> 8) * 64
    }

    /// Where the BAR of pages has `QP_STATUS` of a QP.
    pub fn status_register(&mut self, qp: Qpn) -> Option<u32> {
        self.pair(qp).map(|pair| pair.page() + QP_STATUS)
    }

    // --- Completion queues ---

    /// Makes a CQ of at least so many CQEs, whose interrupt is this vector.
    pub fn create_cq<D: Device>(
        &mut self,
        device: &mut D,
        cqes: usize,
        vector: u16,
    ) -> Result<CqId, ControlError> {
        let at = self.cqs.iter().position(Option::is_none).ok_or(ControlError::NoRoom)?;
        let cqes = cqes.max(2).checked_next_power_of_two().filter(|&cqes| cqes <= 1 << 22);
        let cqes = cqes.ok_or(ControlError::Invalid)?;
        let place = self.queue_memory(device, cqes * Cqe::BYTES)?;
        let log2 = cqes.trailing_zeros();
        self.cqs[at] = Some(CompletionQueue::new(place, log2));
        let word = u32::from(vector) << 16 | log2 << 8 | VALID;
        let first = u64::from(OWNER) << 32 | u64::from(word);
        self.write_entry(2, at as u32 * 64, [(0, first), (8, place.address)]);
        Ok(CqId(at as u16))
    }

    /// Removes a CQ that no QP has.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), ControlError> {
        let known = self.cqs.get_mut(usize::from(cq.0)).ok_or(ControlError::Unknown)?;
        match known {
            None => return Err(ControlError::Unknown),
            Some(queue) if queue.users > 0 => return Err(ControlError::InUse),
            Some(queue) => self.free.give_back(queue.place),
        }
        *known = None;
        self.dirty_cqs.retain(|&other| other != cq.0);
        self.write_entry(2, u32::from(cq.0) * 64, [(0, 0)]);
        Ok(())
    }

    /// CQEs that a CQ has room for.
    pub fn cqes(&self, cq: CqId) -> usize {
        let queue = self.cqs.get(usize::from(cq.0)).and_then(Option::as_ref);
        queue.map_or(0, |queue| queue.place.bytes / Cqe::BYTES)
    }

    /// Takes completions; returns how many.
    pub fn poll_cq<D: Device>(&mut self, device: &D, cq: CqId, out: &mut [Cqe]) -> usize {
        let Self { cqs, pairs, srqs, dirty_cqs, .. } = self;
        let Some(queue) = cqs.get_mut(usize::from(cq.0)).and_then(Option::as_mut) else { return 0 };
        let (before, mut count) = (queue.consumed, 0);
        while count < out.len()
            && let Some(entry) = queue.next(device)
        {
            // One that no RNIC writes, or of a QP that is no more, is for nobody.
            let Ok(mut cqe) = entry else { continue };
            let place = usize::from(cqe.qp.0) & pairs.len().wrapping_sub(1);
            let pair = pairs.get_mut(place).and_then(Option::as_mut).filter(|pair| pair.number == cqe.qp);
            let Some(pair) = pair else { continue };
            let is_success = cqe.status == etherslot_rdma::Status::Success;
            let id = match (cqe.done, pair.srq) {
                (Done::Sent(_), _) => pair.sq.completed(cqe.id, is_success),
                (_, None) => pair.rq.completed(cqe.id, is_success),
                (_, Some(srq)) => {
                    let shared = srqs.get_mut(usize::from(srq.0)).and_then(Option::as_mut);
                    shared.and_then(|shared| shared.queue.completed_out_of_order(cqe.id))
                }
            };
            if let Some(id) = id {
                cqe.id = id;
                out[count] = cqe;
                count += 1;
            }
        }
        if queue.consumed != before && !dirty_cqs.contains(&cq.0) {
            dirty_cqs.push(cq.0);
        }
        count
    }

    /// Asks for one interrupt of the CQ's vector by its next completion, or the next solicited one.
    pub fn arm(&mut self, cq: CqId, solicited_only: bool) {
        if let Some(queue) = self.cqs.get_mut(usize::from(cq.0)).and_then(Option::as_mut) {
            queue.wanted = if solicited_only { 1 << 17 } else { 1 << 16 };
            if !self.dirty_cqs.contains(&cq.0) {
                self.dirty_cqs.push(cq.0);
            }
        }
    }

    // --- Shared receive queues ---

    /// Makes an SRQ of at least so many blocks; an event is due when fewer WQEs than `limit` are left.
    pub fn create_srq<D: Device>(
        &mut self,
        device: &mut D,
        pd: Pd,
        blocks: usize,
        limit: u16,
    ) -> Result<SrqId, ControlError> {
        let at = self.srqs.iter().position(Option::is_none).ok_or(ControlError::NoRoom)?;
        let blocks = blocks.clamp(16, 1 << 15).next_power_of_two();
        let place = self.queue_memory(device, blocks * etherslot_rdma::BLOCK_BYTES)?;
        let log2 = blocks.trailing_zeros();
        self.srqs[at] = Some(Shared { queue: WorkQueue::new(place, blocks as u32), pd, log2, users: 0 });
        let word = u32::from(pd.0) << 16 | log2 << 8 | VALID;
        let second = u32::from(limit) << 16 | OWNER;
        let first = u64::from(second) << 32 | u64::from(word);
        self.write_entry(4, at as u32 * 64, [(0, first), (8, place.address)]);
        Ok(SrqId(at as u16))
    }

    /// Sets the limit of an SRQ anew.
    pub fn set_srq_limit(&mut self, srq: SrqId, limit: u16) -> Result<(), ControlError> {
        self.srqs.get(usize::from(srq.0)).and_then(Option::as_ref).ok_or(ControlError::Unknown)?;
        let second = u32::from(limit) << 16 | OWNER;
        let at = self.limits.tables[4] + u32::from(srq.0) * 64 + 4;
        self.orders.write(TABLES, at, &second.to_le_bytes());
        Ok(())
    }

    /// Removes an SRQ that no QP has.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), ControlError> {
        let known = self.srqs.get_mut(usize::from(srq.0)).ok_or(ControlError::Unknown)?;
        match known {
            None => return Err(ControlError::Unknown),
            Some(shared) if shared.users > 0 => return Err(ControlError::InUse),
            Some(shared) => self.free.give_back(shared.queue.place),
        }
        *known = None;
        self.write_entry(4, u32::from(srq.0) * 64, [(0, 0)]);
        Ok(())
    }

    /// One more QP, or one less, has this SRQ; it is of this PD.
    pub(super) fn count_srq(&mut self, srq: SrqId, pd: Pd, more: bool) -> Result<(), ControlError> {
        let shared = self.srqs.get_mut(usize::from(srq.0)).and_then(Option::as_mut);
        let shared = shared.filter(|shared| shared.pd == pd).ok_or(ControlError::Unknown)?;
        shared.users = if more { shared.users + 1 } else { shared.users.saturating_sub(1) };
        debug_assert!(shared.log2 >= 4, "an SRQ has 16 blocks at least");
        Ok(())
    }

    /// Posts a receive WQE to an SRQ.
    pub fn post_srq<D: Device>(
        &mut self,
        device: &mut D,
        srq: SrqId,
        work: &ReceiveWork<'_>,
    ) -> Result<(), PostError> {
        let shared =
            self.srqs.get_mut(usize::from(srq.0)).and_then(Option::as_mut).ok_or(PostError::Unknown)?;
        put_receive(device, &mut shared.queue, work)?;
        if !self.dirty_srqs.contains(&srq.0) {
            self.dirty_srqs.push(srq.0);
        }
        Ok(())
    }

    // --- Work ---

    /// The QP with this number.
    pub(super) fn pair(&mut self, qp: Qpn) -> Option<&mut Pair> {
        let place = usize::from(qp.0) & self.pairs.len().wrapping_sub(1);
        self.pairs.get_mut(place)?.as_mut().filter(|pair| pair.number == qp)
    }

    fn touch_pair(&mut self, qp: Qpn) {
        let place = qp.0 & (self.pairs.len() as u16).wrapping_sub(1);
        if !self.dirty_pairs.contains(&place) {
            self.dirty_pairs.push(place);
        }
    }

    /// Posts a send WQE; the doorbell is rung by [`Driver::ring`].
    pub fn post_send<D: Device>(
        &mut self,
        device: &mut D,
        qp: Qpn,
        work: &SendWork<'_>,
    ) -> Result<(), PostError> {
        let pair = self.pair(qp).ok_or(PostError::Unknown)?;
        let mut wqe = [0; SendWork::MAX_BYTES];
        let bytes = pair.emit(work, &mut wqe)?;
        pair.sq.put(device, &wqe[..bytes]);
        self.touch_pair(qp);
        Ok(())
    }

    /// Posts a receive WQE.
    pub fn post_receive<D: Device>(
        &mut self,
        device: &mut D,
        qp: Qpn,
        work: &ReceiveWork<'_>,
    ) -> Result<(), PostError> {
        let pair = self.pair(qp).ok_or(PostError::Unknown)?;
        if pair.srq.is_some() {
            return Err(PostError::State);
        }
        put_receive(device, &mut pair.rq, work)?;
        self.touch_pair(qp);
        Ok(())
    }

    /// Blocks that the SQ of a QP has room for.
    pub fn sq_room(&mut self, qp: Qpn) -> usize {
        self.pair(qp).map_or(0, |pair| pair.sq.room())
    }

    /// Rings the doorbells of all that was posted and taken since the last time.
    pub fn ring<D: Device>(&mut self, device: &mut D) {
        let Self { orders, pairs, cqs, srqs, .. } = self;
        for place in self.dirty_pairs.drain(..) {
            if let Some(pair) = &mut pairs[usize::from(place)] {
                pair.ring(orders);
            }
        }
        // CQs and SRQs have no pages: any of the owner's does.
        let page = pairs.iter().flatten().find(|pair| pair.has_page).map(Pair::page);
        if let Some(page) = page {
            for cq in self.dirty_cqs.drain(..) {
                let doorbell = cqs[usize::from(cq)].as_mut().and_then(CompletionQueue::doorbell);
                if let Some(value) = doorbell {
                    orders.write(PAGES, page + CQ_DOORBELL, &(value | u64::from(cq)).to_le_bytes());
                }
            }
            for srq in self.dirty_srqs.drain(..) {
                let doorbell = srqs[usize::from(srq)].as_mut().and_then(|shared| shared.queue.doorbell());
                if let Some(producer) = doorbell {
                    let value = u64::from(producer) << 32 | u64::from(srq);
                    orders.write(PAGES, page + SRQ_DOORBELL, &value.to_le_bytes());
                }
            }
        }
        self.orders.make_writes(device);
    }

    // --- What came of it ---

    /// The next order that has ended.
    pub fn next_outcome(&mut self) -> Option<Outcome> {
        self.orders.outcomes.pop_front()
    }

    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Vector 0 has come: there are events.
    pub fn fetch_events(&mut self) {
        if self.is_ready() {
            let ticket = self.orders.ticket();
            self.orders.push(Order::Events, ticket);
        }
    }

    /// Whether nothing waits for the device.
    pub fn is_idle(&self) -> bool {
        self.orders.is_idle()
    }
}

/// Puts a receive WQE into a queue.
fn put_receive<D: Device>(
    device: &mut D,
    queue: &mut WorkQueue,
    work: &ReceiveWork<'_>,
) -> Result<(), PostError> {
    let mut wqe = [0; ReceiveWork::MAX_BYTES];
    let bytes = work.emit(&mut wqe).ok_or(PostError::Malformed)?;
    let tag = queue.begin(work.id, bytes / etherslot_rdma::BLOCK_BYTES, true)?;
    wqe[8..16].copy_from_slice(&tag.to_le_bytes());
    queue.put(device, &wqe[..bytes]);
    Ok(())
}

/// Where the page of a QP's place is.
pub(super) const fn page(place: u16) -> u32 {
    place as u32 * PAGE
}
