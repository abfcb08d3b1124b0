//! Memory Requests: the rules of their byte enables (PCIe Base 6.0, 2.2.5) and of the 4 KiB boundary (2.2.7).

use super::{Error, MAX_DATA_BYTES, MemRequest};
use crate::id::{FunctionId, Tag};

/// The bytes between two boundaries that no Memory Request crosses (2.2.7).
const BOUNDARY: usize = 4096;

impl MemRequest {
    /// The Request for `bytes` (1..=4096) bytes at `address`; `None` if they cross a 4 KiB boundary or are none.
    pub const fn covering(requester: FunctionId, tag: Tag, address: u64, bytes: usize) -> Option<Self> {
        let offset = (address & 0xFFF) as usize;
        if bytes == 0 || bytes > BOUNDARY - offset {
            return None;
        }
        let lead = offset & 3;
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
    ///
    /// For a read these are what its Completions start from: Lower Address is `address + offset`, Byte Count the
    /// number of bytes.
    pub const fn span(&self) -> (usize, usize) {
        let first = self.first_be & 0xF;
        let last = if self.length_dw == 1 { first } else { self.last_be & 0xF };
        let lead = if first == 0 { 0 } else { first.trailing_zeros() as usize };
        let unused = if last == 0 { 3 } else { last.leading_zeros() as usize - 4 };
        // A value that breaks 2.2.5 or has no length, which `parse` never gives, may have nothing left.
        let bytes = self.data_bytes().saturating_sub(lead + unused);
        (lead, if bytes == 0 { 1 } else { bytes })
    }

    /// Whether byte `index` of the data is enabled; behind the data none is.
    pub const fn enabled(&self, index: usize) -> bool {
        let dw = index / 4;
        let be = if dw >= self.length_dw as usize {
            0
        } else if dw == 0 {
            self.first_be
        } else if dw + 1 == self.length_dw as usize {
            self.last_be
        } else {
            0xF
        };
        be >> (index % 4) & 1 != 0
    }

    /// Whether every byte of [`MemRequest::span`] is enabled; never so for a zero-length Request.
    pub const fn is_contiguous(&self) -> bool {
        match self.length_dw {
            0 => false,
            1 => is_run(self.first_be),
            _ => reaches_end(self.first_be) && starts_at_zero(self.last_be),
        }
    }

    /// Whether this is a zero-length Request: one DW of which no byte counts. A read of this kind flushes the writes
    /// before it and its data means nothing; a write changes nothing (2.2.5).
    pub const fn is_zero_length(&self) -> bool {
        self.length_dw == 1 && self.first_be.trailing_zeros() >= 4
    }

    /// Holds the rules that are common to reads and writes.
    pub(super) const fn check(&self) -> Result<(), Error> {
        if self.length_dw == 0 || self.data_bytes() > MAX_DATA_BYTES {
            return Err(Error::Length);
        }
        if self.address & 3 != 0 || self.data_bytes() > BOUNDARY - (self.address & 0xFFF) as usize {
            return Err(Error::Address);
        }
        let (first, last) = (self.first_be, self.last_be);
        let ok = match self.length_dw {
            _ if first > 0xF || last > 0xF => false,
            1 => last == 0,
            // One aligned QW: any bytes, but some of each DW.
            2 if self.address.is_multiple_of(8) => first != 0 && last != 0,
            _ => reaches_end(first) && starts_at_zero(last),
        };
        if ok { Ok(()) } else { Err(Error::ByteEnables) }
    }
}

/// Whether a first DW's enables are one run that ends with the DW.
const fn reaches_end(first_be: u8) -> bool {
    matches!(first_be, 0xF | 0xE | 0xC | 0x8)
}

/// Whether a last DW's enables are one run that starts with the DW.
const fn starts_at_zero(last_be: u8) -> bool {
    matches!(last_be, 0xF | 0x7 | 0x3 | 0x1)
}

/// Whether a single DW's enables are one run.
const fn is_run(be: u8) -> bool {
    matches!(be, 0x1 | 0x2 | 0x4 | 0x8 | 0x3 | 0x6 | 0xC | 0x7 | 0xE | 0xF)
}
