//! A server and its clients in one thread, over streams in memory, on a disk in memory.

mod client;
mod hostile;
mod negotiation;
mod requests;
mod sharing;
