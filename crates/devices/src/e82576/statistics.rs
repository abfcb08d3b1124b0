//! The statistics registers (82576 datasheet, 8.18): each is cleared by a read, and stays at its largest value rather than go round.

/// Offsets of the registers that something is counted in.
pub(crate) mod counter {
    pub(crate) const MPC: u32 = 0x4010;
    pub(crate) const RLEC: u32 = 0x4040;
    pub(crate) const PRC64: u32 = 0x405c;
    pub(crate) const GPRC: u32 = 0x4074;
    pub(crate) const BPRC: u32 = 0x4078;
    pub(crate) const MPRC: u32 = 0x407c;
    pub(crate) const GPTC: u32 = 0x4080;
    pub(crate) const GORC: u32 = 0x4088;
    pub(crate) const GOTC: u32 = 0x4090;
    pub(crate) const RNBC: u32 = 0x40a0;
    pub(crate) const RUC: u32 = 0x40a4;
    pub(crate) const ROC: u32 = 0x40ac;
    pub(crate) const TOR: u32 = 0x40c0;
    pub(crate) const TOT: u32 = 0x40c8;
    pub(crate) const TPR: u32 = 0x40d0;
    pub(crate) const TPT: u32 = 0x40d4;
    pub(crate) const PTC64: u32 = 0x40d8;
    pub(crate) const MPTC: u32 = 0x40f0;
    pub(crate) const BPTC: u32 = 0x40f4;
    pub(crate) const TSCTC: u32 = 0x40f8;
    pub(crate) const TSCTFC: u32 = 0x40fc;
    pub(crate) const IAC: u32 = 0x4100;
    pub(crate) const RPTHC: u32 = 0x4104;
    pub(crate) const HGPTC: u32 = 0x4118;
    pub(crate) const HGORC: u32 = 0x4128;
    pub(crate) const HGOTC: u32 = 0x4130;
}

const FIRST: u32 = 0x4000;
const REGISTERS: usize = 0x180 / 4;
/// The low halves of those that are 64 bits long: a read of the upper half clears both.
const LONG: [u32; 6] =
    [counter::GORC, counter::GOTC, counter::TOR, counter::TOT, counter::HGORC, counter::HGOTC];
/// The FCS, which counts in all lengths.
const FCS_BYTES: usize = 4;

/// The registers.
#[derive(Debug)]
pub(crate) struct Statistics {
    registers: [u32; REGISTERS],
    /// The same for ever, for who looks at the box.
    pub(crate) total: Total,
}

/// What happened since the box started.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Total {
    pub(crate) received: u64,
    pub(crate) received_bytes: u64,
    pub(crate) transmitted: u64,
    pub(crate) transmitted_bytes: u64,
    pub(crate) filtered: u64,
    pub(crate) missed: u64,
    pub(crate) refused: u64,
    pub(crate) segmented: u64,
    pub(crate) faults: u64,
}

impl Statistics {
    pub(crate) fn new() -> Self {
        Self { registers: [0; REGISTERS], total: Total::default() }
    }

    pub(crate) fn reset(&mut self) {
        self.registers = [0; REGISTERS];
    }

    fn place(offset: u32) -> Option<usize> {
        let at = (offset.checked_sub(FIRST)? / 4) as usize;
        (at < REGISTERS).then_some(at)
    }

    /// Adds to a register.
    pub(crate) fn add(&mut self, offset: u32, count: u64) {
        let Some(at) = Self::place(offset) else { return };
        if LONG.contains(&offset) {
            let value = u64::from(self.registers[at]) | u64::from(self.registers[at + 1]) << 32;
            let value = value.saturating_add(count);
            (self.registers[at], self.registers[at + 1]) = (value as u32, (value >> 32) as u32);
        } else {
            let count = u32::try_from(count).unwrap_or(u32::MAX);
            self.registers[at] = self.registers[at].saturating_add(count);
        }
    }

    /// The register at `offset`, if it is one of these.
    pub(crate) fn read(&mut self, offset: u32) -> Option<u32> {
        let at = Self::place(offset)?;
        let value = self.registers[at];
        if LONG.contains(&(offset.wrapping_sub(4))) {
            (self.registers[at - 1], self.registers[at]) = (0, 0);
        } else if !LONG.contains(&offset) {
            self.registers[at] = 0;
        }
        Some(value)
    }

