//! The RNIC of a process, its Port, and who makes it go on.
//!
//! Whoever calls in does the work, under one lock: posting sends, polling looks what has come. What came is answered with
//! the next call, so that a program's own message carries the acknowledgement. A thread of our own does the rest: it
//! serves a program that sleeps or looks at nothing but memory, and keeps out of the way of one that polls.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etherslot_netio::udp::{UdpConfig, UdpPort};
use etherslot_netio::{Address, OpenError, Port, ipv4_addresses};
use etherslot_rdma::{CqId, Cqe, Engine, Event, Memory, Notice, Qpn, SrqId};
use etherslot_rnic::{Options, Rnic};
use etherslot_wire::NodeId;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::place;
use crate::queue::Queue;

/// A program that has not polled for this long sleeps, or looks at memory alone.
const AWAKE_NS: u64 = 200_000;
/// How long the thread keeps from looking while the program polls: at first, and at most.
const NAP_NS: (u64, u64) = (300_000, 2_000_000);
/// The longest sleep.
const LONGEST_SLEEP_NS: u64 = 100_000_000;
/// When a Port that had no room is tried again.
const RETRY_NS: u64 = 50_000;
/// Polls in vain after which others may run: they may be whom is waited for.
const YIELD_POLLS: u32 = 32;
/// How much finding something is worth to the thread more than finding nothing, and its highest score.
const FOUND: (u32, u32) = (3, 12);
/// How long the last messages may take when the device closes.
const LINGER: Duration = Duration::from_millis(200);

/// How the device of this process is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The IPv4 address; without it, the first of the machine's.
    pub ip: Option<Ipv4Addr>,
    /// The MTU of the way to the peers, if it is not the interface's.
    pub mtu: Option<u16>,
}

/// Why the device of this process cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no address to be reached at.
    #[error("no network interface with an IPv4 address is up")]
    NoAddress,
    /// All slots are taken.
    #[error("{0} processes on this address have the device open, and there is no room for more")]
    NoSlot(u8),
    /// The link.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An event of a program's, with the name of what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happened {
    /// What.
    pub event: Event,
    /// The owner's name of the QP, CQ or SRQ.
    pub owner: u64,
}

/// Whom to tell of events, and under which name.
#[derive(Clone, Debug)]
pub struct Owner<T> {
    /// Where to.
    pub queue: Arc<Queue<T>>,
    /// The owner's name of it.
    pub name: u64,
}

/// What is behind the lock.
#[derive(Debug)]
pub struct Core<M> {
    /// The RNIC.
    pub rnic: Rnic<Address>,
    /// The process's memory.
    pub memory: M,
    port: LockedPort,
    /// Something came and was not answered.
    owes: bool,
    /// Polls in vain, in a row.
    empty_polls: u32,
    /// Completion channels of CQs.
    pub channels: HashMap<CqId, Owner<u64>>,
    /// Of QPs.
    pub qps: HashMap<Qpn, Owner<Happened>>,
    /// Of CQs.
    pub cqs: HashMap<CqId, Owner<Happened>>,
    /// Of SRQs.
    pub srqs: HashMap<SrqId, Owner<Happened>>,
    /// Who is woken when there are messages, or a peer is lost: who keeps connections.
    pub listener: Option<Arc<OwnedFd>>,
    /// Peers lost that it was woken for.
    peers_lost: u64,
}

struct LockedPort(Box<dyn Port + Send>);

impl std::fmt::Debug for LockedPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.address().fmt(f)
    }
}

impl<M: Memory> Core<M> {
    /// The engine.
    #[inline]
    pub fn engine(&mut self) -> &mut Engine {
        &mut self.rnic.engine
    }

    /// Takes what has come; whether anything had.
    #[inline]
    pub fn receive(&mut self, now_ns: u64) -> bool {
        let Self { rnic, memory, port, .. } = self;
        port.0.tick(now_ns);
        let came = port.0.receive(&mut |from, frame| rnic.receive(now_ns, from, frame, memory)) > 0;
        self.owes |= came;
        came
    }

