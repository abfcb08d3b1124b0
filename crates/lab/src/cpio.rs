//! Writer for the "newc" cpio format, which is what the kernel unpacks as an initramfs
//! (Linux `Documentation/driver-api/early-userspace/buffer-format.rst`).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const CHARACTER: u32 = 0o020_000;

/// An archive under construction. Paths are relative to the archive's root; missing parents are added.
pub(crate) struct Archive<W> {
    out: W,
    inode: u32,
    written: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, inode: 0, written: BTreeSet::new() }
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.written.contains(Path::new(path))
    }

    pub(crate) fn directory(&mut self, path: &str) -> io::Result<()> {
        if self.contains(path) {
            return Ok(());
        }
        self.entry(path, DIRECTORY | 0o755, &[], (0, 0))
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.entry(path, REGULAR | mode, content, (0, 0))
    }

    pub(crate) fn symlink(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.entry(path, SYMLINK | 0o777, target.as_bytes(), (0, 0))
    }

    pub(crate) fn character_device(&mut self, path: &str, major: u32, minor: u32) -> io::Result<()> {
        self.entry(path, CHARACTER | 0o600, &[], (major, minor))
    }

    /// Writes the trailer. The kernel skips zeros between archives, so the padding lets another one follow.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.header("TRAILER!!!", 0, 0, (0, 0), 0)?;
        self.out.write_all(&[0; 512])?;
        Ok(self.out)
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8], device: (u32, u32)) -> io::Result<()> {
        if let Some(parent) = Path::new(path).parent().and_then(Path::to_str)
            && !parent.is_empty()
        {
            self.directory(parent)?;
        }
        self.written.insert(PathBuf::from(path));
        self.inode += 1;
        let bytes = u32::try_from(content.len()).map_err(|_| io::Error::other("a file of 4 GiB or more"))?;
        self.header(path, mode, bytes, device, self.inode)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn header(
        &mut self,
        path: &str,
        mode: u32,
        bytes: u32,
        (major, minor): (u32, u32),
        inode: u32,
    ) -> io::Result<()> {
        let links = 1;
        let name_bytes = path.len() as u32 + 1;
        write!(self.out, "070701")?;
        for field in [inode, mode, 0, 0, links, 0, bytes, 0, 0, major, minor, name_bytes, 0] {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(path.as_bytes())?;
        self.out.write_all(&[0])?;
        self.pad(110 + path.len() + 1)
    }

    fn pad(&mut self, bytes: usize) -> io::Result<()> {
        self.out.write_all(&[0; 3][..bytes.wrapping_neg() % 4])
    }
}

#[cfg(test)]
mod tests {
    use super::Archive;

    #[test]
    fn entries_are_aligned_to_four_bytes_and_the_archive_ends_with_the_trailer() {
        let mut archive = Archive::new(Vec::new());
        archive.file("a/b", 0o644, b"hello").unwrap();
        archive.symlink("c", "a/b").unwrap();
        let bytes = archive.finish().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 4, "a, a/b, c, trailer");
        assert!(starts.iter().all(|at| at % 4 == 0));
        assert!(text.contains("TRAILER!!!"));
        assert!(text[starts[0]..].starts_with("07070100000001000041ed"), "the parent comes first");
    }
}
