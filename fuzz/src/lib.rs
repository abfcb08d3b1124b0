//! What the fuzz targets share: choices taken out of an input, an account of the heap, and what stands around a device model.

pub mod heap;
mod input;
mod stand;

pub use input::Input;
pub use stand::{MEMORY_BYTES, Memory, Stand};
