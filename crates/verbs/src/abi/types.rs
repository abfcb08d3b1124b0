//! The structures of `infiniband/verbs.h`, as rdma-core 44 (Debian 12) and 56 (Debian 13) have them.
//!
//! Names are the header's, without `ibv_`. What programs are given may be larger than they know: the layouts only grow.
//! `tests/layout.rs` holds them against the headers.
#![allow(missing_docs, reason = "the header says what they are")]

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::{pthread_cond_t, pthread_mutex_t};

pub type Gid = [u8; 16];

#[repr(C)]
pub struct Device {
    pub ops: [*mut c_void; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

pub type Unused = Option<unsafe extern "C" fn() -> *mut c_void>;

#[repr(C)]
pub struct ContextOps {
    pub compat_query_device: Unused,
    pub compat_query_port: Unused,
    pub compat_alloc_pd: Unused,
    pub compat_dealloc_pd: Unused,
    pub compat_reg_mr: Unused,
    pub compat_rereg_mr: Unused,
    pub compat_dereg_mr: Unused,
    pub alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    pub bind_mw: Option<unsafe extern "C" fn(*mut Qp, *mut Mw, *mut MwBind) -> c_int>,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    pub compat_create_cq: Unused,
    pub poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    pub compat_cq_event: Unused,
    pub compat_resize_cq: Unused,
    pub compat_destroy_cq: Unused,
    pub compat_create_srq: Unused,
    pub compat_modify_srq: Unused,
    pub compat_query_srq: Unused,
    pub compat_destroy_srq: Unused,
    pub post_srq_recv: Option<unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub compat_create_qp: Unused,
    pub compat_query_qp: Unused,
    pub compat_modify_qp: Unused,
    pub compat_destroy_qp: Unused,
    pub post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub compat_create_ah: Unused,
    pub compat_destroy_ah: Unused,
    pub compat_attach_mcast: Unused,
    pub compat_detach_mcast: Unused,
    pub compat_async_event: Unused,
}

#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    pub abi_compat: *mut c_void,
}

#[repr(C)]
pub struct VerbsContext {
    pub query_port: Option<unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, usize) -> c_int>,
    pub advise_mr: Unused,
    pub alloc_null_mr: Unused,
    pub read_counters: Unused,
    pub attach_counters_point_flow: Unused,
    pub create_counters: Unused,
    pub destroy_counters: Unused,
    pub reg_dm_mr: Unused,
    pub alloc_dm: Unused,
    pub free_dm: Unused,
    pub modify_flow_action_esp: Unused,
    pub destroy_flow_action: Unused,
    pub create_flow_action_esp: Unused,
    pub modify_qp_rate_limit: Unused,
    pub alloc_parent_domain: Option<unsafe extern "C" fn(*mut Context, *mut ParentDomainAttr) -> *mut Pd>,
    pub dealloc_td: Option<unsafe extern "C" fn(*mut Td) -> c_int>,
    pub alloc_td: Option<unsafe extern "C" fn(*mut Context, *mut c_void) -> *mut Td>,
    pub modify_cq: Unused,
    pub post_srq_ops: Unused,
    pub destroy_rwq_ind_table: Unused,
    pub create_rwq_ind_table: Unused,
    pub destroy_wq: Unused,
    pub modify_wq: Unused,
    pub create_wq: Unused,
    pub query_rt_values: Option<unsafe extern "C" fn(*mut Context, *mut ValuesEx) -> c_int>,
    pub create_cq_ex: Option<unsafe extern "C" fn(*mut Context, *mut CqInitAttrEx) -> *mut CqEx>,
    pub private: *mut c_void,
    pub query_device_ex:
        Option<unsafe extern "C" fn(*mut Context, *const c_void, *mut DeviceAttrEx, usize) -> c_int>,
    pub destroy_flow: Unused,
    pub placeholder2: Unused,
    pub create_flow: Unused,
    pub placeholder1: Unused,
    pub open_qp: Unused,
    pub create_qp_ex: Option<unsafe extern "C" fn(*mut Context, *mut QpInitAttrEx) -> *mut Qp>,
    pub get_srq_num: Option<unsafe extern "C" fn(*mut Srq, *mut u32) -> c_int>,
    pub create_srq_ex: Option<unsafe extern "C" fn(*mut Context, *mut SrqInitAttrEx) -> *mut Srq>,
    pub open_xrcd: Unused,
    pub close_xrcd: Unused,
    pub placeholder3: u64,
    pub sz: usize,
    pub context: Context,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// The parts behind the first are zeros here but for a few.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttrEx {
    pub orig_attr: DeviceAttr,
    pub comp_mask: u32,
    pub odp_caps: [u64; 3],
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub tso_caps: [u32; 2],
    pub rss_caps: [u64; 4],
    pub max_wq_type_rq: u32,
    pub packet_pacing_caps: [u32; 3],
    pub raw_packet_caps: u32,
    pub tm_caps: [u32; 5],
    pub cq_mod_caps: [u16; 2],
    pub max_dm_size: u64,
    pub pci_atomic_caps: [u16; 3],
    pub xrc_odp_caps: u32,
    pub phys_port_cnt_ex: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PortAttr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
    /// Since rdma-core 50.
    pub active_speed_ex: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GidEntry {
    pub gid: Gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AsyncEvent {
    pub element: *mut c_void,
    pub event_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// In network order; or the rkey that was invalidated.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

#[repr(C)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

#[repr(C)]
pub struct Td {
    pub context: *mut Context,
}

#[repr(C)]
pub struct ParentDomainAttr {
    pub pd: *mut Pd,
    pub td: *mut Td,
    pub comp_mask: u32,
    pub alloc: Unused,
    pub free: Unused,
    pub pd_context: *mut c_void,
}

#[repr(C)]
pub struct ValuesEx {
    pub comp_mask: u32,
    pub raw_clock: libc::timespec,
}

#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

#[repr(C)]
pub struct Mw {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub rkey: u32,
    pub handle: u32,
    pub kind: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct MwBindInfo {
    pub mr: *mut Mr,
    pub addr: u64,
    pub length: u64,
    pub mw_access_flags: c_uint,
}

#[repr(C)]
pub struct MwBind {
    pub wr_id: u64,
    pub send_flags: c_uint,
    pub bind_info: MwBindInfo,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct GlobalRoute {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct AhAttr {
    pub grh: GlobalRouteAligned,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `union ibv_gid` has words of 64 bits.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct GlobalRouteAligned(pub GlobalRoute);

#[repr(C)]
pub struct Grh {
    pub version_tclass_flow: u32,
    pub paylen: u16,
    pub next_hdr: u8,
    pub hop_limit: u8,
    pub sgid: Gid,
    pub dgid: Gid,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
}

#[repr(C)]
pub struct SrqInitAttrEx {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
    pub comp_mask: u32,
    pub srq_type: c_int,
    pub pd: *mut Pd,
    pub xrcd: *mut c_void,
    pub cq: *mut Cq,
    pub tm_cap: [u32; 2],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

#[repr(C)]
pub struct QpInitAttrEx {
    // As in `QpInitAttr`, without what pads that.
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut Pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RdmaWr {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AtomicWr {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UdWr {
    pub ah: *mut Ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

#[repr(C)]
pub union WrKind {
    pub rdma: RdmaWr,
    pub atomic: AtomicWr,
    pub ud: UdWr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct BindWr {
    pub mw: *mut Mw,
    pub rkey: u32,
    pub bind_info: MwBindInfo,
}

#[repr(C)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: c_uint,
    /// In network order; or the rkey to be invalidated.
    pub imm_data: u32,
    pub wr: WrKind,
    pub remote_srqn: u32,
    pub bind_mw: BindWr,
}

#[repr(C)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

#[repr(C)]
pub struct Srq {
    pub context: *mut Context,
    pub srq_context: *mut c_void,
    pub pd: *mut Pd,
    pub handle: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_int,
    pub qp_type: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
pub struct DataBuf {
    pub addr: *mut c_void,
    pub length: usize,
}

#[repr(C)]
pub struct QpEx {
    pub base: Qp,
    pub comp_mask: u64,
    pub wr_id: u64,
    pub wr_flags: c_uint,
    pub wr_atomic_cmp_swp: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64, u64)>,
    pub wr_atomic_fetch_add: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u64)>,
    pub wr_bind_mw: Option<unsafe extern "C" fn(*mut QpEx, *mut Mw, u32, *const MwBindInfo)>,
    pub wr_local_inv: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub wr_rdma_read: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub wr_rdma_write: Option<unsafe extern "C" fn(*mut QpEx, u32, u64)>,
    pub wr_rdma_write_imm: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub wr_send: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_send_imm: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub wr_send_inv: Option<unsafe extern "C" fn(*mut QpEx, u32)>,
    pub wr_send_tso: Unused,
    pub wr_set_ud_addr: Option<unsafe extern "C" fn(*mut QpEx, *mut Ah, u32, u32)>,
    pub wr_set_xrc_srqn: Unused,
    pub wr_set_inline_data: Option<unsafe extern "C" fn(*mut QpEx, *mut c_void, usize)>,
    pub wr_set_inline_data_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const DataBuf)>,
    pub wr_set_sge: Option<unsafe extern "C" fn(*mut QpEx, u32, u64, u32)>,
    pub wr_set_sge_list: Option<unsafe extern "C" fn(*mut QpEx, usize, *const Sge)>,
    pub wr_start: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_complete: Option<unsafe extern "C" fn(*mut QpEx) -> c_int>,
    pub wr_abort: Option<unsafe extern "C" fn(*mut QpEx)>,
    pub wr_atomic_write: Unused,
    /// Since rdma-core 46.
    pub wr_flush: Unused,
}

#[repr(C)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

#[repr(C)]
pub struct CqEx {
    pub base: Cq,
    pub comp_mask: u32,
    pub status: c_int,
    pub wr_id: u64,
    pub start_poll: Option<unsafe extern "C" fn(*mut CqEx, *mut c_void) -> c_int>,
    pub next_poll: Option<unsafe extern "C" fn(*mut CqEx) -> c_int>,
    pub end_poll: Option<unsafe extern "C" fn(*mut CqEx)>,
    pub read_opcode: Option<unsafe extern "C" fn(*mut CqEx) -> c_int>,
    pub read_vendor_err: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_byte_len: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_imm_data: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_qp_num: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_src_qp: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_wc_flags: Option<unsafe extern "C" fn(*mut CqEx) -> c_uint>,
    pub read_slid: Option<unsafe extern "C" fn(*mut CqEx) -> u32>,
    pub read_sl: Option<unsafe extern "C" fn(*mut CqEx) -> u8>,
    pub read_dlid_path_bits: Option<unsafe extern "C" fn(*mut CqEx) -> u8>,
    pub read_completion_ts: Option<unsafe extern "C" fn(*mut CqEx) -> u64>,
    pub read_cvlan: Unused,
    pub read_flow_tag: Unused,
    pub read_tm_info: Unused,
    pub read_completion_wallclock_ns: Option<unsafe extern "C" fn(*mut CqEx) -> u64>,
}

#[repr(C)]
pub struct CqInitAttrEx {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut CompChannel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut Pd,
}

#[repr(C)]
pub struct Ah {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub handle: u32,
}
