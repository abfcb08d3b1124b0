//! Bytes that were read from a stream and are not understood yet: heads of requests, and options.

/// A place for bytes, in order.
#[derive(Debug)]
pub(crate) struct Staging {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Staging {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes].into(), start: 0, end: 0 }
    }

    /// What is there.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// The first `count` bytes were understood.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Where further bytes go, so that there are `window` at most.
    pub(crate) fn room(&mut self, window: usize) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let window = window.clamp(self.end, self.bytes.len());
        &mut self.bytes[self.end..window]
    }

    /// Bytes were put into the room.
    pub(crate) fn added(&mut self, bytes: usize) {
        self.end = (self.end + bytes).min(self.bytes.len());
    }

    /// Moves bytes into `to`; how many.
    pub(crate) fn move_to(&mut self, to: &mut [u8]) -> usize {
        let bytes = self.bytes().len().min(to.len());
        to[..bytes].copy_from_slice(&self.bytes()[..bytes]);
        self.consume(bytes);
        bytes
    }
}
