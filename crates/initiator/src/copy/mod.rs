//! Copying between several [`Disks`]: each chunk is read by its source into a piece, and written by its target from there.
//!
//! Reads and writes are under way together, chunk by chunk in no order. A chunk counts only if it was read and written in one life of the
//! memory between the disks, so that nothing of an earlier life of a DC buffer can stand for it. What fails for the moment is done again from the
//! read on; what fails for good is narrowed down to its first block, and what begins before that is gone on with, as another block in it may
//! fail, too. A target that was away may have lost what it had not made durable: that is
//! copied again.

mod disks;
mod pace;

use std::fmt;

use crate::disk::{DiskError, Done, Op, Reason, Request};
use crate::status::Status;
pub use disks::Disks;
use pace::{Pace, Setting};

/// Attempts of a chunk, beside those that the loss of the buffer or a box cost.
const ATTEMPTS: u32 = 8;
/// How long to wait for what is away, if it is not said.
const PATIENCE_NS: u64 = 30_000_000_000;
/// The first wait before another attempt; each further one is twice as long.
const BACK_OFF_NS: u64 = 5_000_000;
/// What the search for the best setting begins with: a command costs some hundred bytes on the way of the host.
const START: Setting = Setting { outstanding: 2, chunk_bytes: 512 << 10 };
/// The pair, in a token.
const PAIR_SHIFT: u32 = 32;
/// The token of a flush.
const FLUSH: u64 = u32::MAX as u64;

/// What is copied: bytes of one disk to another place, or another disk. Everything is a multiple of both disks' blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRange {
    /// The disk it is on.
    pub source: usize,
    /// Its first byte there.
    pub source_start: u64,
    /// The disk it goes to.
    pub target: usize,
    /// Its first byte there.
    pub target_start: u64,
    /// How much.
    pub bytes: u64,
    /// How much of that, from the start, is there already.
    pub done: u64,
}

/// How it is copied.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopyConfig {
    /// Chunks of a pair under way at once; without it, what is best is found.
    pub outstanding: Option<usize>,
    /// Bytes of a chunk; without it, what is best is found.
    pub chunk_bytes: Option<u64>,
    /// Compares everything afterwards.
    pub verify: bool,
    /// How long disks and the memory between them may be out of reach, ns; 0: 30 s.
    pub patience_ns: u64,
    /// After so many bytes of a pair the target makes durable what it has; 0: at the end only.
    pub checkpoint_bytes: u64,
}

/// What a pair is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reads and writes.
    Copy,
    /// The target makes everything durable.
    Flush,
    /// Reads and compares.
    Verify,
    /// All is there.
    Done,
    /// An error has ended it.
    Failed,
}

/// Which disk an error is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// The source did not read.
    Source,
    /// The target did not write.
    Target,
    /// The target holds something else than the source.
    Difference,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Source => "reading the source",
            Self::Target => "writing the target",
            Self::Difference => "verifying the target",
        })
    }
}

/// Why a pair was not copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// A disk says so.
    #[error("{blame}, at block {block}: {error}")]
    Disk {
        /// Which one.
        blame: Blame,
        /// The first block that could not be done; unless the disk was lost meanwhile: then one of those that could not.
        block: u64,
        /// What it says.
        error: DiskError,
    },
    /// The disks do not take what is asked.
    #[error("{blame}: {reason}")]
    Refused {
        /// Which one.
        blame: Blame,
        /// Why.
        reason: Reason,
    },
    /// Start, end or sizes are no whole blocks.
    #[error("the range has to consist of whole blocks of {block_bytes} bytes")]
    Blocks {
        /// Of the disk with the larger ones.
        block_bytes: u32,
    },
    /// The range is not on a disk.
    #[error("{blame}: the range ends behind the {bytes} bytes of the disk")]
    Range {
        /// Which one.
        blame: Blame,
        /// What it has.
        bytes: u64,
    },
    /// The memory between the disks was out of reach for longer than the user wants to wait.
    #[error("the buffer between source and target is out of reach")]
    Away,
    /// Source and target overlap, on one disk.
    #[error("source and target overlap")]
    Overlap,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyCounters {
    /// Chunks that were written, or compared.
    pub chunks: u64,
    /// Chunks that were done again because something failed for the moment.
    pub repeated: u64,
    /// Chunks that were done again because the memory between the disks was lost meanwhile.
    pub outlived: u64,
    /// Flushes.
    pub flushes: u64,
    /// How often a pair went back to what was durable, because its target was away.
    pub rewound: u64,
    /// The most chunks that were under way together.
    pub most_outstanding: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// To be read, not before this time.
    ToRead(u64),
    Reading,
    /// To be written, or compared.
    ToWrite,
    Writing,
}

