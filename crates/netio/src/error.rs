//! Why a Port could not be opened: cause and remedy.

use std::io;
use std::net::SocketAddr;

use crate::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};

/// Why a Port could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// No interface has this name.
    #[error("interface `{0}` does not exist: `ip link` lists those that do")]
    NoInterface(String),
    /// The interface is administratively down.
    #[error("interface `{0}` is down: `ip link set {0} up` starts it")]
    InterfaceDown(String),
    /// The interface has no Ethernet address.
    #[error("interface `{0}` is not an Ethernet interface: choose one with a MAC address, or a UDP link")]
    NotEthernet(String),
    /// The process may not open packet sockets.
    #[error(
        "raw Ethernet needs the capability CAP_NET_RAW: run as root, grant it with `setcap cap_net_raw+ep`, or choose a UDP link"
    )]
    NotPermitted,
    /// The process may not open a TAP interface, or not this one.
    #[error(
        "the TAP interface `{0}` may not be opened: run as root, with CAP_NET_ADMIN, or let root make it for this user: `ip tuntap add dev {0} mode tap user NAME`"
    )]
    TapNotPermitted(String),
    /// Another process has the TAP interface.
    #[error("the TAP interface `{0}` belongs to another process: end that, or choose another name")]
    TapInUse(String),
    /// An interface of this name is of another kind.
    #[error("interface `{0}` is no TAP interface: choose another name, or `ip link delete {0}`")]
    NoTap(String),
    /// The MTU leaves too little for a session frame.
    #[error("{link} carries frames of {bytes} bytes, a session needs {MIN_FRAME_BYTES}: raise its MTU")]
    MtuTooSmall {
        /// Which link.
        link: String,
        /// Bytes left for a session frame.
        bytes: usize,
    },
    /// The configured frame size is outside what the link, or any Port, can carry.
    #[error(
        "frames of {bytes} bytes do not fit {link}: choose {MIN_FRAME_BYTES} to {limit} bytes, or raise its MTU (no Port takes more than {MAX_FRAME_BYTES})"
    )]
    FrameSize {
        /// Which link.
        link: String,
        /// The configured size.
        bytes: usize,
        /// The largest that fits.
        limit: usize,
    },
    /// The UDP address cannot be bound.
    #[error(
        "cannot bind {address}: {source}; give an address of this machine (`ip address`) and a free port"
    )]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The memory port does not exist or is taken.
    #[error("port {port} of the hub cannot be opened: {reason}")]
    Hub {
        /// The port asked for.
        port: u32,
        /// Why not.
        reason: &'static str,
    },
    /// The port of a hub in shared memory cannot be had.
    #[error("port {port} of the hub {hub} cannot be opened: {reason}")]
    Ring {
        /// The hub's folder.
        hub: String,
        /// The port asked for.
        port: u32,
        /// Why not, and what helps.
        reason: &'static str,
    },
    /// Another process has the port of the hub in shared memory.
    #[error("port {port} of the hub {hub} is open already: use another number")]
    RingTaken {
        /// The hub's folder.
        hub: String,
        /// The port asked for.
        port: u32,
    },
    /// `AF_XDP` cannot be had on the interface.
    #[error("AF_XDP on interface `{interface}`: {reason}")]
    Xdp {
        /// The interface.
        interface: String,
        /// Why not, and what helps.
        reason: String,
    },
    /// Another system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// What the kernel said.
        source: io::Error,
    },
}

impl OpenError {
    pub(crate) fn system(what: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}

/// The frame size of a link that carries `link_bytes`, given what the configuration asks for.
pub(crate) fn frame_bytes(link: &str, link_bytes: usize, wanted: Option<usize>) -> Result<usize, OpenError> {
    let limit = link_bytes.min(MAX_FRAME_BYTES);
    if limit < MIN_FRAME_BYTES {
        return Err(OpenError::MtuTooSmall { link: link.to_owned(), bytes: link_bytes });
    }
    match wanted {
        None => Ok(limit),
        Some(bytes) if (MIN_FRAME_BYTES..=limit).contains(&bytes) => Ok(bytes),
        Some(bytes) => Err(OpenError::FrameSize { link: link.to_owned(), bytes, limit }),
    }
}
