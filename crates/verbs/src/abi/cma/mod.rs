//! `librdmacm.so.1`: the connection manager, in the same object as verbs, since it has the same device.
//!
//! As there, structures of the header are the first field of one of ours.

mod address;
mod addrinfo;
mod calls;
mod events;
mod pairs;
mod rsockets;
pub mod types;

use std::ffi::{c_int, c_void};
use std::mem::{self, ManuallyDrop};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etherslot_wire::cm::{Service, Space};

use super::context::{self, OurContext};
use super::memory::ProcessMemory;
use super::types::{Context, Pd, QpInitAttr};
use super::{block_signals, null, process, set_errno};
use crate::cm::{CmError, Event, Id, Kind};
use crate::queue::Queue;
use types::{CmId, EventChannel, PathRec};

/// The connections, as this room has them.
type Manager = crate::cm::Manager<ProcessMemory>;

const QPT_RC: c_int = 2;
const QPT_UC: c_int = 3;
const QPT_UD: c_int = 4;

/// What connections need of a process, once it has made an id.
#[derive(Clone)]
pub(super) struct Shared {
    manager: Arc<Manager>,
    /// The context of all ids, and a domain for QPs whose program gives none. Both stay.
    context: usize,
    pd: usize,
}

impl Shared {
    fn context(&self) -> *mut Context {
        self.context as *mut Context
    }

    fn pd(&self) -> *mut Pd {
        self.pd as *mut Pd
    }
}

/// What there is already.
fn started() -> Option<Shared> {
    process().cm.clone()
}

/// The same, begun if there is none; a reason is in errno.
fn shared() -> Option<Shared> {
    // Whoever comes meanwhile waits.
    static BEGINNING: Mutex<()> = Mutex::new(());
    let _guard = BEGINNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = started() {
        return Some(shared);
    }
    // SAFETY: the only device; the context is ours.
    let (context, pd, rnic) = unsafe {
        let context = context::ibv_open_device(context::device());
        if context.is_null() {
            return None;
        }
        (context, context::ibv_alloc_pd(context), Arc::clone(&OurContext::of(context).rnic))
    };
    if pd.is_null() {
        return None;
    }
    match Manager::new(rnic, block_signals) {
        Ok(manager) => {
            let shared = Shared { manager, context: context as usize, pd: pd as usize };
            process().cm = Some(shared.clone());
            Some(shared)
        }
        Err(error) => {
            eprintln!("etherslot verbs: connections cannot be managed: {error}");
            // SAFETY: ours, and not used after this.
            unsafe {
                context::ibv_dealloc_pd(pd);
                context::ibv_close_device(context);
            }
            set_errno(error.raw_os_error().unwrap_or(libc::EIO));
            None
        }
    }
}

fn code(error: CmError) -> c_int {
    -error.status()
}

/// 0; or -1, and why in errno.
fn done(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(code) => {
            set_errno(code);
            -1
        }
    }
}

/// An event channel.
#[repr(C)]
struct OurChannel {
    channel: EventChannel,
    queue: Arc<Queue<Event>>,
}

impl OurChannel {
    #[allow(
        clippy::cast_ptr_alignment,
        reason = "the program has the address of the first field of one of ours"
    )]
    fn around(channel: *mut EventChannel) -> *mut Self {
        channel.cast()
    }

    /// # Safety
    /// `channel` is one that we made, not destroyed.
    unsafe fn queue(channel: *mut EventChannel) -> Arc<Queue<Event>> {
        // SAFETY: it is the first field.
        unsafe { Arc::clone(&(*Self::around(channel)).queue) }
    }
}

