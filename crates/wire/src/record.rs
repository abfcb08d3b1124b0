//! Records: what the body of a Data frame is made of.
//!
//! ```text
//!  0  payload length in bytes (16)    4  stream (16)
//!  2  kind (8)                        6  stream sequence (16)
//!  3  flags (8)                       8  payload, padded with zeros to 4 bytes
//! ```
//! A record that is too long for the rest of a frame goes on in the next frame of its stream: the first part has
//! FIRST, the last has LAST, a whole record has both.

use crate::bytes::{put, u16_at};

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 8;
/// The longest payload of a whole record, all parts together: a 4-DW TLP header and 4096 bytes of data.
pub const MAX_PAYLOAD_BYTES: usize = 16 + 4096;
/// The first part of a record.
pub const FIRST: u8 = 1 << 0;
/// The last part of a record.
pub const LAST: u8 = 1 << 1;

/// What a record carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// One TLP ([`crate::tlp`]).
    Tlp = 1,
    /// One control message ([`crate::control`]).
    Control = 2,
    /// One DDP segment ([`crate::ddp`]).
    Ddp = 3,
    /// Memory read ahead ([`crate::ahead`]).
    Ahead = 4,
}

/// One record, or one part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// What it carries.
    pub kind: Kind,
    /// [`FIRST`] and [`LAST`].
    pub flags: u8,
    /// The stream it belongs to; order holds within one stream only.
    pub stream: u16,
    /// Its place in the stream, counted by parts, modulo 2^16.
    pub stream_sequence: u16,
    /// Its bytes.
    pub payload: &'a [u8],
}

/// Why a body is not a row of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// A record is longer than what is left of the body.
    Truncated,
    /// Unknown kind.
    Kind(u8),
    /// Reserved flags.
    Flags(u8),
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => f.write_str("record is longer than its frame"),
            Self::Kind(kind) => write!(f, "record kind {kind} is unknown"),
            Self::Flags(flags) => write!(f, "record flags {flags:#04x} are not allowed"),
        }
    }
}

impl core::error::Error for Error {}

/// Bytes that a record with `payload` bytes takes in a body.
pub const fn size(payload: usize) -> usize {
    HEADER_BYTES + payload.next_multiple_of(4)
}

impl<'a> Record<'a> {
    /// Decodes the record at the start of `body`; returns it and what follows it.
    pub fn parse(body: &'a [u8]) -> Result<(Self, &'a [u8]), Error> {
        let head: &[u8; HEADER_BYTES] = body.first_chunk().ok_or(Error::Truncated)?;
        let length = u16_at(head, 0).unwrap_or(0) as usize;
        let kind = match head[2] {
            1 => Kind::Tlp,
            2 => Kind::Control,
            3 => Kind::Ddp,
            4 => Kind::Ahead,
            other => return Err(Error::Kind(other)),
        };
        if head[3] & !(FIRST | LAST) != 0 {
            return Err(Error::Flags(head[3]));
        }
        let payload = body.get(HEADER_BYTES..HEADER_BYTES + length).ok_or(Error::Truncated)?;
        let rest = body.get(size(length)..).ok_or(Error::Truncated)?;
        let stream = u16_at(head, 4).unwrap_or(0);
        let stream_sequence = u16_at(head, 6).unwrap_or(0);
        Ok((Self { kind, flags: head[3], stream, stream_sequence, payload }, rest))
    }

    /// Writes the record's header, for a payload of `payload_len` bytes that the caller puts behind it.
    pub fn emit_header(
        kind: Kind,
        flags: u8,
        stream: u16,
        stream_sequence: u16,
        payload_len: u16,
        out: &mut [u8],
    ) -> Option<()> {
        put(out, 0, &payload_len.to_be_bytes())?;
        put(out, 2, &[kind as u8, flags & (FIRST | LAST)])?;
        put(out, 4, &stream.to_be_bytes())?;
        put(out, 6, &stream_sequence.to_be_bytes())
    }
}
