//! A device's socket and its client, driven by polling.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use etherslot_mem::GuestMemory;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{info, warn};

use crate::connection::{Broken, Inbound, Outbound, Received};
use crate::info::{DeviceInfo, InfoError};
use crate::leave::{Keeper, take_leave};
use crate::listener::{BindError, Listener};
use crate::message::{Errno, HEADER_BYTES, MAX_OTHER_BODY_BYTES, REGION_ACCESS_BYTES};
use crate::pending::MessageId;
use crate::poller::Poller;
use crate::session::{Handler, MAX_REPLY_BYTES, Served, Session};

/// Messages served in one call of [`Server::poll`] at most, so that others get their turn.
const BURST_MESSAGES: usize = 512;
/// What replies may take, besides those to the largest reads.
const OUTBOUND_BYTES: usize = 64 << 10;

/// What has happened since the server was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Clients that connected.
    pub connections: u64,
    /// Clients that were sent away because what they sent made no sense.
    pub violations: u64,
    /// Messages served.
    pub messages: u64,
    /// Commands answered with an error, and those that would have been if they had asked for a reply.
    pub errors: u64,
    /// Posted writes that failed.
    pub posted_errors: u64,
    /// Interrupts signalled.
    pub interrupts: u64,
}

/// Why [`Server::set_info`] did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetInfoError {
    /// A client has been told of the device as it was.
    #[error("a client is connected")]
    Busy,
    /// See there.
    #[error(transparent)]
    Info(#[from] InfoError),
}

#[derive(Debug)]
struct Client {
    socket: OwnedFd,
    /// Whether the poller waits for input, and for room for output.
    interest: (bool, bool),
    /// Sending failed: it is gone.
    broken: bool,
}

impl Drop for Client {
    fn drop(&mut self) {
        take_leave(self.socket.as_fd());
    }
}

/// Offers one device at one socket, to one client at a time; the next waits until the one before is gone.
///
/// Nothing is done unless it is called: sleep on [`Server::fd`], then call [`Server::poll`] until it returns false, and
/// also after the handler has room again.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    poller: Poller,
    client: Option<Client>,
    inbound: Inbound,
    outbound: Outbound,
    session: Session,
    keeper: Option<Arc<Keeper>>,
}

impl Server {
    /// Listens at `path`. The socket file of a process that has died is replaced; the access rights are those of the
    /// process's umask. The file is removed on drop.
    pub fn bind(path: impl AsRef<Path>, info: DeviceInfo) -> Result<Self, BindError> {
        info.check()?;
        let os = |error: rustix::io::Errno| BindError::Os(path.as_ref().to_owned(), error.into());
        let poller = Poller::new().map_err(os)?;
        let listener = Listener::bind(path.as_ref())?;
        poller.add(listener.as_fd()).map_err(os)?;
        let (inbound, outbound) = Self::buffers(&info);
        Ok(Self {
            listener,
            poller,
            client: None,
            inbound,
            outbound,
            session: Session::new(info),
            keeper: None,
        })
    }

    /// From the next client on, has `keeper` take leave of clients if this process dies.
    pub fn set_keeper(&mut self, keeper: Arc<Keeper>) {
        self.keeper = Some(keeper);
    }

    fn buffers(info: &DeviceInfo) -> (Inbound, Outbound) {
        let transfer = info.max_transfer_bytes as usize;
        let body = MAX_OTHER_BODY_BYTES.max(REGION_ACCESS_BYTES + transfer);
        (Inbound::new(HEADER_BYTES + body), Outbound::new(OUTBOUND_BYTES + 4 * (MAX_REPLY_BYTES + transfer)))
    }

    /// Changes what the next client is told; not while there is one.
    pub fn set_info(&mut self, info: DeviceInfo) -> Result<(), SetInfoError> {
        info.check()?;
        if self.client.is_some() {
            return Err(SetInfoError::Busy);
        }
        if info != self.session.info {
            (self.inbound, self.outbound) = Self::buffers(&info);
            let counters = self.session.counters;
            self.session = Session::new(info);
            self.session.counters = counters;
        }
        Ok(())
    }

    /// What clients are told.
    pub fn info(&self) -> &DeviceInfo {
        &self.session.info
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        self.listener.path()
    }

    /// Readable while [`Server::poll`] has something to do.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    /// Whether a client is there that has agreed on the protocol.
    pub fn is_connected(&self) -> bool {
        self.session.negotiated
    }

    /// Why the device can't reach all of the client's memory, if that is so.
    pub fn complaint(&self) -> Option<&str> {
        self.session.complaint.as_deref()
    }

    /// The client's memory.
    pub fn memory(&self) -> &GuestMemory {
        &self.session.memory
    }

    /// What has happened.
    pub fn counters(&self) -> Counters {
        Counters { interrupts: self.session.irqs.signalled, ..self.session.counters }
    }

    /// Serves what has come, as far as the handler has room. True if something was done: then there may be more.
    pub fn poll(&mut self, handler: &mut dyn Handler) -> bool {
        let mut worked = false;
        if self.client.is_none() {
            let Some(socket) = self.listener.accept() else { return false };
            if !self.welcome(socket) {
                return true;
            }
            worked = true;
        }
        worked |= self.session.irqs.poll();
        match self.serve(handler) {
            Ok(served) => worked | served,
            Err(broken) => {
                self.dismiss(&broken, handler);
                true
            }
        }
    }

    /// Sends the client away, if there is one.
    pub fn disconnect(&mut self, handler: &mut dyn Handler) {
        if self.client.is_some() {
            self.dismiss(&Broken::Dismissed, handler);
        }
    }

