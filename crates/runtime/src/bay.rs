//! A place for a disk that comes and goes with its file.

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use etherslot_devices::sata::{Bay, Change, Drive};
use etherslot_storage::Medium as _;
use rustix::event::epoll;

use crate::box_daemon::open_medium;
use crate::format_file;
use crate::options::StoreOptions;

/// Between two looks at the file.
const EVERY_NS: u64 = 500_000_000;

/// Device and inode.
type File = (u64, u64);

/// The disk is in as long as its file is there; another file in its place is another disk.
pub(crate) struct FileBay {
    device: String,
    serial: String,
    path: PathBuf,
    block_bytes: u32,
    read_only: bool,
    /// What the daemon sleeps on: the file of the disk that is in.
    waker: OwnedFd,
    /// Device and inode of the file that is in, or could not be opened.
    known: Option<File>,
    is_in: bool,
    next_ns: u64,
}

impl FileBay {
    pub(crate) fn new(
        device: &str,
        serial: String,
        path: PathBuf,
        options: &StoreOptions,
    ) -> std::io::Result<Self> {
        Ok(Self {
            device: device.to_owned(),
            serial,
            path,
            block_bytes: options.block_bytes,
            read_only: options.read_only,
            waker: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            known: None,
            is_in: false,
            next_ns: 0,
        })
    }

    /// Readable when a disk that came has something done.
    pub(crate) fn waker(&self) -> std::io::Result<OwnedFd> {
        self.waker.try_clone()
    }

    /// Puts `file` in. What is wrong with it is told once, but it is tried again: it may still be in the making.
    fn open(&mut self, file: File) -> Option<Change> {
        let is_news = self.known.replace(file) != Some(file);
        let block_bytes = format_file::kept(&self.path).unwrap_or(self.block_bytes);
        let (device, path) = (&self.device, self.path.display());
        let medium = match open_medium(&self.path, self.read_only, block_bytes) {
            Ok(medium) => medium,
            Err(error) => {
                if is_news {
                    tracing::warn!(device, %path, %error, "disk not put in");
                }
                return None;
            }
        };
        if let Some(fd) = medium.fd() {
            // It leaves when it is closed.
            let data = epoll::EventData::new_u64(0);
            if let Err(error) = epoll::add(self.waker.as_fd(), fd, data, epoll::EventFlags::IN) {
                tracing::warn!(device, %path, %error, "disk not put in");
                return None;
            }
        }
        tracing::info!(device, %path, bytes = medium.info().bytes, "disk put in");
        self.is_in = true;
        Some(Change::In(Drive { serial: self.serial.clone(), medium: Box::new(medium), block_bytes }))
    }
}

impl Bay for FileBay {
    fn look(&mut self, now_ns: u64) -> Option<Change> {
        if now_ns < self.next_ns {
            return None;
        }
        self.next_ns = now_ns + EVERY_NS;
        let found = std::fs::metadata(&self.path).ok().map(|found| (found.dev(), found.ino()));
        match found {
            _ if self.is_in && found == self.known => None,
            _ if self.is_in => {
                tracing::info!(device = self.device, path = %self.path.display(), "disk taken out");
                (self.is_in, self.known) = (false, None);
                Some(Change::Out)
            }
            Some(file) => self.open(file),
            None => {
                self.known = None;
                None
            }
        }
    }

    fn deadline_ns(&self) -> u64 {
        self.next_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Backing;

    #[test]
    fn a_disk_comes_goes_and_is_changed_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk.img");
        let options = StoreOptions {
            backing: Backing::File(path.clone()),
            block_bytes: 512,
            read_only: false,
            removable: true,
        };
        let mut bay = FileBay::new("sata", "S1".to_owned(), path.clone(), &options).unwrap();
        let mut look = || {
            let now_ns = bay.deadline_ns();
            bay.look(now_ns)
        };
        assert!(look().is_none(), "there is no file");
        std::fs::write(&path, []).unwrap();
        assert!(look().is_none(), "an empty file is no disk");
        std::fs::write(&path, vec![0; 1 << 20]).unwrap();
        // Kept, as a port does: the file stays open.
        let Some(Change::In(drive)) = look() else { panic!("it is a disk now") };
        assert_eq!((drive.serial.as_str(), drive.medium.info().bytes), ("S1", 1 << 20));
        assert!(look().is_none());
        let other = folder.path().join("other.img");
        std::fs::write(&other, vec![0; 2 << 20]).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert!(matches!(look(), Some(Change::Out)), "another file is another disk");
        let Some(Change::In(drive)) = look() else { panic!("it is in") };
        assert_eq!(drive.medium.info().bytes, 2 << 20);
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(look(), Some(Change::Out)));
        assert!(look().is_none());
    }
}
