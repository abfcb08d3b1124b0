//! Memory maps that end with their owner.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// A map of our own choosing of place, read and written; all its pages are there from the start.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the map is the owner's until it is dropped, whatever thread that is on; access to it is the owner's business.
unsafe impl Send for Mapping {}

impl Mapping {
    const PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

    /// Maps a part of a file, shared with whoever else maps it.
    pub(crate) fn shared(file: BorrowedFd<'_>, bytes: usize, offset: u64) -> io::Result<Self> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new map at a place of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap(ptr::null_mut(), bytes, Self::PROTECTION, flags, file, offset) }?;
        Self::new(base.cast(), bytes)
    }

    /// Maps fresh memory, zeroed.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: as above.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, Self::PROTECTION, flags) }?;
        Self::new(base.cast(), bytes)
    }

    fn new(base: *mut u8, bytes: usize) -> io::Result<Self> {
        Ok(Self { base: NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?, bytes })
    }

    /// Its first byte, aligned to a page.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length; who has pointers into it owns this map, and is going with it.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}
