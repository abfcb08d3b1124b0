//! Finding out what a file can do.

use crate::{Buf, Info};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whether to go past the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Direct {
    /// Where the file takes it.
    #[default]
    Auto,
    /// Or fail.
    Always,
    /// Not at all.
    Never,
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Only read.
    pub read_only: bool,
    /// Past the page cache?
    pub direct: Direct,
    /// Granularity of offsets and lengths, bytes: a power of two, 512..=4096.
    pub block_bytes: u32,
    /// Requests in flight at most, 1..=4096.
    pub depth: u16,
    /// If there is no such file, make one of this many bytes (sparse).
    pub create_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Self { read_only: false, direct: Direct::Auto, block_bytes: 512, depth: 256, create_bytes: None }
    }
}

/// Why a file can't be a medium.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The Options contradict themselves.
    #[error("block size must be a power of two from 512 to 4096 and depth from 1 to 4096")]
    Options,
    /// An operation on the file failed.
    #[error("{path}: {action}: {source}{}", remedy(path, source))]
    File {
        /// Which file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// Neither a regular file nor a block device.
    #[error("{0}: neither a regular file nor a block device")]
    Kind(PathBuf),
    /// Smaller than a block.
    #[error("{0}: smaller than one block")]
    Empty(PathBuf),
    /// Somebody else has it.
    #[error("{0}: in use by another process, and one alone may have it: `fuser -v {0}` tells which")]
    Busy(PathBuf),
    /// [`Direct::Always`] can't be had.
    #[error("{0}: no direct I/O in blocks of {1} bytes; choose larger blocks or allow the page cache")]
    NotDirect(PathBuf, u32),
    /// No `io_uring`.
    #[error(
        "io_uring is not available (sysctl kernel.io_uring_disabled, or a container's seccomp profile): {0}"
    )]
    Ring(#[source] io::Error),
}

fn remedy(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("; make it, as by `truncate -s 10G {}`, or correct the path", path.display())
        }
        io::ErrorKind::PermissionDenied => "; chown or chmod it, or read_only = true".to_owned(),
        _ => String::new(),
    }
}

/// A file, and what it can do.
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) info: Info,
    pub(super) direct: bool,
    pub(super) block_device: bool,
}

/// After a crash of the last user the kernel may hold the file a moment longer, until that user's I/O has ended.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

pub(super) fn open(path: &Path, options: &Options) -> Result<Opened, OpenError> {
    let grain_ok = options.block_bytes.is_power_of_two() && (512..=4096).contains(&options.block_bytes);
    if !grain_ok || !(1..=4096).contains(&options.depth) {
        return Err(OpenError::Options);
    }
    let failed = |action| move |source| OpenError::File { path: path.to_owned(), action, source };

    if let (Some(bytes), false) = (options.create_bytes, options.read_only) {
        match OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(new) => make(&new, path, bytes).map_err(failed("set its size"))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("create")(error)),
        }
    }

    let kind = std::fs::metadata(path).map_err(failed("look at"))?.file_type();
    let block_device = kind.is_block_device();
    if !block_device && !kind.is_file() {
        return Err(OpenError::Kind(path.to_owned()));
    }
    // On a block device O_EXCL keeps out mounts and other exclusive users; elsewhere it means nothing without O_CREAT.
    let exclusive = if block_device && !options.read_only { libc::O_EXCL } else { 0 };
    let open_with = |flags| {
        OpenOptions::new().read(true).write(!options.read_only).custom_flags(flags | exclusive).open(path)
    };

    let mut direct = None;
    if options.direct != Direct::Never {
        direct = open_with(libc::O_DIRECT).ok().filter(|file| takes_direct(file, options.block_bytes));
        if direct.is_none() && options.direct == Direct::Always {
            open_with(0).map_err(failed("open"))?;
            return Err(OpenError::NotDirect(path.to_owned(), options.block_bytes));
        }
    }
    let (mut file, is_direct) = match direct {
        Some(file) => (file, true),
        None => (open_with(0).map_err(failed("open"))?, false),
    };
    lock(&file, options.read_only).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => OpenError::Busy(path.to_owned()),
        _ => failed("lock")(error),
    })?;

    let bytes = file.seek(SeekFrom::End(0)).map_err(failed("find the size of"))?;
    let bytes = bytes - bytes % u64::from(options.block_bytes);
    if bytes == 0 {
        return Err(OpenError::Empty(path.to_owned()));
    }
    let info = Info {
        block_bytes: options.block_bytes,
        bytes,
        read_only: options.read_only,
        volatile_cache: true,
        // A device may refuse to discard what a file system never would; then a Discard stays without effect.
        discard_zeroes: !block_device && !options.read_only && punches_holes(&file, bytes),
    };
    Ok(Opened { file, info, direct: is_direct, block_device })
}

/// A new file has to be there after a loss of power, or what is flushed to it is lost with it.
fn make(new: &File, path: &Path, bytes: u64) -> io::Result<()> {
    new.set_len(bytes)?;
    new.sync_all()?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Tries it: what is reported beforehand differs between kernels and file systems.
fn takes_direct(file: &File, block_bytes: u32) -> bool {
    let mut buf = Buf::new(block_bytes as usize);
    let block = &mut buf[..block_bytes as usize];
    // The second block is not aligned to anything larger than a block.
    [0, u64::from(block_bytes)].into_iter().all(|offset| file.read_at(block, offset).is_ok())
}

/// Beyond the end there is nothing to lose, and the answer is the same.
fn punches_holes(file: &File, bytes: u64) -> bool {
    use rustix::fs::{FallocateFlags, fallocate};
    let offset = bytes.next_multiple_of(4096);
    fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, 4096).is_ok()
}

fn lock(file: &File, shared: bool) -> io::Result<()> {
    use rustix::fs::{FlockOperation, flock};
    let operation =
        if shared { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive };
    for _ in 1..LOCK_TRIES {
        match flock(file, operation) {
            Err(rustix::io::Errno::WOULDBLOCK) => std::thread::sleep(LOCK_PAUSE),
            other => return Ok(other?),
        }
    }
    Ok(flock(file, operation)?)
}
