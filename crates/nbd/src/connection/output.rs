//! What leaves: the words of the negotiation, then replies, each with its data from where the disk put them.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use etherslot_initiator::Buffer;

use super::{Ending, Turn};
use crate::budget::Held;
use crate::message::Head;

/// Pieces of memory handed to the stream in one call.
const SLICES: usize = 64;

/// A reply, or a part of one.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: Head,
    /// The data behind the head: so many bytes of a buffer.
    pub(crate) data: Option<(Buffer, usize)>,
    /// The job that ends with it.
    pub(crate) ends: Option<u16>,
}

impl Reply {
    fn bytes(&self) -> usize {
        self.head.bytes().len() + self.data.as_ref().map_or(0, |&(_, bytes)| bytes)
    }
}

/// What is to leave.
#[derive(Debug)]
pub(crate) struct Output {
    /// Of the negotiation; before all replies.
    pub(crate) text: Vec<u8>,
    replies: VecDeque<Reply>,
    /// Bytes of the text, or of the first reply, that have left.
    sent: usize,
    /// The stream has not said that it is full.
    pub(crate) may_write: bool,
}

impl Output {
    pub(crate) fn new(text: Vec<u8>, replies: usize) -> Self {
        Self { text, replies: VecDeque::with_capacity(replies), sent: 0, may_write: true }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.replies.is_empty()
    }

    #[inline]
    pub(crate) fn push(&mut self, reply: Reply) {
        self.replies.push_back(reply);
    }

    /// Writes what the stream takes. Jobs that ended go to `free`. True if something left.
    pub(crate) fn write(
        &mut self,
        stream: &mut impl Write,
        turn: &mut Turn<'_>,
        held: &mut Held,
        free: &mut Vec<u16>,
    ) -> Result<bool, Ending> {
        let mut progress = false;
        while self.may_write && !self.is_empty() {
            let written = if self.text.is_empty() {
                self.write_replies(stream, turn)
            } else {
                stream.write(&self.text[self.sent..])
            };
            match written {
                Ok(0) => return Err(Ending::Gone),
                Ok(bytes) => {
                    progress = true;
                    turn.shared.counters.bytes_sent += bytes as u64;
                    self.has_left(bytes, turn, held, free);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.may_write = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Ending::Gone),
            }
        }
        Ok(progress)
    }

    fn write_replies(&self, stream: &mut impl Write, turn: &Turn<'_>) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let (mut count, mut sent) = (0, self.sent);
        for reply in self.replies.iter().take(SLICES / 2) {
            let data =
                reply.data.as_ref().map_or(&[][..], |(buffer, bytes)| &turn.disk.data(buffer)[..*bytes]);
            for part in [reply.head.bytes(), data] {
                let left = &part[sent.min(part.len())..];
                sent -= sent.min(part.len());
                if !left.is_empty() {
                    slices[count] = IoSlice::new(left);
                    count += 1;
                }
            }
        }
        stream.write_vectored(&slices[..count])
    }

    fn has_left(&mut self, bytes: usize, turn: &mut Turn<'_>, held: &mut Held, free: &mut Vec<u16>) {
        self.sent += bytes;
        if !self.text.is_empty() {
            if self.sent >= self.text.len() {
                self.text.clear();
                self.sent = 0;
            }
            return;
        }
        while let Some(first) = self.replies.front().map(Reply::bytes).filter(|&first| first <= self.sent) {
            self.sent -= first;
            if let Some(reply) = self.replies.pop_front() {
                turn.give_back(held, reply.data.map(|(buffer, _)| buffer));
                free.extend(reply.ends);
            }
        }
    }

    /// Nothing leaves any more.
    pub(crate) fn discard(&mut self, turn: &mut Turn<'_>, held: &mut Held) {
        self.text.clear();
        self.sent = 0;
        for reply in self.replies.drain(..) {
            turn.give_back(held, reply.data.map(|(buffer, _)| buffer));
        }
    }
}
