//! UDP: the frame is the payload of a datagram, for links with routers between and for users without privileges.
//!
//! Consecutive frames of one size to one peer leave in one system call as one super-frame that the kernel or the NIC
//! segments (GSO, at most 64 segments and 65,000 bytes), and what the kernel joined on arrival is taken apart again
//! (GRO). A route that refuses GSO is noticed and served without. Datagrams are never fragmented: the
//! Don't Fragment bit is set, and the path MTU that ICMP claims is not believed (`IP_PMTUDISC_PROBE`), since anyone could forge it.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use crate::burst::{Packing, ReceiveBurst, SendBurst};
use crate::error::frame_bytes;
use crate::interface::mtu_of_ip;
use crate::socket::{self, Drops, Refusal};
use crate::{Address, BURST_FRAMES, Counters, MAX_FRAME_BYTES, OpenError, Port};

/// Bytes of IPv4 and UDP header.
const V4_OVERHEAD_BYTES: usize = 20 + 8;
/// Bytes of IPv6 and UDP header.
const V6_OVERHEAD_BYTES: usize = 40 + 8;
/// The MTU that is assumed where none can be learned.
const DEFAULT_MTU: usize = 1500;
/// Super-frames taken from the kernel in one call.
const RECEIVE_MESSAGES: usize = 8;
/// The largest datagram there is, rounded up.
const DATAGRAM_BYTES: usize = 65_536;

/// How to open a [`UdpPort`].
#[derive(Clone, Debug)]
pub struct UdpConfig {
    /// The address to bind. IPv6 sockets take IPv6 peers only.
    pub bind: SocketAddr,
    /// A peer, to learn the MTU of the way to it. None: that of the interface that has the bound address, else 1500.
    pub peer: Option<SocketAddr>,
    /// The largest frame; none: what the MTU leaves.
    pub max_frame_bytes: Option<usize>,
    /// What the kernel may hold for this Port in each direction.
    pub buffer_bytes: usize,
    /// Whether to try segmentation offload.
    pub offload: bool,
}

impl UdpConfig {
    /// No peer known, buffers of 8 MiB, offload tried.
    pub fn new(bind: SocketAddr) -> Self {
        Self { bind, peer: None, max_frame_bytes: None, buffer_bytes: 8 << 20, offload: true }
    }
}

/// A Port on a UDP socket.
pub struct UdpPort {
    socket: UdpSocket,
    address: SocketAddr,
    max_frame_bytes: usize,
    packing: Packing,
    outgoing: SendBurst,
    incoming: ReceiveBurst<libc::sockaddr_storage>,
    counters: Counters,
    drops: Drops,
}

impl UdpPort {
    /// Opens a Port on a local address.
    pub fn open(config: &UdpConfig) -> Result<Self, OpenError> {
        let bound = |source| OpenError::Bind { address: config.bind, source };
        let socket = bind(config.bind).map_err(bound)?;
        let address = socket.local_addr().map_err(bound)?;
        let failed = |what| move |error: io::Error| OpenError::system(what, error);
        socket.set_nonblocking(true).map_err(failed("cannot make a UDP socket non-blocking"))?;
        let fd = socket.as_fd();
        let (level, name, discover) = if address.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
        };
        socket::set_int(fd, level, name, discover)
            .map_err(failed("cannot forbid fragments on a UDP socket"))?;
        if config.offload {
            // Kernels before 5.0 do not know it and hand over every datagram alone, which works as well.
            let _ = socket::set_int(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        socket::raise_buffers(fd, config.buffer_bytes);
        let overhead = if address.is_ipv4() { V4_OVERHEAD_BYTES } else { V6_OVERHEAD_BYTES };
        let mtu = mtu(address, config.peer).unwrap_or(DEFAULT_MTU);
        let max_frame_bytes =
            frame_bytes(&format!("UDP on {address}"), mtu.saturating_sub(overhead), config.max_frame_bytes)?;
        Ok(Self {
            address,
            max_frame_bytes,
            packing: if config.offload { Packing::Segmented } else { Packing::Single },
            outgoing: SendBurst::new(),
            incoming: ReceiveBurst::new(RECEIVE_MESSAGES, DATAGRAM_BYTES, zero_address()),
            socket,
            counters: Counters::default(),
            drops: Drops::default(),
        })
    }

    /// Whether frames still leave as super-frames.
    pub fn offloads(&self) -> bool {
        self.packing == Packing::Segmented
    }

    fn push(&mut self, to: &SocketAddr, frames: &[&[u8]], packing: Packing) -> io::Result<usize> {
        match to {
            SocketAddr::V4(to) => {
                // SAFETY: all zeroes are a valid `sockaddr_in`.
                let mut name: libc::sockaddr_in = unsafe { MaybeUninit::zeroed().assume_init() };
                name.sin_family = libc::AF_INET as libc::sa_family_t;
                name.sin_port = to.port().to_be();
                name.sin_addr.s_addr = u32::from_ne_bytes(to.ip().octets());
                self.outgoing.send(self.socket.as_fd(), &name, frames, packing)
            }
            SocketAddr::V6(to) => {
                // SAFETY: all zeroes are a valid `sockaddr_in6`.
                let mut name: libc::sockaddr_in6 = unsafe { MaybeUninit::zeroed().assume_init() };
                name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                name.sin6_port = to.port().to_be();
                name.sin6_addr.s6_addr = to.ip().octets();
                name.sin6_scope_id = to.scope_id();
                self.outgoing.send(self.socket.as_fd(), &name, frames, packing)
            }
        }
    }

    /// Sends the first of `burst` alone, after a super-frame was refused. If that works the offload was at fault, and is
    /// given up for good.
    fn push_alone(&mut self, to: &SocketAddr, burst: &[&[u8]], cause: &io::Error) -> io::Result<usize> {
        let sent = self.push(to, &burst[..1], Packing::Single)?;
        if sent > 0 {
            tracing::info!(address = %self.address, %cause, "segmentation offload refused: sending single datagrams");
            self.packing = Packing::Single;
        }
        Ok(sent)
    }
}

impl Port for UdpPort {
    fn max_frame_bytes(&self) -> usize {
        self.max_frame_bytes
    }

