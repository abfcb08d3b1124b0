//! Ports in memory: a hub whose ports hand frames to each other, for tests and the simulator.
//!
//! All buffers are made when a port is opened. A full queue is back-pressure to its senders; what goes to a port that
//! nobody holds, or whose link is down, is lost and counted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use crate::error::frame_bytes;
use crate::{Address, BURST_FRAMES, Counters, MAX_FRAME_BYTES, OpenError, Port};

/// The size of a [`Hub`].
#[derive(Clone, Copy, Debug)]
pub struct HubConfig {
    /// Ports, numbered from 0.
    pub ports: u32,
    /// Frames that wait at each port.
    pub queue_frames: usize,
    /// The largest frame.
    pub max_frame_bytes: usize,
}

impl Default for HubConfig {
    /// Two ports, 256 frames of 9,000 bytes.
    fn default() -> Self {
        Self { ports: 2, queue_frames: 256, max_frame_bytes: 9000 }
    }
}

/// What joins [`MemoryPort`]s. Clones are the same hub.
#[derive(Clone)]
pub struct Hub {
    queues: Rc<[RefCell<Queue>]>,
    config: HubConfig,
}

/// The frames that wait at one port.
#[derive(Default)]
struct Queue {
    waiting: VecDeque<(u32, Vec<u8>)>,
    free: Vec<Vec<u8>>,
    open: bool,
    down: bool,
}

impl Hub {
    /// A hub with all ports closed. `max_frame_bytes` is refused as any other link's would be when a port is opened.
    pub fn new(config: HubConfig) -> Self {
        Self { queues: (0..config.ports).map(|_| RefCell::default()).collect(), config }
    }

    /// Opens a port that is not open. A port that was dropped may be opened again; what waited there is lost.
    pub fn open(&self, port: u32) -> Result<MemoryPort, OpenError> {
        let max_frame_bytes = frame_bytes("the hub", MAX_FRAME_BYTES, Some(self.config.max_frame_bytes))?;
        let refuse = |reason| OpenError::Hub { port, reason };
        let mut queue =
            self.queues.get(port as usize).ok_or_else(|| refuse("the hub has no such port"))?.borrow_mut();
        if queue.open {
            return Err(refuse("it is open already"));
        }
        queue.open = true;
        queue.waiting.reserve(self.config.queue_frames);
        queue.free.extend((0..self.config.queue_frames).map(|_| Vec::with_capacity(max_frame_bytes)));
        drop(queue);
        Ok(MemoryPort { queues: self.queues.clone(), port, max_frame_bytes, counters: Counters::default() })
    }

    /// Takes the link of a port down or up; one that is down neither sends nor receives.
    pub fn set_link(&self, port: u32, up: bool) {
        if let Some(queue) = self.queues.get(port as usize) {
            queue.borrow_mut().down = !up;
        }
    }
}

/// A port of a [`Hub`].
pub struct MemoryPort {
    queues: Rc<[RefCell<Queue>]>,
    port: u32,
    max_frame_bytes: usize,
    counters: Counters,
}

impl MemoryPort {
    fn is_down(&self) -> bool {
        self.queues[self.port as usize].borrow().down
    }
}

impl Port for MemoryPort {
    fn max_frame_bytes(&self) -> usize {
        self.max_frame_bytes
    }

    fn address(&self) -> Address {
        Address::Memory(self.port)
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        let Address::Memory(to) = to else {
            self.counters.tx_foreign += frames.len() as u64;
            return frames.len();
        };
        let peer = self.queues.get(*to as usize).filter(|_| !self.is_down());
        let mut peer = peer.map(|queue| queue.borrow_mut());
        for (taken, frame) in frames.iter().enumerate() {
            if frame.len() > self.max_frame_bytes {
                self.counters.tx_too_long += 1;
                continue;
            }
            let Some(queue) = peer.as_mut().filter(|queue| queue.open && !queue.down) else {
                self.counters.tx_link_down += 1;
                continue;
            };
            let Some(mut buffer) = queue.free.pop() else {
                self.counters.tx_no_room += 1;
                return taken;
            };
            buffer.clear();
            buffer.extend_from_slice(frame);
            queue.waiting.push_back((self.port, buffer));
            self.counters.sent(&[frame]);
        }
        frames.len()
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let queue = &self.queues[self.port as usize];
        let burst = queue.borrow().waiting.len().min(BURST_FRAMES);
        for _ in 0..burst {
            // Not borrowed while the frame is handled: the handler may send to this very port.
            let Some((from, buffer)) = queue.borrow_mut().waiting.pop_front() else { break };
            self.counters.received(&buffer);
            handle(&Address::Memory(from), &buffer);
            queue.borrow_mut().free.push(buffer);
        }
        burst
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Drop for MemoryPort {
    fn drop(&mut self) {
        let mut queue = self.queues[self.port as usize].borrow_mut();
        *queue = Queue { down: queue.down, ..Queue::default() };
    }
}
