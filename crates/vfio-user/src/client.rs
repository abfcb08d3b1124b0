//! A small client: what tests, fuzzers and drivers in user space need of the protocol.
//!
//! It blocks, for at most the time-out it was given; several commands may be under way ([`Client::send`],
//! [`Client::receive`]). It trusts the server with memory and interrupts, but not with lengths.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use etherslot_mem::Access;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};

use crate::message::{
    Capabilities, Errno, HEADER_BYTES, Header, HeaderError, IrqAction, IrqData, IrqInfoReply, MAX_FDS,
    REGION_ACCESS_BYTES, RegionInfoReply, Request, SetIrqs, Version, WriteMulti, WriteOne,
};

/// The longest reply that is taken.
const MAX_REPLY_BYTES: usize = HEADER_BYTES + REGION_ACCESS_BYTES + (1 << 20);

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with an error.
    #[error("refused: {0}")]
    Refused(Errno),
    /// The socket failed, or the time-out has passed (AGAIN).
    #[error("socket: {0}")]
    Socket(#[from] rustix::io::Errno),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The reply makes no sense.
    #[error("malformed reply: {0}")]
    Header(#[from] HeaderError),
    /// The reply does not fit the command.
    #[error("the reply does not fit the command")]
    Mismatch,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Its header.
    pub header: Header,
    /// What follows it.
    pub body: Vec<u8>,
}

/// A connection to a server.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    next_id: u16,
    /// Replies to other commands than the one that was waited for.
    early: Vec<Reply>,
}

