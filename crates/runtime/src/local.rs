//! Disks and files of this machine, as its kernel has them, for a program that copies between them: what `etherslot copy` is inside a guest.
//!
//! Data passes memory of this process or, where kernel and devices offer it, peer-to-peer memory of a device ([`PeerMemory`]): then a disk hands it
//! to the other as [`crate::direct`] lets them. The program owns the loop.

mod file;
mod peer_memory;

use std::collections::VecDeque;
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::FileTypeExt as _;
use std::time::Duration;

use etherslot_initiator::{
    Buffer, DiskError, DiskInfo, Disks, Done, Op, Pieces, Reason, Refused, Request, Status,
};
use etherslot_storage::relay::{Relay, Stage, Step, Way};
use rustix::io::Errno;

use crate::clock::Clock;
use crate::direct::Site;
use crate::identity;
use crate::signals::Signals;
use crate::sleeper::Sleeper;

pub use file::{FileError, LocalFile};
pub use peer_memory::{NoPeerMemory, PeerMemory, peer_memories};

/// Flushes under way, beside the steps that have a piece.
const FLUSHES: usize = 64;
/// Between two looks at memory that is away.
const LOOK_NS: u64 = 100_000_000;

/// Files of this machine and the memory between them, with a clock and signals around.
#[derive(Debug)]
pub struct LocalSite {
    files: LocalFiles,
    clock: Clock,
    signals: Signals,
    sleeper: Sleeper,
    now_ns: u64,
}

impl LocalSite {
    /// For `files`, with so many pieces in `memory`, or in that of this process. Of a device's there may be fewer.
    ///
    /// # Errors
    /// There is no `io_uring`, or not that much memory.
    pub fn open(files: Vec<LocalFile>, memory: Option<&PeerMemory>, pieces: Pieces) -> io::Result<Self> {
        let (signals, sleeper) = (Signals::install()?, Sleeper::new(Some(Duration::ZERO))?);
        sleeper.watch(signals.fd())?;
        let files = LocalFiles::new(files, memory, pieces)?;
        sleeper.watch(files.relay.fd())?;
        Ok(Self { files, clock: Clock::start(), signals, sleeper, now_ns: 1 })
    }

    /// Why the kernel does not let a file reach the memory of the device, if it has said so: nothing can be copied by it.
    pub fn refusal(&self) -> Option<io::Error> {
        self.files.refusal.map(io::Error::from)
    }
}

impl Site for LocalSite {
    type Disks = LocalFiles;

    fn disks(&mut self) -> &mut LocalFiles {
        &mut self.files
    }

    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn should_stop(&self) -> bool {
        self.signals.stop()
    }

    fn receive(&mut self) -> bool {
        self.now_ns = self.clock.now_ns();
        self.files.poll(self.now_ns)
    }

    fn transmit(&mut self) -> bool {
        self.files.relay.start();
        false
    }

    fn rest(&mut self, progress: bool, deadline_ns: Option<u64>) -> io::Result<()> {
        let deadline_ns = deadline_ns.into_iter().chain(self.files.look_ns).min();
        self.sleeper.rest(self.now_ns, progress, || deadline_ns, || true)
    }
}

/// A request in the kernel.
#[derive(Debug)]
struct UnderWay {
    disk: usize,
    token: u64,
    op: Op,
    buffer: Option<Buffer>,
    /// Where its data is, and how much of it there is in the file.
    at: usize,
    bytes: usize,
}

/// Files as the disks of a copy.
#[derive(Debug)]
pub struct LocalFiles {
    relay: Relay,
    infos: Vec<DiskInfo>,
    /// Bytes of each file.
    lengths: Vec<u64>,
    pieces: Pieces,
    under_way: Vec<Option<UnderWay>>,
    free: Vec<usize>,
    ended: Vec<(u64, Result<(), i32>)>,
    done: Vec<VecDeque<Done>>,
    seal: u32,
    life: u64,
    /// The device's memory is away, and is looked for at this time.
    look_ns: Option<u64>,
    refusal: Option<Errno>,
}

impl LocalFiles {
    fn new(files: Vec<LocalFile>, memory: Option<&PeerMemory>, pieces: Pieces) -> io::Result<Self> {
        let (stage, pieces) = match memory {
            Some(memory) => memory.stage(pieces)?,
            // Behind each piece another one, to compare it with.
            None => (Stage::here(2 * pieces.bytes * pieces.count)?, pieces),
        };
        let depth = pieces.count + FLUSHES;
        let can_compare = !stage.is_of_device();
        let infos = files.iter().map(|file| file.info(pieces.bytes, can_compare)).collect();
        let lengths = files.iter().map(LocalFile::bytes).collect();
        let done = files.iter().map(|_| VecDeque::new()).collect();
        let files = files.into_iter().map(LocalFile::into_file).collect();
        let mut relay = Relay::new(files, stage, depth as u16)?;
        // Neither what new memory holds nor what one reads of a device that is away.
        let seal = (identity::seed() as u32 | 1) & !2;
        relay.stage_mut().seal(seal);
        Ok(Self {
            relay,
            infos,
            lengths,
            pieces,
            under_way: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            ended: Vec::with_capacity(depth),
            done,
            seal,
            life: 1,
            look_ns: None,
            refusal: None,
        })
    }

