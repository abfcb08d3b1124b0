//! What clients are offered.

use etherslot_initiator::DiskInfo;

use crate::connection::Kind;
use crate::message::flag;

/// The longest payload of a request: the least that every server is expected to take.
pub const MAX_PAYLOAD_BYTES: u32 = 32 << 20;
/// Smaller requests are for the device to put together.
const PREFERRED_BYTES: u32 = 4096;

/// A disk, under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Export {
    /// Which of the disks.
    pub disk: usize,
    /// What clients ask for; the first export is what they get who ask for none.
    pub name: String,
    /// For people.
    pub description: String,
    /// Writes are refused, whatever the disk takes.
    pub read_only: bool,
}

/// An export, and what its disk is like.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) export: Export,
    pub(crate) geometry: Geometry,
}

impl Offer {
    /// Transmission flags.
    pub(crate) fn flags(&self) -> u16 {
        let flags = self.geometry.flags;
        if self.is_read_only() {
            flags & !(flag::SEND_TRIM | flag::SEND_WRITE_ZEROES) | flag::READ_ONLY
        } else {
            flags
        }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.geometry.read_only || self.export.read_only
    }
}

/// What is the same for all connections to a disk.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) bytes: u64,
    pub(crate) block_bytes: u32,
    /// Flags of an export that can be written to.
    flags: u16,
    read_only: bool,
    /// The most blocks of one read or write of the disk.
    pub(crate) piece_blocks: u32,
    pub(crate) zero_blocks: u32,
    pub(crate) discard_blocks: u32,
    /// Writing zeros may give the space back.
    pub(crate) unmap: bool,
}

impl Geometry {
    pub(crate) fn new(info: &DiskInfo, largest_buffer: usize) -> Self {
        // One flush of the disk makes durable what all connections wrote.
        let mut flags = flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::CAN_MULTI_CONN;
        if info.can_discard && info.max_discard_blocks != 0 {
            flags |= flag::SEND_TRIM;
        }
        if info.can_write_zeroes && info.max_zero_blocks != 0 {
            flags |= flag::SEND_WRITE_ZEROES;
        }
        let largest = u32::try_from(largest_buffer).unwrap_or(u32::MAX);
        Self {
            bytes: info.bytes(),
            block_bytes: info.block_bytes,
            flags,
            read_only: info.read_only,
            piece_blocks: (info.max_transfer_bytes.min(largest) / info.block_bytes).max(1),
            zero_blocks: info.max_zero_blocks.max(1),
            discard_blocks: info.max_discard_blocks.max(1),
            unmap: info.discard_zeroes,
        }
    }

    /// Whether the disk has it.
    pub(crate) fn takes(&self, kind: Kind) -> bool {
        match kind {
            Kind::Trim => self.flags & flag::SEND_TRIM != 0,
            Kind::WriteZeroes => self.flags & flag::SEND_WRITE_ZEROES != 0,
            _ => true,
        }
    }

    pub(crate) fn preferred_bytes(&self) -> u32 {
        self.block_bytes.max(PREFERRED_BYTES)
    }
}
