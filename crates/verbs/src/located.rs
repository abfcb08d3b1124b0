//! A Port of another link than UDP, whose peers are named as those of UDP are ([`place`]): by IPv4 address and slot.
//!
//! So nothing above knows of the link: a GID is an IPv4 address whatever carries the frames. On a ring the slot is the number
//! in the hub, and the address is that of the machine. On Ethernet the kernel knows who has an address (its neighbours, by
//! ARP), and a node says in its handshake who it is ([`place::node`]), since a frame brings no more than a MAC address.
//!
//! What a process sends to itself passes no link but UDP's; it goes around here.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use etherslot_netio::{Address, Counters, Port};
use etherslot_session::parse_frame;
use etherslot_wire::control::Hello;
use etherslot_wire::frame::{Header, Kind};
use rustix::event::{EventfdFlags, epoll, eventfd};

use crate::place;

/// Where the kernel tells whom it knows by ARP.
const NEIGHBORS: &str = "/proc/net/arp";
/// Its flag of an entry that is complete (`ATF_COM` of `linux/if_arp.h`).
const COMPLETE: u32 = 2;
/// Nobody listens there (RFC 863): what is sent there makes the kernel look for the address.
const DISCARD_PORT: u16 = 9;
/// How long a neighbour is taken to be where it was, and between two looks for one that is not known.
const NEIGHBOR_NS: (u64, u64) = (1_000_000_000, 20_000_000);
/// Frames on their way from a process to itself at most; the next waits, as for any link.
const AROUND: usize = 256;
/// Stations that are known at most. One that is forgotten says who it is with its next handshake.
const STATIONS: usize = 4096;

/// What peers' addresses are.
#[derive(Debug)]
pub(crate) enum Way {
    /// MAC addresses.
    Ethernet {
        /// The interface.
        interface: String,
    },
    /// Numbers in a hub.
    Ring,
}

/// Where an address is on Ethernet.
#[derive(Clone, Copy, Debug)]
struct Neighbor {
    mac: Option<[u8; 6]>,
    /// When it is looked for again.
    until_ns: u64,
}

/// The Port.
pub(crate) struct Located {
    port: Box<dyn Port + Send>,
    way: Way,
    own: Address,
    ip: Ipv4Addr,
    now_ns: u64,
    neighbors: HashMap<Ipv4Addr, Neighbor>,
    /// Who a station says that it is.
    stations: HashMap<[u8; 6], Address>,
    /// Asks the kernel to look for addresses.
    asking: UdpSocket,
    /// Frames to ourselves; and room for more.
    around: VecDeque<Vec<u8>>,
    spare: Vec<Vec<u8>>,
    /// Frames to nobody that is known, and from nobody.
    unnamed: [u64; 2],
    /// The Port's, and these.
    counters: Counters,
    /// Readable while there are frames to ourselves; what is, or the Port.
    bell: OwnedFd,
    epoll: OwnedFd,
    /// Nobody else has the interface.
    _lock: Option<UnixDatagram>,
}

impl Located {
    /// A Port by which we are reached at this address, in this slot. `lock` is kept as long as the Port.
    pub(crate) fn new(
        port: Box<dyn Port + Send>,
        way: Way,
        (ip, slot): (Ipv4Addr, u8),
        lock: Option<UnixDatagram>,
    ) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let nothing = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &bell, nothing, epoll::EventFlags::IN)?;
        if let Some(fd) = port.fd() {
            epoll::add(&epoll, fd, nothing, epoll::EventFlags::IN)?;
        }
        let asking = UdpSocket::bind((ip, 0))?;
        asking.set_nonblocking(true)?;
        Ok(Self {
            port,
            way,
            own: named(ip, slot),
            ip,
            now_ns: 0,
            neighbors: HashMap::new(),
            stations: HashMap::new(),
            asking,
            around: VecDeque::new(),
            spare: Vec::new(),
            unnamed: [0; 2],
            counters: Counters::default(),
            bell,
            epoll,
            _lock: lock,
        })
    }

    /// Where the Port has a peer of this name.
    fn find(&mut self, to: &Address) -> Option<Address> {
        let Address::Udp(SocketAddr::V4(at)) = to else { return None };
        let slot = place::slot(at.port())?;
        match &self.way {
            Way::Ring => (*at.ip() == self.ip).then_some(Address::Ring(u32::from(slot))),
            Way::Ethernet { interface } => {
                let known = self.neighbors.get(at.ip()).copied();
                let mac = if let Some(known) = known.filter(|known| known.until_ns > self.now_ns) {
                    known.mac
                } else {
                    let table = std::fs::read_to_string(NEIGHBORS).unwrap_or_default();
                    let mac = neighbor(&table, interface, *at.ip());
                    let wait_ns = if mac.is_some() { NEIGHBOR_NS.0 } else { NEIGHBOR_NS.1 };
                    if mac.is_none() {
                        // It fails where there is no way, and then nobody answers either.
                        let _ = self.asking.send_to(&[], (*at.ip(), DISCARD_PORT));
                    }
                    // The kernel forgets who is not spoken with by IP; who was there is likely to be still.
                    let mac = mac.or(known.and_then(|known| known.mac));
                    let until_ns = self.now_ns.saturating_add(wait_ns);
                    self.neighbors.insert(*at.ip(), Neighbor { mac, until_ns });
                    mac
                };
                mac.map(Address::Mac)
            }
        }
    }
}

