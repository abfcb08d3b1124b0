//! A deterministic medium in memory, for tests and the simulator.
//!
//! A [`Disk`] is what lasts: its durable content, and a volatile cache in front of it. A [`MemoryMedium`] is a controller's
//! way to it, with latencies in virtual time. [`Disk::crash`] is a loss of power: every block that was written, but not
//! flushed, holds one of the contents written since, or the old one, block by block at random. The same seed and the same calls
//! give the same outcome.

use crate::{Buf, Done, Info, Medium, MediumError, Op, Request};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::rc::Rc;

/// How long things take, ns. All 0: done with the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Latency {
    /// Of a Read.
    pub read_ns: u64,
    /// Of all other writing.
    pub write_ns: u64,
    /// Of a Flush, and of a durable Write on top of the others.
    pub flush_ns: u64,
    /// Up to so much more, at random.
    pub jitter_ns: u64,
}

/// What a [`Disk`] is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// As in [`Info`].
    pub block_bytes: u32,
    /// As in [`Info`].
    pub bytes: u64,
    /// As in [`Info`].
    pub read_only: bool,
    /// Latencies.
    pub latency: Latency,
    /// Requests in flight at most.
    pub depth: usize,
    /// Of everything that is random.
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            block_bytes: 512,
            bytes: 1 << 20,
            read_only: false,
            latency: Latency::default(),
            depth: 256,
            seed: 1,
        }
    }
}

/// What a fault hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// Reads of the range.
    Read,
    /// All that changes the range.
    Write,
    /// Flushes, whatever the range.
    Flush,
}

#[derive(Debug)]
struct Fault {
    on: FaultOn,
    range: Range<u64>,
    error: MediumError,
    /// How often still.
    times: u32,
}

/// A block in the volatile cache.
struct Cached {
    /// The version of the current content.
    version: u64,
    /// What a crash brings back, and its version.
    durable: Box<[u8]>,
    durable_version: u64,
}

/// A block as a Flush found it.
struct Snapshot {
    version: u64,
    data: Box<[u8]>,
}

struct Content {
    options: Options,
    /// What a reader sees.
    current: Vec<u8>,
    /// Blocks whose durable content may differ from the current one.
    cached: BTreeMap<u64, Cached>,
    /// Counts the writes of blocks.
    version: u64,
    faults: Vec<Fault>,
    random: u64,
    /// Loses all that is in flight when it changes.
    life: u64,
}

impl Content {
    /// Splitmix64 (Steele, Lea, Flood 2014).
    fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn grain(&self) -> usize {
        self.options.block_bytes as usize
    }

    fn block(&self, block: u64) -> Range<usize> {
        let start = block as usize * self.grain();
        start..start + self.grain()
    }

    /// Writes one block into the cache; None is zeros.
    fn write_block(&mut self, block: u64, data: Option<&[u8]>, durable: bool) {
        let range = self.block(block);
        self.version += 1;
        let version = self.version;
        // What is overwritten in the cache may have reached the durable side before.
        let destaged = self.random() & 1 == 0;
        let old = &self.current[range.clone()];
        if durable {
            self.cached.remove(&block);
        } else if let Some(cached) = self.cached.get_mut(&block) {
            if destaged {
                (cached.durable_version, cached.durable) = (cached.version, old.into());
            }
            cached.version = version;
        } else {
            // Whatever a Flush under way has seen of the block is older than this.
            self.cached.insert(block, Cached { version, durable: old.into(), durable_version: version - 1 });
        }
        match data {
            Some(data) => self.current[range].copy_from_slice(data),
            None => self.current[range].fill(0),
        }
    }

    /// What a Flush covers if it is submitted now.
    fn snapshot(&self) -> BTreeMap<u64, Snapshot> {
        let take = |(block, cached): (&u64, &Cached)| {
            (*block, Snapshot { version: cached.version, data: self.current[self.block(*block)].into() })
        };
        self.cached.iter().map(take).collect()
    }

