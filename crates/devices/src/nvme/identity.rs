//! Who the controller is: its names, and the identifiers derived from them.
//!
//! The same serial number gives the same identifiers for ever: udev links, multipath and the duplicate check of Linux
//! depend on them.

use crate::ids::{OUI, hash, padded};

/// Names and identifiers of a controller.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    /// Padded with spaces, as Identify shows them.
    pub(crate) serial: [u8; 20],
    pub(crate) model: [u8; 40],
    pub(crate) firmware: [u8; 8],
    /// NVM Subsystem NVMe Qualified Name (7.9).
    pub(crate) nqn: String,
    key: String,
}

/// A UUID made of a hash: version 8 (custom) of RFC 9562, in its variant.
fn uuid(parts: &[&[u8]]) -> [u8; 16] {
    let mut uuid = hash(parts);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// Identifiers of a namespace (5.15.2.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamespaceIds {
    /// IEEE Extended Unique Identifier.
    pub(crate) eui64: [u8; 8],
    /// Namespace Globally Unique Identifier.
    pub(crate) nguid: [u8; 16],
    /// Namespace UUID. Linux warns where there is none.
    pub(crate) uuid: [u8; 16],
}

impl Identity {
    pub(crate) fn new(serial: &str, model: &str, firmware: &str) -> Self {
        let uuid = uuid(&[b"subsystem", serial.as_bytes()]);
        let mut nqn = String::from("nqn.2014-08.org.nvmexpress:uuid:");
        for (at, byte) in uuid.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                nqn.push('-');
            }
            for nibble in [byte >> 4, byte & 15] {
                nqn.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
            }
        }
        Self {
            serial: padded(serial),
            model: padded(model),
            firmware: padded(firmware),
            nqn,
            key: serial.to_owned(),
        }
    }

    /// All identifiers of a namespace.
    pub(crate) fn namespace_ids(&self, nsid: u32) -> NamespaceIds {
        let uuid = uuid(&[b"uuid", self.key.as_bytes(), &nsid.to_be_bytes()]);
        NamespaceIds { eui64: self.eui64(nsid), nguid: self.nguid(nsid), uuid }
    }

    /// EUI-64 of a namespace: OUI and extension.
    fn eui64(&self, nsid: u32) -> [u8; 8] {
        let hash = hash(&[b"eui64", self.key.as_bytes(), &nsid.to_be_bytes()]);
        let mut id = [0; 8];
        id[..3].copy_from_slice(&OUI);
        id[3..].copy_from_slice(&hash[..5]);
        id
    }

    /// NGUID of a namespace: vendor specific extension, OUI, extension (5.15.2.1).
    fn nguid(&self, nsid: u32) -> [u8; 16] {
        let mut id = hash(&[b"nguid", self.key.as_bytes(), &nsid.to_be_bytes()]);
        id[8..11].copy_from_slice(&OUI);
        id
    }

    /// For the Device Serial Number capability: an EUI-64 too.
    pub(crate) fn device_serial_number(&self) -> u64 {
        u64::from_be_bytes(self.eui64(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_ascii_padded_with_spaces() {
        let identity = Identity::new("S1", "Ümodel\n", "123456789");
        assert_eq!(&identity.serial, b"S1                  ");
        assert_eq!(&identity.model[..8], b"?model? ");
        assert_eq!(&identity.firmware, b"12345678");
    }

    #[test]
    fn the_nqn_is_of_the_uuid_form() {
        let nqn = Identity::new("S1", "", "").nqn;
        let uuid = nqn.strip_prefix("nqn.2014-08.org.nvmexpress:uuid:").unwrap();
        assert_eq!(uuid.len(), 36);
        assert!(uuid.split('-').map(str::len).eq([8, 4, 4, 4, 12]));
        assert_eq!(&uuid[14..15], "8");
        assert!(b"89ab".contains(&uuid.as_bytes()[19]));
    }

    #[test]
    fn identifiers_are_stable_and_differ_between_serials_and_namespaces() {
        let fixed = Identity::new("ETHERSLOT0001", "m", "f");
        // They are in the links of guests: they may never change.
        assert_eq!(fixed.eui64(1), Identity::new("ETHERSLOT0001", "other", "other").eui64(1));
        let mut seen = HashSet::new();
        for serial in 0..100 {
            let identity = Identity::new(&format!("S{serial}"), "m", "f");
            assert!(seen.insert(identity.nqn.clone().into_bytes()));
            for nsid in 1..=16 {
                assert!(seen.insert(identity.eui64(nsid).to_vec()));
                assert!(seen.insert(identity.nguid(nsid).to_vec()));
                assert!(seen.insert(identity.namespace_ids(nsid).uuid.to_vec()));
            }
        }
    }
}
