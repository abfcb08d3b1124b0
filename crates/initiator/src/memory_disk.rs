//! A disk without a device, for the tests of those who use disks.

use std::collections::VecDeque;

use crate::disk::{Disk, DiskError, DiskInfo, Done, Op, Reason, Refused, Request};
use crate::pool::{Buffer, BufferClass, Pool};

/// A [`Disk`] in memory. A request takes effect when it is submitted, and is done with the next poll, or when
/// [`MemoryDisk::hold`] is taken off.
#[derive(Debug)]
pub struct MemoryDisk {
    info: DiskInfo,
    content: Vec<u8>,
    memory: Vec<u8>,
    pool: Pool,
    waiting: VecDeque<Done>,
    held: bool,
    fail_next: Option<DiskError>,
    flushes: u64,
}

impl MemoryDisk {
    /// A disk full of zeros, with these buffers.
    pub fn new(block_bytes: u32, blocks: u64, queue_depth: usize, buffers: &[BufferClass]) -> Self {
        let pool = Pool::new(0, buffers);
        let info = DiskInfo {
            block_bytes,
            blocks,
            max_transfer_bytes: pool.largest() as u32 / block_bytes * block_bytes,
            max_zero_blocks: 1 << 16,
            max_discard_blocks: u32::MAX,
            queue_depth,
            read_only: false,
            volatile_cache: true,
            can_discard: true,
            can_write_zeroes: true,
            can_compare: true,
            discard_zeroes: true,
            serial: "MEMORY".to_owned(),
            model: "Memory disk".to_owned(),
            firmware: "1".to_owned(),
        };
        Self {
            content: vec![0; info.bytes() as usize],
            memory: vec![0; pool.end()],
            info,
            pool,
            waiting: VecDeque::new(),
            held: false,
            fail_next: None,
            flushes: 0,
        }
    }

    /// What it says of itself, to be changed before it is used. Size of blocks and capacity are fixed.
    pub fn info_mut(&mut self) -> &mut DiskInfo {
        &mut self.info
    }

    /// What is on it.
    pub fn content(&self) -> &[u8] {
        &self.content
    }

    /// While held, nothing that was submitted ends.
    pub fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// The next request ends with this and has no effect.
    pub fn fail_next(&mut self, error: DiskError) {
        self.fail_next = Some(error);
    }

    /// Flushes and durable writes so far.
    pub fn flushes(&self) -> u64 {
        self.flushes
    }

    fn carry_out(&mut self, request: &Request) -> Result<(), DiskError> {
        if let Some(error) = self.fail_next.take() {
            return Err(error);
        }
        let start = request.first_block as usize * self.info.block_bytes as usize;
        let bytes = request.blocks as usize * self.info.block_bytes as usize;
        match (request.op, &request.buffer) {
            (Op::Read, Some(buffer)) => {
                self.memory[buffer.offset..buffer.offset + bytes]
                    .copy_from_slice(&self.content[start..start + bytes]);
            }
            (Op::Write { durable }, Some(buffer)) => {
                self.content[start..start + bytes]
                    .copy_from_slice(&self.memory[buffer.offset..buffer.offset + bytes]);
                self.flushes += u64::from(durable);
            }
            (Op::Compare, Some(buffer)) => {
                let is_same =
                    self.memory[buffer.offset..buffer.offset + bytes] == self.content[start..start + bytes];
                return if is_same { Ok(()) } else { Err(DiskError::Status(crate::Status::COMPARE_FAILURE)) };
            }
            (Op::Flush, _) => self.flushes += 1,
            _ => self.content[start..start + bytes].fill(0),
        }
        Ok(())
    }
}

impl Disk for MemoryDisk {
    fn info(&self) -> &DiskInfo {
        &self.info
    }

    fn take_buffer(&mut self, bytes: usize) -> Option<Buffer> {
        self.pool.take(bytes)
    }

    fn give_back(&mut self, buffer: Buffer) {
        self.pool.give_back(buffer);
    }

    fn data(&self, buffer: &Buffer) -> &[u8] {
        &self.memory[buffer.offset..buffer.offset + buffer.bytes()]
    }

