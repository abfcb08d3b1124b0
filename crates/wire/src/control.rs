//! Control messages: the handshake's body, and how a host takes and gives back a Function.
//!
//! A control message is a fixed part and leaves room to grow: a decoder ignores bytes behind the part it knows, and
//! reserved bytes inside it.
//! `Hello` is the body of Hello and HelloAck frames; the others travel as control records, in stream order.

use crate::ahead::{RULES, Rule};
use crate::boxes::{Admit, Join, Reach};
use crate::bytes::{array, put, u16_at, u32_at};
use crate::discovery::Group;
use crate::frame::{MAX_FRAME_BYTES, MIN_FRAME_BYTES};
use crate::id::{FunctionId, NodeId};

/// Stream of the messages that belong to no Function.
pub const CONTROL_STREAM: u16 = 0;
/// The longest name of a Function, bytes of UTF-8.
pub const NAME_BYTES: usize = 32;

/// Body of Hello and HelloAck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who speaks.
    pub node: NodeId,
    /// The largest frame, from header to tag, that its Port carries: [`MIN_FRAME_BYTES`] to [`MAX_FRAME_BYTES`].
    pub max_frame_bytes: u16,
    /// Data frames it takes from the first that is missing on, not 0: the bound on its credit.
    pub receive_window_frames: u16,
    /// Bits of [`feature`]; both sides have to offer one for it to be used.
    pub features: u32,
}

/// Features of a session.
pub mod feature {
    /// In-order receiver and Go-Back-N, as published; without it selective repeat.
    pub const CLASSIC: u32 = 1 << 0;
    /// The link keeps frames intact: the check of Data frames covers their headers only.
    pub const HEADER_CHECK: u32 = 1 << 1;
    /// Read-ahead: rules of the box, pieces of the host ([`crate::ahead`]).
    pub const READ_AHEAD: u32 = 1 << 2;
    /// Leases: [`Message::Member`](super::Message::Member), [`Recall`](super::Message::Recall) and
    /// [`Keep`](super::Message::Keep), and [`AttachStatus::NotAssigned`](super::AttachStatus::NotAssigned).
    pub const LEASES: u32 = 1 << 3;
    /// RDMA: records of kind [`crate::record::Kind::Ddp`].
    pub const RDMA: u32 = 1 << 4;
    /// Functions of one host reach each other in the box: [`Message::Domain`](super::Message::Domain).
    pub const PEERS: u32 = 1 << 5;
    /// Functions of one host reach each other in different boxes: [`Message::Reach`](super::Message::Reach),
    /// [`Reached`](super::Message::Reached) and [`Admit`](super::Message::Admit).
    pub const BOXES: u32 = 1 << 6;
    /// Both are boxes: [`Message::Join`](super::Message::Join).
    pub const JOINS: u32 = 1 << 7;
}

impl Hello {
    /// Bytes of the fixed part.
    pub const BYTES: usize = 24;

    /// Decodes the body of a Hello or HelloAck; `None` if it is short, says a frame size outside of
    /// [`MIN_FRAME_BYTES`] to [`MAX_FRAME_BYTES`], or has no window.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let hello = Self {
            node: NodeId(array(body, 0)?),
            max_frame_bytes: u16_at(body, 16)?,
            receive_window_frames: u16_at(body, 18)?,
            features: u32_at(body, 20)?,
        };
        let is_usable = (MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&(hello.max_frame_bytes as usize))
            && hello.receive_window_frames != 0;
        is_usable.then_some(hello)
    }

    /// Writes the body; returns its bytes, or `None` if `out` is short.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        put(out.get_mut(..Self::BYTES)?, 0, &self.node.0)?;
        put(out, 16, &self.max_frame_bytes.to_be_bytes())?;
        put(out, 18, &self.receive_window_frames.to_be_bytes())?;
        put(out, 20, &self.features.to_be_bytes())?;
        Some(Self::BYTES)
    }
}

/// Why a session is closed, the one byte of a Close frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CloseReason {
    /// The node stops.
    Shutdown = 1,
    /// The peer broke the protocol.
    Protocol = 2,
    /// The node takes no (more) sessions from this peer.
    Refused = 3,
}

impl CloseReason {
    /// Decodes the body of a Close frame; `None` is a reason this version does not know, and closes as well.
    pub fn parse(body: &[u8]) -> Option<Self> {
        match *body.first()? {
            1 => Some(Self::Shutdown),
            2 => Some(Self::Protocol),
            3 => Some(Self::Refused),
            _ => None,
        }
    }
}

/// A Function's name: UTF-8, 1 to [`NAME_BYTES`] bytes, no ASCII control character (it ends up in logs and terminals).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name([u8; NAME_BYTES]);

