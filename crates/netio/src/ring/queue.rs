//! The two sides of a ring of frames: a single producer and a single consumer that do not trust each other.
//!
//! A frame is a descriptor word (its length) and its bytes, padded to [`ALIGN`]; it may wrap around the end. Positions count
//! bytes since the beginning and never go back. Each side keeps its own position and the last good one of the other in its own
//! memory; what it reads from the shared words is checked against these before it is used. A side that meets a position or a
//! length that cannot be, reports a [`Violation`]: the ring is of no use any more.
//!
//! The other side's position is read only when the last one known does not suffice, so a cache line goes over once a burst
//! each way.

use std::mem;
use std::sync::atomic::{Ordering, fence};

use super::pace::{self, Pace, Way};
use super::region::{self, Region, Word, awake};
use crate::MAX_FRAME_BYTES;

/// Frames begin at multiples of this. A cache line would need twice the lines for small frames.
const ALIGN: usize = 8;
const DESCRIPTOR_BYTES: usize = 8;
/// What is written or read for longer than this is shown to the other side at once, so that both work at the same time.
const SHOW_BYTES: u64 = 32 << 10;
/// Frames from this size on are worth the question how to write them.
const PACED_BYTES: usize = 2048;

/// The other side wrote what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Violation(&'static str);

fn record_bytes(frame_bytes: usize) -> u64 {
    (DESCRIPTOR_BYTES + frame_bytes).next_multiple_of(ALIGN) as u64
}

/// The side that writes frames.
pub(super) struct Producer {
    region: Region,
    /// Bytes written, and of those the ones that were shown.
    head: u64,
    shown: u64,
    /// The last known bytes read.
    tail: u64,
    pace: Pace,
    /// Something was written past the caches since the last show.
    has_streamed: bool,
}

impl Producer {
    /// The producer of a ring that nothing was written to.
    pub(super) fn new(region: Region) -> Self {
        Self { region, head: 0, shown: 0, tail: 0, pace: Pace::new(), has_streamed: false }
    }

    /// Whether the consumer has gone for good.
    pub(super) fn consumer_is_gone(&self) -> bool {
        self.region.header(Word::Awake).load(Ordering::Relaxed) == awake::GONE
    }

    /// Whether a frame of the largest size fits. Looks at what the consumer has read only if it has to.
    fn has_room(&mut self, bytes: u64) -> Result<bool, Violation> {
        let size = self.region.data_bytes() as u64;
        if size - (self.head - self.tail) >= bytes {
            return Ok(true);
        }
        let tail = self.region.header(Word::Tail).load(Ordering::Acquire);
        // Between what it had read before and what was shown to it.
        if tail.wrapping_sub(self.tail) > self.shown.wrapping_sub(self.tail) {
            return Err(Violation("its read position cannot be"));
        }
        self.tail = tail;
        Ok(size - (self.head - self.tail) >= bytes)
    }

    /// Writes a frame, at most [`MAX_FRAME_BYTES`], unless there is no room (false). Nobody sees it before [`Producer::show`],
    /// which has to be called soon if this is [`Producer::is_due`].
    #[inline]
    pub(super) fn push(&mut self, frame: &[u8]) -> Result<bool, Violation> {
        let bytes = record_bytes(frame.len());
        if !self.has_room(bytes)? {
            return Ok(false);
        }
        self.region.word(self.head).store(frame.len() as u64, Ordering::Relaxed);
        self.write(self.head + DESCRIPTOR_BYTES as u64, frame);
        self.head += bytes;
        Ok(true)
    }

    #[inline]
    fn write(&mut self, position: u64, frame: &[u8]) {
        if frame.len() < PACED_BYTES {
            self.region.store(position, frame);
            return;
        }
        let (way, start) = (self.pace.way(), pace::ticks());
        match way {
            Way::Plain => self.region.store(position, frame),
            Way::Streaming => {
                self.region.store_streaming(position, frame);
                self.has_streamed = true;
            }
        }
        self.pace.learn(way, frame.len(), pace::ticks().wrapping_sub(start));
    }

