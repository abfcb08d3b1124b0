//! The RNIC as a Function: its BARs, and the order of work of one poll.

use etherslot_pci::function::{BarKind, BarSpec, Bus, Fault, Function, FunctionSpec, MsixSpec, ResetKind};
use etherslot_rdma::{CqId, Event, Notice, PeerId, Qpn, SrqId, State, Wire};

use super::bits::{MSIX_PBA, MSIX_TABLE, PAGE_BYTES, REGISTER_BYTES, bar};
use super::dma::RingId;
use super::queue::{Block, RECEIVE_BLOCKS, SEND_BLOCKS, Wqe};
use super::{EVENTS, Network, Peer, Rnic};
use crate::ids;

/// Segments taken in one poll before the rest has its turn.
const SEGMENTS: usize = 64;

/// The sessions, as the engine names them.
struct Sessions<'a> {
    network: &'a mut dyn Network,
    peers: &'a [Option<Peer>],
}

impl Sessions<'_> {
    fn session(&self, peer: PeerId) -> Option<u16> {
        self.peers.get(usize::from(peer.0)).copied().flatten().map(|peer| peer.session)
    }
}

impl Wire for Sessions<'_> {
    fn room(&mut self, peer: PeerId, stream: u16, want: usize) -> usize {
        self.session(peer).map_or(0, |session| self.network.room(session, stream, want))
    }

    fn datagram_room(&mut self, peer: PeerId, stream: u16, want: usize) -> usize {
        self.session(peer).map_or(0, |session| self.network.datagram_room(session, stream, want))
    }

    fn send(
        &mut self,
        peer: PeerId,
        stream: u16,
        head: &[u8],
        data_len: usize,
        fill: &mut dyn FnMut(&mut [u8]) -> bool,
    ) -> bool {
        match self.session(peer) {
            Some(session) => self.network.send(session, stream, head, data_len, fill),
            None => false,
        }
    }
}

impl Function for Rnic {
    fn spec(&self) -> FunctionSpec {
        let bar = |index, kind, bytes| BarSpec { index, kind, bytes };
        FunctionSpec {
            vendor: ids::VENDOR,
            device: ids::RNIC,
            subsystem_vendor: ids::VENDOR,
            subsystem: ids::RNIC,
            revision: 1,
            // Network controller, other.
            class: [0x02, 0x80, 0x00],
            bars: vec![
                bar(bar::REGISTERS, BarKind::Memory64, REGISTER_BYTES),
                bar(bar::PAGES, BarKind::Memory64, u64::from(self.config.qps) * PAGE_BYTES),
                bar(bar::TABLES, BarKind::Memory64, self.tables.bar_bytes()),
            ],
            msix: Some(MsixSpec {
                vectors: self.config.vectors,
                bar: bar::REGISTERS,
                table_offset: MSIX_TABLE,
                pba_offset: MSIX_PBA,
            }),
            msi_vectors: 0,
            intx: false,
            serial: Some(self.config.serial),
        }
    }

    fn bar_read(&mut self, bar: u8, offset: u64, data: &mut [u8]) {
        data.fill(0);
        if !matches!(data.len(), 4 | 8) || !offset.is_multiple_of(data.len() as u64) {
            return;
        }
        match bar {
            bar::REGISTERS => self.read_register(offset, data),
            bar::PAGES => self.read_page(offset, data),
            _ => self.read_table(offset, data),
        }
    }

    fn bar_write(&mut self, bar: u8, offset: u64, data: &[u8]) {
        if bar == bar::PAGES {
            return self.write_page(offset, data);
        }
        if !matches!(data.len(), 4 | 8) || !offset.is_multiple_of(data.len() as u64) {
            return;
        }
        match bar {
            bar::REGISTERS => self.write_register(offset, data),
            _ => self.write_table(offset, data),
        }
    }

    fn read_completed(&mut self, token: u64, address: u64, bytes: usize, result: Result<&[u8], Fault>) {
        self.dma.completed(token, address, bytes, result);
    }

    fn poll(&mut self, bus: &mut dyn Bus) -> bool {
        self.now_ns = bus.now_ns();
        let is_master = bus.is_master();
        let mut any = self.network.poll(self.now_ns);
        self.look_at_links();
        if is_master {
            any |= self.dma.outbox.drain(bus);
        }
        any |= self.receive(is_master);
        if self.is_enabled {
            if self.engine.deadline_ns().is_some_and(|at_ns| at_ns <= self.now_ns) {
                self.engine.handle_timeout(self.now_ns);
                any = true;
            }
            any |= self.take_fetched();
            any |= self.fetch();
            self.transmit();
            any |= self.complete();
        }
        if is_master {
            any |= self.dma.ask(bus);
            any |= self.dma.outbox.drain(bus);
            // What had to come after those writes.
            any |= self.dma.ask(bus);
        }
        any | self.network.flush(self.now_ns)
    }

    fn deadline_ns(&self) -> Option<u64> {
        [self.engine.deadline_ns(), self.network.deadline_ns()].into_iter().flatten().min()
    }