    fn address(&self) -> Address {
        Address::Udp(self.address)
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        let to = match to {
            Address::Udp(to) if to.is_ipv4() == self.address.is_ipv4() => *to,
            _ => {
                self.counters.tx_foreign += frames.len() as u64;
                return frames.len();
            }
        };
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
            let burst = &burst[..fit];
            let mut result = self.push(&to, burst, self.packing);
            if let Err(error) = &result
                && self.packing == Packing::Segmented
                && matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP))
            {
                result = self.push_alone(&to, burst, error);
            }
            let error = match result {
                Ok(sent) => {
                    self.counters.sent(&burst[..sent]);
                    taken += sent;
                    continue;
                }
                Err(error) => error,
            };
            match Refusal::of(&error) {
                Refusal::Interrupted => {}
                Refusal::NoRoom => {
                    self.counters.tx_no_room += 1;
                    break;
                }
                Refusal::LinkDown => {
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
                }
                return 0;
            }
        };
        let mut arrived = 0;
        for index in 0..messages {
            let message = self.incoming.message(index);
            let Some(from) = socket_address(message.from) else {
                self.counters.rx_foreign += 1;
                arrived += 1;
                continue;
            };
            let from = Address::Udp(from);
            // An empty datagram is no chunk and no frame.
            let segment_bytes = message.segment_bytes.unwrap_or(message.bytes.len()).max(1);
            for frame in message.bytes.chunks(segment_bytes) {
                if message.truncated || frame.len() > MAX_FRAME_BYTES {
                    self.counters.rx_truncated += 1;
                } else {
                    self.counters.received(frame);
                    handle(&from, frame);
                }
            }
            arrived += message.bytes.len().div_ceil(segment_bytes).max(1);
        }
        arrived
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn tick(&mut self, now_ns: u64) {
        self.counters.rx_overflow += self.drops.since_last(self.socket.as_fd(), now_ns);
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// A bound socket. An IPv6 one takes IPv6 only, so that a peer has one address, not also a mapped one.
fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

/// The MTU of the way to `peer`, or of the interface that has the address.
fn mtu(address: SocketAddr, peer: Option<SocketAddr>) -> Option<usize> {
    let Some(peer) = peer else { return mtu_of_ip(address.ip()) };
    // A socket of its own, since the Port's must hear all peers.
    let probe = UdpSocket::bind((address.ip(), 0)).ok()?;
    probe.connect(peer).ok()?;
    let (level, name) =
        if peer.is_ipv4() { (libc::IPPROTO_IP, libc::IP_MTU) } else { (libc::IPPROTO_IPV6, libc::IPV6_MTU) };
    usize::try_from(socket::get_int(probe.as_fd(), level, name).ok()?).ok()
}

fn zero_address() -> libc::sockaddr_storage {
    // SAFETY: all zeroes are a valid `sockaddr_storage`.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn socket_address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    const {
        assert!(mem::size_of::<libc::sockaddr_storage>() >= mem::size_of::<libc::sockaddr_in6>());
    }
    let storage = std::ptr::from_ref(storage);
    // SAFETY: the caller's reference is valid and the kernel wrote the family, or left it zero.
    match i32::from(unsafe { (*storage).ss_family }) {
        libc::AF_INET => {
            // SAFETY: `sockaddr_storage` is large enough and aligned for any address; any bits are valid in it.
            let v4 = unsafe { storage.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_offload_is_given_up_and_no_frame_is_lost() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let open = || UdpPort::open(&UdpConfig::new(loopback)).expect("a UDP port");
        let (mut a, mut b) = (open(), open());
        // The kernel refuses to segment datagrams without checksums (EINVAL).
        socket::set_int(a.socket.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).expect("SO_NO_CHECK");
        let frames: Vec<[u8; 100]> = (0..20).map(|number| [number; 100]).collect();
        let slices: Vec<&[u8]> = frames.iter().map(<[u8; 100]>::as_slice).collect();
        assert!(a.offloads());
        assert_eq!(a.send(&b.address(), &slices), 20);
        assert!(!a.offloads());
        let mut arrived = Vec::new();
        while b.receive(&mut |_, frame| arrived.push(frame.to_vec())) > 0 {}
        assert_eq!(arrived, frames);
    }

    #[test]
    fn frames_of_one_size_travel_as_one_message() {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let open = || UdpPort::open(&UdpConfig::new(loopback)).expect("a UDP port");
        let (mut a, mut b) = (open(), open());
        assert_eq!(a.send(&b.address(), &[&[1; 1000], &[2; 1000], &[3; 10]]), 3);
        assert_eq!(b.incoming.receive(b.socket.as_fd()).expect("a message"), 1);
        let message = b.incoming.message(0);
        assert_eq!((message.bytes.len(), message.segment_bytes), (2010, Some(1000)));
    }
}
