//! Where things are: registers, opcodes, identifiers (NVMe Base 1.4), as far as the driver uses them.

/// The memory page size used: CC.MPS = 0.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Bytes of a Submission Queue Entry.
pub(crate) const SQE_BYTES: usize = 64;
/// Bytes of a Completion Queue Entry.
pub(crate) const CQE_BYTES: usize = 16;
/// Bytes of a range of Dataset Management.
pub(crate) const RANGE_BYTES: usize = 16;
/// The BAR of the registers.
pub(crate) const REGISTERS: u8 = 0;
/// Base class, sub-class and programming interface of an NVMe I/O controller.
pub(crate) const CLASS: [u8; 3] = [0x01, 0x08, 0x02];

/// Register offsets (3.1).
pub(crate) mod register {
    pub(crate) const CAP: u32 = 0x00;
    pub(crate) const CC: u32 = 0x14;
    pub(crate) const CSTS: u32 = 0x1c;
    pub(crate) const AQA: u32 = 0x24;
    pub(crate) const ASQ: u32 = 0x28;
    pub(crate) const ACQ: u32 = 0x30;
    pub(crate) const CMBLOC: u32 = 0x38;
    pub(crate) const CMBMSC: u32 = 0x50;
    /// The first doorbell.
    pub(crate) const DOORBELLS: u32 = 0x1000;
}

/// CAP (3.1.1).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Capabilities(pub(crate) u64);

impl Capabilities {
    /// Entries that a queue can have.
    pub(crate) fn max_entries(self) -> u32 {
        (self.0 & 0xFFFF) as u32 + 1
    }

    /// How long a change of CSTS.RDY may take.
    pub(crate) fn timeout_ns(self) -> u64 {
        (self.0 >> 24 & 0xFF).max(1) * 500_000_000
    }

    /// Bytes between two doorbells.
    pub(crate) fn doorbell_bytes(self) -> u32 {
        4 << (self.0 >> 32 & 0xF)
    }

    /// The NVM Command Set, and pages of 4 KiB.
    pub(crate) fn is_usable(self) -> bool {
        self.0 & 1 << 37 != 0 && self.0 & 0xF << 48 == 0
    }

    /// A Controller Memory Buffer.
    pub(crate) fn has_cmb(self) -> bool {
        self.0 >> 57 & 1 != 0
    }
}

/// CC (3.1.5): enabled, NVM command set, 4 KiB pages, entries of 64 and 16 bytes.
pub(crate) const CC_ENABLE: u32 = 1 | 6 << 16 | 4 << 20;

/// CC.SHN: a normal shutdown.
pub(crate) const CC_SHUT_DOWN: u32 = CC_ENABLE | 1 << 14;

/// CSTS (3.1.6).
pub(crate) mod csts {
    pub(crate) const RDY: u32 = 1;
    pub(crate) const CFS: u32 = 1 << 1;
    /// SHST, and its value when the shutdown is complete.
    pub(crate) const SHST: u32 = 3 << 2;
    pub(crate) const SHST_COMPLETE: u32 = 2 << 2;
}

/// CMBMSC: Capabilities Registers Enabled, Controller Memory Space Enable.
pub(crate) const CMB_CRE: u64 = 1;
pub(crate) const CMB_CMSE: u64 = 2;

/// Admin opcodes (Figure 141).
pub(crate) mod admin {
    pub(crate) const CREATE_SQ: u8 = 0x01;
    pub(crate) const CREATE_CQ: u8 = 0x05;
    pub(crate) const IDENTIFY: u8 = 0x06;
    pub(crate) const SET_FEATURES: u8 = 0x09;
}

/// Feature Identifier: Number of Queues.
pub(crate) const NUMBER_OF_QUEUES: u32 = 0x07;

/// NVM opcodes (Figure 346).
pub(crate) mod nvm {
    pub(crate) const FLUSH: u8 = 0x00;
    pub(crate) const WRITE: u8 = 0x01;
    pub(crate) const READ: u8 = 0x02;
    pub(crate) const COMPARE: u8 = 0x05;
    pub(crate) const WRITE_ZEROES: u8 = 0x08;
    pub(crate) const DATASET_MANAGEMENT: u8 = 0x09;
}
