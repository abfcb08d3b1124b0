//! Bytes and descriptors of one client's stream: buffers of fixed size on both sides of a non-blocking socket.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, fstat};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendFlags,
    recvmsg, sendmsg,
};

use crate::eventfd::is_eventfd;
use crate::message::{HEADER_BYTES, Header, HeaderError, MAX_FDS};

/// Why a stream can't go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("the client closed the connection")]
    Closed,
    #[error("the client closed the connection within a message")]
    ClosedWithin,
    #[error("{0}")]
    Header(#[from] HeaderError),
    #[error("a message of {0} bytes is longer than any may be")]
    TooLong(u32),
    #[error("more file descriptors than a message may carry")]
    TooManyFds,
    #[error("a file descriptor that is neither a file nor an eventfd")]
    ForeignFd,
    #[error("sent away by this side")]
    Dismissed,
    #[error("a reply came, where only commands are expected")]
    Reply,
    #[error("{0}")]
    Os(#[from] Errno),
}

/// What one call of [`Inbound::receive`] brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Bytes,
    /// There is nothing now.
    Nothing,
}

/// The way in.
#[derive(Debug)]
pub(crate) struct Inbound {
    buffer: Box<[u8]>,
    /// The bytes that wait in the buffer.
    waiting: Range<usize>,
    max_message_bytes: usize,
    /// Bytes consumed of the stream.
    consumed: u64,
    /// Descriptors with the place in the stream of the last byte that came with them. The kernel ends a read with the bytes
    /// that carry descriptors, so that byte is in the message they belong to.
    fds: VecDeque<(u64, OwnedFd)>,
}

impl Inbound {
    /// Buffers several messages of which none is longer than `max_message_bytes`.
    pub(crate) fn new(max_message_bytes: usize) -> Self {
        let bytes = max_message_bytes + max_message_bytes.max(32 << 10);
        Self {
            buffer: vec![0; bytes].into_boxed_slice(),
            waiting: 0..0,
            max_message_bytes,
            consumed: 0,
            fds: VecDeque::with_capacity(2 * MAX_FDS),
        }
    }

    /// Forgets what came.
    pub(crate) fn clear(&mut self) {
        self.waiting = 0..0;
        self.consumed = 0;
        self.fds.clear();
    }

    /// Reads what is there, once. No whole message waits in the buffer.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> Result<Received, Broken> {
        if self.waiting.is_empty() {
            self.waiting = 0..0;
        } else if self.buffer.len() - self.waiting.end < self.max_message_bytes {
            self.buffer.copy_within(self.waiting.clone(), 0);
            self.waiting = 0..self.waiting.len();
        }
        let space = &mut self.buffer[self.waiting.end..];
        debug_assert!(!space.is_empty());
        let mut control = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut control);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            match recvmsg(socket, &mut [IoSliceMut::new(space)], &mut control, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Nothing),
                result => break result?,
            }
        };
        if received.bytes == 0 {
            return Err(if self.waiting.is_empty() { Broken::Closed } else { Broken::ClosedWithin });
        }
        self.waiting.end += received.bytes;
        let last = self.consumed + self.waiting.len() as u64 - 1;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(fds) = message {
                for fd in fds {
                    if !is_inert(&fd) {
                        return Err(Broken::ForeignFd);
                    }
                    self.fds.push_back((last, fd));
                }
            }
        }
        // The kernel has closed those that found no room. What is kept is for one message: all others have been consumed.
        if received.flags.contains(ReturnFlags::CTRUNC) || self.fds.len() > MAX_FDS {
            return Err(Broken::TooManyFds);
        }
        Ok(Received::Bytes)
    }

    /// The first message, if it is there whole: its header, and where in [`Inbound::bytes`] its body is.
    pub(crate) fn message(&self) -> Result<Option<(Header, Range<usize>)>, Broken> {
        let Some(header) = self.buffer[self.waiting.clone()].first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::parse(header)?;
        if header.bytes as usize > self.max_message_bytes {
            return Err(Broken::TooLong(header.bytes));
        }
        let end = self.waiting.start + header.bytes as usize;
        Ok((end <= self.waiting.end).then(|| (header, self.waiting.start + HEADER_BYTES..end)))
    }

    pub(crate) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Takes the first message away.
    pub(crate) fn consume(&mut self, header: &Header) {
        self.waiting.start += header.bytes as usize;
        self.consumed += u64::from(header.bytes);
        // Those the message had no use for.
        while self.fds.front().is_some_and(|(place, _)| *place < self.consumed) {
            self.fds.pop_front();
        }
    }

    /// Moves the descriptors of the first message to `fds`.
    pub(crate) fn take_fds(&mut self, header: &Header, fds: &mut Vec<OwnedFd>) {
        let end = self.consumed + u64::from(header.bytes);
        while self.fds.front().is_some_and(|(place, _)| *place < end) {
            fds.extend(self.fds.pop_front().map(|(_, fd)| fd));
        }
    }
}

