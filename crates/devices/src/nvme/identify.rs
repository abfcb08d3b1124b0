//! The data structures of Identify (NVMe Base 1.4, 5.15.2).

use super::bits::{PAGE_BYTES, VERSION};
use super::events::{LIMIT, NAMESPACE_NOTICES};
use super::features::WARNING_KELVIN;
use super::identity::Identity;
use super::logs::ERROR_ENTRIES;
use super::namespace::Active;
use crate::ids;
use crate::ids::OUI;

/// Size of every one.
pub(crate) const BYTES: usize = 4096;

/// The controller's ID within its subsystem, where it is alone.
pub(crate) const CONTROLLER_ID: u16 = 1;

/// OACS: Format NVM.
const OACS: u16 = 1 << 1;
/// LPA: Commands Supported and Effects; offsets and 32-bit lengths in Get Log Page.
const LPA: u8 = 1 << 1 | 1 << 2;
/// ONCS: Compare, Dataset Management, Write Zeroes, Save and Select, Timestamp, Verify.
const ONCS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7;
/// VWC: present; Flush of all namespaces works.
const VWC: u8 = 1 | 3 << 1;
/// SGLS: of any alignment; Bit Bucket; longer than the data.
const SGLS: u32 = 1 | 1 << 16 | 1 << 18;
/// CTRATT: 128-bit Host Identifier.
const CTRATT: u32 = 1;

struct Fields<'a>(&'a mut [u8]);

impl Fields<'_> {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

/// CNS 01h: the controller (Figure 247).
pub(crate) fn controller(data: &mut [u8], identity: &Identity, max_transfer: usize, namespaces: &[Active]) {
    let capacity: u128 = namespaces.iter().map(|namespace| u128::from(namespace.info.bytes)).sum();
    let mut fields = Fields(data);
    fields.put(0, &ids::VENDOR.to_le_bytes());
    fields.put(2, &ids::VENDOR.to_le_bytes());
    fields.put(4, &identity.serial);
    fields.put(24, &identity.model);
    fields.put(64, &identity.firmware);
    fields.put(72, &[5]); // RAB: bursts of 32
    fields.put(73, &[OUI[2], OUI[1], OUI[0]]); // IEEE, the least significant byte first
    let mdts = (max_transfer / PAGE_BYTES as usize).ilog2() as u8;
    fields.put(77, &[mdts]);
    fields.put(78, &CONTROLLER_ID.to_le_bytes());
    fields.put(80, &VERSION.to_le_bytes());
    fields.put(84, &1_000_000u32.to_le_bytes()); // RTD3R, us
    fields.put(88, &10_000_000u32.to_le_bytes()); // RTD3E, us: Linux waits so long for a shutdown
    fields.put(92, &NAMESPACE_NOTICES.to_le_bytes()); // OAES
    fields.put(96, &CTRATT.to_le_bytes());
    fields.put(111, &[1]); // CNTRLTYPE: I/O controller
    fields.put(253, &[1]); // NVMSR: part of a storage device
    fields.put(256, &OACS.to_le_bytes());
    fields.put(258, &[3]); // ACL, 0's based
    fields.put(259, &[LIMIT as u8 - 1]); // AERL, 0's based
    fields.put(260, &[1 | 1 << 1]); // FRMW: one slot, read-only
    fields.put(261, &[LPA]);
    fields.put(262, &[ERROR_ENTRIES as u8 - 1]); // ELPE, 0's based
    fields.put(266, &WARNING_KELVIN.to_le_bytes()); // WCTEMP
    fields.put(268, &(WARNING_KELVIN + 10).to_le_bytes()); // CCTEMP
    fields.put(280, &capacity.to_le_bytes()); // TNVMCAP
    fields.put(512, &[0x66, 0x44]); // SQES, CQES: 64 and 16 bytes
    fields.put(516, &(namespaces.len() as u32).to_le_bytes()); // NN
    fields.put(520, &ONCS.to_le_bytes());
    fields.put(525, &[VWC]);
    fields.put(536, &SGLS.to_le_bytes());
    fields.put(768, identity.nqn.as_bytes()); // SUBNQN, NUL-terminated
    fields.put(2048, &2500u16.to_le_bytes()); // PSD0.MP, in units of 10 mW
}

/// CNS 00h and 11h: a namespace (Figure 245).
pub(crate) fn namespace(data: &mut [u8], namespace: &Active) {
    let mut fields = Fields(data);
    for at in [0, 8, 16] {
        fields.put(at, &namespace.blocks().to_le_bytes()); // NSZE, NCAP, NUSE
    }
    let formats = namespace.formats();
    fields.put(25, &[formats.len() as u8 - 1]); // NLBAF, 0's based
    fields.put(26, &[namespace.format()]); // FLBAS
    // DLFEAT: Write Zeroes may deallocate; deallocated blocks read as zeros.
    let reads_as = u8::from(namespace.info.discard_zeroes);
    fields.put(33, &[1 << 3 | reads_as]);
    fields.put(48, &u128::from(namespace.info.bytes).to_le_bytes()); // NVMCAP
    fields.put(99, &[u8::from(namespace.info.read_only)]); // NSATTR: write protected
    fields.put(104, &namespace.ids.nguid);
    fields.put(120, &namespace.ids.eui64);
    for (at, lbads) in formats.iter().enumerate() {
        // Relative Performance: the larger block is the better one.
        let relative = u8::from(at + 1 < formats.len());
        fields.put(128 + at * 4, &[0, 0, *lbads, relative]);
    }
}

