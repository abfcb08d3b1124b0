//! The controller registers (NVMe Base 1.4, 3.1), but for the doorbells and those of the CMB.
//!
//! They are kept and shown here; what a write starts is told by an [`Effect`]. Accesses are taken dword by dword.

use super::bits::{NSSR_MAGIC, VERSION, cap, cc, csts, register};
use super::queue::MAX_ENTRIES;

/// CAP.TO, in units of 500 ms: how long a controller that waits for its medium may take to become ready.
const TIMEOUT: u64 = 60;

/// What a write to a register asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing but the register itself.
    None,
    /// CC.EN was set.
    Enable,
    /// CC.EN was cleared.
    Disable,
    /// CC.SHN asks for a shutdown.
    Shutdown,
    /// The NVM subsystem is to be reset.
    SubsystemReset,
    /// Interrupts may have been unmasked.
    Unmasked,
}

/// CSTS.SHST.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Shutdown {
    #[default]
    None,
    Occurring,
    Complete,
}

/// The registers.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    has_cmb: bool,
    /// Interrupt mask, set by INTMS and cleared by INTMC.
    mask: u32,
    cc: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    pub(crate) ready: bool,
    pub(crate) fatal: bool,
    pub(crate) shutdown: Shutdown,
    subsystem_reset_occurred: bool,
}

impl Registers {
    pub(crate) fn new(has_cmb: bool) -> Self {
        Self { has_cmb, ..Self::default() }
    }

    /// All but the fact that the subsystem was reset, if it was, goes back to the start.
    pub(crate) fn reset(&mut self, by_subsystem: bool) {
        *self = Self { has_cmb: self.has_cmb, subsystem_reset_occurred: by_subsystem, ..Self::default() };
    }

    /// CAP (3.1.1).
    fn capabilities(&self) -> u64 {
        u64::from(MAX_ENTRIES - 1) << cap::MQES_SHIFT
            | cap::CQR
            | TIMEOUT << cap::TO_SHIFT
            | cap::NSSRS
            | cap::CSS_NVM
            | if self.has_cmb { cap::CMBS } else { 0 }
    }

    fn status(&self) -> u32 {
        let mut status = match self.shutdown {
            Shutdown::None => 0,
            Shutdown::Occurring => csts::SHST_OCCURRING,
            Shutdown::Complete => csts::SHST_COMPLETE,
        };
        for (set, bit) in
            [(self.ready, csts::RDY), (self.fatal, csts::CFS), (self.subsystem_reset_occurred, csts::NSSRO)]
        {
            status |= if set { bit } else { 0 };
        }
        status
    }

    /// CC.EN.
    pub(crate) fn enabled(&self) -> bool {
        self.cc & cc::EN != 0
    }

    /// Whether CC and AQA, ASQ, ACQ ask for something we are capable of.
    pub(crate) fn is_valid(&self) -> bool {
        // NVM command set, 4 KiB pages, round robin: all 0. At least 2 entries.
        self.cc & (cc::CSS | cc::MPS | cc::AMS) == 0 && self.aqa & 0xfff != 0 && self.aqa >> 16 & 0xfff != 0
    }

    /// Whether CC names the entry sizes we have: 64 and 16 bytes.
    pub(crate) fn has_io_entry_sizes(&self) -> bool {
        self.cc >> cc::IOSQES_SHIFT & 15 == 6 && self.cc >> cc::IOCQES_SHIFT & 15 == 4
    }

    /// Base and entries of the Admin Submission Queue.
    pub(crate) fn admin_sq(&self) -> (u64, u32) {
        (self.asq, (self.aqa & 0xfff) + 1)
    }

    /// Base and entries of the Admin Completion Queue.
    pub(crate) fn admin_cq(&self) -> (u64, u32) {
        (self.acq, (self.aqa >> 16 & 0xfff) + 1)
    }

    /// Whether INTMS has masked `vector`; no vector above 31 can be.
    pub(crate) fn is_masked(&self, vector: u16) -> bool {
        vector < 32 && self.mask & 1 << vector != 0
    }

    /// The dword at `offset`; 0 where there is nothing.
    pub(crate) fn read(&self, offset: u32) -> u32 {
        match offset {
            register::CAP => self.capabilities() as u32,
            register::CAP_HIGH => (self.capabilities() >> 32) as u32,
            register::VS => VERSION,
            register::INTMS | register::INTMC => self.mask,
            register::CC => self.cc,
            register::CSTS => self.status(),
            register::AQA => self.aqa,
            register::ASQ => self.asq as u32,
            register::ASQ_HIGH => (self.asq >> 32) as u32,
            register::ACQ => self.acq as u32,
            register::ACQ_HIGH => (self.acq >> 32) as u32,
            _ => 0,
        }
    }

    /// Writes the dword at `offset`.
    pub(crate) fn write(&mut self, offset: u32, value: u32) -> Effect {
        let low = |old: u64| old & !0xffff_ffff | u64::from(value & !0xfff);
        let high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        match offset {
            register::INTMS => self.mask |= value,
            register::INTMC => {
                self.mask &= !value;
                return Effect::Unmasked;
            }
            register::CC => return self.write_cc(value),
            register::CSTS if value & csts::NSSRO != 0 => self.subsystem_reset_occurred = false,
            register::NSSR if value == NSSR_MAGIC => return Effect::SubsystemReset,
            // While the controller is enabled these are not to be changed; it has taken its copies.
            register::AQA => self.aqa = value & 0x0fff_0fff,
            register::ASQ => self.asq = low(self.asq),
            register::ASQ_HIGH => self.asq = high(self.asq),
            register::ACQ => self.acq = low(self.acq),
            register::ACQ_HIGH => self.acq = high(self.acq),
            _ => {}
        }
        Effect::None
    }

