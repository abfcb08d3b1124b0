//! The engine at work: segments in, segments out, time.

use etherslot_wire::ddp::{Error, Header, Opcode, Place};
use etherslot_wire::rdmap::{Cause, Verdict};

use crate::config::{PeerId, Qpn};
use crate::engine::Engine;
use crate::memory::{Memory, Wire};
use crate::qp::{Attributes, Service};
use crate::responder::Request;
use crate::shared::{Step, message};

/// Segments of a QP before the next has its turn.
const BURST: usize = 16;
/// Stalled QPs of a peer that are tried again at a time.
const RETRIES: usize = 16;
/// The stream on which a node speaks for itself.
const NODE_STREAM: u16 = 1;

impl Engine {
    /// Takes a DDP segment: the payload of a record of kind DDP that came from this peer.
    pub fn receive<M: Memory>(&mut self, now_ns: u64, peer: PeerId, segment: &[u8], memory: &mut M) {
        self.shared.counters.segments_received += 1;
        let (header, data) = match Header::parse(segment) {
            Ok(parsed) => parsed,
            Err(error) => return self.receive_malformed(peer, segment, error),
        };
        if header.qp == 0 {
            return self.receive_for_node(now_ns, peer, &header, memory);
        }
        let Some((qp, shared)) = self.qp(Qpn(header.qp)).filter(|(qp, _)| qp.receives()) else {
            self.shared.counters.dropped_no_qp += 1;
            self.answer_no_qp(peer, &header);
            return;
        };
        memory.begin(qp.number);
        if qp.init.service == Service::Ud {
            let Header { opcode, place, is_last, .. } = header;
            let request = Request { opcode, place, is_last, data, segment };
            qp.hear_datagram(shared, memory, peer, &request);
            return;
        }
        // The number of a peer that was lost may be another's by now.
        if qp.attributes.peer != peer || qp.is_peer_lost {
            shared.counters.dropped_foreign += 1;
            self.answer_no_qp(peer, &header);
            return;
        }
        match (header.opcode, header.place) {
            (Opcode::ReadResponse, Place::Tagged { stag, to }) => {
                qp.hear_read(shared, memory, (stag, to), header.is_last, data);
            }
            (Opcode::AtomicResponse, Place::Untagged { msn, mo, .. }) => {
                qp.hear_atomic(shared, memory, (msn, mo), header.is_last, data);
            }
            (Opcode::Terminate, _) => qp.hear_terminate(shared, data),
            (Opcode::Acknowledge, Place::Untagged { ulp, msn, mo, .. }) => match Verdict::parse(ulp, mo) {
                Some(verdict) => qp.hear_acknowledge(shared, memory, now_ns, msn, verdict),
                None => shared.counters.dropped_acknowledges += 1,
            },
            (Opcode::Synchronise, Place::Untagged { ulp, msn, mo, .. }) => {
                qp.hear_synchronise(shared, ulp & 1 != 0, (msn, mo), segment);
            }
            (opcode, place) => {
                let request = Request { opcode, place, is_last: header.is_last, data, segment };
                qp.hear_request(shared, memory, &request);
            }
        }
    }

    fn receive_malformed(&mut self, peer: PeerId, segment: &[u8], error: Error) {
        let cause = match error {
            Error::Truncated => {
                self.shared.counters.dropped_truncated += 1;
                return;
            }
            Error::DdpVersion(true) => Cause::TAGGED_VERSION,
            Error::DdpVersion(false) => Cause::UNTAGGED_VERSION,
            Error::RdmapVersion => Cause::RDMAP_VERSION,
            Error::Queue => Cause::UNTAGGED_QUEUE,
            Error::Opcode => Cause::OPCODE,
        };
        self.shared.counters.dropped_malformed += 1;
        let number = etherslot_wire::bytes::u16_at(segment, 0).unwrap_or(0);
        if let Some((qp, shared)) = self.qp(Qpn(number))
            && qp.attributes.peer == peer
        {
            qp.refuse_segment(shared, segment, cause, None);
        }
    }

    /// A segment for the node itself: a QP of ours sent to one that is not there.
    fn receive_for_node<M: Memory>(&mut self, now_ns: u64, peer: PeerId, header: &Header, memory: &mut M) {
        let absent = match header.place {
            Place::Untagged { ulp, msn, mo, .. } if header.opcode == Opcode::Acknowledge => {
                Verdict::parse(ulp, mo).map(|verdict| (verdict, msn))
            }
            _ => None,
        };
        let Some((Verdict::NoQp { qp: absent }, serial)) = absent else {
            self.shared.counters.dropped_malformed += 1;
            return;
        };
        for qp in self.qps.iter_mut() {
            let Attributes { peer: its_peer, remote_qp, .. } = qp.attributes;
            if (its_peer, remote_qp.0) == (peer, absent) && qp.is_rc() {
                let verdict = Verdict::NoQp { qp: absent };
                qp.hear_acknowledge(&mut self.shared, memory, now_ns, serial, verdict);
            }
        }
    }

