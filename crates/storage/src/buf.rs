//! A page-aligned buffer that is moved, never shared.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Memory for block I/O: aligned to [`Buf::ALIGN`], of fixed size, zeroed at the start.
///
/// It is passed by value into a [`crate::Request`] and comes back in its [`crate::Done`], so at any time there is one
/// owner: the device model, or the medium while the kernel may touch it.
pub struct Buf {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a Buf owns its memory alone, like a Vec<u8>.
unsafe impl Send for Buf {}

impl Buf {
    /// Alignment of the start, bytes.
    pub const ALIGN: usize = 4096;

    /// A Buf of `bytes`, rounded up to a multiple of [`Buf::ALIGN`] and at least that.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(Self::ALIGN);
        let layout = Self::layout(bytes);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Self { start, bytes }
    }

    /// Where the memory starts; good as long as the Buf lives, also when it is moved.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn layout(bytes: usize) -> Layout {
        Layout::from_size_align(bytes, Self::ALIGN).expect("a Buf's size fits an address space")
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and nobody else has it.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(self.bytes)) }
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` initialised bytes from `start` on are owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_zeroed_and_rounded_up() {
        for bytes in [0, 1, 4095, 4096, 4097, 1 << 20] {
            let buf = Buf::new(bytes);
            assert_eq!(buf.as_ptr().addr() % Buf::ALIGN, 0);
            assert!(buf.len() >= bytes.max(1) && buf.len().is_multiple_of(Buf::ALIGN));
            assert!(buf.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn keeps_its_bytes_when_moved() {
        let mut buf = Buf::new(4096);
        buf[4095] = 7;
        let moved = Box::new(buf);
        assert_eq!(moved[4095], 7);
    }
}
