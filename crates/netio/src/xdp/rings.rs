//! The four rings of an `AF_XDP` socket and the memory that their descriptors point into (UMEM).
//!
//! The kernel is the other side of every ring; it is trusted with this memory as with any. Between a descriptor's way in and its
//! way out its chunk is ours alone.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::mapping::Mapping;

/// Bytes of a chunk: what a frame and the room that the kernel wants before it must fit in.
pub(super) const CHUNK_BYTES: usize = 4096;
/// What the kernel keeps free before a frame that it receives (`XDP_PACKET_HEADROOM`).
pub(super) const HEADROOM_BYTES: usize = 256;
/// Chunks that frames arrive in, and as many that they leave in; each ring has as many places.
pub(super) const CHUNKS: u32 = 2048;

/// Sets an option whose value is any plain structure.
pub(super) fn set<T>(fd: BorrowedFd<'_>, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: `value` lives through the call and its size is the one given.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            name,
            std::ptr::from_ref(value).cast(),
            mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Reads an option into a structure of the kernel's, of which it may know only the first part.
///
/// # Safety
/// All zeroes, and whatever the kernel writes, are valid for `T`.
pub(super) unsafe fn get<T>(fd: BorrowedFd<'_>, name: i32) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut bytes = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes, which is what `value` holds.
    let result = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, value.as_mut_ptr().cast(), &raw mut bytes)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    if bytes as usize != mem::size_of::<T>() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: initialised; valid, says the caller.
    Ok(unsafe { value.assume_init() })
}

/// A ring of `T`, which is a chunk's address or a whole descriptor.
pub(super) struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    places: NonNull<T>,
    /// Our own position, and the last known one of the kernel.
    ours: u32,
    theirs: u32,
    _mapping: Mapping,
}

// SAFETY: the pointers point into the map that is moved along.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring that was set up with [`CHUNKS`] places.
    pub(super) fn map(fd: BorrowedFd<'_>, at: u64, offsets: &libc::xdp_ring_offset) -> io::Result<Self> {
        let bytes = offsets.desc as usize + CHUNKS as usize * mem::size_of::<T>();
        let mapping = Mapping::shared(fd, bytes, at)?;
        let within = |offset: u64, size: usize, align: usize| {
            let is_within = (offset as usize).checked_add(size).is_some_and(|end| end <= bytes)
                && offset.is_multiple_of(align as u64);
            is_within.then_some(offset as usize).ok_or(io::ErrorKind::InvalidData)
        };
        let word = |offset| within(offset, mem::size_of::<AtomicU32>(), mem::align_of::<AtomicU32>());
        let offsets = [
            word(offsets.producer)?,
            word(offsets.consumer)?,
            word(offsets.flags)?,
            within(offsets.desc, CHUNKS as usize * mem::size_of::<T>(), mem::align_of::<T>())?,
        ];
        // SAFETY: all within the map, as was checked.
        let [producer, consumer, flags, places] = offsets.map(|offset| unsafe { mapping.base().add(offset) });
        Ok(Self {
            producer: producer.cast(),
            consumer: consumer.cast(),
            flags: flags.cast(),
            places: places.cast(),
            ours: 0,
            theirs: 0,
            _mapping: mapping,
        })
    }

    #[allow(clippy::unused_self)] // The map lives as long.
    fn word(&self, word: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: `map` made sure that it lies in the map, which lives as long as `self`.
        unsafe { word.as_ref() }
    }

    /// Whether the kernel sleeps over this ring until a system call wakes it.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// As its producer: puts one in, unless the ring is full (false). The kernel sees it after [`Ring::submit`].
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.ours.wrapping_sub(self.theirs) >= CHUNKS {
            self.theirs = self.word(self.consumer).load(Ordering::Acquire);
            if self.ours.wrapping_sub(self.theirs) >= CHUNKS {
                return false;
            }
        }
        // SAFETY: the place is one of `CHUNKS`, and the kernel does not look at it before `submit`.
        unsafe { self.places.add((self.ours % CHUNKS) as usize).write(value) };
        self.ours = self.ours.wrapping_add(1);
        true
    }

    /// As its producer: shows the kernel what was put in.
    pub(super) fn submit(&self) {
        self.word(self.producer).store(self.ours, Ordering::Release);
    }

    /// As its producer: how many the kernel has not taken.
    pub(super) fn waiting(&mut self) -> u32 {
        self.theirs = self.word(self.consumer).load(Ordering::Acquire);
        self.ours.wrapping_sub(self.theirs)
    }

    /// As its producer: takes back the last `count`, which the kernel has not looked at, and says which they were.
    pub(super) fn take_back(&mut self, count: u32, mut each: impl FnMut(T)) {
        for _ in 0..count {
            self.ours = self.ours.wrapping_sub(1);
            // SAFETY: the place is one of `CHUNKS` and was written by `push`.
            each(unsafe { self.places.add((self.ours % CHUNKS) as usize).read() });
        }
        self.submit();
    }

    /// As its consumer: the next one, if there is one. The kernel may use its place again after [`Ring::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.ours == self.theirs {
            self.theirs = self.word(self.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: the place is one of `CHUNKS`, and the kernel has written it and left it to us.
        let value = unsafe { self.places.add((self.ours % CHUNKS) as usize).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(value)
    }

    /// As its consumer: gives the places back.
    pub(super) fn release(&self) {
        self.word(self.consumer).store(self.ours, Ordering::Release);
    }
}

/// The memory of all chunks: first those that frames arrive in, then those that they leave in.
pub(super) struct Umem(Mapping);

impl Umem {
    const BYTES: usize = 2 * CHUNKS as usize * CHUNK_BYTES;

    /// Makes it and tells the kernel.
    pub(super) fn register(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let mapping = Mapping::anonymous(Self::BYTES)?;
        let registration = libc::xdp_umem_reg {
            addr: mapping.base().as_ptr() as u64,
            len: Self::BYTES as u64,
            chunk_size: CHUNK_BYTES as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(fd, libc::XDP_UMEM_REG, &registration)?;
        Ok(Self(mapping))
    }

    /// Addresses of the chunks that frames arrive in.
    pub(super) fn incoming() -> impl Iterator<Item = u64> {
        (0..u64::from(CHUNKS)).map(|chunk| chunk * CHUNK_BYTES as u64)
    }

    /// Addresses of the chunks that frames leave in.
    pub(super) fn outgoing() -> impl Iterator<Item = u64> {
        (0..u64::from(CHUNKS)).map(|chunk| (u64::from(CHUNKS) + chunk) * CHUNK_BYTES as u64)
    }

    /// The bytes that a descriptor points to, if they are in the memory. The chunk has to be ours.
    pub(super) fn bytes(&mut self, at: u64, bytes: usize) -> Option<&mut [u8]> {
        let at =
            usize::try_from(at).ok().filter(|at| bytes <= self.0.bytes() && *at <= self.0.bytes() - bytes)?;
        // SAFETY: within the map, checked above; the kernel touches a chunk only while its descriptor is in a ring, and all
        // callers have just taken it out, or not yet put it in. The borrow of `self` keeps other slices away.
        Some(unsafe { std::slice::from_raw_parts_mut(self.0.base().add(at).as_ptr(), bytes) })
    }
}
