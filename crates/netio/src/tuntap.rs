//! TAP interfaces: whole Ethernet frames between this process and the network of its kernel.
//!
//! Not a [`Port`](crate::Port): what goes through is other people's frames, with their addresses, not frames of sessions to a peer.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::OpenError;
use crate::interface::named;

const DEVICE: &str = "/dev/net/tun";

/// The interface was deleted: nothing comes of it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the TAP interface was deleted")]
pub struct Deleted;

/// A TAP interface, which lasts as long as this, unless it was made to stay (`ip tuntap add`).
#[derive(Debug)]
pub struct TapInterface {
    fd: OwnedFd,
    name: String,
}

impl TapInterface {
    /// Opens the interface of this name; makes it if there is none.
    pub fn open(name: &str) -> Result<Self, OpenError> {
        let mut request = named(name).ok_or_else(|| OpenError::NoInterface(name.to_owned()))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => OpenError::TapNotPermitted(name.to_owned()),
            Some(libc::EBUSY) => OpenError::TapInUse(name.to_owned()),
            Some(libc::EINVAL) => OpenError::NoTap(name.to_owned()),
            _ => OpenError::system(format!("cannot open the TAP interface `{name}`"), error),
        };
        let fd = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one whole `ifreq`.
        let result = unsafe {
            libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF as libc::Ioctl, ptr::from_mut(&mut request))
        };
        if result != 0 {
            return Err(failed(io::Error::last_os_error()));
        }
        Ok(Self { fd, name: name.to_owned() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A frame that the kernel sent, into `frame`; how long it is, or none if there is none now. A longer one is cut.
    pub fn receive(&self, frame: &mut [u8]) -> Result<Option<usize>, Deleted> {
        match rustix::io::read(&self.fd, frame) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::BADFD) => Err(Deleted),
            Err(_) => Ok(None),
        }
    }

    /// Gives a frame to the kernel, which loses it if the interface is down. False if it has no room now.
    pub fn send(&self, frame: &[u8]) -> Result<bool, Deleted> {
        match rustix::io::write(&self.fd, frame) {
            Err(Errno::BADFD) => Err(Deleted),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            _ => Ok(true),
        }
    }
}

impl AsFd for TapInterface {
    /// Readable when the kernel has sent a frame.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
