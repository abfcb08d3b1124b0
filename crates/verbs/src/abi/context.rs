//! The device, contexts, what they say about themselves, and protection domains.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{self, offset_of};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use etherslot_rdma::{Event, MAX_INLINE_BYTES, MAX_SGES, Pd as PdNumber};

use super::types::{
    AsyncEvent, Context, ContextOps, Cq, Device, DeviceAttr, DeviceAttrEx, Gid, GidEntry, ParentDomainAttr,
    Pd, PortAttr, Qp, Srq, Td, ValuesEx, VerbsContext,
};
use super::{Rnic, acknowledge, completions, null, pairs, process, regions, set_errno, work};
use crate::device::Happened;
use crate::place;
use crate::queue::Queue;

/// The name of the device.
const NAME: &CStr = c"etherslot0";
const VENDOR_ID: u32 = 0;
const GID_TYPE_ROCE_V2: u32 = 2;
/// WQEs of a queue, regions, and so on, that programs are told of.
const MAX_WR: c_int = 8192;
/// Programs want one that is not 0.
const LID: u16 = 1;
const DEFAULT_PKEY: u16 = 0xFFFF;

/// A context. The program has the address of [`VerbsContext::context`].
#[repr(C)]
pub(crate) struct OurContext {
    verbs: VerbsContext,
    pub(crate) rnic: Arc<Rnic>,
    pub(crate) events: Arc<Queue<Happened>>,
}

impl OurContext {
    /// # Safety
    /// `context` is one that we made, not closed.
    pub(crate) unsafe fn of<'a>(context: *mut Context) -> &'a Self {
        // SAFETY: as the caller says; it is only read while the program has it.
        unsafe { &*Self::around(context) }
    }

    /// # Safety
    /// `context` is one that we made.
    unsafe fn around(context: *mut Context) -> *mut Self {
        let offset = offset_of!(Self, verbs) + offset_of!(VerbsContext, context);
        // SAFETY: a context of ours lies in an `OurContext`, at this offset.
        unsafe { context.byte_sub(offset).cast() }
    }
}

/// A protection domain.
#[repr(C)]
pub(crate) struct OurPd {
    pd: Pd,
    pub(crate) number: PdNumber,
    /// A parent domain has another's number.
    is_child: bool,
}

impl OurPd {
    /// # Safety
    /// `pd` is one that we made, not deallocated.
    pub(crate) unsafe fn of<'a>(pd: *mut Pd) -> &'a Self {
        // SAFETY: it is the first field.
        unsafe { &*pd.cast::<Self>() }
    }
}

/// Numbers of protection domains that are in use.
static DOMAINS: Mutex<Vec<bool>> = Mutex::new(Vec::new());

fn put(name: &mut [c_char], text: &CStr) {
    for (to, from) in name.iter_mut().zip(text.to_bytes_with_nul()) {
        *to = c_char::from_ne_bytes([*from]);
    }
}