    /// Sends what there is to be sent.
    #[inline]
    pub fn transmit(&mut self, now_ns: u64) -> bool {
        let Self { rnic, memory, port, .. } = self;
        self.owes = false;
        rnic.transmit(now_ns, memory, &mut |to, frames| port.0.send(to, frames))
    }

    /// Whether something waits to be sent.
    #[inline]
    fn is_due(&self, now_ns: u64) -> bool {
        self.owes || self.rnic.is_blocked() || self.rnic.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    fn deadline_ns(&self, now_ns: u64) -> u64 {
        let retry = self.rnic.is_blocked().then_some(now_ns + RETRY_NS);
        self.rnic.deadline_ns().into_iter().chain(retry).min().unwrap_or(u64::MAX)
    }

    /// Tells owners what has happened.
    #[inline]
    pub fn tell(&mut self) {
        if let Some(listener) = &self.listener {
            let lost = self.rnic.counters().peers_lost;
            if self.rnic.has_messages() || self.peers_lost != lost {
                self.peers_lost = lost;
                // It fails only where the count would pass 2^64.
                let _ = rustix::io::write(&**listener, &1_u64.to_ne_bytes());
            }
        }
        while let Some(Notice(cq)) = self.rnic.engine.next_notice() {
            if let Some(owner) = self.channels.get(&cq) {
                owner.queue.push(owner.name);
            }
        }
        while let Some(event) = self.rnic.engine.next_event() {
            let owner = match event {
                // What its peer has ended, a QP of InfiniBand does not hear of either, before it sends.
                Event::PeerLost(_) | Event::QpError(_) | Event::Miss(_) => None,
                Event::SqDrained(qp)
                | Event::Established(qp)
                | Event::AccessViolation(qp)
                | Event::LastWqe(qp) => self.qps.get(&qp),
                Event::CqOverrun(cq) => self.cqs.get(&cq),
                Event::SrqLimit(srq) => self.srqs.get(&srq),
            };
            if let Some(owner) = owner {
                owner.queue.push(Happened { event, owner: owner.name });
            }
        }
    }
}

/// The device of this process.
#[derive(Debug)]
pub struct Device<M> {
    core: Mutex<Core<M>>,
    clock: Instant,
    ip: Ipv4Addr,
    slot: u8,
    readable: OwnedFd,
    /// Ends the thread's sleep.
    wake: OwnedFd,
    /// When a caller was here last.
    called_ns: AtomicU64,
    /// Callers that sleep here, and do the thread's work meanwhile.
    sleepers: AtomicU32,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

fn open_port(options: &DeviceOptions) -> Result<(UdpPort, Ipv4Addr, u8), DeviceError> {
    let ip = options.ip.or_else(|| ipv4_addresses().first().copied()).ok_or(DeviceError::NoAddress)?;
    let mut taken = None;
    // Not the same first slot each time: what is on its way to the process that was here before finds nobody.
    let first = std::process::id() % u32::from(place::SLOTS);
    for number in 0..u32::from(place::SLOTS) {
        let slot = ((first + number) % u32::from(place::SLOTS)) as u8;
        let mut config = UdpConfig::new(SocketAddr::V4(SocketAddrV4::new(ip, place::port(slot))));
        config.max_frame_bytes = options.mtu.map(|mtu| usize::from(mtu).saturating_sub(28));
        match UdpPort::open(&config) {
            Ok(port) => return Ok((port, ip, slot)),
            Err(error @ OpenError::Bind { .. }) => {
                let OpenError::Bind { source, .. } = &error else { continue };
                if source.kind() != io::ErrorKind::AddrInUse {
                    return Err(error.into());
                }
                taken = Some(());
            }
            Err(error) => return Err(error.into()),
        }
    }
    debug_assert!(taken.is_some());
    Err(DeviceError::NoSlot(place::SLOTS))
}

/// Entropy for epochs and the node's number.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // The standard library keys each RandomState from the system's entropy.
    RandomState::new().hash_one(std::process::id())
}

impl<M: Memory + Send + 'static> Device<M> {
    /// Opens the device. `in_thread` is what its thread does first.
    pub fn open(options: &DeviceOptions, memory: M, in_thread: fn()) -> Result<Arc<Self>, DeviceError> {
        let (port, ip, slot) = open_port(options)?;
        let readable = port.fd().ok_or(io::ErrorKind::Unsupported).map_err(io::Error::from)?;
        let readable = readable.try_clone_to_owned()?;
        let mut node = [0; 16];
        node[..8].copy_from_slice(&seed().to_be_bytes());
        node[8..].copy_from_slice(&seed().to_be_bytes());
        let rnic = Rnic::new(
            &Options {
                engine: etherslot_rdma::Config {
                    qps: 4096,
                    cqs: 4096,
                    srqs: 1024,
                    peers: 1024,
                    stags: 1 << 16,
                    pages: 0,
                    cqes: 1 << 22,
                    blocks: 1 << 15,
                    reads: 128,
                    events: 4096,
                },
                session: etherslot_session::Config {
                    node: NodeId(node),
                    max_frame_bytes: port.max_frame_bytes() as u16,
                    window_frames: 1024,
                    heartbeat_ns: 500_000_000,
                    // A process may be stopped, or starved, for a while.
                    dead_after_ns: 3_000_000_000,
                    ..etherslot_session::Config::default()
                },
                seed: seed(),
            },
            move |from| place::grh(from, ip),
        );
        let device = Arc::new(Self {
            core: Mutex::new(Core {
                rnic,
                memory,
                port: LockedPort(Box::new(port)),
                owes: false,
                empty_polls: 0,
                channels: HashMap::new(),
                qps: HashMap::new(),
                cqs: HashMap::new(),
                srqs: HashMap::new(),
                listener: None,
                peers_lost: 0,
            }),
            clock: Instant::now(),
            ip,
            slot,
            readable,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?,
            called_ns: AtomicU64::new(0),
            sleepers: AtomicU32::new(0),
            stop: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let its = Arc::clone(&device);
        let thread = std::thread::Builder::new().name("etherslot-rnic".to_owned()).spawn(move || {
            in_thread();
            its.serve();
        })?;
        *device.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(device)
    }

    /// Our address.
    pub fn ip(&self) -> Ipv4Addr {
        self.ip
    }

    /// Our slot.
    pub fn slot(&self) -> u8 {
        self.slot
    }

    /// ns since the device was opened.
    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.clock.elapsed().as_nanos() as u64 + 1
    }

    /// Everything, for changes that make nothing to be sent.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, Core<M>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that may make something to be sent, and sends it.
    #[inline]
    pub fn act<R>(&self, work: impl FnOnce(&mut Core<M>) -> R) -> R {
        let mut core = self.lock();
        let result = work(&mut core);
        let now_ns = self.now_ns();
        core.transmit(now_ns);
        core.tell();
        result
    }

    /// Takes completions; looks what has come if there are none.
    #[inline]
    pub fn poll(&self, cq: CqId, out: &mut [Cqe]) -> usize {
        let mut core = self.lock();
        let count = core.engine().poll(cq, out);
        if count > 0 {
            return count;
        }
        let now_ns = self.now_ns();
        self.called_ns.store(now_ns, Ordering::Relaxed);
        if core.is_due(now_ns) {
            core.transmit(now_ns);
        }
        let came = core.receive(now_ns);
        core.tell();
        let count = core.engine().poll(cq, out);
        core.empty_polls = if came { 0 } else { core.empty_polls.wrapping_add(1) };
        let yields = !came && core.empty_polls.is_multiple_of(YIELD_POLLS);
        drop(core);
        if yields {
            std::thread::yield_now();
        }
        count
    }

    /// Goes on for as long as `is_done` says no; sleeps meanwhile, until something comes or `queue` has something.
    pub fn wait<T>(&self, queue: &Queue<T>, mut is_done: impl FnMut() -> bool) {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        while !is_done() {
            let mut core = self.lock();
            let now_ns = self.now_ns();
            let came = core.receive(now_ns);
            core.transmit(now_ns);
            core.tell();
            let deadline_ns = core.deadline_ns(now_ns);
            drop(core);
            if !came {
                self.sleep(Some(queue.as_fd()), true, deadline_ns.saturating_sub(now_ns));
            }
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sleeps until the Port, if it is looked at, or the other descriptor is readable, but no longer than this. Whether the
    /// Port is.
    fn sleep(&self, other: Option<std::os::fd::BorrowedFd<'_>>, port: bool, longest_ns: u64) -> bool {
        let longest_ns = longest_ns.min(LONGEST_SLEEP_NS);
        let timeout = Timespec { tv_sec: 0, tv_nsec: longest_ns.cast_signed() };
        let other = other.unwrap_or(self.wake.as_fd());
        let mut fds =
            [PollFd::from_borrowed_fd(other, PollFlags::IN), PollFd::new(&self.readable, PollFlags::IN)];
        let count = if port { 2 } else { 1 };
        let polled = poll(&mut fds[..count], Some(&timeout));
        polled.is_ok() && port && !fds[1].revents().is_empty()
    }

    /// The thread.
    fn serve(&self) {
        // How much it has paid to look at the Port: what came was found here, not by a caller.
        let mut score = 0;
        let mut nap_ns = NAP_NS.0;
        while !self.stop.load(Ordering::Relaxed) {
            let now_ns = self.now_ns();
            let is_polled = now_ns.saturating_sub(self.called_ns.load(Ordering::Relaxed)) < AWAKE_NS;
            let is_served = is_polled || self.sleepers.load(Ordering::Relaxed) > 0;
            let watches = score > 0 || !is_served;
            let longest_ns = if watches {
                let core = self.lock();
                // What a caller has left unanswered is to leave soon if the caller does not come back.
                let left_ns = if core.owes { NAP_NS.0 } else { u64::MAX };
                core.deadline_ns(now_ns).saturating_sub(now_ns).min(left_ns)
            } else {
                nap_ns
            };
            let woke = self.sleep(None, watches, longest_ns);
            let mut core = self.lock();
            let now_ns = self.now_ns();
            let found = core.receive(now_ns);
            if found || core.is_due(now_ns) {
                core.transmit(now_ns);
            }
            core.tell();
            drop(core);
            if found {
                score = (score + FOUND.0).min(FOUND.1);
                nap_ns = NAP_NS.0;
            } else if woke {
                score = score.saturating_sub(1);
            } else if !watches {
                nap_ns = (nap_ns * 2).min(NAP_NS.1);
            }
        }
    }

    /// Closes the device: what is under way has a moment left, then the peers are told.
    pub fn close(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
        self.say_goodbye();
    }

    /// The same without the thread, for a process that ends.
    pub fn say_goodbye(&self) {
        let until = Instant::now() + LINGER;
        // A signal may have ended the process in the midst of one of our functions.
        let mut core = loop {
            match self.core.try_lock() {
                Ok(core) => break core,
                Err(TryLockError::Poisoned(error)) => break error.into_inner(),
                Err(TryLockError::WouldBlock) if Instant::now() < until => std::thread::yield_now(),
                Err(TryLockError::WouldBlock) => return,
            }
        };
        let mut is_closing = false;
        while Instant::now() < until && core.rnic.peers() > 0 {
            let now_ns = self.now_ns();
            core.receive(now_ns);
            core.transmit(now_ns);
            if !is_closing && core.rnic.is_idle() {
                is_closing = true;
                core.rnic.close();
                continue;
            }
            let deadline_ns = core.deadline_ns(now_ns);
            self.sleep(None, true, deadline_ns.saturating_sub(now_ns).min(1_000_000));
        }
        if !is_closing {
            core.rnic.close();
            let now_ns = self.now_ns();
            core.transmit(now_ns);
        }
    }
}
