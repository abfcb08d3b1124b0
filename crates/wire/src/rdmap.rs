//! What RDMAP messages carry behind the header of their segment (RFC 5040, 4; RFC 7306, 5 and 6).

use crate::bytes::{array, put, u16_at, u32_at, u64_at};

/// An RDMA Read Request (RFC 5040, 4.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Where the data are to go.
    pub sink_stag: u32,
    /// Where in it.
    pub sink_to: u64,
    /// How many bytes; 0 is allowed.
    pub length: u32,
    /// Where the data are.
    pub source_stag: u32,
    /// Where in it.
    pub source_to: u64,
}

impl ReadRequest {
    /// Its bytes.
    pub const BYTES: usize = 28;

    /// Decodes what has exactly this length.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        Some(Self {
            sink_stag: u32_at(bytes, 0)?,
            sink_to: u64_at(bytes, 4)?,
            length: u32_at(bytes, 12)?,
            source_stag: u32_at(bytes, 16)?,
            source_to: u64_at(bytes, 20)?,
        })
    }

    /// Writes it.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        put(out, 0, &self.sink_stag.to_be_bytes())?;
        put(out, 4, &self.sink_to.to_be_bytes())?;
        put(out, 12, &self.length.to_be_bytes())?;
        put(out, 16, &self.source_stag.to_be_bytes())?;
        put(out, 20, &self.source_to.to_be_bytes())?;
        Some(Self::BYTES)
    }
}

/// What an Atomic Request does (RFC 7306, 5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicCode {
    /// Adds, within the fields that the mask marks off.
    FetchAdd = 0,
    /// Writes, if what is there compares equal.
    CompareSwap = 2,
}

/// An Atomic Request (RFC 7306, 5.2.1). Operands are 64 bits wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicRequest {
    /// What it does.
    pub code: AtomicCode,
    /// Repeated by the response.
    pub identifier: u32,
    /// The buffer.
    pub stag: u32,
    /// Where in it; a multiple of 8.
    pub to: u64,
    /// What is added, or put there.
    pub operand: u64,
    /// The bits of it that count; for [`AtomicCode::FetchAdd`] the highest bit of each field that is added to by itself.
    pub mask: u64,
    /// What it is compared with.
    pub compare: u64,
    /// The bits that are compared.
    pub compare_mask: u64,
}

impl AtomicRequest {
    /// Its bytes.
    pub const BYTES: usize = 52;

    /// Decodes what has exactly this length and a known code; the rest of the word of the code is ignored.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let code = match bytes[3] & 15 {
            0 => AtomicCode::FetchAdd,
            2 => AtomicCode::CompareSwap,
            _ => return None,
        };
        Some(Self {
            code,
            identifier: u32_at(bytes, 4)?,
            stag: u32_at(bytes, 8)?,
            to: u64_at(bytes, 12)?,
            operand: u64_at(bytes, 20)?,
            mask: u64_at(bytes, 28)?,
            compare: u64_at(bytes, 36)?,
            compare_mask: u64_at(bytes, 44)?,
        })
    }

    /// Writes it.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        put(out, 0, &u32::from(self.code as u8).to_be_bytes())?;
        put(out, 4, &self.identifier.to_be_bytes())?;
        put(out, 8, &self.stag.to_be_bytes())?;
        put(out, 12, &self.to.to_be_bytes())?;
        put(out, 20, &self.operand.to_be_bytes())?;
        put(out, 28, &self.mask.to_be_bytes())?;
        put(out, 36, &self.compare.to_be_bytes())?;
        put(out, 44, &self.compare_mask.to_be_bytes())?;
        Some(Self::BYTES)
    }

    /// What is there afterwards, if this was there before (RFC 7306, 5.1).
    pub const fn apply(&self, before: u64) -> u64 {
        match self.code {
            AtomicCode::FetchAdd => {
                // Each set bit of the mask is the top of a field: no carry leaves it.
                let low = (before & !self.mask).wrapping_add(self.operand & !self.mask);
                low ^ ((before ^ self.operand) & self.mask)
            }
            AtomicCode::CompareSwap => {
                if (before ^ self.compare) & self.compare_mask == 0 {
                    (before & !self.mask) | (self.operand & self.mask)
                } else {
                    before
                }
            }
        }
    }
}

/// An Atomic Response (RFC 7306, 5.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicResponse {
    /// That of the request.
    pub identifier: u32,
    /// What was there before.
    pub value: u64,
}

impl AtomicResponse {
    /// Its bytes.
    pub const BYTES: usize = 12;

