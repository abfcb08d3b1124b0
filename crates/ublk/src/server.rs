//! Requests of a block device, carried out on a disk.

use std::collections::VecDeque;
use std::io;

use etherslot_initiator::{
    Buffer, BufferClass, Disk, DiskError, Done, Op, Reason, Request as DiskRequest, Status,
};

use crate::abi::{Operation, Request, SECTOR_BYTES};

/// The kernel's error numbers, as results of requests.
const EIO: i32 = -libc::EIO;
const EINVAL: i32 = -libc::EINVAL;
const ENOSPC: i32 = -libc::ENOSPC;
const EOPNOTSUPP: i32 = -libc::EOPNOTSUPP;
const EROFS: i32 = -libc::EROFS;
const ETIMEDOUT: i32 = -libc::ETIMEDOUT;

/// Requests under way at once.
const DEPTH: u16 = 128;
/// The most data of a request.
const MOST_BYTES: u32 = 256 << 10;
/// A request that is small has a small buffer.
const SMALL_BYTES: usize = 4096;

/// Where requests come from, and answers go.
pub trait Queue {
    /// A request that came.
    fn next(&mut self) -> Option<Request>;

    /// The data of a Write, from its start.
    ///
    /// # Errors
    /// It can't be had: the request is to be answered by an error.
    fn read_data(&mut self, tag: u16, to: &mut [u8]) -> io::Result<()>;

    /// The data for a Read, from its start.
    ///
    /// # Errors
    /// As for [`Queue::read_data`].
    fn write_data(&mut self, tag: u16, from: &[u8]) -> io::Result<()>;

    /// Ends a request: its bytes, or a negative error number.
    ///
    /// # Errors
    /// The queue is broken.
    fn answer(&mut self, tag: u16, result: i32) -> io::Result<()>;
}

/// What a server has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes, discards and so on.
    pub others: u64,
    /// Requests that were answered by an error.
    pub errors: u64,
    /// Bytes read from the disk.
    pub bytes_read: u64,
    /// Bytes written to the disk.
    pub bytes_written: u64,
}

/// A request that the disk has.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    operation: Operation,
    bytes: u32,
}

/// The server of one device.
#[derive(Debug)]
pub struct Server {
    /// By Tag.
    under_way: Vec<Option<UnderWay>>,
    /// Those that the disk had no room for.
    waiting: VecDeque<DiskRequest>,
    done: Vec<Done>,
    counters: Counters,
}

impl Default for Server {
    fn default() -> Self {
        let depth = usize::from(DEPTH);
        Self {
            under_way: vec![None; depth],
            waiting: VecDeque::with_capacity(depth),
            done: Vec::with_capacity(depth),
            counters: Counters::default(),
        }
    }
}

impl Server {
    /// Requests under way at once, and the most data of one: what a device is to be added with.
    pub const LIMITS: (u16, u32) = (DEPTH, MOST_BYTES);

    /// The buffers that the disk has to have, for nobody else: one for each request.
    pub fn buffers() -> Vec<BufferClass> {
        let class = |bytes| BufferClass { bytes, count: DEPTH.into() };
        vec![class(SMALL_BYTES), class(MOST_BYTES as usize)]
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.under_way.iter().all(Option::is_none)
    }

    /// Takes requests, and answers those that the disk has ended. True if something was done.
    ///
    /// # Errors
    /// The queue is broken.
    pub fn poll(&mut self, queue: &mut dyn Queue, disk: &mut dyn Disk) -> io::Result<bool> {
        let mut progress = false;
        disk.poll(&mut |done| self.done.push(done));
        let mut all = std::mem::take(&mut self.done);
        for done in all.drain(..) {
            progress = true;
            self.ended(queue, disk, done)?;
        }
        self.done = all;
        while let Some(request) = self.waiting.pop_front() {
            if !self.submit(queue, disk, request)? {
                break;
            }
            progress = true;
        }
        while let Some(request) = queue.next() {
            progress = true;
            self.take(queue, disk, request)?;
        }
        Ok(progress)
    }

