//! QPs: made, connected, removed.

use etherslot_rdma::{
    Access, Attributes, BLOCK_BYTES, ControlError, CqId, Pd, PostError, Qpn, SendWork, Service, SrqId, State,
    flag,
};

use super::device::Device;
use super::driver::{Driver, OWNER, page};
use super::orders::{Order, Orders, PAGES, Ticket};
use super::otf::Headers;
use super::ring::WorkQueue;

/// FEATURES: QPs can be quiet, and the bit of the QPC (byte 40) that makes them so.
const CAN_BE_QUIET: u32 = 1 << 12;
const QUIET: u32 = 1 << 12;

/// What a QP is made with: [`etherslot_rdma::Init`].
pub use etherslot_rdma::Init as QpConfig;

/// A QP.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) number: Qpn,
    pub(super) place: u16,
    pub(super) config: QpConfig,
    pub(super) srq: Option<SrqId>,
    pub(super) sq: WorkQueue,
    pub(super) rq: WorkQueue,
    pub(super) headers: Headers,
    /// Its doorbells count: it is not in RESET.
    pub(super) has_page: bool,
}

impl Pair {
    pub(super) fn page(&self) -> u32 {
        page(self.place)
    }

    /// Counts a WQE and writes it; its bytes.
    pub(super) fn emit(&mut self, work: &SendWork<'_>, wqe: &mut [u8]) -> Result<usize, PostError> {
        let bytes = work.emit(wqe).ok_or(PostError::Malformed)?;
        let is_signaled = self.config.signal_all || work.flags & flag::SIGNALED != 0;
        let tag = self.sq.begin(work.id, bytes / BLOCK_BYTES, is_signaled)?;
        wqe[8..16].copy_from_slice(&tag.to_le_bytes());
        Ok(bytes)
    }

    /// Rings its doorbells, if they are due.
    pub(super) fn ring(&mut self, orders: &mut Orders) {
        for (at, queue) in [(0, &mut self.sq), (4, &mut self.rq)] {
            if let Some(producer) = queue.doorbell() {
                orders.write(PAGES, page(self.place) + at, &u32::from(producer).to_le_bytes());
            }
        }
    }
}

/// Bits of a QPC: what the peer may do.
fn rights(access: Access) -> u32 {
    u32::from(access.has(Access::REMOTE_WRITE)) << 8
        | u32::from(access.has(Access::REMOTE_READ)) << 9
        | u32::from(access.has(Access::REMOTE_ATOMIC)) << 10
}

impl Driver {
    /// Makes a QP, in RESET. Its queues are powers of two, of 16 blocks at least.
    pub fn create_qp<D: Device>(&mut self, device: &mut D, config: &QpConfig) -> Result<Qpn, ControlError> {
        let blocks = |count: usize| count.clamp(16, 1 << 15).next_power_of_two();
        let config =
            QpConfig { sq_blocks: blocks(config.sq_blocks), rq_blocks: blocks(config.rq_blocks), ..*config };
        let has_cq = |cq: CqId| self.cqs.get(usize::from(cq.0)).is_some_and(Option::is_some);
        if !has_cq(config.send_cq) || !has_cq(config.receive_cq) {
            return Err(ControlError::Unknown);
        }
        let place = self.pairs.iter().position(Option::is_none).ok_or(ControlError::NoRoom)?;
        if let Some(srq) = config.srq {
            self.count_srq(srq, config.pd, true)?;
        }
        let memory = self.queue_memory(device, config.sq_blocks * BLOCK_BYTES).and_then(|sq| {
            match self.queue_memory(device, config.rq_blocks * BLOCK_BYTES) {
                Ok(rq) => Ok((sq, rq)),
                Err(error) => {
                    self.free(sq);
                    Err(error)
                }
            }
        });
        let (sq, rq) = match memory {
            Ok(places) => places,
            Err(error) => {
                if let Some(srq) = config.srq {
                    self.count_srq(srq, config.pd, false)?;
                }
                return Err(error);
            }
        };
        for cq in [config.send_cq, config.receive_cq] {
            if let Some(queue) = &mut self.cqs[usize::from(cq.0)] {
                queue.users += 1;
            }
        }
        let number = self.number(place);
        self.pairs[place] = Some(Pair {
            number,
            place: place as u16,
            srq: config.srq,
            sq: WorkQueue::new(sq, config.sq_blocks as u32),
            rq: WorkQueue::new(rq, config.rq_blocks as u32),
            headers: Headers::default(),
            has_page: false,
            config,
        });
        Ok(number)
    }

