//! The frames by which two nodes agree on keys before a session (docs/wire.md, section 4.1).
//!
//! ```text
//!  0      version:4 | kind 6:4          12     step
//!  1      flags: SEALED                 13     reserved, 3 bytes
//!  2      body length in bytes (16)     16     body, by step
//!  4      destination epoch (32)        ..     tag, 32 bytes: over all before it
//!  8      source epoch (32)
//! ```

use crate::bytes::{array, put, u16_at, u32_at};
use crate::frame::{Error, VERSION, flag};

/// The kind of these frames, beside those of [`crate::frame::Kind`].
pub const KIND: u8 = 6;
/// Bytes before the body.
pub const HEADER_BYTES: usize = 16;
/// Bytes of the tag behind the body.
pub const TAG_BYTES: usize = 32;
/// Bytes of a cookie.
pub const COOKIE_BYTES: usize = 32;
/// The longest frame of this kind.
pub const MAX_BYTES: usize = HEADER_BYTES + 112 + TAG_BYTES;

/// Where the two are on the way to their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Active side: asks for a cookie. Body: 32 bytes, reserved, so that the answer is no longer than the question.
    Knock = 1,
    /// Passive side: a cookie, [`COOKIE_BYTES`].
    Cookie = 2,
    /// Active side: the cookie, and the first message of the key exchange.
    Open = 3,
    /// Passive side: the second message.
    Answer = 4,
    /// Active side: the third message.
    Finish = 5,
}

/// A frame of a handshake, its tag not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake<'a> {
    /// Its place in the handshake.
    pub step: Step,
    /// Epoch of the receiver; 0 in a [`Step::Knock`].
    pub dst_epoch: u32,
    /// Epoch of the sender, never 0.
    pub src_epoch: u32,
    /// By step.
    pub body: &'a [u8],
}

/// Whether these bytes say that they are a frame of a handshake.
pub fn is_handshake(frame: &[u8]) -> bool {
    frame.first().is_some_and(|first| first & 15 == KIND)
}

impl<'a> Handshake<'a> {
    /// Decodes a frame into what it says, the bytes that the tag covers, and the tag. What follows is ignored.
    pub fn parse(frame: &'a [u8]) -> Result<(Self, &'a [u8], &'a [u8; TAG_BYTES]), Error> {
        let head: &[u8; HEADER_BYTES] = frame.first_chunk().ok_or(Error::Truncated)?;
        if head[0] >> 4 != VERSION {
            return Err(Error::Version(head[0] >> 4));
        }
        if head[0] & 15 != KIND {
            return Err(Error::Kind(head[0] & 15));
        }
        if head[1] != flag::SEALED {
            return Err(Error::Flags(head[1]));
        }
        let step = match head[12] {
            1 => Step::Knock,
            2 => Step::Cookie,
            3 => Step::Open,
            4 => Step::Answer,
            5 => Step::Finish,
            other => return Err(Error::Kind(other)),
        };
        let end = HEADER_BYTES + u16_at(head, 2).unwrap_or(0) as usize;
        let covered = frame.get(..end).ok_or(Error::Truncated)?;
        let tag = frame.get(end..).and_then(<[u8]>::first_chunk).ok_or(Error::Truncated)?;
        let [dst_epoch, src_epoch] = [4, 8].map(|at| u32_at(head, at).unwrap_or(0));
        Ok((Self { step, dst_epoch, src_epoch, body: &covered[HEADER_BYTES..] }, covered, tag))
    }

    /// Writes everything but the tag to the start of `out`; the bytes written, or `None` if `out` has no room for them and
    /// the tag.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let bytes = HEADER_BYTES + self.body.len();
        out.get(..bytes + TAG_BYTES)?;
        put(out, 0, &[VERSION << 4 | KIND, flag::SEALED])?;
        put(out, 2, &u16::try_from(self.body.len()).ok()?.to_be_bytes())?;
        put(out, 4, &self.dst_epoch.to_be_bytes())?;
        put(out, 8, &self.src_epoch.to_be_bytes())?;
        put(out, 12, &[self.step as u8, 0, 0, 0])?;
        put(out, HEADER_BYTES, self.body)?;
        Some(bytes)
    }

    /// The cookie and what follows it in the body of a [`Step::Open`].
    pub fn cookie(&self) -> Option<([u8; COOKIE_BYTES], &'a [u8])> {
        Some((array(self.body, 0)?, self.body.get(COOKIE_BYTES..)?))
    }
}
