//! QP pages: doorbells and the on-the-fly windows (docs/rnic.md, sections 2 and 13).

use etherslot_rdma::{BLOCK_BYTES, CqId, State, flag};

use super::Rnic;
use super::bits::{PAGE_BYTES, page, u32_le, u64_le};
use super::dma::RingId;
use super::queue::{Block, SEND_BLOCKS};

/// ARM and SOLICITED of `CQ_DOORBELL`.
const ARM: u64 = 1 << 16;
const SOLICITED: u64 = 1 << 17;

/// Whether a block is a header of AOTF: a Write or Send of one block with 8 inline bytes.
fn is_header(block: &Block) -> bool {
    block[0] <= 4
        && block[1] & (flag::INLINE | flag::FLAGS) == flag::INLINE
        && block[2] == 1
        && u32_le(block, 4) == 8
}

impl Rnic {
    /// A write of any length in BAR 2.
    pub(super) fn write_page(&mut self, offset: u64, data: &[u8]) {
        let (place, at) = ((offset / PAGE_BYTES) as usize, offset % PAGE_BYTES);
        let end = at + data.len() as u64;
        if place >= self.pairs.len() {
            return;
        }
        if (page::BOTF..page::BOTF_END).contains(&at) && end <= page::BOTF_END {
            return self.pairs[place].store_botf((at - page::BOTF) as usize, data);
        }
        if !matches!(data.len(), 4 | 8) || !at.is_multiple_of(data.len() as u64) {
            return;
        }
        match at {
            page::AOTF..page::AOTF_END if data.len() == 8 => {
                self.store_aotf(place, (at - page::AOTF) as usize / 8, u64_le(data, 0));
            }
            page::HEADERS.. => self.pairs[place].store_header((at - page::HEADERS) as usize, data),
            // Both doorbells at once.
            page::SQ_DOORBELL if data.len() == 8 => {
                self.write_page(offset, &data[..4]);
                self.write_page(offset + 4, &data[4..]);
            }
            _ => self.write_doorbell(place, at, data),
        }
    }

    fn write_doorbell(&mut self, place: usize, at: u64, data: &[u8]) {
        let Some(number) = self.pairs[place].number else { return self.refuse() };
        let low = u32_le(data, 0);
        match at {
            page::SQ_DOORBELL => {
                if matches!(self.engine.state(number), Some(State::Init | State::Rtr)) {
                    return self.refuse();
                }
                if !self.pairs[place].sq.ring(low as u16) {
                    self.refuse();
                    return self.engine.misuse(number);
                }
                self.list(RingId::Send(place as u16));
            }
            page::RQ_DOORBELL => {
                if !self.pairs[place].rq.ring(low as u16) {
                    self.refuse();
                    return self.engine.misuse(number);
                }
                self.list(RingId::Receive(place as u16));
            }
            page::BOTF_KICK => self.kick(place, (low & 0xFF) as usize),
            page::CQ_DOORBELL | page::SRQ_DOORBELL => {
                let which = usize::from(at == page::SRQ_DOORBELL);
                if data.len() == 8 {
                    self.write_long_doorbell(place, which, u64_le(data, 0));
                } else {
                    self.pairs[place].halves[which] = low;
                }
            }
            0x00C | 0x014 => {
                let which = usize::from(at == 0x014);
                let value = u64::from(low) << 32 | u64::from(self.pairs[place].halves[which]);
                self.write_long_doorbell(place, which, value);
            }
            _ => {}
        }
    }

    fn write_long_doorbell(&mut self, place: usize, which: usize, value: u64) {
        let owner = self.pairs[place].owner;
        let queue = value as u16;
        if which == 1 {
            let is_rung =
                self.is_srq_of(queue, owner) && self.srqs[usize::from(queue)].1.ring((value >> 32) as u16);
            return if is_rung { self.list(RingId::Shared(queue)) } else { self.refuse() };
        }
        let is_its =
            self.cqs.get(usize::from(queue)).copied().flatten().is_some_and(|cq| cq.entry.owner == owner);
        if !is_its || !self.engine.consume(CqId(queue), (value >> 32) as u32) {
            return self.refuse();
        }
        if value & (ARM | SOLICITED) != 0 {
            self.engine.arm(CqId(queue), value & SOLICITED != 0);
        }
    }

