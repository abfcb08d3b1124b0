//! The fabric, end to end: boxes, hosts, guests, and the commands of an operator, in the namespaces of the lab. It needs root, QEMU and
//! some minutes: `./run test fabric`.

mod discovery;
mod failover;
mod machine;
mod moves;
mod owners;
mod plug;
mod stand;
mod tutorial;

use etherslot_lab::Story;
