//! A disk, as those see it who use a remote device: what a driver implements, and what servers and tools are written against.
//!
//! Nothing here blocks. A round of a user's loop submits what it has, and polls for what is done; the owner of the disk sees to
//! the frames before and behind. A [`Buffer`] belongs to the disk's pool, where the device reaches it by DMA: a user that fills it from a
//! socket and submits it has copied the data once.

use crate::pool::Buffer;

/// What a disk is; the same for as long as it is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskInfo {
    /// Bytes of a block, a power of two from 512.
    pub block_bytes: u32,
    /// How many there are.
    pub blocks: u64,
    /// The most data of one Read or Write: a multiple of `block_bytes`.
    pub max_transfer_bytes: u32,
    /// The most blocks of one [`Op::WriteZeroes`].
    pub max_zero_blocks: u32,
    /// The most blocks of one [`Op::Discard`].
    pub max_discard_blocks: u32,
    /// Requests under way at once, beyond which [`Disk::submit`] refuses.
    pub queue_depth: usize,
    /// Refuses all but reads and flushes.
    pub read_only: bool,
    /// What was written may be lost with power until it was flushed, or written with `durable`.
    pub volatile_cache: bool,
    /// Takes [`Op::Discard`].
    pub can_discard: bool,
    /// Takes [`Op::WriteZeroes`].
    pub can_write_zeroes: bool,
    /// Takes [`Op::Compare`].
    pub can_compare: bool,
    /// Discarded blocks read as zeros.
    pub discard_zeroes: bool,
    /// Serial number.
    pub serial: String,
    /// Model number.
    pub model: String,
    /// Firmware revision.
    pub firmware: String,
}

impl DiskInfo {
    /// Capacity.
    pub fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_bytes))
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Disk to buffer.
    Read,
    /// Buffer to disk.
    Write {
        /// Done only when it would outlive a loss of power (Force Unit Access).
        durable: bool,
    },
    /// Makes durable everything that was done before this was submitted. The range means nothing.
    Flush,
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// Whether its space may be given back.
        unmap: bool,
    },
    /// The content of the range is needed no longer.
    Discard,
    /// Whether the disk holds what is in the buffer; it fails if not.
    Compare,
}

impl Op {
    /// Whether it changes the disk.
    pub fn is_writing(self) -> bool {
        !matches!(self, Self::Read | Self::Flush | Self::Compare)
    }
}

/// One thing to do. Of requests that are under way together, none is before the other.
#[derive(Debug)]
pub struct Request {
    /// Comes back in [`Done`]; means nothing to the disk.
    pub token: u64,
    /// What.
    pub op: Op,
    /// The first block.
    pub first_block: u64,
    /// How many blocks.
    pub blocks: u32,
    /// The data of a Read or Write, from the start of the buffer; it may be larger. A buffer goes along with other operations.
    pub buffer: Option<Buffer>,
}

impl Request {
    /// Why a disk that is as `info` says can't do this, if so.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self, info: &DiskInfo) -> Result<(), Reason> {
        let most = match self.op {
            Op::Flush => return Ok(()),
            Op::Read | Op::Write { .. } | Op::Compare => info.max_transfer_bytes / info.block_bytes,
            Op::WriteZeroes { .. } => info.max_zero_blocks,
            Op::Discard => info.max_discard_blocks,
        };
        if self.op.is_writing() && info.read_only {
            return Err(Reason::ReadOnly);
        }
        if matches!(self.op, Op::WriteZeroes { .. }) && !info.can_write_zeroes
            || self.op == Op::Discard && !info.can_discard
            || self.op == Op::Compare && !info.can_compare
        {
            return Err(Reason::Unsupported);
        }
        let end = self.first_block.checked_add(u64::from(self.blocks));
        if self.blocks == 0 || self.blocks > most || end.is_none_or(|end| end > info.blocks) {
            return Err(Reason::Range);
        }
        if matches!(self.op, Op::Read | Op::Write { .. } | Op::Compare) {
            let bytes = self.blocks as usize * info.block_bytes as usize;
            if self.buffer.as_ref().is_none_or(|buffer| buffer.bytes() < bytes) {
                return Err(Reason::Buffer);
            }
        }
        Ok(())
    }
}

/// How a request ended.
#[derive(Debug)]
pub struct Done {
    /// The request's.
    pub token: u64,
    /// The request's. After a failed Read its content is undefined.
    pub buffer: Option<Buffer>,
    /// Whether it went well. After a failed write, what the range holds is undefined.
    pub result: Result<(), DiskError>,
}

/// A request that was not taken.
#[derive(Debug)]
pub struct Refused {
    /// It, for another attempt.
    pub request: Request,
    /// Why.
    pub reason: Reason,
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// As many as possible are under way: submit it again when one is done.
    #[error("too many requests under way")]
    Full,
    /// No block, more blocks than one request can have, or blocks beyond the end of the disk.
    #[error("blocks out of range")]
    Range,
    /// No buffer, or too small a one.
    #[error("no buffer large enough")]
    Buffer,
    /// The disk can't be written to.
    #[error("disk is read-only")]
    ReadOnly,
    /// The disk has no such operation.
    #[error("operation not supported by the disk")]
    Unsupported,
}

/// Why a disk could not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DiskError {
    /// The device says so: Status Code Type and Status Code of NVMe (Base 1.4, 4.6.1).
    #[error("the device answered {0}")]
    Status(crate::Status),
    /// The device was out of reach for longer than the user wants to wait.
    #[error("the device is out of reach")]
    Lost,
    /// The device is there, but did not do it in the time that the user wants to wait.
    #[error("the device did not answer in time")]
    TimedOut,
    /// The device can't be used: another one came back in its place, or it is broken.
    #[error("the device can't be used any more")]
    Unusable,
}

/// A disk.
pub trait Disk {
    /// What it is.
    fn info(&self) -> &DiskInfo;

    /// A buffer of at least `bytes` bytes, or `None` if all such are taken (or there never was one so large). Its content is
    /// whatever was there.
    fn take_buffer(&mut self, bytes: usize) -> Option<Buffer>;

    /// Returns a buffer to the pool of this disk, which it was taken from.
    fn give_back(&mut self, buffer: Buffer);

    /// What is in a buffer.
    fn data(&self, buffer: &Buffer) -> &[u8];

    /// The same, to be written.
    fn data_mut(&mut self, buffer: &Buffer) -> &mut [u8];

    /// Takes a request. All that is submitted in one round goes to the device together.
    ///
    /// # Errors
    /// It is given back with the reason if it does not fit the disk, or too many are under way.
    fn submit(&mut self, request: Request) -> Result<(), Refused>;

    /// Hands over what is done, in any order; how many that were.
    fn poll(&mut self, done: &mut dyn FnMut(Done)) -> usize;

    /// Requests that were taken and not handed over.
    fn in_flight(&self) -> usize;
}
