//! A small NVMe driver that does what Linux does: it finds the device, sets it up, works with it, and when commands time
//! out or registers read as all ones, resets it, until its work is done.

pub(crate) mod buffer;
mod ring;
mod work;

use crate::checkers::verdict::Rule;
use crate::guest::bus::{Place, Trouble};
use crate::guest::cpu::Cpu;
use crate::guest::driver::ring::{CompletionRing, InDevice, SubmissionRing};
use crate::guest::driver::work::Active;
use crate::guest::extent::Namespace;
use crate::guest::machine::Purpose;
use crate::guest::nvme::{
    BUFFER_ENABLE, BUFFER_REGISTERS, BUFFER_SUBMISSIONS, CAP_BUFFER, CC_ENABLE, CC_SHUTDOWN, CSTS_FATAL,
    CSTS_READY, CSTS_SHUTDOWN_COMPLETE, CSTS_SHUTDOWN_MASK, Completion, Submission, admin, feature, register,
    status,
};
use crate::plan::{GuestPlan, InterruptPlan};
use crate::random::Random;

/// A command that takes longer has timed out.
const COMMAND_TIMEOUT_NS: u64 = 3_000_000_000;
const NVME_CLASS: u32 = 0x01_0802;
const ADMIN_ENTRIES: u16 = 16;
const EVENT_REQUESTS: usize = 2;

/// The driver.
pub(crate) struct Driver {
    cpu: Cpu,
    plan: GuestPlan,
    random: Random,
    place: Place,
    doorbell_stride: u64,
    ready_timeout_ns: u64,
    most_entries: u16,
    most_bytes: usize,
    has_cache: bool,
    has_sgl: bool,
    /// The free rest of the controller's memory buffer, and its bytes.
    buffer: Option<(InDevice, u64)>,
    optional: u16,
    namespaces: Vec<Namespace>,
    submissions: Vec<SubmissionRing>,
    completions: Vec<CompletionRing>,
    queue_pages: Vec<u64>,
    admin_done: Vec<(u16, Completion, Vec<u8>)>,
    active: Vec<Active>,
    commands_left: u32,
    burst_left: u32,
    pause_until_ns: u64,
}

impl Driver {
    /// A driver that does what `plan` says.
    pub(crate) fn new(cpu: Cpu, plan: GuestPlan, random: Random) -> Self {
        Self {
            commands_left: plan.commands,
            burst_left: plan.burst,
            place: Place::new(cpu.clone(), plan.clone(), NVME_CLASS),
            cpu,
            plan,
            random,
            doorbell_stride: 4,
            ready_timeout_ns: 500_000_000,
            most_entries: 2,
            most_bytes: 4096,
            has_cache: true,
            has_sgl: false,
            buffer: None,
            optional: 0,
            namespaces: Vec::new(),
            submissions: Vec::new(),
            completions: Vec::new(),
            queue_pages: Vec::new(),
            admin_done: Vec::new(),
            active: Vec::new(),
            pause_until_ns: 0,
        }
    }

    /// Drives the device to the end of its work.
    pub(crate) async fn drive(mut self) {
        self.cpu.device_or(u64::MAX).await;
        if self.plan.reset_first {
            self.cpu.reset().await;
        }
        let mut looks = self.plan.looks;
        loop {
            match self.life().await {
                Ok(()) => {
                    self.cpu.machine(|machine| machine.progress.shut_down += 1);
                    looks -= 1;
                    if looks == 0 {
                        break;
                    }
                    let rest_ns = self.random.magnitude(1_000_000, 20_000_000_000);
                    self.cpu.sleep(rest_ns).await;
                }
                Err(trouble) => self.recover(trouble).await,
            }
        }
        self.cpu.machine(|machine| {
            machine.progress.finished = true;
            machine.event(0, || "finished".to_owned());
        });
    }

    fn note(&self, line: impl FnOnce() -> String) {
        self.cpu.machine(|machine| machine.event(1, line));
    }

    fn broken(&self, rule: Rule, detail: impl FnOnce() -> String) {
        self.cpu.machine(|machine| machine.broken(rule, detail));
    }

