//! One client: negotiation, then requests, cut into pieces for the disk, and replies as they get done.
//!
//! `input` reads, `pieces` deals with the disk, `output` writes. None of them waits: a turn does what can be done now.

mod input;
mod job;
mod output;
mod pieces;

use std::collections::VecDeque;
use std::io::{Read, Write};

use etherslot_initiator::{Buffer, Disk, Request};

pub(crate) use job::Kind;
pub(crate) use pieces::slot_of;

use crate::budget::{Budget, Held};
use crate::export::{Geometry, Offer};
use crate::handshake::{self, Handshake, MAX_OPTION_BYTES};
use crate::message::{Head, OPTION_BYTES};
use crate::server::Counters;
use crate::staging::Staging;
use input::Input;
use job::Job;
use output::{Output, Reply};
use pieces::Sequence;

/// What all connections share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) offers: Vec<Offer>,
    pub(crate) counters: Counters,
    /// Where payload goes that nobody wants.
    pub(crate) sink: Box<[u8]>,
}

/// What connections to the same disk share.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) geometry: Geometry,
    pub(crate) budget: Budget,
}

/// What a connection has to hand for the time of a call.
pub(crate) struct Turn<'a> {
    /// The disk of its export; before it has chosen one, any.
    pub(crate) disk: &'a mut dyn Disk,
    pub(crate) volume: &'a mut Volume,
    pub(crate) shared: &'a mut Shared,
    /// Where it is among the connections.
    pub(crate) slot: u16,
}

impl Turn<'_> {
    #[inline]
    pub(crate) fn give_back(&mut self, held: &mut Held, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer {
            self.volume.budget.give_back(self.disk, held, buffer);
        }
    }
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The client said so, or we were asked to end, and all that was to be done is done.
    Orderly,
    /// The stream ended, or failed.
    Gone,
    /// The client did what no client may.
    Broken(&'static str),
    /// It did not get through the negotiation in time.
    Slow,
    /// The disk failed where only the end of the connection can tell the client.
    Failed,
}

#[derive(Debug)]
enum Phase {
    Negotiating { handshake: Handshake, until_ns: u64 },
    Serving(Input),
}

/// A client.
#[derive(Debug)]
pub(crate) struct Connection<S> {
    pub(crate) peer: String,
    /// None when the client is gone and the disk still has requests of it.
    stream: Option<S>,
    phase: Phase,
    staging: Staging,
    /// As many bytes are staged at most.
    window: usize,
    may_read: bool,
    hung_up: bool,
    structured: bool,
    /// Which of the disks the export is on.
    disk: usize,
    read_only: bool,
    /// Takes no requests any more, and ends when there is nothing left to do.
    is_leaving: bool,
    jobs: Box<[Job]>,
    free: Vec<u16>,
    /// Jobs of which the disk has not been given all.
    issuing: VecDeque<u16>,
    /// A piece that the disk had no room for.
    pending: Option<Request>,
    /// The job whose data have to leave in order, one piece after the other. There is no other then.
    sequence: Option<Sequence>,
    output: Output,
    held: Held,
    /// Pieces that the disk has.
    at_disk: usize,
}

impl<S: Read + Write> Connection<S> {
    /// A client that has `until_ns` to choose an export, and may have so many requests under way.
    pub(crate) fn new(stream: S, peer: String, until_ns: u64, requests: u16) -> Self {
        Self {
            peer,
            stream: Some(stream),
            phase: Phase::Negotiating { handshake: Handshake::default(), until_ns },
            staging: Staging::new(OPTION_BYTES + MAX_OPTION_BYTES),
            window: OPTION_BYTES + MAX_OPTION_BYTES,
            may_read: true,
            hung_up: false,
            structured: false,
            disk: 0,
            read_only: true,
            is_leaving: false,
            jobs: vec![Job::EMPTY; usize::from(requests)].into(),
            free: (0..requests).rev().collect(),
            issuing: VecDeque::with_capacity(requests.into()),
            pending: None,
            sequence: None,
            output: Output::new(handshake::greeting(), requests.into()),
            held: Held::default(),
            at_disk: 0,
        }
    }

    /// The stream may have bytes, or room, or its end.
    pub(crate) fn wake(&mut self, hung_up: bool) {
        self.may_read = true;
        self.output.may_write = true;
        self.hung_up |= hung_up;
    }

    /// Whether the client is gone, and the disk has nothing of it.
    pub(crate) fn is_over(&self) -> bool {
        self.stream.is_none() && self.at_disk == 0
    }

    /// The disk that it is about, once an export is chosen.
    pub(crate) fn disk(&self) -> usize {
        self.disk
    }

    /// Until when an export has to be chosen.
    pub(crate) fn until_ns(&self) -> Option<u64> {
        match &self.phase {
            Phase::Negotiating { until_ns, .. } if self.stream.is_some() => Some(*until_ns),
            _ => None,
        }
    }

    /// No further requests are taken.
    pub(crate) fn leave(&mut self) {
        self.is_leaving = true;
    }

    /// Does what can be done. True if something was.
    pub(crate) fn poll(&mut self, now_ns: u64, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        if self.stream.is_none() {
            return Ok(false);
        }
        let progress = self.write(turn)? | self.read(turn)? | self.issue(turn)? | self.write(turn)?;
        if self.until_ns().is_some_and(|until_ns| now_ns > until_ns) {
            return Err(Ending::Slow);
        }
        if self.is_leaving && self.is_idle() {
            return Err(Ending::Orderly);
        }
        Ok(progress)
    }

    fn is_idle(&self) -> bool {
        let is_between = !matches!(&self.phase, Phase::Serving(input) if !input.is_between());
        is_between && self.free.len() == self.jobs.len() && self.output.is_empty()
    }

    #[inline]
    fn write(&mut self, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        let Some(stream) = &mut self.stream else { return Ok(false) };
        self.output.write(stream, turn, &mut self.held, &mut self.free)
    }

    /// The reply to a job that has no data, or had an error.
    fn reply(&mut self, turn: &mut Turn<'_>, index: u16) {
        let job = &self.jobs[usize::from(index)];
        turn.shared.counters.errors += u64::from(job.error.is_some());
        let head = if self.structured {
            Head::end(job.cookie, job.error)
        } else {
            Head::simple(job.cookie, job.error)
        };
        self.output.push(Reply { head, data: None, ends: Some(index) });
    }

    /// The client is gone. What the disk has of it ends in [`Connection::done`].
    pub(crate) fn close(&mut self, turn: &mut Turn<'_>) {
        self.stream = None;
        self.output.discard(turn, &mut self.held);
        if let Phase::Serving(input) = &mut self.phase {
            let buffer = input.take_buffer();
            turn.give_back(&mut self.held, buffer);
        }
        let pending = self.pending.take().and_then(|request| request.buffer);
        turn.give_back(&mut self.held, pending);
        for buffer in self.sequence.take().into_iter().flat_map(Sequence::into_buffers) {
            turn.give_back(&mut self.held, Some(buffer));
        }
    }
}
