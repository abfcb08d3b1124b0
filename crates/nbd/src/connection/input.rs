//! What comes: options, heads of requests, and payload, which is read to where the disk takes it from.

use std::io::{self, IoSliceMut, Read, Write};

use etherslot_initiator::{Buffer, Request as Piece};

use super::job::{Job, Kind};
use super::pieces::{Sequence, token};
use super::{Connection, Ending, Phase, Turn};
use crate::export::MAX_PAYLOAD_BYTES;
use crate::handshake::Step;
use crate::message::{REQUEST_BYTES, Request, command};

/// Heads of requests that are read at once, as long as no payload is among them.
const HEADS: usize = 64;

/// What comes next on the stream.
#[derive(Debug)]
pub(crate) enum Input {
    /// The head of a request.
    Head,
    /// Payload of this job: so many bytes, and where the next of them go.
    Payload { job: u16, left: usize, filling: Option<Filling> },
    /// Payload of a job that failed.
    Skip { job: u16, left: usize },
}

/// A piece of a write that is not complete.
#[derive(Debug)]
pub(crate) struct Filling {
    buffer: Buffer,
    bytes: usize,
    filled: usize,
}

impl Input {
    /// Whether no request is cut.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self, Self::Head)
    }

    pub(crate) fn take_buffer(&mut self) -> Option<Buffer> {
        match self {
            Self::Payload { filling, .. } => filling.take().map(|filling| filling.buffer),
            _ => None,
        }
    }
}

