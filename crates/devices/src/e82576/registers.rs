//! Registers that are kept as they are written (82576 datasheet, chapter 8): which there are, their writable bits, and their values after a reset.
//!
//! What others mean when they are read or written is in the modules of their subjects; what is in no table reads as 0.

use super::bits::{ctrl, register};

/// A row of registers, 4 bytes apart.
struct Row {
    first: u32,
    count: u32,
    writable: u32,
    initial: u32,
}

const fn row(first: u32, count: u32, writable: u32, initial: u32) -> Row {
    Row { first, count, writable, initial }
}

const ALL: u32 = u32::MAX;

/// In ascending order.
const ROWS: &[Row] = &[
    row(register::CTRL, 1, !(ctrl::RST | ctrl::PHY_RST), ctrl::FD | ctrl::SPEED_1000 | ctrl::ADVD3WUC),
    // The link mode stays copper.
    row(register::CTRL_EXT, 1, !(3 << 22), 0),
    row(register::FCAL, 1, ALL, 0x00c2_8001),
    row(register::FCAH, 1, 0xffff, 0x0100),
    row(register::FCT, 1, 0xffff, 0x8808),
    row(register::CONNSW, 1, 0x7, 0),
    row(register::VET, 1, ALL, 0x8100_8100),
    row(register::RCTL, 1, 0x04df_f3fe, 0),
    row(register::FCTTV, 1, 0xffff, 0),
    row(register::TCTL, 1, 0x03ff_fffa, 0),
    row(register::TCTL_EXT, 1, 0x000f_ffff, 0x0001_0840),
    row(register::TIPG, 1, 0x3fff_ffff, 0x0060_1c08 & 0x3fff_ffff),
    row(register::LEDCTL, 1, ALL, 0x0706_8302),
    row(register::FCRTL, 1, 0x8000_fff0, 0),
    row(register::FCRTH, 1, 0x0000_fff0, 0),
    row(register::RXPBS, 1, 0x7f, 0x40),
    row(register::FCRTV, 1, 0xffff, 0),
    row(register::SWPBS, 1, 0x7f, 0x14),
    row(register::TXPBS, 1, 0x7f, 0x28),
    row(register::DTXCTL, 1, 0xffff, 0),
    row(register::DTXTCPFLGL, 1, 0x0fff_0fff, 0x0ff6_0ff6),
    row(register::DTXTCPFLGH, 1, 0x0fff, 0x0f7f),
    row(register::RXCSUM, 1, 0x3bff, 0x0300),
    row(register::RLPML, 1, 0x3fff, 0x2600),
    row(register::RFCTL, 1, 0xfff_ffff, 0),
    row(register::MTA, 128, ALL, 0),
    row(register::RAL, 32, ALL, 0),
    row(register::PSRTYPE, 8, ALL, 0),
    row(register::RAL2, 16, ALL, 0),
    row(register::VFTA, 128, ALL, 0),
    row(register::WUC, 1, 0xff, 0),
    row(register::WUFC, 1, 0x00ff_c0ff, 0),
    row(register::MRQC, 1, 0x03ff_003f, 0),
    row(register::VT_CTL, 1, ALL, 0),
    row(register::VMOLR, 8, ALL, 0),
    row(register::RPLOLR, 1, 0xc000_0000, 0),
    row(register::GCR, 1, ALL, 0),
    row(register::SW_FW_SYNC, 1, ALL, 0),
    row(register::RETA, 32, 0x0f0f_0f0f, 0),
    row(register::RSSRK, 10, ALL, 0),
    row(register::ETQF, 8, ALL, 0),
    row(register::VLVF, 32, ALL, 0),
    row(register::UTA, 128, ALL, 0),
    row(register::TIMINCA, 1, ALL, 0),
    row(register::TSYNCTXCTL, 1, 0x10, 0),
    row(register::TSYNCRXCTL, 1, 0x1e, 0),
    row(register::TSAUXC, 1, ALL, 0),
];

/// RAH (8.10.15): the address's upper octets, how and to which pool it is, and whether it is valid.
const RAH_WRITABLE: u32 = 0x83ff_ffff;

/// The registers.
#[derive(Debug)]
pub(crate) struct Registers {
    values: Vec<u32>,
    /// Where in `values` each row begins.
    starts: [u16; ROWS.len()],
}

impl Registers {
    pub(crate) fn new() -> Self {
        let mut starts = [0; ROWS.len()];
        let mut total = 0;
        for (start, row) in starts.iter_mut().zip(ROWS) {
            *start = total as u16;
            total += row.count;
        }
        let mut registers = Self { values: vec![0; total as usize], starts };
        registers.reset();
        registers
    }

    pub(crate) fn reset(&mut self) {
        for (row, start) in ROWS.iter().zip(self.starts) {
            let start = usize::from(start);
            self.values[start..start + row.count as usize].fill(row.initial);
        }
    }

    /// The place of the register at `offset`, and its row.
    fn find(&self, offset: u32) -> Option<(usize, &'static Row)> {
        let behind = ROWS.partition_point(|row| row.first <= offset);
        let row = ROWS.get(behind.checked_sub(1)?)?;
        let at = (offset - row.first) / 4;
        (at < row.count).then(|| (usize::from(self.starts[behind - 1]) + at as usize, row))
    }

    /// The register at `offset`, a multiple of 4; 0 if there is none.
    pub(crate) fn get(&self, offset: u32) -> u32 {
        self.find(offset).map_or(0, |(at, _)| self.values[at])
    }

    /// Writes the register at `offset`, if there is one.
    pub(crate) fn set(&mut self, offset: u32, value: u32) {
        let Some((at, row)) = self.find(offset) else { return };
        let is_high = matches!(row.first, register::RAL | register::RAL2) && offset & 4 != 0;
        let writable = if is_high { RAH_WRITABLE } else { row.writable };
        self.values[at] = value & writable | row.initial & !row.writable;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_order_and_none_lies_over_another() {
        for pair in ROWS.windows(2) {
            assert!(pair[0].first + 4 * pair[0].count <= pair[1].first, "{:#x}", pair[1].first);
        }
    }

    #[test]
    fn registers_keep_their_writable_bits_and_lose_them_with_a_reset() {
        let mut registers = Registers::new();
        for (offset, writable, initial) in [
            (register::RCTL, 0x04df_f3fe, 0),
            (register::VET, ALL, 0x8100_8100),
            (register::RAL + 4, 0x83ff_ffff, 0),
            (register::RAL2 + 15 * 4, 0x83ff_ffff, 0),
            (register::MTA + 127 * 4, ALL, 0),
            (register::RETA, 0x0f0f_0f0f, 0),
        ] {
            assert_eq!(registers.get(offset), initial, "{offset:#x}");
            for pattern in [0x5a5a_5a5a, 0xa5a5_a5a5, 0, ALL] {
                registers.set(offset, pattern);
                assert_eq!(registers.get(offset), pattern & writable, "{offset:#x}");
            }
            registers.reset();
            assert_eq!(registers.get(offset), initial, "{offset:#x}");
        }
        registers.set(0x7ffc, ALL);
        assert_eq!(registers.get(0x7ffc), 0, "there is none");
    }
}
