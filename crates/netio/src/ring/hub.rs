//! The folder where ring ports meet: a lock and a listening socket for each, and the first message of a connection.
//!
//! A connection carries frames one way, from the one that connects. Its first message brings the ring's memory and says who
//! comes; all later ones are single bytes that wake the other end. The socket's end is the connection's end, also when a
//! process is killed.

use std::fs::{DirBuilder, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{
    FlockOperation, MemfdFlags, Mode, OFlags, SealFlags, fchmod, fcntl_add_seals, fcntl_get_seals, flock,
    fstat, fstatfs, ftruncate, memfd_create, open, unlink,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, recvmsg, send, sendmsg, socket_with,
};

use super::region::Region;
use crate::OpenError;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;
/// The first eight bytes of the first message: name and version of what follows.
const MAGIC: [u8; 8] = *b"ESring\0\x01";
const OFFER_BYTES: usize = 16;
/// Sizes of rings that are taken.
pub(super) const RING_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=64 << 20;
/// `f_type` of a file that is memory and nothing else (linux/magic.h). Huge pages would not do: a hole that the peer punches may
/// find no page to fill it again.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// What keeps the peer from taking the memory away under us.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

fn socket_path(folder: &Path, port: u32) -> PathBuf {
    folder.join(format!("{port}.sock"))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// A port of the hub, held: nobody else can take it as long as this lives.
pub(super) struct Seat {
    listener: OwnedFd,
    path: PathBuf,
    _lock: OwnedFd,
}

impl Seat {
    /// Takes a port; the folder is made, for this user alone, if it does not exist.
    pub(super) fn take(folder: &Path, port: u32) -> Result<Self, OpenError> {
        let refuse = |reason| OpenError::Ring { hub: folder.display().to_string(), port, reason };
        let system = |what: &'static str| {
            move |error: Errno| OpenError::system(format!("{what} in {}", folder.display()), error)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
            OpenError::system(format!("cannot make the folder {}", folder.display()), error)
        })?;
        let mode = folder.metadata().map_or(0, |data| data.permissions().mode());
        if mode & Permissions::from_mode(0o022).mode() != 0 {
            return Err(refuse("others may write to its folder: take that from them with `chmod go-w`"));
        }
        let path = socket_path(folder, port);
        let address = SocketAddrUnix::new(&path)
            .map_err(|_| refuse("its socket's path would be too long: use a folder with a shorter one"))?;
        // The lock, not the socket, tells whether the port is held: it ends with the process, however that ends.
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let lock = open(folder.join(format!("{port}.lock")), flags, Mode::RUSR | Mode::WUSR)
            .map_err(system("cannot make a lock"))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => {
                return Err(OpenError::RingTaken { hub: folder.display().to_string(), port });
            }
            result => result.map_err(system("cannot take a lock"))?,
        }
        match unlink(&path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(system("cannot remove an old socket")(error)),
        }
        let listener = socket().map_err(|error| OpenError::system("cannot make a socket", error))?;
        // The file gets the mode that the socket has when it is bound, so it is never open to others.
        fchmod(&listener, Mode::RUSR | Mode::WUSR).map_err(system("cannot protect a socket"))?;
        bind(&listener, &address).map_err(system("cannot bind a socket"))?;
        listen(&listener, BACKLOG).map_err(system("cannot listen at a socket"))?;
        Ok(Self { listener, path, _lock: lock })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The next connection that waits.
    pub(super) fn accept(&self) -> Option<OwnedFd> {
        accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Still under the lock.
        let _ = unlink(&self.path);
    }
}

/// A connection to another port of the hub, if somebody holds it.
pub(super) fn connect_to(folder: &Path, port: u32) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(socket_path(folder, port))?;
    let socket = socket()?;
    connect(&socket, &address)?;
    Ok(socket)
}

/// Memory for a ring, of a size that nobody can change any more.
pub(super) fn memory(data_bytes: usize) -> io::Result<OwnedFd> {
    let file = memfd_create(c"etherslot-ring", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, Region::file_bytes(data_bytes) as u64)?;
    fcntl_add_seals(&file, SEALS | SealFlags::SEAL)?;
    Ok(file)
}

/// The first message of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// The port that it comes from.
    pub(super) port: u32,
    /// Bytes of the ring's data.
    pub(super) data_bytes: usize,
}

/// Why an offer was not taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum OfferError {
    #[error("it left")]
    Gone,
    #[error("its first message is not understood: it may be of another version")]
    Format,
    #[error("its memory can be taken away")]
    Memory,
}

impl Offer {
    pub(super) fn send(&self, socket: &OwnedFd, memory: &OwnedFd) -> io::Result<()> {
        let mut bytes = [0; OFFER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&self.port.to_le_bytes());
        bytes[12..].copy_from_slice(&(self.data_bytes as u32).to_le_bytes());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds = [memory.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// Takes the offer, with memory that is as large as it says and stays so. None: it has not come yet.
    pub(super) fn receive(socket: &OwnedFd) -> Result<Option<(Self, OwnedFd)>, OfferError> {
        let mut bytes = [0; OFFER_BYTES + 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags) {
            Ok(received) => received,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(_) => return Err(OfferError::Gone),
        };
        let mut fds = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let (memory, further) = (fds.next().and_then(|mut fds| fds.next()), fds.next());
        if received.bytes == 0 {
            return Err(OfferError::Gone);
        }
        if received.bytes != OFFER_BYTES
            || bytes[..8] != MAGIC
            || received.flags.contains(ReturnFlags::CTRUNC)
            || further.is_some()
        {
            return Err(OfferError::Format);
        }
        let number = |at| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let offer = Self { port: number(8), data_bytes: number(12) as usize };
        if !offer.data_bytes.is_power_of_two() || !RING_BYTES.contains(&offer.data_bytes) {
            return Err(OfferError::Format);
        }
        let memory = memory.ok_or(OfferError::Format)?;
        if holds(&memory, offer.data_bytes) { Ok(Some((offer, memory))) } else { Err(OfferError::Memory) }
    }
}

/// Whether accesses to a map of this file can never fail, whatever the peer does to it.
fn holds(memory: &OwnedFd, data_bytes: usize) -> bool {
    fcntl_get_seals(memory).is_ok_and(|seals| seals.contains(SEALS))
        && fstatfs(memory).is_ok_and(|stat| stat.f_type.cast_unsigned() == TMPFS_MAGIC)
        && fstat(memory)
            .is_ok_and(|stat| stat.st_size.cast_unsigned() == Region::file_bytes(data_bytes) as u64)
}

/// Wakes the other end. False: it is gone. Never blocks: a full socket has woken it already.
pub(super) fn wake(socket: &OwnedFd) -> bool {
    let sent = send(socket, &[1], SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    matches!(sent, Ok(_) | Err(Errno::AGAIN | Errno::INTR))
}

/// Takes the wakes that have come. False: the other end is gone.
pub(super) fn take_wakes(socket: &OwnedFd) -> bool {
    // Who wakes without end does so for ever; the rest is for the next look.
    for _ in 0..16 {
        let mut byte = [0; 1];
        match recv(socket, &mut byte, RecvFlags::DONTWAIT) {
            Ok((0, _)) => return false,
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => return false,
        }
    }
    true
}