    /// Whether enough was written to show it before the burst ends.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.head - self.shown >= SHOW_BYTES
    }

    /// Shows the consumer what was written. True: it sleeps and wants to be woken.
    pub(super) fn show(&mut self) -> bool {
        if self.shown == self.head {
            return false;
        }
        self.shown = self.head;
        if mem::take(&mut self.has_streamed) {
            region::end_streaming();
        }
        self.region.header(Word::Head).store(self.head, Ordering::Release);
        // Either this load sees that the consumer sleeps, or the consumer sees the head before it does.
        fence(Ordering::SeqCst);
        let state = self.region.header(Word::Awake);
        state.load(Ordering::Relaxed) == awake::SLEEPS
            && state
                .compare_exchange(awake::SLEEPS, awake::POLLS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Before sleeping in want of room: asks to be told. False: there is room already.
    pub(super) fn wait_for_room(&mut self) -> Result<bool, Violation> {
        let wanted = self.region.header(Word::WantsRoom);
        wanted.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // Half a ring, so that the consumer gets further than a frame between two wakes.
        let room = self.has_room(self.region.data_bytes() as u64 / 2)?;
        if room {
            self.region.header(Word::WantsRoom).store(0, Ordering::Relaxed);
        }
        Ok(!room)
    }
}

/// The side that reads frames.
pub(super) struct Consumer {
    region: Region,
    /// Bytes read, and of those the ones that were shown.
    tail: u64,
    shown: u64,
    /// The last known bytes written.
    head: u64,
    /// The producer has gone: nothing behind `head` counts.
    is_last: bool,
}

impl Consumer {
    /// The consumer of a ring that nothing was read from.
    pub(super) fn new(region: Region) -> Self {
        Self { region, tail: 0, shown: 0, head: 0, is_last: false }
    }

    /// Looks how far the producer is.
    fn look(&mut self) -> Result<(), Violation> {
        if self.is_last {
            return Ok(());
        }
        let head = self.region.header(Word::Head).load(Ordering::Acquire);
        if head.wrapping_sub(self.tail) > self.region.data_bytes() as u64
            || head.wrapping_sub(self.tail) < self.head.wrapping_sub(self.tail)
            || !head.is_multiple_of(ALIGN as u64)
        {
            return Err(Violation("its write position cannot be"));
        }
        self.head = head;
        Ok(())
    }

    /// The producer has gone; frames that it has shown until now are still taken.
    pub(super) fn producer_is_gone(&mut self) -> Result<(), Violation> {
        self.look()?;
        self.is_last = true;
        Ok(())
    }

    /// Whether nothing will come any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_last && self.head == self.tail
    }

    /// Whether a frame is there.
    pub(super) fn has_frame(&mut self) -> Result<bool, Violation> {
        if self.tail == self.head {
            self.look()?;
        }
        Ok(self.tail != self.head)
    }

    /// Copies the next frame, if one is there, into `buffer` and says how long it is.
    #[inline]
    pub(super) fn pop(&mut self, buffer: &mut [u8; MAX_FRAME_BYTES]) -> Result<Option<usize>, Violation> {
        if !self.has_frame()? {
            return Ok(None);
        }
        // Read once: it may be another number the next time.
        let descriptor = self.region.word(self.tail).load(Ordering::Relaxed);
        if descriptor > MAX_FRAME_BYTES as u64 {
            return Err(Violation("a frame is too long"));
        }
        let bytes = descriptor as usize;
        if record_bytes(bytes) > self.head - self.tail {
            return Err(Violation("a frame ends behind the write position"));
        }
        self.region.load(self.tail + DESCRIPTOR_BYTES as u64, &mut buffer[..bytes]);
        self.tail += record_bytes(bytes);
        Ok(Some(bytes))
    }

    /// Whether enough was read to show it before the burst ends.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.tail - self.shown >= SHOW_BYTES
    }

    /// Shows the producer what was read. True: it sleeps and there is now the room that it wants to be woken for.
    pub(super) fn show(&mut self) -> bool {
        if self.shown == self.tail {
            return false;
        }
        self.shown = self.tail;
        self.region.header(Word::Tail).store(self.tail, Ordering::Release);
        // As in the producer, the other way around.
        fence(Ordering::SeqCst);
        let wanted = self.region.header(Word::WantsRoom);
        if wanted.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let head = self.region.header(Word::Head).load(Ordering::Relaxed);
        let room = head.wrapping_sub(self.tail) <= self.region.data_bytes() as u64 / 2;
        if room {
            wanted.store(0, Ordering::Relaxed);
        }
        room
    }

    /// Before sleeping: asks to be woken. False: a frame is there already.
    pub(super) fn sleep(&mut self) -> Result<bool, Violation> {
        self.region.header(Word::Awake).store(awake::SLEEPS, Ordering::Relaxed);
        // Either the producer sees that, or the frame is seen here.
        fence(Ordering::SeqCst);
        self.has_frame().map(|frame| !frame)
    }

    /// After sleeping.
    pub(super) fn wake(&mut self) {
        self.region.header(Word::Awake).store(awake::POLLS, Ordering::Relaxed);
    }

    /// For good.
    pub(super) fn leave(&mut self) {
        self.region.header(Word::Awake).store(awake::GONE, Ordering::Release);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
