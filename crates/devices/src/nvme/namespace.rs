//! A namespace: a medium, cut into logical blocks, and its identity.

use super::command::Extent;
use super::identity::NamespaceIds;
use super::status::Status;
use etherslot_storage::{Info, Medium, Request};
use std::collections::VecDeque;
use std::fmt;

/// LBA formats (Identify Namespace: LBAF), log2 of their block sizes.
const LBADS: [u8; 2] = [9, 12];

/// Told the block size when the host has formatted the namespace, so that the owner can open it with the same one next time.
pub type Formatted = Box<dyn FnMut(u32)>;

/// What is to become a namespace.
pub struct Namespace {
    /// Where its blocks are.
    pub medium: Box<dyn Medium>,
    /// Bytes of a logical block, 512 or 4096; not less than the medium's.
    pub block_bytes: u32,
    /// Who keeps the block size when the host changes it (Format NVM).
    pub formatted: Option<Formatted>,
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Namespace")
            .field("medium", &self.medium.info())
            .field("block_bytes", &self.block_bytes)
            .finish_non_exhaustive()
    }
}

impl Namespace {
    /// One on `medium`, with logical blocks of `block_bytes`.
    pub fn new(medium: Box<dyn Medium>, block_bytes: u32) -> Self {
        Self { medium, block_bytes, formatted: None }
    }

    /// Whether its block size is one we have and the medium can serve.
    pub(super) fn is_valid(&self) -> bool {
        let info = self.medium.info();
        LBADS.iter().any(|lbads| 1 << lbads == self.block_bytes)
            && self.block_bytes >= info.block_bytes
            && info.bytes >= u64::from(self.block_bytes)
    }
}

/// A namespace at work.
pub(crate) struct Active {
    pub(crate) medium: Box<dyn Medium>,
    pub(crate) info: Info,
    block_shift: u8,
    formatted: Option<Formatted>,
    /// Commands under way that touch its blocks.
    pub(crate) users: u32,
    /// A Format waits for them or is under way: no new ones.
    pub(crate) formatting: bool,
    /// Requests the medium had no room for.
    pub(crate) backlog: VecDeque<Request>,
    pub(crate) ids: NamespaceIds,
}

impl Active {
    pub(crate) fn new(namespace: Namespace, ids: NamespaceIds, slots: usize) -> Self {
        Self {
            info: namespace.medium.info(),
            medium: namespace.medium,
            block_shift: namespace.block_bytes.trailing_zeros() as u8,
            formatted: namespace.formatted,
            users: 0,
            formatting: false,
            backlog: VecDeque::with_capacity(slots),
            ids,
        }
    }

    pub(crate) fn block_bytes(&self) -> u32 {
        1 << self.block_shift
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.info.bytes >> self.block_shift
    }

    /// The LBA formats the medium can serve, as log2 of their block sizes.
    pub(crate) fn formats(&self) -> &'static [u8] {
        if self.info.block_bytes > 512 { &LBADS[1..] } else { &LBADS }
    }

    /// Index of the present one.
    pub(crate) fn format(&self) -> u8 {
        self.formats().iter().position(|lbads| *lbads == self.block_shift).unwrap_or(0) as u8
    }

    /// Changes to LBA format `format`, one of [`Active::formats`]. True if that is another one.
    pub(crate) fn set_format(&mut self, format: u8) -> bool {
        let lbads = self.formats()[usize::from(format)];
        let is_other = lbads != self.block_shift;
        self.block_shift = lbads;
        if let (true, Some(formatted)) = (is_other, &mut self.formatted) {
            formatted(1 << lbads);
        }
        is_other
    }

    /// Where `extent` is on the medium: offset and bytes.
    pub(crate) fn locate(&self, slba: u64, blocks: u64) -> Result<(u64, u64), Status> {
        match slba.checked_add(blocks) {
            Some(end) if end <= self.blocks() => Ok((slba << self.block_shift, blocks << self.block_shift)),
            _ => Err(Status::LBA_OUT_OF_RANGE),
        }
    }

    /// The same for the extent of a command.
    pub(crate) fn locate_extent(&self, extent: &Extent) -> Result<(u64, u64), Status> {
        self.locate(extent.slba, u64::from(extent.blocks))
    }
}
