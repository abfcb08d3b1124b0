//! `rdma_getaddrinfo`: the system's names, as addresses for connections.

use std::ffi::{c_char, c_int, c_void};
use std::{mem, ptr};

use libc::{addrinfo, sockaddr, sockaddr_storage, socklen_t};

use super::types::AddrInfo;
use super::{QPT_RC, QPT_UD, address};
use crate::abi::set_errno;

const PASSIVE: c_int = 1;
const NUMERIC_HOST: c_int = 2;
const FAMILY: c_int = 8;
const PS_TCP: c_int = 0x106;
const PS_UDP: c_int = 0x111;

/// What a result is made of, to be freed with it.
#[repr(C)]
struct OurInfo {
    info: AddrInfo,
    source: Option<Box<sockaddr_storage>>,
    destination: Option<Box<sockaddr_storage>>,
}

/// Asks the system, of whose answers IPv4 is preferred.
///
/// # Safety
/// Both are strings or null.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    flags: c_int,
    family: c_int,
) -> Result<sockaddr_storage, c_int> {
    // SAFETY: zeros are a valid value.
    let mut hints: addrinfo = unsafe { mem::zeroed() };
    hints.ai_flags = if flags & PASSIVE != 0 { libc::AI_PASSIVE } else { 0 }
        | if flags & NUMERIC_HOST != 0 { libc::AI_NUMERICHOST } else { 0 };
    hints.ai_family = family;
    hints.ai_socktype = libc::SOCK_STREAM;
    let mut first: *mut addrinfo = ptr::null_mut();
    // SAFETY: strings of the caller's, and a place for the result.
    let error = unsafe { libc::getaddrinfo(node, service, &raw const hints, &raw mut first) };
    if error != 0 {
        return Err(error);
    }
    let (mut found, mut next) = (first, first);
    while !next.is_null() {
        // SAFETY: a result of the system's, freed below.
        unsafe {
            if (*next).ai_family == libc::AF_INET {
                found = next;
                break;
            }
            next = (*next).ai_next;
        }
    }
    // SAFETY: zeros are a valid value; the result has a whole address, and is not used after this.
    unsafe {
        let mut storage: sockaddr_storage = mem::zeroed();
        address::copy((*found).ai_addr, &mut storage);
        libc::freeaddrinfo(first);
        Ok(storage)
    }
}

/// # Safety
/// Null, or a whole address.
unsafe fn keep(address: *const sockaddr) -> Option<Box<sockaddr_storage>> {
    if address.is_null() {
        return None;
    }
    // SAFETY: zeros are a valid value; the address is whole.
    unsafe {
        let mut storage: Box<sockaddr_storage> = Box::new(mem::zeroed());
        address::copy(address, &mut storage);
        Some(storage)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const AddrInfo,
    result: *mut *mut AddrInfo,
) -> c_int {
    // SAFETY: the caller's structure, if there is one.
    let hints = unsafe { hints.as_ref() };
    if node.is_null() && service.is_null() && hints.is_none() {
        set_errno(libc::EINVAL);
        return -1;
    }
    let flags = hints.map_or(0, |hints| hints.ai_flags);
    let family = if flags & FAMILY != 0 { hints.map_or(0, |hints| hints.ai_family) } else { libc::AF_UNSPEC };
    // SAFETY: addresses of the caller's, if there are any.
    let (mut source, mut destination) = unsafe {
        (hints.and_then(|hints| keep(hints.ai_src_addr)), hints.and_then(|hints| keep(hints.ai_dst_addr)))
    };
    if !node.is_null() || !service.is_null() {
        // SAFETY: strings of the caller's.
        match unsafe { look_up(node, service, flags, family) } {
            Ok(found) if flags & PASSIVE != 0 => source = Some(Box::new(found)),
            Ok(found) => destination = Some(Box::new(found)),
            Err(error) => return error,
        }
    }
    // The kind of QP and the port space follow from each other.
    let asked = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
    let (kind, space) = match asked {
        (0, 0) => (QPT_RC, PS_TCP),
        (0, PS_UDP) => (QPT_UD, PS_UDP),
        (0, space) => (QPT_RC, space),
        (QPT_UD, 0) => (QPT_UD, PS_UDP),
        (kind, 0) => (kind, PS_TCP),
        both => both,
    };
    let family = source.as_ref().or(destination.as_ref()).map_or(0, |address| c_int::from(address.ss_family));
    let mut ours = Box::new(OurInfo {
        info: AddrInfo {
            ai_flags: flags,
            ai_family: family,
            ai_qp_type: kind,
            ai_port_space: space,
            ai_src_len: 0,
            ai_dst_len: 0,
            ai_src_addr: ptr::null_mut(),
            ai_dst_addr: ptr::null_mut(),
            ai_src_canonname: ptr::null_mut(),
            ai_dst_canonname: ptr::null_mut(),
            ai_route_len: 0,
            ai_route: ptr::null_mut::<c_void>(),
            ai_connect_len: 0,
            ai_connect: ptr::null_mut(),
            ai_next: ptr::null_mut(),
        },
        source,
        destination,
    });
    let OurInfo { info, source, destination } = &mut *ours;
    for (address, to, length) in [
        (source, &mut info.ai_src_addr, &mut info.ai_src_len),
        (destination, &mut info.ai_dst_addr, &mut info.ai_dst_len),
    ] {
        if let Some(address) = address {
            *to = ptr::from_mut(&mut **address).cast();
            // SAFETY: a whole address.
            *length = unsafe { address::length(*to) } as socklen_t;
        }
    }
    // SAFETY: a place of the caller's.
    unsafe { *result = Box::into_raw(ours).cast() };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_freeaddrinfo(info: *mut AddrInfo) {
    if !info.is_null() {
        // SAFETY: made by rdma_getaddrinfo, which makes no lists, and not used after this.
        drop(unsafe { Box::from_raw(info.cast::<OurInfo>()) });
    }
}
