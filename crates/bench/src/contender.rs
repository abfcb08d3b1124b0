//! Who is measured: a row for each.

use anyhow::Result;
use etherslot_lab::{BOX_IP, BOX_MAC, HOST_IP, HOST_MAC, INTERFACE};
use serde::{Deserialize, Serialize};

use crate::bed::Bed;
use crate::peer::spdk::{self, Spdk};
use crate::peer::{Peer, etherslot::Etherslot, iscsi::Iscsi, local::Local, nbdkit::Nbdkit};

/// UDP port of the box.
const PORT: u16 = 4700;
/// For the buffers of both sides of a memif, MiB.
const MEMIF_MIB: u32 = 256;
/// Numbers of both sides in a ring's hub.
const BOX_RING: u16 = 1;
const HOST_RING: u16 = 2;

/// The payload of a TLP where nothing else is said, bytes.
const USUAL_PAYLOAD: u16 = 4096;
/// The same of the published version: no chipset of its time granted a device more.
const PUBLISHED_PAYLOAD: u16 = 256;

/// A way of Etherslot between initiator and box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Link {
    /// `AF_PACKET`.
    Packet,
    /// `AF_PACKET` with one TLP a frame of at most [`PUBLISHED_PAYLOAD`] bytes, as in the published kernel version.
    Published,
    /// UDP with segmentation offload.
    Udp,
    /// The same with keys: frames are sealed.
    UdpSealed,
    /// `AF_XDP`.
    Xdp,
    /// A ring in shared memory.
    Ring,
    /// DPDK's memif.
    Memif,
}

impl Link {
    pub(crate) const ALL: [Self; 7] =
        [Self::Packet, Self::Published, Self::Udp, Self::UdpSealed, Self::Xdp, Self::Ring, Self::Memif];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Published => "published",
            Self::Udp => "udp",
            Self::UdpSealed => "udp-sealed",
            Self::Xdp => "xdp",
            Self::Ring => "ring",
            Self::Memif => "memif",
        }
    }

    /// Whether nodes have keys; the peers have no protection, and most of our links are compared with theirs.
    pub(crate) fn is_sealed(self) -> bool {
        self == Self::UdpSealed
    }

    /// Whether every TLP leaves in a frame of its own.
    pub(crate) fn one_tlp_a_frame(self) -> bool {
        self == Self::Published
    }

    /// The box's `[link]` table. `folder` is a place for what both sides see beside the cable.
    pub(crate) fn box_table(self, folder: &str) -> String {
        let keys = match self {
            Self::Packet | Self::Published => format!("kind = \"packet\"\ninterface = \"{INTERFACE}\""),
            Self::Udp | Self::UdpSealed => format!("kind = \"udp\"\nlisten = \"{BOX_IP}:{PORT}\""),
            Self::Xdp => format!("kind = \"xdp\"\ninterface = \"{INTERFACE}\""),
            Self::Ring => format!("kind = \"ring\"\nhub = \"{folder}/hub\"\nport = {BOX_RING}"),
            Self::Memif => format!(
                "kind = \"dpdk\"\ndevice = \"net_memif0,role=server,socket={folder}/memif\"\nmac = \"{BOX_MAC}\""
            ),
        };
        format!("[link]\n{keys}\n")
    }

    /// The initiator's link in one word.
    pub(crate) fn of_host(self, folder: &str) -> String {
        match self {
            Self::Packet | Self::Published => format!("packet:{INTERFACE}"),
            Self::Udp | Self::UdpSealed => format!("udp:{HOST_IP}:0"),
            Self::Xdp => format!("xdp:{INTERFACE}"),
            Self::Ring => format!("ring:{folder}/hub#{HOST_RING}"),
            Self::Memif => format!("dpdk:net_memif0,socket={folder}/memif,mac={HOST_MAC}"),
        }
    }

    /// The box's address, as the initiator gives it.
    pub(crate) fn box_address(self) -> String {
        match self {
            Self::Udp | Self::UdpSealed => format!("{BOX_IP}:{PORT}"),
            Self::Ring => format!("ring:{BOX_RING}"),
            _ => BOX_MAC.to_owned(),
        }
    }
}

/// How commands come to the device, where that is not by read-ahead with the doorbell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Commands {
    /// The host writes them into the Controller Memory Buffer.
    Cmb,
    /// The device fetches them from the host's memory once it has the doorbell, as over any PCI Express link.
    Fetched,
}

impl Commands {
    pub(crate) const ALL: [Self; 2] = [Self::Cmb, Self::Fetched];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cmb => "CMB",
            Self::Fetched => "fetched",
        }
    }
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contender {
    /// Ourselves, over a link.
    Etherslot(Link),
    /// The same with another way of commands.
    Commands(Link, Commands),
    /// SPDK's NVMe/TCP target and its `perf`.
    Spdk,
    /// nbdkit's memory plugin and fio.
    Nbdkit,
    /// tgt and iscsi-perf of libiscsi.
    Iscsi,
    /// A file in memory, without any network: the limit.
    Local,
}

