//! The Ethernet of a run: two namespaces or three, each with one interface, joined by a bridge in one of its own.
//!
//! Nothing speaks there by itself: no addresses, no IPv6, no spanning tree, no multicast snooping. What a capture shows
//! is what the daemons sent.

use std::process::Command;

use crate::error::{Error, Result};
use crate::process::{self, tool};
use crate::run::Run;

/// MAC address of the host's interface.
pub const HOST_MAC: &str = "02:00:00:00:00:01";
/// MAC address of the box's interface.
pub const BOX_MAC: &str = "02:00:00:00:00:02";
/// MAC address of the other box's interface, if there is one.
pub const OTHER_BOX_MAC: &str = "02:00:00:00:00:03";
/// Name of the interface in any namespace.
pub const INTERFACE: &str = "eth0";
/// MAC address of the host's second interface, if there is one.
pub const SECOND_HOST_MAC: &str = "02:00:00:00:01:01";
/// MAC address of the box's second interface.
pub const SECOND_BOX_MAC: &str = "02:00:00:00:01:02";
/// Name of the second interface.
pub const SECOND_INTERFACE: &str = "eth1";
const LOSS_TABLE: &str = "etherslot-loss";
const WAY_TABLE: &str = "etherslot-way";
pub(crate) const BRIDGE: &str = "bridge0";
const SECOND_BRIDGE: &str = "bridge1";

/// An end of the Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The host node's.
    Host,
    /// The I/O box's.
    Box,
    /// Another I/O box's, if there is one.
    OtherBox,
}

impl Side {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Box => "box",
            Self::OtherBox => "box2",
        }
    }

    fn mac(self, ethernet: Ethernet) -> &'static str {
        match (self, ethernet) {
            (Self::Host, Ethernet::First) => HOST_MAC,
            (Self::Box, Ethernet::First) => BOX_MAC,
            (Self::Host, Ethernet::Second) => SECOND_HOST_MAC,
            (Self::Box, Ethernet::Second) => SECOND_BOX_MAC,
            (Self::OtherBox, _) => OTHER_BOX_MAC,
        }
    }
}

/// One of two Ethernets between the sides, each with a bridge of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ethernet {
    /// The one that is always there.
    First,
    /// [`Net::add_second`].
    Second,
}

impl Ethernet {
    fn interface(self) -> &'static str {
        match self {
            Self::First => INTERFACE,
            Self::Second => SECOND_INTERFACE,
        }
    }

    fn bridge(self) -> &'static str {
        match self {
            Self::First => BRIDGE,
            Self::Second => SECOND_BRIDGE,
        }
    }

    /// The bridge's end of a side's cable.
    fn port(self, side: Side) -> &'static str {
        match (self, side) {
            (Self::First, side) => side.name(),
            (Self::Second, Side::Host) => "host1",
            (Self::Second, Side::Box) => "box1",
            (Self::Second, Side::OtherBox) => "box21",
        }
    }
}

/// How the Ethernet is made.
#[derive(Clone, Copy, Debug)]
pub struct NetOptions {
    /// MTU of every interface, bytes.
    pub mtu: u32,
}

impl Default for NetOptions {
    fn default() -> Self {
        Self { mtu: 9000 }
    }
}

/// Frames and bytes that entered the bridge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames from the host.
    pub host_frames: u64,
    /// Bytes from the host.
    pub host_bytes: u64,
    /// Bytes that left it towards the host.
    pub to_host_bytes: u64,
    /// Frames from the box.
    pub box_frames: u64,
    /// Bytes from the box.
    pub box_bytes: u64,
    /// Frames from the other box.
    pub other_box_frames: u64,
    /// Bytes from the other box.
    pub other_box_bytes: u64,
}

/// Two namespaces and the bridge between them.
#[derive(Debug)]
pub struct Net {
    run: Run,
}

impl Net {
    /// Makes namespaces, bridge and cables.
    pub fn new(run: &Run, options: NetOptions) -> Result<Self> {
        let net = Self { run: run.clone() };
        for namespace in [net.bridge_namespace(), net.namespace(Side::Host), net.namespace(Side::Box)] {
            make_namespace(&namespace)?;
        }
        net.lay(Ethernet::First, options)?;
        Ok(net)
    }

    /// Makes a place for another box on the first Ethernet.
    pub fn add_box(&self, options: NetOptions) -> Result<()> {
        make_namespace(&self.namespace(Side::OtherBox))?;
        self.plug(Ethernet::First, Side::OtherBox, options)
    }

