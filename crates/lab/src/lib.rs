//! The test lab: everything around Etherslot that an end-to-end run needs, made from stock parts.
//!
//! - [`Cache`] holds what is fetched once: QEMU, an unmodified Debian kernel, an initramfs with fio and nvme-cli.
//! - [`Run`] is one experiment: its directory, and the names of whatever it makes on the machine.
//! - [`Net`] is its Ethernet: a host and a box joined by a bridge; [`Capture`] watches it.
//! - [`Daemon`] is an `etherslot` process in one of the two namespaces.
//! - [`Cable`] joins two sides without a bridge, for measurements.
//! - [`Rig`] is all of it at once.
//! - [`Root`] is another release of Debian, for programs of it.
//! - [`Boot`] makes a disk that a guest's firmware starts from.
//! - [`Guest`] is a virtual machine; [`Qmp`] talks to its QEMU, [`fio`] loads its disks.
//!
//! Whatever a value made is gone when it is dropped. A child process dies with the lab even when the lab is killed,
//! and what a killed lab leaves behind (namespaces, files) the next [`Run`] removes.
//!
//! Root is needed, on Linux on x86-64 with Debian's package tools. The lab depends on no other crate of the
//! workspace: it starts the built binary as an operator would. (Tests that compare a link with the simulator use that too.)

mod accel;
mod agent;
mod boot;
mod cable;
mod cache;
mod capture;
mod cpio;
mod daemon;
mod error;
pub mod fio;
mod guest;
mod initramfs;
mod kernel;
mod keys;
mod net;
mod packages;
mod pcap;
mod process;
mod qemu;
mod qmp;
mod rig;
mod root;
mod run;
mod story;

pub use accel::Accel;
pub use agent::{Job, Output};
pub use boot::{Boot, Firmware};
pub use cable::{BOX_IP, Cable, HOST_IP};
pub use cache::{Cache, KERNELS, KernelSource};
pub use capture::{Capture, Captured, Keep};
pub use daemon::{Daemon, Role, etherslot_binary, etherslot_command};
pub use error::{Error, Result};
pub use guest::{Console, Guest, GuestDevice, GuestFile, GuestOptions, Level, bare_qemu};
pub use keys::{KEY_VARIABLE, node_keys};
pub use net::{
    BOX_MAC, Ethernet, HOST_MAC, INTERFACE, Net, NetOptions, OTHER_BOX_MAC, SECOND_BOX_MAC, SECOND_HOST_MAC,
    SECOND_INTERFACE, Side, Traffic,
};
pub use packages::{ensure_nbd_clients, ensure_net, ensure_programs};
pub use pcap::{ETHERTYPE, Tally, captured_frames, tally, write_pcap};
pub use process::{Process, mortal};
pub use qemu::Qemu;
pub use qmp::{Event, Qmp};
pub use rig::{Disk, Interrupts, Kind, Namespace, NvmeName, Rig, RigBase, RigLink, RigOptions};
pub use root::Root;
pub use run::Run;
pub use story::{Story, wait_until};
