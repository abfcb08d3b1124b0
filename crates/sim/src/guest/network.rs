//! A small driver for the 82576 that does what Linux's `igb` does: it stops the controller, resets it, makes its rings, sends frames, and
//! takes those that come back; when registers read as all ones or nothing comes for too long, it begins anew.

use std::collections::VecDeque;

use crate::checkers::verdict::Rule;
use crate::guest::bus::{Place, Trouble};
use crate::guest::cpu::Cpu;
use crate::guest::memory::{Grant, POISON, Piece};
use crate::nodes::station;
use crate::plan::{GuestPlan, InterruptPlan};
use crate::random::Random;

/// Nothing takes longer that goes to the station and back.
const ANSWER_TIMEOUT_NS: u64 = 3_000_000_000;
/// What a reset may take: where the device has few Tags, those that a reset from outside left have to come back first.
const REGISTER_TIMEOUT_NS: u64 = 5_000_000_000;
const POLL_NS: u64 = 20_000;
const ENTRIES: usize = 32;
const DESCRIPTOR_BYTES: u64 = 16;
/// Of a receive buffer: one of the sizes that there are.
const BUFFER_BYTES: u16 = 2048;
/// Frames under way: more than there are descriptors, so that some have to wait.
const UNDER_WAY: usize = 48;

const CTRL: u64 = 0x00;
const STATUS: u64 = 0x08;
const RCTL: u64 = 0x100;
const TCTL: u64 = 0x400;
const ICR: u64 = 0xC0;
const IMS: u64 = 0xD0;
const IMC: u64 = 0xD8;
const GPIE: u64 = 0x1514;
const EIMS: u64 = 0x1524;
const EIMC: u64 = 0x1528;
const EIAC: u64 = 0x152C;
const IVAR: u64 = 0x1700;
const RAL: u64 = 0x5400;
const RECEIVE: u64 = 0xC000;
const TRANSMIT: u64 = 0xE000;
/// Of a ring, from its first register.
const BASE: u64 = 0x00;
const LENGTH: u64 = 0x08;
const SRRCTL: u64 = 0x0C;
const TAIL: u64 = 0x18;
const CONTROL: u64 = 0x28;

const CTRL_UP: u32 = 0x241;
const CTRL_NO_MASTER: u32 = 1 << 2;
const CTRL_RESET: u32 = 1 << 26;
const STATUS_LINK: u32 = 1 << 1;
const STATUS_MASTER: u32 = 1 << 19;
/// On; broadcasts; the FCS is stripped.
const RCTL_ON: u32 = 1 << 1 | 1 << 15 | 1 << 26;
/// On; short frames are padded.
const TCTL_ON: u32 = 1 << 1 | 1 << 3;
const RING_ON: u32 = 1 << 25;
/// Advanced descriptors with one buffer, of 2 KiB.
const ONE_BUFFER: u32 = 1 << 25 | 2;
/// EIAME, several vectors, no sharing of EICR.
const GPIE_MSIX: u32 = 1 << 30 | 1 << 4 | 1;
/// TXDW, LSC, RXDW.
const CAUSES: u32 = 1 | 1 << 2 | 1 << 7;
/// A whole frame in an advanced data descriptor that is written back: EOP, IFCS, RS.
const WHOLE: u32 = 1 << 24 | 1 << 25 | 1 << 27 | 3 << 20 | 1 << 29;

/// A ring, with a buffer for each descriptor.
struct Ring {
    address: u64,
    buffers: Vec<u64>,
    /// The next descriptor to hand over, and to take back.
    tail: usize,
    clean: usize,
    handed: usize,
}

/// The driver.
pub(crate) struct Driver {
    cpu: Cpu,
    plan: GuestPlan,
    random: Random,
    place: Place,
    mac: [u8; 6],
    rings: Option<[Ring; 2]>,
    pages: Vec<u64>,
    /// Frames that have not come back: number and bytes.
    under_way: VecDeque<(u64, usize)>,
    sent_ns: u64,
    number: u64,
    frames_left: u32,
}

impl Driver {
    /// A driver that does what `plan` says; its frames have numbers from `number` on.
    pub(crate) fn new(cpu: Cpu, plan: GuestPlan, number: u64, random: Random) -> Self {
        Self {
            place: Place::new(cpu.clone(), plan.clone(), 0x02_0000),
            frames_left: plan.commands,
            cpu,
            plan,
            random,
            mac: [0; 6],
            rings: None,
            pages: Vec::new(),
            under_way: VecDeque::new(),
            sent_ns: 0,
            number,
        }
    }

    /// Drives the controller to the end of its work.
    pub(crate) async fn drive(mut self) {
        self.cpu.device_or(u64::MAX).await;
        if self.plan.reset_first {
            self.cpu.reset().await;
        }
        while let Err(trouble) = self.life().await {
            self.recover(trouble).await;
        }
        self.cpu.machine(|machine| {
            machine.progress.shut_down += 1;
            machine.progress.finished = true;
            machine.event(0, || "finished".to_owned());
        });
    }

