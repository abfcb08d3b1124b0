//! Transaction Layer Packets, in the PCIe specification's own bytes (PCIe Base 6.0, 2.2, non-flit mode).
//!
//! A TLP here is its header of 3 or 4 DW and its data; the digest (ECRC) and prefixes are refused: the session
//! protects the bytes end to end. I/O, locked and Trusted Requests are refused as unsupported.

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::id::{FunctionId, Tag};

/// The longest header.
pub const MAX_HEADER_BYTES: usize = 16;
/// The most data a TLP holds: 1024 DW.
pub const MAX_DATA_BYTES: usize = 4096;
/// The longest TLP.
pub const MAX_BYTES: usize = MAX_HEADER_BYTES + MAX_DATA_BYTES;

/// Attr bits (2.2.6.3, 2.2.6.4, 2.2.6.5).
pub mod attr {
    /// No Snoop.
    pub const NO_SNOOP: u8 = 1 << 0;
    /// Relaxed Ordering.
    pub const RELAXED: u8 = 1 << 1;
    /// ID-based Ordering.
    pub const ID_BASED: u8 = 1 << 2;
}

/// A TLP's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Traffic Class, 0..=7.
    pub traffic_class: u8,
    /// Attr, bits of [`attr`].
    pub attributes: u8,
    /// EP: the data is poisoned.
    pub poisoned: bool,
    /// What the TLP asks or tells.
    pub op: Op,
}

/// Which Configuration Requests: those that the receiver takes (0), or that a bridge passes on (1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CfgType {
    /// For the Function at the other end of this Link.
    Type0,
    /// To be routed by ID through a bridge.
    Type1,
}

/// AtomicOps (2.2.7, 6.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    /// Fetch and add; operand of 4 or 8 bytes.
    FetchAdd,
    /// Unconditional swap; operand of 4 or 8 bytes.
    Swap,
    /// Compare and swap; two operands of 4, 8 or 16 bytes.
    CompareSwap,
}

/// Completion Status (2.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CplStatus {
    /// SC.
    Success = 0,
    /// UR.
    UnsupportedRequest = 1,
    /// CRS / RRS: retry the Configuration Request.
    RetryStatus = 2,
    /// CA.
    CompleterAbort = 4,
}

/// Message routing, r\[2:0\] (2.2.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Routing {
    /// To the Root Complex.
    ToRoot = 0,
    /// By address.
    ByAddress = 1,
    /// By ID.
    ById = 2,
    /// Broadcast from the Root Complex.
    FromRoot = 3,
    /// Ends at the receiver.
    Local = 4,
    /// Gathered and routed to the Root Complex.
    Gathered = 5,
}

/// Message codes that Etherslot uses (2.2.8).
pub mod code {
    /// `Assert_INTA`; B, C and D follow.
    pub const ASSERT_INTA: u8 = 0x20;
    /// `Deassert_INTA`; B, C and D follow.
    pub const DEASSERT_INTA: u8 = 0x24;
    /// `ERR_COR`.
    pub const ERR_COR: u8 = 0x30;
    /// `ERR_NONFATAL`.
    pub const ERR_NONFATAL: u8 = 0x31;
    /// `ERR_FATAL`.
    pub const ERR_FATAL: u8 = 0x33;
}

/// What a TLP asks or tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// `MRd`: Memory Read Request.
    MemRead(MemRequest),
    /// `MWr`: Memory Write Request, posted. The data is `length_dw` DW, byte-enabled bytes of it count.
    MemWrite(MemRequest),
    /// FetchAdd/Swap/CAS.
    Atomic {
        /// Which operation.
        kind: AtomicKind,
        /// Who asks.
        requester: FunctionId,
        /// The Transaction's Tag.
        tag: Tag,
        /// Target, aligned to the operand.
        address: u64,
        /// DWs of data (all operands).
        length_dw: u16,
    },
    /// `CfgRd0/1`.
    CfgRead(CfgRequest),
    /// `CfgWr0/1`, with one DW of data; not posted.
    CfgWrite(CfgRequest),
    /// `Cpl`, or `CplD` if `length_dw` is not 0.
    Completion(Completion),
    /// `Msg`, or `MsgD` if `length_dw` is not 0.
    Message {
        /// How it is routed.
        routing: Routing,
        /// Who sends it.
        requester: FunctionId,
        /// Tag (meaningless but for vendor messages).
        tag: u8,
        /// Message code ([`code`]).
        code: u8,
        /// Bytes 8..16 of the header.
        fields: [u8; 8],
        /// DWs of data.
        length_dw: u16,
    },
}