    fn count(&self, each: &mut dyn FnMut(&'static str, u64)) {
        for named in self.engine.counters().named() {
            each(named.name, named.value);
        }
    }

    fn reset(&mut self, _kind: ResetKind) {
        self.reset_all(true);
    }
}

impl Rnic {
    /// Takes segments of the peers, as long as what they write has room.
    fn receive(&mut self, is_master: bool) -> bool {
        let mut any = false;
        for _ in 0..SEGMENTS {
            let Some((session, segment)) = self.network.front() else { break };
            let peer = self.by_session.get(usize::from(session)).copied().flatten();
            match peer.filter(|_| self.is_enabled) {
                None => self.engine.counters_mut().dropped_foreign += 1,
                Some(peer) => {
                    let number = segment.first_chunk().map_or(0, |first| u16::from_be_bytes(*first));
                    if !is_master || !self.dma.outbox.has_room() || self.is_awaiting_receives(number) {
                        break;
                    }
                    self.engine.receive(self.now_ns, PeerId(peer), segment, &mut self.dma);
                }
            }
            self.network.pop();
            any = true;
        }
        any
    }

    /// Whether a QP has no receive WQE, and the first are on their way: they were posted before this message came.
    fn is_awaiting_receives(&self, number: u16) -> bool {
        let place = usize::from(number) & (self.pairs.len() - 1);
        let pair = &self.pairs[place];
        if pair.number != Some(Qpn(number)) {
            return false;
        }
        let srq = self.engine.srq_of(Qpn(number));
        let (ring, is_empty) = match srq {
            Some(srq) => match self.srqs.get(usize::from(srq.0)) {
                Some((_, ring)) => (ring, self.engine.is_srq_empty(srq)),
                None => return false,
            },
            None => (&pair.rq, self.engine.is_rq_empty(Qpn(number))),
        };
        is_empty && ring.is_hungry()
    }

    /// WQEs that have come go to the engine, and QPs whose data have come go on.
    fn take_fetched(&mut self) -> bool {
        let mut any = false;
        loop {
            let Self { dma, engine, pairs, srqs, .. } = self;
            let mut broken = None;
            let was_one = dma.next_fetched(|id, life, data| {
                let (ring, most, until, number) = match id {
                    RingId::Send(place) => {
                        let pair = &mut pairs[usize::from(place)];
                        let until = pair.sq_until();
                        (&mut pair.sq, SEND_BLOCKS, until, pair.number)
                    }
                    RingId::Receive(place) => {
                        let pair = &mut pairs[usize::from(place)];
                        let until = pair.rq.producer;
                        (&mut pair.rq, RECEIVE_BLOCKS, until, pair.number)
                    }
                    RingId::Shared(srq) => {
                        let ring = &mut srqs[usize::from(srq)].1;
                        let until = ring.producer;
                        (ring, RECEIVE_BLOCKS, until, None)
                    }
                };
                if ring.life != life {
                    return;
                }
                let Some(data) = data else {
                    ring.is_broken = true;
                    broken = Some(id);
                    return;
                };
                ring.take(data, most, until, |wqe| {
                    let poison;
                    let wqe = match wqe {
                        Wqe::Whole(blocks) => blocks.as_flattened(),
                        Wqe::Bad(wr_id) => {
                            poison = self::poison(wr_id);
                            &poison[..]
                        }
                    };
                    // A QP that has gone to another state meanwhile takes none, which is as if they had come before.
                    let _ = match (id, number) {
                        (RingId::Shared(srq), _) => engine.post_srq(SrqId(srq), wqe),
                        (RingId::Send(_), Some(number)) => engine.post_send(number, wqe),
                        (RingId::Receive(_), Some(number)) => engine.post_receive(number, wqe),
                        (_, None) => Ok(()),
                    };
                });
            });
            if let Some(id) = broken {
                self.broken(id);
            }
            if !was_one {
                break;
            }
            any = true;
        }
        while let Some(qp) = self.dma.next_ready() {
            self.engine.resume(qp);
            any = true;
        }
        any
    }

    /// WQEs of a ring could not be read.
    fn broken(&mut self, id: RingId) {
        match id {
            RingId::Send(place) | RingId::Receive(place) => {
                if let Some(number) = self.pairs[usize::from(place)].number {
                    self.engine.misuse(number);
                }
            }
            RingId::Shared(srq) => {
                for number in self.pairs.iter().filter_map(|pair| pair.number) {
                    if self.engine.srq_of(number) == Some(SrqId(srq)) {
                        self.engine.misuse(number);
                    }
                }
            }
        }
    }

