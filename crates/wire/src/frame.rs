//! The session frame: a fixed header of [`HEADER_BYTES`], an optional SACK block, a body.
//!
//! ```text
//!  0      version:4 | kind:4          16     packet number (64)
//!  1      flags                       24     ack: next sequence expected (32)
//!  2      body length in bytes (16)   28     tx_ts: sender's clock, ns (32, wraps)
//!  4      destination epoch (32)      32     echo_ts: tx_ts of the frame acknowledged (32)
//!  8      source epoch (32)           36     hold: ns from its arrival to this frame (32)
//! 12      sequence (32)               40     credit: first sequence the receiver will not take (32)
//!                                     44     receiver cap on the sender's window, bytes (32)
//! 48      SACK block, 32 bytes, if flags has SACK: base (32), bitmap of base+0 ..= base+223
//! ```
//! Behind the body comes the check, CRC-32C of all before it, or of header and SACK block alone if flags has `HEADER_CHECK`. The checksums of the links do not do: every switch and
//! router replaces Ethernet's, and UDP's has 16 bits.

use crate::bytes::{array, put, u16_at, u32_at, u64_at};

/// EtherType of Etherslot frames on raw Ethernet (IEEE 802, local experimental 1).
pub const ETHERTYPE: u16 = 0x88B5;
/// The version this crate reads and writes.
pub const VERSION: u8 = 1;
/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 48;
/// Bytes of the SACK block.
pub const SACK_BYTES: usize = 32;
/// Sequences that one SACK block describes.
pub const SACK_BITS: u32 = 224;
/// Bytes at the end of a frame that are kept for what protects it: the check, or the tag of a sealed frame.
pub const TAG_BYTES: usize = 16;
/// Bytes of the check behind the body.
pub const CHECK_BYTES: usize = 4;
/// The smallest frame size (header, SACK, body, tag) that a Port must carry.
pub const MIN_FRAME_BYTES: usize = 576;
/// The largest frame size any Port may offer.
pub const MAX_FRAME_BYTES: usize = 9216;

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Opens a session; body is [`crate::control::Hello`].
    Hello = 1,
    /// Answers a Hello with the responder's own epoch; body is [`crate::control::Hello`].
    HelloAck = 2,
    /// Carries records at `sequence`; also acknowledges.
    Data = 3,
    /// Acknowledges; consumes no sequence.
    Ack = 4,
    /// Ends the session; body is one byte, [`crate::control::CloseReason`].
    Close = 5,
}

/// Flag bits of the second byte.
pub mod flag {
    /// A SACK block follows the header.
    pub const SACK: u8 = 1 << 0;
    /// `ack`, `credit` and `receiver cap` are valid.
    pub const ACK: u8 = 1 << 1;
    /// `echo_ts` and `hold` are valid.
    pub const ECHO: u8 = 1 << 2;
    /// The receiver is asked to acknowledge at once.
    pub const ACK_NOW: u8 = 1 << 3;
    /// This sequence was transmitted before, under another packet number.
    pub const RETRANSMISSION: u8 = 1 << 4;
    /// The body is encrypted, and a tag over the whole frame stands in the place of the check ([`super::Header::parse_sealed`]).
    /// Refused where no keys were agreed on.
    pub const SEALED: u8 = 1 << 5;
    /// A frame that this one acknowledges had been marked for congestion by a switch (ECN).
    pub const CONGESTED: u8 = 1 << 6;
    /// The check covers header and SACK block only. In Data frames, if both sides offered it: memory that carries frames
    /// between processes keeps them intact.
    pub const HEADER_CHECK: u8 = 1 << 7;
}

/// The flags that no option of a header implies.
const SIGNALS: u8 = flag::ACK_NOW | flag::RETRANSMISSION | flag::CONGESTED | flag::HEADER_CHECK;

/// A SACK block: which sequences from `base` on have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sack {
    /// The sequence that bit 0 stands for.
    pub base: u32,
    /// Bit `i` is bit `7 - i % 8` of byte `i / 8`.
    pub bitmap: [u8; 28],
}

impl Sack {
    /// A block from `base` with no sequence marked.
    pub const fn new(base: u32) -> Self {
        Self { base, bitmap: [0; 28] }
    }
    /// Marks `base + index`; an index of [`SACK_BITS`] or more is ignored.
    pub fn mark(&mut self, index: u32) {
        if let Some(byte) = self.bitmap.get_mut(index as usize / 8) {
            *byte |= 0x80 >> (index % 8);
        }
    }
    /// Whether `base + index` is marked.
    pub fn is_marked(&self, index: u32) -> bool {
        self.bitmap.get(index as usize / 8).is_some_and(|byte| byte & 0x80 >> (index % 8) != 0)
    }
}

