//! Media: where a device model keeps its blocks.
//!
//! A [`Medium`] takes [`Request`]s, each with the [`Buf`] it moves data to or from, and hands every one back as a
//! [`Done`] when it has ended. Nothing blocks; the owner polls, and sleeps on [`Medium::fd`] in between.
//!
//! * [`file::FileMedium`]: a regular file or a block device, by `io_uring`.
//! * [`ram::RamMedium`]: memory, gone with the process; as fast as copying.
//! * [`memory::MemoryMedium`]: deterministic, in virtual time, with a volatile cache that a crash loses in part and
//!   with faults on demand; for tests and the simulator.
//! * [`paced::Paced`]: any of them, no quicker than is said.
//!
//! Apart from these, [`relay`] moves data between files: through memory here, or past the processor through that of a device.
//!
//! Limits: ordering between Requests in flight is undefined, as it is on a real drive; who needs an order waits.
#![allow(unsafe_code)] // Memory of a fixed alignment, and handing it to the kernel.

mod buf;
pub mod file;
mod medium;
pub mod memory;
pub mod paced;
pub mod ram;
pub mod relay;

pub use buf::Buf;
pub use medium::{Done, Info, Medium, MediumError, Op, Request};
