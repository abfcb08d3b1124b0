//! The hardware against the software: models that Verilator makes of `rtl/`, driven clock by clock beside the very crates the daemons run.
//!
//! `./run rtl cosim` makes the models and runs the tests; without it they are skipped, since they need Verilator.
//! A model is a shared object with a function for a clock (`shim/`), loaded at run time, so that this crate builds on any machine.

#![allow(unsafe_code)] // A Verilator model exists only in C++.

mod beat;
mod driver;
mod efe;
mod host;
mod model;
mod peb;
mod rnic;

pub use driver::{Driver, QpSetting, Region};
pub use efe::{Efe, Stats};
pub use host::HostMemory;
pub use peb::{DC_NAME, Peb, PebStats};
pub use rnic::{Rnic, Segment};
