//! The bodies of replies.

use super::bytes::Reader;
use super::{Errno, HEADER_BYTES, Header};

/// The header of the reply to the command `command` with the Message ID `id`, with a body of `body_bytes` or an error.
pub fn header_of_reply(id: u16, command: u16, result: Result<usize, Errno>) -> Header {
    let body_bytes = result.unwrap_or(0);
    Header {
        id,
        command,
        bytes: (HEADER_BYTES + body_bytes) as u32,
        reply: true,
        no_reply: false,
        error: result.err(),
    }
}

/// The reply to DEVICE_GET_REGION_INFO; regions here have no capabilities and can't be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionInfoReply {
    /// The region.
    pub index: u32,
    /// It can be read.
    pub readable: bool,
    /// It can be written.
    pub writable: bool,
    /// The client can map it.
    pub mappable: bool,
    /// Its size.
    pub bytes: u64,
}

impl RegionInfoReply {
    const READ: u32 = 1 << 0;
    const WRITE: u32 = 1 << 1;
    const MMAP: u32 = 1 << 2;

    /// Encodes.
    pub fn encode(&self) -> [u8; 32] {
        let mut flags = 0;
        for (bit, set) in
            [(Self::READ, self.readable), (Self::WRITE, self.writable), (Self::MMAP, self.mappable)]
        {
            if set {
                flags |= bit;
            }
        }
        let mut bytes = [0; 32];
        bytes[0..4].copy_from_slice(&32u32.to_ne_bytes());
        bytes[4..8].copy_from_slice(&flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.index.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes
    }

    /// Decodes.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let (_argsz, flags, index, _cap_offset) =
            (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        Some(Self {
            index,
            readable: flags & Self::READ != 0,
            writable: flags & Self::WRITE != 0,
            mappable: flags & Self::MMAP != 0,
            bytes: reader.u64()?,
        })
    }
}

/// The reply to DEVICE_GET_IRQ_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IrqInfoReply {
    /// The interrupt type.
    pub index: u32,
    /// It can signal an eventfd.
    pub eventfd: bool,
    /// It can be masked.
    pub maskable: bool,
    /// It masks itself when triggered.
    pub automasked: bool,
    /// The set can't grow while it is enabled.
    pub noresize: bool,
    /// How many.
    pub count: u32,
}

impl IrqInfoReply {
    const EVENTFD: u32 = 1 << 0;
    const MASKABLE: u32 = 1 << 1;
    const AUTOMASKED: u32 = 1 << 2;
    const NORESIZE: u32 = 1 << 3;

    /// Encodes.
    pub fn encode(&self) -> [u8; 16] {
        let mut flags = 0;
        for (bit, set) in [
            (Self::EVENTFD, self.eventfd),
            (Self::MASKABLE, self.maskable),
            (Self::AUTOMASKED, self.automasked),
            (Self::NORESIZE, self.noresize),
        ] {
            if set {
                flags |= bit;
            }
        }
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&16u32.to_ne_bytes());
        bytes[4..8].copy_from_slice(&u32::to_ne_bytes(flags));
        bytes[8..12].copy_from_slice(&self.index.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_ne_bytes());
        bytes
    }

    /// Decodes.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let mut reader = Reader(body);
        let (_argsz, flags, index, count) = (reader.u32()?, reader.u32()?, reader.u32()?, reader.u32()?);
        Some(Self {
            index,
            eventfd: flags & Self::EVENTFD != 0,
            maskable: flags & Self::MASKABLE != 0,
            automasked: flags & Self::AUTOMASKED != 0,
            noresize: flags & Self::NORESIZE != 0,
            count,
        })
    }
}
