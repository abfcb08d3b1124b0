//! The admin command set (NVMe Base 1.4, 5), but for Format NVM.

use super::Nvme;
use super::bits::{NSID_ALL, PAGE_BYTES, log};
use super::command::{Admin, CreateCq, CreateSq, Feature, GetLogPage};
use super::engine::members;
use super::events::Event;
use super::features::{Change, Features, Value};
use super::identify;
use super::logs::{KELVIN, warning};
use super::medium::With;
use super::queue::{Cq, MAX_ENTRIES, Sq};
use super::slot::Phase;
use super::status::Status;
use etherslot_pci::function::InterruptMode;
use etherslot_storage::Op;

/// Controller or Namespace Structure (Figure 244).
mod cns {
    pub(super) const NAMESPACE: u8 = 0x00;
    pub(super) const CONTROLLER: u8 = 0x01;
    pub(super) const ACTIVE_NAMESPACES: u8 = 0x02;
    pub(super) const DESCRIPTORS: u8 = 0x03;
    /// Of version 2.0; Linux asks every controller for it, and counts the refusal among its errors.
    pub(super) const COMMAND_SET_CONTROLLER: u8 = 0x06;
    pub(super) const ALLOCATED_NAMESPACES: u8 = 0x10;
    pub(super) const ALLOCATED_NAMESPACE: u8 = 0x11;
    pub(super) const CONTROLLERS_OF_NAMESPACE: u8 = 0x12;
    pub(super) const CONTROLLERS: u8 = 0x13;
}

impl Nvme {
    /// Begins an admin command.
    pub(super) fn start_admin(&mut self, index: u16, admin: Admin) {
        let begun = match admin {
            Admin::DeleteSq { qid } => self.delete_sq(index, qid).map(|()| None),
            Admin::CreateSq(create) => self.create_sq(&create).map(|()| Some(0)),
            Admin::DeleteCq { qid } => self.delete_cq(qid).map(|()| Some(0)),
            Admin::CreateCq(create) => self.create_cq(&create).map(|()| Some(0)),
            Admin::Abort { sqid, cid } => Ok(Some(u32::from(!self.abort(sqid, cid)))),
            Admin::AsyncEventRequest => self.leave_event_request(index).map(|()| None),
            Admin::GetLogPage(page) => self.check_log_page(index, &page).map(|()| None),
            Admin::Identify { .. } => self.make_for_host(index, identify::BYTES).map(|()| None),
            Admin::GetFeatures(feature) => self.start_get_features(index, &feature),
            Admin::SetFeatures(feature) => self.start_set_features(index, &feature),
            Admin::Format(format) => self.start_format(index, format).map(|()| None),
        };
        match begun {
            Ok(Some(result)) => self.succeed(index, result),
            Ok(None) => {}
            Err(status) => self.end(index, status),
        }
    }

    fn succeed(&mut self, index: u16, result: u32) {
        self.slots[usize::from(index)].result = result;
        self.end(index, Status::SUCCESS);
    }

    /// `bytes` of data will go to the host; they are made when there is a Buf for them.
    fn make_for_host(&mut self, index: u16, bytes: usize) -> Result<(), Status> {
        let slot = &mut self.slots[usize::from(index)];
        slot.transfer.begin(&slot.sqe, bytes as u32, true)?;
        self.equip(index, 1, bytes);
        Ok(())
    }

    /// The command has its Buf.
    pub(super) fn go_admin(&mut self, index: u16, admin: Admin) {
        if matches!(admin, Admin::SetFeatures(_)) {
            return self.gather(index);
        }
        let slot = &mut self.slots[usize::from(index)];
        let bytes = slot.transfer.total() as usize;
        let Some(mut buf) = slot.buf.take() else { return self.end(index, Status::INTERNAL_ERROR) };
        // What another command left in the Buf is nobody's business.
        buf[..bytes].fill(0);
        let made = match admin {
            Admin::Identify { cns, cntid, nsid, csi } => {
                self.identify(cns, cntid, nsid, csi, &mut buf[..bytes])
            }
            Admin::GetLogPage(page) => self.log_page(&page, &mut buf[..bytes]),
            Admin::GetFeatures(feature) => self.features.get(&feature, self.now_ns).map(|value| {
                if let Value::Data(data, count) = value {
                    let count = count.min(bytes);
                    buf[..count].copy_from_slice(&data[..count]);
                }
            }),
            _ => Err(Status::INTERNAL_ERROR),
        };
        self.slots[usize::from(index)].buf = Some(buf);
        match made {
            Ok(()) => self.scatter(index),
            Err(status) => self.end(index, status),
        }
    }

