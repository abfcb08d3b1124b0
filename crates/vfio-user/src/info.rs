//! What a client is told about the device.

use crate::message::{irq, region};

/// One region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionInfo {
    /// Its size; 0 if there is none.
    pub bytes: u64,
    /// Reads are let through.
    pub readable: bool,
    /// Writes are let through.
    pub writable: bool,
}

impl RegionInfo {
    /// A region of `bytes` bytes that can be read and written.
    pub const fn read_write(bytes: u64) -> Self {
        Self { bytes, readable: true, writable: true }
    }
}

/// What a client is told about the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// By [`region`]: BARs 0 to 5, ROM, configuration space (256 or 4096 bytes), VGA.
    pub regions: [RegionInfo; region::COUNT],
    /// Vectors by [`irq`]: INTx (0 or 1), MSI (up to 32), MSI-X (up to 2048); 0 for the others.
    pub irqs: [u32; irq::COUNT],
    /// Whether DEVICE_RESET is served.
    pub reset: bool,
    /// The most bytes the [`crate::Handler`] is given or asked for at once: 4096 to 1 MiB. A ROM must not be larger, since
    /// QEMU reads it at once.
    pub max_transfer_bytes: u32,
}

impl Default for DeviceInfo {
    /// A Function with 4096 bytes of configuration space, no BARs and no interrupts, that can be reset.
    fn default() -> Self {
        let mut regions = [RegionInfo::default(); region::COUNT];
        regions[region::CONFIG as usize] = RegionInfo::read_write(4096);
        Self { regions, irqs: [0; irq::COUNT], reset: true, max_transfer_bytes: 4096 }
    }
}

/// A [`DeviceInfo`] that no client could use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InfoError {
    /// Configuration space has a wrong size or can't be accessed.
    #[error("the configuration space must be readable and writable and of 256 or 4096 bytes")]
    Config,
    /// More interrupts of a type than PCI knows.
    #[error("too many interrupts of index {index}: {count}")]
    Irqs {
        /// The interrupt type.
        index: usize,
        /// How many.
        count: u32,
    },
    /// [`DeviceInfo::max_transfer_bytes`] is out of its range.
    #[error("transfers of at most {0} bytes: must be between 4096 and 1 MiB")]
    Transfer(u32),
}

impl DeviceInfo {
    const MAX_IRQS: [u32; irq::COUNT] = [1, 32, 2048, 0, 0];

    pub(crate) fn check(&self) -> Result<(), InfoError> {
        let config = &self.regions[region::CONFIG as usize];
        if !matches!(config.bytes, 256 | 4096) || !config.readable || !config.writable {
            return Err(InfoError::Config);
        }
        for (index, (&count, &max)) in self.irqs.iter().zip(&Self::MAX_IRQS).enumerate() {
            if count > max {
                return Err(InfoError::Irqs { index, count });
            }
        }
        if !(4096..=1 << 20).contains(&self.max_transfer_bytes) {
            return Err(InfoError::Transfer(self.max_transfer_bytes));
        }
        Ok(())
    }

    /// Whether an access of `count` bytes lies in the region.
    pub(crate) fn holds(&self, index: u32, offset: u64, count: u64) -> Option<&RegionInfo> {
        let region = self.regions.get(index as usize)?;
        (count > 0 && count <= region.bytes && offset <= region.bytes - count).then_some(region)
    }
}
