//! What the driver does with the tables: entries that come and go, states of QPs, reset.

use etherslot_rdma::{CqId, PeerId, SrqId, State};

use super::bits::u32_le;
use super::tables::{self, PEER_VALID, Stag, Table, VALID, Where};
use super::{Command, Cq, Link, Peer, Rnic};

/// Bytes of a peer's entry that are put in front of its datagrams.
const GRH: std::ops::Range<usize> = 24..64;

impl Rnic {
    /// A write of 4 or 8 bytes in BAR 4.
    pub(super) fn write_table(&mut self, offset: u64, data: &[u8]) {
        let Some(Where { table, index, at }) = self.tables.find(offset) else { return };
        let before = self.tables.word(table, index);
        if let Some(place) = self.tables.entry_mut(table, index).get_mut(at..at + data.len()) {
            place.copy_from_slice(data);
        }
        match table {
            Table::Pbl => {
                let entry = super::bits::u64_le(self.tables.entry(table, index), 0);
                let _ = self.engine.set_page_entry(index, entry);
            }
            Table::Smt if at == 0 => self.write_stag(index, before),
            Table::Cmt if at == 0 => self.write_cq(index as u16, before),
            Table::Srq if at == 0 => self.write_srq(index as u16, before),
            Table::Srq if at == 4 && self.srqs[index as usize].0.is_some() => {
                let limit = u32_le(self.tables.entry(table, index), 4) >> 16;
                let _ = self.engine.set_srq_limit(SrqId(index as u16), limit);
            }
            Table::Peer if at == 0 => self.write_peer(index as u16, before),
            Table::Peer if at >= GRH.start && self.peers[index as usize].is_some() => {
                self.set_grh(index as u16);
            }
            _ => {}
        }
    }

    /// A read of 4 or 8 bytes in BAR 4.
    pub(super) fn read_table(&mut self, offset: u64, data: &mut [u8]) {
        if let Some((entry, at)) = self.tables.session(offset) {
            let session = entry.checked_sub(1).map(|session| session as u16);
            if let Some(from) = self.network.whereabouts(session).emit().get(at..at + data.len()) {
                data.copy_from_slice(from);
            }
            return;
        }
        let Some(Where { table, index, at }) = self.tables.find(offset) else { return };
        self.refresh(table, index);
        if let Some(from) = self.tables.entry(table, index).get(at..at + data.len()) {
            data.copy_from_slice(from);
        }
    }

