//! A port of the virtual switch: its configuration space, and what it lets pass (7.5.1.3).

use etherslot_wire::tlp::Header;

use crate::config::builder::{Builder, Register};
use crate::config::capability::{self, PCI_EXPRESS, POWER_MANAGEMENT, PortType};
use crate::config::register::{self as reg, express, pm};
use crate::config::{ConfigReset, ConfigSpace};
use crate::errors::{self, Error, Handling, Messages};

/// Vendor ID of the ports. It is assigned to nobody, and seen by host nodes only: a guest sees the switch of
/// its own machine.
const VENDOR: u16 = 0xE75E;
const UPSTREAM_DEVICE: u16 = 0x0001;
const DOWNSTREAM_DEVICE: u16 = 0x0002;

/// A range of addresses, both ends included; empty if `base > limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    base: u64,
    limit: u64,
}

const CLOSED: Window = Window { base: u64::MAX, limit: 0 };

/// A port.
#[derive(Clone, Debug)]
pub(crate) struct Port {
    pub(crate) config: ConfigSpace,
    is_downstream: bool,
    // What the configuration space says, taken out of it after each write.
    secondary: u8,
    subordinate: u8,
    windows: [Window; 2],
    master: bool,
    held_in_reset: bool,
    disabled: bool,
    present: bool,
}

/// What a Configuration Write to a port asks for beside what the port itself does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    /// Hot Reset of all that is below.
    ResetBelow,
}

impl Port {
    pub(crate) fn upstream() -> Self {
        Self::new(UPSTREAM_DEVICE, PortType::Upstream)
    }

    fn new(device: u16, kind: PortType) -> Self {
        let mut builder = Builder::new();
        builder.type1((VENDOR, device), 0);
        builder.power_management();
        builder.express(kind);
        builder.aer();
        Self::over(builder.build(), kind != PortType::Upstream)
    }

    fn over(config: ConfigSpace, is_downstream: bool) -> Self {
        let mut port = Self {
            config,
            is_downstream,
            secondary: 0,
            subordinate: 0,
            windows: [CLOSED; 2],
            master: false,
            held_in_reset: false,
            disabled: false,
            present: false,
        };
        port.refresh();
        port
    }

    /// The downstream ports of a switch, one for each slot, which differ in their numbers only.
    pub(crate) fn downstream(slots: u8) -> impl Iterator<Item = Self> {
        let first = Self::new(DOWNSTREAM_DEVICE, PortType::Downstream(0));
        (0..slots).map(move |slot| {
            let number = |at, value| Register::fixed(PCI_EXPRESS + at, 4, value);
            let config = first.config.variant([
                number(
                    express::LINK_CAPABILITIES,
                    first.config.u32(PCI_EXPRESS + express::LINK_CAPABILITIES) | u32::from(slot) << 24,
                ),
                number(
                    express::SLOT_CAPABILITIES,
                    first.config.u32(PCI_EXPRESS + express::SLOT_CAPABILITIES) | u32::from(slot) << 19,
                ),
            ]);
            Self::over(config, true)
        })
    }

    pub(crate) fn write(&mut self, register: u16, enables: u8, data: [u8; 4]) -> Effect {
        let was_up = self.is_link_up();
        capability::write(&mut self.config, register, enables, data);
        self.refresh();
        self.show_link();
        if was_up && !self.is_link_up() { Effect::ResetBelow } else { Effect::None }
    }

    /// A reset that comes from above.
    pub(crate) fn reset(&mut self) {
        self.config.reset(ConfigReset::Hot);
        self.refresh();
        self.show_link();
    }

    /// Something was put into the slot, or taken out.
    pub(crate) fn set_present(&mut self, present: bool) {
        self.present = present;
        self.config.raise_u16(PCI_EXPRESS + express::SLOT_STATUS, express::SLOT_STATUS_PRESENCE_CHANGED);
        self.show_link();
    }

