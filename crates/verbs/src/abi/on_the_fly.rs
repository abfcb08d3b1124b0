//! What `include/etherslot.h` has beside the verbs: sends on the fly, PUSH and PULL.
//!
//! The engine is in the process, so a window is no memory of a device but a call: BOTF saves what turns an `ibv_send_wr` into a WQE,
//! AOTF the WQE as well.

use std::ffi::{c_int, c_uint};
use std::slice;

use etherslot_rdma::{BLOCK_BYTES, Flag, SendOpcode, SendWork};

use super::pairs::{self, OurQp};
use super::types::{Qp, SendWr};
use super::work::{self, Pieces};

/// `struct etherslot_wqe`: a WQE (docs/rnic.md, section 4) of the most blocks that there are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what they are")]
pub struct Wqe {
    pub opcode: u8,
    pub flags: u8,
    pub blocks: u8,
    pub sges: u8,
    pub inline_bytes: u32,
    pub wr_id: u64,
    pub remote_addr: u64,
    pub rkey: u32,
    pub imm_data: u32,
    pub data: [u8; SendWork::MAX_BYTES - 32],
}

/// `struct etherslot_flag`: where a flag of PUSH or PULL is stored, and what.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the header says what they are")]
pub struct FlagAt {
    pub addr: u64,
    pub value: u64,
    pub key: u32,
    pub reserved: u32,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn etherslot_aotf_prepare(qp: *mut Qp, place: c_uint, wr: *const SendWr) -> c_int {
    // SAFETY: the program's QP and work request.
    let (ours, wr) = unsafe { (OurQp::of(qp), &*wr) };
    let now_ns = ours.rnic.now_ns();
    let mut core = ours.rnic.lock();
    // SAFETY: as the header asks.
    let prepared = unsafe { work::describe(&mut core, now_ns, ours, wr) }.and_then(|work| {
        let work = SendWork { inline: Some(&[0; 8]), ..work };
        core.engine().prepare(ours.id, place as usize, &work).map_err(pairs::code)
    });
    prepared.err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn etherslot_aotf_store(qp: *mut Qp, place: c_uint, value: u64) -> c_int {
    // SAFETY: the program's QP.
    let ours = unsafe { OurQp::of(qp) };
    let stored = ours.rnic.act(|core| core.engine().store(ours.id, place as usize, value));
    stored.map_or_else(work::code, |()| 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn etherslot_botf(qp: *mut Qp, wqe: *const Wqe) -> c_int {
    // SAFETY: the program's QP, and a WQE of it.
    let (ours, blocks) = unsafe { (OurQp::of(qp), usize::from((*wqe).blocks)) };
    // What it says it has is there, unless that is more than there can be; the rest may never have been written.
    let bytes = (blocks * BLOCK_BYTES).min(size_of::<Wqe>());
    // SAFETY: the program's, and without padding.
    let bytes = unsafe { slice::from_raw_parts(wqe.cast::<u8>(), bytes) };
    let kicked = ours.rnic.act(|core| core.engine().kick(ours.id, bytes));
    kicked.map_or_else(work::code, |()| 0)
}

/// A flag of the program's.
unsafe fn flag(flag: *const FlagAt) -> Option<Flag> {
    // SAFETY: null, or a flag of the program's.
    unsafe { flag.as_ref() }.map(|flag| Flag { stag: flag.key, to: flag.addr, value: flag.value })
}

/// Posts a Write or Read with flags.
unsafe fn post_flagged(
    qp: *mut Qp,
    wr: *const SendWr,
    opcode: SendOpcode,
    [local, remote]: [*const FlagAt; 2],
) -> c_int {
    // SAFETY: the program's QP and work request.
    let (ours, wr) = unsafe { (OurQp::of(qp), &*wr) };
    let now_ns = ours.rnic.now_ns();
    let mut pieces = Pieces::new();
    let posted = ours.rnic.act(|core| {
        // SAFETY: as the header asks.
        let mut work = unsafe { work::describe(core, now_ns, ours, wr)? };
        if work.opcode != opcode {
            return Err(libc::EINVAL);
        }
        // SAFETY: as above.
        unsafe {
            pieces.put(wr, &mut work)?;
            (work.local_flag, work.remote_flag) = (flag(local), flag(remote));
        }
        work::post_work(core, ours, &work)
    });
    posted.err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn etherslot_push(
    qp: *mut Qp,
    wr: *const SendWr,
    local: *const FlagAt,
    remote: *const FlagAt,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { post_flagged(qp, wr, SendOpcode::Write, [local, remote]) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn etherslot_pull(
    qp: *mut Qp,
    wr: *const SendWr,
    local: *const FlagAt,
    remote: *const FlagAt,
) -> c_int {
    // SAFETY: as the header asks.
    unsafe { post_flagged(qp, wr, SendOpcode::Read, [local, remote]) }
}
