//! Byte formats of the vfio-user protocol (QEMU's docs/interop/vfio-user.rst), without I/O.
//!
//! Numbers are in the byte order of the machine, as the protocol says. Parsing never panics and borrows
//! from the message; what a parser returns has consistent lengths, but is not checked against the device.

mod bytes;
mod encode;
mod header;
mod reply;
mod request;
mod version;

pub use encode::unmap_fields;
pub use header::{Errno, Header, HeaderError};
pub use reply::{IrqInfoReply, RegionInfoReply, header_of_reply};
pub use request::{IrqAction, IrqData, Request, SetIrqs, WriteMulti, WriteOne};
pub use version::{Capabilities, Version};

/// Bytes of a message's header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the fields before the data of REGION_READ's reply and REGION_WRITE.
pub const REGION_ACCESS_BYTES: usize = 16;
/// File descriptors a message can carry to us: QEMU's own limit.
pub const MAX_FDS: usize = 16;
/// Writes in one REGION_WRITE_MULTI; QEMU makes no more.
pub const MAX_MULTI_WRITES: usize = 200;
/// Bytes of one write in REGION_WRITE_MULTI.
pub const MULTI_WRITE_BYTES: usize = 24;
/// The longest body besides those of region accesses: a full REGION_WRITE_MULTI, or SET_IRQS with a boolean for each of 2048
/// vectors; the JSON of VERSION is far shorter.
pub const MAX_OTHER_BODY_BYTES: usize = 8 + MAX_MULTI_WRITES * MULTI_WRITE_BYTES;

/// Commands, with their numbers.
pub mod command {
    /// Negotiates version and capabilities.
    pub const VERSION: u16 = 1;
    /// Opens a window onto the client's memory.
    pub const DMA_MAP: u16 = 2;
    /// Closes windows.
    pub const DMA_UNMAP: u16 = 3;
    /// What kind of device it is.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// What a region is.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Descriptors for access past the client.
    pub const DEVICE_GET_REGION_IO_FDS: u16 = 6;
    /// What an interrupt type is.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Sets, masks, unmasks and triggers interrupts.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Reads from a region.
    pub const REGION_READ: u16 = 9;
    /// Writes to a region.
    pub const REGION_WRITE: u16 = 10;
    /// Server to client: reads memory.
    pub const DMA_READ: u16 = 11;
    /// Server to client: writes memory.
    pub const DMA_WRITE: u16 = 12;
    /// Resets the device.
    pub const DEVICE_RESET: u16 = 13;
    /// Many small writes.
    pub const REGION_WRITE_MULTI: u16 = 15;
}

/// VFIO's region indexes of a PCI device.
pub mod region {
    /// BAR 0; the others follow.
    pub const BAR0: u32 = 0;
    /// Expansion ROM.
    pub const ROM: u32 = 6;
    /// Configuration space.
    pub const CONFIG: u32 = 7;
    /// VGA ranges.
    pub const VGA: u32 = 8;
    /// How many.
    pub const COUNT: usize = 9;
}

/// VFIO's interrupt indexes of a PCI device.
pub mod irq {
    /// INTx.
    pub const INTX: u32 = 0;
    /// MSI.
    pub const MSI: u32 = 1;
    /// MSI-X.
    pub const MSIX: u32 = 2;
    /// An uncorrected error.
    pub const ERR: u32 = 3;
    /// The device is asked back.
    pub const REQ: u32 = 4;
    /// How many.
    pub const COUNT: usize = 5;
}
