//! Interrupts as messages: MSI and MSI-X, their masks and pending bits (PCIe Base 6.0, 6.1.4).
//!
//! Nothing here sends: a vector that may fire gives the [`Message`] that its owner sends, or stays pending
//! until it may.

use crate::config::ConfigSpace;
use crate::config::capability::MSI;
use crate::config::register::msi;
use crate::function::MsixSpec;

/// Bytes of an MSI-X table entry.
pub const ENTRY_BYTES: usize = 16;
const VECTORS_PER_WORD: usize = 64;
/// Vector Control of an entry.
const VECTOR_CONTROL: usize = 12;
const VECTOR_MASKED: u8 = 1;

/// A DW that is written to memory to interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Where, a multiple of 4.
    pub address: u64,
    /// What.
    pub data: u32,
}

/// The MSI-X table and PBA.
#[derive(Debug)]
pub struct MsixTable {
    spec: MsixSpec,
    table: Box<[u8]>,
    pending: Box<[u64]>,
}

/// Whether an access to a BAR meets the table or the PBA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// The Function's own.
    Function,
    /// The table, from this offset in it on.
    Table(usize),
    /// The PBA, from this offset in it on.
    Pending(usize),
}

impl MsixTable {
    /// A table as it is after a reset: all vectors masked.
    pub fn new(spec: MsixSpec) -> Self {
        let vectors = spec.vectors as usize;
        let table = vec![0; vectors * ENTRY_BYTES].into_boxed_slice();
        let pending = vec![0; vectors.div_ceil(VECTORS_PER_WORD)].into_boxed_slice();
        let mut msix = Self { spec, table, pending };
        msix.reset();
        msix
    }

    /// Back to the state after construction.
    pub fn reset(&mut self) {
        for entry in self.table.chunks_exact_mut(ENTRY_BYTES) {
            entry.fill(0);
            entry[VECTOR_CONTROL] = VECTOR_MASKED;
        }
        self.pending.fill(0);
    }

    /// Vectors in the table.
    pub fn vectors(&self) -> u16 {
        self.spec.vectors
    }

    /// Where in the BAR the table is, and where the PBA: offset and bytes.
    pub fn regions(&self) -> [(u64, u64); 2] {
        [
            (u64::from(self.spec.table_offset), self.table.len() as u64),
            (u64::from(self.spec.pba_offset), 8 * self.pending.len() as u64),
        ]
    }

    /// What is at `offset` in BAR `bar`, and how many of the `bytes` bytes from there on are of the same kind.
    pub fn locate(&self, bar: u8, offset: u64, bytes: usize) -> (Region, usize) {
        if bar != self.spec.bar {
            return (Region::Function, bytes);
        }
        let mut free = bytes as u64;
        for (index, (start, length)) in self.regions().into_iter().enumerate() {
            let end = start + length;
            if (start..end).contains(&offset) {
                let inside = (offset - start) as usize;
                let region = if index == 0 { Region::Table(inside) } else { Region::Pending(inside) };
                return (region, bytes.min((end - offset) as usize));
            }
            if offset < start {
                free = free.min(start - offset);
            }
        }
        (Region::Function, free as usize)
    }

    /// Reads the table or the PBA; `data` ends where the region does.
    pub fn read(&self, region: Region, data: &mut [u8]) {
        match region {
            Region::Function => {}
            Region::Table(at) => data.copy_from_slice(&self.table[at..at + data.len()]),
            Region::Pending(at) => {
                for (index, byte) in data.iter_mut().enumerate() {
                    let at = at + index;
                    *byte = self.pending[at / 8].to_le_bytes()[at % 8];
                }
            }
        }
    }

    /// Writes the table; the PBA is read-only (7.7.2). `data` ends where the region does. True if a vector was
    /// unmasked that is pending.
    pub fn write(&mut self, region: Region, data: &[u8]) -> bool {
        let Region::Table(start) = region else { return false };
        let mut fires = false;
        for (index, &value) in data.iter().enumerate() {
            let at = start + index;
            let writable = match at % ENTRY_BYTES {
                // Message Address[1:0] are 0 (7.7.2.1).
                0 => 0xFC,
                // Of Vector Control, only Mask is implemented (7.7.2.4).
                VECTOR_CONTROL => VECTOR_MASKED,
                13..=15 => 0,
                _ => 0xFF,
            };
            self.table[at] = self.table[at] & !writable | value & writable;
            let vector = at / ENTRY_BYTES;
            fires |=
                at % ENTRY_BYTES == VECTOR_CONTROL && value & VECTOR_MASKED == 0 && self.is_pending(vector);
        }
        fires
    }

