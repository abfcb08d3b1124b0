//! A driver of the RNIC core: tables, queues and doorbells as docs/rnic.md says, in sections 2 to 5.

use etherslot_rdma::Cqe;

use crate::rnic::Rnic;

// The three BARs are one address space (rtl/rnic/es_rnic_host.sv).
const PAGES: u32 = 1 << 23;
const TABLES: u32 = 2 << 23;
const CONTROL: u32 = 0x008;
const QP_COMMAND: u32 = 0x064;
const MISS: u32 = 0x080;
const COUNTERS: u32 = 0x100;
const PAGE_BYTES: u32 = 4096;
const RQ_DOORBELL: u32 = 0x004;
const CQ_DOORBELL: u32 = 0x008;
const BOTF_KICK: u32 = 0x020;
const BOTF: u32 = 0x400;
const AOTF: u32 = 0x800;
const HEADERS: u32 = 0xC00;

/// Blocks of a queue of WQEs, and CQEs of a CQ: powers of two.
const BLOCKS_LOG2: u32 = 6;
const CQES_LOG2: u32 = 7;
const BLOCK: usize = 64;
/// Rings of a QP: SQ, RQ, and the CQ of its number.
const RINGS_BYTES: u64 = ((2 * BLOCK as u64) << BLOCKS_LOG2) + ((Cqe::BYTES as u64) << CQES_LOG2);
/// Slots.
const QPS: usize = 16;

/// A region to be registered.
#[derive(Clone, Debug)]
pub struct Region {
    /// The entry of the SMT.
    pub index: u32,
    /// Its key.
    pub key: u8,
    /// Its protection domain.
    pub pd: u16,
    /// What it may be used for.
    pub access: etherslot_rdma::Access,
    /// The TO of its first byte.
    pub base: u64,
    /// Bytes.
    pub length: u64,
    /// Where it is: one range, or pages of 4 KiB, `None` if one is absent.
    pub layout: Result<u64, Vec<Option<u64>>>,
    /// Where its pages are in the PBLMT.
    pub first: u32,
}

/// What a QP is connected with.
#[derive(Clone, Copy, Debug)]
pub struct QpSetting {
    /// Its number: its slot is that modulo 16.
    pub number: u16,
    /// Of its regions.
    pub pd: u16,
    /// The peer, and the QP there.
    pub peer: (u16, u16),
    /// The stream that it sends on.
    pub stream: u16,
    /// What the peer may do: bit 0 write, 1 read.
    pub rights: u8,
    /// Reads under way, of the peer and of its own.
    pub reads: (u8, u8),
    /// Number of the first request message sent, and expected.
    pub first: (u32, u32),
    /// The wait that it asks for when it is not ready, us.
    pub rnr_wait_us: u32,
}

/// The driver's side of the queues; their rings lie behind each other.
#[derive(Debug)]
pub struct Driver {
    rings_at: u64,
    sq: [u16; QPS],
    rq: [u16; QPS],
    cq: [u32; QPS],
}

impl Driver {
    /// A driver whose rings lie from here on, [`Driver::RINGS_BYTES`] for all QPs.
    pub fn new(rnic: &mut Rnic, rings_at: u64) -> Self {
        rnic.store_u32(CONTROL, 1);
        Self { rings_at, sq: [0; QPS], rq: [0; QPS], cq: [0; QPS] }
    }

    /// Bytes that the rings of all QPs take.
    pub const RINGS_BYTES: u64 = RINGS_BYTES * QPS as u64;
    /// Where MISS is.
    pub const MISS_AT: u32 = MISS;

    fn ring(&self, slot: usize, which: u64) -> u64 {
        self.rings_at + slot as u64 * RINGS_BYTES + which * ((BLOCK as u64) << BLOCKS_LOG2)
    }