    /// A doorbell that does not count.
    fn refuse(&mut self) {
        self.engine.counters_mut().doorbells_refused += 1;
    }

    /// A ring has something to be fetched.
    pub(super) fn list(&mut self, ring: RingId) {
        let listed = match ring {
            RingId::Send(place) => &mut self.pairs[usize::from(place)].sq.is_listed,
            RingId::Receive(place) => &mut self.pairs[usize::from(place)].rq.is_listed,
            RingId::Shared(srq) => &mut self.srqs[usize::from(srq)].1.is_listed,
        };
        if !std::mem::replace(listed, true) {
            self.hungry.push_back(ring);
        }
    }

    fn kick(&mut self, place: usize, blocks: usize) {
        let mut wqe = [0; SEND_BLOCKS * BLOCK_BYTES];
        let window = self.pairs[place]
            .botf(blocks)
            .filter(|wqe| (1..=SEND_BLOCKS).contains(&(wqe.len() / BLOCK_BYTES)));
        let Some(window) = window else { return self.drop_on_the_fly(place) };
        let bytes = window.len();
        wqe[..bytes].copy_from_slice(window);
        self.send_on_the_fly(place, &wqe[..bytes]);
    }

    fn store_aotf(&mut self, place: usize, at: usize, value: u64) {
        let header = self.pairs[place].header(at).filter(|block| is_header(block));
        let Some(mut block) = header.copied() else { return self.drop_on_the_fly(place) };
        block[32..40].copy_from_slice(&value.to_le_bytes());
        self.send_on_the_fly(place, &block);
    }

    /// The next of the SQ, behind what the doorbell has handed over.
    fn send_on_the_fly(&mut self, place: usize, wqe: &[u8]) {
        let pair = &self.pairs[place];
        let state = pair.number.and_then(|number| self.engine.state(number));
        let (Some(number), Some(State::Rts | State::Sqd | State::Sqe | State::Error)) = (pair.number, state)
        else {
            return self.drop_on_the_fly(place);
        };
        let blocks = wqe.len() / BLOCK_BYTES;
        let taken = pair.sq.waiting() + pair.on_the_fly.len();
        let is_whole = usize::from(wqe[2]) == blocks;
        if !is_whole || self.engine.sq_room(number) < taken + blocks {
            return self.drop_on_the_fly(place);
        }
        if taken == 0 {
            // It is whole and has room: the engine takes it.
            if self.engine.post_send(number, wqe).is_err() {
                self.drop_on_the_fly(place);
            }
            return;
        }
        let pair = &mut self.pairs[place];
        pair.on_the_fly.extend(wqe.as_chunks().0);
        pair.behind.push_back(pair.sq.producer);
        self.list(RingId::Send(place as u16));
    }

    fn drop_on_the_fly(&mut self, place: usize) {
        let dropped = &mut self.pairs[place].dropped;
        *dropped = dropped.saturating_add(1);
        self.engine.counters_mut().on_the_fly_dropped += 1;
    }

    /// A read of 4 or 8 bytes in BAR 2.
    pub(super) fn read_page(&self, offset: u64, data: &mut [u8]) {
        let (place, at) = ((offset / PAGE_BYTES) as usize, offset % PAGE_BYTES);
        let Some(pair) = self.pairs.get(place) else { return };
        match at {
            page::HEADERS.. => {
                if let Some(from) = pair.header_bytes((at - page::HEADERS) as usize, data.len()) {
                    data.copy_from_slice(from);
                }
            }
            page::QP_STATUS | 0x01C => {
                let status = self.state(place as u32) as u64
                    | u64::from(pair.sq.fetched) << 16
                    | u64::from(pair.rq.fetched) << 32
                    | u64::from(pair.dropped) << 48;
                let from = (at - page::QP_STATUS) as usize;
                if let Some(bytes) = status.to_le_bytes().get(from..from + data.len()) {
                    data.copy_from_slice(bytes);
                }
            }
            _ => {}
        }
    }
}
