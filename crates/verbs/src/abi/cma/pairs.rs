//! QPs of ids, and what their other side has to do with their states.

use std::ffi::c_int;
use std::{mem, ptr};

use etherslot_wire::cm::Service;

use super::types::CmId;
use super::{OurId, QPT_UD, code, done, events, service};
use crate::abi::completions::{
    ibv_create_comp_channel, ibv_create_cq, ibv_destroy_comp_channel, ibv_destroy_cq,
};
use crate::abi::context::PORT;
use crate::abi::pairs::{create_qp_ex, create_srq_ex, ibv_destroy_qp, ibv_destroy_srq, ibv_modify_qp, mask};
use crate::abi::types::{
    AhAttr, CompChannel, Cq, Gid, Pd, Qp, QpAttr, QpInitAttr, QpInitAttrEx, SrqInitAttr, SrqInitAttrEx,
};
use crate::place;

/// The `Q_Key` of all datagram QPs that a connection manager makes (`RDMA_UDP_QKEY`).
pub(super) const Q_KEY: u32 = 0x0123_4567;
/// `comp_mask` of a QP and of an SRQ: the domain is given.
const QP_PD: u32 = 1;
const SRQ_PD: u32 = 1 << 1;
/// Local and remote writes, reads, atomics: what a peer may do, its keys say.
const ACCESS: u32 = 0xF;
/// 2048 bytes, the active MTU.
const PATH_MTU: c_int = 4;
/// 67 ms, of which nobody takes notice.
const TIMEOUT: u8 = 14;
/// 0.64 ms: how long a receiver that is not ready asks to wait.
const RNR_TIMER: u8 = 12;

/// The number of an error that the last call has left.
fn errno() -> c_int {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() }
}

/// A function of verbs has failed with this, or in errno.
fn check(result: c_int) -> Result<(), c_int> {
    match result {
        0 => Ok(()),
        code if code > 0 => Err(code),
        _ => Err(errno()),
    }
}

/// How datagrams and messages get to a node.
pub(super) fn ah_attr(gid: Gid) -> AhAttr {
    let mut attr = AhAttr { is_global: 1, port_num: PORT, ..AhAttr::default() };
    attr.grh.0.dgid = gid;
    attr.grh.0.hop_limit = 64;
    attr
}

/// What takes the QP of an id to a state, and which fields those are.
pub(super) fn attributes(ours: &OurId, state: c_int) -> Result<(QpAttr, c_int), c_int> {
    let ((our, their), (_, service), (_, remote)) = ours
        .manager()
        .look(|it| Ok((it.terms(ours.handle)?, it.service(ours.handle)?, it.places(ours.handle)?)))
        .map_err(code)?;
    let mut attr = QpAttr { qp_state: state, port_num: PORT, ..QpAttr::default() };
    let is_datagram = service == Service::Ud;
    let fields = match (state, is_datagram) {
        (1, true) => {
            attr.qkey = Q_KEY;
            mask::PKEY_INDEX | mask::PORT | mask::QKEY
        }
        (1, false) => {
            attr.qp_access_flags = ACCESS;
            mask::PKEY_INDEX | mask::PORT | mask::ACCESS_FLAGS
        }
        (2, true) => 0,
        (3, true) => mask::SQ_PSN,
        (2, false) => {
            attr.ah_attr = ah_attr(place::gid(*remote.ok_or(libc::EINVAL)?.ip()));
            attr.path_mtu = PATH_MTU;
            attr.dest_qp_num = their.qp;
            attr.rq_psn = their.number;
            attr.max_dest_rd_atomic = our.responder_resources;
            attr.min_rnr_timer = RNR_TIMER;
            let both = mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
            let reliable = mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
            both | if service == Service::Rc { reliable } else { 0 }
        }
        (3, false) => {
            attr.timeout = TIMEOUT;
            attr.retry_cnt = our.retries;
            attr.rnr_retry = their.rnr_retries;
            attr.sq_psn = our.number;
            attr.max_rd_atomic = our.initiator_depth.min(their.responder_resources);
            let reliable = mask::TIMEOUT | mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
            mask::SQ_PSN | if service == Service::Rc { reliable } else { 0 }
        }
        _ => return Err(libc::EINVAL),
    };
    Ok((attr, mask::STATE | fields))
}

/// # Safety
/// The program's QP.
unsafe fn modify(qp: *mut Qp, (mut attr, fields): (QpAttr, c_int)) -> Result<(), c_int> {
    // SAFETY: as the caller says.
    check(unsafe { ibv_modify_qp(qp, &raw mut attr, fields) })
}