    /// Brings what only the RNIC writes of an entry up to date.
    fn refresh(&mut self, table: Table, index: u32) {
        let mut words: [(usize, u32); 3] = [(0, self.tables.word(table, index)); 3];
        match table {
            Table::Smt => {
                let state = self.engine.stag_state(index);
                words[0].1 = tables::stag_word(words[0].1, state);
                words[1] = (52, state.windows);
                words[2] = words[0];
            }
            Table::Cmt => {
                let Some((_, consumed, is_armed, is_overrun)) = self.engine.cq_state(CqId(index as u16))
                else {
                    return;
                };
                let word = words[0].1 & !6 | u32::from(is_armed) << 1 | u32::from(is_overrun) << 2;
                let produced = self.cqs[index as usize].map_or(0, |cq| cq.produced);
                words = [(0, word), (16, produced), (20, consumed)];
            }
            Table::Qpc => {
                words[0].1 = words[0].1 & !15 | self.state(index) as u32;
                words[1] = words[0];
                words[2] = words[0];
            }
            Table::Srq => {
                let ring = &self.srqs[index as usize].1;
                words[1] = (16, u32::from(ring.producer) << 16 | u32::from(ring.fetched));
            }
            Table::Pbl | Table::Peer => return,
        }
        let entry = self.tables.entry_mut(table, index);
        for (at, word) in words {
            if let Some(place) = entry.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
                *place = word.to_le_bytes();
            }
        }
    }

    /// The state of a QP.
    pub(super) fn state(&self, index: u32) -> State {
        let number = self.pairs.get(index as usize).and_then(|pair| pair.number);
        number.and_then(|number| self.engine.state(number)).unwrap_or(State::Reset)
    }

    fn write_stag(&mut self, index: u32, before: u32) {
        let entry = tables::stag(self.tables.entry(Table::Smt, index));
        let has_one = self.engine.stag_state(index) != etherslot_rdma::StagState::default();
        if has_one && self.engine.clear_stag(index).is_err() {
            // There are windows on it: it stays as it was.
            self.tables.set_word(Table::Smt, index, before);
            return;
        }
        let done = match &entry {
            Stag::Nothing => return,
            Stag::Region(region) => self.engine.place_region(index, region).is_ok(),
            Stag::Window(pd) => self.engine.place_window(index, *pd).is_ok(),
            Stag::Wrong => false,
        };
        if !done {
            let word = self.tables.word(Table::Smt, index) & !(VALID | 2);
            self.tables.set_word(Table::Smt, index, word);
        }
    }

    fn write_cq(&mut self, index: u16, before: u32) {
        let word = self.tables.word(Table::Cmt, u32::from(index));
        let place = usize::from(index);
        if self.cqs[place].is_some() {
            if word & VALID == 0 && self.engine.destroy_cq(CqId(index)).is_ok() {
                self.cqs[place] = None;
            } else {
                // QPs have it, or it was made already.
                self.tables.set_word(Table::Cmt, u32::from(index), before);
            }
            return;
        }
        if word & VALID == 0 {
            return;
        }
        let entry = tables::cq(self.tables.entry(Table::Cmt, u32::from(index)))
            .filter(|entry| entry.vector < self.config.vectors)
            .filter(|entry| self.engine.place_cq(CqId(index), 1 << entry.log2).is_ok());
        match entry {
            Some(entry) => self.cqs[place] = Some(Cq { entry, produced: 0 }),
            None => self.tables.set_word(Table::Cmt, u32::from(index), word & !VALID),
        }
    }

    fn write_srq(&mut self, index: u16, before: u32) {
        let word = self.tables.word(Table::Srq, u32::from(index));
        let (owner, ring) = &mut self.srqs[usize::from(index)];
        if owner.is_some() {
            if word & VALID == 0 && self.engine.destroy_srq(SrqId(index)).is_ok() {
                *owner = None;
                self.blocks_left += ring.blocks();
                ring.stop();
            } else {
                self.tables.set_word(Table::Srq, u32::from(index), before);
            }
            return;
        }
        if word & VALID == 0 {
            return;
        }
        let entry = tables::srq(self.tables.entry(Table::Srq, u32::from(index)))
            .filter(|entry| 1 << entry.log2 <= self.blocks_left)
            .filter(|entry| self.engine.place_srq(SrqId(index), entry.pd, 1 << entry.log2).is_ok());
        match entry {
            Some(entry) => {
                *owner = Some(entry.owner);
                ring.start(entry.address, 1 << entry.log2);
                self.blocks_left -= ring.blocks();
                let _ = self.engine.set_srq_limit(SrqId(index), entry.limit);
            }
            None => self.tables.set_word(Table::Srq, u32::from(index), word & !VALID),
        }
    }

    fn write_peer(&mut self, index: u16, before: u32) {
        let word = self.tables.word(Table::Peer, u32::from(index));
        let place = usize::from(index);
        if let Some(peer) = self.peers[place] {
            if word & PEER_VALID == 0 {
                self.peers[place] = None;
                if let Some(by_session) = self.by_session.get_mut(usize::from(peer.session)) {
                    *by_session = None;
                }
                self.engine.lose_peer(PeerId(index));
            } else {
                self.tables.set_word(Table::Peer, u32::from(index), before);
            }
            return;
        }
        if word & PEER_VALID == 0 {
            return;
        }
        let session = word as u16;
        match self.by_session.get_mut(usize::from(session)) {
            Some(by_session @ None) => *by_session = Some(index),
            // There is no such session, or it is another peer's.
            _ => return self.tables.set_word(Table::Peer, u32::from(index), word & !PEER_VALID),
        }
        let link = self.network.link(session);
        self.peers[place] = Some(Peer { session, link });
        if link == Link::Down {
            self.engine.lose_peer(PeerId(index));
        } else {
            self.engine.find_peer(PeerId(index));
        }
        self.set_grh(index);
    }

    fn set_grh(&mut self, index: u16) {
        let entry = self.tables.entry(Table::Peer, u32::from(index));
        if let Some(grh) = entry.get(GRH).and_then(|bytes| bytes.try_into().ok()) {
            let _ = self.engine.set_grh(PeerId(index), grh);
        }
    }

    /// Sessions that came, went, or were replaced.
    pub(super) fn look_at_links(&mut self) {
        for index in 0..self.peers.len() {
            self.look_at_link(index);
        }
    }

    fn look_at_link(&mut self, index: usize) {
        let Some(peer) = self.peers.get_mut(index).and_then(Option::as_mut) else { return };
        let link = self.network.link(peer.session);
        let before = std::mem::replace(&mut peer.link, link);
        if link == before {
            return;
        }
        let was_up = matches!(before, Link::Up(_));
        if was_up || link == Link::Down {
            self.engine.lose_peer(PeerId(index as u16));
        }
        if link != Link::Down {
            self.engine.find_peer(PeerId(index as u16));
        }
    }

    /// A QP is to speak with a peer: one that was lost is looked for anew.
    fn seek(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get(usize::from(id.0)).copied().flatten() else { return };
        self.network.seek(peer.session);
        self.look_at_link(usize::from(id.0));
    }

    /// `QP_COMMAND`.
    pub(super) fn command(&mut self, value: u32) {
        if self.is_command_busy() {
            return;
        }
        let value = value & 0xF_FFFF;
        let index = value & (self.config.qps - 1);
        let state = match value >> 16 {
            0 => Some(State::Reset),
            1 => Some(State::Init),
            2 => Some(State::Rtr),
            3 => Some(State::Rts),
            4 => Some(State::Sqd),
            6 => Some(State::Error),
            _ => None,
        };
        let done = state.is_some_and(|state| self.is_enabled && self.go_to(index, state));
        self.command = Command { value, is_refused: !done, until: done.then(|| self.dma.mark()) };
    }

    pub(super) fn is_command_busy(&self) -> bool {
        self.command.until.is_some_and(|mark| !self.dma.is_past(mark))
    }

    pub(super) fn read_command(&self) -> u32 {
        let busy = if self.is_command_busy() { super::bits::COMMAND_BUSY } else { 0 };
        let refused = if self.command.is_refused { super::bits::COMMAND_REFUSED } else { 0 };
        self.command.value | busy | refused
    }

    fn go_to(&mut self, index: u32, state: State) -> bool {
        let place = index as usize;
        let number = self.pairs[place].number;
        match (state, number) {
            (State::Reset, None) => true,
            (State::Reset, Some(_)) => {
                self.remove_qp(place);
                true
            }
            (State::Init, None) => self.make_qp(index),
            (_, None) => false,
            (State::Rtr, Some(number)) => {
                let Some(context) = self.context(index).filter(|context| context.number == number) else {
                    return false;
                };
                let peer = context.attributes.peer;
                let is_datagram = context.init.service == etherslot_rdma::Service::Ud;
                let known = self.peers.get(usize::from(peer.0)).copied().flatten();
                if known.is_none() && !is_datagram {
                    return false;
                }
                if !is_datagram {
                    self.seek(peer);
                }
                let done = self.engine.modify_qp(number, State::Rtr, Some(&context.attributes)).is_ok();
                let link = self.peers.get(usize::from(peer.0)).copied().flatten().map(|peer| peer.link);
                if done && !is_datagram && link == Some(Link::Down) {
                    self.engine.lose_peer(peer);
                }
                done
            }
            (State::Rts, Some(number)) if self.engine.state(number) == Some(State::Rtr) => {
                // What belongs to sending may have been written since.
                let attributes = self.context(index).map(|context| context.attributes);
                let kept = self.engine.attributes(number);
                let merged = attributes.zip(kept).map(|(new, kept)| etherslot_rdma::Attributes {
                    ord: new.ord,
                    first_sent: new.first_sent,
                    retries: new.retries,
                    rnr_retries: new.rnr_retries,
                    question_us: new.question_us,
                    ..kept
                });
                self.engine.modify_qp(number, State::Rts, merged.as_ref()).is_ok()
            }
            (State::Error, Some(number)) => {
                let done = self.engine.modify_qp(number, State::Error, None).is_ok();
                self.dma.forget(number);
                done
            }
            (_, Some(number)) => self.engine.modify_qp(number, state, None).is_ok(),
        }
    }

    fn context(&self, index: u32) -> Option<tables::Context> {
        tables::context(self.tables.entry(Table::Qpc, index))
    }

    fn make_qp(&mut self, index: u32) -> bool {
        let Some(context) = self.context(index) else { return false };
        let number = context.number;
        let is_its_place = u32::from(number.0) & (self.config.qps - 1) == index;
        let blocks = (context.init.sq_blocks + context.init.rq_blocks) as u32;
        if !is_its_place || blocks > self.blocks_left || self.engine.place_qp(number, &context.init).is_err()
        {
            return false;
        }
        if self.engine.modify_qp(number, State::Init, None).is_err() {
            return false;
        }
        self.blocks_left -= blocks;
        let pair = &mut self.pairs[index as usize];
        pair.reset();
        pair.number = Some(number);
        pair.owner = context.owner;
        pair.sq.start(context.sq, context.init.sq_blocks as u32);
        pair.rq.start(context.rq, context.init.rq_blocks as u32);
        true
    }

    fn remove_qp(&mut self, place: usize) {
        let pair = &mut self.pairs[place];
        if let Some(number) = pair.number {
            self.blocks_left += pair.sq.blocks() + pair.rq.blocks();
            let _ = self.engine.destroy_qp(number);
            self.dma.forget(number);
        }
        pair.reset();
    }

    /// CONTROL.ENABLE.
    pub(super) fn set_enabled(&mut self, is_enabled: bool) {
        if self.is_enabled && !is_enabled {
            for place in 0..self.pairs.len() {
                self.remove_qp(place);
            }
        }
        self.is_enabled = is_enabled;
    }

    /// CONTROL.RESET, or a reset of the Function: as after power-on. Reads under way end yet, unless `are_lost`.
    pub(super) fn reset_all(&mut self, are_lost: bool) {
        self.dma.reset(are_lost);
        self.engine = self.config.engine();
        self.tables.clear();
        for pair in &mut self.pairs {
            pair.reset();
        }
        self.cqs.fill(None);
        for (owner, ring) in &mut self.srqs {
            *owner = None;
            ring.stop();
        }
        self.peers.fill(None);
        self.by_session.fill(None);
        self.blocks_left = self.config.blocks;
        self.is_enabled = false;
        self.fence = None;
        self.command = Command::default();
        self.events.clear();
        self.has_events = false;
        self.misses.clear();
        self.is_calling = false;
    }

    /// The PD of an SRQ does not matter here; who owns it does.
    pub(super) fn is_srq_of(&self, srq: u16, owner: u16) -> bool {
        self.srqs.get(usize::from(srq)).is_some_and(|(its, _)| *its == Some(owner))
    }
}
