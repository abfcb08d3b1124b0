//! Connection management (docs/verbs.md, "Connections"): the messages of connections, which travel as control records on
//! stream 0, and the questions at a node's desk, which are datagrams of their own.
//!
//! As with all control messages, a decoder ignores reserved bytes, and bytes behind the part it knows.

use crate::bytes::{array, put, u16_at, u32_at};

/// The UDP port at which a node says which of its processes listens at a port.
pub const DESK_PORT: u16 = 19_199;
/// Private data of a Request at most, by [`Service::Ud`] and by the others (IBA 12.6.5, 12.11.1, less what the address takes).
pub const REQUEST_PRIVATE_BYTES: (usize, usize) = (180, 56);
/// Private data of a Reply at most, by [`Service::Ud`] and by the others (IBA 12.6.8, 12.11.2).
pub const REPLY_PRIVATE_BYTES: (usize, usize) = (136, 196);
/// Private data of a Reject at most (IBA 12.6.7).
pub const REJECT_PRIVATE_BYTES: usize = 148;
/// A message at most.
pub const MAX_BYTES: usize = TERMS_END + 196;

const TERMS_END: usize = 32;

/// A port space: connections of one do not meet those of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Space {
    /// Connected services.
    Tcp = 0x0106,
    /// Datagrams.
    Udp = 0x0111,
    /// Any service.
    Ib = 0x013F,
}

impl Space {
    /// The space with this number.
    pub fn new(number: u16) -> Option<Self> {
        [Self::Tcp, Self::Udp, Self::Ib].into_iter().find(|&space| space as u16 == number)
    }
}

/// What a QP does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Service {
    /// Reliable connection.
    Rc = 0,
    /// Unreliable connection.
    Uc = 1,
    /// Datagrams: the QP of the other side is asked for, and no connection made.
    Ud = 3,
}

impl Service {
    fn new(number: u8) -> Option<Self> {
        [Self::Rc, Self::Uc, Self::Ud].into_iter().find(|&service| service as u8 == number)
    }
}

/// What a side of a connection says of its QP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Its number, as programs know it: 24 bits.
    pub qp: u32,
    /// Number of its first request message, 24 bits. Of a datagram service: the `Q_Key`.
    pub number: u32,
    /// Reads and Atomics that the side takes at a time.
    pub responder_resources: u8,
    /// Reads and Atomics that it sends at a time.
    pub initiator_depth: u8,
    /// Retries, to 7.
    pub retries: u8,
    /// Retries where the other side is not ready, to 7: without end.
    pub rnr_retries: u8,
    /// It has a shared receive queue.
    pub srq: bool,
    /// It asks for end-to-end flow control.
    pub flow_control: bool,
}

impl Terms {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let counts: [u8; 5] = array(bytes, 20)?;
        Some(Self {
            qp: u32_at(bytes, 12)? & 0xFF_FFFF,
            number: u32_at(bytes, 16)?,
            responder_resources: counts[0],
            initiator_depth: counts[1],
            retries: counts[2] & 7,
            rnr_retries: counts[3] & 7,
            srq: counts[4] & 1 != 0,
            flow_control: counts[4] & 2 != 0,
        })
    }

    fn emit(&self, out: &mut [u8]) -> Option<()> {
        put(out, 12, &(self.qp & 0xFF_FFFF).to_be_bytes())?;
        put(out, 16, &self.number.to_be_bytes())?;
        let flags = u8::from(self.srq) | u8::from(self.flow_control) << 1;
        let retries = (self.retries & 7, self.rnr_retries & 7);
        put(out, 20, &[self.responder_resources, self.initiator_depth, retries.0, retries.1, flags])
    }
}

/// A message between two ids of connections. An id is the sender's own number of it, and never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Asks for a connection.
    Request {
        /// Sender's id.
        from: u32,
        /// What kind of connection.
        service: Service,
        /// Whom it is for.
        space: Space,
        /// Whom it is for.
        port: u16,
        /// The sender's port.
        source_port: u16,
        /// The sender's QP. Of a datagram service: not used.
        terms: Terms,
        /// The program's: at most [`REQUEST_PRIVATE_BYTES`].
        private: &'a [u8],
    },
    /// Accepts a Request.
    Reply {
        /// Sender's id.
        from: u32,
        /// Receiver's id.
        to: u32,
        /// The sender's QP.
        terms: Terms,
        /// The program's: at most [`REPLY_PRIVATE_BYTES`].
        private: &'a [u8],
    },
    /// The Reply has come, and the QP is ready.
    Established {
        /// Sender's id.
        from: u32,
        /// Receiver's id.
        to: u32,
    },
    /// Refuses a Request or a Reply, or takes a Request back.
    Reject {
        /// Sender's id, 0 if it has none.
        from: u32,
        /// Receiver's id, 0 if the sender does not know it.
        to: u32,
        /// Why (IBA 12.6.7.2).
        reason: u16,
        /// The program's: at most [`REJECT_PRIVATE_BYTES`].
        private: &'a [u8],
    },
    /// Ends a connection.
    Disconnect {
        /// Sender's id.
        from: u32,
        /// Receiver's id.
        to: u32,
    },
    /// Answers a Disconnect.
    Disconnected {
        /// Sender's id.
        from: u32,
        /// Receiver's id.
        to: u32,
    },
}

const REQUEST: u8 = 32;
const REPLY: u8 = 33;
const ESTABLISHED: u8 = 34;
const REJECT: u8 = 35;
const DISCONNECT: u8 = 36;
const DISCONNECTED: u8 = 37;