    /// Begins to fetch what rings have to be fetched from, as far as the engine has room for it.
    fn fetch(&mut self) -> bool {
        let mut any = false;
        self.dma.go_on();
        for _ in 0..self.hungry.len() {
            let Some(id) = self.hungry.pop_front() else { break };
            let keeps = match id {
                RingId::Send(place) => self.post_on_the_fly(usize::from(place)),
                _ => false,
            };
            let (ring, room, until) = match id {
                RingId::Send(place) => {
                    let pair = &mut self.pairs[usize::from(place)];
                    let room = pair.number.map_or(0, |number| self.engine.sq_room(number));
                    let until = pair.sq_until();
                    (&mut pair.sq, room, until)
                }
                RingId::Receive(place) => {
                    let pair = &mut self.pairs[usize::from(place)];
                    let room = pair.number.map_or(0, |number| self.engine.rq_room(number));
                    let until = pair.rq.producer;
                    (&mut pair.rq, room, until)
                }
                RingId::Shared(srq) => {
                    let ring = &mut self.srqs[usize::from(srq)].1;
                    let until = ring.producer;
                    (ring, self.engine.srq_room(SrqId(srq)), until)
                }
            };
            if let Some((address, bytes)) = ring.next(room, until)
                && self.dma.fetch_ring(id, ring.life, address, bytes)
            {
                ring.asked(bytes);
                any = true;
            }
            if ring.is_hungry() || keeps {
                self.hungry.push_back(id);
            } else {
                ring.is_listed = false;
            }
        }
        any
    }

    /// On-the-fly WQEs whose turn it is go to the engine; whether others wait.
    fn post_on_the_fly(&mut self, place: usize) -> bool {
        let pair = &mut self.pairs[place];
        let Some(number) = pair.number else { return false };
        while let Some(&behind) = pair.behind.front() {
            if pair.sq.is_broken {
                pair.behind.clear();
                pair.on_the_fly.clear();
                break;
            }
            if pair.sq.fetched != behind || pair.sq.has_part() {
                break;
            }
            let count = usize::from(pair.on_the_fly.front().map_or(0, |block: &Block| block[2]));
            if self.engine.sq_room(number) < count {
                break;
            }
            let mut wqe = [[0; 64]; SEND_BLOCKS];
            for (to, from) in wqe.iter_mut().zip(pair.on_the_fly.drain(..count)) {
                *to = from;
            }
            pair.behind.pop_front();
            let _ = self.engine.post_send(number, wqe[..count].as_flattened());
        }
        !pair.behind.is_empty()
    }

    fn transmit(&mut self) {
        if !self.dma.outbox.has_room() {
            return;
        }
        let mut sessions = Sessions { network: &mut *self.network, peers: &self.peers };
        self.engine.transmit(self.now_ns, &mut self.dma, &mut sessions);
        self.dma.end_turns();
    }

    /// Writes CQEs, then the interrupts that tell of them, and events.
    fn complete(&mut self) -> bool {
        let mut any = false;
        while self.dma.outbox.has_room()
            && let Some(id) = self.engine.next_written()
        {
            any = true;
            let Some(cq) = self.cqs.get_mut(usize::from(id.0)).and_then(Option::as_mut) else { continue };
            while let Some((cqe, phase)) = self.engine.take(id) {
                let place = cq.produced & ((1 << cq.entry.log2) - 1);
                let address = cq.entry.address + u64::from(place) * 32;
                let bytes = cqe.emit(phase);
                // PHASE, which tells that the entry is there, is in the first half: that goes last.
                self.dma.outbox.write(address + 16, &bytes[16..]);
                self.dma.outbox.write(address, &bytes[..16]);
                cq.produced = cq.produced.wrapping_add(1);
            }
        }
        while self.dma.outbox.has_room()
            && let Some(Notice(CqId(cq))) = self.engine.next_notice()
        {
            any = true;
            if let Some(cq) = self.cqs.get(usize::from(cq)).copied().flatten() {
                self.dma.outbox.interrupt(cq.entry.vector);
            }
        }
        while self.events.len() < EVENTS
            && let Some(event) = self.engine.next_event()
        {
            any = true;
            match event {
                Event::Miss(entry) => self.miss(entry),
                event => self.events.push_back(event),
            }
        }
        self.tell_events();
        if self.is_calling && self.dma.outbox.has_room() {
            self.is_calling = false;
            self.dma.outbox.interrupt(0);
            any = true;
        }
        any
    }

    /// A page was absent when it was needed.
    fn miss(&mut self, entry: u32) {
        let Some((stag, page)) = self.engine.page_of(entry) else { return };
        let miss = u64::from(stag) << 32 | u64::from(page);
        if !self.misses.contains(&miss) && self.misses.len() < EVENTS {
            self.is_calling |= self.misses.is_empty();
            self.misses.push_back(miss);
        }
    }
}

/// In place of a WQE of which it is not known how long it is: one that fails, whichever queue it is in.
fn poison(wr_id: u64) -> Block {
    let mut block = [0; 64];
    block[0] = 0xFF;
    block[2] = 1;
    block[3] = 0xFF;
    block[8..16].copy_from_slice(&wr_id.to_le_bytes());
    block
}

/// The states of a QP have the numbers of the contract.
const _: () = assert!(State::Reset as u32 == 0 && State::Sqd as u32 == 4 && State::Error as u32 == 6);
