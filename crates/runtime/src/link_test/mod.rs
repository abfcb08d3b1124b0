//! `etherslot link`: what one session carries over a link, and how long small records take beside it.
//!
//! Both ends are sans-IO like the nodes, so they are tested in virtual time; `run` gives them clock and Port. The session is
//! the one that boxes and hosts use, with the same set-up.
#![allow(clippy::cast_precision_loss)] // Rates and shares are shown, not counted with.

mod client;
mod latency;
mod message;
mod report;
mod run;
mod server;

use std::time::Duration;

use etherslot_wire::record;

pub use client::{Failed, Phase, Progress};
pub use report::{Flow, Latency, Report};
pub use run::{TestError, serve, test};

use crate::options::{LinkOptions, LoopOptions, Routes, SessionOptions};

/// The smallest and the largest bulk record.
pub const RECORD_BYTES: std::ops::RangeInclusive<usize> = 1..=record::MAX_PAYLOAD_BYTES;
/// What bulk is made of.
static FILLER: [u8; record::MAX_PAYLOAD_BYTES] = [0xA5; record::MAX_PAYLOAD_BYTES];

/// An end of a link test.
#[derive(Debug)]
pub struct EndOptions {
    /// Name and poll loop.
    pub run: LoopOptions,
    /// Its links.
    pub links: Vec<LinkOptions>,
    /// Its sessions.
    pub session: SessionOptions,
}

/// The test that the asking end makes.
#[derive(Clone, Debug)]
pub struct TestOptions {
    /// The serving end.
    pub peer: Routes,
    /// How long small records are sent alone.
    pub idle: Duration,
    /// How long bulk is sent beside them.
    pub load: Duration,
    /// Bytes of a bulk record, of [`RECORD_BYTES`].
    pub record_bytes: usize,
    /// Bulk from us to the peer.
    pub to_peer: bool,
    /// Bulk from the peer to us.
    pub from_peer: bool,
}

/// The test in the terms of its clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    idle_ns: u64,
    load_ns: u64,
    record_bytes: usize,
    to_peer: bool,
    from_peer: bool,
}

impl From<&TestOptions> for Plan {
    fn from(options: &TestOptions) -> Self {
        let TestOptions { idle, load, record_bytes, to_peer, from_peer, .. } = *options;
        Self {
            idle_ns: idle.as_nanos() as u64,
            load_ns: load.as_nanos() as u64,
            record_bytes: record_bytes.clamp(*RECORD_BYTES.start(), *RECORD_BYTES.end()),
            to_peer,
            from_peer,
        }
    }
}

#[cfg(test)]
mod tests;
