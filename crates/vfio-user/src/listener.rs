//! The socket clients connect to.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, lstat, unlink};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

use crate::info::InfoError;

/// Clients that may wait for the one before to go.
const BACKLOG: i32 = 4;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{0}: another process serves this socket: stop it, or choose another path")]
    InUse(PathBuf),
    /// What is there is not ours to remove.
    #[error("{0}: exists and is no socket: remove it, or choose another path")]
    NotASocket(PathBuf),
    /// The system refused.
    #[error("{0}: {1}")]
    Os(PathBuf, io::Error),
    /// The device can't be served.
    #[error(transparent)]
    Info(#[from] InfoError),
}

/// A listening socket; its file goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Listener {
    /// Listens at `path`. The file of a process that has died there is replaced, one of a process that listens is not.
    pub(crate) fn bind(path: &Path) -> Result<Self, BindError> {
        let os = |error: Errno| BindError::Os(path.to_owned(), error.into());
        let address = SocketAddrUnix::new(path).map_err(os)?;
        match lstat(path) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(os(error)),
            Ok(stat) if !is_socket(&stat) => return Err(BindError::NotASocket(path.to_owned())),
            Ok(_) => match connect(socket().map_err(os)?, &address) {
                Err(Errno::CONNREFUSED) => match unlink(path) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(os(error)),
                },
                Err(Errno::NOENT) => {}
                // AGAIN: its backlog is full.
                Ok(()) | Err(Errno::AGAIN) => return Err(BindError::InUse(path.to_owned())),
                Err(error) => return Err(os(error)),
            },
        }
        let socket = socket().map_err(os)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => return Err(BindError::InUse(path.to_owned())),
            result => result.map_err(os)?,
        }
        let stat = lstat(path).map_err(os)?;
        let listener = Self { socket, path: path.to_owned(), device: stat.st_dev, inode: stat.st_ino };
        listen(&listener.socket, BACKLOG).map_err(os)?;
        Ok(listener)
    }

    /// The next client that waits, if any.
    pub(crate) fn accept(&self) -> Option<OwnedFd> {
        accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn is_socket(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Socket
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another's by now, if ours was removed by hand.
        if lstat(&self.path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (self.device, self.inode)) {
            let _ = unlink(&self.path);
        }
    }
}