/// CNS 02h and 10h: namespaces above `nsid`, ascending.
pub(crate) fn namespace_list(data: &mut [u8], nsid: u32, namespaces: usize) {
    for (nsid, place) in (nsid + 1..=namespaces as u32).zip(data.chunks_exact_mut(4)) {
        place.copy_from_slice(&nsid.to_le_bytes());
    }
}

/// CNS 03h: Namespace Identification Descriptors (Figure 246).
pub(crate) fn descriptors(data: &mut [u8], namespace: &Active) {
    let mut fields = Fields(data);
    fields.put(0, &[1, 8]);
    fields.put(4, &namespace.ids.eui64);
    fields.put(12, &[2, 16]);
    fields.put(16, &namespace.ids.nguid);
    fields.put(32, &[3, 16]);
    fields.put(36, &namespace.ids.uuid);
}

/// CNS 12h and 13h: controllers from `from` on (Figure 251).
pub(crate) fn controller_list(data: &mut [u8], from: u16) {
    if from <= CONTROLLER_ID {
        Fields(data).put(0, &1u16.to_le_bytes());
        Fields(data).put(2, &CONTROLLER_ID.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::NamespaceIds;
    use super::super::namespace::Namespace;
    use super::*;
    use etherslot_storage::memory::{Disk, Options};

    fn active(block_bytes: u32, medium_block: u32) -> Active {
        let disk = Disk::new(Options { block_bytes: medium_block, bytes: 1 << 20, ..Options::default() });
        let namespace = Namespace::new(Box::new(disk.medium()), block_bytes);
        assert!(namespace.is_valid());
        Active::new(namespace, NamespaceIds { eui64: [1; 8], nguid: [2; 16], uuid: [3; 16] }, 4)
    }

    fn le(data: &[u8], at: usize, bytes: usize) -> u64 {
        (0..bytes).map(|index| u64::from(data[at + index]) << (8 * index)).sum()
    }

    #[test]
    fn the_controller_is_described_byte_by_byte() {
        let mut data = vec![0; BYTES];
        let identity = Identity::new("SER", "Model", "1.0");
        controller(&mut data, &identity, 1 << 20, &[active(512, 512), active(4096, 512)]);
        let le = |at, bytes| le(&data, at, bytes);
        assert_eq!((le(0, 2), le(2, 2)), (0xe510, 0xe510), "VID, SSVID");
        assert_eq!(&data[4..9], b"SER  ");
        assert_eq!(&data[24..30], b"Model ");
        assert_eq!(&data[64..72], b"1.0     ");
        assert_eq!(data[77], 8, "MDTS: 256 pages");
        assert_eq!(le(78, 2), 1, "CNTLID");
        assert_eq!(le(80, 4), 0x0001_0400, "VER");
        assert_eq!(le(92, 4), 0x100, "OAES");
        assert_eq!(data[111], 1, "CNTRLTYPE");
        assert_eq!(le(256, 2), 2, "OACS");
        assert_eq!((data[258], data[259], data[260], data[261], data[262]), (3, 3, 3, 6, 63));
        assert_eq!(data[263], 0, "NPSS");
        assert_eq!(data[265], 0, "APSTA");
        assert_eq!((le(266, 2), le(268, 2)), (343, 353));
        assert_eq!((le(272, 4), le(320, 2)), (0, 0), "HMPRE, KAS");
        assert_eq!(le(280, 8), 2 << 20, "TNVMCAP");
        assert_eq!((data[512], data[513]), (0x66, 0x44));
        assert_eq!(le(516, 4), 2, "NN");
        assert_eq!(le(520, 2), 0xdd, "ONCS");
        assert_eq!((data[524], data[525]), (0, 7), "FNA, VWC");
        assert_eq!(le(536, 4), 0x0005_0001, "SGLS");
        assert!(data[768..].starts_with(b"nqn.2014-08.org.nvmexpress:uuid:"));
        assert_eq!(data[768 + identity.nqn.len()], 0);
    }

    #[test]
    fn a_namespace_is_described_byte_by_byte() {
        let mut data = vec![0; BYTES];
        namespace(&mut data, &active(4096, 512));
        assert_eq!([le(&data, 0, 8), le(&data, 8, 8), le(&data, 16, 8)], [256; 3]);
        assert_eq!((data[24], data[25], data[26]), (0, 1, 1), "NSFEAT, NLBAF, FLBAS");
        assert_eq!(data[33], 9, "DLFEAT");
        assert_eq!(data[99], 0, "NSATTR");
        assert_eq!((&data[104..120], &data[120..128]), (&[2; 16][..], &[1; 8][..]));
        assert_eq!(data[128..136], [0, 0, 9, 1, 0, 0, 12, 0], "LBAF0, LBAF1");
        let mut data = vec![0; BYTES];
        namespace(&mut data, &active(4096, 4096));
        assert_eq!((data[25], data[26]), (0, 0), "a medium of 4096-byte blocks has one format");
        assert_eq!(data[128..132], [0, 0, 12, 0]);
    }

    #[test]
    fn lists_go_on_from_where_they_are_asked() {
        let mut data = vec![0; BYTES];
        namespace_list(&mut data, 1, 3);
        assert_eq!(data[..12], [2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        let mut data = vec![0; BYTES];
        controller_list(&mut data, 0);
        assert_eq!(data[..4], [1, 0, 1, 0]);
        let mut data = vec![0; BYTES];
        controller_list(&mut data, 2);
        assert_eq!(data[..4], [0; 4]);
        let mut data = vec![0; BYTES];
        descriptors(&mut data, &active(512, 512));
        assert_eq!(data[..4], [1, 8, 0, 0]);
        assert_eq!(data[12..16], [2, 16, 0, 0]);
        assert_eq!(data[32..37], [3, 16, 0, 0, 3]);
        assert_eq!(data[52], 0, "the end");
    }
}
