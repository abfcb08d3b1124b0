//! The configuration space that the guest sees, where it is not simply the Function's own.
//!
//! The host node owns what the guest must not reach: MSI and MSI-X lead to addresses that the host node chose, so the
//! guest's writes to those capabilities end here. Beside that, it remembers what the guest wrote to the registers that a
//! driver expects to keep, so that a Function that was reset without the guest's doing (its box died and came back) can be
//! set up as it was.

use etherslot_pci::enumerate::Layout;

/// Bytes of a configuration space.
pub(crate) const BYTES: usize = 4096;

/// The most DWs that one write of a guest comes to: three that it touches itself, and the BARs.
pub(crate) const WRITES: usize = 3 + 6;

/// Offset of the Command register.
pub(crate) const COMMAND: usize = 0x04;
/// Offset of the first Base Address Register.
pub(crate) const BAR0: usize = 0x10;
/// Behind Command and BARs, which say what a Function decodes.
pub(crate) const BARS_END: usize = BAR0 + 24;

const COMMAND_MEMORY: u8 = 1 << 1;
const COMMAND_MASTER: u8 = 1 << 2;
const INTERRUPT_LINE: usize = 0x3C;
const DEVICE_CONTROL: usize = 0x08;
const DEVICE_CONTROL_FLR: u16 = 1 << 15;
const LINK_CONTROL: usize = 0x10;
const DEVICE_CONTROL_2: usize = 0x28;
const AER_UNCORRECTABLE_MASK: usize = 0x08;
const AER_UNCORRECTABLE_SEVERITY: usize = 0x0C;
const AER_CORRECTABLE_MASK: usize = 0x14;

/// What a guest's write to configuration space asks of the host node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Effects {
    /// Memory decoding was switched on, or a BAR moved while it was on: routes have to follow.
    pub(crate) routes: bool,
    /// A Function Level Reset was started.
    pub(crate) function_reset: bool,
}

/// One DW of a write, with its byte enables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterWrite {
    /// Offset of the DW.
    pub(crate) register: u16,
    /// Byte enables.
    pub(crate) enables: u8,
    /// Data of the whole DW.
    pub(crate) data: [u8; 4],
}

/// The guest's view of one Function's configuration space.
#[derive(Debug)]
pub(crate) struct GuestConfig {
    /// The space as it was when the Function was enumerated after its reset.
    initial: Box<[u8; BYTES]>,
    /// What it holds by the guest's writes, as far as the host node keeps it.
    kept: Box<[u8; BYTES]>,
    /// A Function Level Reset took the BARs from the Function, and it has not got them back.
    bars_lost: bool,
    layout: Layout,
    hide_msix: bool,
}

