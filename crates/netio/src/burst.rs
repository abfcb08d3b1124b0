//! Bursts to and from the kernel: `sendmmsg` and `recvmmsg` over arrays made once.
//!
//! The arrays are owned here; the pointers in them are written anew before each call and used by nothing but that
//! call, so no pointer outlives what it points to.

use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use crate::BURST_FRAMES;

/// Bytes of one UDP datagram that the kernel is asked to segment: below 65,535 with the longest headers.
pub(crate) const SUPER_FRAME_BYTES: usize = 65_000;

/// Room for the control message that carries a segment size, aligned as the kernel wants it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_BYTES]);

/// `CMSG_SPACE(sizeof(int))`, the larger of the two uses (`UDP_GRO` gives an int, `UDP_SEGMENT` takes a u16).
const CONTROL_BYTES: usize = 24;

/// Zeroed headers.
fn headers(count: usize) -> Box<[libc::mmsghdr]> {
    // SAFETY: all zeroes are a valid `mmsghdr`: null pointers with lengths of 0.
    (0..count).map(|_| unsafe { MaybeUninit::zeroed().assume_init() }).collect()
}

fn vectors(count: usize) -> Box<[libc::iovec]> {
    (0..count).map(|_| libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }).collect()
}

/// How frames become messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// A message each.
    Single,
    /// Consecutive frames of one size (the last may be shorter) share a message that the kernel segments.
    Segmented,
}

/// A burst on its way out.
pub(crate) struct SendBurst {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    /// Frames in each message.
    frames: [usize; BURST_FRAMES],
}

// SAFETY: what the headers point to is set anew in each call that uses it: the burst's own memory, and the caller's frames.
unsafe impl Send for SendBurst {}

impl SendBurst {
    pub(crate) fn new() -> Self {
        Self {
            headers: headers(BURST_FRAMES),
            vectors: vectors(BURST_FRAMES),
            controls: vec![Control([0; CONTROL_BYTES]); BURST_FRAMES].into_boxed_slice(),
            frames: [0; BURST_FRAMES],
        }
    }

    /// Sends up to [`BURST_FRAMES`] frames from the front of `frames` to the socket address `to`, which must be one of
    /// libc's `sockaddr_*` types. Returns how many frames went, or the error of the first message.
    pub(crate) fn send<T>(
        &mut self,
        fd: BorrowedFd<'_>,
        to: &T,
        frames: &[&[u8]],
        packing: Packing,
    ) -> io::Result<usize> {
        let frames = &frames[..frames.len().min(BURST_FRAMES)];
        for (vector, frame) in self.vectors.iter_mut().zip(frames) {
            // The kernel only reads through this pointer.
            *vector = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        }
        let (mut start, mut count) = (0, 0);
        while start < frames.len() {
            let run = match packing {
                Packing::Single => 1,
                Packing::Segmented => run_len(&frames[start..]),
            };
            let message = &mut self.headers[count].msg_hdr;
            message.msg_name = ptr::from_ref(to).cast_mut().cast();
            message.msg_namelen = mem::size_of::<T>() as libc::socklen_t;
            message.msg_iov = &raw mut self.vectors[start];
            message.msg_iovlen = run;
            if run == 1 {
                message.msg_control = ptr::null_mut();
                message.msg_controllen = 0;
            } else {
                let bytes = segment_size(&mut self.controls[count], frames[start].len() as u16);
                message.msg_control = (&raw mut self.controls[count]).cast();
                message.msg_controllen = bytes;
            }
            self.frames[count] = run;
            count += 1;
            start += run;
        }
        // SAFETY: the first `count` headers point to `to`, to vectors of caller's slices and to controls of our own, all
        // alive through the call; a run never reaches past the vectors that were written.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                count as libc::c_uint,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        match usize::try_from(sent) {
            Ok(messages) => Ok(self.frames[..messages.min(count)].iter().sum()),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }
}

/// How many frames, from the front, one segmented message can carry: those of the first one's size and one shorter.
fn run_len(frames: &[&[u8]]) -> usize {
    let Some(size) = frames.first().map(|frame| frame.len()).filter(|&size| size > 0) else {
        return frames.len().min(1);
    };
    let most = (SUPER_FRAME_BYTES / size).clamp(1, BURST_FRAMES);
    let equal = frames.iter().take(most).take_while(|frame| frame.len() == size).count();
    let tail = equal < most && frames.get(equal).is_some_and(|frame| (1..size).contains(&frame.len()));
    equal + usize::from(tail)
}

/// Writes the control message that asks for segments of `bytes`; returns its length.
fn segment_size(control: &mut Control, bytes: u16) -> usize {
    // SAFETY: CMSG_SPACE only computes.
    let space = unsafe { libc::CMSG_SPACE(mem::size_of::<u16>() as u32) } as usize;
    // SAFETY: CMSG_LEN only computes.
    let len = unsafe { libc::CMSG_LEN(mem::size_of::<u16>() as u32) };
    // SAFETY: all zeroes are a valid `cmsghdr`.
    let mut header: libc::cmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.cmsg_level = libc::SOL_UDP;
    header.cmsg_type = libc::UDP_SEGMENT;
    header.cmsg_len = len as usize;
    let at = (&raw mut *control).cast::<libc::cmsghdr>();
    debug_assert!(space <= CONTROL_BYTES, "one control message fits");
    // SAFETY: `Control` is aligned for a `cmsghdr` and holds CMSG_SPACE(int), so header and data are inside it.
    unsafe {
        at.write(header);
        libc::CMSG_DATA(at).cast::<u16>().write_unaligned(bytes);
    }
    space
}

