//! The tables of BAR 4: where they are, their bytes, and what an entry says (docs/rnic.md, section 3).

use etherslot_rdma::{Access, Attributes, CqId, Init, Pd, PeerId, Placed, Qpn, Service, SrqId, Whereabouts};

use super::Config;
use super::bits::{u32_le, u64_le};

/// A table, in the order of their registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Smt,
    Pbl,
    Cmt,
    Qpc,
    Srq,
    Peer,
}

/// All of them.
const ALL: [Table; 6] = [Table::Smt, Table::Pbl, Table::Cmt, Table::Qpc, Table::Srq, Table::Peer];

impl Table {
    pub(super) const fn entry_bytes(self) -> usize {
        match self {
            Self::Pbl => 8,
            Self::Qpc => 256,
            _ => 64,
        }
    }
}

/// Where an access is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Where {
    pub(super) table: Table,
    pub(super) index: u32,
    /// In the entry.
    pub(super) at: usize,
}

/// Bit 0 of word 0, of all but QPC and peers.
pub(super) const VALID: u32 = 1;
/// Of a peer.
pub(super) const PEER_VALID: u32 = 1 << 31;
/// Of a QPC, in byte 40.
const QUIET: u32 = 1 << 12;
/// Of an STag.
const WINDOW: u32 = 1 << 1;
const ZERO_BASED: u32 = 1 << 2;
const DIRECT: u32 = 1 << 3;

/// The bytes.
#[derive(Debug)]
pub(super) struct Tables {
    bytes: Vec<u8>,
    /// Of each table: where it begins, and its entries.
    places: [(usize, usize); 6],
    /// Entries of the session table, which is behind the others and is the network's to tell.
    sessions: usize,
}

impl Tables {
    /// For so many sessions.
    pub(super) fn new(config: &Config, sessions: u16) -> Self {
        let entries = [config.stags, config.pages, config.cqs, config.qps, config.srqs, config.peers]
            .map(|count| count as usize);
        let mut end = 0;
        let places = std::array::from_fn(|at| {
            let start = end;
            end += (entries[at] * ALL[at].entry_bytes()).next_multiple_of(4096);
            (start, entries[at])
        });
        // The RNIC itself is the first.
        Self { bytes: vec![0; end], places, sessions: usize::from(sessions) + 1 }
    }

    /// Where the session table begins.
    pub(super) fn sessions_at(&self) -> u32 {
        self.bytes.len() as u32
    }

    /// Which entry of the session table an offset in the BAR is of, and where in it.
    pub(super) fn session(&self, offset: u64) -> Option<(usize, usize)> {
        let within = usize::try_from(offset).ok()?.checked_sub(self.bytes.len())?;
        let entry = within / Whereabouts::BYTES;
        (entry < self.sessions).then_some((entry, within % Whereabouts::BYTES))
    }

    /// Bytes of the BAR.
    pub(super) fn bar_bytes(&self) -> u64 {
        (self.bytes.len() + self.sessions * Whereabouts::BYTES).next_power_of_two() as u64
    }

    /// Where a table begins.
    pub(super) fn place(&self, at: usize) -> u32 {
        self.places.get(at).map_or(0, |&(start, _)| start as u32)
    }

    /// What an offset in the BAR is of.
    pub(super) fn find(&self, offset: u64) -> Option<Where> {
        let offset = usize::try_from(offset).ok()?;
        ALL.into_iter().zip(self.places).find_map(|(table, (start, entries))| {
            let within = offset.checked_sub(start)?;
            let index = within / table.entry_bytes();
            (index < entries).then_some(Where {
                table,
                index: index as u32,
                at: within % table.entry_bytes(),
            })
        })
    }

    pub(super) fn entry(&self, table: Table, index: u32) -> &[u8] {
        let at = self.at(table, index);
        self.bytes.get(at..at + table.entry_bytes()).unwrap_or(&[])
    }

    pub(super) fn entry_mut(&mut self, table: Table, index: u32) -> &mut [u8] {
        let at = self.at(table, index);
        self.bytes.get_mut(at..at + table.entry_bytes()).unwrap_or(&mut [])
    }

    fn at(&self, table: Table, index: u32) -> usize {
        self.places[table as usize].0 + index as usize * table.entry_bytes()
    }

    pub(super) fn word(&self, table: Table, index: u32) -> u32 {
        u32_le(self.entry(table, index), 0)
    }

    pub(super) fn set_word(&mut self, table: Table, index: u32, value: u32) {
        if let Some(word) = self.entry_mut(table, index).first_chunk_mut() {
            *word = value.to_le_bytes();
        }
    }

    /// All entries are zeros.
    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
    }
}

/// What an entry of the SMT asks for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stag {
    Nothing,
    Region(Placed),
    /// A window that is not bound.
    Window(Pd),
    /// Something that a driver may not write: bound windows come of a Bind.
    Wrong,
}

