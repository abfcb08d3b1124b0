//! What a test is doing, told as it goes, and the few things that most tests need.

use std::fmt::Display;
use std::time::{Duration, Instant};

use etherslot_lab::fio::{Load, Pattern, Until, Verify};
use etherslot_lab::{Guest, Level};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
/// For whatever takes a moment on an idle machine.
pub(crate) const SOON: Duration = Duration::from_mins(1);
/// For a load of some seconds.
pub(crate) const LOAD: Duration = Duration::from_mins(3);

/// A test's account of itself, on standard error.
pub(crate) struct Story(Instant);

impl Story {
    pub(crate) fn begin() -> Self {
        eprintln!();
        Self(Instant::now())
    }

    pub(crate) fn tell(&self, text: impl Display) {
        eprintln!("    {:6.1} s  {text}", self.0.elapsed().as_secs_f64());
    }
}

/// Waits until `done` holds, looking ten times a second.
pub(crate) fn wait_until(what: &str, timeout: Duration, mut done: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < timeout, "{what} did not happen within {timeout:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    start.elapsed()
}

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
