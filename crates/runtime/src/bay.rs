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
    known: Option<(u64, u64)>,
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

    fn open(&mut self) -> Option<Change> {
        let block_bytes = format_file::kept(&self.path).unwrap_or(self.block_bytes);
        let (device, path) = (&self.device, self.path.display());
        let medium = match open_medium(&self.path, self.read_only, block_bytes) {
            Ok(medium) => medium,
            Err(error) => {
                tracing::warn!(device, %path, %error, "disk not put in");
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
        if found == self.known {
            return None;
        }
        if self.is_in {
            tracing::info!(device = self.device, path = %self.path.display(), "disk taken out");
            (self.is_in, self.known) = (false, None);
            return Some(Change::Out);
        }
        self.known = found;
        found.and_then(|_| self.open())
    }

    fn deadline_ns(&self) -> u64 {
        self.next_ns
    }
}
