//! Posting work requests.

use std::ffi::{c_int, c_void};
use std::slice;

use etherslot_rdma::{
    MAX_INLINE_BYTES, MAX_SGES, PostError, ReceiveWork, SendOpcode, SendWork, Sge as EngineSge, flag,
};

use super::memory::ProcessMemory;
use super::pairs::{OurAh, OurQp, OurSrq};
use super::regions;
use super::types::{Ah, BindWr, Mw, MwBind, MwBindInfo, Qp, RecvWr, SendWr, Sge, Srq, WrKind};
use crate::device::Core;
use crate::place;

pub(crate) const SIGNALED: u32 = 1 << 1;
pub(crate) const INLINE: u32 = 1 << 3;

/// Opcodes of `enum ibv_wr_opcode`.
pub(crate) mod opcode {
    pub(crate) const RDMA_WRITE: i32 = 0;
    pub(crate) const RDMA_WRITE_WITH_IMM: i32 = 1;
    pub(crate) const SEND: i32 = 2;
    pub(crate) const SEND_WITH_IMM: i32 = 3;
    pub(crate) const RDMA_READ: i32 = 4;
    pub(crate) const ATOMIC_CMP_AND_SWP: i32 = 5;
    pub(crate) const ATOMIC_FETCH_AND_ADD: i32 = 6;
    pub(crate) const LOCAL_INV: i32 = 7;
    pub(crate) const BIND_MW: i32 = 8;
    pub(crate) const SEND_WITH_INV: i32 = 9;
}

pub(crate) fn code(error: PostError) -> c_int {
    match error {
        PostError::Full => libc::ENOMEM,
        PostError::Unknown | PostError::State | PostError::Malformed => libc::EINVAL,
    }
}

/// What `flags` of a send are to the engine.
pub(crate) fn flags(send_flags: u32) -> u8 {
    const FENCE: u32 = 1;
    const SOLICITED: u32 = 1 << 2;
    [(FENCE, flag::FENCE), (SIGNALED, flag::SIGNALED), (SOLICITED, flag::SOLICITED)]
        .into_iter()
        .filter(|(theirs, _)| send_flags & theirs != 0)
        .fold(0, |all, (_, ours)| all | ours)
}

/// The operands of a Bind, in a send work request of the engine's.
///
/// # Safety
/// The region of `info` is null or one that we made.
pub(crate) unsafe fn bind(work: &mut SendWork<'_>, rkey: u32, info: &MwBindInfo) {
    const WRITE: u32 = 1 << 1;
    const READ: u32 = 1 << 2;
    const ATOMIC: u32 = 1 << 3;
    let rights = [(READ, 1), (WRITE, 2), (ATOMIC, 4), (regions::ZERO_BASED, 1 << 31)];
    work.opcode = SendOpcode::Bind;
    work.remote_stag = rkey;
    work.remote_to = info.addr;
    work.immediate = rights
        .into_iter()
        .filter(|(theirs, _)| info.mw_access_flags & theirs != 0)
        .fold(0, |all, (_, ours)| all | ours);
    // SAFETY: as the caller says.
    let region = unsafe { info.mr.as_ref() }.map_or(0, |mr| mr.lkey);
    work.operands = [u64::from(region), info.length];
}

/// Where a datagram goes: the engine's peer, and its QP.
///
/// # Safety
/// `ah` is null or a handle that we made.
pub(crate) unsafe fn datagram(
    core: &mut Core<ProcessMemory>,
    now_ns: u64,
    ah: *mut Ah,
    number: u32,
) -> Result<u64, c_int> {
    if ah.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says.
    let ah = unsafe { OurAh::of(ah) };
    let address = place::process(&ah.gid, number).ok_or(libc::EINVAL)?;
    let peer = core.rnic.peer(now_ns, address).ok_or(libc::ENOMEM)?;
    Ok(u64::from(peer.0) | u64::from(place::engine_number(number).0) << 32)
}

/// Copies inline data; returns how many bytes there are.
///
/// # Safety
/// Of each piece all bytes are readable.
unsafe fn gather(pieces: &[Sge], out: &mut [u8; MAX_INLINE_BYTES]) -> Result<usize, c_int> {
    let mut at = 0;
    for piece in pieces {
        let length = piece.length as usize;
        let to = out.get_mut(at..at + length).ok_or(libc::EINVAL)?;
        // SAFETY: the caller's bytes, and room for them.
        unsafe { (piece.addr as *const u8).copy_to_nonoverlapping(to.as_mut_ptr(), length) };
        at += length;
    }
    Ok(at)
}

#[inline]
unsafe fn sges<'a>(list: *mut Sge, count: c_int) -> Result<&'a [Sge], c_int> {
    let count = usize::try_from(count).map_err(|_| libc::EINVAL)?;
    if count > MAX_SGES || count > 0 && list.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's list has so many.
    Ok(if count == 0 { &[] } else { unsafe { slice::from_raw_parts(list, count) } })
}

