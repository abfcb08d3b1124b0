//! Who a node is, from one start to the next, and how this start differs from the others.

use etherslot_wire::NodeId;

/// The node's ID: the same for the same name on the same machine.
pub(crate) fn node_id(name: &str) -> NodeId {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    NodeId(hash(machine.trim().bytes().chain([0]).chain(name.bytes())))
}

/// The Ethernet address of a controller that was given none: the same for the same serial number, on any machine.
pub(crate) fn mac(serial: &str) -> [u8; 6] {
    let hash = hash(serial.bytes());
    let mut mac = [0; 6];
    mac.copy_from_slice(&hash[..6]);
    // Locally administered, of one station.
    mac[0] = mac[0] & 0xfc | 2;
    mac
}

/// FNV-1a, 128 bits.
fn hash(bytes: impl Iterator<Item = u8>) -> [u8; 16] {
    let mut hash: u128 = 0x6C62_272E_07BB_0142_62B8_2175_6295_C58D;
    for byte in bytes {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013B);
    }
    hash.to_be_bytes()
}

/// Entropy for the epochs of this life.
pub(crate) fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // The standard library keys each RandomState from the system's entropy.
    RandomState::new().hash_one(std::process::id())
}

/// An epoch that no earlier life of this node had, but for bad luck; never 0.
pub(crate) fn epoch() -> u32 {
    (seed() as u32).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_id_and_another_name_has_another() {
        assert_eq!(node_id("box"), node_id("box"));
        assert_ne!(node_id("box"), node_id("host"));
    }

    #[test]
    fn a_serial_number_keeps_its_address_which_is_of_one_station_and_no_vendors() {
        assert_eq!(mac("N1"), mac("N1"));
        assert_ne!(mac("N1"), mac("N2"));
        assert!((0..100).all(|at| mac(&format!("N{at}"))[0] & 3 == 2));
    }

    #[test]
    fn two_lives_have_two_seeds() {
        assert_ne!(seed(), seed());
    }
}
