//! BARs, as they lie in the process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{Ordering, fence};

/// A BAR. Accesses are of 4 or 8 bytes, naturally aligned.
#[derive(Debug)]
pub struct Bar {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: registers have no owner among threads; all accesses are volatile.
unsafe impl Send for Bar {}
// SAFETY: as above.
unsafe impl Sync for Bar {}

impl Bar {
    /// Maps `bytes` of the device's descriptor from `offset` on.
    pub(crate) fn map(device: BorrowedFd<'_>, offset: u64, bytes: u64) -> io::Result<Self> {
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let (length, offset) =
            (usize::try_from(bytes).map_err(invalid)?, i64::try_from(offset).map_err(invalid)?);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, protection, libc::MAP_SHARED, device.as_raw_fd(), offset)
        };
        match NonNull::new(start.cast::<u8>()).filter(|_| start != libc::MAP_FAILED) {
            Some(start) => Ok(Self { start, bytes: length }),
            None => Err(io::Error::last_os_error()),
        }
    }

    /// Its length, bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Where a register of so many bytes is, if there can be one.
    fn register(&self, offset: u64, bytes: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        let fits = offset.is_multiple_of(bytes) && offset.checked_add(bytes)? <= self.bytes;
        // SAFETY: within the mapping.
        fits.then(|| unsafe { self.start.as_ptr().add(offset) })
    }

    /// Reads 4 bytes; all ones where there is no such register.
    pub fn read_u32(&self, offset: u64) -> u32 {
        // SAFETY: a register of the mapping, aligned.
        self.register(offset, 4).map_or(u32::MAX, |at| unsafe { ptr::read_volatile(at.cast()) })
    }

    /// Reads 8 bytes; all ones where there is no such register.
    pub fn read_u64(&self, offset: u64) -> u64 {
        // SAFETY: as above.
        self.register(offset, 8).map_or(u64::MAX, |at| unsafe { ptr::read_volatile(at.cast()) })
    }

    /// Writes a multiple of 4 bytes, 8 at a time where they are aligned to 8; behind all that was stored to memory before. False, and
    /// nothing is written, where there are no such registers.
    pub fn write(&self, offset: u64, data: &[u8]) -> bool {
        let (words, rest) = data.as_chunks::<4>();
        let Some(end) = offset.checked_add(data.len() as u64) else { return false };
        if !rest.is_empty() || !offset.is_multiple_of(4) || end > self.bytes as u64 {
            return false;
        }
        fence(Ordering::Release);
        let mut at = offset;
        let mut words = words.iter().peekable();
        while let Some(low) = words.next() {
            let low = u32::from_le_bytes(*low);
            let high = if at.is_multiple_of(8) { words.next() } else { None };
            // SAFETY: the whole range is of the mapping, and both are aligned.
            unsafe {
                let register = self.start.as_ptr().add(at as usize);
                if let Some(high) = high {
                    let value = u64::from(u32::from_le_bytes(*high)) << 32 | u64::from(low);
                    ptr::write_volatile(register.cast(), value);
                    at += 8;
                } else {
                    ptr::write_volatile(register.cast(), low);
                    at += 4;
                }
            }
        }
        true
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    /// Memory in the place of a device: what is written can be read.
    fn bar() -> Bar {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4096).expect("its length");
        Bar::map(file.as_fd(), 0, 4096).expect("a map")
    }

    #[test]
    fn words_arrive_where_they_are_written_whatever_the_length() {
        let bar = bar();
        let data: Vec<u8> = (1..=64).collect();
        for (offset, bytes) in [(0, 4), (4, 4), (8, 8), (12, 8), (64, 64), (4092, 4), (4088, 8), (132, 20)] {
            assert!(bar.write(offset, &data[..bytes]), "{offset} {bytes}");
            for (at, word) in (offset..).step_by(4).zip(data[..bytes].as_chunks::<4>().0) {
                assert_eq!(bar.read_u32(at), u32::from_le_bytes(*word), "{offset} {bytes}");
            }
        }
        assert_eq!(bar.read_u64(4088), 0x0807_0605_0403_0201);
    }

    #[test]
    fn what_is_no_register_is_neither_read_nor_written() {
        let bar = bar();
        for (offset, bytes) in [(4093, 4), (4096, 4), (4092, 8), (2, 4), (0, 3), (u64::MAX - 3, 8)] {
            assert!(!bar.write(offset, &[0xEE; 8][..bytes]), "{offset} {bytes}");
        }
        assert!((0..4096).step_by(8).all(|at| bar.read_u64(at) == 0));
        assert_eq!((bar.read_u32(4096), bar.read_u32(2), bar.read_u64(4092)), (u32::MAX, u32::MAX, u64::MAX));
    }
}
