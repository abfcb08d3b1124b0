//! The structures of the ABI lie in memory as the header of Debian's libibverbs-dev has them.
//!
//! A C program that is written here from the same list as the comparison tells sizes and offsets.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::process::Command;

use etherslot_rdma::{BLOCK_BYTES, MAX_INLINE_BYTES, ON_THE_FLY_PLACES, SendOpcode, SendWork, flag};
use etherslot_verbs::abi::cma::types::*;
use etherslot_verbs::abi::on_the_fly::{FlagAt, Wqe};
use etherslot_verbs::abi::types::*;

/// What our own header says in numbers.
const CONSTANTS: &[(&str, usize)] = &[
    ("ETHERSLOT_AOTF_PLACES", ON_THE_FLY_PLACES),
    ("ETHERSLOT_WQE_BLOCKS", SendWork::MAX_BYTES / BLOCK_BYTES),
    ("ETHERSLOT_INLINE_BYTES", MAX_INLINE_BYTES),
    ("ETHERSLOT_WRITE", SendOpcode::Write as usize),
    ("ETHERSLOT_WRITE_IMM", SendOpcode::WriteImmediate as usize),
    ("ETHERSLOT_SEND", SendOpcode::Send as usize),
    ("ETHERSLOT_SEND_IMM", SendOpcode::SendImmediate as usize),
    ("ETHERSLOT_SEND_INVALIDATE", SendOpcode::SendInvalidate as usize),
    ("ETHERSLOT_SIGNALED", flag::SIGNALED as usize),
    ("ETHERSLOT_FENCE", flag::FENCE as usize),
    ("ETHERSLOT_SOLICITED", flag::SOLICITED as usize),
    ("ETHERSLOT_INLINE", flag::INLINE as usize),
    ("etherslot_blocks(32)", 1),
    ("etherslot_blocks(33)", 2),
    ("etherslot_blocks(480)", 8),
];

