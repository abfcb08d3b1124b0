//! On-the-fly sends: WQEs that go to the device by stores, without a queue in memory (docs/rnic.md, section 13).

use etherslot_rdma::{BLOCK_BYTES, ControlError, ON_THE_FLY_PLACES, PostError, Qpn, SendWork, flag};

use super::device::Device;
use super::driver::Driver;
use super::orders::PAGES;
use super::ring::WorkQueue;

const BOTF_KICK: u32 = 0x020;
const BOTF: u32 = 0x400;
const AOTF: u32 = 0x800;
const HEADERS: u32 = 0xC00;

/// The headers that were prepared: the user's ID of each, and whether it makes CQEs.
#[derive(Debug, Default)]
pub(super) struct Headers([Option<(u64, bool)>; ON_THE_FLY_PLACES]);

impl Driver {
    /// BOTF: sends a whole WQE by stores. What was posted before goes first.
    pub fn kick<D: Device>(&mut self, device: &mut D, qp: Qpn, work: &SendWork<'_>) -> Result<(), PostError> {
        if !self.orders.has_room() {
            return Err(PostError::Full);
        }
        let pair = self.pair(qp).ok_or(PostError::Unknown)?;
        let mut wqe = [0; SendWork::MAX_BYTES];
        let bytes = pair.emit(work, &mut wqe)?;
        let page = self.hand_over(qp)?;
        for (at, block) in (0..).step_by(BLOCK_BYTES).zip(wqe[..bytes].as_chunks::<BLOCK_BYTES>().0) {
            self.orders.write(PAGES, page + BOTF + at, block);
        }
        let blocks = (bytes / BLOCK_BYTES) as u32;
        self.orders.write(PAGES, page + BOTF_KICK, &blocks.to_le_bytes());
        self.orders.make_writes(device);
        Ok(())
    }

    /// AOTF: prepares a header, a Write or Send with 8 inline bytes, for [`Driver::store`].
    pub fn prepare<D: Device>(
        &mut self,
        device: &mut D,
        qp: Qpn,
        place: usize,
        work: &SendWork<'_>,
    ) -> Result<(), ControlError> {
        let is_message = work.opcode.is_write() || work.opcode.is_send();
        let mut wqe = [0; BLOCK_BYTES];
        if !is_message || work.inline.is_none_or(|data| data.len() != 8) || work.emit(&mut wqe).is_none() {
            return Err(ControlError::Invalid);
        }
        wqe[8..16].copy_from_slice(&WorkQueue::header_tag(place).to_le_bytes());
        let pair = self.pair(qp).ok_or(ControlError::Unknown)?;
        let is_signaled = pair.config.signal_all || work.flags & flag::SIGNALED != 0;
        let page = pair.page();
        *pair.headers.0.get_mut(place).ok_or(ControlError::Invalid)? = Some((work.id, is_signaled));
        let at = page + HEADERS + (place * BLOCK_BYTES) as u32;
        for (offset, part) in (0..).step_by(8).zip(wqe.as_chunks::<8>().0) {
            self.orders.write(PAGES, at + offset, part);
        }
        self.orders.make_writes(device);
        Ok(())
    }

    /// AOTF: one store of 8 bytes sends the header of a place with them.
    pub fn store<D: Device>(
        &mut self,
        device: &mut D,
        qp: Qpn,
        place: usize,
        value: u64,
    ) -> Result<(), PostError> {
        if !self.orders.has_room() {
            return Err(PostError::Full);
        }
        let pair = self.pair(qp).ok_or(PostError::Unknown)?;
        let header = pair.headers.0.get(place).copied().flatten();
        let (id, is_signaled) = header.ok_or(PostError::Malformed)?;
        pair.sq.count(WorkQueue::header_tag(place), id, 1, is_signaled)?;
        let page = self.hand_over(qp)?;
        self.orders.write(PAGES, page + AOTF + place as u32 * 8, &value.to_le_bytes());
        self.orders.make_writes(device);
        Ok(())
    }

    /// What was posted in the ring is handed over; the QP's page.
    fn hand_over(&mut self, qp: Qpn) -> Result<u32, PostError> {
        let place = usize::from(qp.0) & self.pairs.len().wrapping_sub(1);
        let Self { orders, pairs, .. } = self;
        let pair = pairs.get_mut(place).and_then(Option::as_mut).ok_or(PostError::Unknown)?;
        pair.ring(orders);
        Ok(pair.page())
    }
}