    /// What a Flush covers has become durable; what was written later has not, and what is durable already stays so.
    fn flush(&mut self, covered: BTreeMap<u64, Snapshot>) {
        for (block, snapshot) in covered {
            let Some(cached) = self.cached.get_mut(&block) else { continue };
            if cached.version == snapshot.version {
                self.cached.remove(&block);
            } else if cached.durable_version < snapshot.version {
                (cached.durable_version, cached.durable) = (snapshot.version, snapshot.data);
            }
        }
    }

    fn fault(&mut self, on: FaultOn, range: &Range<u64>) -> Option<MediumError> {
        let hits = |fault: &Fault| {
            let overlaps = fault.range.start < range.end && range.start < fault.range.end;
            fault.on == on && fault.times > 0 && (on == FaultOn::Flush || overlaps)
        };
        let fault = self.faults.iter_mut().find(|fault| hits(fault))?;
        fault.times = fault.times.saturating_sub(u32::from(fault.times != u32::MAX));
        Some(fault.error)
    }

    fn carry_out(&mut self, pending: &mut Pending) -> Result<(), MediumError> {
        let request = &mut pending.request;
        request.check(&Info { read_only: self.options.read_only, ..self.info() })?;
        let range = request.offset..request.offset + request.bytes;
        let on = match request.op {
            Op::Read => FaultOn::Read,
            Op::Write { .. } | Op::WriteZeroes { .. } | Op::Discard => FaultOn::Write,
            Op::Flush => FaultOn::Flush,
        };
        if let Some(error) = self.fault(on, &range) {
            return Err(error);
        }
        let span = range.start as usize..range.end as usize;
        let data = request.buf_offset..request.buf_offset + request.bytes as usize;
        let blocks = range.start / self.grain() as u64..range.end / self.grain() as u64;
        match request.op {
            Op::Read => request.buf.as_mut().expect("checked")[data].copy_from_slice(&self.current[span]),
            Op::Write { durable } => {
                let buf = request.buf.as_ref().expect("checked");
                for (block, data) in blocks.zip(buf[data].chunks(self.grain())) {
                    self.write_block(block, Some(data), durable);
                }
            }
            Op::WriteZeroes { .. } | Op::Discard => {
                for block in blocks {
                    self.write_block(block, None, false);
                }
            }
            Op::Flush => self.flush(std::mem::take(&mut pending.covered)),
        }
        Ok(())
    }

    fn info(&self) -> Info {
        Info {
            block_bytes: self.options.block_bytes,
            bytes: self.options.bytes,
            read_only: self.options.read_only,
            volatile_cache: true,
            discard_zeroes: true,
        }
    }
}

/// What lasts of a medium in memory. A clone is the same disk.
#[derive(Clone)]
pub struct Disk(Rc<RefCell<Content>>);

impl Disk {
    /// A disk full of zeros.
    pub fn new(options: Options) -> Self {
        assert!(options.bytes.is_multiple_of(u64::from(options.block_bytes)), "a disk has whole blocks");
        Self(Rc::new(RefCell::new(Content {
            current: vec![0; options.bytes as usize],
            cached: BTreeMap::new(),
            version: 0,
            faults: Vec::new(),
            random: options.seed,
            life: 0,
            options,
        })))
    }

    /// A way to it. What an earlier one has in flight is lost as in a crash of its owner: done, or not.
    pub fn medium(&self) -> MemoryMedium {
        let mut content = self.0.borrow_mut();
        content.life += 1;
        MemoryMedium {
            life: content.life,
            info: content.info(),
            disk: self.clone(),
            pending: VecDeque::new(),
        }
    }

    /// Power is lost: blocks not flushed go back to an earlier content, or not, at random.
    pub fn crash(&self) {
        let mut content = self.0.borrow_mut();
        content.life += 1;
        for (block, cached) in std::mem::take(&mut content.cached) {
            if content.random() & 1 == 0 {
                let range = content.block(block);
                content.current[range].copy_from_slice(&cached.durable);
            }
        }
    }

    /// The next `times` (`u32::MAX`: all) accesses of the kind `on` that touch the bytes `range` fail with `error`.
    pub fn fail(&self, on: FaultOn, range: Range<u64>, error: MediumError, times: u32) {
        self.0.borrow_mut().faults.push(Fault { on, range, error, times });
    }

