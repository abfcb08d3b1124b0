//! Socket addresses: IPv4, and what of IPv6 is IPv4.

use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4};
use std::ptr;

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage};

/// What of an address counts: none is any address.
pub(super) type Endpoint = (Option<Ipv4Addr>, u16);

/// An address of the program's; the number of an error if it is of another family, or of IPv6 alone.
///
/// # Safety
/// `address` points to a socket address that is whole for its family.
pub(super) unsafe fn read(address: *const sockaddr) -> Result<Endpoint, c_int> {
    if address.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says; read unaligned since a `sockaddr` promises less.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
                Ok(((!ip.is_unspecified()).then_some(ip), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
                if ip.is_unspecified() {
                    return Ok((None, port));
                }
                if ip.is_loopback() {
                    return Ok((Some(Ipv4Addr::LOCALHOST), port));
                }
                let ip = ip.to_ipv4_mapped().ok_or(libc::EADDRNOTAVAIL)?;
                Ok(((!ip.is_unspecified()).then_some(ip), port))
            }
            _ => Err(libc::EAFNOSUPPORT),
        }
    }
}

/// Bytes of an address, 0 if its family is another.
///
/// # Safety
/// As [`read`].
pub(super) unsafe fn length(address: *const sockaddr) -> usize {
    // SAFETY: as the caller says.
    match c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => size_of::<sockaddr_in>(),
        libc::AF_INET6 => size_of::<sockaddr_in6>(),
        _ => 0,
    }
}

/// Copies an address.
///
/// # Safety
/// As [`read`].
pub(super) unsafe fn copy(address: *const sockaddr, to: &mut sockaddr_storage) {
    // SAFETY: as the caller says; any address fits.
    unsafe {
        let bytes = length(address);
        ptr::copy_nonoverlapping(address.cast::<u8>(), ptr::from_mut(to).cast::<u8>(), bytes);
    }
}

/// An address of IPv4.
pub(super) fn v4(at: SocketAddrV4) -> sockaddr_storage {
    let address = sockaddr_in {
        sin_family: libc::AF_INET.cast_unsigned() as libc::sa_family_t,
        sin_port: at.port().to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(at.ip().octets()) },
        sin_zero: [0; 8],
    };
    // SAFETY: zeros are a valid value.
    let mut storage: sockaddr_storage = unsafe { mem::zeroed() };
    // SAFETY: it is large enough, and aligned for every family.
    unsafe { ptr::from_mut(&mut storage).cast::<sockaddr_in>().write(address) };
    storage
}

/// The port of an address, in network order; 0 if it has none.
pub(super) fn port(address: &sockaddr_storage) -> u16 {
    match c_int::from(address.ss_family) {
        // The port of both is at the same place.
        libc::AF_INET | libc::AF_INET6 => {
            // SAFETY: a `sockaddr_storage` holds either, and any bytes are a port.
            unsafe { (*ptr::from_ref(address).cast::<sockaddr_in>()).sin_port }
        }
        _ => 0,
    }
}

/// The same address with a port, which is in network order.
pub(super) fn set_port(address: &mut sockaddr_storage, port: u16) {
    if matches!(c_int::from(address.ss_family), libc::AF_INET | libc::AF_INET6) {
        // SAFETY: as above.
        unsafe { (*ptr::from_mut(address).cast::<sockaddr_in>()).sin_port = port };
    }
}
