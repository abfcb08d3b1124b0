//! Memory regions and windows.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU8, Ordering};

use etherslot_rdma::{Access, ControlError, Layout, Region};
use etherslot_vfio::{MapError, Mapping};

use super::context::{OurContext, OurPd};
use super::null;
use super::types::{Mr, Mw, Pd};

const LOCAL_WRITE: u32 = 1;
const REMOTE_WRITE: u32 = 1 << 1;
const REMOTE_READ: u32 = 1 << 2;
const REMOTE_ATOMIC: u32 = 1 << 3;
const MW_BIND: u32 = 1 << 4;
pub(crate) const ZERO_BASED: u32 = 1 << 5;
const HUGETLB: u32 = 1 << 7;
/// Flags that may be ignored: relaxed ordering is one.
const OPTIONAL: u32 = 0x3FF0_0000;

/// Keys differ from use to use of an STag.
static KEY: AtomicU8 = AtomicU8::new(0x51);

/// What the engine calls these rights.
pub(crate) fn access(flags: u32) -> Access {
    [
        (LOCAL_WRITE, Access::LOCAL_WRITE),
        (REMOTE_READ, Access::REMOTE_READ),
        (REMOTE_WRITE, Access::REMOTE_WRITE),
        (REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (MW_BIND, Access::BIND),
    ]
    .into_iter()
    .filter(|(flag, _)| flags & flag != 0)
    .fold(Access::LOCAL_READ, |all, (_, access)| all | access)
}

fn code(error: ControlError) -> c_int {
    match error {
        ControlError::Unknown | ControlError::Invalid => libc::EINVAL,
        ControlError::InUse => libc::EBUSY,
        ControlError::NoRoom => libc::ENOMEM,
    }
}

/// Whether the process has memory in all of this range.
fn is_mapped(address: *const c_void, bytes: usize) -> bool {
    const PAGE: usize = 4096;
    let start = address as usize & !(PAGE - 1);
    let Some(end) = (address as usize).checked_add(bytes) else { return false };
    // SAFETY: with this flag the call does nothing but to look.
    bytes == 0 || unsafe { libc::msync(start as *mut c_void, end - start, libc::MS_ASYNC) } == 0
}

unsafe fn register(pd: *mut Pd, address: *mut c_void, length: usize, iova: u64, flags: u32) -> *mut Mr {
    let known = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC | MW_BIND | ZERO_BASED | HUGETLB;
    if flags & !(known | OPTIONAL) != 0 {
        // On-demand paging is needed by nobody whose pages may be anywhere.
        return null(libc::EOPNOTSUPP);
    }
    if !is_mapped(address, length) {
        return null(libc::EFAULT);
    }
    // SAFETY: the program's domain and its context.
    let (domain, ours) = unsafe { (OurPd::of(pd), OurContext::of((*pd).context)) };
    let mut core = ours.rnic.lock();
    let mapping = match core.engine().dma().filter(|_| length > 0) {
        // SAFETY: the program registers its memory for what the RNIC reads and writes there, and keeps it until it deregisters it.
        Some(dma) => match unsafe { dma.map(address.cast(), length, flags & LOCAL_WRITE != 0) } {
            Ok(mapping) => Some(mapping),
            Err(MapError::Refused(error)) => return null(error.raw_os_error().unwrap_or(libc::EIO)),
            Err(MapError::NoAddress) => return null(libc::ENOMEM),
            Err(MapError::Empty) => return null(libc::EINVAL),
        },
        None => None,
    };
    let region = Region {
        pd: domain.number,
        access: access(flags),
        base: if flags & ZERO_BASED != 0 { 0 } else { iova },
        length: length as u64,
        key: KEY.fetch_add(1, Ordering::Relaxed),
        // Addresses of the process, or of the map, are as contiguous as the region: no page list, whatever its size.
        layout: Layout::Direct { address: mapping.as_ref().map_or(address as u64, Mapping::address) },
    };
    match core.engine().register(&region, mapping) {
        Ok(stag) => {
            // SAFETY: the program's domain.
            let context = unsafe { (*pd).context };
            Box::into_raw(Box::new(Mr {
                context,
                pd,
                addr: address,
                length,
                handle: stag >> 8,
                lkey: stag,
                rkey: stag,
            }))
        }
        Err(error) => null(code(error)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(pd: *mut Pd, address: *mut c_void, length: usize, access: c_int) -> *mut Mr {
    // SAFETY: as the header asks.
    unsafe { register(pd, address, length, address as u64, access.cast_unsigned()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut Pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut Mr {
    // SAFETY: as the header asks.
    unsafe { register(pd, address, length, iova, access.cast_unsigned()) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut Pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut Mr {
    // SAFETY: as the header asks.
    unsafe { register(pd, address, length, iova, access) }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_reg_dmabuf_mr(
    _pd: *mut Pd,
    _offset: u64,
    _length: usize,
    _iova: u64,
    _fd: c_int,
    _access: c_int,
) -> *mut Mr {
    null(libc::EOPNOTSUPP)
}

/// Registers anew: the keys change.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut Mr,
    flags: c_int,
    pd: *mut Pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    const TRANSLATION: c_int = 1;
    const PD: c_int = 2;
    const ACCESS: c_int = 4;
    const INPUT: c_int = -1;
    const COMMAND: c_int = -4;
    // The old rights are not kept, so they have to be said.
    if flags & !(TRANSLATION | PD | ACCESS) != 0 || flags & ACCESS == 0 {
        return INPUT;
    }
    // SAFETY: the program's region.
    let old = unsafe { &mut *mr };
    let pd = if flags & PD != 0 { pd } else { old.pd };
    let (address, length) = if flags & TRANSLATION != 0 { (address, length) } else { (old.addr, old.length) };
    // SAFETY: as the header asks.
    let new = unsafe { register(pd, address, length, address as u64, access.cast_unsigned()) };
    if new.is_null() {
        return INPUT;
    }
    // SAFETY: made just now, by register.
    let new = unsafe { Box::from_raw(new) };
    // SAFETY: the region's context.
    let removed = unsafe { OurContext::of(old.context) }.rnic.lock().engine().deregister(old.lkey);
    *old = *new;
    if removed.is_ok() { 0 } else { COMMAND }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut Mr) -> c_int {
    // SAFETY: the program's region, and its context.
    let removed = unsafe { OurContext::of((*mr).context).rnic.lock().engine().deregister((*mr).lkey) };
    match removed {
        Ok(()) => {
            // SAFETY: made by register, and not used after this.
            drop(unsafe { Box::from_raw(mr) });
            0
        }
        Err(error) => code(error),
    }
}

pub(crate) unsafe extern "C" fn alloc_mw(pd: *mut Pd, kind: c_int) -> *mut Mw {
    // SAFETY: the program's domain and its context.
    let (domain, context) = unsafe { (OurPd::of(pd), (*pd).context) };
    // SAFETY: as above.
    let stag = unsafe { OurContext::of(context) }.rnic.lock().engine().allocate_window(domain.number);
    match stag {
        Ok(rkey) => Box::into_raw(Box::new(Mw { context, pd, rkey, handle: rkey >> 8, kind })),
        Err(error) => null(code(error)),
    }
}

pub(crate) unsafe extern "C" fn dealloc_mw(mw: *mut Mw) -> c_int {
    // SAFETY: made by alloc_mw, and not used after this.
    let mw = unsafe { Box::from_raw(mw) };
    // SAFETY: the window's context.
    let freed = unsafe { OurContext::of(mw.context) }.rnic.lock().engine().free_window(mw.rkey);
    freed.map_or_else(code, |()| 0)
}

// --- What the address space of a child process has: nothing has to be done for it, since the engine writes to the
// parent's memory as the parent itself does ---

#[unsafe(no_mangle)]
extern "C" fn ibv_fork_init() -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_is_fork_initialized() -> c_int {
    const UNNEEDED: c_int = 2;
    UNNEEDED
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dontfork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_dofork_range(_base: *mut c_void, _size: usize) -> c_int {
    0
}
