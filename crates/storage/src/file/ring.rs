//! The Requests in flight, and the ring they go through.

use super::open::{OpenError, Opened, Options, open};
use crate::{Buf, Done, Info, Medium, MediumError, Op, Request};
use io_uring::{IoUring, opcode, squeue, types};
use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

/// The file's index among the ring's registered files.
const FILE: types::Fixed = types::Fixed(0);

/// Zeros written at once where the file has nothing better.
const ZEROS_BYTES: usize = 128 << 10;

/// Tries of one piece that was interrupted or for which the kernel was short of something, before it counts as failed.
const TRIES: u8 = 32;

/// Bytes of one piece: below what one call to the kernel moves at most.
const PIECE_BYTES: u64 = 1 << 30;

/// How zeros get into a range; each falls back to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeroing {
    /// Give the space back (which also makes it read as zeros).
    Punch,
    /// Keep the space.
    ZeroRange,
    /// Write them.
    Write,
}

/// A Request in the kernel.
struct InFlight {
    request: Request,
    /// Bytes that are done.
    progress: u64,
    /// Bytes of the piece under way.
    piece: u64,
    zeroing: Zeroing,
    tries: u8,
}

/// A file or block device.
pub struct FileMedium {
    ring: IoUring,
    // Kept open for its lock; the ring has a reference of its own.
    _file: File,
    info: Info,
    direct: bool,
    block_device: bool,
    /// Indexed by the user data of a ring entry.
    slots: Vec<Option<InFlight>>,
    free: Vec<u16>,
    /// Ended without the kernel.
    refused: VecDeque<Done>,
    zeros: Buf,
    /// Whether the file has not yet refused these.
    punches: bool,
    zeroes_ranges: bool,
    /// Entries pushed, but not yet told to the kernel.
    unsubmitted: bool,
}

impl FileMedium {
    /// Opens `path`.
    pub fn open(path: &Path, options: &Options) -> Result<Self, OpenError> {
        let Opened { file, info, direct, block_device } = open(path, options)?;
        let depth = options.depth;
        let ring = IoUring::new(u32::from(depth)).map_err(OpenError::Ring)?;
        ring.submitter().register_files(&[file.as_raw_fd()]).map_err(OpenError::Ring)?;
        Ok(Self {
            ring,
            _file: file,
            info,
            direct,
            block_device,
            slots: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            refused: VecDeque::with_capacity(usize::from(depth)),
            zeros: Buf::new(ZEROS_BYTES),
            punches: true,
            zeroes_ranges: true,
            unsubmitted: false,
        })
    }

    /// Whether it goes past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The entry for the next piece of slot `index`.
    fn push(&mut self, index: u16) {
        let slot = self.slots[usize::from(index)].as_mut().expect("only slots in use are pushed");
        let request = &slot.request;
        let offset = request.offset + slot.progress;
        let left = request.bytes - slot.progress;
        slot.piece = left.min(PIECE_BYTES);
        let piece = slot.piece as u32;
        let data = || {
            let buf = request.buf.as_ref().expect("checked at submission");
            // SAFETY: checked at submission: the piece lies within the Buf.
            unsafe { buf.as_ptr().add(request.buf_offset + slot.progress as usize) }
        };
        let fallocate = |mode: i32, bytes: u64| {
            opcode::Fallocate::new(FILE, bytes).offset(offset).mode(mode | libc::FALLOC_FL_KEEP_SIZE).build()
        };
        let entry = match request.op {
            Op::Read => opcode::Read::new(FILE, data(), piece).offset(offset).build(),
            Op::Write { durable } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                opcode::Write::new(FILE, data(), piece).offset(offset).rw_flags(flags).build()
            }
            Op::Flush => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            Op::WriteZeroes { .. } | Op::Discard => match slot.zeroing {
                Zeroing::Punch => fallocate(libc::FALLOC_FL_PUNCH_HOLE, slot.piece),
                Zeroing::ZeroRange => fallocate(libc::FALLOC_FL_ZERO_RANGE, slot.piece),
                Zeroing::Write => {
                    slot.piece = left.min(ZEROS_BYTES as u64);
                    opcode::Write::new(FILE, self.zeros.as_ptr(), slot.piece as u32).offset(offset).build()
                }
            },
        };
        self.push_entry(&entry.user_data(u64::from(index)));
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory the entry points to is in `slots` or `zeros`, which outlive it: a slot is emptied only
        // when the kernel has completed it, and `drop` waits for all.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("as many entries as slots, and one entry a slot at most");
        self.unsubmitted = true;
    }

    /// What the kernel says of the piece of slot `index`. Some if the Request has ended.
    fn completed(&mut self, index: u16, result: i32) -> Option<Done> {
        let slot = self.slots[usize::from(index)].as_mut().expect("only slots in use complete");
        let verdict = match (result, slot.request.op) {
            (error, _) if error < 0 => self.failed(index, -error),
            (_, Op::Flush) => Some(Ok(())),
            (moved, Op::Read | Op::Write { .. }) => slot.advance(moved.unsigned_abs().into()),
            (moved, Op::WriteZeroes { .. } | Op::Discard) => {
                let written = slot.zeroing == Zeroing::Write;
                slot.advance(if written { moved.unsigned_abs().into() } else { slot.piece })
            }
        };
        let Some(result) = verdict else {
            self.push(index);
            return None;
        };
        let slot = self.slots[usize::from(index)].take().expect("in use until now");
        self.free.push(index);
        Some(Done { token: slot.request.token, buf: slot.request.buf, result })
    }

    /// The piece failed with `errno`. None if it is to be tried again, perhaps by other means.
    fn failed(&mut self, index: u16, errno: i32) -> Option<Result<(), MediumError>> {
        let slot = self.slots[usize::from(index)].as_mut().expect("in use");
        if matches!(errno, libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS) && slot.tries < TRIES {
            slot.tries += 1;
            return None;
        }
        let by_fallocate = matches!(slot.request.op, Op::WriteZeroes { .. } | Op::Discard)
            && slot.zeroing != Zeroing::Write
            && matches!(errno, libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL | libc::ENODEV);
        if by_fallocate {
            // A range a device finds misaligned says nothing of the next one.
            let lasting = errno != libc::EINVAL;
            let tried_punching = slot.zeroing == Zeroing::Punch;
            let only_a_hint = slot.request.op == Op::Discard && !self.info.discard_zeroes;
            slot.zeroing =
                if tried_punching && self.zeroes_ranges { Zeroing::ZeroRange } else { Zeroing::Write };
            if lasting && tried_punching {
                self.punches = false;
            } else if lasting {
                self.zeroes_ranges = false;
            }
            return only_a_hint.then_some(Ok(()));
        }
        Some(Err(match errno {
            libc::ENOSPC | libc::EDQUOT | libc::EFBIG => MediumError::NoSpace,
            libc::EROFS | libc::EPERM | libc::EBADF => MediumError::ReadOnly,
            libc::ENODEV | libc::ENXIO | libc::ENOMEDIUM | libc::ESHUTDOWN => MediumError::Gone,
            libc::EOPNOTSUPP => MediumError::Unsupported,
            _ => MediumError::Failed,
        }))
    }

    /// Tells the kernel what is new. If it can't take it now, the next poll tries again.
    fn tell_kernel(&mut self) {
        if self.unsubmitted && self.ring.submit().is_ok() {
            self.unsubmitted = !self.ring.submission().is_empty();
        }
    }

    fn next_completion(&mut self) -> Option<(u16, i32)> {
        let entry = self.ring.completion().next()?;
        Some((entry.user_data() as u16, entry.result()))
    }
}

