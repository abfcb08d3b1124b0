//! The block size that a guest gave a namespace (Format NVM), kept beside its file until the next start.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Where the block size of the namespace on `medium` is kept: beside a regular file. A block device has no place beside it.
fn place(medium: &Path) -> Option<PathBuf> {
    let regular = fs::metadata(medium).is_ok_and(|found| found.is_file());
    regular.then(|| {
        let mut name = medium.as_os_str().to_owned();
        name.push(".block-bytes");
        PathBuf::from(name)
    })
}

/// The block size that was kept, if any is.
pub(crate) fn kept(medium: &Path) -> Option<u32> {
    let text = fs::read_to_string(place(medium)?).ok()?;
    text.trim().parse().ok().filter(|bytes| matches!(bytes, 512 | 4096))
}

/// Keeps the block size, and says so if it cannot.
pub(crate) fn keep(medium: &Path, block_bytes: u32) {
    let Some(place) = place(medium) else {
        tracing::warn!(medium = %medium.display(), block_bytes, "formatted: set block_bytes in the configuration");
        return;
    };
    match replace(&place, block_bytes) {
        Ok(()) => tracing::info!(medium = %medium.display(), block_bytes, "formatted"),
        Err(error) => {
            tracing::error!(%error, file = %place.display(), block_bytes, "formatted, but the block size is not kept");
        }
    }
}

/// Whole or not at all.
fn replace(place: &Path, block_bytes: u32) -> io::Result<()> {
    let fresh = place.with_extension("block-bytes.new");
    let mut file = fs::File::create(&fresh)?;
    writeln!(file, "{block_bytes}")?;
    file.sync_all()?;
    fs::rename(&fresh, place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_size_is_found_again_beside_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let medium = folder.path().join("disk.img");
        keep(&medium, 4096);
        assert_eq!(kept(&medium), None, "no file, nothing kept");
        fs::write(&medium, [0; 512]).unwrap();
        assert_eq!(kept(&medium), None);
        keep(&medium, 4096);
        assert_eq!(kept(&medium), Some(4096));
        keep(&medium, 512);
        assert_eq!(kept(&medium), Some(512));
    }
}
