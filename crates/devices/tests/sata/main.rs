//! Disks behind a controller, driven as a host drives them: by registers, and commands in memory.

mod ahci;
mod ata;
#[path = "../nvme/bus.rs"]
mod bus;
mod errors;
mod host;
mod hostile;
mod plug;
mod sil3132;