    /// From a device that may be in any state to the end of the work.
    async fn life(&mut self) -> Result<(), Trouble> {
        self.place.find(&mut self.random).await?;
        self.enable().await?;
        self.identify().await?;
        self.create_queues().await?;
        self.work().await?;
        self.sweep().await?;
        self.shut_down().await
    }

    async fn recover(&mut self, trouble: Trouble) {
        self.note(|| format!("gives the controller up: {trouble:?}"));
        // Switching the cache off flushes it, which fails with the medium.
        let of_medium = self.plan.media_faults && matches!(trouble, Trouble::Refused(admin::SET_FEATURES, _));
        if self.plan.transparent && trouble != Trouble::OnPurpose && !of_medium {
            self.broken(Rule::Transparent, || format!("{trouble:?}"));
        }
        let lost = self.active.len() as u64;
        self.active.clear();
        self.cpu.machine(|machine| {
            machine.progress.troubles += 1;
            machine.progress.failed += lost;
        });
        if trouble != Trouble::Gone && self.random.percent(self.plan.function_reset_percent) {
            self.place.function_level_reset().await;
        } else if trouble != Trouble::Gone && self.random.percent(self.plan.bus_reset_percent) {
            self.cpu.reset().await;
            self.place.unconfigured = true;
        }
        let wait_ns = self.random.magnitude(1_000_000, 100_000_000);
        self.cpu.sleep(wait_ns).await;
        while self.cpu.config_read(0, 4).await == u32::MAX {
            let wait_ns = self.random.range(5_000_000, 100_000_000);
            self.cpu.sleep(wait_ns).await;
        }
    }

    // ----- the controller -----

    async fn status(&self) -> Result<u32, Trouble> {
        match self.cpu.read32(register::CSTS).await {
            u32::MAX => Err(Trouble::Gone),
            value => Ok(value),
        }
    }

    async fn wait_ready(&mut self, ready: bool) -> Result<(), Trouble> {
        let until_ns = self.cpu.now_ns() + self.ready_timeout_ns;
        loop {
            let value = self.status().await?;
            if (value & CSTS_READY != 0) == ready {
                return Ok(());
            }
            if ready && value & CSTS_FATAL != 0 {
                return Err(Trouble::Fatal);
            }
            if self.cpu.now_ns() > until_ns {
                return Err(Trouble::Timeout(if ready { "CSTS.RDY = 1" } else { "CSTS.RDY = 0" }));
            }
            let wait_ns = self.random.range(20_000, 1_000_000);
            self.cpu.sleep(wait_ns).await;
        }
    }

    /// Stops the controller. Once that was seen, nothing of what was under way goes on.
    async fn disable(&mut self) -> Result<(), Trouble> {
        self.status().await?;
        let configuration = self.cpu.read32(register::CC).await;
        if configuration == u32::MAX {
            return Err(Trouble::Gone);
        }
        if configuration & 1 != 0 {
            self.cpu.write32(register::CC, configuration & !1 & !(3 << 14)).await;
        }
        self.wait_ready(false).await?;
        let pages = std::mem::take(&mut self.queue_pages);
        self.cpu.machine(|machine| {
            machine.stopped();
            for &page in &pages {
                machine.memory.release(page);
            }
            machine.fired.clear();
        });
        self.submissions.clear();
        self.completions.clear();
        self.admin_done.clear();
        Ok(())
    }

