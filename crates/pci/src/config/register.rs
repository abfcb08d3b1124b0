//! Offsets and bits of the registers that have an effect, as the specification names them.

/// Command register (7.5.1.1.3).
pub const COMMAND: u16 = 0x04;
/// Memory Space Enable.
pub const COMMAND_MEMORY: u16 = 1 << 1;
/// Bus Master Enable.
pub const COMMAND_MASTER: u16 = 1 << 2;
/// Parity Error Response.
pub const COMMAND_PARITY: u16 = 1 << 6;
/// SERR# Enable.
pub const COMMAND_SERR: u16 = 1 << 8;
/// Interrupt Disable.
pub const COMMAND_INTX_DISABLE: u16 = 1 << 10;

/// Status register (7.5.1.1.4).
pub const STATUS: u16 = 0x06;
/// Interrupt Status.
pub const STATUS_INTX: u16 = 1 << 3;
/// Capabilities List.
pub const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Master Data Parity Error.
pub const STATUS_MASTER_PARITY: u16 = 1 << 8;
/// Signaled Target Abort.
pub const STATUS_SIGNALED_TARGET_ABORT: u16 = 1 << 11;
/// Received Target Abort.
pub const STATUS_RECEIVED_TARGET_ABORT: u16 = 1 << 12;
/// Received Master Abort.
pub const STATUS_RECEIVED_MASTER_ABORT: u16 = 1 << 13;
/// Signaled System Error.
pub const STATUS_SIGNALED_SYSTEM_ERROR: u16 = 1 << 14;
/// Detected Parity Error.
pub const STATUS_DETECTED_PARITY: u16 = 1 << 15;

/// Revision ID and Class Code.
pub const REVISION: u16 = 0x08;
/// Cache Line Size.
pub const CACHE_LINE_SIZE: u16 = 0x0C;
/// Header Type.
pub const HEADER_TYPE: u16 = 0x0E;
/// First Base Address Register.
pub const BAR0: u16 = 0x10;
/// Base Address Registers of a Type 0 header.
pub const BARS: usize = 6;
/// Subsystem Vendor ID (Type 0).
pub const SUBSYSTEM: u16 = 0x2C;
/// Capabilities Pointer.
pub const CAPABILITIES_POINTER: u16 = 0x34;
/// Interrupt Line.
pub const INTERRUPT_LINE: u16 = 0x3C;
/// Interrupt Pin.
pub const INTERRUPT_PIN: u16 = 0x3D;

/// Bus numbers of a bridge: primary, secondary, subordinate (7.5.1.3.1).
pub const BRIDGE_BUS_NUMBERS: u16 = 0x18;
/// Memory Base and Limit (7.5.1.3.6).
pub const BRIDGE_MEMORY: u16 = 0x20;
/// Prefetchable Memory Base and Limit (7.5.1.3.7).
pub const BRIDGE_PREFETCHABLE: u16 = 0x24;
/// Prefetchable Base Upper 32 Bits.
pub const BRIDGE_PREFETCHABLE_BASE_UPPER: u16 = 0x28;
/// Prefetchable Limit Upper 32 Bits.
pub const BRIDGE_PREFETCHABLE_LIMIT_UPPER: u16 = 0x2C;
/// Bridge Control (7.5.1.3.13).
pub const BRIDGE_CONTROL: u16 = 0x3E;
/// Secondary Bus Reset.
pub const BRIDGE_CONTROL_RESET: u16 = 1 << 6;

/// Capability IDs.
pub mod id {
    /// Power Management.
    pub const POWER_MANAGEMENT: u8 = 0x01;
    /// MSI.
    pub const MSI: u8 = 0x05;
    /// PCI Express.
    pub const PCI_EXPRESS: u8 = 0x10;
    /// MSI-X.
    pub const MSIX: u8 = 0x11;
    /// Advanced Error Reporting, extended.
    pub const AER: u16 = 0x0001;
    /// Device Serial Number, extended.
    pub const SERIAL_NUMBER: u16 = 0x0003;
}

/// Registers of the Power Management capability, from its start (7.5.2).
pub mod pm {
    /// Control/Status.
    pub const CONTROL: u16 = 0x04;
    /// `PowerState`: 0 is D0, 3 is D3Hot.
    pub const CONTROL_STATE: u16 = 3;
    /// `No_Soft_Reset`.
    pub const CONTROL_NO_SOFT_RESET: u16 = 1 << 3;
}

/// Registers of the MSI capability with 64-bit address and per-vector masking, from its start (7.7.1).
pub mod msi {
    /// Message Control.
    pub const CONTROL: u16 = 0x02;
    /// MSI Enable.
    pub const CONTROL_ENABLE: u16 = 1;
    /// Where Multiple Message Enable is.
    pub const CONTROL_ENABLED_SHIFT: u16 = 4;
    /// Message Address, 64 bits.
    pub const ADDRESS: u16 = 0x04;
    /// Message Data.
    pub const DATA: u16 = 0x0C;
    /// Mask Bits.
    pub const MASK: u16 = 0x10;
    /// Pending Bits.
    pub const PENDING: u16 = 0x14;
}