    /// Takes what the kernel has done. True if that was something.
    fn poll(&mut self, now_ns: u64) -> bool {
        let mut ended = std::mem::take(&mut self.ended);
        let progress = self.relay.poll(&mut |token, result| ended.push((token, result)));
        // After what was done by that memory, and before anybody believes it.
        if self.look_ns.map_or(!ended.is_empty(), |at_ns| at_ns <= now_ns) {
            self.look_at_memory(now_ns);
        }
        for (token, result) in ended.drain(..) {
            let slot = token as usize;
            let Some(under_way) = self.under_way[slot].take() else { continue };
            self.free.push(slot);
            let UnderWay { disk, token, op, buffer, at, bytes } = under_way;
            let result = match result {
                Err(errno) => Err(self.error_of(disk, op, Errno::from_raw_os_error(errno))),
                Ok(()) if op == Op::Compare => {
                    let piece = at - self.pieces.bytes * self.pieces.count;
                    let is_same = self.relay.is_same(piece, at, bytes);
                    if is_same { Ok(()) } else { Err(DiskError::Status(Status::COMPARE_FAILURE)) }
                }
                Ok(()) => Ok(()),
            };
            self.done[disk].push_back(Done { token, buffer, result });
        }
        self.ended = ended;
        progress
    }

    /// Whether the memory is there, and what was put in it. Where the device has died no seal stays.
    fn look_at_memory(&mut self, now_ns: u64) {
        let stage = self.relay.stage_mut();
        if !stage.is_of_device() || self.look_ns.is_none() && stage.is_sealed(self.seal) {
            return;
        }
        if self.look_ns.is_none() {
            self.life += 1;
        }
        stage.seal(self.seal);
        self.look_ns = (!stage.is_sealed(self.seal)).then_some(now_ns + LOOK_NS);
    }

    /// Whether a disk is a block device that has ended: what Linux does to one whose controller it has given up.
    fn is_gone(&self, disk: usize) -> bool {
        let mut file = self.relay.file(disk);
        let is_device = file.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device());
        is_device && self.lengths[disk] != 0 && file.seek(SeekFrom::End(0)).is_ok_and(|bytes| bytes == 0)
    }

    /// What the kernel says, in the words of disks.
    fn error_of(&mut self, disk: usize, op: Op, errno: Errno) -> DiskError {
        if self.is_gone(disk) {
            return DiskError::Lost;
        }
        // What the kernel says to memory of devices that this file's disk can't reach, or that its file system does not take.
        let refusals = [Errno::REMOTEIO, Errno::FAULT, Errno::INVAL, Errno::OPNOTSUPP];
        let is_there = self.relay.stage().is_of_device() && self.look_ns.is_none();
        if is_there && op != Op::Flush && refusals.contains(&errno) {
            self.refusal.get_or_insert(errno);
            return DiskError::Unusable;
        }
        DiskError::Status(match errno {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Status::new(0, 0x81),
            Errno::ROFS | Errno::PERM | Errno::BADF => Status::new(0, 0x20),
            Errno::AGAIN | Errno::INTR | Errno::NOMEM | Errno::NOBUFS => Status::new(0, 0x22),
            Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::SHUTDOWN => return DiskError::Lost,
            _ if op.is_writing() || op == Op::Flush => Status::new(2, 0x80),
            _ => Status::new(2, 0x81),
        })
    }
}

impl Disks for LocalFiles {
    fn disks(&self) -> usize {
        self.infos.len()
    }

    fn info(&self, disk: usize) -> &DiskInfo {
        &self.infos[disk]
    }

    /// What the kernel has said is written it writes.
    fn losses(&self, _disk: usize) -> u64 {
        0
    }

    fn is_ready(&self) -> bool {
        self.reaches_pieces()
    }

    fn reaches_pieces(&self) -> bool {
        self.look_ns.is_none()
    }

    fn life(&self) -> u64 {
        self.life
    }

    fn pieces(&self) -> usize {
        self.pieces.count
    }

    fn piece_bytes(&self) -> usize {
        self.pieces.bytes
    }

    fn piece(&self, _disk: usize, piece: usize) -> Option<Buffer> {
        (piece < self.pieces.count).then(|| Buffer::of_piece(piece as u32, self.pieces.bytes as u32))
    }

