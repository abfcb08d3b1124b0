//! The disk: an ATA device (ACS-3) on a medium.
//!
//! It is told what a command is, says what has to be done for it, and does what the medium has to do. How its data
//! get to memory is the matter of `super::channel`.

use super::Drive;
use super::command::{Command, Extent, Features, Power, Protocol, Smart, parse};
use super::fis::{Registers, Taskfile, error, status};
use super::identify::{Identity, LOG_QUEUED_ERROR, PAGE_BYTES};
use etherslot_storage::{Buf, Done, Info, Medium, MediumError, Op, Request};
use std::collections::VecDeque;

/// Commands under way at most.
pub(crate) const SLOTS: usize = 32;
/// Data are moved in pieces of this size: all of a command that is smaller, a part of a larger one.
pub(crate) const CHUNK_BYTES: u32 = 512 << 10;
/// Sectors of a block of READ and WRITE MULTIPLE at most.
pub(crate) const MULTIPLE_SECTORS: u8 = 16;
/// Pages of ranges of one TRIM at most.
pub(crate) const TRIM_PAGES: u16 = 8;
/// Bytes of a range of a TRIM.
const RANGE_BYTES: usize = 8;

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) reads: u64,
    pub(crate) bytes_read: u64,
    pub(crate) writes: u64,
    pub(crate) bytes_written: u64,
    pub(crate) media_errors: u64,
}

/// Power mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Active,
    Idle,
    Standby,
    /// Only a reset wakes it.
    Sleep,
}

/// What comes next for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// So many bytes are to come from the host, to the start of the Buf; then [`Disk::gathered`].
    Gather(u32),
    /// The medium is at it; then [`Disk::medium_done`].
    Medium,
    /// So many bytes, at the start of the Buf, go to the host; then [`Disk::scattered`].
    Scatter(u32),
    /// It has ended.
    End(Registers),
}

/// A command under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) taskfile: Taskfile,
    pub(crate) command: Command,
    pub(crate) protocol: Protocol,
    /// Bytes done, of all.
    pub(crate) done: u64,
    pub(crate) total: u64,
    /// The part under way.
    chunk: u32,
}

impl Job {
    /// The data of a page are in the Buf.
    fn tell(&mut self) -> Step {
        self.chunk = self.total as u32;
        Step::Scatter(self.chunk)
    }

    /// The next part is wanted from the host.
    fn next_gather(&mut self) -> Step {
        self.chunk = (self.total - self.done).min(u64::from(CHUNK_BYTES)) as u32;
        Step::Gather(self.chunk)
    }
}

pub(crate) struct Disk {
    pub(super) identity: Identity,
    medium: Box<dyn Medium>,
    pub(super) info: Info,
    /// log2 of the bytes of a logical sector.
    pub(super) shift: u8,
    /// Requests that the medium had no room for.
    backlog: VecDeque<Request>,
    /// Requests that are with the medium, or wait for it.
    outstanding: u32,
    pub(super) write_cache: bool,
    pub(super) look_ahead: bool,
    pub(super) smart: bool,
    pub(super) multiple: u8,
    pub(super) ultra_dma: u8,
    pub(super) mode: Mode,
    /// What the log of queued commands tells: the tag, if it was one, and its registers. Until it is read nothing else is done.
    pub(super) queued_error: Option<(Option<u8>, Registers)>,
    pub(super) counters: Counters,
    pub(super) now_ns: u64,
}

impl Disk {
    pub(crate) fn new(drive: Drive, identity: Identity) -> Self {
        Self {
            identity,
            info: drive.medium.info(),
            medium: drive.medium,
            shift: drive.block_bytes.trailing_zeros() as u8,
            backlog: VecDeque::with_capacity(SLOTS),
            outstanding: 0,
            write_cache: true,
            look_ahead: true,
            smart: true,
            multiple: 0,
            ultra_dma: 6,
            mode: Mode::Active,
            queued_error: None,
            counters: Counters::default(),
            now_ns: 0,
        }
    }

    pub(crate) fn sectors(&self) -> u64 {
        self.info.bytes >> self.shift
    }

