//! Submission Queue Entries (NVMe Base 1.4, 4.2).

use super::bits::{SQE_BYTES, admin, nvm};

/// Dword 0: an SGL Descriptor in place of the PRPs.
const PSDT_SGL: u32 = 1 << 14;
/// Force Unit Access, in dword 12 of a Write.
const FUA: u32 = 1 << 30;
/// Deallocate, in dword 12 of Write Zeroes.
const DEAC: u32 = 1 << 25;
/// Dataset Management, dword 11: Deallocate.
const AD: u32 = 1 << 2;

/// Where a command's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPointer {
    None,
    /// PRP Entries 1 and 2.
    Prp(u64, u64),
    /// An SGL Data Block descriptor: address and bytes.
    Sgl(u64, u32),
}

/// An entry under construction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sqe([u8; SQE_BYTES]);

impl Sqe {
    #[inline]
    pub(crate) fn new(opcode: u8, nsid: u32, data: DataPointer) -> Self {
        let mut sqe = Self([0; SQE_BYTES]);
        let (flags, first, second) = match data {
            DataPointer::None => (0, 0, 0),
            DataPointer::Prp(first, second) => (0, first, second),
            // Type and subtype in the last byte: 0, a data block by its address.
            DataPointer::Sgl(address, bytes) => (PSDT_SGL, address, u64::from(bytes)),
        };
        sqe.dword(0, u32::from(opcode) | flags);
        sqe.dword(1, nsid);
        sqe.qword(6, first);
        sqe.qword(8, second);
        sqe
    }

    #[inline]
    fn dword(&mut self, at: usize, value: u32) {
        self.0[4 * at..4 * at + 4].copy_from_slice(&value.to_le_bytes());
    }

    #[inline]
    fn qword(&mut self, at: usize, value: u64) {
        self.0[4 * at..4 * at + 8].copy_from_slice(&value.to_le_bytes());
    }

    /// With this Command Identifier.
    #[inline]
    pub(crate) fn identified(mut self, command_id: u16) -> Self {
        self.0[2..4].copy_from_slice(&command_id.to_le_bytes());
        self
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8; SQE_BYTES] {
        &self.0
    }

    #[inline]
    fn range(mut self, first_block: u64, blocks: u32, flags: u32) -> Self {
        self.qword(10, first_block);
        self.dword(12, blocks.wrapping_sub(1) & 0xFFFF | flags);
        self
    }

    #[inline]
    pub(crate) fn read(nsid: u32, first_block: u64, blocks: u32, data: DataPointer) -> Self {
        Self::new(nvm::READ, nsid, data).range(first_block, blocks, 0)
    }

    #[inline]
    pub(crate) fn write(nsid: u32, first_block: u64, blocks: u32, durable: bool, data: DataPointer) -> Self {
        Self::new(nvm::WRITE, nsid, data).range(first_block, blocks, if durable { FUA } else { 0 })
    }

    pub(crate) fn compare(nsid: u32, first_block: u64, blocks: u32, data: DataPointer) -> Self {
        Self::new(nvm::COMPARE, nsid, data).range(first_block, blocks, 0)
    }

    pub(crate) fn write_zeroes(nsid: u32, first_block: u64, blocks: u32, unmap: bool) -> Self {
        let flags = if unmap { DEAC } else { 0 };
        Self::new(nvm::WRITE_ZEROES, nsid, DataPointer::None).range(first_block, blocks, flags)
    }

    pub(crate) fn flush(nsid: u32) -> Self {
        Self::new(nvm::FLUSH, nsid, DataPointer::None)
    }

    /// Deallocates the one range that is described at `address`.
    pub(crate) fn deallocate(nsid: u32, address: u64) -> Self {
        let mut sqe = Self::new(nvm::DATASET_MANAGEMENT, nsid, DataPointer::Prp(address, 0));
        sqe.dword(11, AD);
        sqe
    }

    pub(crate) fn identify(structure: u8, nsid: u32, address: u64) -> Self {
        let mut sqe = Self::new(admin::IDENTIFY, nsid, DataPointer::Prp(address, 0));
        sqe.dword(10, u32::from(structure));
        sqe
    }

