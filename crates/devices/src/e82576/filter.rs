//! Which frames are for this controller (82576 datasheet, 7.1.1): by length, destination address and VLAN.

use super::bits::{rctl, register};
use super::registers::Registers;
use super::statistics::{Statistics, counter};

/// Bytes of the longest frame with FCS if RCTL.LPE is not set: of one with a tag.
const MAX_SHORT_BYTES: usize = 1522;
const FCS_BYTES: usize = 4;
/// RAH.AV.
const VALID: u32 = 1 << 31;

/// How a frame passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// By its very address.
    Exact,
    /// By a hash, or because all do.
    Inexact,
}

/// Whether a frame passes, and how. `tag` is its VLAN tag, if it has one.
pub(crate) fn pass(
    registers: &Registers,
    statistics: &mut Statistics,
    frame: &[u8],
    tag: Option<u16>,
) -> Option<Passed> {
    let control = registers.get(register::RCTL);
    let most =
        if control & rctl::LPE == 0 { MAX_SHORT_BYTES } else { registers.get(register::RLPML) as usize };
    if frame.len() + FCS_BYTES > most {
        statistics.add(counter::ROC, 1);
        statistics.add(counter::RLEC, 1);
        return None;
    }
    if tag.is_some_and(|tag| !passes_vlan(registers, control, tag)) {
        return None;
    }
    passes_address(registers, control, *frame.first_chunk()?)
}

/// RCTL.VFE and VFTA; RCTL.CFIEN (7.1.1.4).
fn passes_vlan(registers: &Registers, control: u32, tag: u16) -> bool {
    if control & rctl::VFE == 0 {
        return true;
    }
    let is_canonical = control & rctl::CFIEN == 0 || (control & rctl::CFI != 0) == (tag & 1 << 12 != 0);
    let vid = u32::from(tag & 0xfff);
    is_canonical && registers.get(register::VFTA + 4 * (vid >> 5)) >> (vid & 31) & 1 != 0
}

fn passes_address(registers: &Registers, control: u32, to: [u8; 6]) -> Option<Passed> {
    let has = |bit: u32| control & bit != 0;
    if is_ours(registers, to) {
        return Some(Passed::Exact);
    }
    let passes = if to == [0xff; 6] {
        has(rctl::BAM) || has(rctl::MPE)
    } else if to[0] & 1 != 0 {
        has(rctl::MPE) || is_hashed(registers, control >> rctl::MO_SHIFT & 3, to)
    } else {
        has(rctl::UPE)
    };
    passes.then_some(Passed::Inexact)
}

/// The receive addresses, 0 to 15 and 16 to 23.
fn is_ours(registers: &Registers, to: [u8; 6]) -> bool {
    let low = u32::from_le_bytes([to[0], to[1], to[2], to[3]]);
    let high = u32::from(to[4]) | u32::from(to[5]) << 8;
    let first = (0..16).map(|at| register::RAL + 8 * at);
    let second = (0..8).map(|at| register::RAL2 + 8 * at);
    first.chain(second).any(|at| {
        let above = registers.get(at + 4);
        // Address Select: destination.
        above & VALID != 0 && above & 0x0003_ffff == high && registers.get(at) == low
    })
}

/// The multicast table: 12 bits of the address, from which on RCTL.MO says (8.10.14).
fn is_hashed(registers: &Registers, offset: u32, to: [u8; 6]) -> bool {
    let shift = [4, 3, 2, 0][offset as usize & 3];
    let upper = u32::from(to[4]) | u32::from(to[5]) << 8;
    let bits = upper >> shift & 0xfff;
    registers.get(register::MTA + 4 * (bits >> 5)) >> (bits & 31) & 1 != 0
}
