//! What a disk tells of itself: IDENTIFY DEVICE (ACS-3, 7.12), the logs of READ LOG EXT (A), the pages of SMART.

use super::disk::{Disk, MULTIPLE_SECTORS, Mode, TRIM_PAGES};
use super::fis::Registers;
use crate::ids::{OUI, hash, padded};

/// Bytes of a page of anything here.
pub(crate) const PAGE_BYTES: usize = 512;
/// The logs there are.
pub(crate) const LOG_DIRECTORY: u8 = 0x00;
pub(crate) const LOG_QUEUED_ERROR: u8 = 0x10;

/// The names of a disk.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    serial: [u8; 20],
    model: [u8; 40],
    firmware: [u8; 8],
    /// World Wide Name: stable, since guests know disks by it.
    pub(crate) wwn: u64,
}

impl Identity {
    pub(crate) fn new(serial: &str, model: &str, firmware: &str) -> Self {
        let hash = hash(&[b"wwn", serial.as_bytes()]);
        let mut wwn = [0; 8];
        wwn[1..4].copy_from_slice(&OUI);
        wwn[4..].copy_from_slice(&hash[..4]);
        // NAA 5h, the OUI, 36 bits of the vendor's.
        let wwn = 5 << 60 | u64::from_be_bytes(wwn) << 4 | u64::from(hash[4] & 15);
        Self { serial: padded(serial), model: padded(model), firmware: padded(firmware), wwn }
    }
}

/// A page of words.
struct Words<'a>(&'a mut [u8]);

impl Words<'_> {
    fn set(&mut self, word: usize, value: u16) {
        self.0[2 * word..2 * word + 2].copy_from_slice(&value.to_le_bytes());
    }

    /// From its lowest word on.
    fn set_long(&mut self, word: usize, value: u64, words: usize) {
        for at in 0..words {
            self.set(word + at, (value >> (16 * at)) as u16);
        }
    }

    /// Two characters a word, the first in its upper byte (3.3.10).
    fn text(&mut self, word: usize, text: &[u8]) {
        for (at, pair) in text.chunks_exact(2).enumerate() {
            self.set(word + at, u16::from_be_bytes([pair[0], pair[1]]));
        }
    }
}

/// Makes the sum of all bytes 0.
fn check(page: &mut [u8]) {
    let sum = page[..PAGE_BYTES - 1].iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    page[PAGE_BYTES - 1] = sum.wrapping_neg();
}

/// Registers, as the log of queued errors has them.
fn put_registers(registers: &Registers, page: &mut [u8]) {
    let lba = registers.lba.to_le_bytes();
    (page[2], page[3], page[7]) = (registers.status, registers.error, registers.device);
    page[4..7].copy_from_slice(&lba[..3]);
    page[8..11].copy_from_slice(&lba[3..6]);
    page[12..14].copy_from_slice(&registers.count.to_le_bytes());
}