/// Fields of a Memory Request (2.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemRequest {
    /// Who asks.
    pub requester: FunctionId,
    /// The Transaction's Tag.
    pub tag: Tag,
    /// Address of the first DW, a multiple of 4.
    pub address: u64,
    /// DWs, 1..=1024.
    pub length_dw: u16,
    /// Byte enables of the first DW, bit 0 = lowest address.
    pub first_be: u8,
    /// Byte enables of the last DW, 0 if there is only one.
    pub last_be: u8,
}

/// Fields of a Configuration Request (2.2.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CfgRequest {
    /// 0 or 1.
    pub kind: CfgType,
    /// Who asks.
    pub requester: FunctionId,
    /// The Transaction's Tag.
    pub tag: Tag,
    /// The Function that is configured.
    pub target: FunctionId,
    /// Byte offset in configuration space, a multiple of 4, below 4096.
    pub register: u16,
    /// Byte enables.
    pub first_be: u8,
}

/// Fields of a Completion (2.2.9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Who answers.
    pub completer: FunctionId,
    /// How it went.
    pub status: CplStatus,
    /// Bytes still to come for this Request, this Completion's included, 1..=4096.
    pub byte_count: u16,
    /// Whose Request.
    pub requester: FunctionId,
    /// Which Request.
    pub tag: Tag,
    /// Low 7 bits of the address of the first byte that counts.
    pub lower_address: u8,
    /// DWs of data; 0 is a Cpl.
    pub length_dw: u16,
}

/// Flow control class of a TLP (2.4, 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Memory writes and Messages.
    Posted,
    /// Requests that end with a Completion.
    NonPosted,
    /// Completions.
    Completion,
}

/// Why bytes are not a TLP that this crate takes. All but `Unsupported` are Malformed TLPs (2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Shorter or longer than its Length says.
    Length,
    /// A prefix (Fmt 100).
    Prefix,
    /// A digest (TD).
    Digest,
    /// A type that is reserved, or one that is refused (I/O, locked): well-formed but not for us.
    Unsupported(u8),
    /// Byte enables against 2.2.5.
    ByteEnables,
    /// A Memory Request across a 4 KiB boundary (2.2.7), or an address that its header format forbids.
    Address,
    /// Reserved field or value.
    Reserved,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length => f.write_str("TLP length does not fit its bytes"),
            Self::Prefix => f.write_str("TLP prefixes are not supported"),
            Self::Digest => f.write_str("TLP digests are not supported"),
            Self::Unsupported(kind) => write!(f, "TLP format and type {kind:#04x} is not supported"),
            Self::ByteEnables => f.write_str("byte enables break the rules of 2.2.5"),
            Self::Address => f.write_str("address crosses 4 KiB, is misaligned, or has the wrong format"),
            Self::Reserved => f.write_str("reserved value in a TLP header"),
        }
    }
}

impl core::error::Error for Error {}

const FMT_4DW: u8 = 1 << 5;
const FMT_DATA: u8 = 1 << 6;
const FMT_PREFIX: u8 = 1 << 7;

