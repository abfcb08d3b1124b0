//! The 82576, driven as its driver drives it: by registers, rings in memory, and a cable with someone at its other end.

mod ahead;
#[path = "../nvme/bus.rs"]
mod bus;
mod driver;
mod hostile;
mod interrupts;
mod offloads;
mod receive;
mod registers;
mod reset;
mod transmit;