/// A message that arrived.
pub(crate) struct Arrived<'a, T> {
    /// Who sent it; as much as the kernel wrote of it, the rest zero.
    pub(crate) from: &'a T,
    /// Its bytes.
    pub(crate) bytes: &'a [u8],
    /// Whether more had arrived than fits the buffer.
    pub(crate) truncated: bool,
    /// The size of its segments, if the kernel joined several.
    pub(crate) segment_bytes: Option<usize>,
}

/// Buffers for a burst on its way in. `T` is the socket address type of the socket.
pub(crate) struct ReceiveBurst<T> {
    headers: Box<[libc::mmsghdr]>,
    vectors: Box<[libc::iovec]>,
    controls: Box<[Control]>,
    names: Box<[T]>,
    bytes: Box<[u8]>,
    message_bytes: usize,
}

// SAFETY: the headers point to memory that the burst owns and nobody else uses.
unsafe impl<T: Send> Send for ReceiveBurst<T> {}

impl<T: Copy> ReceiveBurst<T> {
    /// Buffers for `messages` messages of up to `message_bytes` each. `name` is an all-zero address.
    pub(crate) fn new(messages: usize, message_bytes: usize, name: T) -> Self {
        // Written to now, lest the first frames wait for page faults: a zeroed vector would be mapped only on first use.
        let mut bytes = vec![0xFF_u8; messages * message_bytes].into_boxed_slice();
        bytes.fill(0);
        Self {
            headers: headers(messages),
            vectors: vectors(messages),
            controls: vec![Control([0; CONTROL_BYTES]); messages].into_boxed_slice(),
            names: vec![name; messages].into_boxed_slice(),
            bytes,
            message_bytes,
        }
    }

    /// Takes what has arrived, up to the number of messages there are buffers for; never waits.
    pub(crate) fn receive(&mut self, fd: BorrowedFd<'_>) -> io::Result<usize> {
        let buffers = self.bytes.chunks_exact_mut(self.message_bytes);
        let parts = self.vectors.iter_mut().zip(buffers).zip(self.names.iter_mut().zip(&mut self.controls));
        for (header, ((vector, buffer), (name, control))) in self.headers.iter_mut().zip(parts) {
            *vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let message = &mut header.msg_hdr;
            message.msg_name = ptr::from_mut(name).cast();
            message.msg_namelen = mem::size_of::<T>() as libc::socklen_t;
            message.msg_iov = ptr::from_mut(vector);
            message.msg_iovlen = 1;
            message.msg_control = ptr::from_mut(control).cast();
            message.msg_controllen = CONTROL_BYTES;
            message.msg_flags = 0;
        }
        // SAFETY: every header points to a name, a vector, a buffer and a control of our own, with their true lengths; none
        // of them is touched by anything else during the call.
        let received = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as libc::c_uint,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        match usize::try_from(received) {
            Ok(messages) => Ok(messages.min(self.headers.len())),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Message `index` of the last `receive`.
    pub(crate) fn message(&self, index: usize) -> Arrived<'_, T> {
        let header = &self.headers[index];
        let start = index * self.message_bytes;
        let len = (header.msg_len as usize).min(self.message_bytes);
        Arrived {
            from: &self.names[index],
            bytes: &self.bytes[start..start + len],
            truncated: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            segment_bytes: joined(&self.controls[index], header.msg_hdr.msg_controllen),
        }
    }
}

/// The segment size that `UDP_GRO` reports, if the `len` bytes of control messages report one.
fn joined(control: &Control, len: usize) -> Option<usize> {
    // SAFETY: CMSG_LEN only computes.
    let whole = unsafe { libc::CMSG_LEN(mem::size_of::<i32>() as u32) } as usize;
    if len < whole {
        return None;
    }
    let at = (&raw const *control).cast::<libc::cmsghdr>();
    // SAFETY: `Control` is aligned for a `cmsghdr` and larger than one; any bits are valid for it.
    let header = unsafe { at.read() };
    if header.cmsg_level != libc::SOL_UDP || header.cmsg_type != libc::UDP_GRO || header.cmsg_len < whole {
        return None;
    }
    // SAFETY: the data follows the header and `Control` holds CMSG_SPACE(int) bytes.
    let bytes = unsafe { libc::CMSG_DATA(at).cast::<i32>().read_unaligned() };
    usize::try_from(bytes).ok().filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(sizes: &[usize]) -> Vec<usize> {
        let bytes = [0; 9216];
        let frames: Vec<&[u8]> = sizes.iter().map(|&size| &bytes[..size]).collect();
        let (mut out, mut start) = (Vec::new(), 0);
        while start < frames.len() {
            let run = run_len(&frames[start..]);
            assert!(run > 0);
            out.push(run);
            start += run;
        }
        out
    }

    #[test]
    fn a_run_is_equal_frames_and_at_most_one_shorter_at_its_end() {
        assert_eq!(runs(&[]), [] as [usize; 0]);
        assert_eq!(runs(&[64]), [1]);
        assert_eq!(runs(&[1500, 1500, 100]), [3]);
        assert_eq!(runs(&[1500, 1500, 100, 100]), [3, 1]);
        assert_eq!(runs(&[100, 1500, 1500]), [1, 2]);
        assert_eq!(runs(&[0, 0, 5]), [1, 1, 1]);
        assert_eq!(runs(&[5, 0]), [1, 1]);
    }

    #[test]
    fn a_run_stays_within_the_kernels_bounds() {
        assert_eq!(runs(&[64; 65]), [64, 1]);
        assert_eq!(runs(&[9216; 8]), [7, 1]);
        assert_eq!(runs(&[1472; 64]), [44, 20]);
    }
}