    pub(crate) fn medium(&self) -> &dyn Medium {
        self.medium.as_ref()
    }

    pub(crate) fn into_medium(self) -> Box<dyn Medium> {
        self.medium
    }

    /// Whether the medium has nothing to do.
    pub(crate) fn is_quiet(&self) -> bool {
        self.outstanding == 0
    }

    /// A reset of any kind. What the medium is doing goes on.
    pub(crate) fn reset(&mut self) {
        (self.write_cache, self.look_ahead) = (true, true);
        self.multiple = 0;
        self.mode = Mode::Active;
        self.queued_error = None;
    }

    /// What `taskfile` asks for. The error if that can't be.
    pub(crate) fn accept(&mut self, taskfile: &Taskfile) -> Result<Job, Registers> {
        let failed = |error| Registers::failed(taskfile, error);
        let (command, protocol) = parse(taskfile).ok_or_else(|| failed(error::ABRT))?;
        // SATA 3.x, 13.6.3: after an error of a queued command only its log can be read.
        let is_log = matches!(command, Command::ReadLog { log: LOG_QUEUED_ERROR, .. });
        if (self.queued_error.is_some() && !is_log) || self.mode == Mode::Sleep {
            return Err(failed(error::ABRT));
        }
        let mut job = Job { taskfile: *taskfile, command, protocol, done: 0, total: 0, chunk: 0 };
        job.total = match command {
            Command::Read(extent) | Command::Write { extent, .. } | Command::Verify(extent) => {
                let end = extent.lba + u64::from(extent.sectors);
                if end > self.sectors() {
                    return Err(failed(error::IDNF));
                }
                u64::from(extent.sectors) << self.shift
            }
            Command::Trim { pages } if (1..=TRIM_PAGES).contains(&pages) => {
                u64::from(pages) * PAGE_BYTES as u64
            }
            Command::Smart(smart) if !self.smart && !matches!(smart, Smart::Enable(_)) => {
                return Err(failed(error::ABRT));
            }
            Command::ReadLog { pages: 1, .. }
            | Command::Identify
            | Command::Smart(Smart::Data | Smart::Thresholds) => PAGE_BYTES as u64,
            Command::SetMultiple(count)
                if count != 0 && (count > MULTIPLE_SECTORS || !count.is_power_of_two()) =>
            {
                return Err(failed(error::ABRT));
            }
            Command::Trim { .. } | Command::ReadLog { .. } => return Err(failed(error::ABRT)),
            _ => 0,
        };
        Ok(job)
    }

    /// Begins a command that was accepted.
    pub(crate) fn begin(&mut self, slot: u8, job: &mut Job, buf: &mut Option<Buf>) -> Step {
        let good = Registers::good(&job.taskfile);
        let aborted = Registers::failed(&job.taskfile, error::ABRT);
        let Some(page) = buf.as_mut() else { return Step::End(aborted) };
        match job.command {
            Command::Read(_) | Command::Verify(_) => {
                self.mode = Mode::Active;
                self.read_chunk(slot, job, buf)
            }
            Command::Write { .. } | Command::Trim { .. } => {
                self.mode = Mode::Active;
                job.next_gather()
            }
            Command::Identify => {
                self.identify(page);
                job.tell()
            }
            Command::ReadLog { log, page: number, .. } => {
                if self.log(log, number, page) {
                    job.tell()
                } else {
                    Step::End(aborted)
                }
            }
            Command::Smart(Smart::Data) => {
                self.smart_data(page);
                job.tell()
            }
            Command::Smart(Smart::Thresholds) => {
                self.smart_thresholds(page);
                job.tell()
            }
            Command::Smart(Smart::Enable(on)) => {
                self.smart = on;
                Step::End(good)
            }
            // The signature stays as it was sent: no threshold is exceeded.
            Command::Smart(Smart::Status | Smart::Autosave) | Command::Nothing => Step::End(good),
            Command::SetFeatures(Features::WriteCache(false)) => {
                self.write_cache = false;
                self.flush(slot)
            }
            Command::SetFeatures(Features::WriteCache(true)) => {
                self.write_cache = true;
                Step::End(good)
            }
            Command::SetFeatures(Features::LookAhead(on)) => {
                self.look_ahead = on;
                Step::End(good)
            }
            Command::SetFeatures(Features::TransferMode(mode)) => match mode {
                0x00 | 0x01 | 0x08..=0x0c | 0x20..=0x22 => Step::End(good),
                0x40..=0x46 => {
                    self.ultra_dma = mode & 7;
                    Step::End(good)
                }
                _ => Step::End(aborted),
            },
            Command::SetMultiple(count) => {
                self.multiple = count;
                Step::End(good)
            }
            Command::Flush => self.flush(slot),
            Command::Power(Power::Check) => Step::End(Registers { count: self.power_mode(), ..good }),
            Command::Power(Power::Idle) => {
                self.mode = Mode::Idle;
                Step::End(good)
            }
            Command::Power(power) => {
                self.mode = if power == Power::Sleep { Mode::Sleep } else { Mode::Standby };
                self.flush(slot)
            }
            // Passed, with the signature.
            Command::Diagnose => Step::End(Registers { device: 0, ..Registers::SIGNATURE }),
        }
    }

