//! The part of the NVMe Base Specification that the guest's driver uses (1.4; figures are named as there). Written apart
//! from the device model, so that a misreading on one side is found by the other.

/// Controller registers (3.1).
pub(crate) mod register {
    /// Controller Capabilities, 64 bits.
    pub(crate) const CAP: u64 = 0x00;
    /// Version.
    pub(crate) const VS: u64 = 0x08;
    /// Controller Configuration.
    pub(crate) const CC: u64 = 0x14;
    /// Controller Status.
    pub(crate) const CSTS: u64 = 0x1C;
    /// Admin Queue Attributes.
    pub(crate) const AQA: u64 = 0x24;
    /// Admin Submission Queue Base Address, 64 bits.
    pub(crate) const ASQ: u64 = 0x28;
    /// Admin Completion Queue Base Address, 64 bits.
    pub(crate) const ACQ: u64 = 0x30;
    /// Controller Memory Buffer Location.
    pub(crate) const CMBLOC: u64 = 0x38;
    /// Controller Memory Buffer Size.
    pub(crate) const CMBSZ: u64 = 0x3C;
    /// Controller Memory Buffer Memory Space Control, 64 bits.
    pub(crate) const CMBMSC: u64 = 0x50;
    /// The first doorbell.
    pub(crate) const DOORBELLS: u64 = 0x1000;
}

/// CAP.CMBS.
pub(crate) const CAP_BUFFER: u64 = 1 << 57;
/// CMBMSC: CRE.
pub(crate) const BUFFER_REGISTERS: u64 = 1;
/// CMBMSC: CMSE.
pub(crate) const BUFFER_ENABLE: u64 = 2;
/// CMBSZ: SQS.
pub(crate) const BUFFER_SUBMISSIONS: u32 = 1;

/// CC.EN, with NVM Command Set, 64-byte submission and 16-byte completion entries, 4 KiB pages.
pub(crate) const CC_ENABLE: u32 = 1 | 6 << 16 | 4 << 20;
/// CC.SHN: normal shutdown.
pub(crate) const CC_SHUTDOWN: u32 = 1 << 14;
/// CSTS.RDY.
pub(crate) const CSTS_READY: u32 = 1 << 0;
/// CSTS.CFS.
pub(crate) const CSTS_FATAL: u32 = 1 << 1;
/// CSTS.SHST.
pub(crate) const CSTS_SHUTDOWN_MASK: u32 = 3 << 2;
/// CSTS.SHST: complete.
pub(crate) const CSTS_SHUTDOWN_COMPLETE: u32 = 2 << 2;

/// Admin commands (5).
pub(crate) mod admin {
    /// Delete I/O Submission Queue.
    pub(crate) const DELETE_SQ: u8 = 0x00;
    /// Create I/O Submission Queue.
    pub(crate) const CREATE_SQ: u8 = 0x01;
    /// Get Log Page.
    pub(crate) const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue.
    pub(crate) const DELETE_CQ: u8 = 0x04;
    /// Create I/O Completion Queue.
    pub(crate) const CREATE_CQ: u8 = 0x05;
    /// Identify.
    pub(crate) const IDENTIFY: u8 = 0x06;
    /// Abort.
    pub(crate) const ABORT: u8 = 0x08;
    /// Set Features.
    pub(crate) const SET_FEATURES: u8 = 0x09;
    /// Get Features.
    pub(crate) const GET_FEATURES: u8 = 0x0A;
    /// Asynchronous Event Request.
    pub(crate) const ASYNC_EVENT: u8 = 0x0C;
}

/// NVM commands (6).
pub(crate) mod nvm {
    /// Flush.
    pub(crate) const FLUSH: u8 = 0x00;
    /// Write.
    pub(crate) const WRITE: u8 = 0x01;
    /// Read.
    pub(crate) const READ: u8 = 0x02;
    /// Compare.
    pub(crate) const COMPARE: u8 = 0x05;
    /// Write Zeroes.
    pub(crate) const WRITE_ZEROES: u8 = 0x08;
    /// Dataset Management.
    pub(crate) const DATASET_MANAGEMENT: u8 = 0x09;
    /// Verify.
    pub(crate) const VERIFY: u8 = 0x0C;
}

/// Force Unit Access, in command DW 12.
pub(crate) const FUA: u32 = 1 << 30;
/// Attribute Deallocate, in DW 11 of Dataset Management.
pub(crate) const DEALLOCATE: u32 = 1 << 2;

/// Feature Identifiers (5.21.1).
pub(crate) mod feature {
    /// Volatile Write Cache.
    pub(crate) const VOLATILE_WRITE_CACHE: u32 = 0x06;
    /// Number of Queues.
    pub(crate) const NUMBER_OF_QUEUES: u32 = 0x07;
}