    async fn enable(&mut self) -> Result<(), Trouble> {
        let capabilities = if self.random.percent(50) {
            self.cpu.read64(register::CAP).await
        } else {
            let low = self.cpu.read32(register::CAP).await;
            u64::from(low) | u64::from(self.cpu.read32(register::CAP + 4).await) << 32
        };
        let version = self.cpu.read32(register::VS).await;
        if capabilities == u64::MAX || version == u32::MAX {
            return Err(Trouble::Gone);
        }
        self.doorbell_stride = 4 << (capabilities >> 32 & 15);
        self.ready_timeout_ns = (capabilities >> 24 & 0xFF).max(1) * 500_000_000;
        self.most_entries = (capabilities & 0xFFFF).saturating_add(1).min(4096) as u16;
        if version >> 8 < 0x104 || capabilities >> 37 & 1 == 0 || capabilities >> 48 & 15 != 0 {
            self.broken(Rule::Nvme, || format!("CAP {capabilities:#x}, VS {version:#x}"));
        }
        self.disable().await?;

        let entries = ADMIN_ENTRIES.min(self.most_entries);
        let (submissions, completions) =
            self.add_rings(0, 0, entries, entries, 0).ok_or(Trouble::Timeout("memory"))?;
        self.cpu.write32(register::AQA, u32::from(entries - 1) << 16 | u32::from(entries - 1)).await;
        for (register, address) in [(register::ASQ, submissions), (register::ACQ, completions)] {
            if self.random.percent(50) {
                self.cpu.write64(register, address).await;
            } else {
                self.cpu.write32(register, address as u32).await;
                self.cpu.write32(register + 4, (address >> 32) as u32).await;
            }
        }
        self.cpu.write32(register::CC, CC_ENABLE).await;
        self.wait_ready(true).await?;
        self.enable_buffer(capabilities).await;
        self.cpu.machine(|machine| machine.progress.enabled += 1);
        self.note(|| "controller ready".to_owned());
        Ok(())
    }

    /// Lets the controller's memory buffer be used, if it has one (NVMe 1.4, 4.7).
    async fn enable_buffer(&mut self, capabilities: u64) {
        self.buffer = None;
        if capabilities & CAP_BUFFER == 0 || !self.plan.use_buffer {
            return;
        }
        self.cpu.write64(register::CMBMSC, BUFFER_REGISTERS).await;
        let size = self.cpu.read32(register::CMBSZ).await;
        let location = self.cpu.read32(register::CMBLOC).await;
        let bar = (location & 7) as usize;
        let Some(place) = self.place.layout.and_then(|layout| layout.bars.get(bar).copied().flatten()) else {
            return;
        };
        if size == u32::MAX || location == u32::MAX || size & BUFFER_SUBMISSIONS == 0 {
            return;
        }
        let unit = 4096u64 << (4 * (size >> 8 & 15)).min(24);
        let offset = u64::from(location >> 12) * unit;
        let address = place.address + offset;
        self.cpu.write64(register::CMBMSC, address | BUFFER_ENABLE | BUFFER_REGISTERS).await;
        self.buffer = Some((InDevice { bar, offset, address }, u64::from(size >> 12) * unit));
    }

    /// A place for a submission queue in the controller's memory buffer, if there is one with room.
    fn place_in_device(&mut self, entries: u16) -> Option<InDevice> {
        let (free, bytes) = self.buffer.as_mut()?;
        let needed = (u64::from(entries) * Submission::BYTES as u64).next_multiple_of(4096);
        *bytes = bytes.checked_sub(needed)?;
        let place = *free;
        free.offset += needed;
        free.address += needed;
        Some(place)
    }

    /// Makes the memory of a submission and a completion ring of the same number; their addresses.
    fn add_rings(
        &mut self,
        id: u16,
        vector: u16,
        entries: u16,
        completions: u16,
        completion_index: usize,
    ) -> Option<(u64, u64)> {
        let new = completion_index == self.completions.len();
        let completion_address = if new {
            let ring = CompletionRing::new(&self.cpu, id, completions, vector, &mut self.queue_pages)?;
            self.completions.push(ring);
            ring.address
        } else {
            self.completions[completion_index].address
        };
        let completion_id = self.completions[completion_index].id;
        let first_cid = self.random.bits() as u16;
        let in_device = if id == 0 { None } else { self.place_in_device(entries) };
        let ids = (id, completion_id);
        let ring = SubmissionRing::new(&self.cpu, ids, entries, first_cid, in_device, &mut self.queue_pages)?;
        let address = ring.address;
        self.submissions.push(ring);
        Some((address, completion_address))
    }

    // ----- admin commands -----

