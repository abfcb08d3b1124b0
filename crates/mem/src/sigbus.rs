//! Memory that its owner takes away.
//!
//! A client may shrink the file behind its memory after we mapped it (or its file system or a memory bank may fail);
//! touching such a page raises SIGBUS, which kills a process by default. Refusing files that can shrink is no
//! way out: QEMU's `memory-backend-memfd` can be sealed, but `memory-backend-file` on tmpfs or hugetlbfs never
//! is, and a seal says nothing about failing memory or an empty pool of huge pages. So a process-wide handler
//! looks the address up in a table of our mappings, puts a private page in the place of the lost one, notes it, and
//! lets the copy go on; the access is then reported as failed. Pages noted stay failed; when there are
//! more than [`LOST_PAGES`] the whole mapping is given up, which bounds the memory spent on replacements. A SIGBUS from
//! anywhere else goes to the handler that was there before.
//!
//! The handler is async-signal-safe: it reads atomics and calls `mmap`.

use std::ffi::c_void;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// How many mappings a process can have; each client needs one per file, and another if it shares it read-only too.
pub const MAPPINGS: usize = 1024;
/// How many pages a mapping can lose before it is given up.
pub const LOST_PAGES: usize = 8;

struct Slot {
    claimed: AtomicBool,
    /// 0 while there is no mapping: written last when one comes, first when it goes.
    start: AtomicUsize,
    bytes: AtomicUsize,
    page_bytes: AtomicUsize,
    lost: AtomicUsize,
    pages: [AtomicUsize; LOST_PAGES],
}

static TABLE: [Slot; MAPPINGS] = [const {
    Slot {
        claimed: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        bytes: AtomicUsize::new(0),
        page_bytes: AtomicUsize::new(0),
        lost: AtomicUsize::new(0),
        pages: [const { AtomicUsize::new(0) }; LOST_PAGES],
    }
}; MAPPINGS];

static RECOVERED: AtomicU64 = AtomicU64::new(0);
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// How many pages clients have taken away under us since the process started.
pub fn recovered_total() -> u64 {
    RECOVERED.load(Ordering::Relaxed)
}

/// A mapping's place in the table; while it lives, SIGBUS within the mapping is recovered from.
#[derive(Debug)]
pub(crate) struct Guard {
    index: usize,
}

impl Guard {
    /// Protects `bytes` bytes from `start` on, of pages of `page_bytes`, to which both are aligned. `None` if the table is
    /// full or no handler can be set.
    pub(crate) fn new(start: usize, bytes: usize, page_bytes: usize) -> Option<Self> {
        if !install() {
            return None;
        }
        let index = TABLE.iter().position(|slot| !slot.claimed.swap(true, Ordering::Acquire))?;
        let slot = &TABLE[index];
        slot.bytes.store(bytes, Ordering::Relaxed);
        slot.page_bytes.store(page_bytes, Ordering::Relaxed);
        slot.lost.store(0, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Some(Self { index })
    }

    /// Ends the protection: to be called before the range is unmapped, since it may be anybody's after.
    pub(crate) fn retire(&self) {
        TABLE[self.index].start.store(0, Ordering::Release);
    }

    /// Whether any page of the mapping was lost: asked with every copy.
    #[inline]
    pub(crate) fn any_lost(&self) -> bool {
        TABLE[self.index].lost.load(Ordering::Acquire) != 0
    }

    /// Whether `bytes` bytes (not 0) from `start` on touch a lost page, or the mapping is given up.
    #[cold]
    pub(crate) fn is_lost(&self, start: usize, bytes: usize) -> bool {
        let slot = &TABLE[self.index];
        let lost = slot.lost.load(Ordering::Acquire);
        let page_bytes = slot.page_bytes.load(Ordering::Relaxed);
        lost > LOST_PAGES
            || slot.pages[..lost].iter().any(|page| {
                let page = page.load(Ordering::Relaxed);
                start < page + page_bytes && page < start + bytes
            })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.retire();
        TABLE[self.index].claimed.store(false, Ordering::Release);
    }
}

/// Sets the handler, once in the life of the process.
fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: `sigaction` is plain data for which all zeros is a value.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only asks; `previous` is valid for writes.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
            return false;
        }
        // Known before ours is in place, so that ours always finds it.
        let _ = PREVIOUS.set(previous);
        // SAFETY: as above.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_sigbus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: `action` is complete; the handler is async-signal-safe and has the signature SA_SIGINFO asks for.
        unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0 }
    })
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to an SA_SIGINFO handler.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // Codes above 0 are the kernel's own faults; an address is only in those.
    if code > 0 && recover(address) {
        return;
    }
    forward(signal, code, info, context);
}

fn recover(address: usize) -> bool {
    for slot in &TABLE {
        let start = slot.start.load(Ordering::Acquire);
        if start == 0 || address.wrapping_sub(start) >= slot.bytes.load(Ordering::Relaxed) {
            continue;
        }
        let page_bytes = slot.page_bytes.load(Ordering::Relaxed);
        let page = address & !(page_bytes - 1);
        // SAFETY: the page lies within a mapping of ours that only the copy under way touches, which has just found it
        // gone; nothing else can be there.
        let replaced = unsafe {
            mmap_anonymous(
                ptr::with_exposed_provenance_mut(page),
                page_bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE,
            )
        };
        if replaced.is_err() {
            return false;
        }
        let index = slot.lost.load(Ordering::Relaxed);
        if let Some(place) = slot.pages.get(index) {
            place.store(page, Ordering::Relaxed);
        }
        slot.lost.store(index.saturating_add(1), Ordering::Release);
        RECOVERED.fetch_add(1, Ordering::Relaxed);
        return true;
    }
    false
}

/// Does with a SIGBUS that is not ours what would have been done without us.
fn forward(signal: libc::c_int, code: libc::c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS
        .get()
        .filter(|previous| previous.sa_sigaction != libc::SIG_DFL && previous.sa_sigaction != libc::SIG_IGN);
    match previous {
        Some(previous) if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: an action with SA_SIGINFO holds a function of this signature.
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(previous.sa_sigaction) };
            handler(signal, info, context);
        }
        Some(previous) => {
            // SAFETY: an action without SA_SIGINFO that is neither SIG_DFL nor SIG_IGN holds a function of this signature.
            let handler: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(previous.sa_sigaction) };
            handler(signal);
        }
        None => {
            // SAFETY: `signal` and `raise` are async-signal-safe. The faulting instruction is run again after we
            // return and ends the process; a signal that was sent is sent again.
            unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if code <= 0 {
                    libc::raise(signal);
                }
            }
        }
    }
}
