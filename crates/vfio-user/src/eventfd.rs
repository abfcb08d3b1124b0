//! Eventfds that came from a client.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl, readlink};
use rustix::io::{Errno, read, write};

/// Whether `fd` is an eventfd, as the kernel names it.
pub(crate) fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    let link = readlink(format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new());
    link.is_ok_and(|link| link.as_bytes() == b"anon_inode:[eventfd]")
}

/// A descriptor known to be an eventfd: a client could pass a pipe or a file of a file system of its own, and make a write
/// to it last for ever.
#[derive(Debug)]
pub(crate) struct Eventfd {
    fd: OwnedFd,
}

impl Eventfd {
    pub(crate) fn new(fd: OwnedFd) -> Option<Self> {
        is_eventfd(fd.as_fd()).then_some(())?;
        let eventfd = Self { fd };
        eventfd.unblock().ok()?;
        Some(eventfd)
    }

    /// A write to an eventfd blocks when the count is at its end. The flag is the client's to change as well, so it is looked at
    /// before each write.
    fn unblock(&self) -> Result<(), Errno> {
        let flags = fcntl_getfl(&self.fd)?;
        if flags.contains(OFlags::NONBLOCK) {
            Ok(())
        } else {
            fcntl_setfl(&self.fd, flags | OFlags::NONBLOCK)
        }
    }

    /// Adds 1 to the count. If it is full it is signalled already.
    pub(crate) fn signal(&self) -> bool {
        let result = self.unblock().and_then(|()| write(&self.fd, &1u64.to_ne_bytes()).map(drop));
        matches!(result, Ok(()) | Err(Errno::AGAIN))
    }

    /// Whether it was signalled since it was last asked.
    pub(crate) fn take(&self) -> bool {
        self.unblock().is_ok() && read(&self.fd, &mut [0; 8]) == Ok(8)
    }
}

impl AsFd for Eventfd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
