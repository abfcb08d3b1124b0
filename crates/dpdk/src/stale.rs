//! Sockets in the file system that a process which was killed has left: drivers refuse to listen where one is.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Removes the socket at `path` if nobody listens there any more.
pub(crate) fn remove(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|about| about.file_type().is_socket());
    // One of another type than a stream has somebody who listens, and says so.
    let is_dead =
        || UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused);
    if is_socket && is_dead() {
        match fs::remove_file(path) {
            Ok(()) => tracing::debug!(path = %path.display(), "socket of a process that is gone removed"),
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a socket that nobody serves is in the way");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_a_socket_that_nobody_serves_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        remove(&path);
        assert!(path.exists(), "somebody listens");
        drop(listener);
        remove(&path);
        assert!(!path.exists());
        fs::write(&path, "a file").unwrap();
        remove(&path);
        assert!(path.exists(), "no socket");
        remove(&folder.path().join("nothing"));
    }
}