    fn welcome(&mut self, socket: OwnedFd) -> bool {
        if let Err(error) = self.poller.add(socket.as_fd()) {
            warn!(path = %self.listener.path().display(), %error, "client can't be watched");
            return false;
        }
        if let Some(keeper) = &self.keeper
            && let Err(error) = keeper.hold(socket.as_fd())
        {
            warn!(path = %self.listener.path().display(), %error, "the client would take this process's death badly");
        }
        // Others wait, and must not keep the poller awake.
        self.poller.remove(self.listener.as_fd());
        self.client = Some(Client { socket, interest: (true, false), broken: false });
        self.session.counters.connections += 1;
        true
    }

    fn dismiss(&mut self, cause: &Broken, handler: &mut dyn Handler) {
        let path = self.listener.path().display();
        match cause {
            Broken::Closed | Broken::Dismissed | Broken::Os(_) => info!(%path, %cause, "client gone"),
            _ => {
                self.session.counters.violations += 1;
                warn!(%path, %cause, "client sent away");
            }
        }
        if let Some(client) = self.client.take() {
            // What it was told last, such as why, if it takes it.
            let _ = self.outbound.flush(client.socket.as_fd());
            self.poller.remove(client.socket.as_fd());
        }
        self.inbound.clear();
        self.outbound.clear();
        let negotiated = self.session.negotiated;
        self.session.clear(&self.poller);
        if let Err(error) = self.poller.add(self.listener.as_fd()) {
            warn!(%path, %error, "no further client can be served");
        }
        if negotiated {
            handler.disconnected();
        }
    }

    /// Serves messages until there are none, or none can be served, or there were many.
    fn serve(&mut self, handler: &mut dyn Handler) -> Result<bool, Broken> {
        let Some(client) = &mut self.client else { return Ok(false) };
        if client.broken {
            return Err(Broken::Closed);
        }
        let socket = client.socket.as_fd();
        let mut served = 0;
        let mut stalled = false;
        while served < BURST_MESSAGES {
            let outcome = self.session.serve(&mut self.inbound, &mut self.outbound, &self.poller, handler)?;
            match outcome {
                Served::Yes => served += 1,
                Served::Stalled => {
                    // It may be that replies have to go first.
                    let room = self.outbound.room();
                    self.outbound.flush(socket)?;
                    if self.outbound.room() == room {
                        stalled = true;
                        break;
                    }
                }
                Served::Incomplete => {
                    // Replies first: the client may wait for one.
                    self.outbound.flush(socket)?;
                    if self.inbound.receive(socket)? == Received::Nothing {
                        break;
                    }
                }
            }
        }
        let room = self.outbound.room();
        self.outbound.flush(socket)?;
        // The client may have taken replies just now. What waited for their place has come already: nothing would wake us for it.
        let eased = stalled && self.outbound.room() != room;
        stalled &= !eased;
        if stalled && hung_up(socket) {
            return Err(Broken::Closed);
        }
        let interest = (!stalled, !self.outbound.is_empty());
        if client.interest != interest {
            self.poller.change(socket, interest.0, interest.1)?;
            client.interest = interest;
        }
        Ok(served > 0 || eased)
    }

    /// Answers a read that was answered later; `data` is all that was asked for. False if nobody waits for it any more.
    pub fn reply_read(&mut self, id: MessageId, data: &[u8]) -> bool {
        self.finish(id, Ok(data))
    }

    /// Answers a write or reset that was answered later. False if nobody waits for it any more.
    pub fn reply_done(&mut self, id: MessageId) -> bool {
        self.finish(id, Ok(&[]))
    }

    /// Answers a command that was answered later: it failed. False if nobody waits for it any more.
    pub fn reply_error(&mut self, id: MessageId, error: Errno) -> bool {
        self.finish(id, Err(error))
    }

    fn finish(&mut self, id: MessageId, result: Result<&[u8], Errno>) -> bool {
        let waited = self.session.finish(id, result, &mut self.outbound);
        if let Some(client) = &mut self.client {
            // The next poll sends it away; the poller wakes for it, as the socket is dead.
            client.broken |= self.outbound.flush(client.socket.as_fd()).is_err();
            let interest = (client.interest.0, !self.outbound.is_empty());
            if client.interest != interest {
                client.broken |= self.poller.change(client.socket.as_fd(), interest.0, interest.1).is_err();
                client.interest = interest;
            }
        }
        waited
    }

    /// Signals an MSI or MSI-X vector; if it is masked, when it is unmasked. Whatever was written to the client's memory before
    /// is there when the guest sees the interrupt. True if it was signalled now.
    pub fn trigger(&mut self, index: u32, vector: u32) -> bool {
        self.session.irqs.trigger(index, vector)
    }

    /// Sets the level of INTx: triggers it when it rises, and again when the client unmasks it while it is high. PCI_STATUS.INTx
    /// and COMMAND.INTx-disable are the caller's. True if it was signalled now.
    pub fn set_intx_level(&mut self, high: bool) -> bool {
        self.session.irqs.set_intx_level(high)
    }

    /// The level of INTx.
    pub fn intx_level(&self) -> bool {
        self.session.irqs.intx_level()
    }

    /// Whether the client wants to hear of a vector.
    pub fn is_irq_assigned(&self, index: u32, vector: u32) -> bool {
        self.session.irqs.is_assigned(index, vector)
    }

    /// Whether a vector is masked, by the client or, INTx, by itself.
    pub fn is_irq_masked(&self, index: u32, vector: u32) -> bool {
        self.session.irqs.is_masked(index, vector)
    }

    /// Of how many vectors of a type the client wants to hear.
    pub fn irqs_assigned(&self, index: u32) -> usize {
        self.session.irqs.assigned(index)
    }
}

/// Whether the other end is gone: a client that is not read from can't tell otherwise.
fn hung_up(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
}
