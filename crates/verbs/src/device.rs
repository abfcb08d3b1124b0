//! The RNIC of a process, its Port, and who makes it go on.
//!
//! Whoever calls in does the work, under one lock: posting sends, polling looks what has come. What came is answered with
//! the next call, so that a program's own message carries the acknowledgement. A thread of our own does the rest: it
//! serves a program that sleeps or looks at nothing but memory, and keeps out of the way of one that polls.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use etherslot_netio::{OpenError, Port as _};
use etherslot_rdma::{CqId, Cqe, Event, Memory, Notice, Qpn, SrqId};
use etherslot_rnic::{Options, Rnic};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::embodiment::{Embodiment, InProcess, LockedPort, Most};
use crate::function::{self, Function, FunctionError};
use crate::link::{self, Link, Opened};
use crate::place;
use crate::queue::Queue;

/// A program that has not polled for this long sleeps, or looks at memory alone.
const AWAKE_NS: u64 = 200_000;
/// A program that was here so recently is about to be here again, and takes what comes.
const HERE_NS: u64 = 5_000;
/// How long the thread keeps from looking while the program polls: at first, and at most.
const NAP_NS: (u64, u64) = (100_000, 1_000_000);
/// How long an acknowledgement waits for a program that may send something by which it can go.
const LEFT_NS: u64 = 50_000;
/// How long the thread goes on looking, before it sleeps, when something came for a program that does not look itself.
const LINGER_NS: u64 = 20_000;
/// The longest sleep.
const LONGEST_SLEEP_NS: u64 = 100_000_000;
/// The same over a ring, whose peers wake nobody whom a caller has found awake since the thread fell asleep.
const LONGEST_RING_SLEEP_NS: u64 = 1_000_000;
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
    /// The slot ([`place`]); without it, the first that is free.
    pub slot: Option<u8>,
    /// The link.
    pub link: Link,
    /// Whether the device is a PCI Function. The other options are then the Function's own.
    pub function: Which,
}

/// Which PCI Function is the device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The first that there is; without one the engine is in the process.
    #[default]
    First,
    /// None.
    None,
    /// That at this address.
    At(String),
}

impl std::str::FromStr for Which {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text {
            "none" => Self::None,
            address => Self::At(address.to_owned()),
        })
    }
}

