//! Finding the device: capabilities, BARs, interrupts, as Linux's PCI core does.

use etherslot_node::Interrupts;

use crate::checkers::verdict::Rule;
use crate::guest::cpu::Cpu;
use crate::plan::{GuestPlan, InterruptPlan};
use crate::random::Random;

const COMMAND: u64 = 0x04;
const CLASS: u64 = 0x08;
const HEADER_TYPE: u64 = 0x0E;
const BAR0: u64 = 0x10;
const BARS: usize = 6;
const CAPABILITIES: u64 = 0x34;
const EXTENDED: u64 = 0x100;
/// Memory Space, Bus Master.
const COMMAND_ENABLE: u32 = 0x6;
const COMMAND_NO_INTX: u32 = 0x400;
const CAPABILITY_MSI: u32 = 0x05;
const CAPABILITY_EXPRESS: u32 = 0x10;
const CAPABILITY_MSIX: u32 = 0x11;
const FUNCTION_RESET: u32 = 1 << 15;
const FUNCTION_RESET_NS: u64 = 100_000_000;

/// Why a driver gives its device up for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// Registers read as all ones.
    Gone,
    /// A command or a register took too long.
    Timeout(&'static str),
    /// The device says that it can't go on.
    Fatal,
    /// A command that has to go well failed: its opcode and status.
    Refused(u8, u16),
    /// It was reset on purpose.
    OnPurpose,
}

/// A BAR, and where it is put.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bar {
    pub(crate) address: u64,
    is_64bit: bool,
}

/// Where things are in the device's configuration space.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Layout {
    express: Option<u64>,
    msi: Option<u64>,
    msix: Option<u64>,
    pub(crate) bars: [Option<Bar>; BARS],
    command: u32,
}

/// What a driver knows of its device's place on the bus.
pub(crate) struct Place {
    cpu: Cpu,
    plan: GuestPlan,
    /// What the device has to say that it is.
    class: u32,
    /// Offsets of capabilities, once enumerated.
    pub(crate) layout: Option<Layout>,
    /// The device was reset with its configuration: BARs have to be given again.
    pub(crate) unconfigured: bool,
    /// How often it had been lost when it was found.
    losses: u64,
}

impl Place {
    /// Of a device of this class, which is still to be found.
    pub(crate) fn new(cpu: Cpu, plan: GuestPlan, class: u32) -> Self {
        Self { cpu, plan, class, layout: None, unconfigured: true, losses: 0 }
    }

    fn broken(&self, rule: Rule, detail: impl FnOnce() -> String) {
        self.cpu.machine(|machine| machine.broken(rule, detail));
    }

    /// Messages that the guest has.
    pub(crate) fn vectors(&self) -> u16 {
        let device = self.cpu.machine(|machine| machine.device);
        match (self.plan.interrupts, device) {
            (InterruptPlan::MsiX, Some(device)) => device.msix_vectors.max(1),
            (InterruptPlan::Msi, Some(device)) => device.msi_vectors.clamp(1, self.plan.msi_vectors),
            _ => 1,
        }
    }

    /// The interrupts that the guest sets up.
    fn interrupts(&self) -> Interrupts {
        match self.plan.interrupts {
            InterruptPlan::MsiX => Interrupts::MsiX,
            InterruptPlan::Msi => Interrupts::Msi(self.vectors()),
            InterruptPlan::IntX | InterruptPlan::Polling => Interrupts::Legacy,
        }
    }

    /// Finds the device and gives it its addresses; or, when it was there before, checks that it still has them.
    pub(crate) async fn find(&mut self, random: &mut Random) -> Result<(), Trouble> {
        self.losses = self.cpu.machine(|machine| machine.losses);
        if self.cpu.config_read(0, 4).await == u32::MAX {
            return Err(Trouble::Gone);
        }
        let known = self.layout;
        if let (Some(layout), false) = (known, self.unconfigured) {
            return self.check_addresses(layout).await;
        }
        let mut layout = self.look().await?;
        layout.command = COMMAND_ENABLE;
        if !matches!(self.plan.interrupts, InterruptPlan::IntX) {
            layout.command |= COMMAND_NO_INTX;
        }
        self.assign(layout, random).await?;
        self.layout = Some(layout);
        self.unconfigured = false;
        Ok(())
    }

    async fn look(&mut self) -> Result<Layout, Trouble> {
        let class = self.cpu.config_read(CLASS, 4).await >> 8;
        let header = self.cpu.config_read(HEADER_TYPE, 1).await;
        if class == 0xFF_FFFF || header == 0xFF {
            return Err(Trouble::Gone);
        }
        if class != self.class || header != 0 {
            self.broken(Rule::Restored, || format!("class {class:#x}, header type {header:#x}"));
        }
        let mut layout = Layout::default();
        let mut at = u64::from(self.cpu.config_read(CAPABILITIES, 1).await & 0xFC);
        // A list has at most 48 entries; more is a loop.
        for _ in 0..48 {
            if at < 0x40 {
                break;
            }
            let head = self.cpu.config_read(at, 2).await;
            match head & 0xFF {
                CAPABILITY_MSI => layout.msi = Some(at),
                CAPABILITY_EXPRESS => layout.express = Some(at),
                CAPABILITY_MSIX => layout.msix = Some(at),
                _ => {}
            }
            at = u64::from(head >> 8 & 0xFC);
        }
        let mut at = EXTENDED;
        for _ in 0..16 {
            let head = self.cpu.config_read(at, 4).await;
            at = u64::from(head >> 20);
            if at < EXTENDED || head == u32::MAX {
                break;
            }
        }
        self.cpu.config_write(COMMAND, 2, 0).await;
        layout.bars = self.size_bars().await?;
        Ok(layout)
    }