mod kind {
    pub(super) const MEMORY: u8 = 0b0_0000;
    pub(super) const CFG0: u8 = 0b0_0100;
    pub(super) const CFG1: u8 = 0b0_0101;
    pub(super) const COMPLETION: u8 = 0b0_1010;
    pub(super) const FETCH_ADD: u8 = 0b0_1100;
    pub(super) const SWAP: u8 = 0b0_1101;
    pub(super) const COMPARE_SWAP: u8 = 0b0_1110;
    pub(super) const MESSAGE: u8 = 0b1_0000;
}

impl MemRequest {
    /// The Request for `bytes` (1..=4096) bytes at `address`; `None` if they cross a 4 KiB boundary or are none.
    pub fn covering(requester: FunctionId, tag: Tag, address: u64, bytes: usize) -> Option<Self> {
        let lead = (address & 3) as usize;
        if bytes == 0 || (address & 0xFFF) as usize + bytes > 4096 {
            return None;
        }
        let length_dw = (lead + bytes).div_ceil(4);
        let tail_be = 0xF >> ((4 - (lead + bytes) % 4) % 4);
        let head_be = (0xF << lead) & 0xF;
        let (first_be, last_be) = if length_dw == 1 { (head_be & tail_be, 0) } else { (head_be, tail_be) };
        Some(Self { requester, tag, address: address & !3, length_dw: length_dw as u16, first_be, last_be })
    }

    /// Bytes of data in the TLP, `4 * length_dw`.
    pub const fn data_bytes(&self) -> usize {
        self.length_dw as usize * 4
    }

    /// Offset into the data of the first enabled byte, and bytes from it to the last enabled one (at least 1, as a
    /// zero-length read counts as one byte: 2.3.1.1).
    pub const fn span(&self) -> (usize, usize) {
        let lead = if self.first_be == 0 { 0 } else { self.first_be.trailing_zeros() as usize };
        let last = if self.length_dw == 1 { self.first_be } else { self.last_be };
        let unused = if last == 0 { 3 } else { last.leading_zeros() as usize - 4 };
        (lead, self.data_bytes() - lead - unused)
    }

    /// Whether byte `index` of the data is enabled.
    pub const fn enabled(&self, index: usize) -> bool {
        let dw = index / 4;
        let be = if dw == 0 {
            self.first_be
        } else if dw + 1 == self.length_dw as usize {
            self.last_be
        } else {
            0xF
        };
        be >> (index % 4) & 1 != 0
    }

    /// Whether every byte of [`MemRequest::span`] is enabled.
    pub const fn is_contiguous(&self) -> bool {
        let (lead, bytes) = self.span();
        let mut index = lead;
        // Only the first and the last DW can have holes.
        while index < lead + bytes {
            if index >= 4 && index / 4 + 1 < self.length_dw as usize {
                index += 4;
                continue;
            }
            if !self.enabled(index) {
                return false;
            }
            index += 1;
        }
        true
    }

    fn check(&self) -> Result<(), Error> {
        if !(1..=1024).contains(&self.length_dw) {
            return Err(Error::Length);
        }
        if self.address & 3 != 0 || (self.address & 0xFFF) as usize + self.data_bytes() > 4096 {
            return Err(Error::Address);
        }
        let (first, last) = (self.first_be, self.last_be);
        if first > 0xF || last > 0xF {
            return Err(Error::ByteEnables);
        }
        let ok = match self.length_dw {
            1 => last == 0,
            2 if self.address & 7 == 0 => first != 0 && last != 0,
            // Contiguous: the first DW enabled to its end, the last from its start (2.2.5).
            _ => matches!(first, 0xF | 0xE | 0xC | 0x8) && matches!(last, 0xF | 0x7 | 0x3 | 0x1),
        };
        if ok { Ok(()) } else { Err(Error::ByteEnables) }
    }
}

impl Header {
    /// A header of Traffic Class 0, with no attribute, not poisoned.
    pub const fn new(op: Op) -> Self {
        Self { traffic_class: 0, attributes: 0, poisoned: false, op }
    }

