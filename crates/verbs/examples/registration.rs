//! What it costs to register and deregister memory, beside locking it (mlock), which is what a NIC's driver does first.
//!
//!     cargo run --release -p etherslot-verbs --example registration
#![allow(unsafe_code)] // The verbs as a C program calls them.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use etherslot_verbs::abi::types::{Context, Device, Mr, Pd};

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut Device;
    fn ibv_open_device(device: *mut Device) -> *mut Context;
    fn ibv_alloc_pd(context: *mut Context) -> *mut Pd;
    fn ibv_reg_mr(pd: *mut Pd, address: *mut c_void, length: usize, access: c_int) -> *mut Mr;
    fn ibv_dereg_mr(mr: *mut Mr) -> c_int;
}

const ALL: c_int = 0xF;
/// Measured so often; the least is told.
const ROUNDS: usize = 20;

fn least(mut work: impl FnMut() -> Duration) -> f64 {
    (0..ROUNDS).map(|_| work()).min().unwrap_or_default().as_secs_f64() * 1e6
}

fn main() {
    // SAFETY: as the header asks: the list has a device, and what is made is not destroyed.
    let pd = unsafe {
        let list = ibv_get_device_list(std::ptr::null_mut());
        let context = ibv_open_device(*list);
        assert!(!context.is_null(), "the device cannot be opened");
        ibv_alloc_pd(context)
    };
    println!("{:>12} {:>12} {:>12} {:>12} {:>10}", "bytes", "register us", "remove us", "mlock us", "ratio");
    for shift in [12, 16, 20, 24, 28, 30] {
        let mut memory = vec![1_u8; 1 << shift];
        let (address, length) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
        let mut removing = Duration::MAX;
        let registering = least(|| {
            let start = Instant::now();
            // SAFETY: the memory outlives its region.
            let mr = unsafe { ibv_reg_mr(pd, address, length, ALL) };
            let registered = start.elapsed();
            assert!(!mr.is_null());
            let start = Instant::now();
            // SAFETY: made just now.
            unsafe { ibv_dereg_mr(mr) };
            removing = removing.min(start.elapsed());
            registered
        });
        let mut is_locked = true;
        let locking = least(|| {
            let start = Instant::now();
            // SAFETY: memory of ours.
            is_locked &= unsafe { rustix::mm::mlock(address, length) }.is_ok();
            let locked = start.elapsed();
            // SAFETY: as above.
            let _ = unsafe { rustix::mm::munlock(address, length) };
            locked
        });
        let removing = removing.as_secs_f64() * 1e6;
        if is_locked {
            let ratio = registering / locking;
            println!("{length:>12} {registering:>12.2} {removing:>12.2} {locking:>12.2} {ratio:>10.5}");
        } else {
            println!("{length:>12} {registering:>12.2} {removing:>12.2} {:>12} {:>10}", "refused", "");
        }
    }
}
