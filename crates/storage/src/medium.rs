//! The interface between a device model and its medium.

use crate::Buf;
use std::os::fd::BorrowedFd;

/// What a medium is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Granularity of offsets and lengths, bytes: a power of two, 512..=4096.
    pub block_bytes: u32,
    /// Capacity, a multiple of `block_bytes`.
    pub bytes: u64,
    /// Whether all but reads and flushes is refused.
    pub read_only: bool,
    /// Whether a completed write may be lost with power until a [`Op::Flush`] has completed.
    pub volatile_cache: bool,
    /// Whether what was discarded reads as zeros. If not, [`Op::Discard`] is only a hint.
    pub discard_zeroes: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Medium to Buf.
    Read,
    /// Buf to medium.
    Write {
        /// Done only when it would outlive a loss of power.
        durable: bool,
    },
    /// Makes durable everything that was done before this was submitted. Offset and length mean nothing.
    Flush,
    /// The range reads as zeros afterwards.
    WriteZeroes {
        /// Whether its space may be given back.
        unmap: bool,
    },
    /// The content of the range is needed no longer ([`Info::discard_zeroes`]).
    Discard,
}

/// One thing to do.
#[derive(Debug)]
pub struct Request {
    /// Comes back in [`Done`]; means nothing to the medium.
    pub token: u64,
    /// What.
    pub op: Op,
    /// First byte on the medium; a multiple of [`Info::block_bytes`].
    pub offset: u64,
    /// How many bytes; a multiple of [`Info::block_bytes`].
    pub bytes: u64,
    /// The data of a Read or Write; any Buf goes along with the other operations.
    pub buf: Option<Buf>,
    /// Where in the Buf the data starts; a multiple of [`Info::block_bytes`].
    pub buf_offset: usize,
}

impl Request {
    /// Whether a medium that is as `info` says can do this.
    pub(crate) fn check(&self, info: &Info) -> Result<(), MediumError> {
        let grain = u64::from(info.block_bytes) - 1;
        if self.op == Op::Flush {
            return Ok(());
        }
        if (self.offset | self.bytes | self.buf_offset as u64) & grain != 0 {
            return Err(MediumError::Invalid);
        }
        if self.offset.checked_add(self.bytes).is_none_or(|end| end > info.bytes) {
            return Err(MediumError::Invalid);
        }
        if matches!(self.op, Op::Read | Op::Write { .. }) {
            let room = self.buf.as_ref().map_or(0, |buf| buf.len().saturating_sub(self.buf_offset));
            if self.bytes > room as u64 {
                return Err(MediumError::Invalid);
            }
        }
        if self.op != Op::Read && info.read_only {
            return Err(MediumError::ReadOnly);
        }
        Ok(())
    }
}

/// How a Request ended.
#[derive(Debug)]
pub struct Done {
    /// The Request's.
    pub token: u64,
    /// The Request's; after a failed Read its content is undefined.
    pub buf: Option<Buf>,
    /// Whether it went well. After a failed write, what the range holds is undefined.
    pub result: Result<(), MediumError>,
}

/// Why a medium could not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MediumError {
    /// It tried and failed: the data is lost, or was not written.
    #[error("medium error")]
    Failed,
    /// Nothing more can be written: the file system or quota below is full.
    #[error("no space left below the medium")]
    NoSpace,
    /// It can't be written to.
    #[error("medium is read-only")]
    ReadOnly,
    /// It is there no longer.
    #[error("medium is gone")]
    Gone,
    /// It can't do that at all.
    #[error("operation not supported by the medium")]
    Unsupported,
    /// Out of range, misaligned, or without a Buf large enough.
    #[error("request does not fit the medium")]
    Invalid,
}

/// Keeps blocks.
pub trait Medium {
    /// What it is; the same for its whole life.
    fn info(&self) -> Info;

    /// Takes a Request, or gives it back if too many are in flight: then try again when one is done. It may start
    /// only with the next [`Medium::poll`].
    fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Request>;

    /// Starts what was submitted and hands over what is done, in any order. True if something was.
    fn poll(&mut self, now_ns: u64, done: &mut dyn FnMut(Done)) -> bool;

    /// The content of a range, from a medium that is memory: what a Read submitted now would read. None from all others, and
    /// beyond the end.
    fn peek(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        let _ = (offset, bytes);
        None
    }

    /// Writes whole blocks to a medium that is memory, at once: what is seen from now on, and as durable as it will ever be there. False,
    /// and nothing is written, wherever [`Medium::peek`] has nothing, and on a medium that is read-only.
    fn poke(&mut self, offset: u64, data: &[u8]) -> bool {
        let _ = (offset, data);
        false
    }

    /// Takes note of `bytes` that are moved by [`Medium::peek`] or [`Medium::poke`], for a medium that is no quicker than is said. True: a
    /// [`Done`] with this token tells when they are through. False: they are.
    fn pass(&mut self, now_ns: u64, token: u64, bytes: u64) -> bool {
        let _ = (now_ns, token, bytes);
        false
    }

    /// Readable when something is done.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The time (ns) at which something will be done, for a medium that lives in virtual time.
    fn deadline_ns(&self) -> Option<u64> {
        None
    }
}