/// Registers of the MSI-X capability, from its start (7.7.2).
pub mod msix {
    /// Message Control.
    pub const CONTROL: u16 = 0x02;
    /// Function Mask.
    pub const CONTROL_MASK: u16 = 1 << 14;
    /// MSI-X Enable.
    pub const CONTROL_ENABLE: u16 = 1 << 15;
    /// Table Offset and BIR.
    pub const TABLE: u16 = 0x04;
    /// PBA Offset and BIR.
    pub const PBA: u16 = 0x08;
}

/// Registers of the PCI Express capability, from its start (7.5.3).
pub mod express {
    /// Device Capabilities.
    pub const DEVICE_CAPABILITIES: u16 = 0x04;
    /// Function Level Reset Capability.
    pub const DEVICE_CAPABILITIES_FLR: u32 = 1 << 28;
    /// Device Control.
    pub const DEVICE_CONTROL: u16 = 0x08;
    /// Correctable Error Reporting Enable.
    pub const DEVICE_CONTROL_CORRECTABLE: u16 = 1 << 0;
    /// Non-Fatal Error Reporting Enable.
    pub const DEVICE_CONTROL_NON_FATAL: u16 = 1 << 1;
    /// Fatal Error Reporting Enable.
    pub const DEVICE_CONTROL_FATAL: u16 = 1 << 2;
    /// Unsupported Request Reporting Enable.
    pub const DEVICE_CONTROL_UNSUPPORTED: u16 = 1 << 3;
    /// Where `Max_Payload_Size` is, 3 bits: 128 bytes shifted left by it.
    pub const DEVICE_CONTROL_MPS_SHIFT: u16 = 5;
    /// Where `Max_Read_Request_Size` is, 3 bits.
    pub const DEVICE_CONTROL_MRRS_SHIFT: u16 = 12;
    /// Initiate Function Level Reset; reads 0.
    pub const DEVICE_CONTROL_FLR: u16 = 1 << 15;
    /// Device Status.
    pub const DEVICE_STATUS: u16 = 0x0A;
    /// Correctable Error Detected.
    pub const DEVICE_STATUS_CORRECTABLE: u16 = 1 << 0;
    /// Non-Fatal Error Detected.
    pub const DEVICE_STATUS_NON_FATAL: u16 = 1 << 1;
    /// Fatal Error Detected.
    pub const DEVICE_STATUS_FATAL: u16 = 1 << 2;
    /// Unsupported Request Detected.
    pub const DEVICE_STATUS_UNSUPPORTED: u16 = 1 << 3;
    /// Transactions Pending.
    pub const DEVICE_STATUS_PENDING: u16 = 1 << 5;
    /// Link Capabilities.
    pub const LINK_CAPABILITIES: u16 = 0x0C;
    /// Link Control.
    pub const LINK_CONTROL: u16 = 0x10;
    /// Link Disable.
    pub const LINK_CONTROL_DISABLE: u16 = 1 << 4;
    /// Link Status.
    pub const LINK_STATUS: u16 = 0x12;
    /// Data Link Layer Link Active.
    pub const LINK_STATUS_ACTIVE: u16 = 1 << 13;
    /// Slot Capabilities.
    pub const SLOT_CAPABILITIES: u16 = 0x14;
    /// Slot Control.
    pub const SLOT_CONTROL: u16 = 0x18;
    /// Slot Status.
    pub const SLOT_STATUS: u16 = 0x1A;
    /// Presence Detect Changed.
    pub const SLOT_STATUS_PRESENCE_CHANGED: u16 = 1 << 3;
    /// Presence Detect State.
    pub const SLOT_STATUS_PRESENT: u16 = 1 << 6;
    /// Data Link Layer State Changed.
    pub const SLOT_STATUS_LINK_CHANGED: u16 = 1 << 8;
    /// Device Capabilities 2.
    pub const DEVICE_CAPABILITIES_2: u16 = 0x24;
    /// Device Control 2.
    pub const DEVICE_CONTROL_2: u16 = 0x28;
    /// Completion Timeout Value.
    pub const DEVICE_CONTROL_2_TIMEOUT: u16 = 0xF;
    /// Completion Timeout Disable.
    pub const DEVICE_CONTROL_2_NO_TIMEOUT: u16 = 1 << 4;
    /// Link Capabilities 2.
    pub const LINK_CAPABILITIES_2: u16 = 0x2C;
    /// Link Control 2.
    pub const LINK_CONTROL_2: u16 = 0x30;
}

/// Registers of the Advanced Error Reporting capability, from its start (7.8.4).
pub mod aer {
    /// Uncorrectable Error Status.
    pub const UNCORRECTABLE_STATUS: u16 = 0x04;
    /// Uncorrectable Error Mask.
    pub const UNCORRECTABLE_MASK: u16 = 0x08;
    /// Uncorrectable Error Severity: 1 is fatal.
    pub const UNCORRECTABLE_SEVERITY: u16 = 0x0C;
    /// Correctable Error Status.
    pub const CORRECTABLE_STATUS: u16 = 0x10;
    /// Correctable Error Mask.
    pub const CORRECTABLE_MASK: u16 = 0x14;
    /// Advanced Error Capabilities and Control.
    pub const CONTROL: u16 = 0x18;
    /// First Error Pointer.
    pub const CONTROL_FIRST: u32 = 0x1F;
    /// Header Log, 4 DW.
    pub const HEADER_LOG: u16 = 0x1C;
    /// Advisory Non-Fatal Error, in the correctable registers.
    pub const ADVISORY_NON_FATAL: u32 = 1 << 13;
}
