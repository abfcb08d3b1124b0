//! Between sealing and a Port that takes no more: what is sealed leaves, or waits here, and is never sealed again.

use crate::channel::Sealer;

/// Sealed frames that are kept for one path at a time: of the longest ones seven.
const BYTES: usize = 64 << 10;
/// The same, of short ones.
const FRAMES: usize = 64;

/// A row of sealed frames for one path.
///
/// A session would number a frame that a Port does not take anew, or give its number to another. Under a key that must not happen:
/// what is sealed here counts as sent.
#[derive(Debug)]
pub struct Outbox {
    bytes: Box<[u8]>,
    /// Where each frame ends.
    ends: [usize; FRAMES],
    frames: usize,
    sent: usize,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Outbox {
    /// An empty one. All the memory that it needs is taken here.
    pub fn new() -> Self {
        Self { bytes: vec![0; BYTES].into_boxed_slice(), ends: [0; FRAMES], frames: 0, sent: 0 }
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.sent == self.frames
    }

    /// Offers what waits to `send`, which says how many, from the front, it took. Whether any was taken.
    pub fn flush(&mut self, send: &mut dyn FnMut(&[&[u8]]) -> usize) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut frames: [&[u8]; FRAMES] = [&[]; FRAMES];
        let mut start = if self.sent == 0 { 0 } else { self.ends[self.sent - 1] };
        for (frame, &end) in frames.iter_mut().zip(&self.ends[self.sent..self.frames]) {
            *frame = &self.bytes[start..end];
            start = end;
        }
        let waiting = self.frames - self.sent;
        let taken = send(&frames[..waiting]).min(waiting);
        self.sent += taken;
        taken > 0
    }

    /// Seals frames and offers them to `send`. How many, from the front, were sealed: those will leave. None if some wait
    /// already.
    pub fn send(
        &mut self,
        sealer: &mut Sealer,
        frames: &[&[u8]],
        send: &mut dyn FnMut(&[&[u8]]) -> usize,
    ) -> usize {
        let mut done = 0;
        while done < frames.len() && self.is_empty() {
            (self.frames, self.sent) = (0, 0);
            let mut end = 0;
            while self.frames < FRAMES
                && let Some(frame) = frames.get(done)
                && let Some(room) = self.bytes.get_mut(end..)
                && room.len() >= frame.len() + 16
            {
                done += 1;
                // What can't be sealed is lost, which a session survives; its number is not used.
                if let Ok(bytes) = sealer.seal(frame, room) {
                    end += bytes;
                    self.ends[self.frames] = end;
                    self.frames += 1;
                }
            }
            if !self.flush(send) {
                break;
            }
        }
        done
    }
}