impl Client {
    /// Connects to the server at `path`. Each wait for it will take at most `timeout`.
    pub fn connect(path: impl AsRef<Path>, timeout: Duration) -> Result<Self, ClientError> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(timeout))?;
        set_socket_timeout(&socket, Timeout::Send, Some(timeout))?;
        connect(&socket, &SocketAddrUnix::new(path.as_ref())?)?;
        Ok(Self { socket, next_id: 0, early: Vec::new() })
    }

    /// Agrees with the server on version and capabilities: the first thing to do.
    pub fn negotiate(&mut self) -> Result<Version, ClientError> {
        let capabilities = Capabilities {
            max_msg_fds: Some(MAX_FDS as u64),
            max_data_xfer_size: Some(1 << 20),
            max_dma_maps: Some(65535),
            pgsizes: Some(4096),
            write_multiple: Some(true),
        };
        let body = self.call(&Request::Version(Version { major: 0, minor: 1, capabilities }), &[])?;
        Version::parse(&body).filter(|version| version.major == 0).ok_or(ClientError::Mismatch)
    }

    /// How many regions and how many interrupt types there are, and whether the device can be reset.
    pub fn device_info(&mut self) -> Result<(u32, u32, bool), ClientError> {
        let body = self.call(&Request::GetInfo, &[])?;
        let word = |at: usize| {
            let bytes = body.get(at..).and_then(<[u8]>::first_chunk).ok_or(ClientError::Mismatch)?;
            Ok::<_, ClientError>(u32::from_ne_bytes(*bytes))
        };
        Ok((word(8)?, word(12)?, word(4)? & 1 != 0))
    }

    /// What a region is.
    pub fn region_info(&mut self, index: u32) -> Result<RegionInfoReply, ClientError> {
        let body = self.call(&Request::GetRegionInfo { index }, &[])?;
        RegionInfoReply::parse(&body).ok_or(ClientError::Mismatch)
    }

    /// What an interrupt type is.
    pub fn irq_info(&mut self, index: u32) -> Result<IrqInfoReply, ClientError> {
        let body = self.call(&Request::GetIrqInfo { index }, &[])?;
        IrqInfoReply::parse(&body).ok_or(ClientError::Mismatch)
    }

    /// Shares `bytes` bytes of `fd` from `offset` on with the device, at `address`.
    pub fn map(
        &mut self,
        fd: Option<BorrowedFd<'_>>,
        offset: u64,
        address: u64,
        bytes: u64,
        access: Access,
    ) -> Result<(), ClientError> {
        let request =
            Request::DmaMap { readable: access.read, writable: access.write, offset, address, bytes };
        self.call(&request, fd.as_slice()).map(drop)
    }

    /// Ends the sharing of all windows in a range.
    pub fn unmap(&mut self, address: u64, bytes: u64) -> Result<(), ClientError> {
        self.call(&Request::DmaUnmap { argsz: 24, all: false, address, bytes }, &[]).map(drop)
    }

    /// Ends the sharing of all memory.
    pub fn unmap_all(&mut self) -> Result<(), ClientError> {
        self.call(&Request::DmaUnmap { argsz: 24, all: true, address: 0, bytes: 0 }, &[]).map(drop)
    }

    /// Masks, unmasks or triggers interrupts, or says how they are to be signalled.
    pub fn set_irqs(
        &mut self,
        action: IrqAction,
        data: IrqData<'_>,
        (index, start, count): (u32, u32, u32),
        eventfds: &[BorrowedFd<'_>],
    ) -> Result<(), ClientError> {
        self.call(&Request::SetIrqs(SetIrqs { action, data, index, start, count }), eventfds).map(drop)
    }

    /// Reads from a region.
    pub fn read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> Result<(), ClientError> {
        let body = self.call(&Request::RegionRead { offset, region, count: data.len() as u32 }, &[])?;
        let read = body.get(REGION_ACCESS_BYTES..).filter(|read| read.len() == data.len());
        data.copy_from_slice(read.ok_or(ClientError::Mismatch)?);
        Ok(())
    }

    /// Writes to a region, and waits until it is done.
    pub fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.call(&Request::RegionWrite { offset, region, data }, &[]).map(drop)
    }

    /// Writes to a region; what becomes of it is not told.
    pub fn write_posted(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<(), ClientError> {
        self.send(&Request::RegionWrite { offset, region, data }, true, &[]).map(drop)
    }

    /// Makes many small writes, posted. At most [`crate::message::MAX_MULTI_WRITES`].
    pub fn write_multi(&mut self, writes: &[WriteOne]) -> Result<(), ClientError> {
        let bytes: Vec<u8> = writes.iter().flat_map(WriteOne::encode).collect();
        let writes = WriteMulti::new(&bytes).ok_or(ClientError::Mismatch)?;
        self.send(&Request::RegionWriteMulti(writes), true, &[]).map(drop)
    }

    /// Resets the device.
    pub fn reset(&mut self) -> Result<(), ClientError> {
        self.call(&Request::DeviceReset, &[]).map(drop)
    }

    /// Sends a command and waits for its reply; returns the body.
    pub fn call(&mut self, request: &Request<'_>, fds: &[BorrowedFd<'_>]) -> Result<Vec<u8>, ClientError> {
        let id = self.send(request, false, fds)?;
        let reply = loop {
            let reply = self.receive_next()?;
            if reply.header.id == id {
                break reply;
            }
            self.early.push(reply);
        };
        if reply.header.command != request.command() {
            return Err(ClientError::Mismatch);
        }
        reply.header.error.map_or(Ok(reply.body), |error| Err(ClientError::Refused(error)))
    }

    /// Sends a command without waiting; returns its Message ID.
    pub fn send(
        &mut self,
        request: &Request<'_>,
        no_reply: bool,
        fds: &[BorrowedFd<'_>],
    ) -> Result<u16, ClientError> {
        let mut message = vec![0; HEADER_BYTES];
        request.encode(&mut message);
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let command = request.command();
        let bytes = message.len() as u32;
        let header = Header { id, command, bytes, reply: false, no_reply, error: None };
        message[..HEADER_BYTES].copy_from_slice(&header.encode());
        self.send_bytes(&message, fds)?;
        Ok(id)
    }

    /// Sends bytes as they are, with `fds`, of which the first of them says that they come.
    pub fn send_bytes(&mut self, mut bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), ClientError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2 * MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(ClientError::Mismatch);
        }
        while !bytes.is_empty() {
            let sent = sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
            control.clear();
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// The next reply, whichever command it belongs to.
    pub fn receive(&mut self) -> Result<Reply, ClientError> {
        if !self.early.is_empty() {
            return Ok(self.early.remove(0));
        }
        self.receive_next()
    }

    fn receive_next(&mut self) -> Result<Reply, ClientError> {
        let mut bytes = [0; HEADER_BYTES];
        self.receive_exact(&mut bytes)?;
        let header = Header::parse(&bytes)?;
        if !header.reply || header.bytes as usize > MAX_REPLY_BYTES {
            return Err(ClientError::Mismatch);
        }
        let mut body = vec![0; header.bytes as usize - HEADER_BYTES];
        self.receive_exact(&mut body)?;
        Ok(Reply { header, body })
    }

    fn receive_exact(&mut self, mut bytes: &mut [u8]) -> Result<(), ClientError> {
        while !bytes.is_empty() {
            // Descriptors that come find no room, and the kernel closes them.
            let mut control = RecvAncillaryBuffer::default();
            let parts = &mut [IoSliceMut::new(bytes)];
            let received = recvmsg(&self.socket, parts, &mut control, RecvFlags::empty())?.bytes;
            if received == 0 {
                return Err(ClientError::Closed);
            }
            bytes = &mut bytes[received..];
        }
        Ok(())
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
