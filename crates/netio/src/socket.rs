//! Sockets as the back ends need them: options that `rustix` does not know, and how kernel errors are taken.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};

/// What a failed send means for the frame it was tried with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Try again later.
    NoRoom,
    /// Try again at once: a signal came in between.
    Interrupted,
    /// Nothing gets out now.
    LinkDown,
    /// This frame is too long.
    TooLong,
    /// This frame will not be sent.
    Refused,
}

impl Refusal {
    pub(crate) fn of(error: &io::Error) -> Self {
        match error.raw_os_error().unwrap_or(0) {
            libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM => Self::NoRoom,
            libc::EINTR => Self::Interrupted,
            libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::ENETUNREACH | libc::EHOSTUNREACH => {
                Self::LinkDown
            }
            libc::EMSGSIZE => Self::TooLong,
            _ => Self::Refused,
        }
    }
}

/// Sets an option whose value is an `int`.
pub(crate) fn set_int(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: `value` lives through the call and its size is the one given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of::<i32>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option into `value`; returns how many bytes the kernel wrote.
fn get<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &mut MaybeUninit<T>) -> io::Result<usize> {
    let mut bytes = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which is what `value` holds.
    let result =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut bytes) };
    if result == 0 { Ok(bytes as usize) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option whose value is an `int`.
pub(crate) fn get_int(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = MaybeUninit::new(0_i32);
    get(fd, level, name, &mut value)?;
    // SAFETY: initialised above; any bits are an i32.
    Ok(unsafe { value.assume_init() })
}

/// Frames that the kernel dropped because this socket's receive buffer was full, modulo 2^32.
pub(crate) fn receive_drops(fd: BorrowedFd<'_>) -> io::Result<u32> {
    // linux/sock_diag.h: SK_MEMINFO_DROPS is the last of the nine words of SO_MEMINFO.
    const WORDS: usize = 9;
    const DROPS: usize = 8;
    let mut words = MaybeUninit::new([0_u32; WORDS]);
    get(fd, libc::SOL_SOCKET, libc::SO_MEMINFO, &mut words)?;
    // SAFETY: initialised above; any bits are u32s.
    Ok(unsafe { words.assume_init() }[DROPS])
}

/// Raises both buffers of a socket towards `bytes`: past the system's limit where the process may, to it otherwise.
pub(crate) fn raise_buffers(fd: BorrowedFd<'_>, bytes: usize) {
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set_int(fd, libc::SOL_SOCKET, force, bytes).is_err() {
            // Small buffers lose frames under load, which is counted; they are no reason not to open.
            let _ = set_int(fd, libc::SOL_SOCKET, plain, bytes);
        }
    }
}

/// Folds the kernel's 32-bit drop count into a 64-bit one, at most every [`Drops::PERIOD_NS`].
#[derive(Debug, Default)]
pub(crate) struct Drops {
    seen: u32,
    next_ns: u64,
}

impl Drops {
    const PERIOD_NS: u64 = 100_000_000;

    /// Frames dropped since the last answer, if it is time to ask.
    pub(crate) fn since_last(&mut self, fd: BorrowedFd<'_>, now_ns: u64) -> u64 {
        if now_ns < self.next_ns {
            return 0;
        }
        self.next_ns = now_ns.saturating_add(Self::PERIOD_NS);
        let Ok(total) = receive_drops(fd) else { return 0 };
        u64::from(total.wrapping_sub(mem::replace(&mut self.seen, total)))
    }
}
