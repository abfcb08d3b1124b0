//! The socket's file: made for its owner alone, taken over from a node that died, removed at the end.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, fchmod, lstat, unlink};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;
/// `sun_path` of a Unix socket address, less the terminating zero.
const PATH_BYTES_MAX: usize = 107;

/// Why there is no such socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("{0}: another process serves this socket: stop it, or choose another path")]
    InUse(PathBuf),
    /// A node of this name runs here.
    #[error("a node called {0:?} runs here ({1} is served): stop it, or choose another [node] name")]
    SameName(String, PathBuf),
    /// What is there is not ours to remove.
    #[error("{0}: exists and is no socket: remove it, or choose another path")]
    NotASocket(PathBuf),
    /// No socket can have such a path.
    #[error(
        "{path}: a path of {bytes} bytes is too long for a socket: choose one of {PATH_BYTES_MAX} or less"
    )]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// There is no folder for it.
    #[error("no folder for it: choose a path, or set XDG_RUNTIME_DIR")]
    NoFolder,
    /// The system refused.
    #[error("{0}: {1}")]
    Os(PathBuf, io::Error),
}

/// A listening socket; its file goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    /// Device and inode of the file.
    file: (u64, u64),
}

impl Listener {
    /// Listens at `path`, in a folder that is made if need be. The file of a process that has died is replaced.
    pub(crate) fn bind(path: &Path) -> Result<Self, BindError> {
        let os = |error: Errno| BindError::Os(path.to_owned(), error.into());
        let bytes = path.as_os_str().len();
        if bytes > PATH_BYTES_MAX {
            return Err(BindError::TooLong { path: path.to_owned(), bytes });
        }
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(folder)
                .map_err(|error| BindError::Os(folder.to_owned(), error))?;
        }
        let address = SocketAddrUnix::new(path).map_err(os)?;
        remove_stale(path, &address)?;
        let socket = socket().map_err(os)?;
        // The file gets the mode that the socket has when it is bound, so it is never open to others.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(os)?;
        match bind(&socket, &address) {
            Err(Errno::ADDRINUSE) => return Err(BindError::InUse(path.to_owned())),
            result => result.map_err(os)?,
        }
        let stat = lstat(path).map_err(os)?;
        let listener = Self { socket, path: path.to_owned(), file: (stat.st_dev, stat.st_ino) };
        listen(&listener.socket, BACKLOG).map_err(os)?;
        Ok(listener)
    }

    /// Lets the members of a group connect, too.
    pub(crate) fn open_to(&self, group: u32) -> Result<(), BindError> {
        let os = |error| BindError::Os(self.path.clone(), error);
        std::os::unix::fs::chown(&self.path, None, Some(group)).map_err(os)?;
        std::fs::set_permissions(&self.path, Permissions::from_mode(0o660)).map_err(os)
    }

    /// The next connection that waits.
    pub(crate) fn accept(&self) -> Result<OwnedFd, Errno> {
        accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Removes a socket that nobody listens at any more.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), BindError> {
    let os = |error: Errno| BindError::Os(path.to_owned(), error.into());
    match lstat(path) {
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => return Err(os(error)),
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            return Err(BindError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match connect(socket().map_err(os)?, address) {
        Err(Errno::CONNREFUSED) => match unlink(path) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(os(error)),
        },
        Err(Errno::NOENT) => Ok(()),
        // AGAIN: its backlog is full.
        Ok(()) | Err(Errno::AGAIN) => Err(BindError::InUse(path.to_owned())),
        Err(error) => Err(os(error)),
    }
}

fn socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another's by now, if ours was removed by hand.
        if lstat(&self.path).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.file) {
            let _ = unlink(&self.path);
        }
    }
}
