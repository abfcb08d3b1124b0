//! The two rings of a device, and the descriptors of its requests: the only memory that the kernel has of us, and we of it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::ptr::{self, NonNull};
use std::time::{Duration, Instant};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::abi::{self, DESCRIPTOR_BYTES, INFO_BYTES, PARAMETERS_BYTES};

const PAGE_BYTES: usize = 4096;
/// For a command of the control device, which may wait for others.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(2);

/// What belongs to a control command, longer than the command.
pub(crate) enum Payload {
    Info(Box<[u8; INFO_BYTES]>),
    Parameters(Box<[u8; PARAMETERS_BYTES]>),
    None,
}

impl Payload {
    fn place(&mut self) -> (u64, u16) {
        match self {
            Self::Info(bytes) => (bytes.as_mut_ptr().expose_provenance() as u64, INFO_BYTES as u16),
            Self::Parameters(bytes) => {
                (bytes.as_mut_ptr().expose_provenance() as u64, PARAMETERS_BYTES as u16)
            }
            Self::None => (0, 0),
        }
    }
}

/// `/dev/ublk-control`.
pub(crate) struct Control {
    /// Gone before what the kernel may still write to.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    file: File,
    payload: Payload,
    is_busy: bool,
}

impl Control {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(2)?;
        Ok(Self { ring, file, payload: Payload::None, is_busy: false })
    }

    /// Readable when a command has ended.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns this descriptor for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    /// Gives the kernel a command; one at a time.
    pub(crate) fn start(&mut self, command: u32, device: u32, payload: Payload, data: u64) -> io::Result<()> {
        if self.is_busy {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        self.payload = payload;
        let (address, bytes) = self.payload.place();
        let body = abi::control_command(device, address, bytes, data);
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(body).build();
        // SAFETY: the file is open, and the payload stays where it is, while the ring is there; no other is started before it has ended.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?;
        self.is_busy = true;
        self.ring.submit().map(drop)
    }

    /// How the command ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<io::Result<()>> {
        let result = self.ring.completion().next()?.result();
        self.is_busy = false;
        Some(if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) })
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy
    }

    /// Waits for its end, for a while.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(result) = self.ended() {
                return result;
            }
            if Instant::now() > until {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A command, to its end.
    pub(crate) fn run(&mut self, command: u32, device: u32, payload: Payload, data: u64) -> io::Result<()> {
        self.start(command, device, payload, data)?;
        self.wait()
    }

    /// What the last command came back with.
    pub(crate) fn info(&self) -> Option<&[u8; INFO_BYTES]> {
        match &self.payload {
            Payload::Info(info) if !self.is_busy => Some(info),
            _ => None,
        }
    }
}

/// The kernel's descriptors of requests, by Tag.
struct Descriptors {
    start: NonNull<u8>,
    bytes: usize,
    depth: u16,
}

impl Descriptors {
    fn map(file: &File, depth: u16) -> io::Result<Self> {
        let bytes = (usize::from(depth) * DESCRIPTOR_BYTES).next_multiple_of(PAGE_BYTES);
        // SAFETY: a new mapping at an address of the kernel's choice; nothing else is there.
        let start = unsafe {
            mmap(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ,
                MapFlags::SHARED | MapFlags::POPULATE,
                file.as_fd(),
                0,
            )?
        };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { start, bytes, depth })
    }

    fn read(&self, tag: u16) -> [u8; DESCRIPTOR_BYTES] {
        assert!(tag < self.depth, "Tags are checked when they come");
        let at = usize::from(tag) * DESCRIPTOR_BYTES;
        // SAFETY: within the mapping, as `tag` is below the depth; the kernel writes there, so no reference is made of it.
        unsafe { ptr::read_volatile(self.start.as_ptr().add(at).cast()) }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`, whole; no reference to it is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// `/dev/ublkcN`: the queue of a device.
pub(crate) struct Rings {
    ring: IoUring,
    file: File,
    descriptors: Descriptors,
    depth: u16,
    /// Entries that the kernel has not been told of.
    unsubmitted: bool,
}

impl Rings {
    /// Offers the kernel all Tags.
    pub(crate) fn new(file: File, depth: u16) -> io::Result<Self> {
        let ring = IoUring::new(depth.into())?;
        let descriptors = Descriptors::map(&file, depth)?;
        let mut rings = Self { ring, file, descriptors, depth, unsubmitted: false };
        for tag in 0..depth {
            rings.push(abi::FETCH_REQ, tag, 0)?;
        }
        rings.submit()?;
        Ok(rings)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring owns this descriptor for as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }

    fn push(&mut self, command: u32, tag: u16, result: i32) -> io::Result<()> {
        let body = abi::queue_command(tag, result);
        let file = types::Fd(self.file.as_raw_fd());
        let entry = opcode::UringCmd16::new(file, command).cmd(body).build().user_data(tag.into());
        // SAFETY: the file is open while the ring is there, and the entry points to no memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        self.unsubmitted = true;
        pushed.map_err(|_| io::ErrorKind::ResourceBusy.into())
    }

    /// Answers a request, and offers its Tag anew.
    pub(crate) fn commit(&mut self, tag: u16, result: i32) -> io::Result<()> {
        self.push(abi::COMMIT_AND_FETCH_REQ, tag, result)
    }

    /// Tells the kernel what is new.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        if !self.unsubmitted {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => self.unsubmitted = !self.ring.submission().is_empty(),
            // The next round tries again.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EAGAIN | libc::EINTR)) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A Tag that came back: with a request, or an error if the kernel takes the Tag away.
    pub(crate) fn next(&mut self) -> Option<(u16, Result<abi::Request, i32>)> {
        loop {
            let entry = self.ring.completion().next()?;
            let tag = u16::try_from(entry.user_data()).ok().filter(|tag| *tag < self.depth);
            let Some(tag) = tag else { continue };
            let request = match entry.result() {
                0 => Ok(abi::Request::new(tag, &self.descriptors.read(tag))),
                error => Err(error),
            };
            return Some((tag, request));
        }
    }

    /// Copies the start of a request's data to us.
    pub(crate) fn read_data(&self, tag: u16, to: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < to.len() {
            match rustix::io::pread(&self.file, &mut to[done..], abi::data_offset(tag) + done as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => done += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The same from us to the request.
    pub(crate) fn write_data(&self, tag: u16, from: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < from.len() {
            match rustix::io::pwrite(&self.file, &from[done..], abi::data_offset(tag) + done as u64) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(bytes) => done += bytes,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
