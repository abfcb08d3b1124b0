//! The NVMe controller, driven as a host drives it: by registers, doorbells and queues in memory.

mod admin;
mod bus;
mod data_pointer;
mod file;
mod format;
mod harness;
mod hostile;
mod interrupts;
mod io;
mod lifecycle;
mod queues;
mod ram;
mod soak;