    /// Registers a region; its STag.
    pub fn register(&self, rnic: &mut Rnic, region: &Region) -> u32 {
        let is_direct = region.layout.is_ok();
        let (place, first_page) = match &region.layout {
            Ok(address) => (*address, 0),
            Err(pages) => {
                for (page, address) in pages.iter().enumerate() {
                    self.set_page(rnic, region.first + page as u32, *address);
                }
                (0, pages.first().copied().flatten().map_or(0, |address| address | 1))
            }
        };
        let head =
            u32::from(region.key) << 24 | u32::from(region.access.0) << 8 | u32::from(is_direct) << 3 | 1;
        let words = [
            u64::from(head) | u64::from(u32::from(region.pd) | 12 << 16) << 32,
            region.base,
            region.length,
            u64::from(region.first),
            place,
            first_page,
        ];
        let at = TABLES + 64 * region.index;
        for (word, &value) in words.iter().enumerate().rev() {
            rnic.store(at + 8 * word as u32, value);
        }
        region.index << 8 | u32::from(region.key)
    }

    /// Writes an entry of the PBLMT.
    pub fn set_page(&self, rnic: &mut Rnic, entry: u32, address: Option<u64>) {
        rnic.store(TABLES + (1 << 20) + 8 * entry, address.map_or(0, |address| address | 1));
    }

    /// The page of this miss is there now: writes MISS.
    pub fn serve_miss(&self, rnic: &mut Rnic, miss: u64) {
        rnic.store(MISS, miss);
    }

    /// Writes the context of a QP, and its CQ's entry.
    pub fn create(&mut self, rnic: &mut Rnic, setting: &QpSetting) {
        let slot = usize::from(setting.number) % QPS;
        (self.sq[slot], self.rq[slot], self.cq[slot]) = (0, 0, 0);
        let cq = TABLES + (2 << 20) + 64 * slot as u32;
        rnic.store(cq, 0);
        rnic.store(cq + 8, self.ring(slot, 2));
        rnic.store(cq, 1 | u64::from(CQES_LOG2) << 8 | (slot as u64) << 16 | 3 << 32);
        let bytes = 32 << CQES_LOG2;
        let ring = self.ring(slot, 2) as usize;
        rnic.memory.bytes[ring..ring + bytes].fill(0);
        let log2 = u64::from(BLOCKS_LOG2);
        let words = [
            u64::from(setting.number) << 16 | u64::from(setting.pd) << 32 | 3 << 48,
            slot as u64 | (slot as u64) << 16 | log2 << 48 | log2 << 56,
            self.ring(slot, 0),
            self.ring(slot, 1),
            u64::from(setting.peer.0)
                | u64::from(setting.peer.1) << 16
                | u64::from(setting.stream) << 32
                | u64::from(setting.reads.0) << 48
                | u64::from(setting.reads.1) << 56,
            u64::from(setting.rights) << 8 | u64::from(setting.rnr_wait_us) << 32,
            u64::from(setting.first.0) | u64::from(setting.first.1) << 32,
            1_000_u64 << 32,
        ];
        let context = TABLES + (3 << 20) + 256 * slot as u32;
        for (word, &value) in words.iter().enumerate() {
            rnic.store(context + 8 * word as u32, value);
        }
    }

    /// Begins to bring a QP to a state: 1 INIT, 2 RTR, 3 RTS; none other may be under way.
    pub fn command(&self, rnic: &mut Rnic, number: u16, state: u32) {
        rnic.store_u32(QP_COMMAND, (u32::from(number) % QPS as u32) | state << 16);
    }

    /// Asks for the command under way: bit 63 is 1 until it is done, bit 62 then says that it was refused.
    pub fn ask_command(&self, rnic: &mut Rnic) {
        rnic.load_later(QP_COMMAND);
    }

    /// Asks for the first 8 bytes of a QPC: the state in bits 3:0.
    pub fn ask_state(&self, rnic: &mut Rnic, number: u16) {
        rnic.load_later(TABLES + (3 << 20) + 256 * (u32::from(number) % QPS as u32));
    }

    /// Asks for a counter, by its offset of section 15.
    pub fn ask_counter(&self, rnic: &mut Rnic, at: u32) {
        debug_assert!(at >= COUNTERS, "counters begin there");
        rnic.load_later(at);
    }

