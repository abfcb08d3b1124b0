//! The windows a client has opened onto its memory.

use std::cell::Cell;
use std::os::fd::BorrowedFd;

use crate::PAGE_BYTES;
use crate::copy;
use crate::mapping::{File, Mapping};

/// What the device may do in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// It may read.
    pub read: bool,
    /// It may write.
    pub write: bool,
}

impl Access {
    /// Reads only.
    pub const READ: Self = Self { read: true, write: false };
    /// Reads and writes.
    pub const READ_WRITE: Self = Self { read: true, write: true };
}

/// How much one client may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Windows at a time.
    pub windows: usize,
    /// Files mapped at a time.
    pub files: usize,
    /// Address space used for files, bytes.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { windows: 65535, files: 64, bytes: 16 << 40 }
    }
}

/// Files without a window that stay mapped, so that unmapping all memory and mapping it again (firmware does, and a guest that has
/// all its I/O done does with a vIOMMU) costs no page faults.
const IDLE_FILES: usize = 4;

/// Why a window was not opened.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Address, length or offset is no multiple of the page size, or the length is 0.
    #[error("address, length and offset must be multiples of {PAGE_BYTES} and the length not 0")]
    Unaligned,
    /// The window would end beyond 2^64.
    #[error("the window ends beyond the address space")]
    Wraps,
    /// There is a window in the range already.
    #[error("the window overlaps one that exists")]
    Overlap,
    /// The window is not wholly in the file.
    #[error("the window ends beyond the end of the file")]
    BeyondFile,
    /// The descriptor is none of a file in memory (a memfd, or a file on tmpfs or hugetlbfs).
    #[error("the memory must be a memfd or a file on tmpfs or hugetlbfs")]
    NotMemory,
    /// [`Limits::windows`] is reached.
    #[error("too many windows")]
    TooManyWindows,
    /// [`Limits::files`], [`Limits::bytes`] or the process-wide limit on mappings is reached.
    #[error("too many or too large files")]
    TooManyFiles,
    /// The kernel refused.
    #[error("the file cannot be mapped: {0}")]
    Os(#[from] rustix::io::Errno),
}

/// Why nothing was unmapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnmapError {
    /// The range ends beyond 2^64 or is empty.
    #[error("the range is empty or ends beyond the address space")]
    Wraps,
    /// A window is partly in the range and partly out of it.
    #[error("the range would cut a window in two")]
    Bisects,
}

/// An access that was refused or failed. If it was refused, nothing was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("guest memory at {address:#x}: {reason}")]
pub struct MemFault {
    /// The first address at fault, as far as is known.
    pub address: u64,
    /// Why.
    pub reason: FaultReason,
}

/// Why an access failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultReason {
    /// No window, or one whose memory the client does not share.
    #[error("not mapped")]
    Unmapped,
    /// The window's permissions exclude it.
    #[error("not permitted")]
    Denied,
    /// The client has taken the memory away; part of the access may have been done.
    #[error("the memory behind it is gone")]
    Lost,
}

#[derive(Debug)]
struct Window {
    first: u64,
    last: u64,
    /// Where `first` is in this process; null if the client does not share the memory.
    host: *mut u8,
    /// Index of the mapping; meaningless if `host` is null.
    file: usize,
    access: Access,
}

impl Window {
    fn contains(&self, address: u64) -> bool {
        self.first <= address && address <= self.last
    }

    /// The host address of `address`, which lies within; the window is shared.
    fn at(&self, address: u64) -> *mut u8 {
        self.host.wrapping_add((address - self.first) as usize)
    }

    fn permits(&self, access: Access) -> Result<(), FaultReason> {
        if self.host.is_null() {
            Err(FaultReason::Unmapped)
        } else if (access.read && !self.access.read) || (access.write && !self.access.write) {
            Err(FaultReason::Denied)
        } else {
            Ok(())
        }
    }
}

/// The memory of one client.
#[derive(Debug)]
pub struct GuestMemory {
    limits: Limits,
    /// In ascending order, not overlapping.
    windows: Vec<Window>,
    files: Vec<Option<Mapping>>,
    /// Index of the window the last access hit; checked before use.
    last_hit: Cell<usize>,
    /// Counts windows closed, as a clock for [`Mapping::idle_since`].
    closed: u64,
}

// SAFETY: the pointers in the windows point into the mappings, which it owns.
unsafe impl Send for GuestMemory {}

impl Default for GuestMemory {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}

