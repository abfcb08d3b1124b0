//! Memory as the engine sees it, reached by DMA: what it reads is fetched first, what it writes goes through the outbox.
//!
//! A read of the engine that finds nothing here begins a fetch and is *pending*; the QP goes on when the data have come, asks again,
//! and takes them. Of a message that has more segments the next bytes are fetched ahead. Bytes fetched are taken once: another look at the
//! same memory fetches it anew, so what the peer or the driver wrote in between is seen.

use std::collections::VecDeque;

use etherslot_pci::function::{Bus, Fault};
use etherslot_rdma::{Memory, Qpn, Trouble};
use etherslot_wire::rdmap::AtomicRequest;

use super::outbox::Outbox;

/// Bytes of a fetch at most.
pub(super) const FETCH_BYTES: usize = 4096;
/// Fetches under way at most.
const FETCHES: usize = 128;
/// Fetches that are kept for what is not data: WQEs and atomics.
const RESERVED: usize = 16;
/// Fetches of one QP's data.
const FETCHES_OF_QP: usize = 16;

/// What is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Data of a QP.
    Data(Qpn),
    /// WQEs of a queue; the second number tells earlier queues of its place from this one.
    Ring(RingId, u32),
    /// The operand of the atomic that is under way.
    Atomic,
    /// Nobody wants it any more.
    Nothing,
}

/// A ring in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RingId {
    /// The SQ of a QP, by its place.
    Send(u16),
    /// The RQ of a QP, by its place.
    Receive(u16),
    /// An SRQ.
    Shared(u16),
}

#[derive(Debug)]
struct Fetch {
    what: What,
    address: u64,
    bytes: usize,
    /// Asked for, and come.
    asked: usize,
    come: usize,
    has_failed: bool,
    /// Taken, and taken by the step under way.
    taken: usize,
    taking: usize,
    /// It waited here while its QP had a turn.
    is_stale: bool,
    /// Place of the outbox that has to have passed before.
    behind: u64,
    generation: u32,
    /// In the order of their beginning.
    number: u64,
    data: Box<[u8]>,
}

impl Fetch {
    fn is_here(&self) -> bool {
        self.come == self.bytes
    }

    fn is_of(&self, qp: Qpn) -> bool {
        self.what == What::Data(qp)
    }
}

/// An atomic of a QP: it has one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Atomic {
    None,
    Waiting { address: u64, request: AtomicRequest },
    Done { address: u64, request: AtomicRequest, result: Result<u64, Trouble> },
}

/// A moment in the life of the DMA.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    place: u64,
    begun: u64,
}

/// Memory by DMA.
#[derive(Debug)]
pub(super) struct Dma {
    pub(super) outbox: Outbox,
    fetches: Vec<Fetch>,
    free: Vec<u16>,
    /// Fetches that have not been asked for, or not whole.
    asking: VecDeque<u16>,
    /// Fetches that are over and not data: [`Dma::next_fetched`].
    over: VecDeque<u16>,
    /// QPs that may go on: [`Dma::next_ready`].
    ready: VecDeque<Qpn>,
    /// QPs that found no fetch free.
    starved: VecDeque<Qpn>,
    atomics: Vec<Atomic>,
    /// QPs whose atomics wait; the first one's is under way if `is_doing`. `None`: it is nobody's any more.
    atomic_queue: VecDeque<Option<Qpn>>,
    is_doing: bool,
    /// The step under way: its QP, whether something was pending, whether it took something.
    qp: Qpn,
    is_pending: bool,
    has_taken: bool,
    /// Fetches so far.
    begun: u64,
}

impl Dma {
    pub(super) fn new(qps: usize) -> Self {
        let fetch = |_| Fetch {
            what: What::Nothing,
            address: 0,
            bytes: 0,
            asked: 0,
            come: 0,
            has_failed: false,
            taken: 0,
            taking: 0,
            is_stale: false,
            behind: 0,
            generation: 0,
            number: 0,
            data: vec![0; FETCH_BYTES].into_boxed_slice(),
        };
        Self {
            outbox: Outbox::default(),
            fetches: (0..FETCHES).map(fetch).collect(),
            free: (0..FETCHES as u16).rev().collect(),
            asking: VecDeque::with_capacity(FETCHES),
            over: VecDeque::with_capacity(FETCHES),
            ready: VecDeque::new(),
            starved: VecDeque::new(),
            atomics: vec![Atomic::None; qps],
            atomic_queue: VecDeque::new(),
            is_doing: false,
            qp: Qpn(0),
            is_pending: false,
            has_taken: false,
            begun: 0,
        }
    }

