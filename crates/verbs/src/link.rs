//! The link of the device: UDP by default, or another, by `etherslot verbs run --link` (docs/verbs.md, "Links").

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::path::PathBuf;
use std::str::FromStr;

use etherslot_netio::packet::{PacketConfig, PacketPort};
use etherslot_netio::ring::{RingConfig, RingPort};
use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::xdp::{XdpConfig, XdpMode, XdpPort};
use etherslot_netio::{OpenError, Port, ipv4_addresses, ipv4_addresses_of};

use crate::device::{DeviceError, DeviceOptions};
use crate::located::{Located, Way};
use crate::place;

/// Bytes of the headers of IPv4 and UDP.
const UDP_HEADER_BYTES: usize = 28;
/// Queues of an interface, none of which has more.
const QUEUES: std::ops::Range<u32> = 0..1024;

/// Which link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Link {
    /// UDP, at the device's address: `udp`.
    #[default]
    Udp,
    /// Raw Ethernet by `AF_PACKET`: `packet:eth0`.
    Packet(String),
    /// The same by `AF_XDP`: `xdp:eth0`, `xdp:eth0,queue=1,mode=generic`.
    Xdp {
        /// The interface.
        interface: String,
        /// Its queue.
        queue: u32,
        /// Who runs the program.
        mode: XdpMode,
    },
    /// Shared memory of this machine, by a hub's folder: `ring:/run/user/1000/hub`.
    Ring(PathBuf),
}

/// A text that names no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no link: write udp, packet:INTERFACE, xdp:INTERFACE (,queue=N and ,mode=auto, native or generic may follow), or ring:FOLDER"
)]
pub struct LinkError(String);

impl FromStr for Link {
    type Err = LinkError;