    fn data_mut(&mut self, buffer: &Buffer) -> &mut [u8] {
        &mut self.memory[buffer.offset..buffer.offset + buffer.bytes()]
    }

    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        if let Err(reason) = request.check(&self.info) {
            return Err(Refused { request, reason });
        }
        if self.waiting.len() >= self.info.queue_depth {
            return Err(Refused { request, reason: Reason::Full });
        }
        let result = self.carry_out(&request);
        self.waiting.push_back(Done { token: request.token, buffer: request.buffer, result });
        Ok(())
    }

    fn poll(&mut self, done: &mut dyn FnMut(Done)) -> usize {
        if self.held {
            return 0;
        }
        let count = self.waiting.len();
        self.waiting.drain(..).for_each(done);
        count
    }

    fn in_flight(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> MemoryDisk {
        MemoryDisk::new(512, 64, 2, &[BufferClass { bytes: 4096, count: 4 }])
    }

    fn request(disk: &mut MemoryDisk, op: Op, first_block: u64, blocks: u32, fill: u8) -> Request {
        let buffer = disk.take_buffer(4096).unwrap();
        disk.data_mut(&buffer).fill(fill);
        Request { token: 7, op, first_block, blocks, buffer: Some(buffer) }
    }

    #[test]
    fn what_was_written_is_read_and_buffers_come_back() {
        let mut disk = disk();
        let write = request(&mut disk, Op::Write { durable: true }, 8, 2, 0xA5);
        disk.submit(write).unwrap();
        let read = request(&mut disk, Op::Read, 7, 4, 0);
        disk.submit(read).unwrap();
        assert_eq!(disk.in_flight(), 2);
        let mut done = Vec::new();
        assert_eq!(disk.poll(&mut |one| done.push(one)), 2);
        let Done { token: 7, buffer: Some(buffer), result: Ok(()) } = done.pop().unwrap() else { panic!() };
        let data = disk.data(&buffer);
        assert!(
            data[..512].iter().all(|&byte| byte == 0) && data[512..1536].iter().all(|&byte| byte == 0xA5)
        );
        assert_eq!(disk.flushes(), 1);
    }

    #[test]
    fn what_does_not_fit_is_given_back_with_the_reason() {
        let mut disk = disk();
        for (op, first_block, blocks, reason) in [
            (Op::Read, 64, 1, Reason::Range),
            (Op::Read, u64::MAX, 1, Reason::Range),
            (Op::Read, 0, 0, Reason::Range),
            (Op::Write { durable: false }, 0, 9, Reason::Range),
        ] {
            let request = request(&mut disk, op, first_block, blocks, 0);
            let refused = disk.submit(request).unwrap_err();
            assert_eq!(refused.reason, reason);
            disk.give_back(refused.request.buffer.unwrap());
        }
        let bare = Request { token: 1, op: Op::Read, first_block: 0, blocks: 1, buffer: None };
        assert_eq!(disk.submit(bare).unwrap_err().reason, Reason::Buffer);
        disk.info_mut().read_only = true;
        let write = request(&mut disk, Op::Write { durable: false }, 0, 1, 0);
        assert_eq!(disk.submit(write).unwrap_err().reason, Reason::ReadOnly);
    }

    #[test]
    fn no_more_than_the_depth_are_under_way_and_a_failure_is_told_once() {
        let mut disk = disk();
        disk.hold(true);
        disk.fail_next(DiskError::Lost);
        for _ in 0..2 {
            let read = request(&mut disk, Op::Read, 0, 1, 0);
            disk.submit(read).unwrap();
        }
        let third = request(&mut disk, Op::Read, 0, 1, 0);
        assert_eq!(disk.submit(third).unwrap_err().reason, Reason::Full);
        assert_eq!(disk.poll(&mut |_| panic!("held")), 0);
        disk.hold(false);
        let mut results = Vec::new();
        disk.poll(&mut |done| results.push(done.result));
        assert_eq!(results, [Err(DiskError::Lost), Ok(())]);
    }
}