#[unsafe(no_mangle)]
extern "C" fn rdma_create_event_channel() -> *mut EventChannel {
    let Ok(queue) = Queue::new() else { return null(libc::EMFILE) };
    let channel = EventChannel { fd: queue.as_fd().as_raw_fd() };
    Box::into_raw(Box::new(OurChannel { channel, queue: Arc::new(queue) })).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_event_channel(channel: *mut EventChannel) {
    // SAFETY: made by rdma_create_event_channel, and not used after this.
    drop(unsafe { Box::from_raw(OurChannel::around(channel)) });
}

/// An id.
#[repr(C)]
struct OurId {
    id: CmId,
    handle: Id,
    shared: Shared,
    own: Mutex<Own>,
    /// Events that the program was given, and gave back.
    given: AtomicU32,
    acked: AtomicU32,
}

struct Own {
    /// Calls wait for what they begin; the channel is the id's.
    is_sync: bool,
    /// Of a listener made by `rdma_create_ep`: what QPs of those who ask are to be.
    passive: Option<QpInitAttr>,
    path: Box<PathRec>,
}

impl OurId {
    /// # Safety
    /// `id` is one that we made, not destroyed.
    unsafe fn of<'a>(id: *mut CmId) -> &'a Self {
        // SAFETY: it is the first field.
        unsafe { &*id.cast::<Self>() }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manager(&self) -> &Manager {
        &self.shared.manager
    }

    /// An id with this handle, on a channel; without one it has its own.
    ///
    /// # Safety
    /// The channel is the program's, or null.
    unsafe fn make(
        shared: Shared,
        handle: Id,
        channel: *mut EventChannel,
        is_sync: bool,
        context: *mut c_void,
        (ps, qp_type): (c_int, c_int),
    ) -> *mut CmId {
        // SAFETY: zeros are a valid value.
        let zero: CmId = unsafe { mem::zeroed() };
        let id = CmId { channel, context, ps, qp_type, ..zero };
        let own = Own { is_sync, passive: None, path: Box::default() };
        let (given, acked) = (AtomicU32::new(0), AtomicU32::new(0));
        let ours = Box::new(Self { id, handle, shared, own: Mutex::new(own), given, acked });
        let ours = Box::into_raw(ours);
        // SAFETY: made above.
        let manager = unsafe { &(*ours).shared.manager };
        // It exists: its maker has it.
        let _ = manager.look(|connections| connections.set_name(handle, ours as u64));
        ours.cast()
    }

    /// Frees an id whose handle is gone.
    ///
    /// # Safety
    /// It is not used after this.
    unsafe fn free(id: *mut CmId) {
        // SAFETY: made by `make`; its channel is its own if calls wait.
        unsafe {
            let ours = Box::from_raw(id.cast::<Self>());
            if ours.own().is_sync {
                rdma_destroy_event_channel(ours.id.channel);
            }
        }
    }
}

/// The service of a kind of QP.
fn service(qp_type: c_int) -> Result<Service, c_int> {
    Ok(match qp_type {
        QPT_RC => Service::Rc,
        QPT_UC => Service::Uc,
        QPT_UD => Service::Ud,
        _ => return Err(libc::EOPNOTSUPP),
    })
}

/// # Safety
/// The channel is the program's, or null; `out` is a place of the caller's.
unsafe fn create(
    channel: *mut EventChannel,
    out: *mut *mut CmId,
    context: *mut c_void,
    ps: c_int,
    qp_type: c_int,
) -> Result<(), c_int> {
    let space = u16::try_from(ps).ok().and_then(Space::new).ok_or(libc::EPROTONOSUPPORT)?;
    let service = service(qp_type)?;
    // SAFETY: reads this thread's own.
    let shared = shared().ok_or_else(|| unsafe { *libc::__errno_location() })?;
    let is_sync = channel.is_null();
    let channel = if is_sync { rdma_create_event_channel() } else { channel };
    if channel.is_null() {
        return Err(libc::EMFILE);
    }
    // SAFETY: a channel of the program's, or ours.
    unsafe {
        let handle = match shared.manager.create(OurChannel::queue(channel), space, service) {
            Ok(handle) => handle,
            Err(error) => {
                if is_sync {
                    rdma_destroy_event_channel(channel);
                }
                return Err(code(error));
            }
        };
        *out = OurId::make(shared, handle, channel, is_sync, context, (ps, qp_type));
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_id(
    channel: *mut EventChannel,
    out: *mut *mut CmId,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    let qp_type = if ps == Space::Udp as c_int { QPT_UD } else { QPT_RC };
    // SAFETY: as the header asks.
    done(unsafe { create(channel, out, context, ps, qp_type) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_destroy_id(id: *mut CmId) -> c_int {
    // SAFETY: the program's id, not used after this.
    unsafe {
        let ours = OurId::of(id);
        if let Err(error) = ours.manager().destroy(ours.handle) {
            return done(Err(code(error)));
        }
        // What a call that waits has left.
        let event = mem::replace(&mut (*id).event, ptr::null_mut());
        if !event.is_null() {
            events::rdma_ack_cm_event(event);
        }
        super::wait_for_acks(ours.acked.as_ptr(), &ours.given);
        OurId::free(id);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_migrate_id(id: *mut CmId, channel: *mut EventChannel) -> c_int {
    // SAFETY: the program's id.
    let ours = unsafe { OurId::of(id) };
    let mut own = ours.own();
    if own.is_sync && channel.is_null() {
        return done(Err(libc::EINVAL));
    }
    let is_sync = channel.is_null();
    let channel = if is_sync { rdma_create_event_channel() } else { channel };
    if channel.is_null() {
        return -1;
    }
    // SAFETY: a channel of the program's, or ours; the one before is the id's own if calls waited.
    unsafe {
        let queue = OurChannel::queue(channel);
        let moved = ours.manager().look(|connections| connections.migrate(ours.handle, &queue));
        if let Err(error) = moved {
            return done(Err(code(error)));
        }
        let before = mem::replace(&mut (*id).channel, channel);
        if mem::replace(&mut own.is_sync, is_sync) {
            let event = mem::replace(&mut (*id).event, ptr::null_mut());
            if !event.is_null() {
                events::rdma_ack_cm_event(event);
            }
            rdma_destroy_event_channel(before);
        }
    }
    0
}

/// Devices of the machine, opened. They stay so.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut Context {
    let Some(shared) = shared() else { return ptr::null_mut() };
    if !count.is_null() {
        // SAFETY: the caller's integer.
        unsafe { *count = 1 };
    }
    Box::leak(Box::new([shared.context(), ptr::null_mut()])).as_mut_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_free_devices(list: *mut *mut Context) {
    if !list.is_null() {
        // SAFETY: made by rdma_get_devices, as a box of two.
        drop(unsafe { Box::from_raw(list.cast::<[*mut Context; 2]>()) });
    }
}

/// What a child that was forked has of its parent's: nothing is closed.
pub(super) fn forget(shared: Option<Shared>) {
    let _ = ManuallyDrop::new(shared);
}

const _: () = assert!(mem::offset_of!(OurId, id) == 0 && Kind::Disconnected as c_int == 10);