    /// Makes a second Ethernet beside the first one.
    pub fn add_second(&self, options: NetOptions) -> Result<()> {
        self.lay(Ethernet::Second, options)
    }

    /// Bridge and cables.
    fn lay(&self, ethernet: Ethernet, options: NetOptions) -> Result<()> {
        let (middle, bridge) = (self.bridge_namespace(), ethernet.bridge());
        let make_bridge = ["-n", &middle, "link", "add", bridge, "type", "bridge"];
        let quiet = ["stp_state", "0", "forward_delay", "0", "mcast_snooping", "0"];
        process::output(Command::new("ip").args(make_bridge).args(quiet))?;
        for side in [Side::Host, Side::Box] {
            self.plug(ethernet, side, options)?;
        }
        let mtu = options.mtu.to_string();
        tool("ip", ["-n", &middle, "link", "set", bridge, "mtu", &mtu, "up"]).map(drop)
    }

    /// A cable from the bridge to a side.
    fn plug(&self, ethernet: Ethernet, side: Side, options: NetOptions) -> Result<()> {
        let (middle, bridge, interface) = (self.bridge_namespace(), ethernet.bridge(), ethernet.interface());
        let mtu = options.mtu.to_string();
        let (namespace, port, mac) = (self.namespace(side), ethernet.port(side), side.mac(ethernet));
        let this_end = ["-n", &namespace, "link", "add", interface, "address", mac, "mtu", &mtu];
        let other_end = ["type", "veth", "peer", "name", port, "mtu", &mtu, "netns", &middle];
        process::output(Command::new("ip").args(this_end).args(other_end))?;
        tool("ip", ["-n", &middle, "link", "set", port, "master", bridge, "up"])?;
        tool("ip", ["-n", &namespace, "link", "set", interface, "up"]).map(drop)
    }

    /// The namespace of a side, as `ip netns` names it.
    pub fn namespace(&self, side: Side) -> String {
        self.run.namespace(side.name())
    }

    pub(crate) fn bridge_namespace(&self) -> String {
        self.run.namespace("net")
    }

    /// Pulls a side's cable out of the bridge, or puts it back. The interface itself stays up: a switch far away
    /// failed.
    pub fn connect(&self, side: Side, connected: bool) -> Result<()> {
        let middle = self.bridge_namespace();
        if connected {
            tool("ip", ["-n", &middle, "link", "set", side.name(), "master", BRIDGE]).map(drop)
        } else {
            tool("ip", ["-n", &middle, "link", "set", side.name(), "nomaster"]).map(drop)
        }
    }

    /// Takes a side's interface down, or up again: its own cable is out.
    pub fn set_link(&self, side: Side, up: bool) -> Result<()> {
        self.set_link_of(Ethernet::First, side, up)
    }

    /// The same on either Ethernet.
    pub fn set_link_of(&self, ethernet: Ethernet, side: Side, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        tool("ip", ["-n", &self.bridge_namespace(), "link", "set", ethernet.port(side), state]).map(drop)
    }

    /// Limits what the bridge sends towards `side`, as a slower link would; `None` lifts it.
    pub fn limit_rate(&self, side: Side, bits_per_second: Option<u64>) -> Result<()> {
        self.limit_rate_of(Ethernet::First, side, bits_per_second)
    }

    /// The same on either Ethernet.
    pub fn limit_rate_of(&self, ethernet: Ethernet, side: Side, bits_per_second: Option<u64>) -> Result<()> {
        let middle = self.bridge_namespace();
        let root = ["-n", &middle, "qdisc", "replace", "dev", ethernet.port(side), "root"];
        let mut command = Command::new("tc");
        command.args(root);
        match bits_per_second {
            None => command.arg("noqueue"),
            Some(rate) => {
                // A burst of a millisecond, and never less than a few frames; 50 ms of queue.
                let burst = (rate / 8 / 1000).max(64 << 10).to_string();
                command.args(["tbf", "rate", &format!("{rate}bit"), "burst", &burst]);
                command.args(["latency", "50ms"])
            }
        };
        process::output(&mut command).map(drop)
    }

    /// Loses frames that arrive at `side`, each with the same probability, in a million; 0 loses none. Behind
    /// [`Net::limit_rate`], as a bad cable would.
    pub fn lose(&self, side: Side, per_million: u32) -> Result<()> {
        set_loss(&self.namespace(side), per_million)
    }

