//! Drivers of remote devices in user space, for machines without a VM. Sans-IO: time and frames come in as arguments.
//!
//! What uses a device is written against [`Disk`]: blocks, read and written by DMA from buffers of a pool, with many requests
//! under way. [`Initiator`] is one on a remote NVMe controller, [`MemoryDisk`] one without a device, for the tests of such users.
//! [`rnic`] is the driver of RNICs.

mod arena;
mod copy;
mod dc;
mod direct;
mod disk;
mod enumeration;
mod initiator;
mod machine;
mod memory_disk;
pub mod nvme;
mod pool;
pub mod rnic;
mod status;

pub use copy::{Blame, Copy, CopyConfig, CopyCounters, CopyError, CopyRange, Disks, Phase};
pub use direct::{Between, Direct, Pieces};
pub use disk::{Disk, DiskError, DiskInfo, Done, Op, Reason, Refused, Request};
pub use initiator::Initiator;
pub use memory_disk::MemoryDisk;
pub use pool::{Buffer, BufferClass};
pub use status::Status;