impl Disk {
    pub(super) fn identify(&self, page: &mut [u8]) {
        let page = &mut page[..PAGE_BYTES];
        page.fill(0);
        let mut words = Words(page);
        let sectors = self.sectors();
        // Cylinders, heads and sectors that no one uses.
        for (word, value) in [(0, 0x0040), (1, 16383), (3, 16), (6, 63)] {
            words.set(word, value);
        }
        words.text(10, &self.identity.serial);
        words.text(23, &self.identity.firmware);
        words.text(27, &self.identity.model);
        words.set(47, 0x8000 | u16::from(MULTIPLE_SECTORS));
        words.set(48, 0x4000);
        // DMA, LBA, IORDY, standard standby timer.
        words.set(49, 0x2f00);
        words.set(50, 0x4000);
        // Words 64 to 70 and 88 count.
        words.set(53, 0x0006);
        words.set(59, if self.multiple == 0 { 0 } else { 0x0100 | u16::from(self.multiple) });
        words.set_long(60, sectors.min(0x0fff_ffff), 2);
        words.set(63, 0x0007);
        words.set(64, 0x0003);
        for word in 65..=68 {
            words.set(word, 120);
        }
        if self.info.discard_zeroes {
            // What was trimmed reads as zeros.
            words.set(69, 0x4020);
        }
        words.set(75, 31);
        // Native Command Queuing; 1.5, 3 and 6 Gbit/s.
        words.set(76, 0x010e);
        // ATA/ATAPI-4 to ACS-3.
        words.set(80, 0x07f0);
        // SMART, power management, write cache, look-ahead.
        words.set(82, 0x0061 | 0x0008);
        // 48 bits, FLUSH CACHE and FLUSH CACHE EXT.
        words.set(83, 0x7400);
        // Logs, FUA, World Wide Name.
        words.set(84, 0x4160);
        let enabled = |bit: u16, on: bool| if on { bit } else { 0 };
        let settings = 0x0008
            | enabled(1, self.smart)
            | enabled(0x20, self.write_cache)
            | enabled(0x40, self.look_ahead);
        words.set(85, settings);
        // Words 119 and 120 count.
        words.set(86, 0xb400);
        words.set(87, 0x4160);
        words.set(88, 0x007f | 0x0100 << self.ultra_dma);
        words.set_long(100, sectors, 4);
        words.set(105, TRIM_PAGES);
        // Logical sectors, and how many of them are a physical one of 4 KiB.
        match self.shift {
            12 => {
                words.set(106, 0x5000);
                words.set_long(117, 2048, 2);
            }
            _ => words.set(106, 0x6003),
        }
        for at in 0..4 {
            words.set(108 + at, (self.identity.wwn >> (48 - 16 * at)) as u16);
        }
        // READ LOG DMA EXT.
        words.set(119, 0x4008);
        words.set(120, 0x4008);
        words.set(169, 1);
        // Does not rotate.
        words.set(217, 1);
        // Serial ATA 3.1.
        words.set(222, 0x107f);
        words.set(255, 0x00a5);
        check(page);
    }

    /// A page of a log; false if there is none. What was told of a queued command is forgotten.
    pub(super) fn log(&mut self, log: u8, number: u16, page: &mut [u8]) -> bool {
        let page = &mut page[..PAGE_BYTES];
        page.fill(0);
        match (log, number) {
            (LOG_DIRECTORY, 0) => {
                // Its version, and one page of the other log.
                page[0] = 1;
                page[2 * usize::from(LOG_QUEUED_ERROR)] = 1;
                true
            }
            (LOG_QUEUED_ERROR, 0) => {
                if let Some((tag, registers)) = self.queued_error.take() {
                    // No tag: not a queued command.
                    page[0] = tag.unwrap_or(0x80);
                    put_registers(&registers, page);
                }
                check(page);
                true
            }
            _ => false,
        }
    }

    /// SMART READ DATA (ACS-2, 7.53.6): the attributes that there is something to tell of.
    pub(super) fn smart_data(&self, page: &mut [u8]) {
        let page = &mut page[..PAGE_BYTES];
        page.fill(0);
        page[0] = 0x10;
        for (place, (id, value)) in page[2..362].chunks_exact_mut(12).zip(self.attributes()) {
            // Kept up to date online; 100 of 100.
            place[..5].copy_from_slice(&[id, 0x02, 0, 100, 100]);
            place[5..11].copy_from_slice(&value.to_le_bytes()[..6]);
        }
        // Attributes are saved.
        page[368] = 3;
        check(page);
    }

    /// No attribute can fail: thresholds are 0.
    pub(super) fn smart_thresholds(&self, page: &mut [u8]) {
        let page = &mut page[..PAGE_BYTES];
        page.fill(0);
        page[0] = 0x10;
        for (place, (id, _)) in page[2..362].chunks_exact_mut(12).zip(self.attributes()) {
            place[0] = id;
        }
        check(page);
    }

    /// Power-on hours, reported uncorrectable errors, LBAs written and read.
    fn attributes(&self) -> [(u8, u64); 4] {
        let counters = &self.counters;
        let units = |bytes: u64| bytes >> self.shift;
        let hours = self.now_ns / 3_600_000_000_000;
        [
            (9, hours),
            (187, counters.media_errors),
            (241, units(counters.bytes_written)),
            (242, units(counters.bytes_read)),
        ]
    }

    /// The Count field of CHECK POWER MODE.
    pub(super) fn power_mode(&self) -> u16 {
        match self.mode {
            Mode::Standby | Mode::Sleep => 0x00,
            Mode::Idle => 0x80,
            Mode::Active => 0xff,
        }
    }
}
