//! The sockets of an export: where clients come, and those that came.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use etherslot_nbd::Server;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{ExportAddress, ExportError};
use crate::control::listener::Listener;

/// Events that are looked at in a round.
const EVENTS: usize = 64;
/// Numbers of listeners start here; below are the server's places.
const LISTENERS: u64 = 1 << 32;
/// Each change is told once: a socket that nobody wants to read now does not keep the daemon awake.
const CHANGES: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);

/// A client's socket; it never blocks.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Read for Stream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(to),
            Self::Tcp(stream) => stream.read(to),
        }
    }

    fn read_vectored(&mut self, to: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read_vectored(to),
            Self::Tcp(stream) => stream.read_vectored(to),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write(from),
            Self::Tcp(stream) => stream.write(from),
        }
    }

    fn write_vectored(&mut self, from: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.write_vectored(from),
            Self::Tcp(stream) => stream.write_vectored(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

#[derive(Debug)]
enum Door {
    Unix(Listener),
    Tcp(TcpListener),
}

impl Door {
    fn open(address: &ExportAddress) -> Result<Self, ExportError> {
        match address {
            ExportAddress::Unix(path) => Ok(Self::Unix(Listener::bind(path)?)),
            ExportAddress::Tcp(at) => {
                let listen = || {
                    let listener = TcpListener::bind(at)?;
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                };
                listen()
                    .map(Self::Tcp)
                    .map_err(|source| ExportError::Tcp { address: address.clone(), source })
            }
        }
    }

    /// The next client that waits, and its name for the log.
    fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Self::Unix(listener) => {
                let stream = UnixStream::from(listener.accept()?);
                Ok((Stream::Unix(stream), format!("unix:{}", listener.path().display())))
            }
            Self::Tcp(listener) => {
                let (stream, peer) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok((Stream::Tcp(stream), peer.to_string()))
            }
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Doors {
    epoll: OwnedFd,
    doors: Vec<Door>,
}

impl Doors {
    /// Listens at these places.
    pub(super) fn open(addresses: &[ExportAddress]) -> Result<Self, ExportError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let doors = addresses.iter().map(Door::open).collect::<Result<Vec<_>, _>>()?;
        for (number, door) in doors.iter().enumerate() {
            let data = epoll::EventData::new_u64(LISTENERS + number as u64);
            epoll::add(&epoll, door.fd(), data, CHANGES).map_err(io::Error::from)?;
        }
        Ok(Self { epoll, doors })
    }

    /// Readable when there is something to do.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// No client comes any more.
    pub(super) fn close(&mut self) {
        self.doors.clear();
    }

    /// Tells the server which clients may have something for it, and lets new ones in. True if there were such.
    pub(super) fn poll(&mut self, now_ns: u64, server: &mut Server<Stream>) -> io::Result<bool> {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS];
        let count = match epoll::wait(&self.epoll, &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut progress = false;
        for event in &events[..count] {
            let (number, flags) = (event.data.u64(), event.flags);
            match number.checked_sub(LISTENERS) {
                None => {
                    let ends = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                    server.wake(number as usize, flags.intersects(ends));
                }
                Some(door) => {
                    self.let_in(door as usize, now_ns, server)?;
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    fn let_in(&self, door: usize, now_ns: u64, server: &mut Server<Stream>) -> io::Result<()> {
        let Some(door) = self.doors.get(door) else { return Ok(()) };
        loop {
            let (stream, peer) = match door.accept() {
                Ok(client) => client,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "a client could not be let in");
                    return Ok(());
                }
            };
            if let Some(place) = server.vacancy() {
                let data = epoll::EventData::new_u64(place as u64);
                epoll::add(&self.epoll, &stream, data, CHANGES)?;
            }
            if let Err(stream) = server.connect(now_ns, stream, peer) {
                drop(stream);
                tracing::warn!("client sent away: there are too many");
            }
        }
    }
}
