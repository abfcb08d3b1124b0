//! Completion channels and queues.

use std::ffi::{c_int, c_uint, c_void};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use etherslot_rdma::{CqId, Cqe, Done, Qpn, SendOpcode, Status};

use super::context::{Given, OurContext};
use super::types::{CompChannel, Context, Cq, CqEx, CqInitAttrEx, Wc};
use super::{Rnic, acknowledge, null, set_errno, wait_for_acks};
use crate::device::Owner;
use crate::place;
use crate::queue::Queue;

/// Completions that are taken at a time.
const BATCH: usize = 16;
const GRH: c_uint = 1;
const WITH_IMM: c_uint = 2;
const WITH_INV: c_uint = 8;
/// What some NICs say in place of a datagram's service level: what stands in front of it. UCX goes by that.
const ROCE_OVER_IPV4: u8 = 0xA;

/// A completion channel: the CQs that have something.
#[repr(C)]
struct OurChannel {
    channel: CompChannel,
    queue: Arc<Queue<u64>>,
}

/// A completion queue.
#[repr(C)]
pub(crate) struct OurCq {
    cq: CqEx,
    pub(crate) id: CqId,
    rnic: Arc<Rnic>,
    /// Events that the program was given.
    completion_events: AtomicU32,
    async_events: Given,
    /// What [`start_poll`] has taken.
    current: Wc,
    taken_ns: u64,
}

impl OurCq {
    /// # Safety
    /// `cq` is one that we made, not destroyed.
    pub(crate) unsafe fn of<'a>(cq: *mut Cq) -> &'a Self {
        // SAFETY: it is the first field.
        unsafe { &*cq.cast::<Self>() }
    }
}