/// The header of a frame, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the frame is for.
    pub kind: Kind,
    /// [`flag::ACK_NOW`], [`flag::RETRANSMISSION`], [`flag::CONGESTED`] and [`flag::HEADER_CHECK`]; the others follow from the
    /// options below.
    pub flags: u8,
    /// Bytes of body.
    pub body_len: u16,
    /// Epoch of the receiver; 0 in a Hello.
    pub dst_epoch: u32,
    /// Epoch of the sender.
    pub src_epoch: u32,
    /// Data: this frame's place in the order. Otherwise: the sequence of the next new Data frame.
    pub sequence: u32,
    /// Number of this transmission, never used twice in one epoch.
    pub packet_number: u64,
    /// Sender's clock in ns, modulo 2^32.
    pub tx_ts_ns: u32,
    /// Acknowledgement, once the peer's sequences are known.
    pub ack: Option<Ack>,
    /// Timestamp echo.
    pub echo: Option<Echo>,
    /// Selective acknowledgement.
    pub sack: Option<Sack>,
}

/// The acknowledging part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// All sequences before this one have arrived.
    pub next: u32,
    /// The first sequence the receiver will not take.
    pub credit: u32,
    /// The receiver's bound on the sender's window, bytes; `u32::MAX` is none.
    pub receiver_cap_bytes: u32,
}

/// The echo of a timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// `tx_ts_ns` of the frame that is echoed.
    pub ts_ns: u32,
    /// ns between that frame's arrival and this frame's departure.
    pub hold_ns: u32,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Shorter than its header, SACK block or body.
    Truncated,
    /// Version other than [`VERSION`].
    Version(u8),
    /// Unknown kind.
    Kind(u8),
    /// Reserved or refused flags.
    Flags(u8),
    /// The check does not fit the bytes: they were damaged on the way.
    Check,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => f.write_str("frame is shorter than it says"),
            Self::Version(version) => write!(f, "frame version {version} is not {VERSION}"),
            Self::Kind(kind) => write!(f, "frame kind {kind} is unknown"),
            Self::Flags(flags) => write!(f, "frame flags {flags:#04x} are not allowed"),
            Self::Check => f.write_str("frame was damaged on the way"),
        }
    }
}

impl core::error::Error for Error {}

/// Writes the check to the last [`CHECK_BYTES`] of `frame`, over what its flags say; `None` if there is no room for it.
/// To be called for every transmission, since the header of each is another.
pub fn put_check(frame: &mut [u8], crc32c: impl FnOnce(&[u8]) -> u32) -> Option<()> {
    let (before, check) = frame.split_last_chunk_mut::<CHECK_BYTES>()?;
    *check = crc32c(covered(before)?).to_be_bytes();
    Some(())
}

/// What of a frame without its check the check covers.
fn covered(frame: &[u8]) -> Option<&[u8]> {
    let flags = *frame.get(1)?;
    if flags & flag::HEADER_CHECK == 0 {
        return Some(frame);
    }
    frame.get(..HEADER_BYTES + if flags & flag::SACK == 0 { 0 } else { SACK_BYTES })
}

impl Header {
    /// Bytes that header and SACK block take.
    pub const fn len(&self) -> usize {
        HEADER_BYTES + if self.sack.is_some() { SACK_BYTES } else { 0 }
    }

