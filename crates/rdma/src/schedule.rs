//! Whose turn it is: QPs with something to send, QPs that wait for a time, answers of no QP's.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::config::{PeerId, Qpn};
use crate::ring::Bounded;

/// *No QP* answers that may wait at once.
const NO_QP_ANSWERS: usize = 64;

/// Where a QP stands in the schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// It is in a list of those that have something to send.
    pub(crate) is_ready: bool,
    /// It waits for memory.
    pub(crate) is_parked: bool,
    /// It is in the list of those that wait for a time.
    pub(crate) is_timed: bool,
}

/// The schedule.
#[derive(Debug)]
pub(crate) struct Schedule {
    pub(crate) ready: VecDeque<Qpn>,
    /// Ready, but the session of their peer was full; by peer.
    pub(crate) stalled: Vec<VecDeque<Qpn>>,
    /// Peers with stalled QPs.
    pub(crate) stalled_peers: Vec<PeerId>,
    pub(crate) parked: Vec<Qpn>,
    pub(crate) timed: Vec<Qpn>,
    /// No QP waits for an earlier time.
    pub(crate) deadline_ns: u64,
    /// Whom to tell, of which QP, and the serial of the Synchronise.
    pub(crate) no_qp: Bounded<(PeerId, u16, u32)>,
    /// Peers without a session: datagrams to them are dropped.
    lost: Vec<bool>,
}

impl Schedule {
    pub(crate) fn new(peers: usize, qps: usize) -> Self {
        Self {
            ready: VecDeque::with_capacity(qps),
            stalled: (0..peers).map(|_| VecDeque::new()).collect(),
            stalled_peers: Vec::with_capacity(peers),
            parked: Vec::with_capacity(qps),
            timed: Vec::with_capacity(qps),
            deadline_ns: u64::MAX,
            no_qp: Bounded::new(NO_QP_ANSWERS),
            lost: alloc::vec![false; peers],
        }
    }

    /// This QP has something to send.
    #[inline]
    pub(crate) fn wake(&mut self, qp: Qpn, place: &mut Place) {
        if !place.is_ready && !place.is_parked {
            place.is_ready = true;
            self.ready.push_back(qp);
        }
    }

    /// It had something to send, but the peer's session is full.
    pub(crate) fn stall(&mut self, qp: Qpn, peer: PeerId) {
        match self.stalled.get_mut(peer.0 as usize) {
            Some(stalled) => {
                if stalled.is_empty() {
                    self.stalled_peers.push(peer);
                }
                stalled.push_back(qp);
            }
            None => self.ready.push_back(qp),
        }
    }

    /// It waits for memory.
    pub(crate) fn park(&mut self, qp: Qpn, place: &mut Place) {
        place.is_ready = false;
        place.is_parked = true;
        self.parked.push(qp);
    }

    /// It waits for memory no more.
    pub(crate) fn unpark(&mut self, qp: Qpn, place: &mut Place) {
        if place.is_parked {
            place.is_parked = false;
            self.parked.retain(|&other| other != qp);
        }
    }

    /// It is to be looked at by then.
    pub(crate) fn time(&mut self, qp: Qpn, place: &mut Place, at_ns: u64) {
        if !place.is_timed {
            place.is_timed = true;
            self.timed.push(qp);
        }
        self.deadline_ns = self.deadline_ns.min(at_ns);
    }

    /// Whether there is no way to this peer.
    pub(crate) fn is_lost(&self, peer: PeerId) -> bool {
        self.lost.get(peer.0 as usize).copied().unwrap_or(true)
    }

    /// There is no way to this peer any more, or there is one again. Who waited for it looks again.
    pub(crate) fn set_lost(&mut self, peer: PeerId, lost: bool) {
        if let Some(place) = self.lost.get_mut(peer.0 as usize) {
            *place = lost;
        }
        if let Some(stalled) = self.stalled.get_mut(peer.0 as usize) {
            self.ready.extend(stalled.drain(..));
            self.stalled_peers.retain(|&other| other != peer);
        }
    }

    /// The QP is no more.
    pub(crate) fn forget(&mut self, qp: Qpn) {
        self.ready.retain(|&other| other != qp);
        self.parked.retain(|&other| other != qp);
        self.timed.retain(|&other| other != qp);
        for stalled in &mut self.stalled {
            stalled.retain(|&other| other != qp);
        }
    }

    /// Answers a peer's Synchronise that there is no such QP; false if it cannot be said.
    pub(crate) fn answer_no_qp(&mut self, answer: (PeerId, u16, u32)) -> bool {
        self.no_qp.iter().any(|&told| told == answer) || self.no_qp.push(answer)
    }
}