/// A piece, and the chunk that is in it.
#[derive(Clone, Copy, Debug)]
struct Place {
    state: State,
    /// From the start of the range, bytes.
    at: u64,
    bytes: u64,
    /// Where the chunk ends: behind `bytes` if it is narrowed down to what fails.
    end: u64,
    life: u64,
    attempts: u32,
}

#[derive(Debug)]
struct Pair {
    range: CopyRange,
    /// The larger of the two disks' blocks: what chunks consist of.
    block_bytes: u64,
    phase: Phase,
    error: Option<CopyError>,
    /// Chunks that begin here or behind are not gone on with; all go on without an error.
    until: u64,
    pace: Pace,
    /// The first piece that is this pair's.
    first_piece: usize,
    places: Vec<Place>,
    /// Up to here everything is done or under way.
    next: u64,
    /// Of the flush under way: what it makes durable.
    flushing: Option<u64>,
    durable: u64,
    under_way: usize,
    /// How often the target was lost before.
    losses: u64,
    /// The target may have lost what it was given: everything that is not durable is to be done again.
    is_rewinding: bool,
    counters: CopyCounters,
}

/// A copy of some pairs at once.
#[derive(Debug)]
pub struct Copy {
    config: CopyConfig,
    pairs: Vec<Pair>,
    life: u64,
    /// When the memory between the disks was reached last.
    reached_ns: u64,
}

impl Copy {
    /// Begins to copy; the disks have to be known ([`crate::Direct::is_known`]).
    ///
    /// # Errors
    /// A pair that can't be copied, and why.
    pub fn new<D: Disks>(
        disks: &D,
        ranges: &[CopyRange],
        config: CopyConfig,
        now_ns: u64,
    ) -> Result<Self, (usize, CopyError)> {
        let share = disks.pieces() / ranges.len().max(1);
        let mut pairs = Vec::new();
        for (number, &range) in ranges.iter().enumerate() {
            let pair = Pair::new(disks, range, config, (number * share, share), now_ns);
            pairs.push(pair.map_err(|error| (number, error))?);
        }
        let patience_ns = if config.patience_ns == 0 { PATIENCE_NS } else { config.patience_ns };
        let config = CopyConfig { patience_ns, ..config };
        Ok(Self { config, pairs, life: disks.life(), reached_ns: now_ns })
    }

    /// Goes on with everything that can go on. True if something was done.
    pub fn poll<D: Disks>(&mut self, now_ns: u64, disks: &mut D) -> bool {
        let mut progress = false;
        let life = disks.life();
        let is_disturbed = life != self.life || !disks.is_ready();
        self.life = life;
        if disks.reaches_pieces() {
            self.reached_ns = now_ns;
        } else if now_ns - self.reached_ns > self.config.patience_ns {
            for pair in self.pairs.iter_mut().filter(|pair| !matches!(pair.phase, Phase::Done)) {
                pair.fail(CopyError::Away);
            }
        }
        for pair in &mut self.pairs {
            pair.look_at_target(disks.losses(pair.range.target));
        }
        for disk in 0..disks.disks() {
            progress |= disks.done(disk, &mut |done| {
                let pair = usize::try_from(done.token >> PAIR_SHIFT).unwrap_or(usize::MAX);
                if let Some(pair) = self.pairs.get_mut(pair) {
                    pair.done(now_ns, life, &done);
                }
            }) != 0;
        }
        for (number, pair) in self.pairs.iter_mut().enumerate() {
            if is_disturbed {
                pair.pace.disturbed(now_ns);
            }
            progress |= pair.go_on(now_ns, number, self.config, disks);
        }
        progress
    }

    /// When [`Copy::poll`] should be called even if nothing happens.
    pub fn deadline_ns(&self) -> Option<u64> {
        let places = self.pairs.iter().flat_map(|pair| &pair.places);
        let due = places.filter_map(|place| match place.state {
            State::ToRead(at_ns) => Some(at_ns),
            _ => None,
        });
        let away_ns = self.reached_ns.saturating_add(self.config.patience_ns);
        due.chain([away_ns]).min()
    }

    /// Whether all pairs are done, or have failed, and nothing is under way.
    pub fn is_over(&self) -> bool {
        let is_over = |pair: &Pair| matches!(pair.phase, Phase::Done | Phase::Failed) && pair.is_idle();
        self.pairs.iter().all(is_over)
    }