    fn take(&mut self, queue: &mut dyn Queue, disk: &mut dyn Disk, request: Request) -> io::Result<()> {
        let Request { tag, operation, first_sector, sectors } = request;
        let counter = match operation {
            Operation::Read => &mut self.counters.reads,
            Operation::Write { .. } => &mut self.counters.writes,
            _ => &mut self.counters.others,
        };
        *counter += 1;
        let op = match operation {
            Operation::Read => Op::Read,
            Operation::Write { durable } => Op::Write { durable },
            Operation::Flush => Op::Flush,
            Operation::Discard => Op::Discard,
            Operation::WriteZeroes { unmap } => Op::WriteZeroes { unmap },
            Operation::Unknown(_) => return self.refuse(queue, tag, EOPNOTSUPP),
        };
        let Some(slot) = self.under_way.get(usize::from(tag)) else { return self.refuse(queue, tag, EINVAL) };
        if slot.is_some() {
            // The kernel gives a Tag once until it is answered.
            return self.refuse(queue, tag, EINVAL);
        }
        let block_sectors = u64::from(disk.info().block_bytes) / SECTOR_BYTES;
        let (first, count) = if op == Op::Flush { (0, 0) } else { (first_sector, u64::from(sectors)) };
        if !first.is_multiple_of(block_sectors) || !count.is_multiple_of(block_sectors) {
            return self.refuse(queue, tag, EINVAL);
        }
        let bytes = count * SECTOR_BYTES;
        let has_data = matches!(op, Op::Read | Op::Write { .. });
        if has_data && bytes > u64::from(MOST_BYTES) {
            return self.refuse(queue, tag, EINVAL);
        }
        let mut buffer = None;
        if has_data {
            // As many as there are requests.
            let Some(taken) = disk.take_buffer(bytes as usize) else { return self.refuse(queue, tag, EIO) };
            if matches!(op, Op::Write { .. })
                && queue.read_data(tag, &mut disk.data_mut(&taken)[..bytes as usize]).is_err()
            {
                disk.give_back(taken);
                return self.refuse(queue, tag, EIO);
            }
            buffer = Some(taken);
        }
        self.under_way[usize::from(tag)] =
            Some(UnderWay { operation, bytes: if has_data { bytes as u32 } else { 0 } });
        let request = DiskRequest {
            token: tag.into(),
            op,
            first_block: first / block_sectors,
            blocks: (count / block_sectors) as u32,
            buffer,
        };
        if self.waiting.is_empty() {
            self.submit(queue, disk, request).map(drop)
        } else {
            self.waiting.push_back(request);
            Ok(())
        }
    }

    /// Gives the disk a request; false if it has no room, and it waits.
    fn submit(
        &mut self,
        queue: &mut dyn Queue,
        disk: &mut dyn Disk,
        request: DiskRequest,
    ) -> io::Result<bool> {
        let Err(refused) = disk.submit(request) else { return Ok(true) };
        if refused.reason == Reason::Full {
            self.waiting.push_front(refused.request);
            return Ok(false);
        }
        let error = match refused.reason {
            Reason::ReadOnly => EROFS,
            Reason::Unsupported => EOPNOTSUPP,
            Reason::Range => EINVAL,
            Reason::Buffer | Reason::Full => EIO,
        };
        let tag = refused.request.token as u16;
        give_back(disk, refused.request.buffer);
        self.under_way[usize::from(tag)] = None;
        self.refuse(queue, tag, error)?;
        Ok(true)
    }

    fn refuse(&mut self, queue: &mut dyn Queue, tag: u16, error: i32) -> io::Result<()> {
        self.counters.errors += 1;
        queue.answer(tag, error)
    }

