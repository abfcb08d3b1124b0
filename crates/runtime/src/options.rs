//! What a daemon is told to be: checked values, whatever file or flags they came from.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

pub use etherslot_netio::Address;
pub use etherslot_netio::impair::Impairment;
pub use etherslot_netio::xdp::XdpMode;
pub use etherslot_node::MAX_PAYLOAD_BYTES;
pub use etherslot_node::seal::{Peers, PublicKey};
pub use etherslot_session::MAX_PATHS;

pub use etherslot_fabric::Policy as FailoverPolicy;
pub use etherslot_wire::control::Name;
pub use etherslot_wire::discovery::Group;

pub use crate::fabric::{ANY, Wanted};
pub use crate::keys::KeyFiles;
pub use crate::link_spec::LinkSpecError;
pub use crate::streams::ListenAddress;

/// An I/O box.
#[derive(Debug)]
pub struct BoxOptions {
    /// Name and poll loop.
    pub run: LoopOptions,
    /// Its links.
    pub links: Vec<LinkOptions>,
    /// Its sessions.
    pub session: SessionOptions,
    /// Their protection.
    pub security: SecurityOptions,
    /// Its devices, with unique names.
    pub devices: Vec<DeviceOptions>,
    /// Its part in the fabric, if it takes part.
    pub fabric: Option<FabricOptions>,
}

/// A host node.
#[derive(Debug)]
pub struct HostOptions {
    /// Name and poll loop.
    pub run: LoopOptions,
    /// Its links.
    pub links: Vec<LinkOptions>,
    /// Its sessions.
    pub session: SessionOptions,
    /// Their protection.
    pub security: SecurityOptions,
    /// The remote devices that it offers.
    pub slots: Vec<SlotOptions>,
    /// Its part in the fabric, if it takes part.
    pub fabric: Option<FabricOptions>,
}

/// A node's part in the fabric.
#[derive(Clone, Debug)]
pub struct FabricOptions {
    /// A host's assignment group; of a box that of devices which have none of their own.
    pub group: Option<Group>,
    /// Between two heartbeats.
    pub interval: Duration,
    /// A node is down when so many intervals have passed without one.
    pub misses: u32,
    /// Where heartbeats go on links that can't broadcast.
    pub peers: Vec<Address>,
    /// Pass on what is heard.
    pub rendezvous: bool,
    /// Take orders from other nodes.
    pub orders: bool,
    /// A box keeps a device for an owner that is out of reach for so long.
    pub hold: Duration,
    /// An owner has so long to give a device back.
    pub recall: Duration,
    /// A new owner has so long to take it.
    pub offer: Duration,
    /// Where a box keeps its leases, if not in the usual folder.
    pub state: Option<PathBuf>,
}

impl Default for FabricOptions {
    fn default() -> Self {
        Self {
            group: None,
            interval: Duration::from_millis(100),
            misses: 3,
            peers: Vec::new(),
            rendezvous: false,
            orders: true,
            hold: Duration::from_secs(2),
            recall: Duration::from_secs(20),
            offer: Duration::from_secs(5),
            state: None,
        }
    }
}

/// How sessions are protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityOptions {
    /// With keys.
    Keys {
        /// Where they are.
        files: KeyFiles,
        /// Which nodes of the fabric this one speaks with.
        peers: Peers,
    },
    /// Not at all: whoever can send frames to the node can use its devices.
    Plaintext,
    /// Not at all, since all links are memory of this user alone.
    Memory,
}

/// The poll loop.
#[derive(Debug)]
pub struct LoopOptions {
    /// The node's name.
    pub name: String,
    /// How long to go on polling after the last thing that happened, before sleeping; without it, as long as polling pays.
    pub busy_poll: Option<Duration>,
    /// Where the control socket is, if not in [`crate::control::folder`].
    pub control: Option<PathBuf>,
    /// The group whose members may use the control socket, too.
    pub control_group: Option<u32>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<ListenAddress>,
}

/// The link.
#[derive(Debug)]
pub struct LinkOptions {
    /// Which back end.
    pub kind: LinkKind,
    /// Where to write a pcapng capture.
    pub capture: Option<PathBuf>,
    /// Faults to make on purpose, in the words of `etherslot_netio::impair`.
    pub impair: Option<String>,
}

impl LinkOptions {
    /// Whether frames arrive as they were sent or not at all: memory does not damage them, unless it is told to.
    pub fn is_intact(&self) -> bool {
        matches!(self.kind, LinkKind::Ring { .. }) && self.impair.is_none()
    }
}

