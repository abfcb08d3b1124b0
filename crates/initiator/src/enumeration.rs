//! What firmware and kernel of a PC do with a device before its driver sees it: its configuration space is read, its BARs
//! get addresses, and it may decode them and issue Requests.

use etherslot_pci::enumerate::Layout;

use crate::machine::Access;

const COMMAND: u16 = 0x04;
const BAR0: u16 = 0x10;
/// Capabilities end here; what is behind, in the extended space, no driver here needs.
const IMAGE_BYTES: usize = 256;
const SPACE_BYTES: usize = 4096;
/// Interrupt Disable.
const COMMAND_QUIET: u32 = 1 << 10;
/// The same, Memory Space and Bus Master.
const COMMAND_ACTIVE: u32 = COMMAND_QUIET | 1 << 2 | 1 << 1;
/// Where BARs are put: below 4 GiB, where bridges can have all kinds of them and headers are short; those that don't fit, high above.
const LOW: std::ops::Range<u64> = 0xC000_0000..0xFE00_0000;
const HIGH: u64 = 1 << 40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Quiet,
    Image,
    Ones(u16),
    Size(u16),
    Place(u16),
    Active,
    Done,
}

/// The state of an enumeration: one access at a time.
#[derive(Debug)]
pub(crate) struct Enumeration {
    stage: Stage,
    image: Box<[u8; SPACE_BYTES]>,
    sizes: [u32; 6],
    /// What goes into the six registers.
    registers: [u32; 6],
}

impl Enumeration {
    pub(crate) fn new() -> Self {
        Self { stage: Stage::Quiet, image: Box::new([0; SPACE_BYTES]), sizes: [0; 6], registers: [0; 6] }
    }

    /// The access that is to be made now; none at the end.
    pub(crate) fn access(&self) -> Option<Access> {
        let bar = |bar: u16| BAR0 + 4 * bar;
        Some(match self.stage {
            Stage::Quiet => Access::ConfigWrite { offset: COMMAND, value: COMMAND_QUIET },
            Stage::Image => Access::ConfigRead { offset: 0, bytes: IMAGE_BYTES as u16 },
            Stage::Ones(at) => Access::ConfigWrite { offset: bar(at), value: u32::MAX },
            Stage::Size(at) => Access::ConfigRead { offset: bar(at), bytes: 4 },
            Stage::Place(at) => {
                Access::ConfigWrite { offset: bar(at), value: self.registers[usize::from(at)] }
            }
            Stage::Active => Access::ConfigWrite { offset: COMMAND, value: COMMAND_ACTIVE },
            Stage::Done => return None,
        })
    }

    /// Takes the answer.
    pub(crate) fn answered(&mut self, data: &[u8]) {
        let next = |bar: u16, stage: fn(u16) -> Stage, then: Stage| {
            if bar < 5 { stage(bar + 1) } else { then }
        };
        self.stage = match self.stage {
            Stage::Quiet => Stage::Image,
            Stage::Image => {
                self.image[..data.len()].copy_from_slice(data);
                Stage::Ones(0)
            }
            Stage::Ones(bar) => Stage::Size(bar),
            Stage::Size(bar) => {
                self.sizes[usize::from(bar)] =
                    data.first_chunk().copied().map_or(u32::MAX, u32::from_le_bytes);
                if bar == 5 {
                    self.assign();
                }
                next(bar, Stage::Ones, Stage::Place(0))
            }
            Stage::Place(bar) => next(bar, Stage::Place, Stage::Active),
            Stage::Active | Stage::Done => Stage::Done,
        };
    }

    /// What the space tells; known when all is done.
    pub(crate) fn layout(&self) -> Layout {
        Layout::parse(&self.image, &self.sizes)
    }

    fn assign(&mut self) {
        let (mut low, mut high) = (LOW.start, HIGH);
        let bars = self.layout().bars;
        for (at, bar) in bars.iter().enumerate().filter_map(|(at, bar)| bar.map(|bar| (at, bar))) {
            let mut address = low.next_multiple_of(bar.bytes);
            if address.checked_add(bar.bytes).is_some_and(|end| end <= LOW.end) {
                low = address + bar.bytes;
            } else {
                let place = high.checked_next_multiple_of(bar.bytes);
                let Some(end) = place.and_then(|at| at.checked_add(bar.bytes)) else { continue };
                if !bar.is_64bit {
                    continue;
                }
                (address, high) = (end - bar.bytes, end);
            }
            self.registers[at] = address as u32;
            if let Some(register) = self.registers.get_mut(at + 1).filter(|_| bar.is_64bit) {
                *register = (address >> 32) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as a device whose BAR registers have these size masks.
    fn enumerate(masks: [u32; 6]) -> (Enumeration, Vec<Access>) {
        let mut enumeration = Enumeration::new();
        let mut accesses = Vec::new();
        while let Some(access) = enumeration.access() {
            accesses.push(access);
            match access {
                Access::ConfigRead { offset: 0, bytes } => enumeration.answered(&vec![0; bytes.into()]),
                Access::ConfigRead { offset, .. } => {
                    enumeration.answered(&masks[usize::from(offset - 0x10) / 4].to_le_bytes());
                }
                _ => enumeration.answered(&[]),
            }
        }
        (enumeration, accesses)
    }

    #[test]
    fn bars_are_aligned_and_apart_and_the_device_is_switched_on_last() {
        // 64 bits of 16 KiB, 64 bits of 4 GiB, 32 bits of 1 MiB.
        let (enumeration, accesses) = enumerate([0xFFFF_C004, u32::MAX, 0x4, u32::MAX, 0xFFF0_0000, 0]);
        assert_eq!(enumeration.registers, [0xC000_0000, 0, 0, 0x100, 0xC010_0000, 0]);
        assert_eq!(accesses.first(), Some(&Access::ConfigWrite { offset: 4, value: 0x400 }));
        assert_eq!(accesses.last(), Some(&Access::ConfigWrite { offset: 4, value: 0x406 }));
    }

    #[test]
    fn a_device_that_answers_nothing_gets_no_address_beyond_the_end() {
        enumerate([u32::MAX; 6]);
        enumerate([4, 0x8000_0000, 4, 0x8000_0000, 4, 0x8000_0000]);
    }
}