    fn ended(&mut self, queue: &mut dyn Queue, disk: &mut dyn Disk, done: Done) -> io::Result<()> {
        let Done { token, buffer, result } = done;
        let found =
            usize::try_from(token).ok().and_then(|tag| self.under_way.get_mut(tag)).and_then(Option::take);
        // A user of the disk beside us has tokens of its own.
        let Some(UnderWay { operation, bytes }) = found else {
            give_back(disk, buffer);
            return Ok(());
        };
        let tag = token as u16;
        let mut answer = match result {
            Ok(()) => bytes.cast_signed(),
            Err(error) => error_of(error),
        };
        if answer >= 0 && operation == Operation::Read {
            let written =
                buffer.as_ref().map(|buffer| queue.write_data(tag, &disk.data(buffer)[..bytes as usize]));
            if !matches!(written, Some(Ok(()))) {
                answer = EIO;
            }
        }
        give_back(disk, buffer);
        match operation {
            _ if answer < 0 => self.counters.errors += 1,
            Operation::Read => self.counters.bytes_read += u64::from(bytes),
            Operation::Write { .. } => self.counters.bytes_written += u64::from(bytes),
            _ => {}
        }
        queue.answer(tag, answer)
    }
}

fn give_back(disk: &mut dyn Disk, buffer: Option<Buffer>) {
    if let Some(buffer) = buffer {
        disk.give_back(buffer);
    }
}

