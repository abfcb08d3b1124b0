//! The memory between files.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::event::{EventfdFlags, eventfd};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::thread::futex;

/// What the memory of a device is handed out in.
const PAGE_BYTES: usize = 4096;

/// Memory for data, and behind it a page with a seal: one word by which one sees whether all of it was lost.
///
/// The kernel takes the memory of a device out of the process when the device is removed. So it is the kernel that puts the seal and looks at it, on
/// our behalf: it says that nothing is there, where an access of our own would end the process.
#[derive(Debug)]
pub struct Stage {
    start: NonNull<u8>,
    /// Without the seal's page.
    bytes: usize,
    is_of_device: bool,
    /// Brings a seal into the memory.
    courier: OwnedFd,
}

// SAFETY: the mapping is owned by the Stage alone and is not bound to a thread.
unsafe impl Send for Stage {}

impl Stage {
    /// Memory of this process, zeros; `bytes` is rounded up to whole pages.
    pub fn here(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let all = bytes + PAGE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is there.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), all, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        Self::new(start.cast(), bytes, false)
    }

    /// Memory of a device, by its `p2pmem/allocate` in sysfs (Linux 6.2): whatever is in it.
    pub fn of_device(allocate: &Path, bytes: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(allocate)?;
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let all = bytes + PAGE_BYTES;
        // SAFETY: as in `here`. The kernel keeps the device's memory as long as it is mapped.
        let start = unsafe {
            mmap(ptr::null_mut(), all, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, &file, 0)?
        };
        Self::new(start.cast(), bytes, true)
    }

    fn new(start: *mut u8, bytes: usize, is_of_device: bool) -> io::Result<Self> {
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        let courier = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { start, bytes, is_of_device, courier })
    }

    /// Its size, without the seal.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it is a device's.
    pub fn is_of_device(&self) -> bool {
        self.is_of_device
    }

    /// Puts the seal, which is not 0; into nothing, if the memory is away.
    pub fn seal(&mut self, word: u32) {
        let carried = rustix::io::write(&self.courier, &u64::from(word).to_ne_bytes());
        debug_assert_eq!(carried, Ok(8), "the courier carries nothing else");
        // SAFETY: the kernel writes eight bytes of the page behind the data, which is nobody else's, or says that there is nothing.
        let put = unsafe { libc::read(self.courier.as_raw_fd(), self.seal_word().cast(), 8) };
        if put < 0 {
            // What it could not hand over it may have kept.
            let _ = rustix::io::read(&self.courier, &mut [0; 8]);
        }
    }

    /// Whether the seal is where it was put: no more once the memory was lost, nor while the device is away.
    pub fn is_sealed(&self, word: u32) -> bool {
        // SAFETY: aligned, within the mapping as it was made, and only the kernel looks, which says if there is nothing.
        let place = unsafe { AtomicU32::from_ptr(self.seal_word().cast()) };
        // Wakes nobody and moves nobody, and does even that only if the word is there.
        futex::cmp_requeue(place, futex::Flags::PRIVATE, 0, 0, place, word).is_ok()
    }

    fn seal_word(&self) -> *mut u64 {
        self.start.as_ptr().wrapping_add(self.bytes).cast()
    }

    /// The place `at` bytes from the start.
    pub(super) fn at(&self, at: usize) -> *mut u8 {
        debug_assert!(at <= self.bytes);
        self.start.as_ptr().wrapping_add(at)
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // SAFETY: the mapping made above, whole; who handed places of it to the kernel has waited for their end.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes + PAGE_BYTES) };
    }
}
