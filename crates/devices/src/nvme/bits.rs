//! Where things are: registers, opcodes, identifiers (NVMe Base 1.4).

/// Version 1.4.0 (3.1.2).
pub(crate) const VERSION: u32 = 0x0001_0400;

/// The only memory page size: CC.MPS, CAP.MPSMIN and CAP.MPSMAX are 0. Larger host pages are several of these.
pub(crate) const PAGE_BYTES: u32 = 4096;

/// Bytes of the smallest and of the largest logical block there is.
pub(crate) const MIN_BLOCK_BYTES: usize = 512;
pub(crate) const MAX_BLOCK_BYTES: usize = 4096;

/// Bytes of a Submission Queue Entry.
pub(crate) const SQE_BYTES: usize = 64;
/// Bytes of a Completion Queue Entry.
pub(crate) const CQE_BYTES: usize = 16;

/// Register offsets (3.1).
pub(crate) mod register {
    pub(crate) const CAP: u32 = 0x00;
    pub(crate) const CAP_HIGH: u32 = 0x04;
    pub(crate) const VS: u32 = 0x08;
    pub(crate) const INTMS: u32 = 0x0c;
    pub(crate) const INTMC: u32 = 0x10;
    pub(crate) const CC: u32 = 0x14;
    pub(crate) const CSTS: u32 = 0x1c;
    pub(crate) const NSSR: u32 = 0x20;
    pub(crate) const AQA: u32 = 0x24;
    pub(crate) const ASQ: u32 = 0x28;
    pub(crate) const ASQ_HIGH: u32 = 0x2c;
    pub(crate) const ACQ: u32 = 0x30;
    pub(crate) const ACQ_HIGH: u32 = 0x34;
    pub(crate) const CMBLOC: u32 = 0x38;
    pub(crate) const CMBSZ: u32 = 0x3c;
    pub(crate) const CMBMSC: u32 = 0x50;
    pub(crate) const CMBMSC_HIGH: u32 = 0x54;
    pub(crate) const CMBSTS: u32 = 0x58;
    /// The first doorbell; CAP.DSTRD is 0, so they are 4 bytes apart (3.1.25).
    pub(crate) const DOORBELLS: u32 = 0x1000;
}

/// CAP (3.1.1).
pub(crate) mod cap {
    pub(crate) const MQES_SHIFT: u32 = 0;
    /// Contiguous Queues Required.
    pub(crate) const CQR: u64 = 1 << 16;
    pub(crate) const TO_SHIFT: u32 = 24;
    /// NVM Subsystem Reset Supported.
    pub(crate) const NSSRS: u64 = 1 << 36;
    /// Command Sets Supported: NVM.
    pub(crate) const CSS_NVM: u64 = 1 << 37;
    /// Controller Memory Buffer Supported.
    pub(crate) const CMBS: u64 = 1 << 57;
}

/// CC (3.1.5).
pub(crate) mod cc {
    pub(crate) const EN: u32 = 1;
    pub(crate) const CSS: u32 = 7 << 4;
    pub(crate) const MPS: u32 = 15 << 7;
    pub(crate) const AMS: u32 = 7 << 11;
    pub(crate) const SHN: u32 = 3 << 14;
    pub(crate) const IOSQES_SHIFT: u32 = 16;
    pub(crate) const IOCQES_SHIFT: u32 = 20;
    /// All that can be written.
    pub(crate) const WRITABLE: u32 = 0x00ff_fff1;
}

/// CSTS (3.1.6).
pub(crate) mod csts {
    pub(crate) const RDY: u32 = 1;
    pub(crate) const CFS: u32 = 1 << 1;
    pub(crate) const SHST_OCCURRING: u32 = 1 << 2;
    pub(crate) const SHST_COMPLETE: u32 = 2 << 2;
    pub(crate) const NSSRO: u32 = 1 << 4;
}

/// What written to NSSR resets the subsystem: "NVMe" (3.1.7).
pub(crate) const NSSR_MAGIC: u32 = 0x4e56_4d65;

/// Admin opcodes (Figure 141).
pub(crate) mod admin {
    pub(crate) const DELETE_SQ: u8 = 0x00;
    pub(crate) const CREATE_SQ: u8 = 0x01;
    pub(crate) const GET_LOG_PAGE: u8 = 0x02;
    pub(crate) const DELETE_CQ: u8 = 0x04;
    pub(crate) const CREATE_CQ: u8 = 0x05;
    pub(crate) const IDENTIFY: u8 = 0x06;
    pub(crate) const ABORT: u8 = 0x08;
    pub(crate) const SET_FEATURES: u8 = 0x09;
    pub(crate) const GET_FEATURES: u8 = 0x0a;
    pub(crate) const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub(crate) const FORMAT_NVM: u8 = 0x80;
}

/// NVM opcodes (Figure 346).
pub(crate) mod nvm {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const COMPARE: u8 = 0x05;
    pub(crate) const WRITE_ZEROES: u8 = 0x08;
    pub(crate) const DATASET_MANAGEMENT: u8 = 0x09;
    pub(crate) const VERIFY: u8 = 0x0c;
}

/// Log Page Identifiers (Figure 191).
pub(crate) mod log {
    pub(crate) const ERROR_INFORMATION: u8 = 0x01;
    pub(crate) const SMART: u8 = 0x02;
    pub(crate) const FIRMWARE_SLOT: u8 = 0x03;
    pub(crate) const CHANGED_NAMESPACES: u8 = 0x04;
    pub(crate) const COMMANDS_SUPPORTED: u8 = 0x05;
}

/// Feature Identifiers (Figure 271).
pub(crate) mod feature {
    pub(crate) const ARBITRATION: u8 = 0x01;
    pub(crate) const POWER_MANAGEMENT: u8 = 0x02;
    pub(crate) const TEMPERATURE_THRESHOLD: u8 = 0x04;
    pub(crate) const ERROR_RECOVERY: u8 = 0x05;
    pub(crate) const VOLATILE_WRITE_CACHE: u8 = 0x06;
    pub(crate) const NUMBER_OF_QUEUES: u8 = 0x07;
    pub(crate) const INTERRUPT_COALESCING: u8 = 0x08;
    pub(crate) const INTERRUPT_VECTOR: u8 = 0x09;
    pub(crate) const WRITE_ATOMICITY: u8 = 0x0a;
    pub(crate) const ASYNC_EVENT: u8 = 0x0b;
    pub(crate) const TIMESTAMP: u8 = 0x0e;
    pub(crate) const HOST_IDENTIFIER: u8 = 0x81;
}

/// "All namespaces".
pub(crate) const NSID_ALL: u32 = 0xffff_ffff;
