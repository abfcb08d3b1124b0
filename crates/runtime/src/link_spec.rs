//! Links in one word, for command lines: `packet:eth0`, `udp:10.0.0.1:4700`, `udp:0.0.0.0:0,mtu=1500`,
//! `xdp:eth0`, `xdp:eth0,queue=1,mode=generic`, `ring:/run/etherslot/hub#2`, `dpdk:net_memif0,role=server`.
//!
//! The kind, a colon, what the link is opened on, and options after commas. A ring is a hub's folder and our number in it.
//! DPDK's devices have arguments after commas of their own; `mtu` and `mac` among them are the link's.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use crate::options::{Address, LinkKind, XdpMode};

/// Path MTUs that leave room for a session frame and not more than the largest one.
const UDP_MTU: std::ops::RangeInclusive<u16> = 624..=9284;
/// The same where a frame is all that Ethernet carries.
pub const DPDK_MTU: std::ops::RangeInclusive<u16> = 576..=9216;

/// Queues of an interface, none of which has more.
const XDP_QUEUES: std::ops::Range<u32> = 0..1024;
const XDP_MODES: [(&str, XdpMode); 3] =
    [("auto", XdpMode::Auto), ("native", XdpMode::Native), ("generic", XdpMode::Generic)];

/// A text that names no link.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no link: {reason}")]
pub struct LinkSpecError {
    /// The text.
    pub text: String,
    /// What is wrong, and what to write instead.
    pub reason: String,
}

/// Whether links of kind `dpdk` can be opened by this program on this machine, or why not.
pub fn dpdk_available() -> Result<(), String> {
    etherslot_dpdk::available().map_err(|error| error.to_string())
}

impl LinkKind {
    /// The word before the colon, and `kind` in configuration files.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Packet { .. } => "packet",
            Self::Udp { .. } => "udp",
            Self::Xdp { .. } => "xdp",
            Self::Ring { .. } => "ring",
            Self::Dpdk { .. } => "dpdk",
        }
    }

    /// Whether a peer with this address can be reached.
    pub fn reaches(&self, peer: &Address) -> bool {
        match (self, peer) {
            (Self::Packet { .. } | Self::Xdp { .. } | Self::Dpdk { .. }, Address::Mac(_))
            | (Self::Ring { .. }, Address::Ring(_)) => true,
            (Self::Udp { listen, .. }, Address::Udp(to)) => listen.is_ipv4() == to.is_ipv4(),
            _ => false,
        }
    }

    /// What addresses of peers look like, to tell a user.
    pub fn peer_form(&self) -> &'static str {
        match self {
            Self::Packet { .. } | Self::Xdp { .. } | Self::Dpdk { .. } => "a MAC address",
            Self::Udp { listen, .. } if listen.is_ipv4() => "an IPv4 ADDRESS:PORT",
            Self::Udp { .. } => "an IPv6 [ADDRESS]:PORT",
            Self::Ring { .. } => "ring:N",
        }
    }
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name())?;
        match self {
            Self::Packet { interface } => f.write_str(interface),
            Self::Udp { listen, mtu } => {
                listen.fmt(f)?;
                mtu.map_or(Ok(()), |mtu| write!(f, ",mtu={mtu}"))
            }
            Self::Xdp { interface, queue, mode } => {
                f.write_str(interface)?;
                if *queue != 0 {
                    write!(f, ",queue={queue}")?;
                }
                let mode = XDP_MODES.iter().find(|(_, known)| known == mode && *known != XdpMode::default());
                mode.map_or(Ok(()), |(mode, _)| write!(f, ",mode={mode}"))
            }
            Self::Ring { hub, port } => write!(f, "{}#{port}", hub.display()),
            Self::Dpdk { device, mtu, mac, .. } => {
                f.write_str(device)?;
                mtu.map_or(Ok(()), |mtu| write!(f, ",mtu={mtu}"))?;
                mac.map_or(Ok(()), |mac| write!(f, ",mac={}", Address::Mac(mac)))
            }
        }
    }
}

