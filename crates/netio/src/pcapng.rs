//! The blocks of a pcapng file that a capture needs (IETF draft-ietf-opsawg-pcapng): Section Header, one Interface
//! Description, Enhanced Packets with time in ns and direction. Little-endian.

/// Which way a frame went (`epb_flags`, bits 0 and 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Inbound = 1,
    Outbound = 2,
}

const SECTION_HEADER: u32 = 0x0A0D_0D0A;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1A2B_3C4D;
const LINKTYPE_ETHERNET: u16 = 1;

const OPTION_END: u16 = 0;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const EPB_FLAGS: u16 = 2;
const SHB_USERAPPL: u16 = 4;

/// Bytes of an Enhanced Packet Block around a frame of `bytes`, the most there can be.
pub(crate) const fn packet_block_bytes(bytes: usize) -> usize {
    // Type, length, five words, data, epb_flags (8), end of options (4), length again.
    8 + 20 + bytes.next_multiple_of(4) + 8 + 4 + 4
}

/// Appends the blocks that every file starts with.
pub(crate) fn start(out: &mut Vec<u8>, interface: &str) {
    block(out, SECTION_HEADER, |out| {
        word(out, BYTE_ORDER_MAGIC);
        half(out, 1);
        half(out, 0);
        // Section length: not known ahead.
        out.extend_from_slice(&(-1_i64).to_le_bytes());
        option(out, SHB_USERAPPL, concat!("etherslot ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(out, OPTION_END, &[]);
    });
    block(out, INTERFACE_DESCRIPTION, |out| {
        half(out, LINKTYPE_ETHERNET);
        half(out, 0);
        // Snapshot length: no limit.
        word(out, 0);
        option(out, IF_NAME, interface.as_bytes());
        option(out, IF_TSRESOL, &[9]);
        option(out, OPTION_END, &[]);
    });
}

/// Appends one packet: an Ethernet header and its payload.
pub(crate) fn packet(
    out: &mut Vec<u8>,
    time_ns: u64,
    direction: Direction,
    header: &[u8; 14],
    payload: &[u8],
) {
    block(out, ENHANCED_PACKET, |out| {
        let bytes = (header.len() + payload.len()) as u32;
        word(out, 0);
        word(out, (time_ns >> 32) as u32);
        word(out, time_ns as u32);
        word(out, bytes);
        word(out, bytes);
        out.extend_from_slice(header);
        out.extend_from_slice(payload);
        pad(out, bytes as usize);
        option(out, EPB_FLAGS, &(direction as u32).to_le_bytes());
        option(out, OPTION_END, &[]);
    });
}

/// A block: its total length stands before and behind its body.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    word(out, kind);
    word(out, 0);
    body(out);
    let total = (out.len() - start + 4) as u32;
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
    word(out, total);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    half(out, code);
    half(out, value.len() as u16);
    out.extend_from_slice(value);
    pad(out, value.len());
}

fn pad(out: &mut Vec<u8>, bytes: usize) {
    out.extend_from_slice(&[0; 3][..bytes.next_multiple_of(4) - bytes]);
}

fn word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn half(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_block_is_as_long_as_foretold() {
        for bytes in [0, 1, 2, 3, 4, 1500, 9216] {
            let mut out = Vec::new();
            packet(&mut out, 0, Direction::Inbound, &[0; 14], &vec![0; bytes]);
            assert_eq!(out.len(), packet_block_bytes(14 + bytes));
        }
    }
}
