//! Where a QP is: GIDs, QP numbers of 24 bits, and UDP ports.
//!
//! A node has one IPv4 address and one GID, the address mapped into IPv6. Each process on it has a *slot*, which is a UDP
//! port that it holds, and the upper 8 bits of the numbers of its QPs; the lower 16 are those of its engine. So whoever
//! knows a GID and a QP number, as all verbs programs tell each other, knows which process to speak with.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use etherslot_netio::Address;
use etherslot_rdma::Qpn;
use etherslot_wire::NodeId;

/// The UDP port of slot 0; below those that systems give out by themselves.
pub const FIRST_PORT: u16 = 18_944;
/// Slots of a node. One less than 8 bits can say: no QP has the number of multicast.
pub const SLOTS: u8 = 255;

/// In the numbers of nodes that are processes.
const NODE: &[u8; 4] = b"ESVB";

/// The GID of an IPv4 address.
pub fn gid(ip: Ipv4Addr) -> [u8; 16] {
    ip.to_ipv6_mapped().octets()
}

/// The IPv4 address of a GID, if it is one.
pub fn ip(gid: &[u8; 16]) -> Option<Ipv4Addr> {
    std::net::Ipv6Addr::from(*gid).to_ipv4_mapped()
}

/// The number by which programs know a QP.
pub fn number(slot: u8, qp: Qpn) -> u32 {
    u32::from(slot) << 16 | u32::from(qp.0)
}

/// The engine's number of a QP.
pub fn engine_number(number: u32) -> Qpn {
    Qpn(number as u16)
}

/// The UDP port of a slot.
pub fn port(slot: u8) -> u16 {
    FIRST_PORT + u16::from(slot)
}

/// The slot of a UDP port.
pub fn slot(port: u16) -> Option<u8> {
    let slot = u8::try_from(port.checked_sub(FIRST_PORT)?).ok()?;
    (slot < SLOTS).then_some(slot)
}

/// The process that has the QP with this number at this GID.
pub fn process(gid: &[u8; 16], number: u32) -> Option<Address> {
    let slot = u8::try_from(number >> 16).ok().filter(|&slot| slot < SLOTS)?;
    Some(Address::Udp(SocketAddr::V4(SocketAddrV4::new(ip(gid)?, port(slot)))))
}

/// The number by which programs know a QP of a peer.
pub fn peer_number(peer: &Address, qp: Qpn) -> u32 {
    let slot = match peer {
        Address::Udp(address) => slot(address.port()),
        _ => None,
    };
    number(slot.unwrap_or(0), qp)
}

/// The number of the node that a process is (docs/verbs.md, "Links"): 7 bytes of its own, what it is a node of, its slot and
/// its address.
pub fn node(ip: Ipv4Addr, slot: u8, own: u64) -> NodeId {
    let mut node = [0; 16];
    node[..7].copy_from_slice(&own.to_be_bytes()[1..]);
    node[7..11].copy_from_slice(NODE);
    node[11] = slot;
    node[12..].copy_from_slice(&ip.octets());
    NodeId(node)
}

/// Which process a node is, if it is one.
pub fn of_node(node: &NodeId) -> Option<Address> {
    let (kind, at) = (node.0.get(7..11)?, node.0.get(12..)?);
    let slot = node.0[11];
    let ip: [u8; 4] = at.try_into().ok()?;
    let is_one = kind == NODE && slot < SLOTS;
    is_one.then(|| Address::Udp(SocketAddr::V4(SocketAddrV4::new(ip.into(), port(slot)))))
}

/// What stands in the place of a GRH in front of a datagram: as RoCE v2 has it over IPv4, 20 bytes of nothing and an
/// IPv4 header.
pub fn grh(from: &Address, to: Ipv4Addr) -> [u8; 40] {
    let mut grh = [0; 40];
    if let Address::Udp(SocketAddr::V4(from)) = from {
        // Version 4, 5 words; a time to live; UDP.
        grh[20] = 0x45;
        grh[28] = 64;
        grh[29] = 17;
        grh[32..36].copy_from_slice(&from.ip().octets());
        grh[36..40].copy_from_slice(&to.octets());
    }
    grh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_and_a_number_lead_to_the_process_that_has_the_qp() {
        let ip = Ipv4Addr::new(10, 1, 2, 3);
        let number = number(7, Qpn(0x1234));
        assert_eq!(number, 0x07_1234);
        let process = process(&gid(ip), number).expect("a process");
        assert_eq!(process.to_string(), format!("10.1.2.3:{}", FIRST_PORT + 7));
        assert_eq!(engine_number(number), Qpn(0x1234));
        assert_eq!(peer_number(&process, Qpn(0x1234)), number);
    }

    #[test]
    fn a_node_tells_where_its_process_is() {
        let ip = Ipv4Addr::new(10, 1, 2, 3);
        let at = of_node(&node(ip, 254, u64::MAX)).expect("a process");
        assert_eq!(at.to_string(), format!("10.1.2.3:{}", FIRST_PORT + 254));
        assert_ne!(node(ip, 1, 1), node(ip, 1, 2));
        assert_eq!(of_node(&node(ip, 255, 1)), None);
        assert_eq!(of_node(&NodeId([7; 16])), None);
    }

    #[test]
    fn what_is_no_process_is_none() {
        let gid = gid(Ipv4Addr::LOCALHOST);
        assert_eq!(process(&gid, 0x00FF_FFFF), None);
        assert_eq!(process(&gid, 0x0100_0002), None);
        assert_eq!(process(&[0xFE; 16], 2), None);
        assert_eq!(slot(FIRST_PORT - 1), None);
        assert_eq!(slot(FIRST_PORT + 255), None);
    }
}
