//! What the two ends of a link test tell each other.
//!
//! All of it goes in records of an ordinary session. On stream 0, as control records:
//!
//! ```text
//!  0  "ESLT"   4  version (8)   5  what (8)   6  0 (16)   8  body
//!
//!  what            body
//!  1 Begin         -                                           client to server
//!  2 Ready         -                                           server to client
//!  3 Load          record bytes (32); 0: stop sending          client to server
//!  4 Mark          number (32)                                 client to server
//!  5 Marked        number (32), 0 (32), server's time (64), record bytes received (64)
//! ```
//! On [`BULK_STREAM`]: records of any content. On [`PING_STREAM`]: 8 bytes that the server sends back.

/// Bulk data.
pub(super) const BULK_STREAM: u16 = 1;
/// What measures latency.
pub(super) const PING_STREAM: u16 = 2;
/// The longest message.
pub(super) const MAX_BYTES: usize = 8 + 24;

const MAGIC: [u8; 4] = *b"ESLT";
const VERSION: u8 = 1;

/// A message between the ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The client wants to test.
    Begin,
    /// The server knows what a link test is.
    Ready,
    /// The server is to send records of this size, or none if it is 0.
    Load { record_bytes: u32 },
    /// The server is to tell what it has received.
    Mark { number: u32 },
    /// What it has received.
    Marked { number: u32, now_ns: u64, bytes: u64 },
}

impl Message {
    fn code(self) -> u8 {
        match self {
            Self::Begin => 1,
            Self::Ready => 2,
            Self::Load { .. } => 3,
            Self::Mark { .. } => 4,
            Self::Marked { .. } => 5,
        }
    }

    /// Writes the message; returns its bytes.
    pub(super) fn emit(self, out: &mut [u8; MAX_BYTES]) -> usize {
        out.fill(0);
        out[..4].copy_from_slice(&MAGIC);
        out[4] = VERSION;
        out[5] = self.code();
        match self {
            Self::Begin | Self::Ready => 8,
            Self::Load { record_bytes: number } | Self::Mark { number } => {
                out[8..12].copy_from_slice(&number.to_be_bytes());
                12
            }
            Self::Marked { number, now_ns, bytes } => {
                out[8..12].copy_from_slice(&number.to_be_bytes());
                out[16..24].copy_from_slice(&now_ns.to_be_bytes());
                out[24..32].copy_from_slice(&bytes.to_be_bytes());
                32
            }
        }
    }

    /// Reads a message; `None` if it is none of this version.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (head, body) = bytes.split_first_chunk::<8>()?;
        if head[..4] != MAGIC || head[4] != VERSION {
            return None;
        }
        let number = || body.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let long = |at: usize| body.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        Some(match head[5] {
            1 => Self::Begin,
            2 => Self::Ready,
            3 => Self::Load { record_bytes: number()? },
            4 => Self::Mark { number: number()? },
            5 => Self::Marked { number: number()?, now_ns: long(8)?, bytes: long(16)? },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_survives_its_bytes_and_none_survives_their_loss() {
        for message in [
            Message::Begin,
            Message::Ready,
            Message::Load { record_bytes: 4096 },
            Message::Mark { number: u32::MAX },
            Message::Marked { number: 7, now_ns: u64::MAX - 1, bytes: 1 << 40 },
        ] {
            let mut bytes = [0xFF; MAX_BYTES];
            let length = message.emit(&mut bytes);
            assert_eq!(Message::parse(&bytes[..length]), Some(message));
            for short in 0..length {
                assert_eq!(Message::parse(&bytes[..short]), None, "{message:?} in {short} bytes");
            }
            let mut other = bytes;
            other[4] += 1;
            assert_eq!(Message::parse(&other[..length]), None, "another version");
        }
    }

    #[test]
    fn no_control_message_of_pci_express_is_one_of_a_link_test() {
        let mut bytes = [0; MAX_BYTES];
        let length = Message::Begin.emit(&mut bytes);
        assert_eq!(etherslot_wire::control::Message::parse(&bytes[..length]), None);
    }
}