/// The name of whom a frame is from.
fn name(
    way: &Way,
    ip: Ipv4Addr,
    stations: &mut HashMap<[u8; 6], Address>,
    from: &Address,
    frame: &[u8],
) -> Option<Address> {
    match (way, from) {
        (Way::Ring, Address::Ring(number)) => {
            let slot = u8::try_from(*number).ok().filter(|&slot| slot < place::SLOTS)?;
            Some(named(ip, slot))
        }
        (Way::Ethernet { .. }, Address::Mac(mac)) => {
            // Only a handshake is looked into, and checked; of all others it is seen that they are none.
            if let Ok((Header { kind: Kind::Hello | Kind::HelloAck, .. }, _)) = Header::parse(frame)
                && let Ok((_, body)) = parse_frame(frame)
                && let Some(at) = Hello::parse(body).and_then(|hello| place::of_node(&hello.node))
                && (stations.len() < STATIONS || stations.contains_key(mac))
            {
                stations.insert(*mac, at);
            }
            stations.get(mac).copied()
        }
        _ => None,
    }
}

fn named(ip: Ipv4Addr, slot: u8) -> Address {
    Address::Udp(SocketAddr::V4(SocketAddrV4::new(ip, place::port(slot))))
}

/// Who has an address, by the kernel's table: a line of headings, then address, type of hardware, flags, hardware address,
/// mask, interface.
fn neighbor(table: &str, interface: &str, ip: Ipv4Addr) -> Option<[u8; 6]> {
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_whitespace();
        let is_its = words.next()?.parse() == Ok(ip);
        let flags = u32::from_str_radix(words.nth(1)?.strip_prefix("0x")?, 16).ok()?;
        let mac = words.next()?.parse::<Address>().ok()?;
        let is_here = words.nth(1)? == interface;
        match mac {
            Address::Mac(mac) if is_its && is_here && flags & COMPLETE != 0 => Some(mac),
            _ => None,
        }
    })
}

impl Port for Located {
    fn max_frame_bytes(&self) -> usize {
        self.port.max_frame_bytes()
    }

    fn address(&self) -> Address {
        self.own
    }

    fn send(&mut self, to: &Address, frames: &[&[u8]]) -> usize {
        if *to == self.own {
            let taken = frames.len().min(AROUND - self.around.len());
            for frame in &frames[..taken] {
                let mut copy = self.spare.pop().unwrap_or_default();
                copy.clear();
                copy.extend_from_slice(frame);
                self.around.push_back(copy);
            }
            // It fails only where the count would pass 2^64.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
            return taken;
        }
        if let Some(to) = self.find(to) {
            return self.port.send(&to, frames);
        }
        // As frames to a station that is not there are lost.
        self.unnamed[0] += frames.len() as u64;
        frames.len()
    }

