//! Offsets and bits of docs/rnic.md, sections 2 and 3.

/// The BARs.
pub(super) mod bar {
    pub(crate) const REGISTERS: u8 = 0;
    pub(crate) const PAGES: u8 = 2;
    pub(crate) const TABLES: u8 = 4;
}

/// BAR 0.
pub(super) const REGISTER_BYTES: u64 = 0x1_0000;
pub(super) const MSIX_TABLE: u32 = 0x8000;
pub(super) const MSIX_PBA: u32 = 0xC000;

/// RNIC registers.
pub(super) mod register {
    pub(crate) const MAGIC: u64 = 0x000;
    pub(crate) const VERSION: u64 = 0x004;
    pub(crate) const CONTROL: u64 = 0x008;
    pub(crate) const STATUS: u64 = 0x00C;
    pub(crate) const FEATURES: u64 = 0x010;
    pub(crate) const QPS: u64 = 0x020;
    pub(crate) const CQS: u64 = 0x024;
    pub(crate) const SRQS: u64 = 0x028;
    pub(crate) const PEERS: u64 = 0x02C;
    pub(crate) const STAGS: u64 = 0x030;
    pub(crate) const PBLS: u64 = 0x034;
    pub(crate) const LIMITS: u64 = 0x038;
    pub(crate) const LIMITS2: u64 = 0x03C;
    /// SMT, PBL, CMT, QPC, SRQ, PEER.
    pub(crate) const TABLES_AT: u64 = 0x040;
    pub(crate) const SESSIONS: u64 = 0x058;
    pub(crate) const SESSION_AT: u64 = 0x05C;
    pub(crate) const FENCE: u64 = 0x060;
    pub(crate) const QP_COMMAND: u64 = 0x064;
    pub(crate) const EVENTS: u64 = 0x070;
    pub(crate) const EVENT: u64 = 0x078;
    pub(crate) const MISS: u64 = 0x080;
    pub(crate) const COUNTERS: u64 = 0x100;
}

pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"RNIC");
pub(super) const VERSION: u32 = 1;
/// All of them.
pub(super) const FEATURES: u32 = 0x1FFF;

/// CONTROL.
pub(super) mod control {
    pub(crate) const ENABLE: u32 = 1;
    pub(crate) const RESET: u32 = 2;
}

pub(super) const STATUS_READY: u32 = 1;
pub(super) const FENCE_DONE: u32 = u32::MAX;
pub(super) const COMMAND_BUSY: u32 = 1 << 31;
pub(super) const COMMAND_REFUSED: u32 = 1 << 30;

/// QP pages.
pub(super) const PAGE_BYTES: u64 = 4096;

/// A QP page.
pub(super) mod page {
    pub(crate) const SQ_DOORBELL: u64 = 0x000;
    pub(crate) const RQ_DOORBELL: u64 = 0x004;
    pub(crate) const CQ_DOORBELL: u64 = 0x008;
    pub(crate) const SRQ_DOORBELL: u64 = 0x010;
    pub(crate) const QP_STATUS: u64 = 0x018;
    pub(crate) const BOTF_KICK: u64 = 0x020;
    pub(crate) const BOTF: u64 = 0x400;
    pub(crate) const BOTF_END: u64 = 0x640;
    pub(crate) const AOTF: u64 = 0x800;
    pub(crate) const AOTF_END: u64 = 0x880;
    pub(crate) const HEADERS: u64 = 0xC00;
}

/// The little-endian value at `at`; 0 beyond the end.
pub(super) fn u32_le(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn u64_le(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