/// Whether keeping `fd` keeps nothing else open. A socket, or what can hold one, may be the client's own end of this
/// connection: while it waits here for the rest of its message, the client's death would go unnoticed.
fn is_inert(fd: &OwnedFd) -> bool {
    let kind = fstat(fd).map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        FileType::Socket => false,
        FileType::Unknown => is_eventfd(fd.as_fd()),
        _ => true,
    }
}

/// The way out.
#[derive(Debug)]
pub(crate) struct Outbound {
    queue: VecDeque<u8>,
    /// Bytes of each message in the queue; of the first, those that are left.
    messages: VecDeque<u32>,
    limit_bytes: usize,
}

/// Messages are sent in bursts of at most this: the kernel takes that much whole or not at all, so that no
/// header is ever torn apart, which QEMU would take for the end of the stream.
const BURST_BYTES: usize = 16 << 10;

impl Outbound {
    /// Queues up to `limit_bytes`.
    pub(crate) fn new(limit_bytes: usize) -> Self {
        Self {
            queue: VecDeque::with_capacity(limit_bytes),
            messages: VecDeque::with_capacity(limit_bytes / HEADER_BYTES),
            limit_bytes,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
        self.messages.clear();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many more bytes can be queued.
    pub(crate) fn room(&self) -> usize {
        self.limit_bytes - self.queue.len()
    }

    /// Queues a message of which `header` knows the length; the caller has seen to the room.
    pub(crate) fn push(&mut self, header: &Header, body: &[&[u8]]) {
        let bytes = HEADER_BYTES + body.iter().map(|part| part.len()).sum::<usize>();
        debug_assert_eq!(bytes, header.bytes as usize);
        debug_assert!(bytes <= self.room());
        self.queue.extend(&header.encode());
        for part in body {
            self.queue.extend(*part);
        }
        self.messages.push_back(bytes as u32);
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        while let Some(&first) = self.messages.front() {
            let mut burst = first as usize;
            for &message in self.messages.iter().skip(1) {
                if burst + message as usize > BURST_BYTES {
                    break;
                }
                burst += message as usize;
            }
            let (front, back) = self.queue.as_slices();
            let front = &front[..front.len().min(burst)];
            let back = &back[..burst - front.len()];
            let parts = [IoSlice::new(front), IoSlice::new(back)];
            let parts = if back.is_empty() { &parts[..1] } else { &parts[..] };
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let sent = match sendmsg(socket, parts, &mut SendAncillaryBuffer::default(), flags) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(()),
                result => result?,
            };
            self.sent(sent);
        }
        Ok(())
    }

    fn sent(&mut self, mut bytes: usize) {
        self.queue.drain(..bytes);
        while let Some(first) = self.messages.front_mut() {
            if bytes < *first as usize {
                *first -= bytes as u32;
                break;
            }
            bytes -= *first as usize;
            self.messages.pop_front();
        }
    }
}
