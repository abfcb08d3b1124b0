//! A network namespace of a test's own: it is the thread's, and gone with it.
#![allow(unsafe_code)] // Leaving the namespace of the process; packet sockets exist only in C.
#![allow(dead_code)] // Not every test needs all of it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;

/// Runs `test` on a thread in a fresh network namespace with a veth pair `left` and `right`, both up; without the privilege it
/// prints why not.
pub(crate) fn with_veth(test: impl FnOnce() + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: a network namespace needs root");
        return;
    }
    let thread = std::thread::spawn(|| {
        // SAFETY: no file descriptor table is unshared, only the network namespace of this thread.
        if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
            println!("skipped: no network namespace can be made here ({error})");
            return;
        }
        ip("link set lo up");
        ip("link add name left type veth peer name right");
        ip("link set left up");
        ip("link set right up");
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Runs `ip` with these arguments in the thread's namespace.
pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().expect("iproute2 is installed");
    assert!(status.success(), "ip {arguments}");
}

/// Sends one frame, Ethernet header and all.
pub(crate) fn send_raw(interface: &str, frame: &[u8]) {
    let socket: OwnedFd =
        rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .expect("a packet socket");
    // SAFETY: all zeroes are a valid `sockaddr_ll`.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as libc::sa_family_t;
    to.sll_ifindex =
        rustix::net::netdevice::name_to_index(&socket, interface).expect("an interface").cast_signed();
    // SAFETY: frame and address live through the call and their lengths are true.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            std::mem::size_of_val(&to) as libc::socklen_t,
        )
    };
    assert_eq!(usize::try_from(sent).ok(), Some(frame.len()));
}
