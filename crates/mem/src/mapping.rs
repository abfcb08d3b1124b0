//! One file of a client, mapped whole.
//!
//! A file is mapped once and all windows onto it share the mapping: with a vIOMMU every page of the guest comes and goes as
//! a window of its own, and a mapping for each would cost page faults and soon meet the kernel's limit on mappings.

use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::fs::{FileType, fstat, fstatfs};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::PAGE_BYTES;
use crate::guest::MapError;
use crate::sigbus::Guard;

// `f_type` of the file systems that are memory. Of others a page fault may wait for a disk or, with FUSE, for
// whatever the client pleases.
const TMPFS_MAGIC: i64 = 0x01021994;
const HUGETLBFS_MAGIC: i64 = 0x958458f6;

/// What a file descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct File {
    device: u64,
    inode: u64,
    pub(crate) bytes: u64,
    /// A fault makes this much of it go at once.
    page_bytes: u64,
}

impl File {
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Result<Self, MapError> {
        let stat = fstat(fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(MapError::NotMemory);
        }
        let fs = fstatfs(fd)?;
        let page_bytes = match fs.f_type {
            TMPFS_MAGIC => PAGE_BYTES,
            HUGETLBFS_MAGIC => fs.f_bsize.cast_unsigned(),
            _ => return Err(MapError::NotMemory),
        };
        let bytes = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(Self { device: stat.st_dev, inode: stat.st_ino, bytes, page_bytes })
    }
}

#[derive(Debug)]
pub(crate) struct Mapping {
    file: File,
    writable: bool,
    start: NonNull<u8>,
    bytes: usize,
    guard: Guard,
    /// How many windows there are onto it; kept by the owner.
    pub(crate) windows: usize,
    /// When the last window went; kept by the owner.
    pub(crate) idle_since: u64,
}

impl Mapping {
    pub(crate) fn new(fd: BorrowedFd<'_>, file: File, writable: bool) -> Result<Self, MapError> {
        let bytes = file
            .bytes
            .checked_next_multiple_of(file.page_bytes)
            .and_then(|bytes| usize::try_from(bytes).ok())
            .ok_or(MapError::BeyondFile)?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is there.
        let start = unsafe {
            mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED | MapFlags::NORESERVE, fd, 0)?
        };
        // The signal handler makes a pointer of the faulting address.
        let address = start.expose_provenance();
        let Some(guard) = Guard::new(address, bytes, file.page_bytes as usize) else {
            // SAFETY: the mapping made above; no pointer to it is kept.
            let _ = unsafe { munmap(start, bytes) };
            return Err(MapError::TooManyFiles);
        };
        let start = NonNull::new(start.cast()).ok_or(MapError::TooManyFiles)?;
        Ok(Self { file, writable, start, bytes, guard, windows: 0, idle_since: 0 })
    }

    /// Whether it can serve a window that ends `end` bytes into `file`.
    pub(crate) fn serves(&self, file: &File, end: u64, writable: bool) -> bool {
        self.file.device == file.device
            && self.file.inode == file.inode
            && self.writable == writable
            && end <= self.bytes as u64
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// The address of the byte at `offset`, which lies within.
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        debug_assert!(offset < self.bytes());
        self.start.as_ptr().wrapping_add(offset as usize)
    }

    /// Whether some of the `bytes` bytes at `start` are gone, as far as is known.
    #[inline]
    pub(crate) fn has_lost(&self, start: *const u8, bytes: usize) -> bool {
        self.guard.any_lost() && self.guard.is_lost(start as usize, bytes)
    }
}

// SAFETY: the memory is owned by the mapping alone and is not bound to a thread.
unsafe impl Send for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.guard.retire();
        // SAFETY: the mapping made in `new`, whole; the owner has no window onto it any more.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}