    /// The data from the host are in the Buf.
    pub(super) fn gathered_admin(&mut self, index: u16, admin: Admin) {
        let Admin::SetFeatures(feature) = admin else {
            return self.end(index, Status::INTERNAL_ERROR);
        };
        let mut data = [0; 16];
        let bytes = Features::data_bytes(&feature);
        if let Some(buf) = &self.slots[usize::from(index)].buf {
            data[..bytes].copy_from_slice(&buf[..bytes]);
        }
        match self.set_feature(index, &feature, &data[..bytes]) {
            Ok(Some(result)) => self.succeed(index, result),
            Ok(None) => {}
            Err(status) => self.end(index, status),
        }
    }

    /// The medium has done what was asked last.
    pub(super) fn medium_done_admin(&mut self, index: u16, admin: Admin) {
        match admin {
            Admin::Format(format) => self.format_more(index, format),
            _ => self.end(index, Status::SUCCESS),
        }
    }

    // Queues

    fn create_cq(&mut self, create: &CreateCq) -> Result<(), Status> {
        let allocated = self.features.queues().1;
        if create.qid == 0 || create.qid > allocated || self.queues.cq(create.qid).is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        self.check_queue(create.size, create.contiguous, create.base)?;
        if create.interrupts && create.vector >= self.usable_vectors() {
            return Err(Status::INVALID_VECTOR);
        }
        let vector = create.interrupts.then_some(create.vector);
        let cq = Cq::new(create.base, u32::from(create.size) + 1, vector, self.slots.len());
        self.queues.cqs[usize::from(create.qid)] = Some(cq);
        Ok(())
    }

    fn create_sq(&mut self, create: &CreateSq) -> Result<(), Status> {
        let allocated = self.features.queues().0;
        if create.qid == 0 || create.qid > allocated || self.queues.sq(create.qid).is_some() {
            return Err(Status::INVALID_QUEUE_ID);
        }
        if create.cqid == 0 || self.queues.cq(create.cqid).is_none() {
            return Err(Status::CQ_INVALID);
        }
        self.check_queue(create.size, create.contiguous, create.base)?;
        if let Some(cq) = self.queues.cq(create.cqid) {
            cq.users += 1;
        }
        let sq = Sq::new(create.base, u32::from(create.size) + 1, create.cqid);
        self.queues.sqs[usize::from(create.qid)] = Some(sq);
        self.rule_changed(create.qid);
        Ok(())
    }

    fn check_queue(&self, size: u16, contiguous: bool, base: u64) -> Result<(), Status> {
        if size == 0 || u32::from(size) >= MAX_ENTRIES {
            return Err(Status::INVALID_QUEUE_SIZE);
        }
        // CAP.CQR; CC.IOSQES and CC.IOCQES have to be set before any queue is made (3.1.5).
        if !contiguous || !self.registers.has_io_entry_sizes() {
            return Err(Status::INVALID_FIELD);
        }
        if base & u64::from(PAGE_BYTES - 1) != 0 {
            return Err(Status::PRP_OFFSET_INVALID);
        }
        Ok(())
    }

    fn usable_vectors(&self) -> u16 {
        match self.interrupt_mode {
            InterruptMode::MsiX(vectors) | InterruptMode::Msi(vectors) => vectors,
            InterruptMode::IntX => 1,
            InterruptMode::Disabled => self.vectors.max(1),
        }
    }

    fn delete_cq(&mut self, qid: u16) -> Result<(), Status> {
        match self.queues.cq(qid) {
            Some(_) if qid == 0 => Err(Status::INVALID_QUEUE_ID),
            None => Err(Status::INVALID_QUEUE_ID),
            Some(cq) if cq.users > 0 => Err(Status::INVALID_QUEUE_DELETION),
            Some(_) => {
                self.queues.forget_cq(qid);
                Ok(())
            }
        }
    }

    /// The queue takes no more commands; it is gone, and the Delete complete, when those under way have ended.
    fn delete_sq(&mut self, index: u16, qid: u16) -> Result<(), Status> {
        let sq = self.queues.sq(qid).filter(|sq| qid != 0 && sq.deleted_by.is_none());
        let sq = sq.ok_or(Status::INVALID_QUEUE_ID)?;
        sq.deleted_by = Some(index);
        self.slots[usize::from(index)].phase = Phase::Parked;
        if sq.in_flight == 0 {
            self.submission_queue_is_idle(qid, index);
        }
        Ok(())
    }

    /// The last command of a queue that is to be deleted has ended.
    pub(super) fn submission_queue_is_idle(&mut self, qid: u16, deleter: u16) {
        self.queues.forget_sq(qid);
        self.rule_changed(qid);
        self.end(deleter, Status::SUCCESS);
    }

    // Abort and Asynchronous Event Request

    /// Whether the command could be aborted: only one that has not begun to move data.
    fn abort(&mut self, sqid: u16, cid: u16) -> bool {
        if sqid == 0 && self.events.take_back(cid) {
            return self.abort_event_request(cid);
        }
        let waits = |slot: &super::slot::Slot| {
            slot.phase == Phase::Buffers && slot.sqid == sqid && slot.sqe.cid() == cid
        };
        let Some(index) = self.slots.iter().position(waits) else { return false };
        self.pool.forget(index as u16);
        self.end(index as u16, Status::ABORT_REQUESTED);
        true
    }

