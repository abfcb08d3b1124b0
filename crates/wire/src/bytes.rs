//! Reading and writing of integers at fixed offsets. All multi-byte fields of Etherslot are big-endian, as PCIe's are.

/// The `N` bytes at `at`, or `None` if `bytes` ends before.
#[inline]
pub fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The big-endian 16-bit value at `at`.
#[inline]
pub fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array(bytes, at).map(u16::from_be_bytes)
}

/// The big-endian 32-bit value at `at`.
#[inline]
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array(bytes, at).map(u32::from_be_bytes)
}

/// The big-endian 64-bit value at `at`.
#[inline]
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array(bytes, at).map(u64::from_be_bytes)
}

/// Writes `value` at `at`; `None` (and nothing written) if it does not fit.
#[inline]
pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(at..at.checked_add(value.len())?)?.copy_from_slice(value);
    Some(())
}
