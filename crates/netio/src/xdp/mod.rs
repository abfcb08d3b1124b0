//! Raw Ethernet by `AF_XDP`: frames go between the interface's driver and our memory past the kernel's network stack.
//!
//! A program at the interface picks out the frames of EtherType 0x88B5 that arrive at one receive queue; everything else goes
//! on to the kernel as before. The *native* mode runs it in the driver, and with a driver that can, frames are not copied at all
//! (zero-copy); the *generic* mode works with any interface, after the kernel has made a packet of the frame. What was got stands in
//! the log and in [`XdpPort::got`].
//!
//! Limits: a frame has to fit a chunk, so there are none above 3826 bytes, whatever the MTU. One queue is used: if the interface
//! has several, all our frames have to be steered to that one (`ethtool -L eth0 combined 1`, or a flow rule). A VLAN tag that
//! the NIC has taken off is not seen, so such frames pass for untagged ones. An interface has room for one XDP program. On a
//! veth pair an attached native program ends segmentation offload for all other traffic.

mod program;
mod rings;

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::error::frame_bytes;
use crate::interface::Interface;
use crate::socket;
use crate::{Address, BURST_FRAMES, Counters, ETHERTYPE, OpenError, Port};
use program::{Attached, Failed};
use rings::{CHUNK_BYTES, CHUNKS, HEADROOM_BYTES, Ring, Umem};

/// Bytes of an Ethernet header.
const HEADER_BYTES: usize = 14;
/// The largest session frame that fits a chunk.
const MOST_FRAME_BYTES: usize = CHUNK_BYTES - HEADROOM_BYTES - HEADER_BYTES;
/// Between two looks at the interface and at what was lost.
const LOOK_NS: u64 = 100_000_000;
/// Calls that push frames out before what is left waits for the next send or tick. The kernel takes 32 frames a call, and one
/// if the device drops it.
const KICKS: u32 = 2 * BURST_FRAMES as u32;
/// How long an open waits for its queue.
const PATIENCE: Duration = Duration::from_millis(500);
/// What packets on their way out may hold of the kernel's memory.
const BUFFER_BYTES: usize = 8 << 20;

/// Who runs the program that picks our frames out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// The driver if it can, else the kernel's stack.
    #[default]
    Auto,
    /// The driver, or nobody.
    Native,
    /// The kernel's stack.
    Generic,
}

/// How to open an [`XdpPort`].
#[derive(Clone, Debug)]
pub struct XdpConfig {
    /// The network interface.
    pub interface: String,
    /// The receive and send queue of the interface.
    pub queue: u32,
    /// Who runs the program.
    pub mode: XdpMode,
    /// Whether to ask for zero-copy where the driver has it.
    pub zero_copy: bool,
    /// The largest frame; none: the interface's MTU, at most what fits a chunk.
    pub max_frame_bytes: Option<usize>,
}

impl XdpConfig {
    /// Queue 0, and the best that the driver offers.
    pub fn new(interface: impl Into<String>) -> Self {
        Self {
            interface: interface.into(),
            queue: 0,
            mode: XdpMode::Auto,
            zero_copy: true,
            max_frame_bytes: None,
        }
    }
}

/// What an open Port got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpGot {
    /// The driver runs the program.
    pub native: bool,
    /// The NIC reads and writes our memory itself.
    pub zero_copy: bool,
}

/// A Port on a queue of a network interface.
pub struct XdpPort {
    config: XdpConfig,
    max_frame_bytes: usize,
    interface: Interface,
    /// None while the interface is gone.
    engine: Option<Engine>,
    /// What the owner sleeps on: it stays when the engine is made anew.
    epoll: OwnedFd,
    look_ns: u64,
    counters: Counters,
}

/// Socket, memory and rings on one interface.
struct Engine {
    // Fields are dropped in this order: no frame comes any more when the socket goes, and the memory goes last.
    attached: Attached,
    socket: OwnedFd,
    incoming: Ring<libc::xdp_desc>,
    outgoing: Ring<libc::xdp_desc>,
    to_fill: Ring<u64>,
    completed: Ring<u64>,
    free: Vec<u64>,
    umem: Umem,
    zero_copy: bool,
    /// Frames wait for the next push: the device had no room.
    owes_push: bool,
    lost: u64,
}

