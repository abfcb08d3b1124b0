//! A file or a block device of this machine, past the page cache where that goes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use etherslot_initiator::DiskInfo;
use rustix::fs::{FallocateFlags, OFlags, fallocate, ioctl_blksszget, major, minor};

/// Direct I/O to files is in these, whatever the disk below.
const FILE_BLOCK_BYTES: u32 = 4096;
/// Requests that a copy may have under way, more than it has pieces.
const QUEUE_DEPTH: usize = 4096;

/// Why a file can be neither source nor target.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// An operation on it failed.
    #[error("{path}: {action}: {source}")]
    Failed {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("{0}: neither a regular file nor a block device")]
    Kind(PathBuf),
    /// A block device that something else has.
    #[error("{0}: in use (mounted, or part of another device): unmount it, or copy its files")]
    Busy(PathBuf),
}

/// A source or a target.
#[derive(Debug)]
pub struct LocalFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    block_bytes: u32,
    is_target: bool,
    is_block_device: bool,
    is_direct: bool,
    /// Of the block device that it is or is on.
    device: u64,
}

impl LocalFile {
    /// Opens a source.
    pub fn source(path: &Path) -> Result<Self, FileError> {
        Self::open(path, false)
    }

    /// Opens a target; a file that is not there is made. It may be a source, too.
    pub fn target(path: &Path) -> Result<Self, FileError> {
        Self::open(path, true)
    }

    fn open(path: &Path, is_target: bool) -> Result<Self, FileError> {
        let failed = |action| move |source| FileError::Failed { path: path.to_owned(), action, source };
        if is_target {
            match OpenOptions::new().write(true).create_new(true).open(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed("create")(error));
                }
                _ => {}
            }
        }
        let metadata = fs::metadata(path).map_err(failed("look at"))?;
        let is_block_device = metadata.file_type().is_block_device();
        if !is_block_device && !metadata.is_file() {
            return Err(FileError::Kind(path.to_owned()));
        }
        // Keeps out mounts and other exclusive users of a block device.
        let exclusive = if is_block_device && is_target { OFlags::EXCL } else { OFlags::empty() };
        let open_with = |flags: OFlags| {
            let flags = (flags | exclusive).bits().cast_signed();
            OpenOptions::new().read(true).write(is_target).custom_flags(flags).open(path)
        };
        let (mut file, is_direct) = match open_with(OFlags::DIRECT) {
            Ok(file) => (file, true),
            // File systems that know no direct I/O say so.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                (open_with(OFlags::empty()).map_err(failed("open"))?, false)
            }
            Err(error) if is_block_device && error.kind() == io::ErrorKind::ResourceBusy => {
                return Err(FileError::Busy(path.to_owned()));
            }
            Err(error) => return Err(failed("open")(error)),
        };
        let block_bytes = if is_block_device {
            ioctl_blksszget(&file).map_err(|errno| failed("find the block size of")(errno.into()))?
        } else {
            FILE_BLOCK_BYTES
        };
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed("find the size of"))?;
        let device = if is_block_device { metadata.rdev() } else { metadata.dev() };
        Ok(Self {
            path: path.to_owned(),
            file,
            bytes,
            block_bytes,
            is_target,
            is_block_device,
            is_direct,
            device,
        })
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What offsets and lengths are multiples of.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Whether it is a block device, whose size is what it is.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Whether it goes past the page cache, as memory of devices needs it to.
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Makes a file at least so long, with space for that, as far as its file system can say so beforehand. A block device stays as it is.
    pub fn make_room(&mut self, bytes: u64) -> Result<(), FileError> {
        if self.is_block_device || bytes == 0 {
            return Ok(());
        }
        let failed = |source| FileError::Failed { path: self.path.clone(), action: "make room in", source };
        let whole = bytes.next_multiple_of(u64::from(self.block_bytes));
        match fallocate(&self.file, FallocateFlags::empty(), 0, whole) {
            Err(rustix::io::Errno::OPNOTSUPP) if self.bytes < whole => {
                self.file.set_len(whole).map_err(failed)?;
            }
            Err(rustix::io::Errno::OPNOTSUPP) | Ok(()) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        self.bytes = self.bytes.max(whole);
        Ok(())
    }

    /// Ends a file here, durably: what was written is in whole blocks. A block device stays as it is.
    pub fn cut(&self, bytes: u64) -> Result<(), FileError> {
        if self.is_block_device {
            return Ok(());
        }
        let done = self.file.set_len(bytes).and_then(|()| self.file.sync_all());
        done.map_err(|source| FileError::Failed {
            path: self.path.clone(),
            action: "set the length of",
            source,
        })
    }

    /// The PCI address of the device that it is on, if it is on one.
    pub fn pci_address(&self) -> Option<String> {
        let path = fs::canonicalize(self.sysfs()).ok()?;
        let mut parts = path.iter().rev().filter_map(|part| part.to_str());
        parts.find(|part| is_pci_address(part)).map(str::to_owned)
    }

    fn sysfs(&self) -> PathBuf {
        PathBuf::from(format!("/sys/dev/block/{}:{}", major(self.device), minor(self.device)))
    }

    /// What tells it from others, and a source from what it was before: by it an interrupted copy knows its files.
    fn identity(&self) -> String {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        if self.is_block_device {
            let wwid = fs::read_to_string(self.sysfs().join("wwid"));
            return wwid.map_or_else(|_| path.display().to_string(), |wwid| wwid.trim().to_owned());
        }
        let Ok(metadata) = self.file.metadata() else { return path.display().to_string() };
        let file = format!("{} inode {}", path.display(), metadata.ino());
        if self.is_target {
            return file;
        }
        format!("{file} of {} bytes at {}.{:09}", metadata.len(), metadata.mtime(), metadata.mtime_nsec())
    }

    /// As a disk, for pieces of so many bytes.
    pub(super) fn info(&self, piece_bytes: usize, can_compare: bool) -> DiskInfo {
        let block_bytes = self.block_bytes;
        DiskInfo {
            block_bytes,
            // The end of a file is where it is; what is missing in its last block nobody reads.
            blocks: self.bytes.div_ceil(u64::from(block_bytes)),
            max_transfer_bytes: piece_bytes as u32 / block_bytes * block_bytes,
            max_zero_blocks: 0,
            max_discard_blocks: 0,
            queue_depth: QUEUE_DEPTH,
            read_only: !self.is_target,
            volatile_cache: true,
            can_discard: false,
            can_write_zeroes: false,
            can_compare,
            discard_zeroes: false,
            serial: self.identity(),
            model: String::new(),
            firmware: String::new(),
        }
    }

    pub(super) fn into_file(self) -> File {
        self.file
    }
}