impl GuestConfig {
    pub(crate) fn new(image: &[u8; BYTES], layout: Layout, hide_msix: bool) -> Self {
        Self { initial: Box::new(*image), kept: Box::new(*image), bars_lost: false, layout, hide_msix }
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Whether `image` is of the same kind of Function: IDs, class, header type and capabilities.
    pub(crate) fn is_same_function(&self, image: &[u8; BYTES]) -> bool {
        let fixed = [0x00..0x04, 0x08..0x0C, 0x0E..0x0F, 0x2C..0x30, 0x34..0x35];
        fixed.into_iter().all(|range| self.initial[range.clone()] == image[range])
    }

    /// Whether the guest has switched memory decoding on.
    pub(crate) fn memory_enabled(&self) -> bool {
        self.kept[COMMAND] & COMMAND_MEMORY != 0
    }

    /// Whether the guest lets the Function master the bus.
    pub(crate) fn is_master(&self) -> bool {
        self.kept[COMMAND] & COMMAND_MASTER != 0
    }

    /// The address that the guest gave to BAR `index`, 0 if none; whatever the decoding is.
    pub(crate) fn bar_address(&self, index: usize) -> u64 {
        let Some(bar) = self.layout.bars.get(index).copied().flatten() else { return 0 };
        let word = |at: usize| {
            u32::from_le_bytes([self.kept[at], self.kept[at + 1], self.kept[at + 2], self.kept[at + 3]])
        };
        let low = u64::from(word(BAR0 + 4 * index) & !0xF);
        let high = if bar.is_64bit && index < 5 { u64::from(word(BAR0 + 4 * index + 4)) } else { 0 };
        (high << 32 | low) & !(bar.bytes - 1)
    }

    /// The registers as they are after a reset: what the guest wrote is forgotten.
    pub(crate) fn reset(&mut self) {
        *self.kept = *self.initial;
        self.bars_lost = false;
    }

    /// The same after a Function Level Reset, but for the BARs: QEMU answers a guest's reads of them by itself and does
    /// not know of the reset, so that no guest finds anything to restore.
    fn function_level_reset(&mut self) {
        let bars: [u8; 24] = std::array::from_fn(|at| self.kept[BAR0 + at]);
        self.reset();
        self.kept[BAR0..BAR0 + 24].copy_from_slice(&bars);
        self.bars_lost = true;
    }

    /// Writes the BARs to the Function. Bits that it does not have stay 0.
    fn restore_bars(&self, write: &mut dyn FnMut(RegisterWrite)) {
        for register in (BAR0..BAR0 + 24).step_by(4) {
            let data = [0, 1, 2, 3].map(|lane| self.kept[register + lane]);
            if self.kept[register..register + 4] != self.initial[register..register + 4] {
                write(RegisterWrite { register: register as u16, enables: 0xF, data });
            }
        }
    }

    /// Takes a guest's write of `data` at `offset` (both inside the space) and calls `forward` for each DW that is for
    /// the Function itself: at most [`WRITES`].
    pub(crate) fn write(
        &mut self,
        offset: usize,
        data: &[u8],
        forward: &mut dyn FnMut(RegisterWrite),
    ) -> Effects {
        let was_enabled = self.memory_enabled();
        let end = (offset + data.len()).min(BYTES);
        let mut routes = false;
        let enables_memory = (offset..end).contains(&COMMAND) && data[COMMAND - offset] & COMMAND_MEMORY != 0;
        if enables_memory && std::mem::take(&mut self.bars_lost) {
            // Only now: a Function may take 100 ms for the reset (6.6.2), which the guest waits for and we do not.
            self.restore_bars(forward);
        }
        let mut register = offset & !3;
        while register < end {
            let mut write = RegisterWrite { register: register as u16, enables: 0, data: [0; 4] };
            for lane in 0..4 {
                let at = register + lane;
                if (offset..end).contains(&at) {
                    let value = data[at - offset];
                    write.data[lane] = value;
                    write.enables |= 1 << lane;
                    let mask = self.keep_mask(at);
                    self.kept[at] = self.kept[at] & !mask | value & mask;
                }
            }
            routes |= (BAR0..BAR0 + 24).contains(&register);
            if !self.is_interrupt_capability(register) {
                forward(write);
            }
            register += 4;
        }
        let function_reset = self.layout.pcie.is_some_and(|pcie| {
            let at = pcie as usize + DEVICE_CONTROL + 1;
            (offset..end).contains(&at) && data[at - offset] & (DEVICE_CONTROL_FLR >> 8) as u8 != 0
        });
        if function_reset {
            self.function_level_reset();
        }
        Effects { routes: self.memory_enabled() && (routes || !was_enabled), function_reset }
    }

    /// Turns what was read from the Function at `offset` into what the guest sees.
    pub(crate) fn overlay(&self, offset: usize, data: &mut [u8]) {
        for (index, byte) in data.iter_mut().enumerate() {
            let at = offset + index;
            if self.is_interrupt_capability(at) {
                *byte = self.kept[at];
            }
            if self.hide_msix
                && let Some(msix) = self.layout.msix
                && Some(at) == self.layout.pointer_to(&self.initial, msix.capability)
            {
                *byte = self.initial[msix.capability as usize + 1];
            }
        }
    }

    /// What has to be written to a Function that came out of reset for it to be as the guest left it; the Command
    /// register comes last.
    pub(crate) fn restore(&self, write: &mut dyn FnMut(RegisterWrite)) {
        self.restore_bars(write);
        let mut registers = vec![0x0C, INTERRUPT_LINE];
        if let Some(pcie) = self.layout.pcie {
            registers.extend([DEVICE_CONTROL, LINK_CONTROL, DEVICE_CONTROL_2].map(|at| pcie as usize + at));
        }
        if let Some(aer) = self.layout.aer {
            let masks = [AER_UNCORRECTABLE_MASK, AER_UNCORRECTABLE_SEVERITY, AER_CORRECTABLE_MASK];
            registers.extend(masks.map(|at| aer as usize + at));
        }
        registers.push(COMMAND);
        for register in registers {
            let bytes = register..register + 4;
            let enables = bytes.clone().enumerate().filter(|&(_, at)| self.keep_mask(at) != 0);
            let enables = enables.fold(0, |enables, (lane, _)| enables | 1 << lane);
            if enables != 0 && self.kept[bytes.clone()] != self.initial[bytes.clone()] {
                let data = [0, 1, 2, 3].map(|lane| self.kept[register + lane]);
                write(RegisterWrite { register: register as u16, enables, data });
            }
        }
    }

    /// Whether the byte at `at` belongs to a capability that the host node keeps to itself.
    fn is_interrupt_capability(&self, at: usize) -> bool {
        let inside = |start: u16, bytes: usize| (start as usize..start as usize + bytes).contains(&at);
        self.layout.msi.is_some_and(|msi| inside(msi.capability, 24) && at >= msi.capability as usize + 2)
            || self
                .layout
                .msix
                .is_some_and(|msix| inside(msix.capability, 4) && at >= msix.capability as usize + 2)
    }

    /// The bits of the byte at `at` that are kept from a guest's write.
    fn keep_mask(&self, at: usize) -> u8 {
        let relative = |start: u16| at.wrapping_sub(start as usize);
        match at {
            // Bus Master, Memory, I/O; Parity and SERR; INTx Disable.
            COMMAND => return 0x47,
            0x05 => return 0x05,
            0x0C | INTERRUPT_LINE => return 0xFF,
            _ if (BAR0..BAR0 + 24).contains(&at) => return self.bar_mask(at - BAR0),
            _ => {}
        }
        if let Some(pcie) = self.layout.pcie {
            match relative(pcie) {
                DEVICE_CONTROL => return 0xFF,
                // Initiate FLR reads as 0 and is not kept.
                0x09 => return 0x7F,
                LINK_CONTROL | 0x11 | DEVICE_CONTROL_2 | 0x29 => return 0xFF,
                _ => {}
            }
        }
        if let Some(aer) = self.layout.aer
            && matches!(relative(aer), 0x08..=0x0F | 0x14..=0x17)
        {
            return 0xFF;
        }
        if let Some(msix) = self.layout.msix
            && relative(msix.capability) == 3
        {
            // Function Mask and MSI-X Enable.
            return 0xC0;
        }
        if let Some(msi) = self.layout.msi {
            return match relative(msi.capability) {
                // MSI Enable and Multiple Message Enable.
                2 => 0x71,
                4 => 0xFC,
                5..=13 | 16..=19 => 0xFF,
                _ => 0,
            };
        }
        0
    }

    /// The writable bits of byte `at` of the six BARs.
    fn bar_mask(&self, at: usize) -> u8 {
        let (index, lane) = (at / 4, at % 4);
        if let Some(bar) = self.layout.bars[index] {
            return (!(bar.bytes - 1) >> (8 * lane)) as u8;
        }
        match index.checked_sub(1).and_then(|below| self.layout.bars[below]) {
            Some(bar) if bar.is_64bit => (!(bar.bytes - 1) >> (32 + 8 * lane)) as u8,
            _ => 0,
        }
    }
}
