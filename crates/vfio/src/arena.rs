//! Memory for what a driver and its Function share: queues and the like.

use std::io;
use std::ptr::{self, NonNull};

use crate::dma::{Dma, MapError, Mapping};

/// Pages of the processor, and of the IOMMU, are as large as this where the kernel has some.
const LARGE_BYTES: usize = 2 << 20;

/// Zeroed memory that a Function reaches. Copies in and out keep the order in which bytes are written ([`etherslot_mem::store`]).
#[derive(Debug)]
pub struct Arena {
    // First: the Function reaches the memory no more when it goes.
    mapping: Mapping,
    memory: Memory,
}

/// Pages of the process's own.
#[derive(Debug)]
struct Memory {
    whole: NonNull<u8>,
    whole_bytes: usize,
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the memory is accessed by copies of atomic words alone.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> io::Result<Self> {
        let whole_bytes = bytes.checked_add(LARGE_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, at a place of the kernel's choice.
        let start = unsafe { libc::mmap(ptr::null_mut(), whole_bytes, protection, flags, -1, 0) };
        let whole = NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED);
        let whole = whole.ok_or_else(io::Error::last_os_error)?;
        let skipped = (whole.as_ptr() as usize).next_multiple_of(LARGE_BYTES) - whole.as_ptr() as usize;
        // SAFETY: `skipped` is less than what there is more than `bytes`.
        let start = unsafe { whole.add(skipped) };
        // Large pages are one map each, if there are any; and a child has no business here.
        for advice in [libc::MADV_HUGEPAGE, libc::MADV_DONTFORK] {
            // SAFETY: advice on memory that is ours; its failure changes nothing.
            unsafe { libc::madvise(start.as_ptr().cast(), bytes, advice) };
        }
        Ok(Self { whole, whole_bytes, start, bytes })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by new, and used by nobody any more.
        unsafe { libc::munmap(self.whole.as_ptr().cast(), self.whole_bytes) };
    }
}

impl Arena {
    /// So many bytes, a multiple of the page.
    pub fn new(dma: &Dma, bytes: usize) -> Result<Self, MapError> {
        let memory = Memory::new(bytes)?;
        // SAFETY: no reference points into the memory, ever.
        let mapping = unsafe { dma.map(memory.start.as_ptr(), bytes, true)? };
        Ok(Self { mapping, memory })
    }

    /// The address by which the Function knows the first byte.
    pub fn address(&self) -> u64 {
        self.mapping.address()
    }

    /// Where `bytes` from the Function's `address` on are.
    fn at(&self, address: u64, bytes: usize) -> Option<*mut u8> {
        let offset = usize::try_from(address.checked_sub(self.address())?).ok()?;
        let fits = offset.checked_add(bytes)? <= self.memory.bytes;
        // SAFETY: within the memory.
        fits.then(|| unsafe { self.memory.start.as_ptr().add(offset) })
    }

    /// Stores, from the Function's `address` on. False, and nothing is stored, if that is not all in the arena.
    pub fn store(&self, address: u64, data: &[u8]) -> bool {
        let Some(to) = self.at(address, data.len()) else { return false };
        // SAFETY: memory of this value's, that no reference points into.
        unsafe { etherslot_mem::store(to, data) };
        true
    }

    /// Loads; false if that is not all in the arena.
    pub fn load(&self, address: u64, data: &mut [u8]) -> bool {
        let Some(from) = self.at(address, data.len()) else { return false };
        // SAFETY: as above.
        unsafe { etherslot_mem::load(from, data) };
        true
    }
}