/// Takes the QP to where it receives and sends.
///
/// # Safety
/// The program's id, which has a QP.
pub(super) unsafe fn make_ready(id: *mut CmId) -> Result<(), c_int> {
    // SAFETY: as the caller says.
    let (ours, qp) = unsafe { (OurId::of(id), (*id).qp) };
    for state in [2, 3] {
        // SAFETY: the same.
        unsafe { modify(qp, attributes(ours, state)?)? };
    }
    Ok(())
}

/// Flushes the QP.
///
/// # Safety
/// As [`make_ready`].
pub(super) unsafe fn end(id: *mut CmId) {
    const ERROR: c_int = 6;
    let attr = QpAttr { qp_state: ERROR, ..QpAttr::default() };
    // SAFETY: the same. One that is reset has nothing to be flushed.
    let _ = unsafe { modify((*id).qp, (attr, mask::STATE)) };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_init_qp_attr(id: *mut CmId, attr: *mut QpAttr, fields: *mut c_int) -> c_int {
    // SAFETY: the program's id, and the caller's structures.
    unsafe {
        match attributes(OurId::of(id), (*attr).qp_state) {
            Ok(known) => {
                attr.write(known.0);
                *fields = known.1;
                0
            }
            Err(code) => done(Err(code)),
        }
    }
}

/// A CQ of the id's own, with its channel.
///
/// # Safety
/// The program's id.
unsafe fn create_cq(id: *mut CmId, entries: u32) -> Result<(*mut CompChannel, *mut Cq), c_int> {
    // SAFETY: as the caller says.
    unsafe {
        let channel = ibv_create_comp_channel((*id).verbs);
        if channel.is_null() {
            return Err(errno());
        }
        let entries = entries.max(1).cast_signed();
        let cq = ibv_create_cq((*id).verbs, entries, id.cast(), channel, 0);
        if cq.is_null() {
            let code = errno();
            ibv_destroy_comp_channel(channel);
            return Err(code);
        }
        Ok((channel, cq))
    }
}

/// # Safety
/// The program's id, without a QP.
unsafe fn destroy_cqs(id: *mut CmId) {
    // SAFETY: as the caller says; CQs of ids are ours.
    unsafe {
        let id = &mut *id;
        for (cq, channel) in
            [(&mut id.send_cq, &mut id.send_cq_channel), (&mut id.recv_cq, &mut id.recv_cq_channel)]
        {
            let (cq, channel) = (mem::replace(cq, ptr::null_mut()), mem::replace(channel, ptr::null_mut()));
            if !cq.is_null() {
                ibv_destroy_cq(cq);
            }
            if !channel.is_null() {
                ibv_destroy_comp_channel(channel);
            }
        }
    }
}

/// The domain for what is made: the one asked for, the id's, or that of all.
///
/// # Safety
/// The program's id.
unsafe fn domain(id: *mut CmId, asked: *mut Pd) -> *mut Pd {
    // SAFETY: as the caller says.
    let own = unsafe { (*id).pd };
    // SAFETY: the same.
    [asked, own].into_iter().find(|pd| !pd.is_null()).unwrap_or_else(|| unsafe { OurId::of(id) }.shared.pd())
}

/// # Safety
/// The program's id, and the caller's structure.
unsafe fn create_qp(id: *mut CmId, attr: &mut QpInitAttrEx) -> Result<(), c_int> {
    // SAFETY: as the caller says.
    unsafe {
        if (*id).verbs.is_null() || !(*id).qp.is_null() {
            return Err(libc::EINVAL);
        }
        service(attr.qp_type)?;
        if (attr.qp_type == QPT_UD) != ((*id).qp_type == QPT_UD) {
            return Err(libc::EINVAL);
        }
        attr.pd = domain(id, if attr.comp_mask & QP_PD == 0 { ptr::null_mut() } else { attr.pd });
        attr.comp_mask |= QP_PD;
        if attr.srq.is_null() {
            attr.srq = (*id).srq;
        }
        if attr.send_cq.is_null() {
            ((*id).send_cq_channel, (*id).send_cq) = create_cq(id, attr.cap.max_send_wr)?;
            attr.send_cq = (*id).send_cq;
        }
        let receives =
            if attr.recv_cq.is_null() { create_cq(id, attr.cap.max_recv_wr).map(Some) } else { Ok(None) };
        match receives {
            Ok(None) => {}
            Ok(Some((channel, cq))) => {
                ((*id).recv_cq_channel, (*id).recv_cq) = (channel, cq);
                attr.recv_cq = cq;
            }
            Err(code) => {
                destroy_cqs(id);
                return Err(code);
            }
        }
        let qp = create_qp_ex((*id).verbs, ptr::from_mut(attr));
        if qp.is_null() {
            let code = errno();
            destroy_cqs(id);
            return Err(code);
        }
        let ours = OurId::of(id);
        let states: &[c_int] = if attr.qp_type == QPT_UD { &[1, 2, 3] } else { &[1] };
        for &state in states {
            if let Err(code) = attributes(ours, state).and_then(|known| modify(qp, known)) {
                ibv_destroy_qp(qp);
                destroy_cqs(id);
                return Err(code);
            }
        }
        (*id).qp_type = attr.qp_type;
        (*id).pd = attr.pd;
        (*id).qp = qp;
    }
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_qp_ex(id: *mut CmId, attr: *mut QpInitAttrEx) -> c_int {
    // SAFETY: as the header asks.
    done(unsafe { create_qp(id, &mut *attr) })
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_create_qp(id: *mut CmId, pd: *mut Pd, attr: *mut QpInitAttr) -> c_int {
    // SAFETY: zeros are a valid value; the rest as the header asks.
    unsafe {
        let mut more: QpInitAttrEx = mem::zeroed();
        let QpInitAttr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all } = *attr;
        more = QpInitAttrEx { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, ..more };
        if !pd.is_null() {
            more.pd = pd;
            more.comp_mask = QP_PD;
        }
        let result = create_qp(id, &mut more);
        if result.is_ok() {
            (*attr).cap = more.cap;
            (*attr).send_cq = more.send_cq;
            (*attr).recv_cq = more.recv_cq;
        }
        done(result)
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_destroy_qp(id: *mut CmId) {
    // SAFETY: the program's id.
    unsafe {
        let qp = mem::replace(&mut (*id).qp, ptr::null_mut());
        if !qp.is_null() {
            ibv_destroy_qp(qp);
        }
        destroy_cqs(id);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq_ex(id: *mut CmId, attr: *mut SrqInitAttrEx) -> c_int {
    // SAFETY: the program's id, and the caller's structure.
    unsafe {
        if (*id).verbs.is_null() || !(*id).srq.is_null() {
            return done(Err(libc::EINVAL));
        }
        let asked = if (*attr).comp_mask & SRQ_PD == 0 { ptr::null_mut() } else { (*attr).pd };
        (*attr).pd = domain(id, asked);
        (*attr).comp_mask |= SRQ_PD;
        let srq = create_srq_ex((*id).verbs, attr);
        if srq.is_null() {
            return -1;
        }
        (*id).pd = (*attr).pd;
        (*id).srq = srq;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_create_srq(id: *mut CmId, pd: *mut Pd, attr: *mut SrqInitAttr) -> c_int {
    // SAFETY: zeros are a valid value; the rest as the header asks.
    unsafe {
        let mut more: SrqInitAttrEx = mem::zeroed();
        more.srq_context = (*attr).srq_context;
        more.attr = (*attr).attr;
        if !pd.is_null() {
            more.pd = pd;
            more.comp_mask = SRQ_PD;
        }
        let result = rdma_create_srq_ex(id, &raw mut more);
        (*attr).attr = more.attr;
        result
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn rdma_destroy_srq(id: *mut CmId) {
    // SAFETY: the program's id.
    unsafe {
        let srq = mem::replace(&mut (*id).srq, ptr::null_mut());
        if !srq.is_null() {
            ibv_destroy_srq(srq);
        }
    }
}

/// Takes the next request of a listener whose calls wait.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_get_request(listener: *mut CmId, out: *mut *mut CmId) -> c_int {
    // SAFETY: the program's id, and the caller's place; the event's id is one that we made.
    unsafe {
        let ours = OurId::of(listener);
        if !ours.own().is_sync {
            return done(Err(libc::EINVAL));
        }
        let before = mem::replace(&mut (*listener).event, ptr::null_mut());
        if !before.is_null() {
            events::rdma_ack_cm_event(before);
        }
        let mut event = ptr::null_mut();
        if events::rdma_get_cm_event((*listener).channel, &raw mut event) != 0 {
            return -1;
        }
        let id = (*event).id;
        if (*event).listen_id != listener {
            let status = (*event).status;
            events::rdma_ack_cm_event(event);
            return done(Err(if status == 0 { libc::EINVAL } else { status.abs() }));
        }
        let passive = ours.own().passive;
        if let Some(mut attr) = passive
            && rdma_create_qp(id, (*listener).pd, &raw mut attr) != 0
        {
            let code = errno();
            events::rdma_ack_cm_event(event);
            super::rdma_destroy_id(id);
            return done(Err(code));
        }
        (*id).event = event;
        *out = id;
    }
    0
}