    /// Makes a vector pending.
    pub fn raise(&mut self, vector: u16) {
        if vector < self.spec.vectors {
            self.pending[vector as usize / VECTORS_PER_WORD] |= 1 << (vector as usize % VECTORS_PER_WORD);
        }
    }

    /// Takes back that a vector is pending, as its message is on its way.
    pub fn clear(&mut self, vector: u16) {
        if vector < self.spec.vectors {
            self.pending[vector as usize / VECTORS_PER_WORD] &= !(1 << (vector as usize % VECTORS_PER_WORD));
        }
    }

    /// The message of a vector, unless it is masked or does not exist. Function Mask is not looked at.
    pub fn message(&self, vector: u16) -> Option<Message> {
        let entry: &[u8; ENTRY_BYTES] = self.table.get(vector as usize * ENTRY_BYTES..)?.first_chunk()?;
        let [a0, a1, a2, a3, a4, a5, a6, a7, d0, d1, d2, d3, control, ..] = *entry;
        (control & VECTOR_MASKED == 0).then(|| Message {
            address: u64::from_le_bytes([a0, a1, a2, a3, a4, a5, a6, a7]),
            data: u32::from_le_bytes([d0, d1, d2, d3]),
        })
    }

    /// The first vector that is pending and not masked, with its message.
    pub fn first_to_fire(&self) -> Option<(u16, Message)> {
        for (index, &word) in self.pending.iter().enumerate() {
            let mut left = word;
            while left != 0 {
                let vector = (index * VECTORS_PER_WORD) as u16 + left.trailing_zeros() as u16;
                if let Some(message) = self.message(vector) {
                    return Some((vector, message));
                }
                left &= left - 1;
            }
        }
        None
    }

    fn is_pending(&self, vector: usize) -> bool {
        self.pending[vector / VECTORS_PER_WORD] >> (vector % VECTORS_PER_WORD) & 1 != 0
    }
}

/// Vectors that MSI has enabled, 0 if MSI is off: never more than the capability offers.
pub(crate) fn msi_enabled(config: &ConfigSpace, capable: u8) -> u16 {
    let control = config.u16(MSI + msi::CONTROL);
    if capable == 0 || control & msi::CONTROL_ENABLE == 0 {
        return 0;
    }
    let enabled = 1 << (control >> msi::CONTROL_ENABLED_SHIFT & 7);
    u16::from(capable).min(enabled)
}

/// The MSI of `vector`, one of `enabled`, unless it is masked (6.1.4.3).
pub(crate) fn msi_message(config: &ConfigSpace, vector: u16, enabled: u16) -> Option<Message> {
    let masked = config.u32(MSI + msi::MASK) >> vector & 1 != 0;
    (!masked).then(|| {
        let low = config.u32(MSI + msi::ADDRESS);
        let high = config.u32(MSI + msi::ADDRESS + 4);
        // The low bits of the data tell the vectors apart.
        let data = config.u16(MSI + msi::DATA) & !(enabled - 1) | vector;
        Message { address: u64::from(high) << 32 | u64::from(low), data: u32::from(data) }
    })
}

/// Sets or clears the Pending Bit of an MSI vector.
pub(crate) fn msi_set_pending(config: &mut ConfigSpace, vector: u16, pending: bool) {
    let bits = config.u32(MSI + msi::PENDING);
    let bit = 1 << vector;
    config.set_u32(MSI + msi::PENDING, if pending { bits | bit } else { bits & !bit });
}

/// The first MSI vector that is pending and not masked, with its message.
pub(crate) fn msi_first_to_fire(config: &ConfigSpace, enabled: u16) -> Option<(u16, Message)> {
    let ready = config.u32(MSI + msi::PENDING) & !config.u32(MSI + msi::MASK);
    let vector = ready.trailing_zeros() as u16;
    // A bit at or above `enabled` is left from when more were enabled.
    let message = (vector < enabled).then(|| msi_message(config, vector, enabled))??;
    Some((vector, message))
}

#[cfg(test)]
mod tests;
