//! Queues of events with a file descriptor that is readable while there are any, as programs wait for them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

/// A queue.
#[derive(Debug)]
pub struct Queue<T> {
    /// Counts what is in the queue. Only [`Queue::pop`] takes from it, whatever the program does with it.
    fd: OwnedFd,
    items: Mutex<VecDeque<T>>,
}

impl<T> Queue<T> {
    /// An empty one.
    pub fn new() -> io::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::SEMAPHORE)?;
        Ok(Self { fd, items: Mutex::new(VecDeque::new()) })
    }

    /// Appends an event.
    pub fn push(&self, item: T) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        items.push_back(item);
        // Counted before anybody can take it. It fails only where the count would pass 2^64.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Takes the oldest.
    pub fn pop(&self) -> Option<T> {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let item = items.pop_front()?;
        let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
        Some(item)
    }

    /// Forgets events.
    pub fn retain(&self, mut keep: impl FnMut(&T) -> bool) {
        let mut items = self.items.lock().unwrap_or_else(PoisonError::into_inner);
        let before = items.len();
        items.retain(|item| keep(item));
        for _ in items.len()..before {
            let _ = rustix::io::read(&self.fd, &mut [0_u8; 8]);
        }
    }

    /// Whether there is such an event.
    pub fn any(&self, is_it: impl FnMut(&T) -> bool) -> bool {
        self.items.lock().unwrap_or_else(PoisonError::into_inner).iter().any(is_it)
    }

    /// Sleeps until there is one.
    pub fn wait(&self) {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let _ = poll(&mut fds, None);
    }

    /// Whether the program has asked not to be kept waiting.
    pub fn is_nonblocking(&self) -> bool {
        rustix::fs::fcntl_getfl(&self.fd).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
    }
}

impl<T> AsFd for Queue<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_descriptor_is_readable_while_there_are_events() {
        let queue = Queue::new().expect("a queue");
        let is_readable = || {
            let mut fds = [PollFd::new(&queue, PollFlags::IN)];
            poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(1)
        };
        assert!(!is_readable());
        queue.push(1);
        queue.push(2);
        queue.push(3);
        assert_eq!(queue.pop(), Some(1));
        assert!(is_readable());
        queue.retain(|&item| item != 2);
        assert!(is_readable());
        assert_eq!((queue.pop(), queue.pop()), (Some(3), None));
        assert!(!is_readable());
    }
}
