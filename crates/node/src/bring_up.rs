//! Bringing up a Function that was just attached: the steps a PC's firmware would take.
//!
//! Bus numbers for the ports above it, its ID by a first Configuration Write, a copy of what its configuration space tells,
//! the sizes of its BARs. A stream is strictly in order, so nothing here waits for the answer to what it follows: all
//! is sent at once, but for the extended capabilities, whose list is followed one by one.

use etherslot_pci::enumerate::{self, Windows};
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

/// Reads of the DWs of `first..end`.
fn dws(first: u16, end: u16) -> impl Iterator<Item = Step> {
    (first..end).step_by(4).map(|register| Step::Read { register })
}

/// A Configuration Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write this DW.
    Write { target: FunctionId, register: u16, value: u32 },
    /// Read this DW of the Function into the image.
    Read { register: u16 },
    /// Read what a BAR register of the Function has become.
    Size { bar: u16 },
}

/// The state of a bring-up.
#[derive(Debug)]
pub(crate) struct BringUp {
    function: FunctionId,
    /// All that are known of, in the order in which they are sent.
    steps: Vec<Step>,
    sent: usize,
    answered: usize,
    /// Where the list of extended capabilities goes on.
    header: Option<u16>,
    /// Nothing is sent before.
    start_ns: u64,
    failed: bool,
    /// The Function's space: the first 256 bytes, the headers of extended capabilities, and error reporting.
    pub(crate) image: Box<[u8; BYTES]>,
    /// What each BAR register read after all ones were written to it.
    pub(crate) bar_sizes: [u32; 6],
}

impl BringUp {
    /// For the Function below `port`, which is a downstream port of the session's switch, from `start_ns` on.
    pub(crate) fn new(port: FunctionId, start_ns: u64) -> Self {
        let function = function_below(port);
        let write = |target, register, value| Step::Write { target, register, value };
        let upstream_buses = enumerate::bus_numbers(1, INTERNAL_BUS, 0xFF);
        let port_buses = enumerate::bus_numbers(INTERNAL_BUS, function.bus(), function.bus());
        let mut steps = vec![
            write(UPSTREAM, BRIDGE_BUS_NUMBERS, upstream_buses),
            write(UPSTREAM, BRIDGE_COMMAND, BRIDGE_COMMAND_VALUE),
        ];
        steps.extend(everything().map(|(register, value)| write(UPSTREAM, register, value)));
        steps.push(write(port, BRIDGE_BUS_NUMBERS, port_buses));
        steps.push(write(port, BRIDGE_COMMAND, BRIDGE_COMMAND_VALUE));
        steps.push(write(function, INTERRUPT_LINE, 0xFF));
        steps.extend(dws(0, enumerate::FIRST_EXTENDED_CAPABILITY));
        for bar in 0..6 {
            let register = BAR0 as u16 + 4 * bar;
            steps.extend([
                write(function, register, u32::MAX),
                Step::Size { bar },
                write(function, register, 0),
            ]);
        }
        let header = enumerate::FIRST_EXTENDED_CAPABILITY;
        steps.push(Step::Read { register: header });
        Self {
            function,
            steps,
            sent: 0,
            answered: 0,
            header: Some(header),
            start_ns,
            failed: false,
            image: Box::new([0; BYTES]),
            bar_sizes: [0; 6],
        }
    }

    /// The request that is to be sent next: its number, its target, its register, and what is to be written.
    pub(crate) fn next(&self) -> Option<(u16, FunctionId, u16, Option<u32>)> {
        if self.failed {
            return None;
        }
        let (target, register, value) = match *self.steps.get(self.sent)? {
            Step::Write { target, register, value } => (target, register, Some(value)),
            Step::Read { register } => (self.function, register, None),
            Step::Size { bar } => (self.function, BAR0 as u16 + 4 * bar, None),
        };
        Some((self.sent as u16, target, register, value))
    }

    /// The request of [`BringUp::next`] is on its way.
    pub(crate) fn sent(&mut self) {
        self.sent += 1;
    }

    /// When it begins.
    pub(crate) fn start_ns(&self) -> u64 {
        self.start_ns
    }

    /// What was sent has its answers, and they do not tell what has to be known.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed && self.answered == self.sent
    }

    /// All is known.
    pub(crate) fn is_done(&self) -> bool {
        !self.failed && self.answered == self.steps.len()
    }

    /// Takes the answer to the request of this number, if it was answered; the value of a write's is ignored. A space of which
    /// nobody answers for the first 256 bytes is none: what was read in its place would be taken for another device later.
    pub(crate) fn answered(&mut self, number: u16, answer: Option<u32>) {
        let value = answer.unwrap_or(u32::MAX);
        let Some(&step) = self.steps.get(usize::from(number)) else { return };
        self.answered += 1;
        let is_extended =
            matches!(step, Step::Read { register } if register >= enumerate::FIRST_EXTENDED_CAPABILITY);
        self.failed |= answer.is_none() && !is_extended;
        match step {
            Step::Write { .. } => {}
            Step::Read { register } => {
                let at = usize::from(register);
                self.image[at..at + 4].copy_from_slice(&value.to_le_bytes());
                if self.header == Some(register) {
                    self.follow(register, value);
                }
            }
            Step::Size { bar } => self.bar_sizes[usize::from(bar)] = value,
        }
    }

    /// Asks for what `header`, that of an extended capability, leads to. Nothing is read twice, so a loop ends.
    fn follow(&mut self, at: u16, header: u32) {
        self.header = None;
        let Some(capability) = enumerate::extended_header(header) else { return };
        let body = capability.body_bytes.min(BYTES as u16 - at);
        self.steps.extend(dws(at + 4, at + body));
        let header = Step::Read { register: capability.next };
        if capability.next >= enumerate::FIRST_EXTENDED_CAPABILITY && !self.steps.contains(&header) {
            self.header = Some(capability.next);
            self.steps.push(header);
        }
    }
}

