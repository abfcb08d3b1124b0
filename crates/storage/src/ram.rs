//! A medium in the memory of this process: what is on it is lost with the process.
//!
//! Every page is there from the start, in huge pages where the kernel gives them, so no request pays for a first touch. Reads and
//! writes are done when they are submitted. Zeros are written piece by piece, so that no poll takes long.

use crate::{Done, Info, Medium, MediumError, Op, Request};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::VecDeque;
use std::io;
use std::ptr::{self, NonNull};

/// Requests in flight at most.
const DEPTH: usize = 256;

/// Zeros written in one poll.
const ZEROS_BYTES: u64 = 1 << 20;

/// Granularity: the smallest there is.
const BLOCK_BYTES: u32 = 512;

/// Sizes are multiples of this.
const PAGE_BYTES: u64 = 4096;

/// Why there is no such medium.
#[derive(Debug, thiserror::Error)]
pub enum RamError {
    /// No size that memory can have.
    #[error("{0} bytes of memory are not possible: use a multiple of 4096, and at least that")]
    Size(u64),
    /// The kernel has not that much.
    #[error("{bytes} bytes of memory are not to be had ({source}): use fewer")]
    Memory {
        /// How much was asked for.
        bytes: u64,
        /// What the kernel said.
        source: io::Error,
    },
}

/// Memory of our own, mapped and touched.
struct Region {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Region owns its memory alone and is not bound to a thread.
unsafe impl Send for Region {}

impl Region {
    /// `bytes` is a multiple of [`PAGE_BYTES`] and not 0.
    fn new(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is there.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, MapFlags::PRIVATE)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // From here on the mapping is given back if something fails.
        let region = Self { start, bytes };
        // A kernel without huge pages says no, and small ones do as well.
        // SAFETY: advice on the mapping made above.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        // SAFETY: as above; nobody reads or writes the memory yet.
        unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite)? };
        Ok(region)
    }

    fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` bytes from `start` on are mapped, zeroed by the kernel, and owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, whole; no slice of it outlives self.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// A range that is being zeroed.
struct Zeroing {
    request: Request,
    progress: u64,
}

/// Blocks in memory.
pub struct RamMedium {
    region: Region,
    info: Info,
    done: VecDeque<Done>,
    zeroing: VecDeque<Zeroing>,
}

impl RamMedium {
    /// One of `bytes` bytes, all zero.
    pub fn new(bytes: u64, read_only: bool) -> Result<Self, RamError> {
        let room = usize::try_from(bytes).ok().filter(|_| bytes != 0 && bytes.is_multiple_of(PAGE_BYTES));
        let room = room.ok_or(RamError::Size(bytes))?;
        let region = Region::new(room).map_err(|source| RamError::Memory { bytes, source })?;
        // Nothing is kept, so there is nothing that a Flush could make durable.
        let volatile_cache = false;
        let info = Info { block_bytes: BLOCK_BYTES, bytes, read_only, volatile_cache, discard_zeroes: true };
        let (done, zeroing) = (VecDeque::with_capacity(DEPTH), VecDeque::with_capacity(DEPTH));
        Ok(Self { region, info, done, zeroing })
    }

    fn end(&mut self, request: Request, result: Result<(), MediumError>) {
        self.done.push_back(Done { token: request.token, buf: request.buf, result });
    }

    /// The next piece of the first range that is to be zero.
    fn zero(&mut self) {
        let Some(first) = self.zeroing.front_mut() else { return };
        let at = first.request.offset + first.progress;
        let bytes = (first.request.bytes - first.progress).min(ZEROS_BYTES);
        self.region.as_mut_slice()[at as usize..(at + bytes) as usize].fill(0);
        first.progress += bytes;
        if first.progress == first.request.bytes
            && let Some(Zeroing { request, .. }) = self.zeroing.pop_front()
        {
            self.end(request, Ok(()));
        }
    }
}

impl Medium for RamMedium {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&mut self, _now_ns: u64, mut request: Request) -> Result<(), Request> {
        if self.done.len() + self.zeroing.len() >= DEPTH {
            return Err(request);
        }
        if let Err(error) = request.check(&self.info) {
            self.end(request, Err(error));
            return Ok(());
        }
        let on_medium = request.offset as usize..request.offset.wrapping_add(request.bytes) as usize;
        let in_buf = request.buf_offset..request.buf_offset.wrapping_add(request.bytes as usize);
        match (request.op, &mut request.buf) {
            (Op::Read, Some(buf)) => buf[in_buf].copy_from_slice(&self.region.as_slice()[on_medium]),
            (Op::Write { .. }, Some(buf)) => {
                self.region.as_mut_slice()[on_medium].copy_from_slice(&buf[in_buf]);
            }
            (Op::WriteZeroes { .. } | Op::Discard, _) => {
                self.zeroing.push_back(Zeroing { request, progress: 0 });
                return Ok(());
            }
            // Without a Buf nothing was asked to be moved.
            (Op::Read | Op::Write { .. } | Op::Flush, _) => {}
        }
        self.end(request, Ok(()));
        Ok(())
    }

    fn poll(&mut self, _now_ns: u64, done: &mut dyn FnMut(Done)) -> bool {
        let any = !self.done.is_empty() || !self.zeroing.is_empty();
        self.zero();
        self.done.drain(..).for_each(done);
        any
    }

    fn peek(&self, offset: u64, bytes: usize) -> Option<&[u8]> {
        self.region.as_slice().get(usize::try_from(offset).ok()?..)?.get(..bytes)
    }

    fn poke(&mut self, offset: u64, data: &[u8]) -> bool {
        let blocks = u64::from(self.info.block_bytes);
        if self.info.read_only
            || !offset.is_multiple_of(blocks)
            || !(data.len() as u64).is_multiple_of(blocks)
        {
            return false;
        }
        let Ok(start) = usize::try_from(offset) else { return false };
        let place = self.region.as_mut_slice().get_mut(start..).and_then(|rest| rest.get_mut(..data.len()));
        place.map(|place| place.copy_from_slice(data)).is_some()
    }

    /// What is to do is to be done at once.
    fn deadline_ns(&self) -> Option<u64> {
        (!self.done.is_empty() || !self.zeroing.is_empty()).then_some(0)
    }
}

impl std::fmt::Debug for RamMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RamMedium").field("info", &self.info).finish_non_exhaustive()
    }
}
