//! [`Disk`](etherslot_initiator::Disk)s as block devices of this machine: `/dev/ublkbN`, by the kernel's driver for block devices in user
//! space (`ublk_drv`, Linux 6.5 or newer; `Documentation/block/ublk.rst` and `include/uapi/linux/ublk_cmd.h` of the kernel, whose names are
//! used here).
//!
//! [`Device`] is what the kernel knows: control commands and one queue, whose requests come and are answered through an `io_uring`. Nothing
//! of it blocks once it is made, so the thread that serves it can do other things; it has to be the thread that made it. Data is copied once, by
//! the kernel, between a request and a buffer of the disk (`UBLK_F_USER_COPY`). [`Server`] carries the requests out on a disk.
//!
//! The kernel is trusted to say what it does say; offsets and lengths are checked all the same.
//!
//! Not here: several queues, recovery of a device whose server died, devices of users without privileges, zones.

#![allow(unsafe_code)] // Rings, and the memory of the kernel's descriptors.

mod abi;
mod device;
mod ring;
mod server;

pub use abi::{Operation, Request};
pub use device::{Device, DeviceError, State};
pub use server::{Counters, Queue, Server};