    /// A frame came, whoever it was for.
    pub(crate) fn seen(&mut self, bytes: usize) {
        self.add(counter::TPR, 1);
        self.add(counter::TOR, (bytes + FCS_BYTES) as u64);
    }

    /// A frame passed the filters.
    pub(crate) fn received(&mut self, frame: &[u8]) {
        let bytes = (frame.len() + FCS_BYTES) as u64;
        self.total.received += 1;
        self.total.received_bytes += frame.len() as u64;
        for (register, count) in [
            (counter::GPRC, 1),
            (counter::RPTHC, 1),
            (counter::GORC, bytes),
            (counter::HGORC, bytes),
            (size(counter::PRC64, bytes), 1),
        ] {
            self.add(register, count);
        }
        if let Some(register) = group(frame, counter::BPRC, counter::MPRC) {
            self.add(register, 1);
        }
    }

    /// A frame is on its way.
    pub(crate) fn transmitted(&mut self, frame: &[u8]) {
        let bytes = (frame.len() + FCS_BYTES) as u64;
        self.total.transmitted += 1;
        self.total.transmitted_bytes += frame.len() as u64;
        for (register, count) in [
            (counter::TPT, 1),
            (counter::GPTC, 1),
            (counter::HGPTC, 1),
            (counter::TOT, bytes),
            (counter::GOTC, bytes),
            (counter::HGOTC, bytes),
            (size(counter::PTC64, bytes), 1),
        ] {
            self.add(register, count);
        }
        if let Some(register) = group(frame, counter::BPTC, counter::MPTC) {
            self.add(register, 1);
        }
    }
}

/// The register of the six for sizes, of which `first` is that of 64 bytes.
fn size(first: u32, bytes: u64) -> u32 {
    let above = [64, 127, 255, 511, 1023].iter().filter(|&&most| bytes > most).count();
    first + 4 * above as u32
}

/// The register for a frame to all, or to several; none for a frame to one.
fn group(frame: &[u8], broadcast: u32, multicast: u32) -> Option<u32> {
    match frame.first_chunk::<6>() {
        Some([0xff, 0xff, 0xff, 0xff, 0xff, 0xff]) => Some(broadcast),
        Some([first, ..]) if first & 1 != 0 => Some(multicast),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_clears_a_register_and_it_does_not_go_round() {
        let mut statistics = Statistics::new();
        statistics.add(counter::MPC, u64::from(u32::MAX) - 1);
        statistics.add(counter::MPC, 5);
        assert_eq!([0, 1].map(|_| statistics.read(counter::MPC)), [Some(u32::MAX), Some(0)]);
    }

    #[test]
    fn octets_have_64_bits_and_are_cleared_with_their_upper_half() {
        let mut statistics = Statistics::new();
        statistics.add(counter::GORC, u64::from(u32::MAX));
        statistics.add(counter::GORC, 2);
        assert_eq!([0, 1].map(|_| statistics.read(counter::GORC)), [Some(1); 2]);
        assert_eq!(statistics.read(counter::GORC + 4), Some(1));
        assert_eq!([0, 4].map(|at| statistics.read(counter::GORC + at)), [Some(0); 2]);
    }

    #[test]
    fn frames_are_counted_by_size_with_their_fcs_and_by_address() {
        for (bytes, register) in [
            (60, 0x405c),
            (61, 0x4060),
            (123, 0x4060),
            (124, 0x4064),
            (251, 0x4064),
            (252, 0x4068),
            (508, 0x406c),
            (1019, 0x406c),
            (1020, 0x4070),
            (9000, 0x4070),
        ] {
            let mut statistics = Statistics::new();
            statistics.received(&vec![2; bytes]);
            assert_eq!(statistics.read(register), Some(1), "{bytes}");
        }
        for (first, broadcasts, multicasts) in [(0xff, 1, 0), (0x01, 0, 1), (0x02, 0, 0)] {
            let mut statistics = Statistics::new();
            statistics.transmitted(&[first; 60]);
            assert_eq!(statistics.read(counter::BPTC), Some(broadcasts));
            assert_eq!(statistics.read(counter::MPTC), Some(multicasts));
        }
    }
}
