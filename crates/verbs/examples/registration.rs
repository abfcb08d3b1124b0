//! What it costs to register memory, beside locking it (mlock), which is what a NIC's driver does first.
//!
//!     cargo run --release -p etherslot-verbs --example registration [BYTES]
//!
//! By `ibv_reg_mr`, which makes no page list; with a list of pages of 4 KiB and a PBL (docs/rnic.md, section 3), as hardware needs; and mlock. All memory is there
//! before. Microseconds: the least of all rounds, in turn.
#![allow(unsafe_code)] // The verbs as a C program calls them.

use std::ffi::{c_int, c_void};
use std::time::{Duration, Instant};

use etherslot_rdma::{Config, Engine, Layout, Pd as Domain, Region};
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
/// Without an argument.
const SIZES: [usize; 6] = [1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28, 1 << 30];
const PAGE_BYTES: usize = 4096;

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// A domain of this process's device.
fn domain() -> *mut Pd {
    // SAFETY: as the header asks: the list has a device, and what is made is not destroyed.
    unsafe {
        let list = ibv_get_device_list(std::ptr::null_mut());
        let context = ibv_open_device(*list);
        assert!(!context.is_null(), "the device cannot be opened");
        ibv_alloc_pd(context)
    }
}

/// By the verbs.
fn register(pd: *mut Pd, memory: &mut [u8]) -> Duration {
    // SAFETY: the memory outlives its region.
    let (mr, time) = timed(|| unsafe { ibv_reg_mr(pd, memory.as_mut_ptr().cast(), memory.len(), ALL) });
    assert!(!mr.is_null(), "{}", std::io::Error::last_os_error());
    // SAFETY: made just now.
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
    time
}

/// With a list of the pages' addresses, which is made, too.
fn list(engine: &mut Engine, memory: &mut [u8]) -> Duration {
    let (base, length) = (memory.as_ptr() as u64, memory.len() as u64);
    let (stag, time) = timed(|| {
        let first = base & !(PAGE_BYTES as u64 - 1);
        let pages: Vec<u64> = (first..base + length).step_by(PAGE_BYTES).collect();
        let layout = Layout::Pages { shift: 12, offset: base - first, pages: &pages };
        let access = etherslot_rdma::Access::ALL;
        engine.register(&Region { pd: Domain(0), access, base, length, key: 1, layout })
    });
    engine.deregister(stag.expect("room for it")).expect("it is there");
    time
}

/// None where the system forbids it.
fn lock(memory: &mut [u8]) -> Option<Duration> {
    let (address, length) = (memory.as_mut_ptr().cast::<c_void>(), memory.len());
    // SAFETY: memory of ours.
    let (locked, time) = timed(|| unsafe { rustix::mm::mlock(address, length) });
    // SAFETY: as above.
    let _ = unsafe { rustix::mm::munlock(address, length) };
    locked.is_ok().then_some(time)
}

fn main() {
    let bytes = std::env::args().nth(1).map(|text| text.parse().expect("bytes"));
    let sizes = bytes.map_or(SIZES.to_vec(), |bytes| vec![bytes]);
    let pd = domain();
    let mut engine = Engine::new(&Config { pages: 1 << 19, ..Config::default() });
    println!("{:>12} {:>14} {:>14} {:>14}", "bytes", "ibv_reg_mr us", "page list us", "mlock us");
    for bytes in sizes {
        let mut memory = vec![1_u8; bytes];
        let mut least = [Some(Duration::MAX); 3];
        for _ in 0..ROUNDS {
            let times =
                [Some(register(pd, &mut memory)), Some(list(&mut engine, &mut memory)), lock(&mut memory)];
            for (least, time) in least.iter_mut().zip(times) {
                *least = least.zip(time).map(|(least, time)| least.min(time));
            }
        }
        let [region, list, lock] =
            least.map(|time| time.map_or("-".to_owned(), |time| format!("{:.2}", time.as_secs_f64() * 1e6)));
        println!("{bytes:>12} {region:>14} {list:>14} {lock:>14}");
    }
}
