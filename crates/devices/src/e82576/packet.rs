//! The headers of a frame that came: what it is, whether its checksums are right, and what RSS hashes of it (82576 datasheet, 7.1.2.7, 7.1.9).

use super::bits::mrqc;
use super::checksum;

/// The protocols behind an EtherType, and behind IP.
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// IPv6 headers that stand before that of the transport: hop-by-hop, routing, fragment, destination options.
const EXTENSIONS: [u8; 4] = [0, 43, 44, 60];
const FRAGMENT: u8 = 44;
/// More Fragments, and the Fragment Offset of IPv4.
const FRAGMENTED: u16 = 0x3fff;
/// Extension headers that are followed at most.
const MAX_EXTENSIONS: usize = 8;

/// Bits of the packet type in a descriptor (7.1.5.2).
mod kind {
    pub(super) const IPV4: u32 = 1 << 0;
    pub(super) const IPV4_OPTIONS: u32 = 1 << 1;
    pub(super) const IPV6: u32 = 1 << 2;
    pub(super) const IPV6_EXTENSIONS: u32 = 1 << 3;
    pub(super) const TCP: u32 = 1 << 4;
    pub(super) const UDP: u32 = 1 << 5;
    pub(super) const SCTP: u32 = 1 << 6;
}

/// Whether a checksum was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    Not,
    Good,
    Bad,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
}

/// What is known of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// Bits of the packet type.
    pub(crate) kind: u32,
    ip: Option<Ip>,
    /// From the IP header to the end of what it says is the packet.
    datagram: &'a [u8],
    ip_header_bytes: usize,
    /// The transport's header and payload; empty for a fragment.
    transport: &'a [u8],
    protocol: u8,
}

impl<'a> Packet<'a> {
    /// Looks at a frame whose EtherType is at `type_at`.
    pub(crate) fn new(frame: &'a [u8], type_at: usize) -> Self {
        let mut packet =
            Self { kind: 0, ip: None, datagram: &[], ip_header_bytes: 0, transport: &[], protocol: 0 };
        let rest = frame.get(type_at + 2..).unwrap_or(&[]);
        match word(frame, type_at) {
            Some(IPV4) => packet.parse_v4(rest),
            Some(IPV6) => packet.parse_v6(rest),
            _ => None,
        };
        packet
    }

    fn parse_v4(&mut self, rest: &'a [u8]) -> Option<()> {
        let version = *rest.first()?;
        let header_bytes = usize::from(version & 15) * 4;
        let total = usize::from(word(rest, 2)?);
        if version >> 4 != 4 || header_bytes < 20 || total < header_bytes {
            return None;
        }
        self.datagram = rest.get(..total)?;
        self.ip = Some(Ip::V4);
        self.ip_header_bytes = header_bytes;
        self.kind = kind::IPV4 | if header_bytes > 20 { kind::IPV4_OPTIONS } else { 0 };
        // A fragment has no transport header, or not all of what it covers.
        if word(rest, 6)? & FRAGMENTED == 0 {
            self.set_transport(*rest.get(9)?, &self.datagram[header_bytes..]);
        }
        Some(())
    }

    fn parse_v6(&mut self, rest: &'a [u8]) -> Option<()> {
        let total = 40 + usize::from(word(rest, 4)?);
        if *rest.first()? >> 4 != 6 {
            return None;
        }
        self.datagram = rest.get(..total)?;
        self.ip = Some(Ip::V6);
        self.ip_header_bytes = 40;
        self.kind = kind::IPV6;
        let mut protocol = *rest.get(6)?;
        let mut at = 40;
        for _ in 0..MAX_EXTENSIONS {
            if !EXTENSIONS.contains(&protocol) {
                self.set_transport(protocol, self.datagram.get(at..)?);
                break;
            }
            self.kind |= kind::IPV6_EXTENSIONS;
            if protocol == FRAGMENT {
                break;
            }
            let header = self.datagram.get(at..at + 2)?;
            protocol = header[0];
            at += 8 + usize::from(header[1]) * 8;
        }
        Some(())
    }

    fn set_transport(&mut self, protocol: u8, transport: &'a [u8]) {
        let (bit, header_bytes) = match protocol {
            TCP => (kind::TCP, 20),
            UDP => (kind::UDP, 8),
            SCTP => (kind::SCTP, 12),
            _ => return,
        };
        if transport.len() >= header_bytes {
            self.kind |= bit;
            self.protocol = protocol;
            self.transport = transport;
        }
    }

    pub(crate) fn is_udp(&self) -> bool {
        self.kind & kind::UDP != 0
    }

    pub(crate) fn is_sctp(&self) -> bool {
        self.kind & kind::SCTP != 0
    }

    /// The IPv4 header's checksum.
    pub(crate) fn check_ip(&self) -> Check {
        match self.ip {
            Some(Ip::V4) if checksum::internet(&self.datagram[..self.ip_header_bytes]) == 0 => Check::Good,
            Some(Ip::V4) => Check::Bad,
            _ => Check::Not,
        }
    }

    fn addresses(&self) -> &'a [u8] {
        match self.ip {
            Some(Ip::V4) => &self.datagram[12..20],
            Some(Ip::V6) => &self.datagram[8..40],
            None => &[],
        }
    }

    /// The checksum of TCP, UDP or SCTP. Without one (UDP) it is not checked.
    pub(crate) fn check_transport(&self) -> Check {
        let good = match self.protocol {
            UDP if word(self.transport, 6) == Some(0) => return Check::Not,
            TCP | UDP => {
                let data = match self.protocol {
                    // What UDP itself says is its length.
                    UDP => match self.transport.get(..usize::from(word(self.transport, 4).unwrap_or(0))) {
                        Some(data) if data.len() >= 8 => data,
                        _ => return Check::Bad,
                    },
                    _ => self.transport,
                };
                let pseudo = u64::from(self.protocol) + data.len() as u64;
                checksum::fold(checksum::add(checksum::add(pseudo, self.addresses()), data)) == 0xffff
            }
            SCTP => {
                let (head, tail) = self.transport.split_at(8);
                let (sum, data) = tail.split_at(4);
                let whole = [head, &[0; 4], data].concat();
                checksum::sctp(&whole).to_le_bytes() == sum
            }
            _ => return Check::Not,
        };
        if good { Check::Good } else { Check::Bad }
    }

    /// RSS type and hash, as MRQC wants them.
    pub(crate) fn hash(&self, wanted: u32, key: &[u8; 40]) -> Option<(u32, u32)> {
        let has = |bit: u32| wanted & bit != 0;
        let (kind, with_ports) = match (self.ip?, self.protocol) {
            (Ip::V4, TCP) if has(mrqc::TCP_IPV4) => (1, true),
            (Ip::V4, UDP) if has(mrqc::UDP_IPV4) => (7, true),
            (Ip::V4, _) if has(mrqc::IPV4) => (2, false),
            (Ip::V6, TCP) if has(mrqc::TCP_IPV6) => (3, true),
            (Ip::V6, UDP) if has(mrqc::UDP_IPV6) => (8, true),
            (Ip::V6, _) if has(mrqc::IPV6) => (5, false),
            _ => return None,
        };
        let mut input = [0; 36];
        let addresses = self.addresses();
        input[..addresses.len()].copy_from_slice(addresses);
        let mut bytes = addresses.len();
        if with_ports {
            input[bytes..bytes + 4].copy_from_slice(&self.transport[..4]);
            bytes += 4;
        }
        Some((kind, checksum::toeplitz(key, &input[..bytes])))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}