    /// Lets the sides hear each other or not, on the first Ethernet; all others hear both.
    pub fn set_way(&self, one: Side, other: Side, open: bool) -> Result<()> {
        for (here, there) in [(one, other), (other, one)] {
            let namespace = format!("--net=/run/netns/{}", self.namespace(here));
            let rules = format!("add table netdev {WAY_TABLE}; delete table netdev {WAY_TABLE}");
            let mac = there.mac(Ethernet::First);
            let closed = format!(
                "{rules}; add table netdev {WAY_TABLE}; \
                 add chain netdev {WAY_TABLE} arriving \
                 {{ type filter hook ingress device \"{INTERFACE}\" priority 0; policy accept; }}; \
                 add rule netdev {WAY_TABLE} arriving ether saddr {mac} counter drop"
            );
            tool("nsenter", [&namespace, "--", "nft", if open { &rules } else { &closed }])?;
        }
        Ok(())
    }

    /// What entered the bridge so far.
    pub fn traffic(&self) -> Result<Traffic> {
        let text = tool("ip", ["-n", &self.bridge_namespace(), "-json", "-statistics", "link", "show"])?;
        parse_traffic(&text).ok_or_else(|| Error::unexpected("read the interfaces' counters", text))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let sides = [Side::Host, Side::Box, Side::OtherBox].map(|side| self.namespace(side));
        for namespace in sides.iter().chain([&self.bridge_namespace()]) {
            let _ = tool("ip", ["netns", "delete", namespace]);
        }
    }
}

/// Drops so many of a million packets that arrive at the interface of a namespace.
pub(crate) fn set_loss(namespace: &str, per_million: u32) -> Result<()> {
    let namespace = format!("--net=/run/netns/{namespace}");
    let nft = |rules: &str| tool("nsenter", [&namespace, "--", "nft", rules]).map(drop);
    // Made first, so that there is one to delete.
    nft(&format!("add table netdev {LOSS_TABLE}; delete table netdev {LOSS_TABLE}"))?;
    if per_million == 0 {
        return Ok(());
    }
    nft(&format!(
        "add table netdev {LOSS_TABLE}; \
         add chain netdev {LOSS_TABLE} arriving \
         {{ type filter hook ingress device \"{INTERFACE}\" priority 0; policy accept; }}; \
         add rule netdev {LOSS_TABLE} arriving numgen random mod 1000000 < {per_million} counter drop"
    ))
}

pub(crate) fn make_namespace(name: &str) -> Result<()> {
    tool("ip", ["netns", "add", name])?;
    // Before the first interface appears, or it would announce itself. Without IPv6 in the kernel there is no such key.
    tool(
        "nsenter",
        [
            &format!("--net=/run/netns/{name}"),
            "--",
            "sysctl",
            "--quiet",
            "--ignore",
            "--write",
            "net.ipv6.conf.all.disable_ipv6=1",
            "net.ipv6.conf.default.disable_ipv6=1",
        ],
    )
    .map(drop)
}

fn parse_traffic(json: &str) -> Option<Traffic> {
    let links: serde_json::Value = serde_json::from_str(json).ok()?;
    let of = |side: Side| {
        let link = links.as_array()?.iter().find(|link| link["ifname"] == side.name())?;
        let received = &link["stats64"]["rx"];
        Some((received["packets"].as_u64()?, received["bytes"].as_u64()?))
    };
    let (host_frames, host_bytes) = of(Side::Host)?;
    let host_link = links.as_array()?.iter().find(|link| link["ifname"] == Side::Host.name())?;
    let to_host_bytes = host_link["stats64"]["tx"]["bytes"].as_u64()?;
    let (box_frames, box_bytes) = of(Side::Box)?;
    let (other_box_frames, other_box_bytes) = of(Side::OtherBox).unwrap_or_default();
    Some(Traffic {
        host_frames,
        host_bytes,
        to_host_bytes,
        box_frames,
        box_bytes,
        other_box_frames,
        other_box_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::{Traffic, parse_traffic};

    #[test]
    fn counters_are_read_per_side() {
        let json = r#"[{"ifname":"lo"},
            {"ifname":"host","stats64":{"rx":{"bytes":10,"packets":1},"tx":{"bytes":7,"packets":7}}},
            {"ifname":"box","stats64":{"rx":{"bytes":30,"packets":3},"tx":{"bytes":7,"packets":7}}}]"#;
        let expected = Traffic {
            host_frames: 1,
            host_bytes: 10,
            to_host_bytes: 7,
            box_frames: 3,
            box_bytes: 30,
            ..Traffic::default()
        };
        assert_eq!(parse_traffic(json), Some(expected));
        assert_eq!(parse_traffic("[]"), None);
    }
}
