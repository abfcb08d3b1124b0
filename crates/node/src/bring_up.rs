//! Bringing up a Function that was just attached: the steps a PC's firmware would take.
//!
//! Bus numbers for the ports above it, its ID by a first Configuration Write, a copy of its configuration space, the sizes
//! of its BARs. One Configuration Request at a time; the owner sends it and brings its answer.

use etherslot_pci::enumerate::Windows;
use etherslot_wire::FunctionId;

use crate::guest_config::{BAR0, BYTES};

/// Bus number of the session's upstream port.
pub(crate) const UPSTREAM: FunctionId = FunctionId::new(1, 0, 0);
const INTERNAL_BUS: u8 = 2;
const FIRST_SLOT_BUS: u8 = 3;
const BRIDGE_COMMAND: u16 = 0x04;
const BRIDGE_BUS_NUMBERS: u16 = 0x18;
const INTERRUPT_LINE: u16 = 0x3C;
/// Memory Space and Bus Master Enable.
const BRIDGE_COMMAND_VALUE: u32 = 0x6;

/// The ID of the Function below a downstream port.
pub(crate) fn function_below(port: FunctionId) -> FunctionId {
    FunctionId::new(FIRST_SLOT_BUS + port.device(), 0, 0)
}

/// The windows of the upstream port: all addresses. Below it the address spaces of several guests meet, each on a
/// stream of its own, so no range would be right for all of them, and no order holds between the writes of two slots.
/// The port of each slot has the window that counts.
fn everything() -> [(u16, u32); 4] {
    const FOUR_GIB: u64 = 1 << 32;
    let mut windows = Windows::default();
    windows.cover(0, FOUR_GIB);
    windows.cover(FOUR_GIB, u64::MAX - FOUR_GIB + 1);
    windows.registers()
}

/// A Configuration Request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read this DW.
    Read(FunctionId, u16),
    /// Write this DW.
    Write(FunctionId, u16, u32),
    /// All is known.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    UpstreamBuses,
    UpstreamCommand,
    /// Index into [`everything`].
    UpstreamWindow(usize),
    PortBuses,
    PortCommand,
    Capture,
    Image(u16),
    BarOnes(u16),
    BarSize(u16),
    BarBack(u16),
    Done,
}

/// The state of a bring-up.
#[derive(Debug)]
pub(crate) struct BringUp {
    port: FunctionId,
    stage: Stage,
    pub(crate) image: Box<[u8; BYTES]>,
    /// What each BAR register read after all ones were written to it.
    pub(crate) bar_sizes: [u32; 6],
}

impl BringUp {
    /// Starts for the Function below `port`, which is a downstream port of the session's switch.
    pub(crate) fn new(port: FunctionId) -> Self {
        Self { port, stage: Stage::UpstreamBuses, image: Box::new([0; BYTES]), bar_sizes: [0; 6] }
    }

    /// The request that is to be sent now.
    pub(crate) fn step(&self) -> Step {
        let function = function_below(self.port);
        let slot_bus = u32::from(function.bus());
        match self.stage {
            Stage::UpstreamBuses => {
                Step::Write(UPSTREAM, BRIDGE_BUS_NUMBERS, 0xFF << 16 | u32::from(INTERNAL_BUS) << 8 | 1)
            }
            Stage::UpstreamCommand => Step::Write(UPSTREAM, BRIDGE_COMMAND, BRIDGE_COMMAND_VALUE),
            Stage::UpstreamWindow(index) => {
                let (register, value) = everything()[index];
                Step::Write(UPSTREAM, register, value)
            }
            Stage::PortBuses => Step::Write(
                self.port,
                BRIDGE_BUS_NUMBERS,
                slot_bus << 16 | slot_bus << 8 | u32::from(INTERNAL_BUS),
            ),
            Stage::PortCommand => Step::Write(self.port, BRIDGE_COMMAND, BRIDGE_COMMAND_VALUE),
            Stage::Capture => Step::Write(function, INTERRUPT_LINE, 0xFF),
            Stage::Image(register) => Step::Read(function, register),
            Stage::BarOnes(bar) => Step::Write(function, BAR0 as u16 + 4 * bar, u32::MAX),
            Stage::BarSize(bar) => Step::Read(function, BAR0 as u16 + 4 * bar),
            Stage::BarBack(bar) => Step::Write(function, BAR0 as u16 + 4 * bar, 0),
            Stage::Done => Step::Done,
        }
    }

    /// Takes the answer to the request of [`BringUp::step`]; the value of a write's answer is ignored.
    pub(crate) fn answered(&mut self, value: u32) {
        self.stage = match self.stage {
            Stage::UpstreamBuses => Stage::UpstreamCommand,
            Stage::UpstreamCommand => Stage::UpstreamWindow(0),
            Stage::UpstreamWindow(index) if index + 1 < everything().len() => {
                Stage::UpstreamWindow(index + 1)
            }
            Stage::UpstreamWindow(_) => Stage::PortBuses,
            Stage::PortBuses => Stage::PortCommand,
            Stage::PortCommand => Stage::Capture,
            Stage::Capture => Stage::Image(0),
            Stage::Image(register) => {
                let at = register as usize;
                self.image[at..at + 4].copy_from_slice(&value.to_le_bytes());
                if at + 4 < BYTES { Stage::Image(register + 4) } else { Stage::BarOnes(0) }
            }
            Stage::BarOnes(bar) => Stage::BarSize(bar),
            Stage::BarSize(bar) => {
                self.bar_sizes[bar as usize] = value;
                Stage::BarBack(bar)
            }
            Stage::BarBack(bar) => {
                if bar < 5 {
                    Stage::BarOnes(bar + 1)
                } else {
                    Stage::Done
                }
            }
            Stage::Done => Stage::Done,
        };
    }
}
