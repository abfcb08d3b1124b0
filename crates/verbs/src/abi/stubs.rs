//! What `libibverbs.so.1` has to export without being of use here: the functions of its providers, without which libraries
//! that are linked with one (libmlx5, libefa, libhns) do not load, and of the kernel's device.

use std::ffi::{c_char, c_int, c_void};

use super::set_errno;
use super::types::{Context, Mr, Pd};

macro_rules! stubs {
    ($($name:ident)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            libc::EOPNOTSUPP
        })*
    };
}

stubs! {
    execute_ioctl
    ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd
    ibv_cmd_create_ah ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex ibv_cmd_create_cq_ex2
    ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2
    ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw
    ibv_cmd_dealloc_pd ibv_cmd_dereg_mr ibv_cmd_destroy_ah ibv_cmd_destroy_counters ibv_cmd_destroy_cq
    ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
    ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_free_dm ibv_cmd_get_context ibv_cmd_modify_cq
    ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq ibv_cmd_modify_wq
    ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send ibv_cmd_post_srq_recv
    ibv_cmd_query_context ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_qp
    ibv_cmd_query_srq ibv_cmd_read_counters ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr
    ibv_cmd_req_notify_cq ibv_cmd_rereg_mr ibv_cmd_resize_cq ibv_copy_ah_attr_from_kern ibv_copy_path_rec_from_kern
    ibv_copy_path_rec_to_kern ibv_copy_qp_attr_from_kern verbs_allow_disassociate_destroy verbs_init_cq
    __ioctl_final_num_attrs __verbs_log verbs_set_ops verbs_uninit_context
    // Providers register themselves when they are loaded. Nobody asks for what they drive.
    ibv_register_driver verbs_register_driver_34
}

#[unsafe(no_mangle)]
extern "C" fn _verbs_init_and_alloc_context() -> *mut c_void {
    super::null(libc::EOPNOTSUPP)
}

#[unsafe(no_mangle)]
extern "C" fn verbs_open_device() -> *mut c_void {
    super::null(libc::EOPNOTSUPP)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_device(_fd: c_int) -> *mut Context {
    super::null(libc::EOPNOTSUPP)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_pd(_context: *mut Context, _handle: u32) -> *mut Pd {
    super::null(libc::EOPNOTSUPP)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_pd(_pd: *mut Pd) {}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_mr(_pd: *mut Pd, _handle: u32) -> *mut Mr {
    super::null(libc::EOPNOTSUPP)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_mr(_mr: *mut Mr) {}

#[unsafe(no_mangle)]
extern "C" fn ibv_import_dm(_context: *mut Context, _handle: u32) -> *mut c_void {
    super::null(libc::EOPNOTSUPP)
}

#[unsafe(no_mangle)]
extern "C" fn ibv_unimport_dm(_dm: *mut c_void) {}

#[unsafe(no_mangle)]
extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    c"/sys".as_ptr()
}

#[unsafe(no_mangle)]
extern "C" fn ibv_read_sysfs_file(
    _folder: *const c_char,
    _file: *const c_char,
    _out: *mut c_char,
    _bytes: usize,
) -> c_int {
    set_errno(libc::ENOENT);
    -1
}

#[unsafe(no_mangle)]
extern "C" fn ibv_read_ibdev_sysfs_file() -> c_int {
    set_errno(libc::ENOENT);
    -1
}