    fn flush(&mut self, slot: u8) -> Step {
        self.submit(slot, Op::Flush, (0, 0), None)
    }

    fn submit(&mut self, slot: u8, op: Op, (offset, bytes): (u64, u64), buf: Option<Buf>) -> Step {
        let request = Request { token: u64::from(slot), op, offset, bytes, buf, buf_offset: 0 };
        self.outstanding += 1;
        // None overtakes those that wait.
        let refused =
            if self.backlog.is_empty() { self.medium.submit(self.now_ns, request) } else { Err(request) };
        if let Err(request) = refused {
            self.backlog.push_back(request);
        }
        Step::Medium
    }

    /// Where the part under way is on the medium.
    fn place(&self, job: &Job) -> (u64, u64) {
        match job.command {
            Command::Read(extent) | Command::Write { extent, .. } | Command::Verify(extent) => {
                ((extent.lba << self.shift) + job.done, u64::from(job.chunk))
            }
            _ => (0, 0),
        }
    }

    fn read_chunk(&mut self, slot: u8, job: &mut Job, buf: &mut Option<Buf>) -> Step {
        job.chunk = (job.total - job.done).min(u64::from(CHUNK_BYTES)) as u32;
        self.submit(slot, Op::Read, self.place(job), buf.take())
    }

    /// The data that were asked for are in the Buf.
    pub(crate) fn gathered(&mut self, slot: u8, job: &mut Job, buf: &mut Option<Buf>) -> Step {
        match job.command {
            Command::Write { fua, .. } => {
                let durable = fua || !self.write_cache;
                self.submit(slot, Op::Write { durable }, self.place(job), buf.take())
            }
            Command::Trim { .. } => {
                // All ranges are checked before the first is touched.
                let ranges = buf.as_ref().map_or(&[][..], |buf| &buf[..job.total as usize]);
                let sectors = self.sectors();
                let fits = |range: Extent| range.lba + u64::from(range.sectors) <= sectors;
                if !ranges.chunks_exact(RANGE_BYTES).map(range_of).all(fits) {
                    return Step::End(Registers::failed(&job.taskfile, error::IDNF));
                }
                self.discard_next(slot, job, buf)
            }
            _ => Step::End(Registers::failed(&job.taskfile, error::ABRT)),
        }
    }

    /// Discards the next range that is not empty; the Buf goes along.
    fn discard_next(&mut self, slot: u8, job: &mut Job, buf: &mut Option<Buf>) -> Step {
        while job.done < job.total {
            let at = job.done as usize;
            job.done += RANGE_BYTES as u64;
            let range = buf.as_ref().map_or(Extent { lba: 0, sectors: 0 }, |buf| range_of(&buf[at..at + 8]));
            if range.sectors > 0 {
                let place = (range.lba << self.shift, u64::from(range.sectors) << self.shift);
                return self.submit(slot, Op::Discard, place, buf.take());
            }
        }
        Step::End(Registers::good(&job.taskfile))
    }