/// Why the device of this process cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// There is no address to be reached at.
    #[error("no network interface with an IPv4 address is up")]
    NoAddress,
    /// The interface has none.
    #[error("interface `{0}` has no IPv4 address, by which peers name it: `ip address add` gives it one")]
    NoAddressOf(String),
    /// The address is another interface's.
    #[error("interface `{0}` does not have the address {1}")]
    NotItsAddress(String, Ipv4Addr),
    /// Another process has the interface.
    #[error(
        "another process has the interface `{0}`: on Ethernet one process has one (`ip link add link {0} type macvlan` makes more)"
    )]
    InterfaceTaken(String),
    /// All slots are taken.
    #[error("{0} processes on this address have the device open, and there is no room for more")]
    NoSlot(u8),
    /// The slot that was asked for is taken.
    #[error("another process on this address has slot {0}")]
    SlotTaken(u8),
    /// There is no such slot.
    #[error("there is no slot {0}: slots are 0 to 254")]
    NoSuchSlot(u8),
    /// The Function.
    #[error(transparent)]
    Function(#[from] FunctionError),
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
    pub rnic: Embodiment,
    /// The process's memory.
    pub memory: M,
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

impl<M: Memory> Core<M> {
    /// What carries out the verbs.
    #[inline]
    pub fn engine(&mut self) -> &mut Embodiment {
        &mut self.rnic
    }

    /// Takes what has come; whether anything had.
    #[inline]
    pub fn receive(&mut self, now_ns: u64) -> bool {
        let came = self.rnic.receive(now_ns, &mut self.memory);
        self.owes |= came;
        came
    }

    /// Sends what there is to be sent.
    #[inline]
    pub fn transmit(&mut self, now_ns: u64) -> bool {
        self.owes = false;
        self.rnic.transmit(now_ns, &mut self.memory)
    }

    /// Whether something waits to be sent.
    #[inline]
    fn is_due(&self, now_ns: u64) -> bool {
        self.owes || self.is_overdue(now_ns)
    }

    /// Whether something waits that is not to wait for a program.
    #[inline]
    fn is_overdue(&self, now_ns: u64) -> bool {
        self.rnic.is_blocked() || self.rnic.deadline_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    fn deadline_ns(&self, now_ns: u64) -> u64 {
        let retry = self.rnic.is_blocked().then_some(now_ns + RETRY_NS);
        self.rnic.deadline_ns().into_iter().chain(retry).min().unwrap_or(u64::MAX)
    }

    /// Tells owners what has happened.
    #[inline]
    pub fn tell(&mut self) {
        if let (Some(listener), Some(rnic)) = (&self.listener, self.rnic.process()) {
            let lost = rnic.counters().peers_lost;
            if rnic.has_messages() || self.peers_lost != lost {
                self.peers_lost = lost;
                // It fails only where the count would pass 2^64.
                let _ = rustix::io::write(&**listener, &1_u64.to_ne_bytes());
            }
        }
        while let Some(Notice(cq)) = self.rnic.next_notice() {
            if let Some(owner) = self.channels.get(&cq) {
                owner.queue.push(owner.name);
            }
        }
        while let Some(event) = self.rnic.next_event() {
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
    most: Most,
    readable: OwnedFd,
    /// Ends the thread's sleep.
    wake: OwnedFd,
    longest_sleep_ns: u64,
    /// When a caller was here last.
    called_ns: AtomicU64,
    /// Callers that sleep here, and do the thread's work meanwhile.
    sleepers: AtomicU32,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Entropy for epochs and the node's number.
fn seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    // The standard library keys each RandomState from the system's entropy.
    RandomState::new().hash_one(std::process::id())
}

/// The engine in this process, with a Port; where it is, and what is readable when something has come.
fn open_engine(options: &DeviceOptions) -> Result<(Embodiment, Ipv4Addr, u8, OwnedFd), DeviceError> {
    let Opened { port, ip, slot } = link::open(options)?;
    let readable = port.fd().ok_or(io::ErrorKind::Unsupported).map_err(io::Error::from)?;
    let readable = readable.try_clone_to_owned()?;
    let most = Most { qps: 4096, cqs: 4096, srqs: 1024, stags: 1 << 16, reads: 128, are_global: true };
    let rnic = Rnic::new(
        &Options {
            engine: etherslot_rdma::Config {
                qps: most.qps as usize,
                cqs: most.cqs as usize,
                srqs: most.srqs as usize,
                peers: 1024,
                stags: most.stags as usize,
                pages: 0,
                cqes: 1 << 22,
                blocks: 1 << 15,
                reads: most.reads,
                events: 4096,
            },
            session: etherslot_session::Config {
                node: place::node(ip, slot, seed()),
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
    let process = InProcess { rnic, most, port: LockedPort(port) };
    Ok((Embodiment::Process(Box::new(process)), ip, slot, readable))
}

fn open_function(address: &str) -> Result<(Embodiment, Ipv4Addr, u8, OwnedFd), DeviceError> {
    let function = Function::open(address)?;
    let (ip, slot, readable) = (function.ip(), function.slot(), function.interrupts().try_clone()?);
    Ok((Embodiment::Function(Box::new(function)), ip, slot, readable))
}

impl<M: Memory + Send + 'static> Device<M> {
    /// Opens the device. `in_thread` is what its thread does first.
    pub fn open(options: &DeviceOptions, memory: M, in_thread: fn()) -> Result<Arc<Self>, DeviceError> {
        let function = match &options.function {
            Which::First => function::find().into_iter().next(),
            Which::None => None,
            Which::At(address) => Some(address.clone()),
        };
        let (rnic, ip, slot, readable) = match function {
            Some(address) => open_function(&address)?,
            None => open_engine(options)?,
        };
        let most = rnic.most();
        let device = Arc::new(Self {
            core: Mutex::new(Core {
                rnic,
                memory,
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
            most,
            readable,
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from)?,
            longest_sleep_ns: match options.link {
                Link::Ring(_) => LONGEST_RING_SLEEP_NS,
                _ => LONGEST_SLEEP_NS,
            },
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

    /// How many there may be of everything.
    pub fn most(&self) -> Most {
        self.most
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
        self.called_ns.store(now_ns, Ordering::Relaxed);
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
            let sleeps = !came && core.rnic.before_sleep();
            drop(core);
            if sleeps {
                self.sleep(Some(queue.as_fd()), true, deadline_ns.saturating_sub(now_ns));
            }
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Sleeps until the Port, if it is looked at, or the other descriptor is readable, but no longer than this. Whether the
    /// Port is.
    fn sleep(&self, other: Option<std::os::fd::BorrowedFd<'_>>, port: bool, longest_ns: u64) -> bool {
        let longest_ns = longest_ns.min(self.longest_sleep_ns);
        let timeout = Timespec { tv_sec: 0, tv_nsec: longest_ns.cast_signed() };
        let other = other.unwrap_or(self.wake.as_fd());
        let mut fds =
            [PollFd::from_borrowed_fd(other, PollFlags::IN), PollFd::new(&self.readable, PollFlags::IN)];
        let count = if port { 2 } else { 1 };
        let polled = poll(&mut fds[..count], Some(&timeout));
        polled.is_ok() && port && !fds[1].revents().is_empty()
    }

    /// How long no caller was here.
    fn idle_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.called_ns.load(Ordering::Relaxed))
    }

    /// The thread.
    fn serve(&self) {
        // How much it has paid to look at the Port: what came was found here, not by a caller.
        let mut score: u32 = 0;
        let mut nap_ns = NAP_NS.0;
        let mut lingers_until_ns = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let now_ns = self.now_ns();
            let is_served = self.idle_ns(now_ns) < AWAKE_NS || self.sleepers.load(Ordering::Relaxed) > 0;
            let watches = score > 0 || !is_served;
            let lingers = !is_served && now_ns < lingers_until_ns;
            let woke = if lingers {
                std::thread::yield_now();
                false
            } else {
                let longest_ns = if watches { self.until_next(now_ns) } else { nap_ns };
                self.sleep(None, watches, longest_ns)
            };
            let now_ns = self.now_ns();
            let idle_ns = self.idle_ns(now_ns);
            if idle_ns < HERE_NS {
                // Under load there is always something to be found: that is no reason to stay.
                score = score.saturating_sub(1);
                nap_ns = if watches { NAP_NS.0 } else { (nap_ns * 2).min(NAP_NS.1) };
                if woke {
                    // It is there until the caller has taken it, so it would wake us again at once.
                    self.sleep(None, false, nap_ns);
                }
                continue;
            }
            let mut core = self.lock();
            let found = core.receive(now_ns);
            // A caller that waits for what has come answers it in a moment, and the acknowledgement goes with that: then the peer
            // finds both at once, and nobody needs its thread.
            let waits = found && idle_ns < AWAKE_NS;
            if core.is_overdue(now_ns) || core.owes && !waits {
                core.transmit(now_ns);
            }
            core.tell();
            drop(core);
            if found {
                score = (score + FOUND.0).min(FOUND.1);
                nap_ns = NAP_NS.0;
                lingers_until_ns = now_ns + LINGER_NS;
            } else if woke {
                score = score.saturating_sub(1);
            } else if !watches {
                nap_ns = (nap_ns * 2).min(NAP_NS.1);
            }
        }
    }

    /// How long the thread may sleep if nothing comes; 0: something has.
    fn until_next(&self, now_ns: u64) -> u64 {
        let mut core = self.lock();
        if !core.rnic.before_sleep() {
            return 0;
        }
        let left_ns = if core.owes { LEFT_NS } else { u64::MAX };
        core.deadline_ns(now_ns).saturating_sub(now_ns).min(left_ns)
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
        self.end_sessions(&mut core);
    }

    fn end_sessions(&self, core: &mut Core<M>) {
        let until = Instant::now() + LINGER;
        let mut is_closing = false;
        let peers = |core: &mut Core<M>| core.rnic.process().map_or(0, |rnic| rnic.peers());
        while Instant::now() < until && peers(core) > 0 {
            let now_ns = self.now_ns();
            core.receive(now_ns);
            core.transmit(now_ns);
            if let Some(rnic) = core.rnic.process()
                && !is_closing
                && rnic.is_idle()
            {
                is_closing = true;
                rnic.close();
                continue;
            }
            let deadline_ns = core.deadline_ns(now_ns);
            self.sleep(None, true, deadline_ns.saturating_sub(now_ns).min(1_000_000));
        }
        if let Some(rnic) = core.rnic.process().filter(|_| !is_closing) {
            rnic.close();
            let now_ns = self.now_ns();
            core.transmit(now_ns);
        }
    }
}
