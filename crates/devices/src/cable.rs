//! What a network controller is plugged into: a bounded queue of Ethernet frames each way, and what the two ends tell each other.
//!
//! A device model holds one [`End`]; who owns the network holds the other: the box daemon, which joins it to an interface, the simulator, a
//! test, or a second controller. Nothing is allocated once a cable is made: frames move with their buffers, which go back to where
//! they came from.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// Bytes of the longest frame, without its FCS: 9.5 KiB, and a VLAN tag.
pub const MAX_FRAME_BYTES: usize = 9728 + 4;

/// A buffer with a frame in it, from its destination address on, without FCS.
pub struct Frame {
    bytes: Box<[u8]>,
    len: usize,
}

impl Frame {
    fn new() -> Self {
        Self { bytes: vec![0; MAX_FRAME_BYTES].into_boxed_slice(), len: 0 }
    }

    /// All room that there is, for who fills it from its start; then [`Frame::set_len`].
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// How many bytes of the room are the frame; no more than there are.
    pub fn set_len(&mut self, len: usize) {
        self.len = len.min(self.bytes.len());
    }

    /// Adds bytes at the end; false, and nothing is added, if they do not fit.
    pub fn push(&mut self, data: &[u8]) -> bool {
        let fits = data.len() <= self.bytes.len() - self.len;
        if fits {
            self.bytes[self.len..self.len + data.len()].copy_from_slice(data);
            self.len += data.len();
        }
        fits
    }

    /// Puts bytes in at `at`, which is within the frame; false, and nothing is changed, if they do not fit.
    pub fn insert(&mut self, at: usize, data: &[u8]) -> bool {
        let fits = at <= self.len && data.len() <= self.bytes.len() - self.len;
        if fits {
            self.bytes.copy_within(at..self.len, at + data.len());
            self.bytes[at..at + data.len()].copy_from_slice(data);
            self.len += data.len();
        }
        fits
    }

    /// Takes out `count` bytes at `at`, as far as there are any.
    pub fn remove(&mut self, at: usize, count: usize) {
        let end = (at + count).min(self.len);
        if at < end {
            self.bytes.copy_within(end..self.len, at);
            self.len -= end - at;
        }
    }
}

impl std::ops::Deref for Frame {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl std::ops::DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

impl std::fmt::Debug for Frame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Frame({} bytes)", self.len)
    }
}

/// One direction.
struct Lane {
    frames: RefCell<VecDeque<Frame>>,
    free: RefCell<Vec<Frame>>,
    /// The sender can be heard.
    carrier: Cell<bool>,
    /// The receiver asks the sender to wait (IEEE 802.3, annex 31B).
    paused: Cell<bool>,
    /// Frames for which there was no buffer.
    lost: Cell<u64>,
}

impl Lane {
    fn new(frames: usize) -> Rc<Self> {
        Rc::new(Self {
            frames: RefCell::new(VecDeque::with_capacity(frames)),
            free: RefCell::new((0..frames).map(|_| Frame::new()).collect()),
            carrier: Cell::new(true),
            paused: Cell::new(false),
            lost: Cell::new(0),
        })
    }
}

/// One end of a cable.
pub struct End {
    to_peer: Rc<Lane>,
    from_peer: Rc<Lane>,
}

/// A cable that holds `frames` frames each way.
pub fn cable(frames: usize) -> (End, End) {
    let (a, b) = (Lane::new(frames), Lane::new(frames));
    (End { to_peer: Rc::clone(&a), from_peer: Rc::clone(&b) }, End { to_peer: b, from_peer: a })
}

impl End {
    /// An empty buffer for a frame to the peer; none if all are on their way.
    pub fn buffer(&self) -> Option<Frame> {
        let mut frame = self.to_peer.free.borrow_mut().pop()?;
        frame.len = 0;
        Some(frame)
    }

    /// Sends a frame in a buffer of this end.
    pub fn send(&self, frame: Frame) {
        self.to_peer.frames.borrow_mut().push_back(frame);
    }