    /// Never: a header has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Decodes a frame into its header and its body. Bytes behind the body (Ethernet padding) are ignored.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Error> {
        Self::parse_as(frame, false)
    }

    /// Decodes a sealed frame into its header, its body, still encrypted, and its tag. Nothing of it may be trusted before
    /// the tag has been verified over all that stands before it. Bytes behind the tag are ignored.
    pub fn parse_sealed(frame: &[u8]) -> Result<(Self, &[u8], &[u8; TAG_BYTES]), Error> {
        let (header, body) = Self::parse_as(frame, true)?;
        let tag = frame.get(header.len() + body.len()..).and_then(<[u8]>::first_chunk);
        Ok((header, body, tag.ok_or(Error::Truncated)?))
    }

    fn parse_as(frame: &[u8], sealed: bool) -> Result<(Self, &[u8]), Error> {
        let head: &[u8; HEADER_BYTES] = frame.first_chunk().ok_or(Error::Truncated)?;
        let (version, kind) = (head[0] >> 4, head[0] & 15);
        if version != VERSION {
            return Err(Error::Version(version));
        }
        let kind = match kind {
            1 => Kind::Hello,
            2 => Kind::HelloAck,
            3 => Kind::Data,
            4 => Kind::Ack,
            5 => Kind::Close,
            other => return Err(Error::Kind(other)),
        };
        let flags = head[1];
        let may_check_header = kind == Kind::Data && !sealed;
        if sealed != (flags & flag::SEALED != 0) || flags & flag::HEADER_CHECK != 0 && !may_check_header {
            return Err(Error::Flags(flags));
        }
        let word = |at| u32_at(head, at).unwrap_or(0);
        let sack = if flags & flag::SACK != 0 {
            let base = u32_at(frame, HEADER_BYTES).ok_or(Error::Truncated)?;
            let bitmap = array(frame, HEADER_BYTES + 4).ok_or(Error::Truncated)?;
            Some(Sack { base, bitmap })
        } else {
            None
        };
        let header = Self {
            kind,
            flags: flags & SIGNALS,
            body_len: u16_at(head, 2).unwrap_or(0),
            dst_epoch: word(4),
            src_epoch: word(8),
            sequence: word(12),
            packet_number: u64_at(head, 16).unwrap_or(0),
            tx_ts_ns: word(28),
            ack: (flags & flag::ACK != 0).then(|| Ack {
                next: word(24),
                credit: word(40),
                receiver_cap_bytes: word(44),
            }),
            echo: (flags & flag::ECHO != 0).then(|| Echo { ts_ns: word(32), hold_ns: word(36) }),
            sack,
        };
        let start = header.len();
        let body = frame.get(start..start + header.body_len as usize).ok_or(Error::Truncated)?;
        Ok((header, body))
    }

    /// Decodes a frame as [`Header::parse`] does, and holds it against its check. `crc32c` computes CRC-32C; it comes
    /// from the caller because the fast ways need instructions that this crate cannot ask for.
    pub fn parse_checked(frame: &[u8], crc32c: impl FnOnce(&[u8]) -> u32) -> Result<(Self, &[u8]), Error> {
        let (header, body) = Self::parse(frame)?;
        let before = frame.get(..header.len() + body.len()).ok_or(Error::Truncated)?;
        let check = u32_at(frame, before.len()).ok_or(Error::Truncated)?;
        let covered = covered(before).ok_or(Error::Truncated)?;
        if crc32c(covered) == check { Ok((header, body)) } else { Err(Error::Check) }
    }

    /// Writes header and SACK block to the start of `out`; returns the bytes written, or `None` if `out` is short.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        let mut flags = self.flags & SIGNALS;
        let ack = self.ack.unwrap_or(Ack { next: 0, credit: 0, receiver_cap_bytes: 0 });
        let echo = self.echo.unwrap_or(Echo { ts_ns: 0, hold_ns: 0 });
        flags |= if self.ack.is_some() { flag::ACK } else { 0 };
        flags |= if self.echo.is_some() { flag::ECHO } else { 0 };
        flags |= if self.sack.is_some() { flag::SACK } else { 0 };
        put(out, 0, &[VERSION << 4 | self.kind as u8, flags])?;
        put(out, 2, &self.body_len.to_be_bytes())?;
        put(out, 4, &self.dst_epoch.to_be_bytes())?;
        put(out, 8, &self.src_epoch.to_be_bytes())?;
        put(out, 12, &self.sequence.to_be_bytes())?;
        put(out, 16, &self.packet_number.to_be_bytes())?;
        put(out, 24, &ack.next.to_be_bytes())?;
        put(out, 28, &self.tx_ts_ns.to_be_bytes())?;
        put(out, 32, &echo.ts_ns.to_be_bytes())?;
        put(out, 36, &echo.hold_ns.to_be_bytes())?;
        put(out, 40, &ack.credit.to_be_bytes())?;
        put(out, 44, &ack.receiver_cap_bytes.to_be_bytes())?;
        if let Some(sack) = &self.sack {
            put(out, HEADER_BYTES, &sack.base.to_be_bytes())?;
            put(out, HEADER_BYTES + 4, &sack.bitmap)?;
        }
        Some(out.len())
    }
}