    fn answer_no_qp(&mut self, peer: PeerId, header: &Header) {
        // What follows a Synchronise that was answered so is known to be dropped.
        if header.opcode == Opcode::Synchronise
            && let Place::Untagged { mo: serial, .. } = header.place
            && !self.shared.schedule.answer_no_qp((peer, header.qp, serial))
        {
            self.shared.counters.dropped_no_qp_answers += 1;
        }
    }

    /// Sends what there is to be sent, as far as the sessions have room.
    pub fn transmit<M: Memory, W: Wire>(&mut self, now_ns: u64, memory: &mut M, wire: &mut W) {
        self.calls += 1;
        while let Some(&(peer, qp, serial)) = self.shared.schedule.no_qp.front() {
            let (ulp, mo) = Verdict::NoQp { qp }.fields();
            let header = message(Qpn(0), Opcode::Acknowledge, ulp, serial, mo);
            if !self.shared.send_small(wire, peer, NODE_STREAM, &header, &[]) {
                break;
            }
            self.shared.schedule.no_qp.pop();
            self.shared.counters.no_qp_sent += 1;
        }
        loop {
            while let Some(number) = self.shared.schedule.ready.pop_front() {
                self.run(number, now_ns, memory, wire);
            }
            if !self.unstall() {
                break;
            }
        }
    }

    /// Makes some stalled QPs ready whose peer was not full in this call; whether there were any.
    fn unstall(&mut self) -> bool {
        let schedule = &mut self.shared.schedule;
        let (calls, full_at) = (self.calls, &self.full_at);
        let mut any = false;
        schedule.stalled_peers.retain(|peer| {
            let at = peer.0 as usize;
            let Some(stalled) = schedule.stalled.get_mut(at) else { return false };
            if full_at.get(at) != Some(&calls) {
                for qp in stalled.drain(..stalled.len().min(RETRIES)) {
                    any = true;
                    schedule.ready.push_back(qp);
                }
            }
            !stalled.is_empty()
        });
        any
    }

    fn run<M: Memory, W: Wire>(&mut self, number: Qpn, now_ns: u64, memory: &mut M, wire: &mut W) {
        let calls = self.calls;
        let slot = self.slot(number);
        let Some(qp) = self.qps.get_mut(slot).filter(|qp| qp.number == number) else { return };
        let shared = &mut self.shared;
        if self.full_at.get(qp.attributes.peer.0 as usize) == Some(&calls) && qp.init.service != Service::Ud {
            shared.schedule.stall(number, qp.attributes.peer);
            return;
        }
        let mut has_sent = false;
        for _ in 0..BURST {
            memory.begin(number);
            let mut step = qp.answer(shared, memory, wire);
            if step == Step::Nothing {
                step = qp.request(shared, now_ns, memory, wire);
            }
            match step {
                Step::Done => has_sent = true,
                Step::Nothing => {
                    qp.place.is_ready = false;
                    return;
                }
                Step::Full(peer) => {
                    if let Some(full_at) = self.full_at.get_mut(peer.0 as usize) {
                        *full_at = calls;
                        // It waits behind those that have not had their turn.
                        if has_sent {
                            shared.schedule.ready.push_back(number);
                        } else {
                            shared.schedule.stall(number, peer);
                        }
                    } else {
                        qp.place.is_ready = false;
                    }
                    return;
                }
                Step::Pending => {
                    shared.schedule.park(number, &mut qp.place);
                    return;
                }
            }
        }
        shared.schedule.ready.push_back(number);
    }

    /// When [`Engine::handle_timeout`] is to be called, if ever.
    pub fn deadline_ns(&self) -> Option<u64> {
        Some(self.shared.schedule.deadline_ns).filter(|&at| at != u64::MAX)
    }

    /// Time has come for QPs that wait.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        if now_ns < self.shared.schedule.deadline_ns {
            return;
        }
        self.shared.schedule.deadline_ns = u64::MAX;
        let mut at = 0;
        while let Some(&number) = self.shared.schedule.timed.get(at) {
            let mut next_ns = 0;
            if let Some((qp, shared)) = self.qp(number) {
                qp.handle_timeout(shared, now_ns);
                next_ns = qp.requester.deadline_ns();
                qp.place.is_timed = next_ns != 0;
            }
            let schedule = &mut self.shared.schedule;
            if next_ns == 0 {
                schedule.timed.swap_remove(at);
            } else {
                schedule.deadline_ns = schedule.deadline_ns.min(next_ns);
                at += 1;
            }
        }
    }
}
