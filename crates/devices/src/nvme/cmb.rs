//! The Controller Memory Buffer (NVMe Base 1.4, 4.7, 3.1.11 to 3.1.16): memory of the controller that the host can fill and
//! name in commands instead of its own. Queues, lists and data can be there.

use super::bits::PAGE_BYTES;
use etherslot_pci::function::Bus;
use std::ops::Range;

/// The BAR it has for itself (CMBLOC.BIR).
pub(crate) const BAR: u8 = 2;

/// CMBMSC: Capabilities Registers Enabled, Controller Memory Space Enable.
const CRE: u64 = 1;
const CMSE: u64 = 2;
/// CMBSTS: Controller Base Address Invalid.
const CBAI: u32 = 1;

/// CMBLOC: queues and data may be partly in it and partly elsewhere, in any way (CQMMS, CQPDS, CDPMLS, CDPCILS, CDMMMS,
/// CQDA).
const MIXED: u32 = 0x3f << 3;
/// CMBSZ: SQS, CQS, LISTS, RDS, WDS.
const USES: u32 = 0x1f;

/// A range of memory addresses, in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Within the buffer, at these offsets.
    Inside(Range<usize>),
    /// Elsewhere; so many bytes from the start.
    Outside(usize),
}

/// The buffer and its registers.
#[derive(Debug, Default)]
pub(crate) struct Cmb {
    memory: Box<[u8]>,
    /// CMBMSC.
    space_control: u64,
}

impl Cmb {
    /// A buffer of `bytes` (a multiple of 4096), or none if 0.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { memory: vec![0; bytes].into_boxed_slice(), space_control: 0 }
    }

    pub(crate) fn exists(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> usize {
        self.memory.len()
    }

    /// CMBLOC; 0 until the host has enabled it, so that one of an earlier version of the specification leaves it alone.
    pub(crate) fn location(&self) -> u32 {
        if self.space_control & CRE == 0 { 0 } else { MIXED | u32::from(BAR) }
    }

    /// CMBSZ, in units of 4 KiB.
    pub(crate) fn size(&self) -> u32 {
        if self.space_control & CRE == 0 { 0 } else { (self.memory.len() as u32 / PAGE_BYTES) << 12 | USES }
    }

    /// CMBMSC.
    pub(crate) fn space_control(&self) -> u64 {
        self.space_control
    }

    pub(crate) fn set_space_control(&mut self, value: u64) {
        if self.exists() {
            self.space_control = value & (!0xfff | CMSE | CRE);
        }
    }

    /// CMBSTS.
    pub(crate) fn status(&self) -> u32 {
        if self.space_control & CMSE != 0 && self.window().is_none() { CBAI } else { 0 }
    }

    /// The addresses by which the host names it in commands.
    fn window(&self) -> Option<Range<u64>> {
        if self.space_control & CMSE == 0 {
            return None;
        }
        let start = self.space_control & !0xfff;
        Some(start..start.checked_add(self.memory.len() as u64)?)
    }

    /// Where the first bytes of `bytes` from `address` on are.
    pub(crate) fn place(&self, address: u64, bytes: usize) -> Place {
        let Some(window) = self.window() else { return Place::Outside(bytes) };
        if window.contains(&address) {
            let start = (address - window.start) as usize;
            Place::Inside(start..(start + bytes).min(self.memory.len()))
        } else if address < window.start {
            Place::Outside(bytes.min(usize::try_from(window.start - address).unwrap_or(usize::MAX)))
        } else {
            Place::Outside(bytes)
        }
    }

    /// The bytes at offsets that [`Cmb::place`] gave.
    pub(crate) fn at(&self, range: Range<usize>) -> &[u8] {
        &self.memory[range]
    }

    /// The same, to be written.
    pub(crate) fn at_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        &mut self.memory[range]
    }

    /// Writes a few bytes, which lie wholly inside or outside, here or by `bus`. False if there is no room.
    pub(crate) fn write(&mut self, bus: &mut dyn Bus, address: u64, data: &[u8]) -> bool {
        match self.place(address, data.len()) {
            Place::Inside(range) => {
                let bytes = range.len();
                self.memory[range].copy_from_slice(&data[..bytes]);
                true
            }
            Place::Outside(_) => bus.write(address, data) == data.len(),
        }
    }

    /// An access to its BAR. Beyond the buffer there is nothing: zeros.
    pub(crate) fn bar_read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.memory.len());
        let bytes = data.len().min(self.memory.len() - start);
        data[..bytes].copy_from_slice(&self.memory[start..start + bytes]);
    }

    /// An access to its BAR.
    pub(crate) fn bar_write(&mut self, offset: u64, data: &[u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.memory.len());
        let bytes = data.len().min(self.memory.len() - start);
        self.memory[start..start + bytes].copy_from_slice(&data[..bytes]);
    }

    /// Loses its content and its place.
    pub(crate) fn reset(&mut self) {
        self.space_control = 0;
        self.memory.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_registers_show_only_after_the_host_has_enabled_them() {
        let mut cmb = Cmb::new(1 << 20);
        assert_eq!((cmb.location(), cmb.size()), (0, 0));
        cmb.set_space_control(CRE);
        assert_eq!(cmb.location() & 7, 2, "BIR");
        assert_eq!(cmb.size() >> 12, 256, "SZ");
        assert_eq!(cmb.size() >> 8 & 15, 0, "SZU: 4 KiB");
        assert_eq!(cmb.place(0, 8), Place::Outside(8));
    }

    #[test]
    fn addresses_are_split_at_its_borders() {
        let mut cmb = Cmb::new(8192);
        cmb.set_space_control(0x10_0000 | CRE | CMSE);
        assert_eq!(cmb.place(0x10_0000, 8192), Place::Inside(0..8192));
        assert_eq!(cmb.place(0x0f_fff0, 32), Place::Outside(16));
        assert_eq!(cmb.place(0x10_1ff0, 32), Place::Inside(8176..8192));
        assert_eq!(cmb.place(0x10_2000, 32), Place::Outside(32));
        assert_eq!(cmb.place(u64::MAX, 32), Place::Outside(32));
        cmb.set_space_control(!0xfff | CRE | CMSE);
        assert_eq!(cmb.status(), CBAI, "it would go round the end of the address space");
        assert_eq!(cmb.place(!0xfff, 32), Place::Outside(32));
    }

    #[test]
    fn beyond_it_reads_are_zeros_and_writes_are_lost() {
        let mut cmb = Cmb::new(4096);
        cmb.bar_write(4094, &[1, 2, 3, 4]);
        let mut data = [9; 4];
        cmb.bar_read(4094, &mut data);
        assert_eq!(data, [1, 2, 0, 0]);
        cmb.bar_write(u64::MAX, &[1]);
        cmb.bar_read(u64::MAX, &mut data);
        assert_eq!(data, [0; 4]);
    }
}