    fn broken(&self, rule: Rule, detail: impl FnOnce() -> String) {
        self.cpu.machine(|machine| machine.broken(rule, detail));
    }

    /// From a controller that may be in any state to the end of the work.
    async fn life(&mut self) -> Result<(), Trouble> {
        self.place.find(&mut self.random).await?;
        self.stop().await?;
        self.start().await?;
        self.cpu.machine(|machine| machine.progress.enabled += 1);
        self.work().await?;
        self.stop().await
    }

    async fn recover(&mut self, trouble: Trouble) {
        self.cpu.machine(|machine| machine.event(1, || format!("gives the controller up: {trouble:?}")));
        if self.plan.transparent && trouble != Trouble::OnPurpose {
            self.broken(Rule::Transparent, || format!("{trouble:?}"));
        }
        let lost = self.under_way.len() as u64;
        self.under_way.clear();
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

    async fn wait_register(
        &mut self,
        at: u64,
        mask: u32,
        wanted: u32,
        what: &'static str,
    ) -> Result<(), Trouble> {
        let until_ns = self.cpu.now_ns() + REGISTER_TIMEOUT_NS;
        loop {
            match self.cpu.read32(at).await {
                u32::MAX => return Err(Trouble::Gone),
                value if value & mask == wanted => return Ok(()),
                _ if self.cpu.now_ns() > until_ns => return Err(Trouble::Timeout(what)),
                _ => {}
            }
            let wait_ns = self.random.range(1_000, 1_000_000);
            self.cpu.sleep(wait_ns).await;
        }
    }

    /// Stops the controller, whatever it does, and resets it. Once that was seen, nothing of what was under way goes on.
    async fn stop(&mut self) -> Result<(), Trouble> {
        self.cpu.write32(CTRL, CTRL_UP | CTRL_NO_MASTER).await;
        self.wait_register(STATUS, STATUS_MASTER, 0, "the end of bus mastering").await?;
        for register in [IMC, EIMC] {
            self.cpu.write32(register, u32::MAX).await;
        }
        for register in [RCTL, TCTL] {
            self.cpu.write32(register, 0).await;
        }
        self.cpu.write32(CTRL, CTRL_UP | CTRL_RESET).await;
        self.wait_register(CTRL, CTRL_RESET, 0, "CTRL.RST = 0").await?;
        self.rings = None;
        let pages = std::mem::take(&mut self.pages);
        self.cpu.machine(|machine| {
            machine.stopped();
            for &page in &pages {
                machine.memory.release(page);
            }
            machine.fired.clear();
        });
        Ok(())
    }

    fn page(&mut self, grant: Grant) -> Option<u64> {
        let page = self.cpu.machine(|machine| {
            let page = machine.memory.allocate()?;
            machine.memory.fill(&[Piece { address: page, bytes: 4096 }], 0);
            machine.memory.grant(page, grant);
            Some(page)
        })?;
        self.pages.push(page);
        Some(page)
    }

    fn make_ring(&mut self) -> Option<Ring> {
        let address = self.page(Grant::Share)?;
        let buffers = (0..ENTRIES).map(|_| self.page(Grant::None)).collect::<Option<Vec<_>>>()?;
        Some(Ring { address, buffers, tail: 0, clean: 0, handed: 0 })
    }

    async fn start(&mut self) -> Result<(), Trouble> {
        self.cpu.write32(CTRL, CTRL_UP).await;
        let (low, high) = (self.cpu.read32(RAL).await, self.cpu.read32(RAL + 4).await);
        if low == u32::MAX || high == u32::MAX {
            return Err(Trouble::Gone);
        }
        self.mac[..4].copy_from_slice(&low.to_le_bytes());
        self.mac[4..].copy_from_slice(&high.to_le_bytes()[..2]);
        self.wait_register(STATUS, STATUS_LINK, STATUS_LINK, "the link").await?;
        let (Some(transmit), Some(receive)) = (self.make_ring(), self.make_ring()) else {
            return Err(Trouble::Timeout("memory"));
        };
        for (at, ring) in [(TRANSMIT, &transmit), (RECEIVE, &receive)] {
            self.cpu.write32(at + BASE, ring.address as u32).await;
            self.cpu.write32(at + BASE + 4, (ring.address >> 32) as u32).await;
            self.cpu.write32(at + LENGTH, (ENTRIES as u64 * DESCRIPTOR_BYTES) as u32).await;
        }
        self.cpu.write32(RECEIVE + SRRCTL, ONE_BUFFER).await;
        self.cpu.write32(TCTL, TCTL_ON).await;
        for at in [TRANSMIT, RECEIVE] {
            self.cpu.write32(at + CONTROL, RING_ON).await;
        }
        self.enable_interrupts().await;
        self.cpu.write32(RCTL, RCTL_ON).await;
        self.rings = Some([transmit, receive]);
        self.refill().await;
        Ok(())
    }

    async fn enable_interrupts(&mut self) {
        match self.plan.interrupts {
            InterruptPlan::Polling => {}
            InterruptPlan::MsiX => {
                self.cpu.write32(GPIE, GPIE_MSIX).await;
                // Ring 0: what is received by vector 0, what is sent by vector 1.
                self.cpu.write32(IVAR, 0x80 | 0x81 << 8).await;
                self.cpu.write32(EIAC, 3).await;
                self.cpu.write32(EIMS, 3).await;
            }
            InterruptPlan::Msi | InterruptPlan::IntX => self.cpu.write32(IMS, CAUSES).await,
        }
    }

    // ----- frames -----

    async fn work(&mut self) -> Result<(), Trouble> {
        self.sent_ns = self.cpu.now_ns();
        while self.frames_left != 0 || !self.under_way.is_empty() {
            if self.frames_left != 0 {
                self.send_burst().await;
                if self.random.chance(self.plan.reset_ppm) {
                    return Err(Trouble::OnPurpose);
                }
            }
            let pause_ns = self.random.magnitude(self.plan.pause_ns.0, self.plan.pause_ns.1);
            self.wait(self.cpu.now_ns() + pause_ns).await?;
        }
        Ok(())
    }

    async fn send_burst(&mut self) {
        let burst = self.random.range(1, u64::from(self.plan.burst).min(ENTRIES as u64));
        let Some([ring, _]) = &mut self.rings else { return };
        let mut count = 0;
        while count < burst
            && self.frames_left != 0
            && ring.handed + 1 < ENTRIES
            && self.under_way.len() < UNDER_WAY
        {
            let bytes = self.random.range(station::LEAST_BYTES as u64, station::MOST_BYTES as u64) as usize;
            let number = self.number;
            let frame = station::frame(station::MAC, self.mac, number, bytes);
            let (buffer, at) = (ring.buffers[ring.tail], ring.address + DESCRIPTOR_BYTES * ring.tail as u64);
            self.cpu.machine(|machine| {
                let memory = &mut machine.memory;
                memory.grant(buffer, Grant::Read(0, bytes as u16));
                memory.scatter(&[Piece { address: buffer, bytes }], &frame);
                let descriptor = [buffer, u64::from(bytes as u32 | WHOLE) | (bytes as u64) << 46];
                for (at, word) in (at..).step_by(8).zip(descriptor) {
                    memory.scatter(&[Piece { address: at, bytes: 8 }], &word.to_le_bytes());
                }
                machine.progress.submitted += 1;
                machine.event(number, || format!("sends frame {number}, {bytes} bytes"));
            });
            ring.tail = (ring.tail + 1) % ENTRIES;
            ring.handed += 1;
            self.under_way.push_back((number, bytes));
            self.sent_ns = self.cpu.now_ns();
            (self.number, self.frames_left, count) = (self.number + 1, self.frames_left - 1, count + 1);
        }
        let tail = ring.tail as u32;
        if count != 0 {
            self.cpu.write32(TRANSMIT + TAIL, tail).await;
        }
    }

    /// Hands all receive descriptors but one over.
    async fn refill(&mut self) {
        let Some([_, ring]) = &mut self.rings else { return };
        let before = ring.tail;
        while ring.handed + 1 < ENTRIES {
            let (buffer, at) = (ring.buffers[ring.tail], ring.address + DESCRIPTOR_BYTES * ring.tail as u64);
            self.cpu.machine(|machine| {
                let memory = &mut machine.memory;
                memory.fill(&[Piece { address: buffer, bytes: usize::from(BUFFER_BYTES) }], POISON);
                memory.grant(buffer, Grant::Write(0, BUFFER_BYTES));
                for (at, word) in (at..).step_by(8).zip([buffer, 0]) {
                    memory.scatter(&[Piece { address: at, bytes: 8 }], &word.to_le_bytes());
                }
            });
            ring.tail = (ring.tail + 1) % ENTRIES;
            ring.handed += 1;
        }
        let tail = ring.tail;
        if tail != before {
            self.cpu.write32(RECEIVE + TAIL, tail as u32).await;
        }
    }

    /// Takes back what has been sent; how many frames it was.
    fn clean_sent(&mut self) -> usize {
        let Some([ring, _]) = &mut self.rings else { return 0 };
        let mut count = 0;
        while ring.handed != 0 {
            let at = ring.address + DESCRIPTOR_BYTES * ring.clean as u64 + 12;
            let buffer = ring.buffers[ring.clean];
            let is_done = self.cpu.machine(|machine| {
                let is_done = machine.memory.get(at, 4).is_some_and(|word| word[0] & 1 != 0);
                if is_done {
                    machine.memory.grant(buffer, Grant::None);
                }
                is_done
            });
            if !is_done {
                break;
            }
            ring.clean = (ring.clean + 1) % ENTRIES;
            ring.handed -= 1;
            count += 1;
        }
        count
    }

    /// Takes what has been received, and holds it against what was sent; how many frames it was.
    fn take_received(&mut self) -> usize {
        let mut count = 0;
        while let Some([_, ring]) = self.rings.as_mut().filter(|[_, ring]| ring.handed != 0) {
            let at = ring.address + DESCRIPTOR_BYTES * ring.clean as u64 + 8;
            let buffer = ring.buffers[ring.clean];
            let frame = self.cpu.machine(|machine| {
                let word = machine.memory.get(at, 8).map(|word| [word[0], word[4], word[5]])?;
                if word[0] & 1 == 0 {
                    return None;
                }
                machine.memory.grant(buffer, Grant::None);
                let bytes =
                    usize::from(u16::from_le_bytes([word[1], word[2]])).min(usize::from(BUFFER_BYTES));
                machine.memory.get(buffer, bytes).map(<[u8]>::to_vec)
            });
            let Some(frame) = frame else { break };
            ring.clean = (ring.clean + 1) % ENTRIES;
            ring.handed -= 1;
            count += 1;
            self.judge(&frame);
        }
        count
    }

    /// Frames come back in order, none of them twice, as they were sent; and all of them, where nothing but frames of the network below is
    /// lost.
    fn judge(&mut self, frame: &[u8]) {
        let Some(number) = station::number(frame) else {
            let head = frame[..frame.len().min(32)].to_vec();
            return self.broken(Rule::Data, || format!("a frame that nobody sent: {head:02x?}"));
        };
        let Some(at) = self.under_way.iter().position(|&(sent, _)| sent == number) else {
            // Of an earlier life of the driver's, it may have waited in the cable.
            let was_sent = number < self.number && self.plan.reset_ppm != 0 || !self.plan.transparent;
            if !was_sent {
                self.broken(Rule::Data, || format!("frame {number} came, and is not under way"));
            }
            return;
        };
        if at != 0 && self.plan.transparent && self.plan.reset_ppm == 0 {
            let before = self.under_way[0].0;
            self.broken(Rule::Data, || format!("frame {number} came, and {before} before it did not"));
        }
        let bytes = self.under_way[at].1;
        if frame != station::frame(self.mac, station::MAC, number, bytes) {
            self.broken(Rule::DataBeforeCompletion, || format!("frame {number} came back as another"));
        }
        self.under_way.drain(..=at);
        self.sent_ns = self.cpu.now_ns();
        self.cpu.machine(|machine| {
            machine.progress.succeeded += 1;
            machine.progress.failed += at as u64;
        });
    }

    /// Waits until something may have come, takes it, and sees to what does not come.
    async fn wait(&mut self, until_ns: u64) -> Result<(), Trouble> {
        let polling = self.plan.interrupts == InterruptPlan::Polling;
        let mut until_ns = until_ns.min(self.sent_ns + ANSWER_TIMEOUT_NS + 1);
        if polling {
            until_ns = until_ns.min(self.cpu.now_ns() + POLL_NS);
        }
        self.cpu.interrupt_or(until_ns).await;
        let (fired, level) = self.cpu.machine(|machine| (std::mem::take(&mut machine.fired), machine.intx));
        if level || !fired.is_empty() && self.plan.interrupts == InterruptPlan::Msi {
            // Reading acknowledges. With MSI-X a vector clears itself.
            if self.cpu.read32(ICR).await == u32::MAX {
                return Err(Trouble::Gone);
            }
        }
        if polling || level || !fired.is_empty() {
            self.clean_sent();
            if self.take_received() != 0 {
                self.refill().await;
            }
        }
        if !self.under_way.is_empty() && self.cpu.now_ns() > self.sent_ns + ANSWER_TIMEOUT_NS {
            let (sent, received) = (self.clean_sent(), self.take_received());
            if sent + received != 0 {
                let causes = [self.cpu.read32(IMS).await, self.cpu.read32(ICR).await];
                let is_there = self.cpu.machine(|machine| machine.device.is_some());
                if is_there && self.plan.transparent {
                    self.broken(Rule::Interrupt, || {
                        format!("{sent} frames were sent and {received} came, and no interrupt; IMS and ICR {causes:x?}")
                    });
                }
                self.refill().await;
                return Ok(());
            }
            if self.cpu.read32(STATUS).await == u32::MAX {
                return Err(Trouble::Gone);
            }
            return Err(Trouble::Timeout("a frame's return"));
        }
        Ok(())
    }
}