/// A link's back end. Its text form, as in `--link packet:eth0`, is in [`crate::link_spec`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// Raw Ethernet by `AF_PACKET`.
    Packet {
        /// The network interface.
        interface: String,
    },
    /// UDP.
    Udp {
        /// Where to listen.
        listen: SocketAddr,
        /// The path's MTU, if it is not the interface's.
        mtu: Option<u16>,
    },
    /// Raw Ethernet by `AF_XDP`.
    Xdp {
        /// The network interface.
        interface: String,
        /// Its queue.
        queue: u32,
        /// Who runs the XDP program.
        mode: XdpMode,
    },
    /// Shared memory with other nodes of this machine.
    Ring {
        /// The hub's folder.
        hub: PathBuf,
        /// The number in it that is ours.
        port: u32,
    },
    /// A device of DPDK.
    Dpdk {
        /// Its name with its arguments: `net_memif0,role=server`, `0000:03:00.0`.
        device: String,
        /// Further arguments of EAL, the same for all such links.
        eal: Vec<String>,
        /// The largest payload of an Ethernet frame, if it is not the device's.
        mtu: Option<u16>,
        /// The Ethernet address, if it is not the device's.
        mac: Option<[u8; 6]>,
    },
}

/// Sessions.
#[derive(Debug)]
pub struct SessionOptions {
    /// Offer the published mode: in-order receiver, Go-Back-N.
    pub classic: bool,
    /// A frame for each TLP, as in the published kernel version.
    pub one_tlp_a_frame: bool,
    /// Send memory along with doorbells, and take what is sent.
    pub read_ahead: bool,
    /// The largest payload of a host's TLPs, a power of two from 128 to 4096 bytes.
    pub max_payload: u16,
    /// Frames in flight and held out of order; by default as many as the link's frame size asks for.
    pub window_frames: Option<u16>,
    /// The most paths of a session.
    pub paths: u8,
    /// A peer silent for this long is dead.
    pub dead_after: Duration,
    /// How often an idle session shows that it lives.
    pub heartbeat: Duration,
}

impl SessionOptions {
    /// Frames in flight and held out of order, whether said or not.
    pub fn window(&self) -> u16 {
        self.window_frames.unwrap_or(etherslot_session::Config::default().window_frames)
    }
}

/// A way to a peer: one of our links, and the peer's address there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Via {
    /// The link's place in the configuration, from 0.
    pub link: usize,
    /// The peer's address.
    pub address: Address,
}

impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)?;
        if self.link == 0 { Ok(()) } else { write!(f, " by link {}", self.link) }
    }
}

/// All ways to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Routes {
    /// That of the first link, by which the peer is greeted.
    pub first: Via,
    /// The others.
    pub further: Vec<Via>,
}

impl Routes {
    /// An address on each of the first links.
    pub fn new(first: Address, further: impl IntoIterator<Item = Address>) -> Self {
        let further = further.into_iter().enumerate();
        Self {
            first: Via { link: 0, address: first },
            further: further.map(|(at, address)| Via { link: at + 1, address }).collect(),
        }
    }

    /// All of them, the first one first.
    pub fn iter(&self) -> impl Iterator<Item = Via> {
        std::iter::once(self.first).chain(self.further.iter().copied())
    }
}

/// A device of a box.
#[derive(Debug)]
pub struct DeviceOptions {
    /// What hosts call it: 1 to 32 bytes.
    pub name: String,
    /// Serial number, up to 20 characters.
    pub serial: String,
    /// Its assignment group.
    pub group: Option<Group>,
    /// To whom it moves when its host is lost, if it does.
    pub failover: Option<FailoverPolicy>,
    /// The nodes that may have it, if not all.
    pub owners: Option<Vec<PublicKey>>,
    /// What it is.
    pub kind: DeviceKind,
}

impl DeviceOptions {
    /// What keeps its blocks, if it has any.
    pub fn stores(&self) -> &[StoreOptions] {
        match &self.kind {
            DeviceKind::Nvme(nvme) => &nvme.namespaces,
            DeviceKind::Sata(sata) => &sata.disks,
            DeviceKind::Dc { .. } | DeviceKind::E82576(_) | DeviceKind::Rnic(_) => &[],
        }
    }
}

