//! Connections, the sockets that find them, and the device, joined; and a thread that lets them go on.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etherslot_rdma::Memory;
use etherslot_wire::cm::{DESK_PORT, Service, Space};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::directory::{Answer, Directory, TURN_NS};
use super::{Binding, CmError, Connections, Event, Id, Setup};
use crate::device::{Core, Device};
use crate::queue::Queue;

/// The longest sleep of the thread.
const LONGEST_SLEEP_NS: u64 = 3_600_000_000_000;
/// Tries at a port that is free in the whole node.
const PORT_TRIES: usize = 1024;

#[derive(Debug)]
struct Inner {
    connections: Connections,
    directory: Directory,
    /// Peers lost that the connections know of.
    peers_lost: u64,
}

/// The connections of a process.
#[derive(Debug)]
pub struct Manager<M> {
    device: Arc<Device<M>>,
    inner: Mutex<Inner>,
    /// Wakes the thread: a call has changed what it waits for, or the device has something.
    wake: Arc<OwnedFd>,
}

type Result<T> = std::result::Result<T, CmError>;

impl Inner {
    /// What messages, answers and the time have made of it.
    fn step<M: Memory>(&mut self, now_ns: u64, core: &mut Core<M>) {
        let Self { connections, directory, peers_lost } = self;
        let Some(rnic) = core.rnic.process() else { return };
        while let Some((peer, bytes)) = rnic.next_message() {
            connections.message(now_ns, rnic, peer, &bytes);
        }
        let lost = rnic.counters().peers_lost;
        if std::mem::replace(peers_lost, lost) != lost {
            connections.lose_peers(now_ns, rnic);
        }
        let mut take = |connections: &mut Connections, answer| match answer {
            Answer::Says { serial, says } => connections.answer(now_ns, rnic, serial, says),
            Answer::Refused { serial } => connections.refuse(serial),
            Answer::Unreachable { serial, status } => connections.unreachable(serial, status),
        };
        directory.run(|answer| take(connections, answer));
        connections.run(now_ns, rnic);
        while let Some(question) = connections.next_question() {
            if let Err(answer) = directory.ask(question) {
                match answer {
                    Answer::Refused { serial } => connections.refuse(serial),
                    Answer::Unreachable { serial, status } => connections.unreachable(serial, status),
                    Answer::Says { .. } => {}
                }
            }
        }
        directory.forget(|serial| connections.is_looking(serial));
    }
}

