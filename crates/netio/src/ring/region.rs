//! The memory of one ring, shared with a process that is not trusted: header words and data bytes.
//!
//! The other side may write anything anywhere at any time. So nothing here is ever borrowed as bytes: words are atomics,
//! copies go by relaxed atomic words, or by one string instruction that the compiler cannot look into. A copy of what
//! changes meanwhile is a mixture, never undefined. Positions in the data wrap around by a mask, so that none can point outside.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::mapping::Mapping;

/// What a header word says. Two cache lines lie between any two of them, since processors fetch lines in pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Bytes that the producer has written since the beginning.
    Head = 0,
    /// Not 0: the producer wants to hear of room.
    WantsRoom = 16,
    /// Bytes that the consumer has read since the beginning.
    Tail = 32,
    /// Whether the consumer is awake, one of the values in [`awake`].
    Awake = 48,
}

/// Values of [`Word::Awake`]; others mean nothing.
pub(super) mod awake {
    /// It polls.
    pub(crate) const POLLS: u64 = 0;
    /// It sleeps and wants to hear of frames.
    pub(crate) const SLEEPS: u64 = 1;
    /// It has gone for good.
    pub(crate) const GONE: u64 = 2;
}

/// Bytes before the data: a page.
pub(super) const HEADER_BYTES: usize = 4096;
const WORD_BYTES: usize = size_of::<u64>();
/// From this size on a copy is one string instruction. Below, its start costs more than it saves.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_BYTES: usize = 512;
/// Of a cache line.
const LINE_BYTES: usize = 64;

/// The memory of one ring.
pub(super) struct Region {
    base: NonNull<AtomicU64>,
    /// Bytes of data, a power of two.
    data_bytes: usize,
    _backing: Backing,
}

/// What lies behind a [`Region`], and goes with it.
#[allow(dead_code)] // Held, not used.
enum Backing {
    Mapped(Mapping),
    /// What tests play with, without a kernel.
    #[cfg(test)]
    Plain(std::sync::Arc<[AtomicU64]>),
}

// SAFETY: the memory is this Region's until it is dropped, whatever thread that is on, and all access to it is atomic.
unsafe impl Send for Region {}

impl Region {
    /// Bytes of the file behind a ring of `data_bytes`.
    pub(super) fn file_bytes(data_bytes: usize) -> usize {
        HEADER_BYTES + data_bytes
    }

    /// Maps a file, all pages at once. The caller has made sure that it has [`Region::file_bytes`] bytes and keeps them.
    pub(super) fn map(file: BorrowedFd<'_>, data_bytes: usize) -> io::Result<Self> {
        assert!(data_bytes.is_power_of_two() && data_bytes >= HEADER_BYTES, "checked where it is received");
        let mapping = Mapping::shared(file, Self::file_bytes(data_bytes), 0)?;
        Ok(Self { base: mapping.base().cast(), data_bytes, _backing: Backing::Mapped(mapping) })
    }

    /// Both sides of a ring, and the words of it for whoever plays the hostile peer.
    #[cfg(test)]
    pub(super) fn plain(data_bytes: usize) -> ([Self; 2], std::sync::Arc<[AtomicU64]>) {
        assert!(data_bytes.is_power_of_two(), "{data_bytes}");
        let words = Self::file_bytes(data_bytes) / WORD_BYTES;
        let words: std::sync::Arc<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let side = || Self {
            base: NonNull::new(words.as_ptr().cast_mut()).expect("not null"),
            data_bytes,
            _backing: Backing::Plain(words.clone()),
        };
        ([side(), side()], words)
    }

    pub(super) fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    #[inline]
    pub(super) fn header(&self, word: Word) -> &AtomicU64 {
        // SAFETY: every `Word` lies in the header, which is mapped and aligned for as long as `self` lives.
        unsafe { self.base.add(word as usize).as_ref() }
    }

    /// The word of data at a position, which is taken modulo the size and down to a whole word.
    #[inline]
    pub(super) fn word(&self, position: u64) -> &AtomicU64 {
        // SAFETY: it points to a word of the data, mapped and aligned for as long as `self` lives.
        unsafe { self.pointer(position).as_ref() }
    }

    /// The same as a pointer from which all data behind it may be reached.
    #[inline]
    fn pointer(&self, position: u64) -> NonNull<AtomicU64> {
        let at = position as usize & (self.data_bytes - 1);
        // SAFETY: `at` is less than the bytes of data, which follow the header.
        unsafe { self.base.add((HEADER_BYTES + at) / WORD_BYTES) }
    }

    /// The longest pieces of `bytes` bytes that do not wrap around: one at `position`, one at the start of the data.
    fn split(&self, position: u64, bytes: usize) -> usize {
        assert!(bytes <= self.data_bytes && position.is_multiple_of(WORD_BYTES as u64), "a frame in a ring");
        bytes.min(self.data_bytes - (position as usize & (self.data_bytes - 1)))
    }

    /// Copies into the data at a position, a multiple of 8. The last word is filled with zeroes.
    #[inline]
    pub(super) fn store(&self, position: u64, bytes: &[u8]) {
        let (first, second) = bytes.split_at(self.split(position, bytes.len()));
        self.store_piece(position, first);
        self.store_piece(position.wrapping_add(first.len() as u64), second);
    }

