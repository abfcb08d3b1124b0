//! Keys as text: a word that says which kind of key it is, and 64 hexadecimal digits.

use std::fmt;

/// Writes 64 digits.
pub(crate) fn write(f: &mut fmt::Formatter<'_>, bytes: &[u8; 32]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Reads 64 digits.
pub(crate) fn read(digits: &str) -> Option<[u8; 32]> {
    let digits = digits.as_bytes();
    let mut bytes = [0; 32];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
    }
    Some(bytes)
}
