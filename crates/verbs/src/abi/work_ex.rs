//! `ibv_wr_*`: work requests that are built by calls, between `ibv_wr_start` and `ibv_wr_complete`.
//!
//! One thread at a time builds on a QP, says the header; so the builder needs no lock.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::slice;

use etherslot_rdma::{MAX_INLINE_BYTES, MAX_SGES, SendOpcode, SendWork, Sge as EngineSge};

use super::pairs::OurQp;
use super::types::{Ah, DataBuf, Mw, MwBindInfo, Qp, QpEx, Sge};
use super::work::{self, bytes};

/// A work request under construction; its SGEs and inline data are in the builder's lists.
#[derive(Clone, Copy)]
struct Draft {
    work: SendWork<'static>,
    ah: *mut Ah,
    remote_qp: u32,
    sges: (usize, usize),
    inline: Option<(usize, usize)>,
}

/// What was built.
#[derive(Default)]
pub(crate) struct Builder(UnsafeCell<Drafts>);

#[derive(Default)]
struct Drafts {
    list: Vec<Draft>,
    sges: Vec<EngineSge>,
    inline: Vec<u8>,
    failed: c_int,
}

impl Drafts {
    fn clear(&mut self) {
        self.list.clear();
        self.sges.clear();
        self.inline.clear();
        self.failed = 0;
    }

    fn end_inline(&mut self, start: usize) {
        let length = self.inline.len() - start;
        if length > MAX_INLINE_BYTES {
            self.failed = libc::EINVAL;
        }
        if let Some(draft) = self.list.last_mut() {
            draft.inline = Some((start, length));
        }
    }

    fn end_sges(&mut self, start: usize) {
        let length = self.sges.len() - start;
        if length > MAX_SGES {
            self.failed = libc::EINVAL;
        }
        if let Some(draft) = self.list.last_mut() {
            draft.sges = (start, length);
        }
    }
}

/// # Safety
/// `qp` is one that we made, and no other thread builds on it.
unsafe fn drafts<'a>(qp: *mut QpEx) -> &'a mut Drafts {
    // SAFETY: as the caller says; the reference ends with the call that made it.
    unsafe { &mut *OurQp::of(qp.cast::<Qp>()).builder.0.get() }
}

/// The functions of a QP.
pub(crate) fn functions(base: Qp) -> QpEx {
    // SAFETY: zeros are a valid value of all other fields.
    let zero: QpEx = unsafe { mem::zeroed() };
    QpEx {
        base,
        wr_atomic_cmp_swp: Some(atomic_cmp_swp),
        wr_atomic_fetch_add: Some(atomic_fetch_add),
        wr_bind_mw: Some(bind_mw),
        wr_local_inv: Some(local_inv),
        wr_rdma_read: Some(rdma_read),
        wr_rdma_write: Some(rdma_write),
        wr_rdma_write_imm: Some(rdma_write_imm),
        wr_send: Some(send),
        wr_send_imm: Some(send_imm),
        wr_send_inv: Some(send_inv),
        wr_set_ud_addr: Some(set_ud_addr),
        wr_set_inline_data: Some(set_inline_data),
        wr_set_inline_data_list: Some(set_inline_data_list),
        wr_set_sge: Some(set_sge),
        wr_set_sge_list: Some(set_sge_list),
        wr_start: Some(start),
        wr_complete: Some(complete),
        wr_abort: Some(abort),
        ..zero
    }
}

unsafe fn begin(qp: *mut QpEx, work: SendWork<'static>) {
    // SAFETY: the program's QP.
    unsafe {
        let work = SendWork { id: (*qp).wr_id, flags: work::flags((*qp).wr_flags), ..work };
        drafts(qp).list.push(Draft {
            work,
            ah: std::ptr::null_mut(),
            remote_qp: 0,
            sges: (0, 0),
            inline: None,
        });
    }
}

const WORK: SendWork<'static> = SendWork {
    opcode: SendOpcode::Nop,
    flags: 0,
    id: 0,
    remote_to: 0,
    remote_stag: 0,
    immediate: 0,
    sges: &[],
    inline: None,
    operands: [0; 2],
    local_flag: None,
    remote_flag: None,
};

macro_rules! requests {
    ($($name:ident($($argument:ident: $type:ty),*) = $opcode:ident { $($field:ident: $value:expr),* };)*) => {
        $(unsafe extern "C" fn $name(qp: *mut QpEx, $($argument: $type),*) {
            // SAFETY: the program's QP.
            unsafe { begin(qp, SendWork { opcode: SendOpcode::$opcode, $($field: $value,)* ..WORK }) };
        })*
    };
}