    fn place(&self, qp: Qpn) -> usize {
        qp.0 as usize & (self.atomics.len() - 1)
    }

    /// Begins a fetch of WQEs; false if none is free.
    pub(super) fn fetch_ring(&mut self, ring: RingId, life: u32, address: u64, bytes: usize) -> bool {
        self.begin_fetch(What::Ring(ring, life), address, bytes).is_some()
    }

    fn begin_fetch(&mut self, what: What, address: u64, bytes: usize) -> Option<u16> {
        debug_assert!((1..=FETCH_BYTES).contains(&bytes), "it fits a fetch");
        let at = self.free.pop()?;
        let behind = self.outbox.end();
        self.begun += 1;
        let fetch = &mut self.fetches[at as usize];
        *fetch = Fetch {
            what,
            address,
            bytes,
            asked: 0,
            come: 0,
            has_failed: false,
            taken: 0,
            taking: 0,
            is_stale: false,
            behind,
            generation: fetch.generation,
            number: self.begun,
            data: std::mem::take(&mut fetch.data),
        };
        self.asking.push_back(at);
        Some(at)
    }

    /// Asks the bus for what has to be fetched. True if it took something.
    pub(super) fn ask(&mut self, bus: &mut dyn Bus) -> bool {
        let mut any = false;
        while let Some(&at) = self.asking.front() {
            let fetch = &mut self.fetches[at as usize];
            if fetch.what == What::Nothing {
                // What was not asked for need not be.
                fetch.bytes = fetch.asked;
            }
            if fetch.asked < fetch.bytes {
                if !self.outbox.has_passed(fetch.behind) {
                    break;
                }
                let token = u64::from(fetch.generation) << 32 | u64::from(at);
                let asked = bus.read(
                    fetch.address.wrapping_add(fetch.asked as u64),
                    fetch.bytes - fetch.asked,
                    token,
                );
                fetch.asked += asked;
                any |= asked > 0;
                if fetch.asked < fetch.bytes {
                    break;
                }
            }
            self.asking.pop_front();
            if self.fetches[at as usize].is_here() && self.fetches[at as usize].what == What::Nothing {
                self.release(at);
            }
        }
        any
    }

