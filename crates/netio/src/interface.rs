//! What the kernel says about a network interface.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::OpenError;

/// An Ethernet interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) index: u32,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: usize,
    pub(crate) up: bool,
}

impl Interface {
    /// Looks an Ethernet interface up by name, through any socket.
    pub(crate) fn find(fd: BorrowedFd<'_>, name: &str) -> Result<Self, OpenError> {
        let none = || OpenError::NoInterface(name.to_owned());
        let mut request = named(name).ok_or_else(none)?;
        let failed = |error: io::Error| match error.raw_os_error() {
            Some(libc::ENODEV) => none(),
            _ => OpenError::system(format!("cannot read the settings of interface `{name}`"), error),
        };
        ask(fd, libc::SIOCGIFINDEX, &mut request).map_err(failed)?;
        // SAFETY: SIOCGIFINDEX filled this member of the union.
        let index = unsafe { request.ifr_ifru.ifru_ifindex };
        ask(fd, libc::SIOCGIFHWADDR, &mut request).map_err(failed)?;
        // SAFETY: SIOCGIFHWADDR filled this member of the union.
        let hardware = unsafe { request.ifr_ifru.ifru_hwaddr };
        if hardware.sa_family != libc::ARPHRD_ETHER {
            return Err(OpenError::NotEthernet(name.to_owned()));
        }
        let mut mac = [0; 6];
        for (to, from) in mac.iter_mut().zip(hardware.sa_data) {
            [*to] = from.to_ne_bytes();
        }
        let mtu = mtu(fd, &mut request).map_err(failed)?;
        let up = flags(fd, &mut request).map_err(failed)? & libc::IFF_UP != 0;
        Ok(Self { index: index.cast_unsigned(), mac, mtu, up })
    }

    /// Whether frames get out of the interface now: it is up and has a carrier.
    pub(crate) fn is_running(fd: BorrowedFd<'_>, name: &str) -> bool {
        const RUNNING: i32 = libc::IFF_UP | libc::IFF_RUNNING;
        named(name)
            .is_some_and(|mut request| flags(fd, &mut request).is_ok_and(|flags| flags & RUNNING == RUNNING))
    }
}

/// Whether frames get out of the interface of this name now: it is there, up, and has a carrier.
pub fn has_carrier(name: &str) -> bool {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    socket.is_ok_and(|socket| Interface::is_running(socket.as_fd(), name))
}

/// Calls `each` with the name, flags and IP address of everything that has one, until it says that that is enough.
fn each_address(mut each: impl FnMut(&CStr, u32, IpAddr) -> bool) {
    let mut head = ptr::null_mut();
    // SAFETY: `head` is where the list is to be stored.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        return;
    }
    let mut entry = head;
    while !entry.is_null() {
        // SAFETY: a non-null entry of the list that getifaddrs made and that is not freed yet.
        let item = unsafe { &*entry };
        // SAFETY: `ifa_addr` is null or points to an address of the family it names.
        if let Some(address) = unsafe { ip(item.ifa_addr) } {
            // SAFETY: `ifa_name` is a string that ends in NUL.
            let name = unsafe { CStr::from_ptr(item.ifa_name) };
            if each(name, item.ifa_flags, address) {
                break;
            }
        }
        entry = item.ifa_next;
    }
    // SAFETY: the list came from getifaddrs and nothing refers to it any more.
    unsafe { libc::freeifaddrs(head) };
}

/// The MTU of the interface that has this IP address, if one has.
pub(crate) fn mtu_of_ip(address: IpAddr) -> Option<usize> {
    let mut request = None;
    each_address(|name, _, its| {
        if its == address {
            request = name.to_str().ok().and_then(named);
        }
        its == address
    });
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    mtu(socket.as_fd(), &mut request?).ok()
}

/// The IPv4 addresses of interfaces that are up, those of the loopback interface last.
pub fn ipv4_addresses() -> Vec<Ipv4Addr> {
    let (mut addresses, mut loopback) = (Vec::new(), Vec::new());
    each_address(|_, flags, address| {
        if let IpAddr::V4(address) = address
            && flags & libc::IFF_UP.cast_unsigned() != 0
        {
            if address.is_loopback() { loopback.push(address) } else { addresses.push(address) }
        }
        false
    });
    addresses.append(&mut loopback);
    addresses
}

/// The IPv4 addresses of an interface.
pub fn ipv4_addresses_of(interface: &str) -> Vec<Ipv4Addr> {
    let mut addresses = Vec::new();
    each_address(|name, _, address| {
        if let IpAddr::V4(address) = address
            && name.to_bytes() == interface.as_bytes()
        {
            addresses.push(address);
        }
        false
    });
    addresses
}

/// # Safety
/// `address` is null or points to a socket address that is whole for the family it names.
unsafe fn ip(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: whole for its family, says the caller; so it has at least the family.
    match i32::from(unsafe { address.as_ref() }?.sa_family) {
        libc::AF_INET => {
            // SAFETY: whole for AF_INET; read unaligned since a `sockaddr` promises less.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: whole for AF_INET6; read unaligned since a `sockaddr` promises less.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(v6.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

fn mtu(fd: BorrowedFd<'_>, request: &mut libc::ifreq) -> io::Result<usize> {
    ask(fd, libc::SIOCGIFMTU, request)?;
    // SAFETY: SIOCGIFMTU filled this member of the union.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

fn flags(fd: BorrowedFd<'_>, request: &mut libc::ifreq) -> io::Result<i32> {
    ask(fd, libc::SIOCGIFFLAGS, request)?;
    // SAFETY: SIOCGIFFLAGS filled this member of the union.
    Ok(i32::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// A request about the interface `name`, unless no interface could have that name.
pub(crate) fn named(name: &str) -> Option<libc::ifreq> {
    // SAFETY: all zeroes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { MaybeUninit::zeroed().assume_init() };
    // The last byte stays NUL.
    if name.is_empty() || name.len() >= request.ifr_name.len() || name.contains('\0') {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    Some(request)
}

fn ask(fd: BorrowedFd<'_>, what: libc::Ioctl, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every SIOCGIF* request reads the name from, and writes into, one whole `ifreq`.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), what, ptr::from_mut(request)) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