impl Name {
    /// A name from text, or `None` if it is empty, too long or has an ASCII control character.
    pub fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; NAME_BYTES];
        if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        put(&mut bytes, 0, text.as_bytes())?;
        Some(Self(bytes))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        core::str::from_utf8(&self.0[..end]).unwrap_or("")
    }

    pub(crate) fn parse(bytes: &[u8], at: usize) -> Option<Self> {
        let raw: [u8; NAME_BYTES] = array(bytes, at)?;
        let end = raw.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        let name = Self::new(core::str::from_utf8(&raw[..end]).ok()?)?;
        (name.0 == raw).then_some(name)
    }

    pub(crate) fn emit(&self, out: &mut [u8], at: usize) -> Option<()> {
        put(out, at, &self.0)
    }
}

impl core::fmt::Debug for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Debug::fmt(self.as_str(), f)
    }
}

/// How an Attach went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AttachStatus {
    /// The Function is the host's.
    Attached = 0,
    /// The box has no such Function.
    Unknown = 1,
    /// Another host holds it.
    Busy = 2,
    /// The box has no room for a further stream.
    NoRoom = 3,
    /// The Function is not this host's to have: it is assigned to another one, to another group, or to nobody. With
    /// [`feature::LEASES`] only.
    NotAssigned = 4,
}

/// A control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Host to box, on [`CONTROL_STREAM`]: give me the Function of this name, on this stream.
    Attach {
        /// Which Function.
        name: Name,
        /// The stream the host chose for it, not 0, not in use.
        stream: u16,
        /// The most data a TLP towards the host may have, bytes; the host's Root Complex takes it whatever MPS says.
        max_payload_bytes: u16,
        /// The most data one Memory Read towards the host may ask for, bytes.
        max_read_request_bytes: u16,
    },
    /// Box to host, on [`CONTROL_STREAM`]: the answer.
    Attached {
        /// The stream of the Attach.
        stream: u16,
        /// How it went.
        status: AttachStatus,
        /// ID of the downstream port above the Function, `02:NN.0`. Type 0 Requests are for the session's upstream
        /// port, Type 1 for what is below it; the Function is `(3 + NN):00.0`.
        port: FunctionId,
    },
    /// Host to box, on the Function's stream: I give it back. The box answers `Detached`, then the stream is free.
    Detach,
    /// Box to host, on the Function's stream: the last record of it.
    Detached,
    /// Host to box, on the Function's stream: Hot Reset of the Function's Link (PCIe Base 6.0, 6.6.1).
    HotReset,
    /// Box to host, on the Function's stream: the reset is done; nothing from before it follows.
    HotResetDone,
    /// Box to host, on the Function's stream: send this along with the doorbell.
    ReadAhead(Rule),
    /// Box to host, on the Function's stream: a rule that is to be forgotten.
    Withdraw {
        /// Its number.
        rule: u8,
    },
    /// Host to box, on [`CONTROL_STREAM`], before any Attach: the assignment group that the host is in.
    Member {
        /// The group.
        group: Option<Group>,
    },
    /// Box to host, on the Function's stream: give it back. The host detaches it.
    Recall {
        /// How long the box waits for it, ms; 0: the Function is gone already.
        window_ms: u16,
    },
    /// Box to host, on the Function's stream: keep it after all.
    Keep,
    /// Host to box, on the Function's stream: whose address space the Function is in. Those of one domain reach each other's BARs
    /// without passing the host.
    Domain {
        /// The host's number of it; 0: none but its own, as after an Attach.
        domain: u16,
    },
    /// Host to box, on the Function's stream: what lies in another box.
    Reach(Reach),
    /// Box to host, on the Function's stream: whether all that was said to lie in other boxes can be reached now.
    Reached {
        /// It can.
        all: bool,
    },
    /// Host to box, on [`CONTROL_STREAM`]: who of another box may come in.
    Admit(Admit),
    /// Box to box, on [`CONTROL_STREAM`]: one comes in. The answer is `Attached`; the stream ends as a Function's does.
    Join(Join),
}

mod code {
    pub(super) const ATTACH: u8 = 1;
    pub(super) const ATTACHED: u8 = 2;
    pub(super) const DETACH: u8 = 3;
    pub(super) const DETACHED: u8 = 4;
    pub(super) const HOT_RESET: u8 = 5;
    pub(super) const HOT_RESET_DONE: u8 = 6;
    pub(super) const READ_AHEAD: u8 = 7;
    pub(super) const WITHDRAW: u8 = 8;
    pub(super) const MEMBER: u8 = 9;
    pub(super) const RECALL: u8 = 10;
    pub(super) const KEEP: u8 = 11;
    pub(super) const DOMAIN: u8 = 12;
    pub(super) const REACH: u8 = 13;
    pub(super) const REACHED: u8 = 14;
    pub(super) const ADMIT: u8 = 15;
    pub(super) const JOIN: u8 = 16;
}

impl Message {
    /// The longest message of this version.
    pub const MAX_BYTES: usize = Rule::MAX_RULE_BYTES;