/// The only device there is.
pub(crate) fn device() -> *mut Device {
    struct Only(Device);
    // SAFETY: it is not changed once it is made, and its pointers are null.
    unsafe impl Send for Only {}
    // SAFETY: as above.
    unsafe impl Sync for Only {}
    static ONLY: OnceLock<Only> = OnceLock::new();
    let only = ONLY.get_or_init(|| {
        let mut device = Device {
            ops: [ptr::null_mut(); 2],
            node_type: 1,
            transport_type: 0,
            name: [0; 64],
            dev_name: [0; 64],
            dev_path: [0; 256],
            ibdev_path: [0; 256],
        };
        put(&mut device.name, NAME);
        put(&mut device.dev_name, c"uverbs0");
        put(&mut device.dev_path, c"/sys/class/infiniband_verbs/uverbs0");
        put(&mut device.ibdev_path, c"/sys/class/infiniband/etherslot0");
        Only(device)
    });
    ptr::from_ref(&only.0).cast_mut()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device {
    if !count.is_null() {
        // SAFETY: the caller's integer.
        unsafe { *count = 1 };
    }
    Box::leak(Box::new([device(), ptr::null_mut()])).as_mut_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut Device) {
    if !list.is_null() {
        // SAFETY: made by ibv_get_device_list, as a box of two.
        drop(unsafe { Box::from_raw(list.cast::<[*mut Device; 2]>()) });
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut Device) -> *const c_char {
    // SAFETY: the device.
    unsafe { (*device).name.as_ptr() }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_index(_device: *mut Device) -> c_int {
    0
}

/// The node's GUID: made of the address, in network order.
fn guid() -> u64 {
    let ip = etherslot_netio::ipv4_addresses().first().map_or([0; 4], std::net::Ipv4Addr::octets);
    let ip = process().device.as_ref().map_or(ip, |rnic| rnic.ip().octets());
    u64::from_ne_bytes([0x02, 0, ip[0], 0xFF, 0xFE, ip[1], ip[2], ip[3]])
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_device_guid(_device: *mut Device) -> u64 {
    guid()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut Device) -> *mut Context {
    let Some(rnic) = process().enter() else { return ptr::null_mut() };
    let Ok(events) = Queue::new() else {
        process().leave();
        return null(libc::EMFILE);
    };
    let ops = ContextOps {
        alloc_mw: Some(regions::alloc_mw),
        bind_mw: Some(work::bind_mw),
        dealloc_mw: Some(regions::dealloc_mw),
        poll_cq: Some(completions::poll_cq),
        req_notify_cq: Some(completions::req_notify_cq),
        post_srq_recv: Some(work::post_srq_recv),
        post_send: Some(work::post_send),
        post_recv: Some(work::post_recv),
        // SAFETY: null is a valid value of all fields.
        ..unsafe { mem::zeroed() }
    };
    let events = Arc::new(events);
    let context = Context {
        device,
        ops,
        cmd_fd: events.as_fd().as_raw_fd(),
        async_fd: events.as_fd().as_raw_fd(),
        num_comp_vectors: 1,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        abi_compat: usize::MAX as *mut c_void,
    };
    let verbs = VerbsContext {
        query_port: Some(query_port),
        alloc_parent_domain: Some(alloc_parent_domain),
        alloc_td: Some(alloc_td),
        dealloc_td: Some(dealloc_td),
        query_rt_values: Some(query_rt_values),
        create_cq_ex: Some(completions::create_cq_ex),
        query_device_ex: Some(query_device_ex),
        create_qp_ex: Some(pairs::create_qp_ex),
        get_srq_num: Some(pairs::get_srq_num),
        create_srq_ex: Some(pairs::create_srq_ex),
        sz: size_of::<VerbsContext>(),
        context,
        // SAFETY: null is a valid value of all fields.
        ..unsafe { mem::zeroed() }
    };
    let ours = Box::leak(Box::new(OurContext { verbs, rnic, events }));
    &raw mut ours.verbs.context
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_close_device(context: *mut Context) -> c_int {
    // SAFETY: made by ibv_open_device, and not used after this.
    drop(unsafe { Box::from_raw(OurContext::around(context)) });
    let mut process = process();
    // A child closes what its parent has opened.
    if process.contexts > 0 {
        process.leave();
    }
    0
}

/// # Safety
/// The program's context.
unsafe fn device_attr(context: *mut Context) -> DeviceAttr {
    let guid = guid();
    // SAFETY: as the caller says.
    let most = unsafe { OurContext::of(context) }.rnic.most();
    // Some are the library's own, or on their way.
    let regions = (most.stags - most.stags / 16).cast_signed();
    let reads = c_int::from(most.reads);
    // SAFETY: zeros are a valid value.
    let mut attr: DeviceAttr = unsafe { mem::zeroed() };
    let version = concat!(env!("CARGO_PKG_VERSION"), "\0");
    if let Ok(version) = CStr::from_bytes_with_nul(version.as_bytes()) {
        put(&mut attr.fw_ver, version);
    }
    const RC_RNR_NAK_GEN: u32 = 1 << 12;
    const SYS_IMAGE_GUID: u32 = 1 << 11;
    const MEM_WINDOW: u32 = 1 << 17;
    const MEM_MGT_EXTENSIONS: u32 = 1 << 21;
    const MEM_WINDOW_TYPE_2B: u32 = 1 << 24;
    let sges = SGES.cast_signed();
    DeviceAttr {
        node_guid: guid,
        sys_image_guid: guid,
        max_mr_size: u64::MAX,
        page_size_cap: !0xFFF,
        vendor_id: VENDOR_ID,
        vendor_part_id: 1,
        hw_ver: 1,
        max_qp: most.qps.cast_signed(),
        max_qp_wr: MAX_WR,
        device_cap_flags: RC_RNR_NAK_GEN
            | SYS_IMAGE_GUID
            | MEM_WINDOW
            | MEM_MGT_EXTENSIONS
            | MEM_WINDOW_TYPE_2B,
        max_sge: sges,
        max_sge_rd: sges,
        max_cq: most.cqs.cast_signed(),
        max_cqe: (1 << 22) - 1,
        max_mr: regions,
        max_pd: 32_768,
        max_qp_rd_atom: reads,
        max_res_rd_atom: reads * most.qps.cast_signed(),
        max_qp_init_rd_atom: reads,
        // With respect to the processor, too; or to the RNIC's own.
        atomic_cap: if most.are_global { 2 } else { 1 },
        max_mw: regions,
        max_ah: 1 << 20,
        max_srq: most.srqs.cast_signed(),
        max_srq_wr: MAX_WR,
        max_srq_sge: sges,
        max_pkeys: 1,
        local_ca_ack_delay: 15,
        phys_port_cnt: 1,
        ..attr
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut Context, attr: *mut DeviceAttr) -> c_int {
    // SAFETY: the program's context, and the caller's structure.
    unsafe { attr.write(device_attr(context)) };
    0
}

unsafe extern "C" fn query_device_ex(
    context: *mut Context,
    _input: *const c_void,
    attr: *mut DeviceAttrEx,
    bytes: usize,
) -> c_int {
    // SAFETY: zeros are a valid value.
    let mut ours: DeviceAttrEx = unsafe { mem::zeroed() };
    // SAFETY: the program's context.
    ours.orig_attr = unsafe { device_attr(context) };
    ours.device_cap_flags_ex = u64::from(ours.orig_attr.device_cap_flags);
    ours.phys_port_cnt_ex = 1;
    // The clock is the system's, in ns.
    ours.completion_timestamp_mask = u64::MAX;
    ours.hca_core_clock = 1_000_000;
    // SAFETY: the caller's structure has this size; what it has behind ours is 0.
    unsafe {
        attr.cast::<u8>().write_bytes(0, bytes);
        let known = bytes.min(size_of::<DeviceAttrEx>());
        attr.cast::<u8>().copy_from_nonoverlapping((&raw const ours).cast(), known);
    }
    0
}

fn port_attr() -> PortAttr {
    const CM_SUPPORTED: u32 = 1 << 16;
    const IP_BASED_GIDS: u32 = 1 << 26;
    PortAttr {
        state: 4,
        max_mtu: 5,
        active_mtu: 4,
        gid_tbl_len: 1,
        port_cap_flags: CM_SUPPORTED | IP_BASED_GIDS,
        max_msg_sz: 1 << 31,
        pkey_tbl_len: 1,
        lid: LID,
        max_vl_num: 1,
        subnet_timeout: 18,
        // 4 lanes of 10 Gbit/s.
        active_width: 2,
        active_speed: 4,
        phys_state: 5,
        link_layer: 2,
        ..PortAttr::default()
    }
}

unsafe extern "C" fn query_port(
    _context: *mut Context,
    port: u8,
    attr: *mut PortAttr,
    bytes: usize,
) -> c_int {
    if port != 1 {
        return libc::EINVAL;
    }
    let ours = port_attr();
    // SAFETY: the caller's structure has this size.
    unsafe {
        attr.cast::<u8>().write_bytes(0, bytes);
        let known = bytes.min(size_of::<PortAttr>());
        attr.cast::<u8>().copy_from_nonoverlapping((&raw const ours).cast(), known);
    }
    0
}

/// The function of old: the structure ends with the flags.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(context: *mut Context, port: u8, attr: *mut PortAttr) -> c_int {
    // SAFETY: the caller's structure has at least this size.
    unsafe { query_port(context, port, attr, offset_of!(PortAttr, port_cap_flags2)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid(context: *mut Context, port: u8, index: c_int, gid: *mut Gid) -> c_int {
    if port != 1 || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the program's context, and the caller's GID.
    unsafe { gid.write(place::gid(OurContext::of(context).rnic.ip())) };
    0
}

unsafe fn gid_entry(context: *mut Context) -> GidEntry {
    // SAFETY: the program's context.
    let ip = unsafe { OurContext::of(context) }.rnic.ip();
    GidEntry { gid: place::gid(ip), gid_index: 0, port_num: 1, gid_type: GID_TYPE_ROCE_V2, ndev_ifindex: 1 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut Context,
    port: u32,
    index: u32,
    entry: *mut GidEntry,
    flags: u32,
    _bytes: usize,
) -> c_int {
    if port != 1 || flags != 0 {
        return libc::EINVAL;
    }
    if index != 0 {
        return libc::ENODATA;
    }
    // SAFETY: the program's context, and the caller's entry, which was never shorter.
    unsafe { entry.write(gid_entry(context)) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut Context,
    entries: *mut GidEntry,
    most: usize,
    flags: u32,
    _bytes: usize,
) -> isize {
    if flags != 0 || most == 0 {
        return -(libc::EINVAL as isize);
    }
    // SAFETY: the program's context, and room for one of the caller's entries.
    unsafe { entries.write(gid_entry(context)) };
    1
}

/// For providers, which look at nothing but RoCE v1 and v2.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_gid_type(
    _context: *mut Context,
    port: u8,
    index: u32,
    kind: *mut c_int,
) -> c_int {
    if port != 1 || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's integer.
    unsafe { *kind = 1 };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(_context: *mut Context, port: u8, index: c_int, pkey: *mut u16) -> c_int {
    if port != 1 || index != 0 {
        set_errno(libc::EINVAL);
        return -1;
    }
    // SAFETY: the caller's word.
    unsafe { *pkey = DEFAULT_PKEY };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_pkey_index(_context: *mut Context, port: u8, pkey: u16) -> c_int {
    if port == 1 && pkey == DEFAULT_PKEY {
        return 0;
    }
    set_errno(libc::EINVAL);
    -1
}

unsafe extern "C" fn query_rt_values(_context: *mut Context, values: *mut ValuesEx) -> c_int {
    // SAFETY: the caller's structure.
    unsafe {
        (*values).comp_mask &= 1;
        if (*values).comp_mask != 0 {
            libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut (*values).raw_clock);
        }
    }
    0
}

// --- Events ---

/// What events of an object need: how many the program was given.
pub(crate) type Given = AtomicU32;

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut Context, event: *mut AsyncEvent) -> c_int {
    // SAFETY: the program's context.
    let ours = unsafe { OurContext::of(context) };
    let happened = loop {
        if let Some(happened) = ours.events.pop() {
            break happened;
        }
        if ours.events.is_nonblocking() {
            set_errno(libc::EAGAIN);
            return -1;
        }
        ours.events.wait();
    };
    let element = happened.owner as *mut c_void;
    // SAFETY: owners are objects of ours, and their events are taken out of the queue before they go.
    let (event_type, given) = unsafe {
        match happened.event {
            Event::CqOverrun(_) => (0, completions::async_events_given(element.cast::<Cq>())),
            Event::SrqLimit(_) => (15, pairs::srq_events_given(element.cast::<Srq>())),
            other => {
                let event_type = match other {
                    Event::AccessViolation(_) => 3,
                    Event::Established(_) => 4,
                    Event::SqDrained(_) => 5,
                    Event::LastWqe(_) => 16,
                    _ => 1,
                };
                (event_type, pairs::qp_events_given(element.cast::<Qp>()))
            }
        }
    };
    given.fetch_add(1, Ordering::AcqRel);
    // SAFETY: the caller's structure.
    unsafe { event.write(AsyncEvent { element, event_type }) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut AsyncEvent) {
    // SAFETY: the event is one that ibv_get_async_event gave; its object waits for this before it goes.
    unsafe {
        let element = (*event).element;
        let completed = match (*event).event_type {
            0 => &raw mut (*element.cast::<Cq>()).async_events_completed,
            1 | 3..=5 | 16 => &raw mut (*element.cast::<Qp>()).events_completed,
            15 => &raw mut (*element.cast::<Srq>()).events_completed,
            _ => return,
        };
        acknowledge(completed, 1);
    }
}

// --- Protection domains ---

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_alloc_pd(context: *mut Context) -> *mut Pd {
    let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
    let number = domains.iter().position(|in_use| !in_use).unwrap_or_else(|| {
        domains.push(false);
        domains.len() - 1
    });
    let Ok(handle) = u16::try_from(number) else { return null(libc::ENOMEM) };
    domains[number] = true;
    let pd = Pd { context, handle: u32::from(handle) };
    Box::into_raw(Box::new(OurPd { pd, number: PdNumber(handle), is_child: false })).cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_dealloc_pd(pd: *mut Pd) -> c_int {
    // SAFETY: made by ibv_alloc_pd or alloc_parent_domain, and not used after this.
    let pd = unsafe { Box::from_raw(pd.cast::<OurPd>()) };
    if !pd.is_child {
        let mut domains = DOMAINS.lock().unwrap_or_else(PoisonError::into_inner);
        domains[pd.number.0 as usize] = false;
    }
    0
}

unsafe extern "C" fn alloc_parent_domain(context: *mut Context, attr: *mut ParentDomainAttr) -> *mut Pd {
    // SAFETY: the caller's structure, and the domain in it.
    let number = unsafe { OurPd::of((*attr).pd) }.number;
    let pd = Pd { context, handle: u32::from(number.0) };
    Box::into_raw(Box::new(OurPd { pd, number, is_child: true })).cast()
}

unsafe extern "C" fn alloc_td(context: *mut Context, _attr: *mut c_void) -> *mut Td {
    Box::into_raw(Box::new(Td { context }))
}

unsafe extern "C" fn dealloc_td(td: *mut Td) -> c_int {
    // SAFETY: made by alloc_td, and not used after this.
    drop(unsafe { Box::from_raw(td) });
    0
}

/// The most inline bytes that a QP can have.
pub(crate) const INLINE_BYTES: u32 = MAX_INLINE_BYTES as u32;
/// The most SGEs.
pub(crate) const SGES: u32 = MAX_SGES as u32;
/// The most WQEs.
pub(crate) const WRS: u32 = MAX_WR as u32;
/// The length of a GID table and of all others.
pub(crate) const PORT: u8 = 1;
