//! Raw Ethernet by `AF_PACKET`: the frame is the payload of EtherType 0x88B5.
//!
//! A `SOCK_DGRAM` socket: the kernel builds and strips the Ethernet header, so frames go out of the caller's own
//! slices with no copy here. The queueing discipline is bypassed (a full device queue is back-pressure, reported by
//! `send`), and this machine's own frames are not looped back. Frames in a VLAN are not ours.
//!
//! `SOCK_RAW` with a header of our own would be no faster (within 2 % at 64, 1452 and 8952 bytes). `PACKET_VNET_HDR` is left out:
//! its segmentation knows TCP and UDP only and refuses every super-frame of this EtherType (EINVAL for all types), so the
//! header would be ten bytes a frame for nothing. Those who need super-frames take [`crate::udp`].
//!
//! The link may go down and come back, and the interface may vanish and be made again under its name; what is
//! sent meanwhile is lost and counted, as on a pulled cable.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::burst::{Packing, ReceiveBurst, SendBurst};
use crate::error::frame_bytes;
use crate::interface::Interface;
use crate::socket::{self, Drops, Refusal};
use crate::{Address, BURST_FRAMES, Counters, ETHERTYPE, OpenError, Port};

/// How to open a [`PacketPort`].
#[derive(Clone, Debug)]
pub struct PacketConfig {
    /// The network interface.
    pub interface: String,
    /// The largest frame; none: the interface's MTU.
    pub max_frame_bytes: Option<usize>,
    /// What the kernel may hold for this Port in each direction.
    pub buffer_bytes: usize,
}

impl PacketConfig {
    /// The interface's MTU, and buffers of 8 MiB.
    pub fn new(interface: impl Into<String>) -> Self {
        Self { interface: interface.into(), max_frame_bytes: None, buffer_bytes: 8 << 20 }
    }
}

/// A Port on a network interface.
pub struct PacketPort {
    socket: OwnedFd,
    name: String,
    interface: Interface,
    max_frame_bytes: usize,
    outgoing: SendBurst,
    incoming: ReceiveBurst<libc::sockaddr_ll>,
    counters: Counters,
    drops: Drops,
    presence: Presence,
}

/// Whether the interface is still the one that was bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    /// As far as is known.
    Bound,
    /// The kernel reported a change; to be looked at in the next tick.
    Doubtful,
    /// It vanished; to be looked for again at this time.
    Gone { retry_ns: u64 },
}

/// Between two looks for an interface that vanished.
const RETRY_NS: u64 = 100_000_000;