impl GuestMemory {
    /// No memory yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, windows: Vec::new(), files: Vec::new(), last_hit: Cell::new(0), closed: 0 }
    }

    /// Opens a window of `bytes` bytes from `address` on, onto `fd` from `offset` on. Without `fd` the range is taken, but no access
    /// to it succeeds.
    pub fn map(
        &mut self,
        fd: Option<BorrowedFd<'_>>,
        offset: u64,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), MapError> {
        if bytes == 0 || [offset, address, bytes].iter().any(|value| value % PAGE_BYTES != 0) {
            return Err(MapError::Unaligned);
        }
        let last = address.checked_add(bytes - 1).ok_or(MapError::Wraps)?;
        let at = self.windows.partition_point(|window| window.last < address);
        if self.windows.get(at).is_some_and(|window| window.first <= last) {
            return Err(MapError::Overlap);
        }
        if self.windows.len() >= self.limits.windows {
            return Err(MapError::TooManyWindows);
        }
        let (host, file) = match fd {
            Some(fd) => {
                let end = offset.checked_add(bytes).ok_or(MapError::BeyondFile)?;
                let file = self.file(fd, end, access.write)?;
                let mapping = self.files[file].as_mut().ok_or(MapError::TooManyFiles)?;
                mapping.windows += 1;
                (mapping.at(offset), file)
            }
            None => (std::ptr::null_mut(), 0),
        };
        self.windows.insert(at, Window { first: address, last, host, file, access });
        Ok(())
    }

    /// The index of a mapping of `fd` of at least `end` bytes, made if there is none.
    fn file(&mut self, fd: BorrowedFd<'_>, end: u64, writable: bool) -> Result<usize, MapError> {
        // Asked each time: the file may have shrunk or grown since it was mapped.
        let file = File::of(fd)?;
        if end > file.bytes {
            return Err(MapError::BeyondFile);
        }
        let serves = |mapping: &Option<Mapping>| {
            mapping.as_ref().is_some_and(|mapping| mapping.serves(&file, end, writable))
        };
        if let Some(index) = self.files.iter().position(serves) {
            return Ok(index);
        }
        let used: u64 = self.files.iter().flatten().map(Mapping::bytes).sum();
        if self.files.iter().flatten().count() >= self.limits.files
            || used.checked_add(file.bytes).is_none_or(|bytes| bytes > self.limits.bytes)
        {
            self.files.iter_mut().for_each(|file| drop(file.take_if(|mapping| mapping.windows == 0)));
            let used: u64 = self.files.iter().flatten().map(Mapping::bytes).sum();
            if self.files.iter().flatten().count() >= self.limits.files
                || used.checked_add(file.bytes).is_none_or(|bytes| bytes > self.limits.bytes)
            {
                return Err(MapError::TooManyFiles);
            }
        }
        let mapping = Mapping::new(fd, file, writable)?;
        let index = self.files.iter().position(Option::is_none).unwrap_or(self.files.len());
        if index == self.files.len() {
            self.files.push(None);
        }
        self.files[index] = Some(mapping);
        Ok(index)
    }

    /// Closes all windows wholly within `bytes` bytes from `address` on, as the kernel's VFIO does; returns how many. Refused
    /// if a window is only partly within.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<usize, UnmapError> {
        let last =
            bytes.checked_sub(1).and_then(|more| address.checked_add(more)).ok_or(UnmapError::Wraps)?;
        let from = self.windows.partition_point(|window| window.last < address);
        let to = self.windows.partition_point(|window| window.first <= last);
        let Some(range) = self.windows.get(from..to).filter(|range| !range.is_empty()) else {
            return Ok(0);
        };
        if range[0].first < address || range[range.len() - 1].last > last {
            return Err(UnmapError::Bisects);
        }
        for window in self.windows.drain(from..to) {
            if window.host.is_null() {
                continue;
            }
            if let Some(mapping) = &mut self.files[window.file] {
                self.closed += 1;
                mapping.windows -= 1;
                mapping.idle_since = self.closed;
            }
        }
        self.shed_idle();
        Ok(to - from)
    }

    /// Unmaps the files longest without a window, down to [`IDLE_FILES`].
    fn shed_idle(&mut self) {
        let idle = |file: &Option<Mapping>| {
            file.as_ref().filter(|mapping| mapping.windows == 0).map(|mapping| mapping.idle_since)
        };
        while self.files.iter().filter_map(idle).count() > IDLE_FILES {
            let oldest = self.files.iter().filter_map(idle).min();
            if let Some(file) = self.files.iter_mut().find(|file| idle(file) == oldest) {
                *file = None;
            }
        }
    }

    /// Closes all windows.
    pub fn unmap_all(&mut self) {
        self.windows.clear();
        self.closed += 1;
        for mapping in self.files.iter_mut().flatten().filter(|mapping| mapping.windows > 0) {
            mapping.windows = 0;
            mapping.idle_since = self.closed;
        }
        self.shed_idle();
    }

    /// Closes all windows and lets go of all files: the client is gone.
    pub fn clear(&mut self) {
        self.windows.clear();
        self.files.clear();
    }

    /// How many windows there are.
    pub fn windows(&self) -> usize {
        self.windows.len()
    }

    /// How many files are mapped.
    pub fn files(&self) -> usize {
        self.files.iter().flatten().count()
    }

    /// Copies guest memory from `address` on to `data`.
    #[inline]
    pub fn read(&self, address: u64, data: &mut [u8]) -> Result<(), MemFault> {
        if let Some((window, host)) = self.whole(address, data.len()) {
            window.permits(Access::READ).map_err(|reason| MemFault { address, reason })?;
            self.is_there(window, address, host, data.len())?;
            // SAFETY: `whole` says that the range lies in a window, and `permits` that it is shared and readable.
            unsafe { copy::load(host, data) };
            return self.is_there(window, address, host, data.len());
        }
        self.check(address, data.len(), Access::READ)?;
        self.pieces(address, data.len(), |window, address, host, range| {
            self.is_there(window, address, host, range.len())?;
            // SAFETY: `check` has found every byte of the range in a shared, readable window, and `pieces` has cut it into
            // parts that lie in one window each.
            unsafe { copy::load(host, &mut data[range.clone()]) };
            self.is_there(window, address, host, range.len())
        })
    }

    /// Copies `data` to guest memory from `address` on. It is visible there after all that was written before, in increasing
    /// address order.
    #[inline]
    pub fn write(&self, address: u64, data: &[u8]) -> Result<(), MemFault> {
        const WRITE: Access = Access { read: false, write: true };
        if let Some((window, host)) = self.whole(address, data.len()) {
            window.permits(WRITE).map_err(|reason| MemFault { address, reason })?;
            self.is_there(window, address, host, data.len())?;
            // SAFETY: `whole` says that the range lies in a window, and `permits` that it is shared and writable.
            unsafe { copy::store(host, data) };
            return self.is_there(window, address, host, data.len());
        }
        self.check(address, data.len(), WRITE)?;
        self.pieces(address, data.len(), |window, address, host, range| {
            self.is_there(window, address, host, range.len())?;
            // SAFETY: `check` has found every byte of the range in a shared, writable window, and `pieces` has cut it into
            // parts that lie in one window each.
            unsafe { copy::store(host, &data[range.clone()]) };
            self.is_there(window, address, host, range.len())
        })
    }

    /// Whether `bytes` bytes from `address` on can be accessed so. The client may still take the memory away.
    pub fn check(&self, address: u64, bytes: usize, access: Access) -> Result<(), MemFault> {
        let mut at = address;
        let mut left = bytes as u64;
        while left > 0 {
            let fault = |reason| MemFault { address: at, reason };
            let window = self.find(at).ok_or(fault(FaultReason::Unmapped))?;
            window.permits(access).map_err(fault)?;
            let beyond_first = window.last - at;
            if left - 1 <= beyond_first {
                break;
            }
            left -= beyond_first + 1;
            at = window.last.checked_add(1).ok_or(MemFault { address: 0, reason: FaultReason::Unmapped })?;
        }
        Ok(())
    }

    /// The window that holds all of the range, and where the range is in this process; `None` also for an empty range.
    #[inline]
    fn whole(&self, address: u64, bytes: usize) -> Option<(&Window, *mut u8)> {
        let window = self.find(address)?;
        let more = (bytes as u64).checked_sub(1)?;
        (more <= window.last - address).then(|| (window, window.at(address)))
    }

    /// Calls `each` for the parts of a range that [`GuestMemory::check`] has passed: one per window.
    fn pieces(
        &self,
        address: u64,
        bytes: usize,
        mut each: impl FnMut(&Window, u64, *mut u8, std::ops::Range<usize>) -> Result<(), MemFault>,
    ) -> Result<(), MemFault> {
        let mut done = 0;
        while done < bytes {
            let at = address.wrapping_add(done as u64);
            let fault = MemFault { address: at, reason: FaultReason::Unmapped };
            let window = self.find(at).ok_or(fault)?;
            let beyond_first = usize::try_from(window.last - at).unwrap_or(usize::MAX);
            let piece = (bytes - done - 1).min(beyond_first) + 1;
            each(window, at, window.at(at), done..done + piece)?;
            done += piece;
        }
        Ok(())
    }

    #[inline]
    fn find(&self, address: u64) -> Option<&Window> {
        if let Some(window) = self.windows.get(self.last_hit.get())
            && window.contains(address)
        {
            return Some(window);
        }
        let index = self.windows.partition_point(|window| window.last < address);
        let window = self.windows.get(index).filter(|window| window.contains(address))?;
        self.last_hit.set(index);
        Some(window)
    }

    /// Asked before a copy, so that nothing more is put in the place of memory known to be gone, and after it, since it may
    /// have been the copy that found out.
    #[inline]
    fn is_there(&self, window: &Window, address: u64, host: *const u8, bytes: usize) -> Result<(), MemFault> {
        match &self.files[window.file] {
            Some(mapping) if !mapping.has_lost(host, bytes) => Ok(()),
            _ => Err(MemFault { address, reason: FaultReason::Lost }),
        }
    }
}
