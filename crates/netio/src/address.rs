//! Addresses of Ports, and their text form.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where a Port is, in the terms of its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// Ethernet: `02:00:00:00:00:01`.
    Mac([u8; 6]),
    /// UDP: `10.0.0.1:4700`, `[fd00::1]:4700`.
    Udp(SocketAddr),
    /// A port of a [`Hub`](crate::memory::Hub): `memory:1`.
    Memory(u32),
    /// A port of a hub in shared memory: `ring:1`.
    Ring(u32),
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an address: write a MAC (02:00:00:00:00:01), an IP address with port (10.0.0.1:4700, [fd00::1]:4700), ring:N or memory:N"
)]
pub struct AddressError(pub String);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(octets) => {
                for (index, octet) in octets.iter().enumerate() {
                    write!(f, "{}{octet:02x}", if index == 0 { "" } else { ":" })?;
                }
                Ok(())
            }
            Self::Udp(address) => address.fmt(f),
            Self::Memory(port) => write!(f, "memory:{port}"),
            Self::Ring(port) => write!(f, "ring:{port}"),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let parsed = if let Some(port) = text.strip_prefix("memory:") {
            port.parse().ok().map(Self::Memory)
        } else if let Some(port) = text.strip_prefix("ring:") {
            port.parse().ok().map(Self::Ring)
        } else if let Some(mac) = mac(text) {
            Some(Self::Mac(mac))
        } else {
            text.parse().ok().map(Self::Udp)
        };
        parsed.ok_or_else(|| AddressError(text.to_owned()))
    }
}

fn mac(text: &str) -> Option<[u8; 6]> {
    let mut octets = [0; 6];
    let mut groups = text.split(':');
    for octet in &mut octets {
        let group = groups.next()?;
        // `from_str_radix` alone would take "+1".
        if group.len() != 2 || !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        *octet = u8::from_str_radix(group, 16).ok()?;
    }
    groups.next().is_none().then_some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_survive_a_round_trip() {
        for text in [
            "02:00:00:00:00:01",
            "de:ad:be:ef:00:ff",
            "10.0.0.1:4700",
            "[fd00::1]:4700",
            "memory:17",
            "ring:3",
        ] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_forms_that_are() {
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "+2:00:00:00:00:01",
            "10.0.0.1",
            "memory:",
            "memory:-1",
            "ring:x",
        ] {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.to_string().contains("10.0.0.1:4700"), "{error}");
        }
    }
}