    fn write_cc(&mut self, value: u32) -> Effect {
        let old = std::mem::replace(&mut self.cc, value & cc::WRITABLE);
        let new = self.cc;
        // A reset takes precedence over a shutdown asked for with the same write.
        if old & cc::EN != 0 && new & cc::EN == 0 {
            return Effect::Disable;
        }
        if new & cc::SHN != 0 && old & cc::SHN == 0 {
            return Effect::Shutdown;
        }
        if new & cc::SHN == 0 && new & cc::EN == 0 && self.shutdown == Shutdown::Complete {
            self.shutdown = Shutdown::None;
        }
        if new & cc::EN != 0 && old & cc::EN == 0 { Effect::Enable } else { Effect::None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn qword(registers: &Registers, offset: u32) -> u64 {
        u64::from(registers.read(offset)) | u64::from(registers.read(offset + 4)) << 32
    }

    #[test]
    fn cap_says_what_we_can_do() {
        let cap = qword(&Registers::new(false), 0);
        assert_eq!(cap & 0xffff, 4095, "MQES");
        assert_eq!(cap >> 16 & 1, 1, "CQR");
        assert_eq!(cap >> 17 & 3, 0, "AMS: round robin only");
        assert_eq!(cap >> 24 & 0xff, 60, "TO: 30 s");
        assert_eq!(cap >> 32 & 15, 0, "DSTRD");
        assert_eq!(cap >> 36 & 1, 1, "NSSRS");
        assert_eq!(cap >> 37 & 0xff, 1, "CSS: NVM");
        assert_eq!(cap >> 45 & 1, 0, "BPS");
        assert_eq!(cap >> 48 & 0xff, 0, "MPSMIN, MPSMAX: 4 KiB");
        assert_eq!(cap >> 56, 0, "PMRS, CMBS");
        assert_eq!(qword(&Registers::new(true), 0) >> 57, 1, "CMBS");
        assert_eq!(Registers::new(false).read(8), 0x0001_0400, "VS: 1.4");
    }

    #[test]
    fn admin_queue_registers_keep_their_writable_bits() {
        let mut registers = Registers::default();
        registers.write(0x24, 0xffff_ffff);
        assert_eq!(registers.read(0x24), 0x0fff_0fff);
        for offset in [0x28, 0x30] {
            registers.write(offset, 0xffff_ffff);
            registers.write(offset + 4, 0x0123_4567);
            assert_eq!(qword(&registers, offset), 0x0123_4567_ffff_f000);
        }
        registers.write(0x24, 0x001f_0007);
        assert_eq!(registers.admin_sq(), (0x0123_4567_ffff_f000, 8));
        assert_eq!(registers.admin_cq().1, 32);
    }

    #[test]
    fn cc_tells_enable_disable_and_shutdown_apart() {
        let mut registers = Registers::default();
        assert_eq!(registers.write(0x14, 0x0046_0001), Effect::Enable);
        assert!(registers.enabled() && registers.has_io_entry_sizes());
        assert_eq!(registers.write(0x14, 0x0046_4001), Effect::Shutdown);
        assert_eq!(registers.write(0x14, 0x0046_4001), Effect::None);
        assert_eq!(registers.write(0x14, 0x0046_4000), Effect::Disable);
        assert_eq!(registers.write(0x14, 0x0046_8001), Effect::Enable);
        assert_eq!(registers.write(0x14, 0xffff_ffff), Effect::None);
        assert_eq!(registers.read(0x14), 0x00ff_fff1, "reserved bits");
    }

    #[test]
    fn csts_shows_each_state_in_its_bits() {
        let mut registers = Registers { ready: true, ..Registers::default() };
        assert_eq!(registers.read(0x1c), 1);
        registers.fatal = true;
        registers.shutdown = Shutdown::Occurring;
        assert_eq!(registers.read(0x1c), 0b0111);
        registers.shutdown = Shutdown::Complete;
        assert_eq!(registers.read(0x1c), 0b1011);
        registers.reset(true);
        assert_eq!(registers.read(0x1c), 0b1_0000, "NSSRO");
        registers.write(0x1c, 0b1_0000);
        assert_eq!(registers.read(0x1c), 0);
    }

    #[test]
    fn interrupts_are_masked_by_intms_and_unmasked_by_intmc() {
        let mut registers = Registers::default();
        registers.write(0x0c, 0b101);
        registers.write(0x0c, 0b010);
        assert_eq!((registers.read(0x0c), registers.read(0x10)), (0b111, 0b111));
        assert_eq!(registers.write(0x10, 0b001), Effect::Unmasked);
        assert!(!registers.is_masked(0) && registers.is_masked(1) && !registers.is_masked(33));
    }

    #[test]
    fn only_nvme_in_ascii_resets_the_subsystem() {
        let mut registers = Registers::default();
        assert_eq!(registers.write(0x20, 0x4e56_4d64), Effect::None);
        assert_eq!(registers.write(0x20, u32::from_be_bytes(*b"NVMe")), Effect::SubsystemReset);
        assert_eq!(registers.read(0x20), 0);
    }
}
