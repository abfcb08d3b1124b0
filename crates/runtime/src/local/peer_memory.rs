//! Peer-to-peer memory, as Linux offers it: that of NVMe controllers with a Controller Memory Buffer, in `p2pmem` of their folders in sysfs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use etherslot_initiator::Pieces;
use etherslot_storage::relay::Stage;

/// Where PCI devices are.
const DEVICES: &str = "/sys/bus/pci/devices";
/// Behind the pieces, for the seal.
const SEAL_BYTES: usize = 4096;

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPeerMemory {
    /// No device, or the kernel knows nothing of it.
    #[error(
        "no device offers peer-to-peer memory: that takes Linux 6.2 or newer with CONFIG_PCI_P2PDMA, and an NVMe device with a Controller Memory Buffer (`cmb_bytes`)"
    )]
    Nowhere,
    /// The kernel has it for itself.
    #[error("this kernel hands out no peer-to-peer memory to programs: that takes Linux 6.2 or newer")]
    NotHandedOut,
}

/// Memory that a device offers to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    /// PCI address of the device.
    pub device: String,
    /// What of it nobody has, bytes.
    pub available: u64,
    allocate: PathBuf,
}

impl PeerMemory {
    /// So many pieces in it, or as many as there is room for.
    pub(super) fn stage(&self, pieces: Pieces) -> io::Result<(Stage, Pieces)> {
        let most = (self.available as usize).saturating_sub(SEAL_BYTES) / pieces.bytes;
        let mut count = pieces.count.min(most);
        while count > 0 {
            match Stage::of_device(&self.allocate, count * pieces.bytes) {
                Ok(stage) => return Ok((stage, Pieces { count, ..pieces })),
                // What is free is not in one part.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOMEM.raw_os_error()) => {
                    count /= 2;
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

/// What devices of this machine offer, in the order of their addresses.
///
/// # Errors
/// Nothing, and why.
pub fn peer_memories() -> Result<Vec<PeerMemory>, NoPeerMemory> {
    look(Path::new(DEVICES))
}

fn look(devices: &Path) -> Result<Vec<PeerMemory>, NoPeerMemory> {
    let (mut found, mut is_kept) = (Vec::new(), false);
    for entry in fs::read_dir(devices).into_iter().flatten().flatten() {
        let folder = entry.path().join("p2pmem");
        let number =
            |name: &str| -> Option<u64> { fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok() };
        let (Ok(device), Some(available)) = (entry.file_name().into_string(), number("available")) else {
            continue;
        };
        let allocate = folder.join("allocate");
        if !allocate.exists() {
            is_kept = true;
        } else if number("published") == Some(1) {
            found.push(PeerMemory { device, available, allocate });
        }
    }
    found.sort_by(|one, other| one.device.cmp(&other.device));
    match found.is_empty() {
        false => Ok(found),
        true if is_kept => Err(NoPeerMemory::NotHandedOut),
        true => Err(NoPeerMemory::Nowhere),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_devices_offer_is_found_or_said_why_not() {
        let devices = tempfile::tempdir().unwrap();
        let put = |device: &str, files: &[(&str, &str)]| {
            let folder = devices.path().join(device).join("p2pmem");
            fs::create_dir_all(&folder).unwrap();
            for (name, text) in files {
                fs::write(folder.join(name), text).unwrap();
            }
        };
        assert_eq!(look(devices.path()), Err(NoPeerMemory::Nowhere));
        put("0000:02:00.0", &[("available", "4096\n"), ("published", "1\n")]);
        assert_eq!(look(devices.path()), Err(NoPeerMemory::NotHandedOut), "Linux 6.1");
        put("0000:04:00.0", &[("available", "65536\n"), ("published", "1\n"), ("allocate", "")]);
        put("0000:03:00.0", &[("available", "8192\n"), ("published", "1\n"), ("allocate", "")]);
        put("0000:01:00.0", &[("available", "8192\n"), ("published", "0\n"), ("allocate", "")]);
        let found = look(devices.path()).unwrap();
        let told: Vec<(&str, u64)> = found.iter().map(|one| (one.device.as_str(), one.available)).collect();
        assert_eq!(told, [("0000:03:00.0", 8192), ("0000:04:00.0", 65536)]);
        let too_small = found[0].stage(Pieces { bytes: 8192, count: 1 }).unwrap_err();
        assert_eq!(too_small.kind(), io::ErrorKind::OutOfMemory);
    }
}