impl FromStr for LinkKind {
    type Err = LinkSpecError;

    fn from_str(text: &str) -> Result<Self, LinkSpecError> {
        parse(text).map_err(|reason| LinkSpecError { text: text.to_owned(), reason })
    }
}

fn parse(text: &str) -> Result<LinkKind, String> {
    let (kind, rest) = text
        .split_once(':')
        .ok_or("write its kind and what it is opened on, as in packet:eth0 or udp:10.0.0.1:4700")?;
    match kind {
        "packet" => {
            let [] = options(rest, [])?.1;
            Ok(LinkKind::Packet { interface: interface(rest)? })
        }
        "udp" => {
            let (listen, [mtu]) = options(rest, ["mtu"])?;
            let listen: SocketAddr =
                listen.parse().map_err(|_| "write udp:ADDRESS:PORT, as in udp:0.0.0.0:4700")?;
            let in_range = |text: &str| text.parse().ok().filter(|mtu| UDP_MTU.contains(mtu));
            let wrong = || format!("mtu is {} to {}", UDP_MTU.start(), UDP_MTU.end());
            Ok(LinkKind::Udp { listen, mtu: mtu.map(|text| in_range(text).ok_or_else(wrong)).transpose()? })
        }
        "xdp" => {
            let (name, [queue, mode]) = options(rest, ["queue", "mode"])?;
            let interface = interface(name)?;
            let queue = queue.map_or(Some(0), |text| text.parse().ok().filter(|at| XDP_QUEUES.contains(at)));
            let mode = mode.map_or(Some(XdpMode::default()), |text| {
                XDP_MODES.iter().find(|(name, _)| *name == text).map(|(_, mode)| *mode)
            });
            Ok(LinkKind::Xdp {
                interface,
                queue: queue.ok_or_else(|| format!("queue is 0 to {}", XDP_QUEUES.end - 1))?,
                mode: mode.ok_or("mode is auto, native or generic")?,
            })
        }
        "ring" => {
            let found = rest.rsplit_once('#').filter(|(hub, _)| !hub.is_empty());
            let found = found.and_then(|(hub, port)| Some((hub, port.parse().ok()?)));
            let (hub, port) = found.ok_or("write ring:FOLDER#N, as in ring:/run/etherslot/hub#1")?;
            Ok(LinkKind::Ring { hub: hub.into(), port })
        }
        "dpdk" => dpdk(rest),
        _ => Err("kinds are packet, udp, xdp, ring and dpdk".to_owned()),
    }
}

fn dpdk(text: &str) -> Result<LinkKind, String> {
    let (mut device, mut mtu, mut mac) = (Vec::new(), None, None);
    for word in text.split(',') {
        match word.split_once('=') {
            Some(("mtu", value)) => {
                let value = value.parse().ok().filter(|mtu| DPDK_MTU.contains(mtu));
                let wrong = || format!("mtu is {} to {}", DPDK_MTU.start(), DPDK_MTU.end());
                mtu = Some(value.ok_or_else(wrong)?);
            }
            Some(("mac", value)) => match value.parse() {
                Ok(Address::Mac(octets)) => mac = Some(octets),
                _ => return Err("mac is an Ethernet address, as in mac=02:00:00:00:00:01".to_owned()),
            },
            _ => device.push(word),
        }
    }
    if device.first().is_none_or(|name| name.is_empty()) {
        return Err("write the device after the colon, as in dpdk:net_memif0,role=server".to_owned());
    }
    Ok(LinkKind::Dpdk { device: device.join(","), eal: Vec::new(), mtu, mac })
}

fn interface(name: &str) -> Result<String, String> {
    // The kernel's rule for names of interfaces, but for its length, which the kernel tells.
    let is_name =
        !name.is_empty() && !name.contains(|char: char| char.is_whitespace() || "/,".contains(char));
    if is_name { Ok(name.to_owned()) } else { Err("write the interface after the colon".to_owned()) }
}

