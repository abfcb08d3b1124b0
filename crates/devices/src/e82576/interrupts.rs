//! Interrupt causes, masks, vectors and moderation (82576 datasheet, 7.3 and 8.8).
//!
//! A cause sets its bit in ICR, a queue's by IVAR one in EICR as well. With MSI-X (`GPIE.Multiple_MSIX`) each bit of EICR is a vector, and
//! what is left in ICR and unmasked comes as the vector that `IVAR_MISC` names. Otherwise there is one interrupt, vector 0, for everything.
//!
//! EITR keeps a vector quiet for an interval after each message; what happens in it is told at its end.

use super::bits::{cause, gpie, register};
use etherslot_pci::function::{Bus, InterruptMode};

/// Vectors, and bits of EICR in MSI-X mode.
pub(crate) const VECTORS: u16 = 25;
/// Queue pairs that IVAR can give a vector.
pub(crate) const QUEUES: usize = 16;

const VECTOR_BITS: u32 = (1 << VECTORS) - 1;
const IVAR_VALID: u32 = 0x80;
/// Bits of EICR for timer and other causes when it is not MSI-X.
const SINGLE_BITS: u32 = 0xc000_ffff;
/// EITR: the interval in us (8.8.12), and that the counter is not to be touched.
const EITR_INTERVAL: u32 = 0x7ffc;
const EITR_KEEP_COUNTER: u32 = 1 << 31;

/// The state of all interrupts.
#[derive(Debug)]
pub(crate) struct Interrupts {
    icr: u32,
    ims: u32,
    iam: u32,
    eicr: u32,
    eims: u32,
    eiac: u32,
    eiam: u32,
    gpie: u32,
    ivar: [u32; QUEUES / 2],
    ivar_misc: u32,
    eitr: [u32; VECTORS as usize],
    /// When each vector may be used again.
    quiet_until_ns: [u64; VECTORS as usize],
    /// Vectors whose message has to be sent; bit 0 if there is but one.
    due: u32,
    /// Messages that were sent (IAC).
    pub(crate) asserted: u64,
    /// The level that was asked for last, and that it is not told yet.
    intx: bool,
    is_untold: bool,
    now_ns: u64,
}

impl Interrupts {
    pub(crate) fn new() -> Self {
        Self {
            icr: 0,
            ims: 0,
            iam: 0,
            eicr: 0,
            eims: 0,
            eiac: 0,
            eiam: 0,
            gpie: 0,
            ivar: [0; QUEUES / 2],
            ivar_misc: 0,
            eitr: [0; VECTORS as usize],
            quiet_until_ns: [0; VECTORS as usize],
            due: 0,
            asserted: 0,
            intx: false,
            is_untold: false,
            now_ns: 0,
        }
    }

    /// All registers go back to their start; a level that is asserted is still to be taken back.
    pub(crate) fn reset(&mut self) {
        *self = Self { intx: self.intx, is_untold: self.is_untold, now_ns: self.now_ns, ..Self::new() };
    }

    fn is_multiple(&self) -> bool {
        self.gpie & gpie::MULTIPLE_MSIX != 0
    }

    fn eicr_bits(&self) -> u32 {
        if self.is_multiple() { VECTOR_BITS } else { SINGLE_BITS }
    }

    /// Causes of ICR happened.
    pub(crate) fn raise(&mut self, causes: u32) {
        self.icr |= causes & !cause::INTA;
        if self.icr & self.ims & causes != 0 {
            self.tell_other();
        }
    }

    /// Unmasked causes of ICR are there.
    fn tell_other(&mut self) {
        if !self.is_multiple() {
            self.due |= 1;
        } else if let Some(vector) = valid(self.ivar_misc >> 8) {
            self.set_eicr(1 << vector);
        }
    }

    /// Receive queue `queue` has written descriptors back.
    pub(crate) fn received(&mut self, queue: usize) {
        self.queue(queue, 0, cause::RXDW);
    }

    /// Transmit queue `queue` has.
    pub(crate) fn transmitted(&mut self, queue: usize) {
        self.queue(queue, 1, cause::TXDW);
    }