    /// No more faults.
    pub fn heal(&self) {
        self.0.borrow_mut().faults.clear();
    }

    /// What a reader sees at `offset`, past any medium.
    pub fn peek(&self, offset: u64, data: &mut [u8]) {
        let start = offset as usize;
        data.copy_from_slice(&self.0.borrow().current[start..start + data.len()]);
    }

    /// Puts durable bytes at `offset`, past any medium; whole blocks.
    pub fn poke(&self, offset: u64, data: &[u8]) {
        let mut content = self.0.borrow_mut();
        let grain = content.grain();
        assert!((offset as usize | data.len()).is_multiple_of(grain), "whole blocks");
        for (block, data) in (offset / grain as u64..).zip(data.chunks(grain)) {
            content.write_block(block, Some(data), true);
        }
    }

    /// How many blocks a crash could take back now.
    pub fn unflushed_blocks(&self) -> usize {
        self.0.borrow().cached.len()
    }
}

struct Pending {
    request: Request,
    at_ns: u64,
    /// What a Flush covers: what was in the cache when it was submitted.
    covered: BTreeMap<u64, Snapshot>,
}

/// A controller's way to a [`Disk`].
pub struct MemoryMedium {
    disk: Disk,
    info: Info,
    life: u64,
    pending: VecDeque<Pending>,
}

impl Medium for MemoryMedium {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&mut self, now_ns: u64, request: Request) -> Result<(), Request> {
        let mut content = self.disk.0.borrow_mut();
        if self.pending.len() >= content.options.depth {
            return Err(request);
        }
        let latency = content.options.latency;
        let mut at_ns = now_ns
            + match request.op {
                Op::Read => latency.read_ns,
                Op::Write { durable: true } => latency.write_ns + latency.flush_ns,
                Op::Write { .. } | Op::WriteZeroes { .. } | Op::Discard => latency.write_ns,
                Op::Flush => latency.flush_ns,
            };
        if latency.jitter_ns > 0 {
            at_ns += content.random() % latency.jitter_ns;
        }
        let covered = if request.op == Op::Flush { content.snapshot() } else { BTreeMap::new() };
        self.pending.push_back(Pending { request, at_ns, covered });
        Ok(())
    }

    fn poll(&mut self, now_ns: u64, done: &mut dyn FnMut(Done)) -> bool {
        let mut any = false;
        // In the order of time, and of submission at the same time.
        while let Some((at, _)) =
            (0..).zip(&self.pending).filter(|(_, one)| one.at_ns <= now_ns).min_by_key(|(_, one)| one.at_ns)
        {
            let mut pending = self.pending.remove(at).expect("within the length");
            let mut content = self.disk.0.borrow_mut();
            let result = if content.life == self.life {
                content.carry_out(&mut pending)
            } else {
                Err(MediumError::Gone)
            };
            drop(content);
            any = true;
            done(Done { token: pending.request.token, buf: pending.request.buf.take(), result });
        }
        any
    }

    fn deadline_ns(&self) -> Option<u64> {
        self.pending.iter().map(|pending| pending.at_ns).min()
    }
}

impl Drop for MemoryMedium {
    /// Whoever dies with writes in flight can't know which were done.
    fn drop(&mut self) {
        let mut content = self.disk.0.borrow_mut();
        if content.life != self.life {
            return;
        }
        for pending in &mut self.pending {
            if pending.request.op != Op::Read && pending.request.op != Op::Flush && content.random() & 1 == 0
            {
                let _ = content.carry_out(pending);
            }
        }
    }
}

impl std::fmt::Debug for MemoryMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MemoryMedium")
            .field("info", &self.info)
            .field("in_flight", &self.pending.len())
            .finish_non_exhaustive()
    }
}

/// A Buf with `data` at its start, rounded up with zeros.
impl From<&[u8]> for Buf {
    fn from(data: &[u8]) -> Self {
        let mut buf = Buf::new(data.len());
        buf[..data.len()].copy_from_slice(data);
        buf
    }
}