/// Cuts the options off: `value,name=…,name=…`. Each may stand once, in any order.
fn options<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> Result<(&'a str, [Option<&'a str>; N]), String> {
    let mut words = text.split(',');
    let value = words.next().unwrap_or_default();
    let mut found = [None; N];
    for word in words {
        let known = word
            .split_once('=')
            .and_then(|(name, value)| names.iter().position(|&known| known == name).map(|at| (at, value)));
        match known {
            Some((at, value)) if found[at].is_none() => found[at] = Some(value),
            _ if N == 0 => return Err(format!("`{word}`: this kind has no options")),
            _ => return Err(format!("`{word}`: its options are {}, once each", names.join("=…, ") + "=…")),
        }
    }
    Ok((value, found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms_survive_a_round_trip() {
        for text in
            ["packet:eth0", "packet:eth0.5", "udp:10.0.0.1:4700", "udp:[::]:0", "udp:0.0.0.0:0,mtu=1500"]
        {
            let link: LinkKind = text.parse().expect(text);
            assert_eq!(link.to_string(), text);
        }
        let memif = "dpdk:net_memif0,role=server,socket=/run/m,mtu=9000,mac=02:00:00:00:00:01";
        let link: LinkKind = memif.parse().expect(memif);
        assert_eq!(link.to_string(), memif);
        assert!(
            matches!(link, LinkKind::Dpdk { device, .. } if device == "net_memif0,role=server,socket=/run/m")
        );
        assert!("dpdk:0000:03:00.0".parse::<LinkKind>().is_ok());
    }

    #[test]
    fn what_is_no_link_is_refused_with_the_form_that_is() {
        for (text, remedy) in [
            ("", "packet:eth0"),
            ("eth0", "packet:eth0"),
            ("floppy:0", "kinds are"),
            ("packet:", "the interface"),
            ("packet:eth0,mtu=9000", "no options"),
            ("ring:/run/hub", "FOLDER#N"),
            ("ring:#1", "FOLDER#N"),
            ("xdp:", "the interface"),
            ("xdp:eth0,queue=x", "0 to 1023"),
            ("xdp:eth0,mode=fast", "native"),
            ("xdp:eth0,mtu=1500", "queue=…, mode=…"),
            ("ring:/run/hub#-1", "FOLDER#N"),
            ("dpdk:", "net_memif0"),
            ("dpdk:net_memif0,mac=2", "02:00:00:00:00:01"),
            ("dpdk:net_memif0,mtu=10000", "576 to 9216"),
            ("udp:4700", "udp:0.0.0.0:4700"),
            ("udp:0.0.0.0:1,mut=1", "mtu=…"),
            ("udp:0.0.0.0:1,mtu=1", "624 to 9284"),
            ("udp:0.0.0.0:1,mtu=1500,mtu=1500", "once each"),
        ] {
            let error = text.parse::<LinkKind>().expect_err(text).to_string();
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }

    #[test]
    fn a_link_reaches_addresses_of_its_own_form() {
        for (link, peer, reached) in [
            ("packet:eth0", "02:00:00:00:00:01", true),
            ("packet:eth0", "10.0.0.1:1", false),
            ("udp:0.0.0.0:0", "10.0.0.1:1", true),
            ("udp:0.0.0.0:0", "[::1]:1", false),
            ("udp:[::]:0", "[::1]:1", true),
            ("xdp:eth0", "02:00:00:00:00:01", true),
            ("ring:/hub#1", "ring:2", true),
            ("ring:/hub#1", "memory:2", false),
            ("dpdk:net_memif0", "02:00:00:00:00:01", true),
            ("dpdk:net_memif0", "ring:2", false),
        ] {
            let link: LinkKind = link.parse().expect(link);
            assert_eq!(link.reaches(&peer.parse().expect(peer)), reached, "{link} {peer}");
        }
    }
}