    /// What a pair is at.
    pub fn phase(&self, pair: usize) -> Phase {
        self.pairs[pair].phase
    }

    /// Why a pair has failed.
    pub fn error(&self, pair: usize) -> Option<CopyError> {
        self.pairs[pair].error
    }

    /// How far a pair is in its phase: bytes from the start of its range, before which all is done.
    pub fn done(&self, pair: usize) -> u64 {
        self.pairs[pair].done_to()
    }

    /// Up to where a pair would outlive a loss of power: what a later copy need not do again.
    pub fn durable(&self, pair: usize) -> u64 {
        self.pairs[pair].durable
    }

    /// What was counted for a pair.
    pub fn counters(&self, pair: usize) -> CopyCounters {
        self.pairs[pair].counters
    }

    /// Chunks of a pair under way at once, and the bytes of each, as they have been found to be best.
    pub fn setting(&self, pair: usize) -> (usize, u64) {
        let Setting { outstanding, chunk_bytes } = self.pairs[pair].pace.setting();
        (outstanding, chunk_bytes)
    }
}

impl Pair {
    fn new<D: Disks>(
        disks: &D,
        range: CopyRange,
        config: CopyConfig,
        (first_piece, pieces): (usize, usize),
        now_ns: u64,
    ) -> Result<Self, CopyError> {
        let (source, target) = (disks.info(range.source), disks.info(range.target));
        let block_bytes = source.block_bytes.max(target.block_bytes);
        let is_whole = |bytes: u64| bytes.is_multiple_of(u64::from(block_bytes));
        if ![range.source_start, range.target_start, range.bytes, range.done].into_iter().all(is_whole) {
            return Err(CopyError::Blocks { block_bytes });
        }
        for (blame, start, info) in
            [(Blame::Source, range.source_start, source), (Blame::Target, range.target_start, target)]
        {
            if start.checked_add(range.bytes).is_none_or(|end| end > info.bytes()) {
                return Err(CopyError::Range { blame, bytes: info.bytes() });
            }
        }
        let apart = range.source_start.abs_diff(range.target_start);
        if range.source == range.target && apart < range.bytes {
            return Err(CopyError::Overlap);
        }
        let refused = |reason| CopyError::Refused { blame: Blame::Target, reason };
        if target.read_only {
            return Err(refused(Reason::ReadOnly));
        }
        if config.verify && !target.can_compare {
            return Err(refused(Reason::Unsupported));
        }
        if pieces == 0 {
            return Err(refused(Reason::Buffer));
        }
        let most_bytes = (disks.piece_bytes() as u64)
            .min(u64::from(source.max_transfer_bytes.min(target.max_transfer_bytes)));
        let whole = |bytes: u64| (bytes / u64::from(block_bytes)).max(1) * u64::from(block_bytes);
        let most = Setting { outstanding: pieces, chunk_bytes: whole(most_bytes) };
        let start = Setting {
            outstanding: config.outstanding.unwrap_or(START.outstanding),
            chunk_bytes: whole(config.chunk_bytes.unwrap_or(START.chunk_bytes)),
        };
        let fixed = [config.outstanding.is_some(), config.chunk_bytes.is_some()];
        let free = Place { state: State::Free, at: 0, bytes: 0, end: 0, life: 0, attempts: 0 };
        let done = range.done.min(range.bytes);
        Ok(Self {
            range,
            block_bytes: block_bytes.into(),
            phase: Phase::Copy,
            error: None,
            until: u64::MAX,
            pace: Pace::new(start, most, fixed, now_ns),
            first_piece,
            places: vec![free; pieces],
            next: done,
            flushing: None,
            durable: done,
            under_way: 0,
            losses: disks.losses(range.target),
            is_rewinding: false,
            counters: CopyCounters::default(),
        })
    }

    fn is_idle(&self) -> bool {
        self.under_way == 0 && self.flushing.is_none()
    }

    /// Bytes from the start of the range before which all is done.
    fn done_to(&self) -> u64 {
        let busy = self.places.iter().filter(|place| place.state != State::Free);
        busy.map(|place| place.at).min().unwrap_or(self.next).min(self.next)
    }

    /// Its target was lost so many times.
    fn look_at_target(&mut self, losses: u64) {
        let was_lost = std::mem::replace(&mut self.losses, losses) != losses;
        if was_lost && matches!(self.phase, Phase::Copy | Phase::Flush) {
            self.is_rewinding = true;
        }
    }