#[cfg(test)]
mod tests {
    use etherslot_pci::enumerate::Layout;

    use super::*;

    const PORT: FunctionId = FunctionId::new(2, 3, 0);
    const HEADER: u16 = 0x100;

    /// Header, the list MSI-X, PCI Express, and this one of extended capabilities.
    fn space(extended: &[(u16, u32)]) -> [u8; BYTES] {
        let mut space = [0; BYTES];
        let bytes = [(0x00, 0x34), (0x02, 0x78), (0x06, 0x10), (0x34, 0x40), (0x3D, 1)];
        let lists = [(0x40, 0x11), (0x41, 0xF0), (0x42, 0x03), (0xF0, 0x10), (0xF1, 0)];
        for (at, byte) in bytes.into_iter().chain(lists) {
            space[at] = byte;
        }
        for &(at, header) in extended {
            let at = usize::from(at);
            space[at..at + 4].copy_from_slice(&header.to_le_bytes());
        }
        space
    }

    /// Brings up a Function with this space, some requests at a time; how many there were.
    fn bring_up(space: &[u8; BYTES], at_once: usize) -> (BringUp, usize) {
        let mut script = BringUp::new(PORT, 0);
        let mut count = 0;
        while !script.is_done() {
            let mut asked = Vec::new();
            while let Some((number, target, register, value)) = script.next()
                && asked.len() < at_once
            {
                assert!(value.is_some() || target == function_below(PORT));
                script.sent();
                asked.push((number, register));
            }
            assert!(!asked.is_empty(), "it waits for nothing");
            count += asked.len();
            for (number, register) in asked {
                let at = usize::from(register);
                let is_size = matches!(script.steps[usize::from(number)], Step::Size { .. });
                let value = u32::from_le_bytes([space[at], space[at + 1], space[at + 2], space[at + 3]]);
                script.answered(number, Some(if is_size { 0xFFFF_F000 } else { value }));
            }
        }
        (script, count)
    }

    #[test]
    fn what_is_read_tells_all_that_the_whole_space_tells() {
        // Vendor-specific, error reporting, serial number.
        let extended = [(HEADER, 0x2001_000B), (0x200, 0x5401_0001), (0x540, 0x0001_0003)];
        let mut whole = space(&extended);
        whole[0x204..0x22C].fill(0x5A);
        for at_once in [1, 7, 256] {
            let (script, count) = bring_up(&whole, at_once);
            let layout = Layout::parse(&script.image, &script.bar_sizes);
            assert_eq!(layout, Layout::parse(&whole, &[0xFFFF_F000; 6]));
            assert_eq!((layout.aer, layout.serial_number), (Some(0x200), Some(0x540)));
            assert_eq!(script.image[..HEADER as usize], whole[..HEADER as usize]);
            assert_eq!(script.image[0x200..0x22C], whole[0x200..0x22C]);
            assert!(count < 120, "{count}");
        }
    }

    #[test]
    fn a_list_that_loops_or_leads_out_of_the_space_ends() {
        let to_itself = [(HEADER, 0x1001_000B)];
        let to_and_fro = [(HEADER, 0xFFC1_0001), (0xFFC, 0x1001_0001)];
        for extended in [&to_itself[..], &to_and_fro] {
            assert!(bring_up(&space(extended), 256).1 < 120);
        }
        // A chain through the whole space.
        let chain: Vec<_> =
            (HEADER..0xFFC).step_by(4).map(|at| (at, u32::from(at + 4) << 20 | 0x1_0001)).collect();
        assert!(bring_up(&space(&chain), 256).1 < 1200);
    }

    #[test]
    fn a_function_that_does_not_answer_is_not_known() {
        let (silent, at_once) = (50, 70);
        let mut script = BringUp::new(PORT, 0);
        for _ in 0..at_once {
            script.sent();
        }
        for number in 0..at_once {
            assert!(!script.has_failed() && !script.is_done());
            script.answered(number, (number != silent).then_some(0));
        }
        assert!(script.has_failed() && script.next().is_none() && !script.is_done());
    }

    #[test]
    fn a_function_that_answers_all_ones_is_read_to_the_end() {
        assert!(bring_up(&[0xFF; BYTES], 256).1 < 120);
    }
}