impl<M: Memory + Send + 'static> Manager<M> {
    /// Begins with the device of the process. `in_thread` is what its thread does first.
    pub fn new(device: Arc<Device<M>>, in_thread: fn()) -> io::Result<Arc<Self>> {
        if device.lock().rnic.process().is_none() {
            // A Function has no messages to peers yet.
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let seed = RandomState::new().hash_one(device.slot());
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let directory = Directory::new(device.ip(), device.slot())?;
        let connections = Connections::new(device.ip(), device.slot(), seed);
        device.lock().listener = Some(Arc::clone(&wake));
        let inner = Mutex::new(Inner { connections, directory, peers_lost: 0 });
        let manager = Arc::new(Self { device, inner, wake });
        let its = Arc::clone(&manager);
        std::thread::Builder::new().name("etherslot-cm".to_owned()).spawn(move || {
            in_thread();
            its.serve();
        })?;
        Ok(manager)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device<M>> {
        &self.device
    }

    /// Looks at the connections.
    pub fn look<R>(&self, look: impl FnOnce(&mut Connections) -> R) -> R {
        look(&mut self.lock().connections)
    }

    /// Changes something, and lets what comes of it leave.
    fn act<R>(&self, act: impl FnOnce(u64, &mut Inner) -> R) -> R {
        let mut inner = self.lock();
        let result = act(self.device.now_ns(), &mut inner);
        self.device.act(|core| inner.step(self.device.now_ns(), core));
        // The thread may have to get up earlier.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        result
    }

    /// The thread: as long as the process lives.
    fn serve(&self) {
        loop {
            let mut inner = self.lock();
            // What comes from now on wakes us again.
            let _ = rustix::io::read(&*self.wake, &mut [0_u8; 8]);
            let now_ns = self.device.now_ns();
            self.device.act(|core| inner.step(now_ns, core));
            let turn_ns = if inner.directory.waits_for_turn() { now_ns + TURN_NS } else { u64::MAX };
            let deadline_ns = inner.connections.deadline_ns(now_ns).min(turn_ns);
            let sleep_ns = deadline_ns.saturating_sub(now_ns).min(LONGEST_SLEEP_NS);
            // Copies: a call may close them meanwhile. One that cannot be made is looked at when we wake next.
            let others: Vec<OwnedFd> =
                inner.directory.descriptors().filter_map(|fd| fd.try_clone_to_owned().ok()).collect();
            drop(inner);
            let mut fds = vec![PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN)];
            fds.extend(others.iter().map(|fd| PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)));
            let (seconds, rest) = (sleep_ns / 1_000_000_000, sleep_ns % 1_000_000_000);
            let timeout = Timespec { tv_sec: seconds.cast_signed(), tv_nsec: rest.cast_signed() };
            let _ = poll(&mut fds, Some(&timeout));
        }
    }

    /// Makes an id whose events go there.
    pub fn create(&self, events: Arc<Queue<Event>>, space: Space, service: Service) -> Result<Id> {
        self.look(|connections| connections.create(events, space, service))
    }

    /// Binds an id. Without an address to any, without a port (0) to one that is free.
    pub fn bind(&self, id: Id, ip: Option<Ipv4Addr>, port: u16) -> Result<()> {
        let ip = self.local(ip)?;
        let Inner { connections, directory, .. } = &mut *self.lock();
        let space = connections.may_bind(id)?;
        let mut bind = |port| {
            directory.reserve(space, port)?;
            connections.bind(id, Binding { ip, port }).inspect_err(|_| directory.release(space, port))
        };
        if port != 0 {
            return bind(port);
        }
        for _ in 0..PORT_TRIES {
            let port = connections.free_port(space).ok_or(CmError::NoRoom)?;
            match directory.reserve(space, port) {
                Ok(()) => return connections.bind(id, Binding { ip, port }),
                Err(CmError::InUse) => {}
                Err(error) => return Err(error),
            }
        }
        Err(CmError::NoRoom)
    }

    /// The device's address, if this is one of it. Loopback is any address, as it is for the kernel's connection manager:
    /// libfabric tells by that that it has to look for one that others can reach.
    fn local(&self, ip: Option<Ipv4Addr>) -> Result<Option<Ipv4Addr>> {
        let own = self.device.ip();
        match ip {
            Some(ip) if ip == own => Ok(Some(own)),
            Some(ip) if !ip.is_loopback() => Err(CmError::Address),
            _ => Ok(None),
        }
    }

    /// Takes requests from now on.
    pub fn listen(&self, id: Id, backlog: i32) -> Result<()> {
        if self.look(|connections| connections.places(id))?.0.port == 0 {
            self.bind(id, None, 0)?;
        }
        self.act(|_, Inner { connections, directory, .. }| {
            let (space, port) = connections.listen(id, backlog)?;
            directory.publish(space, port).inspect_err(|_| connections.unlisten(id))
        })
    }

    /// Says where the other side is to be. An event tells whether it can be reached.
    pub fn resolve_address(
        &self,
        id: Id,
        source: Option<(Option<Ipv4Addr>, u16)>,
        remote: SocketAddrV4,
    ) -> Result<()> {
        let (ip, port) = source.unwrap_or((None, 0));
        let ip = self.local(ip)?;
        if port != 0 {
            self.bind(id, ip, port)?;
        }
        // The kernel knows its routes.
        let ways = UdpSocket::bind((self.device.ip(), 0))
            .and_then(|socket| socket.connect((*remote.ip(), DESK_PORT)).map(|()| socket));
        let remote_ip = *remote.ip();
        self.act(|_, Inner { connections, .. }| match ways {
            Ok(_) => connections.resolve_address(id, ip, remote),
            Err(_) if remote_ip.is_loopback() => connections.resolve_address(id, ip, remote),
            Err(error) => connections.address_error(id, CmError::from(error).status()),
        })
    }

    /// Asks for a connection.
    pub fn connect(&self, id: Id, service: Service, setup: Setup) -> Result<()> {
        self.act(|now_ns, inner| inner.connections.connect(now_ns, id, service, setup))
    }

    /// Accepts a request.
    pub fn accept(&self, id: Id, setup: Setup) -> Result<()> {
        self.act(|now_ns, inner| inner.connections.accept(now_ns, id, setup))
    }

    /// Refuses a request, or a Reply.
    pub fn reject(&self, id: Id, private: &[u8]) -> Result<()> {
        self.act(|_, inner| inner.connections.reject(id, private))
    }

    /// Says that our QP is ready.
    pub fn establish(&self, id: Id) -> Result<()> {
        self.act(|_, inner| inner.connections.establish(id))
    }

    /// Ends a connection.
    pub fn disconnect(&self, id: Id) -> Result<()> {
        self.act(|now_ns, inner| inner.connections.disconnect(now_ns, id))
    }

    /// Forgets an id.
    pub fn destroy(&self, id: Id) -> Result<()> {
        self.act(|_, Inner { connections, directory, .. }| {
            if let Some((space, port)) = connections.destroy(id)? {
                directory.release(space, port);
            }
            Ok(())
        })
    }
}