pub(crate) unsafe fn async_events_given<'a>(cq: *mut Cq) -> &'a Given {
    // SAFETY: as the caller says.
    unsafe { &OurCq::of(cq).async_events }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_comp_channel(context: *mut Context) -> *mut CompChannel {
    let Ok(queue) = Queue::new() else { return null(libc::EMFILE) };
    let channel = CompChannel { context, fd: queue.as_fd().as_raw_fd(), refcnt: 0 };
    Box::into_raw(Box::new(OurChannel { channel, queue: Arc::new(queue) })).cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut CompChannel) -> c_int {
    // SAFETY: the program's channel.
    if unsafe { (*channel).refcnt } > 0 {
        return libc::EBUSY;
    }
    // SAFETY: made by ibv_create_comp_channel, and not used after this.
    drop(unsafe { Box::from_raw(channel.cast::<OurChannel>()) });
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut CompChannel,
    cq: *mut *mut Cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program's channel, and its context.
    let (ours, rnic) = unsafe { (&*channel.cast::<OurChannel>(), &OurContext::of((*channel).context).rnic) };
    let mut found = ours.queue.pop();
    if found.is_none() {
        if ours.queue.is_nonblocking() {
            set_errno(libc::EAGAIN);
            return -1;
        }
        rnic.wait(&ours.queue, || {
            found = ours.queue.pop();
            found.is_some()
        });
    }
    let Some(name) = found else { return -1 };
    let its = name as *mut Cq;
    // SAFETY: a CQ of ours: its events are taken out of the channel before it goes. The others are the caller's.
    unsafe {
        OurCq::of(its).completion_events.fetch_add(1, Ordering::AcqRel);
        *cq = its;
        *cq_context = (*its).cq_context;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut Cq, count: c_uint) {
    // SAFETY: the program's CQ.
    unsafe { acknowledge(&raw mut (*cq).comp_events_completed, count) };
}

unsafe fn create(
    context: *mut Context,
    cqes: u32,
    cq_context: *mut c_void,
    channel: *mut CompChannel,
    vector: c_int,
) -> *mut CqEx {
    // SAFETY: the program's context.
    let ours = unsafe { OurContext::of(context) };
    if vector != 0 {
        return null(libc::EINVAL);
    }
    let mut core = ours.rnic.lock();
    let Ok(id) = core.engine().create_cq(cqes as usize) else { return null(libc::EINVAL) };
    // SAFETY: zeros are a valid value of all fields.
    let zero: CqEx = unsafe { mem::zeroed() };
    let base = Cq {
        context,
        channel,
        cq_context,
        handle: u32::from(id.0),
        // As many as the engine has.
        cqe: cqes.next_power_of_two().cast_signed(),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
    };
    let cq = CqEx {
        base,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_vendor_err),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_slid),
        read_sl: Some(read_sl),
        read_dlid_path_bits: Some(read_dlid_path_bits),
        read_completion_ts: Some(read_completion_ns),
        read_completion_wallclock_ns: Some(read_completion_ns),
        ..zero
    };
    let cq = Box::into_raw(Box::new(OurCq {
        cq,
        id,
        rnic: Arc::clone(&ours.rnic),
        completion_events: AtomicU32::new(0),
        async_events: AtomicU32::new(0),
        current: Wc::default(),
        taken_ns: 0,
    }));
    let name = cq as u64;
    if !channel.is_null() {
        // SAFETY: the program's channel.
        let queue = unsafe {
            (*channel).refcnt += 1;
            Arc::clone(&(*channel.cast::<OurChannel>()).queue)
        };
        core.channels.insert(id, Owner { queue, name });
    }
    core.cqs.insert(id, Owner { queue: Arc::clone(&ours.events), name });
    cq.cast()
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_create_cq(
    context: *mut Context,
    cqes: c_int,
    cq_context: *mut c_void,
    channel: *mut CompChannel,
    vector: c_int,
) -> *mut Cq {
    let Ok(cqes) = u32::try_from(cqes) else { return null(libc::EINVAL) };
    // SAFETY: as the header asks.
    unsafe { create(context, cqes, cq_context, channel, vector) }.cast()
}

pub(crate) unsafe extern "C" fn create_cq_ex(context: *mut Context, attr: *mut CqInitAttrEx) -> *mut CqEx {
    // Byte length to path bits, and both timestamps.
    const WC_FLAGS: u64 = 0x7F | 1 << 7 | 1 << 11;
    // SAFETY: the caller's structure.
    let attr = unsafe { &*attr };
    if attr.wc_flags & !WC_FLAGS != 0 {
        return null(libc::EOPNOTSUPP);
    }
    // SAFETY: as the header asks.
    unsafe { create(context, attr.cqe, attr.cq_context, attr.channel, attr.comp_vector.cast_signed()) }
}

/// It has at least so much room: it does not get less.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut Cq, cqes: c_int) -> c_int {
    let Ok(wanted) = u32::try_from(cqes) else { return libc::EINVAL };
    // SAFETY: the program's CQ.
    let ours = unsafe { OurCq::of(cq) };
    let mut core = ours.rnic.lock();
    if core.engine().resize_cq(ours.id, wanted as usize).is_err() {
        return libc::EINVAL;
    }
    // SAFETY: as above; who changes it has the lock.
    unsafe { (*cq).cqe = (*cq).cqe.max(wanted.next_power_of_two().cast_signed()) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_cq(cq: *mut Cq) -> c_int {
    let name = cq as u64;
    // SAFETY: the program's CQ.
    let ours = unsafe { OurCq::of(cq) };
    {
        let mut core = ours.rnic.lock();
        if core.engine().destroy_cq(ours.id).is_err() {
            return libc::EBUSY;
        }
        if let Some(owner) = core.channels.remove(&ours.id) {
            owner.queue.retain(|&other| other != name);
            // SAFETY: the CQ's channel, which lives while it has CQs.
            unsafe { (*(*cq).channel).refcnt -= 1 };
        }
        if let Some(owner) = core.cqs.remove(&ours.id) {
            owner.queue.retain(|other| other.owner != name);
        }
    }
    // SAFETY: the program's CQ, until it is freed; made by create, and not used after this.
    unsafe {
        wait_for_acks(&raw mut (*cq).comp_events_completed, &ours.completion_events);
        wait_for_acks(&raw mut (*cq).async_events_completed, &ours.async_events);
        drop(Box::from_raw(cq.cast::<OurCq>()));
    }
    0
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *mut Cq, solicited_only: c_int) -> c_int {
    // SAFETY: the program's CQ.
    let ours = unsafe { OurCq::of(cq) };
    let mut core = ours.rnic.lock();
    core.engine().arm_for_untold(ours.id, solicited_only != 0);
    core.tell();
    0
}

const EMPTY: Cqe = Cqe {
    id: 0,
    status: Status::Success,
    done: Done::Received,
    qp: Qpn(0),
    bytes: 0,
    immediate: None,
    invalidated: None,
    source: None,
    cause: None,
    is_solicited: false,
};

impl OurCq {
    #[inline]
    fn take(&self, out: &mut [Cqe]) -> usize {
        self.rnic.poll(self.id, out)
    }

    #[inline]
    fn completion(&self, cqe: &Cqe) -> Wc {
        let opcode = match cqe.done {
            Done::Sent(SendOpcode::Write | SendOpcode::WriteImmediate) => 1,
            Done::Sent(SendOpcode::Read) => 2,
            Done::Sent(SendOpcode::CompareSwap) => 3,
            Done::Sent(SendOpcode::FetchAdd) => 4,
            Done::Sent(SendOpcode::Bind) => 5,
            Done::Sent(SendOpcode::Invalidate) => 6,
            Done::Sent(_) => 0,
            Done::Received => 128,
            Done::ReceivedWrite => 129,
        };
        let mut wc = Wc {
            wr_id: cqe.id,
            status: cqe.status as c_int,
            opcode,
            vendor_err: cqe.cause.map_or(0, |cause| {
                u32::from(cause.layer) << 12 | u32::from(cause.kind) << 8 | u32::from(cause.code)
            }),
            byte_len: cqe.bytes,
            qp_num: place::number(self.rnic.slot(), cqe.qp),
            ..Wc::default()
        };
        if let Some(immediate) = cqe.immediate {
            wc.imm_data = immediate.to_be();
            wc.wc_flags |= WITH_IMM;
        }
        if let Some(stag) = cqe.invalidated {
            wc.imm_data = stag;
            wc.wc_flags |= WITH_INV;
        }
        if let Some((peer, qp)) = cqe.source {
            let address = self.rnic.lock().rnic.address(peer);
            wc.src_qp = address.map_or(0, |address| place::peer_number(&address, qp));
            wc.wc_flags |= GRH;
            wc.slid = 1;
            wc.sl = ROCE_OVER_IPV4;
        }
        wc
    }
}

pub(crate) unsafe extern "C" fn poll_cq(cq: *mut Cq, most: c_int, out: *mut Wc) -> c_int {
    // SAFETY: the program's CQ.
    let ours = unsafe { OurCq::of(cq) };
    let most = usize::try_from(most).unwrap_or(0);
    let mut cqes = [EMPTY; BATCH];
    let mut done = 0;
    while done < most {
        let want = (most - done).min(BATCH);
        let count = ours.take(&mut cqes[..want]);
        for cqe in &cqes[..count] {
            // SAFETY: the caller has room for so many.
            unsafe { out.add(done).write(ours.completion(cqe)) };
            done += 1;
        }
        if count < want {
            break;
        }
    }
    c_int::try_from(done).unwrap_or(c_int::MAX)
}

// --- The extended CQ: one completion at a time. Only one thread polls it ---

unsafe fn next(cq: *mut CqEx) -> c_int {
    let ours = cq.cast::<OurCq>();
    let mut cqe = [EMPTY];
    // SAFETY: the program's CQ.
    unsafe {
        if (*ours).take(&mut cqe) == 0 {
            return libc::ENOENT;
        }
        let wc = (*ours).completion(&cqe[0]);
        (*cq).status = wc.status;
        (*cq).wr_id = wc.wr_id;
        (*ours).current = wc;
        let mut now = mem::zeroed::<libc::timespec>();
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        (*ours).taken_ns = now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned();
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut CqEx, _attr: *mut c_void) -> c_int {
    // SAFETY: the program's CQ.
    unsafe { next(cq) }
}

unsafe extern "C" fn next_poll(cq: *mut CqEx) -> c_int {
    // SAFETY: the program's CQ.
    unsafe { next(cq) }
}

unsafe extern "C" fn end_poll(_cq: *mut CqEx) {}

macro_rules! readers {
    ($($name:ident: $type:ty = $field:ident;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut CqEx) -> $type {
            // SAFETY: the program's CQ.
            unsafe { (*ptr::from_ref(&*cq.cast::<OurCq>())).current.$field.into() }
        })*
    };
}

readers! {
    read_opcode: c_int = opcode;
    read_vendor_err: u32 = vendor_err;
    read_byte_len: u32 = byte_len;
    read_imm_data: u32 = imm_data;
    read_qp_num: u32 = qp_num;
    read_src_qp: u32 = src_qp;
    read_wc_flags: c_uint = wc_flags;
    read_slid: u32 = slid;
    read_sl: u8 = sl;
    read_dlid_path_bits: u8 = dlid_path_bits;
}

unsafe extern "C" fn read_completion_ns(cq: *mut CqEx) -> u64 {
    // SAFETY: the program's CQ.
    unsafe { (*cq.cast::<OurCq>()).taken_ns }
}
