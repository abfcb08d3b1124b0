//! Clients that take their memory away.

#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use etherslot_mem::{Access, FaultReason, GuestMemory, sigbus};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

const PAGE: u64 = 4096;
const ALL: Access = Access::READ_WRITE;

/// The count of pages lost is the process's: tests that look at it, or change it, run one after the other.
fn alone_in_process() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn memfd(bytes: u64, flags: MemfdFlags) -> Option<OwnedFd> {
    let fd = memfd_create("lost", MemfdFlags::CLOEXEC | flags).ok()?;
    ftruncate(&fd, bytes).ok()?;
    Some(fd)
}

fn shared(bytes: u64) -> (GuestMemory, OwnedFd) {
    let (mut memory, fd) = (GuestMemory::default(), memfd(bytes, MemfdFlags::empty()).unwrap());
    memory.map(Some(fd.as_fd()), 0, 0, bytes, ALL).unwrap();
    (memory, fd)
}

fn is_lost(result: Result<(), etherslot_mem::MemFault>) -> bool {
    result.is_err_and(|fault| fault.reason == FaultReason::Lost)
}

#[test]
fn access_to_memory_that_is_gone_fails_and_other_memory_stays() {
    let _turn = alone_in_process();
    let (memory, fd) = shared(64 * PAGE);
    memory.write(0, &[7; 64]).unwrap();
    let before = sigbus::recovered_total();
    ftruncate(&fd, 60 * PAGE).unwrap();
    let mut data = [1; 64];
    assert!(is_lost(memory.read(60 * PAGE + 100, &mut data)));
    assert!(is_lost(memory.write(61 * PAGE, &data)));
    assert!(is_lost(memory.write(60 * PAGE - 32, &data)), "half of it is gone");
    // Replaced by now, and still not the client's.
    assert!(is_lost(memory.write(60 * PAGE, &data)));
    memory.read(0, &mut data).unwrap();
    assert_eq!(data, [7; 64]);
    memory.write(59 * PAGE, &data).unwrap();
    assert!(sigbus::recovered_total() >= before + 2);
}

#[test]
fn a_client_that_takes_much_away_is_given_up() {
    let _turn = alone_in_process();
    let (memory, fd) = shared(64 * PAGE);
    ftruncate(&fd, 32 * PAGE).unwrap();
    for page in 32..40 {
        assert!(is_lost(memory.read(page * PAGE, &mut [0])));
    }
    memory.write(0, &[1]).unwrap();
    assert!(is_lost(memory.write(40 * PAGE, &[1])));
    assert!(is_lost(memory.write(0, &[1])));
    // What is known to be gone is not touched again, and nothing more put in its place.
    let before = sigbus::recovered_total();
    assert!(is_lost(memory.write(63 * PAGE, &[1])));
    assert_eq!(sigbus::recovered_total(), before);
}

#[test]
fn a_client_that_maps_anew_starts_anew() {
    let _turn = alone_in_process();
    let (mut memory, fd) = shared(4 * PAGE);
    ftruncate(&fd, 0).unwrap();
    assert!(is_lost(memory.write(0, &[1; 3 * PAGE as usize])));
    assert!(memory.map(Some(fd.as_fd()), 0, 8 * PAGE, PAGE, ALL).is_err());
    memory.clear();
    ftruncate(&fd, 4 * PAGE).unwrap();
    memory.map(Some(fd.as_fd()), 0, 0, 4 * PAGE, ALL).unwrap();
    memory.write(0, &[1; 3 * PAGE as usize]).unwrap();
}

#[test]
fn memory_may_go_while_it_is_copied() {
    let _turn = alone_in_process();
    let (memory, fd) = shared(256 * PAGE);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                ftruncate(&fd, PAGE).unwrap();
                ftruncate(&fd, 256 * PAGE).unwrap();
            }
            done.store(true, Ordering::Release);
        });
        let mut data = vec![0; 64 * PAGE as usize];
        while !done.load(Ordering::Acquire) {
            let _ = memory.read(128 * PAGE, &mut data);
            let _ = memory.write(128 * PAGE, &data);
        }
    });
}

const HUGE: u64 = 2 << 20;

/// Needs free huge pages; without, there is nothing to see.
#[test]
fn huge_pages_are_mapped_at_any_page_and_may_go_too() {
    let _turn = alone_in_process();
    let Some(fd) = memfd(2 * HUGE, MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) else { return };
    let mut memory = GuestMemory::default();
    // As QEMU does around 640 KiB: the window starts within a huge page of the file.
    memory.map(Some(fd.as_fd()), 0xc_0000, 0xc_0000, 2 * HUGE - 0xc_0000, ALL).unwrap();
    if memory.write(HUGE, b"in the second page").is_err() {
        return;
    }
    let mut data = [0; 18];
    memory.read(HUGE, &mut data).unwrap();
    assert_eq!(&data, b"in the second page");
    ftruncate(&fd, HUGE).unwrap();
    assert!(is_lost(memory.write(HUGE + 5 * PAGE, &[1; 8])));
    assert!(is_lost(memory.read(2 * HUGE - 8, &mut [0; 8])), "it went with the huge page");
    assert_eq!(memory.write(HUGE - 8, &[1; 8]), Ok(()));
}

/// Runs the test `name` of this program in a process of its own, where it does what it does only there.
fn alone(name: &str) -> std::process::ExitStatus {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]).env("RUST_BACKTRACE", "0");
    command.output().unwrap().status
}

fn touch_what_is_not_there() {
    let fd = memfd(PAGE, MemfdFlags::empty()).unwrap();
    // SAFETY: a new mapping; the access to it is what the test is about.
    unsafe {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let start = mmap(std::ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::SHARED, &fd, 0).unwrap();
        ftruncate(&fd, 0).unwrap();
        start.cast::<u8>().read_volatile();
    }
}

#[test]
fn a_sigbus_that_is_not_ours_still_ends_the_process() {
    for name in ["fault_elsewhere", "signal_sent"] {
        assert_eq!(alone(name).signal(), Some(libc::SIGBUS), "{name}");
    }
}

#[test]
#[ignore = "ends the process: run by the test above"]
fn fault_elsewhere() {
    let _memory = shared(PAGE);
    touch_what_is_not_there();
}

#[test]
#[ignore = "ends the process: run by the test above"]
fn signal_sent() {
    // SAFETY: the default action needs no handler. (The standard library's own takes a signal that was sent for a fault that
    // will come again.)
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
    let _memory = shared(PAGE);
    // SAFETY: `raise` has no conditions.
    unsafe { libc::raise(libc::SIGBUS) };
}

extern "C" fn leave(_signal: libc::c_int) {
    // SAFETY: `_exit` has no conditions.
    unsafe { libc::_exit(42) }
}

#[test]
fn a_handler_that_was_there_before_gets_what_is_not_ours() {
    assert_eq!(alone("handled_elsewhere").code(), Some(42));
}

#[test]
#[ignore = "ends the process: run by the test above"]
fn handled_elsewhere() {
    // SAFETY: `leave` is async-signal-safe.
    unsafe { libc::signal(libc::SIGBUS, leave as *const () as usize) };
    let (memory, fd) = shared(2 * PAGE);
    ftruncate(&fd, 0).unwrap();
    assert!(is_lost(memory.write(0, &[1])));
    touch_what_is_not_there();
}