    /// Flow control class.
    pub const fn class(&self) -> Class {
        match self.op {
            Op::MemWrite(_) | Op::Message { .. } => Class::Posted,
            Op::Completion(_) => Class::Completion,
            Op::MemRead(_) | Op::Atomic { .. } | Op::CfgRead(_) | Op::CfgWrite(_) => Class::NonPosted,
        }
    }

    /// Who sent a Request, or whose Request a Completion answers.
    pub const fn requester(&self) -> FunctionId {
        match self.op {
            Op::MemRead(request) | Op::MemWrite(request) => request.requester,
            Op::CfgRead(request) | Op::CfgWrite(request) => request.requester,
            Op::Atomic { requester, .. } | Op::Message { requester, .. } => requester,
            Op::Completion(completion) => completion.requester,
        }
    }

    /// The Transaction's Tag.
    pub const fn tag(&self) -> Tag {
        match self.op {
            Op::MemRead(request) | Op::MemWrite(request) => request.tag,
            Op::CfgRead(request) | Op::CfgWrite(request) => request.tag,
            Op::Atomic { tag, .. } => tag,
            Op::Message { tag, .. } => tag as Tag,
            Op::Completion(completion) => completion.tag,
        }
    }

    /// Bytes of data that the TLP carries behind its header.
    pub const fn data_bytes(&self) -> usize {
        4 * match self.op {
            Op::MemRead(_) | Op::CfgRead(_) => 0,
            Op::MemWrite(request) => request.length_dw as usize,
            Op::CfgWrite(_) => 1,
            Op::Atomic { length_dw, .. } | Op::Message { length_dw, .. } => length_dw as usize,
            Op::Completion(completion) => completion.length_dw as usize,
        }
    }

    /// Bytes of the header: 12 or 16. Addresses below 4 GiB take the short form (2.2.4.1).
    pub const fn len(&self) -> usize {
        match self.op {
            Op::MemRead(MemRequest { address, .. })
            | Op::MemWrite(MemRequest { address, .. })
            | Op::Atomic { address, .. } => {
                if address >> 32 == 0 {
                    12
                } else {
                    16
                }
            }
            Op::CfgRead(_) | Op::CfgWrite(_) | Op::Completion(_) => 12,
            Op::Message { .. } => 16,
        }
    }

