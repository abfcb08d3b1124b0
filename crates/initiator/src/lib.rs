//! Drivers of remote devices in user space, for machines without a VM. Sans-IO: time and frames come in as arguments.
//!
//! What uses a device is written against [`Disk`]: blocks, read and written by DMA from buffers of a pool, with many requests
//! under way. [`MemoryDisk`] is one without a device, for the tests of such users.

mod disk;
mod memory_disk;
#[allow(dead_code)] // Some of it is for the driver.
mod pool;
#[allow(dead_code)] // Likewise.
mod status;

pub use disk::{Disk, DiskError, DiskInfo, Done, Op, Reason, Refused, Request};
pub use memory_disk::MemoryDisk;
pub use pool::{Buffer, BufferClass};
pub use status::Status;