requests! {
    atomic_cmp_swp(rkey: u32, to: u64, compare: u64, swap: u64) =
        CompareSwap { remote_stag: rkey, remote_to: to, operands: [swap, compare] };
    atomic_fetch_add(rkey: u32, to: u64, add: u64) =
        FetchAdd { remote_stag: rkey, remote_to: to, operands: [add, 0] };
    local_inv(rkey: u32) = Invalidate { immediate: rkey };
    rdma_read(rkey: u32, to: u64) = Read { remote_stag: rkey, remote_to: to };
    rdma_write(rkey: u32, to: u64) = Write { remote_stag: rkey, remote_to: to };
    rdma_write_imm(rkey: u32, to: u64, immediate: u32) =
        WriteImmediate { remote_stag: rkey, remote_to: to, immediate: u32::from_be(immediate) };
    send() = Send {};
    send_imm(immediate: u32) = SendImmediate { immediate: u32::from_be(immediate) };
    send_inv(rkey: u32) = SendInvalidate { immediate: rkey };
}

unsafe extern "C" fn bind_mw(qp: *mut QpEx, _mw: *mut Mw, rkey: u32, info: *const MwBindInfo) {
    let mut request = WORK;
    // SAFETY: the program's QP, and the caller's structure.
    unsafe {
        work::bind(&mut request, rkey, &*info);
        begin(qp, request);
    }
}

unsafe extern "C" fn set_ud_addr(qp: *mut QpEx, ah: *mut Ah, remote_qp: u32, remote_key: u32) {
    // SAFETY: the program's QP.
    if let Some(draft) = unsafe { drafts(qp) }.list.last_mut() {
        draft.ah = ah;
        draft.remote_qp = remote_qp;
        draft.work.remote_stag = remote_key;
    }
}

unsafe extern "C" fn set_inline_data(qp: *mut QpEx, address: *mut c_void, length: usize) {
    // SAFETY: the program's QP, and the caller's data.
    unsafe {
        let drafts = drafts(qp);
        let start = drafts.inline.len();
        drafts.inline.extend_from_slice(bytes(address, length.min(MAX_INLINE_BYTES + 1)));
        drafts.end_inline(start);
    }
}

unsafe extern "C" fn set_inline_data_list(qp: *mut QpEx, count: usize, list: *const DataBuf) {
    // SAFETY: the program's QP, and the caller's data.
    unsafe {
        let drafts = drafts(qp);
        let start = drafts.inline.len();
        for index in 0..count {
            let piece = &*list.add(index);
            drafts.inline.extend_from_slice(bytes(piece.addr, piece.length.min(MAX_INLINE_BYTES + 1)));
        }
        drafts.end_inline(start);
    }
}

unsafe extern "C" fn set_sge(qp: *mut QpEx, lkey: u32, address: u64, length: u32) {
    // SAFETY: the program's QP.
    let drafts = unsafe { drafts(qp) };
    let start = drafts.sges.len();
    drafts.sges.push(EngineSge { to: address, stag: lkey, length });
    drafts.end_sges(start);
}

unsafe extern "C" fn set_sge_list(qp: *mut QpEx, count: usize, list: *const Sge) {
    // SAFETY: the program's QP, and the caller's list.
    let (drafts, list) =
        unsafe { (drafts(qp), if count == 0 { &[] } else { slice::from_raw_parts(list, count) }) };
    let start = drafts.sges.len();
    drafts.sges.extend(list.iter().map(|sge| EngineSge { to: sge.addr, stag: sge.lkey, length: sge.length }));
    drafts.end_sges(start);
}

unsafe extern "C" fn start(qp: *mut QpEx) {
    // SAFETY: the program's QP.
    unsafe { drafts(qp) }.clear();
}

unsafe extern "C" fn abort(qp: *mut QpEx) {
    // SAFETY: the program's QP.
    unsafe { drafts(qp) }.clear();
}

unsafe extern "C" fn complete(qp: *mut QpEx) -> c_int {
    // SAFETY: the program's QP.
    let (ours, drafts) = unsafe { (OurQp::of(qp.cast::<Qp>()), drafts(qp)) };
    if drafts.failed != 0 {
        return drafts.failed;
    }
    let now_ns = ours.rnic.now_ns();
    ours.rnic.act(|core| {
        for draft in &drafts.list {
            let (start, length) = draft.sges;
            let inline = draft.inline.map(|(start, length)| &drafts.inline[start..start + length]);
            let sges = if inline.is_some() { &[] } else { &drafts.sges[start..start + length] };
            let mut request = SendWork { sges, inline, ..draft.work };
            let posted = if ours.is_datagram {
                // SAFETY: the caller's handle.
                unsafe { work::datagram(core, now_ns, draft.ah, draft.remote_qp) }.and_then(|to| {
                    request.remote_to = to;
                    work::post_work(core, ours, &request)
                })
            } else {
                work::post_work(core, ours, &request)
            };
            if let Err(error) = posted {
                return error;
            }
        }
        0
    })
}
