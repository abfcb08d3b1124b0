//! The few things that most tests need.

use std::time::Duration;

use etherslot_lab::fio::{Load, Pattern, Until, Verify};
use etherslot_lab::{Guest, Level};
pub(crate) use etherslot_lab::{Story, wait_until};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
/// For whatever takes a moment on an idle machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// For a load of some seconds.
pub(crate) const LOAD: Duration = Duration::from_mins(3);

/// Writes an area once, in random order, and reads everything back.
pub(crate) fn verified(device: &str, area_mib: (u64, u64), block_bytes: u32, depth: u32) -> Load {
    let (area_at, area_bytes) = (area_mib.0 * MIB, area_mib.1 * MIB);
    Load {
        device: device.to_owned(),
        pattern: Pattern::RandomWrite,
        block_bytes,
        depth,
        area_at,
        area_bytes,
        until: Until::Bytes(area_bytes),
        verify: Verify::ReadBack,
        more: String::new(),
    }
}

/// Kernel messages of warning level or worse that have to do with the device or the way to it.
pub(crate) fn complaints(guest: &Guest) -> Vec<String> {
    const SUBJECTS: [&str; 9] =
        ["nvme", "pcieport", "pciehp", "pci 0000", "block ", "blk", "I/O error", "AER", "EXT4"];
    let messages = guest.dmesg(Level::Warning).unwrap();
    messages
        .lines()
        .filter(|line| SUBJECTS.iter().any(|subject| line.contains(subject)))
        .map(str::to_owned)
        .collect()
}
