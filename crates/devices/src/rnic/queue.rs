//! The rings in memory that WQEs are fetched from, and the QPs that they are of.

use std::collections::VecDeque;

use etherslot_rdma::{BLOCK_BYTES, Qpn};

use super::bits::{PAGE_BYTES, page};
use super::dma::FETCH_BYTES;

/// A block of a WQE.
pub(super) type Block = [u8; BLOCK_BYTES];

/// Blocks of a send WQE, and of a receive WQE, at most.
pub(super) const SEND_BLOCKS: usize = 9;
pub(super) const RECEIVE_BLOCKS: usize = 8;

/// A ring of WQEs. Indices are free-running.
#[derive(Debug, Default)]
pub(super) struct Ring {
    address: u64,
    blocks: u32,
    pub(super) producer: u16,
    pub(super) fetched: u16,
    /// Blocks that are on their way.
    under_way: u16,
    /// A WQE of which not all blocks have come.
    part: Vec<Block>,
    /// Something in it was wrong: nothing is fetched any more.
    pub(super) is_broken: bool,
    /// Tells it from earlier ones in its place.
    pub(super) life: u32,
    /// It is in the list of those that have to be fetched from.
    pub(super) is_listed: bool,
}

/// A WQE of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wqe<'a> {
    /// Whole blocks, as many as it says.
    Whole(&'a [Block]),
    /// It says that it has none, too many, or more than were handed over: where the next one is cannot be known.
    Bad(u64),
}

impl Ring {
    /// Empty, at this place.
    pub(super) fn start(&mut self, address: u64, blocks: u32) {
        self.stop();
        self.address = address;
        self.blocks = blocks;
    }

    /// Nothing that is under way counts any more.
    pub(super) fn stop(&mut self) {
        let Self { life, is_listed, .. } = *self;
        let mut part = std::mem::take(&mut self.part);
        part.clear();
        *self = Self { life: life.wrapping_add(1), is_listed, part, ..Self::default() };
    }

    /// Blocks that it has.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// The doorbell; false if there can be no such index.
    pub(super) fn ring(&mut self, producer: u16) -> bool {
        let handed_over = producer.wrapping_sub(self.fetched);
        let was = self.producer.wrapping_sub(self.fetched);
        let fits = u32::from(handed_over) <= self.blocks && handed_over >= was && self.blocks > 0;
        if fits {
            self.producer = producer;
        }
        fits
    }

    /// Blocks that were handed over and are not in the engine yet.
    pub(super) fn waiting(&self) -> usize {
        usize::from(self.producer.wrapping_sub(self.fetched)) + self.part.len()
    }

    /// Whether a WQE has come in part.
    pub(super) fn has_part(&self) -> bool {
        !self.part.is_empty()
    }

    /// Whether WQEs are to come.
    pub(super) fn is_hungry(&self) -> bool {
        self.producer != self.fetched && !self.is_broken
    }

    /// What to fetch next, if the engine has room for so many blocks: address and bytes. `until` is where to stop.
    pub(super) fn next(&self, room: usize, until: u16) -> Option<(u64, usize)> {
        if self.is_broken || self.under_way > 0 {
            return None;
        }
        let place = u32::from(self.fetched) & (self.blocks.max(1) - 1);
        let address = self.address + u64::from(place) * BLOCK_BYTES as u64;
        let in_page = FETCH_BYTES - (address as usize & (FETCH_BYTES - 1));
        let blocks = usize::from(until.wrapping_sub(self.fetched))
            .min(room.saturating_sub(self.part.len()))
            .min((self.blocks - place) as usize)
            .min(in_page / BLOCK_BYTES);
        (blocks > 0).then_some((address, blocks * BLOCK_BYTES))
    }

    /// That is under way now.
    pub(super) fn asked(&mut self, bytes: usize) {
        self.under_way = (bytes / BLOCK_BYTES) as u16;
    }

