//! The header of every message.

use super::HEADER_BYTES;
use super::bytes::Reader;

const TYPE_MASK: u32 = 0xf;
const TYPE_COMMAND: u32 = 0;
const TYPE_REPLY: u32 = 1;
const NO_REPLY: u32 = 1 << 4;
const ERROR: u32 = 1 << 5;

/// An error number of the operating system, as replies carry it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub u32);

impl Errno {
    /// Input/output error.
    pub const IO: Self = Self(5);
    /// Out of memory.
    pub const NOMEM: Self = Self(12);
    /// Permission denied.
    pub const ACCES: Self = Self(13);
    /// Exists already.
    pub const EXIST: Self = Self(17);
    /// No such device.
    pub const NODEV: Self = Self(19);
    /// Invalid argument.
    pub const INVAL: Self = Self(22);
    /// No space.
    pub const NOSPC: Self = Self(28);
    /// Not supported.
    pub const NOTSUP: Self = Self(95);
    /// Timed out.
    pub const TIMEDOUT: Self = Self(110);
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Errno({})", self.0)
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match i32::try_from(self.0) {
            Ok(error) => std::io::Error::from_raw_os_error(error).fmt(f),
            Err(_) => write!(f, "error {}", self.0),
        }
    }
}

/// A header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's Message ID, which a reply repeats. Not unique.
    pub id: u16,
    /// One of [`super::command`], or another.
    pub command: u16,
    /// Bytes of the whole message.
    pub bytes: u32,
    /// Whether it is a reply.
    pub reply: bool,
    /// No_reply: a command that is not to be answered.
    pub no_reply: bool,
    /// In a reply: what went wrong.
    pub error: Option<Errno>,
}

/// A header after which the stream has no meaning any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A message can't be shorter than its header.
    #[error("a message of {0} bytes is shorter than its header")]
    TooShort(u32),
    /// Neither command nor reply.
    #[error("message type {0} is neither command nor reply")]
    Type(u32),
}

impl Header {
    /// Decodes.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, HeaderError> {
        let mut reader = Reader(bytes);
        let mut next = || reader.u32().unwrap_or(0);
        let (id_command, size, flags, error) = (next(), next(), next(), next());
        let [id0, id1, command0, command1] = id_command.to_ne_bytes();
        if (size as usize) < HEADER_BYTES {
            return Err(HeaderError::TooShort(size));
        }
        let reply = match flags & TYPE_MASK {
            TYPE_COMMAND => false,
            TYPE_REPLY => true,
            other => return Err(HeaderError::Type(other)),
        };
        Ok(Self {
            id: u16::from_ne_bytes([id0, id1]),
            command: u16::from_ne_bytes([command0, command1]),
            bytes: size,
            reply,
            no_reply: flags & NO_REPLY != 0,
            error: (flags & ERROR != 0).then_some(Errno(error)),
        })
    }

    /// Encodes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut flags = if self.reply { TYPE_REPLY } else { TYPE_COMMAND };
        if self.no_reply {
            flags |= NO_REPLY;
        }
        if self.error.is_some() {
            flags |= ERROR;
        }
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..2].copy_from_slice(&self.id.to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.command.to_ne_bytes());
        bytes[4..8].copy_from_slice(&self.bytes.to_ne_bytes());
        bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.error.map_or(0, |error| error.0).to_ne_bytes());
        bytes
    }
}