    /// Never: a header has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Decodes a TLP into its header and its data.
    pub fn parse(tlp: &[u8]) -> Result<(Self, &[u8]), Error> {
        let dw0 = u32_at(tlp, 0).ok_or(Error::Length)?.to_be_bytes();
        let fmt_type = dw0[0];
        if fmt_type & FMT_PREFIX != 0 {
            return Err(Error::Prefix);
        }
        if dw0[2] & 0x80 != 0 {
            return Err(Error::Digest);
        }
        let (long, has_data) = (fmt_type & FMT_4DW != 0, fmt_type & FMT_DATA != 0);
        let header_len = if long { 16 } else { 12 };
        let data = tlp.get(header_len..).ok_or(Error::Length)?;
        let length_field = u16::from_be_bytes([dw0[2] & 3, dw0[3]]);
        let length_dw = if length_field == 0 { 1024 } else { length_field };
        if data.len() != if has_data { length_dw as usize * 4 } else { 0 } {
            return Err(Error::Length);
        }
        // LN and TH (with its processing hints) are not used here; AT other than 0 needs an ATS-aware root.
        if dw0[1] & 3 != 0 || dw0[2] & 0x0C != 0 {
            return Err(Error::Reserved);
        }
        let id = FunctionId(u16_at(tlp, 4).ok_or(Error::Length)?);
        let high_tag = Tag::from(dw0[1] >> 7) << 9 | Tag::from(dw0[1] >> 3 & 1) << 8;
        let (byte6, byte7) = (tlp[6], tlp[7]);
        let tag = high_tag | Tag::from(byte6);
        let address = || {
            let address = if long { u64_at(tlp, 8) } else { u32_at(tlp, 8).map(u64::from) }.ok_or(Error::Length)?;
            if address & 3 != 0 || (long && address >> 32 == 0) {
                return Err(Error::Address);
            }
            Ok(address)
        };
        let memory = || {
            let request = MemRequest {
                requester: id,
                tag,
                address: address()?,
                length_dw,
                first_be: byte7 & 15,
                last_be: byte7 >> 4,
            };
            request.check().map(|()| request)
        };
        let cfg = |kind| {
            let field = u16_at(tlp, 10).ok_or(Error::Length)?;
            if length_field != 1 || byte7 >> 4 != 0 || field & 0xF003 != 0 || dw0[1] & 0x74 != 0 {
                return Err(Error::Reserved);
            }
            let target = FunctionId(u16_at(tlp, 8).ok_or(Error::Length)?);
            Ok(CfgRequest { kind, requester: id, tag, target, register: field, first_be: byte7 & 15 })
        };
        let atomic = |kind| {
            let address = address()?;
            let operands = if kind == AtomicKind::CompareSwap { 2 } else { 1 };
            let fits = match kind {
                AtomicKind::CompareSwap => matches!(length_dw, 2 | 4 | 8),
                AtomicKind::FetchAdd | AtomicKind::Swap => matches!(length_dw, 1 | 2),
            };
            if !fits {
                return Err(Error::Length);
            }
            if address % u64::from(length_dw / operands * 4) != 0 {
                return Err(Error::Address);
            }
            Ok(Op::Atomic { kind, requester: id, tag, address, length_dw })
        };
        let op = match (fmt_type & 0x1F, has_data, long) {
            (kind::MEMORY, false, _) => Op::MemRead(memory()?),
            (kind::MEMORY, true, _) => Op::MemWrite(memory()?),
            (kind::CFG0, false, false) => Op::CfgRead(cfg(CfgType::Type0)?),
            (kind::CFG1, false, false) => Op::CfgRead(cfg(CfgType::Type1)?),
            (kind::CFG0, true, false) => Op::CfgWrite(cfg(CfgType::Type0)?),
            (kind::CFG1, true, false) => Op::CfgWrite(cfg(CfgType::Type1)?),
            (kind::FETCH_ADD, true, _) => atomic(AtomicKind::FetchAdd)?,
            (kind::SWAP, true, _) => atomic(AtomicKind::Swap)?,
            (kind::COMPARE_SWAP, true, _) => atomic(AtomicKind::CompareSwap)?,
            (kind::COMPLETION, _, false) => {
                let status = match byte6 >> 5 {
                    0 => CplStatus::Success,
                    1 => CplStatus::UnsupportedRequest,
                    2 => CplStatus::RetryStatus,
                    4 => CplStatus::CompleterAbort,
                    _ => return Err(Error::Reserved),
                };
                let count = u16::from_be_bytes([byte6 & 15, byte7]);
                // BCM (byte6 bit 4) is set by PCI-X bridges only; a Requester here may ignore it (2.2.9).
                Op::Completion(Completion {
                    completer: id,
                    status,
                    byte_count: if count == 0 { 4096 } else { count },
                    requester: FunctionId(u16_at(tlp, 8).ok_or(Error::Length)?),
                    tag: high_tag | Tag::from(tlp[10]),
                    lower_address: tlp[11] & 0x7F,
                    length_dw: if has_data { length_dw } else { 0 },
                })
            }
            (message, _, true) if message & 0x18 == kind::MESSAGE => {
                let routing = match message & 7 {
                    0 => Routing::ToRoot,
                    1 => Routing::ByAddress,
                    2 => Routing::ById,
                    3 => Routing::FromRoot,
                    4 => Routing::Local,
                    5 => Routing::Gathered,
                    _ => return Err(Error::Reserved),
                };
                Op::Message {
                    routing,
                    requester: id,
                    tag: byte6,
                    code: byte7,
                    fields: crate::bytes::array(tlp, 8).ok_or(Error::Length)?,
                    length_dw: if has_data { length_dw } else { 0 },
                }
            }
            _ => return Err(Error::Unsupported(fmt_type)),
        };
        let header = Self {
            traffic_class: dw0[1] >> 4 & 7,
            attributes: dw0[1] & 4 | dw0[2] >> 4 & 3,
            poisoned: dw0[2] & 0x40 != 0,
            op,
        };
        Ok((header, data))
    }