    /// Entries of IVAR: receive, transmit of queue n, then of queue n + 8 (8.8.15).
    fn queue(&mut self, queue: usize, direction: usize, cause: u32) {
        self.raise(cause);
        let entry = self.ivar[queue & 7] >> (8 * (direction + 2 * (queue >> 3)));
        if let Some(vector) = valid(entry) {
            self.set_eicr(1 << vector & self.eicr_bits());
        }
    }

    fn set_eicr(&mut self, bits: u32) {
        self.eicr |= bits;
        self.now_due(bits);
    }

    /// Bits of EICR are set; those that are not masked are to be told.
    fn now_due(&mut self, bits: u32) {
        let bits = self.eicr & self.eims & bits;
        if self.is_multiple() {
            self.due |= bits;
        } else if bits != 0 {
            self.due |= 1;
        }
    }

    fn is_asserted(&self) -> bool {
        self.icr & self.ims != 0 || self.eicr & self.eims != 0
    }

    /// The register at `offset`, if it is one of these.
    pub(crate) fn read(&mut self, offset: u32) -> Option<u32> {
        Some(match normal(offset) {
            register::ICR => self.read_icr(),
            register::IMS | register::ICS => self.ims,
            register::IAM => self.iam,
            register::EICR => {
                let value = self.eicr;
                self.clear_eicr(u32::MAX);
                value
            }
            register::EIMS => self.eims,
            register::EIAC => self.eiac,
            register::EIAM => self.eiam,
            register::GPIE => self.gpie,
            register::IVAR_MISC => self.ivar_misc,
            register::IMC | register::EICS | register::EIMC => 0,
            offset => {
                if let Some(at) = place(offset, register::EITR, self.eitr.len()) {
                    self.eitr[at]
                } else {
                    self.ivar[place(offset, register::IVAR, self.ivar.len())?]
                }
            }
        })
    }

    /// Writes the register at `offset`; false if it is none of these.
    pub(crate) fn write(&mut self, offset: u32, value: u32) -> bool {
        match normal(offset) {
            register::ICR => {
                self.icr &= !value;
                self.ims &= !self.iam;
            }
            register::ICS => self.raise(value),
            register::IMS => {
                let new = value & !self.ims & !cause::INTA;
                self.ims |= new;
                if self.icr & new != 0 {
                    self.tell_other();
                }
            }
            register::IMC => self.ims &= !value,
            register::IAM => self.iam = value & !cause::INTA,
            register::EICR => self.clear_eicr(value),
            register::EICS => {
                let value = value & self.eicr_bits();
                // 8.8.7: EIAM works this way round, too.
                if self.gpie & gpie::EIAME != 0 {
                    self.eims |= value & self.eiam;
                }
                self.set_eicr(value);
            }
            register::EIMS => {
                let new = value & !self.eims & self.eicr_bits();
                self.eims |= new;
                self.now_due(new);
            }
            register::EIMC => self.eims &= !value,
            register::EIAC => self.eiac = value & VECTOR_BITS,
            register::EIAM => self.eiam = value & (SINGLE_BITS | VECTOR_BITS),
            register::GPIE => {
                self.gpie = value;
                self.due = 0;
                self.eims &= self.eicr_bits();
            }
            register::IVAR_MISC => self.ivar_misc = value & 0xffff,
            offset => {
                if let Some(at) = place(offset, register::EITR, self.eitr.len()) {
                    self.set_eitr(at, value);
                } else if let Some(at) = place(offset, register::IVAR, self.ivar.len()) {
                    self.ivar[at] = value;
                } else {
                    return false;
                }
            }
        }
        true
    }

    /// A counter that is written, rather than kept, starts anew: the vector may be used at once.
    fn set_eitr(&mut self, at: usize, value: u32) {
        self.eitr[at] = value & 0xfffc;
        if value & EITR_KEEP_COUNTER == 0 {
            self.quiet_until_ns[at] = 0;
        }
    }

    /// A read clears ICR, and masks what IAM says, if GPIE.NSICR wants it always, or an interrupt is asserted, or nothing could be (8.8.9).
    fn read_icr(&mut self) -> u32 {
        let asserted = self.icr & self.ims != 0;
        let value = self.icr | if asserted { cause::INTA } else { 0 };
        let always = self.gpie & gpie::NSICR != 0;
        if always || asserted || self.ims == 0 {
            self.icr = 0;
        }
        if always || asserted {
            self.ims &= !self.iam;
        }
        value
    }