    /// The same past the caches, but for lines that are not written whole. Nothing of it is to be shown to the other side
    /// before [`end_streaming`].
    #[inline]
    pub(super) fn store_streaming(&self, position: u64, bytes: &[u8]) {
        let (first, second) = bytes.split_at(self.split(position, bytes.len()));
        self.stream_piece(position, first);
        self.stream_piece(position.wrapping_add(first.len() as u64), second);
    }

    #[inline]
    fn stream_piece(&self, position: u64, bytes: &[u8]) {
        // The data begin at a page, so positions are aligned as addresses are.
        let to_line = position.wrapping_neg() as usize % LINE_BYTES;
        let (head, rest) = bytes.split_at(to_line.min(bytes.len()));
        let (lines, tail) = rest.split_at(rest.len() / LINE_BYTES * LINE_BYTES);
        self.store_piece(position, head);
        let at = position.wrapping_add(head.len() as u64);
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        self.store_piece(at, lines);
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if !lines.is_empty() {
            // SAFETY: `bytes` does not wrap around, so its lines stay in the data; the instructions read and write just these, as
            // relaxed atomics would; `end_streaming` orders them before what shows them.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "movups {a}, [{from}]",
                    "movups {b}, [{from} + 16]",
                    "movups {c}, [{from} + 32]",
                    "movups {d}, [{from} + 48]",
                    "movntps [{to}], {a}",
                    "movntps [{to} + 16], {b}",
                    "movntps [{to} + 32], {c}",
                    "movntps [{to} + 48], {d}",
                    "add {from}, 64",
                    "add {to}, 64",
                    "dec {lines}",
                    "jnz 2b",
                    from = inout(reg) lines.as_ptr() => _,
                    to = inout(reg) self.pointer(at).as_ptr() => _,
                    lines = inout(reg) lines.len() / LINE_BYTES => _,
                    a = out(xmm_reg) _, b = out(xmm_reg) _, c = out(xmm_reg) _, d = out(xmm_reg) _,
                    options(nostack),
                );
            }
        }
        self.store_piece(at.wrapping_add(lines.len() as u64), tail);
    }

    #[inline]
    fn store_piece(&self, position: u64, bytes: &[u8]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if bytes.len() >= STRING_BYTES {
            let to = self.pointer(position).as_ptr();
            // SAFETY: `bytes` does not wrap around, so it stays in the data; the instruction reads and writes just these bytes, as
            // relaxed atomics would, and the direction flag is clear as the calling convention wants.
            unsafe {
                std::arch::asm!("rep movsb", inout("rcx") bytes.len() => _, inout("rdi") to => _,
                    inout("rsi") bytes.as_ptr() => _, options(nostack, preserves_flags));
            }
            return;
        }
        let mut words = bytes.chunks_exact(WORD_BYTES);
        let mut at = position;
        for word in &mut words {
            let value = u64::from_ne_bytes(word.try_into().expect("eight bytes"));
            self.word(at).store(value, Ordering::Relaxed);
            at = at.wrapping_add(WORD_BYTES as u64);
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            let mut last = [0; WORD_BYTES];
            last[..rest.len()].copy_from_slice(rest);
            self.word(at).store(u64::from_ne_bytes(last), Ordering::Relaxed);
        }
    }

    /// Copies out of the data at a position, a multiple of 8.
    #[inline]
    pub(super) fn load(&self, position: u64, bytes: &mut [u8]) {
        let (first, second) = bytes.split_at_mut(self.split(position, bytes.len()));
        self.load_piece(position, first);
        self.load_piece(position.wrapping_add(first.len() as u64), second);
    }

    #[inline]
    fn load_piece(&self, position: u64, bytes: &mut [u8]) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if bytes.len() >= STRING_BYTES {
            let from = self.pointer(position).as_ptr();
            // SAFETY: as in `store_piece`; `bytes` is ours alone.
            unsafe {
                std::arch::asm!("rep movsb", inout("rcx") bytes.len() => _, inout("rdi") bytes.as_mut_ptr() => _,
                    inout("rsi") from => _, options(nostack, preserves_flags));
            }
            return;
        }
        let mut at = position;
        let mut words = bytes.chunks_exact_mut(WORD_BYTES);
        for word in &mut words {
            word.copy_from_slice(&self.word(at).load(Ordering::Relaxed).to_ne_bytes());
            at = at.wrapping_add(WORD_BYTES as u64);
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            let last = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }
}

/// Everything that was streamed before is there for whoever sees what is written from now on.
#[inline]
pub(super) fn end_streaming() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a fence; every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_streamed_is_what_is_stored_and_nothing_beside_it_changes() {
        let bytes: Vec<u8> = (0..9000_u32).map(|at| (at * 7 + at / 256) as u8 | 1).collect();
        for (position, len) in [
            (0, 64),
            (8, 9000),
            (56, 72),
            (64, 63),
            (72, 128),
            (200, 4097),
            (16_384 - 8, 300),
            (16_384 - 4000, 9000),
        ] {
            let all_of = |write: fn(&Region, u64, &[u8])| {
                let ([region, _], _) = Region::plain(16_384);
                write(&region, position, &bytes[..len]);
                end_streaming();
                let mut all = vec![0; 16_384];
                region.load(0, &mut all);
                all
            };
            let (stored, streamed) = (all_of(Region::store), all_of(Region::store_streaming));
            assert!(stored == streamed, "{len} bytes at {position}");
            assert_eq!(streamed.iter().filter(|&&byte| byte != 0).count(), len, "{len} bytes at {position}");
        }
    }
}
