//! A session on a real link: what a node tells of it, and whether the simulator tells the truth; and a remote
//! disk under the programs of others. They need root, no guest, and a minute: `./run test link`.
//!
//! One at a time, please (`--test-threads=1`): each measures.

mod boxes;
mod copy;
mod cores;
mod export;
mod goodput;
mod operations;
mod paths;
mod security;
mod stat;
mod steady;
mod stranger;
mod verify;

use etherslot_lab::Story;
