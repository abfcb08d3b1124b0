//! What the fuzz targets share: choices taken out of an input, and an account of the heap.

pub mod heap;
mod input;

pub use input::Input;