    /// A request of this pair has ended.
    fn done(&mut self, now_ns: u64, life: u64, done: &Done) {
        let token = done.token & u64::from(u32::MAX);
        if token == FLUSH {
            let Some(durable) = self.flushing.take() else { return };
            match done.result {
                // It may have been made durable before the loss, or what was lost was not there to be.
                _ if self.is_rewinding => {}
                Ok(()) => self.durable = durable,
                Err(error) => {
                    self.fail(CopyError::Disk {
                        blame: Blame::Target,
                        block: self.range.target_start,
                        error,
                    });
                }
            }
            return;
        }
        let Some(place) = usize::try_from(token).ok().and_then(|token| self.places.get_mut(token)) else {
            return;
        };
        let was_reading = match place.state {
            State::Reading => true,
            State::Writing => false,
            _ => return,
        };
        self.under_way -= 1;
        if place.at >= self.until || self.is_rewinding {
            place.state = State::Free;
            return;
        }
        if place.life != life {
            // Whatever it says: it may have been about the memory of another life.
            self.counters.outlived += 1;
            place.state = State::ToRead(now_ns);
            return;
        }
        match done.result {
            Ok(()) if was_reading => place.state = State::ToWrite,
            Ok(()) => {
                self.counters.chunks += 1;
                self.pace.done(now_ns, place.bytes);
                place.at += place.bytes;
                place.bytes = place.end - place.at;
                place.attempts = 0;
                place.state = if place.bytes == 0 { State::Free } else { State::ToRead(now_ns) };
            }
            Err(error) => {
                let is_lasting = match error {
                    DiskError::Status(status) => status.is_lasting(),
                    DiskError::Unusable | DiskError::Lost => true,
                    _ => false,
                };
                place.attempts += 1;
                if !is_lasting && place.attempts < ATTEMPTS {
                    self.counters.repeated += 1;
                    place.state = State::ToRead(now_ns + (BACK_OFF_NS << place.attempts));
                } else if matches!(error, DiskError::Status(_)) && place.bytes > self.block_bytes {
                    place.bytes = (place.bytes / 2).next_multiple_of(self.block_bytes);
                    place.attempts = 0;
                    place.state = State::ToRead(now_ns);
                } else {
                    let at = place.at;
                    place.state = State::Free;
                    let (blame, start) = match (was_reading, error) {
                        (true, _) => (Blame::Source, self.range.source_start),
                        (false, DiskError::Status(Status::COMPARE_FAILURE)) => {
                            (Blame::Difference, self.range.target_start)
                        }
                        (false, _) => (Blame::Target, self.range.target_start),
                    };
                    self.fail_at(at, CopyError::Disk { blame, block: start + at, error });
                }
            }
        }
    }

    /// Nothing goes on. The first error is the one that counts; its block is a byte until it is told.
    fn fail(&mut self, error: CopyError) {
        self.error.get_or_insert(error);
        self.until = 0;
    }

    /// The chunk at `at` has failed: what is before it goes on, for the error of the first block is the one that counts. A disk that is
    /// lost has none.
    fn fail_at(&mut self, at: u64, error: CopyError) {
        if !matches!(error, CopyError::Disk { error: DiskError::Status(_), .. }) {
            return self.fail(error);
        }
        (self.error, self.until) = (Some(error), at);
    }

    fn go_on<D: Disks>(&mut self, now_ns: u64, number: usize, config: CopyConfig, disks: &mut D) -> bool {
        if self.error.is_some() {
            return self.give_up(now_ns, number, disks);
        }
        if self.is_rewinding {
            if !self.is_idle() {
                return false;
            }
            self.places.iter_mut().for_each(|place| place.state = State::Free);
            (self.phase, self.next, self.is_rewinding) = (Phase::Copy, self.durable, false);
            self.counters.rewound += 1;
        }
        let mut progress = false;
        match self.phase {
            Phase::Copy | Phase::Verify => {
                progress |= self.start_chunks(now_ns);
                progress |= self.submit_chunks(now_ns, number, disks);
                let is_through = self.next == self.range.bytes && self.done_to() == self.range.bytes;
                if is_through && self.is_idle() {
                    progress = true;
                    self.phase = if self.phase == Phase::Copy { Phase::Flush } else { Phase::Done };
                } else if self.phase == Phase::Copy
                    && config.checkpoint_bytes != 0
                    && self.done_to() - self.durable >= config.checkpoint_bytes
                {
                    progress |= self.flush(number, disks);
                }
            }
            Phase::Flush if self.durable == self.range.bytes => {
                progress = true;
                self.phase = if config.verify { Phase::Verify } else { Phase::Done };
                self.next = if config.verify { 0 } else { self.next };
            }
            Phase::Flush => progress |= self.flush(number, disks),
            Phase::Done | Phase::Failed => {}
        }
        progress
    }