    /// A part of a fetch has ended.
    pub(super) fn completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        let at = token as u16;
        let Some(fetch) = self.fetches.get_mut(at as usize) else { return };
        if u64::from(fetch.generation) != token >> 32 {
            return;
        }
        fetch.come = (fetch.come + bytes).min(fetch.bytes);
        let from = address.wrapping_sub(fetch.address) as usize;
        match (result, fetch.data.get_mut(from..from.saturating_add(bytes))) {
            (Ok(data), Some(place)) if data.len() == bytes => place.copy_from_slice(data),
            _ => fetch.has_failed = true,
        }
        if !fetch.is_here() {
            return;
        }
        match fetch.what {
            What::Data(qp) => self.ready.push_back(qp),
            What::Ring(..) => self.over.push_back(at),
            What::Atomic => self.do_atomic(at),
            // One that is in the queue to be asked for is released there.
            What::Nothing => {
                if !self.asking.contains(&at) {
                    self.release(at);
                }
            }
        }
    }

    /// WQEs that have come: of which ring, and what, or nothing if they could not be read.
    pub(super) fn next_fetched(&mut self, take: impl FnOnce(RingId, u32, Option<&[u8]>)) -> bool {
        let Some(at) = self.over.pop_front() else { return false };
        let fetch = &self.fetches[at as usize];
        if let What::Ring(ring, life) = fetch.what {
            take(ring, life, (!fetch.has_failed).then_some(&fetch.data[..fetch.bytes]));
        }
        self.release(at);
        true
    }

    /// The next QP that may go on.
    pub(super) fn next_ready(&mut self) -> Option<Qpn> {
        self.ready.pop_front()
    }

    fn release(&mut self, at: u16) {
        let fetch = &mut self.fetches[at as usize];
        fetch.what = What::Nothing;
        (fetch.bytes, fetch.come) = (0, 0);
        fetch.generation = fetch.generation.wrapping_add(1);
        self.free.push(at);
        if self.free.len() > RESERVED
            && let Some(qp) = self.starved.pop_front()
        {
            self.ready.push_back(qp);
        }
    }

    /// Nobody wants this one any more.
    fn abandon(&mut self, at: u16) {
        let fetch = &mut self.fetches[at as usize];
        fetch.what = What::Nothing;
        if fetch.is_here() {
            self.release(at);
        }
    }

    /// The QP is no more, or has ended: nothing is fetched for it.
    pub(super) fn forget(&mut self, qp: Qpn) {
        for at in 0..self.fetches.len() {
            if self.fetches[at].is_of(qp) {
                self.abandon(at as u16);
            }
        }
        self.starved.retain(|&other| other != qp);
        self.ready.retain(|&other| other != qp);
        let place = self.place(qp);
        self.atomics[place] = Atomic::None;
        for waiting in &mut self.atomic_queue {
            waiting.take_if(|other| *other == qp);
        }
    }

    /// All that was fetched and not taken by a turn of its QP may make room for others.
    pub(super) fn end_turns(&mut self) {
        self.settle();
        if self.starved.is_empty() {
            return;
        }
        for fetch in &mut self.fetches {
            fetch.is_stale = matches!(fetch.what, What::Data(_)) && fetch.is_here();
        }
    }

    /// Forgets everything; reads that were asked for end here yet, unless `are_lost`.
    pub(super) fn reset(&mut self, are_lost: bool) {
        self.outbox.clear();
        self.over.clear();
        self.asking.clear();
        self.ready.clear();
        self.starved.clear();
        self.atomic_queue.clear();
        self.atomics.fill(Atomic::None);
        self.is_doing = false;
        self.is_pending = false;
        self.has_taken = false;
        for at in 0..self.fetches.len() as u16 {
            if self.free.contains(&at) {
                continue;
            }
            let fetch = &mut self.fetches[at as usize];
            fetch.what = What::Nothing;
            fetch.bytes = fetch.asked;
            if are_lost || fetch.is_here() {
                self.release(at);
            }
        }
    }

    /// What is under way now; [`Dma::is_past`] says when none of it is any more.
    pub(super) fn mark(&self) -> Mark {
        Mark { place: self.outbox.end(), begun: self.begun }
    }

    /// Whether all that was under way then is over: writes are on their way, reads have ended.
    pub(super) fn is_past(&self, mark: Mark) -> bool {
        let is_open = |fetch: &Fetch| fetch.number <= mark.begun && !fetch.is_here();
        self.outbox.has_passed(mark.place) && !self.fetches.iter().any(is_open)
    }

    /// The step before is over: what it took is gone, if it went well.
    fn settle(&mut self) {
        if self.has_taken {
            let (qp, keeps) = (self.qp, self.is_pending);
            for at in 0..self.fetches.len() {
                let fetch = &mut self.fetches[at];
                if !fetch.is_of(qp) || fetch.taking == 0 {
                    continue;
                }
                if !keeps {
                    fetch.taken = fetch.taking;
                }
                fetch.taking = 0;
                if fetch.taken == fetch.bytes || fetch.has_failed && !keeps {
                    self.release(at as u16);
                }
            }
        }
        self.has_taken = false;
        self.is_pending = false;
    }

    /// How many of the bytes from `address` on are in no fetch of the QP, and how many that is of.
    fn unfetched(&self, address: u64, bytes: usize) -> usize {
        let ahead = self.fetches.iter().filter(|fetch| fetch.is_of(self.qp));
        let starts = ahead.filter_map(|fetch| fetch.address.checked_sub(address).filter(|&at| at > 0));
        starts.min().map_or(bytes, |at| bytes.min(usize::try_from(at).unwrap_or(bytes)))
    }

    /// The fetch of the QP that has the byte at `address`.
    fn find(&self, address: u64) -> Option<usize> {
        self.fetches.iter().position(|fetch| {
            fetch.is_of(self.qp)
                && address
                    .checked_sub(fetch.address)
                    .is_some_and(|at| at >= fetch.taken as u64 && at < fetch.bytes as u64)
        })
    }

    /// Begins to fetch data; how many bytes of them, 0 if there is no room.
    fn fetch_data(&mut self, address: u64, bytes: usize) -> usize {
        // Not over a page: reads that lie in one cost the least.
        let bytes = self.unfetched(address, bytes.min(FETCH_BYTES - (address as usize & (FETCH_BYTES - 1))));
        if self.free.len() <= RESERVED {
            let stale = self.fetches.iter().position(|fetch| fetch.is_stale && !fetch.is_of(self.qp));
            if let Some(at) = stale {
                self.fetches[at].is_stale = false;
                self.abandon(at as u16);
            }
        }
        if self.free.len() <= RESERVED {
            return 0;
        }
        self.begin_fetch(What::Data(self.qp), address, bytes).map_or(0, |_| bytes)
    }

    fn pend(&mut self) -> Result<(), Trouble> {
        self.is_pending = true;
        Err(Trouble::Pending)
    }

    /// Begins the next atomic, if none is under way.
    fn next_atomic(&mut self) {
        while !self.is_doing
            && let Some(&qp) = self.atomic_queue.front()
        {
            match qp.map(|qp| self.atomics[self.place(qp)]) {
                Some(Atomic::Waiting { address, .. }) => {
                    if self.begin_fetch(What::Atomic, address, 8).is_none() {
                        return;
                    }
                    self.is_doing = true;
                }
                _ => {
                    self.atomic_queue.pop_front();
                }
            }
        }
    }

    /// The operand of the atomic under way has come. What it makes of it is written before another one is read.
    fn do_atomic(&mut self, at: u16) {
        let fetch = &self.fetches[at as usize];
        let before =
            if fetch.has_failed { None } else { fetch.data.first_chunk().map(|b| u64::from_le_bytes(*b)) };
        self.is_doing = false;
        if let Some(Some(qp)) = self.atomic_queue.pop_front() {
            let place = self.place(qp);
            if let Atomic::Waiting { address, request } = self.atomics[place] {
                let result = before.ok_or(Trouble::Fault);
                if let Some(before) = before {
                    self.outbox.write(address, &request.apply(before).to_le_bytes());
                }
                self.atomics[place] = Atomic::Done { address, request, result };
                self.ready.push_back(qp);
            }
        }
        self.release(at);
        self.next_atomic();
    }

    /// What could not be begun for want of a fetch.
    pub(super) fn go_on(&mut self) {
        self.next_atomic();
    }
}

