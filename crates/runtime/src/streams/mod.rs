//! Stream sockets of the file system and of TCP: those that are listened at, and those that come there. None of them blocks.

mod address;

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

pub use address::{AddressError, ListenAddress};

use crate::control::BindError;
use crate::control::listener::Listener;

/// Why an address can't be listened at.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// A socket of the file system could not be made.
    #[error(transparent)]
    Unix(#[from] BindError),
    /// An address of TCP.
    #[error("{address}: {source}: is it an address of this machine, and the port free?")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The system refused.
    #[error("{address}: {source}")]
    Os {
        /// The address.
        address: ListenAddress,
        /// Why.
        source: io::Error,
    },
}

/// A client's socket; it never blocks.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Ends one direction, or both.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.shutdown(how),
            Self::Tcp(stream) => stream.shutdown(how),
        }
    }
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

/// A socket that is listened at.
#[derive(Debug)]
pub(crate) enum Listening {
    Unix(Listener),
    Tcp(TcpListener),
}

impl Listening {
    /// Listens at `address`; a socket of the file system is for its owner alone.
    pub(crate) fn open(address: &ListenAddress) -> Result<Self, ListenError> {
        match address {
            ListenAddress::Unix(path) => Ok(Self::Unix(Listener::bind(path)?)),
            ListenAddress::Tcp(at) => {
                let listen = || {
                    let listener = TcpListener::bind(at)?;
                    listener.set_nonblocking(true)?;
                    Ok(listener)
                };
                listen().map(Self::Tcp).map_err(|source| ListenError::Tcp { address: *at, source })
            }
        }
    }

    /// The next client that waits, and its name for the log.
    pub(crate) fn accept(&self) -> io::Result<(Stream, String)> {
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

    /// Readable when somebody waits.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(listener) => listener.as_fd(),
            Self::Tcp(listener) => listener.as_fd(),
        }
    }
}