    /// Decodes what has exactly this length.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        Some(Self { identifier: u32_at(bytes, 0)?, value: u64_at(bytes, 4)? })
    }

    /// Writes it.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        put(out, 0, &self.identifier.to_be_bytes())?;
        put(out, 4, &self.value.to_be_bytes())?;
        Some(Self::BYTES)
    }
}

/// Bytes of Immediate Data (RFC 7306, 6.2). Work Requests give the last four; the first are zeros.
pub const IMMEDIATE_BYTES: usize = 8;

/// Why a stream is terminated (RFC 5040, 4.8): layer, type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause {
    /// 0 RDMA, 1 DDP, 2 LLP.
    pub layer: u8,
    /// Type of error in the layer.
    pub kind: u8,
    /// Code of the type.
    pub code: u8,
}

impl Cause {
    const fn new(layer: u8, kind: u8, code: u8) -> Self {
        Self { layer, kind, code }
    }

    /// Local catastrophic error.
    pub const LOCAL_CATASTROPHIC: Self = Self::new(0, 0, 0);
    /// RDMA, remote protection: invalid STag.
    pub const INVALID_STAG: Self = Self::new(0, 1, 0x00);
    /// RDMA, remote protection: base or bounds violation.
    pub const BOUNDS: Self = Self::new(0, 1, 0x01);
    /// RDMA, remote protection: access rights violation.
    pub const ACCESS: Self = Self::new(0, 1, 0x02);
    /// RDMA, remote protection: the STag is not associated with the stream.
    pub const NOT_ASSOCIATED: Self = Self::new(0, 1, 0x03);
    /// RDMA, remote protection: the Tagged Offset wraps.
    pub const TO_WRAP: Self = Self::new(0, 1, 0x04);
    /// RDMA, remote operation: invalid version.
    pub const RDMAP_VERSION: Self = Self::new(0, 2, 0x05);
    /// RDMA, remote operation: unexpected opcode.
    pub const OPCODE: Self = Self::new(0, 2, 0x06);
    /// RDMA, remote operation: catastrophic error of the stream.
    pub const CATASTROPHIC: Self = Self::new(0, 2, 0x07);
    /// RDMA, remote operation: the STag cannot be invalidated.
    pub const CANNOT_INVALIDATE: Self = Self::new(0, 2, 0x09);
    /// RDMA, remote operation: unspecified.
    pub const UNSPECIFIED: Self = Self::new(0, 2, 0xFF);
    /// DDP, tagged: invalid STag.
    pub const TAGGED_STAG: Self = Self::new(1, 1, 0x00);
    /// DDP, tagged: base or bounds violation.
    pub const TAGGED_BOUNDS: Self = Self::new(1, 1, 0x01);
    /// DDP, tagged: the STag is not associated with the stream.
    pub const TAGGED_NOT_ASSOCIATED: Self = Self::new(1, 1, 0x02);
    /// DDP, tagged: the Tagged Offset wraps.
    pub const TAGGED_WRAP: Self = Self::new(1, 1, 0x03);
    /// DDP, tagged: invalid version.
    pub const TAGGED_VERSION: Self = Self::new(1, 1, 0x04);
    /// DDP, untagged: invalid queue.
    pub const UNTAGGED_QUEUE: Self = Self::new(1, 2, 0x01);
    /// DDP, untagged: no buffer for this MSN.
    pub const UNTAGGED_NO_BUFFER: Self = Self::new(1, 2, 0x02);
    /// DDP, untagged: an MSN out of range.
    pub const UNTAGGED_MSN: Self = Self::new(1, 2, 0x03);
    /// DDP, untagged: invalid MO.
    pub const UNTAGGED_MO: Self = Self::new(1, 2, 0x04);
    /// DDP, untagged: the message is too long for its buffer.
    pub const UNTAGGED_TOO_LONG: Self = Self::new(1, 2, 0x05);
    /// DDP, untagged: invalid version.
    pub const UNTAGGED_VERSION: Self = Self::new(1, 2, 0x06);
}

/// A Terminate message (RFC 5040, 4.8). What it repeats of the wrong segment is bytes for whoever debugs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminate<'a> {
    /// Why.
    pub cause: Cause,
    /// Length of the wrong segment, header and data.
    pub segment_bytes: Option<u16>,
    /// The DDP header of the wrong segment: 14 or 18 bytes.
    pub ddp_header: &'a [u8],
    /// The header of the wrong Read Request: 28 bytes, or none.
    pub rdmap_header: &'a [u8],
}

