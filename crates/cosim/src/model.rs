//! A model behind its C functions.

use std::ffi::c_void;
use std::marker::PhantomData;
use std::path::Path;

use libloading::{Library, Symbol};

type New = unsafe extern "C" fn(u32) -> *mut c_void;
type Clock = unsafe extern "C" fn(*mut c_void, *const c_void, *mut c_void);
type Free = unsafe extern "C" fn(*mut c_void);

/// The pins of a block: what goes into a clock.
///
/// # Safety
///
/// It is `repr(C)` and, like [`Pins::Outputs`], the struct of this name in the shim of [`Pins::BLOCK`].
pub(crate) unsafe trait Pins: Default {
    /// What comes out of a clock.
    type Outputs: Default;
    /// The block, as `rtl/blocks.toml` and its shim's functions name it.
    const BLOCK: &'static str;
}

/// A model, and the library that its functions are in.
pub(crate) struct Model<I> {
    handle: *mut c_void,
    clock: Clock,
    free: Free,
    _library: Library,
    _pins: PhantomData<I>,
}

impl<I: Pins> Model<I> {
    /// Loads the model of this file; its registers begin with values that follow from the seed.
    pub(crate) fn load(path: &Path, seed: u32) -> Result<Self, libloading::Error> {
        let name = |function| format!("{}_{function}", I::BLOCK);
        // SAFETY: `./run rtl cosim` made the file of the block's shim; loading it runs nothing but C++'s own initialisation.
        let library = unsafe { Library::new(path)? };
        // SAFETY: the types are those of the shim; the pointers live as long as `library`, which `Model` keeps.
        let (sizes, make, clock, free) = unsafe {
            let sizes: Symbol<unsafe extern "C" fn() -> u32> = library.get(name("sizes").as_bytes())?;
            let make: Symbol<New> = library.get(name("new").as_bytes())?;
            let clock: Symbol<Clock> = library.get(name("clock").as_bytes())?;
            let free: Symbol<Free> = library.get(name("free").as_bytes())?;
            (*sizes, *make, *clock, *free)
        };
        // SAFETY: the function has no arguments and reads nothing.
        let sizes = unsafe { sizes() };
        let ours = (size_of::<I>() << 16 | size_of::<I::Outputs>()) as u32;
        assert_eq!(sizes, ours, "the model is of another version: ./run rtl cosim makes it anew");
        // SAFETY: as the shim's `new` asks; what it returns is given back to `free` once.
        let handle = unsafe { make(seed) };
        Ok(Self { handle, clock, free, _library: library, _pins: PhantomData })
    }

    /// One clock.
    pub(crate) fn clock(&mut self, inputs: &I, outputs: &mut I::Outputs) {
        // SAFETY: `handle` came from `new`, and both structs are those of the shim: `Pins` says so, and their sizes have shown it.
        unsafe {
            (self.clock)(self.handle, std::ptr::from_ref(inputs).cast(), std::ptr::from_mut(outputs).cast());
        }
    }
}

impl<I> Drop for Model<I> {
    fn drop(&mut self) {
        // SAFETY: `handle` came from `new` and is used no more.
        unsafe { (self.free)(self.handle) }
    }
}