/// What a call of the stream brought; `asked` is what it had room for.
fn came(
    may_read: &mut bool,
    hung_up: bool,
    asked: usize,
    read: io::Result<usize>,
) -> Result<Option<usize>, Ending> {
    match read {
        Ok(0) => Err(Ending::Gone),
        Ok(bytes) => {
            // There is no more, and it will be told when there is; the end is told only once.
            *may_read = bytes == asked || hung_up;
            Ok(Some(bytes))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            *may_read = false;
            Ok(None)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Err(_) => Err(Ending::Gone),
    }
}

impl<S: Read + Write> Connection<S> {
    /// Takes what comes, as far as there is room for what it asks.
    pub(super) fn read(&mut self, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        let mut progress = false;
        while match &mut self.phase {
            Phase::Negotiating { .. } => self.negotiate(turn)?,
            Phase::Serving(Input::Head) => self.head(turn)?,
            Phase::Serving(Input::Payload { .. }) => self.payload(turn)?,
            Phase::Serving(Input::Skip { .. }) => self.skip(turn)?,
        } {
            progress = true;
        }
        Ok(progress)
    }

    /// Stages what came. True if something did.
    fn fill(&mut self) -> Result<bool, Ending> {
        let Some(stream) = self.stream.as_mut().filter(|_| self.may_read) else { return Ok(false) };
        let room = self.staging.room(self.window);
        let asked = room.len();
        if asked == 0 {
            return Ok(false);
        }
        let read = stream.read(room);
        let bytes = came(&mut self.may_read, self.hung_up, asked, read)?;
        self.staging.added(bytes.unwrap_or(0));
        Ok(bytes.is_some())
    }

    fn negotiate(&mut self, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        // What was said has to leave before more is said.
        if self.is_leaving || !self.output.is_empty() {
            return Ok(false);
        }
        let Phase::Negotiating { handshake, .. } = &mut self.phase else { return Ok(false) };
        let shared = &mut *turn.shared;
        match handshake.step(&mut self.staging, &shared.offers, &mut self.output.text) {
            Step::Need(_) => self.fill(),
            Step::On => self.write(turn).map(|_| true),
            Step::Leave => {
                self.is_leaving = true;
                Ok(true)
            }
            Step::Broken(what) => Err(Ending::Broken(what)),
            Step::Enter { export, structured } => {
                let offer = &shared.offers[export];
                let export = &offer.export;
                self.structured = structured;
                (self.disk, self.read_only) = (export.disk, offer.is_read_only());
                self.window = HEADS * REQUEST_BYTES;
                self.phase = Phase::Serving(Input::Head);
                tracing::info!(peer = self.peer, export = export.name, structured, "client uses the export");
                Ok(true)
            }
        }
    }

    #[inline]
    fn head(&mut self, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        if self.is_leaving || self.sequence.is_some() || self.pending.is_some() {
            return Ok(false);
        }
        let Some(&index) = self.free.last() else { return Ok(false) };
        let Some(head) = self.staging.bytes().first_chunk() else { return self.fill() };
        let request = Request::parse(head).ok_or(Ending::Broken("no request where one has to be"))?;
        self.staging.consume(REQUEST_BYTES);
        let counters = &mut turn.shared.counters;
        match request.command {
            command::DISC => {
                self.is_leaving = true;
                return Ok(true);
            }
            command::WRITE if request.length > MAX_PAYLOAD_BYTES => {
                return Err(Ending::Broken("a payload of excessive length"));
            }
            command::READ => counters.reads += 1,
            command::WRITE => counters.writes += 1,
            _ => counters.others += 1,
        }
        self.free.pop();
        let geometry = &turn.volume.geometry;
        let job = Job::new(&request, geometry, self.read_only, MAX_PAYLOAD_BYTES);
        self.jobs[usize::from(index)] = job;
        // Behind the head of a write nothing is read but its payload, until it is known where to.
        self.window = if request.command == command::WRITE { 1 } else { HEADS } * REQUEST_BYTES;
        if request.command == command::WRITE {
            let left = request.length as usize;
            let input = if job.error.is_some() {
                Input::Skip { job: index, left }
            } else {
                Input::Payload { job: index, left, filling: None }
            };
            self.phase = Phase::Serving(input);
        } else if job.error.is_some() {
            self.settle(turn, index);
        } else {
            if job.kind == Kind::Read && !self.structured && job.blocks > geometry.piece_blocks {
                self.sequence = Some(Sequence::new(index));
            }
            self.issuing.push_back(index);
        }
        Ok(true)
    }

    /// Reads payload into the piece's buffer, and what follows the last of it into the place for heads.
    fn payload(&mut self, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        let Phase::Serving(Input::Payload { job: index, left, filling }) = &mut self.phase else {
            return Ok(false);
        };
        let index = *index;
        let job = &mut self.jobs[usize::from(index)];
        let geometry = &turn.volume.geometry;
        let Some(piece) = filling else {
            if *left == 0 {
                job.is_receiving = false;
                self.phase = Phase::Serving(Input::Head);
                self.settle(turn, index);
                return Ok(true);
            }
            if job.error.is_some() {
                self.phase = Phase::Serving(Input::Skip { job: index, left: *left });
                return Ok(true);
            }
            if self.pending.is_some() {
                return Ok(false);
            }
            let bytes = (*left).min(geometry.piece_blocks as usize * geometry.block_bytes as usize);
            let Some(buffer) = turn.volume.budget.take(turn.disk, &mut self.held, bytes) else {
                return Ok(false);
            };
            let filled = self.staging.move_to(&mut turn.disk.data_mut(&buffer)[..bytes]);
            *filling = Some(Filling { buffer, bytes, filled });
            return Ok(true);
        };
        if piece.filled < piece.bytes {
            let Some(stream) = self.stream.as_mut().filter(|_| self.may_read) else { return Ok(false) };
            let to = &mut turn.disk.data_mut(&piece.buffer)[piece.filled..piece.bytes];
            let wanted = to.len();
            let (asked, read) = if piece.bytes == *left {
                let next = self.staging.room(REQUEST_BYTES);
                let asked = wanted + next.len();
                (asked, stream.read_vectored(&mut [IoSliceMut::new(to), IoSliceMut::new(next)]))
            } else {
                (wanted, stream.read(to))
            };
            let Some(bytes) = came(&mut self.may_read, self.hung_up, asked, read)? else { return Ok(false) };
            piece.filled += bytes.min(wanted);
            self.staging.added(bytes.saturating_sub(wanted));
            return Ok(true);
        }
        // Another job's piece may have had to wait since this one was begun.
        if self.pending.is_some() {
            return Ok(false);
        }
        *left -= piece.bytes;
        let Some(Filling { buffer, bytes, .. }) = filling.take() else { return Ok(false) };
        let number = job.issued / geometry.piece_blocks;
        let blocks = (bytes / geometry.block_bytes as usize) as u32;
        let piece = Piece {
            token: token(turn.slot, index, number),
            op: job.op(),
            first_block: job.first_block + u64::from(job.issued),
            blocks,
            buffer: Some(buffer),
        };
        job.issued += blocks;
        job.under_way += 1;
        turn.shared.counters.bytes_written += bytes as u64;
        self.submit(turn, piece)?;
        Ok(true)
    }

    /// Reads payload that nobody wants.
    fn skip(&mut self, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        let Phase::Serving(Input::Skip { job: index, left }) = &mut self.phase else { return Ok(false) };
        let index = *index;
        let staged = self.staging.bytes().len().min(*left);
        self.staging.consume(staged);
        *left -= staged;
        if *left == 0 {
            let job = &mut self.jobs[usize::from(index)];
            (job.issued, job.is_receiving) = (job.blocks, false);
            self.phase = Phase::Serving(Input::Head);
            self.settle(turn, index);
            return Ok(true);
        }
        let Some(stream) = self.stream.as_mut().filter(|_| self.may_read) else { return Ok(staged != 0) };
        let sink = &mut turn.shared.sink;
        let asked = sink.len().min(*left);
        let read = stream.read(&mut sink[..asked]);
        let bytes = came(&mut self.may_read, self.hung_up, asked, read)?;
        *left -= bytes.unwrap_or(0);
        Ok(bytes.is_some())
    }
}
