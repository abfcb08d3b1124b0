//! A client that keeps account of what it is owed.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use etherslot_vfio_user::Server;
use etherslot_vfio_user::message::{HEADER_BYTES, Header, Request};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recv, sendmsg, socket_with,
};

use crate::device::Device;
use crate::{commands, settle};

/// Descriptors that the kernel passes in one message at most here.
const MAX_FDS: usize = 32;

/// A connection that never waits.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// Replies are taken as they come.
    pub reading: bool,
    /// The server has sent it away.
    dismissed: bool,
    /// What was sent can't be told apart into messages any more.
    senseless: bool,
    /// Sent, but no whole message yet.
    sent: Vec<u8>,
    /// Received, but no whole message yet.
    received: Vec<u8>,
    /// ID and number of the commands without a reply.
    owed: Vec<(u16, u16)>,
    refused: usize,
    next_id: u16,
}

impl Client {
    /// Connects.
    pub fn connect(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a socket");
        let address = SocketAddrUnix::new(path).expect("a path for a socket");
        connect(&socket, &address).expect("the server listens");
        Self {
            socket,
            reading: true,
            dismissed: false,
            senseless: false,
            sent: Vec::new(),
            received: Vec::new(),
            owed: Vec::new(),
            refused: 0,
            next_id: 0x8000,
        }
    }

    /// Whether the server, as far as is known, has it as its client.
    pub fn is_served(&self) -> bool {
        !self.dismissed
    }

    /// Whether all replies came, and told of no error.
    pub fn is_satisfied(&self) -> bool {
        self.owed.is_empty() && self.refused == 0 && !self.dismissed
    }

    /// Sends a command as it should be.
    pub fn request(
        &mut self,
        server: &mut Server,
        device: &mut Device,
        request: &Request<'_>,
        fds: &[BorrowedFd<'_>],
    ) {
        let bytes = commands::encode(request, self.next_id, false);
        self.next_id += 1;
        self.send(server, device, &bytes, fds);
    }

    /// Sends bytes; if the socket is full, the server is given all it needs to go on.
    pub fn send(
        &mut self,
        server: &mut Server,
        device: &mut Device,
        mut bytes: &[u8],
        fds: &[BorrowedFd<'_>],
    ) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let mut is_stuck = false;
        while !bytes.is_empty() && !self.dismissed {
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(count) => {
                    control.clear();
                    self.note_sent(&bytes[..count]);
                    bytes = &bytes[count..];
                    is_stuck = false;
                }
                Err(Errno::AGAIN) => {
                    assert!(!is_stuck, "the server does not go on");
                    self.go_on(server, device);
                    is_stuck = true;
                }
                Err(_) => self.dismissed = true,
            }
        }
    }

    /// Makes the server go on as far as it can.
    fn go_on(&mut self, server: &mut Server, device: &mut Device) {
        device.room = true;
        self.reading = true;
        loop {
            let (owed, messages) = (self.owed.len(), server.counters().messages);
            if device.connected {
                device.answer_all(server);
            }
            settle(server, device);
            self.receive();
            if (self.owed.len(), server.counters().messages) == (owed, messages) {
                break;
            }
        }
    }

    fn note_sent(&mut self, bytes: &[u8]) {
        if self.senseless {
            return;
        }
        self.sent.extend(bytes);
        while let Some(head) = self.sent.first_chunk::<HEADER_BYTES>() {
            match Header::parse(head) {
                Ok(header) if !header.reply => {
                    if self.sent.len() < header.bytes as usize {
                        break;
                    }
                    if !header.no_reply {
                        self.owed.push((header.id, header.command));
                    }
                    self.sent.drain(..header.bytes as usize);
                }
                _ => {
                    self.senseless = true;
                    break;
                }
            }
        }
    }

    /// Takes the replies that have come, if it reads at all.
    pub fn receive(&mut self) {
        let mut buffer = [0; 16 << 10];
        while self.reading && !self.dismissed {
            match recv(&self.socket, &mut buffer[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.dismissed = true,
                Ok((count, _)) => self.note_received(&buffer[..count]),
                Err(Errno::AGAIN) => break,
                Err(_) => self.dismissed = true,
            }
        }
    }

    fn note_received(&mut self, bytes: &[u8]) {
        self.received.extend(bytes);
        while let Some(head) = self.received.first_chunk::<HEADER_BYTES>() {
            let header = Header::parse(head).expect("the server sends headers");
            assert!(header.reply, "the server sends replies only");
            if self.received.len() < header.bytes as usize {
                break;
            }
            self.refused += usize::from(header.error.is_some());
            self.received.drain(..header.bytes as usize);
            let owed = self.owed.iter().position(|&owed| owed == (header.id, header.command));
            self.owed.remove(owed.expect("a reply that nobody waits for"));
        }
    }

    /// Before it goes: what it was owed has come, unless it was sent away.
    pub fn conclude(&mut self, server: &mut Server, device: &mut Device) {
        self.go_on(server, device);
        assert!(self.dismissed || self.senseless || self.owed.is_empty(), "a command without a reply");
    }
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
