//! Taking leave of a client, so that it takes the end of the connection for what it is.
//!
//! If a socket is closed with unread bytes in it, the kernel tells the other end that the connection was reset. QEMU (11.1)
//! fails an assertion on that and takes its machine down; of a stream that has ended it makes a device that is gone. So
//! nothing is left unread, not even when a daemon is killed at work: a [`Keeper`] in another process, which holds
//! duplicates of the sockets, then reads what the daemon can't read any more.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketFlags, SocketType, recv, recvmsg, sendmsg, shutdown,
    socketpair,
};

/// Sockets a keeper holds at most: more clients than a host node has slots.
const HELD_MAX: usize = 1024;

/// Ends the connection on `socket` both ways, with nothing left unread.
pub(crate) fn take_leave(socket: BorrowedFd<'_>) {
    // From here on the other end can send nothing, so the loop ends.
    if shutdown(socket, Shutdown::Both).is_err() {
        return;
    }
    let mut sink = [0; 4096];
    loop {
        // Descriptors that come with the bytes are closed by the kernel.
        match recv(socket, &mut sink[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return,
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// The way to the process that takes leave of the clients of this one, should it die.
#[derive(Debug)]
pub struct Keeper(OwnedFd);

impl Keeper {
    /// A keeper, and the socket on which the other process is to [`keep`].
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), theirs))
    }

    /// Hands over a duplicate of a client's socket.
    pub(crate) fn hold(&self, client: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let clients = [client];
        control.push(SendAncillaryMessage::ScmRights(&clients));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(&self.0, &[io::IoSlice::new(&[0])], &mut control, flags).map(drop)
    }
}

/// Holds the sockets that come by `daemon`, the other end of a [`Keeper`], until their clients are gone; once the daemon
/// is gone, takes leave of those that are left and returns.
pub fn keep(daemon: BorrowedFd<'_>) -> io::Result<()> {
    let mut held: Vec<OwnedFd> = Vec::new();
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(daemon, PollFlags::IN)];
        // No events but the end of the connection, which is always told.
        fds.extend(held.iter().map(|client| PollFd::from_borrowed_fd(client.as_fd(), PollFlags::empty())));
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = ready[1..].iter();
        held.retain(|_| ended.next() == Some(&false));
        if ready[0] && !receive(daemon, &mut held)? {
            break;
        }
    }
    for client in &held {
        take_leave(client.as_fd());
    }
    Ok(())
}

/// Takes the next message of the daemon; false when it is gone.
fn receive(daemon: BorrowedFd<'_>, held: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received = loop {
        match recvmsg(daemon, &mut [io::IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(false),
            result => break result?,
        }
    };
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(clients) = message {
            // A socket too many is left to the daemon alone.
            let room = HELD_MAX.saturating_sub(held.len());
            held.extend(clients.take(room));
        }
    }
    Ok(received.bytes != 0)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// What a client finds when its server is gone: the end of the stream, or an error.
    fn end_of(client: &mut UnixStream) -> io::Result<usize> {
        let mut rest = Vec::new();
        client.read_to_end(&mut rest)
    }

    #[test]
    fn a_socket_closed_with_unread_bytes_looks_like_a_reset() {
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(b"unread").unwrap();
        drop(server);
        assert_eq!(end_of(&mut client).unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[test]
    fn after_leave_is_taken_the_client_finds_the_end() {
        let (mut client, mut server) = UnixStream::pair().unwrap();
        client.write_all(&[0; 10_000]).unwrap();
        server.write_all(b"answer").unwrap();
        take_leave(server.as_fd());
        assert!(client.write_all(b"more").is_err());
        drop(server);
        assert_eq!(end_of(&mut client).unwrap(), 6);
    }

    #[test]
    fn a_keeper_takes_leave_for_a_daemon_that_has_died() {
        let (daemon, keepers) = Keeper::new().unwrap();
        let keeper = thread::spawn(move || keep(keepers.as_fd()));
        let mut clients = Vec::new();
        for _ in 0..3 {
            let (mut client, server) = UnixStream::pair().unwrap();
            daemon.hold(server.as_fd()).unwrap();
            client.write_all(b"unread").unwrap();
            clients.push((client, server));
        }
        // One that has gone before, whose socket is not held for ever.
        let (gone, server) = clients.pop().unwrap();
        drop((gone, server));
        let (clients, servers): (Vec<_>, Vec<_>) = clients.into_iter().unzip();
        drop(servers);
        drop(daemon);
        for mut client in clients {
            assert_eq!(end_of(&mut client).unwrap(), 0);
        }
        keeper.join().unwrap().unwrap();
    }

    #[test]
    fn a_keeper_lets_go_of_a_client_that_is_gone() {
        let (daemon, keepers) = Keeper::new().unwrap();
        let keeper = thread::spawn(move || keep(keepers.as_fd()));
        let (client, mut server) = UnixStream::pair().unwrap();
        daemon.hold(server.as_fd()).unwrap();
        drop(client);
        assert_eq!(server.read(&mut [0; 8]).unwrap(), 0, "the keeper's duplicate keeps no client alive");
        drop((server, daemon));
        keeper.join().unwrap().unwrap();
    }
}
