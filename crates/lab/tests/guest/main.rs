//! End-to-end tests with stock guests. They need root, QEMU and a few minutes: `./run test guest`.
//!
//! One at a time, please (`--test-threads=1`): the guests are slow enough alone.

mod boot;
mod copy;
mod daemons;
mod data;
mod drive;
mod links;
mod recovery;
mod rnic;
mod sata;
mod stand;
mod story;
mod ublk;
mod writers;
