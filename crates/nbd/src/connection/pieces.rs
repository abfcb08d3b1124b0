//! Pieces of requests: to the disk, and back.

use std::io::{Read, Write};

use etherslot_initiator::{Buffer, Done, Reason, Refused, Request as Piece};

use super::job::{Kind, error_of};
use super::{Connection, Ending, Reply, Turn};
use crate::message::{Error, Head};

/// Pieces of one request that the disk has at most; there are others.
const PIECES: u32 = 16;
/// Pieces of a job in order that may be done before the next to leave is.
const AHEAD: usize = 8;

/// By which a piece is known to the disk.
pub(crate) fn token(slot: u16, job: u16, piece: u32) -> u64 {
    u64::from(slot) << 48 | u64::from(job) << 32 | u64::from(piece)
}

/// The connection to which a token belongs.
pub(crate) fn slot_of(token: u64) -> u16 {
    (token >> 48) as u16
}

/// What came of giving the disk a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Issue {
    /// It has it.
    Done,
    /// The job has no further ones.
    All,
    /// The job has to wait for others, or for pieces of its own.
    Later,
    /// There is no buffer.
    NoBuffer,
}

/// A read that is answered by a simple reply and has several pieces: the head is followed by all data in order.
#[derive(Debug)]
pub(crate) struct Sequence {
    job: u16,
    /// The piece that leaves next.
    next: u32,
    /// Pieces that are done, each in the place of its number modulo their count.
    ready: [Option<Buffer>; AHEAD],
}

impl Sequence {
    pub(crate) fn new(job: u16) -> Self {
        Self { job, next: 0, ready: [const { None }; AHEAD] }
    }

    pub(crate) fn into_buffers(self) -> impl Iterator<Item = Buffer> {
        self.ready.into_iter().flatten()
    }
}

impl<S: Read + Write> Connection<S> {
    /// Gives the disk what it takes of what is to be done.
    pub(super) fn issue(&mut self, turn: &mut Turn<'_>) -> Result<bool, Ending> {
        let mut progress = false;
        if let Some(piece) = self.pending.take() {
            self.submit(turn, piece)?;
            progress = self.pending.is_none();
        }
        for _ in 0..self.issuing.len() {
            let Some(&index) = self.issuing.front() else { break };
            let mut issue = Issue::Done;
            while self.pending.is_none() {
                issue = self.issue_one(turn, index)?;
                if issue != Issue::Done {
                    break;
                }
                progress = true;
            }
            match issue {
                Issue::All => drop(self.issuing.pop_front()),
                Issue::Later => self.issuing.rotate_left(1),
                // Those behind fare no better.
                Issue::Done | Issue::NoBuffer => break,
            }
        }
        Ok(progress)
    }

    /// One piece of a job.
    fn issue_one(&mut self, turn: &mut Turn<'_>, index: u16) -> Result<Issue, Ending> {
        let is_alone = self.free.len() + 1 == self.jobs.len();
        let job = &mut self.jobs[usize::from(index)];
        let volume = &mut *turn.volume;
        if job.issued >= job.blocks {
            return Ok(Issue::All);
        }
        let number = job.issued / job.piece_blocks(&volume.geometry);
        let may_start = self.sequence.as_ref().is_none_or(|sequence| {
            // Nothing may come between its pieces: all others have to be answered before.
            sequence.job != index || is_alone && number < sequence.next + AHEAD as u32
        });
        if job.under_way >= PIECES || !may_start {
            return Ok(Issue::Later);
        }
        let blocks = job.blocks_of(number, &volume.geometry);
        let mut buffer = None;
        if job.kind == Kind::Read {
            let bytes = blocks as usize * volume.geometry.block_bytes as usize;
            buffer = volume.budget.take(turn.disk, &mut self.held, bytes);
            if buffer.is_none() {
                return Ok(Issue::NoBuffer);
            }
        }
        let piece = Piece {
            token: token(turn.slot, index, number),
            op: job.op(),
            first_block: job.first_block + u64::from(job.issued),
            blocks,
            buffer,
        };
        job.issued += blocks;
        job.under_way += 1;
        self.submit(turn, piece)?;
        Ok(Issue::Done)
    }

    /// Gives the disk a piece, or keeps it until the disk has room. There is none that is kept.
    pub(super) fn submit(&mut self, turn: &mut Turn<'_>, piece: Piece) -> Result<(), Ending> {
        debug_assert!(self.pending.is_none(), "the piece that is kept would be lost");
        match turn.disk.submit(piece) {
            Ok(()) => self.at_disk += 1,
            Err(Refused { request, reason: Reason::Full }) => self.pending = Some(request),
            Err(Refused { request: Piece { token, buffer, .. }, reason }) => {
                let error = if reason == Reason::ReadOnly { Error::Permission } else { Error::Invalid };
                self.ended(turn, token, buffer, Err(error))?;
            }
        }
        Ok(())
    }