    pub(crate) fn set_feature(feature: u32, value: u32) -> Self {
        let mut sqe = Self::new(admin::SET_FEATURES, 0, DataPointer::None);
        sqe.dword(10, feature);
        sqe.dword(11, value);
        sqe
    }

    /// A Completion Queue in one piece; with `vector` it interrupts.
    pub(crate) fn create_cq(id: u16, entries: u16, address: u64, vector: Option<u16>) -> Self {
        let mut sqe = Self::new(admin::CREATE_CQ, 0, DataPointer::Prp(address, 0));
        sqe.dword(10, u32::from(entries - 1) << 16 | u32::from(id));
        sqe.dword(11, vector.map_or(0, |vector| u32::from(vector) << 16 | 1 << 1) | 1);
        sqe
    }

    /// A Submission Queue in one piece that completes to the queue of the same ID.
    pub(crate) fn create_sq(id: u16, entries: u16, address: u64) -> Self {
        let mut sqe = Self::new(admin::CREATE_SQ, 0, DataPointer::Prp(address, 0));
        sqe.dword(10, u32::from(entries - 1) << 16 | u32::from(id));
        sqe.dword(11, u32::from(id) << 16 | 1);
        sqe
    }
}

/// The range of a Deallocate (Figure 364).
pub(crate) fn range(first_block: u64, blocks: u32) -> [u8; 16] {
    let mut range = [0; 16];
    range[4..8].copy_from_slice(&blocks.to_le_bytes());
    range[8..].copy_from_slice(&first_block.to_le_bytes());
    range
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dword(sqe: &Sqe, at: usize) -> u32 {
        u32::from_le_bytes(sqe.0[4 * at..4 * at + 4].try_into().unwrap())
    }

    #[test]
    fn a_write_has_its_fields_where_the_specification_has_them() {
        let data = DataPointer::Prp(0x1122_3344_5566_7000, 0x99AA_BBCC_DDEE_F000);
        let sqe = Sqe::write(7, 0x0102_0304_0506_0708, 9, true, data).identified(0xBEEF);
        let dwords: Vec<u32> = (0..16).map(|at| dword(&sqe, at)).collect();
        assert_eq!(dwords[..2], [0xBEEF_0001, 7]);
        assert_eq!(dwords[2..6], [0; 4]);
        assert_eq!(dwords[6..10], [0x5566_7000, 0x1122_3344, 0xDDEE_F000, 0x99AA_BBCC]);
        assert_eq!(dwords[10..], [0x0506_0708, 0x0102_0304, 1 << 30 | 8, 0, 0, 0]);
    }

    #[test]
    fn an_sgl_stands_in_the_place_of_prps() {
        let sqe = Sqe::read(1, 0, 65536, DataPointer::Sgl(0x1234_5678_9ABC, 0x20_0000));
        assert_eq!((dword(&sqe, 0), dword(&sqe, 12)), (1 << 14 | 2, 0xFFFF));
        assert_eq!([6, 7, 8, 9].map(|at| dword(&sqe, at)), [0x5678_9ABC, 0x1234, 0x20_0000, 0]);
    }

    #[test]
    fn queues_are_created_with_sizes_from_0_and_in_one_piece() {
        let sqe = Sqe::create_cq(3, 64, 0x5000, Some(3));
        assert_eq!((dword(&sqe, 10), dword(&sqe, 11)), (63 << 16 | 3, 3 << 16 | 3));
        assert_eq!(dword(&Sqe::create_cq(3, 64, 0x5000, None), 11), 1);
        let sqe = Sqe::create_sq(3, 1024, 0x5000);
        assert_eq!((dword(&sqe, 10), dword(&sqe, 11)), (1023 << 16 | 3, 3 << 16 | 1));
    }

    #[test]
    fn a_range_is_attributes_length_and_start() {
        let mut bytes = [0; 16];
        bytes[4] = 5;
        bytes[8] = 9;
        assert_eq!(range(9, 5), bytes);
        assert_eq!(dword(&Sqe::deallocate(1, 0x5000), 11), 4);
        assert_eq!(dword(&Sqe::write_zeroes(1, 0, 1, true), 12), 1 << 25);
        assert_eq!(dword(&Sqe::flush(1), 0), 0);
    }
}
