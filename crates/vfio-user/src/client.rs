//! A small client: what tests, fuzzers and drivers in user space need of the protocol.

/// A connection to a server.
#[derive(Debug)]
pub struct Client {}
