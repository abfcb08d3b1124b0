//! Completion queue entries (docs/rnic.md, section 5).

use etherslot_wire::rdmap::Cause;

use crate::config::{PeerId, Qpn};
use crate::wqe::{SendOpcode, u32_le, u64_le};

/// How a work request ended; the numbers are those of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Well.
    Success = 0,
    /// A message longer than its buffer, or than a message can be.
    LocalLength = 1,
    /// The WQE is not as it has to be.
    LocalOperation = 2,
    /// A local buffer may not be used so.
    LocalProtection = 4,
    /// The QP had failed before.
    Flushed = 5,
    /// A window could not be bound or invalidated.
    WindowBind = 6,
    /// An answer that does not fit.
    BadResponse = 7,
    /// The peer refused the request as such.
    RemoteInvalid = 9,
    /// The peer's buffer may not be used so.
    RemoteAccess = 10,
    /// The peer could not do it.
    RemoteOperation = 11,
    /// The peer's QP is not there, or the peer is lost.
    RetriesExceeded = 12,
    /// The peer never had a receive buffer.
    RnrExceeded = 13,
    /// The CQ is in overrun.
    Fatal = 19,
}

impl Status {
    /// The status with this number.
    pub const fn new(code: u8) -> Option<Self> {
        Some(match code {
            0 => Self::Success,
            1 => Self::LocalLength,
            2 => Self::LocalOperation,
            4 => Self::LocalProtection,
            5 => Self::Flushed,
            6 => Self::WindowBind,
            7 => Self::BadResponse,
            9 => Self::RemoteInvalid,
            10 => Self::RemoteAccess,
            11 => Self::RemoteOperation,
            12 => Self::RetriesExceeded,
            13 => Self::RnrExceeded,
            19 => Self::Fatal,
            _ => return None,
        })
    }

    /// What a Terminate means to the request that it ends (docs/rnic.md, section 15).
    pub(crate) const fn of(cause: Cause) -> Self {
        match (cause.layer, cause.kind, cause.code) {
            (0, 1, _) | (0, 2, 9) | (1, 1, 0..=3) => Self::RemoteAccess,
            (0, 0, _) => Self::RemoteOperation,
            _ => Self::RemoteInvalid,
        }
    }
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// A send WQE.
    Sent(SendOpcode),
    /// A receive WQE, by a Send.
    Received,
    /// A receive WQE, by a Write with Immediate.
    ReceivedWrite,
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cqe {
    /// That of the work request.
    pub id: u64,
    /// How it ended. If not well, only ID, QP and cause are valid.
    pub status: Status,
    /// What was done.
    pub done: Done,
    /// Of which QP.
    pub qp: Qpn,
    /// Bytes received, or read.
    pub bytes: u32,
    /// Immediate data that came.
    pub immediate: Option<u32>,
    /// The window that was invalidated by the peer.
    pub invalidated: Option<u32>,
    /// Of a datagram: whom it is from.
    pub source: Option<(PeerId, Qpn)>,
    /// Of a remote error: why.
    pub cause: Option<Cause>,
    /// An event was asked for with it.
    pub is_solicited: bool,
}

impl Cqe {
    /// Bytes in a ring.
    pub const BYTES: usize = 32;

    pub(crate) const fn new(id: u64, status: Status, done: Done, qp: Qpn) -> Self {
        Self {
            id,
            status,
            done,
            qp,
            bytes: 0,
            immediate: None,
            invalidated: None,
            source: None,
            cause: None,
            is_solicited: false,
        }
    }

    /// The phase of an entry as it lies in a ring: [`Cqe::emit`].
    pub const fn phase(entry: &[u8; Self::BYTES]) -> bool {
        entry[10] >> 7 != 0
    }