    /// Writes the header to the start of `out`; returns its bytes (12 or 16), or `None` if `out` is short. The
    /// data, [`Header::data_bytes`] of it, is the caller's to put behind it.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        let long = if out.len() == 16 { FMT_4DW } else { 0 };
        let data = if self.data_bytes() != 0 { FMT_DATA } else { 0 };
        let (fmt_type, length_dw) = match self.op {
            Op::MemRead(request) => (long | kind::MEMORY, request.length_dw),
            Op::MemWrite(request) => (long | FMT_DATA | kind::MEMORY, request.length_dw),
            Op::CfgRead(request) | Op::CfgWrite(request) => match request.kind {
                CfgType::Type0 => (data | kind::CFG0, 1),
                CfgType::Type1 => (data | kind::CFG1, 1),
            },
            Op::Atomic { kind, length_dw, .. } => {
                let code = match kind {
                    AtomicKind::FetchAdd => kind::FETCH_ADD,
                    AtomicKind::Swap => kind::SWAP,
                    AtomicKind::CompareSwap => kind::COMPARE_SWAP,
                };
                (long | FMT_DATA | code, length_dw)
            }
            Op::Completion(completion) => (data | kind::COMPLETION, completion.length_dw),
            Op::Message { routing, length_dw, .. } => (FMT_4DW | data | kind::MESSAGE | routing as u8, length_dw),
        };
        let tag = self.tag();
        let length = (length_dw & 0x3FF).to_be_bytes();
        let flags = (tag >> 9 & 1) as u8 * 0x80 | (self.traffic_class & 7) << 4 | (tag >> 8 & 1) as u8 * 8;
        put(out, 0, &[
            fmt_type,
            flags | self.attributes & 4,
            u8::from(self.poisoned) << 6 | (self.attributes & 3) << 4 | length[0],
            length[1],
        ])?;
        let id_and = |out: &mut [u8], id: FunctionId, low: u8, last: u8| {
            put(out, 4, &id.0.to_be_bytes())?;
            put(out, 6, &[low, last])
        };
        let put_address = |out: &mut [u8], address: u64| {
            if out.len() == 16 {
                put(out, 8, &address.to_be_bytes())
            } else {
                put(out, 8, &(address as u32).to_be_bytes())
            }
        };
        match self.op {
            Op::MemRead(request) | Op::MemWrite(request) => {
                id_and(out, request.requester, tag as u8, request.last_be << 4 | request.first_be & 15)?;
                put_address(out, request.address & !3)?;
            }
            Op::Atomic { requester, address, .. } => {
                id_and(out, requester, tag as u8, 0)?;
                put_address(out, address & !3)?;
            }
            Op::CfgRead(request) | Op::CfgWrite(request) => {
                id_and(out, request.requester, tag as u8, request.first_be & 15)?;
                put(out, 8, &request.target.0.to_be_bytes())?;
                put(out, 10, &(request.register & 0xFFC).to_be_bytes())?;
            }
            Op::Completion(completion) => {
                let count = (completion.byte_count & 0xFFF).to_be_bytes();
                id_and(out, completion.completer, (completion.status as u8) << 5 | count[0], count[1])?;
                put(out, 8, &completion.requester.0.to_be_bytes())?;
                put(out, 10, &[tag as u8, completion.lower_address & 0x7F])?;
            }
            Op::Message { requester, code, fields, .. } => {
                id_and(out, requester, tag as u8, code)?;
                put(out, 8, &fields)?;
            }
        }
        Some(out.len())
    }
}
