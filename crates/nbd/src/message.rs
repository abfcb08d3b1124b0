//! What is on the wire: numbers in network byte order, and the messages that have a fixed length.

/// First from the server: `NBDMAGIC`.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second from the server, and before every option: `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Before every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_SIMPLE_REPLY_MAGIC`.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of an option without its data.
pub const OPTION_BYTES: usize = 16;
/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// The longest string.
pub const MAX_STRING_BYTES: usize = 4096;

/// `NBD_FLAG_FIXED_NEWSTYLE`, of both sides' handshake flags.
pub const FIXED_NEWSTYLE: u16 = 1;
/// `NBD_FLAG_NO_ZEROES`, of both sides' handshake flags.
pub const NO_ZEROES: u16 = 1 << 1;

/// Transmission flags, `NBD_FLAG_*`.
#[allow(missing_docs)]
pub mod flag {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
}

/// Options, `NBD_OPT_*`.
#[allow(missing_docs)]
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
}

/// Types of replies to options, `NBD_REP_*`.
#[allow(missing_docs)]
pub mod reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const ERR_UNSUP: u32 = 1 << 31 | 1;
    pub const ERR_INVALID: u32 = 1 << 31 | 3;
    pub const ERR_UNKNOWN: u32 = 1 << 31 | 6;
    pub const ERR_TOO_BIG: u32 = 1 << 31 | 9;
}

/// Types of information, `NBD_INFO_*`.
#[allow(missing_docs)]
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Types of requests, `NBD_CMD_*`.
#[allow(missing_docs)]
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests, `NBD_CMD_FLAG_*`.
#[allow(missing_docs)]
pub mod command_flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
}

/// Structured reply chunks: `NBD_REPLY_FLAG_*` and `NBD_REPLY_TYPE_*`.
#[allow(missing_docs)]
pub mod chunk {
    pub const FLAG_DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const ERROR: u16 = 1 << 15 | 1;
}

/// The errors that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Error {
    /// `NBD_EPERM`: a write to an export that takes none.
    Permission = 1,
    /// `NBD_EIO`.
    Io = 5,
    /// `NBD_EINVAL`: what the protocol, or the export's size constraints, do not allow.
    Invalid = 22,
    /// `NBD_ENOSPC`: a write beyond the end, or no room.
    NoSpace = 28,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// [`command_flag`].
    pub flags: u16,
    /// [`command`].
    pub command: u16,
    /// Comes back with the reply.
    pub cookie: u64,
    /// The first byte.
    pub offset: u64,
    /// How many bytes.
    pub length: u32,
}

impl Request {
    /// `None` if it does not start with the magic number.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut fields = Fields(bytes);
        (fields.u32()? == REQUEST_MAGIC).then_some(())?;
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            length: fields.u32()?,
        })
    }

    /// Its bytes.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut head = Head::default();
        head.u32(REQUEST_MAGIC).u16(self.flags).u16(self.command).u64(self.cookie);
        head.u64(self.offset).u32(self.length);
        head.bytes().first_chunk().copied().unwrap_or([0; REQUEST_BYTES])
    }
}

/// The head of a reply: all of it but data, which follows from a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head {
    bytes: [u8; 32],
    length: u8,
}

impl Head {
    /// A simple reply.
    pub fn simple(cookie: u64, error: Option<Error>) -> Self {
        let mut head = Self::default();
        head.u32(SIMPLE_REPLY_MAGIC).u32(error.map_or(0, |error| error as u32)).u64(cookie);
        head
    }

    fn chunk(kind: u16, flags: u16, cookie: u64, length: u32) -> Self {
        let mut head = Self::default();
        head.u32(STRUCTURED_REPLY_MAGIC).u16(flags).u16(kind).u64(cookie).u32(length);
        head
    }

    /// A chunk of `NBD_REPLY_TYPE_OFFSET_DATA`, which is followed by `bytes` of data.
    pub fn data(cookie: u64, offset: u64, bytes: u32, is_last: bool) -> Self {
        let flags = if is_last { chunk::FLAG_DONE } else { 0 };
        let mut head = Self::chunk(chunk::OFFSET_DATA, flags, cookie, bytes.saturating_add(8));
        head.u64(offset);
        head
    }

    /// The last chunk, of `NBD_REPLY_TYPE_ERROR` or, if all went well, `NBD_REPLY_TYPE_NONE`.
    pub fn end(cookie: u64, error: Option<Error>) -> Self {
        let Some(error) = error else { return Self::chunk(chunk::NONE, chunk::FLAG_DONE, cookie, 0) };
        let mut head = Self::chunk(chunk::ERROR, chunk::FLAG_DONE, cookie, 6);
        head.u32(error as u32).u16(0);
        head
    }

    /// What is to be sent.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.length)).unwrap_or_default()
    }

    fn put(&mut self, bytes: &[u8]) -> &mut Self {
        let start = usize::from(self.length);
        if let Some(place) = self.bytes.get_mut(start..start + bytes.len()) {
            place.copy_from_slice(bytes);
            self.length += bytes.len() as u8;
        }
        self
    }

    fn u16(&mut self, value: u16) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.put(&value.to_be_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.put(&value.to_be_bytes())
    }
}

/// Fields one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next `count` bytes, if there are so many.
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.first_chunk().copied()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_has_its_fields_where_the_protocol_has_them() {
        let request = Request {
            flags: command_flag::FUA,
            command: command::WRITE,
            cookie: 0x1122_3344_5566_7788,
            offset: 0x99AA_BBCC_DDEE_F000,
            length: 0x1000,
        };
        let bytes = [
            0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xAA,
            0xBB, 0xCC, 0xDD, 0xEE, 0xF0, 0, 0, 0, 0x10, 0,
        ];
        assert_eq!(request.encode(), bytes);
        assert_eq!(Request::parse(&bytes), Some(request));
    }

    #[test]
    fn replies_have_their_fields_where_the_protocol_has_them() {
        let cookie = 0x0102_0304_0506_0708;
        let tail = [1, 2, 3, 4, 5, 6, 7, 8];
        let simple = [&[0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28][..], &tail].concat();
        assert_eq!(Head::simple(cookie, Some(Error::NoSpace)).bytes(), simple);
        let none = [&[0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 0][..], &tail, &[0; 4]].concat();
        assert_eq!(Head::end(cookie, None).bytes(), none);
        let error =
            [&[0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1][..], &tail, &[0, 0, 0, 6, 0, 0, 0, 5, 0, 0]].concat();
        assert_eq!(Head::end(cookie, Some(Error::Io)).bytes(), error);
        let data = [&[0x66, 0x8e, 0x33, 0xef, 0, 0, 0, 1][..], &tail, &[0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 4, 0]]
            .concat();
        assert_eq!(Head::data(cookie, 1024, 512, false).bytes(), data);
    }

    proptest! {
        #[test]
        fn a_request_is_what_was_encoded(flags: u16, command: u16, cookie: u64, offset: u64, length: u32) {
            let request = Request { flags, command, cookie, offset, length };
            prop_assert_eq!(Request::parse(&request.encode()), Some(request));
        }

        #[test]
        fn no_other_magic_number_is_a_request(mut bytes: [u8; REQUEST_BYTES], at in 0usize..4, other in 1u8..) {
            bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
            bytes[at] ^= other;
            prop_assert_eq!(Request::parse(&bytes), None);
        }
    }
}