#[inline]
fn convert<'a>(from: &[Sge], to: &'a mut [EngineSge; MAX_SGES]) -> &'a [EngineSge] {
    for (to, from) in to.iter_mut().zip(from) {
        *to = EngineSge { to: from.addr, stag: from.lkey, length: from.length };
    }
    &to[..from.len()]
}

/// The pieces of a work request as the engine takes them, or its inline data, until it is posted.
pub(crate) struct Pieces {
    places: [EngineSge; MAX_SGES],
    bytes: [u8; MAX_INLINE_BYTES],
}

impl Pieces {
    #[inline]
    pub(crate) fn new() -> Self {
        Self { places: [EngineSge::default(); MAX_SGES], bytes: [0; MAX_INLINE_BYTES] }
    }

    /// Puts those of `wr` into what [`describe`] has made of it.
    ///
    /// # Safety
    /// The list is as long as it says, and inline data are readable.
    #[inline]
    pub(crate) unsafe fn put<'a>(&'a mut self, wr: &SendWr, work: &mut SendWork<'a>) -> Result<(), c_int> {
        if matches!(work.opcode, SendOpcode::Bind | SendOpcode::Invalidate) {
            return Ok(());
        }
        // SAFETY: the caller's list.
        let list = unsafe { sges(wr.sg_list, wr.num_sge)? };
        if wr.send_flags & INLINE != 0 {
            // SAFETY: the caller's data.
            let length = unsafe { gather(list, &mut self.bytes)? };
            work.inline = Some(&self.bytes[..length]);
        } else {
            work.sges = convert(list, &mut self.places);
        }
        Ok(())
    }
}

/// Posts one send work request.
unsafe fn post_one(
    core: &mut Core<ProcessMemory>,
    now_ns: u64,
    qp: &OurQp,
    wr: &SendWr,
) -> Result<(), c_int> {
    let mut pieces = Pieces::new();
    // SAFETY: as the header asks.
    let work = unsafe {
        let mut work = describe(core, now_ns, qp, wr)?;
        pieces.put(wr, &mut work)?;
        work
    };
    post_work(core, qp, &work)
}

/// A send work request of the engine's, but for its pieces.
///
/// # Safety
/// The parts of the union that the opcode stands for are set, and what they point to is the program's.
#[inline]
pub(crate) unsafe fn describe<'a>(
    core: &mut Core<ProcessMemory>,
    now_ns: u64,
    qp: &OurQp,
    wr: &SendWr,
) -> Result<SendWork<'a>, c_int> {
    let mut work = SendWork { flags: flags(wr.send_flags), id: wr.wr_id, ..SendWork::default() };
    // SAFETY: as the header asks: the parts of the union that an opcode stands for are set.
    unsafe {
        match wr.opcode {
            opcode::RDMA_WRITE | opcode::RDMA_WRITE_WITH_IMM | opcode::RDMA_READ => {
                work.opcode = match wr.opcode {
                    opcode::RDMA_WRITE => SendOpcode::Write,
                    opcode::RDMA_READ => SendOpcode::Read,
                    _ => SendOpcode::WriteImmediate,
                };
                work.remote_to = wr.wr.rdma.remote_addr;
                work.remote_stag = wr.wr.rdma.rkey;
                work.immediate = u32::from_be(wr.imm_data);
            }
            opcode::SEND | opcode::SEND_WITH_IMM | opcode::SEND_WITH_INV => {
                work.opcode = match wr.opcode {
                    opcode::SEND => SendOpcode::Send,
                    opcode::SEND_WITH_IMM => SendOpcode::SendImmediate,
                    _ => SendOpcode::SendInvalidate,
                };
                work.immediate = match wr.opcode {
                    opcode::SEND_WITH_INV => wr.imm_data,
                    _ => u32::from_be(wr.imm_data),
                };
                if qp.is_datagram {
                    work.remote_to = datagram(core, now_ns, wr.wr.ud.ah, wr.wr.ud.remote_qpn)?;
                    work.remote_stag = wr.wr.ud.remote_qkey;
                }
            }
            opcode::ATOMIC_CMP_AND_SWP => {
                work.opcode = SendOpcode::CompareSwap;
                work.remote_to = wr.wr.atomic.remote_addr;
                work.remote_stag = wr.wr.atomic.rkey;
                work.operands = [wr.wr.atomic.swap, wr.wr.atomic.compare_add];
            }
            opcode::ATOMIC_FETCH_AND_ADD => {
                work.opcode = SendOpcode::FetchAdd;
                work.remote_to = wr.wr.atomic.remote_addr;
                work.remote_stag = wr.wr.atomic.rkey;
                work.operands = [wr.wr.atomic.compare_add, 0];
            }
            opcode::LOCAL_INV => {
                work.opcode = SendOpcode::Invalidate;
                work.immediate = wr.imm_data;
            }
            opcode::BIND_MW => bind(&mut work, wr.bind_mw.rkey, &wr.bind_mw.bind_info),
            _ => return Err(libc::EINVAL),
        }
    }
    Ok(work)
}

