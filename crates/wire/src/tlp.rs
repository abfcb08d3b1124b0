//! Transaction Layer Packets, in the PCIe specification's own bytes (PCIe Base 6.0, 2.2, non-flit mode).
//!
//! A TLP here is its header of 3 or 4 DW and its data. A digest (ECRC), prefixes, processing hints and address
//! types other than untranslated are refused; I/O, locked, deferrable and Trusted Requests are unsupported.

mod codec;
mod memory;

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

/// Why bytes are not a TLP that this crate takes. Which one is reported for a TLP that breaks several rules is not
/// part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Shorter or longer than its Length says, or a Length that its type forbids.
    Length,
    /// A prefix (Fmt 100).
    Prefix,
    /// A digest (TD).
    Digest,
    /// Fmt and Type that are reserved, or that Etherslot does not carry (I/O, locked, deferrable, Trusted).
    Unsupported(u8),
    /// Byte enables against 2.2.5.
    ByteEnables,
    /// A Memory Request across a 4 KiB boundary (2.2.7), an `AtomicOp` that is not aligned, or an address below 4 GiB
    /// in a 4-DW header (2.2.4.1).
    Address,
    /// A value that the field must not have: processing hints, an address type, a Traffic Class or attributes of a
    /// Configuration Request, a reserved routing.
    Reserved,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Length => f.write_str("TLP length does not fit its bytes or its type"),
            Self::Prefix => f.write_str("TLP prefixes are not supported"),
            Self::Digest => f.write_str("TLP digests are not supported"),
            Self::Unsupported(kind) => write!(f, "TLP format and type {kind:#04x} is not supported"),
            Self::ByteEnables => f.write_str("byte enables break the rules of 2.2.5"),
            Self::Address => f.write_str("address crosses 4 KiB, is misaligned, or is in the wrong format"),
            Self::Reserved => f.write_str("TLP header field has a value that it must not have"),
        }
    }
}

impl core::error::Error for Error {}

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
}
