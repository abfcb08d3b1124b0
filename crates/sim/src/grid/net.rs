//! Everything between the ends of the sessions: NICs, links, the switch, and the frames in them.

use std::collections::VecDeque;

use super::MAX_FRAME_BYTES;
use super::events::{Event, Events};
use super::link::{Link, Nic, Switch};

/// A frame under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Frame {
    pub(crate) bytes: u16,
    pub(crate) is_marked: bool,
    /// The end it goes to.
    pub(crate) to: u32,
}

/// Slots for frames under way; none is given back to the allocator.
#[derive(Debug)]
pub(crate) struct Pool {
    stride: usize,
    bytes: Vec<u8>,
    frames: Vec<Frame>,
    free: Vec<u32>,
}

impl Pool {
    pub(crate) fn new(frame_bytes: u16) -> Self {
        Self { stride: frame_bytes as usize, bytes: Vec::new(), frames: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn frame(&self, slot: u32) -> Frame {
        self.frames[slot as usize]
    }

    /// The frame's bytes, which stay until something else is put in.
    pub(crate) fn take(&mut self, slot: u32) -> &[u8] {
        self.free.push(slot);
        self.get(slot)
    }

    fn put(&mut self, to: u32, frame: &[u8]) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.frames.push(Frame::default());
            self.bytes.resize(self.frames.len() * self.stride, 0);
            self.frames.len() as u32 - 1
        });
        self.frames[slot as usize] = Frame { bytes: frame.len() as u16, is_marked: false, to };
        let at = slot as usize * self.stride;
        self.bytes[at..at + frame.len()].copy_from_slice(frame);
        slot
    }

    fn get(&self, slot: u32) -> &[u8] {
        let at = slot as usize * self.stride;
        &self.bytes[at..at + self.frames[slot as usize].bytes as usize]
    }

    fn get_mut(&mut self, slot: u32) -> &mut [u8] {
        let at = slot as usize * self.stride;
        &mut self.bytes[at..at + self.frames[slot as usize].bytes as usize]
    }
}

/// A node's place at the switch.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) nic: Nic,
    /// To the switch and from it.
    pub(crate) up: Link,
    pub(crate) down: Link,
    /// Ends that wait for room in the ring, in the order of their coming.
    pub(crate) waiting: VecDeque<u32>,
    pub(crate) is_room_due: bool,
    /// Senders that the node counts as active, and when it counts again.
    pub(crate) active: u32,
    pub(crate) count_ns: u64,
}

impl Attachment {
    pub(crate) fn new(nic: Nic, up: Link, down: Link) -> Self {
        Self { nic, up, down, waiting: VecDeque::new(), is_room_due: false, active: 0, count_ns: 0 }
    }
}

/// NICs, links and switch.
pub(crate) struct Network {
    pub(crate) events: Events,
    pub(crate) pool: Pool,
    pub(crate) nodes: Vec<Attachment>,
    pub(crate) switch: Switch,
}

impl Network {
    /// Gives frames to a node's NIC as far as the ring has room.
    pub(crate) fn send(&mut self, now_ns: u64, node: u32, to: u32, frames: &[&[u8]]) -> usize {
        let attachment = &mut self.nodes[node as usize];
        let taken = attachment.nic.room(now_ns).min(frames.len());
        for frame in &frames[..taken] {
            let left_ns = attachment.nic.send(now_ns, frame.len() as u64);
            let slot = self.pool.put(to, frame);
            pass(&mut attachment.up, &mut self.pool, &mut self.events, left_ns, slot, Event::AtSwitch);
        }
        taken
    }

    /// A frame has come to the switch; `port` is its output.
    pub(crate) fn forward(&mut self, now_ns: u64, slot: u32, port: u32) {
        let bytes = u64::from(self.pool.frames[slot as usize].bytes);
        match self.switch.take(port as usize, now_ns, bytes) {
            Some((left_ns, is_marked)) => {
                self.pool.frames[slot as usize].is_marked |= is_marked;
                let down = &mut self.nodes[port as usize].down;
                pass(down, &mut self.pool, &mut self.events, left_ns, slot, Event::AtNode);
            }
            None => self.pool.free.push(slot),
        }
    }
}

/// Lets a frame pass a link.
fn pass(
    link: &mut Link,
    pool: &mut Pool,
    events: &mut Events,
    left_ns: u64,
    slot: u32,
    arrive: fn(u32) -> Event,
) {
    let frame = pool.frames[slot as usize];
    let passage = link.pass(left_ns, u64::from(frame.bytes));
    let Some(at_ns) = passage.at_ns else {
        pool.free.push(slot);
        return;
    };
    if let Some(bit) = passage.flipped {
        pool.get_mut(slot)[bit as usize / 8] ^= 1 << (bit % 8);
    }
    events.push(at_ns, arrive(slot));
    if let Some(again_ns) = passage.again_ns {
        let mut copy = [0; MAX_FRAME_BYTES];
        let copy = &mut copy[..frame.bytes as usize];
        copy.copy_from_slice(pool.get(slot));
        let slot = pool.put(frame.to, copy);
        pool.frames[slot as usize].is_marked = frame.is_marked;
        events.push(again_ns, arrive(slot));
    }
}