    /// Takes back what the disk has done.
    pub(crate) fn done(&mut self, turn: &mut Turn<'_>, done: Done) -> Result<(), Ending> {
        let Done { token, buffer, result } = done;
        self.at_disk = self.at_disk.saturating_sub(1);
        if self.stream.is_none() {
            turn.give_back(&mut self.held, buffer);
            return Ok(());
        }
        let kind = self.jobs.get((token >> 32) as usize & 0xFFFF).map_or(Kind::Read, |job| job.kind);
        self.ended(turn, token, buffer, result.map_err(|failure| error_of(failure, kind)))
    }

    fn ended(
        &mut self,
        turn: &mut Turn<'_>,
        token: u64,
        buffer: Option<Buffer>,
        result: Result<(), Error>,
    ) -> Result<(), Ending> {
        let (index, number) = ((token >> 32) as u16, token as u32);
        let Some(job) = self.jobs.get_mut(usize::from(index)) else {
            turn.give_back(&mut self.held, buffer);
            return Ok(());
        };
        job.under_way = job.under_way.saturating_sub(1);
        if let Err(error) = result {
            job.error.get_or_insert(error);
            // Nobody waits for the rest; of a write, it is still to be read.
            if job.kind != Kind::Write {
                job.issued = job.blocks;
                self.issuing.retain(|&other| other != index);
            }
        }
        if job.kind != Kind::Read {
            turn.give_back(&mut self.held, buffer);
            self.settle(turn, index);
            return Ok(());
        }
        if let Some(sequence) = self.sequence.as_mut().filter(|sequence| sequence.job == index) {
            let place = &mut sequence.ready[number as usize % AHEAD];
            let left_over = if result.is_ok() { std::mem::replace(place, buffer) } else { buffer };
            turn.give_back(&mut self.held, left_over);
            return self.go_on_in_order(turn);
        }
        if job.error.is_some() {
            turn.give_back(&mut self.held, buffer);
            self.settle(turn, index);
            return Ok(());
        }
        let geometry = &turn.volume.geometry;
        let bytes = job.blocks_of(number, geometry) * geometry.block_bytes;
        let is_last = job.is_complete();
        let head = if self.structured {
            let start =
                u64::from(number) * u64::from(geometry.piece_blocks) * u64::from(geometry.block_bytes);
            Head::data(job.cookie, job.offset + start, bytes, is_last)
        } else {
            Head::simple(job.cookie, None)
        };
        turn.shared.counters.bytes_read += u64::from(bytes);
        let data = buffer.map(|buffer| (buffer, bytes as usize));
        self.output.push(Reply { head, data, ends: is_last.then_some(index) });
        Ok(())
    }

    /// Sends the pieces whose turn it is. Of an error the client can be told only as long as nothing was sent.
    fn go_on_in_order(&mut self, turn: &mut Turn<'_>) -> Result<(), Ending> {
        let Some(sequence) = &mut self.sequence else { return Ok(()) };
        let (index, geometry) = (sequence.job, &turn.volume.geometry);
        let job = &mut self.jobs[usize::from(index)];
        if job.error.is_some() {
            if sequence.next != 0 {
                return Err(Ending::Failed);
            }
            if job.under_way == 0 {
                for buffer in self.sequence.take().into_iter().flat_map(Sequence::into_buffers) {
                    turn.give_back(&mut self.held, Some(buffer));
                }
                self.settle(turn, index);
            }
            return Ok(());
        }
        while let Some(buffer) = sequence.ready[sequence.next as usize % AHEAD].take() {
            let bytes = (job.blocks_of(sequence.next, geometry) * geometry.block_bytes) as usize;
            let head = if sequence.next == 0 { Head::simple(job.cookie, None) } else { Head::default() };
            sequence.next += 1;
            turn.shared.counters.bytes_read += bytes as u64;
            let is_last = sequence.next * geometry.piece_blocks >= job.blocks;
            let ends = is_last.then_some(index);
            self.output.push(Reply { head, data: Some((buffer, bytes)), ends });
            if is_last {
                self.sequence = None;
                break;
            }
        }
        Ok(())
    }

    /// The reply, or the flush before it, if a job has come to its end.
    pub(super) fn settle(&mut self, turn: &mut Turn<'_>, index: u16) {
        let job = &mut self.jobs[usize::from(index)];
        if !job.is_complete() {
            return;
        }
        if job.turn_into_flush() {
            self.issuing.push_back(index);
            return;
        }
        self.reply(turn, index);
    }
}
