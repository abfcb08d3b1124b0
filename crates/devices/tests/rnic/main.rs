//! The RNIC, driven as its driver drives it: by registers, tables, QP pages and queues in memory.

#[path = "../nvme/bus.rs"]
mod bus;
mod chaos;
mod hostile;
mod pair;
mod registers;
mod traffic;
mod windows;