    fn from_str(text: &str) -> Result<Self, LinkError> {
        parse(text).ok_or_else(|| LinkError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<Link> {
    if text == "udp" {
        return Some(Link::Udp);
    }
    let (kind, rest) = text.split_once(':').filter(|(_, rest)| !rest.is_empty())?;
    // The kernel's rule for names of interfaces, but for their length, which the kernel tells.
    let name = |name: &str| {
        let is_name = !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "/,".contains(c));
        is_name.then(|| name.to_owned())
    };
    match kind {
        "packet" => Some(Link::Packet(name(rest)?)),
        "xdp" => {
            let mut words = rest.split(',');
            let interface = name(words.next()?)?;
            let (mut queue, mut mode) = (None, None);
            for word in words {
                match word.split_once('=')? {
                    ("queue", value) if queue.is_none() => {
                        queue = Some(value.parse().ok().filter(|queue| QUEUES.contains(queue))?);
                    }
                    ("mode", value) if mode.is_none() => {
                        mode = Some(match value {
                            "auto" => XdpMode::Auto,
                            "native" => XdpMode::Native,
                            "generic" => XdpMode::Generic,
                            _ => return None,
                        });
                    }
                    _ => return None,
                }
            }
            let (queue, mode) = (queue.unwrap_or(0), mode.unwrap_or_default());
            Some(Link::Xdp { interface, queue, mode })
        }
        "ring" => Some(Link::Ring(rest.into())),
        _ => None,
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp => f.write_str("udp"),
            Self::Packet(interface) => write!(f, "packet:{interface}"),
            Self::Xdp { interface, queue, mode } => {
                let mode = match mode {
                    XdpMode::Auto => "auto",
                    XdpMode::Native => "native",
                    XdpMode::Generic => "generic",
                };
                write!(f, "xdp:{interface},queue={queue},mode={mode}")
            }
            Self::Ring(hub) => write!(f, "ring:{}", hub.display()),
        }
    }
}

/// An open link: the Port, by whose addresses processes are named as those of UDP are ([`place`]), and where we are.
pub(crate) struct Opened {
    pub(crate) port: Box<dyn Port + Send>,
    pub(crate) ip: Ipv4Addr,
    pub(crate) slot: u8,
}

/// Opens the link of the device.
pub(crate) fn open(options: &DeviceOptions) -> Result<Opened, DeviceError> {
    if let Some(slot) = options.slot.filter(|slot| !(0..place::SLOTS).contains(slot)) {
        return Err(DeviceError::NoSuchSlot(slot));
    }
    match &options.link {
        Link::Udp => {
            let ip = any_address(options)?;
            let (port, slot) = in_a_slot(options, |slot| {
                let mut config = UdpConfig::new(SocketAddr::V4(SocketAddrV4::new(ip, place::port(slot))));
                config.max_frame_bytes =
                    options.mtu.map(|mtu| usize::from(mtu).saturating_sub(UDP_HEADER_BYTES));
                match UdpPort::open(&config) {
                    Err(OpenError::Bind { source, .. }) if source.kind() == io::ErrorKind::AddrInUse => {
                        Ok(None)
                    }
                    port => Ok(Some(port?)),
                }
            })?;
            Ok(Opened { port: Box::new(port), ip, slot })
        }
        Link::Packet(interface) => on_ethernet(options, interface, |most| {
            let config = PacketConfig { max_frame_bytes: most, ..PacketConfig::new(interface) };
            Ok(Box::new(PacketPort::open(&config)?))
        }),
        Link::Xdp { interface, queue, mode } => on_ethernet(options, interface, |most| {
            let config =
                XdpConfig { queue: *queue, mode: *mode, max_frame_bytes: most, ..XdpConfig::new(interface) };
            Ok(Box::new(XdpPort::open(&config)?))
        }),
        Link::Ring(hub) => {
            let ip = any_address(options)?;
            let (port, slot) = in_a_slot(options, |slot| {
                let mut config = RingConfig::new(hub, u32::from(slot));
                config.max_frame_bytes = options.mtu.map(usize::from);
                match RingPort::open(&config) {
                    Err(OpenError::RingTaken { .. }) => Ok(None),
                    port => Ok(Some(port?)),
                }
            })?;
            let port = Located::new(Box::new(port), Way::Ring, (ip, slot), None)?;
            Ok(Opened { port: Box::new(port), ip, slot })
        }
    }
}

fn any_address(options: &DeviceOptions) -> Result<Ipv4Addr, DeviceError> {
    options.ip.or_else(|| ipv4_addresses().first().copied()).ok_or(DeviceError::NoAddress)
}

/// Opens the Port of the slot that was asked for, or of the first that is free: `None` from `open` is a slot that is taken.
fn in_a_slot<P>(
    options: &DeviceOptions,
    mut open: impl FnMut(u8) -> Result<Option<P>, DeviceError>,
) -> Result<(P, u8), DeviceError> {
    if let Some(slot) = options.slot {
        return open(slot)?.map(|port| (port, slot)).ok_or(DeviceError::SlotTaken(slot));
    }
    // Not the same first slot each time: what is on its way to the process that was here before finds nobody.
    let first = std::process::id() % u32::from(place::SLOTS);
    for number in 0..u32::from(place::SLOTS) {
        let slot = ((first + number) % u32::from(place::SLOTS)) as u8;
        if let Some(port) = open(slot)? {
            return Ok((port, slot));
        }
    }
    Err(DeviceError::NoSlot(place::SLOTS))
}

/// Opens a Port on an Ethernet interface, of which one process has one: a frame does not say which process it is for.
fn on_ethernet(
    options: &DeviceOptions,
    interface: &str,
    open: impl FnOnce(Option<usize>) -> Result<Box<dyn Port + Send>, OpenError>,
) -> Result<Opened, DeviceError> {
    let ips = ipv4_addresses_of(interface);
    let ip = match options.ip {
        Some(ip) if ips.contains(&ip) => ip,
        Some(ip) => return Err(DeviceError::NotItsAddress(interface.to_owned(), ip)),
        None => *ips.first().ok_or_else(|| DeviceError::NoAddressOf(interface.to_owned()))?,
    };
    let name = format!("etherslot-verbs/{interface}");
    let lock = UnixAddr::from_abstract_name(name).and_then(|name| UnixDatagram::bind_addr(&name));
    let lock = match lock {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            return Err(DeviceError::InterfaceTaken(interface.to_owned()));
        }
        lock => lock?,
    };
    let slot = options.slot.unwrap_or(0);
    let port = open(options.mtu.map(usize::from))?;
    let way = Way::Ethernet { interface: interface.to_owned() };
    let port = Located::new(port, way, (ip, slot), Some(lock))?;
    Ok(Opened { port: Box::new(port), ip, slot })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_survive_a_round_trip() {
        for text in [
            "udp",
            "packet:eth0.5",
            "xdp:eth0,queue=3,mode=generic",
            "xdp:eth0,queue=0,mode=auto",
            "ring:/a/b",
        ] {
            assert_eq!(text.parse::<Link>().expect(text).to_string(), text);
        }
        let plain: Link = "xdp:eth0".parse().expect("a link");
        assert_eq!(plain, "xdp:eth0,mode=auto,queue=0".parse().expect("a link"));
    }

    #[test]
    fn what_is_no_link_is_refused_with_the_forms_that_are() {
        for text in [
            "",
            "tcp",
            "udp:10.0.0.1:1",
            "packet:",
            "packet:eth0,mtu=1500",
            "packet:a b",
            "xdp:,queue=1",
            "xdp:eth0,queue=1024",
            "xdp:eth0,queue=1,queue=1",
            "xdp:eth0,mode=fast",
            "xdp:eth0,mtu=1500",
            "ring:",
        ] {
            let error = text.parse::<Link>().expect_err(text);
            assert!(error.to_string().contains("packet:INTERFACE"), "{error}");
        }
    }
}