    /// An entry as it lies in a ring; `None` if no RNIC writes such. Whether an event was asked for with it is not told there.
    pub fn parse(entry: &[u8; Self::BYTES]) -> Option<Self> {
        let half = |at| u16::from_le_bytes([entry[at], entry[at + 1]]);
        let (word, detail) = (u32_le(entry, 20), half(28));
        let cause = Cause { layer: (detail >> 12) as u8, kind: (detail >> 8 & 15) as u8, code: detail as u8 };
        let status = Status::new(entry[8])?;
        let done = match (entry[9], status) {
            (0x80, _) => Done::Received,
            (0x81, _) => Done::ReceivedWrite,
            (code, Status::Success) => Done::Sent(SendOpcode::new(code)?),
            // Of a WQE whose opcode is none, too.
            (code, _) => Done::Sent(SendOpcode::new(code).unwrap_or(SendOpcode::Nop)),
        };
        let is_remote =
            matches!(status, Status::RemoteInvalid | Status::RemoteAccess | Status::RemoteOperation);
        Some(Self {
            bytes: u32_le(entry, 16),
            immediate: (entry[10] & 1 != 0).then_some(word),
            invalidated: (entry[10] & 2 != 0).then_some(word),
            source: (half(14) != 0).then(|| (PeerId(u32_le(entry, 24) as u16), Qpn(half(14)))),
            cause: is_remote.then_some(cause),
            ..Self::new(u64_le(entry, 0), status, done, Qpn(half(12)))
        })
    }

    /// The entry as it lies in a ring, in the lap with this phase.
    pub fn emit(&self, phase: bool) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&self.id.to_le_bytes());
        out[8] = self.status as u8;
        out[9] = match self.done {
            Done::Sent(opcode) => opcode as u8,
            Done::Received => 0x80,
            Done::ReceivedWrite => 0x81,
        };
        out[10] = u8::from(self.immediate.is_some())
            | u8::from(self.invalidated.is_some()) << 1
            | u8::from(phase) << 7;
        out[12..14].copy_from_slice(&self.qp.0.to_le_bytes());
        out[16..20].copy_from_slice(&self.bytes.to_le_bytes());
        let word = self.immediate.or(self.invalidated).unwrap_or(0);
        out[20..24].copy_from_slice(&word.to_le_bytes());
        if let Some((peer, qp)) = self.source {
            out[14..16].copy_from_slice(&qp.0.to_le_bytes());
            out[24..28].copy_from_slice(&u32::from(peer.0).to_le_bytes());
        }
        if let Some(Cause { layer, kind, code }) = self.cause {
            let detail = u16::from(layer & 15) << 12 | u16::from(kind & 15) << 8 | u16::from(code);
            out[28..30].copy_from_slice(&detail.to_le_bytes());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_lies_in_the_ring_as_the_contract_draws_it() {
        let cqe = Cqe {
            bytes: 0x0102_0304,
            immediate: Some(0xCAFE_F00D),
            source: Some((PeerId(7), Qpn(0x0908))),
            ..Cqe::new(0x1122_3344_5566_7788, Status::Success, Done::Received, Qpn(0x0203))
        };
        let expected = [
            0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 0, 0x80, 0x81, 0, 3, 2, 8, 9, 4, 3, 2, 1, 0x0D,
            0xF0, 0xFE, 0xCA, 7, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(cqe.emit(true), expected);
        assert_eq!((Cqe::parse(&expected), Cqe::phase(&expected)), (Some(cqe), true));
        let failed = Cqe {
            cause: Some(Cause::TAGGED_BOUNDS),
            ..Cqe::new(1, Status::RemoteAccess, Done::Sent(SendOpcode::Write), Qpn(2))
        };
        let mut odd = failed.emit(false);
        odd[9] = 99;
        let told = Cqe { done: Done::Sent(SendOpcode::Nop), ..failed };
        assert_eq!(Cqe::parse(&odd), Some(told), "the opcode of one that failed says nothing");
        assert_eq!(failed.emit(false)[8..14], [10, 0, 0, 0, 2, 0]);
        assert_eq!(failed.emit(false)[28..], [0x01, 0x11, 0, 0]);
        assert_eq!((Cqe::parse(&failed.emit(false)), Cqe::phase(&failed.emit(false))), (Some(failed), false));
    }
}