    /// Gives a buffer of this end back unused.
    pub fn unused(&self, frame: Frame) {
        self.to_peer.free.borrow_mut().push(frame);
    }

    /// Sends a copy; false, and the frame is lost, if it is too long or there is no buffer.
    pub fn send_copy(&self, bytes: &[u8]) -> bool {
        let Some(mut frame) = self.buffer() else {
            self.count_lost();
            return false;
        };
        let fits = frame.push(bytes);
        if fits {
            self.send(frame);
        } else {
            self.unused(frame);
        }
        fits
    }

    /// A frame to the peer came to nothing for want of a buffer.
    pub fn count_lost(&self) {
        self.to_peer.lost.set(self.to_peer.lost.get() + 1);
    }

    /// The next frame that came; to be given back by [`End::done`].
    pub fn receive(&self) -> Option<Frame> {
        self.from_peer.frames.borrow_mut().pop_front()
    }

    /// Gives the buffer of a frame that came back to the peer.
    pub fn done(&self, frame: Frame) {
        self.from_peer.free.borrow_mut().push(frame);
    }

    /// Frames that came and wait.
    pub fn waiting(&self) -> usize {
        self.from_peer.frames.borrow().len()
    }

    /// Buffers that are left for frames to the peer.
    pub fn room(&self) -> usize {
        self.to_peer.free.borrow().len()
    }

    /// Frames of the peer that were lost since the last call.
    pub fn take_lost(&self) -> u64 {
        self.from_peer.lost.take()
    }

    /// Whether the peer can hear this end.
    pub fn set_carrier(&self, is_up: bool) {
        self.to_peer.carrier.set(is_up);
    }

    /// Whether this end can hear the peer.
    pub fn has_carrier(&self) -> bool {
        self.from_peer.carrier.get()
    }

    /// Asks the peer not to send while this end has no buffers, or no longer to mind that.
    pub fn set_flow_control(&self, is_on: bool) {
        self.from_peer.paused.set(is_on);
    }

    /// Whether the peer wants a frame for which there is no buffer to wait, rather than to be lost.
    pub fn is_flow_controlled(&self) -> bool {
        self.to_peer.paused.get()
    }
}

impl std::fmt::Debug for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("End")
            .field("waiting", &self.waiting())
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_in_order_and_buffers_go_back() {
        let (a, b) = cable(2);
        assert!(a.send_copy(&[1]) && a.send_copy(&[2, 2]));
        assert!(!a.send_copy(&[3]), "no buffer");
        assert_eq!((b.waiting(), b.take_lost(), b.take_lost()), (2, 1, 0));
        for bytes in [&[1][..], &[2, 2]] {
            let frame = b.receive().expect("a frame");
            assert_eq!(&*frame, bytes);
            b.done(frame);
        }
        assert!(b.receive().is_none());
        assert_eq!((a.room(), b.room()), (2, 2));
    }

    #[test]
    fn a_frame_grows_and_shrinks_within_its_buffer() {
        let (a, _b) = cable(1);
        let mut frame = a.buffer().expect("a buffer");
        assert!(frame.push(b"abef") && frame.insert(2, b"cd"));
        assert_eq!(&*frame, b"abcdef");
        frame.remove(1, 3);
        assert_eq!(&*frame, b"aef");
        frame.remove(2, 9);
        assert_eq!(&*frame, b"ae");
        assert!(!frame.push(&[0; MAX_FRAME_BYTES]) && !frame.insert(3, b"x"));
        frame.set_len(MAX_FRAME_BYTES + 1);
        assert_eq!(frame.len(), MAX_FRAME_BYTES);
        assert!(!frame.insert(0, b"x"));
    }

    #[test]
    fn each_end_tells_the_other_of_its_carrier_and_flow_control() {
        let (a, b) = cable(1);
        a.set_carrier(false);
        b.set_flow_control(true);
        assert!(!b.has_carrier() && a.has_carrier());
        assert!(a.is_flow_controlled() && !b.is_flow_controlled());
    }
}
