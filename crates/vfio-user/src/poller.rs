//! One descriptor to sleep on for all of a server's.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;

/// An epoll instance that nobody waits on: it is readable, for whoever polls it, while one of its descriptors is ready.
#[derive(Debug)]
pub(crate) struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { epoll: epoll::create(CreateFlags::CLOEXEC)? })
    }

    pub(crate) fn add(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        epoll::add(&self.epoll, fd, EventData::new_u64(0), EventFlags::IN)
    }

    pub(crate) fn change(&self, fd: BorrowedFd<'_>, input: bool, output: bool) -> Result<(), Errno> {
        let mut events = EventFlags::empty();
        events.set(EventFlags::IN, input);
        events.set(EventFlags::OUT, output);
        epoll::modify(&self.epoll, fd, EventData::new_u64(0), events)
    }

    /// To be called before `fd` is closed: a duplicate in another process would keep it watched.
    pub(crate) fn remove(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