impl Contender {
    /// What people call it.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Etherslot(link) => format!("etherslot {}", link.name()),
            Self::Commands(link, commands) => format!("etherslot {}, {}", link.name(), commands.name()),
            Self::Spdk => "SPDK NVMe/TCP".to_owned(),
            Self::Nbdkit => "nbdkit".to_owned(),
            Self::Iscsi => "tgt iSCSI".to_owned(),
            Self::Local => "local file".to_owned(),
        }
    }

    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Self::Etherslot(_) | Self::Commands(..))
    }

    /// Whether it is ourselves with another way of commands than the usual one.
    pub(crate) fn commands(self) -> Option<Commands> {
        match self {
            Self::Commands(_, commands) => Some(commands),
            _ => None,
        }
    }

    /// Ours over two links, with each way of commands.
    pub(crate) fn ways_of_commands() -> Vec<Self> {
        let ways = |link| {
            let others = Commands::ALL.map(|commands| Self::Commands(link, commands));
            [Self::Etherslot(link)].into_iter().chain(others)
        };
        [Link::Udp, Link::Ring].into_iter().flat_map(ways).collect()
    }

    /// All that there are with their usual settings, ours first.
    pub(crate) fn all() -> Vec<Self> {
        let peers = [Self::Spdk, Self::Nbdkit, Self::Iscsi, Self::Local];
        Link::ALL.into_iter().map(Self::Etherslot).chain(peers).collect()
    }
}

/// A contender with what it is set up with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Setup {
    pub(crate) contender: Contender,
    /// MTU of the cable.
    pub(crate) mtu: u16,
    /// Devices in the box: one is loaded, or one for each of `hosts`; idle hosts hold the others. Of the peers: 1.
    pub(crate) devices: u16,
    /// Hosts at work at once, each with its share of the load on a device of its own; they sleep when they have nothing to do. 0:
    /// one host, which polls.
    #[serde(default)]
    pub(crate) hosts: u16,
    /// The largest payload of a TLP, bytes; means nothing to the peers.
    pub(crate) payload: u16,
    /// Whether the server sleeps when it has nothing to do, so that its CPU time is that of its work.
    pub(crate) sleeps: bool,
}

impl Setup {
    /// Jumbo frames, one device, polling.
    pub(crate) fn new(contender: Contender) -> Self {
        let is_published = contender == Contender::Etherslot(Link::Published);
        let payload = if is_published { PUBLISHED_PAYLOAD } else { USUAL_PAYLOAD };
        Self { contender, mtu: 9000, devices: 1, hosts: 0, payload, sleeps: false }
    }

    /// Unique among setups; good for names of files.
    pub(crate) fn name(self) -> String {
        let Self { contender, mtu, devices, hosts, payload, sleeps } = self;
        let name = contender.name().replace(',', "").replace([' ', '/'], "-");
        format!("{name}-{mtu}-{devices}-{hosts}-{payload}-{}", u8::from(sleeps))
    }

    /// In what it is not the usual one, in words.
    pub(crate) fn differences(self) -> String {
        let usual = Self::new(self.contender);
        let mtu = (self.mtu != usual.mtu).then(|| format!("MTU {}", self.mtu));
        let devices = (self.devices != usual.devices).then(|| format!("{} devices", self.devices));
        let hosts = (self.hosts != usual.hosts).then(|| format!("{} hosts", self.hosts));
        let sleeps = (self.sleeps != usual.sleeps).then(|| "sleeping".to_owned());
        [mtu, devices, hosts, sleeps].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Memory in huge pages that server and client take, MiB.
    pub(crate) fn huge_mib(self, memory_mib: u32) -> u32 {
        match self.contender {
            Contender::Spdk => spdk::huge_mib(memory_mib),
            Contender::Etherslot(Link::Memif) | Contender::Commands(Link::Memif, _) => MEMIF_MIB,
            _ => 0,
        }
    }

    /// Starts its server.
    pub(crate) fn start(self, bed: &Bed) -> Result<Box<dyn Peer>> {
        Ok(match self.contender {
            Contender::Etherslot(link) | Contender::Commands(link, _) => {
                Box::new(Etherslot::start(bed, self, link)?)
            }
            Contender::Spdk => Box::new(Spdk::start(bed, self)?),
            Contender::Nbdkit => Box::new(Nbdkit::start(bed, self)?),
            Contender::Iscsi => Box::new(Iscsi::start(bed, self)?),
            Contender::Local => Box::new(Local::start(bed, self)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_setup_has_a_name_of_its_own() {
        let mut names = BTreeSet::new();
        let others = Contender::ways_of_commands();
        let others = others.into_iter().filter(|contender| contender.commands().is_some());
        for contender in Contender::all().into_iter().chain(others) {
            let setup = Setup::new(contender);
            let payload = Setup { payload: 128, ..setup };
            let hosts = Setup { hosts: 1, ..setup };
            let others =
                [setup, Setup { mtu: 1500, ..setup }, payload, hosts, Setup { sleeps: true, ..setup }];
            for setup in others {
                assert!(names.insert(setup.name()) && !setup.name().contains('/'));
            }
        }
    }
}
