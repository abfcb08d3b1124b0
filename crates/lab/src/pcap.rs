//! Captures: those that tcpdump writes (classic pcap, either byte order, micro- or nanoseconds) are read and written, those of
//! nodes (pcapng, little-endian) are read.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// EtherType of Etherslot frames (IEEE 802, local experimental 1).
pub const ETHERTYPE: u16 = 0x88B5;
const FILE_HEADER_BYTES: usize = 24;
const RECORD_HEADER_BYTES: usize = 16;
const ETHERTYPE_AT: usize = 12;
const LINKTYPE_ETHERNET: u32 = 1;

/// Frames by EtherType.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames of each EtherType; what is too short to have one is under 0.
    pub by_ethertype: BTreeMap<u16, u64>,
}

impl Tally {
    /// All frames.
    pub fn frames(&self) -> u64 {
        self.by_ethertype.values().sum()
    }

    /// Frames that are not Etherslot's.
    pub fn foreign(&self) -> u64 {
        self.frames() - self.by_ethertype.get(&ETHERTYPE).copied().unwrap_or(0)
    }
}

/// Counts the frames in a capture file. A record cut short by the end of the file is not counted.
pub fn tally(path: &Path) -> Result<Tally> {
    let bytes = fs::read(path).map_err(Error::io(format!("read {}", path.display())))?;
    tally_bytes(&bytes)
        .ok_or_else(|| Error::unexpected(format!("read {}", path.display()), "not a pcap file of Ethernet"))
}

fn tally_bytes(bytes: &[u8]) -> Option<Tally> {
    let little = match bytes.get(..4)? {
        [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => true,
        [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => false,
        _ => return None,
    };
    let word = |at: usize| -> Option<u32> {
        let field: [u8; 4] = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if little { u32::from_le_bytes(field) } else { u32::from_be_bytes(field) })
    };
    if word(20)? & 0xffff != LINKTYPE_ETHERNET {
        return None;
    }
    let mut tally = Tally::default();
    let mut at = FILE_HEADER_BYTES;
    while let Some(captured_bytes) = word(at + 8) {
        let start = at + RECORD_HEADER_BYTES;
        let Some(frame) = bytes.get(start..start.saturating_add(captured_bytes as usize)) else { break };
        let ethertype = frame
            .get(ETHERTYPE_AT..ETHERTYPE_AT + 2)
            .map_or(0, |field| u16::from_be_bytes([field[0], field[1]]));
        *tally.by_ethertype.entry(ethertype).or_default() += 1;
        at = start + frame.len();
    }
    Some(tally)
}

/// The frames in a capture file of a node's, with their Ethernet headers. One cut short by the end of the file is left out.
pub fn captured_frames(path: &Path) -> Result<Vec<Vec<u8>>> {
    const ENHANCED_PACKET: usize = 6;
    const PACKET_AT: usize = 28;
    let bytes = fs::read(path).map_err(Error::io(format!("read {}", path.display())))?;
    let word = |at: usize| -> Option<usize> {
        Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?) as usize)
    };
    let (mut frames, mut at) = (Vec::new(), 0);
    while let (Some(kind), Some(length)) = (word(at), word(at + 4).filter(|&length| length >= 12)) {
        if kind == ENHANCED_PACKET
            && let Some(captured_bytes) = word(at + 20)
            && let Some(frame) = bytes.get(at + PACKET_AT..(at + PACKET_AT).saturating_add(captured_bytes))
        {
            frames.push(frame.to_vec());
        }
        at = at.saturating_add(length);
    }
    Ok(frames)
}

/// Writes whole Ethernet frames to a classic pcap file, a microsecond apart.
pub fn write_pcap<'a>(path: &Path, frames: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
    let mut out = Vec::new();
    // Magic, version 2.4, no zone, no accuracy, longest frame, link type.
    for word in [0xA1B2_C3D4, 0x0004_0002, 0, 0, 65_535, LINKTYPE_ETHERNET] {
        out.extend_from_slice(&u32::to_le_bytes(word));
    }
    for (place, frame) in frames.into_iter().enumerate() {
        let (seconds, micros) = (place / 1_000_000, place % 1_000_000);
        for word in [seconds, micros, frame.len(), frame.len()] {
            out.extend_from_slice(&(word as u32).to_le_bytes());
        }
        out.extend_from_slice(frame);
    }
    fs::write(path, out).map_err(Error::io(format!("write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::{ETHERTYPE, tally_bytes};

    fn file(frames: &[&[u8]]) -> Vec<u8> {
        let mut bytes = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0];
        bytes.extend([0; 12]);
        bytes.extend(1u32.to_le_bytes());
        for frame in frames {
            bytes.extend([0; 8]);
            bytes.extend((frame.len() as u32).to_le_bytes());
            bytes.extend((frame.len() as u32).to_le_bytes());
            bytes.extend(*frame);
        }
        bytes
    }

    #[test]
    fn frames_are_counted_by_ethertype_and_strangers_are_told_apart() {
        let mut ours = [0u8; 60];
        ours[12..14].copy_from_slice(&ETHERTYPE.to_be_bytes());
        let mut arp = [0u8; 42];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        let tally = tally_bytes(&file(&[&ours, &arp, &ours, &[1, 2]])).unwrap();
        assert_eq!((tally.frames(), tally.foreign()), (4, 2));
    }

    #[test]
    fn a_record_cut_short_ends_the_count_and_other_files_are_refused() {
        let mut bytes = file(&[&[0; 60], &[0; 60]]);
        bytes.truncate(bytes.len() - 1);
        assert_eq!(tally_bytes(&bytes).unwrap().frames(), 1);
        assert_eq!(tally_bytes(b"not a capture"), None);
        assert_eq!(tally_bytes(&[]), None);
    }
}