    fn leave_event_request(&mut self, index: u16) -> Result<(), Status> {
        if !self.events.leave(self.slots[usize::from(index)].sqe.cid()) {
            return Err(Status::AER_LIMIT_EXCEEDED);
        }
        self.leave(index);
        Ok(())
    }

    // Data for the host

    fn identify(&mut self, cns: u8, cntid: u16, nsid: u32, csi: u8, data: &mut [u8]) -> Result<(), Status> {
        let namespace = self.namespaces.get(nsid.wrapping_sub(1) as usize).ok_or(Status::INVALID_NAMESPACE);
        match cns {
            cns::NAMESPACE | cns::ALLOCATED_NAMESPACE => identify::namespace(data, namespace?),
            cns::CONTROLLER => {
                identify::controller(data, &self.identity, self.max_transfer_bytes, &self.namespaces);
            }
            cns::ACTIVE_NAMESPACES | cns::ALLOCATED_NAMESPACES => {
                if nsid >= NSID_ALL - 1 {
                    return Err(Status::INVALID_NAMESPACE);
                }
                identify::namespace_list(data, nsid, self.namespaces.len());
            }
            cns::DESCRIPTORS => identify::descriptors(data, namespace?),
            // All zeros: no limit beyond those of the commands themselves.
            cns::COMMAND_SET_CONTROLLER if csi == 0 => {}
            cns::CONTROLLERS_OF_NAMESPACE => {
                namespace?;
                identify::controller_list(data, cntid);
            }
            cns::CONTROLLERS => identify::controller_list(data, cntid),
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(())
    }

    fn check_log_page(&mut self, index: u16, page: &GetLogPage) -> Result<(), Status> {
        if page.bytes > self.max_transfer_bytes as u64 || page.offset & 3 != 0 {
            return Err(Status::INVALID_FIELD);
        }
        // LPA bit 0: SMART is kept for the controller, not for each namespace.
        if page.lid == log::SMART && page.nsid != 0 && page.nsid != NSID_ALL {
            return Err(Status::INVALID_FIELD);
        }
        self.make_for_host(index, page.bytes as usize)
    }

    fn log_page(&mut self, page: &GetLogPage, data: &mut [u8]) -> Result<(), Status> {
        let beyond = self.features.is_beyond_threshold(KELVIN);
        self.logs.read(page.lid, page.offset, !page.retain, beyond, self.now_ns, data)?;
        if !page.retain {
            self.events.log_was_read(page.lid);
        }
        Ok(())
    }

    // Features

    /// The result if there is one without data.
    fn start_get_features(&mut self, index: u16, feature: &Feature) -> Result<Option<u32>, Status> {
        match self.features.get(feature, self.now_ns)? {
            Value::Dword(dword) => Ok(Some(dword)),
            Value::Data(_, bytes) => self.make_for_host(index, bytes).map(|()| None),
        }
    }

    fn start_set_features(&mut self, index: u16, feature: &Feature) -> Result<Option<u32>, Status> {
        self.features.check_set(feature, self.queues.has_io())?;
        let bytes = Features::data_bytes(feature);
        if bytes == 0 {
            return self.set_feature(index, feature, &[]);
        }
        let slot = &mut self.slots[usize::from(index)];
        slot.transfer.begin(&slot.sqe, bytes as u32, false)?;
        self.equip(index, 1, bytes);
        Ok(None)
    }

    fn set_feature(&mut self, index: u16, feature: &Feature, data: &[u8]) -> Result<Option<u32>, Status> {
        match self.features.set(feature, data, self.now_ns)? {
            Change::Kept(result) => Ok(Some(result)),
            Change::CacheOff => {
                for nsid in 1..=self.namespaces.len() as u32 {
                    self.request(index, nsid, Op::Flush, (0, 0), With::Nothing);
                }
                Ok(None)
            }
            Change::Thresholds => {
                let wanted = self.features.async_events() & u32::from(warning::TEMPERATURE) != 0;
                if wanted && self.features.is_beyond_threshold(KELVIN) {
                    self.events.raise(Event::Temperature);
                }
                Ok(Some(0))
            }
        }
    }
}

impl super::engine::Queues {
    fn forget_cq(&mut self, qid: u16) {
        self.cqs[usize::from(qid)] = None;
        let rest = !(1 << qid);
        self.staged &= rest;
        self.signal &= rest;
        self.held &= rest;
    }

    fn forget_sq(&mut self, qid: u16) {
        if let Some((_, cq)) = self.cq_of(qid) {
            cq.users -= 1;
        }
        self.sqs[usize::from(qid)] = None;
        let rest = !(1 << qid);
        self.news &= rest;
        self.fetched &= rest;
        debug_assert!(members(self.news).all(|other| other != usize::from(qid)));
    }
}