impl Memory for Dma {
    const IS_FAR: bool = true;

    fn begin(&mut self, qp: Qpn) {
        self.settle();
        self.qp = qp;
    }

    fn expect(&mut self, address: u64, bytes: usize) {
        let mut done = 0;
        while done < bytes && self.fetches.iter().filter(|fetch| fetch.is_of(self.qp)).count() < FETCHES_OF_QP
        {
            let at = address.wrapping_add(done as u64);
            let fetched = match self.find(at) {
                Some(known) => self.fetches[known].bytes - (at - self.fetches[known].address) as usize,
                None => self.fetch_data(at, bytes - done),
            };
            if fetched == 0 {
                return;
            }
            done += fetched;
        }
    }

    fn read(&mut self, address: u64, out: &mut [u8]) -> Result<(), Trouble> {
        if address.checked_add(out.len() as u64).is_none() {
            return Err(Trouble::Fault);
        }
        let mut done = 0;
        let mut waits = false;
        while done < out.len() {
            let at = address + done as u64;
            let Some(known) = self.find(at) else {
                let begun = self.fetch_data(at, out.len() - done);
                if begun == 0 {
                    if !self.starved.contains(&self.qp) {
                        self.starved.push_back(self.qp);
                    }
                    return self.pend();
                }
                waits = true;
                done += begun;
                continue;
            };
            let fetch = &mut self.fetches[known];
            let from = (at - fetch.address) as usize;
            let bytes = (fetch.bytes - from).min(out.len() - done);
            if fetch.is_here() {
                self.has_taken = true;
                fetch.taking = fetch.taking.max(from + bytes);
                if fetch.has_failed {
                    return Err(Trouble::Fault);
                }
                out[done..done + bytes].copy_from_slice(&fetch.data[from..from + bytes]);
            } else {
                waits = true;
            }
            done += bytes;
        }
        if waits { self.pend() } else { Ok(()) }
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), Trouble> {
        address.checked_add(data.len() as u64).ok_or(Trouble::Fault)?;
        self.outbox.write(address, data);
        Ok(())
    }

    fn atomic(&mut self, address: u64, request: &AtomicRequest) -> Result<u64, Trouble> {
        let (qp, place) = (self.qp, self.place(self.qp));
        match self.atomics[place] {
            Atomic::Done { address: at, request: done, result } if (at, &done) == (address, request) => {
                self.atomics[place] = Atomic::None;
                return result;
            }
            // Its place in the queue is there.
            Atomic::Waiting { .. } => {}
            _ => {
                self.atomics[place] = Atomic::Waiting { address, request: *request };
                self.atomic_queue.push_back(Some(qp));
                self.next_atomic();
            }
        }
        self.pend().map(|()| 0)
    }
}
