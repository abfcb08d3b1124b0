//! Checksums and hashes over frames: the Internet checksum (RFC 1071), SCTP's CRC-32C (RFC 9260), Ethernet's FCS, and the Toeplitz hash of RSS
//! (82576 datasheet, 7.1.2.7).

/// Adds the 16-bit words of `data` to a sum that is not folded yet; an odd last byte is the upper half of a word.
pub(crate) fn add(sum: u64, data: &[u8]) -> u64 {
    let mut words = data.chunks_exact(2);
    let whole = words.by_ref().map(|word| u64::from(u16::from_be_bytes([word[0], word[1]]))).sum::<u64>();
    sum + whole + words.remainder().first().map_or(0, |&last| u64::from(last) << 8)
}

/// The one's complement sum in 16 bits.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The checksum of `data`, of which the field itself is 0 or a sum to begin with.
pub(crate) fn internet(data: &[u8]) -> u16 {
    !fold(add(0, data))
}

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            value = value >> 1 ^ if value & 1 != 0 { polynomial } else { 0 };
            bit += 1;
        }
        table[byte] = value;
        byte += 1;
    }
    table
}

static CRC32: [u32; 256] = table(0xedb8_8320);
static CRC32C: [u32; 256] = table(0x82f6_3b78);

fn crc(table: &[u32; 256], data: &[u8]) -> u32 {
    !data.iter().fold(u32::MAX, |crc, &byte| crc >> 8 ^ table[((crc ^ u32::from(byte)) & 0xff) as usize])
}

/// The FCS of a frame; its lowest byte goes first.
pub(crate) fn ethernet(frame: &[u8]) -> u32 {
    crc(&CRC32, frame)
}

/// The checksum of an SCTP packet whose own field is 0; its lowest byte goes first.
pub(crate) fn sctp(packet: &[u8]) -> u32 {
    crc(&CRC32C, packet)
}

/// The Toeplitz hash of `input` under `key`, which is longer than it by 32 bits.
pub(crate) fn toeplitz(key: &[u8; 40], input: &[u8]) -> u32 {
    let mut hash = 0;
    let mut window = u64::from_be_bytes(*key.first_chunk().expect("8 bytes"));
    for (at, &byte) in input.iter().enumerate() {
        for bit in (0..8).rev() {
            if byte >> bit & 1 != 0 {
                hash ^= (window >> 32) as u32;
            }
            window <<= 1;
        }
        window |= u64::from(key.get(at + 8).copied().unwrap_or(0));
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_internet_checksum_is_that_of_rfc_1071() {
        let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(fold(add(0, &data)), 0xddf2);
        assert_eq!(internet(&[0xff]), !0xff00);
        assert_eq!(fold(u64::MAX), 0xffff);
    }

    #[test]
    fn crcs_have_the_check_values_of_their_catalogue() {
        assert_eq!(ethernet(b"123456789"), 0xcbf4_3926);
        assert_eq!(sctp(b"123456789"), 0xe306_9283);
    }

    /// The verification suite of RSS: addresses and ports, the hash over both, and that over the addresses alone.
    #[test]
    fn toeplitz_hashes_are_those_of_the_verification_suite() {
        const KEY: [u8; 40] = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
            0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
            0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        for (source, target, ports, all, addresses) in [
            ([66, 9, 149, 187], [161, 142, 100, 80], (2794u16, 1766u16), 0x51cc_c178u32, 0x323e_8fc2u32),
            ([199, 92, 111, 2], [65, 69, 140, 83], (14230, 4739), 0xc626_b0ea, 0xd718_262a),
            ([24, 19, 198, 95], [12, 22, 207, 184], (12898, 38024), 0x5c2b_394a, 0xd2d0_a5de),
            ([38, 27, 205, 30], [209, 142, 163, 6], (48228, 2217), 0xafc7_327f, 0x8298_9176),
            ([153, 39, 163, 191], [202, 188, 127, 2], (44251, 1303), 0x10e8_28a2, 0x5d18_09c5),
        ] {
            let mut input = [source, target].concat();
            assert_eq!(toeplitz(&KEY, &input), addresses);
            input.extend(ports.0.to_be_bytes());
            input.extend(ports.1.to_be_bytes());
            assert_eq!(toeplitz(&KEY, &input), all);
        }
    }
}
