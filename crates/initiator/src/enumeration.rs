//! What firmware and kernel of a PC do with a device before its driver sees it: its BARs get addresses, and it may decode them and
//! issue Requests. The host node has read its configuration space before.

use etherslot_pci::enumerate::Layout;

use crate::machine::Access;

const COMMAND: u16 = 0x04;
const BAR0: u16 = 0x10;
const BARS: u16 = 6;
/// Interrupt Disable, Memory Space and Bus Master.
const COMMAND_ACTIVE: u32 = 1 << 10 | 1 << 2 | 1 << 1;
/// Where BARs are put: below 4 GiB, where bridges can have all kinds of them and headers are short; those that don't fit, high above.
/// Each slot has a part of both, so that devices of one address space are apart.
const LOW: std::ops::Range<u64> = 0xC000_0000..0xFE00_0000;
const LOW_BYTES: u64 = (LOW.end - LOW.start) / SLOTS;
const HIGH: u64 = 1 << 40;
/// Slots that there can be.
pub(crate) const SLOTS: u64 = 31;

/// Where the first BAR of a device in `slot` is, if it does not fit low.
pub(crate) const fn high(slot: usize) -> u64 {
    HIGH * (slot as u64 + 1)
}

/// The state of an enumeration: one access at a time.
#[derive(Debug)]
pub(crate) struct Enumeration {
    /// What goes into the six registers.
    registers: [u32; BARS as usize],
    /// The register that is next; behind the last one is Command.
    at: u16,
}

impl Enumeration {
    pub(crate) fn new(layout: &Layout, slot: usize) -> Self {
        Self { registers: assign(layout, slot as u64, false), at: 0 }
    }

    /// With all BARs that can have 64 bits high: where the first one is, is known before.
    pub(crate) fn above(layout: &Layout, slot: usize) -> Self {
        let mut layout = layout.clone();
        for bar in &mut layout.bars {
            *bar = bar.filter(|bar| bar.is_64bit);
        }
        Self { registers: assign(&layout, slot as u64, true), at: 0 }
    }

    /// The access that is to be made now; none at the end.
    pub(crate) fn access(&self) -> Option<Access> {
        let write = |offset, value| Some(Access::ConfigWrite { offset, value });
        match self.registers.get(usize::from(self.at)) {
            Some(&value) => write(BAR0 + 4 * self.at, value),
            None if self.at == BARS => write(COMMAND, COMMAND_ACTIVE),
            None => None,
        }
    }

    /// The access was made. Registers that stay 0 need none.
    pub(crate) fn answered(&mut self) {
        self.at += 1;
        while self.registers.get(usize::from(self.at)) == Some(&0) {
            self.at += 1;
        }
    }
}

fn assign(layout: &Layout, slot: u64, is_high: bool) -> [u32; BARS as usize] {
    let mut registers = [0; BARS as usize];
    let (mut low, mut high) = (LOW.start + slot * LOW_BYTES, high(slot as usize));
    let low_end = if is_high { low } else { low + LOW_BYTES };
    let bars = layout.bars.iter().enumerate();
    for (at, bar) in bars.filter_map(|(at, bar)| bar.map(|bar| (at, bar))) {
        let mut address = low.next_multiple_of(bar.bytes);
        if address.checked_add(bar.bytes).is_some_and(|end| end <= low_end) {
            low = address + bar.bytes;
        } else {
            let place = high.checked_next_multiple_of(bar.bytes);
            let Some(end) = place.and_then(|at| at.checked_add(bar.bytes)) else { continue };
            if !bar.is_64bit {
                continue;
            }
            (address, high) = (end - bar.bytes, end);
        }
        registers[at] = address as u32;
        if let Some(register) = registers.get_mut(at + 1).filter(|_| bar.is_64bit) {
            *register = (address >> 32) as u32;
        }
    }
    registers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For a device whose BAR registers have these size masks.
    fn enumerate(masks: [u32; 6]) -> (Enumeration, Vec<Access>) {
        let mut enumeration = Enumeration::new(&Layout::parse(&[0; 4096], &masks), 0);
        let mut accesses = Vec::new();
        while let Some(access) = enumeration.access() {
            accesses.push(access);
            enumeration.answered();
        }
        (enumeration, accesses)
    }

    #[test]
    fn bars_are_aligned_and_apart_and_the_device_is_switched_on_last() {
        // 64 bits of 16 KiB, 64 bits of 4 GiB, 32 bits of 1 MiB.
        let (enumeration, accesses) = enumerate([0xFFFF_C004, u32::MAX, 0x4, u32::MAX, 0xFFF0_0000, 0]);
        assert_eq!(enumeration.registers, [0xC000_0000, 0, 0, 0x100, 0xC010_0000, 0]);
        let expected = [(0x10, 0xC000_0000), (0x1C, 0x100), (0x20, 0xC010_0000), (4, 0x406)];
        let expected = expected.map(|(offset, value)| Access::ConfigWrite { offset, value });
        assert_eq!(accesses, expected);
    }

    #[test]
    fn a_device_that_answers_nothing_gets_no_address_beyond_the_end() {
        enumerate([u32::MAX; 6]);
        enumerate([4, 0x8000_0000, 4, 0x8000_0000, 4, 0x8000_0000]);
    }
}