    /// The number that a QP in this place gets: another one each time, neither 0 nor 1.
    fn number(&mut self, place: usize) -> Qpn {
        let places = self.generations.len();
        let generation = &mut self.generations[place];
        loop {
            let number = place + usize::from(*generation) * places;
            *generation = (*generation + 1) % ((1 << 16) / places) as u16;
            if number >= 2 {
                return Qpn(number as u16);
            }
        }
    }

    /// Changes the state of a QP, and what it is connected with. What the new state allows may be posted when the order has ended.
    pub fn modify_qp(
        &mut self,
        qp: Qpn,
        state: State,
        attributes: &Attributes,
    ) -> Result<Ticket, ControlError> {
        self.go(qp, &[state], attributes, false)
    }

    /// Takes a QP from RESET over INIT and RTR to RTS.
    pub fn connect(&mut self, qp: Qpn, attributes: &Attributes) -> Result<Ticket, ControlError> {
        self.go(qp, &[State::Init, State::Rtr, State::Rts], attributes, false)
    }

    /// Removes a QP with all that is in it. Its number and memory are free when the order has ended.
    pub fn destroy_qp(&mut self, qp: Qpn) -> Result<Ticket, ControlError> {
        self.go(qp, &[State::Reset], &Attributes::default(), true)
    }

    fn go(
        &mut self,
        qp: Qpn,
        states: &[State],
        attributes: &Attributes,
        removes: bool,
    ) -> Result<Ticket, ControlError> {
        let pair = self.pair(qp).ok_or(ControlError::Unknown)?;
        let place = pair.place;
        if !removes {
            self.write_context(qp, attributes);
        }
        let ticket = self.orders.ticket();
        for (at, &state) in states.iter().enumerate() {
            let is_last = at + 1 == states.len();
            self.orders.push(Order::Go { place, state: state as u8, is_last, removes }, ticket);
        }
        let pair = self.pair(qp).ok_or(ControlError::Unknown)?;
        if states.contains(&State::Reset) {
            pair.sq.clear();
            pair.rq.clear();
            pair.has_page = false;
        } else {
            pair.has_page = true;
        }
        Ok(ticket)
    }

    fn write_context(&mut self, qp: Qpn, attributes: &Attributes) {
        let Some(pair) = self.pair(qp) else { return };
        let config = pair.config;
        let (sq, rq, place) = (pair.sq.place.address, pair.rq.place.address, pair.place);
        let service = match config.service {
            Service::Rc => 0,
            Service::Uc => 1,
            Service::Ud => 3,
        };
        let word = u32::from(qp.0) << 16
            | u32::from(config.srq.is_some()) << 7
            | u32::from(config.signal_all) << 6
            | service << 4;
        let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let halves = |low: u16, high: u16| u32::from(high) << 16 | u32::from(low);
        let logs = config.rq_blocks.trailing_zeros() << 24 | config.sq_blocks.trailing_zeros() << 16;
        let reads = u32::from(attributes.ord) << 24 | u32::from(attributes.ird) << 16;
        let retries = u32::from(attributes.retries.min(7)) << 3 | u32::from(attributes.rnr_retries.min(7));
        let can_be_quiet = self.limits.features & CAN_BE_QUIET != 0;
        let quiet = if attributes.is_quiet && can_be_quiet { QUIET } else { 0 };
        let Pd(pd) = config.pd;
        self.write_entry(
            3,
            u32::from(place) * 256,
            [
                (0, join(word, halves(pd, OWNER as u16))),
                (
                    8,
                    join(
                        halves(config.send_cq.0, config.receive_cq.0),
                        logs | u32::from(config.srq.map_or(0, |srq| srq.0)),
                    ),
                ),
                (16, sq),
                (24, rq),
                (
                    32,
                    join(
                        halves(attributes.peer.0, attributes.remote_qp.0),
                        reads | u32::from(attributes.stream),
                    ),
                ),
                (40, join(rights(attributes.access) | retries | quiet, attributes.rnr_wait_us)),
                (48, join(attributes.first_sent, attributes.first_expected)),
                (56, join(attributes.q_key, attributes.question_us)),
            ],
        );
    }

    /// The QP is in RESET: nobody uses its memory any more.
    pub(super) fn free_pair(&mut self, place: u16) {
        let Some(pair) = self.pairs.get_mut(usize::from(place)).and_then(Option::take) else { return };
        for cq in [pair.config.send_cq, pair.config.receive_cq] {
            if let Some(queue) = self.cqs.get_mut(usize::from(cq.0)).and_then(Option::as_mut) {
                queue.users = queue.users.saturating_sub(1);
            }
        }
        if let Some(srq) = pair.srq {
            let known = self.count_srq(srq, pair.config.pd, false);
            debug_assert!(known.is_ok(), "an SRQ with QPs stays");
        }
        self.free(pair.sq.place);
        self.free(pair.rq.place);
        self.dirty_pairs.retain(|&other| other != place);
    }
}
