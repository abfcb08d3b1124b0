//! Between a TLP's bytes and its [`Header`] (PCIe Base 6.0, 2.2.1 and 2.2.7 to 2.2.9).
//!
//! As the specification demands of a receiver, reserved bits are ignored; they are sent as zero.

use super::{
    AtomicKind, CfgRequest, CfgType, Completion, CplStatus, Error, Header, MAX_HEADER_BYTES, MemRequest, Op,
    Routing,
};
use crate::bytes::put;
use crate::id::{FunctionId, Tag};

const FMT_4DW: u8 = 1 << 5;
const FMT_DATA: u8 = 1 << 6;
const FMT_PREFIX: u8 = 0b100 << 5;

/// Fmt and Type of what this crate takes, with `FMT_4DW` and `FMT_DATA` left out.
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

/// Byte 1.
const T9: u8 = 1 << 7;
const T8: u8 = 1 << 3;
const ATTR2: u8 = 1 << 2;
const TH: u8 = 1 << 0;
/// Byte 2.
const TD: u8 = 1 << 7;
const EP: u8 = 1 << 6;
const AT: u8 = 3 << 2;

/// A header's bytes, a 3-DW one padded with zeros, and what all types share.
struct Raw {
    bytes: [u8; MAX_HEADER_BYTES],
    long: bool,
    length_dw: u16,
}

impl Raw {
    const fn id(&self, at: usize) -> FunctionId {
        FunctionId(u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]))
    }

    /// The Tag whose low 8 bits are byte `at`; bits 9 and 8 are in byte 1 whatever the type.
    const fn tag(&self, at: usize) -> Tag {
        let high = (self.bytes[1] & T9 != 0) as Tag * 0x200 + (self.bytes[1] & T8 != 0) as Tag * 0x100;
        high | self.bytes[at] as Tag
    }

    /// Bytes 8 to 15.
    const fn last_8(&self) -> [u8; 8] {
        let [_, _, _, _, _, _, _, _, last @ ..] = self.bytes;
        last
    }

    const fn attributes(&self) -> u8 {
        self.bytes[1] & ATTR2 | self.bytes[2] >> 4 & 3
    }

    /// The address of a Memory or AtomicOp Request. Bits 1:0 are reserved without processing hints.
    fn address(&self) -> Result<u64, Error> {
        // With hints the byte enables and the Tag of a write mean something else, so they cannot be ignored; a
        // translated or translation Request needs a Root Complex with ATS.
        if self.bytes[1] & TH != 0 || self.bytes[2] & AT != 0 {
            return Err(Error::Reserved);
        }
        let quad = u64::from_be_bytes(self.last_8());
        let address = if self.long { quad } else { quad >> 32 };
        if self.long && address >> 32 == 0 { Err(Error::Address) } else { Ok(address & !3) }
    }

    fn memory(&self) -> Result<MemRequest, Error> {
        let request = MemRequest {
            requester: self.id(4),
            tag: self.tag(6),
            address: self.address()?,
            length_dw: self.length_dw,
            first_be: self.bytes[7] & 15,
            last_be: self.bytes[7] >> 4,
        };
        request.check().map(|()| request)
    }

    fn atomic(&self, kind: AtomicKind) -> Result<Op, Error> {
        let address = self.address()?;
        let operand_dw = match (kind, self.length_dw) {
            (AtomicKind::FetchAdd | AtomicKind::Swap, 1 | 2) => self.length_dw,
            (AtomicKind::CompareSwap, 2 | 4 | 8) => self.length_dw / 2,
            _ => return Err(Error::Length),
        };
        if address % (u64::from(operand_dw) * 4) != 0 {
            return Err(Error::Address);
        }
        let (requester, tag, length_dw) = (self.id(4), self.tag(6), self.length_dw);
        Ok(Op::Atomic { kind, requester, tag, address, length_dw })
    }

    fn cfg(&self, kind: CfgType) -> Result<CfgRequest, Error> {
        if self.length_dw != 1 {
            return Err(Error::Length);
        }
        if self.bytes[7] >> 4 != 0 {
            return Err(Error::ByteEnables);
        }
        // Traffic Class 0, Attr[1:0] and AT 0; Attr[2] and TH are reserved here.
        if self.bytes[1] & 0x70 != 0 || self.bytes[2] & (0x30 | AT) != 0 {
            return Err(Error::Reserved);
        }
        Ok(CfgRequest {
            kind,
            requester: self.id(4),
            tag: self.tag(6),
            target: self.id(8),
            register: u16::from_be_bytes([self.bytes[10] & 0xF, self.bytes[11] & 0xFC]),
            first_be: self.bytes[7] & 15,
        })
    }

    fn completion(&self, length_dw: u16) -> Completion {
        let status = match self.bytes[6] >> 5 {
            0 => CplStatus::Success,
            2 => CplStatus::RetryStatus,
            4 => CplStatus::CompleterAbort,
            // UR, and the reserved values, which count as UR (2.3.2).
            _ => CplStatus::UnsupportedRequest,
        };
        // BCM, bit 4 of byte 6, is set by PCI-X bridges only and ignored (2.2.9).
        let count = u16::from_be_bytes([self.bytes[6] & 15, self.bytes[7]]);
        Completion {
            completer: self.id(4),
            status,
            byte_count: if count == 0 { 4096 } else { count },
            requester: self.id(8),
            tag: self.tag(10),
            lower_address: self.bytes[11] & 0x7F,
            length_dw,
        }
    }

    fn message(&self, length_dw: u16) -> Result<Op, Error> {
        let routing = match self.bytes[0] & 7 {
            0 => Routing::ToRoot,
            1 => Routing::ByAddress,
            2 => Routing::ById,
            3 => Routing::FromRoot,
            4 => Routing::Local,
            5 => Routing::Gathered,
            _ => return Err(Error::Reserved),
        };
        Ok(Op::Message {
            routing,
            requester: self.id(4),
            tag: self.bytes[6],
            code: self.bytes[7],
            fields: self.last_8(),
            length_dw,
        })
    }
}