    fn submit(&mut self, disk: usize, request: Request) -> Result<(), Refused> {
        let info = &self.infos[disk];
        if let Err(reason) = request.check(info) {
            return Err(Refused { request, reason });
        }
        let Some(slot) = self.free.pop() else { return Err(Refused { request, reason: Reason::Full }) };
        let block_bytes = u64::from(info.block_bytes);
        let (offset, bytes) = (request.first_block * block_bytes, request.blocks * info.block_bytes);
        let left = self.lengths[disk].saturating_sub(offset).min(u64::from(bytes)) as u32;
        let piece = request.buffer.as_ref().map_or(0, |buffer| buffer.number() as usize);
        let piece_at = piece * self.pieces.bytes;
        let (way, at, bytes) = match request.op {
            Op::Read => (Way::Read, piece_at, bytes),
            Op::Compare => (Way::Read, piece_at + self.pieces.bytes * self.pieces.count, bytes),
            Op::Write { .. } => (Way::Write, piece_at, bytes),
            // Disks of this kind offer nothing else.
            _ => (Way::Flush, 0, 0),
        };
        let token = slot as u64;
        if !self.relay.submit(Step { token, way, file: disk, offset, bytes, least: left, at }) {
            self.free.push(slot);
            return Err(Refused { request, reason: Reason::Full });
        }
        let Request { token, op, buffer, .. } = request;
        self.under_way[slot] = Some(UnderWay { disk, token, op, buffer, at, bytes: left as usize });
        Ok(())
    }

    fn done(&mut self, disk: usize, done: &mut dyn FnMut(Done)) -> usize {
        let count = self.done[disk].len();
        self.done[disk].drain(..).for_each(done);
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_initiator::{Blame, Copy, CopyConfig, CopyError, CopyRange, Phase};
    use std::fs;
    use std::path::Path;

    const BYTES: u64 = (1 << 20) + 1234;

    fn content() -> Vec<u8> {
        (0..BYTES).map(|at| (at.wrapping_mul(0x9E37_79B9) >> 11) as u8).collect()
    }

    /// Source and target in `folder`; the target gets room for so much.
    fn site(folder: &Path, room: u64) -> LocalSite {
        let source = LocalFile::source(&folder.join("source")).unwrap();
        let mut target = LocalFile::target(&folder.join("target")).unwrap();
        target.make_room(room).unwrap();
        LocalSite::open(vec![source, target], None, Pieces { bytes: 64 << 10, count: 4 }).unwrap()
    }

    fn run(site: &mut LocalSite, done: u64, config: CopyConfig) -> Copy {
        let block_bytes = u64::from(site.files.info(0).block_bytes);
        let bytes = BYTES.next_multiple_of(block_bytes);
        let range = CopyRange {
            source: 0,
            source_start: 0,
            target: 1,
            target_start: 0,
            bytes,
            done: done.min(bytes),
        };
        let now_ns = site.now_ns();
        let mut job = Copy::new(site.disks(), &[range], config, now_ns).unwrap();
        while !job.is_over() {
            let mut progress = site.receive();
            progress |= job.poll(site.now_ns(), site.disks());
            progress |= site.transmit();
            site.rest(progress, job.deadline_ns()).unwrap();
        }
        job
    }

    #[test]
    fn a_file_is_copied_and_compared_and_what_differs_is_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("source"), content()).unwrap();
        let target = folder.path().join("target");
        let job = run(&mut site(folder.path(), BYTES), 0, CopyConfig::default());
        assert_eq!(job.phase(0), Phase::Done);
        LocalFile::target(&target).unwrap().cut(BYTES).unwrap();
        assert!(fs::read(&target).unwrap() == content());

        let comparing = CopyConfig { verify: true, ..CopyConfig::default() };
        let job = run(&mut site(folder.path(), 0), u64::MAX / 2, comparing);
        assert_eq!((job.phase(0), job.error(0)), (Phase::Done, None), "nothing is copied, all is compared");

        let mut other = content();
        other[700_000] ^= 1;
        fs::write(&target, other).unwrap();
        let job = run(&mut site(folder.path(), 0), u64::MAX / 2, comparing);
        let Some(CopyError::Disk { blame: Blame::Difference, block, .. }) = job.error(0) else {
            panic!("{:?}", job.error(0))
        };
        assert_eq!(block, 700_000 / 4096);
    }

    #[test]
    fn a_source_that_became_shorter_is_told_with_the_block() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::write(&source, content()).unwrap();
        let mut site = site(folder.path(), BYTES);
        fs::OpenOptions::new().write(true).open(&source).unwrap().set_len(100 << 12).unwrap();
        let job = run(&mut site, 0, CopyConfig { outstanding: Some(4), ..CopyConfig::default() });
        let Some(CopyError::Disk { blame: Blame::Source, block, .. }) = job.error(0) else {
            panic!("{:?}", job.error(0))
        };
        assert_eq!(block, 100);
    }
}