/// A kind of device.
#[derive(Debug)]
pub enum DeviceKind {
    /// An NVMe controller.
    Nvme(NvmeOptions),
    /// A SATA controller with disks.
    Sata(SataOptions),
    /// A DC buffer: memory for devices to hand each other data.
    Dc {
        /// A power of two from 64 KiB on.
        bytes: u64,
    },
    /// An Ethernet controller, Intel 82576.
    E82576(NicOptions),
    /// An RNIC.
    Rnic(RnicOptions),
}

/// An RNIC.
#[derive(Debug)]
pub struct RnicOptions {
    /// Its own link; what it carries is not protected.
    pub link: LinkKind,
    /// The RNICs that it speaks with: the sessions that its peer table names by number.
    pub peers: Vec<Address>,
}

/// An NVMe controller.
#[derive(Debug)]
pub struct NvmeOptions {
    /// Model number, up to 40 characters.
    pub model: String,
    /// I/O queue pairs, 1 to 64.
    pub queue_pairs: u16,
    /// Size of the Controller Memory Buffer, if it has one.
    pub cmb_bytes: Option<u32>,
    /// The most that one command transfers: a power of two, 4 KiB to 16 MiB.
    pub max_transfer_bytes: u32,
    /// Bytes a second that it reads and writes at most, all namespaces together.
    pub rate: Option<NonZeroU64>,
    /// Namespaces, in the order of their IDs from 1.
    pub namespaces: Vec<StoreOptions>,
}

/// Which SATA controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SataController {
    /// AHCI.
    Ahci,
    /// Silicon Image's `SiI3132`, with two ports.
    Sil3132,
}

/// A SATA controller.
#[derive(Debug)]
pub struct SataOptions {
    /// Which one.
    pub controller: SataController,
    /// Model number of the disks, up to 40 characters.
    pub model: String,
    /// Ports, at least as many as disks.
    pub ports: u8,
    /// What is at the first ports.
    pub disks: Vec<StoreOptions>,
}

/// An Ethernet controller.
#[derive(Debug)]
pub struct NicOptions {
    /// Its address; without one, one that follows from the serial number.
    pub mac: Option<[u8; 6]>,
    /// What it is plugged into.
    pub network: NetworkOptions,
}

/// The network of an Ethernet controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkOptions {
    /// A TAP interface of this machine, which is made if there is none.
    Tap(String),
    /// The network at the other end of a link, whose frames carry those of the controller.
    Link {
        /// The link.
        kind: LinkKind,
        /// The only one whose frames count.
        peer: Address,
    },
}

/// What keeps the blocks of a namespace or disk.
#[derive(Debug)]
pub struct StoreOptions {
    /// What is behind it.
    pub backing: Backing,
    /// 512 or 4096.
    pub block_bytes: u32,
    /// Refuse writes.
    pub read_only: bool,
    /// Of a disk on a file: it is in as long as the file is there.
    pub removable: bool,
}

/// What is behind a namespace or disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file or block device.
    File(PathBuf),
    /// So many bytes of the daemon's own memory, a multiple of 4096; lost when it ends.
    Memory(u64),
}

/// A remote device that a host node offers.
#[derive(Debug)]
pub struct SlotOptions {
    /// What it is called: its name in the box, or what it is found by.
    pub device: String,
    /// What it is found by; without it, by name at `routes`.
    pub wanted: Wanted,
    /// Where the box is; if that is not said, it is found.
    pub routes: Option<Routes>,
    /// Who the box has to be.
    pub box_key: Option<PublicKey>,
    /// The vfio-user socket.
    pub socket: PathBuf,
    /// How it may interrupt.
    pub interrupts: Interrupts,
    /// How it enters and leaves a running guest, if it does.
    pub hot_plug: Option<HotPlugOptions>,
    /// The address space that it shares with the devices of other slots, if not 0.
    pub domain: u16,
}

/// Where a slot's device is plugged into a running guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotPlugOptions {
    /// The socket of QEMU's monitor (QMP).
    pub monitor: PathBuf,
    /// QEMU's name of the port that the device is plugged into.
    pub bus: String,
    /// What QEMU is to call the device.
    pub id: String,
    /// How long a device may be out of reach until it is taken out of the guest.
    pub grace: Duration,
}

/// How a device may interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupts {
    /// By all that it has.
    MsiX,
    /// By INTx and MSI; MSI-X is hidden from the guest, since QEMU can't unplug a vfio-user device that has it.
    Msi,
}