impl InFlight {
    /// `bytes` more are done. Some if that, or nothing more to come, is the end of it.
    fn advance(&mut self, bytes: u64) -> Option<Result<(), MediumError>> {
        self.progress += bytes.min(self.piece);
        if self.progress == self.request.bytes {
            return Some(Ok(()));
        }
        if bytes == 0 {
            // The file has become shorter than it was.
            return Some(Err(MediumError::Failed));
        }
        self.tries = 0;
        None
    }
}

impl Medium for FileMedium {
    fn info(&self) -> Info {
        self.info
    }

    fn submit(&mut self, _now_ns: u64, request: Request) -> Result<(), Request> {
        if self.free.len() == self.refused.len() {
            return Err(request);
        }
        let verdict = match request.check(&self.info) {
            Ok(()) if request.op != Op::Flush && request.bytes == 0 => Some(Ok(())),
            Ok(()) if request.op == Op::Flush && self.info.read_only => Some(Ok(())),
            Ok(()) if request.op == Op::Discard && !self.punches && !self.info.discard_zeroes => Some(Ok(())),
            Ok(()) => None,
            Err(error) => Some(Err(error)),
        };
        if let Some(result) = verdict {
            self.refused.push_back(Done { token: request.token, buf: request.buf, result });
            return Ok(());
        }
        let zeroing = match request.op {
            Op::WriteZeroes { unmap: true } | Op::Discard if self.punches => Zeroing::Punch,
            _ if self.zeroes_ranges => Zeroing::ZeroRange,
            _ => Zeroing::Write,
        };
        let index = self.free.pop().expect("there is one more than refused ones");
        self.slots[usize::from(index)] = Some(InFlight { request, progress: 0, piece: 0, zeroing, tries: 0 });
        self.push(index);
        Ok(())
    }

    fn poll(&mut self, _now_ns: u64, done: &mut dyn FnMut(Done)) -> bool {
        self.tell_kernel();
        let mut any = false;
        while let Some(refused) = self.refused.pop_front() {
            any = true;
            done(refused);
        }
        while let Some((index, result)) = self.next_completion() {
            any = true;
            if let Some(ended) = self.completed(index, result) {
                done(ended);
            }
        }
        self.tell_kernel();
        any
    }

    /// The ring's own descriptor, which is readable while completions wait in the ring: there is no second event to
    /// keep in step with it.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the ring, and with it its descriptor, lives as long as self is borrowed.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) })
    }

    /// Requests that ended without the kernel wait only for the next poll.
    fn deadline_ns(&self) -> Option<u64> {
        (self.unsubmitted || !self.refused.is_empty()).then_some(0)
    }
}

impl Drop for FileMedium {
    /// The kernel may write to a Buf until it says it is done: waits for that.
    fn drop(&mut self) {
        let in_flight = |slots: &[Option<InFlight>]| slots.iter().any(Option::is_some);
        while in_flight(&self.slots) {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(_) => {
                    // Whether the kernel is done can't be told any more: the memory must stay.
                    std::mem::forget(std::mem::take(&mut self.slots));
                    std::mem::forget(std::mem::replace(&mut self.zeros, Buf::new(1)));
                    return;
                }
            }
            while let Some((index, _)) = self.next_completion() {
                self.slots[usize::from(index)] = None;
            }
        }
    }
}

impl std::fmt::Debug for FileMedium {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let in_flight = self.slots.len() - self.free.len();
        f.debug_struct("FileMedium")
            .field("info", &self.info)
            .field("direct", &self.direct)
            .field("block_device", &self.block_device)
            .field("in_flight", &in_flight)
            .finish_non_exhaustive()
    }
}
