//! Debian's own verbs programs on Etherslot's RNIC, unmodified, without a driver and without privileges. They need root to
//! make namespaces and to install packages, no guest, and some minutes: `./run test verbs`.
//!
//! One at a time, please (`--test-threads=1`): programs listen at ports of their own choice.

mod checks;
mod connections;
mod debian13;
mod fabric;
mod faults;
mod links;
mod mpi;
mod on_the_fly;
mod place;
mod programs;
mod ucx;

use etherslot_lab::Story;
