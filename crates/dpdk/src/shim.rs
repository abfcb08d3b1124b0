//! The shim's functions (`shim/shim.h`), loaded from the shared object that the binary carries.

use std::ffi::{c_char, c_int, c_uint};
use std::io::Write as _;
use std::mem;
use std::os::fd::AsRawFd as _;
use std::sync::OnceLock;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use rustix::fs::MemfdFlags;

use crate::OpenError;

/// Frames of one burst (`ES_BURST`).
pub(crate) const BURST: usize = 64;
/// `ES_TRUNCATED`: longer than the buffers.
pub(crate) const TRUNCATED: u32 = 1;
/// `ES_TAGGED`: of a VLAN whose tag the device has taken off.
pub(crate) const TAGGED: u32 = 2;

/// `struct es_port`, which only the shim knows.
#[repr(C)]
pub(crate) struct RawPort {
    _private: [u8; 0],
}

/// `struct es_config`.
#[repr(C)]
pub(crate) struct Config {
    pub(crate) device: *const c_char,
    pub(crate) mtu: u16,
    pub(crate) may_start_later: u8,
    pub(crate) fills: u8,
    pub(crate) has_mac: u8,
    pub(crate) mac: [u8; 6],
}

/// `struct es_info`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Info {
    pub(crate) driver: [u8; 32],
    pub(crate) mtu: u16,
    pub(crate) mac: [u8; 6],
    pub(crate) is_started: u8,
}

/// `struct es_frame`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub(crate) bytes: *const u8,
    pub(crate) len: u32,
    pub(crate) flags: u32,
}

/// `struct es_stats`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Stats {
    pub(crate) missed: u64,
    pub(crate) unsent: u64,
}

/// `es_log`.
pub(crate) type Log = extern "C" fn(u32, *const u8, usize);

/// The functions, by their names in `shim.h` without `es_`.
pub(crate) struct Shim {
    pub(crate) start: unsafe extern "C" fn(c_int, *mut *mut c_char, Log) -> c_int,
    pub(crate) open:
        unsafe extern "C" fn(*const Config, *mut *mut RawPort, *mut Info, *mut *const c_char) -> c_int,
    pub(crate) restart: unsafe extern "C" fn(*mut RawPort) -> c_int,
    pub(crate) close: unsafe extern "C" fn(*mut RawPort),
    pub(crate) link: unsafe extern "C" fn(*mut RawPort) -> c_int,
    pub(crate) send: unsafe extern "C" fn(*mut RawPort, *const u8, *const Frame, c_uint) -> c_uint,
    pub(crate) receive: unsafe extern "C" fn(*mut RawPort, *mut Frame) -> c_uint,
    pub(crate) release: unsafe extern "C" fn(*mut RawPort),
    pub(crate) stats: unsafe extern "C" fn(*mut RawPort, *mut Stats),
    pub(crate) interface_mtu: unsafe extern "C" fn(*const c_char) -> u16,
}

static OBJECT: &[u8] = include_bytes!(env!("ETHERSLOT_DPDK_SHIM"));

impl Shim {
    /// The shim, loaded the first time.
    pub(crate) fn get() -> Result<&'static Self, OpenError> {
        static SHIM: OnceLock<Result<Shim, OpenError>> = OnceLock::new();
        SHIM.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, OpenError> {
        if OBJECT.is_empty() {
            return Err(OpenError::NotBuilt);
        }
        let failed = |error: &dyn std::fmt::Display| OpenError::NotLoaded(error.to_string());
        let file = rustix::fs::memfd_create("etherslot-dpdk", MemfdFlags::CLOEXEC)
            .map_err(|error| failed(&error))?;
        let mut file = std::fs::File::from(file);
        file.write_all(OBJECT).map_err(|error| failed(&error))?;
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        // SAFETY: the object is ours; its initialisers and those of DPDK's libraries expect nothing of the process.
        let library =
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }.map_err(|error| failed(&error))?;
        // EAL's threads run in it for good.
        let library: &'static Library = Box::leak(Box::new(library));
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the types above are those of `shim.h`, of which the object was built together with this file.
                let symbol = unsafe { library.get($name) }.map_err(|error| failed(&error))?;
                *symbol
            }};
        }
        Ok(Self {
            start: function!(b"es_start\0"),
            open: function!(b"es_open\0"),
            restart: function!(b"es_restart\0"),
            close: function!(b"es_close\0"),
            link: function!(b"es_link\0"),
            send: function!(b"es_send\0"),
            receive: function!(b"es_receive\0"),
            release: function!(b"es_release\0"),
            stats: function!(b"es_stats\0"),
            interface_mtu: function!(b"es_interface_mtu\0"),
        })
    }
}

// The layouts that `shim.h` has on every 64-bit machine.
const _: () = {
    assert!(mem::size_of::<Config>() == 24);
    assert!(mem::size_of::<Info>() == 42);
    assert!(mem::size_of::<Frame>() == 16);
    assert!(mem::size_of::<Stats>() == 16);
};