    /// Sends an admin command with a buffer of `bytes` bytes for its answer, and waits for its end.
    async fn admin(
        &mut self,
        mut command: Submission,
        bytes: usize,
    ) -> Result<(Completion, Vec<u8>), Trouble> {
        let opcode = command.opcode;
        let buffer = self.answer_buffer(bytes, &mut command);
        let cid = loop {
            match self.submit(0, command, buffer.clone(), Purpose::Admin).await {
                Some(cid) => break cid,
                None => self.wait_for_completions(self.cpu.now_ns() + 1_000_000).await?,
            }
        };
        loop {
            if let Some(index) = self.admin_done.iter().position(|done| done.0 == cid) {
                let (_, completion, data) = self.admin_done.swap_remove(index);
                if completion.status != status::SUCCESS {
                    return Err(Trouble::Refused(opcode, completion.status));
                }
                return Ok((completion, data));
            }
            self.wait_for_completions(u64::MAX).await?;
        }
    }

    async fn identify(&mut self) -> Result<(), Trouble> {
        let identify = |cns: u32, nsid: u32| Submission {
            opcode: admin::IDENTIFY,
            nsid,
            words: [cns, 0, 0, 0, 0, 0],
            ..Submission::default()
        };
        let half = |data: &[u8], at: usize| u16::from_le_bytes([data[at], data[at + 1]]);
        let word =
            |data: &[u8], at: usize| u32::from_le_bytes([data[at], data[at + 1], data[at + 2], data[at + 3]]);
        let (_, controller) = self.admin(identify(1, 0), 4096).await?;
        let transfer = match controller[77] {
            0 => usize::MAX,
            exponent => 4096 << exponent.min(16),
        };
        self.most_bytes = self.plan.max_bytes.min(transfer);
        self.has_cache = controller[525] & 1 != 0;
        self.has_sgl = word(&controller, 536) & 3 != 0;
        self.optional = half(&controller, 520);
        if controller[512] & 15 > 6
            || controller[512] >> 4 < 6
            || controller[513] & 15 > 4
            || controller[513] >> 4 < 4
        {
            self.broken(Rule::Nvme, || format!("SQES {:#x}, CQES {:#x}", controller[512], controller[513]));
        }
        let (_, list) = self.admin(identify(2, 0), 4096).await?;
        let listed: Vec<u32> =
            list.chunks_exact(4).map(|nsid| word(nsid, 0)).take_while(|&nsid| nsid != 0).collect();
        let expected: Vec<(usize, u64)> =
            self.cpu.machine(|machine| machine.history.borrow().namespaces().collect());
        if !listed.iter().copied().eq(1..=expected.len() as u32) {
            self.broken(Rule::Nvme, || format!("active namespaces {listed:?} of {}", expected.len()));
        }
        self.namespaces.clear();
        for (nsid, &expected) in (1..).zip(&expected) {
            let (_, data) = self.admin(identify(0, nsid), 4096).await?;
            let format = word(&data, 128 + 4 * (data[26] & 15) as usize);
            let block_bytes = 1usize << (format >> 16 & 0xFF).min(16);
            let blocks = u64::from(word(&data, 0)) | u64::from(word(&data, 4)) << 32;
            if (block_bytes, blocks) != expected {
                self.broken(Rule::Nvme, || {
                    format!("namespace {nsid}: {blocks} blocks of {block_bytes}, not {expected:?}")
                });
            }
            // Whatever a hostile network makes of it, the driver stays within the device.
            let (block_bytes, blocks) = (expected.0, expected.1);
            self.namespaces.push(Namespace { block_bytes, blocks });
        }
        Ok(())
    }

