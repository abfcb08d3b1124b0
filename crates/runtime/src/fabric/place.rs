//! Addresses of links as heartbeats tell them.

use std::net::{IpAddr, SocketAddr};

use etherslot_fabric::Place;
use etherslot_netio::Address;
use etherslot_wire::discovery::Port;

use crate::options::Via;

impl Place for Via {
    fn link(&self) -> usize {
        self.link
    }

    fn port(&self) -> Option<Port> {
        match self.address {
            Address::Mac(octets) => Some(Port::Mac(octets)),
            Address::Udp(SocketAddr::V4(to)) => Some(Port::Udp4(to.ip().octets(), to.port())),
            Address::Udp(SocketAddr::V6(to)) => Some(Port::Udp6(to.ip().octets(), to.port())),
            Address::Ring(number) => Some(Port::Ring(number)),
            Address::Memory(_) => None,
        }
    }

    fn at(link: usize, port: Port) -> Option<Self> {
        let udp = |address: IpAddr, port| Address::Udp(SocketAddr::new(address, port));
        let address = match port {
            Port::Mac(octets) => Address::Mac(octets),
            Port::Udp4(octets, port) => udp(octets.into(), port),
            Port::Udp6(octets, port) => udp(octets.into(), port),
            Port::Ring(number) => Address::Ring(number),
        };
        Some(Self { link, address })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_the_same_to_others_and_back() {
        for text in ["02:00:00:00:00:01", "10.0.0.1:4700", "[fd00::1]:1", "ring:7"] {
            let via = Via { link: 2, address: text.parse().unwrap() };
            assert_eq!(Via::at(2, via.port().unwrap()), Some(via), "{text}");
        }
    }
}
