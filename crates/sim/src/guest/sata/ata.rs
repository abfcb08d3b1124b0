//! Commands of an ATA disk (ACS-3, 7), and how they travel (Serial ATA, Register FIS - Host to Device).

/// Command codes.
pub(super) mod op {
    pub(crate) const READ_DMA: u8 = 0xC8;
    pub(crate) const READ_DMA_EXT: u8 = 0x25;
    pub(crate) const READ_SECTORS_EXT: u8 = 0x24;
    pub(crate) const READ_QUEUED: u8 = 0x60;
    pub(crate) const WRITE_DMA: u8 = 0xCA;
    pub(crate) const WRITE_DMA_EXT: u8 = 0x35;
    pub(crate) const WRITE_DMA_FUA_EXT: u8 = 0x3D;
    pub(crate) const WRITE_SECTORS_EXT: u8 = 0x34;
    pub(crate) const WRITE_QUEUED: u8 = 0x61;
    pub(crate) const VERIFY_EXT: u8 = 0x42;
    pub(crate) const DATA_SET_MANAGEMENT: u8 = 0x06;
    pub(crate) const FLUSH_EXT: u8 = 0xEA;
    pub(crate) const READ_LOG: u8 = 0x2F;
    pub(crate) const IDENTIFY: u8 = 0xEC;
    pub(crate) const SET_FEATURES: u8 = 0xEF;
    pub(crate) const STANDBY: u8 = 0xE0;
    pub(crate) const CHECK_POWER: u8 = 0xE5;
}

/// Of the status: BSY, DF, DRQ, ERR. Of the error: UNC.
pub(super) const BUSY: u8 = 0x80;
pub(super) const FAULT: u8 = 0x20;
pub(super) const DATA_REQUEST: u8 = 0x08;
pub(super) const UNCORRECTABLE: u8 = 0x40;
const DEVICE_LBA: u8 = 0x40;
const DEVICE_FUA: u8 = 0x80;

/// Bytes of a Register FIS.
pub(super) const FIS_BYTES: usize = 20;

/// A command.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ata {
    pub(super) command: u8,
    pub(super) features: u16,
    pub(super) lba: u64,
    pub(super) count: u16,
    /// Of a queued write: it is durable when it has ended.
    pub(super) fua: bool,
}

impl Ata {
    pub(super) fn new(command: u8) -> Self {
        Self { command, ..Self::default() }
    }

    pub(super) fn is_queued(&self) -> bool {
        matches!(self.command, op::READ_QUEUED | op::WRITE_QUEUED)
    }

    /// Data go to the disk.
    pub(super) fn writes(&self) -> bool {
        let writes = [op::WRITE_DMA, op::WRITE_DMA_EXT, op::WRITE_DMA_FUA_EXT, op::WRITE_SECTORS_EXT];
        writes.contains(&self.command) || matches!(self.command, op::WRITE_QUEUED | op::DATA_SET_MANAGEMENT)
    }

    pub(super) fn fis(&self) -> [u8; FIS_BYTES] {
        let lba = self.lba.to_le_bytes();
        let (features, count) = (self.features.to_le_bytes(), self.count.to_le_bytes());
        let mut fis = [0; FIS_BYTES];
        // Host to device; it is a command and no control.
        (fis[0], fis[1], fis[2], fis[3]) = (0x27, 0x80, self.command, features[0]);
        fis[4..7].copy_from_slice(&lba[..3]);
        fis[7] = DEVICE_LBA | if self.fua { DEVICE_FUA } else { 0 };
        fis[8..11].copy_from_slice(&lba[3..6]);
        (fis[11], fis[12], fis[13]) = (features[1], count[0], count[1]);
        fis
    }
}