    /// Goes on with what begins before the error, and ends as soon as nothing is under way.
    fn give_up<D: Disks>(&mut self, now_ns: u64, number: usize, disks: &mut D) -> bool {
        if self.phase == Phase::Failed {
            return false;
        }
        if self.is_rewinding {
            // What was before it may be lost, too.
            self.until = 0;
        }
        let until = self.until;
        let is_waiting = |place: &Place| matches!(place.state, State::ToRead(_) | State::ToWrite);
        for place in self.places.iter_mut().filter(|place| is_waiting(place) && place.at >= until) {
            place.state = State::Free;
        }
        let progress = self.submit_chunks(now_ns, number, disks);
        if !self.is_idle() || self.places.iter().any(is_waiting) {
            return progress;
        }
        if let Some(CopyError::Disk { blame, block, .. }) = &mut self.error {
            let disk = if *blame == Blame::Source { self.range.source } else { self.range.target };
            *block /= u64::from(disks.info(disk).block_bytes);
        }
        self.places.iter_mut().for_each(|place| place.state = State::Free);
        self.phase = Phase::Failed;
        true
    }

    /// Makes durable what is done.
    fn flush<D: Disks>(&mut self, number: usize, disks: &mut D) -> bool {
        if self.flushing.is_some() {
            return false;
        }
        let token = (number as u64) << PAIR_SHIFT | FLUSH;
        let request = Request { token, op: Op::Flush, first_block: 0, blocks: 0, buffer: None };
        if disks.submit(self.range.target, request).is_err() {
            return false;
        }
        self.counters.flushes += 1;
        self.flushing = Some(self.done_to());
        true
    }

    /// Gives free pieces chunks, as many as are to be under way.
    fn start_chunks(&mut self, now_ns: u64) -> bool {
        let Setting { outstanding, chunk_bytes } = self.pace.setting();
        let mut busy = self.places.iter().filter(|place| place.state != State::Free).count();
        let mut progress = false;
        for place in &mut self.places {
            if busy >= outstanding || self.next >= self.range.bytes {
                break;
            }
            if place.state == State::Free {
                let bytes = chunk_bytes.min(self.range.bytes - self.next);
                let (at, end) = (self.next, self.next + bytes);
                *place = Place { state: State::ToRead(now_ns), at, bytes, end, life: 0, attempts: 0 };
                self.next = end;
                busy += 1;
                progress = true;
            }
        }
        self.counters.most_outstanding = self.counters.most_outstanding.max(busy as u64);
        progress
    }

    fn submit_chunks<D: Disks>(&mut self, now_ns: u64, number: usize, disks: &mut D) -> bool {
        if !disks.reaches_pieces() {
            return false;
        }
        let life = disks.life();
        let mut progress = false;
        for at in 0..self.places.len() {
            let place = &mut self.places[at];
            if place.state == State::ToWrite && place.life != life {
                self.counters.outlived += 1;
                place.state = State::ToRead(now_ns);
            }
            let (disk, start, op) = match (place.state, self.phase) {
                (State::ToRead(at_ns), _) if at_ns <= now_ns => {
                    (self.range.source, self.range.source_start, Op::Read)
                }
                (State::ToWrite, Phase::Verify) => (self.range.target, self.range.target_start, Op::Compare),
                (State::ToWrite, _) => {
                    (self.range.target, self.range.target_start, Op::Write { durable: false })
                }
                _ => continue,
            };
            let block_bytes = u64::from(disks.info(disk).block_bytes);
            let request = Request {
                token: (number as u64) << PAIR_SHIFT | at as u64,
                op,
                first_block: (start + place.at) / block_bytes,
                blocks: (place.bytes / block_bytes) as u32,
                buffer: disks.piece(disk, self.first_piece + at),
            };
            match disks.submit(disk, request) {
                Ok(()) => {
                    if op == Op::Read {
                        (place.state, place.life) = (State::Reading, life);
                    } else {
                        place.state = State::Writing;
                    }
                    self.under_way += 1;
                    progress = true;
                }
                Err(refused) if refused.reason == Reason::Full => {}
                Err(refused) => {
                    let blame = if op == Op::Read { Blame::Source } else { Blame::Target };
                    self.fail(CopyError::Refused { blame, reason: refused.reason });
                    break;
                }
            }
        }
        progress
    }
}
