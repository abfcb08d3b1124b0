//! The model behind its C functions.

use std::ffi::c_void;
use std::path::Path;

use libloading::{Library, Symbol};

/// What goes into a clock; `struct Inputs` of `shim/efe.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) s_data: u64,
    pub(crate) mac_in_data: u64,
    pub(crate) node: [u32; 4],
    pub(crate) fresh: u32,
    pub(crate) s_keep: u8,
    pub(crate) s_last: u8,
    pub(crate) s_valid: u8,
    pub(crate) m_ready: u8,
    pub(crate) mac_in_keep: u8,
    pub(crate) mac_in_user: u8,
    pub(crate) mac_in_last: u8,
    pub(crate) mac_in_valid: u8,
    pub(crate) mac_out_ready: u8,
    pub(crate) rst: u8,
    pub(crate) open: u8,
    pub(crate) active: u8,
    pub(crate) want_classic: u8,
}

/// What comes out of a clock; `struct Outputs` of `shim/efe.cpp`.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) m_data: u64,
    pub(crate) mac_out_data: u64,
    pub(crate) stats: [u32; 15],
    pub(crate) body_bytes: u16,
    pub(crate) s_ready: u8,
    pub(crate) m_keep: u8,
    pub(crate) m_last: u8,
    pub(crate) m_valid: u8,
    pub(crate) mac_out_keep: u8,
    pub(crate) mac_out_last: u8,
    pub(crate) mac_out_valid: u8,
    pub(crate) up: u8,
    pub(crate) classic: u8,
}

type Clock = unsafe extern "C" fn(*mut c_void, *const Inputs, *mut Outputs);

/// A model, and the library that its functions are in.
pub(crate) struct Model {
    handle: *mut c_void,
    clock: Clock,
    free: unsafe extern "C" fn(*mut c_void),
    _library: Library,
}

impl Model {
    /// Loads the model of this file; its registers begin with values that follow from the seed.
    pub(crate) fn load(path: &Path, seed: u32) -> Result<Self, libloading::Error> {
        // SAFETY: `./run rtl cosim` made the file of shim/efe.cpp; loading it runs nothing but C++'s own initialisation.
        let library = unsafe { Library::new(path)? };
        // SAFETY: the types are those of shim/efe.cpp; the pointers live as long as `library`, which `Model` keeps.
        let (sizes, make, clock, free) = unsafe {
            let sizes: Symbol<unsafe extern "C" fn() -> u32> = library.get(b"efe_sizes")?;
            let make: Symbol<unsafe extern "C" fn(u32) -> *mut c_void> = library.get(b"efe_new")?;
            let clock: Symbol<Clock> = library.get(b"efe_clock")?;
            let free: Symbol<unsafe extern "C" fn(*mut c_void)> = library.get(b"efe_free")?;
            (*sizes, *make, *clock, *free)
        };
        // SAFETY: the function has no arguments and reads nothing.
        let sizes = unsafe { sizes() };
        let ours = (size_of::<Inputs>() << 16 | size_of::<Outputs>()) as u32;
        assert_eq!(sizes, ours, "the model is of another version: ./run rtl cosim makes it anew");
        // SAFETY: as `efe_new` asks; what it returns is given back to `efe_free` once.
        let handle = unsafe { make(seed) };
        Ok(Self { handle, clock, free, _library: library })
    }

    /// One clock.
    pub(crate) fn clock(&mut self, inputs: &Inputs, outputs: &mut Outputs) {
        // SAFETY: `handle` came from `efe_new`, and both structs are those of the shim, as their sizes have shown.
        unsafe { (self.clock)(self.handle, inputs, outputs) }
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: `handle` came from `efe_new` and is used no more.
        unsafe { (self.free)(self.handle) }
    }
}
