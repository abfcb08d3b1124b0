//! Copies between guest memory and ours.
//!
//! The guest's side is touched only by naturally aligned atomic accesses, in increasing address order, of up to 8 bytes, or of 16 (`wide`):
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

/// Words to be copied before the next look: as far as wide accesses can begin, or all.
#[inline]
fn words(address: usize, bytes: usize) -> usize {
    let is_wide_next =
        address % 16 == WORD_BYTES && wide::is_good_for(address + WORD_BYTES, bytes - WORD_BYTES);
    if is_wide_next { 1 } else { bytes / WORD_BYTES }
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
        if wide::is_good_for(guest as usize, left) {
            let pieces = left / wide::BYTES;
            // SAFETY: so much is left on both sides; the guest's is aligned.
            unsafe { wide::store(guest, ours, pieces) };
            at += pieces * wide::BYTES;
            continue;
        }
        let bytes = piece_bytes(guest as usize, left);
        // The stores are releases so that their order is the program's on every architecture; they cost nothing on x86-64.
        match bytes {
            8 => {
                let words = words(guest as usize, left);
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
        if wide::is_good_for(guest as usize, left) {
            let pieces = left / wide::BYTES;
            // SAFETY: so much is left on both sides; the guest's is aligned.
            unsafe { wide::load(guest, ours, pieces) };
            at += pieces * wide::BYTES;
            continue;
        }
        let bytes = piece_bytes(guest as usize, left);
        match bytes {
            8 => {
                let words = words(guest as usize, left);
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

/// Accesses of 16 bytes, four at a time. Processors with AVX make aligned ones atomic (Intel SDM volume 3A, 9.1.1; AMD APM volume 2, 7.3.2),
/// and x86-64 shows stores in the order of the program. The language has no such accesses; a block of assembly is opaque to it.
#[cfg(target_arch = "x86_64")]
mod wide {
    use std::arch::asm;

    /// What is copied at a time.
    pub(super) const BYTES: usize = 64;

    /// Whether a copy of so many bytes begins with wide accesses.
    #[inline]
    pub(super) fn is_good_for(address: usize, bytes: usize) -> bool {
        bytes >= BYTES && address.is_multiple_of(16) && is_x86_feature_detected!("avx")
    }

    /// Copies `pieces` times [`BYTES`] bytes to guest memory.
    ///
    /// # Safety
    /// Both sides have as much, `pieces` is not 0, and `guest` is a multiple of 16.
    #[inline]
    pub(super) unsafe fn store(guest: *mut u8, ours: *const u8, pieces: usize) {
        // SAFETY: what is read and written is what the caller says is there.
        unsafe {
            asm!(
                "2:",
                "movups {a}, [{ours}]",
                "movups {b}, [{ours} + 16]",
                "movups {c}, [{ours} + 32]",
                "movups {d}, [{ours} + 48]",
                "movaps [{guest}], {a}",
                "movaps [{guest} + 16], {b}",
                "movaps [{guest} + 32], {c}",
                "movaps [{guest} + 48], {d}",
                "add {ours}, 64",
                "add {guest}, 64",
                "dec {pieces}",
                "jnz 2b",
                ours = inout(reg) ours => _,
                guest = inout(reg) guest => _,
                pieces = inout(reg) pieces => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }

    /// Copies `pieces` times [`BYTES`] bytes from guest memory.
    ///
    /// # Safety
    /// Both sides have as much, `pieces` is not 0, and `guest` is a multiple of 16.
    #[inline]
    pub(super) unsafe fn load(guest: *const u8, ours: *mut u8, pieces: usize) {
        // SAFETY: what is read and written is what the caller says is there.
        unsafe {
            asm!(
                "2:",
                "movaps {a}, [{guest}]",
                "movaps {b}, [{guest} + 16]",
                "movaps {c}, [{guest} + 32]",
                "movaps {d}, [{guest} + 48]",
                "movups [{ours}], {a}",
                "movups [{ours} + 16], {b}",
                "movups [{ours} + 32], {c}",
                "movups [{ours} + 48], {d}",
                "add {ours}, 64",
                "add {guest}, 64",
                "dec {pieces}",
                "jnz 2b",
                ours = inout(reg) ours => _,
                guest = inout(reg) guest => _,
                pieces = inout(reg) pieces => _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack),
            );
        }
    }
}

/// Other processors have none.
#[cfg(not(target_arch = "x86_64"))]
mod wide {
    pub(super) const BYTES: usize = 64;

    pub(super) fn is_good_for(_address: usize, _bytes: usize) -> bool {
        false
    }

    pub(super) unsafe fn store(_guest: *mut u8, _ours: *const u8, _pieces: usize) {}

    pub(super) unsafe fn load(_guest: *const u8, _ours: *mut u8, _pieces: usize) {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;

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

    #[test]
    fn who_sees_a_byte_sees_all_in_front_of_it() {
        const WORDS: usize = 300;
        // Behind a word, so that the copy begins with one and goes on with wide accesses.
        let memory: Vec<AtomicU64> = (0..=WORDS).map(|_| AtomicU64::new(0)).collect();
        let is_over = AtomicBool::new(false);
        let mut wrong = None;
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut round = 0_u64;
                while !is_over.load(Ordering::Acquire) {
                    round += 1;
                    let data: Vec<u8> = round.to_le_bytes().repeat(WORDS);
                    // SAFETY: as much is there, of atomics that nobody has an exclusive reference to.
                    unsafe { store(memory[1].as_ptr().cast(), &data) };
                }
            });
            // Until enough was seen, however seldom this thread or the other runs.
            let (mut at, mut looks, mut seen) = (0, 0, 0);
            while wrong.is_none() && (looks < 100_000 || seen < 10_000) {
                at = (at + 37) % WORDS;
                let late = memory[1 + at].load(Ordering::Acquire);
                let early = memory[1 + at / 2].load(Ordering::Acquire);
                wrong = (early < late).then_some((early, late));
                (looks, seen) = (looks + 1, seen.max(late));
            }
            is_over.store(true, Ordering::Release);
        });
        assert_eq!(wrong, None, "a word in front of one that was written later");
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