/// Size and offsets of a structure: in C, and ours.
struct Layout {
    c: &'static str,
    size: usize,
    /// Newer headers have more at the end, which older programs do not see.
    grows: bool,
    fields: Vec<(&'static str, usize)>,
}

macro_rules! layouts {
    ($($c:literal $type:ident $($grows:ident)? { $($field:literal = $($ours:tt).+),* $(,)? })*) => {
        vec![$(Layout {
            c: $c,
            size: size_of::<$type>(),
            grows: [$(stringify!($grows))?].contains(&"grows"),
            fields: vec![$(($field, offset_of!($type, $($ours).+))),*],
        }),*]
    };
}

fn layouts() -> Vec<Layout> {
    layouts! {
        "struct ibv_device" Device {
            "node_type" = node_type, "transport_type" = transport_type, "name" = name, "dev_name" = dev_name,
            "dev_path" = dev_path, "ibdev_path" = ibdev_path,
        }
        "struct ibv_context_ops" ContextOps {
            "alloc_mw" = alloc_mw, "bind_mw" = bind_mw, "dealloc_mw" = dealloc_mw, "poll_cq" = poll_cq,
            "req_notify_cq" = req_notify_cq, "post_srq_recv" = post_srq_recv, "post_send" = post_send,
            "post_recv" = post_recv,
        }
        "struct ibv_context" Context {
            "device" = device, "ops" = ops, "cmd_fd" = cmd_fd, "async_fd" = async_fd,
            "num_comp_vectors" = num_comp_vectors, "mutex" = mutex, "abi_compat" = abi_compat,
        }
        "struct verbs_context" VerbsContext {
            "query_port" = query_port, "alloc_parent_domain" = alloc_parent_domain, "dealloc_td" = dealloc_td,
            "alloc_td" = alloc_td, "query_rt_values" = query_rt_values, "create_cq_ex" = create_cq_ex,
            "query_device_ex" = query_device_ex, "create_qp_ex" = create_qp_ex, "get_srq_num" = get_srq_num,
            "create_srq_ex" = create_srq_ex, "sz" = sz, "context" = context,
        }
        "struct ibv_device_attr" DeviceAttr {
            "fw_ver" = fw_ver, "node_guid" = node_guid, "max_mr_size" = max_mr_size, "vendor_id" = vendor_id,
            "max_qp" = max_qp, "device_cap_flags" = device_cap_flags, "max_sge" = max_sge, "max_cqe" = max_cqe,
            "max_qp_rd_atom" = max_qp_rd_atom, "atomic_cap" = atomic_cap, "max_mw" = max_mw, "max_ah" = max_ah,
            "max_srq" = max_srq, "max_srq_sge" = max_srq_sge, "max_pkeys" = max_pkeys,
            "local_ca_ack_delay" = local_ca_ack_delay, "phys_port_cnt" = phys_port_cnt,
        }
        "struct ibv_device_attr_ex" DeviceAttrEx {
            "comp_mask" = comp_mask, "odp_caps" = odp_caps, "completion_timestamp_mask" = completion_timestamp_mask,
            "hca_core_clock" = hca_core_clock, "device_cap_flags_ex" = device_cap_flags_ex, "tso_caps" = tso_caps,
            "rss_caps" = rss_caps, "max_wq_type_rq" = max_wq_type_rq, "packet_pacing_caps" = packet_pacing_caps,
            "raw_packet_caps" = raw_packet_caps, "tm_caps" = tm_caps, "cq_mod_caps" = cq_mod_caps,
            "max_dm_size" = max_dm_size, "pci_atomic_caps" = pci_atomic_caps, "xrc_odp_caps" = xrc_odp_caps,
            "phys_port_cnt_ex" = phys_port_cnt_ex,
        }
        "struct ibv_port_attr" PortAttr grows {
            "state" = state, "active_mtu" = active_mtu, "gid_tbl_len" = gid_tbl_len, "max_msg_sz" = max_msg_sz,
            "pkey_tbl_len" = pkey_tbl_len, "lid" = lid, "active_width" = active_width, "phys_state" = phys_state,
            "link_layer" = link_layer, "flags" = flags, "port_cap_flags2" = port_cap_flags2,
        }
        "struct ibv_gid_entry" GidEntry {
            "gid" = gid, "gid_index" = gid_index, "port_num" = port_num, "gid_type" = gid_type,
            "ndev_ifindex" = ndev_ifindex,
        }
        "struct ibv_async_event" AsyncEvent { "element" = element, "event_type" = event_type }
        "struct ibv_wc" Wc {
            "wr_id" = wr_id, "status" = status, "opcode" = opcode, "vendor_err" = vendor_err, "byte_len" = byte_len,
            "imm_data" = imm_data, "qp_num" = qp_num, "src_qp" = src_qp, "wc_flags" = wc_flags,
            "pkey_index" = pkey_index, "slid" = slid, "sl" = sl, "dlid_path_bits" = dlid_path_bits,
        }
        "struct ibv_pd" Pd { "context" = context, "handle" = handle }
        "struct ibv_td" Td { "context" = context }
        "struct ibv_parent_domain_init_attr" ParentDomainAttr {
            "pd" = pd, "td" = td, "comp_mask" = comp_mask, "alloc" = alloc, "free" = free, "pd_context" = pd_context,
        }
        "struct ibv_values_ex" ValuesEx { "comp_mask" = comp_mask, "raw_clock" = raw_clock }
        "struct ibv_mr" Mr {
            "context" = context, "pd" = pd, "addr" = addr, "length" = length, "handle" = handle, "lkey" = lkey,
            "rkey" = rkey,
        }
        "struct ibv_mw" Mw { "context" = context, "pd" = pd, "rkey" = rkey, "handle" = handle, "type" = kind }
        "struct ibv_mw_bind_info" MwBindInfo {
            "mr" = mr, "addr" = addr, "length" = length, "mw_access_flags" = mw_access_flags,
        }
        "struct ibv_mw_bind" MwBind { "wr_id" = wr_id, "send_flags" = send_flags, "bind_info" = bind_info }
        "struct ibv_ah_attr" AhAttr {
            "grh.dgid" = grh.0.dgid, "grh.flow_label" = grh.0.flow_label, "grh.sgid_index" = grh.0.sgid_index,
            "grh.hop_limit" = grh.0.hop_limit, "grh.traffic_class" = grh.0.traffic_class, "dlid" = dlid, "sl" = sl,
            "src_path_bits" = src_path_bits, "static_rate" = static_rate, "is_global" = is_global,
            "port_num" = port_num,
        }
        "struct ibv_grh" Grh { "paylen" = paylen, "next_hdr" = next_hdr, "sgid" = sgid, "dgid" = dgid }
        "struct ibv_srq_init_attr" SrqInitAttr { "srq_context" = srq_context, "attr" = attr }
        "struct ibv_srq_init_attr_ex" SrqInitAttrEx {
            "attr" = attr, "comp_mask" = comp_mask, "srq_type" = srq_type, "pd" = pd, "xrcd" = xrcd, "cq" = cq,
            "tm_cap" = tm_cap,
        }
        "struct ibv_qp_cap" QpCap {
            "max_send_wr" = max_send_wr, "max_recv_wr" = max_recv_wr, "max_send_sge" = max_send_sge,
            "max_recv_sge" = max_recv_sge, "max_inline_data" = max_inline_data,
        }
        "struct ibv_qp_init_attr" QpInitAttr {
            "qp_context" = qp_context, "send_cq" = send_cq, "recv_cq" = recv_cq, "srq" = srq, "cap" = cap,
            "qp_type" = qp_type, "sq_sig_all" = sq_sig_all,
        }
        "struct ibv_qp_init_attr_ex" QpInitAttrEx {
            "cap" = cap, "qp_type" = qp_type, "sq_sig_all" = sq_sig_all, "comp_mask" = comp_mask,
            "pd" = pd, "xrcd" = xrcd, "create_flags" = create_flags, "max_tso_header" = max_tso_header,
            "rwq_ind_tbl" = rwq_ind_tbl, "rx_hash_conf" = rx_hash_conf, "source_qpn" = source_qpn,
            "send_ops_flags" = send_ops_flags,
        }
        "struct ibv_qp_attr" QpAttr {
            "qp_state" = qp_state, "path_mtu" = path_mtu, "qkey" = qkey, "rq_psn" = rq_psn, "sq_psn" = sq_psn,
            "dest_qp_num" = dest_qp_num, "qp_access_flags" = qp_access_flags, "cap" = cap, "ah_attr" = ah_attr,
            "alt_ah_attr" = alt_ah_attr, "pkey_index" = pkey_index, "max_rd_atomic" = max_rd_atomic,
            "max_dest_rd_atomic" = max_dest_rd_atomic, "min_rnr_timer" = min_rnr_timer, "port_num" = port_num,
            "timeout" = timeout, "retry_cnt" = retry_cnt, "rnr_retry" = rnr_retry, "rate_limit" = rate_limit,
        }
        "struct ibv_sge" Sge { "addr" = addr, "length" = length, "lkey" = lkey }
        "struct ibv_send_wr" SendWr {
            "wr_id" = wr_id, "next" = next, "sg_list" = sg_list, "num_sge" = num_sge, "opcode" = opcode,
            "send_flags" = send_flags, "imm_data" = imm_data, "wr" = wr, "qp_type" = remote_srqn,
            "bind_mw.mw" = bind_mw.mw, "bind_mw.rkey" = bind_mw.rkey, "bind_mw.bind_info" = bind_mw.bind_info,
        }
        "struct ibv_recv_wr" RecvWr { "wr_id" = wr_id, "next" = next, "sg_list" = sg_list, "num_sge" = num_sge }
        "struct ibv_srq" Srq {
            "srq_context" = srq_context, "pd" = pd, "handle" = handle, "mutex" = mutex, "cond" = cond,
            "events_completed" = events_completed,
        }
        "struct ibv_qp" Qp {
            "qp_context" = qp_context, "pd" = pd, "send_cq" = send_cq, "srq" = srq, "handle" = handle,
            "qp_num" = qp_num, "state" = state, "qp_type" = qp_type, "mutex" = mutex, "cond" = cond,
            "events_completed" = events_completed,
        }
        "struct ibv_data_buf" DataBuf { "addr" = addr, "length" = length }
        "struct ibv_qp_ex" QpEx grows {
            "comp_mask" = comp_mask, "wr_id" = wr_id, "wr_flags" = wr_flags,
            "wr_atomic_cmp_swp" = wr_atomic_cmp_swp, "wr_bind_mw" = wr_bind_mw, "wr_local_inv" = wr_local_inv,
            "wr_rdma_read" = wr_rdma_read, "wr_rdma_write" = wr_rdma_write, "wr_send" = wr_send,
            "wr_send_inv" = wr_send_inv, "wr_send_tso" = wr_send_tso, "wr_set_ud_addr" = wr_set_ud_addr,
            "wr_set_inline_data" = wr_set_inline_data, "wr_set_sge" = wr_set_sge,
            "wr_set_sge_list" = wr_set_sge_list, "wr_start" = wr_start, "wr_complete" = wr_complete,
            "wr_abort" = wr_abort, "wr_atomic_write" = wr_atomic_write,
        }
        "struct ibv_comp_channel" CompChannel { "context" = context, "fd" = fd, "refcnt" = refcnt }
        "struct ibv_cq" Cq {
            "channel" = channel, "cq_context" = cq_context, "handle" = handle, "cqe" = cqe, "mutex" = mutex,
            "cond" = cond, "comp_events_completed" = comp_events_completed,
            "async_events_completed" = async_events_completed,
        }
        "struct ibv_cq_ex" CqEx {
            "comp_mask" = comp_mask, "status" = status, "wr_id" = wr_id, "start_poll" = start_poll,
            "next_poll" = next_poll, "end_poll" = end_poll, "read_opcode" = read_opcode,
            "read_byte_len" = read_byte_len, "read_imm_data" = read_imm_data, "read_wc_flags" = read_wc_flags,
            "read_slid" = read_slid, "read_completion_ts" = read_completion_ts, "read_tm_info" = read_tm_info,
            "read_completion_wallclock_ns" = read_completion_wallclock_ns,
        }
        "struct ibv_cq_init_attr_ex" CqInitAttrEx {
            "cqe" = cqe, "cq_context" = cq_context, "channel" = channel, "comp_vector" = comp_vector,
            "wc_flags" = wc_flags, "comp_mask" = comp_mask, "flags" = flags, "parent_domain" = parent_domain,
        }
        "struct etherslot_wqe" Wqe {
            "opcode" = opcode, "flags" = flags, "blocks" = blocks, "sges" = sges, "inline_bytes" = inline_bytes,
            "wr_id" = wr_id, "remote_addr" = remote_addr, "rkey" = rkey, "imm_data" = imm_data, "data" = data,
        }
        "struct etherslot_flag" FlagAt { "addr" = addr, "value" = value, "key" = key, "reserved" = reserved }
        "struct ibv_ah" Ah { "context" = context, "pd" = pd, "handle" = handle }
        "struct ibv_sa_path_rec" PathRec {
            "dgid" = dgid, "sgid" = sgid, "dlid" = dlid, "slid" = slid, "raw_traffic" = raw_traffic,
            "flow_label" = flow_label, "hop_limit" = hop_limit, "traffic_class" = traffic_class,
            "reversible" = reversible, "numb_path" = numb_path, "pkey" = pkey, "sl" = sl,
            "mtu_selector" = mtu_selector, "mtu" = mtu, "rate_selector" = rate_selector, "rate" = rate,
            "packet_life_time_selector" = packet_life_time_selector, "packet_life_time" = packet_life_time,
            "preference" = preference,
        }
        "struct rdma_ib_addr" IbAddr { "sgid" = sgid, "dgid" = dgid, "pkey" = pkey }
        "struct rdma_addr" Addr { "src_addr" = src_storage, "dst_addr" = dst_storage, "addr" = addr }
        "struct rdma_route" Route { "addr" = addr, "path_rec" = path_rec, "num_paths" = num_paths }
        "struct rdma_event_channel" EventChannel { "fd" = fd }
        "struct rdma_cm_id" CmId {
            "verbs" = verbs, "channel" = channel, "context" = context, "qp" = qp, "route" = route, "ps" = ps,
            "port_num" = port_num, "event" = event, "send_cq_channel" = send_cq_channel, "send_cq" = send_cq,
            "recv_cq_channel" = recv_cq_channel, "recv_cq" = recv_cq, "srq" = srq, "pd" = pd,
            "qp_type" = qp_type,
        }
        "struct rdma_conn_param" ConnParam {
            "private_data" = private_data, "private_data_len" = private_data_len,
            "responder_resources" = responder_resources, "initiator_depth" = initiator_depth,
            "flow_control" = flow_control, "retry_count" = retry_count, "rnr_retry_count" = rnr_retry_count,
            "srq" = srq, "qp_num" = qp_num,
        }
        "struct rdma_ud_param" UdParam {
            "private_data" = private_data, "private_data_len" = private_data_len, "ah_attr" = ah_attr,
            "qp_num" = qp_num, "qkey" = qkey,
        }
        "struct rdma_cm_event" CmEvent {
            "id" = id, "listen_id" = listen_id, "event" = event, "status" = status, "param" = param,
        }
        "struct rdma_addrinfo" AddrInfo {
            "ai_flags" = ai_flags, "ai_family" = ai_family, "ai_qp_type" = ai_qp_type,
            "ai_port_space" = ai_port_space, "ai_src_len" = ai_src_len, "ai_dst_len" = ai_dst_len,
            "ai_src_addr" = ai_src_addr, "ai_dst_addr" = ai_dst_addr, "ai_src_canonname" = ai_src_canonname,
            "ai_dst_canonname" = ai_dst_canonname, "ai_route_len" = ai_route_len, "ai_route" = ai_route,
            "ai_connect_len" = ai_connect_len, "ai_connect" = ai_connect, "ai_next" = ai_next,
        }
    }
}

#[test]
#[ignore = "needs gcc and libibverbs-dev: ./run test verbs"]
fn structures_lie_in_memory_as_the_header_has_them() {
    let layouts = layouts();
    let mut source = String::from(
        "#include <etherslot.h>\n#include <rdma/rdma_cma.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for layout in &layouts {
        let _ = writeln!(source, "printf(\"%zu\\n\", sizeof({}));", layout.c);
        for (field, _) in &layout.fields {
            let _ = writeln!(source, "printf(\"%zu\\n\", offsetof({}, {field}));", layout.c);
        }
    }
    for (name, _) in CONSTANTS {
        let _ = writeln!(source, "printf(\"%zu\\n\", (size_t){name});");
    }
    source.push_str("return 0; }\n");
    let folder = tempfile::tempdir().expect("a folder");
    let (file, program) = (folder.path().join("layout.c"), folder.path().join("layout"));
    std::fs::write(&file, source).expect("a file");
    let mut gcc = Command::new("gcc");
    // Another header than the system's: that of another release.
    if let Some(include) = std::env::var_os("ETHERSLOT_VERBS_INCLUDE") {
        gcc.arg("-I").arg(include);
    }
    gcc.args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")]);
    let status = gcc.arg("-o").arg(&program).arg(&file).status().expect("gcc");
    assert!(status.success(), "the header does not know all of them");
    let output = Command::new(&program).output().expect("the program");
    let text = String::from_utf8(output.stdout).expect("numbers");
    let mut numbers = text.lines().map(|line| line.parse::<usize>().expect("a number"));
    let mut next = || numbers.next().expect("as many as asked for");
    for layout in &layouts {
        let size = next();
        if layout.grows {
            assert!(layout.size >= size, "{} is of {size} bytes, ours {}", layout.c, layout.size);
        } else {
            assert_eq!(layout.size, size, "{}", layout.c);
        }
        for &(field, ours) in &layout.fields {
            assert_eq!(ours, next(), "{}.{field}", layout.c);
        }
    }
    for &(name, ours) in CONSTANTS {
        assert_eq!(ours, next(), "{name}");
    }
}
