//! DDP segments (RFC 5041) with the control field of RDMAP (RFC 5040, 4.1): the payload of a record of kind
//! [`crate::record::Kind::Ddp`].
//!
//! ```text
//!  0  destination QP (16)                      the session's part; the rest is as the RFCs draw it
//!  2  T | L | reserved 4 | DV 2                RFC 5041, 4.1
//!  3  RV 2 | reserved 2 | opcode 4             RFC 5040, 4.1
//!     tagged (T = 1):      4  STag (32)        8  TO (64)                                    16  data
//!     untagged (T = 0):    4  of the ULP (32)  8  QN (32)   12  MSN (32)   16  MO (32)       20  data
//! ```
//! What a message carries in front of its data, or in place of it, is in [`crate::rdmap`].

use crate::bytes::{put, u16_at, u32_at, u64_at};

/// Bytes in front of the data of a tagged segment, the destination QP among them.
pub const TAGGED_BYTES: usize = 16;
/// Bytes in front of the data of an untagged segment, the destination QP among them.
pub const UNTAGGED_BYTES: usize = 20;
/// The version of DDP, and that of RDMAP.
const VERSION: u8 = 1;

/// The untagged queues (RFC 5040, 4.2; RFC 7306, 4; the last is Etherslot's own).
pub mod queue {
    /// Sends and Immediate Data.
    pub const SEND: u32 = 0;
    /// Read Requests and Atomic Requests.
    pub const REQUEST: u32 = 1;
    /// Terminate.
    pub const TERMINATE: u32 = 2;
    /// Atomic Responses.
    pub const ATOMIC_RESPONSE: u32 = 3;
    /// Synchronise and Acknowledge: no buffers, no sequence.
    pub const CONTROL: u32 = 4;
}

/// What a message is (RFC 5040, 4.1; RFC 7306, 4; 12 and up are Etherslot's own).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    /// RDMA Write.
    Write = 0,
    /// RDMA Read Request.
    ReadRequest = 1,
    /// RDMA Read Response.
    ReadResponse = 2,
    /// Send.
    Send = 3,
    /// Send with Invalidate.
    SendInvalidate = 4,
    /// Send with Solicited Event.
    SendSolicited = 5,
    /// Send with Solicited Event and Invalidate.
    SendSolicitedInvalidate = 6,
    /// Terminate.
    Terminate = 7,
    /// Immediate Data.
    Immediate = 8,
    /// Immediate Data with Solicited Event.
    ImmediateSolicited = 9,
    /// Atomic Request.
    AtomicRequest = 10,
    /// Atomic Response.
    AtomicResponse = 11,
    /// Says which request message comes next.
    Synchronise = 12,
    /// Says which request messages have been taken, or why one was not.
    Acknowledge = 13,
    /// Send with 32 bits of immediate data in its header.
    SendImmediate = 14,
    /// The same with Solicited Event.
    SendSolicitedImmediate = 15,
}

impl Opcode {
    const fn new(code: u8) -> Self {
        match code & 15 {
            0 => Self::Write,
            1 => Self::ReadRequest,
            2 => Self::ReadResponse,
            3 => Self::Send,
            4 => Self::SendInvalidate,
            5 => Self::SendSolicited,
            6 => Self::SendSolicitedInvalidate,
            7 => Self::Terminate,
            8 => Self::Immediate,
            9 => Self::ImmediateSolicited,
            10 => Self::AtomicRequest,
            11 => Self::AtomicResponse,
            12 => Self::Synchronise,
            13 => Self::Acknowledge,
            14 => Self::SendImmediate,
            _ => Self::SendSolicitedImmediate,
        }
    }

    /// The queue of the untagged messages of this kind; `None` if it is a tagged one.
    pub const fn queue(self) -> Option<u32> {
        match self {
            Self::Write | Self::ReadResponse => None,
            Self::ReadRequest | Self::AtomicRequest => Some(queue::REQUEST),
            Self::Terminate => Some(queue::TERMINATE),
            Self::AtomicResponse => Some(queue::ATOMIC_RESPONSE),
            Self::Synchronise | Self::Acknowledge => Some(queue::CONTROL),
            _ => Some(queue::SEND),
        }
    }

    /// Whether the receiver's solicited event is asked for.
    pub const fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SendSolicited
                | Self::SendSolicitedInvalidate
                | Self::ImmediateSolicited
                | Self::SendSolicitedImmediate
        )
    }
}

