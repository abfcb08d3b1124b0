//! The structures of `rdma/rdma_cma.h`, as rdma-core 44 (Debian 12) and 56 (Debian 13) have them.
//!
//! `tests/layout.rs` holds them against the headers.
#![allow(missing_docs, reason = "the header says what they are")]

use std::ffi::{c_char, c_int, c_void};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use super::super::types::{AhAttr, CompChannel, Context, Cq, Gid, Pd, Qp, Srq};

/// `union ibv_gid` has words of 64 bits.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub struct AlignedGid(pub Gid);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct IbAddr {
    pub sgid: AlignedGid,
    pub dgid: AlignedGid,
    /// In network order.
    pub pkey: u16,
}

#[repr(C)]
pub struct Addr {
    pub src_storage: sockaddr_storage,
    pub dst_storage: sockaddr_storage,
    pub addr: IbAddr,
}

/// `struct ibv_sa_path_rec`; words of 16 and 32 bits are in network order.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct PathRec {
    pub dgid: AlignedGid,
    pub sgid: AlignedGid,
    pub dlid: u16,
    pub slid: u16,
    pub raw_traffic: c_int,
    pub flow_label: u32,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reversible: c_int,
    pub numb_path: u8,
    pub pkey: u16,
    pub sl: u8,
    pub mtu_selector: u8,
    pub mtu: u8,
    pub rate_selector: u8,
    pub rate: u8,
    pub packet_life_time_selector: u8,
    pub packet_life_time: u8,
    pub preference: u8,
}

#[repr(C)]
pub struct Route {
    pub addr: Addr,
    pub path_rec: *mut PathRec,
    pub num_paths: c_int,
}

#[repr(C)]
pub struct EventChannel {
    pub fd: c_int,
}

#[repr(C)]
pub struct CmId {
    pub verbs: *mut Context,
    pub channel: *mut EventChannel,
    pub context: *mut c_void,
    pub qp: *mut Qp,
    pub route: Route,
    pub ps: c_int,
    pub port_num: u8,
    pub event: *mut CmEvent,
    pub send_cq_channel: *mut CompChannel,
    pub send_cq: *mut Cq,
    pub recv_cq_channel: *mut CompChannel,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub pd: *mut Pd,
    pub qp_type: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ConnParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct UdParam {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub ah_attr: AhAttr,
    pub qp_num: u32,
    pub qkey: u32,
}

#[repr(C)]
pub union Param {
    pub conn: ConnParam,
    pub ud: UdParam,
}

#[repr(C)]
pub struct CmEvent {
    pub id: *mut CmId,
    pub listen_id: *mut CmId,
    pub event: c_int,
    pub status: c_int,
    pub param: Param,
}

#[repr(C)]
pub struct AddrInfo {
    pub ai_flags: c_int,
    pub ai_family: c_int,
    pub ai_qp_type: c_int,
    pub ai_port_space: c_int,
    pub ai_src_len: socklen_t,
    pub ai_dst_len: socklen_t,
    pub ai_src_addr: *mut sockaddr,
    pub ai_dst_addr: *mut sockaddr,
    pub ai_src_canonname: *mut c_char,
    pub ai_dst_canonname: *mut c_char,
    pub ai_route_len: usize,
    pub ai_route: *mut c_void,
    pub ai_connect_len: usize,
    pub ai_connect: *mut c_void,
    pub ai_next: *mut AddrInfo,
}