    /// Gone, if the device is not there; otherwise a rule was broken.
    async fn lost_or(&mut self, rule: Rule, detail: impl FnOnce() -> String) -> Result<(), Trouble> {
        let gone = self.cpu.config_read(0, 4).await == u32::MAX;
        if gone || self.cpu.machine(|machine| machine.device.is_none() || machine.losses != self.losses) {
            return Err(Trouble::Gone);
        }
        self.broken(rule, detail);
        Err(Trouble::Gone)
    }

    /// Sizes the BARs (7.5.1.2.1) and finds places for them.
    async fn size_bars(&mut self) -> Result<[Option<Bar>; BARS], Trouble> {
        let mut bars = [None; BARS];
        let mut free = self.plan.bar_base;
        let mut index = 0;
        while index < BARS {
            let register = BAR0 + 4 * index as u64;
            self.cpu.config_write(register, 4, u32::MAX).await;
            let low = self.cpu.config_read(register, 4).await;
            if low == u32::MAX {
                return Err(Trouble::Gone);
            }
            let is_64bit = low >> 1 & 3 == 2 && index + 1 < BARS;
            let mut high = u32::MAX;
            if is_64bit {
                self.cpu.config_write(register + 4, 4, u32::MAX).await;
                high = self.cpu.config_read(register + 4, 4).await;
            }
            let bytes = if low & !0xF == 0 && (high == 0 || !is_64bit) {
                0
            } else {
                (u64::from(low & !0xF) | u64::from(high) << 32).wrapping_neg()
            };
            let Some(device) = self.cpu.machine(|machine| machine.device) else { return Err(Trouble::Gone) };
            let told = device.bar_bytes[index];
            if bytes != told {
                // A device that is lost in the middle reads as all ones, which is not a size.
                self.lost_or(Rule::Restored, || {
                    format!("BAR{index} is sized {bytes:#x}, and was told as {told:#x}")
                })
                .await?;
            }
            if bytes != 0 {
                let address = free.next_multiple_of(bytes.clamp(0x1000, 1 << 30));
                free = address + bytes;
                bars[index] = Some(Bar { address, is_64bit });
            }
            index += if is_64bit { 2 } else { 1 };
        }
        Ok(bars)
    }

    async fn assign(&mut self, layout: Layout, random: &mut Random) -> Result<(), Trouble> {
        for (index, bar) in layout.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let register = BAR0 + 4 * index as u64;
            self.cpu.config_write(register, 4, bar.address as u32).await;
            if bar.is_64bit {
                self.cpu.config_write(register + 4, 4, (bar.address >> 32) as u32).await;
            }
        }
        if let Some(express) = layout.express {
            let control = self.cpu.config_read(express + 8, 2).await;
            let sizes = self.plan.device_control & 0x70E0;
            self.cpu.config_write(express + 8, 2, control & !0x70E0 & !FUNCTION_RESET & 0xFFFF | sizes).await;
        }
        let (capability, control) = match self.plan.interrupts {
            InterruptPlan::MsiX => (layout.msix, 0x8000),
            InterruptPlan::Msi => (layout.msi, 1 | self.vectors().ilog2() << 4),
            InterruptPlan::IntX | InterruptPlan::Polling => (None, 0),
        };
        // Linux sets interrupts up before or after it enables memory, depending on the driver.
        let early = random.percent(50);
        if early {
            self.set_interrupts(capability, control).await;
        }
        self.cpu.config_write(COMMAND, 2, layout.command).await;
        if !early {
            self.set_interrupts(capability, control).await;
        }
        self.check_addresses(layout).await
    }

    async fn set_interrupts(&mut self, capability: Option<u64>, control: u32) {
        if let Some(capability) = capability {
            let before = self.cpu.config_read(capability + 2, 2).await;
            self.cpu.config_write(capability + 2, 2, before & !0xC071 | control).await;
        }
        self.cpu.set_interrupts(self.interrupts()).await;
    }

    async fn check_addresses(&mut self, layout: Layout) -> Result<(), Trouble> {
        for (index, bar) in layout.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let register = BAR0 + 4 * index as u64;
            let low = self.cpu.config_read(register, 4).await;
            let high = if bar.is_64bit { self.cpu.config_read(register + 4, 4).await } else { 0 };
            if low == u32::MAX || high == u32::MAX {
                return Err(Trouble::Gone);
            }
            let address = u64::from(high) << 32 | u64::from(low & !0xF);
            if address != bar.address {
                let detail = || format!("BAR{index} is at {address:#x} instead of {:#x}", bar.address);
                return self.lost_or(Rule::Restored, detail).await;
            }
        }
        let command = self.cpu.config_read(COMMAND, 2).await;
        if command == 0xFFFF {
            return Err(Trouble::Gone);
        }
        if command & 0x7 != layout.command & 0x7 {
            let detail = || format!("Command is {command:#x} instead of {:#x}", layout.command);
            return self.lost_or(Rule::Restored, detail).await;
        }
        Ok(())
    }

    /// FLR (PCIe Base 6.0, 6.6.2): the device forgets its configuration.
    pub(crate) async fn function_level_reset(&mut self) {
        let Some(express) = self.layout.and_then(|layout| layout.express) else { return };
        self.cpu.machine(|machine| machine.event(1, || "Function Level Reset".to_owned()));
        let control = self.cpu.config_read(express + 8, 2).await;
        self.unconfigured = true;
        self.cpu.config_write(express + 8, 2, control & 0x7FFF | FUNCTION_RESET).await;
        self.cpu.sleep(FUNCTION_RESET_NS).await;
    }
}
