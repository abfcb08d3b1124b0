//! What the kernel says of PCI Functions (`/sys/bus/pci/devices`).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where the kernel tells of PCI Functions.
pub(crate) const DEVICES: &str = "/sys/bus/pci/devices";

/// A PCI Function of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driven {
    /// Its address, as in `0000:03:00.0`.
    pub address: String,
    /// Its driver, if it has one.
    pub driver: Option<String>,
}

/// The Functions with these IDs, by their addresses.
pub fn find(vendor: u16, device: u16) -> io::Result<Vec<Driven>> {
    find_in(Path::new(DEVICES), vendor, device)
}

fn find_in(folder: &Path, vendor: u16, device: u16) -> io::Result<Vec<Driven>> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(folder) {
        // A machine without PCI.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if id(&path.join("vendor")) == Some(vendor) && id(&path.join("device")) == Some(device) {
            let address = path.file_name().map(|name| name.to_string_lossy().into_owned());
            found.push(Driven { address: address.unwrap_or_default(), driver: last(&path.join("driver")) });
        }
    }
    found.sort_by(|one, other| one.address.cmp(&other.address));
    Ok(found)
}

/// A number as the kernel writes it: `0x8086`.
fn id(file: &Path) -> Option<u16> {
    let text = fs::read_to_string(file).ok()?;
    u16::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok()
}

/// The last part of where a link leads.
pub(crate) fn last(link: &Path) -> Option<String> {
    let target: PathBuf = fs::read_link(link).ok()?;
    Some(target.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_by_their_ids_with_their_drivers() {
        let root = tempfile::tempdir().expect("a folder");
        let devices = root.path().join("devices");
        let make = |address: &str, vendor: &str, device: &str, driver: Option<&str>| {
            let folder = devices.join(address);
            fs::create_dir_all(&folder).expect("a folder");
            fs::write(folder.join("vendor"), vendor).expect("a file");
            fs::write(folder.join("device"), device).expect("a file");
            if let Some(driver) = driver {
                std::os::unix::fs::symlink(format!("../../drivers/{driver}"), folder.join("driver"))
                    .expect("a link");
            }
        };
        make("0000:05:00.0", "0xe510\n", "0x0002\n", Some("vfio-pci"));
        make("0000:03:00.0", "0xe510\n", "0x0002\n", None);
        make("0000:04:00.0", "0xe510\n", "0x0001\n", None);
        make("0000:06:00.0", "what", "0x0002\n", None);
        let found = find_in(&devices, 0xE510, 2).expect("a list");
        let expected = [("0000:03:00.0", None), ("0000:05:00.0", Some("vfio-pci".to_owned()))];
        assert_eq!(
            found,
            expected.map(|(address, driver)| Driven { address: address.to_owned(), driver }).to_vec()
        );
        assert_eq!(find_in(&root.path().join("none"), 1, 1).expect("no PCI"), []);
    }
}