/// Posts a send work request of the engine's.
#[inline]
pub(crate) fn post_work(
    core: &mut Core<ProcessMemory>,
    qp: &OurQp,
    work: &SendWork<'_>,
) -> Result<(), c_int> {
    core.engine().post_send(qp.id, work).map_err(code)
}

pub(crate) unsafe extern "C" fn post_send(qp: *mut Qp, first: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    // SAFETY: the program's QP.
    let ours = unsafe { OurQp::of(qp) };
    let now_ns = ours.rnic.now_ns();
    ours.rnic.act(|core| {
        let mut next = first;
        // SAFETY: the caller's list, which ends with null; `bad` is where to say where it failed.
        while let Some(wr) = unsafe { next.as_ref() } {
            // SAFETY: as the header asks.
            if let Err(error) = unsafe { post_one(core, now_ns, ours, wr) } {
                // SAFETY: as above.
                unsafe { *bad = next };
                return error;
            }
            next = wr.next;
        }
        0
    })
}

/// Posts a list of receive work requests by `post`.
unsafe fn post_receives(
    first: *mut RecvWr,
    bad: *mut *mut RecvWr,
    mut post: impl FnMut(&ReceiveWork<'_>) -> Result<(), PostError>,
) -> c_int {
    let mut next = first;
    let mut places = [EngineSge::default(); MAX_SGES];
    // SAFETY: the caller's list, which ends with null.
    while let Some(wr) = unsafe { next.as_ref() } {
        // SAFETY: the caller's list.
        let posted = unsafe { sges(wr.sg_list, wr.num_sge) }.and_then(|list| {
            let work = ReceiveWork { id: wr.wr_id, sges: convert(list, &mut places) };
            post(&work).map_err(code)
        });
        if let Err(error) = posted {
            // SAFETY: `bad` is where to say where it failed.
            unsafe { *bad = next };
            return error;
        }
        next = wr.next;
    }
    0
}

pub(crate) unsafe extern "C" fn post_recv(qp: *mut Qp, first: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    // SAFETY: the program's QP.
    let ours = unsafe { OurQp::of(qp) };
    let mut core = ours.rnic.lock();
    // SAFETY: as the header asks.
    let result = unsafe { post_receives(first, bad, |work| core.engine().post_receive(ours.id, work)) };
    core.engine().ring();
    // What is posted to a QP in ERROR completes at once.
    core.tell();
    result
}

pub(crate) unsafe extern "C" fn post_srq_recv(
    srq: *mut Srq,
    first: *mut RecvWr,
    bad: *mut *mut RecvWr,
) -> c_int {
    // SAFETY: the program's SRQ.
    let ours = unsafe { OurSrq::of(srq) };
    let mut core = ours.rnic.lock();
    // SAFETY: as the header asks.
    let result = unsafe { post_receives(first, bad, |work| core.engine().post_srq(ours.id, work)) };
    core.engine().ring();
    result
}

/// Binds a window of type 1: the key changes with it.
pub(crate) unsafe extern "C" fn bind_mw(qp: *mut Qp, mw: *mut Mw, request: *mut MwBind) -> c_int {
    // SAFETY: the program's window, and the caller's structure.
    let (window, request) = unsafe { (&mut *mw, &*request) };
    let rkey = window.rkey & !0xFF | window.rkey.wrapping_add(1) & 0xFF;
    let is_unbind = request.bind_info.length == 0;
    let mut wr = SendWr {
        wr_id: request.wr_id,
        next: std::ptr::null_mut(),
        sg_list: std::ptr::null_mut(),
        num_sge: 0,
        opcode: if is_unbind { opcode::LOCAL_INV } else { opcode::BIND_MW },
        send_flags: request.send_flags,
        imm_data: window.rkey,
        wr: WrKind { rdma: super::types::RdmaWr { remote_addr: 0, rkey: 0 } },
        remote_srqn: 0,
        bind_mw: BindWr { mw, rkey, bind_info: request.bind_info },
    };
    let mut bad = std::ptr::null_mut();
    // SAFETY: a list of one.
    let result = unsafe { post_send(qp, &raw mut wr, &raw mut bad) };
    if result == 0 && !is_unbind {
        window.rkey = rkey;
    }
    result
}

/// The start of inline data, for [`super::work_ex`].
///
/// # Safety
/// All bytes are readable.
pub(crate) unsafe fn bytes<'a>(address: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: as the caller says.
    unsafe { slice::from_raw_parts(address.cast(), length) }
}
