//! The IDs our Functions show in configuration space.
//!
//! The project has no Vendor ID of the PCI-SIG. This one stands in no public list (pci.ids), and lies far from where the
//! PCI-SIG assigns them in ascending order; drivers match our Functions by class. Whoever ships a product puts his own here.
//! A model of a controller that drivers know by its IDs shows those.

/// Vendor and Subsystem Vendor ID.
pub const VENDOR: u16 = 0xe510;

/// Device ID of the NVMe controller.
pub const NVME: u16 = 0x0001;

/// Device ID of the RNIC.
pub const RNIC: u16 = 0x0002;

/// Vendor ID of Intel, for the models of its controllers.
pub const INTEL: u16 = 0x8086;

/// Device ID of the 82576 with copper ports.
pub const E82576: u16 = 0x10c9;

/// Subsystem ID of a dual port adapter with it.
pub const E82576_SUBSYSTEM: u16 = 0xa03c;
