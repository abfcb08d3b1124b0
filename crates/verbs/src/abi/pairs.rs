//! Queue pairs, shared receive queues and address handles.

use std::ffi::{c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use etherslot_rdma::{Attributes, BLOCK_BYTES, ControlError, Init, Qpn, Service, SrqId, State};

use super::completions::OurCq;
use super::context::{Given, INLINE_BYTES, OurContext, OurPd, PORT, SGES, WRS};
use super::types::{
    Ah, AhAttr, Context, Gid, Grh, Pd, Qp, QpAttr, QpCap, QpEx, QpInitAttr, QpInitAttrEx, Srq, SrqAttr,
    SrqInitAttr, SrqInitAttrEx, Wc,
};
use super::work_ex::{self, Builder};
use super::{Rnic, null, regions, wait_for_acks};
use crate::device::Owner;
use crate::place;

/// Streams of a session that QPs are spread over; 0 is that of messages.
const STREAMS: u16 = 63;
const SGE_BYTES: usize = 16;

pub(crate) mod mask {
    pub(crate) const STATE: i32 = 1;
    pub(crate) const ACCESS_FLAGS: i32 = 1 << 3;
    pub(crate) const QKEY: i32 = 1 << 6;
    pub(crate) const AV: i32 = 1 << 7;
    pub(crate) const RETRY_CNT: i32 = 1 << 10;
    pub(crate) const RNR_RETRY: i32 = 1 << 11;
    pub(crate) const RQ_PSN: i32 = 1 << 12;
    pub(crate) const MAX_QP_RD_ATOMIC: i32 = 1 << 13;
    pub(crate) const MIN_RNR_TIMER: i32 = 1 << 15;
    pub(crate) const SQ_PSN: i32 = 1 << 16;
    pub(crate) const MAX_DEST_RD_ATOMIC: i32 = 1 << 17;
    pub(crate) const DEST_QPN: i32 = 1 << 20;
    /// Each of these stands for a field or two that are kept as they are.
    pub(crate) const CUR_STATE: i32 = 1 << 1;
    pub(crate) const PKEY_INDEX: i32 = 1 << 4;
    pub(crate) const PORT: i32 = 1 << 5;
    pub(crate) const PATH_MTU: i32 = 1 << 8;
    pub(crate) const TIMEOUT: i32 = 1 << 9;
}

/// What a receiver that is not ready asks its peer to wait, in units of 10 us, by the codes of verbs (IBA 9.7.5.2.8).
const RNR_WAITS: [u32; 32] = [
    65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// A queue pair.
#[repr(C)]
pub(crate) struct OurQp {
    qp: QpEx,
    pub(crate) id: Qpn,
    pub(crate) rnic: Arc<Rnic>,
    pub(crate) is_datagram: bool,
    init: QpInitAttr,
    settings: Mutex<Settings>,
    events: Given,
    /// What `ibv_wr_*` has been told since `ibv_wr_start`.
    pub(crate) builder: Builder,
}

/// What was set by `ibv_modify_qp`.
struct Settings {
    attr: QpAttr,
    attributes: Attributes,
}

impl OurQp {
    /// # Safety
    /// `qp` is one that we made, not destroyed.
    pub(crate) unsafe fn of<'a>(qp: *mut Qp) -> &'a Self {
        // SAFETY: it is the first field.
        unsafe { &*qp.cast::<Self>() }
    }
}

pub(crate) unsafe fn qp_events_given<'a>(qp: *mut Qp) -> &'a Given {
    // SAFETY: as the caller says.
    unsafe { &OurQp::of(qp).events }
}

pub(crate) fn code(error: ControlError) -> c_int {
    match error {
        ControlError::Unknown | ControlError::Invalid => libc::EINVAL,
        ControlError::InUse => libc::EBUSY,
        ControlError::NoRoom => libc::ENOMEM,
    }
}

/// Blocks that a WQE takes whose SGEs or inline data are so long and begin at byte `first`.
fn wqe_blocks(first: usize, bytes: usize) -> usize {
    (first + bytes).div_ceil(BLOCK_BYTES).max(1)
}

fn send_blocks(cap: &QpCap) -> usize {
    let body = (cap.max_send_sge as usize * SGE_BYTES).max(cap.max_inline_data as usize);
    wqe_blocks(32, body) * cap.max_send_wr.max(1) as usize
}

fn receive_blocks(wrs: u32, sges: u32) -> usize {
    wqe_blocks(16, sges as usize * SGE_BYTES) * wrs.max(1) as usize
}

unsafe fn create(pd: *mut Pd, attr: *mut QpInitAttr) -> *mut Qp {
    // SAFETY: the caller's structure.
    let attr = unsafe { &mut *attr };
    let service = match attr.qp_type {
        2 => Service::Rc,
        3 => Service::Uc,
        4 => Service::Ud,
        _ => return null(libc::EOPNOTSUPP),
    };
    let cap = &mut attr.cap;
    if cap.max_send_wr > WRS
        || cap.max_recv_wr > WRS
        || cap.max_send_sge > SGES
        || cap.max_recv_sge > SGES
        || cap.max_inline_data > INLINE_BYTES
        || attr.send_cq.is_null()
        || attr.recv_cq.is_null()
    {
        return null(libc::EINVAL);
    }
    cap.max_send_sge = cap.max_send_sge.max(1);
    cap.max_recv_sge = cap.max_recv_sge.max(1);
    // SAFETY: the program's objects.
    let (ours, domain, send_cq, receive_cq) = unsafe {
        (OurContext::of((*pd).context), OurPd::of(pd), OurCq::of(attr.send_cq).id, OurCq::of(attr.recv_cq).id)
    };
    let srq = if attr.srq.is_null() {
        None
    } else {
        cap.max_recv_wr = 0;
        // SAFETY: the program's SRQ.
        Some(unsafe { OurSrq::of(attr.srq) }.id)
    };
    let init = Init {
        service,
        pd: domain.number,
        send_cq,
        receive_cq,
        srq,
        sq_blocks: send_blocks(cap),
        rq_blocks: if srq.is_some() { 1 } else { receive_blocks(cap.max_recv_wr, cap.max_recv_sge) },
        signal_all: attr.sq_sig_all != 0,
    };
    let mut core = ours.rnic.lock();
    let id = match core.engine().create_qp(&init) {
        Ok(id) => id,
        Err(error) => return null(code(error)),
    };
    let base = Qp {
        // SAFETY: the program's domain.
        context: unsafe { (*pd).context },
        qp_context: attr.qp_context,
        pd,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        handle: u32::from(id.0),
        qp_num: place::number(ours.rnic.slot(), id),
        state: 0,
        qp_type: attr.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let settings = Settings {
        attr: QpAttr { cap: attr.cap, port_num: PORT, ..QpAttr::default() },
        // Programs know QPs of InfiniBand: that one ends is not a word to the other, who may still want what it has posted.
        attributes: Attributes { stream: 1 + id.0 % STREAMS, is_quiet: true, ..Attributes::default() },
    };
    let qp = Box::into_raw(Box::new(OurQp {
        qp: work_ex::functions(base),
        id,
        rnic: Arc::clone(&ours.rnic),
        is_datagram: service == Service::Ud,
        init: *attr,
        settings: Mutex::new(settings),
        events: AtomicU32::new(0),
        builder: Builder::default(),
    }));
    core.qps.insert(id, Owner { queue: Arc::clone(&ours.events), name: qp as u64 });
    qp.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_qp(pd: *mut Pd, attr: *mut QpInitAttr) -> *mut Qp {
    // SAFETY: as the header asks.
    unsafe { create(pd, attr) }
}

pub(crate) unsafe extern "C" fn create_qp_ex(_context: *mut Context, attr: *mut QpInitAttrEx) -> *mut Qp {
    const PD: u32 = 1;
    const CREATE_FLAGS: u32 = 1 << 2;
    const SEND_OPS_FLAGS: u32 = 1 << 6;
    /// All but TSO and atomic writes.
    const SEND_OPS: u64 = 0x3FF;
    // SAFETY: the caller's structure.
    let attr = unsafe { &mut *attr };
    let mask = attr.comp_mask;
    let is_known = mask & !(PD | CREATE_FLAGS | SEND_OPS_FLAGS) == 0
        && (mask & CREATE_FLAGS == 0 || attr.create_flags == 0)
        && (mask & SEND_OPS_FLAGS == 0 || attr.send_ops_flags & !SEND_OPS == 0);
    if !is_known {
        return null(libc::EOPNOTSUPP);
    }
    if mask & PD == 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: as the header asks.
    unsafe { create(attr.pd, ptr::from_mut(attr).cast()) }
}

#[unsafe(no_mangle)]
extern "C" fn ibv_qp_to_qp_ex(qp: *mut Qp) -> *mut QpEx {
    qp.cast()
}

/// The state of the engine's that one of verbs is.
fn state(state: c_int) -> Option<State> {
    Some(match state {
        0 => State::Reset,
        1 => State::Init,
        2 => State::Rtr,
        3 => State::Rts,
        4 => State::Sqd,
        6 => State::Error,
        _ => return None,
    })
}

fn state_number(state: State) -> c_int {
    match state {
        State::Reset => 0,
        State::Init => 1,
        State::Rtr => 2,
        State::Rts => 3,
        State::Sqd => 4,
        State::Sqe => 5,
        State::Error => 6,
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_modify_qp(qp: *mut Qp, attr: *mut QpAttr, mask: c_int) -> c_int {
    // SAFETY: the program's QP, and the caller's structure.
    let (ours, new) = unsafe { (OurQp::of(qp), &*attr) };
    let Ok(mut settings) = ours.settings.lock() else { return libc::EIO };
    let Settings { attr, attributes } = &mut *settings;
    let to =
        if mask & mask::STATE != 0 { state(new.qp_state) } else { ours.rnic.lock().engine().state(ours.id) };
    let Some(to) = to else { return libc::EINVAL };
    let has = |bit| mask & bit != 0;
    if to == State::Rtr && !ours.is_datagram && !(has(mask::AV) && has(mask::DEST_QPN)) {
        return libc::EINVAL;
    }
    if has(mask::PORT) && new.port_num != PORT
        || has(mask::PKEY_INDEX) && new.pkey_index != 0
        || has(mask::AV) && !ours.is_datagram && (new.ah_attr.is_global == 0 || new.ah_attr.port_num != PORT)
    {
        return libc::EINVAL;
    }
    macro_rules! keep {
        ($($bit:ident $field:ident;)*) => { $(if has(mask::$bit) { attr.$field = new.$field; })* };
    }
    keep! {
        CUR_STATE cur_qp_state;
        ACCESS_FLAGS qp_access_flags;
        PKEY_INDEX pkey_index;
        PORT port_num;
        QKEY qkey;
        AV ah_attr;
        PATH_MTU path_mtu;
        TIMEOUT timeout;
        RETRY_CNT retry_cnt;
        RNR_RETRY rnr_retry;
        RQ_PSN rq_psn;
        MAX_QP_RD_ATOMIC max_rd_atomic;
        MIN_RNR_TIMER min_rnr_timer;
        SQ_PSN sq_psn;
        MAX_DEST_RD_ATOMIC max_dest_rd_atomic;
        DEST_QPN dest_qp_num;
    }
    attributes.access = regions::access(attr.qp_access_flags);
    attributes.q_key = attr.qkey;
    attributes.ord = attr.max_rd_atomic;
    attributes.ird = attr.max_dest_rd_atomic;
    attributes.rnr_retries = attr.rnr_retry & 7;
    attributes.retries = attr.retry_cnt & 7;
    attributes.rnr_wait_us = RNR_WAITS[(attr.min_rnr_timer & 31) as usize] * 10;
    attributes.first_sent = attr.sq_psn & 0xFF_FFFF;
    attributes.first_expected = attr.rq_psn & 0xFF_FFFF;
    attributes.remote_qp = place::engine_number(attr.dest_qp_num);
    let peer = (has(mask::AV) && !ours.is_datagram)
        .then(|| place::process(&attr.ah_attr.grh.0.dgid, attr.dest_qp_num));
    let now_ns = ours.rnic.now_ns();
    let result = ours.rnic.act(|core| {
        if let Some(address) = peer {
            // Not an address of ours, or too many peers.
            let address = address.ok_or(libc::EINVAL)?;
            attributes.peer = core.rnic.peer(now_ns, address).ok_or(libc::ENOMEM)?;
        }
        if matches!(to, State::Reset | State::Error) {
            // An adapter would have taken by now what has come, and acknowledged it.
            core.receive(now_ns);
            core.transmit(now_ns);
        }
        core.engine().modify_qp(ours.id, to, attributes).map_err(code)
    });
    if let Err(error) = result {
        return error;
    }
    // SAFETY: the program's QP.
    unsafe { (*qp).state = state_number(to) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut Qp,
    attr: *mut QpAttr,
    _mask: c_int,
    init: *mut QpInitAttr,
) -> c_int {
    // SAFETY: the program's QP.
    let ours = unsafe { OurQp::of(qp) };
    let Ok(settings) = ours.settings.lock() else { return libc::EIO };
    let now = ours.rnic.lock().engine().state(ours.id).map_or(0, state_number);
    let mut known = settings.attr;
    known.qp_state = now;
    known.cur_qp_state = now;
    // SAFETY: the program's QP, and the caller's structures.
    unsafe {
        (*qp).state = now;
        attr.write(known);
        init.write(ours.init);
    }
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_qp(qp: *mut Qp) -> c_int {
    let name = qp as u64;
    // SAFETY: the program's QP.
    let ours = unsafe { OurQp::of(qp) };
    let now_ns = ours.rnic.now_ns();
    let destroyed = ours.rnic.act(|core| {
        // As before any end.
        core.receive(now_ns);
        core.transmit(now_ns);
        core.engine().destroy_qp(ours.id)?;
        if let Some(owner) = core.qps.remove(&ours.id) {
            owner.queue.retain(|other| other.owner != name);
        }
        Ok(())
    });
    if let Err(error) = destroyed {
        return code(error);
    }
    // SAFETY: the program's QP, until it is freed; made by create, and not used after this.
    unsafe {
        wait_for_acks(&raw mut (*qp).events_completed, &ours.events);
        drop(Box::from_raw(qp.cast::<OurQp>()));
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn ibv_query_qp_data_in_order(_qp: *mut Qp, _opcode: c_int, _flags: u32) -> c_int {
    // Data of a QP's messages are placed in the order sent, byte by byte (docs/rnic.md, section 16).
    1
}

/// Enhanced connection establishment: providers agree on things of their own. There are none.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_ece(_qp: *mut Qp, _ece: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_set_ece(_qp: *mut Qp, _ece: *mut c_void) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_attach_mcast(_qp: *mut Qp, _gid: *const Gid, _lid: u16) -> c_int {
    libc::EOPNOTSUPP
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_detach_mcast(_qp: *mut Qp, _gid: *const Gid, _lid: u16) -> c_int {
    libc::EOPNOTSUPP
}

// --- Shared receive queues ---

/// A shared receive queue.
#[repr(C)]
pub(crate) struct OurSrq {
    srq: Srq,
    pub(crate) id: SrqId,
    pub(crate) rnic: Arc<Rnic>,
    attr: Mutex<SrqAttr>,
    events: Given,
}

impl OurSrq {
    /// # Safety
    /// `srq` is one that we made, not destroyed.
    pub(crate) unsafe fn of<'a>(srq: *mut Srq) -> &'a Self {
        // SAFETY: it is the first field.
        unsafe { &*srq.cast::<Self>() }
    }
}

pub(crate) unsafe fn srq_events_given<'a>(srq: *mut Srq) -> &'a Given {
    // SAFETY: as the caller says.
    unsafe { &OurSrq::of(srq).events }
}

unsafe fn create_srq(pd: *mut Pd, srq_context: *mut c_void, attr: &mut SrqAttr) -> *mut Srq {
    if attr.max_wr > WRS || attr.max_wr == 0 || attr.max_sge > SGES {
        return null(libc::EINVAL);
    }
    attr.max_sge = attr.max_sge.max(1);
    // SAFETY: the program's domain, and its context.
    let (ours, domain, context) = unsafe { (OurContext::of((*pd).context), OurPd::of(pd), (*pd).context) };
    let mut core = ours.rnic.lock();
    let id = match core.engine().create_srq(domain.number, receive_blocks(attr.max_wr, attr.max_sge)) {
        Ok(id) => id,
        Err(error) => return null(code(error)),
    };
    attr.srq_limit = 0;
    let srq = Srq {
        context,
        srq_context,
        pd,
        handle: u32::from(id.0),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let srq = Box::into_raw(Box::new(OurSrq {
        srq,
        id,
        rnic: Arc::clone(&ours.rnic),
        attr: Mutex::new(*attr),
        events: AtomicU32::new(0),
    }));
    core.srqs.insert(id, Owner { queue: Arc::clone(&ours.events), name: srq as u64 });
    srq.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_srq(pd: *mut Pd, init: *mut SrqInitAttr) -> *mut Srq {
    // SAFETY: as the header asks.
    unsafe { create_srq(pd, (*init).srq_context, &mut (*init).attr) }
}

pub(crate) unsafe extern "C" fn create_srq_ex(_context: *mut Context, init: *mut SrqInitAttrEx) -> *mut Srq {
    const TYPE: u32 = 1;
    const PD: u32 = 1 << 1;
    // SAFETY: the caller's structure.
    let init = unsafe { &mut *init };
    if init.comp_mask & TYPE != 0 && init.srq_type != 0 {
        return null(libc::EOPNOTSUPP);
    }
    if init.comp_mask & PD == 0 {
        return null(libc::EINVAL);
    }
    // SAFETY: as the header asks.
    unsafe { create_srq(init.pd, init.srq_context, &mut init.attr) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(srq: *mut Srq, attr: *mut SrqAttr, mask: c_int) -> c_int {
    const MAX_WR: c_int = 1;
    const LIMIT: c_int = 2;
    // SAFETY: the program's SRQ, and the caller's structure.
    let (ours, new) = unsafe { (OurSrq::of(srq), &*attr) };
    if mask & MAX_WR != 0 {
        return libc::EOPNOTSUPP;
    }
    let Ok(mut known) = ours.attr.lock() else { return libc::EIO };
    if mask & LIMIT != 0 {
        if new.srq_limit > known.max_wr {
            return libc::EINVAL;
        }
        known.srq_limit = new.srq_limit;
        return ours.rnic.lock().engine().set_srq_limit(ours.id, new.srq_limit).map_or_else(code, |()| 0);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut Srq, attr: *mut SrqAttr) -> c_int {
    // SAFETY: the program's SRQ.
    let ours = unsafe { OurSrq::of(srq) };
    let Ok(known) = ours.attr.lock() else { return libc::EIO };
    // SAFETY: the caller's structure.
    unsafe { attr.write(*known) };
    0
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ibv_destroy_srq(srq: *mut Srq) -> c_int {
    let name = srq as u64;
    // SAFETY: the program's SRQ.
    let ours = unsafe { OurSrq::of(srq) };
    {
        let mut core = ours.rnic.lock();
        if let Err(error) = core.engine().destroy_srq(ours.id) {
            return code(error);
        }
        if let Some(owner) = core.srqs.remove(&ours.id) {
            owner.queue.retain(|other| other.owner != name);
        }
    }
    // SAFETY: the program's SRQ, until it is freed; made by create_srq, and not used after this.
    unsafe {
        wait_for_acks(&raw mut (*srq).events_completed, &ours.events);
        drop(Box::from_raw(srq.cast::<OurSrq>()));
    }
    0
}

pub(crate) unsafe extern "C" fn get_srq_num(srq: *mut Srq, number: *mut u32) -> c_int {
    // SAFETY: the program's SRQ, and the caller's number.
    unsafe { *number = u32::from(OurSrq::of(srq).id.0) };
    0
}

// --- Address handles ---

/// An address handle: a node. Which of its processes is meant, the number of a QP says.
#[repr(C)]
pub(crate) struct OurAh {
    ah: Ah,
    pub(crate) gid: Gid,
}

impl OurAh {
    /// # Safety
    /// `ah` is one that we made, not destroyed.
    pub(crate) unsafe fn of<'a>(ah: *mut Ah) -> &'a Self {
        // SAFETY: it is the first field.
        unsafe { &*ah.cast::<Self>() }
    }
}

static HANDLES: AtomicU32 = AtomicU32::new(0);

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut Pd, attr: *mut AhAttr) -> *mut Ah {
    // SAFETY: the caller's structure.
    let attr = unsafe { &*attr };
    let gid = attr.grh.0.dgid;
    if attr.is_global == 0 || place::ip(&gid).is_none() {
        return null(libc::EINVAL);
    }
    // SAFETY: the program's domain.
    let context = unsafe { (*pd).context };
    let handle = HANDLES.fetch_add(1, Ordering::Relaxed);
    Box::into_raw(Box::new(OurAh { ah: Ah { context, pd, handle }, gid })).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    _context: *mut Context,
    port: u8,
    wc: *mut Wc,
    grh: *mut Grh,
    attr: *mut AhAttr,
) -> c_int {
    const GRH: c_uint = 1;
    // SAFETY: the caller's structures; the GRH is that of a datagram, 40 bytes.
    let (wc, header) = unsafe { (&*wc, &*grh.cast::<[u8; 40]>()) };
    // As `place::grh` makes it.
    if port != PORT || wc.wc_flags & GRH == 0 || header[20] != 0x45 {
        return -libc::EINVAL;
    }
    let from: [u8; 4] = [header[32], header[33], header[34], header[35]];
    let mut ours = AhAttr { is_global: 1, port_num: PORT, dlid: wc.slid, sl: wc.sl, ..AhAttr::default() };
    ours.grh.0.dgid = place::gid(from.into());
    ours.grh.0.hop_limit = 64;
    // SAFETY: the caller's structure.
    unsafe { attr.write(ours) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(pd: *mut Pd, wc: *mut Wc, grh: *mut Grh, port: u8) -> *mut Ah {
    let mut attr = AhAttr::default();
    // SAFETY: as the header asks.
    unsafe {
        if ibv_init_ah_from_wc((*pd).context, port, wc, grh, &raw mut attr) != 0 {
            return null(libc::EINVAL);
        }
        ibv_create_ah(pd, &raw mut attr)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut Ah) -> c_int {
    // SAFETY: made by ibv_create_ah, and not used after this.
    drop(unsafe { Box::from_raw(ah.cast::<OurAh>()) });
    0
}

/// The Ethernet address of a node is nobody's business here.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resolve_eth_l2_from_gid(
    _context: *mut Context,
    attr: *mut AhAttr,
    mac: *mut [u8; 6],
    vlan: *mut u16,
) -> c_int {
    // SAFETY: the caller's structures.
    unsafe {
        let Some(ip) = place::ip(&(*attr).grh.0.dgid) else { return -libc::EINVAL };
        let ip = ip.octets();
        *mac = [2, 0, ip[0], ip[1], ip[2], ip[3]];
        if !vlan.is_null() {
            *vlan = 0xFFFF;
        }
    }
    0
}

const _: () = assert!(mem::offset_of!(OurQp, qp) == 0 && mem::offset_of!(OurAh, ah) == 0);