    fn put(rnic: &mut Rnic, ring: u64, index: &mut u16, wqe: &[u8]) {
        for block in wqe.chunks(BLOCK) {
            let at = (ring + u64::from(*index & ((1 << BLOCKS_LOG2) - 1)) * BLOCK as u64) as usize;
            rnic.memory.bytes[at..at + BLOCK].copy_from_slice(block);
            *index = index.wrapping_add(1);
        }
    }

    /// Posts a send WQE and rings the doorbell, if `rings`.
    pub fn post_send(&mut self, rnic: &mut Rnic, number: u16, wqe: &[u8], rings: bool) {
        let slot = usize::from(number) % QPS;
        let ring = self.ring(slot, 0);
        Self::put(rnic, ring, &mut self.sq[slot], wqe);
        if rings {
            rnic.store_u32(PAGES + PAGE_BYTES * slot as u32, u32::from(self.sq[slot]));
        }
    }

    /// Posts a receive WQE and rings the doorbell.
    pub fn post_receive(&mut self, rnic: &mut Rnic, number: u16, wqe: &[u8]) {
        let slot = usize::from(number) % QPS;
        let ring = self.ring(slot, 1);
        Self::put(rnic, ring, &mut self.rq[slot], wqe);
        rnic.store_u32(PAGES + PAGE_BYTES * slot as u32 + RQ_DOORBELL, u32::from(self.rq[slot]));
    }

    /// A WQE by the BOTF window.
    pub fn kick(&self, rnic: &mut Rnic, number: u16, wqe: &[u8]) {
        let page = PAGES + PAGE_BYTES * (u32::from(number) % QPS as u32);
        for (word, bytes) in wqe.as_chunks::<8>().0.iter().enumerate() {
            rnic.store(page + BOTF + 8 * word as u32, u64::from_le_bytes(*bytes));
        }
        rnic.store_u32(page + BOTF_KICK, (wqe.len() / BLOCK) as u32);
    }

    /// Prepares a header of AOTF.
    pub fn prepare(&self, rnic: &mut Rnic, number: u16, place: u32, block: &[u8]) {
        let page = PAGES + PAGE_BYTES * (u32::from(number) % QPS as u32);
        for (word, bytes) in block.as_chunks::<8>().0.iter().enumerate() {
            rnic.store(page + HEADERS + BLOCK as u32 * place + 8 * word as u32, u64::from_le_bytes(*bytes));
        }
    }

    /// Sends by AOTF.
    pub fn store_aotf(&self, rnic: &mut Rnic, number: u16, place: u32, value: u64) {
        rnic.store(PAGES + PAGE_BYTES * (u32::from(number) % QPS as u32) + AOTF + 8 * place, value);
    }

    /// Takes the next completion of the QP's CQ, as it lies in its ring, and asks for an interrupt with the next.
    pub fn poll(&mut self, rnic: &mut Rnic, number: u16) -> Option<[u8; Cqe::BYTES]> {
        let slot = usize::from(number) % QPS;
        let index = self.cq[slot];
        let place = index & ((1 << CQES_LOG2) - 1);
        let at = self.ring(slot, 2) as usize + place as usize * Cqe::BYTES;
        let entry: [u8; Cqe::BYTES] = rnic.memory.bytes[at..at + Cqe::BYTES].try_into().ok()?;
        let phase = index >> CQES_LOG2 & 1 == 0;
        // In the first lap the ring is zeros where nothing was written.
        if Cqe::phase(&entry) != phase || index >> CQES_LOG2 == 0 && entry == [0; Cqe::BYTES] {
            return None;
        }
        self.cq[slot] = index.wrapping_add(1);
        let page = PAGES + PAGE_BYTES * slot as u32;
        rnic.store(page + CQ_DOORBELL, slot as u64 | 1 << 16 | u64::from(self.cq[slot]) << 32);
        Some(entry)
    }
}
