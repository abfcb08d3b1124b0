//! The Admin commands of a start: what controller and namespace say of themselves, and the queues.

use std::fmt;

use super::bits::{NUMBER_OF_QUEUES, PAGE_BYTES};
use super::bring_up::{CMB_ADDRESS, Step, sq_bytes, u32_of};
use super::{Controller, ControllerData, DataPointers, Entries, Failure, IDENTIFY, NamespaceData, Sqe};
use crate::arena::Arena;
use crate::disk::DiskInfo;
use crate::machine::Machine;

/// Namespaces that are asked for at most.
const MAX_NAMESPACES: usize = 256;

/// Structures of Identify (CNS).
const CNS_NAMESPACE: u8 = 0;
const CNS_CONTROLLER: u8 = 1;
const CNS_ACTIVE: u8 = 2;

impl Controller {
    /// Issues an Admin command, if it was not, and takes its completion, if it is there.
    fn command<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<'_, A>,
        name: &'static str,
        sqe: Sqe,
    ) -> Option<Result<u32, Failure>> {
        if !self.asked {
            self.admin_id = self.admin_id.wrapping_add(1) & 0x7FFF;
            self.admin.push(machine.arena_mut(), &sqe.identified(self.admin_id));
            (self.asked, self.asked_ns) = (true, now_ns);
        }
        if self.admin.is_due() {
            self.admin.ring(machine);
        }
        while let Some(completion) = self.admin.pop(machine.arena()) {
            if completion.command_id != self.admin_id {
                self.counters.stray_completions += 1;
                continue;
            }
            self.asked = false;
            let status = completion.status;
            let is_well = status == crate::Status::SUCCESS;
            return Some(if is_well {
                Ok(completion.result)
            } else {
                Err(Failure::Command { command: name, status })
            });
        }
        let is_late = now_ns - self.asked_ns > self.config.command_timeout_ns;
        is_late.then_some(Err(Failure::Silent("answer Admin commands")))
    }

    pub(super) fn administer<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<'_, A>,
    ) -> bool {
        let data = Arena::address(IDENTIFY);
        let (name, sqe) = match &self.step {
            Step::Identify => ("Identify Controller", Sqe::identify(CNS_CONTROLLER, 0, data)),
            Step::Active => ("Identify Active Namespaces", Sqe::identify(CNS_ACTIVE, 0, data)),
            Step::Namespaces(list, at) => (
                "Identify Namespace",
                Sqe::identify(CNS_NAMESPACE, list.get(*at).copied().unwrap_or(0), data),
            ),
            Step::Count => {
                let count = u32::from(self.config.queues - 1);
                ("Set Features Number of Queues", Sqe::set_feature(NUMBER_OF_QUEUES, count << 16 | count))
            }
            Step::CreateCq(at) => {
                let ring = &self.queues[*at].ring;
                let vector = self.config.interrupts.then_some(ring.id);
                let create = Sqe::create_cq(ring.id, ring.cq_entries, Arena::address(ring.cq), vector);
                ("Create I/O Completion Queue", create)
            }
            Step::CreateSq(at) => {
                let ring = &self.queues[*at].ring;
                let address = match ring.entries {
                    Entries::Here => Arena::address(ring.sq),
                    Entries::Pushed { .. } => {
                        let before = &self.queues[..*at];
                        let offset: usize = before.iter().map(|queue| sq_bytes(queue.ring.sq_entries)).sum();
                        CMB_ADDRESS + offset as u64
                    }
                };
                ("Create I/O Submission Queue", Sqe::create_sq(ring.id, ring.sq_entries, address))
            }
            _ => return false,
        };
        match self.command(now_ns, machine, name, sqe) {
            None => false,
            Some(Err(failure)) => self.fail(now_ns, failure),
            Some(Ok(result)) => match self.administered(now_ns, machine, result) {
                Ok(()) => true,
                Err(failure) => self.fail(now_ns, failure),
            },
        }
    }

    /// The Admin command of this step went well.
    fn administered<A: Copy + Eq + fmt::Display>(
        &mut self,
        now_ns: u64,
        machine: &mut Machine<'_, A>,
        result: u32,
    ) -> Result<(), Failure> {
        let mut data = [0; PAGE_BYTES];
        data.copy_from_slice(machine.arena().at(IDENTIFY, PAGE_BYTES));
        match &mut self.step {
            Step::Identify => {
                self.identity = Some(ControllerData::parse(&data));
                self.namespaces.clear();
                self.step = Step::Active;
            }
            Step::Active => {
                let nsids = data.chunks_exact(4).map(u32_of).take_while(|&nsid| nsid != 0);
                let mut list: Vec<u32> = nsids.take(MAX_NAMESPACES).collect();
                if !list.contains(&self.config.nsid) {
                    return Err(Failure::NoNamespace { nsid: self.config.nsid, active: list });
                }
                if !self.config.identify_all {
                    list = vec![self.config.nsid];
                }
                self.step = Step::Namespaces(list, 0);
            }
            Step::Namespaces(list, at) => {
                let nsid = list.get(*at).copied().unwrap_or(0);
                self.namespaces.push(NamespaceData::parse(nsid, &data));
                *at += 1;
                if *at >= list.len() {
                    self.learn()?;
                    self.step = Step::Count;
                }
            }
            Step::Count => {
                let granted = (result & 0xFFFF).min(result >> 16) as usize + 1;
                if self.known && granted < self.active {
                    return Err(Failure::Changed);
                }
                if !self.known {
                    self.active = granted.min(self.queues.len());
                    let entries = self.capabilities.max_entries();
                    self.queues.iter_mut().for_each(|queue| queue.limit(entries));
                }
                self.step = Step::CreateCq(0);
            }
            Step::CreateCq(at) => self.step = Step::CreateSq(*at),
            Step::CreateSq(at) if *at + 1 < self.active => self.step = Step::CreateCq(*at + 1),
            Step::CreateSq(_) => self.go(now_ns, machine),
            _ => {}
        }
        if let Step::CreateCq(at) = self.step {
            let queue = &mut self.queues[at];
            let depth = queue.depth();
            queue.ring.restart(machine.arena_mut(), self.capabilities.doorbell_bytes(), depth);
        }
        Ok(())
    }

    /// Takes what controller and namespace have told for the disk's, or compares it with that.
    fn learn(&mut self) -> Result<(), Failure> {
        let (Some(controller), Some(namespace)) =
            (&self.identity, self.namespaces.iter().find(|namespace| namespace.nsid == self.config.nsid))
        else {
            return Err(Failure::Changed);
        };
        let NamespaceData { nsid, blocks, block_shift, metadata_bytes, .. } = *namespace;
        let is_sound = (9..=16).contains(&block_shift) && metadata_bytes == 0;
        if !is_sound
            || blocks.checked_shl(block_shift.into()).is_none_or(|bytes| bytes >> block_shift != blocks)
        {
            return Err(Failure::Format { nsid, block_shift, metadata_bytes });
        }
        self.sgls = self.config.data_pointers == DataPointers::Sgl && controller.can_use_sgls();
        let block_bytes = 1u32 << block_shift;
        let most = controller.max_transfer_bytes.unwrap_or(u64::MAX).min(u64::from(block_bytes) << 16);
        let most = most.min(self.largest_buffer() as u64) as u32;
        let depth = u32::from(self.config.queue_depth).min(self.capabilities.max_entries() - 1);
        let info = DiskInfo {
            block_bytes,
            blocks,
            max_transfer_bytes: most / block_bytes * block_bytes,
            max_zero_blocks: 1 << 16,
            max_discard_blocks: u32::MAX,
            queue_depth: depth as usize,
            read_only: namespace.read_only,
            volatile_cache: controller.volatile_cache,
            can_discard: controller.can_deallocate(),
            can_write_zeroes: controller.can_write_zeroes(),
            can_compare: controller.can_compare(),
            discard_zeroes: namespace.deallocated_zeroes,
            serial: controller.serial.clone(),
            model: controller.model.clone(),
            firmware: controller.firmware.clone(),
        };
        let is_same = |old: &DiskInfo| {
            (old.block_bytes, old.blocks, &old.serial) == (info.block_bytes, info.blocks, &info.serial)
                && old.max_transfer_bytes <= info.max_transfer_bytes
        };
        if self.known {
            return if is_same(&self.info) { Ok(()) } else { Err(Failure::Changed) };
        }
        self.info = info;
        Ok(())
    }
}
