//! What Identify tells (NVMe Base 1.4, 5.15.2), as far as it is of use. It is another node's word.

/// An Identify Controller data structure (Figure 247).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerData {
    /// PCI Vendor ID.
    pub vendor: u16,
    /// PCI Subsystem Vendor ID.
    pub subsystem_vendor: u16,
    /// Serial Number.
    pub serial: String,
    /// Model Number.
    pub model: String,
    /// Firmware Revision.
    pub firmware: String,
    /// Controller ID.
    pub controller_id: u16,
    /// Version: major, minor, tertiary.
    pub version: (u16, u8, u8),
    /// Maximum Data Transfer Size, bytes; `None` if there is no limit.
    pub max_transfer_bytes: Option<u64>,
    /// Number of Namespaces: the highest NSID.
    pub namespaces: u32,
    /// Total NVM Capacity, bytes.
    pub capacity: u128,
    /// NVM Subsystem NVMe Qualified Name.
    pub subsystem_name: String,
    /// Optional NVM Command Support.
    pub optional_commands: u16,
    /// A Volatile Write Cache is present.
    pub volatile_cache: bool,
    /// SGL Support, as it is.
    pub sgls: u32,
}

/// An Identify Namespace data structure (Figure 245).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceData {
    /// Namespace ID.
    pub nsid: u32,
    /// Namespace Size, blocks.
    pub blocks: u64,
    /// Namespace Capacity, blocks.
    pub capacity_blocks: u64,
    /// Namespace Utilisation, blocks.
    pub used_blocks: u64,
    /// LBA Data Size, the power of two.
    pub block_shift: u8,
    /// Metadata bytes a block.
    pub metadata_bytes: u16,
    /// It is write protected.
    pub read_only: bool,
    /// Deallocated blocks read as zeros.
    pub deallocated_zeroes: bool,
    /// Namespace Globally Unique Identifier.
    pub nguid: [u8; 16],
    /// IEEE Extended Unique Identifier.
    pub eui64: [u8; 8],
}

fn le(data: &[u8], at: usize, bytes: usize) -> u64 {
    data.get(at..at + bytes)
        .unwrap_or_default()
        .iter()
        .rev()
        .fold(0, |value, &byte| value << 8 | u64::from(byte))
}

/// ASCII, padded with spaces or NUL. What is not printable is shown as `?`: it may be for a terminal.
fn text(data: &[u8]) -> String {
    let end = data.iter().position(|&byte| byte == 0).unwrap_or(data.len());
    let shown = data[..end].iter().map(|&byte| if (0x20..0x7F).contains(&byte) { byte as char } else { '?' });
    shown.collect::<String>().trim().to_owned()
}

impl ControllerData {
    /// Optional NVM commands: Dataset Management, Write Zeroes.
    const DATASET_MANAGEMENT: u16 = 1 << 2;
    const COMPARE: u16 = 1 << 0;
    const WRITE_ZEROES: u16 = 1 << 3;

    pub(crate) fn parse(data: &[u8; 4096]) -> Self {
        let version = le(data, 80, 4) as u32;
        Self {
            vendor: le(data, 0, 2) as u16,
            subsystem_vendor: le(data, 2, 2) as u16,
            serial: text(&data[4..24]),
            model: text(&data[24..64]),
            firmware: text(&data[64..72]),
            controller_id: le(data, 78, 2) as u16,
            version: ((version >> 16) as u16, (version >> 8) as u8, version as u8),
            max_transfer_bytes: (1..40).contains(&data[77]).then(|| 4096 << data[77]),
            namespaces: le(data, 516, 4) as u32,
            capacity: u128::from(le(data, 288, 8)) << 64 | u128::from(le(data, 280, 8)),
            subsystem_name: text(&data[768..1024]),
            optional_commands: le(data, 520, 2) as u16,
            volatile_cache: data[525] & 1 != 0,
            sgls: le(data, 536, 4) as u32,
        }
    }

    /// Takes Dataset Management.
    pub fn can_deallocate(&self) -> bool {
        self.optional_commands & Self::DATASET_MANAGEMENT != 0
    }

    /// Takes Write Zeroes.
    pub fn can_write_zeroes(&self) -> bool {
        self.optional_commands & Self::WRITE_ZEROES != 0
    }

    /// Takes Compare.
    pub fn can_compare(&self) -> bool {
        self.optional_commands & Self::COMPARE != 0
    }

    /// Takes SGLs, of dwords at least.
    pub fn can_use_sgls(&self) -> bool {
        self.sgls & 3 != 0
    }
}

impl NamespaceData {
    pub(crate) fn parse(nsid: u32, data: &[u8; 4096]) -> Self {
        let format = usize::from(data[26] & 0xF);
        let at = 128 + 4 * format;
        let array = |at: usize| std::array::from_fn(|byte| data[at + byte]);
        let eui64: [u8; 16] = array(120);
        Self {
            nsid,
            blocks: le(data, 0, 8),
            capacity_blocks: le(data, 8, 8),
            used_blocks: le(data, 16, 8),
            block_shift: data[at + 2],
            metadata_bytes: le(data, at, 2) as u16,
            read_only: data[99] & 1 != 0,
            deallocated_zeroes: data[33] & 7 == 1,
            nguid: array(104),
            eui64: std::array::from_fn(|byte| eui64[byte]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_trimmed_and_fit_for_a_terminal() {
        assert_eq!(text(b"ABC 1\x1b[2J   \0\0x"), "ABC 1?[2J");
    }

    #[test]
    fn garbage_is_read_without_harm() {
        for byte in [0, 0x55, 0xFF] {
            let controller = ControllerData::parse(&[byte; 4096]);
            assert_eq!(controller.max_transfer_bytes, None);
            NamespaceData::parse(1, &[byte; 4096]);
        }
    }
}
