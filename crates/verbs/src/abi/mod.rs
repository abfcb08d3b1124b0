//! The ABI room: `libibverbs.so.1` in Rust. All `unsafe` of the crate is here.
//!
//! A program gets pointers to the structures of the header ([`types`]); each is the first field of one of ours, which the
//! functions get back to by the same pointer. What the header asks of a program (to hand over what it was given, and not
//! after it has destroyed it) is what the functions here ask of their callers, too: no more is said of it below.
#![allow(unsafe_code)] // A C ABI.
#![allow(clippy::missing_safety_doc)] // The header's rules, as said above.

pub mod cma;
mod completions;
mod context;
mod memory;
mod names;
pub mod on_the_fly;
mod pairs;
mod regions;
mod stubs;
pub mod types;
mod work;
mod work_ex;

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::device::{Device, DeviceError, DeviceOptions, Which};
use crate::function::FunctionError;
use crate::link::Link;
use etherslot_vfio::OpenError;
use memory::ProcessMemory;

/// The device, as this room has it.
type Rnic = Device<ProcessMemory>;

/// The device of this process, and how many contexts have it.
struct Process {
    device: Option<Arc<Rnic>>,
    contexts: usize,
    /// Connections; they have a context.
    cm: Option<cma::Shared>,
}

static PROCESS: Mutex<Process> = Mutex::new(Process { device: None, contexts: 0, cm: None });

fn process() -> MutexGuard<'static, Process> {
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Environment: the IPv4 address of the device, the MTU, the slot, the link, and the PCI Function that is the device (or `none`).
const IP_VARIABLE: &str = "ETHERSLOT_VERBS_IP";
const MTU_VARIABLE: &str = "ETHERSLOT_VERBS_MTU";
const SLOT_VARIABLE: &str = "ETHERSLOT_VERBS_SLOT";
const LINK_VARIABLE: &str = "ETHERSLOT_VERBS_LINK";
const FUNCTION_VARIABLE: &str = "ETHERSLOT_VERBS_FUNCTION";

/// How the environment wants the device; none if it is not to be understood.
fn options() -> Option<DeviceOptions> {
    fn set<T>(option: &mut Option<T>, name: &str) -> Option<()>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        let Ok(text) = std::env::var(name) else { return Some(()) };
        match text.parse() {
            Ok(value) => *option = Some(value),
            Err(error) => {
                eprintln!("etherslot verbs: {name}={text:?} is not understood: {error}");
                return None;
            }
        }
        Some(())
    }
    let mut options = DeviceOptions::default();
    set(&mut options.ip, IP_VARIABLE)?;
    set(&mut options.mtu, MTU_VARIABLE)?;
    set(&mut options.slot, SLOT_VARIABLE)?;
    let mut link: Option<Link> = None;
    set(&mut link, LINK_VARIABLE)?;
    options.link = link.unwrap_or_default();
    let mut function: Option<Which> = None;
    set(&mut function, FUNCTION_VARIABLE)?;
    options.function = function.unwrap_or_default();
    Some(options)
}

impl Process {
    /// The device for one more context.
    fn enter(&mut self) -> Option<Arc<Rnic>> {
        if self.device.is_none() {
            prepare();
            match Device::open(&options()?, ProcessMemory, settle) {
                Ok(device) => self.device = Some(device),
                Err(error) => {
                    eprintln!("etherslot verbs: the device cannot be opened: {error}");
                    let code = match error {
                        DeviceError::Io(error) => error.raw_os_error().unwrap_or(libc::EIO),
                        DeviceError::NoSlot(_)
                        | DeviceError::SlotTaken(_)
                        | DeviceError::InterfaceTaken(_)
                        | DeviceError::Function(FunctionError::Open(OpenError::Busy(_))) => libc::EBUSY,
                        DeviceError::NoSuchSlot(_) | DeviceError::NotItsAddress(..) => libc::EINVAL,
                        DeviceError::NoAddress
                        | DeviceError::NoAddressOf(_)
                        | DeviceError::Open(_)
                        | DeviceError::Function(_) => libc::ENODEV,
                    };
                    set_errno(code);
                    return None;
                }
            }
        }
        self.contexts += 1;
        self.device.clone()
    }

    /// A context is closed.
    fn leave(&mut self) {
        self.contexts -= 1;
        if self.contexts == 0
            && let Some(device) = self.device.take()
        {
            device.close();
        }
    }
}

/// The program's signals are the program's.
fn block_signals() {
    // SAFETY: the set is filled before it is used; both live through the call.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, ptr::null_mut());
    }
}

/// What the device's thread does first.
fn settle() {
    /// `struct sched_attr` of Linux 3.14, without what came later.
    #[repr(C)]
    #[derive(Default)]
    struct SchedAttr {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    const TIMER_SLACK_NS: libc::c_ulong = 1000;
    /// The least that the kernel takes.
    const SLICE_NS: u64 = 100_000;
    block_signals();
    // SAFETY: these change nothing but how this thread is scheduled; the structure is as long as it says, and lives through the call.
    unsafe {
        // It sleeps for microseconds, which the kernel would make fifty more.
        libc::prctl(libc::PR_SET_TIMERSLACK, TIMER_SLACK_NS);
        // Who asks for short turns gets them soon (Linux 6.12): a program that spins on memory makes way for it. Kernels of before
        // do nothing.
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        let attr = SchedAttr {
            size: size_of::<SchedAttr>() as u32,
            nice,
            runtime_ns: SLICE_NS,
            ..SchedAttr::default()
        };
        if libc::sched_getscheduler(0) == libc::SCHED_OTHER {
            libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0);
        }
    }
}

/// What is to be done once in a process: peers are told when it ends, and a child that it forks leaves the parent's
/// device alone.
fn prepare() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    extern "C" fn at_exit() {
        // Whoever holds the lock ends with the process.
        if let Ok(mut process) = PROCESS.try_lock()
            && let Some(device) = process.device.take()
        {
            device.say_goodbye();
            // Its thread still runs.
            std::mem::forget(device);
        }
    }
    unsafe extern "C" fn in_child() {
        if let Ok(mut process) = PROCESS.try_lock() {
            // Sockets and sessions are the parent's: nothing is closed.
            std::mem::forget(process.device.take());
            cma::forget(process.cm.take());
            process.contexts = 0;
        }
    }
    // SAFETY: both are functions of this library, which is never unloaded once it has a thread.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_child));
    });
}

fn set_errno(code: c_int) {
    // SAFETY: the address is this thread's own.
    unsafe { *libc::__errno_location() = code }
}

/// NULL, with a reason.
fn null<T>(code: c_int) -> *mut T {
    set_errno(code);
    ptr::null_mut()
}

/// Waits until a program has acknowledged as many events as it was given.
///
/// # Safety
/// `completed` is a counter of a structure that is not destroyed yet.
unsafe fn wait_for_acks(completed: *mut u32, given: &AtomicU32) {
    // SAFETY: aligned, alive, and changed by atomics only.
    let completed = unsafe { AtomicU32::from_ptr(completed) };
    while completed.load(Ordering::Acquire) != given.load(Ordering::Acquire) {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}

/// More events were acknowledged.
///
/// # Safety
/// As [`wait_for_acks`].
unsafe fn acknowledge(completed: *mut u32, count: u32) {
    // SAFETY: as there.
    unsafe { AtomicU32::from_ptr(completed) }.fetch_add(count, Ordering::Release);
}