    async fn create_queues(&mut self) -> Result<(), Trouble> {
        let mut set = Submission { opcode: admin::SET_FEATURES, ..Submission::default() };
        let wanted = u32::from(self.plan.queue_pairs - 1);
        set.words = [feature::NUMBER_OF_QUEUES, wanted << 16 | wanted, 0, 0, 0, 0];
        let (completion, _) = self.admin(set, 0).await?;
        let granted = (completion.result & 0xFFFF).min(completion.result >> 16) as u16 + 1;
        if self.has_cache {
            let enabled = u32::from(!self.plan.cache_off);
            set.words = [feature::VOLATILE_WRITE_CACHE, enabled, 0, 0, 0, 0];
            self.admin(set, 0).await?;
            self.has_cache = !self.plan.cache_off;
        }
        let vectors = self.place.vectors();
        let interrupts = u32::from(self.plan.interrupts != InterruptPlan::Polling);
        for id in 1..=self.plan.queue_pairs.min(granted) {
            let share = self.plan.shared_completions && id > 1;
            let index = if share { 1 } else { self.completions.len() };
            let vector = if share { self.completions[1].vector } else { id % vectors };
            let entries = self.plan.queue_entries.clamp(2, self.most_entries);
            // A shared completion ring holds the completions of all its submission rings.
            let sharers = if self.plan.shared_completions { self.plan.queue_pairs } else { 1 };
            let completion_entries = entries.saturating_mul(sharers).min(self.most_entries);
            let Some((submissions, completions)) =
                self.add_rings(id, vector, entries, completion_entries, index)
            else {
                break;
            };
            let completion_id = self.completions[index].id;
            if !share {
                let size = u32::from(completion_entries - 1) << 16;
                let create = Submission {
                    opcode: admin::CREATE_CQ,
                    data: [completions, 0],
                    words: [size | u32::from(id), u32::from(vector) << 16 | interrupts << 1 | 1, 0, 0, 0, 0],
                    ..Submission::default()
                };
                self.admin(create, 0).await?;
            }
            let create = Submission {
                opcode: admin::CREATE_SQ,
                data: [submissions, 0],
                words: [
                    u32::from(entries - 1) << 16 | u32::from(id),
                    u32::from(completion_id) << 16 | 1,
                    0,
                    0,
                    0,
                    0,
                ],
                ..Submission::default()
            };
            self.admin(create, 0).await?;
        }
        for _ in 0..EVENT_REQUESTS {
            self.request_event().await;
        }
        Ok(())
    }

    async fn request_event(&mut self) {
        let command = Submission { opcode: admin::ASYNC_EVENT, ..Submission::default() };
        self.submit(0, command, buffer::Buffer::default(), Purpose::Event).await;
    }

    async fn delete_queues(&mut self) -> Result<(), Trouble> {
        while self.submissions.len() > 1 {
            let id = self.submissions[self.submissions.len() - 1].id;
            let words = [u32::from(id), 0, 0, 0, 0, 0];
            self.admin(Submission { opcode: admin::DELETE_SQ, words, ..Submission::default() }, 0).await?;
            self.submissions.pop();
        }
        while self.completions.len() > 1 {
            let id = self.completions[self.completions.len() - 1].id;
            let words = [u32::from(id), 0, 0, 0, 0, 0];
            self.admin(Submission { opcode: admin::DELETE_CQ, words, ..Submission::default() }, 0).await?;
            self.completions.pop();
        }
        Ok(())
    }

    /// A normal shutdown: all caches are flushed when it is complete.
    async fn shut_down(&mut self) -> Result<(), Trouble> {
        if self.random.percent(50) {
            self.delete_queues().await?;
        }
        let begun = self.cpu.machine(|machine| machine.history.borrow_mut().begin_read());
        self.cpu.write32(register::CC, CC_ENABLE | CC_SHUTDOWN).await;
        let until_ns = self.cpu.now_ns() + COMMAND_TIMEOUT_NS;
        let outcome = loop {
            match self.status().await {
                Ok(value) if value & CSTS_SHUTDOWN_MASK == CSTS_SHUTDOWN_COMPLETE => break Ok(()),
                Ok(_) if self.cpu.now_ns() > until_ns => break Err(Trouble::Timeout("CSTS.SHST")),
                Ok(_) => self.cpu.sleep(100_000).await,
                Err(trouble) => break Err(trouble),
            }
        };
        // With a medium that fails nobody knows whether the shutdown's own flush did.
        let (namespaces, media_faults) = (self.namespaces.len(), self.plan.media_faults);
        self.cpu.machine(|machine| {
            let mut history = machine.history.borrow_mut();
            history.end_read(begun);
            if outcome.is_ok() && !media_faults {
                (0..namespaces).for_each(|namespace| history.flushed(namespace, begun));
            }
        });
        outcome?;
        self.note(|| "shut down".to_owned());
        self.disable().await
    }
}
