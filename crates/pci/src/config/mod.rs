//! A Function's configuration space: 4 KiB in which each bit knows what a write and a reset do to it (PCIe Base
//! 6.0, 7.4).
//!
//! Reads and writes have no effect beyond the space itself; its owner looks at what changed.

pub mod builder;
pub mod capability;
pub mod register;

use std::sync::Arc;

/// Bytes of a configuration space.
pub const BYTES: usize = 4096;

/// What resets a configuration space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigReset {
    /// Power-on (Fundamental Reset): everything (6.6.1).
    Power,
    /// Hot Reset: everything but sticky bits (6.6.1).
    Hot,
    /// FLR: everything but sticky bits and those that belong to the Link (6.6.2).
    FunctionLevel,
}

/// What writes and resets do to each bit. One set can serve many spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Masks {
    /// RW, RWS.
    writable: [u8; BYTES],
    /// RW1C, RW1CS: a written 1 clears.
    clearable: [u8; BYTES],
    /// Sticky: outlives Hot Reset and FLR.
    sticky: [u8; BYTES],
    /// Outlives FLR.
    kept_by_flr: [u8; BYTES],
}

impl Masks {
    fn new() -> Box<Self> {
        const NONE: [u8; BYTES] = [0; BYTES];
        Box::new(Self { writable: NONE, clearable: NONE, sticky: NONE, kept_by_flr: NONE })
    }
}

/// A configuration space.
#[derive(Clone, Debug)]
pub struct ConfigSpace {
    bytes: Box<[u8; BYTES]>,
    initial: Box<[u8; BYTES]>,
    masks: Arc<Masks>,
}

impl ConfigSpace {
    /// The DW at `register`, byte by byte; registers that are not there read 0. `register` is cut to a DW of
    /// the space.
    pub fn read(&self, register: u16) -> [u8; 4] {
        let at = dw(register);
        [self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]]
    }

    /// A Configuration Write of one DW, with its byte enables.
    pub fn write(&mut self, register: u16, enables: u8, data: [u8; 4]) {
        let start = dw(register);
        for (lane, value) in data.into_iter().enumerate().filter(|(lane, _)| enables >> lane & 1 != 0) {
            let at = start + lane;
            let (writable, clearable) = (self.masks.writable[at], self.masks.clearable[at]);
            let byte = &mut self.bytes[at];
            *byte = (*byte & !writable | value & writable) & !(value & clearable);
        }
    }

    /// The whole space.
    pub fn image(&self) -> &[u8; BYTES] {
        &self.bytes
    }

    /// The byte at `at`.
    pub fn u8(&self, at: u16) -> u8 {
        self.bytes[at as usize & (BYTES - 1)]
    }

    /// The little-endian 16-bit register at `at`, which is even.
    pub fn u16(&self, at: u16) -> u16 {
        let at = at as usize & (BYTES - 2);
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }

    /// The little-endian 32-bit register at `at`, a multiple of 4.
    pub fn u32(&self, at: u16) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    /// Sets the 16-bit register at `at` from inside, whatever writes may do to it.
    pub fn set_u16(&mut self, at: u16, value: u16) {
        let at = at as usize & (BYTES - 2);
        self.bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }

    /// Sets the 32-bit register at `at` from inside, whatever writes may do to it.
    pub fn set_u32(&mut self, at: u16, value: u32) {
        let at = dw(at);
        self.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }

    /// Sets bits of the 16-bit register at `at` from inside.
    pub fn raise_u16(&mut self, at: u16, bits: u16) {
        self.set_u16(at, self.u16(at) | bits);
    }

    /// Sets bits of the 32-bit register at `at` from inside.
    pub fn raise_u32(&mut self, at: u16, bits: u32) {
        self.set_u32(at, self.u32(at) | bits);
    }

    /// Back to the values after construction, but for what outlives this reset.
    pub fn reset(&mut self, kind: ConfigReset) {
        for at in 0..BYTES {
            let kept = match kind {
                ConfigReset::Power => 0,
                ConfigReset::Hot => self.masks.sticky[at],
                ConfigReset::FunctionLevel => self.masks.sticky[at] | self.masks.kept_by_flr[at],
            };
            self.bytes[at] = self.initial[at] & !kept | self.bytes[at] & kept;
        }
    }

    /// The bits of the DW at `register` that a Configuration Write can set or clear.
    pub fn changeable(&self, register: u16) -> u32 {
        let at = dw(register);
        let masks = &self.masks;
        u32::from_le_bytes([0, 1, 2, 3].map(|lane| masks.writable[at + lane] | masks.clearable[at + lane]))
    }
}

/// The offset of a DW inside the space.
const fn dw(register: u16) -> usize {
    register as usize & (BYTES - 4)
}

#[cfg(test)]
mod tests;
