//! What a benchmark does to a disk: which operations, at which blocks, how many under way; and what came of it.
//!
//! It keeps no clock: times are arguments. With `verify`, what is written tells its block and the number of the write, and
//! is read and compared, at the end or when a read meets it.

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use etherslot_runtime::initiator::driver::{Buffer, Disk, DiskError, Done, Op, Reason, Request};
use hdrhistogram::Histogram;

/// Latencies up to this are told apart, ns.
const LONGEST_NS: u64 = 60_000_000_000;
/// Places that are kept account of when what is written is verified.
const VERIFIED_PLACES: u64 = 1 << 24;

/// Kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// One block after the other.
    Read,
    /// One block after the other.
    Write,
    /// Anywhere.
    Randread,
    /// Anywhere.
    Randwrite,
    /// Reads and writes by turns of chance, anywhere.
    Randrw,
}

impl Pattern {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Randread => "randread",
            Self::Randwrite => "randwrite",
            Self::Randrw => "randrw",
        }
    }

    fn is_random(self) -> bool {
        !matches!(self, Self::Read | Self::Write)
    }

    pub(crate) fn is_writing(self) -> bool {
        !matches!(self, Self::Read | Self::Randread)
    }
}

/// What one point of a benchmark is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) pattern: Pattern,
    pub(crate) block_bytes: u32,
    /// Under way at once.
    pub(crate) depth: usize,
    /// Of a hundred operations of `Randrw`, so many read.
    pub(crate) read_percent: u32,
    pub(crate) verify: bool,
    pub(crate) seed: u64,
}

/// Xorshift (Marsaglia 2003): quick, and good enough to spread blocks.
#[derive(Debug)]
struct Random(u64);

impl Random {
    #[inline]
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `bound`, which is at least 1.
    #[inline]
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// An operation under way; the tokens of requests are places among these.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    place: u64,
    started_ns: u64,
    is_write: bool,
    /// The number of the write that a place holds.
    generation: u32,
}

/// What was measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) errors: u64,
    pub(crate) verified: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) first_error: Option<DiskError>,
}

impl Measured {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            reads: 0,
            writes: 0,
            errors: 0,
            verified: 0,
            latency: Histogram::new_with_bounds(1, LONGEST_NS, 3)?,
            first_error: None,
        })
    }
}

/// The work itself.
pub(crate) struct Workload {
    plan: Plan,
    blocks: u32,
    places: u64,
    next: u64,
    random: Random,
    flights: Vec<Flight>,
    free: Vec<u32>,
    buffers: Vec<Buffer>,
    /// For each place the number of its last write; and whether something is under way there. Empty unless verified.
    generations: Vec<u32>,
    busy: Vec<bool>,
    /// The next place of the last pass, which reads all that was written.
    reading_back: Option<u64>,
    mismatch: Option<u64>,
    pub(crate) measured: Measured,
}

impl Workload {
    /// Takes the buffers for it from the disk.
    pub(crate) fn new(plan: Plan, disk: &mut dyn Disk) -> Result<Self> {
        let info = disk.info().clone();
        let Plan { block_bytes, depth, .. } = plan;
        ensure!(
            block_bytes.is_multiple_of(info.block_bytes),
            "--block-size {block_bytes} is no multiple of the disk's {} bytes",
            info.block_bytes
        );
        ensure!(
            block_bytes <= info.max_transfer_bytes,
            "--block-size {block_bytes} is more than the {} bytes of the largest transfer",
            info.max_transfer_bytes
        );
        ensure!(
            depth <= info.queue_depth,
            "--queue-depth {depth} is more than the {} that the controller takes",
            info.queue_depth
        );
        ensure!(!plan.pattern.is_writing() || !info.read_only, "the namespace is write protected");
        let blocks = block_bytes / info.block_bytes;
        let mut places = info.blocks / u64::from(blocks);
        ensure!(places >= depth as u64, "the namespace is too small for this many operations at once");
        if plan.verify {
            places = places.min(VERIFIED_PLACES);
        }
        let buffers: Vec<Buffer> =
            (0..depth).filter_map(|_| disk.take_buffer(block_bytes as usize)).collect();
        if buffers.len() < depth {
            for buffer in buffers {
                disk.give_back(buffer);
            }
            bail!("there are not enough buffers of {block_bytes} bytes");
        }
        let mut random = Random(plan.seed | 1);
        for buffer in &buffers {
            // What can't be compressed or told to be zeros.
            for word in disk.data_mut(buffer).chunks_exact_mut(8) {
                word.copy_from_slice(&random.next().to_le_bytes());
            }
        }
        let kept = if plan.verify { places as usize } else { 0 };
        Ok(Self {
            plan,
            blocks,
            places,
            next: 0,
            random,
            flights: vec![Flight::default(); depth],
            free: (0..depth as u32).collect(),
            buffers,
            generations: vec![0; kept],
            busy: vec![false; kept],
            reading_back: None,
            mismatch: None,
            measured: Measured::new()?,
        })
    }

