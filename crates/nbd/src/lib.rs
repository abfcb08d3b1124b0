//! A server of the Network Block Device protocol over [`Disk`](etherslot_initiator::Disk)s: fixed newstyle negotiation,
//! simple and structured replies. The protocol is that of `doc/proto.md` of the reference implementation; names are its own.
//!
//! No sockets are made here: a [`Server`] is given streams of bytes that never block, time, and the disks. What a client writes is read
//! from its stream into a buffer of the disk, and what it reads is written from there; nothing copies it in between but what
//! came together with the head of a request (less than 2 KiB).
//!
//! A client is not trusted. Connections, requests under way on each and buffers are bounded; each connection has buffers that no
//! other can take, so that one whose client neither sends nor reads holds up nobody else.
//!
//! Not here: TLS, metadata contexts (`NBD_CMD_BLOCK_STATUS`), `NBD_CMD_CACHE`, extended headers.

mod budget;
mod connection;
mod export;
mod handshake;
pub mod message;
mod server;
mod staging;

pub use export::{Export, MAX_PAYLOAD_BYTES};
pub use server::{Config, Counters, Disks, Server};