/// Statuses of NVMe Base 1.4, 4.6.1, by Status Code Type and Status Code.
fn error_of(error: DiskError) -> i32 {
    let is = |code_type, code| error == DiskError::Status(Status::new(code_type, code));
    if is(0, 0x81) {
        // Capacity Exceeded.
        ENOSPC
    } else if is(0, 0x20) || is(1, 0x82) {
        // Namespace is Write Protected, Attempted Write to Read Only Range.
        EROFS
    } else if error == DiskError::TimedOut {
        ETIMEDOUT
    } else {
        EIO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherslot_initiator::MemoryDisk;

    /// A kernel that has these requests, with the data of writes at their Tags.
    #[derive(Default)]
    struct Kernel {
        requests: VecDeque<Request>,
        data: Vec<Vec<u8>>,
        answers: Vec<(u16, i32)>,
        is_deaf: bool,
    }

    impl Queue for Kernel {
        fn next(&mut self) -> Option<Request> {
            self.requests.pop_front()
        }

        fn read_data(&mut self, tag: u16, to: &mut [u8]) -> io::Result<()> {
            to.copy_from_slice(&self.data[usize::from(tag)][..to.len()]);
            Ok(())
        }

        fn write_data(&mut self, tag: u16, from: &[u8]) -> io::Result<()> {
            if self.is_deaf {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            self.data[usize::from(tag)] = from.to_vec();
            Ok(())
        }

        fn answer(&mut self, tag: u16, result: i32) -> io::Result<()> {
            self.answers.push((tag, result));
            Ok(())
        }
    }

    impl Kernel {
        fn ask(&mut self, tag: u16, operation: Operation, first_sector: u64, sectors: u32) {
            self.requests.push_back(Request { tag, operation, first_sector, sectors });
            self.data.resize(self.data.len().max(usize::from(tag) + 1), Vec::new());
        }
    }

    fn disk(block_bytes: u32, depth: usize) -> MemoryDisk {
        MemoryDisk::new(block_bytes, (1 << 20) / u64::from(block_bytes), depth, &Server::buffers())
    }

    fn until_idle(server: &mut Server, kernel: &mut Kernel, disk: &mut MemoryDisk) {
        for _ in 0..1000 {
            server.poll(kernel, disk).unwrap();
            if server.is_idle() && kernel.requests.is_empty() {
                return;
            }
        }
        panic!("requests do not end");
    }

    #[test]
    fn what_is_written_is_read_and_every_request_has_one_answer() {
        let (mut server, mut kernel, mut disk) = (Server::default(), Kernel::default(), disk(4096, 32));
        kernel.ask(0, Operation::Write { durable: true }, 8, 16);
        kernel.data[0] = (0..8192_u32).map(|byte| (byte % 251) as u8).collect();
        until_idle(&mut server, &mut kernel, &mut disk);
        assert_eq!((kernel.answers.as_slice(), disk.flushes()), (&[(0, 8192)][..], 1));
        assert!(disk.content()[4096..12288] == kernel.data[0][..]);
        kernel.ask(1, Operation::Read, 8, 16);
        kernel.ask(2, Operation::Flush, 0, 0);
        kernel.ask(3, Operation::WriteZeroes { unmap: false }, 2000, 8);
        kernel.ask(4, Operation::Discard, 2008, 8);
        until_idle(&mut server, &mut kernel, &mut disk);
        kernel.answers.sort_unstable();
        assert_eq!(kernel.answers, [(0, 8192), (1, 8192), (2, 0), (3, 0), (4, 0)]);
        assert!(kernel.data[1] == kernel.data[0]);
        let expected =
            Counters { reads: 1, writes: 1, others: 3, errors: 0, bytes_read: 8192, bytes_written: 8192 };
        assert_eq!(*server.counters(), expected);
    }

    #[test]
    fn more_requests_than_the_disk_takes_wait_and_all_are_answered() {
        let (mut server, mut kernel, mut disk) = (Server::default(), Kernel::default(), disk(512, 4));
        for tag in 0..DEPTH {
            kernel.ask(
                tag,
                Operation::Read,
                u64::from(tag),
                MOST_BYTES / 512 * u32::from(tag % 2) + 1 - u32::from(tag % 2),
            );
        }
        until_idle(&mut server, &mut kernel, &mut disk);
        let tags: std::collections::BTreeSet<u16> = kernel.answers.iter().map(|answer| answer.0).collect();
        assert_eq!((kernel.answers.len(), tags.len()), (128, 128));
        assert!(kernel.answers.iter().all(|answer| answer.1 > 0));
        // All buffers are back.
        let taken = std::iter::from_fn(|| disk.take_buffer(1)).count();
        assert_eq!(taken, 2 * usize::from(DEPTH));
    }

    #[test]
    fn what_cannot_be_done_is_refused_and_harms_nothing() {
        let (mut server, mut kernel, mut disk) = (Server::default(), Kernel::default(), disk(4096, 32));
        kernel.ask(0, Operation::Unknown(9), 0, 8);
        kernel.ask(1, Operation::Read, 1, 8);
        kernel.ask(2, Operation::Read, 0, 7);
        kernel.ask(3, Operation::Read, !7, 8);
        kernel.ask(4, Operation::Read, 0, !7);
        kernel.ask(DEPTH, Operation::Read, 0, 8);
        kernel.ask(5, Operation::Read, 0, 0);
        until_idle(&mut server, &mut kernel, &mut disk);
        kernel.answers.sort_unstable();
        let expected = [
            (0, EOPNOTSUPP),
            (1, EINVAL),
            (2, EINVAL),
            (3, EINVAL),
            (4, EINVAL),
            (5, EINVAL),
            (DEPTH, EINVAL),
        ];
        assert_eq!(kernel.answers, expected);
        kernel.answers.clear();

        disk.fail_next(DiskError::TimedOut);
        kernel.ask(6, Operation::Read, 0, 8);
        until_idle(&mut server, &mut kernel, &mut disk);
        kernel.is_deaf = true;
        kernel.ask(7, Operation::Read, 0, 8);
        until_idle(&mut server, &mut kernel, &mut disk);
        assert_eq!(kernel.answers, [(6, ETIMEDOUT), (7, EIO)]);
        disk.info_mut().read_only = true;
        kernel.ask(8, Operation::Write { durable: false }, 0, 8);
        kernel.data[8] = vec![1; 4096];
        until_idle(&mut server, &mut kernel, &mut disk);
        assert_eq!(kernel.answers.last(), Some(&(8, EROFS)));
        assert_eq!(server.counters().errors, 10);
    }
}
