//! Copies between guest memory and ours.
//!
//! The guest's side is touched only by naturally aligned atomic accesses of up to 8 bytes, in increasing address order:
//! that is what 2.4.3 of the PCIe specification asks of a Completer (a driver may look at the last bytes of a
//! completion entry and trust the ones before), it is no data race in the language's sense, and the compiler
//! can't read a byte twice. A `memcpy` promises none of the three.
// The guest's side is cast to wider types only where it is aligned to them; ours is accessed unaligned.
#![allow(clippy::cast_ptr_alignment)]

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

const WORD_BYTES: usize = 8;

/// The largest naturally aligned access, at most a word, that starts at `address` and stays within `bytes`.
#[inline]
fn piece_bytes(address: usize, bytes: usize) -> usize {
    let aligned = 1 << (address | WORD_BYTES).trailing_zeros();
    let fitting = 1 << bytes.min(WORD_BYTES).ilog2();
    usize::min(aligned, fitting)
}

/// Writes `data` to guest memory from `to` on, visible after everything written before and in increasing address order.
///
/// # Safety
/// `to` must be the start of `data.len()` bytes of a live, writable, shared mapping that no reference points into.
#[inline]
pub unsafe fn store(to: *mut u8, data: &[u8]) {
    let mut at = 0;
    while at < data.len() {
        let left = data.len() - at;
        // SAFETY: `at` is less than the length both sides have.
        let (guest, ours) = unsafe { (to.add(at), data.as_ptr().add(at)) };
        let bytes = piece_bytes(guest as usize, left);
        // The stores are releases so that their order is the program's on every architecture; they cost nothing on x86-64.
        match bytes {
            8 => {
                let words = left / WORD_BYTES;
                for word in 0..words {
                    // SAFETY: `words` whole words are left on both sides; the guest's is aligned to one.
                    unsafe {
                        let value = ours.cast::<u64>().add(word).read_unaligned();
                        AtomicU64::from_ptr(guest.cast::<u64>().add(word)).store(value, Ordering::Release);
                    }
                }
                at += words * WORD_BYTES;
                continue;
            }
            4 => {
                // SAFETY: 4 bytes are left on both sides; the guest's are aligned.
                unsafe {
                    let value = ours.cast::<u32>().read_unaligned();
                    AtomicU32::from_ptr(guest.cast()).store(value, Ordering::Release);
                }
            }
            2 => {
                // SAFETY: 2 bytes are left on both sides; the guest's are aligned.
                unsafe {
                    let value = ours.cast::<u16>().read_unaligned();
                    AtomicU16::from_ptr(guest.cast()).store(value, Ordering::Release);
                }
            }
            _ => {
                // SAFETY: a byte is left on both sides.
                unsafe { AtomicU8::from_ptr(guest).store(*ours, Ordering::Release) }
            }
        }
        at += bytes;
    }
}

/// Reads guest memory from `from` on into `data`; nothing that follows in the program is done before it.
///
/// # Safety
/// `from` must be the start of `data.len()` bytes of a live, readable, shared mapping that no reference points into.
#[inline]
pub unsafe fn load(from: *const u8, data: &mut [u8]) {
    let mut at = 0;
    while at < data.len() {
        let left = data.len() - at;
        // SAFETY: `at` is less than the length both sides have.
        let (guest, ours) = unsafe { (from.add(at).cast_mut(), data.as_mut_ptr().add(at)) };
        let bytes = piece_bytes(guest as usize, left);
        match bytes {
            8 => {
                let words = left / WORD_BYTES;
                for word in 0..words {
                    // SAFETY: `words` whole words are left on both sides; the guest's is aligned to one.
                    unsafe {
                        let value =
                            AtomicU64::from_ptr(guest.cast::<u64>().add(word)).load(Ordering::Relaxed);
                        ours.cast::<u64>().add(word).write_unaligned(value);
                    }
                }
                at += words * WORD_BYTES;
                continue;
            }
            4 => {
                // SAFETY: 4 bytes are left on both sides; the guest's are aligned.
                unsafe {
                    let value = AtomicU32::from_ptr(guest.cast()).load(Ordering::Relaxed);
                    ours.cast::<u32>().write_unaligned(value);
                }
            }
            2 => {
                // SAFETY: 2 bytes are left on both sides; the guest's are aligned.
                unsafe {
                    let value = AtomicU16::from_ptr(guest.cast()).load(Ordering::Relaxed);
                    ours.cast::<u16>().write_unaligned(value);
                }
            }
            _ => {
                // SAFETY: a byte is left on both sides.
                unsafe { *ours = AtomicU8::from_ptr(guest).load(Ordering::Relaxed) }
            }
        }
        at += bytes;
    }
    fence(Ordering::Acquire);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn pieces_are_the_largest_that_alignment_and_length_allow() {
        for (address, bytes, piece) in
            [(0, 8, 8), (0, 7, 4), (4, 8, 4), (2, 8, 2), (1, 8, 1), (8, 3, 2), (16, 1, 1), (24, 100, 8)]
        {
            assert_eq!(piece_bytes(address, bytes), piece, "{address} {bytes}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_at_any_alignment_come_back(data in prop::collection::vec(any::<u8>(), 0..600), shift in 0usize..16) {
            let mut memory = vec![0xa5u8; data.len() + 32];
            // SAFETY: the range lies within the vector; no reference to it is alive during the calls.
            unsafe { store(memory.as_mut_ptr().add(shift), &data) };
            prop_assert_eq!(&memory[shift..shift + data.len()], &data[..]);
            prop_assert!(memory[..shift].iter().chain(&memory[shift + data.len()..]).all(|&byte| byte == 0xa5));
            let mut back = vec![0; data.len()];
            // SAFETY: as above.
            unsafe { load(memory.as_ptr().add(shift), &mut back) };
            prop_assert_eq!(back, data);
        }
    }
}