    /// Without MSI-X, EIAM masks what is cleared (8.8.7).
    fn clear_eicr(&mut self, bits: u32) {
        self.eicr &= !bits;
        if !self.is_multiple() && self.gpie & gpie::EIAME != 0 {
            self.eims &= !(bits & self.eiam);
        }
    }

    /// Sends what is due and not moderated. True if something was sent.
    pub(crate) fn fire(&mut self, bus: &mut dyn Bus) -> bool {
        self.now_ns = bus.now_ns();
        match bus.interrupt_mode() {
            InterruptMode::Disabled => {
                (self.due, self.is_untold) = (0, false);
                false
            }
            InterruptMode::IntX => self.fire_level(bus),
            InterruptMode::Msi(_) | InterruptMode::MsiX(_) => {
                if self.is_multiple() {
                    self.due &= self.eims;
                } else if !self.is_asserted() {
                    self.due = 0;
                }
                let (mut any, due) = (false, self.due);
                for vector in (0..VECTORS).filter(|vector| due & 1 << vector != 0) {
                    if self.now_ns < self.quiet_until_ns[usize::from(vector)] {
                        continue;
                    }
                    if !bus.interrupt(vector) {
                        break;
                    }
                    self.fired(vector);
                    any = true;
                }
                any
            }
        }
    }

    /// The message of `vector` was sent.
    fn fired(&mut self, vector: u16) {
        let bit = 1 << vector;
        self.due &= !bit;
        self.told(usize::from(vector));
        if self.is_multiple() {
            self.eicr &= !(bit & self.eiac);
            if self.gpie & gpie::EIAME != 0 {
                self.eims &= !(bit & self.eiam);
            }
        }
    }

    fn told(&mut self, vector: usize) {
        self.asserted += 1;
        let interval_us = u64::from((self.eitr[vector] & EITR_INTERVAL) >> 2);
        self.quiet_until_ns[vector] = self.now_ns + interval_us * 1000;
    }

    /// A level: asserted, with its moderation, while a cause is there, and no longer.
    fn fire_level(&mut self, bus: &mut dyn Bus) -> bool {
        let wanted = self.is_asserted();
        let is_new = wanted != self.intx;
        if is_new && wanted && self.now_ns < self.quiet_until_ns[0] {
            self.due = 1;
            return false;
        }
        self.due = 0;
        if is_new || self.is_untold {
            // Even where there is no room to tell it now, what was asked for last is what will be told.
            self.is_untold = !bus.set_intx(wanted);
            self.intx = wanted;
        }
        if is_new && wanted {
            self.told(0);
        }
        is_new
    }

    /// When a vector that is due may be used.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let due = (0..VECTORS).filter(|vector| self.due & 1 << vector != 0);
        due.map(|vector| self.quiet_until_ns[usize::from(vector)]).filter(|&at_ns| at_ns > self.now_ns).min()
    }

    /// Whether nothing has to be told.
    pub(crate) fn is_quiet(&self) -> bool {
        self.due == 0
            && !self.is_untold
            && (self.intx || !self.is_asserted())
            && (!self.intx || self.is_asserted())
    }
}

/// The place in an array of `count` registers from `base` on.
fn place(offset: u32, base: u32, count: usize) -> Option<usize> {
    let at = (offset.checked_sub(base)? / 4) as usize;
    (at < count).then_some(at)
}

/// An entry of IVAR that is valid: its vector.
fn valid(entry: u32) -> Option<u32> {
    let vector = entry & 0x1f;
    (entry & IVAR_VALID != 0 && vector < u32::from(VECTORS)).then_some(vector)
}

/// ICR to IAM are at 0x00c0 as well (8.1.3).
fn normal(offset: u32) -> u32 {
    match offset {
        0x00c0 => register::ICR,
        0x00c8 => register::ICS,
        0x00d0 => register::IMS,
        0x00d8 => register::IMC,
        0x00e0 => register::IAM,
        other => other,
    }
}