impl<'a> Terminate<'a> {
    /// Bytes of the longest.
    pub const MAX_BYTES: usize = 4 + 2 + 18 + ReadRequest::BYTES;

    /// Decodes it; `None` if it is shorter than it says. Bytes behind are ignored. The length of the DDP header follows
    /// from its T bit.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let [first, code, control, _] = array(bytes, 0)?;
        let mut rest = bytes.get(4..)?;
        let mut take = |count: usize| {
            let (taken, left) = rest.split_at_checked(count)?;
            rest = left;
            Some(taken)
        };
        let has = |bit: u8| control & bit != 0;
        let segment_bytes = if has(0x80) { Some(u16_at(take(2)?, 0)?) } else { None };
        let ddp_header = if has(0x40) {
            let is_tagged = bytes.get(if has(0x80) { 6 } else { 4 })? & 0x80 != 0;
            take(if is_tagged { 14 } else { 18 })?
        } else {
            &[]
        };
        let rdmap_header = if has(0x20) { take(ReadRequest::BYTES)? } else { &[] };
        let cause = Cause { layer: first >> 4, kind: first & 15, code };
        Some(Self { cause, segment_bytes, ddp_header, rdmap_header })
    }

    /// Writes it and returns its bytes; `None` if a header has another length than it can have, or there is no room.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let is_header = matches!(
            (self.ddp_header.len(), self.ddp_header.first().map(|first| first & 0x80 != 0)),
            (0, None) | (14, Some(true)) | (18, Some(false))
        );
        if !is_header || !matches!(self.rdmap_header.len(), 0 | ReadRequest::BYTES) {
            return None;
        }
        let bit = |is_there: bool, bit: u8| if is_there { bit } else { 0 };
        let control = bit(self.segment_bytes.is_some(), 0x80)
            | bit(!self.ddp_header.is_empty(), 0x40)
            | bit(!self.rdmap_header.is_empty(), 0x20);
        put(out, 0, &[self.cause.layer << 4 | self.cause.kind & 15, self.cause.code, control, 0])?;
        let mut at = 4;
        if let Some(bytes) = self.segment_bytes {
            put(out, at, &bytes.to_be_bytes())?;
            at += 2;
        }
        put(out, at, self.ddp_header)?;
        at += self.ddp_header.len();
        put(out, at, self.rdmap_header)?;
        Some(at + self.rdmap_header.len())
    }
}

/// What an Acknowledge says (Etherslot; docs/rnic.md, "Acknowledgement"). It has no data: the fields are those of an
/// untagged header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All request messages before the MSN have been taken.
    Taken,
    /// The message of the MSN found no receive buffer; try again after so many microseconds.
    NotReady {
        /// How long to wait, us.
        wait_us: u32,
    },
    /// The Synchronise whose serial is in the MSN found no destination QP that receives.
    NoQp {
        /// The QP that the segment was for.
        qp: u16,
    },
}

impl Verdict {
    /// Decodes the field of the ULP and MO of an Acknowledge.
    pub const fn parse(ulp: u32, mo: u32) -> Option<Self> {
        match ulp {
            0 => Some(Self::Taken),
            1 => Some(Self::NotReady { wait_us: mo }),
            2 if mo <= 0xFFFF => Some(Self::NoQp { qp: mo as u16 }),
            _ => None,
        }
    }

    /// The field of the ULP and MO that say it.
    pub const fn fields(self) -> (u32, u32) {
        match self {
            Self::Taken => (0, 0),
            Self::NotReady { wait_us } => (1, wait_us),
            Self::NoQp { qp } => (2, qp as u32),
        }
    }
}

/// What is in front of the data of a datagram (Etherslot; docs/rnic.md, "Datagrams").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Must be that of the destination QP.
    pub q_key: u32,
    /// The QP it is from.
    pub source_qp: u16,
}

impl Datagram {
    /// Its bytes.
    pub const BYTES: usize = 8;

    /// Decodes it; returns it and the data behind it.
    pub fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, data) = bytes.split_first_chunk::<{ Self::BYTES }>()?;
        Some((Self { q_key: u32_at(head, 0)?, source_qp: u16_at(head, 4)? }, data))
    }

    /// Writes it.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        put(out, 0, &self.q_key.to_be_bytes())?;
        put(out, 4, &self.source_qp.to_be_bytes())?;
        put(out, 6, &[0; 2])?;
        Some(Self::BYTES)
    }
}
