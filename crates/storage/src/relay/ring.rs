//! The steps under way, and the ring they go through.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::{IoUring, opcode, squeue, types};

use super::Stage;

/// Tries of a step that was interrupted, or for which the kernel was short of something.
const TRIES: u8 = 32;

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the file.
    Read,
    /// To the file.
    Write,
    /// Nowhere: what was written becomes durable, and so does the file's size.
    Flush,
}

/// One thing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Comes back when it is done.
    pub token: u64,
    /// What.
    pub way: Way,
    /// The file, by its number.
    pub file: usize,
    /// First byte of the file.
    pub offset: u64,
    /// How many. All three are multiples of what the file takes past the page cache.
    pub bytes: u32,
    /// Of a Read: how many there have to be at least, where the file ends before `bytes`.
    pub least: u32,
    /// Where in the Stage.
    pub at: usize,
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    step: Step,
    done: u32,
    tries: u8,
}

/// Some files and the memory between them.
pub struct Relay {
    ring: IoUring,
    // The ring has references of its own.
    files: Vec<File>,
    /// `None` only if it had to be left to the kernel.
    stage: Option<Stage>,
    /// By the user data of a ring entry.
    slots: Vec<Option<UnderWay>>,
    free: Vec<u16>,
    unsubmitted: bool,
}

impl Relay {
    /// For up to `depth` steps under way, 1 to 4096.
    pub fn new(files: Vec<File>, stage: Stage, depth: u16) -> io::Result<Self> {
        let depth = depth.clamp(1, 4096);
        let ring = IoUring::new(u32::from(depth))?;
        let descriptors: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
        ring.submitter().register_files(&descriptors)?;
        let slots = vec![None; usize::from(depth)];
        Ok(Self {
            ring,
            files,
            stage: Some(stage),
            slots,
            free: (0..depth).rev().collect(),
            unsubmitted: false,
        })
    }

    /// The memory. It is there as long as the Relay is.
    pub fn stage(&self) -> &Stage {
        self.stage.as_ref().expect("only a drop takes it")
    }

    /// The memory, for its seal.
    pub fn stage_mut(&mut self) -> &mut Stage {
        self.stage.as_mut().expect("only a drop takes it")
    }

    /// A file.
    pub fn file(&self, file: usize) -> &File {
        &self.files[file]
    }

    /// Takes a step; false if too many are under way.
    ///
    /// # Panics
    /// If it is beyond the memory, or of no file.
    pub fn submit(&mut self, step: Step) -> bool {
        assert!(step.file < self.files.len(), "a file");
        let room = self.stage().bytes();
        assert!(step.at.checked_add(step.bytes as usize).is_some_and(|end| end <= room), "within the memory");
        let Some(index) = self.free.pop() else { return false };
        self.slots[usize::from(index)] = Some(UnderWay { step, done: 0, tries: 0 });
        self.push(index);
        true
    }

    /// Starts what was submitted; [`Relay::poll`] does, too.
    pub fn start(&mut self) {
        self.tell_kernel();
    }

    /// Starts what was submitted and hands over what is done, in any order: token, and the `errno` of a failure. True if something was.
    pub fn poll(&mut self, done: &mut dyn FnMut(u64, Result<(), i32>)) -> bool {
        self.tell_kernel();
        let mut any = false;
        while let Some((index, result)) = self.next_completion() {
            any = true;
            if let Some((token, result)) = self.completed(index, result) {
                done(token, result);
            }
        }
        self.tell_kernel();
        any
    }

    /// Whether two parts of this process's memory, of `bytes` each, hold the same. False of a device's.
    ///
    /// # Panics
    /// If one is beyond the memory, or in a step under way.
    pub fn is_same(&self, one: usize, other: usize, bytes: usize) -> bool {
        let stage = self.stage();
        let is_busy = |at: usize| {
            let mut busy = self.slots.iter().flatten();
            busy.any(|under_way| {
                let Step { at: start, bytes: length, .. } = under_way.step;
                start < at + bytes && at < start + length as usize
            })
        };
        assert!(one.max(other) + bytes <= stage.bytes() && !is_busy(one) && !is_busy(other));
        if stage.is_of_device() {
            return false;
        }
        // SAFETY: both are within the mapping, and the kernel has neither, as was looked at.
        let part = |at| unsafe { std::slice::from_raw_parts(stage.at(at).cast_const(), bytes) };
        part(one) == part(other)
    }

    /// Readable while something done waits for a poll.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring, and with it its descriptor, lives as long as self is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// The entry for what of a step is left.
    fn push(&mut self, index: u16) {
        let UnderWay { step, done, .. } =
            self.slots[usize::from(index)].expect("only slots in use are pushed");
        let file = types::Fixed(step.file as u32);
        let (offset, left) = (step.offset + u64::from(done), step.bytes - done);
        let data = self.stage().at(step.at + done as usize);
        let entry = match step.way {
            Way::Read => opcode::Read::new(file, data, left).offset(offset).build(),
            Way::Write => opcode::Write::new(file, data, left).offset(offset).build(),
            Way::Flush => opcode::Fsync::new(file).build(),
        };
        self.push_entry(&entry.user_data(u64::from(index)));
    }

    fn push_entry(&mut self, entry: &squeue::Entry) {
        // SAFETY: the memory the entry points to is in `stage`, which outlives it: `drop` waits for all.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.expect("as many entries as slots, and one entry a slot at most");
        self.unsubmitted = true;
    }

    /// What the kernel says of a step. Some if it has ended.
    fn completed(&mut self, index: u16, result: i32) -> Option<(u64, Result<(), i32>)> {
        let slot = self.slots[usize::from(index)].as_mut().expect("only slots in use complete");
        let is_short_of =
            |errno: i32| matches!(errno, libc::EINTR | libc::EAGAIN | libc::ENOMEM | libc::ENOBUFS);
        let verdict = match (result, slot.step.way) {
            (error, _) if error < 0 && is_short_of(-error) && slot.tries < TRIES => {
                slot.tries += 1;
                None
            }
            (error, _) if error < 0 => Some(Err(-error)),
            (_, Way::Flush) => Some(Ok(())),
            (moved, way) => {
                slot.done += moved.unsigned_abs().min(slot.step.bytes - slot.done);
                let least = if way == Way::Read { slot.step.least } else { slot.step.bytes };
                match moved {
                    _ if slot.done >= least => Some(Ok(())),
                    // The file ends earlier than it did.
                    0 => Some(Err(libc::EIO)),
                    _ => None,
                }
            }
        };
        let Some(result) = verdict else {
            self.push(index);
            return None;
        };
        let token = slot.step.token;
        self.slots[usize::from(index)] = None;
        self.free.push(index);
        Some((token, result))
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

impl Drop for Relay {
    /// The kernel has the memory until it says it is done: waits for that.
    fn drop(&mut self) {
        while self.slots.iter().any(Option::is_some) {
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(_) => {
                    // Whether the kernel is done can't be told any more: the memory must stay.
                    std::mem::forget(self.stage.take());
                    return;
                }
            }
            while let Some((index, _)) = self.next_completion() {
                self.slots[usize::from(index)] = None;
            }
        }
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let under_way = self.slots.len() - self.free.len();
        let stage = &self.stage;
        f.debug_struct("Relay").field("stage", stage).field("under_way", &under_way).finish_non_exhaustive()
    }
}