    /// Whether something is below and can be reached.
    pub(crate) fn is_link_up(&self) -> bool {
        (self.present || !self.is_downstream) && !self.held_in_reset && !self.disabled
    }

    /// The bus below.
    pub(crate) fn secondary(&self) -> u8 {
        self.secondary
    }

    /// Whether `bus` is below: the secondary bus or one behind it. No bus is before the numbers are given.
    pub(crate) fn leads_to(&self, bus: u8) -> bool {
        self.secondary != 0 && (self.secondary..=self.subordinate).contains(&bus)
    }

    /// Whether it passes Memory Requests for `address` on downwards.
    pub(crate) fn claims(&self, address: u64) -> bool {
        self.windows.iter().any(|window| (window.base..=window.limit).contains(&address))
    }

    /// Whether it passes Memory Requests on upwards.
    pub(crate) fn is_master(&self) -> bool {
        self.master
    }

    /// Records an error in its registers. Messages about errors of a port are not sent: a stream belongs to a
    /// Function.
    pub(crate) fn report(&mut self, error: Error, handling: Handling, header: Option<&Header>) {
        errors::report(&mut self.config, &mut Messages::default(), error, handling, header);
    }

    /// Takes out of the configuration space what it says.
    fn refresh(&mut self) {
        let config = &self.config;
        let [_, secondary, subordinate, _] = config.read(reg::BRIDGE_BUS_NUMBERS);
        self.secondary = secondary;
        self.subordinate = subordinate;
        let command = config.u16(reg::COMMAND);
        let awake = config.u16(POWER_MANAGEMENT + pm::CONTROL) & pm::CONTROL_STATE == 0;
        self.master = awake && command & reg::COMMAND_MASTER != 0;
        self.windows = [CLOSED; 2];
        if awake && command & reg::COMMAND_MEMORY != 0 {
            // Bits 15:4 of a register are address bits 31:20 (7.5.1.3.6).
            let base = |at| u64::from(config.u16(at) & 0xFFF0) << 16;
            let limit = |at| base(at + 2) | 0xF_FFFF;
            let high = |at| u64::from(config.u32(at)) << 32;
            self.windows = [
                Window { base: base(reg::BRIDGE_MEMORY), limit: limit(reg::BRIDGE_MEMORY) },
                Window {
                    base: base(reg::BRIDGE_PREFETCHABLE) | high(reg::BRIDGE_PREFETCHABLE_BASE_UPPER),
                    limit: limit(reg::BRIDGE_PREFETCHABLE) | high(reg::BRIDGE_PREFETCHABLE_LIMIT_UPPER),
                },
            ];
        }
        self.held_in_reset = config.u16(reg::BRIDGE_CONTROL) & reg::BRIDGE_CONTROL_RESET != 0;
        let link = config.u16(PCI_EXPRESS + express::LINK_CONTROL);
        self.disabled = self.is_downstream && link & express::LINK_CONTROL_DISABLE != 0;
    }

    /// Link and slot status of a downstream port follow what is in the slot.
    fn show_link(&mut self) {
        if !self.is_downstream {
            return;
        }
        let (link_at, slot_at) = (PCI_EXPRESS + express::LINK_STATUS, PCI_EXPRESS + express::SLOT_STATUS);
        let link = self.config.u16(link_at);
        let others = link & !(express::LINK_STATUS_ACTIVE | 0x3FF);
        // x4 at 8 GT/s while the Link is up.
        let up = if self.is_link_up() { express::LINK_STATUS_ACTIVE | 4 << 4 | 3 } else { 0 };
        self.config.set_u16(link_at, others | up);
        let changed = if link == others | up { 0 } else { express::SLOT_STATUS_LINK_CHANGED };
        let slot = self.config.u16(slot_at) & !express::SLOT_STATUS_PRESENT;
        let present = if self.present { express::SLOT_STATUS_PRESENT } else { 0 };
        self.config.set_u16(slot_at, slot | present | changed);
    }
}