/// Optional NVM Command Support (figure 251, ONCS).
pub(crate) mod oncs {
    /// Compare.
    pub(crate) const COMPARE: u16 = 1 << 0;
    /// Dataset Management.
    pub(crate) const DATASET_MANAGEMENT: u16 = 1 << 2;
    /// Write Zeroes.
    pub(crate) const WRITE_ZEROES: u16 = 1 << 3;
    /// Verify.
    pub(crate) const VERIFY: u16 = 1 << 7;
}

/// Status: Status Code Type in bits 10:8, Status Code in bits 7:0 (4.6.1.2).
pub(crate) mod status {
    /// Successful Completion.
    pub(crate) const SUCCESS: u16 = 0x000;
    /// Command Abort Requested.
    pub(crate) const ABORT_REQUESTED: u16 = 0x007;
    /// Command Aborted due to SQ Deletion.
    pub(crate) const SQ_DELETED: u16 = 0x008;
    /// Write Fault.
    pub(crate) const WRITE_FAULT: u16 = 0x280;
    /// Unrecovered Read Error.
    pub(crate) const UNRECOVERED_READ: u16 = 0x281;
    /// Compare Failure.
    pub(crate) const COMPARE_FAILURE: u16 = 0x285;
}

/// A command as it stands in a submission queue (figure 105).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Submission {
    /// Opcode.
    pub(crate) opcode: u8,
    /// Command Identifier.
    pub(crate) cid: u16,
    /// Whether the data pointer is an SGL descriptor.
    pub(crate) sgl: bool,
    /// Namespace Identifier.
    pub(crate) nsid: u32,
    /// Data pointer.
    pub(crate) data: [u64; 2],
    /// Command DW 10 to 15.
    pub(crate) words: [u32; 6],
}

impl Submission {
    /// Bytes of an entry.
    pub(crate) const BYTES: usize = 64;

    /// The entry's bytes.
    pub(crate) fn bytes(&self) -> [u8; Self::BYTES] {
        let mut entry = [0; Self::BYTES];
        entry[0] = self.opcode;
        entry[1] = if self.sgl { 1 << 6 } else { 0 };
        entry[2..4].copy_from_slice(&self.cid.to_le_bytes());
        entry[4..8].copy_from_slice(&self.nsid.to_le_bytes());
        entry[24..32].copy_from_slice(&self.data[0].to_le_bytes());
        entry[32..40].copy_from_slice(&self.data[1].to_le_bytes());
        for (index, word) in self.words.iter().enumerate() {
            entry[40 + 4 * index..44 + 4 * index].copy_from_slice(&word.to_le_bytes());
        }
        entry
    }
}

/// An entry of a completion queue (4.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Completion {
    /// DW 0.
    pub(crate) result: u32,
    /// SQ Head Pointer.
    pub(crate) sq_head: u16,
    /// SQ Identifier.
    pub(crate) sq_id: u16,
    /// Command Identifier.
    pub(crate) cid: u16,
    /// Phase Tag.
    pub(crate) phase: bool,
    /// Status Code Type and Status Code.
    pub(crate) status: u16,
}

impl Completion {
    /// Bytes of an entry.
    pub(crate) const BYTES: usize = 16;

    /// Decodes an entry.
    pub(crate) fn parse(entry: &[u8]) -> Option<Self> {
        let entry: &[u8; Self::BYTES] = entry.first_chunk()?;
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        Some(Self {
            result: u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]),
            sq_head: half(8),
            sq_id: half(10),
            cid: half(12),
            phase: half(14) & 1 != 0,
            status: half(14) >> 1 & 0x7FF,
        })
    }
}

/// A descriptor of an SGL (4.4): a data block, or the last segment.
pub(crate) fn sgl_descriptor(address: u64, bytes: usize, last_segment: bool) -> [u64; 2] {
    [address, bytes as u64 | if last_segment { 3 << 60 } else { 0 }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_have_their_fields_where_the_specification_says() {
        let command = Submission {
            opcode: 2,
            cid: 0x1234,
            sgl: true,
            nsid: 7,
            data: [0x1_0000, 0x2_0000],
            words: [1, 2, 3, 4, 5, 6],
        };
        let bytes = command.bytes();
        assert_eq!(bytes[..8], [2, 0x40, 0x34, 0x12, 7, 0, 0, 0]);
        assert_eq!((bytes[26], bytes[34], bytes[40], bytes[60]), (1, 2, 1, 6));
        let entry = [9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 0, 0x34, 0x12, 0x0B, 0xC5];
        let completion = Completion::parse(&entry).unwrap();
        assert_eq!(
            completion,
            Completion { result: 9, sq_head: 3, sq_id: 1, cid: 0x1234, phase: true, status: 0x285 }
        );
    }
}