pub(super) fn stag(entry: &[u8]) -> Stag {
    let word = u32_le(entry, 0);
    let pd = Pd(u32_le(entry, 4) as u16);
    match (word & VALID != 0, word & WINDOW != 0) {
        (false, false) => return Stag::Nothing,
        (false, true) => return Stag::Window(pd),
        (true, true) => return Stag::Wrong,
        (true, false) => {}
    }
    let is_direct = word & DIRECT != 0;
    let shift = (u32_le(entry, 4) >> 16) as u8;
    if !is_direct && shift == 0 {
        return Stag::Wrong;
    }
    Stag::Region(Placed {
        pd,
        access: Access((word >> 8 & 0x1F) as u8),
        base: if word & ZERO_BASED != 0 { 0 } else { u64_le(entry, 8) },
        length: u64_le(entry, 16),
        key: (word >> 24) as u8,
        shift: if is_direct { 0 } else { shift },
        at: u64_le(entry, 32),
        first: if is_direct { 0 } else { u32_le(entry, 24) },
    })
}

/// Word 0 of an STag's entry as it is now.
pub(super) fn stag_word(written: u32, state: etherslot_rdma::StagState) -> u32 {
    let kept = written & !(0xFF << 24 | VALID | WINDOW);
    kept | u32::from(state.key) << 24 | u32::from(state.is_valid) | u32::from(state.is_window) << 1
}

/// A ring of a power of two of entries, aligned to 64.
fn ring(address: u64, entries_log2: u32, entry_bytes: u64) -> Option<u64> {
    let bytes = entry_bytes << entries_log2;
    (address.is_multiple_of(64) && address.checked_add(bytes).is_some()).then_some(address)
}

/// What an entry of the CMT says.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cq {
    pub(super) log2: u32,
    pub(super) vector: u16,
    pub(super) owner: u16,
    pub(super) address: u64,
}

pub(super) fn cq(entry: &[u8]) -> Option<Cq> {
    let word = u32_le(entry, 0);
    let log2 = word >> 8 & 0xFF;
    if !(1..=22).contains(&log2) {
        return None;
    }
    let address = ring(u64_le(entry, 8), log2, 32)?;
    Some(Cq { log2, vector: (word >> 16) as u16, owner: u32_le(entry, 4) as u16, address })
}

/// What an entry of the SRQ table says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Srq {
    pub(super) log2: u32,
    pub(super) pd: Pd,
    pub(super) owner: u16,
    pub(super) limit: u32,
    pub(super) address: u64,
}

pub(super) fn srq(entry: &[u8]) -> Option<Srq> {
    let word = u32_le(entry, 0);
    let log2 = word >> 8 & 0xFF;
    if !(4..=15).contains(&log2) {
        return None;
    }
    let address = ring(u64_le(entry, 8), log2, 64)?;
    let second = u32_le(entry, 4);
    Some(Srq { log2, pd: Pd((word >> 16) as u16), owner: second as u16, limit: second >> 16, address })
}

/// What a QP context says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context {
    pub(super) number: Qpn,
    pub(super) init: Init,
    pub(super) owner: u16,
    pub(super) sq: u64,
    pub(super) rq: u64,
    pub(super) attributes: Attributes,
}

pub(super) fn context(entry: &[u8]) -> Option<Context> {
    let word = |at| u32_le(entry, at);
    let half = |at: usize| (word(at & !3) >> (8 * (at & 2))) as u16;
    let first = word(0);
    let service = match first >> 4 & 3 {
        0 => Service::Rc,
        1 => Service::Uc,
        3 => Service::Ud,
        _ => return None,
    };
    let (sq_log2, rq_log2) = (word(12) >> 16 & 0xFF, word(12) >> 24);
    if !(4..=15).contains(&sq_log2) || !(4..=15).contains(&rq_log2) {
        return None;
    }
    let init = Init {
        service,
        pd: Pd(half(4)),
        send_cq: CqId(half(8)),
        receive_cq: CqId(half(10)),
        srq: (first & 1 << 7 != 0).then_some(SrqId(half(12))),
        sq_blocks: 1 << sq_log2,
        rq_blocks: 1 << rq_log2,
        signal_all: first & 1 << 6 != 0,
    };
    let rights = word(40) >> 8 & 0xF;
    let mut access = Access::default();
    for (bit, right) in [(0, Access::REMOTE_WRITE), (1, Access::REMOTE_READ), (2, Access::REMOTE_ATOMIC)] {
        if rights >> bit & 1 != 0 {
            access = access | right;
        }
    }
    let attributes = Attributes {
        peer: PeerId(half(32)),
        remote_qp: Qpn(half(34)),
        stream: half(36),
        access,
        ird: (word(36) >> 16) as u8,
        ord: (word(36) >> 24) as u8,
        rnr_retries: (word(40) & 7) as u8,
        retries: (word(40) >> 3 & 7) as u8,
        rnr_wait_us: word(44),
        first_sent: word(48),
        first_expected: word(52),
        q_key: word(56),
        question_us: word(60),
        is_quiet: word(40) & QUIET != 0,
    };
    Some(Context {
        number: Qpn(half(2)),
        init,
        owner: half(6),
        sq: ring(u64_le(entry, 16), sq_log2, 64)?,
        rq: ring(u64_le(entry, 24), rq_log2, 64)?,
        attributes,
    })
}