/// Whether this crate takes TLPs of this Fmt and Type.
fn check_type(fmt_type: u8) -> Result<(), Error> {
    if fmt_type >> 5 == FMT_PREFIX >> 5 {
        return Err(Error::Prefix);
    }
    let (long, data) = (fmt_type & FMT_4DW != 0, fmt_type & FMT_DATA != 0);
    let taken = fmt_type & 0x80 == 0
        && match fmt_type & 0x1F {
            kind::MEMORY => true,
            kind::CFG0 | kind::CFG1 | kind::COMPLETION => !long,
            kind::FETCH_ADD | kind::SWAP | kind::COMPARE_SWAP => data,
            message => long && message & 0x18 == kind::MESSAGE,
        };
    if taken { Ok(()) } else { Err(Error::Unsupported(fmt_type)) }
}

impl Header {
    /// Decodes a TLP, the whole of `tlp`, into its header and its data.
    pub fn parse(tlp: &[u8]) -> Result<(Self, &[u8]), Error> {
        let &[fmt_type, byte1, byte2, byte3] = tlp.first_chunk().ok_or(Error::Length)?;
        check_type(fmt_type)?;
        if byte2 & TD != 0 {
            return Err(Error::Digest);
        }
        let (long, has_data) = (fmt_type & FMT_4DW != 0, fmt_type & FMT_DATA != 0);
        let length_field = u16::from_be_bytes([byte2 & 3, byte3]);
        let length_dw = if length_field == 0 { 1024 } else { length_field };
        let data_dw = if has_data { length_dw } else { 0 };
        let (head, data) = tlp.split_at_checked(if long { 16 } else { 12 }).ok_or(Error::Length)?;
        if data.len() != data_dw as usize * 4 {
            return Err(Error::Length);
        }
        let mut bytes = [0; MAX_HEADER_BYTES];
        put(&mut bytes, 0, head).ok_or(Error::Length)?;
        let raw = Raw { bytes, long, length_dw };
        let mut attributes = raw.attributes();
        let op = match fmt_type & 0x1F {
            kind::MEMORY if has_data => Op::MemWrite(raw.memory()?),
            kind::MEMORY => Op::MemRead(raw.memory()?),
            kind::FETCH_ADD => raw.atomic(AtomicKind::FetchAdd)?,
            kind::SWAP => raw.atomic(AtomicKind::Swap)?,
            kind::COMPARE_SWAP => raw.atomic(AtomicKind::CompareSwap)?,
            kind::COMPLETION => Op::Completion(raw.completion(data_dw)),
            kind @ (kind::CFG0 | kind::CFG1) => {
                attributes = 0;
                let request = raw.cfg(if kind == kind::CFG0 { CfgType::Type0 } else { CfgType::Type1 })?;
                if has_data { Op::CfgWrite(request) } else { Op::CfgRead(request) }
            }
            _ => raw.message(data_dw)?,
        };
        // EP of a TLP without data has no defined meaning (2.7.2.1).
        let poisoned = has_data && byte2 & EP != 0;
        Ok((Self { traffic_class: byte1 >> 4 & 7, attributes, poisoned, op }, data))
    }

