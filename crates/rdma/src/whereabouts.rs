//! Where nodes are: entries of the session table (docs/rnic.md, section 3).

use core::net::Ipv6Addr;

const UDP: u8 = 1;
const ETHERNET: u8 = 2;
/// Where the address begins.
const ADDRESS: usize = 16;

/// Where a node is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whereabouts {
    /// It is not told.
    #[default]
    Untold,
    /// A port of UDP; addresses of IPv4 are mapped.
    Udp {
        /// The address.
        ip: Ipv6Addr,
        /// The port.
        port: u16,
    },
    /// An Ethernet.
    Ethernet([u8; 6]),
}

impl Whereabouts {
    /// Bytes of an entry.
    pub const BYTES: usize = 32;

    /// The entry.
    pub fn emit(&self) -> [u8; Self::BYTES] {
        let mut entry = [0; Self::BYTES];
        match self {
            Self::Untold => {}
            Self::Udp { ip, port } => {
                entry[0] = UDP;
                entry[2..4].copy_from_slice(&port.to_le_bytes());
                entry[ADDRESS..].copy_from_slice(&ip.octets());
            }
            Self::Ethernet(address) => {
                entry[0] = ETHERNET;
                entry[ADDRESS..ADDRESS + 6].copy_from_slice(address);
            }
        }
        entry
    }

    /// What an entry says; of a kind that is not known, nothing.
    pub fn parse(entry: &[u8; Self::BYTES]) -> Self {
        let (_, address) = entry.split_at(ADDRESS);
        match (entry[0], address.first_chunk(), address.first_chunk()) {
            (UDP, Some(ip), _) => {
                Self::Udp { ip: Ipv6Addr::from(*ip), port: u16::from_le_bytes([entry[2], entry[3]]) }
            }
            (ETHERNET, _, Some(address)) => Self::Ethernet(*address),
            _ => Self::Untold,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_say_where_a_node_is_at_the_places_of_the_contract() {
        let ip = core::net::Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped();
        let udp = Whereabouts::Udp { ip, port: 0x4A01 };
        for place in [Whereabouts::Untold, udp, Whereabouts::Ethernet([2, 0, 0, 0, 0, 9])] {
            assert_eq!(Whereabouts::parse(&place.emit()), place);
        }
        let entry = udp.emit();
        assert_eq!(entry[..4], [1, 0, 0x01, 0x4A]);
        assert_eq!(entry[16..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 7]);
        let mut unknown = entry;
        unknown[0] = 9;
        assert_eq!(Whereabouts::parse(&unknown), Whereabouts::Untold);
    }
}
