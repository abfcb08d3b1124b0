//! The EEPROM (82576 datasheet, chapter 6) and the registers that lead to it (8.4).
//!
//! It is read by EERD. What is written bit by bit through EECD finds no one: the EEPROM is protected against writes, and is the same after each
//! start of the box.

use crate::ids;

/// Words that have a meaning, and a checksum over them (6.2.24).
const WORDS: usize = 64;
const CHECKSUM: u16 = 0xbaba;

/// EECD (8.4.1): requested, granted, present, read by the hardware, 16 bits of address; 2^(6 + n) words.
mod eecd {
    pub(super) const REQUEST: u32 = 1 << 6;
    pub(super) const GRANT: u32 = 1 << 7;
    pub(super) const PRESENT: u32 = 1 << 8;
    pub(super) const AUTO_READ_DONE: u32 = 1 << 9;
    pub(super) const WIDE_ADDRESS: u32 = 1 << 10;
    /// 1024 words.
    pub(super) const SIZE: u32 = 4 << 11;
    /// The pins, and the request.
    pub(super) const WRITABLE: u32 = 0x4f;
}

/// EERD (8.4.2).
mod eerd {
    pub(super) const START: u32 = 1 << 0;
    pub(super) const DONE: u32 = 1 << 1;
}

/// The EEPROM and its registers.
#[derive(Debug)]
pub(crate) struct Nvm {
    words: [u16; WORDS],
    eecd: u32,
    eerd: u32,
}

impl Nvm {
    pub(crate) fn new(mac: [u8; 6]) -> Self {
        let mut words = [0xffff; WORDS];
        for (word, octets) in words.iter_mut().zip(mac.chunks_exact(2)) {
            *word = u16::from(octets[0]) | u16::from(octets[1]) << 8;
        }
        for (at, word) in [
            // Compatibility, image version, PBA number.
            (0x03, 0x0000),
            (0x05, 0x1000),
            (0x08, 0x0000),
            (0x09, 0x0000),
            // Initialization Control 1; the IDs are to be loaded.
            (0x0a, 0x0020),
            (0x0b, ids::E82576_SUBSYSTEM),
            (0x0c, ids::INTEL),
            (0x0d, ids::E82576),
            (0x0e, ids::INTEL),
            // Initialization Control 2: symmetric flow control.
            (0x0f, 0x1000),
            // Initialization Control 3 of port 1 and 0: no wake-up.
            (0x14, 0x0000),
            (0x24, 0x0000),
            // No alternate MAC addresses.
            (0x37, 0xffff),
        ] {
            words[at] = word;
        }
        let sum = words[..WORDS - 1].iter().fold(0, |sum: u16, word| sum.wrapping_add(*word));
        words[WORDS - 1] = CHECKSUM.wrapping_sub(sum);
        Self { words, eecd: 0, eerd: 0 }
    }

    pub(crate) fn reset(&mut self) {
        (self.eecd, self.eerd) = (0, 0);
    }

    pub(crate) fn eecd(&self) -> u32 {
        let granted = if self.eecd & eecd::REQUEST != 0 { eecd::GRANT } else { 0 };
        self.eecd | granted | eecd::PRESENT | eecd::AUTO_READ_DONE | eecd::WIDE_ADDRESS | eecd::SIZE
    }

    pub(crate) fn set_eecd(&mut self, value: u32) {
        self.eecd = value & eecd::WRITABLE;
    }

    pub(crate) fn eerd(&self) -> u32 {
        self.eerd
    }

    /// A word beyond those that have a meaning is erased.
    pub(crate) fn set_eerd(&mut self, value: u32) {
        let address = value & 0xfffc;
        self.eerd = address;
        if value & eerd::START != 0 {
            let word = self.words.get((address >> 2) as usize).copied().unwrap_or(0xffff);
            self.eerd |= eerd::DONE | u32::from(word) << 16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(nvm: &mut Nvm, at: u32) -> u16 {
        nvm.set_eerd(at << 2 | 1);
        assert_eq!(nvm.eerd() & 2, 2, "DONE");
        (nvm.eerd() >> 16) as u16
    }

    #[test]
    fn words_0_to_63_add_up_to_baba() {
        let mut nvm = Nvm::new([2, 0, 0, 0xab, 0xcd, 0xef]);
        let sum = (0..64).fold(0, |sum: u16, at| sum.wrapping_add(word(&mut nvm, at)));
        assert_eq!(sum, 0xbaba);
    }

    #[test]
    fn the_mac_address_is_in_words_0_to_2_first_octet_lowest() {
        let mut nvm = Nvm::new([2, 0, 0, 0xab, 0xcd, 0xef]);
        assert_eq!([0, 1, 2].map(|at| word(&mut nvm, at)), [0x0002, 0xab00, 0xefcd]);
        assert_eq!(word(&mut nvm, 0x0d), 0x10c9);
        assert_eq!(word(&mut nvm, 1000), 0xffff);
    }

    #[test]
    fn the_interface_is_granted_to_who_requests_it() {
        let mut nvm = Nvm::new([0; 6]);
        assert_eq!(nvm.eecd() & 0x80, 0);
        nvm.set_eecd(0x40);
        assert_eq!(nvm.eecd() & 0xc0, 0xc0);
        assert_eq!(nvm.eecd() >> 11 & 15, 4, "1024 words: fewer than need SPI to be read");
    }
}