    /// What is measured starts now: what was before was to warm up.
    pub(crate) fn start_measuring(&mut self) -> Result<()> {
        self.measured = Measured::new()?;
        Ok(())
    }

    /// Operations under way.
    pub(crate) fn under_way(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Submits until as many are under way as there are to be; how many that were.
    #[inline]
    pub(crate) fn submit(&mut self, now_ns: u64, disk: &mut dyn Disk) -> Result<usize> {
        let mut count = 0;
        while let Some(&token) = self.free.last() {
            let Some((place, is_write)) = self.choose() else { break };
            let Some(buffer) = self.buffers.pop() else { break };
            let mut generation = 0;
            if self.plan.verify {
                self.busy[place as usize] = true;
                generation = self.generations[place as usize] + u32::from(is_write);
                if is_write {
                    fill(&mut disk.data_mut(&buffer)[..self.plan.block_bytes as usize], place, generation);
                }
            }
            let op = if is_write { Op::Write { durable: false } } else { Op::Read };
            let (first_block, blocks) = (place * u64::from(self.blocks), self.blocks);
            let request = Request { token: token.into(), op, first_block, blocks, buffer: Some(buffer) };
            if let Err(refused) = disk.submit(request) {
                self.buffers.extend(refused.request.buffer);
                if self.plan.verify {
                    self.busy[place as usize] = false;
                }
                if refused.reason == Reason::Full {
                    break;
                }
                bail!("the disk refuses an operation: {}", refused.reason);
            }
            self.free.pop();
            self.flights[token as usize] = Flight { place, started_ns: now_ns, is_write, generation };
            count += 1;
        }
        Ok(count)
    }

    /// The next place, and whether it is written.
    #[inline]
    fn choose(&mut self) -> Option<(u64, bool)> {
        if let Some(next) = &mut self.reading_back {
            while *next < self.places && self.generations[*next as usize] == 0 {
                *next += 1;
            }
            let place = *next;
            *next += 1;
            return (place < self.places).then_some((place, false));
        }
        let is_write = match self.plan.pattern {
            Pattern::Randrw => self.random.below(100) >= u64::from(self.plan.read_percent),
            pattern => pattern.is_writing(),
        };
        // With twice as many places as operations a free one is found soon.
        for _ in 0..64 {
            let place = if self.plan.pattern.is_random() {
                self.random.below(self.places)
            } else {
                let place = self.next;
                self.next = if place + 1 < self.places { place + 1 } else { 0 };
                place
            };
            if self.busy.get(place as usize).is_none_or(|&busy| !busy) {
                return Some((place, is_write));
            }
        }
        None
    }

    /// Takes what is done; how many that were. `now_ns` is asked for once if there is any.
    #[inline]
    pub(crate) fn poll(
        &mut self,
        disk: &mut dyn Disk,
        now_ns: impl Fn() -> u64,
        done: &mut Vec<Done>,
    ) -> usize {
        if disk.poll(&mut |one| done.push(one)) == 0 {
            return 0;
        }
        let now_ns = now_ns();
        let count = done.len();
        for Done { token, buffer, result } in done.drain(..) {
            let Some(flight) = self.flights.get(token as usize).copied() else { continue };
            self.free.push(token as u32);
            match result {
                Ok(()) => {
                    self.measured.latency.saturating_record(now_ns.saturating_sub(flight.started_ns).max(1));
                    self.measured.reads += u64::from(!flight.is_write);
                    self.measured.writes += u64::from(flight.is_write);
                }
                Err(error) => {
                    self.measured.errors += 1;
                    self.measured.first_error.get_or_insert(error);
                }
            }
            if self.plan.verify {
                self.busy[flight.place as usize] = false;
                if flight.is_write {
                    // After a failed write nothing is known.
                    let generation = if result.is_ok() { flight.generation } else { 0 };
                    self.generations[flight.place as usize] = generation;
                } else if let (Ok(()), Some(buffer), 1..) = (result, &buffer, flight.generation) {
                    let data = &disk.data(buffer)[..self.plan.block_bytes as usize];
                    self.measured.verified += 1;
                    if !holds(data, flight.place, flight.generation) {
                        self.mismatch.get_or_insert(flight.place * u64::from(self.blocks));
                    }
                }
            }
            self.buffers.extend(buffer);
        }
        count
    }

    /// Reads from now on what was written, once; true as long as there is something left.
    pub(crate) fn read_back(&mut self) -> bool {
        let next = *self.reading_back.get_or_insert(0);
        next < self.places || self.under_way() > 0
    }

    /// Whether what was read is what was written.
    pub(crate) fn check(&self) -> Result<()> {
        match self.mismatch {
            Some(block) => bail!("verification failed: block {block} does not hold what was written to it"),
            None => Ok(()),
        }
    }

    /// Gives the buffers back; nothing is under way any more.
    pub(crate) fn finish(self, disk: &mut dyn Disk) -> Measured {
        for buffer in self.buffers {
            disk.give_back(buffer);
        }
        self.measured
    }
}

/// Splitmix64 (Steele, Lea, Flood 2014): the word at `at` of the `generation`th write of a place.
fn word(place: u64, generation: u32, at: usize) -> u64 {
    let seed = place << 32 ^ u64::from(generation);
    let mut mixed = seed.wrapping_add((at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn fill(data: &mut [u8], place: u64, generation: u32) {
    for (at, bytes) in data.chunks_exact_mut(8).enumerate() {
        bytes.copy_from_slice(&word(place, generation, at).to_le_bytes());
    }
}

fn holds(data: &[u8], place: u64, generation: u32) -> bool {
    data.chunks_exact(8).enumerate().all(|(at, bytes)| bytes == word(place, generation, at).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_runtime::initiator::driver::{BufferClass, MemoryDisk};

    fn plan(pattern: Pattern) -> Plan {
        Plan { pattern, block_bytes: 4096, depth: 8, read_percent: 50, verify: true, seed: 7 }
    }

    fn disk() -> MemoryDisk {
        MemoryDisk::new(512, 1024, 16, &[BufferClass { bytes: 4096, count: 8 }])
    }

    fn run(workload: &mut Workload, disk: &mut MemoryDisk, rounds: u64) {
        let mut done = Vec::new();
        for now_ns in 0..rounds {
            workload.submit(now_ns, disk).unwrap();
            workload.poll(disk, || now_ns + 5, &mut done);
        }
    }

    #[test]
    fn what_was_written_is_read_back_and_compared() {
        for pattern in [Pattern::Write, Pattern::Randwrite, Pattern::Randrw] {
            let mut disk = disk();
            let mut workload = Workload::new(plan(pattern), &mut disk).unwrap();
            run(&mut workload, &mut disk, 100);
            assert_eq!(workload.measured.reads + workload.measured.writes, 800);
            while workload.read_back() {
                run(&mut workload, &mut disk, 1);
            }
            workload.check().unwrap();
            assert!(workload.measured.verified >= 100, "{pattern:?}");
            assert_eq!(workload.measured.latency.max(), 5);
            workload.finish(&mut disk);
            assert!((0..8).all(|_| disk.take_buffer(4096).is_some()), "buffers come back");
        }
    }

    #[test]
    fn a_block_that_changed_behind_our_back_is_found() {
        let mut disk = disk();
        let mut workload = Workload::new(plan(Pattern::Write), &mut disk).unwrap();
        run(&mut workload, &mut disk, 16);
        let buffer = disk.take_buffer(512);
        assert!(buffer.is_none(), "all are the workload's");
        workload.generations[3] += 1;
        while workload.read_back() {
            run(&mut workload, &mut disk, 1);
        }
        let error = workload.check().unwrap_err().to_string();
        assert!(error.contains("block 24"), "{error}");
    }

    #[test]
    fn errors_are_counted_and_the_first_is_kept() {
        let mut disk = disk();
        let mut workload = Workload::new(plan(Pattern::Randwrite), &mut disk).unwrap();
        disk.fail_next(DiskError::Lost);
        run(&mut workload, &mut disk, 10);
        assert_eq!((workload.measured.errors, workload.measured.first_error), (1, Some(DiskError::Lost)));
    }

    #[test]
    fn what_the_disk_can_not_do_is_refused_with_its_limit() {
        let mut disk = disk();
        for (plan, limit) in [
            (Plan { block_bytes: 8192, ..plan(Pattern::Read) }, "largest transfer"),
            (Plan { depth: 17, ..plan(Pattern::Read) }, "controller takes"),
            (Plan { depth: 9, ..plan(Pattern::Read) }, "buffers"),
        ] {
            let error = Workload::new(plan, &mut disk).err().unwrap().to_string();
            assert!(error.contains(limit), "{error}");
        }
    }
}
