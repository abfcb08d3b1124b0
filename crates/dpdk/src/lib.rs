//! Ports over DPDK: whatever device it has a driver for, from a NIC by vfio-pci to shared memory between processes.
//!
//! DPDK's data path is C, inline functions over its own structures, so a thin shim (`shim/`) is compiled against the DPDK of
//! the machine that builds, into a shared object which is carried in the binary and loaded when the first Port is opened:
//! the binary runs on machines that have no DPDK, and tells what is missing when a Port is asked for. Without libdpdk at
//! build time there is no shim, and a Port says so.
//!
//! Such a Port must be polled: it has no descriptor to wait for. What EAL's own thread does to devices is kept apart from
//! bursts (`shim/gate.c`). Drivers of shared memory (`net_memif`, `net_vhost`, `net_virtio_user`) trust their peer: it can
//! write where it likes in what is shared, and break this process.
#![allow(unsafe_code)] // DPDK exists only in C.

mod device;
mod eal;
mod port;
mod shim;
mod stale;

pub use port::DpdkPort;

/// How to open a [`DpdkPort`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkConfig {
    /// A device as DPDK names it, with its arguments: `net_memif0,role=server,socket=…`, `0000:03:00.0`.
    pub device: String,
    /// Further arguments of EAL. It is started once in a process, so all Ports have to agree.
    pub eal: Vec<String>,
    /// The largest session frame; none: the MTU of the kernel interface of the same card, 9000 where frames stay in
    /// shared memory, or what the device is set to.
    pub max_frame_bytes: Option<usize>,
    /// The Ethernet address; none: that of the device, which virtual devices choose anew each time.
    pub mac: Option<[u8; 6]>,
}

impl DpdkConfig {
    /// A device as it is.
    pub fn new(device: impl Into<String>) -> Self {
        Self { device: device.into(), eal: Vec::new(), max_frame_bytes: None, mac: None }
    }
}

/// Why a [`DpdkPort`] could not be opened: cause and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// There was no libdpdk when this was built.
    #[error(
        "this etherslot was built without DPDK: install libdpdk-dev and pkg-config, build it again, or choose another kind of link"
    )]
    NotBuilt,
    /// The shim does not load.
    #[error(
        "DPDK cannot be loaded: {0}; install the libdpdk-dev that this etherslot was built with, or build it again"
    )]
    NotLoaded(String),
    /// EAL does not start.
    #[error("DPDK does not start with {arguments}: {reason}")]
    NotStarted {
        /// What it was given.
        arguments: String,
        /// What it said.
        reason: String,
    },
    /// EAL runs already, with other arguments.
    #[error("DPDK runs with eal = {running:?} already: give all links of kind `dpdk` the same")]
    OtherArguments {
        /// The arguments it runs with.
        running: Vec<String>,
    },
    /// No device could have this name.
    #[error("`{0}` is no device of DPDK: write net_memif0,role=server,… or a PCI address")]
    NoDevice(String),
    /// The device cannot be used.
    #[error("DPDK device `{device}`: {step} failed: {reason}")]
    Device {
        /// Its name.
        device: String,
        /// What was tried.
        step: String,
        /// What DPDK said.
        reason: String,
    },
    /// The frame size is outside what the device, or any Port, can carry.
    #[error(
        "DPDK device `{device}`: frames of {bytes} bytes cannot be: choose {} to {}",
        etherslot_netio::MIN_FRAME_BYTES,
        etherslot_netio::MAX_FRAME_BYTES
    )]
    FrameSize {
        /// Its name.
        device: String,
        /// The size asked for, or the device's.
        bytes: usize,
    },
}

/// Whether Ports can be opened in this process: whether the shim was built and loads.
pub fn available() -> Result<(), OpenError> {
    shim::Shim::get().map(|_| ())
}
