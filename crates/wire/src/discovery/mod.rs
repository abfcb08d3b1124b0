//! Discovery and assignment: what nodes tell all others, and what they ask of a box that they have no session with.
//!
//! ```text
//!  0      version:4 | kind 8:4         8     life of the sender (64)
//!  1      message                     16     sequence in that life (64)
//!  2      body length in bytes (16)   24     node ID of the sender
//!  4      flags, key: 0 (32)          40     body
//! ```
//! Behind the body comes the check, as in session frames, and room is kept for a tag in its place. Such a frame shares
//! EtherType, UDP port and its first byte's form with session frames; [`is_discovery`] tells them apart.

mod heartbeat;
mod order;

use core::num::NonZeroU16;

use crate::bytes::{array, put, u16_at, u32_at, u64_at};
use crate::frame::{CHECK_BYTES, Error, VERSION};
use crate::id::NodeId;

pub use heartbeat::{Assigned, Device, DeviceState, Heard, Heartbeat, Port, Role, Serial};
pub use order::{Change, Order, Outcome, Progress, Reason, Step};

/// The kind, in the first byte of a frame, that is of no session.
pub const KIND: u8 = 8;
/// Bytes in front of the body.
pub const HEADER_BYTES: usize = 40;
/// Links that one node has at most.
pub const MAX_LINKS: usize = 4;
/// Devices that one node tells of at most.
pub const MAX_DEVICES: usize = 1024;

/// Whether a frame is for this module rather than for a session.
#[inline]
pub fn is_discovery(frame: &[u8]) -> bool {
    frame.first() == Some(&(VERSION << 4 | KIND))
}

/// An assignment group: 1 to [`Group::MAX`]. Who has none is in no group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(NonZeroU16);

impl Group {
    /// The highest group.
    pub const MAX: u16 = 4000;

    /// The group of this number, if there is one.
    pub const fn new(number: u16) -> Option<Self> {
        match NonZeroU16::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// Its number.
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// What stands on the wire for a group or none: 0 is none. `None` for a number that is no group.
    #[expect(clippy::option_option, reason = "refused, none, or one")]
    pub(crate) fn parse(bytes: &[u8], at: usize) -> Option<Option<Self>> {
        match u16_at(bytes, at)? {
            0 => Some(None),
            number => Self::new(number).map(Some),
        }
    }

    pub(crate) fn emit(group: Option<Self>) -> [u8; 2] {
        group.map_or(0, Self::get).to_be_bytes()
    }
}

impl core::fmt::Display for Group {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.fmt(f)
    }
}

/// What the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Message {
    /// [`Heartbeat`]: I am here, and these are my devices.
    Heartbeat = 1,
    /// [`Order`], to a box: let a device change hands.
    Order = 2,
    /// [`Outcome`], of a box: how far an order is.
    Outcome = 3,
    /// A [`Port`], the address at which it was heard, and a whole frame with a heartbeat: of a rendezvous.
    Relayed = 4,
}

/// The header, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the body is.
    pub message: Message,
    /// Larger in each life of the sender.
    pub life: u64,
    /// One more for each frame of a life, 0 first.
    pub sequence: u64,
    /// The sender.
    pub node: NodeId,
}

impl Header {
    /// Decodes a frame into its header and its body, and holds it against its check. Bytes behind are ignored.
    pub fn parse_checked(frame: &[u8], crc32c: impl FnOnce(&[u8]) -> u32) -> Result<(Self, &[u8]), Error> {
        let head: &[u8; HEADER_BYTES] = frame.first_chunk().ok_or(Error::Truncated)?;
        if head[0] >> 4 != VERSION {
            return Err(Error::Version(head[0] >> 4));
        }
        if head[0] & 15 != KIND {
            return Err(Error::Kind(head[0] & 15));
        }
        let message = match head[1] {
            1 => Message::Heartbeat,
            2 => Message::Order,
            3 => Message::Outcome,
            4 => Message::Relayed,
            other => return Err(Error::Kind(other)),
        };
        if head[4] != 0 {
            return Err(Error::Flags(head[4]));
        }
        let length = HEADER_BYTES + u16_at(head, 2).unwrap_or(0) as usize;
        let before = frame.get(..length).ok_or(Error::Truncated)?;
        let check = u32_at(frame, length).ok_or(Error::Truncated)?;
        if crc32c(before) != check {
            return Err(Error::Check);
        }
        let header = Self {
            message,
            life: u64_at(head, 8).unwrap_or(0),
            sequence: u64_at(head, 16).unwrap_or(0),
            node: NodeId(array(head, 24).unwrap_or_default()),
        };
        Ok((header, &before[HEADER_BYTES..]))
    }

    /// Writes header and check around the `body` bytes that stand at [`HEADER_BYTES`] of `frame`; returns the bytes of the
    /// frame, or `None` if it is short.
    pub fn emit(&self, frame: &mut [u8], body: usize, crc32c: impl FnOnce(&[u8]) -> u32) -> Option<usize> {
        let length = HEADER_BYTES + body;
        let frame = frame.get_mut(..length + CHECK_BYTES)?;
        put(frame, 0, &[VERSION << 4 | KIND, self.message as u8])?;
        put(frame, 2, &u16::try_from(body).ok()?.to_be_bytes())?;
        put(frame, 4, &[0; 4])?;
        put(frame, 8, &self.life.to_be_bytes())?;
        put(frame, 16, &self.sequence.to_be_bytes())?;
        put(frame, 24, &self.node.0)?;
        let check = crc32c(&frame[..length]);
        put(frame, length, &check.to_be_bytes())?;
        Some(frame.len())
    }
}

/// A node ID where none is possible: zeros are none.
#[expect(clippy::option_option, reason = "refused, none, or one")]
pub(crate) fn some_node(bytes: &[u8], at: usize) -> Option<Option<NodeId>> {
    let id = NodeId(array(bytes, at)?);
    Some((id != NodeId::default()).then_some(id))
}
