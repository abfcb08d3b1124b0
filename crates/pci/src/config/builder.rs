//! Puts a configuration space together: registers with their values and what may change them, capabilities in
//! their lists.

use std::sync::Arc;

use super::{BYTES, ConfigSpace, Masks, register};

/// One register: where it is, what it holds after a reset, what may change it. The values are of `bytes` bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Register {
    pub(crate) at: u16,
    pub(crate) bytes: u8,
    pub(crate) value: u32,
    /// RW.
    pub(crate) writable: u32,
    /// RW1C.
    pub(crate) clearable: u32,
    /// Outlives Hot Reset and FLR.
    pub(crate) sticky: u32,
    /// Outlives FLR.
    pub(crate) kept_by_flr: u32,
}

impl Register {
    /// A register that only tells.
    pub(crate) const fn fixed(at: u16, bytes: u8, value: u32) -> Self {
        Self { at, bytes, value, writable: 0, clearable: 0, sticky: 0, kept_by_flr: 0 }
    }

    /// A register with bits that can be written.
    pub(crate) const fn writable(at: u16, bytes: u8, value: u32, writable: u32) -> Self {
        Self { writable, ..Self::fixed(at, bytes, value) }
    }
}

/// A configuration space under construction.
pub(crate) struct Builder {
    initial: Box<[u8; BYTES]>,
    masks: Box<Masks>,
    /// Where the pointer to the next capability goes.
    link: u16,
    extended: Option<u16>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        let initial = Box::new([0; BYTES]);
        Self { initial, masks: Masks::new(), link: register::CAPABILITIES_POINTER, extended: None }
    }

    pub(crate) fn put(&mut self, register: Register) {
        let Register { at, bytes, value, writable, clearable, sticky, kept_by_flr } = register;
        for lane in 0..bytes as usize {
            let (at, shift) = (at as usize + lane, 8 * lane);
            self.initial[at] = (value >> shift) as u8;
            self.masks.writable[at] = (writable >> shift) as u8;
            self.masks.clearable[at] = (clearable >> shift) as u8;
            self.masks.sticky[at] = (sticky >> shift) as u8;
            self.masks.kept_by_flr[at] = (kept_by_flr >> shift) as u8;
        }
    }

    /// Starts a capability at `at`, a multiple of 4, behind those before it in the list.
    pub(crate) fn capability(&mut self, id: u8, at: u16) {
        debug_assert!((0x40..0x100).contains(&at) && at.is_multiple_of(4));
        self.initial[self.link as usize] = at as u8;
        self.initial[at as usize] = id;
        self.link = at + 1;
        self.initial[register::STATUS as usize] |= register::STATUS_CAPABILITIES as u8;
    }

    /// Starts an extended capability at `at`, a multiple of 4; the first one is at 0x100 (7.6.1).
    pub(crate) fn extended_capability(&mut self, id: u16, version: u8, at: u16) {
        debug_assert!(at.is_multiple_of(4) && (self.extended.is_some() || at == 0x100));
        if let Some(before) = self.extended.replace(at) {
            let [low, high] = (at << 4).to_le_bytes();
            self.initial[before as usize + 2] |= low;
            self.initial[before as usize + 3] = high;
        }
        self.put(Register::fixed(at, 4, u32::from(version) << 16 | u32::from(id)));
    }

    pub(crate) fn build(self) -> ConfigSpace {
        ConfigSpace { bytes: self.initial.clone(), initial: self.initial, masks: Arc::from(self.masks) }
    }
}

impl ConfigSpace {
    /// A space like this one, with the same rules for its bits and other values in some registers that only
    /// tell.
    pub(crate) fn variant(&self, registers: impl IntoIterator<Item = Register>) -> Self {
        let mut space = self.clone();
        for Register { at, bytes, value, .. } in registers {
            let at = at as usize;
            space.initial[at..at + bytes as usize].copy_from_slice(&value.to_le_bytes()[..bytes as usize]);
        }
        space.bytes.clone_from(&space.initial);
        space
    }
}