/// What became of frames that were to be pushed out.
enum Pushed {
    /// They are out, or wait for the device.
    On,
    /// The interface is down: these, the last ones, were not looked at.
    Down,
    /// The interface is no more.
    Gone,
}

impl Engine {
    /// `patience` is how long to wait for a queue that the kernel has not yet let go of after its last owner.
    fn open(config: &XdpConfig, interface: &Interface, patience: Duration) -> Result<Self, OpenError> {
        let name = &config.interface;
        let refuse = |reason: String| OpenError::Xdp { interface: name.clone(), reason };
        let failed = |what: &str, error: &io::Error| refuse(format!("{what}: {error}"));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let family = AddressFamily::from_raw(libc::AF_XDP as u16);
        let socket =
            rustix::net::socket_with(family, SocketType::RAW, flags, None).map_err(|error| match error {
                rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => refuse(NO_PRIVILEGE.to_owned()),
                rustix::io::Errno::AFNOSUPPORT => refuse(NO_KERNEL.to_owned()),
                _ => failed("no socket", &error.into()),
            })?;
        let fd = socket.as_fd();
        socket::raise_buffers(fd, BUFFER_BYTES);
        let umem = Umem::register(fd).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOBUFS) => {
                refuse("too little memory may be locked: raise it with `ulimit -l`".to_owned())
            }
            _ => failed("no memory", &error),
        })?;
        let rings =
            [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING];
        for ring in rings {
            rings::set(fd, ring, &CHUNKS).map_err(|error| failed("no rings", &error))?;
        }
        // SAFETY: any bits are valid for the numbers that it holds.
        let offsets: libc::xdp_mmap_offsets =
            unsafe { rings::get(fd, libc::XDP_MMAP_OFFSETS) }.map_err(|error| match error.kind() {
                io::ErrorKind::Unsupported => refuse(NO_KERNEL.to_owned()),
                _ => failed("no rings", &error),
            })?;
        let mapped = |error: io::Error| failed("no rings", &error);
        let incoming = Ring::map(fd, libc::XDP_PGOFF_RX_RING as u64, &offsets.rx).map_err(mapped)?;
        let outgoing = Ring::map(fd, libc::XDP_PGOFF_TX_RING as u64, &offsets.tx).map_err(mapped)?;
        let mut to_fill = Ring::map(fd, libc::XDP_UMEM_PGOFF_FILL_RING, &offsets.fr).map_err(mapped)?;
        let completed = Ring::map(fd, libc::XDP_UMEM_PGOFF_COMPLETION_RING, &offsets.cr).map_err(mapped)?;
        for chunk in Umem::incoming() {
            to_fill.push(chunk);
        }
        to_fill.submit();
        let start = Instant::now();
        let bound = loop {
            match bind(fd, interface.index, config) {
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && start.elapsed() < patience => {
                    std::thread::sleep(PATIENCE / 100);
                }
                result => break result,
            }
        };
        bound.map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => refuse(format!("queue {} is in use: choose another", config.queue)),
            Some(libc::EINVAL) => refuse(format!("queue {} cannot be used: choose another", config.queue)),
            Some(libc::EPERM) => refuse(NO_PRIVILEGE.to_owned()),
            _ => failed("cannot bind", &error),
        })?;
        // SAFETY: any bits are valid for the number that it holds.
        let options = unsafe { rings::get::<libc::xdp_options>(fd, libc::XDP_OPTIONS) };
        let zero_copy = options.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0);
        let attached = program::attach(fd, interface.index, config.queue, config.mode);
        let attached = attached.map_err(|failure| match failure {
            Failed::Load(error) if error.raw_os_error() == Some(libc::EPERM) => {
                refuse(NO_PRIVILEGE.to_owned())
            }
            Failed::Load(error) => failed("the kernel does not take the program", &error),
            Failed::Attach(error) => match error.raw_os_error() {
                Some(libc::EBUSY | libc::EEXIST) => refuse(format!(
                    "another XDP program is attached: `ip link set {name} xdp off`, or end its owner"
                )),
                Some(libc::EPERM) => refuse(NO_PRIVILEGE.to_owned()),
                Some(libc::EINVAL) => refuse(NO_KERNEL.to_owned()),
                _ if config.mode == XdpMode::Native => {
                    failed("the driver does not run XDP programs at this MTU: mode = \"auto\" does", &error)
                }
                _ => failed("cannot attach the program", &error),
            },
        })?;
        Ok(Self {
            attached,
            socket,
            incoming,
            outgoing,
            to_fill,
            completed,
            free: Umem::outgoing().collect(),
            umem,
            zero_copy,
            owes_push: false,
            lost: 0,
        })
    }

    /// Chunks of frames that are out are free again.
    fn reclaim(&mut self) {
        let free = self.free.len();
        while let Some(chunk) = self.completed.pop() {
            if self.free.len() == CHUNKS as usize {
                break;
            }
            self.free.push(chunk);
        }
        if self.free.len() != free {
            self.completed.release();
        }
    }

    /// Puts a frame, Ethernet header before it, among those to be pushed out. False: no room.
    fn put(&mut self, to: [u8; 6], from: [u8; 6], frame: &[u8]) -> bool {
        let Some(chunk) = self.free.pop() else { return false };
        let bytes = HEADER_BYTES + frame.len();
        let descriptor = libc::xdp_desc { addr: chunk, len: bytes as u32, options: 0 };
        let Some(room) = self.umem.bytes(chunk, bytes).filter(|_| self.outgoing.push(descriptor)) else {
            self.free.push(chunk);
            return false;
        };
        room[..6].copy_from_slice(&to);
        room[6..12].copy_from_slice(&from);
        room[12..HEADER_BYTES].copy_from_slice(&ETHERTYPE.to_be_bytes());
        room[HEADER_BYTES..].copy_from_slice(frame);
        true
    }

    /// Makes the kernel push out what was put in. `dropped` counts frames that the device dropped.
    fn push_out(&mut self, dropped: &mut u64) -> Pushed {
        self.outgoing.submit();
        let pushed = self.wake_kernel(dropped);
        self.owes_push =
            matches!(pushed, Pushed::On) && self.outgoing.needs_wakeup() && self.outgoing.waiting() != 0;
        pushed
    }

    fn wake_kernel(&mut self, dropped: &mut u64) -> Pushed {
        for _ in 0..KICKS {
            if !self.outgoing.needs_wakeup() {
                return Pushed::On;
            }
            // SAFETY: no bytes and no address are given: the call only wakes the kernel's side.
            let sent = unsafe {
                libc::sendto(self.socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0)
            };
            if sent >= 0 {
                return Pushed::On;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::ENETDOWN) => return Pushed::Down,
                Some(libc::ENXIO | libc::ENODEV) => return Pushed::Gone,
                // The device has dropped one; a driver that has our memory itself means that it will go on later.
                Some(libc::EBUSY) if self.zero_copy => return Pushed::On,
                Some(libc::EBUSY) => *dropped += 1,
                // The kernel takes so many a call; or has no memory for a packet just now, and then goes on no further.
                _ => {
                    let before = self.outgoing.waiting();
                    self.reclaim();
                    if before == 0 || self.free.is_empty() {
                        return Pushed::On;
                    }
                }
            }
        }
        Pushed::On
    }

    /// Frames lost since the last call: no free chunk, no room in the ring, or too long for a chunk.
    fn newly_lost(&mut self) -> u64 {
        // SAFETY: any bits are valid for the numbers that it holds.
        let statistics =
            unsafe { rings::get::<libc::xdp_statistics>(self.socket.as_fd(), libc::XDP_STATISTICS) };
        let Ok(statistics) = statistics else { return 0 };
        let lost = statistics.rx_dropped.wrapping_add(statistics.rx_ring_full);
        lost.wrapping_sub(mem::replace(&mut self.lost, lost))
    }
}