    /// Writes the header to the start of `out`; returns its bytes (12 or 16), or `None` if `out` is short. The
    /// data, [`Header::data_bytes`] of it, is the caller's to put behind it.
    ///
    /// What does not fit its field is cut off. Configuration Requests go out with the Traffic Class and attributes
    /// that they must have (2.2.7), and EP only with data.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        let long = if out.len() == 16 { FMT_4DW } else { 0 };
        let data = if self.data_bytes() == 0 { 0 } else { FMT_DATA };
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
            Op::Message { routing, length_dw, .. } => {
                (FMT_4DW | data | kind::MESSAGE | routing as u8, length_dw)
            }
        };
        let (traffic_class, attributes) = match self.op {
            Op::CfgRead(_) | Op::CfgWrite(_) => (0, 0),
            _ => (self.traffic_class & 7, self.attributes),
        };
        let tag = self.tag();
        let [length_high, length_low] = (length_dw & 0x3FF).to_be_bytes();
        let tag_high = if tag & 0x200 == 0 { 0 } else { T9 } | if tag & 0x100 == 0 { 0 } else { T8 };
        let poisoned = if self.poisoned && data != 0 { EP } else { 0 };
        put(
            out,
            0,
            &[
                fmt_type,
                tag_high | traffic_class << 4 | attributes & ATTR2,
                poisoned | (attributes & 3) << 4 | length_high,
                length_low,
            ],
        )?;
        let id_and = |out: &mut [u8], id: FunctionId, byte6: u8, byte7: u8| {
            put(out, 4, &id.0.to_be_bytes())?;
            put(out, 6, &[byte6, byte7])
        };
        let put_address = |out: &mut [u8], address: u64| {
            if out.len() == 16 {
                put(out, 8, &(address & !3).to_be_bytes())
            } else {
                put(out, 8, &(address as u32 & !3).to_be_bytes())
            }
        };
        match self.op {
            Op::MemRead(request) | Op::MemWrite(request) => {
                id_and(out, request.requester, tag as u8, request.last_be << 4 | request.first_be & 15)?;
                put_address(out, request.address)?;
            }
            Op::Atomic { requester, address, .. } => {
                id_and(out, requester, tag as u8, 0)?;
                put_address(out, address)?;
            }
            Op::CfgRead(request) | Op::CfgWrite(request) => {
                id_and(out, request.requester, tag as u8, request.first_be & 15)?;
                put(out, 8, &request.target.0.to_be_bytes())?;
                put(out, 10, &(request.register & 0xFFC).to_be_bytes())?;
            }
            Op::Completion(completion) => {
                let [count_high, count_low] = (completion.byte_count & 0xFFF).to_be_bytes();
                id_and(out, completion.completer, (completion.status as u8) << 5 | count_high, count_low)?;
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