    /// It has come: hands over each WQE, of at most `most` blocks. Those before `until` were handed over together.
    pub(super) fn take(&mut self, data: &[u8], most: usize, until: u16, mut each: impl FnMut(Wqe<'_>)) {
        self.fetched = self.fetched.wrapping_add(self.under_way);
        self.under_way = 0;
        for block in data.as_chunks::<BLOCK_BYTES>().0 {
            self.part.push(*block);
            let blocks = usize::from(self.part[0][2]);
            if blocks == 0 || blocks > most {
                return self.give_up(each);
            }
            if self.part.len() == blocks {
                each(Wqe::Whole(&self.part));
                self.part.clear();
            }
        }
        if self.has_part() && self.fetched == until {
            self.give_up(each);
        }
    }

    /// The WQE that has come, as far as it has, is none.
    fn give_up(&mut self, mut each: impl FnMut(Wqe<'_>)) {
        let id = u64::from_le_bytes(self.part[0][8..16].try_into().unwrap_or_default());
        self.is_broken = true;
        self.part.clear();
        each(Wqe::Bad(id));
    }
}

/// Bytes of the windows of a QP that are kept: BOTF, and AOTF headers.
const BOTF_BYTES: usize = (page::BOTF_END - page::BOTF) as usize;
const HEADER_BYTES: usize = (PAGE_BYTES - page::HEADERS) as usize;

/// A QP, with its page.
#[derive(Debug)]
pub(super) struct Pair {
    /// Its number, if it is not in RESET.
    pub(super) number: Option<Qpn>,
    pub(super) owner: u16,
    pub(super) sq: Ring,
    pub(super) rq: Ring,
    /// On-the-fly WQEs that wait for those that were handed over before, with the index of the SQ that they are behind.
    pub(super) on_the_fly: VecDeque<Block>,
    pub(super) behind: VecDeque<u16>,
    /// On-the-fly sends that were dropped.
    pub(super) dropped: u16,
    /// Lower halves of the doorbells of 64 bits.
    pub(super) halves: [u32; 2],
    botf: Box<[u8; BOTF_BYTES]>,
    headers: Box<[u8; HEADER_BYTES]>,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self {
            number: None,
            owner: 0,
            sq: Ring::default(),
            rq: Ring::default(),
            on_the_fly: VecDeque::new(),
            behind: VecDeque::new(),
            dropped: 0,
            halves: [0; 2],
            botf: Box::new([0; BOTF_BYTES]),
            headers: Box::new([0; HEADER_BYTES]),
        }
    }

    /// In RESET: queues and window are empty.
    pub(super) fn reset(&mut self) {
        self.number = None;
        self.sq.stop();
        self.rq.stop();
        self.on_the_fly.clear();
        self.behind.clear();
        self.dropped = 0;
        self.halves = [0; 2];
        self.headers.fill(0);
        self.botf.fill(0);
    }

    /// Where fetching from the SQ has to stop: in front of what was sent on the fly.
    pub(super) fn sq_until(&self) -> u16 {
        self.behind.front().copied().unwrap_or(self.sq.producer)
    }

    /// Stores into the BOTF window.
    pub(super) fn store_botf(&mut self, at: usize, data: &[u8]) {
        if let Some(place) = self.botf.get_mut(at..).and_then(|rest| rest.get_mut(..data.len())) {
            place.copy_from_slice(data);
        }
    }

    /// The WQE in the BOTF window.
    pub(super) fn botf(&self, blocks: usize) -> Option<&[u8]> {
        self.botf.get(..blocks * BLOCK_BYTES)
    }

    pub(super) fn header_bytes(&self, at: usize, bytes: usize) -> Option<&[u8]> {
        self.headers.get(at..)?.get(..bytes)
    }

    pub(super) fn store_header(&mut self, at: usize, data: &[u8]) {
        if let Some(place) = self.headers.get_mut(at..).and_then(|rest| rest.get_mut(..data.len())) {
            place.copy_from_slice(data);
        }
    }

    /// The AOTF header of a place.
    pub(super) fn header(&self, place: usize) -> Option<&Block> {
        self.headers.as_chunks::<BLOCK_BYTES>().0.get(place)
    }
}