const NO_PRIVILEGE: &str =
    "needs the capabilities CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF: run as root, or choose kind = \"packet\"";
const NO_KERNEL: &str =
    "needs Linux 5.9 or newer, with XDP sockets (CONFIG_XDP_SOCKETS): choose kind = \"packet\"";

fn bind(fd: BorrowedFd<'_>, interface: u32, config: &XdpConfig) -> io::Result<()> {
    // With neither flag the kernel takes zero-copy if it can. A packet of the kernel's stack has to be copied.
    let copy = if config.zero_copy && config.mode != XdpMode::Generic { 0 } else { libc::XDP_COPY };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: libc::XDP_USE_NEED_WAKEUP | copy,
        sxdp_ifindex: interface,
        sxdp_queue_id: config.queue,
        sxdp_shared_umem_fd: 0,
    };
    // SAFETY: `address` is a whole `sockaddr_xdp` that lives through the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl XdpPort {
    /// Opens a Port on an interface, which must exist and be up.
    pub fn open(config: &XdpConfig) -> Result<Self, OpenError> {
        let name = &config.interface;
        let interface = find(name)?;
        if !interface.up {
            return Err(OpenError::InterfaceDown(name.clone()));
        }
        let limit = interface.mtu.min(MOST_FRAME_BYTES);
        let max_frame_bytes =
            frame_bytes(&format!("AF_XDP on interface `{name}`"), limit, config.max_frame_bytes)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| OpenError::system("cannot make an epoll instance", error))?;
        let mut port = Self {
            config: config.clone(),
            max_frame_bytes,
            interface,
            engine: None,
            epoll,
            look_ns: 0,
            counters: Counters::default(),
        };
        port.start(interface, PATIENCE)?;
        Ok(port)
    }

    fn start(&mut self, interface: Interface, patience: Duration) -> Result<(), OpenError> {
        let engine = Engine::open(&self.config, &interface, patience)?;
        let event = epoll::EventData::new_u64(0);
        epoll::add(&self.epoll, &engine.socket, event, epoll::EventFlags::IN)
            .map_err(|error| OpenError::system("cannot watch an XDP socket", error))?;
        tracing::info!(
            interface = self.config.interface,
            queue = self.config.queue,
            native = engine.attached.is_native,
            zero_copy = engine.zero_copy,
            frame_bytes = self.max_frame_bytes,
            "XDP socket open"
        );
        self.interface = interface;
        self.engine = Some(engine);
        Ok(())
    }

    /// What was got of what was asked for; none while the interface is gone.
    pub fn got(&self) -> Option<XdpGot> {
        self.engine
            .as_ref()
            .map(|engine| XdpGot { native: engine.attached.is_native, zero_copy: engine.zero_copy })
    }

    /// Looks whether the interface is there, and begins anew if it was made anew.
    fn look(&mut self) {
        let found = find(&self.config.interface).ok();
        if self.engine.is_some() && found.is_none_or(|found| found.index != self.interface.index) {
            tracing::warn!(interface = self.config.interface, "interface is gone");
            self.engine = None;
        }
        if let (None, Some(found)) = (&self.engine, found.filter(|found| found.up))
            && let Err(error) = self.start(found, Duration::ZERO)
        {
            tracing::debug!(%error, "interface is back, but cannot be used");
        }
    }
}