/// As sysfs writes them: `0000:03:00.0`.
pub(super) fn is_pci_address(text: &str) -> bool {
    let is_hex = |part: &str, digits: usize| {
        part.len() >= digits && part.chars().all(|one| one.is_ascii_hexdigit() && !one.is_ascii_uppercase())
    };
    let mut parts = text.split([':', '.']);
    let found = [4, 2, 2, 1].map(|digits| parts.next().is_some_and(|part| is_hex(part, digits)));
    found == [true; 4] && parts.next().is_none() && text.matches(':').count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pci_address_is_told_from_other_names() {
        for text in ["0000:03:00.0", "10000:e1:00.7"] {
            assert!(is_pci_address(text), "{text}");
        }
        for text in ["nvme0n1", "259:0", "pci0000:00", "0000:03:00", "0000:03:00.0:pcie", "0000.03.00.0"] {
            assert!(!is_pci_address(text), "{text}");
        }
    }

    #[test]
    fn a_target_is_made_gets_room_and_is_cut() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");
        let mut target = LocalFile::target(&path).unwrap();
        assert_eq!((target.bytes(), target.is_block_device()), (0, false));
        target.make_room(5000).unwrap();
        assert_eq!((target.bytes(), fs::metadata(&path).unwrap().len()), (8192, 8192));
        target.make_room(100).unwrap();
        assert_eq!(target.bytes(), 8192, "it loses nothing");
        target.cut(5000).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 5000);
        assert!(target.info(1 << 20, true).serial.contains("new inode"));
        let before = LocalFile::source(&path).unwrap().identity();
        fs::write(&path, "changed").unwrap();
        assert_ne!(LocalFile::source(&path).unwrap().identity(), before);
    }

    #[test]
    fn what_can_be_no_file_is_told() {
        for (path, word) in
            [("/nonexistent/file", "No such file"), ("/dev/null", "neither"), ("/proc", "neither")]
        {
            let error = LocalFile::source(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains(path) && error.contains(word), "{error}");
        }
    }
}