    /// Bytes of the message.
    pub const fn len(&self) -> usize {
        match self {
            Self::Attach { .. } => 8 + NAME_BYTES,
            Self::Attached { .. } => 8,
            Self::Detach
            | Self::Detached
            | Self::HotReset
            | Self::HotResetDone
            | Self::Withdraw { .. }
            | Self::Member { .. }
            | Self::Recall { .. }
            | Self::Keep
            | Self::Domain { .. }
            | Self::Reached { .. } => 4,
            Self::ReadAhead(rule) => rule.len(),
            Self::Reach(reach) => reach.len(),
            Self::Admit(_) => Admit::BYTES,
            Self::Join(_) => Join::BYTES,
        }
    }

    /// Never: a message has bytes.
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Decodes a control record's payload; `None` if it is none this version knows.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let message = match *bytes.first()? {
            code::ATTACH => Self::Attach {
                stream: u16_at(bytes, 2).filter(|&stream| stream != CONTROL_STREAM)?,
                max_payload_bytes: u16_at(bytes, 4)?,
                max_read_request_bytes: u16_at(bytes, 6)?,
                name: Name::parse(bytes, 8)?,
            },
            code::ATTACHED => Self::Attached {
                status: match *bytes.get(1)? {
                    0 => AttachStatus::Attached,
                    1 => AttachStatus::Unknown,
                    2 => AttachStatus::Busy,
                    3 => AttachStatus::NoRoom,
                    4 => AttachStatus::NotAssigned,
                    _ => return None,
                },
                stream: u16_at(bytes, 2)?,
                port: FunctionId(u16_at(bytes, 4)?),
            },
            code::DETACH => Self::Detach,
            code::DETACHED => Self::Detached,
            code::HOT_RESET => Self::HotReset,
            code::HOT_RESET_DONE => Self::HotResetDone,
            code::READ_AHEAD => Self::ReadAhead(Rule::parse(bytes)?),
            code::WITHDRAW => {
                Self::Withdraw { rule: bytes.get(1).copied().filter(|&rule| (rule as usize) < RULES)? }
            }
            code::MEMBER => Self::Member { group: Group::parse(bytes, 2)? },
            code::RECALL => Self::Recall { window_ms: u16_at(bytes, 2)? },
            code::KEEP => Self::Keep,
            code::DOMAIN => Self::Domain { domain: u16_at(bytes, 2)? },
            code::REACH => Self::Reach(Reach::parse(bytes)?),
            code::REACHED => match *bytes.get(1)? {
                all @ 0..=1 => Self::Reached { all: all == 1 },
                _ => return None,
            },
            code::ADMIT => Self::Admit(Admit::parse(bytes)?),
            code::JOIN => Self::Join(Join::parse(bytes)?),
            _ => return None,
        };
        (bytes.len() >= message.len()).then_some(message)
    }

    /// Writes the message; returns its bytes, or `None` if `out` is short.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        let out = out.get_mut(..self.len())?;
        out.fill(0);
        let code = match self {
            Self::Attach { .. } => code::ATTACH,
            Self::Attached { .. } => code::ATTACHED,
            Self::Detach => code::DETACH,
            Self::Detached => code::DETACHED,
            Self::HotReset => code::HOT_RESET,
            Self::HotResetDone => code::HOT_RESET_DONE,
            Self::ReadAhead(_) => code::READ_AHEAD,
            Self::Withdraw { .. } => code::WITHDRAW,
            Self::Member { .. } => code::MEMBER,
            Self::Recall { .. } => code::RECALL,
            Self::Keep => code::KEEP,
            Self::Domain { .. } => code::DOMAIN,
            Self::Reach(_) => code::REACH,
            Self::Reached { .. } => code::REACHED,
            Self::Admit(_) => code::ADMIT,
            Self::Join(_) => code::JOIN,
        };
        put(out, 0, &[code])?;
        match *self {
            Self::Attach { name, stream, max_payload_bytes, max_read_request_bytes } => {
                put(out, 2, &stream.to_be_bytes())?;
                put(out, 4, &max_payload_bytes.to_be_bytes())?;
                put(out, 6, &max_read_request_bytes.to_be_bytes())?;
                put(out, 8, &name.0)?;
            }
            Self::Attached { stream, status, port } => {
                put(out, 1, &[status as u8])?;
                put(out, 2, &stream.to_be_bytes())?;
                put(out, 4, &port.0.to_be_bytes())?;
            }
            Self::ReadAhead(rule) => rule.emit(out)?,
            Self::Withdraw { rule } => put(out, 1, &[rule])?,
            Self::Member { group } => put(out, 2, &Group::emit(group))?,
            Self::Recall { window_ms } => put(out, 2, &window_ms.to_be_bytes())?,
            Self::Domain { domain } => put(out, 2, &domain.to_be_bytes())?,
            Self::Reach(reach) => reach.emit(out)?,
            Self::Reached { all } => put(out, 1, &[u8::from(all)])?,
            Self::Admit(admit) => admit.emit(out)?,
            Self::Join(join) => join.emit(out)?,
            Self::Detach | Self::Detached | Self::HotReset | Self::HotResetDone | Self::Keep => {}
        }
        Some(out.len())
    }
}
