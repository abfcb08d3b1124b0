//! Packets and the beats of 8 bytes that they are on a stream.

/// A beat of a stream: data, keep, last.
pub(crate) fn beat(bytes: &[u8], at: usize) -> (u64, u8, u8) {
    let end = bytes.len().min(at + 8);
    let mut word = [0; 8];
    word[..end - at].copy_from_slice(&bytes[at..end]);
    (u64::from_le_bytes(word), u8::MAX >> (8 - (end - at)), u8::from(end == bytes.len()))
}

/// The bytes of a beat behind those before it.
pub(crate) fn take(data: u64, keep: u8, out: &mut Vec<u8>) {
    assert_eq!(keep, u8::MAX >> keep.leading_zeros(), "tkeep has a hole");
    out.extend_from_slice(&data.to_le_bytes()[..8 - keep.leading_zeros() as usize]);
}
