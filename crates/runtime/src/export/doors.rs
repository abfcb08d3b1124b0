//! The sockets of an export: where clients come, and those that came.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use etherslot_nbd::Server;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::ExportError;
use crate::streams::{ListenAddress, Listening, Stream};

/// Events that are looked at in a round.
const EVENTS: usize = 64;
/// Numbers of listeners start here; below are the server's places.
const LISTENERS: u64 = 1 << 32;
/// Each change is told once: a socket that nobody wants to read now does not keep the daemon awake.
const CHANGES: epoll::EventFlags = epoll::EventFlags::IN
    .union(epoll::EventFlags::OUT)
    .union(epoll::EventFlags::RDHUP)
    .union(epoll::EventFlags::ET);

/// All of them.
#[derive(Debug)]
pub(super) struct Doors {
    epoll: OwnedFd,
    doors: Vec<Listening>,
}

impl Doors {
    /// Listens at these places.
    pub(super) fn open(addresses: &[ListenAddress]) -> Result<Self, ExportError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io::Error::from)?;
        let doors = addresses.iter().map(Listening::open).collect::<Result<Vec<_>, _>>()?;
        for (number, door) in doors.iter().enumerate() {
            let data = epoll::EventData::new_u64(LISTENERS + number as u64);
            epoll::add(&epoll, door.fd(), data, CHANGES).map_err(io::Error::from)?;
        }
        Ok(Self { epoll, doors })
    }

    /// Readable when there is something to do.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// No client comes any more.
    pub(super) fn close(&mut self) {
        self.doors.clear();
    }

    /// Tells the server which clients may have something for it, and lets new ones in. True if there were such.
    pub(super) fn poll(&mut self, now_ns: u64, server: &mut Server<Stream>) -> io::Result<bool> {
        let mut events =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; EVENTS];
        let count = match epoll::wait(&self.epoll, &mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
            Ok(count) => count,
            Err(Errno::INTR) => 0,
            Err(error) => return Err(error.into()),
        };
        let mut progress = false;
        for event in &events[..count] {
            let (number, flags) = (event.data.u64(), event.flags);
            match number.checked_sub(LISTENERS) {
                None => {
                    let ends = epoll::EventFlags::RDHUP | epoll::EventFlags::HUP | epoll::EventFlags::ERR;
                    server.wake(number as usize, flags.intersects(ends));
                }
                Some(door) => {
                    self.let_in(door as usize, now_ns, server)?;
                    progress = true;
                }
            }
        }
        Ok(progress)
    }

    fn let_in(&self, door: usize, now_ns: u64, server: &mut Server<Stream>) -> io::Result<()> {
        let Some(door) = self.doors.get(door) else { return Ok(()) };
        loop {
            let (stream, peer) = match door.accept() {
                Ok(client) => client,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    tracing::warn!(%error, "a client could not be let in");
                    return Ok(());
                }
            };
            if let Some(place) = server.vacancy() {
                let data = epoll::EventData::new_u64(place as u64);
                epoll::add(&self.epoll, &stream, data, CHANGES)?;
            }
            if let Err(stream) = server.connect(now_ns, stream, peer) {
                drop(stream);
                tracing::warn!("client sent away: there are too many");
            }
        }
    }
}