fn find(name: &str) -> Result<Interface, OpenError> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|error| OpenError::system("cannot make a socket", error))?;
    Interface::find(socket.as_fd(), name)
}

impl Port for XdpPort {
    fn max_frame_bytes(&self) -> usize {
        self.max_frame_bytes
    }

    fn address(&self) -> Address {
        Address::Mac(self.interface.mac)
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        let Address::Mac(mac) = to else {
            self.counters.tx_foreign += frames.len() as u64;
            return frames.len();
        };
        let Some(engine) = &mut self.engine else {
            self.counters.tx_link_down += frames.len() as u64;
            return frames.len();
        };
        let mut taken = 0;
        while taken < frames.len() {
            let rest = &frames[taken..];
            let burst = &rest[..rest.len().min(BURST_FRAMES)];
            engine.reclaim();
            let (mut put, mut bytes, mut too_long, mut is_full) = (0, 0, 0, false);
            for frame in burst {
                if frame.len() > self.max_frame_bytes {
                    too_long += 1;
                } else if engine.put(*mac, self.interface.mac, frame) {
                    put += 1;
                    bytes += frame.len() as u64;
                } else {
                    is_full = true;
                    break;
                }
            }
            self.counters.tx_too_long += too_long;
            taken += put + too_long as usize;
            let mut dropped = 0;
            match engine.push_out(&mut dropped) {
                Pushed::On => {
                    self.counters.tx_frames += put as u64;
                    self.counters.tx_bytes += bytes;
                    let running =
                        dropped == 0 || Interface::is_running(engine.socket.as_fd(), &self.config.interface);
                    *(if running {
                        &mut self.counters.tx_refused
                    } else {
                        &mut self.counters.tx_link_down
                    }) += dropped;
                }
                Pushed::Down => {
                    // They must not leave when the interface is up again. The kernel's stack has not looked at them; what a driver
                    // has looked at cannot be known.
                    if !engine.zero_copy {
                        let Engine { outgoing, free, .. } = engine;
                        let waiting = outgoing.waiting();
                        outgoing.take_back(waiting, |descriptor| free.push(descriptor.addr));
                    }
                    self.counters.tx_link_down += (frames.len() - taken + put) as u64;
                    return frames.len();
                }
                Pushed::Gone => {
                    self.counters.tx_link_down += (frames.len() - taken + put) as u64;
                    self.look_ns = 0;
                    return frames.len();
                }
            }
            if is_full {
                self.counters.tx_no_room += 1;
                break;
            }
        }
        taken
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let Some(Engine { incoming, to_fill, umem, socket, .. }) = &mut self.engine else { return 0 };
        let mut arrived = 0;
        while arrived < BURST_FRAMES
            && let Some(descriptor) = incoming.pop()
        {
            arrived += 1;
            let bytes = umem.bytes(descriptor.addr, descriptor.len as usize);
            if let Some((header, frame)) = bytes.and_then(|bytes| bytes.split_first_chunk::<HEADER_BYTES>()) {
                let (to, from) = (&header[..6], header[6..12].try_into().expect("six bytes"));
                // The lowest bit of the first byte: to a group, or to all.
                if from == self.interface.mac || (to != self.interface.mac && to[0] & 1 == 0) {
                    self.counters.rx_foreign += 1;
                } else {
                    self.counters.received(frame);
                    handle(&Address::Mac(from), frame);
                }
            } else {
                self.counters.rx_errors += 1;
            }
            // As many places as chunks: there is room.
            to_fill.push(descriptor.addr / CHUNK_BYTES as u64 * CHUNK_BYTES as u64);
        }
        if arrived != 0 {
            incoming.release();
            to_fill.submit();
        }
        if to_fill.needs_wakeup() {
            // SAFETY: no buffer and no address are given: the call only wakes the kernel's side.
            unsafe {
                let (flags, none) = (libc::MSG_DONTWAIT, ptr::null_mut());
                libc::recvfrom(socket.as_raw_fd(), ptr::null_mut(), 0, flags, none, ptr::null_mut());
            }
        }
        arrived
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn poll_at(&self) -> Option<u64> {
        // An interface that vanishes wakes nobody, nor does a device that has room again.
        let owes_push = self.engine.as_ref().is_some_and(|engine| engine.owes_push);
        Some(if owes_push { 0 } else { self.look_ns })
    }

    fn tick(&mut self, now_ns: u64) {
        if let Some(engine) = &mut self.engine {
            if engine.owes_push {
                let mut dropped = 0;
                engine.push_out(&mut dropped);
                self.counters.tx_refused += dropped;
            }
            if now_ns >= self.look_ns {
                self.counters.rx_overflow += engine.newly_lost();
            }
        }
        if now_ns >= self.look_ns {
            self.look_ns = now_ns.saturating_add(LOOK_NS);
            self.look();
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
