//! Events that no completion tells (docs/rnic.md, section 5).

use crate::config::{CqId, Qpn, SrqId};
use crate::ring::Bounded;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A QP went to ERROR and no send WQE tells why.
    QpError(Qpn),
    /// A CQ was full when a CQE was due.
    CqOverrun(CqId),
    /// An SRQ has fewer WQEs than its limit.
    SrqLimit(SrqId),
    /// All send WQEs that had begun are complete, in SQD.
    SqDrained(Qpn),
    /// The first message came before the QP was in RTS.
    Established(Qpn),
    /// The peer tried what it may not.
    AccessViolation(Qpn),
    /// The peer is lost.
    PeerLost(Qpn),
    /// A QP in ERROR takes no more from its SRQ.
    LastWqe(Qpn),
    /// A page was absent when it was needed: its entry in the PBLMT.
    Miss(u32),
}

impl Event {
    /// What the register EVENT says; `None` is nothing, or nothing known.
    pub const fn parse(event: u64) -> Option<Self> {
        let number = (event >> 16) as u16;
        Some(match event as u8 {
            1 => Self::QpError(Qpn(number)),
            2 => Self::CqOverrun(CqId(number)),
            3 => Self::SrqLimit(SrqId(number)),
            4 => Self::SqDrained(Qpn(number)),
            5 => Self::Established(Qpn(number)),
            6 => Self::AccessViolation(Qpn(number)),
            7 => Self::PeerLost(Qpn(number)),
            8 => Self::LastWqe(Qpn(number)),
            9 => Self::Miss((event >> 32) as u32),
            _ => return None,
        })
    }

    /// The register EVENT.
    pub fn emit(self) -> u64 {
        let (kind, number) = match self {
            Self::Miss(entry) => return u64::from(entry) << 32 | 9,
            Self::QpError(qp) => (1, qp.0),
            Self::CqOverrun(cq) => (2, cq.0),
            Self::SrqLimit(srq) => (3, srq.0),
            Self::SqDrained(qp) => (4, qp.0),
            Self::Established(qp) => (5, qp.0),
            Self::AccessViolation(qp) => (6, qp.0),
            Self::PeerLost(qp) => (7, qp.0),
            Self::LastWqe(qp) => (8, qp.0),
        };
        u64::from(number) << 16 | kind
    }
}

/// A CQ that was armed has something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice(pub CqId);

/// What waits to be fetched.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) waiting: Bounded<Event>,
    /// One a CQ at most, since each has to be armed anew.
    pub(crate) notices: Bounded<Notice>,
    /// CQs that have got CQEs, each once.
    pub(crate) written: Bounded<CqId>,
}

impl Events {
    pub(crate) fn new(events: usize, cqs: usize) -> Self {
        Self { waiting: Bounded::new(events), notices: Bounded::new(cqs), written: Bounded::new(cqs) }
    }
}