/// Where a segment's data belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a buffer that has a name (RFC 5041, 4.2).
    Tagged {
        /// The buffer's name.
        stag: u32,
        /// Where in it, bytes.
        to: u64,
    },
    /// In the next buffer of a queue (RFC 5041, 4.3).
    Untagged {
        /// The STag to be invalidated, immediate data, or what [`crate::rdmap`] says.
        ulp: u32,
        /// The queue.
        qn: u32,
        /// Which message of the queue, 1 first.
        msn: u32,
        /// Where in the message, bytes.
        mo: u32,
    },
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The QP that the segment is for; 0 is the receiving node itself.
    pub qp: u16,
    /// The last segment of its message.
    pub is_last: bool,
    /// What the message is.
    pub opcode: Opcode,
    /// Where the data belong.
    pub place: Place,
}

/// Why bytes are not a DDP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Shorter than its header.
    Truncated,
    /// Another version of DDP; whether it was a tagged segment.
    DdpVersion(bool),
    /// Another version of RDMAP.
    RdmapVersion,
    /// A queue that there is not.
    Queue,
    /// The opcode goes with another buffer model or queue.
    Opcode,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Truncated => "segment is shorter than its header",
            Self::DdpVersion(_) => "version of DDP is not 1",
            Self::RdmapVersion => "version of RDMAP is not 1",
            Self::Queue => "queue number is not in use",
            Self::Opcode => "opcode does not go with the buffer model or the queue",
        })
    }
}

impl core::error::Error for Error {}

impl Header {
    /// Decodes the header of a segment; returns it and the data behind it. The checks are in the order of the layers:
    /// DDP's version and queue (RFC 5041, 7.1), then RDMAP's version and opcode (RFC 5040, 7.2).
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Self, &[u8]), Error> {
        let qp = u16_at(segment, 0).ok_or(Error::Truncated)?;
        let [ddp, rdmap] = crate::bytes::array(segment, 2).ok_or(Error::Truncated)?;
        let is_tagged = ddp & 0x80 != 0;
        let (place, bytes) = if is_tagged {
            let to = u64_at(segment, 8).ok_or(Error::Truncated)?;
            (Place::Tagged { stag: u32_at(segment, 4).ok_or(Error::Truncated)?, to }, TAGGED_BYTES)
        } else {
            let mo = u32_at(segment, 16).ok_or(Error::Truncated)?;
            let word = |at| u32_at(segment, at).ok_or(Error::Truncated);
            (Place::Untagged { ulp: word(4)?, qn: word(8)?, msn: word(12)?, mo }, UNTAGGED_BYTES)
        };
        if ddp & 3 != VERSION {
            return Err(Error::DdpVersion(is_tagged));
        }
        if matches!(place, Place::Untagged { qn, .. } if qn > queue::CONTROL) {
            return Err(Error::Queue);
        }
        if rdmap >> 6 != VERSION {
            return Err(Error::RdmapVersion);
        }
        let opcode = Opcode::new(rdmap);
        let queue = match place {
            Place::Tagged { .. } => None,
            Place::Untagged { qn, .. } => Some(qn),
        };
        if opcode.queue() != queue {
            return Err(Error::Opcode);
        }
        let header = Self { qp, is_last: ddp & 0x40 != 0, opcode, place };
        Ok((header, segment.get(bytes..).unwrap_or(&[])))
    }

    /// Bytes in front of the data.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a header is never empty")]
    pub const fn len(&self) -> usize {
        match self.place {
            Place::Tagged { .. } => TAGGED_BYTES,
            Place::Untagged { .. } => UNTAGGED_BYTES,
        }
    }

    /// Writes the header and returns its bytes; `None` if there is no room.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        put(out, 0, &self.qp.to_be_bytes())?;
        let tagged = matches!(self.place, Place::Tagged { .. });
        let ddp = VERSION | if tagged { 0x80 } else { 0 } | if self.is_last { 0x40 } else { 0 };
        put(out, 2, &[ddp, VERSION << 6 | self.opcode as u8])?;
        match self.place {
            Place::Tagged { stag, to } => {
                put(out, 4, &stag.to_be_bytes())?;
                put(out, 8, &to.to_be_bytes())?;
            }
            Place::Untagged { ulp, qn, msn, mo } => {
                put(out, 4, &ulp.to_be_bytes())?;
                put(out, 8, &qn.to_be_bytes())?;
                put(out, 12, &msn.to_be_bytes())?;
                put(out, 16, &mo.to_be_bytes())?;
            }
        }
        Some(self.len())
    }
}