fn private(bytes: &[u8], length_at: usize, at: usize, most: usize) -> Option<&[u8]> {
    let length = usize::from(*bytes.get(length_at)?);
    bytes.get(at..at + length).filter(|_| length <= most)
}

fn of_service(service: Service, bytes: (usize, usize)) -> usize {
    if service == Service::Ud { bytes.0 } else { bytes.1 }
}

impl<'a> Message<'a> {
    /// Decodes a message; `None` if it is short, of another code, has a value that is not listed, an id of 0, or more
    /// private data than its kind may have.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let code = *bytes.first()?;
        let (from, to) = (u32_at(bytes, 4)?, u32_at(bytes, 8)?);
        if from == 0 && code != REJECT || to == 0 && !matches!(code, REQUEST | REJECT) {
            return None;
        }
        Some(match code {
            REQUEST => {
                let service = Service::new(bytes[1])?;
                let most = of_service(service, REQUEST_PRIVATE_BYTES);
                Self::Request {
                    from,
                    service,
                    space: Space::new(u16_at(bytes, 2)?)?,
                    port: u16_at(bytes, 8)?,
                    source_port: u16_at(bytes, 10)?,
                    terms: Terms::parse(bytes)?,
                    private: private(bytes, 25, TERMS_END, most)?,
                }
            }
            REPLY => {
                let most = REPLY_PRIVATE_BYTES.0.max(REPLY_PRIVATE_BYTES.1);
                let private = private(bytes, 25, TERMS_END, most)?;
                Self::Reply { from, to, terms: Terms::parse(bytes)?, private }
            }
            ESTABLISHED => Self::Established { from, to },
            REJECT => {
                let reason = u16_at(bytes, 2)?;
                Self::Reject { from, to, reason, private: private(bytes, 12, 16, REJECT_PRIVATE_BYTES)? }
            }
            DISCONNECT => Self::Disconnect { from, to },
            DISCONNECTED => Self::Disconnected { from, to },
            _ => return None,
        })
    }

    /// Writes a message; returns its bytes, or `None` if `out` is short or the private data are too long.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        out.fill(0);
        let mut head = |code: u8, from: u32, to: u32| {
            put(out, 0, &[code])?;
            put(out, 4, &from.to_be_bytes())?;
            put(out, 8, &to.to_be_bytes())
        };
        let (length_at, at, private, most) = match *self {
            Self::Request { from, service, space, port, source_port, terms, private } => {
                head(REQUEST, from, 0)?;
                put(out, 1, &[service as u8])?;
                put(out, 2, &(space as u16).to_be_bytes())?;
                put(out, 8, &port.to_be_bytes())?;
                put(out, 10, &source_port.to_be_bytes())?;
                terms.emit(out)?;
                (25, TERMS_END, private, of_service(service, REQUEST_PRIVATE_BYTES))
            }
            Self::Reply { from, to, terms, private } => {
                head(REPLY, from, to)?;
                terms.emit(out)?;
                (25, TERMS_END, private, REPLY_PRIVATE_BYTES.0.max(REPLY_PRIVATE_BYTES.1))
            }
            Self::Reject { from, to, reason, private } => {
                head(REJECT, from, to)?;
                put(out, 2, &reason.to_be_bytes())?;
                (12, 16, private, REJECT_PRIVATE_BYTES)
            }
            Self::Established { from, to } => return head(ESTABLISHED, from, to).map(|()| 12),
            Self::Disconnect { from, to } => return head(DISCONNECT, from, to).map(|()| 12),
            Self::Disconnected { from, to } => return head(DISCONNECTED, from, to).map(|()| 12),
        };
        if private.len() > most {
            return None;
        }
        put(out, length_at, &[u8::try_from(private.len()).ok()?])?;
        put(out, at, private)?;
        Some(at + private.len())
    }
}

/// Asks a node's desk, or is its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enquiry {
    /// Which port.
    pub space: Space,
    /// Which port.
    pub port: u16,
    /// The asker's number of the question, which the answer repeats.
    pub serial: u32,
    /// What is said.
    pub says: Says,
}

/// What an [`Enquiry`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Says {
    /// Who listens there?
    Who,
    /// The process of this slot does.
    Slot(u8),
    /// Nobody does.
    Nobody,
}

impl Enquiry {
    /// Bytes of a datagram: an answer is as long as its question.
    pub const BYTES: usize = 16;
    const MAGIC: u32 = 0x4553_434D;
    const NOBODY: u8 = 255;

    /// Decodes a datagram; `None` if it is short, no enquiry, or has a value that is not listed.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let [kind, slot] = array(bytes, 4)?;
        let says = match (kind, slot) {
            (1, _) => Says::Who,
            (2, Self::NOBODY) => Says::Nobody,
            (2, slot) => Says::Slot(slot),
            _ => return None,
        };
        let (space, port) = (Space::new(u16_at(bytes, 6)?)?, u16_at(bytes, 8)?);
        let enquiry = Self { space, port, serial: u32_at(bytes, 12)?, says };
        (u32_at(bytes, 0)? == Self::MAGIC).then_some(enquiry)
    }

    /// The datagram.
    pub fn bytes(&self) -> [u8; Self::BYTES] {
        let (kind, slot) = match self.says {
            Says::Who => (1, 0),
            Says::Slot(slot) => (2, slot),
            Says::Nobody => (2, Self::NOBODY),
        };
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&Self::MAGIC.to_be_bytes());
        out[4..6].copy_from_slice(&[kind, slot]);
        out[6..8].copy_from_slice(&(self.space as u16).to_be_bytes());
        out[8..10].copy_from_slice(&self.port.to_be_bytes());
        out[12..].copy_from_slice(&self.serial.to_be_bytes());
        out
    }
}
