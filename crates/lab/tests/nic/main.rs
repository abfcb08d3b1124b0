//! The 82576 end to end: a stock guest with its stock driver, `igb`, on a network of the box. They need root, QEMU and some minutes:
//! `./run test nic`.
//!
//! One at a time, please (`--test-threads=1`): the guests are slow enough alone.

mod bench;
mod faults;
mod features;
mod traffic;