    /// The medium has done what was asked last.
    pub(crate) fn medium_done(
        &mut self,
        slot: u8,
        job: &mut Job,
        buf: &mut Option<Buf>,
        result: Result<(), MediumError>,
    ) -> Step {
        if let Err(reason) = result {
            return Step::End(self.medium_failed(job, reason));
        }
        match job.command {
            Command::Read(_) => Step::Scatter(job.chunk),
            Command::Trim { .. } => self.discard_next(slot, job, buf),
            Command::Write { .. } | Command::Verify(_) => {
                job.done += u64::from(job.chunk);
                if job.done >= job.total {
                    self.count(job);
                    Step::End(Registers::good(&job.taskfile))
                } else if matches!(job.command, Command::Verify(_)) {
                    self.read_chunk(slot, job, buf)
                } else {
                    job.next_gather()
                }
            }
            _ => Step::End(Registers::good(&job.taskfile)),
        }
    }

    /// The data to the host are on their way.
    pub(crate) fn scattered(&mut self, slot: u8, job: &mut Job, buf: &mut Option<Buf>) -> Step {
        job.done += u64::from(job.chunk);
        if job.done < job.total {
            return self.read_chunk(slot, job, buf);
        }
        self.count(job);
        Step::End(Registers::good(&job.taskfile))
    }

    fn count(&mut self, job: &Job) {
        match job.command {
            Command::Read(_) => {
                self.counters.reads += 1;
                self.counters.bytes_read += job.total;
            }
            Command::Write { .. } => {
                self.counters.writes += 1;
                self.counters.bytes_written += job.total;
            }
            _ => {}
        }
    }

    /// What the host is told of an error of the medium: uncorrectable data, a fault, or that it is not done. The LBA is that of the
    /// first sector of the part that failed: what is before has been moved.
    fn medium_failed(&mut self, job: &Job, reason: MediumError) -> Registers {
        let failed = |error| Registers::failed(&job.taskfile, error);
        let at = (self.place(job).0) >> self.shift;
        let is_of_blocks = job.total > 0 && !matches!(job.command, Command::Trim { .. });
        let lba = if is_of_blocks { at } else { job.taskfile.lba };
        match (reason, job.command) {
            (MediumError::Failed | MediumError::Gone, Command::Read(_) | Command::Verify(_)) => {
                self.counters.media_errors += 1;
                Registers { lba, ..failed(error::UNC) }
            }
            (MediumError::Failed | MediumError::Gone | MediumError::NoSpace, _) => {
                self.counters.media_errors += 1;
                let registers = failed(error::ABRT);
                Registers { lba, status: registers.status | status::DF, ..registers }
            }
            _ => failed(error::ABRT),
        }
    }

    /// A queued command has failed, or something else came while there were some: all of them are given up. What fails after the first
    /// does so because of it, and is not what the host is told of.
    pub(crate) fn queue_failed(&mut self, tag: Option<u8>, registers: Registers) {
        self.queued_error.get_or_insert((tag, registers));
    }

    /// Takes back what the medium does not have yet: `each` gets the Bufs.
    pub(crate) fn drop_backlog(&mut self, mut each: impl FnMut(u8, Buf)) {
        for request in self.backlog.drain(..) {
            self.outstanding -= 1;
            if let Some(buf) = request.buf {
                each(request.token as u8, buf);
            }
        }
    }

    /// Lets the medium work.
    pub(crate) fn poll(&mut self, done: &mut Vec<Done>) -> bool {
        if self.outstanding == 0 {
            return false;
        }
        while let Some(request) = self.backlog.pop_front() {
            if let Err(request) = self.medium.submit(self.now_ns, request) {
                self.backlog.push_front(request);
                break;
            }
        }
        let before = done.len();
        let any = self.medium.poll(self.now_ns, &mut |one| done.push(one));
        self.outstanding = self.outstanding.saturating_sub((done.len() - before) as u32);
        any
    }
}

/// A range of TRIM: 48 bits of LBA, 16 of sectors.
fn range_of(bytes: &[u8]) -> Extent {
    let range = bytes.iter().rev().fold(0u64, |value, byte| value << 8 | u64::from(*byte));
    Extent { lba: range & 0xffff_ffff_ffff, sectors: (range >> 48) as u32 }
}