impl PacketPort {
    /// Opens a Port on an interface, which must exist and be up.
    pub fn open(config: &PacketConfig) -> Result<Self, OpenError> {
        // Protocol 0: nothing is received before the socket is bound to the one interface.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)
            .map_err(|error| match error {
                rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => OpenError::NotPermitted,
                _ => OpenError::system("cannot open a packet socket", error),
            })?;
        let name = config.interface.clone();
        let interface = Interface::find(socket.as_fd(), &name)?;
        if !interface.up {
            return Err(OpenError::InterfaceDown(name));
        }
        let max_frame_bytes =
            frame_bytes(&format!("interface `{name}`"), interface.mtu, config.max_frame_bytes)?;
        let option = |option, what| {
            socket::set_int(socket.as_fd(), libc::SOL_PACKET, option, 1)
                .map_err(|error| OpenError::system(format!("cannot set {what} on `{name}`"), error))
        };
        option(libc::PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING")?;
        option(libc::PACKET_QDISC_BYPASS, "PACKET_QDISC_BYPASS")?;
        socket::raise_buffers(socket.as_fd(), config.buffer_bytes);
        bind(socket.as_fd(), interface.index)
            .map_err(|error| OpenError::system(format!("cannot bind to interface `{name}`"), error))?;
        Ok(Self {
            incoming: ReceiveBurst::new(BURST_FRAMES, interface.mtu.max(max_frame_bytes), zero_address()),
            socket,
            name,
            interface,
            max_frame_bytes,
            outgoing: SendBurst::new(),
            counters: Counters::default(),
            drops: Drops::default(),
            presence: Presence::Bound,
        })
    }

    fn doubt(&mut self) {
        if self.presence == Presence::Bound {
            self.presence = Presence::Doubtful;
        }
    }

    /// Looks whether the interface is there, and binds to it if it was made anew.
    fn look(&mut self, now_ns: u64) {
        match Interface::find(self.socket.as_fd(), &self.name) {
            Ok(found) if found.index == self.interface.index => self.presence = Presence::Bound,
            Ok(found) if bind(self.socket.as_fd(), found.index).is_ok() => {
                tracing::info!(interface = %self.name, index = found.index, "interface is back");
                self.interface = found;
                self.presence = Presence::Bound;
            }
            _ => {
                if self.presence == Presence::Doubtful {
                    tracing::warn!(interface = %self.name, "interface is gone");
                }
                self.presence = Presence::Gone { retry_ns: now_ns.saturating_add(RETRY_NS) };
            }
        }
    }
}

impl Port for PacketPort {
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
        let to = address(self.interface.index, *mac);
        let mut taken = 0;
        while taken < frames.len() {
            let rest = &frames[taken..];
            let burst = &rest[..rest.len().min(BURST_FRAMES)];
            let fit = burst.iter().take_while(|frame| frame.len() <= self.max_frame_bytes).count();
            if fit == 0 {
                self.counters.tx_too_long += 1;
                taken += 1;
                continue;
            }
            let error = match self.outgoing.send(self.socket.as_fd(), &to, &burst[..fit], Packing::Single) {
                Ok(sent) => {
                    self.counters.sent(&burst[..sent]);
                    taken += sent;
                    continue;
                }
                Err(error) => error,
            };
            match Refusal::of(&error) {
                Refusal::Interrupted => {}
                // The bypassed queue says ENOBUFS both when it is full and when there is no carrier.
                Refusal::NoRoom if Interface::is_running(self.socket.as_fd(), &self.name) => {
                    self.counters.tx_no_room += 1;
                    break;
                }
                Refusal::NoRoom | Refusal::LinkDown => {
                    self.doubt();
                    self.counters.tx_link_down += rest.len() as u64;
                    return frames.len();
                }
                Refusal::TooLong => {
                    self.counters.tx_too_long += 1;
                    taken += 1;
                }
                Refusal::Refused => {
                    self.counters.tx_refused += 1;
                    taken += 1;
                }
            }
        }
        taken
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let messages = match self.incoming.receive(self.socket.as_fd()) {
            Ok(messages) => messages,
            Err(error) => {
                if !matches!(Refusal::of(&error), Refusal::NoRoom | Refusal::Interrupted) {
                    self.counters.rx_errors += 1;
                    self.doubt();
                }
                return 0;
            }
        };
        for index in 0..messages {
            let message = self.incoming.message(index);
            let from = mac(message.from);
            if from == self.interface.mac || !is_ours(message.from.sll_pkttype) {
                self.counters.rx_foreign += 1;
            } else if message.truncated {
                self.counters.rx_truncated += 1;
            } else {
                self.counters.received(message.bytes);
                handle(&Address::Mac(from), message.bytes);
            }
        }
        messages
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn poll_at(&self) -> Option<u64> {
        match self.presence {
            Presence::Bound => None,
            Presence::Doubtful => Some(0),
            Presence::Gone { retry_ns } => Some(retry_ns),
        }
    }

    fn tick(&mut self, now_ns: u64) {
        self.counters.rx_overflow += self.drops.since_last(self.socket.as_fd(), now_ns);
        if self.poll_at().is_some_and(|at| at <= now_ns) {
            self.look(now_ns);
        }
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// Whether a frame of this packet type was sent to this station. A VLAN's frame without a VLAN interface of its own comes as
/// another host's.
fn is_ours(kind: u8) -> bool {
    matches!(kind, libc::PACKET_HOST | libc::PACKET_BROADCAST | libc::PACKET_MULTICAST)
}

fn mac(from: &libc::sockaddr_ll) -> [u8; 6] {
    *from.sll_addr.first_chunk().expect("eight bytes hold six")
}

fn zero_address() -> libc::sockaddr_ll {
    // SAFETY: all zeroes are a valid `sockaddr_ll`.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn address(index: u32, mac: [u8; 6]) -> libc::sockaddr_ll {
    let mut address = zero_address();
    address.sll_family = libc::AF_PACKET as libc::sa_family_t;
    address.sll_protocol = ETHERTYPE.to_be();
    address.sll_ifindex = index.cast_signed();
    address.sll_halen = 6;
    address.sll_addr[..6].copy_from_slice(&mac);
    address
}

fn bind(fd: BorrowedFd<'_>, index: u32) -> io::Result<()> {
    let address = address(index, [0; 6]);
    // SAFETY: `address` is a whole `sockaddr_ll` that lives through the call.
    let result = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