    fn receive(&mut self, handle: &mut dyn FnMut(&Address, &[u8])) -> usize {
        let around = self.around.len();
        if around > 0 {
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
            let own = self.own;
            while let Some(frame) = self.around.pop_front() {
                handle(&own, &frame);
                self.spare.push(frame);
            }
        }
        let Self { port, way, ip, stations, unnamed, .. } = self;
        let received = port.receive(&mut |from, frame| match name(way, *ip, stations, from, frame) {
            Some(from) => handle(&from, frame),
            None => unnamed[1] += 1,
        });
        around + received
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn before_sleep(&mut self) -> bool {
        self.port.before_sleep()
    }

    fn poll_at(&self) -> Option<u64> {
        self.port.poll_at()
    }

    fn tick(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.port.tick(now_ns);
        self.counters = *self.port.counters();
        self.counters.tx_foreign += self.unnamed[0];
        self.counters.rx_foreign += self.unnamed[1];
    }

    /// As of the last tick.
    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use etherslot_netio::ring::{RingConfig, RingPort};

    use super::*;

    const TABLE: &str = "\
IP address       HW type     Flags       HW address            Mask     Device
10.0.0.2         0x1         0x2         02:00:00:00:00:02     *        eth0
10.0.0.3         0x1         0x0         00:00:00:00:00:00     *        eth0
10.0.0.4         0x1         0x6         02:00:00:00:00:04     *        eth1
nonsense
";

    #[test]
    fn who_has_an_address_is_told_by_a_complete_entry_of_the_interface() {
        let of = |last, interface| neighbor(TABLE, interface, Ipv4Addr::new(10, 0, 0, last));
        assert_eq!(of(2, "eth0"), Some([2, 0, 0, 0, 0, 2]));
        assert_eq!(of(2, "eth1"), None);
        assert_eq!(of(3, "eth0"), None, "the kernel still looks for it");
        assert_eq!(of(4, "eth1"), Some([2, 0, 0, 0, 0, 4]), "a permanent one");
        assert_eq!(of(5, "eth0"), None);
        assert_eq!(neighbor("", "eth0", Ipv4Addr::new(10, 0, 0, 2)), None);
    }

    #[test]
    fn what_a_process_sends_to_itself_comes_in_order_and_is_told_of() {
        let hub = tempfile::tempdir().expect("a folder");
        let port = Box::new(RingPort::open(&RingConfig::new(hub.path(), 5)).expect("a port"));
        let mut port = Located::new(port, Way::Ring, (Ipv4Addr::LOCALHOST, 5), None).expect("a Port");
        let own = port.address();
        let readable = |port: &Located| {
            let fd = port.fd().expect("one");
            let mut fds = [rustix::event::PollFd::from_borrowed_fd(fd, rustix::event::PollFlags::IN)];
            rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())).expect("polled") == 1
        };
        assert!(!readable(&port));
        for round in 0..3_u8 {
            let frames: Vec<Vec<u8>> = (0..=255).chain(0..44).map(|at: u8| vec![round, at]).collect();
            let slices: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
            assert_eq!(port.send(&own, &slices), AROUND);
            assert_eq!(port.send(&own, &slices), 0, "there is no room");
            assert!(readable(&port));
            let mut seen = Vec::new();
            assert_eq!(port.receive(&mut |from, frame| seen.push((*from, frame.to_vec()))), AROUND);
            assert!(seen.iter().zip(&frames).all(|((from, frame), sent)| *from == own && frame == sent));
            assert!(!readable(&port));
        }
        // Who is elsewhere is not on a ring.
        assert_eq!(port.send(&named(Ipv4Addr::new(10, 0, 0, 1), 5), &[&[1]]), 1);
        assert_eq!(port.receive(&mut |_, _| panic!("nobody sent")), 0);
    }

    #[test]
    fn a_station_is_known_by_its_handshake_and_by_nothing_else() {
        let way = Way::Ethernet { interface: "eth0".to_owned() };
        let mut stations = HashMap::new();
        let session = etherslot_session::Config {
            node: place::node(Ipv4Addr::new(10, 0, 0, 7), 3, 1),
            ..etherslot_session::Config::default()
        };
        let mut session = etherslot_session::Session::connect(&session, 77, 1);
        let mut hello = Vec::new();
        session.transmit(1, &mut |frames| {
            hello = frames[0].to_vec();
            frames.len()
        });
        let mac = Address::Mac([2, 0, 0, 0, 0, 9]);
        let mut from = |frame: &[u8]| name(&way, Ipv4Addr::LOCALHOST, &mut stations, &mac, frame);
        assert_eq!(from(&[0; 60]), None);
        let mut damaged = hello.clone();
        damaged[30] ^= 1;
        assert_eq!(from(&damaged), None);
        assert_eq!(from(&hello), Some(named(Ipv4Addr::new(10, 0, 0, 7), 3)));
        assert_eq!(from(&[0; 60]), Some(named(Ipv4Addr::new(10, 0, 0, 7), 3)));
    }
}
