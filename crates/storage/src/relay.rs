//! Files that hand each other data, in memory between them: that of this process, or that of a device.
//!
//! The memory of a device ([`Stage::of_device`]) is Linux's peer-to-peer memory (p2pmem, `Documentation/driver-api/pci/p2pdma.rst`): what a file
//! on one disk reads into it and a file on another writes from it goes from device to device. The processor is not to touch it, save for one
//! word: every access is one to a register of the device.
//!
//! Limits: no step is before another that is under way; who needs an order waits.

mod ring;
mod stage;

pub use ring::{Relay, Step, Way};
pub use stage::Stage;
