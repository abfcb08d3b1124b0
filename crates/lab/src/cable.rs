//! A cable between a host and a box, without a bridge: what is measured over it is the two ends alone.

use crate::error::Result;
use crate::net::{BOX_MAC, HOST_MAC, INTERFACE, NetOptions, Side, make_namespace, set_loss};
use crate::process::tool;
use crate::run::Run;

/// IPv4 address of the host's interface.
pub const HOST_IP: &str = "10.77.0.1";
/// IPv4 address of the box's interface.
pub const BOX_IP: &str = "10.77.0.2";

/// Two namespaces, joined by one veth pair with MAC and IPv4 addresses.
#[derive(Debug)]
pub struct Cable {
    namespaces: [String; 2],
}

impl Cable {
    /// Makes namespaces and cable; `name` must be unique in the run.
    pub fn new(run: &Run, name: &str, options: NetOptions) -> Result<Self> {
        let cable = Self { namespaces: ["host", "box"].map(|side| run.namespace(&format!("{name}-{side}"))) };
        let [host, io_box] = &cable.namespaces;
        for namespace in &cable.namespaces {
            make_namespace(namespace)?;
            tool("ip", ["-n", namespace, "link", "set", "lo", "up"])?;
        }
        let mtu = options.mtu.to_string();
        let this_end = ["-n", host, "link", "add", INTERFACE, "address", HOST_MAC, "mtu", &mtu];
        let other_end =
            ["type", "veth", "peer", "name", INTERFACE, "address", BOX_MAC, "mtu", &mtu, "netns", io_box];
        crate::process::output(std::process::Command::new("ip").args(this_end).args(other_end))?;
        for (namespace, address) in [(host, HOST_IP), (io_box, BOX_IP)] {
            tool("ip", ["-n", namespace, "address", "add", &format!("{address}/24"), "dev", INTERFACE])?;
            tool("ip", ["-n", namespace, "link", "set", INTERFACE, "up"])?;
        }
        Ok(cable)
    }

    /// Drops so many of a million packets that arrive at a side.
    pub fn set_loss(&self, side: Side, per_million: u32) -> Result<()> {
        set_loss(self.namespace(side), per_million)
    }

    /// The namespace of a side, as `ip netns` names it.
    pub fn namespace(&self, side: Side) -> &str {
        match side {
            Side::Host => &self.namespaces[0],
            Side::Box | Side::OtherBox => &self.namespaces[1],
        }
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            let _ = tool("ip", ["netns", "delete", namespace]);
        }
    }
}
