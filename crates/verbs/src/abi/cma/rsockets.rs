//! Sockets over RDMA: there are none here. Programs of rdma-core need the names; with descriptors that are no such sockets
//! `rpoll` and `rselect` do what `poll` and `select` do.

use std::ffi::{c_int, c_void};

use crate::abi::set_errno;

#[unsafe(no_mangle)]
extern "C" fn rsocket(_domain: c_int, _kind: c_int, _protocol: c_int) -> c_int {
    set_errno(libc::EOPNOTSUPP);
    -1
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rpoll(fds: *mut libc::pollfd, count: libc::nfds_t, timeout_ms: c_int) -> c_int {
    // SAFETY: as the caller of `poll` promises.
    unsafe { libc::poll(fds, count, timeout_ms) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rselect(
    count: c_int,
    read: *mut libc::fd_set,
    write: *mut libc::fd_set,
    except: *mut libc::fd_set,
    timeout: *mut libc::timeval,
) -> c_int {
    // SAFETY: as the caller of `select` promises.
    unsafe { libc::select(count, read, write, except, timeout) }
}

/// No descriptor is such a socket.
macro_rules! none {
    ($($result:ty: $($name:ident)*;)*) => {
        $($(#[unsafe(no_mangle)]
        extern "C" fn $name() -> $result {
            set_errno(libc::EBADF);
            -1
        })*)*
    };
}

none! {
    c_int: raccept rbind rclose rconnect rfcntl rgetpeername rgetsockname rgetsockopt riounmap rlisten rsetsockopt rshutdown;
    isize: rread rreadv rrecv rrecvfrom rrecvmsg rsend rsendmsg rsendto rwrite rwritev;
    libc::off_t: riomap;
}

#[unsafe(no_mangle)]
extern "C" fn riowrite(
    _socket: c_int,
    _from: *const c_void,
    _bytes: usize,
    _at: libc::off_t,
    _flags: c_int,
) -> usize {
    set_errno(libc::EBADF);
    usize::MAX
}
